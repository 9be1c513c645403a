//! `weir crash program`: power cuts under any program; `weir crash replay`, the same for a record; and `weir crash ack`.

mod file;
mod ground;
mod page;
mod report;
mod rounds;

use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use clap::Args;
use regex_lite::Regex;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use weir_flash::{Profile, ProfileError};
use weir_fuse::absolute;
use weir_program::{
    CampaignError, CutPoint, DiskGround, Fault, Plan, ProgramCampaign, Promises, Record, RecordedRun,
    Scratch, StateName, TRACE_BEGINNING, TraceHeader, fit_drive, read_trace, record_run, write_trace,
};
use weir_runtime::{Handle, Runtime, Wall, cores};
use weir_storage::Rules;

use crate::by_name::by_name;
use crate::error::CliError;
use crate::progress::ProgressReporter;
use crate::size::Size;
use crate::{Verdict, in_wall_time, messages, plain, print, report_file};
use file::Test;
use ground::GroundArguments;
use page::PAGE_BEGINNING;
use report::{Basis, CHECK_LIMIT, JUNIT_BEGINNING, Report};

/// The record of a failure, if no other file was named.
const TRACE_NAME: &str = "weir-crash.trace";

/// How states are checked.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct CheckArguments {
    /// A command that says by exit status 0 that a state is right. It runs in the state's directory, WEIR_DIR; the file
    /// WEIR_ACKED has the lines that were acknowledged
    #[arg(long, value_name = "CMD")]
    check: Option<String>,
    /// What the filesystem promises: posix, ext4-ordered, ext4-writeback, xfs or btrfs [default: posix]
    #[arg(long, value_name = "NAME", value_parser = by_name(Promises::ALL, Promises::name))]
    promises: Option<Promises>,
    /// On a disk: check what this emulated drive leaves, in place of the worst legal disk: a name that weir devices lists, or a
    /// profile of your own that ends in .toml
    #[arg(long, value_name = "NAME|FILE", value_parser = load_drive)]
    drive: Option<Profile>,
    /// Check so many different states at most [default: 1000, or no limit with --time]
    #[arg(long, value_name = "N")]
    states: Option<u64>,
    /// Look for failures for so many seconds
    #[arg(long, value_name = "SECONDS")]
    time: Option<u64>,
    /// Seed of the states that are drawn [default: 1]
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Run so many checks at one time [default: one for each processor]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=256))]
    jobs: Option<u64>,
    /// Seconds that a check may take for a state [default: 60]
    #[arg(long, value_name = "SECONDS")]
    check_limit: Option<u64>,
    /// A directory for states, best in memory [default: /dev/shm, or TMPDIR]
    #[arg(long, value_name = "DIRECTORY")]
    scratch: Option<PathBuf>,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
    /// Write a report in the form of JUnit, for CI
    #[arg(long, value_name = "FILE")]
    junit: Option<PathBuf>,
    /// Write a page with the timeline of each failure
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

/// The profile of a drive.
fn load_drive(name: &str) -> Result<Profile, ProfileError> {
    Profile::load(name).map(|(profile, _)| profile)
}

/// The name of a drive in a trace: one of a profile of the user's own names none that is there.
fn name_for_trace(drive: &Profile) -> String {
    match load_drive(&drive.name) {
        Ok(known) if known == *drive => drive.name.clone(),
        _ => format!("{}.toml", drive.name),
    }
}

/// The profile of the drive that a trace names. A name in a trace is no path: it may come from anybody.
fn load_recorded_drive(name: &str) -> Result<Profile, CliError> {
    match name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-') {
        true => Ok(load_drive(name)?),
        false => {
            Err(CliError::Usage("the trace was searched on a drive of its own: name a profile by --drive"))
        }
    }
}

