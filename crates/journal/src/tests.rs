//! The rules of the journal, seen at the device: each holds, and a journal that drops it is noticed.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use weir_block::{BlockLayer, BlockOptions, Class, Dispatch};
use weir_ext4::journal::{JournalSuperblock, LogReader, Sequence, replay};
use weir_ext4::{Checksums, Kind};
use weir_flash::{FlashDevice, FlashOptions, Mechanism, Profile};
use weir_format::{BLOCK_BYTES, FormatError};
use weir_runtime::{Buffer as Memory, Runtime, Simulation, Task};
use weir_storage::{
    Command, Extent, Interposed, Lba, Order, Recorder, Rejected, Rules, Storage, StorageError, Ticket,
    WriteFlags,
};

use crate::buffer::{BufferHead, Role};
use crate::buffers::Buffers;
use crate::disk::Disk;
use crate::engine::{Conflicts, Engine};
use crate::error::{JournalError, StopReason};
use crate::foreground::write_oldest_home;
use crate::freed::Reuse;
use crate::journal::{Journal, Until};
use crate::log::JournalExtent;
use crate::mutants::JournalMutant;
use crate::options::{Checkpoints, JournalOptions};
use crate::transaction::{Local, OrderedData};

/// Where the journal lies, and how large it is.
const AREA: JournalExtent = JournalExtent { first: 0, start: 1000, blocks: 64 };

/// What the device was told.
struct Told {
    /// None for a bare barrier and a flush.
    write: Option<(u64, Vec<u8>)>,
    flags: WriteFlags,
    barrier: bool,
    flush: bool,
    /// The order that the block layer's first tag in it names.
    order: Option<Order>,
    ticket: Ticket,
    /// Which of those before were transferred by then.
    transferred: Vec<usize>,
}

/// Stands before a device and writes down what it is told.
struct Scribe {
    inner: Rc<FlashDevice>,
    told: RefCell<Vec<Told>>,
    /// A write to this block fails.
    fails: Cell<Option<u64>>,
}

impl Interposed for Scribe {
    fn below(&self) -> &dyn Storage {
        &*self.inner
    }

    fn take(&self, command: Command<'_>) -> Result<Ticket, Rejected> {
        let failed = |start: Lba| self.fails.get() == Some(start.0);
        let ticket = match &command {
            Command::Write(write) if write.parts.iter().any(|part| failed(part.start)) => {
                Ticket::failed(StorageError::NoSpace)
            }
            _ => self.inner.submit(command)?,
        };
        let mut told = self.told.borrow_mut();
        let done = |(index, told): (usize, &Told)| told.ticket.poll_transferred().map(|_| index);
        let transferred: Vec<usize> = told.iter().enumerate().filter_map(done).collect();
        let order = match &command {
            Command::Write(write) => write.tags.first().map(|tag| tag.order),
            _ => None,
        };
        let (write, flags) = match &command {
            Command::Write(write) => {
                let start = write.parts.first().map_or(0, |part| part.start.0);
                (
                    Some((start, write.parts.iter().flat_map(|part| part.data.bytes().to_vec()).collect())),
                    write.flags,
                )
            }
            _ => (None, WriteFlags::default()),
        };
        if !matches!(command, Command::Read { .. }) {
            let barrier = flags.barrier || matches!(command, Command::Barrier { .. });
            let flush = matches!(command, Command::Flush);
            told.push(Told { write, flags, barrier, flush, order, ticket: ticket.clone(), transferred });
        }
        Ok(ticket)
    }
}

impl Scribe {
    /// The block at `lba` of the `nth` write that covers it, and the write's place among all commands.
    fn writes_of(&self, lba: u64) -> Vec<(usize, Vec<u8>)> {
        let mut found = Vec::new();
        for (index, told) in self.told.borrow().iter().enumerate() {
            if let Some((start, bytes)) = &told.write
                && lba >= *start
                && (lba - start) < (bytes.len() / BLOCK_BYTES) as u64
            {
                let at = (lba - start) as usize * BLOCK_BYTES;
                found.push((index, bytes[at..at + BLOCK_BYTES].to_vec()));
            }
        }
        found
    }

    /// How many barriers were told before command `index`: its epoch.
    fn epoch(&self, index: usize) -> usize {
        self.told.borrow()[..index].iter().filter(|told| told.barrier).count()
    }

    /// The places of the log's descriptor and commit blocks, as commands.
    fn log_writes(&self, block_type: u32) -> Vec<usize> {
        let mut found = Vec::new();
        for (index, told) in self.told.borrow().iter().enumerate() {
            let Some((start, bytes)) = &told.write else { continue };
            let blocks = bytes.chunks(BLOCK_BYTES).enumerate();
            let ours = blocks.filter(|(nth, bytes)| {
                let at = start + *nth as u64;
                let log = AREA.start + 1..AREA.start + u64::from(AREA.blocks);
                log.contains(&at) && bytes[..8] == [0xC0, 0x3B, 0x39, 0x98, 0, 0, 0, block_type as u8]
            });
            found.extend(ours.map(|_| index));
        }
        found
    }

    fn descriptors(&self) -> Vec<usize> {
        self.log_writes(1)
    }

    fn commits(&self) -> Vec<usize> {
        self.log_writes(2)
    }

