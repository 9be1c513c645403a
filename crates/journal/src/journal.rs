//! The journal: transactions, and the tasks that commit and checkpoint them. It knows buffers and the log, and no
//! inodes, pages or directories: what of them it needs it gets through [`OrderedData`] and [`Reuse`].
//!
//! # A transaction's life
//!
//! It is *running* while handles change buffers in it, then *locked*: its blocks are frozen, and the next one runs.
//! Now it is *committing*: D, JD and JC are submitted as the engine's graph has it (`commit`), and when JC is with the
//! block layer it is *dispatched*. Once its commit block is transferred it is *retired*: what it freed
//! may be reused, its frozen blocks may go home, and when they are there (`checkpoint`) its place in the log is free again.
//!
//! # Who waits for what
//!
//! A handle waits for room in the log. `fbarrier` waits until JC is dispatched, `fsync` until it is durable.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;

use event_listener::Event;
use tracing::{debug, error};
use weir_ext4::journal::{JournalSuperblock, Sequence};
use weir_runtime::Semaphore;
use weir_storage::{Extent, FlushSharing, StorageError, Ticket};

use crate::buffers::Buffers;
use crate::disk::Disk;
use crate::engine::Engine;
use crate::error::{JournalError, StopReason};
use crate::handle::TxHandle;
use crate::log::{JournalExtent, Log};
use crate::mutants::JournalMutant;
use crate::options::JournalOptions;
use crate::transaction::{Dispatched, Retired, Running, Unwritten};
use crate::{checkpoint, commit, flush};

/// Share of the log that one transaction may take: a quarter, as jbd2 has it.
const TRANSACTION_SHARE: u32 = 4;

/// Receives what may be done with blocks that transactions have freed (J7).
pub trait Reuse {
    /// Commit blocks up to that of `transferred` are transferred, which has freed these blocks, or one before it has:
    /// any write to them comes after that.
    fn may_be_reused(&self, freed: &[Extent], transferred: Sequence);

    /// Transactions up to one are durable: what they have freed may be discarded.
    fn are_durable(&self, to: Sequence);

    /// Blocks that may be reused, and wait until a transaction is durable.
    fn awaiting_durability(&self) -> u64;
}

/// What a call waits for, once it wants a transaction committed.
///
/// These are two policies in one: the first two stages are Wait-on-Dispatch and Wait-on-Transfer, and the last is
/// Wait-on-Transfer with a flush, which all callers share that wait at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Until {
    /// JC is with the block layer: what comes next is ordered behind it. `fbarrier`.
    Dispatched,
    /// JC is transferred.
    Transferred,
    /// JC is durable, where the engine flushes ([`Engine::flushes`]). `fsync`.
    Durable,
}

pub(crate) struct State {
    pub(crate) log: Log,
    pub(crate) running: Running,
    /// The newest transaction that somebody wants committed.
    pub(crate) requested: Option<Sequence>,
    /// The newest transaction whose commit block was dispatched.
    pub(crate) dispatched_to: Sequence,
    pub(crate) transferred_to: Sequence,
    pub(crate) dispatched: VecDeque<Dispatched>,
    pub(crate) retired: VecDeque<Retired>,
    /// The commit block of `transferred_to`, where the storage may tell when it is durable.
    pub(crate) newest: Option<Ticket>,
    /// Home writes are being submitted: what is freed meanwhile is held back, or a late one would overwrite what
    /// comes there next. Once they are submitted, the block layer keeps them before whatever overlaps them (S6).
    pub(crate) submitting_home: bool,
    pub(crate) held_back: Vec<Extent>,
    pub(crate) aborted: Option<StopReason>,
    pub(crate) closing: bool,
    pub(crate) commits: u64,
    pub(crate) logged_blocks: u64,
    pub(crate) changed_bytes: u64,
    pub(crate) checkpoints: u64,
}

/// The journal of a mounted filesystem.
pub struct Journal {
    pub(crate) disk: Rc<Disk>,
    pub(crate) buffers: Rc<Buffers>,
    pub(crate) reuse: Rc<dyn Reuse>,
    pub(crate) options: JournalOptions,
    pub(crate) state: RefCell<State>,
    /// Which transactions are wanted durable, and are. Positions count them since the mount.
    pub(crate) flushes: Rc<FlushSharing>,
    /// A transaction not long ago, and its position: sequence numbers begin again after 2^32, positions never do.
    anchor: Cell<(Sequence, u64)>,
    pub(crate) unwritten: Unwritten,
    /// A change that has not ended is being dropped: its handle must not be committed (J8).
    abandoning: Cell<bool>,
    /// One checkpoint at a time.
    pub(crate) checkpointing: Semaphore,
    /// The running transaction or the log's room has changed, or what was held back is given back, or the journal
    /// was aborted.
    pub(crate) changed: Event,
    /// A transaction has reached its next stage: nobody is woken by any other than what he waits for.
    pub(crate) dispatched: Event,
    pub(crate) transferred: Event,
    /// Blocks that were freed may be reused.
    pub(crate) freed: Event,
    /// Somebody wants a commit; or a flush; or room in the log.
    pub(crate) commit_wanted: Event,
    /// A transaction has got its first change.
    pub(crate) begun: Event,
    pub(crate) flush_wanted: Event,
    pub(crate) checkpoint_wanted: Event,
}

