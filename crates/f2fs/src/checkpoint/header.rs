//! The header of a checkpoint pack, which is its footer too.

use std::mem::offset_of;

use weir_format::{FormatError, Place, Structure};
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::corrupt;
use crate::block::{BLOCK_BYTES, SEGMENT_BLOCKS, SegmentNumber};
use crate::crc::{MAGIC, crc32};
use crate::layout::{CHECKPOINT_BITMAPS, CHECKPOINT_CHECKSUM, Layout};
use crate::log::Log;

/// Bits of [`CheckpointHeader::flags`].
pub mod checkpoint_flags {
    /// Written by an unmount: the pack has the summaries of node logs.
    pub const UMOUNT: u32 = 0x1;
    /// The pack lists orphans.
    pub const ORPHANS: u32 = 0x2;
    /// The summaries of data logs are compact.
    pub const COMPACT: u32 = 0x4;
    /// The filesystem failed: it may not be mounted without a check.
    pub const ERROR: u32 = 0x8;
    /// A check is wanted.
    pub const FSCK: u32 = 0x10;
    /// As [`UMOUNT`], without one.
    pub const FASTBOOT: u32 = 0x20;
    /// Nodes that roll-forward may take carry the pack's checksum beside its version.
    pub const CRC_RECOVERY: u32 = 0x40;
    /// The pack's segment ends with bitmaps of full and empty table blocks. They are not read, and never written.
    pub const NAT_BITS: u32 = 0x80;
    /// All free blocks were discarded.
    pub const TRIMMED: u32 = 0x100;
    /// Roll-forward is not wanted, or not by checksum.
    pub const NO_CRC_RECOVERY: u32 = 0x200;

    /// Those that are known here.
    pub(super) const KNOWN: u32 = 0x3FF;
    /// Those that are refused, with a name.
    pub(super) const REFUSED: [(u32, &str); 5] = [
        (0x400, "large_nat_bitmap (mkfs.f2fs -i)"),
        (0x800, "quota"),
        (0x1000, "checkpoint=disable"),
        (0x2000, "checkpoint=disable"),
        (0x4000, "an unfinished resize"),
    ];
}

/// Logs that the format has room for, of each kind.
const LOG_SLOTS: usize = 8;

/// How a log takes blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Allocation {
    /// One after the other in a free segment.
    Append = 0,
    /// The free blocks of a segment in use.
    Reuse = 1,
}

/// Where a log goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogState {
    /// Its open segment.
    pub segment: SegmentNumber,
    /// The next block of it: 0 to 511.
    pub next: u32,
    /// How it takes blocks.
    pub allocation: Allocation,
}

/// The header. What [`CheckpointPack`](super::CheckpointPack) has in typed form is set when a pack is encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct CheckpointHeader {
    /// Counts checkpoints. Compared as a distance, so it may wrap.
    pub version: U64,
    /// Blocks of the main area that users may fill.
    pub user_blocks: U64,
    /// Blocks of the main area in use, those promised to data without a place included.
    pub valid_blocks: U64,
    /// Segments kept for the cleaner.
    pub reserved_segments: U32,
    /// Segments that users may not fill, the reserved ones included.
    pub overprovision_segments: U32,
    /// Segments without a block in use that no log has open.
    pub free_segments: U32,
    /// The open segments of node logs.
    pub node_segments: [U32; LOG_SLOTS],
    /// Their next blocks.
    pub node_next: [U16; LOG_SLOTS],
    /// The open segments of data logs.
    pub data_segments: [U32; LOG_SLOTS],
    /// Their next blocks.
    pub data_next: [U16; LOG_SLOTS],
    /// See [`checkpoint_flags`].
    pub flags: U32,
    /// Blocks of the pack.
    pub pack_blocks: U32,
    /// Which of them is the first summary.
    pub summary_start: U32,
    /// Nodes in use.
    pub valid_nodes: U32,
    /// Inodes among them.
    pub valid_inodes: U32,
    /// Where the search for a free node starts.
    pub next_free_node: U32,
    /// Bytes of the bitmap of segment table copies.
    pub segment_bitmap_bytes: U32,
    /// Bytes of the bitmap of node address table copies.
    pub node_bitmap_bytes: U32,
    /// Where the checksum is.
    pub checksum_offset: U32,
    /// Seconds that the filesystem was mounted.
    pub elapsed: U64,
    /// How logs take blocks, by their number.
    pub allocation: [u8; 16],
}

