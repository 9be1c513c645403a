//! The loop device over a file, which the kernel does not lock.
//!
//! 1. The kernel lists the path of the file of each loop device.
//! 2. The file at that path is compared with the one that is opened, by device and inode: a hard link, a symbolic link
//!    and a bind mount have other paths, and are the same file.
//! 3. The check reads only the kernel's caches, since a filesystem in user space may not answer.
//!
//! A file whose name was removed since it was attached is not found this way, and neither is one of another mount
//! namespace, if the path leads to something else here.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Mode, OFlags, ResolveFlags, StatxFlags, makedev, openat2, statx};
use rustix::io::Errno;

use super::below::Place;

/// How often a look into the kernel's caches is repeated: a rename elsewhere on the machine may end it early.
const LOOKS: usize = 8;

/// The loop device that has the file at `place` open, or, for a reader, has it open for writing. None if the system does
/// not tell.
pub(super) fn loop_device(place: Place, read_only: bool) -> Option<PathBuf> {
    let is_over = |device: &fs::DirEntry| {
        let told = |name: &str| fs::read(device.path().join(name)).unwrap_or_default();
        let is_beside = read_only && told("ro").starts_with(b"1");
        let backing = told("loop/backing_file");
        !is_beside && backing.strip_suffix(b"\n").is_some_and(|path| is_at(OsStr::from_bytes(path), place))
    };
    let devices = fs::read_dir("/sys/block").ok()?;
    let device = devices.filter_map(Result::ok).find(is_over)?;
    Some(Path::new("/dev").join(device.file_name()))
}

/// Whether the file at `path` is the one at `place`. Where the kernel's caches do not say, its filesystem is asked, but only
/// if that is the filesystem of `place`, which has answered already.
fn is_at(path: &OsStr, place: Place) -> bool {
    let path = Path::new(path);
    match cached(path) {
        Err(Errno::AGAIN) => {
            let above = path.ancestors().skip(1).find_map(|above| cached(above).ok());
            let is_near = above.is_some_and(|above| above.device == place.device);
            is_near && place_of(path).is_ok_and(|found| found == place)
        }
        found => found == Ok(place),
    }
}

/// Device and inode of what is at `path`, as the kernel has them in its caches.
///
/// # Errors
/// [`Errno::AGAIN`] where it would have to ask a filesystem.
fn cached(path: &Path) -> Result<Place, Errno> {
    let look = || openat2(CWD, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty(), ResolveFlags::CACHED);
    let looks = std::iter::repeat_with(look).take(LOOKS);
    let answer = { looks }.find(|found| !matches!(found, Err(Errno::AGAIN)));
    let found = answer.unwrap_or(Err(Errno::AGAIN))?;
    let found = statx(found, c"", AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC, StatxFlags::INO)?;
    Ok(Place { device: makedev(found.stx_dev_major, found.stx_dev_minor), inode: found.stx_ino })
}

/// The same, as its filesystem says.
fn place_of(path: &Path) -> io::Result<Place> {
    let found = fs::metadata(path)?;
    Ok(Place { device: found.dev(), inode: found.ino() })
}
