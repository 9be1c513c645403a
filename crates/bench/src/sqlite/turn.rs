//! A turn: inserts for some time.

use std::path::Path;
use std::time::Duration;

use weir_runtime::Handle;
use weir_sqlite_vfs::Mode;
use weir_sqlite_vfs::rusqlite::{self, Connection, OpenFlags, params};
use weir_volume::LossWindowSeen;

use crate::error::BenchError;
use crate::sqlite::way::{SqliteJournal, SqliteWay};

/// Bytes of the text in a row.
const TEXT_BYTES: usize = 100;

/// Inserts between two looks at the clock.
const INSERTS_PER_LOOK: u64 = 8;

/// One turn of one way.
#[derive(Clone, Copy, Debug)]
pub(super) struct SqliteTurn {
    pub(super) way: SqliteWay,
    pub(super) inserts: u64,
    pub(super) elapsed: Duration,
    pub(super) loss_window: Option<LossWindowSeen>,
}

impl SqliteTurn {
    pub(super) fn rate(&self) -> f64 {
        self.inserts as f64 / self.elapsed.as_secs_f64().max(1e-9)
    }
}

/// Opens a database on a filesystem of the kernel: with SQLite's own VFS, or with the extension's.
pub(super) fn open(path: &Path, way: SqliteWay) -> rusqlite::Result<Connection> {
    let flags =
        OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let vfs = if way.mode == Mode::Off { "unix" } else { "weir" };
    Connection::open_with_flags_and_vfs(path, flags, vfs)
}

/// Makes the table, and inserts until the time is over; how many, and how long it took.
pub(super) fn insert(
    connection: &Connection,
    way: SqliteWay,
    clock: &Handle,
    time: Duration,
) -> rusqlite::Result<(u64, Duration)> {
    let set = match way.journal {
        SqliteJournal::BatchAtomic => "weir_atomic = 1".to_owned(),
        journal => format!("journal_mode = {}", journal.name()),
    };
    let synchronous = way.synchronous.name();
    connection.execute_batch(&format!(
        "PRAGMA {set}; PRAGMA synchronous = {synchronous};
         CREATE TABLE message(id INTEGER PRIMARY KEY, sent INTEGER, text TEXT);"
    ))?;
    let mut insert = connection.prepare("INSERT INTO message(sent, text) VALUES(?1, ?2)")?;
    let text = "m".repeat(TEXT_BYTES);
    let start = clock.now();
    let mut inserts: u64 = 0;
    loop {
        for _ in 0..INSERTS_PER_LOOK {
            insert.execute(params![inserts.cast_signed(), text])?;
            inserts += 1;
        }
        if clock.now().since(start) >= time {
            break;
        }
    }
    // What was only ordered is made durable by one more, and that is timed, too.
    if way.mode == Mode::Order {
        connection.query_row("PRAGMA weir = 'durable'", [], |_| Ok(()))?;
        insert.execute(params![inserts.cast_signed(), text])?;
        inserts += 1;
    }
    Ok((inserts, clock.now().since(start)))
}

/// Checks a database that was opened anew: it is whole, and every insert is there.
pub(super) fn check(connection: &Connection, inserts: u64) -> Result<(), BenchError> {
    let whole: String = connection.query_row("PRAGMA integrity_check", [], |row| row.get(0))?;
    let found: i64 = connection.query_row("SELECT count(*) FROM message", [], |row| row.get(0))?;
    if whole == "ok" && found.cast_unsigned() == inserts {
        return Ok(());
    }
    Err(BenchError::Database { found: found.cast_unsigned(), inserts, whole })
}
