//! Power cuts under F2FS: the scripts, storages and cuts of the campaigns on BarrierFS, with the judge of a filesystem that
//! [rolls forward](super::history). The filesystem is [aged](image): few segments are free, and most have holes, so that it
//! cleans while a script runs. What a recovery leaves is clean by the check of the format; of some states fsck.f2fs is asked.

mod fsck;
mod image;
mod run;

use std::rc::Rc;

use weir_lfs::{Cleaner, F2fsOptions};

use super::FsGround;
use crate::campaign::{Campaign, Plan, Run, counts};
use image::Aged;
pub(crate) use image::BLOCKS as F2FS_BLOCKS;
use run::F2fsRun;

/// A campaign on one cleaner and one ground.
#[derive(Clone)]
pub struct F2fsCampaign {
    /// How long it is.
    pub plan: Plan,
    /// What the filesystem stands on.
    pub ground: FsGround,
    /// Of this many states, one is shown to fsck.f2fs; 0 for none.
    pub outside: u64,
    /// How the filesystem behaves beside what is drawn: its cleaner, and mutants.
    pub options: F2fsOptions,
}

counts! {
    /// What a campaign did.
    pub struct F2fsTotals of rounds {
        /// Operations.
        pub operations: u64,
        /// Different states that were left by a cut during recovery.
        pub states_recovery: u64,
        /// Of all states, shown to fsck.f2fs.
        pub states_outside: u64,
        /// Checkpoints.
        pub checkpoints: u64,
        /// Segments that were cleaned.
        pub segments_cleaned: u64,
        /// Pages that were moved for that.
        pub pages_moved: u64,
        /// Nodes that were moved for that.
        pub nodes_moved: u64,
    }
}

impl F2fsCampaign {
    /// A campaign on a filesystem without bugs, one of 500 states shown to fsck.f2fs where it is installed.
    #[must_use]
    pub fn new(cleaner: Cleaner, ground: FsGround, plan: Plan) -> F2fsCampaign {
        F2fsCampaign {
            plan,
            ground,
            outside: 500,
            options: F2fsOptions { cleaner, ..F2fsOptions::default() },
        }
    }
}

impl Campaign for F2fsCampaign {
    type Totals = F2fsTotals;
    /// And the states of which one is shown to fsck.f2fs, if it is installed.
    type Beginning = (Rc<Aged>, u64);

    fn plan(&self) -> Plan {
        self.plan
    }

    fn prepare(&self) -> Result<(Rc<Aged>, u64), String> {
        let outside = if fsck::is_there() { self.outside } else { 0 };
        Ok((Rc::new(Aged::new()?), outside))
    }

    fn play_run(&self, (aged, outside): &(Rc<Aged>, u64), _number: u64, seed: u64) -> Run<F2fsTotals> {
        F2fsRun::play(&F2fsCampaign { outside: *outside, ..self.clone() }, aged, seed)
    }
}
