//! Growing a volume with its file. One that is mounted or served is made larger by its server, and the filesystem on a mount with it.

use std::path::Path;

use rustix::fs::statvfs;
use rustix::io::Errno;
use tracing::Level;
use weir_fuse::VolumeCall;
use weir_storage::{FileDisk, FileDiskError, Storage as _};
use weir_vfs::{Filesystem, FsError};
use weir_volume::{NewSize, ResizeError, Resized, VolumeError};

use crate::ask_volume::ask_server;
use crate::error::CliError;
use crate::log_line::LogLine;
use crate::resize::{GrowArguments, resize_error};
use crate::serve_status;
use crate::size::Size;
use crate::stack::Stack;
use crate::{Verdict, print};

/// Why a volume did not grow.
#[derive(Debug, thiserror::Error)]
pub(crate) enum GrowError {
    /// There is none, or a snapshot or clone of one is mounted.
    #[error(
        "nothing grows there but a volume in a file or on a block device, and none of which a snapshot is mounted"
    )]
    NoVolume,
    /// Its file or device.
    #[error("{0}")]
    Disk(#[from] FileDiskError),
    /// The volume.
    #[error("{0}")]
    Volume(#[from] ResizeError),
}

impl GrowError {
    /// The error in the words of the command line.
    pub(crate) fn told_of(self, path: &Path) -> CliError {
        match self {
            GrowError::NoVolume => CliError::Resize { path: path.to_owned(), cause: self.to_string() },
            GrowError::Disk(source) => CliError::Disk(source),
            GrowError::Volume(source) => resize_error(path, &source),
        }
    }
}

impl From<GrowError> for FsError {
    fn from(error: GrowError) -> FsError {
        let GrowError::Volume(error) = error else {
            return match error {
                GrowError::NoVolume => FsError::Unsupported("growing"),
                _ => FsError::NoSpace,
            };
        };
        match error {
            ResizeError::Unchanged => FsError::Exists,
            ResizeError::Larger { .. } | ResizeError::Smaller { .. } => {
                FsError::Invalid("the volume is larger")
            }
            ResizeError::DiskTooSmall { .. } => FsError::NoSpace,
            ResizeError::TooLittle { .. } => FsError::TooLarge,
            ResizeError::InUse { .. } | ResizeError::Snapshots => FsError::NotEmpty,
            ResizeError::UnderWay => FsError::UpdateOpen,
            ResizeError::Marks | ResizeError::Shipped => FsError::Unsupported("growing"),
            ResizeError::Volume(error) | ResizeError::NotReopened(error) => match error {
                VolumeError::Disk(rejected) => rejected.into(),
                _ => FsError::Invalid("no volume of that size"),
            },
        }
    }
}

/// Makes the file on a disk longer, if that is asked for, and the volume in it larger by `grow`. What is not asked for is what the file
/// or device has, and as much as fits. If nothing was written, the file has the size that it had.
pub(crate) async fn grow_with_file(
    disk: &FileDisk,
    bytes: Option<Size>,
    logical: Option<Size>,
    grow: impl AsyncFnOnce(NewSize) -> Result<Resized, ResizeError>,
) -> Result<Resized, GrowError> {
    let found = disk.bytes();
    let longer = bytes.map(|bytes| bytes.0).filter(|bytes| *bytes > found);
    disk.resize(longer)?;
    let physical_blocks = bytes.map_or(disk.blocks(), Size::blocks);
    let grown = grow(NewSize { physical_blocks, logical_blocks: logical.map(Size::blocks) }).await;
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

/// Makes the open volume of a stack larger, and its file.
async fn grow_volume(stack: &Stack, bytes: Option<u64>, logical: Option<u64>) -> Result<(), GrowError> {
    let (Some(volume), Some(disk), false) = (stack.resizable_volume(), stack.file(), stack.is_branch())
    else {
        return Err(GrowError::NoVolume);
    };
    let grow = async |size| volume.grow(size).await;
    grow_with_file(disk, bytes.map(Size), logical.map(Size), grow).await.map(drop)
}

/// Makes the volume of a mount larger, and the filesystem on it. If the volume has its size already, the filesystem may still
/// be smaller than that.
pub(crate) async fn grow_mounted(
    stack: &Stack,
    filesystem: &Filesystem,
    bytes: Option<u64>,
    logical: Option<u64>,
) -> Result<(), FsError> {
    if let Some(reason) = filesystem.read_only() {
        return Err(FsError::ReadOnly(reason));
    }
    let before = filesystem.statfs().await.blocks;
    let unchanged = match grow_volume(stack, bytes, logical).await {
        Ok(()) => None,
        Err(GrowError::Volume(ResizeError::Unchanged)) => Some(ResizeError::Unchanged),
        Err(error) => {
            let message = format!("the volume did not grow: {error}");
            LogLine::new(Level::WARN, "growth_refused", message).with("reason", error.to_string()).print();
            return Err(error.into());
        }
    };
    filesystem.grow(stack.storage().blocks()).await?;
    match unchanged {
        Some(error) if filesystem.statfs().await.blocks == before => Err(GrowError::from(error).into()),
        _ => Ok(()),
    }
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
    match grow_volume(stack, *bytes, *logical).await {
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

/// What the server's answer means.
fn explain(path: &Path, errno: Errno) -> CliError {
    let cause = match errno {
        Errno::EXIST => "the volume and its filesystem have this size already",
        Errno::INVAL => {
            "the volume is larger than that (`weir volume shrink` makes it smaller), or cannot have that size: the log of the mount says \
             which"
        }
        Errno::NOSPC => "its file or device has no room for that",
        Errno::FBIG => "the map of the larger volume has no room in what is added: use a larger --size",
        Errno::NOTEMPTY => {
            "the volume has snapshots or clones, whose places depend on its size: delete them first"
        }
        Errno::BUSY => "the volume is being resized already",
        Errno::OPNOTSUPP => {
            "it cannot grow while it is mounted so: a volume with --moment, --replicate or --cache, a snapshot, an image, F2FS \
             (of which the volume has grown), or an ext4 filesystem with a reserve for descriptors, that needs resize2fs"
        }
        Errno::ROFS => "it is mounted read-only",
        _ => {
            let doing = "grow the volume of";
            return CliError::File { doing, path: path.to_owned(), source: errno.into() };
        }
    };
    CliError::Resize { path: path.to_owned(), cause: cause.to_owned() }
}
