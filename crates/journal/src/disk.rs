//! The block layer as the filesystem uses it: whole blocks in and out, flushes that are shared, and a count of
//! what was waited for.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::ops::Range;
use std::rc::Rc;

use weir_block::{BlockLayer, Class, OrderedPlug, Request};
use weir_runtime::{Buffer, Handle};
use weir_storage::{
    BLOCK_BYTES, Capabilities, Data, Extent, FlushSharing, Lba, Part, SharePair, StorageError, StreamId,
    Ticket, WriteFlags,
};

use crate::error::JournalError;
use crate::mutants::{JournalMutant, JournalRules};
use crate::run::Run;

/// The filesystem's only stream.
const STREAM: StreamId = StreamId(0);

/// What calls and the journal waited for. Waiting for queue space does not count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Waits {
    /// Times that a task waited for a transfer of writes.
    pub transfers: u64,
    /// Flushes that were sent to the device.
    pub flushes: u64,
    /// Commit blocks with pre-flush or FUA that were waited for.
    pub durable_commits: u64,
}

/// The block layer, as one filesystem uses it.
pub struct Disk {
    layer: Rc<BlockLayer>,
    handle: Handle,
    capabilities: Capabilities,
    waits: RefCell<Waits>,
    rules: JournalRules,
    flushes: Rc<FlushSharing>,
    /// A call has promised order: what is written from then on comes after it.
    promised_order: Cell<bool>,
    /// Blocks that are read before the log is replayed, so that it cannot make up for damage of them.
    found_log_by: RefCell<BTreeSet<u64>>,
}

impl Disk {
    /// The block layer `layer`, over a storage with `capabilities`.
    pub fn new(
        handle: &Handle,
        layer: Rc<BlockLayer>,
        capabilities: Capabilities,
        rules: JournalRules,
    ) -> Rc<Disk> {
        Rc::new(Disk {
            layer,
            handle: handle.clone(),
            capabilities,
            waits: RefCell::default(),
            rules,
            flushes: Rc::default(),
            promised_order: Cell::new(false),
            found_log_by: RefCell::default(),
        })
    }

    /// A call is about to promise order without waiting.
    pub fn promise_order(&self) {
        self.promised_order.set(true);
    }

