//! Blocks of files: allocated where something is written, marked as written or not, and freed.

use std::ops::Range;
use std::rc::Rc;

use weir_cache::CachedFile;
use weir_cache::units::UNIT_BLOCKS;
use weir_ext4::Extent;
use weir_format::FileType;
use weir_journal::{Journal, Sequence, TxHandle};
use weir_storage::Lba;
use weir_vfs::FsError;

use super::Mapping;
use super::tree::{Tree, covers, place};
use crate::inodes::Node;
use crate::mutants::FsMutant;
use crate::space::GROUP_CREDITS;

/// Most blocks of an extent in either state.
const EXTENT_BLOCKS_MAX: u32 = (1 << 15) - 1;
/// Extents that one handle allocates, marks or frees at most.
const EXTENTS_A_HANDLE: usize = 8;
/// Journaled blocks that so many extents change: those of two groups each, and of the tree what a split of all its
/// levels takes.
pub(crate) const MAP_CREDITS: u32 = 2 * GROUP_CREDITS * EXTENTS_A_HANDLE as u32 + 16;

/// What has to be so of the blocks in a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// Mapped, and written: something is going to be written there.
    Written,
    /// Mapped; what is new reads as zeros.
    Mapped,
    /// Mapped, and all reads as zeros.
    Zeros,
}

impl Mapping {
    /// Makes the blocks of a range as they are wanted, from its start as far as one handle goes: how far it went.
    /// The caller holds the lock, and logs the inode also after an error. Costs [`MAP_CREDITS`].
    ///
    /// # Errors
    /// [`FsError::NoSpace`] if not even the first block could be allocated.
    pub(crate) async fn map(
        &self,
        handle: &TxHandle,
        node: &Rc<Node>,
        range: Range<u32>,
        wanted: Wanted,
    ) -> Result<u32, FsError> {
        let mut at = range.start;
        for _ in 0..EXTENTS_A_HANDLE {
            if at >= range.end {
                break;
            }
            let done = self.map_some(handle, node, at..range.end, wanted).await;
            match done {
                Ok(reached) => at = reached,
                // The caller writes what is mapped: what was in its blocks before is no file's.
                Err(_) if at > range.start => break,
                Err(error) => return Err(error),
            }
        }
        Ok(at)
    }

    /// The same for as many blocks as are in one state.
    async fn map_some(
        &self,
        handle: &TxHandle,
        node: &Rc<Node>,
        range: Range<u32>,
        wanted: Wanted,
    ) -> Result<u32, FsError> {
        let tree = Tree::changing(node, handle);
        let next = tree.next(range.start).await?.filter(|next| next.logical < range.end);
        let Some(extent) = next.filter(|next| covers(next, range.start)) else {
            let hole = range.start..next.map_or(range.end, |next| next.logical);
            return self.allocate(&tree, handle, hole, wanted == Wanted::Written).await;
        };
        let end = extent.end().min(range.end);
        let written = wanted == Wanted::Written;
        if wanted != Wanted::Mapped && extent.written != written {
            node.last_changes.note_data();
            if written && !node.is_journaled(self.mode) {
                // In writeback mode, too: a caller that has allocated a block of zeros never sees what was in it
                // before.
                node.file.attach(handle);
            }
            let marked = tree.change(async |extents| extents.mark(range.start..end, written).await).await;
            match marked.map_err(FsError::full_is_no_space) {
                Err(FsError::NoSpace) if written && !self.rules.drops(FsMutant::NoZeroing) => {
                    self.mark_with_zeros(&tree, range.start..end).await?;
                }
                marked => marked?,
            }
            if !written {
                if node.is_journaled(self.mode) {
                    self.changes.made_unwritten(handle.sequence());
                }
                let journal = self.changes.journal()?;
                self.forget_pages(journal, handle, &node.file, range.start..end).await?;
                self.forget_journaled(handle, node, place(&extent, range.start), end - range.start);
            }
        }
        Ok(end)
    }