/// Arguments of `weir crash program`.
#[derive(Debug, Args)]
pub(crate) struct ProgramArguments {
    /// A test as a file, whose keys are the options; options on the command line count for more
    #[arg(value_name = "FILE.toml")]
    file: Option<PathBuf>,
    /// A command that makes what the run begins with, in the directory WEIR_DIR. No cut takes that
    #[arg(long, value_name = "CMD")]
    setup: Option<String>,
    /// The command to record, in the same directory. A line that it appends to the file WEIR_ACK is acknowledged
    #[arg(long, value_name = "CMD")]
    run: Option<String>,
    #[command(flatten)]
    ground: GroundArguments,
    #[command(flatten)]
    checks: CheckArguments,
    /// Lines of the run's standard output that acknowledge: the first group of the pattern, or all that matches
    #[arg(long, value_name = "REGEX")]
    ack_pattern: Option<Regex>,
    /// Something that goes wrong while it runs, as often as wanted: fsync:2 (the second one fails), read:1+:*.db (all reads of such
    /// files), write, short-write, slow-fsync=500:1+ (each takes 500 ms longer), or
    /// space:65536 (the disk is full then)
    #[arg(long, value_name = "FAULT")]
    fault: Vec<Fault>,
    /// Cut the power while it runs, at the third fsync (fsync:3), at that of a path or name (rename:1:*.db), at an acknowledgement
    /// (ack:2), or before any of them (before-fsync:3); and start it again on what is left
    #[arg(long, value_name = "POINT")]
    cut_at: Option<CutPoint>,
    /// Cut so often, with a check each time; without --cut-at, when SIGUSR1 comes [default: 1 with --cut-at]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    cuts: Option<u64>,
    /// Seconds that --setup and --run may take, each [default: 600]
    #[arg(long, value_name = "SECONDS")]
    run_limit: Option<u64>,
    /// Bytes that --setup and --run may write [default: 2G]
    #[arg(long, value_name = "SIZE")]
    record_bytes: Option<Size>,
    /// Keep the record in this file [default: weir-crash.trace, if a failure is found]
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
}

/// Arguments of `weir crash replay`.
#[derive(Debug, Args)]
pub(crate) struct ReplayArguments {
    /// The record. Its check is run, so look at that first if it is not yours: --show
    #[arg(value_name = "TRACE")]
    trace: PathBuf,
    /// Print what was run and how it is checked, and run nothing
    #[arg(long)]
    show: bool,
    /// Check this state only, by the name that a failure prints
    #[arg(long, value_name = "STATE")]
    state: Option<StateName>,
    /// Write the state to this directory, which must not be there, and check nothing
    #[arg(long, value_name = "DIRECTORY", requires = "state")]
    write: Option<PathBuf>,
    #[command(flatten)]
    checks: CheckArguments,
}

/// Arguments of `weir crash ack`.
#[derive(Debug, Args)]
pub(crate) struct AckArguments {
    /// What is acknowledged
    text: String,
}

/// Appends a line to the file of acknowledgements.
pub(crate) fn acknowledge(arguments: &AckArguments) -> Result<(), CliError> {
    let path = std::env::var_os("WEIR_ACK").map(PathBuf::from);
    let path =
        path.ok_or(CliError::Usage("WEIR_ACK is not set: it is for commands that weir crash program runs"))?;
    let wrote = File::options().append(true).open(&path);
    let wrote = wrote.and_then(|mut file| file.write_all(format!("{}\n", arguments.text).as_bytes()));
    wrote.map_err(|source| CliError::File { doing: "acknowledge by", path, source })
}

/// Records a program, and checks what cuts may leave.
pub(crate) fn run(arguments: &ProgramArguments) -> Result<Verdict, CliError> {
    let test = Test::from_arguments(arguments)?;
    let trace = arguments.trace.clone().unwrap_or_else(|| TRACE_NAME.into());
    // A failure may come after hours, and needs its file then.
    report_file::check(&trace, TRACE_BEGINNING)?;
    check_reports(&test.checks)?;
    let scratch = scratch(&arguments.checks)?;
    let interrupted = interrupted()?;
    if let Some(cuts) = test.cuts {
        return rounds::run(&test, cuts, scratch.path(), &interrupted, &trace);
    }
    let plan = test.run_plan(scratch.path(), &interrupted);
    let recorded = in_wall_time(test.seed, async |handle| Ok(record_run(&handle, &plan).await?))?;
    let RecordedRun { record, seconds, faults, warnings } = recorded;
    print_warnings(&warnings);
    let header = test.header();
    let campaign =
        Campaign { record: &record, header: &header, checks: &test.checks, interrupted: &interrupted };
    let keep = |is_needed: bool| match is_needed || arguments.trace.is_some() {
        true => write_record(&trace, &header, &record).map(|()| Some(trace.as_path())),
        false => Ok(None),
    };
    campaign.run(scratch.path(), (Some(seconds), &faults), keep)
}

