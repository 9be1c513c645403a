//! Handles that ask for more of the log than a transaction's share: alone in their transaction, and whole after a replay.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use futures_util::future::{Either, select};
use weir_block::{BlockLayer, BlockOptions, Dispatch};
use weir_ext4::Checksums;
use weir_ext4::journal::{JournalSuperblock, Sequence};
use weir_format::BLOCK_BYTES;
use weir_journal::{
    Buffers, Conflicts, Disk, Engine, FoundJournal, Journal, JournalError, JournalExtent, JournalMutant,
    JournalOptions, Reuse, Role, Until,
};
use weir_runtime::{Handle as Clock, Runtime, Simulation};
use weir_storage::{AdversaryDisk, AdversaryOptions, Capabilities, Extent, Ordering, Rules, Storage};

/// Where the journal lies.
const AREA: JournalExtent = JournalExtent { first: 0, start: 4000, blocks: 1000 };

/// Of its 999 blocks behind the superblock one stays free; the others have room for as many copies beside four descriptors of
/// 254 tags at most, a block of revokes and the commit block.
const MOST: u32 = 992;

const ENGINES: [Engine; 6] = [
    Engine::Dual { conflicts: Conflicts::Copy },
    Engine::Dual { conflicts: Conflicts::List },
    Engine::Jbd2 { barrier: true },
    Engine::Prefix,
    Engine::FlushAhead,
    Engine::AsyncCommit,
];

struct Ignored;

impl Reuse for Ignored {
    fn may_be_reused(&self, _: &[Extent], _: Sequence) {}

    fn are_durable(&self, _: Sequence) {}

    fn awaiting_durability(&self) -> u64 {
        0
    }
}

struct Stage {
    storage: Rc<AdversaryDisk>,
    disk: Rc<Disk>,
    buffers: Rc<Buffers>,
    journal: Rc<Journal>,
}

impl Stage {
    async fn new(clock: &Clock, engine: Engine, mutant: Option<JournalMutant>) -> Stage {
        let legacy =
            Capabilities { fua: true, preflush: true, packed: true, ..Capabilities::legacy(32, 64, 512) };
        let (ordering, dispatch) = match engine {
            Engine::Dual { .. } => (Ordering::Barrier, Dispatch::OrderPreserving),
            Engine::Jbd2 { .. } => (legacy.ordering, Dispatch::Legacy),
            Engine::Prefix => (Ordering::Prefix, Dispatch::Legacy),
            Engine::AsyncCommit | Engine::OptFs | Engine::FlushAhead | Engine::Unjournaled => {
                (legacy.ordering, Dispatch::Legacy)
            }
        };
        let ordered_service = ordering == Ordering::Barrier;
        let capabilities = Capabilities { ordering, ordered_service, ..legacy };
        let options = AdversaryOptions { blocks: 5000, capabilities, ..AdversaryOptions::default() };
        let storage = AdversaryDisk::new(clock, options);
        let below = Rc::<AdversaryDisk>::clone(&storage) as Rc<dyn Storage>;
        let layer = BlockLayer::new(clock, below, BlockOptions { dispatch, ..BlockOptions::default() });
        let rules = Rules::but(mutant);
        let disk = Disk::new(clock, layer.expect("it fits"), capabilities, rules);
        let buffers = Buffers::new(Rc::clone(&disk), Checksums::none(), 64);
        let superblock = JournalSuperblock::new([7; 16], AREA.blocks, true).expect("large enough");
        let options = JournalOptions { rules, ..JournalOptions::new(engine) };
        let reuse = Rc::new(Ignored);
        let journal =
            Journal::new(Rc::clone(&disk), Rc::clone(&buffers), reuse, options, superblock, vec![AREA]);
        journal.open().await.expect("open");
        Stage { storage, disk, buffers, journal }
    }

    /// Changes so many blocks with one handle that asks for as many.
    async fn change(&self, blocks: u32, fill: u8) -> Result<Sequence, JournalError> {
        let handle = self.journal.start(blocks).await?;
        for block in 100..100 + u64::from(blocks) {
            let buffer = self.buffers.fresh(block, Role::Data);
            handle.modify(&buffer, 0..BLOCK_BYTES, |bytes| bytes.fill(fill));
        }
        Ok(handle.sequence())
    }
}

