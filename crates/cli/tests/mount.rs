//! A filesystem mounted for any program: what programs do with it, how it ends, and what is told when it cannot be.
//! Where FUSE is not to be had, these tests say that they were skipped.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::fs::{self, File, FileTimes, Permissions};
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{FileExt as _, MetadataExt as _, PermissionsExt as _};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, UNIX_EPOCH};

use rustix::fs::{
    FallocateFlags, Mode, OFlags, RawDir, SeekFrom, XattrFlags, fallocate, getxattr, removexattr, setxattr,
};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process};
use support::{Place, error_of, is_mountpoint, mounts, runs, weir, works};

/// The command ends with code 2, and with one line on standard error that holds all of `words`.
fn fails(arguments: &[&str], words: &[&str]) {
    let output = weir(arguments).output().unwrap();
    let error = error_of(&output);
    assert_eq!(output.status.code(), Some(2), "{arguments:?}: {error}");
    assert_eq!(error.trim_end().lines().count(), 1, "{arguments:?}: {error}");
    for word in words {
        assert!(error.contains(word), "{arguments:?}: no {word:?} in {error}");
    }
}

/// Unmounts, and checks what is left.
fn end(place: &Place) {
    place.unmount();
    place.check();
}

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
    end(&place);
    let root = place.mount(&["--read-only"]);
    let same = Command::new("diff").arg("-r").arg(sources).arg(root.join("copy")).output().unwrap();
    assert!(same.status.success(), "{}", String::from_utf8_lossy(&same.stdout));
    assert_eq!(fs::read(root.join("file 2999")).unwrap(), b"2999");
    assert_eq!(fs::write(root.join("new"), "").unwrap_err().raw_os_error(), Some(30), "EROFS");
    end(&place);
}

#[test]
fn what_fsync_promised_survives_a_killed_server() {
    if !mounts() {
        return;
    }
    let place = Place::with_volume("256M");
    let mut server = place.serve();
    let root = place.mountpoint();
    for nth in 0..20 {
        let mut file = File::create(root.join(format!("durable {nth}"))).unwrap();
        file.write_all(&vec![nth; 10_000]).unwrap();
        file.sync_all().unwrap();
    }
    // Nobody promised anything of this one.
    fs::write(root.join("lost or not"), "x").unwrap();
    server.kill();
    // The kernel takes a moment to notice: what comes in that is aborted then. Later it is ENOTCONN.
    let error = || Errno::from_io_error(&fs::read(root.join("durable 3")).unwrap_err());
    assert!([Some(Errno::CONNABORTED), Some(Errno::NOTCONN)].contains(&error()));
    assert_eq!(error(), Some(Errno::NOTCONN));
    let volume = place.volume();
    for arguments in [
        &["status", root.to_str().unwrap()][..],
        &["umount", root.to_str().unwrap()],
        &["mount", volume.to_str().unwrap(), root.to_str().unwrap()],
    ] {
        fails(arguments, &["server has ended", "run `umount` of the system"]);
    }
    place.unmount();
    place.check();
    place.mount(&[]);
    for nth in 0..20 {
        assert_eq!(fs::read(root.join(format!("durable {nth}"))).unwrap(), vec![nth; 10_000]);
    }
    end(&place);
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
    end(&place);
}

#[test]
fn direct_writes_with_o_dsync_are_durable() {
    if !mounts() {
        return;
    }
    let place = Place::with_volume("256M");
    let root = place.mount(&[]);
    // The kernel sends no `fsync` after a direct write: the server has to see the flags. `dd` aligns its buffers.
    for flags in ["direct,dsync", "direct,sync", "dsync"] {
        let before = flushes(&root);
        let written = Command::new("dd")
            .args(["if=/dev/zero", "bs=4096", "count=10", &format!("oflag={flags}")])
            .arg(format!("of={}", root.join(flags).display()))
            .output()
            .unwrap();
        assert!(written.status.success(), "{}", error_of(&written));
        assert!(flushes(&root) - before >= 10, "{flags}");
    }
    end(&place);
}

/// Who waits for the disk does not hold up the others.
#[test]
fn durable_writes_wait_side_by_side() {
    if !mounts() {
        return;
    }
    let place = Place::with_volume("256M");
    let root = place.mount(&[]);
    let mut writing: Vec<_> = (0..8)
        .map(|nth| {
            let file = format!("of={}", root.join(nth.to_string()).display());
            let how = ["if=/dev/zero", "bs=4096", "count=50", "oflag=direct,dsync", "status=none"];
            Command::new("dd").args(how).arg(file).spawn().unwrap()
        })
        .collect();
    for process in &mut writing {
        assert!(process.wait().unwrap().success());
    }
    let status = works(&["status", "--json", root.to_str().unwrap()]);
    let status: serde_json::Value = serde_json::from_str(&status).unwrap();
    let most = status["requests"]["under_way_max"].as_u64().unwrap();
    assert!((2..=9).contains(&most), "{most} at one time");
    end(&place);
}

