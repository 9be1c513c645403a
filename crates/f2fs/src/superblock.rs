//! The superblock: what an image is, and where its areas are. It is written at mkfs, and hardly ever after.
//!
//! The type is the structure on the disk, byte for byte, so what is not understood stays as it was.

use std::mem::offset_of;

use weir_format::{FormatError, Place, Structure};
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::block::{BlockAddress, NODE_ENTRIES_PER_BLOCK, NodeId, SEGMENT_BLOCKS, SEGMENT_ENTRIES_PER_BLOCK};
use crate::crc::{MAGIC, crc32};
use crate::features::{Feature, Features};

/// Bytes of a superblock.
pub const SUPERBLOCK_BYTES: usize = 3072;
/// Where a superblock starts in its block: block 0, and block 1 for the copy.
pub const SUPERBLOCK_OFFSET: usize = 1024;
/// Segments of the area of checkpoints: one a pack.
pub(crate) const CHECKPOINT_SEGMENTS: u32 = 2;
/// Blocks of one checkpoint that hold the bitmap of segment table copies, at most: the bitmap of 16 TiB has five.
const PAYLOAD_MAX: u32 = 8;

/// A path and the segments of one device of many.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
#[allow(missing_docs, reason = "the type says it")]
pub struct Device {
    pub path: [u8; 64],
    pub segments: U32,
}

/// The superblock. Addresses are in blocks from the device's start, counts of areas in segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
#[allow(missing_docs, reason = "the names say what the fields are; those that need more have it")]
pub struct Superblock {
    pub magic: U32,
    pub major_version: U16,
    pub minor_version: U16,
    /// Logarithms with base 2, as the three below.
    pub log_sector_bytes: U32,
    pub log_sectors_per_block: U32,
    pub log_block_bytes: U32,
    pub log_segment_blocks: U32,
    pub segments_per_section: U32,
    pub sections_per_zone: U32,
    /// Where the checksum is in the superblock; 0 without one.
    pub checksum_offset: U32,
    pub blocks: U64,
    /// Of the main area.
    pub sections: U32,
    /// Of all areas.
    pub segments: U32,
    pub checkpoint_segments: U32,
    /// Both copies of the segment table.
    pub segment_table_segments: U32,
    /// Both copies of the node address table.
    pub node_table_segments: U32,
    pub summary_segments: U32,
    pub main_segments: U32,
    /// Where the first area starts.
    pub segment0: U32,
    pub checkpoint_start: U32,
    pub segment_table_start: U32,
    pub node_table_start: U32,
    pub summary_start: U32,
    pub main_start: U32,
    pub root_inode: U32,
    pub node_inode: U32,
    pub meta_inode: U32,
    pub uuid: [u8; 16],
    /// UTF-16, up to the first zero.
    pub label: [U16; 512],
    /// How many of `extensions` are of cold files; those of hot ones follow.
    pub cold_extensions: U32,
    pub extensions: [[u8; 8]; 64],
    /// Blocks of a checkpoint pack after its header, for the bitmap of segment table copies.
    pub checkpoint_payload: U32,
    pub version: [u8; 256],
    pub init_version: [u8; 256],
    pub features: U32,
    pub encryption_level: u8,
    pub encryption_salt: [u8; 16],
    pub devices: [Device; 8],
    pub quota_inodes: [U32; 3],
    pub hot_extensions: u8,
    pub encoding: U16,
    pub encoding_flags: U16,
    pub stop_reasons: [u8; 32],
    pub errors: [u8; 16],
    pub reserved: [u8; 258],
    pub checksum: U32,
}

const _: () = {
    assert!(size_of::<Superblock>() == SUPERBLOCK_BYTES);
    assert!(offset_of!(Superblock, blocks) == 36);
    assert!(offset_of!(Superblock, main_start) == 92);
    assert!(offset_of!(Superblock, label) == 124);
    assert!(offset_of!(Superblock, cold_extensions) == 1148);
    assert!(offset_of!(Superblock, checkpoint_payload) == 1664);
    assert!(offset_of!(Superblock, features) == 2180);
    assert!(offset_of!(Superblock, hot_extensions) == 2757);
    assert!(offset_of!(Superblock, checksum) == 3068);
};

/// Bytes by which a damaged superblock may differ from its copy, if its magic number is damaged too.
const DAMAGED_BYTES_MAX: usize = 64;

/// Whether what stands for no superblock in block 0 can be a damaged one, whose copy in block 1 is good. `wipefs` writes zeros over
/// the magic number alone, and swap space or another filesystem leaves the copy as it is.
fn is_damaged(first: &[u8], second: &[u8]) -> bool {
    let (first, second) = (first.get(SUPERBLOCK_OFFSET..), second.get(SUPERBLOCK_OFFSET..));
    let (first, second) = (first.unwrap_or_default(), second.unwrap_or_default());
    let (magic, rest) = first.split_at(first.len().min(size_of::<u32>()));
    let is_zero = |bytes: &[u8]| bytes.iter().all(|byte| *byte == 0);
    let differing = rest.iter().zip(second.iter().skip(magic.len())).filter(|(one, two)| one != two).count();
    is_zero(first) || !is_zero(magic) && differing <= DAMAGED_BYTES_MAX
}

