//! Measuring a round: one clock read a write, and nothing else that costs.

use std::time::Duration;

use hdrhistogram::Histogram;
use weir_runtime::{Handle, Instant, Ring};

/// When a round is over: all of `writes` and `time`, or `time_max` whatever else.
#[derive(Clone, Copy, Debug)]
pub struct Goal {
    /// Writes at least.
    pub writes: u64,
    /// Time at least.
    pub time: Duration,
    /// Time at most, for runs that must end soon.
    pub time_max: Duration,
}

impl Goal {
    /// Exactly `writes` writes, however long they take.
    #[must_use]
    pub fn writes(writes: u64) -> Goal {
        Goal { writes, time: Duration::ZERO, time_max: Duration::MAX }
    }
}

/// Latencies are recorded in nanoseconds up to one minute, with two digits.
const LATENCY_MAX_NS: u64 = 60_000_000_000;

/// Measures one round.
pub struct Meter {
    handle: Handle,
    ring: Option<Ring>,
    latency: Histogram<u64>,
    started: Instant,
    last: Instant,
    cpu: Duration,
    writes: u64,
    calls_ns: u64,
    in_flight: u64,
    in_flight_ns: u64,
}

/// What a round measured.
#[derive(Clone, Debug)]
pub struct Measured {
    /// Writes answered.
    pub writes: u64,
    /// From the first write to the end of the final flush.
    pub elapsed: Duration,
    /// Latency of each write, in nanoseconds.
    pub latency: Histogram<u64>,
    /// User and system time of the whole process.
    pub cpu: Duration,
    /// Commands of the process in flight at the disk, averaged over time; `None` without a ring.
    pub disk_depth: Option<f64>,
    /// Calls in progress, averaged over time (Little's law).
    pub calls_depth: f64,
}

impl Meter {
    /// Starts a round now.
    ///
    /// # Panics
    /// Never: the histogram's bounds are constants that it accepts.
    #[must_use]
    pub fn start(handle: &Handle) -> Meter {
        #[allow(clippy::expect_used)]
        let latency = Histogram::new_with_bounds(1, LATENCY_MAX_NS, 2).expect("the bounds are valid");
        let started = handle.now();
        Meter {
            handle: handle.clone(),
            ring: handle.ring(),
            latency,
            started,
            last: started,
            cpu: total(handle),
            writes: 0,
            calls_ns: 0,
            in_flight: 0,
            in_flight_ns: 0,
        }
    }

    /// A write was answered that began when the one before it was answered. Reads the clock once.
    #[inline]
    pub fn lap(&mut self) {
        let began = self.last;
        self.answered(began);
    }

    /// A write was answered that began at `began`. Returns the time read: the next one's beginning.
    #[inline]
    pub fn answered(&mut self, began: Instant) -> Instant {
        let now = self.tick();
        let latency_ns = now.as_nanos().saturating_sub(began.as_nanos());
        self.latency.saturating_record(latency_ns.max(1));
        self.calls_ns += latency_ns;
        self.writes += 1;
        now
    }

    /// Whether the round may end.
    #[inline]
    #[must_use]
    pub fn reached(&self, goal: &Goal) -> bool {
        let elapsed = self.last.since(self.started);
        (self.writes >= goal.writes && elapsed >= goal.time) || elapsed >= goal.time_max
    }

    /// When the last write was answered.
    #[must_use]
    pub fn last(&self) -> Instant {
        self.last
    }

    /// Ends the round now.
    #[must_use]
    pub fn stop(mut self) -> Measured {
        let now = self.tick();
        let elapsed = now.since(self.started);
        let elapsed_ns = elapsed.as_nanos().max(1) as f64;
        Measured {
            writes: self.writes,
            elapsed,
            latency: self.latency,
            cpu: total(&self.handle).saturating_sub(self.cpu),
            disk_depth: self.ring.is_some().then(|| self.in_flight_ns as f64 / elapsed_ns),
            calls_depth: self.calls_ns as f64 / elapsed_ns,
        }
    }

    /// Reads the clock, and adds what was in flight meanwhile: the mean of then and now.
    #[inline]
    fn tick(&mut self) -> Instant {
        let now = self.handle.now();
        let in_flight = self.ring.as_ref().map_or(0, |ring| ring.in_flight() as u64);
        let passed_ns = now.as_nanos().saturating_sub(self.last.as_nanos());
        self.in_flight_ns += passed_ns * (self.in_flight + in_flight) / 2;
        self.in_flight = in_flight;
        self.last = now;
        now
    }
}

fn total(handle: &Handle) -> Duration {
    let cpu = handle.cpu_time();
    cpu.user + cpu.system
}

#[cfg(test)]
mod tests {
    use weir_runtime::{Runtime, Simulation};

    use super::*;

    #[test]
    fn laps_are_latencies_and_depth_follows_from_them() {
        let runtime = Runtime::simulated(Simulation::default());
        let handle = runtime.handle();
        let measured = runtime
            .block_on(async {
                let mut meter = Meter::start(&handle);
                for _ in 0..10 {
                    handle.sleep(Duration::from_micros(100)).await;
                    meter.lap();
                }
                handle.sleep(Duration::from_micros(1000)).await;
                meter.stop()
            })
            .unwrap();
        assert_eq!(measured.writes, 10);
        assert_eq!(measured.elapsed, Duration::from_micros(2000));
        assert!((measured.latency.mean() / 100_000.0 - 1.0).abs() < 0.01);
        assert!((measured.calls_depth - 0.5).abs() < 1e-9);
        assert_eq!(measured.disk_depth, None);
    }

    #[test]
    fn a_goal_is_both_or_the_time_limit() {
        let runtime = Runtime::simulated(Simulation::default());
        let handle = runtime.handle();
        let ms = Duration::from_millis;
        let goal = Goal { writes: 3, time: ms(5), time_max: ms(100) };
        let reached = |laps: u64, each: Duration| {
            runtime
                .block_on(async {
                    let mut meter = Meter::start(&handle);
                    for _ in 0..laps {
                        handle.sleep(each).await;
                        meter.lap();
                    }
                    meter.reached(&goal)
                })
                .unwrap()
        };
        assert!(!reached(3, ms(1)), "time is missing");
        assert!(!reached(2, ms(10)), "writes are missing");
        assert!(reached(3, ms(2)));
        assert!(reached(1, ms(100)), "out of time");
    }
}
