//! The *map*: where each logical block is, and the checksum of what is there. Eight bytes a block, in pages that
//! take memory while something in them is mapped (V6).
//!
//! The map is checkpointed page by page. While a checkpoint writes its frozen pages, appends go on: the
//! first change to a frozen page copies it aside (copy on write), so that the checkpoint holds the map
//! exactly as it was when the checkpoint began, and a prefix of the log stays a prefix.

use std::collections::BTreeMap;

use weir_storage::BLOCK_BYTES;
use zerocopy::{FromZeros, IntoBytes};

use crate::layout::{ENTRIES_PER_PAGE, MapEntry, MapPage, stamp_checksum};
use crate::sparse::Sparse;

/// Where one logical block is. Block 0 (a superblock) means: nowhere, it reads zero. In the map, a block may have a mark
/// ([`SHARED`]), which only `blocks.rs` sees.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Entry {
    pub block: u32,
    pub checksum: u32,
}

impl Entry {
    pub(crate) fn is_mapped(self) -> bool {
        self.block != 0
    }
}

const _: () = assert!(size_of::<Entry>() == 8);

/// Pages that may be copied aside while a checkpoint is being taken; writers wait beyond that.
pub(crate) const COPIES_LIMIT: usize = 1024;
/// What a page takes besides its content.
const PAGE_COST: u64 = 56;

type Entries = [Entry; ENTRIES_PER_PAGE];
const UNMAPPED: Entries = [Entry { block: 0, checksum: 0 }; ENTRIES_PER_PAGE];

/// A map page as the checkpoint in progress sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PageState {
    /// As on the medium.
    Clean,
    /// Changed since the last freeze.
    Dirty,
    /// Belongs to the checkpoint in progress, not changed since it began, not yet written.
    Frozen,
}

/// One page in memory. One that is not there is clean, and nothing in it is mapped.
struct Page {
    entries: Entries,
    /// Entries that are mapped.
    mapped: u16,
    state: PageState,
}

/// The map in memory.
pub(crate) struct Map {
    pages: Sparse<Option<Box<Page>>>,
    pages_in_memory: usize,
    dirty: Vec<u32>,
    /// Frozen pages that were changed before the checkpoint came to them, as they were.
    copies: BTreeMap<u32, Box<Entries>>,
}

impl Map {
    /// An empty map.
    pub(crate) fn new(map_pages: u32) -> Map {
        let pages = Sparse::new(map_pages as usize);
        Map { pages, pages_in_memory: 0, dirty: Vec::new(), copies: BTreeMap::new() }
    }

    #[inline]
    fn page(&self, page: usize) -> Option<&Page> {
        self.pages.get(page)?.as_deref()
    }

    #[inline]
    fn page_mut(&mut self, page: usize) -> &mut Page {
        let in_memory = &mut self.pages_in_memory;
        self.pages.get_mut(page).get_or_insert_with(|| {
            *in_memory += 1;
            Box::new(Page { entries: UNMAPPED, mapped: 0, state: PageState::Clean })
        })
    }

    #[inline]
    pub(crate) fn get(&self, lba: u32) -> Entry {
        let lba = lba as usize;
        self.page(lba / ENTRIES_PER_PAGE)
            .map_or(Entry::default(), |page| page.entries[lba % ENTRIES_PER_PAGE])
    }

