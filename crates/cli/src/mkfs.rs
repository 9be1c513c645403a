//! `weir mkfs`: make a filesystem.

use std::path::{Path, PathBuf};
use std::rc::Rc;

use clap::{Args, ValueEnum};
use rustix::process::{getegid, geteuid};
use weir_ext4::Mkfs;
use weir_format::FormatError;
use weir_fs::BarrierFs;
use weir_lfs::F2fs;
use weir_runtime::Handle;
use weir_storage::{BLOCK_BYTES, FileDisk, FileDiskOptions, Lba, Part, Rejected, Storage, flush, write};
use weir_volume::{Format, Volume, VolumeOptions};

use crate::error::CliError;
use crate::size::Size;
use crate::stack::{plain, random_uuid, seconds_now};
use crate::volume::{Made, ground, not_created, require_empty};
use crate::{in_wall_time, print};

/// The format of a filesystem.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum FormatName {
    /// ext4 with a journal, which is mounted by `weir mount`
    Ext4,
    /// F2FS, which is mounted by `weir mount` and, without a volume, by Linux
    F2fs,
}

/// Per cent of the space that only the superuser may use, if that is not given.
const RESERVED_PERCENT: u8 = 5;
/// The volume that is made on a disk.
fn volume_for(arguments: &MkfsArguments, disk: &dyn Storage) -> Format {
    let sized = Format::sized_for(disk.blocks());
    Format { overwrite: true, slots: arguments.snapshots.unwrap_or(sized.slots), ..sized }
}

impl FormatName {
    /// What a filesystem takes at least; and a volume that it fits into.
    const fn least(self) -> [Size; 2] {
        match self {
            FormatName::Ext4 => [Size(8 << 20), Size(16 << 20)],
            FormatName::F2fs => [Size(52 << 20), Size(60 << 20)],
        }
    }
}

/// Arguments of `weir mkfs`.
#[derive(Debug, Args)]
pub(crate) struct MkfsArguments {
    /// The file or block device
    path: PathBuf,
    /// Size of a new file, such as 4G; leave it out for a file or device that exists
    #[arg(long, value_name = "SIZE")]
    size: Option<Size>,
    /// The format. F2FS takes 52M at least, 60M with a volume, and none of the options of journals, inodes, reserves and checksums
    #[arg(long = "type", value_enum, value_name = "FORMAT", default_value_t = FormatName::Ext4)]
    format: FormatName,
    /// Make a volume, and the filesystem in it (a flag, which takes no value): on a mount, barriers then wait for nothing. Without a volume, each
    /// barrier waits and flushes
    #[arg(long)]
    volume: bool,
    /// Slots for snapshots and clones, 0 to 32, each for 0.4 % of the space [default: 4, and none for less than 64M or more than 256G]
    #[arg(long, value_name = "N", requires = "volume")]
    snapshots: Option<u32>,
    /// A name for the filesystem, of at most 16 bytes on ext4, and 512 UTF-16 units on F2FS [default: none]
    #[arg(long, default_value = "", hide_default_value = true)]
    label: String,
    /// Size of the journal, such as 1G: 4M at least, half of the filesystem or 39G at most. A larger one is checkpointed
    /// less often, and takes more of a mount's memory [default: by the filesystem's size]
    #[arg(long, value_name = "SIZE", alias = "journal")]
    journal_size: Option<Size>,
    /// One inode for that much space, such as 16K [default: by the filesystem's size]
    #[arg(long, value_name = "SIZE")]
    bytes_per_inode: Option<Size>,
    /// Per cent of the space that only the superuser may use [default: 5]
    #[arg(long, value_name = "PERCENT")]
    reserved: Option<u8>,
    /// Leave metadata and journal without checksums, as older kernels make them: what is damaged may then go unnoticed
    #[arg(long)]
    no_checksums: bool,
    /// Write zeros to all of a new file now. The first write to a block of a file costs the host's filesystem an entry
    /// in its journal, and a durable call would wait for that
    #[arg(long)]
    fill: bool,
    /// Overwrite what the file or device holds
    #[arg(long)]
    force: bool,
}

/// Runs the command.
pub(crate) fn run(arguments: &MkfsArguments) -> Result<(), CliError> {
    in_wall_time(0, async |handle: Handle| make(handle, arguments).await)
}

async fn make(handle: Handle, arguments: &MkfsArguments) -> Result<(), CliError> {
    let path = &arguments.path;
    let of_ext4 = [
        (arguments.journal_size.is_some(), "--journal-size"),
        (arguments.bytes_per_inode.is_some(), "--bytes-per-inode"),
        (arguments.reserved.is_some(), "--reserved"),
        (arguments.no_checksums, "--no-checksums"),
    ];
    if let (FormatName::F2fs, Some((_, option))) =
        (arguments.format, of_ext4.into_iter().find(|(given, _)| *given))
    {
        return Err(CliError::OptionOfExt4 { path: path.clone(), option });
    }
    let [least, least_of_volume] = arguments.format.least();
    if let Some(asked) = arguments.size.filter(|asked| *asked < least) {
        let least = if arguments.volume { least_of_volume } else { least };
        return Err(CliError::TooFewBytes { asked, least });
    }
    let (disk, made) = ground(&handle, path, arguments.size, FileDiskOptions::default())?;
    if made == Made::Nothing && !arguments.force {
        require_empty(path)?;
    }
    // Before anything is written: what is there stays if it cannot be made.
    let told = describe(&handle, arguments, &disk).inspect_err(|_| made.undo(path))?;
    // By a path that locks do not see, another process may have a volume open that is here. Where a volume is made, that is
    // asked there.
    if made == Made::Nothing && !arguments.volume {
        let checked = weir_volume::require_closed(&handle, &*disk).await;
        checked.map_err(|source| CliError::of_volume(path, source))?;
    }
    if arguments.fill && made != Made::Nothing {
        fill(&disk, path).await.inspect_err(|_| made.undo(path))?;
    }
    let done = match arguments.volume {
        true => make_in_volume(&handle, arguments, &disk).await,
        false => make_on(&handle, arguments, &*disk, made != Made::Nothing).await,
    };
    done.inspect_err(|_| made.undo(path))?;
    disk.name()?;
    print(&format!("{}: {told}", path.display()))
}

