//! The program as scripts and people meet it: what it prints, where, and its exit codes.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

fn weir(directory: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_weir")).current_dir(directory).args(arguments).output().unwrap()
}

fn directory() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// The command ends with `code`, and with one line on standard error that holds all of `words`.
fn fails(directory: &Path, arguments: &[&str], code: i32, words: &[&str]) {
    let output = weir(directory, arguments);
    let error = text(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {error}");
    assert_eq!(error.trim_end().lines().count(), 1, "{arguments:?}: {error}");
    for word in words {
        assert!(error.contains(word), "{arguments:?}: no {word:?} in {error}");
    }
    assert_eq!(text(&output.stdout), "", "{arguments:?}");
}

fn works(directory: &Path, arguments: &[&str]) -> String {
    let output = weir(directory, arguments);
    assert_eq!(output.status.code(), Some(0), "{arguments:?}: {}", text(&output.stderr));
    text(&output.stdout)
}

#[test]
fn bench_prints_one_document() {
    let directory = directory();
    let output = works(directory.path(), &["bench", "--tiny", "--json"]);
    let document: serde_json::Value = serde_json::from_str(&output).unwrap();
    for ratio in [
        "ordered_vs_raw_random",
        "ordered_vs_host_fdatasync",
        "flushed_vs_host_fdatasync",
        "ordered_bandwidth_share",
        "cost_of_order",
        "steady_state_vs_raw_random",
    ] {
        assert!(document["ratios"][ratio].as_f64().unwrap() > 0.0, "{ratio}");
    }
    assert!(document["modes"].as_array().unwrap().len() >= 12);
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0, "files were left behind");
}

#[test]
fn bench_prints_tables_with_meanings() {
    let directory = directory();
    let output = works(directory.path(), &["bench", "--tiny"]);
    for words in ["cost of order", "today's price of order", "loss window", "this disk", "the machine was"] {
        assert!(output.contains(words), "no {words:?} in {output}");
    }
}

#[test]
fn bench_names_what_is_wrong() {
    let directory = directory();
    fails(directory.path(), &["bench", "--on", "nowhere"], 2, &["nowhere", "No such file"]);
    fails(directory.path(), &["bench", "--size", "1K"], 2, &["--size", "MiB"]);
    fails(directory.path(), &["bench", "--size", "900G"], 2, &["free", "--size"]);
}

#[test]
fn a_volume_is_made_shown_and_checked() {
    let directory = directory();
    let made = works(directory.path(), &["volume", "create", "a.weir", "--size", "64M"]);
    assert!(made.contains("a.weir") && made.contains("MiB"), "{made}");
    assert_eq!(fs::metadata(directory.path().join("a.weir")).unwrap().len(), 64 << 20);
    let info = works(directory.path(), &["volume", "info", "a.weir"]);
    assert!(info.contains("format version    1"), "{info}");
    assert!(works(directory.path(), &["volume", "check", "a.weir"]).starts_with("clean: 0 live blocks"));
    let thin = works(directory.path(), &["volume", "create", "b.weir", "--size", "64M", "--logical", "1G"]);
    assert!(thin.contains("1 GiB"), "{thin}");
}

#[test]
fn an_empty_file_is_used() {
    let directory = directory();
    fs::write(directory.path().join("empty"), "").unwrap();
    fails(directory.path(), &["volume", "create", "empty"], 2, &["--size"]);
    works(directory.path(), &["volume", "create", "empty", "--size", "64M"]);
    works(directory.path(), &["volume", "check", "empty"]);
}

#[test]
fn nothing_is_overwritten_without_force() {
    let directory = directory();
    let file = directory.path().join("letters");
    let content = b"dear reader, ".repeat(1 << 20);
    fs::write(&file, &content).unwrap();
    fails(directory.path(), &["volume", "create", "letters"], 2, &["letters", "--force"]);
    fails(directory.path(), &["volume", "create", "letters", "--size", "64M"], 2, &["letters", "--size"]);
    assert!(fs::read(&file).unwrap() == content, "the file was changed");
    works(directory.path(), &["volume", "create", "letters", "--force"]);
    fails(directory.path(), &["volume", "create", "letters"], 2, &["volume here already", "--force"]);
}

#[test]
fn what_is_no_volume_cannot_be_looked_at() {
    let directory = directory();
    fs::write(directory.path().join("foreign"), vec![7; 1 << 20]).unwrap();
    for command in ["info", "check"] {
        fails(directory.path(), &["volume", command, "foreign"], 2, &["foreign", "not a Weir volume"]);
        fails(directory.path(), &["volume", command, "missing"], 2, &["missing", "does not exist"]);
        fails(directory.path(), &["volume", command, "."], 2, &["directory"]);
    }
}

#[test]
fn a_damaged_volume_has_its_own_exit_code() {
    let directory = directory();
    works(directory.path(), &["volume", "create", "a.weir", "--size", "64M"]);
    let file = directory.path().join("a.weir");
    let mut content = fs::read(&file).unwrap();
    // One bit in each copy of the superblock, behind the magic and the version.
    content[40] ^= 1;
    content[4096 + 40] ^= 1;
    fs::write(&file, content).unwrap();
    let output = weir(directory.path(), &["volume", "check", "a.weir"]);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    assert!(text(&output.stdout).starts_with("damaged:"), "{}", text(&output.stdout));
}

#[test]
fn a_volume_that_does_not_fit_leaves_no_file() {
    let directory = directory();
    fails(
        directory.path(),
        &["volume", "create", "small.weir", "--size", "1M"],
        2,
        &["small.weir", "blocks"],
    );
    assert!(!directory.path().join("small.weir").exists());
    fails(directory.path(), &["volume", "create", "new.weir"], 2, &["--size"]);
}
