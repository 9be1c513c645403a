//! Why the program could not do what it was asked to: one line that names the cause and what to do.

use std::path::PathBuf;

use thiserror::Error;
use weir_runtime::{RuntimeError, Stalled};
use weir_storage::FileDiskError;
use weir_volume::VolumeError;
use weir_workload::BenchError;

/// Why a command failed.
#[derive(Debug, Error)]
pub(crate) enum CliError {
    /// The benchmark failed.
    #[error(transparent)]
    Bench(#[from] BenchError),
    /// The runtime could not start.
    #[error(transparent)]
    Runtime(#[from] RuntimeError),
    /// The runtime has nothing left to wait for.
    #[error(transparent)]
    Stalled(#[from] Stalled),
    /// The path is no disk, or not a usable one.
    #[error(transparent)]
    Disk(#[from] FileDiskError),
    /// The volume on the path cannot be used.
    #[error("{}: {source}", path.display())]
    Volume {
        /// The path.
        path: PathBuf,
        /// What is wrong.
        source: VolumeError,
    },
    /// There is data that only `--force` overwrites.
    #[error("{}: {source}; to destroy what is there, add --force", path.display())]
    Occupied {
        /// The path.
        path: PathBuf,
        /// What is there.
        source: VolumeError,
    },
    /// A file that is not there has no size.
    #[error("{} is not there yet, or empty: say how large to make it, as in --size 4G", path.display())]
    NoSize {
        /// The path.
        path: PathBuf,
    },
    /// What is there has a size already.
    #[error("{} has {found} bytes, not the {asked} of --size: leave out --size, or name another file", path.display())]
    OtherSize {
        /// The path.
        path: PathBuf,
        /// Its size.
        found: u64,
        /// The size asked for.
        asked: u64,
    },
    /// The file could not be made ready.
    #[error("cannot {doing} {}: {source}", path.display())]
    File {
        /// What was tried.
        doing: &'static str,
        /// The path.
        path: PathBuf,
        /// The kernel's answer.
        source: std::io::Error,
    },
    /// Standard output is gone.
    #[error("cannot write to standard output: {0}")]
    Output(#[from] std::io::Error),
    /// The result could not be written as JSON.
    #[error("cannot write the result as JSON: {0}")]
    Json(#[from] serde_json::Error),
}
