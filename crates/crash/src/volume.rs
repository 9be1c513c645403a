//! Power cuts under a volume: each run draws its options, and is played by [`run`].

use weir_storage::Discard;

use crate::campaign::{Campaign, Plan, Run};
use crate::content::mix;
use crate::findings::Totals;
use crate::options::RunOptions;
use crate::run::run;

/// One of so many runs is a small case, of which all states are judged.
const SMALL_EVERY: u64 = 4;

/// One of so many runs is on a volume that passes discards on.
const DISCARDS_EVERY: u64 = 3;

/// One of so many runs makes packed writes.
const PACKED_EVERY: u64 = 7;

/// A campaign on volumes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VolumeCampaign {
    /// How long it is: with shares, only states with a share under way count.
    pub plan: Plan,
    /// Blocks of the disk, for large volumes; 0 for small ones of all kinds.
    pub disk_blocks: u64,
    /// The workloads share blocks, too.
    pub shares: bool,
    /// The disk acknowledges flushes and does nothing: the negative control.
    pub ignores_flushes: bool,
}

impl VolumeCampaign {
    /// Blocks of the disk of a large volume at least, and at most.
    pub const DISK_BLOCKS_MIN: u64 = RunOptions::LARGE_BLOCKS_MIN;
    /// See [`DISK_BLOCKS_MIN`](Self::DISK_BLOCKS_MIN). Units are numbered in 32 bits.
    pub const DISK_BLOCKS_MAX: u64 = u32::MAX as u64 - 1;

    /// A campaign on small volumes of all kinds.
    #[must_use]
    pub fn new(plan: Plan) -> VolumeCampaign {
        VolumeCampaign { plan, disk_blocks: 0, shares: false, ignores_flushes: false }
    }

    /// The options of run number `number`.
    #[must_use]
    pub fn options(&self, number: u64) -> RunOptions {
        let seed = mix(self.plan.seed, number);
        let small = number % SMALL_EVERY == SMALL_EVERY - 1;
        let mut options = if small { RunOptions::draw_small(seed) } else { RunOptions::draw(seed) };
        if number % DISCARDS_EVERY == DISCARDS_EVERY - 1 {
            options.disk.discard = Discard::ReadsZero;
            options.volume.discard_below = true;
        }
        if number % PACKED_EVERY == PACKED_EVERY - 1 {
            options.add_packed();
        }
        if self.disk_blocks > 0 {
            options.enlarge(self.disk_blocks);
        }
        if self.shares {
            options.add_shares();
        }
        options.ignores_flushes = self.ignores_flushes;
        options
    }
}

impl Campaign for VolumeCampaign {
    type Totals = Totals;
    type Beginning = ();

    fn plan(&self) -> Plan {
        self.plan
    }

    fn prepare(&self) -> Result<(), String> {
        Ok(())
    }

    fn play_run(&self, (): &(), number: u64, _seed: u64) -> Run<Totals> {
        let options = self.options(number);
        run(&options).into_run(&options)
    }

    fn states_of(&self, totals: &Totals, distinct: u64) -> u64 {
        if self.shares { totals.states_sharing } else { distinct }
    }
}
