//! A *figure* is a folder: `figure.toml` says what is run, `paper.toml` what the paper prints, `README.md` what
//! it shows and how it was calibrated. The files are embedded, so that the program needs no checkout.
//!
//! Its *rows* are devices by *series*: a series is a way to write, on the device as its profile has it or with
//! another barrier mechanism or ordered service, and what of the run is shown.

use std::sync::Arc;

use serde::Deserialize;
use weir_flash::{Changes, Mechanism, OrderedService, Parameter, Profile};

use crate::crash_test::CrashTests;
use crate::error::FigureError;
use crate::experiment::Experiment;
use crate::host::Host;
use crate::intervals::Intervals;
use crate::paper::{Paper, Printed};
use crate::run::Run;
use crate::series::Series;
use crate::servers::Servers;
use crate::sweep::Sweep;
use crate::variants::Variants;

/// A device's profile, and where its numbers come from.
pub type Described = (Profile, Vec<Parameter>);

/// Finds a device by its profile's name, with other values of some keys.
pub(crate) type Devices = dyn Fn(&str, &Changes) -> Result<Described, FigureError>;

/// One folder.
struct Folder {
    name: &'static str,
    figure: &'static str,
    paper: &'static str,
    notes: &'static str,
}

/// The folder of this name, embedded.
macro_rules! folder {
    ($name:literal) => {
        Folder {
            name: $name,
            figure: include_str!(concat!("../figures/", $name, "/figure.toml")),
            paper: include_str!(concat!("../figures/", $name, "/paper.toml")),
            notes: include_str!(concat!("../figures/", $name, "/README.md")),
        }
    };
}

const FOLDERS: &[Folder] = &[
    folder!("fast18-fig01"),
    folder!("fast18-fig05-ablations"),
    folder!("fast18-fig09"),
    folder!("fast18-fig10"),
    folder!("fast18-table1"),
    folder!("fast18-table2"),
    folder!("fast18-fig08"),
    folder!("fast18-fig11"),
    folder!("fast18-fig12"),
    folder!("fast18-fig13"),
    folder!("fast18-fig14"),
    folder!("fast18-fig15"),
    folder!("optr-fig03"),
    folder!("optr-fig06"),
    folder!("optr-fig09"),
    folder!("optr-fig10"),
    folder!("optr-fig11"),
    folder!("optr-fig12"),
    folder!("optr-fig13"),
    folder!("optr-recovery"),
    folder!("optr-memory"),
    folder!("share-fig2a"),
    folder!("share-fig2b"),
    folder!("share-fig3"),
    folder!("share-fig4"),
    folder!("share-fig4-linkbench"),
    folder!("emmc-table4"),
    folder!("emmc-fig12"),
    folder!("emmc-fig13"),
    folder!("emmc-fig14"),
];

/// A figure: what is run, and what the paper prints.
#[derive(Clone, Debug)]
pub struct Figure {
    /// Its name on the command line, and its folder's.
    pub name: String,
    /// What is run.
    pub config: Config,
    /// What the paper prints.
    pub paper: Paper,
    /// What it shows, and how it was calibrated; Markdown.
    pub notes: String,
    /// Whether the kernel is a judge of crash tests.
    asks_kernel: bool,
}

