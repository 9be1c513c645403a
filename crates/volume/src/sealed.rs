//! *Sealed chunks*: those that do not change any more and are not yet durable, from the log's buffer to the medium. Many
//! are with the disk below at one time, in any completion order.

use std::collections::VecDeque;
use std::rc::Rc;

use weir_runtime::{Buffer, Instant};
use weir_storage::{BLOCK_BYTES, Command, Data, Lba, Part, Rejected, Storage, Ticket, Write, WriteFlags};

use crate::chunk::{self, ChunkStamp, OpenChunk};
use crate::common::Common;

/// A chunk that does not change any more and is not yet durable.
struct SealedChunk {
    buffer: Option<Rc<Buffer>>,
    place: Lba,
    first_block: u32,
    data_blocks: u16,
    last_sequence: u64,
    /// When the first record of a user in it was placed.
    user_since: Option<Instant>,
    /// Written with FUA: durable as soon as it is transferred.
    fua: bool,
    /// `None` until the disk below has accepted it.
    ticket: Option<Ticket>,
    transferred: bool,
}

impl SealedChunk {
    fn bytes(&self) -> u64 {
        (1 + u64::from(self.data_blocks)) * BLOCK_BYTES as u64
    }
}

/// The sealed chunks of a log.
pub(crate) struct Sealed {
    /// Oldest first.
    chunks: VecDeque<SealedChunk>,
    /// Bytes in them: what a crash may cost, the open chunk apart (V5).
    bytes: u64,
    /// Buffers that wait for a chunk.
    pub free: Vec<Buffer>,
}

impl Sealed {
    pub(crate) fn new(free: Vec<Buffer>) -> Sealed {
        Sealed { chunks: VecDeque::new(), bytes: 0, free }
    }

    /// Seals a chunk that lies at `place`; with `fua` it is durable when it is transferred, if all before it is durable.
    pub(crate) fn push(&mut self, open: OpenChunk, place: Lba, stamp: ChunkStamp, fua: bool) {
        let sealed = SealedChunk {
            place,
            first_block: open.first_block(),
            data_blocks: open.data_blocks(),
            last_sequence: open.last_sequence(),
            user_since: open.user_since,
            fua,
            ticket: None,
            transferred: false,
            buffer: Some(Rc::new(open.seal(stamp))),
        };
        self.bytes += sealed.bytes();
        self.chunks.push_back(sealed);
    }

    /// Hands chunks to the disk below, oldest first, until it is busy. Whether it took one.
    pub(crate) fn dispatch(&mut self, common: &Common) -> bool {
        let mut taken = false;
        for chunk in self.chunks.iter_mut().filter(|chunk| chunk.ticket.is_none()) {
            let Some(buffer) = &chunk.buffer else { continue };
            let data = Data::Shared { buffer, offset: 0, bytes: chunk.bytes() as usize };
            let parts = [Part { start: chunk.place, data }];
            let flags = WriteFlags { fua: chunk.fua, ..WriteFlags::default() };
            match common.disk.submit(Command::Write(Write { flags, ..Write::new(&parts) })) {
                Ok(ticket) => {
                    chunk.ticket = Some(ticket);
                    taken = true;
                }
                Err(Rejected::Busy) => break,
                Err(error) => {
                    common.fail(error);
                    break;
                }
            }
        }
        common.chunk_sealed.notify(1);
        taken
    }

    /// The oldest chunk that has not arrived: its last record, and its ticket if the disk below has accepted it.
    pub(crate) fn oldest_under_way(&self) -> Option<(u64, Option<Ticket>)> {
        let oldest = self.chunks.iter().find(|chunk| !chunk.transferred);
        oldest.map(|chunk| (chunk.last_sequence, chunk.ticket.clone()))
    }

    /// The chunk with this last record has arrived, and its buffer is used again. Whether it is durable by that; `None`
    /// if there is no such chunk.
    pub(crate) fn arrived(&mut self, last_sequence: u64, disk: &dyn Storage) -> Option<bool> {
        let chunk = self.chunks.iter_mut().find(|chunk| chunk.last_sequence == last_sequence)?;
        chunk.transferred = true;
        chunk.ticket = None;
        if let Some(buffer) = chunk.buffer.take() {
            // The disk below has released its share; should it not have, a fresh buffer takes the place.
            let bytes = buffer.len();
            self.free.push(Rc::try_unwrap(buffer).unwrap_or_else(|_| disk.allocate(bytes)));
        }
        Some(chunk.fua)
    }

    pub(crate) fn all_arrived(&self) -> bool {
        self.chunks.iter().all(|chunk| chunk.transferred)
    }

    /// Everything up to the record `sequence` is on the medium.
    pub(crate) fn settle(&mut self, sequence: u64) {
        while let Some(chunk) = self.chunks.front() {
            if chunk.last_sequence > sequence || !chunk.transferred {
                break;
            }
            self.bytes -= chunk.bytes();
            self.chunks.pop_front();
        }
    }

    /// The last record that is sealed and not durable.
    pub(crate) fn last(&self) -> Option<u64> {
        self.chunks.back().map(|chunk| chunk.last_sequence)
    }

    /// Bytes that are not durable.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// When the oldest record of a user in them was placed.
    pub(crate) fn user_since(&self) -> Option<Instant> {
        self.chunks.iter().find_map(|chunk| chunk.user_since)
    }

    /// The data block at physical block `block` if it is still in memory.
    pub(crate) fn find(&self, block: u32) -> Option<&[u8]> {
        self.chunks.iter().rev().find_map(|chunk| {
            let buffer = chunk.buffer.as_ref()?;
            chunk::find(buffer, chunk.first_block, chunk.data_blocks, block)
        })
    }
}
