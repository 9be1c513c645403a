//! What a mount promises of a call that has returned: it is durable, or in order, by whatever way it was asked for.
//! Where FUSE is not to be had, these tests say that they were skipped.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs::{self, File, FileTimes, Permissions};
use std::io::{Read as _, Write as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{FileExt as _, PermissionsExt as _};
use std::process::{Command, Stdio};
use std::time::UNIX_EPOCH;

use crate::support::{Place, error_of, fails, is_there, mounts, runs, wait_until, weir, weir_program, works};
use rustix::fs::{Mode, OFlags, XattrFlags, copy_file_range, getxattr, open, removexattr, setxattr};
use rustix::io::Errno;

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
    // No call promised anything of this one.
    fs::write(root.join("lost or not"), "x").unwrap();
    server.kill();
    // The kernel takes a moment to notice: what comes in that is aborted then. Later it is ENOTCONN.
    let error = || Errno::from_io_error(&fs::read(root.join("durable 3")).unwrap_err());
    assert!([Some(Errno::CONNABORTED), Some(Errno::NOTCONN)].contains(&error()));
    assert_eq!(error(), Some(Errno::NOTCONN));
    let volume = place.volume();
    for arguments in [
        &["status", root.to_str().unwrap()][..],
        &["mount", volume.to_str().unwrap(), root.to_str().unwrap()],
    ] {
        fails(arguments, &["server has ended", "run `weir umount`"]);
    }
    place.unmount();
    place.check();
    place.mount(&[]);
    for nth in 0..20 {
        assert_eq!(fs::read(root.join(format!("durable {nth}"))).unwrap(), vec![nth; 10_000]);
    }
    place.end();
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
        let before = flushes(&place);
        let written = Command::new("dd")
            .args(["if=/dev/zero", "bs=4096", "count=10", &format!("oflag={flags}")])
            .arg(format!("of={}", root.join(flags).display()))
            .output()
            .unwrap();
        assert!(written.status.success(), "{}", error_of(&written));
        assert!(flushes(&place) - before >= 10, "{flags}");
    }
    place.end();
}

/// A copy within the filesystem passes the kernel by, which would synchronise it.
#[test]
fn copies_into_a_synchronous_file_are_durable() {
    if !mounts() {
        return;
    }
    for options in [&[][..], &["--no-open-requests"]] {
        copy_into_synchronous_files(options);
    }
}

fn copy_into_synchronous_files(options: &[&str]) {
    let place = Place::with_volume("256M");
    let root = place.mount(options);
    fs::write(root.join("from"), vec![7; 10_000]).unwrap();
    let from = File::open(root.join("from")).unwrap();
    let copy_into = |name: &str, flags: OFlags| {
        let flags = flags | OFlags::WRONLY | OFlags::CREATE | OFlags::CLOEXEC;
        let to = File::from(open(root.join(name), flags, Mode::from_raw_mode(0o600)).unwrap());
        let before = flushes(&place);
        let copied = copy_file_range(&from, Some(&mut 0), &to, Some(&mut 0), 10_000).unwrap();
        assert_eq!((copied, fs::read(root.join(name)).unwrap()), (10_000, vec![7; 10_000]));
        flushes(&place) - before
    };
    // O_DSYNC alone: `OFlags::DSYNC` has the bits of O_SYNC.
    for flags in [OFlags::from_bits_retain(0o10000), OFlags::SYNC] {
        assert!(copy_into(&format!("{flags:?}"), flags) >= 1, "{flags:?}");
    }
    drop(from);
    place.end();
}

/// A caller that waits for the disk does not hold up the others.
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
    let requests = &place.status()["requests"];
    let is_superuser = rustix::process::geteuid().is_root();
    assert!(requests["awake"].as_bool().is_some_and(|awake| is_superuser || !awake), "{requests}");
    let most = requests["under_way_max"].as_u64().unwrap();
    assert!((2..=9).contains(&most), "{most} at one time");
    place.end();
}

