//! Opening a path as a disk: what kind of thing it is, how large, whether it takes direct I/O, and the
//! lock that keeps two writers off one image.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind, Seek, SeekFrom};
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FallocateFlags, OFlags, StatVfs};
use weir_runtime::Buffer;

use super::FileDiskOptions;
use super::below::{Below, lock_below};
use super::error::FileDiskError;
use super::loops::loop_device;
use crate::address::BLOCK_BYTES;

const BLOCK: u64 = BLOCK_BYTES as u64;
const MIB: u64 = 1 << 20;

/// `f_type` of tmpfs and ramfs, from statfs(2). They take O_DIRECT since Linux 6.6 and still copy through
/// the page cache, since the page cache is all they are.
const MEMORY_FILESYSTEMS: [u64; 2] = [0x0102_1994, 0x8584_58f6];

/// Permissions of a new file: only its owner reads and writes it, since its blocks show what a filesystem in it protects.
pub(super) const OWNERS_ALONE: u32 = 0o600;

/// An open, locked disk and what was found out about it.
pub(super) struct Opened {
    pub(super) path: PathBuf,
    pub(super) file: File,
    /// What lies below it, with its locks.
    pub(super) below: Below,
    pub(super) bytes: u64,
    /// I/O goes past the page cache.
    pub(super) direct: bool,
    /// A hole can be punched, and reads zero.
    pub(super) punch: bool,
}

/// Creates a regular file of `bytes` bytes that only its owner may read, with its space reserved where the
/// filesystem can, unless it is to be sparse, and makes file and name durable; the name of a half-made file is removed again.
pub(super) fn create(path: &Path, bytes: u64, asked: &FileDiskOptions) -> Result<(), FileDiskError> {
    if bytes < BLOCK {
        return Err(FileDiskError::TooSmall { path: path.into(), bytes });
    }
    let mut options = OpenOptions::new();
    options.read(true).write(true).create_new(true).mode(OWNERS_ALONE);
    let file = match options.open(path) {
        Ok(file) => file,
        Err(e) if e.kind() == ErrorKind::AlreadyExists => {
            return Err(FileDiskError::Exists { path: path.into() });
        }
        Err(source) => return Err(FileDiskError::Io { action: "create", path: path.into(), source }),
    };
    let done = enlarge(&file, path, bytes, asked)
        .and_then(|()| sync_with_parent(&file, path).map_err(|source| refused("allocate", path, source)));
    done.inspect_err(|_| {
        // The first error is the one to report; a name that stays behind shows itself at the next attempt.
        let _ = fs::remove_file(path);
    })
}

/// Gives a new file its size, with its space reserved where the filesystem can, unless it is to be sparse.
pub(super) fn enlarge(
    file: &File,
    path: &Path,
    bytes: u64,
    asked: &FileDiskOptions,
) -> Result<(), FileDiskError> {
    if asked.sparse {
        return file.set_len(bytes).map_err(|source| refused("enlarge", path, source));
    }
    // Looked at first: an allocation that fails takes all the space that others may want meanwhile.
    let free = free_bytes(path);
    let done = match free {
        Some(free) if free < bytes => Err(ErrorKind::StorageFull.into()),
        _ => allocate(file, bytes),
    };
    done.map_err(|source| match (source.kind(), free) {
        (ErrorKind::StorageFull, Some(free)) => FileDiskError::NoSpace {
            path: path.into(),
            needed_mib: bytes.div_ceil(MIB),
            free_mib: free / MIB,
        },
        _ => refused("allocate", path, source),
    })
}

/// Gives a regular file so many bytes, if that is asked for; the bytes that the file or device has then.
pub(super) fn resize(mut file: &File, path: &Path, bytes: Option<u64>) -> Result<u64, FileDiskError> {
    let is_file = file.metadata().map_err(|source| refused("look at", path, source))?.is_file();
    if let Some(bytes) = bytes.filter(|_| is_file) {
        if bytes < BLOCK {
            return Err(FileDiskError::TooSmall { path: path.into(), bytes });
        }
        file.set_len(bytes).map_err(|source| refused("resize", path, source))?;
    }
    file.seek(SeekFrom::End(0)).map_err(|source| refused("measure", path, source))
}

/// Bytes that the directory of a file has free for this user, if the kernel tells.
fn free_bytes(path: &Path) -> Option<u64> {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let found = rustix::fs::statvfs(parent.unwrap_or(Path::new("."))).ok()?;
    Some(free_for_user(found))
}

/// The same of an open file; none of a device.
pub(super) fn free_below(file: &File) -> Option<u64> {
    file.metadata().ok()?.is_file().then(|| rustix::fs::fstatvfs(file).ok().map(free_for_user)).flatten()
}

fn free_for_user(found: StatVfs) -> u64 {
    let blocks = if rustix::process::geteuid().is_root() { found.f_bfree } else { found.f_bavail };
    blocks.saturating_mul(found.f_frsize)
}

fn allocate(file: &File, bytes: u64) -> io::Result<()> {
    match rustix::fs::fallocate(file, FallocateFlags::empty(), 0, bytes) {
        Ok(()) => Ok(()),
        Err(rustix::io::Errno::OPNOTSUPP) => file.set_len(bytes),
        Err(e) => Err(e.into()),
    }
}

pub(super) fn sync_with_parent(file: &File, path: &Path) -> io::Result<()> {
    file.sync_all()?;
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    File::open(parent.unwrap_or(Path::new(".")))?.sync_all()
}

