//! Logical pages that are committed to flash and still in the cache, where that replaces by LRU: a read finds them there,
//! and a write of a part of one need not read the rest. What they hold is what the map points to, so their numbers are
//! enough here. They take the places that versions on their way to flash leave.

use std::collections::BTreeMap;
use std::ops::Range;

#[derive(Debug, Default)]
pub(crate) struct CleanPages {
    /// When each was used last, counted in uses.
    used: BTreeMap<u32, u64>,
    /// The same, the least recently used first.
    by_use: BTreeMap<u64, u32>,
    uses: u64,
}

impl CleanPages {
    /// The moment of a use: later ones are larger.
    pub(crate) fn use_now(&mut self) -> u64 {
        self.uses += 1;
        self.uses
    }

    /// A logical page that the host used last at that moment is committed.
    pub(crate) fn keep(&mut self, lpn: u32, used: u64) {
        self.forget(lpn..lpn.saturating_add(1));
        self.used.insert(lpn, used);
        self.by_use.insert(used, lpn);
    }

    /// Whether a logical page is here; it counts as used then.
    pub(crate) fn find(&mut self, lpn: u32) -> bool {
        let found = self.used.contains_key(&lpn);
        if found {
            let now = self.use_now();
            self.keep(lpn, now);
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
        let moments = [1, 2, 3].map(|lpn| (lpn, pages.use_now()));
        // They are committed in another order than they were used.
        moments.into_iter().rev().for_each(|(lpn, used)| pages.keep(lpn, used));
        assert!(pages.find(1) && !pages.find(4));
        pages.shrink_to(2);
        assert!(pages.find(1) && !pages.find(2) && pages.find(3));
        pages.forget(2..4);
        assert!(pages.find(1) && !pages.find(3));
        pages.shrink_to(0);
        assert!(!pages.find(1) && pages.by_use.is_empty());
    }
}
