//! Commits: the running transaction is locked, its blocks are frozen, and D, JD and JC are submitted as the engine's
//! graph has it.

use std::rc::{Rc, Weak};

use futures_util::{FutureExt, select_biased};
use tracing::debug;
use weir_block::Class;
use weir_ext4::FormatError;
use weir_runtime::{Handle as Clock, Instant};
use weir_storage::Ticket;

use crate::commit_times::{CommitTimes, StepClock};
use crate::disk::Run;
use crate::encoding::Composed;
use crate::engine::Edge;
use crate::error::JournalError;
use crate::journal::Journal;
use crate::mutants::JournalMutant;
use crate::running::Running;
use crate::transaction::{DataClass, Dispatched, Locked, Logged};
use crate::unjournaled;

/// Commits the running transaction.
pub(crate) async fn commit_running(journal: &Journal) -> Result<(), JournalError> {
    let Some(locked) = lock(journal).await? else { return Ok(()) };
    let graph = journal.options.engine.graph(journal.options.rules);
    let (mut clock, mut times) = (StepClock::start(journal.disk.handle()), CommitTimes::default());
    let mut tickets = Vec::new();
    submit_data(journal, &locked, graph.behind_data, &mut tickets).await?;
    times.data = clock.step();
    if !journal.options.engine.logs() {
        return unjournaled::commit(journal, locked, clock, times).await;
    }
    if graph.behind_data == Edge::FlushAhead {
        return commit_behind_flush(journal, locked, clock, times).await;
    }
    let (Composed { log, commit_at, commit }, logged) = compose(journal, locked).await?;
    times.compose = clock.step();
    submit_log(journal, log, graph.behind_log, &mut tickets).await?;
    times.log = clock.step();
    if journal.options.engine.commits_early() {
        let commit = Run { start: commit_at, blocks: vec![commit] };
        return commit_with_log(journal, commit, logged, tickets, (clock, times)).await;
    }
    if graph.behind_commit == Edge::Barrier {
        journal.disk.write(commit_at, &[commit], Class::Barrier, Class::Barrier, &mut tickets).await?;
        // No await between the write and this: a caller that submits data and finds the transaction not
        // dispatched then knows that the data came before JC (J2).
        dispatched(journal, logged, tickets);
    } else {
        let durable = graph.behind_log == Edge::TransferAndFlush;
        let by_callers = journal.options.engine.flushes_for_callers();
        let round = (!by_callers).then(|| journal.durability.begin(logged.sequence));
        let ticket = journal.disk.write_commit(commit_at, &commit, durable).await?;
        drop(round);
        times.commit_block = clock.step();
        journal.count(|stats| stats.commit_times.add(&times));
        transferred_at_once(journal, logged, Some(ticket));
    }
    Ok(())
}

/// The rest of a commit whose JC leaves with JD: both are waited for together. With async commit one flush is behind them. It
/// covers D, too, which was transferred before JD was submitted. With checksums of data there is none (J10).
async fn commit_with_log(
    journal: &Journal,
    commit: Run,
    logged: Logged,
    mut tickets: Vec<Ticket>,
    (mut clock, mut times): (StepClock, CommitTimes),
) -> Result<(), JournalError> {
    let class = Class::Orderless;
    journal.disk.write(commit.start, &commit.blocks, class, class, &mut tickets).await?;
    journal.disk.transferred(&tickets).await?;
    times.commit_block = clock.step();
    if journal.options.engine.checks_data() {
        journal.count(|stats| stats.commit_times.add(&times));
        journal.await_notice(logged, tickets);
        return Ok(());
    }
    let round = journal.durability.begin(logged.sequence);
    if !journal.options.rules.drops(JournalMutant::CommitNotFlushed) {
        let flush = journal.disk.submit_flush().await?;
        journal.disk.answered(&flush).await?;
    }
    drop(round);
    times.flush = clock.step();
    journal.count(|stats| stats.commit_times.add(&times));
    transferred_at_once(journal, logged, tickets.pop());
    Ok(())
}

