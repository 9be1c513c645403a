//! *Fault*: what a mount does wrong while a program runs on it, other than losing power.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use regex_lite::Regex;
use thiserror::Error;
use weir_runtime::Random;
use weir_storage::{CommandKind, Lba, StorageError};
use weir_vfs::FsError;

/// Of the calls that a fault without a number may strike, it strikes one in so many.
const SEEDED_SHARE: u64 = 4;

/// How much longer a slow call takes, if nothing is said, and at most.
const DELAY: Duration = Duration::from_secs(1);
const DELAY_MAX: Duration = Duration::from_secs(3600);

/// What goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultKind {
    /// `fsync` or `fdatasync` fails with EIO. What was written and not yet durable is lost for the disk: the next call says yes,
    /// and makes none of it durable.
    Sync,
    /// `fsync` or `fdatasync` takes longer, and covers what was written when it returns.
    SlowSync,
    /// A read fails with EIO.
    Read,
    /// A write fails with EIO, and writes nothing.
    Write,
    /// A write takes the first half of its bytes.
    ShortWrite,
    /// The disk is full: from so many written bytes on, with the number of the fault in place of the number of the call.
    Space,
}

impl FaultKind {
    /// All of them.
    pub const ALL: [FaultKind; 6] = [
        FaultKind::Sync,
        FaultKind::SlowSync,
        FaultKind::Read,
        FaultKind::Write,
        FaultKind::ShortWrite,
        FaultKind::Space,
    ];

    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            FaultKind::Sync => "fsync",
            FaultKind::SlowSync => "slow-fsync",
            FaultKind::Read => "read",
            FaultKind::Write => "write",
            FaultKind::ShortWrite => "short-write",
            FaultKind::Space => "space",
        }
    }
}

/// A pattern for paths below the mount, or for names: `*` stands for any characters, `?` for one.
#[derive(Clone, Debug)]
pub struct PathPattern {
    text: String,
    regex: Regex,
}

impl PathPattern {
    /// Of its text.
    #[must_use]
    pub fn new(text: &str) -> Option<PathPattern> {
        let escaped = text.chars().map(|character| match character {
            '*' => ".*".to_owned(),
            '?' => ".".to_owned(),
            other => regex_lite::escape(&other.to_string()),
        });
        let regex = Regex::new(&format!("(?s)^{}$", escaped.collect::<String>())).ok()?;
        Some(PathPattern { text: text.to_owned(), regex })
    }

    /// Whether a path, or its last name, is as the pattern says.
    #[must_use]
    pub fn matches(&self, path: &str) -> bool {
        let name = path.rsplit('/').next().unwrap_or(path);
        self.regex.is_match(path) || self.regex.is_match(name)
    }
}

/// A fault, and when it strikes.
///
/// As text: its name, a number, `+` behind that if it lasts, and a pattern for paths, between colons: `fsync:2`,
/// `read:1+:*.db`, `short-write:log`, `space:65536`. Without a number, the seed says when it strikes. Behind `slow-fsync` may be
/// how many milliseconds it takes longer: `slow-fsync=500:1+`.
#[derive(Clone, Debug)]
pub struct Fault {
    /// What goes wrong.
    pub kind: FaultKind,
    /// At which of the calls that it may strike, from 1 on; of [`FaultKind::Space`], from how many bytes on.
    pub nth: Option<u64>,
    /// It strikes from then on, and not once.
    pub lasts: bool,
    /// The files that it strikes; all without one.
    pub path: Option<PathPattern>,
    /// How much longer a call takes, of [`FaultKind::SlowSync`].
    pub delay: Duration,
}

/// A text that names no fault.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error(
    "{0:?} names no fault: it is written as fsync:2, slow-fsync=500:1+, read:1+:*.db, write:3, short-write:1:log, or space:65536"
)]
pub struct FaultError(String);

impl FromStr for Fault {
    type Err = FaultError;

