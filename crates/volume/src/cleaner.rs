//! *Cleaning*: moving the live blocks of a segment to the head of the log, so that the segment is empty and may pass
//! the reclaim check (V3). *Upkeep* is the task that cleans, lengthens the free-segment list, and checkpoints, when
//! the free-segment list gets short or the log long.
//!
//! A moved block is an ordinary record with the content that was there already, so a crash anywhere in
//! cleaning changes nothing that a user can see.

use std::cell::RefCell;
use std::rc::Rc;

use futures_util::future::join_all;
use tracing::{debug, trace, warn};
use weir_runtime::Buffer;
use weir_storage::{BLOCK_BYTES, Extent, Lba, Rejected, read};

use crate::blocks::Blocks;
use crate::checkpointer::Checkpointer;
use crate::chunk::ParsedChunk;
use crate::common::Common;
use crate::discard::Discarder;
use crate::flush::Flusher;
use crate::geometry::Geometry;
use crate::layout::{RecordKind, content_checksum};
use crate::log::{Head, Log, Moving};
use crate::map::Entry;
use crate::options::CleaningPolicy;
use crate::pager::WhenFull;
use crate::reserve::{Reserve, Writer};
use crate::segments::Segments;
use crate::transfer::read_extent;

/// Rounds of upkeep without gain before writers get the error that the volume is full.
const BARREN_ROUNDS: u32 = 64;

/// Segments that are read for cleaning at the same time. A flush that begins meanwhile waits for them, as the disk does not know what
/// is urgent. On a disk of 1 GB/s, four are read 6 % slower than eight.
pub(crate) const VICTIMS: usize = 4;

/// A segment of which less than one block in so many is live is read block by block: a disk reads some four
/// times as many blocks a second in a row as one by one.
const SPARSE: u32 = 6;

/// Records whose blocks are looked up together, so that the map's pages that are not in memory are read side by side.
const LOOKED_UP_AT_ONCE: usize = 64;

/// A segment that is to be cleaned.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Victim {
    segment: u32,
    /// [`Segments::changed`] when it was chosen: until it is empty, that stays.
    changed: u64,
}

/// A block that is to be moved.
struct LiveBlock {
    /// What its chunk says; a shared block may have other names.
    written_as: u32,
    entry: Entry,
    /// Where its data starts in the segment's bytes.
    at: usize,
}

/// Rounds of upkeep since it last gained anything. One round may only move free space together, and the
/// next use it up again, so what counts is the best so far; room that writers took at once was gained, too, and what was
/// discarded can be gained anew.
#[derive(Default)]
struct Barren {
    rounds: u32,
    most_room: u64,
    written: u64,
    live: u64,
}

impl Barren {
    /// Counts a round that left `room` free blocks and `live` live ones, after users had written `written` in all.
    fn count(&mut self, room: u64, written: u64, live: u64) -> u32 {
        if written > self.written || live < self.live {
            *self = Barren { rounds: 0, most_room: room, written, live };
        } else if room > self.most_room {
            (self.rounds, self.most_room) = (0, room);
        } else {
            self.rounds += 1;
        }
        self.rounds
    }
}

/// Upkeep: it keeps segments free, and the log short.
pub(crate) struct Cleaner {
    common: Rc<Common>,
    blocks: Rc<RefCell<Blocks>>,
    log: Rc<Log>,
    flusher: Rc<Flusher>,
    checkpointer: Rc<Checkpointer>,
    discarder: Rc<Discarder>,
    reserve: Reserve,
    /// A block whose move has ended between two records, as nothing was free, and its segment: so its other names follow
    /// the copy that there is.
    unfinished: RefCell<Option<(Victim, Moving)>>,
}

impl Cleaner {
    pub(crate) fn new(
        log: Rc<Log>,
        flusher: Rc<Flusher>,
        checkpointer: Rc<Checkpointer>,
        discarder: Rc<Discarder>,
    ) -> Cleaner {
        let (common, blocks) = (Rc::clone(&log.common), Rc::clone(&log.blocks));
        let reserve = Reserve::of(&common);
        let unfinished = RefCell::default();
        Cleaner { common, blocks, log, flusher, checkpointer, discarder, reserve, unfinished }
    }

