//! The journal: transactions, and the tasks that commit and checkpoint them. It knows buffers and the log, and no
//! inodes, pages or directories: what of them it needs it gets through [`OrderedData`](crate::OrderedData) and
//! [`Reuse`](crate::Reuse).
//!
//! # A transaction's life
//!
//! It is *running* while handles change buffers in it, then *locked*: its blocks are frozen, and the next one runs.
//! Now it is *committing*: D, JD and JC are submitted as the engine has it (`engines`), and when JC is with the
//! block layer it is *dispatched*. Once its commit block is transferred it is *retired*: what it freed
//! may be reused, its frozen blocks may go home, and when they are there (`checkpoint`) its place in the log is free again.
//!
//! # Which caller waits for what
//!
//! A handle waits for room in the log. `fbarrier` waits until JC is dispatched, `fsync` until it is durable.

mod life;

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use event_listener::Event;
use tracing::{debug, error};
use weir_ext4::journal::Sequence;
use weir_runtime::Semaphore;
use weir_storage::{Extent, Ticket};

use crate::buffers::Buffers;
use crate::checked::CheckedBlocks;
use crate::commit_times::CommitTimes;
use crate::disk::Disk;
use crate::durability::Durability;
use crate::engine::Engine;
use crate::error::{JournalError, StopReason};
use crate::flush_of_call::FlushOfCall;
use crate::freed::FreedBlocks;
use crate::integrity::HomeIntegrity;
use crate::log::{JournalExtent, Log};
use crate::mutants::JournalMutant;
use crate::notice::Unnoticed;
use crate::options::JournalOptions;
use crate::progress::Progress;
use crate::running::Running;
use crate::signals::Signals;
use crate::stage::Stage;
use crate::stop::Stop;
use crate::transaction::Logged;
use crate::unwritten::Unwritten;

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
    /// JC is durable, where the engine flushes ([`Facts::flushes`](crate::Facts::flushes)). `fsync`.
    Durable,
}

/// What was counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct JournalStats {
    /// Transactions committed.
    pub commits: u64,
    /// Blocks that they have changed.
    pub logged_blocks: u64,
    /// Of these blocks, bytes that had changed.
    pub changed_bytes: u64,
    /// Dirty pages that calls have looked at, on the engine OptFS.
    pub scanned_pages: u64,
    /// Times that the log's tail was moved.
    pub checkpoints: u64,
    /// Blocks of the log in use.
    pub log_blocks_used: u32,
    /// How long durable calls waited for the data of their file, on engines that wait.
    pub data_of_calls: Duration,
    /// How long the steps of the commits took.
    pub commit_times: CommitTimes,
}

/// The journal of a mounted filesystem.
pub struct Journal {
    pub(crate) disk: Rc<Disk>,
    pub(crate) buffers: Rc<Buffers>,
    pub(crate) options: JournalOptions,
    /// The tasks that want room in the log make it.
    pub(crate) makes_room_in_foreground: bool,
    pub(crate) running: RefCell<Running>,
    pub(crate) log: RefCell<Log>,
    pub(crate) progress: Progress,
    pub(crate) durability: Durability,
    pub(crate) unwritten: Unwritten,
    pub(crate) freed: FreedBlocks,
    /// With checksums of data: transactions that are not known to be durable, and data in place.
    pub(crate) unnoticed: Unnoticed,
    pub(crate) checked: CheckedBlocks,
    /// On the engine flush-ahead.
    pub(crate) flush_of_call: FlushOfCall,
    /// One task at a time frees the log.
    pub(crate) checkpointing: Semaphore,
    /// One task at a time writes home: or what a transaction holds of a block could come home behind what a later one does.
    pub(crate) writing_home: Semaphore,
    pub(crate) signals: Signals,
    stop: Stop,
    counted: Cell<JournalStats>,
    /// Handles that ask for more than a transaction's share of the log, and have not entered.
    large_handles_waiting: Cell<u32>,
}

impl Journal {
    /// The engine that commits.
    pub fn engine(&self) -> Engine {
        self.options.engine
    }

    /// Where the log holds changes of blocks, and not only blocks (journal coalition): what keeps their homes whole.
    pub fn coalition(&self) -> Option<HomeIntegrity> {
        let log = self.log.borrow();
        log.has_coalition().then(|| log.integrity())
    }

    /// Whether a checkpoint's copies are reliable writes.
    pub(crate) fn writes_homes_reliably(&self) -> bool {
        self.coalition() == Some(HomeIntegrity::ReliableWrites) && !self.drops(JournalMutant::HomesUnreliable)
    }

