//! The *map*: where each logical block is, and the checksum of what is there. Eight bytes a block, in pages that
//! take memory while something in them is mapped (V6).
//!
//! The map is checkpointed page by page. While a checkpoint writes its frozen pages, appends go on: the
//! first change to a frozen page copies it aside (copy on write), so that the checkpoint holds the map
//! exactly as it was when the checkpoint began, and a prefix of the log stays a prefix.
//!
//! The pages in memory have a limit, which recovery, cleaning and large commands may exceed for a time. A page that is as
//! on the disk can be evicted; before an entry of it is looked at, it is loaded again (`pager.rs`).

use std::cell::Cell;
use std::collections::BTreeMap;

use crate::layout::ENTRIES_PER_PAGE;
use crate::map_page::{PageSlot, Stored, encode_page};
use crate::sparse::Sparse;

/// Where one logical block is. Block 0 (a superblock) means: nowhere, it reads what the base has, or zero. In the map, a block may have the shared flag
/// ([`SHARED`]), which only `blocks.rs` sees.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Entry {
    pub block: u32,
    pub checksum: u32,
}

impl Entry {
    /// It reads zeros, whatever the base has (V12). Block 1 is a superblock, too.
    pub(crate) const EMPTY: Entry = Entry { block: 1, checksum: 0 };

    /// There is a block for it.
    pub(crate) fn is_mapped(self) -> bool {
        self.block > Entry::EMPTY.block
    }

    /// It is mapped or empty, and so not what the base has.
    pub(crate) fn is_known(self) -> bool {
        self.block != 0
    }
}

const _: () = assert!(size_of::<Entry>() == 8);

/// Pages that may be copied aside while a checkpoint is being taken; writers wait beyond that.
pub(crate) const COPIES_LIMIT: usize = 1024;
/// The pages of so many commands are in memory together, so that a command whose pages are loaded finds all of them.
pub(crate) const COMMANDS_AT_ONCE: usize = 8;
/// What a page takes in the heap and in the list of what is dirty.
const PAGE_COST: u64 = 32;
/// What a page in memory takes.
pub(crate) const PAGE_BYTES: u64 = size_of::<Page>() as u64 + PAGE_COST;
/// What each page takes, in memory or not: where it is in memory, where on the disk, and the same for the newest checkpoint.
const PLACE_COST: u64 = 24;

type Entries = [Entry; ENTRIES_PER_PAGE];
const UNMAPPED: Entries = [Entry { block: 0, checksum: 0 }; ENTRIES_PER_PAGE];

/// A page in memory, as checkpoints see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PageState {
    /// As on the disk.
    Clean,
    /// Changed since the last freeze.
    Dirty,
    /// Belongs to the checkpoint in progress, not changed since it began, not yet written.
    Frozen,
    /// On its way to the disk with the checkpoint in progress, and not changed since.
    Written,
}

/// One page in memory.
struct Page {
    entries: Entries,
    /// Entries that are known.
    known: u16,
    state: PageState,
    /// Looked at since an eviction came by.
    used: Cell<bool>,
    /// What the disk holds of it, while it is clean or written.
    stored: Stored,
}

/// The map in memory.
pub(crate) struct Map {
    pages: Sparse<Option<Box<Page>>>,
    /// What the disk holds of pages that are there only; of others, [`PageSlot::Nowhere`].
    evicted: Sparse<Stored>,
    /// Pages in memory at most, where they can be evicted.
    limit: usize,
    pages_in_memory: usize,
    pages_evicted: usize,
    dirty: Vec<u32>,
    /// Pages in memory that are frozen or written.
    in_checkpoint: usize,
    /// There was no room since the last checkpoint.
    is_full: bool,
    /// Where the next eviction looks first.
    hand: usize,
    /// Frozen pages that were changed before the checkpoint came to them, as they were.
    copies: BTreeMap<u32, Box<Entries>>,
}

impl Map {
    /// An empty map with so many pages in memory at most.
    pub(crate) fn new(map_pages: u32, limit: usize) -> Map {
        let map_pages = map_pages as usize;
        Map {
            pages: Sparse::new(map_pages),
            evicted: Sparse::new(map_pages),
            limit,
            pages_in_memory: 0,
            pages_evicted: 0,
            dirty: Vec::new(),
            in_checkpoint: 0,
            is_full: false,
            hand: 0,
            copies: BTreeMap::new(),
        }
    }

