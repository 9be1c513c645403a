//! A filesystem mounted for any program: what programs do with it, how it ends, and what is told when it cannot be.
//! Where FUSE is not to be had, these tests say that they were skipped.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs::{self, File, FileTimes, Permissions};
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::{FileExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, UNIX_EPOCH};

use crate::support::{self, Place, error_of, fails, is_mountpoint, mounts, runs, system, weir, works};
use rustix::fs::{FallocateFlags, RawDir, SeekFrom, fallocate};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process};

#[test]
fn programs_find_what_they_wrote() {
    if !mounts() {
        return;
    }
    let place = Place::with_volume("256M");
    let root = place.mount(&[]);
    let sources = Path::new(env!("CARGO_MANIFEST_DIR"));
    let copied = Command::new("cp").arg("-a").arg(sources).arg(root.join("copy")).output().unwrap();
    assert!(copied.status.success(), "{}", error_of(&copied));
    for nth in 0..3000 {
        fs::write(root.join(format!("file {nth}")), nth.to_string()).unwrap();
    }
    assert_eq!(fs::read_dir(&root).unwrap().count(), 3002);
    place.end();
    let root = place.mount(&["--read-only"]);
    let same = Command::new("diff").arg("-r").arg(sources).arg(root.join("copy")).output().unwrap();
    assert!(same.status.success(), "{}", String::from_utf8_lossy(&same.stdout));
    assert_eq!(fs::read(root.join("file 2999")).unwrap(), b"2999");
    assert_eq!(fs::write(root.join("new"), "").unwrap_err().raw_os_error(), Some(30), "EROFS");
    place.end();
}

#[test]
fn a_signal_ends_it_with_everything_written() {
    if !mounts() {
        return;
    }
    let place = Place::with_volume("256M");
    let mut server = place.serve();
    fs::write(place.mountpoint().join("a"), "not synchronised").unwrap();
    let open = File::open(place.mountpoint().join("a")).unwrap();
    kill_process(Pid::from_child(server.process()), Signal::TERM).unwrap();
    assert!(server.wait());
    assert!(!is_mountpoint(&place.mountpoint()));
    drop(open);
    place.check();
    let root = place.mount(&[]);
    assert_eq!(fs::read(root.join("a")).unwrap(), b"not synchronised");
    place.end();
}

/// What a deleted file held is the volume's again: by default soon, and else when `fstrim` is run.
#[test]
fn space_returns_to_the_volume() {
    if !mounts() || !rustix::process::geteuid().is_root() {
        return;
    }
    let fstrim = |root: &Path| system("fstrim").arg("-v").arg(root).output();
    let place = Place::with_volume("256M");
    for (option, by_itself) in [("--discard", true), ("--no-discard", false)] {
        let root = place.mount(&[option]);
        let free = || place.status()["storage"]["segments_free"].as_u64().unwrap();
        let file = File::create(root.join("large")).unwrap();
        file.write_all_at(&vec![7; 64 << 20], 0).unwrap();
        file.sync_all().unwrap();
        drop(file);
        let full = free();
        fs::remove_file(root.join("large")).unwrap();
        File::open(&root).unwrap().sync_all().unwrap();
        let is_free = support::is_so_within(Duration::from_secs(2), || free() > full + 10);
        assert_eq!(is_free, by_itself, "{option}: {} of {full}", free());
        let Ok(trimmed) = fstrim(&root) else {
            eprintln!("skipped: fstrim is not installed");
            return place.end();
        };
        assert!(trimmed.status.success(), "{}", error_of(&trimmed));
        assert!(String::from_utf8_lossy(&trimmed.stdout).contains("trimmed"));
        assert!(free() > full + 10, "{option}: {} of {full}", free());
        assert!(place.status()["blocks_discarded"].as_u64().unwrap() > 16_384);
        place.end();
    }
    let root = place.mount(&["--read-only"]);
    assert!(!fstrim(&root).unwrap().status.success(), "nothing is changed");
    place.end();
}

