//! *Cleaning*: moving the live blocks of a segment to the head of the log, so that the segment is empty and may pass
//! the reclaim check (V3). *Upkeep* is the task that cleans, lengthens the free-segment list, and checkpoints, when
//! the free-segment list gets short or the log long.
//!
//! A moved block is an ordinary record with the content that was there already, so a crash anywhere in
//! cleaning changes nothing that a user can see.

use std::rc::Rc;

use futures_util::future::join_all;
use tracing::{debug, trace, warn};
use weir_runtime::Buffer;
use weir_storage::{BLOCK_BYTES, Extent, Lba, Rejected, read};

use crate::chunk::ParsedChunk;
use crate::layout::{RecordKind, content_checksum};
use crate::map::Entry;
use crate::mutants::VolumeMutant;
use crate::options::CleaningPolicy;
use crate::segments::Segments;
use crate::state::{Shared, State};
use crate::transfer::read_extent;

/// Rounds of upkeep that may gain nothing before writers are told that the volume is full.
const BARREN_ROUNDS: u32 = 64;

/// Segments that are read for cleaning at the same time.
pub(crate) const VICTIMS: usize = 8;

/// A segment of which less than one block in so many is live is read block by block: a disk reads some four
/// times as many blocks a second in a row as one by one.
const SPARSE: u32 = 6;

/// A block that is to be moved.
struct LiveBlock {
    lba: u32,
    entry: Entry,
    /// Where its data starts in the segment's bytes.
    at: usize,
}

/// Rounds of upkeep since it last gained anything. One round may only move free space together, and the
/// next use it up again, so what counts is the best so far; room that writers took at once was gained, too.
#[derive(Default)]
struct Barren {
    rounds: u32,
    most_room: u64,
    written: u64,
}

impl Barren {
    /// Counts a round that left `room` free blocks, after users had written `written` in all.
    fn count(&mut self, room: u64, written: u64) -> u32 {
        if written > self.written {
            *self = Barren { rounds: 0, most_room: room, written };
        } else if room > self.most_room {
            (self.rounds, self.most_room) = (0, room);
        } else {
            self.rounds += 1;
        }
        self.rounds
    }
}

impl Shared {
    /// Segments that would be free if everything live were packed together.
    fn spare(&self, segments: &Segments) -> usize {
        let packed = segments.live_total().div_ceil(u64::from(self.geometry.data_blocks_per_segment() - 1));
        (self.geometry.segments as usize).saturating_sub(packed as usize)
    }

    /// Free segments, on the free-segment list or before the reclaim check, that upkeep aims for. The more of the
    /// spare space is kept free, the less of it is in the segments to be cleaned, and the dearer cleaning is.
    fn upkeep_goal(&self, segments: &Segments) -> usize {
        let goal = (self.spare(segments) / 3).clamp(4, self.geometry.free_list_limit().max(8) / 2);
        goal.max(self.upkeep_below(segments) + 1)
    }

    /// Upkeep starts when so few segments are left on the free-segment list: early enough that writers need not wait,
    /// and where they have to in any case, since what is left is the cleaner's.
    pub(crate) fn upkeep_below(&self, segments: &Segments) -> usize {
        let below = (self.spare(segments) / 6).clamp(3, self.geometry.free_list_limit().max(12) / 4);
        below.max(self.cleaner_reserve())
    }

    /// Segments on the free-segment list that only the cleaner may take.
    pub(crate) fn cleaner_reserve(&self) -> usize {
        let reserve = self.geometry.reserve() as usize / 3;
        // The free-segment list has a limit, however large the volume is, and most of it is for writers.
        let most = self.geometry.free_list_limit() / 8;
        if self.options.rules.drops(VolumeMutant::ReserveUnbounded) {
            reserve
        } else {
            reserve.min(most).max(2)
        }
    }

    fn upkeep_is_due(&self) -> bool {
        let state = self.state.borrow();
        let long_log = state.segments.log().len() >= self.options.checkpoint_segments;
        long_log || state.segments.free_listed() <= self.upkeep_below(&state.segments)
    }

    /// The upkeep task.
    pub(crate) async fn run_upkeep(self: Rc<Shared>) {
        let mut barren = Barren::default();
        let mut was_behind = false;
        loop {
            let needed = self.upkeep_needed.listen();
            if self.watermark.failure().is_some() {
                return;
            }
            if !self.upkeep_is_due() {
                needed.await;
                continue;
            }
            // A failure has poisoned the volume; the next turn ends the task.
            let _ = self.upkeep().await;
            let rounds = barren.count(self.room(), self.written());
            let starved = self.state.borrow().segments.free_listed() <= self.cleaner_reserve();
            if starved && !was_behind {
                was_behind = true;
                warn!("cleaning falls behind: writers wait for it; this is said once");
            }
            if rounds > 0 && !starved {
                needed.await;
            } else if rounds > BARREN_ROUNDS {
                // Nothing left to gain, and writers may not take what is left: they are told so.
                if !self.stuck.replace(true) {
                    warn!("the volume is full: cleaning gains nothing more");
                }
                self.slots.notify(usize::MAX);
                needed.await;
            }
        }
    }

