//! The trace hash: one word that stands for everything that happened in a simulated run.
//!
//! Two runs with the same seed and the same program have the same hash, in any process on any machine. Equal
//! hashes are how a replay proves that it is one.

use std::cell::Cell;

/// An odd constant with well spread bits (2^64 divided by the golden ratio).
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;

/// Accumulates words, order matters.
#[derive(Debug, Default)]
pub(crate) struct TraceHash(Cell<u64>);

impl TraceHash {
    pub(crate) fn fold(&self, words: &[u64]) {
        self.0.set(words.iter().fold(self.0.get(), |hash, &word| mix(hash, word)));
    }

    pub(crate) fn value(&self) -> u64 {
        finish(self.0.get())
    }
}

/// One round: cheap, since it runs for every poll.
pub(crate) fn mix(hash: u64, word: u64) -> u64 {
    (hash.rotate_left(23) ^ word).wrapping_mul(SPREAD)
}

/// Spreads what the last rounds left in the upper bits over the whole word.
pub(crate) fn finish(hash: u64) -> u64 {
    let hash = (hash ^ (hash >> 32)).wrapping_mul(SPREAD);
    hash ^ (hash >> 29)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_and_zero_words_count() {
        let of = |words: &[u64]| {
            let hash = TraceHash::default();
            hash.fold(&[1]);
            hash.fold(words);
            hash.value()
        };
        assert_ne!(of(&[1, 2]), of(&[2, 1]));
        assert_ne!(of(&[0]), of(&[]));
        assert_ne!(of(&[0]), of(&[0, 0]));
        assert_eq!(of(&[3, 4]), of(&[3, 4]));
    }
}
