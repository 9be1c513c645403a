//! Numbers of blocks, segments and nodes, and how many of them go together.

use std::fmt;

pub use weir_format::BLOCK_BYTES;

/// Blocks in a segment.
pub const SEGMENT_BLOCKS: u32 = 512;
/// Entries in a block of the node address table.
pub const NODE_ENTRIES_PER_BLOCK: usize = 455;
/// Entries in a block of the segment table.
pub const SEGMENT_ENTRIES_PER_BLOCK: usize = 55;

/// The address of a block, counted from the start of the device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlockAddress(pub u32);

impl BlockAddress {
    /// No block: a hole of a file, a free entry of the node address table.
    pub const NULL: Self = Self(0);
    /// A block that is reserved and counted, and has no place yet.
    pub const NEW: Self = Self(u32::MAX);

    /// Whether it is the address of a block, neither [`NULL`](Self::NULL) nor [`NEW`](Self::NEW).
    pub fn is_block(self) -> bool {
        self != Self::NULL && self != Self::NEW
    }
}

impl fmt::Display for BlockAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The number of a node. An inode's number is that of its node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub u32);

impl NodeId {
    /// No node.
    pub const NULL: Self = Self(0);
    /// The inode that stands for all node blocks; it has no block.
    pub const NODE_INODE: Self = Self(1);
    /// The inode that stands for the areas before the main area; it has no block.
    pub const META_INODE: Self = Self(2);
    /// The root directory.
    pub const ROOT: Self = Self(3);
}

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The number of a segment, counted from the start of the main area.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SegmentNumber(pub u32);

impl SegmentNumber {
    /// No segment: a log of a checkpoint that is not in use.
    pub const NULL: Self = Self(u32::MAX);
}

impl fmt::Display for SegmentNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
