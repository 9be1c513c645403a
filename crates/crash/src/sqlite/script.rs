//! What a program does to its database: numbered transactions, and what the database holds after each.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use rand::Rng as _;
use weir_runtime::Random;
use weir_sqlite_vfs::Connection;
use weir_sqlite_vfs::rusqlite::{self, OptionalExtension as _, params};

use super::SqliteJournal;
use crate::content::mix;
use crate::options::pick;

/// Keys of the table.
const KEYS: u64 = 40;
/// Bytes of a value at most: more than a page, so that some have pages of their own.
const VALUE_BYTES_MAX: u64 = 6000;
/// Statements of a transaction at most.
const STATEMENTS_MAX: u64 = 5;

/// The tables, made by the first transaction.
const TABLES: &str = "CREATE TABLE state(one INTEGER PRIMARY KEY, number INTEGER);
    INSERT INTO state VALUES(1, 0);
    CREATE TABLE data(key INTEGER PRIMARY KEY, value BLOB, hash INTEGER);
    CREATE INDEX hashes ON data(hash);";

/// What a database holds: the number of the transaction that it is from, and a hash of all rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Content {
    pub(super) number: u64,
    pub(super) hash: u64,
}

/// Nothing: there is no database yet, or it is empty.
const NOTHING: Content = Content { number: 0, hash: 0 };

fn hash_of(number: u64, rows: impl Iterator<Item = (i64, u64)>) -> u64 {
    rows.fold(mix(1, number), |hash, (key, value)| mix(mix(hash, key.unsigned_abs()), value))
}

fn hash_of_value(value: &[u8]) -> u64 {
    let words = value.chunks(8).map(|word| word.iter().fold(0, |word, byte| word << 8 | u64::from(*byte)));
    words.fold(mix(2, value.len() as u64), mix)
}

/// Reads a database, and whether it is whole.
pub(super) fn read(connection: &Connection) -> Result<Content, String> {
    let whole: String =
        connection.query_row("PRAGMA integrity_check", [], |row| row.get(0)).map_err(told("checking"))?;
    if whole != "ok" {
        return Err(format!("integrity_check: {whole}"));
    }
    let made = "SELECT 1 FROM sqlite_schema WHERE name = 'state'";
    let made = connection.query_row(made, [], |_| Ok(())).optional().map_err(told("reading"))?;
    if made.is_none() {
        return Ok(NOTHING);
    }
    let number = "SELECT number FROM state";
    let number = connection.query_row(number, [], |row| row.get(0)).map_err(told("reading"))?;
    let number = i64::cast_unsigned(number);
    let mut select =
        connection.prepare("SELECT key, value FROM data ORDER BY key").map_err(told("reading"))?;
    let rows = select.query_map([], |row| Ok((row.get(0)?, hash_of_value(row.get_ref(1)?.as_bytes()?))));
    let rows: Vec<(i64, u64)> = rows.and_then(Iterator::collect).map_err(told("reading"))?;
    Ok(Content { number, hash: hash_of(number, rows.into_iter()) })
}

fn told(doing: &'static str) -> impl Fn(rusqlite::Error) -> String {
    move |error| format!("{doing}: {error}")
}

/// The rows of the table: hashes of values by their keys.
type Rows = BTreeMap<i64, u64>;

/// What a database held after each transaction whose COMMIT was begun.
pub(super) struct Past(Vec<(Content, Rows)>);

impl Default for Past {
    fn default() -> Past {
        Past(vec![(NOTHING, Rows::new())])
    }
}

impl Past {
    /// What the database held after a transaction.
    pub(super) fn content(&self, number: u64) -> Option<Content> {
        self.0.get(usize::try_from(number).ok()?).map(|(content, _)| *content)
    }

    /// The number of the transaction whose COMMIT was begun last.
    pub(super) fn begun(&self) -> u64 {
        self.0.len() as u64 - 1
    }

    /// Goes on after transaction `number`: those that came later never were.
    pub(super) fn go_back_to(&mut self, number: u64) {
        self.0.truncate(usize::try_from(number).unwrap_or(usize::MAX).saturating_add(1));
    }

    fn rows(&self) -> Rows {
        self.0.last().map(|(_, rows)| rows.clone()).unwrap_or_default()
    }
}

