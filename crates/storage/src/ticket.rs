//! A *ticket* is what submitting a command gives back. Awaiting it is Wait-on-Transfer; not awaiting it
//! is Wait-on-Dispatch, and that is all the difference the papers are about.
//!
//! A ticket has two phases: *transferred*, and, where the device can tell, *durable*. A device holds the
//! other end, the [`Completer`]. A log needs neither: its tickets are transferred from the start, and
//! durable when its [`Watermark`] has passed them, so that a write into a log allocates nothing.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Poll, Waker};

use event_listener::Event;
use smallvec::SmallVec;
use weir_runtime::Buffer;

use crate::error::StorageError;

type Phase = Option<Result<(), StorageError>>;

/// The caller's end of a submitted command. Cheap to clone; dropping it changes nothing.
#[derive(Clone)]
pub struct Ticket(TicketState);

#[derive(Clone)]
enum TicketState {
    /// Finished at submission, successfully.
    Done,
    /// A device will complete it.
    Pending(Rc<Shared>),
    /// In a log at this sequence number.
    Logged { watermark: Rc<Watermark>, sequence: u64, transferred: LogPhase },
}

/// When the ticket of a record in a log counts as transferred.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogPhase {
    /// At submission: the record has its place in the log.
    Placed,
    /// When the disk below has taken the record.
    OnDisk,
    /// When the record is durable (FUA, and the ticket of a flush).
    Durable,
}

struct Shared {
    transferred: Cell<Phase>,
    durable: Cell<Phase>,
    data: RefCell<Option<Buffer>>,
    /// The tasks to wake at each change: almost always one, or none, which needs no allocation.
    watchers: RefCell<SmallVec<[Waker; 1]>>,
}

impl Shared {
    fn settle(&self, phase: &Cell<Phase>, result: Result<(), StorageError>) {
        if phase.get().is_none() {
            phase.set(Some(result));
            let watchers = std::mem::take(&mut *self.watchers.borrow_mut());
            watchers.into_iter().for_each(Waker::wake);
        }
    }

    async fn settled(&self, phase: &Cell<Phase>) -> Result<(), StorageError> {
        poll_fn(|context| match phase.get() {
            Some(result) => Poll::Ready(result),
            None => {
                self.watch(context.waker());
                Poll::Pending
            }
        })
        .await
    }

    /// Wakes `waker` when a phase ends; once, however often it is asked to.
    fn watch(&self, waker: &Waker) {
        let mut watchers = self.watchers.borrow_mut();
        if !watchers.iter().any(|known| known.will_wake(waker)) {
            watchers.push(waker.clone());
        }
    }
}

impl Ticket {
    /// A ticket that was finished, transferred and durable, at submission.
    #[must_use]
    pub fn done() -> Ticket {
        Ticket(TicketState::Done)
    }

    /// A ticket of a command that failed at submission.
    #[must_use]
    pub fn failed(error: StorageError) -> Ticket {
        let (ticket, completer) = Ticket::pending();
        completer.transferred(Err(error));
        ticket
    }

    /// A ticket and the device's end of it.
    #[must_use]
    pub fn pending() -> (Ticket, Completer) {
        let shared = Rc::new(Shared {
            transferred: Cell::new(None),
            durable: Cell::new(None),
            data: RefCell::new(None),
            watchers: RefCell::default(),
        });
        (Ticket(TicketState::Pending(Rc::clone(&shared))), Completer(shared))
    }

    /// The ticket of a record that has its place in a log at `sequence`, and counts as transferred
    /// when `transferred` says.
    #[inline]
    #[must_use]
    pub fn logged(watermark: &Rc<Watermark>, sequence: u64, transferred: LogPhase) -> Ticket {
        Ticket(TicketState::Logged { watermark: Rc::clone(watermark), sequence, transferred })
    }

    /// The first phase, if it is over: `None` while the command is in flight.
    #[inline]
    #[must_use]
    pub fn poll_transferred(&self) -> Option<Result<(), StorageError>> {
        match &self.0 {
            TicketState::Done => Some(Ok(())),
            TicketState::Pending(shared) => shared.transferred.get(),
            TicketState::Logged { watermark, sequence, transferred } => match transferred {
                LogPhase::Placed => Some(Ok(())),
                LogPhase::OnDisk => watermark.poll(&watermark.transferred, *sequence),
                LogPhase::Durable => watermark.poll(&watermark.durable, *sequence),
            },
        }
    }

    /// Waits until the command's data is in the device's cache (a read: in memory; a flush: until it
    /// has done its work). This is Wait-on-Transfer.
    ///
    /// # Errors
    /// Whatever the device reported; [`StorageError::Gone`] if it went away.
    pub async fn transferred(&self) -> Result<(), StorageError> {
        match &self.0 {
            TicketState::Done => Ok(()),
            TicketState::Pending(shared) => shared.settled(&shared.transferred).await,
            TicketState::Logged { watermark, sequence, transferred } => match transferred {
                LogPhase::Placed => Ok(()),
                LogPhase::OnDisk => watermark.until_transferred(*sequence).await,
                LogPhase::Durable => watermark.until_durable(*sequence).await,
            },
        }
    }

