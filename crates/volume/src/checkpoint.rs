//! The *checkpoint*: the map, the runway, and where the log goes on, so that recovery reads a bounded tail.
//!
//! Incremental: only map pages that changed since the last one are written, each to the one of its two
//! places that the last checkpoint does not use. Full: the first after recovery of a volume whose pages all
//! changed; there is no difference in form. The new checkpoint takes effect with one write to the older of
//! two slots; until that is durable, the old one stands untouched.
//!
//! Order is everything here (V3): log and map pages are durable before the slot is written, the slot is
//! durable before any segment that it frees is written again.

use std::mem::offset_of;

use futures_util::future::join_all;
use weir_runtime::Buffer;
use weir_storage::{BLOCK_BYTES, Extent, Lba, Rejected, Storage, Ticket, flush, read};
use zerocopy::little_endian::U32;
use zerocopy::{FromBytes, IntoBytes};

use crate::chunk::ParsedChunk;
use crate::error::{Damage, VolumeError};
use crate::geometry::{CHECKPOINT_SLOTS, Geometry, checkpoint_bytes};
use crate::layout::{
    CHECKPOINT_MAGIC, CheckpointHeader, ENTRIES_PER_PAGE, MapPage, checksum_matches, stamp_checksum,
};
use crate::map::{Entry, Map, page_sum};
use crate::mutants::{VolumeMutant, broken};
use crate::segments::Segments;
use crate::state::Shared;
use crate::transfer::{all_transferred, read_extent, write_buffer};

const CHECKSUM_FIELD: usize = offset_of!(CheckpointHeader, checksum);
/// No counter comes this far: at a billion requests a second it takes a century.
const COUNTERS_END: u64 = 1 << 62;
/// Segments whose first block is read at the same time.
const SEGMENTS_AT_ONCE: u32 = 64;
/// Map pages in one write at most.
const PAGES_PER_WRITE: usize = 64;

/// Which of its two places holds a map page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Place {
    /// Never written: nothing in the page is mapped.
    #[default]
    Nowhere,
    First,
    Second,
}

impl Place {
    fn other(self) -> Place {
        match self {
            Place::Nowhere | Place::Second => Place::First,
            Place::First => Place::Second,
        }
    }

    fn area(self) -> u8 {
        u8::from(self == Place::Second)
    }
}

/// The map pages on the medium, as the newest checkpoint knows them.
#[derive(Clone, Default)]
pub(crate) struct PageTable {
    places: Vec<Place>,
    checksums: Vec<u32>,
    sum: u64,
}

impl PageTable {
    fn new(map_pages: u32) -> PageTable {
        let pages = map_pages as usize;
        PageTable { places: vec![Place::Nowhere; pages], checksums: vec![0; pages], sum: 0 }
    }

    fn moved(&mut self, page: u32, place: Place, checksum: u32) {
        let index = page as usize;
        if self.places[index] != Place::Nowhere {
            self.sum = self.sum.wrapping_sub(page_sum(page, self.checksums[index]));
        }
        self.sum = self.sum.wrapping_add(page_sum(page, checksum));
        (self.places[index], self.checksums[index]) = (place, checksum);
    }
}

/// The newest checkpoint.
pub(crate) struct Checkpoint {
    pub number: u64,
    pub slot: u64,
    pub generation: u64,
    pub next_sequence: u64,
    pub log_offset: u32,
    pub window_blocks: u32,
    pub runway: Vec<u32>,
    pub pages: PageTable,
}

