//! The flush task of dual-mode journaling (FAST 2018 paper, section 4.2). The commit task dispatches and does not wait; this
//! one retires transactions in order, and makes durable what a caller wants durable (J1). With the engine for prefix
//! devices, and with OptFS, the commit task has waited for the transfer and retires by itself, so only the flush is left here.

use std::rc::Weak;

use weir_storage::StorageError;

use crate::error::JournalError;
use crate::journal::Journal;
use crate::mutants::JournalMutant;

/// Blocks that wait for their discard until a transaction is durable, from which on the journal flushes by itself, where
/// the storage cannot tell: 64 MiB.
const WORTH_A_FLUSH: u64 = 1 << 14;

/// Retires the oldest dispatched transaction, once D, JD and JC are transferred. False if there is none.
async fn retire_next(journal: &Journal) -> Result<bool, JournalError> {
    let Some(tickets) = journal.progress.oldest_tickets() else { return Ok(false) };
    if !journal.drops(JournalMutant::RetiresAtDispatch) {
        let done = journal.disk.wait_transferred(&tickets).await;
        if !journal.drops(JournalMutant::ErrorIgnored) {
            done?;
        }
    }
    if let Some(oldest) = journal.progress.take_oldest() {
        // The last of them is that of JC.
        journal.retire(oldest, tickets.last().cloned());
    }
    Ok(true)
}

/// Flushes, if a caller waits for a transaction that is transferred; all that is transferred by then shares the
/// flush.
async fn flush_if_wanted(journal: &Journal) -> Result<bool, JournalError> {
    let covers = journal.progress.transferred.to();
    if !journal.durability.is_wanted(covers) {
        // J4: no caller waits for these, so they are done.
        journal.release(covers);
        return Ok(false);
    }
    let round = journal.durability.begin_flush(covers);
    if !journal.drops(JournalMutant::FlushForgotten) {
        journal.disk.flush().await?;
    }
    drop(round);
    journal.set_durable_to(covers);
    journal.release(covers);
    Ok(true)
}

/// Learns what the storage makes durable without being asked, such as a volume that keeps its loss window (V5): where
/// all calls only order, no caller ever flushes. JC is in a later epoch than all before it, or was received later by a prefix
/// device, so when it is durable, that is, too (S3). Callers that wait for durability are not answered by this: what
/// they have written may be younger.
pub(crate) async fn durability_task(journal: Weak<Journal>) {
    loop {
        let Some(now) = journal.upgrade() else { return };
        let freed = now.freed.event().listen();
        if now.is_stopped() || now.drops(JournalMutant::DurabilityUnnoticed) {
            return;
        }
        let waiting = now.freed.reuse.awaiting_durability();
        let newest = now.durability.newest().filter(|_| waiting > 0);
        drop(now);
        let Some((sequence, ticket)) = newest else {
            freed.await;
            continue;
        };
        let answer = ticket.durable().await;
        let Some(now) = journal.upgrade() else { return };
        match answer {
            Ok(()) => now.freed.reuse.are_durable(sequence),
            Err(StorageError::DurabilityUnknown) => {
                if waiting >= WORTH_A_FLUSH && now.options.engine.facts().flushes_for_callers {
                    now.durability.want(sequence);
                    now.signals.flush.notify(usize::MAX);
                }
                drop(now);
                freed.await;
            }
            // The journal meets the same failure.
            Err(_) => return,
        }
    }
}

/// Retires and flushes for as long as the journal lives.
pub(crate) async fn flush_task(journal: Weak<Journal>) {
    loop {
        let Some(now) = journal.upgrade() else { return };
        let wanted = now.signals.flush.listen();
        if !now.is_stopped() {
            let done = match flush_if_wanted(&now).await {
                Ok(false) => retire_next(&now).await,
                done => done,
            };
            match done {
                Ok(true) => continue,
                Ok(false) => {}
                Err(error) => now.abort(error.stop_reason()),
            }
        }
        drop(now);
        wanted.await;
    }
}
