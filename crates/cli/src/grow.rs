//! `weir volume grow` of a volume that is mounted or served: its server makes it larger, and the filesystem on a mount.

use std::path::Path;

use rustix::fs::{Mode, OFlags, XattrFlags, fsetxattr, open, statvfs};
use rustix::io::Errno;
use weir_fuse::VolumeCall;
use weir_fuse::control::VOLUME_ATTRIBUTE;
use weir_storage::{FileDiskError, Storage as _};
use weir_vfs::{Filesystem, FsError};
use weir_volume::{NewSize, ResizeError, VolumeError};

use crate::error::CliError;
use crate::resize::{GrowArguments, resize_error};
use crate::serve_status;
use crate::size::Size;
use crate::stack::Stack;
use crate::{Verdict, messages, print, status};

/// Why an open volume did not grow.
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
            ResizeError::Volume(VolumeError::Disk(rejected)) => rejected.into(),
            ResizeError::Volume(_) => FsError::Invalid("no volume of that size"),
        }
    }
}

/// Makes the open volume of a stack larger, and its file. What is asked for is in bytes; none is what the file or device has, and as
/// much as fits. If it fails, the file has the size that it had.
pub(crate) async fn grow_volume(
    stack: &Stack,
    bytes: Option<u64>,
    logical: Option<u64>,
) -> Result<(), GrowError> {
    let (Some(volume), Some(disk)) = (stack.resizable_volume(), stack.file()) else {
        return Err(GrowError::NoVolume);
    };
    if stack.is_branch() {
        return Err(GrowError::NoVolume);
    }
    let found = disk.bytes();
    disk.resize(bytes.filter(|bytes| *bytes > found))?;
    let physical_blocks = bytes.map_or(disk.blocks(), |bytes| Size(bytes).blocks());
    let size = NewSize { physical_blocks, logical_blocks: logical.map(|bytes| Size(bytes).blocks()) };
    let grown = volume.grow(size).await;
    if let Err(error) = &grown
        && is_refused_before(error)
        && disk.bytes() > found
    {
        // It is longer than the volume, and says nothing wrong.
        let _ = disk.resize(Some(found));
    }
    grown?;
    Ok(())
}

/// Whether nothing was written before a volume was refused its size.
fn is_refused_before(error: &ResizeError) -> bool {
    match error {
        ResizeError::UnderWay => false,
        ResizeError::Volume(cause) => {
            matches!(cause, VolumeError::Format(_) | VolumeError::TooLargeToShare(_))
        }
        _ => true,
    }
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
            messages::print_message(&format!("the volume did not grow: {error}"));
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
    status::ask(path)?;
    let failed = |errno: Errno| explain(path, errno);
    let directory = open(path, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty());
    let directory = directory.map_err(failed)?;
    let value = call_of(arguments).to_value();
    fsetxattr(&directory, VOLUME_ATTRIBUTE, value.as_bytes(), XattrFlags::empty()).map_err(failed)?;
    let found = statvfs(path).map_err(failed)?;
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
        Err(GrowError::Volume(error)) => resize_error(path, &error).to_string(),
        Err(error) => error.to_string(),
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
