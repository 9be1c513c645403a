//! A *series* of a figure: an experiment, on devices as their profiles have them or with another barrier mechanism or
//! ordered service, and which of its metrics is shown.

use std::sync::Arc;

use serde::{Deserialize, Deserializer};
use weir_flash::Changes;

use crate::crash_test::CrashTest;
use crate::error::FigureError;
use crate::experiment::Experiment;
use crate::host::HostChanges;
use crate::metric::{Metric, OVERHEAD};
use crate::registry::{read, read_option};
use crate::take::Take;

/// An experiment, and what it is shown as a share of.
pub type Beside = (Arc<dyn Experiment>, Option<Arc<dyn Experiment>>);

/// One series: how it is run, and what is shown of it.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Series {
    /// Its name in the figure.
    pub name: String,
    /// What is run.
    #[serde(rename = "way", deserialize_with = "read")]
    pub experiment: Arc<dyn Experiment>,
    /// Further experiments that make one row with it, each with what it is shown as a share of.
    #[serde(default, deserialize_with = "read_several")]
    pub rest: Vec<Beside>,
    /// What is made of them.
    #[serde(default)]
    pub take: Take,
    /// The name of the metric that is shown.
    pub measure: String,
    /// If set, the share in percent of what this experiment gives on the device as its profile has it.
    #[serde(default, deserialize_with = "read_option")]
    pub over: Option<Arc<dyn Experiment>>,
    /// The metric of `over`, if it is not the one that is shown.
    #[serde(default)]
    pub over_measure: Option<String>,
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
    /// Other values of the profile's keys, for what is shown and for what it is shown as a share of: what an explanation assumes.
    #[serde(default)]
    pub vary: Changes,
    /// The same of the host's parameters.
    #[serde(default)]
    pub host_vary: HostChanges,
    /// What a barrier costs on top, as a share of the time that a write occupies the device: the assumption
    /// of the papers.
    #[serde(default)]
    pub penalty: Option<f64>,
}

/// Experiments of a figure's file, each with what it is shown as a share of, if there is one.
fn read_several<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Beside>, D::Error> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Written {
        #[serde(deserialize_with = "read")]
        way: Arc<dyn Experiment>,
        #[serde(default, deserialize_with = "read_option")]
        over: Option<Arc<dyn Experiment>>,
    }
    let written = Vec::<Written>::deserialize(deserializer)?;
    Ok(written.into_iter().map(|Written { way, over }| (way, over)).collect())
}

impl Series {
    /// An experiment on all of the figure's devices, as their profiles have them.
    pub(crate) fn new(name: String, experiment: Arc<dyn Experiment>, measure: &str) -> Series {
        Series {
            name,
            experiment,
            rest: Vec::new(),
            take: Take::default(),
            measure: measure.to_owned(),
            over: None,
            over_measure: None,
            over_name: None,
            over_mechanism: None,
            devices: None,
            mechanism: None,
            service: None,
            vary: Changes::new(),
            host_vary: HostChanges::new(),
            penalty: None,
        }
    }

    /// One row of several experiments, each with what it is shown as a share of; none of none.
    pub(crate) fn of_several(
        name: String,
        take: Take,
        measure: &str,
        mut experiments: impl Iterator<Item = Beside>,
    ) -> Option<Series> {
        let (first, over) = experiments.next()?;
        Some(Series { rest: experiments.collect(), take, over, ..Series::new(name, first, measure) })
    }

    /// What judges say of crash tests, and how many different states they had.
    pub(crate) fn of_crash_test(test: CrashTest) -> [Series; 4] {
        let shown =
            [("clean", "clean"), ("fixed", "fixed"), ("failed", "failed"), ("states", "different states")];
        shown.map(|(measure, word)| Series::new(format!("{}, {word}", test.name()), Arc::new(test), measure))
    }

    /// The metric that is shown; none if the experiment does not give it.
    fn metric(&self) -> Option<Metric> {
        self.experiment.metrics().into_iter().find(|metric| metric.name == self.measure)
    }

    /// Checks that every experiment of the series gives the metric that is shown.
    pub(crate) fn check(&self, figure: &str) -> Result<(), FigureError> {
        let rest = self.rest.iter().map(|(experiment, over)| (experiment, over));
        for (experiment, over) in std::iter::once((&self.experiment, &self.over)).chain(rest) {
            check_metric(figure, experiment, &self.measure)?;
            over.as_ref().map_or(Ok(()), |over| check_metric(figure, over, self.measure_of_over()))?;
        }
        Ok(())
    }

    /// The name of the metric of `over`.
    pub(crate) fn measure_of_over(&self) -> &str {
        self.over_measure.as_ref().unwrap_or(&self.measure)
    }

    /// What is shown of a number beside the one that it is shown as a share of: that share in percent, or how much less it
    /// is.
    pub(crate) fn compare(&self, ours: f64, over: f64) -> f64 {
        let share = 100.0 * ours / over;
        if self.measure == OVERHEAD.name { 100.0 - share } else { share }
    }

    /// The unit of what is shown.
    #[must_use]
    pub fn unit(&self) -> String {
        match &self.over {
            Some(over) if self.measure != OVERHEAD.name => {
                let name = self.over_name.as_ref().or(self.over_measure.as_ref());
                format!("% of {}", name.cloned().unwrap_or_else(|| over.short_name()))
            }
            _ => self.metric().map_or_else(String::new, |metric| metric.unit.to_owned()),
        }
    }

    pub(crate) fn is_on(&self, profile: &str) -> bool {
        self.devices.as_ref().is_none_or(|devices| devices.iter().any(|device| device == profile))
    }
}

/// Checks that an experiment gives a metric.
fn check_metric(figure: &str, experiment: &Arc<dyn Experiment>, measure: &str) -> Result<(), FigureError> {
    let names: Vec<&str> = experiment.metrics().iter().map(|metric| metric.name).collect();
    if names.contains(&measure) {
        return Ok(());
    }
    Err(FigureError::Name {
        file: format!("{figure}/figure.toml"),
        what: "metric",
        name: measure.to_owned(),
        known: names.join(", "),
    })
}
