//! The two clocks, and the only place that asks the machine for time.

use std::cell::Cell;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeVal;

use crate::Instant;

/// Unix time of a simulated runtime's start for seed 0: 2024-01-01T00:00:00Z, in milliseconds.
const SIMULATED_UNIX_MILLIS: u64 = 1_704_067_200_000;

/// How far the seed may move the simulated start: one year, in milliseconds.
const SIMULATED_SPREAD_MILLIS: u64 = 365 * 24 * 3600 * 1000;

/// Processor time the whole process has used, all threads together.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CpuTime {
    /// In the program itself.
    pub user: Duration,
    /// In the kernel on the program's behalf.
    pub system: Duration,
}

impl CpuTime {
    /// User and system time together.
    pub fn total(self) -> Duration {
        self.user + self.system
    }
}

/// Where the time comes from.
#[derive(Debug)]
pub(crate) enum Clock {
    /// Stands still while tasks run; the executor moves it to the next timer.
    Virtual(Cell<Instant>),
    /// Runs by itself since the start it holds.
    Wall(std::time::Instant),
}

impl Clock {
    pub(crate) fn simulated() -> Self {
        Clock::Virtual(Cell::default())
    }

    pub(crate) fn wall() -> Self {
        Clock::Wall(std::time::Instant::now())
    }

    pub(crate) fn now(&self) -> Instant {
        match self {
            Clock::Virtual(now) => now.get(),
            Clock::Wall(start) => Instant::ZERO + start.elapsed(),
        }
    }

    pub(crate) fn is_virtual(&self) -> bool {
        matches!(self, Clock::Virtual(_))
    }

    /// Moves virtual time on to `to`; real time moves by itself.
    pub(crate) fn advance(&self, to: Instant) {
        if let Clock::Virtual(now) = self {
            now.set(now.get().max(to));
        }
    }

    pub(crate) fn unix_millis(&self, seed: u64) -> u64 {
        match self {
            Clock::Virtual(now) => {
                SIMULATED_UNIX_MILLIS + seed % SIMULATED_SPREAD_MILLIS + now.get().as_nanos() / 1_000_000
            }
            Clock::Wall(_) => {
                let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
                u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
            }
        }
    }
}

/// Processor time of this process; zero if the system does not say.
pub(crate) fn cpu_time() -> CpuTime {
    let Ok(usage) = getrusage(UsageWho::RUSAGE_SELF) else { return CpuTime::default() };
    CpuTime { user: duration(usage.user_time()), system: duration(usage.system_time()) }
}

/// The most memory that this process had resident, in bytes; zero if the system does not say.
pub(crate) fn peak_memory_bytes() -> u64 {
    let kibibytes = getrusage(UsageWho::RUSAGE_SELF).map_or(0, |usage| usage.max_rss());
    u64::try_from(kibibytes).unwrap_or(0) * 1024
}

fn duration(time: TimeVal) -> Duration {
    let seconds = u64::try_from(time.tv_sec()).unwrap_or(0);
    let micros = u64::try_from(time.tv_usec()).unwrap_or(0);
    Duration::from_secs(seconds) + Duration::from_micros(micros)
}
