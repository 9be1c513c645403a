//! File length, and words that have no place in tracked text: notes to self, unfinished code, paths of one machine, and
//! names and phrases that were replaced by plain ones.

use super::code::{code_only, line_of, whole_words};
use super::tree::{File, Finding};

const LINES_MAX: usize = 1_000;

/// The documents that a newcomer reads first, and how many bytes each may have.
const BYTES_MAX: [(&str, usize); 2] = [("README.md", 6_400), ("ARCHITECTURE.md", 22 << 10)];

/// Split in two, so that this file passes its own check.
const NOTES: [&str; 5] = [
    concat!("TO", "DO"),
    concat!("FIX", "ME"),
    concat!("X", "XX"),
    concat!("to", "do!("),
    concat!("unimple", "mented!("),
];

const MACHINE_PATHS: [&str; 3] = [concat!("/", "work"), concat!("/", "root"), concat!("/", "home")];

/// Phrases that were replaced, and what says the same. Split in two, as above.
const REPLACED: [(&str, &str); 8] = [
    (concat!("by whom", "ever"), "by any process"),
    (concat!("are_", "ours"), "has_weir_features"),
    (concat!("take_all", "_over"), "collect_all_pages"),
    (concat!("give_back_now", "_and_then"), "release_unused"),
    (concat!("goes_", "blind"), "what is no longer read"),
    (concat!("tell_of_", "opening"), "log_opening"),
    (concat!("tell_of_", "zeros"), "what the function does with them"),
    (concat!("who is not", " the superuser"), "only the superuser"),
];

/// Names that say nothing, or something else in each place: of a type, put the noun before or behind it.
const BARE_TYPES: [&str; 13] = [
    "State", "Step", "Seen", "Found", "Met", "Who", "One", "On", "Told", "Promise", "Chain", "Nature",
    "Terms",
];

/// The crates whose types have names of their own.
const NAMED_CRATES: [&str; 13] = [
    "runtime",
    "storage",
    "block",
    "volume",
    "flash",
    "ext4",
    "image",
    "fuse",
    "capi",
    "preload",
    "sqlite",
    "sqlite-syncs",
    "sqlite-vfs",
];

/// Types with bare names in the product of these crates, and phrases that were replaced.
fn dialect(file: File<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    let path = file.path.strip_prefix("crates/").and_then(|path| path.split_once("/src/"));
    if file.is_rust() && path.is_some_and(|(name, _)| NAMED_CRATES.contains(&name)) {
        let code = code_only(file.text);
        for (kind, name) in
            ["struct", "enum", "trait", "type"].iter().flat_map(|k| BARE_TYPES.map(|n| (k, n)))
        {
            for at in whole_words(&code, &format!("{kind} {name}")) {
                findings.push(Finding::new(
                    file.path,
                    line_of(&code, at),
                    format!("`{name}` is no name of a type: of what?"),
                ));
            }
        }
    }
    for (old, new) in REPLACED {
        for at in whole_words(file.text, old) {
            findings.push(Finding::new(file.path, line_of(file.text, at), format!("`{old}`: {new}")));
        }
    }
    findings
}

pub fn check(file: File<'_>) -> Vec<Finding> {
    let mut findings = dialect(file);
    let lines = file.text.lines().count();
    if file.is_rust() && lines > LINES_MAX {
        findings.push(Finding::new(file.path, 0, format!("{lines} lines; at most {LINES_MAX}")));
    }
    let bytes = file.text.len();
    for (_, most) in BYTES_MAX.iter().filter(|(path, most)| *path == file.path && bytes > *most) {
        findings.push(Finding::new(file.path, 0, format!("{bytes} bytes; at most {most}")));
    }
    for word in NOTES {
        for at in whole_words(file.text, word) {
            findings.push(Finding::new(
                file.path,
                line_of(file.text, at),
                format!("`{word}`: finish it or leave it out"),
            ));
        }
    }
    for path in MACHINE_PATHS {
        for at in whole_words(file.text, path).filter(|at| starts_a_path(&file.text[..*at])) {
            findings.push(Finding::new(
                file.path,
                line_of(file.text, at),
                format!("`{path}` is a path of one machine"),
            ));
        }
    }
    findings
}

/// A slash after a word, a dot or another slash is inside a longer path or an address.
fn starts_a_path(before: &str) -> bool {
    !before.ends_with(|c: char| c.is_alphanumeric() || "._-/~*})>$".contains(c))
}

#[test]
fn a_long_file_a_note_and_a_machine_path_are_found() {
    let text = format!(
        "// {}: later\nlet a = \"{}/main/x\";\nlet b = \"crates{}load\"; // a{}\n{}",
        NOTES[0],
        MACHINE_PATHS[0],
        MACHINE_PATHS[0],
        MACHINE_PATHS[1],
        "\n".repeat(LINES_MAX)
    );
    let found = check(File { path: "a.rs", text: &text });
    let places: Vec<usize> = found.iter().map(|finding| finding.line).collect();
    assert_eq!(places, [0, 1, 2], "{found:?}");
}

#[test]
fn a_long_first_document_is_found() {
    let (path, most) = BYTES_MAX[0];
    let found = |bytes: usize, path| check(File { path, text: &"a".repeat(bytes) }).len();
    assert_eq!([found(most, path), found(most + 1, path), found(most + 1, "docs/a.md")], [0, 1, 0]);
}

#[test]
fn bare_types_and_replaced_phrases_are_found() {
    let text = format!("// {}\nenum State {{}}\nstruct StateOf;\ntype Who = u64;\n", REPLACED[0].0);
    let found = |path: &str| -> Vec<usize> {
        check(File { path, text: &text }).iter().map(|finding| finding.line).collect()
    };
    assert_eq!(found("crates/volume/src/a.rs"), [2, 4, 1]);
    assert_eq!(found("crates/volume/tests/a.rs"), [1]);
}
