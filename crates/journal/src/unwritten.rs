//! The newest committed content of blocks that is not home yet.

use std::cell::RefCell;
use std::collections::BTreeMap;

use weir_ext4::journal::Sequence;

use crate::transaction::{Logged, LoggedBlock};

/// Blocks to be brought home, with the transactions that hold them. Only what is transferred with its commit block
/// comes here (J5 a).
#[derive(Default)]
pub(crate) struct Unwritten(RefCell<BTreeMap<u64, (Sequence, LoggedBlock)>>);

impl Unwritten {
    /// Takes in what a retired transaction holds, and drops what it revokes: those blocks have another owner.
    pub(crate) fn take_in(&self, logged: &Logged) {
        let mut blocks = self.0.borrow_mut();
        for block in &logged.revokes {
            if let Some((_, old)) = blocks.remove(block) {
                unpin(&old);
            }
        }
        for copy in &logged.blocks {
            if let Some((_, old)) = blocks.insert(copy.buffer.block(), (logged.sequence, copy.clone())) {
                unpin(&old);
            }
        }
    }

    /// Shows all of them to `look`, in the order of their homes.
    pub(crate) fn each(&self, mut look: impl FnMut(u64, Sequence, &LoggedBlock)) {
        self.0.borrow().iter().for_each(|(home, (sequence, copy))| look(*home, *sequence, copy));
    }

    /// Forgets blocks that are home, unless a newer one has come.
    pub(crate) fn are_home(&self, written: &[(u64, Sequence)]) {
        let mut blocks = self.0.borrow_mut();
        for (block, sequence) in written {
            if blocks.get(block).is_some_and(|(newest, _)| newest == sequence)
                && let Some((_, old)) = blocks.remove(block)
            {
                unpin(&old);
            }
        }
    }
}

fn unpin(copy: &LoggedBlock) {
    copy.buffer.pins.set(copy.buffer.pins.get().saturating_sub(1));
}
