//! `weir volume grow` and `weir volume shrink`, of volumes in files, with the filesystem in them.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![expect(clippy::disallowed_methods, reason = "programs write meanwhile")]

use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

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
    assert!(works(&["volume", "grow", &volume, "--size", "64M"]).contains("this size already"));
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
    fails(&["volume", "shrink", root.to_str().unwrap(), "--size", "1G"], &["unmount it"]);
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

/// Appends numbers to a file of its own and synchronises each time, until told to stop; how many.
fn append_and_sync(file: &Path, stop: &AtomicBool) -> u64 {
    let mut file = File::create(file).unwrap();
    let mut written = 0_u64;
    while !stop.load(Ordering::Relaxed) {
        file.write_all(&written.to_le_bytes()).unwrap();
        file.sync_data().unwrap();
        written += 1;
    }
    written
}

fn capacity_of(root: &Path) -> u64 {
    let found = rustix::fs::statvfs(root).unwrap();
    found.f_blocks * found.f_frsize
}

#[test]
fn a_mounted_volume_and_its_filesystem_grow_under_programs() {
    if !mounts() {
        return;
    }
    let (place, volume) = made("64M");
    let root = place.mount(&[]);
    let directory = root.to_str().unwrap();
    let stop = AtomicBool::new(false);
    let files: Vec<_> = (0..3).map(|number| root.join(format!("log {number}"))).collect();
    let written = thread::scope(|scope| {
        let stop = &stop;
        let start = |file: &PathBuf| {
            let file = file.clone();
            scope.spawn(move || append_and_sync(&file, stop))
        };
        let writers: Vec<_> = files.iter().map(start).collect();
        let mut capacity = capacity_of(&root);
        // Within the last group, by groups, and beyond the blocks of descriptors that there are.
        for size in ["80M", "1G", "10G"] {
            let told = works(&["volume", "grow", directory, "--size", size]);
            assert!(told.contains("a filesystem of "), "{told}");
            let grown = capacity_of(&root);
            assert!(grown > capacity, "{size}: {grown}");
            capacity = grown;
        }
        stop.store(true, Ordering::Relaxed);
        writers.into_iter().map(|writer| writer.join().unwrap()).collect::<Vec<_>>()
    });
    assert!(capacity_of(&root) > 9 << 30);
    assert!(works(&["volume", "grow", directory]).contains("this size already"));
    fails(&["volume", "grow", directory, "--size", "1G"], &["larger than that"]);
    fails(&["volume", "grow", directory, "--size", "9T"], &["cannot take shares"]);
    assert_eq!(bytes_of(&volume), 10 << 30, "what is refused leaves the file as it was");
    fs::write(root.join("large"), vec![8; 100 << 20]).unwrap();
    for (file, count) in files.iter().zip(&written) {
        let expected: Vec<u8> = (0..*count).flat_map(u64::to_le_bytes).collect();
        assert!(fs::read(file).unwrap() == expected, "{}", file.display());
    }
    place.umount();
    place.check();
    works(&["volume", "check", &volume]);
    let root = place.mount(&[]);
    assert_eq!(fs::read(root.join("large")).unwrap().len(), 100 << 20);
    place.umount();
}

#[test]
fn what_cannot_grow_while_it_is_mounted_says_so_and_keeps_its_size() {
    if !mounts() {
        return;
    }
    let (place, volume) = made("64M");
    for options in [&["--moment", "100ms"][..], &["--read-only"]] {
        let root = place.mount(options);
        let capacity = capacity_of(&root);
        fails(&["volume", "grow", root.to_str().unwrap(), "--size", "1G"], &[]);
        assert_eq!((capacity_of(&root), bytes_of(&volume)), (capacity, 64 * MIB), "{options:?}");
        place.umount();
    }
    works(&["snapshot", "create", &volume, "one"]);
    let root = place.mount(&[]);
    fails(&["volume", "grow", root.to_str().unwrap(), "--size", "1G"], &["snapshots"]);
    assert_eq!(bytes_of(&volume), 64 * MIB);
    fs::write(root.join("file"), [1; 5000]).unwrap();
    place.umount();
    place.check();
}

/// What the next mount would be refused for, and what the map of a larger volume needs, is told before anything is done.
#[test]
fn a_size_that_does_not_do_is_refused_by_one_that_does() {
    if !mounts() {
        return;
    }
    let (place, volume) = made("64M");
    let limit = ["--memory", "128M"];
    let root = place.mount(&limit);
    let directory = root.to_str().unwrap();
    let named = |size: &str, before: &str| {
        let output = weir(&["volume", "grow", directory, "--size", size]).output().unwrap();
        let told = error_of(&output);
        assert!(!output.status.success(), "{size}");
        let number =
            told.split_once(before).and_then(|(_, rest)| rest.split([' ', 'M']).next()?.parse().ok());
        number.unwrap_or_else(|| panic!("{told}"))
    };
    let most: u64 = named("1T", "grow it to ");
    assert!((100..1000).contains(&most), "{most} MiB");
    assert_eq!(named(&format!("{}M", most + 1), "grow it to "), most);
    assert_eq!(bytes_of(&volume), 64 * MIB);
    works(&["volume", "grow", directory, "--size", &format!("{most}M")]);
    place.umount();
    place.mount(&limit);
    place.umount();
    // Its map lies at its end by now, and moves.
    let root = place.mount(&[]);
    assert_eq!(root.to_str(), Some(directory));
    let least = named(&format!("{}M", most + 1), "use --size ");
    assert!((most + 2..most + 50).contains(&least), "{least} MiB");
    works(&["volume", "grow", directory, "--size", &format!("{least}M")]);
    place.umount();
    place.check();
}
