//! One operation of a workload, and the paths it names. Its text is the line that says it.

use std::fmt::{self, Display};
use weir_vfs::SyncCall;

use crate::named::named;

/// Bytes of a path, at most.
const PATH_BYTES_MAX: usize = 1024;
/// Names in a path, at most.
const DEPTH_MAX: usize = 16;
/// Bytes of a name, at most: what a directory entry of ext4 holds.
const NAME_BYTES_MAX: usize = 255;
/// Names that the model leaves out, as they belong to the filesystem or to the tester.
const RESERVED: [&str; 4] = [".", "..", "lost+found", "ballast"];

/// The largest size of a file, in bytes: half of the filesystem of a test.
pub const FILE_BYTES_MAX: u64 = 4 << 20;
/// The largest value of an attribute, in bytes.
pub const ATTRIBUTE_BYTES_MAX: u64 = 2000;

/// A path from the root of the filesystem, as `/A/foo`; `/` is the root itself.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct WorkloadPath(String);

/// What is wrong with a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PathError {
    /// It does not begin at the root.
    #[error("a path begins with a slash, as in /A/foo")]
    NotFromRoot,
    /// There is a name of no bytes, or a slash at the end.
    #[error("a path has a name behind each slash")]
    EmptyName,
    /// A name is too long.
    #[error("a name has at most 255 bytes")]
    LongName,
    /// All of it is too long.
    #[error("a path has at most 16 names and 1,024 bytes")]
    TooLong,
    /// A name would not be one word of text, or is not for every terminal.
    #[error(
        "a name is text in UTF-8 without spaces, #, control characters, and those that turn the direction of text"
    )]
    Character,
    /// The root is always there, and stays.
    #[error("the root cannot be made, removed or renamed")]
    Root,
    /// A name is not the workload's to use.
    #[error("the names ., .., lost+found and ballast cannot be used")]
    Reserved,
}

impl WorkloadPath {
    /// The path that `text` says.
    ///
    /// # Errors
    /// [`PathError`].
    pub fn new(text: &str) -> Result<WorkloadPath, PathError> {
        let names = text.strip_prefix('/').ok_or(PathError::NotFromRoot)?;
        if text.len() > PATH_BYTES_MAX || text.matches('/').count() > DEPTH_MAX {
            return Err(PathError::TooLong);
        }
        for name in names.split('/').filter(|_| !names.is_empty()) {
            match name {
                "" => return Err(PathError::EmptyName),
                name if name.len() > NAME_BYTES_MAX => return Err(PathError::LongName),
                name if RESERVED.contains(&name) => return Err(PathError::Reserved),
                name if !is_plain(name) => return Err(PathError::Character),
                _ => {}
            }
        }
        Ok(WorkloadPath(text.to_owned()))
    }

    /// A path that is part of the program.
    pub(super) fn of_known(text: &'static str) -> WorkloadPath {
        WorkloadPath(text.to_owned())
    }

    /// Its names, from the root down.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.split('/').filter(|name| !name.is_empty())
    }

    /// The path of the directory that holds it, and its name there; none for the root.
    #[must_use]
    pub fn parent(&self) -> Option<(WorkloadPath, &str)> {
        let (above, name) = self.0.rsplit_once('/').filter(|(_, name)| !name.is_empty())?;
        Some((WorkloadPath(if above.is_empty() { "/" } else { above }.to_owned()), name))
    }
}

impl Display for WorkloadPath {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(&self.0)
    }
}

/// Whether text is one word of a workload that every terminal may show. What was no UTF-8 was replaced when it was read.
pub(super) fn is_plain(text: &str) -> bool {
    let is_other =
        |c: char| c.is_whitespace() || !is_visible(c) || matches!(c, '#' | char::REPLACEMENT_CHARACTER);
    !text.contains(is_other)
}

