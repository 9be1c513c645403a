//! The code map of ARCHITECTURE.md is whole: it links to every noun of every crate, that is every file or
//! folder right under `src`. A map that rots is worse than none.

use std::collections::BTreeSet;

use crate::tree::{Finding, Tree};

const DOCUMENT: &str = "ARCHITECTURE.md";

/// `crates/block/src/elevator/noop.rs` belongs to the noun `crates/block/src/elevator`. The roots of a
/// crate are no nouns.
fn noun(path: &str) -> Option<String> {
    let (name, inside) = path.strip_prefix("crates/")?.split_once("/src/")?;
    let noun = inside.split('/').next()?;
    let noun = noun.strip_suffix(".rs").unwrap_or(noun);
    (!["lib", "main"].contains(&noun)).then(|| format!("crates/{name}/src/{noun}"))
}

pub fn check(tree: &Tree) -> Vec<Finding> {
    let document = tree.file(DOCUMENT).map_or("", |file| file.text);
    let nouns: BTreeSet<String> = tree.rust().filter_map(|file| noun(file.path)).collect();
    let mapped =
        |noun: &String| [")", "/)", ".rs)"].iter().any(|end| document.contains(&format!("]({noun}{end}")));
    let missing = nouns.into_iter().filter(|noun| !mapped(noun));
    missing.map(|noun| Finding::new(DOCUMENT, 0, format!("the code map does not link to `{noun}`"))).collect()
}

#[test]
fn a_file_that_is_not_on_the_map_is_found() {
    let tree = Tree::of(&[
        (DOCUMENT, "[a](crates/x/src/a.rs) [b](crates/x/src/b)"),
        ("crates/x/src/lib.rs", ""),
        ("crates/x/src/a.rs", ""),
        ("crates/x/src/b/c.rs", ""),
        ("crates/x/src/d/mod.rs", ""),
        ("crates/x/src/e.rs", ""),
        ("crates/x/tests/f.rs", ""),
    ]);
    let found: Vec<String> = check(&tree).iter().map(ToString::to_string).collect();
    assert_eq!(
        found,
        [
            "ARCHITECTURE.md:0: the code map does not link to `crates/x/src/d`",
            "ARCHITECTURE.md:0: the code map does not link to `crates/x/src/e`",
        ]
    );
}
