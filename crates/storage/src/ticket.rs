//! A *ticket* is what submitting a command gives back. Awaiting it is Wait-on-Transfer; not awaiting it
//! is Wait-on-Dispatch, and that is all the difference the papers are about.
//!
//! A ticket has two phases: *transferred*, and, where the device can tell, *durable*. A device holds the
//! other end, the [`Completer`]. A log needs neither: its tickets are transferred from the start, and
//! durable when its [`Watermark`] has passed them, so that a write into a log allocates nothing.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use event_listener::Event;
use weir_runtime::Buffer;

use crate::error::StorageError;

type Phase = Option<Result<(), StorageError>>;

/// The caller's end of a submitted command. Cheap to clone; dropping it changes nothing.
#[derive(Clone)]
pub struct Ticket(State);

#[derive(Clone)]
enum State {
    /// Finished at submission, successfully.
    Done,
    /// A device will complete it.
    Pending(Rc<Shared>),
    /// In a log at this sequence number: transferred now, durable when the watermark has passed it.
    Logged { watermark: Rc<Watermark>, sequence: u64 },
}

struct Shared {
    transferred: Cell<Phase>,
    durable: Cell<Phase>,
    data: RefCell<Option<Buffer>>,
    changed: Event,
}

impl Shared {
    fn settle(&self, phase: &Cell<Phase>, result: Result<(), StorageError>) {
        if phase.get().is_none() {
            phase.set(Some(result));
            self.changed.notify(usize::MAX);
        }
    }

    async fn settled(&self, phase: &Cell<Phase>) -> Result<(), StorageError> {
        loop {
            if let Some(result) = phase.get() {
                return result;
            }
            self.changed.listen().await;
        }
    }
}

impl Ticket {
    /// A ticket that was finished, transferred and durable, at submission.
    #[must_use]
    pub fn done() -> Ticket {
        Ticket(State::Done)
    }

    /// A ticket and the device's end of it.
    #[must_use]
    pub fn pending() -> (Ticket, Completer) {
        let shared = Rc::new(Shared {
            transferred: Cell::new(None),
            durable: Cell::new(None),
            data: RefCell::new(None),
            changed: Event::new(),
        });
        (Ticket(State::Pending(Rc::clone(&shared))), Completer(shared))
    }

    /// The ticket of a record that has its place in a log at `sequence`.
    #[must_use]
    pub fn logged(watermark: &Rc<Watermark>, sequence: u64) -> Ticket {
        Ticket(State::Logged { watermark: Rc::clone(watermark), sequence })
    }

    /// The first phase, if it is over: `None` while the command is in flight.
    #[must_use]
    pub fn poll_transferred(&self) -> Option<Result<(), StorageError>> {
        match &self.0 {
            State::Done | State::Logged { .. } => Some(Ok(())),
            State::Pending(shared) => shared.transferred.get(),
        }
    }

    /// Waits until the command's data is in the device's cache (a read: in memory; a flush: until it
    /// has done its work). This is Wait-on-Transfer.
    ///
    /// # Errors
    /// Whatever the device reported; [`StorageError::Gone`] if it went away.
    pub async fn transferred(&self) -> Result<(), StorageError> {
        match &self.0 {
            State::Done | State::Logged { .. } => Ok(()),
            State::Pending(shared) => shared.settled(&shared.transferred).await,
        }
    }

    /// Waits until the write is on the medium.
    ///
    /// # Errors
    /// [`StorageError::DurabilityUnknown`] where the device cannot tell, otherwise what it reported.
    pub async fn durable(&self) -> Result<(), StorageError> {
        match &self.0 {
            State::Done => Ok(()),
            State::Pending(shared) => shared.settled(&shared.durable).await,
            State::Logged { watermark, sequence } => watermark.passed(*sequence).await,
        }
    }

    /// The data of a finished read; the first caller gets it.
    #[must_use]
    pub fn take_data(&self) -> Option<Buffer> {
        match &self.0 {
            State::Pending(shared) => shared.data.borrow_mut().take(),
            State::Done | State::Logged { .. } => None,
        }
    }
}

/// The device's end of a [`Ticket`]. Dropped before it has answered, it fails the ticket with
/// [`StorageError::Gone`], so that nobody waits for a device that is no more.
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

/// How far a log is durable: every sequence number below or at the mark is on the medium.
pub struct Watermark {
    durable: Cell<u64>,
    failed: Cell<Option<StorageError>>,
    changed: Event,
}

impl Watermark {
    /// A watermark at `durable`.
    #[must_use]
    pub fn new(durable: u64) -> Rc<Watermark> {
        Rc::new(Watermark { durable: Cell::new(durable), failed: Cell::new(None), changed: Event::new() })
    }

    /// The last sequence number known durable.
    #[must_use]
    pub fn durable(&self) -> u64 {
        self.durable.get()
    }

    /// Moves the mark forward; it never goes back, and never moves after a failure.
    pub fn advance(&self, durable: u64) {
        if durable > self.durable.get() && self.failed.get().is_none() {
            self.durable.set(durable);
            self.changed.notify(usize::MAX);
        }
    }

    /// Fails everything behind the mark, now and from now on.
    pub fn fail(&self, error: StorageError) {
        if self.failed.get().is_none() {
            self.failed.set(Some(error));
            self.changed.notify(usize::MAX);
        }
    }

    /// Why the log failed, if it did.
    #[must_use]
    pub fn failure(&self) -> Option<StorageError> {
        self.failed.get()
    }

    /// Waits until `sequence` is durable.
    ///
    /// # Errors
    /// The failure of the log, if it failed first.
    pub async fn passed(&self, sequence: u64) -> Result<(), StorageError> {
        loop {
            if sequence <= self.durable.get() {
                return Ok(());
            }
            if let Some(error) = self.failed.get() {
                return Err(error);
            }
            self.changed.listen().await;
        }
    }
}
