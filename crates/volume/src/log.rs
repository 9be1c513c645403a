//! The *log*: where every write becomes a record, in the order of submission.
//!
//! A write is copied into the open chunk and has its place; no task, no allocation and no wake-up belongs
//! to it. A chunk is *sealed* when it is full, when a flush wants it, or when it grows old, and is then
//! handed to the disk below at once. Many chunks are in flight, in any completion order: what a crash
//! leaves is decided by recovery, which keeps the longest unbroken prefix. That is why a barrier costs
//! nothing here: the log *is* the order.

use std::collections::VecDeque;
use std::rc::Rc;

use tracing::warn;
use weir_runtime::{Buffer, Instant};
use weir_storage::{
    BLOCK_BYTES, Command, Data, Extent, Lba, Part, Rejected, StorageError, Tag, Ticket, Write, WriteFlags,
};

use crate::chunk::{self, ChunkStamp, OpenChunk};
use crate::layout::{ENTRIES_PER_CHUNK, ENTRIES_PER_PAGE, RecordKind};
use crate::map::{COPIES_LIMIT, Entry};
use crate::mutants::VolumeMutant;
use crate::options::Completion;
use crate::segments::{ReclaimCheck, Segments};
use crate::state::{Shared, State};
use crate::stats::LossWindowSeen;

/// On whose behalf a record is appended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Writer {
    /// The user. Leaves the last segments of the free-segment list to the cleaner.
    User,
    /// The cleaner, which gives back more than it takes.
    Cleaner,
}

/// What a record needs.
#[derive(Clone, Copy, Default)]
struct Needs {
    /// Data blocks, all in one chunk.
    data: u64,
    /// Entries, all in one header.
    entries: u64,
    /// Map pages that it changes, at most.
    map_pages: usize,
}

impl Needs {
    #[inline]
    fn data(blocks: u64) -> Needs {
        Needs { data: blocks, entries: blocks, map_pages: blocks as usize }
    }

    /// One entry an extent; the capabilities see to it that there are not more than a header holds.
    fn discards(extents: &[Extent]) -> Needs {
        let pages = |extent: &Extent| extent.blocks as usize / ENTRIES_PER_PAGE + 2;
        Needs { data: 0, entries: extents.len() as u64, map_pages: extents.iter().map(pages).sum() }
    }
}

/// A chunk that does not change any more and is not yet durable.
pub(crate) struct SealedChunk {
    buffer: Option<Rc<Buffer>>,
    place: Lba,
    first_block: u32,
    data_blocks: u16,
    pub last_sequence: u64,
    /// When the first record of a user in it was placed.
    pub user_since: Option<Instant>,
    /// Written with FUA: durable as soon as it is transferred.
    fua: bool,
    /// `None` until the disk below has accepted it.
    pub ticket: Option<Ticket>,
    pub transferred: bool,
}

impl SealedChunk {
    pub(crate) fn bytes(&self) -> u64 {
        (1 + u64::from(self.data_blocks)) * BLOCK_BYTES as u64
    }
}

/// The log's own state.
pub(crate) struct Log {
    /// The segment that is being written; `None` until the first record after opening.
    pub segment: Option<u32>,
    /// Where the next chunk starts in it.
    pub offset: u32,
    pub open: Option<OpenChunk>,
    /// Sealed chunks that are not durable yet, oldest first.
    pub sealed: VecDeque<SealedChunk>,
    /// Buffers that wait for a chunk.
    pub free: Vec<Buffer>,
    pub next_sequence: u64,
    pub generation: u64,
    /// Bytes in `sealed`: what a crash may cost, the open chunk apart (V5).
    pub volatile_bytes: u64,
    /// Tags whose persistence the order recorder still waits for.
    pub unpersisted: VecDeque<(u64, Tag)>,
}

impl Log {
    pub(crate) fn new(free: Vec<Buffer>, generation: u64, next_sequence: u64) -> Log {
        Log {
            segment: None,
            offset: 0,
            open: None,
            sealed: VecDeque::new(),
            free,
            next_sequence,
            generation,
            volatile_bytes: 0,
            unpersisted: VecDeque::new(),
        }
    }

