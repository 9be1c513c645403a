//! The syncs of a transaction, told apart by what they are for: for negative controls.

use std::cell::Cell;

use weir_sqlite_vfs::{Call, What};

/// A sync of SQLite.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SqliteSync {
    /// Of the rollback journal's pages, before its header counts them. SQLite can do without it: the header and the
    /// pages are both there before the database changes, and each page has a checksum.
    JournalContent,
    /// Of its header, before the database changes.
    JournalHeader,
    /// Of the database, before the journal ends.
    Database,
    /// Of the journal that was truncated, or whose header was zeroed.
    JournalEnd,
    /// Of the database, after a transaction without a journal.
    Batch,
    /// What makes a committed transaction durable ([`weir_sqlite_vfs::Finish`]).
    Finish,
    /// Of a write-ahead log in which no frame is new: of its header when it begins anew, and of all of it before a
    /// checkpoint.
    LogHeader,
    /// Of a write-ahead log with a transaction's frames.
    LogFrames,
    /// Of the database, before the log that was copied into it is used again.
    Checkpoint,
}

impl SqliteSync {
    /// All of them.
    pub const ALL: [SqliteSync; 9] = [
        SqliteSync::JournalContent,
        SqliteSync::JournalHeader,
        SqliteSync::Database,
        SqliteSync::JournalEnd,
        SqliteSync::Batch,
        SqliteSync::Finish,
        SqliteSync::LogHeader,
        SqliteSync::LogFrames,
        SqliteSync::Checkpoint,
    ];

    /// Its name on a command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            SqliteSync::JournalContent => "journal-content",
            SqliteSync::JournalHeader => "journal-header",
            SqliteSync::Database => "database",
            SqliteSync::JournalEnd => "journal-end",
            SqliteSync::Batch => "batch",
            SqliteSync::Finish => "finish",
            SqliteSync::LogHeader => "log-header",
            SqliteSync::LogFrames => "log-frames",
            SqliteSync::Checkpoint => "checkpoint",
        }
    }
}

/// Tells the syncs of one connection apart.
#[derive(Default)]
pub(super) struct Watch {
    /// Syncs of the journal in this transaction: content and header take turns.
    journal: Cell<u32>,
    /// The database of this transaction was synchronised.
    database: Cell<bool>,
}

impl Watch {
    /// A transaction begins.
    pub(super) fn begin(&self) {
        self.journal.set(0);
        self.database.set(false);
    }

    /// Which sync a call is, if it is one.
    pub(super) fn see(&self, call: Call) -> Option<SqliteSync> {
        Some(match call {
            Call::Sync(Some(What::Journal)) if self.database.get() => SqliteSync::JournalEnd,
            Call::Sync(Some(What::Journal)) => match self.journal.replace(self.journal.get() + 1) % 2 {
                0 => SqliteSync::JournalContent,
                _ => SqliteSync::JournalHeader,
            },
            Call::Sync(Some(What::Database { .. })) => {
                self.database.set(true);
                SqliteSync::Database
            }
            Call::Sync(Some(What::Batch)) => SqliteSync::Batch,
            Call::Sync(Some(What::Wal { frames: false })) => SqliteSync::LogHeader,
            Call::Sync(Some(What::Wal { frames: true })) => SqliteSync::LogFrames,
            Call::Sync(Some(What::Checkpointed)) => SqliteSync::Checkpoint,
            Call::Finish(_) => SqliteSync::Finish,
            _ => return None,
        })
    }
}
