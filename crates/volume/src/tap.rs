//! The *tap*: a copy of each sealed chunk, in order, for a program part that ships the log elsewhere. It is bounded in bytes
//! and in time. Past a bound writers wait as for a full queue, or the tap gives its backlog up, as its owner chose.
//!
//! A chunk is copied, and its buffer goes back to the log: a tap may wait for an hour, and a buffer is as large as a segment,
//! however little is in it.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Duration;

use event_listener::{Event, EventListener};
use weir_runtime::Instant;
use weir_storage::BLOCK_BYTES;

use crate::chunk::{ChunkStamp, OpenChunk};
use crate::common::Common;
use crate::layout::{RecordEntry, RecordKind};
use crate::mutants::VolumeMutant;

/// What an entry of a record does to the logical blocks of the volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// A block is written; its content checksum.
    Write(u32),
    /// So many blocks from the first one on read zeros.
    Discard(u32),
    /// The block reads what this one read before the shares of the request.
    Share(u32),
    /// Nothing that a user sees: a record of the volume's own.
    Nothing,
}

/// An entry of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogEntry {
    /// The first logical block.
    pub lba: u32,
    /// What happens to it.
    pub change: Change,
    /// The last entry of its request.
    pub last: bool,
}

impl LogEntry {
    /// An entry of a record as users of the volume see it: what happens to snapshots and clones, behind its last block, is nothing.
    fn from_record(entry: &RecordEntry, logical_blocks: u64) -> LogEntry {
        let word = entry.word.get();
        let change = match entry.kind() {
            _ if u64::from(entry.lba.get()) >= logical_blocks => Change::Nothing,
            Some(RecordKind::Data) => Change::Write(word),
            Some(RecordKind::Discard) => Change::Discard(word),
            Some(RecordKind::Share) => Change::Share(word),
            Some(RecordKind::FreeSegments | RecordKind::Mark) | None => Change::Nothing,
        };
        LogEntry { lba: entry.lba.get(), change, last: entry.is_last() }
    }
}

/// A sealed chunk of the log.
#[derive(Clone, Debug)]
pub struct LogChunk {
    /// Sequence number of its first request.
    pub first_sequence: u64,
    /// Sequence number of its last request.
    pub last_sequence: u64,
    /// The generation of the log.
    pub generation: u64,
    /// When it was sealed.
    pub sealed_at: Instant,
    /// The entries of its requests, in order.
    pub entries: Vec<LogEntry>,
    /// A block for each entry that writes one, in order.
    pub data: Vec<u8>,
}

impl LogChunk {
    /// Bytes that it counts for: at least a block.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        (self.data.len() + BLOCK_BYTES) as u64
    }
}

/// How far what is taken from a tap may lie behind the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TapBounds {
    /// Bytes of chunks that are sealed and not released. At least four segments.
    pub bytes: u64,
    /// How long ago the oldest of them was sealed.
    pub time: Duration,
    /// Past a bound the backlog is given up, and no writer waits.
    pub never_wait: bool,
}

/// What is sealed, and not shipped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Backlog {
    /// Bytes of the chunks that are held here.
    pub bytes: u64,
    /// Bytes that no chunk here holds and that the next catch-up brings: of chunks that were given up, or shipped with a catch-up
    /// that has not ended; and [what came before the tap](LogTap::note_missing).
    pub missing_bytes: u64,
    /// When the oldest of all these was sealed.
    pub oldest: Option<Instant>,
    /// Chunks are missing: the backlog was given up.
    pub has_gap: bool,
}

/// The chunks of a tap.
pub(crate) struct TapQueue {
    bounds: TapBounds,
    /// Of the volume.
    logical_blocks: u64,
    waiting: RefCell<VecDeque<LogChunk>>,
    /// Last sequence, bytes and age of chunks that were taken and are not released.
    taken: RefCell<VecDeque<(u64, u64, Instant)>>,
    bytes: Cell<u64>,
    has_gap: Cell<bool>,
    /// Bytes that only a catch-up brings, and when the oldest of them was sealed.
    missing_bytes: Cell<u64>,
    missing_since: Cell<Option<Instant>>,
    /// No more chunks are taken, and no writer waits: what is sealed is counted.
    is_closed: Cell<bool>,
    /// The bound in time is off: what came before the log is on its way.
    is_catching_up: Cell<bool>,
    /// Parts of the program for which no writer waits.
    releases: Cell<u32>,
    changed: Event,
}

