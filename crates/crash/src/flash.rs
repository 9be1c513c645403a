//! Power cuts on an emulated flash device: a chain of *lives*. In each, a workload runs, and after every event
//! of the device the power is cut several times over, on copies: what is left is recovered by the firmware,
//! read, and judged by what the witness saw. One of the cuts is where the next life begins: its recovery is cut
//! too, and must find the same every time.

mod driver;
mod lives;
pub(crate) mod profile;

use weir_flash::{FlashOptions, Mechanism};
use weir_runtime::{Runtime, Simulation};

use crate::campaign::{Campaign, Plan, Run, counts};
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

counts! {
    /// What a campaign did.
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
}

impl FlashCampaign {
    /// A campaign on a device without bugs.
    #[must_use]
    pub fn new(mechanism: Mechanism, states: u64, seed: u64) -> FlashCampaign {
        let options = FlashOptions::default();
        FlashCampaign { mechanism, states, seed, only: None, options, claims_barriers: false }
    }
}

impl Campaign for FlashCampaign {
    type Totals = FlashTotals;
    type Beginning = ();

    fn plan(&self) -> Plan {
        Plan { states: self.states, seed: self.seed, only: self.only }
    }

    fn prepare(&self) -> Result<(), String> {
        Ok(())
    }

    fn play_run(&self, (): &(), _number: u64, seed: u64) -> Run<FlashTotals> {
        let runtime = Runtime::simulated(Simulation { seed, ..Simulation::default() });
        let chain = Chain::new(&runtime.handle(), self);
        let is_deadlock = runtime.block_on(chain.play_lives()).is_err();
        let mut found = chain.found.borrow_mut();
        found.end_run(is_deadlock, runtime.handle().trace_hash())
    }
}
