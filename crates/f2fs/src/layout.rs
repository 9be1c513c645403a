//! Where the areas of an image are, and which block of them holds what.
//!
//! Both tables have two copies of each block; a bitmap in the checkpoint says which is valid. The copies of a segment
//! table block are half the area apart, those of a node address table block a segment.

use std::ops::Range;

use weir_format::{FormatError, Place, Structure};

use crate::bitmap::{get_bit, set_bit};
use crate::block::{
    BLOCK_BYTES, BlockAddress, NODE_ENTRIES_PER_BLOCK, NodeId, SEGMENT_BLOCKS, SEGMENT_ENTRIES_PER_BLOCK,
    SegmentNumber,
};
use crate::superblock::Superblock;

/// Where the bitmaps start in the block of a checkpoint's header.
pub(crate) const CHECKPOINT_BITMAPS: usize = 192;
/// Where its checksum is: the end of the block.
pub(crate) const CHECKPOINT_CHECKSUM: usize = BLOCK_BYTES - 4;

/// A bitmap of a checkpoint: a bit for each block of a table, set where the second copy is the valid one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TableCopies(pub Vec<u8>);

impl TableCopies {
    /// Whether the second copy of table block `index` is the valid one.
    pub fn is_second(&self, index: u32) -> bool {
        get_bit(&self.0, index)
    }

    /// Makes the other copy of table block `index` the valid one.
    pub fn switch(&mut self, index: u32) {
        let second = self.is_second(index);
        set_bit(&mut self.0, index, !second);
    }
}

/// Where the areas are. Made from a superblock that was read, and so checked; addresses do not overflow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    segments: u32,
    checkpoints: u32,
    segment_table: u32,
    segment_table_segments: u32,
    node_table: u32,
    node_table_segments: u32,
    summaries: u32,
    summary_segments: u32,
    main: u32,
    main_segments: u32,
    payload: u32,
}

impl Layout {
    /// The layout of a superblock.
    ///
    /// # Errors
    ///
    /// A size that the bitmaps of a checkpoint cannot have.
    pub fn new(superblock: &Superblock) -> Result<Self, FormatError> {
        let layout = Self {
            segments: superblock.segments.get(),
            checkpoints: superblock.checkpoint_start.get(),
            segment_table: superblock.segment_table_start.get(),
            segment_table_segments: superblock.segment_table_segments.get(),
            node_table: superblock.node_table_start.get(),
            node_table_segments: superblock.node_table_segments.get(),
            summaries: superblock.summary_start.get(),
            summary_segments: superblock.summary_segments.get(),
            main: superblock.main_start.get(),
            main_segments: superblock.main_segments.get(),
            payload: superblock.checkpoint_payload.get(),
        };
        if !layout.has_room_for_bitmaps() {
            let what = "its tables are larger than a checkpoint can describe";
            return Err(FormatError::corrupt(Structure::Superblock, Place::Block(0), what));
        }
        Ok(layout)
    }

    /// Segments of all areas.
    pub fn segments(&self) -> u32 {
        self.segments
    }

    /// Segments of the main area.
    pub fn main_segments(&self) -> u32 {
        self.main_segments
    }

    /// Segments of the areas before the main area.
    pub fn meta_segments(&self) -> u32 {
        2 + self.segment_table_segments + self.node_table_segments + self.summary_segments
    }

    /// The first block of the main area.
    pub fn main_start(&self) -> BlockAddress {
        BlockAddress(self.main)
    }

    /// Blocks of a pack, after its header, for the bitmap of segment table copies.
    pub fn payload_blocks(&self) -> u32 {
        self.payload
    }

    /// Where the bitmaps of table copies are in the block of a pack's header: of the segment table, if it is not in the
    /// payload, and of the node address table.
    pub(crate) fn bitmap_ranges(&self) -> (Option<Range<usize>>, Range<usize>) {
        let (segment, node) = (self.segment_bitmap_bytes() as usize, self.node_bitmap_bytes() as usize);
        if self.payload > 0 {
            return (None, CHECKPOINT_BITMAPS..CHECKPOINT_BITMAPS + node);
        }
        let end = CHECKPOINT_BITMAPS + segment;
        (Some(CHECKPOINT_BITMAPS..end), end..end + node)
    }

