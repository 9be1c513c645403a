//! `weir crash`: power cuts under a workload of the reader's own, or under all short ones, each state recovered and judged.

use std::fs;
use std::io::{Read, Write as _};
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand, ValueEnum};
use serde_json::{Value, json};
use weir_crash::{
    Bench, Campaign as _, CutName, FsGround, Length, Plan, PlayError, Run, Setup, Shard, TEXT_BYTES_MAX,
    Workload, WorkloadCampaign, WorkloadFailure, WorkloadTotals, generate, operation_lines,
};
use weir_fs::{Engine, JournalMode};
use weir_runtime::{Runtime, Wall};

use crate::by_name::by_name;
use crate::campaign::{self, CampaignArguments};
use crate::error::CliError;
use crate::journal_engine::JournalEngine;
use crate::journal_mode;
use crate::messages;
use crate::plain::{self, counted};
use crate::program::{self, AckArguments, ProgramArguments, ReplayArguments};
use crate::progress::ProgressReporter;
use crate::{Verdict, print, report_file};

/// Failures that are made smaller and reported; others are only counted.
const REPORTED_MAX: u64 = 5;

/// What the file of a failure begins with.
const BEGINNING: &str = "# Failure found by ";

/// Commands of `weir crash`.
#[derive(Debug, Subcommand)]
pub(crate) enum CrashCommand {
    /// Cut the power at every event of your own workloads, and judge what is left
    ///
    /// docs/crash.md has the language. Nothing outside this process loses anything: the disk is in memory.
    Run(RunArguments),
    /// Make all workloads of one or two operations, and run them
    ///
    /// Without --run they are printed, or written to a directory.
    Generate(GenerateArguments),
    /// Run the campaigns of power cuts by which Weir itself is tested
    Campaign(CampaignArguments),
    /// Cut the power under any program: record it once, and check what cuts may leave of its files
    ///
    /// docs/crash-program.md has the way in five minutes. Exit codes: 0 no failure was found, 1 one was, 2 the test could not run.
    Program(Box<ProgramArguments>),
    /// Check states of a run that `weir crash program` has recorded
    Replay(Box<ReplayArguments>),
    /// Acknowledge a line, from a command that `weir crash program` runs
    Ack(AckArguments),
}

/// Where and how.
#[derive(Debug, Args)]
struct TestArguments {
    /// What the filesystem stands on: volume, legacy (the worst disk), adversary (the worst disk with barriers), prefix (one
    /// that keeps the order of receipt), emmc, emmc-unreliable, or an emulated device by its barrier mechanism
    #[arg(long, value_name = "NAME", default_value = "volume",
        value_parser = by_name(FsGround::ALL, FsGround::name))]
    ground: FsGround,
    /// How the journal commits [default: dual where the ground keeps barriers, jbd2 elsewhere]
    #[arg(long, value_enum)]
    engine: Option<JournalEngine>,
    /// What the journal holds of file data
    #[arg(long, default_value_t = JournalMode::Ordered, value_parser = journal_mode::copying_mode_parser())]
    journal: JournalMode,
    /// Seed of the ground's choices, and of the states that are drawn
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Show one of N states to e2fsck and to the kernel, where they are available; 0 for none
    #[arg(long, value_name = "N", default_value_t = 0)]
    outside: u64,
    /// Cut the power again, at every event of the recovery, in one of N states; 0 for none
    #[arg(long, value_name = "N", default_value_t = 0)]
    cut_recovery: u64,
    /// Tear what the disk writes at multiples of so many bytes; 512 on the grounds adversary and legacy alone
    #[arg(long, value_name = "BYTES", default_value = "4096", value_parser = by_name([512, 4096], name_of_tear))]
    tear: u32,
    /// An existing directory for the files of failures, weir-crash-1.txt and so on
    #[arg(long, value_name = "DIRECTORY", default_value = ".")]
    failures: PathBuf,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

