//! Keeping processors awake while a mount is in use.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use weir_runtime::{CpuLatencyGuard, Handle, Instant};

/// How long after the last request. To change over costs a call to every processor, so it is not done between two
/// requests of a program that thinks in between.
const LINGERS: Duration = Duration::from_millis(100);

/// Keeps processors awake from a request on until none has come for a while.
#[derive(Clone)]
pub(crate) struct BusyCpuGuard(Rc<GuardState>);

struct GuardState {
    handle: Handle,
    last: Cell<Instant>,
    kept: RefCell<Option<CpuLatencyGuard>>,
}

impl BusyCpuGuard {
    pub(crate) fn new(handle: &Handle) -> BusyCpuGuard {
        let last = Cell::new(handle.now());
        BusyCpuGuard(Rc::new(GuardState { handle: handle.clone(), last, kept: RefCell::default() }))
    }

    /// A request has come.
    pub(crate) fn keep(&self) {
        self.0.last.set(self.0.handle.now());
        if self.0.kept.borrow().is_none() {
            // The mount has made sure that it can be had; where it no longer can, requests are answered all the same.
            let Ok(awake) = CpuLatencyGuard::new() else { return };
            self.0.kept.replace(Some(awake));
            drop(self.0.handle.spawn(self.clone().end()));
        }
    }

    /// Ends it when no request has come for a while.
    async fn end(self) {
        let BusyCpuGuard(state) = self;
        loop {
            let until = state.last.get() + LINGERS;
            if state.handle.now() >= until {
                break drop(state.kept.take());
            }
            state.handle.sleep_until(until).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use weir_runtime::{Runtime, Simulation};

    use super::*;

    #[test]
    fn it_ends_when_nobody_asks_any_more() {
        if CpuLatencyGuard::new().is_err() {
            eprintln!("skipped: processors are kept awake by the superuser");
            return;
        }
        let runtime = Runtime::simulated(Simulation::default());
        let handle = runtime.handle();
        let script = async {
            let cpu_guard = BusyCpuGuard::new(&handle);
            let kept = || cpu_guard.0.kept.borrow().is_some();
            assert!(!kept());
            for _ in 0..10 {
                cpu_guard.keep();
                handle.sleep(LINGERS / 2).await;
                assert!(kept());
            }
            handle.sleep(LINGERS).await;
            assert!(!kept());
            cpu_guard.keep();
            assert!(kept());
        };
        runtime.block_on(script).expect("it ends");
    }
}
