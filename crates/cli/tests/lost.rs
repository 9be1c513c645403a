//! What `weir umount` says of pages that programs wrote through shared mappings and that could not be written.
//! Where FUSE or Python is not to be had, these tests say that they were skipped.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use std::fs::{self, File};
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::PathBuf;
use std::process::{Command, Output};

use crate::support::{Place, error_of, is_there, mounts, runs, told_by_status, weir, works};

/// Fills the filesystem, and writes into the hole that a file is through a mapping.
const LOSE: &str = r#"
def lose(fd):
    full = os.open("full", os.O_WRONLY | os.O_CREAT)
    try:
        while True: os.write(full, b"x" * 65536)
    except OSError: pass
    try:
        while True: os.write(full, b"x" * 512)
    except OSError: pass
    pages = mmap.mmap(fd, 1 << 20)
    pages[:] = b"y" * (1 << 20)
    return pages
"#;

/// Fills the filesystem, and writes into a hole of `file` through a mapping, of which no program is told what becomes.
const SCRIPT: &str = r#"
import mmap, os
fd = os.open("file", os.O_RDWR | os.O_CREAT)
os.ftruncate(fd, 1 << 20)
os.fsync(fd)
pages = lose(fd)
pages.close()
os.close(fd)
"#;

/// A full mount, with a file whose pages were lost.
fn with_lost_pages() -> Option<(Place, PathBuf)> {
    if !mounts() || !is_there("python3") {
        return None;
    }
    let place = Place::with_volume("32M");
    let root = place.mount(&[]);
    runs(Command::new("python3").args(["-c", &format!("{LOSE}{SCRIPT}")]).current_dir(&root));
    Some((place, root))
}

fn umount(place: &Place) -> Output {
    weir(&["umount", place.mountpoint().to_str().unwrap()]).output().unwrap()
}

#[track_caller]
fn umounts_in_silence(place: &Place) {
    let output = umount(place);
    assert!(output.status.success() && output.stderr.is_empty(), "{}", error_of(&output));
    place.check();
}

/// Says what is lost, each time, and stays mounted.
#[track_caller]
fn refuses(place: &Place, inode: u64) {
    for _ in 0..2 {
        let output = umount(place);
        let told = error_of(&output);
        assert_eq!(output.status.code(), Some(2), "{told}");
        for word in ["No space left", "1 of its files lack", &format!("-inum {inode}`")] {
            assert!(told.contains(word), "no {word:?} in {told}");
        }
        let status = place.status();
        // What F2FS tells has a place of its own.
        let status = status.get("f2fs").unwrap_or(&status);
        assert_eq!(status["incomplete_files"], 1);
        assert_eq!(status["incomplete_inode"], inode);
    }
    let told = told_by_status(&[place.mountpoint().to_str().unwrap()]);
    assert!(told.starts_with("health                  NOT HEALTHY: 1 file lacks"), "{told}");
    assert!(told.contains("1 file lacks"), "{told}");
}

/// Loses pages of a file without a name, looks at the status, and names the file: its `fsync` fails all the same.
const UNNAMED: &str = r#"
import errno, mmap, os
fd = os.open(".", os.O_RDWR | os.O_TMPFILE)
os.ftruncate(fd, 1 << 20)
pages = lose(fd)
try: pages.flush()
except OSError: pass
pages.close()
os.getxattr(".", "user.weir.status")
here = os.open(".", os.O_RDONLY)
# With a descriptor, it is the call that follows links.
os.link(f"/proc/self/fd/{fd}", "file", src_dir_fd=here, follow_symlinks=True)
# The first may be the kernel's own word.
for _ in range(3):
    try: os.fsync(fd)
    except OSError as error: assert error.errno == errno.ENOSPC, error
    else: raise SystemExit("fsync has forgotten it")
os.close(fd)
"#;

#[test]
fn a_file_without_a_name_that_gets_one_is_not_forgotten() {
    if !mounts() || !is_there("python3") {
        return;
    }
    let place = Place::with_volume("32M");
    let root = place.mount(&[]);
    runs(Command::new("python3").args(["-c", &format!("{LOSE}{UNNAMED}")]).current_dir(&root));
    refuses(&place, fs::metadata(root.join("file")).unwrap().ino());
    fs::remove_file(root.join("file")).unwrap();
    umounts_in_silence(&place);
}