    /// The data block at physical block `block` if it is still in memory.
    pub(crate) fn in_memory(&self, block: u32) -> Option<&[u8]> {
        if let Some(found) = self.open.as_ref().and_then(|open| open.find(block)) {
            return Some(found);
        }
        self.sealed.iter().rev().find_map(|chunk| {
            let buffer = chunk.buffer.as_ref()?;
            chunk::find(buffer, chunk.first_block, chunk.data_blocks, block)
        })
    }

    /// Bytes that a crash may cost now.
    pub(crate) fn volatile_now(&self) -> u64 {
        let open = self.open.as_ref().map_or(0, |open| u64::from(open.blocks()) * BLOCK_BYTES as u64);
        self.volatile_bytes + open
    }

    /// When the oldest record of a user that is not durable was placed.
    pub(crate) fn oldest_volatile(&self) -> Option<Instant> {
        let sealed = self.sealed.iter().find_map(|chunk| chunk.user_since);
        sealed.or(self.open.as_ref().and_then(|open| open.user_since))
    }
}

impl Shared {
    /// Appends a write as one record: the whole barrier path of the volume.
    pub(crate) fn append(&self, write: &Write<'_>) -> Result<u64, Rejected> {
        let mut state = self.state.borrow_mut();
        let blocks = write.blocks();
        self.check_space(&state, write, blocks)?;
        self.make_room(&mut state, Needs::data(blocks), Writer::User)?;
        let State { map, segments, log, stats, .. } = &mut *state;
        let open = log.open.as_mut().ok_or(Rejected::Busy)?;
        let mut left = blocks;
        for part in write.parts {
            for (i, data) in part.data.bytes().chunks_exact(BLOCK_BYTES).enumerate() {
                left -= 1;
                let lba = (part.start.0 + i as u64) as u32;
                let new = open.push_data(lba, data, left == 0);
                segments.add_live(open.segment, 1);
                self.forget(segments, map.set(lba, new), log.next_sequence);
            }
        }
        if open.user_since.is_none() {
            self.begin_window(open);
        }
        stats.user_blocks += blocks;
        Ok(self.placed(&mut state, write.tags))
    }

    /// Appends a discard as one record. Only on a full volume it may use the cleaner's reserve: there it frees
    /// more than it takes.
    pub(crate) fn append_discard(&self, extents: &[Extent]) -> Result<u64, Rejected> {
        let mut state = self.state.borrow_mut();
        let writer = if self.stuck.get() { Writer::Cleaner } else { Writer::User };
        self.make_room(&mut state, Needs::discards(extents), writer)?;
        let State { map, segments, log, .. } = &mut *state;
        let open = log.open.as_mut().ok_or(Rejected::Busy)?;
        for (i, extent) in extents.iter().enumerate() {
            let first = extent.start.0 as u32;
            open.push_bare(RecordKind::Discard, first, extent.blocks, i + 1 == extents.len());
            // An unmapped block needs no dirty map page.
            let (mut next, end) = (extent.start.0, extent.end().0);
            while let Some(lba) = map.next_mapped(next, end) {
                self.forget(segments, map.set(lba, Entry::default()), log.next_sequence);
                next = u64::from(lba) + 1;
            }
        }
        if open.user_since.is_none() {
            self.begin_window(open);
        }
        self.stuck.set(false);
        Ok(self.placed(&mut state, &[]))
    }

    /// Lengthens the free-segment list by what the reclaim check lets through: one record that names the segments
    /// (V4). While a checkpoint is being taken it waits, for the order of the free-segment list is the checkpoint's
    /// then.
    pub(crate) fn append_free_segments(&self) -> Result<(), Rejected> {
        if self.checkpointing.available() == 0 {
            return Ok(());
        }
        let mut state = self.state.borrow_mut();
        let durable = self.watermark.durable_to();
        state.unpin_empty();
        let free = self.may_join(&state, durable);
        if free.is_empty() {
            return Ok(());
        }
        let needs = Needs { entries: free.len() as u64, ..Needs::default() };
        self.make_room(&mut state, needs, Writer::Cleaner)?;
        let State { segments, log, .. } = &mut *state;
        let open = log.open.as_mut().ok_or(Rejected::Busy)?;
        for (i, segment) in free.iter().enumerate() {
            open.push_bare(RecordKind::FreeSegments, *segment, 1, i + 1 == free.len());
            segments.join(*segment);
        }
        self.placed(&mut state, &[]);
        Ok(())
    }

