//! The *lab* runs figures: every run once, however many rows it serves.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use weir_flash::{Changes, Kind, Profile};
use weir_runtime::share_among_threads;

use crate::error::FigureError;
use crate::figure::{Case, Described, Devices, Figure};
use crate::gauge::Depth;
use crate::order::Bars;
use crate::row::Row;
use crate::run::{Outcome, Run};
use crate::take::{Take, median};
use crate::vary;

/// How far an assumed parameter is moved, up and down.
const VARIATION: f64 = 0.2;

/// Where figures are run.
pub struct Lab {
    devices: Box<Devices>,
    /// Decides every run, with the profiles.
    pub seed: u64,
    /// So many seeds, from that one on, 1 and more: a row is the median of their results.
    pub seeds: u64,
    /// A tenth of the writes: for a look.
    pub quick: bool,
    /// Move each assumed parameter by 20 % and show how far the results move.
    pub spread: bool,
    /// Runs at the same time, each on a thread of its own; results do not depend on it.
    pub jobs: u64,
    /// By run and seed.
    outcomes: BTreeMap<(String, u64), Outcome>,
}

/// A figure with its results.
#[derive(Clone, Debug)]
pub struct Sheet {
    /// The figure.
    pub figure: Figure,
    /// The rows, device by device.
    pub rows: Vec<Row>,
    /// Queue depth over time, for each device and experiment.
    pub curves: Vec<Curve>,
    /// Where the numbers behind each device's rows come from.
    pub origins: Vec<Origin>,
}

/// Where the numbers behind a device's rows come from: how many parameters its profile and its host's have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    /// The device's profile.
    pub device: String,
    /// The host's profile.
    pub host: String,
    /// Parameters that were published.
    pub sourced: usize,
    /// Parameters that were fitted to rows of a paper.
    pub fitted: usize,
    /// Parameters that were assumed.
    pub assumed: usize,
    /// Rows of this figure that parameters were fitted to.
    pub fitted_rows: usize,
}

/// Queue depth over virtual time.
#[derive(Clone, Debug, PartialEq)]
pub struct Curve {
    /// The device's profile.
    pub device: String,
    /// What was run.
    pub experiment: String,
    /// Commands that the device takes at most.
    pub depth_max: u32,
    /// What was seen.
    pub depth: Depth,
}

/// How far the lab is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Runs that are over.
    pub done: usize,
    /// Runs in all.
    pub total: usize,
    /// The run that begins.
    pub what: String,
}

impl Sheet {
    /// The figure's bars whose order in the paper is known.
    #[must_use]
    pub fn orders(&self) -> Vec<Bars> {
        Bars::of_figure(&self.figure.name, &self.figure.paper, &self.rows)
    }
}

impl Lab {
    /// A lab with the devices that come with Weir.
    #[must_use]
    pub fn new(seed: u64) -> Lab {
        Lab::with_devices(seed, |name, changes| Ok(Profile::load_with(name, changes)?))
    }

    /// A lab that finds devices by `devices`.
    #[must_use]
    pub fn with_devices(
        seed: u64,
        devices: impl Fn(&str, &Changes) -> Result<Described, FigureError> + 'static,
    ) -> Lab {
        let devices = Box::new(devices);
        Lab { devices, seed, seeds: 1, quick: false, spread: false, jobs: 1, outcomes: BTreeMap::new() }
    }

