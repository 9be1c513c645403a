//! The *checkpoint*: the map, the free-segment list, and where the log goes on, so that recovery reads a bounded
//! tail.
//!
//! Incremental: only map pages that changed since the last one are written, each to the one of its two
//! places that the last checkpoint does not use. Full: the first after recovery of a volume whose pages all
//! changed; there is no difference in form. The new checkpoint takes effect with one write to the older of
//! two slots; until that is durable, the old one stands untouched.

use std::mem::offset_of;

use weir_storage::{BLOCK_BYTES, Extent, Lba, Rules, Storage};
use zerocopy::little_endian::U32;
use zerocopy::{FromBytes, IntoBytes};

use crate::base::Base;
use crate::blocks::Blocks;
use crate::chunk::ParsedChunk;
use crate::error::{Damage, VolumeError};
use crate::geometry::{CHECKPOINT_SLOTS, Geometry, checkpoint_bytes};
use crate::layout::{
    CHECKPOINT_MAGIC, COUNTERS_END, CheckpointHeader, ENTRIES_PER_PAGE, MapPage, checksum_matches,
    stamp_checksum,
};
use crate::map::Entry;
use crate::map_page::{PageSlot, Stored, page_sum};
use crate::mutants::VolumeMutant;
use crate::scan::scan_beginnings;
use crate::sparse::Sparse;
use crate::transfer::read_extent;

pub(crate) const CHECKSUM_FIELD: usize = offset_of!(CheckpointHeader, checksum);
/// Map pages in one write at most.
pub(crate) const PAGES_PER_WRITE: usize = 64;

/// A map page on the medium.
#[derive(Clone, Copy, Default)]
struct PageAt {
    place: PageSlot,
    checksum: u32,
    /// The other place holds the same.
    is_double: bool,
}

/// The map pages on the medium, as the newest checkpoint knows them.
#[derive(Clone, Default)]
pub(crate) struct PageTable {
    pages: Sparse<PageAt>,
    sum: u64,
}

impl PageTable {
    pub(crate) fn new(map_pages: u32) -> PageTable {
        PageTable { pages: Sparse::new(map_pages as usize), sum: 0 }
    }

    pub(crate) fn place(&self, page: u32) -> PageSlot {
        self.pages.get(page as usize).map_or(PageSlot::Nowhere, |at| at.place)
    }

    pub(crate) fn moved(&mut self, page: u32, place: PageSlot, checksum: u32) {
        let at = self.pages.get_mut(page as usize);
        let old = *at;
        let is_double = old.place != PageSlot::Nowhere && old.checksum == checksum;
        *at = PageAt { place, checksum, is_double };
        if old.place != PageSlot::Nowhere {
            self.sum = self.sum.wrapping_sub(page_sum(page, old.checksum));
        }
        self.sum = self.sum.wrapping_add(page_sum(page, checksum));
    }

    /// Pages whose other place holds something else, `most` of them at most, in order.
    pub(crate) fn single(&self, most: usize) -> Vec<u32> {
        let single = self.pages.iter_from(0).filter(|(_, at)| at.place != PageSlot::Nowhere && !at.is_double);
        single.map(|(page, _)| page as u32).take(most).collect()
    }

    /// Another checkpoint has the same map in other places.
    fn compare(&mut self, other: &PageTable) {
        let written: Vec<(u32, PageSlot)> = self.written().collect();
        for (page, place) in written {
            let there = other.place(page);
            self.pages.get_mut(page as usize).is_double = there != PageSlot::Nowhere && there != place;
        }
    }

    /// Takes in what was read of a page, and 0 for one that is lost.
    pub(crate) fn set_checksum(&mut self, page: u32, checksum: u32) {
        self.pages.get_mut(page as usize).checksum = checksum;
    }

    /// The sum that a checkpoint was written with.
    pub(crate) fn sum(&self) -> u64 {
        self.sum
    }

    /// Computes the sum anew, of pages some of which may be lost.
    pub(crate) fn add_up(&mut self) {
        let written = self.pages.iter_from(0).filter(|(_, at)| at.place != PageSlot::Nowhere);
        let sums = written.map(|(page, at)| page_sum(page as u32, at.checksum));
        self.sum = sums.fold(0, u64::wrapping_add);
    }

    /// The pages that are somewhere, in order.
    pub(crate) fn written(&self) -> impl Iterator<Item = (u32, PageSlot)> {
        let written = self.pages.iter_from(0).filter(|(_, at)| at.place != PageSlot::Nowhere);
        written.map(|(page, at)| (page as u32, at.place))
    }

