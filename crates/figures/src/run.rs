//! One *run*: 4 KiB writes in one way, by one host, on one device, in virtual time; here those at the block layer.
//!
//! The device is new and its span was written in order once. A run first warms up: ways that fill the queue
//! write once as much as the device's cache holds, so that what is measured is how fast it is emptied; the
//! device does not clean. Then comes the window ([`Outcome`]). A run with barriers is watched by the order
//! recorder, and ends with a flush; if Eq. 1 does not hold, there is no outcome but an error.

use std::rc::Rc;

use weir_block::{BlockLayer, BlockOptions, Dispatch};
use weir_crash::Tally;
use weir_flash::{FlashDevice, FlashOptions, Keep, Mechanism, Profile, RecoveryReads, Stats};
use weir_runtime::{Buffer, Handle, Runtime, Simulation};
use weir_storage::{BLOCK_BYTES, Recorder, Rejected, Storage as _};

use crate::error::FigureError;
use crate::gauge::{Delays, Depth, Gauge, Window};
use crate::host::Host;
use crate::steps::Steps;
use crate::tap::Persisted;
use crate::way::{QUEUE, Way, Writer};

/// Requests on their way that the order recorder keeps at most: more than any cache holds blocks.
pub(crate) const RECORDED: usize = 1 << 23;

/// What is run.
#[derive(Clone, Debug, PartialEq)]
pub struct Run {
    /// The device, with its barrier mechanism.
    pub device: Profile,
    /// The host.
    pub host: Host,
    /// The way to write.
    pub way: Way,
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
}

/// What a run's window showed.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outcome {
    /// Writes a second; of random writes, requests.
    pub iops: f64,
    /// The window's length, in seconds of virtual time.
    pub seconds: f64,
    /// The rate of the window's second half over that of its first: 1 in a steady state.
    pub drift: f64,
    /// The command queue's depth.
    pub depth: Depth,
    /// Between the acceptance of two commands.
    pub delays: Delays,
    /// What each synchronisation call took, in microseconds; nothing at the block layer.
    pub latency: Delays,
    /// What the journal did; nothing at the block layer.
    pub commits: Commits,
    /// Synchronisation calls, of applications alone.
    pub calls: u64,
    /// What was written while a synchronisation call was under way; of applications alone.
    pub persisted: Persisted,
    /// What the time of synchronisation calls goes to; nothing at the block layer.
    pub steps: Steps,
    /// Context switches of the writing threads for each write; at the block layer, warm-up included.
    pub switches: f64,
    /// What the device counted in the window; nothing at the block layer.
    pub counts: Stats,
    /// Full erase blocks that cleaning may not take before the next checkpoint, on average; of random writes alone.
    pub held_back: f64,
    /// What recovery read after a power cut.
    pub recovery: RecoveryReads,
    /// What was counted, of a fact; of crash tests, different states.
    pub number: f64,
    /// What judges said of crash tests.
    pub tally: Tally,
    /// Hash of everything that happened: the same for the same run and seed.
    pub trace_hash: u64,
}

/// A journal's commits, on average, in microseconds (FAST 2018 paper, section 4.5).
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Commits {
    /// From one commit to the next.
    pub interval_us: f64,
    /// What the processor does for a commit: context switches of the commit task, composing, dispatch, and completions
    /// where it waits for them.
    pub dispatch_us: f64,
    /// From the dispatch to the transfer of all commands of a commit, added up.
    pub transfer_us: f64,
    /// From the dispatch to the answer of its flushes, and what writes with FUA take beyond a transfer.
    pub flush_us: f64,
    /// From the dispatch of JD, its last command, to that of JC.
    pub log_to_commit_us: f64,
}

impl Outcome {
    /// Flash pages programmed with data that the host wrote, for each write.
    #[must_use]
    pub fn data_pages(&self) -> f64 {
        self.per_write(self.counts.programmed_pages)
    }

    /// Flash pages programmed for anything else, for each write: checkpoints, coalescing records, summary pages, what
    /// cleaning moves.
    #[must_use]
    pub fn firmware_pages(&self) -> f64 {
        let Stats { checkpoint_pages, record_pages, summary_pages, moved_pages, .. } = self.counts;
        self.per_write(checkpoint_pages + record_pages + summary_pages + moved_pages)
    }

