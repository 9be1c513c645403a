//! *Read failures*: blocks that could not be read. Each is logged once, with an inode that needs it: a failed read is tried
//! anew by the kernel and by programs, and lines that repeat one block would hide the others.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fmt::Display;

use tracing::error;

/// Blocks that are logged at most; the storage counts all failed reads.
const BLOCKS_MAX: usize = 1 << 14;

/// The blocks that were logged.
#[derive(Default)]
pub struct ReadFailures {
    logged: RefCell<BTreeSet<u64>>,
}

impl ReadFailures {
    /// Logs that `block` of `inode` cannot be read, if it is the first time. `offset` is the byte of the file that the block
    /// begins with, if it holds data.
    pub fn log(&self, inode: u32, offset: Option<u64>, block: u64, error: &dyn Display) {
        if !self.is_first(block) {
            return;
        }
        match offset {
            Some(offset) => error!(
                name: "file_block_unreadable",
                inode, offset, block, %error, "a block of a file cannot be read"
            ),
            None => error!(
                name: "metadata_block_unreadable",
                inode, block, %error, "a block of an inode's metadata cannot be read"
            ),
        }
        if self.logged.borrow().len() == BLOCKS_MAX {
            error!(name: "read_failures_not_logged", "no further block that cannot be read is logged");
        }
    }

    fn is_first(&self, block: u64) -> bool {
        let mut logged = self.logged.borrow_mut();
        logged.len() < BLOCKS_MAX && logged.insert(block)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_block_is_logged_once_and_their_number_is_bounded() {
        let failures = ReadFailures::default();
        for block in 0..2 * BLOCKS_MAX as u64 {
            assert_eq!(failures.is_first(block), block < BLOCKS_MAX as u64);
            assert!(!failures.is_first(block));
        }
    }
}