/// Flushes of the mount so far.
fn flushes(place: &Place) -> u64 {
    place.status()["flushes"].as_u64().unwrap()
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
        let before = flushes(&place);
        for nth in 0..10 {
            file.write_all_at(&[1; 4096], nth * 4096).unwrap();
            file.sync_all().unwrap();
        }
        flushes(&place) - before
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
    place.end();
    // It stays.
    place.mount(&[]);
    let mut value = [0; 16];
    let length = getxattr(root.join("ordered"), attribute, &mut value[..]).unwrap();
    assert_eq!(&value[..length], b"order");
    assert!(synchronise("ordered") <= 1);
    place.end();
    let told = weir(&["mount", "--sync", "order", place.volume().to_str().unwrap(), root.to_str().unwrap()])
        .output()
        .unwrap();
    let warning = error_of(&told);
    assert!(told.status.success() && warning.matches("may be lost").count() == 1, "{warning}");
    assert!(synchronise("durable") <= 1);
    place.end();
}

#[test]
fn an_engine_can_be_chosen_and_a_status_says_what_fsync_promises_with_it() {
    if !mounts() {
        return;
    }
    let place = Place::with_volume("256M");
    let engines = [
        ("dual", "durable"),
        ("dual-list", "durable"),
        ("jbd2", "durable"),
        ("prefix", "durable"),
        ("flush-ahead", "durable"),
        ("jbd2-nobarrier", "order"),
    ];
    for (engine, promise) in engines {
        let root = place.mount(&["--engine", engine]);
        let file = File::create(root.join(engine)).unwrap();
        let before = flushes(&place);
        for nth in 0..10 {
            file.write_all_at(&[1; 4096], nth * 4096).unwrap();
            file.sync_all().unwrap();
        }
        let flushed = flushes(&place) - before;
        match engine {
            "jbd2-nobarrier" => assert_eq!(flushed, 0),
            "prefix" => assert_eq!(flushed, 10, "one for each call"),
            _ => assert!(flushed >= 10, "{engine}: {flushed}"),
        }
        let status = place.status();
        assert_eq!((&status["engine"], &status["sync"]), (&engine.into(), &promise.into()));
        let told = works(&["status", root.to_str().unwrap()]);
        let promise = match promise {
            "order" => "order only (--engine jbd2-nobarrier); durable later",
            _ => "durability",
        };
        let line = told.lines().find(|line| line.starts_with("fsync promises")).unwrap();
        assert!(line.ends_with(promise), "{line}");
        drop(file);
        place.end();
    }
    let (image, root) = (place.path().join("a.img"), place.mountpoint());
    works(&["mkfs", image.to_str().unwrap(), "--size", "64M"]);
    for (engine, words) in [
        ("prefix", "order of receipt"),
        ("jbd2-nobarrier", "needs a volume"),
        ("dual", "engine jbd2"),
        ("flush-ahead", "packed writes"),
    ] {
        fails(&["mount", "--engine", engine, image.to_str().unwrap(), root.to_str().unwrap()], &[words]);
    }
}

/// A call that finds nothing to write commits with `--forced-commits`, and does not without.
#[test]
fn empty_commits_can_be_chosen() {
    if !mounts() {
        return;
    }
    let place = Place::with_volume("256M");
    for (options, forced) in [(vec![], 0), (vec!["--forced-commits"], 10)] {
        let root = place.mount(&options);
        let file = File::create(root.join("file")).unwrap();
        file.write_all_at(&[1; 4096], 0).unwrap();
        file.sync_all().unwrap();
        let commits = || place.status()["commits"].as_u64().unwrap();
        let before = commits();
        (0..10).for_each(|_| file.sync_all().unwrap());
        assert_eq!(commits() - before, forced, "{options:?}");
        drop(file);
        place.end();
    }
}

