//! Journals that SQLite has closed, and deletes next, where the transaction is made durable right after that.

use std::ffi::{CStr, CString};
use std::sync::{Mutex, PoisonError};

/// Their paths. Only the exclusive user of a database ends its journal, so no two threads use one path at a time.
#[derive(Default)]
pub(crate) struct LeavingJournals(Mutex<Vec<CString>>);

impl LeavingJournals {
    /// A journal is closed; whether its directory is made durable once it is deleted.
    pub(crate) fn closed(&self, path: &CStr, leaves_directory: bool) {
        self.take(path);
        if leaves_directory {
            // Nothing that panics is done under it.
            self.0.lock().unwrap_or_else(PoisonError::into_inner).push(path.to_owned());
        }
    }

    /// A file is deleted: whether it is such a journal, so that this need not make the directory durable.
    pub(crate) fn take(&self, path: &CStr) -> bool {
        let mut paths = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let before = paths.len();
        paths.retain(|journal| **journal != *path);
        paths.len() < before
    }
}
