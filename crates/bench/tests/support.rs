//! What the tests of benchmarks share: a place, options, a runtime.

use std::path::Path;

use tempfile::TempDir;
use weir_bench::BenchOptions;
use weir_runtime::{Runtime, Wall};

pub fn options(directory: &Path) -> BenchOptions {
    BenchOptions {
        directory: directory.to_owned(),
        device: None,
        span_bytes: None,
        rounds: None,
        seed: 3,
        keep: false,
    }
}

pub fn runtime() -> Runtime {
    Runtime::wall(Wall { seed: 3, ..Wall::default() }).unwrap()
}

/// The build's own directory: on a real disk, where /tmp often is not.
pub fn directory() -> TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

/// A directory in memory, where there is such a place, for what is counted and not timed.
pub fn directory_in_memory() -> TempDir {
    match Path::new("/dev/shm") {
        memory if memory.is_dir() => tempfile::tempdir_in(memory).unwrap(),
        _ => directory(),
    }
}
