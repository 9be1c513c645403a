//! The first block of a pack.

use weir_format::{BLOCK_BYTES, FormatError, Place, Structure};
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{Checkpoint, OpenLog};
use crate::address::SEGMENT_BLOCKS;
use crate::crc::{MAGIC, crc32};
use crate::layout::Layout;
use crate::segment_table::LogKind;

/// Where the checksum is: the end of the block.
pub(super) const SUM_OFFSET: usize = BLOCK_BYTES - 4;

/// Bits of `flags`.
pub(super) mod flags {
    pub(crate) const UNMOUNTED: u32 = 0x1;
    pub(crate) const ORPHANS: u32 = 0x2;
    pub(crate) const COMPACT: u32 = 0x4;
    pub(crate) const ERROR: u32 = 0x8;
    pub(crate) const NEEDS_CHECK: u32 = 0x10;
    pub(crate) const FAST_BOOT: u32 = 0x20;
    pub(crate) const RECOVERY_SUMS: u32 = 0x40;
    pub(crate) const NODE_BITS: u32 = 0x80;
    pub(crate) const TRIMMED: u32 = 0x100;
    pub(crate) const NO_RECOVERY_SUMS: u32 = 0x200;
    /// Bits that say nothing that this crate would have to know.
    pub(crate) const KNOWN: u32 = UNMOUNTED
        | ORPHANS
        | COMPACT
        | ERROR
        | NEEDS_CHECK
        | FAST_BOOT
        | RECOVERY_SUMS
        | NODE_BITS
        | TRIMMED
        | NO_RECOVERY_SUMS;
}

/// Logs of each kind that the header has room for, of which three are used.
const ROOM: usize = 8;
/// Logs of each kind.
const LOGS: usize = 3;

#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(super) struct Header {
    pub(super) version: U64,
    pub(super) user_blocks: U64,
    pub(super) valid_blocks: U64,
    pub(super) reserved_segments: U32,
    pub(super) overprovision_segments: U32,
    pub(super) free_segments: U32,
    node_segments: [U32; ROOM],
    node_blocks: [U16; ROOM],
    data_segments: [U32; ROOM],
    data_blocks: [U16; ROOM],
    flags: U32,
    pub(super) pack_blocks: U32,
    pub(super) summaries_start: U32,
    pub(super) valid_nodes: U32,
    pub(super) valid_inodes: U32,
    pub(super) next_free_node: U32,
    segment_version_bytes: U32,
    node_version_bytes: U32,
    checksum_offset: U32,
    pub(super) elapsed: U64,
    /// By the kinds of logs; 1 for one that reuses a segment.
    reuses: [u8; 16],
}

const _: () = assert!(size_of::<Header>() == 192);

impl Header {
    /// Reads the first or the last block of a pack.
    pub(super) fn read(block: &[u8], place: u32) -> Result<Self, FormatError> {
        let at = Place::Block(place.into());
        let corrupt = |what| FormatError::corrupt(Structure::Checkpoint, at, what);
        let (header, _) = Self::read_from_prefix(block).map_err(|_| corrupt("too short"))?;
        if header.flags.get() & !flags::KNOWN != 0 {
            return Err(FormatError::Unsupported {
                what: "a checkpoint with quotas, a larger node bitmap, or that was resized or disabled: check it \
                       with fsck.f2fs, and make it without -i",
            });
        }
        if block.len() != BLOCK_BYTES || header.checksum_offset != SUM_OFFSET as u32 {
            return Err(corrupt("the place of its checksum"));
        }
        if crc32(MAGIC, &[&block[..SUM_OFFSET]]).to_le_bytes() != block[SUM_OFFSET..] {
            return Err(FormatError::Checksum { structure: Structure::Checkpoint, place: at });
        }
        if !(3..=SEGMENT_BLOCKS).contains(&header.pack_blocks.get()) {
            return Err(corrupt("number of its blocks"));
        }
        Ok(header)
    }