    /// Recovery would have to read as much log as it is to read at most.
    fn log_is_long(&self) -> bool {
        self.blocks.borrow().segments.log().len() >= self.common.options.checkpoint_segments
    }

    /// A checkpoint bounds what recovery reads, and lets pages of the map be evicted.
    fn checkpoint_is_due(&self) -> bool {
        self.log_is_long() || self.blocks.borrow().map.is_crowded()
    }

    /// So many pages of the map have changed that what is moved next would exceed the limit too far.
    fn must_checkpoint(&self) -> bool {
        let map = &mut self.blocks.borrow_mut().map;
        let most = VICTIMS * self.common.geometry.segment_blocks as usize;
        map.exceeds_by(most) && !map.make_room(0, &[]) && map.exceeds_by(most)
    }

    fn upkeep_is_due(&self) -> bool {
        self.checkpoint_is_due() || !self.long_enough(0)
    }

    /// The upkeep task.
    pub(crate) async fn run(self: Rc<Cleaner>) {
        let mut barren = Barren::default();
        let mut was_behind = false;
        loop {
            let needed = self.common.upkeep_needed.listen();
            if self.common.watermark.failure().is_some() {
                return;
            }
            if !self.upkeep_is_due() {
                needed.await;
                continue;
            }
            let permit = self.common.upkeep.acquire(1).await;
            // A failure has poisoned the volume; the next turn ends the task.
            let _ = self.upkeep().await;
            drop(permit);
            let live = self.blocks.borrow().segments.live_total();
            let rounds = barren.count(self.room(), self.common.stats().user_blocks, live);
            let starved = self.blocks.borrow().segments.free_listed() <= self.reserve.of_cleaner();
            if starved && !was_behind {
                was_behind = true;
                warn!(
                    name: "cleaning_behind",
                    "cleaning is slower than the writers, which now wait for it; this is reported once"
                );
            }
            if rounds > 0 && !starved {
                needed.await;
            } else if rounds > BARREN_ROUNDS {
                // Cleaning frees no more space, and the rest is reserved: writers get an error.
                if !self.log.set_stuck() {
                    warn!(name: "volume_full", "the volume is full: cleaning frees no more space");
                }
                self.common.slots.notify(usize::MAX);
                needed.await;
            }
        }
    }

    /// Blocks that can be written before the free-segment list has to be lengthened.
    fn room(&self) -> u64 {
        let segment = u64::from(self.common.geometry.segment_blocks);
        let Head { segment: open, offset, .. } = self.log.head();
        let open = open.map_or(0, |_| segment.saturating_sub(u64::from(offset)));
        self.blocks.borrow().segments.free_listed() as u64 * segment + open
    }

    /// One round of upkeep.
    async fn upkeep(&self) -> Result<(), Rejected> {
        if self.log_is_long() || self.checkpoint_is_due() && self.long_enough(0) {
            return self.checkpointer.take().await;
        }
        self.clean_some().await?;
        self.reclaim().await
    }

    /// Cleans until enough segments are free, or nothing more can be gained, or the free-segment list is used up.
    /// What it writes makes the log longer, too, so it takes the checkpoints that bound recovery.
    async fn clean_some(&self) -> Result<(), Rejected> {
        loop {
            if self.checkpoint_is_due() {
                self.checkpointer.take().await?;
            }
            self.let_flushes_pass().await?;
            let victims = self.next_victims();
            if victims.is_empty() || self.common.closing.get() {
                return Ok(());
            }
            debug!(name: "cleaning_begun", segments = victims.len(), "cleaning");
            // Reading is what cleaning waits for, so the victims are read side by side.
            let segments = join_all(victims.iter().map(|victim| self.read_segment(*victim))).await;
            for (victim, bytes) in victims.into_iter().zip(segments) {
                let Ok(bytes) = bytes else {
                    // It cannot be read; the others can. What is live in it stays where it is.
                    self.blocks.borrow_mut().segments.pin(victim.segment, victim.changed);
                    continue;
                };
                match self.clean(victim, &bytes).await {
                    Err(Rejected::Busy) => return Ok(()),
                    Err(_) if self.common.watermark.failure().is_none() => {
                        // A page of the map cannot be read.
                        self.blocks.borrow_mut().segments.pin(victim.segment, victim.changed);
                    }
                    outcome => outcome?,
                }
            }
            if self.lengthen_free_list().is_err() {
                return Ok(());
            }
        }
    }

