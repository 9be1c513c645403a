//! SQLite's shell with the extension, on a mount: what its transactions cost, and what is left of them when the
//! server is killed. Where FUSE or the shell is not to be had, these tests say that they were skipped.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::io::{Seek as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use crate::support::{Place, Server, is_there, library, mounts, text, weir_program, works};
use serde_json::Value;
use weir_sqlite_vfs::rusqlite::{Connection, OpenFlags};

/// Inserts of a test, each a transaction.
const INSERTS: u64 = 30;

/// Journal modes, with what is said before the first transaction. The write-ahead log starts anew several times.
const JOURNALS: [&str; 4] = [
    "PRAGMA journal_mode=DELETE;",
    "PRAGMA journal_mode=TRUNCATE;",
    "PRAGMA journal_mode=PERSIST;",
    "PRAGMA journal_mode=WAL; PRAGMA wal_autocheckpoint=10;",
];

/// Whether this machine can run these tests; says so if not.
fn is_able() -> bool {
    mounts() && is_there("sqlite3")
}

/// A volume that is mounted, and its server.
struct Mount {
    place: Place,
    server: Server,
}

impl Mount {
    /// None where this machine cannot run these tests, and says so.
    fn new() -> Option<Mount> {
        if !is_able() {
            return None;
        }
        let place = Place::with_volume("128M");
        let server = place.serve();
        Some(Mount { place, server })
    }

    fn path(&self) -> PathBuf {
        self.place.mountpoint()
    }

    fn status(&self) -> String {
        format!(".shell {} status --json {}", weir_program(), self.path().display())
    }

    fn kill(&self) -> String {
        format!(".shell kill -9 {}", self.server.process().id())
    }

    /// Starts the shell, with the extension. It stops at the first error.
    fn start(&self, lines: &[String]) -> Child {
        self.start_under(&[], lines)
    }

    /// The same, by way of another program.
    fn start_under(&self, before: &[&str], lines: &[String]) -> Child {
        let extension = library("libweir_sqlite.so");
        // From a file: a pipe would hold only some of it.
        let mut script = tempfile::tempfile().unwrap();
        writeln!(script, ".load {}\n{}", extension.display(), lines.join("\n")).unwrap();
        script.rewind().unwrap();
        let words = [before, &["sqlite3", "-bail", ":memory:"]].concat();
        Command::new(words[0])
            .args(&words[1..])
            .current_dir(self.path())
            .stdin(script)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap()
    }

    /// Runs the shell under strace, which writes down what `expression` says, or has it fail.
    fn traced(&self, trace: &Path, expression: &str, lines: &[String]) -> Output {
        let before = ["strace", "-o", trace.to_str().unwrap(), "-e", expression];
        self.start_under(&before, lines).wait_with_output().unwrap()
    }

    fn run(&self, lines: &[String]) -> Output {
        self.start(lines).wait_with_output().unwrap()
    }

    fn sql(&self, lines: &[String]) -> String {
        let output = self.run(lines);
        assert!(output.status.success(), "{lines:?}: {}", text(&output.stderr));
        text(&output.stdout)
    }

    /// The server was killed: mounts anew what it has left.
    fn again(&mut self) {
        self.server.wait();
        self.place.unmount();
        self.server = self.place.serve();
    }
}

/// Makes a database with an empty table, durable, and opens it.
fn open(name: &str, journal: &str, mode: &str) -> Vec<String> {
    let make = format!(".open file:{name}?weir=off\n{journal} CREATE TABLE t(a, b);");
    vec![make, format!(".open file:{name}?weir={mode}\n{journal}")]
}

/// Rows that make the database grow, now and then.
fn insert(a: u64) -> String {
    format!("INSERT INTO t VALUES({a}, zeroblob(500));")
}

/// The rows of a database that is not damaged: 1 to the number that is returned.
fn rows(mount: &Mount, name: &str) -> u64 {
    let count = "SELECT count(*) || ' ' || coalesce(max(a), 0) || ' ' || count(DISTINCT a) FROM t;";
    let told = mount.sql(&[format!(".open {name}\nPRAGMA integrity_check;\n{count}")]);
    let (sound, rows) = told.trim_end().split_once('\n').unwrap();
    assert_eq!(sound, "ok", "{name}");
    let rows: Vec<u64> = rows.split(' ').map(|number| number.parse().unwrap()).collect();
    assert_eq!((rows[0], rows[0]), (rows[1], rows[2]), "{name} is no prefix");
    rows[0]
}