/// Whether a terminal shows a character where it stands: no control character, no end of a line, and none that turns the
/// direction of text, after which a name would look like another.
#[must_use]
pub fn is_visible(character: char) -> bool {
    let turns = matches!(character, '\u{61c}' | '\u{200e}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    !character.is_control() && !turns
}

named! {
    /// What `falloc` does to a range of bytes.
    #[derive(PartialOrd, Ord)]
    Allocation {
        /// It gets blocks, and the file grows to its end.
        Grow = "grow",
        /// It gets blocks, and the file does not grow.
        KeepSize = "keep-size",
        /// It reads as zeros and has blocks, and the file grows to its end.
        Zero = "zero",
        /// It reads as zeros and has blocks, and the file does not grow.
        ZeroKeepSize = "zero-keep-size",
        /// It reads as zeros, and its whole blocks are freed.
        Punch = "punch",
    }
}

/// One operation. Lengths and offsets are in bytes. What is written differs from write to write, and is a function of the
/// place in the workload.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Operation {
    /// Makes a directory.
    Mkdir(WorkloadPath),
    /// Makes an empty file.
    Create(WorkloadPath),
    /// Gives a file a second name.
    Link {
        /// The name it has.
        old: WorkloadPath,
        /// The one it gets.
        new: WorkloadPath,
    },
    /// Takes a name of a file or symbolic link away.
    Unlink(WorkloadPath),
    /// Removes an empty directory.
    Rmdir(WorkloadPath),
    /// Gives a file or directory another name, in place of what that stood for.
    Rename {
        /// The name it has.
        old: WorkloadPath,
        /// The one it gets.
        new: WorkloadPath,
    },
    /// Makes a symbolic link, which no path here follows.
    Symlink {
        /// What the link says: text without spaces, `#`, and control characters.
        target: String,
        /// Its name.
        new: WorkloadPath,
    },
    /// Writes into a file.
    Write {
        /// The file.
        path: WorkloadPath,
        /// From this byte on.
        offset: u64,
        /// So many bytes, 1 and more.
        length: u64,
    },
    /// Writes behind a file's end.
    Append {
        /// The file.
        path: WorkloadPath,
        /// So many bytes, 1 and more.
        length: u64,
    },
    /// Allocates, zeroes or frees a range.
    Falloc {
        /// The file.
        path: WorkloadPath,
        /// What it does.
        how: Allocation,
        /// From this byte on.
        offset: u64,
        /// So many bytes, 1 and more.
        length: u64,
    },
    /// Gives a file a size.
    Truncate {
        /// The file.
        path: WorkloadPath,
        /// Its new size.
        size: u64,
    },
    /// Gives the extended attribute `user.run` of a file or directory a new value.
    SetAttribute {
        /// The file or directory.
        path: WorkloadPath,
        /// Bytes of the value, 1 to [`ATTRIBUTE_BYTES_MAX`].
        length: u64,
    },
    /// Removes that attribute.
    RemoveAttribute(WorkloadPath),
    /// Makes a file or directory durable, or orders it.
    Synchronise(SyncCall, WorkloadPath),
    /// Makes everything durable.
    Sync,
}

/// A number of bytes, as short as it can be said.
struct Bytes(u64);

impl Display for Bytes {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            bytes if bytes > 0 && bytes.is_multiple_of(1 << 20) => write!(to, "{}M", bytes >> 20),
            bytes if bytes > 0 && bytes.is_multiple_of(1 << 10) => write!(to, "{}K", bytes >> 10),
            bytes => write!(to, "{bytes}"),
        }
    }
}

impl Display for Operation {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Operation::Mkdir(path) => write!(to, "mkdir {path}"),
            Operation::Create(path) => write!(to, "create {path}"),
            Operation::Link { old, new } => write!(to, "link {old} {new}"),
            Operation::Unlink(path) => write!(to, "unlink {path}"),
            Operation::Rmdir(path) => write!(to, "rmdir {path}"),
            Operation::Rename { old, new } => write!(to, "rename {old} {new}"),
            Operation::Symlink { target, new } => write!(to, "symlink {target} {new}"),
            Operation::Write { path, offset, length } => {
                write!(to, "write {path} {} {}", Bytes(*offset), Bytes(*length))
            }
            Operation::Append { path, length } => write!(to, "append {path} {}", Bytes(*length)),
            Operation::Falloc { path, how, offset, length } => {
                write!(to, "falloc {path} {} {}", Bytes(*offset), Bytes(*length))?;
                if *how == Allocation::Grow { Ok(()) } else { write!(to, " {}", how.name()) }
            }
            Operation::Truncate { path, size } => write!(to, "truncate {path} {}", Bytes(*size)),
            Operation::SetAttribute { path, length } => write!(to, "setxattr {path} {}", Bytes(*length)),
            Operation::RemoveAttribute(path) => write!(to, "removexattr {path}"),
            Operation::Synchronise(call, path) => write!(to, "{} {path}", call.name()),
            Operation::Sync => to.write_str("sync"),
        }
    }
}