    #[inline]
    fn page(&self, page: usize) -> Option<&Page> {
        let found = self.pages.get(page).and_then(|page| page.as_deref());
        // To take an evicted page for an empty one would lose what it maps.
        assert!(found.is_some() || !self.is_evicted(page), "page {page} of the map is not in memory");
        found
    }

    #[inline]
    fn page_mut(&mut self, number: usize) -> &mut Page {
        let is_evicted = self.is_evicted(number);
        let in_memory = &mut self.pages_in_memory;
        self.pages.get_mut(number).get_or_insert_with(|| {
            assert!(!is_evicted, "page {number} of the map is not in memory");
            *in_memory += 1;
            let (state, used, stored) = (PageState::Clean, Cell::new(true), Stored::default());
            Box::new(Page { entries: UNMAPPED, known: 0, state, used, stored })
        })
    }

    #[inline]
    fn is_evicted(&self, page: usize) -> bool {
        self.pages_evicted > 0 && self.evicted.get(page).is_some_and(|at| at.slot != PageSlot::Nowhere)
    }

    /// The entry of a block whose page is not [evicted](Map::evicted).
    #[inline]
    pub(crate) fn get(&self, lba: u32) -> Entry {
        let lba = lba as usize;
        self.page(lba / ENTRIES_PER_PAGE)
            .map_or(Entry::default(), |page| page.entries[lba % ENTRIES_PER_PAGE])
    }

    /// Replaces an entry, whose page is not [evicted](Map::evicted), and returns the old one.
    #[inline]
    pub(crate) fn set(&mut self, lba: u32, entry: Entry) -> Entry {
        let number = lba as usize / ENTRIES_PER_PAGE;
        if self.page_mut(number).state != PageState::Dirty {
            self.touch(number);
        }
        self.page_mut(number).replace(lba, entry)
    }

    #[cold]
    fn touch(&mut self, number: usize) {
        let page = self.page_mut(number);
        let was = std::mem::replace(&mut page.state, PageState::Dirty);
        let copy = (was == PageState::Frozen).then(|| Box::new(page.entries));
        self.in_checkpoint -= usize::from(matches!(was, PageState::Frozen | PageState::Written));
        self.copies.extend(copy.map(|copy| (number as u32, copy)));
        self.dirty.push(number as u32);
    }

    /// Fills an entry while loading; marks nothing dirty.
    pub(crate) fn load(&mut self, lba: u32, entry: Entry) {
        self.page_mut(lba as usize / ENTRIES_PER_PAGE).replace(lba, entry);
    }

    /// What the disk holds of a page that was just loaded, entry by entry, while the volume is opened.
    pub(crate) fn loaded(&mut self, page: u32, stored: Stored) {
        if let Some(page) = self.pages.get_mut(page as usize) {
            page.stored = stored;
        }
    }

    /// What the disk holds of a page that is not in memory, and has to be loaded before one of its entries is looked at.
    #[inline]
    pub(crate) fn evicted(&self, page: u32) -> Option<Stored> {
        if let Some(Some(page)) = self.pages.get(page as usize) {
            page.used.set(true);
            return None;
        }
        self.evicted.get(page as usize).copied().filter(|at| at.slot != PageSlot::Nowhere)
    }

    /// Whether so many pages can be looked at and changed, whichever they are: none is evicted, and the limit is far.
    #[inline]
    pub(crate) fn is_small(&self, pages: usize) -> bool {
        self.pages_evicted == 0 && self.pages_in_memory + pages <= self.limit
    }

    /// Takes a page into memory again, if it is still as it was on the disk when it was read.
    pub(crate) fn admit(&mut self, number: u32, read: Stored, entries: &[Entry]) {
        if self.evicted(number) != Some(read) {
            return;
        }
        let mut page = Box::new(Page {
            entries: UNMAPPED,
            known: 0,
            state: PageState::Clean,
            used: Cell::new(true),
            stored: read,
        });
        for (to, from) in page.entries.iter_mut().zip(entries) {
            *to = *from;
            page.known += u16::from(to.is_known());
        }
        *self.pages.get_mut(number as usize) = Some(page);
        *self.evicted.get_mut(number as usize) = Stored::default();
        self.pages_in_memory += 1;
        self.pages_evicted -= 1;
    }