/// And further on, to the host, where the mount may pass it on.
#[test]
fn space_returns_to_the_host() {
    if !mounts() || !rustix::process::geteuid().is_root() {
        return;
    }
    let place = Place::with_volume("256M");
    let taken = || place.volume().metadata().unwrap().blocks() * 512;
    let whole = taken();
    for (options, passed_on) in [(&[][..], false), (&["--discard-below"], true)] {
        let root = place.mount(options);
        let file = File::create(root.join("large")).unwrap();
        file.write_all_at(&vec![7; 64 << 20], 0).unwrap();
        file.sync_all().unwrap();
        drop(file);
        assert!(taken() > 64 << 20, "{} bytes", taken());
        fs::remove_file(root.join("large")).unwrap();
        let Ok(trimmed) = system("fstrim").arg(&root).output() else {
            eprintln!("skipped: fstrim is not installed");
            return place.end();
        };
        assert!(trimmed.status.success(), "{}", error_of(&trimmed));
        match passed_on {
            true => assert!(taken() < 16 << 20, "{} bytes", taken()),
            false => assert_eq!(taken(), whole),
        }
        place.end();
    }
}

#[test]
fn times_before_1970_are_kept() {
    if !mounts() {
        return;
    }
    let place = Place::with_volume("256M");
    let root = place.mount(&[]);
    // One and a half seconds before: nanoseconds count forwards.
    let times = FileTimes::new().set_modified(UNIX_EPOCH - Duration::from_millis(1500));
    File::create(root.join("a")).unwrap().set_times(times).unwrap();
    for _ in 0..2 {
        let found = fs::metadata(root.join("a")).unwrap();
        assert_eq!((found.mtime(), found.mtime_nsec()), (-2, 500_000_000));
        place.end();
        place.mount(&["--read-only"]);
    }
    place.end();
}

#[test]
fn umount_of_weir_returns_when_everything_is_written_and_free() {
    if !mounts() {
        return;
    }
    let place = Place::with_volume("256M");
    let (volume, root) = (place.volume(), place.mountpoint());
    for nth in 0..5 {
        place.mount(&[]);
        // No call made it durable.
        fs::write(root.join(format!("file {nth}")), vec![nth; 3 << 20]).unwrap();
        place.umount();
        assert!(!is_mountpoint(&root));
        // At once: nothing to wait for, no lock in the way.
        works(&["fsck", volume.to_str().unwrap()]);
    }
    works(&["mount", "--read-only", volume.to_str().unwrap(), root.to_str().unwrap()]);
    for nth in 0..5 {
        assert_eq!(fs::read(root.join(format!("file {nth}"))).unwrap(), vec![nth; 3 << 20]);
    }
    fails(&["umount", root.join("file 0").to_str().unwrap()], &["not a mountpoint", root.to_str().unwrap()]);
    let open = File::open(root.join("file 0")).unwrap();
    fails(&["umount", root.to_str().unwrap()], &["have files open there"]);
    drop(open);
    place.umount();
    fails(&["umount", root.to_str().unwrap()], &["no filesystem of Weir"]);
}

#[test]
fn umount_of_weir_tells_who_else_sees_the_mount() {
    if !mounts() {
        return;
    }
    let place = Place::with_volume("256M");
    let root = place.mount(&[]);
    let mut unshare = Command::new("unshare");
    unshare.args(["--mount", "sh", "-c", "echo ready; exec sleep 100"]).stdout(Stdio::piped());
    let mut other = unshare.spawn().unwrap();
    let mut told = String::new();
    BufReader::new(other.stdout.take().unwrap()).read_line(&mut told).unwrap();
    let umount = weir(&["umount", root.to_str().unwrap()]).stderr(Stdio::piped()).spawn();
    let mut umount = umount.unwrap();
    BufReader::new(umount.stderr.take().unwrap()).read_line(&mut told).unwrap();
    other.kill().unwrap();
    other.wait().unwrap();
    assert!(umount.wait().unwrap().success());
    assert!(told.contains(&format!("process {} sees it in a mount namespace", other.id())), "{told}");
    place.check();
}

