//! A *tap* sits between the block layer and the device, and measures how long commands take, each from its
//! dispatch to its answer.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use weir_flash::{FlashDevice, Stats};
use weir_runtime::Handle;
use weir_storage::{Capabilities, Command, Interposed, Rejected, Storage, Ticket};

/// Commands of one kind.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Kind {
    pub(crate) commands: u64,
    /// The time of all of them together.
    pub(crate) nanoseconds: u64,
}

impl Kind {
    fn add(&mut self, nanoseconds: u64) {
        self.commands += 1;
        self.nanoseconds += nanoseconds;
    }
}

/// What was measured.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Measured {
    /// Writes that are answered when they are transferred.
    pub(crate) writes: Kind,
    /// Writes that are answered when they are durable.
    pub(crate) durable_writes: Kind,
    pub(crate) flushes: Kind,
}

/// See the head of this file.
pub(crate) struct Tap {
    handle: Handle,
    device: Rc<FlashDevice>,
    capabilities: Capabilities,
    open: Cell<bool>,
    measured: Rc<RefCell<Measured>>,
}

/// Where a command counts.
type CounterOf = fn(&mut Measured) -> &mut Kind;

impl Tap {
    /// A tap on `device`. Without `fua`, the host does not use that: it flushes after a write instead.
    pub(crate) fn new(handle: &Handle, device: Rc<FlashDevice>, fua: bool) -> Rc<Tap> {
        let mut capabilities = *device.capabilities();
        capabilities.fua &= fua;
        Rc::new(Tap {
            handle: handle.clone(),
            device,
            capabilities,
            open: Cell::new(false),
            measured: Rc::default(),
        })
    }

    /// Commands count that are dispatched from now on; or no longer.
    pub(crate) fn open(&self, open: bool) {
        self.open.set(open);
    }

    pub(crate) fn measured(&self) -> Measured {
        *self.measured.borrow()
    }

    /// What the device has counted.
    pub(crate) fn stats(&self) -> Stats {
        self.device.stats()
    }

    fn watch(&self, ticket: &Ticket, place: CounterOf) {
        let (handle, measured, ticket) = (self.handle.clone(), Rc::clone(&self.measured), ticket.clone());
        let from = handle.now();
        let watch = async move {
            // Whoever submitted the command hears of its error.
            let _ = ticket.transferred().await;
            let took = handle.now().as_nanos() - from.as_nanos();
            place(&mut measured.borrow_mut()).add(took);
        };
        drop(self.handle.spawn(watch));
    }
}

impl Interposed for Tap {
    fn below(&self) -> &dyn Storage {
        &*self.device
    }

    fn claims(&self) -> &Capabilities {
        &self.capabilities
    }

    fn take(&self, command: Command<'_>) -> Result<Ticket, Rejected> {
        let place: Option<CounterOf> = match &command {
            Command::Write(write) if write.flags.fua => Some(|measured| &mut measured.durable_writes),
            Command::Write(_) => Some(|measured| &mut measured.writes),
            Command::Flush => Some(|measured| &mut measured.flushes),
            _ => None,
        };
        let ticket = self.device.submit(command)?;
        if let Some(place) = place.filter(|_| self.open.get()) {
            self.watch(&ticket, place);
        }
        Ok(ticket)
    }
}
