//! The *log*: where every write becomes a record, in the order of submission.
//!
//! A write is copied into the open chunk and has its place; no task, no allocation and no wake-up belongs
//! to it. A chunk is *sealed* when it is full, when a flush wants it, or when it grows old, and is then
//! handed to the disk below at once. Many chunks are in flight, in any completion order: what a crash
//! leaves is decided by recovery, which keeps the longest unbroken prefix. That is why a barrier costs
//! nothing here: the log *is* the order.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Duration;

use tracing::warn;
use weir_storage::{BLOCK_BYTES, Extent, Feature, Lba, Recorder, Rejected, StorageError, Tag, Write};

use crate::blocks::Blocks;
use crate::chunk::{ChunkStamp, OpenChunk};
use crate::common::Common;
use crate::layout::{ENTRIES_PER_CHUNK, ENTRIES_PER_PAGE, RecordKind};
use crate::map::{COPIES_LIMIT, Entry};
use crate::map_page::{page_of, pages_of};
use crate::marks::MarkState;
use crate::mutants::VolumeMutant;
use crate::names::Pairs;
use crate::options::Completion;
use crate::pager::Pager;
use crate::reserve::{Reserve, Writer};
use crate::sealed::Sealed;
use crate::segments::ReclaimCheck;
use crate::stats::LossWindowSeen;

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

    /// One entry a pair, and the map pages of both its blocks.
    fn shares(pairs: usize) -> Needs {
        Needs { data: 0, entries: pairs as u64, map_pages: 2 * pairs }
    }

    /// A block that is copied, or none, and names that move along.
    fn moved(data: usize, names: usize) -> Needs {
        Needs { data: data as u64, entries: (data + names) as u64, map_pages: 1 + data + names }
    }
}

/// A live block that cleaning moves.
pub(crate) struct Moving {
    /// The logical block that its chunk names; a shared block may have other names.
    pub written_as: u32,
    /// Where it was, and what it is.
    pub from: Entry,
    /// Where an earlier record has copied it to, and as which block.
    pub copied: Option<(u32, Entry)>,
}

/// Where the log goes on.
#[derive(Clone, Copy)]
pub(crate) struct Head {
    /// The segment that is being written; `None` until the first record after opening.
    pub segment: Option<u32>,
    /// Where the next chunk starts in it.
    pub offset: u32,
    pub next_sequence: u64,
    pub generation: u64,
}

/// The log of an open volume.
pub(crate) struct Log {
    pub common: Rc<Common>,
    pub blocks: Rc<RefCell<Blocks>>,
    pub pager: Rc<Pager>,
    reserve: Reserve,
    state: RefCell<LogState>,
    pub sealed: RefCell<Sealed>,
    /// Upkeep can gain nothing more, and the free-segment list is down to the cleaner's reserve.
    stuck: Cell<bool>,
    opened_at: u64,
}

/// What changes with every record.
struct LogState {
    head: Head,
    open: Option<OpenChunk>,
    /// Number of the newest durable checkpoint.
    checkpoint: u64,
    recorder: Option<Rc<Recorder>>,
    /// Tags whose persistence the order recorder still waits for.
    unpersisted: VecDeque<(u64, Tag)>,
    /// The largest loss window when something became durable.
    seen: LossWindowSeen,
}

impl Log {
    /// A log that goes on behind what recovery has found, in a new generation.
    pub(crate) fn new(
        common: Rc<Common>,
        blocks: Blocks,
        (next_sequence, generation): (u64, u64),
        checkpoint: u64,
    ) -> Log {
        let bytes = common.segment_bytes() as usize;
        let buffers = (0..common.options.buffers).map(|_| common.disk.allocate(bytes)).collect();
        let state = LogState {
            head: Head { segment: None, offset: 0, next_sequence, generation },
            open: None,
            checkpoint,
            recorder: None,
            unpersisted: VecDeque::new(),
            seen: LossWindowSeen::default(),
        };
        let blocks = Rc::new(RefCell::new(blocks));
        Log {
            pager: Pager::new(&common, &blocks),
            reserve: Reserve::of(&common),
            blocks,
            state: RefCell::new(state),
            sealed: RefCell::new(Sealed::new(buffers)),
            stuck: Cell::new(false),
            opened_at: next_sequence - 1,
            common,
        }
    }

    pub(crate) fn recorder(&self) -> Option<Rc<Recorder>> {
        self.state.borrow().recorder.clone()
    }

