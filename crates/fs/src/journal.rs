//! The journal: transactions, and the tasks that commit and checkpoint them. It knows buffers and the log, and no
//! inodes, pages or directories: what of them it needs it gets through [`OrderedData`] and [`Reuse`].
//!
//! # A transaction's life
//!
//! It is *running* while handles change buffers in it, then *locked*: its copies are taken, and the next one runs.
//! Now it is *committing*: the engine dispatches D, JD and JC (`dual`, or `legacy`, which waits in between), and when
//! JC is with the block layer it is *dispatched*. Once its commit block is transferred it is *retired*: what it freed
//! may be reused, its copies may go home, and when they are there (`checkpoint`) its place in the log is free again.
//!
//! # Who waits for what
//!
//! A handle waits for room in the log. `fbarrier` waits until JC is dispatched, `fsync` until it is durable.

mod checkpoint;
mod dual;
mod handle;
mod legacy;
mod log;
#[cfg(test)]
mod tests;
mod transaction;

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::{Rc, Weak};

use event_listener::Event;
use futures_util::FutureExt;
use futures_util::select_biased;
use tracing::{debug, error};
use weir_ext4::FormatError;
use weir_ext4::journal::{JournalSuperblock, Sequence};
use weir_runtime::{Instant, Semaphore};
use weir_storage::{Extent, Ticket};

use crate::buffers::Buffers;
use crate::disk::Disk;
use crate::error::{FsError, ReadOnlyReason};
use crate::mutants::FsMutant;
use crate::options::{Conflicts, Engine, MountOptions};

pub(crate) use handle::Handle;
pub(crate) use log::{JournalExtent, Log};
use transaction::{Copy, Dispatched, Locked, Retired, Running, Unwritten};
pub(crate) use transaction::{DataClass, Local, OrderedData};

/// Share of the log that one transaction may take: a quarter, as jbd2 has it.
const TRANSACTION_SHARE: u32 = 4;

/// Receives what may be done with blocks that transactions have freed (J7).
pub(crate) trait Reuse {
    /// Commit blocks up to that of `transferred` are transferred, which has freed these blocks, or one before it has:
    /// any write to them comes after that.
    fn may_be_reused(&self, freed: &[Extent], transferred: Sequence);

    /// Transactions up to one are durable: what they have freed may be discarded.
    fn are_durable(&self, to: Sequence);

    /// Blocks that may be reused, and wait until a transaction is durable.
    fn awaiting_durability(&self) -> u64;
}

struct State {
    log: Log,
    running: Running,
    /// The newest transaction that somebody wants committed.
    requested: Option<Sequence>,
    /// Transactions that somebody wants durable, and that are not yet.
    wanted: Vec<Sequence>,
    /// The newest transaction whose commit block was dispatched.
    dispatched_to: Sequence,
    /// The newest transaction for which the flush that makes it durable is submitted; on the legacy path, that which
    /// goes before its commit block.
    flushing_to: Sequence,
    transferred_to: Sequence,
    durable_to: Sequence,
    dispatched: VecDeque<Dispatched>,
    retired: VecDeque<Retired>,
    /// The commit block of `transferred_to`, where the storage may tell when it is durable.
    newest: Option<Ticket>,
    /// Home writes are being submitted: what is freed meanwhile is held back, or a late one would overwrite what
    /// comes there next. Once they are submitted, the block layer keeps them before whatever overlaps them (S6).
    submitting_home: bool,
    held_back: Vec<Extent>,
    aborted: Option<ReadOnlyReason>,
    closing: bool,
    commits: u64,
    checkpoints: u64,
}