    /// Segments that may join the free-segment list now: as many as a checkpoint can name, with the open one, and as
    /// fit one chunk.
    fn may_join(&self, state: &State, durable: u64) -> Vec<u32> {
        let open = state.log.segment;
        let nameable = (self.geometry.free_list_limit() - 1).saturating_sub(state.segments.free_listed());
        let passes = |s: &u32| match state.segments.reclaim_check(*s, durable) {
            ReclaimCheck::Free => true,
            ReclaimCheck::NeedsFlush => self.options.rules.drops(VolumeMutant::ReuseBeforeFlush),
            ReclaimCheck::NeedsCheckpoint => {
                Some(*s) != open && self.options.rules.drops(VolumeMutant::ReuseBeforeCheckpoint)
            }
            ReclaimCheck::Live | ReclaimCheck::Listed => false,
        };
        state.segments.empty(None).filter(passes).take(nameable.min(ENTRIES_PER_CHUNK / 2)).collect()
    }

    /// Moves one live block to the head of the log, if it still is where the cleaner found it.
    pub(crate) fn append_moved(&self, lba: u32, from: Entry, data: &[u8]) -> Result<(), Rejected> {
        let mut state = self.state.borrow_mut();
        if state.map.get(lba) != from {
            return Ok(());
        }
        if self.options.rules.drops(VolumeMutant::CleanerDropsBlocks) {
            let State { map, segments, log, .. } = &mut *state;
            self.forget(segments, map.set(lba, Entry::default()), log.next_sequence);
            return Ok(());
        }
        self.make_room(&mut state, Needs::data(1), Writer::Cleaner)?;
        let State { map, segments, log, stats, .. } = &mut *state;
        let open = log.open.as_mut().ok_or(Rejected::Busy)?;
        let new = open.push_data(lba, data, true);
        segments.add_live(open.segment, 1);
        self.forget(segments, map.set(lba, new), log.next_sequence);
        stats.cleaned_blocks += 1;
        self.placed(&mut state, &[]);
        Ok(())
    }

    /// From now on a user may lose something with this chunk: the loss window runs (V5).
    #[cold]
    fn begin_window(&self, open: &mut OpenChunk) {
        open.user_since = Some(self.handle.now());
        self.flush_needed.notify(1);
    }

    /// One block is superseded.
    #[inline]
    fn forget(&self, segments: &mut Segments, old: Entry, sequence: u64) {
        if let Some(segment) = self.geometry.segment_of(old.block) {
            segments.drop_live(segment, sequence);
        }
    }

    /// A record is complete: it has its sequence number.
    #[inline]
    fn placed(&self, state: &mut State, tags: &[Tag]) -> u64 {
        let sequence = state.log.next_sequence;
        state.log.next_sequence += 1;
        if let Some(recorder) = &*self.recorder.borrow() {
            recorder.transferred(tags);
            state.log.unpersisted.extend(tags.iter().map(|tag| (sequence, *tag)));
        }
        if self.somebody_waits(state) || state.log.open.as_ref().is_some_and(OpenChunk::is_full) {
            self.seal(state);
        }
        sequence
    }

    /// Wait-on-Transfer wants a user's record on the disk: if nothing is on its way, it goes now, else with
    /// the next chunk, when the one before it has arrived. Nobody waits for what cleaning moved.
    fn somebody_waits(&self, state: &State) -> bool {
        self.options.completion == Completion::Disk
            && state.log.open.as_ref().is_some_and(|open| open.user_since.is_some())
            && state.log.sealed.iter().all(|chunk| chunk.transferred)
    }

    /// Thin provisioning: a block that was never written takes space that may not be there.
    fn check_space(&self, state: &State, write: &Write<'_>, blocks: u64) -> Result<(), Rejected> {
        let usable = self.geometry.usable_blocks();
        if state.segments.live_total() + blocks <= usable {
            return Ok(());
        }
        let lbas = write.parts.iter().flat_map(|part| part.extent().iter());
        let fresh = lbas.filter(|lba| !state.map.get(lba.0 as u32).is_mapped()).count() as u64;
        if fresh > 0 && state.segments.live_total() + fresh > usable {
            return Err(Rejected::Failed(StorageError::NoSpace));
        }
        Ok(())
    }

