//! Reading: from the log's buffers while a block is there, otherwise from the disk below, always against
//! the checksum in the map.

use std::collections::VecDeque;
use std::rc::Rc;

use weir_runtime::Buffer;
use weir_storage::{
    BLOCK_BYTES, Command, Completer, Extent, Lba, StorageError, Ticket, read, submit_when_free,
};

use crate::layout::content_checksum;
use crate::map::Entry;
use crate::mutants::VolumeMutant;
use crate::state::{Shared, failure};

/// A block of a request that is on the disk below: its index in the request, and where it was when the read began.
type Missing = (usize, Entry);

impl Shared {
    /// Submits a read. What is in memory is copied now; the rest is read by a task.
    pub(crate) fn submit_read(self: &Rc<Shared>, extent: Extent) -> Ticket {
        let mut data = Buffer::new(extent.bytes());
        let missing = self.copy_from_memory(extent, &mut data);
        let (ticket, completer) = Ticket::pending();
        if missing.is_empty() {
            complete(&completer, Ok(data));
            return ticket;
        }
        let shared = Rc::clone(self);
        self.reads.set(self.reads.get() + 1);
        self.handle.spawn(async move {
            let outcome = shared.read_missing(extent, data, missing).await;
            shared.reads.set(shared.reads.get() - 1);
            complete(&completer, outcome);
            shared.slots.notify(usize::MAX);
        });
        ticket
    }

    /// Fills in what is in memory or unmapped, and lists what is not, in the order of the disk below.
    fn copy_from_memory(&self, extent: Extent, data: &mut Buffer) -> Vec<Missing> {
        let state = self.state.borrow();
        let mut missing = Vec::new();
        for (i, lba) in extent.iter().enumerate() {
            let entry = state.map.get(lba.0 as u32);
            if !entry.is_mapped() {
                continue;
            }
            match state.log.in_memory(entry.block) {
                Some(found) => data[i * BLOCK_BYTES..(i + 1) * BLOCK_BYTES].copy_from_slice(found),
                None => missing.push((i, entry)),
            }
        }
        missing.sort_unstable_by_key(|(_, entry)| entry.block);
        missing
    }

    /// Reads the runs of blocks that lie behind one another on the disk below, as many at one time as its queue takes.
    async fn read_missing(
        &self,
        extent: Extent,
        mut data: Buffer,
        missing: Vec<Missing>,
    ) -> Result<Buffer, StorageError> {
        let capabilities = self.disk.capabilities();
        let most = capabilities.max_transfer_blocks.max(1) as usize;
        let depth = capabilities.queue_depth.max(1) as usize;
        let follows = |before: &Missing, behind: &Missing| behind.1.block == before.1.block + 1;
        let mut under_way: VecDeque<(&[Missing], Ticket)> = VecDeque::new();
        for run in missing.chunk_by(follows).flat_map(|run| run.chunks(most)) {
            if under_way.len() == depth
                && let Some((run, ticket)) = under_way.pop_front()
            {
                self.take_run(extent, run, &ticket, &mut data).await?;
            }
            let at = Extent::new(Lba(u64::from(run[0].1.block)), run.len() as u32);
            let ticket = submit_when_free(&*self.disk, Command::read(at)).await.map_err(failure)?;
            under_way.push_back((run, ticket));
        }
        for (run, ticket) in under_way {
            self.take_run(extent, run, &ticket, &mut data).await?;
        }
        Ok(data)
    }

    /// Waits for the read of a run, and puts its blocks into their places.
    async fn take_run(
        &self,
        extent: Extent,
        run: &[Missing],
        ticket: &Ticket,
        data: &mut Buffer,
    ) -> Result<(), StorageError> {
        ticket.transferred().await?;
        let found = ticket.take_data().ok_or(StorageError::Gone)?;
        for ((i, entry), block) in run.iter().zip(found.chunks_exact(BLOCK_BYTES)) {
            let to = &mut data[i * BLOCK_BYTES..(i + 1) * BLOCK_BYTES];
            if content_checksum(block) == entry.checksum
                || self.options.rules.drops(VolumeMutant::ReadUnchecked)
            {
                to.copy_from_slice(block);
            } else {
                self.read_again(extent.start.offset(*i as u64), *entry, to).await?;
            }
        }
        Ok(())
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

fn complete(completer: &Completer, outcome: Result<Buffer, StorageError>) {
    match outcome {
        Ok(data) => {
            completer.data(data);
            completer.finish(Ok(()), Ok(()));
        }
        Err(error) => completer.finish(Err(error), Err(error)),
    }
}