/// What is run for a figure (`figure.toml`).
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// What it shows, in one line.
    pub title: String,
    /// Where the paper shows it.
    pub source: String,
    /// How it is drawn.
    pub plot: Plot,
    /// Devices are shortened to this capacity, in blocks of 4 KiB: fewer erase blocks, and all else the same, so
    /// that they are made quickly.
    pub capacity_blocks: u64,
    /// Devices are new, with nothing written to them; otherwise every block was written once in order.
    #[serde(default)]
    pub erased: bool,
    /// Blocks that are written to.
    pub span_blocks: u64,
    /// Writes in the window of a way that fills the queue.
    pub writes: u64,
    /// Writes in the window of a way that waits for each write.
    pub writes_waiting: u64,
    /// Writes of the warm-up at most.
    pub warm_up_max: u64,
    /// Between two samples of queue depth, in microseconds of virtual time.
    #[serde(default = "sample_us")]
    pub sample_us: f64,
    /// Device and series of the rows that parameters were fitted to.
    #[serde(default)]
    pub fitted: Vec<[String; 2]>,
    /// On what.
    #[serde(rename = "device")]
    pub devices: Vec<Testbed>,
    /// In which ways.
    #[serde(default)]
    pub series: Vec<Series>,
    /// Further series, described together.
    #[serde(default)]
    pub sweep: Option<Sweep>,
    /// Further series of fio, described together.
    #[serde(default)]
    pub intervals: Option<Intervals>,
    /// Further series of a phone's programs, described together.
    #[serde(default)]
    pub variants: Option<Variants>,
    /// Further series of a program on several filesystems, described together.
    #[serde(default)]
    pub servers: Option<Servers>,
    /// Further series of crash tests, described together.
    #[serde(default)]
    pub crash_tests: Vec<CrashTests>,
}

fn sample_us() -> f64 {
    10.0
}

/// How a figure is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Plot {
    /// Bars by device and series.
    Bars,
    /// Queue depth over virtual time.
    Depth,
}

/// A device and its host.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Testbed {
    /// The device's profile.
    pub profile: String,
    /// The host's profile.
    pub host: String,
}

/// One row before it is run: a series on a device.
#[derive(Clone, Debug)]
pub(crate) struct Case<'a> {
    pub(crate) device: &'a str,
    pub(crate) series: &'a Series,
    pub(crate) run: Run,
    /// What the result is shown as a share of.
    pub(crate) over: Option<Run>,
    /// Further runs that make one row with it, each with its own.
    pub(crate) rest: Vec<(Run, Option<Run>)>,
    /// The device's parameters.
    pub(crate) parameters: Arc<[Parameter]>,
}

impl Case<'_> {
    /// The same on another device and host: `change` makes them of this one's.
    pub(crate) fn changed(&self, change: impl Fn(&Run) -> Run) -> Case<'_> {
        Case {
            device: self.device,
            series: self.series,
            run: change(&self.run),
            over: self.over.as_ref().map(&change),
            rest: self.rest.iter().map(|(run, over)| (change(run), over.as_ref().map(&change))).collect(),
            parameters: Arc::clone(&self.parameters),
        }
    }

    pub(crate) fn runs(&self) -> impl Iterator<Item = &Run> {
        let rest = self.rest.iter().flat_map(|(run, over)| std::iter::once(run).chain(over));
        std::iter::once(&self.run).chain(&self.over).chain(rest)
    }
}

