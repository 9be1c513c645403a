//! The decisions.
//!
//! A *barrier* orders all that was written before it, to any file of the mount, before whatever is written later.
//! A *real* sync is SQLite's own: it makes durable, and all that was ordered before goes with it.
//!
//! | what is synchronised | `durable` | `order` |
//! |---|---|---|
//! | rollback journal | barrier | barrier |
//! | database, in a transaction | barrier; then one durable call, when the transaction is committed | barrier |
//! | database, after a batch | real: it is the one durable call | barrier |
//! | directory of a deleted journal (`EXTRA`) | nothing: it is that durable call | real |
//! | database, in a transaction with a super-journal | real | real |
//! | database, in a checkpoint of the write-ahead log | barrier | barrier |
//! | write-ahead log, frames were written | real | barrier |
//! | write-ahead log, nothing but its header, or nothing | barrier | barrier |
//! | anything else | real | real |
//!
//! - *Rollback journals.* The transaction is committed when its journal is deleted, truncated, or its header
//!   zeroed. SQLite tells the VFS afterwards, before it releases the lock and before COMMIT returns; there the one
//!   durable call is made, on what the journal's end was written to ([`Finish`]). It covers the journal and the
//!   database, which were ordered before.
//! - *Batches.* Where the database is an atomic file, SQLite writes a transaction without a journal, between the calls
//!   `BEGIN_ATOMIC_WRITE` and `COMMIT_ATOMIC_WRITE`: one update of the file, which a crash leaves whole or not at all.
//!   It ends with the sync, and not before: what makes the database as long as its pages say comes in between, and
//!   belongs to it. Nothing has to be ordered within the transaction, so the sync is what makes it durable, or only puts
//!   it in order.
//! - *Super-journals.* The transaction is committed when the super-journal is deleted, and that may be on another
//!   filesystem, where no barrier of this mount counts. So the database is durable before.
//! - *Checkpoints.* A checkpoint copies frames into the database, and the log is then used again from its start:
//!   its header and frames are overwritten, or it is deleted. What they held was durable and would be lost, if the
//!   copies were not on the medium before. They need not be when the checkpoint returns: they are ordered before
//!   whatever is written to the log later. This is right with order only; where a sync is to be replaced by nothing
//!   at all, it is not.

/// Bytes of the header of a write-ahead log; frames follow.
pub const WAL_HEADER_BYTES: i64 = 32;
/// Bytes of the header of a frame; its page follows.
pub const WAL_FRAME_HEADER_BYTES: i64 = 24;

/// What COMMIT promises.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mode {
    /// The transaction is durable (DR).
    #[default]
    Durable,
    /// The transaction is in order (OD): it is not lost without all later ones.
    Order,
    /// What SQLite by itself promises: every sync is real.
    Off,
}

impl Mode {
    /// Of a pragma's value, or a parameter's; `None` if no mode has that name.
    #[must_use]
    pub fn of_name(name: &[u8]) -> Option<Mode> {
        [Mode::Durable, Mode::Order, Mode::Off]
            .into_iter()
            .find(|mode| mode.name().to_bytes().eq_ignore_ascii_case(name))
    }

    /// Its name in a pragma and a parameter.
    #[must_use]
    pub fn name(self) -> &'static std::ffi::CStr {
        match self {
            Mode::Durable => c"durable",
            Mode::Order => c"order",
            Mode::Off => c"off",
        }
    }
}

/// What SQLite wants to have synchronised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// A database, without a write-ahead log.
    Database {
        /// The transaction has a super-journal.
        with_super_journal: bool,
    },
    /// A database, out of its write-ahead log.
    Checkpointed,
    /// A database, whose transaction was written as one update of the file, without a journal ([`Batch`]).
    Batch,
    /// A rollback journal.
    Journal,
    /// A write-ahead log.
    Wal {
        /// Something behind the header was written since it was last synchronised.
        frames: bool,
    },
}

/// What a sync becomes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sync {
    /// It orders.
    Barrier,
    /// It stays what it is.
    Real,
}

/// What a sync becomes.
#[must_use]
pub fn at_sync(mode: Mode, what: What) -> Sync {
    match (mode, what) {
        (Mode::Off, _)
        | (_, What::Database { with_super_journal: true })
        | (Mode::Durable, What::Batch | What::Wal { frames: true }) => Sync::Real,
        (Mode::Order | Mode::Durable, _) => Sync::Barrier,
    }
}

