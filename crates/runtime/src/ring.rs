//! Asynchronous file input and output of a wall-clock runtime.
//!
//! **Ownership.** From the moment an operation is queued until its completion is reaped, the ring owns
//! everything the kernel may touch: the file, the buffer and the callback. Cancelling or dropping a task
//! therefore never frees memory the kernel still uses. When the runtime is dropped the ring waits for what is
//! in flight; what does not complete even after cancelling is leaked, never freed.
//!
//! **Order.** None. Operations complete in any order, whatever the order they were queued in.
//!
//! **Callbacks** run from the executor's loop, outside of any borrow of the ring, so they may queue again.

use std::cell::RefCell;
use std::fmt;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use crate::uring::ublk::QueueCommand;
use crate::uring::{Operation, Request, Uring};
use crate::{Buffer, RingFull};

/// How an operation ended.
#[derive(Debug)]
pub struct Outcome {
    /// Bytes read or written, possibly fewer than asked for (at the end of a file: 0), or the error.
    pub result: io::Result<u32>,
    /// The buffer of a read, given back.
    pub buffer: Option<Buffer>,
}

/// A wall-clock runtime's io_uring; clones are the same ring.
#[derive(Clone)]
pub struct Ring(Rc<RefCell<Uring>>);

impl fmt::Debug for Ring {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Ring")
            .field("in_flight", &self.in_flight())
            .field("room", &self.room())
            .finish_non_exhaustive()
    }
}

/// Operations. Each is refused with [`RingFull`] when the ring has no [`room`](Ring::room); the callback is
/// then dropped uncalled.
impl Ring {
    /// Reads up to `bytes` bytes at `offset` into the front of `buffer`, which comes back with the outcome.
    ///
    /// # Errors
    ///
    /// [`RingFull`], with the buffer.
    ///
    /// # Panics
    ///
    /// If `bytes` is more than the buffer has.
    pub fn read(
        &self,
        file: &Arc<File>,
        buffer: Buffer,
        bytes: usize,
        offset: u64,
        done: impl FnOnce(Outcome) + 'static,
    ) -> Result<(), RingFull> {
        self.queue(file, Request::Read { buffer, bytes, offset }, done)
    }

    /// Writes `range` of `buffer` at `offset`. With `dsync` the write completes only when it is durable
    /// (RWF_DSYNC).
    ///
    /// # Errors
    ///
    /// [`RingFull`].
    ///
    /// # Panics
    ///
    /// If the range is not inside the buffer.
    pub fn write(
        &self,
        file: &Arc<File>,
        buffer: Rc<Buffer>,
        range: Range<usize>,
        offset: u64,
        dsync: bool,
        done: impl FnOnce(Outcome) + 'static,
    ) -> Result<(), RingFull> {
        self.queue(file, Request::Write { buffer, range, offset, dsync }, done)
    }

    /// Makes every write to `file` that completed before durable, with what is needed to read it back.
    ///
    /// # Errors
    ///
    /// [`RingFull`].
    pub fn fdatasync(&self, file: &Arc<File>, done: impl FnOnce(Outcome) + 'static) -> Result<(), RingFull> {
        self.queue(file, Request::Datasync, done)
    }

    /// Frees the space of `bytes` bytes at `offset`, which then read as zeroes; the file keeps its size.
    ///
    /// # Errors
    ///
    /// [`RingFull`].
    pub fn punch_hole(
        &self,
        file: &Arc<File>,
        offset: u64,
        bytes: u64,
        done: impl FnOnce(Outcome) + 'static,
    ) -> Result<(), RingFull> {
        self.queue(file, Request::PunchHole { offset, bytes }, done)
    }

    /// Completes when `file`, one that others write into, has something to read or never will again (its other end is
    /// gone, say); which of the two, reading tells. The outcome's number means nothing.
    ///
    /// # Errors
    ///
    /// [`RingFull`].
    pub fn readable(&self, file: &Arc<File>, done: impl FnOnce(Outcome) + 'static) -> Result<(), RingFull> {
        self.queue(file, Request::Readable, done)
    }

