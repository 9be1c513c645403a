//! *Cut point*: a call of a run at which the power is cut while the program runs.

use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use thiserror::Error;
use weir_runtime::Random;

use crate::fault::PathPattern;
use crate::operation::Call;
use crate::paths::Paths;

/// Of the calls that a point without a number may be at, it is at one in so many.
const SEEDED_SHARE: u64 = 8;

/// A call that a point is at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CutCall {
    Sync,
    Rename,
    Acknowledge,
}

/// When the power is cut: at the n-th such call of a run, before it or behind it.
///
/// As text: `fsync`, `rename` or `ack`, with `before-` in front if it is cut before that call has done anything; a number, and a
/// pattern for paths, between colons: `fsync:3`, `before-rename:1:*.db`, `ack`. Without a number, the seed says when.
#[derive(Clone, Debug)]
pub struct CutPoint {
    call: CutCall,
    is_before: bool,
    nth: Option<u64>,
    path: Option<PathPattern>,
}

/// A text that names no point.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{0:?} names no moment: it is written as fsync:3, rename:1:*.db, ack:2, or with before- in front")]
pub struct CutPointError(String);

impl FromStr for CutPoint {
    type Err = CutPointError;

    fn from_str(text: &str) -> Result<CutPoint, CutPointError> {
        let parse = || {
            let (rest, is_before) = text.strip_prefix("before-").map_or((text, false), |rest| (rest, true));
            let (name, mut rest) = rest.split_once(':').unwrap_or((rest, ""));
            let call = match name {
                "fsync" => CutCall::Sync,
                "rename" => CutCall::Rename,
                "ack" => CutCall::Acknowledge,
                _ => return None,
            };
            let (first, others) = rest.split_once(':').unwrap_or((rest, ""));
            let nth: Option<u64> = first.parse().ok();
            if nth.is_some() {
                rest = others;
            }
            let path = if rest.is_empty() { None } else { Some(PathPattern::new(rest)?) };
            let is_right = nth != Some(0) && (path.is_none() || call != CutCall::Acknowledge);
            is_right.then_some(CutPoint { call, is_before, nth, path })
        };
        parse().ok_or_else(|| CutPointError(text.to_owned()))
    }
}

impl CutPoint {
    fn is_at(&self, call: &Call, paths: &Paths) -> bool {
        let matches = |path: String| self.path.as_ref().is_none_or(|pattern| pattern.matches(&path));
        match (self.call, call) {
            (CutCall::Sync, Call::Sync { inode, .. }) => matches(paths.of_inode(*inode)),
            (CutCall::Rename, Call::Rename { from, to, .. }) => {
                matches(paths.of_place(from)) || matches(paths.of_place(to))
            }
            (CutCall::Acknowledge, Call::Acknowledge(_)) => true,
            _ => false,
        }
    }
}

/// The moment within a call at which the power is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CutMoment {
    Before,
    Behind,
}

/// Cuts the power of a run.
#[derive(Debug)]
pub(crate) struct CutTrigger {
    point: Option<CutPoint>,
    seen: u64,
    random: Random,
    /// The power is cut. It may be set from elsewhere, too.
    is_cut: Arc<AtomicBool>,
}

impl CutTrigger {
    pub(crate) fn new(point: Option<CutPoint>, random: Random, is_cut: Arc<AtomicBool>) -> CutTrigger {
        CutTrigger { point, seen: 0, random, is_cut }
    }

    pub(crate) fn is_cut(&self) -> bool {
        self.is_cut.load(Ordering::Relaxed)
    }

    pub(crate) fn cut(&self) {
        self.is_cut.store(true, Ordering::Relaxed);
    }

    /// Whether the power is cut at a call, and when.
    pub(crate) fn meet(&mut self, call: &Call, paths: &Paths) -> Option<CutMoment> {
        let point = self.point.as_ref().filter(|point| point.is_at(call, paths))?;
        self.seen += 1;
        let is_reached = match point.nth {
            Some(nth) => self.seen == nth,
            None => self.random.below(SEEDED_SHARE) == 0,
        };
        is_reached.then_some(if point.is_before { CutMoment::Before } else { CutMoment::Behind })
    }
}

#[cfg(test)]
mod tests {
    use weir_runtime::{Runtime, Simulation};

    use super::*;
    use crate::operation::Place;
    use crate::tree::ROOT;

    #[test]
    fn a_point_is_at_its_call_and_its_paths() {
        let place = |name: &str| Place { directory: ROOT, name: name.into() };
        let rename = |from: &str, to: &str| Call::Rename {
            inode: 9,
            from: place(from),
            to: place(to),
            replaced: None,
            exchanged: false,
            is_directory: false,
        };
        let calls = [
            rename("a", "b"),
            Call::Sync { inode: 9, data_only: true },
            Call::Acknowledge(0),
            rename("b", "c"),
            Call::Sync { inode: 9, data_only: false },
        ];
        let met = |text: &str| {
            let random = Runtime::simulated(Simulation::default()).handle().random("cut");
            let mut trigger = CutTrigger::new(Some(text.parse().unwrap()), random, Arc::default());
            let mut paths = Paths::default();
            calls.iter().position(|call| {
                let met = trigger.meet(call, &paths);
                paths.follow(call);
                met == Some(if text.starts_with("before") { CutMoment::Before } else { CutMoment::Behind })
            })
        };
        assert_eq!(["fsync:1", "before-fsync:2", "fsync:3"].map(met), [Some(1), Some(4), None]);
        assert_eq!(["rename:1:b", "rename:2", "rename:1:c"].map(met), [Some(0), Some(3), Some(3)]);
        assert_eq!(["fsync:1:c", "before-ack:1", "ack:2"].map(met), [Some(4), Some(2), None]);
        for text in ["", "sync:1", "fsync:0", "ack:1:x", "behind-ack"] {
            assert_eq!(text.parse::<CutPoint>().unwrap_err(), CutPointError(text.to_owned()), "{text}");
        }
    }
}
