//! Flushes, forced writes and shares that wait until everything transferred before them is committed (F6, F8), and what
//! a flush costs then. With order-preserving recovery they wait for the coalescing records too.

use std::rc::Rc;

use weir_storage::Completer;

use crate::events::{Event, Events};
use crate::map::Pair;
use crate::profile::Flush;
use crate::queue::InTurn;

/// What waits.
pub(crate) enum Wait {
    Flush(Completer),
    /// A write that must be on flash, and what its command does behind it.
    Forced(InTurn),
    Share(Rc<[Pair]>, Completer),
    /// The firmware flushes by itself.
    Internal,
}

/// Somebody waits until everything up to a version is committed.
pub(crate) struct Waiter {
    pub(crate) target: u64,
    /// Entries of the cache that are not committed yet.
    pub(crate) left: usize,
    /// The last page of coalescing records that it waits for.
    pub(crate) records: u64,
    pub(crate) what: Wait,
    pub(crate) since: u64,
}

impl Waiter {
    /// Whether nothing is missing, if so many pages of records are on flash.
    fn is_over(&self, records: u64) -> bool {
        self.left == 0 && self.records <= records
    }
}

/// A waiter that is gone: everything up to its version is durable.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settled {
    pub(crate) version: u64,
    pub(crate) since: u64,
    /// The firmware flushed by itself.
    pub(crate) internal: bool,
}

/// All of them.
pub(crate) struct Waiters {
    fixed_ns: u64,
    /// What a flush writes of the map's journal, if it had to wait for something.
    journal_ns: u64,
    /// When the firmware is done with the flushes before.
    free: u64,
    waiting: Vec<Waiter>,
    demand: u64,
    /// The same for commands only, without those of the firmware.
    host_demand: u64,
    /// Pages of coalescing records that are on flash, all of them up to this one.
    records: u64,
    /// Waiters that are gone, for [`Waiters::take_settled`]; not kept where no caller asks.
    settled: Option<Vec<Settled>>,
}

impl Waiters {
    /// `settles`: the machine asks which waiters are gone.
    pub(crate) fn new(flush: Flush, page_ns: u64, settles: bool, now: u64) -> Waiters {
        Waiters {
            fixed_ns: flush.fixed_ns,
            journal_ns: u64::from(flush.journal_pages) * page_ns,
            free: now,
            waiting: Vec::new(),
            demand: 0,
            host_demand: 0,
            records: 0,
            settled: settles.then(Vec::new),
        }
    }

    /// Everything up to this version is to be written back at once.
    pub(crate) fn demand(&self) -> u64 {
        self.demand
    }

    /// The newest version that a command waits for.
    pub(crate) fn host_demand(&self) -> u64 {
        self.host_demand
    }

    /// A command asks for everything up to a version.
    pub(crate) fn demand_up_to(&mut self, version: u64) {
        (self.demand, self.host_demand) = (version, version);
    }

    pub(crate) fn add(&mut self, waiter: Waiter, now: u64, events: &mut Events) {
        if waiter.is_over(self.records) {
            return self.done(waiter, 0, now, events);
        }
        self.demand = waiter.target;
        if !matches!(waiter.what, Wait::Internal) {
            self.host_demand = waiter.target;
        }
        self.waiting.push(waiter);
    }

    /// An entry of the cache is committed; `first_version` is the oldest version that it stands for.
    pub(crate) fn entry_committed(&mut self, first_version: u64) {
        for waiter in self.waiting.iter_mut().filter(|waiter| first_version <= waiter.target) {
            // Nothing is left for a waiter that lies.
            waiter.left = waiter.left.saturating_sub(1);
        }
    }

    /// Pages of coalescing records up to this one are on flash.
    pub(crate) fn records_written(&mut self, records: u64) {
        self.records = records;
    }

    /// The waiters that are gone since the last call.
    pub(crate) fn take_settled(&mut self) -> Vec<Settled> {
        self.settled.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Lets those go that wait for nothing any more.
    pub(crate) fn release(&mut self, now: u64, events: &mut Events) {
        let mut place = 0;
        while place < self.waiting.len() {
            if self.waiting[place].is_over(self.records) {
                let waiter = self.waiting.remove(place);
                self.done(waiter, self.journal_ns, now, events);
            } else {
                place += 1;
            }
        }
    }

    fn done(&mut self, waiter: Waiter, journal_ns: u64, now: u64, events: &mut Events) {
        let Waiter { target, what, since, .. } = waiter;
        if let Some(settled) = &mut self.settled {
            settled.push(Settled { version: target, since, internal: matches!(what, Wait::Internal) });
        }
        match what {
            Wait::Flush(completer) => {
                self.free = self.free.max(now) + self.fixed_ns + journal_ns;
                events.schedule(self.free, Event::Flushed { since, completer });
            }
            Wait::Forced(turn) => events.schedule(now, Event::Persisted(turn)),
            Wait::Share(pairs, completer) => events.schedule(now, Event::Settled { pairs, completer }),
            // It costs nothing at the interface; before a checkpoint no command is serviced meanwhile.
            Wait::Internal => {}
        }
    }
}
