//! Order between writes, without waiting for the disk, on a mount of Weir.
//!
//! Each call says what it has kept: [`Kept::Ordered`], or [`Kept::Durable`] where it was a flush instead. On other filesystems every
//! call is a flush, so a program keeps its order everywhere. On an overlay over a mount of Weir it is a flush of the
//! mount's, of which no more than order is known: [`Kept::Ordered`].

#![warn(missing_docs)]

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::os::raw::{c_char, c_int, c_long, c_uint, c_ulong, c_void};

/// `_IO('W', 1)` of `crates/capi/include/weir.h`.
const FBARRIER: c_ulong = 0x5701;
/// `_IO('W', 2)`.
const FDATABARRIER: c_ulong = 0x5702;
/// `_IOW('W', 10, struct weir_group)`.
const SYNC_GROUP: c_ulong = 0x43F8_570A;
/// `_IO('W', 11)`.
const ORDER_ALL: c_ulong = 0x570B;
/// What filesystems answer that do not know the call: ENOTTY, EINVAL, ENOSYS, EOPNOTSUPP.
const UNKNOWN: [i32; 4] = [25, 22, 38, EOPNOTSUPP];
const EOPNOTSUPP: i32 = 95;
/// What they answer that do not have an attribute.
const ENODATA: i32 = 61;
/// The type of a mount through FUSE, in `fstatfs`.
const FUSE_MAGIC: c_long = 0x6573_5546;
/// That of an overlay.
const OVERLAY_MAGIC: c_long = 0x794C_7630;
/// An attribute of every file of a mount of Weir; `sync` makes all of the mount durable.
const STATUS: &[u8] = b"user.weir.status\0";
/// A filesystem without the attribute does not get it.
const XATTR_REPLACE: c_int = 2;

/// A `struct statfs`, of which only the first field counts here.
#[repr(C)]
struct Statfs {
    magic: c_long,
    rest: [c_long; 31],
}

/// A `struct weir_group` of one file, which is to be durable.
#[repr(C)]
struct Group {
    mode: u32,
    others: u32,
    inodes: [u64; 126],
}

static ALONE: Group = Group { mode: 0, others: 0, inodes: [0; 126] };

/// `SYNC_FILE_RANGE_WAIT_BEFORE`, `_WRITE` and `_WAIT_AFTER`.
const WRITE_AND_WAIT: c_uint = 7;
/// What files answer that have no pages.
const ESPIPE: i32 = 29;

extern "C" {
    fn ioctl(descriptor: c_int, request: c_ulong, ...) -> c_int;
    fn sync_file_range(descriptor: c_int, offset: i64, bytes: i64, flags: c_uint) -> c_int;
    fn syncfs(descriptor: c_int) -> c_int;
    fn fstatfs(descriptor: c_int, found: *mut Statfs) -> c_int;
    fn fgetxattr(descriptor: c_int, name: *const c_char, value: *mut c_void, bytes: usize) -> isize;
    fn fsetxattr(descriptor: c_int, name: *const c_char, value: *const c_void, bytes: usize, flags: c_int) -> c_int;
}

/// What a call has kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kept {
    /// Before whatever is written later; it may not be durable for a while.
    Ordered,
    /// It survives a power cut.
    Durable,
}

/// Puts all that was written to the file, its attributes and its name before whatever is written later. Call `msync` before,
/// where the file is mapped.
///
/// # Errors
/// Those of [`File::sync_all`].
pub fn order(file: &File) -> io::Result<Kept> {
    call(file, FBARRIER, File::sync_all)
}

/// The same of the file's content and of what is needed to find it. Elsewhere it is [`File::sync_data`].
///
/// # Errors
/// Those of [`File::sync_data`].
pub fn order_data(file: &File) -> io::Result<Kept> {
    call(file, FDATABARRIER, File::sync_data)
}

/// Returns when all that was written to the file survives a power cut, also on a mount of Weir where `fsync` only orders
/// (`--sync order`, or the file's attribute), and on an overlay over it; there all of the mount is made durable, for
/// which the caller has to have the right to write the file.
///
/// # Errors
/// Those of [`File::sync_all`]; on such an overlay [`io::ErrorKind::PermissionDenied`].
pub fn make_durable(file: &File) -> io::Result<()> {
    if kind(file)? != FUSE_MAGIC {
        file.sync_all()?;
        return if is_above_weir(file)? { sync_mount(file) } else { Ok(()) };
    }
    hand_over(file)?;
    call(file, SYNC_GROUP, File::sync_all).map(|_| ())
}

