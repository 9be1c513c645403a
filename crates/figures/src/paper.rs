//! What a paper prints for the rows of a figure (`paper.toml`).

use serde::{Deserialize, Serialize};

use crate::error::FigureError;

/// The printed rows. Rows that are not here have no number in the paper's text.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Paper {
    /// The rows.
    #[serde(default, rename = "row")]
    pub rows: Vec<Printed>,
    /// Runs that come nearer to some of them.
    #[serde(default, rename = "explained")]
    pub explanations: Vec<Explanation>,
    /// Bars whose order it shows.
    #[serde(default, rename = "order")]
    pub orders: Vec<Order>,
}

impl Paper {
    /// What a figure's paper prints, of the text of its `paper.toml`.
    ///
    /// # Errors
    /// [`FigureError::File`] if it is damaged.
    pub fn parse(figure: &str, text: &str) -> Result<Paper, FigureError> {
        toml::from_str(text).map_err(|source| FigureError::toml(format!("{figure}/paper.toml"), source))
    }

    /// What the paper prints for a row.
    #[must_use]
    pub fn printed(&self, device: &str, series: &str) -> Option<&Printed> {
        self.rows.iter().find(|row| row.device == device && row.series == series)
    }
}

/// A run that comes to a paper's number by an assumption of its own: another series of the figure, on the same device.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Explanation {
    /// The device's profile.
    pub device: String,
    /// The row that it explains.
    pub series: String,
    /// The series that comes nearer.
    pub by: String,
    /// What that series assumes.
    pub assumes: String,
}

impl Explanation {
    /// Whether it is that of a row.
    #[must_use]
    pub fn is_of(&self, device: &str, series: &str) -> bool {
        self.device == device && self.series == series
    }
}

/// Bars in ascending order of the paper's: those of several series on a device, or of a series on several devices. A list in the
/// list is of bars whose order among themselves the paper does not tell, or that it shows as equal.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Order {
    /// The device's profile, or several.
    #[serde(rename = "device")]
    pub devices: Names,
    /// The series.
    pub series: Vec<Names>,
    /// Where the order is shown.
    pub source: String,
}

/// A name, or several.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(untagged)]
pub enum Names {
    /// One.
    One(String),
    /// Several.
    Several(Vec<String>),
}

impl Order {
    /// Device and series of the bars, step by step.
    pub fn steps(&self) -> impl Iterator<Item = Vec<(&str, &str)>> {
        self.devices.all().iter().flat_map(|device| {
            self.series
                .iter()
                .map(|names| names.all().iter().map(|series| (device.as_str(), series.as_str())).collect())
        })
    }
}

impl Names {
    /// All of them.
    #[must_use]
    pub fn all(&self) -> &[String] {
        match self {
            Names::One(name) => std::slice::from_ref(name),
            Names::Several(names) => names,
        }
    }
}

/// What the paper prints for one row.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Printed {
    /// The device's profile.
    pub device: String,
    /// The series.
    pub series: String,
    /// The number.
    pub value: f64,
    /// What the number is.
    pub kind: PrintedKind,
    /// Where it is printed.
    pub source: String,
}

/// What a printed number is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum PrintedKind {
    /// Measured on the device.
    #[serde(rename = "measured")]
    Measured,
    /// Measured with a cost of barriers that was assumed.
    #[serde(rename = "assumed")]
    Assumed,
    /// No number that the paper prints: its words ("similar"), a formula, or what follows from numbers that stand elsewhere.
    #[serde(rename = "derived")]
    Derived,
    /// The text says "less than" or "never above".
    #[serde(rename = "text bound: at most")]
    AtMost,
    /// The text says "at least".
    #[serde(rename = "text bound: at least")]
    AtLeast,
}

impl Printed {
    /// Whether the number is a bound from the text, and no value.
    #[must_use]
    pub fn is_bound(&self) -> bool {
        matches!(self.kind, PrintedKind::AtMost | PrintedKind::AtLeast)
    }

    /// `ours` less the printed number, relative to that: 0.1 for 10 % above it. Beside a printed 0, that is 0 or without
    /// bound.
    #[must_use]
    pub fn residual(&self, ours: f64) -> f64 {
        if ours == self.value { 0.0 } else { (ours - self.value) / self.value }
    }

    /// How far `ours` is off: relative to the printed number, 0.1 for 10 % above it. A bound that is kept has
    /// no error; one that is broken is off by what is beyond it.
    #[must_use]
    pub fn error(&self, ours: f64) -> Option<f64> {
        let off = self.residual(ours);
        match self.kind {
            PrintedKind::Measured | PrintedKind::Assumed | PrintedKind::Derived => Some(off),
            PrintedKind::AtMost => (off > 0.0).then_some(off),
            PrintedKind::AtLeast => (off < 0.0).then_some(off),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_has_an_error_only_where_it_is_broken() {
        let printed = |kind| Printed {
            device: String::new(),
            series: String::new(),
            value: 40.0,
            kind,
            source: String::new(),
        };
        assert_eq!(printed(PrintedKind::Measured).error(50.0), Some(0.25));
        assert_eq!(printed(PrintedKind::AtMost).error(30.0), None);
        assert_eq!(printed(PrintedKind::AtMost).error(50.0), Some(0.25));
        assert_eq!(printed(PrintedKind::AtLeast).error(50.0), None);
        assert_eq!(printed(PrintedKind::AtLeast).error(30.0), Some(-0.25));
        let none = Printed { value: 0.0, ..printed(PrintedKind::Measured) };
        assert_eq!((none.error(0.0), none.error(3.0)), (Some(0.0), Some(f64::INFINITY)));
    }
}
