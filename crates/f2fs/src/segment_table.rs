//! The segment information table (SIT): which blocks of each segment are valid.

use weir_format::{BLOCK_BYTES, FormatError, Place, Structure};
use zerocopy::little_endian::{U16, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::address::SEGMENT_BLOCKS;
use crate::bits::{has_high_first, set_high_first};

/// Bytes of an entry.
const ENTRY_BYTES: usize = 74;
/// Entries in a block.
pub const SEGMENTS_PER_BLOCK: u32 = (BLOCK_BYTES / ENTRY_BYTES) as u32;
/// The low bits of `valid` that count blocks; above them is the type.
const COUNT_BITS: u32 = 10;

/// What a log is for. A segment belongs to the log that has written it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LogKind {
    /// Directories' blocks.
    HotData,
    /// Blocks of files.
    WarmData,
    /// What cleaning has moved, and files that are seldom changed.
    ColdData,
    /// Nodes of directories that map their blocks.
    HotNode,
    /// Nodes of files that map their blocks.
    WarmNode,
    /// Nodes that map other nodes.
    ColdNode,
}

impl LogKind {
    /// All of them, in the order of their numbers.
    pub const ALL: [Self; 6] =
        [Self::HotData, Self::WarmData, Self::ColdData, Self::HotNode, Self::WarmNode, Self::ColdNode];

    /// Its number, from 0.
    pub fn index(self) -> usize {
        self as usize
    }

    /// The log of a number.
    pub fn from_index(index: usize) -> Option<Self> {
        Self::ALL.get(index).copied()
    }

    /// Whether it holds nodes.
    pub fn is_node(self) -> bool {
        self >= Self::HotNode
    }
}

/// What is known of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct SegmentEntry {
    valid: U16,
    map: [u8; 64],
    modified: U64,
}

const _: () = assert!(size_of::<SegmentEntry>() == ENTRY_BYTES);

impl SegmentEntry {
    /// A segment without valid blocks, of a log.
    pub fn new(kind: LogKind) -> Self {
        let mut entry = Self::new_zeroed();
        entry.valid = ((kind.index() as u16) << COUNT_BITS).into();
        entry
    }

    /// How many of its blocks are valid.
    pub fn valid_blocks(&self) -> u32 {
        u32::from(self.valid.get() & ((1 << COUNT_BITS) - 1))
    }

    /// The log that it belongs to; `None` for a number that no log has.
    pub fn kind(&self) -> Option<LogKind> {
        LogKind::from_index(usize::from(self.valid.get() >> COUNT_BITS))
    }

    /// Makes it a segment of another log.
    pub fn set_kind(&mut self, kind: LogKind) {
        self.valid = ((kind.index() as u16) << COUNT_BITS | self.valid_blocks() as u16).into();
    }

    /// Whether a block is valid.
    pub fn is_valid(&self, block: u32) -> bool {
        has_high_first(&self.map, block as usize)
    }

    /// Makes a block valid or not; false, and nothing done, if it was so already.
    pub fn set_valid(&mut self, block: u32, valid: bool) -> bool {
        if block >= SEGMENT_BLOCKS || self.is_valid(block) == valid {
            return false;
        }
        set_high_first(&mut self.map, block as usize, valid);
        let count = if valid { self.valid_blocks() + 1 } else { self.valid_blocks().saturating_sub(1) };
        self.valid = (self.valid.get() & !((1 << COUNT_BITS) - 1) | count as u16).into();
        true
    }

    /// When it last changed: seconds since 1970, less what the [checkpoint](crate::Checkpoint) says has passed before.
    pub fn modified(&self) -> u64 {
        self.modified.get()
    }

    /// Sets when it last changed.
    pub fn set_modified(&mut self, time: u64) {
        self.modified = time.into();
    }

    /// That its count is that of its map, and that it belongs to a log.
    ///
    /// # Errors
    /// [`FormatError::Corrupt`] otherwise.
    pub fn check(&self, segment: u32) -> Result<(), FormatError> {
        let corrupt =
            |what| Err(FormatError::corrupt(Structure::SegmentTable, Place::Segment(segment), what));
        let count: u32 = self.map.iter().map(|byte| byte.count_ones()).sum();
        if count != self.valid_blocks() {
            return corrupt("the number of valid blocks");
        }
        if self.kind().is_none() { corrupt("the log that it belongs to") } else { Ok(()) }
    }
}

/// The block of the table, and the entry in it, of a segment.
pub fn entry_place(segment: u32) -> (u32, usize) {
    (segment / SEGMENTS_PER_BLOCK, (segment % SEGMENTS_PER_BLOCK) as usize)
}

/// The entry `nth` of a block; one without valid blocks if the block has not so many.
pub fn read_entry(block: &[u8], nth: usize) -> SegmentEntry {
    let bytes = block.get(nth * ENTRY_BYTES..(nth + 1) * ENTRY_BYTES);
    let read = bytes.and_then(|bytes| SegmentEntry::read_from_bytes(bytes).ok());
    read.unwrap_or_else(|| SegmentEntry::new(LogKind::HotData))
}

/// Stores the entry `nth` of a block, which has so many.
pub fn write_entry(block: &mut [u8; BLOCK_BYTES], nth: usize, entry: &SegmentEntry) {
    block[nth * ENTRY_BYTES..(nth + 1) * ENTRY_BYTES].copy_from_slice(entry.as_bytes());
}
