//! Where everything is: areas, the two copies of table blocks, and the segments of the main area.

use crate::address::{BlockAddress, NodeId, SEGMENT_BLOCKS};
use crate::bits::has_high_first;
use crate::node_table::NODES_PER_BLOCK;
use crate::segment_table::SEGMENTS_PER_BLOCK;
use crate::superblock::Superblock;

/// The places that a superblock says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    checkpoint_start: u32,
    payload: u32,
    segment_table_start: u32,
    segment_table_blocks: u32,
    node_table_start: u32,
    node_table_blocks: u32,
    summary_start: u32,
    main_start: u32,
    main_segments: u32,
}

impl Layout {
    /// The layout of a superblock that was [read](Superblock::read), or made.
    pub fn new(superblock: &Superblock) -> Self {
        let half = |segments: u32| segments / 2 * SEGMENT_BLOCKS;
        Self {
            checkpoint_start: superblock.checkpoint_start.get(),
            payload: superblock.checkpoint_payload.get(),
            segment_table_start: superblock.segment_table_start.get(),
            segment_table_blocks: half(superblock.segment_table_segments.get()),
            node_table_start: superblock.node_table_start.get(),
            node_table_blocks: half(superblock.node_table_segments.get()),
            summary_start: superblock.summary_start.get(),
            main_start: superblock.main_start.get(),
            main_segments: superblock.main_segments.get(),
        }
    }

    /// The first block of checkpoint pack 0 or 1: each has a segment.
    pub fn pack_start(&self, pack: u32) -> u32 {
        self.checkpoint_start + pack * SEGMENT_BLOCKS
    }

    /// Blocks between the first block of a pack and its orphan blocks.
    pub fn payload_blocks(&self) -> u32 {
        self.payload
    }

    /// Segments of the main area.
    pub fn main_segments(&self) -> u32 {
        self.main_segments
    }

    /// Blocks of one copy of the segment table that segments are in.
    pub fn segment_table_blocks(&self) -> u32 {
        self.main_segments.div_ceil(SEGMENTS_PER_BLOCK)
    }

    /// Blocks of one copy of the segment table, those that no segment is in included: a bit each of the version bitmap.
    pub fn segment_table_capacity(&self) -> u32 {
        self.segment_table_blocks
    }

    /// Blocks of one copy of the node table: a bit each of the version bitmap.
    pub fn node_table_blocks(&self) -> u32 {
        self.node_table_blocks
    }

    /// Numbers that nodes can have: all below this.
    pub fn nodes(&self) -> u32 {
        self.node_table_blocks.saturating_mul(NODES_PER_BLOCK)
    }

    /// Whether a node can have this number.
    pub fn has_node(&self, node: NodeId) -> bool {
        (NodeId::FIRST.0..self.nodes()).contains(&node.0)
    }

    /// Where block `nth` of the node table is, in the copy that the version bitmap says. Its copies take turns by segments.
    pub fn node_table_block(&self, nth: u32, versions: &[u8]) -> u32 {
        let within = nth % SEGMENT_BLOCKS;
        let first = self.node_table_start + (nth - within) * 2 + within;
        first + if has_high_first(versions, nth as usize) { SEGMENT_BLOCKS } else { 0 }
    }

    /// Where block `nth` of the segment table is, in the copy that the version bitmap says. One copy is behind the other.
    pub fn segment_table_block(&self, nth: u32, versions: &[u8]) -> u32 {
        let first = self.segment_table_start + nth;
        first + if has_high_first(versions, nth as usize) { self.segment_table_blocks } else { 0 }
    }

    /// Where the summary of a segment is.
    pub fn summary_block(&self, segment: u32) -> u32 {
        self.summary_start + segment
    }

    /// The segment that a block of the main area is in, and which of its blocks; `None` for another block.
    pub fn segment_of(&self, address: BlockAddress) -> Option<(u32, u32)> {
        let at = address.0.checked_sub(self.main_start)?;
        let (segment, offset) = (at / SEGMENT_BLOCKS, at % SEGMENT_BLOCKS);
        (segment < self.main_segments).then_some((segment, offset))
    }

    /// A block of a segment.
    pub fn block_of(&self, segment: u32, offset: u32) -> BlockAddress {
        BlockAddress(self.main_start + segment * SEGMENT_BLOCKS + offset)
    }
}
