//! Tasks: futures the executor owns and polls, and the handles that await their results.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use crate::ready::{ReadyQueue, TaskWaker};
use crate::{Cancelled, Handle};

/// Names a task: a slot in the task table and which of its successive tenants, so that a stale wake-up never
/// reaches a later task.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct TaskId(u64);

impl TaskId {
    /// The future given to `block_on`, which lives outside the table.
    pub(crate) const MAIN: TaskId = TaskId(u64::MAX);

    fn new(slot: usize, tenant: u32) -> Self {
        TaskId(u64::from(tenant) << 32 | slot as u64)
    }

    fn slot(self) -> usize {
        (self.0 & u64::from(u32::MAX)) as usize
    }

    fn tenant(self) -> u32 {
        (self.0 >> 32) as u32
    }

    pub(crate) fn as_u64(self) -> u64 {
        self.0
    }
}

type BoxedFuture = Pin<Box<dyn Future<Output = ()>>>;

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
    pub(crate) fn live(&self) -> usize {
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

/// What a task and its handle share.
struct Join<T> {
    result: Option<Result<T, Cancelled>>,
    finished: bool,
    waker: Option<Waker>,
}

/// Sits inside the task and reports its end, also when the task is dropped before it.
struct Reporter<T>(Rc<RefCell<Join<T>>>);

impl<T> Reporter<T> {
    fn report(&self, result: Result<T, Cancelled>) {
        let mut join = self.0.borrow_mut();
        if join.finished {
            return;
        }
        join.finished = true;
        join.result = Some(result);
        let waker = join.waker.take();
        drop(join);
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl<T> Drop for Reporter<T> {
    fn drop(&mut self) {
        self.report(Err(Cancelled));
    }
}

/// A spawned task. Awaiting it gives its result; dropping it lets the task run on by itself.
///
/// The result is given once: awaiting again after it was taken waits forever.
pub struct Task<T> {
    handle: Handle,
    id: Option<TaskId>,
    join: Rc<RefCell<Join<T>>>,
}

impl<T> fmt::Debug for Task<T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Task")
            .field("id", &self.id)
            .field("finished", &self.is_finished())
            .finish_non_exhaustive()
    }
}

impl<T: 'static> Task<T> {
    /// Starts `future` as a task of `handle`'s runtime; `thread` names the simulated thread it stands for.
    pub(crate) fn spawn(
        handle: &Handle,
        thread: Option<&str>,
        future: impl Future<Output = T> + 'static,
    ) -> Self {
        let join = Rc::new(RefCell::new(Join { result: None, finished: false, waker: None }));
        let reporter = Reporter(join.clone());
        let id = handle.insert_task(
            thread,
            Box::pin(async move {
                let output = future.await;
                reporter.report(Ok(output));
            }),
        );
        Task { handle: handle.clone(), id, join }
    }
}

impl<T> Task<T> {
    /// Drops the task's future where it stands. Awaiting the task then gives [`Cancelled`], unless it had
    /// finished before. A task that cancels itself stops at its next await.
    pub fn cancel(&self) {
        if let Some(id) = self.id {
            self.handle.cancel_task(id);
        }
    }

    /// Whether the task has finished or was cancelled.
    pub fn is_finished(&self) -> bool {
        self.join.borrow().finished
    }
}

impl<T> Future for Task<T> {
    type Output = Result<T, Cancelled>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut join = self.join.borrow_mut();
        if let Some(result) = join.result.take() {
            return Poll::Ready(result);
        }
        match &mut join.waker {
            Some(waker) => waker.clone_from(context.waker()),
            empty => *empty = Some(context.waker().clone()),
        }
        Poll::Pending
    }
}
