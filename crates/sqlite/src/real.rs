//! A file of the VFS that stands behind this one.

use std::ffi::c_int;
use std::os::fd::RawFd;

use crate::abi::{File, IO_ERROR, OK};
use crate::mounted_database::Descriptor;

/// The file that is written and read in the end.
pub(crate) struct Real {
    /// Behind ours, or in a room of its own. It is open.
    pub(crate) file: *mut File,
    /// `None` if it is not known for certain, or there is nothing to be ordered.
    pub(crate) fd: Option<RawFd>,
    /// It may have been made, or its size has changed, since it was last synchronised.
    pub(crate) resized: bool,
}

impl Real {
    /// Writes.
    ///
    /// # Errors
    /// The code for SQLite.
    pub(crate) fn write(&mut self, offset: i64, bytes: &[u8]) -> Result<(), c_int> {
        let end = offset.saturating_add(bytes.len() as i64);
        // The kernel is asked for the end, since others may have made the file shorter or longer.
        self.resized =
            self.resized || self.fd.and_then(Descriptor::look).is_none_or(|found| end > found.size);
        // SAFETY: the file is open, and the bytes are only read.
        let done = unsafe {
            match ((*(*self.file).methods).write, c_int::try_from(bytes.len())) {
                (Some(write), Ok(length)) => write(self.file, bytes.as_ptr().cast(), length, offset),
                _ => IO_ERROR,
            }
        };
        if done == OK { Ok(()) } else { Err(done) }
    }
}

/// Closes a file of the real VFS, if it is open.
///
/// # Safety
/// There is room for one, zeroed or used, and no code uses it again.
pub(crate) unsafe fn close(file: *mut File) -> c_int {
    // SAFETY: as the caller promises. A file that is not open has no methods.
    unsafe { (*file).methods.as_ref().and_then(|methods| methods.close).map_or(OK, |close| close(file)) }
}
