//! What the kernel shares with us: the io_uring and the slab of operations in flight. The only module with
//! `unsafe` code; it builds every entry itself, from memory that it owns, so its interface is safe.

#![allow(unsafe_code)]

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

#[cfg(feature = "fuse-queues")]
pub(crate) mod fuse_queues;
pub(crate) mod ublk;

use crate::buffer::Table;
use crate::{Buffer, Outcome};
use ublk::QueueCommand;

/// Queued operations that are handed to the kernel without waiting for the end of the loop's pass.
const SUBMIT_BATCH: usize = 32;

/// Places in the table of registered buffers.
const REGISTERED_BUFFERS: u16 = 1024;

/// The events to poll for; errors and hang-ups are always reported.
const READABLE: u32 = libc::POLLIN as u32;
const WRITABLE: u32 = libc::POLLOUT as u32;

/// How long closing waits for one more completion before it cancels the rest.
const CLOSE_PATIENCE: Duration = Duration::from_secs(2);

/// Called once, with the outcome.
pub(crate) type Done = Box<dyn FnOnce(Outcome)>;

/// Everything the kernel may touch until the operation completes.
pub(crate) struct Operation {
    pub(crate) file: Arc<File>,
    pub(crate) request: Request,
    pub(crate) done: Done,
}

impl Operation {
    /// Whether it is work for the kernel, of which it gets a limited amount, and uses memory: a wait for a request to a
    /// block device is none and uses none.
    fn is_counted(&self) -> bool {
        !matches!(self.request, Request::Ublk(_))
    }
}

/// What to do, with the memory it takes.
pub(crate) enum Request {
    /// The kernel writes the buffer; no other code has it.
    Read {
        buffer: Buffer,
        bytes: usize,
        offset: u64,
    },
    /// The kernel reads the buffer; its other owners can only read it too.
    Write {
        buffer: Rc<Buffer>,
        range: Range<usize>,
        offset: u64,
        dsync: bool,
    },
    Datasync,
    PunchHole {
        offset: u64,
        bytes: u64,
    },
    /// Ends when the file can be read, or never will be again.
    Readable,
    /// Ends when the file takes bytes, or never will again.
    Writable,
    /// Ends when a request has come in a place of a block device. It has no limit but the number of places.
    Ublk(QueueCommand),
}

impl Request {
    /// The buffer of a read.
    pub(crate) fn into_buffer(self) -> Option<Buffer> {
        match self {
            Request::Read { buffer, .. } => Some(buffer),
            Request::Write { .. } | Request::Datasync | Request::PunchHole { .. } => None,
            Request::Readable | Request::Writable | Request::Ublk(_) => None,
        }
    }
}

/// An io_uring and what is in flight on it.
pub(crate) struct Uring {
    ring: IoUring,
    /// One place an operation, the user data of its entry; one more than the limit, for the wake-up read, and more for
    /// what has no limit.
    slab: Vec<Option<Operation>>,
    free: Vec<usize>,
    limit: usize,
    in_flight: usize,
    unsubmitted: usize,
    table: Option<Arc<Table>>,
    /// The eventfd through which other threads end a park.
    event: Arc<File>,
    /// Place of the read of the eventfd, while it is in flight.
    wake: Option<usize>,
    closed: bool,
    /// Reaped, not called back yet; its memory is used again and again.
    finished: Vec<(Done, Outcome)>,
}

impl Uring {
    /// At most `entries` operations in flight; `event` is the eventfd to be woken through.
    pub(crate) fn new(entries: u32, event: Arc<File>) -> io::Result<Self> {
        // The completion queue is twice as long, so it has room for the wake-up read too.
        let length = entries.max(1);
        let ring = deferring(length).or_else(|_| plain(length))?;
        Ok(Uring::from_ring(ring, entries as usize, event))
    }

    fn from_ring(ring: IoUring, limit: usize, event: Arc<File>) -> Self {
        Uring {
            ring,
            slab: (0..=limit).map(|_| None).collect(),
            free: (0..=limit).rev().collect(),
            limit,
            in_flight: 0,
            unsubmitted: 0,
            table: None,
            event,
            wake: None,
            closed: false,
            finished: Vec::new(),
        }
    }

    pub(crate) fn in_flight(&self) -> usize {
        self.in_flight
    }

    pub(crate) fn room(&self) -> usize {
        if self.closed { 0 } else { self.limit - self.in_flight }
    }

    /// Takes an operation in, or gives it back when there is no room.
    pub(crate) fn queue(&mut self, operation: Operation) -> Result<(), Operation> {
        let is_counted = operation.is_counted();
        if self.closed || is_counted && self.room() == 0 {
            return Err(operation);
        }
        self.push(operation)?;
        self.in_flight += usize::from(is_counted);
        if self.unsubmitted >= SUBMIT_BATCH {
            self.submit();
        }
        Ok(())
    }