    /// Pages that can be evicted.
    fn clean(&self) -> usize {
        self.pages_in_memory - self.dirty.len() - self.in_checkpoint
    }

    /// So many pages in memory have changed that a checkpoint is due: only then they can be evicted. A map that fits in memory
    /// as a whole needs none for that.
    #[inline]
    pub(crate) fn is_crowded(&self) -> bool {
        self.is_full || self.dirty.len() > self.limit / 2 && self.pages.capacity() > self.limit
    }

    /// More than so many pages beyond the limit are in memory.
    pub(crate) fn exceeds_by(&self, pages: usize) -> bool {
        self.pages_in_memory > self.limit.saturating_add(pages)
    }

    /// Makes room for so many pages more beside those of a command, which stay. If it cannot, as most pages have changed,
    /// that takes a checkpoint.
    pub(crate) fn make_room(&mut self, pages: usize, command: &[u32]) -> bool {
        self.limit = self.limit.max(COMMANDS_AT_ONCE.saturating_mul(command.len()));
        while self.pages_in_memory + pages > self.limit {
            // Few clean pages among many are not worth the search.
            if self.clean() * 8 < self.pages_in_memory || !self.evict_page(command) {
                self.is_full = true;
                return false;
            }
        }
        true
    }

    /// Evicts a page that is as on the disk, and that was not looked at since this came by it last; whether there is one.
    /// Those in `kept`, which are in order, stay.
    fn evict_page(&mut self, kept: &[u32]) -> bool {
        // In the first round all flags of use go.
        for _ in 0..2 * self.pages.capacity() {
            let number = self.hand;
            self.hand = self.pages.iter_from(number + 1).next().map_or(0, |(next, _)| next);
            let Some(Some(page)) = self.pages.get(number) else { continue };
            if page.state != PageState::Clean
                || page.used.take()
                || kept.binary_search(&(number as u32)).is_ok()
            {
                continue;
            }
            if page.known > 0 {
                *self.evicted.get_mut(number) = page.stored;
                self.pages_evicted += 1;
            }
            *self.pages.get_mut(number) = None;
            self.pages_in_memory -= 1;
            return true;
        }
        false
    }

    /// The known blocks of `first` to `end`, `end` not among them, in order; no page of these is evicted.
    pub(crate) fn known_in(&self, first: u64, end: u64) -> impl Iterator<Item = (u32, Entry)> {
        let page_of = |lba: u64| lba as usize / ENTRIES_PER_PAGE;
        let (start, last) = (page_of(first), page_of(end.saturating_sub(1)));
        let pages = self.pages.iter_from(start).take_while(move |(number, _)| *number <= last);
        let pages = pages.filter_map(|(number, _)| Some((number, self.page(number)?)));
        let entries = pages.filter(|(_, page)| page.known > 0).flat_map(move |(number, page)| {
            let skipped = if number == start { first as usize % ENTRIES_PER_PAGE } else { 0 };
            let entries = page.entries.iter().enumerate().skip(skipped);
            entries.map(move |(i, entry)| ((number * ENTRIES_PER_PAGE + i) as u32, *entry))
        });
        entries.filter(move |(lba, entry)| entry.is_known() && u64::from(*lba) < end)
    }

    /// The first block from `from` on that is known, or may be: its page is not in memory, and is not loaded for this.
    pub(crate) fn next_known(&self, from: u64) -> Option<u64> {
        let (start, skipped) = (from as usize / ENTRIES_PER_PAGE, from as usize % ENTRIES_PER_PAGE);
        let in_memory = self.pages.iter_from(start).find_map(|(number, page)| {
            let page = page.as_ref().filter(|page| page.known > 0)?;
            let skipped = if number == start { skipped } else { 0 };
            let entry = page.entries[skipped..].iter().position(|entry| entry.is_known())?;
            Some((number * ENTRIES_PER_PAGE + skipped + entry) as u64)
        });
        let evicted = (self.pages_evicted > 0).then(|| {
            let mut pages = self.evicted.iter_from(start);
            let (number, _) = pages.find(|(_, at)| at.slot != PageSlot::Nowhere)?;
            Some(((number * ENTRIES_PER_PAGE) as u64).max(from))
        });
        in_memory.into_iter().chain(evicted.flatten()).min()
    }

