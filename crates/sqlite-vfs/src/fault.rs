//! *Faults*: what may be made of SQLite's calls, to prove that it keeps its promises, or that a test notices when it
//! cannot.

use weir_sqlite_syncs::{Finish, What};

/// A call of SQLite.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    /// A file is opened, and made if need be.
    Open,
    /// A file is deleted.
    Delete,
    /// Whether a file is there.
    Access,
    /// Bytes are read.
    Read,
    /// Bytes are written.
    Write,
    /// A file is made shorter.
    Truncate,
    /// The size of a file.
    Size,
    /// A file is synchronised, or ordered; `None` if it is no database, journal or log.
    Sync(Option<What>),
    /// A transaction without a journal begins to be written.
    BeginBatch,
    /// All of it is written.
    CommitBatch,
    /// What was written to a journal is ordered before the database is changed without a sync between the two: where
    /// a transaction was begun without a journal, and needs one after all.
    Guard,
    /// A committed transaction is made durable.
    Finish(Finish),
    /// A lock on a database.
    Lock,
    /// It is given back, or lowered. This call cannot fail: no fault has an effect.
    Unlock,
    /// Whether another connection is about to write. This call cannot fail either.
    CheckLock,
    /// Memory for the index of a write-ahead log.
    Map,
    /// A lock on it.
    MapLock,
    /// That is given back. This call cannot fail either.
    MapUnlock,
}

impl Call {
    /// Whether SQLite hears of a failure: it gives locks back, and looks at them, whatever comes of it.
    #[must_use]
    pub fn can_fail(self) -> bool {
        !matches!(self, Call::Unlock | Call::CheckLock | Call::MapUnlock)
    }
}

/// What is made of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It fails with an I/O error, and nothing is done.
    Io,
    /// It fails for want of space, and nothing is done. Calls that need no space fail as by [`Fault::Io`].
    NoSpace,
    /// Half of the bytes are written, and then space is used up. Other calls fail as by [`Fault::Io`].
    Short,
    /// A [`Call::Sync`], [`Call::Guard`] or [`Call::Finish`] that says it was done, and was not. Other calls are done.
    Dropped,
}