    /// Whether the log was ever written over what recovery would look for, by the tail that is on disk by then: told
    /// before, as a barrier, or where the host keeps order, durable.
    fn log_is_overwritten(&self, host_keeps_order: bool) -> bool {
        let ring = u64::from(AREA.blocks - 1);
        let told = self.told.borrow();
        // Blocks of the log ever written, and of these, those behind the tail.
        let (mut written, mut freed, mut moves) = (0, 0, Vec::new());
        for (index, now) in told.iter().enumerate() {
            moves.retain(|(moved, to)| {
                let counts = !host_keeps_order || now.transferred.contains(moved);
                freed += if counts { (to - 1 + ring - freed % ring) % ring } else { 0 };
                !counts
            });
            let Some((start, bytes)) = &now.write else { continue };
            if *start == AREA.start {
                let tail = u32::from_be_bytes([28, 29, 30, 31].map(|byte| bytes[byte]));
                moves.extend((tail > 0).then_some((index, u64::from(tail))));
            } else if (AREA.start..AREA.start + u64::from(AREA.blocks)).contains(start) {
                written += (bytes.len() / BLOCK_BYTES) as u64;
            }
            // A full log would look empty.
            if written - freed >= ring {
                return true;
            }
        }
        false
    }
}

/// A file of one dirty block.
struct File {
    block: u64,
    disk: Rc<Disk>,
    dirty: Cell<bool>,
}

impl OrderedData for File {
    fn id(&self) -> u64 {
        self.block
    }

    fn submit(&self, class: Class) -> Local<'_, Result<Vec<Ticket>, JournalError>> {
        Box::pin(async move {
            // Others may come between: what is locked must not change by it.
            self.disk.handle().yield_now().await;
            let mut tickets = Vec::new();
            if self.dirty.take() {
                let blocks = [Rc::new(Memory::new(BLOCK_BYTES))];
                self.disk.write(self.block, &blocks, class, class, &mut tickets).await?;
            }
            Ok(tickets)
        })
    }
}

#[derive(Default)]
struct Freed(RefCell<Vec<Extent>>);

impl Reuse for Freed {
    fn may_be_reused(&self, freed: &[Extent], _: Sequence) {
        self.0.borrow_mut().extend(freed);
    }

    fn are_durable(&self, _: Sequence) {}

    fn awaiting_durability(&self) -> u64 {
        0
    }
}

/// A journal on a device, and everything that tests look at.
struct Stage {
    clock: weir_runtime::Handle,
    scribe: Rc<Scribe>,
    disk: Rc<Disk>,
    buffers: Rc<Buffers>,
    freed: Rc<Freed>,
    journal: Rc<Journal>,
}

impl Stage {
    fn buffer(&self, block: u64) -> Rc<BufferHead> {
        self.buffers.fresh(block, Role::Metadata(Kind::SymlinkTarget))
    }

    fn file(&self, block: u64) -> Rc<File> {
        Rc::new(File { block, disk: Rc::clone(&self.disk), dirty: Cell::new(true) })
    }

    /// Changes blocks in one handle, to `byte`.
    async fn change(&self, buffers: &[&Rc<BufferHead>], byte: u8, file: Option<&Rc<File>>) -> Sequence {
        let handle = self.journal.start(8).await.expect("room");
        for buffer in buffers {
            handle.modify(buffer, 16..32, |bytes| bytes.fill(byte));
        }
        if let Some(file) = file {
            handle.attach(Rc::clone(file) as Rc<dyn OrderedData>);
        }
        handle.sequence()
    }

    /// Fills a block with `byte`, past the journal, and waits for the transfer.
    async fn write_bytes(&self, block: u64, byte: u8) {
        let mut content = Memory::new(BLOCK_BYTES);
        content.fill(byte);
        let (class, mut tickets) = (Class::Orderless, Vec::new());
        self.disk.write(block, &[Rc::new(content)], class, class, &mut tickets).await.expect("submitted");
        self.disk.wait_transferred(&tickets).await.expect("transferred");
    }

    /// Keeps the queue full for a while: a caller that submits something has to wait.
    fn crowd(&self) -> Task<()> {
        let disk = Rc::clone(&self.disk);
        self.clock.spawn(async move {
            let (class, content) = (Class::Orderless, [Rc::new(Memory::new(BLOCK_BYTES))]);
            for nth in 0..1000 {
                let block = 2000 + 2 * nth;
                disk.write(block, &content, class, class, &mut Vec::new()).await.expect("submitted");
            }
        })
    }
}

const DUAL: Engine = Engine::Dual { conflicts: Conflicts::Copy };

/// Plays `script` on a journal with this engine.
fn play<T>(engine: Engine, mutant: Option<JournalMutant>, script: impl AsyncFnOnce(Stage) -> T) -> T {
    play_with(engine, Checkpoints::Background, mutant, script)
}

