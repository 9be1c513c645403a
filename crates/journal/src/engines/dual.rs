//! Dual-mode journaling (FAST 2018 paper, section 4.2), whose order is kept by barriers alone.
//!
//! ```text
//! commit        D ------- JD --barrier-- JC --barrier-- next                    (equation 3)
//! fbarrier      the commit, up to the dispatch of JC
//! fsync         the commit --wait, flush
//! checkpoint    homes --wait, barrier-- tail --barrier-- what overwrites freed log space
//! ```
//!
//! The commit task dispatches and does not wait. The flush task ([`flush`](crate::flush)) retires transactions in order, and flushes
//! for the callers that want durability (J1).

use std::rc::Rc;

use weir_block::Class;
use weir_ext4::journal::Sequence;
use weir_runtime::Buffer as Memory;

use crate::call::{SyncRequest, SyncedFile, later_of};
use crate::error::JournalError;
use crate::journal::{Journal, Until};
use crate::mutants::JournalMutant;
use crate::steps::Commit;
use crate::transaction::Locked;

/// Commits: {D, JD} is one epoch, {JC} the next (J2). Nothing is waited for but queue space.
pub(super) async fn commit(mut commit: Commit<'_>, locked: Locked) -> Result<(), JournalError> {
    let journal = commit.journal;
    // 1. D, in the epoch of JD.
    let class = match journal.drops(JournalMutant::DataOutsideEpoch) {
        true => Class::Orderless,
        false => Class::Ordered,
    };
    let mut tickets = commit.submit_data(&locked, class).await?;
    // 2. JD, whose last write closes the epoch.
    let (composed, logged) = commit.compose(locked).await?;
    let closes = match journal.drops(JournalMutant::CommitInEpochOfLog) {
        true => Class::Ordered,
        false => Class::Barrier,
    };
    let is_alone = composed.log.is_empty();
    commit.submit_runs(composed.log, (Class::Ordered, closes), &mut tickets).await?;
    // JC may be all there is, with journal coalition or in a transaction that logs no block: D, of which some may be
    // transferred already, is an epoch of its own then.
    if is_alone && closes == Class::Barrier && !journal.drops(JournalMutant::DataInEpochOfCommit) {
        journal.disk.barrier().await?;
    }
    // 3. JC, an epoch.
    let block = [composed.commit];
    journal.disk.write(composed.commit_at, &block, Class::Barrier, Class::Barrier, &mut tickets).await?;
    // No await between the write and this: a caller that submits data and finds the transaction not
    // dispatched then knows that the data came before JC (J2).
    journal.progress.dispatch(logged, tickets);
    journal.signals.flush.notify(usize::MAX);
    Ok(())
}

/// Orders (`fbarrier`, `fdatabarrier`): the data is in an epoch before everything that comes later, with the transaction that
/// it needs. Returns when that is dispatched.
pub(super) async fn order<F: SyncedFile>(call: &SyncRequest<'_, F>) -> Result<(), JournalError> {
    let &SyncRequest { journal, file, changed_in, .. } = call;
    journal.disk.promise_order();
    let is_pending = |sequence: &Sequence| !journal.is_dispatched(*sequence);
    let pending = changed_in.filter(is_pending);
    let last = if pending.is_some() { Class::Ordered } else { Class::Barrier };
    let wrote = file.submit_dirty(Class::Ordered, last).await?;
    // Not before: pages that were dirty when the call began are submitted now, or dropped.
    let dropped_in = file.dropped_in().filter(is_pending);
    let Some(sequence) = later_of(pending, dropped_in) else {
        // J3: an epoch ends here, whether or not something was written in it.
        return if wrote || journal.drops(JournalMutant::NoBareBarrier) {
            Ok(())
        } else if call.forces_commits {
            journal.force_commit(Until::Dispatched).await
        } else {
            Ok(journal.disk.barrier().await?)
        };
    };
    // A commit on its way may have been faster: then its barrier is not behind the data.
    if !journal.is_dispatched(sequence) {
        journal.commit(sequence, Until::Dispatched).await
    } else if journal.drops(JournalMutant::TrustsFasterCommit) {
        Ok(())
    } else {
        Ok(journal.disk.barrier().await?)
    }
}

/// Makes durable (`fsync`, `fdatasync`): one transfer, one flush.
pub(super) async fn make_durable<F: SyncedFile>(call: &SyncRequest<'_, F>) -> Result<(), JournalError> {
    let &SyncRequest { journal, file, changed_in, .. } = call;
    let is_pending = |sequence: &Sequence| !journal.is_durable(*sequence);
    let pending = changed_in.filter(is_pending);
    let last = if pending.is_some() { Class::Ordered } else { Class::Barrier };
    let wrote = file.submit_dirty(Class::Ordered, last).await?;
    // As in `order`.
    let dropped_in = file.dropped_in().filter(is_pending);
    let Some(sequence) = later_of(pending, dropped_in) else {
        if call.in_log && changed_in.is_some() {
            return Ok(());
        }
        file.wait_transferred().await?;
        let forces = call.forces_commits && !wrote;
        return if forces { journal.force_commit(Until::Durable).await } else { journal.disk.flush().await };
    };
    // JC is in a later epoch than the data, so the one is not durable without the other (S3), but only if the
    // data was submitted before JD: the transaction still ran.
    let covered = journal.running() == sequence;
    let tickets = if covered { Vec::new() } else { file.untransferred() };
    journal.disk.wait_transferred(&tickets).await?;
    // Otherwise the data may have been transferred when the flush for the transaction was on its way already.
    let flushed = covered || journal.will_flush(sequence);
    journal.commit(sequence, Until::Durable).await?;
    if flushed { Ok(()) } else { journal.disk.flush().await }
}

/// Moves the log's tail by a barrier write behind the homes (J5 b, c).
pub(super) async fn move_tail(journal: &Journal, home: u64, block: Rc<Memory>) -> Result<(), JournalError> {
    // The home writes belong to the epoch in which they were transferred: close it.
    if !journal.drops(JournalMutant::TailBeforeDurable) {
        journal.disk.barrier().await?;
    }
    // What overwrites the freed space comes in a later epoch than this.
    let free = journal.drops(JournalMutant::TailWithoutBarrier);
    let class = if free { Class::Orderless } else { Class::Barrier };
    let mut tickets = Vec::new();
    journal.disk.write_tail(home, block, class, &mut tickets).await?;
    // If it fails, the journal has to know.
    Ok(journal.disk.wait_transferred(&tickets).await?)
}
