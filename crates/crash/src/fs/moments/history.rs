//! What the directories of programs held over time, and whether what a crash has left is the tree as of one moment.
//!
//! A call takes effect at some time between its beginning and its end. So a program's directory held a state at any time from
//! the beginning of the call that made it, to the end of the next call that changed it. What is found is the tree as of a moment
//! if there is a time at which each program's directory may have held what is found in it. If a call had ended before
//! another program's call began, and only the second one is there, there is no such time: that is the order that J11 promises.
//!
//! What a call makes is known when it has returned and its directory was read. What is found while a call is under way, and is
//! no moment so far, is judged when that is known.

use std::time::Duration;

use weir_runtime::Instant;

use super::Promise;

/// What a program's directory held.
struct State {
    /// A hash of the tree.
    tree: u64,
    /// When the call began that made it.
    from: Instant,
    /// When the next call that changed it ended.
    until: Option<Instant>,
}

impl State {
    /// When it ended, or the cut if that came before.
    fn end_before(&self, cut: Instant) -> Instant {
        self.until.map_or(cut, |until| until.min(cut))
    }
}

/// What a cut has left.
#[derive(Clone)]
struct Found {
    trees: Vec<u64>,
    cut: Instant,
    /// When the newest durable call began that had returned.
    durable: Instant,
}

/// See the head of this file.
pub(super) struct History {
    promise: Promise,
    /// The states of each program's directory, in order.
    programs: Vec<Vec<State>>,
    /// When the call of each program began that is under way, or whose directory is being read.
    under_way: Vec<Option<Instant>>,
    /// What is judged when the calls that are under way have ended.
    deferred: Vec<Found>,
    /// When the newest durable call began that has returned.
    durable: Instant,
    /// Since when the mount takes no changes any more.
    stopped: Option<Instant>,
}

impl History {
    /// Of directories that hold this now, durably.
    pub(super) fn new(promise: Promise, trees: &[u64], now: Instant) -> History {
        let first = |tree: &u64| vec![State { tree: *tree, from: now, until: None }];
        History {
            promise,
            programs: trees.iter().map(first).collect(),
            under_way: vec![None; trees.len()],
            deferred: Vec::new(),
            durable: now,
            stopped: None,
        }
    }

    /// The time between two moments.
    pub(super) fn interval(&self) -> Duration {
        self.promise.interval
    }

    /// A call of a program begins.
    pub(super) fn begin(&mut self, program: usize, now: Instant) {
        self.under_way[program] = Some(now);
    }

    /// The call of a program that was under way ended at `end`, and its directory holds this.
    ///
    /// # Errors
    /// What is wrong with what was found meanwhile.
    pub(super) fn end(&mut self, program: usize, tree: u64, end: Instant) -> Result<(), String> {
        let from = self.under_way[program].take().unwrap_or(end);
        let states = &mut self.programs[program];
        if let Some(last) = states.last_mut().filter(|last| last.tree != tree) {
            last.until = Some(end);
            states.push(State { tree, from, until: None });
        }
        let deferred = std::mem::take(&mut self.deferred);
        deferred.into_iter().try_for_each(|found| self.judge_or_defer(found).map(drop))
    }

    /// A durable call has returned that began then.
    pub(super) fn note_durable(&mut self, began: Instant) {
        self.durable = self.durable.max(began);
    }

    /// The mount takes no changes any more.
    pub(super) fn note_stop(&mut self, now: Instant) {
        self.stopped.get_or_insert(now);
    }

    /// What each directory holds now.
    pub(super) fn newest(&self) -> Vec<u64> {
        self.programs.iter().filter_map(|states| states.last()).map(|state| state.tree).collect()
    }

    /// Judges what a cut has left: how old it is, if that is known yet.
    ///
    /// # Errors
    /// What is wrong.
    pub(super) fn judge(&mut self, trees: &[u64], cut: Instant) -> Result<Option<Duration>, String> {
        self.judge_or_defer(Found { trees: trees.to_vec(), cut, durable: self.durable })
    }

    fn judge_or_defer(&mut self, found: Found) -> Result<Option<Duration>, String> {
        match self.age_of(&found) {
            Ok(age) => Ok(Some(age)),
            Err(_) if self.under_way.iter().any(Option::is_some) => {
                self.deferred.push(found);
                Ok(None)
            }
            Err(what) => Err(what),
        }
    }

    /// How old the tree is that a cut has left.
    fn age_of(&self, found: &Found) -> Result<Duration, String> {
        let cut = found.cut;
        let Some(moment) = self.newest_moment(found) else {
            return Err(format!("no moment had this tree: {}", self.describe(found)));
        };
        if moment < found.durable {
            let lost = found.durable.since(moment);
            return Err(format!("a durable call is lost that began {lost:?} behind the moment that is left"));
        }
        // Calls that wait for a stopped mount change nothing.
        let age = self.stopped.map_or(cut, |stopped| stopped.min(cut)).since(moment);
        let Promise { interval, transfer } = self.promise;
        match age <= interval + transfer {
            true => Ok(age),
            false => Err(format!(
                "the tree is {age:?} old, and {interval:?} and a transfer of {transfer:?} are promised"
            )),
        }
    }