/// Arguments of `weir crash run`.
#[derive(Debug, Args)]
pub(crate) struct RunArguments {
    /// Files with workloads, one operation per line; - is standard input
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
    #[command(flatten)]
    test: TestArguments,
    /// Judge only this power cut, by the name that a failure prints
    #[arg(long, value_name = "CUT")]
    cut: Option<CutName>,
}

/// Arguments of `weir crash generate`.
#[derive(Debug, Args)]
pub(crate) struct GenerateArguments {
    /// Operations of a workload, not counting synchronisation calls and setup
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=2))]
    length: u8,
    /// Run them
    #[arg(long)]
    run: bool,
    /// Only part I of N equal parts
    #[arg(long, value_name = "I/N", value_parser = parse_part)]
    part: Option<(usize, usize)>,
    /// Run, print or write at most N workloads
    #[arg(long, value_name = "N")]
    limit: Option<usize>,
    /// Write each workload to a file in this directory, which is created if needed
    #[arg(long, value_name = "DIRECTORY", conflicts_with = "run")]
    write: Option<PathBuf>,
    #[command(flatten)]
    test: TestArguments,
}

/// The name of a size at whose multiples disks tear what they write.
pub(crate) fn name_of_tear(bytes: u32) -> &'static str {
    if bytes == 512 { "512" } else { "4096" }
}

/// Parses `I/N`, from 1.
fn parse_part(text: &str) -> Result<(usize, usize), String> {
    let numbers = text.split_once('/').and_then(|(nth, of)| Some((nth.parse().ok()?, of.parse().ok()?)));
    let numbers = numbers.filter(|(nth, of): &(usize, usize)| (1..=*of).contains(nth));
    numbers.ok_or_else(|| "write I/N, as in 1/4".to_owned())
}

impl TestArguments {
    /// The setup of the test.
    fn setup(&self) -> Result<Setup, CliError> {
        let named = self.engine.and_then(|engine| engine.to_possible_value());
        let engine = named.map_or(Ok(self.ground.default_engine()), |engine| engine.get_name().parse())?;
        let mut setup = Setup::new(self.ground, engine);
        setup.options.mode = self.journal;
        let TestArguments { seed, outside, cut_recovery, tear, .. } = *self;
        Ok(Setup { seed, outside, cut_recovery, tear_bytes: tear, ..setup })
    }

    /// The file of a failure.
    fn file(&self, nth: u64) -> PathBuf {
        self.failures.join(format!("weir-crash-{nth}.txt"))
    }
}

/// Runs a command of `weir crash`; damaged if a state is wrong.
pub(crate) fn run(command: &CrashCommand) -> Result<Verdict, CliError> {
    match command {
        CrashCommand::Run(arguments) => run_files(arguments),
        CrashCommand::Generate(arguments) => run_generated(arguments),
        CrashCommand::Campaign(arguments) => campaign::run(arguments),
        CrashCommand::Program(arguments) => program::run(arguments),
        CrashCommand::Replay(arguments) => program::replay(arguments),
        CrashCommand::Ack(arguments) => program::acknowledge(arguments).map(|()| Verdict::Good),
    }
}

fn run_files(arguments: &RunArguments) -> Result<Verdict, CliError> {
    let workloads = arguments.files.iter().map(|path| Named::read(path)).collect::<Result<Vec<_>, _>>()?;
    match (&arguments.cut, &workloads[..], &arguments.files[..]) {
        (None, ..) => WorkloadTest::run(&arguments.test, &workloads),
        (Some(cut), [workload], [path]) => replay(&arguments.test, (path, workload), cut),
        (Some(_), ..) => Err(CliError::Usage("--cut is for one file: name one")),
    }
}

