//! How *popular* units are: the n-th most popular of them is chosen with a probability proportional to n^-s, and popular
//! units are scattered over the span.

use rand_distr::{Distribution as _, Zipf};
use weir_runtime::Random;

/// A prime above any span (2^61 - 1): multiplying by it modulo a smaller number of units is a permutation,
/// and scatters neighbouring ranks.
const SCATTER: u128 = (1 << 61) - 1;

/// Chooses units of a span by a Zipf distribution.
#[derive(Clone, Copy, Debug)]
pub struct Popularity {
    units: u64,
    /// None where all units are equally popular.
    zipf: Option<Zipf<f64>>,
}

impl Popularity {
    /// Of so many units (at least one; 0 counts as 1), with this exponent. With 0, or less, all are equally popular.
    #[must_use]
    pub fn new(units: u64, exponent: f64) -> Popularity {
        let units = units.max(1);
        let zipf = if exponent > 0.0 { Zipf::new(units as f64, exponent).ok() } else { None };
        Popularity { units, zipf }
    }

    /// The rank of a unit that chance draws, from 0, which is the most popular one.
    #[inline]
    pub fn rank(&self, random: &mut Random) -> u64 {
        match &self.zipf {
            Some(zipf) => (zipf.sample(random) as u64 - 1).min(self.units - 1),
            None => random.below(self.units),
        }
    }

    /// A unit that chance draws.
    #[inline]
    pub fn choose(&self, random: &mut Random) -> u64 {
        scatter(self.rank(random), self.units)
    }
}

/// Where the unit of popularity `rank` lies.
#[must_use]
pub fn scatter(rank: u64, units: u64) -> u64 {
    (u128::from(rank) * SCATTER % u128::from(units.max(1))) as u64
}
