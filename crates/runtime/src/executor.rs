//! The executor's state and the step both loops share: poll one ready task.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use crate::Ring;
use crate::clock::Clock;
use crate::cores::{CoreScheduler, Turn};
use crate::instant::Instant;
use crate::random::Streams;
use crate::ready::ReadyQueue;
use crate::task_id::TaskId;
use crate::tasks::{After, BoxedFuture, Tasks};
use crate::timer::Timers;
use crate::trace::TraceHash;

/// If the system keeps the processor for longer than that, another program has it.
const CROWDED_FROM: Duration = Duration::from_micros(200);
/// How long that is remembered.
const CROWDED_FOR: Duration = Duration::from_millis(100);

/// Everything a runtime and its handles share. Each part guards itself, and no part calls foreign code while
/// it is borrowed, so tasks may use any of it at any time.
pub(crate) struct Executor {
    pub(crate) clock: Clock,
    pub(crate) ready: Arc<ReadyQueue>,
    pub(crate) tasks: Tasks,
    pub(crate) timers: Timers,
    pub(crate) streams: Streams,
    pub(crate) trace: TraceHash,
    pub(crate) cores: Option<CoreScheduler>,
    pub(crate) ring: Option<Ring>,
    /// The task being polled.
    current: Cell<TaskId>,
    /// Tasks that give way to others; each loop wakes them once it has let these run.
    given_way: RefCell<Vec<Waker>>,
    /// Until when other programs are taken to want the processor.
    crowded_until: Cell<Instant>,
    /// Wakes the future given to `block_on`, where that is a simulated thread.
    caller: RefCell<Option<Waker>>,
    closed: Cell<bool>,
}

impl fmt::Debug for Executor {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Executor")
            .field("now", &self.clock.now())
            .field("virtual", &self.clock.is_virtual())
            .finish_non_exhaustive()
    }
}

impl Executor {
    pub(crate) fn new(
        clock: Clock,
        ready: Arc<ReadyQueue>,
        seed: u64,
        cores: Option<CoreScheduler>,
        ring: Option<Ring>,
    ) -> Self {
        Executor {
            clock,
            ready,
            tasks: Tasks::default(),
            timers: Timers::default(),
            streams: Streams::new(seed),
            trace: TraceHash::default(),
            cores,
            ring,
            current: Cell::new(TaskId::MAIN),
            given_way: RefCell::default(),
            crowded_until: Cell::new(Instant::ZERO),
            caller: RefCell::default(),
            closed: Cell::new(false),
        }
    }

    /// Adds a task and makes it ready. None if the runtime is gone: the future is dropped.
    pub(crate) fn insert(&self, thread: Option<&str>, future: BoxedFuture) -> Option<TaskId> {
        if self.closed.get() {
            return None;
        }
        let thread = self.cores.as_ref().zip(thread);
        let id = self.tasks.insert(future, thread.is_some(), &self.ready);
        if let Some((cores, name)) = thread {
            cores.add(id, name);
        }
        self.wake(id);
        Some(id)
    }

    pub(crate) fn cancel(&self, id: TaskId) {
        if self.tasks.cancel(id) == After::Gone {
            self.end_thread(id);
        }
    }

    /// Polls a task that was woken, if it may run now.
    pub(crate) fn step(&self, id: TaskId) {
        let Some(thread) = self.tasks.begin(id) else { return };
        let cores = self.cores.as_ref().filter(|_| thread);
        if let Some(cores) = cores {
            match cores.woken(id, self.clock.now()) {
                Some(Turn::Run) => {}
                Some(turn) => return self.grant(id, turn),
                None => return,
            }
        }
        let Some(mut body) = self.tasks.take(id) else { return };
        self.note_poll(id);
        let outer = self.current.replace(id);
        let poll = body.poll();
        self.current.set(outer);
        match self.tasks.put_back(id, body, poll) {
            After::Gone => self.end_thread(id),
            After::Waits => {
                if let Some((next, turn)) = cores.and_then(|cores| cores.paused(id, self.clock.now())) {
                    self.grant(next, turn);
                }
            }
        }
    }

    /// Wakes `waker` when others had their turn.
    pub(crate) fn give_way(&self, waker: &Waker) {
        if self.clock.is_virtual() {
            // Behind those that are ready; there are no others.
            return waker.wake_by_ref();
        }
        self.given_way.borrow_mut().push(waker.clone());
    }

    pub(crate) fn has_given_way(&self) -> bool {
        !self.given_way.borrow().is_empty()
    }