/// What another owner or group takes away, as on the host: set-user-ID and set-group-ID, of all but directories.
#[test]
fn another_owner_takes_privileges_away_as_on_the_host() {
    if !mounts() {
        return;
    }
    let place = Place::with_volume("64M");
    let root = place.mount(&[]);
    let host = tempfile::tempdir_in(place.path()).unwrap();
    let left = |directory: &Path| {
        let fifo = directory.join("fifo");
        runs(Command::new("mkfifo").arg(&fifo));
        let node = directory.join("node");
        runs(Command::new("mknod").arg(&node).args(["c", "1", "3"]));
        let socket = directory.join("socket");
        drop(std::os::unix::net::UnixListener::bind(&socket).unwrap());
        let (file, below) = (directory.join("file"), directory.join("directory"));
        fs::write(&file, "content").unwrap();
        fs::create_dir(&below).unwrap();
        let mut modes = Vec::new();
        for path in [fifo, node, socket, file, below] {
            for mode in [0o6755, 0o6744, 0o4711] {
                fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
                std::os::unix::fs::chown(&path, Some(7), Some(8)).unwrap();
                modes.push(fs::metadata(&path).unwrap().permissions().mode());
            }
        }
        modes
    };
    let (expected, found) = (left(host.path()), left(&root));
    assert_eq!(found, expected);
    assert!(expected.iter().any(|mode| mode & 0o6000 == 0) && expected.iter().any(|mode| mode & 0o4000 != 0));
    place.umount();
}

#[test]
fn a_status_is_in_words_or_json() {
    if !mounts() {
        return;
    }
    let place = Place::with_volume("256M");
    let root = place.mount(&[]);
    let status = works(&["status", root.to_str().unwrap()]);
    for words in
        ["read only               no", "engine                  dual", "ms (target 100 ms: ", "of it free"]
    {
        assert!(status.contains(words), "no {words:?} in {status}");
    }
    // Paths may be longer than a terminal is wide.
    let fits = |line: &str| line.contains('/') || line.chars().count() <= 80;
    assert!(status.lines().all(fits), "{status}");
    let status = place.status();
    assert_eq!((&status["engine"], &status["read_only"]), (&"dual".into(), &serde_json::Value::Null));
    let window = &status["storage"]["loss_window"];
    assert_eq!((&window["bound_ms"], &window["bound_bytes"]), (&100.0.into(), &(64 << 20).into()));
    assert!(window["ms"].is_number() && window["bytes"].is_number() && window["exceeded"].is_boolean());
    assert!(status["block_bytes"].is_number());
    let memory = status["memory_bytes"].as_u64().unwrap();
    assert!((1 << 20..1 << 30).contains(&memory), "{memory} bytes");
    let [bound, floor] =
        ["memory_bound_bytes", "memory_floor_bytes"].map(|name| status[name].as_u64().unwrap());
    assert!(memory < floor && floor + (256 << 20) < bound && bound < 1 << 30, "{memory}, {floor}, {bound}");
    let told = works(&["status", root.to_str().unwrap()]);
    assert!(told.contains(" of log in ") && told.contains("ms; after a crash, up to 450 MiB"), "{told}");
    let recovery = &status["storage"]["recovery"];
    assert!(recovery["bytes"].is_u64() && recovery["ms"].is_number(), "{recovery}");
    assert_eq!(recovery["target_bytes"].as_u64(), Some((320 + 130) << 20));
    // The name that pgrep looks for.
    let name = fs::read_to_string(format!("/proc/{}/comm", status["pid"])).unwrap();
    assert_eq!(name.trim_end(), "weir");
    place.umount();
}

