//! A *campaign* is a sequence of runs of one subject, until enough different crash states were judged or one of them is
//! wrong:
//!
//! 1. A run has a number, and a seed that is a hash of the campaign's seed and that number. It is a function of that seed,
//!    so it is the same when it is replayed alone.
//! 2. The run plays a workload, cuts the power, recovers, and judges. It returns its counts, the crash states that it has
//!    judged, and its first failure.
//! 3. The campaign adds up the counts. A crash state that several runs have judged counts once. The campaign ends with the
//!    first failure, which is made smaller where the subject can do that.
//!
//! Each subject implements [`Campaign`]: the volume, streams, emulated flash devices, their firmware under a trace, the
//! filesystem, SQLite, atomic files, replicas, and workloads as text.

use std::collections::BTreeSet;

use serde::Serialize;
use weir_runtime::{Runtime, Simulation};

use crate::content::mix;

/// How long a campaign is, and where it begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Distinct crash states to judge; the run that reaches them is finished.
    pub states: u64,
    /// Determines everything.
    pub seed: u64,
    /// Only the run with this number, from 0, whatever `states` says.
    pub only: Option<u64>,
}

impl Plan {
    /// All runs from this seed until so many states are judged.
    #[must_use]
    pub fn new(states: u64, seed: u64) -> Plan {
        Plan { states, seed, only: None }
    }
}

/// Some of a campaign's runs, for one thread: those whose numbers, divided by `count`, leave `index`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shard {
    /// Its number, from 0.
    pub index: u64,
    /// How many shards there are, 1 and more.
    pub count: u64,
}

impl Shard {
    /// All runs.
    pub const WHOLE: Shard = Shard { index: 0, count: 1 };
}

/// Counts of a run, or of many.
pub trait Counts: Clone + Default + Serialize {
    /// Adds the counts of another run.
    fn add(&mut self, other: &Self);

    /// Sets the count of this name, if there is one.
    fn set(&mut self, name: &str, value: u64);
}