    /// Runs `figures`, and tells `progress` of every run that begins.
    ///
    /// # Errors
    /// The first run that fails; see [`FigureError`].
    pub fn run(
        &mut self,
        figures: &[Figure],
        progress: &mut (dyn FnMut(&Progress) + Send),
    ) -> Result<Vec<Sheet>, FigureError> {
        let all: Vec<Vec<Case<'_>>> = figures
            .iter()
            .map(|figure| figure.cases(&*self.devices, self.quick))
            .collect::<Result<_, _>>()?;
        let quick: Vec<Vec<Case<'_>>> =
            figures.iter().map(|figure| figure.cases(&*self.devices, true)).collect::<Result<_, _>>()?;
        let varied: Vec<Vec<Vec<Case<'_>>>> = figures
            .iter()
            .zip(&quick)
            .map(|(figure, cases)| cases.iter().map(|case| self.variations(figure, case)).collect())
            .collect();
        // How far a parameter moves a row, one seed tells.
        let seeds = self.all_seeds();
        let of_seeds = |run| seeds.clone().map(move |seed| (run, seed));
        let all_runs = all.iter().flatten().flat_map(Case::runs).flat_map(of_seeds);
        let varied_runs = varied.iter().flatten().flatten().flat_map(Case::runs).map(|run| (run, self.seed));
        self.prepare(&all_runs.chain(varied_runs).collect::<Vec<_>>(), progress)?;
        let sheets = figures.iter().zip(&all).zip(&varied);
        Ok(sheets.map(|((figure, cases), varied)| self.sheet(figure, cases, varied)).collect())
    }

    fn all_seeds(&self) -> Range<u64> {
        self.seed..self.seed.saturating_add(self.seeds)
    }

    /// Runs what was not run yet.
    fn prepare(
        &mut self,
        runs: &[(&Run, u64)],
        progress: &mut (dyn FnMut(&Progress) + Send),
    ) -> Result<(), FigureError> {
        let mut known: BTreeSet<(String, u64)> = self.outcomes.keys().cloned().collect();
        let is_new = |(run, seed): &&(&Run, u64)| known.insert((key(run), *seed));
        let runs: Vec<&(&Run, u64)> = runs.iter().filter(is_new).collect();
        let total = runs.len();
        let state = Mutex::new((progress, 0));
        let lock = || state.lock().unwrap_or_else(PoisonError::into_inner);
        let outcomes = share_among_threads(self.jobs, total as u64, |number| {
            let (run, seed) = *runs[number as usize];
            {
                let (progress, done) = &mut *lock();
                progress(&Progress { done: *done, total, what: run.title() });
            }
            let outcome = run.outcome(seed);
            lock().1 += 1;
            outcome
        })?;
        self.outcomes.extend(runs.iter().map(|(run, seed)| (key(run), *seed)).zip(outcomes));
        Ok(())
    }

    /// A quick case, first as it is, then with one assumed parameter moved, for each of them and both ways; words take
    /// each other's place.
    fn variations<'c>(&self, figure: &Figure, case: &'c Case<'c>) -> Vec<Case<'c>> {
        if !self.spread || figure.is_fitted(case.device, &case.series.name) {
            return Vec::new();
        }
        let of_host = case.run.host_parameters().filter(|(_, parameter)| parameter.kind == Kind::Assumed);
        let of_host: Vec<&str> = of_host.map(|(key, _)| key).collect();
        let mut moved = vec![case.clone()];
        for factor in [1.0 - VARIATION, 1.0 + VARIATION] {
            moved.extend(of_host.iter().map(|key| {
                case.changed(|run| {
                    let host = run.host.scaled(key, factor).unwrap_or_else(|| run.host.clone());
                    Run { host, ..run.clone() }
                })
            }));
            let assumed = case.parameters.iter().filter(|parameter| parameter.kind == Kind::Assumed);
            moved.extend(assumed.map(|parameter| {
                case.changed(|run| {
                    let device = vary::scaled(&run.device, &parameter.key, factor)
                        .unwrap_or_else(|| run.device.clone());
                    Run { device, ..run.clone() }
                })
            }));
        }
        for parameter in case.parameters.iter().filter(|parameter| parameter.kind == Kind::Assumed) {
            moved.extend(parameter.range.iter().flatten().map(|word| {
                case.changed(|run| {
                    let device = vary::worded(&run.device, case.series, &parameter.key, word)
                        .unwrap_or_else(|| run.device.clone());
                    Run { device, ..run.clone() }
                })
            }));
        }
        moved
    }

    /// What a case shows with one seed: a number, or a share in percent.
    fn value(&self, case: &Case<'_>, seed: u64) -> f64 {
        let series = case.series;
        let measure = |run: &Run, name: &str| {
            self.outcomes.get(&(key(run), seed)).map_or(f64::NAN, |outcome| outcome.value(name))
        };
        let value = |run: &Run, over: &Option<Run>| {
            let ours = measure(run, &series.measure);
            over.as_ref().map_or(ours, |over| series.compare(ours, measure(over, series.measure_of_over())))
        };
        let rest = case.rest.iter().map(|(run, over)| value(run, over));
        let values: Vec<f64> = std::iter::once(value(&case.run, &case.over)).chain(rest).collect();
        series.take.of(&values)
    }

