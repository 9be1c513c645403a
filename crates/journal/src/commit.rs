//! Commits: the running transaction is locked, its blocks are frozen, and D, JD and JC are submitted as the engine's
//! graph has it.

use std::rc::{Rc, Weak};

use futures_util::{FutureExt, select_biased};
use tracing::debug;
use weir_block::Class;
use weir_ext4::FormatError;
use weir_runtime::{Buffer as Memory, Handle as Clock, Instant};
use weir_storage::Ticket;

use crate::engine::{Conflicts, Edge, Engine};
use crate::error::JournalError;
use crate::journal::Journal;
use crate::log::Run;
use crate::mutants::JournalMutant;
use crate::transaction::{DataClass, Dispatched, FrozenBlock, Locked, Retired, Running};

/// JD and JC.
struct Composed {
    log: Vec<Run>,
    commit_at: u64,
    commit: Rc<Memory>,
}

impl Journal {
    /// Commits the running transaction.
    pub(crate) async fn commit_running(&self) -> Result<(), JournalError> {
        let Some(mut locked) = self.lock().await? else { return Ok(()) };
        let graph = self.options.engine.graph(self.options.rules);
        let mut tickets = Vec::new();
        self.submit_data(&locked, graph.behind_data, &mut tickets).await?;
        let Composed { log, commit_at, commit } = self.compose(&mut locked)?;
        self.submit_log(log, graph.behind_log, &mut tickets).await?;
        if graph.behind_commit == Edge::Barrier {
            self.disk.write(commit_at, &[commit], Class::Barrier, Class::Barrier, &mut tickets).await?;
            // No await between the write and this: a caller that submits data and finds the transaction not
            // dispatched then knows that the data came before JC (J2).
            self.dispatched(locked, tickets);
        } else {
            let durable = graph.behind_log == Edge::TransferAndFlush;
            let mut round = self.flushes.begin();
            round.will_cover(self.position(locked.sequence));
            self.disk.write_commit(commit_at, &commit, durable).await?;
            drop(round);
            self.transferred_at_once(locked);
        }
        Ok(())
    }

    /// D: the data of every attached file (J2).
    async fn submit_data(
        &self,
        locked: &Locked,
        behind: Edge,
        tickets: &mut Vec<Ticket>,
    ) -> Result<(), JournalError> {
        if self.options.rules.drops(JournalMutant::OthersDataForgotten) {
            return Ok(());
        }
        let class = match behind {
            Edge::SameEpoch if !self.options.rules.drops(JournalMutant::DataOutsideEpoch) => {
                DataClass::Ordered
            }
            _ => DataClass::Orderless,
        };
        for data in &locked.data {
            tickets.append(&mut data.submit(class).await?);
        }
        self.follow(behind, tickets).await
    }

    /// JD: the descriptor and log blocks. Its last write closes the epoch of D and JD, where a barrier is behind it.
    async fn submit_log(
        &self,
        log: Vec<Run>,
        behind: Edge,
        tickets: &mut Vec<Ticket>,
    ) -> Result<(), JournalError> {
        let (class, closes) = match behind {
            Edge::Barrier => (Class::Ordered, Class::Barrier),
            Edge::SameEpoch => (Class::Ordered, Class::Ordered),
            _ => (Class::Orderless, Class::Orderless),
        };
        let runs = log.len();
        for (nth, run) in log.into_iter().enumerate() {
            let last = if nth + 1 == runs { closes } else { class };
            self.disk.write(run.start, &run.blocks, class, last, tickets).await?;
        }
        if runs == 0 && !tickets.is_empty() && class == Class::Ordered {
            self.disk.barrier().await?;
        }
        self.follow(behind, tickets).await
    }

    /// What the host does between two parts of a commit: where no barrier keeps them apart, it waits.
    async fn follow(&self, edge: Edge, tickets: &mut Vec<Ticket>) -> Result<(), JournalError> {
        match edge {
            Edge::SameEpoch | Edge::Barrier => Ok(()),
            Edge::Transfer | Edge::TransferAndFlush => self.disk.transferred(&std::mem::take(tickets)).await,
        }
    }

    /// JC is with the block layer: the flush task goes on with the transaction (J1).
    fn dispatched(&self, locked: Locked, tickets: Vec<Ticket>) {
        let mut state = self.state.borrow_mut();
        state.dispatched_to = locked.sequence;
        state.dispatched.push_back(Dispatched { locked, tickets });
        drop(state);
        self.dispatched.notify(usize::MAX);
        self.flush_wanted.notify(usize::MAX);
    }

    /// JC is transferred, and durable where the engine flushes.
    fn transferred_at_once(&self, locked: Locked) {
        let sequence = locked.sequence;
        self.state.borrow_mut().dispatched_to = sequence;
        self.dispatched.notify(usize::MAX);
        self.retire(locked, None);
        self.set_durable_to(sequence);
    }