    /// A count of the device, for each write.
    pub(crate) fn per_write(&self, count: u64) -> f64 {
        count as f64 / (self.iops * self.seconds)
    }

    /// A number of pages, in percent of the pages with the host's data.
    pub(crate) fn share_of_data(&self, pages: u64) -> f64 {
        100.0 * pages as f64 / self.counts.programmed_pages.max(1) as f64
    }
}

impl Run {
    /// Its name in errors and progress: device, host, way.
    #[must_use]
    pub fn title(&self) -> String {
        format!("{} on {}, {}", self.device.name, self.host.name, self.way)
    }

    /// Runs it.
    ///
    /// # Errors
    /// [`FigureError::Order`] if order was not kept; what the block layer or the device answered.
    pub fn outcome(&self, seed: u64) -> Result<Outcome, FigureError> {
        // A filesystem reads what it has written.
        let keep = if self.way.has_files() { Keep::Bytes } else { Keep::Versions };
        let options = FlashOptions { keep, never_cut: true, ..FlashOptions::default() };
        self.outcome_with(seed, options)
    }

    fn outcome_with(&self, seed: u64, options: FlashOptions) -> Result<Outcome, FigureError> {
        match self.way {
            Way::Files(calls) => return self.files_outcome(calls, seed, options),
            Way::Sqlite(inserts) => return self.sqlite_outcome(inserts, seed, options),
            Way::Fio(fio) => return fio.outcome(self, seed, options),
            Way::Varmail(varmail) => return varmail.outcome(self, seed, options),
            Way::InnoDb(innodb) => return innodb.outcome(self, seed, options),
            Way::App(application) => return application.outcome(self, seed, options),
            Way::Random(writes) => return self.random_outcome(writes, seed, options),
            Way::Recovery(writes) => return self.recovery_outcome(writes, seed),
            Way::Crash(test) => {
                let tally = test.tally(self.writes, seed)?;
                return Ok(Outcome {
                    number: tally.states() as f64,
                    drift: 1.0,
                    tally,
                    ..Outcome::default()
                });
            }
            Way::Fact(fact) => {
                let number = fact.number(&self.device)? as f64;
                return Ok(Outcome { number, drift: 1.0, ..Outcome::default() });
            }
            _ => {}
        }
        let cores = Some(self.host.simulated());
        let runtime = Runtime::simulated(Simulation { seed, cores, ..Simulation::default() });
        let handle = runtime.handle();
        let gauge = Rc::new(Gauge::new(self.window()));
        let recorder = self.way.has_barriers().then(|| Recorder::with(false, RECORDED));
        let probe = Rc::clone(&gauge);
        let options = FlashOptions { recorder: recorder.clone(), probe: Some(probe), ..options };
        let (layer, writer) = self.stack(&handle, &gauge, options)?;
        let work = async {
            let thread = handle.spawn_thread("writer", writer.run());
            // A task is cancelled only with its runtime.
            thread.await.unwrap_or(Ok(()))?;
            layer.when_space(BlockLayer::flush).await?.transferred().await.map_err(Rejected::from)
        };
        let ended = runtime.block_on(work);
        ended
            .map_err(|source| FigureError::Stalled { run: self.title(), source })?
            .map_err(|source| FigureError::Command { run: self.title(), source })?;
        let switches = handle.switches().total as f64 * self.way.commands() as f64 / gauge.accepted() as f64;
        Ok(Outcome { switches, ..self.read(&handle, &gauge, recorder.as_deref())? })
    }

    /// Checks that order was kept, and reads what the device showed; of the host and its calls nothing.
    pub(crate) fn read(
        &self,
        handle: &Handle,
        gauge: &Gauge,
        recorder: Option<&Recorder>,
    ) -> Result<Outcome, FigureError> {
        if let Some(recorder) = recorder {
            recorder.check().map_err(|source| FigureError::Order { run: self.title(), source })?;
        }
        let reading = gauge.reading();
        Ok(Outcome {
            iops: self.writes as f64 / reading.seconds,
            seconds: reading.seconds,
            drift: reading.drift,
            depth: reading.depth,
            delays: reading.delays,
            trace_hash: handle.trace_hash(),
            ..Outcome::default()
        })
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
        (prefix || self.way.has_barriers()).then(|| Recorder::with(prefix, RECORDED))
    }

