//! The ways in which a server is asked.

use std::time::Duration;

/// How long the server looks for the next request before it sleeps, as `weir mount` does.
const WATCH: Duration = Duration::from_micros(50);

/// A way to be asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// One thread reads requests from the device, looks for the next one for so long, and then sleeps. It gives way
    /// to other threads meanwhile, or not.
    Device { watch: Duration, gives_way: bool },
    /// One thread has the queues of all cores.
    OneThread { watch: Duration },
    /// Each core's queue has a thread, on that core.
    ThreadEach { watch: Duration },
    /// The same, and what is asked is handed over to one thread more, and answered by it. Both look for so long.
    HandOver { watch: Duration },
}

impl Way {
    /// That of `weir mount`.
    pub const TODAY: Way = Way::Device { watch: WATCH, gives_way: true };

    pub fn all() -> impl Iterator<Item = Way> {
        let long = Duration::from_micros(200);
        [
            Way::TODAY,
            Way::Device { watch: Duration::ZERO, gives_way: true },
            Way::Device { watch: long, gives_way: true },
            Way::Device { watch: WATCH, gives_way: false },
            Way::OneThread { watch: Duration::ZERO },
            Way::OneThread { watch: WATCH },
            Way::ThreadEach { watch: Duration::ZERO },
            Way::ThreadEach { watch: WATCH },
            Way::HandOver { watch: WATCH },
        ]
        .into_iter()
    }

    /// Whether it takes FUSE over io_uring.
    pub fn uses_queues(self) -> bool {
        !matches!(self, Way::Device { .. })
    }

    pub fn title(self) -> String {
        let looks = |watch: Duration| match watch.as_micros() {
            0 => "sleeps at once".to_owned(),
            micros => format!("looks for {micros} us"),
        };
        match self {
            Way::Device { watch, gives_way: true } => format!("device, {}", looks(watch)),
            Way::Device { watch, gives_way: false } => format!("device, {}, keeps its core", looks(watch)),
            Way::OneThread { watch } => format!("io_uring, one thread, {}", looks(watch)),
            Way::ThreadEach { watch } => format!("io_uring, a thread a core, {}", looks(watch)),
            Way::HandOver { watch } => format!("io_uring, a thread a core hands over, {}", looks(watch)),
        }
    }
}
