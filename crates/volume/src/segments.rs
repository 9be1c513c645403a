//! Segments: which are live, which may be written again, and the *free-segment list*, the ordered list of segments that
//! the log will use next.
//!
//! **The reclaim check** (V3). A segment may be written again only when no state that a crash can leave needs what
//! is in it: every version in it is superseded, the superseding records are durable, and recovery does not
//! replay it. [`Segments::reclaim_check`] is the one place that decides, and says what is missing.
//!
//! **The free-segment list** (V4). Recovery finds the log by the free-segment list in the checkpoint and by the
//! records that lengthen it, and reads no other segment. So a segment joins the free-segment list in one of two ways:
//! with the checkpoint that names it, or by a record in the log that comes before its first chunk.

use std::collections::{BTreeSet, BinaryHeap, VecDeque};
use std::ops::Range;

use weir_storage::Rules;

use crate::mutants::VolumeMutant;
use crate::sparse::{GROUP, Sparse};

/// The background waits for so many emptied segments, or for an eighth of a small volume's.
const BACKGROUND_SEGMENTS: usize = 16;

/// What a segment is used for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Role {
    /// Written before the last checkpoint, or never; holds live blocks, or may join the free-segment list.
    #[default]
    Settled,
    /// Part of the log since the last checkpoint; replayed by recovery.
    Log,
    /// On the free-segment list, empty.
    Listed,
}

/// What stands between a segment and its being written again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReclaimCheck {
    /// Live blocks: clean it first.
    Live,
    /// Empty, but recovery would replay it: a checkpoint comes first.
    NeedsCheckpoint,
    /// Empty, but a crash could still take back what superseded its blocks: a flush comes first.
    NeedsFlush,
    /// Nothing: it may join the free-segment list.
    Free,
    /// It is on the free-segment list already.
    Listed,
}

/// One segment. Those that were never written have no memory (V6).
#[derive(Clone, Copy, Default)]
struct Segment {
    /// Sequence number of the last record that changed the segment: while it is live, the youngest in it (its
    /// age); once it is empty, the one that emptied it.
    changed: u64,
    live: u16,
    role: Role,
}

impl Segment {
    fn is_empty(self) -> bool {
        self.live == 0 && self.role != Role::Listed
    }

    fn is_settled_and_empty(self) -> bool {
        self.live == 0 && self.role == Role::Settled
    }
}

/// What is known of the segments of a group without a look at each of them.
#[derive(Clone, Copy)]
struct Summary {
    /// Segments that hold nothing live and are not on the free-segment list.
    empty: u16,
    /// No segment with live blocks has fewer than this; [`NONE_LIVE`] if there is none.
    least_live: u16,
}

const NONE_LIVE: u16 = u16::MAX;

/// All segments of a volume.
pub(crate) struct Segments {
    count: u32,
    each: Sparse<Segment>,
    summaries: Vec<Summary>,
    free_list: VecDeque<u32>,
    /// Segments taken from the free-segment list since the last checkpoint began, oldest first.
    log: Vec<u32>,
    live_total: u64,
    with_live: u32,
    /// Segments that hold nothing live and are not on the free-segment list.
    empty: u32,
    /// Those of them that no log is in.
    settled_and_empty: u32,
    /// Segments whose discard is on its way to the disk below: neither written nor put on the free-segment list until
    /// it is done.
    discarding: Vec<Range<u32>>,
    /// Segments that lost their last live block and were neither written nor discarded since, if they are collected.
    emptied: BTreeSet<u32>,
    collects_emptied: bool,
    /// How many of them could be discarded when they were looked at last.
    looked_at: usize,
    /// Segments that cleaning does not take.
    pinned: BTreeSet<u32>,
    /// The log of the checkpoint before the newest.
    held: BTreeSet<u32>,
    /// It was recovery that replayed it: the checkpoint that ends recovery has no other.
    replayed: bool,
}