#[test]
fn a_disk_is_told_of_and_ended_as_a_filesystem_is() {
    if !mounts() {
        return;
    }
    let place = Place::with_volume("256M");
    let (volume, root) = (place.volume(), place.mountpoint());
    works(&["disk", root.to_str().unwrap(), "--volume", volume.to_str().unwrap()]);
    let status = works(&["status", root.to_str().unwrap()]);
    assert!(status.contains("loss window so far") && !status.contains("engine"), "{status}");
    let refused = |done: std::io::Result<()>| done.is_err_and(|error| error.raw_os_error() == Some(1));
    assert!(refused(fs::remove_file(root.join("disk"))), "EPERM");
    assert!(
        refused(File::create(root.join("other")).map(drop)) && refused(fs::create_dir(root.join("other")))
    );
    place.umount();
    works(&["fsck", volume.to_str().unwrap()]);
}

/// The kernel keeps in mind which names are not there, and learns of each that is made.
#[test]
fn a_name_that_was_missing_is_found_once_it_is_there() {
    if !mounts() {
        return;
    }
    let place = Place::with_volume("256M");
    let root = place.mount(&[]);
    let is_there = |name: &str| root.join(name).symlink_metadata().is_ok();
    let missing = || ["made", "renamed", "linked", "symlink", "directory"].map(is_there);
    for _ in 0..2 {
        assert_eq!(missing(), [false; 5]);
        File::create(root.join("made")).unwrap();
        File::create(root.join("other")).unwrap();
        fs::rename(root.join("other"), root.join("renamed")).unwrap();
        assert!(!is_there("other"));
        fs::hard_link(root.join("made"), root.join("linked")).unwrap();
        std::os::unix::fs::symlink("made", root.join("symlink")).unwrap();
        fs::create_dir(root.join("directory")).unwrap();
        assert_eq!(missing(), [true; 5]);
        fs::remove_dir(root.join("directory")).unwrap();
        for name in ["made", "renamed", "linked", "symlink"] {
            fs::remove_file(root.join(name)).unwrap();
        }
    }
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
    let line = mounts.lines().find(|line| line.contains(root.to_str().unwrap())).unwrap();
    assert!(line.contains(" fuse.weir "), "{line}");
    place.end();
}

/// The kernel takes it that nothing has changed then: it appends at the end that it knows, and reads what it has in its
/// page cache.
#[test]
fn an_allocation_that_finds_no_room_changes_no_content() {
    if !mounts() {
        return;
    }
    let place = Place::with_volume("64M");
    let root = place.mount(&[]);
    let (path, content) = (root.join("log"), [7; 9000]);
    let mut file = File::options().create(true).read(true).append(true).open(&path).unwrap();
    file.write_all(&content).unwrap();
    let size = || fs::metadata(&path).unwrap().len();
    for mode in [FallocateFlags::KEEP_SIZE, FallocateFlags::ZERO_RANGE, FallocateFlags::empty()] {
        let before = size();
        assert_eq!(fallocate(&file, mode, 0, 1 << 40), Err(Errno::NOSPC));
        file.write_all(b"more").unwrap();
        assert_eq!(size(), before + 4, "{mode:?}");
        if mode != FallocateFlags::empty() {
            // What has been allocated behind the end is free again.
            file.set_len(size()).unwrap();
        }
    }
    drop(file);
    let found = fs::read(&path).unwrap();
    assert!(found == [&content[..], b"moremoremore"].concat());
    place.end();
    place.mount(&[]);
    assert!(fs::read(&path).unwrap() == found, "as it is without a page cache");
    place.end();
}