    fn window(&self) -> Window {
        let cached = self.device.cache.bytes / BLOCK_BYTES as u64;
        let warm_up = if self.way.waits() { self.writes / 4 } else { cached + self.writes / 4 };
        let commands = self.way.commands();
        Window {
            warm_up: warm_up.clamp(1, self.warm_up_max.max(1)) * commands,
            measured: self.writes * commands,
            sample_ns: self.sample_ns.max(1),
        }
    }

    /// The device, the block layer on it, and the writers.
    fn stack(
        &self,
        handle: &Handle,
        gauge: &Rc<Gauge>,
        options: FlashOptions,
    ) -> Result<(Rc<BlockLayer>, Writer), FigureError> {
        let recorder = options.recorder.clone();
        let device = FlashDevice::new(handle, &self.device, options);
        let span = self.span.clamp(1, device.blocks());
        self.prepare(&device, span);
        let dispatch = if self.way.has_barriers() { Dispatch::OrderPreserving } else { Dispatch::Legacy };
        // Random writes have nothing to merge; without it a request is a command, and can be counted.
        let queue_requests = QUEUE as usize;
        let options = BlockOptions { dispatch, queue_requests, merge: false, ..BlockOptions::default() };
        let layer = BlockLayer::recorded(handle, device, options, recorder)
            .map_err(|source| FigureError::Block { run: self.title(), source })?;
        let writer = Writer {
            handle: handle.clone(),
            layer: Rc::clone(&layer),
            gauge: Rc::clone(gauge),
            host: self.host.clone(),
            way: self.way,
            span,
            random: handle.random("writer"),
            page: Rc::new(Buffer::new(BLOCK_BYTES)),
            depth: self.device.host.queue_depth,
            issued: 0,
        };
        Ok((layer, writer))
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
    use crate::calls::{Call, Calls, Change, On};
    use crate::inserts::{Inserts, Journal, Synchronous, Syncs, Table};

    /// Negative control: the check at the end of a run notices firmware that does not keep order.
    #[test]
    fn a_run_whose_firmware_breaks_order_has_no_outcome() {
        let run = Run {
            device: drive(Mechanism::InOrderRecovery),
            host: Host::builtin("pc").unwrap(),
            way: Way::B,
            erased: false,
            span: 8192,
            writes: 4000,
            warm_up_max: 4000,
            sample_ns: 1000,
        };
        run.outcome(1).unwrap();
        for mutant in [FlashMutant::PriorityIgnored, FlashMutant::LogOutOfOrder] {
            let options = FlashOptions {
                keep: Keep::Versions,
                rules: Rules::but(Some(mutant)),
                ..FlashOptions::default()
            };
            let broken = run.outcome_with(1, options);
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
        };
        let run = Run {
            device: drive(Mechanism::InOrderRecovery),
            host: Host::builtin("pc").unwrap(),
            way: Way::Files(calls),
            erased: false,
            span: 1024,
            writes: 2000,
            warm_up_max: 100,
            sample_ns: 1000,
        };
        run.outcome(1).unwrap();
        for mutant in [FlashMutant::PriorityIgnored, FlashMutant::LogOutOfOrder] {
            let broken = run
                .outcome_with(1, FlashOptions { rules: Rules::but(Some(mutant)), ..FlashOptions::default() });
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
            way: Way::Sqlite(inserts),
            erased: true,
            span: 1,
            writes: 200,
            warm_up_max: 50,
            sample_ns: 1000,
        };
        run.outcome(1).unwrap();
        let rules = Rules::but(Some(FlashMutant::FlushLies));
        let broken = run.outcome_with(1, FlashOptions { rules, ..FlashOptions::default() });
        assert!(matches!(broken, Err(FigureError::Order { .. })), "{broken:?}");
    }
}