/// Opens and locks what is at `path`.
pub(super) fn open(path: &Path, options: &FileDiskOptions) -> Result<Opened, FileDiskError> {
    let kind = fs::metadata(path).map_err(|source| refused("look at", path, source))?.file_type();
    if kind.is_dir() {
        return Err(FileDiskError::Directory { path: path.into() });
    }
    if !kind.is_file() && !kind.is_block_device() {
        return Err(FileDiskError::NotADisk { path: path.into() });
    }
    if kind.is_block_device() && !options.read_only && takes_no_writes(path) {
        return Err(FileDiskError::ReadOnly { path: path.into() });
    }
    // Without O_CREAT, O_EXCL means something for block devices only: refused while mounted.
    let exclusive = if kind.is_block_device() { OFlags::EXCL } else { OFlags::empty() };
    let (mut file, asked_direct) = open_file(path, options, exclusive)?;
    lock(&file, path, options.read_only)?;
    let below = lock_below(&file, path, options.read_only)?;
    if kind.is_file()
        && let Some(device) = loop_device(below.place, options.read_only)
    {
        return Err(FileDiskError::Attached { path: path.into(), device });
    }
    let mut bytes = file.seek(SeekFrom::End(0)).map_err(|source| refused("measure", path, source))?;
    if let (0, true, Some(size)) = (bytes, kind.is_file(), options.size_if_empty) {
        enlarge(&file, path, size, options)?;
        sync_with_parent(&file, path).map_err(|source| refused("make durable", path, source))?;
        bytes = size;
    }
    if bytes < BLOCK {
        return Err(FileDiskError::TooSmall { path: path.into(), bytes });
    }
    let in_memory =
        kind.is_file() && lives_in_memory(&file).map_err(|source| refused("look at", path, source))?;
    let direct =
        asked_direct && !in_memory && takes_direct(&file).map_err(|source| refused("read", path, source))?;
    if asked_direct && !direct {
        rustix::fs::fcntl_getfl(&file)
            .and_then(|flags| rustix::fs::fcntl_setfl(&file, flags - OFlags::DIRECT))
            .map_err(|e| refused("leave direct I/O on", path, e.into()))?;
    }
    let punch = kind.is_file() && !options.read_only && takes_punch(&file, bytes);
    Ok(Opened { path: path.into(), file, below, bytes, direct, punch })
}

/// Opens with O_DIRECT, or without it where the filesystem refuses or the options say so.
fn open_file(path: &Path, options: &FileDiskOptions, flags: OFlags) -> Result<(File, bool), FileDiskError> {
    let attempt = |flags: OFlags| {
        OpenOptions::new()
            .read(true)
            .write(!options.read_only)
            .custom_flags(flags.bits().cast_signed())
            .open(path)
    };
    if !options.buffered {
        match attempt(flags | OFlags::DIRECT) {
            Err(e) if e.kind() == ErrorKind::InvalidInput => {}
            answer => return answer.map(|file| (file, true)).map_err(|source| refused("open", path, source)),
        }
    }
    attempt(flags).map(|file| (file, false)).map_err(|source| refused("open", path, source))
}

/// Whether the kernel says of a block device that it is read-only: it can be opened for writing, and then fails each write.
fn takes_no_writes(path: &Path) -> bool {
    let number = fs::metadata(path).map(|found| found.rdev());
    let said = number.and_then(|number| {
        fs::read(format!("/sys/dev/block/{}:{}/ro", rustix::fs::major(number), rustix::fs::minor(number)))
    });
    said.is_ok_and(|said| said.starts_with(b"1"))
}

/// Readers share a disk, a writer has exclusive use. The lock ends with the open file, however the process ends.
pub(super) fn lock(file: &File, path: &Path, read_only: bool) -> Result<(), FileDiskError> {
    let locked = if read_only { file.try_lock_shared() } else { file.try_lock() };
    locked.map_err(|e| match e {
        TryLockError::WouldBlock => FileDiskError::Locked { path: path.into() },
        TryLockError::Error(source) => refused("lock", path, source),
    })
}

/// Whether a regular file has no disk under it. (Asked of a block device the answer would be about `/dev`.)
fn lives_in_memory(file: &File) -> io::Result<bool> {
    let filesystem = rustix::fs::fstatfs(file)?.f_type.cast_unsigned();
    Ok(MEMORY_FILESYSTEMS.contains(&(filesystem & 0xffff_ffff)))
}

/// Whether direct I/O really works here at block alignment: some filesystems accept the flag and then
/// refuse every direct transfer.
fn takes_direct(file: &File) -> io::Result<bool> {
    match file.read_exact_at(&mut Buffer::new(BLOCK_BYTES), 0) {
        Ok(()) => Ok(true),
        Err(e) if e.kind() == ErrorKind::InvalidInput => Ok(false),
        Err(e) => Err(e),
    }
}

/// Whether holes can be punched: tried behind the end of the file, where nothing is.
fn takes_punch(file: &File, bytes: u64) -> bool {
    let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    rustix::fs::fallocate(file, flags, bytes.next_multiple_of(BLOCK), BLOCK).is_ok()
}

pub(super) fn refused(action: &'static str, path: &Path, source: io::Error) -> FileDiskError {
    let path = path.into();
    match source.kind() {
        ErrorKind::NotFound => FileDiskError::Missing { path },
        ErrorKind::ResourceBusy => FileDiskError::Busy { path },
        ErrorKind::FileTooLarge => FileDiskError::FileTooLarge { path },
        ErrorKind::ReadOnlyFilesystem => FileDiskError::ReadOnly { path },
        _ => FileDiskError::Io { action, path, source },
    }
}
