//! Block 0 of the journal.

use weir_format::{BLOCK_BYTES, FormatError, Place, Structure};
use zerocopy::big_endian::U32 as Be32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::MAGIC;
use super::block::{LogFeatures, LogFormat};
use super::ring::{LogRing, Sequence};
use crate::checksum::crc32c;

/// The superblock's type in its header (version 2, the only one with features).
const TYPE: u32 = 4;
/// Checksums are CRC-32C.
const CRC32C: u8 = 4;
/// Blocks before the log can be smaller than this are refused: not even one transaction would fit.
const BLOCKS_MIN: u32 = 8;

/// Features that a reader may ignore: an obsolete checksum over a whole transaction.
const WHOLE_TRANSACTION_CHECKSUM: u32 = 1;
/// Features that a reader must know.
const REVOKE: u32 = 0x1;
const WIDE: u32 = 0x2;
const CHECKSUM_3: u32 = 0x10;
/// Ours: commit blocks may be there without what they commit, and log blocks have checksums of ours. jbd2 and e2fsck know no
/// such feature, and stop.
const ASYNC_COMMIT: u32 = 0x1000_0000;
/// Ours: the log holds coalition blocks. jbd2 and e2fsck know no such feature, and stop.
const COALITION: u32 = 0x2000_0000;
/// Ours: the log holds checksums of data in place. jbd2 and e2fsck know no such feature, and stop.
const DATA_CHECKSUMS: u32 = 0x4000_0000;
/// Features of a log that is not empty which Linux and e2fsck replay, and this crate does not. In an empty log they say
/// nothing, and [`JournalSuperblock::upgrade`] removes them.
const NOT_REPLAYED: [(u32, &str); 2] = [
    (
        0x4,
        "a journal with journal_async_commit that is not empty: mount it with Linux once, or run e2fsck, to replay it",
    ),
    (
        0x8,
        "a journal with checksums of version 2 that is not empty: mount it with Linux once, or run e2fsck, to replay it",
    ),
];
const NOT_REPLAYED_BITS: u32 = 0x4 | 0x8;
/// Its log is shorter than the journal: refused also where it is empty.
const FAST_COMMIT: u32 = 0x20;

#[derive(Clone, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Raw {
    magic: [u8; 4],
    block_type: Be32,
    header_sequence: Be32,
    block_bytes: Be32,
    blocks: Be32,
    first: Be32,
    sequence: Be32,
    start: Be32,
    error: Be32,
    compatible: Be32,
    incompatible: Be32,
    read_only_compatible: Be32,
    uuid: [u8; 16],
    users: Be32,
    dynamic_superblock: Be32,
    transaction_max: Be32,
    transaction_data_max: Be32,
    checksum_type: u8,
    padding: [u8; 3],
    fast_commit_blocks: Be32,
    head: Be32,
    reserved: [u8; 160],
    checksum: Be32,
    user_ids: [u8; 768],
}

const _: () = {
    assert!(size_of::<Raw>() == 1024);
    assert!(std::mem::offset_of!(Raw, uuid) == 48);
    assert!(std::mem::offset_of!(Raw, checksum_type) == 80);
    assert!(std::mem::offset_of!(Raw, checksum) == 252);
};

/// The journal's superblock: how large the log is, how it is encoded, and where recovery starts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JournalSuperblock {
    raw: Raw,
}

impl JournalSuperblock {
    /// The superblock of an empty journal of `blocks` blocks, itself included, with 64-bit addresses and,
    /// if `checksums`, version 3 checksums. `uuid` is the filesystem's.
    ///
    /// # Errors
    ///
    /// [`FormatError::Invalid`] for fewer than 8 blocks.
    pub fn new(uuid: [u8; 16], blocks: u32, checksums: bool) -> Result<Self, FormatError> {
        if blocks < BLOCKS_MIN {
            return Err(FormatError::Invalid { what: "a journal has at least 8 blocks" });
        }
        let mut raw = Raw::read_from_bytes(&[0; size_of::<Raw>()]).map_err(|_| length())?;
        raw.magic = MAGIC;
        raw.block_type = TYPE.into();
        raw.block_bytes = (BLOCK_BYTES as u32).into();
        raw.blocks = blocks.into();
        raw.first = 1.into();
        raw.sequence = 1.into();
        raw.uuid = uuid;
        raw.users = 1.into();
        raw.incompatible = (REVOKE | WIDE | if checksums { CHECKSUM_3 } else { 0 }).into();
        raw.checksum_type = if checksums { CRC32C } else { 0 };
        Ok(Self { raw })
    }

