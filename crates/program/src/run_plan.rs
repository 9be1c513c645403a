//! *Run plan*: what is run, how it is recorded, and why it may fail.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use regex_lite::Regex;
use thiserror::Error;
use weir_fuse::ServerError;
use weir_runtime::Cancelled;

use crate::cut_point::CutPoint;
use crate::disk_ground::{DiskGround, DiskGroundError};
use crate::fault::Fault;
use crate::record::RecordError;
use crate::tree::Tree;

/// What is run, and how it is recorded.
#[derive(Clone, Debug)]
pub struct RunPlan {
    /// Makes what the run begins with.
    pub setup: Option<String>,
    /// What is recorded.
    pub run: String,
    /// How long each of them may take.
    pub limit: Duration,
    /// Bytes that both may write.
    pub data_max: u64,
    /// A line of the run's standard output that matches acknowledges: its first group, or all that matches.
    pub ack_pattern: Option<Regex>,
    /// What goes wrong while it runs.
    pub faults: Vec<Fault>,
    /// The disk whose filesystem it works on; without one it works on the recording mount itself.
    pub disk: Option<RunDisk>,
    /// A directory for the mount.
    pub scratch: PathBuf,
    /// The directory that the commands find as `WEIR_HERE`.
    pub here: PathBuf,
    /// Becomes true when the commands are to be ended.
    pub stops: Arc<AtomicBool>,
    /// Cuts the power while it runs.
    pub cut: Option<RunCut>,
    /// What it begins with in place of what the setup makes.
    pub base: Option<RunBase>,
    /// The number of the run, which the seed counts with.
    pub round: u64,
}

/// The disk of a run.
#[derive(Clone, Debug)]
pub struct RunDisk {
    /// What it is.
    pub ground: DiskGround,
    /// The program `weir`, for filesystems of Weir.
    pub weir: PathBuf,
}

/// A cut while a program runs.
#[derive(Clone, Debug)]
pub struct RunCut {
    /// At which call.
    pub point: Option<CutPoint>,
    /// The power is cut. It may be set from elsewhere, too: by a signal.
    pub is_cut: Arc<AtomicBool>,
}

/// What an earlier run has left.
#[derive(Clone, Debug)]
pub struct RunBase {
    /// Its files.
    pub tree: Tree,
    /// The lines that were acknowledged.
    pub lines: Vec<Vec<u8>>,
}

/// Why there is no record.
#[derive(Debug, Error)]
pub enum RunError {
    /// There is no mount.
    #[error(transparent)]
    Server(#[from] ServerError),
    /// A command cannot be started, or its output not be kept.
    #[error("cannot run a command: {0}")]
    Io(#[from] io::Error),
    /// A thread has ended by itself.
    #[error("cannot run a command: {0}")]
    Cancelled(#[from] Cancelled),
    /// A command failed.
    #[error("{which} failed: {ending}\n{output}")]
    Failed {
        /// `--setup` or `--run`.
        which: &'static str,
        /// How it ended.
        ending: String,
        /// What it printed.
        output: String,
    },
    /// There is no disk with a filesystem.
    #[error(transparent)]
    Disk(#[from] DiskGroundError),
    /// It was stopped.
    #[error("the test was ended by a signal")]
    Stopped,
    /// It did more than can be kept.
    #[error(transparent)]
    Record(#[from] RecordError),
}
