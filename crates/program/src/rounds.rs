//! *Rounds*: a machine that crashes and comes back. The power is cut while the program runs, one of the states that the cut may
//! leave is taken, and the program starts again on that.

use std::sync::atomic::Ordering;

use thiserror::Error;
use weir_runtime::Handle;

use crate::campaign::ProgramCampaign;
use crate::findings::StateFailure;
use crate::plan::{CampaignError, Plan};
use crate::record::Record;
use crate::run::{RecordedRun, record_run};
use crate::run_plan::{RunBase, RunError, RunPlan};

/// Why there are no more rounds.
#[derive(Debug, Error)]
pub enum RoundsError {
    /// A run failed.
    #[error("in round {round}: {source}")]
    Run {
        /// Its number, from 1 on.
        round: u64,
        /// Why.
        #[source]
        source: RunError,
    },
    /// A state cannot be judged.
    #[error(transparent)]
    Campaign(#[from] CampaignError),
}

/// What rounds have found.
#[derive(Debug, Default)]
pub struct RoundsFindings {
    /// How often the power was cut.
    pub cuts: u64,
    /// Of these, those where the run had ended before: it was cut behind its end.
    pub at_end: u64,
    /// Calls of all runs that were recorded.
    pub calls: u64,
    /// Lines that were acknowledged in all.
    pub acknowledged: u64,
    /// What went wrong by faults, in words.
    pub faults: Vec<String>,
    /// What makes the result worth less.
    pub warnings: Vec<String>,
    /// How long it took.
    pub seconds: f64,
    /// The record of the round whose state is wrong, which begins with what the round before has left, and the state.
    pub failure: Option<(Record, StateFailure)>,
}

/// Runs, cuts and checks, `cuts` times or until a state is wrong. `report` gets to know how many cuts are over.
///
/// # Errors
/// All of [`RoundsError`].
pub async fn run_rounds(
    handle: &Handle,
    run: &RunPlan,
    plan: &Plan,
    cuts: u64,
    mut report: impl FnMut(u64),
) -> Result<RoundsFindings, RoundsError> {
    let mut findings = RoundsFindings::default();
    let (began, mut base) = (handle.now(), None);
    for round in 1..=cuts {
        let run = RunPlan { base: base.take(), round, ..run.clone() };
        if let Some(cut) = &run.cut {
            cut.is_cut.store(false, Ordering::Relaxed);
        }
        let recorded = record_run(handle, &run).await.map_err(|source| RoundsError::Run { round, source })?;
        let RecordedRun { record, faults, warnings, .. } = recorded;
        let is_cut = run.cut.as_ref().is_some_and(|cut| cut.is_cut.load(Ordering::Relaxed));
        findings.cuts = round;
        findings.at_end += u64::from(!is_cut);
        findings.calls += (record.operations.len() - record.setup) as u64;
        findings.acknowledged = record.lines.len() as u64;
        findings.faults.extend(faults);
        findings.warnings.extend(warnings);
        let mut campaign = ProgramCampaign::new(&record, plan);
        if round == 1 {
            campaign.check_beginning()?;
        }
        let (name, tree) = campaign.draw_last_state(&format!("cut {round}"))?;
        let judged = campaign.judge_drawn(&name, tree)?;
        findings.warnings.extend(campaign.into_warnings());
        let tree = match judged {
            Ok(tree) => tree,
            Err(failure) => {
                findings.failure = Some((record, *failure));
                break;
            }
        };
        base = Some(RunBase { tree, lines: record.lines });
        report(round);
    }
    findings.seconds = handle.now().since(began).as_secs_f64();
    Ok(findings)
}
