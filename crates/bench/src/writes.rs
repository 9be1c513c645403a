//! The sequence of writes of a round: which block, which version.
//!
//! Writes that are in flight together must not overlap (S6), so the *lanes* of a round divide the span among
//! themselves: lane `l` of `n` writes the units that are `l` modulo `n`, and within a lane one write follows
//! the other. A round at depth 32 has 32 lanes; a round through Weir has one, because Weir keeps the order.

use weir_runtime::Random;
use weir_storage::BLOCK_BYTES;

use crate::chooser::{Chooser, Distribution};
use crate::content::Stamp;

/// The writes of one lane. A clone repeats them.
#[derive(Clone, Debug)]
pub struct Writes {
    chooser: Chooser,
    lane: u64,
    lanes: u64,
    unit_blocks: u32,
    run: u32,
    written: u32,
}

/// Where writes go.
#[derive(Clone, Copy, Debug)]
pub struct Span {
    /// Blocks in the span.
    pub blocks: u64,
    /// Blocks in one write.
    pub unit_blocks: u32,
}

impl Span {
    /// A span of `blocks` blocks, written one block at a time.
    #[must_use]
    pub fn pages(blocks: u64) -> Span {
        Span { blocks, unit_blocks: 1 }
    }

    /// Bytes in one write.
    #[must_use]
    pub fn unit_bytes(self) -> u64 {
        u64::from(self.unit_blocks) * BLOCK_BYTES as u64
    }

    /// How many lanes of at least one unit fit, at most `wanted`.
    #[must_use]
    pub fn lanes(self, wanted: u32) -> u32 {
        let units = self.blocks / u64::from(self.unit_blocks.max(1));
        u32::try_from(units.clamp(1, u64::from(wanted.max(1)))).unwrap_or(1)
    }
}

impl Writes {
    /// Lane `lane` of `lanes` in run `run` over `span`.
    #[must_use]
    pub fn new(
        run: u32,
        span: Span,
        distribution: Distribution,
        lane: u32,
        lanes: u32,
        random: Random,
    ) -> Writes {
        let lanes = u64::from(lanes.max(1));
        let units = span.blocks / u64::from(span.unit_blocks.max(1));
        let chooser = Chooser::new(distribution, units / lanes, random);
        Writes {
            chooser,
            lane: u64::from(lane),
            lanes,
            unit_blocks: span.unit_blocks.max(1),
            run,
            written: 0,
        }
    }

    /// The stamp of the next write's first block; the others have the same run and version.
    #[inline]
    pub fn take(&mut self) -> Stamp {
        self.written = self.written.wrapping_add(1);
        let unit = self.chooser.choose() * self.lanes + self.lane;
        Stamp { block: unit * u64::from(self.unit_blocks), run: self.run, version: self.written }
    }

    /// Blocks in one write.
    #[must_use]
    pub fn unit_blocks(&self) -> u32 {
        self.unit_blocks
    }

    /// How many writes were taken.
    #[must_use]
    pub fn written(&self) -> u32 {
        self.written
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use weir_runtime::{Handle, Runtime, Simulation};

    use super::*;

    fn blocks_of(handle: &Handle, lane: u32, lanes: u32, unit_blocks: u32) -> BTreeSet<u64> {
        let span = Span { blocks: 1024, unit_blocks };
        let mut writes = Writes::new(1, span, Distribution::Uniform, lane, lanes, handle.random("lane"));
        (0..5000).map(|_| writes.take().block).collect()
    }

    #[test]
    fn lanes_divide_the_span() {
        let handle = Runtime::simulated(Simulation::default()).handle();
        for unit_blocks in [1, 8] {
            let lanes: Vec<_> = (0..4).map(|lane| blocks_of(&handle, lane, 4, unit_blocks)).collect();
            let all: BTreeSet<u64> = lanes.iter().flatten().copied().collect();
            assert_eq!(all.len(), lanes.iter().map(BTreeSet::len).sum::<usize>(), "lanes overlap");
            assert_eq!(all.len() as u64, 1024 / u64::from(unit_blocks), "lanes leave gaps");
            assert!(all.iter().all(|block| block % u64::from(unit_blocks) == 0));
        }
    }

    #[test]
    fn no_more_lanes_than_units() {
        assert_eq!(Span::pages(8).lanes(32), 8);
        assert_eq!(Span::pages(100).lanes(32), 32);
        assert_eq!(Span { blocks: 10, unit_blocks: 64 }.lanes(8), 1);
    }

    #[test]
    fn versions_count_from_one() {
        let handle = Runtime::simulated(Simulation::default()).handle();
        let span = Span::pages(4);
        let mut writes = Writes::new(3, span, Distribution::Sequential, 0, 1, handle.random("w"));
        let stamps: Vec<_> = (0..5).map(|_| writes.take()).map(|s| (s.block, s.run, s.version)).collect();
        assert_eq!(stamps, [(0, 3, 1), (1, 3, 2), (2, 3, 3), (3, 3, 4), (0, 3, 5)]);
    }
}
