//! What the firmware's recovery reads when it has the most to do (OPTR paper, section 7): random writes fill the log of
//! checkpoints, so that the firmware begins a second full one, and the power goes before that is whole.

use weir_flash::{FlashDevice, FlashOptions, Keep};
use weir_runtime::{Handle, Runtime, Simulation};
use weir_storage::Rejected;

use crate::error::FigureError;
use crate::random_writer::RandomWriter;
use crate::random_writes::RandomWrites;
use crate::run::{Outcome, Run};

impl Run {
    /// Runs random writes, cuts the power, and restarts the device.
    pub(crate) fn recovery_outcome(&self, writes: RandomWrites, seed: u64) -> Result<Outcome, FigureError> {
        let cores = Some(self.host.simulated());
        let runtime = Runtime::simulated(Simulation { seed, cores, ..Simulation::default() });
        let handle = runtime.handle();
        runtime
            .block_on(self.recovered(writes, &handle))
            .map_err(|source| FigureError::Stalled { run: self.title(), source })?
            .map_err(|source| FigureError::Command { run: self.title(), source })
    }

    async fn recovered(&self, writes: RandomWrites, handle: &Handle) -> Result<Outcome, Rejected> {
        let options = FlashOptions { keep: Keep::Versions, ..FlashOptions::default() };
        let device = FlashDevice::new(handle, &self.device, options.clone());
        self.prepare(&device, self.device.blocks);
        let mut writer = RandomWriter::new(handle, device, writes, &self.host);
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
        let recovery = FlashDevice::restarted(handle, &self.device, options, medium).recovery_reads();
        Ok(Outcome { recovery, drift: 1.0, trace_hash: handle.trace_hash(), ..Outcome::default() })
    }
}
