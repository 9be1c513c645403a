//! The superblock: what an image is, and where its areas are. It is written once, by mkfs, in two copies; what changes is in the
//! [checkpoint](crate::checkpoint).
//!
//! The type is the structure on the disk, byte for byte, so what is not understood stays as it was.

use weir_format::{BLOCK_BYTES, FormatError, Place, Structure};
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::address::{NodeId, SEGMENT_BLOCKS};
use crate::crc::{MAGIC, crc32};
use crate::features::{Feature, Features};

/// Bytes of a superblock.
pub const SUPERBLOCK_BYTES: usize = 3072;
/// Where a superblock starts in its block: both in block 0 and in block 1.
pub const SUPERBLOCK_OFFSET: usize = 1024;
/// The bytes that the checksum covers.
const SUM_OFFSET: usize = SUPERBLOCK_BYTES - 4;
/// Logarithms to base 2 of a block's bytes, and of a segment's blocks.
const LOG_BLOCK: u32 = 12;
const LOG_SEGMENT: u32 = 9;
/// Blocks of a checkpoint's payload at most: version bitmaps of more are never needed for 16 TiB.
const PAYLOAD_MAX: u32 = 16;
/// Segments of a block number of 32 bits.
const SEGMENTS_MAX: u32 = u32::MAX / SEGMENT_BLOCKS;

/// The superblock. Counts of segments and addresses are of blocks of 4 KiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
#[allow(missing_docs, reason = "the names of Documentation/filesystems/f2fs.rst, in words")]
pub struct Superblock {
    pub magic: U32,
    pub major_version: U16,
    pub minor_version: U16,
    pub log_sector_bytes: U32,
    pub log_sectors_per_block: U32,
    pub log_block_bytes: U32,
    pub log_blocks_per_segment: U32,
    pub segments_per_section: U32,
    pub sections_per_zone: U32,
    /// Where the checksum is, with the feature `sb_checksum`.
    pub checksum_offset: U32,
    pub blocks: U64,
    pub sections: U32,
    pub segments: U32,
    pub checkpoint_segments: U32,
    /// Both copies of the segment information table.
    pub segment_table_segments: U32,
    /// Both copies of the node address table.
    pub node_table_segments: U32,
    pub summary_segments: U32,
    pub main_segments: U32,
    /// The first block of the first segment: the start of the checkpoint area.
    pub segment0: U32,
    pub checkpoint_start: U32,
    pub segment_table_start: U32,
    pub node_table_start: U32,
    pub summary_start: U32,
    pub main_start: U32,
    pub root: U32,
    pub node_inode: U32,
    pub meta_inode: U32,
    pub uuid: [u8; 16],
    /// UTF-16, ended by a zero.
    pub label: [U16; 512],
    pub extensions: U32,
    /// Extensions of names whose files are cold, and after these of files that are hot.
    pub extension_list: [[u8; 8]; 64],
    /// Blocks between a checkpoint's first block and its orphan blocks.
    pub checkpoint_payload: U32,
    pub version: [u8; 256],
    pub first_version: [u8; 256],
    pub features: U32,
    pub encryption: [u8; 17],
    pub devices: [[u8; 68]; 8],
    pub quota_inodes: [U32; 3],
    pub hot_extensions: u8,
    pub encoding: U16,
    pub encoding_flags: U16,
    pub stop_reasons: [u8; 32],
    pub errors: [u8; 16],
    reserved: [u8; 258],
    pub checksum: U32,
}

const _: () = assert!(size_of::<Superblock>() == SUPERBLOCK_BYTES);

impl Superblock {
    /// One of zeros but for its magic number and the sizes of the subset.
    pub(crate) fn new() -> Self {
        let mut superblock = Self::new_zeroed();
        superblock.magic = MAGIC.into();
        superblock.major_version = 1.into();
        superblock.minor_version = 16.into();
        superblock.log_sector_bytes = 9.into();
        superblock.log_sectors_per_block = 3.into();
        superblock.log_block_bytes = LOG_BLOCK.into();
        superblock.log_blocks_per_segment = LOG_SEGMENT.into();
        superblock.segments_per_section = 1.into();
        superblock.sections_per_zone = 1.into();
        superblock
    }

    /// Reads a copy from the block that it is in, block 0 or 1, and checks all of it.
    ///
    /// # Errors
    /// [`FormatError::Foreign`] for bytes that are not F2FS; [`FormatError::Feature`], [`FormatError::UnknownFeatures`] and
    /// [`FormatError::Unsupported`] for what is outside the subset; [`FormatError::Checksum`] and [`FormatError::Corrupt`] for
    /// damage.
    pub fn read(block: &[u8], number: u64) -> Result<Self, FormatError> {
        let foreign = FormatError::Foreign { format: "F2FS" };
        let bytes =
            block.get(SUPERBLOCK_OFFSET..SUPERBLOCK_OFFSET + SUPERBLOCK_BYTES).ok_or(foreign.clone())?;
        let superblock = Self::read_from_bytes(bytes).map_err(|_| foreign.clone())?;
        if superblock.magic != MAGIC {
            return Err(foreign);
        }
        superblock.check_subset()?;
        superblock.check_checksum(number)?;
        superblock
            .check_areas()
            .map_err(|what| FormatError::corrupt(Structure::Superblock, Place::Block(number), what))?;
        Ok(superblock)
    }