    /// Between which results a row lies when an assumed parameter is moved. Quick runs tell how far it moves, in
    /// proportion; `varied` begins with the one that nothing was moved in.
    fn spread_of(&self, ours: f64, varied: &[Case<'_>]) -> Option<[f64; 2]> {
        let (still, moved) = varied.split_first()?;
        let still = self.value(still, self.seed);
        let scale = if still == 0.0 { 1.0 } else { ours / still };
        let values = || moved.iter().map(|case| scale * self.value(case, self.seed));
        Some([values().fold(ours, f64::min), values().fold(ours, f64::max)])
    }

    fn sheet(&self, figure: &Figure, cases: &[Case<'_>], varied: &[Vec<Case<'_>>]) -> Sheet {
        let mut rows = Vec::new();
        let mut curves: Vec<Curve> = Vec::new();
        for (case, varied) in cases.iter().zip(varied) {
            let Some(outcome) = self.outcomes.get(&(key(&case.run), self.seed)) else { continue };
            let values: Vec<f64> = self.all_seeds().map(|seed| self.value(case, seed)).collect();
            let range = [Take::Least, Take::Most].map(|take| take.of(&values));
            let ours = median(values);
            let [device, series] = [case.device, case.series.name.as_str()];
            let (paper, is_fitted) = (figure.printed(device, series), figure.is_fitted(device, series));
            let names = [&figure.name, device, series];
            let mut row = Row::new(names, paper.cloned(), is_fitted, ours, case.series.unit());
            row.drift = outcome.drift;
            row.spread = self.spread_of(ours, varied);
            let judges = outcome.judges.iter().find(|(metric, _)| *metric == case.series.measure);
            if self.seeds == 1 {
                row.judges = judges.map(|(_, by_judge)| *by_judge);
            } else {
                (row.seeds, row.range) = (Some(self.seeds), Some(range));
            }
            rows.push(row);
            let experiment = case.series.experiment.to_string();
            if !curves.iter().any(|curve| curve.device == case.device && curve.experiment == experiment) {
                let depth_max = case.run.device.host.queue_depth;
                curves.push(Curve {
                    device: case.device.to_owned(),
                    experiment,
                    depth_max,
                    depth: outcome.depth.clone(),
                });
            }
        }
        Sheet { figure: figure.clone(), rows, curves, origins: origins(figure, cases) }
    }
}

fn origins(figure: &Figure, cases: &[Case<'_>]) -> Vec<Origin> {
    let mut origins: Vec<Origin> = Vec::new();
    for case in cases {
        let fitted = usize::from(figure.is_fitted(case.device, &case.series.name));
        if let Some(known) = origins.iter_mut().find(|origin| origin.device == case.device) {
            known.fitted_rows += fitted;
            continue;
        }
        let of_host = || case.run.host_parameters().map(|(_, parameter)| parameter.kind);
        let kinds = || case.parameters.iter().map(|parameter| parameter.kind).chain(of_host());
        let count = |kind| kinds().filter(|other| *other == kind).count();
        origins.push(Origin {
            device: case.device.to_owned(),
            host: case.run.host.name.clone(),
            sourced: count(Kind::Sourced),
            fitted: count(Kind::Fitted),
            assumed: count(Kind::Assumed),
            fitted_rows: fitted,
        });
    }
    origins
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Origin { device, host, sourced, fitted, assumed, fitted_rows } = self;
        let rows = if *fitted_rows == 1 { "row" } else { "rows" };
        write!(
            f,
            "{device} on {host}: {sourced} parameters sourced, {fitted} fitted (to {fitted_rows} {rows} here), \
             {assumed} assumed"
        )
    }
}

/// Two runs with one key are the same run.
fn key(run: &Run) -> String {
    format!("{run:?}")
}