/// Also in the middle of what the server has read ahead.
#[test]
fn a_directory_is_read_on_from_any_place_that_was_told() {
    if !mounts() {
        return;
    }
    let place = Place::with_volume("64M");
    let root = place.mount(&[]);
    for nth in 0..1000 {
        File::create(root.join(format!("a file with a long name {nth}"))).unwrap();
    }
    let directory = File::open(&root).unwrap();
    let mut buffer = Vec::with_capacity(4096);
    let mut read_on = |from: u64, most: usize| -> Vec<(String, u64)> {
        rustix::fs::seek(&directory, SeekFrom::Start(from)).unwrap();
        let mut entries = RawDir::new(&directory, buffer.spare_capacity_mut());
        std::iter::from_fn(|| {
            let entry = entries.next()?.unwrap();
            Some((entry.file_name().to_string_lossy().into_owned(), entry.next_entry_cookie()))
        })
        .take(most)
        .collect()
    };
    let all = read_on(0, usize::MAX);
    assert_eq!(all.len(), 1003);
    for nth in (0..1000).step_by(37).rev() {
        assert_eq!(read_on(all[nth].1, 3), all[nth + 1..][..3], "behind {nth}");
    }
    drop(directory);
    place.end();
}

/// The server lets go of what programs close: a file without a name frees its space then.
#[test]
fn a_deleted_file_frees_its_space_when_it_is_closed() {
    if !mounts() {
        return;
    }
    let place = Place::with_volume("256M");
    let root = place.mount(&[]);
    let free = || rustix::fs::statvfs(&root).unwrap().f_bfree;
    let before = free();
    let open: Vec<File> = (0..20)
        .map(|nth| {
            let path = root.join(nth.to_string());
            let file = File::create(&path).unwrap();
            file.write_all_at(&[7; 1 << 20], 0).unwrap();
            file.sync_all().unwrap();
            fs::remove_file(&path).unwrap();
            file
        })
        .collect();
    assert!(before - free() >= 20 * 256, "what is open takes space");
    drop(open);
    support::wait_until("the space is free", || {
        File::open(&root).unwrap().sync_all().unwrap();
        before - free().min(before) < 256
    });
    place.end();
}

#[test]
fn what_cannot_be_mounted_says_why() {
    let place = Place::with_volume("256M");
    let (volume, mountpoint) = (place.volume(), place.mountpoint());
    let (volume, mountpoint) = (volume.to_str().unwrap(), mountpoint.to_str().unwrap());
    fails(&["mount", volume, "/nowhere/at/all"], &["/nowhere/at/all", "No such file"]);
    fails(&["mount", "/nowhere/at/all", mountpoint], &["/nowhere/at/all"]);
    fails(&["mount", volume], &["name the directory"]);
    fails(&["status", mountpoint], &["no filesystem of Weir"]);
    fails(&["status", "/nowhere/at/all"], &["/nowhere/at/all", "No such file"]);
    if !mounts() {
        return;
    }
    let text = place.path().join("text");
    fs::write(&text, vec![b'x'; 1 << 20]).unwrap();
    fails(&["mount", text.to_str().unwrap(), mountpoint], &["text", "ext4"]);
    let root = place.mount(&[]);
    let other = place.path().join("other");
    fs::create_dir(&other).unwrap();
    let mounted_at =
        format!("it is mounted at {0}: name that directory", root.canonicalize().unwrap().display());
    for arguments in [&["mount", volume, other.to_str().unwrap()][..], &["snapshot", "create", volume, "a"]] {
        fails(arguments, &["a.weir", "in use", &mounted_at, "weir umount"]);
    }
    assert!(is_mountpoint(&root));
    place.end();
}

#[test]
fn an_emulated_device_is_mounted_and_gone() {
    if !mounts() {
        return;
    }
    let place = Place::new();
    let mountpoint = place.mountpoint();
    works(&["mount", "--device", "ufs20", "--size", "256M", mountpoint.to_str().unwrap()]);
    fs::write(mountpoint.join("a"), "on flash that is not there").unwrap();
    File::open(mountpoint.join("a")).unwrap().sync_all().unwrap();
    assert!(works(&["status", mountpoint.to_str().unwrap()]).contains("an emulated device"));
    place.unmount();
}
