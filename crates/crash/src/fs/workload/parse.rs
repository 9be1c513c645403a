//! A workload as text: one operation a line, empty lines, and comments from `#` to the end of a line.

use std::fmt::{self, Display};
use std::str::FromStr;
use weir_vfs::SyncCall;

use super::operation::{
    ATTRIBUTE_BYTES_MAX, Allocation, FILE_BYTES_MAX, Operation, PathError, WorkloadPath, is_plain,
};

/// Operations of a workload, at most.
pub const OPERATIONS_MAX: usize = 1000;
/// Bytes of a workload's text, at most.
pub const TEXT_BYTES_MAX: usize = 1 << 20;
/// Bytes of what a symbolic link says, at most.
const TARGET_BYTES_MAX: usize = 1024;

/// A sequence of operations.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Workload {
    /// In the order in which they are done, [`OPERATIONS_MAX`] at most.
    pub operations: Vec<Operation>,
}

/// Why text is no workload.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {what}")]
pub struct ParseError {
    /// The line, from 1.
    pub line: usize,
    /// What is wrong with it.
    pub what: Mistake,
}

/// What is wrong with a line, and what to write instead.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Mistake {
    /// No operation has this name.
    #[error("unknown operation {0:?}: the operations are {names}", names = FORMS.map(|(name, _)| name).join(", "))]
    Operation(String),
    /// The operation takes other words.
    #[error("usage: {0}")]
    Words(String),
    /// A path.
    #[error("{path:?}: {why}")]
    Path {
        /// As it was written.
        path: String,
        /// What is wrong with it.
        why: PathError,
    },
    /// A number.
    #[error("{0:?} is not a number of bytes: write 4096, 4K or 1M, for example, with a capital letter")]
    Number(String),
    /// A number that is not in its range.
    #[error("{what} is {least} to {most} bytes")]
    Range {
        /// What has a range.
        what: &'static str,
        /// From.
        least: u64,
        /// To.
        most: u64,
    },
    /// A mode of `falloc` that there is not.
    #[error("unknown mode {0:?} of falloc: the modes are grow, keep-size, zero, zero-keep-size and punch")]
    Mode(String),
    /// There are too many operations, or too many bytes.
    #[error("a workload has at most 1,000 operations and 1 MiB: leave some out")]
    TooLong,
}

/// The lines of a workload's text that hold an operation: the number of each, from 1, and the line without its comment.
pub fn operation_lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let told = text.lines().map(|line| line.split('#').next().unwrap_or(""));
    (1..).zip(told).filter(|(_, told)| !told.trim().is_empty())
}

impl FromStr for Workload {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Workload, ParseError> {
        if text.len() > TEXT_BYTES_MAX {
            return Err(ParseError { line: 1, what: Mistake::TooLong });
        }
        let mut operations = Vec::new();
        for (line, told) in operation_lines(text) {
            let operation = told.parse().map_err(|what| ParseError { line, what })?;
            if operations.len() == OPERATIONS_MAX {
                return Err(ParseError { line, what: Mistake::TooLong });
            }
            operations.push(operation);
        }
        Ok(Workload { operations })
    }
}

impl Display for Workload {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.operations.iter().try_for_each(|operation| writeln!(to, "{operation}"))
    }
}

impl FromStr for Operation {
    type Err = Mistake;

