//! Relative links in the Markdown documents lead to files that exist, and anchors to headings.

use std::collections::BTreeMap;

use super::tree::{File, Finding, Tree};

pub fn check(tree: &Tree) -> Vec<Finding> {
    let documents = tree.files().filter(|file| file.path.ends_with(".md"));
    documents.flat_map(|file| check_document(tree, file)).collect()
}

fn check_document(tree: &Tree, file: File<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (line, target) in links(file.text) {
        let outside = target.contains("://") || target.starts_with("mailto:");
        if !outside && let Err(what) = follow(tree, file, &target) {
            findings.push(Finding::new(file.path, line, format!("dead link `{target}`: {what}")));
        }
    }
    findings
}

fn follow(tree: &Tree, from: File<'_>, target: &str) -> Result<(), &'static str> {
    let (path, anchor) = target.split_once('#').unwrap_or((target, ""));
    let path = if path.is_empty() { from.path.to_owned() } else { resolve(from.path, path) };
    if !tree.exists(&path) {
        return Err("no such file");
    }
    if anchor.is_empty() {
        return Ok(());
    }
    let document = tree.file(&path).filter(|file| file.path.ends_with(".md"));
    let found = document.is_some_and(|file| anchors(file.text).iter().any(|heading| heading == anchor));
    if found { Ok(()) } else { Err("no such heading") }
}

/// `docs/a.md` and `../README.md` make `README.md`.
fn resolve(from: &str, path: &str) -> String {
    let mut parts: Vec<&str> = from.split('/').collect();
    parts.pop();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    parts.join("/")
}

/// Lines outside fenced code, numbered from 1.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut fenced = false;
    text.lines().enumerate().filter_map(move |(at, line)| {
        let fence = line.trim_start().starts_with("```");
        fenced ^= fence;
        (!fenced && !fence).then_some((at + 1, line))
    })
}

/// The targets of `[text](target)`, outside code.
fn links(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for (number, line) in prose(text) {
        let spoken: String = line.split('`').step_by(2).collect::<Vec<_>>().join("code");
        for (at, _) in spoken.match_indices("](") {
            let tail = &spoken[at + 2..];
            if let Some(end) = tail.find(')') {
                found.push((number, tail[..end].to_owned()));
            }
        }
    }
    found
}

/// The anchors of all headings, made as the usual hosts make them: lower case, punctuation dropped,
/// spaces to hyphens, a number behind a repeated one.
fn anchors(text: &str) -> Vec<String> {
    let mut seen = BTreeMap::new();
    let headings = prose(text).filter(|(_, line)| line.starts_with('#'));
    let slugs = headings.map(|(_, line)| {
        let title = line.trim_start_matches('#').trim().to_lowercase().replace(' ', "-");
        title.chars().filter(|c| c.is_alphanumeric() || "-_".contains(*c)).collect::<String>()
    });
    slugs
        .map(|slug| {
            let times = seen.entry(slug.clone()).and_modify(|times| *times += 1).or_insert(0);
            if *times == 0 { slug } else { format!("{slug}-{times}") }
        })
        .collect()
}

#[test]
fn dead_files_and_dead_anchors_are_found() {
    let tree = Tree::of(&[
        (
            "README.md",
            "# Top\n[a](docs/a.md#the-b--c) [b](docs/a.md#the-b) [web](https://x.y) `[not](a-link)`\n```\n[nor](this)\n```\n[d](docs)",
        ),
        (
            "docs/a.md",
            "## The `b` & c\n## The b, c\n[up](../README.md#top) [no](b.md) [nor](#nowhere) [out](../README.md#none)",
        ),
    ]);
    let found: Vec<String> = check(&tree).iter().map(ToString::to_string).collect();
    assert_eq!(
        found,
        [
            "README.md:2: dead link `docs/a.md#the-b`: no such heading",
            "docs/a.md:3: dead link `b.md`: no such file",
            "docs/a.md:3: dead link `#nowhere`: no such heading",
            "docs/a.md:3: dead link `../README.md#none`: no such heading",
        ]
    );
    assert_eq!(anchors("# A b\n## A b\n"), ["a-b", "a-b-1"]);
}
