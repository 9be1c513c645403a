//! *Mount points* below a directory, which a check, or a mount that did not end, may have left there, and the removal of such a
//! directory, which goes into no mount.

use std::ffi::OsString;
use std::fs::{self, Permissions};
use std::io;
use std::os::unix::ffi::OsStringExt as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use rustix::mount::{UnmountFlags, unmount};

/// Directories within each other at most: no path is longer.
const DEPTH_MAX: usize = 2048;
/// Mounts are detached in so many rounds at most: below one there may be another.
const ROUNDS_MAX: usize = 16;

/// Detaches all that is mounted on a directory or below it.
///
/// # Errors
/// [`io::ErrorKind::ResourceBusy`] if something stays mounted, and what the kernel says.
pub(crate) fn detach_mounts_in(directory: &Path) -> io::Result<()> {
    // The mount itself is not asked: its server may be gone.
    let directory = match (directory.parent(), directory.file_name()) {
        (Some(parent), Some(name)) => parent.canonicalize()?.join(name),
        _ => directory.to_owned(),
    };
    for _ in 0..ROUNDS_MAX {
        let mounts = mounts_in(&directory)?;
        if mounts.is_empty() {
            return Ok(());
        }
        // The newest first.
        for mount in mounts.iter().rev() {
            // What stays is told below.
            let _ = unmount(mount, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW);
        }
    }
    Err(io::Error::new(io::ErrorKind::ResourceBusy, format!("{} stays mounted", directory.display())))
}

/// The mount points on a directory or below it, in the order of their mounts.
fn mounts_in(directory: &Path) -> io::Result<Vec<PathBuf>> {
    let told = fs::read("/proc/self/mountinfo")?;
    let points = told.split(|byte| *byte == b'\n').filter_map(|line| line.split(|byte| *byte == b' ').nth(4));
    Ok(points.map(unescape).filter(|point| point.starts_with(directory)).collect())
}

/// A path of the kernel's list, where some bytes are a backslash and three octal digits.
fn unescape(escaped: &[u8]) -> PathBuf {
    let (mut path, mut left) = (Vec::new(), escaped);
    while let Some((first, rest)) = left.split_first() {
        let digits = rest.get(..3).and_then(|digits| std::str::from_utf8(digits).ok());
        let byte = digits.and_then(|digits| u8::from_str_radix(digits, 8).ok()).filter(|_| *first == b'\\');
        path.push(byte.unwrap_or(*first));
        left = if byte.is_some() { &rest[3..] } else { rest };
    }
    OsString::from_vec(path).into()
}

/// Removes a directory that a check may have made hard to remove. What is mounted below it is detached and stays as it is.
///
/// # Errors
/// As of [`detach_mounts_in`]; [`io::ErrorKind::CrossesDevices`] if something else is another filesystem; and what removing fails
/// by.
pub(crate) fn remove_directory(path: &Path) -> io::Result<()> {
    detach_mounts_in(path)?;
    open_directories(path, fs::symlink_metadata(path)?.dev(), DEPTH_MAX)?;
    fs::remove_dir_all(path)
}

/// Gives the owner all rights to a directory and to those in it, which all are of one device.
fn open_directories(path: &Path, device: u64, depth: usize) -> io::Result<()> {
    let metadata = fs::symlink_metadata(path)?;
    if metadata.dev() != device {
        let said = format!("{} is another filesystem: it is not removed", path.display());
        return Err(io::Error::new(io::ErrorKind::CrossesDevices, said));
    }
    if metadata.mode() & 0o700 != 0o700 {
        // The removal fails where something cannot be changed.
        let _ = fs::set_permissions(path, Permissions::from_mode(0o700));
    }
    let entries = fs::read_dir(path).into_iter().flatten().flatten();
    for entry in entries.filter(|entry| depth > 0 && entry.file_type().is_ok_and(|kind| kind.is_dir())) {
        open_directories(&entry.path(), device, depth - 1)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn a_removal_detaches_what_is_mounted_and_does_not_go_into_it() {
        let place = tempfile::tempdir().unwrap();
        let [kept, removed] = ["kept", "to remove"].map(|name| place.path().join(name));
        let [at, below] = ["a b", "c"].map(|name| removed.join(name));
        for directory in [&kept, &removed, &at, &below] {
            fs::create_dir(directory).unwrap();
        }
        fs::write(kept.join("file"), "a").unwrap();
        for at in [&at, &below] {
            let bound = Command::new("mount").arg("--bind").args([&kept, at]).output();
            if !bound.is_ok_and(|bound| bound.status.success()) {
                eprintln!("skipped: this machine does not mount for us");
                return;
            }
        }
        assert_eq!(mounts_in(&removed).unwrap(), [at, below]);
        remove_directory(&removed).unwrap();
        assert!(!removed.exists());
        assert_eq!(fs::read_to_string(kept.join("file")).unwrap(), "a");
    }

    #[test]
    fn another_device_is_not_gone_into() {
        let place = tempfile::tempdir().unwrap();
        let inside = place.path().join("a");
        fs::create_dir(&inside).unwrap();
        let device = fs::metadata(&inside).unwrap().dev();
        assert!(open_directories(place.path(), device, 5).is_ok());
        let other = open_directories(place.path(), device + 1, 5).unwrap_err();
        assert_eq!(other.kind(), io::ErrorKind::CrossesDevices);
    }
}
