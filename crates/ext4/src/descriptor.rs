//! Group descriptors: where a group keeps its bitmaps and its inode table, and how much of it is free.

use std::mem::offset_of;

use weir_format::{FormatError, Place, Structure};
use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::checksum::crc32c;
use crate::layout::Layout;

/// Bits of a descriptor's `flags`.
pub mod group_flags {
    /// The inode bitmap and the inode table were never written: no inode is in use.
    pub const INODES_UNINITIALISED: u16 = 1;
    /// The block bitmap was never written: only the group's own metadata is in use.
    pub const BLOCKS_UNINITIALISED: u16 = 2;
    /// The unused part of the inode table is zeros.
    pub const TABLE_ZEROED: u16 = 4;
}

/// Bytes of a descriptor without the feature `64bit`.
const NARROW_BYTES: usize = 32;
/// Bytes of a descriptor with it.
const WIDE_BYTES: usize = 64;

/// The descriptor of a group. With 32 bytes on the disk, the second half is zeros here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct Descriptor {
    block_bitmap_low: U32,
    inode_bitmap_low: U32,
    inode_table_low: U32,
    free_blocks_low: U16,
    free_inodes_low: U16,
    directories_low: U16,
    /// See [`group_flags`].
    pub flags: U16,
    exclude_bitmap_low: U32,
    block_bitmap_sum_low: U16,
    inode_bitmap_sum_low: U16,
    unused_inodes_low: U16,
    checksum: U16,
    block_bitmap_high: U32,
    inode_bitmap_high: U32,
    inode_table_high: U32,
    free_blocks_high: U16,
    free_inodes_high: U16,
    directories_high: U16,
    unused_inodes_high: U16,
    exclude_bitmap_high: U32,
    block_bitmap_sum_high: U16,
    inode_bitmap_sum_high: U16,
    reserved: U32,
}

const _: () = {
    assert!(size_of::<Descriptor>() == WIDE_BYTES);
    assert!(offset_of!(Descriptor, flags) == 0x12);
    assert!(offset_of!(Descriptor, checksum) == 0x1E);
    assert!(offset_of!(Descriptor, block_bitmap_high) == NARROW_BYTES);
    assert!(offset_of!(Descriptor, block_bitmap_sum_high) == 0x38);
};

impl Descriptor {
    /// A descriptor of zeros but for the places of the bitmaps and the inode table.
    pub(crate) fn new(block_bitmap: u64, inode_bitmap: u64, inode_table: u64) -> Self {
        let mut descriptor = Self::new_zeroed();
        (descriptor.block_bitmap_low, descriptor.block_bitmap_high) = halves(block_bitmap);
        (descriptor.inode_bitmap_low, descriptor.inode_bitmap_high) = halves(inode_bitmap);
        (descriptor.inode_table_low, descriptor.inode_table_high) = halves(inode_table);
        descriptor
    }

    /// Reads the descriptor of `group` from its 32 or 64 bytes, and checks that what it names lies within
    /// the filesystem.
    ///
    /// # Errors
    ///
    /// A wrong checksum, or a place or count that cannot be.
    pub fn read(bytes: &[u8], group: u32, layout: &Layout) -> Result<Self, FormatError> {
        let corrupt = |what| FormatError::corrupt(Structure::Descriptor, Place::Group(group), what);
        let mut descriptor = Self::new_zeroed();
        let size = layout.descriptor_bytes();
        let bytes = bytes.get(..size).ok_or_else(|| corrupt("too short"))?;
        descriptor.as_mut_bytes()[..size].copy_from_slice(bytes);
        if descriptor.sum(group, layout).is_some_and(|sum| sum != descriptor.checksum.get()) {
            let structure = Structure::Descriptor;
            return Err(FormatError::Checksum { structure, place: Place::Group(group) });
        }
        let (blocks, table) = (layout.blocks(), u64::from(layout.table_blocks()));
        let inside = |first: u64, length: u64| first > 0 && first.saturating_add(length) <= blocks;
        let wrong = [
            (!inside(descriptor.block_bitmap(), 1), "place of the block bitmap"),
            (!inside(descriptor.inode_bitmap(), 1), "place of the inode bitmap"),
            (!inside(descriptor.inode_table(), table), "place of the inode table"),
            (descriptor.free_blocks() > layout.blocks_in(group), "number of free blocks"),
            (descriptor.free_inodes() > layout.inodes_per_group(), "number of free inodes"),
            (descriptor.unused_inodes() > layout.inodes_per_group(), "number of unused inodes"),
        ];
        match wrong.into_iter().find(|(wrong, _)| *wrong) {
            Some((_, what)) => Err(corrupt(what)),
            None => Ok(descriptor),
        }
    }