/// The journal of a mounted filesystem.
pub(crate) struct Journal {
    pub(crate) disk: Rc<Disk>,
    buffers: Rc<Buffers>,
    reuse: Rc<dyn Reuse>,
    engine: Engine,
    options: MountOptions,
    state: RefCell<State>,
    unwritten: Unwritten,
    /// A change that has not ended is being dropped: its handle must not be committed (J8).
    pub(crate) abandoning: Cell<bool>,
    /// One checkpoint at a time.
    checkpointing: Semaphore,
    /// The running transaction or the log's room has changed, or what was held back is given back, or the journal
    /// was aborted.
    changed: Event,
    /// A transaction has reached its next stage: nobody is woken by any other than what he waits for.
    dispatched: Event,
    transferred: Event,
    durable: Event,
    /// Blocks that were freed may be reused.
    freed: Event,
    /// Somebody wants a commit; or a flush; or room in the log.
    commit_wanted: Event,
    /// A transaction has got its first change.
    begun: Event,
    flush_wanted: Event,
    checkpoint_wanted: Event,
}

/// What was counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct JournalStats {
    /// Transactions committed.
    pub commits: u64,
    /// Times that the log's tail was moved.
    pub checkpoints: u64,
    /// Blocks of the log in use.
    pub log_blocks_used: u32,
}

impl Journal {
    /// The journal on an empty log, and its tasks.
    pub(crate) fn new(
        disk: Rc<Disk>,
        buffers: Rc<Buffers>,
        reuse: Rc<dyn Reuse>,
        engine: Engine,
        options: MountOptions,
        superblock: JournalSuperblock,
        area: Vec<JournalExtent>,
    ) -> Rc<Journal> {
        let first = superblock.sequence();
        let before = Sequence(first.0.wrapping_sub(1));
        let journal = Rc::new(Journal {
            disk,
            buffers,
            reuse,
            engine,
            options,
            state: RefCell::new(State {
                log: Log::new(superblock, area),
                running: Running::new(first),
                requested: None,
                wanted: Vec::new(),
                dispatched_to: before,
                flushing_to: before,
                transferred_to: before,
                durable_to: before,
                dispatched: VecDeque::new(),
                retired: VecDeque::new(),
                newest: None,
                submitting_home: false,
                held_back: Vec::new(),
                aborted: None,
                closing: false,
                commits: 0,
                checkpoints: 0,
            }),
            unwritten: Unwritten::default(),
            abandoning: Cell::new(false),
            checkpointing: Semaphore::new(1),
            changed: Event::new(),
            dispatched: Event::new(),
            transferred: Event::new(),
            durable: Event::new(),
            freed: Event::new(),
            commit_wanted: Event::new(),
            begun: Event::new(),
            flush_wanted: Event::new(),
            checkpoint_wanted: Event::new(),
        });
        let handle = &journal.disk.handle;
        // Tasks, all on the one thread; the names count where a simulation has a processor for each of its threads.
        drop(handle.spawn_thread("commit", commit_task(Rc::downgrade(&journal))));
        drop(handle.spawn(commit_timer(Rc::downgrade(&journal))));
        if matches!(engine, Engine::Dual { .. }) {
            drop(handle.spawn_thread("flush", dual::flush_task(Rc::downgrade(&journal))));
            drop(handle.spawn(dual::durability_task(Rc::downgrade(&journal))));
        }
        drop(handle.spawn_thread("checkpoint", checkpoint::checkpoint_task(Rc::downgrade(&journal))));
        journal
    }

    /// The engine that commits.
    pub(crate) fn engine(&self) -> Engine {
        self.engine
    }

    /// Whether a journal in this state makes anything durable: the legacy path without barriers does not.
    pub(crate) fn flushes(&self) -> bool {
        self.engine != Engine::Jbd2 { barrier: false }
    }

    /// Whether data and log blocks go in epochs.
    pub(crate) fn is_dual(&self) -> bool {
        matches!(self.engine, Engine::Dual { .. })
    }

    pub(crate) fn stats(&self) -> JournalStats {
        let state = self.state.borrow();
        let used = state.log.ring.used(state.log.tail, state.log.head);
        JournalStats { commits: state.commits, checkpoints: state.checkpoints, log_blocks_used: used }
    }

