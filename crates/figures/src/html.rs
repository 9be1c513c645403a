//! The report: one HTML file that needs nothing else, no network, no script, no font.

use maud::{DOCTYPE, Markup, PreEscaped, html};

use crate::error::FigureError;
use crate::lab::Sheet;
use crate::row::{Ours, Row};

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
pre { white-space: pre-wrap; background: #f6f6f6; padding: 1em; }";

/// The report of some figures, run with `seed`.
///
/// # Errors
/// [`FigureError::Plot`] if a plot cannot be drawn.
pub fn report(sheets: &[Sheet], seed: u64, quick: bool) -> Result<String, FigureError> {
    let sections = sheets.iter().map(section).collect::<Result<Vec<Markup>, FigureError>>()?;
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                title { "Weir: the FAST 2018 paper's figures" }
                style { (PreEscaped(STYLE)) }
            }
            body {
                h1 { "Weir: the FAST 2018 paper's figures" }
                p {
                    "Run in virtual time with seed " (seed) "."
                    @if quick { " This was a quick run, with a tenth of the writes: for a look only." }
                    " A fitted row is one that the parameters of the device or the host were chosen for: it proves nothing."
                    " All other rows are predicted."
                }
                @for section in sections { (section) }
            }
        }
    };
    Ok(page.into_string())
}

fn section(sheet: &Sheet) -> Result<Markup, FigureError> {
    let config = &sheet.figure.config;
    let plots = sheet.plots()?;
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
            tr { th { "device" } th { "series" } th { "unit" } th { "paper" } th { "ours" } th { "error" } }
            @for row in &sheet.rows { (line(row)) }
        }
        ul {
            @for origin in &sheet.origins { li { (origin) } }
        }
        details {
            summary { "Notes" }
            pre { (sheet.figure.notes) }
        }
    })
}

fn line(row: &Row) -> Markup {
    let class = match row.ours_kind {
        Ours::Fitted => "fitted",
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
        }
    }
}
