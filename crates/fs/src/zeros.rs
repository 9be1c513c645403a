//! Writing zeros where an extent cannot be divided, since its tree finds no block for another node.
//!
//! So a write into what is allocated, and a hole in it, need no space in a full filesystem:
//!
//! - What is written in the middle of an unwritten extent is marked with more of that extent, up to a neighbour that is
//!   written or to its end. That more is zeros, which are on the disk before (J2).
//! - What should become a hole, or unwritten, is overwritten with zeros. It reads as it should, and keeps its blocks.
//!
//! It is the last resort, after the blocks that `space` keeps for trees. It ends at the end of the file, behind which
//! nothing is written: in what is allocated there, a write that does not follow the one before may find no space.

use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::rc::Rc;

use weir_block::Class;
use weir_journal::Sequence;
use weir_runtime::Buffer as Memory;
use weir_storage::BLOCK_BYTES;

use crate::cache::index_of;
use crate::error::FsError;
use crate::filesystem::{Filesystem, InodeNumber, Mounted};
use crate::map::place;
use crate::mutants::FsMutant;
use crate::node::Node;
use crate::options::JournalMode;
use crate::read::BLOCK;
use crate::tree::{Tree, covers};
use crate::truncate::TRUNCATE_CREDITS;
use crate::write::{CHUNK_BLOCKS, CHUNK_JOURNALED, Edges};

/// What a block is filled with, or a part of one.
pub(crate) static ZEROS: [u8; BLOCK_BYTES] = [0; BLOCK_BYTES];

/// Blocks of zeros that are submitted before the next are: 4 MiB.
const ZEROS_AT_ONCE: usize = 1024;

/// Receives a file and a range of its blocks.
type Observer = Box<dyn Fn(InodeNumber, Range<u32>)>;

/// What was written in place of dividing an extent.
#[derive(Default)]
pub(crate) struct Zeroed {
    /// Blocks of zeros.
    pub(crate) blocks: Cell<u64>,
    observer: RefCell<Option<Observer>>,
}

impl Filesystem {
    /// Calls `observer` with a file and a range of its blocks whenever zeros are written there in place of dividing an
    /// extent, before they are. What a program writes to such a block next is an overwrite, though no program has
    /// written to it: whoever judges what a power cut leaves has to know. `observer` must not call the filesystem. It
    /// takes the place of the one before it.
    pub fn observe_zeros(&self, observer: impl Fn(InodeNumber, Range<u32>) + 'static) {
        *self.0.zeroed.observer.borrow_mut() = Some(Box::new(observer));
    }
}

impl Mounted {
    /// Counts blocks of a file that will be zeros, and tells of them.
    fn tell_of_zeros(&self, node: &Node, blocks: Range<u32>) {
        let counted = &self.zeroed.blocks;
        counted.set(counted.get() + blocks.len() as u64);
        if let Some(observer) = self.zeroed.observer.borrow().as_ref().filter(|_| !blocks.is_empty()) {
            observer(node.number, blocks);
        }
    }

    /// Marks a range of an unwritten extent as written, together with as much of that extent as it takes to need no
    /// node: that becomes zeros. The caller holds the lock, and lets the file reach the range's end.
    ///
    /// # Errors
    /// [`FsError::NoSpace`] if it would take what is behind the end of the file, or is too early
    /// ([`zeros_are_too_early`](Self::zeros_are_too_early)).
    pub(crate) async fn mark_with_zeros(&self, tree: &Tree<'_>, range: Range<u32>) -> Result<(), FsError> {
        let end = index_of(tree.node.size().next_multiple_of(BLOCK));
        let (Some(extent), Some(wider)) =
            (tree.find(range.start).await?, tree.markable(range.clone(), end).await?)
        else {
            return Err(FsError::NoSpace);
        };
        if self.zeros_are_too_early()?.is_some() && !self.options.rules.drops(FsMutant::ZerosTooEarly) {
            return Err(FsError::NoSpace);
        }
        for zeros in [wider.start..range.start, range.end..wider.end] {
            self.tell_of_zeros(tree.node, zeros.clone());
            self.write_zeros(place(&extent, zeros.start), zeros.len()).await?;
        }
        tree.change(async |extents| extents.mark(wider, true).await).await
    }

