//! A point in time on the runtime's own clock.

use std::ops::Add;
use std::time::Duration;

/// Nanoseconds since the runtime started: virtual in simulation, elapsed real time on the wall clock.
///
/// Arithmetic saturates: the last instant is 2^64 - 1 ns, about 584 years.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Instant(u64);

impl Instant {
    /// The moment the runtime started.
    pub const ZERO: Instant = Instant(0);

    /// The instant `nanos` nanoseconds after the start.
    pub const fn from_nanos(nanos: u64) -> Self {
        Instant(nanos)
    }

    /// Nanoseconds since the start.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Time passed since `earlier`; zero if `earlier` is in fact later.
    pub const fn since(self, earlier: Instant) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Instant {
    type Output = Instant;

    fn add(self, duration: Duration) -> Instant {
        let nanos = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        Instant(self.0.saturating_add(nanos))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arithmetic_saturates() {
        let last = Instant::from_nanos(u64::MAX);
        assert_eq!(last + Duration::from_nanos(1), last);
        assert_eq!(Instant::ZERO + Duration::MAX, last);
        assert_eq!(Instant::ZERO.since(last), Duration::ZERO);
        assert_eq!(Instant::from_nanos(7).since(Instant::from_nanos(5)), Duration::from_nanos(2));
    }
}
