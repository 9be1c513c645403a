//! Marks: a crash leaves the records up to the newest mark, and none behind it (V13).
//!
//! 1. While a volume is open with marks, its chunks say so, and recovery applies their records when it comes to a mark. What is
//!    behind the last whole mark is taken back.
//! 2. What a record supersedes is needed until a mark behind that record is durable: the reclaim check (V3) asks for that.
//! 3. A checkpoint holds everything that was placed, so it begins where no user has placed a record behind the newest
//!    mark. It waits for a mark, and users wait until it has begun.
//! 4. A snapshot is of a mark, likewise.
//! 5. A user may have to write before it can place a mark, and cleaning gains nothing before there is one. So room is kept
//!    for that, from other writes and from the cleaner: users get it between [`begin`](weir_storage::Marks::begin) and the
//!    mark. Then the cleaner may have all that is free, since it needs no user for the next mark.
//!
//! Cleaning and upkeep change nothing that a user reads, so the volume places marks by itself where nothing else was placed.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;

use event_listener::Event;
use weir_storage::{BLOCK_BYTES, Watermark};

use crate::geometry::Geometry;

/// The marks of an open volume.
pub(crate) struct MarkState {
    /// Segments on the free-segment list that users leave alone, but for those that bring a mark about.
    pub room: usize,
    /// Bytes that a user can write into a segment at least.
    segment_bytes: u64,
    /// The newest mark that is durable.
    durable: Cell<u64>,
    /// Marks behind that, in order.
    volatile: RefCell<VecDeque<u64>>,
    /// A user's record is behind the newest mark.
    is_changed: Cell<bool>,
    /// A user brings a mark about.
    is_begun: Cell<bool>,
    is_wanted: Cell<bool>,
    /// Users place none any more.
    is_given_up: Cell<bool>,
    /// A checkpoint waits for a mark.
    checkpoint_waits: Cell<bool>,
    /// A snapshot waits for one.
    snapshot_waits: Cell<bool>,
    /// Upkeep waits for one: nothing more becomes free before that.
    upkeep_waits: Cell<u32>,
    /// A mark has become wanted.
    pub wanted: Event,
    /// A mark was placed, or none will be, or the volume has failed.
    pub placed: Event,
}

impl MarkState {
    /// Of a volume that was opened with the records up to `sequence`, for users that write so many bytes before they place a
    /// mark.
    pub(crate) fn new(geometry: &Geometry, bytes: u64, sequence: u64) -> MarkState {
        let data_blocks = geometry.data_blocks_per_segment();
        // A request that does not fit what is left of a segment begins in the next one.
        let unused = (geometry.atomic_blocks() - 1).min(data_blocks / 2);
        let segment_bytes = u64::from(data_blocks - unused) * BLOCK_BYTES as u64;
        // The first one may be used in part, and so may the last one.
        let wanted = bytes.div_ceil(segment_bytes) + 2;
        // A small volume has less to spare. Its users learn how much it is.
        let most = u64::from(geometry.reserve() / 2).max(3);
        MarkState {
            room: wanted.min(most) as usize,
            segment_bytes,
            durable: Cell::new(sequence),
            volatile: RefCell::default(),
            is_changed: Cell::new(false),
            is_begun: Cell::new(false),
            is_wanted: Cell::new(false),
            is_given_up: Cell::new(false),
            checkpoint_waits: Cell::new(false),
            snapshot_waits: Cell::new(false),
            upkeep_waits: Cell::new(0),
            wanted: Event::new(),
            placed: Event::new(),
        }
    }

    /// Bytes that users may write to bring a mark about.
    pub(crate) fn room_bytes(&self) -> u64 {
        (self.room as u64).saturating_sub(2).max(1) * self.segment_bytes
    }

    /// A user has placed a record.
    pub(crate) fn note_change(&self) {
        self.is_changed.set(true);
    }

    /// Whether a user has placed a record behind the newest mark.
    pub(crate) fn is_changed(&self) -> bool {
        self.is_changed.get()
    }

    pub(crate) fn begin(&self) {
        self.is_begun.set(true);
    }

    /// Whether a user brings a mark about.
    pub(crate) fn is_begun(&self) -> bool {
        self.is_begun.get()
    }

    /// Segments that users leave alone now. Until one has placed a record the cleaner may have them, so they may be in use.
    pub(crate) fn room_kept_from_users(&self) -> usize {
        if self.is_begun.get() && self.is_changed.get() { 0 } else { self.room }
    }

    /// Users wait: a checkpoint, or a snapshot, is to be of the mark that was placed last.
    pub(crate) fn holds_users(&self) -> bool {
        (self.checkpoint_waits.get() || self.snapshot_waits.get()) && !self.is_changed.get()
    }

    pub(crate) fn is_wanted(&self) -> bool {
        self.is_wanted.get()
    }