/// The same, with checkpoints where they are to be.
fn play_with<T>(
    engine: Engine,
    checkpoints: Checkpoints,
    mutant: Option<JournalMutant>,
    script: impl AsyncFnOnce(Stage) -> T,
) -> T {
    let runtime = Runtime::simulated(Simulation::default());
    let clock = runtime.handle();
    let mut profile = Profile::builtin("ufs20").expect("built in").with_capacity(4096);
    profile.host.queue_depth = 32;
    if engine.uses_barriers() {
        profile = profile.with_mechanism(Mechanism::InOrderRecovery);
    }
    let recorder = Recorder::new();
    let options = FlashOptions { recorder: Some(Rc::clone(&recorder)), ..FlashOptions::default() };
    let inner = FlashDevice::new(&clock, &profile, options);
    let scribe = Rc::new(Scribe { inner, told: RefCell::default(), fails: Cell::new(None) });
    let dispatch = if engine.uses_barriers() { Dispatch::OrderPreserving } else { Dispatch::Legacy };
    let options = BlockOptions { dispatch, ..BlockOptions::default() };
    let storage = Rc::clone(&scribe) as Rc<dyn Storage>;
    let capabilities = *storage.capabilities();
    let layer = BlockLayer::recorded(&clock, storage, options, Some(Rc::clone(&recorder)))
        .expect("a device that fits");
    let rules = Rules::but(mutant);
    let disk = Disk::new(&clock, layer, capabilities, rules);
    let buffers = Buffers::new(Rc::clone(&disk), Checksums::none(), 64);
    let selective = engine.facts().log.data_checksums;
    let options = JournalOptions { checkpoints, selective, rules, ..JournalOptions::new(engine) };
    let superblock = JournalSuperblock::new([7; 16], AREA.blocks, true).expect("large enough");
    let freed = Rc::new(Freed::default());
    let reuse = Rc::<Freed>::clone(&freed);
    let journal = Journal::new(Rc::clone(&disk), Rc::clone(&buffers), reuse, options, superblock, vec![AREA]);
    let stage = Stage { clock: clock.clone(), scribe, disk, buffers, freed, journal };
    let result = runtime.block_on(script(stage)).expect("no stall");
    if engine.uses_barriers() {
        recorder.check().expect("order is kept from the block layer to the flash (Eq. 1)");
    }
    result
}

/// Proves that `rule` holds, and that the check can fail: a journal that drops the rule does not pass it.
fn prove(mutants: &[JournalMutant], rule: impl Fn(Option<JournalMutant>) -> Result<(), String>) {
    assert_eq!(rule(None), Ok(()));
    for mutant in mutants {
        assert!(rule(Some(*mutant)).is_err(), "{mutant:?} was not noticed");
    }
}

fn require(holds: bool, what: &str) -> Result<(), String> {
    if holds { Ok(()) } else { Err(what.to_owned()) }
}

#[test]
fn j1_durable_means_flushed_after_the_transfer() {
    prove(&[JournalMutant::FlushForgotten], |mutant| {
        play(DUAL, mutant, async |stage| {
            let buffer = stage.buffer(50);
            let sequence = stage.change(&[&buffer], 1, None).await;
            stage.journal.commit(sequence, Until::Durable).await.map_err(|error| error.to_string())?;
            let commit = stage.scribe.commits()[0];
            let told = stage.scribe.told.borrow();
            let covers = |told: &Told| told.flush && told.transferred.contains(&commit);
            require(told[commit..].iter().any(covers), "no flush after the commit block was transferred")?;
            let waits = stage.disk.waits();
            require((waits.transfers, waits.flushes) == (1, 1), "one transfer, one flush")
        })
    });
}

#[test]
fn j1_an_ordering_commit_waits_for_no_transfer_and_flushes_nothing() {
    play(DUAL, None, async |stage| {
        let buffer = stage.buffer(50);
        for byte in 0..20 {
            let sequence = stage.change(&[&buffer], byte, None).await;
            let before = stage.clock.now();
            stage.journal.commit(sequence, Until::Dispatched).await.expect("dispatched");
            assert_eq!(stage.clock.now(), before, "time went on");
        }
        assert_eq!(stage.disk.waits().flushes, 0);
        assert_eq!(stage.journal.stats().commits, 20);
    });
}

#[test]
fn j1_concurrent_fsyncs_share_flushes() {
    for engine in [DUAL, Engine::Prefix] {
        play(engine, None, async |stage| {
            let stage = Rc::new(stage);
            let tasks: Vec<_> = (0..8u64)
                .map(|nth| {
                    let stage = Rc::clone(&stage);
                    stage.clock.clone().spawn(async move {
                        let buffer = stage.buffer(50 + nth);
                        let sequence = stage.change(&[&buffer], 1, None).await;
                        stage.journal.commit(sequence, Until::Durable).await
                    })
                })
                .collect();
            for task in tasks {
                task.await.expect("not cancelled").expect("durable");
            }
            let flushes = stage.disk.waits().flushes;
            assert!((1..=3).contains(&flushes), "{engine:?}: {flushes} flushes for 8 calls");
        });
    }
}

/// The mutant is `FlushSharing`'s, where the rule is kept.
#[test]
fn j1_a_flush_that_is_under_way_covers_nothing_that_comes_later() {
    prove(&[], |mutant| {
        play(DUAL, mutant, async |stage| {
            stage.write_bytes(200, 1).await;
            let disk = Rc::clone(&stage.disk);
            let first = stage.clock.spawn(async move { disk.flush().await });
            let flushes = || stage.scribe.told.borrow().iter().filter(|told| told.flush).count();
            while flushes() == 0 {
                stage.clock.yield_now().await;
            }
            stage.write_bytes(300, 1).await;
            let late = stage.scribe.writes_of(300)[0].0;
            assert!(!first.is_finished(), "the write is transferred while the flush is under way");
            stage.disk.flush().await.map_err(|error| error.to_string())?;
            let told = stage.scribe.told.borrow();
            let covers = |told: &Told| {
                told.flush && told.transferred.contains(&late) && told.ticket.poll_transferred().is_some()
            };
            require(told.iter().any(covers), "the flush of another caller was under way before the transfer")
        })
    });
}

