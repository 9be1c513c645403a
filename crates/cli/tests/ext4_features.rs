//! What programs find on ext4 beyond the usual calls, and find on a mount: an overlay's upper directory, files without a
//! name, birth times, times of access, and file handles that outlive the kernel's cache.
//! Where FUSE is not to be had, these tests say that they were skipped.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::support::overlay::Overlay;
use crate::support::{self, Place, e2fsck_judges, is_so_within, mounts, runs, system, text, wait_until};
use rustix::fs::{AtFlags, CWD, OFlags, RenameFlags, getxattr, linkat, renameat_with};

/// The name that a program gets at a file that it has open without one.
fn own_name(file: &File) -> PathBuf {
    format!("/proc/self/fd/{}", file.as_raw_fd()).into()
}

fn unnamed(directory: &Path) -> File {
    let mut options = File::options();
    options.read(true).write(true).mode(0o640);
    options.custom_flags(OFlags::TMPFILE.bits().cast_signed()).open(directory).unwrap()
}

fn give_name(file: &File, name: &Path) -> Result<(), rustix::io::Errno> {
    linkat(CWD, own_name(file), CWD, name, AtFlags::SYMLINK_FOLLOW)
}

fn is_whiteout(path: &Path) -> bool {
    let found = fs::symlink_metadata(path).unwrap();
    found.file_type().is_char_device() && found.rdev() == 0
}

/// What changes in an overlay is in its upper directory, whiteouts and opaque directories with it.
#[test]
fn an_overlay_has_its_upper_directory_on_a_mount() {
    if !mounts() {
        return;
    }
    let place = Place::with_volume("64M");
    let (root, lower) = (place.mount(&[]), place.path().join("lower"));
    fs::create_dir_all(lower.join("directory")).unwrap();
    for name in ["changed", "removed", "moved", "directory/one", "directory/two"] {
        fs::write(lower.join(name), name.repeat(1000)).unwrap();
    }
    let merged = || place.path().join("merged");
    let Some(overlay) = Overlay::new(&lower, &root, &merged()) else { return };
    let at = |name: &str| merged().join(name);
    File::options().append(true).open(at("changed")).unwrap().write_all(b"and more").unwrap();
    fs::remove_file(at("removed")).unwrap();
    fs::rename(at("moved"), at("there")).unwrap();
    fs::write(at("made"), "new").unwrap();
    fs::remove_dir_all(at("directory")).unwrap();
    fs::create_dir(at("directory")).unwrap();
    fs::write(at("directory/three"), "three").unwrap();
    let look = || {
        let names = |directory: PathBuf| {
            let mut names: Vec<_> =
                fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name()).collect();
            names.sort();
            names
        };
        assert_eq!(names(merged()), ["changed", "directory", "made", "there"]);
        assert_eq!(names(at("directory")), ["three"]);
        assert_eq!(fs::read_to_string(at("changed")).unwrap(), "changed".repeat(1000) + "and more");
        assert_eq!(fs::read_to_string(at("there")).unwrap(), "moved".repeat(1000));
    };
    look();
    overlay.end();
    let upper = root.join("upper");
    assert!(is_whiteout(&upper.join("removed")) && is_whiteout(&upper.join("moved")));
    let mut opaque = [0; 1];
    assert_eq!(getxattr(upper.join("directory"), "trusted.overlay.opaque", &mut opaque[..]).unwrap(), 1);
    place.unmount();
    place.check();
    place.mount(&[]);
    let overlay = Overlay::new(&lower, &root, &merged()).unwrap();
    look();
    overlay.end();
    place.end();
    e2fsck_judges(&place);
}

#[test]
fn a_rename_may_leave_a_whiteout() {
    if !mounts() {
        return;
    }
    let place = Place::with_volume("64M");
    let root = place.mount(&[]);
    fs::write(root.join("old"), "content").unwrap();
    let (old, new) = (root.join("old"), root.join("new"));
    renameat_with(CWD, &old, CWD, &new, RenameFlags::WHITEOUT).unwrap();
    assert_eq!(fs::read(&new).unwrap(), b"content");
    assert!(is_whiteout(&old));
    assert_eq!(fs::metadata(&old).unwrap().permissions().mode() & 0o7777, 0);
    let both = RenameFlags::WHITEOUT | RenameFlags::EXCHANGE;
    assert_eq!(renameat_with(CWD, &old, CWD, &new, both).unwrap_err().raw_os_error(), 22, "EINVAL");
    place.end();
    e2fsck_judges(&place);
}