    /// Sees to it that the open chunk takes a record with these needs.
    #[inline]
    fn make_room(&self, state: &mut State, needs: Needs, writer: Writer) -> Result<(), Rejected> {
        if let Some(error) = self.watermark.failure() {
            return Err(Rejected::Failed(error));
        }
        // Pages are copied aside only while a checkpoint is being taken; when it is done, there are none.
        if state.map.copies() + needs.map_pages > COPIES_LIMIT && self.checkpointing.available() == 0 {
            return Err(Rejected::Busy);
        }
        if state.log.open.as_ref().is_some_and(|open| open.fits(needs.data, needs.entries)) {
            return Ok(());
        }
        self.seal(state);
        self.open_chunk(state, needs.data.max(1) as u32, writer)
    }

    /// Opens a chunk with room for `least` data blocks, in the next segment if need be.
    #[cold]
    fn open_chunk(&self, state: &mut State, least: u32, writer: Writer) -> Result<(), Rejected> {
        if self.window_is_used_up(state) {
            self.flush_needed.notify(1);
            return Err(Rejected::Busy);
        }
        if state.log.free.is_empty() {
            return Err(Rejected::Busy);
        }
        let left = self.geometry.segment_blocks - state.log.offset.min(self.geometry.segment_blocks);
        if state.log.segment.is_none() || left < 1 + least {
            state.log.segment = Some(self.next_segment(state, writer)?);
            state.log.offset = 0;
        }
        let (Some(segment), Some(buffer)) = (state.log.segment, state.log.free.pop()) else {
            return Err(Rejected::Busy);
        };
        let offset = state.log.offset;
        let place = (segment, offset, self.geometry.block(segment, offset));
        let room = self.geometry.segment_blocks - offset;
        state.log.open = Some(OpenChunk::new(buffer, place, room, state.log.next_sequence));
        Ok(())
    }

    /// Whether one more chunk would be more than a crash may cost, or the oldest one is overdue (V5).
    fn window_is_used_up(&self, state: &State) -> bool {
        let window = self.options.loss_window;
        let too_much = state.log.volatile_bytes + self.segment_bytes() > window.bytes;
        let oldest = state.log.oldest_volatile();
        let too_old = oldest.is_some_and(|since| self.handle.now().since(since) >= window.time);
        too_much && !self.options.rules.drops(VolumeMutant::NoByteBound)
            || too_old && !self.options.rules.drops(VolumeMutant::NoTimeBound)
    }

    fn next_segment(&self, state: &mut State, writer: Writer) -> Result<u32, Rejected> {
        let kept = match writer {
            Writer::User => self.cleaner_reserve(),
            Writer::Cleaner => 0,
        };
        let long = state.segments.log().len() >= self.options.checkpoint_segments;
        let free_list = state.segments.free_listed();
        if long || free_list <= self.upkeep_below(&state.segments) {
            self.upkeep_needed.notify(1);
        }
        if free_list > self.cleaner_reserve() {
            self.stuck.set(false);
        }
        if free_list <= kept {
            let full = writer == Writer::User && self.stuck.get();
            return Err(if full { Rejected::Failed(StorageError::NoSpace) } else { Rejected::Busy });
        }
        state.segments.take(self.options.rules).ok_or(Rejected::Busy)
    }

    /// Seals the open chunk and hands it to the disk below.
    #[cold]
    pub(crate) fn seal(&self, state: &mut State) {
        self.seal_with(state, false);
    }

    /// Seals the open chunk; with `fua` it is durable when it is transferred, if all before it is durable.
    pub(crate) fn seal_with(&self, state: &mut State, fua: bool) {
        let Some(open) = state.log.open.take() else { return };
        if open.is_empty() {
            state.log.free.push(open.into_buffer());
            return;
        }
        let stamp = ChunkStamp {
            volume: self.geometry.volume,
            generation: state.log.generation,
            durable: self.watermark.durable_to(),
            checkpoint: state.checkpoint.number,
        };
        let (segment, offset) = (open.segment, open.offset);
        state.segments.sealed(segment, open.last_sequence());
        state.log.offset = offset + open.blocks();
        state.stats.header_blocks += 1;
        state.stats.data_blocks += u64::from(open.data_blocks());
        let sealed = SealedChunk {
            place: Lba(self.geometry.block(segment, offset)),
            first_block: open.first_block(),
            data_blocks: open.data_blocks(),
            last_sequence: open.last_sequence(),
            user_since: open.user_since,
            fua,
            ticket: None,
            transferred: false,
            buffer: Some(Rc::new(open.seal(stamp))),
        };
        state.log.volatile_bytes += sealed.bytes();
        state.log.sealed.push_back(sealed);
        self.dispatch(state);
        if state.log.volatile_bytes >= self.options.loss_window.bytes / 4 {
            self.flush_needed.notify(1);
        }
    }

