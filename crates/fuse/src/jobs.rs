//! The way from the session's thread to the one on which everything else is.

use std::cell::Cell;
use std::rc::Rc;

use futures_util::future::LocalBoxFuture;
use weir_runtime::{Handle, Receiver, Semaphore, Sender, channel};

/// Requests that wait to be looked at.
const WAITING_MAX: usize = 64;
/// Requests that are being answered at one time; the others wait with the kernel.
const UNDER_WAY_MAX: usize = 512;

/// Requests of the kernel that are being answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Load {
    /// Now.
    pub under_way: u64,
    /// At one time, at most, since the mount.
    pub under_way_max: u64,
}

/// The load of a mount, which changes all the time.
pub(crate) type SharedLoad = Rc<Cell<Load>>;

/// A request that is being answered, until dropped.
struct UnderWay(SharedLoad);

impl UnderWay {
    fn new(load: &SharedLoad) -> UnderWay {
        let Load { under_way, under_way_max } = load.get();
        load.set(Load { under_way: under_way + 1, under_way_max: under_way_max.max(under_way + 1) });
        UnderWay(Rc::clone(load))
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        let load = self.0.get();
        self.0.set(Load { under_way: load.under_way - 1, ..load });
    }
}

/// What is to be done with a request, by who has an `S`.
type Job<S> = Box<dyn FnOnce(Rc<S>) -> LocalBoxFuture<'static, ()> + Send>;

/// The end of the channel that takes jobs in, on the session's thread.
pub(crate) struct Jobs<S>(Sender<Job<S>>);

/// Has jobs done with `state`, on the thread of `handle`, and counts them in `load`.
pub(crate) fn jobs<S: 'static>(handle: &Handle, state: S, load: &SharedLoad) -> Jobs<S> {
    let (sender, receiver) = channel(WAITING_MAX);
    handle.spawn(answer_all(handle.clone(), Rc::new(state), receiver, Rc::clone(load)));
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
async fn answer_all<S: 'static>(handle: Handle, state: Rc<S>, received: Receiver<Job<S>>, load: SharedLoad) {
    let room = Semaphore::new(UNDER_WAY_MAX);
    while let Ok(job) = received.recv().await {
        let permit = room.acquire(1).await;
        let under_way = UnderWay::new(&load);
        let answered = job(Rc::clone(&state));
        handle.spawn(async move {
            answered.await;
            drop((permit, under_way));
        });
    }
}
