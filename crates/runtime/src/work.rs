//! Work: processor time that a simulated thread spends.

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use crate::Sleep;
use crate::executor::Executor;
use crate::task_id::TaskId;

/// Processor time of a simulated thread; see [`Handle::work`](crate::Handle::work).
#[derive(Debug)]
#[must_use = "no time is spent unless awaited"]
pub struct Work {
    executor: Rc<Executor>,
    duration: Duration,
    /// The thread that works, and until when.
    running: Option<(TaskId, Sleep)>,
}

impl Work {
    pub(crate) fn new(executor: Rc<Executor>, duration: Duration) -> Self {
        Work { executor, duration, running: None }
    }
}

impl Future for Work {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let work = &mut *self;
        let Some((scheduler, task)) = work.executor.current_thread() else { return Poll::Ready(()) };
        let (_, sleep) = work.running.get_or_insert_with(|| {
            (task, Sleep::new(Rc::clone(&work.executor), work.executor.clock.now() + work.duration))
        });
        let poll = Pin::new(sleep).poll(context);
        scheduler.set_working(task, poll.is_pending());
        poll
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        // Work given up half-way (the loser of a select) must not keep the core for whatever is awaited next.
        if let (Some((task, _)), Some(scheduler)) = (&self.running, &self.executor.cores) {
            scheduler.set_working(*task, false);
        }
    }
}
