//! The synchronisation calls.
//!
//! What each writes, and what it waits for, with the engine `dual` (FAST 2018 paper, section 4.3). D is the dirty
//! data of the file, JD and JC are those of the transaction that changed its inode last. `{..}` is an epoch; `->`
//! is a barrier between two; *wait* is a wait for the transfer (Wait-on-Transfer).
//!
//! | call | inode changed, not committed | nothing changed but data | nothing dirty at all |
//! |---|---|---|---|
//! | `fsync` | `{D, JD} -> {JC} ->` wait, flush | as `fdatasync` | as `fdatasync` |
//! | `fbarrier` | `{D, JD} -> {JC} ->` | as `fdatabarrier` | as `fdatabarrier` |
//! | `fdatasync` | as `fsync` if size, allocation or what is written has changed (J3), else only D: `{D} ->` wait, flush | `{D} ->` wait, flush | wait for what is on its way, flush |
//! | `fdatabarrier` | as `fbarrier` if one of these has changed (J3), else only D: `{D} ->` | `{D} ->` | `->`: a bare barrier mark |
//! | `sync` | all D, JD and JC there are, wait, flush | the same | flush |
//!
//! With [`MountOptions::forces_commits`] calls that find nothing dirty commit the running transaction, as the paper has it
//! (*forced commit*): `{JD} -> {JC} ->` in place of the bare mark and before the flush, and JC alone if nothing has changed.
//!
//! `fbarrier` and `fdatabarrier` return when all of that is dispatched: they wait for queue space only. With the
//! data of the file goes that of every other file that the transaction refers to (J2). Data that the writeback
//! task has submitted without order joins the epoch if it is still on its way (E7). So, with `<` for "is durable
//! no later than", for any two calls of which one returned before the other began: all that the first wrote `<`
//! all that the second writes, whatever file it is of.
//!
//! The engine `jbd2` keeps order by waiting, so there `fbarrier` is `fsync` and `fdatabarrier` is `fdatasync`, and
//! a commit is: write D, wait, write JD, wait, flush, write JC with FUA, wait. Without barriers the flush and FUA
//! are left out: it waits as much, and nothing is durable before the disk likes (EXT4-OD). On a prefix device that
//! keeps order all the same: the OPTR paper's no-barrier mode.
//!
//! The engine `flush-ahead` keeps its promises as `jbd2` does, and a commit is: write D, wait, flush while JD is made, write
//! JD and JC in one command, in order and with FUA, wait.
//!
//! So does `async-commit`: write D, wait, write JD and JC, wait, flush.
//!
//! The engine `optfs` has two calls: `fbarrier` and `fdatabarrier` are OptFS' `osync`: write D, wait, write JD and JC, wait.
//! `fsync` and `fdatasync` are its `dsync`, which adds a flush. A file's data is as in journal mode data, but for blocks that
//! the transaction has allocated, which are its D (J10). Every call looks at all dirty pages first.
//!
//! The engine `prefix` is for prefix devices, which keep requests in order of receipt (OPTR paper, section 4):
//!
//! | call | the paper's name | inode changed, not committed | nothing changed but data |
//! |---|---|---|---|
//! | `fsync`, `fdatasync` | optimized `fsync` | D, wait, JD, wait, JC, wait, flush | D, wait, flush |
//! | `fbarrier` | `ffence` | D, wait, JD, wait, JC, wait | D, wait |
//! | `fdatabarrier` | `fdatafence` | as `fbarrier` if one of those has changed (J3), else D, wait | D, wait |
//!
//! A wait is for the transfer, by which the device has received what comes before; barriers wait for none, so these
//! calls are slower than those of `dual`, and need nothing but the device's order.
//!
//! A directory's data are its names: where one was added or removed, `fdatasync` is `fsync`.
//!
//! In journal mode data, D is among the log blocks, so a file's data is never dirty, and a durable call whose transaction is
//! durable already does nothing: of several files that changed in one transaction the first pays. In writeback mode only the D
//! of the calling file is written.

mod last_changes;

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use weir_block::Class;
use weir_journal::{Disk, Journal, JournalError, Sequence, Until};
use weir_storage::Rules;

