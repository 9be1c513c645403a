//! The log's own blocks: descriptor, revoke and commit.
//!
//! All begin with twelve bytes: magic number, type, transaction. With checksums, descriptor and revoke
//! blocks end with four bytes of CRC-32C over the block, and a commit block has them at byte 16; the seed is
//! the CRC of the journal's UUID.

use weir_format::BLOCK_BYTES;

use super::MAGIC;
use super::ring::Sequence;
use crate::checksum::{crc_of_sealed, crc32c};

const HEADER_BYTES: usize = 12;
const CHECKSUM_BYTES: usize = 4;
const UUID_BYTES: usize = 16;
/// The bytes of a revoke block that are used, header included.
const REVOKE_USED: usize = 12;
const REVOKE_FIRST: usize = 16;
const COMMIT_CHECKSUM: usize = 16;
const COMMIT_SECONDS: usize = 48;
const COMMIT_NANOSECONDS: usize = 56;

const ESCAPED: u32 = 1;
const SAME_UUID: u32 = 2;
const LAST: u32 = 8;

/// What a block of the log is, by its header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockType {
    /// Says where the copies that follow it belong.
    Descriptor = 1,
    /// Ends a transaction.
    Commit = 2,
    /// Lists blocks whose copies, in this transaction and before it, must not be replayed.
    Revoke = 5,
    /// Holds changed bytes of blocks, and may end a transaction ([`encode_coalition`](super::encode_coalition)).
    Coalition = 9,
    /// Holds checksums of data in place ([`encode_data_checksums`](super::encode_data_checksums)).
    DataChecksums = 10,
}

impl BlockType {
    /// The type and the transaction of a block, if it has the header of one of the log's own blocks.
    #[must_use]
    pub fn from_block(block: &[u8; BLOCK_BYTES]) -> Option<(Self, Sequence)> {
        if block[..4] != MAGIC {
            return None;
        }
        let block_type = match u32_at(block, 4) {
            1 => Self::Descriptor,
            2 => Self::Commit,
            5 => Self::Revoke,
            9 => Self::Coalition,
            10 => Self::DataChecksums,
            _ => return None,
        };
        Some((block_type, Sequence(u32_at(block, 8))))
    }
}

/// What a descriptor block says of one copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tag {
    /// The block of the filesystem to which the copy belongs.
    pub(super) home: u64,
    /// The block begins with the journal's magic number, which the copy has as zero.
    pub(super) escaped: bool,
    /// CRC-32C of the transaction's number and the copy; 0 without checksums.
    pub(super) checksum: u32,
}

/// A block's contents, and whether its checksum is right. Recovery needs the contents either way: a torn
/// transaction is found to be torn by having no commit block behind them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TornOr<T> {
    /// Whether the checksum is right.
    pub(super) whole: bool,
    /// What the bytes say.
    pub(super) value: T,
}

/// How the blocks of a log are encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogFormat {
    /// The journal's identity, which the first tag of a descriptor block repeats.
    pub uuid: [u8; 16],
    /// Addresses have 64 bits.
    pub wide: bool,
    /// Version 3 checksums, and their seed. They are always there with asynchronous commits.
    pub checksum_seed: Option<u32>,
    /// How transactions stand in it.
    pub features: LogFeatures,
}

/// How transactions stand in the log, where a journal differs from jbd2's default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogFeatures {
    /// As coalition blocks. A feature of ours.
    pub coalition: bool,
    /// A commit block may be there without what it commits: it was written without waiting for that, and checksums tell. A
    /// feature of ours: what jbd2 calls `ASYNC_COMMIT` is the same with checksums that do not tell everything.
    pub async_commit: bool,
    /// The next transaction does not wait for it either, and data in place may be missing, too: its checksums are in the log.
    /// Only with `async_commit`. A feature of ours.
    pub data_checksums: bool,
}

impl LogFeatures {
    /// Whether no other program can replay the log.
    #[must_use]
    pub fn has_weir_features(self) -> bool {
        self.coalition || self.async_commit || self.data_checksums
    }
}

impl LogFormat {
    fn tail_bytes(&self) -> usize {
        if self.checksum_seed.is_some() { CHECKSUM_BYTES } else { 0 }
    }

    fn tag_bytes(&self) -> usize {
        match (self.checksum_seed, self.wide) {
            (Some(_), _) => 16,
            (None, true) => 12,
            (None, false) => 8,
        }
    }