    fn from_str(line: &str) -> Result<Operation, Mistake> {
        let words: Vec<&str> = line.split_whitespace().collect();
        let Some((name, rest)) = words.split_first() else { return Err(Mistake::Operation(String::new())) };
        if let (Some(call), [file]) = (name.parse::<SyncCall>().ok(), rest) {
            return Ok(Operation::Synchronise(call, path(file)?));
        }
        Ok(match (*name, rest) {
            ("sync", []) => Operation::Sync,
            ("mkdir", [new]) => Operation::Mkdir(entry(new)?),
            ("create", [new]) => Operation::Create(entry(new)?),
            ("link", [old, new]) => Operation::Link { old: entry(old)?, new: entry(new)? },
            ("unlink", [old]) => Operation::Unlink(entry(old)?),
            ("rmdir", [old]) => Operation::Rmdir(entry(old)?),
            ("rename", [old, new]) => Operation::Rename { old: entry(old)?, new: entry(new)? },
            ("symlink", [target, new]) => Operation::Symlink { target: said(target)?, new: entry(new)? },
            ("write", [to, offset, length]) => {
                let (offset, length) = range(offset, length)?;
                Operation::Write { path: path(to)?, offset, length }
            }
            ("append", [to, length]) => {
                Operation::Append { path: path(to)?, length: bytes("a length", length, 1, FILE_BYTES_MAX)? }
            }
            ("falloc", [to, offset, length, how @ ..]) if how.len() < 2 => {
                let (offset, length) = range(offset, length)?;
                let how = how.first().map_or(Ok(Allocation::Grow), |how| mode(how))?;
                Operation::Falloc { path: path(to)?, how, offset, length }
            }
            ("truncate", [of, size]) => {
                Operation::Truncate { path: path(of)?, size: bytes("a size", size, 0, FILE_BYTES_MAX)? }
            }
            ("setxattr", [of, length]) => {
                let length = bytes("the value of an attribute", length, 1, ATTRIBUTE_BYTES_MAX)?;
                Operation::SetAttribute { path: path(of)?, length }
            }
            ("removexattr", [of]) => Operation::RemoveAttribute(path(of)?),
            (name, _) => return Err(misused(name)),
        })
    }
}

/// The operations, and the words behind each.
const FORMS: [(&str, &str); 18] = [
    ("mkdir", " PATH"),
    ("create", " PATH"),
    ("link", " OLD NEW"),
    ("unlink", " PATH"),
    ("rmdir", " PATH"),
    ("rename", " OLD NEW"),
    ("symlink", " TARGET PATH"),
    ("write", " PATH OFFSET LENGTH"),
    ("append", " PATH LENGTH"),
    ("falloc", " PATH OFFSET LENGTH [grow|keep-size|zero|zero-keep-size|punch]"),
    ("truncate", " PATH SIZE"),
    ("setxattr", " PATH LENGTH"),
    ("removexattr", " PATH"),
    ("fsync", " PATH"),
    ("fdatasync", " PATH"),
    ("fbarrier", " PATH"),
    ("fdatabarrier", " PATH"),
    ("sync", ", and nothing else"),
];

/// The error for an operation with other words than it takes, or for a name that no operation has.
fn misused(name: &str) -> Mistake {
    match FORMS.iter().find(|(known, _)| *known == name) {
        Some((name, words)) => Mistake::Words(format!("{name}{words}")),
        None => Mistake::Operation(name.chars().take(40).collect()),
    }
}

fn wrong(path: &str, why: PathError) -> Mistake {
    Mistake::Path { path: path.chars().take(40).collect(), why }
}

fn path(text: &str) -> Result<WorkloadPath, Mistake> {
    WorkloadPath::new(text).map_err(|why| wrong(text, why))
}

/// A path that names an entry of a directory: any but the root.
fn entry(text: &str) -> Result<WorkloadPath, Mistake> {
    let path = path(text)?;
    if path.parent().is_some() { Ok(path) } else { Err(wrong(text, PathError::Root)) }
}

fn said(target: &str) -> Result<String, Mistake> {
    match target.len() {
        _ if !is_plain(target) => Err(wrong(target, PathError::Character)),
        1..=TARGET_BYTES_MAX => Ok(target.to_owned()),
        _ => Err(Mistake::Range { what: "what a link says", least: 1, most: TARGET_BYTES_MAX as u64 }),
    }
}

fn mode(text: &str) -> Result<Allocation, Mistake> {
    Allocation::from_name(text).ok_or_else(|| Mistake::Mode(text.chars().take(40).collect()))
}

fn range(offset: &str, length: &str) -> Result<(u64, u64), Mistake> {
    let offset = bytes("an offset", offset, 0, FILE_BYTES_MAX)?;
    let length = bytes("a length", length, 1, FILE_BYTES_MAX)?;
    match offset + length <= FILE_BYTES_MAX {
        true => Ok((offset, length)),
        false => Err(Mistake::Range { what: "a file", least: 0, most: FILE_BYTES_MAX }),
    }
}

