//! A *handle*: one operation's access to the running transaction. As long as it is open the transaction is not
//! locked, so everything done with one handle is one atomic group, whatever files it touches (J8).

use std::cell::{Cell, RefMut};
use std::ops::Range;
use std::rc::Rc;

use weir_ext4::journal::Sequence;
use weir_runtime::Buffer as Memory;
use weir_storage::Extent;

use crate::buffer::BufferHead;
use crate::error::StopReason;
use crate::journal::Journal;
use crate::mutants::JournalMutant;
use crate::running::Running;
use crate::transaction::OrderedData;

/// An open handle; dropping it closes it.
pub struct TxHandle {
    journal: Rc<Journal>,
    /// Blocks that it may still change.
    left: Cell<u32>,
    /// Whether its caller may use the blocks that are reserved for the superuser.
    reserve: bool,
}

impl TxHandle {
    pub(crate) fn new(journal: Rc<Journal>, credits: u32) -> TxHandle {
        TxHandle { journal, left: Cell::new(credits), reserve: true }
    }

    /// The same handle for a caller that may use the blocks that are reserved for the superuser, or may not.
    pub fn of_caller(mut self, reserve: bool) -> TxHandle {
        self.reserve = reserve;
        self
    }

    /// Whether its caller may use the blocks that are reserved for the superuser.
    pub fn has_reserve(&self) -> bool {
        self.reserve
    }

    /// The transaction that it changes.
    pub fn sequence(&self) -> Sequence {
        self.journal.running.borrow().sequence()
    }

    /// Changes `range` of a buffer's bytes (J8: a change names its bytes).
    pub fn modify<T>(
        &self,
        buffer: &Rc<BufferHead>,
        range: Range<usize>,
        change: impl FnOnce(&mut [u8]) -> T,
    ) -> T {
        self.enter(buffer);
        buffer.change(range, change)
    }

    /// Gives a buffer other content, all of it.
    pub fn replace(&self, buffer: &Rc<BufferHead>, content: Rc<Memory>) {
        self.enter(buffer);
        buffer.replace(content);
    }

    /// Makes a buffer part of the transaction.
    fn enter(&self, buffer: &Rc<BufferHead>) {
        let released = self.journal.progress.released.to();
        let mut running = self.begin_change();
        if running.enter(buffer, self.journal.options.engine.lists_conflicts().then_some(released)) {
            self.spend(&mut running, 1);
        }
    }

    /// The running transaction, which changes now. Its age counts from its first change: the timer starts.
    fn begin_change(&self) -> RefMut<'_, Running> {
        let mut running = self.journal.running.borrow_mut();
        if running.begin_change(|| self.journal.disk.handle().now()) {
            self.journal.signals.begun.notify(usize::MAX);
        }
        running
    }

    fn spend(&self, running: &mut Running, blocks: u32) {
        let spent = self.left.get().min(blocks);
        self.left.set(self.left.get() - spent);
        running.spend(spent);
    }

    /// A journaled block was freed: what the log holds of it is not replayed over whatever comes there next
    /// (J5 d).
    pub fn revoke(&self, block: u64) {
        let mut running = self.begin_change();
        running.forget(block);
        if !self.journal.drops(JournalMutant::NoRevoke) {
            running.revoke(block);
        }
    }

    /// Blocks of a file are allocated whose content comes with this transaction.
    pub fn allocated(&self, extent: Extent) {
        if self.journal.options.selective {
            self.begin_change().allocated(extent.start.0..extent.end().0);
        }
    }

    /// Whether the log says what a block holds in place, so that it has to be revoked before it may change (J10).
    pub fn is_checked(&self, block: u64) -> bool {
        self.journal.checked.holds(block) && !self.journal.drops(JournalMutant::CheckedNotRevoked)
    }

    /// Dirty pages are dropped, as the transaction takes their blocks away: it is not empty from now on.
    pub fn drop_pages(&self) {
        self.begin_change().drop_pages();
    }

    /// Blocks are freed with this transaction, and not reused before it is in the log (J7).
    pub fn free(&self, extent: Extent) {
        self.journal.running.borrow_mut().free(extent);
    }

    /// The transaction refers to data that has to be written before its commit block (J2).
    pub fn attach(&self, data: Rc<dyn OrderedData>) {
        self.journal.running.borrow_mut().attach(data);
    }
}

impl Drop for TxHandle {
    fn drop(&mut self) {
        if self.journal.is_abandoning() {
            self.journal.abort(StopReason::Abandoned);
        }
        let mut running = self.journal.running.borrow_mut();
        self.spend(&mut running, self.left.get());
        if self.journal.drops(JournalMutant::GroupSplit) {
            return;
        }
        let last = running.close();
        drop(running);
        if last {
            self.journal.signals.changed.notify(usize::MAX);
        }
    }
}