/// Flushes of the mount so far.
fn flushes(root: &Path) -> u64 {
    let status = works(&["status", "--json", root.to_str().unwrap()]);
    serde_json::from_str::<serde_json::Value>(&status).unwrap()["flushes"].as_u64().unwrap()
}

#[test]
fn what_fsync_promises_can_be_said() {
    if !mounts() {
        return;
    }
    let place = Place::with_volume("256M");
    let root = place.mount(&[]);
    let synchronise = |name: &str| {
        let file = File::options().create(true).truncate(false).write(true).open(root.join(name)).unwrap();
        let before = flushes(&root);
        for nth in 0..10 {
            file.write_all_at(&[1; 4096], nth * 4096).unwrap();
            file.sync_all().unwrap();
        }
        flushes(&root) - before
    };
    assert!(synchronise("durable") >= 10);
    File::create(root.join("ordered")).unwrap();
    let attribute = "user.weir.sync";
    setxattr(root.join("ordered"), attribute, b"order", XattrFlags::empty()).unwrap();
    assert_eq!(
        setxattr(root.join("ordered"), attribute, b"other", XattrFlags::empty()).unwrap_err(),
        Errno::INVAL
    );
    // A commit by the timer, at most.
    assert!(synchronise("ordered") <= 1);
    end(&place);
    // It stays.
    place.mount(&[]);
    let mut value = [0; 16];
    let length = getxattr(root.join("ordered"), attribute, &mut value[..]).unwrap();
    assert_eq!(&value[..length], b"order");
    assert!(synchronise("ordered") <= 1);
    end(&place);
    let told = weir(&["mount", "--sync", "order", place.volume().to_str().unwrap(), root.to_str().unwrap()])
        .output()
        .unwrap();
    let warning = error_of(&told);
    assert!(told.status.success() && warning.matches("may be lost").count() == 1, "{warning}");
    assert!(synchronise("durable") <= 1);
    end(&place);
}

#[test]
fn what_fsync_promises_changes_while_a_file_is_open() {
    if !mounts() {
        return;
    }
    let place = Place::with_volume("256M");
    let root = place.mount(&[]);
    let file = File::create(root.join("a")).unwrap();
    let synchronise = || {
        let before = flushes(&root);
        for nth in 0..10 {
            file.write_all_at(&[1; 4096], nth * 4096).unwrap();
            file.sync_all().unwrap();
        }
        flushes(&root) - before
    };
    let set = |value: &[u8]| setxattr(root.join("a"), "user.weir.sync", value, XattrFlags::empty()).unwrap();
    assert!(synchronise() >= 10);
    set(b"order");
    assert!(synchronise() <= 1);
    set(b"durable");
    assert!(synchronise() >= 10);
    set(b"order");
    removexattr(root.join("a"), "user.weir.sync").unwrap();
    assert!(synchronise() >= 10);
    drop(file);
    end(&place);
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
        end(&place);
        place.mount(&["--read-only"]);
    }
    end(&place);
}

/// A write by who is not the superuser takes privileges from a file, and everybody sees that at once.
#[test]
fn writes_take_privileges_away() {
    if !mounts() {
        return;
    }
    let place = Place::with_volume("64M");
    let root = place.mount(&["--allow-other"]);
    fs::set_permissions(place.path(), Permissions::from_mode(0o755)).unwrap();
    for directory in root.ancestors().skip(1) {
        let mode = fs::metadata(directory).unwrap().permissions().mode();
        if mode & 0o001 == 0 {
            eprintln!("skipped: others may not look into {}", directory.display());
            return;
        }
    }
    let other = |script: &str| runs(Command::new("sh").arg("-c").arg(script).current_dir(&root).uid(65534));
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
        other(by);
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o7777, 0o777, "{name}");
    }
    let path = root.join("own");
    fs::write(&path, "x").unwrap();
    fs::set_permissions(&path, Permissions::from_mode(0o6777)).unwrap();
    fs::write(&path, "the superuser keeps them").unwrap();
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o7777, 0o6777);
    std::os::unix::fs::chown(&path, Some(1), None).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o7777, 0o777, "another owner");
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
        // Nobody made it durable.
        fs::write(root.join(format!("file {nth}")), vec![nth; 3 << 20]).unwrap();
        works(&["umount", root.to_str().unwrap()]);
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
    works(&["umount", root.to_str().unwrap()]);
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

#[test]
fn everything_is_made_durable_before_it_ends() {
    if !mounts() {
        return;
    }
    let place = Place::with_volume("256M");
    let mut server = place.serve();
    let root = place.mountpoint();
    fs::write(root.join("a"), "not synchronised").unwrap();
    assert_eq!(setxattr(&root, "user.weir.status", b"other", XattrFlags::empty()).unwrap_err(), Errno::PERM);
    setxattr(&root, "user.weir.status", b"sync", XattrFlags::empty()).unwrap();
    server.kill();
    place.unmount();
    place.mount(&[]);
    assert_eq!(fs::read(root.join("a")).unwrap(), b"not synchronised");
    works(&["umount", root.to_str().unwrap()]);
}

