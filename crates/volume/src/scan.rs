//! Scans: what the chunks that are whole say, whatever the map and the free-segment list say. Repair scans all segments, and so
//! reads the whole volume once; recovery scans where some segments begin.

use std::collections::{BTreeMap, BTreeSet};

use futures_util::future::join_all;
use weir_runtime::Buffer;
use weir_storage::{BLOCK_BYTES, Extent, Lba, Storage, read};

use crate::checkpoint::Checkpoint;
use crate::chunk::ParsedChunk;
use crate::error::VolumeError;
use crate::geometry::Geometry;
use crate::layout::{ENTRIES_PER_PAGE, RecordKind};
use crate::map::Entry;
use crate::transfer::read_extent;

/// Reads an extent of a damaged disk. What cannot be read is zeros, which no checksum takes for whole.
pub(crate) async fn read_or_zeros(disk: &dyn Storage, extent: Extent) -> Buffer {
    if let Ok(bytes) = read_extent(disk, extent).await {
        return bytes;
    }
    let mut bytes = Buffer::new(extent.bytes());
    for (lba, to) in extent.iter().zip(bytes.chunks_exact_mut(BLOCK_BYTES)) {
        if let Ok(block) = read(disk, Extent::new(lba, 1)).await {
            to.copy_from_slice(&block);
        }
    }
    bytes
}

