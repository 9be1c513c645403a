//! libweir: `fbarrier` and `fdatabarrier` for C, and for whatever calls C; and updates of atomic files ([`updates`]). The
//! header is `include/weir.h`.
//!
//! On a mount of Weir they are ioctls; anywhere else they are `fsync` and `fdatasync`, which promise more. So a
//! program that calls them is right on every filesystem, and fast on Weir.

#![allow(unsafe_code, reason = "it is called by C, and calls the C library")]

mod updates;

use std::sync::atomic::{AtomicU64, Ordering};

use libc::{c_int, c_ulong};

/// `_IO('W', 1)`.
pub const FBARRIER: u32 = 0x5701;
/// `_IO('W', 2)`.
pub const FDATABARRIER: u32 = 0x5702;
/// `_IO('W', 5)`: [`FBARRIER`], for a caller that has handed over dirty pages.
const FBARRIER_AFTER_PAGES: u32 = 0x5705;
/// `_IO('W', 6)`: the same of [`FDATABARRIER`].
const FDATABARRIER_AFTER_PAGES: u32 = 0x5706;
/// `_IO('W', 11)`.
const ORDER_ALL: u32 = 0x570B;
/// `_IO('W', 4)`.
pub const ORDER_WRITES: u32 = 0x5704;
pub use updates::{abandon_update, begin_update, end_update, is_atomic, set_atomic};

/// The type of a mount through FUSE, in `statfs`.
const FUSE_MAGIC: libc::__fsword_t = 0x6573_5546;
/// That of an overlay.
const OVERLAY_MAGIC: libc::__fsword_t = 0x794C_7630;

/// Orders all that was written to a file and its inode before whatever is written later; `fsync` elsewhere.
/// Answers 0, or -1 with errno as of `fsync`.
// SAFETY: the name is this library's to give.
#[unsafe(no_mangle)]
pub extern "C" fn fbarrier(fd: c_int) -> c_int {
    // SAFETY: fsync takes any number, and no memory.
    order(fd, FBARRIER).unwrap_or_else(|| unsafe { libc::fsync(fd) })
}

/// The same of the file's data, and what is needed to find it; `fdatasync` elsewhere.
// SAFETY: the name is this library's to give.
#[unsafe(no_mangle)]
pub extern "C" fn fdatabarrier(fd: c_int) -> c_int {
    // SAFETY: fdatasync takes any number, and no memory.
    order(fd, FDATABARRIER).unwrap_or_else(|| unsafe { libc::fdatasync(fd) })
}

/// Orders all that was changed before on the filesystem of a file or directory, by any program, before whatever is changed
/// later; `syncfs` elsewhere. Answers 0, or -1 with errno as of `syncfs`, or EOPNOTSUPP on another mount through FUSE, to whose server
/// the kernel does not pass `syncfs`, and on an overlay over a mount of Weir, which passes on neither call.
// SAFETY: the name is this library's to give.
#[unsafe(no_mangle)]
pub extern "C" fn weir_order_tree(fd: c_int) -> c_int {
    // Elsewhere this is all; on a mount of Weir the kernel begins to hand over what it keeps of files, and the ioctl waits for it.
    // SAFETY: syncfs takes any number, and no memory.
    if unsafe { libc::syncfs(fd) } != 0 {
        return -1;
    }
    if may_be_weirs(fd) {
        // SAFETY: this request takes no argument, so no memory is read or written.
        match unsafe { libc::ioctl(fd, ORDER_ALL as c_ulong) } {
            0 => return 0,
            _ if !is_unknown_call() => return -1,
            _ if is_fuse(fd) => return fail(libc::EOPNOTSUPP),
            // The number of a mount that is gone may belong to another filesystem now.
            _ => {}
        }
    }
    // Elsewhere `syncfs` was all, but on an overlay over a mount of Weir: it passes on attributes, and neither of these
    // calls.
    match is_of_type(fd, OVERLAY_MAGIC).then(|| weir_is_mounted(fd)) {
        None | Some(0) => 0,
        Some(1) => fail(libc::EOPNOTSUPP),
        Some(failed) => failed,
    }
}

/// Whether a file is on a mount of Weir: 1, 0, or -1 with errno.
// SAFETY: the name is this library's to give.
#[unsafe(no_mangle)]
pub extern "C" fn weir_is_mounted(fd: c_int) -> c_int {
    let mut value = [0_u8; 0];
    // SAFETY: the name ends with a zero, and no byte of the value is written, as its size is given as 0.
    let size = unsafe { libc::fgetxattr(fd, c"user.weir.status".as_ptr(), value.as_mut_ptr().cast(), 0) };
    match size {
        0.. => 1,
        _ if matches!(errno(), libc::ENODATA | libc::EOPNOTSUPP | libc::ENOSYS) => 0,
        _ => -1,
    }
}

/// Orders by an ioctl; `None` where that is not known, and the caller has to do more.
pub fn order(fd: c_int, request: u32) -> Option<c_int> {
    if may_be_weirs(fd) { order_mounted(fd, request) } else { None }
}

