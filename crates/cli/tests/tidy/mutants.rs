//! Mutants: a variant of an enum whose name ends in `Mutant` drops one rule. Each must be named in a
//! test or an example, or nothing shows that the rule is checked.

use crate::code::{code_only, imports, line_of, whole_words};
use crate::tree::{Finding, Tree};

/// Mutants of rules whose keeper is not built yet. One that a test names has no place here.
pub const AWAITED: [&str; 4] = [
    "FsMutant::DataBarrierForgetsMetadata",
    "FsMutant::NoBareBarrier",
    "FsMutant::StampsEveryWrite",
    "FsMutant::ReusesFreed",
];

/// One variant, as `BlockMutant::FlagLost`.
pub struct Mutant {
    pub path: String,
    pub line: usize,
    pub name: String,
}

/// All mutants of the product's code.
pub fn mutants(tree: &Tree) -> Vec<Mutant> {
    let sources = tree.rust().filter(|file| file.path.contains("/src/"));
    sources
        .flat_map(|file| {
            let code = code_only(file.text);
            variants(&code)
                .into_iter()
                .map(|(line, name)| Mutant { path: file.path.to_owned(), line, name })
                .collect::<Vec<_>>()
        })
        .collect()
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
            if !word.is_empty() {
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
    check_with(tree, &AWAITED)
}

fn check_with(tree: &Tree, awaited: &[&str]) -> Vec<Finding> {
    let tests = test_code(tree);
    let mut findings = Vec::new();
    for mutant in mutants(tree) {
        let named = whole_words(&tests, &mutant.name).next().is_some();
        let what = match (named, awaited.contains(&mutant.name.as_str())) {
            (false, false) => format!("no test names `{}`", mutant.name),
            (true, true) => format!("`{}` is not awaited any more: a test names it", mutant.name),
            _ => continue,
        };
        findings.push(Finding::new(&mutant.path, mutant.line, what));
    }
    findings
}

#[test]
fn a_mutant_that_no_test_names_is_found() {
    let source = "/// Rules.\n#[derive(Clone, Copy)]\npub enum DemoMutant {\n    /// E1, dropped.\n    Crosses,\n    #[allow(x)]\n    Starves,\n    Lies,\n    Later,\n    Now,\n}\nenum Other { A }";
    let tree = Tree::of(&[
        ("crates/demo/src/mutants.rs", source),
        ("crates/demo/tests/a.rs", "kills(DemoMutant::Crosses); // DemoMutant::Starves"),
        ("crates/demo/src/part/tests.rs", "fn f() {\n    use DemoMutant::{Lies, Now};\n}"),
    ]);
    let found: Vec<String> = check_with(&tree, &["DemoMutant::Later", "DemoMutant::Now"])
        .iter()
        .map(ToString::to_string)
        .collect();
    assert_eq!(
        found,
        [
            "crates/demo/src/mutants.rs:7: no test names `DemoMutant::Starves`",
            "crates/demo/src/mutants.rs:10: `DemoMutant::Now` is not awaited any more: a test names it",
        ]
    );
}
