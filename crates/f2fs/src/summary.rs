//! Summaries: to which node and page each block of a segment belongs, and the journals of both tables, which the summaries of two
//! open logs carry.

use weir_format::{BLOCK_BYTES, FormatError, Place, Structure};
use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::address::{NodeId, SEGMENT_BLOCKS};
use crate::node_table::NodeEntry;
use crate::segment_table::SegmentEntry;

/// Bytes of an entry.
pub(crate) const ENTRY_BYTES: usize = 7;
/// Where the journal starts in a block of summaries.
const JOURNAL_START: usize = SEGMENT_BLOCKS as usize * ENTRY_BYTES;
/// Bytes of the end of a block: a type, and a checksum that no program reads.
pub(crate) const FOOTER_BYTES: usize = 5;
/// Bytes of a journal: its count, and its entries.
pub(crate) const JOURNAL_BYTES: usize = BLOCK_BYTES - JOURNAL_START - FOOTER_BYTES;
/// Entries of the node table in a journal at most.
pub const JOURNAL_NODES_MAX: usize = (JOURNAL_BYTES - 2) / size_of::<JournalNode>();
/// Entries of the segment table in a journal at most.
pub const JOURNAL_SEGMENTS_MAX: usize = (JOURNAL_BYTES - 2) / size_of::<JournalSegment>();

/// To which node a block belongs.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct SummaryEntry {
    node: U32,
    /// That of the node's [entry](NodeEntry), if the block is a file's: a node that was deleted has had another.
    pub version: u8,
    offset: U16,
}

impl SummaryEntry {
    /// The entry of a block that is at `offset` among the addresses of a node; 0 for a node itself.
    pub fn new(node: NodeId, version: u8, offset: u16) -> Self {
        Self { node: node.0.into(), version, offset: offset.into() }
    }

    /// The node.
    pub fn node(&self) -> NodeId {
        NodeId(self.node.get())
    }

    /// Which of its addresses.
    pub fn offset(&self) -> u16 {
        self.offset.get()
    }
}

/// A change of the node table that is in a journal, and not in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct JournalNode {
    node: U32,
    /// The entry.
    pub entry: NodeEntry,
}

impl JournalNode {
    /// A change of a node's entry.
    pub fn new(node: NodeId, entry: NodeEntry) -> Self {
        Self { node: node.0.into(), entry }
    }

    /// Of which node.
    pub fn node(&self) -> NodeId {
        NodeId(self.node.get())
    }
}

/// A change of the segment table that is in a journal, and not in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct JournalSegment {
    segment: U32,
    /// The entry.
    pub entry: SegmentEntry,
}

impl JournalSegment {
    /// A change of a segment's entry.
    pub fn new(segment: u32, entry: SegmentEntry) -> Self {
        Self { segment: segment.into(), entry }
    }

    /// Of which segment.
    pub fn segment(&self) -> u32 {
        self.segment.get()
    }
}

/// Reads the entries of a journal.
///
/// # Errors
/// What is wrong with it.
pub(crate) fn read_journal<T: FromBytes + Unaligned>(bytes: &[u8]) -> Result<Vec<T>, &'static str> {
    let (count, entries) = bytes.split_first_chunk::<2>().ok_or("a journal that is cut off")?;
    let count = usize::from(u16::from_le_bytes(*count));
    let entries = entries.get(..count * size_of::<T>()).ok_or("a journal with too many entries")?;
    Ok(entries.chunks_exact(size_of::<T>()).filter_map(|entry| T::read_from_bytes(entry).ok()).collect())
}

/// Writes as many entries as a journal takes.
pub(crate) fn write_journal<T: IntoBytes + Immutable>(bytes: &mut [u8], entries: &[T]) {
    let count = entries.len().min((JOURNAL_BYTES - 2) / size_of::<T>());
    bytes[..2].copy_from_slice(&(count as u16).to_le_bytes());
    for (place, entry) in bytes[2..].chunks_exact_mut(size_of::<T>()).zip(&entries[..count]) {
        place.copy_from_slice(entry.as_bytes());
    }
}

/// The summary of a segment: 512 entries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Summary {
    /// An entry for each block; those of blocks that are not valid may say anything.
    pub entries: Vec<SummaryEntry>,
    /// Whether its blocks are nodes.
    pub is_node: bool,
}

impl Summary {
    /// One of a segment without blocks.
    pub fn new(is_node: bool) -> Self {
        Self { entries: vec![SummaryEntry::default(); SEGMENT_BLOCKS as usize], is_node }
    }

    /// Reads the summary of a segment from its block.
    ///
    /// # Errors
    /// [`FormatError::Corrupt`] for a block that is shorter, or of an unknown type.
    pub fn read(block: &[u8], segment: u32) -> Result<Self, FormatError> {
        let corrupt = |what| FormatError::corrupt(Structure::Summary, Place::Segment(segment), what);
        let entries = block.get(..JOURNAL_START).ok_or_else(|| corrupt("too short"))?;
        let entries = entries.chunks_exact(ENTRY_BYTES);
        let entries = entries.filter_map(|entry| SummaryEntry::read_from_bytes(entry).ok()).collect();
        match block.get(BLOCK_BYTES - FOOTER_BYTES) {
            Some(0) => Ok(Self { entries, is_node: false }),
            Some(1) => Ok(Self { entries, is_node: true }),
            _ => Err(corrupt("type")),
        }
    }

    /// The block of this summary, without a journal.
    pub fn to_block(&self) -> Box<[u8; BLOCK_BYTES]> {
        let mut block = Box::new([0; BLOCK_BYTES]);
        for (place, entry) in block.chunks_exact_mut(ENTRY_BYTES).zip(&self.entries) {
            place.copy_from_slice(entry.as_bytes());
        }
        block[BLOCK_BYTES - FOOTER_BYTES] = u8::from(self.is_node);
        block
    }
}

/// The bytes of the journal in a block of summaries.
pub(crate) fn journal_of(block: &[u8]) -> &[u8] {
    block.get(JOURNAL_START..JOURNAL_START + JOURNAL_BYTES).unwrap_or_default()
}

/// The bytes of the journal in a block of summaries that is written.
pub(crate) fn journal_of_mut(block: &mut [u8; BLOCK_BYTES]) -> &mut [u8] {
    &mut block[JOURNAL_START..JOURNAL_START + JOURNAL_BYTES]
}
