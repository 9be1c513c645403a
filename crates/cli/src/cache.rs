//! `weir mount URL --cache FILE`: the newest state of a replica, to be changed. What is written goes to a volume in the file, which
//! lies on that state, and is shipped to the URL.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::ErrorKind;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use weir_replica::{Descriptor, ReplicaBase, ReplicaError, Uploader};
use weir_runtime::Handle;
use weir_storage::{FileDisk, FileDiskOptions, Storage as _};
use weir_volume::{Base, Format, Volume, VolumeOptions};

use crate::error::CliError;
use crate::memory::Limit;
use crate::occupant::{Content, content};
use crate::open::open_disk;
use crate::replica::{file_size, open_store, sparse};
use crate::replication::{ReplicationArguments, Shipping};
use crate::stack::{Stack, find_volume};
use crate::volume::{not_created, require_directory_of, set_file_bytes};

/// Permissions of a new file: its blocks show what a filesystem in it protects.
const OWNERS_ALONE: u32 = 0o600;

/// What is opened, and how.
pub(crate) struct Opening<'a> {
    pub(crate) handle: &'a Handle,
    pub(crate) url: &'a str,
    pub(crate) path: &'a Path,
    pub(crate) arguments: &'a ReplicationArguments,
    pub(crate) limit: Limit,
    /// Nothing is shipped for longer than the store answers.
    pub(crate) stops: bool,
    pub(crate) volume: VolumeOptions,
}

/// Opens the volume in the file, or takes the replica over and makes one, and begins to ship it. Before it takes the replica over,
/// `try_out` is asked to mount what the volume will be like: what it refuses leaves the writer before as it is.
pub(crate) async fn open(
    opening: Opening<'_>,
    try_out: impl AsyncFnOnce(Stack) -> Result<(), CliError>,
) -> Result<(Stack, Shipping), CliError> {
    let Opening { handle, url, path, arguments, limit, stops, ref volume } = opening;
    let options = arguments.options(stops)?;
    let store = open_store(handle, url, options.unfenced)?;
    let mut base = ReplicaBase::open(handle, store, options).await?;
    let mut trial = Some(try_out);
    if holds_nothing(path)?
        && let Some(try_out) = trial.take()
    {
        try_out(open_trial(&opening, &base).await?).await?;
        make_empty(path)?;
    }
    let disk = open_file(&opening, &mut base, trial).await?;
    let replica = base.storage(limit.cache_bytes());
    let stack = Stack::open_on_replica(handle, (path, disk), replica.clone(), volume.clone()).await?;
    let opened = stack.require_volume(path)?;
    let uploader = Uploader::open_on_base(handle, opened, base, arguments.bounds()).await;
    let uploader = uploader.map_err(|source| of_file(path, source))?;
    Ok((stack, arguments.ship(handle, uploader.into(), url, Some(replica))))
}

/// Whether there is no file, or one without anything in it.
fn holds_nothing(path: &Path) -> Result<bool, CliError> {
    let failed = |source| CliError::File { doing: "look for data in", path: path.to_owned(), source };
    match std::fs::metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(true),
        Ok(found) if found.is_file() => Ok(content(path).map_err(failed)? == Content::Empty),
        found => found.map(|_| false).map_err(failed),
    }
}

/// Makes an empty file, if there is none: its name is there before the replica is taken over.
fn make_empty(path: &Path) -> Result<(), CliError> {
    match File::options().write(true).create_new(true).mode(OWNERS_ALONE).open(path) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => {
            Err(CliError::File { doing: "create", path: path.to_owned(), source: error })
        }
        _ => Ok(()),
    }
}

/// A volume as it will be made, in a file beside that has no name.
async fn open_trial(opening: &Opening<'_>, base: &ReplicaBase) -> Result<Stack, CliError> {
    let Opening { handle, path, limit, ref volume, .. } = *opening;
    require_directory_of(path)?;
    let beside = PathBuf::from([path.as_os_str(), OsStr::new(".trial")].into_iter().collect::<OsString>());
    let size = file_size(base.descriptor().logical_blocks);
    let disk = FileDisk::create_unnamed(handle, &beside, size.0, sparse())?;
    if disk.has_name() {
        let failed = |source| CliError::File { doing: "remove", path: beside.clone(), source };
        std::fs::remove_file(&beside).map_err(failed)?;
    }
    create_volume(handle, (path, &disk), base.descriptor(), base.base_of_trial()?).await?;
    let replica = base.storage(limit.cache_bytes());
    Stack::open_on_replica(handle, (path, disk), replica, volume.clone()).await
}

/// Opens the file with its volume, which has to be of this replica; or makes the volume, after the trial, if that is still to be
/// made. No other process has the file open when the replica is taken over for it.
async fn open_file(
    opening: &Opening<'_>,
    base: &mut ReplicaBase,
    trial: Option<impl AsyncFnOnce(Stack) -> Result<(), CliError>>,
) -> Result<Rc<FileDisk>, CliError> {
    let Opening { handle, path, .. } = *opening;
    let size_if_empty = Some(file_size(base.descriptor().logical_blocks).0);
    let disk = open_disk(handle, path, FileDiskOptions { size_if_empty, ..sparse() }).await?;
    let foreign = match find_volume(&disk, path).await {
        Ok(info) => {
            base.require_base_of(&info).await.map_err(|source| of_file(path, source))?;
            return Ok(disk);
        }
        Err(foreign) => foreign,
    };
    // A server that was ended while it made the volume leaves a part of that, and nothing was written to it yet.
    let descriptor = base.descriptor();
    let unused = Volume::require_unused(&*disk, format_of(descriptor, &disk), descriptor.volume).await;
    if unused.is_err() || !path.is_file() {
        return Err(foreign);
    }
    if let Some(try_out) = trial {
        try_out(open_trial(opening, base).await?).await?;
    }
    // What is not whole is not left, so that it can be made again.
    let made = make_volume(handle, (path, &disk), base).await;
    made.inspect_err(|_| drop(set_file_bytes(path, 0)))?;
    Ok(disk)
}

/// Takes the replica over, and makes the volume in a file without one.
async fn make_volume(
    handle: &Handle,
    (path, disk): (&Path, &FileDisk),
    base: &mut ReplicaBase,
) -> Result<(), CliError> {
    let made_on = base.begin_volume().await?;
    create_volume(handle, (path, disk), base.descriptor(), made_on).await
}

async fn create_volume(
    handle: &Handle,
    (path, disk): (&Path, &FileDisk),
    descriptor: Descriptor,
    base: Base,
) -> Result<(), CliError> {
    let format = format_of(descriptor, disk);
    let created = Volume::create_on_base(handle, disk, format, descriptor.volume, base).await;
    created.map_err(|source| not_created(path, None, source))
}

fn format_of(descriptor: Descriptor, disk: &FileDisk) -> Format {
    Format { logical_blocks: descriptor.logical_blocks, ..Format::sized_for(disk.blocks()) }
}

/// An error that says what is wrong with the file, if it is that.
fn of_file(path: &Path, source: ReplicaError) -> CliError {
    match source {
        ReplicaError::OtherVolume { .. } | ReplicaError::OtherBase | ReplicaError::Ahead { .. } => {
            CliError::Cache { path: path.to_owned(), source }
        }
        source => source.into(),
    }
}
