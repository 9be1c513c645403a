//! Submitting the dirty pages of a file, and following what is on its way.
//!
//! Writes to a file's pages are submitted by the first that comes: the writeback task without order, a commit or
//! a synchronisation call in the stream's epoch. One at a time: so a caller that asks for order finds every page either
//! dirty, or on its way and known here.

use std::ops::Range;

use weir_block::Class;
use weir_journal::{JournalError, Sequence, SyncedFile};
use weir_runtime::Permit;
use weir_storage::{Extent, Lba, StorageError, Ticket};

use crate::file::CachedFile;
use crate::in_flight::Flight;
use crate::mutants::CacheMutant;

impl SyncedFile for CachedFile {
    async fn submit_dirty(&self, class: Class, last: Class) -> Result<bool, JournalError> {
        self.take_turn().await.submit(class, last).await
    }

    fn untransferred(&self) -> Vec<Ticket> {
        let mut in_flight = self.in_flight.borrow_mut();
        in_flight.settle();
        in_flight.flights.iter().map(|flight| flight.ticket.clone()).collect()
    }

    async fn wait_transferred(&self) -> Result<(), JournalError> {
        Ok(self.cache.disk.wait_transferred(&self.untransferred()).await?)
    }

    fn dropped_in(&self) -> Option<Sequence> {
        self.dropped_in.get()
    }

    fn check_written(&self) -> Result<(), JournalError> {
        let mut in_flight = self.in_flight.borrow_mut();
        in_flight.settle();
        let failed = in_flight.failed;
        if self.cache.rules.drops(CacheMutant::WriteErrorForgotten) {
            in_flight.failed = None;
        }
        failed.map_or(Ok(()), |error| Err(error.into()))
    }
}

impl CachedFile {
    /// Submits the dirty pages for writeback, without a call. The class is decided when this has its turn: a call may have promised
    /// order while this waited, and pages may have changed behind it.
    pub(crate) async fn submit_unasked(&self) -> Result<bool, JournalError> {
        let early = self.cache.disk.class_of_writeback();
        let turn = self.take_turn().await;
        let class = match self.cache.rules.drops(CacheMutant::WritebackDecidesEarly) {
            true => early,
            false => self.cache.disk.class_of_writeback(),
        };
        turn.submit(class, class).await
    }

