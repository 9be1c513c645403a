//! What must not be there: clocks, threads and chance outside `runtime`, maps with random iteration
//! order, and `unsafe` code outside the files that talk to the kernel's ring or to C.

use crate::code::{code_only, imports, line_of, whole_words};
use crate::tree::{File, Finding, Tree};

/// Only `runtime` reads a clock, starts a thread, or draws randomness.
const WORLD: [&str; 14] = [
    "std::time::Instant",
    "std::time::SystemTime",
    "std::thread",
    "Instant::now",
    "SystemTime::now",
    "thread::spawn",
    "thread::sleep",
    "thread::Builder",
    "rand::rng",
    "rand::random",
    "thread_rng",
    "getrandom",
    "OsRng",
    "clock_gettime",
];

/// Their iteration order is drawn anew in every process, so a seed would not replay.
const RANDOM_ORDER: [&str; 2] = ["HashMap", "HashSet"];

/// A file that may use a word all the same, and why. An entry that is not needed is a finding.
struct Exception {
    path: &'static str,
    word: &'static str,
    #[expect(dead_code, reason = "for the reader")]
    why: &'static str,
}

const EXCEPTIONS: [Exception; 20] = [
    Exception { path: "crates/cli/tests/again.rs", word: "std::thread", why: WAITS },
    Exception { path: "crates/cli/tests/again.rs", word: "thread::sleep", why: WAITS },
    Exception { path: "crates/cli/tests/again.rs", word: "std::time::Instant", why: WAITS },
    Exception { path: "crates/cli/tests/again.rs", word: "Instant::now", why: WAITS },
    Exception { path: "crates/cli/tests/disk.rs", word: "std::thread", why: WAITS },
    Exception { path: "crates/cli/tests/disk.rs", word: "thread::sleep", why: WAITS },
    Exception { path: "crates/cli/tests/memory.rs", word: "std::thread", why: WAITS },
    Exception { path: "crates/cli/tests/memory.rs", word: "thread::sleep", why: WAITS },
    Exception { path: "crates/cli/tests/memory.rs", word: "std::time::Instant", why: WAITS },
    Exception { path: "crates/cli/tests/memory.rs", word: "Instant::now", why: WAITS },
    Exception { path: "crates/cli/tests/programs/trial.rs", word: "std::thread", why: WAITS },
    Exception { path: "crates/cli/tests/programs/trial.rs", word: "thread::sleep", why: WAITS },
    Exception { path: "crates/cli/tests/support/mod.rs", word: "std::thread", why: WAITS },
    Exception { path: "crates/cli/tests/support/mod.rs", word: "thread::sleep", why: WAITS },
    Exception { path: "crates/cli/tests/support/mod.rs", word: "std::time::Instant", why: WAITS },
    Exception { path: "crates/cli/tests/support/mod.rs", word: "Instant::now", why: WAITS },
    Exception { path: "crates/crash/src/fs/outside.rs", word: "std::thread", why: WAITS },
    Exception { path: "crates/crash/src/fs/outside.rs", word: "thread::sleep", why: WAITS },
    Exception { path: "crates/ext4/tests/check.rs", word: "std::thread", why: WAITS },
    Exception { path: "crates/ext4/tests/check.rs", word: "thread::sleep", why: WAITS },
];

const WAITS: &str = "it waits for what other processes do";

/// The files that may contain `unsafe`: they hand buffers to the kernel, are the memory of buffers, or are called by C.
fn may_be_unsafe(path: &str) -> bool {
    let places = [
        "crates/runtime/src/uring/",
        "crates/capi/src/",
        "crates/preload/src/",
        "crates/sqlite/src/",
        "crates/sqlite-vfs/src/",
    ];
    path == "crates/runtime/src/uring.rs"
        || path == "crates/runtime/src/slabs.rs"
        || places.iter().any(|place| path.starts_with(place))
}

fn is_world(path: &str) -> bool {
    path.starts_with("crates/runtime/")
}

pub fn check(tree: &Tree) -> Vec<Finding> {
    check_with(tree, &EXCEPTIONS)
}

fn check_with(tree: &Tree, exceptions: &[Exception]) -> Vec<Finding> {
    let mut needed = vec![false; exceptions.len()];
    let mut findings = Vec::new();
    for file in tree.rust() {
        let code = code_only(file.text);
        findings.extend(check_unsafe(file, &code));
        for (line, word) in forbidden(file, &code) {
            match exceptions
                .iter()
                .position(|exception| exception.path == file.path && exception.word == word)
            {
                Some(at) => needed[at] = true,
                None => findings.push(Finding::new(file.path, line, format!("`{word}` is not allowed here"))),
            }
        }
    }
    for (exception, _) in exceptions.iter().zip(needed).filter(|(_, needed)| !needed) {
        findings.push(Finding::new(
            exception.path,
            0,
            format!("the exception for `{}` is not needed", exception.word),
        ));
    }
    findings
}