/// What was counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct JournalStats {
    /// Transactions committed.
    pub commits: u64,
    /// Blocks that they held, written whole to the log.
    pub logged_blocks: u64,
    /// Of these blocks, bytes that had changed.
    pub changed_bytes: u64,
    /// Times that the log's tail was moved.
    pub checkpoints: u64,
    /// Blocks of the log in use.
    pub log_blocks_used: u32,
}

impl Journal {
    /// The journal on an empty log, and its tasks.
    pub fn new(
        disk: Rc<Disk>,
        buffers: Rc<Buffers>,
        reuse: Rc<dyn Reuse>,
        options: JournalOptions,
        superblock: JournalSuperblock,
        area: Vec<JournalExtent>,
    ) -> Rc<Journal> {
        let first = superblock.sequence();
        let before = Sequence(first.0.wrapping_sub(1));
        let journal = Rc::new(Journal {
            disk,
            buffers,
            reuse,
            options,
            state: RefCell::new(State {
                log: Log::new(superblock, area),
                running: Running::new(first),
                requested: None,
                dispatched_to: before,
                transferred_to: before,
                dispatched: VecDeque::new(),
                retired: VecDeque::new(),
                newest: None,
                submitting_home: false,
                held_back: Vec::new(),
                aborted: None,
                closing: false,
                commits: 0,
                logged_blocks: 0,
                changed_bytes: 0,
                checkpoints: 0,
            }),
            flushes: Rc::default(),
            anchor: Cell::new((before, 0)),
            unwritten: Unwritten::default(),
            abandoning: Cell::new(false),
            checkpointing: Semaphore::new(1),
            changed: Event::new(),
            dispatched: Event::new(),
            transferred: Event::new(),
            freed: Event::new(),
            commit_wanted: Event::new(),
            begun: Event::new(),
            flush_wanted: Event::new(),
            checkpoint_wanted: Event::new(),
        });
        let handle = journal.disk.handle();
        // Tasks, all on the one thread; the names count where a simulation has a processor for each of its threads.
        drop(handle.spawn_thread("commit", commit::commit_task(Rc::downgrade(&journal))));
        drop(handle.spawn(commit::commit_timer(Rc::downgrade(&journal))));
        if options.engine.uses_barriers() {
            drop(handle.spawn_thread("flush", flush::flush_task(Rc::downgrade(&journal))));
            drop(handle.spawn(flush::durability_task(Rc::downgrade(&journal))));
        }
        drop(handle.spawn_thread("checkpoint", checkpoint::checkpoint_task(Rc::downgrade(&journal))));
        journal
    }

    /// The engine that commits.
    pub fn engine(&self) -> Engine {
        self.options.engine
    }

    /// What was counted.
    pub fn stats(&self) -> JournalStats {
        let state = self.state.borrow();
        let used = state.log.ring.used(state.log.tail, state.log.head);
        JournalStats {
            commits: state.commits,
            logged_blocks: state.logged_blocks,
            changed_bytes: state.changed_bytes,
            checkpoints: state.checkpoints,
            log_blocks_used: used,
        }
    }

    /// Blocks that the log has room for.
    pub fn log_blocks(&self) -> u32 {
        self.state.borrow().log.ring.blocks()
    }

    /// Why the journal takes nothing more, if that is so.
    pub fn aborted(&self) -> Option<StopReason> {
        self.state.borrow().aborted.clone()
    }

    /// Ends the journal: what was acknowledged as durable is, and nothing more will be.
    pub fn abort(&self, reason: StopReason) {
        if self.options.rules.drops(JournalMutant::ErrorIgnored) {
            return;
        }
        self.state.borrow_mut().aborted.get_or_insert_with(|| {
            error!("no more changes: {reason}");
            reason
        });
        self.flushes.fail(StorageError::Aborted);
        let waiters = [&self.changed, &self.dispatched, &self.transferred, &self.freed];
        let tasks = [&self.commit_wanted, &self.begun, &self.flush_wanted, &self.checkpoint_wanted];
        for event in waiters.into_iter().chain(tasks) {
            event.notify(usize::MAX);
        }
    }

