//! `weir volume`: make, show, check and upgrade volumes.

use std::fs::OpenOptions;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use clap::{Args, Subcommand};
use weir_runtime::Handle;
use weir_storage::{BLOCK_BYTES, FileDisk, FileDiskOptions, Storage as _};
use weir_volume::{CheckReport, Format, FormatError, Info, Volume, VolumeError};

use crate::error::CliError;
use crate::occupant::{Content, content};
use crate::open::open_disk;
use crate::plain;
use crate::repair::{self, RepairArguments};
use crate::resize::{self, GrowArguments, ShrinkArguments};
use crate::size::Size;
use crate::stack::{find_volume, no_volume, overlay};
use crate::{Verdict, in_wall_time, print};

/// Bytes that a volume takes at least.
const VOLUME_MIN: Size = Size(8 << 20);

/// Blocks of the largest volumes that take shares.
const SHARES_BLOCKS_MAX: u64 = 1 << 31;

/// What to do with volumes.
#[derive(Debug, Subcommand)]
pub(crate) enum VolumeCommand {
    /// Make a volume in a new file, an empty one, or on an empty block device
    Create(CreateArguments),
    /// Show the sizes, format version and state of a volume, without changing it
    Info(PathArgument),
    /// Read all of a volume and compare checksums, without changing it; exit code 1 if anything is damaged, 2
    /// if it cannot be checked
    Check(PathArgument),
    /// Say what can be saved of a damaged volume, and which files have lost something; with --write, save it. Exit code 1
    /// if anything is damaged or lost
    Repair(RepairArguments),
    /// Make a volume larger, and its file; on a mount, its filesystem, too
    Grow(GrowArguments),
    /// Make a closed volume smaller, and its file. What is behind the new capacity must be discarded before
    Shrink(ShrinkArguments),
    /// Let a volume that an older program made take shares; older programs cannot open it from then on
    Upgrade(PathArgument),
}

/// Arguments of `weir volume create`.
#[derive(Debug, Args)]
pub(crate) struct CreateArguments {
    /// The file or block device
    path: PathBuf,
    /// Size of a new file, such as 4G; leave it out for a file or device that exists
    #[arg(long, value_name = "SIZE")]
    size: Option<Size>,
    /// Capacity shown to users [default: as much as fits]. If it is more, writes fail with ENOSPC once the volume is
    /// full
    #[arg(long, value_name = "SIZE")]
    logical: Option<Size>,
    /// Slots for snapshots and clones, 0 to 32, each for 0.4 % of the space [default: 4, and none for less than 64M or more than 256G, or with
    /// --logical]
    #[arg(long, value_name = "N")]
    snapshots: Option<u32>,
    /// Overwrite what the file or device holds
    #[arg(long)]
    force: bool,
}

/// The volume to examine.
#[derive(Debug, Args)]
pub(crate) struct PathArgument {
    /// The file or block device
    path: PathBuf,
}

/// Runs the command.
pub(crate) fn run(command: &VolumeCommand) -> Result<Verdict, CliError> {
    in_wall_time(0, async |handle: Handle| match command {
        VolumeCommand::Create(arguments) => create(handle, arguments).await,
        VolumeCommand::Info(PathArgument { path }) => info(handle, path).await,
        VolumeCommand::Check(PathArgument { path }) => check(handle, path).await,
        VolumeCommand::Repair(arguments) => repair::run(&handle, arguments).await,
        VolumeCommand::Grow(arguments) => resize::grow(&handle, arguments).await,
        VolumeCommand::Shrink(arguments) => resize::shrink(&handle, arguments).await,
        VolumeCommand::Upgrade(PathArgument { path }) => upgrade(handle, path).await,
    })
}

async fn create(handle: Handle, arguments: &CreateArguments) -> Result<Verdict, CliError> {
    let path = &arguments.path;
    if let Some(asked) = arguments.size.filter(|asked| asked.0 < BLOCK_BYTES as u64) {
        return Err(CliError::TooFewBytes { asked, least: VOLUME_MIN });
    }
    let logical_blocks = match arguments.logical {
        None => 0,
        Some(size) if size.0 < BLOCK_BYTES as u64 => return Err(CliError::LogicalTooSmall(size)),
        Some(size) => size.blocks(),
    };
    let (disk, made) = ground(&handle, path, arguments.size, FileDiskOptions::default())?;
    if made == Made::Nothing && !arguments.force {
        require_empty(path)?;
    }
    let sized = Format::sized_for(disk.blocks());
    // The map of a slot is as large as the capacity that is shown, which may be many times the disk.
    let by_default = if arguments.logical.is_some() { 0 } else { sized.slots };
    let slots = arguments.snapshots.unwrap_or(by_default);
    let format = Format { logical_blocks, overwrite: arguments.force, slots, ..sized };
    if let Err(source) = Volume::create(&handle, &*disk, format).await {
        // Another program's data, even if it was not there a moment ago.
        let occupied = matches!(source, VolumeError::NotEmpty(_) | VolumeError::VolumeExists);
        if occupied {
            return Err(CliError::Occupied { path: path.clone(), source });
        }
        made.undo(path);
        return Err(not_created(path, arguments.logical, source));
    }
    let info = weir_volume::inspect(&*disk).await.map_err(|source| CliError::of_volume(path, source))?;
    disk.name()?;
    print(&format!(
        "{}: a volume of {} ({} usable at once)",
        path.display(),
        Size::of_blocks(info.logical_blocks),
        Size::of_blocks(info.usable_blocks)
    ))?;
    Ok(Verdict::Good)
}

