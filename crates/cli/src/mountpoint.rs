//! *Mountpoints*: what the kernel's list of mounts says of a directory.

use std::fs::DirEntry;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{major, minor};
use rustix::process::getuid;

/// What the kernel calls a mount of Weir.
const KIND: &str = "fuse.weir";

/// The user who mounted what is on a directory, if that is a mount of Weir and of another user: the name, or where that
/// is not known, the number.
pub(crate) fn owner_if_other(path: &Path) -> Option<String> {
    let place = place_of(path)?;
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").ok()?;
    let (_, options) = newest_mount(&mounts, &place).filter(|(kind, _)| *kind == KIND)?;
    let owner = options.split(',').find_map(|option| option.strip_prefix("user_id="))?;
    if owner == getuid().as_raw().to_string() {
        return None;
    }
    let users = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    let user = users.lines().find(|user| user.split(':').nth(2) == Some(owner));
    let name = user.and_then(|user| user.split(':').next());
    Some(name.map_or_else(|| format!("#{owner}"), str::to_owned))
}

/// A process that still sees what is mounted from this device: a mount namespace begins as a copy of another's
/// mounts, and the kernel ends a filesystem with its last one.
pub(crate) fn keeper(device: u64) -> Option<u32> {
    let number = format!("{}:{}", major(device), minor(device));
    let sees = |process: &u32| {
        let mounts = std::fs::read_to_string(format!("/proc/{process}/mountinfo")).unwrap_or_default();
        mounts.lines().any(|mount| mount.split(' ').nth(2) == Some(&number))
    };
    let entries = std::fs::read_dir("/proc").ok()?;
    let process = |entry: std::io::Result<DirEntry>| entry.ok()?.file_name().to_str()?.parse().ok();
    entries.filter_map(process).find(sees)
}

/// The mountpoint of what `path` is on: the last directory above on the same device.
pub(crate) fn above(path: &Path) -> PathBuf {
    let Ok(path) = path.canonicalize() else { return path.to_owned() };
    let device = |path: &Path| path.metadata().ok().map(|found| found.dev());
    let on = device(&path);
    path.ancestors().take_while(|above| device(above) == on).last().unwrap_or(&path).to_owned()
}

/// Whether something is mounted just there.
pub(crate) fn is_mountpoint(path: &Path) -> bool {
    path.canonicalize().is_ok_and(|path| above(&path) == path)
}

/// A path whose last part is not looked at, without links in the others: looking into a dead mount fails.
pub(crate) fn place_of(path: &Path) -> Option<PathBuf> {
    let (above, name) = (path.parent()?, path.file_name()?);
    let above = if above.as_os_str().is_empty() { Path::new(".") } else { above };
    Some(above.canonicalize().ok()?.join(name))
}

/// Whether the newest mount just there is one of Weir's, by the kernel's list: one without a server answers nothing else.
pub(crate) fn is_mount_of_ours(place: &Path) -> bool {
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    newest_mount(&mounts, place).is_some_and(|(kind, _)| kind == KIND)
}

/// The directory that a file or device of Weir's is mounted on, as far as this process sees that.
pub(crate) fn mountpoint_of(source: &Path) -> Option<PathBuf> {
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").ok()?;
    newest_mount_of(&mounts, &source.canonicalize().ok()?)
}

/// The newest directory that a source is mounted on by Weir.
fn newest_mount_of(mounts: &str, source: &Path) -> Option<PathBuf> {
    let escaped = escaped(source);
    let directory = |mount: &str| {
        let (place, kind) = mount.split_once(" - ")?;
        let mut words = kind.split(' ');
        let is_it = words.next() == Some(KIND) && words.next().map(str::as_bytes) == Some(&escaped);
        place.split(' ').nth(4).filter(|_| is_it).map(unescaped)
    };
    mounts.lines().rev().find_map(directory)
}

/// A path as the kernel lists it: some characters are octal numbers.
fn escaped(path: &Path) -> Vec<u8> {
    let mut escaped = Vec::new();
    for byte in path.as_os_str().as_bytes() {
        match byte {
            b' ' | b'\t' | b'\n' | b'\\' => escaped.extend(format!("\\{byte:03o}").bytes()),
            other => escaped.push(*other),
        }
    }
    escaped
}

/// The path that the kernel lists so.
fn unescaped(listed: &str) -> PathBuf {
    let mut parts = listed.split('\\');
    let mut path = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        match part.get(..3).and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) => path.extend([&char::from(byte).to_string(), &part[3..]]),
            None => path.extend(["\\", part]),
        }
    }
    path.into()
}

/// The kind of the newest mount on a directory, and the options of its filesystem.
fn newest_mount<'a>(mounts: &'a str, directory: &Path) -> Option<(&'a str, &'a str)> {
    let escaped = escaped(directory);
    let there = |mount: &&str| mount.split(' ').nth(4).is_some_and(|place| place.as_bytes() == escaped);
    let (_, kind) = mounts.lines().rfind(there)?.split_once(" - ")?;
    let mut words = kind.split(' ');
    Some((words.next()?, words.nth(1)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_mount_on_a_directory_counts() {
        let mounts = "30 1 0:50 / /mnt/a\\040b rw - fuse.weir /v rw\n\
                      31 1 0:51 / /mnt/c rw - ext4 /dev/x rw\n\
                      32 1 0:52 / /mnt/c rw shared:1 - fuse.weir /w rw,user_id=7\n";
        assert_eq!(newest_mount(mounts, Path::new("/mnt/a b")), Some(("fuse.weir", "rw")));
        assert_eq!(newest_mount(mounts, Path::new("/mnt/c")), Some(("fuse.weir", "rw,user_id=7")));
        assert_eq!(newest_mount(mounts, Path::new("/mnt")), None);
    }

    #[test]
    fn a_source_is_found_where_weir_has_mounted_it_last() {
        let mounts = "30 1 0:50 / /mnt/a\\040b rw - fuse.weir /v\\040w rw\n\
                      31 1 0:51 / /mnt/c rw - ext4 /v rw\n\
                      32 1 0:52 / /mnt/d rw shared:1 - fuse.weir /w rw,user_id=7\n\
                      33 1 0:53 / /mnt/e rw shared:1 - fuse.weir /w rw,user_id=7\n";
        let found = |source: &str| newest_mount_of(mounts, Path::new(source));
        assert_eq!(found("/v w"), Some("/mnt/a b".into()));
        assert_eq!(found("/w"), Some("/mnt/e".into()));
        assert_eq!(found("/v"), None);
    }
}