/// The same of a file that is known to be on a mount of Weir, since [`weir_is_mounted`] has said so: it saves asking
/// the mount once more.
pub fn order_mounted(fd: c_int, request: u32) -> Option<c_int> {
    // Dirty pages of a shared mapping, and all others where the kernel keeps a writeback cache, are still with the kernel,
    // and an ioctl does not send them: what it sends is waited for, as far as the filesystem has it, not the disk.
    let send =
        libc::SYNC_FILE_RANGE_WAIT_BEFORE | libc::SYNC_FILE_RANGE_WRITE | libc::SYNC_FILE_RANGE_WAIT_AFTER;
    // SAFETY: it takes numbers and no memory. A directory has no pages: it fails, and that does not matter.
    if unsafe { libc::sync_file_range(fd, 0, 0, send) } != 0
        && !matches!(errno(), libc::ESPIPE | libc::EINVAL)
    {
        return Some(-1);
    }
    let after_pages = if request == FBARRIER { FBARRIER_AFTER_PAGES } else { FDATABARRIER_AFTER_PAGES };
    // An older server knows the second only.
    for request in [after_pages, request] {
        // SAFETY: these requests take no argument, so no memory is read or written.
        match unsafe { libc::ioctl(fd, request as c_ulong) } {
            0 => return Some(0),
            _ if is_unknown_call() => {}
            _ => return Some(-1),
        }
    }
    None
}

/// Has each write through this descriptor ordered that leaves the file as long as it is, as if `fdatabarrier` followed
/// it; whether that is so now. It holds until the descriptor and its duplicates are closed. The file is one that is
/// known to be on a mount of Weir.
#[must_use]
pub fn order_writes(fd: c_int) -> bool {
    // SAFETY: this request takes no argument, so no memory is read or written.
    unsafe { libc::ioctl(fd, ORDER_WRITES as c_ulong) == 0 }
}

/// The number of the mount through FUSE that a file was on last; 0 for none yet. The kernel knows a file's number, but
/// asks the mount what `statfs` tells, and that costs as much as the barrier.
static LAST_DEVICE: AtomicU64 = AtomicU64::new(0);

/// Whether a file is on some mount through FUSE, so that no ioctl goes to a device that means something else by it.
fn may_be_weirs(fd: c_int) -> bool {
    // SAFETY: it consists of numbers, of which zeros are values.
    let mut file: libc::statx = unsafe { std::mem::zeroed() };
    // After a write the kernel would ask the mount for times and sizes anew, which no caller wants to know here.
    let cached = libc::AT_EMPTY_PATH | libc::AT_STATX_DONT_SYNC;
    // SAFETY: the path ends with a zero, and `file` is large enough for what statx writes, as it has its type.
    let looked = unsafe { libc::statx(fd, c"".as_ptr(), cached, libc::STATX_TYPE, &raw mut file) } == 0;
    let kind = libc::mode_t::from(file.stx_mode) & libc::S_IFMT;
    if !looked || !matches!(kind, libc::S_IFREG | libc::S_IFDIR) {
        return false;
    }
    let device = u64::from(file.stx_dev_major) << 32 | u64::from(file.stx_dev_minor);
    if device == LAST_DEVICE.load(Ordering::Relaxed) {
        return true;
    }
    let found = is_fuse(fd);
    if found {
        LAST_DEVICE.store(device, Ordering::Relaxed);
    }
    found
}

fn is_fuse(fd: c_int) -> bool {
    is_of_type(fd, FUSE_MAGIC)
}

/// Whether a file is on a filesystem of this type.
fn is_of_type(fd: c_int, magic: libc::__fsword_t) -> bool {
    // SAFETY: a statfs consists of numbers, of which zeros are values.
    let mut found: libc::statfs = unsafe { std::mem::zeroed() };
    // SAFETY: `found` is large enough for what fstatfs writes, as it has its type.
    unsafe { libc::fstatfs(fd, &raw mut found) == 0 && found.f_type == magic }
}

/// Whether the last call failed as one that the filesystem does not know.
fn is_unknown_call() -> bool {
    matches!(errno(), libc::ENOTTY | libc::ENOSYS | libc::EINVAL | libc::EOPNOTSUPP)
}

/// Fails by a cause.
fn fail(cause: c_int) -> c_int {
    // SAFETY: the place is this thread's own, and lives as long as the thread.
    unsafe { *libc::__errno_location() = cause };
    -1
}

fn errno() -> c_int {
    std::io::Error::last_os_error().raw_os_error().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_are_those_of_the_mount() {
        assert_eq!(FBARRIER, weir_fuse::control::FBARRIER);
        assert_eq!(FDATABARRIER, weir_fuse::control::FDATABARRIER);
        assert_eq!(ORDER_WRITES, weir_fuse::control::ORDER_WRITES);
        assert_eq!(FBARRIER_AFTER_PAGES, weir_fuse::control::FBARRIER_AFTER_PAGES);
        assert_eq!(FDATABARRIER_AFTER_PAGES, weir_fuse::control::FDATABARRIER_AFTER_PAGES);
    }

    #[test]
    fn elsewhere_they_are_fsync() {
        let file = std::fs::File::open(env!("CARGO_MANIFEST_DIR")).expect("a directory");
        let fd = std::os::fd::AsRawFd::as_raw_fd(&file);
        assert_eq!((fbarrier(fd), fdatabarrier(fd), weir_is_mounted(fd)), (0, 0, 0));
        assert_eq!((fbarrier(-1), errno()), (-1, libc::EBADF));
        assert_eq!((weir_is_mounted(-1), errno()), (-1, libc::EBADF));
    }
}