use crate::cache::CachedFile;
use crate::mutants::FsMutant;
use crate::options::{JournalMode, MountOptions};
pub(crate) use last_changes::LastChanges;

/// Synchronisation calls on files that were answered without an error.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Answered {
    /// `fsync` and `fdatasync`, where the engine flushes.
    pub durable: u64,
    /// `fbarrier` and `fdatabarrier`, whatever it took to keep their promise; the others, too, on an engine that does
    /// not flush.
    pub ordered: u64,
}

/// What a call promises.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Promise {
    /// It is on the medium.
    Durable,
    /// It is before everything that comes later.
    Ordered,
}

/// Keeps the promises of the synchronisation calls.
pub(crate) struct Synchronisation {
    disk: Rc<Disk>,
    /// What a file holds is in the log with the transaction that changed it last, and nowhere else.
    in_log: bool,
    /// A call that finds nothing dirty commits the running transaction (J3).
    forces_commits: bool,
    rules: Rules<FsMutant>,
    answered: Cell<Answered>,
    data_time: Cell<Duration>,
}

impl Synchronisation {
    pub(crate) fn new(disk: Rc<Disk>, options: MountOptions) -> Synchronisation {
        let rules = options.rules;
        let in_log = options.mode == JournalMode::Data && !rules.drops(FsMutant::FlushesJournaled);
        let forces_commits = options.forces_commits && !rules.drops(FsMutant::NothingForced);
        let (answered, data_time) = Default::default();
        Synchronisation { disk, in_log, forces_commits, rules, answered, data_time }
    }

    /// The calls that were answered.
    pub(crate) fn answered(&self) -> Answered {
        self.answered.get()
    }

    /// How long durable calls waited for the data of their file, on engines that wait.
    pub(crate) fn data_time(&self) -> Duration {
        self.data_time.get()
    }

    /// Does what a call promises for a file, or for its data only, with what of its inode is needed to find it (J3).
    ///
    /// # Errors
    /// Those of the journal, and of every write of the file. They abort the journal.
    pub(crate) async fn synchronise(
        &self,
        journal: &Rc<Journal>,
        (file, last_changes): (&CachedFile, &LastChanges),
        promise: Promise,
        data_only: bool,
    ) -> Result<(), JournalError> {
        let forgets = data_only
            && promise == Promise::Ordered
            && self.rules.drops(FsMutant::DataBarrierForgetsMetadata);
        let changed_in = last_changes.last(data_only).filter(|_| !forgets);
        let engine = journal.engine();
        if engine.checks_data() {
            journal.scan().await;
        }
        let done = match (engine.uses_barriers(), promise) {
            (true, Promise::Ordered) => self.order(journal, file, changed_in).await,
            (true, Promise::Durable) => self.make_durable(journal, file, changed_in).await,
            (false, Promise::Ordered) if !engine.orders_by_durability() => {
                self.transfer(journal, file, changed_in).await
            }
            (false, _) => self.transfer_and_flush(journal, file, changed_in).await,
        };
        // No call that comes later promises anything either.
        done.and_then(|()| file.check_written()).inspect_err(|error| journal.abort(error.stop_reason()))?;
        let mut answered = self.answered.get();
        match promise {
            Promise::Durable if engine.flushes() => answered.durable += 1,
            Promise::Durable | Promise::Ordered => answered.ordered += 1,
        }
        self.answered.set(answered);
        Ok(())
    }

    /// `fbarrier` and `fdatabarrier`, with barriers.
    async fn order(
        &self,
        journal: &Rc<Journal>,
        file: &CachedFile,
        changed_in: Option<Sequence>,
    ) -> Result<(), JournalError> {
        self.disk.promise_order();
        let is_pending = |sequence: &Sequence| !journal.is_dispatched(*sequence);
        let pending = changed_in.filter(is_pending);
        let last = if pending.is_some() { Class::Ordered } else { Class::Barrier };
        let wrote = file.submit_dirty(Class::Ordered, last).await?;
        // Not before: pages that were dirty when the call began are submitted now, or dropped.
        let dropped_in = file.dropped_in().filter(is_pending);
        let Some(sequence) = later(pending, dropped_in) else {
            // J3: an epoch ends here, whether or not something was written in it.
            return if wrote || self.rules.drops(FsMutant::NoBareBarrier) {
                Ok(())
            } else if self.forces_commits {
                journal.force_commit(Until::Dispatched).await
            } else {
                self.disk.barrier().await
            };
        };
        // A commit on its way may have been faster: then its barrier is not behind the data.
        if !journal.is_dispatched(sequence) {
            journal.commit(sequence, Until::Dispatched).await
        } else if self.rules.drops(FsMutant::TrustsFasterCommit) {
            Ok(())
        } else {
            self.disk.barrier().await
        }
    }

