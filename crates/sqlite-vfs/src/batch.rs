//! Databases that are atomic files: transactions that SQLite writes without a journal, as one update of the file
//! (`SQLITE_IOCAP_BATCH_ATOMIC`), and those that have one all the same.
//!
//! SQLite begins an update, writes all pages and says that these were all; the sync that follows ends it. Should
//! anything of that fail by an I/O error, because the update is too large, say, SQLite takes the update back, makes a
//! journal and writes the pages again. That journal it does not synchronise, so it is ordered here
//! ([`guarded`](OpenFile::guarded)), before the database is changed.
//!
//! What is written with a journal, or out of a write-ahead log, is an update as well, since the file is atomic. But it
//! may be too large: then what there is of it so far goes into the filesystem's journal, which SQLite's guards as it
//! does everywhere.

use std::ffi::{CStr, c_int};

use rusqlite::ffi::{SQLITE_FULL, SQLITE_IOERR_BEGIN_ATOMIC, SQLITE_IOERR_COMMIT_ATOMIC, SQLITE_IOERR_FSYNC};
use weir_sqlite_syncs::Batch;

use crate::fault::{Call, Fault};
use crate::file::{Answer, Database, OpenFile};
use crate::home::Failure;

impl OpenFile {
    /// Makes the database an atomic file, or an ordinary one.
    ///
    /// # Errors
    /// The result for the caller that waits for it.
    pub(crate) fn set_atomic(&self, atomic: bool) -> Result<(), &'static CStr> {
        let Some(database) = self.as_database() else { return Ok(()) };
        if self.shared.locks.may_write(self.who) {
            return Err(c"PRAGMA weir_atomic cannot be changed in a transaction");
        }
        match self.home.drive(self.home.filesystem.set_atomic(self.inode, atomic)) {
            Ok(()) => {}
            Err(Failure::Pending) => return Err(c"another connection is writing to the database"),
            Err(_) => return Err(c"the filesystem could not change the database's attribute"),
        }
        self.shared.atomic.set(atomic);
        database.atomic.set(atomic);
        Ok(())
    }

    /// What is written from now on is one update.
    pub(crate) fn begin_batch(&self) -> Answer {
        self.home.check(Call::BeginBatch, SQLITE_IOERR_BEGIN_ATOMIC)?;
        let Some(database) = self.as_database().filter(|database| database.batch.get() == Batch::Nothing)
        else {
            return Err(SQLITE_IOERR_BEGIN_ATOMIC);
        };
        let begun = self.home.drive(self.home.filesystem.begin_update(self.inode));
        begun.map_err(|_| SQLITE_IOERR_BEGIN_ATOMIC)?;
        database.batch.set(Batch::Begun);
        Ok(())
    }

    /// All pages of the update are written.
    pub(crate) fn commit_batch(&self) -> Answer {
        self.home.check(Call::CommitBatch, SQLITE_IOERR_COMMIT_ATOMIC)?;
        match self.as_database() {
            Some(database) if database.batch.get() == Batch::Begun => {
                database.batch.set(Batch::Complete);
                Ok(())
            }
            _ => Err(SQLITE_IOERR_COMMIT_ATOMIC),
        }
    }

    /// Ends the update, if it is complete: it is in the filesystem's journal as a whole.
    pub(crate) fn end_batch(&self) -> Answer {
        let Some(database) = self.as_database().filter(|database| database.batch.get() == Batch::Complete)
        else {
            return Ok(());
        };
        match self.home.drive(self.home.filesystem.end_updates(&[self.inode])) {
            Ok(()) => database.batch.set(Batch::Nothing),
            Err(failure) => {
                self.roll_back_batch();
                return Err(failure.code(SQLITE_IOERR_COMMIT_ATOMIC));
            }
        }
        Ok(())
    }

    /// Takes an update back that was not ended. SQLite does not hear of what fails: then there is none.
    pub(crate) fn roll_back_batch(&self) {
        let Some(database) = self.as_database() else { return };
        if database.batch.replace(Batch::Nothing) != Batch::Nothing {
            let _ = self.home.drive(self.home.filesystem.abandon_update(self.inode));
        }
    }

    /// Changes the file. An atomic one may need its update in the filesystem's journal before; not within a batch, which
    /// SQLite gives up then. So may a journal that was made in a directory whose files are atomic. `error` is the code
    /// where what comes before the change fails.
    pub(crate) fn guarded<T>(
        &self,
        error: c_int,
        change: impl Fn() -> Result<T, Failure>,
    ) -> Answer<Result<T, Failure>> {
        if let Some(database) = self.as_database().filter(|database| database.atomic.get()) {
            if database.batch.get() != Batch::Nothing {
                return Ok(change());
            }
            self.order_journal(database).map_err(|_| error)?;
        }
        match change() {
            Err(Failure::Pending) => {
                let ordered = self.home.drive(self.home.filesystem.fbarrier(self.inode));
                ordered.map_err(|failure| failure.code(error))?;
                Ok(change())
            }
            done => Ok(done),
        }
    }

    /// What the journal holds is there before what comes now.
    fn order_journal(&self, database: &Database) -> Answer {
        let Some(journal) = database.journal.get().filter(|_| database.journal_unordered.get()) else {
            return Ok(());
        };
        match self.home.fault(Call::Guard) {
            Some(Fault::Dropped) => return Ok(()),
            Some(Fault::NoSpace) => return Err(SQLITE_FULL),
            Some(_) => return Err(SQLITE_IOERR_FSYNC),
            None => {}
        }
        self.home.drive(self.home.filesystem.fbarrier(journal)).map_err(|_| SQLITE_IOERR_FSYNC)?;
        database.journal_unordered.set(false);
        Ok(())
    }
}
