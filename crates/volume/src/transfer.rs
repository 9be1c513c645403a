//! Reads and writes of any length on the storage below, in commands that it takes.

use std::ops::Range;
use std::rc::Rc;

use weir_runtime::Buffer;
use weir_storage::{
    BLOCK_BYTES, Command, Data, Extent, Lba, Part, Rejected, Storage, StorageError, Ticket, Write,
    submit_when_free,
};

/// Reads an extent of any length, in commands that the disk takes.
pub(crate) async fn read_extent(disk: &dyn Storage, extent: Extent) -> Result<Buffer, Rejected> {
    Reading::begin(disk, extent).await?.finish().await
}

/// A read of an extent of any length, all of whose commands are with the disk.
pub(crate) struct Reading {
    extent: Extent,
    tickets: Vec<Ticket>,
}

impl Reading {
    /// Submits the commands; waits for queue space only.
    pub(crate) async fn begin(disk: &dyn Storage, extent: Extent) -> Result<Reading, Rejected> {
        let step = disk.capabilities().max_transfer_blocks.max(1);
        let mut tickets = Vec::new();
        for done in (0..extent.blocks).step_by(step as usize) {
            let piece = Extent::new(extent.start.offset(u64::from(done)), step.min(extent.blocks - done));
            tickets.push(submit_when_free(disk, Command::read(piece)).await?);
        }
        Ok(Reading { extent, tickets })
    }

    /// Waits for the data.
    pub(crate) async fn finish(self) -> Result<Buffer, Rejected> {
        if let [ticket] = &self.tickets[..] {
            return Reading::data_of(ticket).await;
        }
        let mut buffer = Buffer::new(self.extent.bytes());
        let mut at = 0;
        for ticket in &self.tickets {
            let data = Reading::data_of(ticket).await?;
            buffer[at..at + data.len()].copy_from_slice(&data);
            at += data.len();
        }
        Ok(buffer)
    }

    async fn data_of(ticket: &Ticket) -> Result<Buffer, Rejected> {
        ticket.transferred().await?;
        Ok(ticket.take_data().ok_or(StorageError::Gone)?)
    }
}

/// Writes the first `bytes` bytes of a buffer, in commands that the disk takes, and does not wait for the transfers.
pub(crate) async fn write_buffer(
    disk: &dyn Storage,
    start: Lba,
    buffer: Buffer,
    bytes: usize,
) -> Result<Vec<Ticket>, Rejected> {
    write_part(disk, start, &Rc::new(buffer), 0..bytes).await
}

/// Writes whole blocks out of a buffer in the same way.
pub(crate) async fn write_part(
    disk: &dyn Storage,
    start: Lba,
    buffer: &Rc<Buffer>,
    bytes: Range<usize>,
) -> Result<Vec<Ticket>, Rejected> {
    let step = disk.capabilities().max_transfer_blocks.max(1) as usize * BLOCK_BYTES;
    let mut tickets = Vec::new();
    for offset in bytes.clone().step_by(step) {
        let data = Data::Shared { buffer, offset, bytes: step.min(bytes.end - offset) };
        let part = Part { start: start.offset(((offset - bytes.start) / BLOCK_BYTES) as u64), data };
        tickets.push(submit_when_free(disk, Command::Write(Write::new(&[part]))).await?);
    }
    Ok(tickets)
}

/// Waits for all transfers.
pub(crate) async fn all_transferred(tickets: Vec<Ticket>) -> Result<(), Rejected> {
    for ticket in tickets {
        ticket.transferred().await?;
    }
    Ok(())
}
