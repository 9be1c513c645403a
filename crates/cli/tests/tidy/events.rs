//! Every event of a log has a name, which programs look for, and the page for operators lists those that are not for developers.

use regex_lite::Regex;

use super::tree::{Finding, Tree};

const PAGE: &str = "docs/operators.md";
const SECTION: &str = "## Events";
/// The levels of events that only developers ask for.
const OF_DEVELOPERS: [&str; 2] = ["debug", "trace"];

/// An event where it is made: the level, the name if it has one, the line.
struct EventSource {
    level: String,
    name: Option<String>,
    line: usize,
}

fn sources(text: &str) -> Vec<EventSource> {
    let of_library = r#"\b(error|warn|info|debug|trace)!\(\s*(?:name:\s*"([a-z_]+)")?"#;
    let of_program = r#"\bLogLine::new\(\s*Level::([A-Z]+),\s*(?:"([a-z_]+)")?"#;
    let has_events = text.lines().any(|line| line.starts_with("use tracing::"));
    let patterns = has_events.then_some(of_library).into_iter().chain([of_program]);
    patterns
        .flat_map(|pattern| {
            let pattern = Regex::new(pattern).expect("the pattern is right");
            let found: Vec<_> = pattern.captures_iter(text).collect();
            found.into_iter().map(|found| EventSource {
                level: found[1].to_lowercase(),
                name: found.get(2).map(|name| name.as_str().to_owned()),
                line: text[..found.get(0).map_or(0, |whole| whole.start())].lines().count(),
            })
        })
        .collect()
}

pub fn check(tree: &Tree) -> Vec<Finding> {
    let page = tree.file(PAGE).and_then(|file| file.text.split_once(SECTION)).map_or("", |(_, rest)| rest);
    let rows = page.split("\n## ").next().unwrap_or_default().lines().filter(|line| line.starts_with("| `"));
    let name = Regex::new("`([a-z_]+)`").expect("the pattern is right");
    let listed: Vec<&str> = rows
        .filter_map(|row| row.split('|').nth(1))
        .flat_map(|cell| name.captures_iter(cell).filter_map(|found| Some(found.get(1)?.as_str())))
        .collect();
    let (mut findings, mut made) = (Vec::new(), Vec::new());
    for file in tree.rust().filter(|file| file.path.starts_with("crates/") && file.path.contains("/src/")) {
        for EventSource { level, name, line } in sources(file.text) {
            let mut found = |what: String| findings.push(Finding::new(file.path, line, what));
            match name {
                None => found(format!("an event of level {level} has no name")),
                Some(name) if OF_DEVELOPERS.contains(&level.as_str()) => made.push(name),
                Some(name) => {
                    if !listed.contains(&name.as_str()) {
                        found(format!("{PAGE} does not list the event `{name}`"));
                    }
                    made.push(name);
                }
            }
        }
    }
    let unknown = listed.into_iter().filter(|name| !made.iter().any(|made| made == name));
    findings.extend(unknown.map(|name| Finding::new(PAGE, 0, format!("there is no event `{name}`"))));
    findings
}

#[test]
fn events_without_a_name_and_names_without_an_event_are_found() {
    let page = format!("{SECTION}\n\n| event | it says |\n|---|---|\n| `a`, `gone` | `no_event` |\n");
    let library = "use tracing::{info, warn};\nfn f() {\n    warn!(\"x\");\n    info!(\n        name: \"a\",\n        \"x\"\n    );\n}\n";
    let program =
        "use crate::log_line::LogLine;\nfn f() {\n    LogLine::new(Level::WARN, \"b\", \"x\").print();\n}\n";
    let tree = Tree::of(&[
        (PAGE, &page),
        ("crates/a/src/lib.rs", library),
        ("crates/b/src/lib.rs", program),
        ("crates/c/src/lib.rs", "fn f() { warn!(\"of another kind\") }"),
    ]);
    let found: Vec<_> = check(&tree).into_iter().map(|finding| (finding.path, finding.line)).collect();
    let expected = [("crates/a/src/lib.rs", 3), ("crates/b/src/lib.rs", 3), (PAGE, 0)];
    assert_eq!(found, expected.map(|(path, line)| (path.to_owned(), line)));
}
