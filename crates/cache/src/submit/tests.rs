//! How pages are submitted that no call asks for.

use std::rc::Rc;

use weir_block::{BlockLayer, BlockOptions};
use weir_journal::{Disk, JournalMutant, JournalRules, SyncedFile};
use weir_runtime::{Buffer, Runtime, Simulation};
use weir_storage::{AdversaryDisk, AdversaryOptions, BLOCK_BYTES, Capabilities, Ordering, Rules, Storage};

use crate::file::CachedFile;
use crate::mutants::{CacheMutant, CacheRules};
use crate::options::CacheOptions;
use crate::page_cache::PageCache;

/// Writeback waits for its turn at a file, while a call promises order and a page of the file changes behind that: whether the
/// page is written without order.
fn overtakes(rules: CacheRules, journal: JournalRules) -> bool {
    let runtime = Runtime::simulated(Simulation::default());
    let clock = runtime.handle();
    let played = async {
        let legacy = Capabilities::legacy(32, 256, 4096);
        let capabilities = Capabilities { ordering: Ordering::Barrier, ordered_service: true, ..legacy };
        let options = AdversaryOptions { capabilities, ..AdversaryOptions::default() };
        let storage = AdversaryDisk::new(&clock, options) as Rc<dyn Storage>;
        let layer = BlockLayer::new(&clock, storage, BlockOptions::default()).expect("a disk that fits");
        let disk = Disk::new(&clock, layer, capabilities, journal);
        let bytes = 64 * BLOCK_BYTES as u64;
        let options =
            CacheOptions { cache_bytes: bytes, dirty_background_bytes: bytes, dirty_bytes: bytes, rules };
        let cache = PageCache::new(Rc::clone(&disk), options);
        let file = CachedFile::new(12, &cache);
        file.insert(0, 100, Rc::new(Buffer::new(BLOCK_BYTES)));
        assert!(file.change(0, 0, b"before"));
        let turn = file.take_turn().await;
        let waiting = Rc::clone(&file);
        let writeback = clock.spawn(async move { waiting.submit_unasked().await });
        clock.yield_now().await;
        disk.promise_order();
        assert!(file.change(0, 0, b"behind"));
        drop(turn);
        assert_eq!(writeback.await.expect("not cancelled"), Ok(true));
        let orderless = file.in_flight.borrow().flights.back().expect("on its way").orderless;
        file.wait_transferred().await.expect("written");
        orderless
    };
    runtime.block_on(played).expect("no stall")
}

#[test]
fn j3_writeback_decides_with_its_turn_whether_it_keeps_order() {
    assert!(!overtakes(CacheRules::all(), JournalRules::all()));
    let early = Rules::but(Some(CacheMutant::WritebackDecidesEarly));
    assert!(overtakes(early, JournalRules::all()), "a rule of the cache that is dropped was not noticed");
    let never = Rules::but(Some(JournalMutant::WritebackOvertakes));
    assert!(overtakes(CacheRules::all(), never), "a rule of the journal that is dropped was not noticed");
}
