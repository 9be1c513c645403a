//! Timers: which task is to be woken at which instant.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::task::Waker;

use crate::Instant;

/// A pending timer's place: its deadline, then the order in which timers were set, so that equal deadlines
/// fire first come, first served.
pub(crate) type TimerKey = (Instant, u64);

/// All pending timers. A cancelled timer is gone at once: virtual time must not jump to it.
#[derive(Debug, Default)]
pub(crate) struct Timers {
    pending: RefCell<BTreeMap<TimerKey, Waker>>,
    set: std::cell::Cell<u64>,
}

impl Timers {
    pub(crate) fn insert(&self, deadline: Instant, waker: Waker) -> TimerKey {
        let key = (deadline, self.set.get());
        self.set.set(key.1 + 1);
        self.pending.borrow_mut().insert(key, waker);
        key
    }

    /// Makes the timer wake `waker` from now on.
    pub(crate) fn update(&self, key: TimerKey, waker: &Waker) {
        if let Some(slot) = self.pending.borrow_mut().get_mut(&key) {
            slot.clone_from(waker);
        }
    }

    pub(crate) fn cancel(&self, key: TimerKey) {
        let cancelled = self.pending.borrow_mut().remove(&key);
        // Dropped after the borrow: a waker may own anything.
        drop(cancelled);
    }

    pub(crate) fn next(&self) -> Option<Instant> {
        self.pending.borrow().first_key_value().map(|(key, _)| key.0)
    }

    /// Wakes all timers due at `now`, in order.
    pub(crate) fn fire(&self, now: Instant) {
        loop {
            let mut pending = self.pending.borrow_mut();
            match pending.first_entry() {
                Some(first) if first.key().0 <= now => {
                    let waker = first.remove();
                    drop(pending);
                    waker.wake();
                }
                _ => return,
            }
        }
    }
}
