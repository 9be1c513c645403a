//! Checkpoints by remap: power cuts on the worst disk that has the share command, and what recovery makes of them.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use weir_block::{BlockLayer, BlockOptions, Class, Dispatch};
use weir_ext4::Checksums;
use weir_ext4::journal::{JournalSuperblock, Sequence};
use weir_format::BLOCK_BYTES;
use weir_journal::{
    Buffers, CheckpointBy, Conflicts, Disk, Engine, FoundJournal, Journal, JournalError, JournalExtent,
    JournalMutant, JournalOptions, JournalRules, Reuse, Role, Until,
};
use weir_runtime::{Buffer as Memory, Handle as Clock, Random, Runtime, Simulation};
use weir_storage::{
    AdversaryDisk, AdversaryOptions, Capabilities, Command, Extent, Image, Interposed, Lba, Ordering,
    Rejected, Rules, Storage, Ticket,
};

/// Where the journal lies, and how large it is: transactions wait for checkpoints.
const AREA: JournalExtent = JournalExtent { first: 0, start: 1000, blocks: 40 };

/// An engine, and the disk below it.
#[derive(Clone, Copy, Debug)]
struct Setup {
    engine: Engine,
    /// Otherwise the host waits for transfers to keep order.
    ordered_service: bool,
}

const DUAL: Setup = Setup { engine: Engine::Dual { conflicts: Conflicts::Copy }, ordered_service: true };
const WAITING: Setup = Setup { ordered_service: false, ..DUAL };
const LEGACY: Setup = Setup { engine: Engine::Jbd2 { barrier: true }, ordered_service: false };
const PREFIX: Setup = Setup { engine: Engine::Prefix, ordered_service: false };

/// Blocks that transactions change; the log holds every fourth one escaped.
const HOMES: std::ops::Range<u64> = 51..67;
/// Blocks that a command transfers, so that a checkpoint takes several.
const COMMAND_BLOCKS: u32 = 4;
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
    setup: Setup,
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

fn options(setup: Setup) -> AdversaryOptions {
    let Setup { engine, ordered_service } = setup;
    let plain = Capabilities::legacy(32, COMMAND_BLOCKS, 512);
    let legacy = Capabilities { fua: true, preflush: true, share: true, ..plain };
    let capabilities = match engine {
        Engine::Dual { .. } => Capabilities { ordering: Ordering::Barrier, ordered_service, ..legacy },
        Engine::Jbd2 { .. }
        | Engine::AsyncCommit
        | Engine::OptFs
        | Engine::FlushAhead
        | Engine::Unjournaled => legacy,
        Engine::Prefix => Capabilities { ordering: Ordering::Prefix, ..legacy },
    };
    AdversaryOptions { blocks: 1100, capabilities, latency_ns_max: 100_000, ..AdversaryOptions::default() }
}

impl Run {
    fn new(runtime: &Runtime, setup: Setup, mutant: Option<JournalMutant>) -> Run {
        let clock = runtime.handle();
        Run {
            random: RefCell::new(clock.random("test.remap")),
            clock,
            setup,
            rules: Rules::but(mutant),
            contents: RefCell::new(vec![HOMES.map(|block| (block, Some(vec![0; BLOCK_BYTES]))).collect()]),
            durable: Cell::new(0),
            reused: RefCell::default(),
            cuts: RefCell::default(),
        }
    }

    fn disk(&self, storage: Rc<dyn Storage>) -> Rc<Disk> {
        let legacy = !self.setup.engine.uses_barriers();
        let dispatch = if legacy { Dispatch::Legacy } else { Dispatch::OrderPreserving };
        let capabilities = *storage.capabilities();
        let layer =
            BlockLayer::new(&self.clock, storage, BlockOptions { dispatch, ..BlockOptions::default() });
        Disk::new(&self.clock, layer.expect("it fits"), capabilities, self.rules)
    }

    fn journal(&self, disk: &Rc<Disk>, buffers: &Rc<Buffers>) -> Rc<Journal> {
        let (engine, rules) = (self.setup.engine, self.rules);
        let checkpoint = CheckpointBy::Remap;
        let options = JournalOptions { checkpoint, rules, ..JournalOptions::new(engine) };
        let superblock = JournalSuperblock::new([7; 16], AREA.blocks, true).expect("large enough");
        let reuse = Rc::new(Ignored);
        Journal::new(Rc::clone(disk), Rc::clone(buffers), reuse, options, superblock, vec![AREA])
    }

    fn below(&self, bound: u64) -> u64 {
        self.random.borrow_mut().below(bound)
    }

