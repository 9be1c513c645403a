//! The table of tasks: futures that the executor owns and polls.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use crate::ready::{ReadyQueue, TaskWaker};
use crate::task_id::TaskId;

/// A task's future, which reports its result itself.
pub(crate) type BoxedFuture = Pin<Box<dyn Future<Output = ()>>>;

/// A task while it is not being polled.
pub(crate) struct Body {
    future: BoxedFuture,
    waker: Waker,
}

impl Body {
    pub(crate) fn poll(&mut self) -> Poll<()> {
        self.future.as_mut().poll(&mut Context::from_waker(&self.waker))
    }
}

/// `Free -> Idle -> Polling -> Idle` or `Free`; cancelling makes `Idle` free at once, and `Polling` free after
/// the poll by way of `Doomed`.
enum Entry {
    Free,
    Idle(Body),
    Polling,
    Doomed,
}

struct Slot {
    tenant: u32,
    thread: bool,
    wake: Option<Arc<TaskWaker>>,
    entry: Entry,
}

/// All spawned tasks.
#[derive(Default)]
pub(crate) struct Tasks {
    slots: RefCell<Vec<Slot>>,
    free: RefCell<Vec<usize>>,
    live: Cell<usize>,
}

/// What a poll's end, or a cancellation, did to the task.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum After {
    Waits,
    Gone,
}

impl Tasks {
    pub(crate) fn live_tasks(&self) -> usize {
        self.live.get()
    }

    pub(crate) fn insert(&self, future: BoxedFuture, thread: bool, ready: &Arc<ReadyQueue>) -> TaskId {
        let mut slots = self.slots.borrow_mut();
        let index = self.free.borrow_mut().pop().unwrap_or_else(|| {
            slots.push(Slot { tenant: 0, thread, wake: None, entry: Entry::Free });
            slots.len() - 1
        });
        let slot = &mut slots[index];
        let id = TaskId::new(index, slot.tenant);
        let wake = TaskWaker::new(id, ready.clone());
        slot.thread = thread;
        slot.entry = Entry::Idle(Body { future, waker: Waker::from(wake.clone()) });
        slot.wake = Some(wake);
        self.live.set(self.live.get() + 1);
        id
    }

    /// Whether the task waits to be polled, and if so whether it is a simulated thread. Its wake-ups count
    /// anew from here.
    pub(crate) fn begin(&self, id: TaskId) -> Option<bool> {
        let slots = self.slots.borrow();
        let slot = slots.get(id.slot()).filter(|slot| slot.tenant == id.tenant())?;
        slot.wake.as_ref()?.clear();
        matches!(slot.entry, Entry::Idle(_)).then_some(slot.thread)
    }

    pub(crate) fn waker(&self, id: TaskId) -> Option<Waker> {
        let slots = self.slots.borrow();
        let slot = slots.get(id.slot()).filter(|slot| slot.tenant == id.tenant())?;
        slot.wake.clone().map(Waker::from)
    }

    /// Takes the task out to be polled.
    pub(crate) fn take(&self, id: TaskId) -> Option<Body> {
        let mut slots = self.slots.borrow_mut();
        let slot = slots.get_mut(id.slot()).filter(|slot| slot.tenant == id.tenant())?;
        match std::mem::replace(&mut slot.entry, Entry::Polling) {
            Entry::Idle(body) => Some(body),
            other => {
                slot.entry = other;
                None
            }
        }
    }

    /// Puts the task back after a poll, or ends it.
    pub(crate) fn put_back(&self, id: TaskId, body: Body, poll: Poll<()>) -> After {
        let mut slots = self.slots.borrow_mut();
        let slot = &mut slots[id.slot()];
        if poll.is_pending() && matches!(slot.entry, Entry::Polling) {
            slot.entry = Entry::Idle(body);
            return After::Waits;
        }
        self.vacate(slot, id);
        drop(slots);
        // Dropped after the borrow: a future's destructor may spawn or cancel tasks.
        drop(body);
        After::Gone
    }

    fn vacate(&self, slot: &mut Slot, id: TaskId) {
        slot.entry = Entry::Free;
        slot.wake = None;
        slot.tenant = slot.tenant.wrapping_add(1);
        self.free.borrow_mut().push(id.slot());
        self.live.set(self.live.get() - 1);
    }

    /// Drops the task's future, now or, if it is being polled, right after.
    pub(crate) fn cancel(&self, id: TaskId) -> After {
        let mut slots = self.slots.borrow_mut();
        let Some(slot) = slots.get_mut(id.slot()).filter(|slot| slot.tenant == id.tenant()) else {
            return After::Waits;
        };
        let body = match std::mem::replace(&mut slot.entry, Entry::Doomed) {
            Entry::Idle(body) => body,
            Entry::Polling | Entry::Doomed => return After::Waits,
            Entry::Free => {
                slot.entry = Entry::Free;
                return After::Waits;
            }
        };
        self.vacate(slot, id);
        drop(slots);
        drop(body);
        After::Gone
    }

    /// The tasks that are alive, in the order of their slots.
    pub(crate) fn ids(&self) -> Vec<TaskId> {
        let slots = self.slots.borrow();
        let live = slots.iter().enumerate().filter(|(_, slot)| !matches!(slot.entry, Entry::Free));
        live.map(|(index, slot)| TaskId::new(index, slot.tenant)).collect()
    }
}
