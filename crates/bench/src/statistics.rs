//! Medians and spreads over rounds.
//!
//! A disk that other machines share is noisy: one round says little, the median of several says what is
//! usual, and the smallest and largest say how much to believe it.

use serde::Serialize;

/// Median, smallest and largest of some rounds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Spread {
    /// The middle value; of an even number of rounds, the mean of the two middle ones.
    pub median: f64,
    /// The smallest value.
    pub min: f64,
    /// The largest value.
    pub max: f64,
}

impl Spread {
    /// The spread of `values`; `None` if there are none, or one is not a number.
    #[must_use]
    pub fn of(values: impl IntoIterator<Item = f64>) -> Option<Spread> {
        let mut values: Vec<f64> = values.into_iter().collect();
        values.sort_by(f64::total_cmp);
        let (&min, &max) = (values.first()?, values.last()?);
        if !(min.is_finite() && max.is_finite()) {
            return None;
        }
        let upper = values[values.len() / 2];
        let lower = values[(values.len() - 1) / 2];
        Some(Spread { median: f64::midpoint(lower, upper), min, max })
    }

    /// The spread of `over / under`, paired round by round: what disturbs a round disturbs both.
    #[must_use]
    pub fn of_ratios(over: &[f64], under: &[f64]) -> Option<Spread> {
        Spread::of(over.iter().zip(under).map(|(over, under)| over / under))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_in_the_middle() {
        assert_eq!(Spread::of([3.0, 1.0, 2.0]), Some(Spread { median: 2.0, min: 1.0, max: 3.0 }));
        assert_eq!(Spread::of([4.0, 1.0, 2.0, 3.0]), Some(Spread { median: 2.5, min: 1.0, max: 4.0 }));
        assert_eq!(Spread::of([]), None);
    }

    #[test]
    fn ratios_are_paired() {
        // The second round was twice as slow for both: the ratio does not move.
        let spread = Spread::of_ratios(&[10.0, 5.0], &[2.0, 1.0]).unwrap();
        assert_eq!(spread, Spread { median: 5.0, min: 5.0, max: 5.0 });
        assert_eq!(Spread::of_ratios(&[1.0], &[0.0]), None);
    }
}
