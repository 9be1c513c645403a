//! `weir volume grow` and `weir volume shrink`: another size for a volume. One that is open is grown by its server
//! ([`grow`](crate::grow)).

use std::path::{Path, PathBuf};
use std::rc::Rc;

use clap::{ArgGroup, Args};
use weir_ext4::{SUPERBLOCK_OFFSET, Superblock};
use weir_runtime::Handle;
use weir_storage::{BLOCK_BYTES, Extent, FileDisk, FileDiskOptions, Lba, read};
use weir_volume::{NewSize, ResizeError, Resized, VolumeOptions};

use crate::error::CliError;
use crate::grow::{GrowthAsked, grow_with_file, print_unchanged};
use crate::open::open_disk;
use crate::size::Size;
use crate::stack::{Stack, find_volume};
use crate::{Verdict, grow, print, serve_status};

/// Arguments of `weir volume grow`.
#[derive(Debug, Args)]
pub(crate) struct GrowArguments {
    /// The volume's file or block device; or, while it is open, the directory that it is mounted on, or unix:PATH of `weir serve`
    #[arg(value_name = "VOLUME|DIRECTORY|unix:PATH")]
    path: PathBuf,
    /// New size of the file, such as 8G; leave it out for a file or device that is larger already
    #[arg(long, value_name = "SIZE")]
    pub(crate) size: Option<Size>,
    /// Capacity shown to users [default: as much as fits]
    #[arg(long, value_name = "SIZE")]
    pub(crate) logical: Option<Size>,
}

/// Arguments of `weir volume shrink`.
#[derive(Debug, Args)]
#[command(group(ArgGroup::new("new size").required(true).multiple(true).args(["size", "logical"])))]
pub(crate) struct ShrinkArguments {
    /// The volume's file or block device; it must not be mounted
    path: PathBuf,
    /// New size of the file, or what the volume is to use of the device
    #[arg(long, value_name = "SIZE")]
    size: Option<Size>,
    /// Capacity shown to users [default: what it is, or as much as fits if that is less]
    #[arg(long, value_name = "SIZE")]
    logical: Option<Size>,
}

/// Runs `weir volume grow`. Where the volume cannot grow, its file has the size that it had.
pub(crate) async fn grow(handle: &Handle, arguments: &GrowArguments) -> Result<Verdict, CliError> {
    let path = &arguments.path;
    if let Some(socket) = serve_status::socket_of(path)? {
        return grow::ask_served(path, &socket, arguments);
    }
    if path.is_dir() {
        return grow::ask_mount(path, arguments);
    }
    let (disk, before) = open_closed(handle, path).await?;
    let grow = async |size| {
        let disk = Rc::<FileDisk>::clone(&disk);
        Ok(weir_volume::grow(handle, disk, size, VolumeOptions::default()).await?)
    };
    let asked = GrowthAsked { bytes: arguments.size, logical: arguments.logical };
    let grown = match grow_with_file(&disk, asked, grow).await {
        Err(error) if error.is_unchanged() => return print_unchanged(path),
        grown => grown.map_err(|error| error.told_of(path))?,
    };
    let verdict = tell_size(path, &grown, before)?;
    print(
        "a filesystem in it keeps its size: mount it, and run `weir volume grow DIRECTORY`, or its own tool; see docs/users/resize.md",
    )?;
    Ok(verdict)
}

/// Runs `weir volume shrink`, and makes the file of the volume as small as that.
pub(crate) async fn shrink(handle: &Handle, arguments: &ShrinkArguments) -> Result<Verdict, CliError> {
    let path = &arguments.path;
    let (disk, before) = open_closed(handle, path).await?;
    let physical_blocks = arguments.size.map_or(before.physical_blocks, Size::blocks);
    let size = NewSize { physical_blocks, logical_blocks: arguments.logical.map(Size::blocks) };
    drop(disk);
    let held = blocks_of_filesystem(handle, path).await?;
    let disk = open_disk(handle, path, FileDiskOptions::default()).await?;
    let planned = weir_volume::plan_shrink(&*disk, size).await.map_err(|error| resize_error(path, &error))?;
    if let Some(blocks) = held.filter(|blocks| *blocks > planned.logical_blocks) {
        return Err(CliError::FilesystemTooLarge {
            path: path.clone(),
            filesystem: Size::of_blocks(blocks),
            capacity: Size::of_blocks(planned.logical_blocks),
        });
    }
    let shrunk = weir_volume::shrink(handle, Rc::<FileDisk>::clone(&disk), size, VolumeOptions::default())
        .await
        .map_err(|error| resize_error(path, &error))?;
    disk.resize(Some(Size::of_blocks(shrunk.physical_blocks).0))?;
    tell_size(path, &shrunk, before)?;
    if shrunk.physical_blocks > physical_blocks {
        print(&format!(
            "{}: the file keeps {} more than asked for: blocks at its end are in use, and shrinking does not move them; use the \
             volume for a while, and shrink it again",
            path.display(),
            Size::of_blocks(shrunk.physical_blocks - physical_blocks)
        ))?;
    }
    Ok(Verdict::Good)
}

