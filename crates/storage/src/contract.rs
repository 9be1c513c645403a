//! The contract: everything that stores blocks is a [`Storage`], and storages stack.

use event_listener::Event;
use weir_runtime::Buffer;

use crate::address::{Extent, Lba};
use crate::capability::Capabilities;
use crate::command::{Command, Part, Write};
use crate::error::{Rejected, StorageError};
use crate::marks::Marks;
use crate::opener::{Opener, Standing};
use crate::ticket::Ticket;

/// Something that stores 4 KiB blocks. The rules S1 to S7 are written out in the crate's documentation.
pub trait Storage {
    /// Capacity in blocks.
    fn blocks(&self) -> u64;

    /// What the device can do; constant over its life.
    fn capabilities(&self) -> &Capabilities;

    /// Hands one command to the device. Submission order is dispatch order (S1). Never waits.
    ///
    /// # Errors
    /// [`Rejected::Busy`] when the queue is full: listen to [`Storage::slots`], then submit again.
    fn submit(&self, command: Command<'_>) -> Result<Ticket, Rejected>;

    /// Notified when a slot becomes free after a refusal, and perhaps at other times. Nothing can come between a
    /// refusal and listening: a runtime has one thread.
    fn slots(&self) -> &Event;

    /// The first block from `from` on that may hold something other than zeros; `None` if none does. A storage that
    /// knows its holes spares its callers to read them.
    fn next_data(&self, from: Lba) -> Option<Lba> {
        (from.0 < self.blocks()).then_some(from)
    }

    /// A buffer that suits the device (registered with the kernel where that helps), `bytes` long, zeroed.
    fn allocate(&self, bytes: usize) -> Buffer {
        Buffer::new(bytes)
    }

    /// Who has it open for writing, where other processes or hosts may open the same storage; none for storages that
    /// no other process can reach. A volume on it is claimed under this name.
    fn opener(&self) -> Option<Opener> {
        None
    }

    /// The marks that a crash takes the storage back to, if it keeps any.
    fn marks(&self) -> Option<&dyn Marks> {
        None
    }

    /// What is known here of another opener of the same storage, or of a copy of it.
    fn standing(&self, _other: &Opener) -> Standing {
        Standing::Unknown
    }
}

/// Submits `command`, waiting for a free slot as often as needed.
///
/// # Errors
/// [`Rejected`] in every form but [`Rejected::Busy`].
pub async fn submit_when_free(storage: &dyn Storage, command: Command<'_>) -> Result<Ticket, Rejected> {
    loop {
        match storage.submit(command) {
            Err(Rejected::Busy) => storage.slots().listen().await,
            answer => return answer,
        }
    }
}

/// Reads one extent and waits for the data.
///
/// # Errors
/// What the submission or the device answered.
pub async fn read(storage: &dyn Storage, extent: Extent) -> Result<Buffer, Rejected> {
    let ticket = submit_when_free(storage, Command::read(extent)).await?;
    ticket.transferred().await?;
    ticket.take_data().ok_or(Rejected::Failed(StorageError::Gone))
}

/// Writes one part and waits until it is transferred.
///
/// # Errors
/// What the submission or the device answered.
pub async fn write(storage: &dyn Storage, part: Part<'_>) -> Result<(), Rejected> {
    let ticket = submit_when_free(storage, Command::Write(Write::new(&[part]))).await?;
    Ok(ticket.transferred().await?)
}

/// Flushes: when it returns, every write transferred before is durable.
///
/// # Errors
/// What the submission or the device answered.
pub async fn flush(storage: &dyn Storage) -> Result<(), Rejected> {
    let ticket = submit_when_free(storage, Command::Flush).await?;
    Ok(ticket.transferred().await?)
}
