//! Journal coalition on the worst disk that corrupts what is being written when the power fails: what recovery makes of the
//! changes in the log, and of homes that are damaged.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::ops::Range;
use std::rc::Rc;

use weir_block::{BlockLayer, BlockOptions, Dispatch};
use weir_ext4::Checksums;
use weir_ext4::journal::{JournalSuperblock, LogFeatures, Sequence};
use weir_format::BLOCK_BYTES;
use weir_journal::{
    Buffers, Conflicts, Disk, Engine, FoundJournal, HomeIntegrity, Journal, JournalExtent, JournalMutant,
    JournalOptions, JournalRules, Reuse, Role, Until,
};
use weir_runtime::{Handle as Clock, Random, Runtime, Simulation};
use weir_storage::{
    AdversaryDisk, AdversaryOptions, Capabilities, Command, Extent, Image, Interposed, Lba, Ordering,
    Rejected, Rules, Storage, Ticket, Write,
};

const AREA: JournalExtent = JournalExtent { first: 0, start: 1000, blocks: 40 };
/// Blocks that transactions change.
const HOMES: Range<u64> = 51..61;
/// Says which transaction was the last.
const MARK: u64 = 49;

const DUAL: Engine = Engine::Dual { conflicts: Conflicts::Copy };
const JBD2: Engine = Engine::Jbd2 { barrier: true };

/// An engine, and what keeps homes whole.
#[derive(Clone, Copy, Debug)]
struct Setup {
    engine: Engine,
    integrity: HomeIntegrity,
}

/// Stands before a disk with reliable writes, and says that it has none. Only the journal's superblock gets them: such a
/// drive has it where nothing is corrupted, since nothing makes up for it.
struct Unreliable {
    disk: Rc<AdversaryDisk>,
    capabilities: Capabilities,
}

impl Interposed for Unreliable {
    fn below(&self) -> &dyn Storage {
        &*self.disk
    }

    fn claims(&self) -> &Capabilities {
        &self.capabilities
    }

    fn take(&self, command: Command<'_>) -> Result<Ticket, Rejected> {
        let Command::Write(Write { parts, mut flags, priority, tags }) = command else {
            return self.disk.submit(command);
        };
        flags.reliable = parts.iter().any(|part| part.start == Lba(AREA.start));
        self.disk.submit(Command::Write(Write { parts, flags, priority, tags }))
    }
}

struct Ignored;

impl Reuse for Ignored {
    fn may_be_reused(&self, _: &[Extent], _: Sequence) {}

    fn are_durable(&self, _: Sequence) {}

    fn awaiting_durability(&self) -> u64 {
        0
    }
}

/// What a power cut left, and how many transactions were durable by then.
struct Cut {
    image: Image,
    durable: usize,
}

/// A run, and the power cuts that were tried.
struct Run {
    clock: Clock,
    setup: Setup,
    rules: JournalRules,
    random: RefCell<Random>,
    /// The homes after each transaction.
    contents: RefCell<Vec<BTreeMap<u64, Vec<u8>>>>,
    durable: Cell<usize>,
    cuts: RefCell<Vec<Cut>>,
}

impl Run {
    fn new(runtime: &Runtime, setup: Setup, mutant: Option<JournalMutant>) -> Run {
        let clock = runtime.handle();
        Run {
            random: RefCell::new(clock.random("test.coalition")),
            clock,
            setup,
            rules: Rules::but(mutant),
            contents: RefCell::new(vec![HOMES.map(|block| (block, vec![0; BLOCK_BYTES])).collect()]),
            durable: Cell::new(0),
            cuts: RefCell::default(),
        }
    }

    fn options(&self) -> AdversaryOptions {
        let ordering = if self.setup.engine.uses_barriers() { Ordering::Barrier } else { Ordering::Legacy };
        let capabilities = Capabilities {
            ordering,
            fua: true,
            preflush: true,
            reliable: true,
            corrupts_when_cut: true,
            ..Capabilities::legacy(32, 4, 512)
        };
        AdversaryOptions {
            blocks: 1100,
            capabilities,
            latency_ns_max: 100_000,
            ..AdversaryOptions::default()
        }
    }

