//! A file of the VFS that stands behind this one.

use std::ffi::c_int;
use std::os::fd::RawFd;

use weir::FBARRIER;

use crate::abi::{FCNTL_LAST_ERRNO, File, IO_ERROR, OK};
use crate::mounted_database::Descriptor;

/// The file that is written and read in the end.
pub(crate) struct Real {
    /// Behind ours, or in a room of its own. It is open.
    pub(crate) file: *mut File,
    /// `None` if it is not known for certain, or there is nothing to be ordered.
    pub(crate) fd: Option<RawFd>,
    /// It may have been made, or its size has changed, since it was last synchronised.
    pub(crate) resized: bool,
    /// What is written is an update that SQLite has begun, and takes back if it cannot be written.
    pub(crate) in_batch: bool,
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
            self.resized || self.fd.and_then(Descriptor::from_fd).is_none_or(|found| end > found.size);
        // SAFETY: the file is open, and the bytes are only read.
        self.settled(|real| unsafe {
            match ((*(*real).methods).write, c_int::try_from(bytes.len())) {
                (Some(write), Ok(length)) => write(real, bytes.as_ptr().cast(), length, offset),
                _ => IO_ERROR,
            }
        })
    }

    /// Makes it shorter or longer.
    ///
    /// # Errors
    /// The code for SQLite.
    pub(crate) fn truncate(&mut self, size: i64) -> Result<(), c_int> {
        self.resized = true;
        // SAFETY: the file is open.
        self.settled(|real| unsafe {
            (*(*real).methods).truncate.map_or(IO_ERROR, |truncate| truncate(real, size))
        })
    }

    /// Changes the file. An atomic one may refuse that for what is pending of it: there is no more room, or it may not
    /// become shorter. Outside of a batch, journals guard what is written, so what is pending goes into the mount's
    /// journal, and the change is made once more.
    fn settled(&self, change: impl Fn(*mut File) -> c_int) -> Result<(), c_int> {
        let mut done = change(self.file);
        if done != OK
            && !self.in_batch
            && let Some(fd) = self.fd
            && matches!(self.last_errno(), libc::EFBIG | libc::EBUSY)
            && weir::order_mounted(fd, FBARRIER) == Some(0)
        {
            done = change(self.file);
        }
        if done == OK { Ok(()) } else { Err(done) }
    }

    /// Why the system has failed a call last.
    fn last_errno(&self) -> c_int {
        let mut errno: c_int = 0;
        // SAFETY: the file is open, and the argument of this operation is a number.
        unsafe {
            if let Some(control) = (*(*self.file).methods).file_control {
                control(self.file, FCNTL_LAST_ERRNO, (&raw mut errno).cast());
            }
        }
        errno
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
