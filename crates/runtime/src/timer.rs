//! Timers: which task is to be woken at which instant.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use crate::{Handle, Instant};

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
    fn update(&self, key: TimerKey, waker: &Waker) {
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

/// Finishes at a deadline. Dropping it cancels the timer.
#[derive(Debug)]
#[must_use = "a sleep does nothing unless awaited"]
pub struct Sleep {
    handle: Handle,
    deadline: Instant,
    timer: Option<TimerKey>,
}

impl Sleep {
    pub(crate) fn new(handle: Handle, deadline: Instant) -> Self {
        Sleep { handle, deadline, timer: None }
    }

    /// When it finishes.
    pub fn deadline(&self) -> Instant {
        self.deadline
    }

    fn disarm(&mut self) {
        if let Some(key) = self.timer.take() {
            self.handle.timers().cancel(key);
        }
    }
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if self.handle.now() >= self.deadline {
            self.disarm();
            return Poll::Ready(());
        }
        match self.timer {
            Some(key) => self.handle.timers().update(key, context.waker()),
            None => self.timer = Some(self.handle.timers().insert(self.deadline, context.waker().clone())),
        }
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        self.disarm();
    }
}
