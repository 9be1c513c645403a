//! An open file: a database, one of its journals, or another one. All of it in safe code; `methods` is what SQLite
//! sees.

use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::ops::Range;
use std::rc::Rc;

use rusqlite::ffi::{
    SQLITE_BUSY, SQLITE_FULL, SQLITE_IOERR_DIR_FSYNC, SQLITE_IOERR_FSTAT, SQLITE_IOERR_FSYNC,
    SQLITE_IOERR_LOCK, SQLITE_IOERR_READ, SQLITE_IOERR_SHMLOCK, SQLITE_IOERR_SHMMAP, SQLITE_IOERR_SHORT_READ,
    SQLITE_IOERR_TRUNCATE, SQLITE_IOERR_WRITE, SQLITE_LOCK_SHARED,
};
use weir_sqlite_syncs::{
    Batch, Finish, Mode, Pending, Sync, WAL_HEADER_BYTES, What, at_commit, at_sync, leaves_directory,
};
use weir_vfs::{InodeNumber, Promise, SyncCall};

use crate::fault::{Call, Fault};
use crate::home::{Home, of_write};
use crate::locks::{ConnectionId, Shared};

/// What a call answers: a code of SQLite where it fails.
pub(crate) type Answer<T = ()> = Result<T, c_int>;

/// What a file is.
pub(crate) enum Role {
    Database(Rc<Database>),
    /// The rollback journal of a database.
    Journal(Rc<Database>),
    /// The write-ahead log of a database.
    Wal(Rc<Database>),
    /// None of these: its syncs stay as they are.
    Other,
}

/// A connection's database.
#[derive(Default)]
pub(crate) struct Database {
    pub(crate) mode: Cell<Mode>,
    directory: Cell<InodeNumber>,
    pub(crate) journal: Cell<Option<InodeNumber>>,
    has_wal: Cell<bool>,
    pub(crate) with_super_journal: Cell<bool>,
    pending: Cell<Pending>,
    /// SQLite may write transactions without a journal. It stays as it is while one is being written.
    pub(crate) atomic: Cell<bool>,
    pub(crate) batch: Cell<Batch>,
    /// Something was written to the journal since it was last ordered.
    pub(crate) journal_unordered: Cell<bool>,
}

/// See the head of this file.
pub(crate) struct OpenFile {
    pub(crate) home: Rc<Home>,
    pub(crate) inode: InodeNumber,
    pub(crate) shared: Rc<Shared>,
    pub(crate) who: ConnectionId,
    role: Role,
    /// Bytes of the file, as far as it was written here.
    size: Cell<i64>,
    /// It may have been made, or its size has changed, since it was last synchronised.
    resized: Cell<bool>,
    /// Frames were written to the log since it was last synchronised.
    frames: Cell<bool>,
}

impl OpenFile {
    /// A file that was opened, and the directory that it was opened in.
    pub(crate) fn new(
        home: &Rc<Home>,
        role: Role,
        (inode, directory): (InodeNumber, InodeNumber),
    ) -> Answer<OpenFile> {
        let attributes = home.drive(home.filesystem.attributes(inode));
        let size = attributes.map_err(|failure| failure.code(SQLITE_IOERR_FSTAT))?.size;
        let shared = home.shared(inode);
        match &role {
            Role::Database(database) => {
                database.directory.set(directory);
                let atomic = home.drive(home.filesystem.is_atomic(inode));
                shared.atomic.set(atomic.map_err(|failure| failure.code(SQLITE_IOERR_FSTAT))?);
                database.atomic.set(shared.atomic.get());
            }
            Role::Journal(database) => database.journal.set(Some(inode)),
            Role::Wal(database) => database.has_wal.set(true),
            Role::Other => {}
        }
        Ok(OpenFile {
            home: Rc::clone(home),
            inode,
            shared,
            who: home.next(),
            role,
            size: Cell::new(i64::try_from(size).unwrap_or(i64::MAX)),
            // An empty file may be new.
            resized: Cell::new(size == 0),
            frames: Cell::new(false),
        })
    }

    /// The database that the file is, or belongs to.
    fn database(&self) -> Option<&Rc<Database>> {
        match &self.role {
            Role::Database(database) | Role::Journal(database) | Role::Wal(database) => Some(database),
            Role::Other => None,
        }
    }