impl Figure {
    /// The names of all figures.
    #[must_use]
    pub fn names() -> Vec<&'static str> {
        FOLDERS.iter().map(|folder| folder.name).collect()
    }

    /// The figure of this name.
    ///
    /// # Errors
    /// [`FigureError::Unknown`] if there is none, [`FigureError::File`] if one of its files is damaged.
    pub fn named(name: &str) -> Result<Figure, FigureError> {
        let Some(folder) = FOLDERS.iter().find(|folder| folder.name == name) else {
            let known = Figure::names().into_iter().map(str::to_owned).collect();
            return Err(FigureError::Unknown { name: name.to_owned(), known });
        };
        Figure::parse(name, folder.figure, folder.paper, folder.notes)
    }

    /// Makes the kernel a judge of crash tests, where it mounts images for us.
    pub fn ask_kernel(&mut self) {
        self.asks_kernel = true;
    }

    /// A figure of its files' text.
    ///
    /// # Errors
    /// [`FigureError::File`] if one of them is damaged.
    pub fn parse(name: &str, figure: &str, paper: &str, notes: &str) -> Result<Figure, FigureError> {
        let failed = |source| FigureError::toml(format!("{name}/figure.toml"), source);
        let mut config: Config = toml::from_str(figure).map_err(failed)?;
        config.series.extend(config.sweep.iter().flat_map(Sweep::all));
        config.series.extend(config.variants.iter().flat_map(Variants::all));
        let servers = config.servers.as_ref().map(Servers::all).transpose();
        config.series.extend(servers.map_err(failed)?.into_iter().flatten());
        let tests = config.crash_tests.iter().flat_map(CrashTests::all);
        config.series.extend(tests.flat_map(Series::of_crash_test));
        config.series.extend(config.intervals.iter().flat_map(Intervals::all));
        config.series.iter().try_for_each(|series| series.check(name))?;
        Ok(Figure {
            name: name.to_owned(),
            config,
            paper: Paper::parse(name, paper)?,
            notes: notes.to_owned(),
            asks_kernel: false,
        })
    }

    /// Whether parameters were fitted to this row.
    #[must_use]
    pub fn is_fitted(&self, device: &str, series: &str) -> bool {
        self.config.fitted.iter().any(|row| *row == [device, series])
    }

    /// What the paper prints for a row.
    #[must_use]
    pub fn printed(&self, device: &str, series: &str) -> Option<&Printed> {
        self.paper.printed(device, series)
    }

    /// The rows, device by device; a quick run has a tenth of the writes.
    pub(crate) fn cases(&self, devices: &Devices, quick: bool) -> Result<Vec<Case<'_>>, FigureError> {
        let mut cases = Vec::new();
        for place in &self.config.devices {
            let (plain, host) = (devices(&place.profile, &Changes::new())?, Host::builtin(&place.host)?);
            for series in self.config.series.iter().filter(|series| series.is_on(&place.profile)) {
                let (device, parameters) = match series.vary.is_empty() {
                    true => plain.clone(),
                    false => devices(&place.profile, &series.vary)?,
                };
                let device = device.with_capacity(self.config.capacity_blocks);
                let host = host.with_changes(&series.host_vary)?;
                let parameters: Arc<[Parameter]> = parameters.into();
                let over = match &series.over {
                    Some(experiment) => {
                        let other = self.with_mechanism(device.clone(), series.over_mechanism.as_ref())?;
                        Some(self.run(other, &host, experiment, quick))
                    }
                    None => None,
                };
                let changed = self.variant(device.clone(), series)?;
                let run = self.run(changed, &host, &series.experiment, quick);
                let same = |run: &Run, experiment: &Arc<dyn Experiment>| {
                    let experiment = Arc::clone(experiment);
                    Run { experiment, ..run.clone() }
                };
                let rest = series.rest.iter().map(|(experiment, beside)| {
                    let beside = over.as_ref().zip(beside.as_ref());
                    (same(&run, experiment), beside.map(|(over, experiment)| same(over, experiment)))
                });
                let rest = rest.collect();
                cases.push(Case { device: &place.profile, series, run, over, rest, parameters });
            }
        }
        Ok(cases)
    }

    /// The device that a series asks for.
    fn variant(&self, device: Profile, series: &Series) -> Result<Profile, FigureError> {
        let mut device = self.with_mechanism(device, series.mechanism.as_ref())?;
        if let Some(name) = &series.service {
            let known = || "none, serial, pipelined".to_owned();
            device.host.ordered_service =
                service_named(name).ok_or_else(|| self.unknown("ordered service", name, known()))?;
        }
        if let Some(penalty) = series.penalty {
            device.barrier.penalty = penalty;
        }
        Ok(device)
    }

    /// The device with another barrier mechanism, where one is named.
    fn with_mechanism(&self, device: Profile, name: Option<&String>) -> Result<Profile, FigureError> {
        let Some(name) = name else { return Ok(device) };
        let known = || Mechanism::ALL.map(Mechanism::name).join(", ");
        let mechanism =
            Mechanism::named(name).ok_or_else(|| self.unknown("barrier mechanism", name, known()))?;
        Ok(device.with_mechanism(mechanism))
    }

    fn unknown(&self, what: &'static str, name: &str, known: String) -> FigureError {
        FigureError::Name { file: format!("{}/figure.toml", self.name), what, name: name.to_owned(), known }
    }

    fn run(&self, device: Profile, host: &Host, experiment: &Arc<dyn Experiment>, quick: bool) -> Run {
        let config = &self.config;
        let share = if quick { 10 } else { 1 };
        let writes = if experiment.waits() { config.writes_waiting } else { config.writes };
        Run {
            device,
            host: host.clone(),
            experiment: Arc::clone(experiment),
            erased: config.erased,
            span: config.span_blocks,
            writes: (writes / share).max(2),
            warm_up_max: config.warm_up_max / share,
            sample_ns: (config.sample_us * 1e3) as u64,
            asks_kernel: self.asks_kernel,
        }
    }
}

