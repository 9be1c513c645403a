//! *Intervals* are series of [`Fio`] for several journal modes, each with several intervals between two `fsync`
//! (`[intervals]` in `figure.toml`). An interval is a row, or all of them are one.

use std::sync::Arc;

use serde::Deserialize;

use crate::calls::On;
use crate::experiment::Experiment;
use crate::fio::Fio;
use crate::metric::WRITES;
use crate::mounting::{Mode, Mounting};
use crate::series::Series;
use crate::take::Take;

/// The intervals, what is run at each, and the series.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Intervals {
    /// Writes from one `fsync` to the next.
    pub fsync_every: Vec<u32>,
    /// As [`Mounting::journal_mib`].
    #[serde(default)]
    pub journal_mib: Option<u32>,
    /// As [`Mounting::flusher_s`].
    pub flusher_s: u32,
    /// As [`Fio::files`].
    pub files: u32,
    /// As [`Fio::file_writes`].
    pub file_writes: u32,
    /// The series.
    pub series: Vec<Paced>,
}

/// One series.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Paced {
    /// The journal mode.
    pub mode: Mode,
    /// If set, the share in percent of what this mode gives at the same interval.
    #[serde(default)]
    pub over: Option<Mode>,
    /// What is made of the intervals.
    #[serde(default)]
    pub take: Take,
    /// As [`Mounting::in_background`].
    #[serde(default)]
    pub in_background: bool,
}

impl Intervals {
    /// The series that a figure has in its place.
    pub(crate) fn all(&self) -> Vec<Series> {
        self.series.iter().flat_map(|paced| self.of(paced)).collect()
    }

    fn of(&self, paced: &Paced) -> Vec<Series> {
        let Paced { mode, over, take, in_background } = *paced;
        let mut name = over.map_or_else(|| mode.to_string(), |over| format!("{mode} over {over}"));
        if in_background {
            name.push_str(", checkpoints in the background");
        }
        let row = |what: String, intervals: &[u32]| {
            let of = |fsync_every: &u32| {
                let run = |mode| self.fio(mode, in_background, *fsync_every);
                (run(mode), over.map(run))
            };
            Series::of_several(format!("{name}, {what}"), take, WRITES.name, intervals.iter().map(of))
        };
        if take == Take::Each {
            return self
                .fsync_every
                .iter()
                .filter_map(|every| row(format!("fsync/{every}"), &[*every]))
                .collect();
        }
        row(take.name().to_owned(), &self.fsync_every).into_iter().collect()
    }

    fn fio(&self, mode: Mode, in_background: bool, fsync_every: u32) -> Arc<dyn Experiment> {
        let Intervals { journal_mib, flusher_s, files, file_writes, .. } = *self;
        let on = Mounting { mode, journal_mib, flusher_s, in_background, ..Mounting::of(On::Ext4) };
        Arc::new(Fio { on, files, file_writes, fsync_every })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INTERVALS: &str = r#"
fsync_every = [1, 128]
flusher_s = 6
files = 10
file_writes = 25

[[series]]
mode = "DJ"

[[series]]
mode = "DJ"
over = "OJ"
take = "mean"
"#;

    #[test]
    fn an_interval_is_a_row_or_all_are_one() {
        let intervals: Intervals = toml::from_str(INTERVALS).unwrap();
        let all = intervals.all();
        let names: Vec<&str> = all.iter().map(|series| series.name.as_str()).collect();
        assert_eq!(names, ["DJ, fsync/1", "DJ, fsync/128", "DJ over OJ, mean"]);
        let seen = |experiment: &Arc<dyn Experiment>| format!("{experiment:?}");
        let fio = |mode, every| seen(&intervals.fio(mode, false, every));
        assert_eq!(seen(&all[1].experiment), fio(Mode::DJ, 128));
        assert!(all[1].over.is_none() && all[1].rest.is_empty());
        let pairs =
            [(&all[2].experiment, all[2].over.as_ref()), (&all[2].rest[0].0, all[2].rest[0].1.as_ref())];
        let pairs = pairs.map(|(experiment, over)| (seen(experiment), over.map(seen)));
        assert_eq!(pairs, [1, 128].map(|every| (fio(Mode::DJ, every), Some(fio(Mode::OJ, every)))));
        assert_eq!(all[2].rest.len(), 1);
    }
}
