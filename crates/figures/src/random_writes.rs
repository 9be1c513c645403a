//! *Random writes* with a flush after every so many, as the OPTR paper measures what its firmware costs (section 7): an
//! area that is small or large, requests that are large, small or mixed, and flushes that come often or seldom.

use std::fmt;

use serde::Deserialize;

/// Random writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
pub struct RandomWrites {
    /// The area that is written to, in MiB; all of the device if that is smaller.
    pub footprint_mib: u64,
    /// The size of the requests.
    pub size: Size,
    /// Requests from one flush to the next, 1 and more.
    pub flush_every: u64,
}

/// The size of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Size {
    /// 1 MiB.
    Large,
    /// 16 KiB.
    Small,
    /// Each of the two for half of the requests.
    Hybrid,
}

impl fmt::Display for RandomWrites {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let RandomWrites { footprint_mib, size, flush_every } = self;
        let size = match size {
            Size::Large => "large",
            Size::Small => "small",
            Size::Hybrid => "hybrid",
        };
        write!(f, "{footprint_mib} MiB {size}, flush/{flush_every}")
    }
}
