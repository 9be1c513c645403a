//! The way from the session's thread to the one on which everything else is.

use std::rc::Rc;

use futures_util::future::LocalBoxFuture;
use weir_runtime::{Handle, Receiver, Semaphore, Sender, channel};

/// Requests that wait to be looked at.
const WAITING_MAX: usize = 64;
/// Requests that are being answered at one time; the others wait with the kernel.
const UNDER_WAY_MAX: usize = 512;

/// What is to be done with a request, by who has an `S`.
type Job<S> = Box<dyn FnOnce(Rc<S>) -> LocalBoxFuture<'static, ()> + Send>;

/// The end of the channel that takes jobs in, on the session's thread.
pub(crate) struct Jobs<S>(Sender<Job<S>>);

/// Has jobs done with `state`, on the thread of `handle`.
pub(crate) fn jobs<S: 'static>(handle: &Handle, state: S) -> Jobs<S> {
    let (sender, receiver) = channel(WAITING_MAX);
    handle.spawn(answer_all(handle.clone(), Rc::new(state), receiver));
    Jobs(sender)
}

impl<S: 'static> Jobs<S> {
    /// Sends a job; waits while the channel is full. Where the other end is gone, the answer is dropped with the
    /// job, and that tells the kernel EIO.
    pub(crate) fn run<F>(&self, job: impl FnOnce(Rc<S>) -> F + Send + 'static)
    where
        F: Future<Output = ()> + 'static,
    {
        drop(self.0.send_blocking(Box::new(move |state| Box::pin(job(state)))));
    }
}

/// Takes jobs in their order, and does as many at a time as there is room for.
async fn answer_all<S: 'static>(handle: Handle, state: Rc<S>, received: Receiver<Job<S>>) {
    let room = Semaphore::new(UNDER_WAY_MAX);
    while let Ok(job) = received.recv().await {
        let permit = room.acquire(1).await;
        let answered = job(Rc::clone(&state));
        handle.spawn(async move {
            answered.await;
            drop(permit);
        });
    }
}