pub(crate) fn service_named(name: &str) -> Option<OrderedService> {
    match name {
        "none" => Some(OrderedService::None),
        "serial" => Some(OrderedService::Serial),
        "pipelined" => Some(OrderedService::Pipelined),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn an_unknown_figure_is_an_error_that_names_the_known_ones() {
        let error = Figure::named("fast18-fig99").unwrap_err().to_string();
        for name in ["fast18-fig99"].into_iter().chain(Figure::names()) {
            assert!(error.contains(name), "{error}");
        }
    }

    #[test]
    fn every_printed_and_fitted_row_is_a_row() {
        let figures: Vec<Figure> =
            Figure::names().into_iter().map(|name| Figure::named(name).unwrap()).collect();
        // A row without a number is fitted if the same ratio has one in another figure.
        let fits = |device: &str, series: &str| {
            let ratio = series.split('/').next().unwrap_or(series);
            figures.iter().any(|figure| {
                [series, ratio]
                    .iter()
                    .any(|row| figure.is_fitted(device, row) && figure.printed(device, row).is_some())
            })
        };
        for (name, figure) in Figure::names().into_iter().zip(&figures) {
            let is_row = |device: &str, series: &str| {
                figure.config.devices.iter().any(|place| place.profile == device)
                    && figure.config.series.iter().any(|known| known.name == series && known.is_on(device))
            };
            for row in &figure.paper.rows {
                assert!(is_row(&row.device, &row.series), "{name}: {row:?}");
            }
            for order in &figure.paper.orders {
                let bars: Vec<_> = order.steps().flatten().collect();
                assert!(order.steps().count() > 1, "{name}: {order:?}");
                assert!(bars.iter().all(|(device, series)| is_row(device, series)), "{name}: {order:?}");
                let known =
                    figure.config.series.iter().filter(|known| bars.iter().any(|bar| bar.1 == known.name));
                let units: BTreeSet<String> = known.map(Series::unit).collect();
                assert_eq!(units.len(), 1, "{name}: {order:?}");
            }
            for [device, series] in &figure.config.fitted {
                assert!(is_row(device, series), "{name}: {device} {series}");
                assert!(fits(device, series), "{name}: fitted to nothing: {device} {series}");
            }
        }
    }

    #[test]
    fn a_metric_that_an_experiment_does_not_give_is_an_error_that_names_those_that_it_gives() {
        let known = FOLDERS.iter().find(|folder| folder.name == "fast18-fig10").unwrap();
        let text = known.figure.replacen("measure = \"depth-max\"", "measure = \"depth-least\"", 1);
        assert_ne!(text, known.figure);
        let error = Figure::parse("mine", &text, known.paper, "").unwrap_err().to_string();
        assert!(error.contains("depth-least") && error.contains("depth-max, "), "{error}");
    }

    #[test]
    fn a_wrong_key_is_an_error_that_names_the_file() {
        let error = Figure::parse("mine", "titel = 'x'", "", "").unwrap_err().to_string();
        assert!(error.contains("mine/figure.toml") && error.contains("titel"), "{error}");
    }
}
