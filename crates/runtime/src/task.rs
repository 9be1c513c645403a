//! A *task* as the code that spawned it sees it: await it for its result, or cancel it.

use std::cell::RefCell;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use crate::Cancelled;
use crate::executor::Executor;
use crate::task_id::TaskId;

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
    executor: Rc<Executor>,
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
    /// Starts `future` as a task of `executor`'s runtime; `thread` names the simulated thread it stands for.
    pub(crate) fn spawn(
        executor: &Rc<Executor>,
        thread: Option<&str>,
        future: impl Future<Output = T> + 'static,
    ) -> Self {
        let join = Rc::new(RefCell::new(Join { result: None, finished: false, waker: None }));
        let reporter = Reporter(join.clone());
        let id = executor.insert(
            thread,
            Box::pin(async move {
                let output = future.await;
                reporter.report(Ok(output));
            }),
        );
        Task { executor: Rc::clone(executor), id, join }
    }
}

impl<T> Task<T> {
    /// Drops the task's future where it stands. Awaiting the task then gives [`Cancelled`], unless it had
    /// finished before. A task that cancels itself stops at its next await.
    pub fn cancel(&self) {
        if let Some(id) = self.id {
            self.executor.cancel(id);
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