/// The error for a disk that is too small, in the words of the command line.
pub(crate) fn not_created(path: &Path, logical: Option<Size>, source: VolumeError) -> CliError {
    let VolumeError::Format(FormatError::TooSmall { needed, found }) = source else {
        return CliError::of_volume(path, source);
    };
    let (path, found) = (path.to_owned(), Size::of_blocks(found));
    let needed = Size(Size::of_blocks(needed).0.next_multiple_of(1 << 20));
    match logical {
        Some(logical) => CliError::LogicalTooLarge { path, logical, needed, found },
        None => CliError::TooSmall { path, needed, found },
    }
}

/// What [`ground`] had to make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Made {
    Nothing,
    /// A file that was not there, and gets its name when all is done.
    Unnamed,
    /// A file that was not there.
    File,
    /// Room in a file that was empty.
    Room,
}

impl Made {
    /// Leaves things as they were found. The error that made this necessary is the one to report.
    pub(crate) fn undo(self, path: &Path) {
        let _ = match self {
            Made::Nothing | Made::Unnamed => Ok(()),
            Made::File => std::fs::remove_file(path),
            Made::Room => set_file_bytes(path, 0),
        };
    }
}

/// Refuses what holds data: see [`content`].
pub(crate) fn require_empty(path: &Path) -> Result<(), CliError> {
    let failed = |source| CliError::File { doing: "look for data in", path: path.to_owned(), source };
    match content(path).map_err(failed)? {
        Content::Data(found) => Err(CliError::InUse { path: path.to_owned(), found }),
        Content::Empty | Content::NoneInSamples => Ok(()),
    }
}

/// Refuses the path of a new file whose directory is not there.
pub(crate) fn require_directory_of(path: &Path) -> Result<(), CliError> {
    let directory = path.parent().filter(|directory| !directory.as_os_str().is_empty());
    match directory.filter(|directory| !directory.exists()) {
        None => Ok(()),
        Some(directory) => {
            Err(CliError::NoDirectory { path: path.to_owned(), directory: directory.to_owned() })
        }
    }
}

/// Makes a file longer or shorter.
pub(crate) fn set_file_bytes(path: &Path, bytes: u64) -> std::io::Result<()> {
    OpenOptions::new().write(true).open(path)?.set_len(bytes)
}

/// The disk for a new volume or filesystem: a new file of `size`, which the caller names when all is done, an empty file made
/// that large, or what is there.
pub(crate) fn ground(
    handle: &Handle,
    path: &Path,
    size: Option<Size>,
    options: FileDiskOptions,
) -> Result<(Rc<FileDisk>, Made), CliError> {
    let no_size = || CliError::NoSize(path.to_owned());
    let failed = |doing| move |source| CliError::File { doing, path: path.to_owned(), source };
    let metadata = match std::fs::metadata(path) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            require_directory_of(path)?;
            let disk = FileDisk::create_unnamed(handle, path, size.ok_or_else(no_size)?.0, options)?;
            let made = if disk.has_name() { Made::File } else { Made::Unnamed };
            return Ok((disk, made));
        }
        Err(error) => return Err(failed("look at")(error)),
    };
    if metadata.is_file() && metadata.len() == 0 {
        let size = size.ok_or_else(no_size)?;
        set_file_bytes(path, size.0).map_err(failed("enlarge"))?;
        let disk = FileDisk::open(handle, path, options).inspect_err(|_| Made::Room.undo(path))?;
        return Ok((disk, Made::Room));
    }
    let disk = FileDisk::open(handle, path, options)?;
    let found = Size(disk.bytes());
    match size {
        Some(asked) if asked != found => Err(CliError::OtherSize { path: path.to_owned(), found, asked }),
        _ => Ok((disk, Made::Nothing)),
    }
}

async fn info(handle: Handle, path: &Path) -> Result<Verdict, CliError> {
    let disk = open_to_read(&handle, path).await?;
    print(&describe(&find_volume(&disk, path).await?))?;
    Ok(Verdict::Good)
}

