//! A *summary* of figures: each number of the papers beside ours, how many are met, and which of the rest a run explains.
//!
//! A row of a paper's number is *explained* if the figure has another row, with an assumption of its own, that comes out within
//! [`EXPLAINED_WITHIN`] of the same number in the same run. `paper.toml` names it, and says what it assumes. A row that is farther off than
//! that and has no such run is *unexplained*. The assumption was chosen for that number: it is *fitted* to it. Where the same assumption
//! puts another row of the figure beyond that, which is within without, the explanation *breaks* that row, and says so.

use serde::Serialize;

use crate::lab::Sheet;
use crate::order::Bars;
use crate::paper::{Explanation, Paper, PrintedKind};
use crate::record::Record;
use crate::row::{Ours, Row};

/// A row that is farther from the paper's number is to be explained; relative to that number.
pub const EXPLAINED_WITHIN: f64 = 0.15;

/// The summary of some figures; serialised, it is the document that scripts read.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Summary {
    /// Numbers that the papers print; bounds, and what is derived, are not among them.
    pub numbers: usize,
    /// Rows of what the papers say and print no number of: [`PrintedKind::Derived`].
    pub derived: usize,
    /// Of these, such as parameters were fitted to: they prove nothing.
    pub fitted: usize,
    /// Within 10 %, fitted or not.
    pub within_10: usize,
    /// Within 25 %, with those within 10 %.
    pub within_25: usize,
    /// Beyond 25 %.
    pub beyond: usize,
    /// Beyond 15 %, with a run that comes within.
    pub explained: usize,
    /// Of these, by an assumption that breaks other rows.
    pub explained_breaking: usize,
    /// Beyond 15 %, without.
    pub unexplained: usize,
    /// Bounds that the papers give in their text.
    pub bounds: usize,
    /// Of these, broken.
    pub broken: usize,
    /// Orders of bars that the papers show.
    pub orders: usize,
    /// Of these, such as are not ours.
    pub orders_broken: usize,
    /// The rows of all numbers and bounds: those without an explanation first, then as the figures have them.
    pub rows: Vec<SummaryRow>,
    /// The bars of all orders: those in another order than the paper's first.
    pub bars: Vec<Bars>,
}

/// One number of a paper beside ours.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SummaryRow {
    /// What came out.
    #[serde(flatten)]
    pub row: Row,
    /// How it stands.
    #[serde(flatten)]
    pub standing: Standing,
}

/// How a row stands beside the paper's number.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "lowercase", tag = "standing")]
pub enum Standing {
    /// Farther off than [`EXPLAINED_WITHIN`], and no run comes within; or a bound that is broken.
    Unexplained,
    /// Farther off, and another run comes within.
    Explained {
        /// The row of that run.
        by: String,
        /// What it came to.
        comes_to: f64,
        /// What it assumes.
        assumes: String,
        /// The rows that are within that by themselves, and not with the assumption, as far as they were run with it.
        breaks: Vec<String>,
    },
    /// Within that.
    Met,
    /// A bound that is kept: by which part of it, 0.5 where ours is half of what is allowed.
    Kept {
        /// How far ours is from the bound, relative to the bound.
        margin: f64,
    },
}

impl Summary {
    /// The summary of figures that were run.
    #[must_use]
    pub fn from_sheets(sheets: &[Sheet]) -> Summary {
        Summary::new(sheets.iter().map(|sheet| {
            let Sheet { figure, rows, .. } = sheet;
            (figure.name.as_str(), &figure.paper, rows.as_slice())
        }))
    }

    /// The summary of figures that were recorded.
    #[must_use]
    pub fn from_records(records: &[Record]) -> Summary {
        Summary::new(
            records.iter().map(|record| (record.name.as_str(), &record.paper, record.rows.as_slice())),
        )
    }

