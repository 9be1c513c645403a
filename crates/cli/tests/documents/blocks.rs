//! The blocks of commands in a document, and what is said of them where a reader does not see it.
//!
//! Any of these comments stands on a line of its own before a block:
//!
//! - `<!-- not run: REASON -->`: the test cannot run it.
//! - `<!-- run after: COMMANDS -->`: what a reader has done before.
//! - `<!-- run with: THIS for THAT -->`: what is run where THAT is printed, each time.
//!
//! Two comments enclose a table of a figure's numbers, and stand anywhere else (`tidy::figures`).
//!
//! Any other comment, a comment without a block, and a block in a language that is not known are errors.

use std::fmt::Write as _;

use crate::tidy::figures::is_end_of_table;

/// Commands are in these languages.
const RUN: [&str; 2] = ["sh", "python"];
/// What is shown, and not to be typed into a shell.
const SHOWN: [&str; 4] = ["text", "c", "rust", "ini"];

/// A block of commands.
#[derive(Debug, PartialEq, Eq)]
pub struct Block {
    /// Where it begins, counted from 1.
    pub line: usize,
    pub how: How,
}

#[derive(Debug, PartialEq, Eq)]
pub enum How {
    /// These commands.
    Run(String),
    /// For this reason.
    NotRun(String),
}

/// A comment.
enum Marker<'a> {
    NotRun(&'a str),
    After(&'a str),
    With { this: &'a str, that: &'a str },
}

impl Marker<'_> {
    fn read(line: &str) -> Option<Marker<'_>> {
        let inside = line.trim().strip_prefix("<!-- ")?.strip_suffix(" -->")?;
        match inside.split_once(": ")? {
            ("not run", why) => Some(Marker::NotRun(why)),
            ("run after", commands) => Some(Marker::After(commands)),
            ("run with", what) => what.split_once(" for ").map(|(this, that)| Marker::With { this, that }),
            _ => None,
        }
    }
}

/// The blocks of commands in a document, or its first error, which begins with its line.
pub fn read(text: &str) -> Result<Vec<Block>, String> {
    let (mut blocks, mut markers) = (Vec::new(), Vec::new());
    let mut lines = text.lines().zip(1..);
    while let Some((line, number)) = lines.next() {
        if markers.is_empty() && is_end_of_table(line) {
            continue;
        }
        if line.trim_start().starts_with("<!--") {
            markers.push(Marker::read(line).ok_or_else(|| format!("{number}: not a comment that is known"))?);
        } else if let Some((indent, language)) = line.split_once("```") {
            if !indent.trim().is_empty() {
                continue;
            }
            let inside = lines.by_ref().map(|(line, _)| line).take_while(|line| line.trim() != "```");
            let commands: Vec<&str> =
                inside.map(|line| line.strip_prefix(indent).unwrap_or_else(|| line.trim_start())).collect();
            let how = match (RUN.contains(&language), SHOWN.contains(&language)) {
                (true, _) => how(language, &commands.join("\n"), &markers),
                (_, true) if markers.is_empty() => continue,
                (_, true) => Err("a comment before what is not run in any case".to_owned()),
                _ => Err(format!("a block in {language:?}, which is neither of {RUN:?} nor of {SHOWN:?}")),
            };
            blocks.push(Block { line: number, how: how.map_err(|error| format!("{number}: {error}"))? });
            markers.clear();
        } else if !line.trim().is_empty() && !markers.is_empty() {
            return Err(format!("{number}: no block behind a comment"));
        }
    }
    if markers.is_empty() { Ok(blocks) } else { Err("0: no block behind a comment".to_owned()) }
}

fn how(language: &str, commands: &str, markers: &[Marker<'_>]) -> Result<How, String> {
    if let [Marker::NotRun(why)] = markers {
        return Ok(How::NotRun((*why).to_owned()));
    }
    let (mut before, mut commands) = (String::new(), commands.to_owned());
    for marker in markers {
        match marker {
            Marker::NotRun(_) => return Err("it is run, or not, but not both".to_owned()),
            Marker::After(more) => writeln!(before, "{more}").map_err(|error| error.to_string())?,
            Marker::With { this, that } if commands.contains(that) => commands = commands.replace(that, this),
            Marker::With { that, .. } => return Err(format!("{that:?} is not printed in it")),
        }
    }
    let commands = match language {
        "python" => format!("python3 - <<'END-OF-BLOCK'\n{commands}\nEND-OF-BLOCK"),
        _ => commands,
    };
    Ok(How::Run(before + &commands))
}

fn error_of(text: &str) -> String {
    read(text).unwrap_err()
}

#[test]
fn blocks_are_taken_as_they_are_meant() {
    let text = "# Text with ``` in it\n<!-- rows: begin -->\n```sh\na \\\n    b\n```\n\n1. A list\n\n   ```sh\n   c\n     d\n   ```\n\
                <!-- not run: it takes a disk -->\n```sh\nrm -r /\n```\n```c\nint e;\n```\n\
                <!-- run after: mkdir f; g -->\n<!-- run with: 1M for 4G -->\n\n```sh\nh 4G 4G\n```\n\
                ```python\nimport i\n```\n";
    let run = |line, commands: &str| Block { line, how: How::Run(commands.to_owned()) };
    let expected = [
        run(3, "a \\\n    b"),
        run(10, "c\n  d"),
        Block { line: 15, how: How::NotRun("it takes a disk".to_owned()) },
        run(24, "mkdir f; g\nh 1M 1M"),
        run(27, "python3 - <<'END-OF-BLOCK'\nimport i\nEND-OF-BLOCK"),
    ];
    assert_eq!(read(text).unwrap(), expected);
}

#[test]
fn what_is_not_meant_is_found() {
    let block = "```sh\na\n```\n";
    assert_eq!(error_of(&format!("<!-- skip -->\n{block}")), "1: not a comment that is known");
    let between = format!("<!-- not run: why -->\n<!-- rows: end -->\n{block}");
    assert_eq!(error_of(&between), "2: not a comment that is known");
    assert_eq!(error_of(&format!("<!-- not run -->\n{block}")), "1: not a comment that is known");
    assert_eq!(error_of(&format!("<!-- run with: b -->\n{block}")), "1: not a comment that is known");
    assert_eq!(error_of(&format!("<!-- run with: b for c -->\n{block}")), "2: \"c\" is not printed in it");
    assert_eq!(error_of(&format!("<!-- not run: b -->\nText.\n{block}")), "2: no block behind a comment");
    assert_eq!(error_of(&format!("{block}<!-- not run: b -->")), "0: no block behind a comment");
    let both = format!("<!-- not run: b -->\n<!-- run after: c -->\n{block}");
    assert_eq!(error_of(&both), "3: it is run, or not, but not both");
    assert!(error_of("<!-- not run: b -->\n```c\n```\n").starts_with("2: a comment before"));
    for language in ["", "bash", "console", "sh "] {
        assert!(error_of(&format!("```{language}\na\n```\n")).starts_with("1: a block in"), "{language}");
    }
}