#[test]
fn j2_data_and_log_are_one_epoch_and_the_commit_block_the_next() {
    use JournalMutant::{CommitInEpochOfLog, DataOutsideEpoch, OthersDataForgotten};
    prove(&[CommitInEpochOfLog, DataOutsideEpoch, OthersDataForgotten], |mutant| {
        play(DUAL, mutant, async |stage| {
            let (one, two) = (stage.buffer(50), stage.buffer(51));
            let (mine, other) = (stage.file(200), stage.file(300));
            stage.change(&[&one], 1, Some(&other)).await;
            let sequence = stage.change(&[&two], 1, Some(&mine)).await;
            stage.journal.commit(sequence, Until::Dispatched).await.map_err(|error| error.to_string())?;
            stage.clock.sleep(Duration::from_millis(50)).await;
            let scribe = &stage.scribe;
            let (descriptor, commit) = (scribe.descriptors()[0], scribe.commits()[0]);
            let order = |index: usize| scribe.told.borrow()[index].order;
            let (Some(Order::Epoch(_, log)), Some(Order::Epoch(_, end))) = (order(descriptor), order(commit))
            else {
                return Err("the log was written without order".to_owned());
            };
            require(log < end, "JC in the epoch of JD")?;
            require(scribe.told.borrow()[commit].barrier, "JC closes no epoch")?;
            for file in [200, 300] {
                let data = scribe.writes_of(file);
                let data = data.first().ok_or("data was not written")?.0;
                let told = scribe.told.borrow();
                require(told[data].order == told[descriptor].order, "data and log in different epochs")?;
            }
            Ok(())
        })
    });
}

#[test]
fn j4_a_log_block_shows_what_was_locked() {
    prove(&[JournalMutant::LogBlockNotCopied], |mutant| {
        play(DUAL, mutant, async |stage| {
            let buffer = stage.buffer(50);
            let file = stage.file(200);
            let sequence = stage.change(&[&buffer], 1, Some(&file)).await;
            stage.journal.request_commit(sequence);
            while stage.journal.running() == sequence {
                stage.clock.yield_now().await;
            }
            stage.change(&[&buffer], 2, None).await;
            stage.journal.commit(sequence, Until::Dispatched).await.map_err(|error| error.to_string())?;
            stage.clock.sleep(Duration::from_millis(50)).await;
            let copy = stage.scribe.writes_of(AREA.start + 2);
            require(copy[0].1[16..32] == [1; 16], "the log block changed after it was locked")
        })
    });
}

/// Two transactions that change one block, the second right behind the first: whether it was dispatched before
/// the first was transferred.
fn overtakes(conflicts: Conflicts, mutant: Option<JournalMutant>) -> bool {
    play(Engine::Dual { conflicts }, mutant, async |stage| {
        let buffer = stage.buffer(50);
        for byte in [1, 2] {
            let sequence = stage.change(&[&buffer], byte, None).await;
            stage.journal.commit(sequence, Until::Dispatched).await.expect("dispatched");
        }
        stage.clock.sleep(Duration::from_millis(50)).await;
        let commits = stage.scribe.commits();
        let told = stage.scribe.told.borrow();
        let second = stage.scribe.descriptors()[1];
        !told[second].transferred.contains(&commits[0])
    })
}

#[test]
fn j4_by_the_list_a_conflict_waits_for_the_transfer() {
    prove(&[JournalMutant::ConflictsIgnored], |mutant| {
        require(!overtakes(Conflicts::List, mutant), "the conflict list was not waited for")
    });
    assert!(overtakes(Conflicts::Copy, None), "copies wait for nothing");
}

/// The same, where a caller wants the first one durable: whether the second was dispatched before the flush was done.
fn overtakes_flush(conflicts: Conflicts, mutant: Option<JournalMutant>) -> bool {
    play(Engine::Dual { conflicts }, mutant, async |stage| {
        let buffer = stage.buffer(50);
        let first = stage.change(&[&buffer], 1, None).await;
        stage.journal.durability.want(first);
        stage.journal.commit(first, Until::Dispatched).await.expect("dispatched");
        let second = stage.change(&[&buffer], 2, None).await;
        stage.journal.commit(second, Until::Dispatched).await.expect("dispatched");
        stage.clock.sleep(Duration::from_millis(50)).await;
        let second = stage.scribe.descriptors()[1];
        let told = stage.scribe.told.borrow();
        let flush = told.iter().position(|told| told.flush).expect("a caller waits for it");
        assert!(told[flush].ticket.poll_transferred().is_some());
        !told[second].transferred.contains(&flush)
    })
}

/// What a caller wants durable holds its blocks until it is, as the paper has it; what only has to be in order does not.
#[test]
fn j4_by_the_list_a_conflict_with_what_is_wanted_durable_waits_for_the_flush() {
    prove(&[JournalMutant::ConflictsIgnored, JournalMutant::ReleasesAtTransfer], |mutant| {
        require(!overtakes_flush(Conflicts::List, mutant), "the flush was not waited for")
    });
    assert!(overtakes_flush(Conflicts::ListUntilTransfer, None), "a transfer is enough there");
    assert!(!overtakes(Conflicts::ListUntilTransfer, None), "and takes as long as with the paper's list");
}