/// What is going to be made, for people.
///
/// # Errors
/// Whatever the options are refused by.
fn describe(handle: &Handle, arguments: &MkfsArguments, disk: &FileDisk) -> Result<String, CliError> {
    let path = &arguments.path;
    let failed = |source: FormatError| CliError::Image { path: path.clone(), source: source.into() };
    let blocks = match arguments.volume {
        true => {
            volume_for(arguments, disk).capacity_on(disk).map_err(|source| not_created(path, None, source))?
        }
        false => disk.blocks(),
    };
    let size = Size::of_blocks(blocks);
    let [least, least_of_volume] = arguments.format.least();
    if arguments.volume && size < least {
        return Err(CliError::NoRoomInVolume { path: path.clone(), left: size, least, least_of_volume });
    }
    let filesystem = match arguments.format {
        FormatName::Ext4 => {
            options(handle, arguments, blocks, true).plan().map_err(failed)?;
            format!("an ext4 filesystem of {size}")
        }
        FormatName::F2fs if size < least => {
            return Err(CliError::NoRoomForFilesystem { path: path.clone(), found: size, least });
        }
        FormatName::F2fs => {
            let planned = f2fs_options(handle, arguments, blocks, true).plan().map_err(failed)?;
            let header = &planned.checkpoint().header;
            let room = header.user_blocks.get().saturating_sub(header.valid_blocks.get());
            format!("an F2FS filesystem of {size}, with room for {} of files", Size::of_blocks(room))
        }
    };
    Ok(match arguments.volume {
        true => format!("a volume with {filesystem}"),
        false => format!("{filesystem}, without a volume: on a mount, each barrier waits and flushes"),
    })
}

/// Writes zeros to all blocks of a disk.
async fn fill(disk: &FileDisk, path: &Path) -> Result<(), CliError> {
    let failed = |error: Rejected| CliError::Image { path: path.to_owned(), source: error.into() };
    let most = u64::from(disk.capabilities().max_transfer_blocks);
    let zeros = vec![0; most as usize * BLOCK_BYTES];
    let blocks = disk.blocks();
    for start in (0..blocks).step_by(most as usize) {
        let count = most.min(blocks - start) as usize;
        write(disk, Part::bytes(Lba(start), &zeros[..count * BLOCK_BYTES])).await.map_err(failed)?;
    }
    flush(disk).await.map_err(failed)
}

/// Makes the filesystem on a storage.
async fn make_on(
    handle: &Handle,
    arguments: &MkfsArguments,
    storage: &dyn Storage,
    zeroed: bool,
) -> Result<(), CliError> {
    let blocks = storage.blocks();
    match arguments.format {
        FormatName::Ext4 => BarrierFs::make(storage, &options(handle, arguments, blocks, zeroed)).await,
        FormatName::F2fs => F2fs::make(storage, &f2fs_options(handle, arguments, blocks, zeroed)).await,
    }
    .map_err(|source| CliError::Image { path: arguments.path.clone(), source })
}

/// What `mkfs.f2fs` makes, with checksums and times of creation.
fn f2fs_options(handle: &Handle, arguments: &MkfsArguments, blocks: u64, zeroed: bool) -> weir_f2fs::Mkfs {
    let (uuid, created) = (random_uuid(handle), seconds_now(handle));
    weir_f2fs::Mkfs {
        label: arguments.label.clone(),
        extra_attributes: true,
        zeroed,
        uid: geteuid().as_raw(),
        gid: getegid().as_raw(),
        // A checkpoint of an older filesystem on the device has another version.
        ..weir_f2fs::Mkfs::new(blocks, uuid, handle.entropy() | 1, created.into())
    }
}

async fn make_in_volume(
    handle: &Handle,
    arguments: &MkfsArguments,
    disk: &Rc<FileDisk>,
) -> Result<(), CliError> {
    let failed = |source| CliError::Volume { path: arguments.path.clone(), source };
    let created = Volume::create(handle, &**disk, volume_for(arguments, &**disk)).await;
    created.map_err(|source| not_created(&arguments.path, None, source))?;
    let disk = Rc::<FileDisk>::clone(disk);
    let volume = Volume::open(handle, disk, VolumeOptions::default()).await.map_err(failed)?;
    // What a new volume does not hold reads as zeros.
    make_on(handle, arguments, &volume, true).await?;
    volume.close().await.map_err(failed)
}

fn options(handle: &Handle, arguments: &MkfsArguments, blocks: u64, zeroed: bool) -> Mkfs {
    let narrow = |size: u64| u32::try_from(size).unwrap_or(u32::MAX);
    Mkfs {
        label: arguments.label.clone(),
        journal_blocks: arguments.journal_size.map(|size| narrow(size.blocks())),
        bytes_per_inode: arguments.bytes_per_inode.map(|size| narrow(size.0)),
        reserved_percent: arguments.reserved.unwrap_or(RESERVED_PERCENT),
        zeroed,
        checksums: !arguments.no_checksums,
        // The user who makes it, who can then write on a mount of their own.
        uid: geteuid().as_raw(),
        gid: getegid().as_raw(),
        ..plain(handle, blocks)
    }
}
