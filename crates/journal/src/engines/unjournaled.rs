//! No journal (eMMC paper, section VI, variant N), as ext4 without one, to be compared with and nothing else: a crash may leave some
//! blocks and not others.
//!
//! ```text
//! calls             D --wait-- the blocks of the file --wait--
//! commit            D --wait-- blocks home --wait-- next
//! ```
//!
//! The blocks of a file are that of its inode, its extent tree's, and, if it has a new name, those of directories. All others go
//! home when they are as old as a transaction that is committed, as the kernel's flusher has it. Nothing is flushed, as in
//! Linux 3.10; later versions do.

use std::rc::Rc;

use weir_block::{Class, Run};

use crate::call::{SyncRequest, SyncedFile};
use crate::error::JournalError;
use crate::journal::Journal;
use crate::steps::Commit;
use crate::transaction::{FrozenBlock, Locked, Logged};

/// All four calls.
pub(super) async fn synchronise<F: SyncedFile>(call: &SyncRequest<'_, F>) -> Result<(), JournalError> {
    let &SyncRequest { journal, file, inode, .. } = call;
    file.submit_dirty(Class::Orderless, Class::Orderless).await?;
    file.wait_transferred().await?;
    let blocks = {
        let mut running = journal.running.borrow_mut();
        running.take_blocks(|buffer| inode.needs(buffer), journal.buffers.checksums())?
    };
    write_home(journal, blocks).await
}

/// Writes blocks home, and waits until they are transferred: they need not stay in memory any more. One that a call has taken out of
/// a later transaction meanwhile is there, and newer.
async fn write_home(journal: &Journal, mut blocks: Vec<FrozenBlock>) -> Result<(), JournalError> {
    blocks.sort_by_key(|block| block.buffer.block());
    let mut runs = Vec::new();
    for block in blocks.iter().filter(|block| block.is_newest()) {
        Run::push(&mut runs, block.buffer.block(), Rc::clone(&block.content));
    }
    let mut tickets = Vec::new();
    for Run { start, blocks } in &runs {
        journal.disk.write_home(*start, blocks, false, &mut tickets).await?;
    }
    journal.disk.wait_transferred(&tickets).await?;
    for block in &blocks {
        block.buffer.unpin();
    }
    Ok(())
}

/// Writes the blocks of a transaction home. Nothing of it is in the log, so nothing of it is left to be checkpointed.
pub(super) async fn commit(mut commit: Commit<'_>, mut locked: Locked) -> Result<(), JournalError> {
    let journal = commit.journal;
    commit.write_data(&locked).await?;
    write_home(journal, std::mem::take(&mut locked.frozen)).await?;
    commit.times.log = commit.clock.step();
    journal.count(|stats| stats.commits += 1);
    let Locked { sequence, revokes, data, freed, .. } = locked;
    let log_end = journal.log.borrow().tail();
    let (blocks, in_place) = (Vec::new(), Vec::new());
    commit.end_durable(Logged { sequence, blocks, in_place, revokes, data, freed, log_end }, None);
    let mut log = journal.log.borrow_mut();
    if let Some(newest) = log.newest_retired() {
        log.free_to(newest);
    }
    Ok(())
}
