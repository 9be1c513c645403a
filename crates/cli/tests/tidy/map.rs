//! The code map: every Rust file says in its first line, `//! ...`, what it is for. These lines are the map, so no
//! document repeats them. `cargo test -p weir-cli --test cli code_map -- --ignored --nocapture` prints it.

use super::tree::{Finding, Tree};

/// What a file is for: the first sentence of its `//!` lines, which ends with its paragraph at the latest. None if
/// the file does not begin with one.
fn purpose(text: &str) -> Option<String> {
    let paragraph: Vec<&str> = text
        .lines()
        .map_while(|line| line.strip_prefix("//!"))
        .map(str::trim)
        .take_while(|line| !line.is_empty())
        .collect();
    let paragraph = paragraph.join(" ");
    let sentence = paragraph.split_once(". ").map_or(paragraph.as_str(), |(sentence, _)| sentence);
    let sentence = sentence.trim_end_matches(['.', ':']);
    (!sentence.is_empty()).then(|| sentence.to_owned())
}

pub fn check(tree: &Tree) -> Vec<Finding> {
    let silent = tree.rust().filter(|file| purpose(file.text).is_none());
    silent
        .map(|file| {
            Finding::new(file.path, 1, "does not begin with a line `//! ...` that says what it is for")
        })
        .collect()
}

/// The map: the product's files, one a line, below the crate that they belong to.
pub fn map(tree: &Tree) -> String {
    let mut map = String::new();
    let mut last = "";
    for file in tree.rust() {
        let Some((name, inside)) =
            file.path.strip_prefix("crates/").and_then(|path| path.split_once("/src/"))
        else {
            continue;
        };
        if name != last {
            map += &format!("\n{name}\n");
            last = name;
        }
        map += &format!("  {inside:<32} {}\n", purpose(file.text).unwrap_or_default());
    }
    map
}

#[test]
fn a_file_without_a_purpose_is_found() {
    let tree = Tree::of(&[
        ("crates/x/src/a.rs", "//! Time, in\n//! two clocks. And more.\n//!\n//! Even more.\n"),
        ("crates/x/src/b.rs", "use a;\n//! Too late.\n"),
        ("crates/x/src/c.rs", "//!\n//! Not in the first line.\n"),
        ("crates/x/src/d/e.rs", "//! What follows:\n//!\n//! - a\n"),
        ("crates/x/tests/f.rs", ""),
        ("crates/y/src/lib.rs", "//! Y\n"),
    ]);
    let found: Vec<String> = check(&tree).iter().map(ToString::to_string).collect();
    let what = "does not begin with a line `//! ...` that says what it is for";
    assert_eq!(
        found,
        ["crates/x/src/b.rs", "crates/x/src/c.rs", "crates/x/tests/f.rs"]
            .map(|path| format!("{path}:1: {what}"))
    );
    let lines: Vec<String> =
        map(&tree).lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
    assert_eq!(
        lines,
        ["", "x", "a.rs Time, in two clocks", "b.rs", "c.rs", "d/e.rs What follows", "", "y", "lib.rs Y"]
    );
}
