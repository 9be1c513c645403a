//! docs/RULES.md, made of the definitions: a rule is an item `- **E1** ...` in the documentation of the crate that keeps
//! it, its mutants cite it (`/// E1: ...`), and the tests that kill a mutant name it. A rule without a mutant, and a
//! mutant without a rule or a test, is a finding: what no test can break is not implemented. After a change of these,
//! `cargo test -p weir-cli --test cli write_rules -- --ignored` writes the page anew.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use super::code::{code_only, imports, product_code, whole_words};
use super::mutants::{Mutant, mutants};
use super::tree::{Finding, Tree};

const DOCUMENT: &str = "docs/RULES.md";

/// Characters of a line of the page.
const COLUMNS: usize = 120;

/// The families: a letter, what it is about, and the crates whose documentation defines its rules.
const FAMILIES: [(char, &str, &[&str]); 11] = [
    ('S', "what every storage promises", &["storage"]),
    ('E', "what the block layer promises", &["block"]),
    ('J', "what the journal promises", &["journal", "fs"]),
    ('L', "what F2FS promises", &["lfs"]),
    ('K', "what a mount has the kernel hand over", &["fuse"]),
    ('I', "what a copy out of an image keeps", &["image"]),
    ('V', "what the volume promises", &["volume"]),
    ('F', "what the emulated firmware keeps", &["flash"]),
    ('N', "what a server of blocks promises", &["export", "vhost", "ublk"]),
    ('R', "what a replica in an object store keeps", &["replica"]),
    ('T', "what a test of a program keeps", &["program"]),
];

const HEAD: &str = "# The rules

A rule is a promise that one part of Weir makes and a test can break. It has a number or a name, a *mutant* (a version of
the code that drops the rule on purpose, under the feature `mutants`), and a test that fails with the mutant. Each crate's
documentation has its rules in full; here is the first sentence of each, with its mutants and with the tests that name them.
How to add a rule is in [CONTRIBUTING.md](../CONTRIBUTING.md#adding-a-rule); the words are in the [glossary](GLOSSARY.md).

This page is generated: `cargo test -p weir-cli --test cli write_rules -- --ignored` writes it anew.
";

/// A rule, and the first sentence of its definition.
struct Rule {
    name: String,
    sentence: String,
}

/// A function with the mutants that it names, by itself or by the helpers that it calls.
struct Test {
    name: String,
    mutants: BTreeSet<String>,
}

fn library(name: &str) -> String {
    format!("crates/{name}/src/lib.rs")
}

/// The items `- **NAME** ...` or `- **NAME, title.** ...` of a crate's documentation whose name is of this family, or is
/// a lower-case word.
fn rules_of(text: &str, family: char) -> Vec<Rule> {
    let mut items: Vec<String> = Vec::new();
    let mut is_open = false;
    for line in text
        .lines()
        .map_while(|line| line.strip_prefix("//!"))
        .map(|line| line.strip_prefix(' ').unwrap_or(line))
    {
        match line.strip_prefix("- **") {
            Some(item) => items.push(item.to_owned()),
            None if is_open && line.starts_with("  ") => {
                if let Some(item) = items.last_mut() {
                    *item += &line[1..];
                }
            }
            None => {}
        }
        is_open = line.starts_with("- **") || is_open && line.starts_with("  ");
    }
    let rules = items.iter().filter_map(|item| {
        let (head, text) = item.split_once("** ")?;
        let name = head.split(',').next()?;
        let number = name.strip_prefix(family).is_some_and(|number| number.parse::<u32>().is_ok());
        let word = name.chars().all(|c| c.is_ascii_lowercase());
        let sentence = text.split_once(". ").map_or(text.trim_end_matches('.'), |(first, _)| first);
        let sentence = sentence.replace("[`", "`").replace("`]", "`");
        (number || word).then(|| Rule { name: name.to_owned(), sentence: sentence + "." })
    });
    rules.collect()
}

/// The rules that a mutant's documentation cites before the colon, in lower case, and what it says behind it.
fn cited(documentation: &str) -> (Vec<String>, &str) {
    let (before, what) = documentation.split_once(": ").unwrap_or(("", documentation));
    let rules = before.split(", ").filter_map(|part| part.split(' ').next()).map(str::to_lowercase);
    (rules.collect(), what)
}

/// The functions of a file of tests. What stands outside of them and is imported counts by its last name.
fn tests_of(text: &str, mutants: &[Mutant]) -> Vec<Test> {
    let code = code_only(text);
    let imported: BTreeSet<String> = imports(&code).into_iter().map(|(_, path)| path).collect();
    let lines: Vec<&str> = code.lines().collect();
    let mut items: Vec<(bool, &str, String)> = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        let indent = &line[..line.len() - line.trim_start().len()];
        let words = || line.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|word| !word.is_empty());
        let Some(name) = words().skip_while(|word| !["fn", "const", "static"].contains(word)).nth(1) else {
            continue;
        };
        if indent.len() > 4 || line.trim_start().starts_with("use ") {
            continue;
        }
        let is_one_line = line.ends_with(';') || line.ends_with('}');
        let is_end =
            |line: &&&str| line.strip_prefix(indent).is_some_and(|rest| rest.starts_with(['}', ']', ')']));
        let body: Vec<&str> = match is_one_line {
            true => vec![line],
            false => lines[at..].iter().take_while(|line| !is_end(line)).copied().collect(),
        };
        let is_test = lines[..at]
            .iter()
            .rev()
            .take_while(|line| line.trim_start().starts_with('#'))
            .any(|line| line.contains("#[test]"));
        items.push((is_test, name, body.join("\n")));
    }
    let mut named: Vec<BTreeSet<String>> = items
        .iter()
        .map(|(_, _, body)| {
            let inner: BTreeSet<String> = imports(body).into_iter().map(|(_, path)| path).collect();
            let names = |mutant: &&Mutant| {
                let (kind, variant) = mutant.name.split_once("::").unwrap_or_default();
                let is_imported = |paths: &BTreeSet<String>| {
                    paths
                        .iter()
                        .any(|path| path.ends_with(&mutant.name) || path.ends_with(&format!("{kind}::*")))
                };
                whole_words(body, &mutant.name).next().is_some()
                    || is_imported(&inner)
                    || is_imported(&imported) && whole_words(body, variant).next().is_some()
            };
            mutants.iter().filter(names).map(|mutant| mutant.name.clone()).collect()
        })
        .collect();
    loop {
        let before: usize = named.iter().map(BTreeSet::len).sum();
        for (at, (_, _, body)) in items.iter().enumerate() {
            for (other, (is_test, name, _)) in items.iter().enumerate() {
                if at != other
                    && !is_test
                    && !named[other].is_empty()
                    && whole_words(body, name).next().is_some()
                {
                    let more = named[other].clone();
                    named[at].extend(more);
                }
            }
        }
        if named.iter().map(BTreeSet::len).sum::<usize>() == before {
            break;
        }
    }
    let tests =
        items.into_iter().zip(named).filter(|((is_test, _, _), mutants)| *is_test && !mutants.is_empty());
    tests.map(|((_, name, _), mutants)| Test { name: name.to_owned(), mutants }).collect()
}