    /// Waits until all is durable that callers wait for now, unless writers wait for cleaning. What callers ask for later does not
    /// hold cleaning up: it goes on after two flushes at most.
    async fn let_flushes_pass(&self) -> Result<(), Rejected> {
        let kept = self.reserve.kept_from(Writer::User, self.common.marks.as_ref());
        let is_starved = self.blocks.borrow().segments.free_listed() <= kept;
        match self.common.flushes.last_wanted().filter(|_| !is_starved) {
            Some(wanted) => Ok(self.common.watermark.until_durable(wanted).await?),
            None => Ok(()),
        }
    }

    /// Puts emptied segments on the free-segment list, by whatever the reclaim check asks for: nothing, a flush, a
    /// checkpoint.
    async fn reclaim(&self) -> Result<(), Rejected> {
        // A checkpoint of another task decides what is on the free-segment list; this round begins behind it.
        drop(self.common.checkpointing.acquire(1).await);
        // What is just being discarded may join the free-segment list when that is done.
        drop(self.discarder.on_the_way.acquire(1).await);
        if self.lengthen_free_list().is_ok() && self.long_enough(0) {
            return Ok(());
        }
        let placed = self.log.placed_to();
        let (by_flush, empty) = {
            let segments = &self.blocks.borrow().segments;
            (segments.free_when_durable(), segments.empty_count())
        };
        // A checkpoint writes all of the map that has changed. It is worth that where a flush frees less than half as much.
        if self.long_enough(by_flush) || (by_flush > 0 && 2 * by_flush >= empty) {
            let placed = self.checkpointer.cover_by_mark(placed).await?;
            self.flusher.want_durable(placed);
            self.common.watermark.until_durable(placed).await?;
            if self.lengthen_free_list().is_ok() {
                return Ok(());
            }
        }
        self.checkpointer.take().await
    }

    /// Whether upkeep could rest if so many segments joined the free-segment list.
    fn long_enough(&self, joining: usize) -> bool {
        let segments = &self.blocks.borrow().segments;
        segments.free_listed() + joining > self.reserve.upkeep_below(segments)
    }

    fn lengthen_free_list(&self) -> Result<(), Rejected> {
        let outcome = self.log.append_free_segments();
        self.common.slots.notify(usize::MAX);
        outcome
    }

    /// The segments to clean next, the best ones first; none when enough are free, or when what is free is needed for the record
    /// that puts emptied ones on the free-segment list: without that, only a checkpoint could.
    fn next_victims(&self) -> Vec<Victim> {
        let segments = &mut self.blocks.borrow_mut().segments;
        let Head { segment: open, next_sequence, .. } = self.log.head();
        let open_is_empty = open.is_some_and(|open| segments.is_empty(open));
        let listed = segments.free_listed();
        let free = listed + segments.empty_count() - usize::from(open_is_empty);
        let lengthens = listed == 1 && segments.free_when_durable() > 0;
        if free >= self.reserve.upkeep_goal(segments) || listed == 0 || lengthens {
            return Vec::new();
        }
        let full = self.common.geometry.data_blocks_per_segment() as u16;
        // What is live in one takes no more than a segment, unless its blocks have many names.
        let most = VICTIMS.min(listed - 1).max(1);
        let wanted = (self.reserve.upkeep_goal(segments) - free).min(most);
        let may_gain = |s: u32, live: u16| Some(s) != open && live < full;
        let chosen = match self.common.options.cleaning {
            CleaningPolicy::Greedy => segments.fewest_live(wanted, may_gain),
            CleaningPolicy::CostBenefit => best_benefit(segments, wanted, full, next_sequence, may_gain),
        };
        let victim = |segment| Victim { segment, changed: segments.changed(segment) };
        chosen.into_iter().map(victim).collect()
    }

