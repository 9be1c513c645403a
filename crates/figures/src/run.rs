//! One *run*: an experiment on one device, by one host, in virtual time. What its window showed is its [`Outcome`]. If Eq. 1
//! does not hold, there is no outcome but an error.

use std::rc::Rc;
use std::sync::Arc;

use weir_crash::ByJudge;
use weir_flash::{FlashDevice, FlashOptions, Keep, Mechanism, Profile, Stats};
use weir_runtime::{Handle, Runtime, Simulation};
use weir_storage::Recorder;

use crate::device_window::{DEVICE, DeviceWindow};
use crate::error::FigureError;
use crate::experiment::Experiment;
use crate::gauge::{Depth, Gauge, QUEUE_METERS};
use crate::host::Host;
use crate::metric::{Meter, Metric, SECONDS};
use crate::parameter::Parameter;

/// Requests on their way that the order recorder keeps at most: more than any cache holds blocks.
pub(crate) const RECORDED: usize = 1 << 23;

/// What is run.
#[derive(Clone, Debug)]
pub struct Run {
    /// The device, with its barrier mechanism.
    pub device: Profile,
    /// The host.
    pub host: Host,
    /// What is run there.
    pub experiment: Arc<dyn Experiment>,
    /// Whether the device is new; otherwise every block that is used was written once in order.
    pub erased: bool,
    /// Blocks that are written to, 1 and more; all of the device if it has fewer.
    pub span: u64,
    /// Writes in the window, 2 and more.
    pub writes: u64,
    /// Writes of the warm-up at most.
    pub warm_up_max: u64,
    /// Time between two samples of queue depth, in nanoseconds of virtual time, 1 and more.
    pub sample_ns: u64,
    /// Whether the kernel is a judge of crash tests, where it mounts images for us: its mounts take most of the time.
    pub asks_kernel: bool,
}

/// What a run's window showed.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outcome {
    pub(crate) metrics: Vec<(Metric, f64)>,
    /// The rate of the window's second half over that of its first: 1 in a steady state.
    pub drift: f64,
    /// The command queue's depth.
    pub depth: Depth,
    /// What each judge of crash tests says by itself, by the name of the metric that it belongs to.
    pub judges: Vec<(&'static str, ByJudge)>,
    /// Hash of everything that happened: the same for the same run and seed.
    pub trace_hash: u64,
}

impl Outcome {
    /// The outcome of an experiment without a window.
    pub(crate) fn steady() -> Outcome {
        Outcome { drift: 1.0, ..Outcome::default() }
    }

    /// The metric of this name; not a number if the experiment does not give it.
    #[must_use]
    pub fn value(&self, name: &str) -> f64 {
        let found = self.metrics.iter().find(|(metric, _)| metric.name == name);
        found.map_or(f64::NAN, |(_, value)| *value)
    }

    /// All metrics, with their values.
    #[must_use]
    pub fn metrics(&self) -> &[(Metric, f64)] {
        &self.metrics
    }

    pub(crate) fn set(&mut self, metric: Metric, value: f64) {
        self.metrics.push((metric, value));
    }

    /// Brings what was counted over the window to one that is so many times as long.
    fn scale_totals(&mut self, factor: f64) {
        let totals = self.metrics.iter_mut().filter(|(metric, _)| metric.is_total);
        totals.for_each(|(_, value)| *value *= factor);
    }

    /// Reads all of `meters`.
    pub(crate) fn read<T>(&mut self, meters: &[Meter<T>], from: &T) {
        self.metrics.extend(meters.iter().map(|meter| (meter.metric, (meter.read)(from))));
    }

    /// Reads what the device has counted, where `rate` says how much was done a second.
    pub(crate) fn read_device(&mut self, counts: Stats, rate: Metric) {
        let seconds = self.value(SECONDS.name);
        let writes = self.value(rate.name) * seconds;
        self.read(DEVICE, &DeviceWindow { counts, writes, seconds });
    }
}

impl Run {
    /// Its name in errors and progress: device, host, experiment.
    #[must_use]
    pub fn title(&self) -> String {
        format!("{} on {}, {}", self.device.name, self.host.name, self.experiment)
    }

    /// Runs it: with seed 1 as it is, with another one as a repetition that differs.
    ///
    /// # Errors
    /// [`FigureError::Order`] if order was not kept; what the block layer or the device answered.
    pub fn outcome(&self, seed: u64) -> Result<Outcome, FigureError> {
        // A filesystem reads what it has written.
        let keep = if self.experiment.filesystem().is_some() { Keep::Bytes } else { Keep::Versions };
        let options = FlashOptions { keep, never_cut: true, ..FlashOptions::default() };
        if seed == 1 { self.experiment.run(self, seed, options) } else { self.repetition(seed, options) }
    }

    /// Many experiments draw nothing, and would only be themselves again. So a repetition also has a window that begins and ends
    /// elsewhere: seen from there the cache, the cleaner, the journal and the timer's ticks are at another point of their cycles.
    /// The window is shorter, so what is counted over it is scaled to the whole one's length.
    fn repetition(&self, seed: u64, options: FlashOptions) -> Result<Outcome, FigureError> {
        let mut random =
            Runtime::simulated(Simulation { seed, ..Simulation::default() }).handle().random("window");
        // Not longer: some files have a place for each write, and no more.
        let mut shorten = |writes: u64| writes - random.below(writes / 5 + 1);
        let mut run = self.clone();
        if self.experiment.metrics().contains(&SECONDS) {
            (run.writes, run.warm_up_max) = (shorten(self.writes).max(2), shorten(self.warm_up_max));
        }
        let mut outcome = self.experiment.run(&run, seed, options)?;
        outcome.scale_totals(self.writes as f64 / run.writes as f64);
        Ok(outcome)
    }

