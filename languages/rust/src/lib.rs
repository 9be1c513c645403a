//! Order between writes, without waiting for the disk, on a mount of Weir.
//!
//! Each call says what it has kept: [`Kept::Ordered`], or [`Kept::Durable`] where it was a flush instead. On other filesystems every
//! call is a flush, so a program keeps its order everywhere.

#![warn(missing_docs)]

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::os::raw::{c_int, c_long, c_ulong};

/// `_IO('W', 1)` of `crates/capi/include/weir.h`.
const FBARRIER: c_ulong = 0x5701;
/// `_IO('W', 2)`.
const FDATABARRIER: c_ulong = 0x5702;
/// `_IO('W', 11)`.
const ORDER_ALL: c_ulong = 0x570B;
/// What filesystems answer that do not know the call: ENOTTY, EINVAL, ENOSYS, EOPNOTSUPP.
const UNKNOWN: [i32; 4] = [25, 22, 38, EOPNOTSUPP];
const EOPNOTSUPP: i32 = 95;
/// The type of a mount through FUSE, in `fstatfs`.
const FUSE_MAGIC: c_long = 0x6573_5546;

/// A `struct statfs`, of which only the first field counts here.
#[repr(C)]
struct Statfs {
    magic: c_long,
    rest: [c_long; 31],
}

extern "C" {
    fn ioctl(descriptor: c_int, request: c_ulong, ...) -> c_int;
    fn syncfs(descriptor: c_int) -> c_int;
    fn fstatfs(descriptor: c_int, found: *mut Statfs) -> c_int;
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

/// Returns when all that was written to the file survives a power cut.
///
/// # Errors
/// Those of [`File::sync_all`].
pub fn make_durable(file: &File) -> io::Result<()> {
    file.sync_all()
}

/// Puts all that was changed on the filesystem of a file or directory, by any program, before whatever is changed later. Elsewhere it
/// is `syncfs`.
///
/// # Errors
/// Those of `syncfs`; [`io::ErrorKind::Unsupported`] on another mount through FUSE, and on one of a server of Weir that is older than
/// this call: the kernel does not pass `syncfs` on to its server.
pub fn order_tree(directory: &File) -> io::Result<Kept> {
    // SAFETY: the descriptor is open as long as `directory` lives.
    let hand_over = |file: &File| match unsafe { syncfs(file.as_fd().as_raw_fd()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    };
    // Elsewhere this is all; on a mount of Weir the kernel begins to hand over what it keeps of files, which the next call waits for.
    hand_over(directory)?;
    call(directory, ORDER_ALL, |file| match is_on_fuse(file)? {
        false => Ok(()),
        true => Err(io::Error::from_raw_os_error(EOPNOTSUPP)),
    })
}

fn is_on_fuse(file: &File) -> io::Result<bool> {
    let mut found = Statfs { magic: 0, rest: [0; 31] };
    // SAFETY: the descriptor is open as long as `file` lives, and `found` is larger than what the kernel writes.
    match unsafe { fstatfs(file.as_fd().as_raw_fd(), &raw mut found) } {
        0 => Ok(found.magic == FUSE_MAGIC),
        _ => Err(io::Error::last_os_error()),
    }
}

fn call(file: &File, request: c_ulong, flush: fn(&File) -> io::Result<()>) -> io::Result<Kept> {
    loop {
        // SAFETY: the descriptor is open as long as `file` lives, and these requests take no argument.
        if unsafe { ioctl(file.as_fd().as_raw_fd(), request) } == 0 {
            return Ok(Kept::Ordered);
        }
        let error = io::Error::last_os_error();
        if error.raw_os_error().is_some_and(|number| UNKNOWN.contains(&number)) {
            return flush(file).map(|()| Kept::Durable);
        }
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}
