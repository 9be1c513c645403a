//! Where everything is that does not move: groups, the superblock and its copies, descriptors, and which
//! bytes of which block an inode is.
//!
//! A *group* is as many blocks as one bitmap block has bits. Some groups start with a copy of the superblock
//! and of all descriptors. A *flexible group* is a number of groups whose bitmaps and inode tables lie
//! together in the first of them, so that the others are free for long files; where exactly, the descriptors
//! say.
//!
//! With the feature `meta_bg` the descriptors of the last groups are not behind the superblock: each block of them lies in the first
//! group that it describes, with copies in the second and the last one. So a filesystem grows that has no room left there.

use std::ops::Range;

use weir_format::{BLOCK_BYTES, FormatError, Place, Structure};

use crate::bitmap;
use crate::checksum::Checksums;
use crate::descriptor::Descriptor;
use crate::features::Feature;
use crate::inode::INODE_BYTES;
use crate::superblock::Superblock;

/// Sectors of 512 bytes in a block.
const SECTORS_PER_BLOCK: u64 = BLOCK_BYTES as u64 / 512;
/// Inodes in a block of an inode table.
const INODES_PER_BLOCK: u32 = (BLOCK_BYTES / INODE_BYTES) as u32;

/// The sizes of a filesystem, and the places that follow from them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    blocks: u64,
    groups: u32,
    blocks_per_group: u32,
    inodes_per_group: u32,
    descriptor_bytes: u32,
    reserved_descriptor_blocks: u32,
    /// The first block of descriptors that lies in a group that it describes; none, without `meta_bg`.
    first_meta_block: Option<u32>,
    groups_per_flex: u32,
    sparse: bool,
    huge_files: bool,
    checksums: Checksums,
}

impl Layout {
    /// The layout of the filesystem of a checked superblock.
    ///
    /// # Errors
    ///
    /// [`FormatError::Corrupt`] if there are more groups than fit in 32 bits, or the descriptors do not fit
    /// in a group.
    pub fn new(superblock: &Superblock) -> Result<Self, FormatError> {
        let corrupt = |what| FormatError::corrupt(Structure::Superblock, Place::Block(0), what);
        let blocks_per_group = superblock.blocks_per_group.get();
        if blocks_per_group == 0 || superblock.inodes_per_group.get() == 0 {
            return Err(corrupt("size of a group"));
        }
        let groups = superblock.blocks().div_ceil(u64::from(blocks_per_group));
        let features = superblock.features();
        let flexible = features.has(Feature::FLEX_BG);
        let layout = Self {
            blocks: superblock.blocks(),
            groups: u32::try_from(groups).map_err(|_| corrupt("number of groups"))?,
            blocks_per_group,
            inodes_per_group: superblock.inodes_per_group.get(),
            descriptor_bytes: if features.has(Feature::WIDE) { 64 } else { 32 },
            reserved_descriptor_blocks: superblock.reserved_descriptor_blocks.get().into(),
            first_meta_block: features.has(Feature::META_BG).then(|| superblock.first_meta_group.get()),
            groups_per_flex: if flexible { 1 << superblock.log_groups_per_flex.min(31) } else { 1 },
            sparse: features.has(Feature::SPARSE_SUPER),
            huge_files: features.has(Feature::HUGE_FILE),
            checksums: superblock.checksums(),
        };
        if layout.first_meta_block.is_some_and(|first| u64::from(first) > layout.descriptor_blocks()) {
            return Err(corrupt("first block of descriptors inside groups"));
        }
        let base = 1 + layout.descriptor_blocks_in_front() + u64::from(layout.reserved_descriptor_blocks);
        if base >= u64::from(blocks_per_group) || base >= layout.blocks {
            return Err(corrupt("room for the descriptors"));
        }
        Ok(layout)
    }

    /// Whether it is the layout of the same filesystem when that has grown.
    pub fn is_grown_from(&self, before: &Layout) -> bool {
        let same = Layout {
            blocks: before.blocks,
            groups: before.groups,
            first_meta_block: before.first_meta_block,
            ..*self
        };
        let stays = before.first_meta_block.is_none_or(|first| self.first_meta_block == Some(first));
        same == *before && stays && self.blocks > before.blocks
    }

    /// Blocks in the filesystem.
    pub fn blocks(&self) -> u64 {
        self.blocks
    }

    /// The size of the largest file, in bytes. Its last block has the greatest number that an extent can map, 2^32 - 2;
    /// without the feature `huge_file` its sectors must be less than 2^32, too.
    pub fn file_bytes_max(&self) -> u64 {
        let blocks = match self.huge_files {
            true => u64::from(u32::MAX),
            false => u64::from(u32::MAX) / SECTORS_PER_BLOCK,
        };
        blocks * BLOCK_BYTES as u64
    }