    /// Those pages in runs that lie behind one another: first page, how many, and where.
    pub(crate) fn runs(&self) -> Vec<(u32, u32, PageSlot)> {
        let mut runs: Vec<(u32, u32, PageSlot)> = Vec::new();
        for (page, place) in self.written() {
            match runs.last_mut() {
                Some((first, count, at))
                    if *first + *count == page && *at == place && *count < PAGES_PER_WRITE as u32 =>
                {
                    *count += 1;
                }
                _ => runs.push((page, 1, place)),
            }
        }
        runs
    }

    /// Bytes of memory that it takes.
    pub(crate) fn bytes(&self) -> usize {
        self.pages.bytes()
    }
}

/// Which blocks of a checkpoint slot hold anything but zeros: a large volume's checkpoint is mostly zeros, and those
/// that are there already are not written again (V6).
pub(crate) type Filled = Vec<bool>;

pub(crate) fn filled(bytes: &[u8]) -> Filled {
    bytes.chunks(BLOCK_BYTES).map(|block| block.iter().any(|byte| *byte != 0)).collect()
}

/// A power cut leaves each so many bytes of a write, or not: the smallest unit of any disk.
const UNIT_BYTES: usize = 512;

/// The newest checkpoint.
#[derive(Clone)]
pub(crate) struct Checkpoint {
    pub number: u64,
    pub slot: u64,
    pub generation: u64,
    pub next_sequence: u64,
    pub log_offset: u32,
    pub window_blocks: u32,
    pub free_list: Vec<u32>,
    pub pages: PageTable,
    /// What both slots are filled with, this checkpoint in its own.
    pub filled: [Filled; CHECKPOINT_SLOTS as usize],
    /// The other slot held no whole checkpoint when this one was read.
    pub alone: bool,
}

impl Checkpoint {
    /// The checkpoint of an empty volume, whose whole space is free-segment list, in one of the slots. With a base, the log begins
    /// behind that (V12).
    pub(crate) fn first(geometry: &Geometry, slot: u64) -> Checkpoint {
        let (sequence, generation) = geometry.base.map_or((0, 1), |base| (base.sequence, base.generation));
        Checkpoint {
            number: 1 + slot,
            slot,
            generation,
            next_sequence: sequence + 1,
            log_offset: 0,
            window_blocks: 0,
            free_list: (0..geometry.free_list_limit() as u32).collect(),
            pages: PageTable::new(geometry.map_pages),
            filled: Default::default(),
            alone: false,
        }
    }

    /// Whether what was found in a slot is the [first](Self::first) checkpoint on some base, or a part of it beside zeros.
    pub(crate) fn is_part_of_first(found: &[u8], geometry: &Geometry, slot: u64) -> bool {
        let Ok((header, _)) = CheckpointHeader::read_from_prefix(found) else { return false };
        let (next, generation) = (header.next_sequence.get(), header.generation.get());
        let base = Base { sequence: next.saturating_sub(1), generation, epoch: 0, token: 0 };
        let on_base = Geometry { base: Some(base), ..*geometry };
        let mut first = vec![0; found.len()];
        Checkpoint::first(&on_base, slot).encode(geometry, &mut first);
        let mut units = found.chunks(UNIT_BYTES).zip(first.chunks(UNIT_BYTES));
        units.all(|(found, first)| found == first || found.iter().all(|byte| *byte == 0))
    }

    pub(crate) fn encode(&self, geometry: &Geometry, buffer: &mut [u8]) -> usize {
        let header = CheckpointHeader {
            magic: CHECKPOINT_MAGIC,
            volume: geometry.volume.into(),
            number: self.number.into(),
            generation: self.generation.into(),
            next_sequence: self.next_sequence.into(),
            map_sum: self.pages.sum.into(),
            log_offset: self.log_offset.into(),
            free_list: (self.free_list.len() as u32).into(),
            window_blocks: self.window_blocks.into(),
            checksum: 0.into(),
        };
        let (head, tail) = buffer.split_at_mut(size_of::<CheckpointHeader>());
        head.copy_from_slice(header.as_bytes());
        let (segments, states) = tail.split_at_mut(self.free_list.len() * size_of::<u32>());
        for (to, segment) in segments.chunks_exact_mut(size_of::<u32>()).zip(&self.free_list) {
            to.copy_from_slice(&segment.to_le_bytes());
        }
        states.fill(0);
        for (page, place) in self.pages.written() {
            states[page as usize / 4] |= (place as u8) << (page % 4 * 2);
        }
        let bytes = checkpoint_bytes(self.free_list.len() as u32, geometry.map_pages);
        let bytes = bytes.next_multiple_of(BLOCK_BYTES);
        stamp_checksum(&mut buffer[..bytes], CHECKSUM_FIELD);
        bytes
    }

