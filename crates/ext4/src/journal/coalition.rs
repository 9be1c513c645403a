//! The coalition block: what a transaction changes, packed into as few blocks of the log as that needs (*journal
//! coalition*, section IV.A of the paper on eMMC). Where jbd2 logs every changed block whole behind a descriptor, this
//! holds only the changed bytes, with their places. It replaces descriptor and revoke blocks.
//!
//! ```text
//! bytes 0..12      header: magic number, type 9, transaction
//! bytes 12..14     bytes in use, this head included
//! bytes 14..16     flags: 1 if the block commits its transaction
//! bytes 16..       records, one behind the other
//! last 4 bytes     CRC-32C over the block, seeded with the journal's UUID
//! ```
//!
//! | record | bytes |
//! |---|---|
//! | change: these bytes of a block become those | 1, home (8), offset (2), length (2), then the bytes |
//! | copy: a block is logged whole, in the next place of the log | 2, home (8), escaped (1), CRC-32C (4) |
//! | revoke: what the log holds of a block until here is not replayed | 3, home (8) |
//!
//! The copies of a coalition block follow it in the order of its records. A transaction that has any ends with a commit
//! block, as jbd2's does. One without is committed by its last coalition block, which is descriptor, log block and commit
//! block in one: since it has a checksum of its own, a torn one commits nothing.

use std::ops::Range;

use weir_format::{BLOCK_BYTES, FormatError};

use super::block::{BlockType, LogFormat, TornOr, block_head, put};
use super::encode::{LogBlock, escape};
use super::ring::Sequence;
use crate::checksum::crc32c;

const USED: usize = 12;
const FLAGS: usize = 14;
const HEAD_BYTES: usize = 16;
const CHECKSUM_AT: usize = BLOCK_BYTES - 4;
const COMMITS: u8 = 1;

const CHANGE: u8 = 1;
const COPY: u8 = 2;
const REVOKE: u8 = 3;
/// The bytes of a change's record before the bytes that it changes.
const CHANGE_HEAD: usize = 13;
const COPY_BYTES: usize = 14;
const REVOKE_BYTES: usize = 9;
/// A change is split between two blocks only if the first has room for so many bytes of it.
const SPLIT_MIN: usize = 32;
/// Bytes of a coalition block that records fill at least, if more of them follow.
const FILLED_MIN: usize = CHECKSUM_AT - HEAD_BYTES - CHANGE_HEAD - SPLIT_MIN;
/// Bytes that the records of a block's changes take at most. So a transaction never takes more blocks than its copies would.
const CHANGES_MAX: usize = BLOCK_BYTES / 4 * 3;

/// A block of which a transaction has changed some bytes.
#[derive(Clone, Debug)]
pub struct Changes<'a> {
    /// Its place in the filesystem.
    pub home: u64,
    /// All of its bytes as the transaction leaves them.
    pub bytes: &'a [u8],
    /// Which of them have changed, in order.
    pub ranges: Vec<Range<u16>>,
}

impl<'a> Changes<'a> {
    /// The changes of a block, if it pays to log these and not the block; changes that are close are one.
    pub fn of(home: u64, bytes: &'a [u8], ranges: &[Range<u16>]) -> Option<Self> {
        let mut joined: Vec<Range<u16>> = Vec::with_capacity(ranges.len());
        for range in ranges {
            match joined.last_mut() {
                Some(last) if usize::from(range.start.saturating_sub(last.end)) <= CHANGE_HEAD => {
                    last.end = last.end.max(range.end);
                }
                _ => joined.push(range.clone()),
            }
        }
        let record = |range: &Range<u16>| CHANGE_HEAD + usize::from(range.end.saturating_sub(range.start));
        let pays = joined.iter().map(record).sum::<usize>() <= CHANGES_MAX;
        pays.then_some(Self { home, bytes, ranges: joined })
    }
}

/// A transaction as coalition blocks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Coalition {
    /// Its blocks in the order of the log.
    pub blocks: Vec<LogBlock>,
    /// Whether the last of them commits it; otherwise a commit block has to follow.
    pub commits: bool,
}

