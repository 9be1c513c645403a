//! Whole blocks in and out, as a filesystem uses the block layer: flushes that are shared, and a count of what was
//! waited for.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use weir_runtime::{Buffer, Handle};
use weir_storage::{
    BLOCK_BYTES, Capabilities, Data, Extent, FlushSharing, Lba, Part, Rejected, SharePair, StorageError,
    StreamId, Ticket, WriteFlags,
};

use crate::error::Refused;
use crate::layer::BlockLayer;
use crate::plug::OrderedPlug;
use crate::request::{Class, Request};

/// Its only stream.
const STREAM: StreamId = StreamId(0);

/// What callers waited for. Waiting for queue space does not count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Waits {
    /// Times that a task waited for a transfer of writes.
    pub transfers: u64,
    /// Flushes that were sent to the device.
    pub flushes: u64,
    /// Writes with pre-flush or FUA that were waited for.
    pub durable_commits: u64,
}

/// The block layer, by whole blocks of one stream.
pub struct BlockIo {
    layer: Rc<BlockLayer>,
    handle: Handle,
    capabilities: Capabilities,
    waits: RefCell<Waits>,
    /// Writes that were submitted.
    writes: Cell<u64>,
    flushes: Rc<FlushSharing>,
}

impl BlockIo {
    /// The block layer `layer`, over a storage with `capabilities`.
    pub fn new(handle: &Handle, layer: Rc<BlockLayer>, capabilities: Capabilities) -> BlockIo {
        let (waits, writes, flushes) = Default::default();
        BlockIo { layer, handle: handle.clone(), capabilities, waits, writes, flushes }
    }

    /// The runtime's clock and tasks.
    pub fn handle(&self) -> &Handle {
        &self.handle
    }

    /// What the storage can do.
    pub fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    /// What was waited for so far.
    pub fn waits(&self) -> Waits {
        *self.waits.borrow()
    }

    /// Writes and shares without FUA that were submitted so far: while the number stays, a flush behind writes covers all of them.
    pub fn writes(&self) -> u64 {
        self.writes.get()
    }

    /// One is counted when it has its place behind others, not while it waits for space.
    fn count_write(&self) {
        self.writes.set(self.writes.get() + 1);
    }

    /// Waits for a transfer.
    ///
    /// # Errors
    /// Those of the command.
    pub async fn wait_answered(&self, ticket: &Ticket) -> Result<(), StorageError> {
        let result = match ticket.poll_transferred() {
            Some(result) => result,
            None => {
                let result = ticket.transferred().await;
                self.handle.spend_completion().await;
                result
            }
        };
        result.map_err(|error| self.cause_of(error))
    }

    /// Why nothing more is carried out in order, or becomes durable, if something has failed.
    pub fn failure(&self) -> Option<StorageError> {
        self.layer.failure(STREAM)
    }

    /// What an error comes from: that of a request which an earlier failure has aborted, from that one.
    fn cause_of(&self, error: StorageError) -> StorageError {
        match error {
            StorageError::Aborted => self.failure().unwrap_or(error),
            other => other,
        }
    }

    /// The same of a request that was not accepted.
    fn cause_of_rejection(&self, rejected: Rejected) -> Rejected {
        match rejected {
            Rejected::Failed(error) => Rejected::Failed(self.cause_of(error)),
            other => other,
        }
    }

    /// Reads `blocks` blocks from `start` on, as many as a command takes at most.
    ///
    /// # Errors
    /// Those of the storage.
    pub async fn read(&self, start: u64, blocks: u32) -> Result<Buffer, Rejected> {
        let extent = Extent::new(Lba(start), blocks);
        self.handle.spend_dispatch().await;
        let ticket = self.layer.when_space(|layer| layer.read(extent)).await?;
        self.wait_answered(&ticket).await?;
        Ok(ticket.take_data().ok_or(StorageError::Gone)?)
    }

