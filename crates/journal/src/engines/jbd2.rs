//! The legacy path, as jbd2 has it: one transaction at a time, and a wait for every transfer.
//!
//! ```text
//! commit, with barriers     D --wait-- JD --wait, flush-- JC, FUA --wait-- next        (equation 2)
//! commit, without           D --wait-- JD --wait-- JC --wait-- next                    (EXT4-OD)
//! fsync, fbarrier           D --wait-- the commit, or a flush
//! checkpoint, with barriers homes --wait, flush-- tail, FUA --wait-- what overwrites freed log space
//!             by a commit   homes --wait-- JD --wait, flush-- JC, FUA --wait-- tail, FUA --wait-- the same
//! checkpoint, without       as on the engine for prefix devices
//! ```
//!
//! The flush before JC is its pre-flush. Without barriers nothing is flushed, and a durable call ends with no flush either. On a
//! prefix device that is consistent all the same: the OPTR paper's no-barrier mode, whose `fsync` promises order, and durability
//! in the end.

use std::rc::Rc;

use weir_block::{Class, Durable};
use weir_runtime::Buffer as Memory;

use crate::call::{SyncRequest, SyncedFile, later_of};
use crate::checkpoint::{HomesFlushed, free_log_to};
use crate::error::JournalError;
use crate::journal::{Journal, Until};
use crate::mutants::JournalMutant;
use crate::steps::Commit;
use crate::transaction::Locked;

/// Commits, with pre-flush and FUA where `barrier`.
pub(super) async fn commit(
    mut commit: Commit<'_>,
    locked: Locked,
    barrier: bool,
) -> Result<(), JournalError> {
    let journal = commit.journal;
    commit.write_data(&locked).await?;
    let (composed, logged) = commit.compose(locked).await?;
    commit.write_log(composed.log).await?;
    let round = journal.durability.begin_flush(logged.sequence);
    let mut home = journal.tail_behind_commit();
    let durable = if barrier { Durable::WriteAndEarlier } else { Durable::Nothing };
    let ticket = journal.disk.write_commit(composed.commit_at, &composed.commit, durable).await?;
    drop(round);
    commit.times.commit_block = commit.clock.step();
    if journal.drops(JournalMutant::TailCoversLater) {
        home = journal.tail_behind_commit();
    }
    // Where a task frees the log, the next commit moves the tail.
    if let (Some(home), Some(_turn)) = (home, journal.checkpointing.try_acquire(1)) {
        // A checkpoint meanwhile may have freed more.
        let is_there = journal.log.borrow().retired(home.sequence).is_some();
        if is_there {
            free_log_to(journal, home, HomesFlushed::Yes).await?;
        }
    }
    commit.end_durable(logged, Some(ticket));
    Ok(())
}

/// All four calls, since a caller that wants order waits.
pub(super) async fn make_durable<F: SyncedFile>(call: &SyncRequest<'_, F>) -> Result<(), JournalError> {
    let &SyncRequest { journal, file, .. } = call;
    let from = journal.disk.handle().now();
    file.submit_dirty(Class::Orderless, Class::Orderless).await?;
    file.wait_transferred().await?;
    let waited = journal.disk.handle().now().since(from);
    journal.count(|stats| stats.data_of_calls += waited);
    let changed_in = later_of(call.changed_in, file.dropped_in());
    // The flush before the commit block, or behind it, covers what was transferred before that flush.
    let trusts = journal.drops(JournalMutant::TrustsEarlierFlush);
    let flushed = changed_in
        .is_some_and(|sequence| journal.will_flush(sequence) || trusts && !journal.is_durable(sequence));
    if call.in_log && journal.options.commits_running {
        return journal.commit_newest().await;
    }
    if let Some(sequence) = changed_in {
        journal.commit(sequence, Until::Durable).await?;
    }
    let covered = flushed || call.in_log && changed_in.is_some();
    if covered || !journal.engine().facts().flushes { Ok(()) } else { journal.disk.flush().await }
}

/// Moves the log's tail behind a flush, and lets it be durable before the freed space is used again (J5 b, c).
pub(super) async fn move_tail(
    journal: &Journal,
    place: u64,
    block: Rc<Memory>,
    homes: HomesFlushed,
) -> Result<(), JournalError> {
    let durable = match homes {
        _ if journal.drops(JournalMutant::TailBeforeDurable) => Durable::Nothing,
        HomesFlushed::Yes => Durable::Write,
        HomesFlushed::No => {
            journal.disk.flush().await?;
            Durable::Write
        }
    };
    journal.disk.write_in_place(place, &block, durable).await.map(drop)
}
