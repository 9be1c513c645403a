//! A *gauge* watches a device's command queue: how many commands are answered in a measured window, how deep
//! the queue is, and how far apart commands are accepted.
//!
//! The *window* begins with the answer to the warm-up's last command, and ends with the last measured answer.

use std::cell::RefCell;

use weir_flash::{Busy, Probe, Subject};
use weir_runtime::Event;

use crate::metric::{Meter, meter};

/// Samples of queue depth for a plot.
const SAMPLES: usize = 500;

/// Which commands count, by number of answers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Window {
    /// Answers before the window.
    pub(crate) warm_up: u64,
    /// Answers in it, 1 and more.
    pub(crate) measured: u64,
    /// Virtual time between two samples of queue depth, 1 and more.
    pub(crate) sample_ns: u64,
}

/// Commands accepted and not answered.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Depth {
    /// On average over the window's time.
    pub mean: f64,
    /// At most.
    pub max: u32,
    /// From the window's beginning on, at equal intervals.
    pub samples: Vec<u32>,
    /// The interval, in microseconds of virtual time.
    pub sample_us: f64,
}

/// Virtual times in microseconds, such as those between two commands that the device accepts one after the other.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Delays {
    /// On average.
    pub mean: f64,
    /// Half of them are not longer.
    pub p50: f64,
    /// 99 of 100 are not longer.
    pub p99: f64,
    /// 999 of 1,000 are not longer.
    pub p999: f64,
    /// 9,999 of 10,000 are not longer.
    pub p9999: f64,
    /// The longest.
    pub max: f64,
}

/// What a gauge saw in its window.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Reading {
    pub(crate) seconds: f64,
    /// The rate of the window's second half over that of its first: 1 in a steady state.
    pub(crate) drift: f64,
    pub(crate) depth: Depth,
    pub(crate) delays: Delays,
}

/// What is read from a gauge: commands in the device's queue, and microseconds between two commands.
pub(crate) const QUEUE_METERS: &[Meter<Reading>] = &[
    meter("depth-mean", "commands", |seen| seen.depth.mean),
    meter("depth-max", "commands", |seen| f64::from(seen.depth.max)),
    meter("delay-mean", "us", |seen| seen.delays.mean),
    meter("delay-p50", "us", |seen| seen.delays.p50),
    meter("delay-p99", "us", |seen| seen.delays.p99),
];

/// See the head of this file.
pub(crate) struct Gauge {
    window: Window,
    seen: RefCell<Seen>,
    /// Notified by every answer.
    pub(crate) answers: Event,
}

#[derive(Default)]
struct Seen {
    depth: u32,
    accepted: u64,
    answered: u64,
    accepted_at: Option<u64>,
    began: Option<u64>,
    halfway: u64,
    ended: Option<u64>,
    /// Since when the depth is what it is.
    since: u64,
    depth_time: u128,
    depth_max: u32,
    samples: Vec<u32>,
    delays: Vec<u64>,
}

impl Gauge {
    pub(crate) fn new(window: Window) -> Gauge {
        Gauge { window, seen: RefCell::default(), answers: Event::new() }
    }

    /// Commands that the device has accepted so far.
    pub(crate) fn accepted(&self) -> u64 {
        self.seen.borrow().accepted
    }

    /// Commands accepted and not answered.
    pub(crate) fn depth(&self) -> u32 {
        self.seen.borrow().depth
    }

    /// Whether the window has ended.
    pub(crate) fn is_done(&self) -> bool {
        self.seen.borrow().ended.is_some()
    }

    /// The next command does not follow the last one: the host had something else to wait for.
    pub(crate) fn pause(&self) {
        self.seen.borrow_mut().accepted_at = None;
    }

    /// The window begins now, whatever was answered.
    pub(crate) fn begin(&self, at_ns: u64) {
        let mut seen = self.seen.borrow_mut();
        seen.pass_time(at_ns, &self.window);
        seen.began = Some(at_ns);
    }

    /// Half of what is measured is done.
    pub(crate) fn halve(&self, at_ns: u64) {
        self.seen.borrow_mut().halfway = at_ns;
    }

    /// The window ends now.
    pub(crate) fn end(&self, at_ns: u64) {
        let mut seen = self.seen.borrow_mut();
        seen.pass_time(at_ns, &self.window);
        seen.ended = Some(at_ns);
    }

