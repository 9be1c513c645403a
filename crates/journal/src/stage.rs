//! How far transactions have come: the newest one that has reached a stage, and the callers that wait for that.

use std::cell::Cell;

use event_listener::Event;
use weir_ext4::journal::Sequence;

/// A stage that transactions reach in order: no task is woken by any other than the one that it waits for.
pub(crate) struct Stage {
    to: Cell<Sequence>,
    reached: Event,
}

impl Stage {
    /// Transactions up to `to` have reached it.
    pub(crate) fn new(to: Sequence) -> Stage {
        Stage { to: Cell::new(to), reached: Event::new() }
    }

    /// The newest transaction that has reached it.
    pub(crate) fn to(&self) -> Sequence {
        self.to.get()
    }

    /// Whether a transaction has reached it.
    pub(crate) fn is_reached_by(&self, sequence: Sequence) -> bool {
        !sequence.is_after(self.to.get())
    }

    /// A transaction has reached it: wakes the callers that wait.
    pub(crate) fn reach(&self, sequence: Sequence) {
        self.set(sequence);
        self.wake();
    }

    /// A transaction has reached it; a caller that waits is woken by [`wake`](Self::wake).
    pub(crate) fn set(&self, sequence: Sequence) {
        self.to.set(sequence);
    }

    /// Wakes the callers that wait.
    pub(crate) fn wake(&self) {
        self.reached.notify(usize::MAX);
    }

    /// What [`wake`](Self::wake) notifies.
    pub(crate) fn event(&self) -> &Event {
        &self.reached
    }
}
