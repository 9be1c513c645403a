//! A disk below that is full: what is read, what programs are told, how the mount ends; and what `weir status` says of a mount that
//! is not well. Where FUSE is not to be had, these tests say that they were skipped.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use rustix::fs::{XattrFlags, setxattr};

use crate::log_lines::objects;
use crate::support::{
    Place, error_of, fails, is_mountpoint, mounts, runs, system, text, wait_until, weir, works,
};

/// A small filesystem of the host with a sparse file on it.
struct Small {
    place: Place,
    below: PathBuf,
}

impl Small {
    /// On tmpfs, or on the kernel's ext4 on a loop device; none where these are not to be had.
    fn new(kind: &str, format: &[&str]) -> Option<Small> {
        if !mounts() {
            return None;
        }
        let place = Place::new();
        let below = place.path().join("below");
        fs::create_dir(&below).unwrap();
        let mounted = if kind == "tmpfs" {
            system("mount").args(["-t", "tmpfs", "-o", "size=64M", "none"]).arg(&below).status()
        } else {
            let image = place.path().join("below.img");
            File::create(&image).unwrap().set_len(64 << 20).unwrap();
            runs(system("mkfs.ext4").args(["-q", "-F"]).arg(&image));
            system("mount").args(["-o", "loop"]).arg(&image).arg(&below).status()
        };
        if !mounted.is_ok_and(|status| status.success()) {
            eprintln!("skipped: this takes a mount of {kind}");
            return None;
        }
        let small = Small { place, below };
        let image = small.image();
        let file = File::create(&image).unwrap();
        file.set_len(400 << 20).unwrap();
        fs::write(small.below.join("ballast"), vec![1; 20 << 20]).unwrap();
        works(&[&["mkfs", image.to_str().unwrap()], format].concat());
        Some(small)
    }

    fn image(&self) -> PathBuf {
        self.below.join("a.weir")
    }

    fn root(&self) -> PathBuf {
        self.place.mountpoint()
    }

    fn mount(&self, more: &[&str]) -> Output {
        let (image, root) = (self.image(), self.root());
        weir(&[&["mount", image.to_str().unwrap(), root.to_str().unwrap()], more].concat()).output().unwrap()
    }

    /// What the unit of systemd in the documents starts, with the paths of here: the messages of a failure have to arrive. In the
    /// background, so that it returns when it serves.
    fn as_documented(&self) -> Vec<String> {
        let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/fstab.md");
        let page = fs::read_to_string(page).unwrap();
        let command =
            page.lines().find_map(|line| line.strip_prefix("ExecStart=/usr/local/bin/weir ")).unwrap();
        let here = |word: &str| match word {
            "/srv/a.weir" => self.image().display().to_string(),
            "/mnt/weir" => self.root().display().to_string(),
            "/var/log/weir.log" => self.log().display().to_string(),
            other => other.to_owned(),
        };
        command.split_whitespace().filter(|word| *word != "--foreground").map(here).collect()
    }

    fn log(&self) -> PathBuf {
        self.place.path().join("log")
    }

    fn status(&self) -> Output {
        weir(&["status", self.root().to_str().unwrap()]).output().unwrap()
    }

    fn umount(&self) -> Output {
        weir(&["umount", self.root().to_str().unwrap()]).output().unwrap()
    }

    fn make_room(&self) {
        fs::remove_file(self.below.join("ballast")).unwrap();
    }

    /// Mounts it, and writes until the disk below is full. A file that was synchronised before is there. Returns what was said to
    /// the call that failed.
    fn fill(&self) -> i32 {
        let mounted = weir(&[]).args(self.as_documented()).output().unwrap();
        assert!(mounted.status.success(), "{}", error_of(&mounted));
        let status = self.status();
        assert_eq!(status.status.code(), Some(0));
        assert!(first_line(&status).ends_with(" healthy"), "{}", first_line(&status));
        self.fill_mounted()
    }

