//! The two cleaners, and what they count.

use std::str::FromStr;

/// How blocks of victims are moved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Cleaner {
    /// They are read and written.
    #[default]
    Copy,
    /// They are remapped by the share command, which the storage must have.
    Share,
}

/// A name that no cleaner has.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no cleaner is called {0:?}: there are copy and share")]
pub struct UnknownCleaner(pub String);

impl FromStr for Cleaner {
    type Err = UnknownCleaner;

    fn from_str(name: &str) -> Result<Cleaner, UnknownCleaner> {
        let found = Cleaner::ALL.into_iter().find(|cleaner| cleaner.name() == name);
        found.ok_or_else(|| UnknownCleaner(name.to_owned()))
    }
}

impl Cleaner {
    /// All of them.
    pub const ALL: [Cleaner; 2] = [Cleaner::Copy, Cleaner::Share];

    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Cleaner::Copy => "copy",
            Cleaner::Share => "share",
        }
    }
}

/// What cleaning has done since the mount.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CleanerCounts {
    /// Segments that were cleaned.
    pub segments: u64,
    /// Pages of data that were moved.
    pub pages: u64,
    /// Nodes that were moved.
    pub nodes: u64,
}
