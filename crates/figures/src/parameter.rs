//! A *parameter* is a number of a model together with where it comes from. Three kinds: *sourced* from
//! something published, *fitted* to named rows of a paper, or *assumed* within a range.

use serde::{Deserialize, Serialize};

/// Where a number comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Published; the source says where.
    Sourced,
    /// Chosen so that rows of a paper come out; the source says which.
    Fitted,
    /// Plausible; the range says how far it may be off.
    Assumed,
}

/// A number, and where it comes from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Parameter {
    /// The number, in the unit that its name ends with.
    pub value: f64,
    /// Where it comes from.
    pub kind: Kind,
    /// The publication, the rows, or the reason.
    pub source: String,
    /// Smallest and largest plausible value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub range: Option<[f64; 2]>,
}
