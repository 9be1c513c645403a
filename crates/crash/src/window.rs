//! What is at stake when the power is cut: a [`Tap`] between volume and disk sees whether a checkpoint or
//! cleaning lies in the *window*, that is, in what the disk may still lose.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use weir_runtime::Handle;
use weir_storage::{AdversaryDisk, Command, Interposed, Rejected, Storage, Ticket};
use weir_volume::{Volume, VolumeError};

use crate::bound::Bound;
use crate::options::RunOptions;

/// A flush in flight, and what it will take out of the window.
struct Flush {
    ticket: Ticket,
    /// Cleaning had begun when the flush was submitted, and nothing was read for it since.
    cleaning: u64,
    checkpoint: u64,
}

/// What the window holds, seen from the commands that go by.
#[derive(Default)]
pub(crate) struct Window {
    /// Blocks of segments start here.
    segments_start: u64,
    /// Users, recovery included, that read now: only while there are none are reads surely the cleaner's.
    readers: Cell<u64>,
    /// Reads for cleaning, and writes for checkpoints, so far.
    cleaning_seen: Cell<u64>,
    checkpoint_seen: Cell<u64>,
    /// How many of them are durable or without trace.
    cleaning_settled: Cell<u64>,
    checkpoint_settled: Cell<u64>,
    flushes: RefCell<Vec<Flush>>,
}

impl Window {
    pub(crate) fn new(segments_start: u64) -> Window {
        Window { segments_start, ..Window::default() }
    }

    /// Until this is dropped, reads are not counted as the cleaner's.
    pub(crate) fn user_reads(self: &Rc<Window>) -> UserReads {
        self.readers.set(self.readers.get() + 1);
        UserReads(Rc::clone(self))
    }

    /// Whether a checkpoint is being written, and whether blocks were moved that are not durable.
    pub(crate) fn contents(&self) -> (bool, bool) {
        self.flushes.borrow_mut().retain(|flush| {
            let done = flush.ticket.poll_transferred() == Some(Ok(()));
            if done {
                self.cleaning_settled.set(self.cleaning_settled.get().max(flush.cleaning));
                self.checkpoint_settled.set(self.checkpoint_settled.get().max(flush.checkpoint));
            }
            !done
        });
        let open = |seen: &Cell<u64>, settled: &Cell<u64>| seen.get() > settled.get();
        (
            open(&self.checkpoint_seen, &self.checkpoint_settled),
            open(&self.cleaning_seen, &self.cleaning_settled),
        )
    }

    fn note(&self, command: &Command<'_>, ticket: &Ticket) {
        match command {
            Command::Read { extent, .. }
                if self.readers.get() == 0 && extent.start.0 >= self.segments_start =>
            {
                self.cleaning_seen.set(self.cleaning_seen.get() + 1);
            }
            Command::Write(write) if write.parts.iter().any(|part| part.start.0 < self.segments_start) => {
                self.checkpoint_seen.set(self.checkpoint_seen.get() + 1);
            }
            Command::Flush => self.flushes.borrow_mut().push(Flush {
                ticket: ticket.clone(),
                cleaning: self.cleaning_seen.get(),
                checkpoint: self.checkpoint_seen.get(),
            }),
            _ => {}
        }
    }
}

/// Somebody else than the cleaner reads; see [`Window::user_reads`].
pub(crate) struct UserReads(Rc<Window>);

impl Drop for UserReads {
    fn drop(&mut self) {
        self.0.readers.set(self.0.readers.get() - 1);
    }
}

/// A disk whose commands a [`Window`] sees.
pub(crate) struct Tap {
    disk: Rc<AdversaryDisk>,
    window: Rc<Window>,
    /// It acknowledges flushes, and the disk gets none: the negative control.
    ignores_flushes: bool,
}

impl Tap {
    /// Opens the volume of a run on a disk.
    pub(crate) async fn open_volume(
        handle: &Handle,
        options: &RunOptions,
        (disk, window): (&Rc<AdversaryDisk>, &Rc<Window>),
        bound: &Rc<Bound>,
    ) -> Result<Volume, VolumeError> {
        let (disk, window) = (Rc::clone(disk), Rc::clone(window));
        let tap = Rc::new(Tap { disk, window, ignores_flushes: options.ignores_flushes });
        Volume::open(handle, bound.around(tap), options.volume.clone()).await
    }
}

impl Interposed for Tap {
    fn below(&self) -> &dyn Storage {
        &*self.disk
    }

    fn take(&self, command: Command<'_>) -> Result<Ticket, Rejected> {
        let ticket = match command {
            Command::Flush if self.ignores_flushes => Ticket::done(),
            command => self.disk.submit(command)?,
        };
        self.window.note(&command, &ticket);
        Ok(ticket)
    }
}
