//! What the clients write, so that whoever looks later knows what each row has to hold: what a client's transaction
//! changes follows from its number.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use super::Outcome;
use super::database::Database;
use super::server::Running;

/// Clients that commit at the same time.
pub const CLIENTS: u64 = 4;
/// Rows of each client in each table; with [`TEXT_BYTES`] several times what the server holds in memory.
pub const ROWS: u64 = 5_000;
/// Bytes of text in a row. An update keeps its length.
const TEXT_BYTES: u64 = 1_000;
/// After so many transactions a client's texts are the same again.
const LETTERS: u64 = 26;
/// The tables that each transaction changes.
pub const TABLES: [&str; 2] = ["a", "b"];
/// Rows of each table that a transaction changes: most of them are on pages of their own.
const CHANGES: u64 = 4;

/// A row of a table that a transaction of a client changes.
fn row(seed: u64, table: usize, client: u64, number: u64, nth: u64) -> u64 {
    let mut mixed = seed ^ (number << 16) ^ (client << 8) ^ (nth << 4) ^ table as u64;
    // The end of splitmix64.
    for (shift, factor) in [(30, 0xbf58_476d_1ce4_e5b9), (27, 0x94d0_49bb_1331_11eb)] {
        mixed = (mixed ^ (mixed >> shift)).wrapping_mul(factor);
    }
    client * ROWS + (mixed ^ (mixed >> 31)) % ROWS
}

/// Makes the tables, with every row as transaction 0 would leave it.
pub fn fill(server: &Running<'_>) -> Outcome<()> {
    let database = server.database();
    let mut sql = String::from("CREATE SCHEMA t; CREATE TABLE t.done(client INT PRIMARY KEY, n BIGINT);");
    sql += &format!("INSERT INTO t.done SELECT seq, 0 FROM {};", database.numbers_to(CLIENTS - 1));
    let (numbers, text) = (database.numbers_to(CLIENTS * ROWS - 1), database.text_of("0", TEXT_BYTES));
    for table in TABLES {
        sql += &format!("CREATE TABLE t.{table}(id INT PRIMARY KEY, n BIGINT, x TEXT);");
        sql += &format!("INSERT INTO t.{table} SELECT seq, 0, {text} FROM {numbers};");
    }
    server.ask(&sql).map(drop)
}

/// Asks which rows are there. Each line says the row, the transaction that wrote it, and whether its text is that one's.
pub fn question(database: &dyn Database, table: &str) -> String {
    let text = database.text_of("n", TEXT_BYTES);
    format!("SELECT id, n, CASE WHEN x = {text} THEN 1 ELSE 0 END FROM t.{table} ORDER BY id")
}

/// The answer that it must get when each client's transactions up to these numbers are there, and no other.
pub fn expected(seed: u64, table: usize, done: &[u64]) -> Vec<u64> {
    let mut rows = vec![0; (CLIENTS * ROWS) as usize];
    for (client, last) in (0..).zip(done) {
        for (number, nth) in (1..=*last).flat_map(|number| (0..CHANGES).map(move |nth| (number, nth))) {
            rows[row(seed, table, client, number, nth) as usize] = number;
        }
    }
    rows
}

fn transaction(texts: &[String], seed: u64, client: u64, number: u64) -> String {
    let mut sql = String::from("BEGIN;");
    let text = &texts[(number % LETTERS) as usize];
    for (which, table) in TABLES.iter().enumerate() {
        // One by one: MariaDB would read the whole table for a list.
        for id in (0..CHANGES).map(|nth| row(seed, which, client, number, nth)) {
            sql += &format!("UPDATE t.{table} SET n = {number}, x = {text} WHERE id = {id};");
        }
    }
    sql + &format!("UPDATE t.done SET n = {number} WHERE client = {client};COMMIT;SELECT {number};\n")
}

/// Clients that commit one transaction after the other, and note which the server has acknowledged; killed when dropped.
pub struct Clients {
    clients: Vec<(Child, PathBuf)>,
}

impl Clients {
    /// Has them go on behind the transactions `done`. Their notes go into a directory that no crash hits.
    pub fn start(server: &Running<'_>, beside: &Path, seed: u64, done: &[u64]) -> Outcome<Clients> {
        let texts: Vec<String> =
            (0..LETTERS).map(|number| server.database().text_of(&number.to_string(), TEXT_BYTES)).collect();
        let mut clients = Vec::new();
        for (client, last) in (0..).zip(done.iter().copied()) {
            let notes = beside.join(format!("acknowledged-{client}"));
            fs::write(&notes, format!("{last}\n"))?;
            let mut command = server.client();
            command.stdin(Stdio::piped()).stdout(File::options().append(true).open(&notes)?);
            let mut process = command.stderr(Stdio::null()).spawn()?;
            let mut input = process.stdin.take().ok_or("the client has no standard input")?;
            clients.push((process, notes));
            let texts = texts.clone();
            // Until the client has ended. The pipe bounds how far it runs ahead.
            std::thread::spawn(move || {
                (last + 1..).try_for_each(|number| {
                    input.write_all(transaction(&texts, seed, client, number).as_bytes())
                })
            });
        }
        Ok(Clients { clients })
    }

    /// The last transaction of each client that was acknowledged.
    pub fn acknowledged(&self) -> Outcome<Vec<u64>> {
        self.clients.iter().map(|(_, notes)| last_noted(notes)).collect()
    }

    /// Where the notes of each are.
    pub fn notes(&self) -> Vec<PathBuf> {
        self.clients.iter().map(|(_, notes)| notes.clone()).collect()
    }

    /// Stops them where they are, or lets them go on.
    pub fn pause(&self, paused: bool) -> Outcome<()> {
        for (process, _) in &self.clients {
            let signal = if paused { Signal::STOP } else { Signal::CONT };
            kill_process(Pid::from_child(process), signal)?;
        }
        Ok(())
    }

    /// The first that has ended by itself, if one has.
    pub fn ended(&mut self) -> Outcome<bool> {
        for (process, _) in &mut self.clients {
            if process.try_wait()?.is_some() {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// The last transaction in a client's notes.
pub fn last_noted(notes: &Path) -> Outcome<u64> {
    let told = fs::read_to_string(notes)?;
    // The last line may be cut off.
    let whole = told.rfind('\n').map_or("", |end| &told[..end]);
    Ok(whole.lines().next_back().ok_or("a client's notes are empty")?.parse()?)
}

impl Drop for Clients {
    fn drop(&mut self) {
        for (process, _) in &mut self.clients {
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}