/// Judges one power cut, and reports it.
fn replay(test: &TestArguments, (path, named): (&Path, &Named), cut: &CutName) -> Result<Verdict, CliError> {
    let failed = |source| named.cannot_be_played(source);
    let bench = test.setup()?.prepare()?;
    let failure = bench.replay(&named.workload, cut).map_err(failed)?;
    let text = match &failure {
        Some(failure) => {
            let replay = bench.setup().replay_line(&plain::word(path), failure.cut.as_ref());
            bench.describe_failure(&named.workload, failure, &replay).map_err(failed)?
        }
        None => format!("{}: this power cut leaves an allowed state", named.name),
    };
    match test.json {
        true => print(&json!({ "failures": u64::from(failure.is_some()), "told": text }).to_string())?,
        false => print(text.trim_end())?,
    }
    Ok(if failure.is_some() { Verdict::Damaged } else { Verdict::Good })
}

fn run_generated(arguments: &GenerateArguments) -> Result<Verdict, CliError> {
    let length = if arguments.length == 1 { Length::One } else { Length::Two };
    let all: Vec<(usize, Workload)> = (1..).zip(generate(length)).collect();
    let (nth, of) = arguments.part.unwrap_or((1, 1));
    let (from, to) = (all.len() * (nth - 1) / of, all.len() * nth / of);
    let named = all[from..to].iter().take(arguments.limit.unwrap_or(usize::MAX));
    let named = named.map(|(number, workload)| {
        (format!("length-{length}-{number:06}", length = arguments.length), workload)
    });
    if arguments.run {
        let named =
            named.map(|(name, workload)| Named { name, workload: workload.clone(), lines: Vec::new() });
        return WorkloadTest::run(&arguments.test, &named.collect::<Vec<_>>());
    }
    match &arguments.write {
        Some(directory) => {
            let failed =
                |source| CliError::File { doing: "write workloads to", path: directory.clone(), source };
            fs::create_dir_all(directory).map_err(failed)?;
            for (name, workload) in named {
                fs::write(directory.join(format!("{name}.txt")), workload.to_string()).map_err(failed)?;
            }
        }
        None if arguments.test.json => {
            let texts: Vec<Value> =
                named.map(|(name, workload)| json!({ "name": name, "text": workload.to_string() })).collect();
            print(&serde_json::to_string_pretty(&texts)?)?;
        }
        None => {
            let texts: Vec<String> = named.map(|(name, workload)| format!("# {name}\n{workload}")).collect();
            print(texts.join("\n").trim_end())?;
        }
    }
    Ok(Verdict::Good)
}

/// A workload, and what messages call it.
struct Named {
    name: String,
    workload: Workload,
    /// The lines of its file that hold its operations; none of one that was generated.
    lines: Vec<usize>,
}

impl Named {
    fn read(path: &Path) -> Result<Named, CliError> {
        let failed = |source| CliError::File { doing: "read", path: path.to_owned(), source };
        // A file may be a pipe or a device, and have no end.
        let bytes_of = |input: &mut dyn Read| {
            let mut bytes = Vec::new();
            input.take(TEXT_BYTES_MAX as u64 + 1).read_to_end(&mut bytes).map(|_| bytes)
        };
        let bytes = match path == Path::new("-") {
            true => bytes_of(&mut std::io::stdin()),
            false => fs::File::open(path).and_then(|mut file| bytes_of(&mut file)),
        };
        let bytes = bytes.map_err(failed)?;
        if bytes.len() > TEXT_BYTES_MAX {
            return Err(CliError::Usage("a workload has at most 1 MiB: use a smaller file"));
        }
        let text = String::from_utf8_lossy(&bytes);
        let workload: Workload =
            text.parse().map_err(|source| CliError::Workload { path: path.to_owned(), source })?;
        if workload.operations.is_empty() {
            return Err(CliError::NoOperation(path.to_owned()));
        }
        let lines = operation_lines(&text).map(|(line, _)| line).collect();
        Ok(Named { name: plain::of_path(path), workload, lines })
    }

    /// Where the `nth` operation is, from 1.
    fn place(&self, nth: usize) -> String {
        match self.lines.get(nth.wrapping_sub(1)) {
            Some(line) => format!("line {line}"),
            None => format!("operation {nth}"),
        }
    }

