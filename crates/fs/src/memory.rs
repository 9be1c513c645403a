//! How much memory a mounted filesystem takes at most, by its options and its size.

use weir_ext4::BLOCK_BYTES;

use crate::filesystem::Filesystem;
use crate::names::NAMES_BYTES_MAX;

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

impl Filesystem {
    /// What it takes of memory at most, but for what calls that are under way hold themselves. With *block* for a block
    /// in memory, 4,416 bytes, it is the sum of
    ///
    /// - `files`: *block* for each 4,096 of [`cache_bytes`](crate::MountOptions::cache_bytes);
    /// - `changes`: *block* for each block of the journal, for what it has committed of blocks that have changed since, and
    ///   1 KiB for each of [`cache_inodes`](crate::MountOptions::cache_inodes);
    /// - `caches`: *block* for each of [`cache_metadata_blocks`](crate::MountOptions::cache_metadata_blocks), or of the
    ///   journal if it has more, as it may need all that it holds; 1 KiB for each of `cache_inodes`; 20 MiB for names; and
    ///   20 KiB for each group of 32,768 blocks.
    ///
    /// More than that is taken by files that programs have open beyond `cache_inodes`, 1 KiB each, and by names of which
    /// most are longer than 40 bytes.
    pub fn memory_bound(&self) -> MemoryBound {
        let fs = &self.0;
        let journal = fs.changes.as_ref().map_or(0, |journal| u64::from(journal.log_blocks()));
        let metadata = (fs.options.cache_metadata_blocks as u64).max(journal);
        let nodes = fs.options.cache_inodes as u64 * NODE_COST;
        let bitmaps = u64::from(fs.layout.groups()) * GROUP_BITMAPS * BLOCK_BYTES as u64;
        MemoryBound {
            files: fs.cache.most() as u64 * BLOCK_COST,
            changes: journal * BLOCK_COST + nodes,
            caches: metadata * BLOCK_COST + nodes + NAMES_BYTES_MAX + bitmaps,
        }
    }
}
