//! A set of blocks, as a bitmap of each group that has some of them: 4 KiB a group, however many blocks and in however
//! many pieces.

use std::collections::BTreeMap;
use std::ops::Range;

use weir_ext4::bitmap;
use weir_format::BLOCK_BYTES;

/// Bits in a bitmap block.
const BITS: u32 = BLOCK_BYTES as u32 * 8;

/// The blocks of one group: a bit that is set is in the set.
struct Bits {
    count: u32,
    bits: Box<[u8; BLOCK_BYTES]>,
}

/// See the head of this file. Blocks are named by their group, and their bits in its bitmap.
#[derive(Default)]
pub(super) struct BlockSet(BTreeMap<u32, Bits>);

impl BlockSet {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Blocks in it.
    pub(super) fn blocks(&self) -> u64 {
        self.0.values().map(|group| u64::from(group.count)).sum()
    }

    /// Groups with some of them.
    pub(super) fn groups(&self) -> usize {
        self.0.len()
    }

    pub(super) fn insert(&mut self, group: u32, run: Range<u32>) {
        let empty = || Bits { count: 0, bits: Box::new([0; BLOCK_BYTES]) };
        let known = self.0.entry(group).or_insert_with(empty);
        known.count += bitmap::count_clear(&known.bits[..], run.clone());
        bitmap::set(&mut known.bits[..], run);
    }

    pub(super) fn remove(&mut self, group: u32, run: Range<u32>) {
        let Some(known) = self.0.get_mut(&group) else { return };
        let absent = bitmap::count_clear(&known.bits[..], run.clone());
        known.count -= (run.end - run.start) - absent;
        bitmap::clear(&mut known.bits[..], run);
        if known.count == 0 {
            self.0.remove(&group);
        }
    }

    /// Takes in all of another set.
    pub(super) fn append(&mut self, other: BlockSet) {
        for (group, theirs) in other.0 {
            let Some(ours) = self.0.get_mut(&group) else {
                self.0.insert(group, theirs);
                continue;
            };
            ours.bits.iter_mut().zip(theirs.bits.iter()).for_each(|(ours, theirs)| *ours |= theirs);
            ours.count = BITS - bitmap::count_clear(&ours.bits[..], 0..BITS);
        }
    }

    /// Its blocks in one group, as runs.
    pub(super) fn runs(&self, group: u32) -> Vec<Range<u32>> {
        let mut runs = Vec::new();
        let (Some(known), mut from) = (self.0.get(&group), 0) else { return runs };
        // Beyond the bitmap everything counts as set.
        while let Some(start) = bitmap::next_set(&known.bits[..], from..BITS) {
            let end = bitmap::next_clear(&known.bits[..], start..BITS).unwrap_or(BITS);
            runs.push(start..end);
            from = end;
        }
        runs
    }

    /// The first group with some of them.
    pub(super) fn first_group(&self) -> Option<u32> {
        self.0.keys().next().copied()
    }

    /// Forgets the blocks of the last groups, beyond so many.
    pub(super) fn keep_groups(&mut self, groups: usize) {
        while self.0.len() > groups {
            self.0.pop_last();
        }
    }

    /// Sets the bits of its blocks in a bitmap of the group.
    pub(super) fn mark(&self, group: u32, bits: &mut [u8; BLOCK_BYTES]) {
        if let Some(known) = self.0.get(&group) {
            bits.iter_mut().zip(known.bits.iter()).for_each(|(bit, ours)| *bit |= ours);
        }
    }
}

#[cfg(test)]
#[allow(clippy::single_range_in_vec_init, reason = "lists of runs, of which some have one")]
mod tests {
    use super::*;

    #[test]
    fn it_holds_what_was_put_in_and_not_taken_out() {
        let (mut set, mut other) = (BlockSet::default(), BlockSet::default());
        set.insert(3, 0..10);
        set.insert(3, 5..20);
        set.insert(7, BITS - 1..BITS);
        set.remove(3, 8..9);
        set.remove(4, 0..BITS);
        assert_eq!((set.blocks(), set.groups(), set.first_group()), (20, 2, Some(3)));
        assert_eq!((set.runs(3), set.runs(7)), (vec![0..8, 9..20], vec![BITS - 1..BITS]));
        other.insert(3, 8..30);
        other.insert(9, 1..2);
        set.append(other);
        assert_eq!((set.blocks(), set.runs(3), set.runs(9)), (32, vec![0..30], vec![1..2]));
        for group in [3, 7, 9] {
            set.remove(group, 0..BITS);
        }
        assert!(set.is_empty() && set.runs(3).is_empty());
    }
}
