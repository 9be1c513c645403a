//! Summaries (SSA): whose each block of a segment is. And the journals in summaries: the newest entries of the tables, so
//! that a checkpoint writes few blocks of the tables themselves.

use weir_format::{FormatError, Place, Structure};
use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::block::{BLOCK_BYTES, NodeId, SEGMENT_BLOCKS, SegmentNumber};
use crate::layout::Layout;
use crate::node_table::NodeEntry;
use crate::segment_table::SegmentEntry;

/// Bytes of a journal.
pub(crate) const JOURNAL_BYTES: usize = 507;
/// Bytes of a summary's footer.
pub(crate) const FOOTER_BYTES: usize = 5;
/// Entries that a journal of node addresses holds.
pub const NODE_JOURNAL_ENTRIES: usize = 38;
/// Entries that a journal of segments holds.
pub const SEGMENT_JOURNAL_ENTRIES: usize = 6;

/// Whose a block is.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct Summary {
    /// Of a data block: the node that has its address. Of a node block: the node itself.
    pub node: U32,
    /// The version of the node's entry in the node address table.
    pub version: u8,
    /// Of a data block: which address of the node it is.
    pub offset: U16,
}

/// Whether a segment holds data or nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SummaryKind {
    /// Data of files and directories.
    Data = 0,
    /// Nodes.
    Node = 1,
}

/// The bytes of a journal: which table's is known by where it is.
pub type Journal = [u8; JOURNAL_BYTES];

/// A summary block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct SummaryBlock {
    /// Whose the blocks of the segment are, in their order.
    pub entries: [Summary; SEGMENT_BLOCKS as usize],
    /// In a checkpoint pack, of the hot data log a [`NodeJournal`], of the cold data log a [`SegmentJournal`].
    pub journal: Journal,
    /// 0: data, 1: nodes.
    pub kind: u8,
    /// Not used.
    pub checksum: U32,
}

const _: () = assert!(size_of::<SummaryBlock>() == BLOCK_BYTES);

impl SummaryBlock {
    /// An empty one.
    pub fn new(kind: SummaryKind) -> Box<Self> {
        let mut block = Box::new(Self::new_zeroed());
        block.kind = kind as u8;
        block
    }

    /// Reads a summary block; `place` is for messages.
    ///
    /// # Errors
    ///
    /// A kind that is none, or a block that is too short. A block that was never written counts as one of data.
    pub fn read(bytes: &[u8], place: Place) -> Result<Box<Self>, FormatError> {
        let corrupt = |what| FormatError::corrupt(Structure::Summary, place, what);
        let (block, _) = Self::read_from_prefix(bytes).map_err(|_| corrupt("too short"))?;
        if block.kind > SummaryKind::Node as u8 {
            return Err(corrupt("its kind is neither data nor node"));
        }
        Ok(Box::new(block))
    }

    /// The bytes.
    pub fn to_bytes(&self) -> [u8; BLOCK_BYTES] {
        zerocopy::transmute!(*self)
    }

    /// Whether the segment holds data or nodes.
    pub fn kind(&self) -> SummaryKind {
        if self.kind == SummaryKind::Node as u8 { SummaryKind::Node } else { SummaryKind::Data }
    }
}

/// A node and its entry.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct NodeJournalEntry {
    /// The node.
    pub node: U32,
    /// Its entry, newer than that in the table.
    pub entry: NodeEntry,
}

/// The newest entries of the node address table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct NodeJournal {
    count: U16,
    entries: [NodeJournalEntry; NODE_JOURNAL_ENTRIES],
    rest: [u8; 11],
}

/// A segment and its entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct SegmentJournalEntry {
    /// The segment.
    pub segment: U32,
    /// Its entry, newer than that in the table.
    pub entry: SegmentEntry,
}

/// The newest entries of the segment table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct SegmentJournal {
    count: U16,
    entries: [SegmentJournalEntry; SEGMENT_JOURNAL_ENTRIES],
    rest: [u8; 37],
}

const _: () = {
    assert!(size_of::<NodeJournal>() == JOURNAL_BYTES);
    assert!(size_of::<SegmentJournal>() == JOURNAL_BYTES);
};

