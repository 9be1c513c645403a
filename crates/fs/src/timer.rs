//! The time that inodes are stamped with.

use weir_format::FileTime;
use weir_runtime::Handle as Clock;

use crate::mutants::FsMutant;
use crate::options::MountOptions;

const NANOS_A_SECOND: u64 = 1_000_000_000;

/// A clock that moves with the timer (J6), so two writes between two ticks change the inode once.
#[derive(Clone)]
pub(crate) struct Timer {
    clock: Clock,
    /// Nanoseconds between two ticks.
    tick: u64,
}

impl Timer {
    pub(crate) fn new(clock: &Clock, options: &MountOptions) -> Timer {
        let tick = match options.rules.drops(FsMutant::StampsEveryWrite) {
            true => 1,
            false => NANOS_A_SECOND / u64::from(options.timer_hz.max(1)),
        };
        Timer { clock: clock.clone(), tick }
    }

    /// The time of the last tick. The date is asked for each time: it may be stepped, and the machine may have slept.
    pub(crate) fn now(&self) -> FileTime {
        let now = self.clock.wall_clock_nanos() / self.tick * self.tick;
        FileTime {
            seconds: i64::try_from(now / NANOS_A_SECOND).unwrap_or(i64::MAX),
            nanoseconds: (now % NANOS_A_SECOND) as u32,
        }
    }
}
