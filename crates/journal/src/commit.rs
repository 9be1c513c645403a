//! The commit task: the running transaction is locked, its blocks are frozen, and the engine commits it.

use std::rc::Weak;

use futures_util::{FutureExt, select_biased};
use weir_format::FormatError;
use weir_runtime::{Handle as Clock, Instant};

use crate::error::JournalError;
use crate::journal::Journal;
use crate::mutants::JournalMutant;
use crate::running::Running;
use crate::steps::Commit;
use crate::transaction::Locked;

/// Commits the running transaction.
pub(crate) async fn commit_running(journal: &Journal) -> Result<(), JournalError> {
    let Some(locked) = lock_running(journal).await? else { return Ok(()) };
    journal.options.engine.commit(Commit::begin(journal), locked).await
}

/// Locks the running transaction when its handles are closed, freezes its blocks, and lets the next one run.
/// None if there is nothing to commit.
async fn lock_running(journal: &Journal) -> Result<Option<Locked>, JournalError> {
    await_conflicts(journal).await?;
    journal.running.borrow_mut().lock();
    journal.until(&journal.signals.changed, || !journal.running.borrow().has_handles()).await?;
    // The last of them may have been abandoned.
    journal.check()?;
    await_log_space(journal).await?;
    let running = journal.running.replace_with(|running| Running::new(running.sequence().next()));
    journal.signals.changed.notify(usize::MAX);
    let empty = running.is_empty();
    if empty {
        journal.log.borrow_mut().reserve(0);
    }
    let locked = running.freeze(journal.buffers.checksums())?;
    Ok((!empty).then_some(locked))
}

/// J4, policy list: waits until no transaction on its way holds a block that the running one has changed.
async fn await_conflicts(journal: &Journal) -> Result<(), JournalError> {
    let ignored = journal.drops(JournalMutant::ConflictsIgnored);
    if ignored || !journal.options.engine.lists_conflicts() {
        return Ok(());
    }
    let resolved = || !journal.running.borrow().has_conflict(journal.progress.released.to());
    journal.until(journal.progress.released.event(), resolved).await
}

/// Waits until the log has room for the running transaction, which is locked.
async fn await_log_space(journal: &Journal) -> Result<(), JournalError> {
    loop {
        {
            let (running, mut log) = (journal.running.borrow(), journal.log.borrow_mut());
            let blocks = log.blocks_for(running.changed(), running.revoked());
            // One block more would make a full log look like an empty one, and a second one overwrite the tail.
            let over = if journal.drops(JournalMutant::FillsLogOver) { 2 } else { 0 };
            if blocks <= log.free() + over {
                log.reserve(blocks);
                return Ok(());
            }
            if blocks >= log.blocks() {
                // More than was granted: a mistake of the caller that changed so much in one handle.
                return Err(FormatError::Full { what: "the journal is too small for one operation" }.into());
            }
        }
        journal.signals.checkpoint.notify(usize::MAX);
        journal.signals.changed.listen().await;
        journal.check()?;
    }
}

/// When the running transaction is committed by its age.
fn commit_due(journal: &Journal) -> Option<Instant> {
    let since = journal.running.borrow().since();
    since.map(|since| since + journal.options.commit_interval)
}

fn commit_is_due(journal: &Journal) -> bool {
    let now = journal.disk.handle().now();
    let due = commit_due(journal).is_some_and(|due| due <= now);
    let running = journal.running.borrow();
    !journal.is_stopped() && !running.is_empty() && (due || running.is_requested())
}

/// Commits whenever a caller wants it, or the running transaction is old enough.
pub(crate) async fn commit_task(journal: Weak<Journal>) {
    loop {
        let Some(now) = journal.upgrade() else { return };
        let wanted = now.signals.commit.listen();
        if commit_is_due(&now) {
            if let Err(error) = commit_running(&now).await {
                now.abort(error.stop_reason());
            }
            continue;
        }
        drop(now);
        wanted.await;
    }
}

/// Wakes the commit task when the running transaction is old enough. A timer, and no thread: a transaction's first
/// change costs no context switch.
pub(crate) async fn commit_timer(journal: Weak<Journal>) {
    loop {
        let Some(now) = journal.upgrade() else { return };
        let begun = now.signals.begun.listen();
        let due = commit_due(&now).filter(|_| !now.is_stopped());
        if due.is_some_and(|due| due <= now.disk.handle().now()) {
            now.signals.commit.notify(usize::MAX);
        }
        let due = due.filter(|due| *due > now.disk.handle().now());
        let clock = now.disk.handle().clone();
        drop(now);
        select_biased! {
            () = begun.fuse() => {}
            () = until(&clock, due).fuse() => {}
        }
    }
}

/// Sleeps until a time; without end, if there is none.
async fn until(clock: &Clock, due: Option<Instant>) {
    match due {
        Some(due) => clock.sleep_until(due).await,
        None => std::future::pending().await,
    }
}