    /// Submits consecutive blocks from `start` on, as few writes as commands allow: all of `class` but the last, which is of
    /// class `last`; by reliable writes, where `reliable` says so of the blocks of a command. Waits for queue space only.
    ///
    /// # Errors
    /// Those of the block layer.
    pub async fn write(
        &self,
        start: u64,
        blocks: &[Rc<Buffer>],
        (class, last): (Class, Class),
        reliable: impl Fn(std::ops::Range<u64>) -> bool,
        tickets: &mut Vec<Ticket>,
    ) -> Result<(), Rejected> {
        let most = self.capabilities.max_transfer_blocks.max(1) as usize;
        let writes = blocks.len().div_ceil(most);
        for (nth, chunk) in blocks.chunks(most).enumerate() {
            let parts: Vec<Part<'_>> = (start + (nth * most) as u64..)
                .zip(chunk)
                .map(|(block, buffer)| Part { start: Lba(block), data: whole(buffer) })
                .collect();
            let class = if nth + 1 == writes { last } else { class };
            let first = start + (nth * most) as u64;
            let reliable = reliable(first..first + chunk.len() as u64);
            self.handle.spend_dispatch().await;
            let request = Request { reliable, ..Request::new(STREAM, class, &parts) };
            let submitted = self.layer.submit(&request).await;
            tickets.push(submitted.map_err(|rejected| self.cause_of_rejection(rejected))?);
            self.count_write();
        }
        Ok(())
    }

    /// Submits shares, as few as commands allow: of each pair, the second block reads what the first one does, for all
    /// pairs of a command or for none. Waits for queue space only.
    ///
    /// # Errors
    /// Those of the block layer.
    pub async fn share(&self, blocks: &[(u64, u64)], tickets: &mut Vec<Ticket>) -> Result<(), Rejected> {
        for chunk in blocks.chunks(self.capabilities.max_share_blocks.max(1) as usize) {
            let mut pairs: Vec<SharePair> = Vec::new();
            for &(from, to) in chunk {
                match pairs.last_mut() {
                    Some(SharePair { from: before, to: first })
                        if before.end() == Lba(from) && first.0 + u64::from(before.blocks) == to =>
                    {
                        before.blocks += 1;
                    }
                    _ => pairs.push(SharePair { from: Extent::new(Lba(from), 1), to: Lba(to) }),
                }
            }
            self.handle.spend_dispatch().await;
            tickets.push(self.layer.when_space(|layer| layer.share(STREAM, &pairs)).await?);
            self.count_write();
        }
        Ok(())
    }

    /// Submits one block, reliably where `reliable`, and waits until it is transferred, or `durable`. Its ticket.
    ///
    /// # Errors
    /// Those of the storage.
    pub async fn write_and_wait(
        &self,
        block: u64,
        buffer: &Rc<Buffer>,
        durable: Durable,
        reliable: bool,
    ) -> Result<Ticket, Rejected> {
        let parts = [Part { start: Lba(block), data: whole(buffer) }];
        let mut request = Request::orderless(STREAM, &parts);
        request.reliable = reliable;
        (request.preflush, request.fua) = match durable {
            Durable::Nothing => (false, false),
            Durable::Write => (false, true),
            Durable::WriteAndEarlier => (true, true),
        };
        // The block layer goes from one command to the next when an interrupt comes, and switches no thread for it. So the
        // thread that waits for all of them pays for each.
        let commands = self.commands_of_durable_write(&request);
        for _ in 0..commands {
            self.handle.spend_dispatch().await;
        }
        let ticket = self.layer.submit(&request).await?;
        if durable == Durable::Nothing {
            self.count_write();
        }
        self.wait_for_write(&ticket, durable != Durable::Nothing).await?;
        for _ in 1..commands {
            self.handle.spend_completion().await;
        }
        Ok(ticket)
    }

    /// Commands that a write takes: a flush stands for each of pre-flush and FUA that it has, and the storage lacks.
    fn commands_of_durable_write(&self, request: &Request<'_>) -> u32 {
        let Capabilities { preflush, fua, .. } = self.capabilities;
        1 + u32::from(request.preflush && !preflush) + u32::from(request.fua && !fua)
    }

    /// Submits groups of blocks as one ordered plug with FUA (E8), a bare barrier between each two groups, and waits until all of
    /// it is durable. The ticket of the last command.
    ///
    /// # Errors
    /// Those of the storage.
    pub async fn write_in_order(&self, groups: &[&[Run]]) -> Result<Ticket, Rejected> {
        let fua = WriteFlags { fua: true, ..WriteFlags::default() };
        let mut plug = OrderedPlug::start(&self.layer, STREAM)?;
        for group in groups {
            plug.put_barrier();
            for Run { start, blocks } in *group {
                for (block, buffer) in (*start..).zip(blocks) {
                    plug.write(Part { start: Lba(block), data: whole(buffer) }, fua);
                }
            }
        }
        self.handle.spend_dispatch().await;
        let ticket = plug.finish().await?;
        self.wait_for_write(&ticket, true).await?;
        Ok(ticket)
    }

    /// Waits for a write, and counts the wait.
    async fn wait_for_write(&self, ticket: &Ticket, durable: bool) -> Result<(), StorageError> {
        {
            let mut waits = self.waits.borrow_mut();
            waits.transfers += 1;
            waits.durable_commits += u64::from(durable);
        }
        self.wait_answered(ticket).await
    }

