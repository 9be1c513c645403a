//! *Facts* are counted and not measured: no program runs, and no time passes. Those of the OPTR paper's worked examples
//! (its figures 3 and 6), and of the memory that its mechanism takes (section 7).

use std::collections::BTreeSet;
use std::fmt;

use serde::Deserialize;
use weir_flash::{FlashDevice, FlashOptions, FlowNetwork, Keep, OrderMemory, Profile};
use weir_runtime::{Runtime, Simulation};
use weir_storage::{
    AdversaryDisk, AdversaryOptions, BLOCK_BYTES, Command, Image, Lba, Part, Rejected, Storage, Write, flush,
};

use crate::error::FigureError;
use crate::experiment::Experiment;
use crate::metric::Metric;
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

impl Experiment for Fact {
    fn metrics(&self) -> Vec<Metric> {
        vec![self.metric()]
    }

    fn run(&self, run: &Run, _seed: u64, _options: FlashOptions) -> Result<Outcome, FigureError> {
        let mut outcome = Outcome::steady();
        outcome.set(self.metric(), self.number(&run.device)? as f64);
        Ok(outcome)
    }
}

impl Fact {
    fn metric(self) -> Metric {
        match self {
            Fact::States => Metric::new("states", "states"),
            Fact::Cuts | Fact::ValidCuts => Metric::new("cuts", "cuts"),
            Fact::RecoveryPoint => Metric::new("request", "request"),
            Fact::Tags | Fact::Increments | Fact::Records => Metric::new("bytes", "bytes"),
        }
    }

    /// Counts on this device.
    fn number(self, device: &Profile) -> Result<u64, FigureError> {
        let memory = |part: fn(&OrderMemory) -> u64| device.order_memory().as_ref().map_or(0, part);
        Ok(match self {
            Fact::States => states(device)?,
            Fact::Cuts => six_requests().cuts(),
            Fact::ValidCuts => six_requests().valid_cuts().len() as u64,
            Fact::RecoveryPoint => six_requests().recovery_point(),
            Fact::Tags => memory(|memory| memory.tags),
            Fact::Increments => memory(|memory| memory.increments),
            Fact::Records => memory(|memory| memory.records),
        })
    }
}

/// How many states the worst disk that claims what the device claims may leave of the paper's figure 3.
fn states(device: &Profile) -> Result<u64, FigureError> {
    let runtime = Runtime::simulated(Simulation::default());
    let options = FlashOptions { keep: Keep::Versions, never_cut: true, ..FlashOptions::default() };
    let capabilities = *FlashDevice::new(&runtime.handle(), device, options).capabilities();
    let options = AdversaryOptions { blocks: SECTORS as u64, capabilities, ..AdversaryOptions::default() };
    let disk = AdversaryDisk::new(&runtime.handle(), options);
    let run = || format!("four writes on the worst disk with the capabilities of {}", device.name);
    runtime
        .block_on(four_writes(&*disk))
        .map_err(|source| FigureError::Stalled { run: run(), source })?
        .map_err(|source| FigureError::Command { run: run(), source })?;
    let version = |image: &Image, sector: usize| image.read(Lba(sector as u64))[0];
    let states = disk.crash_states();
    let states: BTreeSet<[u8; SECTORS]> =
        states.all().map(|image| std::array::from_fn(|sector| version(&image, sector))).collect();
    Ok(states.len() as u64)
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