    /// From now on, or no longer, a change that has not ended is being dropped: a handle that is dropped meanwhile
    /// stops the journal, since its changes must not be committed (J8).
    pub fn set_abandoning(&self, abandoning: bool) {
        self.abandoning.set(abandoning);
    }

    /// Whether a change that has not ended is being dropped.
    pub(crate) fn is_abandoning(&self) -> bool {
        self.abandoning.get()
    }

    /// Whether it takes nothing more, since it is being closed or is.
    pub fn is_closing(&self) -> bool {
        self.state.borrow().closing
    }

    pub(crate) fn check(&self) -> Result<(), JournalError> {
        match &self.state.borrow().aborted {
            Some(reason) => Err(JournalError::Stopped(reason.clone())),
            None => Ok(()),
        }
    }

    /// Opens a handle that changes at most `credits` blocks in one transaction (J8). Waits for room in the log.
    ///
    /// A task has one handle at a time, and does not wait for a commit while it holds one.
    pub async fn start(self: &Rc<Journal>, credits: u32) -> Result<TxHandle, JournalError> {
        loop {
            self.check()?;
            {
                let mut state = self.state.borrow_mut();
                if state.closing {
                    return Err(JournalError::Stopped(StopReason::Closed));
                }
                match state.admit(credits) {
                    Admission::Enters => {
                        let split = self.options.rules.drops(JournalMutant::GroupSplit);
                        state.running.handles += u32::from(!split);
                        return Ok(TxHandle::new(Rc::clone(self), credits));
                    }
                    Admission::AfterCommit => {
                        state.requested = Some(state.running.sequence);
                        self.commit_wanted.notify(usize::MAX);
                    }
                    Admission::AfterCheckpoint => {
                        if state.retired.is_empty() && !state.running.is_empty() {
                            state.requested = Some(state.running.sequence);
                            self.commit_wanted.notify(usize::MAX);
                        }
                        self.checkpoint_wanted.notify(usize::MAX);
                    }
                    Admission::Never => return Err(JournalError::TooSmall),
                    Admission::WhenUnlocked => {}
                }
            }
            self.changed.listen().await;
        }
    }

    /// The transaction that runs now.
    pub fn running(&self) -> Sequence {
        self.state.borrow().running.sequence
    }

    /// Whether a transaction is known durable.
    pub fn is_durable(&self, sequence: Sequence) -> bool {
        self.flushes.is_durable(self.position(sequence))
    }

    /// Whether the commit block of a transaction was dispatched.
    pub fn is_dispatched(&self, sequence: Sequence) -> bool {
        !sequence.is_after(self.state.borrow().dispatched_to)
    }

    /// Whether the flush that makes a transaction durable is still to be submitted: then it covers what is
    /// transferred now.
    pub fn will_flush(&self, sequence: Sequence) -> bool {
        self.position(sequence) > self.flushes.begun_to()
    }

    /// A transaction's position among those that flushes make durable.
    pub(crate) fn position(&self, sequence: Sequence) -> u64 {
        let (known, position) = self.anchor.get();
        position.saturating_add_signed(i64::from(sequence.0.wrapping_sub(known.0).cast_signed()))
    }

    /// Positions are counted from a newer transaction from now on.
    pub(crate) fn move_anchor(&self, sequence: Sequence) {
        self.anchor.set((sequence, self.position(sequence)));
    }

    /// Has a transaction committed soon, if it runs still.
    pub fn request_commit(&self, sequence: Sequence) {
        let mut state = self.state.borrow_mut();
        if state.running.sequence == sequence && !state.running.is_empty() {
            state.requested = Some(sequence);
            self.commit_wanted.notify(usize::MAX);
        }
    }

    /// Commits a transaction, and waits as the call wants it.
    ///
    /// # Errors
    /// [`JournalError::Stopped`] if the journal stops before.
    pub async fn commit(&self, sequence: Sequence, until: Until) -> Result<(), JournalError> {
        self.request_commit(sequence);
        let reached = |to: Sequence| !sequence.is_after(to);
        match until {
            Until::Dispatched => self.until(&self.dispatched, |state| reached(state.dispatched_to)).await,
            Until::Transferred => self.until(&self.transferred, |state| reached(state.transferred_to)).await,
            Until::Durable => {
                self.want_durable(sequence);
                match self.flushes.until(self.position(sequence)).await {
                    Ok(()) => Ok(()),
                    Err(error) => self.check().and(Err(error.into())),
                }
            }
        }
    }

    /// A caller waits until a transaction is durable.
    fn want_durable(&self, sequence: Sequence) {
        self.flushes.want(self.position(sequence));
        // If it is not dispatched yet, the flush task is woken when it is.
        if self.is_dispatched(sequence) {
            self.flush_wanted.notify(usize::MAX);
        }
    }

