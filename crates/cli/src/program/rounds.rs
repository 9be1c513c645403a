//! The machine that crashes and comes back: `weir crash program --cut-at`.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use serde_json::{Value, json};
use signal_hook::consts::SIGUSR1;
use weir_program::{RoundsFindings, RunCut, RunPlan, StateFailure, run_rounds};

use super::file::Test;
use super::report::Basis;
use super::{plan, print_warnings, write_record, write_reports};
use crate::error::CliError;
use crate::plain::{self, counted};
use crate::progress::ProgressReporter;
use crate::{Verdict, in_wall_time, print};

/// Runs the program, cuts the power and checks what is left, so often.
pub(super) fn run(
    test: &Test,
    cuts: u64,
    scratch: &Path,
    interrupted: &Arc<AtomicBool>,
    trace: &Path,
) -> Result<Verdict, CliError> {
    let is_cut = Arc::<AtomicBool>::default();
    signal_hook::flag::register(SIGUSR1, Arc::clone(&is_cut)).map_err(CliError::Output)?;
    let cut = Some(RunCut { point: test.cut_at.clone(), is_cut });
    let run = RunPlan { cut, ..test.run_plan(scratch, interrupted) };
    let header = test.header();
    let plan = plan(&test.checks, &header, scratch, interrupted);
    let mut reporter = ProgressReporter::new()?;
    let findings = in_wall_time(test.seed, async |handle| {
        let report = |done| reporter.report((done, cuts), None, "cutting the power".to_owned(), "");
        Ok(run_rounds(&handle, &run, &plan, cuts, report).await?)
    });
    reporter.end();
    let findings = findings?;
    print_warnings(&findings.warnings);
    let trace = match &findings.failure {
        Some((record, _)) => write_record(trace, &header, record).map(|()| Some(trace))?,
        None => None,
    };
    let basis = Basis::new(&plan, test.disk.as_ref(), trace);
    let (text, failing) = (to_text(&findings, &basis), u64::from(findings.failure.is_some()));
    let failures: Vec<StateFailure> = findings.failure.iter().map(|(_, failure)| failure.clone()).collect();
    let junit = basis.to_junit(&header.run, failing, findings.seconds, &text);
    write_reports(&test.checks, &junit, &basis.to_page(&header.run, &text, &failures))?;
    match test.checks.json {
        true => print(&serde_json::to_string_pretty(&to_json(&findings, &basis))?)?,
        false => print(plain::of_text(&text).trim_end())?,
    }
    Ok(if failing > 0 { Verdict::Damaged } else { Verdict::Good })
}

fn to_text(findings: &RoundsFindings, basis: &Basis<'_>) -> String {
    let failure = findings.failure.as_ref().map(|(_, failure)| basis.describe_failure(failure));
    let faults = match findings.faults.is_empty() {
        true => String::new(),
        false => format!("faults: {}\n", findings.faults.join(", ")),
    };
    let at_end = match findings.at_end {
        0 => String::new(),
        some => format!(" ({some} at the end of the run, which came before)"),
    };
    format!(
        "{}{faults}the power was cut {}{at_end}, {} and {} in all: {}\n",
        failure.unwrap_or_default(),
        counted(findings.cuts, "time", "times"),
        counted(findings.calls, "call", "calls"),
        counted(findings.acknowledged, "acknowledged line", "acknowledged lines"),
        match findings.failure {
            Some(_) => "what the last cut left fails".to_owned(),
            None => format!("no failure {}", basis.describe_ground()),
        }
    )
}

fn to_json(findings: &RoundsFindings, basis: &Basis<'_>) -> Value {
    let failures = findings.failure.iter().map(|(_, failure)| basis.failure_to_json(failure));
    let [ground, mount_options, promises] = basis.ground_to_json();
    json!({
        "ground": ground,
        "mount_options": mount_options,
        "promises": promises,
        "seed": basis.plan.seed,
        "cuts": findings.cuts,
        "at_end": findings.at_end,
        "calls": findings.calls,
        "acknowledged": findings.acknowledged,
        "failing": u64::from(findings.failure.is_some()),
        "failures": failures.collect::<Vec<Value>>(),
        "faults": findings.faults,
        "warnings": findings.warnings,
        "seconds": findings.seconds,
        "trace": basis.trace,
    })
}
