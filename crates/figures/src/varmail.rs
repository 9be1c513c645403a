//! *Varmail*: a mail server that keeps each message in a file, as the personality of that name of Filebench. Figure 2b
//! of the SHARE paper runs it with 100 threads, figure 14 of the FAST 2018 paper as it comes.

use std::fmt;

use serde::Deserialize;

use crate::calls::Call;
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
    /// How what was appended is synchronised.
    #[serde(default = "Call::durable")]
    pub call: Call,
    /// Bytes that an append has at most, and half of them on average; the personality's if it is left out.
    #[serde(default = "append_bytes")]
    pub append_bytes: u32,
    /// Processor time of the program for each operation, in microseconds, beyond what the host's profile has for pages.
    #[serde(default)]
    pub operation_us: u32,
    /// Cores of the host, if not its profile's.
    #[serde(default)]
    pub cores: Option<u32>,
}

/// `iosize` of `appendfilerand` in `varmail.f`, where it is called the mean.
fn append_bytes() -> u32 {
    16 << 10
}

impl fmt::Display for Varmail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Varmail { on, threads, call, files, append_bytes, operation_us, cores } = self;
        write!(
            f,
            "varmail, {on}, {threads} threads, {files} files, {call}, appends of {append_bytes} bytes at most"
        )?;
        if *operation_us > 0 {
            write!(f, ", {operation_us} us more for each operation")?;
        }
        cores.map_or(Ok(()), |cores| write!(f, ", {cores} cores"))
    }
}
