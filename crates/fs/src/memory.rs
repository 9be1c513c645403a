//! How much memory a mounted filesystem takes at most, by its options and its size.

use weir_ext4::Layout;
use weir_format::BLOCK_BYTES;
use weir_vfs::NAMES_BYTES_MAX;

use crate::options::MountOptions;
use crate::space::READY_GROUPS_MAX;

/// A block in memory: its content, its places in trees and queues, and its reference counts.
const BLOCK_COST: u64 = BLOCK_BYTES as u64 + 320;
/// An inode in memory, without its pages.
const NODE_COST: u64 = 1 << 10;
/// A group in memory, without bitmaps.
const GROUP_COST: u64 = 128;
/// Bitmaps of a group in which something was freed: what waits for its commit, is young, and is old. The group's own bitmap is in the
/// journal then.
const FREED_BITMAPS: u64 = 3;
const BITMAP_COST: u64 = BLOCK_BYTES as u64;

/// What a mounted filesystem takes of memory at most, in bytes; see
/// [`memory_bound`](crate::BarrierFs::memory_bound).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryBound {
    /// For what files hold.
    pub files: u64,
    /// For changes that are not committed, and inodes that are open, dirty or not committed.
    pub changes: u64,
    /// For what stays when there are no files and no changes: metadata, inodes, names, and bitmaps.
    pub caches: u64,
}

impl MemoryBound {
    /// With so many pages at most, and a journal of so many blocks.
    pub(crate) fn from_options(
        options: &MountOptions,
        layout: &Layout,
        pages: usize,
        journal: u32,
    ) -> MemoryBound {
        let journal = u64::from(journal);
        let metadata = (options.cache_metadata_blocks as u64).max(journal);
        let nodes = options.cache_inodes as u64 * NODE_COST;
        let groups = u64::from(layout.groups());
        let known = groups.min(options.cache_groups as u64) * BITMAP_COST;
        let freed = FREED_BITMAPS * groups.min(journal) * BITMAP_COST;
        MemoryBound {
            files: pages as u64 * BLOCK_COST,
            // What is committed and not home, and updates of atomic files, which one transaction takes.
            changes: 2 * journal * BLOCK_COST + nodes + freed,
            caches: metadata * BLOCK_COST + nodes + known + MemoryBound::fixed(groups),
        }
    }

    /// What a filesystem of so many groups takes whatever its options are.
    fn fixed(groups: u64) -> u64 {
        NAMES_BYTES_MAX + groups * GROUP_COST + groups.min(READY_GROUPS_MAX as u64) * BITMAP_COST
    }
}

/// Blocks of a group, with blocks of 4 KiB.
const BLOCKS_PER_GROUP: u64 = 8 * BLOCK_BYTES as u64;

/// What is kept of everything at least: pages of files, blocks of metadata and of the journal, inodes, bitmaps of groups.
const LEAST: Kept = Kept { pages: 2048, metadata: 1024, journal: 1024, nodes: 1024, groups: 128 };

/// The parts of a filesystem's memory that have a limit, each as a count.
#[derive(Clone, Copy)]
struct Kept {
    pages: u64,
    metadata: u64,
    journal: u64,
    nodes: u64,
    groups: u64,
}

impl Kept {
    /// By the default options, with a journal of 64 MiB.
    fn by_default() -> Kept {
        let MountOptions { cache_bytes, cache_metadata_blocks, cache_inodes, cache_groups, .. } =
            MountOptions::default();
        Kept {
            pages: cache_bytes / BLOCK_BYTES as u64,
            metadata: cache_metadata_blocks as u64,
            journal: cache_metadata_blocks as u64,
            nodes: cache_inodes as u64,
            groups: cache_groups as u64,
        }
    }

    /// What this takes of a filesystem of so many groups, in bytes.
    fn cost(&self, groups: u64) -> u64 {
        let blocks = self.pages + self.metadata.max(self.journal) + 2 * self.journal;
        let bitmaps = groups.min(self.groups) + FREED_BITMAPS * self.groups_in_journal(groups);
        blocks * BLOCK_COST + 2 * self.nodes * NODE_COST + bitmaps * BITMAP_COST
    }

    /// Groups of which something can be in the journal: no more than it has blocks. Of a filesystem that has few, all.
    fn groups_in_journal(&self, groups: u64) -> u64 {
        if groups <= LEAST.journal { groups } else { self.journal }
    }
}

impl MountOptions {
    /// These options with all caches, and the part of the journal that is used, as large as `bytes` of memory allow for a
    /// filesystem of so many blocks; no cache is larger than by default.
    ///
    /// # Errors
    /// The bytes that it takes at least, if that is more.
    pub fn within_memory(self, blocks: u64, bytes: u64) -> Result<MountOptions, u64> {
        let groups = blocks.div_ceil(BLOCKS_PER_GROUP);
        let full = Kept::by_default();
        // A share of what is kept costs that share of the memory.
        let full = Kept { groups: full.groups.min(groups).max(LEAST.groups), ..full };
        let least = MemoryBound::fixed(groups) + LEAST.cost(groups);
        let spare = bytes.checked_sub(least).ok_or(least)?;
        let range = full.cost(groups) - LEAST.cost(groups);
        let share = |least: u64, full: u64| {
            let more = u128::from(full - least) * u128::from(spare.min(range)) / u128::from(range);
            least + more as u64
        };
        let pages = share(LEAST.pages, full.pages);
        // What is left belongs to the journal, which may be larger than that of the default.
        let of_journal = 3 * BLOCK_COST + FREED_BITMAPS * BITMAP_COST;
        let journal = share(LEAST.journal, full.journal) + spare.saturating_sub(range) / of_journal;
        let cache_bytes = pages * BLOCK_BYTES as u64;
        Ok(MountOptions {
            cache_bytes,
            dirty_bytes: cache_bytes / 4,
            dirty_background_bytes: cache_bytes / 16,
            cache_metadata_blocks: share(LEAST.metadata, full.metadata) as usize,
            cache_inodes: share(LEAST.nodes, full.nodes) as usize,
            cache_groups: share(LEAST.groups, full.groups) as usize,
            journal_blocks_max: u32::try_from(journal).unwrap_or(u32::MAX),
            ..self
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The bound of a filesystem of so many blocks with these options, and a journal as large as they let it be.
    fn bound(options: &MountOptions, blocks: u64) -> u64 {
        let journal = u64::from(options.journal_blocks_max);
        let kept = Kept {
            pages: options.cache_bytes / BLOCK_BYTES as u64,
            metadata: options.cache_metadata_blocks as u64,
            journal,
            nodes: options.cache_inodes as u64,
            groups: options.cache_groups as u64,
        };
        let groups = blocks.div_ceil(BLOCKS_PER_GROUP);
        MemoryBound::fixed(groups) + kept.cost(groups)
    }

    #[test]
    fn what_is_kept_fits_the_memory() {
        for blocks in [1 << 13, 1 << 20, 1 << 25, 1 << 28, 1 << 32] {
            let least = MountOptions::default().within_memory(blocks, 0).expect_err("nothing fits");
            for bytes in [least, least + 1, least + (100 << 20), 1 << 30, 1 << 40] {
                let Ok(options) = MountOptions::default().within_memory(blocks, bytes) else {
                    assert!(bytes < least);
                    continue;
                };
                assert!(bytes == 1 << 40 || bound(&options, blocks) <= bytes, "{blocks} blocks in {bytes}");
                assert!(options.cache_bytes <= MountOptions::default().cache_bytes);
                assert!(options.dirty_bytes <= MountOptions::default().dirty_bytes);
            }
        }
    }
}