    /// Blocks that the log has room for.
    pub fn log_blocks(&self) -> u32 {
        self.log.borrow().blocks()
    }

    /// Where the log lies in the filesystem.
    pub fn area(&self) -> Vec<JournalExtent> {
        self.log.borrow().area().to_vec()
    }

    /// What was counted.
    pub fn stats(&self) -> JournalStats {
        JournalStats { log_blocks_used: self.log.borrow().used(), ..self.counted.get() }
    }

    /// Counts something.
    pub(crate) fn count(&self, add: impl FnOnce(&mut JournalStats)) {
        let mut counted = self.counted.get();
        add(&mut counted);
        self.counted.set(counted);
    }

    /// Whether a mutant drops this rule.
    pub(crate) fn drops(&self, mutant: JournalMutant) -> bool {
        self.options.rules.drops(mutant)
    }

    /// Why the journal takes nothing more, if that is so.
    pub fn aborted(&self) -> Option<StopReason> {
        self.stop.reason()
    }

    /// Whether it takes nothing more.
    pub(crate) fn is_stopped(&self) -> bool {
        self.stop.is_set()
    }

    /// That it takes nothing more, as an error.
    pub(crate) fn check(&self) -> Result<(), JournalError> {
        self.stop.check()
    }

    /// Ends the journal: what was acknowledged as durable is, and nothing more will be.
    pub fn abort(&self, reason: StopReason) {
        if self.drops(JournalMutant::ErrorIgnored) {
            return;
        }
        if self.stop.set(reason.clone()) {
            error!(name: "journal_stopped", "no more changes: {reason}");
        }
        self.durability.fail();
        self.progress.wake_all();
        self.freed.wake();
        self.signals.wake_all();
    }

    /// Whether it takes nothing more, since it is being closed or is.
    pub fn is_closing(&self) -> bool {
        self.stop.is_closing()
    }

    /// From now on, or no longer, a change that has not ended is being dropped: a handle that is dropped meanwhile
    /// stops the journal, since its changes must not be committed (J8).
    pub fn set_abandoning(&self, abandoning: bool) {
        self.stop.set_abandoning(abandoning);
    }

    /// Whether a change that has not ended is being dropped.
    pub(crate) fn is_abandoning(&self) -> bool {
        self.stop.is_abandoning()
    }

    /// Waits until `done`, which is looked at whenever `event` is notified.
    pub(crate) async fn until(
        &self,
        event: &Event,
        mut done: impl FnMut() -> bool,
    ) -> Result<(), JournalError> {
        loop {
            if done() {
                return Ok(());
            }
            self.check()?;
            event.listen().await;
        }
    }

    /// Waits until a transaction has reached a stage.
    pub(crate) async fn reached(&self, stage: &Stage, sequence: Sequence) -> Result<(), JournalError> {
        self.until(stage.event(), || stage.is_reached_by(sequence)).await
    }

    /// The commit block of a transaction is transferred: its frozen blocks may go home, and what it freed may be reused.
    /// `ticket` is the commit block's, for callers that want to know when it is durable.
    pub(crate) fn retire(&self, logged: Logged, ticket: Option<Ticket>) {
        self.may_go_home(&logged);
        self.is_transferred(logged.sequence, ticket, logged.freed);
    }

    /// The blocks that a transaction holds may go home.
    pub(crate) fn may_go_home(&self, logged: &Logged) {
        self.unwritten.take_in(logged, &self.options);
        self.log.borrow_mut().retire(logged);
    }

    /// The commit block of a transaction is transferred, and blocks that were freed may be reused.
    pub(crate) fn is_transferred(&self, sequence: Sequence, ticket: Option<Ticket>, freed: Vec<Extent>) {
        self.progress.transferred.set(sequence);
        self.durability.transferred(sequence, ticket);
        let crowded = {
            let log = self.log.borrow();
            log.used() > self.options.checkpoint_blocks.min(log.blocks() / 2)
                || self.checked.are_many(log.blocks())
        };
        self.freed.retire(freed, sequence);
        if crowded && !self.makes_room_in_foreground {
            self.signals.checkpoint.notify(usize::MAX);
        }
        self.signals.changed.notify(usize::MAX);
        self.progress.transferred.wake();
        let early = self.drops(JournalMutant::ReleasesAtTransfer);
        if early || !self.options.engine.holds_until_durable() {
            self.release(sequence);
        }
    }

    /// Transactions up to one give their blocks up (J4).
    pub(crate) fn release(&self, sequence: Sequence) {
        if !self.progress.released.is_reached_by(sequence) {
            self.progress.released.reach(sequence);
        }
    }

