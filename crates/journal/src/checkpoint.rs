//! Checkpointing: committed blocks go home, and their place in the log is free again. Without a flush where the
//! storage keeps order (J5): home writes, a barrier, the tail update as a barrier, and whatever overwrites the
//! freed space comes later. So a home that was remapped never shows what came to the log's place afterwards.

use std::rc::Weak;

use tracing::debug;

use crate::error::JournalError;
use crate::home::HomeWrites;
use crate::journal::Journal;
use crate::log::Retired;
use crate::mutants::JournalMutant;
use crate::options::JournalOptions;
use crate::unwritten::Unwritten;

/// Whether a flush was submitted since homes were transferred.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HomesFlushed {
    /// That of a commit covers them.
    Yes,
    /// The engine has to see to it.
    No,
}

/// Brings everything home that is retired now, and moves the tail behind it.
pub(crate) async fn checkpoint(journal: &Journal) -> Result<(), JournalError> {
    let _turn = journal.checkpointing.acquire(1).await;
    // J10: what no notice has come for may go home behind a flush.
    if !journal.unnoticed.is_empty() && !journal.drops(JournalMutant::CheckpointsUnnoticed) {
        journal.flush().await?;
    }
    let Some(mut newest) = journal.log.borrow().newest_retired() else { return Ok(()) };
    let exactly = journal.log.borrow_mut().covers_exactly();
    if let Some(exactly) = exactly {
        journal.reached(&journal.progress.transferred, exactly).await?;
        newest = journal.log.borrow().retired(exactly).unwrap_or(newest);
    }
    let blocks = write_home(journal, HomeWrites::of).await?;
    free_log_to(journal, newest, HomesFlushed::No).await?;
    debug!(name: "journal_checkpoint", transaction = newest.sequence.0, blocks, "checkpoint");
    journal.signals.changed.notify(usize::MAX);
    Ok(())
}

/// Freed blocks are held back until dropped: also where the call that writes home is given up, which submits nothing more then.
struct HeldBack<'a>(&'a Journal);

impl HeldBack<'_> {
    fn begin(journal: &Journal) -> HeldBack<'_> {
        journal.freed.hold_back();
        HeldBack(journal)
    }
}

impl Drop for HeldBack<'_> {
    fn drop(&mut self) {
        let HeldBack(journal) = self;
        if journal.freed.release(journal.progress.transferred.to()) {
            journal.signals.changed.notify(usize::MAX);
        }
    }
}

/// Writes home the blocks that `choose` names when no other task writes home, waits until they are transferred, and has it noted
/// that they are home. How many they are.
pub(crate) async fn write_home(
    journal: &Journal,
    choose: impl FnOnce(&Unwritten, &JournalOptions) -> HomeWrites,
) -> Result<usize, JournalError> {
    let _turn = journal.writing_home.acquire(1).await;
    let home = choose(&journal.unwritten, &journal.options);
    let held_back = HeldBack::begin(journal);
    let submitted = home.submit(&journal.disk, journal.writes_homes_reliably()).await;
    drop(held_back);
    let tickets = submitted?;
    // J5 (b): the tail may move when the home writes are transferred, and not sooner. No caller waits for us.
    if !journal.drops(JournalMutant::TailBeforeHome) {
        journal.disk.wait_transferred(&tickets).await?;
    }
    journal.unwritten.are_home(home.blocks(), &journal.options);
    Ok(home.blocks().len())
}

/// Moves the log's tail behind a transaction. It and all before it leave the log: what they hold is home, and transferred.
pub(crate) async fn free_log_to(
    journal: &Journal,
    newest: Retired,
    homes: HomesFlushed,
) -> Result<(), JournalError> {
    if journal.drops(JournalMutant::FreesLogEarly) {
        journal.log.borrow_mut().free_to(newest);
        journal.signals.changed.notify(usize::MAX);
    }
    let (place, block) = journal.log.borrow_mut().superblock(Some(newest.log_end), newest.sequence.next())?;
    journal.options.engine.move_tail(journal, (place, block), homes).await?;
    journal.log.borrow_mut().free_to(newest);
    journal.unwritten.log_is_freed_to(newest.sequence);
    journal.checked.forget_to(newest.sequence);
    journal.count(|stats| stats.checkpoints += 1);
    debug!(name: "journal_tail_moved", to = newest.sequence.0, tail = newest.log_end, "the log's tail moves");
    journal.signals.changed.notify(usize::MAX);
    Ok(())
}

/// Checkpoints whenever a task wants room in the log.
pub(crate) async fn checkpoint_task(journal: Weak<Journal>) {
    loop {
        let Some(now) = journal.upgrade() else { return };
        let wanted = now.signals.checkpoint.listen();
        drop(now);
        wanted.await;
        let Some(now) = journal.upgrade() else { return };
        if !now.is_stopped()
            && let Err(error) = checkpoint(&now).await
        {
            now.abort(error.stop_reason());
        }
    }
}
