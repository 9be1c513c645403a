//! Every structure on the medium, bit for bit; docs/format/volume.md says the same in words.
//!
//! Integers are little-endian. Each structure carries a CRC-32C of its whole block (the checkpoint: of
//! all its blocks) with the checksum field zero; the content of users' blocks has a checksum of its own kind. Sizes and offsets are asserted at compile time.

use std::mem::offset_of;

use weir_storage::{BLOCK_BYTES, HOST_BYTES};
use zerocopy::little_endian::{U16, U32, U64, U128};
use zerocopy::{FromBytes, FromZeros as _, Immutable, IntoBytes, KnownLayout, Unaligned};

/// First bytes of a superblock.
pub(crate) const SUPERBLOCK_MAGIC: [u8; 8] = *b"WEIR-VOL";
/// First bytes of a checkpoint.
pub(crate) const CHECKPOINT_MAGIC: [u8; 8] = *b"WEIR-CKP";
/// First bytes of a claim.
pub(crate) const CLAIM_MAGIC: [u8; 8] = *b"WEIR-CLM";
/// First bytes of a challenge.
pub(crate) const CHALLENGE_MAGIC: [u8; 8] = *b"WEIR-CHL";
/// First bytes of a table of snapshots and clones.
pub(crate) const TABLE_MAGIC: [u8; 8] = *b"WEIR-SNP";
/// First bytes of a stream of a snapshot.
pub(crate) const STREAM_MAGIC: [u8; 8] = *b"WEIR-SND";
/// First bytes of a chunk header.
pub(crate) const CHUNK_MAGIC: [u8; 4] = *b"WCHK";
/// The version of the format that this crate writes and reads.
pub(crate) const FORMAT_VERSION: u32 = 2;
/// Feature: records may be shares, and map entries may have the shared flag.
pub(crate) const FEATURE_SHARES: u64 = 1;
/// Feature: a claim and a challenge lie before the segments.
pub(crate) const FEATURE_CLAIMS: u64 = 2;
/// Feature: behind the volume's logical blocks are slots for snapshots and clones, and the table of these.
pub(crate) const FEATURE_SNAPSHOTS: u64 = 8;
/// Feature: the volume was resized; checkpoint slots and map areas lie where the superblock says.
pub(crate) const FEATURE_RESIZED: u64 = 16;
/// Feature: the volume begins with the state of a base, and does not hold it.
pub(crate) const FEATURE_BASE: u64 = 32;
/// Feature: chunks may hold records that count only with a mark behind them.
pub(crate) const FEATURE_MARKS: u64 = 64;
/// No counter comes this far: at a billion requests a second it takes a century.
pub(crate) const COUNTERS_END: u64 = 1 << 62;
/// Flag of a chunk: its records count only with a mark behind them (V13).
pub(crate) const CHUNK_MARKED: u16 = 1;
/// Blocks of claim and challenge.
pub(crate) const CLAIM_BLOCKS: u64 = 2;
/// Blocks at the start that hold the two copies of the superblock.
pub(crate) const SUPERBLOCK_COPIES: u64 = 2;
/// Map entries in one map page.
pub(crate) const ENTRIES_PER_PAGE: usize = 510;
/// Record entries in one chunk header at most.
pub(crate) const ENTRIES_PER_CHUNK: usize =
    (BLOCK_BYTES - size_of::<ChunkHeader>()) / size_of::<RecordEntry>();

/// The superblock: only an upgrade and a resize change it. Two copies, in blocks 0 and 1.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(crate) struct Superblock {
    pub magic: [u8; 8],
    pub version: U32,
    pub checksum: U32,
    /// Names the volume; chunks and checkpoints of any other volume are not ours.
    pub volume: U64,
    pub logical_blocks: U64,
    pub physical_blocks: U64,
    pub segment_blocks: U32,
    pub segments: U32,
    pub checkpoint_start: U64,
    pub checkpoint_blocks: U32,
    pub map_pages: U32,
    pub map_start: U64,
    pub segments_start: U64,
    /// Features that a reader must know: [`FEATURE_SHARES`], [`FEATURE_CLAIMS`], [`FEATURE_SNAPSHOTS`],
    /// [`FEATURE_RESIZED`], [`FEATURE_BASE`], [`FEATURE_MARKS`].
    pub features: U64,
    /// With [`FEATURE_SNAPSHOTS`]: slots for snapshots and clones.
    pub slots: U32,
    /// With [`FEATURE_BASE`]: the fields of a [`Base`](crate::Base).
    pub base_sequence: U64,
    pub base_generation: U64,
    pub base_epoch: U64,
    pub base_token: U64,
}

