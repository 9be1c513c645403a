//! What is *taken* of several results: each of them, or one number.

use serde::Deserialize;

/// What is made of several results.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Take {
    /// Each is a row.
    #[default]
    Each,
    /// Their mean is the row.
    Mean,
    /// The greatest of them is the row.
    Most,
    /// The least of them is the row.
    Least,
}

impl Take {
    /// What it is called in the names of rows.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Take::Each => "each",
            Take::Mean => "mean",
            Take::Most => "most",
            Take::Least => "least",
        }
    }

    /// One of several; of the first where each is a row.
    pub(crate) fn of(self, values: &[f64]) -> f64 {
        let all = || values.iter().copied();
        match self {
            Take::Each => all().next().unwrap_or(f64::NAN),
            Take::Mean => all().sum::<f64>() / values.len() as f64,
            Take::Most => all().fold(f64::NAN, f64::max),
            Take::Least => all().fold(f64::NAN, f64::min),
        }
    }
}

/// The median: as many results are above it as below; not a number of none.
pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = [values.len().saturating_sub(1) / 2, values.len() / 2];
    let [low, high] = middle.map(|at| values.get(at).copied().unwrap_or(f64::NAN));
    f64::midpoint(low, high)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_results_are_one() {
        let of = |take: Take| take.of(&[2.0, -1.0, 5.0]);
        assert_eq!([Take::Each, Take::Mean, Take::Most, Take::Least].map(of), [2.0, 2.0, 5.0, -1.0]);
    }

    #[test]
    fn a_median_is_in_the_middle() {
        assert_eq!(median(vec![7.0]), 7.0);
        assert_eq!(median(vec![9.0, -1.0, 5.0]), 5.0);
        assert_eq!(median(vec![9.0, -1.0, 5.0, 6.0]), 5.5);
        assert!(median(Vec::new()).is_nan());
    }
}
