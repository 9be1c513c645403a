//! Checkpoints by remap: power cuts on the worst disk that has the share command, and what recovery makes of them.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use weir_block::{BlockLayer, BlockOptions, Class, Dispatch};
use weir_ext4::journal::{JournalSuperblock, Sequence};
use weir_ext4::{BLOCK_BYTES, Checksums};
use weir_journal::{
    Buffers, CheckpointBy, Conflicts, Disk, Engine, FoundJournal, Journal, JournalError, JournalExtent,
    JournalMutant, JournalOptions, JournalRules, Reuse, Role, Until,
};
use weir_runtime::{Buffer as Memory, Handle as Clock, Random, Runtime, Simulation};
use weir_storage::{
    AdversaryDisk, AdversaryOptions, Capabilities, Extent, Feature, Image, Lba, Ordering, Rejected, Rules,
    Storage,
};

/// Where the journal lies, and how large it is.
const AREA: JournalExtent = JournalExtent { first: 0, start: 1000, blocks: 64 };
const DUAL: Engine = Engine::Dual { conflicts: Conflicts::Copy };
const LEGACY: Engine = Engine::Jbd2 { barrier: true };

/// Blocks that transactions change; the log holds every other one escaped.
const HOMES: std::ops::Range<u64> = 50..62;
/// What comes to a block that was freed.
const REUSED: u8 = 0xEE;
/// The content of the homes, by the first transaction that left them so; a freed block has none.
type Contents = BTreeMap<u64, Option<Vec<u8>>>;

/// What a power cut left, and what was durable by then.
struct Cut {
    image: Image,
    durable: usize,
    reused: Vec<u64>,
}

/// Blocks are reused by whoever asks for that.
struct Ignored;

impl Reuse for Ignored {
    fn may_be_reused(&self, _: &[Extent], _: Sequence) {}

    fn are_durable(&self, _: Sequence) {}

    fn awaiting_durability(&self) -> u64 {
        0
    }
}

/// A run, and the power cuts that were tried.
struct Run {
    clock: Clock,
    engine: Engine,
    rules: JournalRules,
    random: RefCell<Random>,
    /// After each transaction; the first is before all.
    contents: RefCell<Vec<Contents>>,
    /// Transactions that are durable.
    durable: Cell<usize>,
    /// Freed blocks whose new content is durable.
    reused: RefCell<Vec<u64>>,
    cuts: RefCell<Vec<Cut>>,
}

fn options(engine: Engine) -> AdversaryOptions {
    let legacy = Capabilities { fua: true, preflush: true, share: true, ..Capabilities::legacy(32, 8, 512) };
    let capabilities = match engine {
        Engine::Dual { .. } => Capabilities { ordering: Ordering::Barrier, ordered_service: true, ..legacy },
        Engine::Jbd2 { .. } => legacy,
    };
    AdversaryOptions { blocks: 1100, capabilities, latency_ns_max: 100_000, ..AdversaryOptions::default() }
}

impl Run {
    fn new(runtime: &Runtime, engine: Engine, mutant: Option<JournalMutant>) -> Run {
        let clock = runtime.handle();
        Run {
            random: RefCell::new(clock.random("test.remap")),
            clock,
            engine,
            rules: Rules::but(mutant),
            contents: RefCell::new(vec![HOMES.map(|block| (block, Some(vec![0; BLOCK_BYTES]))).collect()]),
            durable: Cell::new(0),
            reused: RefCell::default(),
            cuts: RefCell::default(),
        }
    }

    fn disk(&self, storage: Rc<AdversaryDisk>) -> Rc<Disk> {
        let legacy = matches!(self.engine, Engine::Jbd2 { .. });
        let dispatch = if legacy { Dispatch::Legacy } else { Dispatch::OrderPreserving };
        let capabilities = *storage.capabilities();
        let layer =
            BlockLayer::new(&self.clock, storage, BlockOptions { dispatch, ..BlockOptions::default() });
        Disk::new(&self.clock, layer.expect("it fits"), capabilities, self.rules)
    }

