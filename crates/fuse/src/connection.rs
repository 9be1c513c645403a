//! The connection to the kernel: requests come in, answers go out.

use std::cell::{Cell, RefCell};
use std::fs::File;
use std::io::{self, IoSlice};
use std::ops::Deref;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::Errno;
use weir_runtime::{Buffer, Event, Handle, Instant, Ring};

use crate::busy_cpu::BusyCpuGuard;
use crate::protocol::{Answer, REQUEST_BYTES};

/// How long to look for the next request before sleeping. To be woken costs tens of microseconds, most of all on a
/// virtual machine, and a program that writes and orders, one call after the other, comes back sooner than that. It
/// takes processor time that no other task wants, since every look lets others run. While other programs want the processor, it sleeps at
/// once.
const WATCH: Duration = Duration::from_micros(50);
/// When to look again where there is no room on the ring for waiting.
const RETRY: Duration = Duration::from_millis(1);

/// From so many bytes on a request is long.
const LONG: usize = 1 << 16;
/// From so many bytes on it keeps the memory that it was received in, as that has not much more.
const WHOLE: usize = REQUEST_BYTES / 8 * 7;

/// What came in.
pub(crate) enum Received {
    Request(Request),
    /// Nothing, yet.
    Nothing,
    /// It was unmounted: nothing ever again.
    Ended,
}

/// The bytes of a request. The memory of long ones is used again and again, and leaves no holes in the heap.
pub(crate) enum Request {
    Short(Vec<u8>),
    /// So many bytes of a buffer.
    Long(Buffer, usize),
}

impl Request {
    /// The first `length` bytes of what was received in `buffer`, which is another one then if they are nearly all.
    fn take_from(buffer: &mut Buffer, length: usize) -> Request {
        match length {
            WHOLE.. => Request::Long(std::mem::replace(buffer, Buffer::unfilled(REQUEST_BYTES)), length),
            LONG.. => Request::Long(Buffer::copy_of(&buffer[..length]), length),
            _ => Request::Short(buffer[..length].to_vec()),
        }
    }
}

impl Deref for Request {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Request::Short(bytes) => bytes,
            Request::Long(buffer, length) => &buffer[..*length],
        }
    }
}

/// The descriptor of `/dev/fuse` that belongs to a mount.
pub(crate) struct Connection {
    handle: Handle,
    ring: Ring,
    device: Arc<File>,
    buffer: RefCell<Buffer>,
    /// Keeps processors awake, if that is wanted.
    cpu_guard: Option<BusyCpuGuard>,
    /// When something last came in or went out.
    active: Cell<Instant>,
    /// Wakes sleeping readers: a request can be read, or an answer was sent, whose receiver asks again.
    stirred: Rc<Event>,
    /// The ring waits for something to read.
    watched: Rc<Cell<bool>>,
}

impl Connection {
    /// Takes the descriptor of a mount that is initialised. `cpu_guard` is told of requests.
    ///
    /// # Errors
    /// What the system says where it cannot be used without waiting, and Unsupported in virtual time.
    pub(crate) fn new(
        handle: &Handle,
        device: Arc<File>,
        cpu_guard: Option<BusyCpuGuard>,
    ) -> io::Result<Connection> {
        fcntl_setfl(&device, fcntl_getfl(&device)? | OFlags::NONBLOCK)?;
        Ok(Connection {
            handle: handle.clone(),
            ring: handle.ring().ok_or(io::ErrorKind::Unsupported)?,
            device,
            buffer: RefCell::new(Buffer::new(REQUEST_BYTES)),
            cpu_guard,
            active: Cell::new(handle.now()),
            stirred: Rc::default(),
            watched: Rc::default(),
        })
    }

    /// Takes the next request, without waiting.
    pub(crate) fn receive(&self) -> io::Result<Received> {
        let mut buffer = self.buffer.borrow_mut();
        loop {
            return match rustix::io::read(&self.device, &mut buffer[..]) {
                Ok(length) => {
                    self.active.set(self.handle.now());
                    self.cpu_guard.iter().for_each(BusyCpuGuard::keep);
                    Ok(Received::Request(Request::take_from(&mut buffer, length)))
                }
                Err(Errno::AGAIN) => Ok(Received::Nothing),
                // A request that was taken back before it was read.
                Err(Errno::INTR | Errno::NOENT) => continue,
                Err(Errno::NODEV) => Ok(Received::Ended),
                Err(error) => Err(error.into()),
            };
        }
    }

    /// Answers a request: whether the kernel took it. It does not where the request is given up, as all are when the
    /// connection ends.
    pub(crate) fn answer(&self, unique: u64, answer: Result<&Answer, Errno>) -> bool {
        let body = answer.map_or(&[][..], Answer::body);
        let header = Answer::header(unique, answer.err(), body);
        let parts = [IoSlice::new(&header), IoSlice::new(body)];
        let written = loop {
            match rustix::io::writev(&self.device, &parts) {
                Err(Errno::INTR) => {}
                written => break written,
            }
        };
        self.active.set(self.handle.now());
        self.stirred.notify(usize::MAX);
        written.is_ok()
    }

    /// Waits until there may be something to receive: looks for a while, then sleeps.
    pub(crate) async fn ready(&self) {
        if self.handle.now() < self.active.get() + WATCH && !self.handle.is_crowded() {
            return self.handle.give_way().await;
        }
        let stirred = self.stirred.listen();
        if self.watch() {
            stirred.await;
        } else {
            self.handle.sleep(RETRY).await;
        }
    }

    /// Waits until an answer went out, or something came in.
    pub(crate) async fn stirred(&self) {
        self.stirred.listen().await;
    }

    /// Has the ring say when there is something to read: whether it will.
    fn watch(&self) -> bool {
        if !self.watched.get() {
            let (stirred, watched) = (Rc::clone(&self.stirred), Rc::clone(&self.watched));
            let queued = self.ring.readable(&self.device, move |_| {
                watched.set(false);
                stirred.notify(usize::MAX);
            });
            self.watched.set(queued.is_ok());
        }
        self.watched.get()
    }
}
