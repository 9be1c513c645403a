//! The cache of directory entries: what names stand for, and which names are not there. It has two halves: what
//! is used enters the younger, and when that is full it becomes the older, and the older is forgotten.

use std::collections::BTreeMap;

/// Names in each half: two of them with their places take about 20 MiB.
const HALF_MAX: usize = 1 << 16;
/// Bytes that all of them take at most, if they are not unusually long.
pub const NAMES_BYTES_MAX: u64 = 20 << 20;

/// Names by directory.
struct Half<T> {
    directories: BTreeMap<u32, BTreeMap<Vec<u8>, Option<T>>>,
    names: usize,
}

impl<T> Half<T> {
    const fn new() -> Half<T> {
        Half { directories: BTreeMap::new(), names: 0 }
    }
}

impl<T: Copy> Half<T> {
    fn get(&self, directory: u32, name: &[u8]) -> Option<Option<T>> {
        self.directories.get(&directory)?.get(name).copied()
    }

    fn insert(&mut self, directory: u32, name: &[u8], target: Option<T>) {
        let names = self.directories.entry(directory).or_default();
        self.names += usize::from(names.insert(name.to_vec(), target).is_none());
    }

    fn forget(&mut self, directory: u32) {
        self.names -= self.directories.remove(&directory).map_or(0, |names| names.len());
    }
}

/// What names stand for, as far as it is known.
pub struct NameCache<T> {
    younger: Half<T>,
    older: Half<T>,
}

impl<T> Default for NameCache<T> {
    fn default() -> NameCache<T> {
        NameCache { younger: Half::new(), older: Half::new() }
    }
}

impl<T: Copy> NameCache<T> {
    /// What a name stands for: `Some(None)` if it is known not to be there.
    pub fn get(&mut self, directory: u32, name: &[u8]) -> Option<Option<T>> {
        if let Some(found) = self.younger.get(directory, name) {
            return Some(found);
        }
        let found = self.older.get(directory, name)?;
        self.insert(directory, name, found);
        Some(found)
    }

    /// Notes what a name stands for from now on, or that it is not there.
    pub fn insert(&mut self, directory: u32, name: &[u8], target: Option<T>) {
        if self.younger.names >= HALF_MAX {
            self.older = std::mem::replace(&mut self.younger, Half::new());
        }
        self.younger.insert(directory, name, target);
    }

    /// Forgets the names of a directory that is gone: its number may become another's.
    pub fn forget(&mut self, directory: u32) {
        self.younger.forget(directory);
        self.older.forget(directory);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_used_stays_and_the_rest_goes() {
        let mut cache = NameCache::default();
        cache.insert(2, b"kept", Some(11));
        cache.insert(2, b"left", Some(12));
        for nth in 0..2 * HALF_MAX {
            cache.insert(3, &nth.to_le_bytes(), None);
            assert_eq!(cache.get(2, b"kept"), Some(Some(11)));
        }
        assert_eq!(cache.get(2, b"left"), None);
        assert!(cache.younger.names + cache.older.names <= 2 * HALF_MAX);
    }

    #[test]
    fn a_newer_meaning_hides_an_older_one() {
        let mut cache = NameCache::default();
        cache.insert(2, b"name", Some(11));
        for nth in 0..HALF_MAX {
            cache.insert(3, &nth.to_le_bytes(), None);
        }
        cache.insert(2, b"name", None);
        assert_eq!(cache.get(2, b"name"), Some(None));
        cache.forget(2);
        assert_eq!(cache.get(2, b"name"), None);
    }
}
