//! The segment information table (SIT): which blocks of each segment are in use.

use weir_format::{FormatError, Place, Structure};
use zerocopy::little_endian::{U16, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::bitmap::{get_bit, set_bit};
use crate::block::{BLOCK_BYTES, SEGMENT_BLOCKS, SEGMENT_ENTRIES_PER_BLOCK, SegmentNumber};
use crate::layout::Layout;
use crate::log::Log;

/// Bits of `valid_and_log` that count blocks; the log is above them.
const COUNT_BITS: u32 = 10;

/// Which blocks of a segment are in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct SegmentEntry {
    /// How many are in use (10 bits), and of which log the segment is or was (6 bits).
    pub valid_and_log: U16,
    /// A bit a block, the first in the highest bit of a byte.
    pub valid: [u8; SEGMENT_BLOCKS as usize / 8],
    /// When the segment changed, in seconds of the checkpoint's elapsed time.
    pub modified: U64,
}

impl SegmentEntry {
    /// A free segment.
    pub fn new(log: Log) -> Self {
        let mut entry = Self { valid_and_log: 0.into(), valid: [0; 64], modified: 0.into() };
        entry.set_log(log);
        entry
    }

    /// How many blocks are in use: at most 512 once the entry is checked.
    pub fn valid_blocks(&self) -> u32 {
        u32::from(self.valid_and_log.get()) & ((1 << COUNT_BITS) - 1)
    }

    /// Of which log the segment is. `None`: damaged.
    pub fn log(&self) -> Option<Log> {
        Log::from_index(usize::from(self.valid_and_log.get() >> COUNT_BITS))
    }

    /// Gives the segment to `log`.
    pub fn set_log(&mut self, log: Log) {
        let count = self.valid_and_log.get() & ((1 << COUNT_BITS) - 1);
        self.valid_and_log = ((log as u16) << COUNT_BITS | count).into();
    }

    /// Whether the block at `offset` is in use. `false` beyond the segment.
    pub fn is_valid(&self, offset: u32) -> bool {
        get_bit(&self.valid, offset)
    }

    /// Marks the block at `offset` as used or free, and counts it. Returns whether that changed it: not so for a block
    /// beyond the segment.
    pub fn set_valid(&mut self, offset: u32, valid: bool) -> bool {
        if offset >= SEGMENT_BLOCKS || self.is_valid(offset) == valid {
            return false;
        }
        set_bit(&mut self.valid, offset, valid);
        // Counted anew: the stored number is not trusted to be the right one.
        let count: u32 = self.valid.iter().map(|byte| byte.count_ones()).sum();
        let log = self.valid_and_log.get() >> COUNT_BITS << COUNT_BITS;
        self.valid_and_log = (log | count as u16).into();
        true
    }

    /// Checks the entry of `segment`.
    ///
    /// # Errors
    ///
    /// A count that is not that of the bits, a log that is none.
    pub fn check(&self, segment: SegmentNumber) -> Result<(), FormatError> {
        let corrupt =
            |what| Err(FormatError::corrupt(Structure::SegmentTable, Place::Segment(segment.0), what));
        let count: u32 = self.valid.iter().map(|byte| byte.count_ones()).sum();
        if count != self.valid_blocks() {
            return corrupt("its number of blocks is not that of its bitmap");
        }
        match self.log() {
            Some(_) => Ok(()),
            None => corrupt("its log"),
        }
    }
}

/// A block of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct SegmentTableBlock {
    /// The entries of consecutive segments.
    pub entries: [SegmentEntry; SEGMENT_ENTRIES_PER_BLOCK],
    /// Not used.
    pub rest: [u8; 26],
}

const _: () = assert!(size_of::<SegmentTableBlock>() == BLOCK_BYTES);

impl SegmentTableBlock {
    /// Reads block `index` of the table, and checks the entries of segments that there are.
    ///
    /// # Errors
    ///
    /// As [`SegmentEntry::check`], or a block that is too short.
    pub fn read(bytes: &[u8], index: u32, layout: &Layout) -> Result<Box<Self>, FormatError> {
        let short =
            FormatError::corrupt(Structure::SegmentTable, Place::Block(u64::from(index)), "too short");
        let (block, _) = Self::read_from_prefix(bytes).map_err(|_| short)?;
        let first = u64::from(index) * SEGMENT_ENTRIES_PER_BLOCK as u64;
        for (segment, entry) in (first..u64::from(layout.main_segments())).zip(&block.entries) {
            entry.check(SegmentNumber(segment as u32))?;
        }
        Ok(Box::new(block))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_block_is_the_highest_bit_and_counts_follow() {
        let mut entry = SegmentEntry::new(Log::ColdData);
        assert!(entry.set_valid(0, true) && entry.set_valid(9, true) && entry.set_valid(511, true));
        assert!(!entry.set_valid(9, true) && !entry.set_valid(512, true));
        assert_eq!((entry.valid[0], entry.valid[1], entry.valid[63]), (0x80, 0x40, 0x01));
        assert_eq!((entry.valid_blocks(), entry.log()), (3, Some(Log::ColdData)));
        entry.check(SegmentNumber(7)).expect("whole");
        assert!(entry.set_valid(0, false) && !entry.is_valid(0) && entry.is_valid(9));
        entry.set_log(Log::HotNode);
        assert_eq!((entry.valid_blocks(), entry.log()), (2, Some(Log::HotNode)));
        (0..512).for_each(|offset| _ = entry.set_valid(offset, true));
        assert_eq!((entry.valid_blocks(), entry.log()), (512, Some(Log::HotNode)));
    }

    #[test]
    fn a_wrong_count_and_a_wrong_log_are_found() {
        let mut entry = SegmentEntry::new(Log::WarmNode);
        entry.valid[3] = 1;
        entry.check(SegmentNumber(0)).expect_err("count");
        let mut entry = SegmentEntry::new(Log::WarmNode);
        entry.valid_and_log = (6 << COUNT_BITS).into();
        entry.check(SegmentNumber(0)).expect_err("log");
    }
}