    /// Waits until the write is on the medium.
    ///
    /// # Errors
    /// [`StorageError::DurabilityUnknown`] where the device cannot tell, otherwise what it reported.
    pub async fn durable(&self) -> Result<(), StorageError> {
        match &self.0 {
            TicketState::Done => Ok(()),
            TicketState::Pending(shared) => shared.settled(&shared.durable).await,
            TicketState::Logged { watermark, sequence, .. } => watermark.until_durable(*sequence).await,
        }
    }

    /// Wakes `waker` when the next phase of a command in flight ends, so that a task that looks after many
    /// commands needs no future for each. False for tickets that wake no task: finished ones, and those of a log.
    #[must_use]
    pub fn watch(&self, waker: &Waker) -> bool {
        let TicketState::Pending(shared) = &self.0 else { return false };
        shared.watch(waker);
        true
    }

    /// The data of a finished read; the first caller gets it.
    #[must_use]
    pub fn take_data(&self) -> Option<Buffer> {
        match &self.0 {
            TicketState::Pending(shared) => shared.data.borrow_mut().take(),
            TicketState::Done | TicketState::Logged { .. } => None,
        }
    }
}

/// The device's end of a [`Ticket`]. Dropped before it has answered, it fails the ticket with
/// [`StorageError::Gone`], so that no task waits for a device that is no more.
pub struct Completer(Rc<Shared>);

impl Completer {
    /// Ends the first phase.
    pub fn transferred(&self, result: Result<(), StorageError>) {
        if result.is_err() {
            self.durable(result);
        }
        self.0.settle(&self.0.transferred, result);
    }

    /// Ends the second phase. A device that cannot tell answers [`StorageError::DurabilityUnknown`].
    pub fn durable(&self, result: Result<(), StorageError>) {
        self.0.settle(&self.0.durable, result);
    }

    /// Ends both phases at once, for reads, flushes and devices that cannot tell when a write is durable.
    pub fn finish(&self, result: Result<(), StorageError>, durable: Result<(), StorageError>) {
        self.0.settle(&self.0.durable, result.and(durable));
        self.0.settle(&self.0.transferred, result);
    }

    /// Hands over what a read found; call before the first phase ends.
    pub fn data(&self, data: Buffer) {
        *self.0.data.borrow_mut() = Some(data);
    }
}

impl Drop for Completer {
    fn drop(&mut self) {
        self.0.settle(&self.0.durable, Err(StorageError::Gone));
        self.0.settle(&self.0.transferred, Err(StorageError::Gone));
    }
}

/// How far a log has come: every sequence number at or below the mark has. Marks only move forward.
#[derive(Default)]
struct Mark {
    at: Cell<u64>,
    changed: Event,
}

impl Mark {
    fn advance(&self, to: u64) {
        if to > self.at.get() {
            self.at.set(to);
            self.changed.notify(usize::MAX);
        }
    }
}

/// How far a log is transferred and durable, for all its tickets together.
pub struct Watermark {
    transferred: Mark,
    durable: Mark,
    failed: Cell<Option<StorageError>>,
}

impl Watermark {
    /// A watermark with everything up to `sequence` durable.
    #[must_use]
    pub fn new(sequence: u64) -> Rc<Watermark> {
        let watermark =
            Watermark { transferred: Mark::default(), durable: Mark::default(), failed: Cell::new(None) };
        watermark.durable(sequence);
        Rc::new(watermark)
    }

    /// The last sequence number whose record the disk below has taken.
    #[must_use]
    pub fn transferred_to(&self) -> u64 {
        self.transferred.at.get()
    }

    /// The last sequence number known durable.
    #[must_use]
    pub fn durable_to(&self) -> u64 {
        self.durable.at.get()
    }

    /// Everything up to `sequence` is transferred to the disk below.
    pub fn transferred(&self, sequence: u64) {
        if self.failed.get().is_none() {
            self.transferred.advance(sequence);
        }
    }

    /// Everything up to `sequence` is durable, and so transferred. Without effect after a failure.
    pub fn durable(&self, sequence: u64) {
        if self.failed.get().is_none() {
            self.transferred.advance(sequence);
            self.durable.advance(sequence);
        }
    }

    /// Fails everything behind the marks, now and from now on.
    pub fn fail(&self, error: StorageError) {
        if self.failed.get().is_none() {
            self.failed.set(Some(error));
            self.transferred.changed.notify(usize::MAX);
            self.durable.changed.notify(usize::MAX);
        }
    }

    /// Why the log failed, if it did.
    #[must_use]
    pub fn failure(&self) -> Option<StorageError> {
        self.failed.get()
    }

    /// Waits until `sequence` is transferred to the disk below.
    ///
    /// # Errors
    /// The failure of the log, if it failed first.
    pub async fn until_transferred(&self, sequence: u64) -> Result<(), StorageError> {
        self.until(&self.transferred, sequence).await
    }

    /// Waits until `sequence` is durable.
    ///
    /// # Errors
    /// The failure of the log, if it failed first.
    pub async fn until_durable(&self, sequence: u64) -> Result<(), StorageError> {
        self.until(&self.durable, sequence).await
    }

    fn poll(&self, mark: &Mark, sequence: u64) -> Option<Result<(), StorageError>> {
        if sequence <= mark.at.get() { Some(Ok(())) } else { self.failed.get().map(Err) }
    }

    async fn until(&self, mark: &Mark, sequence: u64) -> Result<(), StorageError> {
        loop {
            if let Some(result) = self.poll(mark, sequence) {
                return result;
            }
            mark.changed.listen().await;
        }
    }
}
