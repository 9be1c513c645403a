//! `weir mkfs`, as scripts and people meet it; e2fsck has the last word.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::Path;
use std::process::{Command, Output};

use crate::support::{system, weir_program};

fn weir(directory: &Path, arguments: &[&str]) -> Output {
    Command::new(weir_program()).current_dir(directory).args(arguments).output().unwrap()
}

fn directory() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

/// The command ends with 2, and with one line on standard error that holds `word`.
fn refuses(directory: &Path, arguments: &[&str], word: &str) {
    let output = weir(directory, arguments);
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{arguments:?}: {error}");
    assert_eq!(error.trim_end().lines().count(), 1, "{arguments:?}: {error}");
    assert!(error.contains(word), "{arguments:?}: no {word:?} in {error}");
}

fn makes(directory: &Path, arguments: &[&str]) {
    let output = weir(directory, arguments);
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    let path = arguments[1];
    assert!(String::from_utf8_lossy(&output.stdout).starts_with(path));
    let judge = system("e2fsck").current_dir(directory).args(["-fn", path]).output();
    match judge {
        Ok(judge) => assert!(judge.status.success(), "{}", String::from_utf8_lossy(&judge.stdout)),
        Err(_) => eprintln!("skipped: e2fsck is not installed"),
    }
}

#[test]
fn a_filesystem_is_made_in_a_new_file() {
    let directory = directory();
    makes(directory.path(), &["mkfs", "a.img", "--size", "16M"]);
    assert_eq!(std::fs::metadata(directory.path().join("a.img")).unwrap().len(), 16 << 20);
}

#[test]
fn a_directory_that_is_missing_is_named() {
    let directory = directory();
    for path in ["nodir/b.weir", "no/dir/b.weir"] {
        let (missing, _) = path.rsplit_once('/').unwrap();
        let told =
            format!("weir: {path}: there is no directory {missing}: make it first: `mkdir -p {missing}`");
        refuses(directory.path(), &["mkfs", "--volume", path, "--size", "4G"], &told);
        refuses(directory.path(), &["volume", "create", path, "--size", "4G"], &told);
    }
}

/// A journal as large as the SHARE paper's.
#[test]
fn a_large_journal_is_made() {
    let directory = directory();
    makes(directory.path(), &["mkfs", "a.img", "--size", "4G", "--journal-size", "1G"]);
}

/// Bit 0x400 of the read-only compatible features: `metadata_csum`.
#[test]
fn a_filesystem_without_checksums_is_made() {
    let directory = directory();
    for (name, options, expected) in [("a.img", &[][..], 0x400), ("b.img", &["--no-checksums"], 0)] {
        makes(directory.path(), &[&["mkfs", name, "--size", "16M"], options].concat());
        let bytes = std::fs::read(directory.path().join(name)).unwrap();
        let features = u32::from_le_bytes(bytes[1024 + 0x64..1024 + 0x68].try_into().unwrap());
        assert_eq!(features & 0x400, expected, "{name}");
    }
}

#[test]
fn what_is_there_is_destroyed_only_by_force() {
    let directory = directory();
    makes(directory.path(), &["mkfs", "a.img", "--size", "64M", "--label", "first"]);
    refuses(directory.path(), &["mkfs", "a.img"], "--force");
    makes(
        directory.path(),
        &["mkfs", "a.img", "--force", "--journal-size", "8M", "--bytes-per-inode", "64K"],
    );
    std::fs::write(directory.path().join("b.img"), vec![1; 64 << 20]).unwrap();
    refuses(directory.path(), &["mkfs", "b.img"], "not empty");
    makes(directory.path(), &["mkfs", "b.img", "--force", "--reserved", "0"]);
}

#[test]
fn what_cannot_be_made_is_refused_and_leaves_nothing() {
    let directory = directory();
    refuses(directory.path(), &["mkfs", "a.img"], "--size");
    refuses(directory.path(), &["mkfs", "a.img", "--size", "1M"], "8 MiB");
    refuses(directory.path(), &["mkfs", "a.img", "--size", "4"], "a --size of 4 B is too small: use 8 MiB");
    refuses(directory.path(), &["mkfs", "--volume", "a.img", "--size", "4"], "use 16 MiB or more");
    refuses(directory.path(), &["mkfs", "a.img", "--size", "16M", "--label", "more than 16 bytes"], "label");
    refuses(directory.path(), &["mkfs", "a.img", "--size", "16M", "--reserved", "51"], "50 percent");
    refuses(
        directory.path(),
        &["mkfs", "a.img", "--size", "16M", "--journal-size", "9M"],
        "half of a filesystem",
    );
    refuses(
        directory.path(),
        &["mkfs", "a.img", "--size", "16M", "--journal-size", "3M"],
        "1,024 blocks (4 MiB)",
    );
    refuses(directory.path(), &["mkfs", "a.img", "--size", "1G", "--journal-size", "40G"], "(39 GiB)");
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0, "files were left behind");
}
