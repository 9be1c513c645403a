//! `weir snapshot` and `weir clone`: snapshots and clones of a volume, closed or mounted.

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use rustix::io::Errno;
use weir_fuse::{SnapshotCall, VolumeCall};
use weir_runtime::Handle;
use weir_storage::StorageError;
use weir_vfs::{FsError, ReadOnlyReason};
use weir_volume::{SnapshotError, Volume, VolumeOptions};

use crate::ask_volume::ask_server;
use crate::branch_status::BranchStatus;
use crate::error::CliError;
use crate::stack::Stack;
use crate::{in_wall_time, print, status};

/// What to do with snapshots.
#[derive(Debug, Subcommand)]
pub(crate) enum SnapshotCommand {
    /// Keep what the volume holds now, under a name. On a mount, everything becomes durable before
    Create(NameArguments),
    /// List snapshots and clones, the oldest first
    List(ListArguments),
    /// Delete a snapshot or a clone
    Delete(NameArguments),
    /// Take the volume back to a snapshot. What was written since is lost, where no snapshot has it. Not on a mount
    Rollback(NameArguments),
}

/// A volume, and a name.
#[derive(Debug, Args)]
pub(crate) struct NameArguments {
    /// The volume's file or block device, or the directory that it is mounted on
    #[arg(value_name = "VOLUME|DIRECTORY")]
    path: PathBuf,
    /// 1 to 64 letters, digits, dots, hyphens and underscores
    name: String,
}

