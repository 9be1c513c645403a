//! Filesystem images: filled and read by the program, and judged by e2fsck and by the kernel, which mounts them.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use crate::support::kernel_mount::KernelMount;
use crate::support::{self, weir_program};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{self, File, Permissions};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{FileExt as _, MetadataExt as _, PermissionsExt as _, symlink};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use rustix::buffer::spare_capacity;
use rustix::fs::{
    AtFlags, CWD, Timespec, Timestamps, XattrFlags, lgetxattr, llistxattr, lsetxattr, utimensat,
};

fn weir(directory: &Path, arguments: &[&str]) -> Output {
    Command::new(weir_program()).current_dir(directory).args(arguments).output().unwrap()
}

fn works(directory: &Path, arguments: &[&str]) -> Vec<u8> {
    let output = weir(directory, arguments);
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

/// The command ends with code 2, and with one line on standard error that holds all of `words`.
fn fails(directory: &Path, arguments: &[&str], words: &[&str]) {
    support::ends_with(support::weir(arguments).current_dir(directory), &[2], words);
}

fn directory() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

/// Runs another program; None, with a word on it, where it is not installed.
fn run(program: &str, arguments: &[&OsStr]) -> Option<Output> {
    let output = support::system(program).args(arguments).output();
    if output.is_err() {
        eprintln!("skipped: {program} is not installed");
    }
    output.ok()
}

/// Asserts that e2fsck has nothing to say against an image.
#[track_caller]
fn judge(image: &Path) {
    let Some(output) = run("e2fsck", &["-fn".as_ref(), image.as_os_str()]) else { return };
    let told = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && !told.contains("Fix?"), "{told}");
}

/// Makes files of every kind that take no root to make.
fn make_tree(root: &Path) {
    fs::create_dir_all(root.join("sub/deep")).unwrap();
    fs::create_dir(root.join("empty")).unwrap();
    let content: Vec<u8> =
        (0..3_000_000_u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    fs::write(root.join("large"), &content).unwrap();
    fs::write(root.join("none"), "").unwrap();
    fs::write(root.join(OsStr::from_bytes(b"odd \xFF\n name")), "odd").unwrap();
    fs::write(root.join("n".repeat(255)), "long").unwrap();
    let sparse = File::create(root.join("sparse")).unwrap();
    sparse.write_all_at(b"middle", 5_000_000).unwrap();
    sparse.set_len(20_000_001).unwrap();
    for nth in 0..1000 {
        fs::write(root.join(format!("sub/deep/file {nth}")), nth.to_string()).unwrap();
    }
    fs::hard_link(root.join("large"), root.join("sub/linked")).unwrap();
    symlink("../large", root.join("sub/short")).unwrap();
    symlink("x/".repeat(500), root.join("long")).unwrap();
    fs::set_permissions(root.join("none"), Permissions::from_mode(0o4751)).unwrap();
    fs::set_permissions(root.join("empty"), Permissions::from_mode(0o1777)).unwrap();
    for (name, attribute, value) in [
        ("large", "user.note", vec![b'n'; 10]),
        ("large", "user.much", vec![b'm'; 2500]),
        ("sub", "user.none", vec![]),
    ] {
        if let Err(error) = lsetxattr(root.join(name), attribute, &value, XattrFlags::empty()) {
            eprintln!("skipped: no attribute for {name}: {error}");
        }
    }
    let time = Timespec { tv_sec: 986_000_000, tv_nsec: 123_456_789 };
    let times = Timestamps { last_access: time, last_modification: time };
    for name in ["large", "sub", "sub/short"] {
        utimensat(CWD, root.join(name), &times, AtFlags::SYMLINK_NOFOLLOW).unwrap();
    }
}

/// The extended attributes of a file that are the user's.
fn attributes(path: &Path) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let mut names = Vec::with_capacity(1 << 16);
    if llistxattr(path, spare_capacity(&mut names)).is_err() {
        return BTreeMap::new();
    }
    let value = |name: &[u8]| {
        let mut value = Vec::with_capacity(1 << 16);
        lgetxattr(path, name, spare_capacity(&mut value)).unwrap();
        (name.to_vec(), value)
    };
    names.split(|&byte| byte == 0).filter(|name| name.starts_with(b"user.")).map(value).collect()
}