fn bytes(what: &'static str, text: &str, least: u64, most: u64) -> Result<u64, Mistake> {
    let (digits, unit) = match text.as_bytes().last() {
        Some(b'K') => (&text[..text.len() - 1], 1 << 10),
        Some(b'M') => (&text[..text.len() - 1], 1 << 20),
        _ => (text, 1),
    };
    let is_number = !digits.is_empty() && digits.bytes().all(|digit| digit.is_ascii_digit());
    if !is_number {
        return Err(Mistake::Number(text.chars().take(40).collect()));
    }
    let bytes = digits.parse::<u64>().ok().and_then(|number| number.checked_mul(unit));
    bytes.filter(|bytes| (least..=most).contains(bytes)).ok_or(Mistake::Range { what, least, most })
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: &str = "\
mkdir /A
create /A/foo
link /A/foo /bar
unlink /bar
rmdir /A
rename /A/foo /baz
symlink /A/foo /s
write /A/foo 0 4K
append /A/foo 100
falloc /A/foo 4K 8K
falloc /A/foo 0 1M keep-size
falloc /A/foo 0 1 zero
falloc /A/foo 0 1 zero-keep-size
falloc /A/foo 0 1 punch
truncate /A/foo 0
setxattr /A/foo 16
removexattr /A/foo
fsync /A
fdatasync /A/foo
fbarrier /A/foo
fdatabarrier /A/foo
sync
";

    #[test]
    fn a_workload_is_said_as_it_is_read() {
        let workload: Workload = ALL.parse().expect("a workload");
        assert_eq!(workload.operations.len(), 22);
        assert_eq!(workload.to_string(), ALL);
        let told = "# why\n\n  create   /a # here\n";
        assert_eq!(operation_lines(told).map(|(line, _)| line).collect::<Vec<_>>(), [3]);
        assert_eq!(told.parse::<Workload>().map(|w| w.to_string()), Ok("create /a\n".to_owned()));
    }

    #[test]
    fn a_mistake_has_its_line_and_says_what_to_write() {
        let said = |text: &str| text.parse::<Workload>().expect_err(text).to_string();
        assert!(
            said("sync\nmknod /a")
                .starts_with("line 2: unknown operation \"mknod\": the operations are mkdir,")
        );
        assert_eq!(said("write /a 0"), "line 1: usage: write PATH OFFSET LENGTH");
        for (line, words) in [
            ("create", "create PATH"),
            ("fdatabarrier /a /b", "fdatabarrier PATH"),
            ("rename /a", "rename OLD NEW"),
            ("sync /a", "sync, and nothing else"),
        ] {
            assert_eq!(said(line), format!("line 1: usage: {words}"));
        }
        assert!(said("create /a\u{202e}b").contains("a name is text in UTF-8"));
        assert_eq!(said("create a"), "line 1: \"a\": a path begins with a slash, as in /A/foo");
        assert_eq!(
            said("append /a 4k"),
            "line 1: \"4k\" is not a number of bytes: write 4096, 4K or 1M, for example, with a capital letter"
        );
        assert_eq!(said("write /a 4M 1"), "line 1: a file is 0 to 4194304 bytes");
        assert_eq!(said("append /a 99999999999999999999"), "line 1: a length is 1 to 4194304 bytes");
        assert!(said("falloc /a 0 1 collapse").starts_with("line 1: unknown mode \"collapse\" of falloc"));
        assert_eq!(said(&"sync\n".repeat(1001)), format!("line 1001: {}", Mistake::TooLong));
    }

    #[test]
    fn no_text_does_worse_than_to_be_refused() {
        for cut in 0..ALL.len() {
            drop(ALL[..cut].parse::<Workload>());
            drop(ALL[cut..].replace(' ', "\u{e4}").parse::<Workload>());
            drop(ALL[cut..].replace('K', "\u{e4}K").parse::<Workload>());
        }
        for path in ["", "/", "//", "/a/", "/a//b", "/..", "/a/lost+found", &"/a".repeat(600)] {
            drop(format!("create {path}").parse::<Workload>());
        }
    }
}