    /// The same of what is mounted.
    fn fill_mounted(&self) -> i32 {
        let kept = File::create(self.root().join("kept")).unwrap();
        kept.write_all_at(b"kept", 0).unwrap();
        kept.sync_all().unwrap();
        let mut file = File::create(self.root().join("large")).unwrap();
        let mut bytes = vec![0; 1 << 20];
        for nth in 0..200_u64 {
            bytes
                .chunks_exact_mut(8)
                .enumerate()
                .for_each(|(at, word)| word.copy_from_slice(&(nth << 32 | at as u64).to_le_bytes()));
            if let Err(error) = file.write_all(&bytes).and_then(|()| file.sync_all()) {
                return error.raw_os_error().unwrap();
            }
        }
        panic!("the disk below was not full");
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        for at in [self.root(), self.below.clone()] {
            let _ = system("umount").arg("-l").arg(at).stderr(Stdio::null()).status();
        }
    }
}

fn first_line(output: &Output) -> String {
    text(&output.stdout).lines().next().unwrap_or_default().to_owned()
}

fn no_space<T: std::fmt::Debug>(done: std::io::Result<T>) {
    assert_eq!(done.unwrap_err().kind(), std::io::ErrorKind::StorageFull);
}

/// What programs, the log, and `weir status` are told; and how the mount ends.
#[track_caller]
fn is_told_and_ends(small: &Small) {
    let enospc = 28;
    assert_eq!(small.fill(), enospc);
    let root = small.root();
    assert_eq!(fs::read_to_string(root.join("kept")).unwrap(), "kept");
    no_space(File::create(root.join("new")));
    no_space(fs::create_dir(root.join("directory")));
    no_space(File::options().write(true).open(root.join("kept")).unwrap().write_all_at(b"x", 0));
    no_space(File::open(root.join("kept")).unwrap().sync_all());
    wait_until("the log tells it", || {
        let log = fs::read_to_string(small.log()).unwrap();
        log.contains("takes no changes any more") && log.contains("full")
    });
    let status = small.status();
    assert_eq!(status.status.code(), Some(1));
    let line = first_line(&status);
    assert!(line.starts_with("health") && line.contains("NOT HEALTHY") && line.contains("full"), "{line}");
    let json = weir(&["status", "--json", root.to_str().unwrap()]).output().unwrap();
    let json: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!(json["health"]["healthy"], false);
    assert_eq!(json["health"]["findings"][0]["cause"], "no_changes");
    assert_eq!(json["health"]["findings"][1]["cause"], "full_below");
    // The mount is needed to copy what is in memory alone, so it stays while the next one would fail.
    let refused = small.umount();
    let told = error_of(&refused);
    assert!(
        refused.status.code() == Some(2) && told.contains("ran full") && told.contains("16 MiB"),
        "{told}"
    );
    assert_eq!(fs::read_to_string(root.join("kept")).unwrap(), "kept");
    small.make_room();
    let ended = small.umount();
    assert!(ended.status.success() && error_of(&ended).contains("ran full"), "{}", error_of(&ended));
    assert!(small.mount(&[]).status.success());
    assert_eq!(fs::read_to_string(root.join("kept")).unwrap(), "kept");
    File::create(root.join("new")).unwrap().sync_all().unwrap();
    assert!(small.umount().status.success());
}

#[test]
fn a_volume_whose_disk_is_full_is_told_and_ends() {
    if let Some(small) = Small::new("tmpfs", &["--volume"]) {
        is_told_and_ends(&small);
    }
}

#[test]
fn a_volume_with_f2fs_whose_disk_is_full_is_told_and_ends() {
    if let Some(small) = Small::new("tmpfs", &["--volume", "--type", "f2fs"]) {
        is_told_and_ends(&small);
    }
}

#[test]
fn an_image_of_f2fs_whose_disk_is_full_is_told_and_ends() {
    if let Some(small) = Small::new("tmpfs", &["--type", "f2fs"]) {
        is_told_and_ends(&small);
    }
}

