//! A file's *pages*: blocks of its content in memory, each with its place on disk.
//!
//! A page is *dirty* from when it was changed until a write of it was submitted, *submitted* until that write is
//! transferred, and *clean* after that. Only blocks that are mapped and written have pages: holes and unwritten
//! blocks read as zeros, and what is written to them is given its place first, or when it is submitted
//! ([`place`](crate::place)). So a caller that writes pages back needs no map, no lock and no transaction.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::rc::Rc;

use weir_runtime::Buffer as Memory;
use weir_storage::{BLOCK_BYTES, Ticket};

use crate::mutants::{CacheMutant, CacheRules};
use crate::place::DirtyPage;
use crate::reads::Reads;
use crate::units::UNIT_BLOCKS;

/// A block of a file in memory.
struct Page {
    content: Rc<Memory>,
    /// Where it is on disk, or will be when it is submitted; `None` if it was never submitted.
    place: Option<u64>,
    dirty: bool,
    /// A caller looked at it since the cache did.
    used: bool,
    /// Which of the pages that ever had this index it is.
    stamp: u64,
    /// The last write of it; once that is transferred, the page can be read again from the disk.
    write: Option<Ticket>,
}

impl Page {
    /// Makes it dirty, one of the `dirty` pages: whether it was clean before.
    fn mark_dirty(&mut self, index: u32, dirty: &mut BTreeSet<u32>) -> bool {
        let was_clean = !std::mem::replace(&mut self.dirty, true);
        if was_clean {
            dirty.insert(index);
        }
        was_clean
    }
}

/// The pages of one file.
#[derive(Default)]
pub(crate) struct Pages {
    pages: BTreeMap<u32, Page>,
    dirty: BTreeSet<u32>,
    /// The reads that bring some.
    pub(crate) reads: Reads,
}

/// Dirty pages that follow one another on disk.
pub(crate) struct Run {
    pub(crate) start: u64,
    pub(crate) indices: Vec<u32>,
    pub(crate) blocks: Vec<Rc<Memory>>,
}

impl Run {
    /// Takes what belongs to the unit of `index`, which comes right behind, off the end, into the run that comes `next`;
    /// unless that is all there is.
    fn split_unit(&mut self, index: u32, next: Run) -> Run {
        let unit = index / UNIT_BLOCKS * UNIT_BLOCKS;
        let kept = self.indices.partition_point(|index| *index < unit);
        if kept == 0 || kept == self.indices.len() {
            return next;
        }
        let start = self.start + kept as u64;
        Run { start, indices: self.indices.split_off(kept), blocks: self.blocks.split_off(kept) }
    }
}

/// What came of a page that should leave the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Eviction {
    /// It is dirty, on its way, or was used again.
    Stays,
    /// It left.
    Left,
    /// It was gone already.
    Gone,
}

impl Pages {
    pub(crate) fn len(&self) -> usize {
        self.pages.len()
    }

    pub(crate) fn dirty(&self) -> usize {
        self.dirty.len()
    }

    /// Where a page is on disk, if it is here and has a place.
    pub(crate) fn place(&self, index: u32) -> Option<u64> {
        self.pages.get(&index)?.place
    }

    /// A block is at `place` from now on. A read of it that is under way looks where it was.
    pub(crate) fn set_place(&mut self, index: u32, place: u64) {
        self.reads.freed(&(index..index.saturating_add(1)));
        if let Some(page) = self.pages.get_mut(&index) {
            page.place = Some(place);
        }
    }

    pub(crate) fn contains(&self, index: u32) -> bool {
        self.pages.contains_key(&index)
    }

    /// Whether a page is here, and the one of this stamp.
    pub(crate) fn has_version(&self, index: u32, stamp: u64) -> bool {
        self.pages.get(&index).is_some_and(|page| page.stamp == stamp)
    }

    /// The bytes of a page, if it is here.
    pub(crate) fn read_page(&mut self, index: u32) -> Option<&[u8]> {
        let page = self.pages.get_mut(&index)?;
        page.used = true;
        Some(&page.content)
    }

    /// The first block behind `index` that is in memory or on its way there.
    pub(crate) fn first_behind(&self, index: u32) -> u32 {
        let page = self.pages.range(index..).next().map(|(index, _)| *index);
        let read = self.reads.first_behind(index);
        page.unwrap_or(u32::MAX).min(read.unwrap_or(u32::MAX))
    }

    /// Puts a page in; it is clean. `stamp` is the cache's.
    pub(crate) fn insert(&mut self, index: u32, place: Option<u64>, content: Rc<Memory>, stamp: u64) {
        self.pages.insert(index, Page { content, place, dirty: false, used: false, stamp, write: None });
    }

