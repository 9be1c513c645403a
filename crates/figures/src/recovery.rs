//! What the firmware's recovery reads when it has the most to do (OPTR paper, section 7): random writes fill the log of
//! checkpoints, so that the firmware begins a second full one, and the power goes before that is whole.

use std::fmt;

use serde::Deserialize;
use weir_flash::{FlashDevice, FlashOptions, Keep, RecoveryReads};
use weir_runtime::{Handle, Runtime, Simulation};
use weir_storage::Rejected;

use crate::error::FigureError;
use crate::experiment::Experiment;
use crate::metric::{Meter, Metric, meter, metrics_of};
use crate::random_writes::{RandomWriter, RandomWrites};
use crate::run::{Outcome, Run};

/// Random writes until recovery has most to read; then a power cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub struct Recovery(pub RandomWrites);

impl fmt::Display for Recovery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "recovery, {}", self.0)
    }
}

/// What recovery reads: all pages, and of these the pages of the full checkpoint, pages of increments and coalescing
/// records, and pages of erase blocks, which are summary pages or others; and the time.
const METERS: &[Meter<RecoveryReads>] = &[
    meter("recovery-pages", "pages", |reads| reads.pages() as f64),
    meter("recovery-checkpoint-pages", "pages", |reads| reads.checkpoint_pages as f64),
    meter("recovery-log-pages", "pages", |reads| reads.log_pages as f64),
    meter("recovery-block-pages", "pages", |reads| (reads.probed_pages + reads.scanned_pages) as f64),
    meter("recovery-probed-pages", "pages", |reads| reads.probed_pages as f64),
    meter("recovery-scanned-pages", "pages", |reads| reads.scanned_pages as f64),
    meter("recovery-time", "ms", |reads| reads.time_ns as f64 / 1e6),
];

impl Experiment for Recovery {
    fn metrics(&self) -> Vec<Metric> {
        metrics_of(METERS).collect()
    }

    fn run(&self, run: &Run, seed: u64, _options: FlashOptions) -> Result<Outcome, FigureError> {
        let cores = Some(run.host.simulated());
        let runtime = Runtime::simulated(Simulation { seed, cores, ..Simulation::default() });
        let handle = runtime.handle();
        let reads = runtime
            .block_on(self.reads(run, &handle))
            .map_err(|source| FigureError::Stalled { run: run.title(), source })?
            .map_err(|source| FigureError::Command { run: run.title(), source })?;
        let mut outcome = Outcome { trace_hash: handle.trace_hash(), ..Outcome::steady() };
        outcome.read(METERS, &reads);
        Ok(outcome)
    }
}

impl Recovery {
    /// Writes, cuts the power, and restarts the device.
    async fn reads(self, run: &Run, handle: &Handle) -> Result<RecoveryReads, Rejected> {
        let options = FlashOptions { keep: Keep::Versions, ..FlashOptions::default() };
        let device = FlashDevice::new(handle, &run.device, options.clone());
        run.prepare(&device, run.device.blocks);
        let mut writer = RandomWriter::new(handle, device, self.0, &run.host);
        let full = |writer: &RandomWriter| {
            let counted = writer.device.stats();
            counted.checkpoints - counted.increments
        };
        // A request takes far less time than a full checkpoint.
        while full(&writer) < 2 {
            writer.request().await?;
        }
        let medium = writer.device.after_cut(&mut handle.random("cut"));
        writer.device.cut_power();
        Ok(FlashDevice::restarted(handle, &run.device, options, medium).recovery_reads())
    }
}
