//! `weir volume`: make, show and check volumes.

use std::fs::OpenOptions;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use clap::{Args, Subcommand};
use weir_runtime::Handle;
use weir_storage::{BLOCK_BYTES, FileDisk, FileDiskError, FileDiskOptions, Storage as _};
use weir_volume::{CheckReport, Format, Info, Volume, VolumeError};

use crate::error::CliError;
use crate::size::Size;
use crate::{Verdict, in_wall_time, print};

/// What to do with volumes.
#[derive(Debug, Subcommand)]
pub(crate) enum VolumeCommand {
    /// Make a volume in a new file, an empty one, or on an empty block device
    Create(CreateArguments),
    /// Show what a volume says of itself, without changing it
    Info(PathArgument),
    /// Read all of a volume and compare checksums, without changing it; exit code 1 if it is damaged, 2 if
    /// it cannot be looked at
    Check(PathArgument),
}

/// Arguments of `weir volume create`.
#[derive(Debug, Args)]
pub(crate) struct CreateArguments {
    /// The file or block device
    path: PathBuf,
    /// Size of the file, such as 4G; what exists already has a size
    #[arg(long, value_name = "SIZE")]
    size: Option<Size>,
    /// Capacity shown to users, which may be more than fits at once [default: what fits]
    #[arg(long, value_name = "SIZE")]
    logical: Option<Size>,
    /// Overwrite whatever is there
    #[arg(long)]
    force: bool,
}

/// The volume to look at.
#[derive(Debug, Args)]
pub(crate) struct PathArgument {
    /// The file or block device
    path: PathBuf,
}

/// Runs the command.
pub(crate) fn run(command: &VolumeCommand) -> Result<Verdict, CliError> {
    match command {
        VolumeCommand::Create(arguments) => {
            // The volume's identity comes from the seed, and must not be that of an older volume in the same
            // place, whose records would then count.
            let seed = in_wall_time(0, async |handle: Handle| Ok(handle.wall_clock_millis()))?;
            in_wall_time(seed, |handle| create(handle, arguments))
        }
        VolumeCommand::Info(PathArgument { path }) => in_wall_time(0, |handle| info(handle, path)),
        VolumeCommand::Check(PathArgument { path }) => in_wall_time(0, |handle| check(handle, path)),
    }
}

async fn create(handle: Handle, arguments: &CreateArguments) -> Result<Verdict, CliError> {
    let path = &arguments.path;
    let (disk, made) = ground(&handle, path, arguments.size.map(|size| size.0))?;
    let logical_blocks = arguments.logical.map_or(0, |size| size.0 / BLOCK_BYTES as u64);
    if arguments.logical.is_some() && logical_blocks == 0 {
        return Err(volume_error(path, VolumeError::Format(weir_volume::FormatError::Empty)));
    }
    let format = Format { logical_blocks, overwrite: arguments.force, ..Format::default() };
    if let Err(source) = Volume::create(&handle, &*disk, format).await {
        if made == Made::File {
            // Nothing of anybody's is lost with it; the first error is the one to tell.
            let _ = std::fs::remove_file(path);
        }
        return Err(match source {
            VolumeError::NotEmpty(_) | VolumeError::VolumeExists => {
                CliError::Occupied { path: path.clone(), source }
            }
            source => volume_error(path, source),
        });
    }
    let info = weir_volume::inspect(&*disk).await.map_err(|source| volume_error(path, source))?;
    print(&format!(
        "{}: a volume of {} ({} usable at once)",
        path.display(),
        bytes(info.logical_blocks),
        bytes(info.usable_blocks)
    ))?;
    Ok(Verdict::Good)
}

/// What [`ground`] had to make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Made {
    Nothing,
    File,
}

