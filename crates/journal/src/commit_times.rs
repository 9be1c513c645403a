//! How long the steps of commits took, as the eMMC paper's figure 12 divides them.

use std::time::Duration;

use weir_runtime::{Handle as Clock, Instant};

/// The time of each step of commits, by the clock of the runtime, added up. It is counted by engines that wait for what
/// they submit, all but dual-mode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CommitTimes {
    /// D was submitted and transferred; with flush-ahead, what was left of it was submitted.
    pub data: Duration,
    /// The blocks of the log were made.
    pub compose: Duration,
    /// A flush ahead of JD, and the transfer of D before it, were waited for, beyond the time in which JD was composed. The flush that a commit block brings
    /// with it counts as commit block.
    pub flush: Duration,
    /// JD was submitted and transferred. Where JC leaves together with it, both count as commit block.
    pub log: Duration,
    /// JC was submitted and transferred, or durable.
    pub commit_block: Duration,
}

impl CommitTimes {
    /// Adds those of one commit.
    pub(crate) fn add(&mut self, one: &CommitTimes) {
        self.data += one.data;
        self.compose += one.compose;
        self.flush += one.flush;
        self.log += one.log;
        self.commit_block += one.commit_block;
    }
}

/// Measures one step after the other.
pub(crate) struct StepClock {
    clock: Clock,
    since: Instant,
}

impl StepClock {
    /// The first step begins now.
    pub(crate) fn start(clock: &Clock) -> StepClock {
        StepClock { clock: clock.clone(), since: clock.now() }
    }

    /// A step is over, and the next one begins: how long it took.
    pub(crate) fn step(&mut self) -> Duration {
        let now = self.clock.now();
        now.since(std::mem::replace(&mut self.since, now))
    }
}