/// A block that is home stays pinned while the log holds it, so that a caller that frees it revokes it.
#[test]
fn j5_a_block_that_is_home_is_pinned_until_the_tail_has_passed_it() {
    prove(&[JournalMutant::HomesUnpinned], |mutant| {
        play_with(Engine::JBD2, Checkpoints::LINUX, mutant, async |stage| {
            let (buffer, other) = (stage.buffer(50), stage.buffer(51));
            let mut sequence = stage.change(&[&buffer], 1, None).await;
            stage.journal.commit(sequence, Until::Durable).await.expect("durable");
            stage.clock.sleep(Duration::from_secs(31)).await;
            require(stage.scribe.writes_of(50).len() == 1, "the flusher has brought it home")?;
            require(buffer.is_pinned(), "the log holds it still")?;
            for byte in 0..40 {
                sequence = stage.change(&[&other], byte, None).await;
                stage.journal.commit(sequence, Until::Durable).await.expect("durable");
            }
            require(!stage.scribe.writes_of(AREA.start).is_empty(), "the tail has moved")?;
            require(!buffer.is_pinned(), "nothing holds it")
        })
    });
}

/// A tail that a commit moves covers what was home before the commit's flush, and nothing that comes home beside it.
#[test]
fn j5_a_commit_moves_the_tail_behind_what_was_home_before_its_flush() {
    prove(&[JournalMutant::TailCoversLater], |mutant| {
        play_with(Engine::JBD2, Checkpoints::LINUX, mutant, async |stage| {
            let (first, other) = (stage.buffer(50), stage.buffer(51));
            let oldest = stage.change(&[&first], 1, None).await;
            stage.journal.commit(oldest, Until::Durable).await.expect("durable");
            for byte in 0..7 {
                let sequence = stage.change(&[&other], byte, None).await;
                stage.journal.commit(sequence, Until::Durable).await.expect("durable");
            }
            let flushes = || stage.scribe.told.borrow().iter().filter(|told| told.flush).count();
            let (before, journal) = (flushes(), Rc::clone(&stage.journal));
            let last = stage.change(&[&other], 9, None).await;
            let commit = stage.clock.spawn(async move { journal.commit(last, Until::Durable).await });
            while flushes() == before {
                stage.clock.sleep(Duration::from_micros(1)).await;
            }
            write_oldest_home(&stage.journal, oldest).await.expect("home");
            assert!(!commit.is_finished(), "the block comes home while the commit is under way");
            commit.await.expect("not cancelled").expect("durable");
            require(stage.scribe.writes_of(AREA.start).is_empty(), "no flush covers the newest home")?;
            let sequence = stage.change(&[&other], 10, None).await;
            stage.journal.commit(sequence, Until::Durable).await.expect("durable");
            require(stage.scribe.writes_of(AREA.start).len() == 1, "the next commit's flush covers it")
        })
    });
}

/// A task that wants room writes home what the oldest transaction keeps, and no more; what is in the log again stays there.
#[test]
fn j5_a_task_that_wants_room_writes_the_oldest_transaction_home() {
    prove(&[JournalMutant::OldestFreedEarly], |mutant| {
        play_with(Engine::JBD2, Checkpoints::LINUX, mutant, async |stage| {
            let (first, other) = (stage.buffer(50), stage.buffer(51));
            let mut sequence = stage.change(&[&first], 1, None).await;
            for byte in 0..40 {
                stage.journal.commit(sequence, Until::Durable).await.expect("durable");
                sequence = stage.change(&[&other], byte, None).await;
            }
            require(stage.scribe.writes_of(50).len() == 1, "the oldest transaction's block goes home")?;
            require(stage.scribe.writes_of(51).is_empty(), "the other one is in the log again")
        })
    });
}

/// The flusher writes home what is committed and not changed since, and moves no tail: a commit does that when it frees a quarter of
/// the log.
#[test]
fn j5_the_flusher_writes_home_what_is_committed() {
    let done = play_with(Engine::JBD2, Checkpoints::LINUX, None, async |stage| {
        let [changed, settled] = [50, 60].map(|block| stage.buffer(block));
        let sequence = stage.change(&[&changed, &settled], 1, None).await;
        stage.journal.commit(sequence, Until::Durable).await.expect("durable");
        stage.clock.sleep(Duration::from_secs(29)).await;
        require(stage.scribe.writes_of(60).is_empty(), "nothing else wants it home")?;
        stage.change(&[&changed], 2, None).await;
        stage.clock.sleep(Duration::from_secs(2)).await;
        let home = stage.scribe.writes_of(60);
        let (_, content) = home.first().ok_or("the flusher wrote nothing")?;
        require(content[16..32] == [1; 16], "what is committed goes home")?;
        require(stage.scribe.writes_of(50).is_empty(), "what a transaction has changed stays")?;
        require(stage.scribe.writes_of(AREA.start).is_empty(), "the tail stays")
    });
    assert_eq!(done, Ok(()));
}

#[test]
fn j5_home_writes_carry_what_is_committed_and_come_after_the_commit_block() {
    prove(&[JournalMutant::CheckpointsUncommitted, JournalMutant::RetiresAtDispatch], |mutant| {
        play(DUAL, mutant, async |stage| {
            let buffer = stage.buffer(50);
            let sequence = stage.change(&[&buffer], 1, None).await;
            stage.journal.commit(sequence, Until::Dispatched).await.map_err(|error| error.to_string())?;
            stage.journal.commit(sequence, Until::Transferred).await.map_err(|error| error.to_string())?;
            stage.change(&[&buffer], 2, None).await;
            stage.journal.checkpoint().await.map_err(|error| error.to_string())?;
            let home = stage.scribe.writes_of(50);
            let (at, content) = home.first().ok_or("nothing went home")?;
            require(content[16..32] == [1; 16], "what is not committed went home")?;
            let commit = stage.scribe.commits()[0];
            require(
                stage.scribe.told.borrow()[*at].transferred.contains(&commit),
                "a home write before the commit block was transferred",
            )
        })
    });
}

