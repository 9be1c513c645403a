//! `user.weir.sync`: what `fsync` of one file promises, as its owner has said for good.
//! Where FUSE is not to be had, these tests say that they were skipped.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use std::fs::{self, File, Permissions};
use std::os::unix::fs::{FileExt as _, PermissionsExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::{self, Place, by_looking, is_there, mounts, runs, system, wait_until, works};
use rustix::fs::{XattrFlags, getxattr, listxattr, removexattr, setxattr};
use rustix::io::Errno;

const NAME: &str = "user.weir.sync";
const OTHER: u32 = 65534;

fn set(path: &Path, value: &str) -> Result<(), Errno> {
    setxattr(path, NAME, value.as_bytes(), XattrFlags::empty())
}

fn get(path: &Path) -> Result<String, Errno> {
    let mut value = [0; 64];
    let length = getxattr(path, NAME, &mut value[..])?;
    Ok(support::text(&value[..length]))
}

fn listed(path: &Path) -> String {
    let mut names = [0; 1024];
    let length = listxattr(path, &mut names[..]).unwrap();
    support::text(&names[..length])
}

/// What `fsync` of a file does.
fn is_durable(place: &Place, path: &Path) -> bool {
    let flushes = || place.status()["flushes"].as_u64().unwrap();
    let file = File::options().write(true).open(path).unwrap();
    let before = flushes();
    for nth in 0..10 {
        file.write_all_at(&[1; 4096], nth * 4096).unwrap();
        file.sync_all().unwrap();
    }
    flushes() - before >= 10
}

fn count(place: &Place) -> Option<u64> {
    place.status()["order_files"].as_u64()
}

/// Runs a script as another user; what it prints.
fn by_another(directory: &Path, script: &str) -> String {
    let mut command = Command::new("python3");
    runs(command.args(["-c", script]).current_dir(directory).uid(OTHER).gid(OTHER))
}

/// A mount that everybody gets to, with a file of the superuser's and one of another's that all may write.
fn shared() -> Option<(Place, PathBuf, PathBuf)> {
    if !mounts() || !is_there("python3") {
        return None;
    }
    let place = Place::for_everybody();
    works(&["mkfs", "--volume", place.volume().to_str().unwrap(), "--size", "64M"]);
    let root = place.mount(&["--allow-other"]);
    let [ours, theirs] = ["ours", "theirs"].map(|name| root.join(name));
    for path in [&ours, &theirs] {
        fs::write(path, "x").unwrap();
        fs::set_permissions(path, Permissions::from_mode(0o666)).unwrap();
    }
    chown(&theirs, Some(OTHER), Some(OTHER)).unwrap();
    Some((place, ours, theirs))
}

#[test]
fn only_the_owner_and_the_superuser_lower_a_promise() {
    let Some((place, ours, theirs)) = shared() else { return };
    let script = r#"
import errno, fcntl, os, struct
def tried(call, *arguments):
    try: call(*arguments); return "done"
    except OSError as error: return errno.errorcode[error.errno]
for name in "ours", "theirs":
    fd = os.open(name, os.O_RDWR)
    print(tried(os.setxattr, name, "user.weir.sync", b"order"))
    print(tried(os.setxattr, fd, "user.weir.sync", b"durable"))
    print(tried(fcntl.ioctl, fd, 0x40045703, struct.pack("I", 1)))
    print(tried(fcntl.ioctl, fd, 0x40045703, struct.pack("I", 0)))
    print(tried(os.removexattr, name, "user.weir.sync"))
    print(tried(os.setxattr, name, "user.weir.other", b"x"))
    print(tried(os.setxattr, name, "user.comment", b"x"))
"#;
    set(&ours, "durable").unwrap();
    let told = by_another(&place.mountpoint(), script);
    let told: Vec<&str> = told.lines().collect();
    assert_eq!(told[..7], ["EPERM", "EPERM", "EPERM", "done", "EPERM", "EPERM", "done"]);
    assert_eq!(told[7..], ["done", "done", "done", "done", "done", "EPERM", "done"]);
    assert_eq!(get(&ours).unwrap(), "durable");
    assert!(is_durable(&place, &ours));
    set(&theirs, "order").unwrap();
    assert!(!is_durable(&place, &theirs), "the superuser decides, too");
    chown(&theirs, Some(OTHER), None).unwrap();
    assert_eq!(get(&theirs).unwrap(), "order", "the owner is the same");
    chown(&theirs, Some(1), None).unwrap();
    assert_eq!(get(&theirs), Err(Errno::NODATA), "another owner has not said so");
    assert!(is_durable(&place, &theirs));
    place.end();
}

/// A sync mode takes space as any attribute does: where only the superuser's reserve is left, it is for the superuser.
#[test]
fn a_sync_mode_leaves_the_superusers_reserve_alone() {
    let Some((place, _, theirs)) = shared() else { return };
    // The inode has no room for more.
    setxattr(&theirs, "user.note", &[b'x'; 60], XattrFlags::empty()).unwrap();
    let script = r#"
import errno, os
fd = os.open("theirs", os.O_WRONLY | os.O_APPEND)
for size in 1 << 20, 4096:
    try:
        while True: os.write(fd, b"x" * size)
    except OSError as error: assert error.errno == errno.ENOSPC
os.fsync(fd)
for name in "user.other", "user.weir.sync":
    try: os.setxattr("theirs", name, b"order"); print("done")
    except OSError as error: print(errno.errorcode[error.errno])
"#;
    assert_eq!(by_another(&place.mountpoint(), script).trim(), "ENOSPC\nENOSPC");
    assert_eq!(get(&theirs), Err(Errno::NODATA));
    set(&theirs, "order").unwrap();
    assert_eq!(get(&theirs).unwrap(), "order");
    place.end();
}

#[test]
fn copies_do_not_have_it() {
    if !mounts() {
        return;
    }
    let place = Place::with_volume("64M");
    let root = place.mount(&[]);
    let file = root.join("file");
    fs::write(&file, "x").unwrap();
    setxattr(&file, "user.comment", b"kept", XattrFlags::empty()).unwrap();
    set(&file, "order").unwrap();
    assert_eq!(listed(&file), "user.comment\0");
    assert_eq!(listed(&root), "");
    let mut copies =
        vec!["cp -a file by-cp", "cp --preserve=xattr file by-cp-xattr", "cp -al . ../mounted/links || true"];
    copies.push("tar --xattrs --xattrs-include='*' -cf - file | (mkdir by-tar; tar --xattrs --xattrs-include='*' -C by-tar -xf -)");
    if is_there("rsync") {
        copies.push("rsync -aX file by-rsync");
    }
    for copy in copies {
        runs(Command::new("sh").args(["-c", copy]).current_dir(&root));
    }
    for name in ["by-cp", "by-cp-xattr", "by-tar/file", "by-rsync"] {
        let copy = root.join(name);
        if copy.exists() {
            assert_eq!(get(&copy), Err(Errno::NODATA), "{name}");
            assert!(is_durable(&place, &copy), "{name}");
        }
    }
    assert!(!is_durable(&place, &file));
    place.umount();
    // Nor has what leaves the filesystem, or comes in.
    let volume = place.volume();
    let volume = volume.to_str().unwrap();
    let local = place.path().join("local");
    works(&["get", volume, "file", local.to_str().unwrap()]);
    assert!(!listed(&local).contains("weir"), "{}", listed(&local));
    if setxattr(&local, NAME, b"order", XattrFlags::empty()).is_ok() {
        let _ = setxattr(&local, "trusted.weir.sync", b"order", XattrFlags::empty());
        works(&["put", volume, local.to_str().unwrap(), "put"]);
        place.mount(&[]);
        assert_eq!(get(&root.join("put")), Err(Errno::NODATA));
        assert!(is_durable(&place, &root.join("put")));
        assert!(!is_durable(&place, &file));
        place.umount();
    }
}

#[test]
fn the_status_counts_files_with_a_sync_mode() {
    if !mounts() {
        return;
    }
    let place = Place::with_volume("64M");
    let root = place.mount(&[]);
    assert_eq!(count(&place), Some(0));
    let path = |nth: u32| root.join(format!("file-{nth}"));
    for nth in 0..300 {
        fs::write(path(nth), "x").unwrap();
    }
    for nth in 0..20 {
        set(&path(nth), "order").unwrap();
    }
    fs::create_dir(root.join("directory")).unwrap();
    set(&root.join("directory"), "order").unwrap();
    assert_eq!(count(&place), Some(21));
    assert!(works(&["status", root.to_str().unwrap()]).contains("order only for 21 files"));
    set(&path(0), "durable").unwrap();
    removexattr(path(1), NAME).unwrap();
    fs::remove_file(path(2)).unwrap();
    fs::rename(path(3), path(4)).unwrap();
    fs::rename(path(5), root.join("renamed")).unwrap();
    assert_eq!(count(&place), Some(17));
    for _ in 0..2 {
        place.umount();
        place.mount(&[]);
        wait_until("all are counted", || count(&place).is_some());
        assert_eq!(count(&place), Some(17));
    }
    assert!(!is_durable(&place, &root.join("renamed")) && is_durable(&place, &path(1)));
    place.umount();
    place.mount(&["--read-only"]);
    wait_until("all are counted", || count(&place).is_some());
    assert_eq!(count(&place), Some(17));
    place.umount();
    place.mount(&[]);
    fs::remove_dir_all(root.join("directory")).unwrap();
    for entry in fs::read_dir(&root).unwrap() {
        let path = entry.unwrap().path();
        if path.is_file() {
            fs::remove_file(path).unwrap();
        }
    }
    assert_eq!(count(&place), Some(0));
    // Nothing is left but that the root says that there may be some, until a task has looked.
    place.umount();
    place.mount(&[]);
    wait_until("all are counted", || count(&place).is_some());
    place.umount();
    place.mount(&[]);
    assert_eq!(count(&place), Some(0));
    fs::write(path(0), "x").unwrap();
    set(&path(0), "order").unwrap();
    assert_eq!(count(&place), Some(1));
    assert!(!is_durable(&place, &path(0)));
    place.end();
}

/// The first release kept sync modes in the attribute itself, where anybody could set them.
#[test]
fn sync_modes_of_the_first_release_are_not_heeded() {
    if !mounts() || system("debugfs").arg("-V").output().is_err() {
        return;
    }
    let place = Place::new();
    let image = place.volume();
    works(&["mkfs", image.to_str().unwrap(), "--size", "64M"]);
    let root = place.mount(&[]);
    let file = root.join("file");
    fs::write(&file, "x").unwrap();
    place.umount();
    let command = format!("ea_set file {NAME} order");
    runs(system("debugfs").args(["-w", "-R", &command]).arg(&image));
    place.mount(&[]);
    assert_eq!(get(&file), Err(Errno::NODATA));
    assert_eq!(listed(&file), "");
    assert!(is_durable(&place, &file));
    assert_eq!(count(&place), Some(0));
    set(&file, "order").unwrap();
    removexattr(&file, NAME).unwrap();
    place.umount();
    let told = runs(system("debugfs").args(["-R", "ea_list file"]).arg(&image));
    assert!(!told.contains("weir"), "{told}");
    by_looking(image.as_os_str()).unwrap();
}
