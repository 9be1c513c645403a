//! A cache on a disk, for tests.

use std::rc::Rc;

use weir_block::{BlockLayer, BlockOptions};
use weir_journal::{Disk, JournalRules};
use weir_runtime::Handle;
use weir_storage::{AdversaryDisk, AdversaryOptions, BLOCK_BYTES, Capabilities, Ordering, Storage};

use crate::mutants::CacheRules;
use crate::options::CacheOptions;
use crate::page_cache::PageCache;

/// A cache of 64 pages, of which 10 may be dirty before writeback begins, on a disk with barriers of 4,096 blocks.
pub(crate) fn new_cache(clock: &Handle, rules: CacheRules, journal: JournalRules) -> Rc<PageCache> {
    let legacy = Capabilities::legacy(32, 256, 4096);
    let capabilities = Capabilities { ordering: Ordering::Barrier, ordered_service: true, ..legacy };
    let options = AdversaryOptions { blocks: 4096, capabilities, ..AdversaryOptions::default() };
    let storage = AdversaryDisk::new(clock, options) as Rc<dyn Storage>;
    let layer = BlockLayer::new(clock, storage, BlockOptions::default()).expect("a disk that fits");
    let block = BLOCK_BYTES as u64;
    let options = CacheOptions {
        cache_bytes: 64 * block,
        dirty_background_bytes: 10 * block,
        dirty_bytes: 32 * block,
        rules,
    };
    PageCache::new(Disk::new(clock, layer, capabilities, journal), options)
}
