//! Blocks of file data in place of which the log holds checksums (J10). As long as it does, recovery compares what is there:
//! so a transaction that frees such a block has to revoke it, before it may change.

use std::cell::RefCell;
use std::collections::BTreeMap;

use weir_ext4::journal::Sequence;

/// Blocks from which on a checkpoint begins, so that these and their revocations are bounded: 256 MiB of data, or less with a
/// small log.
const CHECKED_MAX: usize = 1 << 16;
/// The same for each block of the log.
const CHECKED_A_LOG_BLOCK: usize = 64;

/// The newest transaction that has written each of them.
#[derive(Default)]
pub(crate) struct CheckedBlocks(RefCell<BTreeMap<u64, Sequence>>);

impl CheckedBlocks {
    /// A transaction whose place in the log is known has written these.
    pub(crate) fn take_in(&self, sequence: Sequence, blocks: impl Iterator<Item = u64>) {
        self.0.borrow_mut().extend(blocks.map(|block| (block, sequence)));
    }

    /// Whether the log holds the checksum of a block.
    pub(crate) fn holds(&self, block: u64) -> bool {
        self.0.borrow().contains_key(&block)
    }

    /// The log holds nothing more of the transactions up to one.
    pub(crate) fn forget_to(&self, newest: Sequence) {
        self.0.borrow_mut().retain(|_, sequence| sequence.is_after(newest));
    }

    /// Whether there are so many, for a log of so many blocks, that a checkpoint has to come.
    pub(crate) fn are_many(&self, log_blocks: u32) -> bool {
        let most = CHECKED_A_LOG_BLOCK.saturating_mul(log_blocks as usize).min(CHECKED_MAX);
        self.0.borrow().len() > most
    }
}
