//! *Run*: a program works on a mount that records what it does.

use std::fs;
use std::io;
use std::time::Duration;

use futures_util::future::{Either, select};
use rustix::process::{getegid, geteuid};
use weir_fuse::{REQUEST_BYTES_UNDER_WAY_MAX, Server, ServerOptions, SyncMode};
use weir_runtime::Handle;
use weir_vfs::FsError;

use crate::filesystem::RecordedFilesystem;
use crate::record::Record;
use crate::run_plan::{RunError, RunPlan};
use crate::workplace::Workplace;

/// How long to wait for the unmount while a program keeps the mount in use.
const UNMOUNT_WAIT: Duration = Duration::from_secs(5);

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
    filesystem.stop_delays_by(&plan.stops);
    if let Some(cut) = &plan.cut {
        filesystem.stop_delays_by(&cut.is_cut);
    }
    let options = ServerOptions {
        name: "weir-crash".to_owned(),
        allow_other: false,
        read_only: false,
        no_exec: false,
        access_times: false,
        sync: SyncMode::Durable,
        store: None,
        writeback_cache: false,
        open_requests: false,
        file_handles: true,
        awake: false,
        request_bytes_max: REQUEST_BYTES_UNDER_WAY_MAX,
    };
    let status = async |_, _| "{}".to_owned();
    let trim = async |_, _| Err(FsError::Unsupported("trim"));
    let snapshots = async |_| Err(FsError::Unsupported("snapshots"));
    let served = filesystem.to_filesystem();
    let at = (mountpoint.as_path(), None);
    let mut server = Server::mount(handle, served, at, &options, status, trim, snapshots).await?;
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
