//! Passing discards down: segments that hold nothing any more are discarded on the disk below, where it can, so that a
//! sparse file or a flash drive gets their space back. In the background if [`VolumeOptions::discard_below`] says so,
//! and once, for all that is free, by [`Volume::trim`].
//!
//! V3 holds here, too: a crash must not need what is discarded. So a segment is discarded when it might as well be
//! written: when the reclaim check lets it through, or on the free-segment list. And V1: the log of the checkpoint
//! before the newest stays, as it tells of the newest, should that be damaged. Until the disk below has answered it
//! is not written, nor does it join the free-segment list: a disk may carry out a discard and a write in any order.
//!
//! [`VolumeOptions::discard_below`]: crate::VolumeOptions::discard_below
//! [`Volume::trim`]: crate::Volume::trim

use std::cell::Cell;
use std::ops::Range;
use std::rc::Rc;

use event_listener::Event;
use weir_runtime::Semaphore;
use weir_storage::{Command, Discard, Extent, Feature, Lba, Rejected, StorageError, submit_when_free};

use crate::mutants::VolumeMutant;
use crate::segments::{ReclaimCheck, Segments};
use crate::state::Shared;

/// Segments in one command at most: the log may have to wait for them.
const BATCH_SEGMENTS: u32 = 1024;
/// Segments that are looked at before others have their turn.
const SEGMENTS_A_TURN: u32 = 1 << 14;
/// Extents in one command at most.
const BATCH_EXTENTS: u32 = 64;
/// The background waits for so many emptied segments, or for an eighth of a small volume's.
const BACKGROUND_SEGMENTS: usize = 16;

/// What is asked of the task that passes discards down, and how far it is.
pub(crate) struct Discards {
    /// Held while a command is on its way to the disk below.
    pub on_the_way: Semaphore,
    pub needed: Event,
    asked: Cell<u64>,
    done: Cell<u64>,
    /// Emptied segments when the background looked at them last.
    looked_at: Cell<usize>,
    /// What the last pass over all segments came to: blocks discarded.
    outcome: Cell<Result<u64, Rejected>>,
    ended: Event,
}

impl Default for Discards {
    fn default() -> Discards {
        Discards {
            on_the_way: Semaphore::new(1),
            needed: Event::new(),
            asked: Cell::new(0),
            done: Cell::new(0),
            looked_at: Cell::new(0),
            outcome: Cell::new(Ok(0)),
            ended: Event::new(),
        }
    }
}

impl Shared {
    /// Has all that is free discarded, and returns how many blocks that were.
    pub(crate) async fn trim(&self) -> Result<u64, Rejected> {
        if self.disk.capabilities().discard == Discard::Unsupported {
            return Err(Rejected::Unsupported(Feature::Discard));
        }
        let mine = self.discards.asked.get() + 1;
        self.discards.asked.set(mine);
        self.discards.needed.notify(1);
        loop {
            let ended = self.discards.ended.listen();
            if self.discards.done.get() >= mine {
                return self.discards.outcome.get();
            }
            if let Some(error) = self.watermark.failure() {
                return Err(Rejected::Failed(error));
            }
            ended.await;
        }
    }

    /// The task that passes discards down. It begins with what a crash, or the end of the last opening, has left.
    pub(crate) async fn run_discarder(self: Rc<Shared>) {
        if self.options.discard_below {
            self.discards.asked.set(self.discards.asked.get() + 1);
        }
        loop {
            let needed = self.discards.needed.listen();
            if self.watermark.failure().is_some() {
                self.discards.ended.notify(usize::MAX);
                return;
            }
            let asked = self.discards.asked.get();
            if asked > self.discards.done.get() {
                self.discards.outcome.set(self.discard_all().await);
                self.discards.done.set(asked);
                self.discards.ended.notify(usize::MAX);
                continue;
            }
            let emptied = self.emptied();
            if emptied.is_empty() {
                needed.await;
            } else if self.discard(emptied).await.is_err() {
                // The disk does not take them; what it holds is right all the same.
                self.state.borrow_mut().segments.stop_collecting();
            }
        }
    }

    async fn discard_all(&self) -> Result<u64, Rejected> {
        let (mut from, mut blocks) = (0, 0);
        while from < self.geometry.segments {
            let to = self.geometry.segments.min(from.saturating_add(SEGMENTS_A_TURN));
            let (batch, end) = self.batch((from..to).map(|s| (s, self.may_discard(s))));
            from = end.map_or(to, |last| last + 1);
            blocks += self.discard(batch).await?;
            self.handle.yield_now().await;
        }
        Ok(blocks)
    }