    fn address_bytes(&self) -> usize {
        if self.wide { 8 } else { 4 }
    }

    /// How many copies one descriptor block describes: 254 with checksums.
    pub fn tags_per_descriptor(&self) -> usize {
        (BLOCK_BYTES - HEADER_BYTES - UUID_BYTES - self.tail_bytes()) / self.tag_bytes()
    }

    /// How many blocks one revoke block lists: 509 with 64-bit addresses and checksums.
    pub fn revokes_per_block(&self) -> usize {
        (BLOCK_BYTES - REVOKE_FIRST - self.tail_bytes()) / self.address_bytes()
    }

    /// How many blocks of the log a transaction takes, its commit block included; as coalition blocks, at most.
    pub fn transaction_blocks(&self, copies: usize, revokes: usize) -> usize {
        if self.features.coalition {
            return self.coalition_blocks(copies, revokes);
        }
        let descriptors = copies.div_ceil(self.tags_per_descriptor());
        revokes.div_ceil(self.revokes_per_block()) + descriptors + copies + 1
    }

    /// Whether a tag or revoke entry can hold this address.
    pub(super) fn can_address(&self, block: u64) -> bool {
        self.wide || u32::try_from(block).is_ok()
    }

    /// The checksum of a copy as it is in the log, which is escaped if need be.
    pub(super) fn copy_checksum(&self, sequence: Sequence, copy: &[u8]) -> u32 {
        self.checksum_seed.map_or(0, |seed| self.content_checksum(seed, &[&sequence.0.to_be_bytes(), copy]))
    }

    /// The checksum of what the filesystem has in a block. With asynchronous commits an older block may be in its place, of
    /// the same kind, and that must not have the same checksum.
    pub(super) fn content_checksum(&self, seed: u32, parts: &[&[u8]]) -> u32 {
        if self.features.async_commit { crc_of_sealed(seed, parts) } else { crc32c(seed, parts) }
    }

    /// Encodes a descriptor block; `tags` are at most [`tags_per_descriptor`](Self::tags_per_descriptor).
    pub(super) fn encode_descriptor(&self, sequence: Sequence, tags: &[Tag], block: &mut [u8; BLOCK_BYTES]) {
        header(BlockType::Descriptor, sequence, block);
        let mut at = HEADER_BYTES;
        for (index, tag) in tags.iter().enumerate() {
            let same_uuid = if index == 0 { 0 } else { SAME_UUID };
            let last = if index + 1 == tags.len() { LAST } else { 0 };
            let flags = same_uuid | last | if tag.escaped { ESCAPED } else { 0 };
            self.put_tag(tag, flags, &mut block[at..at + self.tag_bytes()]);
            at += self.tag_bytes();
            if index == 0 {
                block[at..at + UUID_BYTES].copy_from_slice(&self.uuid);
                at += UUID_BYTES;
            }
        }
        self.seal_tail(block);
    }

    fn put_tag(&self, tag: &Tag, flags: u32, bytes: &mut [u8]) {
        let (low, high) = (tag.home as u32, (tag.home >> 32) as u32);
        put(bytes, 0, low);
        if self.checksum_seed.is_some() {
            put(bytes, 4, flags);
            put(bytes, 8, high);
            put(bytes, 12, tag.checksum);
        } else {
            // Two bytes of checksum that only version 2 used, and two of flags.
            put(bytes, 4, flags);
            if self.wide {
                put(bytes, 8, high);
            }
        }
    }

    /// What a descriptor block says, up to its last tag or its end.
    pub(super) fn decode_descriptor(&self, block: &[u8; BLOCK_BYTES]) -> TornOr<Vec<Tag>> {
        let end = BLOCK_BYTES - self.tail_bytes();
        let mut tags = Vec::new();
        let mut at = HEADER_BYTES;
        while at + self.tag_bytes() <= end {
            let (tag, flags) = self.get_tag(&block[at..at + self.tag_bytes()]);
            tags.push(tag);
            at += self.tag_bytes() + if flags & SAME_UUID == 0 { UUID_BYTES } else { 0 };
            if flags & LAST != 0 {
                break;
            }
        }
        TornOr { whole: self.tail_is_right(block), value: tags }
    }

