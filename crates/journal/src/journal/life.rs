//! The life of a journal: it begins with its tasks, lets handles into the running transaction, and is called empty at
//! its end.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use weir_block::Durable;
use weir_ext4::journal::{JournalSuperblock, Sequence};
use weir_runtime::Semaphore;
use weir_storage::Ordering;

use super::Journal;
use crate::buffers::Buffers;
use crate::checked::CheckedBlocks;
use crate::disk::Disk;
use crate::durability::Durability;
use crate::engine::OrderBy;
use crate::error::{JournalError, StopReason};
use crate::flush_of_call::FlushOfCall;
use crate::freed::{FreedBlocks, Reuse};
use crate::handle::TxHandle;
use crate::integrity::HomeIntegrity;
use crate::log::{JournalExtent, Log};
use crate::mutants::JournalMutant;
use crate::notice::Unnoticed;
use crate::options::{CheckpointBy, JournalOptions};
use crate::progress::Progress;
use crate::running::Running;
use crate::signals::Signals;
use crate::stop::Stop;
use crate::unwritten::Unwritten;
use crate::{checkpoint, commit, flush, foreground, notice};

/// Share of the log that one transaction may take: a quarter, as jbd2 has it. A single *large* handle may ask for more:
/// then it is alone in its transaction.
const TRANSACTION_SHARE: u32 = 4;

