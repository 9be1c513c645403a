//! A campaign: runs, one after the other, until enough different crash states were judged.

use weir_storage::Discard;

use crate::content::mix;
use crate::findings::{Failure, Findings, Totals};
use crate::options::RunOptions;
use crate::run::run;

/// Of so many runs one is a small case, looked at exhaustively.
const SMALL_EVERY: u64 = 4;

/// Of so many runs one is on a volume that passes discards on.
const DISCARDS_EVERY: u64 = 3;

/// Of so many runs one makes packed writes.
const PACKED_EVERY: u64 = 7;

/// What to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Campaign {
    /// Determines everything.
    pub seed: u64,
    /// Distinct crash states to judge, with shares those with a share under way; the run that reaches them is finished.
    pub states: u64,
    /// Only the run with this number, from 0, whatever `states` says.
    pub only: Option<u64>,
    /// Blocks of the disk, for large volumes; 0 for small ones of all kinds.
    pub disk_blocks: u64,
    /// The workloads share blocks, too.
    pub shares: bool,
}

/// A run that failed.
#[derive(Clone, Debug)]
pub struct Failed {
    /// The run's number.
    pub run: u64,
    /// All options of the run.
    pub options: RunOptions,
    /// What was wrong.
    pub failure: Failure,
    /// The command that does it again.
    pub replay: String,
}

/// What a campaign has shown.
#[derive(Clone, Debug, Default)]
pub struct Summary {
    /// The counts of all runs.
    pub totals: Totals,
    /// The runs that failed.
    pub failed: Vec<Failed>,
    /// Stands for everything that happened: equal campaigns, equal hash.
    pub trace_hash: u64,
}

impl Campaign {
    /// The options of run number `number`.
    #[must_use]
    pub fn options(&self, number: u64) -> RunOptions {
        let seed = mix(self.seed, number);
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
        options
    }

    /// The command that does run number `number` again.
    #[must_use]
    pub fn replay(&self, number: u64) -> String {
        let size =
            if self.disk_blocks > 0 { format!(" --blocks {}", self.disk_blocks) } else { String::new() };
        let shares = if self.shares { " --shares" } else { "" };
        format!(
            "cargo run --release --example volume_crash -- --seed {} --only {number}{size}{shares}",
            self.seed
        )
    }

    /// Does it; `after_run` is told of each run.
    pub fn go(&self, mut after_run: impl FnMut(u64, &Findings)) -> Summary {
        let mut summary = Summary::default();
        let mut number = self.only.unwrap_or(0);
        loop {
            let options = self.options(number);
            let findings = run(&options);
            summary.totals.add(&findings.totals);
            summary.trace_hash = mix(summary.trace_hash, findings.trace_hash);
            after_run(number, &findings);
            if let Some(failure) = findings.failure {
                let replay = self.replay(number);
                summary.failed.push(Failed { run: number, options, failure, replay });
            }
            number += 1;
            let Totals { states_distinct, states_sharing, .. } = summary.totals;
            let judged = if self.shares { states_sharing } else { states_distinct };
            if self.only.is_some() || judged >= self.states {
                return summary;
            }
        }
    }
}
