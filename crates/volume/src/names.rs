//! *Names*: which logical blocks read the same physical block. A share gives a block a second name; it is live until the
//! last of them reads something else, and cleaning moves it once with all of them (V7).
//!
//! Only blocks that a share has named are listed, so a volume without shares takes no memory for it. A map entry says by
//! its shared flag whether its block is listed ([`SHARED`]); from the flags the list is made anew when the volume is opened. A
//! block that has lost all names but one stays listed until it is moved, for its chunk may name it otherwise.

use std::collections::{BTreeMap, BTreeSet};

use weir_storage::SharePair;

/// The shared flag in a map entry's block: names of this block are listed. Volumes whose addresses need the bit have no shares.
pub(crate) const SHARED: u32 = 1 << 31;

/// Bytes of memory that a name takes at most: two block numbers in the least filled node of a B-tree, its header, its
/// place in the node above, and what the heap adds.
pub(crate) const NAME_COST: usize = 32;

/// What a share says, block by block: the target, and the source that it reads from then on. No block is the target of
/// two pairs.
pub(crate) type Pairs = BTreeMap<u32, u32>;

/// The pairs of a command, block by block. Of two with one target, the last counts.
pub(crate) fn one_by_one(pairs: &[SharePair]) -> Pairs {
    let blocks = |pair: &SharePair| {
        let SharePair { from, to } = *pair;
        (0..u64::from(from.blocks)).map(move |i| ((to.0 + i) as u32, (from.start.0 + i) as u32))
    };
    pairs.iter().flat_map(blocks).collect()
}

/// The names of all listed blocks.
#[derive(Default)]
pub(crate) struct Names {
    /// Physical block, and a logical block that reads it.
    listed: BTreeSet<(u32, u32)>,
    /// Physical blocks that are listed.
    blocks: u64,
}

impl Names {
    /// The names of a block, in order; none if it is not listed.
    pub(crate) fn of(&self, block: u32) -> impl Iterator<Item = u32> {
        self.listed.range((block, 0)..=(block, u32::MAX)).map(|(_, lba)| *lba)
    }

    pub(crate) fn first(&self, block: u32) -> Option<u32> {
        self.of(block).next()
    }

    pub(crate) fn add(&mut self, block: u32, lba: u32) {
        self.blocks += u64::from(self.first(block).is_none());
        self.listed.insert((block, lba));
    }

    /// A block loses a name; whether it was the last one.
    pub(crate) fn remove(&mut self, block: u32, lba: u32) -> bool {
        let last = self.listed.remove(&(block, lba)) && self.first(block).is_none();
        self.blocks -= u64::from(last);
        last
    }

    /// Physical blocks that are listed.
    pub(crate) fn blocks(&self) -> u64 {
        self.blocks
    }

    /// Names of all of them.
    pub(crate) fn count(&self) -> u64 {
        self.listed.len() as u64
    }

    /// Names beyond the first of each block.
    pub(crate) fn surplus(&self) -> u64 {
        self.count() - self.blocks
    }

    /// Bytes of memory that it takes at most.
    pub(crate) fn bytes(&self) -> usize {
        self.listed.len() * NAME_COST
    }
}

#[cfg(test)]
mod tests {
    use weir_storage::{Extent, Lba};

    use super::*;

    #[test]
    fn blocks_are_counted_once_however_many_names_they_have() {
        let mut names = Names::default();
        for (block, lba) in [(9, 1), (9, 2), (9, 2), (5, 3)] {
            names.add(block, lba);
        }
        assert_eq!((names.blocks(), names.count(), names.surplus()), (2, 3, 1));
        assert_eq!(names.of(9).collect::<Vec<_>>(), [1, 2]);
        assert!(!names.remove(9, 1) && names.remove(9, 2) && !names.remove(9, 2), "the last one, and none");
        assert_eq!((names.blocks(), names.count(), names.surplus()), (1, 1, 0));
    }

    #[test]
    fn of_two_pairs_with_one_target_the_last_counts() {
        let pair = |from, blocks, to| SharePair { from: Extent::new(Lba(from), blocks), to: Lba(to) };
        let pairs = one_by_one(&[pair(10, 3, 20), pair(5, 1, 21)]);
        assert_eq!(pairs.into_iter().collect::<Vec<_>>(), [(20, 10), (21, 5), (22, 12)]);
    }
}
