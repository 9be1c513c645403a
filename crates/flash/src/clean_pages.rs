//! Logical pages that are committed to flash and still in the cache, where that replaces by LRU: a read finds them there,
//! and a write of a part of one need not read the rest. What they hold is what the map points to, so their numbers are
//! enough here. They take the places that versions on their way to flash leave.

use std::collections::BTreeMap;

#[derive(Debug, Default)]
pub(crate) struct CleanPages {
    /// When each was used last, counted in uses.
    used: BTreeMap<u32, u64>,
    /// The same, the least recently used first.
    by_use: BTreeMap<u64, u32>,
    uses: u64,
}

impl CleanPages {
    /// A logical page is committed, or used again.
    pub(crate) fn keep(&mut self, lpn: u32) {
        self.uses += 1;
        if let Some(before) = self.used.insert(lpn, self.uses) {
            self.by_use.remove(&before);
        }
        self.by_use.insert(self.uses, lpn);
    }

    /// Whether a logical page is here; it counts as used then.
    pub(crate) fn find(&mut self, lpn: u32) -> bool {
        let found = self.used.contains_key(&lpn);
        if found {
            self.keep(lpn);
        }
        found
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
        [1, 2, 3].into_iter().for_each(|lpn| pages.keep(lpn));
        assert!(pages.find(1) && !pages.find(4));
        pages.shrink_to(2);
        assert!(pages.find(1) && !pages.find(2) && pages.find(3));
        pages.shrink_to(0);
        assert!(!pages.find(1) && pages.by_use.is_empty());
    }
}