/// The table of snapshots and clones: a logical block, so that it changes as a record of the log.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(crate) struct TableBlock {
    pub magic: [u8; 8],
    pub volume: U64,
    pub checksum: U32,
    /// Entries that are in use.
    pub branches: U32,
    /// The slot of the snapshot that the volume is being rolled back to; 0 if it is not.
    pub rolled_back_to: U32,
    pub reserved: U32,
    pub entries: [TableEntry; 32],
}

/// A snapshot or a clone.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(crate) struct TableEntry {
    /// From 1 on.
    pub slot: U32,
    /// Of a clone: the slot of its snapshot.
    pub parent: U32,
    /// 1 snapshot, 2 clone.
    pub kind: u8,
    /// 1 while it is being deleted.
    pub is_leaving: u8,
    pub reserved: [u8; 6],
    /// Sequence number of the newest record that it holds.
    pub sequence: U64,
    /// Nanoseconds since 1970.
    pub made: U64,
    /// Drawn at random; of a snapshot that was received, that of the one that was sent.
    pub identity: U64,
    /// Zeros behind it.
    pub name: [u8; 64],
}

impl Default for TableEntry {
    fn default() -> TableEntry {
        TableEntry::new_zeroed()
    }
}

const _: () = assert!(size_of::<TableEntry>() == 104 && size_of::<TableBlock>() == 32 + 32 * 104);

/// The beginning of a stream of a snapshot. Its checksum covers itself.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(crate) struct StreamHeader {
    pub magic: [u8; 8],
    pub version: U32,
    pub checksum: U32,
    pub logical_blocks: U64,
    /// When the snapshot was made.
    pub made: U64,
    /// Of the snapshot.
    pub identity: U64,
    /// Of the snapshot that it builds on.
    pub base_identity: U64,
    pub name: [u8; 64],
    /// The snapshot that it builds on; zeros if it is whole.
    pub base: [u8; 64],
}

/// A record of a stream, before its data. Its checksum covers both.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(crate) struct StreamRecord {
    pub checksum: U32,
    /// 1 data, 2 blocks that read zeros, 3 the end.
    pub kind: U32,
    /// From 0 on, without a gap.
    pub number: U64,
    /// The first logical block.
    pub first: U64,
    /// How many; 256 at most.
    pub blocks: U32,
    /// The checksum of the header of its stream.
    pub stream: U32,
}

const _: () = assert!(size_of::<StreamHeader>() == 176 && size_of::<StreamRecord>() == 32);

/// Who has the volume open; in one sector, so that a write of it is never torn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(crate) struct ClaimBlock {
    pub magic: [u8; 8],
    pub volume: U64,
    pub checksum: U32,
    /// 1 while the volume is open, 0 once it was closed.
    pub held: U32,
    /// Drawn at random by the program that opened the volume.
    pub claim: U64,
    /// The last challenge that the owner has answered.
    pub answered: U64,
    /// The fields of an [`Opener`](weir_storage::Opener).
    pub boot: U128,
    pub device: U64,
    pub inode: U64,
    pub namespace: U64,
    pub began: U64,
    pub process: U32,
    pub reserved: U32,
    pub host: [u8; HOST_BYTES],
}

/// What a process writes that wants to open the volume.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(crate) struct ChallengeBlock {
    pub magic: [u8; 8],
    pub volume: U64,
    pub checksum: U32,
    pub reserved: U32,
    /// Drawn at random by that process; never 0.
    pub challenge: U64,
}