impl Segments {
    pub(crate) fn new(count: u32) -> Segments {
        let groups = (count as usize).div_ceil(GROUP);
        let size = |group: usize| (count as usize - group * GROUP).min(GROUP) as u16;
        let summary = |group| Summary { empty: size(group), least_live: NONE_LIVE };
        Segments {
            count,
            each: Sparse::new(count as usize),
            summaries: (0..groups).map(summary).collect(),
            free_list: VecDeque::new(),
            log: Vec::new(),
            live_total: 0,
            with_live: 0,
            empty: count,
            settled_and_empty: count,
            discarding: Vec::new(),
            emptied: BTreeSet::new(),
            collects_emptied: false,
            looked_at: 0,
            pinned: BTreeSet::new(),
            held: BTreeSet::new(),
            replayed: false,
        }
    }

    #[inline]
    fn segment(&self, segment: u32) -> Segment {
        self.each.get(segment as usize).copied().unwrap_or_default()
    }

    /// Changes a segment, and what is summed up of it.
    #[inline]
    fn change(&mut self, segment: u32, change: impl FnOnce(&mut Segment)) {
        let one = self.each.get_mut(segment as usize);
        let before = *one;
        change(one);
        let after = *one;
        let summary = &mut self.summaries[segment as usize / GROUP];
        if after.live > 0 && (after.live < before.live || before.live == 0) {
            summary.least_live = summary.least_live.min(after.live);
        }
        if before.is_empty() != after.is_empty() || before.role != after.role {
            let step = |count: bool| u32::from(count);
            summary.empty = summary.empty + u16::from(after.is_empty()) - u16::from(before.is_empty());
            self.empty = self.empty + step(after.is_empty()) - step(before.is_empty());
            self.settled_and_empty = self.settled_and_empty + step(after.is_settled_and_empty())
                - step(before.is_settled_and_empty());
        }
        if (before.live == 0) != (after.live == 0) {
            self.with_live = self.with_live + u32::from(after.live > 0) - u32::from(before.live > 0);
        }
    }

    /// Live blocks of all segments.
    pub(crate) fn live_total(&self) -> u64 {
        self.live_total
    }

    /// Segments with live blocks.
    pub(crate) fn with_live(&self) -> u32 {
        self.with_live
    }

    /// Segments that hold nothing live and are not on the free-segment list, the open one perhaps among them.
    pub(crate) fn empty_count(&self) -> usize {
        self.empty as usize
    }

    /// Segments that the reclaim check lets through when everything that was placed is durable.
    pub(crate) fn free_when_durable(&self) -> usize {
        self.settled_and_empty as usize
    }

    pub(crate) fn live(&self, segment: u32) -> u16 {
        self.segment(segment).live
    }

    pub(crate) fn changed(&self, segment: u32) -> u64 {
        self.segment(segment).changed
    }

    #[inline]
    pub(crate) fn add_live(&mut self, segment: u32, blocks: u16) {
        if self.collects_emptied && self.live(segment) == 0 {
            self.emptied.remove(&segment);
        }
        self.change(segment, |one| one.live += blocks);
        self.live_total += u64::from(blocks);
    }

    #[inline]
    pub(crate) fn drop_live(&mut self, segment: u32, sequence: u64) {
        let mut is_empty = false;
        self.change(segment, |one| {
            one.live -= 1;
            is_empty = one.live == 0;
            if is_empty {
                one.changed = sequence;
            }
        });
        self.live_total -= 1;
        if is_empty {
            self.lost_last_block(segment);
        }
    }

    #[cold]
    fn lost_last_block(&mut self, segment: u32) {
        self.pinned.remove(&segment);
        if self.collects_emptied {
            self.emptied.insert(segment);
        }
    }

    /// Cleaning does not take a segment, because a live block in it is damaged. With its last live block it may be
    /// written, and cleaned, again. One that was emptied since `changed` is as good as any other.
    pub(crate) fn pin(&mut self, segment: u32, changed: u64) {
        if self.live(segment) > 0 && self.changed(segment) == changed {
            self.pinned.insert(segment);
        }
    }

    pub(crate) fn is_pinned(&self, segment: u32) -> bool {
        self.pinned.contains(&segment)
    }

    /// A chunk whose last record is `sequence` was sealed in the segment.
    pub(crate) fn sealed(&mut self, segment: u32, sequence: u64) {
        self.change(segment, |one| one.changed = sequence);
    }