    /// The sectors of 512 bytes that an inode may count, its metadata blocks included: 2^32 - 1 without the feature
    /// `huge_file`.
    pub fn file_sectors_max(&self) -> u64 {
        if self.huge_files { u64::MAX } else { u32::MAX.into() }
    }

    /// Groups in the filesystem.
    pub fn groups(&self) -> u32 {
        self.groups
    }

    /// Inodes in the filesystem.
    pub fn inodes(&self) -> u32 {
        // The superblock's check: this is its number of inodes, which has 32 bits.
        self.groups.saturating_mul(self.inodes_per_group)
    }

    /// Blocks in every group but the last.
    pub fn blocks_per_group(&self) -> u32 {
        self.blocks_per_group
    }

    /// Inodes in every group.
    pub fn inodes_per_group(&self) -> u32 {
        self.inodes_per_group
    }

    /// Groups in a flexible group; 1 without the feature `flex_bg`.
    pub fn groups_per_flex(&self) -> u32 {
        self.groups_per_flex
    }

    /// Blocks of one group's inode table.
    pub fn table_blocks(&self) -> u32 {
        self.inodes_per_group.div_ceil(INODES_PER_BLOCK)
    }

    /// How structures are sealed.
    pub fn checksums(&self) -> Checksums {
        self.checksums
    }

    /// Bytes of a descriptor: 32, or 64 with the feature `64bit`.
    pub fn descriptor_bytes(&self) -> usize {
        self.descriptor_bytes as usize
    }

    /// Blocks that all descriptors take.
    pub fn descriptor_blocks(&self) -> u64 {
        (u64::from(self.groups) * u64::from(self.descriptor_bytes)).div_ceil(BLOCK_BYTES as u64)
    }

    /// Of these, the blocks behind the superblock.
    pub fn descriptor_blocks_in_front(&self) -> u64 {
        let all = self.descriptor_blocks();
        self.first_meta_block.map_or(all, |first| all.min(first.into()))
    }

    /// Descriptors in a block of them.
    fn descriptors_per_block(&self) -> u32 {
        BLOCK_BYTES as u32 / self.descriptor_bytes
    }

    /// Whether the block of descriptors that describes a group lies in a group that it describes.
    fn has_descriptors_inside(&self, group: u32) -> bool {
        self.first_meta_block.is_some_and(|first| group / self.descriptors_per_block() >= first)
    }

    /// The groups that the block of descriptors of `group` describes.
    fn described_with(&self, group: u32) -> Range<u32> {
        let each = self.descriptors_per_block();
        let first = group - group % each;
        first..first.saturating_add(each)
    }

    /// The place of a block of descriptors: the block with this index, from 0.
    pub(crate) fn descriptor_block(&self, index: u64) -> u64 {
        let first = (index * u64::from(self.descriptors_per_block())) as u32;
        match self.has_descriptors_inside(first) {
            true => self.first_block(first) + u64::from(self.has_superblock(first)),
            false => 1 + index,
        }
    }

    /// The places of the copies of the block of descriptors with this index.
    pub(crate) fn descriptor_copies(&self, index: u64) -> Vec<u64> {
        let first = (index * u64::from(self.descriptors_per_block())) as u32;
        if self.has_descriptors_inside(first) {
            let described = self.described_with(first);
            let copies = [first + 1, described.end - 1].into_iter().filter(|group| *group < self.groups);
            return copies
                .map(|group| self.first_block(group) + u64::from(self.has_superblock(group)))
                .collect();
        }
        let copies = (1..self.groups).filter(|group| self.has_superblock(*group));
        let copies = copies.filter(|group| !self.has_descriptors_inside(*group));
        copies.map(|group| self.first_block(group) + 1 + index).collect()
    }

    /// The group that a block lies in; `None` beyond the end.
    pub fn group_of(&self, block: u64) -> Option<u32> {
        (block < self.blocks).then(|| (block / u64::from(self.blocks_per_group)) as u32)
    }

    /// The first block of a group.
    pub fn first_block(&self, group: u32) -> u64 {
        u64::from(group) * u64::from(self.blocks_per_group)
    }

    /// Blocks in a group: fewer in the last, none beyond.
    pub fn blocks_in(&self, group: u32) -> u32 {
        let rest = self.blocks.saturating_sub(self.first_block(group));
        rest.min(u64::from(self.blocks_per_group)) as u32
    }

    /// Whether a group starts with the superblock or a copy of it, followed by the descriptors. With
    /// `sparse_super` those are groups 0, 1, and the powers of 3, 5 and 7.
    pub fn has_superblock(&self, group: u32) -> bool {
        !self.sparse || group <= 1 || [3, 5, 7].into_iter().any(|base| is_power(group, base))
    }

    /// Blocks at the start of a group for the superblock, the descriptors and their reserve.
    pub fn base_blocks(&self, group: u32) -> u32 {
        if self.has_descriptors_inside(group) {
            let described = self.described_with(group);
            let has_descriptors = group < described.start + 2 || group == described.end - 1;
            return u32::from(self.has_superblock(group)) + u32::from(has_descriptors);
        }
        if !self.has_superblock(group) {
            return 0;
        }
        // `new` checked that they fit in a group.
        1 + self.descriptor_blocks_in_front() as u32 + self.reserved_descriptor_blocks
    }