    /// Commits whatever runs, and waits until it is in the log.
    pub async fn commit_all(&self) -> Result<(), JournalError> {
        let (running, empty) = {
            let state = self.state.borrow();
            (state.running.sequence, state.running.is_empty())
        };
        let newest = if empty { Sequence(running.0.wrapping_sub(1)) } else { running };
        self.commit(newest, Until::Transferred).await
    }

    /// Commits whatever runs, and waits until all that was freed before can be reused (J7).
    pub async fn give_back(&self) -> Result<(), JournalError> {
        self.commit_all().await?;
        self.until(&self.changed, |state| state.held_back.is_empty()).await
    }

    /// Waits until `done`, which is looked at whenever `event` is notified.
    pub(crate) async fn until(
        &self,
        event: &Event,
        mut done: impl FnMut(&State) -> bool,
    ) -> Result<(), JournalError> {
        loop {
            if done(&self.state.borrow()) {
                return Ok(());
            }
            self.check()?;
            event.listen().await;
        }
    }

    /// Writes the superblock of a journal whose log begins at its head, so that recovery looks at it. The caller
    /// flushes.
    pub async fn open(&self) -> Result<(), JournalError> {
        self.write_superblock(true).await
    }

    /// Commits and checkpoints everything, and calls the journal empty. The journal takes nothing more.
    pub async fn close(&self) -> Result<(), JournalError> {
        self.state.borrow_mut().closing = true;
        self.changed.notify(usize::MAX);
        // A handle that has changed nothing yet may do so still.
        self.until(&self.changed, |state| state.running.handles == 0).await?;
        self.commit_all().await?;
        self.checkpoint().await?;
        // J5 (e): nothing looks at the log once it is called empty, so all that is home has to be durable.
        if !self.options.rules.drops(JournalMutant::EmptyWithoutFlush) {
            self.disk.flush().await?;
        }
        self.write_superblock(false).await?;
        // That has flushed, and nothing comes after it.
        self.set_durable_to(self.transferred_to());
        Ok(())
    }

    /// Makes all that is transferred durable.
    pub async fn flush(&self) -> Result<(), JournalError> {
        let transferred = self.transferred_to();
        let mut round = self.flushes.begin();
        round.will_cover(self.position(transferred));
        self.disk.flush().await.inspect_err(|error| self.abort(error.stop_reason()))?;
        drop(round);
        let later = self.options.rules.drops(JournalMutant::SyncCoversLater);
        self.set_durable_to(if later { self.transferred_to() } else { transferred });
        Ok(())
    }

    async fn write_superblock(&self, needed: bool) -> Result<(), JournalError> {
        let (home, block) = {
            let mut state = self.state.borrow_mut();
            let sequence = state.running.sequence;
            let tail = needed.then_some(state.log.tail);
            state.log.superblock(tail, sequence)?
        };
        self.disk.write_commit(home, &block, false).await?;
        self.disk.flush().await
    }

    /// Gives back what retired transactions have freed.
    pub(crate) fn give(&self, freed: &[Extent]) {
        if !freed.is_empty() {
            self.reuse.may_be_reused(freed, self.transferred_to());
            self.freed.notify(usize::MAX);
        }
    }

    /// The newest transaction whose commit block is transferred.
    pub fn transferred_to(&self) -> Sequence {
        self.state.borrow().transferred_to
    }

    /// Everything up to a transaction is durable, and whoever waits for that is told.
    pub(crate) fn set_durable_to(&self, sequence: Sequence) {
        let wanted = self.flushes.positions_wanted();
        self.flushes.settle(self.position(sequence));
        let told = wanted - self.flushes.positions_wanted();
        debug!(transaction = sequence.0, transactions_wanted = told, "told durable");
        // Without a flush only the callers are told that it is.
        if self.options.engine.flushes() {
            self.reuse.are_durable(sequence);
        }
    }
}

/// Whether a handle may enter the running transaction.
enum Admission {
    Enters,
    /// The running transaction is about to be committed.
    WhenUnlocked,
    /// It is as large as a transaction may be.
    AfterCommit,
    /// The log has no room.
    AfterCheckpoint,
    /// It asks for more than any transaction may have.
    Never,
}

impl State {
    fn admit(&mut self, credits: u32) -> Admission {
        if self.running.locked {
            return Admission::WhenUnlocked;
        }
        let most = self.log.ring.blocks() / TRANSACTION_SHARE;
        let used = self.running.buffers.len() as u32 + self.running.granted;
        if credits >= most {
            return Admission::Never;
        }
        if used + credits > most {
            return Admission::AfterCommit;
        }
        // A block granted may be changed, or revoked, which takes less.
        let wanted = self.log.blocks_for((used + credits) as usize, self.running.revokes.len() + 1);
        if wanted > self.log.free() {
            return Admission::AfterCheckpoint;
        }
        self.running.granted += credits;
        Admission::Enters
    }
}
