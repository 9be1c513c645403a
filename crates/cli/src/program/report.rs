//! What was found of a program: for a person, for scripts, and for CI.

use std::fmt::Write as _;
use std::path::Path;

use maud::html;
use serde_json::{Value, json};
use weir_program::{CampaignFindings, DiskGround, Plan, Record, StateFailure, TraceHeader};

use super::page;
use crate::plain::{self, counted};

/// Lines of a check's output that are shown.
const OUTPUT_LINES: usize = 12;

/// The first line of a report for CI.
pub(super) const JUNIT_BEGINNING: &str = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n";

/// Seconds that a check may take, if nothing was said.
pub(super) const CHECK_LIMIT: u64 = 60;

/// What a failure was found with.
pub(super) struct Basis<'a> {
    pub(super) plan: &'a Plan,
    disk: Option<&'a DiskGround>,
    /// The file of the record.
    pub(super) trace: Option<&'a Path>,
}

impl<'a> Basis<'a> {
    /// By a plan, of a record that is that of a disk or not, and that is kept in a file or not.
    pub(super) fn new(plan: &'a Plan, disk: Option<&'a DiskGround>, trace: Option<&'a Path>) -> Basis<'a> {
        Basis { plan, disk, trace }
    }

    /// What is lost and what not, for a person.
    pub(super) fn describe_ground(&self) -> String {
        match self.disk {
            None => format!("under the promises of {}", self.plan.promises.name()),
            Some(disk) => {
                let drive = self.plan.drive.as_ref().map_or("the worst legal disk", |drive| &drive.name);
                format!("with {} on {drive}", disk.describe())
            }
        }
    }

    fn count_calls(&self, calls: u64) -> String {
        match self.disk {
            None => counted(calls, "call", "calls"),
            Some(_) => counted(calls, "request to the disk", "requests to the disk"),
        }
    }

    /// The same, for scripts: the ground, its mount options, and the promises of a mount.
    pub(super) fn ground_to_json(&self) -> [Value; 3] {
        match self.disk {
            None => [json!("mount"), Value::Null, json!(self.plan.promises.name())],
            Some(disk) => [json!(disk.filesystem.name()), json!(disk.options), Value::Null],
        }
    }

    /// The command that checks a state again.
    fn replay_line(&self, failure: &StateFailure) -> String {
        let trace = self.trace.map_or_else(|| "TRACE".to_owned(), plain::word);
        let promises = match self.disk {
            None => format!(" --promises {}", self.plan.promises.name()),
            Some(_) => String::new(),
        };
        let limit = match self.plan.check_limit.as_secs() {
            CHECK_LIMIT => String::new(),
            other => format!(" --check-limit {other}"),
        };
        format!("weir crash replay {trace}{promises}{limit} --state '{}'", failure.name)
    }

    /// A failure, for a person.
    pub(super) fn describe_failure(&self, failure: &StateFailure) -> String {
        let mut text =
            format!("the check fails: {}; {}\n", failure.judgement.ending, failure.explanation.moment);
        for what in &failure.explanation.missing {
            let _ = writeln!(text, "  missing: {what}");
        }
        for cause in &failure.explanation.causes {
            let _ = writeln!(text, "  cause: {cause}");
        }
        let output = String::from_utf8_lossy(&failure.judgement.output);
        let lines: Vec<&str> = output.lines().collect();
        for line in &lines[lines.len().saturating_sub(OUTPUT_LINES)..] {
            let _ = writeln!(text, "  check: {line}");
        }
        let _ = writeln!(text, "  replay: {}", self.replay_line(failure));
        text
    }

    /// A failure, for scripts.
    pub(super) fn failure_to_json(&self, failure: &StateFailure) -> Value {
        json!({
            "state": failure.name.to_string(),
            "is_right": failure.judgement.is_right,
            "ending": failure.judgement.ending,
            "output": String::from_utf8_lossy(&failure.judgement.output),
            "moment": failure.explanation.moment,
            "missing": failure.explanation.missing,
            "causes": failure.explanation.causes,
            "missing_at_first": failure.missing_at_first,
            "missing_units": failure.name.missing.len(),
            "replay": self.replay_line(failure),
        })
    }

    /// A page with the timelines of failures.
    pub(super) fn to_page(&self, run: &str, text: &str, failures: &[StateFailure]) -> String {
        let described: Vec<(&StateFailure, String)> =
            failures.iter().map(|failure| (failure, self.describe_failure(failure))).collect();
        page::to_page(run, text, &described)
    }

    /// A report for CI with one case: the program.
    pub(super) fn to_junit(&self, run: &str, failing: u64, seconds: f64, text: &str) -> String {
        let (name, text) = (plain::of_text(run), plain::of_text(text));
        let class = self.disk.map_or(self.plan.promises.name(), |disk| disk.filesystem.name());
        let document = html! {
            testsuite name="weir crash program" tests="1" failures=(u64::from(failing > 0)) time=(seconds) {
                testcase name=(name) classname=(class) time=(seconds) {
                    @if failing > 0 {
                        failure message=(counted(failing, "state fails", "states fail")) { (text) }
                    } @else { system-out { (text) } }
                }
            }
        };
        format!("{JUNIT_BEGINNING}{}\n", document.into_string())
    }
}

/// What was found, and of what.
pub(super) struct Report<'a> {
    pub(super) findings: &'a CampaignFindings,
    pub(super) record: &'a Record,
    pub(super) basis: Basis<'a>,
    /// How long the run took, if it was recorded just now.
    pub(super) run_seconds: Option<f64>,
    /// What went wrong by its faults.
    pub(super) faults: &'a [String],
}

