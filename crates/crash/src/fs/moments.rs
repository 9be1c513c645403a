//! Power cuts under a mount with moments (J11). In each round of a run several programs change a directory each, as programs
//! do, most without a synchronisation call, on a volume with marks (V13) on the worst disk. At events of that disk the power is
//! cut, on copies; what is left is recovered, mounted and read, and has to be the whole tree as of one moment that is not older than
//! is promised ([`history`]). The next round begins with what one of the cuts has left, and its recovery is cut, too.
//!
//! - **A state** is what a cut leaves on the disk. One that several cuts leave counts once, and is judged at each of them.
//! - **The whole tree** is what a mount shows: names, links, kinds, content, sizes, permissions, owners, an extended attribute, and
//!   the times of changes. It is compared with what the running mount showed after each call.
//! - **The writeback cache** of the kernel is a part of the program: some programs keep pages of a file back, and pass them on one by
//!   one between later calls, as the kernel does. For what was not passed on, there is no promise.
//! - **A round may end** by unmounting, with the power cut meanwhile, and what is mounted then has all that was done.
//! - **The mount stops** where a volume that is nearly full has no room for a moment. Nothing is newer than that then.

mod history;
mod program;
mod run;

use std::time::Duration;

use weir_fs::MountOptions;
use weir_volume::VolumeRules;

use crate::campaign::{Campaign, Plan, Run, counts};
use crate::fs::ground::{Blocks, new_image};
use run::MomentRun;

/// A campaign.
#[derive(Clone, Debug)]
pub struct MomentCampaign {
    /// How long it is.
    pub plan: Plan,
    /// Whether moments are taken; without them a crash leaves a tree that never was: the control.
    pub moments: bool,
    /// How the filesystem is mounted; the interval between moments and sizes of caches are drawn for each run.
    pub options: MountOptions,
    /// The rules that the volume keeps.
    pub rules: VolumeRules,
}

counts! {
    /// What a campaign did.
    pub struct MomentTotals of rounds {
        /// Calls that changed something.
        pub calls: u64,
        /// Synchronisation calls.
        pub syncs: u64,
        /// Pages that programs kept back, and passed on later.
        pub late_pages: u64,
        /// Calls that found no space.
        pub calls_full: u64,
        /// Different states that were left by a cut during recovery.
        pub states_recovery: u64,
        /// Cuts that left a state that was there before, and judged again.
        pub judged_again: u64,
        /// States whose format was checked.
        pub states_checked: u64,
        /// Rounds that ended by unmounting.
        pub unmounts: u64,
        /// Rounds in which the mount stopped, as a moment found no room.
        pub stops: u64,
        /// Checkpoints of volumes.
        pub checkpoints: u64,
        /// Blocks that the cleaners of volumes have moved.
        pub cleaned: u64,
    }
    largest {
        /// How much older than the interval the tree was, in microseconds.
        pub transfer_us_max: u64,
    }
}

impl MomentCampaign {
    /// A campaign on mounts without bugs.
    #[must_use]
    pub fn new(plan: Plan) -> MomentCampaign {
        MomentCampaign { plan, moments: true, options: MountOptions::default(), rules: VolumeRules::all() }
    }
}

impl Campaign for MomentCampaign {
    type Totals = MomentTotals;
    type Beginning = Blocks;

    fn plan(&self) -> Plan {
        self.plan
    }

    fn prepare(&self) -> Result<Blocks, String> {
        new_image(true)
    }

    fn play_run(&self, image: &Blocks, _number: u64, seed: u64) -> Run<MomentTotals> {
        MomentRun::play(self, image, seed)
    }
}

/// What is promised of the age of a tree, beside order.
#[derive(Clone, Copy, Debug)]
struct Promise {
    /// The time between two moments.
    interval: Duration,
    /// How long taking a moment may take, with the transfer that makes it safe.
    transfer: Duration,
}