    /// Everything up to a transaction is durable: answers the callers that wait for that.
    pub(crate) fn set_durable_to(&self, sequence: Sequence) {
        self.noticed(sequence);
        let answered = self.durability.settle(sequence);
        debug!(
            name: "commit_durable",
            transaction = sequence.0, transactions_wanted = answered, "acknowledged as durable"
        );
        // An engine without flushes answers the callers, and makes nothing durable.
        if self.options.engine.facts().flushes {
            self.freed.reuse.are_durable(sequence);
        }
    }

    /// The transaction that runs now.
    pub fn running(&self) -> Sequence {
        self.running.borrow().sequence()
    }

    /// Whether a transaction is known durable.
    pub fn is_durable(&self, sequence: Sequence) -> bool {
        self.durability.is_durable(sequence)
    }

    /// Whether the commit block of a transaction was dispatched.
    pub fn is_dispatched(&self, sequence: Sequence) -> bool {
        self.progress.dispatched.is_reached_by(sequence)
    }

    /// Whether the flush that makes a transaction durable is still to be submitted: then it covers what is
    /// transferred now.
    pub fn will_flush(&self, sequence: Sequence) -> bool {
        self.durability.will_flush(sequence)
    }

    /// The newest transaction whose commit block is transferred.
    pub fn transferred_to(&self) -> Sequence {
        self.progress.transferred.to()
    }

    /// Has a transaction committed soon, if it runs still.
    pub fn request_commit(&self, sequence: Sequence) {
        let runs = {
            let running = self.running.borrow();
            running.sequence() == sequence && !running.is_empty()
        };
        if runs {
            self.request();
        }
    }

    /// Has the running transaction committed soon.
    fn request(&self) {
        self.running.borrow_mut().request();
        self.signals.commit.notify(usize::MAX);
    }

    /// Commits a transaction, and waits as the call wants it.
    ///
    /// # Errors
    /// [`JournalError::Stopped`] if the journal stops before.
    pub async fn commit(&self, sequence: Sequence, until: Until) -> Result<(), JournalError> {
        self.request_commit(sequence);
        match until {
            Until::Dispatched => self.reached(&self.progress.dispatched, sequence).await,
            Until::Transferred => self.reached(&self.progress.transferred, sequence).await,
            Until::Durable => {
                self.durability.want(sequence);
                // If it is not dispatched yet, the flush task is woken when it is.
                if self.is_dispatched(sequence) {
                    self.signals.flush.notify(usize::MAX);
                }
                match self.durability.until(sequence).await {
                    Ok(()) => Ok(()),
                    Err(error) => self.check().and(Err(error.into())),
                }
            }
        }
    }

    /// Commits whatever runs, also if nothing has changed: JC alone delimits an epoch, too (J3).
    ///
    /// # Errors
    /// [`JournalError::Stopped`] if the journal stops before.
    pub async fn force_commit(&self, until: Until) -> Result<(), JournalError> {
        let sequence = {
            let mut running = self.running.borrow_mut();
            running.force();
            running.sequence()
        };
        self.commit(sequence, until).await
    }

    /// Commits whatever runs, and waits until it is in the log.
    pub async fn commit_all(&self) -> Result<(), JournalError> {
        self.commit(self.newest(), Until::Transferred).await
    }

    /// Commits whatever runs, or waits for what is being committed, until that is durable.
    pub(crate) async fn commit_newest(&self) -> Result<(), JournalError> {
        self.commit(self.newest(), Until::Durable).await
    }

    /// The newest transaction that has something to commit.
    fn newest(&self) -> Sequence {
        let running = self.running.borrow();
        let before = Sequence(running.sequence().0.wrapping_sub(1));
        if running.is_empty() { before } else { running.sequence() }
    }

    /// Commits whatever runs, and waits until all that was freed before can be reused (J7).
    pub async fn give_back(&self) -> Result<(), JournalError> {
        self.commit_all().await?;
        if !self.unnoticed.is_empty() {
            self.flush().await?;
        }
        self.until(&self.signals.changed, || self.freed.are_given()).await
    }

    /// Makes all that is transferred durable.
    pub async fn flush(&self) -> Result<(), JournalError> {
        let transferred = self.transferred_to();
        let round = self.durability.begin_flush(transferred);
        self.disk.flush().await.inspect_err(|error| self.abort(error.stop_reason()))?;
        drop(round);
        let later = self.drops(JournalMutant::SyncCoversLater);
        self.set_durable_to(if later { self.transferred_to() } else { transferred });
        Ok(())
    }
}
