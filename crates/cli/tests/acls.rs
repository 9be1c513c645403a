//! Access control lists on a mount: who gets in by them, what files get from their directory, copies by `tar` and by
//! the program, and images that the kernel's ext4 reads, and has written.
//! Where FUSE, `setfacl` and `getfacl` (package acl) or a loop device is not to be had, these tests say that they were
//! skipped.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::support::kernel_mount::KernelMount;
use crate::support::{Place, error_of, is_there, mounts, runs, system, works};

fn can_run() -> bool {
    mounts() && is_there("setfacl") && is_there("getfacl")
}

/// A volume that all users get to, mounted for all of them.
fn shared_mount() -> Option<(Place, PathBuf)> {
    if !can_run() {
        return None;
    }
    let place = Place::for_everybody();
    works(&["mkfs", "--volume", place.volume().to_str().unwrap(), "--size", "64M"]);
    let root = place.mount(&["--allow-other"]);
    Some((place, root))
}

/// Runs a line of the shell in a directory, as a user of one group.
fn run_as(directory: &Path, (uid, gid): (u32, u32), line: &str) -> Output {
    Command::new("sh").args(["-c", line]).current_dir(directory).uid(uid).gid(gid).output().unwrap()
}

/// The same, as the superuser, and it works; what it prints.
#[track_caller]
fn shell(directory: &Path, line: &str) -> String {
    runs(Command::new("sh").args(["-e", "-c", line]).current_dir(directory))
}

/// All lists of a tree, as `getfacl` shows them, by numbers.
#[track_caller]
fn lists(directory: &Path) -> String {
    let tree = "find . -mindepth 1 -name lost+found -prune -o -print0 | sort -z | xargs -0 getfacl -n";
    shell(directory, tree)
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().mode() & 0o7777
}

#[test]
fn lists_let_in_whom_they_name_and_nobody_else() {
    let Some((place, root)) = shared_mount() else { return };
    shell(&root, "echo secret > file; chmod 600 file; chmod 755 .");
    let may = |who, line: &str| run_as(&root, who, line).status.success();
    let (user, of_group, other) = ((1001, 2000), (1002, 1003), (1004, 2000));
    let read_and_write = |who| (may(who, "cat file >/dev/null"), may(who, "echo more >> file"));
    let expect = |list: &str, expected: [(bool, bool); 3]| {
        shell(&root, &format!("setfacl {list} file"));
        assert_eq!([user, of_group, other].map(read_and_write), expected, "{list}");
    };
    let (none, read, both) = ((false, false), (true, false), (true, true));
    expect("-m o::-", [none; 3]);
    expect("-m u:1001:r,g:1003:rw", [read, both, none]);
    expect("-m u:1001:rw,o::r", [both, both, read]);
    // The mask bounds users and groups by name, and not others.
    expect("-m m::r", [read, read, read]);
    shell(&root, "chmod 666 file");
    assert_eq!([user, of_group, other].map(read_and_write), [both; 3], "the group's bits are the mask");
    // A user by name gets no more by being of the others.
    expect("-m u:1001:-,o::rw", [none, both, both]);
    expect("-b", [both; 3]);
    // By a directory's list, names can be made in it.
    shell(&root, "mkdir -m 755 directory; setfacl -m u:1001:rwx directory");
    assert!(may(user, "touch directory/theirs") && !may(other, "touch directory/others"));
    // A list is for the owner and the superuser to set.
    assert!(!may(other, "setfacl -m u:1004:rwx file") && may(user, "setfacl -m u:1004:rw directory/theirs"));
    assert!(may(other, "echo more >> directory/theirs"));
    place.end();
}

#[test]
fn what_is_made_gets_its_directorys_default_list_or_else_the_umask_counts() {
    let Some((place, root)) = shared_mount() else { return };
    let make = "umask 077; touch $1/file; mkdir $1/directory; mkfifo $1/pipe; ln -s x $1/link";
    shell(&root, &format!("mkdir -m 755 plain; set -- plain; {make}"));
    let modes =
        |directory: &str| ["file", "directory", "pipe"].map(|name| mode(&root.join(directory).join(name)));
    assert_eq!(modes("plain"), [0o600, 0o700, 0o600]);
    let lists = "mkdir -m 755 lists; setfacl -d -m u:1001:rwx,g::rx,o::- lists; set -- lists";
    shell(&root, &format!("{lists}; {make}"));
    assert_eq!(modes("lists"), [0o660, 0o770, 0o660], "the group's bits are the mask");
    let of_file = shell(&root, "getfacl -cnE lists/file");
    assert_eq!(of_file.trim(), "user::rw-\nuser:1001:rwx\ngroup::r-x\nmask::rw-\nother::---");
    assert!(shell(&root, "getfacl -cn lists/directory").contains("default:user:1001:rwx"));
    if let Some(directory) = with_lists_on_host() {
        shell(directory.path(), &format!("{lists}; {make}"));
        assert_eq!(lists_of(&root, "lists"), lists_of(directory.path(), "lists"), "as the host has it");
    }
    let theirs = "echo x > lists/directory/new && cat lists/file";
    assert!(!run_as(&root, (1004, 2000), theirs).status.success());
    shell(&root, "chmod 755 lists; setfacl -m u:1001:rx lists");
    assert!(run_as(&root, (1001, 2000), theirs).status.success());
    place.end();
}

/// A directory on a filesystem of the host that keeps lists.
fn with_lists_on_host() -> Option<tempfile::TempDir> {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let set = Command::new("setfacl").args(["-m", "u:1001:r"]).arg(directory.path()).output().unwrap();
    let kept = set.status.success();
    if !kept {
        eprintln!("skipped: the host's filesystem keeps no access control lists");
    }
    kept.then_some(directory)
}

