//! An *update*: what was written to an atomic file since it was synchronised last. It is in memory only, and goes into
//! the journal as a whole, in one transaction ([`atomic`](crate::atomic)).

use std::cell::Cell;
use std::ops::Range;
use std::rc::Rc;

use weir_cache::StagedPages;
use weir_runtime::Buffer as Memory;

/// Journaled blocks that marking a run of unwritten blocks as written changes at most, in the tree of a file, beside a
/// node for each [`BLOCKS_A_NODE`].
const MARK_CREDITS: u32 = 8;
/// Blocks whose extents one node of a tree holds at least, should each be an extent by itself: fewer than it has room
/// for, as it may be divided.
const BLOCKS_A_NODE: u32 = 64;

/// The update of one file.
pub(crate) struct Update {
    /// Blocks and size as they are to be.
    pub(crate) staged: StagedPages,
    /// Journaled blocks that its transaction changes at most, and what those of all updates count together.
    credits: u32,
    room: Rc<Cell<u32>>,
    /// Where the last run of unwritten blocks ends: a run that continues there is the same run.
    marks_to: Option<u32>,
}

/// An update as it goes into a transaction.
pub(crate) struct ToCommit {
    /// Blocks as they are to be.
    pub(crate) blocks: Vec<(u32, Rc<Memory>)>,
    /// The blocks as ranges that do not touch.
    pub(crate) runs: Vec<Range<u32>>,
    pub(crate) size: u64,
    pub(crate) credits: u32,
}

impl Update {
    /// An empty one, of a file of `size` bytes. What it is charged with counts as taken `room` until it is dropped.
    pub(crate) fn new(size: u64, room: &Rc<Cell<u32>>) -> Update {
        Update { staged: StagedPages::new(size), credits: 0, room: Rc::clone(room), marks_to: None }
    }

    /// As it is now.
    pub(crate) fn to_commit(&self) -> ToCommit {
        let blocks = self.staged.all().map(|(index, content)| (index, Rc::clone(content))).collect();
        ToCommit { blocks, runs: self.runs(), size: self.staged.size(), credits: self.credits }
    }

    /// The changed blocks as ranges that do not touch.
    fn runs(&self) -> Vec<Range<u32>> {
        let mut runs: Vec<Range<u32>> = Vec::new();
        for (index, _) in self.staged.all() {
            match runs.last_mut() {
                Some(run) if run.end == index => run.end += 1,
                _ => runs.push(index..index + 1),
            }
        }
        runs
    }

    /// Journaled blocks that a range costs which is the first of an update; `written` says that its blocks are mapped and
    /// written.
    pub(crate) fn cost_of_first(range: Range<u32>, written: bool) -> u32 {
        let blocks = range.len() as u32;
        blocks.saturating_add(if written { 0 } else { MARK_CREDITS + blocks.div_ceil(BLOCKS_A_NODE) })
    }

    /// What it would cost more to change a range, too.
    pub(crate) fn cost_of(&self, range: Range<u32>, written: bool) -> u32 {
        let known = self.staged.pages_in(range.clone()).count() as u32;
        let fresh = range.len() as u32 - known;
        let nodes = range.end / BLOCKS_A_NODE - range.start / BLOCKS_A_NODE;
        let continues = self.marks_to == Some(range.start);
        match (written || fresh == 0, continues) {
            (true, _) => fresh,
            (false, true) => fresh.saturating_add(nodes),
            // Those that are known may lie between others.
            (false, false) => {
                fresh.saturating_add((1 + known).saturating_mul(MARK_CREDITS)).saturating_add(nodes)
            }
        }
    }

    /// A run of unwritten blocks ends there.
    pub(crate) fn marks_to(&mut self, end: u32) {
        self.marks_to = Some(end);
    }

    /// Adds to what its transaction changes: room that was taken for it.
    pub(crate) fn charge(&mut self, credits: u32) {
        self.credits += credits;
    }
}

impl Drop for Update {
    fn drop(&mut self) {
        self.room.set(self.room.get() - self.credits);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_charged_is_given_back() {
        let room = Rc::new(Cell::new(100));
        let mut update = Update::new(0, &room);
        update.charge(60);
        drop(update);
        assert_eq!(room.get(), 40);
    }

    #[test]
    fn a_run_that_goes_on_is_marked_once() {
        let mut update = Update::new(0, &Rc::new(Cell::new(1000)));
        let mut put = |index: u32, written: bool| {
            let cost = update.cost_of(index..index + 1, written);
            update.charge(cost);
            update.staged.change(index, 0, &[1], None);
            if !written {
                update.marks_to(index + 1);
            }
            cost
        };
        assert_eq!(put(4, false), 1 + MARK_CREDITS);
        assert_eq!(put(5, false), 1, "it lengthens the run");
        assert_eq!(put(5, false), 0, "it is here");
        assert_eq!(put(9, true), 1);
        assert_eq!(
            put(10, false),
            1 + MARK_CREDITS,
            "the block before was written, so it is a run of its own"
        );
        assert_eq!(update.runs(), [4..6, 9..11]);
        assert_eq!(update.cost_of(11..139, false), 128 + 2, "a node for each 64");
        assert_eq!(update.cost_of(0..130, true), 126, "blocks that are written cost nothing but themselves");
    }
}
