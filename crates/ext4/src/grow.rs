//! Growing: what a filesystem with more blocks consists of.
//!
//! New groups have their bitmaps and inode tables at their own start. A block of descriptors that describes nothing but new groups
//! lies behind the old end, as their bitmaps do ([`meta_bg`](Feature::META_BG)). So all that changes of the filesystem as it was are the
//! superblock, the bitmap of a last group that was not full, and the block of descriptors that describes it: what one transaction
//! holds, whatever the size. Copies of superblock and descriptors come after it.

use std::ops::Range;

use weir_format::{BLOCK_BYTES, FormatError};

use crate::descriptor::{Descriptor, group_flags};
use crate::features::Feature;
use crate::layout::Layout;
use crate::mkfs::LAST_GROUP_ROOM;
use crate::superblock::Superblock;

type Block = [u8; BLOCK_BYTES];

/// Why a filesystem with a reserve for descriptors does not grow far.
const RESERVE: &str = "growing, with a reserve for descriptors (resize_inode), by groups that have copies: unmount it, and run resize2fs";

/// A filesystem and what makes it larger.
#[derive(Clone, Debug)]
pub struct Growth {
    /// Where everything is then.
    pub layout: Layout,
    old: Layout,
    descriptors: Vec<Descriptor>,
    /// The superblock with the new sizes.
    superblock: Superblock,
    free_blocks: u64,
    overhead: u64,
}

impl Growth {
    /// What makes a filesystem as large as fits into `blocks` blocks; `None` if it is as large. A rest too small for a group is left out.
    ///
    /// # Errors
    /// [`FormatError::Unsupported`] if the filesystem has a reserve for descriptors, and more than its last group grows, or if new groups
    /// have no room for their metadata; [`FormatError::Full`] if there would be more inodes or blocks than its fields count.
    pub fn plan(superblock: &Superblock, blocks: u64) -> Result<Option<Growth>, FormatError> {
        let old = Layout::new(superblock)?;
        let mut new = *superblock;
        let mut blocks = blocks;
        let layout = loop {
            if blocks <= old.blocks() {
                return Ok(None);
            }
            let layout = enlarge(&mut new, superblock, &old, blocks)?;
            let last = layout.groups() - 1;
            if last < old.groups() || layout.blocks_in(last) >= own_blocks(&layout, last) + LAST_GROUP_ROOM {
                break layout;
            }
            blocks = layout.first_block(last);
        };
        let descriptors = Vec::new();
        let new_groups = old.groups()..layout.groups();
        if new_groups.clone().any(|group| layout.blocks_in(group) < own_blocks(&layout, group)) {
            return Err(FormatError::Unsupported {
                what: "growing, with groups too small for their own metadata",
            });
        }
        // The inode that holds the reserve would have to name its blocks in new copies.
        if superblock.reserved_descriptor_blocks.get() > 0
            && new_groups.into_iter().any(|group| layout.has_superblock(group))
        {
            return Err(FormatError::Unsupported { what: RESERVE });
        }
        let mut growth = Growth { layout, old, descriptors, superblock: new, free_blocks: 0, overhead: 0 };
        growth.describe_groups();
        Ok(Some(growth))
    }

    /// The new groups.
    pub fn groups(&self) -> Range<u32> {
        self.old.groups()..self.layout.groups()
    }

    /// The descriptors of the new groups, in order.
    pub fn descriptors(&self) -> &[Descriptor] {
        &self.descriptors
    }

    /// The bits that become free in the bitmap of the last group that there was, if it was not full.
    pub fn freed(&self) -> (u32, Range<u32>) {
        let last = self.old.groups() - 1;
        (last, self.old.blocks_in(last)..self.layout.blocks_in(last))
    }

    /// Inodes that it gets.
    pub fn inodes(&self) -> u32 {
        self.groups().len() as u32 * self.layout.inodes_per_group()
    }

    /// Blocks that become free.
    pub fn free_blocks(&self) -> u64 {
        self.free_blocks
    }

    /// Blocks that the format takes of what is added.
    pub fn overhead_blocks(&self) -> u64 {
        self.overhead
    }

    /// Says in a superblock of the filesystem that it has grown.
    pub fn update_superblock(&self, superblock: &mut Superblock) {
        let new = &self.superblock;
        superblock.set_blocks(new.blocks(), new.reserved_blocks());
        superblock.inodes = new.inodes;
        superblock.first_meta_group = new.first_meta_group;
        let features = superblock.features();
        superblock.set_features(features.with(Feature::META_BG, new.features().has(Feature::META_BG)));
        superblock.set_free_blocks(superblock.free_blocks() + self.free_blocks);
        superblock.free_inodes = superblock.free_inodes.get().saturating_add(self.inodes()).into();
        let overhead = u64::from(superblock.overhead_blocks.get()) + self.overhead;
        superblock.overhead_blocks = u32::try_from(overhead).unwrap_or(0).into();
    }

