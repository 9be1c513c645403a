//! A sleep: the future of a timer.

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use crate::Instant;
use crate::executor::Executor;
use crate::timer::TimerKey;

/// Finishes at a deadline. Dropping it cancels the timer.
#[derive(Debug)]
#[must_use = "a sleep does nothing unless awaited"]
pub struct Sleep {
    executor: Rc<Executor>,
    deadline: Instant,
    timer: Option<TimerKey>,
}

impl Sleep {
    pub(crate) fn new(executor: Rc<Executor>, deadline: Instant) -> Self {
        Sleep { executor, deadline, timer: None }
    }

    /// When it finishes.
    pub fn deadline(&self) -> Instant {
        self.deadline
    }

    fn disarm(&mut self) {
        if let Some(key) = self.timer.take() {
            self.executor.timers.cancel(key);
        }
    }
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if self.executor.clock.now() >= self.deadline {
            self.disarm();
            return Poll::Ready(());
        }
        match self.timer {
            Some(key) => self.executor.timers.update(key, context.waker()),
            None => self.timer = Some(self.executor.timers.insert(self.deadline, context.waker().clone())),
        }
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        self.disarm();
    }
}
