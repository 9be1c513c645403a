//! How large the parts of a new image are.

use weir_format::{BLOCK_BYTES, FormatError};
use zerocopy::little_endian::U32;

use super::{BLOCKS_PER_GROUP, LAST_GROUP_ROOM, LOG_GROUPS_PER_FLEX, Mkfs};
use crate::inode::JOURNAL_INODE;
use crate::layout::Layout;
use crate::superblock::Superblock;

/// Access control lists and attributes of users are on if a mount does not say otherwise.
const MOUNT_OPTIONS: u32 = 0x4 | 0x8;
/// Half MD4.
const HASH_VERSION: u8 = 1;
/// Bytes of newer fields that every inode has room for.
const EXTRA_ISIZE: u16 = 32;

/// The superblock but for what is in use, and the layout that it means. A last group that is too small for
/// its own metadata and some files is left out.
pub(super) fn plan(options: &Mkfs) -> Result<(Superblock, Layout), FormatError> {
    let mut superblock = blank(options);
    let mut blocks = options.blocks;
    loop {
        let groups = blocks.div_ceil(u64::from(BLOCKS_PER_GROUP)) as u32;
        superblock.set_blocks(blocks, blocks * u64::from(options.reserved_percent) / 100);
        superblock.inodes = (groups * superblock.inodes_per_group.get()).into();
        let layout = Layout::new(&superblock)?;
        let last = groups - 1;
        let taken = layout.base_blocks(last) + layout.table_room(last) + LAST_GROUP_ROOM;
        if last == 0 || layout.blocks_in(last) >= taken {
            return Ok((superblock, layout));
        }
        blocks = layout.first_block(last);
    }
}

fn blank(options: &Mkfs) -> Superblock {
    let mut superblock = Superblock::blank(options.features());
    superblock.uuid = options.uuid;
    let seeds = options.hash_seed.chunks_exact(4);
    for (seed, bytes) in superblock.hash_seed.iter_mut().zip(seeds) {
        *seed = U32::from_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
    }
    superblock.hash_version = HASH_VERSION;
    superblock.label[..options.label.len()].copy_from_slice(options.label.as_bytes());
    for time in [&mut superblock.created, &mut superblock.write_time, &mut superblock.check_time] {
        *time = options.created.into();
    }
    superblock.mounts_max = u16::MAX.into();
    superblock.on_errors = 1.into();
    superblock.mount_options = MOUNT_OPTIONS.into();
    superblock.blocks_per_group = BLOCKS_PER_GROUP.into();
    superblock.clusters_per_group = BLOCKS_PER_GROUP.into();
    superblock.inodes_per_group = inodes_per_group(options).into();
    superblock.first_inode = 11.into();
    superblock.journal_inode = JOURNAL_INODE.into();
    superblock.descriptor_size = 64.into();
    superblock.extra_isize_min = EXTRA_ISIZE.into();
    superblock.extra_isize_wanted = EXTRA_ISIZE.into();
    superblock.log_groups_per_flex = LOG_GROUPS_PER_FLEX;
    superblock
}

/// Inodes in each group: a multiple of the sixteen in a block, and so few that the tables of a flexible group
/// take no more than half of its first group.
fn inodes_per_group(options: &Mkfs) -> u32 {
    let bytes = options.blocks * BLOCK_BYTES as u64;
    let each = options.bytes_per_inode.map_or_else(
        || match bytes >> 20 {
            0..512 => 4096,
            512..4_194_304 => 16_384,
            _ => 32_768,
        },
        u64::from,
    );
    let groups = options.blocks.div_ceil(u64::from(BLOCKS_PER_GROUP));
    let members = groups.min(1 << LOG_GROUPS_PER_FLEX);
    let table_blocks_max = u64::from(BLOCKS_PER_GROUP) / 2 / members - 2;
    let most = (table_blocks_max * 16).min(u64::from(BLOCKS_PER_GROUP));
    (bytes / each).div_ceil(groups).next_multiple_of(16).clamp(16, most) as u32
}
