//! The flush that a call has submitted for the running transaction, for the commit to take: of the engine flush-ahead.

use std::cell::RefCell;

use weir_ext4::journal::Sequence;
use weir_storage::Ticket;

/// That flush, if there is one.
#[derive(Default)]
pub(crate) struct FlushOfCall(RefCell<Option<SubmittedFlush>>);

/// A flush behind writes (E9).
pub(crate) struct SubmittedFlush {
    /// The transaction that ran.
    pub(crate) sequence: Sequence,
    /// Writes that were submitted before it: it covers these.
    pub(crate) writes: u64,
    pub(crate) ticket: Ticket,
}

impl FlushOfCall {
    pub(crate) fn set(&self, flush: SubmittedFlush) {
        self.0.replace(Some(flush));
    }

    /// Whether a flush of the transaction is there that covers so many writes.
    pub(crate) fn covers(&self, sequence: Sequence, writes: u64) -> bool {
        self.0.borrow().as_ref().is_some_and(|flush| flush.sequence == sequence && flush.writes == writes)
    }

    /// Takes the flush of a transaction.
    pub(crate) fn take(&self, sequence: Sequence) -> Option<SubmittedFlush> {
        self.0.take().filter(|flush| flush.sequence == sequence)
    }
}