const _: () = {
    assert!(size_of::<CheckpointHeader>() == CHECKPOINT_BITMAPS);
    assert!(offset_of!(CheckpointHeader, node_segments) == 36);
    assert!(offset_of!(CheckpointHeader, flags) == 132);
    assert!(offset_of!(CheckpointHeader, checksum_offset) == 164);
};

impl CheckpointHeader {
    /// Reads the header of the pack that starts at block `start`, and checks it: then [`pack_blocks`](Self::pack_blocks)
    /// says how much to read of the pack.
    ///
    /// # Errors
    ///
    /// What is damaged, or the name of what is outside the subset.
    pub fn read(block: &[u8], start: u32, layout: &Layout) -> Result<Self, FormatError> {
        let short = || corrupt(start, "too short");
        let block = block.first_chunk::<BLOCK_BYTES>().ok_or_else(short)?;
        let (header, _) = Self::read_from_prefix(block).map_err(|_| short())?;
        // The checksum covers the place of the checksum, so that is read first.
        let offset = header.checksum_offset.get();
        if offset as usize == CHECKPOINT_BITMAPS {
            header.check_flags()?;
        }
        if offset as usize != CHECKPOINT_CHECKSUM {
            return Err(corrupt(start, "place of the checksum"));
        }
        if sum(block) != header_checksum(block) {
            let (structure, place) = (Structure::Checkpoint, Place::Block(u64::from(start)));
            return Err(FormatError::Checksum { structure, place });
        }
        header.check_flags()?;
        match header.find_wrong_count(layout).or_else(|| header.find_wrong_log(layout)) {
            Some(what) => Err(corrupt(start, what)),
            None => Ok(header),
        }
    }

    fn check_flags(&self) -> Result<(), FormatError> {
        let flags = self.flags.get();
        if let Some((_, name)) = checkpoint_flags::REFUSED.into_iter().find(|(bit, _)| flags & bit != 0) {
            return Err(FormatError::Feature { name });
        }
        match flags & !checkpoint_flags::KNOWN {
            0 => Ok(()),
            bits => Err(FormatError::UnknownFeatures { set: "checkpoint", bits }),
        }
    }