#[test]
fn a_journal_mode_can_be_chosen_and_a_status_says_which() {
    if !mounts() {
        return;
    }
    let place = Place::with_volume("256M");
    for mode in ["ordered", "data", "writeback", "soj", "sdj"] {
        let root = place.mount(&["--journal", mode]);
        fs::write(root.join(mode), [1; 10_000]).unwrap();
        assert_eq!(place.status()["journal"], mode);
        let told = works(&["status", root.to_str().unwrap()]);
        let line = told.lines().find(|line| line.starts_with("journal mode")).unwrap();
        assert!(line.ends_with(mode), "{line}");
        place.end();
    }
    let (image, root) = (place.path().join("a.img"), place.mountpoint());
    works(&["mkfs", image.to_str().unwrap(), "--size", "64M"]);
    let before = fs::read(&image).unwrap();
    for (mode, instead) in [("soj", "the mode ordered in place of soj"), ("sdj", "data in place of sdj")] {
        let words = ["has no share command", instead];
        fails(&["mount", "--journal", mode, image.to_str().unwrap(), root.to_str().unwrap()], &words);
    }
    assert!(fs::read(&image).unwrap() == before, "a refused mount has written");
    // A drive of memory that has the command.
    let profile = include_str!("../../flash/profiles/nvme.toml");
    let shares = profile.replacen("\nshare = { value = 0,", "\nshare = { value = 64,", 1);
    assert_ne!(shares, profile);
    let device = place.path().join("shares.toml");
    fs::write(&device, shares).unwrap();
    for mode in ["soj", "sdj"] {
        let device = device.to_str().unwrap();
        works(&["mount", "--device", device, "--size", "256M", root.to_str().unwrap(), "--journal", mode]);
        for nth in 0..2000 {
            fs::write(root.join(format!("{nth}")), [1; 10_000]).unwrap();
        }
        let status = place.status();
        assert_eq!(status["journal"], mode);
        assert!(mode == "soj" || status["checkpoints"].as_u64() > Some(0), "{status}");
        place.umount();
    }
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
        let before = flushes(&place);
        for nth in 0..10 {
            file.write_all_at(&[1; 4096], nth * 4096).unwrap();
            file.sync_all().unwrap();
        }
        flushes(&place) - before
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
    place.end();
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
    place.umount();
}

#[test]
fn a_call_that_orders_saves_a_flush() {
    if !mounts() {
        return;
    }
    let place = Place::with_volume("256M");
    let root = place.mount(&[]);
    let counted = || {
        let status = place.status();
        ["flushes", "flushes_saved", "calls_durable", "calls_ordered"]
            .map(|name| status[name].as_u64().unwrap())
    };
    assert_eq!(counted(), [0, 0, 0, 0], "mounting counts as no program's call");
    let file = File::create(root.join("file")).unwrap();
    file.write_all_at(b"safe", 0).unwrap();
    file.sync_all().unwrap();
    setxattr(root.join("file"), "user.weir.sync", b"order", XattrFlags::empty()).unwrap();
    file.write_all_at(b"first", 0).unwrap();
    file.sync_all().unwrap();
    assert_eq!(counted(), [1, 1, 1, 1]);
    drop(file);
    place.umount();
}

#[test]
fn writes_in_place_are_ordered_for_who_asks_for_it() {
    if !mounts() {
        return;
    }
    let place = Place::with_volume("256M");
    let root = place.mount(&[]);
    let ordered = || place.status()["calls_ordered"].as_u64().unwrap();
    let path = root.join("file");
    let file = File::create(&path).unwrap();
    file.write_all_at(&[1; 8192], 0).unwrap();
    file.write_all_at(&[2; 4096], 0).unwrap();
    assert_eq!(ordered(), 0);
    assert!(!weir::order_writes(File::open(&path).unwrap().as_raw_fd()), "it is not open for writing");
    assert!(weir::order_writes(file.as_raw_fd()));
    file.write_all_at(&[3; 4096], 0).unwrap();
    file.write_all_at(b"less than a page", 5000).unwrap();
    // The kernel makes two of a write whose bytes it has to read from the disk.
    let in_place = ordered();
    assert!((2..=4).contains(&in_place), "{in_place}");
    file.write_all_at(&[4; 4096], 8192).unwrap();
    assert_eq!(ordered(), in_place, "it became longer");
    let other = File::options().write(true).open(&path).unwrap();
    other.write_all_at(&[5; 4096], 0).unwrap();
    assert_eq!(ordered(), in_place, "the other descriptor has not asked");
    drop((file, other));
    place.umount();
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
    place.umount();
}

