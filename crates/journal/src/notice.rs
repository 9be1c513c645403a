//! Notice of durability, for the engine that commits without a flush (OptFS: asynchronous durability notification, J10). A
//! transaction that is transferred waits here until it is known to be durable, and everything that would destroy what came
//! before it waits with it: its blocks do not go home, what it has freed is not reused, and its place in the log stays.
//!
//! Notice comes from a flush that a caller asked for, from the storage, where it keeps requests in order of receipt and
//! tells what is durable, or from a timer. OptFS' authors had the timer alone, and took what was so old for durable. No
//! drive promises that, so at its end this one flushes.

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::rc::Weak;

use weir_ext4::journal::Sequence;
use weir_runtime::Instant;
use weir_storage::{Ordering, StorageError, Ticket};

use crate::buffer::Role;
use crate::journal::Journal;
use crate::mutants::JournalMutant;
use crate::transaction::Logged;

/// A transaction that waits for notice.
struct Transferred {
    logged: Logged,
    /// Of JD and JC.
    tickets: Vec<Ticket>,
    since: Instant,
}

/// All that wait, in order.
#[derive(Default)]
pub(crate) struct Unnoticed {
    waiting: RefCell<VecDeque<Transferred>>,
    /// Blocks of file data in them, and in how many.
    data: RefCell<BTreeMap<u64, u32>>,
}

impl Unnoticed {
    /// Whether none waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.borrow().is_empty()
    }

    /// Whether one of them holds a block of file data.
    pub(crate) fn holds_data(&self, block: u64) -> bool {
        self.data.borrow().contains_key(&block)
    }

    /// Blocks of file data in them.
    pub(crate) fn data_blocks(&self) -> u64 {
        self.data.borrow().len() as u64
    }

    fn push(&self, transferred: Transferred) {
        for block in data_of(&transferred.logged) {
            *self.data.borrow_mut().entry(block).or_default() += 1;
        }
        self.waiting.borrow_mut().push_back(transferred);
    }

    /// The oldest, if it is not after `to`.
    fn pop(&self, to: Sequence) -> Option<Logged> {
        let mut waiting = self.waiting.borrow_mut();
        if waiting.front()?.logged.sequence.is_after(to) {
            return None;
        }
        let oldest = waiting.pop_front()?;
        let mut data = self.data.borrow_mut();
        for block in data_of(&oldest.logged) {
            match data.get_mut(&block) {
                Some(count) if *count > 1 => *count -= 1,
                _ => drop(data.remove(&block)),
            }
        }
        Some(oldest.logged)
    }

    /// The newest with its tickets, and since when the oldest waits.
    fn newest(&self) -> Option<(Sequence, Vec<Ticket>, Instant)> {
        let waiting = self.waiting.borrow();
        let (oldest, newest) = (waiting.front()?, waiting.back()?);
        Some((newest.logged.sequence, newest.tickets.clone(), oldest.since))
    }
}

fn data_of(logged: &Logged) -> impl Iterator<Item = u64> {
    let data = logged.blocks.iter().filter(|block| block.buffer.role() == Role::Data);
    data.map(|block| block.buffer.block()).collect::<Vec<_>>().into_iter()
}

impl Journal {
    /// A transaction is transferred; it is retired when notice comes.
    pub(crate) fn await_notice(&self, mut logged: Logged, tickets: Vec<Ticket>) {
        let sequence = logged.sequence;
        self.progress.dispatched.reach(sequence);
        for buffer in logged.in_place.drain(..) {
            // What the transaction has written in place is at home.
            buffer.unpin();
        }
        let too_early = self.drops(JournalMutant::ReusesUnnoticed);
        let freed = if too_early { std::mem::take(&mut logged.freed) } else { Vec::new() };
        if self.drops(JournalMutant::CheckpointsUnnoticed) {
            self.may_go_home(&logged);
        }
        self.unnoticed.push(Transferred { logged, tickets, since: self.disk.handle().now() });
        self.is_transferred(sequence, None, freed);
        self.signals.flush.notify(usize::MAX);
    }

    /// Notice has come for the transactions up to one: they are retired.
    pub(crate) fn noticed(&self, to: Sequence) {
        while let Some(logged) = self.unnoticed.pop(to) {
            if !self.drops(JournalMutant::CheckpointsUnnoticed) {
                self.may_go_home(&logged);
            }
            self.freed.retire(logged.freed, logged.sequence);
            self.signals.changed.notify(usize::MAX);
        }
    }

    /// Looks at every dirty page of file data, as OptFS' `osync` does when it begins: those that transactions hold are dirty
    /// until they are checkpointed (FAST 2018 paper, section 6.4, "Notes on OptFS").
    pub async fn scan(&self) {
        let mut pages = self.unnoticed.data_blocks();
        pages += self.running.borrow().data_blocks(|block| !self.unnoticed.holds_data(block));
        self.unwritten.each(|home, block| {
            let only_here = block.buffer.role() == Role::Data && !self.unnoticed.holds_data(home);
            pages += u64::from(only_here);
        });
        self.count(|stats| stats.scanned_pages += pages);
        self.disk.handle().spend_scan(pages).await;
    }
}

/// Whether all of this becomes durable by itself; false if the storage cannot tell.
async fn becomes_durable(tickets: &[Ticket]) -> Result<bool, StorageError> {
    for ticket in tickets {
        match ticket.durable().await {
            Ok(()) => {}
            Err(StorageError::DurabilityUnknown) => return Ok(false),
            Err(error) => return Err(error),
        }
    }
    Ok(true)
}

/// Takes notice for as long as the journal lives.
pub(crate) async fn notice_task(journal: Weak<Journal>) {
    loop {
        let Some(now) = journal.upgrade() else { return };
        let transferred = now.progress.transferred.event().listen();
        if now.is_stopped() {
            return;
        }
        let Some((newest, tickets, since)) = now.unnoticed.newest() else {
            drop(now);
            transferred.await;
            continue;
        };
        // What such a storage has received first is durable first, D before JD.
        let tells = now.disk.capabilities().ordering == Ordering::Prefix;
        let (due, clock) = (since + now.options.notice, now.disk.handle().clone());
        drop(now);
        let durable = if tells { becomes_durable(&tickets).await } else { Ok(false) };
        match durable {
            Ok(true) => {
                let Some(now) = journal.upgrade() else { return };
                now.set_durable_to(newest);
            }
            Ok(false) => {
                clock.sleep_until(due).await;
                let Some(now) = journal.upgrade() else { return };
                let is_due = now.unnoticed.newest().is_some_and(|(_, _, oldest)| oldest <= since);
                if is_due && !now.is_stopped() && now.flush().await.is_err() {
                    return;
                }
            }
            // The journal meets the same failure.
            Err(_) => return,
        }
    }
}
