//! Checkpoints in the foreground, as jbd2 has them: no task empties the log in the background. A task that wants a handle, and
//! finds the log short, writes blocks home itself, of the oldest transaction alone, and then asks again.
//!
//! 1. The log is *short* when less is free than a transaction may take (a quarter), beside what the locked one takes.
//! 2. Transactions at the tail that keep no block (all are home, or in the log again with a later one) are freed first: a flush,
//!    and the tail by FUA.
//! 3. Otherwise the blocks of the oldest transaction go home, and are waited for together. A block that a later
//!    transaction has changed is not written: that one is committed, and the log has the block with it.
//! 4. A commit of the engine jbd2 that would free a quarter of the log so moves the tail itself: the flush before JC has made the
//!    homes durable. Async commit and flush-ahead leave that to 2., which costs them a flush more.
//! 5. The flusher writes home all that is not, once in a while. It moves no tail: 2. and 4. find its transactions empty. The
//!    kernel's writes the dirty pages of an inode when the first of them is 30 s old. All metadata is one inode there, the block
//!    device's; data that was in the log belongs to its file's inode, and waits as long for its own file. Here all go together. A
//!    block that a later transaction has changed is not dirty there until that is committed, and is left here as well. With
//!    checkpoints by remap it remaps, too; the SHARE paper speaks of checkpoints alone.
//!
//! One task at a time frees the log, and holds no handle; the others wait. A commit that finds the log being freed leaves the tail
//! where it is. One task at a time writes home: where the flusher does, a task that makes room waits for it.

use std::rc::Weak;
use std::time::Duration;

use weir_ext4::journal::Sequence;

use crate::checkpoint::{HomesFlushed, free_log_to, write_home};
use crate::error::JournalError;
use crate::home::HomeWrites;
use crate::journal::Journal;
use crate::log::{Log, Retired};
use crate::mutants::JournalMutant;
use crate::options::{Checkpoints, JournalOptions};

impl Journal {
    /// Whether the log has no room for another transaction, beside those that are in it or about to be.
    pub(crate) fn is_short(&self) -> bool {
        let log = self.log.borrow();
        log.free() < log.blocks_for(self.share() as usize, 1) + log.reserved()
    }

    /// The newest transaction up to which none keeps a block.
    fn newest_not_kept(&self) -> Option<Retired> {
        let frees_all = self.drops(JournalMutant::OldestFreedEarly);
        self.log.borrow().newest_not_kept(|sequence| !frees_all && self.unwritten.keeps(sequence))
    }

    /// The transaction behind which a commit that flushes now moves the log's tail, if it does.
    pub(crate) fn tail_behind_commit(&self) -> Option<Retired> {
        let home = if self.makes_room_in_foreground { self.newest_not_kept()? } else { return None };
        (self.log.borrow().freed_by(home) >= self.share()).then_some(home)
    }
}

/// How often the flusher writes home, where the tasks that want room in a log make it; `None` where the background does.
///
/// Where the log holds changes alone (J9), a transaction stays in it though a later one holds the same block; and where checksums
/// stand for flushes (J10), a checkpoint has to cover all that was noticed. There the background has it; in the eMMC paper a journal with
/// coalition checkpoints as the one without.
pub(crate) fn flusher_of(options: &JournalOptions, log: &Log) -> Option<Duration> {
    let Checkpoints::Foreground { flusher } = options.checkpoints else { return None };
    let facts = options.engine.facts();
    (facts.logs && !facts.log.data_checksums && !log.has_coalition()).then_some(flusher)
}

/// Writes home all that is not, every so often (5.).
pub(crate) async fn flusher_task(journal: Weak<Journal>, every: Duration) {
    loop {
        let Some(now) = journal.upgrade() else { return };
        let clock = now.disk.handle().clone();
        drop(now);
        clock.sleep(every).await;
        let Some(now) = journal.upgrade() else { return };
        if !now.is_stopped()
            && let Err(error) = write_all_home(&now).await
        {
            now.abort(error.stop_reason());
        }
    }
}

async fn write_all_home(journal: &Journal) -> Result<(), JournalError> {
    write_home(journal, |unwritten, options| {
        let transferred = journal.progress.transferred.to();
        HomeWrites::of_unchanged(unwritten, options, transferred)
    })
    .await
    .map(drop)
}

/// Makes room in the log, one step of it: the caller asks again whether it is short.
pub(crate) async fn make_room(journal: &Journal) -> Result<(), JournalError> {
    let turn = journal.checkpointing.acquire(1).await;
    journal.check()?;
    if !journal.is_short() {
        return Ok(());
    }
    if let Some(home) = journal.newest_not_kept() {
        return free_log_to(journal, home, HomesFlushed::No).await;
    }
    let changed = journal.signals.changed.listen();
    let oldest = journal.log.borrow().oldest_retired();
    let holder = match oldest {
        Some(oldest) => write_oldest_home(journal, oldest.sequence).await?,
        None => None,
    };
    // A commit that finds no room in the log needs a checkpoint, and a checkpoint the turn.
    drop(turn);
    match holder {
        Some(holder) => {
            journal.request_commit(holder);
            journal.reached(&journal.progress.transferred, holder).await
        }
        // Transactions that are not transferred take all of the log.
        None if oldest.is_none() => {
            changed.await;
            Ok(())
        }
        None => Ok(()),
    }
}

/// Writes home what a transaction keeps, up to a block that a later one holds which is not in the log: which holds it.
pub(crate) async fn write_oldest_home(
    journal: &Journal,
    oldest: Sequence,
) -> Result<Option<Sequence>, JournalError> {
    loop {
        let transferred = journal.progress.transferred.to();
        let kept = journal.unwritten.kept_by(oldest);
        let held = kept.iter().position(|buffer| buffer.holder_behind(transferred).is_some());
        let homes: Vec<u64> =
            kept[..held.unwrap_or(kept.len())].iter().map(|buffer| buffer.block()).collect();
        if homes.is_empty() {
            return Ok(kept.first().and_then(|buffer| buffer.holder_behind(transferred)));
        }
        write_home(journal, |unwritten, options| HomeWrites::of_blocks(unwritten, options, &homes)).await?;
    }
}