/// The head of a checkpoint; the free-segment list (`U32` a segment) and the page states (two bits a page) follow.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(crate) struct CheckpointHeader {
    pub magic: [u8; 8],
    pub volume: U64,
    /// Counts checkpoints; the valid slot with the greater number is the newest.
    pub number: U64,
    /// The log generation that follows (V1).
    pub generation: U64,
    /// Sequence number of the first request behind this checkpoint.
    pub next_sequence: U64,
    /// Sum over all written map pages of a mix of page number and checksum: a stale page shows.
    pub map_sum: U64,
    /// First block of the log in the first segment of the free-segment list.
    pub log_offset: U32,
    /// Segments in the free-segment list.
    pub free_list: U32,
    /// V5: blocks that may lie behind a hole without being durable; recovery looks this far for V2.
    pub window_blocks: U32,
    pub checksum: U32,
}

/// The head of a chunk: one block that describes the data blocks behind it.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(crate) struct ChunkHeader {
    pub magic: [u8; 4],
    pub checksum: U32,
    pub volume: U64,
    pub generation: U64,
    /// Sequence number of the first request in the chunk.
    pub sequence: U64,
    /// V2: the last sequence number known durable when this chunk was sealed.
    pub durable: U64,
    /// Where the chunk lies, so that a copy of it elsewhere is not mistaken for it.
    pub segment: U32,
    pub offset: U32,
    pub entries: U16,
    pub data_blocks: U16,
    pub requests: U16,
    /// [`CHUNK_MARKED`].
    pub flags: U16,
    /// Number of the newest checkpoint known durable when this chunk was sealed: should that one be lost,
    /// recovery notices (V1).
    pub checkpoint: U64,
}

/// One entry of a chunk header.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(crate) struct RecordEntry {
    /// The first logical block; of a share, the target. Free-segment list: the first segment.
    pub lba: U32,
    /// Data: the content checksum of the block. Discard: how many blocks. Share: the logical block that is the source.
    /// Free-segment list: how many segments. Mark: 0.
    pub word: U32,
    /// Bits 0 to 30: [`RecordKind`]. Bit 31: the last entry of its request.
    pub info: U32,
}

/// One map entry on the medium: where a logical block is, and its checksum.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(crate) struct MapEntry {
    /// Physical block; 0 where nothing is mapped, 1 in a volume with a base where zeros are read. Bit 31, in a volume with shares: several names of it may be listed.
    pub block: U32,
    /// Content checksum of the block.
    pub checksum: U32,
}

/// A map page: 510 entries and a trailer.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(crate) struct MapPage {
    pub entries: [MapEntry; ENTRIES_PER_PAGE],
    pub volume: U64,
    pub page: U32,
    pub checksum: U32,
}

const _: () = {
    assert!(size_of::<Superblock>() == 124);
    assert!(offset_of!(Superblock, checksum) == 12);
    assert!(offset_of!(Superblock, features) == 80);
    assert!(offset_of!(Superblock, slots) == 88);
    assert!(offset_of!(Superblock, base_sequence) == 92);
    assert!(size_of::<ClaimBlock>() == 160);
    assert!(offset_of!(ClaimBlock, checksum) == 16);
    assert!(offset_of!(ClaimBlock, boot) == 40);
    assert!(offset_of!(ClaimBlock, host) == 96);
    assert!(size_of::<ChallengeBlock>() == 32);
    assert!(size_of::<CheckpointHeader>() == 64);
    assert!(offset_of!(CheckpointHeader, checksum) == 60);
    assert!(size_of::<ChunkHeader>() == 64);
    assert!(offset_of!(ChunkHeader, entries) == 48);
    assert!(size_of::<RecordEntry>() == 12);
    assert!(size_of::<MapEntry>() == 8);
    assert!(size_of::<MapPage>() == BLOCK_BYTES);
    assert!(ENTRIES_PER_CHUNK == 336);
};

