//! The newest committed content of blocks that is not home yet.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use weir_ext4::journal::Sequence;

use crate::buffer::BufferHead;
use crate::home::WayHome;
use crate::mutants::JournalMutant;
use crate::options::JournalOptions;
use crate::transaction::Logged;

/// A block to be brought home.
pub(crate) struct NotHome {
    /// The transaction that holds it.
    pub(crate) sequence: Sequence,
    pub(crate) buffer: Rc<BufferHead>,
    pub(crate) way: WayHome,
}

impl NotHome {
    fn unpin(&self) {
        self.buffer.pins.set(self.buffer.pins.get().saturating_sub(1));
    }
}

/// Blocks to be brought home, by their homes. Only what is transferred with its commit block comes here (J5 a).
#[derive(Default)]
pub(crate) struct Unwritten(RefCell<BTreeMap<u64, NotHome>>);

impl Unwritten {
    /// Takes in what a retired transaction holds, and drops what it revokes: those blocks have another owner.
    ///
    /// The SHARE paper's tree of pairs keeps those until its next checkpoint, which remaps their homes to copies that
    /// no file owns any more, over file data that was written in place since: as it says, SOJ may lose what was durable.
    /// What ours costs is the first loop: a look-up in memory for each block that is revoked.
    pub(crate) fn take_in(&self, logged: &Logged, options: &JournalOptions) {
        let mut blocks = self.0.borrow_mut();
        let outlive = options.rules.drops(JournalMutant::PairsOutliveRevokes);
        for block in logged.revokes.iter().filter(|_| !outlive) {
            if let Some(old) = blocks.remove(block) {
                old.unpin();
            }
        }
        for copy in &logged.blocks {
            let (sequence, buffer) = (logged.sequence, Rc::clone(&copy.buffer));
            let mut way = WayHome::of(copy, options);
            if let Some(old) = blocks.remove(&buffer.block()) {
                old.unpin();
                if options.rules.drops(JournalMutant::PairsOutOfDate) {
                    way = old.way;
                }
            }
            blocks.insert(buffer.block(), NotHome { sequence, buffer, way });
        }
    }

    /// Shows all of them to `look`, in the order of their homes.
    pub(crate) fn each(&self, mut look: impl FnMut(u64, &NotHome)) {
        self.0.borrow().iter().for_each(|(home, block)| look(*home, block));
    }

    /// Forgets blocks that are home, unless a newer one has come.
    pub(crate) fn are_home(&self, written: &[(u64, Sequence)]) {
        let mut blocks = self.0.borrow_mut();
        for (block, sequence) in written {
            if blocks.get(block).is_some_and(|newest| newest.sequence == *sequence)
                && let Some(old) = blocks.remove(block)
            {
                old.unpin();
            }
        }
    }
}
