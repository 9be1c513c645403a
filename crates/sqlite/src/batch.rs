//! Databases that are atomic files on a mount: transactions that SQLite writes without a journal, as one update of the
//! file (`SQLITE_IOCAP_BATCH_ATOMIC`), and those that have one all the same.
//!
//! SQLite begins an update, writes all pages and says that these were all; the sync that follows ends it. Should
//! anything of that fail, because the update is too large, say, SQLite takes the update back, makes a journal and writes
//! the pages again. That journal it does not synchronise, so it is ordered here, before the database is changed.

use std::ffi::{CStr, c_int};

use weir::FBARRIER;
use weir_sqlite_syncs::Batch;

use crate::abi::{
    IO_ERROR, IO_ERROR_BEGIN_ATOMIC, IO_ERROR_COMMIT_ATOMIC, IO_ERROR_FSYNC, OK, OPEN_CREATE, SQLITE_ERROR,
    SYNC_NORMAL,
};
use crate::file::{Journal, OrderedFile, Role};

impl OrderedFile {
    /// What an open file has to know of atomic databases: whether it is one, or the journal of one. `size` and `flags`
    /// are those that it was opened with.
    ///
    /// # Safety
    /// As of `joins`, which comes before.
    pub(crate) unsafe fn joins_atomic(this: *mut OrderedFile, size: i64, flags: c_int) {
        // SAFETY: as the caller promises.
        let ours = unsafe { &mut *this };
        let fd = ours.real.fd;
        match &mut ours.role {
            Role::Database(database) => database.atomic = fd.is_some_and(weir::is_atomic),
            // SQLite may write it without a sync between its pages and the header that counts them. Where they are new
            // to the file they are there together; in the place of older ones they would not be.
            Role::Journal(_) => {
                let is_old = size > 0 && flags & OPEN_CREATE != 0 && ours.database().atomic;
                if let Role::Journal(journal) = &mut ours.role {
                    journal.is_old = is_old;
                }
            }
            Role::Wal(_) => {}
        }
    }

    /// Whether it is a database that is an atomic file.
    pub(crate) fn is_atomic(&self) -> bool {
        matches!(&self.role, Role::Database(database) if database.atomic)
    }

    fn batch(&self) -> Batch {
        if let Role::Database(database) = &self.role { database.batch } else { Batch::Nothing }
    }

    fn set_batch(&mut self, batch: Batch) {
        if let Role::Database(database) = &mut self.role {
            database.batch = batch;
        }
        self.real.in_batch = batch != Batch::Nothing;
    }

    /// What is written from now on is one update.
    pub(crate) fn begin_batch(&mut self) -> Result<(), c_int> {
        match self.real.fd.filter(|_| self.batch() == Batch::Nothing) {
            Some(fd) if weir::begin_update(fd) == 0 => {
                self.set_batch(Batch::Begun);
                Ok(())
            }
            _ => Err(IO_ERROR_BEGIN_ATOMIC),
        }
    }

    /// All pages of the update are written.
    pub(crate) fn commit_batch(&mut self) -> Result<(), c_int> {
        if self.batch() != Batch::Begun {
            return Err(IO_ERROR_COMMIT_ATOMIC);
        }
        self.set_batch(Batch::Complete);
        Ok(())
    }

    /// Ends the update, if it is complete: it is in the mount's journal as a whole.
    pub(crate) fn end_batch(&mut self) -> Result<(), c_int> {
        if self.batch() != Batch::Complete {
            return Ok(());
        }
        if self.real.fd.is_some_and(|fd| weir::end_update(fd) == 0) {
            self.set_batch(Batch::Nothing);
            return Ok(());
        }
        self.roll_back_batch();
        Err(IO_ERROR_COMMIT_ATOMIC)
    }

    /// Takes an update back that was not ended. SQLite does not hear of what fails: then there is none, or the mount
    /// takes it back when the file is closed.
    pub(crate) fn roll_back_batch(&mut self) {
        if self.batch() == Batch::Nothing {
            return;
        }
        self.set_batch(Batch::Nothing);
        let _ = self.real.fd.map(weir::abandon_update);
    }

    /// Of a database that is to be changed: what its journal holds back is written before. Of an atomic one, outside of a
    /// batch, it is ordered as well, if SQLite has not done that.
    pub(crate) fn order_journal(&mut self) -> Result<(), c_int> {
        let Role::Database(database) = &mut self.role else { return Ok(()) };
        database.put_journal_down()?;
        let Some(journal) = database.journal.filter(|_| database.atomic && database.batch == Batch::Nothing)
        else {
            return Ok(());
        };
        // SAFETY: it is open, and tells when it is closed; no other code has a reference to it.
        let file = unsafe { &mut *journal };
        let Role::Journal(Journal { unordered: true, .. }) = &file.role else { return Ok(()) };
        let (real, fd) = (file.real.file, file.real.fd);
        let done = match fd.and_then(|fd| weir::order_mounted(fd, FBARRIER)) {
            Some(done) => done,
            // SAFETY: the file is open.
            None => unsafe { (*(*real).methods).sync.map_or(IO_ERROR, |sync| sync(real, SYNC_NORMAL)) },
        };
        if done != OK {
            return Err(IO_ERROR_FSYNC);
        }
        if let Role::Journal(journal) = &mut file.role {
            journal.unordered = false;
        }
        Ok(())
    }

    /// What `PRAGMA weir_atomic` answers, and the code.
    pub(crate) fn atomic_pragma(&mut self, value: Option<&CStr>) -> (&'static CStr, c_int) {
        let set = match value.map(CStr::to_bytes) {
            None => Ok(()),
            Some(b"1") => self.set_atomic(true),
            Some(b"0") => self.set_atomic(false),
            Some(_) => Err(c"PRAGMA weir_atomic is 0 or 1"),
        };
        match set {
            Ok(()) => (if self.is_atomic() { c"1" } else { c"0" }, OK),
            Err(why) => (why, SQLITE_ERROR),
        }
    }

    fn set_atomic(&mut self, atomic: bool) -> Result<(), &'static CStr> {
        let (place, fd) = (self.database().place.is_some(), self.real.fd);
        let Some(fd) = fd.filter(|_| place) else {
            return Err(c"PRAGMA weir_atomic takes a database on a mount of Weir");
        };
        if self.is_writing {
            return Err(c"PRAGMA weir_atomic cannot be changed in a transaction");
        }
        if weir::set_atomic(fd, atomic) != 0 {
            return Err(c"PRAGMA weir_atomic: the mount refuses it; the database has to be your own");
        }
        self.database().atomic = atomic;
        Ok(())
    }
}
