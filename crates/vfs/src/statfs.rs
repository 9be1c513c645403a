//! Sizes of a filesystem.

/// Sizes of a filesystem, as `statfs` tells them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Statfs {
    /// Bytes in a block.
    pub block_bytes: u32,
    /// Blocks for files, those that are taken by the format itself left out.
    pub blocks: u64,
    /// Free blocks, with those that can be used only after the next commit.
    pub free_blocks: u64,
    /// Free blocks that a plain user may have: without those that are reserved for the superuser, and those that are
    /// kept for extent trees, which no file's data takes.
    pub available_blocks: u64,
    /// Inodes.
    pub inodes: u32,
    /// Free inodes.
    pub free_inodes: u32,
    /// Bytes in a name at most.
    pub name_bytes_max: u32,
}
