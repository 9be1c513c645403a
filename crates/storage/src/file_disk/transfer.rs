//! Commands as ring operations. A command in flight is a [`Job`]: one operation for each contiguous piece of
//! it, and one ticket, answered when the last operation has ended.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, ErrorKind};
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use event_listener::Event;
use rustix::fs::SeekFrom;
use weir_runtime::{Buffer, Handle, Outcome, Ring};

use super::FileDiskOptions;
use super::mutants::FileDiskMutant;
use super::orders::Orders;
use super::pool::Pool;
use crate::address::{BLOCK_BYTES, Extent, Lba};
use crate::command::{Command, CommandKind, Data, Part, Tag, Write};
use crate::error::{Rejected, StorageError};
use crate::flush_sharing::{FlushRound, FlushSharing};
use crate::rules::Rules;
use crate::ticket::{Completer, Ticket};

/// A command of at least this many bytes is handed to the kernel at once; smaller ones wait for company
/// until the executor turns, which saves a system call each.
const HAND_OVER_BYTES: usize = 64 << 10;

/// How often a disk with nothing of its own in a full ring looks again.
const RETRY: Duration = Duration::from_micros(100);

/// One command in flight.
struct Job {
    completer: Completer,
    kind: CommandKind,
    at: Lba,
    fua: bool,
    tags: Vec<Tag>,
    operations_left: Cell<u32>,
    error: Cell<Option<StorageError>>,
}

/// One ring operation that has not been accepted by the ring yet.
enum Operation {
    Read { job: Rc<Job>, extent: Extent },
    Write { job: Rc<Job>, buffer: Rc<Buffer>, range: Range<usize>, offset: u64, pooled: bool },
    Punch { job: Rc<Job>, extent: Extent },
    Sync { round: FlushRound, waiters: Vec<Completer>, covered: Vec<Tag> },
}

/// The part of a file disk that outlives it while commands are in flight.
pub(super) struct Engine {
    handle: Handle,
    ring: Ring,
    file: Arc<File>,
    /// What lies below the file, locked as it is.
    below: Vec<File>,
    pool: Pool,
    queue_depth: u32,
    rules: Rules<FileDiskMutant>,
    in_flight: Cell<u32>,
    slots: Event,
    poisoned: Cell<bool>,
    orders: Orders,
    /// One `fdatasync` at a time may be in flight.
    flushes: Rc<FlushSharing>,
    /// Flush commands that the next one answers. Those of the one in flight go with it: if the ring drops it, they are
    /// answered.
    waiting: RefCell<Vec<Completer>>,
    /// Operations that the ring had no room for, oldest first; bounded by the commands in flight.
    backlog: RefCell<VecDeque<Operation>>,
    in_ring: Cell<u32>,
    retrying: Cell<bool>,
}

impl Drop for Engine {
    /// Releases the lock. Nothing is in flight any more, but the kernel's ring may release the file itself only a
    /// moment later, and the next process that opens it would find it in use.
    fn drop(&mut self) {
        for file in self.below.iter().chain([&*self.file]) {
            let _ = file.unlock();
        }
    }
}

impl Engine {
    /// On a file, and the files below it that are locked with it.
    pub(super) fn new(
        handle: &Handle,
        ring: Ring,
        (file, below): (File, Vec<File>),
        options: &FileDiskOptions,
    ) -> Rc<Engine> {
        Rc::new(Engine {
            handle: handle.clone(),
            pool: Pool::new(ring.clone()),
            ring,
            file: Arc::new(file),
            below,
            queue_depth: options.queue_depth,
            rules: options.rules,
            in_flight: Cell::new(0),
            slots: Event::new(),
            poisoned: Cell::new(false),
            orders: Orders::default(),
            flushes: Rc::default(),
            waiting: RefCell::default(),
            backlog: RefCell::default(),
            in_ring: Cell::new(0),
            retrying: Cell::new(false),
        })
    }

    pub(super) fn handle(&self) -> &Handle {
        &self.handle
    }

    pub(super) fn file(&self) -> &Arc<File> {
        &self.file
    }

    pub(super) fn orders(&self) -> &Orders {
        &self.orders
    }