    /// How writeback writes. Orderless requests may overtake what a barrier is behind, as long as that waits in the queue
    /// (E3). So once a call has promised order, nothing is written without: a page that was changed behind the call must
    /// not be on the disk before what the call covers.
    pub fn class_of_writeback(&self) -> Class {
        match self.promised_order.get() && !self.rules.drops(JournalMutant::WritebackOvertakes) {
            true => Class::Ordered,
            false => Class::Orderless,
        }
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

    /// Waits for a transfer.
    pub(crate) async fn answered(&self, ticket: &Ticket) -> Result<(), StorageError> {
        match ticket.poll_transferred() {
            Some(result) => result,
            None => {
                let result = ticket.transferred().await;
                self.handle.spend_completion().await;
                result
            }
        }
    }

    /// Reads `blocks` blocks from `start` on, as many as a command takes at most.
    pub async fn read(&self, start: u64, blocks: u32) -> Result<Buffer, JournalError> {
        let extent = Extent::new(Lba(start), blocks);
        self.handle.spend_dispatch().await;
        let ticket = self.layer.when_space(|layer| layer.read(extent)).await?;
        self.answered(&ticket).await?;
        ticket.take_data().ok_or(JournalError::Storage(StorageError::Gone))
    }

    /// Reads a block that leads to the log. Before the log is replayed nothing makes up for damage of such a block, so from
    /// now on it is written in place as superblocks are.
    pub async fn read_on_way_to_log(&self, block: u64) -> Result<Buffer, JournalError> {
        self.found_log_by.borrow_mut().insert(block);
        self.read(block, 1).await
    }

    /// There is no log that anything could lead to.
    pub(crate) fn has_no_log(&self) {
        self.found_log_by.borrow_mut().clear();
    }

    fn is_on_way_to_log(&self, blocks: Range<u64>) -> bool {
        self.protects_in_place() && self.found_log_by.borrow().range(blocks).next().is_some()
    }

    /// Submits consecutive blocks from `start` on, as few writes as commands allow, all of `class` but the
    /// last, which is of class `last`. Waits for queue space only.
    pub async fn write(
        &self,
        start: u64,
        blocks: &[Rc<Buffer>],
        class: Class,
        last: Class,
        tickets: &mut Vec<Ticket>,
    ) -> Result<(), JournalError> {
        self.write_with(start, blocks, (class, last), false, tickets).await
    }

    /// Submits consecutive blocks from `start` on without order, `reliable` ones by reliable writes. Waits for queue space
    /// only.
    pub(crate) async fn write_home(
        &self,
        start: u64,
        blocks: &[Rc<Buffer>],
        reliable: bool,
        tickets: &mut Vec<Ticket>,
    ) -> Result<(), JournalError> {
        self.write_with(start, blocks, (Class::Orderless, Class::Orderless), reliable, tickets).await
    }

    /// Submits a barrier write in place of a block of which nothing else has a copy, with `class`. Waits for queue space
    /// only.
    pub(crate) async fn write_tail(
        &self,
        block: u64,
        buffer: Rc<Buffer>,
        class: Class,
        tickets: &mut Vec<Ticket>,
    ) -> Result<(), JournalError> {
        self.write_with(block, &[buffer], (class, class), self.protects_in_place(), tickets).await
    }

    async fn write_with(
        &self,
        start: u64,
        blocks: &[Rc<Buffer>],
        (class, last): (Class, Class),
        reliable: bool,
        tickets: &mut Vec<Ticket>,
    ) -> Result<(), JournalError> {
        let most = self.capabilities.max_transfer_blocks.max(1) as usize;
        let writes = blocks.len().div_ceil(most);
        for (nth, chunk) in blocks.chunks(most).enumerate() {
            let parts: Vec<Part<'_>> = (start + (nth * most) as u64..)
                .zip(chunk)
                .map(|(block, buffer)| Part { start: Lba(block), data: whole(buffer) })
                .collect();
            let class = if nth + 1 == writes { last } else { class };
            let first = start + (nth * most) as u64;
            let reliable = reliable || self.is_on_way_to_log(first..first + chunk.len() as u64);
            self.handle.spend_dispatch().await;
            let request = Request { reliable, ..Request::new(STREAM, class, &parts) };
            tickets.push(self.layer.submit(&request).await?);
        }
        Ok(())
    }

    /// Submits shares, as few as commands allow: of each pair, the second block reads what the first one does, for all
    /// pairs of a command or for none. Waits for queue space only.
    pub(crate) async fn share(
        &self,
        blocks: &[(u64, u64)],
        tickets: &mut Vec<Ticket>,
    ) -> Result<(), JournalError> {
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
        }
        Ok(())
    }

    /// Submits one block with pre-flush and FUA where `durable`, and waits until it is transferred, or durable. Its
    /// ticket.
    pub async fn write_commit(
        &self,
        block: u64,
        buffer: &Rc<Buffer>,
        durable: bool,
    ) -> Result<Ticket, JournalError> {
        self.write_and_wait(block, buffer, durable, false).await
    }

    /// The same for a block of which nothing else has a copy, such as a superblock: by a reliable write, where a power cut
    /// could corrupt it.
    pub async fn write_in_place(
        &self,
        block: u64,
        buffer: &Rc<Buffer>,
        durable: bool,
    ) -> Result<Ticket, JournalError> {
        self.write_and_wait(block, buffer, durable, self.protects_in_place()).await
    }

    /// Whether what is written in place, and is nowhere else, has to be written reliably.
    fn protects_in_place(&self) -> bool {
        let needs = self.capabilities.corrupts_when_cut && self.capabilities.reliable;
        needs && !self.rules.drops(JournalMutant::SuperblocksUnreliable)
    }

    async fn write_and_wait(
        &self,
        block: u64,
        buffer: &Rc<Buffer>,
        durable: bool,
        reliable: bool,
    ) -> Result<Ticket, JournalError> {
        let parts = [Part { start: Lba(block), data: whole(buffer) }];
        let mut request = Request::orderless(STREAM, &parts);
        (request.fua, request.preflush, request.reliable) = (durable, durable, reliable);
        // The block layer goes from one command to the next when an interrupt comes, and switches no thread for it. So the
        // thread that waits for all of them pays for each.
        let commands = if durable { self.commands_of_durable_write() } else { 1 };
        for _ in 0..commands {
            self.handle.spend_dispatch().await;
        }
        let ticket = self.layer.submit(&request).await?;
        self.wait_for_commit(&ticket, durable).await?;
        for _ in 1..commands {
            self.handle.spend_completion().await;
        }
        Ok(ticket)
    }

