//! Where there is no mount of Weir, the extension changes nothing. Without SQLite's shell these tests say that they
//! were skipped.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// The library, which lies beside this program.
fn extension() -> PathBuf {
    std::env::current_exe().unwrap().with_file_name("libweir_sqlite.so")
}

/// Whether a program is there; says so if not.
fn has(program: &str) -> bool {
    let found = Command::new(program).arg("--version").output().is_ok();
    if !found {
        eprintln!("skipped: there is no {program}");
    }
    found
}

fn run(before: &[&str], directory: &Path, statements: &[&str]) -> Output {
    let mut words: Vec<&str> = before.to_vec();
    words.extend(["sqlite3", ":memory:"]);
    words.extend(statements);
    Command::new(words[0]).args(&words[1..]).current_dir(directory).output().unwrap()
}

fn works(directory: &Path, statements: &[&str]) -> String {
    let output = run(&[], directory, statements);
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success() && error.is_empty(), "{statements:?}: {error}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn elsewhere_every_sync_stays() {
    if !has("sqlite3") || !has("strace") {
        return;
    }
    let load = format!(".load {}", extension().display());
    let syncs = |load: Option<&str>, mode: &str| {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path();
        let trace = path.join("trace");
        let before = ["strace", "-f", "-e", "trace=fsync,fdatasync,ioctl", "-o", trace.to_str().unwrap()];
        let journal = format!("PRAGMA journal_mode={mode};");
        let statements = [".open a.db", &journal, "CREATE TABLE t(a)", "INSERT INTO t VALUES(1)"];
        let statements: Vec<&str> = load.into_iter().chain(statements).collect();
        let output = run(&before, path, &statements);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let calls = std::fs::read_to_string(trace).unwrap();
        let calls = calls.lines().filter_map(|line| line.split_whitespace().nth(1));
        calls.filter(|call| call.contains("sync(")).map(str::to_owned).collect::<Vec<_>>()
    };
    for mode in ["DELETE", "TRUNCATE", "PERSIST", "MEMORY", "WAL"] {
        let stock = syncs(None, mode);
        assert!(stock.len() >= 2, "{mode}: {stock:?}");
        assert_eq!(stock, syncs(Some(&load), mode), "{mode}");
    }
}

#[test]
fn it_tells_the_mode_in_force() {
    if !has("sqlite3") {
        return;
    }
    let load = format!(".load {}", extension().display());
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    // Twice does no harm.
    let open = [load.as_str(), &load, ".open file:a.db?weir=order"];
    let tell = |statements: &[&str]| works(path, &[&open[..], statements].concat());
    assert_eq!(tell(&["PRAGMA weir"]), "off\n");
    assert_eq!(tell(&["PRAGMA weir='order'"]), "off\n");
    assert!(tell(&[".vfsname"]).is_empty() || tell(&[".vfsname"]).contains("unix"));
    assert!(tell(&[".vfslist"]).contains("\"weir\""));
    let wrong = run(&[], path, &[&open[..], &["PRAGMA weir=full"]].concat());
    let error = String::from_utf8_lossy(&wrong.stderr).into_owned();
    assert!(!wrong.status.success() && error.contains("one of durable, order and off"), "{error}");
}