    /// The segment's blocks in their places; of a sparse one only headers and what is live.
    async fn read_segment(&self, victim: Victim) -> Result<Buffer, Rejected> {
        let Victim { segment, changed } = victim;
        let live = u32::from(self.blocks.borrow().segments.live(segment));
        // Its last chunk may still be on its way to the disk.
        self.log.seal_record(changed);
        self.common.watermark.until_transferred(changed).await?;
        if live * SPARSE < self.common.geometry.segment_blocks {
            return self.read_sparse(segment).await;
        }
        let extent =
            Extent::new(Lba(self.common.geometry.block(segment, 0)), self.common.geometry.segment_blocks);
        read_extent(&*self.common.disk, extent).await
    }

    /// Reads the headers one after the other, then what they say is live, side by side.
    async fn read_sparse(&self, segment: u32) -> Result<Buffer, Rejected> {
        let mut bytes = Buffer::new(self.common.geometry.segment_blocks as usize * BLOCK_BYTES);
        let mut offset = 0;
        while offset < self.common.geometry.segment_blocks {
            let at = offset as usize * BLOCK_BYTES;
            bytes[at..at + BLOCK_BYTES].copy_from_slice(&self.read_block(segment, offset).await?);
            let Some(chunk) = ParsedChunk::parse(&bytes[at..], self.common.geometry.volume, segment, offset)
            else {
                break;
            };
            offset += chunk.blocks();
        }
        let live = self.live_blocks(segment, &bytes).await?;
        let blocks = live.iter().map(|found| self.read_block(segment, (found.at / BLOCK_BYTES) as u32));
        for (found, block) in live.iter().zip(join_all(blocks).await) {
            bytes[found.at..found.at + BLOCK_BYTES].copy_from_slice(&block?);
        }
        Ok(bytes)
    }

    async fn read_block(&self, segment: u32, offset: u32) -> Result<Buffer, Rejected> {
        read(&*self.common.disk, Extent::new(Lba(self.common.geometry.block(segment, offset)), 1)).await
    }

    /// Moves what is live in a segment. A block that fails its checksum stays where it is, and the segment
    /// with it.
    async fn clean(&self, victim: Victim, bytes: &[u8]) -> Result<(), Rejected> {
        let Victim { segment, changed } = victim;
        for found in self.live_blocks(segment, bytes).await? {
            let data = &bytes[found.at..found.at + BLOCK_BYTES];
            if content_checksum(data) == found.entry.checksum {
                self.append_when_free(victim, &found, data).await?;
            }
        }
        self.common.count(|stats| stats.segments_cleaned += 1);
        let segments = &mut self.blocks.borrow_mut().segments;
        trace!(name: "segment_cleaned", segment, left = segments.live(segment), "cleaned");
        segments.pin(segment, changed);
        Ok(())
    }

    /// The live blocks of a segment, by the entries of its chunks.
    async fn live_blocks(&self, segment: u32, bytes: &[u8]) -> Result<Vec<LiveBlock>, Rejected> {
        let mut found = Vec::new();
        for records in self.data_records(segment, bytes).chunks(LOOKED_UP_AT_ONCE) {
            let at = |inside: u32| self.common.geometry.block(segment, inside) as u32;
            let pages = |blocks: &Blocks| {
                records.iter().flat_map(|(lba, inside)| blocks.pages_of_live(at(*inside), *lba)).collect()
            };
            self.log.pager.load(WhenFull::Exceed, pages).await?;
            let blocks = self.blocks.borrow();
            found.extend(records.iter().filter_map(|(lba, inside)| {
                let entry = blocks.live_at(at(*inside), *lba)?;
                Some(LiveBlock { written_as: *lba, entry, at: *inside as usize * BLOCK_BYTES })
            }));
        }
        Ok(found)
    }