    /// Blocks that the log has room for.
    pub(crate) fn log_blocks(&self) -> u32 {
        self.state.borrow().log.ring.blocks()
    }

    /// Why the journal takes nothing more, if that is so.
    pub(crate) fn aborted(&self) -> Option<ReadOnlyReason> {
        self.state.borrow().aborted.clone()
    }

    /// Ends the journal: what was acknowledged as durable is, and nothing more will be.
    pub(crate) fn abort(&self, error: &FsError) {
        if self.options.drops(FsMutant::ErrorIgnored) {
            return;
        }
        let reason = match error {
            FsError::Storage(error) => ReadOnlyReason::Aborted(*error),
            FsError::Format(error) => ReadOnlyReason::Damaged(error.clone()),
            FsError::ReadOnly(reason) => reason.clone(),
            _ => ReadOnlyReason::Aborted(weir_storage::StorageError::Aborted),
        };
        self.state.borrow_mut().aborted.get_or_insert_with(|| {
            error!("no more changes: {reason}");
            reason
        });
        let waiters = [&self.changed, &self.dispatched, &self.transferred, &self.durable, &self.freed];
        let tasks = [&self.commit_wanted, &self.begun, &self.flush_wanted, &self.checkpoint_wanted];
        for event in waiters.into_iter().chain(tasks) {
            event.notify(usize::MAX);
        }
    }

    /// Whether the filesystem drops the rule that `mutant` names.
    pub(crate) fn drops(&self, mutant: FsMutant) -> bool {
        self.options.drops(mutant)
    }

    /// Whether it takes nothing more, since it is being closed or is.
    pub(crate) fn is_closing(&self) -> bool {
        self.state.borrow().closing
    }

    fn check(&self) -> Result<(), FsError> {
        match &self.state.borrow().aborted {
            Some(reason) => Err(FsError::ReadOnly(reason.clone())),
            None => Ok(()),
        }
    }

