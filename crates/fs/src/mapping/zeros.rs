//! Writing zeros where an extent cannot be divided, since its tree finds no block for another node.
//!
//! So a write into what is allocated, and a hole in it, need no space in a full filesystem:
//!
//! - What is written in the middle of an unwritten extent is marked with more of that extent, up to a neighbour that is
//!   written or to its end. That more is zeros, which are on the disk before (J2).
//! - What should become a hole, or unwritten, is overwritten with zeros. It reads as it should, and keeps its blocks
//!   (`files/fallocate`).
//!
//! It is the last resort, after the blocks that `space` keeps for trees. It ends at the end of the file, behind which
//! nothing is written: in what is allocated there, a write that does not follow the one before may find no space.

use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::rc::Rc;

use weir_cache::{BLOCK, index_of};
use weir_runtime::Buffer as Memory;
use weir_storage::BLOCK_BYTES;
use weir_vfs::{FsError, InodeNumber};

use super::Mapping;
use super::tree::{Tree, place};
use crate::mutants::FsMutant;

/// Blocks of zeros that are submitted before the next are: 4 MiB.
const ZEROS_AT_ONCE: usize = 1024;

/// Receives a file and a range of its blocks.
type Observer = Box<dyn Fn(InodeNumber, Range<u32>)>;

/// What was written in place of dividing an extent.
#[derive(Default)]
pub(crate) struct Zeroed {
    blocks: Cell<u64>,
    observer: RefCell<Option<Observer>>,
}

impl Zeroed {
    /// Blocks of zeros.
    pub(crate) fn blocks(&self) -> u64 {
        self.blocks.get()
    }

    /// Calls this one from now on, and no other.
    pub(crate) fn observe(&self, observer: impl Fn(InodeNumber, Range<u32>) + 'static) {
        *self.observer.borrow_mut() = Some(Box::new(observer));
    }

    /// Counts blocks of a file that will be zeros, and reports them to the observer.
    pub(crate) fn report(&self, number: u32, blocks: Range<u32>) {
        self.blocks.set(self.blocks.get() + blocks.len() as u64);
        if let Some(observer) = self.observer.borrow().as_ref().filter(|_| !blocks.is_empty()) {
            observer(number, blocks);
        }
    }
}

impl Mapping {
    /// Marks a range of an unwritten extent as written, together with as much of that extent as it takes to need no
    /// node: that becomes zeros. The caller holds the lock, and lets the file reach the range's end.
    ///
    /// # Errors
    /// [`FsError::NoSpace`] if it would take what is behind the end of the file, or is too early
    /// ([`zeros_are_too_early`](crate::changes::Changes::zeros_are_too_early)).
    pub(crate) async fn mark_with_zeros(&self, tree: &Tree<'_>, range: Range<u32>) -> Result<(), FsError> {
        let end = index_of(tree.node.size().next_multiple_of(BLOCK));
        let (Some(extent), Some(wider)) =
            (tree.find(range.start).await?, tree.markable(range.clone(), end).await?)
        else {
            return Err(FsError::NoSpace);
        };
        if self.changes.zeros_are_too_early()?.is_some() && !self.rules.drops(FsMutant::ZerosTooEarly) {
            return Err(FsError::NoSpace);
        }
        for zeros in [wider.start..range.start, range.end..wider.end] {
            self.zeroed.report(tree.node.number, zeros.clone());
            self.write_zeros(place(&extent, zeros.start), zeros.len()).await?;
        }
        tree.change(async |extents| extents.mark(wider, true).await).await
    }

    /// Writes zeros to blocks that are unwritten, and waits until they are transferred. Then the running transaction may
    /// mark them as written: they are in an epoch before its commit block, or flushed before it (J2), and a caller that
    /// reads them from the disk finds them. A handle may be open: nothing here waits for a commit.
    async fn write_zeros(&self, start: u64, blocks: usize) -> Result<(), FsError> {
        if self.rules.drops(FsMutant::ZerosForgotten) {
            return Ok(());
        }
        let class = self.changes.journal()?.engine().class_of_calls();
        let zero = Rc::new(Memory::new(BLOCK_BYTES));
        let zeros: Vec<_> = std::iter::repeat_n(zero, blocks.min(ZEROS_AT_ONCE)).collect();
        let mut tickets = Vec::new();
        for from in (0..blocks).step_by(ZEROS_AT_ONCE) {
            tickets.clear();
            let zeros = &zeros[..zeros.len().min(blocks - from)];
            self.disk.write(start + from as u64, zeros, class, class, &mut tickets).await?;
            if !self.rules.drops(FsMutant::ZerosNotAwaited) {
                self.disk.wait_transferred(&tickets).await?;
            }
        }
        if self.changes.journal()?.engine().facts().log.async_commit {
            // No flush comes before the commit block, and no checksum covers these blocks.
            self.disk.flush().await?;
        }
        Ok(())
    }
}