    pub(crate) fn set_recorder(&self, recorder: Rc<Recorder>) {
        self.state.borrow_mut().recorder = Some(recorder);
    }

    pub(crate) fn head(&self) -> Head {
        self.state.borrow().head
    }

    /// Sequence number of the newest record that recovery has found.
    pub(crate) fn opened_at(&self) -> u64 {
        self.opened_at
    }

    /// Sequence number of the newest record.
    pub(crate) fn placed_to(&self) -> u64 {
        self.state.borrow().head.next_sequence - 1
    }

    /// Copies the data block at physical block `block` if it is still in memory; whether it is.
    pub(crate) fn copy_from_memory(&self, block: u32, to: &mut [u8]) -> bool {
        let (state, sealed) = (self.state.borrow(), self.sealed.borrow());
        let open = state.open.as_ref().and_then(|open| open.find(block));
        open.or_else(|| sealed.find(block)).map(|data| to.copy_from_slice(data)).is_some()
    }

    /// Upkeep can gain nothing more; whether that was known.
    pub(crate) fn set_stuck(&self) -> bool {
        self.stuck.replace(true)
    }

    /// A newer checkpoint is durable.
    pub(crate) fn set_checkpoint(&self, number: u64) {
        self.state.borrow_mut().checkpoint = number;
    }