#[test]
fn a_file_without_a_name_is_linked_or_gone() {
    if !mounts() {
        return;
    }
    let place = Place::with_volume("64M");
    let root = place.mount(&[]);
    let mut file = unnamed(&root);
    file.write_all(&[7; 100_000]).unwrap();
    assert_eq!(fs::read_dir(&root).unwrap().count(), 1, "lost+found");
    assert_eq!((file.metadata().unwrap().nlink(), file.metadata().unwrap().mode() & 0o777), (0, 0o640));
    give_name(&file, &root.join("named")).unwrap();
    assert_eq!(file.metadata().unwrap().nlink(), 1);
    assert_eq!(fs::read(root.join("named")).unwrap(), [7; 100_000]);
    let exclusive = OFlags::TMPFILE | OFlags::EXCL;
    let mut options = File::options();
    let never = options.write(true).custom_flags(exclusive.bits().cast_signed()).open(&root).unwrap();
    assert_eq!(give_name(&never, &root.join("never")).unwrap_err().raw_os_error(), 2, "ENOENT");
    let open = [unnamed(&root), unnamed(&root)];
    drop((file, never, open));
    place.end();
    e2fsck_judges(&place);
}

/// The server is killed: what was linked and synchronised is there, and of the rest nothing.
#[test]
fn a_file_without_a_name_outlives_a_crash_only_with_one() {
    if !mounts() {
        return;
    }
    let place = Place::with_volume("64M");
    let mut server = place.serve();
    let root = place.mountpoint();
    let mut files: Vec<File> = (0..3).map(|_| unnamed(&root)).collect();
    for file in &mut files {
        file.write_all(&[7; 50_000]).unwrap();
        file.sync_all().unwrap();
    }
    give_name(&files[1], &root.join("named")).unwrap();
    files[1].sync_all().unwrap();
    server.kill();
    drop(files);
    runs(system("umount").arg("-l").arg(&root));
    let server = place.serve();
    assert_eq!(fs::read_dir(&root).unwrap().count(), 2, "and lost+found");
    assert_eq!(fs::read(root.join("named")).unwrap(), [7; 50_000]);
    place.umount();
    drop(server);
    place.check();
    e2fsck_judges(&place);
}

#[test]
#[expect(clippy::disallowed_methods, reason = "a date is compared with the machine's")]
fn a_file_knows_when_it_was_made() {
    if !mounts() {
        return;
    }
    let place = Place::with_volume("64M");
    let root = place.mount(&[]);
    let path = root.join("file");
    fs::write(&path, "first").unwrap();
    let made = fs::metadata(&path).unwrap().created().unwrap();
    assert!(made.elapsed().unwrap() < Duration::from_secs(60));
    pause();
    fs::write(&path, "second").unwrap();
    let found = fs::metadata(&path).unwrap();
    assert_eq!(found.created().unwrap(), made);
    assert!(found.modified().unwrap() > made);
    assert_ne!(runs(Command::new("stat").args(["-c", "%W"]).arg(&path)).trim(), "0");
    place.end();
    place.mount(&["--read-only"]);
    assert_eq!(fs::metadata(&path).unwrap().created().unwrap(), made);
    place.end();
}

/// Lets the clock that stamps inodes tick, and the server do what no call waits for.
fn pause() {
    is_so_within(Duration::from_millis(50), || false);
}

/// When a file was accessed, in nanoseconds.
fn accessed(path: &Path) -> i128 {
    let found = fs::symlink_metadata(path).unwrap();
    i128::from(found.atime()) * 1_000_000_000 + i128::from(found.atime_nsec())
}

/// What each of these ways to read does to the time of access of what was just changed.
#[test]
fn reading_is_noted_as_ext4_notes_it() {
    if !mounts() {
        return;
    }
    let place = Place::with_volume("64M");
    for (option, kept) in [("--relatime", true), ("--noatime", false)] {
        let root = place.mount(&[option]);
        let told = fs::read_to_string("/proc/self/mounts").unwrap();
        let line = told.lines().find(|line| line.contains(root.to_str().unwrap())).unwrap();
        assert!(line.contains(if kept { "relatime" } else { "noatime" }), "{line}");
        let at = |name: &str| root.join(option.trim_start_matches('-').to_owned() + name);
        fs::write(at("short"), "short").unwrap();
        // Pages that were written whole are in the kernel's cache: no request for them reaches the server.
        fs::write(at("cached"), [7; 8192]).unwrap();
        fs::create_dir(at("directory")).unwrap();
        std::os::unix::fs::symlink("target", at("link")).unwrap();
        let names = ["short", "cached", "directory", "link"].map(at);
        let before = names.each_ref().map(|path| accessed(path));
        pause();
        let quiet = |path| {
            let flags = OFlags::NOATIME.bits().cast_signed();
            let mut file = File::options().read(true).custom_flags(flags).open(path).unwrap();
            file.read_to_end(&mut Vec::new()).unwrap();
        };
        quiet(&names[0]);
        quiet(&names[1]);
        pause();
        assert_eq!(names.each_ref().map(|path| accessed(path)), before, "O_NOATIME");
        let read = || {
            fs::read(&names[0]).unwrap();
            fs::read(&names[1]).unwrap();
            assert_eq!(fs::read_dir(&names[2]).unwrap().count(), 0);
            fs::read_link(&names[3]).unwrap();
        };
        read();
        if !kept {
            pause();
            assert_eq!(names.each_ref().map(|path| accessed(path)), before);
            place.end();
            continue;
        }
        for (path, before) in names.iter().zip(before) {
            wait_until("its time of access is another one", || accessed(path) > before);
        }
        let now = names.each_ref().map(|path| accessed(path));
        pause();
        read();
        pause();
        assert_eq!(names.each_ref().map(|path| accessed(path)), now, "nothing has changed since");
        place.end();
        place.mount(&["--read-only"]);
        assert_eq!(names.each_ref().map(|path| accessed(path)), now, "kept");
        place.end();
    }
    e2fsck_judges(&place);
}

