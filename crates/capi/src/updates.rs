//! Atomic files for C: updates that a crash leaves whole or not at all. Elsewhere than on a mount of Weir nothing can
//! promise that, so there the calls fail.

use libc::{c_int, c_ulong};

use super::{errno, fail, may_be_weirs};

/// `_IO('W', 7)`.
const BEGIN_UPDATE: u32 = 0x5707;
/// `_IO('W', 8)`.
const END_UPDATE: u32 = 0x5708;
/// `_IO('W', 9)`.
const ABANDON_UPDATE: u32 = 0x5709;
/// `_IOW('W', 10, struct weir_group)`.
const SYNC_GROUP: u32 = 0x43F8_570A;
/// Files in a group at most, that which the call is made on left out.
const OTHERS_MAX: usize = 126;
/// The attribute of an atomic file.
const ATTRIBUTE: &std::ffi::CStr = c"user.weir.atomic";

/// `struct weir_group`.
#[repr(C)]
struct Group {
    mode: u32,
    count: u32,
    inodes: [u64; OTHERS_MAX],
}

const _: () = assert!(size_of::<Group>() == 0x3F8);

/// Makes a file atomic, or ordinary again; of a directory, whether files that are made in it are atomic. 0, or -1 with
/// errno: ENOTSUP elsewhere than on a mount of Weir.
// SAFETY: the name is this library's to give.
#[unsafe(no_mangle)]
pub extern "C" fn weir_set_atomic(fd: c_int, atomic: c_int) -> c_int {
    if !is_weirs(fd) { unsupported() } else { set_atomic(fd, atomic != 0) }
}

/// Makes files durable together. 0, or -1 with errno: EINVAL for none and for more than 127, EPERM for files but the
/// first that are not the caller's, EBUSY if an update of one was begun, ENOTSUP elsewhere.
///
/// # Safety
/// `fds` points to `count` numbers.
// SAFETY: the name is this library's to give.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weir_syncv(fds: *const c_int, count: c_int) -> c_int {
    let count = usize::try_from(count).unwrap_or(0);
    if fds.is_null() || !(1..=OTHERS_MAX + 1).contains(&count) {
        return fail(libc::EINVAL);
    }
    // SAFETY: the caller says that so many numbers are there.
    let fds = unsafe { std::slice::from_raw_parts(fds, count) };
    let mut group = Group { mode: 0, count: (count - 1) as u32, inodes: [0; OTHERS_MAX] };
    let mut device = None;
    for (nth, fd) in fds.iter().enumerate() {
        // SAFETY: it consists of numbers, of which zeros are values.
        let mut found: libc::stat = unsafe { std::mem::zeroed() };
        // SAFETY: `found` is large enough for what fstat writes, as it has its type.
        if unsafe { libc::fstat(*fd, &raw mut found) } != 0 {
            return -1;
        }
        if *device.get_or_insert(found.st_dev) != found.st_dev {
            return fail(libc::EXDEV);
        }
        if let Some(place) = nth.checked_sub(1) {
            group.inodes[place] = found.st_ino;
        }
        hand_over(*fd);
    }
    if !is_weirs(fds[0]) {
        return unsupported();
    }
    // SAFETY: the request reads a `Group`.
    unsafe { libc::ioctl(fds[0], SYNC_GROUP as c_ulong, &raw const group) }
}

/// Begins an update of an atomic file. 0, or -1 with errno: EINVAL if it is not atomic, EBUSY if one was begun.
// SAFETY: the name is this library's to give.
#[unsafe(no_mangle)]
pub extern "C" fn weir_begin_update(fd: c_int) -> c_int {
    if !is_weirs(fd) { unsupported() } else { begin_update(fd) }
}

/// Ends the update that was begun through this descriptor. 0, or -1 with errno.
// SAFETY: the name is this library's to give.
#[unsafe(no_mangle)]
pub extern "C" fn weir_end_update(fd: c_int) -> c_int {
    if !is_weirs(fd) { unsupported() } else { end_update(fd) }
}

