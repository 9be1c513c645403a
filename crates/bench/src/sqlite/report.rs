//! What the benchmark of SQLite found.

use std::collections::BTreeMap;

use serde::Serialize;
use weir_sqlite_vfs::Mode;

use crate::filesystem::FsPlan;
use crate::sqlite::turn::SqliteTurn;
use crate::sqlite::way::{JOURNALS, SqliteJournal, SqlitePlace, SqliteWay, Synchronous};
use crate::statistics::Spread;
use crate::summary::{LossWindowReport, Setting, medians};

/// A ratio of this benchmark: of one journal mode, or the smallest over several.
#[derive(Clone, Copy, Debug)]
pub struct SqliteRatio {
    /// The name that scripts rely on.
    pub name: &'static str,
    /// What is divided by what.
    pub title: &'static str,
    /// What it means.
    pub meaning: &'static str,
    /// Whose inserts a second are divided.
    over: (SqlitePlace, Mode),
    /// By whose.
    under: (SqlitePlace, Mode),
    journals: &'static [SqliteJournal],
    /// The first has this one instead.
    instead: Option<SqliteJournal>,
}

/// All ratios, in the order in which they are told.
pub const SQLITE_RATIOS: [SqliteRatio; 7] = [
    SqliteRatio {
        name: "order_in_process_vs_tmpfs",
        title: "order: in process / in memory",
        meaning: "inserts in order, in process, over the same in memory: PERSIST; neither is durable at once, and only the first is after the loss window",
        over: (SqlitePlace::InProcess, Mode::Order),
        under: (SqlitePlace::Tmpfs, Mode::Off),
        journals: &[SqliteJournal::Persist],
        instead: None,
    },
    SqliteRatio {
        name: "order_in_process_vs_host",
        title: "order in process / host FULL",
        meaning: "inserts in order, in process, over durable ones on the host's filesystem: PERSIST; see the loss window",
        over: (SqlitePlace::InProcess, Mode::Order),
        under: (SqlitePlace::Host, Mode::Off),
        journals: &[SqliteJournal::Persist],
        instead: None,
    },
    SqliteRatio {
        name: "order_mount_vs_host",
        title: "order on a mount / host FULL",
        meaning: "inserts in order, on a mount, over durable ones on the host's filesystem: PERSIST; see the loss window",
        over: (SqlitePlace::Mount, Mode::Order),
        under: (SqlitePlace::Host, Mode::Off),
        journals: &[SqliteJournal::Persist],
        instead: None,
    },
    SqliteRatio {
        name: "durable_vs_host",
        title: "durable: in process / host FULL",
        meaning: "durable inserts in process over those on the host's filesystem: the smallest of all journal modes",
        over: (SqlitePlace::InProcess, Mode::Durable),
        under: (SqlitePlace::Host, Mode::Off),
        journals: &JOURNALS,
        instead: None,
    },
    SqliteRatio {
        name: "durable_mount_vs_host",
        title: "durable: on a mount / host FULL",
        meaning: "durable inserts on a mount over those on the host's filesystem: the smallest of all journal modes",
        over: (SqlitePlace::Mount, Mode::Durable),
        under: (SqlitePlace::Host, Mode::Off),
        journals: &JOURNALS,
        instead: None,
    },
    SqliteRatio {
        name: "batch_atomic_vs_persist",
        title: "durable in process: no journal / PERSIST",
        meaning: "durable inserts in process, without a journal over with one that is kept: an atomic database against PERSIST",
        over: (SqlitePlace::InProcess, Mode::Durable),
        under: (SqlitePlace::InProcess, Mode::Durable),
        journals: &[SqliteJournal::Persist],
        instead: Some(SqliteJournal::BatchAtomic),
    },
    SqliteRatio {
        name: "batch_atomic_vs_wal",
        title: "durable in process: no journal / WAL",
        meaning: "durable inserts in process, without a journal over with a write-ahead log",
        over: (SqlitePlace::InProcess, Mode::Durable),
        under: (SqlitePlace::InProcess, Mode::Durable),
        journals: &[SqliteJournal::Wal],
        instead: Some(SqliteJournal::BatchAtomic),
    },
];

impl SqliteRatio {
    /// Both sides are measured in every round: pair them. Of several journal modes, that with the smallest median.
    fn spread(&self, turns: &[SqliteTurn]) -> Option<Spread> {
        let of = |(place, mode), journal| -> Vec<f64> {
            let way = match mode {
                Mode::Off => SqliteWay::stock(place, journal, Synchronous::Full),
                mode => SqliteWay::weir(place, journal, mode),
            };
            turns.iter().filter(|turn| turn.way == way).map(SqliteTurn::rate).collect()
        };
        let spreads = self.journals.iter().filter_map(|journal| {
            let over = of(self.over, self.instead.unwrap_or(*journal));
            Spread::of_ratios(&over, &of(self.under, *journal))
        });
        spreads.min_by(|one, other| one.median.total_cmp(&other.median))
    }
}

/// The result; serialised, it is the document that scripts read.
#[derive(Clone, Debug, Serialize)]
pub struct SqliteReport {
    /// What was run, and where. The seed decides nothing here but names.
    #[serde(flatten)]
    pub setting: Setting<FsPlan>,
    /// The ratios by name; those of places that were not to be had are missing.
    pub ratios: BTreeMap<&'static str, f64>,
    /// Their medians, smallest and largest values over the rounds.
    pub ratios_spread: BTreeMap<&'static str, Spread>,
    /// The ways, in the order of a round.
    pub ways: Vec<SqliteWayReport>,
}

/// The figures of one way.
#[derive(Clone, Debug, Serialize)]
pub struct SqliteWayReport {
    /// Its name.
    pub name: String,
    /// Where the database is.
    pub place: SqlitePlace,
    /// The journal mode.
    pub journal: SqliteJournal,
    /// What is synchronised.
    pub synchronous: Synchronous,
    /// That, or what Weir makes of SQLite's syncs: `FULL`, `NORMAL`, `OFF`, `durable`, `order`.
    pub syncs: String,
    /// Whether a COMMIT that has returned is durable.
    pub durable: bool,
    /// Inserts a second.
    pub inserts_per_second: Spread,
    /// The largest loss window seen in the way's turns, where COMMIT only orders.
    pub loss_window: Option<LossWindowReport>,
}

impl SqliteReport {
    pub(super) fn new(setting: Setting<FsPlan>, turns: &[SqliteTurn]) -> SqliteReport {
        let spreads: BTreeMap<_, _> =
            SQLITE_RATIOS.iter().filter_map(|ratio| Some((ratio.name, ratio.spread(turns)?))).collect();
        SqliteReport {
            setting,
            ratios: medians(&spreads),
            ratios_spread: spreads,
            ways: SqliteWay::all().into_iter().filter_map(|way| SqliteWayReport::new(way, turns)).collect(),
        }
    }
}

impl SqliteWayReport {
    fn new(way: SqliteWay, turns: &[SqliteTurn]) -> Option<SqliteWayReport> {
        let turns: Vec<&SqliteTurn> = turns.iter().filter(|turn| turn.way == way).collect();
        let windows = turns.iter().filter_map(|turn| turn.loss_window);
        Some(SqliteWayReport {
            name: way.name(),
            place: way.place,
            journal: way.journal,
            synchronous: way.synchronous,
            syncs: way.syncs(),
            durable: way.is_durable(),
            inserts_per_second: Spread::of(turns.iter().map(|turn| turn.rate()))?,
            loss_window: LossWindowReport::of(windows),
        })
    }
}