/// How far a transaction is that SQLite writes without a journal, to an atomic file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Batch {
    /// There is none: what is written is guarded by a journal.
    #[default]
    Nothing,
    /// The update was begun. What is written now belongs to it.
    Begun,
    /// SQLite has written all pages. The next sync ends the update; what is written until then belongs to it.
    Complete,
}

/// What a transaction has ordered and not made durable yet. Where SQLite synchronises nothing
/// (`PRAGMA synchronous = OFF`) there is nothing pending.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pending {
    /// Nothing.
    #[default]
    Nothing,
    /// The database, while a journal was open.
    WithJournal,
    /// The database, without a journal (journal modes MEMORY and OFF).
    Alone,
}

/// What is made durable at last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finish {
    /// Nothing.
    Nothing,
    /// The journal, whose header was zeroed, or which was truncated.
    Journal,
    /// The directory, from which the journal was deleted: without that, the journal would come back after a crash
    /// and undo the transaction, however durable the database is.
    Directory,
    /// The database.
    Database,
}

/// Whether the sync of the directory that a journal is deleted from (`PRAGMA synchronous = EXTRA`) is left to what comes
/// after the deletion: where that makes the directory durable, a second time is needless. Of SQLite's five syncs of such
/// a transaction, this is the only one that is there for durability (OPTR paper, section 4). Should the transaction be
/// rolled back after all, nothing comes after it: then the journal may come back, and undo once more what it has undone.
#[must_use]
pub fn leaves_directory(mode: Mode, pending: Pending) -> bool {
    at_commit(mode, pending, false) == Finish::Directory
}

/// What is to be done after a transaction without write-ahead log was committed.
#[must_use]
pub fn at_commit(mode: Mode, pending: Pending, journal_is_open: bool) -> Finish {
    match (mode, pending) {
        // A transaction that began with barriers is not left with them, though the mode was changed to `off`.
        (Mode::Order, _) | (_, Pending::Nothing) => Finish::Nothing,
        (_, Pending::WithJournal) if journal_is_open => Finish::Journal,
        (_, Pending::WithJournal) => Finish::Directory,
        (_, Pending::Alone) => Finish::Database,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EVERYTHING: [What; 7] = [
        What::Database { with_super_journal: false },
        What::Database { with_super_journal: true },
        What::Checkpointed,
        What::Batch,
        What::Journal,
        What::Wal { frames: true },
        What::Wal { frames: false },
    ];

    fn real(mode: Mode) -> Vec<What> {
        EVERYTHING.into_iter().filter(|what| at_sync(mode, *what) == Sync::Real).collect()
    }

    #[test]
    fn only_what_order_does_not_replace_stays_real() {
        let with_super_journal = What::Database { with_super_journal: true };
        assert_eq!(real(Mode::Durable), [with_super_journal, What::Batch, What::Wal { frames: true }]);
        assert_eq!(real(Mode::Order), [with_super_journal]);
        assert_eq!(real(Mode::Off), EVERYTHING);
    }

    #[test]
    fn a_transaction_is_made_durable_where_its_journal_ended() {
        let finish = |pending, journal_is_open| {
            [Mode::Durable, Mode::Order, Mode::Off].map(|mode| at_commit(mode, pending, journal_is_open))
        };
        let durable = |finish| [finish, Finish::Nothing, finish];
        assert_eq!(finish(Pending::WithJournal, true), durable(Finish::Journal));
        assert_eq!(finish(Pending::WithJournal, false), durable(Finish::Directory));
        assert_eq!(finish(Pending::Alone, false), durable(Finish::Database));
        for open in [true, false] {
            assert_eq!(finish(Pending::Nothing, open), durable(Finish::Nothing));
        }
    }

    #[test]
    fn a_directory_is_left_to_the_durable_call_on_it() {
        let modes = [Mode::Durable, Mode::Order, Mode::Off];
        assert_eq!(modes.map(|mode| leaves_directory(mode, Pending::WithJournal)), [true, false, true]);
        for pending in [Pending::Nothing, Pending::Alone] {
            assert_eq!(modes.map(|mode| leaves_directory(mode, pending)), [false; 3]);
        }
    }

    #[test]
    fn modes_have_names() {
        for mode in [Mode::Durable, Mode::Order, Mode::Off] {
            assert_eq!(Mode::of_name(mode.name().to_bytes()), Some(mode));
        }
        assert_eq!(Mode::of_name(b"ORDER"), Some(Mode::Order));
        assert_eq!(Mode::of_name(b"full"), None);
    }
}