/// What is known of a file: mode, owner, group, links, size, time, content or target, and attributes.
type Known = (u32, u32, u32, u64, u64, (i64, i64), Vec<u8>, BTreeMap<Vec<u8>, Vec<u8>>);

/// All files below a directory.
fn files(root: &Path) -> BTreeMap<PathBuf, Known> {
    let mut found = BTreeMap::new();
    let mut pending = vec![root.to_owned()];
    while let Some(directory) = pending.pop() {
        for entry in fs::read_dir(&directory).unwrap() {
            let path = entry.unwrap().path();
            let metadata = fs::symlink_metadata(&path).unwrap();
            if path.ends_with("lost+found") {
                continue;
            }
            let content = match () {
                () if metadata.is_dir() => Vec::new(),
                () if metadata.is_symlink() => fs::read_link(&path).unwrap().as_os_str().as_bytes().to_vec(),
                () => fs::read(&path).unwrap(),
            };
            // The size and the links of a directory are its filesystem's business.
            let (links, size) = if metadata.is_dir() { (0, 0) } else { (metadata.nlink(), metadata.size()) };
            let time = (metadata.mtime(), metadata.mtime_nsec());
            let owner = (metadata.uid(), metadata.gid());
            let known = (metadata.mode(), owner.0, owner.1, links, size, time, content, attributes(&path));
            found.insert(path.strip_prefix(root).unwrap().to_owned(), known);
            if metadata.is_dir() {
                pending.push(path);
            }
        }
    }
    found
}

/// Two directories hold the same; only names are told if not.
#[track_caller]
fn same(one: &Path, other: &Path) {
    let (one, other) = (files(one), files(other));
    let differ = |path: &&PathBuf| one.get(*path) != other.get(*path);
    let different: Vec<&PathBuf> = one.keys().chain(other.keys()).filter(differ).collect();
    assert!(different.is_empty(), "{different:?}");
}

/// What a child that another test is starting does, too.
#[test]
fn what_is_in_use_for_a_moment_is_unmounted_in_the_end() {
    let directory = directory();
    let here = directory.path();
    works(here, &["mkfs", "a.img", "--size", "16M"]);
    let Some(mounted) = KernelMount::new(&here.join("a.img"), &here.join("mounted")) else { return };
    let mut user = Command::new("sleep").arg("1").current_dir(mounted.root()).spawn().unwrap();
    drop(mounted);
    user.wait().unwrap();
    assert!(!support::is_mountpoint(&here.join("mounted")));
}