    /// Reads block 0 of a journal, of which `blocks` blocks exist.
    ///
    /// # Errors
    ///
    /// [`FormatError`]: what is damaged, or which feature is outside the subset.
    pub fn decode(bytes: &[u8], blocks: u32) -> Result<Self, FormatError> {
        let (raw, _) = Raw::read_from_prefix(bytes).map_err(|_| length())?;
        let superblock = Self { raw };
        superblock.check_features()?;
        superblock.check_checksum()?;
        superblock.check_fields(blocks)?;
        Ok(superblock)
    }

    fn check_features(&self) -> Result<(), FormatError> {
        if self.raw.magic != MAGIC {
            return Err(corrupt("magic number"));
        }
        if self.raw.block_type != TYPE {
            return Err(corrupt("type"));
        }
        let incompatible = self.raw.incompatible.get();
        if incompatible & FAST_COMMIT != 0 {
            return Err(FormatError::Feature { name: "fast_commit" });
        }
        if let Some(&(_, what)) = NOT_REPLAYED.iter().find(|(bit, _)| incompatible & bit != 0)
            && self.start().is_some()
        {
            return Err(FormatError::Unsupported { what });
        }
        if incompatible & DATA_CHECKSUMS != 0 && incompatible & ASYNC_COMMIT == 0 {
            return Err(FormatError::Feature { name: "checksums of data without asynchronous commits" });
        }
        // Unknown compatible features may be ignored: that is what the set is for.
        let unknown = [
            (
                "incompatible journal",
                incompatible
                    & !(NOT_REPLAYED_BITS
                        | REVOKE
                        | WIDE
                        | ASYNC_COMMIT
                        | CHECKSUM_3
                        | COALITION
                        | DATA_CHECKSUMS),
            ),
            ("read-only compatible journal", self.raw.read_only_compatible.get()),
        ];
        match unknown.into_iter().find(|&(_, bits)| bits != 0) {
            Some((set, bits)) => Err(FormatError::UnknownFeatures { set, bits }),
            None => Ok(()),
        }
    }

    fn check_checksum(&self) -> Result<(), FormatError> {
        if !self.has_checksums() {
            return Ok(());
        }
        if self.raw.checksum_type != CRC32C {
            return Err(corrupt("type of checksum"));
        }
        if self.raw.checksum.get() != self.computed_checksum() {
            return Err(FormatError::Checksum {
                structure: Structure::JournalSuperblock,
                place: Place::JournalBlock(0),
            });
        }
        Ok(())
    }

    fn check_fields(&self, blocks: u32) -> Result<(), FormatError> {
        if self.raw.block_bytes != BLOCK_BYTES as u32 {
            return Err(FormatError::Feature { name: "journal block size other than 4096" });
        }
        if self.raw.blocks.get() > blocks || self.raw.blocks.get() < BLOCKS_MIN {
            return Err(corrupt("number of blocks"));
        }
        if self.raw.users.get() > 1 {
            return Err(corrupt("number of filesystems that use it"));
        }
        if self.raw.first == 0 || self.raw.first >= self.raw.blocks {
            return Err(corrupt("first block of the log"));
        }
        if self.raw.start != 0 && !self.ring().contains(self.raw.start.get()) {
            return Err(corrupt("start of the log"));
        }
        Ok(())
    }

    /// Writes the superblock into block 0 of the journal, sealed; the rest of the block becomes zero.
    pub fn encode(&self, block: &mut [u8; BLOCK_BYTES]) {
        let mut raw = self.raw.clone();
        if self.has_checksums() {
            raw.checksum = self.computed_checksum().into();
        }
        let (head, rest) = block.split_at_mut(size_of::<Raw>());
        head.copy_from_slice(raw.as_bytes());
        rest.fill(0);
    }

    fn computed_checksum(&self) -> u32 {
        let mut raw = self.raw.clone();
        raw.checksum = 0.into();
        crc32c(!0, &[raw.as_bytes()])
    }

    fn has_checksums(&self) -> bool {
        self.raw.incompatible.get() & CHECKSUM_3 != 0
    }