/// `fbarrier` orders what is known about a file, too, as `fsync` would make it durable.
#[test]
fn a_barrier_orders_what_is_known_about_a_file() {
    if !mounts() {
        return;
    }
    let place = Place::with_volume("64M");
    let mut server = place.serve();
    let root = place.mountpoint();
    let [first, later] = ["first", "later"].map(|name| {
        let file = File::create(root.join(name)).unwrap();
        file.write_all_at(&[1; 4096], 0).unwrap();
        file.sync_all().unwrap();
        file
    });
    first.set_permissions(Permissions::from_mode(0o421)).unwrap();
    assert_eq!(weir::fbarrier(first.as_raw_fd()), 0);
    // In place, so that it takes no commit of its own.
    later.write_all_at(&[2; 4096], 0).unwrap();
    later.sync_data().unwrap();
    server.kill();
    drop((first, later));
    place.unmount();
    place.mount(&[]);
    assert_eq!(fs::read(root.join("later")).unwrap(), [2; 4096]);
    assert_eq!(fs::metadata(root.join("first")).unwrap().permissions().mode() & 0o777, 0o421);
    place.end();
}

/// A direct write to a file that is open with O_SYNC is durable with its times, and with O_DSYNC without them.
#[test]
fn direct_writes_with_o_sync_keep_their_time() {
    if !mounts() {
        return;
    }
    let place = Place::with_volume("64M");
    let mut server = place.serve();
    let path = place.mountpoint().join("file");
    let file = File::create(&path).unwrap();
    file.write_all_at(&[1; 4096], 0).unwrap();
    file.set_times(FileTimes::new().set_modified(UNIX_EPOCH)).unwrap();
    file.sync_all().unwrap();
    let how = ["if=/dev/zero", "bs=4096", "count=1", "conv=notrunc", "oflag=direct,sync", "status=none"];
    runs(Command::new("dd").args(how).arg(format!("of={}", path.display())));
    let written = file.metadata().unwrap().modified().unwrap();
    assert!(written > UNIX_EPOCH);
    server.kill();
    drop(file);
    place.unmount();
    place.mount(&[]);
    assert_eq!(fs::read(&path).unwrap(), [0; 4096]);
    assert_eq!(fs::metadata(&path).unwrap().modified().unwrap(), written);
    place.end();
}

/// What was last said of an open file holds: by the ioctl, by setting the attribute or by removing it.
#[test]
fn the_last_word_on_what_fsync_promises_holds() {
    if !mounts() || !is_there("python3") {
        return;
    }
    let place = Place::with_volume("64M");
    let root = place.mount(&[]);
    let script = r#"
import errno, fcntl, json, os, struct
SET_SYNC = 0x40045703
def flushes(): return json.loads(os.getxattr(".", "user.weir.status"))["flushes"]
def cost(fd):
    before = flushes()
    for at in range(10):
        os.pwrite(fd, b"x" * 4096, at * 4096)
        os.fsync(fd)
    return "durable" if flushes() - before >= 10 else "order"
fd = os.open("file", os.O_RDWR | os.O_CREAT)
os.setxattr("file", "user.weir.sync", b"durable")
fcntl.ioctl(fd, SET_SYNC, struct.pack("I", 1)); print(cost(fd))
os.removexattr("file", "user.weir.sync"); print(cost(fd))
fcntl.ioctl(fd, SET_SYNC, struct.pack("I", 1)); print(cost(fd))
os.setxattr("file", "user.weir.sync", b"durable"); print(cost(fd))
try: fcntl.ioctl(os.open("file", os.O_RDONLY), SET_SYNC, struct.pack("I", 1))
except OSError as error: print(errno.errorcode[error.errno])
for mode in 3, 2:
    try: fcntl.ioctl(fd, SET_SYNC, struct.pack("I", mode))
    except OSError as error: print(errno.errorcode[error.errno])
print(cost(fd))
"#;
    let told = runs(Command::new("python3").args(["-c", script]).current_dir(&root));
    let words: Vec<&str> = told.lines().collect();
    assert_eq!(words, ["order", "durable", "order", "durable", "EBADF", "EINVAL", "ENOTSUP", "durable"]);
    place.end();
}

