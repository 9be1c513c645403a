//! A *chooser* says which unit of a span is written next.
//!
//! A chooser is cheap to clone, and a clone makes the same choices again: what a round has written is
//! found out afterwards by choosing once more, so that the measured loop keeps no books.

use serde::Serialize;
use weir_runtime::Random;
use weir_workload::Popularity;

/// The exponent of the Zipf distribution: the value that key-value benchmarks have settled on
/// (YCSB, SoCC 2010, section 5.2).
pub const ZIPF_EXPONENT: f64 = 0.99;

/// How choices are spread over the span.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Distribution {
    /// Every unit is equally likely.
    Uniform,
    /// The n-th most popular unit is chosen with a probability proportional to n^-0.99; popular units
    /// are scattered over the span.
    Zipf,
    /// One after the other, and again from the start.
    Sequential,
}

/// Chooses units `0..units`.
#[derive(Clone, Debug)]
pub struct Chooser {
    units: u64,
    kind: Kind,
}

#[derive(Clone, Debug)]
enum Kind {
    Uniform(Random),
    Zipf(Random, Popularity),
    Sequential(u64),
}

impl Chooser {
    /// A chooser over `units` units (at least one; 0 counts as 1).
    #[must_use]
    pub fn new(distribution: Distribution, units: u64, random: Random) -> Chooser {
        let units = units.max(1);
        let kind = match distribution {
            Distribution::Sequential => Kind::Sequential(0),
            Distribution::Uniform => Kind::Uniform(random),
            Distribution::Zipf => Kind::Zipf(random, Popularity::new(units, ZIPF_EXPONENT)),
        };
        Chooser { units, kind }
    }

    /// The next unit.
    #[inline]
    pub fn choose(&mut self) -> u64 {
        match &mut self.kind {
            Kind::Uniform(random) => random.below(self.units),
            Kind::Zipf(random, popularity) => popularity.choose(random),
            Kind::Sequential(next) => {
                let unit = *next;
                *next = (unit + 1) % self.units;
                unit
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use weir_runtime::{Runtime, Simulation};
    use weir_workload::scatter;

    use super::*;

    fn chooser(distribution: Distribution, units: u64, seed: u64) -> Chooser {
        let runtime = Runtime::simulated(Simulation { seed, ..Simulation::default() });
        Chooser::new(distribution, units, runtime.handle().random("chooser"))
    }

    fn counts(distribution: Distribution, units: u64, draws: u64) -> Vec<u64> {
        let mut chooser = chooser(distribution, units, 1);
        let mut counts = vec![0; units as usize];
        (0..draws).for_each(|_| counts[chooser.choose() as usize] += 1);
        counts
    }

    #[test]
    fn the_same_seed_makes_the_same_choices_and_another_does_not() {
        for distribution in [Distribution::Uniform, Distribution::Zipf] {
            let draw = |seed| {
                let mut chooser = chooser(distribution, 1 << 20, seed);
                (0..100).map(|_| chooser.choose()).collect::<Vec<_>>()
            };
            assert_eq!(draw(7), draw(7));
            assert_ne!(draw(7), draw(8));
        }
    }

    #[test]
    fn a_clone_chooses_the_same_again() {
        let mut first = chooser(Distribution::Zipf, 1000, 3);
        first.choose();
        let mut again = first.clone();
        for _ in 0..1000 {
            assert_eq!(first.choose(), again.choose());
        }
    }

    #[test]
    fn uniform_is_flat() {
        let counts = counts(Distribution::Uniform, 100, 100_000);
        // 1,000 each, standard deviation 31.5: six of them on either side.
        assert!(counts.iter().all(|&count| (811..=1189).contains(&count)), "{counts:?}");
    }

    #[test]
    fn zipf_falls_as_its_exponent_says() {
        let draws = 1_000_000;
        let mut counts = counts(Distribution::Zipf, 1000, draws);
        counts.sort_unstable_by(|a, b| b.cmp(a));
        let harmonic: f64 = (1..=1000).map(|n| f64::from(n).powf(-ZIPF_EXPONENT)).sum();
        for rank in [1_usize, 2, 10, 100] {
            let expected = draws as f64 * (rank as f64).powf(-ZIPF_EXPONENT) / harmonic;
            let seen = counts[rank - 1] as f64;
            assert!((seen / expected - 1.0).abs() < 0.1, "rank {rank}: {seen} seen, {expected} expected");
        }
    }

    #[test]
    fn scattering_is_a_permutation() {
        for units in [1, 2, 7, 1024, 4096, 10_000] {
            let seen: BTreeSet<u64> = (0..units).map(|rank| scatter(rank, units)).collect();
            assert_eq!(seen.len() as u64, units);
            assert!(seen.last().is_some_and(|&last| last < units));
        }
    }

    #[test]
    fn sequential_wraps() {
        let mut chooser = chooser(Distribution::Sequential, 3, 1);
        assert_eq!((0..5).map(|_| chooser.choose()).collect::<Vec<_>>(), [0, 1, 2, 0, 1]);
    }
}
