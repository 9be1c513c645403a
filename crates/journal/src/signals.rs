//! What the journal's tasks, and callers, are woken by.

use event_listener::Event;

/// The events of a journal.
#[derive(Default)]
pub(crate) struct Signals {
    /// The running transaction or the log's room has changed, or what was held back is given back, or the journal was
    /// stopped.
    pub(crate) changed: Event,
    /// The running transaction has got its first change.
    pub(crate) begun: Event,
    /// A caller wants a commit.
    pub(crate) commit: Event,
    /// A caller wants a flush, or a transaction is dispatched.
    pub(crate) flush: Event,
    /// A task wants room in the log.
    pub(crate) checkpoint: Event,
}

impl Signals {
    /// Wakes all tasks and callers.
    pub(crate) fn wake_all(&self) {
        for event in [&self.changed, &self.begun, &self.commit, &self.flush, &self.checkpoint] {
            event.notify(usize::MAX);
        }
    }
}
