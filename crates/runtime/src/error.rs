//! What can go wrong in the runtime itself.

use crate::Buffer;

/// Why a wall-clock runtime could not start.
#[derive(Debug, thiserror::Error)]
pub enum RuntimeError {
    /// The kernel refused an io_uring.
    #[error("the kernel refused an io_uring of {entries} entries: {source}{}", hint_for_ring_error(source))]
    Ring {
        /// Entries asked for.
        entries: u32,
        /// The kernel's answer.
        source: std::io::Error,
    },
    /// The kernel refused the eventfd through which other threads wake the runtime.
    #[error("the kernel refused an eventfd: {0}; check the open-file limit")]
    EventFd(std::io::Error),
}

/// Virtual time cannot go on: nothing is ready and no timer is pending, so whatever the tasks wait for will
/// never come. It is a lost wake-up or a deadlock.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "virtual time stalled at {at_nanos} ns: deadlock: the main task and {waiting} spawned tasks wait, no task is ready and no timer is pending"
)]
pub struct Stalled {
    /// Spawned tasks that are not finished.
    pub waiting: usize,
    /// When it stalled, in nanoseconds of virtual time.
    pub at_nanos: u64,
}

/// The task was cancelled, or the runtime it lived in is gone, before it had a result.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the task was cancelled before it finished")]
pub struct Cancelled;

/// The ring has as many operations in flight as it has entries, or its runtime is gone.
///
/// Nothing was queued and the callback was dropped uncalled: look at [`Ring::room`](crate::Ring::room) first,
/// or try again after a completion.
#[derive(Debug, thiserror::Error)]
#[error("the io_uring has no free entry; wait for a completion and try again")]
pub struct RingFull {
    /// The buffer of a refused read, given back.
    pub buffer: Option<Buffer>,
}

/// Why work sent from another thread was not accepted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum RemoteError {
    /// The inbox holds as many messages as it may; try again later.
    #[error("the runtime's inbox is full; try again later")]
    Full,
    /// The runtime has been dropped.
    #[error("the runtime has ended")]
    Closed,
}

/// What to do if there is no ring. The kernel refuses by errno 1, `EPERM`, what the rules of a container refuse by that, or by 38,
/// `ENOSYS`.
fn hint_for_ring_error(source: &std::io::Error) -> &'static str {
    match source.raw_os_error() {
        Some(1 | 38) => {
            "; set kernel.io_uring_disabled to 0; start a container with --security-opt seccomp=unconfined, or with rules that \
             allow io_uring_setup, io_uring_enter and io_uring_register"
        }
        Some(12) => "; raise the limit of locked memory, RLIMIT_MEMLOCK",
        _ => "",
    }
}