    /// Emptied segments that may be discarded, if there are enough.
    fn emptied(&self) -> Vec<Range<u32>> {
        let emptied: Vec<u32> = self.state.borrow().segments.emptied().iter().copied().collect();
        // Those that only wait for a flush are looked at again behind it.
        let durable = self.watermark.durable_to();
        let waits = |segment: &&u32| {
            self.state.borrow().segments.reclaim_check(**segment, durable) == ReclaimCheck::NeedsFlush
        };
        let waiting = emptied.iter().filter(waits).count();
        self.discards.looked_at.set(emptied.len() - waiting);
        if emptied.len() < self.enough_emptied() {
            return Vec::new();
        }
        self.batch(emptied.into_iter().map(|s| (s, self.may_discard(s)))).0
    }

    /// Whether no state that a crash can leave needs the segment, nor the check for a lost checkpoint (V1).
    fn may_discard(&self, segment: u32) -> bool {
        let state = self.state.borrow();
        if state.segments.is_held(segment) && !self.options.rules.drops(VolumeMutant::DiscardsUnheld) {
            return false;
        }
        match state.segments.reclaim_check(segment, self.watermark.durable_to()) {
            ReclaimCheck::Free | ReclaimCheck::Listed => true,
            ReclaimCheck::NeedsFlush | ReclaimCheck::NeedsCheckpoint => {
                state.log.segment != Some(segment) && self.options.rules.drops(VolumeMutant::DiscardTooEarly)
            }
            ReclaimCheck::Live => false,
        }
    }

    /// The first of the segments that may go, as runs, and the last one looked at if there are more than one
    /// command takes.
    fn batch(&self, segments: impl Iterator<Item = (u32, bool)>) -> (Vec<Range<u32>>, Option<u32>) {
        let extents = self.disk.capabilities().max_discard_extents.clamp(1, BATCH_EXTENTS) as usize;
        let mut runs: Vec<Range<u32>> = Vec::new();
        let mut total = 0;
        for (segment, may) in segments {
            if !may {
                continue;
            }
            let full = runs.len() == extents;
            match runs.last_mut() {
                Some(run) if run.end == segment => run.end += 1,
                _ if full => return (runs, Some(segment - 1)),
                _ => runs.push(Range { start: segment, end: segment + 1 }),
            }
            total += 1;
            if total == BATCH_SEGMENTS {
                return (runs, Some(segment));
            }
        }
        (runs, None)
    }

    /// Discards segments, none of which is written meanwhile. Returns the blocks.
    async fn discard(&self, batch: Vec<Range<u32>>) -> Result<u64, Rejected> {
        if batch.is_empty() {
            return Ok(0);
        }
        let extents: Vec<Extent> = batch
            .iter()
            .map(|run| {
                let blocks = (run.end - run.start) * self.geometry.segment_blocks;
                Extent::new(Lba(self.geometry.block(run.start, 0)), blocks)
            })
            .collect();
        let blocks = extents.iter().map(|extent| u64::from(extent.blocks)).sum();
        self.state.borrow_mut().segments.begin_discard(batch);
        let _alone = self.discards.on_the_way.acquire(1).await;
        let outcome = match submit_when_free(&*self.disk, Command::Discard(&extents)).await {
            Ok(ticket) => ticket.transferred().await.map_err(Rejected::Failed),
            Err(error) => Err(error),
        };
        let mut state = self.state.borrow_mut();
        state.segments.end_discard();
        if outcome.is_ok() {
            state.stats.discarded_blocks += blocks;
        }
        drop(state);
        self.slots.notify(usize::MAX);
        outcome.map(|()| blocks)
    }

    /// Everything that a crash may need is on the disk, so far, perhaps with a new checkpoint: some segments may be free
    /// now. The background looks at all that were emptied with a checkpoint, and between when some more were.
    pub(crate) fn segments_may_be_free(&self, segments: &Segments, checkpoint: bool) {
        let more = segments.emptied().len() >= self.discards.looked_at.get() + self.enough_emptied();
        if self.options.discard_below && (checkpoint || more) {
            self.discards.needed.notify(1);
        }
    }

    /// So many emptied segments are worth a command.
    fn enough_emptied(&self) -> usize {
        (self.geometry.segments as usize / 8).clamp(1, BACKGROUND_SEGMENTS)
    }

    /// The volume has stopped: waiting callers get the error.
    pub(crate) fn stop_discards(&self) {
        self.discards.outcome.set(Err(Rejected::Failed(StorageError::Gone)));
        self.discards.ended.notify(usize::MAX);
    }
}
