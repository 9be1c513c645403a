//! *Inserts*: what a program asks of SQLite again and again.

use std::fmt;

use serde::Deserialize;
use weir_sqlite_vfs::Mode;

use crate::calls::On;

/// A program that inserts one row after the other, each in a transaction of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Inserts {
    /// On which filesystem.
    pub on: On,
    /// How a transaction is kept whole.
    pub journal: Journal,
    /// How much SQLite synchronises.
    #[serde(default)]
    pub synchronous: Synchronous,
    /// What SQLite's syncs are.
    pub syncs: Syncs,
    /// What it inserts into.
    #[serde(default)]
    pub table: Table,
    /// What the program itself does between two inserts, in microseconds of its core: nothing, unless a what-if says so.
    #[serde(default)]
    pub program_us: u32,
}

/// The table that a program inserts into.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Table {
    /// Its rows are numbered by SQLite as it likes.
    #[default]
    Plain,
    /// `AUTOINCREMENT`, as the table of Mobibench, the benchmark of the FAST 2018 paper's laboratory: each insert changes a
    /// page of `sqlite_sequence`, too.
    Autoincrement,
}

/// SQLite's journal mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Journal {
    /// A rollback journal that is made anew and deleted.
    Delete,
    /// A rollback journal that is cut to nothing.
    Truncate,
    /// A rollback journal whose header is zeroed.
    Persist,
    /// A write-ahead log, checkpointed at 1,000 pages.
    Wal,
}

/// How much SQLite synchronises: `PRAGMA synchronous`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Synchronous {
    /// Its default.
    #[default]
    Full,
    /// The directory, too, when a journal was deleted from it.
    Extra,
}

/// What SQLite's syncs are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Syncs {
    /// All of them `fdatasync`, as SQLite by itself has it.
    Stock,
    /// All of them `fsync`, as SQLite has it where it was not told that `fdatasync` can be trusted.
    Whole,
    /// Those that are for order `fdatabarrier`, and one `fdatasync` at the end.
    Durable,
    /// All of them `fdatabarrier`.
    Order,
}

impl Journal {
    /// Its name in `PRAGMA journal_mode`.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Journal::Delete => "DELETE",
            Journal::Truncate => "TRUNCATE",
            Journal::Persist => "PERSIST",
            Journal::Wal => "WAL",
        }
    }
}

impl Synchronous {
    /// Its name in `PRAGMA synchronous`.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Synchronous::Full => "FULL",
            Synchronous::Extra => "EXTRA",
        }
    }
}

impl Table {
    /// The statement that makes it.
    pub(crate) fn statement(self) -> String {
        let numbered = if self == Table::Autoincrement { " AUTOINCREMENT" } else { "" };
        format!("CREATE TABLE message(id INTEGER PRIMARY KEY{numbered}, text TEXT NOT NULL, sent INTEGER)")
    }
}

impl Syncs {
    pub(crate) fn mode(self) -> Mode {
        match self {
            Syncs::Stock | Syncs::Whole => Mode::Off,
            Syncs::Durable => Mode::Durable,
            Syncs::Order => Mode::Order,
        }
    }
}

impl Inserts {
    /// Whether the call that deletes a journal synchronises its directory, too; if not, a later call does, or none.
    pub(crate) fn deletion_synchronises(self) -> bool {
        self.synchronous == Synchronous::Extra && self.syncs != Syncs::Durable
    }
}

impl fmt::Display for Inserts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let syncs = match self.syncs {
            Syncs::Stock => "syncs as they are",
            Syncs::Whole => "syncs of data and metadata",
            Syncs::Durable => "one sync a transaction, the others barriers",
            Syncs::Order => "syncs as barriers",
        };
        write!(f, "{}, SQLite in mode {}, {syncs}", self.on, self.journal.name())?;
        if self.table == Table::Autoincrement {
            f.write_str(", AUTOINCREMENT")?;
        }
        match self.program_us {
            0 => Ok(()),
            us => write!(f, ", {us} us between"),
        }
    }
}
