//! What trials of hostile bytes have in common: each ends, in virtual time, and takes little memory; and where the
//! bytes come from.

#![allow(dead_code, reason = "each caller uses a part of it")]

use std::fs;
use std::path::Path;
use std::pin::pin;
use std::time::Duration;

use futures_util::future::{Either, select};
use weir_runtime::{Handle, Runtime, Simulation};

/// No trial takes longer, in virtual time.
const TIME_MAX: Duration = Duration::from_secs(3600);
/// What the tests and the fuzz targets may have in memory at most.
const MEMORY_MAX: u64 = 1 << 30;
/// Cases that the fuzz targets have found worth keeping, at least.
const CORPUS_MIN: usize = 20;

/// Runs `script` in virtual time.
///
/// # Panics
/// If that takes longer than it may.
pub fn run<T>(script: impl AsyncFnOnce(Handle) -> T) -> T {
    let runtime = Runtime::simulated(Simulation::default());
    let clock = runtime.handle();
    let script = pin!(script(clock.clone()));
    let trial = async {
        match select(script, pin!(clock.sleep(TIME_MAX))).await {
            Either::Left((found, _)) => found,
            Either::Right(_) => panic!("it does not end"),
        }
    };
    runtime.block_on(trial).expect("it does not wait for ever")
}

/// Asserts that this process has never had more memory than it may.
pub fn within_memory() {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = peak.and_then(|peak| peak.trim().strip_suffix("kB")?.trim().parse::<u64>().ok());
    assert!(kib.is_none_or(|kib| kib * 1024 < MEMORY_MAX), "{kib:?} KiB of memory");
}

/// Plays what a fuzz target has found worth keeping: each case a file of bytes.
pub fn play_corpus(target: &str, mut play: impl FnMut(&[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target);
    let cases = folder.read_dir().expect("a corpus").map(|case| case.expect("a file").path());
    let mut files: Vec<_> = cases.collect();
    files.sort();
    assert!(files.len() >= CORPUS_MIN, "{} cases", files.len());
    for file in files {
        eprintln!("{}", file.display());
        play(&fs::read(&file).expect("a case"));
    }
}

/// How many cases are made by chance: what `WEIR_CASES` says, or so many.
pub fn cases(unless_set: u64) -> u64 {
    std::env::var("WEIR_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(unless_set)
}
