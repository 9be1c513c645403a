//! *Facts* are counted and not measured: no program runs, and no time passes. Those of the OPTR paper's worked examples
//! (its figures 3 and 6), and of the memory that its mechanism takes (section 7).

use std::collections::BTreeSet;
use std::fmt;

use serde::Deserialize;
use weir_flash::{FlashDevice, FlashOptions, FlowNetwork, Keep, OrderMemory};
use weir_runtime::{Runtime, Simulation};
use weir_storage::{
    AdversaryDisk, AdversaryOptions, BLOCK_BYTES, Command, Lba, Part, Rejected, Storage, Write, flush,
};

use crate::error::FigureError;
use crate::run::{Outcome, Run};

/// What is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Fact {
    /// The states that four writes and a flush may leave, on the worst disk that claims what the device claims.
    States,
    /// Of six requests, the cuts between them.
    Cuts,
    /// Those at which recovery may end, by definition.
    ValidCuts,
    /// The first request that recovery drops, by the firmware's algorithm.
    RecoveryPoint,
    /// Bytes of the cache's tags.
    Tags,
    /// Bytes of the buffer for increments.
    Increments,
    /// Bytes of the buffer for coalescing records.
    Records,
}

impl fmt::Display for Fact {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

impl Run {
    /// Counts.
    pub(crate) fn fact(&self, fact: Fact) -> Result<Outcome, FigureError> {
        let memory = |part: fn(&OrderMemory) -> u64| self.device.order_memory().as_ref().map_or(0, part);
        let number = match fact {
            Fact::States => self.states()?,
            Fact::Cuts => six_requests().cuts(),
            Fact::ValidCuts => six_requests().valid_cuts().len() as u64,
            Fact::RecoveryPoint => six_requests().recovery_point(),
            Fact::Tags => memory(|memory| memory.tags),
            Fact::Increments => memory(|memory| memory.increments),
            Fact::Records => memory(|memory| memory.records),
        };
        Ok(Outcome { number: number as f64, drift: 1.0, ..Outcome::default() })
    }

    /// How many states the worst disk may leave of the paper's figure 3.
    fn states(&self) -> Result<u64, FigureError> {
        let runtime = Runtime::simulated(Simulation::default());
        let options = FlashOptions { keep: Keep::Versions, never_cut: true, ..FlashOptions::default() };
        let capabilities = *FlashDevice::new(&runtime.handle(), &self.device, options).capabilities();
        let options =
            AdversaryOptions { blocks: SECTORS as u64, capabilities, ..AdversaryOptions::default() };
        let disk = AdversaryDisk::new(&runtime.handle(), options);
        let ended = runtime.block_on(four_writes(&*disk));
        ended
            .map_err(|source| FigureError::Stalled { run: self.title(), source })?
            .map_err(|source| FigureError::Command { run: self.title(), source })?;
        let states = disk.crash_states();
        let seen: BTreeSet<[u8; SECTORS]> =
            states.all().map(|image| std::array::from_fn(|at| image.read(Lba(at as u64))[0])).collect();
        Ok(seen.len() as u64)
    }
}

/// Sectors of figure 3.
const SECTORS: usize = 4;

/// The four writes of figure 3, first sector and end, with a flush behind the second. Each raises the versions of its
/// sectors by one.
async fn four_writes(storage: &dyn Storage) -> Result<(), Rejected> {
    let mut versions = [0; SECTORS];
    for (number, (first, end)) in [(0, 2), (2, 4), (0, 4), (2, 4)].into_iter().enumerate() {
        versions[first..end].iter_mut().for_each(|version| *version += 1);
        let bytes: Vec<u8> =
            versions[first..end].iter().flat_map(|version| [*version; BLOCK_BYTES]).collect();
        let parts = [Part::bytes(Lba(first as u64), &bytes)];
        storage.submit(Command::Write(Write::new(&parts)))?.transferred().await?;
        if number == 1 {
            flush(storage).await?;
        }
    }
    Ok(())
}

/// Figure 6: request 4 is incomplete; 1 and 2, 3 and 5, 5 and 6 coalesced.
fn six_requests() -> FlowNetwork {
    FlowNetwork {
        complete: vec![true, true, true, false, true, true],
        coalesced: vec![(1, 2), (3, 5), (5, 6)],
    }
}