    /// What the chunks of a segment say of its data: the logical block that was written, and where in the segment.
    fn data_records(&self, segment: u32, bytes: &[u8]) -> Vec<(u32, u32)> {
        let Geometry { volume, segment_blocks, .. } = self.common.geometry;
        let addressable = self.common.geometry.addressable_blocks();
        let mut records = Vec::new();
        let mut offset = 0;
        while let Some(rest) = bytes.get(offset as usize * BLOCK_BYTES..).filter(|rest| !rest.is_empty()) {
            let Some(chunk) = ParsedChunk::parse(rest, volume, segment, offset) else {
                break;
            };
            let data = chunk.entries().filter(|entry| entry.kind() == Some(RecordKind::Data));
            let inside =
                |(lba, inside): &(u32, u32)| *inside < segment_blocks && u64::from(*lba) < addressable;
            records.extend(data.map(|record| record.lba.get()).zip(offset + 1..).take_while(inside));
            offset += chunk.blocks();
        }
        records
    }

    /// Appends a moved block, waiting for buffers and for the loss window, but not for the free-segment list: that
    /// only grows by what cleaning leads to.
    async fn append_when_free(&self, victim: Victim, found: &LiveBlock, data: &[u8]) -> Result<(), Rejected> {
        let is_this = |(of, moving): &mut (Victim, Moving)| *of == victim && moving.from == found.entry;
        let unfinished = self.unfinished.borrow_mut().take_if(is_this);
        let begun = Moving { written_as: found.written_as, from: found.entry, copied: None };
        let mut moving = unfinished.map_or(begun, |(_, moving)| moving);
        loop {
            // Each checkpoint ends a chunk, and cleaning is to write full ones. But its names may be many, each in a page of
            // its own.
            if self.must_checkpoint() {
                self.checkpointer.take().await?;
            }
            let pages = |blocks: &Blocks| Log::pages_to_move(blocks, &moving);
            self.log.pager.load(WhenFull::Exceed, pages).await?;
            match self.log.append_moved(&mut moving, data) {
                Err(Rejected::Busy) if self.blocks.borrow().segments.free_listed() > 0 => {
                    let marks = self.common.marks.as_ref().filter(|marks| marks.is_changed());
                    let _waits = marks.map(|marks| marks.note_upkeep_waits(&self.common.slots));
                    self.common.slots.listen().await
                }
                Err(Rejected::Busy) if moving.copied.is_some() => {
                    self.unfinished.replace(Some((victim, moving)));
                    return Err(Rejected::Busy);
                }
                Ok(false) => {}
                outcome => return outcome.map(drop),
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
    let may = |s: &u32| !segments.is_pinned(*s) && may_gain(*s, segments.live(*s));
    let mut victims: Vec<u32> = segments.live_segments().filter(may).collect();
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

/// The benefit of cleaning a segment over its cost. The age counts by its root: by itself it has old segments cleaned that are
/// nearly full, and with the popularity of Zipf's law that writes 3 to 7 % more.
fn benefit(segments: &Segments, segment: u32, full: u16, now: u64) -> f64 {
    let share = f64::from(segments.live(segment)) / f64::from(full);
    let age = now.saturating_sub(segments.changed(segment)) as f64;
    (1.0 - share) * age.sqrt() / (1.0 + share)
}

#[cfg(test)]
mod tests {
    use weir_storage::Rules;

    use super::*;

    #[test]
    fn a_segment_four_times_as_old_is_worth_twice_as_much() {
        let mut segments = Segments::new(8);
        for (segment, live, sequence) in [(0, 50, 600), (1, 50, 900), (2, 0, 900)] {
            segments.join(segment);
            assert_eq!(segments.take(Rules::all()), Some(segment));
            segments.add_live(segment, live);
            segments.sealed(segment, sequence);
        }
        let of = |segment| benefit(&segments, segment, 100, 1000);
        assert!((of(0) - 2.0 * of(1)).abs() < 1e-9, "{} {}", of(0), of(1));
        // Three times the gain for its cost: more than the age of the oldest makes up for.
        assert!((of(2) - 3.0 * of(1)).abs() < 1e-9, "{} {}", of(2), of(1));
        assert_eq!(
            best_benefit(&segments, 1, 100, 1000, |_, _| true),
            [0],
            "an empty segment needs no cleaning"
        );
    }
}
