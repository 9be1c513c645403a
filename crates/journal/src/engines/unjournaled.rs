//! A commit without a journal (eMMC paper, section VI, variant N), to be compared with, and nothing else: the blocks go home at
//! once, and a flush makes them durable. A crash may leave some of them and not others.
//!
//! ```text
//! commit            D --wait-- blocks home --wait, flush-- next
//! calls             as those of jbd2
//! ```

use std::rc::Rc;

use weir_block::{Class, Run};

use crate::error::JournalError;
use crate::steps::Commit;
use crate::transaction::{Locked, Logged};

/// Writes the blocks of a transaction home, and flushes. Nothing of it is in the log, so nothing of it is left to be
/// checkpointed.
pub(super) async fn commit(mut commit: Commit<'_>, mut locked: Locked) -> Result<(), JournalError> {
    let journal = commit.journal;
    commit.write_data(&locked).await?;
    locked.frozen.sort_by_key(|copy| copy.buffer.block());
    let mut home = Vec::new();
    for copy in &locked.frozen {
        Run::push(&mut home, copy.buffer.block(), Rc::clone(&copy.content));
    }
    let mut tickets = Vec::new();
    commit.submit_runs(home, (Class::Orderless, Class::Orderless), &mut tickets).await?;
    journal.disk.wait_transferred(&tickets).await?;
    commit.times.log = commit.clock.step();
    let round = journal.durability.begin_flush(locked.sequence);
    journal.disk.flush().await?;
    drop(round);
    commit.times.flush = commit.clock.step();
    journal.count(|stats| stats.commits += 1);
    for copy in &locked.frozen {
        copy.buffer.pins.set(copy.buffer.pins.get().saturating_sub(1));
    }
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