    fn cannot_be_played(&self, source: PlayError) -> CliError {
        let place = match &source {
            PlayError::Impossible { nth, .. } => format!(": {}", self.place(*nth)),
            PlayError::Refused { .. } | PlayError::NoSuchCut(_) | PlayError::Ground(_) => String::new(),
        };
        CliError::Play { workload: format!("{}{place}", self.name), source }
    }
}

/// A campaign on workloads of the reader's own, and what it has reported so far.
struct WorkloadTest<'a> {
    arguments: &'a TestArguments,
    workloads: &'a [Named],
    reporter: ProgressReporter,
    failures: u64,
    trace_hash: u64,
    /// The commands that judge failures again.
    replays: Vec<String>,
}

impl WorkloadTest<'_> {
    /// Runs all workloads, and prints what was found.
    fn run(arguments: &TestArguments, workloads: &[Named]) -> Result<Verdict, CliError> {
        let setup = arguments.setup()?;
        // A ground that does not take the engine is an error before anything is played.
        setup.prepare()?;
        // A failure may come after hours, and needs its file then.
        for nth in 1..=REPORTED_MAX {
            report_file::check(&arguments.file(nth), BEGINNING)?;
        }
        let clock = Runtime::wall(Wall::default())?.handle();
        let (reporter, began) = (ProgressReporter::new()?, clock.now());
        let (failures, trace_hash, replays) = (0, 0, Vec::new());
        let mut test = WorkloadTest { arguments, workloads, reporter, failures, trace_hash, replays };
        test.report_progress(0);
        let plan = Plan::new(u64::MAX, arguments.seed);
        let played = workloads.iter().map(|named| named.workload.clone()).collect();
        let mut outcome = Ok(());
        let campaign = WorkloadCampaign { plan, setup, workloads: Some(played) };
        let summary = campaign.run_observed(Shard::WHOLE, |(bench, _), number, run| {
            outcome = test.end_run(bench, number, run);
            // With an error the campaign ends, with a failure it does not.
            if outcome.is_ok() {
                run.failure = None;
            }
        });
        outcome?;
        test.reporter.end();
        test.print_totals(&summary.totals, setup, clock.now().since(began).as_secs_f64())
    }

    /// Workloads are under way of which so many are over.
    fn report_progress(&mut self, done: u64) {
        let total = self.workloads.len() as u64;
        if let (true, Some(named)) = (total > 1, self.workloads.get(done as usize)) {
            let stage = format!("{} % of {total} workloads", done * 10 / total * 10);
            self.reporter.report((done, total), None, stage, &named.name);
        }
    }

    fn end_run(&mut self, bench: &Bench, number: u64, run: &Run<WorkloadTotals>) -> Result<(), CliError> {
        self.failures += run.totals.failures;
        self.trace_hash = fold_hash(self.trace_hash, run.trace_hash);
        let named = &self.workloads[number as usize];
        let is_reported = run.failure.is_some() && self.failures <= REPORTED_MAX;
        let is_played = run.totals.workloads > 0;
        if !is_played || is_reported || run.totals.operations_no_space > 0 {
            // A play is a function of its workload. This one says what is wrong, and not only that something is.
            let swept = bench.sweep(&named.workload).map_err(|source| named.cannot_be_played(source))?;
            match swept.failure {
                Some(failure) if is_reported => self.report_failure(bench, named, &failure)?,
                Some(_) => {}
                None => report_no_space(named, &swept.no_space),
            }
        }
        self.report_progress(number + 1);
        Ok(())
    }

    /// Makes a failure smaller, and reports it.
    fn report_failure(
        &mut self,
        bench: &Bench,
        named: &Named,
        failure: &WorkloadFailure,
    ) -> Result<(), CliError> {
        let small = bench.shrink(&named.workload, failure);
        let path = self.arguments.file(self.failures);
        let replay = bench.setup().replay_line(&plain::word(&path), small.failure.cut.as_ref());
        let text = bench.describe_failure(&small.workload, &small.failure, &replay);
        let text = text.map_err(|source| named.cannot_be_played(source))?;
        // Where standard error is closed the file has it, and where no file can be written standard error does.
        let _ = writeln!(
            std::io::stderr(),
            "weir: {} fails; {} left of {}, in {}:\n{text}",
            named.name,
            counted(small.workload.operations.len() as u64, "operation is", "operations are"),
            named.workload.operations.len(),
            plain::of_path(&path)
        );
        match write_report(&path, &text) {
            Ok(()) => self.replays.push(replay),
            // What was found counts for more than its file.
            Err(error) => messages::print_message(&plain::of_text(&error.to_string())),
        }
        Ok(())
    }

    fn print_totals(&self, totals: &WorkloadTotals, setup: Setup, seconds: f64) -> Result<Verdict, CliError> {
        if self.arguments.json {
            let mut document = serde_json::to_value(totals)?;
            document["ground"] = json!(self.arguments.ground.name());
            document["engine"] = json!(setup.options.engine.map(Engine::name));
            document["journal"] = json!(self.arguments.journal.name());
            document["seed"] = json!(self.arguments.seed);
            document["trace_hash"] = json!(format!("{:016x}", self.trace_hash));
            document["replays"] = json!(self.replays);
            document["seconds"] = json!((seconds * 1000.0).round() / 1000.0);
            document["workloads_per_minute"] =
                json!((totals.workloads as f64 * 60.0 / seconds.max(1e-9)).round());
            print(&serde_json::to_string_pretty(&document)?)?;
        } else {
            print(&totals_in_words(totals, self.arguments.outside > 0))?;
        }
        Ok(if totals.failures > 0 { Verdict::Damaged } else { Verdict::Good })
    }
}

