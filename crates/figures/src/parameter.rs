//! A *parameter* of a host or an application is a number or a word together with where it comes from: *sourced* from
//! something published, *fitted* to named rows of a paper, or *assumed* within a range. Devices have theirs in their
//! profiles.

use serde::Deserialize;
use weir_flash::Kind;

/// A number, or a word, and where it comes from.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Parameter<T = f64> {
    /// The number, in the unit that its name ends with; or the word.
    pub value: T,
    /// Where it comes from.
    pub kind: Kind,
    /// The publication, the rows, or the reason.
    pub source: String,
    /// Smallest and largest plausible value; of a word, two that were as likely.
    pub range: Option<[T; 2]>,
}