#[test]
fn a_volume_on_a_full_ext4_is_told_and_ends() {
    if let Some(small) = Small::new("ext4", &["--volume"]) {
        is_told_and_ends(&small);
    }
}

#[test]
fn an_image_whose_disk_is_full_is_told_and_ends() {
    if let Some(small) = Small::new("tmpfs", &[]) {
        is_told_and_ends(&small);
    }
}

#[test]
fn a_full_disk_is_an_event_of_the_log() {
    let Some(small) = Small::new("tmpfs", &["--volume"]) else { return };
    let mounted = small.mount(&["--log", small.log().to_str().unwrap(), "--log-format", "json"]);
    assert!(mounted.status.success(), "{}", error_of(&mounted));
    small.fill_mounted();
    let failed = || {
        let log = objects(&fs::read_to_string(small.log()).unwrap());
        log.into_iter().find(|object| object["event"] == "filesystem_failed")
    };
    wait_until("the log tells it", || failed().is_some());
    let failed = failed().unwrap();
    assert_eq!((&failed["level"], &failed["path"]), (&"ERROR".into(), &small.image().to_str().into()));
    assert!(failed["reason"].as_str().unwrap().contains("full"), "{failed}");
    small.make_room();
    assert!(small.umount().status.success());
    let log = objects(&fs::read_to_string(small.log()).unwrap());
    // What was not durable is lost.
    assert_eq!((&log[0]["event"], &log.last().unwrap()["event"]), (&"started".into(), &"failed".into()));
}

/// Reading takes no space below, and changes nothing: what a crash has left is replayed in memory.
#[track_caller]
fn is_read(small: &Small) {
    small.fill();
    let root = small.root();
    let process = {
        let json = weir(&["status", "--json", root.to_str().unwrap()]).output().unwrap();
        let json: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
        json["pid"].to_string()
    };
    runs(Command::new("kill").args(["-9", &process]));
    wait_until("it has died", || fs::read_dir(&root).is_err());
    works(&["umount", root.to_str().unwrap()]);
    let image = small.image();
    let image = image.to_str().unwrap();
    wait_until("the image is free", || weir(&["fsck", image]).output().unwrap().status.code() != Some(8));
    // To the last byte, by whatever the volume or the image still wants.
    fill_the_rest(&small.below);
    let before = fs::read(image).unwrap();
    assert!(works(&["ls", image, "/"]).contains("kept"));
    assert_eq!(works(&["cat", image, "/kept"]), "kept");
    let copy = small.place.path().join("copy");
    works(&["get", image, "/kept", copy.to_str().unwrap()]);
    assert_eq!(fs::read_to_string(copy).unwrap(), "kept");
    let read = small.mount(&["--read-only"]);
    assert!(read.status.success(), "{}", error_of(&read));
    assert_eq!(fs::read_to_string(root.join("kept")).unwrap(), "kept");
    let status = small.status();
    assert!(status.status.success() && first_line(&status).ends_with(" healthy"), "{}", first_line(&status));
    assert!(small.umount().status.success());
    assert!(fs::read(image).unwrap() == before, "reading has changed it");
    // What has to write says why it cannot; an image whose journal and home blocks have their space can.
    let writable = small.mount(&[]);
    if writable.status.success() {
        small.umount();
    } else {
        let told = error_of(&writable);
        assert!(told.contains("full") && !told.contains("weir mount"), "{told}");
    }
    small.make_room();
    let _ = fs::remove_file(small.below.join("rest"));
    assert!(small.mount(&[]).status.success());
    assert_eq!(fs::read_to_string(root.join("kept")).unwrap(), "kept");
    assert!(small.umount().status.success());
    works(&["fsck", image]);
}

fn fill_the_rest(below: &Path) {
    let mut rest = File::create(below.join("rest")).unwrap();
    for size in [1 << 20, 4096, 1] {
        while rest.write_all(&vec![1; size]).is_ok() {}
    }
}

