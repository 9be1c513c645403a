//! libweir_preload: `LD_PRELOAD=libweir_preload.so PROGRAM` runs a program with `fsync` and `fdatasync` as
//! `fbarrier` and `fdatabarrier` on mounts of Weir, and as what they are everywhere else, or wherever it is not
//! sure.
//!
//! **What the program believes to be safe is then only in order**: after a crash the newest of it may be missing.
//!
//! It sees what goes through the C library's functions. It does not see raw system calls, io_uring, programs that
//! are linked statically (those of Go, for instance), `msync`, and files that are open with `O_SYNC` or
//! `O_DSYNC`. All of these keep what they promise. `sync`, `syncfs` and `sync_file_range` are left alone as well; on a
//! mount of Weir they promise nothing, as the kernel does not pass them on.

#![allow(unsafe_code, reason = "it stands in for functions of the C library")]

use std::sync::OnceLock;

use libc::c_int;
use weir::{FBARRIER, FDATABARRIER, order};

// SAFETY: the caller has found a function that takes a descriptor and returns a number.
type Sync = unsafe extern "C" fn(c_int) -> c_int;

/// Orders where it can, and makes durable where not.
// SAFETY: that it takes the place of the function of this name is what the library is for.
#[unsafe(no_mangle)]
pub extern "C" fn fsync(fd: c_int) -> c_int {
    static REAL: OnceLock<Option<Sync>> = OnceLock::new();
    order(fd, FBARRIER).unwrap_or_else(|| real(&REAL, c"fsync", libc::SYS_fsync, fd))
}

/// The same of the file's data.
// SAFETY: that it takes the place of the function of this name is what the library is for.
#[unsafe(no_mangle)]
pub extern "C" fn fdatasync(fd: c_int) -> c_int {
    static REAL: OnceLock<Option<Sync>> = OnceLock::new();
    order(fd, FDATABARRIER).unwrap_or_else(|| real(&REAL, c"fdatasync", libc::SYS_fdatasync, fd))
}

/// Calls the function that this one stands in for: the next of its name, or the kernel's where there is none.
fn real(known: &OnceLock<Option<Sync>>, name: &std::ffi::CStr, number: libc::c_long, fd: c_int) -> c_int {
    let next = known.get_or_init(|| {
        // SAFETY: the name ends with a zero, and RTLD_NEXT looks behind this library only.
        let found = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) };
        // SAFETY: functions of these names take a descriptor and answer a number, and a null pointer is none.
        (!found.is_null()).then(|| unsafe { std::mem::transmute::<*mut libc::c_void, Sync>(found) })
    });
    match next {
        // SAFETY: it is the C library's function, which takes any number.
        Some(next) => unsafe { next(fd) },
        // SAFETY: these system calls take a number and no memory.
        None => unsafe { libc::syscall(number, fd) as c_int },
    }
}
