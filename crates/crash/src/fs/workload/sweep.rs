//! A workload with the power cut at every event, and each state judged once for what it has to keep.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;
use std::time::Duration;

use super::cut::{Cut, CutName};
use super::judge::{Defect, JudgedBy};
use super::parse::Workload;
use super::perform::PlayError;
use super::setup::Bench;
use crate::campaign::counts;
use crate::content::mix;
use crate::fs::calls::Outcome;
use crate::fs::outside;

/// How long a play goes on behind the last operation: the filesystem commits by itself after 5 s.
pub(super) const SETTLES: Duration = Duration::from_secs(6);

counts! {
    /// Counts of workloads with the power cut at every event.
    pub struct WorkloadTotals {
        /// Workloads.
        pub workloads: u64,
        /// Operations.
        pub operations: u64,
        /// Of these, those that found no space, and were not done, or only in part.
        pub operations_no_space: u64,
        /// Events of the storage, and ends of operations: crash points.
        pub events: u64,
        /// Of these, those of which every state was judged that a power cut there may leave; of the others some were drawn.
        pub events_exhaustive: u64,
        /// Power cuts, some of which left the same.
        pub cuts: u64,
        /// Of these, those at events of which every state was judged.
        pub exhaustive: u64,
        /// Different states that were judged, each workload's for itself. The same content under different promises counts as
        /// different.
        pub states: u64,
        /// Beside these, different states that were left by a cut during a recovery.
        pub states_recovery: u64,
        /// Of the states, shown to e2fsck.
        pub states_outside: u64,
        /// Of these, shown to the kernel, too.
        pub states_kernel: u64,
        /// Workloads with a state that is wrong.
        pub failures: u64,
    }
}

/// A workload that failed: where, and what is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkloadFailure {
    /// The power cut; none if it was wrong without any.
    pub cut: Option<CutName>,
    /// Operations that had begun.
    pub operations: usize,
    /// Blocks of the disk of which something is lost.
    pub lost: Vec<u64>,
    /// What is wrong.
    pub defect: Defect,
}

/// What a sweep has found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SweepResult {
    /// Its counts.
    pub totals: WorkloadTotals,
    /// The operations that found no space, by their places in the workload, from 1.
    pub no_space: Vec<usize>,
    /// The first state that is wrong; nothing is judged behind it.
    pub failure: Option<WorkloadFailure>,
    /// Stands for everything that happened.
    pub trace_hash: u64,
}

/// A sweep under way.
#[derive(Default)]
struct Sweep {
    totals: WorkloadTotals,
    states: BTreeSet<u64>,
    no_space: Vec<usize>,
    failure: Option<WorkloadFailure>,
    hash: u64,
}

impl Sweep {
    fn visit(&mut self, cut: &Cut, outside: u64) {
        let (event, is_exhaustive) = (cut.name().event, u64::from(cut.is_exhaustive()));
        if event > self.totals.events {
            self.totals.events = event;
            self.totals.events_exhaustive += is_exhaustive;
        }
        self.totals.cuts += 1;
        self.totals.exhaustive += is_exhaustive;
        let identity = cut.identity();
        if self.failure.is_some() || !self.states.insert(identity) {
            return;
        }
        self.totals.states += 1;
        self.hash = mix(self.hash, identity);
        let mut judged = cut.judge();
        // Media of different plays may be equal, so the choice depends on the operations before, too.
        let is_one_of =
            |many: u64, salt| many > 0 && mix(mix(identity, cut.origin), salt).is_multiple_of(many);
        if judged.is_ok() && is_one_of(cut.judge.setup.cut_recovery, 4) {
            judged = cut.cut_recovery().map(|states| self.totals.states_recovery += states);
        }
        if judged.is_ok() && is_one_of(outside, 2) {
            self.totals.states_outside += 1;
            judged = cut.show_outside().map(|kernel| self.totals.states_kernel += u64::from(kernel));
        }
        if let Err(defect) = judged {
            self.fail(WorkloadFailure::from_cut(cut, defect));
        }
    }

    fn fail(&mut self, failure: WorkloadFailure) {
        self.totals.failures = 1;
        self.failure.get_or_insert(failure);
    }
}

impl WorkloadFailure {
    /// Of a power cut.
    pub(super) fn from_cut(cut: &Cut, defect: Defect) -> WorkloadFailure {
        let lost = cut.lost().iter().map(|block| block.0).collect();
        WorkloadFailure { cut: Some(cut.name().clone()), operations: cut.operations(), lost, defect }
    }

    /// Without any.
    fn without_cut(operations: usize, defect: Defect) -> WorkloadFailure {
        WorkloadFailure { cut: None, operations, lost: Vec::new(), defect }
    }
}

impl Bench {
    /// Plays a workload, cuts the power at every event of the storage, and judges what may be left: by the model, by
    /// our check of the format, of some states by a power cut during recovery and by the outside judges, as
    /// [`Setup`](super::Setup) says.
    ///
    /// # Errors
    /// [`PlayError`] if the workload cannot be played.
    pub fn sweep(&self, workload: &Workload) -> Result<SweepResult, PlayError> {
        let seen = Rc::new(RefCell::new(Sweep::default()));
        let outside = if self.setup().outside > 0 && outside::is_there() { self.setup().outside } else { 0 };
        let played = self.play(async |session| {
            let visitor = Rc::clone(&seen);
            session.at_every_cut(move |cut| visitor.borrow_mut().visit(cut, outside));
            for (operation, nth) in workload.operations.iter().zip(1..) {
                match session.perform(operation).await {
                    Err(PlayError::Refused { what, .. }) => {
                        let wrong = Defect::new(JudgedBy::Filesystem, what);
                        seen.borrow_mut().fail(WorkloadFailure::without_cut(nth, wrong));
                    }
                    Ok(Outcome::NoSpace) => seen.borrow_mut().no_space.push(nth),
                    Ok(Outcome::Done) => {}
                    Err(error) => return Err(error),
                }
                if seen.borrow().failure.is_some() {
                    return Ok(session.trace_hash());
                }
            }
            session.sleep(SETTLES).await;
            if let Err(wrong) = session.judge_now().await {
                seen.borrow_mut().fail(WorkloadFailure::without_cut(workload.operations.len(), wrong));
            }
            Ok(session.trace_hash())
        });
        let trace_hash = match played {
            // It could be mounted before: this is a play that does not end, or an order that is broken.
            Err(PlayError::Ground(what)) => {
                let wrong = Defect::new(JudgedBy::Filesystem, what);
                seen.borrow_mut().fail(WorkloadFailure::without_cut(workload.operations.len(), wrong));
                0
            }
            played => played??,
        };
        let seen = seen.take();
        let operations = workload.operations.len() as u64;
        let operations_no_space = seen.no_space.len() as u64;
        let totals = WorkloadTotals { workloads: 1, operations, operations_no_space, ..seen.totals };
        let Sweep { no_space, failure, hash, .. } = seen;
        Ok(SweepResult { totals, no_space, failure, trace_hash: mix(trace_hash, hash) })
    }
}
