//! SQLite: what an insert costs that is a transaction, on the host's filesystem, in memory, on a mount of Weir and in
//! process.
//!
//! | noun | what it is |
//! |---|---|
//! | [`SqlitePlace`], [`SqliteWay`] | where a database is, and how its transactions are kept |
//! | [`sqlite`] | the benchmark: rounds that give every way a turn |
//! | [`SqliteReport`] | medians, ratios, and what may have been lost |
//!
//! All of it is the same SQLite, linked in, and the same program: one row of some hundred bytes a transaction. After
//! each turn the database is opened anew, checked by SQLite, and its rows counted.

mod bench;
mod report;
mod turn;
mod way;

pub use bench::{SqliteGrounds, sqlite};
pub use report::{SQLITE_RATIOS, SqliteRatio, SqliteReport, SqliteWayReport};
pub use way::{SqliteJournal, SqlitePlace, SqliteWay, Synchronous};
