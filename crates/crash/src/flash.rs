//! Power cuts on an emulated flash device. In each round of a run a workload is played, and after every event of the
//! device the power is cut several times, on copies: what is left is recovered by the firmware, read, and judged by what
//! the witness saw. The next round begins with what one of the cuts has left: its recovery is cut, too, and must find
//! the same every time.

mod driver;

pub(crate) mod profile;
mod run;

use weir_flash::{FlashOptions, Mechanism};

use crate::campaign::{Campaign, Plan, Run, counts};
use run::FlashRun;

/// A campaign on one mechanism.
#[derive(Clone)]
pub struct FlashCampaign {
    /// How long it is.
    pub plan: Plan,
    /// The barrier mechanism of the device.
    pub mechanism: Mechanism,
    /// How the firmware runs: for mutants.
    pub options: FlashOptions,
    /// Whether the device claims barriers that its mechanism does not keep: the negative control.
    pub claims_barriers: bool,
}

counts! {
    /// What a campaign did.
    pub struct FlashTotals of rounds {
        /// Commands accepted.
        pub commands: u64,
        /// Of these, shares.
        pub shares: u64,
        /// Of these, packed writes.
        pub packed: u64,
        /// Writes that were reliable, alone or in packed ones.
        pub reliable: u64,
        /// Of the states, left while the device was cleaning.
        pub states_cleaning: u64,
        /// Of these, left while a share was under way: submitted, and not answered.
        pub states_sharing: u64,
        /// Of these, left while a packed write was under way.
        pub states_packing: u64,
        /// Of these, with pages that the cut has garbled.
        pub states_garbled: u64,
        /// Different states that were left by a cut during recovery.
        pub states_recovery: u64,
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
    pub fn new(mechanism: Mechanism, plan: Plan) -> FlashCampaign {
        FlashCampaign { plan, mechanism, options: FlashOptions::default(), claims_barriers: false }
    }
}

impl Campaign for FlashCampaign {
    type Totals = FlashTotals;
    type Beginning = ();

    fn plan(&self) -> Plan {
        self.plan
    }

    fn prepare(&self) -> Result<(), String> {
        Ok(())
    }

    fn play_run(&self, (): &(), _number: u64, seed: u64) -> Run<FlashTotals> {
        FlashRun::play(self, seed)
    }
}
