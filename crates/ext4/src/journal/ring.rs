//! Places in the log, and the numbers of transactions: both go round.

use std::fmt;

/// The number of a transaction. It grows by one a transaction and wraps at 2^32; two numbers that are
/// compared are never half of that apart, since the log holds far fewer transactions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sequence(pub u32);

impl Sequence {
    /// The number `count` transactions later.
    pub fn plus(self, count: u32) -> Self {
        Self(self.0.wrapping_add(count))
    }

    /// The next transaction's number.
    pub fn next(self) -> Self {
        self.plus(1)
    }

    /// Whether this transaction comes after `other`.
    pub fn is_after(self, other: Self) -> bool {
        self.0.wrapping_sub(other.0).cast_signed() > 0
    }
}

impl fmt::Display for Sequence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The blocks of the journal that hold transactions, used as a ring. Places are block numbers in the journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogRing {
    first: u32,
    end: u32,
}

impl LogRing {
    /// The ring from block `first` up to, not including, `end`; `None` if that is empty.
    pub fn new(first: u32, end: u32) -> Option<Self> {
        (first < end).then_some(Self { first, end })
    }

    /// The lowest block.
    pub fn first(&self) -> u32 {
        self.first
    }

    /// How many blocks there are.
    pub fn blocks(&self) -> u32 {
        self.end - self.first
    }

    /// Whether `place` is one of them.
    pub fn contains(&self, place: u32) -> bool {
        (self.first..self.end).contains(&place)
    }

    /// The place `count` blocks after `place`, round the end.
    pub fn advance(&self, place: u32, count: u32) -> u32 {
        let offset = u64::from(place - self.first) + u64::from(count);
        self.first + (offset % u64::from(self.blocks())) as u32
    }

    /// How many blocks lie from `tail` up to, not including, `head`.
    pub fn used(&self, tail: u32, head: u32) -> u32 {
        if head >= tail { head - tail } else { self.blocks() - (tail - head) }
    }

    /// How many blocks may be written at `head` without touching `tail`. One block always stays free, so
    /// that a full log and an empty one differ.
    pub fn free(&self, tail: u32, head: u32) -> u32 {
        self.blocks() - self.used(tail, head) - 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_wrap() {
        let last = Sequence(u32::MAX);
        assert!(last.next().is_after(last) && !last.is_after(last.next()) && !last.is_after(last));
        assert_eq!(last.plus(3), Sequence(2));
    }

    #[test]
    fn places_go_round() {
        let ring = LogRing::new(1, 11).expect("ten blocks");
        assert_eq!((ring.advance(10, 1), ring.advance(10, 10), ring.advance(4, 23)), (1, 10, 7));
        assert_eq!((ring.used(3, 3), ring.used(3, 9), ring.used(9, 3)), (0, 6, 4));
        assert_eq!((ring.free(3, 3), ring.free(9, 8)), (9, 0));
        for tail in 1..11 {
            for count in 0..10 {
                let head = ring.advance(tail, count);
                assert_eq!(ring.used(tail, head), count);
                assert_eq!(ring.free(tail, head), 9 - count);
            }
        }
        assert_eq!(LogRing::new(5, 5), None);
    }
}