/// Writes that a trace has of a shell, before the first program ended that was started by it.
fn writes_before_a_child_ends(trace: &Path) -> usize {
    let calls = fs::read_to_string(trace).unwrap();
    let before = calls.lines().take_while(|line| !line.contains("SIGCHLD"));
    before.filter(|line| line.starts_with("pwrite64")).count()
}

#[test]
fn a_transaction_costs_one_flush_or_none() {
    let Some(mount) = Mount::new() else { return };
    let flushes = |name: &str, mode: &str, journal: &str| {
        let mut lines = open(name, journal, mode);
        // The first one makes the journal.
        lines.extend([insert(1), mount.status()]);
        lines.extend((2..=INSERTS).map(insert));
        lines.push(mount.status());
        let told = mount.sql(&lines);
        let seen: Vec<u64> = told
            .lines()
            .filter_map(|line| serde_json::from_str::<Value>(line).ok()?["flushes"].as_u64())
            .collect();
        assert_eq!(rows(&mount, name), INSERTS);
        seen[1] - seen[0]
    };
    for (nth, journal) in JOURNALS.iter().enumerate() {
        let each = INSERTS - 1;
        assert_eq!(flushes(&format!("durable{nth}"), "durable", journal), each, "{journal}");
        assert_eq!(flushes(&format!("order{nth}"), "order", journal), 0, "{journal}");
        // More than that without the extension's doing: the counts above are its merit.
        let off = flushes(&format!("off{nth}"), "off", journal);
        assert!(off > each, "{journal}: {off}");
        // SQLite's own sync for durability is that flush.
        let extra = format!("{journal} PRAGMA synchronous=EXTRA;");
        assert_eq!(flushes(&format!("extra{nth}"), "durable", &extra), each, "{extra}");
        let unsynchronised = format!("{journal} PRAGMA synchronous=OFF;");
        assert_eq!(flushes(&format!("none{nth}"), "durable", &unsynchronised), 0, "{journal}");
    }
    assert_eq!(flushes("memory", "durable", "PRAGMA journal_mode=MEMORY;"), INSERTS - 1);
}

#[test]
fn what_was_acknowledged_survives_a_killed_server() {
    let Some(mut mount) = Mount::new() else { return };
    let mut lost = 0;
    for (nth, journal) in JOURNALS.iter().enumerate() {
        for mode in ["durable", "order"] {
            let name = format!("{mode}{nth}");
            let mut lines = open(&name, journal, mode);
            lines.extend((1..=INSERTS).map(insert));
            lines.push(mount.kill());
            let told = text(&mount.run(&lines).stderr);
            assert!(!told.contains("rror"), "{journal}: {told}");
            mount.again();
            match mode {
                "durable" => assert_eq!(rows(&mount, &name), INSERTS, "{journal}"),
                _ => lost += INSERTS - rows(&mount, &name),
            }
        }
    }
    // So there was something to lose.
    assert!(lost > 0);
}

#[test]
fn a_transaction_that_is_cut_is_there_or_not() {
    let Some(mut mount) = Mount::new() else { return };
    for (nth, journal) in JOURNALS.iter().enumerate() {
        for mode in ["durable", "order"] {
            let name = format!("{mode}{nth}");
            let mut lines = open(&name, journal, mode);
            lines.extend((1..=100_000).map(|a| format!("{} SELECT {a};", insert(a))));
            let writer = mount.start(&lines);
            let pages = || fs::metadata(mount.path().join(&name)).map_or(0, |found| found.len() / 4096);
            // Some transactions have been made.
            while pages() < 6 {
                std::hint::spin_loop();
            }
            mount.server.kill();
            let output = writer.wait_with_output().unwrap();
            assert!(!output.status.success());
            let told = text(&output.stdout);
            let acknowledged = told.lines().filter_map(|line| line.parse::<u64>().ok()).max().unwrap_or(0);
            mount.again();
            let left = rows(&mount, &name);
            let promised = if mode == "durable" { acknowledged } else { 0 };
            assert!((promised..=acknowledged + 1).contains(&left), "{mode} {journal} {acknowledged} {left}");
        }
    }
}