    /// Seals the descriptor of `group`, and stores it in its 32 or 64 bytes.
    ///
    /// # Panics
    ///
    /// If `bytes` is shorter than a descriptor.
    pub fn write(&mut self, bytes: &mut [u8], group: u32, layout: &Layout) {
        if let Some(sum) = self.sum(group, layout) {
            self.checksum = sum.into();
        }
        let size = layout.descriptor_bytes();
        bytes[..size].copy_from_slice(&self.as_bytes()[..size]);
    }

    fn sum(&self, group: u32, layout: &Layout) -> Option<u16> {
        let seed = layout.checksums().seed()?;
        let mut bare = *self;
        bare.checksum = 0.into();
        let bytes = &bare.as_bytes()[..layout.descriptor_bytes()];
        Some(crc32c(seed, &[&group.to_le_bytes(), bytes]) as u16)
    }

    /// The block that holds the bitmap of the group's blocks.
    pub fn block_bitmap(&self) -> u64 {
        whole(self.block_bitmap_low, self.block_bitmap_high)
    }

    /// The block that holds the bitmap of the group's inodes.
    pub fn inode_bitmap(&self) -> u64 {
        whole(self.inode_bitmap_low, self.inode_bitmap_high)
    }

    /// The first block of the group's inode table.
    pub fn inode_table(&self) -> u64 {
        whole(self.inode_table_low, self.inode_table_high)
    }

    /// Free blocks in the group.
    pub fn free_blocks(&self) -> u32 {
        join(self.free_blocks_low, self.free_blocks_high)
    }

    /// Sets the number of free blocks.
    pub fn set_free_blocks(&mut self, blocks: u32) {
        (self.free_blocks_low, self.free_blocks_high) = split(blocks);
    }

    /// Free inodes in the group.
    pub fn free_inodes(&self) -> u32 {
        join(self.free_inodes_low, self.free_inodes_high)
    }

    /// Sets the number of free inodes.
    pub fn set_free_inodes(&mut self, inodes: u32) {
        (self.free_inodes_low, self.free_inodes_high) = split(inodes);
    }

    /// Directories among the group's inodes.
    pub fn directories(&self) -> u32 {
        join(self.directories_low, self.directories_high)
    }

    /// Sets the number of directories.
    pub fn set_directories(&mut self, directories: u32) {
        (self.directories_low, self.directories_high) = split(directories);
    }

    /// Inodes at the end of the table that were never used, so no reader needs them.
    pub fn unused_inodes(&self) -> u32 {
        join(self.unused_inodes_low, self.unused_inodes_high)
    }

    /// Sets the number of inodes at the end of the table that were never used.
    pub fn set_unused_inodes(&mut self, inodes: u32) {
        (self.unused_inodes_low, self.unused_inodes_high) = split(inodes);
    }

    /// Whether all bits of `flag` (see [`group_flags`]) are set.
    pub fn has_flag(&self, flag: u16) -> bool {
        self.flags.get() & flag == flag
    }

    /// Sets or clears `flag`.
    pub fn set_flag(&mut self, flag: u16, on: bool) {
        let flags = self.flags.get();
        self.flags = if on { flags | flag } else { flags & !flag }.into();
    }

