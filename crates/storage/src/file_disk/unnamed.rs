//! *Unnamed* files: a disk in a new file that has no name until its maker gives it one. A process that is killed before leaves
//! nothing behind.

use std::fs::File;
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Mode, OFlags, linkat, openat};
use rustix::io::Errno;

use super::FileDiskOptions;
use super::error::FileDiskError;
use super::open::{OWNERS_ALONE, enlarge, refused, sync_with_parent};
use crate::address::BLOCK_BYTES;

/// Creates a regular file of `bytes` bytes for `path`, without a name, that only its owner may read, with its space reserved
/// where the filesystem can, unless it is to be sparse. None where the filesystem has no files without a name.
pub(super) fn create(
    path: &Path,
    bytes: u64,
    asked: &FileDiskOptions,
) -> Result<Option<File>, FileDiskError> {
    if bytes < BLOCK_BYTES as u64 {
        return Err(FileDiskError::TooSmall { path: path.into(), bytes });
    }
    // Before the work, and of a link that leads nowhere, too; naming it looks again.
    if path.symlink_metadata().is_ok() {
        return Err(FileDiskError::Exists { path: path.into() });
    }
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    let file = match openat(CWD, parent, flags, Mode::from_raw_mode(OWNERS_ALONE)) {
        // Kernels and filesystems without such files take it for a directory that is opened for writing.
        Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL) => return Ok(None),
        opened => File::from(opened.map_err(|errno| refused("create", path, errno.into()))?),
    };
    enlarge(&file, path, bytes, asked)?;
    Ok(Some(file))
}

/// The path by which this process opens a file again.
pub(super) fn path_of(file: &File) -> PathBuf {
    format!("/proc/self/fd/{}", file.as_raw_fd()).into()
}

/// Gives a file its name, and makes both durable.
pub(super) fn name(file: &File, path: &Path) -> Result<(), FileDiskError> {
    match linkat(CWD, path_of(file), CWD, path, AtFlags::SYMLINK_FOLLOW) {
        Err(Errno::EXIST) => return Err(FileDiskError::Exists { path: path.into() }),
        linked => linked.map_err(|errno| refused("name", path, errno.into()))?,
    }
    sync_with_parent(file, path).map_err(|source| refused("make durable", path, source))
}