    /// Bytes of memory that it takes.
    pub(crate) fn bytes(&self) -> usize {
        self.pages.bytes()
            + self.evicted.bytes()
            + self.pages_in_memory * size_of::<Page>()
            + self.copies.len() * size_of::<Entries>()
    }

    /// Whether a page takes memory from when one of its entries is set.
    pub(crate) fn is_empty(&self, page: u32) -> bool {
        let page = page as usize;
        self.pages.get(page).is_none_or(Option::is_none) && !self.is_evicted(page)
    }

    /// Pages in memory at most, where they can be evicted.
    pub(crate) fn limit(&self) -> usize {
        self.limit
    }

    /// Pages that are on the disk only.
    pub(crate) fn pages_evicted(&self) -> usize {
        self.pages_evicted
    }

    /// Bytes of memory that a map of so many pages takes at most, with so many of them in memory.
    pub(crate) fn bytes_max(map_pages: u32, limit: usize) -> u64 {
        // What each page has in the array and in the checkpoint's table; in memory also its entries, what the heap adds,
        // and its place in the list of what is dirty.
        let in_memory = u64::from(map_pages).min(limit as u64);
        u64::from(map_pages) * PLACE_COST
            + in_memory * PAGE_BYTES
            + COPIES_LIMIT as u64 * (size_of::<Entries>() as u64 + PAGE_COST)
    }

    /// Pages copied aside so far; appends wait when a checkpoint holds too many.
    pub(crate) fn copies(&self) -> usize {
        self.copies.len()
    }

    /// Begins a checkpoint: the pages that it has to write, in order.
    pub(crate) fn freeze(&mut self) -> Vec<u32> {
        let mut pages = std::mem::take(&mut self.dirty);
        pages.sort_unstable();
        for page in &pages {
            self.page_mut(*page as usize).state = PageState::Frozen;
        }
        self.in_checkpoint += pages.len();
        pages
    }

    /// The next checkpoint writes this page, changed or not, if it is in memory or empty.
    pub(crate) fn write_again(&mut self, page: u32) {
        if self.evicted(page).is_none() && self.page_mut(page as usize).state != PageState::Dirty {
            self.touch(page as usize);
        }
    }

    /// One page as it was when the checkpoint began (V4), ready to be written to `slot`, with its checksum.
    pub(crate) fn frozen_page(&mut self, number: u32, slot: PageSlot, volume: u64, block: &mut [u8]) -> u32 {
        if let Some(copy) = self.copies.remove(&number) {
            return encode_page(&copy[..], volume, number, block);
        }
        let page = self.page_mut(number as usize);
        let checksum = encode_page(&page.entries, volume, number, block);
        if page.state == PageState::Frozen {
            page.state = PageState::Written;
            page.stored = Stored { slot, checksum };
        }
        checksum
    }

    /// The checkpoint that wrote these pages has ended: they are on the disk.
    pub(crate) fn settle(&mut self, pages: &[u32]) {
        self.is_full = false;
        for number in pages {
            let place = self.pages.get_mut(*number as usize);
            let Some(page) = place else { continue };
            if page.state != PageState::Written {
                continue;
            }
            page.state = PageState::Clean;
            self.in_checkpoint -= 1;
            if page.known == 0 {
                *place = None;
                self.pages_in_memory -= 1;
            }
        }
    }
}

impl Page {
    #[inline]
    fn replace(&mut self, lba: u32, entry: Entry) -> Entry {
        let old = std::mem::replace(&mut self.entries[lba as usize % ENTRIES_PER_PAGE], entry);
        self.known = self.known + u16::from(entry.is_known()) - u16::from(old.is_known());
        old
    }
}
