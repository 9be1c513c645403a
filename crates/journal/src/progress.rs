//! How far transactions have come.

use std::cell::RefCell;
use std::collections::VecDeque;

use weir_ext4::journal::Sequence;
use weir_storage::Ticket;

use crate::stage::Stage;
use crate::transaction::{Dispatched, Logged};

/// The stages of transactions, and those of dual mode between two of them.
pub(crate) struct Progress {
    /// JC is with the block layer.
    pub(crate) dispatched: Stage,
    /// JC is transferred.
    pub(crate) transferred: Stage,
    /// No block is held any more which the running transaction may want (J4).
    pub(crate) released: Stage,
    /// Dispatched, and not retired by the flush task yet.
    on_their_way: RefCell<VecDeque<Dispatched>>,
}

impl Progress {
    /// Transactions up to `to` have reached all stages.
    pub(crate) fn new(to: Sequence) -> Progress {
        let (dispatched, transferred, released) = (Stage::new(to), Stage::new(to), Stage::new(to));
        Progress { dispatched, transferred, released, on_their_way: RefCell::default() }
    }

    /// JC is with the block layer, and was not waited for: the flush task takes the transaction over (J1).
    pub(crate) fn dispatch(&self, logged: Logged, tickets: Vec<Ticket>) {
        let sequence = logged.sequence;
        self.on_their_way.borrow_mut().push_back(Dispatched { logged, tickets });
        self.dispatched.reach(sequence);
    }

    /// The tickets of the oldest transaction that is not retired.
    pub(crate) fn oldest_tickets(&self) -> Option<Vec<Ticket>> {
        self.on_their_way.borrow().front().map(|oldest| oldest.tickets.clone())
    }

    /// Takes the oldest transaction that is not retired.
    pub(crate) fn take_oldest(&self) -> Option<Logged> {
        self.on_their_way.borrow_mut().pop_front().map(|oldest| oldest.logged)
    }

    /// Wakes the callers that wait for a stage.
    pub(crate) fn wake_all(&self) {
        for stage in [&self.dispatched, &self.transferred, &self.released] {
            stage.wake();
        }
    }
}