    /// Parses one slot; `None` if no whole checkpoint of this volume is there.
    pub(crate) fn parse(
        bytes: &[u8],
        geometry: &Geometry,
        slot: u64,
    ) -> Result<Option<Checkpoint>, VolumeError> {
        let at = geometry.checkpoint_slot(slot);
        let Ok((header, tail)) = CheckpointHeader::read_from_prefix(bytes) else { return Ok(None) };
        if header.magic != CHECKPOINT_MAGIC || header.volume.get() != geometry.volume {
            return Ok(None);
        }
        let free_list = header.free_list.get();
        let used = checkpoint_bytes(free_list.min(geometry.segments), geometry.map_pages)
            .next_multiple_of(BLOCK_BYTES);
        if used > bytes.len() || !checksum_matches(&bytes[..used], CHECKSUM_FIELD) {
            return Ok(None);
        }
        let damaged = |field| VolumeError::Damaged { what: Damage::CheckpointField(field), at };
        if free_list as usize > geometry.free_list_limit() {
            return Err(damaged("free_list"));
        }
        let (segments, states) = tail.split_at(free_list as usize * size_of::<u32>());
        let segments = segments.chunks_exact(size_of::<u32>());
        let free_list: Vec<u32> =
            segments.filter_map(|s| U32::read_from_bytes(s).ok()).map(U32::get).collect();
        let mut sorted = free_list.clone();
        sorted.sort_unstable();
        if sorted.windows(2).any(|pair| pair[0] == pair[1])
            || sorted.last().is_some_and(|s| *s >= geometry.segments)
        {
            return Err(damaged("free_list"));
        }
        // Counters that only ever go up by one a request, a life, a checkpoint.
        for (field, value) in [
            ("number", header.number.get()),
            ("generation", header.generation.get()),
            ("next_sequence", header.next_sequence.get()),
        ] {
            if !(1..COUNTERS_END).contains(&value) {
                return Err(damaged(field));
            }
        }
        let log_offset = header.log_offset.get();
        if log_offset > geometry.segment_blocks {
            return Err(damaged("log_offset"));
        }
        let mut pages = PageTable::new(geometry.map_pages);
        let used = (geometry.map_pages as usize).div_ceil(4);
        for (i, states) in states[..used].iter().enumerate().filter(|(_, states)| **states != 0) {
            for page in 4 * i..(4 * i + 4).min(geometry.map_pages as usize) {
                let place = match states >> (page % 4 * 2) & 3 {
                    0 => continue,
                    1 => PageSlot::First,
                    2 => PageSlot::Second,
                    _ => return Err(damaged("page states")),
                };
                pages.pages.get_mut(page).place = place;
            }
        }
        pages.sum = header.map_sum.get();
        Ok(Some(Checkpoint {
            number: header.number.get(),
            slot,
            generation: header.generation.get(),
            next_sequence: header.next_sequence.get(),
            log_offset,
            window_blocks: header.window_blocks.get(),
            free_list,
            pages,
            filled: Default::default(),
            alone: false,
        }))
    }

    /// The newest valid checkpoint.
    pub(crate) async fn newest(disk: &dyn Storage, geometry: &Geometry) -> Result<Checkpoint, VolumeError> {
        let mut whole = Vec::new();
        let mut fillings: [Filled; CHECKPOINT_SLOTS as usize] = Default::default();
        for (slot, filling) in (0..).zip(&mut fillings) {
            let extent = Extent::new(geometry.checkpoint_slot(slot), geometry.checkpoint_blocks);
            let bytes = read_extent(disk, extent).await?;
            whole.extend(Checkpoint::parse(&bytes, geometry, slot)?);
            *filling = filled(&bytes);
        }
        let alone = whole.len() < CHECKPOINT_SLOTS as usize;
        whole.sort_unstable_by_key(|checkpoint| checkpoint.number);
        let at = geometry.checkpoint_slot(0);
        let mut newest = whole.pop().ok_or(VolumeError::Damaged { what: Damage::NoCheckpoint, at })?;
        if let Some(before) = whole.pop().filter(|before| before.pages.sum == newest.pages.sum) {
            newest.pages.compare(&before.pages);
        }
        Ok(Checkpoint { filled: fillings, alone, ..newest })
    }

