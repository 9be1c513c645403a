//! The base of an open volume, which is only read (V12).
//!
//! - **A block that the map says nothing of** has not changed since the base, and is read from there.
//! - **A discard** says in the map that a block reads zeros ([`Entry::EMPTY`](crate::map::Entry::EMPTY)), since one that is nowhere
//!   would read the base again. It names only blocks that the map or the base has, so that memory and checkpoints follow those (V6).
//! - **A share** is one record, whose source the volume has to hold. So a block that only the base has is copied first, as a
//!   write of the same content: until then the share is refused as by a full queue.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::ops::Range;
use std::rc::Rc;

use weir_storage::{
    BLOCK_BYTES, Command, Extent, Lba, Part, Rejected, Storage, StorageError, Ticket, Write, read,
    submit_when_free,
};

use crate::common::failure;
use crate::layout::ENTRIES_PER_CHUNK;
use crate::log::Log;
use crate::map_page::{page_of, pages_of};
use crate::mutants::VolumeMutant;
use crate::names::Pairs;
use crate::pager::WhenFull;

/// Blocks that could not be copied are remembered for so many shares at most.
const FAILURES_KEPT: usize = 1024;

/// The base of an open volume.
pub(crate) struct BaseStorage {
    storage: Rc<dyn Storage>,
    log: Rc<Log>,
    /// Blocks are being copied.
    is_copying: Cell<bool>,
    /// Blocks that could not be copied, until a share that needs them is told.
    failures: RefCell<BTreeMap<u32, StorageError>>,
}

impl BaseStorage {
    pub(crate) fn new(log: &Rc<Log>, storage: Rc<dyn Storage>) -> BaseStorage {
        let (is_copying, failures) = Default::default();
        BaseStorage { storage, log: Rc::clone(log), is_copying, failures }
    }

    /// The first block from here on that it may have.
    pub(crate) fn next_data(&self, from: Lba) -> Option<Lba> {
        self.storage.next_data(from)
    }

    /// Whether it may have a block.
    pub(crate) fn has(&self, lba: Lba) -> bool {
        self.next_data(lba) == Some(lba)
    }

    /// Begins to read blocks of an extent, by their indices in it, which are in order: each ticket reads a run of them.
    pub(crate) async fn begin_reads(
        &self,
        extent: Extent,
        indices: &[usize],
    ) -> Result<Vec<(Range<usize>, Ticket)>, StorageError> {
        let most = self.storage.capabilities().max_transfer_blocks.max(1) as usize;
        let mut tickets = Vec::new();
        for run in indices.chunk_by(|a, b| a + 1 == *b).flat_map(|run| run.chunks(most)) {
            let at = Extent::new(extent.start.offset(run[0] as u64), run.len() as u32);
            let ticket = submit_when_free(&*self.storage, Command::read(at)).await.map_err(failure)?;
            tickets.push((run[0]..run[0] + run.len(), ticket));
        }
        Ok(tickets)
    }

    /// What a discard has to name of these extents: the blocks that do not read zeros already. All, if those are in more pieces than
    /// a record has entries. [`Rejected::Busy`] as for the discard itself.
    pub(crate) fn part_to_discard(&self, extents: &[Extent]) -> Result<Vec<Extent>, Rejected> {
        let pages = || extents.iter().flat_map(|extent| pages_of(*extent));
        self.log.pager.prepare(pages().count(), true, pages)?;
        let blocks = self.log.blocks.borrow();
        let mut parts: Vec<Extent> = Vec::new();
        for extent in extents {
            let mut of_base = self.next_data(extent.start);
            let mut last: Option<Extent> = None;
            for lba in extent.iter() {
                if of_base.is_some_and(|found| found < lba) {
                    of_base = self.next_data(lba);
                }
                let entry = blocks.entry(lba.0 as u32);
                if !entry.is_mapped() && (entry.is_known() || of_base != Some(lba)) {
                    parts.extend(last.take());
                    continue;
                }
                let run = last.get_or_insert(Extent::new(lba, 0));
                run.blocks += 1;
            }
            parts.extend(last);
        }
        Ok(if parts.len() > ENTRIES_PER_CHUNK { extents.to_vec() } else { parts })
    }

    /// Sees to it that the volume holds the sources of a share. [`Rejected::Busy`] while some are being copied: `slots` tells when
    /// they are there.
    ///
    /// # Errors
    /// Why one of them could not be copied for a share before.
    pub(crate) fn prepare_share(self: &Rc<BaseStorage>, pairs: &Pairs) -> Result<(), Rejected> {
        let common = &self.log.common;
        self.log.pager.prepare(pairs.len(), true, || pairs.values().map(|from| page_of(*from)))?;
        if let Some(error) = pairs.values().find_map(|from| self.failures.borrow_mut().remove(from)) {
            return Err(Rejected::Failed(error));
        }
        let blocks = self.log.blocks.borrow();
        let mut sources: Vec<u32> =
            pairs.values().copied().filter(|from| !blocks.entry(*from).is_known()).collect();
        sources.retain(|from| self.has(Lba(u64::from(*from))));
        if sources.is_empty() || common.drops(VolumeMutant::ShareUncopied) {
            return Ok(());
        }
        if self.is_copying.replace(true) {
            return Err(Rejected::Busy);
        }
        sources.sort_unstable();
        sources.dedup();
        let base = Rc::clone(self);
        drop(common.handle.spawn(async move {
            base.copy(&sources).await;
            base.is_copying.set(false);
            base.log.common.slots.notify(usize::MAX);
        }));
        Err(Rejected::Busy)
    }

    /// Copies blocks, which are in order, into the volume.
    async fn copy(&self, sources: &[u32]) {
        let most = self.storage.capabilities().max_transfer_blocks.max(1) as usize;
        for run in sources.chunk_by(|a, b| a + 1 == *b).flat_map(|run| run.chunks(most)) {
            let extent = Extent::new(Lba(u64::from(run[0])), run.len() as u32);
            let found = read(&*self.storage, extent).await;
            for (i, lba) in run.iter().enumerate() {
                let copied = match &found {
                    Ok(data) => self.write(*lba, &data[i * BLOCK_BYTES..(i + 1) * BLOCK_BYTES]).await,
                    Err(error) => Err(*error),
                };
                let Err(error) = copied else { continue };
                let mut failures = self.failures.borrow_mut();
                // Callers that have given up do not ask for theirs.
                if failures.len() == FAILURES_KEPT {
                    failures.pop_first();
                }
                failures.insert(*lba, failure(error));
            }
        }
    }

    /// Writes what the base has of a block, unless it was written or discarded meanwhile.
    async fn write(&self, lba: u32, data: &[u8]) -> Result<(), Rejected> {
        let common = &self.log.common;
        let attempt = async || {
            self.log.pager.load(WhenFull::Wait, |_| vec![page_of(lba)]).await?;
            if self.log.blocks.borrow().entry(lba).is_known() {
                return Ok(());
            }
            if common.closing.get() {
                return Err(Rejected::Failed(StorageError::Gone));
            }
            self.log.append(&[Write::new(&[Part::bytes(Lba(u64::from(lba)), data)])]).map(drop)
        };
        common.until_accepted(attempt).await
    }
}