    /// The host's parameters, by name, that it depends on.
    pub(crate) fn host_parameters(&self) -> impl Iterator<Item = (&'static str, &Parameter)> {
        self.host.parameters().into_iter().filter(|(key, _)| self.experiment.depends_on(key))
    }

    /// Checks that order was kept, and reads what the device's queue showed; `done` things in the window are the rate.
    pub(crate) fn read(
        &self,
        handle: &Handle,
        gauge: &Gauge,
        recorder: Option<&Recorder>,
        rate: Metric,
        done: u64,
    ) -> Result<Outcome, FigureError> {
        if let Some(recorder) = recorder {
            recorder.check().map_err(|source| FigureError::Order { run: self.title(), source })?;
        }
        let reading = gauge.reading();
        let (drift, depth) = (reading.drift, reading.depth.clone());
        let mut outcome = Outcome { drift, depth, trace_hash: handle.trace_hash(), ..Outcome::default() };
        outcome.set(rate, done as f64 / reading.seconds);
        outcome.set(SECONDS, reading.seconds);
        outcome.read(QUEUE_METERS, &reading);
        Ok(outcome)
    }

    /// Fills the first `blocks` blocks of a new device, unless it is to stay erased.
    pub(crate) fn prepare(&self, device: &FlashDevice, blocks: u64) {
        if !self.erased {
            device.precondition(blocks);
        }
    }

    /// What watches the order of a run through the filesystem: of its barriers, and of all requests on a prefix device.
    pub(crate) fn recorder(&self) -> Option<Rc<Recorder>> {
        let prefix = self.device.barrier.mechanism == Mechanism::OrderPreservingRecovery;
        (prefix || self.experiment.has_barriers()).then(|| Recorder::with(prefix, RECORDED))
    }
}

#[cfg(test)]
#[path = "../tests/drive/mod.rs"]
mod drive;

#[cfg(test)]
mod tests {
    use weir_flash::{FlashMutant, Mechanism};
    use weir_storage::Rules;

    use super::drive::drive;
    use super::*;
    use crate::block_writes::BlockWrites;
    use crate::calls::{Call, Calls, Change, On};
    use crate::inserts::{Inserts, Journal, Synchronous, Syncs, Table};

    /// Negative control: the check at the end of a run notices firmware that does not keep order.
    #[test]
    fn a_run_whose_firmware_breaks_order_has_no_outcome() {
        let run = Run {
            device: drive(Mechanism::InOrderRecovery),
            host: Host::builtin("pc").unwrap(),
            experiment: Arc::new(BlockWrites::B),
            erased: false,
            span: 8192,
            writes: 4000,
            warm_up_max: 4000,
            sample_ns: 1000,
            asks_kernel: false,
        };
        run.outcome(1).unwrap();
        for mutant in [FlashMutant::PriorityIgnored, FlashMutant::CoalescesAcrossEpochs] {
            let options = FlashOptions {
                keep: Keep::Versions,
                rules: Rules::but(Some(mutant)),
                ..FlashOptions::default()
            };
            let broken = run.experiment.run(&run, 1, options);
            assert!(matches!(broken, Err(FigureError::Order { .. })), "{mutant:?}: {broken:?}");
        }
    }

    /// The same through the filesystem.
    #[test]
    fn calls_to_files_on_such_firmware_have_no_outcome() {
        let calls = Calls {
            on: On::BarrierFs,
            change: Change::Overwrite,
            call: Call::Fbarrier,
            threads: 1,
            cores: None,
            other: None,
            aged_percent: 0,
        };
        let run = Run {
            device: drive(Mechanism::InOrderRecovery),
            host: Host::builtin("pc").unwrap(),
            experiment: Arc::new(calls),
            erased: false,
            span: 1024,
            writes: 2000,
            warm_up_max: 100,
            sample_ns: 1000,
            asks_kernel: false,
        };
        run.outcome(1).unwrap();
        for mutant in [FlashMutant::PriorityIgnored, FlashMutant::CoalescesAcrossEpochs] {
            let broken = run.experiment.run(
                &run,
                1,
                FlashOptions { rules: Rules::but(Some(mutant)), ..FlashOptions::default() },
            );
            assert!(matches!(broken, Err(FigureError::Order { .. })), "{mutant:?}: {broken:?}");
        }
    }

    /// The same through SQLite, where the drive keeps the order of receipt.
    #[test]
    fn inserts_on_such_a_prefix_device_have_no_outcome() {
        let inserts = Inserts {
            on: On::Prefix,
            journal: Journal::Delete,
            synchronous: Synchronous::Extra,
            syncs: Syncs::Durable,
            table: Table::Plain,
            program_us: 0,
        };
        let run = Run {
            device: drive(Mechanism::OrderPreservingRecovery),
            host: Host::builtin("desktop").unwrap(),
            experiment: Arc::new(inserts),
            erased: true,
            span: 1,
            writes: 200,
            warm_up_max: 50,
            sample_ns: 1000,
            asks_kernel: false,
        };
        run.outcome(1).unwrap();
        let rules = Rules::but(Some(FlashMutant::FlushLies));
        let broken = run.experiment.run(&run, 1, FlashOptions { rules, ..FlashOptions::default() });
        assert!(matches!(broken, Err(FigureError::Order { .. })), "{broken:?}");
    }
}
