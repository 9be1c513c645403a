//! *Intake*: how far the server has read what the kernel has queued for it.
//!
//! A program that has removed a file takes its space for free when its call returns. By then the kernel has queued that
//! it has forgotten the inode (FORGET), and queues what the program asks next behind that. But it hands over up to 8
//! requests before it comes to what it has forgotten (`fuse_dev_do_read` of Linux, `forget_batch`). So a request that
//! needs space waits until the queue has been found empty, or so many requests later.

use std::cell::Cell;

use crate::change_event::ChangeEvent;

/// Requests after which the kernel has come to what it had forgotten before the first; some more than it says.
const REQUESTS: u64 = 12;

/// What has been read of the kernel's queue.
#[derive(Default)]
pub(crate) struct Intake {
    requests: Cell<u64>,
    /// Times that the queue was empty, or that nothing more could be read of it.
    ends: Cell<u64>,
    changed: ChangeEvent,
}

impl Intake {
    /// A request was read that is no FORGET.
    pub(crate) fn note_request(&self) {
        self.requests.set(self.requests.get() + 1);
        self.changed.note();
    }

    /// The queue is empty, or as many requests are under way as may be, so that it is not read until one is answered.
    pub(crate) fn note_end(&self) {
        self.ends.set(self.ends.get() + 1);
        self.changed.note();
    }

    /// Waits until the server has read what the kernel had forgotten by now.
    pub(crate) async fn taken_in(&self) {
        let (ends, last) = (self.ends.get(), self.requests.get() + REQUESTS);
        while self.ends.get() == ends && self.requests.get() < last {
            self.changed.next().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Waker};

    use super::*;

    #[test]
    fn a_caller_waits_for_the_end_of_the_queue_or_for_some_requests() {
        let is_done = |noted: &dyn Fn(&Intake)| {
            let intake = Intake::default();
            let mut waiting = pin!(intake.taken_in());
            let context = &mut Context::from_waker(Waker::noop());
            assert!(waiting.as_mut().poll(context).is_pending());
            noted(&intake);
            waiting.as_mut().poll(context).is_ready()
        };
        assert!(is_done(&Intake::note_end));
        assert!(is_done(&|intake| (0..REQUESTS).for_each(|_| intake.note_request())));
        assert!(!is_done(&|intake| (1..REQUESTS).for_each(|_| intake.note_request())));
    }
}