    /// That what it says is possible.
    pub(super) fn check(&self, layout: &Layout) -> Result<(), &'static str> {
        let main = layout.main_segments();
        let (start, blocks) = (self.summaries_start.get(), self.pack_blocks.get());
        if start <= layout.payload_blocks() || start >= blocks {
            return Err("where its summaries start");
        }
        let logs = self.logs();
        if logs.iter().any(|log| log.segment >= main || log.next_block > SEGMENT_BLOCKS) {
            return Err("an open log outside the main area");
        }
        let mut segments = logs.map(|log| log.segment);
        segments.sort_unstable();
        if segments.windows(2).any(|two| two[0] == two[1]) {
            return Err("two open logs in one segment");
        }
        let room = u64::from(main) * u64::from(SEGMENT_BLOCKS);
        if self.user_blocks.get() > room || self.valid_blocks.get() > self.user_blocks.get() {
            return Err("number of blocks");
        }
        let (nodes, inodes) = (self.valid_nodes.get(), self.valid_inodes.get());
        if inodes > nodes || u64::from(nodes) > self.valid_blocks.get() || nodes > layout.nodes() {
            return Err("number of nodes");
        }
        if [self.free_segments, self.reserved_segments, self.overprovision_segments]
            .iter()
            .any(|count| *count > main)
        {
            return Err("number of segments");
        }
        let bytes = (self.segment_version_bytes.get(), self.node_version_bytes.get());
        if bytes != (layout.segment_table_capacity() / 8, layout.node_table_blocks() / 8) {
            return Err("size of the version bitmaps");
        }
        Ok(())
    }

    pub(super) fn has(&self, flag: u32) -> bool {
        self.flags.get() & flag != 0
    }

    /// The six open logs.
    pub(super) fn logs(&self) -> [OpenLog; 6] {
        LogKind::ALL.map(|kind| {
            let nth = kind.index() % LOGS;
            let (segment, block) = match kind.is_node() {
                true => (self.node_segments[nth], self.node_blocks[nth]),
                false => (self.data_segments[nth], self.data_blocks[nth]),
            };
            let reuses = self.reuses[kind.index()] == 1;
            OpenLog { segment: segment.get(), next_block: block.get().into(), reuses }
        })
    }

    /// The version bitmaps of the segment table and of the node table.
    pub(super) fn versions(
        &self,
        first: &[u8],
        blocks: &[&[u8]],
        layout: &Layout,
    ) -> Result<(Vec<u8>, Vec<u8>), &'static str> {
        let segments = self.segment_version_bytes.get() as usize;
        let nodes = self.node_version_bytes.get() as usize;
        let short = "the version bitmaps do not fit";
        let room = first.get(size_of::<Self>()..SUM_OFFSET).ok_or(short)?;
        if layout.payload_blocks() == 0 {
            let both = room.get(..segments + nodes).ok_or(short)?;
            return Ok((both[..segments].to_vec(), both[segments..].to_vec()));
        }
        let payload = blocks.get(1..=layout.payload_blocks() as usize).ok_or(short)?.concat();
        let segment_versions = payload.get(..segments).ok_or(short)?.to_vec();
        Ok((segment_versions, room.get(..nodes).ok_or(short)?.to_vec()))
    }

    /// The header of a checkpoint that is written.
    pub(super) fn of_checkpoint(checkpoint: &Checkpoint, pack_blocks: u32, summaries_start: u32) -> Self {
        let mut header = Self::new_zeroed();
        header.version = checkpoint.version.into();
        header.user_blocks = checkpoint.user_blocks.into();
        header.valid_blocks = checkpoint.valid_blocks.into();
        header.reserved_segments = checkpoint.reserved_segments.into();
        header.overprovision_segments = checkpoint.overprovision_segments.into();
        header.free_segments = checkpoint.free_segments.into();
        // What no log uses is marked as other programs mark it.
        (header.node_segments, header.data_segments) = ([u32::MAX.into(); ROOM], [u32::MAX.into(); ROOM]);
        for (kind, log) in LogKind::ALL.into_iter().zip(checkpoint.logs) {
            let nth = kind.index() % LOGS;
            let (segments, blocks) = match kind.is_node() {
                true => (&mut header.node_segments, &mut header.node_blocks),
                false => (&mut header.data_segments, &mut header.data_blocks),
            };
            (segments[nth], blocks[nth]) = (log.segment.into(), (log.next_block as u16).into());
            header.reuses[kind.index()] = u8::from(log.reuses);
        }
        let marks = [
            (checkpoint.unmounted, flags::UNMOUNTED),
            (!checkpoint.orphans.is_empty(), flags::ORPHANS),
            (checkpoint.needs_check, flags::NEEDS_CHECK),
            (checkpoint.trimmed, flags::TRIMMED),
            (true, flags::RECOVERY_SUMS),
        ];
        header.flags = marks.iter().fold(0, |all, (set, bit)| if *set { all | bit } else { all }).into();
        header.pack_blocks = pack_blocks.into();
        header.summaries_start = summaries_start.into();
        header.valid_nodes = checkpoint.valid_nodes.into();
        header.valid_inodes = checkpoint.valid_inodes.into();
        header.next_free_node = checkpoint.next_free_node.0.into();
        header.segment_version_bytes = (checkpoint.segment_versions.len() as u32).into();
        header.node_version_bytes = (checkpoint.node_versions.len() as u32).into();
        header.checksum_offset = (SUM_OFFSET as u32).into();
        header.elapsed = checkpoint.elapsed.into();
        header
    }
}
