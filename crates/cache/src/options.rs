//! How much a cache may keep.

use crate::mutants::CacheRules;

/// The options of a cache.
#[derive(Clone, Copy, Debug)]
pub struct CacheOptions {
    /// File data that may be kept in memory, in bytes.
    pub cache_bytes: u64,
    /// Dirty file data from which on writeback begins, in bytes.
    pub dirty_background_bytes: u64,
    /// Dirty file data from which on writers wait for writeback, in bytes.
    pub dirty_bytes: u64,
    /// The rules that this cache keeps: all of them.
    pub rules: CacheRules,
}
