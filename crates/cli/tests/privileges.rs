//! Who may do what on a mount, and what a file loses when a user changes it.
//! Where FUSE is not to be had, these tests say that they were skipped.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs::{self, Permissions};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::support::{Place, error_of, mounts, runs};
use rustix::fs::{Mode, OFlags, XattrFlags, getxattr, setxattr};
use rustix::io::Errno;

/// A mount that others may look into; says so if they cannot get there.
fn shared_mount() -> Option<(Place, PathBuf)> {
    if !mounts() {
        return None;
    }
    let place = Place::with_volume("64M");
    let root = place.mount(&["--allow-other"]);
    fs::set_permissions(place.path(), Permissions::from_mode(0o755)).unwrap();
    let closed = |directory: &&Path| fs::metadata(directory).unwrap().permissions().mode() & 0o001 == 0;
    if let Some(directory) = root.ancestors().skip(1).find(closed) {
        eprintln!("skipped: others may not look into {}", directory.display());
        return None;
    }
    Some((place, root))
}

/// Runs a line of the shell in a directory, as another user of group 0.
fn by_another(directory: &Path, line: &str) -> Output {
    Command::new("sh").args(["-c", line]).current_dir(directory).uid(65534).gid(0).output().unwrap()
}

/// A write by who is not the superuser takes privileges from a file, and everybody sees that at once.
#[test]
fn writes_take_privileges_away() {
    let Some((place, root)) = shared_mount() else { return };
    for (name, by) in [
        ("write", "echo x >> write"),
        ("direct", "dd if=/dev/zero of=direct bs=4096 count=1 oflag=direct conv=notrunc 2>&1"),
        ("cut", "truncate -s 1 cut"),
        ("make", "fallocate -l 9000 make"),
    ] {
        let path = root.join(name);
        fs::write(&path, [1; 5000]).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o6777)).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o7777, 0o6777);
        assert!(by_another(&root, by).status.success(), "{name}");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o7777, 0o777, "{name}");
    }
    let path = root.join("own");
    fs::write(&path, "x").unwrap();
    fs::set_permissions(&path, Permissions::from_mode(0o6777)).unwrap();
    fs::write(&path, "the superuser keeps them").unwrap();
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o7777, 0o6777);
    std::os::unix::fs::chown(&path, Some(1), None).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o7777, 0o777, "another owner");
    place.end();
}

/// A direct write, too, of which the kernel does not look for them itself.
#[test]
fn a_write_takes_capabilities_away() {
    if !mounts() {
        return;
    }
    let place = Place::with_volume("64M");
    let root = place.mount(&[]);
    let attribute = "security.capability";
    // Version 2, and permitted CAP_CHOWN.
    let mut capability = [0; 20];
    (capability[3], capability[4]) = (2, 1);
    for (name, flags) in [("direct", "direct"), ("cached", "append")] {
        let path = root.join(name);
        fs::write(&path, [1; 5000]).unwrap();
        setxattr(&path, attribute, &capability, XattrFlags::empty()).unwrap();
        let output = format!("of={}", path.display());
        let how = ["if=/dev/zero", "bs=4096", "count=1", "conv=notrunc", "status=none"];
        runs(Command::new("dd").args(how).args([output, format!("oflag={flags}")]));
        assert_eq!(getxattr(&path, attribute, &mut [0; 64][..]).unwrap_err(), Errno::NODATA, "{name}");
    }
    place.end();
}

/// The number of a file that has gone is soon another file's, which who kept the old one has no right to.
#[test]
fn who_kept_a_file_that_has_gone_does_not_get_the_next_one() {
    if !mounts() {
        return;
    }
    let place = Place::with_volume("64M");
    let root = place.mount(&[]);
    let made = |name: &str| {
        fs::write(root.join(name), name).unwrap();
        fs::metadata(root.join(name)).unwrap().ino()
    };
    let number = made("gone");
    // Just the name's: no program has it open.
    let kept = rustix::fs::open(root.join("gone"), OFlags::PATH, Mode::empty()).unwrap();
    fs::remove_file(root.join("gone")).unwrap();
    assert!((0..100).all(|nth| made(&format!("next {nth}")) != number), "the number is not free");
    assert_eq!(fs::read(format!("/proc/self/fd/{}", kept.as_raw_fd())).unwrap(), b"gone");
    drop(kept);
    assert!((100..200).any(|nth| made(&format!("next {nth}")) == number), "the number is used again");
    place.end();
}

/// The kernel checks permissions where more than one user may look in.
#[test]
fn others_may_do_what_permissions_allow() {
    let Some((place, root)) = shared_mount() else { return };
    for (name, mode) in [("closed", 0o600), ("open", 0o666)] {
        fs::write(root.join(name), name).unwrap();
        fs::set_permissions(root.join(name), Permissions::from_mode(mode)).unwrap();
    }
    assert!(by_another(&root, "cat open; echo more >> open").status.success());
    for refused in
        ["cat closed", "echo more >> closed", "rm open", "touch new", "chmod 777 open", "chown 65534 open"]
    {
        let output = by_another(&root, refused);
        let told = error_of(&output);
        assert!(!output.status.success() && told.contains("ermi"), "{refused}: {told}");
    }
    assert_eq!(fs::read(root.join("closed")).unwrap(), b"closed");
    assert_eq!(fs::read(root.join("open")).unwrap(), b"openmore\n");
    place.end();
}

/// Set-group-ID without the group's right to execute is no privilege, for those of the group.
#[test]
fn who_is_not_of_the_group_takes_set_group_id_away() {
    let Some((place, root)) = shared_mount() else { return };
    // Who writes is of group 0.
    for (group, left) in [(0, 0o2767), (7, 0o767)] {
        let path = root.join(group.to_string());
        fs::write(&path, "x").unwrap();
        std::os::unix::fs::chown(&path, None, Some(group)).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o2767)).unwrap();
        assert!(by_another(&root, &format!("echo x >> {group}")).status.success());
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o7777, left, "group {group}");
    }
    place.end();
}