/// Writes what is said of a failure to its file.
fn write_report(path: &Path, text: &str) -> Result<(), CliError> {
    let wrote = report_file::create(path, BEGINNING)?.write_all(text.as_bytes());
    wrote.map_err(|source| CliError::File { doing: "write", path: path.to_owned(), source })
}

/// Folds the next trace hash into the one of everything before.
pub(crate) fn fold_hash(before: u64, next: u64) -> u64 {
    (before.rotate_left(5) ^ next).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// Reports that some operations of a workload, by their places, found no space.
fn report_no_space(named: &Named, no_space: &[usize]) {
    let Some(first) = no_space.first() else { return };
    let operations = &named.workload.operations;
    let operation = operations.get(first - 1).map_or_else(String::new, ToString::to_string);
    // Where standard error is closed, the totals still say it.
    let _ = writeln!(
        std::io::stderr(),
        "weir: {}: {} of {} operations found no space, the first in {}, {operation}: they were not done, or only in part",
        named.name,
        no_space.len(),
        operations.len(),
        named.place(*first)
    );
}

/// Totals as a sentence; with outside judges if they were asked.
fn totals_in_words(totals: &WorkloadTotals, has_outside: bool) -> String {
    let no_space = match totals.operations_no_space {
        0 => String::new(),
        some => format!(" ({some} of {} operations found no space)", totals.operations),
    };
    let recoveries = match totals.states_recovery {
        0 => String::new(),
        states => format!(" and {states} of cuts during recovery"),
    };
    let outside = match has_outside {
        true => {
            format!(", {} shown to e2fsck and {} to the kernel", totals.states_outside, totals.states_kernel)
        }
        false => String::new(),
    };
    format!(
        "{}{no_space}, {} at {} (all states judged at {} of these, a sample at {}), {}{recoveries}{outside}: {}",
        counted(totals.workloads, "workload", "workloads"),
        counted(totals.cuts, "power cut", "power cuts"),
        counted(totals.events, "event", "events"),
        totals.events_exhaustive,
        totals.events - totals.events_exhaustive,
        counted(totals.states, "state", "states"),
        match totals.failures {
            0 => "all as promised".to_owned(),
            1 => "1 workload fails".to_owned(),
            failures => format!("{failures} workloads fail"),
        }
    )
}
