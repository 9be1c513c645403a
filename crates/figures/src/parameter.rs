//! A *parameter* of a host is a number together with where it comes from: *sourced* from something published,
//! *fitted* to named rows of a paper, or *assumed* within a range. Devices have theirs in their profiles.

use serde::Deserialize;
use weir_flash::Kind;

/// A number, and where it comes from.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Parameter {
    /// The number, in the unit that its name ends with.
    pub value: f64,
    /// Where it comes from.
    pub kind: Kind,
    /// The publication, the rows, or the reason.
    pub source: String,
    /// Smallest and largest plausible value.
    #[serde(default)]
    pub range: Option<[f64; 2]>,
}
