//! Which transactions are wanted durable, and are.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use weir_ext4::journal::Sequence;
use weir_storage::{FlushRound, FlushSharing, StorageError, Ticket};

/// The durable transactions, and the flushes that make more of them durable. Positions count transactions since the
/// mount.
pub(crate) struct Durability {
    flushes: Rc<FlushSharing>,
    /// A transaction not long ago, and its position: sequence numbers begin again after 2^32, positions never do.
    anchor: Cell<(Sequence, u64)>,
    /// The newest transaction that is transferred, and its commit block's ticket, where the storage may tell when it
    /// is durable.
    newest: RefCell<Option<(Sequence, Ticket)>>,
}

impl Durability {
    /// Transactions up to `before` are durable.
    pub(crate) fn new(before: Sequence) -> Durability {
        Durability { flushes: Rc::default(), anchor: Cell::new((before, 0)), newest: RefCell::default() }
    }

    fn position(&self, sequence: Sequence) -> u64 {
        let (known, position) = self.anchor.get();
        position.saturating_add_signed(i64::from(sequence.0.wrapping_sub(known.0).cast_signed()))
    }

    /// A transaction is transferred: positions are counted from it from now on.
    pub(crate) fn transferred(&self, sequence: Sequence, commit: Option<Ticket>) {
        self.anchor.set((sequence, self.position(sequence)));
        self.newest.replace(commit.map(|ticket| (sequence, ticket)));
    }

    /// The newest transaction that is transferred, with what tells when it is durable.
    pub(crate) fn newest(&self) -> Option<(Sequence, Ticket)> {
        self.newest.borrow().clone()
    }

    /// Whether a transaction is known durable.
    pub(crate) fn is_durable(&self, sequence: Sequence) -> bool {
        self.flushes.is_durable(self.position(sequence))
    }

    /// Whether the flush that makes a transaction durable is still to be submitted.
    pub(crate) fn will_flush(&self, sequence: Sequence) -> bool {
        self.position(sequence) > self.flushes.begun_to()
    }

    /// A caller wants a transaction durable.
    pub(crate) fn want(&self, sequence: Sequence) {
        self.flushes.want(self.position(sequence));
    }

    /// Whether a flush that covers the transactions up to one would answer a caller.
    pub(crate) fn is_wanted(&self, covers: Sequence) -> bool {
        self.flushes.is_wanted(self.position(covers))
    }

    /// Waits until a transaction is durable.
    pub(crate) async fn until(&self, sequence: Sequence) -> Result<(), StorageError> {
        self.flushes.until(self.position(sequence)).await
    }

    /// A flush begins that covers the transactions up to one.
    pub(crate) fn begin_flush(&self, covers: Sequence) -> FlushRound {
        let mut round = self.flushes.begin();
        round.will_cover(self.position(covers));
        round
    }

    /// The transactions up to one are durable: answers the callers that wait for them. How many transactions they waited for.
    pub(crate) fn settle(&self, sequence: Sequence) -> usize {
        let wanted = self.flushes.positions_wanted();
        self.flushes.settle(self.position(sequence));
        wanted - self.flushes.positions_wanted()
    }

    /// Nothing more becomes durable.
    pub(crate) fn fail(&self) {
        self.flushes.fail(StorageError::Aborted);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sequence numbers begin again after 2^32 commits, and halfway there a difference of two changes its sign.
    #[test]
    fn a_transaction_is_not_durable_because_its_number_has_come_round() {
        let mut newest = Sequence(1);
        let durability = Durability::new(Sequence(0));
        // As after very many commits, all of them durable.
        for _ in 0..9 {
            newest = Sequence(newest.0.wrapping_add(1 << 29));
            durability.transferred(newest, None);
        }
        durability.settle(newest);
        assert!(durability.is_durable(newest) && durability.is_durable(Sequence(newest.0.wrapping_sub(1))));
        assert!(!durability.is_durable(newest.next()), "the one that runs now");
        assert!(durability.will_flush(newest.next()) && !durability.will_flush(newest));
    }
}