    fn journal(&self, disk: &Rc<Disk>, buffers: &Rc<Buffers>) -> Rc<Journal> {
        let (engine, rules) = (self.engine, self.rules);
        let commit_interval = Duration::from_secs(5);
        let options = JournalOptions { engine, commit_interval, checkpoint: CheckpointBy::Remap, rules };
        let superblock = JournalSuperblock::new([7; 16], AREA.blocks, true).expect("large enough");
        let reuse = Rc::new(Ignored);
        Journal::new(Rc::clone(disk), Rc::clone(buffers), reuse, options, superblock, vec![AREA])
    }

    fn below(&self, bound: u64) -> u64 {
        self.random.borrow_mut().below(bound)
    }

    /// Changes blocks, commits and checkpoints; now and then a power cut is tried.
    async fn play(self: &Rc<Run>) {
        let storage = AdversaryDisk::new(&self.clock, options(self.engine));
        let disk = self.disk(Rc::clone(&storage));
        let buffers = Buffers::new(Rc::clone(&disk), Checksums::none(), 64);
        let journal = self.journal(&disk, &buffers);
        journal.open().await.expect("open");
        let run = Rc::clone(self);
        storage.observe(Box::new(move |disk| run.try_cut(disk)));
        for nth in 1..=40 {
            let freed = self.transaction(&journal, &buffers, nth).await;
            let number = journal.running();
            journal.commit(number, Until::Dispatched).await.expect("dispatched");
            match freed {
                Some(block) => self.reuse(&journal, &disk, block, nth).await,
                None if self.below(4) == 0 => {
                    journal.commit(number, Until::Durable).await.expect("durable");
                    self.durable.set(nth);
                }
                None => {}
            }
        }
        assert!(journal.stats().checkpoints > 0);
    }

    /// One transaction: it changes some blocks, and may free one; which.
    async fn transaction(&self, journal: &Rc<Journal>, buffers: &Buffers, nth: usize) -> Option<u64> {
        let handle = journal.start(8).await.expect("room");
        let mut contents = self.contents.borrow().last().expect("the first").clone();
        for _ in 0..=self.below(5) {
            let block = HOMES.start + self.below(HOMES.end - HOMES.start);
            let Some(content) = contents.get_mut(&block).and_then(Option::as_mut) else { continue };
            let buffer = buffers.cached(block).unwrap_or_else(|| buffers.fresh(block, Role::Data));
            content.fill(nth as u8);
            if block.is_multiple_of(2) {
                content[..4].copy_from_slice(&[0xC0, 0x3B, 0x39, 0x98]);
            }
            handle.modify(&buffer, 0..BLOCK_BYTES, |bytes| bytes.copy_from_slice(content));
        }
        let freed = (self.below(6) == 0).then(|| HOMES.start + self.below(HOMES.end - HOMES.start));
        let freed = freed.filter(|block| contents.insert(*block, None).flatten().is_some());
        if let Some(block) = freed {
            handle.revoke(block);
            handle.free(Extent::new(Lba(block), 1));
            buffers.forget(block);
        }
        handle.modify(&buffers.fresh(49, Role::Data), 0..1, |bytes| bytes.fill(nth as u8));
        self.contents.borrow_mut().push(contents);
        freed
    }

    /// Another owner takes a freed block, as soon as it may, and has its content durable.
    async fn reuse(&self, journal: &Journal, disk: &Disk, block: u64, nth: usize) {
        journal.give_back().await.expect("given back");
        let mut content = Memory::new(BLOCK_BYTES);
        content.fill(REUSED);
        let (class, mut tickets) = (Class::Orderless, Vec::new());
        disk.write(block, &[Rc::new(content)], class, class, &mut tickets).await.expect("submitted");
        disk.transferred(&tickets).await.expect("transferred");
        journal.flush().await.expect("flushed");
        self.durable.set(nth);
        self.reused.borrow_mut().push(block);
    }

