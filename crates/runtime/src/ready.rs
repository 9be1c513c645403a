//! The ready queue: which tasks are to be polled, and the one door through which other threads reach the
//! executor.
//!
//! Almost every wake-up comes from the executor's own thread. Such a one goes to a list of that thread, which
//! needs no lock; [`ReadyQueue::enter`] says whose list it is for the time being.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::fmt;
use std::fs::File;
use std::io::Write;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Wake;

use crate::RemoteError;
use crate::executor::Executor;
use crate::task_id::TaskId;

/// Messages from other threads that may wait unread.
const INBOX_LIMIT: usize = 1024;

/// What another thread wants run on the executor's own.
pub(crate) type Message = Box<dyn FnOnce(&Rc<Executor>) + Send>;

/// Tasks to poll, first come, first served. A task is in it at most once (see [`TaskWaker`]), so the number of
/// tasks bounds it.
#[derive(Debug)]
pub(crate) struct ReadyQueue {
    state: Mutex<ReadyState>,
    /// Whether tasks, or messages and notifications, may wait: set and cleared under the lock, and looked at
    /// without it, so that a pass of the loop that finds nothing costs no lock. A park looks under the lock.
    has_tasks: AtomicBool,
    has_messages: AtomicBool,
    /// The eventfd that ends a park; none in virtual time, which never parks.
    unpark: Option<Arc<File>>,
}

#[derive(Default)]
struct ReadyState {
    tasks: VecDeque<TaskId>,
    inbox: VecDeque<Message>,
    /// The executor sleeps in the kernel, or is about to. A caller that wakes it clears this, so a burst of
    /// wake-ups costs one system call.
    parked: bool,
    /// Someone asked for one more pass of the loop.
    notified: bool,
    closed: bool,
}

impl fmt::Debug for ReadyState {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("ReadyState")
            .field("tasks", &self.tasks.len())
            .field("inbox", &self.inbox.len())
            .field("parked", &self.parked)
            .field("closed", &self.closed)
            .finish()
    }
}

thread_local! {
    static LOCAL: Local = const { Local { of: Cell::new(0), tasks: RefCell::new(VecDeque::new()) } };
}

/// The wake-ups that come from the thread of the executor itself.
struct Local {
    /// The queue that this list stands in for, by its address; 0 if no executor runs on this thread.
    of: Cell<usize>,
    tasks: RefCell<VecDeque<TaskId>>,
}

/// As long as it lives, the executor of a queue runs on this thread.
#[derive(Debug)]
pub(crate) struct Running<'a> {
    queue: &'a ReadyQueue,
    /// Of the executor that this one runs inside of, if any.
    outer: usize,
    outer_tasks: VecDeque<TaskId>,
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        let outer_tasks = std::mem::take(&mut self.outer_tasks);
        let left = LOCAL.with(|local| {
            local.of.set(self.outer);
            local.tasks.replace(outer_tasks)
        });
        left.into_iter().for_each(|task| self.queue.push(task));
    }
}

impl ReadyQueue {
    pub(crate) fn new(unpark: Option<Arc<File>>) -> Arc<Self> {
        Arc::new(ReadyQueue {
            state: Mutex::default(),
            has_tasks: AtomicBool::new(false),
            has_messages: AtomicBool::new(false),
            unpark,
        })
    }