/// The product's files that ask for mutants, as code: the places that keep the rules.
fn places(tree: &Tree) -> Vec<(&str, String)> {
    let is_product =
        |path: &str| path.contains("/src/") && !path.ends_with("mutants.rs") && !path.ends_with("tests.rs");
    let asks = tree.rust().filter(|file| is_product(file.path) && file.text.contains("Mutant::"));
    asks.map(|file| (file.path, product_code(file.text))).collect()
}

/// Text in lines of at most so many characters, the first behind `- ` and the others behind two spaces.
fn item(text: &str) -> String {
    let mut lines = String::from("- ");
    let mut column = 2;
    for word in text.split(' ') {
        if column > 2 && column + word.chars().count() > COLUMNS {
            lines = lines.trim_end().to_owned() + "\n  ";
            column = 2;
        }
        lines += word;
        lines.push(' ');
        column += word.chars().count() + 1;
    }
    lines.trim_end().to_owned() + "\n"
}

/// The page, and what is wrong with the definitions.
fn page(tree: &Tree) -> (String, Vec<Finding>) {
    let (mut page, mut findings) = (HEAD.to_owned(), Vec::new());
    let mutants = mutants(tree);
    let of_mutants = tree.rust().filter(|file| file.text.contains("Mutant"));
    let tests: Vec<Test> = of_mutants.flat_map(|file| tests_of(file.text, &mutants)).collect();
    let places = places(tree);
    let mut seen: BTreeSet<String> = BTreeSet::new();
    for (letter, title, crates) in FAMILIES {
        let links: Vec<String> =
            crates.iter().map(|name| format!("[{name}](../{})", library(name))).collect();
        let _ = write!(page, "\n## {letter}: {title}\n\nDefined by {}.\n", links.join(" and "));
        let text = |name: &&str| tree.file(&library(name)).map_or("", |file| file.text);
        for rule in crates.iter().flat_map(|name| rules_of(text(name), letter)) {
            let name = rule.name.to_lowercase();
            if !seen.insert(name.clone()) {
                continue;
            }
            let _ = write!(
                page,
                "\n### {}\n\n{}\n",
                rule.name,
                item(&rule.sentence).replace("\n  ", "\n").trim_start_matches("- ")
            );
            let mut is_kept = false;
            for mutant in mutants.iter().filter(|mutant| cited(&mutant.documentation).0.contains(&name)) {
                is_kept = true;
                let link = |path: &str| {
                    format!(
                        "[{}](../{path})",
                        path.rsplit('/').next().unwrap_or(path).trim_end_matches(".rs")
                    )
                };
                let asks = |code: &str| whole_words(code, &mutant.name).next().is_some();
                let sites = places.iter().filter(|(_, code)| asks(code)).map(|(path, _)| link(path));
                let sites: Vec<String> = sites.collect();
                let killers: BTreeSet<String> = tests
                    .iter()
                    .filter(|test| test.mutants.contains(&mutant.name))
                    .map(|test| format!("`{}`", test.name))
                    .collect();
                if killers.is_empty() {
                    findings.push(Finding::new(
                        &mutant.path,
                        mutant.line,
                        format!("no test names `{}`", mutant.name),
                    ));
                }
                let killers = killers.into_iter().collect::<Vec<_>>().join(", ");
                let what = cited(&mutant.documentation).1;
                page +=
                    &item(&format!("`{}` ({}): {what} Named by {killers}.", mutant.name, sites.join(", ")));
            }
            if !is_kept {
                findings.push(Finding::new(
                    DOCUMENT,
                    0,
                    format!("no mutant cites rule {}: it is not implemented", rule.name),
                ));
            }
        }
    }
    for mutant in &mutants {
        if !cited(&mutant.documentation).0.iter().any(|rule| seen.contains(rule)) {
            findings.push(Finding::new(
                &mutant.path,
                mutant.line,
                format!("`{}` cites no rule that a crate defines", mutant.name),
            ));
        }
    }
    (page, findings)
}

