//! How pages are submitted that no call asks for.

use std::rc::Rc;

use weir_journal::{JournalMutant, JournalRules, SyncedFile};
use weir_runtime::{Buffer, Runtime, Simulation};
use weir_storage::{BLOCK_BYTES, Rules};

use crate::file::CachedFile;
use crate::mutants::{CacheMutant, CacheRules};
use crate::stage::new_cache;

/// Writeback waits for its turn at a file, while a call promises order and a page of the file changes behind that: whether the
/// page is written without order.
fn overtakes(rules: CacheRules, journal: JournalRules) -> bool {
    let runtime = Runtime::simulated(Simulation::default());
    let clock = runtime.handle();
    let played = async {
        let cache = new_cache(&clock, rules, journal);
        let file = CachedFile::new(12, &cache, None);
        file.insert(0, 100, Rc::new(Buffer::new(BLOCK_BYTES)));
        assert!(file.change(0, 0, b"before"));
        let turn = file.take_turn().await;
        let waiting = Rc::clone(&file);
        let writeback = clock.spawn(async move { waiting.submit_unasked().await });
        clock.yield_now().await;
        cache.disk.promise_order();
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
