//! Growing a volume with its file. One that is mounted or served is made larger by its server, and the filesystem on a mount with it.

use std::io::ErrorKind;
use std::path::Path;

use rustix::fs::statvfs;
use rustix::io::Errno;
use tracing::Level;
use weir_fuse::VolumeCall;
use weir_storage::{FileDisk, FileDiskError, Storage as _};
use weir_vfs::{Filesystem, FsError, ReadOnlyReason};
use weir_volume::{NewSize, ResizableVolume, ResizeError, Resized, VolumeError};

use crate::ask_volume::ask_server;
use crate::error::CliError;
use crate::log_line::LogLine;
use crate::memory::Limit;
use crate::resize::{GrowArguments, cause_of, resize_error};
use crate::serve_status;
use crate::size::Size;
use crate::stack::Stack;
use crate::{Verdict, print, status};

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
        "a mount of that size takes {needed} of memory at least, and --memory is {asked}: {}mount it with more",
        at_most(*.most_mib)
    )]
    Memory { asked: Size, needed: Size, most_mib: Option<u64> },
    /// Its file or device.
    #[error("{0}")]
    Disk(#[from] FileDiskError),
    /// The volume.
    #[error("{}", cause_of(.0))]
    Volume(#[from] ResizeError),
    /// What opening it changes stays in memory.
    #[error("the volume is only read there, and so it does not grow: end its server, and grow it then")]
    VolumeReadOnly,
    /// The mount changes nothing.
    #[error("{0}")]
    ReadOnly(FsError),
    /// The filesystem.
    #[error("the volume has the size, and the filesystem does not get it: {0}")]
    Filesystem(FsError),
}

/// The size that is offered in place of one that takes too much memory.
fn at_most(most_mib: Option<u64>) -> String {
    most_mib.map_or_else(String::new, |mib| format!("grow it to {mib}M at most, or "))
}

impl GrowError {
    /// Whether there is nothing to do.
    pub(crate) fn is_unchanged(&self) -> bool {
        matches!(self, GrowError::Volume(ResizeError::Unchanged))
    }

    /// The error of a command on the volume at `path`.
    pub(crate) fn told_of(self, path: &Path) -> CliError {
        match self {
            GrowError::Disk(source) => source.into(),
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
            GrowError::VolumeReadOnly => FsError::ReadOnly(ReadOnlyReason::Mounted),
            GrowError::ReadOnly(error) | GrowError::Filesystem(error) => error,
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
    grow: impl AsyncFnOnce(NewSize) -> Result<Resized, GrowError>,
) -> Result<Resized, GrowError> {
    let found = disk.bytes();
    let longer = asked.bytes.map(|bytes| bytes.0).filter(|bytes| *bytes > found);
    disk.resize(longer)?;
    let grown = grow(asked.on(disk.blocks())).await;
    if longer.is_some() && grown.as_ref().is_err_and(|error| !may_need_file(error)) {
        // It is longer than the volume, and says nothing wrong.
        let _ = disk.resize(Some(found));
    }
    grown
}

/// Whether the disk may have a larger volume, though it did not grow.
fn may_need_file(error: &GrowError) -> bool {
    let GrowError::Volume(error) = error else { return false };
    // If a write has failed, the new size may be on the disk.
    matches!(
        error,
        ResizeError::Volume(VolumeError::Disk(_)) | ResizeError::NotReopened(_) | ResizeError::UnderWay
    )
}

/// Makes the open volume of a stack larger, and its file, within the memory that its server may take.
async fn grow_volume(stack: &Stack, asked: GrowthAsked, limit: Limit) -> Result<(), GrowError> {
    let (Some(volume), Some(disk), false) = (stack.resizable_volume(), stack.file(), stack.is_branch())
    else {
        return Err(GrowError::NoVolume);
    };
    if disk.is_read_only() {
        return Err(GrowError::VolumeReadOnly);
    }
    let grow = async |size| {
        require_memory(volume, size, limit)?;
        Ok(volume.grow(size).await?)
    };
    grow_with_file(disk, asked, grow).await.map(drop)
}

/// Makes the volume of a mount larger, and the filesystem on it. If the volume has its size already, the filesystem may still
/// be smaller than that. The status tells why it is refused.
pub(crate) async fn grow_mounted(
    stack: &Stack,
    filesystem: &Filesystem,
    asked: GrowthAsked,
    limit: Limit,
) -> Result<(), FsError> {
    stack.note_growth(None);
    let grown = grow_volume_and_filesystem(stack, filesystem, asked, limit).await;
    if let Some(error) = grown.as_ref().err().filter(|error| !error.is_unchanged()) {
        let reason = error.to_string();
        let message = format!("growing was refused: {reason}");
        LogLine::new(Level::WARN, "growth_refused", message).with("reason", reason.clone()).print();
        stack.note_growth(Some(reason));
    }
    Ok(grown?)
}

async fn grow_volume_and_filesystem(
    stack: &Stack,
    filesystem: &Filesystem,
    asked: GrowthAsked,
    limit: Limit,
) -> Result<(), GrowError> {
    if let Some(reason) = filesystem.read_only() {
        return Err(GrowError::ReadOnly(FsError::ReadOnly(reason)));
    }
    let before = filesystem.statfs().await.blocks;
    let unchanged = match grow_volume(stack, asked, limit).await {
        Ok(()) => None,
        Err(error @ GrowError::Volume(ResizeError::Unchanged)) => Some(error),
        Err(error) => return Err(error),
    };
    filesystem.grow(stack.storage().blocks()).await.map_err(GrowError::Filesystem)?;
    match unchanged {
        Some(error) if filesystem.statfs().await.blocks == before => Err(error),
        _ => Ok(()),
    }
}

/// Refuses a size that the next mount would be refused for, and finds one that it would not be.
fn require_memory(volume: &ResizableVolume, size: NewSize, limit: Limit) -> Result<(), GrowError> {
    // What else is wrong with a size, growing says.
    let planned = |size| volume.plan_growth(size).ok();
    let refused = |(resized, bytes): (Resized, u64)| limit.refuses(resized.logical_blocks, bytes);
    let Some((asked, needed)) = planned(size).and_then(refused) else { return Ok(()) };
    let now = volume.size().physical_blocks;
    let (mut most, mut too_large) =
        (Size::of_blocks(now).0 >> 20, Size::of_blocks(size.physical_blocks).0 >> 20);
    let least = most;
    while too_large > most + 1 {
        let middle = u64::midpoint(most, too_large);
        let size = NewSize { physical_blocks: Size(middle << 20).blocks(), ..size };
        match planned(size).map(refused) {
            Some(None) => most = middle,
            _ => too_large = middle,
        }
    }
    Err(GrowError::Memory { asked, needed, most_mib: Some(most).filter(|most| *most > least) })
}

/// Asks the server of a mount to make its volume larger.
pub(crate) fn ask_mount(path: &Path, arguments: &GrowArguments) -> Result<Verdict, CliError> {
    let explained = |errno| explain(path, errno);
    match ask_server(path, &call_of(arguments), explained) {
        Err(CliError::File { source, .. }) if source.kind() == ErrorKind::AlreadyExists => {
            return print_unchanged(path);
        }
        done => done?,
    }
    let found = statvfs(path).map_err(explained)?;
    print(&format!("{}: a filesystem of {}", path.display(), Size(found.f_blocks * found.f_frsize)))?;
    Ok(Verdict::Good)
}

/// Says of a volume that it has the size that was asked for.
pub(crate) fn print_unchanged(path: &Path) -> Result<Verdict, CliError> {
    print(&format!("{}: it has this size already", path.display()))?;
    Ok(Verdict::Good)
}

/// Asks `weir serve` to make its volume larger.
pub(crate) fn ask_served(path: &Path, socket: &Path, arguments: &GrowArguments) -> Result<Verdict, CliError> {
    let told = serve_status::ask_server(socket, &call_of(arguments).to_value(), serve_status::ANSWER_MAX)
        .map_err(|source| CliError::File { doing: "ask", path: path.to_owned(), source })?;
    match String::from_utf8_lossy(&told).strip_prefix(serve_status::DONE) {
        Some(told) => {
            print(&format!("{}: {told}", path.display()))?;
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
    match grow_volume(stack, asked, Limit::Usual).await {
        Ok(()) => {
            let size = Size::of_blocks(stack.storage().blocks());
            format!(
                "{}a volume of {size}; clients see it when they connect, or start, again",
                serve_status::DONE
            )
        }
        Err(error) if error.is_unchanged() => format!("{}it has this size already", serve_status::DONE),
        Err(error) => error.told_of(path).to_string(),
    }
}

fn call_of(arguments: &GrowArguments) -> VolumeCall {
    VolumeCall::Grow {
        bytes: arguments.size.map(|size| size.0),
        logical: arguments.logical.map(|size| size.0),
    }
}

/// What the server says of its answer, if it is one to this caller's request.
fn explain(path: &Path, errno: Errno) -> CliError {
    let is_of_request = !matches!(errno, Errno::PERM | Errno::ACCESS | Errno::INTR);
    match status::ask(path).ok().and_then(|status| status.storage.growth_refused).filter(|_| is_of_request) {
        Some(cause) => CliError::Resize { path: path.to_owned(), cause },
        None => {
            let doing = "grow the volume of";
            CliError::File { doing, path: path.to_owned(), source: errno.into() }
        }
    }
}
