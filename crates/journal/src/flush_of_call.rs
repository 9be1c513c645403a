//! The flush that a call has submitted, for the commit to take: of the engine flush-ahead.

use std::cell::RefCell;

use weir_storage::Ticket;

/// The newest of them.
#[derive(Default)]
pub(crate) struct FlushOfCall(RefCell<Option<SubmittedFlush>>);

/// A flush behind writes (E9).
struct SubmittedFlush {
    /// Writes that were submitted before it ([`BlockIo::writes`](weir_block::BlockIo::writes)): it covers these.
    writes: u64,
    ticket: Ticket,
}

impl FlushOfCall {
    /// A flush was submitted behind so many writes.
    pub(crate) fn set(&self, writes: u64, ticket: Ticket) {
        self.0.replace(Some(SubmittedFlush { writes, ticket }));
    }

    /// The flush, if nothing was written since: `writes` were submitted by now.
    pub(crate) fn covering(&self, writes: u64) -> Option<Ticket> {
        let flush = self.0.borrow();
        flush.as_ref().filter(|flush| flush.writes == writes).map(|flush| flush.ticket.clone())
    }

    /// The flush, whatever was written since.
    pub(crate) fn newest(&self) -> Option<Ticket> {
        self.0.borrow().as_ref().map(|flush| flush.ticket.clone())
    }
}