#[test]
fn a_file_of_f2fs_that_lacks_pages_is_named() {
    if !mounts() || !is_there("python3") {
        return;
    }
    let place = Place::new();
    works(&["mkfs", "--volume", "--type", "f2fs", "--size", "64M", place.volume().to_str().unwrap()]);
    let root = place.mount(&[]);
    runs(Command::new("python3").args(["-c", &format!("{LOSE}{SCRIPT}")]).current_dir(&root));
    refuses(&place, fs::metadata(root.join("file")).unwrap().ino());
    fs::remove_file(root.join("file")).unwrap();
    umounts_in_silence(&place);
}

#[test]
fn of_a_file_that_was_deleted_nobody_misses_anything() {
    let Some((place, root)) = with_lost_pages() else { return };
    fs::remove_file(root.join("file")).unwrap();
    assert!(place.status()["mapped_writes_failed"].as_u64().unwrap() > 0);
    assert_eq!(place.status()["incomplete_files"], 0);
    umounts_in_silence(&place);
}

/// Nor does the next file, which gets the number of that one.
#[test]
fn a_new_file_with_the_number_of_one_that_was_deleted_lacks_nothing() {
    let Some((place, root)) = with_lost_pages() else { return };
    let number = root.join("file").metadata().unwrap().ino();
    fs::remove_file(root.join("file")).unwrap();
    fs::remove_file(root.join("full")).unwrap();
    // FORGET comes a moment after the removal. A call that asks for free space waits for it.
    rustix::fs::statvfs(&root).unwrap();
    let new = File::create(root.join("new")).unwrap();
    assert_eq!(new.metadata().unwrap().ino(), number);
    new.write_all_at(b"new", 0).unwrap();
    new.sync_all().unwrap();
    drop(new);
    umounts_in_silence(&place);
}

#[test]
fn what_a_file_lacks_is_told_until_it_is_written_again() {
    let Some((place, root)) = with_lost_pages() else { return };
    let file = File::options().write(true).open(root.join("file")).unwrap();
    let inode = file.metadata().unwrap().ino();
    refuses(&place, inode);
    fs::remove_file(root.join("full")).unwrap();
    file.write_all_at(&[b'z'; 1 << 19], 0).unwrap();
    refuses(&place, inode);
    file.write_all_at(&[b'z'; 1 << 19], 1 << 19).unwrap();
    drop(file);
    umounts_in_silence(&place);
}

#[test]
fn what_is_cut_off_is_not_lost() {
    let Some((place, root)) = with_lost_pages() else { return };
    refuses(&place, root.join("file").metadata().unwrap().ino());
    File::options().write(true).open(root.join("file")).unwrap().set_len(0).unwrap();
    umounts_in_silence(&place);
}

/// The kernel takes a write of pages for done, however little of it was: where only a part finds room, that is an error
/// all the same, and `msync` says so.
#[test]
fn pages_of_which_a_part_finds_room_are_an_error() {
    let Some((place, root)) = with_lost_pages() else { return };
    fs::remove_file(root.join("file")).unwrap();
    let script = r#"
import errno, mmap, os
full = os.open("full", os.O_WRONLY)
os.ftruncate(full, os.fstat(full).st_size - (256 << 10))
os.fsync(full)
fd = os.open("part", os.O_RDWR | os.O_CREAT)
os.ftruncate(fd, 1 << 20)
pages = mmap.mmap(fd, 1 << 20)
pages[:] = b"y" * (1 << 20)
try: pages.flush(); print("done")
except OSError as error: print(errno.errorcode[error.errno])
print(0 < os.fstat(fd).st_blocks * 512 < 1 << 20)
"#;
    let told = runs(Command::new("python3").args(["-c", script]).current_dir(&root));
    assert_eq!(told, "ENOSPC\nTrue\n");
    refuses(&place, root.join("part").metadata().unwrap().ino());
    fs::remove_file(root.join("part")).unwrap();
    umounts_in_silence(&place);
}

/// The user can end it all the same.
#[test]
fn the_systems_umount_ends_it() {
    let Some((place, root)) = with_lost_pages() else { return };
    refuses(&place, root.join("file").metadata().unwrap().ino());
    place.end();
}
