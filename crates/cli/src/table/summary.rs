//! A *summary* of the papers' figures, for people: what is wrong comes first.

use weir_figures::{EXPLAINED_WITHIN, Ours, PrintedKind, Standing, Summary, SummaryRow};

use super::{Grid, paragraphs};

/// A row that no run explains is printed if it is farther from the paper's number; relative to that number.
const PRINTED_BEYOND: f64 = 0.25;

/// The totals; the bounds and the orders that are broken; and the rows that are far off and have no run that explains them, or
/// with `every_row` all of them.
pub(crate) fn summary(summary: &Summary, every_row: bool) -> String {
    let of = |is: fn(&SummaryRow) -> bool| rows(summary.rows.iter().filter(|row| is(row)));
    let all = summary.rows.len();
    let (last, rest) = match every_row {
        true => ("All rows:", of(|_| true)),
        false => ("Beyond 25 %, and no run explains it:", of(is_far_off)),
    };
    let parts = [
        ("Bounds that are broken:", of(|row| row.row.breaks_bound())),
        ("Bars in another order than the paper's:", orders(summary)),
        (last, rest),
    ];
    let parts = parts.into_iter().filter(|(_, part)| !part.is_empty());
    let parts = parts.map(|(head, part)| format!("{head}\n{part}"));
    let more = (!every_row).then(|| paragraphs(&format!("All {all} rows: weir figures --summary --rows.")));
    std::iter::once(paragraphs(&totals(summary))).chain(parts).chain(more).collect::<Vec<_>>().join("\n\n")
}

fn totals(summary: &Summary) -> String {
    let Summary { numbers, fitted, within_10, within_25, beyond, explained, .. } = summary;
    let Summary { explained_breaking, unexplained, bounds, broken, orders, orders_broken, derived, .. } =
        summary;
    let limit = EXPLAINED_WITHIN * 100.0;
    let is_derived = |row: &&SummaryRow| row.row.paper_kind == Some(PrintedKind::Derived);
    let far = summary.rows.iter().filter(|row| is_far_off(row) && !is_derived(row)).count();
    format!(
        "{numbers} numbers of the papers, {fitted} of them fitted; {derived} more are derived from the text.\n\
         Ours is within 10 % of {within_10}, within 25 % of {within_25} (with those), and beyond of {beyond}.\n\
         A number that ours misses by more than {limit:.0} % needs a run that comes within {limit:.0} % and says what it assumes: \
         {explained} have one ({explained_breaking} of these put another row off), and {unexplained} have none, of which {far} are beyond 25 %.\n\
         {bounds} bounds, {broken} of them broken. {orders} orders of bars, {orders_broken} of them other than the paper's."
    )
}

/// The bars that are in another order than the paper's, a line each.
fn orders(summary: &Summary) -> String {
    let other = summary.bars.iter().filter(|bars| !bars.is_kept);
    paragraphs(&other.map(|bars| format!("{}: {bars}", bars.figure)).collect::<Vec<_>>().join("\n"))
}

/// Whether no run explains a row that is off by more than [`PRINTED_BEYOND`]; bounds are told by themselves.
fn is_far_off(row: &SummaryRow) -> bool {
    let off = row.row.residual.map_or(f64::INFINITY, f64::abs);
    let is_number = !row.row.is_bound() && row.row.paper.is_some();
    is_number && row.standing == Standing::Unexplained && off > PRINTED_BEYOND
}

/// A table of rows, in which what a row is stands in a word or two; nothing of none.
fn rows<'r>(rows: impl Iterator<Item = &'r SummaryRow>) -> String {
    let heads = ["figure", "device", "series", "unit", "paper", "ours", "off by", "what it is"];
    let mut grid = Grid::new(&heads.map(|head| (head, 0, ""))).words(4);
    let mut is_empty = true;
    for SummaryRow { row, standing } in rows {
        is_empty = false;
        let words = [&row.figure, &row.device, &row.series, &row.unit].map(String::clone);
        let kind = match (row.ours_kind, standing) {
            (Ours::Fitted, Standing::Unexplained) => "fitted, unexplained".to_owned(),
            (Ours::Fitted, _) => "fitted".to_owned(),
            (_, Standing::Kept { margin }) => format!("bound, kept by {:.0} %", margin * 100.0),
            (_, Standing::Explained { by, .. }) => format!("explained by \"{by}\""),
            (_, Standing::Unexplained) if row.is_bound() => "bound, broken".to_owned(),
            (_, Standing::Unexplained) => "unexplained".to_owned(),
            (_, Standing::Met) => "predicted".to_owned(),
        };
        let numbers = [row.paper_text(), row.ours_text(), row.residual_text(), kind];
        grid.row(words.into_iter().chain(numbers).collect());
    }
    if is_empty { String::new() } else { grid.whole_text() }
}