#[test]
fn j5_the_tail_moves_behind_the_home_writes() {
    prove(&[JournalMutant::TailBeforeHome, JournalMutant::TailWithoutBarrier], |mutant| {
        play(DUAL, mutant, async |stage| {
            let buffer = stage.buffer(50);
            let sequence = stage.change(&[&buffer], 1, None).await;
            stage.journal.commit(sequence, Until::Transferred).await.map_err(|error| error.to_string())?;
            stage.journal.checkpoint().await.map_err(|error| error.to_string())?;
            let home = stage.scribe.writes_of(50)[0].0;
            let tail = stage.scribe.writes_of(AREA.start)[0].0;
            let told = stage.scribe.told.borrow();
            require(told[tail].transferred.contains(&home), "the tail moved before its blocks were home")?;
            require(
                stage.scribe.epoch(home) < stage.scribe.epoch(tail),
                "the tail in the epoch of the home writes",
            )?;
            require(told[tail].barrier, "nothing keeps the freed space behind the tail")
        })
    });
}

/// Transactions of these sizes, in blocks that they change, one right after the other, so that none is home when the
/// next comes. The one before the last waits for its data, while the last is opened.
async fn fill_log(stage: Rc<Stage>, sizes: &[u64]) {
    let file = stage.file(500);
    let mut newest = stage.journal.running();
    for (nth, size) in sizes.iter().enumerate() {
        let buffers: Vec<_> = (0..*size).map(|block| stage.buffer(50 + block)).collect();
        let waits = (nth + 2 == sizes.len()).then_some(&file);
        newest = stage.change(&buffers.iter().collect::<Vec<_>>(), 1, waits).await;
        stage.journal.request_commit(newest);
        while stage.journal.running() == newest && nth + 1 < sizes.len() {
            stage.clock.yield_now().await;
        }
    }
    stage.journal.commit(newest, Until::Transferred).await.expect("there is room in the end");
}

/// J5 (c): whatever room is left, a transaction waits until there is enough.
#[test]
fn j5_a_transaction_waits_until_the_log_has_room_for_all_of_it() {
    prove(&[JournalMutant::FillsLogOver], |mutant| {
        for (fifth, last) in (1..=8).flat_map(|fifth| (1..=8).map(move |last| (fifth, last))) {
            let overwritten = play(DUAL, mutant, async |stage| {
                let stage = Rc::new(stage);
                stage.journal.open().await.expect("open");
                fill_log(Rc::clone(&stage), &[8, 8, 8, 8, fifth, 8, last]).await;
                stage.scribe.log_is_overwritten(false)
            });
            require(!overwritten, "the log is written over its tail")?;
        }
        Ok(())
    });
}

/// J5 (c): the space that a checkpoint frees is not written before the tail says so, durably where the host keeps
/// order.
#[test]
fn j5_log_space_is_free_when_the_tail_has_moved() {
    // Two such transactions fit into the log, and no third.
    const SCATTERED: u32 = 20;
    prove(&[JournalMutant::FreesLogEarly], |mutant| {
        let legacy = Engine::Jbd2 { barrier: true };
        for (engine, host_keeps_order) in [(DUAL, false), (legacy, true), (Engine::Prefix, true)] {
            let overwritten = play(engine, mutant, async |stage| {
                stage.journal.open().await.expect("open");
                // Few of them fill the log: the next one waits for the checkpoint.
                for round in 0..20 {
                    let handle = stage.journal.start(SCATTERED).await.expect("room");
                    for nth in 0..u64::from(SCATTERED) {
                        handle.modify(&stage.buffer(50 + 2 * nth), 0..1, |bytes| bytes.fill(round));
                    }
                    let sequence = handle.sequence();
                    drop(handle);
                    stage.journal.commit(sequence, Until::Dispatched).await.expect("dispatched");
                }
                assert!(stage.journal.stats().checkpoints > 2);
                stage.scribe.log_is_overwritten(host_keeps_order)
            });
            require(!overwritten, "the log is written over what the tail on disk needs")?;
        }
        Ok(())
    });
}

/// Reads the log as it was told to the device.
struct ToldLog(BTreeMap<u32, Vec<u8>>);

impl LogReader for ToldLog {
    type Error = FormatError;

    async fn read(&self, block: u32, bytes: &mut [u8; BLOCK_BYTES]) -> Result<(), FormatError> {
        match self.0.get(&block) {
            Some(found) => bytes.copy_from_slice(found),
            None => bytes.fill(0),
        }
        Ok(())
    }

    async fn read_home(&self, _: u64, _: &mut [u8; BLOCK_BYTES]) -> Result<(), FormatError> {
        Err(FormatError::Invalid { what: "no data is in place" })
    }
}

