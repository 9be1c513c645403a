//! The blocks that an inode owns, as the format's algorithms take them: extent trees, directories, attributes.
//! Read through the buffers; changed, allocated and freed in a transaction.

use std::ops::Range;
use std::rc::Rc;

use weir_ext4::{Blocks, Extent, ExtentTree, Kind, check_extents};
use weir_format::{BLOCK_BYTES, FormatError};
use weir_journal::{BufferHead, Role, TxHandle};
use weir_storage::Lba;
use weir_vfs::{FsError, ReadOnlyReason};

use crate::inodes::{Metadata, Node};
use crate::space::Use;

/// Units of 512 bytes in a block, as inodes count space.
pub(crate) const SECTORS_PER_BLOCK: i64 = (BLOCK_BYTES / 512) as i64;
/// Blocks besides those of its content that a file may get with one extent: a node of its tree on each of five levels, and a
/// block of attributes.
const NODES_AND_ATTRIBUTES: u64 = 6;

/// A node's blocks, to be changed only with a handle.
#[derive(Clone, Copy)]
pub(crate) struct Tree<'a> {
    pub(crate) node: &'a Node,
    pub(crate) handle: Option<&'a TxHandle>,
}

impl<'a> Tree<'a> {
    /// A node's blocks, to be read.
    pub(crate) fn from_node(node: &'a Node) -> Tree<'a> {
        Tree { node, handle: None }
    }

    /// The same, to be changed in this transaction.
    pub(crate) fn changing(node: &'a Node, handle: &'a TxHandle) -> Tree<'a> {
        Tree { node, handle: Some(handle) }
    }

    /// The extent that maps a block of the node, if one does.
    pub(crate) async fn find(&self, logical: u32) -> Result<Option<Extent>, FsError> {
        if let Some(extent) = self.node.extent.get().filter(|extent| covers(extent, logical)) {
            return Ok(Some(extent));
        }
        let found = self.read_tree(async |extents| extents.lookup(logical).await).await?;
        if found.is_some() {
            self.node.extent.set(found);
        }
        Ok(found)
    }

    /// The first extent that maps a block of the node or one behind it.
    pub(crate) async fn next(&self, logical: u32) -> Result<Option<Extent>, FsError> {
        if let Some(extent) = self.node.extent.get().filter(|extent| covers(extent, logical)) {
            return Ok(Some(extent));
        }
        self.read_tree(async |extents| extents.next(logical).await).await
    }

    /// Where a block of the node is on disk.
    ///
    /// # Errors
    /// [`FsError::Format`] if it is nowhere, which directories may not have.
    pub(crate) async fn place(&self, logical: u32) -> Result<u64, FsError> {
        match self.find(logical).await? {
            Some(extent) => Ok(place(&extent, logical)),
            None => {
                let place = weir_format::Place::Inode(self.node.number);
                let what = "a block that is not mapped";
                Err(FormatError::corrupt(weir_format::Structure::Directory, place, what).into())
            }
        }
    }

    /// Where the first block of the node should be: in the group of its inode.
    pub(crate) fn goal(&self) -> u64 {
        let layout = self.metadata().space.layout();
        layout.first_block(layout.inode_group(self.node.number).map_or(0, |(group, _)| group))
    }

    /// What of a range's unwritten extent can be marked as written without another node
    /// ([`ExtentTree::markable`]).
    pub(crate) async fn markable(&self, range: Range<u32>, end: u32) -> Result<Option<Range<u32>>, FsError> {
        self.read_tree(async |extents| extents.markable(range, end).await).await
    }

