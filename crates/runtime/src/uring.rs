//! The io_uring: real input and output of a wall-clock runtime. The only module with `unsafe` code.
//!
//! **Ownership.** From the moment an operation is queued until its completion is reaped, a slab inside the
//! ring owns everything the kernel may touch: the file, the buffer and the callback. Cancelling or dropping a
//! task therefore never frees memory the kernel still writes to. When the runtime is dropped the ring waits
//! for what is in flight; what does not complete even after cancelling is leaked, never freed.
//!
//! **Order.** None. Operations complete in any order, whatever the order they were queued in.
//!
//! **Callbacks** run from the executor's loop, outside of any borrow of the ring, so they may queue again.

#![allow(unsafe_code)]

use std::cell::RefCell;
use std::fmt;
use std::fs::File;
use std::io;
use std::io::Write;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use io_uring::squeue::Entry;
use io_uring::types::{CancelBuilder, Fd, FsyncFlags, SubmitArgs, Timespec};
use io_uring::{IoUring, opcode};

use crate::buffer::{Registration, Table};
use crate::{Buffer, RingFull};

/// Queued operations that are handed to the kernel without waiting for the end of the loop's pass.
const SUBMIT_BATCH: usize = 32;

/// Places in the table of registered buffers.
const REGISTERED_BUFFERS: u16 = 1024;

/// How long closing waits for operations in flight before it cancels them.
const CLOSE_PATIENCE: Duration = Duration::from_secs(2);

/// How an operation ended.
#[derive(Debug)]
pub struct Outcome {
    /// Bytes read or written, possibly fewer than asked for (at the end of a file: 0), or the error.
    pub result: io::Result<u32>,
    /// The buffer of a read, given back.
    pub buffer: Option<Buffer>,
}

type Done = Box<dyn FnOnce(Outcome)>;

/// What the kernel may touch until the operation completes.
struct Operation {
    /// Keeps the descriptor open.
    _file: Arc<File>,
    memory: Memory,
    done: Done,
}

enum Memory {
    None,
    /// The kernel writes it; nobody else has it.
    Target(Buffer),
    /// The kernel reads it; shared owners can only read it too.
    Source {
        _buffer: Rc<Buffer>,
    },
}

/// A wall-clock runtime's io_uring; clones are the same ring.
#[derive(Clone)]
pub struct Ring(Rc<RefCell<State>>);

struct State {
    uring: IoUring,
    /// One place an operation, the user data of its entry; one more than the limit, for the wake-up read.
    slab: Vec<Option<Operation>>,
    free: Vec<usize>,
    limit: usize,
    in_flight: usize,
    unsubmitted: usize,
    table: Option<Arc<Table>>,
    wake: Wake,
    closed: bool,
    /// Reused by `reap`.
    finished: Vec<(Done, Outcome)>,
}

/// The read of an eventfd that lets other threads end a park.
struct Wake {
    event: Arc<File>,
    /// Its place in the slab while it is in flight.
    place: Option<usize>,
}

impl fmt::Debug for Ring {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Ring")
            .field("in_flight", &self.in_flight())
            .field("room", &self.room())
            .finish_non_exhaustive()
    }
}

impl Ring {
    /// A ring for `entries` operations in flight, woken through `event`.
    pub(crate) fn new(entries: u32, event: Arc<File>) -> io::Result<Self> {
        let uring = set_up(entries)?;
        let limit = entries as usize;
        Ok(Ring(Rc::new(RefCell::new(State {
            uring,
            slab: (0..=limit).map(|_| None).collect(),
            free: (0..=limit).rev().collect(),
            limit,
            in_flight: 0,
            unsubmitted: 0,
            table: None,
            wake: Wake { event, place: None },
            closed: false,
            finished: Vec::new(),
        }))))
    }