/// A program that dies has told the kernel less than it could, as pieces of journals wait for each other; what it has
/// told is enough, also where nothing is synchronised.
#[test]
fn a_program_that_is_killed_leaves_a_whole_database() {
    let Some(mount) = Mount::new() else { return };
    for (nth, journal) in JOURNALS.iter().enumerate() {
        for synchronous in ["FULL", "OFF"] {
            let name = format!("{synchronous}{nth}");
            let mut lines = open(&name, journal, "order");
            lines.push(format!("PRAGMA synchronous={synchronous};"));
            lines.extend((1..=100_000).map(|a| format!("{} SELECT {a};", insert(a))));
            let mut writer = mount.start(&lines);
            let pages = || fs::metadata(mount.path().join(&name)).map_or(0, |found| found.len() / 4096);
            while pages() < 6 {
                std::hint::spin_loop();
            }
            writer.kill().unwrap();
            let told = text(&writer.wait_with_output().unwrap().stdout);
            // It may have been killed in the middle of a line.
            let whole = told.rfind('\n').map_or("", |end| &told[..end]);
            let acknowledged = whole.lines().filter_map(|line| line.parse::<u64>().ok()).max().unwrap_or(0);
            let left = rows(&mount, &name);
            assert!(left >= acknowledged, "{journal} {synchronous}: {left} of {acknowledged}");
        }
    }
}

/// The journal is with the kernel before the database is changed, also where nothing is synchronised.
#[test]
fn a_program_that_is_killed_in_a_transaction_leaves_its_journal() {
    let Some(mount) = Mount::new() else { return };
    for journal in &JOURNALS[..3] {
        let name = journal.rsplit('=').next().unwrap().trim_end_matches(';');
        let mut lines = open(name, journal, "order");
        lines.extend((1..=INSERTS).map(insert));
        // The cache is too small for the transaction, so pages of the database are written before its end.
        lines.push("PRAGMA synchronous=OFF; PRAGMA cache_size=2;".to_owned());
        lines.push("BEGIN; UPDATE t SET b=zeroblob(900);\n.shell kill -9 $PPID".to_owned());
        let content = || fs::read(mount.path().join(name)).unwrap();
        assert!(!mount.run(&lines).status.success());
        let changed = content();
        assert_eq!(rows(&mount, name), INSERTS, "{journal}");
        let told = mount.sql(&[format!(".open {name}\nSELECT sum(length(b)) FROM t;")]);
        assert_eq!(told.trim(), "15000", "{journal}");
        assert!(content() != changed, "{journal}: nothing was rolled back");
    }
}

#[test]
fn a_transaction_that_is_undone_finds_its_journal() {
    let Some(mount) = Mount::new() else { return };
    for (nth, journal) in JOURNALS.iter().enumerate() {
        let name = format!("a{nth}");
        let mut lines = open(&name, journal, "order");
        lines.extend((1..=INSERTS).map(insert));
        // With a cache of two pages, the database has been written to when it is undone; with a large one it has not.
        for pages in [2, 1000] {
            lines.push(format!(
                "PRAGMA cache_size={pages}; BEGIN; UPDATE t SET b=zeroblob(900); SAVEPOINT s;"
            ));
            lines.push(
                "DELETE FROM t WHERE a % 2; ROLLBACK TO s; SELECT count(*), sum(length(b)) FROM t;"
                    .to_owned(),
            );
            lines.push("ROLLBACK; SELECT count(*), sum(length(b)) FROM t;".to_owned());
        }
        let told = mount.sql(&lines);
        let counted: Vec<&str> = told.lines().filter(|line| line.contains('|')).collect();
        assert_eq!(counted, ["30|27000", "30|15000", "30|27000", "30|15000"], "{journal}");
        assert_eq!(rows(&mount, &name), INSERTS, "{journal}");
    }
}

/// In the modes PERSIST and TRUNCATE the extension keeps the journal open, which another process may delete.
#[test]
fn a_journal_that_another_process_has_deleted_is_made_anew() {
    let Some(mount) = Mount::new() else { return };
    for journal in &JOURNALS[1..3] {
        let name = "a";
        let deletes =
            format!(".shell sqlite3 {name} 'PRAGMA journal_mode=DELETE; INSERT INTO t VALUES(3, 0);'");
        let is_there = format!(".shell test -e {name}-journal && echo there || echo gone");
        let mut lines = open(name, journal, "durable");
        lines.extend([
            insert(1),
            insert(2),
            is_there.clone(),
            deletes,
            is_there.clone(),
            insert(4),
            is_there,
        ]);
        let told = mount.sql(&lines);
        let seen: Vec<&str> = told.lines().filter(|line| ["there", "gone"].contains(line)).collect();
        assert_eq!(seen, ["there", "gone", "there"], "{journal}");
        assert_eq!(rows(&mount, name), 4, "{journal}");
        fs::remove_file(mount.path().join(name)).unwrap();
    }
}

