//! A *row*: what the paper prints, ours, and how far apart they are.
//!
//! Two questions decide what that distance means, and a row answers both. What is ours: *bounded*, if the paper gives
//! a bound and ours keeps it; *fitted*, if parameters were fitted to the row; or else *predicted*. What is the paper's: *measured*, *assumed* (measured with a cost of
//! barriers that was assumed), a *text bound*, or nothing.

use serde::{Deserialize, Serialize, Serializer};
use weir_crash::ByJudge;

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
    /// Ours less the paper's, relative to the paper's, whatever the row is; none without a number of the paper.
    pub residual: Option<f64>,
    /// What ours is.
    pub ours_kind: Ours,
    /// What the paper's number is; none where it prints nothing. For scripts a bound is a `text bound`, upper or
    /// lower: `error` says whether it is broken.
    #[serde(serialize_with = "printed_kind")]
    pub paper_kind: Option<PrintedKind>,
    /// The unit of both numbers.
    pub unit: String,
    /// Smallest and largest result with any one assumed parameter 20 % lower or higher, or with the
    /// other word of its range, if that was asked for. How far a result moves is measured with a tenth of the writes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spread: Option<[f64; 2]>,
    /// Smallest and largest result of several seeds, of which ours is the median.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub range: Option<[f64; 2]>,
    /// How many seeds, where there are several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seeds: Option<u64>,
    /// Of crash tests, how many each judge by itself puts into the row.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub judges: Option<ByJudge>,
    /// The rate of the window's second half over that of its first: 1 in a steady state.
    #[serde(skip)]
    pub drift: f64,
}

/// What a row's result is. The three words exclude each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Ours {
    /// Parameters were fitted to the row: it proves nothing.
    Fitted,
    /// The paper gives a bound in its text, and ours keeps it: an inequality that holds, and no number that was met.
    Bounded,
    /// Nothing was fitted to the row. A bound that is broken counts here, with its error.
    Predicted,
}

/// A fit that leaves more than this over has missed, and says so to scripts too.
const FITTED_WITHIN: f64 = 0.05;

/// For scripts a printed row is its number.
fn printed_value<S: Serializer>(printed: &Option<Printed>, serializer: S) -> Result<S::Ok, S::Error> {
    printed.as_ref().map(|printed| printed.value).serialize(serializer)
}

/// For scripts both bounds are one kind.
fn printed_kind<S: Serializer>(kind: &Option<PrintedKind>, serializer: S) -> Result<S::Ok, S::Error> {
    let word = kind.map(|kind| match kind {
        PrintedKind::Measured => "measured",
        PrintedKind::Assumed => "assumed",
        PrintedKind::Derived => "derived",
        PrintedKind::AtMost | PrintedKind::AtLeast => "text bound",
    });
    word.serialize(serializer)
}

