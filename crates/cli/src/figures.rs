//! `weir figures`: run the papers' figures, with a progress bar, and put the results beside the papers'.

use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use clap::Args;
use comfy_table::{Cell, CellAlignment, Table, presets::UTF8_BORDERS_ONLY};
use indicatif::{ProgressBar, ProgressStyle};
use weir_figures::{Figure, Lab, Row, Sheet, report};

use crate::error::CliError;
use crate::{print, report_file};

/// Arguments of `weir figures`.
#[derive(Debug, Args)]
pub(crate) struct FiguresArguments {
    /// The figures, by name [default: all]
    #[arg(value_name = "NAME")]
    names: Vec<String>,
    /// List the figures and run nothing
    #[arg(long, conflicts_with_all = ["html", "quick", "spread"])]
    list: bool,
    /// Print a JSON list of rows instead of tables
    #[arg(long)]
    json: bool,
    /// Write a report with plots to FILE, which needs nothing else to be read
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Seed of what is written where, and of the devices' choices
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// A tenth of the writes: for a look, not for figures
    #[arg(long)]
    quick: bool,
    /// Move each assumed parameter by 20 %, or to the other word of its range, and show how far predicted rows
    /// move; slow
    #[arg(long)]
    spread: bool,
}

/// What is said before the wait.
const SPREAD_TAKES: &str = "every row is run some 40 times, with one assumed parameter moved: \
    a minute to some minutes for each figure, and --quick a tenth of that";

/// Runs the figures asked for and prints what came out.
pub(crate) fn run(arguments: &FiguresArguments) -> Result<(), CliError> {
    let names: Vec<&str> = match arguments.names.as_slice() {
        [] => Figure::names(),
        names => names.iter().map(String::as_str).collect(),
    };
    let figures = names.into_iter().map(Figure::named).collect::<Result<Vec<_>, _>>()?;
    if arguments.list {
        return list(&figures, arguments.json);
    }
    // Made before the figures are run: a path that cannot be written should be known before the wait.
    let html = arguments.html.as_ref().map(|path| Html::create(path)).transpose()?;
    let mut lab = Lab::new(arguments.seed);
    lab.quick = arguments.quick;
    lab.spread = arguments.spread;
    if lab.spread && !lab.quick {
        // Where standard error is gone the figures are run all the same.
        let _ = writeln!(std::io::stderr(), "weir: {SPREAD_TAKES}");
    }
    let sheets = measure(&mut lab, &figures)?;
    if let Some(html) = html {
        html.write(&report(&sheets, arguments.seed, arguments.quick)?)?;
    }
    if arguments.json {
        let rows: Vec<&Row> = sheets.iter().flat_map(|sheet| &sheet.rows).collect();
        return print(&serde_json::to_string_pretty(&rows)?);
    }
    print(&sheets.iter().map(table).collect::<Vec<_>>().join("\n\n"))
}

/// The file that the report goes to.
struct Html<'a> {
    path: &'a Path,
    file: File,
}

impl Html<'_> {
    fn create(path: &Path) -> Result<Html<'_>, CliError> {
        Ok(Html { path, file: report_file::create(path, "<!DOCTYPE html>")? })
    }

    fn write(mut self, page: &str) -> Result<(), CliError> {
        let failed = |source| CliError::File { doing: "write", path: self.path.to_owned(), source };
        self.file.write_all(page.as_bytes()).map_err(failed)
    }
}

fn list(figures: &[Figure], json: bool) -> Result<(), CliError> {
    if json {
        let names: Vec<&str> = figures.iter().map(|figure| figure.name.as_str()).collect();
        return print(&serde_json::to_string_pretty(&names)?);
    }
    let mut table = Table::new();
    table.load_style(UTF8_BORDERS_ONLY);
    table.set_header(["name", "shows", "after"]);
    for figure in figures {
        table.add_row([&figure.name, &figure.config.title, &figure.config.source]);
    }
    print(&table.trim_fmt())
}

fn measure(lab: &mut Lab, figures: &[Figure]) -> Result<Vec<Sheet>, CliError> {
    let style = ProgressStyle::with_template("{bar:30} {pos}/{len} {elapsed} {wide_msg}");
    let bar = ProgressBar::no_length().with_style(style.map_err(std::io::Error::other)?);
    let sheets = lab.run(figures, &mut |progress| {
        bar.set_length(progress.total as u64);
        bar.set_position(progress.done as u64);
        bar.set_message(progress.what.clone());
        bar.tick();
    });
    bar.finish_and_clear();
    Ok(sheets?)
}

/// A figure's rows as a table, its title above and what deserves a word below.
fn table(sheet: &Sheet) -> String {
    let mut table = Table::new();
    table.load_style(UTF8_BORDERS_ONLY);
    table.set_header(["device", "series", "unit", "paper", "ours", "error"]);
    for row in &sheet.rows {
        let numbers = [row.paper_text(), row.ours_text(), row.error_text()];
        let numbers = numbers.map(|text| Cell::new(text).set_alignment(CellAlignment::Right));
        let words = [&row.device, &row.series, &row.unit].map(Cell::new);
        table.add_row(words.into_iter().chain(numbers));
    }
    let mut text = format!("{}: {}\n{}", sheet.figure.name, sheet.figure.config.title, table.trim_fmt());
    for origin in &sheet.origins {
        text += &format!("\n{origin}");
    }
    for row in sheet.rows.iter().filter(|row| !row.is_steady()) {
        text += &format!(
            "\n{}, {}: not steady: in the window's second half the rate was {:.2} of that in its first; the row is of both",
            row.device, row.series, row.drift
        );
    }
    text
}
