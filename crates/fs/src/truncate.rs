//! Setting the size of a file.
//!
//! A truncation that takes more than one transaction is on the list of orphans meanwhile: after a crash it is
//! done to its end.

use std::ops::Range;
use std::rc::Rc;

use crate::cache::index_of;
use crate::error::FsError;
use crate::filesystem::{Filesystem, InodeNumber, Mounted};
use crate::map::MAP_CREDITS;
use crate::mutants::FsMutant;
use crate::node::Node;
use crate::orphans::ORPHAN_CREDITS;
use crate::read::{BLOCK, SIZE_MAX};
use crate::write::Edges;
use crate::zeros::ZEROS;
use weir_journal::TxHandle;

/// Journaled blocks that one step of a truncation changes: those of the map, the list of orphans, and a block
/// whose end becomes zeros.
pub(crate) const TRUNCATE_CREDITS: u32 = MAP_CREDITS + ORPHAN_CREDITS + 2;

impl Filesystem {
    /// Sets the size of a file. What is behind it is freed, also what was allocated behind the end; what is new is a
    /// hole.
    ///
    /// # Errors
    /// [`FsError::NotFound`], [`FsError::IsDirectory`], [`FsError::Invalid`] for what has no content,
    /// [`FsError::TooLarge`], [`FsError::ReadOnly`], and what the storage fails by.
    pub async fn truncate(&self, inode: InodeNumber, size: u64) -> Result<(), FsError> {
        let fs = &self.0;
        fs.changing(async {
            let node = fs.file(inode).await?;
            if size > SIZE_MAX {
                return Err(FsError::TooLarge);
            }
            let _locked = node.alone().await;
            fs.set_size(&node, size).await
        })
        .await
    }
}

impl Mounted {
    /// Sets the size of a file. The caller holds the lock.
    async fn set_size(&self, node: &Rc<Node>, size: u64) -> Result<(), FsError> {
        let old = node.size();
        // What is behind the end of a file reads as zeros if it grows again.
        let stays = self.options.rules.drops(FsMutant::TailStays);
        let tail = size..if stays { size } else { old.min(size.next_multiple_of(BLOCK)) };
        let (tail, edges) = match if size > old { self.behind_end(node).await? } else { None } {
            Some(behind) => behind,
            None => {
                let edges = self.edges(node, &tail).await?;
                (tail, edges)
            }
        };
        let handle = self.journal()?.start(TRUNCATE_CREDITS).await?;
        self.zero_part(node, &handle, tail, &edges).await?;
        node.inode.borrow_mut().set_size(size);
        node.stamp(self.now());
        if size != old {
            node.data_has_changed();
        }
        // Also where the size stays: blocks may have been allocated behind the end.
        let finished = size > old || self.all_or_abort(self.unmap(&handle, node, behind(size))).await?;
        if !finished {
            self.add_orphan(&handle, node).await?;
        }
        node.log_data(self, &handle).await?;
        drop(handle);
        if finished { Ok(()) } else { self.unmap_rest(node, size).await }
    }

    /// Frees all that is mapped behind `size`, in as many transactions as it takes; then the node is no orphan
    /// any more, if it has a name. The caller holds the lock.
    async fn unmap_rest(&self, node: &Rc<Node>, size: u64) -> Result<(), FsError> {
        loop {
            let handle = self.journal()?.start(TRUNCATE_CREDITS).await?;
            let finished = self.all_or_abort(self.unmap(&handle, node, behind(size))).await?;
            if finished && (node.links() > 0 || self.options.rules.drops(FsMutant::CutIsNoOrphan)) {
                self.remove_orphan(&handle, node).await?;
            }
            node.log_data(self, &handle).await?;
            if finished {
                return Ok(());
            }
        }
    }

    /// Finishes a truncation that a crash has interrupted: the node is on the list of orphans.
    pub(crate) async fn finish_truncation(&self, node: &Rc<Node>) -> Result<(), FsError> {
        let _locked = node.alone().await;
        self.unmap_rest(node, node.size()).await
    }

    /// Frees all blocks of a node that is on the list of orphans, whatever it is. The caller holds the lock, and
    /// takes it from the list.
    pub(crate) async fn free_content(&self, node: &Rc<Node>) -> Result<(), FsError> {
        loop {
            let handle = self.journal()?.start(TRUNCATE_CREDITS).await?;
            node.inode.borrow_mut().set_size(0);
            let finished = self.all_or_abort(self.unmap(&handle, node, behind(0))).await?;
            node.log_data(self, &handle).await?;
            if finished {
                return Ok(());
            }
        }
    }

    /// Fills part of a block with zeros, if it has content: the block's own content is among the edges.
    pub(crate) async fn zero_part(
        &self,
        node: &Rc<Node>,
        handle: &TxHandle,
        part: Range<u64>,
        edges: &Edges,
    ) -> Result<(), FsError> {
        if part.is_empty() || self.home(node, index_of(part.start)).await?.is_none() {
            return Ok(());
        }
        let zeros = &ZEROS[..(part.end - part.start) as usize];
        self.all_or_abort(self.put(node, Some(handle), part.start, zeros, edges)).await
    }
}

/// The blocks behind the last of a file.
fn behind(size: u64) -> Range<u32> {
    index_of(size.div_ceil(BLOCK) * BLOCK)..u32::MAX
}