    /// Commands that a write with pre-flush and FUA takes: a flush stands for each of the two that the storage lacks.
    fn commands_of_durable_write(&self) -> u32 {
        let Capabilities { preflush, fua, .. } = self.capabilities;
        1 + u32::from(!preflush) + u32::from(!fua)
    }

    /// Submits groups of blocks as one ordered plug with FUA (E8), a mark between each two groups, and waits until all of
    /// it is durable. The ticket of the last command.
    pub(crate) async fn write_in_order(&self, groups: &[&[Run]]) -> Result<Ticket, JournalError> {
        let fua = WriteFlags { fua: true, ..WriteFlags::default() };
        let mut plug = OrderedPlug::start(&self.layer, STREAM)?;
        for group in groups {
            plug.mark();
            for Run { start, blocks } in *group {
                for (block, buffer) in (*start..).zip(blocks) {
                    plug.write(Part { start: Lba(block), data: whole(buffer) }, fua);
                }
            }
        }
        self.handle.spend_dispatch().await;
        let ticket = plug.finish().await?;
        self.wait_for_commit(&ticket, true).await?;
        Ok(ticket)
    }

    /// Waits for a commit block.
    async fn wait_for_commit(&self, ticket: &Ticket, durable: bool) -> Result<(), StorageError> {
        {
            let mut waits = self.waits.borrow_mut();
            waits.transfers += 1;
            waits.durable_commits += u64::from(durable);
        }
        self.answered(ticket).await
    }

    /// Submits a flush of its own, which no caller shares. Its ticket.
    pub(crate) async fn submit_flush(&self) -> Result<Ticket, JournalError> {
        self.handle.spend_dispatch().await;
        let ticket = self.layer.when_space(BlockLayer::flush).await?;
        self.waits.borrow_mut().flushes += 1;
        Ok(ticket)
    }

    /// Waits until all of `tickets` are transferred; the first error, if there is one.
    pub async fn transferred(&self, tickets: &[Ticket]) -> Result<(), JournalError> {
        if tickets.is_empty() {
            return Ok(());
        }
        self.waits.borrow_mut().transfers += 1;
        let mut result = Ok(());
        for ticket in tickets {
            result = result.and(self.answered(ticket).await);
        }
        Ok(result?)
    }

    /// Epochs that were ended.
    pub fn epochs(&self) -> u64 {
        let stats = self.layer.stats();
        stats.barrier_writes + stats.bare_barriers
    }

    /// Puts a bare barrier mark.
    pub async fn barrier(&self) -> Result<(), JournalError> {
        self.handle.spend_dispatch().await;
        self.layer.when_space(|layer| layer.barrier(STREAM)).await?;
        Ok(())
    }

    /// Makes orderless writes to these blocks that are not transferred yet part of the current epoch (E7); their
    /// tickets.
    pub fn promote(&self, pages: &[Extent]) -> Vec<Ticket> {
        if pages.is_empty() { Vec::new() } else { self.layer.promote(STREAM, pages).tickets }
    }

    /// Makes durable what was transferred before. Callers that come while a flush is under way share the next.
    pub async fn flush(&self) -> Result<(), JournalError> {
        if self.flushes.is_under_way() && self.rules.drops(JournalMutant::JoinsFlush) {
            return Ok(self.flushes.until(self.flushes.begun_to()).await?);
        }
        let submit = async || self.submit_flush().await;
        let wait = async |ticket| match self.rules.drops(JournalMutant::FlushNotAwaited) {
            true => Ok(()),
            false => self.answered(&ticket).await,
        };
        self.flushes.flush(submit, wait).await
    }

    /// Discards extents, and waits until that is transferred: how many commands it took.
    pub async fn discard(&self, extents: &[Extent]) -> Result<u64, JournalError> {
        let mut commands = 0;
        for extents in extents.chunks(self.capabilities.max_discard_extents.max(1) as usize) {
            let ticket = self.layer.when_space(|layer| layer.discard(STREAM, extents)).await?;
            ticket.transferred().await?;
            commands += 1;
        }
        Ok(commands)
    }
}

fn whole(buffer: &Rc<Buffer>) -> Data<'_> {
    Data::Shared { buffer, offset: 0, bytes: BLOCK_BYTES }
}
