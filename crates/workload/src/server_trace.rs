//! *Server traces*: requests as the servers of Microsoft Research Cambridge made them in a week of 2007 (Narayanan and others,
//! Write Off-Loading, FAST 2008), generated anew by their published statistics. The traces themselves are not here:
//! [`BlockTrace`](crate::BlockTrace) reads them where a user has them.
//!
//! There are thirteen servers. The trace of a server's first volume, `NAME_0`, is mostly writes but for `src1_0`, of which 56 %
//! are reads. The other twelve are those of this table. The OPTR paper tests its firmware with twelve write-heavy traces and
//! does not name them.
//!
//! Of each trace it is known, or assumed in a range, how many requests it has, which share of them writes, how long they are
//! on average, and at how many places they begin. Reads and writes are taken as equally long: no table that was found tells
//! them apart. For all of them it is assumed that
//!
//! - six of ten requests have 4 KiB (0.4 to 0.8), and the others any length, 512 bytes and more, that gives the mean;
//! - three of ten begin where the last one of their kind ended (0.1 to 0.6); the others at a multiple of 4 KiB;
//! - the n-th most popular place is chosen with a probability proportional to n^-0.9 (0.6 to 1.2).
//!
//! The format has reads and writes alone: no flush and no discard.

use std::fmt;

use weir_runtime::Random;

use crate::block_trace::{TraceKind, TraceRequest};
use crate::popularity::Popularity;

/// A number of a trace, and where it is from.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Statistic {
    /// The number.
    pub value: f64,
    /// Where it is from.
    pub basis: Basis,
}

/// Where a statistic is from.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Basis {
    /// A publication has it, or what it is computed from.
    Published(&'static str),
    /// No publication was found: from the least to the most that is likely.
    Assumed(f64, f64),
}

/// What is published of a server's trace.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ServerTrace {
    /// The server and its volume.
    pub name: &'static str,
    /// Requests in a pass.
    pub requests: Statistic,
    /// The share of them that writes.
    pub write_share: Statistic,
    /// Bytes of a request on average.
    pub mean_bytes: Statistic,
    /// Places at which requests begin that do not continue another one.
    pub places: Statistic,
}

/// The share of requests that begin where the last one of their kind ended. Assumed.
pub const SEQUENTIAL_SHARE: f64 = 0.3;

/// The share of requests that have [`COMMON_SECTORS`]. Assumed.
const COMMON_SHARE: f64 = 0.6;
/// The most common length, in sectors.
const COMMON_SECTORS: u64 = 8;
/// How fast popularity falls. Assumed.
const EXPONENT: f64 = 0.9;
/// Bytes of a sector, of which lengths are multiples.
const SECTOR_BYTES: u64 = 512;
/// Bytes from one place to the next.
const PLACE_BYTES: u64 = 4096;
/// Chances are drawn as parts of this.
const CHANCES: u64 = 1 << 32;

/// Reads and writes of each trace, and the bytes of all.
const TICA: &str = "Salkhordeh and others, An Efficient Hybrid I/O Caching Architecture Using Heterogeneous SSDs, \
                    IEEE TPDS 2019, table 2";
/// The share of writes, and the mean length.
const GCAR: &str =
    "Wu and others, GCaR (garbage-collection-aware cache management for flash-based SSDs), table 4";
/// Requests, and different offsets.
const CACHE_DATASET: &str = "libCacheSim's cache_dataset, 2007_msr: requests and different keys";
/// Requests, and bytes of all.
const SIMPLESSD: &str = "a replay of the trace on SimpleSSD, as its author describes it: 22.42 GiB";

const fn published(value: f64, source: &'static str) -> Statistic {
    Statistic { value, basis: Basis::Published(source) }
}

const fn assumed(value: f64, least: f64, most: f64) -> Statistic {
    Statistic { value, basis: Basis::Assumed(least, most) }
}

/// As table 2 of TICA counts a trace: reads, writes, and bytes of all. Places are assumed: one of ten requests has another one
/// (published: one of 80 to one of 8).
const fn counted(name: &'static str, reads: u32, writes: u32, bytes: f64) -> ServerTrace {
    let requests = reads as f64 + writes as f64;
    ServerTrace {
        name,
        requests: published(requests, TICA),
        write_share: published(writes as f64 / requests, TICA),
        mean_bytes: published(bytes / requests, TICA),
        places: assumed(requests / 10.0, requests / 80.0, requests / 5.0),
    }
}