/// What one process says of a file by ioctls, and what others find, where the kernel tells neither of open nor of close.
const CLAIMS: &str = r#"
import fcntl, json, os, struct, sys
SET_SYNC, ORDER_WRITES, BEGIN = 0x40045703, 0x5704, 0x5707
status = lambda: json.loads(os.getxattr(".", "user.weir.status"))
def cost(fd):
    before = status()["flushes"]
    for at in range(10):
        os.pwrite(fd, b"x" * 4096, at * 4096)
        os.fsync(fd)
    return "durable" if status()["flushes"] - before >= 10 else "order"
def ordered(fd):
    before = status()["calls_ordered"]
    os.pwrite(fd, b"y" * 4096, 0)
    return status()["calls_ordered"] - before
fd = os.open("file", os.O_RDWR)
if sys.argv[1] == "ask":
    print(cost(fd), ordered(fd), os.pread(os.open("atomic", os.O_RDONLY), 3, 0).decode(), flush=True)
elif sys.argv[1] == "say":
    fcntl.ioctl(fd, SET_SYNC, struct.pack("I", 1)); fcntl.ioctl(fd, ORDER_WRITES)
    # It is the process that counts, and not the descriptor.
    os.close(fd); fd = os.open("file", os.O_RDWR)
    other = os.open("atomic", os.O_RDWR); fcntl.ioctl(other, BEGIN); os.pwrite(other, b"new", 0); os.close(other)
    print(cost(fd), ordered(fd), flush=True)
    sys.stdin.read()
else:
    os.setgroups([]); os.setgid(65534); os.setuid(65534)
    told = []
    for name, call in (("mine", ORDER_WRITES), ("mine", BEGIN)):
        try: told.append(fcntl.ioctl(os.open(name, os.O_RDONLY), call))
        except OSError as error: told.append(error.strerror)
    print(told)
"#;

#[test]
fn what_a_process_says_of_a_file_ends_with_the_process() {
    if !mounts() || !is_there("python3") || !rustix::process::geteuid().is_root() {
        return;
    }
    let place = Place::with_volume("64M");
    let root = place.mount(&["--allow-other", "--no-open-requests"]);
    for name in ["file", "atomic", "mine"] {
        fs::write(root.join(name), "old").unwrap();
    }
    setxattr(root.join("atomic"), "user.weir.atomic", b"1", XattrFlags::empty()).unwrap();
    let python = |what: &str| {
        let mut command = Command::new("python3");
        command.args(["-c", CLAIMS, what]).current_dir(&root);
        command
    };
    assert_eq!(runs(&mut python("ask")), "durable 0 old\n");
    let mut said = python("say").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut told = [0; 8];
    said.stdout.as_mut().unwrap().read_exact(&mut told).unwrap();
    assert_eq!(&told, b"order 1\n");
    // For other processes, writes are ordered, `fsync` is durable, and the update can be read.
    assert_eq!(runs(&mut python("ask")), "durable 1 new\n");
    said.kill().unwrap();
    said.wait().unwrap();
    wait_until("the update is taken back", || fs::read(root.join("atomic")).unwrap() == b"old");
    assert_eq!(runs(&mut python("ask")), "durable 0 old\n");
    // A file that is deleted keeps no space, though the process lives that has said something of it.
    let many = r#"
import fcntl, os
for nth in range(40):
    fd = os.open("gone", os.O_RDWR | os.O_CREAT | os.O_EXCL); fcntl.ioctl(fd, 0x5704)
    os.write(fd, bytes(4 << 20)); os.close(fd); os.unlink("gone")
print("done")
"#;
    assert_eq!(runs(Command::new("python3").args(["-c", many]).current_dir(&root)), "done\n");
    assert_eq!(runs(&mut python("strange")), "['Bad file descriptor', 'Bad file descriptor']\n");
    place.umount();
}

