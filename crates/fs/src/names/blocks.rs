//! The blocks of a directory: where they are by its extent tree, and how it gets more.

use weir_ext4::directory::{Directory, DirectoryFile};
use weir_ext4::{Blocks, Extent, Kind, inode_flags};
use weir_format::BLOCK_BYTES;
use weir_vfs::FsError;

use crate::inodes::Node;
use crate::mapping::Tree;

/// A directory as the format's algorithms take it.
pub(super) type Entries<'a> = Directory<'a, Tree<'a>, DirectoryBlocks<'a>>;

/// The blocks of a directory. What it changes in the inode is in memory; a caller that changes the directory logs it.
pub(super) struct DirectoryBlocks<'a> {
    pub(super) tree: &'a Tree<'a>,
}

impl DirectoryBlocks<'_> {
    fn node(&self) -> &Node {
        self.tree.node
    }
}

impl DirectoryFile for DirectoryBlocks<'_> {
    type Error = FsError;

    fn blocks(&self) -> u32 {
        (self.node().inode.borrow().size() / BLOCK_BYTES as u64) as u32
    }

    fn is_indexed(&self) -> bool {
        self.node().inode.borrow().has_flag(inode_flags::INDEXED)
    }

    async fn set_indexed(&self) -> Result<(), FsError> {
        self.node().inode.borrow_mut().set_flag(inode_flags::INDEXED, true);
        Ok(())
    }

    async fn place(&self, block: u32) -> Result<u64, FsError> {
        self.tree.place(block).await
    }

    async fn append(&self, kind: Kind) -> Result<(u32, u64), FsError> {
        let block = self.blocks();
        let goal = match block.checked_sub(1) {
            Some(last) => self.place(last).await? + 1,
            None => self.tree.goal(),
        };
        let place = add_block(self.tree, block, kind, goal).await?;
        self.node().inode.borrow_mut().set_size(u64::from(block + 1) * BLOCK_BYTES as u64);
        Ok((block, place))
    }
}

/// Gives a directory or symbolic link a new block, near `goal`. The inode changes in memory only.
pub(super) async fn add_block(tree: &Tree<'_>, logical: u32, kind: Kind, goal: u64) -> Result<u64, FsError> {
    let place = tree.allocate(kind, goal).await?;
    let extent = Extent { logical, length: 1, physical: place, written: true };
    if let Err(error) = tree.change(async |extents| extents.insert(extent).await).await {
        tree.free(place, kind).await?;
        return Err(error);
    }
    tree.count_blocks(1);
    Ok(place)
}
