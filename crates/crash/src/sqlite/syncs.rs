//! The syncs of a transaction, distinguished by their purpose: for negative controls.

use std::cell::Cell;

use weir_sqlite_vfs::{Call, What};

use crate::named::named;

named! {
    /// A sync of SQLite.
    SqliteSync {
        /// Of the rollback journal's pages, before its header counts them. SQLite can do without it: the header and the
        /// pages are both there before the database changes, and each page has a checksum.
        JournalContent = "journal-content",
        /// Of its header, before the database changes.
        JournalHeader = "journal-header",
        /// Of the database, before the journal ends.
        Database = "database",
        /// Of the journal that was truncated, or whose header was zeroed.
        JournalEnd = "journal-end",
        /// Of the database, after a transaction without a journal.
        Batch = "batch",
        /// What makes a committed transaction durable ([`weir_sqlite_vfs::Finish`]).
        Finish = "finish",
        /// Of a write-ahead log in which no frame is new: of its header when it begins anew, and of all of it before a
        /// checkpoint.
        LogHeader = "log-header",
        /// Of a write-ahead log with a transaction's frames.
        LogFrames = "log-frames",
        /// Of the database, before the log that was copied into it is used again.
        Checkpoint = "checkpoint",
    }
}

/// Distinguishes the syncs of one connection.
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
