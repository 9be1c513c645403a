//! Who may do what on a mount, and what a file loses when a user changes it.
//! Where FUSE is not to be had, these tests say that they were skipped.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs::{self, Permissions};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::support::kernel_mount::KernelMount;
use crate::support::overlay::Overlay;
use crate::support::{Place, error_of, is_there, mounts, runs, system, works};
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

/// A write by another user than the superuser takes privileges from a file, and every process sees that at once.
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

/// The number of a file that has gone is soon another file's, to which a process that kept the old one has no right.
#[test]
fn a_process_that_kept_a_deleted_file_does_not_get_the_next_one() {
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
    // Just the name's: no program has it open, and no server that another test starts gets it.
    let kept = rustix::fs::open(root.join("gone"), OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).unwrap();
    fs::remove_file(root.join("gone")).unwrap();
    assert!((0..100).all(|nth| made(&format!("next {nth}")) != number), "the number is not free");
    assert_eq!(fs::read(format!("/proc/self/fd/{}", kept.as_raw_fd())).unwrap(), b"gone");
    drop(kept);
    // The kernel forgets the closed file some time later, and the server frees the number then.
    assert!((100..5_000).any(|nth| made(&format!("next {nth}")) == number), "the number is used again");
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
fn a_writer_outside_the_group_takes_set_group_id_away() {
    let Some((place, root)) = shared_mount() else { return };
    // The writer is of group 0.
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

/// A stranger's change of a file takes its set-ID bits away through an overlay, which sends it as its mounter. The
/// superuser's leaves them.
#[test]
fn changes_through_an_overlay_take_privileges_away() {
    if !mounts() {
        return;
    }
    for options in [&["--allow-other"][..], &["--allow-other", "--writeback-cache"]] {
        let place = Place::with_volume("64M");
        let root = place.mount(options);
        let (lower, merged) = (place.path().join("lower"), place.path().join("merged"));
        let Some(overlay) = Overlay::new(&lower, &root, &merged) else { return };
        for (call, line) in [
            ("write", "echo x 1<>$0 >&1"),
            ("append", "echo x >> $0"),
            ("empty", "echo x > $0"),
            ("truncate", "truncate -s 1 $0"),
            ("allocate", "fallocate -l 9000 $0"),
            ("direct", "dd if=/dev/zero of=$0 bs=4096 count=1 oflag=direct conv=notrunc status=none"),
        ] {
            for (user, left) in [("65534", 0o777), ("0", 0o6777)] {
                let path = merged.join(format!("{call}-{user}"));
                fs::write(&path, [1; 5000]).unwrap();
                fs::set_permissions(&path, Permissions::from_mode(0o6777)).unwrap();
                let mut change = system("setpriv");
                change.args(["--reuid", user, "--clear-groups", "sh", "-c", line]);
                // By the open descriptor's directory: others may not look into the place.
                runs(change.arg(format!("{call}-{user}")).current_dir(&merged));
                let mode = fs::metadata(&path).unwrap().permissions().mode() & 0o7777;
                assert_eq!(mode, left, "{call} by {user}, {options:?}");
            }
        }
        overlay.end();
        place.end();
    }
}

/// The program that changes files in every way that Linux has.
fn compile_change(place: &Place) -> PathBuf {
    let program = place.path().join("change");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/privileges/change.c");
    runs(
        Command::new("cc")
            .args(["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-o"])
            .args([&program, &source]),
    );
    program
}

/// What that program says of a directory, and of an overlay whose upper directory is there. None where the kernel has no overlays.
fn changes_below(program: &Path, root: &Path, place: &Path) -> Option<[String; 2]> {
    let open_to_all = |directory: &Path| {
        fs::create_dir_all(directory).unwrap();
        fs::set_permissions(directory, Permissions::from_mode(0o777)).unwrap();
    };
    let change = |directory: &Path| {
        open_to_all(directory);
        runs(Command::new(program).arg(directory))
    };
    fs::set_permissions(root, Permissions::from_mode(0o755)).unwrap();
    let plain = change(&root.join("plain"));
    let overlay = Overlay::new(&place.join("lower"), root, &place.join("merged"))?;
    open_to_all(overlay.merged());
    let merged = change(&overlay.merged().join("directory"));
    overlay.end();
    Some([plain, merged])
}

/// What a file loses by each way to change it, with each kind of user and cache, as the kernel's ext4 has it: set-ID bits and
/// capabilities. Without an overlay and with one.
#[test]
fn every_change_takes_the_privileges_away_that_ext4_takes() {
    if !mounts() || !is_there("cc") {
        return;
    }
    let place = Place::for_everybody();
    let program = compile_change(&place);
    let image = place.path().join("ext4");
    fs::File::create(&image).unwrap().set_len(64 << 20).unwrap();
    runs(system("mkfs.ext4").arg("-q").arg(&image));
    let Some(ext4) = KernelMount::new(&image, &place.path().join("beside")) else { return };
    let Some(expected) = changes_below(&program, ext4.root(), place.path()) else { return };
    assert!(expected.iter().all(|text| text.lines().count() == 39 * 27), "the table is whole");
    assert!(expected[0].contains("\nwrite by stranger, 6777: 1 0, 0777 plain\n"));
    if expected[0].contains("absent") {
        eprintln!("skipped: io_uring, which the kernel refuses");
    }
    // The kernel's FUSE refuses these.
    let is_refused = |line: &&str| line.starts_with("collapse") || line.starts_with("insert");
    works(&["mkfs", "--volume", place.volume().to_str().unwrap(), "--size", "64M"]);
    for arguments in [&["--allow-other"][..], &["--allow-other", "--writeback-cache"]] {
        let root = place.mount(arguments);
        let found = changes_below(&program, &root, place.path()).unwrap();
        for (expected, found) in expected.iter().zip(&found) {
            for (expected, found) in expected.lines().zip(found.lines()) {
                if is_refused(&found) {
                    assert!(found.contains("Operation not supported"), "{found}");
                } else {
                    assert_eq!(found, expected, "{arguments:?}");
                }
            }
            assert_eq!(found.lines().count(), expected.lines().count(), "{arguments:?}");
        }
        fs::remove_dir_all(root.join("plain")).unwrap();
        place.end();
    }
}
