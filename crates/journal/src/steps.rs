//! The steps that a commit is made of, which the engines put together.

use std::rc::Rc;

use tracing::debug;
use weir_block::{Class, Run};
use weir_storage::Ticket;

use crate::commit_times::{CommitTimes, StepClock};
use crate::encoding::Composed;
use crate::error::JournalError;
use crate::journal::Journal;
use crate::mutants::JournalMutant;
use crate::transaction::{Locked, Logged};

/// A commit that has begun.
pub(crate) struct Commit<'a> {
    pub(crate) journal: &'a Journal,
    pub(crate) clock: StepClock,
    pub(crate) times: CommitTimes,
}

impl<'a> Commit<'a> {
    /// It begins now.
    pub(crate) fn begin(journal: &'a Journal) -> Commit<'a> {
        let clock = StepClock::start(journal.disk.handle());
        Commit { journal, clock, times: CommitTimes::default() }
    }

    /// Submits D: the data of every attached file, and blocks that are written in place (J2). Waits for queue space only.
    pub(crate) async fn submit_data(
        &self,
        locked: &Locked,
        class: Class,
    ) -> Result<Vec<Ticket>, JournalError> {
        let mut tickets = Vec::new();
        if self.journal.drops(JournalMutant::OthersDataForgotten) {
            return Ok(tickets);
        }
        for data in &locked.data {
            tickets.append(&mut data.submit(class).await?);
        }
        let mut in_place = Vec::new();
        for block in &locked.in_place {
            Run::push(&mut in_place, block.buffer.block(), Rc::clone(&block.content));
        }
        self.submit_runs(in_place, (Class::Orderless, Class::Orderless), &mut tickets).await?;
        Ok(tickets)
    }

    /// Writes D without order, and waits until it is transferred.
    pub(crate) async fn write_data(&mut self, locked: &Locked) -> Result<(), JournalError> {
        let tickets = self.submit_data(locked, Class::Orderless).await?;
        self.await_part(&tickets).await?;
        self.times.data = self.clock.step();
        Ok(())
    }

    /// Composes JD and JC of a locked transaction, which gets its place in the log.
    pub(crate) async fn compose(&mut self, mut locked: Locked) -> Result<(Composed, Logged), JournalError> {
        let journal = self.journal;
        if journal.drops(JournalMutant::LogBlockNotCopied) {
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
            name: "commit",
            transaction = logged.sequence.0,
            engine = %journal.options.engine,
            blocks,
            revokes = logged.revokes.len(),
            files,
            "commit"
        );
        let in_log: usize = composed.log.iter().map(|run| run.blocks.len()).sum();
        journal.disk.handle().spend_compose(in_log + 1).await;
        self.times.compose = self.clock.step();
        Ok((composed, logged))
    }

    /// Submits runs of blocks: all of `class` but the last write, which is of class `last`. Waits for queue space only.
    pub(crate) async fn submit_runs(
        &self,
        log: Vec<Run>,
        (class, last): (Class, Class),
        tickets: &mut Vec<Ticket>,
    ) -> Result<(), JournalError> {
        let runs = log.len();
        for (nth, run) in log.into_iter().enumerate() {
            let last = if nth + 1 == runs { last } else { class };
            self.journal.disk.write(run.start, &run.blocks, class, last, tickets).await?;
        }
        Ok(())
    }

    /// Writes JD without order, and waits until it is transferred.
    pub(crate) async fn write_log(&mut self, log: Vec<Run>) -> Result<(), JournalError> {
        let mut tickets = Vec::new();
        self.submit_runs(log, (Class::Orderless, Class::Orderless), &mut tickets).await?;
        self.await_part(&tickets).await?;
        self.times.log = self.clock.step();
        Ok(())
    }

    /// Writes JD and JC together without order, and waits until both are transferred. Their tickets, that of JC last.
    pub(crate) async fn write_log_with_commit(
        &mut self,
        composed: Composed,
    ) -> Result<Vec<Ticket>, JournalError> {
        let mut tickets = Vec::new();
        let class = (Class::Orderless, Class::Orderless);
        self.submit_runs(composed.log, class, &mut tickets).await?;
        self.times.log = self.clock.step();
        let commit = vec![Run { start: composed.commit_at, blocks: vec![composed.commit] }];
        self.submit_runs(commit, class, &mut tickets).await?;
        self.journal.disk.wait_transferred(&tickets).await?;
        self.times.commit_block = self.clock.step();
        Ok(tickets)
    }

    /// Waits until a part is transferred, so that the next one follows it.
    async fn await_part(&self, tickets: &[Ticket]) -> Result<(), JournalError> {
        if self.journal.drops(JournalMutant::TransferNotAwaited) {
            return Ok(());
        }
        Ok(self.journal.disk.wait_transferred(tickets).await?)
    }

    /// Ends the commit of a transaction that is durable, if the engine flushes: the callers that wait are answered.
    pub(crate) fn end_durable(self, logged: Logged, commit: Option<Ticket>) {
        let sequence = logged.sequence;
        self.retire(logged, commit).set_durable_to(sequence);
    }

    /// Ends the commit of a transaction that is transferred: the flush task makes it durable for callers that want that (J1).
    pub(crate) fn end_transferred(self, logged: Logged, commit: Ticket) {
        self.retire(logged, Some(commit)).signals.flush.notify(usize::MAX);
    }

    fn retire(self, logged: Logged, commit: Option<Ticket>) -> &'a Journal {
        let journal = self.journal;
        journal.count(|stats| stats.commit_times.add(&self.times));
        journal.progress.dispatched.reach(logged.sequence);
        journal.retire(logged, commit);
        journal
    }

    /// Ends the commit of a transaction that is transferred, and is retired when there is notice that it is durable (J10).
    pub(crate) fn end_unnoticed(self, logged: Logged, tickets: Vec<Ticket>) {
        self.journal.count(|stats| stats.commit_times.add(&self.times));
        self.journal.await_notice(logged, tickets);
    }
}