/// What a record holds.
pub(super) fn describe_record(header: &TraceHeader, record: &Record) -> String {
    let ground = match &record.disk {
        None => format!("promises:     {}", header.promises),
        Some(disk) => {
            let drive = header.drive.as_ref().and_then(|drive| drive.lines().next());
            let drive = drive.unwrap_or("the worst legal disk");
            format!("ground:       {}, of {} bytes, on {drive}", disk.ground.describe(), disk.ground.bytes)
        }
    };
    format!(
        "run:          {}\ncheck:        {}\ndirectory:    {}\n{ground}\nseed:         {}\n\
         calls:        {}\nacknowledged: {}\nbytes:        {}",
        header.run,
        header.check,
        header.here.display(),
        header.seed,
        record.operations.len() - record.setup,
        record.lines.len(),
        record.data.bytes()
    )
}

impl Report<'_> {
    fn states_per_minute(&self) -> f64 {
        (self.findings.distinct as f64 * 60.0 / self.findings.seconds.max(1e-9)).round()
    }

    fn calls(&self) -> usize {
        self.record.operations.len() - self.record.setup
    }

    pub(super) fn to_text(&self) -> String {
        let CampaignFindings {
            distinct, failures, moments, moments_checked, is_exhaustive, reported, ..
        } = self.findings;
        let mut text = String::new();
        for (nth, failure) in (1..).zip(reported) {
            let _ = write!(text, "{nth}. {}", self.basis.describe_failure(failure));
        }
        if !self.faults.is_empty() {
            let _ = writeln!(text, "faults: {}", self.faults.join(", "));
        }
        let looked = match (is_exhaustive, self.findings.is_interrupted) {
            (_, true) => "ended early",
            (true, _) => "all that there are, but for torn blocks, of which some",
            (false, _) => "a sample of them",
        };
        let _ = writeln!(
            text,
            "{} checked ({looked}), at {moments_checked} of {} at which the power may be cut, of {} and {}, {} states a minute: {}",
            counted(*distinct, "different state", "different states"),
            counted(*moments, "moment", "moments"),
            self.basis.count_calls(self.calls() as u64),
            counted(self.record.lines.len() as u64, "acknowledged line", "acknowledged lines"),
            self.states_per_minute(),
            match failures {
                0 => format!("no failure {}", self.basis.describe_ground()),
                1 => "1 fails".to_owned(),
                some => format!("{some} fail"),
            }
        );
        text
    }

    pub(super) fn to_json(&self) -> Value {
        let CampaignFindings {
            states,
            distinct,
            failures,
            moments,
            moments_checked,
            is_exhaustive,
            warnings,
            seconds,
            reported,
            ..
        } = self.findings;
        let reported: Vec<Value> =
            reported.iter().map(|failure| self.basis.failure_to_json(failure)).collect();
        let [ground, mount_options, promises] = self.basis.ground_to_json();
        json!({
            "ground": ground,
            "mount_options": mount_options,
            "promises": promises,
            "drive": self.basis.plan.drive.as_ref().map(|drive| &drive.name),
            "seed": self.basis.plan.seed,
            "calls": self.calls(),
            "bytes": self.record.data.bytes(),
            "acknowledged": self.record.lines.len(),
            "moments": moments,
            "moments_checked": moments_checked,
            "states": states,
            "distinct": distinct,
            "exhaustive": is_exhaustive,
            "failing": failures,
            "failures": reported,
            "warnings": warnings,
            "seconds": (seconds * 1000.0).round() / 1000.0,
            "run_seconds": self.run_seconds,
            "faults": self.faults,
            "states_per_minute": self.states_per_minute(),
            "trace": self.basis.trace,
        })
    }

    pub(super) fn to_page(&self, run: &str) -> String {
        self.basis.to_page(run, &self.to_text(), &self.findings.reported)
    }

    pub(super) fn to_junit(&self, run: &str) -> String {
        let CampaignFindings { failures, seconds, .. } = self.findings;
        self.basis.to_junit(run, *failures, *seconds, &self.to_text())
    }
}
