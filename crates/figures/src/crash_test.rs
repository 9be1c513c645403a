//! The crash tests of table 2 of the FAST 2018 paper: a workload of CrashMonkey's on the worst disk, the power cut at its end, with
//! CrashMonkey's choice of what is lost, or at events of its plays, and what is left called clean, fixed or failed by four judges. No device is emulated, and no time is
//! measured.

use std::fmt;

use serde::Deserialize;
use weir_crash::{Condition, CrashMonkeyCheck, Judges, Overlaps, Setup, Tally, Workload};
use weir_flash::FlashOptions;

use crate::error::FigureError;
use crate::experiment::Experiment;
use crate::metric::Metric;
use crate::run::{Outcome, Run};

/// One of CrashMonkey's workloads; the paper's scenarios A and B.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scenario {
    /// A file moves from the root to a directory.
    RenameRootToSub,
    /// Ten files are created, and deleted.
    CreateDelete,
}

/// A filesystem, and what its calls promise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Tested {
    /// The legacy engine, with flushes.
    Ext4Dr,
    /// The dual-mode engine, by `fsync`.
    BfsDr,
    /// The legacy engine without flushes: nobarrier.
    Ext4Od,
    /// The dual-mode engine, by `fbarrier`.
    BfsOd,
}

/// Which states of a workload are tested.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Cuts {
    /// Those of power cuts at its events.
    Events,
    /// CrashMonkey's permutations of its requests, as they are: of writes to one block any may win.
    Crashmonkey,
    /// The same, where writes to one block keep their order.
    CrashmonkeyLegal,
}

/// Crash tests of a workload on a filesystem.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CrashTest {
    /// What is done.
    pub scenario: Scenario,
    /// On what.
    pub on: Tested,
    /// Whether metadata and journal have checksums.
    pub checksums: bool,
    /// Which states.
    pub cuts: Cuts,
}

/// The workloads' files, below the figure's folder.
macro_rules! workload {
    ($name:literal) => {
        include_str!(concat!("../figures/fast18-table2/", $name, ".txt"))
    };
}

impl Scenario {
    fn letter(self) -> &'static str {
        match self {
            Scenario::RenameRootToSub => "A",
            Scenario::CreateDelete => "B",
        }
    }

    /// What is there before, and durable.
    fn setup(self) -> &'static str {
        match self {
            Scenario::RenameRootToSub => workload!("rename_root_to_sub.setup"),
            Scenario::CreateDelete => workload!("create_delete.setup"),
        }
    }

    fn check(self) -> CrashMonkeyCheck {
        match self {
            Scenario::RenameRootToSub => CrashMonkeyCheck::RenameRootToSub,
            Scenario::CreateDelete => CrashMonkeyCheck::CreateDelete,
        }
    }

    fn run(self, on: Tested) -> &'static str {
        match (self, on) {
            (Scenario::RenameRootToSub, Tested::BfsOd) => workload!("rename_root_to_sub.ordered"),
            (Scenario::RenameRootToSub, _) => workload!("rename_root_to_sub"),
            (Scenario::CreateDelete, Tested::BfsOd) => workload!("create_delete.ordered"),
            (Scenario::CreateDelete, _) => workload!("create_delete"),
        }
    }
}

impl Tested {
    fn name(self) -> &'static str {
        match self {
            Tested::Ext4Dr => "EXT4-DR",
            Tested::BfsDr => "BFS-DR",
            Tested::Ext4Od => "EXT4-OD",
            Tested::BfsOd => "BFS-OD",
        }
    }

    /// The ground and the engine, by the names that crash tests have for them.
    fn place(self) -> (&'static str, &'static str) {
        match self {
            Tested::Ext4Dr => ("legacy", "jbd2"),
            Tested::Ext4Od => ("legacy", "jbd2-nobarrier"),
            Tested::BfsDr | Tested::BfsOd => ("adversary", "dual"),
        }
    }
}

impl fmt::Display for CrashTest {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "crash tests, {}", self.name())
    }
}

/// Blocks of the journal in use from which on what is committed goes home, where CrashMonkey chooses: at once. There Linux writes
/// home whatever has been dirty for 5 s, and the test sleeps longer behind each deletion, and 20 s at its end.
const LOG_BLOCKS: u32 = 1;

/// Different states after a power cut.
const STATES: Metric = Metric::new("states", "states");

