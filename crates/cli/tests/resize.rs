//! `weir volume grow` and `weir volume shrink`, of volumes in files, with the filesystem in them.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;
use std::process::Command;

use crate::support::{Place, error_of, fails, mounts, runs, weir, works};

const MIB: u64 = 1 << 20;

fn bytes_of(path: &str) -> u64 {
    fs::metadata(path).unwrap().len()
}

fn made(size: &str) -> (Place, String) {
    let place = Place::with_volume(size);
    let path = place.volume().to_str().unwrap().to_owned();
    (place, path)
}

/// Resizes the filesystem in a volume by its own tool.
fn resize_filesystem(place: &Place, volume: &str) {
    let mountpoint = place.mountpoint();
    works(&["disk", mountpoint.to_str().unwrap(), "--volume", volume]);
    let disk = mountpoint.join("disk");
    runs(Command::new("e2fsck").arg("-fp").arg(&disk));
    runs(Command::new("resize2fs").arg(&disk));
    place.umount();
}

#[test]
fn a_volume_and_its_filesystem_grow_and_keep_what_is_in_them() {
    let (place, volume) = made("64M");
    let file = place.path().join("file");
    fs::write(&file, [7; 300_000]).unwrap();
    works(&["put", &volume, file.to_str().unwrap(), "/"]);
    fails(&["volume", "grow", &volume, "--size", "64M"], &["this size already"]);
    fails(&["volume", "grow", &volume, "--size", "32M"], &["larger than that", "`weir volume shrink`"]);
    assert_eq!(bytes_of(&volume), 64 * MIB);
    works(&["snapshot", "create", &volume, "one"]);
    fails(&["volume", "grow", &volume, "--size", "512M"], &["has snapshots", "delete them first"]);
    assert_eq!(bytes_of(&volume), 64 * MIB, "what is refused leaves the file as it was");
    works(&["snapshot", "delete", &volume, "one"]);
    let told = works(&["volume", "grow", &volume, "--size", "512M"]);
    assert!(told.contains("on 512 MiB; it was ") && told.contains("on 64 MiB"), "{told}");
    assert_eq!(bytes_of(&volume), 512 * MIB);
    works(&["volume", "check", &volume]);
    assert_eq!(works(&["cat", &volume, "/file"]).as_bytes(), [7; 300_000]);
    works(&["snapshot", "create", &volume, "two"]);
    works(&["snapshot", "delete", &volume, "two"]);
    if !mounts() {
        return;
    }
    resize_filesystem(&place, &volume);
    place.check();
    let root = place.mount(&[]);
    fails(&["volume", "grow", root.to_str().unwrap(), "--size", "1G"], &["unmount it"]);
    fails(&["volume", "grow", &volume, "--size", "1G"], &[root.to_str().unwrap()]);
    assert_eq!(bytes_of(&volume), 512 * MIB);
    let found = rustix::fs::statvfs(&root).unwrap();
    assert!(found.f_blocks * found.f_frsize > 400 * MIB, "{} blocks", found.f_blocks);
    assert_eq!(fs::read(root.join("file")).unwrap(), [7; 300_000]);
    fs::write(root.join("large"), vec![8; 200 << 20]).unwrap();
    place.umount();
    place.check();
    fails(
        &["volume", "shrink", &volume, "--size", "256M"],
        &["the filesystem in it has", "shrink the filesystem"],
    );
    assert_eq!(bytes_of(&volume), 512 * MIB);
}

#[test]
fn a_volume_takes_in_what_its_file_has_and_shrinks_with_it() {
    let place = Place::new();
    let volume = place.volume().to_str().unwrap().to_owned();
    works(&["volume", "create", &volume, "--size", "32M"]);
    File::options().write(true).open(&volume).unwrap().set_len(128 * MIB).unwrap();
    let told = works(&["volume", "grow", &volume]);
    assert!(told.contains("on 128 MiB; it was"), "{told}");
    fails(&["volume", "shrink", &volume, "--size", "256M"], &["smaller than that", "`weir volume grow`"]);
    works(&["volume", "shrink", &volume, "--size", "24M"]);
    assert_eq!(bytes_of(&volume), 24 * MIB);
    works(&["volume", "shrink", &volume, "--logical", "8M"]);
    let info = works(&["volume", "info", &volume]);
    assert!(info.contains("capacity          8 MiB") && info.contains("on disk           24 MiB"), "{info}");
    // A capacity that is less than fits stays.
    let told = works(&["volume", "shrink", &volume, "--size", "20M"]);
    assert!(told.contains("a volume of 8 MiB on 20 MiB; it was 8 MiB on 24 MiB"), "{told}");
    fails(&["volume", "shrink", &volume, "--size", "20M"], &["this size already"]);
    works(&["volume", "grow", &volume, "--size", "24M"]);
    works(&["volume", "check", &volume]);
    let output = weir(&["volume", "shrink", &volume]).output().unwrap();
    let error = error_of(&output);
    assert!(!output.status.success() && error.contains("--size <SIZE>|--logical <SIZE>"), "{error}");
    fails(
        &["volume", "grow", place.path().join("none").to_str().unwrap(), "--size", "1G"],
        &["no such file"],
    );
}

/// What a power cut between the two superblocks of a resize leaves is no damage.
#[test]
fn a_check_tells_of_a_resize_that_was_interrupted() {
    let (_place, volume) = made("64M");
    let old = fs::read(&volume).unwrap();
    works(&["volume", "grow", &volume, "--size", "128M"]);
    File::options().write(true).open(&volume).unwrap().write_all_at(&old[..4096], 0).unwrap();
    let told = works(&["volume", "check", &volume]);
    assert!(told.starts_with("clean") && told.contains("a resize or an upgrade was interrupted"), "{told}");
    // The next one settles it.
    let told = works(&["volume", "grow", &volume]);
    assert!(told.contains("on 128 MiB; it was") && told.contains("on 64 MiB"), "{told}");
    assert!(!works(&["volume", "check", &volume]).contains("interrupted"));
    let output = File::options().write(true).open(&volume).unwrap().write_all_at(&[1; 4096], 4096);
    output.unwrap();
    let checked = weir(&["volume", "check", &volume]).output().unwrap();
    assert_eq!(checked.status.code(), Some(1), "a copy that is damaged is damage");
}

/// What was shipped is of the volume as it was.
#[test]
fn a_replica_is_not_continued_by_a_volume_of_another_size() {
    let (place, volume) = made("64M");
    let store = |name: &str| {
        let store = place.path().join(name);
        fs::create_dir(&store).unwrap();
        format!("file://{}", store.display())
    };
    let (old, new) = (store("old"), store("new"));
    works(&["replicate", &volume, &old]);
    works(&["volume", "grow", &volume, "--size", "256M"]);
    fails(&["replicate", &volume, &old], &["another URL"]);
    works(&["replicate", "--check", &old]);
    works(&["replicate", &volume, &new]);
    let copy = place.path().join("copy").to_str().unwrap().to_owned();
    for url in [old, new] {
        works(&["restore", &url, &copy]);
        works(&["fsck", &copy]);
        fs::remove_file(&copy).unwrap();
    }
}