#[test]
fn what_is_put_into_an_image_comes_out_again() {
    let directory = directory();
    let here = directory.path();
    make_tree(&here.join("tree"));
    works(here, &["mkfs", "a.img", "--size", "128M"]);
    works(here, &["put", "-r", "a.img", "tree", "/"]);
    judge(&here.join("a.img"));
    works(here, &["get", "-r", "a.img", "/", "all"]);
    same(&here.join("tree"), &here.join("all"));
    assert_eq!(works(here, &["cat", "a.img", "/sub/deep/file 7"]), b"7");
    assert_eq!(works(here, &["ls", "a.img", "/sub"]), b"deep\nlinked\nshort\n");
    let long = String::from_utf8(works(here, &["ls", "-l", "a.img", "sub"])).unwrap();
    assert!(long.contains("2001-03-31 00:53 linked\n") && long.contains("short -> ../large\n"), "{long}");
    // A file goes into a directory that is there, over a file, or to a new name; so out of the image.
    works(here, &["put", "a.img", "tree/none", "/empty"]);
    works(here, &["put", "a.img", "tree/sparse", "/none"]);
    works(here, &["put", "a.img", "tree/large", "/sub/new"]);
    works(here, &["put", "-r", "a.img", "tree/sub", "/empty/copy"]);
    assert_eq!(works(here, &["ls", "a.img", "/empty"]), b"copy\nnone\n");
    works(here, &["get", "a.img", "/none", "all/empty"]);
    works(here, &["get", "a.img", "/sub/new", "new"]);
    works(here, &["get", "-r", "a.img", "/empty/copy", "copy"]);
    assert_eq!(fs::read(here.join("all/empty/none")).unwrap(), fs::read(here.join("tree/sparse")).unwrap());
    assert_eq!(fs::read(here.join("new")).unwrap(), fs::read(here.join("tree/large")).unwrap());
    assert_eq!(files(&here.join("copy/deep")), files(&here.join("tree/sub/deep")));
    judge(&here.join("a.img"));
}

#[test]
fn what_is_damaged_is_told_and_the_rest_copied() {
    let directory = directory();
    let here = directory.path();
    fs::create_dir_all(here.join("tree/sub")).unwrap();
    for name in ["a", "sub/b", "z"] {
        fs::write(here.join("tree").join(name), name).unwrap();
    }
    for (name, size) in [("m", 54_321), ("sub/n", 65_432)] {
        fs::write(here.join("tree").join(name), vec![1; size]).unwrap();
    }
    works(here, &["mkfs", "a.img", "--size", "16M"]);
    works(here, &["put", "-r", "a.img", "tree", "/"]);
    let mut image = fs::read(here.join("a.img")).unwrap();
    let mut damaged = 0;
    // Inodes have 256 bytes, the size from byte 4 on.
    for inode in image.chunks_exact_mut(256) {
        if [54_321_u32, 65_432].contains(&u32::from_le_bytes(inode[4..8].try_into().unwrap())) {
            inode[2] ^= 1;
            damaged += 1;
        }
    }
    assert!(damaged >= 2);
    fs::write(here.join("a.img"), image).unwrap();
    let output = weir(here, &["get", "-r", "a.img", "/", "out"]);
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{error}");
    assert_eq!(error.trim_end().lines().count(), 3, "{error}");
    assert!(error.contains("/m in a.img") && error.contains("/sub/n in a.img"), "{error}");
    assert!(error.contains("2 files or directories could not be read"), "{error}");
    for name in ["a", "sub/b", "z"] {
        assert_eq!(fs::read(here.join("out").join(name)).unwrap(), name.as_bytes());
    }
}

/// A volume takes a checkpoint when it is opened; whoever only reads keeps that to himself.
#[test]
fn reading_a_volume_changes_nothing_and_needs_no_permission_to_write() {
    let directory = directory();
    let here = directory.path();
    fs::write(here.join("text"), "hello").unwrap();
    works(here, &["mkfs", "--volume", "a.weir", "--size", "64M"]);
    works(here, &["put", "a.weir", "text", "/"]);
    let volume = here.join("a.weir");
    let known = || (fs::read(&volume).unwrap(), fs::metadata(&volume).unwrap().modified().unwrap());
    let before = known();
    // For root: no user may write it, not even one who may do anything else.
    let reads = |as_user: bool| {
        for arguments in [&["fsck", "a.weir"][..], &["ls", "a.weir"], &["cat", "a.weir", "/text"]] {
            let mut command = Command::new(weir_program());
            if as_user {
                command.uid(65_534).gid(65_534);
            }
            let output = command.current_dir(here).args(arguments).output().unwrap();
            assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
            assert!(known() == before, "{arguments:?} changed the volume");
        }
    };
    reads(false);
    assert_eq!(works(here, &["cat", "a.weir", "/text"]), b"hello");
    fs::set_permissions(&volume, Permissions::from_mode(0o444)).unwrap();
    fs::set_permissions(here, Permissions::from_mode(0o755)).unwrap();
    if rustix::process::geteuid().is_root() && reachable(here) {
        reads(true);
    } else {
        eprintln!("skipped: as another user");
    }
    works(here, &["put", "a.weir", "text", "/again"]);
    assert!(known() != before, "the comparison would see a change");
}

