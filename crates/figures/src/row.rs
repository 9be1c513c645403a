//! A *row*: what the paper prints, ours, and how far apart they are.

use serde::{Serialize, Serializer};

use crate::figure::{Case, Figure};
use crate::paper::{Printed, PrintedKind};

/// One row of a figure; one element of the list for scripts.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// The figure's name.
    pub figure: String,
    /// The device's profile.
    pub device: String,
    /// The series.
    pub series: String,
    /// What the paper prints: a value, or a bound.
    #[serde(serialize_with = "printed_value")]
    pub paper: Option<Printed>,
    /// What came out here.
    pub ours: f64,
    /// How far off that is, relative to the paper's number. None where the paper prints no number, where a
    /// bound is kept, and where parameters were fitted to the row, unless the fit missed it by more than 5 %.
    pub error: Option<f64>,
    /// What the row is.
    pub kind: Standing,
    /// Smallest and largest result with any one assumed parameter 20 % lower or higher, or with the
    /// other word of its range, if that was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spread: Option<[f64; 2]>,
    /// The unit of both numbers.
    #[serde(skip)]
    pub unit: String,
    /// The rate of the window's second half over that of its first: 1 in a steady state.
    #[serde(skip)]
    pub drift: f64,
}

/// What a row is, and so what its error means.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Standing {
    /// Parameters were fitted to it.
    #[serde(rename = "fitted")]
    Fitted,
    /// Predicted; the paper measured it.
    #[serde(rename = "measured")]
    Measured,
    /// Predicted; the paper assumed what a barrier costs.
    #[serde(rename = "assumed")]
    Assumed,
    /// Predicted; the paper's text gives a bound.
    #[serde(rename = "text bound")]
    TextBound,
    /// Predicted; the paper prints nothing.
    #[serde(rename = "predicted")]
    Predicted,
}

/// A fit that leaves more than this over has missed, and says so to scripts too.
const FITTED_WITHIN: f64 = 0.05;

/// For scripts a printed row is its number.
fn printed_value<S: Serializer>(printed: &Option<Printed>, serializer: S) -> Result<S::Ok, S::Error> {
    printed.as_ref().map(|printed| printed.value).serialize(serializer)
}

impl Row {
    pub(crate) fn new(figure: &Figure, case: &Case<'_>, ours: f64, drift: f64) -> Row {
        let paper = figure.printed(case.device, &case.series.name).cloned();
        let kind = match &paper {
            _ if figure.is_fitted(case.device, &case.series.name) => Standing::Fitted,
            None => Standing::Predicted,
            Some(printed) => match printed.kind {
                PrintedKind::Measured => Standing::Measured,
                PrintedKind::Assumed => Standing::Assumed,
                PrintedKind::AtMost | PrintedKind::AtLeast => Standing::TextBound,
            },
        };
        let fits = |error: &f64| kind == Standing::Fitted && error.abs() <= FITTED_WITHIN;
        let error = paper.as_ref().and_then(|paper| paper.error(ours)).filter(|error| !fits(error));
        Row {
            figure: figure.name.clone(),
            device: case.device.to_owned(),
            series: case.series.name.clone(),
            paper,
            ours,
            error,
            kind,
            spread: None,
            unit: case.series.unit(),
            drift,
        }
    }

    /// Whether the rate was the same in both halves of the window, within 5 %.
    #[must_use]
    pub fn is_steady(&self) -> bool {
        (self.drift - 1.0).abs() <= 0.05
    }

    /// What the paper prints, in words: `35`, `< 40`, nothing.
    #[must_use]
    pub fn paper_text(&self) -> String {
        let Some(printed) = &self.paper else { return "-".to_owned() };
        let value = figure_text(printed.value);
        match printed.kind {
            PrintedKind::Measured => value,
            PrintedKind::Assumed => format!("{value} (assumed)"),
            PrintedKind::AtMost => format!("at most {value}"),
            PrintedKind::AtLeast => format!("at least {value}"),
        }
    }

    /// Ours, in words; with the spread where there is one.
    #[must_use]
    pub fn ours_text(&self) -> String {
        let ours = figure_text(self.ours);
        match self.spread {
            Some([low, high]) => format!("{ours} ({}..{})", figure_text(low), figure_text(high)),
            None => ours,
        }
    }

    /// The error, in words: `+3 %`, `kept`, nothing; for a fitted row `fitted`, with what is left over.
    #[must_use]
    pub fn error_text(&self) -> String {
        match (self.kind, self.error) {
            (Standing::Fitted, _) => self.residual_text(),
            (Standing::TextBound, Some(error)) => format!("broken by {:.1} %", error.abs() * 100.0),
            (_, Some(error)) => format!("{:+.1} %", error * 100.0),
            (Standing::TextBound, None) => "kept".to_owned(),
            (_, None) => "-".to_owned(),
        }
    }

    /// A fit has no error but a residual, which is not hidden.
    fn residual_text(&self) -> String {
        match self.paper.as_ref().and_then(|paper| paper.error(self.ours)) {
            Some(residual) => format!("fitted, {:+.1} % left", residual * 100.0),
            None => "fitted".to_owned(),
        }
    }
}

/// A number with three digits, and a unit of thousands where it is large.
fn figure_text(value: f64) -> String {
    match value {
        value if value >= 9_999.5 => format!("{:.1} K", value / 1e3),
        value if value >= 99.95 => format!("{value:.0}"),
        value if value >= 9.995 => format!("{value:.1}"),
        value => format!("{value:.2}"),
    }
}
