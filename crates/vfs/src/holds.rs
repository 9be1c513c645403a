//! *Holds*: inodes that stay without a name and without an open file, since a door has told its client of them and
//! the client has not said yet that it has forgotten them. A kernel does so for `O_PATH` descriptors, working
//! directories, mounts of a single file, and for the moment between its lookup and the call that follows.
//!
//! An inode with a hold and without a name stays in memory, on the list of orphans, and undeleted. An inode with a hold
//! and a name costs its place in this table alone: it may leave memory as any other.

use std::cell::RefCell;

use hashbrown::HashTable;

/// A table shrinks when it has so many times more room than inodes.
const SPARSE: usize = 8;
/// A table of so many inodes keeps its room.
const SMALL: usize = 1 << 10;
/// Bytes that an inode takes, at most: 9 in a table that is full to 7 eighths at most and has doubled just now.
pub const HOLD_BYTES: u64 = 21;

/// Holds of inodes, by number. A number is given to no other inode as long as it is here.
#[derive(Default)]
pub struct Holds(RefCell<HashTable<(u32, u32)>>);

/// The same in every run: the numbers are ours, not a stranger's choice.
fn hash(number: u32) -> u64 {
    u64::from(number).wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

impl Holds {
    /// Adds a hold. An inode that has been held 2^32 - 1 times at once stays held until the unmount.
    pub fn add(&self, number: u32) {
        self.add_many(number, 1);
    }

    /// Adds so many holds.
    pub fn add_many(&self, number: u32, count: u32) {
        let table = &mut *self.0.borrow_mut();
        let rehash = |held: &(u32, u32)| hash(held.0);
        let held = table.entry(hash(number), |held| held.0 == number, rehash).or_insert((number, 0));
        let held = held.into_mut();
        held.1 = held.1.saturating_add(count);
    }

    /// Takes up to `count` holds back. Whether the inode had some and has none left.
    pub fn remove(&self, number: u32, count: u64) -> bool {
        let table = &mut *self.0.borrow_mut();
        let Ok(mut held) = table.find_entry(hash(number), |held| held.0 == number) else { return false };
        let left = u64::from(held.get().1).saturating_sub(count);
        if held.get().1 == u32::MAX {
            return false;
        }
        if let Some(left) = u32::try_from(left).ok().filter(|left| *left > 0) {
            held.get_mut().1 = left;
            return false;
        }
        held.remove();
        if table.len() < table.capacity() / SPARSE && table.capacity() > SMALL {
            let room = 2 * table.len();
            table.shrink_to(room, |held| hash(held.0));
        }
        true
    }

    /// The numbers of all inodes that have holds, ascending.
    pub fn list(&self) -> Vec<u32> {
        let mut numbers: Vec<u32> = self.0.borrow().iter().map(|held| held.0).collect();
        numbers.sort_unstable();
        numbers
    }

    /// The same, with how many each has.
    pub fn counts(&self) -> Vec<(u32, u32)> {
        let mut counts: Vec<(u32, u32)> = self.0.borrow().iter().copied().collect();
        counts.sort_unstable();
        counts
    }

    /// Whether an inode has holds.
    pub fn contains(&self, number: u32) -> bool {
        self.0.borrow().find(hash(number), |held| held.0 == number).is_some()
    }

    /// Inodes that have holds.
    pub fn inodes(&self) -> usize {
        self.0.borrow().len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_inode_is_held_until_all_is_taken_back() {
        let holds = Holds::default();
        holds.add_many(12, 2);
        holds.add(13);
        assert_eq!(holds.counts(), [(12, 2), (13, 1)]);
        assert!(!holds.remove(12, 1) && holds.contains(12));
        assert!(holds.remove(12, 1) && !holds.contains(12));
        assert_eq!(holds.inodes(), 1);
        // More than there is, and of what is not there.
        assert!(holds.remove(13, u64::MAX));
        assert!(!holds.remove(13, 1) && !holds.remove(0, 0));
        assert_eq!(holds.inodes(), 0);
    }

    #[test]
    fn a_count_that_is_full_is_never_taken_back() {
        let holds = Holds::default();
        holds.add(12);
        holds.0.borrow_mut().iter_mut().for_each(|held| held.1 = u32::MAX - 1);
        holds.add(12);
        holds.add(12);
        assert!(!holds.remove(12, u64::MAX) && holds.contains(12));
    }

    #[test]
    fn the_table_is_as_large_as_what_it_holds() {
        let holds = Holds::default();
        let bytes = |holds: &Holds| holds.0.borrow().allocation_size() as u64;
        for number in 1..=100_000 {
            holds.add(number);
            assert!(
                number < 1000 || bytes(&holds) <= u64::from(number) * HOLD_BYTES,
                "{number}: {}",
                bytes(&holds)
            );
        }
        (1..=99_900).for_each(|number| assert!(holds.remove(number, 1)));
        assert!((99_901..=100_000).all(|number| holds.contains(number)));
        assert!(bytes(&holds) < 64 << 10, "{}", bytes(&holds));
    }
}
