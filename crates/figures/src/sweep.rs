//! A *sweep* runs series of random writes for every combination of footprint, size and flush interval (`[sweep]` in
//! `figure.toml`). A combination is a row, or all of them are one.

use std::sync::Arc;

use serde::Deserialize;
use weir_flash::Changes;

use crate::experiment::Experiment;
use crate::random_writes::{RandomWrites, Size};
use crate::series::Series;
use crate::take::Take;

/// The combinations, and the series that are run for them.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sweep {
    /// The areas that are written to, in MiB.
    pub footprints_mib: Vec<u64>,
    /// The sizes of the requests.
    pub sizes: Vec<Size>,
    /// Requests from one flush to the next.
    pub flush_every: Vec<u64>,
    /// The series.
    pub series: Vec<Swept>,
}

/// One series of a sweep.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Swept {
    /// Its name in the figure, to which that of the combination is added where each is a row.
    pub name: String,
    /// The name of the metric that is shown.
    pub measure: String,
    /// What is made of the combinations.
    #[serde(default)]
    pub take: Take,
    /// Another barrier mechanism than the profile's, by its name there.
    #[serde(default)]
    pub mechanism: Option<String>,
    /// If set, the combination with this mechanism is what the result is beside.
    #[serde(default)]
    pub over_mechanism: Option<String>,
    /// As [`Series::vary`].
    #[serde(default)]
    pub vary: Changes,
    /// Fewer footprints than the sweep has.
    #[serde(default)]
    pub footprints_mib: Option<Vec<u64>>,
    /// Fewer sizes than the sweep has.
    #[serde(default)]
    pub sizes: Option<Vec<Size>>,
    /// Fewer flush intervals than the sweep has.
    #[serde(default)]
    pub flush_every: Option<Vec<u64>>,
}

impl Sweep {
    /// The series that a figure has in its place.
    pub(crate) fn all(&self) -> Vec<Series> {
        self.series.iter().flat_map(|swept| self.of(swept)).collect()
    }

    fn of(&self, swept: &Swept) -> Vec<Series> {
        let footprints = swept.footprints_mib.as_ref().unwrap_or(&self.footprints_mib);
        let sizes = swept.sizes.as_ref().unwrap_or(&self.sizes);
        let intervals = swept.flush_every.as_ref().unwrap_or(&self.flush_every);
        let mut all = Vec::new();
        for footprint_mib in footprints.iter().copied() {
            for size in sizes.iter().copied() {
                let writes = |flush_every| RandomWrites { footprint_mib, size, flush_every };
                all.extend(intervals.iter().copied().map(writes));
            }
        }
        if swept.take == Take::Each {
            let row = |writes| swept.series(format!("{}: {writes}", swept.name), &[writes]);
            return all.into_iter().filter_map(row).collect();
        }
        swept.series(swept.name.clone(), &all).into_iter().collect()
    }
}

impl Swept {
    /// One row of these combinations.
    fn series(&self, name: String, combinations: &[RandomWrites]) -> Option<Series> {
        let shared = |writes: &RandomWrites| {
            let experiment: Arc<dyn Experiment> = Arc::new(*writes);
            let over = self.over_mechanism.as_ref().map(|_| Arc::clone(&experiment));
            (experiment, over)
        };
        let all = Series::of_several(name, self.take, &self.measure, combinations.iter().map(shared))?;
        let (over_mechanism, mechanism) = (self.over_mechanism.clone(), self.mechanism.clone());
        Some(Series { over_mechanism, mechanism, vary: self.vary.clone(), ..all })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SWEEP: &str = r#"
footprints_mib = [1, 80]
sizes = ["large", "small"]
flush_every = [1, 4, 16]

[[series]]
name = "a"
measure = "megabytes"

[[series]]
name = "b"
measure = "overhead"
take = "most"
mechanism = "order-preserving-recovery"
over_mechanism = "none"
sizes = ["small"]
flush_every = [16, 4]
"#;

    #[test]
    fn a_combination_is_a_row_or_all_are_one() {
        let sweep: Sweep = toml::from_str(SWEEP).unwrap();
        let series = sweep.all();
        let names: Vec<&str> = series.iter().map(|series| series.name.as_str()).collect();
        assert_eq!(names.len(), 2 * 2 * 3 + 1);
        assert_eq!((names[0], names[4]), ("a: 1 MiB large, flush/1", "a: 1 MiB small, flush/4"));
        assert_eq!(names[12], "b");
        let first = &series[12].experiment;
        let rest = series[12].rest.iter().map(|(experiment, _)| experiment);
        let all: Vec<String> = std::iter::once(first).chain(rest).map(ToString::to_string).collect();
        let expected = [
            "1 MiB small, flush/16",
            "1 MiB small, flush/4",
            "80 MiB small, flush/16",
            "80 MiB small, flush/4",
        ];
        assert_eq!(all, expected);
        assert_eq!(format!("{:?}", series[12].over), format!("{:?}", Some(first)));
    }
}