/// The forbidden words of a file: paths in the code, and paths hidden in a tree of imports.
fn forbidden(file: File<'_>, code: &str) -> Vec<(usize, &'static str)> {
    let world: &[&str] = if is_world(file.path) { &[] } else { &WORLD };
    // A test that counts distinct states never iterates; the product has no such excuse.
    let order: &[&str] = if file.path.contains("/src/") { &RANDOM_ORDER } else { &[] };
    let imports = imports(code);
    let mut found = Vec::new();
    for word in world.iter().chain(order) {
        found.extend(whole_words(code, word).map(|at| (line_of(code, at), *word)));
        for (line, path) in &imports {
            if whole_words(path, word).next().is_some() {
                found.push((*line, *word));
            }
        }
    }
    found.sort_unstable();
    found.dedup();
    found
}

fn check_unsafe(file: File<'_>, code: &str) -> Vec<Finding> {
    let lines: Vec<&str> = file.text.lines().collect();
    let mut findings = Vec::new();
    for at in whole_words(code, "unsafe") {
        let line = line_of(code, at);
        // A function's type only asks for care: the reason is given where it is called.
        let asks = [" fn", " extern"].iter().any(|word| code[at + "unsafe".len()..].starts_with(word));
        if !may_be_unsafe(file.path) {
            findings.push(Finding::new(file.path, line, "`unsafe` outside the ring and the doors to C"));
        } else if !asks && !has_reason(&lines[..line]) {
            findings.push(Finding::new(file.path, line, "`unsafe` without a `SAFETY:` comment above it"));
        }
    }
    if !may_be_unsafe(file.path) && !is_world(file.path) {
        let allowed = whole_words(code, "allow(unsafe_code)").map(|at| line_of(code, at));
        findings.extend(
            allowed.map(|line| Finding::new(file.path, line, "the `unsafe_code` lint is switched off")),
        );
    }
    findings
}

/// Whether the last of `lines`, or the comment right above it, gives the reason.
fn has_reason(lines: &[&str]) -> bool {
    let Some((last, above)) = lines.split_last() else { return false };
    let comment = above.iter().rev().take_while(|line| line.trim_start().starts_with("//"));
    std::iter::once(last).chain(comment).any(|line| line.contains("SAFETY:"))
}

#[test]
fn clocks_threads_chance_and_random_order_are_found() {
    let text = "use std::{fmt, time::{Duration, Instant}};\n// std::thread is fine in words\nlet a = \"SystemTime\";\n\
                std::thread::sleep(d);\nuse std::collections::HashMap;\nrand::rng();\n";
    let tree = Tree::of(&[
        ("crates/block/src/a.rs", text),
        ("crates/runtime/src/a.rs", "std::thread::spawn(f); Instant::now()"),
        ("crates/block/tests/a.rs", "use std::collections::HashSet;\nlet t = SystemTime::now();"),
    ]);
    let allowed = Exception { path: "crates/block/src/a.rs", word: "HashMap", why: "shown here" };
    let stale = Exception { path: "crates/block/src/b.rs", word: "HashMap", why: "shown here" };
    let found: Vec<String> = check_with(&tree, &[allowed, stale]).iter().map(ToString::to_string).collect();
    assert_eq!(
        found,
        [
            "crates/block/src/a.rs:1: `std::time::Instant` is not allowed here",
            "crates/block/src/a.rs:4: `std::thread` is not allowed here",
            "crates/block/src/a.rs:4: `thread::sleep` is not allowed here",
            "crates/block/src/a.rs:6: `rand::rng` is not allowed here",
            "crates/block/tests/a.rs:2: `SystemTime::now` is not allowed here",
            "crates/block/src/b.rs:0: the exception for `HashMap` is not needed",
        ]
    );
}

#[test]
fn unsafe_code_is_found() {
    let tree = Tree::of(&[
        ("crates/block/src/a.rs", "#![allow(unsafe_code)]\nunsafe { f() }"),
        (
            "crates/runtime/src/uring.rs",
            "// SAFETY: the slab owns it\n// until it completes.\nunsafe { f() }\n\nunsafe { g() }\nunsafe extern \"C\" fn h() {}",
        ),
    ]);
    let found: Vec<String> = check_with(&tree, &[]).iter().map(ToString::to_string).collect();
    assert_eq!(
        found,
        [
            "crates/block/src/a.rs:2: `unsafe` outside the ring and the doors to C",
            "crates/block/src/a.rs:1: the `unsafe_code` lint is switched off",
            "crates/runtime/src/uring.rs:5: `unsafe` without a `SAFETY:` comment above it",
        ]
    );
}
