//! Shares that go through the map's log as a write does (key `ftl.share_by`, word `log`).
//!
//! The record of such a share enters the cache beside other data, takes a slot of a page as a block does, and is volatile
//! until then. It is answered when it is in the cache. F8 keeps it right:
//!
//! 1. A share is serviced when the cache has no version of a block that it names: its sources are committed.
//! 2. From then on until its record is committed, a command that changes a block that it names waits, and so does another share
//!    that names one. So what the record renames is the same whenever a power cut lets recovery find it.
//! 3. Until then the map has the old names, and a read of a target reads the source.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use crate::cache::Cache;
use crate::map::Pair;
use crate::mutants::{FlashMutant, FlashRules};
use crate::queue::Queued;

/// Shares that are serviced and not committed.
pub(crate) struct Shares {
    /// The blocks that they name; each is named by one share.
    named: BTreeSet<u32>,
    /// The source of each target whose record is in the cache.
    sources: BTreeMap<u32, u32>,
    rules: FlashRules,
}

impl Shares {
    pub(crate) fn new(rules: FlashRules) -> Shares {
        Shares { named: BTreeSet::new(), sources: BTreeMap::new(), rules }
    }

    /// Whether a command waits for a share that is serviced, or, if it is one itself, for what the cache has of its blocks.
    pub(crate) fn holds_back(&self, command: &Queued, cache: &Cache) -> bool {
        let named = || command.logged_pairs().into_iter().flatten().flat_map(Pair::blocks);
        let uncommitted = |block| cache.has(block) && !self.rules.drops(FlashMutant::ShareAhead);
        self.are_changed_by(command) || named().any(|block| self.named.contains(&block) || uncommitted(block))
    }

    fn are_changed_by(&self, command: &Queued) -> bool {
        let passes = self.named.is_empty() || self.rules.drops(FlashMutant::SharePassed);
        !passes && command.changes(&self.named)
    }

    /// A share is serviced.
    pub(crate) fn begin(&mut self, pairs: &[Pair]) {
        self.named.extend(pairs.iter().flat_map(Pair::blocks));
    }

    /// Its record enters the cache.
    pub(crate) fn enter(&mut self, pairs: &[Pair]) {
        self.sources.extend(pairs.iter().map(|pair| (pair.to, pair.from)));
    }

    /// Its record is committed: the map has the new names.
    pub(crate) fn commit(&mut self, pairs: &Rc<[Pair]>) {
        for pair in pairs.iter() {
            self.sources.remove(&pair.to);
            pair.blocks().into_iter().for_each(|block| {
                self.named.remove(&block);
            });
        }
    }

    /// The block whose content a read of `lpn` finds where the cache has none: the map does not have all names yet.
    pub(crate) fn source_of(&self, lpn: u32) -> u32 {
        match self.sources.get(&lpn) {
            Some(source) if !self.rules.drops(FlashMutant::ShareUnseen) => *source,
            _ => lpn,
        }
    }
}
