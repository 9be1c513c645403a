//! Seeded randomness: independent streams, one a label.
//!
//! Components draw from a stream of their own, so that one component's extra draw does not shift what every
//! other one sees.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::convert::Infallible;

use rand::{Rng, SeedableRng, TryRng};
use rand_pcg::Pcg64;
use rustix::io::retry_on_intr;
use rustix::rand::{GetRandomFlags, getrandom};

use crate::trace::{finish, mix};

/// A deterministic random stream: a function of the runtime's seed, its label, and how many streams of that
/// label were taken before. Not for secrets.
#[derive(Clone, Debug)]
pub struct Random(Pcg64);

impl Random {
    pub(crate) fn from_seed(seed: u64) -> Self {
        Random(Pcg64::seed_from_u64(seed))
    }

    /// A number in `0..bound`; 0 if `bound` is 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        // The upper half of a 64 x 64 bit product; the bias is below bound / 2^64.
        ((u128::from(self.0.next_u64()) * u128::from(bound)) >> 64) as u64
    }
}

impl TryRng for Random {
    type Error = Infallible;

    fn try_next_u32(&mut self) -> Result<u32, Infallible> {
        self.0.try_next_u32()
    }

    fn try_next_u64(&mut self) -> Result<u64, Infallible> {
        self.0.try_next_u64()
    }

    fn try_fill_bytes(&mut self, bytes: &mut [u8]) -> Result<(), Infallible> {
        self.0.try_fill_bytes(bytes)
    }
}

/// Hands out the streams of one runtime.
#[derive(Debug)]
pub(crate) struct Streams {
    pub(crate) seed: u64,
    taken: RefCell<BTreeMap<String, u64>>,
}

impl Streams {
    pub(crate) fn new(seed: u64) -> Self {
        Streams { seed, taken: RefCell::default() }
    }

    pub(crate) fn take(&self, label: &str) -> Random {
        let mut taken = self.taken.borrow_mut();
        let nth = taken.entry(label.to_owned()).or_default();
        let named = label.bytes().fold(mix(0, self.seed), |hash, byte| mix(hash, u64::from(byte)));
        let seed = finish(mix(mix(named, label.len() as u64), *nth));
        *nth += 1;
        Random::from_seed(seed)
    }
}

/// Eight bytes from the kernel; `None` where a sandbox forbids the call. The kernel answers so few bytes whole
/// (getrandom(2)).
#[expect(clippy::disallowed_methods, reason = "all others ask here")]
pub(crate) fn kernel_entropy() -> Option<u64> {
    let mut bytes = [0_u8; size_of::<u64>()];
    let filled = retry_on_intr(|| getrandom(&mut bytes, GetRandomFlags::empty())).ok()?;
    (filled == bytes.len()).then_some(u64::from_le_bytes(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn first(seed: u64, labels: &[&str]) -> u64 {
        let streams = Streams::new(seed);
        labels.iter().map(|label| streams.take(label).next_u64()).last().unwrap()
    }

    #[test]
    fn streams_depend_on_seed_label_and_turn_only() {
        assert_eq!(first(1, &["nand"]), first(1, &["nand"]));
        assert_eq!(first(1, &["nand"]), first(1, &["link", "nand"]));
        assert_ne!(first(1, &["nand"]), first(2, &["nand"]));
        assert_ne!(first(1, &["nand"]), first(1, &["link"]));
        assert_ne!(first(1, &["nand"]), first(1, &["nand", "nand"]));
    }

    #[test]
    fn below_stays_below_and_reaches_the_ends() {
        let mut random = Random::from_seed(5);
        let mut seen = [false; 7];
        for _ in 0..1000 {
            seen[random.below(7) as usize] = true;
        }
        assert_eq!(seen, [true; 7]);
        assert_eq!(random.below(0), 0);
    }
}
