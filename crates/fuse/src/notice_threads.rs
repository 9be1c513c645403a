//! *Notice threads*: threads that send notices to the kernel which may wait there, for dirty pages or for the lock of a page. The thread
//! that answers requests must not wait for them, since they may wait for its answers.

use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;

use futures_util::{FutureExt as _, select_biased};
use weir_runtime::{Cancelled, Handle, Semaphore};

use crate::gate::Gate;

/// So many at one time.
const THREADS_MAX: usize = 4;
/// So many callers wait for them, at most. Requests in which pages come must find room beside theirs.
const WAITING_MAX: usize = 128;

/// The threads. Each is an activity at the [`Gate`] until it has ended.
#[derive(Clone)]
pub(crate) struct NoticeThreads {
    handle: Handle,
    gate: Rc<Gate>,
    room: Rc<Semaphore>,
}

impl NoticeThreads {
    pub(crate) fn new(handle: &Handle, gate: &Rc<Gate>) -> NoticeThreads {
        let room = Rc::new(Semaphore::new(THREADS_MAX));
        NoticeThreads { handle: handle.clone(), gate: Rc::clone(gate), room }
    }

    /// Whether as many callers wait as may.
    pub(crate) fn are_full(&self) -> bool {
        self.room.waiting() >= WAITING_MAX
    }

    /// Sends a notice, and waits until that has returned.
    ///
    /// # Errors
    /// [`Cancelled`] where no thread can be had; nothing was sent then.
    pub(crate) fn send<N: FnOnce() + Send + 'static>(
        &self,
        notice: N,
    ) -> impl Future<Output = Result<(), Cancelled>> + use<N> {
        // From now on, and not when the task is begun that waits for this.
        let (threads, activity) = (self.clone(), self.gate.begin_at_kernel());
        async move {
            let _room = threads.room.acquire(1).await;
            let sent = threads.handle.blocking(notice).await;
            drop(activity);
            sent
        }
    }

    /// Sends a notice, and waits until that has returned or the time is over. The thread goes on behind that.
    pub(crate) async fn send_within(&self, limit: Duration, notice: impl FnOnce() + Send + 'static) {
        // Where no thread can be had, the kernel keeps what it has.
        let mut sending = pin!(self.handle.spawn(self.send(notice)).fuse());
        select_biased! {
            _ = sending => {}
            () = self.handle.sleep(limit).fuse() => {}
        }
    }

    /// Sends a notice, and does not wait for its return.
    pub(crate) fn send_later(&self, notice: impl FnOnce() + Send + 'static) {
        drop(self.handle.spawn(self.send(notice)));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use weir_runtime::{Runtime, Wall};

    use super::*;

    /// As a thread that waits for a page's lock does.
    #[test]
    fn a_thread_is_under_way_until_it_has_ended_whoever_waits_for_it() {
        let runtime = Runtime::wall(Wall::default()).unwrap();
        let handle = runtime.handle();
        let gate = Rc::<Gate>::default();
        let threads = NoticeThreads::new(&handle, &gate);
        let short = Duration::from_millis(5);
        for is_waited_for in [true, false] {
            let (release, released) = channel::<()>();
            let notice = move || {
                let _ = released.recv();
            };
            let script = async {
                match is_waited_for {
                    true => threads.send_within(short, notice).await,
                    false => threads.send_later(notice),
                }
                gate.close();
                assert!(!gate.at_rest(&handle, short).await);
                assert!(gate.lets_read(), "the thread may wait for what the kernel sends next");
                drop(release);
                assert!(gate.at_rest(&handle, Duration::from_secs(10)).await);
                assert!(!gate.lets_read());
                gate.open();
            };
            runtime.block_on(script).unwrap();
        }
    }
}