#[test]
fn a_commit_fails_if_it_cannot_be_made_durable_or_ordered() {
    let Some(mount) = Mount::new().filter(|_| is_there("strace")) else { return };
    for (nth, journal) in JOURNALS.iter().enumerate() {
        for mode in ["durable", "order"] {
            let name = format!("{mode}{nth}");
            mount.sql(&open(&name, journal, mode));
            let fails = |calls: &str| {
                let before = ["strace", "-f", "-o", "/dev/null", "-e", &format!("inject={calls}:error=EIO")];
                let lines = [format!(".open file:{name}?weir={mode}\n{journal}"), insert(1)];
                let output = mount.start_under(&before, &lines).wait_with_output().unwrap();
                let told = text(&output.stderr);
                assert_eq!(output.status.success(), !told.contains("disk I/O error"), "{told}");
                !output.status.success()
            };
            assert!(fails("ioctl"), "{mode} {journal}");
            assert_eq!(fails("fsync,fdatasync"), mode == "durable", "{mode} {journal}");
        }
    }
}

#[test]
fn a_transaction_whose_write_fails_is_undone() {
    let Some(mount) = Mount::new().filter(|_| is_there("strace")) else { return };
    for (nth, journal) in JOURNALS.iter().enumerate() {
        let mut failed = 0;
        // A cache of two pages has some written before the transaction ends; the other keeps all of them.
        for (cache, write) in
            [2, 1000].into_iter().flat_map(|cache| (1..=10).map(move |write| (cache, write)))
        {
            let name = format!("a{nth}-{cache}-{write}");
            let mut lines = open(&name, journal, "order");
            lines.extend([insert(1), insert(2)]);
            mount.sql(&lines);
            let lines = [
                format!(".bail off\n.open file:{name}?weir=order\n{journal} PRAGMA cache_size={cache};"),
                "BEGIN; UPDATE t SET b=zeroblob(40000);\nCOMMIT;\nROLLBACK;".to_owned(),
                "SELECT 'left ' || sum(length(b)) FROM t;".to_owned(),
            ];
            let inject = format!("inject=pwrite64:error=ENOSPC:when={write}");
            let before = ["strace", "-f", "-o", "/dev/null", "-e", &inject];
            let output = mount.start_under(&before, &lines).wait_with_output().unwrap();
            let (told, errors) = (text(&output.stdout), text(&output.stderr));
            let left = told.lines().find_map(|line| line.strip_prefix("left ")).unwrap_or_default();
            let expected = if errors.is_empty() { &["80000"][..] } else { &["1000", "80000"] };
            assert!(expected.contains(&left), "{journal} {cache} {write}: {told}{errors}");
            failed += u32::from(left == "1000");
            assert_eq!(rows(&mount, &name), 2, "{journal} {cache} {write}");
            let told = mount.sql(&[format!(".open {name}\nSELECT sum(length(b)) FROM t;")]);
            assert_eq!(told.trim(), left, "{journal} {cache} {write}");
        }
        assert!(failed > 3, "{journal}: {failed} writes that failed");
    }
}

/// A frame that could not be written is no transaction's: it must not be put over one that another connection has
/// committed there.
#[test]
fn a_frame_that_failed_is_not_written_later() {
    let Some(mount) = Mount::new().filter(|_| is_there("strace")) else { return };
    let mut failed = 0;
    // Some of the first are of the log's index.
    for write in 6..=12 {
        let name = format!("a{write}");
        let made = "PRAGMA journal_mode=WAL; PRAGMA wal_autocheckpoint=0;";
        mount.sql(&[&open(&name, made, "order")[..], &[insert(1)]].concat());
        let other =
            format!(".shell sqlite3 {name} 'PRAGMA wal_autocheckpoint=0; INSERT INTO t VALUES(3, 0);'");
        let lines = [
            format!(".bail off\n.open file:{name}?weir=order\n{made}\n{}\n{other}", insert(2)),
            "SELECT 'sees ' || group_concat(a) FROM t;\nPRAGMA wal_checkpoint;".to_owned(),
        ];
        // Not the shell that it starts.
        let inject = format!("inject=pwrite64:error=ENOSPC:when={write}");
        let output = mount.traced(Path::new("/dev/null"), &inject, &lines);
        let told = text(&output.stdout);
        let seen = told.lines().find_map(|line| line.strip_prefix("sees ")).unwrap_or_default();
        failed += u32::from(seen == "1,3");
        assert!(["1,3", "1,2,3"].contains(&seen), "{write}: {told}{}", text(&output.stderr));
        let check = "PRAGMA integrity_check;\nSELECT group_concat(a) FROM t;";
        assert_eq!(mount.sql(&[format!(".open {name}\n{check}")]), format!("ok\n{seen}\n"), "{write}");
    }
    assert!(failed > 0);
}

