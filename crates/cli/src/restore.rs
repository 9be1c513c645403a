//! `weir restore`: makes a volume of a replica, as of a state that is kept.

use std::path::{Path, PathBuf};
use std::rc::Rc;

use clap::Args;
use serde::Serialize;
use weir_replica::{KeptState, Replica, ReplicaError, Restored, WantedState};
use weir_runtime::{Handle, keep_freed_memory};
use weir_storage::Storage as _;
use weir_volume::{Format, Volume, VolumeOptions};

use crate::error::CliError;
use crate::replica::{At, ReadArguments, RequestCounts, file_size, open_store, sparse, tell_of_passed_over};
use crate::size::Size;
use crate::volume::{ground, not_created, require_empty};
use crate::{Verdict, in_wall_time, print};

/// Arguments of `weir restore`.
#[derive(Debug, Args)]
pub(crate) struct RestoreArguments {
    /// Where the replica is: s3://BUCKET/PREFIX or file:///DIRECTORY
    url: String,
    /// A new file, which appears when it is whole; or an empty file or block device
    volume: PathBuf,
    /// The state at a time, such as "2026-11-28 17:35:00" in UTC, or at a position, see weir replicate --check
    /// [default: the newest]
    #[arg(long, value_name = "TIME|POSITION", default_value = "newest", hide_default_value = true)]
    at: At,
    /// Size of the file [default: what the volume's capacity needs; it is sparse]
    #[arg(long, value_name = "SIZE")]
    size: Option<Size>,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    read: ReadArguments,
}

/// What was restored, for machines.
#[derive(Debug, Serialize)]
struct Document {
    sequence: u64,
    /// When the state was shipped, in UTC.
    time: String,
    /// The replica has no newer one, as far as that was looked at.
    newest: bool,
    objects: u64,
    object_bytes: u64,
    blocks: u64,
    requests: RequestCounts,
}

/// Runs `weir restore`.
pub(crate) fn run(arguments: &RestoreArguments) -> Result<Verdict, CliError> {
    keep_freed_memory();
    in_wall_time(0, async |handle: Handle| restore(&handle, arguments).await)
}

async fn restore(handle: &Handle, arguments: &RestoreArguments) -> Result<Verdict, CliError> {
    let path = &arguments.volume;
    let store = open_store(handle, &arguments.url, false)?;
    let replica = Replica::open(handle, store, arguments.read.options()?).await?;
    let logical_blocks = replica.descriptor().logical_blocks;
    let size = match arguments.size {
        None if !path.exists() => Some(file_size(logical_blocks)),
        asked => asked,
    };
    if path.exists() {
        require_empty(path).map_err(without_force)?;
    }
    let (disk, made) = ground(handle, path, size, sparse())?;
    let format = Format { logical_blocks, ..Format::sized_for(disk.blocks()) };
    if let Err(source) = Volume::create(handle, &*disk, format).await {
        made.undo(path);
        return Err(not_created(path, None, source));
    }
    let outcome = fill(handle, &replica, arguments.at.0, Rc::clone(&disk), path).await;
    // What is not whole gets no name, and is not left where nothing was.
    let restored = outcome.inspect_err(|_| made.undo(path))?;
    disk.name()?;
    tell_of_passed_over(&arguments.url, &restored.passed_over);
    let Restored { sequence, created_ms, is_newest: newest, objects, bytes, blocks, .. } = restored;
    let time = KeptState { sequence, created_ms }.time();
    if arguments.json {
        let requests = replica.requests().into();
        let document = Document { sequence, time, newest, objects, object_bytes: bytes, blocks, requests };
        print(&serde_json::to_string(&document)?)?;
    } else {
        let behind = match arguments.at.0 {
            WantedState::Time(asked) if newest && asked > created_ms => {
                "; it is the newest state: nothing was shipped between that and the time asked for"
            }
            _ => "",
        };
        print(&format!(
            "{}: the volume as of position {sequence} of {time}{behind}; {} read, {}",
            path.display(),
            crate::plain::counted(objects, "object", "objects"),
            Size(bytes)
        ))?;
    }
    Ok(Verdict::Good)
}

/// That something is there: this command destroys nothing.
fn without_force(error: CliError) -> CliError {
    match error {
        CliError::InUse { path, found } => CliError::RestoredOver { path, found },
        other => other,
    }
}

async fn fill(
    handle: &Handle,
    replica: &Replica,
    wanted: WantedState,
    disk: Rc<weir_storage::FileDisk>,
    path: &Path,
) -> Result<Restored, CliError> {
    let of_volume = |source| CliError::of_volume(path, source);
    let volume = Volume::open(handle, disk, VolumeOptions::default()).await.map_err(of_volume)?;
    let restored = replica.restore(wanted, &volume).await?;
    if restored.sequence == 0 {
        return Err(ReplicaError::NoState.into());
    }
    volume.close().await.map_err(of_volume)?;
    Ok(restored)
}