/// The disk for a new volume: a new file of `size` bytes, an empty file made that large, or what is there.
fn ground(handle: &Handle, path: &Path, size: Option<u64>) -> Result<(Rc<FileDisk>, Made), CliError> {
    let options = FileDiskOptions::default();
    let no_size = || CliError::NoSize { path: path.to_owned() };
    let failed = |doing| move |source| CliError::File { doing, path: path.to_owned(), source };
    let metadata = match std::fs::metadata(path) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            let disk = FileDisk::create(handle, path, size.ok_or_else(no_size)?, options)?;
            return Ok((disk, Made::File));
        }
        Err(error) => return Err(failed("look at")(error)),
    };
    if metadata.is_file() && metadata.len() == 0 {
        let size = size.ok_or_else(no_size)?;
        let file = OpenOptions::new().write(true).open(path).map_err(failed("open"))?;
        file.set_len(size).map_err(failed("enlarge"))?;
        return Ok((FileDisk::open(handle, path, options)?, Made::Nothing));
    }
    let disk = FileDisk::open(handle, path, options)?;
    let found = disk.blocks() * BLOCK_BYTES as u64 + disk.unused_bytes();
    match size {
        Some(asked) if asked != found => Err(CliError::OtherSize { path: path.to_owned(), found, asked }),
        _ => Ok((disk, Made::Nothing)),
    }
}

async fn info(handle: Handle, path: &Path) -> Result<Verdict, CliError> {
    let disk = open_to_read(&handle, path)?;
    let info = weir_volume::inspect(&*disk).await.map_err(|source| volume_error(path, source))?;
    print(&describe(&info))?;
    Ok(Verdict::Good)
}

fn describe(info: &Info) -> String {
    [
        format!("format version    {}", info.version),
        format!("volume            {:016x}", info.volume),
        format!("capacity          {} ({} blocks)", bytes(info.logical_blocks), info.logical_blocks),
        format!("usable at once    {} ({} blocks)", bytes(info.usable_blocks), info.usable_blocks),
        format!("on disk           {} ({} blocks)", bytes(info.physical_blocks), info.physical_blocks),
        format!("segments          {} of {}", info.segments, bytes(u64::from(info.segment_blocks))),
        format!("checkpoint        {}", info.checkpoint),
        format!("log generation    {}", info.generation),
        format!("next request      {}", info.next_sequence),
    ]
    .join("\n")
}

async fn check(handle: Handle, path: &Path) -> Result<Verdict, CliError> {
    let disk = open_to_read(&handle, path)?;
    match weir_volume::check(&*disk).await {
        Ok(report) => {
            print(&findings(&report))?;
            Ok(if report.damaged_total == 0 { Verdict::Good } else { Verdict::Damaged })
        }
        Err(damage @ (VolumeError::Damaged { .. } | VolumeError::Truncated { .. })) => {
            print(&format!("damaged: {damage}"))?;
            Ok(Verdict::Damaged)
        }
        Err(source) => Err(volume_error(path, source)),
    }
}

fn findings(report: &CheckReport) -> String {
    let whole = format!(
        "{} live blocks read, {} records behind the last checkpoint",
        report.live_blocks, report.records
    );
    if report.damaged_total == 0 {
        return format!("clean: {whole}");
    }
    let listed: Vec<String> = report.damaged.iter().map(|lba| lba.0.to_string()).collect();
    let more = if report.damaged_total > listed.len() as u64 { " and more" } else { "" };
    format!("damaged: {} of {whole}; damaged blocks: {}{more}", report.damaged_total, listed.join(" "))
}

fn open_to_read(handle: &Handle, path: &Path) -> Result<Rc<FileDisk>, FileDiskError> {
    FileDisk::open(handle, path, FileDiskOptions { read_only: true, ..FileDiskOptions::default() })
}

fn volume_error(path: &Path, source: VolumeError) -> CliError {
    CliError::Volume { path: path.to_owned(), source }
}

fn bytes(blocks: u64) -> Size {
    Size(blocks.saturating_mul(BLOCK_BYTES as u64))
}
