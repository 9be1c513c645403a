//! Flushes, FUA writes and shares that wait until everything transferred before them is committed (F6, F8), and what
//! a flush costs then.

use std::rc::Rc;

use weir_storage::Completer;

use crate::events::{Event, Events};
use crate::map::Pair;
use crate::profile::Flush;

/// What waits.
pub(crate) enum Wait {
    Flush,
    /// A FUA write.
    Fua,
    Share(Rc<[Pair]>),
}

/// Somebody waits until everything up to a version is committed.
pub(crate) struct Waiter {
    pub(crate) target: u64,
    /// Entries of the cache that are not committed yet.
    pub(crate) left: usize,
    pub(crate) what: Wait,
    pub(crate) since: u64,
    pub(crate) completer: Completer,
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
}

impl Waiters {
    pub(crate) fn new(flush: Flush, page_ns: u64, now: u64) -> Waiters {
        let journal_ns = u64::from(flush.journal_pages) * page_ns;
        Waiters { fixed_ns: flush.fixed_ns, journal_ns, free: now, waiting: Vec::new(), demand: 0 }
    }

    /// Everything up to this version is to be written back at once.
    pub(crate) fn demand(&self) -> u64 {
        self.demand
    }

    /// Asks for everything up to a version.
    pub(crate) fn demand_up_to(&mut self, version: u64) {
        self.demand = version;
    }

    pub(crate) fn add(&mut self, waiter: Waiter, now: u64, events: &mut Events) {
        if waiter.left == 0 {
            return self.done(waiter, 0, now, events);
        }
        self.demand = waiter.target;
        self.waiting.push(waiter);
    }

    /// An entry of the cache is committed; `first_version` is the oldest version that it stands for.
    pub(crate) fn entry_committed(&mut self, first_version: u64) {
        for waiter in self.waiting.iter_mut().filter(|waiter| first_version <= waiter.target) {
            waiter.left -= 1;
        }
    }

    /// Lets those go that wait for nothing any more.
    pub(crate) fn release(&mut self, now: u64, events: &mut Events) {
        let mut place = 0;
        while place < self.waiting.len() {
            if self.waiting[place].left == 0 {
                let waiter = self.waiting.remove(place);
                self.done(waiter, self.journal_ns, now, events);
            } else {
                place += 1;
            }
        }
    }

    fn done(&mut self, waiter: Waiter, journal_ns: u64, now: u64, events: &mut Events) {
        let Waiter { what, since, completer, .. } = waiter;
        match what {
            Wait::Flush => {
                self.free = self.free.max(now) + self.fixed_ns + journal_ns;
                events.schedule(self.free, Event::Flushed { since, completer });
            }
            Wait::Fua => events.schedule(now, Event::Persisted { completer }),
            Wait::Share(pairs) => events.schedule(now, Event::Settled { pairs, completer }),
        }
    }
}
