//! The two clocks, and the only place that asks the machine for time.

#![expect(clippy::disallowed_methods, clippy::disallowed_types, reason = "all others ask here")]

use std::cell::Cell;
use std::time::Duration;

use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeVal;
use rustix::time::{ClockId, clock_gettime};

use crate::Instant;

const NANOS_A_MILLI: u64 = 1_000_000;
const NANOS_A_SECOND: i64 = 1_000_000_000;

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
enum Source {
    /// Stands still while tasks run; the executor moves it to the next timer.
    Virtual(Cell<Instant>),
    /// Runs by itself since the start it holds.
    Wall(std::time::Instant),
}

/// The time, and how far the date is off what the source says.
#[derive(Debug)]
pub(crate) struct Clock {
    source: Source,
    /// Nanoseconds that the date was stepped on or back.
    stepped: Cell<i64>,
}

impl Clock {
    fn new(source: Source) -> Self {
        Clock { source, stepped: Cell::new(0) }
    }

    pub(crate) fn simulated() -> Self {
        Clock::new(Source::Virtual(Cell::default()))
    }

    pub(crate) fn wall() -> Self {
        Clock::new(Source::Wall(std::time::Instant::now()))
    }

    pub(crate) fn now(&self) -> Instant {
        match &self.source {
            Source::Virtual(now) => now.get(),
            Source::Wall(start) => Instant::ZERO + start.elapsed(),
        }
    }

    /// Time since a moment in the past, suspensions of the machine included. Steps of the date do not change it.
    pub(crate) fn with_suspensions(&self) -> Instant {
        match &self.source {
            Source::Virtual(now) => now.get(),
            Source::Wall(_) => {
                let since_boot = clock_gettime(ClockId::Boottime);
                let seconds = u64::try_from(since_boot.tv_sec).unwrap_or(0);
                let nanos = u32::try_from(since_boot.tv_nsec).unwrap_or(0);
                Instant::ZERO + Duration::new(seconds, nanos)
            }
        }
    }

    pub(crate) fn is_virtual(&self) -> bool {
        matches!(self.source, Source::Virtual(_))
    }

    /// Moves virtual time on to `to`; real time moves by itself.
    pub(crate) fn advance(&self, to: Instant) {
        if let Source::Virtual(now) = &self.source {
            now.set(now.get().max(to));
        }
    }

    /// Steps the date by so many nanoseconds.
    pub(crate) fn step(&self, nanos: i64) {
        self.stepped.set(self.stepped.get().saturating_add(nanos));
    }

    /// Nanoseconds since 1970. The machine is asked each time, since its date may be stepped, and goes on while it is
    /// suspended.
    pub(crate) fn unix_nanos(&self, seed: u64) -> u64 {
        let nanos = match &self.source {
            Source::Virtual(now) => {
                let start = SIMULATED_UNIX_MILLIS + seed % SIMULATED_SPREAD_MILLIS;
                start * NANOS_A_MILLI + now.get().as_nanos()
            }
            Source::Wall(_) => machine_date_nanos(),
        };
        nanos.saturating_add_signed(self.stepped.get())
    }
}

/// The machine's date as of its last timer interrupt, up to 10 ms ago: a fourth of the price of the exact one, and what
/// the kernel's filesystems stamp with, too. In nanoseconds since 1970; zero before. Lines of a log bear it, also those of
/// threads without a runtime. What a run does asks [`Handle::wall_clock_nanos`](crate::Handle::wall_clock_nanos).
#[must_use]
pub fn machine_date_nanos() -> u64 {
    let now = clock_gettime(ClockId::RealtimeCoarse);
    let nanos = now.tv_sec.saturating_mul(NANOS_A_SECOND).saturating_add(now.tv_nsec);
    u64::try_from(nanos).unwrap_or(0)
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
