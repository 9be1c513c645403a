//! A commit without a journal: what the papers compare with, and nothing else (eMMC paper, section VI, variant N). The
//! blocks go home at once, and a flush makes them durable; a crash may leave some of them and not others.

use std::rc::Rc;

use weir_block::Class;

use crate::commit::transferred_at_once;
use crate::commit_times::{CommitTimes, StepClock};
use crate::disk::Run;
use crate::error::JournalError;
use crate::journal::Journal;
use crate::transaction::{Locked, Logged};

/// Writes the blocks of a transaction home, whose D is transferred, and flushes. Nothing of it is in the log, so nothing of
/// it is left to be checkpointed.
pub(crate) async fn commit(
    journal: &Journal,
    mut locked: Locked,
    mut clock: StepClock,
    mut times: CommitTimes,
) -> Result<(), JournalError> {
    locked.frozen.sort_by_key(|copy| copy.buffer.block());
    let mut home = Vec::new();
    for copy in &locked.frozen {
        Run::push(&mut home, copy.buffer.block(), Rc::clone(&copy.content));
    }
    let mut tickets = Vec::new();
    for Run { start, blocks } in &home {
        journal.disk.write(*start, blocks, Class::Orderless, Class::Orderless, &mut tickets).await?;
    }
    journal.disk.transferred(&tickets).await?;
    times.log = clock.step();
    let round = journal.durability.begin(locked.sequence);
    journal.disk.flush().await?;
    drop(round);
    times.flush = clock.step();
    journal.count(|stats| {
        stats.commits += 1;
        stats.commit_times.add(&times);
    });
    is_home(journal, locked);
    Ok(())
}

/// The transaction is over.
fn is_home(journal: &Journal, locked: Locked) {
    for copy in &locked.frozen {
        copy.buffer.pins.set(copy.buffer.pins.get().saturating_sub(1));
    }
    let Locked { sequence, revokes, data, freed, .. } = locked;
    let log_end = journal.log.borrow().tail();
    transferred_at_once(
        journal,
        Logged { sequence, blocks: Vec::new(), in_place: Vec::new(), revokes, data, freed, log_end },
        None,
    );
    let mut log = journal.log.borrow_mut();
    if let Some(newest) = log.newest_retired() {
        log.free_to(newest);
    }
}