    /// Appends a write, or the writes of a packed command in turn, as one record: the whole barrier path of the volume. Of
    /// no writes, it is the number of the newest record.
    pub(crate) fn append(&self, writes: &[Write<'_>]) -> Result<u64, Rejected> {
        let written = writes.iter().map(Write::blocks).sum();
        if written == 0 {
            return Ok(self.placed_to());
        }
        let parts = || writes.iter().flat_map(|write| write.parts);
        self.pager.prepare(written as usize, true, || parts().flat_map(|part| pages_of(part.extent())))?;
        let mut blocks = self.blocks.borrow_mut();
        let mut state = self.state.borrow_mut();
        if !blocks.have_space_for(writes, written) {
            return Err(Rejected::Failed(StorageError::NoSpace));
        }
        self.make_room(&mut blocks, &mut state, Needs::data(written), Writer::User)?;
        let LogState { open, head, .. } = &mut *state;
        let open = open.as_mut().ok_or(Rejected::Busy)?;
        let mut left = written;
        for part in writes.iter().flat_map(|write| write.parts) {
            for (i, data) in part.data.bytes().chunks_exact(BLOCK_BYTES).enumerate() {
                left -= 1;
                let lba = (part.start.0 + i as u64) as u32;
                let new = open.push_data(lba, data, left == 0);
                blocks.set(lba, new, head.next_sequence);
            }
        }
        self.note_user(open);
        self.common.count(|stats| stats.user_blocks += written);
        Ok(self.placed(&mut blocks, &mut state, writes))
    }

    /// Appends a discard as one record; of no blocks, it is the number of the newest record. Only on a full volume it may use the cleaner's reserve: there it frees
    /// more than it takes.
    pub(crate) fn append_discard(&self, extents: &[Extent]) -> Result<u64, Rejected> {
        if extents.is_empty() {
            return Ok(self.placed_to());
        }
        let needs = Needs::discards(extents);
        self.pager.prepare(needs.map_pages, false, || extents.iter().flat_map(|extent| pages_of(*extent)))?;
        let mut blocks = self.blocks.borrow_mut();
        let mut state = self.state.borrow_mut();
        let writer = if self.stuck.get() { Writer::Cleaner } else { Writer::User };
        self.make_room(&mut blocks, &mut state, needs, writer)?;
        let LogState { open, head, .. } = &mut *state;
        let open = open.as_mut().ok_or(Rejected::Busy)?;
        for (i, extent) in extents.iter().enumerate() {
            let first = extent.start.0 as u32;
            open.push_bare(RecordKind::Discard, first, extent.blocks, i + 1 == extents.len());
            blocks.discard(extent.start.0, extent.end().0, head.next_sequence);
        }
        self.note_user(open);
        self.stuck.set(false);
        Ok(self.placed(&mut blocks, &mut state, &[]))
    }

    /// Appends a share as one record (V7), and returns its sequence number. Of no pairs, it is the number of the newest
    /// record.
    pub(crate) fn append_share(&self, pairs: &Pairs) -> Result<u64, Rejected> {
        self.pager.prepare(2 * pairs.len(), true, || {
            pairs.iter().flat_map(|(to, from)| [page_of(*to), page_of(*from)])
        })?;
        if !self.blocks.borrow().have_space_to_share(pairs) {
            return Err(Rejected::Failed(StorageError::NoSpace));
        }
        if pairs.is_empty() {
            return Ok(self.placed_to());
        }
        let mut blocks = self.blocks.borrow_mut();
        let mut state = self.state.borrow_mut();
        self.make_room(&mut blocks, &mut state, Needs::shares(pairs.len()), Writer::User)?;
        let LogState { open, head, .. } = &mut *state;
        let open = open.as_mut().ok_or(Rejected::Busy)?;
        open.push_shares(pairs);
        blocks.share(pairs, head.next_sequence);
        self.note_user(open);
        Ok(self.placed(&mut blocks, &mut state, &[]))
    }

    /// Lengthens the free-segment list by what the reclaim check lets through: one record that names the segments
    /// (V4). While a checkpoint is being taken it waits, for the order of the free-segment list is the checkpoint's
    /// then.
    pub(crate) fn append_free_segments(&self) -> Result<(), Rejected> {
        if self.common.checkpointing.available() == 0 {
            return Ok(());
        }
        let mut blocks = self.blocks.borrow_mut();
        let mut state = self.state.borrow_mut();
        let free = self.may_join(&blocks);
        if free.is_empty() {
            return Ok(());
        }
        let needs = Needs { entries: free.len() as u64, ..Needs::default() };
        self.make_room(&mut blocks, &mut state, needs, Writer::Upkeep)?;
        let open = state.open.as_mut().ok_or(Rejected::Busy)?;
        for (i, segment) in free.iter().enumerate() {
            open.push_bare(RecordKind::FreeSegments, *segment, 1, i + 1 == free.len());
            blocks.segments.join(*segment);
        }
        self.placed(&mut blocks, &mut state, &[]);
        Ok(())
    }

    /// Places a mark behind everything that was placed, unless the newest record is one (V13): its sequence number. It is not
    /// for volumes without marks.
    pub(crate) fn append_mark(&self) -> Result<u64, Rejected> {
        let marks = self.common.marks.as_ref().ok_or(Rejected::Unsupported(Feature::Marks))?;
        let mut blocks = self.blocks.borrow_mut();
        let mut state = self.state.borrow_mut();
        if marks.newest() == state.head.next_sequence - 1 {
            return Ok(marks.newest());
        }
        let needs = Needs { entries: 1, ..Needs::default() };
        self.make_room(&mut blocks, &mut state, needs, Writer::Upkeep)?;
        let open = state.open.as_mut().ok_or(Rejected::Busy)?;
        open.push_bare(RecordKind::Mark, 0, 0, true);
        let sequence = self.placed(&mut blocks, &mut state, &[]);
        marks.was_placed(sequence);
        self.common.slots.notify(usize::MAX);
        Ok(sequence)
    }

    /// Segments that may join the free-segment list now: as many as a checkpoint can name, with the open one, and as
    /// fit one chunk.
    fn may_join(&self, blocks: &Blocks) -> Vec<u32> {
        let (segments, durable) = (&blocks.segments, self.common.reclaimable_to());
        let nameable = (self.common.geometry.free_list_limit() - 1).saturating_sub(segments.free_listed());
        let is_free = |s: &u32| segments.reclaim_check(*s, durable) == ReclaimCheck::Free;
        segments.empty(None).filter(is_free).take(nameable.min(ENTRIES_PER_CHUNK / 2)).collect()
    }

    /// The pages of the map that [`append_moved`](Log::append_moved) looks at and changes.
    pub(crate) fn pages_to_move(blocks: &Blocks, moving: &Moving) -> Vec<u32> {
        let names = blocks.names().of(moving.from.block).take(ENTRIES_PER_CHUNK + 1);
        let copied = moving.copied.map(|(name, _)| name);
        names.chain([moving.written_as]).chain(copied).map(page_of).collect()
    }

    /// Moves a block to the head of the log, if it is still live where it was, with as many of its names as
    /// one record takes (V7): its data as the first, shares of that for the others. Whether all of them have moved; if
    /// not, the next record shares what this one has copied. The map's pages of all that it looks up are in memory.
    pub(crate) fn append_moved(&self, moving: &mut Moving, data: &[u8]) -> Result<bool, Rejected> {
        let mut blocks = self.blocks.borrow_mut();
        let mut state = self.state.borrow_mut();
        let Some(first) = blocks.first_name(moving.from, moving.written_as) else { return Ok(true) };
        let copied = moving.copied.filter(|(name, entry)| blocks.entry(*name) == *entry);
        let mut names = blocks.other_names(moving.from.block);
        let source = copied.map_or(first, |(name, _)| name);
        if copied.is_some() {
            names.push(first);
        }
        let most = ENTRIES_PER_CHUNK - usize::from(copied.is_none());
        let all = names.len() <= most;
        names.truncate(most);
        let needs = Needs::moved(usize::from(copied.is_none()), names.len());
        self.make_room(&mut blocks, &mut state, needs, Writer::Cleaner)?;
        let LogState { open, head, .. } = &mut *state;
        let open = open.as_mut().ok_or(Rejected::Busy)?;
        if copied.is_none() {
            let new = open.push_data(first, data, names.is_empty());
            blocks.set(first, new, head.next_sequence);
            moving.copied = Some((first, new));
            self.common.count(|stats| stats.cleaned_blocks += 1);
        }
        if !names.is_empty() {
            let pairs = names.iter().map(|name| (*name, source)).collect();
            open.push_shares(&pairs);
            blocks.share(&pairs, head.next_sequence);
        }
        self.placed(&mut blocks, &mut state, &[]);
        Ok(all)
    }

    /// A user's record is in the open chunk.
    #[inline]
    fn note_user(&self, open: &mut OpenChunk) {
        if open.user_since.is_none() {
            self.begin_window(open);
        }
        self.common.note_change();
    }

    /// From now on a user may lose something with this chunk: the loss window runs (V5).
    #[cold]
    fn begin_window(&self, open: &mut OpenChunk) {
        open.user_since = Some(self.common.handle.now());
        self.common.flush_needed.notify(1);
    }

    /// A record is complete: it has its sequence number. `writes` are those in it.
    #[inline]
    fn placed(&self, blocks: &mut Blocks, state: &mut LogState, writes: &[Write<'_>]) -> u64 {
        let sequence = state.head.next_sequence;
        state.head.next_sequence += 1;
        if let Some(recorder) = &state.recorder {
            for write in writes {
                recorder.transferred(write.tags);
                state.unpersisted.extend(write.tags.iter().map(|tag| (sequence, *tag)));
            }
        }
        if self.somebody_waits(state) || state.open.as_ref().is_some_and(OpenChunk::is_full) {
            self.seal_open(blocks, state, false);
        }
        sequence
    }

    /// Wait-on-Transfer wants a user's record on the disk: if nothing is on its way, it goes now, else with
    /// the next chunk, when the one before it has arrived. No caller waits for what cleaning moved.
    fn somebody_waits(&self, state: &LogState) -> bool {
        self.common.options.completion == Completion::Disk
            && state.open.as_ref().is_some_and(|open| open.user_since.is_some())
            && self.sealed.borrow().all_arrived()
    }

    /// Sees to it that the open chunk takes a record with these needs.
    #[inline]
    fn make_room(
        &self,
        blocks: &mut Blocks,
        state: &mut LogState,
        needs: Needs,
        writer: Writer,
    ) -> Result<(), Rejected> {
        if let Some(error) = self.common.watermark.failure() {
            return Err(Rejected::Failed(error));
        }
        // Pages are copied aside only while a checkpoint is being taken; when it is done, there are none.
        if blocks.map.copies() + needs.map_pages > COPIES_LIMIT && self.common.checkpointing.available() == 0
        {
            return Err(Rejected::Busy);
        }
        let holds = |marks: &MarkState| marks.holds_users();
        if writer == Writer::User && self.common.marks.as_ref().is_some_and(holds) {
            return Err(Rejected::Busy);
        }
        // What only frees or shares blocks takes an entry, no block; but with marks it asks for one that has room (V13).
        let takes_room = needs.data > 0 || self.common.marks.is_some();
        if writer == Writer::User && takes_room && self.is_for_cleaner(blocks) {
            return Err(Rejected::Busy);
        }
        if state.open.as_ref().is_some_and(|open| open.fits(needs.data, needs.entries)) {
            return Ok(());
        }
        self.seal_open(blocks, state, false);
        self.open_chunk(blocks, state, needs.data.max(1) as u32, writer)
    }

    /// Whether what is free is the cleaner's, down to the open segment: it has begun to use its reserve. Writers that took what each
    /// cleaned segment gains would keep it at the last one, where it can clean but one at a time.
    fn is_for_cleaner(&self, blocks: &Blocks) -> bool {
        let kept = self.reserve.kept_from(Writer::User, self.common.marks.as_ref());
        let is_used = blocks.segments.free_listed() < kept && !self.stuck.get();
        if is_used {
            self.common.upkeep_needed.notify(1);
        }
        is_used
    }

    /// Opens a chunk with room for `least` data blocks, in the next segment if need be.
    #[cold]
    fn open_chunk(
        &self,
        blocks: &mut Blocks,
        state: &mut LogState,
        least: u32,
        writer: Writer,
    ) -> Result<(), Rejected> {
        if self.window_is_used_up(state) {
            self.common.flush_needed.notify(1);
            return Err(Rejected::Busy);
        }
        let mut sealed = self.sealed.borrow_mut();
        if sealed.free.is_empty() {
            return Err(Rejected::Busy);
        }
        let head = &mut state.head;
        let in_segment = self.common.geometry.segment_blocks;
        if head.segment.is_none() || in_segment - head.offset.min(in_segment) < 1 + least {
            head.segment = Some(self.next_segment(blocks, writer)?);
            head.offset = 0;
        }
        let (Some(segment), Some(buffer)) = (head.segment, sealed.free.pop()) else {
            return Err(Rejected::Busy);
        };
        let place = (segment, head.offset, self.common.geometry.block(segment, head.offset));
        state.open = Some(OpenChunk::new(buffer, place, in_segment - head.offset, head.next_sequence));
        Ok(())
    }

    /// Whether one more chunk would be more than a crash may cost, or the oldest one is overdue (V5), or a tap has no room
    /// for it.
    fn window_is_used_up(&self, state: &LogState) -> bool {
        let window = self.common.options.loss_window;
        let (tap, now) = (self.common.tap.borrow(), self.common.handle.now());
        let is_full = tap.as_ref().is_some_and(|tap| tap.is_full(self.common.segment_bytes()));
        let is_overdue = tap.as_ref().is_some_and(|tap| tap.is_overdue(now));
        if is_full && !self.common.drops(VolumeMutant::TapUnbounded)
            || is_overdue && !self.common.drops(VolumeMutant::TapNeverOverdue)
        {
            return true;
        }
        let too_much = self.sealed.borrow().bytes() + self.common.segment_bytes() > window.bytes;
        let too_old = self.oldest_age(state).is_some_and(|age| age >= window.time);
        too_much && !self.common.drops(VolumeMutant::NoByteBound)
            || too_old && !self.common.drops(VolumeMutant::NoTimeBound)
    }

    fn next_segment(&self, blocks: &mut Blocks, writer: Writer) -> Result<u32, Rejected> {
        let segments = &mut blocks.segments;
        let marks = self.common.marks.as_ref();
        let kept = self.reserve.kept_from(writer, marks);
        let long = segments.log().len() >= self.common.options.checkpoint_segments;
        let free_list = segments.free_listed();
        if long || free_list <= self.reserve.upkeep_below(segments) {
            self.common.upkeep_needed.notify(1);
        }
        if free_list > self.reserve.of_cleaner() {
            self.stuck.set(false);
        }
        if free_list <= kept {
            if let Some(marks) = marks {
                marks.want();
            }
            return Err(Reserve::refusal(writer, marks, self.stuck.get()));
        }
        segments.take(self.common.options.rules).ok_or(Rejected::Busy)
    }

    /// Seals the open chunk and hands it to the disk below.
    pub(crate) fn seal(&self) {
        self.seal_open(&mut self.blocks.borrow_mut(), &mut self.state.borrow_mut(), false);
    }

    /// Seals the open chunk if a record is in it. Where nothing but cleaning goes on, no loss window runs for it, and
    /// no other task would seal it.
    pub(crate) fn seal_record(&self, sequence: u64) {
        if self.state.borrow().open.as_ref().is_some_and(|open| sequence >= open.first_sequence) {
            self.seal();
        }
    }

    /// Seals the open chunk for a flush. A lone one with nothing volatile before it needs no flush of its own, if the disk
    /// below has FUA, which does both.
    pub(crate) fn seal_to_flush(&self) {
        let alone = self.sealed.borrow().last().is_none() && self.common.disk.capabilities().fua;
        self.seal_open(&mut self.blocks.borrow_mut(), &mut self.state.borrow_mut(), alone);
    }

    #[cold]
    fn seal_open(&self, blocks: &mut Blocks, state: &mut LogState, fua: bool) {
        let Some(open) = state.open.take() else { return };
        let mut sealed = self.sealed.borrow_mut();
        if open.is_empty() {
            return sealed.free.push(open.into_buffer());
        }
        let stamp = ChunkStamp {
            volume: self.common.geometry.volume,
            generation: state.head.generation,
            durable: self.common.watermark.durable_to(),
            checkpoint: state.checkpoint,
            marked: self.common.marks.is_some(),
        };
        if let Some(tap) = &*self.common.tap.borrow() {
            tap.push(&open, stamp, self.common.handle.now());
        }
        let (segment, offset) = (open.segment, open.offset);
        blocks.segments.sealed(segment, open.last_sequence());
        state.head.offset = offset + open.blocks();
        self.common.count(|stats| {
            stats.header_blocks += 1;
            stats.data_blocks += u64::from(open.data_blocks());
        });
        sealed.push(open, Lba(self.common.geometry.block(segment, offset)), stamp, fua);
        sealed.dispatch(&self.common);
        if sealed.bytes() >= self.common.options.loss_window.bytes / 4 {
            self.common.flush_needed.notify(1);
        }
    }

    /// Takes note that the oldest chunk in flight has arrived, and uses its buffer again.
    pub(crate) fn retire(&self, last_sequence: u64) {
        let mut blocks = self.blocks.borrow_mut();
        let mut state = self.state.borrow_mut();
        let arrived = self.sealed.borrow_mut().arrived(last_sequence, &*self.common.disk);
        let Some(is_durable) = arrived else { return };
        self.common.watermark.transferred(last_sequence);
        if is_durable {
            self.settle(&blocks, &mut state, last_sequence);
        }
        if self.somebody_waits(&state) {
            self.seal_open(&mut blocks, &mut state, false);
        }
        self.sealed.borrow_mut().dispatch(&self.common);
        self.common.slots.notify(usize::MAX);
    }

    /// A flush of the disk has ended: everything up to `sequence` is on the medium.
    pub(crate) fn flushed(&self, sequence: u64) {
        self.settle(&self.blocks.borrow(), &mut self.state.borrow_mut(), sequence);
    }

    /// How long ago the oldest record of a user that is not durable was placed.
    pub(crate) fn volatile_for(&self) -> Option<Duration> {
        self.oldest_age(&self.state.borrow())
    }

    fn oldest_age(&self, state: &LogState) -> Option<Duration> {
        let open = state.open.as_ref().and_then(|open| open.user_since);
        let oldest = self.sealed.borrow().user_since().or(open);
        oldest.map(|since| self.common.handle.now().since(since))
    }

    /// The largest loss window so far. It only grows until something becomes durable, so it is enough to look
    /// then, and when a caller asks.
    pub(crate) fn loss_window_seen(&self) -> LossWindowSeen {
        self.seen(&self.state.borrow())
    }

    fn seen(&self, state: &LogState) -> LossWindowSeen {
        let open = state.open.as_ref().map_or(0, |open| u64::from(open.blocks()) * BLOCK_BYTES as u64);
        LossWindowSeen {
            time_max: state.seen.time_max.max(self.oldest_age(state).unwrap_or_default()),
            bytes_max: state.seen.bytes_max.max(self.sealed.borrow().bytes() + open),
        }
    }

    /// Everything up to `sequence` is on the medium, by a flush or a FUA write.
    fn settle(&self, blocks: &Blocks, state: &mut LogState, sequence: u64) {
        self.common.count(|stats| stats.flushes += 1);
        let (before, bound) = (state.seen.time_max, self.common.options.loss_window.time);
        state.seen = self.seen(state);
        let most = state.seen.time_max;
        if most > bound && before <= bound {
            warn!(
                name: "loss_window_exceeded",
                seconds = most.as_secs_f64(), bound_seconds = bound.as_secs_f64(),
                "a flush took too long: the loss window was exceeded"
            );
        }
        self.sealed.borrow_mut().settle(sequence);
        if let Some(recorder) = &state.recorder {
            let persisted = state.unpersisted.partition_point(|(placed, _)| *placed <= sequence);
            for (_, tag) in state.unpersisted.drain(..persisted) {
                recorder.persisted(&[tag]);
            }
        }
        self.common.watermark.durable(sequence);
        self.common.flushes.settle(sequence);
        if let Some(tap) = &*self.common.tap.borrow() {
            tap.notify();
        }
        // Everything that a crash may need is on the disk, so far: some segments may be free now.
        if self.common.options.discard_below && blocks.segments.more_emptied() {
            self.common.discard_needed.notify(1);
        }
    }
}
