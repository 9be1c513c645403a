//! Numbers of blocks, nodes and segments.

/// Blocks in a segment: 2 MiB.
pub const SEGMENT_BLOCKS: u32 = 512;

/// The place of a block, counted from the start of the image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlockAddress(pub u32);

impl BlockAddress {
    /// No block: a hole.
    pub const NULL: Self = Self(0);
    /// A block that is reserved, and has no place yet.
    pub const NEW: Self = Self(u32::MAX);

    /// Whether it names a place on the disk.
    pub fn is_place(self) -> bool {
        self != Self::NULL && self != Self::NEW
    }
}

/// The number of a node: of an inode, or of a block that maps a part of a large file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub u32);

impl NodeId {
    /// No node.
    pub const NONE: Self = Self(0);
    /// The first number that a file can have, which the root directory has in all images that are made today. Below it are
    /// none, and two that stand for the tables in the memory of other implementations.
    pub const FIRST: Self = Self(3);
}
