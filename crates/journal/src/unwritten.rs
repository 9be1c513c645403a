//! The newest committed content of blocks that is not home yet.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use weir_ext4::journal::Sequence;

use crate::buffer::BufferHead;
use crate::home::WayHome;
use crate::mutants::JournalMutant;
use crate::options::JournalOptions;
use crate::transaction::Logged;

/// A block to be brought home.
pub(crate) struct NotHome {
    /// The newest transaction that holds it, which stays in the log for it.
    pub(crate) sequence: Sequence,
    pub(crate) buffer: Rc<BufferHead>,
    pub(crate) way: WayHome,
}

#[derive(Default)]
struct Blocks {
    by_home: BTreeMap<u64, NotHome>,
    /// The homes of the blocks for which a transaction stays in the log, by its number.
    kept: BTreeMap<u32, BTreeSet<u64>>,
    /// Blocks that are home, while the log still holds them, by the number of the transaction. They stay pinned: a caller that
    /// frees a block revokes it if it is pinned (J5 d).
    home_in_log: BTreeMap<u32, Vec<Rc<BufferHead>>>,
}

impl Blocks {
    fn insert(&mut self, home: u64, block: NotHome) {
        self.kept.entry(block.sequence.0).or_default().insert(home);
        self.by_home.insert(home, block);
    }

    /// Takes a block out, pinned as it is.
    fn take(&mut self, home: u64) -> Option<NotHome> {
        let block = self.by_home.remove(&home)?;
        if let Some(kept) = self.kept.get_mut(&block.sequence.0) {
            kept.remove(&home);
            if kept.is_empty() {
                self.kept.remove(&block.sequence.0);
            }
        }
        Some(block)
    }

    fn remove(&mut self, home: u64) -> Option<NotHome> {
        self.take(home).inspect(|block| block.buffer.unpin())
    }
}

/// Blocks to be brought home, by their homes. Only what is transferred with its commit block comes here (J5 a).
#[derive(Default)]
pub(crate) struct Unwritten(RefCell<Blocks>);

impl Unwritten {
    /// Takes in what a retired transaction holds, and drops what it revokes: those blocks have another owner.
    ///
    /// The SHARE paper does not say what becomes of the pair of a block that is revoked. If it stays in the tree until the next
    /// checkpoint, that remaps the home to a copy that no file owns any more, over file data that was written in place since. This may
    /// be why SOJ may lose what was durable, as the paper says without a reason.
    /// What ours costs is the first loop: a look-up in memory for each block that is revoked.
    pub(crate) fn take_in(&self, logged: &Logged, options: &JournalOptions) {
        let mut blocks = self.0.borrow_mut();
        let outlive = options.rules.drops(JournalMutant::PairsOutliveRevokes);
        for block in logged.revokes.iter().filter(|_| !outlive) {
            drop(blocks.remove(*block));
        }
        for copy in &logged.blocks {
            let (sequence, buffer) = (logged.sequence, Rc::clone(&copy.buffer));
            let mut way = WayHome::of(copy, options);
            let old = blocks.remove(buffer.block());
            if let Some(old) = old.filter(|_| options.rules.drops(JournalMutant::PairsOutOfDate)) {
                way = old.way;
            }
            blocks.insert(buffer.block(), NotHome { sequence, buffer, way });
        }
    }

    /// Shows all of them to `look`, in the order of their homes.
    pub(crate) fn each(&self, mut look: impl FnMut(u64, &NotHome)) {
        self.0.borrow().by_home.iter().for_each(|(home, block)| look(*home, block));
    }

    /// Shows those of `homes` that are not home to `look`.
    pub(crate) fn each_of(&self, homes: &[u64], mut look: impl FnMut(u64, &NotHome)) {
        let blocks = self.0.borrow();
        for home in homes {
            if let Some(block) = blocks.by_home.get(home) {
                look(*home, block);
            }
        }
    }

    /// Whether a transaction has to stay in the log for a block.
    pub(crate) fn keeps(&self, sequence: Sequence) -> bool {
        self.0.borrow().kept.contains_key(&sequence.0)
    }

    /// The blocks for which a transaction has to stay in the log, at most so many of them, in the order of their homes.
    pub(crate) fn kept_by(&self, sequence: Sequence) -> Vec<Rc<BufferHead>> {
        let blocks = self.0.borrow();
        let kept = blocks.kept.get(&sequence.0).into_iter().flatten();
        kept.filter_map(|home| Some(Rc::clone(&blocks.by_home.get(home)?.buffer))).collect()
    }

    /// Blocks are home: forgets them, unless a newer one has come. They stay pinned until the log is freed.
    pub(crate) fn are_home(&self, written: &[(u64, Sequence)], options: &JournalOptions) {
        let mut blocks = self.0.borrow_mut();
        for (home, sequence) in written {
            if blocks.by_home.get(home).is_none_or(|newest| newest.sequence != *sequence) {
                continue;
            }
            let Some(block) = blocks.take(*home) else { continue };
            if options.rules.drops(JournalMutant::HomesUnpinned) {
                block.buffer.unpin();
            } else {
                blocks.home_in_log.entry(sequence.0).or_default().push(block.buffer);
            }
        }
    }

    /// The log's tail has moved behind a transaction: unpins what was home, and in the log up to there.
    pub(crate) fn log_is_freed_to(&self, newest: Sequence) {
        let mut blocks = self.0.borrow_mut();
        blocks.home_in_log.retain(|sequence, home| {
            let stays = Sequence(*sequence).is_after(newest);
            if !stays {
                home.iter().for_each(|buffer| buffer.unpin());
            }
            stays
        });
    }
}