    pub(super) fn slots(&self) -> &Event {
        &self.slots
    }

    pub(super) fn poisoned(&self) -> bool {
        self.poisoned.get()
    }

    pub(super) fn allocate(&self, bytes: usize) -> Buffer {
        let mut buffer = Buffer::new(bytes);
        // Registered is faster; a full table is no reason to fail.
        let _ = self.ring.register(std::slice::from_mut(&mut buffer));
        buffer
    }

    /// The first byte from `from` on that is in no hole of the file; `None` if only a hole is left.
    pub(super) fn next_data(&self, from: u64) -> io::Result<Option<u64>> {
        match rustix::fs::seek(&*self.file, SeekFrom::Data(from)) {
            Ok(byte) => Ok(Some(byte)),
            Err(rustix::io::Errno::NXIO) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Starts a command that was checked against the capabilities.
    pub(super) fn submit(self: &Rc<Self>, command: Command<'_>) -> Result<Ticket, Rejected> {
        if self.in_flight.get() >= self.queue_depth {
            return Err(Rejected::Busy);
        }
        self.in_flight.set(self.in_flight.get() + 1);
        let (ticket, completer) = Ticket::pending();
        if let Command::Flush = command {
            self.flushes.ask();
            self.waiting.borrow_mut().push(completer);
            self.flush_next();
            return Ok(ticket);
        }
        let job = Rc::new(Job {
            completer,
            kind: command.kind(),
            at: address(&command),
            fua: matches!(command, Command::Write(write) if write.flags.fua),
            tags: self.orders.tags(&command),
            // One more than there are operations, so that none of them is taken for the last.
            operations_left: Cell::new(1),
            error: Cell::new(None),
        });
        match command {
            Command::Read { extent, .. } => {
                self.start_part(&job, Operation::Read { job: job.clone(), extent })
            }
            Command::Write(write) => self.write(&job, &write),
            Command::Discard(extents) => {
                for &extent in extents {
                    self.start_part(&job, Operation::Punch { job: job.clone(), extent });
                }
            }
            // Their capabilities are off, so none arrives; a storage may still not panic on input.
            Command::Flush | Command::Barrier { .. } | Command::Share(_) | Command::Packed(_) => {}
        }
        self.part_ended(&job, Ok(()));
        Ok(ticket)
    }

    fn write(self: &Rc<Self>, job: &Rc<Job>, write: &Write<'_>) {
        let mut rest = write.parts;
        let mut bytes = 0;
        while let Some(first) = rest.first() {
            let (run, behind) = rest.split_at(run_length(rest));
            rest = behind;
            let operation = self.write_run(job, first, run);
            bytes += operation_bytes(&operation);
            self.start_part(job, operation);
        }
        if bytes >= HAND_OVER_BYTES {
            self.ring.submit();
        }
    }

    /// One operation for a run of parts: a share of a frozen buffer, or a copy of borrowed bytes.
    fn write_run(&self, job: &Rc<Job>, first: &Part<'_>, run: &[Part<'_>]) -> Operation {
        let (buffer, range, pooled) = match first.data {
            Data::Shared { buffer, offset, bytes } if !must_copy(first) => {
                (Rc::clone(buffer), offset..offset + bytes, false)
            }
            _ => {
                let bytes = run.iter().map(|part| part.data.bytes().len()).sum();
                (self.pool.copy(run.iter().map(|part| part.data.bytes()), bytes), 0..bytes, true)
            }
        };
        Operation::Write { job: job.clone(), buffer, range, offset: offset_of(first.start), pooled }
    }

    fn start_part(self: &Rc<Self>, job: &Rc<Job>, operation: Operation) {
        job.operations_left.set(job.operations_left.get() + 1);
        self.start(operation);
    }

    /// Hands an operation to the ring, or keeps it until the ring has room.
    fn start(self: &Rc<Self>, operation: Operation) {
        self.backlog.borrow_mut().push_back(operation);
        self.hand_over();
    }

    fn hand_over(self: &Rc<Self>) {
        while self.ring.room() > 0 {
            let Some(operation) = self.backlog.borrow_mut().pop_front() else { return };
            self.in_ring.set(self.in_ring.get() + 1);
            self.operate(operation);
        }
        // With operations of its own in the ring, the next completion comes here again.
        if self.in_ring.get() == 0 && !self.backlog.borrow().is_empty() && !self.retrying.replace(true) {
            let engine = Rc::clone(self);
            drop(self.handle.spawn(async move {
                engine.handle.sleep(RETRY).await;
                engine.retrying.set(false);
                engine.hand_over();
            }));
        }
    }

    /// Hands an operation to a ring that has room. If the ring refuses all the same, its runtime is gone:
    /// the callback is dropped, and with it the ticket's other end, which answers `Gone`.
    fn operate(self: &Rc<Self>, operation: Operation) {
        let engine = Rc::clone(self);
        let refused = match operation {
            Operation::Read { job, extent } => {
                // A short read is an error, so what the memory held before reaches no caller.
                let buffer = Buffer::unfilled(extent.bytes());
                let done = move |outcome| engine.read_ended(&job, extent, outcome);
                self.ring.read(&self.file, buffer, extent.bytes(), offset_of(extent.start), done).is_err()
            }
            Operation::Write { job, buffer, range, offset, pooled } => {
                let (shared, wanted, dsync) = (Rc::clone(&buffer), range.clone(), job.fua);
                let done = move |outcome: Outcome| {
                    engine.write_ended(job, buffer, range, offset, pooled, outcome.result);
                };
                self.ring.write(&self.file, shared, wanted, offset, dsync, done).is_err()
            }
            Operation::Punch { job, extent } => {
                let done = move |outcome: Outcome| {
                    engine.left_ring();
                    engine.part_ended(&job, outcome.result.map(|_| ()));
                };
                self.ring
                    .punch_hole(&self.file, offset_of(extent.start), extent.bytes() as u64, done)
                    .is_err()
            }
            Operation::Sync { round, waiters, covered } => {
                let done =
                    move |outcome: Outcome| engine.flush_ended(round, &waiters, &covered, outcome.result);
                self.ring.fdatasync(&self.file, done).is_err()
            }
        };
        if refused {
            self.left_ring();
        }
    }

    fn left_ring(self: &Rc<Self>) {
        self.in_ring.set(self.in_ring.get() - 1);
        self.hand_over();
    }

    fn read_ended(self: &Rc<Self>, job: &Rc<Job>, extent: Extent, outcome: Outcome) {
        self.left_ring();
        let result = outcome.result.and_then(|bytes| match outcome.buffer {
            Some(buffer) if bytes as usize == extent.bytes() => {
                job.completer.data(buffer);
                Ok(())
            }
            // The kernel completes short reads of files itself: what is short ends at the end of the file,
            // which another process has cut.
            _ => Err(ErrorKind::UnexpectedEof.into()),
        });
        self.part_ended(job, result);
    }

    fn write_ended(
        self: &Rc<Self>,
        job: Rc<Job>,
        buffer: Rc<Buffer>,
        range: Range<usize>,
        offset: u64,
        pooled: bool,
        result: io::Result<u32>,
    ) {
        self.left_ring();
        let result = match result {
            Ok(0) => Err(ErrorKind::WriteZero.into()),
            Ok(bytes)
                if (bytes as usize) < range.len() && !self.rules.drops(FileDiskMutant::ShortWriteIsWhole) =>
            {
                let range = range.start + bytes as usize..range.end;
                let offset = offset + u64::from(bytes);
                return self.start(Operation::Write { job, buffer, range, offset, pooled });
            }
            other => other.map(|_| ()),
        };
        if pooled {
            self.pool.give_back(buffer);
        }
        self.part_ended(&job, result);
    }

    /// One operation of the command has ended; the last one answers its ticket.
    fn part_ended(&self, job: &Job, result: io::Result<()>) {
        if let Err(e) = result {
            job.error.set(job.error.get().or(Some(failure(job.kind, job.at, &e))));
        }
        job.operations_left.set(job.operations_left.get() - 1);
        if job.operations_left.get() > 0 {
            return;
        }
        let result = job.error.get().map_or(Ok(()), Err);
        if job.fua && result.is_err() {
            self.poisoned.set(true);
        }
        self.orders.ended(&job.tags, job.fua, result.is_ok());
        // A plain write is transferred; the drive does not tell when it destages it.
        let unknown = job.kind != CommandKind::Read && !job.fua;
        let durable = if unknown { Err(StorageError::DurabilityUnknown) } else { Ok(()) };
        self.answer(&job.completer, result, durable);
    }

    fn answer(
        &self,
        completer: &Completer,
        result: Result<(), StorageError>,
        durable: Result<(), StorageError>,
    ) {
        self.in_flight.set(self.in_flight.get() - 1);
        completer.finish(result, durable);
        self.slots.notify_additional(1);
    }

    /// Starts the next `fdatasync` for all flush commands that wait, unless one is running.
    fn flush_next(self: &Rc<Self>) {
        if self.flushes.is_under_way() || self.waiting.borrow().is_empty() {
            return;
        }
        let mut round = self.flushes.begin();
        round.will_cover(self.flushes.asked());
        let waiters = self.waiting.take();
        let covered = self.orders.covered();
        self.start(Operation::Sync { round, waiters, covered });
    }

    fn flush_ended(
        self: &Rc<Self>,
        round: FlushRound,
        waiters: &[Completer],
        covered: &[Tag],
        result: io::Result<u32>,
    ) {
        self.left_ring();
        let result = match result {
            Err(e) => Err(failure(CommandKind::Flush, Lba(0), &e)),
            // A FUA write failed meanwhile, and may have received the error of this flush.
            Ok(_) if self.poisoned.get() => Err(StorageError::Poisoned),
            Ok(_) => Ok(()),
        };
        match result {
            Ok(()) => self.orders.persisted(covered),
            Err(_) => self.poisoned.set(true),
        }
        round.end(result);
        let answer = |waiters: &[Completer], result| {
            waiters.iter().for_each(|waiter| self.answer(waiter, result, Ok(())));
        };
        answer(waiters, result);
        if self.rules.drops(FileDiskMutant::JoinsFlush) {
            answer(&self.waiting.take(), result);
        }
        if self.poisoned.get() {
            answer(&self.waiting.take(), Err(StorageError::Poisoned));
        }
        self.flush_next();
    }
}

/// The first block a command touches; block 0 for commands without an address.
pub(super) fn address(command: &Command<'_>) -> Lba {
    match command {
        Command::Read { extent, .. } => extent.start,
        Command::Write(write) => write.parts.first().map_or(Lba(0), |part| part.start),
        Command::Discard(extents) => extents.first().map_or(Lba(0), |extent| extent.start),
        Command::Barrier { .. } | Command::Flush | Command::Share(_) | Command::Packed(_) => Lba(0),
    }
}

/// How many of the first parts make one operation: adjacent ones that are copied anyway, else one.
fn run_length(parts: &[Part<'_>]) -> usize {
    let joins = |pair: &[Part<'_>]| {
        must_copy(&pair[0]) && must_copy(&pair[1]) && pair[0].extent().end() == pair[1].start
    };
    1 + parts.windows(2).take_while(|pair| joins(pair)).count()
}

/// Borrowed bytes, and shared ones that direct I/O could not read where they are.
fn must_copy(part: &Part<'_>) -> bool {
    match part.data {
        Data::Bytes(_) => true,
        Data::Shared { offset, .. } => offset % BLOCK_BYTES != 0,
    }
}

fn operation_bytes(operation: &Operation) -> usize {
    match operation {
        Operation::Write { range, .. } => range.len(),
        Operation::Read { extent, .. } | Operation::Punch { extent, .. } => extent.bytes(),
        Operation::Sync { .. } => 0,
    }
}

/// A block's place in the file; the block lies inside the file, so this cannot overflow.
fn offset_of(block: Lba) -> u64 {
    block.0 * BLOCK_BYTES as u64
}

/// The error for the layers above: error numbers of the system end here.
fn failure(command: CommandKind, at: Lba, error: &io::Error) -> StorageError {
    match error.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => StorageError::NoSpace,
        cause => StorageError::Device { command, at, cause },
    }
}