#[test]
fn a_writer_outside_the_group_takes_set_group_id_away_by_a_list() {
    let Some((place, root)) = shared_mount() else { return };
    shell(&root, "touch theirs ours; chown 1001:50 theirs; chown 1001:2000 ours; chmod 2770 theirs ours");
    for (name, left) in [("theirs", 0o770), ("ours", 0o2770)] {
        let output = run_as(&root, (1001, 2000), &format!("setfacl -m u:1004:rwx {name}"));
        assert!(output.status.success(), "{}", error_of(&output));
        assert_eq!(mode(&root.join(name)), left, "{name}");
    }
    place.end();
}

/// Some of each kind that has lists.
const TREE: &str = "mkdir -p tree/below; echo a > tree/file; echo b > tree/below/plain; mkfifo tree/pipe
    setfacl -m u:1001:rw,g:1003:r,m::r tree/file
    setfacl -m u:1001:rwx,d:u:1001:rwx,d:g:1003:rx,d:o::- tree/below
    setfacl -m g:1003:rw tree/pipe
    chmod 2751 tree
    # It has no list, though it lies where it would get one.
    chmod 640 tree/below/plain
    for user in $(seq 2000 2100); do echo u:$user:rw; done > users; setfacl -M users tree/below; rm users
    setfattr -n user.comment -v text tree/file 2>/dev/null || true";

#[test]
fn tar_carries_lists_there_and_back() {
    let Some((place, root)) = shared_mount() else { return };
    if !is_there("tar") {
        return;
    }
    shell(&root, TREE);
    let carry = "mkdir back; tar --acls --xattrs -cf - tree | tar --acls --xattrs -xpf - -C back";
    shell(&root, carry);
    assert_eq!(lists(&root.join("back")), lists_of(&root, "tree"));
    place.end();
}

/// Those of a tree in a directory, with names as in it.
fn lists_of(directory: &Path, tree: &str) -> String {
    shell(
        directory,
        &format!("find {tree} ! -type l -print0 | sed -z 's|^|./|' | sort -z | xargs -0 getfacl -n"),
    )
}

#[test]
fn an_image_gets_lists_of_the_host_and_gives_them_back() {
    if !is_there("setfacl") {
        return;
    }
    let Some(directory) = with_lists_on_host() else { return };
    let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    shell(directory.path(), TREE);
    works(&["mkfs", &path("image"), "--size", "32M"]);
    // Also into a directory with a default list, which is not for what is copied.
    works(&["put", "-r", &path("image"), &path("tree"), "/tree"]);
    works(&["get", "-r", &path("image"), "/tree", &path("back")]);
    let theirs = lists_of(directory.path(), "tree");
    let back = lists_of(directory.path(), "back").replace("back", "tree");
    assert_eq!(back, theirs);
    assert!(theirs.contains("user:2100:rw-"), "{theirs}");
    judge(&directory.path().join("image"));
}

#[track_caller]
fn judge(image: &Path) {
    runs(system("e2fsck").arg("-fn").arg(image));
}

#[test]
fn the_kernels_ext4_and_a_mount_read_each_others_lists() {
    if !can_run() {
        return;
    }
    let place = Place::new();
    let image = place.volume();
    works(&["mkfs", image.to_str().unwrap(), "--size", "32M"]);
    let root = place.mount(&[]);
    shell(&root, TREE);
    let ours = lists(&root);
    place.umount();
    judge(&image);
    let Some(mounted) = KernelMount::new(&image, &root) else { return };
    assert_eq!(lists(&root), ours, "the kernel reads ours");
    let more = "cp -a tree theirs; setfacl -m u:1005:x,g:77:rw theirs/file; chmod 705 theirs/below; touch theirs/below/new
        setfacl -b theirs/pipe
        touch one two; for user in $(seq 2000 2100); do echo u:$user:rw; done | tee users | setfacl -M - one
        setfacl -M users two; rm users";
    shell(&root, more);
    let theirs = lists(&root);
    drop(mounted);
    let block_of = |file: &str| {
        let stat = runs(system("debugfs").args(["-R", &format!("stat {file}")]).arg(&image));
        stat.lines().find_map(|line| line.split_once("File ACL: ")).unwrap().1.to_owned()
    };
    assert_eq!(block_of("one"), block_of("two"), "the kernel has files share it");
    place.mount(&[]);
    assert_eq!(lists(&root), theirs, "ours reads the kernel's");
    let of_two = || shell(&root, "getfacl -n two");
    let before = of_two();
    // It is split where a file's own list changes with its mode.
    shell(&root, "chmod 600 one; setfacl -m u:1:r theirs/below; rm -r tree");
    assert_eq!(of_two(), before);
    assert!(shell(&root, "getfacl -n one").contains("mask::---"));
    place.umount();
    judge(&image);
    assert_ne!(block_of("one"), block_of("two"));
}

#[test]
fn chmod_and_lists_are_there_after_the_server_was_killed() {
    if !can_run() {
        return;
    }
    let place = Place::with_volume("64M");
    let mut server = place.serve();
    let root = place.mountpoint();
    shell(&root, "touch file; setfacl -m u:1001:rw file; chmod 620 file; sync file; getfacl -n file");
    let before = lists(&root);
    server.kill();
    works(&["umount", root.to_str().unwrap()]);
    place.mount(&[]);
    assert_eq!(lists(&root), before);
    assert!(before.contains("mask::-w-"), "{before}");
    place.umount();
    place.check();
}
