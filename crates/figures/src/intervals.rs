//! *Intervals* are series of [`Fio`] for several journal modes, each with several intervals between two `fsync`
//! (`[intervals]` in `figure.toml`). An interval is a row, or all of them are one.

use serde::Deserialize;

use crate::calls::On;
use crate::fio::Fio;
use crate::mounting::{Mode, Mounting};
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
}

/// A way, and what it is shown as a share of.
pub(crate) type Compared = (Fio, Option<Fio>);

impl Intervals {
    /// The series' names, and what is run for each.
    pub(crate) fn all(&self) -> Vec<(String, Take, Vec<Compared>)> {
        self.series.iter().flat_map(|paced| self.of(paced)).collect()
    }

    fn of(&self, paced: &Paced) -> Vec<(String, Take, Vec<Compared>)> {
        let Paced { mode, over, take } = *paced;
        let name = over.map_or_else(|| mode.to_string(), |over| format!("{mode} over {over}"));
        let compared = |fsync_every: &u32| {
            let fio = |mode| self.fio(mode, *fsync_every);
            (fio(mode), over.map(fio))
        };
        let ways: Vec<Compared> = self.fsync_every.iter().map(compared).collect();
        if take == Take::Each {
            let row = |way: Compared| (format!("{name}, fsync/{}", way.0.fsync_every), take, vec![way]);
            return ways.into_iter().map(row).collect();
        }
        vec![(format!("{name}, {}", take.name()), take, ways)]
    }

    fn fio(&self, mode: Mode, fsync_every: u32) -> Fio {
        let Intervals { journal_mib, files, file_writes, .. } = *self;
        let on = Mounting { mode, journal_mib, ..Mounting::of(On::Ext4) };
        Fio { on, files, file_writes, fsync_every }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INTERVALS: &str = r#"
fsync_every = [1, 128]
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
        let names: Vec<&str> = all.iter().map(|(name, ..)| name.as_str()).collect();
        assert_eq!(names, ["DJ, fsync/1", "DJ, fsync/128", "DJ over OJ, mean"]);
        let each: Vec<(u32, Option<Mode>)> =
            all[2].2.iter().map(|(way, over)| (way.fsync_every, over.map(|over| over.on.mode))).collect();
        assert_eq!(each, [(1, Some(Mode::OJ)), (128, Some(Mode::OJ))]);
        assert_eq!(all[1].2, [(intervals.fio(Mode::DJ, 128), None)]);
    }
}
