//! A mounted filesystem, put together from its parts.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::rc::Rc;

use weir_block::Class;
use weir_f2fs::{
    Block, BlockAddress, FileReader, Inode, Layout, NodeId, SegmentNumber, SharedBlock, Superblock,
    bytes_of_page,
};
use weir_format::{BLOCK_BYTES, FileType};
use weir_journal::Disk;
use weir_runtime::{Instant, Semaphore};
use weir_vfs::{FsError, InodeNumber, StorageImage, Timer};

use crate::checkpoint::Checkpoints;
use crate::cleaner_kind::CleanerCounts;
use crate::files::Files;
use crate::operations::Operations;
use crate::options::F2fsOptions;
use crate::placement::Placement;
use crate::under_way::UnderWay;

/// The parts of a mounted filesystem. Each has what it needs of those above it in this list.
pub(crate) struct Mounted {
    pub(crate) options: F2fsOptions,
    pub(crate) superblock: Superblock,
    pub(crate) layout: Layout,
    pub(crate) image: Rc<StorageImage>,
    pub(crate) disk: Rc<Disk>,
    pub(crate) timer: Timer,
    pub(crate) operations: Operations,
    /// One call at a time changes names.
    pub(crate) names: Semaphore,
    /// One call at a time makes segments free.
    pub(crate) freeing: Semaphore,
    pub(crate) generation: Cell<u32>,
    pub(crate) cleaned: Cell<CleanerCounts>,
    /// Segments that could not be cleaned.
    pub(crate) damaged: RefCell<BTreeSet<SegmentNumber>>,
    /// Orphans that could not be deleted: each checkpoint lists them again.
    pub(crate) kept_orphans: RefCell<BTreeSet<NodeId>>,
    /// Synchronisation calls that were answered: those that promise durability, and those that promise order.
    pub(crate) answered: Cell<(u64, u64)>,
    /// Pages that updates have, of all files.
    pub(crate) update_pages: Rc<Cell<u32>>,
    pub(crate) placement: Rc<Placement>,
    pub(crate) files: Files,
    pub(crate) checkpoints: Checkpoints,
    pub(crate) under_way: UnderWay,
    /// When it was mounted, and how many seconds it had been mounted before.
    pub(crate) since: (Instant, u64),
}

impl Mounted {
    /// Whether order is kept by barriers, so that no call waits for it.
    pub(crate) fn has_barriers(&self) -> bool {
        self.disk.capabilities().barriers()
    }

    /// How everything is written: in order, where the storage keeps it. An orderless write could overtake the checkpoint that
    /// frees its place.
    pub(crate) fn class(&self) -> Class {
        if self.has_barriers() { Class::Ordered } else { Class::Orderless }
    }

    /// Seconds that the filesystem was mounted, over all mounts.
    pub(crate) fn elapsed(&self) -> u64 {
        let (since, before) = self.since;
        before + self.disk.handle().now().as_nanos().saturating_sub(since.as_nanos()) / NANOS_A_SECOND
    }

    /// The size of a file that has an update, with what that adds.
    pub(crate) async fn size_of_updated(&self, number: InodeNumber) -> Result<Option<u64>, FsError> {
        let file = self.files.get(NodeId(number)).await?;
        let update = file.update.borrow();
        Ok(update.as_ref().map(|update| update.staged.size()))
    }

    /// A number that no inode had before in this mount.
    pub(crate) fn take_generation(&self) -> u32 {
        self.generation.replace(self.generation.get().wrapping_add(1))
    }

    /// Bytes of extra fields in a new inode.
    pub(crate) fn extra_bytes(&self) -> u16 {
        if self.superblock.features().has(weir_f2fs::Feature::EXTRA_ATTR) {
            weir_f2fs::EXTRA_BYTES
        } else {
            0
        }
    }
}

impl Drop for Mounted {
    /// Dropped without unmount, it is as after a power cut, and the next mount rolls forward.
    fn drop(&mut self) {
        self.files.cache.abandon();
    }
}

impl FileReader for Mounted {
    type Error = FsError;

    fn layout(&self) -> &Layout {
        &self.layout
    }

    fn has_content(&self, inode: &Inode, address: BlockAddress) -> bool {
        // Names may be in memory alone.
        address.is_block() || address == BlockAddress::NEW && inode.file_type() == Some(FileType::Directory)
    }

    async fn node(&self, node: NodeId, inode: NodeId) -> Result<SharedBlock, FsError> {
        Ok(self.placement.nodes.load(node, inode).await?.content())
    }

    async fn page_at(&self, inode: &Inode, page: u64, address: BlockAddress) -> Result<Block, FsError> {
        let bytes = bytes_of_page(inode, page);
        let mut content: Block = Box::new([0; BLOCK_BYTES]);
        if bytes == 0 || address == BlockAddress::NULL {
            return Ok(content);
        }
        let file = self.files.get(inode.number()).await?;
        // The inode is a copy: its address may be where the page was.
        if let Some(slot) = self.placement.find_slot(&file, page).await?
            && let Some(read) = self.cached_page(&file, page, &slot).await?
        {
            content[..bytes].copy_from_slice(&read[..bytes]);
        }
        Ok(content)
    }
}

const NANOS_A_SECOND: u64 = 1_000_000_000;
/// Ticks of the clock that stamps files.
pub(crate) const TICKS_A_SECOND: u32 = 1_000_000_000;
