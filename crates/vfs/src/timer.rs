//! The time that inodes are stamped with.

use weir_format::FileTime;
use weir_runtime::Handle as Clock;

const NANOS_A_SECOND: u64 = 1_000_000_000;

/// A clock that moves with the timer (J6), so two writes between two ticks change the inode once.
#[derive(Clone)]
pub struct Timer {
    clock: Clock,
    /// Nanoseconds between two ticks.
    tick: u64,
}

impl Timer {
    /// A timer of so many ticks a second, at most a billion.
    pub fn new(clock: &Clock, ticks_a_second: u32) -> Timer {
        Timer { clock: clock.clone(), tick: (NANOS_A_SECOND / u64::from(ticks_a_second.max(1))).max(1) }
    }

    /// The time of the last tick. The date is asked for each time: it may be stepped, and the machine may have slept.
    pub fn now(&self) -> FileTime {
        let now = self.clock.wall_clock_nanos() / self.tick * self.tick;
        FileTime {
            seconds: i64::try_from(now / NANOS_A_SECOND).unwrap_or(i64::MAX),
            nanoseconds: (now % NANOS_A_SECOND) as u32,
        }
    }
}
