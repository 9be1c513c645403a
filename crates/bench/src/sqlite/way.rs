//! Where a database is, and how its transactions are kept.

use serde::Serialize;
use weir_sqlite_vfs::Mode;

/// Where a database is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum SqlitePlace {
    /// The host's filesystem.
    Host,
    /// The host's memory, as a filesystem: nothing is ever durable.
    Tmpfs,
    /// A mount of Weir, with the extension.
    Mount,
    /// BarrierFS in the same process.
    InProcess,
}

/// SQLite's journal mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum SqliteJournal {
    /// A rollback journal that is deleted.
    Delete,
    /// A rollback journal that is emptied.
    Truncate,
    /// A rollback journal whose header is zeroed.
    Persist,
    /// A write-ahead log.
    Wal,
    /// None: the database is an atomic file. Only where that is Weir's.
    BatchAtomic,
}

/// `PRAGMA synchronous`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Synchronous {
    /// A COMMIT is durable, but in journal mode DELETE.
    Full,
    /// In mode WAL, a COMMIT synchronises nothing.
    Normal,
    /// Nothing is synchronised.
    Off,
}

/// A database, and how its transactions are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SqliteWay {
    /// Where it is.
    pub place: SqlitePlace,
    /// How a transaction is kept whole.
    pub journal: SqliteJournal,
    /// What is synchronised.
    pub synchronous: Synchronous,
    /// What the syncs become; [`Mode::Off`] where SQLite is by itself.
    pub mode: Mode,
}

/// Every journal mode that keeps a transaction whole, on any filesystem.
pub(super) const JOURNALS: [SqliteJournal; 4] =
    [SqliteJournal::Delete, SqliteJournal::Truncate, SqliteJournal::Persist, SqliteJournal::Wal];

impl SqliteJournal {
    /// Its name in the pragma, if it has one there.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            SqliteJournal::BatchAtomic => "BATCH_ATOMIC",
            SqliteJournal::Delete => "DELETE",
            SqliteJournal::Truncate => "TRUNCATE",
            SqliteJournal::Persist => "PERSIST",
            SqliteJournal::Wal => "WAL",
        }
    }
}

impl Synchronous {
    /// Its name in the pragma.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Synchronous::Full => "FULL",
            Synchronous::Normal => "NORMAL",
            Synchronous::Off => "OFF",
        }
    }
}

impl SqlitePlace {
    /// The name that scripts rely on.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            SqlitePlace::Host => "host",
            SqlitePlace::Tmpfs => "tmpfs",
            SqlitePlace::Mount => "mount",
            SqlitePlace::InProcess => "in_process",
        }
    }
}

impl SqliteWay {
    /// SQLite by itself.
    pub(crate) const fn stock(
        place: SqlitePlace,
        journal: SqliteJournal,
        synchronous: Synchronous,
    ) -> SqliteWay {
        SqliteWay { place, journal, synchronous, mode: Mode::Off }
    }

    /// With barriers.
    pub(crate) const fn weir(place: SqlitePlace, journal: SqliteJournal, mode: Mode) -> SqliteWay {
        SqliteWay { place, journal, synchronous: Synchronous::Full, mode }
    }

    /// All ways, in the order of a round; a journal mode's are neighbours.
    #[must_use]
    pub fn all() -> Vec<SqliteWay> {
        let stock = [Synchronous::Full, Synchronous::Normal, Synchronous::Off];
        let each = |journal| {
            let host = stock.map(|synchronous| SqliteWay::stock(SqlitePlace::Host, journal, synchronous));
            let tmpfs = [SqliteWay::stock(SqlitePlace::Tmpfs, journal, Synchronous::Full)];
            let weir = [SqlitePlace::InProcess, SqlitePlace::Mount].into_iter().flat_map(move |place| {
                [Mode::Durable, Mode::Order].map(|mode| SqliteWay::weir(place, journal, mode))
            });
            host.into_iter().chain(tmpfs).chain(weir)
        };
        // After those with a rollback journal, which a transaction has that does not go without one.
        let [first @ .., last] = JOURNALS;
        let none = each(SqliteJournal::BatchAtomic).filter(|way| way.mode != Mode::Off);
        first.into_iter().flat_map(each).chain(none).chain(each(last)).collect()
    }

    /// The name that scripts rely on: place, journal mode, and what is synchronised.
    #[must_use]
    pub fn name(self) -> String {
        let [journal, syncs] = [self.journal.name(), &self.syncs()].map(str::to_lowercase);
        format!("{}_{journal}_{syncs}", self.place.name())
    }

    /// `PRAGMA synchronous`, or what Weir makes of SQLite's syncs.
    #[must_use]
    pub fn syncs(self) -> String {
        match self.mode {
            Mode::Off => self.synchronous.name().to_owned(),
            mode => mode.name().to_string_lossy().into_owned(),
        }
    }

    /// Whether a COMMIT that has returned is durable.
    #[must_use]
    pub fn is_durable(self) -> bool {
        match self.mode {
            Mode::Durable => true,
            Mode::Order => false,
            Mode::Off => {
                let synchronised = match self.journal {
                    SqliteJournal::Delete => false,
                    SqliteJournal::Truncate | SqliteJournal::Persist | SqliteJournal::BatchAtomic => {
                        self.synchronous != Synchronous::Off
                    }
                    SqliteJournal::Wal => self.synchronous == Synchronous::Full,
                };
                synchronised && self.place != SqlitePlace::Tmpfs
            }
        }
    }
}