/// The superblock of an image, from the first of its two copies that is good.
#[derive(Clone, Copy, Debug)]
pub struct ChosenSuperblock {
    /// The superblock.
    pub superblock: Superblock,
    /// Where the copy is that is damaged, if one is: block 0 or 1.
    pub damaged_copy: Option<BlockAddress>,
}

impl Superblock {
    /// Reads a superblock from `block`, which holds it from byte 1,024 on, and checks that this crate can read and write
    /// its filesystem. `number` (0 or 1) is for messages.
    ///
    /// # Errors
    ///
    /// What is damaged, or the name of what is outside the subset.
    pub fn read(block: &[u8], number: u64) -> Result<Self, FormatError> {
        let bytes = block.get(SUPERBLOCK_OFFSET..).unwrap_or_default();
        let (superblock, _) = Self::read_from_prefix(bytes).map_err(|_| corrupt(number, "too short"))?;
        superblock.check(number)?;
        Ok(superblock)
    }

    /// The superblock of an image of `device_blocks` blocks whose first two are given: the first that is good. The copy of what was
    /// overwritten or wiped is not taken.
    ///
    /// # Errors
    ///
    /// Why the superblock in block 0 is not good, if neither is; why the good one does not belong to the device.
    pub fn choose(first: &[u8], second: &[u8], device_blocks: u64) -> Result<ChosenSuperblock, FormatError> {
        let (superblock, damaged_copy) = match (Self::read(first, 0), Self::read(second, 1)) {
            (Ok(superblock), Err(error)) if !error.is_unsupported() => (superblock, Some(BlockAddress(1))),
            (Ok(superblock), _) => (superblock, None),
            (Err(error), _) if error.is_unsupported() => return Err(error),
            (Err(error @ FormatError::Foreign { .. }), Ok(_)) if !is_damaged(first, second) => {
                return Err(error);
            }
            (Err(_), Ok(superblock)) => (superblock, Some(BlockAddress(0))),
            (Err(FormatError::Foreign { format: "F2FS" }), Err(error)) | (Err(error), Err(_)) => {
                return Err(error);
            }
        };
        if superblock.blocks.get() > device_blocks {
            let taken = u64::from(damaged_copy == Some(BlockAddress(0)));
            return Err(corrupt(
                taken,
                "its filesystem has more blocks than the device, which was cut short or copied in part",
            ));
        }
        Ok(ChosenSuperblock { superblock, damaged_copy })
    }

    fn check(&self, number: u64) -> Result<(), FormatError> {
        if self.magic.get() != MAGIC {
            return Err(FormatError::Foreign { format: "F2FS" });
        }
        // Before the other features: damage is not to look like one of them, and hide the copy.
        if self.features().has(Feature::SB_CHECKSUM) {
            if self.checksum_offset.get() as usize != offset_of!(Self, checksum) {
                return Err(corrupt(number, "place of the checksum"));
            }
            if self.checksum.get() != self.sum() {
                let (structure, place) = (Structure::Superblock, Place::Block(number));
                return Err(FormatError::Checksum { structure, place });
            }
        }
        self.features().check()?;
        self.check_subset()?;
        match self.find_wrong_field() {
            Some(what) => Err(corrupt(number, what)),
            None => Ok(()),
        }
    }

    fn check_subset(&self) -> Result<(), FormatError> {
        if self.log_block_bytes.get() != 12 {
            let what = "blocks of another size than 4096 bytes, which alone is supported: copy the files into a filesystem that has them";
            return Err(FormatError::Unsupported { what });
        }
        if self.log_segment_blocks.get() != 9 {
            let what = "segments of another size than 512 blocks, which alone is supported: copy the files into a filesystem that has them";
            return Err(FormatError::Unsupported { what });
        }
        let refused = [
            (self.segments_per_section.get() != 1, "sections of several segments (mkfs.f2fs -s)"),
            (self.sections_per_zone.get() != 1, "zones of several sections (mkfs.f2fs -z)"),
            (self.devices.iter().any(|device| device.path[0] != 0), "several devices (mkfs.f2fs -c)"),
            (self.quota_inodes.iter().any(|inode| inode.get() != 0), "quota"),
        ];
        match refused.into_iter().find(|(refused, _)| *refused) {
            Some((_, name)) => Err(FormatError::Feature { name }),
            None => Ok(()),
        }
    }