    /// Hands sealed chunks to the disk below, oldest first, until it is busy. Whether it took one.
    pub(crate) fn dispatch(&self, state: &mut State) -> bool {
        let mut taken = false;
        for chunk in state.log.sealed.iter_mut().filter(|chunk| chunk.ticket.is_none()) {
            let Some(buffer) = &chunk.buffer else { continue };
            let data = Data::Shared { buffer, offset: 0, bytes: chunk.bytes() as usize };
            let parts = [Part { start: chunk.place, data }];
            let flags = WriteFlags { fua: chunk.fua, ..WriteFlags::default() };
            match self.disk.submit(Command::Write(Write { flags, ..Write::new(&parts) })) {
                Ok(ticket) => {
                    chunk.ticket = Some(ticket);
                    taken = true;
                }
                Err(Rejected::Busy) => break,
                Err(error) => {
                    self.fail(error);
                    break;
                }
            }
        }
        self.chunk_sealed.notify(1);
        taken
    }

    /// Takes note that the oldest chunk in flight has arrived, and uses its buffer again.
    pub(crate) fn retire(&self, last_sequence: u64) {
        let mut state = self.state.borrow_mut();
        let State { log, .. } = &mut *state;
        let Some(chunk) = log.sealed.iter_mut().find(|chunk| chunk.last_sequence == last_sequence) else {
            return;
        };
        chunk.transferred = true;
        chunk.ticket = None;
        let fua = chunk.fua;
        if let Some(buffer) = chunk.buffer.take() {
            // The disk below has released its share; should it not have, a fresh buffer takes the place.
            let bytes = buffer.len();
            log.free.push(Rc::try_unwrap(buffer).unwrap_or_else(|_| self.disk.allocate(bytes)));
        }
        self.watermark.transferred(last_sequence);
        if fua {
            state.stats.flushes += 1;
            self.settle_durable(&mut state, last_sequence);
        }
        if self.somebody_waits(&state) {
            self.seal(&mut state);
        }
        self.dispatch(&mut state);
        drop(state);
        self.slots.notify(usize::MAX);
    }

    /// The largest loss window so far. It only grows until something becomes durable, so it is enough to look
    /// then, and when somebody asks.
    pub(crate) fn loss_window_seen(&self, state: &State) -> LossWindowSeen {
        let seen = state.stats.loss_window;
        let age = state.log.oldest_volatile().map(|since| self.handle.now().since(since));
        LossWindowSeen {
            time_max: seen.time_max.max(age.unwrap_or_default()),
            bytes_max: seen.bytes_max.max(state.log.volatile_now()),
        }
    }

    /// Everything up to `sequence` is on the medium.
    pub(crate) fn settle_durable(&self, state: &mut State, sequence: u64) {
        let (before, bound) = (state.stats.loss_window.time_max, self.options.loss_window.time);
        state.stats.loss_window = self.loss_window_seen(state);
        let most = state.stats.loss_window.time_max;
        if most > bound && before <= bound {
            warn!(?most, ?bound, "the disk is slow to flush: the loss window is exceeded");
        }
        while let Some(chunk) = state.log.sealed.front() {
            if chunk.last_sequence > sequence || !chunk.transferred {
                break;
            }
            state.log.volatile_bytes -= chunk.bytes();
            state.log.sealed.pop_front();
        }
        if let Some(recorder) = &*self.recorder.borrow() {
            let persisted = state.log.unpersisted.partition_point(|(placed, _)| *placed <= sequence);
            for (_, tag) in state.log.unpersisted.drain(..persisted) {
                recorder.persisted(&[tag]);
            }
        }
        self.watermark.durable(sequence);
        self.flushes.settle(sequence);
        self.segments_may_be_free(&state.segments, false);
    }
}