    fn get_tag(&self, bytes: &[u8]) -> (Tag, u32) {
        let flags = match self.checksum_seed {
            Some(_) => u32_at(bytes, 4),
            None => u32_at(bytes, 4) & 0xFFFF,
        };
        let high = if self.wide { u32_at(bytes, 8) } else { 0 };
        let checksum = if self.checksum_seed.is_some() { u32_at(bytes, 12) } else { 0 };
        let home = u64::from(high) << 32 | u64::from(u32_at(bytes, 0));
        (Tag { home, escaped: flags & ESCAPED != 0, checksum }, flags)
    }

    /// Encodes a revoke block; `homes` are at most [`revokes_per_block`](Self::revokes_per_block).
    pub(super) fn encode_revoke(&self, sequence: Sequence, homes: &[u64], block: &mut [u8; BLOCK_BYTES]) {
        header(BlockType::Revoke, sequence, block);
        let width = self.address_bytes();
        put(block, REVOKE_USED, (REVOKE_FIRST + width * homes.len()) as u32);
        for (slot, home) in block[REVOKE_FIRST..].chunks_exact_mut(width).zip(homes) {
            slot.copy_from_slice(&home.to_be_bytes()[8 - width..]);
        }
        self.seal_tail(block);
    }

    /// The blocks that a revoke block lists; `None` if its length cannot be.
    pub(super) fn decode_revoke(&self, block: &[u8; BLOCK_BYTES]) -> Option<TornOr<Vec<u64>>> {
        let width = self.address_bytes();
        let used = u32_at(block, REVOKE_USED) as usize;
        let list = block[..BLOCK_BYTES - self.tail_bytes()].get(REVOKE_FIRST..used)?;
        let address = |bytes: &[u8]| bytes.iter().fold(0, |high, &byte| high << 8 | u64::from(byte));
        let value = list.chunks_exact(width).map(address).collect();
        Some(TornOr { whole: self.tail_is_right(block), value })
    }

    /// Encodes a commit block with the time of the commit since 1970.
    pub(super) fn encode_commit_block(
        &self,
        sequence: Sequence,
        seconds: u64,
        nanoseconds: u32,
        block: &mut [u8; BLOCK_BYTES],
    ) {
        header(BlockType::Commit, sequence, block);
        block[COMMIT_SECONDS..COMMIT_SECONDS + 8].copy_from_slice(&seconds.to_be_bytes());
        put(block, COMMIT_NANOSECONDS, nanoseconds);
        if let Some(sum) = self.checksum_without(block, COMMIT_CHECKSUM) {
            put(block, COMMIT_CHECKSUM, sum);
        }
    }

    /// Whether a commit block is whole.
    pub(super) fn commit_is_whole(&self, block: &[u8; BLOCK_BYTES]) -> bool {
        let stored = u32_at(block, COMMIT_CHECKSUM);
        self.checksum_without(block, COMMIT_CHECKSUM).is_none_or(|sum| sum == stored)
    }

    fn seal_tail(&self, block: &mut [u8; BLOCK_BYTES]) {
        let at = BLOCK_BYTES - CHECKSUM_BYTES;
        if let Some(sum) = self.checksum_without(block, at) {
            put(block, at, sum);
        }
    }

    fn tail_is_right(&self, block: &[u8; BLOCK_BYTES]) -> bool {
        let at = BLOCK_BYTES - CHECKSUM_BYTES;
        self.checksum_without(block, at).is_none_or(|sum| sum == u32_at(block, at))
    }

    /// The checksum of a block, with the four bytes at `at` taken as zero.
    fn checksum_without(&self, block: &[u8; BLOCK_BYTES], at: usize) -> Option<u32> {
        let seed = self.checksum_seed?;
        Some(crc32c(seed, &[&block[..at], &[0; CHECKSUM_BYTES], &block[at + CHECKSUM_BYTES..]]))
    }
}

fn header(block_type: BlockType, sequence: Sequence, block: &mut [u8; BLOCK_BYTES]) {
    block.fill(0);
    block_head(block, block_type, sequence);
}

/// The twelve bytes that all blocks of the log's own begin with.
pub(super) fn block_head(block: &mut [u8; BLOCK_BYTES], block_type: BlockType, sequence: Sequence) {
    block[..4].copy_from_slice(&MAGIC);
    put(block, 4, block_type as u32);
    put(block, 8, sequence.0);
}

pub(super) fn put(bytes: &mut [u8], at: usize, value: u32) {
    bytes[at..at + 4].copy_from_slice(&value.to_be_bytes());
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}