    /// Puts an operation into the slab and its entry into the submission queue; its place.
    fn push(&mut self, mut operation: Operation) -> Result<usize, Operation> {
        if self.ring.submission().is_full() {
            self.submit();
        }
        let place = self.free.pop().unwrap_or_else(|| {
            self.slab.push(None);
            self.slab.len() - 1
        });
        let entry = self.entry(&mut operation).user_data(place as u64);
        // SAFETY: the entry points into the operation's buffer, whose memory does not move when the buffer
        // does, and names its open file. The slab owns both until the completion with this user data is
        // collected; `close` leaks what never completes.
        let pushed = unsafe { self.ring.submission().push(&entry) };
        if pushed.is_err() {
            self.free.push(place);
            return Err(operation);
        }
        self.slab[place] = Some(operation);
        self.unsubmitted += 1;
        Ok(place)
    }

    /// The kernel's form of an operation.
    fn entry(&self, operation: &mut Operation) -> Entry {
        let fd = Fd(operation.file.as_raw_fd());
        match &mut operation.request {
            Request::Read { buffer, bytes, offset } => {
                let registered = self.registered(buffer);
                let target = &mut buffer[..*bytes];
                let (pointer, length) = (target.as_mut_ptr(), length(target));
                match registered {
                    Some(index) => opcode::ReadFixed::new(fd, pointer, length, index).offset(*offset).build(),
                    None => opcode::Read::new(fd, pointer, length).offset(*offset).build(),
                }
            }
            Request::Write { buffer, range, offset, dsync } => {
                let source = &buffer[range.clone()];
                let (pointer, length) = (source.as_ptr(), length(source));
                let flags = if *dsync { libc::RWF_DSYNC } else { 0 };
                match self.registered(buffer) {
                    Some(index) => opcode::WriteFixed::new(fd, pointer, length, index)
                        .offset(*offset)
                        .rw_flags(flags)
                        .build(),
                    None => opcode::Write::new(fd, pointer, length).offset(*offset).rw_flags(flags).build(),
                }
            }
            Request::Datasync => opcode::Fsync::new(fd).flags(FsyncFlags::DATASYNC).build(),
            Request::PunchHole { offset, bytes } => opcode::Fallocate::new(fd, *bytes)
                .offset(*offset)
                .mode(libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE)
                .build(),
            Request::Readable => opcode::PollAdd::new(fd, READABLE).build(),
            Request::Writable => opcode::PollAdd::new(fd, WRITABLE).build(),
            Request::Ublk(command) => command.entry(fd),
        }
    }

    /// The buffer's place in this ring's table, if it has one.
    fn registered(&self, buffer: &Buffer) -> Option<u16> {
        let registration = buffer.registration.as_ref()?;
        let mine = self.table.as_ref().is_some_and(|table| Arc::ptr_eq(table, &registration.table));
        mine.then_some(registration.index)
    }

    pub(crate) fn register(&mut self, buffer: &mut Buffer) -> io::Result<()> {
        let table = match &self.table {
            Some(table) => table,
            None => {
                self.ring.submitter().register_buffers_sparse(u32::from(REGISTERED_BUFFERS))?;
                self.table.insert(Table::new(REGISTERED_BUFFERS))
            }
        };
        let place = table.take().ok_or_else(|| {
            io::Error::other("all 1,024 places for registered buffers are taken; drop some buffers")
        })?;
        let memory = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
        let submitter = self.ring.submitter();
        // SAFETY: the vector describes memory the buffer owns. The kernel touches registered memory only on
        // behalf of an operation that names its place, and `entry` names a place only for the buffer that
        // holds it, which the slab then keeps until the completion.
        unsafe { submitter.register_buffers_update(u32::from(place.index), &[memory], None) }?;
        buffer.registration = Some(place);
        Ok(())
    }

    pub(crate) fn submit(&mut self) {
        if self.unsubmitted > 0 || self.ring.submission().taskrun() {
            self.enter(0, None);
        }
    }

    /// Submits what is queued and sleeps until a completion, a wake-up from another thread, or the timeout.
    pub(crate) fn park(&mut self, timeout: Option<Duration>) {
        if self.wake.is_none() {
            let request = Request::Read { buffer: Buffer::new(8), bytes: 8, offset: 0 };
            let read = Operation { file: self.event.clone(), request, done: Box::new(|_| ()) };
            self.wake = self.push(read).ok();
        }
        // Without the wake-up read another thread could not end the sleep.
        self.enter(usize::from(self.wake.is_some()), timeout);
    }

