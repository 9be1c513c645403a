//! An *update*: what was written to an atomic file since it was synchronised last. It is in memory only, and goes into
//! the journal as a whole, in one transaction ([`atomic`](crate::atomic)).

use std::collections::BTreeMap;
use std::ops::Range;
use std::rc::Rc;

use weir_runtime::Buffer as Memory;
use weir_storage::BLOCK_BYTES;

/// Journaled blocks that marking a run of unwritten blocks as written changes at most, in the tree of a file.
const MARK_CREDITS: u32 = 8;

/// Blocks of a file as they are to be.
pub(crate) type ChangedBlocks = Vec<(u32, Rc<Memory>)>;

/// The update of one file.
#[derive(Clone)]
pub(crate) struct Update {
    /// Blocks as they are to be, whole.
    blocks: BTreeMap<u32, Rc<Memory>>,
    /// The size that the file is to have, in bytes.
    size: u64,
    /// Journaled blocks that its transaction changes at most, the inode left out.
    credits: u32,
}

impl Update {
    /// An empty one, of a file of `size` bytes.
    pub(crate) fn new(size: u64) -> Update {
        Update { blocks: BTreeMap::new(), size, credits: 0 }
    }

    /// The size that the file is to have, in bytes.
    pub(crate) fn size(&self) -> u64 {
        self.size
    }

    /// The file is to have at least so many bytes.
    pub(crate) fn grow(&mut self, size: u64) {
        self.size = self.size.max(size);
    }

    /// Journaled blocks that its transaction changes at most, the inode left out.
    pub(crate) fn credits(&self) -> u32 {
        self.credits
    }

    /// What a block is to be, if it is changed.
    pub(crate) fn block(&self, index: u32) -> Option<&Rc<Memory>> {
        self.blocks.get(&index)
    }

    /// The changed blocks, in order.
    pub(crate) fn blocks(&self) -> impl Iterator<Item = (u32, &Rc<Memory>)> {
        self.blocks.iter().map(|(index, content)| (*index, content))
    }

    /// The changed blocks of a range, in order.
    pub(crate) fn blocks_in(&self, range: Range<u32>) -> ChangedBlocks {
        self.blocks.range(range).map(|(index, content)| (*index, Rc::clone(content))).collect()
    }

    /// The changed blocks as ranges that do not touch.
    pub(crate) fn runs(&self) -> Vec<Range<u32>> {
        let mut runs: Vec<Range<u32>> = Vec::new();
        for index in self.blocks.keys() {
            match runs.last_mut() {
                Some(run) if run.end == *index => run.end += 1,
                _ => runs.push(*index..index + 1),
            }
        }
        runs
    }

    /// What it would cost more to change a range, too; `written` says that its blocks are mapped and written.
    pub(crate) fn cost_of(&self, range: Range<u32>, written: bool) -> u32 {
        let known = self.blocks.range(range.clone()).count();
        let fresh = (range.len() - known) as u32;
        let marks = if written || fresh == 0 { 0 } else { self.runs_made_by(range) * MARK_CREDITS };
        fresh.saturating_add(marks)
    }

    /// Runs of blocks that are new in a range: none that only lengthens one.
    fn runs_made_by(&self, range: Range<u32>) -> u32 {
        let mut runs = 0;
        let mut joins = range.start.checked_sub(1).is_some_and(|before| self.blocks.contains_key(&before));
        for index in range {
            let known = self.blocks.contains_key(&index);
            runs += u32::from(!known && !joins);
            joins = true;
        }
        runs
    }

    /// Adds to what its transaction changes.
    pub(crate) fn charge(&mut self, credits: u32) {
        self.credits = self.credits.saturating_add(credits);
    }

    /// Changes bytes of a block from `at` on. `base` is what it holds, should it not be here.
    pub(crate) fn change(&mut self, index: u32, at: usize, bytes: &[u8], base: Option<Rc<Memory>>) {
        let base = || base.unwrap_or_else(|| Rc::new(Memory::new(BLOCK_BYTES)));
        let content = self.blocks.entry(index).or_insert_with(base);
        Rc::make_mut(content)[at..at + bytes.len()].copy_from_slice(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_counted_as_they_are_made() {
        let mut update = Update::new(0);
        let mut put = |index: u32| {
            let cost = update.cost_of(index..index + 1, false);
            update.charge(cost);
            update.change(index, 0, &[1], None);
            cost
        };
        assert_eq!(put(4), 1 + MARK_CREDITS);
        assert_eq!(put(5), 1, "it lengthens the run");
        assert_eq!(put(5), 0, "it is here");
        assert_eq!(put(9), 1 + MARK_CREDITS);
        assert_eq!((update.runs(), update.credits()), (vec![4..6, 9..10], 3 + 2 * MARK_CREDITS));
        assert_eq!(update.cost_of(0..12, true), 9, "blocks that are written cost nothing but themselves");
        assert_eq!(update.cost_of(0..12, false), 9 + MARK_CREDITS, "one run");
    }
}
