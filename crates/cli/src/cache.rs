//! `weir mount URL --cache FILE`: the newest state of a replica, to be changed. What is written goes to a volume in the file, which
//! lies on that state, and is shipped to the URL.

use std::path::Path;
use std::rc::Rc;

use weir_replica::{ReplicaBase, ReplicaError, Uploader};
use weir_runtime::Handle;
use weir_storage::{FileDisk, FileDiskOptions, Storage as _};
use weir_volume::{Format, Volume, VolumeError, VolumeOptions};

use crate::error::CliError;
use crate::memory::Limit;
use crate::open::open_disk;
use crate::replica::{file_size, open_store, sparse};
use crate::replication::{ReplicationArguments, Shipping};
use crate::stack::{Stack, no_volume};
use crate::volume::{ground, not_created};

/// Opens the volume in the file, or takes the replica over and makes one, and begins to ship it. With `stops`, not for longer than
/// the store answers.
pub(crate) async fn open(
    handle: &Handle,
    url: &str,
    path: &Path,
    arguments: &ReplicationArguments,
    (limit, stops): (Limit, bool),
    volume: VolumeOptions,
) -> Result<(Stack, Shipping), CliError> {
    let options = arguments.options(stops)?;
    let store = open_store(handle, url, options.unfenced)?;
    let mut base = ReplicaBase::open(handle, store, options).await?;
    let is_empty = std::fs::metadata(path).is_ok_and(|found| found.is_file() && found.len() == 0);
    let disk = match is_empty || !path.exists() {
        true => make_volume(handle, path, &mut base).await?,
        false => find_volume(handle, path, &base).await?,
    };
    let replica = base.storage(limit.cache_bytes());
    let stack = Stack::open_on_replica(handle, (path, disk), replica.clone(), volume).await?;
    let opened = stack.require_volume(path)?;
    let uploader = Uploader::open_on_base(handle, opened, base, arguments.bounds()).await;
    let uploader = uploader.map_err(|source| of_file(path, source))?;
    Ok((stack, arguments.ship(handle, uploader, url, Some(replica))))
}

/// Makes the volume in a new file. The replica is taken over when there is room for that.
async fn make_volume(handle: &Handle, path: &Path, base: &mut ReplicaBase) -> Result<Rc<FileDisk>, CliError> {
    let descriptor = base.descriptor();
    let (disk, made) = ground(handle, path, Some(file_size(descriptor.logical_blocks)), sparse())?;
    let format = Format { logical_blocks: descriptor.logical_blocks, ..Format::sized_for(disk.blocks()) };
    let created = async {
        let made_on = base.begin_volume().await?;
        let created = Volume::create_on_base(handle, &*disk, format, descriptor.volume, made_on).await;
        created.map_err(|source| not_created(path, None, source))?;
        Ok(disk.name()?)
    };
    // What is not whole gets no name, and is not left where nothing was.
    created.await.inspect_err(|_: &CliError| made.undo(path))?;
    Ok(disk)
}

/// Finds the volume in a file, which has to be of this replica.
async fn find_volume(handle: &Handle, path: &Path, base: &ReplicaBase) -> Result<Rc<FileDisk>, CliError> {
    let disk = open_disk(handle, path, FileDiskOptions::default()).await?;
    let info = match weir_volume::inspect(&*disk).await {
        Err(VolumeError::Foreign) => return Err(no_volume(&disk, path).await),
        found => found.map_err(|source| CliError::of_volume(path, source))?,
    };
    base.require_base_of(&info).await.map_err(|source| of_file(path, source))?;
    Ok(disk)
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