    fn has_room_for_bitmaps(&self) -> bool {
        let payload = self.payload as usize * BLOCK_BYTES;
        let in_payload = payload == 0 || self.segment_bitmap_bytes() as usize <= payload;
        in_payload && self.bitmap_ranges().1.end <= CHECKPOINT_CHECKSUM
    }

    /// The first block of checkpoint pack 0 or 1.
    pub fn pack_start(&self, pack: usize) -> BlockAddress {
        BlockAddress(self.checkpoints + if pack == 0 { 0 } else { SEGMENT_BLOCKS })
    }

    /// The segment of a block of the main area, and the place in it. `None` outside.
    pub fn segment_of(&self, address: BlockAddress) -> Option<(SegmentNumber, u32)> {
        let offset = address.0.checked_sub(self.main)?;
        let segment = offset / SEGMENT_BLOCKS;
        (segment < self.main_segments).then_some((SegmentNumber(segment), offset % SEGMENT_BLOCKS))
    }

    /// The block at `offset` of a segment of the main area. `None` outside.
    pub fn block_of(&self, segment: SegmentNumber, offset: u32) -> Option<BlockAddress> {
        let inside = segment.0 < self.main_segments && offset < SEGMENT_BLOCKS;
        inside.then(|| BlockAddress(self.main + segment.0 * SEGMENT_BLOCKS + offset))
    }

    /// Blocks of one copy of the segment table that hold entries.
    pub fn segment_table_blocks(&self) -> u32 {
        self.main_segments.div_ceil(SEGMENT_ENTRIES_PER_BLOCK as u32)
    }

    /// Bytes of the bitmap of segment table copies: a bit for each block that one copy has room for.
    pub fn segment_bitmap_bytes(&self) -> u32 {
        self.segment_table_segments / 2 * (SEGMENT_BLOCKS / 8)
    }

    /// The block of the segment table that has the entry of `segment`, and the index of the entry in it. `None` outside.
    pub fn segment_entry_of(&self, segment: SegmentNumber) -> Option<(u32, usize)> {
        let per_block = SEGMENT_ENTRIES_PER_BLOCK as u32;
        (segment.0 < self.main_segments).then_some((segment.0 / per_block, (segment.0 % per_block) as usize))
    }

    /// Where block `index` of the segment table is, in its first or second copy. `None` beyond the table.
    pub fn segment_table_block(&self, index: u32, second: bool) -> Option<BlockAddress> {
        let copy = self.segment_table_segments / 2 * SEGMENT_BLOCKS;
        (index < copy).then(|| BlockAddress(self.segment_table + index + if second { copy } else { 0 }))
    }

    /// Blocks of one copy of the node address table.
    pub fn node_table_blocks(&self) -> u32 {
        self.node_table_segments / 2 * SEGMENT_BLOCKS
    }

    /// Bytes of the bitmap of node address table copies.
    pub fn node_bitmap_bytes(&self) -> u32 {
        self.node_table_blocks() / 8
    }

    /// How many numbers of nodes there are, 0 included: the table's entries.
    pub fn nodes(&self) -> u32 {
        // Superblock::read refuses a table with more.
        self.node_table_blocks() * NODE_ENTRIES_PER_BLOCK as u32
    }

    /// The block of the node address table that has the entry of `node`, and the index of the entry in it. `None` outside.
    pub fn node_entry_of(&self, node: NodeId) -> Option<(u32, usize)> {
        let per_block = NODE_ENTRIES_PER_BLOCK as u32;
        (node.0 < self.nodes()).then_some((node.0 / per_block, (node.0 % per_block) as usize))
    }

    /// Where block `index` of the node address table is, in its first or second copy. `None` beyond the table.
    pub fn node_table_block(&self, index: u32, second: bool) -> Option<BlockAddress> {
        let (segment, offset) = (index / SEGMENT_BLOCKS, index % SEGMENT_BLOCKS);
        let segment = segment * 2 + u32::from(second);
        (index < self.node_table_blocks())
            .then(|| BlockAddress(self.node_table + segment * SEGMENT_BLOCKS + offset))
    }

    /// Where the summary of a segment of the main area is. `None` outside.
    pub fn summary_block(&self, segment: SegmentNumber) -> Option<BlockAddress> {
        (segment.0 < self.main_segments).then(|| BlockAddress(self.summaries + segment.0))
    }

    /// The areas of both tables, as ranges of blocks: what a new filesystem has filled with zeros.
    pub(crate) fn table_blocks(&self) -> Range<u32> {
        self.segment_table..self.summaries
    }
}
