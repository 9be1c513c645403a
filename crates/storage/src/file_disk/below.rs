//! What lies below a path: the file of a loop device, the file of the loop device on which that one lies, and so on.
//! Each of them is locked with the device, so that two ways to one file exclude each other.

use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::fs::{major, minor};

use super::error::FileDiskError;
use super::open::lock;

/// Loop devices on loop devices that are followed; the kernel stacks no more than this.
const DEPTH_MAX: usize = 8;

/// Where the content of an open disk is: the inode of the lowest file or device. Two disks with the same place are the
/// same storage, as long as the system runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) device: u64,
    pub(super) inode: u64,
}

/// The files below a loop device, each locked.
pub(super) struct Below {
    pub(super) files: Vec<File>,
    pub(super) place: Place,
}

/// Locks what lies below the open `file` at `path`. A loop device over a part of a file is not followed, nor are
/// partitions: several volumes may lie in one file.
///
/// # Errors
/// [`FileDiskError::Locked`] names the file that another process has locked.
pub(super) fn lock_below(file: &File, path: &Path, read_only: bool) -> Result<Below, FileDiskError> {
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |source| FileDiskError::Io { action: "look at", path, source }
    };
    let mut found = file.metadata().map_err(failed(path))?;
    let mut files = Vec::new();
    for _ in 0..DEPTH_MAX {
        if !found.file_type().is_block_device() {
            return Ok(Below { place: Place { device: found.dev(), inode: found.ino() }, files });
        }
        let Some(backing) = backing_file(found.rdev()) else { break };
        // A file without a name, or of another mount namespace, cannot be opened by its path. A volume's claim still
        // tells that another process has it.
        let Ok(below) = File::options().read(true).write(!read_only).open(&backing) else { break };
        lock(&below, &backing, read_only)?;
        found = below.metadata().map_err(failed(&backing))?;
        files.push(below);
    }
    // A device is the same by whatever node it is opened.
    Ok(Below { place: Place { device: found.rdev(), inode: 0 }, files })
}

/// The file of a loop device that shows all of it, by the kernel's list; none for other devices.
fn backing_file(device: u64) -> Option<PathBuf> {
    let directory = PathBuf::from(format!("/sys/dev/block/{}:{}/loop", major(device), minor(device)));
    let told = |name: &str| fs::read(directory.join(name)).ok();
    let shows_all = ["offset", "sizelimit"].iter().all(|name| told(name).as_deref() == Some(b"0\n"));
    let backing = told("backing_file").filter(|_| shows_all)?;
    Some(Path::new(std::ffi::OsStr::from_bytes(backing.strip_suffix(b"\n")?)).to_owned())
}