/// The rest of a commit whose flush goes ahead: it runs while JD is composed, and JD and JC leave as one ordered plug when
/// it is done (J2).
///
/// The flush is there if D is empty, too. Not only D has to be durable before JC: data of earlier calls and of writeback
/// that was transferred without a flush belongs to files whose inodes this transaction may hold, and no ticket tells of it
/// any more. JD needs no flush, since it has FUA.
async fn commit_behind_flush(
    journal: &Journal,
    locked: Locked,
    mut clock: StepClock,
    mut times: CommitTimes,
) -> Result<(), JournalError> {
    // It covers what is transferred now, and nothing that comes later.
    let round = journal.durability.begin(locked.sequence);
    let flush = journal.disk.submit_flush().await?;
    // The storage flushes meanwhile: a ticket needs no waiter.
    let (Composed { log, commit_at, commit }, logged) = compose(journal, locked).await?;
    times.compose = clock.step();
    if !journal.options.rules.drops(JournalMutant::CommitBeforeFlush) {
        journal.disk.answered(&flush).await?;
    }
    times.flush = clock.step();
    let commit = Run { start: commit_at, blocks: vec![commit] };
    let ticket = journal.disk.write_in_order(&[&log, &[commit]]).await?;
    drop(round);
    times.commit_block = clock.step();
    journal.count(|stats| stats.commit_times.add(&times));
    transferred_at_once(journal, logged, Some(ticket));
    Ok(())
}

/// D: the data of every attached file (J2).
async fn submit_data(
    journal: &Journal,
    locked: &Locked,
    behind: Edge,
    tickets: &mut Vec<Ticket>,
) -> Result<(), JournalError> {
    if journal.options.rules.drops(JournalMutant::OthersDataForgotten) {
        return Ok(());
    }
    let class = match behind {
        Edge::SameEpoch if !journal.options.rules.drops(JournalMutant::DataOutsideEpoch) => {
            DataClass::Ordered
        }
        _ => DataClass::Orderless,
    };
    for data in &locked.data {
        tickets.append(&mut data.submit(class).await?);
    }
    let mut in_place = Vec::new();
    for block in &locked.in_place {
        Run::push(&mut in_place, block.buffer.block(), Rc::clone(&block.content));
    }
    for Run { start, blocks } in &in_place {
        journal.disk.write(*start, blocks, Class::Orderless, Class::Orderless, tickets).await?;
    }
    follow(journal, behind, tickets).await
}

/// JD: the descriptor and log blocks. Its last write closes the epoch of D and JD, where a barrier is behind it.
async fn submit_log(
    journal: &Journal,
    log: Vec<Run>,
    behind: Edge,
    tickets: &mut Vec<Ticket>,
) -> Result<(), JournalError> {
    let (class, closes) = match behind {
        Edge::Barrier => (Class::Ordered, Class::Barrier),
        Edge::SameEpoch if journal.options.engine.uses_barriers() => (Class::Ordered, Class::Ordered),
        _ => (Class::Orderless, Class::Orderless),
    };
    let runs = log.len();
    for (nth, run) in log.into_iter().enumerate() {
        let last = if nth + 1 == runs { closes } else { class };
        journal.disk.write(run.start, &run.blocks, class, last, tickets).await?;
    }
    // JC may be all there is, with journal coalition or in a transaction that logs no block: D, of which some may be transferred
    // already, is an epoch of its own then.
    if runs == 0
        && behind == Edge::Barrier
        && !journal.options.rules.drops(JournalMutant::DataInEpochOfCommit)
    {
        journal.disk.barrier().await?;
    }
    follow(journal, behind, tickets).await
}

/// What the host does between two parts of a commit: where no barrier keeps them apart, it waits.
async fn follow(journal: &Journal, edge: Edge, tickets: &mut Vec<Ticket>) -> Result<(), JournalError> {
    match edge {
        Edge::SameEpoch | Edge::Barrier | Edge::Mark => Ok(()),
        Edge::Transfer if journal.options.rules.drops(JournalMutant::TransferNotAwaited) => Ok(()),
        Edge::FlushAhead if journal.options.rules.drops(JournalMutant::FlushBeforeData) => Ok(()),
        Edge::Transfer | Edge::TransferAndFlush | Edge::FlushAhead => {
            journal.disk.transferred(&std::mem::take(tickets)).await
        }
    }
}

/// JC is with the block layer: the flush task goes on with the transaction (J1).
fn dispatched(journal: &Journal, logged: Logged, tickets: Vec<Ticket>) {
    journal.dispatched.set(logged.sequence);
    journal.on_their_way.borrow_mut().push_back(Dispatched { logged, tickets });
    journal.dispatched.wake();
    journal.flush_wanted.notify(usize::MAX);
}

