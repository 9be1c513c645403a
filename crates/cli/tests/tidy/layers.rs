//! The layer diagram: the floor table of ARCHITECTURE.md against every crate's `[dependencies]`.

use std::collections::BTreeMap;

use toml::Table;

use super::tree::{File, Finding, Tree};

const DOCUMENT: &str = "ARCHITECTURE.md";

/// Rows `| 3 | `block` | ... |`: the floor of each crate.
fn floors(document: File<'_>) -> BTreeMap<String, u32> {
    let mut floors = BTreeMap::new();
    for line in document.text.lines() {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        if let ["", floor, name, ..] = cells[..]
            && let Ok(floor) = floor.parse()
        {
            floors.insert(name.trim_matches('`').to_owned(), floor);
        }
    }
    floors
}

/// The Weir crates that a manifest depends on, without their `weir-`. Development dependencies are
/// no part of the house: a test may use what it needs.
fn uses(manifest: &Table) -> Vec<String> {
    ["dependencies", "build-dependencies"]
        .iter()
        .filter_map(|section| manifest.get(*section)?.as_table())
        .flat_map(Table::keys)
        .filter_map(|name| name.strip_prefix("weir-").map(str::to_owned))
        .collect()
}

pub fn check(tree: &Tree) -> Vec<Finding> {
    let Some(document) = tree.file(DOCUMENT) else {
        return vec![Finding::new(DOCUMENT, 0, "missing")];
    };
    let floors = floors(document);
    let mut findings = Vec::new();
    for (name, floor) in &floors {
        if tree.file(&format!("crates/{name}/Cargo.toml")).is_none() {
            findings.push(Finding::new(
                DOCUMENT,
                0,
                format!("floor {floor} names `{name}`, which is no crate"),
            ));
        }
    }
    for file in tree.files() {
        let Some(name) = file.path.strip_prefix("crates/").and_then(|path| path.strip_suffix("/Cargo.toml"))
        else {
            continue;
        };
        findings.extend(check_crate(name, file, &floors));
    }
    findings
}

fn check_crate(name: &str, file: File<'_>, floors: &BTreeMap<String, u32>) -> Vec<Finding> {
    let Some(floor) = floors.get(name) else {
        return vec![Finding::new(file.path, 0, format!("`{name}` is not in the floor table of {DOCUMENT}"))];
    };
    let manifest: Table = match file.text.parse() {
        Ok(manifest) => manifest,
        Err(error) => return vec![Finding::new(file.path, 0, format!("not TOML: {error}"))],
    };
    let mut findings = Vec::new();
    for used in uses(&manifest) {
        let lower = floors.get(&used).is_some_and(|below| below < floor);
        if !lower {
            findings.push(Finding::new(
                file.path,
                0,
                format!("`{name}` uses `{used}`, which is not on a lower floor"),
            ));
        }
    }
    findings
}

#[test]
fn a_crate_that_looks_up_or_sideways_is_found() {
    let table =
        "| floor | crate |\n|---|---|\n| 0 | `low` |\n| 1 | `left` |\n| 1 | `right` |\n| 2 | `gone` |\n";
    let tree = Tree::of(&[
        (DOCUMENT, table),
        ("crates/low/Cargo.toml", "[dependencies]\nweir-left.workspace = true\n"),
        ("crates/left/Cargo.toml", "[dependencies]\nweir-low.workspace = true\nlibc = \"0.2\"\n"),
        (
            "crates/right/Cargo.toml",
            "[dependencies.weir-left]\npath = \"../left\"\n[dev-dependencies]\nweir-right = {}\n",
        ),
        ("crates/stray/Cargo.toml", ""),
    ]);
    let found: Vec<String> = check(&tree).iter().map(ToString::to_string).collect();
    assert_eq!(
        found,
        [
            "ARCHITECTURE.md:0: floor 2 names `gone`, which is no crate",
            "crates/low/Cargo.toml:0: `low` uses `left`, which is not on a lower floor",
            "crates/right/Cargo.toml:0: `right` uses `left`, which is not on a lower floor",
            "crates/stray/Cargo.toml:0: `stray` is not in the floor table of ARCHITECTURE.md",
        ]
    );
}