/// Puts all that was changed on the filesystem of a file or directory, by any program, before whatever is changed later. Elsewhere it
/// is `syncfs`.
///
/// # Errors
/// Those of `syncfs`; [`io::ErrorKind::Unsupported`] on another mount through FUSE, and on one of a server of Weir that is older than
/// this call: the kernel does not pass `syncfs` on to its server. The same on an overlay over a mount of Weir: name the
/// mount.
pub fn order_tree(directory: &File) -> io::Result<Kept> {
    // SAFETY: the descriptor is open as long as `directory` lives.
    let synced = result_of(unsafe { syncfs(directory.as_fd().as_raw_fd()) });
    // Elsewhere this is all; on a mount of Weir the kernel begins to hand over what it keeps of files, which the next call waits for.
    synced?;
    call(directory, ORDER_ALL, |file| match kind(file)? == FUSE_MAGIC || is_above_weir(file)? {
        false => Ok(()),
        true => Err(io::Error::from_raw_os_error(EOPNOTSUPP)),
    })
}

/// Whether a file is on an overlay that has it on a mount of Weir.
fn is_above_weir(file: &File) -> io::Result<bool> {
    if kind(file)? != OVERLAY_MAGIC {
        return Ok(false);
    }
    let descriptor = file.as_fd().as_raw_fd();
    // SAFETY: the name ends with a zero, and no byte of the value is written, as its size is given as 0.
    if unsafe { fgetxattr(descriptor, STATUS.as_ptr().cast(), std::ptr::null_mut(), 0) } >= 0 {
        return Ok(true);
    }
    let error = io::Error::last_os_error();
    match error.raw_os_error() {
        Some(number) if number == ENODATA || UNKNOWN.contains(&number) => Ok(false),
        _ => Err(error),
    }
}

/// Makes all durable that is on the mount of Weir below an overlay.
fn sync_mount(file: &File) -> io::Result<()> {
    let (descriptor, value) = (file.as_fd().as_raw_fd(), b"sync");
    // SAFETY: the name ends with a zero, and the value has the size that is given.
    result_of(unsafe {
        fsetxattr(descriptor, STATUS.as_ptr().cast(), value.as_ptr().cast(), value.len(), XATTR_REPLACE)
    })
}

/// The type of the filesystem that a file is on.
fn kind(file: &File) -> io::Result<c_long> {
    let mut found = Statfs { magic: 0, rest: [0; 31] };
    // SAFETY: the descriptor is open as long as `file` lives, and `found` is larger than what the kernel writes.
    result_of(unsafe { fstatfs(file.as_fd().as_raw_fd(), &mut found) })?;
    Ok(found.magic)
}

/// Has the kernel pass to the filesystem what it keeps of the file: mappings change it without a call.
fn hand_over(file: &File) -> io::Result<()> {
    // SAFETY: the descriptor is open as long as `file` lives.
    let passed = result_of(unsafe { sync_file_range(file.as_fd().as_raw_fd(), 0, 0, WRITE_AND_WAIT) });
    match passed {
        Err(error) if error.raw_os_error().is_some_and(|n| n == ESPIPE || UNKNOWN.contains(&n)) => Ok(()),
        passed => passed,
    }
}

fn result_of(returned: c_int) -> io::Result<()> {
    if returned == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

fn call(file: &File, request: c_ulong, flush: fn(&File) -> io::Result<()>) -> io::Result<Kept> {
    loop {
        // SAFETY: the descriptor is open as long as `file` lives. One of the requests reads a `Group`, the others nothing.
        if unsafe { ioctl(file.as_fd().as_raw_fd(), request, &ALONE as *const Group) } == 0 {
            return Ok(Kept::Ordered);
        }
        let error = io::Error::last_os_error();
        if error.raw_os_error().is_some_and(|number| UNKNOWN.contains(&number)) {
            flush(file)?;
            return Ok(if is_above_weir(file)? { Kept::Ordered } else { Kept::Durable });
        }
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}
