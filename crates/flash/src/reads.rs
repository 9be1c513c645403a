//! Reads. What a read finds is decided when it is serviced; dies and link then take their time.

use std::io;

use weir_runtime::Buffer;
use weir_storage::{BLOCK_BYTES, CommandKind, Completer, Extent, StorageError};

use crate::array::Work;
use crate::cache::Cache;
use crate::ftl::Ftl;
use crate::geometry::{Page, Slot};
use crate::medium::{Content, Payload};
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
    cache: &Cache,
    ftl: &Ftl,
    stats: &mut Stats,
) -> Result<Vec<Page>, StorageError> {
    let mut pages: Vec<Page> = Vec::new();
    let mut shown = Ok(());
    for (lba, bytes) in extent.iter().zip(buffer.chunks_exact_mut(BLOCK_BYTES)) {
        stats.read_blocks += 1;
        let Some((content, page)) = newest(cache, ftl, lba.0 as u32) else { continue };
        shown = shown.and(show(&content, bytes).map_err(|cause| (lba, cause)));
        match page {
            None => stats.read_hits += 1,
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
pub(crate) fn peek(lpn: u32, bytes: &mut [u8], cache: &Cache, ftl: &Ftl) -> io::Result<()> {
    match newest(cache, ftl, lpn) {
        Some((content, _)) => show(&content, bytes),
        None => {
            bytes.fill(0);
            Ok(())
        }
    }
}

/// The newest content of a block, with the page of flash that it lies in if it is not in the cache.
fn newest(cache: &Cache, ftl: &Ftl, lpn: u32) -> Option<(Content, Option<Page>)> {
    if let Some(content) = cache.find(lpn) {
        return Some((content, None));
    }
    let slot = ftl.map.slot(lpn);
    (slot != Slot::NONE).then(|| (ftl.medium.content(slot), Some(ftl.geometry.page_of(slot))))
}

/// Puts the content of a slot into a block of memory.
fn show(content: &Content, bytes: &mut [u8]) -> io::Result<()> {
    match &content.payload {
        Payload::Bytes(kept) => bytes.copy_from_slice(kept),
        Payload::Filed(place) => return place.read(bytes),
        Payload::Version => {
            bytes[..8].copy_from_slice(&u64::from(content.lpn).to_le_bytes());
            bytes[8..16].copy_from_slice(&content.version.to_le_bytes());
            bytes[16..].fill(0);
        }
        Payload::Discard(_) | Payload::Share(_) => bytes.fill(0),
    }
    Ok(())
}