    async fn read_tree<T>(
        &self,
        look: impl AsyncFnOnce(&ExtentTree<'_, Self>) -> Result<T, FsError>,
    ) -> Result<T, FsError> {
        let (mut root, generation) = self.root();
        let limit = self.metadata().space.layout().blocks();
        look(&ExtentTree::new(self, &mut root, self.node.number, generation, limit)).await
    }

    /// Changes what the node maps. Its block area and its space change in memory: the caller logs the inode,
    /// and counts the blocks that were mapped or unmapped ([`count_blocks`](Self::count_blocks)).
    pub(crate) async fn change<T>(
        &self,
        change: impl AsyncFnOnce(&mut ExtentTree<'_, Self>) -> Result<T, FsError>,
    ) -> Result<T, FsError> {
        let (mut root, generation) = self.root();
        let limit = self.metadata().space.layout().blocks();
        let mut extents = ExtentTree::new(self, &mut root, self.node.number, generation, limit);
        let done = change(&mut extents).await;
        // A change that found no room may have made the tree deeper all the same.
        let gained = extents.nodes_gained();
        self.node.inode.borrow_mut().block_area = root;
        self.node.extent.set(None);
        self.count_blocks(gained);
        done
    }

    /// Refuses more blocks than the inode can count, with what its tree may need for them: images without the
    /// feature `huge_file` count less than 2^32 sectors.
    ///
    /// # Errors
    /// [`FsError::TooLarge`].
    pub(crate) fn check_room_in_count(&self, blocks: u32) -> Result<(), FsError> {
        let more = (u64::from(blocks) + NODES_AND_ATTRIBUTES) * SECTORS_PER_BLOCK as u64;
        let counted = self.node.inode.borrow().sectors().saturating_add(more);
        let most = self.metadata().space.layout().file_sectors_max();
        if counted > most { Err(FsError::TooLarge) } else { Ok(()) }
    }

    /// The node owns so many blocks more, or less.
    pub(crate) fn count_blocks(&self, gained: i64) {
        let mut inode = self.node.inode.borrow_mut();
        let sectors = inode.sectors().saturating_add_signed(gained * SECTORS_PER_BLOCK);
        inode.set_sectors(sectors);
    }

    fn root(&self) -> ([u8; weir_ext4::BLOCK_AREA_BYTES], u32) {
        let inode = self.node.inode.borrow();
        (inode.block_area, inode.generation.get())
    }

    fn metadata(&self) -> &Metadata {
        self.node.metadata()
    }

    fn handle(&self) -> Result<&TxHandle, FsError> {
        self.handle.ok_or(FsError::ReadOnly(ReadOnlyReason::Mounted))
    }

    async fn buffer(&self, block: u64, kind: Kind) -> Result<Rc<BufferHead>, FsError> {
        if let Some(buffer) = self.metadata().buffers.cached(block) {
            return Ok(buffer);
        }
        let buffer = self.metadata().block_of(self.node.number, block, kind).await?;
        if matches!(kind, Kind::Extents { .. }) {
            buffer.read(|bytes| check_extents(block, bytes, self.metadata().space.layout().blocks()))?;
        }
        Ok(buffer)
    }
}

/// Whether an extent maps a block of the file.
pub(crate) fn covers(extent: &Extent, logical: u32) -> bool {
    (extent.logical..extent.end()).contains(&logical)
}

/// Where a block of a file is, if it follows an extent or is in it.
pub(crate) fn place(extent: &Extent, logical: u32) -> u64 {
    extent.physical + u64::from(logical - extent.logical)
}

impl Blocks for Tree<'_> {
    type Error = FsError;

    async fn read<T>(
        &self,
        block: u64,
        kind: Kind,
        look: impl FnOnce(&[u8]) -> Result<T, FormatError>,
    ) -> Result<T, FsError> {
        Ok(self.buffer(block, kind).await?.read(look)?)
    }

    async fn modify(
        &self,
        block: u64,
        kind: Kind,
        range: Range<usize>,
        change: impl FnOnce(&mut [u8]),
    ) -> Result<(), FsError> {
        let handle = self.handle()?;
        let buffer = self.buffer(block, kind).await?;
        // A block of a directory may become a node of its index: it is sealed as what it is last.
        buffer.set_role(Role::Metadata(kind));
        handle.modify(&buffer, range, change);
        Ok(())
    }

    async fn allocate(&self, kind: Kind, goal: u64) -> Result<u64, FsError> {
        let handle = self.handle()?;
        let purpose = if matches!(kind, Kind::Extents { .. }) { Use::Tree } else { Use::Content };
        let block = self.metadata().space.allocate_one(handle, purpose, goal).await?;
        let buffer = self.metadata().buffers.fresh(block, Role::Metadata(kind));
        handle.modify(&buffer, 0..0, |_| ());
        Ok(block)
    }

    async fn free(&self, block: u64, _: Kind) -> Result<(), FsError> {
        let handle = self.handle()?;
        handle.revoke(block);
        self.metadata().buffers.forget(block);
        self.metadata().space.free(handle, weir_storage::Extent::new(Lba(block), 1)).await
    }
}