    /// Opens a handle that changes at most `credits` blocks in one transaction (J8). Waits for room in the log.
    ///
    /// A task has one handle at a time, and does not wait for a commit while it holds one.
    pub(crate) async fn start(self: &Rc<Journal>, credits: u32) -> Result<Handle, FsError> {
        loop {
            self.check()?;
            {
                let mut state = self.state.borrow_mut();
                if state.closing {
                    return Err(FsError::ReadOnly(ReadOnlyReason::Unmounted));
                }
                match state.admit(credits) {
                    Admission::Enters => {
                        let split = self.options.drops(FsMutant::GroupSplit);
                        state.running.handles += u32::from(!split);
                        return Ok(Handle::new(Rc::clone(self), credits, !split));
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
                    Admission::Never => return Err(FsError::NoSpace),
                    Admission::WhenUnlocked => {}
                }
            }
            self.changed.listen().await;
        }
    }

    /// The transaction that runs now.
    pub(crate) fn running(&self) -> Sequence {
        self.state.borrow().running.sequence
    }

    /// Whether a transaction is known durable.
    pub(crate) fn is_durable(&self, sequence: Sequence) -> bool {
        !sequence.is_after(self.state.borrow().durable_to)
    }

    /// Whether the commit block of a transaction was dispatched.
    pub(crate) fn is_dispatched(&self, sequence: Sequence) -> bool {
        !sequence.is_after(self.state.borrow().dispatched_to)
    }

    /// Whether the flush that makes a transaction durable is still to be submitted: then it covers what is
    /// transferred now.
    pub(crate) fn will_flush(&self, sequence: Sequence) -> bool {
        sequence.is_after(self.state.borrow().flushing_to)
    }

    /// The flush that makes everything up to a transaction durable is submitted next.
    pub(crate) fn set_flushing_to(&self, sequence: Sequence) {
        let mut state = self.state.borrow_mut();
        if sequence.is_after(state.flushing_to) {
            state.flushing_to = sequence;
        }
    }

    /// Has a transaction committed soon, if it runs still.
    pub(crate) fn request_commit(&self, sequence: Sequence) {
        let mut state = self.state.borrow_mut();
        if state.running.sequence == sequence && !state.running.is_empty() {
            state.requested = Some(sequence);
            self.commit_wanted.notify(usize::MAX);
        }
    }

    /// Commits a transaction, and waits until its commit block is dispatched: `fbarrier`.
    pub(crate) async fn ordered(&self, sequence: Sequence) -> Result<(), FsError> {
        self.request_commit(sequence);
        self.until(&self.dispatched, |state| !sequence.is_after(state.dispatched_to)).await
    }

    /// Commits a transaction, and waits until its commit block is transferred.
    pub(crate) async fn transferred(&self, sequence: Sequence) -> Result<(), FsError> {
        self.request_commit(sequence);
        self.until(&self.transferred, |state| !sequence.is_after(state.transferred_to)).await
    }

    /// Commits a transaction, and waits until it is durable: `fsync`.
    pub(crate) async fn durable(&self, sequence: Sequence) -> Result<(), FsError> {
        self.request_commit(sequence);
        if !self.is_durable(sequence) {
            self.state.borrow_mut().wanted.push(sequence);
            // If it is not dispatched yet, whoever dispatches it wakes the flush task.
            if self.is_dispatched(sequence) {
                self.flush_wanted.notify(usize::MAX);
            }
        }
        self.until(&self.durable, |state| !sequence.is_after(state.durable_to)).await
    }

    /// Commits whatever runs, and waits until it is in the log.
    pub(crate) async fn commit_all(&self) -> Result<(), FsError> {
        let (running, empty) = {
            let state = self.state.borrow();
            (state.running.sequence, state.running.is_empty())
        };
        let newest = if empty { Sequence(running.0.wrapping_sub(1)) } else { running };
        self.transferred(newest).await
    }

    /// Commits whatever runs, and waits until all that was freed before can be reused (J7).
    pub(crate) async fn give_back(&self) -> Result<(), FsError> {
        self.commit_all().await?;
        self.until(&self.changed, |state| state.held_back.is_empty()).await
    }

    /// Waits until `done`, which is looked at whenever `event` is notified.
    async fn until(&self, event: &Event, mut done: impl FnMut(&State) -> bool) -> Result<(), FsError> {
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
    pub(crate) async fn open(&self) -> Result<(), FsError> {
        self.write_superblock(true).await
    }

    /// Commits and checkpoints everything, and calls the journal empty. The journal takes nothing more.
    pub(crate) async fn close(&self) -> Result<(), FsError> {
        self.state.borrow_mut().closing = true;
        self.changed.notify(usize::MAX);
        // A handle that has changed nothing yet may do so still.
        self.until(&self.changed, |state| state.running.handles == 0).await?;
        self.commit_all().await?;
        self.checkpoint().await?;
        // J5 (e): nothing looks at the log once it is called empty, so all that is home has to be durable.
        if !self.options.drops(FsMutant::EmptyWithoutFlush) {
            self.disk.flush().await?;
        }
        self.write_superblock(false).await?;
        // That has flushed, and nothing comes after it.
        self.set_durable_to(self.transferred_to());
        Ok(())
    }

    /// Makes all that is transferred durable.
    pub(crate) async fn flush(&self) -> Result<(), FsError> {
        let transferred = self.transferred_to();
        self.set_flushing_to(transferred);
        self.disk.flush().await.inspect_err(|error| self.abort(error))?;
        let later = self.options.drops(FsMutant::SyncCoversLater);
        self.set_durable_to(if later { self.transferred_to() } else { transferred });
        Ok(())
    }

    async fn write_superblock(&self, needed: bool) -> Result<(), FsError> {
        let (home, block) = {
            let mut state = self.state.borrow_mut();
            let sequence = state.running.sequence;
            let tail = needed.then_some(state.log.tail);
            state.log.superblock(tail, sequence)?
        };
        self.disk.write_commit(home, &block, false).await?;
        self.disk.flush().await
    }

    /// Locks the running transaction when its handles are closed, takes its copies, and lets the next one run.
    /// None if there is nothing to commit.
    async fn lock(&self) -> Result<Option<Locked>, FsError> {
        if self.engine == (Engine::Dual { conflicts: Conflicts::List }) {
            self.conflicts_resolved().await?;
        }
        self.state.borrow_mut().running.locked = true;
        self.until(&self.changed, |state| state.running.handles == 0).await?;
        // The last of them may have been abandoned.
        self.check()?;
        self.log_space().await?;
        let mut state = self.state.borrow_mut();
        let next = Running::new(state.running.sequence.next());
        let running = std::mem::replace(&mut state.running, next);
        drop(state);
        self.changed.notify(usize::MAX);
        let empty = running.is_empty();
        let mut copies = Vec::with_capacity(running.buffers.len());
        for buffer in running.buffers.into_values() {
            buffer.seal(&self.buffers.checksums)?;
            if buffer.changed_in.get() == Some(running.sequence) {
                buffer.changed_in.set(None);
            }
            buffer.held_by.set(Some(running.sequence));
            let content = buffer.snapshot();
            copies.push(Copy { buffer, content });
        }
        let locked = Locked {
            sequence: running.sequence,
            copies,
            revokes: running.revokes.into_iter().collect(),
            data: running.data.into_values().collect(),
            freed: running.freed,
            log_end: 0,
        };
        Ok((!empty).then_some(locked))
    }

    /// J4, policy list: waits until no transaction on its way holds a block that the running one has changed.
    async fn conflicts_resolved(&self) -> Result<(), FsError> {
        if self.options.drops(FsMutant::ConflictsIgnored) {
            return Ok(());
        }
        self.until(&self.transferred, |state| {
            let transferred = state.transferred_to;
            !state.running.conflicts.values().any(|holder| holder.is_after(transferred))
        })
        .await
    }

    /// Waits until the log has room for the running transaction, which is locked.
    async fn log_space(&self) -> Result<u32, FsError> {
        loop {
            {
                let state = self.state.borrow();
                let blocks = state.log.blocks_for(state.running.buffers.len(), state.running.revokes.len());
                let over = if self.options.drops(FsMutant::FillsLogOver) { 2 } else { 0 };
                if blocks <= state.log.free() + over {
                    return Ok(blocks);
                }
                if blocks >= state.log.ring.blocks() {
                    // More than was granted: a mistake of whoever changed so much in one handle.
                    return Err(
                        FormatError::Full { what: "the journal is too small for one operation" }.into()
                    );
                }
            }
            self.checkpoint_wanted.notify(usize::MAX);
            self.changed.listen().await;
            self.check()?;
        }
    }

    /// JD and JC of a locked transaction, as they stand in the log.
    fn compose(&self, locked: &mut Locked) -> Result<Composed, FsError> {
        let millis = self.disk.handle.wall_clock_millis();
        let mut state = self.state.borrow_mut();
        if self.options.drops(FsMutant::LogBlockNotCopied) {
            locked.copies.iter_mut().for_each(|copy| copy.content = copy.buffer.snapshot());
        }
        let (log, commit_at, commit) =
            state.log.compose(locked.sequence, &locked.copies, &locked.revokes, millis)?;
        locked.log_end = state.log.head;
        state.commits += 1;
        debug!(
            transaction = locked.sequence.0,
            engine = ?self.engine,
            blocks = locked.copies.len(),
            revokes = locked.revokes.len(),
            files = locked.data.len(),
            "commit"
        );
        Ok(Composed { log, commit_at, commit })
    }

    /// The commit block of a transaction is transferred: its copies may go home, and what it freed may be reused.
    /// `ticket` is the commit block's, for callers that want to know when it is durable.
    fn retire(&self, locked: Locked, ticket: Option<Ticket>) {
        self.unwritten.take_in(&locked);
        let mut state = self.state.borrow_mut();
        state.transferred_to = locked.sequence;
        state.retired.push_back(Retired { sequence: locked.sequence, log_end: locked.log_end });
        state.newest = ticket;
        let crowded = state.log.free() < state.log.ring.blocks() / 2;
        let held = state.submitting_home && !self.options.drops(FsMutant::ReusesBeforeHomeWrites);
        let reusable = if held {
            state.held_back.extend(&locked.freed);
            Vec::new()
        } else {
            locked.freed
        };
        drop(state);
        self.give(&reusable);
        if crowded {
            self.checkpoint_wanted.notify(usize::MAX);
        }
        self.changed.notify(usize::MAX);
        self.transferred.notify(usize::MAX);
    }

    /// Gives back what retired transactions have freed.
    fn give(&self, freed: &[Extent]) {
        if !freed.is_empty() {
            self.reuse.may_be_reused(freed, self.transferred_to());
            self.freed.notify(usize::MAX);
        }
    }

    /// The newest transaction whose commit block is transferred.
    pub(crate) fn transferred_to(&self) -> Sequence {
        self.state.borrow().transferred_to
    }

    /// Everything up to a transaction is durable.
    pub(crate) fn set_durable_to(&self, sequence: Sequence) {
        {
            let mut state = self.state.borrow_mut();
            // A flush of `sync` may have reached further.
            if sequence.is_after(state.durable_to) {
                state.durable_to = sequence;
            }
            let waiting = state.wanted.len();
            state.wanted.retain(|wanted| wanted.is_after(sequence));
            debug!(transaction = sequence.0, callers = waiting - state.wanted.len(), "told durable");
        }
        // Without a flush only the callers are told that it is.
        if self.flushes() {
            self.reuse.are_durable(sequence);
        }
        self.durable.notify(usize::MAX);
    }

    /// When the running transaction is committed by its age.
    fn commit_due(&self) -> Option<Instant> {
        let state = self.state.borrow();
        state.running.since.map(|since| since + self.options.commit_interval)
    }

    fn commit_is_due(&self) -> bool {
        let now = self.disk.handle.now();
        let due = self.commit_due().is_some_and(|due| due <= now);
        let state = self.state.borrow();
        state.aborted.is_none()
            && !state.running.is_empty()
            && (due || state.requested == Some(state.running.sequence))
    }
}

/// JD and JC.
struct Composed {
    log: Vec<log::Run>,
    commit_at: u64,
    commit: Rc<weir_runtime::Buffer>,
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

/// Commits whenever somebody wants it, or the running transaction is old enough.
async fn commit_task(journal: Weak<Journal>) {
    loop {
        let Some(now) = journal.upgrade() else { return };
        let wanted = now.commit_wanted.listen();
        if now.commit_is_due() {
            let done = match now.engine {
                Engine::Dual { .. } => now.commit_dual().await,
                Engine::Jbd2 { barrier } => now.commit_legacy(barrier).await,
            };
            if let Err(error) = done {
                now.abort(&error);
            }
            continue;
        }
        drop(now);
        wanted.await;
    }
}

/// Wakes the commit task when the running transaction is old enough. A timer, and no thread: a transaction's first
/// change costs no context switch.
async fn commit_timer(journal: Weak<Journal>) {
    loop {
        let Some(now) = journal.upgrade() else { return };
        let begun = now.begun.listen();
        let due = now.commit_due().filter(|_| now.aborted().is_none());
        if due.is_some_and(|due| due <= now.disk.handle.now()) {
            now.commit_wanted.notify(usize::MAX);
        }
        let due = due.filter(|due| *due > now.disk.handle.now());
        let clock = now.disk.handle.clone();
        drop(now);
        select_biased! {
            () = begun.fuse() => {}
            () = until(&clock, due).fuse() => {}
        }
    }
}

/// Sleeps until then; for ever, if there is no such time.
async fn until(clock: &weir_runtime::Handle, due: Option<Instant>) {
    match due {
        Some(due) => clock.sleep_until(due).await,
        None => std::future::pending().await,
    }
}
