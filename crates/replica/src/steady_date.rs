//! A *steady date*: the date as far as the machine's running time bears it out. A clock that is set ahead would make all states old at
//! once; one that has stayed there for as long as states are kept is right.

use std::cell::Cell;
use std::time::Duration;

use weir_runtime::{Handle, Instant};

/// The date by the least that the clock was ahead of the running time, of those that were seen in one or two periods. A clock that is
/// set back is followed at once.
pub(crate) struct SteadyDate {
    handle: Handle,
    period: Duration,
    /// When the period began, and the least of it, and of the one before, in milliseconds.
    least: Cell<(Instant, u64, u64)>,
}

impl SteadyDate {
    pub(crate) fn new(handle: &Handle, period: Duration) -> SteadyDate {
        let ahead = ahead_ms(handle);
        SteadyDate { handle: handle.clone(), period, least: Cell::new((handle.now(), ahead, ahead)) }
    }

    /// Milliseconds of Unix time.
    pub(crate) fn now_ms(&self) -> u64 {
        let (now, ahead) = (self.handle.now(), ahead_ms(&self.handle));
        let (mut began, mut least, mut before) = self.least.get();
        if now.since(began) >= self.period {
            (began, least, before) = (now, ahead, least);
        }
        least = least.min(ahead);
        self.least.set((began, least, before));
        running_ms(&self.handle).saturating_add(least.min(before))
    }
}

fn running_ms(handle: &Handle) -> u64 {
    handle.now().as_nanos() / 1_000_000
}

fn ahead_ms(handle: &Handle) -> u64 {
    handle.wall_clock_millis().saturating_sub(running_ms(handle))
}