    /// The one system call: submits, and waits for `wanted` completions or the timeout.
    ///
    /// # Panics
    ///
    /// When the kernel says that the ring itself is unusable.
    fn enter(&mut self, wanted: usize, timeout: Option<Duration>) {
        let submitter = self.ring.submitter();
        let entered = match timeout {
            Some(timeout) => {
                let timeout = Timespec::from(timeout);
                submitter.submit_with_args(wanted, &SubmitArgs::new().timespec(&timeout))
            }
            None => submitter.submit_and_wait(wanted),
        };
        self.unsubmitted = self.ring.submission().len();
        let Err(error) = entered else { return };
        match error.raw_os_error() {
            // Interrupted, timed out, or short of memory or of completion space: the loop comes back.
            Some(libc::EINTR | libc::ETIME | libc::EAGAIN | libc::EBUSY | libc::ENOMEM) => {}
            _ => panic!("io_uring_enter failed, the ring is unusable: {error}"),
        }
    }

    /// Takes out the operations whose completions the kernel has posted.
    pub(crate) fn collect(&mut self) -> Vec<(Done, Outcome)> {
        for completion in self.ring.completion() {
            let place = completion.user_data() as usize;
            let Some(operation) = self.slab.get_mut(place).and_then(Option::take) else { continue };
            self.free.push(place);
            if self.wake == Some(place) {
                self.wake = None;
                continue;
            }
            self.in_flight -= usize::from(operation.is_counted());
            let code = completion.result();
            let result = u32::try_from(code).map_err(|_| io::Error::from_raw_os_error(-code));
            self.finished.push((operation.done, Outcome { result, buffer: operation.request.into_buffer() }));
        }
        std::mem::take(&mut self.finished)
    }

    /// Gives `collect` back its emptied vector.
    pub(crate) fn reuse(&mut self, finished: Vec<(Done, Outcome)>) {
        self.finished = finished;
    }

    /// Refuses operations from now on; waits until nothing is in flight, cancels what takes too long, leaks
    /// what even then stays. The operations that were in flight.
    pub(crate) fn close(&mut self) -> Vec<(Done, Outcome)> {
        self.closed = true;
        // Ends the wake-up read; if this fails the read is cancelled below.
        let _ = (&*self.event).write(&1u64.to_ne_bytes());
        self.cancel_waits(|_| true);
        let mut finished = self.wait_for_all();
        if self.has_operations() {
            let patience = Timespec::from(CLOSE_PATIENCE);
            // Whether or not it found all of them, only the completions count.
            let _ = self.ring.submitter().register_sync_cancel(Some(patience), CancelBuilder::any());
            finished.extend(self.wait_for_all());
        }
        if self.has_operations() {
            std::mem::forget(std::mem::take(&mut self.slab));
        }
        finished
    }

    /// Cancels the operations that wait for other processes and have no time limit, of the files that `of` says.
    pub(crate) fn cancel_waits(&mut self, of: impl Fn(&Arc<File>) -> bool) {
        // The kernel can cancel only what it has been given.
        self.submit();
        let waits = |operation: &Option<Operation>| {
            operation.as_ref().is_some_and(|operation| {
                matches!(operation.request, Request::Readable | Request::Writable) && of(&operation.file)
            })
        };
        for place in (0..self.slab.len()).filter(|&place| waits(&self.slab[place])) {
            let wait = CancelBuilder::user_data(place as u64);
            // If it has just ended by itself, there is nothing to cancel.
            let _ = self.ring.submitter().register_sync_cancel(Some(Timespec::from(CLOSE_PATIENCE)), wait);
        }
    }

    fn has_operations(&self) -> bool {
        self.slab.iter().flatten().any(Operation::is_counted)
    }

    /// Gives up when nothing has completed for `CLOSE_PATIENCE`.
    fn wait_for_all(&mut self) -> Vec<(Done, Outcome)> {
        let mut finished = self.collect();
        while self.has_operations() {
            let before = self.free.len();
            self.enter(1, Some(CLOSE_PATIENCE));
            finished.extend(self.collect());
            if self.free.len() == before {
                break;
            }
        }
        finished
    }
}

impl Drop for Uring {
    fn drop(&mut self) {
        // Its runtime has closed it already; this is for a ring that never got one.
        drop(self.close());
    }
}

/// The kernel transfers at most 2 GiB less a page in one operation and says how much it did, so a longer
/// range is only a short transfer.
fn length(memory: &[u8]) -> u32 {
    u32::try_from(memory.len()).unwrap_or(u32::MAX)
}

/// A ring whose completions are worked on only when its one thread asks: fewer interruptions. Linux 6.1.
fn deferring(length: u32) -> io::Result<IoUring> {
    IoUring::builder()
        .setup_single_issuer()
        .setup_defer_taskrun()
        .setup_taskrun_flag()
        .dontfork()
        .build(length)
}