    /// V1: the other slot is not whole. A crash tears a checkpoint that nothing was built on yet; but if the
    /// log has seen a newer one, that one was durable and is damaged, and going on from this one would give
    /// out its generation twice.
    ///
    /// What was first written after a newer checkpoint is either behind this one's log, where the replay comes by, or
    /// at the beginning of a segment: one that this checkpoint has on its free-segment list or that held live blocks
    /// for it, one that records put on the free-segment list, or, after a recovery, one that a recovery would put
    /// there now. (In a volume with no more segments than a free-segment list takes, this one's free-segment list and
    /// live segments are all there are.) So `segments` are those, and not the whole volume (V6).
    ///
    /// The same holds if the write of a newer one is lost, and its slot has its old content.
    ///
    /// Returns the number of the newest checkpoint that chunks at the beginning of `segments` know, or 0. A segment that
    /// cannot be read ends the search only if that is needed: not `with_failures`.
    pub(crate) async fn find_newest_known(
        &self,
        disk: &dyn Storage,
        geometry: &Geometry,
        segments: impl Iterator<Item = u32>,
        with_failures: bool,
    ) -> Result<u64, VolumeError> {
        let mut newest = 0;
        let note = |_, chunk: &ParsedChunk<'_>| newest = newest.max(chunk.header.checkpoint.get());
        scan_beginnings(disk, geometry, segments, with_failures, note).await?;
        Ok(newest)
    }

    /// Where a newer checkpoint than this one would be.
    pub(crate) fn place_of_newer(&self, geometry: &Geometry) -> Lba {
        geometry.checkpoint_slot((self.slot + 1) % CHECKPOINT_SLOTS)
    }

    /// Loads the map that the checkpoint names, and counts what is live in each segment. Pages beyond the limit are evicted
    /// again.
    pub(crate) async fn load_blocks(
        &mut self,
        disk: &dyn Storage,
        geometry: &Geometry,
        rules: Rules<VolumeMutant>,
        map_limit: usize,
    ) -> Result<Blocks, VolumeError> {
        let mut blocks = Blocks::new(geometry, rules, map_limit);
        let mut sum = 0_u64;
        for (first, count, place) in self.pages.runs() {
            let extent = Extent::new(geometry.map_page(place.area(), first), count);
            let bytes = read_extent(disk, extent).await?;
            for (page, block) in (first..).zip(bytes.chunks_exact(BLOCK_BYTES)) {
                let at = extent.start.offset(u64::from(page - first));
                let checksum = load_page(block, page, geometry.volume, &mut blocks)
                    .map_err(|what| VolumeError::Damaged { what, at })?;
                self.pages.pages.get_mut(page as usize).checksum = checksum;
                blocks.loaded(page, Stored { slot: place, checksum });
                sum = sum.wrapping_add(page_sum(page, checksum));
            }
        }
        if sum != self.pages.sum {
            return Err(VolumeError::Damaged { what: Damage::StaleMap, at: geometry.map_page(0, 0) });
        }
        blocks.end_loading();
        Ok(blocks)
    }
}

/// The map page in a block, if it is whole and the one that belongs there.
pub(crate) fn whole_page(block: &[u8], page: u32, volume: u64) -> Option<&MapPage> {
    let on_disk = MapPage::ref_from_bytes(block).ok()?;
    let ours = on_disk.volume.get() == volume && on_disk.page.get() == page;
    (ours && checksum_matches(block, offset_of!(MapPage, checksum))).then_some(on_disk)
}

/// Loads a map page, and returns its checksum.
pub(crate) fn load_page(block: &[u8], page: u32, volume: u64, blocks: &mut Blocks) -> Result<u32, Damage> {
    let on_disk = whole_page(block, page, volume).ok_or(Damage::MapPage)?;
    for (i, entry) in on_disk.entries.iter().enumerate() {
        let entry = Entry { block: entry.block.get(), checksum: entry.checksum.get() };
        if entry.is_known() {
            blocks.load(page as u64 * ENTRIES_PER_PAGE as u64 + i as u64, entry)?;
        }
    }
    Ok(on_disk.checksum.get())
}
