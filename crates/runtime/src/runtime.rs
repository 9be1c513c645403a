//! The runtime and its two loops.
//!
//! *Virtual*: run all ready tasks, then jump to the next timer. Nothing else moves time, so a run depends on
//! its seed alone.
//!
//! *Wall*: run ready tasks; every so often fire the timers that are due and collect the ring's completions;
//! when nothing is ready, let other threads run if a task gives way to them, or else park in the kernel until a
//! completion, the next timer or a wake-up from another thread, whichever is first.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::fmt;
use std::fs::File;
use std::future::Future;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use rustix::event::{EventfdFlags, eventfd};

use crate::clock::Clock;
use crate::cores::CoreScheduler;
use crate::executor::Executor;
use crate::ready::{ReadyQueue, TaskWaker};
use crate::task_id::TaskId;
use crate::{Cores, Handle, Random, Ring, RuntimeError, Stalled};

/// Polls between two looks at timers, completions and messages, so that none starves under a steady stream of
/// ready tasks.
const POLLS_PER_PASS: usize = 64;

/// A run in virtual time.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Simulation {
    /// Determines the whole run.
    pub seed: u64,
    /// Polls a randomly picked ready task, by the seed, instead of the one that was ready first: finds code
    /// that relies on the order of wake-ups.
    pub explore: bool,
    /// Simulates the host's cores and context switches; without them host threads are free.
    pub cores: Option<Cores>,
}

/// A run in real time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Wall {
    /// Operations that may be in flight on the io_uring at once, 1 to 16,384.
    pub ring_entries: u32,
    /// For the random streams.
    pub seed: u64,
    /// The system grants only so much time of the processors: it [is crowded](Handle::is_crowded) all the time.
    pub quota: bool,
}

impl Default for Wall {
    fn default() -> Self {
        Wall { ring_entries: 256, seed: 0, quota: false }
    }
}

/// A single-threaded async executor; see the crate's documentation.
///
/// Dropping it drops its tasks and waits for what is in flight on its ring.
pub struct Runtime {
    handle: Handle,
    /// Ready tasks taken from the shared queue, still to be polled.
    batch: RefCell<VecDeque<TaskId>>,
    explore: Option<RefCell<Random>>,
    /// Polls since the last pass: a caller of `block_on` for one short task after the other keeps it going, too.
    polls: Cell<usize>,
    entered: Cell<bool>,
}

impl fmt::Debug for Runtime {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Runtime").field("handle", &self.handle).finish_non_exhaustive()
    }
}

impl Runtime {
    /// A runtime in virtual time.
    pub fn simulated(options: Simulation) -> Runtime {
        let cores = options.cores.map(CoreScheduler::new);
        let executor = Executor::new(Clock::simulated(), ReadyQueue::new(None), options.seed, cores, None);
        let explore = options.explore.then(|| RefCell::new(executor.streams.take("runtime.explore")));
        Runtime::new(executor, explore)
    }

    /// A runtime in wall time, with an io_uring.
    ///
    /// # Errors
    ///
    /// When the kernel refuses the io_uring or the eventfd that goes with it.
    pub fn wall(options: Wall) -> Result<Runtime, RuntimeError> {
        let event = eventfd(0, EventfdFlags::CLOEXEC).map_err(|errno| RuntimeError::EventFd(errno.into()))?;
        let event = Arc::new(File::from(event));
        let ring = Ring::new(options.ring_entries, event.clone())
            .map_err(|source| RuntimeError::Ring { entries: options.ring_entries, source })?;
        let ready = ReadyQueue::new(Some(event));
        let executor = Executor::new(Clock::wall(), ready, options.seed, None, Some(ring));
        if options.quota {
            executor.crowd_forever();
        }
        Ok(Runtime::new(executor, None))
    }

    fn new(executor: Executor, explore: Option<RefCell<Random>>) -> Runtime {
        Runtime {
            handle: Handle(Rc::new(executor)),
            batch: RefCell::default(),
            explore,
            polls: Cell::new(0),
            entered: Cell::new(false),
        }
    }

    /// A handle to spawn tasks, read the clock and so on.
    pub fn handle(&self) -> Handle {
        self.handle.clone()
    }

    /// The caller of [`block_on`](Self::block_on) stands for a thread of the host from now on, as tasks made by
    /// [`Handle::spawn_thread`] do: code that is not asynchronous itself then pays for its context switches, and for
    /// the [`Handle::work`] that it waits for. It keeps its core between two calls. Without simulated cores this
    /// changes nothing.
    pub fn simulate_caller(&self, name: &str) {
        if let Some(cores) = &self.handle.0.cores {
            cores.add(TaskId::MAIN, name);
        }
    }