/// Defines a struct of counts. One `of rounds` has those of [`Cuts`](crate::cuts::Cuts), too. The counts in `largest` are not
/// added up: the largest of all runs counts.
macro_rules! counts {
    (
        $(#[$meta:meta])*
        pub struct $name:ident of rounds { $($fields:tt)* }
        $($largest:tt)*
    ) => {
        $crate::campaign::counts! {
            $(#[$meta])*
            pub struct $name {
                /// Runs.
                pub runs: u64,
                /// Rounds of these runs.
                pub rounds: u64,
                /// Events of the storage below.
                pub events: u64,
                /// Power cuts, some of which left the same.
                pub cuts: u64,
                /// Different states among them. The same content under different promises counts as different.
                pub states_distinct: u64,
                /// Of these, left by a second round or a later one.
                pub states_deep: u64,
                $($fields)*
            }
            $($largest)*
        }
    };
    (
        $(#[$meta:meta])*
        pub struct $name:ident {
            $($(#[$of_field:meta])* pub $field:ident: u64,)*
        }
        $(largest {
            $($(#[$of_largest:meta])* pub $largest:ident: u64,)*
        })?
    ) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
        pub struct $name {
            $($(#[$of_field])* pub $field: u64,)*
            $($($(#[$of_largest])* pub $largest: u64,)*)?
        }

        impl $crate::campaign::Counts for $name {
            fn add(&mut self, other: &Self) {
                $(self.$field += other.$field;)*
                $($(self.$largest = self.$largest.max(other.$largest);)*)?
            }

            fn set(&mut self, name: &str, value: u64) {
                match name {
                    $(stringify!($field) => self.$field = value,)*
                    $($(stringify!($largest) => self.$largest = value,)*)?
                    _ => {}
                }
            }
        }
    };
}
pub(crate) use counts;

/// A state that is not allowed, and the cut that left it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The number of the run.
    pub run: u64,
    /// The round, from 0: how many power cuts came before.
    pub round: u32,
    /// The event of that round at which the power was cut, from 1; 0 before the first event.
    pub event: u64,
    /// What was wrong.
    pub what: String,
    /// What was done until then, an operation a line, where the subject keeps it.
    pub story: Vec<String>,
}

impl Failure {
    /// A failure of a run whose number the campaign sets.
    pub(crate) fn new(round: u32, event: u64, what: String) -> Failure {
        Failure { run: 0, round, event, what, story: Vec::new() }
    }
}

/// What one run has found.
#[derive(Clone, Debug)]
pub struct Run<T> {
    /// The counts.
    pub totals: T,
    /// The crash states that were judged.
    pub(crate) seen: BTreeSet<u64>,
    /// The first failure; the run ends there.
    pub failure: Option<Failure>,
    /// Stands for everything that happened: equal runs, equal hash.
    pub trace_hash: u64,
}

/// What a campaign has found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Summary<T> {
    /// The counts of all runs.
    pub totals: T,
    /// How many runs there were.
    pub runs: u64,
    /// Of the states that were judged, those that count for [`Plan::states`].
    pub states: u64,
    /// The first failure; the campaign ends there.
    pub failure: Option<Failure>,
    /// Stands for everything that happened: equal campaigns, equal hash.
    pub trace_hash: u64,
}

impl<T: Counts> Summary<T> {
    /// Adds what the next shard has found. A state that both have judged counts twice.
    pub fn add(&mut self, other: Summary<T>) {
        self.totals.add(&other.totals);
        self.runs += other.runs;
        self.states += other.states;
        self.failure = self.failure.take().or(other.failure);
        self.trace_hash = mix(self.trace_hash, other.trace_hash);
    }
}

/// A campaign on one subject.
pub trait Campaign {
    /// What is counted.
    type Totals: Counts;
    /// What all runs begin with, made once.
    type Beginning;

    /// How long it is, and where it begins.
    fn plan(&self) -> Plan;

    /// Makes what all runs begin with.
    ///
    /// # Errors
    /// What keeps every run from beginning.
    fn prepare(&self) -> Result<Self::Beginning, String>;

    /// Plays one run.
    fn play_run(&self, beginning: &Self::Beginning, number: u64, seed: u64) -> Run<Self::Totals>;

    /// How many of the states that were judged count for [`Plan::states`], of so many different ones.
    fn states_of(&self, _totals: &Self::Totals, distinct: u64) -> u64 {
        distinct
    }

    /// How many runs there are.
    fn runs(&self) -> u64 {
        u64::MAX
    }

    /// Makes the failure that ends the campaign smaller, where the subject can. Its story then has the smaller run.
    fn shrink_failure(&self, _beginning: &Self::Beginning, failure: Failure) -> Failure {
        failure
    }

    /// Plays runs until so many distinct states are judged, or one is wrong.
    #[must_use]
    fn run_campaign(&self) -> Summary<Self::Totals> {
        self.run_shard(Shard::WHOLE)
    }

    /// The same with a shard of the runs, and its portion of the states.
    #[must_use]
    fn run_shard(&self, shard: Shard) -> Summary<Self::Totals> {
        self.run_observed(shard, |_, _, _| {})
    }

    /// The same. `observe` gets each run with its number when it has ended. A failure that it takes out of a run does not
    /// end the campaign.
    #[must_use]
    fn run_observed(
        &self,
        shard: Shard,
        mut observe: impl FnMut(&Self::Beginning, u64, &mut Run<Self::Totals>),
    ) -> Summary<Self::Totals> {
        let Plan { states, seed, only } = self.plan();
        let states = states.div_ceil(shard.count);
        let mut summary = Summary::default();
        let beginning = match self.prepare() {
            Ok(beginning) => beginning,
            Err(what) => {
                summary.failure = Some(Failure::new(0, 0, what));
                return summary;
            }
        };
        let mut distinct = BTreeSet::new();
        let numbers = only.map_or(shard.index..self.runs(), |only| only..only + 1);
        for number in numbers.step_by(shard.count as usize) {
            let mut run = self.play_run(&beginning, number, mix(seed, number));
            observe(&beginning, number, &mut run);
            distinct.append(&mut run.seen);
            let judged = distinct.len() as u64;
            summary.runs += 1;
            summary.totals.add(&run.totals);
            summary.totals.set("states_distinct", judged);
            summary.states = self.states_of(&summary.totals, judged);
            summary.trace_hash = mix(summary.trace_hash, run.trace_hash);
            let failure = run.failure.map(|failure| Failure { run: number, ..failure });
            summary.failure = failure.map(|failure| self.shrink_failure(&beginning, failure));
            if summary.failure.is_some() || summary.states >= states {
                break;
            }
        }
        summary
    }
}

/// A simulated runtime for a run: every second one explores schedules.
pub(crate) fn runtime_of(seed: u64) -> Runtime {
    Runtime::simulated(Simulation { seed, explore: seed.is_multiple_of(2), cores: None })
}