    /// Reads up to `bytes` bytes at `offset` into the front of `buffer`, which comes back with the outcome.
    ///
    /// # Errors
    ///
    /// [`RingFull`] with the buffer; `done` is dropped uncalled.
    ///
    /// # Panics
    ///
    /// If `bytes` is more than the buffer has.
    pub fn read(
        &self,
        file: &Arc<File>,
        mut buffer: Buffer,
        bytes: usize,
        offset: u64,
        done: impl FnOnce(Outcome) + 'static,
    ) -> Result<(), RingFull> {
        let mut state = self.0.borrow_mut();
        let target = &mut buffer[..bytes];
        let (pointer, length) = (target.as_mut_ptr(), length(target.len()));
        let fd = Fd(file.as_raw_fd());
        let entry = match state.registered(&buffer) {
            Some(index) => opcode::ReadFixed::new(fd, pointer, length, index).offset(offset).build(),
            None => opcode::Read::new(fd, pointer, length).offset(offset).build(),
        };
        state.queue(entry, file, Memory::Target(buffer), done)
    }

    /// Writes `range` of `buffer` at `offset`. With `dsync` the write completes only when it is durable
    /// (RWF_DSYNC).
    ///
    /// # Errors
    ///
    /// [`RingFull`]; `done` is dropped uncalled.
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
        let mut state = self.0.borrow_mut();
        let source = &buffer[range];
        let (pointer, length) = (source.as_ptr(), length(source.len()));
        let fd = Fd(file.as_raw_fd());
        let flags = if dsync { libc::RWF_DSYNC } else { 0 };
        let entry = match state.registered(&buffer) {
            Some(index) => {
                opcode::WriteFixed::new(fd, pointer, length, index).offset(offset).rw_flags(flags).build()
            }
            None => opcode::Write::new(fd, pointer, length).offset(offset).rw_flags(flags).build(),
        };
        state.queue(entry, file, Memory::Source { _buffer: buffer }, done)
    }

    /// Makes every write to `file` that completed before durable, with what is needed to read it back.
    ///
    /// # Errors
    ///
    /// [`RingFull`]; `done` is dropped uncalled.
    pub fn fdatasync(&self, file: &Arc<File>, done: impl FnOnce(Outcome) + 'static) -> Result<(), RingFull> {
        let entry = opcode::Fsync::new(Fd(file.as_raw_fd())).flags(FsyncFlags::DATASYNC).build();
        self.0.borrow_mut().queue(entry, file, Memory::None, done)
    }

    /// Frees the space of `bytes` bytes at `offset`, which then read as zeroes; the file keeps its size.
    ///
    /// # Errors
    ///
    /// [`RingFull`]; `done` is dropped uncalled.
    pub fn punch_hole(
        &self,
        file: &Arc<File>,
        offset: u64,
        bytes: u64,
        done: impl FnOnce(Outcome) + 'static,
    ) -> Result<(), RingFull> {
        let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
        let entry = opcode::Fallocate::new(Fd(file.as_raw_fd()), bytes).offset(offset).mode(mode).build();
        self.0.borrow_mut().queue(entry, file, Memory::None, done)
    }

    /// Registers buffers, which reads and writes then use without mapping their pages each time. A ring has
    /// 1,024 places; a dropped buffer frees its own. Buffers that are registered already are left alone.
    ///
    /// # Errors
    ///
    /// When there is no place left or the kernel refuses (a limit on locked memory, say). The buffers that
    /// were not registered work all the same, only slower.
    pub fn register(&self, buffers: &mut [Buffer]) -> io::Result<()> {
        let state = &mut *self.0.borrow_mut();
        let table = match &state.table {
            Some(table) => table.clone(),
            None => {
                state.uring.submitter().register_buffers_sparse(u32::from(REGISTERED_BUFFERS))?;
                state.table.insert(Table::new(REGISTERED_BUFFERS)).clone()
            }
        };
        for buffer in buffers.iter_mut().filter(|buffer| !buffer.is_registered()) {
            let place = table.take().ok_or_else(|| {
                io::Error::other("all 1,024 places for registered buffers are taken; drop some buffers")
            })?;
            state.register_at(&place, buffer)?;
            buffer.registration = Some(place);
        }
        Ok(())
    }

    /// Hands queued operations to the kernel now. The runtime does so by itself before it parks, once 32 are
    /// queued, and every so often in between.
    pub fn submit(&self) {
        self.0.borrow_mut().submit();
    }

    /// Operations queued or in the kernel.
    pub fn in_flight(&self) -> usize {
        self.0.borrow().in_flight
    }

    /// Operations that can be queued now.
    pub fn room(&self) -> usize {
        let state = self.0.borrow();
        if state.closed { 0 } else { state.limit - state.in_flight }
    }

    /// Submits what is queued and reaps what has completed, without waiting.
    pub(crate) fn poll(&self) -> usize {
        self.0.borrow_mut().submit();
        self.reap()
    }

    /// Calls back the operations that have completed, as far as the kernel has posted them; how many did.
    pub(crate) fn reap(&self) -> usize {
        let mut finished = {
            let mut state = self.0.borrow_mut();
            state.collect();
            std::mem::take(&mut state.finished)
        };
        let count = finished.len();
        for (done, outcome) in finished.drain(..) {
            done(outcome);
        }
        let mut state = self.0.borrow_mut();
        if state.finished.capacity() == 0 {
            state.finished = finished;
        }
        count
    }

    /// Submits what is queued and sleeps until a completion, a wake-up from another thread, or the timeout.
    pub(crate) fn park(&self, timeout: Option<Duration>) {
        let mut state = self.0.borrow_mut();
        state.arm_wake();
        // Without the wake-up read another thread could not end the sleep.
        let wanted = usize::from(state.wake.place.is_some());
        state.enter(wanted, timeout);
    }

    /// Refuses operations from now on and waits for those in flight; their callbacks are dropped uncalled.
    pub(crate) fn close(&self) {
        self.0.borrow_mut().closed = true;
        let finished = self.0.borrow_mut().drain();
        // Dropped after the borrow: a callback may own anything, also this ring.
        drop(finished);
    }
}

