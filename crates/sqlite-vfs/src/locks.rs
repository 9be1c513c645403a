//! What the connections of a process share of a file: locks on the database, and the index of its write-ahead log
//! with locks of its own.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{c_int, c_void};

use rusqlite::ffi::{
    SQLITE_LOCK_NONE, SQLITE_LOCK_PENDING, SQLITE_LOCK_RESERVED, SQLITE_LOCK_SHARED, SQLITE_SHM_NLOCK,
};

/// Number of a connection that has the file open.
pub(crate) type ConnectionId = u64;

/// What is shared of one file.
#[derive(Default)]
pub(crate) struct Shared {
    pub(crate) locks: Locks,
    pub(crate) index: Index,
    /// The file is atomic.
    pub(crate) atomic: Cell<bool>,
}

/// Locks on a database, at SQLite's levels: many may have SHARED, one beside them RESERVED or PENDING, and one alone
/// EXCLUSIVE. While there is PENDING, no further connection gets SHARED.
#[derive(Default)]
pub(crate) struct Locks(RefCell<BTreeMap<ConnectionId, c_int>>);

impl Locks {
    /// Raises a lock to `level`; whether that could be.
    pub(crate) fn lock(&self, who: ConnectionId, level: c_int) -> bool {
        let mut held = self.0.borrow_mut();
        if held.get(&who).is_some_and(|mine| *mine >= level) {
            return true;
        }
        let others = held.iter().filter(|(other, _)| **other != who).map(|(_, level)| *level);
        let others = others.max().unwrap_or(SQLITE_LOCK_NONE);
        let (free, least) = match level {
            SQLITE_LOCK_SHARED => (others < SQLITE_LOCK_PENDING, None),
            SQLITE_LOCK_RESERVED => (others < SQLITE_LOCK_RESERVED, None),
            // A caller that wants the lock alone keeps others from taking it, and waits until the present holders have
            // left.
            _ if others < SQLITE_LOCK_RESERVED => (others < SQLITE_LOCK_SHARED, Some(SQLITE_LOCK_PENDING)),
            _ => (false, None),
        };
        if let Some(level) = free.then_some(level).or(least) {
            held.insert(who, level);
        }
        free
    }

    /// Lowers a lock to `level`.
    pub(crate) fn unlock(&self, who: ConnectionId, level: c_int) {
        let mut held = self.0.borrow_mut();
        if level == SQLITE_LOCK_NONE {
            held.remove(&who);
        } else if let Some(mine) = held.get_mut(&who) {
            *mine = level.min(*mine);
        }
    }

    /// Whether one is about to write.
    pub(crate) fn may_write(&self, who: ConnectionId) -> bool {
        self.0.borrow().get(&who).is_some_and(|level| *level >= SQLITE_LOCK_RESERVED)
    }

    /// Whether a connection is about to write.
    pub(crate) fn is_reserved(&self) -> bool {
        self.0.borrow().values().any(|level| *level >= SQLITE_LOCK_RESERVED)
    }
}

/// The index of a write-ahead log: memory in regions, and locks that mean what SQLite wants them to.
#[derive(Default)]
pub(crate) struct Index {
    /// SQLite writes to them by pointers while the process lives.
    regions: RefCell<Vec<Box<[Cell<u64>]>>>,
    users: RefCell<BTreeSet<ConnectionId>>,
    locks: RefCell<[IndexLock; SQLITE_SHM_NLOCK as usize]>,
}

#[derive(Default)]
struct IndexLock {
    exclusive: Option<ConnectionId>,
    shared: BTreeSet<ConnectionId>,
}

impl Index {
    /// The region of this number, of `bytes` bytes, which stays where it is; null if it is not there and is not to
    /// be made.
    pub(crate) fn map(&self, who: ConnectionId, region: usize, bytes: usize, make: bool) -> *mut c_void {
        self.users.borrow_mut().insert(who);
        let mut regions = self.regions.borrow_mut();
        if make && regions.len() <= region {
            let words = bytes.div_ceil(size_of::<u64>());
            regions.resize_with(region + 1, || vec![Cell::new(0); words].into_boxed_slice());
        }
        let found = regions.get(region).filter(|words| words.len() * size_of::<u64>() >= bytes);
        found.map_or(std::ptr::null_mut(), |words| words.as_ptr().cast_mut().cast())
    }

