//! The *pager* loads pages of the map that are on the disk only, before one of their entries is looked at (V6).
//!
//! 1. A command of a user that changes such a page is refused as by a full queue, and the page is read; when it is in
//!    memory, the command is taken. If the page cannot be read, the command fails, and the volume goes on. A read waits by
//!    itself instead, and so does the cleaner.
//! 2. Before pages are read, others are evicted. Where most pages have changed, a checkpoint has to write them first: users wait
//!    for it, and the cleaner, which takes that checkpoint itself, exceeds the limit by the pages that it looks at. So do users who
//!    bring a mark about, for which that checkpoint waits (V13): by a page for each block that is kept for them.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use event_listener::Event;
use weir_runtime::Semaphore;
use weir_storage::{Extent, Lba, Rejected, Rules, Storage, StorageError, read};
use zerocopy::FromBytes;

use crate::blocks::Blocks;
use crate::checkpoint::whole_page;
use crate::common::{Common, failure};
use crate::geometry::Geometry;
use crate::layout::{ENTRIES_PER_PAGE, MapPage};
use crate::map::Entry;
use crate::map_page::Stored;
use crate::marks::MarkState;
use crate::mutants::VolumeMutant;

/// Pages that are read at one time.
const LOADS_AT_ONCE: usize = 64;

/// Pages that could not be read are remembered for so many commands at most.
const FAILURES_KEPT: usize = 1024;

/// What to do where the limit is reached and no page can be evicted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WhenFull {
    /// Wait for a checkpoint.
    Wait,
    /// Exceed the limit.
    Exceed,
}

/// A page that is being read.
#[derive(Default)]
struct Load {
    ended: Event,
    outcome: Cell<Option<Result<(), StorageError>>>,
    /// A command that changes the page was refused, and is told of a failure when it comes again.
    is_to_change: Cell<bool>,
}

impl Load {
    async fn until_ended(&self) -> Result<(), Rejected> {
        loop {
            let ended = self.ended.listen();
            if let Some(outcome) = self.outcome.get() {
                return outcome.map_err(Rejected::Failed);
            }
            ended.await;
        }
    }
}

/// Loads pages of the map of an open volume.
pub(crate) struct Pager {
    common: Rc<Common>,
    blocks: Rc<RefCell<Blocks>>,
    loading: RefCell<BTreeMap<u32, Rc<Load>>>,
    /// Pages that could not be read for a command that changes them, until that is told.
    failures: RefCell<BTreeMap<u32, StorageError>>,
    at_once: Semaphore,
}

impl Pager {
    pub(crate) fn new(common: &Rc<Common>, blocks: &Rc<RefCell<Blocks>>) -> Rc<Pager> {
        let (common, blocks) = (Rc::clone(common), Rc::clone(blocks));
        let (loading, failures) = Default::default();
        Rc::new(Pager { common, blocks, loading, failures, at_once: Semaphore::new(LOADS_AT_ONCE) })
    }

    /// Sees to it that a command can change these pages. [`Rejected::Busy`] if some are on their way: `slots` tells when they are
    /// there. `pages_max` is an upper bound of how many these are. The command maps blocks, or only discards some, which makes no
    /// page.
    ///
    /// # Errors
    /// What the disk answered when a page was read for such a command before.
    #[inline]
    pub(crate) fn prepare<I: Iterator<Item = u32>>(
        self: &Rc<Pager>,
        pages_max: usize,
        maps_blocks: bool,
        pages: impl FnOnce() -> I,
    ) -> Result<(), Rejected> {
        if self.blocks.borrow().map.is_small(pages_max) {
            return Ok(());
        }
        self.prepare_pages(&once_each(pages().collect()), maps_blocks)
    }

    #[cold]
    fn prepare_pages(self: &Rc<Pager>, pages: &[u32], maps_blocks: bool) -> Result<(), Rejected> {
        if self.blocks.borrow().map.is_crowded() {
            self.common.upkeep_needed.notify(1);
        }
        if let Some(error) = self.common.watermark.failure() {
            return Err(Rejected::Failed(error));
        }
        if let Some(error) = pages.iter().find_map(|page| self.failures.borrow_mut().remove(page)) {
            return Err(Rejected::Failed(error));
        }
        let missing = self.missing(pages);
        let is_empty = |page: &&u32| maps_blocks && self.blocks.borrow().map.is_empty(**page);
        let empty = pages.iter().filter(is_empty).count();
        if missing.is_empty() && empty == 0 {
            return Ok(());
        }
        if !self.make_room(missing.len() + empty, pages)? {
            return Err(Rejected::Busy);
        }
        for (page, stored) in &missing {
            self.begin(*page, *stored).is_to_change.set(true);
        }
        if missing.is_empty() { Ok(()) } else { Err(Rejected::Busy) }
    }

