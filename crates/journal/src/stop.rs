//! Whether a journal takes changes.

use std::cell::{Cell, RefCell};

use crate::error::{JournalError, StopReason};

/// Why a journal takes no changes, or will not.
#[derive(Default)]
pub(crate) struct Stop {
    reason: RefCell<Option<StopReason>>,
    closing: Cell<bool>,
    abandoning: Cell<bool>,
}

impl Stop {
    /// Stops the journal: whether it was not stopped before. The first reason stays.
    pub(crate) fn set(&self, reason: StopReason) -> bool {
        let mut first = self.reason.borrow_mut();
        let is_new = first.is_none();
        first.get_or_insert(reason);
        is_new
    }

    /// Why it is stopped, if it is.
    pub(crate) fn reason(&self) -> Option<StopReason> {
        self.reason.borrow().clone()
    }

    /// Whether it is stopped.
    pub(crate) fn is_set(&self) -> bool {
        self.reason.borrow().is_some()
    }

    /// That it is stopped, as an error.
    pub(crate) fn check(&self) -> Result<(), JournalError> {
        self.reason().map_or(Ok(()), |reason| Err(JournalError::Stopped(reason)))
    }

    /// It is being closed.
    pub(crate) fn set_closing(&self) {
        self.closing.set(true);
    }

    /// Whether it is being closed, or is.
    pub(crate) fn is_closing(&self) -> bool {
        self.closing.get()
    }

    /// From now on, or no longer, a change that has not ended is being dropped.
    pub(crate) fn set_abandoning(&self, abandoning: bool) {
        self.abandoning.set(abandoning);
    }

    /// Whether a change that has not ended is being dropped.
    pub(crate) fn is_abandoning(&self) -> bool {
        self.abandoning.get()
    }
}