/// Checks states of a record.
pub(crate) fn replay(arguments: &ReplayArguments) -> Result<Verdict, CliError> {
    let path = &arguments.trace;
    let failed = |source| CliError::File { doing: "read", path: path.clone(), source };
    let mut file = File::open(path).map_err(failed)?;
    let read = read_trace(&mut file);
    let (header, record) = read.map_err(|source| CliError::ProgramTrace { path: path.clone(), source })?;
    if arguments.show {
        print(&plain::of_text(&report::describe_record(&header, &record)))?;
        return Ok(Verdict::Good);
    }
    let promises = Promises::from_name(&header.promises).unwrap_or_default();
    let mut checks = arguments.checks.clone();
    if record.disk.is_some() && checks.promises.is_some() {
        return Err(CliError::Usage("--promises is not for a trace of a disk, which makes its own"));
    }
    match (&arguments.state, &header.drive) {
        (Some(_), _) if checks.drive.is_some() => {
            return Err(CliError::Usage("--drive chooses states, and --state names one: give one of them"));
        }
        (None, Some(name)) if checks.drive.is_none() => checks.drive = Some(load_recorded_drive(name)?),
        _ => {}
    }
    if let Some(drive) = &checks.drive {
        fit_drive(drive, record.disk.as_ref().map(|disk| &disk.ground))?;
    }
    checks.promises.get_or_insert(promises);
    checks.seed.get_or_insert(header.seed);
    let check = checks.check.get_or_insert_with(|| header.check.clone()).clone();
    let header = TraceHeader { check, here: find_here_directory(header.here.clone()), ..header };
    check_reports(&checks)?;
    let (scratch, interrupted) = (scratch(&checks)?, interrupted()?);
    let campaign = Campaign { record: &record, header: &header, checks: &checks, interrupted: &interrupted };
    match &arguments.state {
        Some(state) => campaign.judge_state(scratch.path(), state, arguments.write.as_deref(), path),
        None => campaign.run(scratch.path(), (None, &[]), |_| Ok(Some(path.as_path()))),
    }
}

/// The directory that a check finds as `WEIR_HERE`: the recorded one, which another machine may not have.
fn find_here_directory(recorded: PathBuf) -> PathBuf {
    if recorded.is_dir() {
        return recorded;
    }
    let current = absolute(Path::new("."));
    let (recorded, here) = (recorded.display(), current.display());
    messages::print_message(&format!("note: {recorded} is not there: WEIR_HERE is {here}"));
    current
}

/// That the reports that are wanted can be written.
fn check_reports(checks: &CheckArguments) -> Result<(), CliError> {
    for (path, beginning) in [(&checks.junit, JUNIT_BEGINNING), (&checks.html, PAGE_BEGINNING)] {
        path.as_ref().map_or(Ok(()), |path| report_file::check(path, beginning))?;
    }
    Ok(())
}

/// Writes the reports that are wanted: one for CI, and a page.
fn write_reports(checks: &CheckArguments, junit: &str, page: &str) -> Result<(), CliError> {
    let reports = [(&checks.junit, JUNIT_BEGINNING, junit), (&checks.html, PAGE_BEGINNING, page)];
    for (path, beginning, report) in reports {
        let Some(path) = path else { continue };
        let failed = |source| CliError::File { doing: "write", path: path.clone(), source };
        report_file::create(path, beginning)?.write_all(report.as_bytes()).map_err(failed)?;
    }
    Ok(())
}

fn print_warnings(warnings: &[String]) {
    for warning in warnings {
        messages::print_message(&format!("note: {warning}"));
    }
}

/// Where states are written.
fn scratch(checks: &CheckArguments) -> Result<Scratch, CliError> {
    let in_memory = Path::new("/dev/shm");
    if let Some(parent) = &checks.scratch {
        let failed = |source| CliError::File { doing: "make a directory in", path: parent.clone(), source };
        // The mount and the commands have other working directories.
        let parent = parent.canonicalize().map_err(failed)?;
        return Scratch::new_in(&parent).map_err(failed);
    }
    let parent = std::env::temp_dir();
    let failed = |source| CliError::File { doing: "make a directory in", path: parent.clone(), source };
    Scratch::new_in(in_memory).or_else(|_| Scratch::new_in(&parent)).map_err(failed)
}

/// Becomes true with SIGINT, SIGTERM or SIGHUP; the second one of them ends the program.
fn interrupted() -> Result<Arc<AtomicBool>, CliError> {
    let flag = Arc::<AtomicBool>::default();
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register_conditional_shutdown(signal, 2, Arc::clone(&flag))
            .and_then(|_| signal_hook::flag::register(signal, Arc::clone(&flag)))
            .map_err(CliError::Output)?;
    }
    Ok(flag)
}

fn write_record(path: &Path, header: &TraceHeader, record: &Record) -> Result<(), CliError> {
    let mut file = report_file::create(path, TRACE_BEGINNING)?;
    let wrote = write_trace(&mut file, header, record);
    wrote.map_err(|source| CliError::ProgramTrace { path: path.to_owned(), source })
}

/// The program that runs.
fn this_program() -> PathBuf {
    std::env::current_exe().unwrap_or_else(|_| "weir".into())
}

