//! What the firmware's recovery reads when it has the most to do (OPTR paper, section 7): random writes fill the log of
//! checkpoints, and the power goes one request before the firmware would begin it anew with a full checkpoint.
//!
//! A first run finds that request; a second one is the same up to there, since a run is a function of its seed.

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
        let requests = self.simulated(seed, async |handle| self.requests_until_full(writes, handle).await)?;
        self.simulated(seed, async |handle| self.recovered(writes, requests, handle).await)
    }

    fn simulated<T>(
        &self,
        seed: u64,
        work: impl AsyncFnOnce(&Handle) -> Result<T, Rejected>,
    ) -> Result<T, FigureError> {
        let cores = Some(self.host.simulated());
        let runtime = Runtime::simulated(Simulation { seed, cores, ..Simulation::default() });
        let handle = runtime.handle();
        runtime
            .block_on(work(&handle))
            .map_err(|source| FigureError::Stalled { run: self.title(), source })?
            .map_err(|source| FigureError::Command { run: self.title(), source })
    }

    fn writer(&self, writes: RandomWrites, handle: &Handle, never_cut: bool) -> RandomWriter {
        let options = FlashOptions { keep: Keep::Versions, never_cut, ..FlashOptions::default() };
        let device = FlashDevice::new(handle, &self.device, options);
        self.prepare(&device, self.device.blocks);
        RandomWriter::new(handle, device, writes, &self.host)
    }

    /// How many requests the device takes before it begins its second full checkpoint.
    async fn requests_until_full(&self, writes: RandomWrites, handle: &Handle) -> Result<u64, Rejected> {
        let mut writer = self.writer(writes, handle, true);
        loop {
            let before = writer.requests;
            writer.request().await?;
            let counted = writer.device.stats();
            if counted.checkpoints - counted.increments > 1 {
                return Ok(before);
            }
        }
    }

    /// What recovery reads after so many requests and a power cut.
    async fn recovered(
        &self,
        writes: RandomWrites,
        requests: u64,
        handle: &Handle,
    ) -> Result<Outcome, Rejected> {
        let mut writer = self.writer(writes, handle, false);
        while writer.requests < requests {
            writer.request().await?;
        }
        let medium = writer.device.after_cut(&mut handle.random("cut"));
        writer.device.cut_power();
        let options = FlashOptions { keep: Keep::Versions, ..FlashOptions::default() };
        let again = FlashDevice::restarted(handle, &self.device, options, medium);
        let recovery = again.recovery_reads();
        Ok(Outcome { recovery, drift: 1.0, ..Outcome::default() })
    }
}