    /// The newest time at which all directories may have held what was found.
    fn newest_moment(&self, found: &Found) -> Option<Instant> {
        let held: Vec<Vec<(Instant, Instant)>> = self
            .programs
            .iter()
            .zip(&found.trees)
            .map(|(states, tree)| {
                let matching = states.iter().filter(|state| state.tree == *tree && state.from <= found.cut);
                matching.map(|state| (state.from, state.end_before(found.cut))).collect()
            })
            .collect();
        // The newest time is the end of one of the states.
        let is_in = |states: &[(Instant, Instant)], at| {
            states.iter().any(|(from, until)| *from <= at && at <= *until)
        };
        let ends = held.iter().flatten().map(|(_, until)| *until);
        ends.filter(|at| held.iter().all(|states| is_in(states, *at))).max()
    }

    /// What was found of each program.
    fn describe(&self, found: &Found) -> String {
        let cut = found.cut;
        let programs = self.programs.iter().zip(&found.trees).map(|(states, tree)| {
            match states.iter().rposition(|state| state.tree == *tree) {
                None => "a state that it never had".to_owned(),
                Some(at) => {
                    let until = states[at].end_before(cut);
                    let (from, until) = (cut.since(states[at].from), cut.since(until));
                    format!("state {at} of {}, {from:?} to {until:?} before the cut", states.len())
                }
            }
        });
        programs.collect::<Vec<_>>().join("; ")
    }
}

#[cfg(test)]
mod tests {
    use weir_runtime::{Runtime, Simulation};

    use super::*;

    const PROMISE: Promise =
        Promise { interval: Duration::from_millis(100), transfer: Duration::from_millis(10) };

    /// Two programs: the first one changes from 1 to 2 from 10 to 12 ms, the second one from 5 to 6 from 20 to 22 ms.
    fn judge(found: [u64; 2], cut_ms: u64, durable_ms: u64) -> Result<Option<Duration>, String> {
        let began = Runtime::simulated(Simulation::default()).handle().now();
        let at = |ms| began + Duration::from_millis(ms);
        let mut history = History::new(PROMISE, &[1, 5], at(0));
        history.begin(0, at(10));
        history.end(0, 2, at(12)).expect("nothing was found");
        history.begin(1, at(20));
        history.end(1, 6, at(22)).expect("nothing was found");
        history.note_durable(at(durable_ms));
        history.judge(&found, at(cut_ms))
    }

    #[test]
    fn a_tree_is_judged_by_the_order_of_calls_by_its_age_and_by_what_is_durable() {
        assert_eq!(judge([2, 6], 30, 0), Ok(Some(Duration::ZERO)));
        assert_eq!(judge([2, 5], 30, 0), Ok(Some(Duration::from_millis(8))), "the second call is not there");
        assert_eq!(judge([1, 5], 30, 0), Ok(Some(Duration::from_millis(18))), "none of them is there");
        assert!(judge([1, 6], 30, 0).is_err_and(|why| why.contains("no moment")), "the first one had ended");
        assert!(judge([3, 6], 30, 0).is_err_and(|why| why.contains("never had")));
        assert!(judge([1, 5], 123, 0).is_err_and(|why| why.contains("old")), "110 ms are promised");
        assert!(judge([1, 5], 122, 0).is_ok());
        assert!(judge([1, 5], 30, 13).is_err_and(|why| why.contains("durable")));
    }

    #[test]
    fn a_mount_that_has_stopped_grows_no_older() {
        let began = Runtime::simulated(Simulation::default()).handle().now();
        let at = |ms| began + Duration::from_millis(ms);
        let mut history = History::new(PROMISE, &[1], at(0));
        history.begin(0, at(10));
        history.end(0, 2, at(12)).expect("nothing was found");
        history.note_stop(at(50));
        assert!(history.judge(&[1], at(900)).is_ok());
    }

    #[test]
    fn what_is_found_while_a_call_is_under_way_is_judged_when_it_has_ended() {
        let began = Runtime::simulated(Simulation::default()).handle().now();
        let at = |ms| began + Duration::from_millis(ms);
        for (made, is_right) in [(2, true), (3, false)] {
            let mut history = History::new(PROMISE, &[1], at(0));
            history.begin(0, at(10));
            assert_eq!(history.judge(&[2], at(11)), Ok(None));
            assert_eq!(history.end(0, made, at(12)).is_ok(), is_right);
        }
    }
}
