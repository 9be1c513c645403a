//! What holds data is not overwritten, whoever made it, and no message proposes a command that would. Formats are made by their
//! own programs, and `blkid` is asked as well; a program that is missing is skipped, and says so.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::{self, Place, error_of, run, system, text, weir};

const SIZE: u64 = 320 << 20;

/// A program that makes a format, its arguments before the path, and what `mkfs` calls the format.
const MAKERS: &[(&str, &[&str], &str)] = &[
    ("mkfs.ext4", &["-q", "-F"], "ext4 filesystem"),
    ("mkfs.ext4", &["-q", "-F", "-b", "1024"], "ext4 filesystem"),
    ("mkfs.btrfs", &["-q"], "btrfs"),
    ("mkfs.xfs", &["-q", "-f"], "XFS"),
    ("mkfs.f2fs", &["-q", "-f"], "f2fs"),
    ("mkfs.minix", &[], "Minix"),
    ("mkfs.bfs", &[], "BFS"),
    ("mkfs.vfat", &["-F", "32"], "FAT"),
    ("mkfs.ntfs", &["-Q", "-F"], "NTFS"),
    ("mkfs.exfat", &[], "exFAT"),
    ("mkfs.nilfs2", &["-q"], "NILFS2"),
    ("mkfs.jfs", &["-q"], "JFS"),
    ("mkswap", &["-q"], "swap space"),
    ("mkswap", &["-q", "--pagesize", "65536"], "swap space"),
    ("make-bcache", &["-B"], "bcache"),
    (
        "cryptsetup",
        &[
            "luksFormat",
            "-q",
            "--pbkdf-force-iterations",
            "1000",
            "--pbkdf",
            "pbkdf2",
            "--key-file",
            "/etc/hostname",
        ],
        "LUKS",
    ),
];

fn file(directory: &Path, name: &str) -> PathBuf {
    let path = directory.join(name);
    File::create(&path).unwrap().set_len(SIZE).unwrap();
    path
}

/// Every command leaves the file as it is, and says nothing of a command that would not.
#[track_caller]
fn is_refused(path: &Path, format: &str) {
    let before = fs::read(path).unwrap();
    let path_text = path.to_str().unwrap();
    let mountpoint = path.with_extension("mounted");
    fs::create_dir_all(&mountpoint).unwrap();
    for command in
        [&["mkfs", "--volume", path_text][..], &["mkfs", path_text], &["volume", "create", path_text]]
    {
        let output = weir(command).output().unwrap();
        let told = error_of(&output);
        assert_eq!(output.status.code(), Some(2), "{command:?} of {format}: {told}");
        assert!(told.contains("not empty") && told.contains(format), "{command:?} of {format}: {told}");
    }
    let target = mountpoint.join("copy");
    // Weir reads, mounts and changes these formats.
    let is_ours = format.contains("ext") || format == "f2fs";
    for command in [
        &["ls", path_text, "/"][..],
        &["cat", path_text, "/a"],
        &["get", path_text, "/a", target.to_str().unwrap()],
        &["put", path_text, "/etc/hostname", "/a"],
        &["fsck", path_text],
        &["fsck", "--replay", path_text],
        &["mount", path_text, mountpoint.to_str().unwrap()],
        &["volume", "info", path_text],
        &["volume", "check", path_text],
    ] {
        let output = weir(command).output().unwrap();
        let told = error_of(&output);
        assert!(!output.status.success() || is_ours, "{command:?} of {format}: {told}");
        for word in ["mkfs", "--force", "volume create"] {
            assert!(!told.contains(word), "{command:?} of {format} says {word}: {told}");
        }
        let _ = Command::new("umount").arg(&mountpoint).output();
    }
    assert!(fs::read(path).unwrap() == before || is_ours, "{format} was changed");
}

#[test]
fn what_other_programs_made_is_refused_by_its_name() {
    let place = Place::new();
    let mut made = 0;
    for (nth, (program, arguments, format)) in MAKERS.iter().enumerate() {
        let path = file(place.path(), &format!("{nth}.img"));
        let mut arguments: Vec<_> = arguments.iter().map(AsRef::as_ref).collect();
        arguments.push(path.as_os_str());
        let (well, told) = run(program, &arguments);
        if !well {
            eprintln!("skipped: {program}: {}", told.lines().next().unwrap_or_default());
            continue;
        }
        made += 1;
        let peer = system("blkid").arg("-p").arg(&path).output();
        if let Ok(peer) = peer {
            assert!(peer.status.success(), "blkid does not know what {program} made");
        }
        // Weir opens ext4 with blocks of 4 KiB, so of that only what makes a new filesystem is refused.
        if *format == "ext4 filesystem" {
            let output = weir(&["mkfs", "--volume", path.to_str().unwrap()]).output().unwrap();
            let told = error_of(&output);
            assert!(output.status.code() == Some(2) && told.contains(format), "{told}");
        } else {
            is_refused(&path, format);
        }
        fs::remove_file(&path).unwrap();
    }
    eprintln!("{made} of {} formats were made", MAKERS.len());
}

/// An image without a volume, and one with; each refuses the other's command too.
#[test]
fn what_weir_made_is_refused_by_its_name() {
    let place = Place::new();
    for (name, volume) in [("a.img", false), ("b.img", true)] {
        let path = place.path().join(name);
        let path = path.to_str().unwrap();
        let volume_option: &[&str] = if volume { &["--volume"] } else { &[] };
        support::works(&[&["mkfs", path, "--size", "64M"], volume_option].concat());
        let format = if volume { "a volume of Weir" } else { "ext4 filesystem" };
        for command in [&["mkfs", path][..], &["mkfs", "--volume", path], &["volume", "create", path]] {
            support::fails(command, &["not empty", format, "--force"]);
        }
    }
}

