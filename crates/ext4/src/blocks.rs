//! How the algorithms of this crate reach metadata blocks: a trait, so that the same tree code runs on a
//! filesystem with a journal, on an image in memory, and in tests.

use std::ops::Range;

use weir_format::FormatError;

/// What a metadata block holds. It decides how the block is sealed with its checksum, and verified.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// The superblock: at byte 1,024 of block 0, at byte 0 of its copies.
    Superblock,
    /// Group descriptors. Each is sealed on its own when it is changed.
    Descriptors,
    /// The bitmap of a group's blocks. Its checksum is in the group's descriptor.
    BlockBitmap {
        /// Of which group.
        group: u32,
    },
    /// The bitmap of a group's inodes. Its checksum is in the group's descriptor.
    InodeBitmap {
        /// Of which group.
        group: u32,
    },
    /// Sixteen inodes. Each is sealed on its own when it is changed.
    InodeTable,
    /// A node of an inode's extent tree.
    Extents {
        /// The inode's number.
        inode: u32,
        /// The inode's generation.
        generation: u32,
    },
    /// A block of directory entries.
    Directory {
        /// The directory's inode number.
        inode: u32,
        /// The inode's generation.
        generation: u32,
    },
    /// A node of a directory's hashed index, its root included.
    DirectoryIndex {
        /// The directory's inode number.
        inode: u32,
        /// The inode's generation.
        generation: u32,
    },
    /// A block of extended attributes.
    Attributes,
    /// The target of a symbolic link that does not fit in its inode.
    SymlinkTarget,
    /// A block of the orphan file.
    OrphanFile {
        /// The orphan file's inode number.
        inode: u32,
        /// The inode's generation.
        generation: u32,
    },
}

/// Metadata blocks, read and changed in place.
///
/// Nothing is remembered between two calls but by the implementor: `look` and `change` run on the block
/// itself, and neither may be kept waiting.
#[allow(async_fn_in_trait, reason = "everything runs on one thread, so no future needs to be Send")]
pub trait Blocks {
    /// What a caller gets when the storage fails, there is no space, or the format is broken.
    type Error: From<FormatError>;

    /// Runs `look` on the bytes of a metadata block, which was verified when it was read.
    async fn read<T>(
        &self,
        block: u64,
        kind: Kind,
        look: impl FnOnce(&[u8]) -> Result<T, FormatError>,
    ) -> Result<T, Self::Error>;

    /// Changes bytes `range` of a metadata block; `change` gets exactly those (rule J8: changes name their
    /// bytes). The implementor seals the block afterwards, at the latest before it is written.
    async fn modify(
        &self,
        block: u64,
        kind: Kind,
        range: Range<usize>,
        change: impl FnOnce(&mut [u8]),
    ) -> Result<(), Self::Error>;

    /// A new metadata block of zeros, near block `goal` if there is room.
    async fn allocate(&self, kind: Kind, goal: u64) -> Result<u64, Self::Error>;

    /// Gives back a block that [`allocate`](Self::allocate) gave, in this life or an earlier one.
    async fn free(&self, block: u64, kind: Kind) -> Result<(), Self::Error>;
}
