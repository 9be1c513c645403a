//! The *map*: where each logical block is, and the checksum of what is there. Eight bytes a block.
//!
//! The map is checkpointed page by page. While a checkpoint writes its frozen pages, appends go on: the
//! first change to a frozen page copies it aside (copy on write), so that the checkpoint holds the map
//! exactly as it was when the checkpoint began, and a prefix of the log stays a prefix.

use std::collections::BTreeMap;

use weir_storage::BLOCK_BYTES;
use zerocopy::{FromZeros, IntoBytes};

use crate::error::VolumeError;
use crate::layout::{ENTRIES_PER_PAGE, MapEntry, MapPage, stamp_checksum};

/// Where one logical block is. Block 0 (a superblock) means: nowhere, it reads zero.
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

/// The whole map in memory.
pub(crate) struct Map {
    entries: Vec<Entry>,
    pages: Vec<PageState>,
    dirty: Vec<u32>,
    /// Frozen pages that were changed before the checkpoint came to them, as they were.
    copies: BTreeMap<u32, Vec<Entry>>,
}

impl Map {
    /// An empty map; how large it is comes from the medium, so there may not be memory for it.
    pub(crate) fn new(logical_blocks: u64, map_pages: u32) -> Result<Map, VolumeError> {
        let bytes = logical_blocks * size_of::<Entry>() as u64;
        // Only tried: zeroed memory is cheaper to get, but cannot be asked for without dying of a refusal.
        Vec::<Entry>::new()
            .try_reserve_exact(logical_blocks as usize)
            .map_err(|_| VolumeError::Memory { bytes })?;
        Ok(Map {
            entries: vec![Entry::default(); logical_blocks as usize],
            pages: vec![PageState::Clean; map_pages as usize],
            dirty: Vec::new(),
            copies: BTreeMap::new(),
        })
    }

    #[inline]
    pub(crate) fn get(&self, lba: u32) -> Entry {
        self.entries[lba as usize]
    }

    /// Replaces an entry and returns the old one.
    #[inline]
    pub(crate) fn set(&mut self, lba: u32, entry: Entry) -> Entry {
        let page = lba as usize / ENTRIES_PER_PAGE;
        if self.pages[page] != PageState::Dirty {
            self.touch(page);
        }
        std::mem::replace(&mut self.entries[lba as usize], entry)
    }

    #[cold]
    fn touch(&mut self, page: usize) {
        if self.pages[page] == PageState::Frozen {
            let copy = self.page_entries(page).to_vec();
            self.copies.insert(page as u32, copy);
        }
        self.pages[page] = PageState::Dirty;
        self.dirty.push(page as u32);
    }

    /// Fills an entry while loading; marks nothing dirty.
    pub(crate) fn load(&mut self, lba: usize, entry: Entry) {
        self.entries[lba] = entry;
    }

    pub(crate) fn entries(&self) -> &[Entry] {
        &self.entries
    }

    fn page_entries(&self, page: usize) -> &[Entry] {
        let start = (page * ENTRIES_PER_PAGE).min(self.entries.len());
        &self.entries[start..(start + ENTRIES_PER_PAGE).min(self.entries.len())]
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
            self.pages[*page as usize] = PageState::Frozen;
        }
        pages
    }

    /// One page as it was when the checkpoint began (`late`, for a mutant: as it is now), ready to be
    /// written, with its checksum.
    pub(crate) fn frozen_page(&mut self, page: u32, volume: u64, block: &mut [u8], late: bool) -> u32 {
        let copy = self.copies.remove(&page).filter(|_| !late);
        let entries = match &copy {
            Some(copy) => copy.as_slice(),
            None => {
                if self.pages[page as usize] == PageState::Frozen {
                    self.pages[page as usize] = PageState::Clean;
                }
                self.page_entries(page as usize)
            }
        };
        encode_page(entries, volume, page, block)
    }
}

/// Writes a map page into `block` and returns its checksum.
fn encode_page(entries: &[Entry], volume: u64, page: u32, block: &mut [u8]) -> u32 {
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