/// md keeps its superblock at the end, or in the first 8 KiB; mdadm wants devices to write it, so it is crafted here where these
/// are not to be had: the magic number alone. So are those of programs that are seldom there.
#[test]
fn a_signature_alone_is_enough() {
    let place = Place::new();
    let at_end = SIZE - 65536;
    for (format, at, magic) in [
        ("md array", 0, &b"\xfc\x4e\x2b\xa9"[..]),
        ("md array", 4096, b"\xfc\x4e\x2b\xa9"),
        ("md array", SIZE - 8192, b"\xfc\x4e\x2b\xa9"),
        ("md array", at_end, b"\xfc\x4e\x2b\xa9"),
        ("LVM", 512, b"LABELONE"),
        ("ZFS", 128 << 10, b"\x0c\xb1\xba\0\0\0\0\0"),
        ("ZFS", SIZE - (128 << 10), b"\x0c\xb1\xba\0\0\0\0\0"),
        ("ZFS", (384 << 10) + 4096, b"\0\0\0\0\0\xba\xb1\x0c"),
        ("GPT", 512, b"EFI PART"),
        ("GPT", SIZE - 512, b"EFI PART"),
        ("bcachefs", 0x1018, b"\xc6\x85\x73\xf6\x66\xce\x90\xa9\xd9\x6a\x60\xcf\x80\x3d\xf7\xef"),
        ("DRBD", SIZE - 4096 + 60, b"\x83\x74\x02\x6b"),
        ("LUKS", 0x4000, b"SKUL\xba\xbe"),
        ("an unknown kind", SIZE / 2 + 1, b"x"),
        ("an unknown kind", 100 << 20, b"\x53\xef"),
        ("an unknown kind", SIZE - 1, b"x"),
    ] {
        let path = file(place.path(), "crafted.img");
        File::options().write(true).open(&path).unwrap().write_all_at(magic, at).unwrap();
        is_refused(&path, format);
    }
}

/// Holes, zeros that were written, and space that was allocated are empty.
#[test]
fn what_is_empty_is_taken() {
    let place = Place::new();
    let zeros = place.path().join("zeros.img");
    fs::write(&zeros, vec![0; 64 << 20]).unwrap();
    let allocated = place.path().join("allocated.img");
    support::runs(Command::new("fallocate").args(["-l", "64M"]).arg(&allocated));
    let sparse = file(place.path(), "sparse.img");
    for path in [&zeros, &allocated, &sparse] {
        let path = path.to_str().unwrap();
        // Only what is empty is proposed as a place for a filesystem.
        support::fails(&["ls", path, "/"], &["it is empty", "weir mkfs --volume"]);
        support::works(&["mkfs", "--volume", path]);
        support::works(&["ls", path, "/"]);
    }
}

/// Of a large file all data is read: no command is proposed that would overwrite some, and none does.
#[test]
fn a_large_file_of_zeros_is_read_to_its_end() {
    let place = Place::new();
    let path = place.path().join("large.img");
    let large = File::create(&path).unwrap();
    large.set_len(1600 << 20).unwrap();
    let zeros = vec![0; 1 << 20];
    (0..1400).for_each(|nth| large.write_all_at(&zeros, nth << 20).unwrap());
    large.write_all_at(b"my data", (1300 << 20) + 123).unwrap();
    let path = path.to_str().unwrap();
    let at = format!("byte {} is not zero", (1300 << 20) + 123);
    support::fails(&["mkfs", "--volume", path], &["not empty", &at]);
    support::fails(&["ls", path, "/"], &[&at]);
    let told = error_of(&weir(&["ls", path, "/"]).output().unwrap());
    assert!(!told.contains("mkfs") && !told.contains("empty"), "{told}");
}

/// Of a large device only samples are read, so no message says that it is empty.
#[test]
fn a_device_that_was_sampled_is_not_called_empty() {
    let place = Place::new();
    let path = place.path().join("large.img");
    let large = File::create(&path).unwrap();
    large.set_len(30 << 30).unwrap();
    large.write_all_at(b"my data", (3 << 30) + 777_777).unwrap();
    let made = system("losetup").args(["--find", "--show"]).arg(&path).output().unwrap();
    if !made.status.success() {
        eprintln!("skipped: this takes loop devices");
        return;
    }
    let device = text(&made.stdout).trim().to_owned();
    let told = error_of(&weir(&["ls", &device, "/"]).output().unwrap());
    support::runs(system("losetup").args(["-d", &device]));
    assert!(told.contains("samples") && !told.contains("mkfs") && !told.contains("empty"), "{told}");
}

/// A loop device: both ends, and what lies between.
#[test]
fn a_block_device_is_looked_at_whole() {
    let place = Place::new();
    for at in [0, 65536, 5 << 20, SIZE / 2, SIZE - 512] {
        let path = file(place.path(), "device.img");
        File::options().write(true).open(&path).unwrap().write_all_at(b"data", at).unwrap();
        let made = system("losetup").args(["--find", "--show"]).arg(&path).output().unwrap();
        if !made.status.success() {
            eprintln!("skipped: this takes loop devices");
            return;
        }
        let device = text(&made.stdout).trim().to_owned();
        let refused = weir(&["mkfs", "--volume", &device]).output().unwrap();
        support::runs(system("losetup").args(["-d", &device]));
        let told = error_of(&refused);
        assert!(
            refused.status.code() == Some(2) && told.contains(&format!("byte {at} is not zero")),
            "{told}"
        );
    }
}
