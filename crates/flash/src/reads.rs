//! Reads. What a read finds is decided when it is serviced; dies and link then take their time.

use std::io;

use weir_runtime::Buffer;
use weir_storage::{BLOCK_BYTES, CommandKind, Completer, Extent, StorageError};

use crate::array::Work;
use crate::cache::Cache;
use crate::ftl::Ftl;
use crate::geometry::{Page, Slot};
use crate::medium::{Content, Part, Payload};
use crate::shares::Shares;
use crate::stats::Stats;

/// A read, with what it found.
pub(crate) struct Reading {
    pub(crate) extent: Extent,
    pub(crate) buffer: Buffer,
    pub(crate) completer: Completer,
}

/// Reads that wait for dies, and for how many pages each.
#[derive(Default)]
pub(crate) struct Reads {
    waiting: Vec<Option<(Reading, usize)>>,
}

impl Reads {
    /// Lets the dies read the `pages` of a read. Gives it back where it needs none.
    pub(crate) fn start(
        &mut self,
        reading: Reading,
        pages: &[Page],
        ftl: &mut Ftl,
        now: u64,
    ) -> Option<Reading> {
        if pages.is_empty() {
            return Some(reading);
        }
        let place = self.waiting.iter().position(Option::is_none).unwrap_or(self.waiting.len());
        if place == self.waiting.len() {
            self.waiting.push(None);
        }
        self.waiting[place] = Some((reading, pages.len()));
        for page in pages {
            let die = ftl.geometry.die_of(ftl.geometry.block_of(*page));
            ftl.array.add(die, Work::Read { page: *page, read: place as u32 }, now);
        }
        None
    }

    /// A die has read a page of a read; it was the last one if the read is given back.
    pub(crate) fn page_read(&mut self, read: u32) -> Option<Reading> {
        let place = self.waiting.get_mut(read as usize)?;
        let (_, left) = place.as_mut()?;
        *left -= 1;
        if *left > 0 {
            return None;
        }
        place.take().map(|(reading, _)| reading)
    }
}

/// Fills a read's buffer, and says which pages of flash it came from.
pub(crate) fn fill(
    extent: Extent,
    buffer: &mut Buffer,
    (cache, shares): (&mut Cache, &Shares),
    ftl: &Ftl,
    stats: &mut Stats,
) -> Result<Vec<Page>, StorageError> {
    let mut pages: Vec<Page> = Vec::new();
    let mut shown = Ok(());
    for (lba, bytes) in extent.iter().zip(buffer.chunks_exact_mut(BLOCK_BYTES)) {
        stats.read_blocks += 1;
        let (lpn, nth) = ftl.geometry.logical_page_of(lba.0 as u32);
        let Some((content, page)) = newest(cache, shares, ftl, lpn) else { continue };
        shown = shown.and(show_block(&content, nth, ftl, bytes).map_err(|cause| (lba, cause)));
        match page {
            None => stats.read_hits += 1,
            Some(_) if cache.has_clean(lpn) => stats.read_hits += 1,
            Some(page) if pages.last() != Some(&page) => pages.push(page),
            Some(_) => {}
        }
    }
    let failed = |(at, cause): (_, io::Error)| StorageError::Device {
        command: CommandKind::Read,
        at,
        cause: cause.kind(),
    };
    shown.map(|()| pages).map_err(failed)
}

/// What a read of a block would find.
pub(crate) fn peek(
    block: u32,
    bytes: &mut [u8],
    (cache, shares): (&Cache, &Shares),
    ftl: &Ftl,
) -> io::Result<()> {
    let (lpn, nth) = ftl.geometry.logical_page_of(block);
    match newest(cache, shares, ftl, lpn) {
        Some((content, _)) => show_block(&content, nth, ftl, bytes),
        None => {
            bytes.fill(0);
            Ok(())
        }
    }
}

/// The newest content of a logical page, with the page of flash that it lies in if it is not in the cache.
fn newest(cache: &Cache, shares: &Shares, ftl: &Ftl, lpn: u32) -> Option<(Content, Option<Page>)> {
    cached(cache, lpn).or_else(|| stored(ftl, shares.source_of(lpn)))
}

pub(crate) fn cached(cache: &Cache, lpn: u32) -> Option<(Content, Option<Page>)> {
    cache.find(lpn).map(|content| (content, None))
}

pub(crate) fn stored(ftl: &Ftl, lpn: u32) -> Option<(Content, Option<Page>)> {
    let slot = ftl.map.slot(lpn);
    (slot != Slot::NONE).then(|| (ftl.medium.content(slot), Some(ftl.geometry.page_of(slot))))
}

/// Puts a block of a logical page into memory.
fn show_block(content: &Content, nth: usize, ftl: &Ftl, bytes: &mut [u8]) -> io::Result<()> {
    if ftl.geometry.blocks_per_slot == 1 {
        return show(content.lpn, content.version, &content.payload, bytes);
    }
    let block = content.lpn.wrapping_mul(ftl.geometry.blocks_per_slot).wrapping_add(nth as u32);
    match content.part(nth, &ftl.geometry) {
        Some(Part { version, payload }) => show(block, version, &payload, bytes),
        None => {
            bytes.fill(0);
            Ok(())
        }
    }
}

/// Puts a version of a block into memory.
fn show(block: u32, version: u64, payload: &Payload, bytes: &mut [u8]) -> io::Result<()> {
    match payload {
        Payload::Bytes(kept) => bytes.copy_from_slice(kept),
        Payload::Filed(place) => return place.read(bytes),
        Payload::Garbled(garbled) => {
            show(block, version, &garbled.new, bytes)?;
            garbled.garble(bytes);
        }
        Payload::Version => {
            bytes[..8].copy_from_slice(&u64::from(block).to_le_bytes());
            bytes[8..16].copy_from_slice(&version.to_le_bytes());
            bytes[16..].fill(0);
        }
        Payload::Page(_) | Payload::Discard(_) | Payload::Share(_) => bytes.fill(0),
    }
    Ok(())
}
