//! Power cuts on an emulated flash device: a chain of *lives*. In each, a workload runs, and after every event
//! of the device the power is cut several times over, on copies: what is left is recovered by the firmware,
//! read, and judged by what the witness saw. One of the cuts is where the next life begins: its recovery is cut
//! too, and must find the same every time.

mod driver;
mod lives;
pub(crate) mod profile;

use serde::Serialize;
use weir_flash::{FlashOptions, Mechanism};
use weir_runtime::{Runtime, Simulation};

use lives::Chain;

/// A campaign on one mechanism.
#[derive(Clone)]
pub struct FlashCampaign {
    /// The barrier mechanism of the device.
    pub mechanism: Mechanism,
    /// Distinct states of the flash to judge.
    pub states: u64,
    /// Determines everything.
    pub seed: u64,
    /// Replay only the run with this number.
    pub only: Option<u64>,
    /// How the firmware runs: for mutants.
    pub options: FlashOptions,
    /// Whether the device claims barriers that its mechanism does not keep: the negative control.
    pub claims_barriers: bool,
}

/// What a campaign did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct FlashTotals {
    /// Runs, each a chain of lives.
    pub runs: u64,
    /// Lives.
    pub lives: u64,
    /// Commands accepted.
    pub commands: u64,
    /// Of these, shares.
    pub shares: u64,
    /// Of these, packed writes.
    pub packed: u64,
    /// Writes that were reliable, alone or in packed ones.
    pub reliable: u64,
    /// Events of the device.
    pub events: u64,
    /// Power cuts judged, some of which left the same.
    pub cuts: u64,
    /// Different states of the flash among them, each run's for itself: runs draw their own devices and content.
    pub states_distinct: u64,
    /// Of these, left while the device was cleaning.
    pub states_cleaning: u64,
    /// Of these, left while a share was under way: submitted, and not answered.
    pub states_sharing: u64,
    /// Of these, left while a packed write was under way.
    pub states_packing: u64,
    /// Of these, with pages that the cut has garbled.
    pub states_garbled: u64,
    /// Of these, left by a cut during recovery.
    pub states_recovery: u64,
    /// Of these, left by a second life or a later one: the flash had been recovered before.
    pub states_deep: u64,
    /// Erase blocks erased.
    pub erases: u64,
    /// Checkpoints written.
    pub checkpoints: u64,
    /// Of these, increments.
    pub increments: u64,
    /// Blocks that took the place of an older version in the cache.
    pub coalesced_blocks: u64,
    /// Pages of coalescing records written (order-preserving recovery).
    pub record_pages: u64,
    /// Flushes that the firmware made by itself (order-preserving recovery).
    pub internal_flushes: u64,
}

impl FlashTotals {
    fn add(&mut self, other: &FlashTotals) {
        self.runs += other.runs;
        self.lives += other.lives;
        self.commands += other.commands;
        self.shares += other.shares;
        self.packed += other.packed;
        self.reliable += other.reliable;
        self.events += other.events;
        self.cuts += other.cuts;
        self.states_distinct += other.states_distinct;
        self.states_cleaning += other.states_cleaning;
        self.states_sharing += other.states_sharing;
        self.states_packing += other.states_packing;
        self.states_garbled += other.states_garbled;
        self.states_recovery += other.states_recovery;
        self.states_deep += other.states_deep;
        self.erases += other.erases;
        self.checkpoints += other.checkpoints;
        self.increments += other.increments;
        self.coalesced_blocks += other.coalesced_blocks;
        self.record_pages += other.record_pages;
        self.internal_flushes += other.internal_flushes;
    }
}

/// A run that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlashFailure {
    /// The number of the run.
    pub run: u64,
    /// The life, from 0.
    pub life: u32,
    /// The event of that life.
    pub event: u64,
    /// What was wrong.
    pub what: String,
}

/// The end of a campaign.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlashSummary {
    /// What it did.
    pub totals: FlashTotals,
    /// The first run that failed; the campaign ends there.
    pub failure: Option<FlashFailure>,
    /// Stands for everything that happened.
    pub trace_hash: u64,
}

impl FlashCampaign {
    /// A campaign on a device without bugs.
    #[must_use]
    pub fn new(mechanism: Mechanism, states: u64, seed: u64) -> FlashCampaign {
        let options = FlashOptions::default();
        FlashCampaign { mechanism, states, seed, only: None, options, claims_barriers: false }
    }

    /// Runs until so many distinct states are judged, or one is wrong.
    #[must_use]
    pub fn go(&self) -> FlashSummary {
        let mut summary = FlashSummary { totals: FlashTotals::default(), failure: None, trace_hash: 0 };
        let runs = self.only.map_or(0..u64::MAX, |only| only..only + 1);
        for run in runs {
            let seed = crate::content::mix(self.seed, run);
            let runtime = Runtime::simulated(Simulation { seed, ..Simulation::default() });
            let mut chain = Chain::new(&runtime.handle(), self);
            let ended = runtime.block_on(chain.live());
            let found = chain.end();
            summary.totals.add(&found.totals);
            summary.totals.runs += 1;
            summary.trace_hash = crate::content::mix(summary.trace_hash, runtime.handle().trace_hash());
            let stalled = ended.is_err().then(|| (0, 0, "the device answers no more".to_owned()));
            if let Some((life, event, what)) = found.failure.or(stalled) {
                summary.failure = Some(FlashFailure { run, life, event, what });
                return summary;
            }
            if summary.totals.states_distinct >= self.states {
                break;
            }
        }
        summary
    }
}
