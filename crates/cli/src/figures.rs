//! `weir figures`: run the papers' figures, with a progress bar, and put the results beside the papers'.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use clap::Args;
use weir_figures::{Figure, Lab, Record, Row, Sheet, Summary, report};
use weir_runtime::cores;

use crate::error::CliError;
use crate::progress::ProgressReporter;
use crate::table::{self, Grid, paragraphs};
use crate::{print, report_file};

/// Arguments of `weir figures`.
#[derive(Debug, Args)]
pub(crate) struct FiguresArguments {
    /// The figures, by name; without one, the names are listed and nothing is run
    #[arg(value_name = "NAME")]
    names: Vec<String>,
    /// Run all figures: some 12 minutes on two cores
    #[arg(long, conflicts_with_all = ["names", "list"])]
    all: bool,
    /// List the figures and run nothing
    #[arg(long, conflicts_with_all = ["html", "quick", "spread", "kernel"])]
    list: bool,
    /// Print a JSON list of rows instead of tables
    #[arg(long)]
    json: bool,
    /// Print how many of the papers' numbers ours comes near, what is broken, and what is far off and not explained; with --json all
    /// rows, as one document. Without a name: of all figures
    #[arg(long, conflicts_with = "list")]
    summary: bool,
    /// With --summary: print all rows
    #[arg(long, requires = "summary", conflicts_with = "json")]
    rows: bool,
    /// Run nothing: take the rows from DIR/NAME/ours.json, as --json has printed them there before, and the papers' numbers
    /// from DIR/NAME/paper.toml. Without a name: of all figures that are there
    #[arg(long, value_name = "DIR", requires = "summary", conflicts_with_all = ["html", "quick", "spread", "kernel", "seed", "seeds", "jobs"])]
    recorded: Option<PathBuf>,
    /// Write a report with plots to FILE, one HTML page without references to others
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Seed of the addresses that are written, and of the devices' choices
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Run with the seeds from 1 to N, each with a window that begins and ends elsewhere: a row is the median of the results,
    /// and with --json has their `range` and `seeds`
    #[arg(long, value_name = "N", default_value_t = 1, conflicts_with_all = ["seed", "html"], value_parser = clap::value_parser!(u64).range(1..=1_000))]
    seeds: u64,
    /// Run a tenth of the writes: seconds, and rough results
    #[arg(long)]
    quick: bool,
    /// Run again with each assumed parameter 20 % lower and higher, or replaced by the other word of its range, and
    /// show how far rows move that are not fitted, in runs of a tenth of the writes: some 5 times the time
    #[arg(long)]
    spread: bool,
    /// Runs at the same time, each on a thread of its own; results do not depend on it. Without the option: as many as there
    /// are cores
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=256))]
    jobs: Option<u64>,
    /// Let the kernel judge crash tests too (fast18-table2), by mounting images, which takes root: some 10 minutes more
    #[arg(long)]
    kernel: bool,
}

/// What a report begins with.
const BEGINNING: &str = "<!DOCTYPE html>";

/// What ends the list where no figure was named.
const HOW_TO_RUN: &str = "Run one by its name: weir figures fast18-fig10. Run all of them, which takes\n\
    some 12 minutes: weir figures --all.";

/// What is said before the wait.
const SPREAD_TAKES: &str = "every row is run some 40 times with a tenth of the writes, one assumed parameter changed: \
    some minutes for each figure";

/// Runs the figures asked for and prints what came out.
pub(crate) fn run(arguments: &FiguresArguments) -> Result<(), CliError> {
    let is_run = arguments.all || arguments.list || arguments.summary || !arguments.names.is_empty();
    let for_a_run = arguments.html.is_some() || arguments.quick || arguments.spread || arguments.kernel;
    if !is_run && for_a_run {
        return Err(CliError::Usage(
            "name the figures to run, as `weir figures --list` shows them, or add --all",
        ));
    }
    let names: Vec<&str> = match arguments.names.as_slice() {
        [] => Figure::names(),
        names => names.iter().map(String::as_str).collect(),
    };
    if let Some(folder) = &arguments.recorded {
        let records = read_records(folder, &names, !arguments.names.is_empty())?;
        return print_summary(&Summary::from_records(&records), arguments);
    }
    let mut figures = names.into_iter().map(Figure::named).collect::<Result<Vec<_>, _>>()?;
    if arguments.kernel {
        figures.iter_mut().for_each(Figure::ask_kernel);
    }
    if arguments.list || !is_run {
        return list(&figures, arguments.json, is_run);
    }
    // A path that cannot be written is to be known before the wait.
    arguments.html.as_ref().map(|path| report_file::check(path, BEGINNING)).transpose()?;
    let mut lab = Lab::new(arguments.seed);
    lab.seeds = arguments.seeds;
    lab.quick = arguments.quick;
    lab.spread = arguments.spread;
    lab.jobs = arguments.jobs.unwrap_or_else(cores);
    if lab.spread && !lab.quick {
        // Where standard error is gone the figures are run all the same.
        let _ = writeln!(std::io::stderr(), "weir: {SPREAD_TAKES}");
    }
    let sheets = measure(&mut lab, &figures)?;
    if arguments.summary {
        print_summary(&Summary::from_sheets(&sheets), arguments)?;
    } else if arguments.json {
        let rows: Vec<&Row> = sheets.iter().flat_map(|sheet| &sheet.rows).collect();
        print(&serde_json::to_string_pretty(&rows)?)?;
    } else {
        print(&sheets.iter().map(sheet_table).collect::<Vec<_>>().join("\n\n"))?;
    }
    // Last, so that a report that cannot be written after all takes no figures along.
    match &arguments.html {
        Some(path) => report_file::write(path, BEGINNING, &report(&sheets, arguments.seed, arguments.quick)?),
        None => Ok(()),
    }
}