    /// The reclaim check: may this segment be written again, everything up to `durable` being durable?
    pub(crate) fn reclaim_check(&self, segment: u32, durable: u64) -> ReclaimCheck {
        let one = self.segment(segment);
        match one.role {
            Role::Listed => ReclaimCheck::Listed,
            _ if one.live > 0 => ReclaimCheck::Live,
            Role::Log => ReclaimCheck::NeedsCheckpoint,
            Role::Settled if one.changed > durable => ReclaimCheck::NeedsFlush,
            Role::Settled => ReclaimCheck::Free,
        }
    }

    /// No block in it is live, and it is not on the free-segment list.
    pub(crate) fn is_empty(&self, segment: u32) -> bool {
        self.segment(segment).is_empty()
    }

    /// Segments left on the free-segment list.
    pub(crate) fn free_listed(&self) -> usize {
        self.free_list.len()
    }

    /// The segment that comes next, taken into the log: one that a checkpoint or a record names (V4).
    pub(crate) fn take(&mut self, rules: Rules<VolumeMutant>) -> Option<u32> {
        if self.free_list.front().is_some_and(|next| self.is_discarding(*next)) {
            return None;
        }
        let out_of_order = rules.drops(VolumeMutant::SegmentsOutOfOrder);
        let segment = if out_of_order { self.free_list.pop_back() } else { self.free_list.pop_front() }?;
        self.emptied.remove(&segment);
        self.change(segment, |one| one.role = Role::Log);
        self.log.push(segment);
        Some(segment)
    }

    /// Segments written since the last checkpoint began, the open one included.
    pub(crate) fn log(&self) -> &[u32] {
        &self.log
    }

    /// Recovery has replayed the log from these segments: with the checkpoint that ends recovery, they are what the one
    /// before it reads.
    pub(crate) fn was_replayed(&mut self, log: Vec<u32>) {
        self.held = log.into_iter().collect();
        self.replayed = true;
    }

    /// The checkpoint before the newest would read its log from this segment. Discarding it takes away what tells
    /// that there was a newer one, should that be damaged (V1). What writes it instead tells so itself.
    pub(crate) fn is_held(&self, segment: u32) -> bool {
        self.held.contains(&segment)
    }

    /// Segments that hold nothing live and may sooner or later join the free-segment list, in order of address,
    /// `open` never.
    pub(crate) fn empty(&self, open: Option<u32>) -> impl Iterator<Item = u32> {
        let groups = self.summaries.iter().enumerate().filter(|(_, summary)| summary.empty > 0);
        let segments = groups.flat_map(|(group, _)| self.segments_of(group));
        segments.filter(move |s| Some(*s) != open && self.is_empty(*s) && !self.is_discarding(*s))
    }

    /// Segments with live blocks, in order of address.
    pub(crate) fn live_segments(&self) -> impl Iterator<Item = u32> {
        let groups = self.summaries.iter().enumerate().filter(|(_, summary)| summary.least_live != NONE_LIVE);
        groups.flat_map(|(group, _)| self.segments_of(group)).filter(|s| self.live(*s) > 0)
    }

    /// `wanted` of the segments with live blocks that `may` takes, no pinned ones, at most: those with the fewest,
    /// then those with the lower address. Groups of which none can be among them are not looked at.
    pub(crate) fn fewest_live(&mut self, wanted: usize, may: impl Fn(u32, u16) -> bool) -> Vec<u32> {
        let mut best = BinaryHeap::with_capacity(wanted + 1);
        for group in 0..self.summaries.len() {
            let least = self.summaries[group].least_live;
            let too_many = best.len() >= wanted && best.peek().is_none_or(|(live, _)| *live <= least);
            if least == NONE_LIVE || too_many {
                continue;
            }
            let mut least = NONE_LIVE;
            for segment in self.segments_of(group) {
                let live = self.live(segment);
                if live == 0 {
                    continue;
                }
                least = least.min(live);
                if may(segment, live) && !self.is_pinned(segment) {
                    best.push((live, segment));
                    if best.len() > wanted {
                        best.pop();
                    }
                }
            }
            self.summaries[group].least_live = least;
        }
        best.into_sorted_vec().into_iter().map(|(_, segment)| segment).collect()
    }

    fn segments_of(&self, group: usize) -> Range<u32> {
        let first = (group * GROUP) as u32;
        first..self.count.min(first.saturating_add(GROUP as u32))
    }

    /// A segment joins the free-segment list, by a record that is in the log before anything is written to it.
    pub(crate) fn join(&mut self, segment: u32) {
        self.change(segment, |one| one.role = Role::Listed);
        self.free_list.push_back(segment);
    }

