//! The *reads* of a file that are under way.
//!
//! A read finds the place of its blocks with the file's lock, begins here, and waits for the disk without the lock: so
//! reads go side by side, and no call that changes the file waits for one. What a read brings counts as far as its
//! blocks are still what they were when it began. One that is freed meanwhile may be another file's by then: it cuts
//! the read short, and the caller tries again. One that is written meanwhile has its page in memory, which stays there
//! until the read ends (`Pages::evict`), so nothing older takes its place. The blocks of two reads never overlap: a caller that misses
//! a block that is on its way waits for it.

use std::collections::BTreeMap;
use std::ops::Range;

/// A read that is under way.
struct Reading {
    end: u32,
    /// The first of its blocks that was freed meanwhile, or became zeros.
    freed: u32,
}

/// The reads of one file that are under way, by their first blocks.
#[derive(Default)]
pub(crate) struct Reads(BTreeMap<u32, Reading>);

impl Reads {
    /// A read of these blocks begins. They are on their way by no other.
    pub(crate) fn begin(&mut self, blocks: &Range<u32>) {
        self.0.insert(blocks.start, Reading { end: blocks.end, freed: blocks.end });
    }

    /// The end of those blocks of a read that are still what they were when it began.
    pub(crate) fn end_of(&self, blocks: &Range<u32>) -> u32 {
        self.0.get(&blocks.start).map_or(blocks.start, |reading| reading.freed)
    }

    /// A read of these blocks is over.
    pub(crate) fn end(&mut self, blocks: &Range<u32>) {
        self.0.remove(&blocks.start);
    }

    /// Whether a block is on its way.
    pub(crate) fn bring(&self, index: u32) -> bool {
        self.0.range(..=index).next_back().is_some_and(|(_, reading)| index < reading.end)
    }

    /// Whether a block is on its way, and counts when it comes.
    pub(crate) fn will_bring(&self, index: u32) -> bool {
        let reading = self.0.range(..=index).next_back();
        reading.is_some_and(|(_, reading)| index < reading.end && index < reading.freed)
    }

    /// The first block behind `index` that is on its way.
    pub(crate) fn first_behind(&self, index: u32) -> Option<u32> {
        self.0.range(index..).next().map(|(start, _)| *start)
    }

    /// Blocks were freed, or have become zeros.
    pub(crate) fn freed(&mut self, blocks: &Range<u32>) {
        let overlapping = self.0.range_mut(..blocks.end).rev();
        for (start, reading) in overlapping.take_while(|(_, reading)| reading.end > blocks.start) {
            reading.freed = reading.freed.min(blocks.start.max(*start));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reads(under_way: &[Range<u32>]) -> Reads {
        let reading = |blocks: &Range<u32>| (blocks.start, Reading { end: blocks.end, freed: blocks.end });
        Reads(under_way.iter().map(reading).collect())
    }

    fn ends(reads: &Reads) -> Vec<u32> {
        reads.0.values().map(|reading| reading.freed).collect()
    }

    #[test]
    fn it_is_known_what_is_on_its_way() {
        let reads = reads(&[10..20, 30..31]);
        let on_their_way: Vec<u32> = (0..40).filter(|index| reads.bring(*index)).collect();
        assert_eq!(on_their_way, (10..20).chain(30..31).collect::<Vec<_>>());
        assert_eq!(
            [0, 10, 11, 31].map(|index| reads.first_behind(index)),
            [Some(10), Some(10), Some(30), None]
        );
    }

    #[test]
    fn what_is_freed_cuts_its_reads_short_and_no_others() {
        let mut reads = reads(&[10..20, 20..30, 40..50]);
        reads.freed(&(0..10));
        reads.freed(&(30..40));
        assert_eq!(ends(&reads), [20, 30, 50]);
        reads.freed(&(18..22));
        reads.freed(&(19..20));
        assert_eq!(ends(&reads), [18, 20, 50]);
        reads.freed(&(0..u32::MAX));
        assert_eq!(ends(&reads), [10, 20, 40]);
    }
}