/// A ring for kernels that have no such thing.
fn plain(length: u32) -> io::Result<IoUring> {
    IoUring::builder().dontfork().build(length)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use rustix::event::{EventfdFlags, eventfd};

    use super::*;

    /// Reads a file again and again, waiting as the executor does.
    fn reads_complete(ring: IoUring) {
        let event = Arc::new(File::from(eventfd(0, EventfdFlags::CLOEXEC).unwrap()));
        let mut uring = Uring::from_ring(ring, 2, event.clone());
        let file = Arc::new(tempfile::tempfile().unwrap());
        file.set_len(4096).unwrap();
        let read = Rc::new(Cell::new(0));
        for _ in 0..20 {
            for offset in [0, 4000] {
                let total = read.clone();
                let operation = Operation {
                    file: file.clone(),
                    request: Request::Read { buffer: Buffer::new(4096), bytes: 4096, offset },
                    done: Box::new(move |outcome| total.set(total.get() + outcome.result.unwrap())),
                };
                assert!(uring.queue(operation).is_ok());
            }
            assert_eq!(uring.room(), 0);
            while uring.in_flight() > 0 {
                uring.park(None);
                let mut finished = uring.collect();
                finished.drain(..).for_each(|(done, outcome)| done(outcome));
                uring.reuse(finished);
            }
        }
        assert_eq!(read.get(), 20 * (4096 + 96));
        // With nothing in flight, only the event or the timeout ends a park.
        (&*event).write_all(&1_u64.to_ne_bytes()).unwrap();
        uring.park(None);
        uring.park(Some(Duration::from_millis(1)));
        assert!(uring.collect().is_empty());
        assert!(uring.close().is_empty());
    }

    #[test]
    fn reads_complete_on_either_kind_of_ring() {
        reads_complete(plain(2).unwrap());
        match deferring(2) {
            Ok(ring) => reads_complete(ring),
            Err(error) => assert_eq!(error.raw_os_error(), Some(libc::EINVAL), "only an old kernel refuses"),
        }
    }

    /// Runs one operation to its end; the bytes it transferred.
    fn run(uring: &mut Uring, file: &Arc<File>, request: Request) -> u32 {
        let bytes = Rc::new(Cell::new(None));
        let seen = bytes.clone();
        let done = Box::new(move |outcome: Outcome| seen.set(Some(outcome.result.unwrap())));
        assert!(uring.queue(Operation { file: file.clone(), request, done }).is_ok());
        loop {
            uring.park(None);
            uring.collect().into_iter().for_each(|(done, outcome)| done(outcome));
            if let Some(bytes) = bytes.get() {
                return bytes;
            }
        }
    }

    /// Pages of the file that are in the host's page cache only, by `cachestat` (Linux 6.5, number 451 on
    /// every architecture but alpha). None if this kernel does not say.
    fn dirty_pages(file: &File) -> Option<u64> {
        // Offset and length, where 0 means to the end; then cached, dirty, in writeback, evicted twice.
        let (range, mut counts) = ([0_u64; 2], [0_u64; 5]);
        // SAFETY: both arrays have the layout and size of the structures the call takes.
        let code = unsafe { libc::syscall(451, file.as_raw_fd(), range.as_ptr(), counts.as_mut_ptr(), 0) };
        (code == 0).then_some(counts[1] + counts[2])
    }

    /// No flush lies: what is said to be durable is not in the page cache alone. The plain write is the
    /// control that shows the measure to work.
    #[test]
    fn dsync_and_fdatasync_leave_nothing_dirty() {
        let event = Arc::new(File::from(eventfd(0, EventfdFlags::CLOEXEC).unwrap()));
        let mut uring = Uring::new(2, event).unwrap();
        let file = tempfile::tempfile_in(env!("CARGO_MANIFEST_DIR")).or_else(|_| tempfile::tempfile());
        let file = Arc::new(file.unwrap());
        let memory_only = rustix::fs::fstatfs(&*file).unwrap().f_type == libc::TMPFS_MAGIC as _;
        if memory_only || dirty_pages(&file).is_none() {
            return;
        }
        let mut buffers = [Buffer::new(4096)];
        uring.register(&mut buffers[0]).unwrap();
        let [fixed] = buffers;
        for buffer in [Rc::new(fixed), Rc::new(Buffer::new(4096))] {
            let write =
                |offset, dsync| Request::Write { buffer: buffer.clone(), range: 0..4096, offset, dsync };
            assert_eq!(run(&mut uring, &file, write(0, true)), 4096);
            assert_eq!(dirty_pages(&file), Some(0));
            assert_eq!(run(&mut uring, &file, write(4096, false)), 4096);
            assert_eq!(dirty_pages(&file), Some(1));
            assert_eq!(run(&mut uring, &file, Request::Datasync), 0);
            assert_eq!(dirty_pages(&file), Some(0));
        }
    }
}
