//! Checkpointing: committed blocks go home, and their place in the log is free again. Without a flush where the
//! storage keeps order (J5): home writes, a barrier, the tail update as a barrier, and whatever overwrites the
//! freed space comes later. So a home that was remapped never shows what came to the log's place afterwards.

use std::rc::Weak;

use tracing::debug;
use weir_block::Class;

use crate::error::JournalError;
use crate::home::HomeWrites;
use crate::journal::Journal;
use crate::log::Retired;
use crate::mutants::JournalMutant;

/// Brings everything home that is retired now, and moves the tail behind it.
pub(crate) async fn checkpoint(journal: &Journal) -> Result<(), JournalError> {
    let _turn = journal.checkpointing.acquire(1).await;
    // J10: what no notice has come for may go home behind a flush.
    if !journal.unnoticed.is_empty() && !journal.options.rules.drops(JournalMutant::CheckpointsUnnoticed) {
        journal.flush().await?;
    }
    let Some(mut newest) = journal.log.borrow().newest_retired() else { return Ok(()) };
    let exactly = journal.log.borrow_mut().covers_exactly();
    if let Some(exactly) = exactly {
        journal.reached(&journal.transferred, exactly).await?;
        newest = journal.log.borrow().retired(exactly).unwrap_or(newest);
    }
    let home = HomeWrites::of(&journal.unwritten, &journal.options);
    journal.freed.hold_back();
    let submitted = home.submit(&journal.disk, journal.writes_homes_reliably()).await;
    if journal.freed.release(journal.transferred.to()) {
        journal.changed.notify(usize::MAX);
    }
    let tickets = submitted?;
    // J5 (b): the tail may move when the home writes are transferred, and not sooner. No caller waits for us.
    if !journal.options.rules.drops(JournalMutant::TailBeforeHome) {
        journal.disk.transferred(&tickets).await?;
    }
    if journal.options.rules.drops(JournalMutant::FreesLogEarly) {
        journal.log.borrow_mut().free_to(newest);
        journal.changed.notify(usize::MAX);
    }
    move_tail(journal, newest).await?;
    journal.unwritten.are_home(home.blocks());
    journal.log.borrow_mut().free_to(newest);
    journal.checked.forget_to(newest.sequence);
    journal.count(|stats| stats.checkpoints += 1);
    let (transaction, blocks) = (newest.sequence.0, home.blocks().len());
    debug!(transaction, blocks, tail = newest.log_end, "checkpoint");
    journal.changed.notify(usize::MAX);
    Ok(())
}

async fn move_tail(journal: &Journal, newest: Retired) -> Result<(), JournalError> {
    let (disk, options) = (&journal.disk, &journal.options);
    let (home, block) = journal.log.borrow_mut().superblock(Some(newest.log_end), newest.sequence.next())?;
    let unordered = options.rules.drops(JournalMutant::TailBeforeDurable);
    if !options.engine.uses_barriers() {
        // The host keeps order: flush, and let the tail be durable before the space is used again. To a prefix device
        // the transfers are order enough.
        let durable = options.engine.orders_by_flushes() && !unordered;
        if durable {
            disk.flush().await?;
        }
        return disk.write_in_place(home, &block, durable).await.map(drop);
    }
    // The home writes belong to the epoch in which they were transferred: close it.
    if !unordered {
        disk.barrier().await?;
    }
    // J5 (c): what overwrites the freed space comes in a later epoch than this.
    let free = options.rules.drops(JournalMutant::TailWithoutBarrier);
    let class = if free { Class::Orderless } else { Class::Barrier };
    let mut tickets = Vec::new();
    disk.write_tail(home, block, class, &mut tickets).await?;
    // If it fails, the journal has to know.
    disk.transferred(&tickets).await
}

/// Checkpoints whenever a task wants room in the log.
pub(crate) async fn checkpoint_task(journal: Weak<Journal>) {
    loop {
        let Some(now) = journal.upgrade() else { return };
        let wanted = now.checkpoint_wanted.listen();
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