/// The same with as many different offsets as were counted.
const fn with_places(trace: ServerTrace, places: u32) -> ServerTrace {
    ServerTrace { places: published(places as f64, CACHE_DATASET), ..trace }
}

impl ServerTrace {
    /// All of them.
    pub const ALL: [ServerTrace; 12] = [
        ServerTrace {
            name: "hm_0",
            requests: published(3_993_316.0, CACHE_DATASET),
            write_share: published(0.645, GCAR),
            mean_bytes: published(9.2 * 1024.0, GCAR),
            places: published(439_187.0, CACHE_DATASET),
        },
        counted("mds_0", 143_973, 1_067_061, 11.4e9),
        with_places(counted("prn_0", 602_480, 4_983_406, 63.44e9), 711_385),
        ServerTrace {
            name: "proj_0",
            requests: published(4_224_524.0, CACHE_DATASET),
            write_share: assumed(0.88, 0.80, 0.95),
            mean_bytes: assumed(38.0 * 1024.0, 30.0 * 1024.0, 45.0 * 1024.0),
            places: published(286_228.0, CACHE_DATASET),
        },
        with_places(counted("prxy_0", 383_524, 12_135_444, 61.03e9), 155_681),
        counted("rsrch_0", 133_625, 1_300_030, 13.11e9),
        ServerTrace {
            name: "src2_0",
            requests: assumed(1_600_000.0, 1_000_000.0, 2_000_000.0),
            write_share: assumed(0.89, 0.80, 0.95),
            mean_bytes: assumed(8.0 * 1024.0, 6.0 * 1024.0, 10.0 * 1024.0),
            places: assumed(160_000.0, 20_000.0, 320_000.0),
        },
        ServerTrace {
            name: "stg_0",
            requests: published(2_030_915.0, SIMPLESSD),
            write_share: assumed(0.85, 0.75, 0.95),
            mean_bytes: published(22.42 * 1_073_741_824.0 / 2_030_915.0, SIMPLESSD),
            places: assumed(200_000.0, 25_000.0, 400_000.0),
        },
        counted("ts_0", 316_692, 1_485_042, 16.612e9),
        counted("usr_0", 904_483, 1_333_406, 51.945e9),
        counted("wdev_0", 229_529, 913_732, 10.628e9),
        ServerTrace {
            name: "web_0",
            requests: assumed(2_000_000.0, 1_500_000.0, 2_500_000.0),
            write_share: assumed(0.70, 0.60, 0.80),
            mean_bytes: assumed(15.0 * 1024.0, 10.0 * 1024.0, 20.0 * 1024.0),
            places: assumed(200_000.0, 25_000.0, 400_000.0),
        },
    ];

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.name
    }

    /// A pass, which chance draws; equal chance, equal requests.
    #[must_use]
    pub fn generate(self, random: Random) -> ServerRequests {
        let mean_sectors = self.mean_bytes.value / SECTOR_BYTES as f64;
        let rest = (mean_sectors - COMMON_SHARE * COMMON_SECTORS as f64) / (1.0 - COMMON_SHARE);
        ServerRequests {
            trace: self,
            random,
            left: self.requests.value as u64,
            popularity: Popularity::new(self.places.value as u64, EXPONENT),
            // From 1 on, all lengths are equally likely.
            longest: (2.0 * rest - 1.0).max(1.0),
            ends: [None; 2],
        }
    }

    /// The bytes behind the last place.
    #[must_use]
    pub fn span_bytes(self) -> u64 {
        self.places.value as u64 * PLACE_BYTES
    }
}

impl fmt::Display for ServerTrace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

/// The requests of a pass.
#[derive(Clone, Debug)]
pub struct ServerRequests {
    trace: ServerTrace,
    random: Random,
    /// Requests that are left.
    left: u64,
    popularity: Popularity,
    /// The longest request that is not of the common length, in sectors; chance rounds it.
    longest: f64,
    /// Where the last read and the last write ended.
    ends: [Option<u64>; 2],
}

