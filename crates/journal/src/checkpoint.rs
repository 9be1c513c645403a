//! Checkpointing: committed blocks go home, and their place in the log is free again. Without a flush where the
//! storage keeps order (J5): home writes, a barrier, the tail update as a barrier, and whatever overwrites the
//! freed space comes later.

use std::rc::{Rc, Weak};

use tracing::debug;
use weir_block::Class;
use weir_ext4::journal::Sequence;
use weir_storage::Ticket;

use crate::error::JournalError;
use crate::journal::Journal;
use crate::log::Run;
use crate::mutants::JournalMutant;

/// Blocks on their way home.
struct HomeWrites {
    /// Which, and by which transaction.
    written: Vec<(u64, Sequence)>,
    runs: Vec<Run>,
}

impl Journal {
    /// Brings everything home that is retired now, and moves the tail behind it.
    pub(crate) async fn checkpoint(&self) -> Result<(), JournalError> {
        let _turn = self.checkpointing.acquire(1).await;
        let newest = {
            let state = self.state.borrow();
            let Some(newest) = state.retired.back() else { return Ok(()) };
            (newest.sequence, newest.log_end)
        };
        let HomeWrites { written, runs } = self.home_writes();
        self.state.borrow_mut().submitting_home = true;
        let submitted = self.submit_home(&runs).await;
        let held_back = {
            let mut state = self.state.borrow_mut();
            state.submitting_home = false;
            std::mem::take(&mut state.held_back)
        };
        if !held_back.is_empty() {
            self.give(&held_back);
            self.changed.notify(usize::MAX);
        }
        let tickets = submitted?;
        // J5 (b): the tail may move when the home writes are transferred, and not sooner. Nobody waits for us.
        if !self.options.rules.drops(JournalMutant::TailBeforeHome) {
            self.disk.transferred(&tickets).await?;
        }
        if self.options.rules.drops(JournalMutant::FreesLogEarly) {
            self.state.borrow_mut().log.tail = newest.1;
            self.changed.notify(usize::MAX);
        }
        self.move_tail(newest.0.next(), newest.1).await?;
        self.unwritten.are_home(&written);
        let mut state = self.state.borrow_mut();
        while state.retired.front().is_some_and(|retired| !retired.sequence.is_after(newest.0)) {
            state.retired.pop_front();
        }
        state.log.tail = newest.1;
        state.checkpoints += 1;
        debug!(transaction = newest.0.0, blocks = written.len(), tail = newest.1, "checkpoint");
        drop(state);
        self.changed.notify(usize::MAX);
        Ok(())
    }

    async fn submit_home(&self, runs: &[Run]) -> Result<Vec<Ticket>, JournalError> {
        let mut tickets = Vec::new();
        for Run { start, blocks } in runs {
            self.disk.write(*start, blocks, Class::Orderless, Class::Orderless, &mut tickets).await?;
        }
        Ok(tickets)
    }

    /// The newest committed content of what is not home (J5 a), in the order of its blocks.
    fn home_writes(&self) -> HomeWrites {
        let frozen = self.unwritten.frozen.borrow();
        let mut written = Vec::with_capacity(frozen.len());
        let mut runs: Vec<Run> = Vec::new();
        for (&block, (sequence, copy)) in frozen.iter() {
            let uncommitted = self.options.rules.drops(JournalMutant::CheckpointsUncommitted);
            let content = if uncommitted { copy.buffer.snapshot() } else { Rc::clone(&copy.content) };
            written.push((block, *sequence));
            match runs.last_mut() {
                Some(run) if run.start + run.blocks.len() as u64 == block => run.blocks.push(content),
                _ => runs.push(Run { start: block, blocks: vec![content] }),
            }
        }
        HomeWrites { written, runs }
    }

    async fn move_tail(&self, sequence: Sequence, tail: u32) -> Result<(), JournalError> {
        let (home, block) = self.state.borrow_mut().log.superblock(Some(tail), sequence)?;
        if !self.options.engine.uses_barriers() {
            // The host keeps order: flush, and let the tail be durable before the space is used again.
            if self.options.engine.flushes() {
                self.disk.flush().await?;
            }
            return self.disk.write_commit(home, &block, self.options.engine.flushes()).await;
        }
        // The home writes belong to the epoch in which they were transferred: close it.
        self.disk.barrier().await?;
        // J5 (c): what overwrites the freed space comes in a later epoch than this.
        let free = self.options.rules.drops(JournalMutant::TailWithoutBarrier);
        let class = if free { Class::Orderless } else { Class::Barrier };
        let mut tickets = Vec::new();
        self.disk.write(home, &[block], class, class, &mut tickets).await?;
        // If it fails, the journal has to know.
        self.disk.transferred(&tickets).await
    }
}

/// Checkpoints whenever somebody wants room in the log.
pub(crate) async fn checkpoint_task(journal: Weak<Journal>) {
    loop {
        let Some(now) = journal.upgrade() else { return };
        let wanted = now.checkpoint_wanted.listen();
        drop(now);
        wanted.await;
        let Some(now) = journal.upgrade() else { return };
        if now.aborted().is_none()
            && let Err(error) = now.checkpoint().await
        {
            now.abort(error.stop_reason());
        }
    }
}