    /// Begins a checkpoint: the free-segment list that it will name, `open` first, and how many of its last segments
    /// join with it.
    pub(crate) fn plan_free_list(&self, open: Option<u32>, limit: usize) -> (Vec<u32>, usize) {
        let mut free_list: Vec<u32> = open.into_iter().chain(self.free_list.iter().copied()).collect();
        let joining = limit.saturating_sub(free_list.len());
        let before = free_list.len();
        free_list.extend(self.empty(open).take(joining));
        let joined = free_list.len() - before;
        (free_list, joined)
    }

    /// The checkpoint is durable: `joined` may be written, and the log begins with the last of the
    /// `log_before` segments that the log had when the checkpoint began (the open one).
    pub(crate) fn commit(&mut self, joined: &[u32], log_before: usize) {
        let settled: Vec<u32> = self.log.drain(..log_before.saturating_sub(1)).collect();
        for segment in &settled {
            self.change(*segment, |one| one.role = Role::Settled);
        }
        if !std::mem::take(&mut self.replayed) {
            self.held = settled.into_iter().collect();
        }
        for segment in joined {
            debug_assert_eq!(self.live(*segment), 0, "an empty segment stays empty");
            self.join(*segment);
        }
    }

    fn is_discarding(&self, segment: u32) -> bool {
        self.discarding.iter().any(|run| run.contains(&segment))
    }

    /// From now on, segments that become empty are collected, to be discarded.
    pub(crate) fn collect_emptied(&mut self) {
        self.collects_emptied = true;
    }

    pub(crate) fn stop_collecting(&mut self) {
        self.collects_emptied = false;
        self.emptied.clear();
    }

    pub(crate) fn emptied(&self) -> &BTreeSet<u32> {
        &self.emptied
    }

    /// The emptied segments were looked at, and so many of them wait for nothing but to be enough; whether they are.
    pub(crate) fn should_check_emptied(&mut self, ready: usize) -> bool {
        self.looked_at = ready;
        self.emptied.len() >= self.enough_emptied()
    }

    /// Whether it is worth it to look at the emptied segments again: so many more are there by now.
    pub(crate) fn more_emptied(&self) -> bool {
        self.emptied.len() >= self.looked_at + self.enough_emptied()
    }

    /// So many emptied segments are worth a command.
    fn enough_emptied(&self) -> usize {
        (self.count as usize / 8).clamp(1, BACKGROUND_SEGMENTS)
    }

    /// These segments are being discarded.
    pub(crate) fn begin_discard(&mut self, runs: Vec<Range<u32>>) {
        for run in &runs {
            self.emptied.retain(|segment| !run.contains(segment));
        }
        self.discarding = runs;
    }

    pub(crate) fn end_discard(&mut self) {
        self.discarding.clear();
    }

    /// Bytes of memory that it takes.
    pub(crate) fn bytes(&self) -> usize {
        self.each.bytes()
            + size_of_val(self.summaries.as_slice())
            + self.free_list.len() * 4
            + self.log.len() * 4
            + self.held.len() * size_of::<u32>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes the next segment of the free-segment list, and fills it with two blocks, the records up to `sequence`.
    fn write_next(segments: &mut Segments, sequence: u64) -> u32 {
        let segment = segments.take(Rules::all()).expect("one is listed");
        segments.add_live(segment, 2);
        segments.sealed(segment, sequence);
        segment
    }

    #[test]
    fn a_segment_that_was_written_again_is_not_pinned_for_what_was_in_it() {
        let mut segments = Segments::new(8);
        segments.join(3);
        assert_eq!(write_next(&mut segments, 10), 3);
        let chosen = segments.changed(3);
        segments.drop_live(3, 11);
        segments.pin(3, chosen);
        assert!(segments.is_pinned(3), "a block is left");
        segments.drop_live(3, 12);
        assert!(!segments.is_pinned(3), "its last block is gone");
        segments.join(3);
        assert_eq!(write_next(&mut segments, 14), 3);
        segments.pin(3, chosen);
        assert!(!segments.is_pinned(3), "it has other blocks");
        segments.pin(3, segments.changed(3));
        assert!(segments.is_pinned(3));
    }
}