    /// The database that the file is.
    pub(crate) fn as_database(&self) -> Option<&Rc<Database>> {
        if let Role::Database(database) = &self.role { Some(database) } else { None }
    }

    /// Closes everything. What could not be done is done by the next mount, and not reported.
    pub(crate) fn close(self) {
        self.roll_back_batch();
        self.shared.locks.unlock(self.who, 0);
        self.shared.index.unmap(self.who);
        match &self.role {
            Role::Journal(database) => {
                database.journal.set(None);
                let leaves = leaves_directory(database.mode.get(), database.pending.get());
                self.home.journal_closed(leaves.then_some(self.inode));
            }
            Role::Wal(database) => database.has_wal.set(false),
            Role::Database(_) | Role::Other => {}
        }
        let _ = self.home.drive(self.home.filesystem.release(self.inode));
    }

    /// Reads; what is behind the end is zeros, and said.
    pub(crate) fn read(&self, bytes: &mut [u8], offset: i64) -> Answer {
        self.home.check(Call::Read, SQLITE_IOERR_READ)?;
        let offset = u64::try_from(offset).map_err(|_| SQLITE_IOERR_READ)?;
        let read = self.home.drive(self.home.filesystem.read(self.inode, offset, bytes));
        let read = read.map_err(|_| SQLITE_IOERR_READ)?;
        bytes[read..].fill(0);
        if read < bytes.len() { Err(SQLITE_IOERR_SHORT_READ) } else { Ok(()) }
    }

    pub(crate) fn write(&self, bytes: &[u8], offset: i64) -> Answer {
        let end = offset.saturating_add(i64::try_from(bytes.len()).unwrap_or(i64::MAX));
        if end > self.size.get() {
            self.size.set(end);
            self.resized.set(true);
        }
        if end > WAL_HEADER_BYTES {
            self.frames.set(true);
        }
        let all = bytes.len();
        let bytes = match self.home.fault(Call::Write) {
            Some(Fault::Short) => &bytes[..all / 2],
            Some(Fault::NoSpace) => return Err(SQLITE_FULL),
            Some(Fault::Io) => return Err(SQLITE_IOERR_WRITE),
            Some(Fault::Dropped) | None => bytes,
        };
        let offset = u64::try_from(offset).map_err(|_| SQLITE_IOERR_WRITE)?;
        if let Role::Journal(database) = &self.role {
            database.journal_unordered.set(true);
        }
        let write = || self.home.drive(self.home.filesystem.write(self.inode, offset, bytes));
        let written = self.guarded(SQLITE_IOERR_WRITE, write)?;
        if written.map_err(of_write)? < all { Err(SQLITE_FULL) } else { Ok(()) }
    }

    pub(crate) fn truncate(&self, size: i64) -> Answer {
        self.home.check(Call::Truncate, SQLITE_IOERR_TRUNCATE)?;
        self.size.set(size);
        self.resized.set(true);
        let size = u64::try_from(size).map_err(|_| SQLITE_IOERR_TRUNCATE)?;
        let truncate = || self.home.drive(self.home.filesystem.truncate(self.inode, size));
        let done = self.guarded(SQLITE_IOERR_TRUNCATE, truncate)?;
        done.map_err(|failure| failure.code(SQLITE_IOERR_TRUNCATE))
    }

    pub(crate) fn size(&self) -> Answer<i64> {
        self.home.check(Call::Size, SQLITE_IOERR_FSTAT)?;
        let attributes = self.home.drive(self.home.filesystem.attributes(self.inode));
        let attributes = attributes.map_err(|failure| failure.code(SQLITE_IOERR_FSTAT))?;
        i64::try_from(attributes.size).map_err(|_| SQLITE_IOERR_FSTAT)
    }

    fn what(&self) -> Option<What> {
        Some(match &self.role {
            Role::Database(database) if database.batch.get() == Batch::Complete => What::Batch,
            Role::Database(database) if database.has_wal.get() => What::Checkpointed,
            Role::Database(database) => {
                What::Database { with_super_journal: database.with_super_journal.get() }
            }
            Role::Journal(_) => What::Journal,
            Role::Wal(_) => What::Wal { frames: self.frames.get() },
            Role::Other => return None,
        })
    }

