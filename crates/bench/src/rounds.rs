//! Rounds: every way of a benchmark has a turn in each, so that whatever disturbs the machine disturbs all alike.
//!
//! Every second round goes backwards. After each turn what it wrote is read back: in the last round all of it, in the
//! others, and in a short benchmark, a sample.

use crate::ledger::Coverage;

/// How far the benchmark is.
#[derive(Clone, Debug)]
pub struct Progress {
    /// Steps done.
    pub done: u64,
    /// Steps in all.
    pub total: u64,
    /// The round or case that the step belongs to, or `preparing`.
    pub stage: String,
    /// What is done in it now; empty where the stage says it all.
    pub what: String,
}

/// Blocks read back after a turn that is not the last.
pub(crate) const SAMPLE_BLOCKS: u64 = 1024;

/// The steps of a benchmark. An observer is told of each when it begins.
pub(crate) struct Steps<'a> {
    progress: &'a mut dyn FnMut(Progress),
    done: u64,
    total: u64,
}

impl<'a> Steps<'a> {
    pub(crate) fn new(total: u64, progress: &'a mut dyn FnMut(Progress)) -> Steps<'a> {
        Steps { progress, done: 0, total }
    }

    /// The next step begins.
    pub(crate) fn begin(&mut self, stage: impl Into<String>, what: impl Into<String>) {
        let (stage, what) = (stage.into(), what.into());
        (self.progress)(Progress { done: self.done, total: self.total, stage, what });
        self.done += 1;
    }

    /// A step before the first round begins.
    pub(crate) fn prepare(&mut self, what: impl Into<String>) {
        self.begin("preparing", what);
    }

    /// All is done.
    pub(crate) fn end(mut self) {
        self.begin("done", "");
    }
}

/// A turn that is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Due<W> {
    /// Whose turn it is.
    pub(crate) way: W,
    /// The round, from 0.
    pub(crate) round: u32,
    /// How much of what it wrote is read back.
    pub(crate) coverage: Coverage,
    /// Turns still to come, with this one.
    pub(crate) left: u64,
}

/// The turns of a benchmark: as an iterator, so that each is told as it begins.
pub(crate) struct Rounds<'a, W> {
    pub(crate) steps: Steps<'a>,
    ways: Vec<W>,
    title: fn(W) -> String,
    rounds: u32,
    /// Whether samples are enough in the last round, too.
    quick: bool,
    turns: u64,
}

impl<'a, W: Copy> Rounds<'a, W> {
    /// So many rounds of `ways`, told by `title`, and `more_steps` beside them. `quick`: read back samples only.
    pub(crate) fn new(
        ways: Vec<W>,
        title: fn(W) -> String,
        rounds: u32,
        quick: bool,
        more_steps: u64,
        progress: &'a mut dyn FnMut(Progress),
    ) -> Rounds<'a, W> {
        let total = more_steps + u64::from(rounds) * ways.len() as u64;
        Rounds { steps: Steps::new(total, progress), ways, title, rounds, quick, turns: 0 }
    }
}

impl<W: Copy> Iterator for Rounds<'_, W> {
    type Item = Due<W>;

    fn next(&mut self) -> Option<Due<W>> {
        let ways = self.ways.len() as u64;
        let left = (u64::from(self.rounds) * ways).checked_sub(self.turns).filter(|left| *left > 0)?;
        let (round, place) = ((self.turns / ways) as u32, (self.turns % ways) as usize);
        self.turns += 1;
        let way = if round % 2 == 0 { self.ways.get(place)? } else { self.ways.iter().nth_back(place)? };
        let all = round + 1 == self.rounds && !self.quick;
        let coverage = if all { Coverage::All } else { Coverage::Sample(SAMPLE_BLOCKS) };
        self.steps.begin(format!("round {} of {}", round + 1, self.rounds), (self.title)(*way));
        Some(Due { way: *way, round, coverage, left })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_second_round_goes_backwards_and_the_last_is_read_back_whole() {
        let mut told = Vec::new();
        let mut progress =
            |step: Progress| told.push(format!("{}/{} {} {}", step.done, step.total, step.stage, step.what));
        let mut rounds = Rounds::new(vec![1, 2], |way| way.to_string(), 2, false, 1, &mut progress);
        rounds.steps.prepare("files");
        let turns: Vec<_> = rounds.by_ref().map(|due| (due.way, due.round, due.coverage, due.left)).collect();
        rounds.steps.end();
        let sample = Coverage::Sample(SAMPLE_BLOCKS);
        let all = Coverage::All;
        assert_eq!(turns, [(1, 0, sample, 4), (2, 0, sample, 3), (2, 1, all, 2), (1, 1, all, 1)]);
        assert_eq!(told[1..4], ["1/5 round 1 of 2 1", "2/5 round 1 of 2 2", "3/5 round 2 of 2 2"]);
        assert_eq!((told[0].as_str(), told[5].as_str()), ("0/5 preparing files", "5/5 done "));
    }
}