fn describe(info: &Info) -> String {
    let mut lines = vec![
        format!("format version    {}", info.version),
        format!("volume            {:016x}", info.volume),
        format!(
            "capacity          {} ({} blocks)",
            Size::of_blocks(info.logical_blocks),
            info.logical_blocks
        ),
        format!("usable at once    {} ({} blocks)", Size::of_blocks(info.usable_blocks), info.usable_blocks),
        format!(
            "on disk           {} ({} blocks)",
            Size::of_blocks(info.physical_blocks),
            info.physical_blocks
        ),
        format!("segments          {} of {}", info.segments, Size::of_blocks(u64::from(info.segment_blocks))),
        format!("shares            {}", shares(info)),
        format!("snapshots         {} at most", info.slots),
        format!("open              {}", opener(info)),
        format!("checkpoint        {}", info.checkpoint),
        format!("log generation    {}", info.generation),
        format!("next request      {}", info.next_sequence),
    ];
    lines.extend(info.base.map(|base| {
        format!(
            "base              the state of a replica after request {}; see `weir mount --cache`",
            base.sequence
        )
    }));
    lines.join("\n")
}

fn shares(info: &Info) -> &'static str {
    match (info.shares, info.physical_blocks <= SHARES_BLOCKS_MAX) {
        (true, _) => "yes",
        (false, true) => "no; `weir volume upgrade` adds them",
        (false, false) => "no; volumes of more than 8 TiB have none",
    }
}

/// The process that has it open, or that did not close it.
fn opener(info: &Info) -> String {
    match &info.opener {
        None => "no".to_owned(),
        Some(opener) => {
            format!("yes, by process {} on {}; or it was not closed", opener.process, opener.host_name())
        }
    }
}

async fn upgrade(handle: Handle, path: &Path) -> Result<Verdict, CliError> {
    let disk = open_disk(&handle, path, FileDiskOptions::default()).await?;
    let upgraded = match weir_volume::upgrade(&handle, Rc::<FileDisk>::clone(&disk)).await {
        Err(VolumeError::Foreign) => return Err(no_volume(&disk, path).await),
        outcome => outcome.map_err(|source| CliError::of_volume(path, source))?,
    };
    let is_new = if upgraded {
        "takes shares and claims now; older programs cannot open it"
    } else {
        "takes shares already"
    };
    print(&format!("{}: {is_new}", path.display()))?;
    Ok(Verdict::Good)
}

async fn check(handle: Handle, path: &Path) -> Result<Verdict, CliError> {
    let disk = open_to_read(&handle, path).await?;
    match weir_volume::check(&*disk).await {
        Ok(report) => {
            print(&findings(&report))?;
            if report.damaged_total > 0 {
                let in_memory = Rc::new(overlay(&handle, &disk));
                let damaged = (&report.damaged[..], report.damaged_total);
                repair::tell_files(&handle, path, in_memory, disk, damaged).await?;
            }
            Ok(if is_whole(&report) { Verdict::Good } else { Verdict::Damaged })
        }
        Err(VolumeError::Damaged { what, at }) => {
            print(&format!(
                "damaged: {what}, at {at} of the disk; `weir volume repair` says what can be saved"
            ))?;
            Ok(Verdict::Damaged)
        }
        Err(truncated @ VolumeError::Truncated { .. }) => {
            print(&format!("damaged: {}", CliError::of_volume(path, truncated)))?;
            Ok(Verdict::Damaged)
        }
        Err(VolumeError::Foreign) => Err(no_volume(&disk, path).await),
        Err(source) => Err(CliError::of_volume(path, source)),
    }
}

/// Copies of the superblock on a whole volume.
const SUPERBLOCK_COPIES: u64 = 2;

fn is_whole(report: &CheckReport) -> bool {
    report.damaged_total == 0 && (report.superblock_copies >= SUPERBLOCK_COPIES || report.superblocks_differ)
}

fn findings(report: &CheckReport) -> String {
    let CheckReport { superblock_copies, records, live_blocks, shared_names, damaged_total, .. } = report;
    let shared = match shared_names {
        0 => String::new(),
        names => format!(" for {names} shared logical blocks and others"),
    };
    let read =
        format!("{live_blocks} live blocks read{shared}, {records} records behind the newest checkpoint");
    if is_whole(report) && report.superblocks_differ {
        return format!(
            "clean: {read}; a resize or an upgrade was interrupted before it counted: the volume is as it was, and the next mount \
             settles that"
        );
    }
    if is_whole(report) {
        return format!("clean: {read}");
    }
    let mut lines = vec![format!("damaged: {read}")];
    if *damaged_total > 0 {
        let blocks = plain::counted(*damaged_total, "live block", "live blocks");
        lines.push(format!("{blocks} cannot be read with the right checksum; restore from a copy:"));
    }
    if *superblock_copies < SUPERBLOCK_COPIES && !report.superblocks_differ {
        lines.push(format!(
            "redundancy is lost: {superblock_copies} of {SUPERBLOCK_COPIES} copies of the superblock is whole, and if that is damaged, too, the volume cannot be opened; `weir volume repair --write` writes the other copy anew"
        ));
    }
    lines.join("\n")
}

async fn open_to_read(handle: &Handle, path: &Path) -> Result<Rc<FileDisk>, CliError> {
    open_disk(handle, path, FileDiskOptions { read_only: true, ..FileDiskOptions::default() }).await
}
