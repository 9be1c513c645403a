//! What goes wrong outside of Weir: damaged images, mountpoints in use, no way to the kernel's FUSE, no permission,
//! full and failing disks. Each is told in one line that names the path, the cause and what to do; and nothing that
//! was acknowledged as durable is lost.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs::{self, File, Permissions};
use std::io::{Read as _, Write as _};
use std::os::unix::fs::{FileExt as _, PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::{
    self, Place, error_of, is_mountpoint, mounts, runs, system, text, told_by_status, wait_until, weir,
    weir_program, works,
};

/// Numbers of devices: that of FUSE, and one that no driver has.
const FUSE: u32 = 229;
const UNUSED: u32 = 199;

/// Bytes of a file that is written.
const FILE_BYTES: usize = 256 << 10;

/// The command fails with one line on standard error that holds all of `words`.
#[track_caller]
fn fails(command: &mut Command, words: &[&str]) {
    support::ends_with(command, &[2, 8], words);
}

fn mount(volume: &Path, mountpoint: &Path) -> Command {
    weir(&["mount", volume.to_str().unwrap(), mountpoint.to_str().unwrap()])
}

fn file(root: &Path, nth: usize) -> PathBuf {
    root.join(format!("file {nth}"))
}

/// Content that no other file has, in any of its blocks.
fn content(nth: usize) -> Vec<u8> {
    (0..FILE_BYTES / 8).flat_map(|word| ((nth << 32 | word) as u64).to_le_bytes()).collect()
}

fn write_durably(root: &Path, nth: usize) -> std::io::Result<()> {
    let mut file = File::create(file(root, nth))?;
    file.write_all(&content(nth))?;
    file.sync_all()
}

/// Writes files until one cannot be made durable: how many were.
fn fill(root: &Path) -> usize {
    (0..100_000).find(|nth| write_durably(root, *nth).is_err()).unwrap()
}

#[track_caller]
fn are_whole(root: &Path, files: usize) {
    for nth in 0..files {
        assert!(fs::read(file(root, nth)).unwrap() == content(nth), "file {nth} of {files}");
    }
}

/// The mount has failed: it says why, nothing more is acknowledged, and it can be ended. `answers` are those of a change, and of
/// `fsync`.
#[track_caller]
fn has_failed(place: &Place, acknowledged: usize, log: &Path, why: &str, answers: [i32; 2], umount: &[&str]) {
    let root = place.mountpoint();
    assert!(acknowledged > 0);
    assert_eq!(write_durably(&root, acknowledged + 1).unwrap_err().raw_os_error(), Some(answers[0]));
    let open = File::open(file(&root, 0)).unwrap();
    assert_eq!(open.sync_all().unwrap_err().raw_os_error(), Some(answers[1]));
    drop(open);
    let status = told_by_status(&[root.to_str().unwrap()]);
    assert!(
        status.starts_with("health                  NOT HEALTHY: it takes no changes any more"),
        "{status}"
    );
    assert!(status.contains("read only               yes: ") && status.contains(why), "{status}");
    wait_until("its log says so", || fs::read_to_string(log).unwrap().contains("no changes any more"));
    let log = fs::read_to_string(log).unwrap();
    assert!(log.contains(why) && log.contains(place.volume().to_str().unwrap()), "{log}");
    fails(&mut weir(&["umount", root.to_str().unwrap()]), umount);
    place.unmount();
}

/// The disk is well again: what was acknowledged is there.
#[track_caller]
fn is_well(place: &Place, acknowledged: usize) {
    place.check();
    are_whole(&place.mount(&[]), acknowledged);
    place.umount();
}

#[test]
fn a_damaged_image_is_named_with_what_is_damaged() {
    let place = Place::with_volume("64M");
    let good = fs::read(place.volume()).unwrap();
    let restore = ["a.weir", "damaged", "restore it from a copy"];
    for (blocks, words) in
        [(0..2, &["a.weir", "neither ext4, nor F2FS, nor a volume"][..]), (2..4096, &restore)]
    {
        let mut bytes = good.clone();
        bytes[blocks.start * 4096..blocks.end * 4096].fill(0x5A);
        fs::write(place.volume(), &bytes).unwrap();
        fails(&mut mount(&place.volume(), &place.mountpoint()), words);
        assert!(fs::read(place.volume()).unwrap() == bytes, "it was changed");
    }
    fs::write(place.volume(), &good[..good.len() / 2]).unwrap();
    fails(&mut mount(&place.volume(), &place.mountpoint()), &["64 MiB", "32 MiB", "restore it from a copy"]);

    let image = place.path().join("image");
    works(&["mkfs", image.to_str().unwrap(), "--size", "64M"]);
    File::options().write(true).open(&image).unwrap().write_all_at(&[0x5A; 64], 4096).unwrap();
    fails(
        &mut mount(&image, &place.mountpoint()),
        &["image", "checksum", "group 0: the checksum of the group descriptor", "`weir fsck "],
    );
    assert!(!is_mountpoint(&place.mountpoint()));
}

/// By every door: a name with a slash would lead out of the directory that it is in.
#[test]
fn a_name_that_leads_elsewhere_is_damage() {
    let place = Place::with_volume("64M");
    let (image, canary) = (place.path().join("image"), place.path().join("canary"));
    // Without checksums, so that any bytes will do.
    let mut make = system("mkfs.ext4");
    make.args(["-q", "-F", "-b", "4096", "-O", "^metadata_csum"]).arg(&image).arg("64M");
    if make.output().is_err() {
        eprintln!("skipped: mkfs.ext4 is not installed");
        return;
    }
    fs::write(&canary, "a canary").unwrap();
    let local = place.path().join("AAAAAAAAA");
    fs::write(&local, "an attack").unwrap();
    fs::set_permissions(&local, Permissions::from_mode(0o4755)).unwrap();
    let [image_text, local] = [&image, &local].map(|path| path.to_str().unwrap());
    works(&["put", image_text, local, "/"]);
    let mut bytes = fs::read(&image).unwrap();
    let at = bytes.windows(9).position(|bytes| bytes == b"AAAAAAAAA").unwrap();
    bytes[at..at + 9].copy_from_slice(b"../canary");
    fs::write(&image, &bytes).unwrap();
    let out = place.path().join("out");
    let words = ["a name that no path can have"];
    fails(&mut weir(&["ls", image_text]), &words);
    fails(&mut weir(&["cat", image_text, "/lost+found/../none"]), &words);
    let output = weir(&["get", "-r", image_text, "/", out.to_str().unwrap()]).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{}", error_of(&output));
    assert!(error_of(&output).contains(words[0]), "{}", error_of(&output));
    assert_eq!(weir(&["fsck", image_text]).output().unwrap().status.code(), Some(4));
    if mounts() {
        works(&["mount", image_text, place.mountpoint().to_str().unwrap()]);
        assert_eq!(
            fs::read_dir(place.mountpoint()).unwrap().next().unwrap().unwrap_err().raw_os_error(),
            Some(5),
            "EIO"
        );
        assert!(fs::read(place.mountpoint().join("canary")).is_err());
        place.unmount();
    }
    assert_eq!(fs::read(&canary).unwrap(), b"a canary");
    assert_eq!(fs::metadata(&canary).unwrap().permissions().mode() & 0o7000, 0);
}

#[test]
fn damaged_data_is_an_error_and_never_other_data() {
    if !mounts() {
        return;
    }
    let place = Place::with_volume("64M");
    let root = place.mount(&[]);
    for nth in 0..40 {
        write_durably(&root, nth).unwrap();
    }
    place.umount();
    // One byte in the middle of what a file holds.
    let mut bytes = fs::read(place.volume()).unwrap();
    let block = &content(7)[4096..8192];
    let at = bytes.chunks(4096).position(|found| found == block).unwrap();
    bytes[at * 4096 + 100] ^= 1;
    fs::write(place.volume(), &bytes).unwrap();
    place.mount(&[]);
    for nth in 0..40 {
        match fs::read(file(&root, nth)) {
            Ok(found) => assert!(found == content(nth) && nth != 7, "{nth}"),
            Err(error) => assert_eq!((error.raw_os_error(), nth), (Some(5), 7), "EIO"),
        }
    }
    place.umount();
}

#[test]
fn a_mountpoint_or_volume_in_use_is_left_alone() {
    if !mounts() {
        return;
    }
    let (place, other) = (Place::with_volume("64M"), Place::with_volume("64M"));
    let (volume, root) = (place.volume(), place.mount(&[]));
    let under = root.join("under");
    fs::create_dir(&under).unwrap();
    fails(
        &mut mount(&other.volume(), &root),
        &[root.to_str().unwrap(), "mounted there already", "weir umount"],
    );
    fails(&mut mount(&other.volume(), &volume), &[volume.to_str().unwrap(), "Not a directory"]);
    // A directory on a mount is a place like any other.
    runs(&mut mount(&other.volume(), &under));
    runs(Command::new("umount").arg(&under));
    other.check();
    // Whoever wants the volume meanwhile is told.
    let (volume, elsewhere) = (volume.to_str().unwrap(), other.mountpoint());
    for arguments in [
        &["mount", volume, elsewhere.to_str().unwrap()][..],
        &["mount", "--read-only", volume, elsewhere.to_str().unwrap()],
        &["disk", elsewhere.to_str().unwrap(), "--volume", volume],
        &["fsck", volume],
        &["volume", "check", volume],
        &["mkfs", "--volume", "--force", volume],
        &["volume", "create", "--force", volume],
    ] {
        fails(&mut weir(arguments), &["a.weir is in use", "weir umount"]);
    }
    write_durably(&root, 0).unwrap();
    let working = Command::new("sleep").arg("1000").current_dir(&root).spawn();
    fails(&mut weir(&["umount", root.to_str().unwrap()]), &["work in it", "end them"]);
    let mut working = working.unwrap();
    working.kill().unwrap();
    working.wait().unwrap();
    place.umount();
    is_well(&place, 1);
}

/// Runs a line of the shell in a mount namespace of its own, where `/dev/fuse` has these permissions and that number.
fn with_device(mode: &str, minor: u32, line: &str) -> Command {
    let mut command = Command::new("unshare");
    let make = format!("mount -t tmpfs none /mnt; mknod -m {mode} /mnt/fuse c 10 {minor}");
    let line = format!("{make}; mount --bind /mnt/fuse /dev/fuse; {line}");
    command.args(["--mount", "bash", "-c", &line]);
    command
}

#[test]
fn without_a_way_to_fuse_it_says_what_to_do() {
    if !mounts() || !system("unshare").args(["--mount", "true"]).status().is_ok_and(|ended| ended.success()) {
        eprintln!("skipped: it takes mount namespaces");
        return;
    }
    let place = Place::with_volume("64M");
    let line = format!("{:?}", mount(&place.volume(), &place.mountpoint()));
    // A number that no module of the kernel answers for, as before it is loaded.
    fails(&mut with_device("666", UNUSED, &line), &["/dev/fuse", "modprobe fuse", "--device"]);
    let empty = format!("mount -t tmpfs none /dev; mknod -m 666 /dev/null c 1 3; {line}");
    fails(
        Command::new("unshare").args(["--mount", "bash", "-c", &empty]),
        &["/dev/fuse", "No such file", "modprobe fuse"],
    );
    // Nothing happened to the volume.
    place.check();
}

#[test]
fn a_user_mounts_what_is_theirs() {
    if !mounts() || !system("fusermount3").arg("-V").output().is_ok_and(|output| output.status.success()) {
        eprintln!("skipped: it takes fusermount3");
        return;
    }
    let place = Place::with_volume("64M");
    fs::set_permissions(place.path(), Permissions::from_mode(0o755)).unwrap();
    fs::set_permissions(place.volume(), Permissions::from_mode(0o600)).unwrap();
    let own = place.path().join("own");
    fs::create_dir(&own).unwrap();
    std::os::unix::fs::chown(&own, Some(65534), None).unwrap();
    let as_user = |mode: &str, line: &str| {
        let line = format!("weir() {{ {} \"$@\"; }}; {line}", weir_program());
        let line = format!("cd {}; su nobody -s /bin/bash -c '{line}'", own.display());
        with_device(mode, FUSE, &line)
    };
    if !as_user("666", "weir devices").output().is_ok_and(|output| output.status.success()) {
        eprintln!("skipped: others may not look into {}", place.path().display());
        return;
    }
    let session = "set -e; weir mkfs --volume a.weir --size 64M; mkdir m; weir mount a.weir m; echo mine > m/a; \
                   weir status m > status; weir umount m; weir mount a.weir m; cat m/a; fusermount3 -u m";
    assert!(runs(&mut as_user("666", session)).ends_with("mine\n"));
    wait_until("the server has ended", || {
        system("flock")
            .args(["-n".as_ref(), own.join("a.weir").as_os_str(), "true".as_ref()])
            .status()
            .unwrap()
            .success()
    });
    for (mode, line, words) in [
        ("600", "weir mount a.weir m", &["/dev/fuse", "Permission denied", "chmod 666 /dev/fuse"][..]),
        ("666", "weir mount ../a.weir m", &["../a.weir", "Permission denied"]),
        ("666", "weir mount a.weir ../mounted", &["../mounted", "no write access"]),
        ("666", "weir mount a.weir none", &["none", "No such file", "mkdir -p none"]),
        (
            "666",
            "FUSERMOUNT_PATH=/nowhere weir mount a.weir m",
            &["cannot mount on m", "install the package fuse3"],
        ),
        ("666", "weir fsck ../a.weir", &["../a.weir", "Permission denied"]),
    ] {
        fails(&mut as_user(mode, line), words);
    }
    for options in [&[][..], &["--allow-other"]] {
        place.mount(options);
        let umount = &["../mounted", "user root mounted it", "`sudo -u root weir umount ../mounted`"];
        fails(&mut as_user("666", "weir umount ../mounted"), umount);
        if options.is_empty() {
            let status = &["../mounted", "user root mounted it", "--allow-other"];
            fails(&mut as_user("666", "weir status ../mounted"), status);
        }
        place.umount();
    }
}

#[test]
fn a_full_filesystem_is_told_and_goes_on() {
    if !mounts() {
        return;
    }
    let place = Place::with_volume("48M");
    let root = place.mount(&[]);
    let acknowledged = fill(&root);
    let error = fs::write(root.join("more"), vec![1; 1 << 20]).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(28), "ENOSPC");
    are_whole(&root, acknowledged);
    fs::remove_file(file(&root, 0)).unwrap();
    fs::remove_file(file(&root, 1)).unwrap();
    // The space comes back with the next commit.
    wait_until("there is space", || write_durably(&root, 0).is_ok());
    fs::write(file(&root, 1), content(1)).unwrap();
    place.umount();
    is_well(&place, acknowledged);
    support::e2fsck_judges(&place);
}

