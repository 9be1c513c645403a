//! *Freed* blocks on their way to a discard. A block may be discarded when the newest transaction that freed it is
//! durable (J7): a power cut brings back what is not. So each block that was freed and can be reused is in one of
//! three sets:
//!
//! - *old*: freed by transactions up to one whose durability is awaited,
//! - *young*: freed since then,
//! - *ready*: the transactions are durable, and a discard takes it next.
//!
//! What is allocated again leaves them all, so only the transaction counts that frees it next. The sets are bitmaps:
//! what is kept has a bound, 12 KiB a group, however much is freed while nothing is made durable. Of those that are young or old,
//! the journal bounds the number, as their bitmaps are in it; of those that are ready, [`Freed::limit_ready`] does.

use std::ops::Range;

use weir_ext4::journal::Sequence;

use crate::space::set::BlockSet;

/// See the head of this file.
#[derive(Default)]
pub(super) struct Freed {
    young: Generation,
    old: Generation,
    pub(super) ready: BlockSet,
}

/// What transactions up to one have freed.
#[derive(Default)]
struct Generation {
    blocks: BlockSet,
    to: Option<Sequence>,
}

impl Generation {
    fn is_durable(&self, to: Sequence) -> bool {
        self.to.is_none_or(|mine| !mine.is_after(to))
    }
}

impl Freed {
    /// A run of blocks was freed by a transaction, `to` or one before it.
    pub(super) fn add_run(&mut self, group: u32, run: Range<u32>, to: Sequence) {
        self.young.blocks.insert(group, run);
        self.young.to = Some(to);
    }

    /// Blocks are allocated: a caller that frees them next decides.
    pub(super) fn allocated(&mut self, group: u32, run: &Range<u32>) {
        for set in [&mut self.young.blocks, &mut self.old.blocks, &mut self.ready] {
            set.remove(group, run.clone());
        }
    }

    /// Transactions up to one are durable. Whether blocks are ready now.
    pub(super) fn durable(&mut self, to: Sequence) -> bool {
        self.grow_old();
        while !self.old.blocks.is_empty() && self.old.is_durable(to) {
            self.ready.append(std::mem::take(&mut self.old).blocks);
            self.grow_old();
        }
        !self.ready.is_empty()
    }

    /// Forgets what is ready of the last groups, beyond so many.
    pub(super) fn limit_ready(&mut self, groups: usize) {
        self.ready.keep_groups(groups);
    }

    /// Blocks that wait until a transaction is durable.
    pub(super) fn awaited(&self) -> u64 {
        self.young.blocks.blocks() + self.old.blocks.blocks()
    }

    /// Sets the bits of those that do, in the bitmap of a group.
    pub(super) fn mark_awaited(&self, group: u32, bits: &mut [u8; weir_format::BLOCK_BYTES]) {
        self.young.blocks.mark(group, bits);
        self.old.blocks.mark(group, bits);
    }

    /// Bitmaps that are kept.
    pub(super) fn bitmaps(&self) -> usize {
        [&self.young.blocks, &self.old.blocks, &self.ready].map(BlockSet::groups).iter().sum()
    }

    /// What is young becomes old when nothing is.
    fn grow_old(&mut self) {
        if self.old.blocks.is_empty() {
            self.old = std::mem::take(&mut self.young);
        }
    }
}

#[cfg(test)]
#[allow(clippy::single_range_in_vec_init, reason = "lists of runs, of which some have one")]
mod tests {
    use super::*;

    #[test]
    fn what_is_durable_is_ready_and_nothing_else() {
        let mut freed = Freed::default();
        freed.add_run(0, 0..10, Sequence(1));
        assert!(!freed.durable(Sequence(0)));
        // The first is old by now; these are young.
        freed.add_run(0, 20..30, Sequence(3));
        freed.allocated(0, &(5..25));
        freed.add_run(0, 8..9, Sequence(4));
        assert!(freed.durable(Sequence(1)));
        assert_eq!((freed.ready.runs(0), freed.awaited(), freed.bitmaps()), (vec![0..5], 6, 2));
        freed.durable(Sequence(3));
        assert_eq!((freed.ready.blocks(), freed.awaited()), (5, 6), "a generation is durable with its last");
        freed.durable(Sequence(4));
        assert_eq!((freed.ready.runs(0), freed.awaited()), (vec![0..5, 8..9, 25..30], 0));
    }
}
