//! How a journal commits.

use std::time::Duration;

use crate::engine::Engine;
use crate::mutants::JournalRules;

/// The options of a journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JournalOptions {
    /// Which engine commits.
    pub engine: Engine,
    /// A transaction is committed when it is this old.
    pub commit_interval: Duration,
    /// The rules that it keeps.
    pub rules: JournalRules,
}
