//! What must not be there: `unsafe` code outside the files that talk to the kernel's ring or to C, and exceptions to what
//! clippy forbids.
//!
//! Clocks, threads, chance and maps with random iteration order are forbidden by `clippy.toml`: clippy knows what a name
//! means. It does not see fuzz/, a workspace of its own, which is no part of the product. Two more things it does not see,
//! and this file does: whether a file of the product switches its lint off, and whether a crate has a `clippy.toml` of its
//! own, which would take the place of the whole list. `unsafe` stays here as well: the compiler's lint knows no list of
//! files, and clippy's, which asks for a reason above each block, passes over attributes such as `#[unsafe(no_mangle)]`.

use super::code::{code_only, line_of, whole_words};
use super::tree::{File, Finding, Tree};

/// The lints behind `clippy.toml`'s lists, and the groups that hold them.
const LISTS: [&str; 4] = ["disallowed_methods", "disallowed_types", "clippy::style", "clippy::all"];

/// A file of the product, outside `runtime`, that switches one of them off, where it says why. An entry that is not
/// needed is a finding.
const EXCEPTIONS: [(&str, &str); 1] = [("crates/crash/src/kernel_mount.rs", "disallowed_methods")];

/// The files that may contain `unsafe`: they hand buffers to the kernel, are the memory of buffers, or are called by C.
fn may_be_unsafe(path: &str) -> bool {
    let places = [
        "crates/runtime/src/uring/",
        "crates/capi/src/",
        "crates/preload/src/",
        "crates/sqlite/src/",
        "crates/sqlite-vfs/src/",
        "languages/rust/src/",
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

fn check_with(tree: &Tree, exceptions: &[(&str, &str)]) -> Vec<Finding> {
    let own = tree.files().filter(|file| file.path.ends_with("/clippy.toml"));
    let what = "it takes the place of the root's";
    let mut findings: Vec<Finding> = own.map(|file| Finding::new(file.path, 0, what)).collect();
    let mut needed = vec![false; exceptions.len()];
    for file in tree.rust() {
        let code = code_only(file.text);
        findings.extend(check_unsafe(file, &code));
        for (line, lint) in switched_off(file, &code) {
            match exceptions.iter().position(|exception| *exception == (file.path, lint)) {
                Some(at) => needed[at] = true,
                None => {
                    findings.push(Finding::new(
                        file.path,
                        line,
                        format!("the `{lint}` lint is switched off"),
                    ));
                }
            }
        }
    }
    for ((path, lint), _) in exceptions.iter().zip(needed).filter(|(_, needed)| !needed) {
        findings.push(Finding::new(path, 0, format!("the exception for `{lint}` is not needed")));
    }
    findings
}

/// Where a file of the product switches off a list. Tests may, where they wait for other processes.
fn switched_off(file: File<'_>, code: &str) -> Vec<(usize, &'static str)> {
    if is_world(file.path) || !file.path.contains("/src/") {
        return Vec::new();
    }
    let of = |lint: &'static str| whole_words(code, lint).map(move |at| (line_of(code, at), lint));
    LISTS.into_iter().flat_map(of).collect()
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
fn lists_that_are_switched_off_are_found() {
    let off = "#[expect(clippy::disallowed_methods, reason = \"shown here\")]\nfn f() {}";
    let tree = Tree::of(&[
        ("crates/block/clippy.toml", "disallowed-methods = []"),
        ("clippy.toml", "disallowed-methods = []"),
        ("crates/block/src/a.rs", off),
        ("crates/block/src/b.rs", off),
        ("crates/block/tests/a.rs", off),
        ("crates/runtime/src/a.rs", off),
    ]);
    let lint = "disallowed_methods";
    let exceptions = [("crates/block/src/b.rs", lint), ("crates/block/src/c.rs", lint)];
    let found: Vec<String> = check_with(&tree, &exceptions).iter().map(ToString::to_string).collect();
    assert_eq!(
        found,
        [
            "crates/block/clippy.toml:0: it takes the place of the root's",
            "crates/block/src/a.rs:1: the `disallowed_methods` lint is switched off",
            "crates/block/src/c.rs:0: the exception for `disallowed_methods` is not needed",
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