    fn check_subset(&self) -> Result<(), FormatError> {
        Features::from_bits(self.features.get())?;
        let unsupported = [
            (
                self.log_block_bytes != LOG_BLOCK,
                "blocks of another size than 4,096 bytes: make it with -b 4096",
            ),
            (self.log_blocks_per_segment != LOG_SEGMENT, "segments of another size than 2 MiB"),
            (self.segments_per_section != 1, "sections of several segments: make it with -s 1"),
            (self.sections_per_zone != 1, "zones of several sections: make it with -z 1"),
            (self.devices[0][0] != 0, "several devices: make it on one"),
            (self.quota_inodes.iter().any(|inode| *inode != 0), "quota files: make it without -O quota"),
        ];
        match unsupported.into_iter().find(|(is_so, _)| *is_so) {
            Some((_, what)) => Err(FormatError::Unsupported { what }),
            None => Ok(()),
        }
    }

    fn check_checksum(&self, number: u64) -> Result<(), FormatError> {
        let has_sum = self.features().has(Feature::SB_CHECKSUM);
        if has_sum && (self.checksum_offset != SUM_OFFSET as u32 || self.checksum != self.sum()) {
            return Err(FormatError::Checksum {
                structure: Structure::Superblock,
                place: Place::Block(number),
            });
        }
        Ok(())
    }

    /// Areas follow one another, each with whole segments, up to the end that the superblock says.
    fn check_areas(&self) -> Result<(), &'static str> {
        let segments = |count: U32| u64::from(count.get()) * u64::from(SEGMENT_BLOCKS);
        let start = |place: U32| u64::from(place.get());
        let areas = [
            (self.segment0, self.checkpoint_start, 0),
            (self.checkpoint_start, self.segment_table_start, segments(self.checkpoint_segments)),
            (self.segment_table_start, self.node_table_start, segments(self.segment_table_segments)),
            (self.node_table_start, self.summary_start, segments(self.node_table_segments)),
            (self.summary_start, self.main_start, segments(self.summary_segments)),
        ];
        if self.segments > SEGMENTS_MAX || self.main_segments.get() > self.segments.get() {
            return Err("number of segments");
        }
        if start(self.segment0) < 2
            || areas.iter().any(|(from, to, blocks)| start(*from) + blocks != start(*to))
        {
            return Err("the areas do not follow one another");
        }
        let end = start(self.main_start) + segments(self.main_segments);
        if end > self.blocks.get() || end != start(self.segment0) + segments(self.segments) {
            return Err("the main area does not end with the filesystem");
        }
        if self.checkpoint_segments != 2 || self.checkpoint_payload > PAYLOAD_MAX {
            return Err("size of the checkpoint area");
        }
        if [self.segment_table_segments, self.node_table_segments].iter().any(|count| count.get() % 2 != 0) {
            return Err("a table has two copies");
        }
        if self.main_segments < 8 || self.sections != self.main_segments || self.summary_segments == 0 {
            return Err("number of sections");
        }
        let (table, names) = (self.segment_table_segments.get() / 2, self.node_table_segments.get() / 2);
        if u64::from(table) * u64::from(SEGMENT_BLOCKS) * 55 < start(self.main_segments) || names == 0 {
            return Err("a table is too small");
        }
        if start(self.summary_start) + start(self.main_segments) > start(self.main_start) {
            return Err("the summary area is too small");
        }
        if self.root < NodeId::FIRST.0 || self.node_inode != 1 || self.meta_inode != 2 {
            return Err("numbers of the first inodes");
        }
        Ok(())
    }

    /// The features of the image.
    pub fn features(&self) -> Features {
        Features::from_bits(self.features.get()).unwrap_or_default()
    }

    /// Where inodes' checksums begin: a CRC of the UUID.
    pub fn inode_seed(&self) -> u32 {
        crc32(!0, &[&self.uuid])
    }

    /// Stores the checksum, if it has one, and puts the superblock into its block.
    pub fn write(&mut self, block: &mut [u8; BLOCK_BYTES]) {
        if self.features().has(Feature::SB_CHECKSUM) {
            self.checksum_offset = (SUM_OFFSET as u32).into();
            self.checksum = self.sum().into();
        }
        block[SUPERBLOCK_OFFSET..SUPERBLOCK_OFFSET + SUPERBLOCK_BYTES].copy_from_slice(self.as_bytes());
    }

    fn sum(&self) -> u32 {
        crc32(MAGIC, &[&self.as_bytes()[..SUM_OFFSET]])
    }
}
