//! Growing a volume with its file. One that is mounted or served is made larger by its server, and the filesystem on a mount with it.

use std::path::Path;

use rustix::fs::statvfs;
use rustix::io::Errno;
use weir_fuse::VolumeCall;
use weir_storage::{FileDisk, FileDiskError, Storage as _};
use weir_vfs::{Filesystem, FsError};
use weir_volume::{NewSize, ResizableVolume, ResizeError, Resized, VolumeError};

use crate::ask_volume::ask_server;
use crate::error::CliError;
use crate::memory::Limit;
use crate::resize::{GrowArguments, cause_of, resize_error};
use crate::serve_status;
use crate::size::Size;
use crate::stack::Stack;
use crate::{Verdict, messages, print, status};

/// The size that is asked for: of the file, and the capacity. What is not asked for is what the file or device has, and as much as fits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GrowthAsked {
    pub(crate) bytes: Option<Size>,
    pub(crate) logical: Option<Size>,
}

impl GrowthAsked {
    /// On a file or device of so many blocks.
    fn on(self, blocks: u64) -> NewSize {
        NewSize {
            physical_blocks: self.bytes.map_or(blocks, Size::blocks),
            logical_blocks: self.logical.map(Size::blocks),
        }
    }
}

/// Why a volume, or the filesystem on it, did not grow.
#[derive(Debug, thiserror::Error)]
pub(crate) enum GrowError {
    /// There is none, or a snapshot or clone of one is mounted.
    #[error(
        "nothing grows there but a volume in a file or on a block device, and none of which a snapshot is mounted"
    )]
    NoVolume,
    /// The next mount would be refused, with the limit that this one has.
    #[error(
        "a mount of that size takes {needed} of memory at least, and --memory is {asked}: grow it to {most} at most, or mount it with more"
    )]
    Memory { asked: Size, needed: Size, most: Size },
    /// Its file or device.
    #[error("{0}")]
    Disk(#[from] FileDiskError),
    /// The volume.
    #[error("{}", cause_of(.0))]
    Volume(#[from] ResizeError),
    /// The filesystem; the volume has grown.
    #[error("{0}")]
    Filesystem(#[from] FsError),
}

impl GrowError {
    /// The error of a command on the volume at `path`.
    pub(crate) fn told_of(self, path: &Path) -> CliError {
        match self {
            GrowError::Disk(source) => CliError::Disk(source),
            GrowError::Volume(source) => resize_error(path, &source),
            _ => CliError::Resize { path: path.to_owned(), cause: self.to_string() },
        }
    }
}

impl From<GrowError> for FsError {
    fn from(error: GrowError) -> FsError {
        match error {
            GrowError::NoVolume => FsError::Unsupported("growing"),
            GrowError::Memory { .. } => FsError::TooLarge,
            GrowError::Disk(_) => FsError::NoSpace,
            GrowError::Filesystem(error) => error,
            GrowError::Volume(ResizeError::Unchanged) => FsError::Exists,
            GrowError::Volume(ResizeError::Volume(VolumeError::Disk(rejected))) => rejected.into(),
            GrowError::Volume(_) => FsError::Invalid("the volume does not grow so"),
        }
    }
}

/// Makes the file on a disk longer, if that is asked for, and the volume in it larger by `grow`. If nothing was written, the file has
/// the size that it had.
pub(crate) async fn grow_with_file(
    disk: &FileDisk,
    asked: GrowthAsked,
    grow: impl AsyncFnOnce(NewSize) -> Result<Resized, ResizeError>,
) -> Result<Resized, GrowError> {
    let found = disk.bytes();
    let longer = asked.bytes.map(|bytes| bytes.0).filter(|bytes| *bytes > found);
    disk.resize(longer)?;
    let grown = grow(asked.on(disk.blocks())).await;
    if longer.is_some() && grown.as_ref().is_err_and(|error| !may_need_file(error)) {
        // It is longer than the volume, and says nothing wrong.
        let _ = disk.resize(Some(found));
    }
    Ok(grown?)
}

/// Whether the disk may have a larger volume, though it did not grow.
fn may_need_file(error: &ResizeError) -> bool {
    // If a write has failed, the new size may be on the disk.
    matches!(
        error,
        ResizeError::Volume(VolumeError::Disk(_)) | ResizeError::NotReopened(_) | ResizeError::UnderWay
    )
}

/// What of a stack grows.
fn growing(stack: &Stack) -> Result<(&ResizableVolume, &FileDisk), GrowError> {
    match (stack.resizable_volume(), stack.file(), stack.is_branch()) {
        (Some(volume), Some(disk), false) => Ok((volume, disk)),
        _ => Err(GrowError::NoVolume),
    }
}

/// Makes the open volume of a stack larger, and its file.
async fn grow_volume(stack: &Stack, asked: GrowthAsked) -> Result<(), GrowError> {
    let (volume, disk) = growing(stack)?;
    grow_with_file(disk, asked, async |size| volume.grow(size).await).await.map(drop)
}

/// Makes the volume of a mount larger, and the filesystem on it. If the volume has its size already, the filesystem may still
/// be smaller than that. The status tells why it is refused.
pub(crate) async fn grow_mounted(
    stack: &Stack,
    filesystem: &Filesystem,
    asked: GrowthAsked,
    limit: Limit,
) -> Result<(), FsError> {
    let grown = grow_both(stack, filesystem, asked, limit).await;
    stack.note_growth(grown.as_ref().err().map(ToString::to_string));
    if let Err(error) = &grown {
        messages::print_message(&format!("nothing grew: {error}"));
    }
    Ok(grown?)
}

async fn grow_both(
    stack: &Stack,
    filesystem: &Filesystem,
    asked: GrowthAsked,
    limit: Limit,
) -> Result<(), GrowError> {
    if let Some(reason) = filesystem.read_only() {
        return Err(FsError::ReadOnly(reason).into());
    }
    require_memory(stack, asked, limit)?;
    let before = filesystem.statfs().await.blocks;
    let unchanged = match grow_volume(stack, asked).await {
        Ok(()) => None,
        Err(error @ GrowError::Volume(ResizeError::Unchanged)) => Some(error),
        Err(error) => return Err(error),
    };
    filesystem.grow(stack.storage().blocks()).await?;
    match unchanged {
        Some(error) if filesystem.statfs().await.blocks == before => Err(error),
        _ => Ok(()),
    }
}

/// Refuses a size that the next mount would be refused for.
fn require_memory(stack: &Stack, asked: GrowthAsked, limit: Limit) -> Result<(), GrowError> {
    let (volume, disk) = growing(stack)?;
    let found = disk.blocks();
    let refused = |size: NewSize| {
        // What else is wrong with a size, growing says.
        let (resized, bytes) = volume.plan_growth(size).ok()?;
        limit.refuses(resized.logical_blocks, bytes)
    };
    let wanted = asked.on(found);
    let Some((asked, needed)) = refused(wanted) else { return Ok(()) };
    let in_mib = |blocks: u64| Size::of_blocks(blocks).0 >> 20;
    let (mut most, mut refused_from) = (in_mib(found), in_mib(wanted.physical_blocks));
    while refused_from > most + 1 {
        let middle = u64::midpoint(most, refused_from);
        match refused(NewSize { physical_blocks: Size(middle << 20).blocks(), ..wanted }) {
            Some(_) => refused_from = middle,
            None => most = middle,
        }
    }
    Err(GrowError::Memory { asked, needed, most: Size(most << 20) })
}

/// Asks the server of a mount to make its volume larger.
pub(crate) fn ask_mount(path: &Path, arguments: &GrowArguments) -> Result<Verdict, CliError> {
    let explained = |errno| explain(path, errno);
    ask_server(path, &call_of(arguments), explained)?;
    let found = statvfs(path).map_err(explained)?;
    print(&format!("{}: a filesystem of {}", path.display(), Size(found.f_blocks * found.f_frsize)))?;
    Ok(Verdict::Good)
}

/// Asks `weir serve` to make its volume larger.
pub(crate) fn ask_served(path: &Path, socket: &Path, arguments: &GrowArguments) -> Result<Verdict, CliError> {
    let told = serve_status::ask_server(socket, &call_of(arguments).to_value(), serve_status::ANSWER_MAX)
        .map_err(|source| CliError::File { doing: "ask", path: path.to_owned(), source })?;
    match String::from_utf8_lossy(&told).strip_prefix(serve_status::DONE) {
        Some(told) => {
            print(&format!("{}: {told}; clients see it when they connect again", path.display()))?;
            Ok(Verdict::Good)
        }
        None => Err(CliError::Resize {
            path: path.to_owned(),
            cause: String::from_utf8_lossy(&told).into_owned(),
        }),
    }
}

/// What `weir serve` answers to the request to grow.
pub(crate) async fn answer_served(stack: &Stack, path: &Path, call: &VolumeCall) -> String {
    let VolumeCall::Grow { bytes, logical } = call else { return "it makes no snapshots".to_owned() };
    let asked = GrowthAsked { bytes: bytes.map(Size), logical: logical.map(Size) };
    match grow_volume(stack, asked).await {
        Ok(()) => format!("{}a volume of {}", serve_status::DONE, Size::of_blocks(stack.storage().blocks())),
        Err(error) => error.told_of(path).to_string(),
    }
}

fn call_of(arguments: &GrowArguments) -> VolumeCall {
    VolumeCall::Grow {
        bytes: arguments.size.map(|size| size.0),
        logical: arguments.logical.map(|size| size.0),
    }
}

/// What the server says of its answer.
fn explain(path: &Path, errno: Errno) -> CliError {
    match status::ask(path).ok().and_then(|status| status.storage.growth_refused) {
        Some(cause) => CliError::Resize { path: path.to_owned(), cause },
        None => {
            let doing = "grow the volume of";
            CliError::File { doing, path: path.to_owned(), source: errno.into() }
        }
    }
}