    fn from_str(text: &str) -> Result<Fault, FaultError> {
        let parse = || {
            let (name, mut rest) = text.split_once(':').unwrap_or((text, ""));
            let (name, delay) =
                name.split_once('=').map_or((name, None), |(name, delay)| (name, Some(delay)));
            let kind = FaultKind::ALL.into_iter().find(|kind| kind.name() == name)?;
            let delay = match delay {
                None => Some(DELAY),
                Some(text) if kind == FaultKind::SlowSync => text.parse().ok().map(Duration::from_millis),
                Some(_) => None,
            };
            let delay = delay.filter(|delay| *delay <= DELAY_MAX)?;
            let (first, others) = rest.split_once(':').unwrap_or((rest, ""));
            let (digits, lasts) = first.strip_suffix('+').map_or((first, false), |digits| (digits, true));
            let nth = digits.parse().ok();
            if nth.is_some() {
                rest = others;
            }
            let path = if rest.is_empty() { None } else { Some(PathPattern::new(rest)?) };
            let is_right = nth.is_none_or(|nth: u64| nth > 0) && (nth.is_some() || kind != FaultKind::Space);
            is_right.then_some(Fault { kind, nth, lasts: lasts && nth.is_some(), path, delay })
        };
        parse().ok_or_else(|| FaultError(text.to_owned()))
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "{}", self.kind.name())?;
        if self.kind == FaultKind::SlowSync {
            write!(to, "={}", self.delay.as_millis())?;
        }
        if let Some(nth) = self.nth {
            write!(to, ":{nth}{}", if self.lasts { "+" } else { "" })?;
        }
        self.path.iter().try_for_each(|path| write!(to, ":{}", path.text))
    }
}

/// A fault, and what it has met so far.
#[derive(Debug)]
struct Planned {
    fault: Fault,
    /// Calls that it may strike, or bytes.
    seen: u64,
    has_struck: bool,
}

/// The faults of a run.
#[derive(Debug)]
pub(crate) struct Faults {
    planned: Vec<Planned>,
    random: Random,
    /// The faults that were met, in words.
    met: Vec<String>,
}

/// Of what was met, so many are kept in words.
const MET_MAX: usize = 16;

/// The error of a device.
pub(crate) fn device_error(command: CommandKind) -> FsError {
    FsError::Storage(StorageError::Device { command, at: Lba(0), cause: std::io::ErrorKind::Other })
}

impl Faults {
    pub(crate) fn new(faults: &[Fault], random: Random) -> Faults {
        let planned = faults.iter().map(|fault| Planned { fault: fault.clone(), seen: 0, has_struck: false });
        Faults { planned: planned.collect(), random, met: Vec::new() }
    }

    /// Whether a call on a path is struck.
    pub(crate) fn strikes(&mut self, kind: FaultKind, path: impl Fn() -> String) -> bool {
        self.strike(kind, path).is_some()
    }

    /// The longest delay of the faults that strike a call on a path; none if none does.
    fn strike(&mut self, kind: FaultKind, path: impl Fn() -> String) -> Option<Duration> {
        let mut longest = None;
        for Planned { fault, seen, has_struck } in &mut self.planned {
            if fault.kind != kind || !fault.path.as_ref().is_none_or(|pattern| pattern.matches(&path())) {
                continue;
            }
            *seen += 1;
            let strikes = match fault.nth {
                Some(nth) => *seen == nth || fault.lasts && *seen > nth,
                None => !*has_struck && self.random.below(SEEDED_SHARE) == 0,
            };
            *has_struck |= strikes;
            longest = longest.max(strikes.then_some(fault.delay));
        }
        if longest.is_some() && self.met.len() < MET_MAX {
            self.met.push(format!("{} of `{}`", kind.name(), path()));
        }
        longest
    }

    /// How much longer a synchronisation takes; where several faults say so, what the longest says.
    pub(crate) fn delay_of_sync(&mut self, path: impl Fn() -> String) -> Option<Duration> {
        self.strike(FaultKind::SlowSync, path)
    }

    /// How many bytes of a write are taken.
    pub(crate) fn take_write(&mut self, bytes: u64, path: impl Fn() -> String) -> Result<u64, FsError> {
        if self.strikes(FaultKind::Write, &path) {
            return Err(device_error(CommandKind::Write));
        }
        let mut taken = if self.strikes(FaultKind::ShortWrite, &path) { bytes.div_ceil(2) } else { bytes };
        for Planned { fault, seen, has_struck } in &mut self.planned {
            let is_of_path = fault.path.as_ref().is_none_or(|pattern| pattern.matches(&path()));
            if fault.kind == FaultKind::Space && is_of_path {
                let left = fault.nth.unwrap_or(0).saturating_sub(*seen);
                if left < taken && !*has_struck {
                    *has_struck = true;
                    self.met.push(format!("{} at a write to `{}`", fault.kind.name(), path()));
                }
                taken = taken.min(left);
                *seen += taken;
            }
        }
        if taken == 0 { Err(FsError::NoSpace) } else { Ok(taken) }
    }

