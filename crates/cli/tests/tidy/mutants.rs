//! Mutants: a variant of an enum whose name ends in `Mutant` drops one rule. Each must be named in a
//! test or an example, or nothing shows that the rule is checked.

use std::process::Command;

use super::code::{code_only, imports, line_of, whole_words};
use super::tree::{Finding, Tree};
use crate::documents::root;
use crate::support::runs;

/// One variant, as `BlockMutant::FlagLost`.
pub struct Mutant {
    pub path: String,
    pub line: usize,
    pub name: String,
    pub documentation: String,
}

/// All mutants of the product's code.
pub fn mutants(tree: &Tree) -> Vec<Mutant> {
    let sources = tree.rust().filter(|file| file.path.contains("/src/"));
    sources
        .flat_map(|file| {
            let code = code_only(file.text);
            variants(&code)
                .into_iter()
                .map(|(line, name)| {
                    let documentation = documentation(file.text, line);
                    Mutant { path: file.path.to_owned(), line, name, documentation }
                })
                .collect::<Vec<_>>()
        })
        .collect()
}

/// What `///` says above a line, attributes between left out.
fn documentation(text: &str, line: usize) -> String {
    let above: Vec<&str> = text.lines().take(line - 1).map(str::trim).collect();
    let above = above.into_iter().rev().take_while(|line| line.starts_with("///") || line.starts_with("#["));
    let mut lines: Vec<&str> = above.filter_map(|line| line.strip_prefix("///")).map(str::trim).collect();
    lines.reverse();
    lines.join(" ")
}

/// Variants without fields, of each `enum ...Mutant { ... }`.
fn variants(code: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for at in whole_words(code, "enum") {
        let tail = &code[at..];
        let (Some(open), Some(close)) = (tail.find('{'), tail.find('}')) else { continue };
        let name = tail["enum".len()..open].trim();
        if !name.ends_with("Mutant") {
            continue;
        }
        let mut offset = at + open + 1;
        for variant in code[offset..at + close].split(',') {
            let word = variant.split_whitespace().next_back().unwrap_or("");
            // One with a field stands for another enum.
            if !word.is_empty() && !word.contains('(') {
                let line = line_of(code, offset + variant.trim_end().len());
                found.push((line, format!("{name}::{word}")));
            }
            offset += variant.len() + 1;
        }
    }
    found
}

/// The code of all tests and examples, with every import spelt out behind it.
pub fn test_code(tree: &Tree) -> String {
    let is_test =
        |path: &str| path.contains("/tests/") || path.contains("/examples/") || path.ends_with("/tests.rs");
    let mut text = String::new();
    for file in tree.rust().filter(|file| is_test(file.path)) {
        let code = code_only(file.text);
        for (_, path) in imports(&code) {
            text += &path;
            text.push('\n');
        }
        text += &code;
        text.push('\n');
    }
    text
}

pub fn check(tree: &Tree) -> Vec<Finding> {
    let tests = test_code(tree);
    let unnamed = |mutant: &Mutant| whole_words(&tests, &mutant.name).next().is_none();
    let found = mutants(tree).into_iter().filter(unnamed);
    found.map(|m| Finding::new(&m.path, m.line, format!("no test names `{}`", m.name))).collect()
}

#[test]
fn a_mutant_that_no_test_names_is_found() {
    let source = "/// Rules.\n#[derive(Clone, Copy)]\npub enum DemoMutant {\n    /// E1, dropped.\n    Crosses,\n    #[allow(x)]\n    Starves,\n    Lies,\n    Of(PartMutant),\n}\nenum Other { A }";
    let tree = Tree::of(&[
        ("crates/demo/src/mutants.rs", source),
        ("crates/demo/tests/a.rs", "kills(DemoMutant::Crosses); // DemoMutant::Starves"),
        ("crates/demo/src/part/tests.rs", "fn f() {\n    use DemoMutant::{Lies};\n}"),
    ]);
    let found: Vec<String> = check(&tree).iter().map(ToString::to_string).collect();
    assert_eq!(found, ["crates/demo/src/mutants.rs:7: no test names `DemoMutant::Starves`"]);
}

/// The crates that have mutants compiled in where cargo builds this.
fn crates_with_mutants(chosen: &[&str]) -> Vec<String> {
    let mut command = Command::new(env!("CARGO"));
    command.args(["tree", "--prefix", "none", "--format", "{p} with {f}"]).args(chosen).current_dir(root());
    let crates = runs(&mut command);
    let of_weir = crates.lines().filter(|line| line.starts_with("weir-"));
    of_weir.filter(|line| line.split([' ', ',']).any(|word| word == "mutants")).map(str::to_owned).collect()
}

#[test]
fn the_program_that_users_build_has_no_mutants() {
    assert_eq!(crates_with_mutants(&["--package", "weir-cli", "--edges", "normal,build"]), [""; 0]);
    // The control: tests have them.
    assert_ne!(crates_with_mutants(&["--workspace", "--edges", "all"]), [""; 0]);
}