/// A filesystem in memory that can fill up; unmounted when dropped.
struct Small(PathBuf);

impl Small {
    fn new(path: PathBuf, size: &str) -> Small {
        fs::create_dir(&path).unwrap();
        runs(Command::new("mount").args(["-t", "tmpfs", "-o", size, "none"]).arg(&path));
        Small(path)
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

#[test]
fn the_disk_of_the_host_runs_full() {
    if !mounts() {
        return;
    }
    let place = Place::new();
    let small = Small::new(place.path().join("small"), "size=24M");
    let large = small.0.join("large");
    fails(
        &mut weir(&["mkfs", "--volume", large.to_str().unwrap(), "--size", "64M"]),
        &["no space", "64 MiB", "24 MiB are free", "smaller size"],
    );
    assert!(!large.exists());
    let sparse = small.0.join("sparse");
    File::create(&sparse).unwrap().set_len(128 << 20).unwrap();
    symlink(&sparse, place.volume()).unwrap();
    works(&["mkfs", "--volume", sparse.to_str().unwrap()]);
    let log = place.path().join("log");
    let root = place.mount(&["--log", log.to_str().unwrap()]);
    let acknowledged = fill(&root);
    let enospc = 28;
    let umount = ["ran full", "copy what you need"];
    has_failed(
        &place,
        acknowledged,
        &log,
        "free space there, then unmount and mount again",
        [enospc; 2],
        &umount,
    );
    runs(Command::new("mount").args(["-o", "remount,size=200M"]).arg(&small.0));
    is_well(&place, acknowledged);
    drop(small);
}

/// A volume as a block device, whose server can be killed: then every command fails.
struct Disk {
    below: Place,
    device: String,
}

impl Disk {
    /// None where there are no loop devices.
    fn attach(below: Place) -> Option<Disk> {
        let (volume, mountpoint) = (below.volume(), below.mountpoint());
        works(&["disk", mountpoint.to_str().unwrap(), "--volume", volume.to_str().unwrap()]);
        let options = ["--find", "--show", "--direct-io=on"];
        let made = system("losetup").args(options).arg(mountpoint.join("disk")).output().ok();
        let device = made.filter(|output| output.status.success()).map(|output| text(&output.stdout));
        Some(Disk { below, device: device?.trim().to_owned() })
    }

    fn fail(&self) {
        let pid = self.below.status()["pid"].as_i64().unwrap();
        let pid = rustix::process::Pid::from_raw(pid as i32).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    }

    fn detach(&self) {
        runs(system("losetup").arg("-d").arg(&self.device));
        let unmount = || system("umount").arg(self.below.mountpoint()).status().unwrap().success();
        wait_until("the loop device has let go", unmount);
    }
}

#[test]
fn the_disk_fails_under_a_mount() {
    if !mounts() {
        return;
    }
    let below = Place::new();
    works(&["volume", "create", below.volume().to_str().unwrap(), "--size", "96M"]);
    let Some(disk) = Disk::attach(below) else {
        eprintln!("skipped: it takes losetup and a loop device");
        return;
    };
    let place = Place::new();
    symlink(&disk.device, place.volume()).unwrap();
    works(&["mkfs", "--volume", &disk.device]);
    let log = place.path().join("log");
    let root = place.mount(&["--log", log.to_str().unwrap()]);
    for nth in 0..20 {
        write_durably(&root, nth).unwrap();
    }
    disk.fail();
    assert_eq!(write_durably(&root, 20).unwrap_err().raw_os_error(), Some(5), "EIO");
    let (erofs, eio) = (30, 5);
    let umount = ["cannot make it durable", "copy what you need"];
    has_failed(&place, 20, &log, "a write or flush failed: ", [erofs, eio], &umount);
    // The server ends before its disk is looked for.
    wait_until("it is let go", || weir(&["fsck", &disk.device]).output().unwrap().status.code() == Some(8));
    disk.detach();
    let disk = Disk::attach(disk.below).unwrap();
    fs::remove_file(place.volume()).unwrap();
    symlink(&disk.device, place.volume()).unwrap();
    is_well(&place, 20);
    disk.detach();
}

#[test]
fn a_volume_cut_short_under_a_mount_gives_no_wrong_data() {
    if !mounts() {
        return;
    }
    let place = Place::with_volume("64M");
    let root = place.mount(&[]);
    for nth in 0..60 {
        write_durably(&root, nth).unwrap();
    }
    let disk = File::options().write(true).open(place.volume()).unwrap();
    disk.set_len(16 << 20).unwrap();
    // Durable is what it was told, but it was taken away since: reading says so, now and later.
    let _ = weir(&["umount", root.to_str().unwrap()]).output().unwrap();
    let _ = Command::new("umount").arg(&root).output().unwrap();
    wait_until("the volume is free", || {
        weir(&["fsck", place.volume().to_str().unwrap()]).output().unwrap().status.code() != Some(2)
    });
    fails(&mut mount(&place.volume(), &root), &["64 MiB", "restore it from a copy"]);
    disk.set_len(64 << 20).unwrap();
    let output = mount(&place.volume(), &root).output().unwrap();
    if !output.status.success() {
        let told = error_of(&output);
        assert!(told.contains("a.weir: ") && told.contains("damaged"), "{told}");
        return;
    }
    let mut lost = 0;
    for nth in 0..60 {
        let mut found = Vec::new();
        match File::open(file(&root, nth)).and_then(|mut file| file.read_to_end(&mut found)) {
            Ok(_) => assert!(found == content(nth), "file {nth} has other content"),
            Err(error) => {
                assert_eq!(error.raw_os_error(), Some(5), "EIO");
                lost += 1;
            }
        }
    }
    assert!(lost > 0, "nothing was taken away");
}
