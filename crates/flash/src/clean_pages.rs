//! Logical pages that are committed to flash and still in the cache, where that replaces by LRU: a read finds them there,
//! and a write of a part of one need not read the rest. What they hold is what the map points to, so their numbers are
//! enough here. They take the places that versions on their way to flash leave.

use std::collections::BTreeMap;
use std::ops::Range;

/// When a logical page was used: the newest version then, and how many reads came since.
type Moment = (u64, u64);

#[derive(Debug, Default)]
pub(crate) struct CleanPages {
    /// When each was used last.
    used: BTreeMap<u32, Moment>,
    /// The same, the least recently used first.
    by_use: BTreeMap<Moment, u32>,
    now: Moment,
}

impl CleanPages {
    /// A version of a logical page, or a record, enters the cache.
    pub(crate) fn written(&mut self, lpn: u32, version: u64, is_record: bool) {
        self.now = (version, 0);
        if !is_record {
            self.forget(lpn..lpn.saturating_add(1));
        }
    }

    /// A version is committed.
    pub(crate) fn keep(&mut self, lpn: u32, version: u64) {
        self.keep_since(lpn, (version, 0));
    }

    fn keep_since(&mut self, lpn: u32, used: Moment) {
        self.forget(lpn..lpn.saturating_add(1));
        self.used.insert(lpn, used);
        self.by_use.insert(used, lpn);
    }

    /// Whether a logical page is here; it counts as used then.
    pub(crate) fn find(&mut self, lpn: u32) -> bool {
        let found = self.used.contains_key(&lpn);
        if found {
            self.now.1 += 1;
            self.keep_since(lpn, self.now);
        }
        found
    }

    /// Logical pages have newer versions, or none.
    pub(crate) fn forget(&mut self, lpns: Range<u32>) {
        let found: Vec<u32> = self.used.range(lpns).map(|(lpn, _)| *lpn).collect();
        for lpn in found {
            let used = self.used.remove(&lpn);
            used.map(|used| self.by_use.remove(&used));
        }
    }

    /// Leaves so many places at most.
    pub(crate) fn shrink_to(&mut self, places: usize) {
        while self.used.len() > places {
            let Some((_, lpn)) = self.by_use.pop_first() else { return };
            self.used.remove(&lpn);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_recently_used_goes_first() {
        let mut pages = CleanPages::default();
        (1..4).for_each(|lpn| pages.written(lpn, u64::from(lpn), false));
        // They are committed in another order than they were used.
        (1..4).rev().for_each(|lpn| pages.keep(lpn, u64::from(lpn)));
        assert!(pages.find(1) && !pages.find(4));
        pages.shrink_to(2);
        assert!(pages.find(1) && !pages.find(2) && pages.find(3));
        pages.forget(2..4);
        assert!(pages.find(1) && !pages.find(3));
        pages.shrink_to(0);
        assert!(!pages.find(1) && pages.by_use.is_empty());
    }
}