    /// Completes when `file`, one that others read from, takes bytes or never will again; which of the two, writing
    /// tells. The outcome's number means nothing.
    ///
    /// # Errors
    ///
    /// [`RingFull`].
    pub fn writable(&self, file: &Arc<File>, done: impl FnOnce(Outcome) + 'static) -> Result<(), RingFull> {
        self.queue(file, Request::Writable, done)
    }

    /// Completes when a request has come in a place of a ublk device's queue.
    pub(crate) fn ublk(
        &self,
        device: &Arc<File>,
        command: QueueCommand,
        done: impl FnOnce(Outcome) + 'static,
    ) -> Result<(), RingFull> {
        self.queue(device, Request::Ublk(command), done)
    }

    fn queue(
        &self,
        file: &Arc<File>,
        request: Request,
        done: impl FnOnce(Outcome) + 'static,
    ) -> Result<(), RingFull> {
        let operation = Operation { file: file.clone(), request, done: Box::new(done) };
        let queued = self.0.borrow_mut().queue(operation);
        // Refused after the borrow: dropping the callback may use the ring.
        queued.map_err(|operation| RingFull { buffer: operation.request.into_buffer() })
    }
}

impl Ring {
    /// A ring for `entries` operations in flight, woken through `event`.
    pub(crate) fn new(entries: u32, event: Arc<File>) -> io::Result<Self> {
        Ok(Ring(Rc::new(RefCell::new(Uring::new(entries, event)?))))
    }

    /// Registers buffers, which reads and writes then use without mapping their pages each time. A ring has
    /// 1,024 places; a dropped buffer frees its own. Buffers that are registered already are left alone.
    ///
    /// # Errors
    ///
    /// When there is no place left or the kernel refuses (a limit on locked memory, say). The buffers that
    /// were not registered work all the same, only slower.
    pub fn register(&self, buffers: &mut [Buffer]) -> io::Result<()> {
        let mut uring = self.0.borrow_mut();
        let mut plain = buffers.iter_mut().filter(|buffer| !buffer.is_registered());
        plain.try_for_each(|buffer| uring.register(buffer))
    }

    /// Hands queued operations to the kernel now. The runtime does so by itself before it parks, once 32 are
    /// queued, and every so often in between.
    pub fn submit(&self) {
        self.0.borrow_mut().submit();
    }

    /// Ends what waits for `file` to be readable or writable, with an outcome that is an error.
    pub(crate) fn cancel_waits(&self, file: &Arc<File>) {
        self.0.borrow_mut().cancel_waits(|of| Arc::ptr_eq(of, file));
    }

    /// Operations queued or in the kernel.
    pub fn in_flight(&self) -> usize {
        self.0.borrow().in_flight()
    }

    /// Operations that can be queued now; none once the runtime is gone.
    pub fn room(&self) -> usize {
        self.0.borrow().room()
    }

    /// Submits what is queued and reaps what has completed, without waiting.
    pub(crate) fn poll(&self) {
        self.submit();
        self.reap();
    }

    /// Calls back the operations that have completed, as far as the kernel has posted them; how many did.
    pub(crate) fn reap(&self) -> usize {
        let mut finished = self.0.borrow_mut().collect();
        let count = finished.len();
        for (done, outcome) in finished.drain(..) {
            done(outcome);
        }
        self.0.borrow_mut().reuse(finished);
        count
    }

    /// Submits what is queued and sleeps until a completion, a wake-up from another thread, or the timeout.
    pub(crate) fn park(&self, timeout: Option<Duration>) {
        self.0.borrow_mut().park(timeout);
    }

    /// Refuses operations from now on and waits for those in flight; their callbacks are dropped uncalled.
    pub(crate) fn close(&self) {
        let finished = self.0.borrow_mut().close();
        // Dropped after the borrow: a callback may own anything, also this ring.
        drop(finished);
    }
}