impl ServerRequests {
    fn happens(&mut self, share: f64) -> bool {
        (self.random.below(CHANCES) as f64) < share * CHANCES as f64
    }

    fn sectors(&mut self) -> u64 {
        if self.happens(COMMON_SHARE) {
            return COMMON_SECTORS;
        }
        let longest = self.longest.floor() as u64 + u64::from(self.happens(self.longest.fract()));
        1 + self.random.below(longest)
    }
}

impl Iterator for ServerRequests {
    type Item = TraceRequest;

    fn next(&mut self) -> Option<TraceRequest> {
        self.left = self.left.checked_sub(1)?;
        let kind =
            if self.happens(self.trace.write_share.value) { TraceKind::Write } else { TraceKind::Read };
        let bytes = self.sectors() * SECTOR_BYTES;
        let goes_on = self.happens(SEQUENTIAL_SHARE);
        let end = &mut self.ends[usize::from(kind == TraceKind::Write)];
        let offset = match end.filter(|end| goes_on && *end < self.trace.span_bytes()) {
            Some(end) => end,
            None => self.popularity.choose(&mut self.random) * PLACE_BYTES,
        };
        *end = Some(offset + bytes);
        Some(TraceRequest::plain(kind, offset, bytes))
    }
}

#[cfg(test)]
mod tests {
    use weir_runtime::{Runtime, Simulation};

    use super::*;

    const DRAWN: usize = 200_000;

    fn requests(trace: ServerTrace, seed: u64) -> ServerRequests {
        let runtime = Runtime::simulated(Simulation { seed, ..Simulation::default() });
        trace.generate(runtime.handle().random("trace"))
    }

    fn is_near(seen: f64, right: f64, what: &str) {
        assert!((seen / right - 1.0).abs() < 0.02, "{what}: {seen} for {right}");
    }

    #[test]
    fn what_is_generated_has_the_statistics_of_the_table() {
        for trace in ServerTrace::ALL {
            let name = trace.name;
            let drawn: Vec<TraceRequest> = requests(trace, 7).take(DRAWN).collect();
            let writes: Vec<&TraceRequest> =
                drawn.iter().filter(|request| request.kind == TraceKind::Write).collect();
            is_near(writes.len() as f64 / DRAWN as f64, trace.write_share.value, &format!("{name}, writes"));
            let bytes: u64 = drawn.iter().map(|request| request.bytes).sum();
            is_near(bytes as f64 / DRAWN as f64, trace.mean_bytes.value, &format!("{name}, bytes"));
            let written: u64 = writes.iter().map(|request| request.bytes).sum();
            let mean = written as f64 / writes.len() as f64;
            is_near(mean, trace.mean_bytes.value, &format!("{name}, bytes of a write"));
            let go_on = writes.windows(2).filter(|pair| pair[0].offset + pair[0].bytes == pair[1].offset);
            is_near(
                go_on.count() as f64 / writes.len() as f64,
                SEQUENTIAL_SHARE,
                &format!("{name}, goes on"),
            );
            let end = drawn.iter().map(|request| request.offset).max().unwrap_or(0);
            is_near(end as f64, trace.span_bytes() as f64, &format!("{name}, span"));
            assert!(drawn.iter().all(|request| request.offset < trace.span_bytes()), "{name}");
            assert!(trace.write_share.value > 0.5, "{name} is mostly reads");
        }
    }

    #[test]
    fn a_pass_has_as_many_requests_as_the_trace() {
        let trace = ServerTrace { requests: assumed(1000.0, 1.0, 2000.0), ..ServerTrace::ALL[0] };
        assert_eq!(requests(trace, 1).count(), 1000);
        assert!(requests(trace, 1).eq(requests(trace, 1)));
        assert!(!requests(trace, 1).eq(requests(trace, 2)));
    }

    #[test]
    fn what_is_assumed_lies_in_its_range_and_names_differ() {
        for trace in ServerTrace::ALL {
            for Statistic { value, basis } in
                [trace.requests, trace.write_share, trace.mean_bytes, trace.places]
            {
                if let Basis::Assumed(least, most) = basis {
                    assert!(least < value && value < most, "{trace}: {value}");
                }
            }
            assert_eq!(ServerTrace::ALL.iter().filter(|other| other.name == trace.name).count(), 1);
        }
    }
}