impl State {
    fn registered(&self, buffer: &Buffer) -> Option<u16> {
        let registration = buffer.registration.as_ref()?;
        let mine = self.table.as_ref().is_some_and(|table| Arc::ptr_eq(table, &registration.table));
        mine.then_some(registration.index)
    }

    fn register_at(&self, place: &Registration, buffer: &mut Buffer) -> io::Result<()> {
        let memory = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
        let submitter = self.uring.submitter();
        // SAFETY: the vector describes memory the buffer owns. The kernel touches registered memory only on
        // behalf of an operation that names its place, and such an operation is queued only together with the
        // buffer that holds the place, which the slab keeps until the completion.
        unsafe { submitter.register_buffers_update(u32::from(place.index), &[memory], None) }
    }

    /// Takes an operation in, or refuses it when all entries are taken.
    fn queue(
        &mut self,
        entry: Entry,
        file: &Arc<File>,
        memory: Memory,
        done: impl FnOnce(Outcome) + 'static,
    ) -> Result<(), RingFull> {
        if self.closed || self.in_flight == self.limit {
            return Err(refused(memory));
        }
        let operation = Operation { _file: file.clone(), memory, done: Box::new(done) };
        self.push(entry, operation).map_err(|operation| refused(operation.memory))?;
        self.in_flight += 1;
        if self.unsubmitted >= SUBMIT_BATCH {
            self.submit();
        }
        Ok(())
    }

    /// Puts an operation into the slab and its entry into the submission queue; its place.
    fn push(&mut self, entry: Entry, operation: Operation) -> Result<usize, Operation> {
        if self.uring.submission().is_full() {
            self.submit();
        }
        let Some(place) = self.free.pop() else { return Err(operation) };
        let entry = entry.user_data(place as u64);
        // SAFETY: the entry points into the operation's buffer, whose memory does not move when the buffer
        // does, and at its open file. The slab owns both until the completion with this user data is reaped;
        // `drain` leaks what never completes.
        let pushed = unsafe { self.uring.submission().push(&entry) };
        if pushed.is_err() {
            self.free.push(place);
            return Err(operation);
        }
        self.slab[place] = Some(operation);
        self.unsubmitted += 1;
        Ok(place)
    }

    /// Has the kernel read the eventfd, if it does not already.
    fn arm_wake(&mut self) {
        if self.wake.place.is_some() {
            return;
        }
        let mut counter = Buffer::new(size_of::<u64>());
        let entry =
            opcode::Read::new(Fd(self.wake.event.as_raw_fd()), counter.as_mut_ptr(), length(counter.len()))
                .build();
        let operation = Operation {
            _file: self.wake.event.clone(),
            memory: Memory::Target(counter),
            done: Box::new(|_| ()),
        };
        self.wake.place = self.push(entry, operation).ok();
    }