/// JC is transferred. Where callers have it flushed, the flush task goes on (J1); elsewhere they are told at once that it
/// is durable, which it is if the engine flushes.
pub(crate) fn transferred_at_once(journal: &Journal, logged: Logged, commit: Option<Ticket>) {
    let sequence = logged.sequence;
    journal.dispatched.set(sequence);
    journal.dispatched.wake();
    journal.retire(logged, commit);
    if journal.options.engine.flushes_for_callers() {
        journal.flush_wanted.notify(usize::MAX);
    } else {
        journal.set_durable_to(sequence);
    }
}

/// Locks the running transaction when its handles are closed, freezes its blocks, and lets the next one run.
/// None if there is nothing to commit.
async fn lock(journal: &Journal) -> Result<Option<Locked>, JournalError> {
    conflicts_resolved(journal).await?;
    journal.running.borrow_mut().lock();
    journal.until(&journal.changed, || !journal.running.borrow().has_handles()).await?;
    // The last of them may have been abandoned.
    journal.check()?;
    log_space(journal).await?;
    let running = journal.running.replace_with(|running| Running::new(running.sequence().next()));
    journal.changed.notify(usize::MAX);
    let empty = running.is_empty();
    let overwrites = journal.options.rules.drops(JournalMutant::OverwritesInPlace);
    let overwrites = overwrites && journal.options.selective;
    let locked = running.freeze(journal.buffers.checksums(), overwrites)?;
    Ok((!empty).then_some(locked))
}

/// J4, policy list: waits until no transaction on its way holds a block that the running one has changed.
async fn conflicts_resolved(journal: &Journal) -> Result<(), JournalError> {
    let ignored = journal.options.rules.drops(JournalMutant::ConflictsIgnored);
    if ignored || !journal.options.engine.lists_conflicts() {
        return Ok(());
    }
    let resolved = || !journal.running.borrow().has_conflict(journal.released.to());
    journal.until(journal.released.event(), resolved).await
}

/// Waits until the log has room for the running transaction, which is locked.
async fn log_space(journal: &Journal) -> Result<(), JournalError> {
    loop {
        {
            let (running, log) = (journal.running.borrow(), journal.log.borrow());
            let blocks = log.blocks_for(running.changed(), running.revoked());
            let over = if journal.options.rules.drops(JournalMutant::FillsLogOver) { 2 } else { 0 };
            if blocks <= log.free() + over {
                return Ok(());
            }
            if blocks >= log.blocks() {
                // More than was granted: a mistake of the caller that changed so much in one handle.
                return Err(FormatError::Full { what: "the journal is too small for one operation" }.into());
            }
        }
        journal.checkpoint_wanted.notify(usize::MAX);
        journal.changed.listen().await;
        journal.check()?;
    }
}

/// JD and JC of a locked transaction, which gets its place in the log.
async fn compose(journal: &Journal, mut locked: Locked) -> Result<(Composed, Logged), JournalError> {
    if journal.options.rules.drops(JournalMutant::LogBlockNotCopied) {
        locked.frozen.iter_mut().for_each(|copy| copy.content = copy.buffer.snapshot());
    }
    let (files, blocks) = (locked.data.len(), locked.frozen.len());
    let changed_bytes: u64 = locked.frozen.iter().map(|copy| copy.changed.bytes()).sum();
    let millis = journal.disk.handle().wall_clock_millis();
    let (composed, logged) = journal.log.borrow_mut().append(locked, millis)?;
    journal.checked.take_in(logged.sequence, logged.in_place.iter().map(|buffer| buffer.block()));
    journal.count(|stats| {
        stats.commits += 1;
        stats.logged_blocks += blocks as u64;
        stats.changed_bytes += changed_bytes;
    });
    debug!(
        transaction = logged.sequence.0,
        engine = ?journal.options.engine,
        blocks,
        revokes = logged.revokes.len(),
        files,
        "commit"
    );
    let in_log: usize = composed.log.iter().map(|run| run.blocks.len()).sum();
    journal.disk.handle().spend_compose(in_log + 1).await;
    Ok((composed, logged))
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
        let wanted = now.commit_wanted.listen();
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
        let begun = now.begun.listen();
        let due = commit_due(&now).filter(|_| !now.is_stopped());
        if due.is_some_and(|due| due <= now.disk.handle().now()) {
            now.commit_wanted.notify(usize::MAX);
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

/// Sleeps until then; for ever, if there is no such time.
async fn until(clock: &Clock, due: Option<Instant>) {
    match due {
        Some(due) => clock.sleep_until(due).await,
        None => std::future::pending().await,
    }
}
