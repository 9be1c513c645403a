//! Power cuts under atomic files and units, and under the atomic writes of F2FS. In each round of a run a script writes updates to a few atomic files
//! and commits them, alone and in groups, beside ordinary files that are made durable, deleted and made again, so that
//! blocks that the journal has held become others'; and it overwrites aligned units of one ordinary file. At every event
//! of the storage below the power is cut, on copies. What is left is recovered and read, and has to be, for *all* atomic
//! files together, what they were after one of the commits: none older than the last that was called durable, and
//! nothing of an update that was not committed, or was taken back. Every unit has to be one version. An ordinary file
//! that was made durable and not deleted since has to be there.
//!
//! The next round begins with what one of the cuts has left, and its recovery is cut, too.

mod filesystem;
mod history;
mod run;

use crate::FsGround;
use crate::campaign::{Campaign, Plan, Run, counts};
use crate::fs::ground::Blocks;
pub use filesystem::UpdatedFs;
use run::UpdateRun;

/// A campaign on one ground.
#[derive(Clone, Debug)]
pub struct UpdateCampaign {
    /// How long it is.
    pub plan: Plan,
    /// What the filesystem stands on.
    pub ground: FsGround,
    /// Which filesystem, and how it is mounted.
    pub filesystem: UpdatedFs,
}

counts! {
    /// What a campaign did.
    pub struct UpdateTotals of rounds {
        /// Updates that were committed, those of a group as one.
        pub updates: u64,
        /// Updates that were taken back.
        pub abandoned: u64,
        /// States in which units were judged, too: the storage keeps requests whole.
        pub states_units: u64,
        /// States shown to the format's own check after recovery.
        pub states_checked: u64,
    }
}

impl Campaign for UpdateCampaign {
    type Totals = UpdateTotals;
    type Beginning = Blocks;

    fn plan(&self) -> Plan {
        self.plan
    }

    fn prepare(&self) -> Result<Blocks, String> {
        self.filesystem.make_image()
    }

    fn play_run(&self, image: &Blocks, _number: u64, seed: u64) -> Run<UpdateTotals> {
        UpdateRun::play(self, image, seed)
    }
}