/// Arguments of `weir snapshot list`.
#[derive(Debug, Args)]
pub(crate) struct ListArguments {
    /// The volume's file or block device, or the directory that it is mounted on
    #[arg(value_name = "VOLUME|DIRECTORY")]
    path: PathBuf,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

/// Arguments of `weir clone`.
#[derive(Debug, Args)]
pub(crate) struct CloneArguments {
    /// The volume's file or block device, or the directory that it is mounted on
    #[arg(value_name = "VOLUME|DIRECTORY")]
    path: PathBuf,
    /// The snapshot
    snapshot: String,
    /// The name of the clone
    name: String,
}

/// Runs `weir snapshot`.
pub(crate) fn run(command: &SnapshotCommand) -> Result<(), CliError> {
    match command {
        SnapshotCommand::Create(NameArguments { path, name }) => {
            change(path, SnapshotCall::Create(name.clone()))
        }
        SnapshotCommand::Delete(NameArguments { path, name }) => {
            change(path, SnapshotCall::Delete(name.clone()))
        }
        SnapshotCommand::List(arguments) => list(arguments),
        SnapshotCommand::Rollback(NameArguments { path, name }) => roll_back(path, name),
    }
}

/// Runs `weir clone`.
pub(crate) fn run_clone(arguments: &CloneArguments) -> Result<(), CliError> {
    let CloneArguments { path, snapshot, name } = arguments;
    change(path, SnapshotCall::Clone { snapshot: snapshot.clone(), name: name.clone() })
}

/// Changes the snapshots of a volume that is closed, or asks the server that has it.
fn change(path: &Path, call: SnapshotCall) -> Result<(), CliError> {
    if path.is_dir() {
        let explained = |errno| explain(path, &call, errno);
        return ask_server(path, &VolumeCall::Snapshot(call.clone()), explained);
    }
    with_volume(path, async |volume| apply(volume, &call).await)
}

fn roll_back(path: &Path, name: &str) -> Result<(), CliError> {
    if path.is_dir() {
        return Err(CliError::Usage(
            "a mounted volume cannot be taken back: unmount it, and name its file or device",
        ));
    }
    with_volume(path, async |volume| volume.roll_back(name).await)
}

/// Opens a volume, does something with its snapshots, and closes it.
fn with_volume(
    path: &Path,
    work: impl AsyncFnOnce(&Volume) -> Result<(), SnapshotError>,
) -> Result<(), CliError> {
    in_wall_time(0, async |handle: Handle| {
        let stack = Stack::open_volume(&handle, path, VolumeOptions::default()).await?;
        let done = work(&*stack.require_volume(path)?).await;
        stack.close(path).await?;
        done.map_err(|source| CliError::Snapshot { path: path.to_owned(), source })
    })
}

/// Does what a call asks of an open volume.
async fn apply(volume: &Volume, call: &SnapshotCall) -> Result<(), SnapshotError> {
    match call {
        SnapshotCall::Create(name) => volume.create_snapshot(name).await.map(drop),
        SnapshotCall::Clone { snapshot, name } => volume.create_clone(snapshot, name).await.map(drop),
        SnapshotCall::Delete(name) => volume.delete_snapshot(name).await,
    }
}

/// Does what a call asks; its error is one that the kernel can pass on.
pub(crate) async fn change_served(stack: &Stack, call: SnapshotCall) -> Result<(), FsError> {
    let volume = stack.resizable_volume().ok_or(FsError::Unsupported("snapshots without a volume"))?;
    // A snapshot would be of the volume, not of what is mounted here.
    if stack.is_branch() {
        return Err(FsError::ReadOnly(ReadOnlyReason::Mounted));
    }
    volume.with_current(async |volume| apply(volume, &call).await).await.map_err(|error| match error {
        SnapshotError::NoSlots => FsError::Unsupported("snapshots"),
        SnapshotError::NoMark => FsError::Storage(StorageError::Aborted),
        SnapshotError::NoneFree => FsError::TooManyLinks,
        SnapshotError::InUse(_) => FsError::UpdateOpen,
        SnapshotError::Unknown(_) => FsError::NotFound,
        SnapshotError::NoSnapshot(_) | SnapshotError::NotEarlier(_) => FsError::IsDirectory,
        SnapshotError::Exists(_) => FsError::Exists,
        SnapshotError::Name(_) => FsError::NameLength,
        SnapshotError::HasClone(_) => FsError::NotEmpty,
        SnapshotError::Volume(error) => error.into(),
    })
}

fn explain(path: &Path, call: &SnapshotCall, errno: Errno) -> CliError {
    let (SnapshotCall::Create(name) | SnapshotCall::Delete(name) | SnapshotCall::Clone { name, .. }) = call;
    let (name, of) = match call {
        SnapshotCall::Clone { snapshot, name } => (name.clone(), snapshot.clone()),
        _ => (name.clone(), name.clone()),
    };
    let source = match errno {
        Errno::OPNOTSUPP => SnapshotError::NoSlots,
        Errno::NOENT => SnapshotError::Unknown(of),
        Errno::EXIST => SnapshotError::Exists(name),
        Errno::ISDIR => SnapshotError::NoSnapshot(of),
        Errno::NAMETOOLONG | Errno::INVAL => SnapshotError::Name(name),
        Errno::MLINK => SnapshotError::NoneFree,
        Errno::BUSY => SnapshotError::InUse(name),
        Errno::NOTEMPTY => SnapshotError::HasClone(of),
        Errno::ROFS => {
            return CliError::Usage(
                "a snapshot or a clone is mounted there, or it is read-only: unmount it, and name the volume's file or device",
            );
        }
        _ => {
            let doing = "change the snapshots of";
            return CliError::File { doing, path: path.to_owned(), source: errno.into() };
        }
    };
    CliError::Snapshot { path: path.to_owned(), source }
}

fn list(arguments: &ListArguments) -> Result<(), CliError> {
    let path = &arguments.path;
    let found = if path.is_dir() {
        status::ask(path)?.storage.volume.map_or_else(Vec::new, |volume| volume.snapshots)
    } else {
        in_wall_time(0, async |handle: Handle| {
            let stack = Stack::open(&handle, path, true).await?;
            let volume = stack.require_volume(path)?;
            Ok(BranchStatus::list_of(&volume))
        })?
    };
    if arguments.json {
        return print(&serde_json::to_string(&found).unwrap_or_default());
    }
    if found.is_empty() {
        return print("no snapshots");
    }
    let width = found.iter().map(|branch| branch.name.len()).max().unwrap_or(0);
    let line = |BranchStatus { name, kind, sequence, made }: &BranchStatus| {
        format!("{name:width$}  {kind:8}  {made}  position {sequence}")
    };
    print(&found.iter().map(line).collect::<Vec<_>>().join("\n"))
}