/// How states are checked.
fn plan(
    checks: &CheckArguments,
    header: &TraceHeader,
    scratch: &Path,
    interrupted: &Arc<AtomicBool>,
) -> Plan {
    let seconds = |seconds: u64| Duration::from_secs(seconds);
    Plan {
        promises: checks.promises.unwrap_or_default(),
        drive: checks.drive.clone(),
        check: header.check.clone(),
        check_limit: seconds(checks.check_limit.unwrap_or(CHECK_LIMIT)),
        states: checks.states.unwrap_or(if checks.time.is_some() { u64::MAX } else { 1000 }),
        time: checks.time.map(seconds),
        seed: checks.seed.unwrap_or(1),
        jobs: checks.jobs.unwrap_or_else(cores),
        scratch: scratch.to_owned(),
        here: header.here.clone(),
        weir: this_program(),
        stops: Arc::clone(interrupted),
        rules: Rules::all(),
    }
}

/// A record and how it is checked.
struct Campaign<'a> {
    record: &'a Record,
    header: &'a TraceHeader,
    checks: &'a CheckArguments,
    interrupted: &'a Arc<AtomicBool>,
}

impl Campaign<'_> {
    fn disk(&self) -> Option<&DiskGround> {
        self.record.disk.as_ref().map(|disk| &disk.ground)
    }

    fn plan(&self, scratch: &Path) -> Plan {
        plan(self.checks, self.header, scratch, self.interrupted)
    }

    /// Checks states, and prints what was found, of a run that took so long and met these faults, if it was recorded just now.
    /// `keep` keeps the record, if it is needed, and says where.
    fn run<'p>(
        &self,
        scratch: &Path,
        (run_seconds, faults): (Option<f64>, &[String]),
        keep: impl FnOnce(bool) -> Result<Option<&'p Path>, CliError>,
    ) -> Result<Verdict, CliError> {
        let plan = self.plan(scratch);
        let clock = Runtime::wall(Wall::default())?.handle();
        let mut reporter = ProgressReporter::new()?;
        let findings = self.search(&plan, &clock, &mut reporter);
        reporter.end();
        let findings = match findings {
            // The record is worth a look, too.
            Err(
                error @ (CampaignError::FailsUncut { .. }
                | CampaignError::NothingChecked
                | CampaignError::Interrupted),
            ) => {
                keep(false)?;
                return Err(error.into());
            }
            findings => findings?,
        };
        let trace = keep(findings.failures > 0)?;
        let basis = Basis::new(&plan, self.disk(), trace);
        let report = Report { findings: &findings, record: self.record, basis, run_seconds, faults };
        print_warnings(&findings.warnings);
        write_reports(self.checks, &report.to_junit(&self.header.run), &report.to_page(&self.header.run))?;
        match self.checks.json {
            true => print(&serde_json::to_string_pretty(&report.to_json())?)?,
            false => print(plain::of_text(&report.to_text()).trim_end())?,
        }
        Ok(if findings.failures > 0 { Verdict::Damaged } else { Verdict::Good })
    }

    fn search(
        &self,
        plan: &Plan,
        clock: &Handle,
        reporter: &mut ProgressReporter,
    ) -> Result<weir_program::CampaignFindings, CampaignError> {
        ProgramCampaign::new(self.record, plan).run(clock, |progress| {
            let stage = "checking states".to_owned();
            let failures = plain::counted(progress.failures, "failure", "failures");
            // The limit that is there: the time, or the states.
            let (steps, found) = match plan.time {
                Some(time) if plan.states == u64::MAX => {
                    let states = plain::counted(progress.distinct, "state", "states");
                    let seconds = time.as_secs();
                    (((progress.seconds as u64).min(seconds), seconds), format!("{states}, {failures}"))
                }
                _ => ((progress.distinct, plan.states.max(progress.distinct)), failures),
            };
            reporter.report(steps, None, stage, &found);
            !self.interrupted.load(Ordering::Relaxed)
        })
    }

    /// Checks one state, or writes it.
    fn judge_state(
        &self,
        scratch: &Path,
        state: &StateName,
        write: Option<&Path>,
        trace: &Path,
    ) -> Result<Verdict, CliError> {
        let plan = self.plan(scratch);
        let campaign = ProgramCampaign::new(self.record, &plan);
        if let Some(directory) = write {
            campaign.write_state(state, directory)?;
            return Ok(Verdict::Good);
        }
        let judged = campaign.judge_state(state)?;
        let is_right = judged.judgement.is_right;
        let basis = Basis::new(&plan, self.disk(), Some(trace));
        match self.checks.json {
            true => print(&serde_json::to_string_pretty(&basis.failure_to_json(&judged))?)?,
            false if is_right => print("the check accepts this state")?,
            false => print(plain::of_text(&basis.describe_failure(&judged)).trim_end())?,
        }
        Ok(if is_right { Verdict::Good } else { Verdict::Damaged })
    }
}