#[test]
fn a_volume_whose_disk_is_full_is_read() {
    if let Some(small) = Small::new("tmpfs", &["--volume"]) {
        is_read(&small);
    }
}

#[test]
fn a_volume_with_f2fs_whose_disk_is_full_is_read() {
    if let Some(small) = Small::new("tmpfs", &["--volume", "--type", "f2fs"]) {
        is_read(&small);
    }
}

#[test]
fn an_image_whose_disk_is_full_is_read() {
    if let Some(small) = Small::new("tmpfs", &[]) {
        is_read(&small);
    }
}

/// A stopped server does not answer, and the kernel keeps each caller waiting.
#[test]
fn a_stopped_server_is_told_in_time() {
    if !mounts() {
        return;
    }
    let place = Place::with_volume("64M");
    let root = place.mount(&[]);
    let process = place.status()["pid"].to_string();
    runs(Command::new("kill").args(["-STOP", &process]));
    for more in [&["--timeout", "1"][..], &["--timeout", "1", "--json"]] {
        let output = weir(&[&["status", root.to_str().unwrap()], more].concat())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .unwrap();
        assert_eq!(output.code(), Some(3));
    }
    runs(Command::new("kill").args(["-CONT", &process]));
    let status = weir(&["status", root.to_str().unwrap()]).output().unwrap();
    assert_eq!(status.status.code(), Some(0));
    place.end();
}

/// The other exit codes.
#[test]
fn a_mount_that_is_not_there_is_told() {
    if !mounts() {
        return;
    }
    let place = Place::with_volume("64M");
    let root = place.mountpoint();
    fails(&["status", root.to_str().unwrap()], &["no filesystem of Weir"]);
    let mut server = place.serve();
    assert_eq!(place.status()["health"]["healthy"], true);
    assert_eq!(place.status()["health"]["findings"], serde_json::json!([]));
    server.kill();
    fails(&["status", root.to_str().unwrap()], &["its server has ended"]);
    works(&["umount", root.to_str().unwrap()]);
    place.mount(&["--read-only"]);
    // An option asked for that.
    assert_eq!(place.status()["health"]["healthy"], true);
    place.end();
}

/// Nothing is left to be written when a restart begins, and the disk below is full by then: closing fails. The mount ends with the error, and
/// is not left behind without a filesystem.
#[test]
fn a_restart_that_cannot_close_ends_the_mount() {
    let Some(small) = Small::new("tmpfs", &["--volume"]) else { return };
    let root = small.root();
    let mounted = small.mount(&["--log", small.log().to_str().unwrap()]);
    assert!(mounted.status.success(), "{}", error_of(&mounted));
    fs::write(root.join("kept"), "kept").unwrap();
    setxattr(&root, "user.weir.status", b"sync", XattrFlags::empty()).unwrap();
    let kept = File::open(root.join("kept")).unwrap();
    let mut filler = File::create(small.below.join("filler")).unwrap();
    while filler.write_all(&[1; 4096]).is_ok() {}
    assert_eq!(weir(&["restart", root.to_str().unwrap()]).output().unwrap().status.code(), Some(2));
    wait_until("the server has ended", || fs::read_to_string(small.log()).unwrap().contains("ERROR weir: "));
    wait_until("no server answers", || kept.read_exact_at(&mut [0; 4], 0).is_err());
    let log = fs::read_to_string(small.log()).unwrap();
    assert!(log.contains("the storage is full") && !log.contains("was not restarted"), "{log}");
    assert!(!is_mountpoint(&root), "no dead mount is left");
    drop(kept);
    fs::remove_file(small.below.join("filler")).unwrap();
    small.make_room();
    let mounted = small.mount(&[]);
    assert!(mounted.status.success(), "{}", error_of(&mounted));
    assert_eq!(fs::read(root.join("kept")).unwrap(), b"kept");
    small.place.umount();
}