    fn disk(&self, disk: Rc<AdversaryDisk>) -> Rc<Disk> {
        let storage: Rc<dyn Storage> = match self.setup.integrity {
            HomeIntegrity::LoggedWhole => {
                let capabilities = Capabilities { reliable: false, ..*disk.capabilities() };
                Rc::new(Unreliable { disk, capabilities })
            }
            _ => disk,
        };
        let legacy = !self.setup.engine.uses_barriers();
        let dispatch = if legacy { Dispatch::Legacy } else { Dispatch::OrderPreserving };
        let capabilities = *storage.capabilities();
        assert_eq!(HomeIntegrity::from_capabilities(&capabilities), self.setup.integrity);
        let layer =
            BlockLayer::new(&self.clock, storage, BlockOptions { dispatch, ..BlockOptions::default() });
        Disk::new(&self.clock, layer.expect("it fits"), capabilities, self.rules)
    }

    fn below(&self, bound: usize) -> usize {
        self.random.borrow_mut().below(bound as u64) as usize
    }

    /// Changes blocks and commits; checkpoints begin soon. Now and then a power cut is tried.
    async fn play(self: &Rc<Run>) {
        let storage = AdversaryDisk::new(&self.clock, self.options());
        let disk = self.disk(Rc::clone(&storage));
        let buffers = Buffers::new(Rc::clone(&disk), Checksums::none(), 64);
        let options = JournalOptions {
            checkpoint_blocks: 4,
            rules: self.rules,
            ..JournalOptions::new(self.setup.engine)
        };
        let mut superblock = JournalSuperblock::new([7; 16], AREA.blocks, true).expect("large enough");
        superblock
            .set_features(LogFeatures { coalition: true, ..LogFeatures::default() })
            .expect("an empty log");
        let reuse = Rc::new(Ignored);
        let journal = Journal::new(disk, Rc::clone(&buffers), reuse, options, superblock, vec![AREA]);
        journal.open().await.expect("open");
        let run = Rc::clone(self);
        storage.observe(Box::new(move |disk| run.try_cut(disk)));
        for nth in 1..=60 {
            self.transaction(&journal, &buffers, nth).await;
            let number = journal.running();
            journal.commit(number, Until::Dispatched).await.expect("dispatched");
            if self.below(4) == 0 {
                journal.commit(number, Until::Durable).await.expect("durable");
                self.durable.set(nth);
            }
        }
        let stats = journal.stats();
        assert!(stats.checkpoints > 3, "{stats:?}");
        journal.close().await.expect("closed");
    }

    async fn transaction(&self, journal: &Rc<Journal>, buffers: &Buffers, nth: usize) {
        let handle = journal.start(8).await.expect("room");
        let mut contents = self.contents.borrow().last().expect("the first").clone();
        for _ in 0..=self.below(4) {
            let block = HOMES.start + self.below(10) as u64;
            let content = contents.get_mut(&block).expect("a home");
            let buffer = buffers.cached(block).unwrap_or_else(|| buffers.fresh(block, Role::Data));
            for _ in 0..=self.below(3) {
                let start = self.below(BLOCK_BYTES - 100);
                let range = start..start + 1 + self.below(99);
                content[range.clone()].fill(nth as u8);
                handle.modify(&buffer, range, |bytes| bytes.fill(nth as u8));
            }
        }
        let mark = buffers.cached(MARK).unwrap_or_else(|| buffers.fresh(MARK, Role::Data));
        handle.modify(&mark, 0..1, |bytes| bytes.fill(nth as u8));
        self.contents.borrow_mut().push(contents);
    }

    fn try_cut(&self, disk: &AdversaryDisk) {
        if self.below(6) == 0 {
            let image = disk.crash_states().sample(&mut self.random.borrow_mut());
            self.cuts.borrow_mut().push(Cut { image, durable: self.durable.get() });
        }
    }

