//! Images that lack a feature, mounted for writing: each feature that is absent sets limits, and they are those that the
//! kernel's ext4 keeps. e2fsck judges what is left.
//! Where FUSE, mkfs.ext4 or loop devices are not to be had, these tests say that they were skipped.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{self, File, Permissions};
use std::os::unix::fs::{FileExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use rustix::io::Errno;

use crate::support::kernel_mount::KernelMount;
use crate::support::{Place, by_looking, error_of, mounts, run, runs, system, weir};

/// Bytes of an image of this test, 256 MiB; sparse.
const IMAGE_BYTES: u64 = 256 << 20;
/// The largest files of ext4: with extents alone, and with sectors that are counted in 32 bits.
const LARGEST: u64 = (1 << 44) - 4096;
const LARGEST_OF_32_BITS: u64 = (1 << 41) - 4096;

/// A new image made by mkfs.ext4 with these features; none if there is no such program.
fn image(place: &Place, name: &str, features: &str) -> Option<PathBuf> {
    let path = place.path().join(name);
    let file = File::create(&path).unwrap();
    file.set_len(IMAGE_BYTES).unwrap();
    file.set_permissions(Permissions::from_mode(0o600)).unwrap();
    let options = ["-q", "-b", "4096", "-I", "256", "-O", features].map(OsStr::new);
    let (made, told) = run("mkfs.ext4", &[&options[..], &[path.as_os_str()]].concat());
    if !made && told.contains("No such file") {
        eprintln!("skipped: {told}");
        return None;
    }
    assert!(made, "{features}: {told}");
    Some(path)
}

/// Runs `job` on the image by a mount of Weir.
fn by_weir<T>(place: &Place, image: &Path, job: impl FnOnce(&Path) -> T) -> T {
    let at = place.mountpoint();
    runs(weir(&["mount", image.to_str().unwrap(), at.to_str().unwrap()]).args::<_, &str>([]));
    let done = job(&at);
    runs(&mut weir(&["umount", at.to_str().unwrap()]));
    done
}

/// What came of a call: success, or an error.
type Outcome = Result<(), Option<Errno>>;

fn outcome<T>(done: std::io::Result<T>) -> Outcome {
    done.map(drop).map_err(|error| Errno::from_io_error(&error))
}

/// Tries the limits: each case by name, with what came of it.
fn try_limits(root: &Path) -> BTreeMap<String, Outcome> {
    let mut tried = BTreeMap::new();
    let mut note = |name: String, done: Outcome| {
        tried.insert(name, done);
    };
    let file =
        |name: &str| File::options().read(true).write(true).create(true).truncate(true).open(root.join(name));
    for (what, end) in [
        ("2 GiB and more", 1 << 32),
        ("the largest of 32 bits", LARGEST_OF_32_BITS),
        ("a block more", LARGEST_OF_32_BITS + 4096),
        ("3 TiB", 3 << 40),
        ("the largest", LARGEST),
        ("beyond the largest", LARGEST + 1),
    ] {
        note(format!("truncate to {what}"), outcome(file("cut").and_then(|file| file.set_len(end))));
        note(
            format!("write up to {what}"),
            outcome(file("long").and_then(|file| file.write_all_at(b"x", end - 1))),
        );
        let allocate = |file: File| {
            let flags = rustix::fs::FallocateFlags::empty();
            rustix::fs::fallocate(&file, flags, end - 4096, 4096).map_err(std::io::Error::from)
        };
        note(format!("allocate up to {what}"), outcome(file("space").and_then(allocate)));
    }
    for (what, bytes) in [("small", 10), ("large", 3000)] {
        let path = root.join(format!("attributes-{what}"));
        let value = vec![b'v'; bytes];
        let set = |_| {
            let flags = rustix::fs::XattrFlags::empty();
            rustix::fs::setxattr(&path, "user.a", &value, flags).map_err(std::io::Error::from)
        };
        note(format!("a {what} attribute"), outcome(File::create(&path).and_then(set)));
    }
    let directory = root.join("names");
    let names =
        |_| (0..2000).try_for_each(|name| File::create(directory.join(format!("{name:0>40}"))).map(drop));
    note("2,000 names in a directory".to_owned(), outcome(fs::create_dir(&directory).and_then(names)));
    let late = File::create(root.join("late")).and_then(|file| {
        let late = std::time::UNIX_EPOCH + std::time::Duration::from_secs(3 << 31);
        file.set_modified(late)?;
        let kept = file.metadata()?.modified()?;
        if kept == late { Ok(()) } else { Err(Errno::RANGE.into()) }
    });
    note("a time behind 2038".to_owned(), outcome(late));
    tried
}

/// The features that an image for writing may lack. Without `filetype`, `extent` or `has_journal` it is refused.
const MAY_BE_ABSENT: [&str; 13] = [
    "^huge_file",
    "^large_file",
    "^ext_attr",
    "^dir_index",
    "^dir_nlink",
    "^extra_isize",
    "^64bit",
    "^flex_bg",
    "^sparse_super,^resize_inode",
    "^resize_inode",
    "^metadata_csum",
    "^huge_file,^large_file,^ext_attr",
    "^metadata_csum,^64bit,^huge_file,^dir_nlink,^extra_isize",
];

#[test]
fn a_feature_that_is_absent_sets_the_limits_that_the_kernel_keeps() {
    if !mounts() {
        return;
    }
    for features in MAY_BE_ABSENT {
        let place = Place::new();
        let Some(ours) = image(&place, "ours", features) else { return };
        let Some(kernels) = image(&place, "kernels", features) else { return };
        let tried = by_weir(&place, &ours, try_limits);
        by_looking(ours.as_os_str()).unwrap_or_else(|told| panic!("{features}: {told}"));
        let Some(mounted) = KernelMount::new(&kernels, &place.mountpoint()) else { return };
        let expected = try_limits(mounted.root());
        drop(mounted);
        assert_eq!(tried, expected, "{features}");
        // The control: the feature does set a limit.
        let expected = if features.contains("^huge_file") { Err(Some(Errno::FBIG)) } else { Ok(()) };
        assert_eq!(tried["truncate to a block more"], expected, "{features}");
    }
}

/// Without `huge_file` an inode counts less than 2^32 sectors, so that a file of almost 2 TiB that is allocated whole finds
/// no room for the blocks of its extent tree in that count.
#[test]
fn the_sectors_of_a_file_fit_into_the_count_of_the_image() {
    if !mounts() {
        return;
    }
    let place = Place::new();
    let path = place.path().join("large");
    let file = File::create(&path).unwrap();
    file.set_len(5 << 39).unwrap();
    file.set_permissions(Permissions::from_mode(0o600)).unwrap();
    let options = ["-q", "-b", "4096", "-N", "5000", "-O", "^huge_file,sparse_super"].map(OsStr::new);
    let (made, told) = run("mkfs.ext4", &[&options[..], &[path.as_os_str()]].concat());
    if !made {
        eprintln!("skipped: {told}");
        return;
    }
    let told = by_weir(&place, &path, |root| {
        let file = File::create(root.join("whole")).unwrap();
        let flags = rustix::fs::FallocateFlags::empty();
        rustix::fs::fallocate(&file, flags, 0, LARGEST_OF_32_BITS)
    });
    assert_eq!(told, Err(Errno::FBIG));
    by_looking(path.as_os_str()).unwrap();
}

/// A journal that only Linux replays: while it holds something, `weir fsck` cannot judge; empty, it is no hindrance.
#[test]
fn a_journal_of_asynchronous_commits_is_replayed_by_linux_alone() {
    if !mounts() {
        return;
    }
    let place = Place::new();
    let Some(path) = image(&place, "asynchronous", "has_journal") else { return };
    let (at, copy) = (place.mountpoint(), place.path().join("cut"));
    // ext4 refuses asynchronous commits where data is ordered.
    let options = "data=writeback,journal_async_commit";
    let Some(mounted) = KernelMount::with_options(&path, &at, options) else { return };
    fs::write(at.join("file"), "content").unwrap();
    runs(system("sync").arg("-f").arg(at.join("file")));
    fs::write(at.join("second"), "content").unwrap();
    File::open(at.join("second")).unwrap().sync_all().unwrap();
    fs::copy(&path, &copy).unwrap();
    drop(mounted);
    let fsck = |path: &Path| weir(&["fsck", path.to_str().unwrap()]).output().unwrap();
    let cut = fsck(&copy);
    assert_eq!(cut.status.code(), Some(8), "{}", error_of(&cut));
    assert!(error_of(&cut).contains("journal_async_commit"), "{}", error_of(&cut));
    let whole = fsck(&path);
    assert_eq!(whole.status.code(), Some(0), "{}", error_of(&whole));
    let found = by_weir(&place, &path, |root| {
        fs::write(root.join("third"), "content").unwrap();
        fs::read_to_string(root.join("file")).unwrap()
    });
    assert_eq!(found, "content");
    by_looking(path.as_os_str()).unwrap();
    let Some(mounted) = KernelMount::new(&path, &at) else { return };
    assert_eq!(fs::read_to_string(at.join("third")).unwrap(), "content");
    drop(mounted);
}
