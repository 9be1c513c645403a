//! A *kept state*: one that can be restored, and how the state that is wanted is said.

use std::fmt;
use std::time::{Duration, UNIX_EPOCH};

use humantime::format_rfc3339_millis;

/// Which state is restored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WantedState {
    /// The newest.
    Newest,
    /// After this request.
    Sequence(u64),
    /// What was in the store at this time, in milliseconds of Unix time: the newest object that was made by then.
    Time(u64),
}

impl fmt::Display for WantedState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WantedState::Newest => f.write_str("the newest state"),
            WantedState::Sequence(sequence) => write!(f, "the state at position {sequence}"),
            WantedState::Time(ms) => write!(f, "the state of {}", time_text(*ms)),
        }
    }
}

/// A state that can be restored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeptState {
    /// It is that after this request.
    pub sequence: u64,
    /// When the object was made that it ends with, or the checkpoint, in milliseconds of Unix time.
    pub created_ms: u64,
}

impl KeptState {
    /// When it was made, as `2026-11-28T17:35:00.000Z`.
    #[must_use]
    pub fn time(&self) -> String {
        time_text(self.created_ms)
    }
}

impl fmt::Display for KeptState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "position {} of {}", self.sequence, self.time())
    }
}

/// The oldest state that can be restored, and the newest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeptRange {
    /// The oldest.
    pub first: KeptState,
    /// The newest.
    pub last: KeptState,
}

/// A time in UTC. Past the year 9999 it is the end of that.
fn time_text(ms: u64) -> String {
    const LAST_MS: u64 = 253_402_300_799_999;
    format_rfc3339_millis(UNIX_EPOCH + Duration::from_millis(ms.min(LAST_MS))).to_string()
}

impl KeptRange {
    /// With one more state behind it.
    pub(crate) fn with(range: Option<KeptRange>, state: KeptState) -> Option<KeptRange> {
        // Before the first request there is nothing to restore.
        if state.sequence == 0 {
            return range;
        }
        Some(KeptRange { first: range.map_or(state, |range| range.first), last: state })
    }
}