    /// Wakes all that gave way.
    pub(crate) fn resume_given_way(&self) {
        let mut waiting = self.given_way.take();
        waiting.drain(..).for_each(Waker::wake);
        // Its memory is used again and again: no task can have given way meanwhile.
        self.given_way.replace(waiting);
    }

    /// The system had the processor between these moments, as nothing here was to be done.
    pub(crate) fn note_absence(&self, from: Instant, to: Instant) {
        if to.since(from) > CROWDED_FROM {
            self.crowded_until.set(self.crowded_until.get().max(to + CROWDED_FOR));
        }
    }

    /// The runtime is crowded from now on: a caller that polls should sleep.
    pub(crate) fn crowd_forever(&self) {
        self.crowded_until.set(Instant::ZERO + Duration::MAX);
    }

    pub(crate) fn is_crowded(&self) -> bool {
        self.clock.now() < self.crowded_until.get()
    }

    /// The simulated thread that is being polled.
    pub(crate) fn current_thread(&self) -> Option<(&CoreScheduler, TaskId)> {
        let task = self.current.get();
        let cores = self.cores.as_ref().filter(|cores| cores.is_thread(task))?;
        Some((cores, task))
    }

    /// The future given to `block_on` is woken by `waker` from now on.
    pub(crate) fn called_by(&self, waker: &Waker) {
        if self.cores.is_some() {
            self.caller.replace(Some(waker.clone()));
        }
    }

    /// Whether the future given to `block_on`, which was woken, may be polled now: always, if it is no simulated
    /// thread.
    pub(crate) fn begin_main(&self) -> bool {
        let Some(cores) = self.cores.as_ref().filter(|cores| cores.is_thread(TaskId::MAIN)) else {
            return true;
        };
        match cores.woken(TaskId::MAIN, self.clock.now()) {
            Some(Turn::Run) => true,
            Some(turn) => {
                self.grant(TaskId::MAIN, turn);
                false
            }
            None => false,
        }
    }

    /// The future given to `block_on` was polled and is not done.
    pub(crate) fn pause_main(&self) {
        let next = self.cores.as_ref().and_then(|cores| cores.paused(TaskId::MAIN, self.clock.now()));
        if let Some((next, turn)) = next {
            self.grant(next, turn);
        }
    }

    /// In virtual time a poll is an event of the run.
    pub(crate) fn note_poll(&self, id: TaskId) {
        if self.clock.is_virtual() {
            self.trace.fold(&[self.clock.now().as_nanos(), id.as_u64()]);
        }
    }

    fn end_thread(&self, id: TaskId) {
        let next = self.cores.as_ref().and_then(|cores| cores.ended(id, self.clock.now()));
        if let Some((next, turn)) = next {
            self.grant(next, turn);
        }
    }

    fn grant(&self, id: TaskId, turn: Turn) {
        match turn {
            Turn::Run => self.wake(id),
            Turn::SwitchUntil(until) => {
                if let Some(waker) = self.waker(id) {
                    self.timers.insert(until, waker);
                }
            }
        }
    }

    fn wake(&self, id: TaskId) {
        if let Some(waker) = self.waker(id) {
            waker.wake();
        }
    }

    fn waker(&self, id: TaskId) -> Option<Waker> {
        if id == TaskId::MAIN { self.caller.borrow().clone() } else { self.tasks.waker(id) }
    }

    /// Drops every task and unread message, then closes the ring. Destructors run here may cancel and spawn.
    pub(crate) fn close(&self) {
        self.closed.set(true);
        drop(self.ready.close());
        self.tasks.ids().into_iter().for_each(|id| self.cancel(id));
        if let Some(ring) = &self.ring {
            ring.close();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Runtime, Wall};

    #[test]
    fn the_processor_is_crowded_while_others_have_it_for_long() {
        let runtime = Runtime::wall(Wall::default()).unwrap();
        let executor = &runtime.handle().0;
        let begin = executor.clock.now();
        executor.note_absence(begin, begin + CROWDED_FROM);
        assert!(!executor.is_crowded());
        executor.note_absence(begin, begin + 2 * CROWDED_FROM);
        assert!(executor.is_crowded());
        executor.crowded_until.set(begin);
        assert!(!executor.is_crowded(), "it is remembered for a time");
        executor.crowd_forever();
        executor.note_absence(begin, begin + 2 * CROWDED_FROM);
        assert_eq!(executor.crowded_until.get(), Instant::ZERO + Duration::MAX);
    }
}