    /// Forgets one that used it; the memory goes with the last.
    pub(crate) fn unmap(&self, who: ConnectionId) {
        for lock in &mut *self.locks.borrow_mut() {
            lock.release(who);
        }
        let mut users = self.users.borrow_mut();
        if users.remove(&who) && users.is_empty() {
            self.regions.borrow_mut().clear();
        }
    }

    /// Takes locks, all or none; whether that could be.
    pub(crate) fn lock(&self, who: ConnectionId, which: std::ops::Range<usize>, exclusive: bool) -> bool {
        let mut locks = self.locks.borrow_mut();
        let Some(locks) = locks.get_mut(which) else { return false };
        let free = locks.iter().all(|lock| lock.is_free(who, exclusive));
        if free {
            for lock in locks {
                if exclusive {
                    lock.exclusive = Some(who);
                } else {
                    lock.shared.insert(who);
                }
            }
        }
        free
    }

    /// Releases locks.
    pub(crate) fn unlock(&self, who: ConnectionId, which: std::ops::Range<usize>) {
        for lock in self.locks.borrow_mut().get_mut(which).into_iter().flatten() {
            lock.release(who);
        }
    }
}

impl IndexLock {
    fn is_free(&self, who: ConnectionId, exclusive: bool) -> bool {
        let alone = self.exclusive.is_none_or(|owner| owner == who);
        alone && (!exclusive || self.shared.iter().all(|sharer| *sharer == who))
    }

    fn release(&mut self, who: ConnectionId) {
        self.exclusive = self.exclusive.filter(|owner| *owner != who);
        self.shared.remove(&who);
    }
}

#[cfg(test)]
mod tests {
    use rusqlite::ffi::SQLITE_LOCK_EXCLUSIVE;

    use super::*;

    #[test]
    fn one_writes_and_many_read() {
        let locks = Locks::default();
        assert!(locks.lock(1, SQLITE_LOCK_SHARED) && locks.lock(2, SQLITE_LOCK_SHARED));
        assert!(!locks.is_reserved());
        assert!(locks.lock(1, SQLITE_LOCK_RESERVED) && locks.is_reserved());
        assert!(!locks.lock(2, SQLITE_LOCK_RESERVED) && !locks.lock(2, SQLITE_LOCK_EXCLUSIVE));
        assert!(locks.lock(3, SQLITE_LOCK_SHARED), "beside RESERVED");
        assert!(!locks.lock(1, SQLITE_LOCK_EXCLUSIVE), "two read");
        assert!(!locks.lock(4, SQLITE_LOCK_SHARED), "not beside PENDING");
        locks.unlock(2, SQLITE_LOCK_NONE);
        assert!(!locks.lock(1, SQLITE_LOCK_EXCLUSIVE), "one reads");
        locks.unlock(3, SQLITE_LOCK_NONE);
        assert!(locks.lock(1, SQLITE_LOCK_EXCLUSIVE) && !locks.lock(2, SQLITE_LOCK_SHARED));
        locks.unlock(1, SQLITE_LOCK_SHARED);
        assert!(locks.lock(2, SQLITE_LOCK_SHARED) && !locks.is_reserved());
    }

    #[test]
    fn locks_of_the_index_are_taken_all_or_none() {
        let index = Index::default();
        assert!(index.lock(1, 3..4, false) && index.lock(2, 3..4, false));
        assert!(!index.lock(1, 2..4, true), "one is shared");
        assert!(index.lock(2, 2..3, true), "nothing was taken");
        index.unlock(2, 2..3);
        index.unlock(2, 3..4);
        assert!(index.lock(1, 2..4, true) && !index.lock(2, 3..4, false));
        index.unmap(1);
        assert!(index.lock(2, 0..8, true) && !index.lock(2, 7..9, true));
    }

    #[test]
    fn regions_stay_until_the_last_has_left() {
        let index = Index::default();
        assert!(index.map(1, 0, 32_768, false).is_null());
        let first = index.map(1, 0, 32_768, true);
        assert!(!first.is_null() && !index.map(2, 5, 32_768, true).is_null());
        assert_eq!(index.map(2, 0, 32_768, false), first);
        index.unmap(1);
        assert_eq!(index.map(2, 0, 32_768, false), first);
        index.unmap(2);
        assert!(index.map(1, 0, 32_768, false).is_null());
    }
}