pub fn check(tree: &Tree) -> Vec<Finding> {
    let (page, mut findings) = page(tree);
    if tree.file(DOCUMENT).is_none_or(|file| file.text != page) {
        let what = "differs from the definitions: cargo test -p weir-cli --test cli write_rules -- --ignored";
        findings.push(Finding::new(DOCUMENT, 0, what));
    }
    findings
}

#[test]
#[ignore = "writes docs/RULES.md, and checks nothing"]
fn write_rules() {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(DOCUMENT);
    std::fs::write(path, page(&Tree::load()).0).unwrap();
}

#[test]
fn rules_without_mutants_and_mutants_without_rules_or_tests_are_found() {
    let tree = Tree::of(&[
        (
            "crates/storage/src/lib.rs",
            "//! - **S1, order.** First\n//!   come. Second.\n//! - **S2** Gone.\n//!\n//! - **E1** Not its own.\n",
        ),
        (
            "crates/storage/src/mutants.rs",
            "enum DemoMutant {\n    /// S1: real.\n    Real,\n    /// S9: lost.\n    Lost,\n    /// S1: survives.\n    Survives,\n}",
        ),
        ("crates/storage/src/a.rs", "fn a() { drops(DemoMutant::Real) }"),
        (
            "crates/storage/tests/a.rs",
            "use DemoMutant::Lost;\nfn helper() {\n    DemoMutant::Real\n}\n\n#[test]\nfn kills() {\n    helper();\n    Lost\n}\n",
        ),
    ]);
    let (page, findings) = page(&tree);
    let found: Vec<String> = findings.iter().map(ToString::to_string).collect();
    assert_eq!(
        found,
        [
            "crates/storage/src/mutants.rs:7: no test names `DemoMutant::Survives`",
            "docs/RULES.md:0: no mutant cites rule S2: it is not implemented",
            "crates/storage/src/mutants.rs:5: `DemoMutant::Lost` cites no rule that a crate defines",
        ]
    );
    let expected = "### S1\n\nFirst come.\n\n- `DemoMutant::Real` ([a](../crates/storage/src/a.rs)): real. Named by `kills`.\n";
    assert!(page.contains(expected), "{page}");
    assert_eq!(check(&tree).len(), findings.len() + 1);
}