/// Takes it back. 0, or -1 with errno.
// SAFETY: the name is this library's to give.
#[unsafe(no_mangle)]
pub extern "C" fn weir_abandon_update(fd: c_int) -> c_int {
    if !is_weirs(fd) { unsupported() } else { abandon_update(fd) }
}

/// Makes a file atomic that is known to be on a mount of Weir, or ordinary again.
pub fn set_atomic(fd: c_int, atomic: bool) -> c_int {
    let value = b"1";
    // SAFETY: the name ends with a zero, and the value has the size that is given.
    let done = unsafe {
        match atomic {
            true => libc::fsetxattr(fd, ATTRIBUTE.as_ptr(), value.as_ptr().cast(), value.len(), 0),
            false => libc::fremovexattr(fd, ATTRIBUTE.as_ptr()),
        }
    };
    // It was an ordinary one already.
    if done != 0 && !atomic && errno() == libc::ENODATA { 0 } else { done }
}

/// Whether a file that is known to be on a mount of Weir is atomic.
#[must_use]
pub fn is_atomic(fd: c_int) -> bool {
    let mut value = [0_u8; 1];
    // SAFETY: the name ends with a zero, and the value has the size that is given.
    unsafe { libc::fgetxattr(fd, ATTRIBUTE.as_ptr(), value.as_mut_ptr().cast(), value.len()) == 1 }
}

/// As [`weir_begin_update`], of a file that is known to be on a mount of Weir.
pub fn begin_update(fd: c_int) -> c_int {
    hand_over(fd);
    request(fd, BEGIN_UPDATE)
}

/// As [`weir_end_update`], of a file that is known to be on a mount of Weir.
pub fn end_update(fd: c_int) -> c_int {
    hand_over(fd);
    request(fd, END_UPDATE)
}

/// As [`weir_abandon_update`], of a file that is known to be on a mount of Weir.
pub fn abandon_update(fd: c_int) -> c_int {
    request(fd, ABANDON_UPDATE)
}

fn request(fd: c_int, request: u32) -> c_int {
    // SAFETY: these requests take no argument, so no memory is read or written.
    unsafe { libc::ioctl(fd, request as c_ulong) }
}

/// Has the kernel hand over dirty pages, those of mappings, too. What fails, the next call tells.
fn hand_over(fd: c_int) {
    let send =
        libc::SYNC_FILE_RANGE_WAIT_BEFORE | libc::SYNC_FILE_RANGE_WRITE | libc::SYNC_FILE_RANGE_WAIT_AFTER;
    // SAFETY: it takes numbers and no memory.
    let _ = unsafe { libc::sync_file_range(fd, 0, 0, send) };
}

fn is_weirs(fd: c_int) -> bool {
    may_be_weirs(fd) && super::weir_is_mounted(fd) == 1
}

fn unsupported() -> c_int {
    fail(libc::ENOTSUP)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_are_those_of_the_mount() {
        assert_eq!(BEGIN_UPDATE, weir_fuse::control::BEGIN_UPDATE);
        assert_eq!(END_UPDATE, weir_fuse::control::END_UPDATE);
        assert_eq!(ABANDON_UPDATE, weir_fuse::control::ABANDON_UPDATE);
        assert_eq!(SYNC_GROUP, weir_fuse::control::SYNC_GROUP);
        assert_eq!(OTHERS_MAX, weir_fuse::control::GROUP_FILES_MAX);
    }

    #[test]
    fn elsewhere_nothing_is_promised() {
        let file = std::fs::File::open(env!("CARGO_MANIFEST_DIR")).expect("a directory");
        let fd = std::os::fd::AsRawFd::as_raw_fd(&file);
        assert_eq!((weir_set_atomic(fd, 1), errno()), (-1, libc::ENOTSUP));
        assert_eq!((weir_begin_update(fd), errno()), (-1, libc::ENOTSUP));
        // SAFETY: one number is there.
        assert_eq!((unsafe { weir_syncv(&raw const fd, 1) }, errno()), (-1, libc::ENOTSUP));
        // SAFETY: none is read.
        assert_eq!((unsafe { weir_syncv(std::ptr::null(), 1) }, errno()), (-1, libc::EINVAL));
    }
}
