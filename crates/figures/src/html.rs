//! The report: one HTML file that needs nothing else, no network, no script, no font.

use maud::{DOCTYPE, Markup, PreEscaped, html};

use crate::error::FigureError;
use crate::lab::Sheet;
use crate::notes::rendered;
use crate::row::{Ours, Row};
use crate::summary::{Standing, Summary, SummaryRow};

const STYLE: &str = "\
body { font-family: sans-serif; max-width: 60em; margin: 2em auto; padding: 0 1em; color: #222; }
table { border-collapse: collapse; margin: 1em 0; }
th, td { text-align: left; padding: 0.2em 0.8em; border-bottom: 1px solid #ddd; }
td.number { text-align: right; font-variant-numeric: tabular-nums; }
tr.fitted td { color: #777; }
tr.broken td.error { color: #b00020; }
figure { margin: 1em 0; }
figcaption { font-size: 0.9em; color: #555; }
svg { max-width: 100%; height: auto; }
pre { white-space: pre-wrap; background: #f6f6f6; padding: 1em; }
details { background: #f6f6f6; padding: 0.5em 1em; }
dt { font-weight: bold; }";

/// What the words of the report mean.
const DEFINITIONS: [(&str, &str); 16] = [
    (
        "fitted",
        "Parameters of the device or the host were chosen so that this row comes out: it proves nothing.",
    ),
    (
        "predicted",
        "Nothing was fitted to the row. Its error is ours less the paper's number, over the paper's.",
    ),
    ("bounded", "The paper gives a bound in its text, and ours keeps it: an inequality that holds."),
    (
        "at most, at least; kept, broken",
        "The paper gives a bound in its text. Ours keeps it, or breaks it by so much.",
    ),
    ("assumed", "The paper measured the row with a cost of barriers that it assumed."),
    (
        "derived",
        "The paper prints no number: it follows from its words, a formula, or numbers that stand elsewhere.",
    ),
    ("XnF", "Each write is waited for and flushed before the next (transfer-and-flush)."),
    ("X", "Each write is waited for before the next (wait on transfer)."),
    ("B", "Each write is a barrier; nothing is waited for but room in the queue (wait on dispatch)."),
    ("P", "Writes without order, at full queue depth."),
    (
        "80 MiB small, flush/64",
        "Random writes in an area of 80 MiB, of 16 KiB each (large: 1 MiB, hybrid: half of each), with a flush after every 64.",
    ),
    ("D, JD, JC", "A file's data; the journal's blocks; the journal's commit block."),
    ("EXT4-DR, BFS-DR", "Each transaction is durable when it returns; on the kernel's ext4, on BarrierFS."),
    ("EXT4-OD, BFS-OD", "Each transaction is only in order; on ext4 without flushes, on BarrierFS."),
    (
        "OPTR, mode 1, mode 2",
        "The OPTR paper's drive, which keeps requests in order of receipt; `fsync` with one flush for two, and SQLite \
         with one durable call a transaction.",
    ),
    (
        "mode 3, upper bound",
        "EXT4 without barriers: on the OPTR drive, which keeps order all the same, and on an ordinary one, where \
         nothing does.",
    ),
];

/// The report of some figures, run with `seed`.
///
/// # Errors
/// [`FigureError::Plot`] if a plot cannot be drawn.
pub fn report(sheets: &[Sheet], seed: u64, quick: bool) -> Result<String, FigureError> {
    let names: Vec<&str> = sheets.iter().map(|sheet| sheet.figure.name.as_str()).collect();
    let section = |sheet| section(sheet, &names);
    let sections = sheets.iter().map(section).collect::<Result<Vec<Markup>, FigureError>>()?;
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                title { "Weir: the papers' figures" }
                style { (PreEscaped(STYLE)) }
            }
            body {
                h1 { "Weir: the papers' figures" }
                p {
                    "Run in virtual time with seed " (seed) "."
                    @if quick { " This was a quick run, with a tenth of the writes: its results are rough." }
                    " All devices and hosts are simulated; the numbers do not depend on the machine that ran this."
                }
                h2 id="numbers" { "The papers' numbers" }
                (numbers(&Summary::from_sheets(sheets)))
                h2 id="summary" { "Figures and summary" }
                (summary(sheets))
                h2 id="definitions" { "Definitions" }
                dl {
                    @for (word, meaning) in DEFINITIONS { dt { (word) } dd { (meaning) } }
                }
                @for section in sections { (section) }
            }
        }
    };
    Ok(page.into_string())
}

/// Every number of the papers beside ours: first those that nothing explains.
fn numbers(summary: &Summary) -> Markup {
    html! {
        p {
            "The papers print " (summary.numbers) " numbers; parameters were fitted to " (summary.fitted) " of them. Our result differs by at most \
            10 % for " (summary.within_10) " numbers, by at most 25 % for " (summary.within_25) ", and by more for " (summary.beyond) ". Of those that are off by more than 15 %, another run comes \
            within for " (summary.explained) ", with an assumption that was fitted to the number, and for " (summary.explained_breaking) " of them breaks other rows of the figure; " (summary.unexplained) " are unexplained. " (summary.derived) " more rows follow from their words and formulas. Of " (summary.bounds)
            " bounds in the papers' texts " (summary.broken) " are broken. Of " (summary.orders)
            " orders of bars in the papers " (summary.orders_broken) " are others here."
        }
        @if summary.orders_broken > 0 {
            ul {
                @for bars in summary.bars.iter().filter(|bars| !bars.is_kept) {
                    li { a href={ "#" (bars.figure) } { (bars.figure) } ": " (bars) }
                }
            }
        }
        table {
            tr {
                th { "figure" } th { "device" } th { "series" } th { "unit" } th { "paper" } th { "ours" } th { "off by" }
                th { "what ours is" }
            }
            @for summarised in &summary.rows {
                @let SummaryRow { row, standing } = summarised;
                tr class=[(*standing == Standing::Unexplained).then_some("broken")] {
                    td { a href={ "#" (row.figure) } { (row.figure) } }
                    td { (row.device) } td { (row.series) } td { (row.unit) }
                    td.number { (row.paper_text()) } td.number { (row.ours_text()) }
                    td.number.error { (row.residual_text()) }
                    td { (summarised.text()) }
                }
            }
        }
    }
}

/// One line a figure: how many rows prove something, and how far off they are.
fn summary(sheets: &[Sheet]) -> Markup {
    html! {
        table {
            tr {
                th { "figure" } th { "shows" } th { "rows" } th { "fitted" } th { "beside a number" }
                th { "within 10 %" } th { "largest error" } th { "bounds kept" }
            }
            @for sheet in sheets {
                @let compared: Vec<f64> = sheet.rows.iter().filter_map(compared).collect();
                @let bounds = sheet.rows.iter().filter(|row| row.is_bound()).count();
                @let broken = sheet.rows.iter().filter(|row| row.breaks_bound()).count();
                tr {
                    td { a href={ "#" (sheet.figure.name) } { (sheet.figure.name) } }
                    td { (sheet.figure.config.title) }
                    td.number { (sheet.rows.len()) }
                    td.number { (sheet.rows.iter().filter(|row| row.ours_kind == Ours::Fitted).count()) }
                    td.number { (compared.len()) }
                    td.number { (compared.iter().filter(|error| error.abs() <= 0.1).count()) }
                    td.number { (largest(&compared)) }
                    td.number { @if bounds > 0 { (bounds - broken) " of " (bounds) } @else { "-" } }
                }
            }
        }
    }
}

/// The error of a predicted row beside which the paper prints a number.
fn compared(row: &Row) -> Option<f64> {
    row.residual.filter(|_| row.ours_kind == Ours::Predicted && !row.is_bound())
}

fn largest(errors: &[f64]) -> String {
    let largest = errors.iter().copied().max_by(|one, other| one.abs().total_cmp(&other.abs()));
    largest.map_or_else(|| "-".to_owned(), |error| format!("{:+.0} %", error * 100.0))
}

fn section(sheet: &Sheet, shown: &[&str]) -> Result<Markup, FigureError> {
    let config = &sheet.figure.config;
    let plots = sheet.plots()?;
    let has_judges = sheet.rows.iter().any(|row| row.judges.is_some());
    Ok(html! {
        h2 id=(sheet.figure.name) { (sheet.figure.name) ": " (config.title) }
        p { (config.source) "." }
        @for (caption, svg) in &plots {
            figure {
                // Our own plot, whose texts the plotting library has escaped.
                (PreEscaped(svg))
                figcaption { (caption) }
            }
        }
        table {
            tr {
                th { "device" } th { "series" } th { "unit" } th { "paper" } th { "ours" } th { "error" }
                @if has_judges { @for judge in Row::JUDGES { th { (judge) } } }
            }
            @for row in &sheet.rows { (line(row)) }
        }
        ul {
            @for origin in &sheet.origins { li { (origin) } }
            @for bars in sheet.orders() { li { (bars) } }
        }
        details {
            summary { "Notes" }
            // Rendered from our own notes; markup in them has become text.
            (PreEscaped(rendered(&sheet.figure.notes, shown)))
        }
    })
}

fn line(row: &Row) -> Markup {
    let class = match row.ours_kind {
        Ours::Fitted => "fitted",
        Ours::Bounded => "bounded",
        Ours::Predicted if row.breaks_bound() => "broken",
        Ours::Predicted => "predicted",
    };
    html! {
        tr class=(class) {
            td { (row.device) }
            td { (row.series) }
            td { (row.unit) }
            td.number { (row.paper_text()) }
            td.number { (row.ours_text()) }
            td.number.error { (row.error_text()) }
            @if row.judges.is_some() { @for said in row.judges_text() { td.number { (said) } } }
        }
    }
}
