//! *Variants* are series of a phone's programs, each on several filesystems (`[variants]` in `figure.toml`). A program
//! is a row, or all of them are one.

use std::sync::Arc;

use serde::Deserialize;
use weir_flash::Changes;

use crate::application::{App, Application};
use crate::calls::On;
use crate::experiment::Experiment;
use crate::inserts::{Inserts, Journal, Synchronous, Syncs, Table};
use crate::series::Series;
use crate::take::Take;

/// The programs, and the series that are run for them.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Variants {
    /// The programs.
    pub programs: Vec<Program>,
    /// The series.
    pub series: Vec<VariantSeries>,
}

/// What runs on a phone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Program {
    /// Real SQLite alone, as Android configured it: inserts, each in a transaction of its own.
    Sqlite,
    /// An application.
    #[serde(untagged)]
    App(App),
}

/// A filesystem, by the eMMC paper's letter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub enum Variant {
    /// The baseline: ext4's journal, with flush and FUA.
    B,
    /// Flush-ahead commit.
    F,
    /// Journal coalition.
    J,
    /// Both.
    C,
    /// No journal.
    N,
}

/// One series.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VariantSeries {
    /// The filesystem.
    pub variant: Variant,
    /// If set, the share in percent of what the program gives on this one.
    #[serde(default)]
    pub over: Option<Variant>,
    /// The name of the metric that is shown.
    pub measure: String,
    /// What that is called in the series' name.
    pub what: String,
    /// What is made of the programs.
    #[serde(default)]
    pub take: Take,
    /// Other values of the device's keys; see [`Series::vary`].
    #[serde(default)]
    pub vary: Changes,
    /// Fewer programs than all.
    #[serde(default)]
    pub programs: Option<Vec<Program>>,
}

impl Variant {
    fn on(self) -> On {
        match self {
            Variant::B => On::Ext4,
            Variant::F => On::FlushAhead,
            Variant::J => On::Coalition,
            Variant::C => On::CoalitionFlushAhead,
            Variant::N => On::Unjournaled,
        }
    }
}

impl Program {
    fn name(self) -> &'static str {
        match self {
            Program::Sqlite => "sqlite",
            Program::App(app) => app.name(),
        }
    }

    fn experiment(self, variant: Variant) -> Arc<dyn Experiment> {
        let on = variant.on();
        match self {
            Program::App(app) => Arc::new(Application { on, app }),
            Program::Sqlite => Arc::new(Inserts {
                on,
                journal: Journal::Truncate,
                synchronous: Synchronous::Full,
                syncs: Syncs::Whole,
                table: Table::Plain,
                program_us: 0,
            }),
        }
    }
}

impl Variants {
    /// The series that a figure has in its place.
    pub(crate) fn all(&self) -> Vec<Series> {
        self.series.iter().flat_map(|series| self.of(series)).collect()
    }

    fn of(&self, series: &VariantSeries) -> Vec<Series> {
        let programs = series.programs.as_ref().unwrap_or(&self.programs);
        if series.take == Take::Each {
            return programs.iter().filter_map(|program| series.of(program.name(), &[*program])).collect();
        }
        series.of(series.take.name(), programs).into_iter().collect()
    }
}

impl VariantSeries {
    /// One row of these programs.
    fn of(&self, name: &str, programs: &[Program]) -> Option<Series> {
        let VariantSeries { variant, over, measure, what, take, .. } = self;
        let beside = over.map(|over| format!(" over {over:?}")).unwrap_or_default();
        let all = programs
            .iter()
            .map(|program| (program.experiment(*variant), over.map(|over| program.experiment(over))));
        let series = Series::of_several(format!("{variant:?}{beside}, {what}: {name}"), *take, measure, all)?;
        Some(Series { vary: self.vary.clone(), ..series })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const VARIANTS: &str = r#"
programs = ["facebook", "sqlite"]

[[series]]
variant = "B"
measure = "journal-ratio"
what = "journal blocks"
programs = ["facebook", "gmail", "chrome"]

[[series]]
variant = "B"
over = "B"
measure = "written"
what = "written"
take = "most"
"#;

    #[test]
    fn a_program_is_a_row_or_all_are_one() {
        let variants: Variants = toml::from_str(VARIANTS).unwrap();
        let all = variants.all();
        let names: Vec<&str> = all.iter().map(|series| series.name.as_str()).collect();
        let of_each =
            ["B, journal blocks: facebook", "B, journal blocks: gmail", "B, journal blocks: chrome"];
        assert_eq!(names, [of_each.as_slice(), &["B over B, written: most"]].concat());
        assert!(all.iter().take(3).all(|series| series.over.is_none() && series.rest.is_empty()));
        let facebook = Program::App(App::Facebook).experiment(Variant::B);
        assert_eq!(format!("{:?}", all[3].over), format!("{:?}", Some(facebook)));
        let sqlite = || Program::Sqlite.experiment(Variant::B);
        assert_eq!(format!("{:?}", all[3].rest), format!("{:?}", [(sqlite(), Some(sqlite()))]));
    }
}
