//! Power cuts under SQLite: real SQLite, in process, on a filesystem in virtual time. In each round of a run a program
//! commits numbered transactions, and at every event of the storage below the power is cut, on copies: what
//! is left is recovered by the layers below (firmware, volume, filesystem) and by SQLite, `integrity_check` has to
//! find nothing, and the database has to be, row for row, what some COMMIT has left. In mode `durable` it has every
//! transaction whose COMMIT has returned; in mode `order` it is any prefix. The next round begins
//! with what one of the cuts has left: recovery is cut, too, and may lose nothing then.
//!
//! Runs differ, each drawn by its seed: pages of 1 to 8 KiB; caches so small that pages go to the database before
//! the COMMIT; logs that are checkpointed after few pages; journals that are cut short; writeback early or never; which
//! journal a transaction has that should have none, and how often it needs one.
//!
//! With one sync of each transaction dropped, or on a storage that ignores barriers, it has to fail.

mod faults;
mod run;
mod script;
mod syncs;

use weir_fs::MountOptions;
use weir_sqlite_vfs::Mode;

use crate::FsGround;
use crate::campaign::{Campaign, Plan, Run, counts};
use crate::fs::ground::{Blocks, new_image};
use crate::named::named;
use run::SqliteRun;

pub use faults::{SqliteFaultTotals, SqliteFaults};
pub use syncs::SqliteSync;

named! {
    /// How SQLite keeps a transaction whole.
    SqliteJournal {
        /// A rollback journal that is deleted.
        Delete = "delete",
        /// A rollback journal that is truncated.
        Truncate = "truncate",
        /// A rollback journal whose header is zeroed.
        Persist = "persist",
        /// A write-ahead log.
        Wal = "wal",
        /// None: the database is an atomic file. Some transactions have a rollback journal all the same, because they are
        /// larger than the cache, or because the update fails, which some are made to do.
        BatchAtomic = "batch_atomic",
    }
}

/// A campaign on one journal mode, one promise and one ground.
#[derive(Clone, Debug)]
pub struct SqliteCampaign {
    /// How long it is.
    pub plan: Plan,
    /// SQLite's journal mode.
    pub journal: SqliteJournal,
    /// What COMMIT promises.
    pub mode: Mode,
    /// `synchronous = EXTRA`: the deletion of a journal is synchronised too. FULL otherwise.
    pub extra: bool,
    /// What the filesystem stands on. Without barriers, it has the legacy journal.
    pub ground: FsGround,
    /// The ground says that it keeps barriers, and ignores them: a negative control.
    pub ignores_barriers: bool,
    /// This sync is never done: a negative control.
    pub dropped: Option<SqliteSync>,
    /// How the filesystem behaves beside what each run draws: for mutants.
    pub options: MountOptions,
}

counts! {
    /// What a campaign did.
    pub struct SqliteTotals of rounds {
        /// Transactions committed.
        pub commits: u64,
    }
    largest {
        /// Acknowledged transactions that a state had lost, at most; 0 in mode `durable`.
        pub lost_max: u64,
    }
}

impl SqliteCampaign {
    /// A campaign without negative controls.
    #[must_use]
    pub fn new(journal: SqliteJournal, mode: Mode, ground: FsGround, plan: Plan) -> SqliteCampaign {
        SqliteCampaign {
            plan,
            journal,
            mode,
            extra: false,
            ground,
            ignores_barriers: false,
            dropped: None,
            options: MountOptions::default(),
        }
    }

    /// Whether a COMMIT that has returned is durable. Stock SQLite synchronises the deletion of a journal, which is the
    /// commit, only where it is told to.
    #[must_use]
    pub fn promises_durability(&self) -> bool {
        match self.mode {
            Mode::Durable => true,
            Mode::Order => false,
            Mode::Off => self.extra || self.journal != SqliteJournal::Delete,
        }
    }
}

impl Campaign for SqliteCampaign {
    type Totals = SqliteTotals;
    type Beginning = Blocks;

    fn plan(&self) -> Plan {
        self.plan
    }

    fn prepare(&self) -> Result<Blocks, String> {
        new_image(true)
    }

    fn play_run(&self, image: &Blocks, _number: u64, seed: u64) -> Run<SqliteTotals> {
        SqliteRun::play(self, image, seed)
    }
}