    /// Submits a flush of its own, which no caller shares. Its ticket.
    ///
    /// # Errors
    /// Those of the block layer.
    pub async fn submit_flush(&self) -> Result<Ticket, Rejected> {
        self.submit_flush_by(BlockLayer::flush).await
    }

    /// The same behind every write that was submitted before (E9).
    ///
    /// # Errors
    /// Those of the block layer.
    pub async fn submit_flush_behind_writes(&self) -> Result<Ticket, Rejected> {
        self.submit_flush_by(BlockLayer::flush_behind_writes).await
    }

    async fn submit_flush_by(
        &self,
        issue: impl Fn(&BlockLayer) -> Result<Ticket, Refused>,
    ) -> Result<Ticket, Rejected> {
        self.handle.spend_dispatch().await;
        let ticket = self.layer.when_space(issue).await?;
        self.waits.borrow_mut().flushes += 1;
        Ok(ticket)
    }

    /// Waits until all of `tickets` are transferred; the first error, if there is one.
    ///
    /// # Errors
    /// That one.
    pub async fn wait_transferred(&self, tickets: &[Ticket]) -> Result<(), Rejected> {
        if tickets.is_empty() {
            return Ok(());
        }
        self.waits.borrow_mut().transfers += 1;
        let mut result = Ok(());
        for ticket in tickets {
            result = result.and(self.wait_answered(ticket).await);
        }
        Ok(result?)
    }

    /// Epochs that were ended.
    pub fn epochs(&self) -> u64 {
        let stats = self.layer.stats();
        stats.barrier_writes + stats.bare_barriers
    }

    /// Puts a bare barrier.
    ///
    /// # Errors
    /// Those of the block layer.
    pub async fn barrier(&self) -> Result<(), Rejected> {
        self.handle.spend_dispatch().await;
        let put = self.layer.when_space(|layer| layer.barrier(STREAM)).await;
        put.map(drop).map_err(|rejected| self.cause_of_rejection(rejected))
    }

    /// Makes orderless writes to these blocks that are not transferred yet part of the current epoch (E7); their
    /// tickets.
    pub fn promote(&self, pages: &[Extent]) -> Vec<Ticket> {
        if pages.is_empty() { Vec::new() } else { self.layer.promote(STREAM, pages).tickets }
    }

    /// Makes durable what was transferred before. Callers that come while a flush is under way share the next.
    ///
    /// # Errors
    /// Those of the storage.
    pub async fn flush(&self) -> Result<(), Rejected> {
        self.share_flush(async |ticket| self.wait_answered(&ticket).await).await
    }

    /// The same, where `wait` waits until the flush is answered.
    ///
    /// # Errors
    /// Those of the storage.
    pub async fn share_flush(
        &self,
        wait: impl AsyncFn(Ticket) -> Result<(), StorageError>,
    ) -> Result<(), Rejected> {
        self.flushes.flush(async || self.submit_flush().await, wait).await
    }

    /// Discards extents, and waits until that is transferred: how many commands it took.
    ///
    /// # Errors
    /// Those of the storage.
    pub async fn discard(&self, extents: &[Extent]) -> Result<u64, Rejected> {
        let mut commands = 0;
        for extents in self.capabilities.split_discard(extents) {
            let ticket = self.layer.when_space(|layer| layer.discard(STREAM, &extents)).await?;
            ticket.transferred().await?;
            commands += 1;
        }
        Ok(commands)
    }
}

/// What is durable when a write ends that is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durable {
    /// Nothing: it is transferred.
    Nothing,
    /// The write, by FUA.
    Write,
    /// The write, and what was transferred before it was submitted: by pre-flush and FUA.
    WriteAndEarlier,
}

/// Consecutive blocks, which are written from `start` on.
pub struct Run {
    /// The first block's place.
    pub start: u64,
    /// What is written.
    pub blocks: Vec<Rc<Buffer>>,
}

impl Run {
    /// Adds a block at `place`, to the last of `runs` if it comes right behind it.
    pub fn push(runs: &mut Vec<Run>, place: u64, content: Rc<Buffer>) {
        match runs.last_mut() {
            Some(run) if run.start + run.blocks.len() as u64 == place => run.blocks.push(content),
            _ => runs.push(Run { start: place, blocks: vec![content] }),
        }
    }
}

fn whole(buffer: &Rc<Buffer>) -> Data<'_> {
    Data::Shared { buffer, offset: 0, bytes: BLOCK_BYTES }
}