    fn new<'f>(figures: impl Iterator<Item = (&'f str, &'f Paper, &'f [Row])>) -> Summary {
        let mut summary = Summary::default();
        for (name, paper, rows) in figures {
            for row in rows.iter().filter(|row| row.paper.is_some()) {
                let found = paper.explanations.iter().find(|found| found.is_of(&row.device, &row.series));
                summary.add(row, found, rows);
            }
            summary.bars.extend(Bars::of_figure(name, paper, rows));
        }
        summary.orders = summary.bars.len();
        summary.orders_broken = summary.bars.iter().filter(|bars| !bars.is_kept).count();
        summary.bars.sort_by_key(|bars| bars.is_kept);
        summary.rows.sort_by_key(|row| row.standing != Standing::Unexplained);
        summary
    }

    fn add(&mut self, row: &Row, explanation: Option<&Explanation>, rows: &[Row]) {
        let standing = standing_of(row, explanation, rows);
        if row.is_bound() {
            self.bounds += 1;
            self.broken += usize::from(row.breaks_bound());
        } else if row.paper.as_ref().is_some_and(|paper| paper.kind == PrintedKind::Derived) {
            self.derived += 1;
        } else {
            let off = distance_of(row);
            self.numbers += 1;
            self.fitted += usize::from(row.ours_kind == Ours::Fitted);
            self.within_10 += usize::from(off <= 0.1);
            self.within_25 += usize::from(off <= 0.25);
            self.beyond += usize::from(off > 0.25);
            self.explained += usize::from(matches!(standing, Standing::Explained { .. }));
            let breaks = matches!(&standing, Standing::Explained { breaks, .. } if !breaks.is_empty());
            self.explained_breaking += usize::from(breaks);
            self.unexplained += usize::from(standing == Standing::Unexplained);
        }
        self.rows.push(SummaryRow { row: row.clone(), standing });
    }
}

/// How far ours is from the paper's number, relative to it; infinite from a number that is 0, unless ours is 0, too.
fn distance_of(row: &Row) -> f64 {
    match (&row.paper, row.residual) {
        (_, Some(residual)) => residual.abs(),
        (Some(paper), None) if paper.value != row.ours => f64::INFINITY,
        (_, None) => 0.0,
    }
}

fn standing_of(row: &Row, explanation: Option<&Explanation>, rows: &[Row]) -> Standing {
    let (Some(paper), residual) = (&row.paper, row.residual.unwrap_or_default()) else {
        return Standing::Met;
    };
    if row.is_bound() && !row.breaks_bound() {
        return Standing::Kept { margin: residual.abs() };
    }
    if !row.is_bound() && distance_of(row) <= EXPLAINED_WITHIN {
        return Standing::Met;
    }
    let Some(explanation) = explanation else { return Standing::Unexplained };
    let by = rows.iter().find(|by| by.device == row.device && by.series == explanation.by);
    let comes_within = |by: &&Row| match row.is_bound() {
        true => paper.error(by.ours).is_none(),
        false => paper.residual(by.ours).abs() <= EXPLAINED_WITHIN,
    };
    match by.filter(comes_within) {
        Some(by) => Standing::Explained {
            by: by.series.clone(),
            comes_to: by.ours,
            assumes: explanation.assumes.clone(),
            breaks: broken_by(explanation, rows),
        },
        None => Standing::Unexplained,
    }
}

/// The series on an explanation's device which are within [`EXPLAINED_WITHIN`] by themselves, and not with its assumption. A series
/// with an assumption is named as the one without, with parts between commas more.
fn broken_by(explanation: &Explanation, rows: &[Row]) -> Vec<String> {
    let parts = |name: &str| name.split(", ").map(str::to_owned).collect::<Vec<_>>();
    let without = parts(&explanation.series);
    let mut assumption = parts(&explanation.by);
    assumption.retain(|part| !without.contains(part));
    let on_device = || rows.iter().filter(|row| row.device == explanation.device);
    let is_broken = |row: &&Row| {
        let Some(paper) = row.paper.as_ref().filter(|_| !row.is_bound()) else { return false };
        let is_same = |other: &&Row| {
            let mut named = parts(&other.series);
            let all = named.len();
            named.retain(|part| !assumption.contains(part));
            named.len() + assumption.len() == all && named == parts(&row.series)
        };
        let with = on_device().find(is_same);
        distance_of(row) <= EXPLAINED_WITHIN
            && with.is_some_and(|with| paper.residual(with.ours).abs() > EXPLAINED_WITHIN)
    };
    on_device().filter(is_broken).map(|row| row.series.clone()).collect()
}