/// Takes file handles and opens what they stand for, by the two calls' numbers: the standard library has neither.
const HANDLES: &str = r#"
use strict; use Fcntl;
my ($take, $open) = `uname -m` =~ /x86_64/ ? (303, 304) : (264, 265);
my ($what, $path, $handle) = @ARGV;
if ($what eq 'take') {
    my ($bytes, $mount) = (pack('Ii', 128, 0) . "\0" x 128, pack('i', 0));
    my $name = $path . "\0";
    syscall($take, -100, $name, $bytes, $mount, 0) == 0 or die "name_to_handle_at: $!";
    print unpack('H*', substr($bytes, 0, 8 + unpack('I', $bytes)));
} else {
    sysopen(my $root, $path, O_RDONLY) or die $!;
    my $bytes = pack('H*', $handle);
    my $found = syscall($open, fileno($root), $bytes, O_RDONLY);
    if ($found < 0) { print 'errno ', $! + 0; exit; }
    open(my $file, '<&=', $found) or die $!;
    local $/;
    print readline($file) // '';
}
"#;

/// The kernel forgets what no program uses, and finds it by its handle all the same, as an NFS server asks it to; unless
/// it was deleted, also where another file has its number now.
#[test]
fn file_handles_outlive_the_kernels_cache() {
    const STALE: &str = "errno 116";
    if !mounts() || !support::is_there("perl") {
        return;
    }
    let place = Place::with_volume("64M");
    let root = place.mount(&[]);
    let perl = |arguments: &[&str]| runs(Command::new("perl").args(["-e", HANDLES]).args(arguments));
    let take = |path: &Path| perl(&["take", path.to_str().unwrap()]);
    let open = |handle: &str| perl(&["open", root.to_str().unwrap(), handle]);
    let forget = || fs::write("/proc/sys/vm/drop_caches", "2").unwrap();
    fs::create_dir_all(root.join("above/below")).unwrap();
    let paths = ["file", "above/below/file", "gone"].map(|name| root.join(name));
    for path in &paths {
        fs::write(path, path.to_str().unwrap()).unwrap();
    }
    let handles = paths.each_ref().map(|path| take(path));
    let directory = take(&root.join("above/below"));
    let number = fs::metadata(&paths[2]).unwrap().ino();
    forget();
    for (path, handle) in paths.iter().zip(&handles) {
        assert_eq!(open(handle), path.to_str().unwrap());
    }
    forget();
    assert_eq!(open(&directory), "", "a directory, with what is above it");
    fs::remove_file(&paths[2]).unwrap();
    assert_eq!(open(&handles[2]), STALE);
    forget();
    assert_eq!(open(&handles[2]), STALE);
    let reused = (0..100).any(|nth| {
        let next = root.join(format!("next {nth}"));
        fs::write(&next, "another").unwrap();
        fs::metadata(&next).unwrap().ino() == number
    });
    assert!(reused, "the number is used again");
    assert_eq!(open(&handles[2]), STALE);
    forget();
    assert_eq!(open(&handles[2]), STALE);
    // Numbers that no file has: the journal's, and one behind the last.
    for number in [8_u64, 1 << 30, 1 << 40] {
        let mut forged = handles[0].clone();
        forged.replace_range(16..32, &text(&hex(&number.to_ne_bytes())));
        assert_eq!(open(&forged), STALE, "{number}");
    }
    place.umount();
    place.mount(&[]);
    assert_eq!(open(&handles[1]), paths[1].to_str().unwrap(), "and the server");
    place.end();
}

fn hex(bytes: &[u8]) -> Vec<u8> {
    bytes.iter().flat_map(|byte| format!("{byte:02x}").into_bytes()).collect()
}
