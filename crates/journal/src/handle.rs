//! A *handle*: one operation's access to the running transaction. As long as it is open the transaction is not
//! locked, so everything done with one handle is one atomic group, whatever files it touches (J8).

use std::cell::Cell;
use std::ops::Range;
use std::rc::Rc;

use weir_ext4::journal::Sequence;
use weir_storage::Extent;

use crate::buffer::BufferHead;
use crate::engine::{Conflicts, Engine};
use crate::error::StopReason;
use crate::journal::{Journal, State};
use crate::mutants::JournalMutant;
use crate::transaction::{OrderedData, Running};

/// An open handle; dropping it closes it.
pub struct TxHandle {
    journal: Rc<Journal>,
    /// Blocks that it may still change.
    left: Cell<u32>,
    /// Whether it is of a caller who may take what is reserved for the superuser.
    reserve: bool,
}

impl TxHandle {
    pub(crate) fn new(journal: Rc<Journal>, credits: u32) -> TxHandle {
        TxHandle { journal, left: Cell::new(credits), reserve: true }
    }

    /// The same for what a caller does who may take what is reserved for the superuser, or may not.
    pub fn of_caller(mut self, reserve: bool) -> TxHandle {
        self.reserve = reserve;
        self
    }

    /// Whether it is of a caller who may take what is reserved for the superuser.
    pub fn has_reserve(&self) -> bool {
        self.reserve
    }

    /// The transaction that it changes.
    pub fn sequence(&self) -> Sequence {
        self.journal.running()
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

    /// Makes a buffer part of the transaction.
    fn enter(&self, buffer: &Rc<BufferHead>) {
        let mut state = self.journal.state.borrow_mut();
        let State { running, transferred_to, .. } = &mut *state;
        self.begin(running);
        if buffer.changed_in.replace(Some(running.sequence)) == Some(running.sequence) {
            return;
        }
        if self.journal.options.engine == (Engine::Dual { conflicts: Conflicts::List })
            && let Some(holder) = buffer.held_by.get().filter(|holder| holder.is_after(*transferred_to))
        {
            running.conflicts.insert(buffer.block(), holder);
        }
        buffer.pins.set(buffer.pins.get() + 1);
        // Changed again, it is to be replayed after all.
        running.revokes.remove(&buffer.block());
        if let Some(old) = running.buffers.insert(buffer.block(), Rc::clone(buffer)) {
            leave(&old);
        }
        self.spend(running, 1);
    }

    /// The transaction's age counts from its first change: the timer starts.
    fn begin(&self, running: &mut Running) {
        if running.since.is_none() {
            running.since = Some(self.journal.disk.handle().now());
            self.journal.begun.notify(usize::MAX);
        }
    }

    fn spend(&self, running: &mut Running, blocks: u32) {
        let spent = self.left.get().min(blocks);
        self.left.set(self.left.get() - spent);
        running.granted = running.granted.saturating_sub(spent);
    }

    /// A journaled block was freed: what the log holds of it is not replayed over whatever comes there next
    /// (J5 d).
    pub fn revoke(&self, block: u64) {
        let mut state = self.journal.state.borrow_mut();
        let running = &mut state.running;
        self.begin(running);
        if let Some(buffer) = running.buffers.remove(&block) {
            leave(&buffer);
            running.conflicts.remove(&block);
        }
        if !self.journal.options.rules.drops(JournalMutant::NoRevoke) {
            running.revokes.insert(block);
        }
    }

    /// Dirty pages are dropped, as the transaction takes their blocks away: it is not empty from now on.
    pub fn drop_pages(&self) {
        let mut state = self.journal.state.borrow_mut();
        self.begin(&mut state.running);
        state.running.drops_pages = true;
    }

    /// Blocks are freed with this transaction, and not reused before it is in the log (J7).
    pub fn free(&self, extent: Extent) {
        self.journal.state.borrow_mut().running.freed.push(extent);
    }

    /// The transaction refers to data that has to be written before its commit block (J2).
    pub fn attach(&self, data: Rc<dyn OrderedData>) {
        self.journal.state.borrow_mut().running.data.insert(data.id(), data);
    }
}

/// A buffer leaves the running transaction without being committed. Should it come back, all of it is new to the log.
fn leave(buffer: &BufferHead) {
    buffer.mark_all_changed();
    buffer.changed_in.set(None);
    buffer.pins.set(buffer.pins.get().saturating_sub(1));
}

impl Drop for TxHandle {
    fn drop(&mut self) {
        if self.journal.is_abandoning() {
            self.journal.abort(StopReason::Abandoned);
        }
        let mut state = self.journal.state.borrow_mut();
        let running = &mut state.running;
        self.spend(running, self.left.get());
        if self.journal.options.rules.drops(JournalMutant::GroupSplit) {
            return;
        }
        running.handles -= 1;
        let last = running.handles == 0;
        drop(state);
        if last {
            self.journal.changed.notify(usize::MAX);
        }
    }
}
