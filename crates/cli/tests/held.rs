//! What is held without being open lives until it is let go, and a name that is replaced leads to the old or the new
//! file: on a mount as on the kernel's own ext4, which runs the same lines beside it.
//!
//! Where FUSE is not to be had, these tests say that they were skipped; without a loop device a mount is compared with
//! what is written here alone.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::Path;
use std::process::Command;

use rustix::fs::{Mode, OFlags};

use crate::support::kernel_mount::KernelMount;
use crate::support::{Place, e2fsck_judges, error_of, mounts, text, works};

/// Lines of the shell that hold something, take its name, and use it; and what they print. They run in an empty directory.
const CASES: [(&str, &str, &str); 16] = [
    (
        "a mount of a file that is replaced",
        "echo old > conf; touch t; mount --bind conf t; echo new > n; mv n conf; cat t; echo more >> t; cat t conf; umount t",
        "old\nold\nmore\nnew\n",
    ),
    ("a working directory", "mkdir d; cd d; rmdir ../d; ls; echo $?; stat -c %h .; touch x 2>&1; cd ..; ls", "0\n0\ntouch: cannot touch 'x': No such file or directory\n"),
    (
        "a working directory that is replaced",
        "mkdir d e; cd d; mv -T ../e ../d; ls; echo $?; stat -c %h .; stat -c %h ../d 2>&1; cd ..; ls",
        "0\n0\n2\nd\n",
    ),
    (
        "a mount of a directory that is removed elsewhere",
        "mkdir d t; mount --bind d t; rmdir d; stat -c %h t; ls t; umount t; ls",
        "0\nt\n",
    ),
    ("a descriptor for a path", "python3 -c \"
import os
open('p', 'w').write('kept')
f = os.open('p', os.O_PATH)
os.unlink('p')
print(os.fstat(f).st_nlink, os.fstat(f).st_size)
print(open('/proc/self/fd/%d' % f).read())
g = os.open('/proc/self/fd/%d' % f, os.O_RDWR)
os.write(g, b'KE'); os.ftruncate(g, 3); os.fchmod(g, 0o600)
print(os.pread(g, 9, 0), oct(os.fstat(f).st_mode))
os.close(g)
print(open('/proc/self/fd/%d' % f).read())\"", "0 4\nkept\nb'KEp' 0o100600\nKEp\n"),
    ("attributes by a descriptor for a path", "python3 -c \"
import os
open('p', 'w').close()
f = os.open('p', os.O_PATH); at = '/proc/self/fd/%d' % f
os.rename('p', 'q'); os.unlink('q')
os.chmod(at, 0o640); os.utime(at, (5, 6)); os.setxattr(at, 'user.a', b'b'); os.chown(at, 7, 8); os.truncate(at, 100)
s = os.fstat(f)
print(oct(s.st_mode), s.st_atime, s.st_mtime > 6, os.listxattr(at), os.getxattr(at, 'user.a'), s.st_uid, s.st_gid, s.st_size)\"", "0o100640 5.0 True ['user.a'] b'b' 7 8 100\n"),
    ("a link to what has no name", "python3 -c \"
import ctypes, os
open('p', 'w').close()
f = os.open('p', os.O_PATH)
os.unlink('p')
c = ctypes.CDLL(None, use_errno=True)
print(c.linkat(-100, b'/proc/self/fd/%d' % f, -100, b'again', 0x400), os.strerror(ctypes.get_errno()))
print(c.linkat(f, b'', -100, b'again', 0x1000), os.strerror(ctypes.get_errno()))\"", "-1 No such file or directory\n-1 No such file or directory\n"),
    ("a first name by a descriptor for a path", "python3 -c \"
import ctypes, os
f = os.open('.', os.O_TMPFILE | os.O_RDWR); os.write(f, b'first')
p = os.open('/proc/self/fd/%d' % f, os.O_PATH); os.close(f)
assert ctypes.CDLL(None).linkat(-100, b'/proc/self/fd/%d' % p, -100, b'named', 0x400) == 0
print(open('named').read(), os.fstat(p).st_nlink)\"", "first 1\n"),
    ("a symbolic link", "python3 -c \"
import os
for target in ['short', 'x' * 100]:
    os.symlink(target, 'l')
    f = os.open('l', os.O_PATH | os.O_NOFOLLOW)
    os.symlink('other', 'm'); os.rename('m', 'l')
    print(os.readlink('', dir_fd=f) == target, os.fstat(f).st_nlink, os.readlink('l'))
    os.unlink('l')\"", "True 0 other\nTrue 0 other\n"),
    ("nodes of every kind", "python3 -c \"
import os, stat
for kind in [stat.S_IFREG, stat.S_IFIFO, stat.S_IFSOCK, stat.S_IFCHR, stat.S_IFBLK]:
    os.mknod('n', kind | 0o600, os.makedev(1, 3))
    f = os.open('n', os.O_PATH)
    os.unlink('n')
    s = os.fstat(f)
    print(oct(s.st_mode), s.st_nlink, s.st_rdev if stat.S_ISCHR(kind) or stat.S_ISBLK(kind) else 0)
    os.mknod('n', kind | 0o600, os.makedev(1, 3)); os.unlink('n')
    os.close(f)\"", "0o100600 0 0\n0o10600 0 0\n0o140600 0 0\n0o20600 0 259\n0o60600 0 259\n"),
    ("names that are given again", "python3 -c \"
import os
os.mkdir('d'); f = os.open('d', os.O_PATH)
for round in range(100):
    os.rmdir('d'); os.mkdir('d')
    open('d/x', 'w').close(); os.unlink('d/x')
    assert os.fstat(f).st_ino != os.stat('d').st_ino
try: os.open('x', os.O_CREAT | os.O_WRONLY, dir_fd=f)
except OSError as e: print(e.strerror)
print(os.fstat(f).st_nlink, os.listdir('d'))\"", "No such file or directory\n0 []\n"),
    (
        "a program that is replaced while it runs",
        "cp /bin/sleep s; ./s 1 & sleep 0.3; cp /bin/true n; mv n s; ./s; echo $?; cmp -s /proc/$!/exe /bin/sleep; echo $?; wait $!; echo $?",
        "0\n0\n0\n",
    ),
    (
        "another mount namespace",
        "mkdir a; echo kept > a/f; (cd a; unshare -m sh -c 'sleep 0.5; cat f 2>&1; ls; echo $?') & sleep 0.2; rm -r a; wait; ls",
        "cat: f: No such file or directory\n0\n",
    ),
    (
        "a lookup that watches",
        "python3 -c \"
import ctypes, os
c = ctypes.CDLL(None); i = c.inotify_init1(0)
open('p', 'w').close()
assert c.inotify_add_watch(i, b'p', 0x404) >= 0
os.chmod('p', 0o600); os.unlink('p')
print([int.from_bytes(os.read(i, 16)[4:8], 'little') for _ in range(1)])\"",
        "[4]\n",
    ),
    ("a mapping", "python3 -c \"
import mmap, os
f = os.open('p', os.O_RDWR | os.O_CREAT); os.ftruncate(f, 8192)
m = mmap.mmap(f, 8192); os.close(f)
open('n', 'w').write('new'); os.rename('n', 'p')
m[0:3] = b'old'; m.flush()
print(m[0:3], open('p').read())\"", "b'old' new\n"),
    (
        "a lock by a path that is replaced",
        "python3 -c \"
import fcntl, os
a = open('p', 'w'); fcntl.flock(a, fcntl.LOCK_EX)
open('n', 'w').close(); os.rename('n', 'p')
b = open('p', 'w'); fcntl.flock(b, fcntl.LOCK_EX | fcntl.LOCK_NB)
print(os.fstat(a.fileno()).st_nlink, os.fstat(b.fileno()).st_nlink)\"",
        "0 1\n",
    ),
];