    /// Whether [`block_on`](Self::block_on) is under way: then it must not be called again.
    pub fn is_running(&self) -> bool {
        self.entered.get()
    }

    /// Runs until `future` is done. Tasks that are not done by then stay, and go on in the next call.
    ///
    /// # Errors
    ///
    /// [`Stalled`], in virtual time only: the future cannot finish, because nothing is ready and no timer is
    /// pending. In wall time another thread may still wake a task, so the runtime waits.
    ///
    /// # Panics
    ///
    /// When called from inside one of this runtime's own tasks.
    pub fn block_on<F: Future>(&self, future: F) -> Result<F::Output, Stalled> {
        assert!(!self.entered.replace(true), "block_on was called from inside a task of the same runtime");
        let _entered = Entered(&self.entered);
        let executor = &*self.handle.0;
        let _running = executor.ready.enter();
        let mut future = pin!(future);
        let wake = TaskWaker::new(TaskId::MAIN, executor.ready.clone());
        let waker = Waker::from(wake.clone());
        executor.called_by(&waker);
        waker.wake_by_ref();
        loop {
            while self.polls.get() < POLLS_PER_PASS {
                let Some(id) = self.next_ready() else { break };
                self.polls.set(self.polls.get() + 1);
                if id != TaskId::MAIN {
                    executor.step(id);
                    continue;
                }
                wake.clear();
                if !executor.begin_main() {
                    continue;
                }
                executor.note_poll(TaskId::MAIN);
                if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
                    return Ok(output);
                }
                executor.pause_main();
            }
            self.polls.set(0);
            for message in executor.ready.take_inbox() {
                message(&self.handle.0);
            }
            match &executor.ring {
                Some(ring) => self.pass_wall(ring),
                None => self.pass_virtual()?,
            }
        }
    }

    /// The next task to poll: the one ready first, or a random one when exploring.
    fn next_ready(&self) -> Option<TaskId> {
        let mut batch = self.batch.borrow_mut();
        if batch.is_empty() || self.explore.is_some() {
            self.handle.0.ready.drain_into(&mut batch);
        }
        match &self.explore {
            Some(random) if batch.len() > 1 => {
                let pick = random.borrow_mut().below(batch.len() as u64);
                batch.swap_remove_back(pick as usize)
            }
            _ => batch.pop_front(),
        }
    }

    fn has_ready(&self) -> bool {
        let mut batch = self.batch.borrow_mut();
        if batch.is_empty() {
            self.handle.0.ready.drain_into(&mut batch);
        }
        !batch.is_empty()
    }

    fn pass_virtual(&self) -> Result<(), Stalled> {
        if self.has_ready() {
            return Ok(());
        }
        let executor = &*self.handle.0;
        let Some(next) = executor.timers.next() else {
            return Err(Stalled {
                waiting: executor.tasks.live_tasks(),
                at_nanos: executor.clock.now().as_nanos(),
            });
        };
        executor.clock.advance(next);
        executor.timers.fire(next);
        Ok(())
    }

    #[expect(clippy::disallowed_methods, reason = "it has looked for something to do, and found nothing")]
    fn pass_wall(&self, ring: &Ring) {
        let executor = &*self.handle.0;
        let next_timer = executor.timers.next();
        if next_timer.is_some() {
            executor.timers.fire(executor.clock.now());
        }
        if executor.has_given_way() {
            ring.poll();
            if !self.has_ready() {
                let from = executor.clock.now();
                std::thread::yield_now();
                executor.note_absence(from, executor.clock.now());
            }
            return executor.resume_given_way();
        }
        if self.has_ready() {
            ring.poll();
            return;
        }
        // Completions that are there already cost no system call.
        if ring.reap() > 0 || !executor.ready.begin_park() {
            return;
        }
        let timeout = next_timer.map(|deadline| deadline.since(executor.clock.now()));
        ring.park(timeout);
        executor.ready.end_park();
        ring.reap();
    }
}

impl Drop for Runtime {
    fn drop(&mut self) {
        self.handle.0.close();
    }
}

/// Marks the runtime as running until dropped, also by a panic.
struct Entered<'a>(&'a Cell<bool>);

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        self.0.set(false);
    }
}
