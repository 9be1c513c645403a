//! What keeps a file from being made or written is named: a limit on its size, a device or filesystem that takes no writes; and a
//! `mkfs` that is killed leaves nothing.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]
#![expect(clippy::disallowed_methods, reason = "it kills a process after a time")]

use std::fs::{self, File};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::support::{self, Place, error_of, fails, mounts, runs, system, text, weir, weir_program, works};

/// Runs `weir` in a shell whose files may have `blocks` of 1 KiB.
fn limited(directory: &Path, blocks: &str, arguments: &str) -> (Option<i32>, String) {
    let script = format!("ulimit -f {blocks}; exec {} {arguments}", weir_program());
    let output = Command::new("bash").args(["-c", &script]).current_dir(directory).output().unwrap();
    (output.status.code(), error_of(&output))
}

#[test]
fn a_limit_on_the_size_of_files_is_named() {
    let place = Place::new();
    for command in [
        "mkfs a.img --size 64M",
        "mkfs --volume a.img --size 64M",
        "mkfs --fill a.img --size 64M",
        "volume create a.img --size 64M",
    ] {
        let (code, told) = limited(place.path(), "1024", command);
        assert_eq!(code, Some(2), "{command}: {told}");
        assert!(told.contains("ulimit -f"), "{command}: {told}");
        assert!(!place.path().join("a.img").exists(), "{command}");
    }
    // A file that is there may be larger than the limit; what is written to it is not.
    File::create(place.path().join("b.img")).unwrap().set_len(64 << 20).unwrap();
    let (code, told) = limited(place.path(), "1024", "mkfs b.img");
    assert_eq!(code, Some(2), "{told}");
    assert_eq!(told.lines().count(), 1, "{told}");
    works(&["mkfs", place.path().join("c.img").to_str().unwrap(), "--size", "64M"]);
    fs::write(place.path().join("large"), vec![1; 4 << 20]).unwrap();
    let (code, told) = limited(place.path(), "1024", "get c.img / copied -r");
    assert_eq!(code, Some(0), "{told}");
    works(&[
        "put",
        place.path().join("c.img").to_str().unwrap(),
        place.path().join("large").to_str().unwrap(),
        "/large",
    ]);
    let (code, told) = limited(place.path(), "1024", "get c.img /large copy");
    assert_eq!(code, Some(2), "{told}");
    assert!(told.contains("too large"), "{told}");
}

/// By a loop device, which says so of itself, and by a filesystem below.
#[test]
fn what_is_read_only_is_read_by_read_only_commands() {
    if !mounts() {
        return;
    }
    let place = Place::with_volume("64M");
    let volume = place.volume();
    let made = system("losetup").args(["--find", "--show", "--read-only"]).arg(&volume).output().unwrap();
    if !made.status.success() {
        eprintln!("skipped: this takes loop devices");
        return;
    }
    let device = text(&made.stdout).trim().to_owned();
    let mountpoint = place.mountpoint();
    let mountpoint = mountpoint.to_str().unwrap();
    let written: Vec<_> = [
        &["mount", &device, mountpoint][..],
        &["put", &device, "/etc/hostname", "/a"],
        &["mkfs", "--force", &device],
    ]
    .iter()
    .map(|command| (weir(command).output().unwrap(), command.join(" ")))
    .collect();
    let listed = weir(&["ls", &device, "/"]).output().unwrap();
    let read = weir(&["mount", "--read-only", &device, mountpoint]).output().unwrap();
    let _ = system("umount").arg(mountpoint).output();
    support::wait_until("the device is free", || {
        system("losetup").args(["-d", &device]).output().unwrap();
        text(&system("losetup").args(["-j"]).arg(&volume).output().unwrap().stdout).is_empty()
    });
    for (output, command) in written {
        let told = error_of(&output);
        assert_eq!(output.status.code(), Some(2), "{command}: {told}");
        assert!(told.contains("is read-only") && told.contains("--read-only"), "{command}: {told}");
    }
    assert!(listed.status.success() && read.status.success(), "{}{}", error_of(&listed), error_of(&read));
}

#[test]
fn a_filling_mkfs_that_is_killed_leaves_no_file() {
    let place = Place::new();
    let path = place.path().join("a.weir");
    for after_ms in [20, 100, 300] {
        let mut filling =
            weir(&["mkfs", "--volume", "--fill", path.to_str().unwrap(), "--size", "2G"]).spawn().unwrap();
        std::thread::sleep(Duration::from_millis(after_ms));
        filling.kill().unwrap();
        let ended = filling.wait().unwrap();
        assert!(ended.success() || !path.exists(), "a file was left after {after_ms} ms");
        let _ = fs::remove_file(&path);
        let left: Vec<_> =
            fs::read_dir(place.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(left, ["mounted"], "after {after_ms} ms");
    }
    works(&["mkfs", "--volume", "--fill", path.to_str().unwrap(), "--size", "64M"]);
    assert_eq!(fs::metadata(&path).unwrap().len(), 64 << 20);
    fails(&["mkfs", path.to_str().unwrap()], &["not empty"]);
    assert!(runs(weir(&["ls"]).arg(&path)).contains("lost+found"));
}

/// As `cp` does: a slash at the end names a directory.
#[test]
fn a_slash_at_the_end_names_a_directory() {
    let place = Place::new();
    let image = place.path().join("a.img");
    let image = image.to_str().unwrap();
    let local = place.path().join("file");
    fs::write(&local, "content").unwrap();
    let local = local.to_str().unwrap();
    works(&["mkfs", image, "--size", "16M"]);
    fails(&["put", image, local, "/none/"], &["/none/", "directory"]);
    fails(&["put", image, local, "/none//"], &["directory"]);
    assert!(!works(&["ls", image, "/"]).contains("none"));
    works(&["put", image, local, "/file"]);
    fails(&["put", image, local, "/file/"], &["directory"]);
    fails(&["cat", image, "/file/"], &["directory"]);
    works(&["put", image, local, "/lost+found/"]);
    assert_eq!(works(&["cat", image, "/lost+found/file"]), "content");
    let target = format!("{}/none/", place.path().display());
    fails(&["get", image, "/file", &target], &["none", "directory"]);
    assert!(!place.path().join("none").exists());
    works(&["get", "-r", image, "/", &target]);
    assert_eq!(fs::read_to_string(place.path().join("none/file")).unwrap(), "content");
    works(&["put", "-r", image, &target, "/copy/"]);
    assert_eq!(works(&["cat", image, "/copy/file"]), "content");
}
