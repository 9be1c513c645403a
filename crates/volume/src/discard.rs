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

use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::rc::Rc;

use event_listener::Event;
use weir_runtime::Semaphore;
use weir_storage::{Command, Discard, Extent, Feature, Lba, Rejected, StorageError, submit_when_free};

use crate::blocks::Blocks;
use crate::common::Common;
use crate::log::Log;
use crate::mutants::VolumeMutant;
use crate::segments::ReclaimCheck;

/// Segments in one command at most: the log may have to wait for them.
const BATCH_SEGMENTS: u32 = 1024;
/// Segments that are looked at before others have their turn.
const SEGMENTS_A_TURN: u32 = 1 << 14;
/// Extents in one command at most.
const BATCH_EXTENTS: u32 = 64;

/// Passes discards down, and knows what was asked and how far that is.
pub(crate) struct Discarder {
    common: Rc<Common>,
    blocks: Rc<RefCell<Blocks>>,
    /// Held while a command is on its way to the disk below.
    pub on_the_way: Semaphore,
    asked: Cell<u64>,
    done: Cell<u64>,
    /// What the last pass over all segments came to: blocks discarded.
    outcome: Cell<Result<u64, Rejected>>,
    ended: Event,
}

impl Discarder {
    pub(crate) fn new(log: &Log) -> Discarder {
        Discarder {
            common: Rc::clone(&log.common),
            blocks: Rc::clone(&log.blocks),
            on_the_way: Semaphore::new(1),
            asked: Cell::new(0),
            done: Cell::new(0),
            outcome: Cell::new(Ok(0)),
            ended: Event::new(),
        }
    }

    /// Has all that is free discarded, and returns how many blocks that were.
    pub(crate) async fn trim(&self) -> Result<u64, Rejected> {
        if self.common.disk.capabilities().discard == Discard::Unsupported {
            return Err(Rejected::Unsupported(Feature::Discard));
        }
        let mine = self.asked.get() + 1;
        self.asked.set(mine);
        self.common.discard_needed.notify(1);
        loop {
            let ended = self.ended.listen();
            if self.done.get() >= mine {
                return self.outcome.get();
            }
            if let Some(error) = self.common.watermark.failure() {
                return Err(Rejected::Failed(error));
            }
            ended.await;
        }
    }

    /// The task that passes discards down. It begins with what a crash, or the end of the last opening, has left.
    pub(crate) async fn run(self: Rc<Discarder>) {
        if self.common.options.discard_below {
            self.asked.set(self.asked.get() + 1);
        }
        loop {
            let needed = self.common.discard_needed.listen();
            if self.common.watermark.failure().is_some() {
                self.ended.notify(usize::MAX);
                return;
            }
            let asked = self.asked.get();
            if asked > self.done.get() {
                self.outcome.set(self.discard_all().await);
                self.done.set(asked);
                self.ended.notify(usize::MAX);
                continue;
            }
            let emptied = self.emptied();
            if emptied.is_empty() {
                needed.await;
            } else if self.discard(emptied).await.is_err() {
                // The disk does not take them; what it holds is right all the same.
                self.blocks.borrow_mut().segments.stop_collecting();
            }
        }
    }

    async fn discard_all(&self) -> Result<u64, Rejected> {
        let (mut from, mut blocks) = (0, 0);
        while from < self.common.geometry.segments {
            let to = self.common.geometry.segments.min(from.saturating_add(SEGMENTS_A_TURN));
            let (batch, end) = self.batch((from..to).map(|s| (s, self.may_discard(s))));
            from = end.map_or(to, |last| last + 1);
            blocks += self.discard(batch).await?;
            self.common.handle.yield_now().await;
        }
        Ok(blocks)
    }

    /// Emptied segments that may be discarded, if there are enough.
    fn emptied(&self) -> Vec<Range<u32>> {
        let mut blocks = self.blocks.borrow_mut();
        let segments = &mut blocks.segments;
        let emptied: Vec<u32> = segments.emptied().iter().copied().collect();
        // Those that only wait for a flush are looked at again behind it.
        let durable = self.common.reclaimable_to();
        let waits = |segment: &&u32| segments.reclaim_check(**segment, durable) == ReclaimCheck::NeedsFlush;
        let ready = emptied.len() - emptied.iter().filter(waits).count();
        if !segments.should_check_emptied(ready) {
            return Vec::new();
        }
        drop(blocks);
        self.batch(emptied.into_iter().map(|s| (s, self.may_discard(s)))).0
    }

    /// Whether no state that a crash can leave needs the segment, nor the check for a lost checkpoint (V1).
    fn may_discard(&self, segment: u32) -> bool {
        let segments = &self.blocks.borrow().segments;
        let check = segments.reclaim_check(segment, self.common.reclaimable_to());
        let is_held = segments.is_held(segment) && !self.common.drops(VolumeMutant::DiscardsUnheld);
        !is_held && matches!(check, ReclaimCheck::Free | ReclaimCheck::Listed)
    }

    /// The first of the segments that may go, as runs, and the last one looked at if there are more than one
    /// command takes.
    fn batch(&self, segments: impl Iterator<Item = (u32, bool)>) -> (Vec<Range<u32>>, Option<u32>) {
        let extents = self.common.disk.capabilities().max_discard_extents.clamp(1, BATCH_EXTENTS) as usize;
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
                let blocks = (run.end - run.start) * self.common.geometry.segment_blocks;
                Extent::new(Lba(self.common.geometry.block(run.start, 0)), blocks)
            })
            .collect();
        let blocks = extents.iter().map(|extent| u64::from(extent.blocks)).sum();
        self.blocks.borrow_mut().segments.begin_discard(batch);
        let _exclusive = self.on_the_way.acquire(1).await;
        let outcome = match submit_when_free(&*self.common.disk, Command::Discard(&extents)).await {
            Ok(ticket) => ticket.transferred().await.map_err(Rejected::Failed),
            Err(error) => Err(error),
        };
        self.blocks.borrow_mut().segments.end_discard();
        if outcome.is_ok() {
            self.common.count(|stats| stats.discarded_blocks += blocks);
        }
        self.common.slots.notify(usize::MAX);
        outcome.map(|()| blocks)
    }

    /// The volume has stopped: waiting callers get the error.
    pub(crate) fn stop(&self) {
        self.outcome.set(Err(Rejected::Failed(StorageError::Gone)));
        self.ended.notify(usize::MAX);
    }
}