    fn find_wrong_count(&self, layout: &Layout) -> Option<&'static str> {
        let main = layout.main_segments();
        let main_blocks = u64::from(main) * u64::from(SEGMENT_BLOCKS);
        let start = self.summary_start.get();
        let rest = self.pack_blocks.get().checked_sub(start);
        let (reserved, overprovision) = (self.reserved_segments.get(), self.overprovision_segments.get());
        let wrong = [
            (self.user_blocks.get() == 0 || self.user_blocks.get() >= main_blocks, "number of user blocks"),
            (self.valid_blocks > self.user_blocks, "number of valid blocks"),
            (reserved == 0 || reserved > main, "number of reserved segments"),
            (overprovision < reserved || overprovision > main, "number of overprovision segments"),
            (self.free_segments.get() > main, "number of free segments"),
            (self.valid_nodes.get() > layout.nodes(), "number of valid nodes"),
            (self.valid_nodes.get() == 0, "number of valid nodes"),
            (u64::from(self.valid_nodes.get()) > self.valid_blocks.get(), "number of valid nodes"),
            (self.valid_inodes > self.valid_nodes, "number of valid inodes"),
            (self.next_free_node.get() > layout.nodes(), "next free node"),
            (self.segment_bitmap_bytes.get() != layout.segment_bitmap_bytes(), "size of the segment bitmap"),
            (self.node_bitmap_bytes.get() != layout.node_bitmap_bytes(), "size of the node bitmap"),
            (start < 1 + layout.payload_blocks(), "start of the summaries"),
            (self.pack_blocks.get() > SEGMENT_BLOCKS, "number of blocks of the pack"),
            (!rest.is_some_and(|rest| self.tail_blocks().contains(&rest)), "number of blocks of the pack"),
        ];
        wrong.into_iter().find_map(|(wrong, what)| wrong.then_some(what))
    }

    /// How many blocks may follow the orphans.
    fn tail_blocks(&self) -> std::ops::RangeInclusive<u32> {
        let after = self.node_summary_blocks() + 1;
        if self.is_compact() { after + 1..=after + 2 } else { after + 3..=after + 3 }
    }

    fn find_wrong_log(&self, layout: &Layout) -> Option<&'static str> {
        let states: Vec<LogState> = Log::ALL.into_iter().map_while(|log| self.log(log)).collect();
        let wrong =
            |state: &LogState| state.segment.0 >= layout.main_segments() || state.next >= SEGMENT_BLOCKS;
        let twice = |(index, state): (usize, &LogState)| {
            states[..index].iter().any(|earlier| earlier.segment == state.segment)
        };
        if states.len() != Log::ALL.len() {
            Some("allocation of a log")
        } else if states.iter().any(wrong) {
            Some("segment or next block of a log")
        } else if states.iter().enumerate().any(twice) {
            Some("two logs have one segment open")
        } else {
            None
        }
    }

    /// Whether the flags `bits` are set.
    pub fn has(&self, bits: u32) -> bool {
        self.flags.get() & bits == bits
    }

    /// Whether the summaries of data logs are compact.
    pub fn is_compact(&self) -> bool {
        self.has(checkpoint_flags::COMPACT)
    }

    /// Blocks with summaries of node logs.
    pub fn node_summary_blocks(&self) -> u32 {
        let has = self.has(checkpoint_flags::UMOUNT) || self.has(checkpoint_flags::FASTBOOT);
        if has { 3 } else { 0 }
    }

    /// Where `log` goes on. `None` for an allocation that is not known: never in a header that was read.
    pub fn log(&self, log: Log) -> Option<LogState> {
        let slot = log as usize % 3;
        let (segments, next) = if log.is_node() {
            (&self.node_segments, &self.node_next)
        } else {
            (&self.data_segments, &self.data_next)
        };
        let allocation = match self.allocation[log as usize] {
            0 => Allocation::Append,
            1 => Allocation::Reuse,
            _ => return None,
        };
        let segment = SegmentNumber(segments[slot].get());
        Some(LogState { segment, next: u32::from(next[slot].get()), allocation })
    }

    /// Changes where `log` goes on.
    ///
    /// # Errors
    ///
    /// [`FormatError::Invalid`] for a next block beyond the segment.
    pub fn set_log(&mut self, log: Log, state: LogState) -> Result<(), FormatError> {
        if state.next >= SEGMENT_BLOCKS {
            return Err(FormatError::Invalid { what: "a next block of a log of more than 511" });
        }
        let slot = log as usize % 3;
        let (segments, next) = if log.is_node() {
            (&mut self.node_segments, &mut self.node_next)
        } else {
            (&mut self.data_segments, &mut self.data_next)
        };
        segments[slot] = state.segment.0.into();
        next[slot] = (state.next as u16).into();
        self.allocation[log as usize] = state.allocation as u8;
        Ok(())
    }

    /// Whether this checkpoint is newer than `other`.
    pub fn is_newer_than(&self, other: &Self) -> bool {
        (self.version.get().wrapping_sub(other.version.get()) as i64) > 0
    }
}

/// The checksum of a header's block.
pub(super) fn sum(block: &[u8; BLOCK_BYTES]) -> u32 {
    crc32(MAGIC, &block[..CHECKPOINT_CHECKSUM])
}

/// The checksum that a header's block has; 0 of a block that is too short.
pub fn header_checksum(block: &[u8]) -> u32 {
    match block.get(CHECKPOINT_CHECKSUM..BLOCK_BYTES) {
        Some(&[a, b, c, d]) => u32::from_le_bytes([a, b, c, d]),
        _ => 0,
    }
}