/// Whether a handle may enter the running transaction.
enum Admission {
    Enters,
    /// The running transaction is about to be committed, or a large handle goes first.
    Later,
    /// It is as large as a transaction may be.
    AfterCommit,
    /// The log has no room.
    AfterCheckpoint,
    /// It asks for more than any transaction may have.
    Never,
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
        let handle = disk.handle().clone();
        let integrity = HomeIntegrity::from_capabilities(disk.capabilities());
        let facts = options.engine.facts();
        if !facts.logs {
            disk.has_no_log();
        }
        let log = Log::new(superblock, area, options.log_blocks_max, integrity, options.rules);
        let flusher = foreground::flusher_of(&options, &log);
        let journal = Rc::new(Journal {
            makes_room_in_foreground: flusher.is_some(),
            disk,
            buffers,
            options,
            running: RefCell::new(Running::new(first)),
            log: RefCell::new(log),
            progress: Progress::new(before),
            durability: Durability::new(before),
            unwritten: Unwritten::default(),
            freed: FreedBlocks::new(reuse, options.rules),
            unnoticed: Unnoticed::default(),
            checked: CheckedBlocks::default(),
            flush_of_call: FlushOfCall::default(),
            checkpointing: Semaphore::new(1),
            writing_home: Semaphore::new(1),
            signals: Signals::default(),
            stop: Stop::default(),
            counted: Cell::default(),
            large_handles_waiting: Cell::new(0),
        });
        let weak = || Rc::downgrade(&journal);
        // Tasks, all on the one thread; the names count where a simulation has a processor for each of its threads.
        drop(handle.spawn_thread("commit", commit::commit_task(weak())));
        drop(handle.spawn(commit::commit_timer(weak())));
        if facts.flushes_for_callers {
            drop(handle.spawn_thread("flush", flush::flush_task(weak())));
        }
        if journal.commits_tell_durability() {
            drop(handle.spawn(flush::durability_task(weak())));
        }
        if facts.log.data_checksums {
            drop(handle.spawn(notice::notice_task(weak())));
        }
        drop(handle.spawn_thread("checkpoint", checkpoint::checkpoint_task(weak())));
        if let Some(every) = flusher {
            drop(handle.spawn_thread("flusher", foreground::flusher_task(weak(), every)));
        }
        journal
    }

    /// Whether a commit block that is durable proves the same of all commit blocks before it, without a flush: by its epoch, or
    /// by its place on a prefix device (S3).
    fn commits_tell_durability(&self) -> bool {
        match self.options.engine.facts().order {
            OrderBy::Barriers => true,
            OrderBy::Receipt => self.disk.capabilities().ordering == Ordering::Prefix,
            OrderBy::Flushes => false,
        }
    }

    /// The most blocks that one handle may ask to change: what the whole log has room for, beside its descriptors, a block
    /// of revokes and the commit block.
    pub fn most_credits(&self) -> u32 {
        self.log.borrow().most_credits()
    }

    /// Opens a handle that changes at most `credits` blocks in one transaction (J8). Waits for room in the log; one that
    /// asks for more than a quarter of the log waits until it is alone, and others wait behind it.
    ///
    /// A task has one handle at a time, and does not wait for a commit while it holds one.
    pub async fn start(self: &Rc<Journal>, credits: u32) -> Result<TxHandle, JournalError> {
        let mut turn = None;
        loop {
            self.check()?;
            if self.is_closing() {
                return Err(JournalError::Stopped(StopReason::Closed));
            }
            let is_large = credits >= self.share();
            if is_large && turn.is_none() && !self.drops(JournalMutant::LargeStarved) {
                turn = Some(LargeTurn::before_others(self));
            }
            match self.admission(credits, is_large) {
                Admission::Enters => {
                    let counted = !self.drops(JournalMutant::GroupSplit);
                    self.running.borrow_mut().open(credits, counted);
                    return Ok(TxHandle::new(Rc::clone(self), credits));
                }
                Admission::AfterCommit => self.request(),
                Admission::AfterCheckpoint if self.makes_room_in_foreground && self.is_short() => {
                    let made = foreground::make_room(self).await;
                    made.inspect_err(|error| self.abort(error.stop_reason()))?;
                    continue;
                }
                Admission::AfterCheckpoint => {
                    let nothing_to_free = self.log.borrow().newest_retired().is_none();
                    if nothing_to_free && !self.running.borrow().is_empty() {
                        self.request();
                    }
                    self.signals.checkpoint.notify(usize::MAX);
                }
                Admission::Never => return Err(JournalError::TooSmall),
                Admission::Later => {}
            }
            self.signals.changed.listen().await;
        }
    }

    /// Blocks that a transaction takes of the log, unless a single handle asks for more.
    pub(crate) fn share(&self) -> u32 {
        self.log.borrow().blocks() / TRANSACTION_SHARE
    }

    /// Whether a handle may enter the running transaction.
    fn admission(&self, credits: u32, is_large: bool) -> Admission {
        let (running, log) = (self.running.borrow(), self.log.borrow());
        if is_large && credits > log.most_credits() {
            return Admission::Never;
        }
        if running.is_locked() || (!is_large && self.large_handles_waiting.get() > 0) {
            return Admission::Later;
        }
        let blocks = running.changed_or_granted() + credits;
        let is_alone = blocks == credits && running.revoked() == 0 && !running.has_handles();
        if if is_large { !is_alone } else { blocks > self.share() } {
            return Admission::AfterCommit;
        }
        if self.makes_room_in_foreground && self.is_short() {
            return Admission::AfterCheckpoint;
        }
        // A block granted may be changed, or revoked, which takes less.
        if log.blocks_for(blocks as usize, running.revoked() + 1) > log.free() {
            return Admission::AfterCheckpoint;
        }
        Admission::Enters
    }

    /// Writes the superblock of a journal whose log begins at its head, so that recovery looks at it, and flushes.
    ///
    /// # Errors
    /// [`JournalError::NoShare`] if checkpoints are to remap, and the storage cannot.
    pub async fn open(&self) -> Result<(), JournalError> {
        if self.options.checkpoint == CheckpointBy::Remap && !self.disk.capabilities().share {
            return Err(JournalError::NoShare);
        }
        self.write_superblock(true).await
    }

    /// Commits and checkpoints everything, and calls the journal empty. The journal takes nothing more.
    pub async fn close(&self) -> Result<(), JournalError> {
        self.stop.set_closing();
        self.signals.changed.notify(usize::MAX);
        // A handle that has changed nothing yet may do so still.
        self.until(&self.signals.changed, || !self.running.borrow().has_handles()).await?;
        self.bring_home().await?;
        // J5 (e): nothing looks at the log once it is called empty, so all that is home has to be durable.
        if !self.drops(JournalMutant::EmptyWithoutFlush) {
            self.disk.flush().await?;
        }
        self.write_superblock(false).await?;
        // That has flushed, and nothing comes after it.
        self.set_durable_to(self.transferred_to());
        Ok(())
    }

    /// Commits whatever runs, and brings it home with all that was committed before: the log holds nothing of it any more.
    ///
    /// # Errors
    /// [`JournalError::Stopped`] if the journal stops before.
    pub async fn bring_home(&self) -> Result<(), JournalError> {
        self.commit_all().await?;
        self.checkpoint().await
    }

    /// Brings everything home that is transferred.
    pub(crate) async fn checkpoint(&self) -> Result<(), JournalError> {
        checkpoint::checkpoint(self).await
    }

    async fn write_superblock(&self, needed: bool) -> Result<(), JournalError> {
        let sequence = self.running();
        let (home, block) = {
            let mut log = self.log.borrow_mut();
            let tail = needed.then_some(log.tail());
            log.superblock(tail, sequence)?
        };
        self.disk.write_in_place(home, &block, Durable::Nothing).await?;
        self.disk.flush().await
    }
}

/// A large handle waits, and no other enters before it: they would never leave the transaction to it.
struct LargeTurn(Rc<Journal>);

impl LargeTurn {
    fn before_others(journal: &Rc<Journal>) -> LargeTurn {
        journal.large_handles_waiting.set(journal.large_handles_waiting.get() + 1);
        LargeTurn(Rc::clone(journal))
    }
}

impl Drop for LargeTurn {
    fn drop(&mut self) {
        self.0.large_handles_waiting.set(self.0.large_handles_waiting.get() - 1);
        self.0.signals.changed.notify(usize::MAX);
    }
}
