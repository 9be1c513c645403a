//! Journals that stay open between transactions.
//!
//! In the journal modes PERSIST and TRUNCATE, SQLite closes a journal after every transaction, and opens it twice for
//! the next one: to see whether it is hot (left by a crash, to be rolled back), and to write it. On a mount that is as
//! many trips to the server as the transaction itself. So the real file stays open, belongs to no connection, and is
//! used again if the path still leads to it. Journals of others are found as ever, since the path says so.

use std::ffi::{CStr, c_char};
use std::os::fd::BorrowedFd;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::abi::File;
use crate::mounted_database::{Descriptor, Identity};
use crate::real;

/// Room for an open file of the real VFS, that stays where it is. It is no box, as code that moves a box says that no code
/// has a pointer into it; and the real file's is in [`Real`](crate::real::Real).
pub(crate) struct Room(*mut [u64]);

impl Room {
    /// Of this many bytes, all of them zero.
    pub(crate) fn new(bytes: usize) -> Room {
        Room(Box::into_raw(vec![0; bytes.div_ceil(size_of::<u64>())].into()))
    }

    pub(crate) fn file(&mut self) -> *mut File {
        self.0.cast()
    }

    /// Closes the file.
    ///
    /// # Safety
    /// The file is open, and no code uses it again.
    pub(crate) unsafe fn close(mut self) {
        // SAFETY: as the caller promises.
        unsafe { real::close(self.file()) };
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        // SAFETY: it comes from a box, and the code that drops it has closed the file in it.
        drop(unsafe { Box::from_raw(self.0) });
    }
}

/// The name of a journal, for as long as the real file is open: the real VFS keeps the pointer that it is opened by, and
/// SQLite's own name goes with the connection. As SQLite's, it has zeros before it and behind it, by which SQLite finds
/// where names begin and end. It is no box, as [`Room`] is none.
pub(crate) struct Name(*mut [u8]);

const ZEROS: [u8; 4] = [0; 4];

impl Name {
    pub(crate) fn new(path: &CStr) -> Name {
        Name(Box::into_raw([&ZEROS, path.to_bytes(), &ZEROS].concat().into()))
    }

    pub(crate) fn as_ptr(&self) -> *const c_char {
        self.0.cast::<c_char>().wrapping_add(ZEROS.len())
    }

    pub(crate) fn path(&self) -> &CStr {
        // SAFETY: it comes from a box, is only read, and ends with a zero.
        unsafe { CStr::from_ptr(self.as_ptr()) }
    }
}

impl Drop for Name {
    fn drop(&mut self) {
        // SAFETY: it comes from a box, and the code that drops it has closed the file that has this name.
        drop(unsafe { Box::from_raw(self.0) });
    }
}

/// A journal that stays open. Its transaction has ended: it is empty, or its header is zeroed.
pub(crate) struct Kept {
    pub(crate) name: Name,
    pub(crate) descriptor: Descriptor,
    pub(crate) room: Room,
    /// The mount orders each write in place.
    pub(crate) orders_writes: bool,
    /// The database that it belonged to, as a number.
    pub(crate) of: usize,
}

impl Kept {
    /// Whether its path still leads to it.
    fn is_there(&self) -> bool {
        Identity::from_path(self.name.path()) == Some(self.descriptor.identity)
    }

    /// Whether there is nothing to be rolled back in it.
    fn is_cold(&self) -> bool {
        let mut first = [0];
        // SAFETY: the file is open as long as it is kept.
        let fd = unsafe { BorrowedFd::borrow_raw(self.descriptor.fd) };
        rustix::io::pread(fd, &mut first, 0).is_ok() && first == [0]
    }

    fn close(self) {
        // SAFETY: it is kept open, and its owner has it alone.
        unsafe { self.room.close() }
    }
}

/// The journals that are kept: one a path, of connections that are open.
#[derive(Default)]
pub(crate) struct KeptJournals(Mutex<Vec<Kept>>);

impl KeptJournals {
    fn lock(&self) -> MutexGuard<'_, Vec<Kept>> {
        // Nothing that panics is done under it.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn remove(&self, path: &CStr) -> Option<Kept> {
        let mut kept = self.lock();
        let at = kept.iter().position(|journal| journal.name.path() == path)?;
        Some(kept.swap_remove(at))
    }

    /// Keeps a journal.
    pub(crate) fn put(&self, journal: Kept) {
        let other = self.remove(journal.name.path());
        self.lock().push(journal);
        other.into_iter().for_each(Kept::close);
    }

    /// The journal that a path leads to, if it is kept.
    pub(crate) fn take(&self, path: &CStr) -> Option<Kept> {
        let journal = self.remove(path)?;
        // Other processes may have changed its size.
        match Descriptor::from_fd(journal.descriptor.fd).filter(|_| journal.is_there()) {
            Some(descriptor) => Some(Kept { descriptor, ..journal }),
            None => {
                journal.close();
                None
            }
        }
    }

    /// Whether a path leads to a journal that is kept, in which there is nothing to be rolled back.
    pub(crate) fn is_cold(&self, path: &CStr) -> bool {
        self.lock()
            .iter()
            .any(|journal| journal.name.path() == path && journal.is_there() && journal.is_cold())
    }

    /// Drops the journal of a path.
    pub(crate) fn close(&self, path: &CStr) {
        self.remove(path).into_iter().for_each(Kept::close);
    }

    /// Drops the journals of a database.
    pub(crate) fn close_of(&self, database: usize) {
        let closed: Vec<Kept> = self.lock().extract_if(.., |journal| journal.of == database).collect();
        closed.into_iter().for_each(Kept::close);
    }
}