/// A process that keeps a journal open looks into it again: another process may have died in a transaction meanwhile.
#[test]
fn a_transaction_of_a_process_that_died_is_undone_by_a_process_that_keeps_the_journal() {
    let Some(mount) = Mount::new() else { return };
    let dies = mount.place.path().join("dies.sql");
    // The second deletes the journal that was kept, and leaves another one.
    let anew = "PRAGMA journal_mode=PERSIST; PRAGMA journal_mode=DELETE;";
    for (journal, other) in JOURNALS[1..3].iter().flat_map(|journal| [(*journal, *journal), (*journal, anew)])
    {
        let name = &format!("{}-{}", journal.len(), other.len());
        let change = "PRAGMA cache_size=2; BEGIN; UPDATE t SET b=zeroblob(900);\n.shell kill -9 $PPID\n";
        fs::write(&dies, format!("{other} {change}")).unwrap();
        let mut lines = open(name, journal, "order");
        lines.extend((1..=INSERTS).map(insert));
        lines.push(format!(".shell sqlite3 {name} < {} || true", dies.display()));
        lines.push(insert(INSERTS + 1));
        mount.sql(&lines);
        assert_eq!(rows(&mount, name), INSERTS + 1, "{journal} {other}");
        let told = mount.sql(&[format!(".open {name}\nSELECT sum(length(b)) FROM t;")]);
        assert_eq!(told.trim(), "15500", "{journal} {other}");
    }
}

/// The checksums of frames that a transaction has written over are corrected before it ends: what fails of that is told.
#[test]
fn a_checksum_that_is_not_corrected_fails_the_commit() {
    let Some(mount) = Mount::new().filter(|_| is_there("strace")) else { return };
    let trace = mount.place.path().join("trace");
    let run = |name: &str, inject: &str| {
        // SQLite does not look whether it could let go of the log, and NORMAL has no sync before that.
        let made = "PRAGMA journal_mode=WAL; PRAGMA wal_autocheckpoint=0; PRAGMA synchronous=NORMAL;";
        let mut lines = open(name, made, "order");
        lines.extend((1..=INSERTS).map(insert));
        lines.push(
            "PRAGMA cache_size=2; BEGIN; UPDATE t SET b=zeroblob(501); UPDATE t SET b=zeroblob(502);".into(),
        );
        lines.push(".bail off\nCOMMIT;".into());
        lines.push(format!(".shell sqlite3 {name} 'INSERT INTO t VALUES(31, 0);'\n.shell kill -9 $PPID"));
        text(&mount.traced(&trace, inject, &lines).stderr)
    };
    assert_eq!(run("a", "trace=pwrite64"), "");
    let calls = fs::read_to_string(&trace).unwrap();
    let writes: Vec<&str> = calls.lines().filter(|line| line.starts_with("pwrite64")).collect();
    let last = 1 + writes.iter().rposition(|line| line.contains(", 24, ")).expect("a header is written anew");
    let told = run("b", &format!("inject=pwrite64:error=EIO:when={last}"));
    assert!(told.contains("disk I/O error"), "{told}");
    assert_eq!([rows(&mount, "a"), rows(&mount, "b")], [INSERTS + 1; 2]);
}