    /// Changes bytes of a page that is here. `None` if it is not; else whether it was clean before.
    pub(crate) fn change(&mut self, index: u32, at: usize, bytes: &[u8]) -> Option<bool> {
        let page = self.pages.get_mut(&index)?;
        page.used = true;
        if bytes.len() == BLOCK_BYTES && Rc::get_mut(&mut page.content).is_none() {
            // All of it is new: no need to copy what is shared.
            page.content = Rc::new(Memory::new(BLOCK_BYTES));
        }
        Rc::make_mut(&mut page.content)[at..at + bytes.len()].copy_from_slice(bytes);
        Some(page.mark_dirty(index, &mut self.dirty))
    }

    /// Makes a page dirty that is here. `None` if it is not; else whether it was clean before.
    pub(crate) fn mark_dirty(&mut self, index: u32) -> Option<bool> {
        Some(self.pages.get_mut(&index)?.mark_dirty(index, &mut self.dirty))
    }

    /// The dirty pages, in the order of their indexes.
    pub(crate) fn dirty_pages(&self) -> Vec<DirtyPage> {
        let dirty = self.dirty.iter();
        dirty.map(|index| DirtyPage { index: *index, place: self.place(*index) }).collect()
    }

    /// The dirty pages are not written: they count as clean, as after a write that failed. How many.
    pub(crate) fn give_up_dirty(&mut self) -> usize {
        let given_up = std::mem::take(&mut self.dirty);
        for index in &given_up {
            if let Some(page) = self.pages.get_mut(index) {
                page.dirty = false;
            }
        }
        given_up.len()
    }

    /// The content of a page as of now.
    pub(crate) fn snapshot(&self, index: u32) -> Option<Rc<Memory>> {
        Some(Rc::clone(&self.pages.get(&index)?.content))
    }

    /// The dirty pages, in as few runs as they make of `most` blocks. A run that is full ends between units, where it has
    /// more than one.
    pub(crate) fn dirty_runs(&self, most: usize, rules: CacheRules) -> Vec<Run> {
        let mut runs: Vec<Run> = Vec::new();
        for index in &self.dirty {
            let Some(page) = self.pages.get(index) else { continue };
            let Some(place) = page.place else { continue };
            let content = Rc::clone(&page.content);
            let mut next = Run { start: place, indices: Vec::new(), blocks: Vec::new() };
            match runs.last_mut() {
                Some(run) if run.start + run.blocks.len() as u64 == place => {
                    if run.blocks.len() < most {
                        run.indices.push(*index);
                        run.blocks.push(content);
                        continue;
                    }
                    if !rules.drops(CacheMutant::UnitInTwoRequests) {
                        next = run.split_unit(*index, next);
                    }
                }
                _ => {}
            }
            next.indices.push(*index);
            next.blocks.push(content);
            runs.push(next);
        }
        runs
    }

    /// A write of these blocks was submitted, in as many commands as there are tickets, of `most` blocks each.
    /// Pages that were changed meanwhile stay dirty. How many became clean.
    pub(crate) fn submitted(
        &mut self,
        run: &Run,
        tickets: &[Ticket],
        most: usize,
        rules: CacheRules,
    ) -> usize {
        let before = self.dirty.len();
        for (nth, (index, content)) in run.indices.iter().zip(&run.blocks).enumerate() {
            let Some(page) = self.pages.get_mut(index) else { continue };
            page.write = tickets.get(nth / most).cloned();
            // A caller that changes a page that is shared makes a copy of it first.
            if Rc::ptr_eq(&page.content, content) || rules.drops(CacheMutant::CleansChangedPages) {
                page.dirty = false;
                self.dirty.remove(index);
            }
        }
        before - self.dirty.len()
    }

    /// Forgets the pages in a range, dirty or not, and what reads bring of them: how many, and how many dirty ones.
    pub(crate) fn forget(&mut self, range: Range<u32>) -> (usize, usize) {
        self.reads.freed(&range);
        let before = (self.pages.len(), self.dirty.len());
        while let Some(index) = self.pages.range(range.clone()).next().map(|(index, _)| *index) {
            self.pages.remove(&index);
            self.dirty.remove(&index);
        }
        (before.0 - self.pages.len(), before.1 - self.dirty.len())
    }

    /// Drops a page from memory if no caller has used it lately and the disk has it.
    pub(crate) fn evict(&mut self, index: u32, stamp: u64) -> Eviction {
        let Some(page) = self.pages.get_mut(&index).filter(|page| page.stamp == stamp) else {
            return Eviction::Gone;
        };
        let on_its_way = page.write.as_ref().is_some_and(|write| write.poll_transferred().is_none());
        // A read that is under way may have looked before the page was written: with the page gone, it would bring
        // the old content back.
        let is_read = self.reads.will_bring(index);
        if std::mem::take(&mut page.used) || page.dirty || on_its_way || is_read {
            return Eviction::Stays;
        }
        self.pages.remove(&index);
        Eviction::Left
    }

    /// Whether every page can be read again from the disk.
    pub(crate) fn all_on_disk(&self) -> bool {
        let on_disk =
            |page: &Page| page.write.as_ref().is_none_or(|write| write.poll_transferred().is_some());
        self.dirty.is_empty() && self.pages.values().all(on_disk)
    }
}
