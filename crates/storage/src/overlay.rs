//! An *overlay*: a storage that keeps what is written to it in memory, in front of one that is never changed.
//!
//! For a caller that only reads a disk through a layer that has to write: a volume takes a checkpoint when it is opened.
//! Nothing of it outlives the overlay, so a flush has nothing to do, and no caller may be told that data is safe
//! because of it.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use event_listener::Event;
use weir_runtime::{Buffer, Handle};

use crate::address::{BLOCK_BYTES, Extent, Lba};
use crate::capability::Capabilities;
use crate::command::{Command, Write};
use crate::contract::{Storage, read};
use crate::error::{Rejected, StorageError};
use crate::ticket::Ticket;

type Block = Rc<[u8]>;

/// What is written lies in memory, in front of a storage that only serves reads. As able as a legacy disk.
pub struct Overlay {
    handle: Handle,
    below: Rc<dyn Storage>,
    capabilities: Capabilities,
    written: RefCell<BTreeMap<Lba, Block>>,
    blocks_max: u64,
    queue: Rc<Queue>,
}

/// Reads in flight; writes and flushes end at once.
#[derive(Default)]
struct Queue {
    reads: Cell<u32>,
    slots: Event,
}

impl Overlay {
    /// In front of `below`, for at most `blocks_max` different blocks; a write beyond them fails with
    /// [`StorageError::NoSpace`] and changes nothing.
    #[must_use]
    pub fn new(handle: &Handle, below: Rc<dyn Storage>, blocks_max: u64) -> Overlay {
        let &Capabilities { queue_depth, max_transfer_blocks, tear_unit_bytes, .. } = below.capabilities();
        Overlay {
            handle: handle.clone(),
            capabilities: Capabilities::legacy(queue_depth, max_transfer_blocks, tear_unit_bytes),
            written: RefCell::default(),
            blocks_max,
            queue: Rc::default(),
            below,
        }
    }

    /// Different blocks that it keeps.
    #[must_use]
    pub fn blocks_written(&self) -> u64 {
        self.written.borrow().len() as u64
    }

    fn write(&self, write: &Write<'_>) -> Result<(), Rejected> {
        let mut written = self.written.borrow_mut();
        let blocks = || write.parts.iter().flat_map(|part| part.extent().iter());
        let new = blocks().filter(|lba| !written.contains_key(lba)).count() as u64;
        if written.len() as u64 + new > self.blocks_max {
            return Err(Rejected::Failed(StorageError::NoSpace));
        }
        let data = write.parts.iter().flat_map(|part| part.data.bytes().chunks_exact(BLOCK_BYTES));
        written.extend(blocks().zip(data.map(Block::from)));
        Ok(())
    }

    /// Reads below, and lays what was written by now (S6) over it.
    fn read(&self, extent: Extent) -> Result<Ticket, Rejected> {
        let queue = Rc::clone(&self.queue);
        if queue.reads.get() == self.capabilities.queue_depth {
            return Err(Rejected::Busy);
        }
        queue.reads.set(queue.reads.get() + 1);
        let range = extent.start..extent.end();
        let over: Vec<(Lba, Block)> =
            self.written.borrow().range(range).map(|(lba, block)| (*lba, Rc::clone(block))).collect();
        let (ticket, completer) = Ticket::pending();
        let below = Rc::clone(&self.below);
        // Dropping a task lets it run on.
        drop(self.handle.spawn(async move {
            match read(&*below, extent).await {
                Ok(mut data) => {
                    lay(&over, extent.start, &mut data);
                    completer.data(data);
                    completer.finish(Ok(()), Err(StorageError::DurabilityUnknown));
                }
                Err(Rejected::Failed(error)) => completer.transferred(Err(error)),
                // The same was checked here before.
                Err(_) => completer.transferred(Err(StorageError::Gone)),
            }
            queue.reads.set(queue.reads.get() - 1);
            queue.slots.notify(usize::MAX);
        }));
        Ok(ticket)
    }
}

fn lay(over: &[(Lba, Block)], start: Lba, data: &mut [u8]) {
    for (lba, block) in over {
        let at = (lba.0 - start.0) as usize * BLOCK_BYTES;
        data[at..at + BLOCK_BYTES].copy_from_slice(block);
    }
}

impl Storage for Overlay {
    fn blocks(&self) -> u64 {
        self.below.blocks()
    }

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn submit(&self, command: Command<'_>) -> Result<Ticket, Rejected> {
        self.capabilities.check(&command, self.blocks())?;
        match &command {
            Command::Read { extent, .. } => return self.read(*extent),
            Command::Write(write) => self.write(write)?,
            // Nothing is volatile that could be kept; the check has refused what a legacy disk has not.
            _ => {}
        }
        let (ticket, completer) = Ticket::pending();
        completer.finish(Ok(()), Err(StorageError::DurabilityUnknown));
        Ok(ticket)
    }

    fn slots(&self) -> &Event {
        &self.queue.slots
    }

    fn allocate(&self, bytes: usize) -> Buffer {
        self.below.allocate(bytes)
    }
}
