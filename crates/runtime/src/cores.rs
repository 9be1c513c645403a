//! Simulated cores: what host threads cost.
//!
//! A *simulated thread* is a task made by [`Handle::spawn_thread`](crate::Handle::spawn_thread), or the main future after
//! [`Runtime::simulate_caller`](crate::Runtime::simulate_caller); it stands for a thread of the host (an
//! application thread, the commit task, the flush task). Tasks made by `spawn`, and the main future otherwise, stand
//! for the device or the harness; they need no core and pay nothing. The model:
//!
//! - A thread runs only while it holds one of `count` cores. Threads that want one queue, first come, first
//!   served.
//! - A thread that awaits anything but [`Handle::work`](crate::Handle::work) *sleeps*: it gives its core to the first in the queue.
//! - When a sleeping thread is woken it waits for a core, holds it for `context_switch` without running, is
//!   counted as one context switch, and runs. Its first start waits for a core too, but is neither charged nor
//!   counted, since nothing was switched back in.
//! - `work(d)` holds the core for `d` and is never interrupted: there is no preemption and no time slice.
//! - Time passes only through `work` and context switches; code between awaits takes none.
//!
//! In wall time, and without [`Cores`], none of this applies: the machine's own cores do the work.

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use crate::Instant;
use crate::task_id::TaskId;

/// The host's processor in a simulation.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Cores {
    /// Number of cores, at least 1 (0 counts as 1).
    pub count: usize,
    /// Time to bring a sleeping thread back onto a core.
    pub context_switch: Duration,
    /// What a request to the device costs the thread that makes it ([`Handle::spend_dispatch`](crate::Handle::spend_dispatch)).
    pub dispatch: Duration,
    /// What the end of a request, with its interrupt, costs the thread that waits for it
    /// ([`Handle::spend_completion`](crate::Handle::spend_completion)).
    pub completion: Duration,
    /// What it costs to make one block of a journal's log
    /// ([`Handle::spend_compose`](crate::Handle::spend_compose)).
    pub compose: Duration,
    /// What it costs to look at one dirty page ([`Handle::spend_scan`](crate::Handle::spend_scan)).
    pub scan: Duration,
}

/// Context switches counted so far.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ThreadCounts {
    /// Of all simulated threads.
    pub total: u64,
    /// By thread name; threads of one name are counted together.
    pub by_thread: BTreeMap<String, u64>,
}

/// `New -> Queued | Running`, then `Running -> Asleep -> Queued -> Switching -> Running`, where `Queued` is
/// skipped when a core is free.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum CoresState {
    New,
    Asleep,
    Queued { new: bool },
    Switching { until: Instant },
    Running { working: bool },
}

#[derive(Debug)]
struct Thread {
    name: String,
    state: CoresState,
}

/// What to do with a thread that got a core.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Turn {
    /// Poll it now.
    Run,
    /// Wake it at this instant, when its context switch is over.
    SwitchUntil(Instant),
}

/// The thread that holds each core.
#[derive(Debug)]
pub(crate) struct CoreScheduler(RefCell<Schedule>);

#[derive(Debug)]
struct Schedule {
    cores: Cores,
    free: usize,
    queue: VecDeque<TaskId>,
    threads: BTreeMap<TaskId, Thread>,
    counts: ThreadCounts,
}

impl CoreScheduler {
    pub(crate) fn new(cores: Cores) -> Self {
        CoreScheduler(RefCell::new(Schedule {
            cores,
            free: cores.count.max(1),
            queue: VecDeque::new(),
            threads: BTreeMap::new(),
            counts: ThreadCounts::default(),
        }))
    }

    /// The processor that is simulated.
    pub(crate) fn cores(&self) -> Cores {
        self.0.borrow().cores
    }

    pub(crate) fn add(&self, task: TaskId, name: &str) {
        let thread = Thread { name: name.to_owned(), state: CoresState::New };
        self.0.borrow_mut().threads.insert(task, thread);
    }

    /// A thread was woken. None: it has no core yet and is polled later.
    pub(crate) fn woken(&self, task: TaskId, now: Instant) -> Option<Turn> {
        let schedule = &mut *self.0.borrow_mut();
        let thread = schedule.threads.get_mut(&task)?;
        let new = match thread.state {
            CoresState::Running { .. } => {
                thread.state = CoresState::Running { working: false };
                return Some(Turn::Run);
            }
            CoresState::Switching { until } if now >= until => {
                thread.state = CoresState::Running { working: false };
                return Some(Turn::Run);
            }
            CoresState::Switching { .. } | CoresState::Queued { .. } => return None,
            CoresState::New => true,
            CoresState::Asleep => false,
        };
        if schedule.free == 0 {
            thread.state = CoresState::Queued { new };
            schedule.queue.push_back(task);
            return None;
        }
        schedule.free -= 1;
        schedule.place(task, new, now)
    }

    /// A thread was polled and is not done. If it sleeps now, the next in the queue gets its core.
    pub(crate) fn paused(&self, task: TaskId, now: Instant) -> Option<(TaskId, Turn)> {
        let schedule = &mut *self.0.borrow_mut();
        let thread = schedule.threads.get_mut(&task)?;
        if thread.state == (CoresState::Running { working: true }) {
            return None;
        }
        thread.state = CoresState::Asleep;
        schedule.hand_over(now)
    }

    /// A thread has ended. If it held a core, the next in the queue gets it.
    pub(crate) fn ended(&self, task: TaskId, now: Instant) -> Option<(TaskId, Turn)> {
        let schedule = &mut *self.0.borrow_mut();
        match schedule.threads.remove(&task)?.state {
            CoresState::New | CoresState::Asleep => None,
            CoresState::Queued { .. } => {
                schedule.queue.retain(|&queued| queued != task);
                None
            }
            CoresState::Switching { .. } | CoresState::Running { .. } => schedule.hand_over(now),
        }
    }

    pub(crate) fn is_thread(&self, task: TaskId) -> bool {
        self.0.borrow().threads.contains_key(&task)
    }

    /// Says whether the running thread works: then it keeps its core when the poll ends.
    pub(crate) fn set_working(&self, task: TaskId, working: bool) {
        if let Some(thread) = self.0.borrow_mut().threads.get_mut(&task)
            && let CoresState::Running { .. } = thread.state
        {
            thread.state = CoresState::Running { working };
        }
    }

    pub(crate) fn counts(&self) -> ThreadCounts {
        self.0.borrow().counts.clone()
    }
}

impl Schedule {
    fn hand_over(&mut self, now: Instant) -> Option<(TaskId, Turn)> {
        let Some(next) = self.queue.pop_front() else {
            self.free += 1;
            return None;
        };
        let new = self.threads.get(&next)?.state == CoresState::Queued { new: true };
        Some((next, self.place(next, new, now)?))
    }

    /// Puts a thread on a core that was set aside for it.
    fn place(&mut self, task: TaskId, new: bool, now: Instant) -> Option<Turn> {
        let thread = self.threads.get_mut(&task)?;
        if !new {
            self.counts.total += 1;
            match self.counts.by_thread.get_mut(&thread.name) {
                Some(count) => *count += 1,
                None => drop(self.counts.by_thread.insert(thread.name.clone(), 1)),
            }
        }
        if new || self.cores.context_switch.is_zero() {
            thread.state = CoresState::Running { working: false };
            return Some(Turn::Run);
        }
        let until = now + self.cores.context_switch;
        thread.state = CoresState::Switching { until };
        Some(Turn::SwitchUntil(until))
    }
}