#[test]
fn a_barrier_for_the_tree_flushes_nothing() {
    if !mounts() {
        return;
    }
    let place = Place::with_volume("256M");
    for options in [&[][..], &["--writeback-cache"], &["--moment", "100ms"]] {
        let root = place.mount(options);
        let mut file = File::create(root.join("file")).unwrap();
        file.sync_all().unwrap();
        let before = flushes(&place);
        for nth in 0..20 {
            file.write_all(&[nth; 3000]).unwrap();
            fs::write(root.join(format!("{nth}")), [nth; 100]).unwrap();
            works(&["barrier", root.to_str().unwrap()]);
        }
        let since = flushes(&place) - before;
        assert!(since <= 1, "{options:?}: {since} flushes for 20 barriers");
        works(&["barrier", root.join("file").to_str().unwrap()]);
        drop(file);
        place.umount();
        place.check();
    }
    fails(&["barrier", place.path().to_str().unwrap()], &["no filesystem of Weir is mounted"]);
}

/// Makes pages of a file dirty that the kernel keeps, orders the tree, and makes another file durable.
const KEPT_PAGES: &str = r#"
import mmap, os, subprocess, sys
root, weir, mapped = sys.argv[1], sys.argv[2], sys.argv[3] == "mapped"
PAGES = 6000
kept = os.open(root + "/kept", os.O_RDWR | os.O_CREAT)
os.truncate(kept, PAGES * 8192); os.fsync(kept)
mapping = mmap.mmap(kept, PAGES * 8192) if mapped else None
for page in range(PAGES):
    if mapped: mapping[page * 8192:page * 8192 + 4] = b"kept"
    else: os.pwrite(kept, b"kept", page * 8192)
subprocess.run([weir, "barrier", root], check=True)
later = os.open(root + "/later", os.O_RDWR | os.O_CREAT)
os.write(later, b"later"); os.fsync(later)
print("durable", flush=True)
sys.stdin.read()
"#;

#[test]
fn a_barrier_for_the_tree_takes_what_the_kernel_keeps() {
    if !mounts() || !is_there("python3") {
        return;
    }
    for (options, how) in [(&[][..], "mapped"), (&["--writeback-cache"], "written")] {
        let place = Place::with_volume("256M");
        let mut server = place.serve_as(options);
        let root = place.mountpoint();
        let mut program = Command::new("python3");
        program.args(["-c", KEPT_PAGES, root.to_str().unwrap()]).arg(weir_program()).arg(how);
        let mut program = program.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut told = [0; 7];
        program.stdout.as_mut().unwrap().read_exact(&mut told).unwrap();
        server.kill();
        program.kill().unwrap();
        program.wait().unwrap();
        place.unmount();
        let root = place.mount(&[]);
        assert_eq!(fs::read(root.join("later")).unwrap(), b"later");
        let kept = fs::read(root.join("kept")).unwrap();
        let missing = kept.chunks(8192).filter(|page| !page.starts_with(b"kept")).count();
        assert_eq!(missing, 0, "{how}");
        place.umount();
        place.check();
    }
}