    /// Users place no mark any more.
    pub(crate) fn give_up(&self) {
        self.is_given_up.set(true);
        self.placed.notify(usize::MAX);
    }

    pub(crate) fn is_given_up(&self) -> bool {
        self.is_given_up.get()
    }

    /// Something waits for a mark. Where users have placed nothing since the newest one, it waits for something else.
    pub(crate) fn want(&self) {
        if self.is_changed.get() && !self.is_wanted.replace(true) {
            self.wanted.notify(usize::MAX);
        }
    }

    /// A checkpoint waits for a mark, or does no longer.
    pub(crate) fn set_checkpoint_waits(&self, waits: bool) {
        self.checkpoint_waits.set(waits);
    }

    /// A snapshot waits for a mark, until this is dropped.
    pub(crate) fn note_snapshot<'a>(&'a self, slots: &'a Event) -> SnapshotWaits<'a> {
        self.snapshot_waits.set(true);
        SnapshotWaits { marks: self, slots }
    }

    /// Waits until the next mark is placed.
    pub(crate) async fn until_placed(&self, slots: &Event) {
        let placed = self.placed.listen();
        self.want();
        let _waits = self.note_upkeep_waits(slots);
        placed.await;
    }

    /// A part of upkeep waits for a mark, until this is dropped. By `slots` users who bring it about are told that they may have
    /// all that is free now: a caller that waits for `slots` itself listens after this.
    pub(crate) fn note_upkeep_waits(&self, slots: &Event) -> UpkeepWaits<'_> {
        self.upkeep_waits.set(self.upkeep_waits.get() + 1);
        slots.notify(usize::MAX);
        UpkeepWaits(self)
    }

    /// Upkeep waits for a mark, and a user is bringing it about: the user may use the last free segment, and gets ENOSPC where there
    /// is none.
    pub(crate) fn upkeep_waits_for_user(&self) -> bool {
        self.upkeep_waits.get() > 0 && self.is_begun.get() && self.is_changed.get()
    }

    /// The newest mark.
    pub(crate) fn newest(&self) -> u64 {
        self.volatile.borrow().back().copied().unwrap_or(self.durable.get())
    }

    /// A mark was placed.
    pub(crate) fn was_placed(&self, sequence: u64) {
        self.volatile.borrow_mut().push_back(sequence);
        self.is_changed.set(false);
        self.is_wanted.set(false);
        self.placed.notify(usize::MAX);
    }

    /// A user has placed the mark that it has begun to bring about.
    pub(crate) fn end(&self) {
        self.is_begun.set(false);
        self.is_wanted.set(false);
    }

    /// The newest mark that is durable, when all up to the watermark's is.
    pub(crate) fn durable_to(&self, watermark: &Watermark) -> u64 {
        let mut volatile = self.volatile.borrow_mut();
        while let Some(first) = volatile.front().copied().filter(|mark| *mark <= watermark.durable_to()) {
            self.durable.set(first);
            volatile.pop_front();
        }
        self.durable.get()
    }
}

/// A part of upkeep waits for a mark.
pub(crate) struct UpkeepWaits<'a>(&'a MarkState);

impl Drop for UpkeepWaits<'_> {
    fn drop(&mut self) {
        self.0.upkeep_waits.set(self.0.upkeep_waits.get() - 1);
    }
}

/// A snapshot waits for a mark.
pub(crate) struct SnapshotWaits<'a> {
    marks: &'a MarkState,
    slots: &'a Event,
}

impl Drop for SnapshotWaits<'_> {
    fn drop(&mut self) {
        self.marks.snapshot_waits.set(false);
        self.slots.notify(usize::MAX);
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;
    use crate::geometry::Format;

    fn marks() -> MarkState {
        let geometry = Geometry::plan(&Format::default(), 1 << 18, 7, false).unwrap();
        MarkState::new(&geometry, 64 << 20, 0)
    }

    /// A user that has found no room tries again when upkeep begins to wait for it: from then on it may have all that is free.
    #[test]
    fn users_that_bring_a_mark_about_are_told_that_upkeep_waits() {
        let (marks, slots) = (marks(), Event::new());
        marks.begin();
        marks.note_change();
        let told = slots.listen();
        let waits = marks.note_upkeep_waits(&slots);
        assert!(marks.upkeep_waits_for_user() && told.now_or_never().is_some());
        drop(waits);
        assert!(!marks.upkeep_waits_for_user());
    }

    #[test]
    fn what_users_may_write_fits_the_room_though_requests_leave_a_part_of_each_segment() {
        let marks = marks();
        // A segment of 254 blocks takes three requests of 64.
        let requests = marks.room_bytes() / (64 * BLOCK_BYTES as u64);
        assert!(requests.div_ceil(3) < marks.room as u64, "{requests} requests, {} segments", marks.room);
    }
}
