//! How much memory a mounted filesystem takes at most, by its options and its size.

use weir_ext4::{BLOCK_BYTES, Layout};

use crate::names::NAMES_BYTES_MAX;
use crate::options::MountOptions;

/// A block in memory: its content, its places in trees and queues, and who shares it.
const BLOCK_COST: u64 = BLOCK_BYTES as u64 + 320;
/// An inode in memory, without its pages.
const NODE_COST: u64 = 1 << 10;
/// Bitmaps of a group: what is taken, what is freed and waits for its commit or its discard, what is being discarded.
const GROUP_BITMAPS: u64 = 5;

/// What a mounted filesystem takes of memory at most, in bytes; see
/// [`memory_bound`](crate::Filesystem::memory_bound).
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
    pub(crate) fn of(options: &MountOptions, layout: &Layout, pages: usize, journal: u32) -> MemoryBound {
        let journal = u64::from(journal);
        let metadata = (options.cache_metadata_blocks as u64).max(journal);
        let nodes = options.cache_inodes as u64 * NODE_COST;
        let bitmaps = u64::from(layout.groups()) * GROUP_BITMAPS * BLOCK_BYTES as u64;
        MemoryBound {
            files: pages as u64 * BLOCK_COST,
            // What is committed and not home, and updates of atomic files, which one transaction takes.
            changes: 2 * journal * BLOCK_COST + nodes,
            caches: metadata * BLOCK_COST + nodes + NAMES_BYTES_MAX + bitmaps,
        }
    }
}