    /// Blocks that can be written before the free-segment list has to be lengthened.
    fn room(&self) -> u64 {
        let state = self.state.borrow();
        let segment = u64::from(self.geometry.segment_blocks);
        let open = state.log.segment.map_or(0, |_| segment.saturating_sub(u64::from(state.log.offset)));
        state.segments.free_listed() as u64 * segment + open
    }

    fn written(&self) -> u64 {
        self.state.borrow().stats.user_blocks
    }

    /// One round of upkeep.
    async fn upkeep(&self) -> Result<(), Rejected> {
        if self.state.borrow().segments.log().len() >= self.options.checkpoint_segments {
            return self.checkpoint().await;
        }
        self.clean_some().await?;
        self.reclaim().await
    }

    /// Cleans until enough segments are free, or nothing more can be gained, or the free-segment list is used up.
    /// What it writes makes the log longer, too, so it takes the checkpoints that bound recovery.
    async fn clean_some(&self) -> Result<(), Rejected> {
        loop {
            if self.state.borrow().segments.log().len() >= self.options.checkpoint_segments {
                self.checkpoint().await?;
            }
            let victims = self.next_victims();
            if victims.is_empty() {
                return Ok(());
            }
            debug!(segments = victims.len(), "cleaning");
            // Reading is what cleaning waits for, so the victims are read side by side.
            let segments = join_all(victims.iter().map(|victim| self.read_segment(*victim))).await;
            for (victim, bytes) in victims.into_iter().zip(segments) {
                let Ok(bytes) = bytes else {
                    // It cannot be read; the others can. What is live in it stays where it is.
                    self.state.borrow_mut().pinned.insert(victim);
                    continue;
                };
                match self.clean(victim, &bytes).await {
                    Err(Rejected::Busy) => return Ok(()),
                    outcome => outcome?,
                }
            }
            if self.lengthen_free_list().is_err() {
                return Ok(());
            }
        }
    }

    /// Puts emptied segments on the free-segment list, by whatever the reclaim check asks for: nothing, a flush, a
    /// checkpoint.
    async fn reclaim(&self) -> Result<(), Rejected> {
        // Somebody else's checkpoint decides what is on the free-segment list; this round begins behind it.
        drop(self.checkpointing.acquire(1).await);
        // What is just being discarded may join the free-segment list when that is done.
        drop(self.discards.on_the_way.acquire(1).await);
        if self.lengthen_free_list().is_ok() && self.long_enough(0) {
            return Ok(());
        }
        let (placed, by_flush) = {
            let state = self.state.borrow();
            let placed = state.log.next_sequence - 1;
            (placed, state.segments.free_when_durable())
        };
        if self.long_enough(by_flush) {
            self.want_durable(placed);
            self.watermark.until_durable(placed).await?;
            if self.lengthen_free_list().is_ok() {
                return Ok(());
            }
        }
        self.checkpoint().await
    }

    /// Whether upkeep could rest if so many segments joined the free-segment list.
    fn long_enough(&self, joining: usize) -> bool {
        let state = self.state.borrow();
        state.segments.free_listed() + joining > self.upkeep_below(&state.segments)
    }

    fn lengthen_free_list(&self) -> Result<(), Rejected> {
        let outcome = self.append_free_segments();
        self.slots.notify(usize::MAX);
        outcome
    }

    /// The segments to clean next, the best ones first; none when enough are free.
    fn next_victims(&self) -> Vec<u32> {
        let mut state = self.state.borrow_mut();
        state.unpin_empty();
        let State { segments, log, pinned, .. } = &mut *state;
        let open = log.segment;
        let open_is_empty = open.is_some_and(|open| segments.is_empty(open));
        let free = segments.free_listed() + segments.empty_count() - usize::from(open_is_empty);
        if free >= self.upkeep_goal(segments) || segments.free_listed() == 0 {
            return Vec::new();
        }
        let full = self.geometry.data_blocks_per_segment() as u16;
        let wanted = (self.upkeep_goal(segments) - free).min(VICTIMS);
        let may_gain = |s: u32, live: u16| Some(s) != open && live < full && !pinned.contains(&s);
        match self.options.cleaning {
            CleaningPolicy::Greedy => segments.fewest_live(wanted, may_gain),
            CleaningPolicy::CostBenefit => best_benefit(segments, wanted, full, log.next_sequence, may_gain),
        }
    }

    /// The segment's blocks in their places; of a sparse one only headers and what is live.
    async fn read_segment(&self, segment: u32) -> Result<Buffer, Rejected> {
        // Its last chunk may still be on its way to the disk.
        let (live, last) = {
            let mut state = self.state.borrow_mut();
            let last = state.segments.changed(segment);
            // Or in the open one, where nothing but cleaning may go on: no loss window runs for that, and nobody else
            // would seal it.
            if state.log.open.as_ref().is_some_and(|open| last >= open.first_sequence) {
                self.seal(&mut state);
            }
            (u32::from(state.segments.live(segment)), last)
        };
        self.watermark.until_transferred(last).await?;
        if live * SPARSE < self.geometry.segment_blocks {
            return self.read_sparse(segment).await;
        }
        let extent = Extent::new(Lba(self.geometry.block(segment, 0)), self.geometry.segment_blocks);
        read_extent(&*self.disk, extent).await
    }