/// The journal of a process that died is made to last before the database is changed by it, also by one that has kept it
/// open and has its own writes ordered.
#[test]
fn a_journal_of_a_process_that_died_outlasts_a_crash() {
    let Some(mut mount) = Mount::new().filter(|_| is_there("strace")) else { return };
    let journal = JOURNALS[2];
    let (dies, trace) = (mount.place.path().join("dies.sql"), mount.place.path().join("trace"));
    // Nothing is longer than before: an inode that changes would take all data with it.
    let change = "PRAGMA synchronous=OFF; PRAGMA cache_size=2; BEGIN; UPDATE t SET b=zeroblob(400);";
    fs::write(&dies, format!("{journal} {change}\n.shell kill -9 $PPID\n")).unwrap();
    let start = |mount: &Mount, name: &str, inject: &str, end: &[String]| {
        let mut lines = open(name, journal, "order");
        lines.extend((1..=INSERTS).map(insert));
        lines.extend((1..=3).map(|_| "UPDATE t SET b=randomblob(500);".to_owned()));
        lines.push(format!(".bail off\n.shell sqlite3 {name} < {} || true", dies.display()));
        lines.push("SELECT count(*) FROM t;".to_owned());
        text(&mount.traced(&trace, inject, &[&lines, end].concat()).stderr)
    };
    start(&mount, "a", "trace=pwrite64", &[]);
    // The loss window passes, and the server is gone when some of the database was restored.
    let inject = format!("inject=pwrite64:error=EIO:when={}+", writes_before_a_child_ends(&trace) + 3);
    let told = start(&mount, "b", &inject, &[".shell sleep 1".to_owned(), mount.kill()]);
    assert!(told.contains("disk I/O error"), "{told}");
    mount.again();
    assert_eq!(rows(&mount, "b"), INSERTS);
    assert_eq!(mount.sql(&[".open b\nSELECT sum(length(b)) FROM t;".to_owned()]).trim(), "15000");
}

/// A log that others have written without order is made to last before the database is changed out of it.
#[test]
fn a_log_of_another_process_outlasts_a_crash() {
    let Some(mut mount) = Mount::new().filter(|_| is_there("strace")) else { return };
    let trace = mount.place.path().join("trace");
    let start = |mount: &Mount, name: &str, inject: &str, end: &[String]| {
        let mut lines = open(name, "PRAGMA journal_mode=WAL; PRAGMA wal_autocheckpoint=0;", "order");
        lines.extend((1..=INSERTS).map(insert));
        // The log is long enough for what comes, and is written from its start.
        let update = "UPDATE t SET b=randomblob(500); PRAGMA wal_checkpoint(RESTART);".to_owned();
        lines.extend([update.clone(), update]);
        let change = "PRAGMA wal_autocheckpoint=0; PRAGMA synchronous=OFF; UPDATE t SET b=zeroblob(400);";
        lines.push(format!(".bail off\n.shell sqlite3 {name} '{change}'\nPRAGMA wal_checkpoint;"));
        mount.traced(&trace, inject, &[&lines, end].concat());
    };
    start(&mount, "a", "trace=pwrite64", &[]);
    let inject = format!("inject=pwrite64:error=EIO:when={}+", writes_before_a_child_ends(&trace) + 3);
    start(&mount, "b", &inject, &[".shell sleep 1".to_owned(), mount.kill()]);
    mount.again();
    assert_eq!(rows(&mount, "b"), INSERTS);
    assert_eq!(mount.sql(&[".open b\nSELECT sum(length(b)) FROM t;".to_owned()]).trim(), "12000");
}

/// Where nothing is synchronised, a COMMIT that has returned outlives its program all the same.
#[test]
fn a_commit_is_with_the_kernel_when_it_returns() {
    let Some(mount) = Mount::new() else { return };
    for (nth, journal) in JOURNALS.iter().enumerate() {
        let name = format!("a{nth}");
        let mut lines = open(&name, journal, "order");
        lines.push("PRAGMA synchronous=OFF; PRAGMA locking_mode=EXCLUSIVE;".to_owned());
        lines.extend((1..=3).map(insert));
        lines.push(".shell kill -9 $PPID".to_owned());
        assert!(!mount.run(&lines).status.success());
        assert_eq!(rows(&mount, &name), 3, "{journal}");
    }
}

/// What is in order is durable after the loss window; in mode DELETE the last transaction takes longer.
#[test]
fn what_is_in_order_lasts_after_the_loss_window() {
    let Some(mut mount) = Mount::new() else { return };
    for (nth, journal) in JOURNALS[1..].iter().enumerate() {
        let name = format!("a{nth}");
        let mut lines = open(&name, journal, "order");
        lines.extend((1..=INSERTS).map(insert));
        lines.extend([".shell sleep 0.4".to_owned(), mount.kill()]);
        mount.run(&lines);
        mount.again();
        assert_eq!(rows(&mount, &name), INSERTS, "{journal}");
    }
}