    /// Recovery leaves what some transaction left, and no older one than what was durable; a second one, after a power cut,
    /// does the same.
    async fn judge(&self, cut: &Cut) -> Result<(), String> {
        let storage = AdversaryDisk::from_image(&self.clock, self.options(), &cut.image);
        let again: Rc<RefCell<Option<Image>>> = Rc::default();
        let (late, random) = (Rc::clone(&again), RefCell::new(self.clock.random("test.again")));
        storage.observe(Box::new(move |disk: &AdversaryDisk| {
            if random.borrow_mut().below(4) == 0 {
                *late.borrow_mut() = Some(disk.crash_states().sample(&mut random.borrow_mut()));
            }
        }));
        let found = self.recover(self.disk(storage)).await?;
        self.require_state(&found, cut.durable)?;
        let Some(image) = again.take() else { return Ok(()) };
        let second = self.recover(self.disk(AdversaryDisk::from_image(&self.clock, self.options(), &image)));
        match second.await? == found {
            true => Ok(()),
            false => Err("a second recovery finds something else".to_owned()),
        }
    }

    async fn recover(&self, disk: Rc<Disk>) -> Result<BTreeMap<u64, Vec<u8>>, String> {
        let block = disk.read(AREA.start, 1).await.map_err(|error| error.to_string())?;
        let superblock = JournalSuperblock::decode(&block, AREA.blocks).map_err(|error| error.to_string())?;
        if superblock.start().is_some() {
            let mut found = FoundJournal { superblock, area: vec![AREA] };
            found.replay(&disk, 1100, self.rules).await.map_err(|error| error.to_string())?;
        }
        let mut left = BTreeMap::new();
        for block in HOMES.chain([MARK]) {
            left.insert(block, disk.read(block, 1).await.map_err(|error| error.to_string())?.to_vec());
        }
        Ok(left)
    }

    fn require_state(&self, left: &BTreeMap<u64, Vec<u8>>, durable: usize) -> Result<(), String> {
        let newest = usize::from(left[&MARK][0]);
        if newest < durable {
            return Err(format!("transaction {durable} was durable, and {newest} is the last"));
        }
        let contents = self.contents.borrow();
        let state = contents.get(newest).ok_or("there is no such transaction")?;
        let differs = state.iter().find(|(block, content)| left[block] != **content);
        differs.map_or(Ok(()), |(block, _)| Err(format!("block {block} after transaction {newest}")))
    }
}

/// Plays runs, and judges what power cuts leave of them: how many.
fn campaign(setup: Setup, mutant: Option<JournalMutant>) -> Result<usize, String> {
    let mut judged = 0;
    for seed in 0..16 {
        let runtime = Runtime::simulated(Simulation { seed, ..Simulation::default() });
        let run = Rc::new(Run::new(&runtime, setup, mutant));
        runtime.block_on(run.play()).expect("no stall");
        for cut in run.cuts.take() {
            let verdict = runtime.block_on(run.judge(&cut)).expect("no stall");
            verdict.map_err(|what| format!("seed {seed}: {what}"))?;
            judged += 1;
        }
    }
    Ok(judged)
}

/// J9: what only changes are logged of is never damaged at home, by reliable writes or since the log holds all of it.
#[test]
fn j9_homes_are_whole_on_a_drive_that_corrupts() {
    use HomeIntegrity::{LoggedWhole, ReliableWrites};
    use JournalMutant::{
        ChangesLoggedFirst, CheckpointCoversMore, HomesUnreliable, RangeForgotten, SuperblocksUnreliable,
    };
    let mutants = [
        (ReliableWrites, &[HomesUnreliable, SuperblocksUnreliable, RangeForgotten][..]),
        (LoggedWhole, &[ChangesLoggedFirst, CheckpointCoversMore, RangeForgotten]),
    ];
    for (integrity, mutants) in mutants {
        for engine in [DUAL, JBD2] {
            let setup = Setup { engine, integrity };
            let judged = campaign(setup, None).unwrap_or_else(|what| panic!("{setup:?}: {what}"));
            assert!(judged > 500, "{setup:?}: {judged} cuts");
            for mutant in mutants {
                let found = campaign(setup, Some(*mutant));
                assert!(found.is_err(), "{setup:?}: {mutant:?} survives {found:?} cuts");
            }
        }
    }
}