    /// Reads the headers one after the other, then what they say is live, side by side.
    async fn read_sparse(&self, segment: u32) -> Result<Buffer, Rejected> {
        let mut bytes = Buffer::new(self.geometry.segment_blocks as usize * BLOCK_BYTES);
        let mut offset = 0;
        while offset < self.geometry.segment_blocks {
            let at = offset as usize * BLOCK_BYTES;
            bytes[at..at + BLOCK_BYTES].copy_from_slice(&self.read_block(segment, offset).await?);
            let Some(chunk) = ParsedChunk::parse(&bytes[at..], self.geometry.volume, segment, offset) else {
                break;
            };
            offset += chunk.blocks();
        }
        let live = self.live_blocks(segment, &bytes);
        let blocks = live.iter().map(|found| self.read_block(segment, (found.at / BLOCK_BYTES) as u32));
        for (found, block) in live.iter().zip(join_all(blocks).await) {
            bytes[found.at..found.at + BLOCK_BYTES].copy_from_slice(&block?);
        }
        Ok(bytes)
    }

    async fn read_block(&self, segment: u32, offset: u32) -> Result<Buffer, Rejected> {
        read(&*self.disk, Extent::new(Lba(self.geometry.block(segment, offset)), 1)).await
    }

    /// Moves what is live in `segment`. A block that fails its checksum stays where it is, and the segment
    /// with it.
    async fn clean(&self, segment: u32, bytes: &[u8]) -> Result<(), Rejected> {
        for found in self.live_blocks(segment, bytes) {
            let data = &bytes[found.at..found.at + BLOCK_BYTES];
            if content_checksum(data) == found.entry.checksum {
                self.append_when_free(&found, data).await?;
            }
        }
        let mut state = self.state.borrow_mut();
        state.stats.segments_cleaned += 1;
        trace!(segment, left = state.segments.live(segment), "cleaned");
        if state.segments.live(segment) > 0 {
            state.pinned.insert(segment);
        }
        Ok(())
    }

    /// The live blocks of a segment, by the entries of its chunks.
    fn live_blocks(&self, segment: u32, bytes: &[u8]) -> Vec<LiveBlock> {
        let state = self.state.borrow();
        let mut found = Vec::new();
        let mut offset = 0;
        while let Some(rest) = bytes.get(offset as usize * BLOCK_BYTES..).filter(|rest| !rest.is_empty()) {
            let Some(chunk) = ParsedChunk::parse(rest, self.geometry.volume, segment, offset) else { break };
            let data = chunk.entries().filter(|entry| entry.kind() == Some(RecordKind::Data));
            for (i, record) in data.enumerate() {
                let inside = offset + 1 + i as u32;
                let lba = record.lba.get();
                if inside >= self.geometry.segment_blocks || u64::from(lba) >= self.geometry.logical_blocks {
                    break;
                }
                let entry = state.map.get(lba);
                if u64::from(entry.block) == self.geometry.block(segment, inside) {
                    found.push(LiveBlock { lba, entry, at: inside as usize * BLOCK_BYTES });
                }
            }
            offset += chunk.blocks();
        }
        found
    }

    /// Appends a moved block, waiting for buffers and for the loss window, but not for the free-segment list: that
    /// only grows by what cleaning leads to.
    async fn append_when_free(&self, found: &LiveBlock, data: &[u8]) -> Result<(), Rejected> {
        loop {
            match self.append_moved(found.lba, found.entry, data) {
                Err(Rejected::Busy) if self.state.borrow().segments.free_listed() > 0 => {
                    self.slots.listen().await
                }
                outcome => return outcome,
            }
        }
    }
}

/// The segments that are most worth cleaning, the best first.
fn best_benefit(
    segments: &Segments,
    wanted: usize,
    full: u16,
    now: u64,
    may_gain: impl Fn(u32, u16) -> bool,
) -> Vec<u32> {
    let mut victims: Vec<u32> =
        segments.live_segments().filter(|s| may_gain(*s, segments.live(*s))).collect();
    let of = |segment| benefit(segments, segment, full, now);
    // Ties go to the lower address, so that a run replays.
    let order = |a: &u32, b: &u32| of(*b).total_cmp(&of(*a)).then(a.cmp(b));
    if victims.len() > wanted {
        victims.select_nth_unstable_by(wanted, order);
        victims.truncate(wanted);
    }
    victims.sort_unstable_by(order);
    victims
}

fn benefit(segments: &Segments, segment: u32, full: u16, now: u64) -> f64 {
    let share = f64::from(segments.live(segment)) / f64::from(full);
    let age = now.saturating_sub(segments.changed(segment)) as f64;
    (1.0 - share) * age / (1.0 + share)
}
