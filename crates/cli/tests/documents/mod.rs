//! Every command that the documents print runs as it is printed: all blocks of commands of a document, in their order,
//! in one shell that stops at the first that fails.
//!
//! A reader has built Weir and has its program in the path; README.md says how, and its own commands do that. Here the
//! program of this test takes its place. The directory of each document looks like the repository, `target/release`
//! included, and its mounts, `/mnt` and its processes are its own.
//!
//! What a reader does not see says what the test has to know ([`blocks`]): that a block is not run and why, what a reader
//! has done before, and what stands for what would take too long. Besides, one rule for all: quick benchmarks have the
//! smallest sizes, and figures are quick ones.
//!
//! Where a machine has not what a document takes, this says that it was skipped.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod blocks;
mod place;

use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use blocks::{Block, How, read};
use place::{lacks, run, script};

/// The repository.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// All documents, by their paths in the repository.
fn documents() -> BTreeMap<String, String> {
    let (root, mut found) = (root(), BTreeMap::new());
    let mut folders = vec![root.clone()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            if path.is_dir() && name != "target" && !name.starts_with('.') {
                folders.push(path);
            } else if name.ends_with(".md") {
                let inside = path.strip_prefix(&root).unwrap().display().to_string();
                found.insert(inside, fs::read_to_string(path).unwrap());
            }
        }
    }
    found
}

/// To where it is seen of a test that passes, too.
fn tell(line: &str) {
    std::io::stderr().write_all(format!("{line}\n").as_bytes()).unwrap();
}

#[test]
fn commands_run_as_printed() {
    let (mut count, mut not_run, mut failed) = (0, Vec::new(), Vec::new());
    for (document, text) in documents() {
        let blocks = match read(&text) {
            Ok(blocks) => blocks,
            Err(error) => {
                failed.push(format!("{document}:{error}"));
                continue;
            }
        };
        let mut run_here = 0;
        for block in &blocks {
            match &block.how {
                How::Run(_) => run_here += 1,
                How::NotRun(why) => not_run.push(format!("{document}:{}: {why}", block.line)),
            }
        }
        if run_here == 0 {
            continue;
        }
        if let Some(what) = lacks(&blocks) {
            not_run.push(format!("{document}, {run_here} blocks: skipped: this takes {what}"));
            continue;
        }
        count += run_here;
        if let Err(log) = run(&script(&document, &blocks)) {
            failed.push(format!("{document}: {log}"));
        }
    }
    tell(&format!("{count} blocks of commands run; not run:"));
    not_run.iter().for_each(|line| tell(&format!("  {line}")));
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

/// The first documents that anybody reads are among those that are looked at.
#[test]
fn documents_are_found() {
    let documents = documents();
    for path in ["README.md", "CONTRIBUTING.md", "docs/mount.md", "docs/users/vm.md", "results/README.md"] {
        assert!(documents.contains_key(path), "{path}");
    }
    let run = |path: &str| {
        let blocks = read(&documents[path]).unwrap();
        blocks.iter().filter(|block| matches!(block.how, How::Run(_))).count()
    };
    assert!(run("README.md") >= 6);
    assert!(run("docs/mount.md") >= 2);
}

fn outcome(text: &str) -> Result<String, String> {
    run(&script("control.md", &read(text).unwrap()))
}

#[test]
fn a_command_that_fails_is_found() {
    let blocks: Vec<Block> = read("```sh\ntrue\n```").unwrap();
    if lacks(&blocks).is_some() {
        return;
    }
    assert!(outcome("```sh\necho said\n```").unwrap().contains("said"));
    let commands = [
        "false\ntouch reached",
        "false | true\ntouch reached",
        "weir status /mnt\ntouch reached",
        "nowhere --to-be-found\ntouch reached",
        "cargo publish\ntouch reached",
    ];
    for commands in commands {
        let log = outcome(&format!("```sh\ntrue\n```\nText.\n```sh\n{commands}\n```\n")).unwrap_err();
        assert!(log.contains("control.md:5: ended with"), "{log}");
        assert!(!log.contains("touch reached"), "{log}");
    }
    let python = outcome("```python\nraise SystemExit(3)\n```\n").unwrap_err();
    assert!(python.contains("control.md:1: ended with 3"), "{python}");
}

/// What a reader has at /mnt is neither seen nor changed.
#[test]
fn mounts_are_its_own() {
    if lacks(&read("```sh\ntrue\n```").unwrap()).is_some() {
        return;
    }
    let name = format!("weir-documents-{}", std::process::id());
    let text =
        format!("```sh\n[ -z \"$(ls /mnt)\" ]\nmkdir /mnt/{name}\nmount -t tmpfs none /mnt/{name}\n```\n");
    outcome(&text).unwrap();
    assert!(!Path::new("/mnt").join(&name).exists());
    assert!(!fs::read_to_string("/proc/self/mounts").unwrap().contains(&name));
}
