//! Flush-ahead commit, of the paper on the eMMC data-persistence path ("the eMMC paper", sections IV.B and V.B), for storage with packed
//! writes and FUA. It promises what the legacy path with barriers does.
//!
//! ```text
//! fsync, fbarrier   D --flush-- the commit
//! commit            D --flush, wait-- JD, FUA --barrier-- JC, FUA --wait-- next
//! ```
//!
//! 1. The call submits D, and a flush behind it (E9), before the commit task wakes. Neither waits for the transfer of D.
//! 2. The commit task takes that flush, if nothing was written since it was submitted; otherwise it submits what is left of D,
//!    and a flush behind that.
//! 3. While the storage writes D and flushes, the commit task composes JD and JC.
//! 4. When both are over, JD and JC leave as one ordered plug (E8), so that one wait is left: packed writes are made in turn, and FUA
//!    makes each durable before the next (S7). A transaction that is one block has one write in it (J9).
//!
//! Where the paper says less, or otherwise:
//!
//! - Its driver has one queue, in which a flush is behind what was submitted before. Ours lets flushes overtake (E3), so this one says
//!   that it is behind writes, of whichever file.
//! - D is the data of all files of the transaction: a flush behind that of one would not cover the others.
//! - While another transaction is being committed, the flush is submitted by the commit and not by the call.
//! - A call whose transaction is being committed already waits for D, as with jbd2: the flush of that commit may be ahead of it.
//! - The plug is filled when the flush is over, not when the task wakes: nothing leaves before either way.

use weir_block::{Class, Run};
use weir_ext4::journal::Sequence;

use super::jbd2;
use crate::call::{SyncRequest, SyncedFile, later_of};
use crate::error::JournalError;
use crate::journal::{Journal, Until};
use crate::mutants::JournalMutant;
use crate::steps::Commit;
use crate::transaction::Locked;

/// All four calls, since a caller that wants order waits. The commit waits for D, which was submitted before the transaction was
/// locked, and reports its own errors; those of D the call reports.
pub(super) async fn make_durable<F: SyncedFile>(call: &SyncRequest<'_, F>) -> Result<(), JournalError> {
    let &SyncRequest { journal, file, .. } = call;
    file.submit_dirty(Class::Orderless, Class::Orderless).await?;
    let changed_in = later_of(call.changed_in, file.dropped_in());
    let Some(sequence) = changed_in.filter(|sequence| *sequence == journal.running()) else {
        // The flush of a transaction that is locked may be ahead of D.
        return jbd2::make_durable(call).await;
    };
    submit_flush(journal, sequence).await?;
    journal.commit(sequence, Until::Durable).await?;
    file.wait_transferred().await
}

/// Submits the data of all files of a transaction that runs, and its flush behind that, unless one is there that covers it. While the
/// transaction before is being committed the flush is left to the commit: then callers that come at the same time share it, and
/// it does not hold back JD and JC of that other one.
async fn submit_flush(journal: &Journal, sequence: Sequence) -> Result<(), JournalError> {
    let attached = journal.running.borrow().data_of(sequence);
    for data in attached {
        data.submit(Class::Orderless).await?;
    }
    let writes = journal.disk.writes();
    let is_next =
        journal.running() == sequence && journal.is_dispatched(Sequence(sequence.0.wrapping_sub(1)));
    if is_next && journal.flush_of_call.covering(writes).is_none() {
        let ticket = journal.disk.submit_flush_behind_writes().await?;
        journal.flush_of_call.set(writes, ticket);
    }
    Ok(())
}

/// Commits behind a flush that goes ahead (J2).
///
/// The flush is there if D is empty, too. Not only D has to be durable before JC: data of earlier calls and of writeback
/// that was transferred without a flush belongs to files whose inodes this transaction may hold, and no ticket is
/// left that tracks it. JD needs no flush, since it has FUA.
pub(super) async fn commit(mut commit: Commit<'_>, locked: Locked) -> Result<(), JournalError> {
    let journal = commit.journal;
    let tickets = commit.submit_data(&locked, Class::Orderless).await?;
    commit.times.data = commit.clock.step();
    // It covers what was submitted by now, and nothing that comes later.
    let round = journal.durability.begin_flush(locked.sequence);
    let writes = journal.disk.writes();
    let of_call = match journal.drops(JournalMutant::TrustsFlushOfCall) {
        true => journal.flush_of_call.newest(),
        false => journal.flush_of_call.covering(writes),
    };
    let flush = match of_call {
        Some(flush) => flush,
        None if journal.drops(JournalMutant::FlushBeforeData) => journal.disk.submit_flush().await?,
        None => journal.disk.submit_flush_behind_writes().await?,
    };
    // The storage flushes meanwhile: a ticket needs no waiter.
    let (composed, logged) = commit.compose(locked).await?;
    if !journal.drops(JournalMutant::CommitBeforeFlush) {
        journal.disk.wait_answered(&flush).await?;
        // D is transferred, or has failed.
        for data in &tickets {
            journal.disk.wait_answered(data).await?;
        }
    }
    commit.times.flush = commit.clock.step();
    let block = Run { start: composed.commit_at, blocks: vec![composed.commit] };
    let ticket = journal.disk.write_in_order(&[&composed.log, &[block]]).await?;
    drop(round);
    commit.times.commit_block = commit.clock.step();
    commit.end_durable(logged, Some(ticket));
    Ok(())
}
