//! *Fio* writes at random to many files, as the benchmark of that name does for figure 2a of the SHARE paper.

use std::fmt;

use serde::Deserialize;

use crate::mounting::Mounting;

/// One thread writes 8 KiB after 8 KiB to files that are allocated and not written, and synchronises the file that it
/// wrote last after every so many writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fio {
    /// On which filesystem.
    pub on: Mounting,
    /// Files.
    pub files: u32,
    /// The size of each file, in writes of 8 KiB, 1 to 65,536.
    pub file_writes: u32,
    /// Writes from one `fsync` to the next, 1 and more.
    pub fsync_every: u32,
}

impl fmt::Display for Fio {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Fio { on, fsync_every, .. } = self;
        write!(f, "fio, {on}, fsync/{fsync_every}")
    }
}
