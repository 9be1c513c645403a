//! Test programs: a crate links its integration tests into one, `tests/main.rs`. A test that needs a process of its own
//! is listed in the manifest below a comment that gives the reason, and no test is in none. A command that names a
//! program and a module of it names one that exists.

use std::collections::BTreeSet;

use super::code::line_of;
use super::tree::{Finding, Tree};

/// Commands in these files are those of the commits that they state.
const HISTORY: &str = "results/";

/// The test programs of one crate, by name, and the modules of `tests/main.rs`.
struct Programs<'a> {
    folder: &'a str,
    names: BTreeSet<&'a str>,
    modules: BTreeSet<&'a str>,
}

/// The words that follow `start` at the beginning of a line, up to `end`.
fn entries<'a>(text: &'a str, start: &str, end: char) -> BTreeSet<&'a str> {
    text.lines().filter_map(|line| line.strip_prefix(start)?.split_once(end)).map(|(word, _)| word).collect()
}

/// What follows each `[[test]]` of a manifest up to the next section, and whether a comment stands before it.
fn sections(manifest: &str) -> impl Iterator<Item = (&str, bool)> {
    manifest.match_indices("[[test]]\n").map(|(at, header)| {
        let body = &manifest[at + header.len()..];
        let before = manifest[..at].lines().next_back();
        (body.split("\n[").next().unwrap_or_default(), before.is_some_and(|line| line.starts_with('#')))
    })
}

pub fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut crates = Vec::new();
    for manifest in tree.files() {
        let Some(folder) =
            manifest.path.strip_suffix("Cargo.toml").filter(|path| path.starts_with("crates/"))
        else {
            continue;
        };
        let tests = format!("{folder}tests/");
        let files: Vec<&str> = tree
            .rust()
            .filter_map(|file| file.path.strip_prefix(&tests)?.strip_suffix(".rs"))
            .filter(|name| !name.contains('/') || name.ends_with("/main"))
            .collect();
        let Some(main) = tree.file(&format!("{tests}main.rs")) else {
            if files.len() > 1 {
                findings.push(Finding::new(
                    manifest.path,
                    0,
                    "more than one test program, and no tests/main.rs",
                ));
            }
            crates.push(Programs { folder, names: files.into_iter().collect(), modules: BTreeSet::new() });
            continue;
        };
        let mut names = BTreeSet::new();
        let mut alone = BTreeSet::from(["main"]);
        for (section, has_reason) in sections(manifest.text) {
            names.extend(entries(section, "name = \"", '"'));
            if has_reason {
                alone.extend(entries(section, "path = \"tests/", '.'));
            }
        }
        let modules = entries(main.text, "mod ", ';');
        for name in files.into_iter().filter(|name| !modules.contains(name) && !alone.contains(name)) {
            let path = format!("{tests}{name}.rs");
            findings.push(Finding::new(
                &path,
                0,
                "neither a module of tests/main.rs, nor a program with a reason",
            ));
        }
        crates.push(Programs { folder, names, modules });
    }
    let sources = tree.files().filter(|file| !file.path.starts_with(HISTORY));
    findings.extend(sources.flat_map(|file| {
        let unknown = file.text.match_indices(COMMAND).filter(|(at, _)| !is_known(&crates, file.text, *at));
        let lines: Vec<usize> = unknown.map(|(at, _)| line_of(file.text, at)).collect();
        lines
            .into_iter()
            .map(move |line| Finding::new(file.path, line, "no such test program, or module of it"))
    }));
    findings
}

const COMMAND: &str = concat!("--", "test ");

/// Whether the command with [`COMMAND`] at `at` names a program of the crate that it names, or of any, and after that
/// nothing, an option, a test, or `MODULE::` where there is that module.
fn is_known(crates: &[Programs<'_>], text: &str, at: usize) -> bool {
    let mut words = text[at + COMMAND.len()..].split(|c: char| c.is_whitespace() || c == '`');
    let program = words.next().unwrap_or_default();
    let module = words.next().and_then(|word| word.strip_suffix("::"));
    let before = text[..at].lines().next_back().unwrap_or_default();
    let named = before.rsplit_once("-p weir-").and_then(|(_, rest)| rest.split_whitespace().next());
    crates.iter().any(|programs| {
        named.is_none_or(|name| programs.folder == format!("crates/{name}/"))
            && programs.names.contains(program)
            && module.is_none_or(|module| programs.modules.contains(module))
    })
}

#[test]
fn a_test_in_no_program_and_a_command_that_names_none_are_found() {
    let manifest = "[[test]]\nname = \"x\"\npath = \"tests/main.rs\"\n\n# It limits its process.\n[[test]]\n\
                    name = \"alone\"\npath = \"tests/alone.rs\"\n\n[[test]]\nname = \"lazy\"\npath = \"tests/lazy.rs\"\n";
    let commands = [("-p weir-x ", "x a::"), ("-p weir-x ", "x b::"), ("", "alone"), ("-p weir-y ", "alone")];
    let document = commands.map(|(of, program)| format!("`cargo test {of}{COMMAND}{program}`\n")).concat();
    let tree = Tree::of(&[
        ("README.md", &document),
        ("results/README.md", &document),
        ("crates/x/Cargo.toml", manifest),
        ("crates/x/tests/main.rs", "mod a;\nmod folder;\n"),
        ("crates/x/tests/a.rs", ""),
        ("crates/x/tests/alone.rs", ""),
        ("crates/x/tests/forgotten.rs", ""),
        ("crates/x/tests/folder/mod.rs", ""),
        ("crates/x/tests/lazy.rs", ""),
        ("crates/x/tests/other/main.rs", ""),
        ("crates/y/Cargo.toml", ""),
        ("crates/y/tests/a.rs", ""),
        ("crates/y/tests/b.rs", ""),
        ("crates/z/Cargo.toml", ""),
        ("crates/z/tests/a.rs", ""),
    ]);
    let found: Vec<String> = check(&tree).iter().map(ToString::to_string).collect();
    assert_eq!(
        found,
        [
            "crates/x/tests/forgotten.rs:0: neither a module of tests/main.rs, nor a program with a reason",
            "crates/x/tests/lazy.rs:0: neither a module of tests/main.rs, nor a program with a reason",
            "crates/x/tests/other/main.rs:0: neither a module of tests/main.rs, nor a program with a reason",
            "crates/y/Cargo.toml:0: more than one test program, and no tests/main.rs",
            "README.md:2: no such test program, or module of it",
            "README.md:4: no such test program, or module of it",
        ]
    );
}