impl TapQueue {
    fn new(bounds: TapBounds, logical_blocks: u64) -> TapQueue {
        TapQueue {
            bounds,
            logical_blocks,
            waiting: RefCell::default(),
            taken: RefCell::default(),
            bytes: Cell::new(0),
            has_gap: Cell::new(false),
            missing_bytes: Cell::new(0),
            missing_since: Cell::new(None),
            is_closed: Cell::new(false),
            is_catching_up: Cell::new(false),
            releases: Cell::new(0),
            changed: Event::new(),
        }
    }

    fn oldest(&self) -> Option<Instant> {
        let taken = self.taken.borrow().front().map(|(_, _, sealed_at)| *sealed_at);
        taken.or_else(|| self.waiting.borrow().front().map(|chunk| chunk.sealed_at))
    }

    /// Whether past a bound the backlog is given up.
    fn never_waits(&self) -> bool {
        self.bounds.never_wait || self.releases.get() > 0 || self.is_closed.get()
    }

    /// Whether one more chunk of so many bytes would be past the bound in bytes.
    pub(crate) fn is_full(&self, bytes: u64) -> bool {
        !self.never_waits() && self.bytes.get() + bytes > self.bounds.bytes
    }

    /// Whether the oldest chunk is past the bound in time.
    pub(crate) fn is_overdue(&self, now: Instant) -> bool {
        let is_bounded = !self.never_waits() && !self.is_catching_up.get();
        is_bounded && self.oldest().is_some_and(|oldest| now.since(oldest) >= self.bounds.time)
    }

    /// No chunk is taken any more, and no writer waits for one.
    pub(crate) fn is_closed(&self) -> bool {
        self.is_closed.get()
    }

    /// So many bytes, sealed then or later, are brought by the next catch-up only.
    fn note_missing(&self, bytes: u64, oldest: Instant) {
        self.missing_bytes.set(self.missing_bytes.get() + bytes);
        self.missing_since.set(Some(self.missing_since.get().unwrap_or(oldest)));
    }

    /// Takes a copy of a chunk that is being sealed.
    pub(crate) fn push(&self, open: &OpenChunk, stamp: ChunkStamp, now: Instant) {
        if self.has_gap.get() {
            return self.note_missing((open.data().len() + BLOCK_BYTES) as u64, now);
        }
        let (mut data, mut blocks) = (Vec::new(), open.data().chunks_exact(BLOCK_BYTES));
        let mut entry_with_data = |record: &RecordEntry| {
            let block = if record.kind() == Some(RecordKind::Data) { blocks.next() } else { None };
            let entry = LogEntry::from_record(record, self.logical_blocks);
            if let (Some(block), Change::Write(_)) = (block, entry.change) {
                data.extend_from_slice(block);
            }
            entry
        };
        let entries = open.entries().map(|record| entry_with_data(&record)).collect();
        let chunk = LogChunk {
            first_sequence: open.first_sequence,
            last_sequence: open.last_sequence(),
            generation: stamp.generation,
            sealed_at: now,
            entries,
            data,
        };
        let is_past = self.never_waits() && self.bytes.get() + chunk.bytes() > self.bounds.bytes;
        // What the volume takes over from a snapshot, in a rollback, is in no chunk.
        let is_from_snapshot = |entry: &LogEntry| match entry.change {
            Change::Share(source) => u64::from(source) >= self.logical_blocks,
            _ => false,
        };
        let is_lost = is_past || chunk.entries.iter().any(is_from_snapshot);
        self.bytes.set(self.bytes.get() + chunk.bytes());
        self.waiting.borrow_mut().push_back(chunk);
        if is_lost {
            self.give_up();
        }
        self.changed.notify(usize::MAX);
    }

    /// Gives the backlog up: from here on chunks are counted only.
    fn give_up(&self) {
        self.has_gap.set(true);
        self.forget_chunks();
    }

    /// Forgets all chunks, taken or not. They are missing then.
    fn forget_chunks(&self) {
        if let Some(oldest) = self.oldest() {
            self.note_missing(self.bytes.get(), oldest);
        }
        self.waiting.borrow_mut().clear();
        self.taken.borrow_mut().clear();
        self.bytes.set(0);
    }

    /// More may be durable.
    pub(crate) fn notify(&self) {
        self.changed.notify(usize::MAX);
    }
}

/// A tap on the log of an open volume, see [`Volume::tap`](crate::Volume::tap).
pub struct LogTap {
    common: Rc<Common>,
    queue: Rc<TapQueue>,
}