    /// What does not agree with the rest.
    fn find_wrong_field(&self) -> Option<&'static str> {
        let sector = self.log_sector_bytes.get();
        let areas = [
            (self.checkpoint_start, self.checkpoint_segments, self.segment_table_start),
            (self.segment_table_start, self.segment_table_segments, self.node_table_start),
            (self.node_table_start, self.node_table_segments, self.summary_start),
            (self.summary_start, self.summary_segments, self.main_start),
        ];
        let follows = |(start, segments, next): (U32, U32, U32)| end_of(start, segments) == u64::from(next);
        let main_end = end_of(self.main_start, self.main_segments);
        let all_end = end_of(self.segment0, self.segments);
        let table = u64::from(self.segment_table_segments.get() / 2) * u64::from(SEGMENT_BLOCKS);
        let described = table.saturating_mul(SEGMENT_ENTRIES_PER_BLOCK as u64);
        let nodes = u64::from(self.node_table_segments.get() / 2).saturating_mul(u64::from(SEGMENT_BLOCKS));
        let nodes = nodes.saturating_mul(NODE_ENTRIES_PER_BLOCK as u64);
        let hot = u64::from(self.cold_extensions.get()) + u64::from(self.hot_extensions);
        let wrong = [
            (!(9..=12).contains(&sector), "size of a sector"),
            (self.log_sectors_per_block.get().checked_add(sector) != Some(12), "sectors of a block"),
            (self.segment0.get() < 2, "start of the first segment"),
            (self.checkpoint_start != self.segment0, "start of the checkpoints"),
            (self.checkpoint_segments.get() != CHECKPOINT_SEGMENTS, "segments of the checkpoints"),
            (!is_even(self.segment_table_segments), "segments of the segment table"),
            (!is_even(self.node_table_segments), "segments of the node address table"),
            (!areas.into_iter().all(follows), "order of the areas"),
            (self.main_segments.get() == 0, "segments of the main area"),
            (self.sections != self.main_segments, "number of sections"),
            (main_end > all_end, "number of segments"),
            (all_end > self.blocks.get(), "number of blocks"),
            (self.blocks.get() >= u64::from(u32::MAX), "number of blocks"),
            (described < u64::from(self.main_segments.get()), "size of the segment table"),
            (self.summary_blocks() < u64::from(self.main_segments.get()), "size of the summary area"),
            (nodes > u64::from(u32::MAX), "size of the node address table"),
            (self.checkpoint_payload.get() > PAYLOAD_MAX, "blocks of the checkpoint's payload"),
            (self.root_inode.get() != NodeId::ROOT.0, "root inode"),
            (self.node_inode.get() != NodeId::NODE_INODE.0, "node inode"),
            (self.meta_inode.get() != NodeId::META_INODE.0, "meta inode"),
            (hot > self.extensions.len() as u64, "number of extensions"),
        ];
        wrong.into_iter().find_map(|(wrong, what)| wrong.then_some(what))
    }

    fn summary_blocks(&self) -> u64 {
        u64::from(self.summary_segments.get()) * u64::from(SEGMENT_BLOCKS)
    }

    fn sum(&self) -> u32 {
        crc32(MAGIC, &self.as_bytes()[..offset_of!(Self, checksum)])
    }

    /// Which features the image has.
    pub fn features(&self) -> Features {
        Features(self.features.get())
    }

    /// What checksums of inodes start from, that of the UUID; `None` where inodes have none.
    pub fn inode_seed(&self) -> Option<u32> {
        self.features().has(Feature::INODE_CHECKSUM).then(|| crc32(!0, &self.uuid))
    }

    /// The label. What is not UTF-16 is replaced.
    pub fn label(&self) -> String {
        let units: Vec<u16> =
            self.label.iter().map(|unit| unit.get()).take_while(|unit| *unit != 0).collect();
        String::from_utf16_lossy(&units)
    }

    /// Stores the checksum, if the image has one, and writes the superblock into `block` from byte 1,024 on.
    pub fn write(&mut self, block: &mut [u8; weir_format::BLOCK_BYTES]) {
        if self.features().has(Feature::SB_CHECKSUM) {
            self.checksum_offset = (offset_of!(Self, checksum) as u32).into();
            self.checksum = self.sum().into();
        }
        block[SUPERBLOCK_OFFSET..].copy_from_slice(self.as_bytes());
    }
}

/// The block behind an area.
fn end_of(start: U32, segments: U32) -> u64 {
    u64::from(start.get()) + u64::from(segments.get()) * u64::from(SEGMENT_BLOCKS)
}

fn is_even(segments: U32) -> bool {
    segments.get() != 0 && segments.get().is_multiple_of(2)
}

fn corrupt(number: u64, what: &'static str) -> FormatError {
    FormatError::corrupt(Structure::Superblock, Place::Block(number), what)
}