    /// Waits for the turn to submit the file's pages, or to forget some.
    pub async fn take_turn(&self) -> SubmitTurn<'_> {
        SubmitTurn { file: self, _permit: self.submitting.acquire(1).await }
    }

    /// Submits the dirty pages as they are now, for the caller that has the turn to submit: all of `class` but the last write,
    /// which is of class `last`. In order, what is on its way without joins the epoch (E7).
    async fn submit_in_turn(&self, class: Class, last: Class) -> Result<bool, JournalError> {
        self.in_flight.borrow_mut().settle();
        let skips =
            self.cache.rules.drops(CacheMutant::PromotesOnlyIfClean) && self.pages.borrow().dirty() > 0;
        if class != Class::Orderless && !skips {
            self.promote();
        }
        if let Err(cause) = self.place_dirty(class) {
            // As after a write that fails.
            let given_up = self.pages.borrow_mut().give_up_dirty();
            self.cache.pages_cleaned(self, given_up);
            self.in_flight.borrow_mut().failed.get_or_insert(cause);
            return Err(cause.into());
        }
        let disk = &self.cache.disk;
        let most = disk.capabilities().max_transfer_blocks.max(1) as usize;
        let runs = self.pages.borrow().dirty_runs(most, self.cache.rules);
        let mut tickets = Vec::new();
        for (nth, run) in runs.iter().enumerate() {
            let last = if nth + 1 == runs.len() { last } else { class };
            tickets.clear();
            let done = disk.write(run.start, &run.blocks, class, last, &mut tickets).await;
            self.remember(run.start, run.blocks.len(), &tickets, most, class == Class::Orderless);
            // After an error too: a write that fails must not be repeated without end. The failure is not forgotten.
            let cleaned = self.pages.borrow_mut().submitted(run, &tickets, most, self.cache.rules);
            self.cache.pages_cleaned(self, cleaned);
            if let Err(error) = done {
                let cause = match error {
                    JournalError::Storage(cause) => cause,
                    _ => StorageError::Aborted,
                };
                self.in_flight.borrow_mut().failed.get_or_insert(cause);
                return Err(error);
            }
        }
        Ok(!runs.is_empty())
    }

    /// Gives the dirty pages their places, if the filesystem chooses them now.
    fn place_dirty(&self, class: Class) -> Result<(), StorageError> {
        let Some(placer) = &self.placer else { return Ok(()) };
        let pages = self.pages.borrow().dirty_pages();
        if pages.is_empty() {
            return Ok(());
        }
        let places = placer.place_pages(self.number, &pages, class)?;
        if places.len() != pages.len() {
            return Err(StorageError::Aborted);
        }
        let mut in_memory = self.pages.borrow_mut();
        for (page, place) in pages.iter().zip(places) {
            in_memory.set_place(page.index, place);
        }
        Ok(())
    }

    fn remember(&self, start: u64, blocks: usize, tickets: &[Ticket], most: usize, orderless: bool) {
        let mut in_flight = self.in_flight.borrow_mut();
        for (nth, ticket) in tickets.iter().enumerate() {
            let from = nth * most;
            let extent = Extent::new(Lba(start + from as u64), most.min(blocks - from) as u32);
            in_flight.flights.push_back(Flight { extent, ticket: ticket.clone(), orderless });
        }
    }

    /// E7: a page under orderless writeback looks clean; without this, what comes next would overtake it.
    fn promote(&self) {
        let mut in_flight = self.in_flight.borrow_mut();
        let orderless = in_flight.flights.iter_mut().filter(|flight| flight.orderless);
        let most = if self.cache.rules.drops(CacheMutant::PromotesFirstWriteOnly) { 1 } else { usize::MAX };
        let extents: Vec<Extent> = orderless
            .take(most)
            .map(|flight| {
                flight.orderless = false;
                flight.extent
            })
            .collect();
        drop(in_flight);
        drop(self.cache.disk.promote(&extents));
    }

    /// Whether the disk has all of its pages, and none of their writes failed.
    pub fn is_on_disk(&self) -> bool {
        self.check_written().is_ok()
            && self.in_flight.borrow().flights.is_empty()
            && self.pages.borrow().all_on_disk()
    }
}

/// The turn of a caller that submits a file's pages, or forgets some: no other does as long as this lives.
pub struct SubmitTurn<'a> {
    file: &'a CachedFile,
    _permit: Permit,
}

impl SubmitTurn<'_> {
    /// Submits the dirty pages as they are now: all of `class` but the last write, which is of class `last`. Waits for queue
    /// space only. Whether there was something to submit.
    ///
    /// # Errors
    /// Those of the storage.
    pub async fn submit(&self, class: Class, last: Class) -> Result<bool, JournalError> {
        self.file.submit_in_turn(class, last).await
    }

    /// Whether some of the pages are dirty.
    pub fn has_dirty(&self) -> bool {
        self.file.pages.borrow().dirty() > 0
    }

    /// The transaction `sequence` takes blocks of dirty pages away, which are forgotten next: a call that makes the file
    /// durable waits for it.
    pub fn drop_dirty_in(&self, sequence: Sequence) {
        self.file.dropped_in.set(Some(sequence));
    }

    /// Forgets the pages in a range, dirty or not. No task submits any of them after this.
    pub fn forget(&self, range: Range<u32>) {
        let file = self.file;
        let (gone, dirty) = file.pages.borrow_mut().forget(range);
        file.cache.left(gone);
        file.cache.pages_cleaned(file, dirty);
    }
}

#[cfg(test)]
mod tests;