#[test]
fn j5_what_was_freed_is_not_replayed() {
    prove(&[JournalMutant::NoRevoke], |mutant| {
        play(DUAL, mutant, async |stage| {
            let (freed, other) = (stage.buffer(50), stage.buffer(51));
            stage.journal.open().await.map_err(|error| error.to_string())?;
            let sequence = stage.change(&[&freed], 1, None).await;
            stage.journal.commit(sequence, Until::Dispatched).await.map_err(|error| error.to_string())?;
            let handle = stage.journal.start(2).await.map_err(|error| error.to_string())?;
            handle.modify(&other, 0..1, |bytes| bytes.fill(1));
            handle.revoke(50);
            let sequence = handle.sequence();
            drop(handle);
            stage.journal.commit(sequence, Until::Durable).await.map_err(|error| error.to_string())?;
            let blocks = (0..AREA.blocks)
                .filter_map(|nth| Some((nth, stage.scribe.writes_of(AREA.start + u64::from(nth)).pop()?.1)));
            let log = ToldLog(blocks.collect());
            let superblock =
                JournalSuperblock::decode(&log.0[&0], AREA.blocks).map_err(|error| error.to_string())?;
            let found = replay(&superblock, 4096, &log).await.map_err(|error| error.to_string())?;
            let homes: Vec<u64> = found.writes.iter().map(|write| write.home).collect();
            require(homes == [51], "the freed block would be replayed")
        })
    });
}

#[test]
fn j5_an_empty_journal_is_flushed_first() {
    prove(&[JournalMutant::EmptyWithoutFlush], |mutant| {
        play(DUAL, mutant, async |stage| {
            let buffer = stage.buffer(50);
            stage.change(&[&buffer], 1, None).await;
            stage.journal.close().await.map_err(|error| error.to_string())?;
            let home = stage.scribe.writes_of(50)[0].0;
            let empty = stage.scribe.writes_of(AREA.start).pop().ok_or("no superblock")?.0;
            let told = stage.scribe.told.borrow();
            let flushed = told[home..empty].iter().any(|told| told.flush && told.transferred.contains(&home));
            require(flushed, "called empty without a flush")
        })
    });
}

/// A block goes home late, since the queue is full, and is freed meanwhile: what is written there next is not
/// overwritten by what went home.
#[test]
fn j7_a_freed_block_is_not_reused_before_its_home_write_is_submitted() {
    prove(&[JournalMutant::ReusesBeforeHomeWrites], |mutant| {
        play(DUAL, mutant, async |stage| {
            let (last, other) = (50, stage.buffer(60));
            let scattered: Vec<_> = (0..8).map(|nth| stage.buffer(last - 2 * nth)).collect();
            let sequence = stage.change(&scattered.iter().collect::<Vec<_>>(), 1, None).await;
            stage.journal.commit(sequence, Until::Transferred).await.map_err(|error| error.to_string())?;
            let handle = stage.journal.start(2).await.map_err(|error| error.to_string())?;
            handle.modify(&other, 0..1, |bytes| bytes.fill(1));
            handle.revoke(last);
            handle.free(Extent::new(Lba(last), 1));
            let sequence = handle.sequence();
            drop(handle);
            stage.journal.commit(sequence, Until::Dispatched).await.map_err(|error| error.to_string())?;
            let crowd = stage.crowd();
            let journal = Rc::clone(&stage.journal);
            let checkpoint = stage.clock.spawn(async move { journal.checkpoint().await });
            while stage.freed.0.borrow().is_empty() {
                stage.clock.sleep(Duration::from_micros(1)).await;
            }
            stage.write_bytes(last, 2).await;
            checkpoint.await.expect("not cancelled").map_err(|error| error.to_string())?;
            crowd.await.expect("not cancelled");
            let (_, content) = stage.scribe.writes_of(last).pop().ok_or("never written")?;
            require(content == [2; BLOCK_BYTES], "a late home write has overwritten what came to its block")
        })
    });
}

#[test]
fn j8_a_group_is_never_split() {
    prove(&[JournalMutant::GroupSplit], |mutant| {
        play(DUAL, mutant, async |stage| {
            let (one, two) = (stage.buffer(50), stage.buffer(51));
            let handle = stage.journal.start(2).await.map_err(|error| error.to_string())?;
            handle.modify(&one, 0..1, |bytes| bytes.fill(1));
            let first = handle.sequence();
            stage.journal.request_commit(first);
            stage.clock.sleep(Duration::from_millis(20)).await;
            handle.modify(&two, 0..1, |bytes| bytes.fill(1));
            let second = handle.sequence();
            drop(handle);
            require(first == second, "half of the group is in another transaction")
        })
    });
}

#[test]
fn an_error_aborts_the_journal_and_nothing_is_acknowledged_any_more() {
    prove(&[JournalMutant::ErrorIgnored], |mutant| {
        play(DUAL, mutant, async |stage| {
            let buffer = stage.buffer(50);
            stage.scribe.fails.set(Some(AREA.start + 3));
            let sequence = stage.change(&[&buffer], 1, None).await;
            require(
                stage.journal.commit(sequence, Until::Durable).await.is_err(),
                "durable although the commit block failed",
            )?;
            require(stage.journal.aborted().is_some(), "the journal goes on")?;
            require(stage.journal.start(1).await.is_err(), "the journal takes changes")
        })
    });
}

#[test]
fn a_transaction_that_finds_no_place_in_the_log_is_not_counted() {
    play(DUAL, None, async |stage| {
        // The superblock says that the journal is longer.
        let area = JournalExtent { blocks: 3, ..AREA };
        let superblock = JournalSuperblock::new([7; 16], AREA.blocks, true).expect("large enough");
        let (disk, buffers) = (Rc::clone(&stage.disk), Rc::clone(&stage.buffers));
        let (freed, options) = (Rc::new(Freed::default()), stage.journal.options);
        let journal = Journal::new(disk, buffers, freed, options, superblock, vec![area]);
        let stage = Stage { journal, ..stage };
        let sequence = stage.change(&[&stage.buffer(50)], 1, None).await;
        let refused = stage.journal.commit(sequence, Until::Dispatched).await;
        assert!(matches!(refused, Err(JournalError::Stopped(StopReason::Damaged(_)))), "{refused:?}");
        assert_eq!(stage.journal.stats().commits, 0);
    });
}