/// Reads what figures came to once: all of `names`, or if they were not `asked` for those that were recorded.
fn read_records(folder: &Path, names: &[&str], asked: bool) -> Result<Vec<Record>, CliError> {
    let is_recorded = |name: &&&str| folder.join(name).join("ours.json").exists();
    let recorded: Vec<&str> = names.iter().filter(is_recorded).copied().collect();
    // With no record at all it is the first that is missing.
    let names = if asked || recorded.is_empty() { names } else { &recorded };
    names.iter().map(|name| read_record(folder, name)).collect()
}

/// Reads what a figure came to once.
fn read_record(folder: &Path, name: &str) -> Result<Record, CliError> {
    let read = |file| {
        let path = folder.join(name).join(file);
        fs::read_to_string(&path).map_err(|source| CliError::File { doing: "read", path, source })
    };
    Ok(Record::parse(name, &read("ours.json")?, &read("paper.toml")?)?)
}

/// Prints the papers' numbers beside ours.
fn print_summary(summary: &Summary, arguments: &FiguresArguments) -> Result<(), CliError> {
    print(&if arguments.json {
        serde_json::to_string_pretty(summary)?
    } else {
        table::summary(summary, arguments.rows)
    })
}

/// Prints the names of figures; with a line on how one is run, if the caller named none.
fn list(figures: &[Figure], json: bool, is_asked: bool) -> Result<(), CliError> {
    if json {
        let names: Vec<&str> = figures.iter().map(|figure| figure.name.as_str()).collect();
        return print(&serde_json::to_string_pretty(&names)?);
    }
    let told =
        |figure: &Figure| format!("{}: {}\n  {}", figure.name, figure.config.title, figure.config.source);
    print(&paragraphs(&figures.iter().map(told).collect::<Vec<_>>().join("\n")))?;
    if is_asked { Ok(()) } else { print(&format!("\n{HOW_TO_RUN}")) }
}

fn measure(lab: &mut Lab, figures: &[Figure]) -> Result<Vec<Sheet>, CliError> {
    let mut reporter = ProgressReporter::new()?;
    let sheets = lab.run(figures, &mut |progress| {
        // Where there is no bar, a line for every tenth of the runs.
        let tenth = progress.done * 10 / progress.total.max(1);
        let stage = format!("{} % of {} runs", tenth * 10, progress.total);
        reporter.report((progress.done as u64, progress.total as u64), None, stage, &progress.what);
    });
    reporter.end();
    Ok(sheets?)
}

/// A figure's rows as a table, its title above and what deserves a word below.
fn sheet_table(sheet: &Sheet) -> String {
    let has_judges = sheet.rows.iter().any(|row| row.judges.is_some());
    let heads = ["device", "series", "unit", "paper", "ours", "error"].into_iter();
    let judges = Row::JUDGES.into_iter().filter(|_| has_judges);
    let heads: Vec<_> = heads.chain(judges).map(|head| (head, 0, "")).collect();
    let mut grid = Grid::new(&heads).words(3);
    for row in &sheet.rows {
        let words = [&row.device, &row.series, &row.unit].map(String::clone);
        let numbers = [row.paper_text(), row.ours_text(), row.error_text()];
        let judges = row.judges_text().into_iter().filter(|_| has_judges);
        grid.row(words.into_iter().chain(numbers).chain(judges).collect());
    }
    let title = paragraphs(&format!("{}: {}", sheet.figure.name, sheet.figure.config.title));
    let origins = sheet.origins.iter().map(ToString::to_string);
    let unsteady = sheet.rows.iter().filter(|row| !row.is_steady()).map(|row| {
        format!(
            "{}, {}: not steady: in the window's second half the rate was {:.2} of that in its first; the row is of both",
            row.device, row.series, row.drift
        )
    });
    let orders = sheet.orders().into_iter().map(|bars| bars.to_string());
    let told: Vec<String> = origins.chain(orders).chain(unsteady).collect();
    format!("{title}\n{}\n{}", grid.text(), paragraphs(&told.join("\n")))
}
