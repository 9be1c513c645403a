//! Which bytes of a block have changed.

use std::ops::Range;

/// Ranges that are kept apart. Beyond that, the two with the smallest gap between them become one.
const RANGES_MAX: usize = 32;

/// Ranges of bytes within a block, in order, none touching the next.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ChangedRanges(Vec<Range<u16>>);

impl ChangedRanges {
    /// The bytes in `range` have changed; a block is small enough for 16 bits.
    pub(crate) fn add(&mut self, range: Range<usize>) {
        let bound = |at: usize| u16::try_from(at).unwrap_or(u16::MAX);
        let (mut start, mut end) = (bound(range.start), bound(range.end));
        if start >= end {
            return;
        }
        let first = self.0.partition_point(|known| known.end < start);
        let behind = self.0.partition_point(|known| known.start <= end);
        if first < behind {
            start = start.min(self.0[first].start);
            end = end.max(self.0[behind - 1].end);
        }
        self.0.splice(first..behind, std::iter::once(start..end));
        if self.0.len() > RANGES_MAX {
            self.join_nearest();
        }
    }

    fn join_nearest(&mut self) {
        let gap = |at: &usize| self.0[at + 1].start - self.0[*at].end;
        if let Some(at) = (0..self.0.len() - 1).min_by_key(gap) {
            self.0[at].end = self.0[at + 1].end;
            self.0.remove(at + 1);
        }
    }

    /// They, in order.
    pub(crate) fn all(&self) -> &[Range<u16>] {
        &self.0
    }

    /// How many bytes they hold.
    pub(crate) fn bytes(&self) -> u64 {
        self.0.iter().map(|range| u64::from(range.end - range.start)).sum()
    }
}

#[cfg(test)]
mod tests {
    use weir_runtime::{Runtime, Simulation};
    use weir_storage::BLOCK_BYTES;

    use super::*;

    #[test]
    fn ranges_hold_every_byte_that_was_added_and_stay_in_order() {
        for seed in 0..200 {
            let runtime = Runtime::simulated(Simulation { seed, ..Simulation::default() });
            let mut random = runtime.handle().random("ranges");
            let (mut ranges, mut bytes) = (ChangedRanges::default(), vec![false; BLOCK_BYTES]);
            let mut crowded = false;
            for _ in 0..random.below(100) {
                let start = random.below(BLOCK_BYTES as u64) as usize;
                let end = (start + random.below(100) as usize).min(BLOCK_BYTES);
                ranges.add(start..end);
                bytes[start..end].fill(true);
                assert!(ranges.0.len() <= RANGES_MAX);
                crowded |= ranges.0.len() == RANGES_MAX;
                assert!(ranges.0.windows(2).all(|pair| pair[0].end < pair[1].start), "{ranges:?}");
            }
            let holds = |at: usize| ranges.0.iter().any(|range| range.contains(&(at as u16)));
            assert!((0..BLOCK_BYTES).all(|at| !bytes[at] || holds(at)), "seed {seed}: {ranges:?}");
            if !crowded {
                let changed = bytes.iter().filter(|changed| **changed).count() as u64;
                assert_eq!(ranges.bytes(), changed, "seed {seed}");
            }
        }
    }
}
