//! *Run*: a program works on a mount that records what it does.

use std::fs;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use futures_util::future::{Either, select};
use regex_lite::Regex;
use rustix::process::{getegid, geteuid};
use thiserror::Error;
use weir_fuse::{REQUEST_BYTES_UNDER_WAY_MAX, Server, ServerError, ServerOptions, SyncMode};
use weir_runtime::{Cancelled, Handle};
use weir_vfs::FsError;

use crate::cut_point::CutPoint;
use crate::disk_ground::{DiskGround, DiskGroundError};
use crate::fault::Fault;
use crate::filesystem::RecordedFilesystem;
use crate::record::{Record, RecordError};
use crate::tree::Tree;
use crate::workplace::Workplace;

/// How long to wait for the unmount while a program keeps the mount in use.
const UNMOUNT_WAIT: Duration = Duration::from_secs(5);

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
    pub disk: Option<DiskGround>,
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

/// What a run has left.
#[derive(Debug)]
pub struct RecordedRun {
    /// What it did.
    pub record: Record,
    /// How long the recorded command took.
    pub seconds: f64,
    /// What went wrong by its faults, in words.
    pub faults: Vec<String>,
    /// What makes the record worth less.
    pub warnings: Vec<String>,
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

/// Mounts, runs, and unmounts.
///
/// # Errors
/// All of [`RunError`].
pub async fn record_run(handle: &Handle, plan: &RunPlan) -> Result<RecordedRun, RunError> {
    let mountpoint = plan.scratch.join("mount");
    match fs::create_dir(&mountpoint) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && plan.base.is_some() => {}
        made => made?,
    }
    let owner = (geteuid().as_raw(), getegid().as_raw());
    let filesystem = RecordedFilesystem::new(handle, owner, plan.data_max);
    let options = ServerOptions {
        name: "weir-crash".to_owned(),
        allow_other: false,
        read_only: false,
        no_exec: false,
        access_times: false,
        sync: SyncMode::Durable,
        writeback_cache: false,
        open_requests: false,
        file_handles: true,
        awake: false,
        request_bytes_max: REQUEST_BYTES_UNDER_WAY_MAX,
    };
    let status = async |_, _| "{}".to_owned();
    let trim = async |_, _| Err(FsError::Unsupported("trim"));
    let served = filesystem.to_filesystem();
    let mut server = Server::mount(handle, served, &mountpoint, &options, status, trim).await?;
    let workplace = Workplace::new(handle, plan, &filesystem, &mountpoint);
    let ran = workplace.run_both().await;
    server.unmount().await?;
    // A process that was not found may keep a file open, and the mount with it, until the test has ended.
    let is_kept = match select(server.ended(), handle.sleep(UNMOUNT_WAIT)).await {
        Either::Left((ended, _)) => ended.map(|()| false)?,
        Either::Right(_) => true,
    };
    let mut record = filesystem.take_record();
    record.disk = workplace.disk_record();
    // The command fails then, too.
    if let Some(error) = record.take_error() {
        return Err(error.into());
    }
    let (met, missed) = filesystem.take_met();
    let mut warnings = Vec::new();
    let (seconds, left_behind) = match ran? {
        // A program may end when something goes wrong, and what it has left is right or not.
        (seconds, Err(RunError::Failed { which, ending, .. })) if !met.is_empty() => {
            warnings.push(format!("{which} failed after a fault: {ending}"));
            (seconds, Vec::new())
        }
        (seconds, ended) => (seconds, ended?),
    };
    if !missed.is_empty() {
        warnings.push(format!("the run met no such call, so no fault: {}", missed.join(", ")));
    }
    if !left_behind.is_empty() {
        let all = left_behind.join(", ");
        warnings.push(format!("what the commands left running was ended: {all}: have them wait for it"));
    }
    if is_kept {
        warnings.push("a process that the commands left running keeps files of the mount open".to_owned());
    }
    Ok(RecordedRun { record, seconds, faults: met, warnings })
}
