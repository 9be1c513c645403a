//! A mount without space: what can be written still, who may take what is reserved, and what a mapping is told.
//! Where FUSE is not to be had, or python3, these tests say that they were skipped.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use crate::support::{Place, is_there, mounts, runs};

/// What all scripts begin with.
const BEGINNING: &str = r#"
import errno, mmap, os, random
BLOCK = 4096
random.seed(7)
blocks = random.sample(range(1024), 300)
def fill(name):
    fd, written = os.open(name, os.O_RDWR | os.O_CREAT), 0
    for size in 1 << 20, BLOCK:
        try:
            while True: written += os.write(fd, b"\x09" * size)
        except OSError as error: assert error.errno == errno.ENOSPC
    os.close(fd)
    return written // BLOCK
def told(call):
    try: call(); return "well"
    except OSError as error: return errno.errorcode[error.errno]
"#;

fn script(directory: &Path, rest: &str) -> String {
    let script = format!("{BEGINNING}{rest}");
    runs(Command::new("python3").args(["-c", &script]).current_dir(directory))
}

fn place() -> Option<Place> {
    (mounts() && is_there("python3")).then(|| Place::with_volume("64M"))
}

/// By writes and by a shared mapping, and holes of it.
#[test]
fn what_is_allocated_is_written_without_space() {
    let Some(place) = place() else { return };
    let root = place.mount(&[]);
    let story = r#"
written, mapped = (os.open(name, os.O_RDWR | os.O_CREAT) for name in ("written", "mapped"))
for fd in written, mapped: os.posix_fallocate(fd, 0, 1024 * BLOCK)
fill("ballast")
mapping = mmap.mmap(mapped, 1024 * BLOCK)
for block in blocks:
    assert os.pwrite(written, b"x" * BLOCK, block * BLOCK) == BLOCK
    mapping[block * BLOCK:(block + 1) * BLOCK] = b"x" * BLOCK
print(told(mapping.flush), told(lambda: os.fsync(mapped)), told(lambda: os.fsync(written)))
"#;
    assert_eq!(script(&root, story).trim(), "well well well");
    for block in 0..50 {
        let offset = (2 * block * 4096).to_string();
        let hole = ["--punch-hole", "--offset", &offset, "--length", "4096", "ballast"];
        runs(Command::new("fallocate").args(hole).current_dir(&root));
    }
    place.end();
    let root = place.mount(&[]);
    let story = r#"
for name in "written", "mapped":
    content = open(name, "rb").read()
    assert len(content) == 1024 * BLOCK
    for block in range(1024):
        expected = b"x" if block in blocks else b"\0"
        assert content[block * BLOCK:(block + 1) * BLOCK] == expected * BLOCK, (name, block)
"#;
    script(&root, story);
    place.end();
}

/// The user is of group 0, which is what the superblock names by default, and stands for no user.
#[test]
fn a_plain_user_writes_what_df_tells() {
    let Some(place) = place() else { return };
    let root = place.mount(&["--allow-other"]);
    fs::set_permissions(place.path(), Permissions::from_mode(0o755)).unwrap();
    fs::set_permissions(&root, Permissions::from_mode(0o777)).unwrap();
    // It becomes the user in here: the way to here may be closed to others.
    let story = r#"
os.setgroups([])
os.setgid(0)
os.setuid(65534)
before = os.statvfs(".")
users = fill("users")
after = os.statvfs(".")
print(users - before.f_bavail, after.f_bavail, after.f_bfree > 0, told(lambda: os.mkdir("directory")))
"#;
    assert_eq!(script(&root, story).trim(), "0 0 True ENOSPC");
    assert_eq!(script(&root, r#"print(fill("superuser's") > 100)"#).trim(), "True");
    place.end();
}

/// Every time, until it is written again: the kernel alone would tell it once.
#[test]
fn what_a_mapping_has_lost_is_told_every_time() {
    let Some(place) = place() else { return };
    let root = place.mount(&[]);
    let story = r#"
fd = os.open("sparse", os.O_RDWR | os.O_CREAT)
os.ftruncate(fd, 16 * BLOCK)
fill("ballast")
mapping = mmap.mmap(fd, 16 * BLOCK)
mapping[BLOCK] = 1
print(*(told(call) for call in [mapping.flush, lambda: os.fsync(fd)] * 3))
print(told(lambda: os.fsync(os.open("sparse", os.O_RDONLY))))
os.truncate("ballast", 1 << 20)
print(told(lambda: os.fsync(fd)))
mapping[BLOCK] = 2
print(told(mapping.flush), told(lambda: os.fsync(fd)))
"#;
    let told = script(&root, story);
    let lines: Vec<&str> = told.lines().collect();
    let always = ["ENOSPC"; 6].join(" ");
    assert_eq!(lines, [&always, "ENOSPC", "ENOSPC", "well well"]);
    assert_eq!(fs::read(root.join("sparse")).unwrap()[4096], 2);
    place.end();
}