impl LogTap {
    /// A tap on a log from here on; the volume has one at most, the newest.
    pub(crate) fn new(common: &Rc<Common>, bounds: TapBounds) -> LogTap {
        let bytes = bounds.bytes.max(4 * common.segment_bytes());
        let queue = Rc::new(TapQueue::new(TapBounds { bytes, ..bounds }, common.geometry.logical_blocks));
        common.tap.replace(Some(Rc::clone(&queue)));
        LogTap { common: Rc::clone(common), queue }
    }

    /// Takes the oldest chunk, if it is durable. It counts until it is released.
    #[must_use]
    pub fn take_durable(&self) -> Option<LogChunk> {
        let volatile_too = self.common.drops(VolumeMutant::TapsVolatile);
        let durable = if volatile_too { u64::MAX } else { self.common.watermark.durable_to() };
        let mut waiting = self.queue.waiting.borrow_mut();
        if waiting.front()?.last_sequence > durable {
            return None;
        }
        let chunk = waiting.pop_front()?;
        self.queue.taken.borrow_mut().push_back((chunk.last_sequence, chunk.bytes(), chunk.sealed_at));
        Some(chunk)
    }

    /// Chunks up to this sequence number are where they are shipped to: they do not count any more, or, with a catch-up, when it
    /// has ended.
    pub fn release(&self, sequence: u64) {
        let mut taken = self.queue.taken.borrow_mut();
        while let Some((last, bytes, sealed_at)) = taken.front().copied()
            && last <= sequence
        {
            taken.pop_front();
            if self.queue.is_catching_up.get() {
                self.queue.note_missing(bytes, sealed_at);
            }
            self.queue.bytes.set(self.queue.bytes.get().saturating_sub(bytes));
        }
        drop(taken);
        self.common.slots.notify(usize::MAX);
    }

    /// Forgets everything, and begins anew with the next chunk that is sealed. Until [`end_catch_up`](Self::end_catch_up)
    /// the bound in time is off.
    pub fn begin_catch_up(&self) {
        self.queue.forget_chunks();
        self.queue.has_gap.set(false);
        self.queue.is_catching_up.set(true);
        self.common.slots.notify(usize::MAX);
    }

    /// What came before the log is shipped, and all that was taken since. Where the backlog was given up meanwhile, all counts
    /// until the next catch-up has ended.
    pub fn end_catch_up(&self) {
        self.queue.is_catching_up.set(false);
        if !self.queue.has_gap.get() {
            self.queue.missing_bytes.set(0);
            self.queue.missing_since.set(None);
        }
    }

    /// So many bytes, that were sealed before the tap was there, are to be brought by a catch-up. They count as sealed now.
    pub fn note_missing(&self, bytes: u64) {
        self.queue.note_missing(bytes, self.common.handle.now());
    }

    /// What is sealed and not shipped.
    #[must_use]
    pub fn backlog(&self) -> Backlog {
        let TapQueue { bytes, missing_bytes, missing_since, has_gap, .. } = &*self.queue;
        Backlog {
            bytes: bytes.get(),
            missing_bytes: missing_bytes.get(),
            oldest: missing_since.get().or_else(|| self.queue.oldest()),
            has_gap: has_gap.get(),
        }
    }

    /// Notified when a chunk was sealed, or more is durable.
    #[must_use]
    pub fn listen(&self) -> EventListener {
        self.queue.changed.listen()
    }

    /// No writer waits, and past a bound the backlog is given up, until [`hold_writers`](Self::hold_writers) is called as often.
    pub fn release_writers(&self) {
        self.queue.releases.set(self.queue.releases.get() + 1);
        self.common.slots.notify(usize::MAX);
    }

    /// Writers wait again, as the bounds say.
    pub fn hold_writers(&self) {
        self.queue.releases.set(self.queue.releases.get().saturating_sub(1));
    }

    /// Takes no more chunks, and no writer waits for it: what is sealed is counted.
    pub fn close(&self) {
        self.queue.is_closed.set(true);
        self.queue.give_up();
        self.common.slots.notify(usize::MAX);
    }
}

impl Drop for LogTap {
    fn drop(&mut self) {
        let mut tap = self.common.tap.borrow_mut();
        if tap.as_ref().is_some_and(|queue| Rc::ptr_eq(queue, &self.queue)) {
            *tap = None;
        }
        self.common.slots.notify(usize::MAX);
    }
}
