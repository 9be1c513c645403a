//! Atomic files on a mount: the attribute, the library's calls, and what is left when a program or the mount dies.
//! Where FUSE is not to be had, these tests say that they were skipped.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use std::fs::{self, File, Permissions};
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::{FileExt as _, PermissionsExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::support::{self, Place, is_there, library, mounts, of_project, runs, wait_until};
use rustix::fs::{XattrFlags, getxattr, listxattr, removexattr, setxattr};
use rustix::io::Errno;

const NAME: &str = "user.weir.atomic";

fn set(path: &Path, value: &str) -> Result<(), Errno> {
    setxattr(path, NAME, value.as_bytes(), XattrFlags::empty())
}

fn is_atomic(path: &Path) -> bool {
    getxattr(path, NAME, &mut [0; 8][..]) == Ok(1)
}

#[test]
fn a_program_in_c_changes_two_files_as_one() {
    if !mounts() || !is_there("cc") {
        return;
    }
    let place = Place::with_volume("256M");
    let program = place.path().join("atomic");
    let built = library("libweir.so").parent().unwrap().to_owned();
    let mut compile = Command::new("cc");
    compile.args(["-std=gnu11", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-I"]);
    compile.arg(of_project("crates/capi/include")).arg(of_project("examples/atomic.c")).arg("-L").arg(&built);
    runs(compile.args(["-lweir", "-o"]).arg(&program));
    let mut root = place.mount(&[]);
    let run = |directory: &Path| {
        let mut command = Command::new(&program);
        command.arg(directory).env("LD_LIBRARY_PATH", &built);
        command
    };
    assert_eq!(runs(&mut run(&root)), "from:       60\n");
    let elsewhere = run(place.path()).output().unwrap();
    let told = support::text(&elsewhere.stderr);
    assert!(told.contains("not supported"), "{told}");
    place.umount();
    root = place.mount(&[]);
    let [from, to] = ["from", "to"].map(|name| fs::read_to_string(root.join(name)).unwrap());
    assert_eq!((from.trim(), to.trim()), ("60", "40"));
    assert!(is_atomic(&root.join("to")), "it stays");
    place.umount();
    place.check();
}

#[test]
fn the_attribute_is_the_owners_and_is_handed_down() {
    if !mounts() || !is_there("python3") {
        return;
    }
    let place = Place::for_everybody();
    support::works(&["mkfs", "--volume", place.volume().to_str().unwrap(), "--size", "64M"]);
    let root = place.mount(&["--allow-other"]);
    let file = root.join("ordinary");
    fs::write(&file, "x").unwrap();
    fs::set_permissions(&file, Permissions::from_mode(0o666)).unwrap();
    assert_eq!((set(&file, "yes"), is_atomic(&file)), (Err(Errno::INVAL), false));
    set(&file, "1").unwrap();
    assert!(is_atomic(&file));
    assert_eq!(listxattr(&file, &mut [0; 100][..]), Ok(0), "copies do not have it");
    removexattr(&file, NAME).unwrap();
    assert_eq!((removexattr(&file, NAME), is_atomic(&file)), (Err(Errno::NODATA), false));
    fs::create_dir(root.join("d")).unwrap();
    set(&root.join("d"), "1").unwrap();
    fs::create_dir(root.join("d/e")).unwrap();
    fs::write(root.join("d/e/file"), "atomic").unwrap();
    assert!(is_atomic(&root.join("d/e/file")));
    let script = "import os\ntry: os.setxattr('ordinary', 'user.weir.atomic', b'1')\nexcept OSError as e: print(e.errno)";
    let mut stranger = Command::new("python3");
    assert_eq!(runs(stranger.args(["-c", script]).current_dir(&root).uid(65534).gid(65534)), "1\n");
    chown(&file, Some(65534), Some(65534)).unwrap();
    let mut owner = Command::new("python3");
    assert_eq!(runs(owner.args(["-c", script]).current_dir(&root).uid(65534).gid(65534)), "");
    place.umount();
}

/// What a program does that is killed in the middle of an update.
const KILLED: &str = r#"
import fcntl, os, sys
fd = os.open('file', os.O_RDWR)
fcntl.ioctl(fd, 0x5707)
os.pwrite(fd, b'2' * 12000, 0)
other = os.open('file', os.O_RDWR)
try: os.fsync(other)
except OSError as e: print(e.errno, flush=True)
sys.stdin.read()
"#;

#[test]
fn an_update_of_a_program_that_dies_is_taken_back() {
    if !mounts() || !is_there("python3") {
        return;
    }
    let place = Place::with_volume("64M");
    let root = place.mount(&[]);
    let path = root.join("file");
    fs::write(&path, "1".repeat(8000)).unwrap();
    set(&path, "1").unwrap();
    let mut program = Command::new("python3");
    let program =
        program.args(["-c", KILLED]).current_dir(&root).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut running = program.spawn().unwrap();
    let mut told = String::new();
    BufReader::new(running.stdout.take().unwrap()).read_line(&mut told).unwrap();
    assert_eq!(told, "16\n", "fsync is refused while the update is open: EBUSY");
    assert_eq!(fs::read(&path).unwrap(), b"2".repeat(12000), "other programs see it");
    running.kill().unwrap();
    running.wait().unwrap();
    wait_until("the update is taken back", || fs::read(&path).unwrap() == b"1".repeat(8000));
    place.umount();
}

#[test]
fn a_mount_that_dies_leaves_the_last_update_that_was_synchronised() {
    if !mounts() {
        return;
    }
    let place = Place::with_volume("64M");
    let mut server = place.serve();
    let path = place.mountpoint().join("file");
    fs::write(&path, "").unwrap();
    set(&path, "1").unwrap();
    let file = File::options().read(true).write(true).open(&path).unwrap();
    for (block, byte) in [(0, 1), (5, 1), (2, 1)] {
        file.write_all_at(&[byte; 4096], block * 4096).unwrap();
    }
    file.sync_all().unwrap();
    for (block, byte) in [(0, 2), (9, 2)] {
        file.write_all_at(&[byte; 4096], block * 4096).unwrap();
    }
    // It makes everything else durable.
    setxattr(place.mountpoint(), "user.weir.status", b"sync", XattrFlags::empty()).unwrap();
    server.kill();
    drop(file);
    place.unmount();
    let root = place.mount(&[]);
    let left = fs::read(root.join("file")).unwrap();
    assert_eq!((left.len(), left[0], left[2 * 4096]), (6 * 4096, 1, 1));
    place.umount();
}

/// Changes a page through a shared mapping, and another by a write; `msync` makes one change of both.
const MAPS: &str = r#"
import mmap, os, sys
fd = os.open('file', os.O_RDWR)
mapped = mmap.mmap(fd, 8192)
mapped[0:1] = b'2'
os.pwrite(fd, b'2', 4096)
if len(sys.argv) > 1: mapped.flush()
print('written', flush=True)
sys.stdin.read()
"#;

#[test]
fn msync_ends_an_update_and_nothing_less_does() {
    if !mounts() || !is_there("python3") {
        return;
    }
    for (synchronises, left) in [(false, b'1'), (true, b'2')] {
        let place = Place::with_volume("64M");
        let mut server = place.serve();
        let root = place.mountpoint();
        let file = File::create(root.join("file")).unwrap();
        file.write_all_at(&[b'1'; 8192], 0).unwrap();
        file.sync_all().unwrap();
        drop(file);
        set(&root.join("file"), "1").unwrap();
        let mut program = Command::new("python3");
        program.args(["-c", MAPS]).args(synchronises.then_some("sync")).current_dir(&root);
        let mut running = program.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut told = String::new();
        BufReader::new(running.stdout.take().unwrap()).read_line(&mut told).unwrap();
        assert_eq!(told, "written\n");
        // It makes everything durable but updates.
        setxattr(&root, "user.weir.status", b"sync", XattrFlags::empty()).unwrap();
        server.kill();
        running.kill().unwrap();
        running.wait().unwrap();
        place.unmount();
        let found = fs::read(place.mount(&[]).join("file")).unwrap();
        assert_eq!((found[0], found[4096]), (left, left), "msync: {synchronises}");
        place.umount();
    }
}