impl NodeJournal {
    /// A journal with `entries`.
    ///
    /// # Errors
    ///
    /// [`FormatError::Full`] with more than [`NODE_JOURNAL_ENTRIES`].
    pub fn from_entries(entries: &[NodeJournalEntry]) -> Result<Self, FormatError> {
        let mut journal = Self::new_zeroed();
        let full = FormatError::Full { what: "the journal of node addresses" };
        journal.entries.get_mut(..entries.len()).ok_or(full)?.copy_from_slice(entries);
        journal.count = (entries.len() as u16).into();
        Ok(journal)
    }

    /// Reads the journal of the hot data log, and checks its entries.
    ///
    /// # Errors
    ///
    /// More entries than fit, a node that cannot be, a node twice; as [`NodeEntry::check`].
    pub fn read(bytes: &Journal, layout: &Layout) -> Result<Self, FormatError> {
        let corrupt = |place, what| Err(FormatError::corrupt(Structure::NodeAddressTable, place, what));
        let journal: Self = zerocopy::transmute!(*bytes);
        if usize::from(journal.count.get()) > NODE_JOURNAL_ENTRIES {
            let start = layout.pack_start(0).0;
            return corrupt(Place::Block(u64::from(start)), "its journal has more entries than fit");
        }
        let entries = journal.entries();
        for (index, entry) in entries.iter().enumerate() {
            let place = Place::Node(entry.node.get());
            if layout.node_entry_of(NodeId(entry.node.get())).is_none() {
                return corrupt(place, "the journal has a node that cannot be");
            }
            if entries[..index].iter().any(|earlier| earlier.node == entry.node) {
                return corrupt(place, "the journal has it twice");
            }
            entry.entry.check(NodeId(entry.node.get()), layout)?;
        }
        Ok(journal)
    }

    /// The entries.
    pub fn entries(&self) -> &[NodeJournalEntry] {
        &self.entries[..usize::from(self.count.get()).min(NODE_JOURNAL_ENTRIES)]
    }

    /// The bytes.
    pub fn to_bytes(&self) -> Journal {
        zerocopy::transmute!(*self)
    }
}

impl SegmentJournal {
    /// A journal with `entries`.
    ///
    /// # Errors
    ///
    /// [`FormatError::Full`] with more than [`SEGMENT_JOURNAL_ENTRIES`].
    pub fn from_entries(entries: &[SegmentJournalEntry]) -> Result<Self, FormatError> {
        let mut journal = Self::new_zeroed();
        let full = FormatError::Full { what: "the journal of segments" };
        journal.entries.get_mut(..entries.len()).ok_or(full)?.copy_from_slice(entries);
        journal.count = (entries.len() as u16).into();
        Ok(journal)
    }

    /// Reads the journal of the cold data log, and checks its entries.
    ///
    /// # Errors
    ///
    /// More entries than fit, a segment that cannot be, a segment twice; as [`SegmentEntry::check`].
    pub fn read(bytes: &Journal, layout: &Layout) -> Result<Self, FormatError> {
        let corrupt = |place, what| Err(FormatError::corrupt(Structure::SegmentTable, place, what));
        let journal: Self = zerocopy::transmute!(*bytes);
        if usize::from(journal.count.get()) > SEGMENT_JOURNAL_ENTRIES {
            let start = layout.pack_start(0).0;
            return corrupt(Place::Block(u64::from(start)), "its journal has more entries than fit");
        }
        let entries = journal.entries();
        for (index, entry) in entries.iter().enumerate() {
            let segment = SegmentNumber(entry.segment.get());
            if layout.segment_entry_of(segment).is_none() {
                return corrupt(Place::Segment(segment.0), "the journal has a segment that cannot be");
            }
            if entries[..index].iter().any(|earlier| earlier.segment == entry.segment) {
                return corrupt(Place::Segment(segment.0), "the journal has it twice");
            }
            entry.entry.check(segment)?;
        }
        Ok(journal)
    }

    /// The entries.
    pub fn entries(&self) -> &[SegmentJournalEntry] {
        &self.entries[..usize::from(self.count.get()).min(SEGMENT_JOURNAL_ENTRIES)]
    }

    /// The bytes.
    pub fn to_bytes(&self) -> Journal {
        zerocopy::transmute!(*self)
    }
}