/// J8: what asks for most of the log is one transaction: a power cut leaves all of it, once it is durable.
#[test]
fn j8_one_handle_may_change_as_much_as_the_log_has_room_for() {
    for engine in ENGINES {
        let runtime = Runtime::simulated(Simulation::default());
        let clock = runtime.handle();
        let work = async {
            let stage = Stage::new(&clock, engine, None).await;
            let most = stage.journal.most_credits();
            assert_eq!(most, MOST);
            // The log is in use, and something runs.
            for fill in 1..6 {
                let small = stage.change(40, fill).await.expect("room");
                stage.journal.commit(small, Until::Dispatched).await.expect("dispatched");
            }
            stage.change(3, 6).await.expect("room");
            assert_eq!(stage.change(most + 1, 9).await.err(), Some(JournalError::TooSmall));
            let large = stage.change(most, 7).await.expect("room");
            stage.journal.commit(large, Until::Durable).await.expect("durable");
            let cut = stage.storage.crash_states().sample(&mut clock.random("cut"));
            let options = AdversaryOptions { blocks: 5000, ..AdversaryOptions::default() };
            let below = AdversaryDisk::from_image(&clock, options, &cut);
            let capabilities = *below.capabilities();
            let layer = BlockOptions { dispatch: Dispatch::Legacy, ..BlockOptions::default() };
            let layer = BlockLayer::new(&clock, below, layer).expect("it fits");
            let disk = Disk::new(&clock, layer, capabilities, Rules::all());
            let block = disk.read(AREA.start, 1).await.expect("read");
            let superblock = JournalSuperblock::decode(&block, AREA.blocks).expect("a superblock");
            let mut found = FoundJournal { superblock, area: vec![AREA] };
            found.replay(&disk, 5000, Rules::all()).await.expect("replayed");
            for block in 100..100 + u64::from(most) {
                let left = disk.read(block, 1).await.expect("read");
                assert!(left.iter().all(|byte| *byte == 7), "{engine:?}: block {block}");
            }
            // Others find room again.
            stage.change(40, 8).await.expect("room");
            stage.journal.close().await.expect("closed");
            let home = stage.disk.read(100, 1).await.expect("read");
            assert_eq!(home[0], 8, "{engine:?}");
        };
        runtime.block_on(work).expect("no stall");
    }
}

/// Whether a large handle enters though others come and go without a pause.
fn a_large_one_enters(mutant: Option<JournalMutant>) -> bool {
    let runtime = Runtime::simulated(Simulation::default());
    let clock = runtime.handle();
    let work = async {
        let stage = Rc::new(Stage::new(&clock, ENGINES[0], mutant).await);
        let over = Rc::new(Cell::new(false));
        let others: Vec<_> = (0..3)
            .map(|part| {
                let (stage, over, clock) = (Rc::clone(&stage), Rc::clone(&over), clock.clone());
                clock.clone().spawn(async move {
                    while !over.get() {
                        let handle = stage.journal.start(2).await.expect("room");
                        let buffer = stage.buffers.fresh(50 + part, Role::Data);
                        handle.modify(&buffer, 0..8, |bytes| bytes.fill(1));
                        clock.sleep(Duration::from_micros(10)).await;
                    }
                })
            })
            .collect();
        clock.sleep(Duration::from_millis(1)).await;
        let large = Box::pin(stage.change(500, 7));
        let entered = matches!(
            select(large, Box::pin(clock.sleep(Duration::from_millis(100)))).await,
            Either::Left((Ok(_), _))
        );
        over.set(true);
        for other in others {
            other.await.expect("it ends");
        }
        entered
    };
    runtime.block_on(work).expect("no stall")
}

/// J8: who has to be alone in a transaction goes before those who come later.
#[test]
fn j8_a_large_handle_is_not_starved() {
    assert!(a_large_one_enters(None));
    assert!(!a_large_one_enters(Some(JournalMutant::LargeStarved)));
}
