//! What a mount says of its replica while programs commit, again and again: so what the store has to have after a crash.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::fs::getxattr;
use serde_json::Value;

/// From one look to the next.
const PAUSE: Duration = Duration::from_millis(10);

/// What a mount says of its replica.
#[derive(Clone, Copy, Debug, Default)]
pub struct Lag {
    /// The newest request in the store.
    pub shipped: u64,
    pub ms: u64,
    pub bytes: u64,
    pub behind: bool,
}

/// The status of the mount on `root`, as its server tells it at once; none if that has ended.
pub fn status_now(root: &Path) -> Option<Value> {
    let mut bytes = vec![0; 1 << 16];
    let found = getxattr(root, "user.weir.status", &mut bytes[..]).ok()?;
    serde_json::from_slice(&bytes[..found]).ok()
}

/// What the mount on `root` says now; none if its server has ended.
pub fn lag_of(root: &Path) -> Option<Lag> {
    let status = status_now(root)?;
    let line = &status["replication"];
    let number = |name: &str| line[name].as_u64();
    let behind = line["behind"].as_bool()?;
    Some(Lag { shipped: number("shipped")?, ms: number("lag_ms")?, bytes: number("lag_bytes")?, behind })
}

/// Whether everything that is durable on a mount is in the store.
pub fn is_up_to_date(root: &Path) -> bool {
    lag_of(root).is_some_and(|lag| !lag.behind && lag.bytes == 0)
}

/// A look at a mount.
struct Look {
    at: Instant,
    /// The newest commit that was acknowledged to each client by then.
    told: Vec<u64>,
    /// What the mount said later.
    lag: Lag,
}

/// What a store has to have.
#[derive(Clone, Debug)]
pub struct Owed {
    /// What the mount said last.
    pub lag: Lag,
    /// The newest commit that was acknowledged to each client before that.
    pub told: Vec<u64>,
    /// And before the time that the store may be behind; nothing while a catch-up is under way, which promises nothing.
    pub least: Vec<u64>,
}

/// A thread that looks.
pub struct LagWatch {
    is_over: Arc<AtomicBool>,
    thread: JoinHandle<Vec<Look>>,
}

impl LagWatch {
    /// Looks at the mount on `root`, and at what `told` gives: how many transactions each client knows to be committed.
    pub fn start(root: PathBuf, mut told: impl FnMut() -> Vec<u64> + Send + 'static) -> LagWatch {
        let is_over = Arc::new(AtomicBool::new(false));
        let ends = Arc::clone(&is_over);
        let thread = std::thread::spawn(move || {
            let mut looks = Vec::new();
            while !ends.load(Ordering::Relaxed) {
                let (told, at) = (told(), Instant::now());
                let Some(lag) = lag_of(&root) else { break };
                looks.push(Look { at, told, lag });
                std::thread::sleep(PAUSE);
            }
            looks
        });
        LagWatch { is_over, thread }
    }

    /// Looks no more: what the last look says. `bound` is that of the mount.
    pub fn end(self, bound: Duration) -> Owed {
        self.is_over.store(true, Ordering::Relaxed);
        let looks = self.thread.join().unwrap();
        let last = looks.last().expect("the mount said nothing");
        let nothing = vec![0; last.told.len()];
        // Milliseconds are told in whole ones.
        let age = Duration::from_millis(last.lag.ms + 1);
        let is_catching_up = last.lag.behind && u128::from(last.lag.ms) <= bound.as_millis();
        let shipped = looks.iter().rev().find(|look| look.at + age <= last.at).filter(|_| !is_catching_up);
        let least = shipped.map_or(nothing, |look| look.told.clone());
        Owed { lag: last.lag, told: last.told.clone(), least }
    }
}

impl Owed {
    /// Fails if a store lacks more than the mount said: `found` is what each client finds there, of transactions that take `bytes`
    /// each at least. Returns how many of those that were told are not there.
    pub fn require(&self, found: &[u64], bytes: u64) -> Result<u64, String> {
        let lacks = |told: &[u64]| -> u64 {
            told.iter().zip(found).map(|(told, found)| told.saturating_sub(*found)).sum()
        };
        let lost = lacks(&self.told);
        let is_within = lacks(&self.least) == 0 && (self.lag.behind || lost * bytes <= self.lag.bytes);
        if is_within { Ok(lost) } else { Err(format!("the store has {found:?}, and should have {self:?}")) }
    }
}