impl Checkpoint {
    /// The checkpoint of an empty volume, whose whole space is runway, in one of the slots.
    pub(crate) fn first(geometry: &Geometry, slot: u64) -> Checkpoint {
        Checkpoint {
            number: 1 + slot,
            slot,
            generation: 1,
            next_sequence: 1,
            log_offset: 0,
            window_blocks: 0,
            runway: (0..geometry.runway_limit() as u32).collect(),
            pages: PageTable::new(geometry.map_pages),
        }
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
            runway: (self.runway.len() as u32).into(),
            window_blocks: self.window_blocks.into(),
            checksum: 0.into(),
        };
        let (head, tail) = buffer.split_at_mut(size_of::<CheckpointHeader>());
        head.copy_from_slice(header.as_bytes());
        let (segments, states) = tail.split_at_mut(self.runway.len() * size_of::<u32>());
        for (to, segment) in segments.chunks_exact_mut(size_of::<u32>()).zip(&self.runway) {
            to.copy_from_slice(&segment.to_le_bytes());
        }
        states.fill(0);
        for (i, place) in self.pages.places.iter().enumerate() {
            states[i / 4] |= (*place as u8) << (i % 4 * 2);
        }
        let bytes = checkpoint_bytes(self.runway.len() as u32, geometry.map_pages);
        let bytes = bytes.next_multiple_of(BLOCK_BYTES);
        stamp_checksum(&mut buffer[..bytes], CHECKSUM_FIELD);
        bytes
    }

    /// Reads one slot; `None` if no whole checkpoint of this volume is there.
    async fn read_slot(
        disk: &dyn Storage,
        geometry: &Geometry,
        slot: u64,
    ) -> Result<Option<Checkpoint>, VolumeError> {
        let extent = Extent::new(geometry.checkpoint_slot(slot), geometry.checkpoint_blocks);
        let bytes = read_extent(disk, extent).await?;
        let Ok((header, tail)) = CheckpointHeader::read_from_prefix(&bytes) else { return Ok(None) };
        if header.magic != CHECKPOINT_MAGIC || header.volume.get() != geometry.volume {
            return Ok(None);
        }
        let runway = header.runway.get();
        let used =
            checkpoint_bytes(runway.min(geometry.segments), geometry.map_pages).next_multiple_of(BLOCK_BYTES);
        if used > bytes.len() || !checksum_matches(&bytes[..used], CHECKSUM_FIELD) {
            return Ok(None);
        }
        let damaged = |field| VolumeError::Damaged { what: Damage::CheckpointField(field), at: extent.start };
        if runway as usize > geometry.runway_limit() {
            return Err(damaged("runway"));
        }
        let (segments, states) = tail.split_at(runway as usize * size_of::<u32>());
        let segments = segments.chunks_exact(size_of::<u32>());
        let runway: Vec<u32> = segments.filter_map(|s| U32::read_from_bytes(s).ok()).map(U32::get).collect();
        let mut sorted = runway.clone();
        sorted.sort_unstable();
        if sorted.windows(2).any(|pair| pair[0] == pair[1])
            || sorted.last().is_some_and(|s| *s >= geometry.segments)
        {
            return Err(damaged("runway"));
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
        for (i, place) in pages.places.iter_mut().enumerate() {
            *place = match states[i / 4] >> (i % 4 * 2) & 3 {
                0 => Place::Nowhere,
                1 => Place::First,
                2 => Place::Second,
                _ => return Err(damaged("page states")),
            };
        }
        pages.sum = header.map_sum.get();
        Ok(Some(Checkpoint {
            number: header.number.get(),
            slot,
            generation: header.generation.get(),
            next_sequence: header.next_sequence.get(),
            log_offset,
            window_blocks: header.window_blocks.get(),
            runway,
            pages,
        }))
    }

    /// The newest valid checkpoint. `trusting`, for a mutant, takes the older one without a question.
    pub(crate) async fn newest(
        disk: &dyn Storage,
        geometry: &Geometry,
        trusting: bool,
    ) -> Result<Checkpoint, VolumeError> {
        let mut whole = Vec::new();
        for slot in 0..CHECKPOINT_SLOTS {
            whole.extend(Checkpoint::read_slot(disk, geometry, slot).await?);
        }
        let alone = whole.len() < CHECKPOINT_SLOTS as usize;
        let newest = whole.into_iter().max_by_key(|checkpoint| checkpoint.number);
        let at = geometry.checkpoint_slot(0);
        let newest = newest.ok_or(VolumeError::Damaged { what: Damage::NoCheckpoint, at })?;
        if alone && !trusting {
            newest.require_newest(disk, geometry).await?;
        }
        Ok(newest)
    }

    /// V1: the other slot is not whole. A crash tears a checkpoint that nothing was built on yet; but if the
    /// log has seen a newer one, that one was durable and is damaged, and going on from this one would give
    /// out its generation twice. Whatever was written after a newer checkpoint is either at the beginning of
    /// a segment, or behind this one's log, where the replay comes by.
    async fn require_newest(&self, disk: &dyn Storage, geometry: &Geometry) -> Result<(), VolumeError> {
        for first in (0..geometry.segments).step_by(SEGMENTS_AT_ONCE as usize) {
            let batch = first..geometry.segments.min(first + SEGMENTS_AT_ONCE);
            let heads = batch.clone().map(|s| read(disk, Extent::new(Lba(geometry.block(s, 0)), 1)));
            for (segment, head) in batch.zip(join_all(heads).await) {
                let head = head?;
                let chunk = ParsedChunk::parse(&head, geometry.volume, segment, 0);
                if chunk.is_some_and(|chunk| chunk.header.checkpoint.get() > self.number) {
                    let at = geometry.checkpoint_slot((self.slot + 1) % CHECKPOINT_SLOTS);
                    return Err(VolumeError::Damaged { what: Damage::NewestCheckpoint, at });
                }
            }
        }
        Ok(())
    }

    /// Loads the map that the checkpoint names, and counts what is live in each segment.
    pub(crate) async fn load_map(
        &mut self,
        disk: &dyn Storage,
        geometry: &Geometry,
    ) -> Result<(Map, Segments), VolumeError> {
        let mut map = Map::new(geometry.logical_blocks, geometry.map_pages)?;
        let mut segments = Segments::new(geometry.segments);
        let mut sum = 0_u64;
        let mut first = 0;
        while first < self.pages.places.len() {
            let place = self.pages.places[first];
            let run =
                self.pages.places[first..].iter().take(PAGES_PER_WRITE).take_while(|p| **p == place).count();
            if place != Place::Nowhere {
                let extent = Extent::new(geometry.map_page(place.area(), first as u32), run as u32);
                let bytes = read_extent(disk, extent).await?;
                for (i, block) in bytes.chunks_exact(BLOCK_BYTES).enumerate() {
                    let page = (first + i) as u32;
                    let at = extent.start.offset(i as u64);
                    let checksum = load_page(block, page, geometry, &mut map, &mut segments)
                        .map_err(|what| VolumeError::Damaged { what, at })?;
                    self.pages.checksums[page as usize] = checksum;
                    sum = sum.wrapping_add(page_sum(page, checksum));
                }
            }
            first += run;
        }
        if sum != self.pages.sum {
            return Err(VolumeError::Damaged { what: Damage::StaleMap, at: geometry.map_page(0, 0) });
        }
        Ok((map, segments))
    }
}