/// The volume at `path`, and its size.
async fn open_closed(handle: &Handle, path: &Path) -> Result<(Rc<FileDisk>, Resized), CliError> {
    if path.is_dir() {
        return Err(CliError::Usage(
            "a volume is made smaller while it is not mounted: unmount it, and name its file or device",
        ));
    }
    let disk = open_disk(handle, path, FileDiskOptions::default()).await?;
    let info = find_volume(&disk, path).await?;
    let before = Resized { logical_blocks: info.logical_blocks, physical_blocks: info.physical_blocks };
    Ok((disk, before))
}

/// The blocks of the filesystem in a volume, if it is one that Weir knows.
async fn blocks_of_filesystem(handle: &Handle, path: &Path) -> Result<Option<u64>, CliError> {
    let stack = Stack::open_volume_to_read(handle, path, VolumeOptions::default()).await?;
    let first = read(&*stack.storage(), Extent::new(Lba(0), 1)).await;
    let first = first.map_err(|error| CliError::of_volume(path, error.into()))?;
    stack.close(path).await?;
    let ext4 = Superblock::read(&first[SUPERBLOCK_OFFSET..]).map(|superblock| superblock.blocks());
    let f2fs = || weir_f2fs::Superblock::read(&first, 0).map(|superblock| superblock.blocks.get());
    Ok(ext4.or_else(|_| f2fs()).ok())
}

fn tell_size(path: &Path, now: &Resized, before: Resized) -> Result<Verdict, CliError> {
    let size = |size: &Resized| (Size::of_blocks(size.logical_blocks), Size::of_blocks(size.physical_blocks));
    let ((logical, physical), (old_logical, old_physical)) = (size(now), size(&before));
    print(&format!(
        "{}: a volume of {logical} on {physical}; it was {old_logical} on {old_physical}",
        path.display()
    ))?;
    Ok(Verdict::Good)
}

/// The error in the words of the command line, which has sizes and not blocks.
pub(crate) fn resize_error(path: &Path, error: &ResizeError) -> CliError {
    match error {
        ResizeError::Volume(source) | ResizeError::NotReopened(source) => {
            CliError::of_volume(path, source.clone())
        }
        _ => CliError::Resize { path: path.to_owned(), cause: cause_of(error) },
    }
}

/// Why a volume was not resized, in the same words.
pub(crate) fn cause_of(error: &ResizeError) -> String {
    let size = Size::of_blocks;
    let whole_mib = |blocks| size(blocks).0.div_ceil(1 << 20);
    match error {
        ResizeError::Unchanged
        | ResizeError::Snapshots
        | ResizeError::UnderWay
        | ResizeError::Shipped
        | ResizeError::Volume(_)
        | ResizeError::NotReopened(_) => error.to_string(),
        ResizeError::Marks => "it is mounted with --moment, so it does not grow: unmount it first".to_owned(),
        ResizeError::Larger { logical, physical } => format!(
            "the volume is larger than that: {} on {}; `weir volume shrink` makes it smaller",
            size(*logical),
            size(*physical)
        ),
        ResizeError::Smaller { logical, physical } => format!(
            "the volume is smaller than that: {} on {}; `weir volume grow` makes it larger",
            size(*logical),
            size(*physical)
        ),
        ResizeError::DiskTooSmall { needed, found } => {
            format!("the device has {}, and --size is {}", size(*found), size(*needed))
        }
        ResizeError::TooLittle { least } => format!(
            "the map of the larger volume has no room in what is added: use --size {}M or more",
            whole_mib(*least)
        ),
        ResizeError::InUse { last, blocks } => format!(
            "byte {} is in use, and the volume would have {} ({} blocks): shrink the filesystem in it first, and discard \
             what is behind it",
            last.0 * BLOCK_BYTES as u64,
            size(*blocks),
            blocks
        ),
    }
}