    /// The faults that were met, in words, and those that were not.
    pub(crate) fn take_met(&mut self) -> (Vec<String>, Vec<String>) {
        let missed = self.planned.iter().filter(|planned| !planned.has_struck);
        let missed = missed.map(|planned| planned.fault.to_string()).collect();
        (std::mem::take(&mut self.met), missed)
    }
}

#[cfg(test)]
mod tests {
    use weir_runtime::{Runtime, Simulation};

    use super::*;

    fn faults(texts: &[&str], seed: u64) -> Faults {
        let random =
            Runtime::simulated(Simulation { seed, ..Simulation::default() }).handle().random("faults");
        let all: Vec<Fault> = texts.iter().map(|text| text.parse().unwrap()).collect();
        Faults::new(&all, random)
    }

    #[test]
    fn a_fault_is_read_as_it_is_written() {
        for text in [
            "fsync",
            "fsync:2",
            "read:1+:*.db",
            "short-write:log",
            "space:65536",
            "write:3:a:b",
            "slow-fsync=500:1+:*.db",
        ] {
            assert_eq!(text.parse::<Fault>().unwrap().to_string(), text);
        }
        for text in ["", "sync:1", "fsync:0", "space", "space:log", ":1", "fsync=5:1", "slow-fsync=x"] {
            assert_eq!(text.parse::<Fault>().unwrap_err(), FaultError(text.to_owned()), "{text}");
        }
    }

    #[test]
    fn a_fault_strikes_once_or_from_then_on_and_only_its_files() {
        let struck = |text: &str, paths: &[&str]| {
            let mut faults = faults(&[text], 1);
            let strikes = paths.iter().map(|path| faults.strikes(FaultKind::Sync, || (*path).to_owned()));
            strikes.collect::<Vec<bool>>()
        };
        assert_eq!(struck("fsync:2", &["a", "b", "c"]), [false, true, false]);
        assert_eq!(struck("fsync:2+", &["a", "b", "c"]), [false, true, true]);
        assert_eq!(struck("fsync:1:*.db", &["log", "d/x.db", "x.db"]), [false, true, false]);
        assert_eq!(struck("fsync:1:d/*", &["log", "d/x.db", "x.db"]), [false, true, false]);
        assert_eq!(struck("read:1", &["a"]), [false]);
        let mut slow = faults(&["slow-fsync=5:1+:a", "slow-fsync=900:1+:b"], 1);
        let delays = ["a", "b", "c"].map(|path| slow.delay_of_sync(|| path.to_owned()));
        assert_eq!(delays, [Some(Duration::from_millis(5)), Some(Duration::from_millis(900)), None]);
        // By the seed: once, and elsewhere with another seed.
        let seeded = |seed| {
            let mut faults = faults(&["fsync"], seed);
            (0..100).filter(|_| faults.strikes(FaultKind::Sync, String::new)).collect::<Vec<u32>>()
        };
        assert_eq!((seeded(1).len(), seeded(1)), (1, seeded(1)));
        assert!((2..20).any(|seed| seeded(seed) != seeded(1)));
    }

    #[test]
    fn a_full_disk_takes_what_fits_and_a_short_write_half() {
        let mut full = faults(&["space:10"], 1);
        let mut write = |bytes| full.take_write(bytes, || "a".to_owned()).ok();
        assert_eq!([write(6), write(6), write(1)], [Some(6), Some(4), None]);
        let mut short = faults(&["short-write:2", "write:3", "fsync:9"], 1);
        let mut write = |bytes| short.take_write(bytes, || "a".to_owned()).ok();
        assert_eq!([write(6), write(7), write(6), write(6)], [Some(6), Some(4), None, Some(6)]);
        assert_eq!(short.take_met().1, ["fsync:9"]);
    }
}
