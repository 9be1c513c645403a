//! A storage that stands before another one: it sees each command, and passes on what it does not change. Observers,
//! and devices that are broken in one way, are made so.

use weir_runtime::{Buffer, Event};

use crate::address::Lba;
use crate::capability::Capabilities;
use crate::command::Command;
use crate::contract::Storage;
use crate::error::Rejected;
use crate::opener::{Opener, Standing};
use crate::ticket::Ticket;

/// What stands before a storage is one itself, with its blocks, slots and buffers.
pub trait Interposed {
    /// The storage below.
    fn below(&self) -> &dyn Storage;

    /// What it says that it can do: what the storage below can.
    fn claims(&self) -> &Capabilities {
        self.below().capabilities()
    }

    /// Takes a command in place of the storage below.
    ///
    /// # Errors
    /// As [`Storage::submit`].
    fn take(&self, command: Command<'_>) -> Result<Ticket, Rejected>;
}

impl<S: Interposed> Storage for S {
    fn blocks(&self) -> u64 {
        self.below().blocks()
    }

    fn capabilities(&self) -> &Capabilities {
        self.claims()
    }

    fn submit(&self, command: Command<'_>) -> Result<Ticket, Rejected> {
        self.take(command)
    }

    fn slots(&self) -> &Event {
        self.below().slots()
    }

    fn next_data(&self, from: Lba) -> Option<Lba> {
        self.below().next_data(from)
    }

    fn allocate(&self, bytes: usize) -> Buffer {
        self.below().allocate(bytes)
    }

    fn opener(&self) -> Option<Opener> {
        self.below().opener()
    }

    fn standing(&self, other: &Opener) -> Standing {
        self.below().standing(other)
    }
}
