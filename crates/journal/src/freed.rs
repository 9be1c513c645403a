//! Blocks that transactions have freed, until they may be used again (J7).

use std::cell::RefCell;
use std::rc::Rc;

use event_listener::Event;
use weir_ext4::journal::Sequence;
use weir_storage::Extent;

use crate::mutants::{JournalMutant, JournalRules};

/// Receives what may be done with blocks that transactions have freed (J7).
pub trait Reuse {
    /// Commit blocks up to that of `transferred` are transferred, which has freed these blocks, or one before it has:
    /// any write to them comes after that.
    fn may_be_reused(&self, freed: &[Extent], transferred: Sequence);

    /// Transactions up to one are durable: what they have freed may be discarded.
    fn are_durable(&self, to: Sequence);

    /// Blocks that may be reused, and wait until a transaction is durable.
    fn awaiting_durability(&self) -> u64;
}

/// The way of freed blocks from a retired transaction to the transaction that reuses them.
pub(crate) struct FreedBlocks {
    pub(crate) reuse: Rc<dyn Reuse>,
    rules: JournalRules,
    /// While home writes are being submitted: what is freed meanwhile, or a late one would overwrite what comes there
    /// next. Once they are submitted, the block layer keeps them before whatever overlaps them (S6).
    held_back: RefCell<Option<Vec<Extent>>>,
    /// Some may be reused.
    given: Event,
}

impl FreedBlocks {
    /// Freed blocks that go to `reuse`.
    pub(crate) fn new(reuse: Rc<dyn Reuse>, rules: JournalRules) -> FreedBlocks {
        FreedBlocks { reuse, rules, held_back: RefCell::default(), given: Event::new() }
    }

    /// A transaction is transferred that has freed these, `transferred` itself.
    pub(crate) fn retire(&self, mut freed: Vec<Extent>, transferred: Sequence) {
        let late = !self.rules.drops(JournalMutant::ReusesBeforeHomeWrites);
        if let Some(held_back) = self.held_back.borrow_mut().as_mut().filter(|_| late) {
            return held_back.append(&mut freed);
        }
        self.return_blocks(&freed, transferred);
    }

    /// Holds back what comes from now on.
    pub(crate) fn hold_back(&self) {
        self.held_back.borrow_mut().get_or_insert_default();
    }

    /// Gives what was held back, and holds back no more: whether there was something.
    pub(crate) fn release(&self, transferred: Sequence) -> bool {
        let held_back = self.held_back.take().unwrap_or_default();
        self.return_blocks(&held_back, transferred);
        !held_back.is_empty()
    }

    /// Whether nothing is held back.
    pub(crate) fn are_given(&self) -> bool {
        self.held_back.borrow().as_ref().is_none_or(Vec::is_empty)
    }

    fn return_blocks(&self, freed: &[Extent], transferred: Sequence) {
        if !freed.is_empty() {
            self.reuse.may_be_reused(freed, transferred);
            self.wake();
        }
    }

    /// Notified when some may be reused.
    pub(crate) fn event(&self) -> &Event {
        &self.given
    }

    /// Wakes the tasks that wait for that.
    pub(crate) fn wake(&self) {
        self.given.notify(usize::MAX);
    }
}