impl SummaryRow {
    /// What ours is, and how it stands, in words.
    #[must_use]
    pub fn text(&self) -> String {
        let kind = match self.row.ours_kind {
            Ours::Fitted => "fitted",
            Ours::Bounded => "bounded",
            Ours::Predicted => "predicted",
        };
        match &self.standing {
            Standing::Unexplained => format!("{kind}; unexplained"),
            Standing::Explained { by, assumes, breaks, .. } => {
                let breaks = match breaks.as_slice() {
                    [] => String::new(),
                    rows => format!("; breaks \"{}\"", rows.join("\", \"")),
                };
                format!("{kind}; explained by \"{by}\": {assumes}{breaks}")
            }
            Standing::Met => kind.to_owned(),
            Standing::Kept { margin } => format!("{kind}; margin {:.0} %", margin * 100.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::paper::Printed;

    fn row(series: &str, value: Option<f64>, kind: PrintedKind, ours: f64) -> Row {
        let printed = value.map(|value| Printed {
            device: "device".to_owned(),
            series: series.to_owned(),
            value,
            kind,
            source: String::new(),
        });
        Row::new(["figure", "device", series], printed, false, ours, String::new())
    }

    fn explanation(series: &str, by: &str) -> Explanation {
        Explanation {
            device: "device".to_owned(),
            series: series.to_owned(),
            by: by.to_owned(),
            assumes: "another page".to_owned(),
        }
    }

    #[test]
    fn numbers_are_counted_by_how_far_ours_is() {
        let rows = [
            row("met", Some(100.0), PrintedKind::Measured, 109.0),
            row("near", Some(100.0), PrintedKind::Measured, 80.0),
            row("far", Some(100.0), PrintedKind::Measured, 300.0),
            row("what if", None, PrintedKind::Measured, 110.0),
            row("kept", Some(100.0), PrintedKind::AtMost, 10.0),
            row("broken", Some(100.0), PrintedKind::AtLeast, 90.0),
            row("none", Some(0.0), PrintedKind::Measured, 0.0),
            row("some", Some(0.0), PrintedKind::Measured, 27.0),
            row("similar", Some(100.0), PrintedKind::Derived, 101.0),
        ];
        let mut summary = Summary::default();
        let explained = explanation("far", "what if");
        for row in rows.iter().filter(|row| row.paper.is_some()) {
            summary.add(row, (row.series == "far").then_some(&explained), &rows);
        }
        let Summary { numbers, within_10, within_25, beyond, explained, unexplained, bounds, broken, .. } =
            summary;
        assert_eq!((numbers, summary.derived, within_10, within_25, beyond), (5, 1, 2, 3, 2));
        assert_eq!((explained, unexplained, bounds, broken), (1, 2, 2, 1));
        let standings: Vec<_> = summary.rows.iter().map(|row| row.standing.clone()).collect();
        assert_eq!(standings[3], Standing::Kept { margin: 0.9 });
        assert_eq!(standings[4], Standing::Unexplained);
    }

    /// An assumption may come to one number, and away from another one that was met.
    #[test]
    fn an_explanation_says_what_it_breaks() {
        let rows = [
            row("A, mean", Some(100.0), PrintedKind::Measured, 300.0),
            row("A, slower, mean", None, PrintedKind::Measured, 100.0),
            row("B, mean", Some(100.0), PrintedKind::Measured, 100.0),
            row("B, slower, mean", None, PrintedKind::Measured, 50.0),
            row("C, mean", Some(100.0), PrintedKind::Measured, 30.0),
            row("C, slower, mean", None, PrintedKind::Measured, 20.0),
            row("D, mean", Some(100.0), PrintedKind::Measured, 100.0),
        ];
        let standing = standing_of(&rows[0], Some(&explanation("A, mean", "A, slower, mean")), &rows);
        assert!(matches!(standing, Standing::Explained { breaks, .. } if breaks == ["B, mean"]));
    }

    /// An explanation whose run comes nowhere near explains nothing, nor does one that was not run.
    #[test]
    fn a_run_that_misses_explains_nothing() {
        let rows = [
            row("far", Some(100.0), PrintedKind::Measured, 300.0),
            row("what if", None, PrintedKind::Measured, 120.0),
        ];
        for by in ["what if", "none"] {
            let standing = standing_of(&rows[0], Some(&explanation("far", by)), &rows);
            assert_eq!(standing, Standing::Unexplained, "{by}");
        }
    }
}