#[test]
fn a_status_is_in_words_or_json() {
    if !mounts() {
        return;
    }
    let place = Place::with_volume("256M");
    let root = place.mount(&[]);
    let status = works(&["status", root.to_str().unwrap()]);
    for words in ["read only               no", "engine                  dual", "ms, ", "of it free"] {
        assert!(status.contains(words), "no {words:?} in {status}");
    }
    let status: serde_json::Value =
        serde_json::from_str(&works(&["status", "--json", root.to_str().unwrap()])).unwrap();
    assert_eq!((&status["engine"], &status["read_only"]), (&"dual".into(), &serde_json::Value::Null));
    assert!(status["storage"]["loss_window_ms"].is_number() && status["block_bytes"].is_number());
    // The name that pgrep looks for.
    let name = fs::read_to_string(format!("/proc/{}/comm", status["pid"])).unwrap();
    assert_eq!(name.trim_end(), "weir");
    works(&["umount", root.to_str().unwrap()]);
}

#[test]
fn a_call_that_orders_saves_a_flush() {
    if !mounts() {
        return;
    }
    let place = Place::with_volume("256M");
    let root = place.mount(&[]);
    let counted = || {
        let status = works(&["status", "--json", root.to_str().unwrap()]);
        let status: serde_json::Value = serde_json::from_str(&status).unwrap();
        ["flushes", "flushes_saved", "calls_durable", "calls_ordered"]
            .map(|name| status[name].as_u64().unwrap())
    };
    assert_eq!(counted(), [0, 0, 0, 0], "mounting counts as nobody's call");
    let file = File::create(root.join("file")).unwrap();
    file.write_all_at(b"safe", 0).unwrap();
    file.sync_all().unwrap();
    setxattr(root.join("file"), "user.weir.sync", b"order", XattrFlags::empty()).unwrap();
    file.write_all_at(b"first", 0).unwrap();
    file.sync_all().unwrap();
    assert_eq!(counted(), [1, 1, 1, 1]);
    drop(file);
    works(&["umount", root.to_str().unwrap()]);
}

#[test]
fn writes_in_place_are_ordered_for_who_asks_for_it() {
    if !mounts() {
        return;
    }
    let place = Place::with_volume("256M");
    let root = place.mount(&[]);
    let ordered = || {
        let status = works(&["status", "--json", root.to_str().unwrap()]);
        serde_json::from_str::<serde_json::Value>(&status).unwrap()["calls_ordered"].as_u64().unwrap()
    };
    let path = root.join("file");
    let file = File::create(&path).unwrap();
    file.write_all_at(&[1; 8192], 0).unwrap();
    file.write_all_at(&[2; 4096], 0).unwrap();
    assert_eq!(ordered(), 0);
    assert!(!weir::order_writes(File::open(&path).unwrap().as_raw_fd()), "it is not open for writing");
    assert!(weir::order_writes(file.as_raw_fd()));
    file.write_all_at(&[3; 4096], 0).unwrap();
    file.write_all_at(b"less than a page", 5000).unwrap();
    assert_eq!(ordered(), 2);
    file.write_all_at(&[4; 4096], 8000).unwrap();
    assert_eq!(ordered(), 2, "it became longer");
    let other = File::options().write(true).open(&path).unwrap();
    other.write_all_at(&[5; 4096], 0).unwrap();
    assert_eq!(ordered(), 2, "the other descriptor has not asked");
    drop((file, other));
    works(&["umount", root.to_str().unwrap()]);
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
    works(&["umount", root.to_str().unwrap()]);
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
    end(&place);
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
    end(&place);
    place.mount(&[]);
    assert!(fs::read(&path).unwrap() == found, "as it is without a page cache");
    end(&place);
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
    end(&place);
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
    // Just the name's: nobody has it open.
    let kept = rustix::fs::open(root.join("gone"), OFlags::PATH, Mode::empty()).unwrap();
    fs::remove_file(root.join("gone")).unwrap();
    assert!((0..100).any(|nth| made(&format!("next {nth}")) == number), "the number is used again");
    assert!(fs::read(format!("/proc/self/fd/{}", kept.as_raw_fd())).is_err());
    drop(kept);
    end(&place);
}

#[test]
fn a_directory_that_was_synchronised_keeps_its_names() {
    if !mounts() {
        return;
    }
    let place = Place::with_volume("64M");
    let mut server = place.serve();
    let root = place.mountpoint();
    fs::create_dir(root.join("a")).unwrap();
    File::create(root.join("a/b")).unwrap();
    File::open(root.join("a")).unwrap().sync_all().unwrap();
    server.kill();
    place.unmount();
    place.mount(&[]);
    assert!(fs::exists(root.join("a/b")).unwrap());
    works(&["umount", root.to_str().unwrap()]);
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
    end(&place);
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
    end(&place);
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
    fails(&["mount", volume, other.to_str().unwrap()], &["a.weir", "in use", "weir umount"]);
    assert!(is_mountpoint(&root));
    end(&place);
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