    /// `fsync` and `fdatasync`, with barriers: one transfer, one flush.
    async fn make_durable(
        &self,
        journal: &Rc<Journal>,
        file: &CachedFile,
        changed_in: Option<Sequence>,
    ) -> Result<(), JournalError> {
        let is_pending = |sequence: &Sequence| !journal.is_durable(*sequence);
        let pending = changed_in.filter(is_pending);
        let last = if pending.is_some() { Class::Ordered } else { Class::Barrier };
        let wrote = file.submit_dirty(Class::Ordered, last).await?;
        // As in `order`.
        let dropped_in = file.dropped_in().filter(is_pending);
        let Some(sequence) = later(pending, dropped_in) else {
            if self.in_log && changed_in.is_some() {
                return Ok(());
            }
            file.transferred().await?;
            let forces = self.forces_commits && !wrote;
            return if forces { journal.force_commit(Until::Durable).await } else { self.disk.flush().await };
        };
        // JC is in a later epoch than the data, so the one is not durable without the other (S3), but only if the
        // data was submitted before JD: the transaction still ran.
        let covered = journal.running() == sequence;
        let tickets = if covered { Vec::new() } else { file.on_the_way() };
        self.disk.transferred(&tickets).await?;
        // Otherwise the data may have been transferred when the flush for the transaction was on its way already.
        let flushed = covered || journal.will_flush(sequence);
        journal.commit(sequence, Until::Durable).await?;
        if flushed { Ok(()) } else { self.disk.flush().await }
    }

    /// `ffence` and `fdatafence`, for a prefix device (OPTR paper, section 4): what is transferred was received before
    /// all that comes later.
    async fn transfer(
        &self,
        journal: &Rc<Journal>,
        file: &CachedFile,
        changed_in: Option<Sequence>,
    ) -> Result<(), JournalError> {
        file.submit_dirty(Class::Orderless, Class::Orderless).await?;
        if !self.rules.drops(FsMutant::FenceNotAwaited) {
            file.transferred().await?;
        }
        match later(changed_in, file.dropped_in()) {
            Some(sequence) => journal.commit(sequence, Until::Transferred).await,
            None => Ok(()),
        }
    }

    /// All four calls on the legacy path, where a caller that wants order waits; and the durable ones on the engine for
    /// prefix devices, where a flush at the end is the only one.
    async fn transfer_and_flush(
        &self,
        journal: &Rc<Journal>,
        file: &CachedFile,
        changed_in: Option<Sequence>,
    ) -> Result<(), JournalError> {
        let from = self.disk.handle().now();
        file.submit_dirty(Class::Orderless, Class::Orderless).await?;
        file.transferred().await?;
        self.data_time.set(self.data_time.get() + self.disk.handle().now().since(from));
        let changed_in = later(changed_in, file.dropped_in());
        // The flush before the commit block, or behind it, covers what was transferred before that flush.
        let trusts = self.rules.drops(FsMutant::TrustsEarlierFlush);
        let flushed = changed_in
            .is_some_and(|sequence| journal.will_flush(sequence) || trusts && !journal.is_durable(sequence));
        if let Some(sequence) = changed_in {
            journal.commit(sequence, Until::Durable).await?;
        }
        let covered = flushed || self.in_log && changed_in.is_some();
        if covered || !journal.engine().flushes() { Ok(()) } else { self.disk.flush().await }
    }
}

/// The later of two transactions.
fn later(one: Option<Sequence>, other: Option<Sequence>) -> Option<Sequence> {
    match (one, other) {
        (Some(one), Some(other)) => Some(if other.is_after(one) { other } else { one }),
        (one, other) => one.or(other),
    }
}