    /// How the log's blocks are encoded.
    pub fn format(&self) -> LogFormat {
        let features = self.features();
        LogFormat {
            uuid: self.raw.uuid,
            wide: self.raw.incompatible.get() & WIDE != 0,
            checksum_seed: (self.has_checksums() || features.async_commit)
                .then(|| crc32c(!0, &[&self.raw.uuid])),
            features,
        }
    }

    fn features(&self) -> LogFeatures {
        let has = |bit| self.raw.incompatible.get() & bit != 0;
        LogFeatures {
            coalition: has(COALITION),
            async_commit: has(ASYNC_COMMIT),
            data_checksums: has(DATA_CHECKSUMS),
        }
    }

    /// The blocks that hold transactions.
    pub fn ring(&self) -> LogRing {
        // Never empty: `first < blocks` was checked, and holds for what `new` makes.
        LogRing::new(self.raw.first.get(), self.raw.blocks.get())
            .unwrap_or_else(|| unreachable!("a decoded log has blocks"))
    }

    /// Blocks of the journal, this one included.
    pub fn blocks(&self) -> u32 {
        self.raw.blocks.get()
    }

    /// Where the oldest transaction that is still needed begins; `None` when nothing is to be replayed.
    pub fn start(&self) -> Option<u32> {
        (self.raw.start != 0).then_some(self.raw.start.get())
    }

    /// The number of the transaction at [`start`](Self::start), or the next one's.
    pub fn sequence(&self) -> Sequence {
        Sequence(self.raw.sequence.get())
    }

    /// The error number that a writer left when it gave up; 0 is none. Then the filesystem needs a check.
    pub fn error(&self) -> u32 {
        self.raw.error.get()
    }

    /// Moves the tail: recovery starts at block `start` with transaction `sequence`; `None` says that the
    /// journal is empty and that `sequence` comes next.
    pub fn set_tail(&mut self, start: Option<u32>, sequence: Sequence) {
        self.raw.start = start.unwrap_or(0).into();
        self.raw.sequence = sequence.0.into();
    }

    /// Says how transactions stand in the log from now on.
    ///
    /// # Errors
    ///
    /// [`FormatError::Invalid`] when there is something to replay, and for checksums of data without asynchronous commits.
    pub fn set_features(&mut self, features: LogFeatures) -> Result<(), FormatError> {
        self.check_empty()?;
        let LogFeatures { coalition, async_commit, data_checksums } = features;
        if data_checksums && !async_commit {
            return Err(FormatError::Invalid { what: "checksums of data need asynchronous commits" });
        }
        let all = [(COALITION, coalition), (ASYNC_COMMIT, async_commit), (DATA_CHECKSUMS, data_checksums)];
        let mut bits = self.raw.incompatible.get();
        for (bit, has) in all {
            bits = if has { bits | bit } else { bits & !bit };
        }
        self.raw.incompatible = bits.into();
        Ok(())
    }

    /// Leaves an error number (0 clears it).
    pub fn set_error(&mut self, number: u32) {
        self.raw.error = number.into();
    }

    /// Turns on what this crate writes: revoke blocks, 64-bit addresses and, if `checksums`, version 3
    /// checksums. Only an empty journal may change its encoding.
    ///
    /// # Errors
    ///
    /// [`FormatError::Invalid`] when there is something to replay.
    pub fn upgrade(&mut self, checksums: bool) -> Result<(), FormatError> {
        self.check_empty()?;
        let (bits, kind) = if checksums { (CHECKSUM_3, CRC32C) } else { (0, self.raw.checksum_type) };
        self.raw.incompatible =
            (self.raw.incompatible.get() & !NOT_REPLAYED_BITS | REVOKE | WIDE | bits).into();
        self.raw.compatible = (self.raw.compatible.get() & !WHOLE_TRANSACTION_CHECKSUM).into();
        self.raw.checksum_type = kind;
        Ok(())
    }

    fn check_empty(&self) -> Result<(), FormatError> {
        let what = "the encoding of a journal that is not empty is fixed";
        if self.start().is_some() { Err(FormatError::Invalid { what }) } else { Ok(()) }
    }
}

fn corrupt(what: &'static str) -> FormatError {
    FormatError::corrupt(Structure::JournalSuperblock, Place::JournalBlock(0), what)
}

fn length() -> FormatError {
    corrupt("shorter than 1,024 bytes")
}
