//! Flush-ahead commit, of the paper on the eMMC data-persistence path ("the eMMC paper", section IV.B), for storage with packed
//! writes and FUA. It promises what the legacy path with barriers does.
//!
//! ```text
//! commit            D --wait, flush-- JD, FUA --mark-- JC, FUA --wait-- next
//! calls             as those of jbd2
//! ```
//!
//! The flush begins when D is transferred, and runs while JD is composed. When both are over, JD and JC leave as one ordered plug
//! (E8), so that one wait is left: packed writes are made in turn, and FUA makes each durable before the next (S7).

use crate::error::JournalError;
use crate::mutants::JournalMutant;
use crate::steps::Commit;
use crate::transaction::Locked;
use weir_block::{Class, Run};

/// Commits behind a flush that goes ahead (J2).
///
/// The flush is there if D is empty, too. Not only D has to be durable before JC: data of earlier calls and of writeback
/// that was transferred without a flush belongs to files whose inodes this transaction may hold, and no ticket is
/// left that tracks it. JD needs no flush, since it has FUA.
pub(super) async fn commit(mut commit: Commit<'_>, locked: Locked) -> Result<(), JournalError> {
    let journal = commit.journal;
    let tickets = commit.submit_data(&locked, Class::Orderless).await?;
    if !journal.drops(JournalMutant::FlushBeforeData) {
        journal.disk.wait_transferred(&tickets).await?;
    }
    commit.times.data = commit.clock.step();
    // It covers what is transferred now, and nothing that comes later.
    let round = journal.durability.begin_flush(locked.sequence);
    let flush = journal.disk.submit_flush().await?;
    // The storage flushes meanwhile: a ticket needs no waiter.
    let (composed, logged) = commit.compose(locked).await?;
    if !journal.drops(JournalMutant::CommitBeforeFlush) {
        journal.disk.wait_answered(&flush).await?;
    }
    commit.times.flush = commit.clock.step();
    let block = Run { start: composed.commit_at, blocks: vec![composed.commit] };
    let ticket = journal.disk.write_in_order(&[&composed.log, &[block]]).await?;
    drop(round);
    commit.times.commit_block = commit.clock.step();
    commit.end_durable(logged, Some(ticket));
    Ok(())
}