impl Row {
    /// A row of figure, device and series.
    pub(crate) fn new(
        [figure, device, series]: [&str; 3],
        paper: Option<Printed>,
        is_fitted: bool,
        ours: f64,
        unit: String,
    ) -> Row {
        let holds = |paper: &Printed| paper.is_bound() && paper.error(ours).is_none();
        let ours_kind = match &paper {
            Some(paper) if holds(paper) => Ours::Bounded,
            _ if is_fitted => Ours::Fitted,
            _ => Ours::Predicted,
        };
        let fits = |error: &f64| is_fitted && error.abs() <= FITTED_WITHIN;
        let error = paper.as_ref().and_then(|paper| paper.error(ours)).filter(|error| !fits(error));
        Row {
            figure: figure.to_owned(),
            device: device.to_owned(),
            series: series.to_owned(),
            residual: paper.as_ref().map(|paper| paper.residual(ours)),
            paper_kind: paper.as_ref().map(|paper| paper.kind),
            paper,
            ours,
            error,
            ours_kind,
            spread: None,
            range: None,
            seeds: None,
            unit,
            judges: None,
            drift: 1.0,
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
        let value = self.value_text(printed.value);
        match printed.kind {
            PrintedKind::Measured => value,
            PrintedKind::Assumed => format!("{value} (assumed)"),
            PrintedKind::Derived => format!("{value} (derived)"),
            PrintedKind::AtMost => format!("at most {value}"),
            PrintedKind::AtLeast => format!("at least {value}"),
        }
    }

    /// Ours, in words; with the range of its seeds and the spread where there are.
    #[must_use]
    pub fn ours_text(&self) -> String {
        let text = |[low, high]: [f64; 2]| format!("{}..{}", self.value_text(low), self.value_text(high));
        let mut ours = self.value_text(self.ours);
        if let Some(range) = self.range {
            ours += &format!(" [{}]", text(range));
        }
        if let Some(spread) = self.spread {
            ours += &format!(" ({})", text(spread));
        }
        ours
    }

    /// The error, in words: `+3 %`, `kept`, nothing; for a fitted row `fitted`, with what is left over.
    #[must_use]
    pub fn error_text(&self) -> String {
        match (self.ours_kind, self.error) {
            (Ours::Fitted, _) => self.fit_text(),
            (Ours::Bounded, _) => {
                format!("kept by {:.0} %", self.residual.unwrap_or_default().abs() * 100.0)
            }
            (Ours::Predicted, Some(error)) if self.is_bound() => {
                format!("broken by {:.1} %", error.abs() * 100.0)
            }
            (Ours::Predicted, Some(error)) => format!("{:+.1} %", error * 100.0),
            (Ours::Predicted, None) => "-".to_owned(),
        }
    }

    /// The judges of crash tests, as heads of columns.
    pub const JUDGES: [&str; 4] = ["model", "check", "e2fsck", "kernel"];

    /// What each judge says of a row of crash tests, in words: our model, our check, e2fsck, the kernel. One who was not
    /// asked has said nothing.
    #[must_use]
    pub fn judges_text(&self) -> [String; 4] {
        let text = |said: Option<u64>| said.map_or_else(|| "-".to_owned(), |tests| tests.to_string());
        let judges = self.judges;
        let of = |judge: fn(ByJudge) -> Option<u64>| text(judges.and_then(judge));
        [of(|by| Some(by.model)), of(|by| Some(by.check)), of(|by| by.e2fsck), of(|by| by.kernel)]
    }

    /// A number of the row's unit. Where ours is 1,000 % or more, the row is told in factors: `105 x`.
    fn value_text(&self, value: f64) -> String {
        if self.unit.starts_with('%') && self.ours >= 1_000.0 {
            return format!("{} x", number_text(value / 100.0));
        }
        number_text(value)
    }

    /// Whether the paper gives a bound in its text, and no number.
    #[must_use]
    pub fn is_bound(&self) -> bool {
        self.paper.as_ref().is_some_and(Printed::is_bound)
    }

    /// Whether it breaks a bound of the paper's text.
    #[must_use]
    pub fn breaks_bound(&self) -> bool {
        self.error.is_some() && self.is_bound()
    }

    /// How far ours is from the paper's number, whatever the row is, in words: `+3 %`, nothing.
    #[must_use]
    pub fn residual_text(&self) -> String {
        let finite = self.residual.filter(|residual| residual.is_finite());
        finite.map_or_else(|| "-".to_owned(), |residual| format!("{:+.0} %", residual * 100.0))
    }

    /// A fit has no error but a residual, which is not hidden.
    fn fit_text(&self) -> String {
        match self.paper.as_ref().and_then(|paper| paper.error(self.ours)) {
            Some(left) => format!("fitted, {:+.1} % left", left * 100.0),
            None => "fitted".to_owned(),
        }
    }
}

/// A number with three digits, and a unit of thousands where it is large.
pub(crate) fn number_text(value: f64) -> String {
    match value {
        value if value >= 9_999.5 => format!("{:.1} K", value / 1e3),
        value if value >= 99.95 => format!("{value:.0}"),
        value if value >= 9.995 => format!("{value:.1}"),
        value => format!("{value:.2}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(unit: &str, ours: f64) -> Row {
        Row::new([""; 3], None, false, ours, unit.to_owned())
    }

    #[test]
    fn large_percentages_are_told_as_factors() {
        for (unit, ours, text) in [
            ("% of EXT4", 10_520.0, "105 x"),
            ("% of EXT4", 1_000.0, "10.0 x"),
            ("% of EXT4", 999.0, "999"),
            ("IOPS", 10_520.0, "10.5 K"),
        ] {
            assert_eq!(row(unit, ours).ours_text(), text);
        }
        let spread = Row { spread: Some([950.0, 2_000.0]), ..row("% of EXT4", 1_500.0) };
        assert_eq!(spread.ours_text(), "15.0 x (9.50 x..20.0 x)");
    }
}
