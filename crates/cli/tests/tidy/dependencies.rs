//! Every outside crate earns its place: it is declared once at the root, used by some crate, and
//! explained on one line of ARCHITECTURE.md.

use toml::Table;

use super::tree::{Finding, Tree};

const DOCUMENT: &str = "ARCHITECTURE.md";
const ROOT: &str = "Cargo.toml";

/// Outside crates named in the sections of a manifest.
fn outside(manifest: &Table, sections: &[&str]) -> Vec<String> {
    let tables = sections.iter().filter_map(|section| manifest.get(*section)?.as_table());
    tables.flat_map(Table::keys).filter(|name| !name.starts_with("weir-")).cloned().collect()
}

fn declared(root: &Table) -> Vec<String> {
    let workspace = root.get("workspace").and_then(|workspace| workspace.as_table());
    workspace.map_or_else(Vec::new, |workspace| outside(workspace, &["dependencies"]))
}

pub fn check(tree: &Tree) -> Vec<Finding> {
    let manifest =
        |path: &str| tree.file(path).and_then(|file| file.text.parse::<Table>().ok()).unwrap_or_default();
    let declared = declared(&manifest(ROOT));
    let mut used = Vec::new();
    let mut findings = Vec::new();
    for file in
        tree.files().filter(|file| file.path.starts_with("crates/") && file.path.ends_with("/Cargo.toml"))
    {
        for name in outside(&manifest(file.path), &["dependencies", "dev-dependencies", "build-dependencies"])
        {
            if !declared.contains(&name) {
                findings.push(Finding::new(
                    file.path,
                    0,
                    format!("`{name}` is not in the root's [workspace.dependencies]"),
                ));
            }
            used.push(name);
        }
    }
    let document = tree.file(DOCUMENT).map_or("", |file| file.text);
    for name in declared {
        if !used.contains(&name) {
            findings.push(Finding::new(ROOT, 0, format!("no crate uses `{name}`")));
        }
        if !document.lines().any(|line| line.starts_with(&format!("| `{name}` |"))) {
            findings.push(Finding::new(DOCUMENT, 0, format!("no line says why `{name}` earns its place")));
        }
    }
    findings
}

#[test]
fn an_unexplained_an_unused_and_an_undeclared_dependency_are_found() {
    let tree = Tree::of(&[
        (ROOT, "[workspace.dependencies]\nweir-a = {}\nlibc = \"0.2\"\nrand = \"0.10\"\n"),
        (DOCUMENT, "| `libc` | constants |\n"),
        ("crates/a/Cargo.toml", "[dependencies]\nrand.workspace = true\n[dev-dependencies]\nodd = \"1\"\n"),
    ]);
    let found: Vec<String> = check(&tree).iter().map(ToString::to_string).collect();
    assert_eq!(
        found,
        [
            "crates/a/Cargo.toml:0: `odd` is not in the root's [workspace.dependencies]",
            "Cargo.toml:0: no crate uses `libc`",
            "ARCHITECTURE.md:0: no line says why `rand` earns its place",
        ]
    );
}