fn load_page(
    block: &[u8],
    page: u32,
    geometry: &Geometry,
    map: &mut Map,
    segments: &mut Segments,
) -> Result<u32, Damage> {
    let on_disk = MapPage::ref_from_bytes(block).map_err(|_| Damage::MapPage)?;
    let ours = on_disk.volume.get() == geometry.volume && on_disk.page.get() == page;
    if !ours || !checksum_matches(block, offset_of!(MapPage, checksum)) {
        return Err(Damage::MapPage);
    }
    for (i, entry) in on_disk.entries.iter().enumerate() {
        let entry = Entry { block: entry.block.get(), checksum: entry.checksum.get() };
        if !entry.is_mapped() {
            continue;
        }
        let lba = page as usize * ENTRIES_PER_PAGE + i;
        let segment = geometry.segment_of(entry.block).ok_or(Damage::MapEntry)?;
        if lba as u64 >= geometry.logical_blocks
            || u32::from(segments.live(segment)) >= geometry.segment_blocks
        {
            return Err(Damage::MapEntry);
        }
        segments.add_live(segment, 1);
        map.load(lba, entry);
    }
    Ok(on_disk.checksum.get())
}

impl Shared {
    /// Takes a checkpoint of everything appended so far. A failure poisons the volume.
    pub(crate) async fn checkpoint(&self) -> Result<(), Rejected> {
        let _alone = self.checkpointing.acquire(1).await;
        let outcome = self.checkpoint_alone().await;
        if let Err(error) = outcome {
            self.fail(error);
        }
        self.slots.notify(usize::MAX);
        outcome
    }

