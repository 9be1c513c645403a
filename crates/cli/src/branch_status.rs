//! What lists and a status say of a snapshot or a clone.

use std::time::{Duration, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
use weir_volume::{Branch, BranchKind, Volume};

/// A snapshot or a clone, as lists and a status tell it.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub(crate) struct BranchStatus {
    pub(crate) name: String,
    /// `snapshot` or `clone`.
    pub(crate) kind: String,
    /// Sequence number of the newest record of the log that it holds.
    pub(crate) sequence: u64,
    /// When it was made, in UTC.
    pub(crate) made: String,
}

impl BranchStatus {
    /// All of a volume.
    pub(crate) fn list_of(volume: &Volume) -> Vec<BranchStatus> {
        volume.snapshots().into_iter().map(BranchStatus::from).collect()
    }
}

impl From<Branch> for BranchStatus {
    fn from(branch: Branch) -> BranchStatus {
        let made = UNIX_EPOCH.checked_add(Duration::from_nanos(branch.made)).unwrap_or(UNIX_EPOCH);
        let kind = match branch.kind {
            BranchKind::Snapshot => "snapshot",
            BranchKind::Clone => "clone",
        };
        BranchStatus {
            name: branch.name,
            kind: kind.to_owned(),
            sequence: branch.sequence,
            made: humantime::format_rfc3339_seconds(made).to_string(),
        }
    }
}