    /// What was seen; nothing before the window has ended.
    pub(crate) fn reading(&self) -> Reading {
        let seen = self.seen.borrow();
        let (Some(began), Some(ended)) = (seen.began, seen.ended) else { return Reading::default() };
        let span = (ended - began).max(1) as f64;
        let first = (seen.halfway - began).max(1) as f64;
        let depth = Depth {
            mean: seen.depth_time as f64 / span,
            max: seen.depth_max,
            samples: seen.samples.clone(),
            sample_us: self.window.sample_ns as f64 / 1e3,
        };
        let halves = self.window.measured as f64 / (self.window.measured / 2).max(1) as f64 - 1.0;
        let drift = halves * first / (span - first).max(1.0);
        Reading { seconds: span / 1e9, drift, depth, delays: delays(seen.delays.clone()) }
    }
}

pub(crate) fn delays(mut all: Vec<u64>) -> Delays {
    all.sort_unstable();
    let microseconds = |ns: u64| ns as f64 / 1e3;
    let quantile = |share: f64| {
        let place = (share * all.len() as f64).ceil() as usize;
        all.get(place.saturating_sub(1)).copied().map_or(0.0, microseconds)
    };
    let mean = microseconds(all.iter().sum()) / all.len().max(1) as f64;
    Delays {
        mean,
        p50: quantile(0.5),
        p99: quantile(0.99),
        p999: quantile(0.999),
        p9999: quantile(0.9999),
        max: quantile(1.0),
    }
}

impl Seen {
    /// The depth was the same until `at`.
    fn pass_time(&mut self, at: u64, window: &Window) {
        if let (Some(began), None) = (self.began, self.ended) {
            self.depth_time += u128::from(self.depth) * u128::from(at - self.since);
            self.depth_max = self.depth_max.max(self.depth);
            while self.samples.len() < SAMPLES && began + self.samples.len() as u64 * window.sample_ns < at {
                self.samples.push(self.depth);
            }
        }
        self.since = at;
    }

    fn accept(&mut self, at: u64) {
        self.accepted += 1;
        if let Some(before) = self.accepted_at.replace(at)
            && self.began.is_some()
            && self.ended.is_none()
        {
            self.delays.push(at - before);
        }
    }

    fn answer(&mut self, at: u64, window: &Window) {
        self.answered += 1;
        if self.answered == window.warm_up {
            self.began = Some(at);
        }
        if self.answered == window.warm_up + window.measured / 2 {
            self.halfway = at;
        }
        if self.answered == window.warm_up + window.measured {
            self.ended = Some(at);
        }
    }
}

impl Probe for Gauge {
    fn busy(&self, _: Busy, _: Subject, _: u64, _: u64) {}

    fn queue_depth(&self, at_ns: u64, commands: u32) {
        let mut seen = self.seen.borrow_mut();
        seen.pass_time(at_ns, &self.window);
        for _ in seen.depth..commands {
            seen.accept(at_ns);
        }
        for _ in commands..seen.depth {
            seen.answer(at_ns, &self.window);
        }
        let answered = commands < seen.depth;
        seen.depth = commands;
        drop(seen);
        if answered {
            self.answers.notify(usize::MAX);
        }
    }

    fn cached(&self, _: u64, _: u64) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_is_measured_from_answer_to_answer() {
        let gauge = Gauge::new(Window { warm_up: 1, measured: 4, sample_ns: 100 });
        let depths = [(0, 1), (1000, 0), (1000, 1), (1100, 2), (1400, 1), (1500, 0), (1500, 1), (1700, 0)];
        for (at, depth) in depths {
            gauge.queue_depth(at, depth);
            assert!(!gauge.is_done());
        }
        gauge.queue_depth(1700, 1);
        gauge.queue_depth(2000, 0);
        assert!(gauge.is_done());
        assert_eq!((gauge.accepted(), gauge.depth()), (5, 0));
        let reading = gauge.reading();
        assert_eq!(reading.seconds, 1e-6);
        // One command all the time, and a second one for 300 ns.
        assert!((reading.depth.mean - 1.3).abs() < 1e-9, "{reading:?}");
        assert_eq!(reading.depth.max, 2);
        assert_eq!(reading.depth.samples, [1, 2, 2, 2, 1, 1, 1, 1, 1, 1]);
        // Two answers in each half of 500 ns.
        assert!((reading.drift - 1.0).abs() < 1e-9, "{reading:?}");
        assert_eq!((reading.delays.p50, reading.delays.max), (0.2, 1.0));
    }

    #[test]
    fn a_pause_is_no_delay() {
        let gauge = Gauge::new(Window { warm_up: 1, measured: 2, sample_ns: 100 });
        for (at, depth) in [(0, 1), (10, 0), (20, 1), (30, 2)] {
            gauge.queue_depth(at, depth);
        }
        gauge.pause();
        gauge.queue_depth(500, 3);
        gauge.queue_depth(600, 0);
        assert_eq!(gauge.reading().delays.max, 0.02);
    }
}