/// Runs a case in a directory of its own: what it prints.
fn run_case(root: &Path, nth: usize, lines: &str) -> String {
    let directory = root.join(format!("case {nth}"));
    std::fs::create_dir(&directory).unwrap();
    // A mount namespace of its own, so that nothing stays mounted.
    let output =
        Command::new("unshare").args(["-m", "bash", "-c", lines]).current_dir(&directory).output().unwrap();
    let _ = std::fs::remove_dir_all(&directory);
    text(&output.stdout) + &error_of(&output)
}

/// The kernel's ext4 beside the mount; none where it is not to be had.
fn mount_ext4_beside(place: &Place) -> Option<KernelMount> {
    let image = place.path().join("ext4");
    works(&["mkfs", image.to_str().unwrap(), "--size", "64M"]);
    KernelMount::new(&image, &place.path().join("beside"))
}

fn holds_what_is_held(more: &[&str]) {
    if !mounts() {
        return;
    }
    let place = Place::with_volume("64M");
    let root = place.mount(more);
    let beside = mount_ext4_beside(&place);
    let free = || rustix::fs::statvfs(&root).map(|found| (found.f_bfree, found.f_ffree)).unwrap();
    let mut wrong = Vec::new();
    let before = free();
    for (nth, (name, lines, expected)) in CASES.iter().enumerate() {
        let ours = run_case(&root, nth, lines);
        let theirs = beside.as_ref().map(|beside| run_case(beside.root(), nth, lines));
        let theirs = theirs.unwrap_or_else(|| (*expected).to_owned());
        if ours != theirs || ours != *expected {
            wrong.push(format!("{name}: {ours:?}, on ext4 {theirs:?}, expected {expected:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert_eq!(free(), before, "all of it is given back");
    drop(beside);
    place.end();
    e2fsck_judges(&place);
}

#[test]
fn what_is_held_lives_until_it_is_let_go() {
    holds_what_is_held(&[]);
}

#[test]
fn what_is_held_lives_with_a_writeback_cache() {
    holds_what_is_held(&["--writeback-cache"]);
}

/// Calls on a name, and on a path through a symbolic link and a directory, that others replace all the time: how many were
/// made, and what failed.
const RACE: &str = r#"
import collections, multiprocessing, os, subprocess, sys, time
end = time.time() + float(sys.argv[1])
def replace():
    nth = 0
    while time.time() < end:
        nth += 1
        fd = os.open('t', os.O_CREAT | os.O_WRONLY, 0o755); os.write(fd, b'#!/bin/true\n'); os.close(fd)
        os.rename('t', 'v')
        os.symlink('real%d' % (nth % 2), 'm'); os.rename('m', 'l')
        os.mkdir('e'); os.rename('e', 'd')
def call():
    errors, tries = collections.Counter(), 0
    calls = {
        'open': lambda: os.close(os.open('v', os.O_RDONLY)), 'write': lambda: os.close(os.open('v', os.O_WRONLY)),
        'create': lambda: os.close(os.open('v', os.O_RDONLY | os.O_CREAT)),
        'chmod': lambda: os.chmod('v', 0o755), 'stat': lambda: os.stat('v'), 'access': lambda: os.access('v', os.R_OK) or 1/0,
        'listxattr': lambda: os.listxattr('v'), 'setxattr': lambda: os.setxattr('v', 'user.a', b'b'),
        'truncate': lambda: os.truncate('v', 12), 'utime': lambda: os.utime('v'), 'chown': lambda: os.chown('v', 0, 0),
        'readlink': lambda: os.readlink('l'), 'lstat': lambda: os.lstat('l'), 'through': lambda: os.stat('l/f'),
        'list': lambda: os.listdir('d'), 'cd': lambda: os.close(os.open('d', os.O_DIRECTORY)),
        'statfs': lambda: os.statvfs('v'),
    }
    while time.time() < end:
        for name, call in calls.items():
            tries += 1
            try: call()
            except Exception as error:
                # It is executed and written at once, as on ext4.
                if getattr(error, 'errno', 0) != 26: errors[name + ': ' + str(error)] += 1
    return tries, errors
def execute():
    errors, tries = collections.Counter(), 0
    while time.time() < end:
        tries += 1
        try: subprocess.run(['./v'], check=True)
        except OSError as error:
            # It is written and executed at once, as on ext4.
            if error.errno != 26: errors['exec: ' + str(error)] += 1
        except Exception as error: errors['exec: ' + str(error)] += 1
    return tries, errors
for nth in range(2):
    os.mkdir('real%d' % nth); open('real%d/f' % nth, 'w').close()
os.mkdir('d'); os.symlink('real0', 'l'); open('v', 'w').write('#!/bin/true\n'); os.chmod('v', 0o755)
with multiprocessing.Pool(4) as pool:
    done = [pool.apply_async(work) for work in (call, call, execute)]
    replace()
    tries, errors = 0, collections.Counter()
    for one in done:
        more, wrong = one.get(); tries += more; errors += wrong
print(tries, file=sys.stderr)
print(dict(errors))
"#;

fn a_replaced_name_leads_somewhere(more: &[&str]) {
    if !mounts() {
        return;
    }
    let place = Place::with_volume("64M");
    let root = place.mount(more);
    let output = Command::new("python3").args(["-c", RACE, "4"]).current_dir(&root).output().unwrap();
    let calls = error_of(&output).trim().to_owned();
    assert_eq!(text(&output.stdout), "{}\n", "of {calls} calls");
    assert!(calls.parse::<u64>().is_ok_and(|calls| calls > 500), "{calls}");
    place.end();
    e2fsck_judges(&place);
}

#[test]
fn a_name_that_is_replaced_leads_to_the_old_or_the_new_file() {
    a_replaced_name_leads_somewhere(&[]);
}

#[test]
fn a_name_that_is_replaced_leads_somewhere_with_a_writeback_cache() {
    a_replaced_name_leads_somewhere(&["--writeback-cache"]);
}

/// `df` after `rm`, and a file that needs what `rm` has given back, again and again. A process of its own: the programs that
/// other tests start here hold copies of open files until they run.
const GIVEN_BACK: &str = r#"
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
def free():
    found = os.statvfs(".")
    return found.f_bfree, found.f_ffree
before = free()
for round in range(40):
    file = os.open("large", os.O_CREAT | os.O_WRONLY)
    # Without glibc's fallback, which writes where the filesystem does not allocate.
    allocated = libc.fallocate(file, 0, ctypes.c_long(0), ctypes.c_long(before[0] * 3 // 4 * 4096))
    assert allocated == 0, (round, ctypes.get_errno())
    os.close(file)
    os.unlink("large")
    if round % 2 == 0:
        assert free() == before, (round, free(), before)
"#;

#[test]
fn space_is_there_as_soon_as_a_call_has_given_it_back() {
    if !mounts() {
        return;
    }
    let place = Place::with_volume("64M");
    let root = place.mount(&[]);
    let output = Command::new("python3").args(["-c", GIVEN_BACK]).current_dir(&root).output().unwrap();
    assert!(output.status.success(), "{}", error_of(&output));
    place.end();
}

/// What was held when the server was killed takes no space at the next mount.
#[test]
fn a_killed_server_leaves_nothing_of_what_was_held() {
    if !mounts() {
        return;
    }
    let place = Place::with_volume("64M");
    let root = place.mountpoint();
    let free = || rustix::fs::statvfs(&root).map(|found| (found.f_bfree, found.f_ffree)).unwrap();
    let mut server = place.serve();
    std::fs::write(root.join("there"), "x").unwrap();
    let before = free();
    let mut kept = Vec::new();
    for nth in 0..20 {
        let path = root.join(nth.to_string());
        std::fs::write(&path, vec![7; 100_000]).unwrap();
        kept.push(rustix::fs::open(&path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).unwrap());
        std::fs::remove_file(&path).unwrap();
    }
    // The names and what they stood for are on the disk, and the orphans with them.
    let there = std::fs::File::options().write(true).open(root.join("there")).unwrap();
    there.set_len(5).unwrap();
    there.sync_all().unwrap();
    assert_eq!(before.1 - free().1, 20);
    server.kill();
    drop((there, kept));
    place.unmount();
    let server = place.serve();
    assert_eq!(free(), before, "what was held is free");
    place.unmount();
    drop(server);
    place.check();
    e2fsck_judges(&place);
}
