//! *Varmail*: a mail server that keeps each message in a file, as the personality of that name of Filebench. Figure 2b
//! of the SHARE paper runs it with 100 threads.

use std::fmt;

use serde::Deserialize;

use crate::mounting::Mounting;

/// Threads that delete, make, read and append to files of one directory, and synchronise what they appended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Varmail {
    /// On which filesystem.
    pub on: Mounting,
    /// Names of files; four fifths of them exist at the beginning.
    pub files: u32,
    /// Threads.
    pub threads: u32,
}

impl fmt::Display for Varmail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Varmail { on, threads, .. } = self;
        write!(f, "varmail, {on}, {threads} threads")
    }
}