/// What a record of a coalition block says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Record {
    /// `bytes` bytes at `at` of the coalition block belong to `home`, from `offset` on.
    Change { home: u64, offset: u16, at: u16, bytes: u16 },
    /// The next place of the log that no other record has taken holds a copy of `home`.
    Copy { home: u64, escaped: bool, checksum: u32 },
    /// Copies and changes of `home` up to this transaction are not replayed.
    Revoke { home: u64 },
}

/// What a coalition block says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Records {
    pub(super) commits: bool,
    pub(super) records: Vec<Record>,
}

/// Encodes a transaction as coalition blocks: `revokes`, changes of blocks, and copies of blocks, which are pairs of a home
/// and its bytes, escaped in place as [`encode_transaction`](super::encode_transaction) does. Every block is in one of the
/// three at most.
///
/// # Errors
///
/// [`FormatError::Invalid`] for a block that is not 4,096 bytes long, or a change beyond its end.
pub fn encode_coalition<B: AsRef<[u8]> + AsMut<[u8]>>(
    format: &LogFormat,
    sequence: Sequence,
    revokes: &[u64],
    changes: &[Changes<'_>],
    copies: &mut [(u64, B)],
) -> Result<Coalition, FormatError> {
    if copies.iter().any(|(_, bytes)| bytes.as_ref().len() != BLOCK_BYTES) {
        return Err(FormatError::Invalid { what: "a journaled block has 4,096 bytes" });
    }
    let mut packer = Packer::new(format, sequence);
    revokes.iter().for_each(|home| packer.revoke(*home));
    for block in changes {
        for range in &block.ranges {
            let bytes = block.bytes.get(usize::from(range.start)..usize::from(range.end));
            packer.change(block.home, range.start, bytes.ok_or(FormatError::Invalid { what: "a change" })?);
        }
    }
    for (index, (home, copy)) in copies.iter_mut().enumerate() {
        let escaped = escape(copy);
        packer.copy(*home, escaped, format.coalition_checksum(sequence, copy.as_ref()), index);
    }
    Ok(packer.finish())
}

impl LogFormat {
    /// How many blocks of the log a transaction takes at most as coalition blocks, its commit block included.
    pub(super) fn coalition_blocks(&self, changed: usize, revokes: usize) -> usize {
        changed + (changed * COPY_BYTES + revokes * REVOKE_BYTES).div_ceil(FILLED_MIN) + 1
    }

    /// Coalition blocks have checksums, whether the journal's other blocks do or not.
    fn coalition_seed(&self) -> u32 {
        self.checksum_seed.unwrap_or_else(|| crc32c(!0, &[&self.uuid]))
    }

    /// The checksum of a copy that a coalition block lists, as it is in the log.
    pub(super) fn coalition_checksum(&self, sequence: Sequence, copy: &[u8]) -> u32 {
        self.content_checksum(self.coalition_seed(), &[&sequence.0.to_be_bytes(), copy])
    }

    /// What a coalition block says; `None` if its bytes cannot be read as one.
    pub(super) fn decode_coalition(&self, block: &[u8; BLOCK_BYTES]) -> Option<TornOr<Records>> {
        let whole =
            crc32c(self.coalition_seed(), &[&block[..CHECKSUM_AT]]).to_be_bytes() == block[CHECKSUM_AT..];
        let used = usize::from(u16_at(block, USED)?);
        let mut records = Vec::new();
        let mut at = HEAD_BYTES;
        while at < used {
            let (record, next) = record(block.get(..used.min(CHECKSUM_AT))?, at)?;
            records.push(record);
            at = next;
        }
        let commits = block[FLAGS + 1] & COMMITS != 0;
        Some(TornOr { whole, value: Records { commits, records } })
    }
}

/// The record at `at`, and where the next one is.
fn record(block: &[u8], at: usize) -> Option<(Record, usize)> {
    let home = u64::from_be_bytes(block.get(at + 1..at + 9)?.try_into().ok()?);
    match block[at] {
        CHANGE => {
            let (offset, bytes) = (u16_at(block, at + 9)?, u16_at(block, at + 11)?);
            let end = at + CHANGE_HEAD + usize::from(bytes);
            let fits =
                bytes > 0 && end <= block.len() && usize::from(offset) + usize::from(bytes) <= BLOCK_BYTES;
            let change = Record::Change { home, offset, at: u16::try_from(at + CHANGE_HEAD).ok()?, bytes };
            fits.then_some((change, end))
        }
        COPY => {
            let checksum = u32::from_be_bytes(block.get(at + 10..at + COPY_BYTES)?.try_into().ok()?);
            Some((Record::Copy { home, escaped: block[at + 9] != 0, checksum }, at + COPY_BYTES))
        }
        REVOKE => Some((Record::Revoke { home }, at + REVOKE_BYTES)),
        _ => None,
    }
}

fn u16_at(block: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(block.get(at..at + 2)?.try_into().ok()?))
}