    /// Changes blocks, commits and checkpoints; now and then a power cut is tried.
    async fn play(self: &Rc<Run>) {
        let storage = AdversaryDisk::new(&self.clock, options(self.setup));
        let disk = self.disk(Rc::<AdversaryDisk>::clone(&storage));
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
        journal.close().await.expect("closed");
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
            if block.is_multiple_of(4) {
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
        disk.wait_transferred(&tickets).await.expect("transferred");
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
        let disk = self.disk(AdversaryDisk::from_image(&self.clock, options(self.setup), &cut.image));
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

/// Plays runs, and judges what power cuts leave of them: how many.
fn campaign(setup: Setup, mutant: Option<JournalMutant>) -> Result<usize, String> {
    let mut judged = 0;
    for seed in 0..24 {
        let runtime = Runtime::simulated(Simulation { seed, ..Simulation::default() });
        let run = Rc::new(Run::new(&runtime, setup, mutant));
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
/// escaped is copied, what was revoked is neither copied nor remapped, and of several copies the newest goes home.
#[test]
fn j5_what_goes_home_by_remap_is_there_after_a_power_cut() {
    use JournalMutant::{
        FreesLogEarly, NoRevoke, PairsOutOfDate, PairsOutliveRevokes, RemapsEscaped, RetiresAtDispatch,
        TailBeforeDurable, TailBeforeHome,
    };
    let mutants = [
        (DUAL, &[RetiresAtDispatch, TailBeforeDurable][..]),
        (WAITING, &[RetiresAtDispatch, TailBeforeHome, TailBeforeDurable]),
        (LEGACY, &[TailBeforeHome, FreesLogEarly, TailBeforeDurable]),
        (PREFIX, &[]),
    ];
    for (setup, others) in mutants {
        let judged = campaign(setup, None);
        assert!(judged.as_ref().is_ok_and(|cuts| *cuts > 500), "{judged:?}");
        for mutant in [RemapsEscaped, NoRevoke, PairsOutOfDate, PairsOutliveRevokes].iter().chain(others) {
            assert!(campaign(setup, Some(*mutant)).is_err(), "{setup:?}: {mutant:?} was not noticed");
        }
    }
}

/// Stands before a disk and writes down which pairs each share command has: from where, to where, how many blocks.
struct Scribe {
    inner: Rc<AdversaryDisk>,
    shares: RefCell<Vec<Vec<(u64, u64, u32)>>>,
}

impl Interposed for Scribe {
    fn below(&self) -> &dyn Storage {
        &*self.inner
    }

    fn take(&self, command: Command<'_>) -> Result<Ticket, Rejected> {
        if let Command::Share(pairs) = command {
            let pairs = pairs.iter().map(|pair| (pair.from.start.0, pair.to.0, pair.from.blocks));
            self.shares.borrow_mut().push(pairs.collect());
        }
        self.inner.submit(command)
    }
}

/// Homes whose copies lie behind one another are one pair, others are several; a command has as many as it takes.
#[test]
fn homes_behind_one_another_are_a_pair_where_their_copies_are() {
    for setup in [DUAL, WAITING, LEGACY] {
        let runtime = Runtime::simulated(Simulation::default());
        let run = Run::new(&runtime, setup, None);
        let script = async {
            let inner = AdversaryDisk::new(&run.clock, options(setup));
            let scribe = Rc::new(Scribe { inner, shares: RefCell::default() });
            let disk = run.disk(Rc::<Scribe>::clone(&scribe));
            let buffers = Buffers::new(Rc::clone(&disk), Checksums::none(), 64);
            let journal = run.journal(&disk, &buffers);
            journal.open().await.expect("open");
            // The log: a descriptor, a copy of each block, and a commit block.
            for homes in [&[50, 51, 52][..], &[53], &[54], &[60, 61, 63, 64, 65]] {
                let handle = journal.start(8).await.expect("room");
                for home in homes {
                    let fill = |bytes: &mut [u8]| bytes.fill(*home as u8);
                    handle.modify(&buffers.fresh(*home, Role::Data), 0..BLOCK_BYTES, fill);
                }
                let sequence = handle.sequence();
                drop(handle);
                journal.commit(sequence, Until::Transferred).await.expect("transferred");
            }
            journal.close().await.expect("closed");
            for home in (50..55).chain([60, 61, 63, 64, 65]) {
                let found = disk.read(home, 1).await.expect("read");
                assert_eq!(found[..], [home as u8; BLOCK_BYTES], "{setup:?}: block {home}");
            }
            scribe.shares.take()
        };
        let shares = runtime.block_on(script).expect("no stall");
        let commands = [
            vec![(1002, 50, 3), (1007, 53, 1)],
            vec![(1010, 54, 1), (1013, 60, 2), (1015, 63, 1)],
            vec![(1016, 64, 2)],
        ];
        assert_eq!(shares, commands, "{setup:?}");
    }
}

#[test]
fn a_storage_without_the_share_command_is_refused_for_checkpoints_by_remap() {
    let mut below = options(LEGACY);
    below.capabilities.share = false;
    let runtime = Runtime::simulated(Simulation::default());
    let run = Run::new(&runtime, LEGACY, None);
    let opened = runtime.block_on(async {
        let disk = run.disk(AdversaryDisk::new(&run.clock, below));
        let buffers = Buffers::new(Rc::clone(&disk), Checksums::none(), 64);
        run.journal(&disk, &buffers).open().await
    });
    assert_eq!(opened.expect("no stall"), Err(JournalError::NoShare));
}

fn require(holds: bool, what: &str) -> Result<(), String> {
    if holds { Ok(()) } else { Err(what.to_owned()) }
}
