//! A *series* of a figure: a way to write, on devices as their profiles have them or with another barrier mechanism or
//! ordered service, and what of the run is shown.

use serde::Deserialize;

use crate::crash_test::CrashTest;
use crate::intervals::Compared;
use crate::measure::Measure;
use crate::take::Take;
use crate::way::Way;

/// One series: how it is run, and what is shown of it.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Series {
    /// Its name in the figure.
    pub name: String,
    /// The way to write.
    pub way: Way,
    /// Further ways that make one row with it, each with what it is shown as a share of.
    #[serde(skip)]
    pub rest: Vec<(Way, Option<Way>)>,
    /// What is made of them.
    #[serde(skip)]
    pub take: Take,
    /// What is shown.
    pub measure: Measure,
    /// If set, the share in percent of what this way gives on the device as its profile has it.
    #[serde(default)]
    pub over: Option<Way>,
    /// What `over` is called in the unit, if not by its filesystem.
    #[serde(skip)]
    pub over_name: Option<String>,
    /// Another barrier mechanism than the profile's for `over`.
    #[serde(default)]
    pub over_mechanism: Option<String>,
    /// The devices it is run on; all of the figure's if it is left out.
    #[serde(default)]
    pub devices: Option<Vec<String>>,
    /// Another barrier mechanism than the profile's, by its name there.
    #[serde(default)]
    pub mechanism: Option<String>,
    /// Another ordered service than the profile's: `none`, `serial` or `pipelined`.
    #[serde(default)]
    pub service: Option<String>,
    /// What a barrier costs on top, as a share of the time that a write occupies the device: the assumption
    /// of the papers.
    #[serde(default)]
    pub penalty: Option<f64>,
}

impl Series {
    /// A way on all of the figure's devices, as their profiles have them.
    pub(crate) fn new(name: String, way: Way, measure: Measure) -> Series {
        Series {
            name,
            way,
            rest: Vec::new(),
            take: Take::default(),
            measure,
            over: None,
            over_name: None,
            over_mechanism: None,
            devices: None,
            mechanism: None,
            service: None,
            penalty: None,
        }
    }

    /// Writes a second of fio.
    pub(crate) fn of_fio(name: String, take: Take, ways: &[Compared]) -> Option<Series> {
        let ways = ways.iter().map(|(way, over)| (Way::Fio(*way), over.map(Way::Fio)));
        let mut ways: Vec<(Way, Option<Way>)> = ways.collect();
        let first = (!ways.is_empty()).then(|| ways.remove(0))?;
        let series = Series::new(name, first.0, Measure::Iops);
        Some(Series { rest: ways, take, over: first.1, ..series })
    }

    /// What judges say of crash tests, and how many different states they had.
    pub(crate) fn of_crash_test(test: CrashTest) -> [Series; 4] {
        let shown = [
            (Measure::Clean, "clean"),
            (Measure::Fixed, "fixed"),
            (Measure::Failed, "failed"),
            (Measure::States, "different states"),
        ];
        shown.map(|(measure, word)| Series::new(format!("{test}, {word}"), Way::Crash(test), measure))
    }

    /// The unit of what is shown.
    #[must_use]
    pub fn unit(&self) -> String {
        match self.over {
            Some(_) if self.measure == Measure::Overhead => self.measure.unit().to_owned(),
            Some(way) => {
                format!("% of {}", self.over_name.clone().unwrap_or_else(|| way.ground()))
            }
            None => self.measure.unit().to_owned(),
        }
    }

    pub(crate) fn is_on(&self, profile: &str) -> bool {
        self.devices.as_ref().is_none_or(|devices| devices.iter().any(|device| device == profile))
    }
}
