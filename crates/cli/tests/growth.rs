//! What a mapping has stored behind the end of a file, in its last page, is no part of the file when that grows: by
//! whatever call, in the kernel's cache and on the disk, on a mount and on the kernel's own ext4. Where FUSE or python3 is
//! not to be had, these tests say that they were skipped.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use std::path::Path;
use std::process::Command;

use crate::support::kernel_mount::KernelMount;
use crate::support::{Place, is_there, mounts, runs, system, works};

/// Calls that make a file longer, of `f`, which is open as the second column says, or of its path `p`.
const CALLS: &[(&str, &str, &str)] = &[
    ("truncate", "O_RDWR", "os.truncate(p, 4096)"),
    ("truncate_far", "O_RDWR", "os.truncate(p, 9000)"),
    ("truncate_in_page", "O_RDWR", "os.ftruncate(f, 150)"),
    ("truncate_twice", "O_RDWR", "os.ftruncate(f, 150); os.ftruncate(f, 5000)"),
    ("truncate_down_and_up", "O_RDWR", "os.ftruncate(f, 50); os.ftruncate(f, 5000)"),
    ("allocate", "O_RDWR", "fallocate(f, 0, 0, 8192)"),
    ("allocate_in_page", "O_RDWR", "fallocate(f, 0, 120, 100)"),
    ("allocate_far", "O_RDWR", "fallocate(f, 0, 6000, 100)"),
    ("keep_size", "O_RDWR", "fallocate(f, 1, 0, 8192); os.ftruncate(f, 5000)"),
    ("zero_range", "O_RDWR", "fallocate(f, 16, 6000, 100)"),
    ("write_far", "O_RDWR", "os.pwrite(f, b'w', 5000)"),
    ("write_far_only", "O_WRONLY", "os.pwrite(f, b'w', 5000)"),
    ("write_at_page", "O_RDWR", "os.pwrite(f, b'w', 4096)"),
    ("append", "O_WRONLY | os.O_APPEND", "os.write(f, b'w' * 5)"),
    ("append_then_far", "O_RDWR", "os.pwrite(f, b'w' * 5, 100); os.pwrite(f, b'w', 5000)"),
    ("append_pages", "O_WRONLY | os.O_APPEND", "os.write(f, b'w' * 50000)"),
    ("copy_range", "O_RDWR", "copy(f, p)"),
];

/// The kernel's ext4 shows the bytes after a direct write.
const MOUNT_ONLY: &[(&str, &str, &str)] =
    &[("direct", "O_RDWR | os.O_DIRECT", "os.pwritev(f, [block], 8192)")];

/// Makes each file, stores behind its end, and has it grow; names those that show what was stored.
const STORY: &str = r#"
import ctypes, mmap, os
block = mmap.mmap(-1, 4096)
libc = ctypes.CDLL(None, use_errno=True)
def fallocate(f, mode, at, length):
    assert libc.fallocate(f, mode, ctypes.c_long(at), ctypes.c_long(length)) == 0, ctypes.get_errno()
def copy(f, p):
    s = os.open(p + ".from", os.O_RDWR | os.O_CREAT)
    os.write(s, b"c" * 500)
    os.copy_file_range(s, f, 500, 0, 6000)
    os.close(s)
    os.unlink(p + ".from")
def case(p, flags, call):
    made = os.open(p, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
    os.write(made, b"x" * 100)
    mapped = mmap.mmap(made, 0)
    stored = (ctypes.c_char * 4096).from_address(ctypes.addressof(ctypes.c_char.from_buffer(mapped)))
    for at in (105, 130, 200, 4095):
        stored[at] = b"Z"
    f = os.open(p, flags)
    exec(call)
    if b"Z" in os.pread(made, 60000, 0):
        print("seen:", p)
    stored[101] = b"L"
    os.fsync(made)
    os.close(made)
    os.close(f)
"#;

/// Names the files that show what was stored, or lack what was stored when they had grown.
const LOOK: &str = r#"
import os
for p in sorted(os.listdir(".")):
    if os.path.isfile(p):
        content = open(p, "rb").read()
        if b"Z" in content:
            print("saved:", p)
        if content[101:102] != b"L":
            print("lost:", p)
"#;

fn python(root: &Path, story: &str) -> String {
    runs(Command::new("python3").args(["-c", story]).current_dir(root))
}

fn story(calls: &[(&str, &str, &str)]) -> String {
    let line = |(name, flags, call): &(&str, &str, &str)| format!("case('{name}', os.{flags}, \"{call}\")\n");
    [STORY.to_owned(), calls.iter().map(line).collect()].concat()
}

#[test]
fn a_file_that_grows_does_not_show_what_a_mapping_stored_behind_its_end() {
    if !mounts() || !is_there("python3") {
        return;
    }
    let place = Place::with_volume("128M");
    let root = place.mount(&[]);
    assert_eq!(python(&root, &story(&[CALLS, MOUNT_ONLY].concat())), "");
    place.umount();
    place.mount(&[]);
    assert_eq!(python(&root, LOOK), "");
    place.end();
}

#[test]
fn the_kernels_ext4_does_the_same() {
    if !mounts() || !is_there("python3") {
        return;
    }
    let place = Place::new();
    let (image, root) = (place.volume(), place.mountpoint());
    works(&["mkfs", image.to_str().unwrap(), "--size", "64M"]);
    let Some(mounted) = KernelMount::new(&image, &root) else { return };
    assert_eq!(python(&root, &story(CALLS)), "");
    drop(mounted);
    let Some(_mounted) = KernelMount::new(&image, &root) else { return };
    assert_eq!(python(&root, LOOK), "");
    runs(system("sync").arg("-f").arg(&root));
}