/// Whether other users reach the directory and the program.
fn reachable(directory: &Path) -> bool {
    let open = |path: &Path| {
        path.ancestors().all(|above| fs::metadata(above).is_ok_and(|found| found.mode() & 0o001 != 0))
    };
    open(directory) && open(Path::new(weir_program()))
}

#[test]
fn what_cannot_be_copied_says_why() {
    let directory = directory();
    let here = directory.path();
    fs::create_dir(here.join("tree")).unwrap();
    fs::write(here.join("tree/file"), vec![1; 64 << 20]).unwrap();
    fs::write(here.join("text"), vec![b'x'; 8192]).unwrap();
    works(here, &["mkfs", "a.img", "--size", "32M"]);
    fails(here, &["ls", "none.img"], &["none.img"]);
    fails(here, &["ls", "text"], &["text: neither ext4, nor F2FS, nor a volume"]);
    fails(here, &["ls", "a.img", "/none"], &["/none in a.img", "no such file"]);
    fails(here, &["cat", "a.img", "/lost+found"], &["a directory"]);
    fails(here, &["cat", "a.img", "/none"], &["/none in a.img"]);
    fails(here, &["put", "a.img", "none", "/"], &["none", "No such file"]);
    fails(here, &["put", "a.img", "tree", "/"], &["tree is a directory", "--recursive"]);
    fails(here, &["put", "a.img", "text", "/none/text"], &["/none/text in a.img", "no such file"]);
    fails(here, &["get", "a.img", "/", "out"], &["/ is a directory", "--recursive"]);
    fails(here, &["get", "a.img", "/none", "out"], &["/none in a.img"]);
    fails(here, &["put", "-r", "a.img", "tree", "/"], &["/file in a.img", "no space left"]);
    judge(&here.join("a.img"));
}

#[test]
fn the_kernel_and_weir_read_what_the_other_wrote() {
    let directory = directory();
    let here = directory.path();
    make_tree(&here.join("tree"));
    works(here, &["mkfs", "a.img", "--size", "128M"]);
    works(here, &["put", "-r", "a.img", "tree", "/"]);
    {
        let Some(mounted) = KernelMount::new(&here.join("a.img"), &here.join("mounted")) else { return };
        same(&here.join("tree"), mounted.root());
        // The kernel changes what we made: names in a hashed directory, content, links, and more of each.
        for nth in 0..400 {
            let old = mounted.root().join(format!("sub/deep/file {nth}"));
            fs::rename(old, mounted.root().join(format!("moved {nth}"))).unwrap();
        }
        fs::remove_dir(mounted.root().join("empty")).unwrap();
        fs::remove_file(mounted.root().join("large")).unwrap();
        fs::write(mounted.root().join("none"), vec![5; 1_000_000]).unwrap();
        make_tree(&mounted.root().join("again"));
        let output = run("cp", &["-a".as_ref(), mounted.root().as_os_str(), here.join("kernel").as_os_str()]);
        assert!(output.unwrap().status.success());
    }
    works(here, &["get", "-r", "a.img", "/", "ours"]);
    same(&here.join("kernel"), &here.join("ours"));
    // And on top of that we write again.
    works(here, &["put", "-r", "a.img", "tree", "/third"]);
    judge(&here.join("a.img"));
    let Some(mounted) = KernelMount::new(&here.join("a.img"), &here.join("mounted")) else { return };
    same(&here.join("tree"), &mounted.root().join("third"));
}