/// Calls `visit` with each whole chunk of the volume, in order of address. Behind a header that is not whole the next
/// block is looked at, so that one damaged header hides no chunk behind it.
pub(crate) async fn scan(
    disk: &dyn Storage,
    geometry: &Geometry,
    mut visit: impl FnMut(&ParsedChunk<'_>, u32),
) {
    for segment in 0..geometry.segments {
        let extent = Extent::new(Lba(geometry.block(segment, 0)), geometry.segment_blocks);
        let bytes = read_or_zeros(disk, extent).await;
        let mut offset = 0;
        while offset < geometry.segment_blocks {
            let block = &bytes[offset as usize * BLOCK_BYTES..];
            offset += match ParsedChunk::parse(block, geometry.volume, segment, offset) {
                Some(chunk) => {
                    visit(&chunk, geometry.block(segment, offset) as u32);
                    chunk.blocks()
                }
                None => 1,
            };
        }
    }
}

/// Segments whose first block is read at the same time.
const SEGMENTS_AT_ONCE: usize = 64;

/// Calls `visit` with each whole chunk that a segment begins with. A segment that cannot be read ends the scan with an error; with
/// `with_failures` it is skipped.
pub(crate) async fn scan_beginnings(
    disk: &dyn Storage,
    geometry: &Geometry,
    segments: impl Iterator<Item = u32>,
    with_failures: bool,
    mut visit: impl FnMut(u32, &ParsedChunk<'_>),
) -> Result<(), VolumeError> {
    let segments: Vec<u32> = segments.collect();
    for batch in segments.chunks(SEGMENTS_AT_ONCE) {
        let heads = batch.iter().map(|s| read(disk, Extent::new(Lba(geometry.block(*s, 0)), 1)));
        for (segment, head) in batch.iter().zip(join_all(heads).await) {
            let head = match head {
                Err(_) if with_failures => continue,
                head => head?,
            };
            if let Some(chunk) = ParsedChunk::parse(&head, geometry.volume, *segment, 0) {
                visit(*segment, &chunk);
            }
        }
    }
    Ok(())
}

/// The newest record of a block.
#[derive(Clone, Copy)]
struct Newest {
    generation: u64,
    sequence: u64,
    /// Where its data is; unmapped by a discard; none by a share, which says it by a source.
    entry: Option<Entry>,
}

/// What the records before a checkpoint say of the blocks of some map pages.
pub(crate) struct Records {
    newest: BTreeMap<u32, Newest>,
    generation: u64,
    /// From this record on to the checkpoint, all records of its generation are on the disk.
    complete_from: u64,
}

impl Records {
    /// Scans all segments.
    pub(crate) async fn of_pages(
        disk: &dyn Storage,
        geometry: &Geometry,
        checkpoint: &Checkpoint,
        pages: &BTreeSet<u32>,
    ) -> Records {
        let Checkpoint { generation, next_sequence, .. } = *checkpoint;
        let mut newest: BTreeMap<u32, Newest> = BTreeMap::new();
        let mut runs: Vec<(u64, u64)> = Vec::new();
        scan(disk, geometry, |chunk, block| {
            let (of, first) = (chunk.header.generation.get(), chunk.header.sequence.get());
            if of > generation || first >= next_sequence {
                return;
            }
            if of == generation {
                runs.push((first, chunk.last_sequence()));
            }
            let (mut sequence, mut at) = (first, block);
            for entry in chunk.entries() {
                let lba = entry.lba.get();
                let (blocks, found) = match entry.kind() {
                    Some(RecordKind::Data) => {
                        at += 1;
                        (1, Some(Entry { block: at, checksum: entry.word.get() }))
                    }
                    Some(RecordKind::Discard) => (entry.word.get(), Some(Entry::default())),
                    Some(RecordKind::Share) => (1, None),
                    Some(RecordKind::FreeSegments | RecordKind::Mark) | None => (0, None),
                };
                if sequence < next_sequence {
                    let said = Newest { generation: of, sequence, entry: found };
                    for lba in within(pages, lba, blocks) {
                        let newest = newest.entry(lba).or_insert(said);
                        if (newest.generation, newest.sequence) <= (of, sequence) {
                            *newest = said;
                        }
                    }
                }
                sequence += u64::from(entry.is_last());
            }
        })
        .await;
        Records { newest, generation, complete_from: complete_from(runs, next_sequence) }
    }

    /// What a block reads, by a record behind which none is missing.
    pub(crate) fn proved(&self, lba: u32) -> Option<Entry> {
        let newest = self.newest.get(&lba)?;
        let is_last = newest.generation == self.generation && newest.sequence >= self.complete_from;
        newest.entry.filter(|_| is_last)
    }

    /// What a block read when the newest record that is left of it was written. Something newer may be gone.
    pub(crate) fn newest(&self, lba: u32) -> Entry {
        self.newest.get(&lba).and_then(|newest| newest.entry).unwrap_or_default()
    }
}

/// The blocks of `first` to `first + blocks` that lie in some map pages.
fn within(pages: &BTreeSet<u32>, first: u32, blocks: u32) -> impl Iterator<Item = u32> {
    let per_page = ENTRIES_PER_PAGE as u64;
    let end = u64::from(first) + u64::from(blocks);
    let last_page = end.saturating_sub(1) / per_page;
    let touched =
        pages.range((u64::from(first) / per_page) as u32..=(last_page as u32).max(first / per_page as u32));
    touched.flat_map(move |page| {
        let start = u64::from(*page) * per_page;
        (start.max(u64::from(first))..(start + per_page).min(end)).map(|lba| lba as u32)
    })
}

/// The first record from which on the chunks follow each other without a gap to `end`.
fn complete_from(mut runs: Vec<(u64, u64)>, end: u64) -> u64 {
    runs.sort_unstable();
    let mut from = end;
    for (first, last) in runs.into_iter().rev() {
        if last + 1 < from {
            break;
        }
        from = from.min(first);
    }
    from
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_complete_up_to_the_last_gap() {
        assert_eq!(complete_from(vec![(1, 4), (10, 12), (13, 19), (7, 9)], 20), 7);
        assert_eq!(complete_from(vec![(1, 18)], 20), 20);
        assert_eq!(complete_from(Vec::new(), 1), 1);
    }

    #[test]
    fn a_discard_is_seen_in_each_page_that_it_touches() {
        let pages = BTreeSet::from([0, 2]);
        let blocks: Vec<u32> = within(&pages, 508, 514).collect();
        assert_eq!(blocks, [508, 509, 1020, 1021]);
        assert_eq!(within(&pages, 5, 0).count(), 0);
    }
}
