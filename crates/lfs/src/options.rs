//! How a filesystem is mounted.

use std::time::Duration;

use weir_cache::CacheOptions;

use crate::cleaner_kind::Cleaner;
use crate::mutants::LfsRules;

/// When a synchronisation call flushes the storage's cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Flushes {
    /// Behind nodes, and between pages and nodes where the storage keeps no order (L3).
    #[default]
    Ordered,
    /// Behind nodes only, as Linux's F2FS: a comparator. A power cut inside a call may leave nodes without their pages.
    Once,
    /// Never, as with F2FS's mount option `nobarrier`: a comparator. A power cut may lose what was synchronised.
    Never,
}

/// How a filesystem is mounted.
#[derive(Clone, Copy, Debug)]
pub struct F2fsOptions {
    /// Nothing is changed: an image that a power cut has left is refused.
    pub read_only: bool,
    /// When a synchronisation call flushes the storage's cache.
    pub flushes: Flushes,
    /// A synchronisation call overwrites so many dirty pages of a file, or fewer, in place; the default of Linux's F2FS is 8, and it does
    /// so at every `fdatasync`, however many are dirty. 0 writes every page to a new place.
    pub in_place_pages: usize,
    /// How the cleaner moves blocks.
    pub cleaner: Cleaner,
    /// Bytes of file data in memory.
    pub cache_bytes: u64,
    /// Dirty bytes from which on they are written back.
    pub dirty_background_bytes: u64,
    /// Dirty bytes at which writers wait.
    pub dirty_bytes: u64,
    /// Inodes, and as many other nodes, that stay in memory beside those in use.
    pub cache_inodes: usize,
    /// A checkpoint is written when the last one is so old, if anything was changed.
    pub checkpoint_interval: Duration,
    /// The rules that this filesystem keeps: all of them.
    pub rules: LfsRules,
}

impl F2fsOptions {
    /// Those of the page cache.
    pub(crate) fn cache(&self) -> CacheOptions {
        let F2fsOptions { cache_bytes, dirty_background_bytes, dirty_bytes, .. } = *self;
        CacheOptions { cache_bytes, dirty_background_bytes, dirty_bytes, rules: Default::default() }
    }
}

impl Default for F2fsOptions {
    fn default() -> F2fsOptions {
        F2fsOptions {
            read_only: false,
            flushes: Flushes::Ordered,
            in_place_pages: 8,
            cleaner: Cleaner::Copy,
            cache_bytes: 256 << 20,
            dirty_background_bytes: 32 << 20,
            dirty_bytes: 64 << 20,
            cache_inodes: 1 << 14,
            checkpoint_interval: Duration::from_secs(60),
            rules: LfsRules::all(),
        }
    }
}
