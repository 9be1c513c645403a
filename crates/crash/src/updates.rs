//! Power cuts under atomic files and units. In each of a chain of *lives* a script writes updates to a few atomic files
//! and commits them, alone and in groups, beside ordinary files that are made durable, deleted and made again, so that
//! blocks that the journal has held become others'; and it overwrites aligned units of one ordinary file. At every event
//! of the storage below the power is cut, on copies. What is left is recovered and read, and has to be, for *all* atomic
//! files together, what they were after one of the commits: none older than the last that was called durable, and
//! nothing of an update that was not committed, or was taken back. Every unit has to be one version. An ordinary file
//! that was made durable and not deleted since has to be there.
//!
//! One of the cuts is where the next life begins, and its recovery is cut, too.

mod history;
mod life;

use std::collections::BTreeSet;

use serde::Serialize;
use weir_fs::MountOptions;
use weir_runtime::{Runtime, Simulation};

use crate::FsGround;
use crate::cuts::CutCounts;
use crate::fs::ground::new_image;
use life::Chain;

/// A campaign on one ground.
#[derive(Clone, Debug)]
pub struct UpdateCampaign {
    /// What the filesystem stands on.
    pub ground: FsGround,
    /// Distinct states to judge.
    pub states: u64,
    /// Determines everything.
    pub seed: u64,
    /// Replay only the run with this number.
    pub only: Option<u64>,
    /// Engine, journal mode and checkpoints; the rest is drawn for each run.
    pub options: MountOptions,
}

/// What a campaign did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct UpdateTotals {
    /// Runs, each a chain of lives.
    pub runs: u64,
    /// Lives.
    pub lives: u64,
    /// Updates that were committed, those of a group as one.
    pub updates: u64,
    /// Updates that were taken back.
    pub abandoned: u64,
    /// Events of the storage below.
    pub events: u64,
    /// Power cuts, some of which left the same.
    pub cuts: u64,
    /// Different states among them, where the same content under different promises counts as different.
    pub states_distinct: u64,
    /// Of these, left by a second life or a later one, recovery included.
    pub states_deep: u64,
    /// Of these, those in which units were judged, too: the storage keeps requests whole.
    pub states_units: u64,
    /// Of these, shown to the format's own check after recovery.
    pub states_checked: u64,
}

impl UpdateTotals {
    fn add(&mut self, other: &UpdateTotals, counts: CutCounts) {
        self.lives += counts.lives;
        self.updates += other.updates;
        self.abandoned += other.abandoned;
        self.events += counts.events;
        self.cuts += counts.cuts;
        self.states_deep += counts.states_deep;
        self.states_units += other.states_units;
        self.states_checked += other.states_checked;
    }
}

/// A run that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UpdateFailure {
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
pub struct UpdateSummary {
    /// What it did.
    pub totals: UpdateTotals,
    /// The first run that failed; the campaign ends there.
    pub failure: Option<UpdateFailure>,
    /// Stands for everything that happened.
    pub trace_hash: u64,
}

impl UpdateCampaign {
    /// Runs until so many distinct states are judged, or one is wrong.
    #[must_use]
    pub fn go(&self) -> UpdateSummary {
        let mut summary = UpdateSummary { totals: UpdateTotals::default(), failure: None, trace_hash: 0 };
        let image = match new_image(true) {
            Ok(image) => image,
            Err(what) => {
                summary.failure = Some(UpdateFailure { run: 0, life: 0, event: 0, what });
                return summary;
            }
        };
        let mut distinct = BTreeSet::new();
        let runs = self.only.map_or(0..u64::MAX, |only| only..only + 1);
        for run in runs {
            let seed = crate::content::mix(self.seed, run);
            let explore = seed.is_multiple_of(2);
            let runtime = Runtime::simulated(Simulation { seed, explore, cores: None });
            let chain = Chain::new(&runtime.handle(), self);
            let ended = runtime.block_on(chain.live(&image));
            let found = &mut *chain.found.borrow_mut();
            distinct.append(&mut found.seen);
            summary.totals.add(&found.totals, found.counts);
            summary.totals.runs += 1;
            summary.totals.states_distinct = distinct.len() as u64;
            summary.trace_hash = crate::content::mix(summary.trace_hash, runtime.handle().trace_hash());
            let stalled = ended.is_err().then(|| (0, 0, "everybody waits, for ever".to_owned()));
            if let Some((life, event, what)) = found.failure.take().or(stalled) {
                summary.failure = Some(UpdateFailure { run, life, event, what });
                break;
            }
            if summary.totals.states_distinct >= self.states {
                break;
            }
        }
        summary
    }
}