    fn submit(&mut self) {
        if self.unsubmitted > 0 || self.uring.submission().taskrun() {
            self.enter(0, None);
        }
    }

    /// The one system call: submits, and waits for `wanted` completions or the timeout.
    ///
    /// # Panics
    ///
    /// When the kernel says that the ring itself is unusable.
    fn enter(&mut self, wanted: usize, timeout: Option<Duration>) {
        let submitter = self.uring.submitter();
        let entered = match timeout {
            Some(timeout) => {
                let timeout = Timespec::from(timeout);
                submitter.submit_with_args(wanted, &SubmitArgs::new().timespec(&timeout))
            }
            None => submitter.submit_and_wait(wanted),
        };
        match entered.map_err(|error| (error.raw_os_error(), error)) {
            // Interrupted, timed out, or short of memory or of completion space: the loop comes back.
            Ok(_) | Err((Some(libc::EINTR | libc::ETIME | libc::EAGAIN | libc::EBUSY | libc::ENOMEM), _)) => {
            }
            Err((_, error)) => panic!("io_uring_enter failed, the ring is unusable: {error}"),
        }
        self.unsubmitted = self.uring.submission().len();
    }

    /// Moves completed operations from the slab to `finished`.
    fn collect(&mut self) {
        for completion in self.uring.completion() {
            let place = completion.user_data() as usize;
            let Some(operation) = self.slab.get_mut(place).and_then(Option::take) else { continue };
            self.free.push(place);
            if self.wake.place == Some(place) {
                self.wake.place = None;
                continue;
            }
            self.in_flight -= 1;
            let buffer = match operation.memory {
                Memory::Target(buffer) => Some(buffer),
                Memory::None | Memory::Source { .. } => None,
            };
            let code = completion.result();
            let result = u32::try_from(code).map_err(|_| io::Error::from_raw_os_error(-code));
            self.finished.push((operation.done, Outcome { result, buffer }));
        }
    }

    /// Waits until nothing is in flight, cancels what takes too long, leaks what even then stays.
    fn drain(&mut self) -> Vec<(Done, Outcome)> {
        // Ends the wake-up read; a failure only means that it will be cancelled below.
        let _ = (&*self.wake.event).write(&1u64.to_ne_bytes());
        self.wait_for_all();
        if self.has_operations() {
            let _ = self
                .uring
                .submitter()
                .register_sync_cancel(Some(Timespec::new().sec(1)), CancelBuilder::any());
            self.wait_for_all();
        }
        if self.has_operations() {
            std::mem::forget(std::mem::take(&mut self.slab));
        }
        std::mem::take(&mut self.finished)
    }

    fn has_operations(&self) -> bool {
        self.slab.iter().any(Option::is_some)
    }

    /// Gives up after `CLOSE_PATIENCE` without a completion.
    fn wait_for_all(&mut self) {
        self.collect();
        while self.has_operations() {
            let before = self.free.len();
            self.enter(1, Some(CLOSE_PATIENCE));
            self.collect();
            if self.free.len() == before {
                return;
            }
        }
    }
}

impl Drop for State {
    fn drop(&mut self) {
        // Closed by the runtime already; this is for a ring that never became one's.
        self.closed = true;
        drop(self.drain());
    }
}

fn refused(memory: Memory) -> RingFull {
    let buffer = match memory {
        Memory::Target(buffer) => Some(buffer),
        Memory::None | Memory::Source { .. } => None,
    };
    RingFull { buffer }
}

/// The kernel transfers at most 2 GiB less a page in one operation and says how much it did, so a longer
/// range is only a short transfer.
fn length(bytes: usize) -> u32 {
    u32::try_from(bytes).unwrap_or(u32::MAX)
}

/// One issuer and deferred task work where the kernel has them (6.1), since the runtime is one thread and
/// reaps when it wants to; else a plain ring.
fn set_up(entries: u32) -> io::Result<IoUring> {
    // The completion queue is twice as long, so it has room for the wake-up read too.
    let entries = entries.max(1);
    IoUring::builder()
        .setup_single_issuer()
        .setup_defer_taskrun()
        .setup_taskrun_flag()
        .dontfork()
        .build(entries)
        .or_else(|_| IoUring::builder().dontfork().build(entries))
}
