//! The block layer as a journal uses it: what was promised of order, and which blocks are written reliably.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::ops::{Deref, Range};
use std::rc::Rc;

use weir_block::{BlockIo, BlockLayer, Class, Durable};
use weir_runtime::{Buffer, Handle};
use weir_storage::{Capabilities, Ticket};

use crate::error::JournalError;
use crate::mutants::{JournalMutant, JournalRules};

/// The block layer, as one filesystem uses it.
pub struct Disk {
    io: BlockIo,
    rules: JournalRules,
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
            io: BlockIo::new(handle, layer, capabilities),
            rules,
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

    /// Reads a block that leads to the log. Before the log is replayed nothing makes up for damage of such a block, so from
    /// now on it is written in place as superblocks are.
    pub async fn read_on_way_to_log(&self, block: u64) -> Result<Buffer, JournalError> {
        self.found_log_by.borrow_mut().insert(block);
        Ok(self.io.read(block, 1).await?)
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
        classes: (Class, Class),
        reliable: bool,
        tickets: &mut Vec<Ticket>,
    ) -> Result<(), JournalError> {
        let reliable = |blocks| reliable || self.is_on_way_to_log(blocks);
        Ok(self.io.write(start, blocks, classes, reliable, tickets).await?)
    }

    /// Submits one block, and waits until it is transferred, or `durable`. Its ticket.
    pub async fn write_commit(
        &self,
        block: u64,
        buffer: &Rc<Buffer>,
        durable: Durable,
    ) -> Result<Ticket, JournalError> {
        Ok(self.io.write_and_wait(block, buffer, durable, false).await?)
    }

    /// The same for a block of which nothing else has a copy, such as a superblock: by a reliable write, where a power cut
    /// could corrupt it.
    pub async fn write_in_place(
        &self,
        block: u64,
        buffer: &Rc<Buffer>,
        durable: Durable,
    ) -> Result<Ticket, JournalError> {
        Ok(self.io.write_and_wait(block, buffer, durable, self.protects_in_place()).await?)
    }

    /// Whether what is written in place, and is nowhere else, has to be written reliably.
    fn protects_in_place(&self) -> bool {
        let needs = self.io.capabilities().corrupts_when_cut && self.io.capabilities().reliable;
        needs && !self.rules.drops(JournalMutant::SuperblocksUnreliable)
    }

    /// Makes durable what was transferred before. Callers that come while a flush is under way share the next.
    pub async fn flush(&self) -> Result<(), JournalError> {
        let done = match self.rules.drops(JournalMutant::FlushNotAwaited) {
            true => self.io.share_flush(async |_| Ok(())).await,
            false => self.io.flush().await,
        };
        Ok(done?)
    }
}

impl Deref for Disk {
    type Target = BlockIo;

    fn deref(&self) -> &BlockIo {
        &self.io
    }
}