    /// Loads pages, which `pages` is asked for again after each wait. When this returns, all of them can be looked at until the
    /// caller waits for something.
    ///
    /// # Errors
    /// What the disk answered; [`StorageError::Damaged`] for a page that is not as it was written.
    pub(crate) async fn load(
        self: &Rc<Pager>,
        when_full: WhenFull,
        pages: impl Fn(&Blocks) -> Vec<u32>,
    ) -> Result<(), Rejected> {
        loop {
            if self.blocks.borrow().map.pages_evicted() == 0 {
                return Ok(());
            }
            let pages = once_each(pages(&self.blocks.borrow()));
            let missing = self.missing(&pages);
            if missing.is_empty() {
                return Ok(());
            }
            let room = self.common.slots.listen();
            if !self.make_room(missing.len(), &pages)? && when_full == WhenFull::Wait {
                room.await;
                continue;
            }
            let loads: Vec<Rc<Load>> =
                missing.iter().map(|(page, stored)| self.begin(*page, *stored)).collect();
            for load in loads {
                load.until_ended().await?;
            }
        }
    }

    /// Those that are on the disk only.
    fn missing(&self, pages: &[u32]) -> Vec<(u32, Stored)> {
        let blocks = self.blocks.borrow();
        pages.iter().filter_map(|page| Some((*page, blocks.map.evicted(*page)?))).collect()
    }

    fn make_room(&self, pages: usize, command: &[u32]) -> Result<bool, Rejected> {
        let under_way = self.loading.borrow().len();
        let has_room = self.blocks.borrow_mut().map.make_room(pages + under_way, command);
        if !has_room {
            if let Some(error) = self.common.watermark.failure() {
                return Err(Rejected::Failed(error));
            }
            self.common.upkeep_needed.notify(1);
        }
        // A checkpoint waits for the mark, so the mark waits for none.
        let brings_mark = self.common.marks.as_ref().is_some_and(MarkState::is_begun);
        Ok(has_room || brings_mark)
    }

    /// Begins to read a page, if it is not being read.
    fn begin(self: &Rc<Pager>, page: u32, stored: Stored) -> Rc<Load> {
        if let Some(load) = self.loading.borrow().get(&page) {
            return Rc::clone(load);
        }
        let load = Rc::new(Load::default());
        self.loading.borrow_mut().insert(page, Rc::clone(&load));
        let (pager, load_of_task) = (Rc::clone(self), Rc::clone(&load));
        self.common.handle.spawn(async move { pager.read(page, stored, &load_of_task).await });
        load
    }

    async fn read(&self, page: u32, stored: Stored, load: &Load) {
        let permit = self.at_once.acquire(1).await;
        let outcome =
            read_page(&*self.common.disk, &self.common.geometry, page, stored, self.common.options.rules)
                .await;
        drop(permit);
        let outcome = outcome.map(|entries| self.blocks.borrow_mut().map.admit(page, stored, &entries));
        if let (Err(error), true) = (outcome, load.is_to_change.get()) {
            let mut failures = self.failures.borrow_mut();
            // Callers that have given up do not ask for theirs.
            if failures.len() == FAILURES_KEPT {
                failures.pop_first();
            }
            failures.insert(page, error);
        }
        self.common.count(|stats| stats.map_pages_loaded += u64::from(outcome.is_ok()));
        self.loading.borrow_mut().remove(&page);
        load.outcome.set(Some(outcome));
        load.ended.notify(usize::MAX);
        self.common.slots.notify(usize::MAX);
    }
}

/// Reads the entries of a page of the map from its place on the disk.
///
/// # Errors
/// What the disk answered; [`StorageError::Damaged`], with the page's first logical block, if it is not as it was written.
pub(crate) async fn read_page(
    disk: &dyn Storage,
    geometry: &Geometry,
    page: u32,
    stored: Stored,
    rules: Rules<VolumeMutant>,
) -> Result<Vec<Entry>, StorageError> {
    let at = geometry.map_page(stored.slot.area(), page);
    let block = read(disk, Extent::new(at, 1)).await.map_err(failure)?;
    let damaged = StorageError::Damaged(Lba(u64::from(page) * ENTRIES_PER_PAGE as u64));
    let is_this = |on_disk: &&MapPage| on_disk.checksum.get() == stored.checksum;
    let on_disk = match rules.drops(VolumeMutant::PageUnchecked) {
        true => MapPage::ref_from_bytes(&block).ok(),
        false => whole_page(&block, page, geometry.volume).filter(is_this),
    };
    let entries = on_disk.ok_or(damaged)?.entries.iter();
    Ok(entries.map(|entry| Entry { block: entry.block.get(), checksum: entry.checksum.get() }).collect())
}

/// Pages in order, each once.
pub(crate) fn once_each(mut pages: Vec<u32>) -> Vec<u32> {
    pages.sort_unstable();
    pages.dedup();
    pages
}