    /// The groups that share a flexible group with `group`.
    pub fn flex_members(&self, group: u32) -> Range<u32> {
        let first = group - group % self.groups_per_flex;
        first..first.saturating_add(self.groups_per_flex).min(self.groups)
    }

    /// Blocks behind the base of a group that mkfs of this crate gives to bitmaps and inode tables: those of
    /// its whole flexible group in the first of it, none in the others. In other images only the descriptors
    /// know.
    pub(crate) fn table_room(&self, group: u32) -> u32 {
        let members = self.flex_members(group);
        if members.start == group { (members.end - group) * (2 + self.table_blocks()) } else { 0 }
    }

    /// The block of the descriptors, and the bytes in it, that describe `group`.
    ///
    /// # Errors
    ///
    /// [`FormatError::Invalid`] if there is no such group.
    pub fn descriptor_place(&self, group: u32) -> Result<(u64, Range<usize>), FormatError> {
        if group >= self.groups {
            return Err(FormatError::Invalid { what: "a group beyond the last" });
        }
        let byte = u64::from(group) * u64::from(self.descriptor_bytes);
        let start = (byte % BLOCK_BYTES as u64) as usize;
        Ok((self.descriptor_block(byte / BLOCK_BYTES as u64), start..start + self.descriptor_bytes()))
    }

    /// The group of an inode, and its place in the group's bitmap and table.
    ///
    /// # Errors
    ///
    /// [`FormatError::Corrupt`] if there is no such inode: the number usually comes from a directory.
    pub fn inode_group(&self, inode: u32) -> Result<(u32, u32), FormatError> {
        if inode == 0 || inode > self.inodes() {
            return Err(FormatError::corrupt(Structure::Inode, Place::Inode(inode), "no such inode"));
        }
        Ok(((inode - 1) / self.inodes_per_group, (inode - 1) % self.inodes_per_group))
    }

    /// The number of the inode at `index` of a group.
    pub fn inode_at(&self, group: u32, index: u32) -> u32 {
        group * self.inodes_per_group + index + 1
    }

    /// The block, and the bytes in it, of the inode at `index` of the group with `descriptor`.
    pub fn inode_place(&self, descriptor: &Descriptor, index: u32) -> (u64, Range<usize>) {
        let start = (index % INODES_PER_BLOCK) as usize * INODE_BYTES;
        let block = descriptor.inode_table() + u64::from(index / INODES_PER_BLOCK);
        (block, start..start + INODE_BYTES)
    }

    /// Writes the block bitmap of a group whose bitmap was never written: its own metadata is in use, and
    /// what is beyond the group's end.
    pub fn fresh_block_bitmap(&self, group: u32, descriptor: &Descriptor, bits: &mut [u8]) {
        bits.fill(0);
        bitmap::set(bits, 0..self.base_blocks(group));
        let (first, length) = (self.first_block(group), self.blocks_in(group));
        let own = [
            (descriptor.block_bitmap(), 1),
            (descriptor.inode_bitmap(), 1),
            (descriptor.inode_table(), u64::from(self.table_blocks())),
        ];
        for (start, count) in own {
            let bit = |block: u64| block.saturating_sub(first).min(u64::from(length)) as u32;
            bitmap::set(bits, bit(start)..bit(start + count));
        }
        bitmap::set(bits, length..BLOCK_BYTES as u32 * 8);
    }

    /// Writes the inode bitmap of a group whose bitmap was never written: no inode is in use.
    pub fn fresh_inode_bitmap(&self, bits: &mut [u8]) {
        bits.fill(0);
        bitmap::set(bits, self.inodes_per_group..BLOCK_BYTES as u32 * 8);
    }

    /// The bytes of a block bitmap that its checksum covers.
    pub(crate) fn used_block_bits<'a>(&self, bits: &'a [u8]) -> &'a [u8] {
        &bits[..bits.len().min(self.blocks_per_group as usize / 8)]
    }

    /// The bytes of an inode bitmap that its checksum covers.
    pub(crate) fn used_inode_bits<'a>(&self, bits: &'a [u8]) -> &'a [u8] {
        &bits[..bits.len().min(self.inodes_per_group as usize / 8)]
    }
}

fn is_power(mut number: u32, base: u32) -> bool {
    while number > 1 && number.is_multiple_of(base) {
        number /= base;
    }
    number == 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_are_at_powers_of_3_5_and_7() {
        let powers = (2..400).filter(|group| [3, 5, 7].into_iter().any(|base| is_power(*group, base)));
        assert_eq!(powers.collect::<Vec<u32>>(), [3, 5, 7, 9, 25, 27, 49, 81, 125, 243, 343]);
    }
}