    async fn checkpoint_alone(&self) -> Result<(), Rejected> {
        let frozen = self.freeze();
        let log_end = frozen.next.next_sequence - 1;
        let mut next = frozen.next;
        let tickets = self.write_pages(&frozen.pages, &mut next.pages).await?;
        if !broken(&self.options, VolumeMutant::CheckpointTooEarly) {
            all_transferred(tickets).await?;
            self.watermark.until_transferred(log_end).await?;
            flush(&*self.disk).await?;
            let mut state = self.state.borrow_mut();
            state.stats.flushes += 1;
            self.settle_durable(&mut state, log_end);
        }
        let mut buffer = Buffer::new(self.geometry.checkpoint_blocks as usize * BLOCK_BYTES);
        let bytes = next.encode(&self.geometry, &mut buffer);
        let start = self.geometry.checkpoint_slot(next.slot);
        all_transferred(write_buffer(&*self.disk, start, buffer, bytes).await?).await?;
        flush(&*self.disk).await?;
        let mut state = self.state.borrow_mut();
        state.stats.flushes += 1;
        state.stats.checkpoints += 1;
        state.stats.checkpoint_blocks += (bytes / BLOCK_BYTES + frozen.pages.len()) as u64;
        let joined = &next.runway[next.runway.len() - frozen.joined..];
        state.segments.commit(joined, frozen.log_segments);
        state.checkpoint = next;
        Ok(())
    }

    /// The moment that the checkpoint stands for.
    fn freeze(&self) -> Frozen {
        let mut state = self.state.borrow_mut();
        self.seal(&mut state);
        let pages = state.map.freeze();
        let (runway, joined) = state.segments.plan_runway(state.log.segment, self.geometry.runway_limit());
        let next = Checkpoint {
            number: state.checkpoint.number + 1,
            slot: (state.checkpoint.slot + 1) % CHECKPOINT_SLOTS,
            generation: state.log.generation,
            next_sequence: state.log.next_sequence,
            log_offset: state.log.offset,
            window_blocks: self.window_blocks(),
            runway,
            pages: state.checkpoint.pages.clone(),
        };
        let log_segments = state.segments.log().len();
        Frozen { next, pages, joined, log_segments }
    }

    /// Writes the frozen pages to the places that the last checkpoint does not use.
    async fn write_pages(&self, pages: &[u32], table: &mut PageTable) -> Result<Vec<Ticket>, Rejected> {
        let mut tickets = Vec::new();
        let mut rest = pages;
        while let Some(first) = rest.first().copied() {
            let place = table.places[first as usize].other();
            let follows = |(i, page): &(usize, &u32)| {
                **page == first + *i as u32 && table.places[**page as usize].other() == place
            };
            let run = rest.iter().enumerate().take(PAGES_PER_WRITE).take_while(follows).count();
            let mut buffer = Buffer::new(run * BLOCK_BYTES);
            for (block, page) in buffer.chunks_exact_mut(BLOCK_BYTES).zip(rest) {
                let late = broken(&self.options, VolumeMutant::CheckpointNotFrozen);
                let checksum =
                    self.state.borrow_mut().map.frozen_page(*page, self.geometry.volume, block, late);
                table.moved(*page, place, checksum);
            }
            let start = self.geometry.map_page(place.area(), first);
            tickets.extend(write_buffer(&*self.disk, start, buffer, run * BLOCK_BYTES).await?);
            rest = &rest[run..];
        }
        Ok(tickets)
    }
}

/// A checkpoint at its beginning.
struct Frozen {
    next: Checkpoint,
    pages: Vec<u32>,
    /// How many of the runway's last segments join with this checkpoint.
    joined: usize,
    log_segments: usize,
}