/// What an entry records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RecordKind {
    /// One data block.
    Data,
    /// Blocks that read zero from here on.
    Discard,
    /// A block that reads what another one did before the record's shares.
    Share,
    /// Segments that join the end of the free-segment list (V4).
    FreeSegments,
    /// All records before it count (V13).
    Mark,
}

const LAST_OF_REQUEST: u32 = 1 << 31;

impl RecordEntry {
    pub(crate) fn new(kind: RecordKind, lba: u32, word: u32, last: bool) -> RecordEntry {
        let kind = match kind {
            RecordKind::Data => 1,
            RecordKind::Discard => 2,
            RecordKind::Share => 3,
            RecordKind::FreeSegments => 4,
            RecordKind::Mark => 5,
        };
        let info = if last { kind | LAST_OF_REQUEST } else { kind };
        RecordEntry { lba: lba.into(), word: word.into(), info: info.into() }
    }

    /// The kind, or `None` for one that this version does not know.
    pub(crate) fn kind(&self) -> Option<RecordKind> {
        match self.info.get() & !LAST_OF_REQUEST {
            1 => Some(RecordKind::Data),
            2 => Some(RecordKind::Discard),
            3 => Some(RecordKind::Share),
            4 => Some(RecordKind::FreeSegments),
            5 => Some(RecordKind::Mark),
            _ => None,
        }
    }

    pub(crate) fn is_last(&self) -> bool {
        self.info.get() & LAST_OF_REQUEST != 0
    }
}

/// The checksum of a user's block: CRC-64/NVME, its halves added by XOR.
///
/// It must not be a CRC that users' structures end with, as those of ext4 and of jbd2 end with their CRC-32C: the
/// CRC of a message with its own CRC behind it is the same for every message, so an old version of such a block
/// would pass for the new one.
#[inline]
#[must_use]
pub fn content_checksum(bytes: &[u8]) -> u32 {
    let sum = crc_fast::checksum(crc_fast::CrcAlgorithm::Crc64Nvme, bytes);
    (sum >> 32) as u32 ^ sum as u32
}

/// The CRC-32C (Castagnoli) of a structure's `bytes` with the four bytes at `field` taken as zero.
pub(crate) fn checksum_without(bytes: &[u8], field: usize) -> u32 {
    let mut digest = crc_fast::Digest::new(crc_fast::CrcAlgorithm::Crc32Iscsi);
    digest.update(&bytes[..field]);
    digest.update(&[0; 4]);
    digest.update(&bytes[field + 4..]);
    // The crate answers every CRC in 64 bits; a 32-bit one fills the lower half.
    digest.finalize() as u32
}

/// Writes the checksum of `bytes` into its own field at `field`.
pub(crate) fn stamp_checksum(bytes: &mut [u8], field: usize) {
    let value = checksum_without(bytes, field);
    bytes[field..field + 4].copy_from_slice(&value.to_le_bytes());
}

/// Whether the checksum at `field` matches the rest of `bytes`.
pub(crate) fn checksum_matches(bytes: &[u8], field: usize) -> bool {
    let stored = u32::from_le_bytes([bytes[field], bytes[field + 1], bytes[field + 2], bytes[field + 3]]);
    stored == checksum_without(bytes, field)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A block as ext4 writes them: content, and at its end the CRC-32C of it, begun with a seed and not inverted.
    fn block_of_ext4(seed: u32, content: u8) -> Vec<u8> {
        let mut block = vec![content; BLOCK_BYTES - 4];
        let mut digest = crc_fast::Digest::new(crc_fast::CrcAlgorithm::Crc32Iscsi);
        digest.update(&seed.to_le_bytes());
        digest.update(&block);
        block.extend_from_slice(&(!(digest.finalize() as u32)).to_le_bytes());
        block
    }

    #[test]
    fn blocks_that_end_with_their_own_crc_are_told_apart() {
        let (old, new) = (block_of_ext4(7, 1), block_of_ext4(7, 2));
        let crc = |block: &[u8]| crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, block);
        assert_eq!(crc(&old), crc(&new), "a CRC-32C does not: the control");
        assert_ne!(content_checksum(&old), content_checksum(&new));
    }
}