#[test]
fn the_legacy_path_waits_for_every_transfer_and_flushes_twice() {
    play(Engine::Jbd2 { barrier: true }, None, async |stage| {
        let buffer = stage.buffer(50);
        let file = stage.file(200);
        let sequence = stage.change(&[&buffer], 1, Some(&file)).await;
        stage.journal.commit(sequence, Until::Durable).await.expect("durable");
        let scribe = &stage.scribe;
        let (data, log, commit) = (scribe.writes_of(200)[0].0, scribe.descriptors()[0], scribe.commits()[0]);
        let told = scribe.told.borrow();
        assert!(told[log].transferred.contains(&data), "the log waits for data");
        assert!(told[commit].transferred.contains(&log), "the commit block waits for the log");
        let flushes = told.iter().filter(|told| told.flush).count();
        let fua = told[commit].flags.fua || told[commit..].iter().any(|told| told.flush);
        assert!(flushes + usize::from(told[commit].flags.preflush) >= 1 && fua, "flush, then FUA");
        let waits = stage.disk.waits();
        assert_eq!((waits.transfers, waits.durable_commits), (3, 1));
    });
}

/// J2, for prefix devices: a device that receives JD before D, or JC before JD, keeps that order.
#[test]
fn j2_each_part_is_received_before_the_next_is_submitted() {
    prove(&[JournalMutant::TransferNotAwaited, JournalMutant::OthersDataForgotten], |mutant| {
        play(Engine::Prefix, mutant, async |stage| {
            let (one, two) = (stage.buffer(50), stage.buffer(51));
            let (mine, other) = (stage.file(200), stage.file(300));
            stage.change(&[&one], 1, Some(&other)).await;
            let sequence = stage.change(&[&two], 1, Some(&mine)).await;
            stage.journal.commit(sequence, Until::Transferred).await.map_err(|error| error.to_string())?;
            let scribe = &stage.scribe;
            let (log, commit) = (scribe.descriptors()[0], scribe.commits()[0]);
            let told = scribe.told.borrow();
            for file in [200, 300] {
                let data = scribe.writes_of(file);
                let data = data.first().ok_or("data was not written")?.0;
                require(told[log].transferred.contains(&data), "the log does not wait for data")?;
            }
            require(told[commit].transferred.contains(&log), "the commit block does not wait for the log")
        })
    });
}

/// J1 and J2, for prefix devices (OPTR paper, section 4): the flush before JC is dropped, and one is left at the end; a
/// call that only orders has none.
#[test]
fn a_prefix_device_takes_one_flush_for_durability_and_none_for_order() {
    prove(&[JournalMutant::FlushForgotten], |mutant| {
        play(Engine::Prefix, mutant, async |stage| {
            let (buffer, file) = (stage.buffer(50), stage.file(200));
            let sequence = stage.change(&[&buffer], 1, Some(&file)).await;
            stage.journal.commit(sequence, Until::Transferred).await.map_err(|error| error.to_string())?;
            let waits = stage.disk.waits();
            require((waits.transfers, waits.flushes) == (3, 0), "D, JD and JC are waited for, and no flush")?;
            require(!stage.journal.is_durable(sequence), "called durable without a flush")?;
            let sequence = stage.change(&[&buffer], 2, None).await;
            stage.journal.commit(sequence, Until::Durable).await.map_err(|error| error.to_string())?;
            let commit = stage.scribe.commits()[1];
            let told = stage.scribe.told.borrow();
            let covers = |told: &Told| told.flush && told.transferred.contains(&commit);
            require(told[commit..].iter().any(covers), "no flush after the commit block was transferred")?;
            let flags = |told: &Told| told.barrier || told.flags.fua || told.flags.preflush;
            require(!told.iter().any(flags), "barriers, pre-flush or FUA")?;
            require(stage.disk.waits().flushes == 1, "one flush")
        })
    });
}

#[test]
fn without_barriers_the_legacy_path_flushes_nothing() {
    play(Engine::Jbd2 { barrier: false }, None, async |stage| {
        let buffer = stage.buffer(50);
        let sequence = stage.change(&[&buffer], 1, None).await;
        stage.journal.commit(sequence, Until::Durable).await.expect("acknowledged");
        assert!(!stage.scribe.told.borrow().iter().any(|told| told.flush || told.flags.fua));
    });
}

#[test]
fn a_log_that_goes_round_is_checkpointed_and_every_operation_finds_room() {
    let [list, until_transfer] =
        [Conflicts::List, Conflicts::ListUntilTransfer].map(|conflicts| Engine::Dual { conflicts });
    for engine in [DUAL, list, until_transfer, Engine::Jbd2 { barrier: true }, Engine::Prefix] {
        play(engine, None, async |stage| {
            for round in 0..200u64 {
                let buffers: Vec<_> = (0..5).map(|nth| stage.buffer(50 + (round + nth) % 30)).collect();
                let all: Vec<&Rc<BufferHead>> = buffers.iter().collect();
                let sequence = stage.change(&all, round as u8, None).await;
                stage.journal.commit(sequence, Until::Dispatched).await.expect("dispatched");
            }
            let stats = stage.journal.stats();
            assert_eq!(stats.commits, 200);
            assert!(stats.checkpoints > 10, "{stats:?}");
            stage.journal.close().await.expect("closed");
        });
    }
}