/// Fills one coalition block after the other.
struct Packer<'a> {
    format: &'a LogFormat,
    sequence: Sequence,
    blocks: Vec<LogBlock>,
    block: Box<[u8; BLOCK_BYTES]>,
    used: usize,
    /// The copies that this block lists.
    copies: Vec<usize>,
    any_copies: bool,
}

impl<'a> Packer<'a> {
    fn new(format: &'a LogFormat, sequence: Sequence) -> Self {
        let (blocks, copies) = (Vec::new(), Vec::new());
        let block = Box::new([0; BLOCK_BYTES]);
        Packer { format, sequence, blocks, block, used: HEAD_BYTES, copies, any_copies: false }
    }

    fn revoke(&mut self, home: u64) {
        self.begin(REVOKE, home, REVOKE_BYTES);
    }

    fn copy(&mut self, home: u64, escaped: bool, checksum: u32, index: usize) {
        self.begin(COPY, home, COPY_BYTES);
        self.append(&[u8::from(escaped)]);
        self.append(&checksum.to_be_bytes());
        self.copies.push(index);
        self.any_copies = true;
    }

    fn change(&mut self, home: u64, mut offset: u16, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let room = self.begin(CHANGE, home, CHANGE_HEAD + bytes.len().min(SPLIT_MIN)) - CHANGE_HEAD;
            let (now, later) = bytes.split_at(bytes.len().min(room));
            self.append(&offset.to_be_bytes());
            self.append(&(now.len() as u16).to_be_bytes());
            self.append(now);
            offset += now.len() as u16;
            bytes = later;
        }
    }

    /// A record's kind and home, in a block with room for `bytes` bytes of the record; the room that there is.
    fn begin(&mut self, kind: u8, home: u64, bytes: usize) -> usize {
        if CHECKSUM_AT - self.used < bytes {
            self.seal(false);
        }
        let room = CHECKSUM_AT - self.used;
        self.append(&[kind]);
        self.append(&home.to_be_bytes());
        room
    }

    fn append(&mut self, bytes: &[u8]) {
        self.block[self.used..self.used + bytes.len()].copy_from_slice(bytes);
        self.used += bytes.len();
    }

    /// Ends a block; its copies follow it.
    fn seal(&mut self, commits: bool) {
        let mut block = std::mem::replace(&mut self.block, Box::new([0; BLOCK_BYTES]));
        block_head(&mut block, BlockType::Coalition, self.sequence);
        block[USED..FLAGS].copy_from_slice(&(self.used as u16).to_be_bytes());
        block[FLAGS + 1] = if commits { COMMITS } else { 0 };
        let sum = crc32c(self.format.coalition_seed(), &[&block[..CHECKSUM_AT]]);
        put(&mut block[..], CHECKSUM_AT, sum);
        self.blocks.push(LogBlock::Own(block));
        self.blocks.extend(self.copies.drain(..).map(LogBlock::Copy));
        self.used = HEAD_BYTES;
    }

    fn finish(mut self) -> Coalition {
        let commits = !self.any_copies;
        if commits || self.used > HEAD_BYTES {
            self.seal(commits);
        }
        Coalition { blocks: self.blocks, commits }
    }
}
