//! A failure made small: the shortest workload that fails so, and the state that loses the fewest blocks.

use std::cell::RefCell;
use std::rc::Rc;

use super::cut::{Cut, CutName, StateName};
use super::judge::{JudgedBy, Recoveries};
use super::operation::Operation;
use super::parse::Workload;
use super::perform::PlayError;
use super::session::Cutter;
use super::setup::{Bench, Setup};
use super::sweep::{SETTLES, WorkloadFailure};
use crate::fs::ground::MayLeave;
use crate::shrink::leave_out;

/// Workloads that are tried for one failure, at most, and those where each of their states is shown to e2fsck.
const TRIALS_MAX: u32 = 400;
const TRIALS_OUTSIDE_MAX: u32 = 20;

/// Smaller states that are tried in place of one, at most.
const STATES_MAX: usize = 2000;

/// The sizes that a smaller operation has, in bytes.
const SMALL_BYTES: [u64; 2] = [1, 4096];

/// A failure that nothing can be left out of, one thing at a time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shrunk {
    /// What is left of the workload.
    pub workload: Workload,
    /// How it fails.
    pub failure: WorkloadFailure,
}

/// A search for a smaller workload.
struct Search<'a> {
    bench: &'a Bench,
    smallest: Shrunk,
    /// How many may be tried yet.
    trials: u32,
}

impl Search<'_> {
    /// Takes a workload if it has an operation, and the same judge finds it wrong; whether so.
    fn takes(&mut self, operations: Vec<Operation>) -> bool {
        if self.trials == 0 || operations.is_empty() {
            return false;
        }
        self.trials -= 1;
        let workload = Workload { operations };
        let swept = self.bench.sweep(&workload);
        let failure = swept.ok().and_then(|swept| swept.failure);
        match failure.filter(|failure| failure.defect.by == self.smallest.failure.defect.by) {
            Some(failure) => {
                self.smallest = Shrunk { workload, failure };
                true
            }
            None => false,
        }
    }

    /// Leaves operations out, as many at once as possible; whether any.
    fn leave_out(&mut self) -> bool {
        let mut operations = self.operations().to_vec();
        leave_out(&mut operations, |fewer| Some(self.takes(fewer.to_vec())))
    }

    /// Makes what single operations do smaller; whether any.
    fn simplify(&mut self) -> bool {
        let mut any = false;
        for at in 0..self.operations().len() {
            let simpler = simpler(&self.operations()[at]);
            any |= simpler.into_iter().any(|operation| {
                let mut operations = self.operations().to_vec();
                operations[at] = operation;
                self.takes(operations)
            });
        }
        any
    }

    fn operations(&self) -> &[Operation] {
        &self.smallest.workload.operations
    }
}

/// The same operation with less, the least first.
fn simpler(operation: &Operation) -> Vec<Operation> {
    let mut found = Vec::new();
    match operation {
        Operation::Write { path, offset, length } => {
            for smaller in SMALL_BYTES {
                for from in [0, *offset] {
                    found.push(Operation::Write {
                        path: path.clone(),
                        offset: from,
                        length: smaller.min(*length),
                    });
                }
            }
        }
        Operation::Append { path, length } => {
            found.extend(
                SMALL_BYTES
                    .map(|smaller| Operation::Append { path: path.clone(), length: smaller.min(*length) }),
            );
        }
        Operation::SetAttribute { path, .. } => {
            found.push(Operation::SetAttribute { path: path.clone(), length: 1 });
        }
        _ => {}
    }
    // One that is not smaller ends the list: those behind it are larger.
    let end = found.iter().position(|smaller| smaller == operation).unwrap_or(found.len());
    found.truncate(end);
    found
}

