//! File length, and words that have no place in tracked text: notes to self, unfinished code, and
//! paths of one machine.

use super::code::{line_of, whole_words};
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

pub fn check(file: File<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
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