    /// The bitmaps that are written, with their places: those for which no flag says that nothing is in use.
    pub(crate) fn written_bitmaps<B>(
        &self,
        blocks: impl FnOnce() -> B,
        inodes: impl FnOnce() -> B,
    ) -> [Option<(u64, B)>; 2] {
        let is_written = |flag| !self.has_flag(flag);
        let blocks = is_written(group_flags::BLOCKS_UNINITIALISED).then(|| (self.block_bitmap(), blocks()));
        let inodes = is_written(group_flags::INODES_UNINITIALISED).then(|| (self.inode_bitmap(), inodes()));
        [blocks, inodes]
    }

    /// Notes the checksums of the bitmaps that are written, blocks of 4,096 bytes.
    pub(crate) fn seal_written_bitmaps(&mut self, blocks: &[u8], inodes: &[u8], layout: &Layout) {
        if !self.has_flag(group_flags::BLOCKS_UNINITIALISED) {
            self.seal_block_bitmap(blocks, layout);
        }
        if !self.has_flag(group_flags::INODES_UNINITIALISED) {
            self.seal_inode_bitmap(inodes, layout);
        }
    }

    /// Notes the checksum of the group's block bitmap, a block of 4,096 bytes.
    pub fn seal_block_bitmap(&mut self, bits: &[u8], layout: &Layout) {
        if let Some(sum) = layout.checksums().bitmap(layout.used_block_bits(bits)) {
            (self.block_bitmap_sum_low, self.block_bitmap_sum_high) = split(sum);
        }
    }

    /// Notes the checksum of the group's inode bitmap, a block of 4,096 bytes.
    pub fn seal_inode_bitmap(&mut self, bits: &[u8], layout: &Layout) {
        if let Some(sum) = layout.checksums().bitmap(layout.used_inode_bits(bits)) {
            (self.inode_bitmap_sum_low, self.inode_bitmap_sum_high) = split(sum);
        }
    }

    /// Compares the checksum of the block bitmap of `group` with the one noted here.
    ///
    /// # Errors
    ///
    /// [`FormatError::Checksum`] if they differ.
    pub fn verify_block_bitmap(&self, bits: &[u8], group: u32, layout: &Layout) -> Result<(), FormatError> {
        let noted = join(self.block_bitmap_sum_low, self.block_bitmap_sum_high);
        let sum = layout.checksums().bitmap(layout.used_block_bits(bits));
        verify_bitmap(Structure::BlockBitmap, group, layout, sum, noted)
    }

    /// Compares the checksum of the inode bitmap of `group` with the one noted here.
    ///
    /// # Errors
    ///
    /// [`FormatError::Checksum`] if they differ.
    pub fn verify_inode_bitmap(&self, bits: &[u8], group: u32, layout: &Layout) -> Result<(), FormatError> {
        let noted = join(self.inode_bitmap_sum_low, self.inode_bitmap_sum_high);
        let sum = layout.checksums().bitmap(layout.used_inode_bits(bits));
        verify_bitmap(Structure::InodeBitmap, group, layout, sum, noted)
    }
}

/// A short descriptor keeps the lower half of a bitmap's checksum only.
fn verify_bitmap(
    structure: Structure,
    group: u32,
    layout: &Layout,
    sum: Option<u32>,
    noted: u32,
) -> Result<(), FormatError> {
    let kept = if layout.descriptor_bytes() == WIDE_BYTES { u32::MAX } else { 0xFFFF };
    match sum {
        Some(sum) if sum & kept != noted & kept => {
            Err(FormatError::Checksum { structure, place: Place::Group(group) })
        }
        _ => Ok(()),
    }
}

fn whole(low: U32, high: U32) -> u64 {
    u64::from(low.get()) | u64::from(high.get()) << 32
}

fn halves(number: u64) -> (U32, U32) {
    ((number as u32).into(), ((number >> 32) as u32).into())
}

fn join(low: U16, high: U16) -> u32 {
    u32::from(low.get()) | u32::from(high.get()) << 16
}

fn split(number: u32) -> (U16, U16) {
    ((number as u16).into(), ((number >> 16) as u16).into())
}