impl Bench {
    /// Makes a failure small. A state on an emulated device is what its firmware left, and stays as it is.
    #[must_use]
    pub fn shrink(&self, workload: &Workload, failure: &WorkloadFailure) -> Shrunk {
        let by = failure.defect.by;
        let thorough = self.thorough(by == JudgedBy::SecondRecovery, by == JudgedBy::Outside);
        let smallest = Shrunk { workload: workload.clone(), failure: failure.clone() };
        let trials = if by == JudgedBy::Outside { TRIALS_OUTSIDE_MAX } else { TRIALS_MAX };
        let mut search = Search { bench: &thorough, smallest, trials };
        // Nothing behind the failure has to do with it.
        let begun = workload.operations[..failure.operations.min(workload.operations.len())].to_vec();
        if begun.len() < workload.operations.len() {
            search.takes(begun);
        }
        while search.leave_out() | search.simplify() {}
        let Shrunk { workload, failure } = search.smallest;
        let smaller = failure.cut.as_ref().and_then(|name| {
            let judge = move |cutter: &Cutter, may_leave: &MayLeave<'_>, state: &StateName| {
                smallest_state(cutter, may_leave, state, by)
            };
            thorough.at_cut(&workload, name, judge).ok().flatten()
        });
        Shrunk { workload, failure: smaller.unwrap_or(failure) }
    }

    /// Plays a workload, and judges one power cut of it by every judge that the setup has: how it fails, if it does.
    ///
    /// # Errors
    /// [`PlayError`] if the workload cannot be played, or has no such cut.
    pub fn replay(&self, workload: &Workload, name: &CutName) -> Result<Option<WorkloadFailure>, PlayError> {
        let Setup { cut_recovery, outside, .. } = self.setup;
        let judge = |cutter: &Cutter, may_leave: &MayLeave<'_>, state: &StateName| {
            cutter.named(may_leave, state).map(|cut| failure(&cut))
        };
        let judged = self.thorough(cut_recovery > 0, outside > 0).at_cut(workload, name, judge)?;
        judged.ok_or_else(|| PlayError::NoSuchCut(name.clone()))
    }

    /// The same bench, where more states are drawn, so that what is left out is not missed by chance; where our check judges
    /// every state; and where every recovery is cut, and every state shown to the outside judges, if that is asked for.
    fn thorough(&self, cuts_recovery: bool, asks_outside: bool) -> Bench {
        let Setup { exhaustive_max, samples, .. } = self.setup;
        let (exhaustive_max, samples) = (exhaustive_max.saturating_mul(8), samples.saturating_mul(4));
        let (cut_recovery, outside) = (u64::from(cuts_recovery), u64::from(asks_outside));
        let setup = Setup { check: 1, cut_recovery, outside, exhaustive_max, samples, ..self.setup };
        Bench { setup, base: self.base.clone(), recoveries: Rc::new(Recoveries::new(setup)) }
    }

    /// Plays a workload, and calls `judge` at the event of a power cut: what it finds, if there is such an event.
    fn at_cut<T: 'static>(
        &self,
        workload: &Workload,
        name: &CutName,
        judge: impl Fn(&Cutter, &MayLeave<'_>, &StateName) -> Option<T> + 'static,
    ) -> Result<Option<T>, PlayError> {
        let found = Rc::new(RefCell::new(None));
        let (told, state) = (Rc::clone(&found), name.state.clone());
        self.play(async |session| {
            session.at_event(name.event, move |cutter, may_leave| {
                *told.borrow_mut() = judge(cutter, may_leave, &state);
            });
            for operation in &workload.operations {
                session.perform(operation).await?;
            }
            session.sleep(SETTLES).await;
            Ok(())
        })??;
        Ok(found.take())
    }
}

/// The smallest failure at one event, by the same judge: as long as a state that loses less fails, that is taken.
fn smallest_state(
    cutter: &Cutter,
    may_leave: &MayLeave<'_>,
    state: &StateName,
    by: JudgedBy,
) -> Option<WorkloadFailure> {
    let judge = |state: &StateName| {
        failure(&cutter.named(may_leave, state)?).filter(|failure| failure.defect.by == by)
    };
    let mut smallest = judge(state)?;
    let Some(states) = may_leave.states() else { return Some(smallest) };
    let mut state = state.clone();
    while let StateName::Kept(kept) = &state {
        let smaller = states.smaller(kept).take(STATES_MAX).map(StateName::Kept);
        let found = smaller.into_iter().find_map(|smaller| judge(&smaller).map(|failure| (smaller, failure)));
        let Some((smaller, failure)) = found else { break };
        (state, smallest) = (smaller, failure);
    }
    Some(smallest)
}

/// How a state fails. Its recovery is cut, and the outside judges are asked, only if the setup says so.
fn failure(cut: &Cut) -> Option<WorkloadFailure> {
    let Setup { cut_recovery, outside, .. } = cut.judge.setup;
    let mut judged = cut.judge();
    if judged.is_ok() && cut_recovery > 0 {
        judged = cut.cut_recovery().map(drop);
    }
    if judged.is_ok() && outside > 0 {
        judged = cut.show_outside().map(drop);
    }
    judged.err().map(|defect| WorkloadFailure::from_cut(cut, defect))
}
