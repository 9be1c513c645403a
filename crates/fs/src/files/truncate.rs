//! Setting the size of a file.
//!
//! A truncation that takes more than one transaction is on the list of orphans meanwhile: after a crash it is
//! done to its end.

use std::ops::Range;
use std::rc::Rc;

use weir_cache::{BLOCK, index_of};
use weir_journal::TxHandle;
use weir_storage::BLOCK_BYTES;
use weir_vfs::FsError;

use super::write::Edges;
use super::{Files, require_regular};
use crate::inodes::Node;
use crate::mapping::MAP_CREDITS;
use crate::mutants::FsMutant;
use crate::orphans::ORPHAN_CREDITS;

/// Journaled blocks that one step of a truncation changes: those of the map, the list of orphans, and a block
/// whose end becomes zeros.
pub(super) const TRUNCATE_CREDITS: u32 = MAP_CREDITS + ORPHAN_CREDITS + 2;

/// What a block is filled with, or a part of one.
pub(super) static ZEROS: [u8; BLOCK_BYTES] = [0; BLOCK_BYTES];

impl Files {
    /// Sets the size of a file.
    pub(crate) async fn truncate(&self, node: &Rc<Node>, size: u64) -> Result<(), FsError> {
        self.changes
            .changing(async {
                require_regular(node)?;
                self.check_size(size)?;
                let _locked = node.lock_exclusive().await;
                if node.update.borrow().is_some() {
                    return Err(FsError::UpdateOpen);
                }
                self.set_size(node, size).await
            })
            .await
    }

    /// Sets the size of a file. The caller holds the lock.
    async fn set_size(&self, node: &Rc<Node>, size: u64) -> Result<(), FsError> {
        let old = node.size();
        // What is behind the end of a file reads as zeros if it grows again.
        let stays = self.rules.drops(FsMutant::TailStays);
        let tail = size..if stays { size } else { old.min(size.next_multiple_of(BLOCK)) };
        let (tail, edges) = match if size > old { self.behind_end(node).await? } else { None } {
            Some(behind) => behind,
            None => {
                let edges = self.edges(node, &tail).await?;
                (tail, edges)
            }
        };
        let handle = self.changes.start(TRUNCATE_CREDITS).await?;
        self.zero_part(node, &handle, tail, &edges).await?;
        node.inode.borrow_mut().set_size(size);
        node.stamp(self.timer.now());
        if size != old {
            node.last_changes.note_data();
        }
        // Also where the size stays: blocks may have been allocated behind the end.
        let finished =
            size > old || self.changes.all_or_abort(self.mapping.unmap(&handle, node, behind(size))).await?;
        if !finished {
            self.orphans.add(&handle, node).await?;
        }
        self.mapping.log_data(node, &handle).await?;
        drop(handle);
        if finished { Ok(()) } else { self.unmap_rest(node, size).await }
    }

    /// Frees all that is mapped behind `size`, in as many transactions as it takes; then the node is no orphan
    /// any more, if it has a name. The caller holds the lock.
    async fn unmap_rest(&self, node: &Rc<Node>, size: u64) -> Result<(), FsError> {
        loop {
            let handle = self.changes.start(TRUNCATE_CREDITS).await?;
            let finished = self.changes.all_or_abort(self.mapping.unmap(&handle, node, behind(size))).await?;
            if finished && (node.links() > 0 || self.rules.drops(FsMutant::CutIsNoOrphan)) {
                self.orphans.remove(&handle, node).await?;
            }
            self.mapping.log_data(node, &handle).await?;
            if finished {
                return Ok(());
            }
        }
    }

    /// Finishes a truncation that a crash has interrupted: the node is on the list of orphans.
    pub(crate) async fn finish_truncation(&self, node: &Rc<Node>) -> Result<(), FsError> {
        let _locked = node.lock_exclusive().await;
        self.unmap_rest(node, node.size()).await
    }

    /// Frees all blocks of a node that is on the list of orphans, whatever it is. The caller holds the lock, and
    /// takes it from the list.
    pub(crate) async fn free_content(&self, node: &Rc<Node>) -> Result<(), FsError> {
        loop {
            let handle = self.changes.start(TRUNCATE_CREDITS).await?;
            node.inode.borrow_mut().set_size(0);
            let finished = self.changes.all_or_abort(self.mapping.unmap(&handle, node, behind(0))).await?;
            self.mapping.log_data(node, &handle).await?;
            if finished {
                return Ok(());
            }
            drop(handle);
            // The next mount would do the rest.
            self.changes.give_way().await;
        }
    }

    /// Fills part of a block with zeros, if it has content: the block's own content is among the edges.
    pub(super) async fn zero_part(
        &self,
        node: &Rc<Node>,
        handle: &TxHandle,
        part: Range<u64>,
        edges: &Edges,
    ) -> Result<(), FsError> {
        if part.is_empty() || self.mapping.home(node, index_of(part.start)).await?.is_none() {
            return Ok(());
        }
        let zeros = &ZEROS[..(part.end - part.start) as usize];
        self.changes.all_or_abort(self.put_bytes(node, Some(handle), part.start, zeros, edges)).await
    }
}

/// The blocks behind the last of a file.
fn behind(size: u64) -> Range<u32> {
    index_of(size.div_ceil(BLOCK) * BLOCK)..u32::MAX
}