    fn try_cut(&self, disk: &AdversaryDisk) {
        if self.below(10) > 0 {
            return;
        }
        let image = disk.crash_states().sample(&mut self.random.borrow_mut());
        let reused = self.reused.borrow().clone();
        self.cuts.borrow_mut().push(Cut { image, durable: self.durable.get(), reused });
    }

    /// Recovery leaves what some transaction left, and no older one than what was durable.
    async fn judge(&self, cut: &Cut) -> Result<(), String> {
        let disk = self.disk(AdversaryDisk::from_image(&self.clock, options(self.engine), &cut.image));
        let block = disk.read(AREA.start, 1).await.map_err(|error| error.to_string())?;
        let superblock = JournalSuperblock::decode(&block, AREA.blocks).map_err(|error| error.to_string())?;
        let mut found = FoundJournal { superblock, area: vec![AREA] };
        found.replay(&disk, 1100, self.rules).await.map_err(|error| error.to_string())?;
        let mut left = BTreeMap::new();
        for block in HOMES {
            left.insert(block, disk.read(block, 1).await.map_err(|error| error.to_string())?.to_vec());
        }
        for block in &cut.reused {
            require(left[block] == [REUSED; BLOCK_BYTES], "what is not the journal's any more has changed")?;
        }
        let newest = disk.read(49, 1).await.map_err(|error| error.to_string())?[0] as usize;
        require(newest >= cut.durable, "what was durable is lost")?;
        let contents = self.contents.borrow();
        let is_left = |(block, content): (&u64, &Option<Vec<u8>>)| {
            content.as_ref().is_none_or(|content| left[block] == *content)
        };
        require(contents[newest].iter().all(is_left), "some of a transaction, or of none")
    }
}

/// Plays runs with an engine, and judges what power cuts leave of them: how many.
fn campaign(engine: Engine, mutant: Option<JournalMutant>) -> Result<usize, String> {
    let mut judged = 0;
    for seed in 0..24 {
        let runtime = Runtime::simulated(Simulation { seed, ..Simulation::default() });
        let run = Rc::new(Run::new(&runtime, engine, mutant));
        runtime.block_on(run.play()).expect("no stall");
        for cut in run.cuts.take() {
            runtime
                .block_on(run.judge(&cut))
                .expect("no stall")
                .map_err(|what| format!("seed {seed}: {what}"))?;
            judged += 1;
        }
    }
    Ok(judged)
}

/// J5: the log's tail moves over copies when their homes read them in an earlier epoch, or durably; what the log holds
/// escaped is copied, and what was revoked is neither copied nor remapped.
#[test]
fn j5_what_goes_home_by_remap_is_there_after_a_power_cut() {
    use JournalMutant::{NoRevoke, RemapsEscaped, RetiresAtDispatch, TailBeforeHome};
    for (engine, third) in [(DUAL, RetiresAtDispatch), (LEGACY, TailBeforeHome)] {
        let judged = campaign(engine, None);
        assert!(judged.as_ref().is_ok_and(|cuts| *cuts > 500), "{judged:?}");
        for mutant in [RemapsEscaped, NoRevoke, third] {
            assert!(campaign(engine, Some(mutant)).is_err(), "{engine:?}: {mutant:?} was not noticed");
        }
    }
}

#[test]
fn a_storage_without_the_share_command_refuses_a_checkpoint_by_remap() {
    let mut below = options(LEGACY);
    below.capabilities.share = false;
    let runtime = Runtime::simulated(Simulation::default());
    let run = Rc::new(Run::new(&runtime, LEGACY, None));
    let refused = runtime.block_on(async {
        let disk = run.disk(AdversaryDisk::new(&run.clock, below));
        let buffers = Buffers::new(Rc::clone(&disk), Checksums::none(), 64);
        let journal = run.journal(&disk, &buffers);
        run.transaction(&journal, &buffers, 1).await;
        journal.close().await
    });
    let lacks_share = JournalError::Refused(Rejected::Unsupported(Feature::Share));
    assert_eq!(refused.expect("no stall"), Err(lacks_share));
}

fn require(holds: bool, what: &str) -> Result<(), String> {
    if holds { Ok(()) } else { Err(what.to_owned()) }
}