    /// Allocates blocks for the start of a hole, behind what comes before it in the file.
    async fn allocate(
        &self,
        tree: &Tree<'_>,
        handle: &TxHandle,
        hole: Range<u32>,
        written: bool,
    ) -> Result<u32, FsError> {
        let before = match hole.start.checked_sub(1) {
            Some(before) => tree.find(before).await?,
            None => None,
        };
        let goal = before.map_or_else(|| tree.goal(), |before| place(&before, hole.start));
        let most = (hole.end - hole.start).min(EXTENT_BLOCKS_MAX);
        tree.check_room_in_count(most)?;
        let found = self.metadata.space.allocate(handle, goal, hole.start, most).await?;
        let (logical, length) = (hole.start, found.blocks);
        if (logical + length) % UNIT_BLOCKS != 0 && length < most {
            self.split_units.set(self.split_units.get() + 1);
        }
        let extent = Extent { logical, length, physical: found.start.0, written };
        tree.node.last_changes.note_data();
        if let Err(error) = tree.change(async |extents| extents.insert(extent).await).await {
            self.metadata.space.free(handle, found).await?;
            return Err(error.full_is_no_space());
        }
        if written {
            handle.allocated(found);
        }
        tree.count_blocks(i64::from(length));
        tree.node.extent.set(Some(extent));
        Ok(extent.end())
    }

    /// Unmaps the last blocks of a range and frees them, as many as one handle may: whether that was all. The
    /// caller holds the lock and logs the inode. Costs [`MAP_CREDITS`].
    pub(crate) async fn unmap(
        &self,
        handle: &TxHandle,
        node: &Rc<Node>,
        range: Range<u32>,
    ) -> Result<bool, FsError> {
        let tree = Tree::changing(node, handle);
        let journal = self.changes.journal()?;
        for _ in 0..EXTENTS_A_HANDLE {
            let removed = tree
                .change(async |extents| extents.remove_last(range.clone()).await)
                .await
                .map_err(FsError::full_is_no_space)?;
            let Some(extent) = removed else { return Ok(true) };
            if !self.rules.drops(FsMutant::HolesUnnoticed) {
                node.last_changes.note_data();
            }
            tree.count_blocks(-i64::from(extent.length));
            let free = async {
                self.forget_pages(journal, handle, &node.file, extent.logical..extent.end()).await?;
                self.forget_journaled(handle, node, extent.physical, extent.length);
                let freed = weir_storage::Extent::new(Lba(extent.physical), extent.length);
                self.metadata.space.free(handle, freed).await
            };
            // It is gone from the tree.
            self.changes.all_or_abort(free).await?;
        }
        Ok(false)
    }

    /// Forgets the pages in a range, whose blocks are freed with `handle`, or read as zeros. Their caller holds the node's lock.
    ///
    /// No task submits any of them after this, so none is written over what comes to their blocks next (J7). If
    /// the transaction before is being committed, they are submitted first: it may map them, and would show what
    /// was in their blocks before (J2). That waits for queue space only, so an open handle may.
    async fn forget_pages(
        &self,
        journal: &Journal,
        handle: &TxHandle,
        file: &CachedFile,
        range: Range<u32>,
    ) -> Result<(), FsError> {
        let turn = file.take_turn().await;
        let before = Sequence(handle.sequence().0.wrapping_sub(1));
        if turn.has_dirty()
            && !journal.is_dispatched(before)
            && !self.rules.drops(FsMutant::TruncateForgetsCommitting)
        {
            let class = journal.engine().class_of_calls();
            turn.submit(class, class).await?;
        }
        // A call that makes the file durable finds them written, or waits for this transaction.
        if turn.has_dirty() && !self.rules.drops(FsMutant::DropsPagesSilently) {
            handle.drop_pages();
            turn.drop_dirty_in(handle.sequence());
        }
        turn.forget(range);
        Ok(())
    }

    /// What went through the journal, of directories, symbolic links and in journal mode data, is not to be
    /// replayed once its blocks are free, or read as zeros (J5 d).
    fn forget_journaled(&self, handle: &TxHandle, node: &Node, start: u64, blocks: u32) {
        let kind = node.inode.borrow().file_type();
        if kind == Some(FileType::Regular) && !node.is_journaled(self.mode) {
            return;
        }
        let revokes = kind != Some(FileType::Directory) || !self.rules.drops(FsMutant::NoDirectoryRevoke);
        for block in start..start + u64::from(blocks) {
            // What the log still holds is pinned, and so it is here; or it is in place, and its checksum in the log (J10).
            let checked = handle.is_checked(block);
            let cached = self.metadata.buffers.cached(block);
            if revokes && (checked || cached.as_ref().is_some_and(|buffer| buffer.is_pinned())) {
                handle.revoke(block);
            }
            if cached.is_some() {
                self.metadata.buffers.forget(block);
            }
        }
    }
}