/// A journal is kept open for a database that is open, and as long as it is there.
#[test]
fn a_journal_is_closed_with_its_database_and_when_it_is_deleted() {
    let Some(mount) = Mount::new() else { return };
    let look = ".shell ls -l /proc/$PPID/fd | grep -c journal || true".to_owned();
    for journal in &JOURNALS[1..3] {
        let mut lines = open("a", journal, "order");
        lines.extend([insert(1), look.clone(), ".open b".to_owned(), look.clone()]);
        lines.push(format!(".open file:a?weir=order\n{journal}\n{}", insert(2)));
        lines.extend([look.clone(), "PRAGMA journal_mode=DELETE;".to_owned(), look.clone()]);
        let told = mount.sql(&lines);
        let seen: Vec<&str> = told.lines().filter(|line| ["0", "1"].contains(line)).collect();
        assert_eq!(seen, ["1", "0", "1", "0"], "{journal}");
        fs::remove_file(mount.path().join("a")).unwrap();
    }
}

/// The end of a journal is with the kernel before the lock is let go of: others would take the journal for one that is
/// to be rolled back.
#[test]
fn a_journal_ends_before_the_lock_is_let_go_of() {
    let Some(mount) = Mount::new().filter(|_| is_there("strace")) else { return };
    let trace = mount.place.path().join("trace");
    let mut lines = open("a", "PRAGMA journal_mode=PERSIST; PRAGMA synchronous=OFF;", "order");
    lines.extend((1..=INSERTS).map(insert));
    lines.push("PRAGMA cache_size=2; BEGIN; UPDATE t SET b=zeroblob(400); ROLLBACK;".to_owned());
    lines.push(".shell kill -9 $PPID".to_owned());
    mount.traced(&trace, "trace=pwrite64,fcntl", &lines);
    let calls = fs::read_to_string(&trace).unwrap();
    let last = |what: &str| calls.lines().collect::<Vec<_>>().iter().rposition(|line| line.contains(what));
    // It goes on with a shared lock, until the journal is closed.
    assert!(last("pwrite64").is_some() && last("pwrite64") < last("F_RDLCK"), "{calls}");
    assert_eq!(rows(&mount, "a"), INSERTS);
}

/// What was written where another connection has made the database shorter is written behind its end.
#[test]
fn a_database_that_another_process_made_shorter_grows_again() {
    let Some(mut mount) = Mount::new() else { return };
    for (nth, journal) in JOURNALS.iter().enumerate() {
        let name = format!("a{nth}");
        let mut lines = open(&name, journal, "durable");
        lines.extend((1..=2).map(insert));
        lines.extend((3..=60).map(|a| format!("INSERT INTO t VALUES({a}, zeroblob(4000));")));
        lines.push(format!(".shell sqlite3 {name} 'DELETE FROM t WHERE a > 2; VACUUM;'"));
        lines.push("INSERT INTO t VALUES(3, zeroblob(150000));".to_owned());
        lines.push(mount.kill());
        let told = text(&mount.run(&lines).stderr);
        assert!(!told.contains("rror"), "{journal}: {told}");
        mount.again();
        assert_eq!(rows(&mount, &name), 3, "{journal}");
    }
}

#[test]
fn two_processes_use_one_database() {
    let Some(mount) = Mount::new() else { return };
    for (nth, journal) in JOURNALS.iter().enumerate() {
        let name = format!("a{nth}");
        mount.sql(&open(&name, journal, "durable"));
        let writers = ["durable", "order"].map(|mode| {
            let insert = "INSERT INTO t SELECT coalesce(max(a), 0) + 1, zeroblob(500) FROM t;".to_owned();
            let mut lines = vec![format!(".open file:{name}?weir={mode}\n.timeout 20000\n{journal}")];
            lines.extend(std::iter::repeat_n(insert, INSERTS as usize));
            mount.start(&lines)
        });
        for writer in writers {
            let output = writer.wait_with_output().unwrap();
            assert!(output.status.success(), "{journal}: {}", text(&output.stderr));
        }
        assert_eq!(rows(&mount, &name), 2 * INSERTS, "{journal}");
    }
}

#[test]
fn transactions_of_two_databases_stay_whole() {
    let Some(mut mount) = Mount::new() else { return };
    // Write-ahead logs have no transactions that are whole in both.
    for (nth, journal) in JOURNALS[..3].iter().enumerate() {
        for mode in ["durable", "order"] {
            let [first, second] = ["a", "b"].map(|which| format!("{which}-{mode}{nth}"));
            let mut lines = open(&second, journal, mode);
            lines.extend(open(&first, journal, mode));
            lines.push(format!("ATTACH 'file:{second}?weir={mode}' AS second; {journal}"));
            lines.extend((1..=INSERTS).map(|a| {
                format!("BEGIN; {} INSERT INTO second.t VALUES({a}, zeroblob(500)); COMMIT;", insert(a))
            }));
            lines.push(mount.kill());
            let told = text(&mount.run(&lines).stderr);
            assert!(!told.contains("rror"), "{journal}: {told}");
            mount.again();
            assert_eq!(rows(&mount, &first), INSERTS, "{journal}");
            assert_eq!(rows(&mount, &second), INSERTS, "{journal}");
        }
    }
}

