//! Growing a mounted filesystem, while it is used.
//!
//! 1. What is added is discarded, so that it reads zeros, and what describes the new groups is written there. Nothing of the
//!    filesystem leads there yet.
//! 2. One transaction has the superblock with the new size, and what changes of the last group that there was. It is made durable.
//! 3. Copies of the superblock and the descriptors are written. If a crash comes before, the next mount does that.
//!
//! From step 2 on the log may have blocks of new groups, so it is replayed up to the end of the storage.

use std::rc::Rc;

use weir_block::Durable;
use weir_ext4::{Growth, Kind, Layout, Superblock, descriptor_copies, superblock_copies};
use weir_journal::{Disk, Until};
use weir_runtime::Buffer as Memory;
use weir_storage::{Discard, Extent, Lba};
use weir_vfs::FsError;

use crate::mounted::Mounted;
use crate::mutants::FsMutant;
use crate::space::GROWTH_CREDITS;
use crate::superblock::{SUPERBLOCK_CREDITS, without_recovery};

/// Blocks of one extent at most.
const EXTENT_BLOCKS: u64 = 1 << 30;

impl Mounted {
    /// Makes the filesystem as large as fits into `blocks` blocks, which the storage has: its new size, in blocks.
    ///
    /// # Errors
    /// [`FsError::Unsupported`] on a storage that does not discard, and for a filesystem that has no room for descriptors;
    /// [`FsError::ReadOnly`].
    pub(crate) async fn grow(&self, blocks: u64) -> Result<u64, FsError> {
        let _growing = self.growing.acquire(1).await;
        let grown = self.changes.changing(self.grow_to(blocks)).await?;
        if grown {
            let (superblock, layout) = (*self.superblock.borrow(), self.metadata.space.layout());
            let descriptors = async |block| {
                let buffer = self.metadata.buffers.get(block, Kind::Descriptors).await?;
                Ok(buffer.snapshot())
            };
            write_copies(&self.disk, &superblock, &layout, descriptors).await?;
        }
        Ok(self.metadata.space.layout().blocks())
    }

    /// Steps 1 and 2; whether it has grown.
    async fn grow_to(&self, blocks: u64) -> Result<bool, FsError> {
        let space = &self.metadata.space;
        let growth = Growth::plan(&self.superblock.borrow(), blocks)?;
        let Some(growth) = growth else { return Ok(false) };
        if self.disk.capabilities().discard != Discard::ReadsZero {
            return Err(FsError::Unsupported("growing, on a storage that does not discard"));
        }
        let (start, end) = (space.layout().blocks(), growth.layout.blocks());
        for at in (start..end).step_by(EXTENT_BLOCKS as usize) {
            self.disk.discard(&[Extent::new(Lba(at), (end - at).min(EXTENT_BLOCKS) as u32)]).await?;
        }
        let is_late = self.options.rules.drops(FsMutant::GroupsDescribedLate);
        if !is_late {
            self.describe_groups(&growth).await?;
        }
        let handle = self.changes.start(GROWTH_CREDITS + SUPERBLOCK_CREDITS).await?;
        let sequence = handle.sequence();
        let change = async {
            let reserved = self.superblock.grow(&handle, &growth).await?;
            space.grow(&handle, &growth, reserved).await
        };
        self.changes.all_or_abort(change).await?;
        drop(handle);
        self.changes.journal()?.commit(sequence, Until::Durable).await?;
        if is_late {
            self.describe_groups(&growth).await?;
        }
        Ok(true)
    }

    /// Writes what describes the new groups. It is transferred when this returns, so that a commit is ordered behind it (J1).
    async fn describe_groups(&self, growth: &Growth) -> Result<(), FsError> {
        for (block, bytes) in growth.writes() {
            let bytes = Rc::new(Memory::copy_of(&bytes));
            self.disk.write_in_place(block, &bytes, Durable::Nothing).await?;
        }
        Ok(())
    }
}

/// Writes all copies of the superblock and of the blocks of descriptors, which `descriptors` reads.
pub(crate) async fn write_copies(
    disk: &Disk,
    superblock: &Superblock,
    layout: &Layout,
    descriptors: impl AsyncFn(u64) -> Result<Rc<Memory>, FsError>,
) -> Result<(), FsError> {
    for (block, copies) in descriptor_copies(layout) {
        let bytes = descriptors(block).await?;
        for copy in copies {
            disk.write_in_place(copy, &bytes, Durable::Nothing).await?;
        }
    }
    let superblock = without_recovery(superblock);
    let mut copies = superblock_copies(&superblock, layout);
    let first = copies.next();
    for (block, bytes) in copies {
        disk.write_in_place(block, &Rc::new(Memory::copy_of(&bytes)), Durable::Nothing).await?;
    }
    // The first one says that all are there.
    disk.flush().await?;
    if let Some((block, bytes)) = first {
        disk.write_in_place(block, &Rc::new(Memory::copy_of(&bytes)), Durable::Nothing).await?;
    }
    Ok(disk.flush().await?)
}
