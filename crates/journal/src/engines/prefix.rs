//! The engine for prefix devices (OPTR paper, section 4), which keep requests in order of receipt. What was transferred was
//! received, so a wait is all that order takes.
//!
//! ```text
//! commit                  D --wait-- JD --wait-- JC --wait-- next
//! fbarrier (ffence)       D --wait-- the commit, to the transfer of JC
//! fsync (optimized)       D --wait-- the commit --flush
//! checkpoint              homes --wait-- tail --wait-- what overwrites freed log space
//! ```
//!
//! The flush between JD and JC is dropped. A durable call ends with one flush, which callers share as in dual mode.

use std::rc::Rc;

use weir_block::{Class, Durable};
use weir_runtime::Buffer as Memory;

use crate::call::{SyncRequest, SyncedFile, later_of};
use crate::engines::jbd2;
use crate::error::JournalError;
use crate::journal::{Journal, Until};
use crate::mutants::JournalMutant;
use crate::steps::Commit;
use crate::transaction::Locked;

/// Commits: each part is submitted when the one before is transferred (J2).
pub(super) async fn commit(mut commit: Commit<'_>, locked: Locked) -> Result<(), JournalError> {
    let journal = commit.journal;
    commit.write_data(&locked).await?;
    let (composed, logged) = commit.compose(locked).await?;
    commit.write_log(composed.log).await?;
    let ticket = journal.disk.write_commit(composed.commit_at, &composed.commit, Durable::Nothing).await?;
    commit.times.commit_block = commit.clock.step();
    commit.end_transferred(logged, ticket);
    Ok(())
}

/// Orders (`ffence`, `fdatafence`): what is transferred was received before all that comes later.
pub(super) async fn order<F: SyncedFile>(call: &SyncRequest<'_, F>) -> Result<(), JournalError> {
    let &SyncRequest { journal, file, changed_in, .. } = call;
    file.submit_dirty(Class::Orderless, Class::Orderless).await?;
    if !journal.drops(JournalMutant::FenceNotAwaited) {
        file.wait_transferred().await?;
    }
    match later_of(changed_in, file.dropped_in()) {
        Some(sequence) => journal.commit(sequence, Until::Transferred).await,
        None => Ok(()),
    }
}

/// Makes durable (the optimized `fsync`): as the legacy path, but for the flush, which is the only one, at the end.
pub(super) async fn make_durable<F: SyncedFile>(call: &SyncRequest<'_, F>) -> Result<(), JournalError> {
    jbd2::make_durable(call).await
}

/// Moves the log's tail: the transfers of the homes, and that of the tail, are order enough (J5).
pub(super) async fn move_tail(journal: &Journal, home: u64, block: Rc<Memory>) -> Result<(), JournalError> {
    journal.disk.write_in_place(home, &block, Durable::Nothing).await.map(drop)
}