    /// Locks the running transaction when its handles are closed, freezes its blocks, and lets the next one run.
    /// None if there is nothing to commit.
    async fn lock(&self) -> Result<Option<Locked>, JournalError> {
        if self.options.engine == (Engine::Dual { conflicts: Conflicts::List }) {
            self.conflicts_resolved().await?;
        }
        self.state.borrow_mut().running.locked = true;
        self.until(&self.changed, |state| state.running.handles == 0).await?;
        // The last of them may have been abandoned.
        self.check()?;
        self.log_space().await?;
        let mut state = self.state.borrow_mut();
        let next = Running::new(state.running.sequence.next());
        let running = std::mem::replace(&mut state.running, next);
        drop(state);
        self.changed.notify(usize::MAX);
        let empty = running.is_empty();
        let mut frozen = Vec::with_capacity(running.buffers.len());
        for buffer in running.buffers.into_values() {
            buffer.update_checksum(self.buffers.checksums())?;
            if buffer.changed_in.get() == Some(running.sequence) {
                buffer.changed_in.set(None);
            }
            buffer.held_by.set(Some(running.sequence));
            let (content, changed) = (buffer.snapshot(), buffer.take_changed());
            frozen.push(FrozenBlock { buffer, content, changed });
        }
        let locked = Locked {
            sequence: running.sequence,
            frozen,
            revokes: running.revokes.into_iter().collect(),
            data: running.data.into_values().collect(),
            freed: running.freed,
            log_end: 0,
        };
        Ok((!empty).then_some(locked))
    }

    /// J4, policy list: waits until no transaction on its way holds a block that the running one has changed.
    async fn conflicts_resolved(&self) -> Result<(), JournalError> {
        if self.options.rules.drops(JournalMutant::ConflictsIgnored) {
            return Ok(());
        }
        self.until(&self.transferred, |state| {
            let transferred = state.transferred_to;
            !state.running.conflicts.values().any(|holder| holder.is_after(transferred))
        })
        .await
    }

    /// Waits until the log has room for the running transaction, which is locked.
    async fn log_space(&self) -> Result<u32, JournalError> {
        loop {
            {
                let state = self.state.borrow();
                let blocks = state.log.blocks_for(state.running.buffers.len(), state.running.revokes.len());
                let over = if self.options.rules.drops(JournalMutant::FillsLogOver) { 2 } else { 0 };
                if blocks <= state.log.free() + over {
                    return Ok(blocks);
                }
                if blocks >= state.log.ring.blocks() {
                    // More than was granted: a mistake of whoever changed so much in one handle.
                    return Err(
                        FormatError::Full { what: "the journal is too small for one operation" }.into()
                    );
                }
            }
            self.checkpoint_wanted.notify(usize::MAX);
            self.changed.listen().await;
            self.check()?;
        }
    }

    /// JD and JC of a locked transaction, as they stand in the log.
    fn compose(&self, locked: &mut Locked) -> Result<Composed, JournalError> {
        let millis = self.disk.handle().wall_clock_millis();
        let mut state = self.state.borrow_mut();
        if self.options.rules.drops(JournalMutant::LogBlockNotCopied) {
            locked.frozen.iter_mut().for_each(|copy| copy.content = copy.buffer.snapshot());
        }
        let (log, commit_at, commit) =
            state.log.compose(locked.sequence, &locked.frozen, &locked.revokes, millis)?;
        locked.log_end = state.log.head;
        state.commits += 1;
        state.logged_blocks += locked.frozen.len() as u64;
        state.changed_bytes += locked.frozen.iter().map(|copy| copy.changed.bytes()).sum::<u64>();
        debug!(
            transaction = locked.sequence.0,
            engine = ?self.options.engine,
            blocks = locked.frozen.len(),
            revokes = locked.revokes.len(),
            files = locked.data.len(),
            "commit"
        );
        Ok(Composed { log, commit_at, commit })
    }

    /// The commit block of a transaction is transferred: its frozen blocks may go home, and what it freed may be reused.
    /// `ticket` is the commit block's, for callers that want to know when it is durable.
    pub(crate) fn retire(&self, locked: Locked, ticket: Option<Ticket>) {
        self.unwritten.take_in(&locked);
        let mut state = self.state.borrow_mut();
        state.transferred_to = locked.sequence;
        self.move_anchor(locked.sequence);
        state.retired.push_back(Retired { sequence: locked.sequence, log_end: locked.log_end });
        state.newest = ticket;
        let crowded = state.log.free() < state.log.ring.blocks() / 2;
        let held = state.submitting_home && !self.options.rules.drops(JournalMutant::ReusesBeforeHomeWrites);
        let reusable = if held {
            state.held_back.extend(&locked.freed);
            Vec::new()
        } else {
            locked.freed
        };
        drop(state);
        self.give(&reusable);
        if crowded {
            self.checkpoint_wanted.notify(usize::MAX);
        }
        self.changed.notify(usize::MAX);
        self.transferred.notify(usize::MAX);
    }

    /// When the running transaction is committed by its age.
    fn commit_due(&self) -> Option<Instant> {
        let state = self.state.borrow();
        state.running.since.map(|since| since + self.options.commit_interval)
    }

    fn commit_is_due(&self) -> bool {
        let now = self.disk.handle().now();
        let due = self.commit_due().is_some_and(|due| due <= now);
        let state = self.state.borrow();
        state.aborted.is_none()
            && !state.running.is_empty()
            && (due || state.requested == Some(state.running.sequence))
    }
}

/// Commits whenever somebody wants it, or the running transaction is old enough.
pub(crate) async fn commit_task(journal: Weak<Journal>) {
    loop {
        let Some(now) = journal.upgrade() else { return };
        let wanted = now.commit_wanted.listen();
        if now.commit_is_due() {
            if let Err(error) = now.commit_running().await {
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
        let due = now.commit_due().filter(|_| now.aborted().is_none());
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