/// How a transaction ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// COMMIT returned.
    Committed,
    /// It was rolled back, as it was meant to be.
    RolledBack,
}

/// The transactions of a run.
pub(super) struct Script {
    random: Random,
    past: Rc<RefCell<Past>>,
    /// Whether some transactions are rolled back.
    pub(super) rolls_back: bool,
}

impl Script {
    /// Transactions that come after those of `past`, and are noted there.
    pub(super) fn new(random: Random, past: &Rc<RefCell<Past>>) -> Script {
        Script { random, past: Rc::clone(past), rolls_back: true }
    }

    /// Sets a connection up; what is drawn here is the same in all rounds of a run.
    pub(super) fn set_up(
        connection: &Connection,
        journal: SqliteJournal,
        extra: bool,
        settings: Settings,
    ) -> rusqlite::Result<()> {
        let synchronous = if extra { "EXTRA" } else { "FULL" };
        let Settings { page_bytes, cache_pages, checkpoint_pages, journal_bytes, instead } = settings;
        let is_atomic = journal == SqliteJournal::BatchAtomic;
        let journal = if is_atomic { instead } else { journal }.name();
        if is_atomic {
            connection.execute_batch("PRAGMA weir_atomic = 1")?;
        }
        connection.execute_batch(&format!(
            "PRAGMA page_size = {page_bytes}; PRAGMA cache_size = {cache_pages}; PRAGMA synchronous = {synchronous};
             PRAGMA journal_mode = {journal}; PRAGMA wal_autocheckpoint = {checkpoint_pages};
             PRAGMA journal_size_limit = {journal_bytes};"
        ))
    }

    /// One transaction.
    pub(super) fn step(&mut self, connection: &Connection) -> rusqlite::Result<End> {
        let (number, mut rows) = {
            let past = self.past.borrow();
            (past.begun() + 1, past.rows())
        };
        connection.execute_batch("BEGIN IMMEDIATE")?;
        if number == 1 {
            connection.execute_batch(TABLES)?;
        }
        for _ in 0..1 + self.random.below(STATEMENTS_MAX) {
            self.statement(connection, &mut rows)?;
        }
        connection.execute("UPDATE state SET number = ?1", [number.cast_signed()])?;
        if self.random.below(10) == 0 && self.rolls_back {
            connection.execute_batch("ROLLBACK")?;
            return Ok(End::RolledBack);
        }
        let hash = hash_of(number, rows.iter().map(|(key, value)| (*key, *value)));
        self.past.borrow_mut().0.push((Content { number, hash }, rows));
        connection.execute_batch("COMMIT")?;
        Ok(End::Committed)
    }

    fn statement(&mut self, connection: &Connection, rows: &mut Rows) -> rusqlite::Result<()> {
        let key = self.random.below(KEYS) as i64;
        if self.random.below(4) == 0 {
            connection.execute("DELETE FROM data WHERE key = ?1", [key])?;
            rows.remove(&key);
            return Ok(());
        }
        let most = pick(&mut self.random, &[60, 600, VALUE_BYTES_MAX]);
        let mut value = vec![0; self.random.below(most) as usize];
        self.random.fill_bytes(&mut value);
        let hash = hash_of_value(&value);
        let replace = "INSERT OR REPLACE INTO data VALUES(?1, ?2, ?3)";
        connection.execute(replace, params![key, value, hash.cast_signed()])?;
        rows.insert(key, hash);
        Ok(())
    }
}

/// How SQLite is set up.
#[derive(Clone, Copy, Debug)]
pub(super) struct Settings {
    page_bytes: u32,
    /// Few, and changed pages go to the database before the COMMIT.
    cache_pages: u32,
    checkpoint_pages: u32,
    journal_bytes: i64,
    /// The journal where there should be none.
    instead: SqliteJournal,
}

impl Settings {
    pub(super) fn draw(random: &mut Random) -> Settings {
        use SqliteJournal::{Delete, Persist, Truncate};
        Settings {
            page_bytes: pick(random, &[1024, 4096, 4096, 8192]),
            cache_pages: pick(random, &[2, 2000, 2000]),
            checkpoint_pages: pick(random, &[4, 16, 64]),
            journal_bytes: pick(random, &[-1, 0, 16_384]),
            // Drawn last, so that runs with a journal are what they were.
            instead: pick(random, &[Delete, Persist, Truncate]),
        }
    }
}
