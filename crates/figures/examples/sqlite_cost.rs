//! What SQLite's own instructions take for a transaction with one insert: the source of `sqlite_insert_us` in the hosts.
//!
//! ```text
//! cargo run --release -p weir-figures --example sqlite_cost -- /dev/shm
//! ```
//!
//! Real SQLite runs with its VFS for Unix in a directory in memory. Only the processor time that the process spends
//! outside the kernel is counted, so that calls into the kernel cost nothing: the figures charge them by class. `text`
//! is what figure 15 gives SQLite, `insert` the same without BEGIN and COMMIT, and `bound` a statement that was
//! prepared once.

use std::error::Error;
use std::time::Duration;

use weir_runtime::{Runtime, Simulation};
use weir_sqlite_vfs::rusqlite::{self, Connection};

/// Transactions of a measurement, and measurements of which the median is told.
const TRANSACTIONS: u32 = 40_000;
const ROUNDS: usize = 5;

/// The insert, with a text of 100 bytes, as Mobibench has it.
fn insert() -> String {
    format!("INSERT INTO message(text) VALUES('{}');", "m".repeat(100))
}

/// A program that has SQLite commit so many transactions.
type Program = fn(&Connection, u32) -> rusqlite::Result<()>;

fn text(connection: &Connection, transactions: u32) -> rusqlite::Result<()> {
    let transaction = format!("BEGIN; {} COMMIT;", insert());
    (0..transactions).try_for_each(|_| connection.execute_batch(&transaction))
}

fn alone(connection: &Connection, transactions: u32) -> rusqlite::Result<()> {
    let transaction = insert();
    (0..transactions).try_for_each(|_| connection.execute_batch(&transaction))
}

fn bound(connection: &Connection, transactions: u32) -> rusqlite::Result<()> {
    let mut statement = connection.prepare(&insert())?;
    (0..transactions).try_for_each(|_| statement.execute([]).map(drop))
}

#[allow(clippy::print_stdout, reason = "a program tells what it has measured")]
fn main() -> Result<(), Box<dyn Error>> {
    let directory = std::env::args().nth(1).unwrap_or_else(|| "/dev/shm".to_owned());
    let runtime = Runtime::simulated(Simulation::default());
    let handle = runtime.handle();
    let programs: [(&str, Program); 3] = [("text", text), ("insert", alone), ("bound", bound)];
    for journal in ["PERSIST", "WAL"] {
        for table in ["", " AUTOINCREMENT"] {
            for (name, program) in programs {
                let mut measured = Vec::new();
                for round in 0..ROUNDS {
                    let path = format!("{directory}/weir-sqlite-cost-{}-{round}", std::process::id());
                    let connection = Connection::open(&path)?;
                    connection.execute_batch(&format!(
                        "PRAGMA journal_mode = {journal}; PRAGMA synchronous = FULL; \
                         CREATE TABLE message(id INTEGER PRIMARY KEY{table}, text TEXT NOT NULL, sent INTEGER)"
                    ))?;
                    let before = handle.cpu_time().user;
                    program(&connection, TRANSACTIONS)?;
                    measured.push(handle.cpu_time().user - before);
                    drop(connection);
                    for end in ["", "-journal", "-wal", "-shm"] {
                        // Not all of them are there.
                        let _ = std::fs::remove_file(format!("{path}{end}"));
                    }
                }
                measured.sort();
                let each = |time: Duration| time.as_secs_f64() * 1e6 / f64::from(TRANSACTIONS);
                let [low, median, high] = [0, ROUNDS / 2, ROUNDS - 1].map(|nth| each(measured[nth]));
                println!("{journal}{table}, {name}: {median:.1} us ({low:.1} to {high:.1})");
            }
        }
    }
    Ok(())
}
