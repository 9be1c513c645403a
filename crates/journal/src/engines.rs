//! The *engines*: how each commits a transaction, orders a call, makes it durable, and moves the log's tail. Each has a file,
//! which reads like its paper from top to bottom. [`Facts`](crate::Facts) are all that others know of them.
//!
//! A commit is D, the data of its files; JD, the descriptor and log blocks; JC, the commit block; and between each two of them
//! what keeps the second behind the first.
//!
//! ```text
//! dual          (FAST 2018 paper, section 4.2)  D ------- JD --barrier-- JC --barrier-- next
//! jbd2          with barriers                   D --wait-- JD --wait, flush-- JC, FUA --wait-- next
//!               without (EXT4-OD)               D --wait-- JD --wait-- JC --wait-- next
//! async_commit  (as jbd2's feature)             D --wait-- JD -- JC --wait, flush-- next
//! optfs         (OptFS, SOSP 2013)              D --wait-- JD -- JC --wait-- next
//! prefix        (OPTR paper, section 4)         D --wait-- JD --wait-- JC --wait-- next
//! flush_ahead   (eMMC paper, section V.B)       D --flush, wait-- JD, FUA --barrier-- JC, FUA --wait-- next
//! unjournaled   (eMMC paper, section VI)        D --wait-- blocks home --wait-- next
//! ```
//!
//! The papers write a call as such a row: the first is equation 3, and the second equation 2, of the FAST 2018 paper's earlier
//! manuscript. What ends a call, the wait and the flush of equation 3, is in the engine's file below the commit.

mod async_commit;
mod dual;
mod flush_ahead;
mod jbd2;
mod optfs;
mod prefix;
mod unjournaled;

use std::rc::Rc;

use weir_runtime::Buffer as Memory;

use crate::call::{Promise, SyncRequest, SyncedFile};
use crate::checkpoint::HomesFlushed;
use crate::engine::{Engine, OrderBy};
use crate::error::JournalError;
use crate::journal::Journal;
use crate::steps::Commit;
use crate::transaction::Locked;

impl Engine {
    /// Commits a transaction that is locked.
    pub(crate) async fn commit(self, commit: Commit<'_>, locked: Locked) -> Result<(), JournalError> {
        match self {
            Engine::Dual { .. } => dual::commit(commit, locked).await,
            Engine::Jbd2 { barrier } => jbd2::commit(commit, locked, barrier).await,
            Engine::AsyncCommit => async_commit::commit(commit, locked).await,
            Engine::OptFs => optfs::commit(commit, locked).await,
            Engine::Prefix => prefix::commit(commit, locked).await,
            Engine::FlushAhead => flush_ahead::commit(commit, locked).await,
            Engine::Unjournaled => unjournaled::commit(commit, locked).await,
        }
    }

    /// Does what a synchronisation call promises.
    pub(crate) async fn synchronise<F: SyncedFile>(
        self,
        promise: Promise,
        call: SyncRequest<'_, F>,
    ) -> Result<(), JournalError> {
        match (self, promise) {
            (Engine::Dual { .. }, Promise::Ordered) => dual::order(&call).await,
            (Engine::Dual { .. }, Promise::Durable) => dual::make_durable(&call).await,
            (Engine::OptFs, promise) => optfs::synchronise(promise, &call).await,
            (Engine::Prefix, Promise::Ordered) => prefix::order(&call).await,
            (Engine::Prefix, Promise::Durable) => prefix::make_durable(&call).await,
            // The host keeps order by waiting, so what orders makes durable, too.
            (Engine::FlushAhead, Promise::Ordered | Promise::Durable) => {
                flush_ahead::make_durable(&call).await
            }
            (Engine::Jbd2 { .. } | Engine::AsyncCommit, Promise::Ordered | Promise::Durable) => {
                jbd2::make_durable(&call).await
            }
            (Engine::Unjournaled, Promise::Ordered | Promise::Durable) => {
                unjournaled::synchronise(&call).await
            }
        }
    }

    /// Writes the log's tail, a block at its place, behind homes that are transferred (J5).
    pub(crate) async fn move_tail(
        self,
        journal: &Journal,
        (place, block): (u64, Rc<Memory>),
        homes: HomesFlushed,
    ) -> Result<(), JournalError> {
        match self.facts().order {
            OrderBy::Barriers => dual::move_tail(journal, place, block).await,
            OrderBy::Flushes => jbd2::move_tail(journal, place, block, homes).await,
            OrderBy::Receipt => prefix::move_tail(journal, place, block).await,
        }
    }
}
