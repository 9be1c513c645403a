//! Reading: from the log's buffers while a block is there, otherwise from the disk below, always against
//! the checksum in the map.

use std::rc::Rc;

use weir_runtime::Buffer;
use weir_storage::{BLOCK_BYTES, Completer, Extent, Lba, StorageError, Ticket, read};

use crate::layout::content_checksum;
use crate::map::Entry;
use crate::mutants::{VolumeMutant, broken};
use crate::state::{Shared, failure};

/// A run of blocks that lie behind one another on the disk below.
struct Run {
    /// Index of the first block in the request.
    first: usize,
    entries: Vec<Entry>,
}

impl Shared {
    /// Submits a read. What is in memory is copied now; the rest is read by a task.
    pub(crate) fn submit_read(self: &Rc<Shared>, extent: Extent) -> Ticket {
        let mut data = Buffer::new(extent.bytes());
        let runs = self.copy_from_memory(extent, &mut data);
        let (ticket, completer) = Ticket::pending();
        if runs.is_empty() {
            complete(&completer, Ok(data));
            return ticket;
        }
        let shared = Rc::clone(self);
        self.reads.set(self.reads.get() + 1);
        self.handle.spawn(async move {
            let outcome = shared.read_runs(extent, data, runs).await;
            shared.reads.set(shared.reads.get() - 1);
            complete(&completer, outcome);
            shared.slots.notify(usize::MAX);
        });
        ticket
    }

    /// Fills in what is in memory or unmapped, and lists what is not.
    fn copy_from_memory(&self, extent: Extent, data: &mut Buffer) -> Vec<Run> {
        let state = self.state.borrow();
        let mut runs: Vec<Run> = Vec::new();
        for (i, lba) in extent.iter().enumerate() {
            let entry = state.map.get(lba.0 as u32);
            if !entry.is_mapped() {
                continue;
            }
            if let Some(found) = state.log.in_memory(entry.block) {
                data[i * BLOCK_BYTES..(i + 1) * BLOCK_BYTES].copy_from_slice(found);
                continue;
            }
            match runs.last_mut() {
                Some(run) if run.follows(i, entry) => run.entries.push(entry),
                _ => runs.push(Run { first: i, entries: vec![entry] }),
            }
        }
        runs
    }

    async fn read_runs(
        &self,
        extent: Extent,
        mut data: Buffer,
        runs: Vec<Run>,
    ) -> Result<Buffer, StorageError> {
        let step = self.disk.capabilities().max_transfer_blocks.max(1) as usize;
        for run in runs {
            for (piece, entries) in run.entries.chunks(step).enumerate() {
                let first = run.first + piece * step;
                let at = Lba(u64::from(entries[0].block));
                let found =
                    read(&*self.disk, Extent::new(at, entries.len() as u32)).await.map_err(failure)?;
                for (i, (entry, block)) in entries.iter().zip(found.chunks_exact(BLOCK_BYTES)).enumerate() {
                    let to = &mut data[(first + i) * BLOCK_BYTES..(first + i + 1) * BLOCK_BYTES];
                    if content_checksum(block) == entry.checksum
                        || broken(&self.options, VolumeMutant::ReadUnchecked)
                    {
                        to.copy_from_slice(block);
                    } else {
                        self.read_again(extent.start.offset((first + i) as u64), *entry, to).await?;
                    }
                }
            }
        }
        Ok(data)
    }

    /// A block was not what the map said when the read began. Either it has moved since (overwritten or
    /// cleaned, its old place written again), or it is damaged.
    async fn read_again(&self, lba: Lba, mut tried: Entry, to: &mut [u8]) -> Result<(), StorageError> {
        loop {
            let entry = self.state.borrow().map.get(lba.0 as u32);
            if entry == tried {
                return Err(StorageError::Damaged(lba));
            }
            if !entry.is_mapped() {
                to.fill(0);
                return Ok(());
            }
            if let Some(found) = self.state.borrow().log.in_memory(entry.block) {
                to.copy_from_slice(found);
                return Ok(());
            }
            let found =
                read(&*self.disk, Extent::new(Lba(u64::from(entry.block)), 1)).await.map_err(failure)?;
            if content_checksum(&found) == entry.checksum {
                to.copy_from_slice(&found);
                return Ok(());
            }
            tried = entry;
        }
    }
}

impl Run {
    fn follows(&self, index: usize, entry: Entry) -> bool {
        let length = self.entries.len();
        index == self.first + length && entry.block == self.entries[0].block + length as u32
    }
}

fn complete(completer: &Completer, outcome: Result<Buffer, StorageError>) {
    match outcome {
        Ok(data) => {
            completer.data(data);
            completer.finish(Ok(()), Ok(()));
        }
        Err(error) => completer.finish(Err(error), Err(error)),
    }
}