    /// Replaces an entry and returns the old one.
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
        let copy = (page.state == PageState::Frozen).then(|| Box::new(page.entries));
        page.state = PageState::Dirty;
        self.copies.extend(copy.map(|copy| (number as u32, copy)));
        self.dirty.push(number as u32);
    }

    /// Fills an entry while loading; marks nothing dirty.
    pub(crate) fn load(&mut self, lba: u32, entry: Entry) {
        self.page_mut(lba as usize / ENTRIES_PER_PAGE).replace(lba, entry);
    }

    /// The mapped blocks from `first` on, in order.
    pub(crate) fn mapped_from(&self, first: u64) -> impl Iterator<Item = (u32, Entry)> {
        let (start, skipped) = (first as usize / ENTRIES_PER_PAGE, first as usize % ENTRIES_PER_PAGE);
        let pages = self.pages.iter_from(start).filter_map(|(number, page)| Some((number, page.as_deref()?)));
        let entries = pages.filter(|(_, page)| page.mapped > 0).flat_map(move |(number, page)| {
            let skipped = if number == start { skipped } else { 0 };
            let entries = page.entries.iter().enumerate().skip(skipped);
            entries.map(move |(i, entry)| ((number * ENTRIES_PER_PAGE + i) as u32, *entry))
        });
        entries.filter(|(_, entry)| entry.is_mapped())
    }

    /// The first mapped block of `first` to `end`, `end` not among them.
    pub(crate) fn next_mapped(&self, first: u64, end: u64) -> Option<u32> {
        self.mapped_from(first).next().map(|(lba, _)| lba).filter(|lba| u64::from(*lba) < end)
    }

    /// Bytes of memory that it takes.
    pub(crate) fn bytes(&self) -> usize {
        self.pages.bytes()
            + self.pages_in_memory * size_of::<Page>()
            + self.copies.len() * size_of::<Entries>()
    }

    /// Bytes of memory that a map of so many pages takes at most.
    pub(crate) fn bytes_max(map_pages: u32) -> u64 {
        // What a page has in the heap, in the array, in the list of what is dirty, and in the checkpoint's table.
        u64::from(map_pages) * (size_of::<Page>() as u64 + PAGE_COST)
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
        pages
    }

    /// The next checkpoint writes this page, changed or not.
    pub(crate) fn write_again(&mut self, page: u32) {
        if self.page_mut(page as usize).state != PageState::Dirty {
            self.touch(page as usize);
        }
    }

    /// One page as it was when the checkpoint began (V4), ready to be written, with its checksum.
    pub(crate) fn frozen_page(&mut self, number: u32, volume: u64, block: &mut [u8]) -> u32 {
        if let Some(copy) = self.copies.remove(&number) {
            return encode_page(&copy, volume, number, block);
        }
        let page = self.page_mut(number as usize);
        if page.state == PageState::Frozen {
            page.state = PageState::Clean;
        }
        let checksum = encode_page(&page.entries, volume, number, block);
        if page.state == PageState::Clean && page.mapped == 0 {
            *self.pages.get_mut(number as usize) = None;
            self.pages_in_memory -= 1;
        }
        checksum
    }
}

impl Page {
    #[inline]
    fn replace(&mut self, lba: u32, entry: Entry) -> Entry {
        let old = std::mem::replace(&mut self.entries[lba as usize % ENTRIES_PER_PAGE], entry);
        self.mapped = self.mapped + u16::from(entry.is_mapped()) - u16::from(old.is_mapped());
        old
    }
}

/// Writes a map page into `block` and returns its checksum.
fn encode_page(entries: &Entries, volume: u64, page: u32, block: &mut [u8]) -> u32 {
    let mut on_disk = MapPage::new_zeroed();
    on_disk.volume = volume.into();
    on_disk.page = page.into();
    for (to, from) in on_disk.entries.iter_mut().zip(entries) {
        *to = MapEntry { block: from.block.into(), checksum: from.checksum.into() };
    }
    block[..BLOCK_BYTES].copy_from_slice(on_disk.as_bytes());
    let field = std::mem::offset_of!(MapPage, checksum);
    stamp_checksum(&mut block[..BLOCK_BYTES], field);
    u32::from_le_bytes([block[field], block[field + 1], block[field + 2], block[field + 3]])
}

/// One page's part of the checkpoint's map sum. Addition commutes, so the sum is kept up page by page.
pub(crate) fn page_sum(page: u32, checksum: u32) -> u64 {
    let mixed = (u64::from(page) << 32 | u64::from(checksum)).wrapping_add(0x9E37_79B9_7F4A_7C15);
    let mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed ^ (mixed >> 27)
}