    /// Writes zeros to blocks that are unwritten, and waits until they are transferred. Then the running transaction may
    /// mark them as written: they are in an epoch before its commit block, or flushed before it (J2), and whoever
    /// reads them from the disk finds them. A handle may be open: nothing here waits for a commit.
    async fn write_zeros(&self, start: u64, blocks: usize) -> Result<(), FsError> {
        if self.options.rules.drops(FsMutant::ZerosForgotten) {
            return Ok(());
        }
        let class = if self.journal()?.engine().uses_barriers() { Class::Ordered } else { Class::Orderless };
        let zero = Rc::new(Memory::new(BLOCK_BYTES));
        let zeros: Vec<_> = std::iter::repeat_n(zero, blocks.min(ZEROS_AT_ONCE)).collect();
        let mut tickets = Vec::new();
        for from in (0..blocks).step_by(ZEROS_AT_ONCE) {
            tickets.clear();
            let zeros = &zeros[..zeros.len().min(blocks - from)];
            self.disk.write(start + from as u64, zeros, class, class, &mut tickets).await?;
            if !self.options.rules.drops(FsMutant::ZerosNotAwaited) {
                self.disk.transferred(&tickets).await?;
            }
        }
        Ok(())
    }

    /// Journal mode data: blocks that became unwritten in a transaction that is not durable hold what a power cut brings
    /// back, so they are not overwritten in place. Which transaction has to be durable first.
    pub(crate) fn zeros_are_too_early(&self) -> Result<Option<Sequence>, FsError> {
        let journal = self.journal()?;
        let by = self.unwritten_by.get().filter(|_| self.options.mode == JournalMode::Data);
        Ok(by.filter(|sequence| !journal.is_durable(*sequence)))
    }

    /// Overwrites with zeros what of a range is written. The caller holds the lock, and no handle.
    pub(crate) async fn overwrite_with_zeros(
        &self,
        node: &Rc<Node>,
        range: Range<u32>,
    ) -> Result<(), FsError> {
        let mut at = range.start;
        while let Some(extent) = self.tree(node, None).next(at).await? {
            at = at.max(extent.logical);
            if at >= range.end {
                break;
            }
            let end = extent.end().min(range.end);
            at = if extent.written { self.overwrite_some(node, at..end).await? } else { end };
        }
        Ok(())
    }

    /// The same for the extent that a range begins in: its end.
    ///
    /// # Errors
    /// [`FsError::NoSpace`] if that is not written.
    pub(crate) async fn overwrite_first(&self, node: &Rc<Node>, range: Range<u32>) -> Result<u32, FsError> {
        let found = self.tree(node, None).next(range.start).await?;
        match found.filter(|extent| extent.written && covers(extent, range.start)) {
            Some(extent) if !self.options.rules.drops(FsMutant::NoZeroing) => {
                let end = extent.end().min(range.end);
                self.overwrite_with_zeros(node, range.start..end).await?;
                Ok(end)
            }
            _ => Err(FsError::NoSpace),
        }
    }

    /// Overwrites as much of a range, which is mapped and written, as one handle may: how far it went.
    async fn overwrite_some(&self, node: &Rc<Node>, range: Range<u32>) -> Result<u32, FsError> {
        self.cache.throttle().await;
        let journaled = self.options.mode == JournalMode::Data;
        let most = if journaled { CHUNK_JOURNALED } else { CHUNK_BLOCKS.min(self.cache.allowance()) } as u32;
        let end = range.end.min(range.start.saturating_add(most));
        let credits = TRUNCATE_CREDITS + if journaled { end - range.start } else { 0 };
        let handle = self.journal()?.start(credits).await?;
        self.tell_of_zeros(node, range.start..end);
        self.all_or_abort(async {
            for index in range.start..end {
                let offset = u64::from(index) * BLOCK;
                self.put(node, Some(&handle), offset, &ZEROS, &Edges::default()).await?;
            }
            node.stamp(self.now());
            node.log_data(self, &handle).await
        })
        .await?;
        Ok(end)
    }
}
