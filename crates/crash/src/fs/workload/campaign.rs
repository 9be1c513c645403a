//! Workloads as the subject of a campaign: each run plays one of them, with the power cut at every event.

use std::collections::BTreeSet;

use super::generator::{Length, generate};
use super::parse::Workload;
use super::perform::PlayError;
use super::setup::{Bench, Setup};
use super::shrink::Shrunk;
use super::sweep::{WorkloadFailure, WorkloadTotals};
use crate::campaign::{Campaign, Failure, Plan, Run};
use crate::content::mix;

/// A campaign on workloads.
#[derive(Clone, Debug)]
pub struct WorkloadCampaign {
    /// How long it is.
    pub plan: Plan,
    /// What the filesystem stands on, how it is mounted, and who judges.
    pub setup: Setup,
    /// One workload for each run, and the campaign ends behind the last. `None`: a run plays one of the generated workloads
    /// of one or two operations, drawn by its seed.
    pub workloads: Option<Vec<Workload>>,
}

impl WorkloadCampaign {
    /// The workload of a run.
    fn workload<'a>(&self, workloads: &'a [Workload], number: u64, seed: u64) -> Option<&'a Workload> {
        let place = if self.workloads.is_none() { seed % workloads.len() as u64 } else { number };
        workloads.get(place as usize)
    }

    /// The failure of a workload made smaller, and that as the text of a workload.
    fn shrink(&self, bench: &Bench, workload: &Workload) -> Result<Option<(Shrunk, String)>, PlayError> {
        let Some(failure) = bench.sweep(workload)?.failure else { return Ok(None) };
        let small = bench.shrink(workload, &failure);
        let replay = bench.setup().replay_line("FILE", small.failure.cut.as_ref());
        let text = bench.describe_failure(&small.workload, &small.failure, &replay)?;
        Ok(Some((small, text)))
    }
}

impl Campaign for WorkloadCampaign {
    type Totals = WorkloadTotals;
    type Beginning = (Bench, Vec<Workload>);

    fn plan(&self) -> Plan {
        self.plan
    }

    fn prepare(&self) -> Result<(Bench, Vec<Workload>), String> {
        let bench = self.setup.prepare().map_err(|error| error.to_string())?;
        let generated = || [Length::One, Length::Two].into_iter().flat_map(generate).collect();
        let workloads = self.workloads.clone().unwrap_or_else(generated);
        Ok((bench, workloads))
    }

    fn runs(&self) -> u64 {
        self.workloads.as_ref().map_or(u64::MAX, |workloads| workloads.len() as u64)
    }

    fn play_run(
        &self,
        (bench, workloads): &(Bench, Vec<Workload>),
        number: u64,
        seed: u64,
    ) -> Run<WorkloadTotals> {
        let failed = |totals, what: String| Run {
            totals,
            seen: BTreeSet::new(),
            failure: Some(Failure::new(0, 0, what)),
            trace_hash: 0,
        };
        let Some(workload) = self.workload(workloads, number, seed) else {
            return failed(WorkloadTotals::default(), format!("there is no workload {number}"));
        };
        match bench.sweep(workload) {
            Err(error) => failed(WorkloadTotals::default(), error.to_string()),
            Ok(swept) => {
                let failure = swept.failure.as_ref().map(failure_of);
                Run { totals: swept.totals, seen: BTreeSet::new(), failure, trace_hash: swept.trace_hash }
            }
        }
    }

    fn states_of(&self, totals: &WorkloadTotals, _distinct: u64) -> u64 {
        totals.states
    }

    fn shrink_failure(&self, (bench, workloads): &(Bench, Vec<Workload>), failure: Failure) -> Failure {
        let workload = self.workload(workloads, failure.run, mix(self.plan.seed, failure.run));
        match workload.and_then(|workload| self.shrink(bench, workload).ok().flatten()) {
            Some((small, text)) => {
                let story = text.lines().map(str::to_owned).collect();
                Failure { run: failure.run, story, ..failure_of(&small.failure) }
            }
            None => failure,
        }
    }
}

/// What a campaign keeps of a failure.
fn failure_of(failure: &WorkloadFailure) -> Failure {
    let event = failure.cut.as_ref().map_or(0, |cut| cut.event);
    Failure::new(0, event, failure.defect.to_string())
}