    /// Synchronises the file, or orders it.
    pub(crate) fn synchronise(&self) -> Answer {
        let what = self.what();
        let mode = self.database().map_or(Mode::Off, |database| database.mode.get());
        let becomes = what.map_or(Sync::Real, |what| at_sync(mode, what));
        if let (Role::Database(database), Sync::Barrier) = (&self.role, becomes) {
            database.pending.set(match what {
                Some(What::Checkpointed | What::Batch) => database.pending.get(),
                _ if database.journal.get().is_some() => Pending::WithJournal,
                _ => Pending::Alone,
            });
        }
        if what == Some(What::Batch) {
            self.end_batch()?;
        }
        match self.home.fault(Call::Sync(what)) {
            Some(Fault::Dropped) => return Ok(()),
            Some(_) => return Err(SQLITE_IOERR_FSYNC),
            None => {}
        }
        let (fs, inode) = (&self.home.filesystem, self.inode);
        let promise = match becomes {
            Sync::Barrier => Promise::Ordered,
            Sync::Real => Promise::Durable,
        };
        let call = SyncCall::from_promise(promise, !self.resized.get());
        self.home.drive(fs.synchronise(inode, call)).map_err(|_| SQLITE_IOERR_FSYNC)?;
        self.resized.set(false);
        self.frames.set(false);
        if let Role::Journal(database) = &self.role {
            database.journal_unordered.set(false);
        }
        Ok(())
    }

    /// Makes a transaction durable that was committed, if that is still to be done.
    pub(crate) fn finish(&self) -> Answer {
        // Nothing was synchronised: it is not pending, but has to be there.
        self.end_batch()?;
        let Some(database) = self.as_database() else { return Ok(()) };
        let finish =
            at_commit(database.mode.get(), database.pending.take(), database.journal.get().is_some());
        if finish == Finish::Nothing {
            return Ok(());
        }
        let fs = &self.home.filesystem;
        let (inode, error) = match (finish, database.journal.get()) {
            (Finish::Journal, Some(journal)) => (journal, SQLITE_IOERR_FSYNC),
            (Finish::Directory, _) => (database.directory.get(), SQLITE_IOERR_DIR_FSYNC),
            _ => (self.inode, SQLITE_IOERR_FSYNC),
        };
        match self.home.fault(Call::Finish(finish)) {
            Some(Fault::Dropped) => return Ok(()),
            Some(_) => return Err(error),
            None => {}
        }
        let done = match finish {
            Finish::Directory => self.home.drive(fs.fsync(inode)),
            _ => self.home.drive(fs.fdatasync(inode)),
        };
        done.map_err(|_| error)
    }

    pub(crate) fn lock(&self, level: c_int) -> Answer {
        self.home.check(Call::Lock, SQLITE_IOERR_LOCK)?;
        if !self.shared.locks.lock(self.who, level) {
            return Err(SQLITE_BUSY);
        }
        if let (Role::Database(database), SQLITE_LOCK_SHARED) = (&self.role, level) {
            database.atomic.set(self.shared.atomic.get());
        }
        Ok(())
    }

    pub(crate) fn unlock(&self, level: c_int) {
        let _ = self.home.fault(Call::Unlock);
        self.roll_back_batch();
        self.shared.locks.unlock(self.who, level);
    }

    pub(crate) fn is_reserved(&self) -> bool {
        let _ = self.home.fault(Call::CheckLock);
        self.shared.locks.is_reserved()
    }

    /// A region of the index; null if it is not there and is not to be made.
    pub(crate) fn map(&self, region: usize, bytes: usize, make: bool) -> Answer<*mut c_void> {
        self.home.check(Call::Map, SQLITE_IOERR_SHMMAP)?;
        Ok(self.shared.index.map(self.who, region, bytes, make))
    }

    pub(crate) fn unmap(&self) {
        self.shared.index.unmap(self.who);
    }

    pub(crate) fn lock_index(&self, which: Range<usize>, exclusive: bool) -> Answer {
        self.home.check(Call::MapLock, SQLITE_IOERR_SHMLOCK)?;
        if self.shared.index.lock(self.who, which, exclusive) { Ok(()) } else { Err(SQLITE_BUSY) }
    }

    pub(crate) fn unlock_index(&self, which: Range<usize>) {
        let _ = self.home.fault(Call::MapUnlock);
        self.shared.index.unlock(self.who, which);
    }
}