/// An atomic database, which this shell's SQLite writes with journals, if it knows of nothing else.
#[test]
fn an_atomic_database_is_whole_with_any_journal() {
    let Some(mut mount) = Mount::new() else { return };
    for (nth, journal) in JOURNALS.iter().enumerate() {
        for mode in ["durable", "order"] {
            let name = format!("{mode}{nth}");
            let mut lines = open(&name, journal, mode);
            lines.insert(1, "PRAGMA weir_atomic; PRAGMA weir_atomic=1;".to_owned());
            lines.extend((1..=INSERTS).map(insert));
            lines.push(
                "PRAGMA cache_size=2; BEGIN; UPDATE t SET b=zeroblob(900); ROLLBACK; PRAGMA weir_atomic;"
                    .to_owned(),
            );
            lines.push(mount.kill());
            let output = mount.run(&lines);
            let (told, errors) = (text(&output.stdout), text(&output.stderr));
            assert!(!errors.contains("rror"), "{journal}: {errors}");
            let pragmas: Vec<&str> = told.lines().filter(|line| ["0", "1"].contains(line)).collect();
            assert_eq!(pragmas, ["0", "1", "1"], "{journal} {mode}");
            mount.again();
            let left = rows(&mount, &name);
            assert!(left == INSERTS || mode == "order", "{journal}: {left}");
            let lines = [format!(".open {name}\nPRAGMA weir_atomic=2;")];
            assert!(text(&mount.run(&lines).stderr).contains("0 or 1"));
        }
    }
}

/// By the SQLite that is linked in here, which writes a transaction without a journal where it can.
#[test]
fn a_transaction_without_a_journal_costs_one_flush_or_none_and_survives() {
    let Some(mut mount) = Mount::new() else { return };
    weir_sqlite_vfs::load_extension(&library("libweir_sqlite.so")).unwrap();
    for (mode, each) in [("durable", 1), ("order", 0)] {
        let (path, journal) = (mount.path().join(mode), mount.path().join(format!("{mode}-journal")));
        let connection = Connection::open_with_flags_and_vfs(&path, OpenFlags::default(), "weir").unwrap();
        let made = format!("PRAGMA journal_mode=PERSIST; PRAGMA weir='{mode}'; CREATE TABLE t(a, b)");
        connection.execute_batch(&made).unwrap();
        // Each write in place is ordered from now on, but for those of an update.
        connection.execute_batch("INSERT INTO t VALUES(1, zeroblob(500))").unwrap();
        let atomic: String = connection.query_row("PRAGMA weir_atomic=1", [], |row| row.get(0)).unwrap();
        assert_eq!(atomic, "1");
        fs::remove_file(&journal).unwrap();
        let before = flushes(&mount);
        (2..=INSERTS).for_each(|a| connection.execute_batch(&insert(a)).unwrap());
        assert_eq!(flushes(&mount) - before, each * (INSERTS - 1), "{mode}");
        assert!(!journal.exists(), "{mode}");
        // Larger than the cache, so it has a journal; and larger than the mount's, so it goes there in parts.
        connection.execute_batch("PRAGMA cache_size=10; BEGIN; UPDATE t SET b=randomblob(900000)").unwrap();
        assert!(journal.exists(), "{mode}");
        connection.execute_batch("ROLLBACK; UPDATE t SET b=zeroblob(900000) WHERE a > 0").unwrap();
        connection.execute_batch("UPDATE t SET b=zeroblob(500); PRAGMA cache_size=50000").unwrap();
        // The same in a batch, which is refused.
        connection.execute_batch("UPDATE t SET b=zeroblob(900000)").unwrap();
        let length = "SELECT min(length(b)) FROM t";
        assert_eq!(connection.query_row(length, [], |row| row.get(0)), Ok(900_000));
        mount.server.kill();
        drop(connection);
        mount.again();
        let left = rows(&mount, mode);
        assert!(left == INSERTS || mode == "order", "{mode}: {left}");
    }
}

fn flushes(mount: &Mount) -> u64 {
    let status: Value =
        serde_json::from_str(&works(&["status", "--json", mount.path().to_str().unwrap()])).unwrap();
    status["flushes"].as_u64().unwrap()
}