    fn lock(&self) -> MutexGuard<'_, ReadyState> {
        // No code of others runs under this lock, so a poisoned state is still whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The executor of this queue runs on this thread until what it gives back is dropped.
    pub(crate) fn enter(&self) -> Running<'_> {
        LOCAL.with(|local| Running {
            queue: self,
            outer: local.of.replace(self.address()),
            outer_tasks: local.tasks.take(),
        })
    }

    fn address(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    /// Does something to the list that stands in for this queue, if this is its executor's thread.
    fn on_own_thread<T>(&self, act: impl FnOnce(&mut VecDeque<TaskId>) -> T) -> Option<T> {
        // There is no list left while a thread ends.
        let done = LOCAL
            .try_with(|local| (local.of.get() == self.address()).then(|| act(&mut local.tasks.borrow_mut())));
        done.ok().flatten()
    }

    fn push(&self, task: TaskId) {
        if self.on_own_thread(|tasks| tasks.push_back(task)).is_some() {
            return;
        }
        let mut state = self.lock();
        state.tasks.push_back(task);
        self.has_tasks.store(true, Ordering::Release);
        self.unpark(state);
    }

    fn unpark(&self, mut state: MutexGuard<'_, ReadyState>) {
        let parked = std::mem::take(&mut state.parked);
        drop(state);
        if let (true, Some(mut event)) = (parked, self.unpark.as_deref()) {
            // It can only fail by interruption or overflow, and an overflowing counter is awake already.
            while event.write(&1u64.to_ne_bytes()).is_err_and(|e| e.kind() == std::io::ErrorKind::Interrupted)
            {
            }
        }
    }

    /// Has the loop go round once more: ends a park, or keeps the next from beginning.
    pub(crate) fn notify(&self) {
        let mut state = self.lock();
        state.notified = true;
        self.has_messages.store(true, Ordering::Release);
        self.unpark(state);
    }

    /// Leaves a message of another thread.
    pub(crate) fn send(&self, message: Message) -> Result<(), RemoteError> {
        let mut state = self.lock();
        if state.closed {
            return Err(RemoteError::Closed);
        }
        if state.inbox.len() >= INBOX_LIMIT {
            return Err(RemoteError::Full);
        }
        state.inbox.push_back(message);
        self.has_messages.store(true, Ordering::Release);
        self.unpark(state);
        Ok(())
    }

    /// Moves all ready tasks to the end of `local`.
    pub(crate) fn drain_into(&self, local: &mut VecDeque<TaskId>) {
        if self.has_tasks.load(Ordering::Acquire) {
            let mut state = self.lock();
            self.has_tasks.store(false, Ordering::Release);
            local.append(&mut state.tasks);
        }
        self.on_own_thread(|tasks| {
            if local.is_empty() {
                std::mem::swap(tasks, local);
            } else {
                local.append(tasks);
            }
        });
    }

    /// Takes the messages of other threads.
    pub(crate) fn take_inbox(&self) -> VecDeque<Message> {
        if !self.has_messages.load(Ordering::Acquire) {
            return VecDeque::new();
        }
        let mut state = self.lock();
        self.has_messages.store(false, Ordering::Release);
        state.notified = false;
        std::mem::take(&mut state.inbox)
    }

    /// Declares the executor parked, unless there is something to do.
    pub(crate) fn begin_park(&self) -> bool {
        let mut state = self.lock();
        let idle = self.on_own_thread(|tasks| tasks.is_empty()).unwrap_or(true);
        state.parked = idle && state.tasks.is_empty() && state.inbox.is_empty() && !state.notified;
        state.parked
    }

    pub(crate) fn end_park(&self) {
        self.lock().parked = false;
    }

    /// Refuses messages from now on, and gives back those that were not read.
    pub(crate) fn close(&self) -> VecDeque<Message> {
        let mut state = self.lock();
        state.closed = true;
        std::mem::take(&mut state.inbox)
    }
}

/// Wakes one task, from any thread. Allocated once a task.
#[derive(Debug)]
pub(crate) struct TaskWaker {
    task: TaskId,
    /// The task is in the ready queue and was not polled since.
    queued: AtomicBool,
    ready: Arc<ReadyQueue>,
}

impl TaskWaker {
    pub(crate) fn new(task: TaskId, ready: Arc<ReadyQueue>) -> Arc<Self> {
        Arc::new(TaskWaker { task, queued: AtomicBool::new(false), ready })
    }

    /// The task is about to be polled: wake-ups from now on count anew.
    pub(crate) fn clear(&self) {
        self.queued.store(false, Ordering::SeqCst);
    }
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !self.queued.swap(true, Ordering::SeqCst) {
            self.ready.push(self.task);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The wake-up that comes between the last look at the queue and the park is not lost.
    #[test]
    fn there_is_no_parking_with_something_to_do() {
        let ready = ReadyQueue::new(None);
        assert!(ready.begin_park());
        ready.end_park();

        let waker = TaskWaker::new(TaskId::MAIN, ready.clone());
        waker.wake_by_ref();
        assert!(!ready.begin_park());
        let mut batch = VecDeque::new();
        ready.drain_into(&mut batch);
        assert!(ready.begin_park());
        ready.end_park();

        ready.notify();
        assert!(!ready.begin_park());
        assert!(ready.take_inbox().is_empty());

        assert_eq!(ready.send(Box::new(|_| {})), Ok(()));
        assert!(!ready.begin_park());
        assert_eq!(ready.take_inbox().len(), 1);
        assert!(ready.begin_park());
    }

    #[test]
    fn a_task_is_queued_once_however_often_it_is_woken() {
        let ready = ReadyQueue::new(None);
        let waker = TaskWaker::new(TaskId::MAIN, ready.clone());
        let mut batch = VecDeque::new();
        for _ in 0..2 {
            waker.wake_by_ref();
            waker.wake_by_ref();
            ready.drain_into(&mut batch);
            waker.clear();
        }
        assert_eq!(batch, [TaskId::MAIN, TaskId::MAIN]);
    }
}