    /// What has to be written behind the old end before the superblock says that it belongs to the filesystem. All else
    /// there has to read zeros.
    pub fn writes(&self) -> impl Iterator<Item = (u64, Block)> + '_ {
        let each = BLOCK_BYTES / self.layout.descriptor_bytes();
        let bitmaps = self.groups().zip(&self.descriptors).flat_map(|(group, descriptor)| {
            let blocks = || self.block_bitmap(group, descriptor);
            descriptor.written_bitmaps(blocks, || self.inode_bitmap()).into_iter().flatten()
        });
        let first = self.old.descriptor_blocks();
        let described = (first..self.layout.descriptor_blocks()).map(move |index| {
            let mut block = [0; BLOCK_BYTES];
            let groups = (index * each as u64) as u32..self.layout.groups();
            for (group, bytes) in groups.zip(block.chunks_exact_mut(self.layout.descriptor_bytes())) {
                let mut descriptor = self.descriptors[(group - self.old.groups()) as usize];
                descriptor.write(bytes, group, &self.layout);
            }
            (self.layout.descriptor_block(index), block)
        });
        bitmaps.chain(described)
    }

    /// The new groups whose descriptors lie in a block that describes an old group as well, with their descriptors.
    pub fn described_with_old(&self) -> impl Iterator<Item = (u32, Descriptor)> + '_ {
        let each = (BLOCK_BYTES / self.layout.descriptor_bytes()) as u32;
        let end = self.old.groups().next_multiple_of(each);
        self.groups().zip(self.descriptors.iter().copied()).take_while(move |(group, _)| *group < end)
    }

    /// Makes the descriptors of the new groups, and counts what is free.
    fn describe_groups(&mut self) {
        let (layout, last) = (self.layout, self.layout.groups() - 1);
        let has_flags = layout.checksums().seed().is_some();
        let inodes = layout.inodes_per_group();
        let (_, freed) = self.freed();
        self.free_blocks = u64::from(freed.end - freed.start);
        for group in self.groups() {
            let own = own_blocks(&layout, group);
            let free = layout.blocks_in(group) - own;
            let start = layout.first_block(group) + u64::from(layout.base_blocks(group));
            let mut descriptor = Descriptor::new(start, start + 1, start + 2);
            descriptor.set_free_blocks(free);
            descriptor.set_free_inodes(inodes);
            if has_flags {
                descriptor.set_unused_inodes(inodes);
                descriptor.set_flag(group_flags::TABLE_ZEROED, true);
                descriptor.set_flag(group_flags::INODES_UNINITIALISED, true);
                descriptor.set_flag(group_flags::BLOCKS_UNINITIALISED, group != last);
            }
            let (blocks, used) = (self.block_bitmap(group, &descriptor), self.inode_bitmap());
            descriptor.seal_written_bitmaps(&blocks, &used, &layout);
            self.descriptors.push(descriptor);
            self.free_blocks += u64::from(free);
            self.overhead += u64::from(own);
        }
    }

    fn block_bitmap(&self, group: u32, descriptor: &Descriptor) -> Block {
        let mut bits = [0; BLOCK_BYTES];
        self.layout.fresh_block_bitmap(group, descriptor, &mut bits);
        bits
    }

    fn inode_bitmap(&self) -> Block {
        let mut bits = [0; BLOCK_BYTES];
        self.layout.fresh_inode_bitmap(&mut bits);
        bits
    }
}

/// The copies of a superblock, and their places.
pub fn superblock_copies<'a>(
    superblock: &'a Superblock,
    layout: &'a Layout,
) -> impl Iterator<Item = (u64, Block)> + 'a {
    let groups = (1..layout.groups()).filter(|group| layout.has_superblock(*group));
    groups.map(|group| (layout.first_block(group), superblock.to_block(group)))
}

/// The blocks of descriptors: the place of each, and those of its copies.
pub fn descriptor_copies(layout: &Layout) -> impl Iterator<Item = (u64, Vec<u64>)> + '_ {
    (0..layout.descriptor_blocks())
        .map(|index| (layout.descriptor_block(index), layout.descriptor_copies(index)))
}

/// Blocks at the start of a new group that hold its metadata.
fn own_blocks(layout: &Layout, group: u32) -> u32 {
    layout.base_blocks(group) + 2 + layout.table_blocks()
}

/// Says in `new` that it has so many blocks, with as large a share of them reserved as before.
fn enlarge(
    new: &mut Superblock,
    before: &Superblock,
    old: &Layout,
    blocks: u64,
) -> Result<Layout, FormatError> {
    let reserved =
        u128::from(before.reserved_blocks()) * u128::from(blocks) / u128::from(old.blocks().max(1));
    new.set_blocks(blocks, u64::try_from(reserved).unwrap_or(0));
    let groups = blocks.div_ceil(u64::from(old.blocks_per_group()));
    if blocks > u64::from(u32::MAX) && !before.features().has(Feature::WIDE) {
        let what = "a filesystem without the feature 64bit has fewer than 2^32 blocks: grow it less";
        return Err(FormatError::Full { what });
    }
    let inodes =
        groups.checked_mul(u64::from(old.inodes_per_group())).and_then(|all| u32::try_from(all).ok());
    let inodes =
        inodes.ok_or(FormatError::Full { what: "a filesystem has fewer than 2^32 inodes: grow it less" })?;
    new.inodes = inodes.into();
    let needs_more =
        (groups * old.descriptor_bytes() as u64).div_ceil(BLOCK_BYTES as u64) > old.descriptor_blocks();
    let features = before.features();
    if needs_more && !features.has(Feature::META_BG) {
        if features.has(Feature::RESIZE_INODE) || before.reserved_descriptor_blocks.get() > 0 {
            return Err(FormatError::Unsupported { what: RESERVE });
        }
        new.set_features(features.with(Feature::META_BG, true));
        new.first_meta_group = (old.descriptor_blocks() as u32).into();
    }
    Layout::new(new)
}
