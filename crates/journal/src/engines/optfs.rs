//! OptFS (*Optimistic Crash Consistency*, SOSP 2013; FAST 2018 paper, section 4.6), to be compared with: checksums in place of
//! every flush (J10).
//!
//! ```text
//! commit            D --wait-- JD -- JC --wait-- next, and notice of durability later
//! osync             D --wait-- the commit
//! dsync             D --wait-- the commit, flush
//! checkpoint        as jbd2's, of the transactions that a notice has called durable
//! ```
//!
//! Blocks that a transaction has allocated are written in place, and the log holds their checksums; others of files go through
//! the log. So any block of any transaction may be missing on the medium, and recovery takes the transactions before the first
//! that is not whole. What comes behind a commit on other engines comes behind its [`notice`](crate::notice) here: the storage
//! says that it is durable, or a timer ends and the journal flushes. The engine knows no barrier and needs none.

use crate::call::{Promise, SyncRequest, SyncedFile};
use crate::engines::{jbd2, prefix};
use crate::error::JournalError;
use crate::steps::Commit;
use crate::transaction::Locked;

/// Commits: JD and JC leave together, and no flush is behind them.
pub(super) async fn commit(mut commit: Commit<'_>, locked: Locked) -> Result<(), JournalError> {
    commit.write_data(&locked).await?;
    let (composed, logged) = commit.compose(locked).await?;
    let tickets = commit.write_log_with_commit(composed).await?;
    commit.end_unnoticed(logged, tickets);
    Ok(())
}

/// `osync` orders, `dsync` makes durable. Each looks at all dirty pages first.
pub(super) async fn synchronise<F: SyncedFile>(
    promise: Promise,
    call: &SyncRequest<'_, F>,
) -> Result<(), JournalError> {
    call.journal.scan().await;
    match promise {
        Promise::Ordered => prefix::order(call).await,
        Promise::Durable => jbd2::make_durable(call).await,
    }
}