/// Crash tests, of 1,000, that leave a clean filesystem, one which a repair makes whole, and one which is beyond repair, or
/// not what was promised.
const CONDITIONS: [(Metric, Condition); 3] = [
    (Metric::new("clean", OF_TESTS), Condition::Clean),
    (Metric::new("fixed", OF_TESTS), Condition::Fixed),
    (Metric::new("failed", OF_TESTS), Condition::Failed),
];
const OF_TESTS: &str = "of 1,000 tests";

impl Experiment for CrashTest {
    fn metrics(&self) -> Vec<Metric> {
        CONDITIONS.into_iter().map(|(metric, _)| metric).chain([STATES]).collect()
    }

    fn run(&self, run: &Run, seed: u64, _options: FlashOptions) -> Result<Outcome, FigureError> {
        let tally = self
            .tally(run.writes, seed, run.asks_kernel)
            .map_err(|what| FigureError::CrashTest { run: self.name(), what })?;
        let mut outcome = Outcome::steady();
        for (metric, condition) in CONDITIONS {
            let tests = match self.cuts {
                Cuts::Events => tally.all(condition),
                Cuts::Crashmonkey | Cuts::CrashmonkeyLegal => tally.tested(condition),
            };
            outcome.set(metric, 1e3 * tests as f64 / tally.tests() as f64);
            outcome.judges.push((metric.name, tally.by_judge(condition)));
        }
        outcome.set(STATES, tally.states() as f64);
        Ok(outcome)
    }
}

impl CrashTest {
    /// The name in rows.
    pub(crate) fn name(self) -> String {
        let checksums = if self.checksums { " with checksums" } else { "" };
        let cuts = match self.cuts {
            Cuts::Events => " at events",
            Cuts::Crashmonkey => "",
            Cuts::CrashmonkeyLegal => " with overlaps in order",
        };
        format!("{} {}{checksums}{cuts}", self.scenario.letter(), self.on.name())
    }

    /// Makes so many tests, with the judges that this machine has.
    fn tally(self, tests: u64, seed: u64, asks_kernel: bool) -> Result<Tally, String> {
        let workload = |text: &str| text.parse::<Workload>().map_err(|error| error.to_string());
        let (before, work) = (workload(self.scenario.setup())?, workload(self.scenario.run(self.on))?);
        let (ground, engine) = self.on.place();
        let setup = Setup::named(ground, engine).map_err(|error| error.to_string())?;
        let mut setup = Setup { seed, checksums: self.checksums, check: 0, ..setup };
        if self.cuts != Cuts::Events {
            setup.options.checkpoint_blocks = LOG_BLOCKS;
        }
        let bench = setup.prepare().map_err(|error| error.to_string())?;
        let bench = bench.after(&before).map_err(|error| error.to_string())?;
        let judges = if asks_kernel { Judges::here()? } else { Judges::without_kernel() };
        let permuted = |overlaps| bench.permuted_tests(&work, tests, overlaps, judges, self.scenario.check());
        let tally = match self.cuts {
            Cuts::Events => bench.crash_tests(&work, tests, judges),
            Cuts::Crashmonkey => permuted(Overlaps::AsDrawn),
            Cuts::CrashmonkeyLegal => permuted(Overlaps::InOrder),
        };
        tally.map_err(|error| error.to_string())
    }
}

/// Crash tests of every combination (a `[[crash_tests]]` in `figure.toml`): a row for each condition, and one for the number of
/// different states.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CrashTests {
    /// What is done.
    pub scenarios: Vec<Scenario>,
    /// On what.
    pub on: Vec<Tested>,
    /// With checksums and without, or one of them.
    pub checksums: Vec<bool>,
    /// Of which states.
    pub cuts: Vec<Cuts>,
}

impl CrashTests {
    /// Every combination.
    pub(crate) fn all(&self) -> Vec<CrashTest> {
        let mut all = Vec::new();
        for scenario in &self.scenarios {
            for (cuts, checksums) in
                self.cuts.iter().flat_map(|cuts| self.checksums.iter().map(move |is| (cuts, is)))
            {
                let on = |on: &Tested| CrashTest {
                    scenario: *scenario,
                    on: *on,
                    checksums: *checksums,
                    cuts: *cuts,
                };
                all.extend(self.on.iter().map(on));
            }
        }
        all
    }
}
