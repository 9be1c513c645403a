//! SQLite's shell as it is, without the extension.

use std::fs::{self, File};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use super::trial::{Trial, is_able, rounds, shell, synchronise};
use crate::support::{runs, text};

/// Journal modes of SQLite in which a COMMIT that returned is durable: with the shell as it is, without the extension.
/// DELETE is none: its commit is an unlink, and where the directory cannot be opened any more to synchronise that,
/// SQLite goes on as if it had been.
pub const JOURNALS: [&str; 3] = [
    "PRAGMA journal_mode=WAL; PRAGMA wal_autocheckpoint=20; PRAGMA synchronous=FULL;",
    "PRAGMA journal_mode=PERSIST; PRAGMA synchronous=FULL;",
    "PRAGMA journal_mode=TRUNCATE; PRAGMA synchronous=FULL;",
];

/// Bytes of a row, which no compression makes less.
pub const ROW_BYTES: u64 = 700;

/// Makes a database with an empty table.
pub fn make(root: &Path, name: &str, journal: &str) {
    runs(&mut shell(root, &format!("sqlite3 {name} '{journal} CREATE TABLE t(writer, a, b)'")));
}

/// What starts two writers of a database, in the directory above the mount. Each says on a line of its own what is
/// committed.
pub fn writers(beside: &Path, name: &str, journal: &str, count: u64) -> Command {
    for writer in [1, 2] {
        let mut script = format!(".bail on\n.timeout 20000\n{journal}\n");
        for a in 1..=count {
            script += &format!(
                "INSERT INTO t VALUES({writer}, {a}, randomblob({ROW_BYTES}));\nSELECT 'done {a}';\n"
            );
        }
        fs::write(beside.join(format!("script{writer}")), script).unwrap();
        File::create(beside.join(format!("told{writer}"))).unwrap();
    }
    let line = format!(
        "cd mounted; sqlite3 {name} < ../script1 > ../told1 2>&1 & one=$!; \
         sqlite3 {name} < ../script2 > ../told2 2>&1; wait $one"
    );
    shell(beside, &line)
}

/// How many transactions each writer was told are committed.
pub fn told(beside: &Path) -> [u64; 2] {
    [1, 2].map(|writer| {
        let told = text(&fs::read(beside.join(format!("told{writer}"))).unwrap());
        told.lines().filter_map(|line| line.strip_prefix("done ")?.parse().ok()).max().unwrap_or(0)
    })
}

/// How many rows of each writer are there, in a database that is not damaged: all from the first to the last.
pub fn found(root: &Path, name: &str) -> [u64; 2] {
    [1, 2].map(|writer| {
        let ask = format!(
            "sqlite3 {name} 'PRAGMA integrity_check; SELECT count(*), coalesce(max(a), 0), count(DISTINCT a) FROM t \
             WHERE writer = {writer}'"
        );
        let told = runs(&mut shell(root, &ask));
        let (sound, rows) = told.trim_end().split_once('\n').unwrap();
        let rows: Vec<u64> = rows.split('|').map(|number| number.parse().unwrap()).collect();
        assert_eq!((sound, rows[0], rows[0]), ("ok", rows[1], rows[2]), "{name}, writer {writer}");
        rows[0]
    })
}

/// Kills the server under two writers: what each was told, and what is found.
fn cut_writers(trial: &mut Trial, journal: &str) -> ([u64; 2], [u64; 2]) {
    trial.unharmed(|root| {
        for end in ["", "-wal", "-shm", "-journal"] {
            let _ = fs::remove_file(root.join(format!("cut{end}")));
        }
        make(root, "cut", journal);
        synchronise(root);
    });
    let beside = trial.place.path().to_owned();
    trial.cut(Duration::from_millis(800), writers(&beside, "cut", journal, 3000));
    let told = told(&beside);
    trial.acknowledged += told.iter().sum::<u64>();
    (told, trial.unharmed(|root| found(root, "cut")))
}

#[test]
fn two_shells_of_sqlite_share_a_database() {
    if !is_able("sqlite3") {
        return;
    }
    let mut trial = Trial::new("sqlite", "96M");
    trial.unharmed(|root| {
        for (nth, journal) in JOURNALS.iter().enumerate() {
            let name = format!("unharmed{nth}");
            make(root, &name, journal);
            runs(&mut writers(trial.place.path(), &name, journal, 20));
            assert_eq!((told(trial.place.path()), found(root, &name)), ([20, 20], [20, 20]), "{journal}");
        }
    });
    for round in 0..rounds() {
        let journal = JOURNALS[(round % 3) as usize];
        let (told, found) = cut_writers(&mut trial, journal);
        for (told, found) in told.iter().zip(found) {
            assert!((*told..=told + 1).contains(&found), "{journal} told {told}, found {found}");
        }
    }
    trial.end();
}

/// The check above sees what is lost where `fsync` only orders.
#[test]
fn a_mount_that_only_orders_is_found_out() {
    if !is_able("sqlite3") {
        return;
    }
    let mut trial = Trial::new("sqlite in order", "96M");
    trial.options = &["--sync", "order"];
    let is_seen = |trial: &mut Trial| {
        let (told, found) = cut_writers(trial, JOURNALS[0]);
        told.iter().zip(found).any(|(told, found)| found < *told)
    };
    assert!((0..20).any(|_| is_seen(&mut trial)), "nothing was lost");
}
