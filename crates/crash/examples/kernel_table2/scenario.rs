//! The two workloads, as the figure has them: operations of a text, done by real calls, and what is there after each.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use weir_crash::{CrashMonkeyCheck, Found, FoundKind, Operation, ParseError, Workload, WorkloadPath};

/// Who may do what with files and directories: everybody everything.
const MODE: u16 = 0o777;

/// One of the two workloads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scenario {
    /// `rename_root_to_sub`.
    Rename,
    /// `create_delete`.
    CreateDelete,
}

/// A workload's file in the figure's folder.
macro_rules! workload {
    ($name:literal) => {
        include_str!(concat!("../../../../figures/fast18-table2/", $name, ".txt"))
    };
}

impl Scenario {
    pub const ALL: [Scenario; 2] = [Scenario::Rename, Scenario::CreateDelete];

    /// What is done before the power may be cut, and made durable.
    pub fn setup(self) -> Result<Workload, ParseError> {
        match self {
            Scenario::Rename => workload!("rename_root_to_sub.setup").parse(),
            Scenario::CreateDelete => workload!("create_delete.setup").parse(),
        }
    }

    /// What CrashMonkey asks of what is left.
    pub fn check(self) -> CrashMonkeyCheck {
        match self {
            Scenario::Rename => CrashMonkeyCheck::RenameRootToSub,
            Scenario::CreateDelete => CrashMonkeyCheck::CreateDelete,
        }
    }

    /// What is done while it may be cut.
    pub fn run(self) -> Result<Workload, ParseError> {
        match self {
            Scenario::Rename => workload!("rename_root_to_sub").parse(),
            Scenario::CreateDelete => workload!("create_delete").parse(),
        }
    }
}

impl fmt::Display for Scenario {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(match self {
            Scenario::Rename => "A",
            Scenario::CreateDelete => "B",
        })
    }
}

/// Whether all before an operation is durable when it has returned, where the filesystem flushes.
pub fn promises(operation: &Operation) -> bool {
    matches!(operation, Operation::Synchronise(..) | Operation::Sync)
}

/// Bytes that are no zeros and do not repeat by the block.
fn text(bytes: u64) -> Vec<u8> {
    (0..bytes).map(|at| b'a' + (at % 23) as u8).collect()
}

/// A path below `root`.
fn below(root: &Path, path: &WorkloadPath) -> PathBuf {
    path.names().fold(root.to_path_buf(), |at, name| at.join(name))
}

/// Does an operation below `root`.
///
/// # Errors
/// The call's; and `Unsupported` for an operation that these workloads do not have.
pub fn play(operation: &Operation, root: &Path) -> io::Result<()> {
    let below = |path| below(root, path);
    match operation {
        Operation::Mkdir(path) => DirBuilder::new().mode(MODE.into()).create(below(path)),
        Operation::Create(path) => {
            let mut options = OpenOptions::new();
            options.write(true).create_new(true).mode(MODE.into()).open(below(path)).map(drop)
        }
        Operation::Write { path, offset: 0, length } => {
            OpenOptions::new().write(true).open(below(path))?.write_all(&text(*length))
        }
        Operation::Rename { old, new } => fs::rename(below(old), below(new)),
        Operation::Unlink(path) => fs::remove_file(below(path)),
        Operation::Synchronise(_, path) => File::open(below(path))?.sync_all(),
        Operation::Sync => Ok(rustix::fs::syncfs(File::open(root)?)?),
        other => Err(io::Error::new(io::ErrorKind::Unsupported, other.to_string())),
    }
}

/// What is there: directories without bytes, and files with theirs, by path.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Expected(BTreeMap<String, Option<Vec<u8>>>);

impl Expected {
    /// What an operation that [`play`] does changes of it.
    pub fn change(&mut self, operation: &Operation) {
        let there = &mut self.0;
        match operation {
            Operation::Mkdir(path) => drop(there.insert(path.to_string(), None)),
            Operation::Create(path) => drop(there.insert(path.to_string(), Some(Vec::new()))),
            Operation::Write { path, length, .. } => {
                drop(there.insert(path.to_string(), Some(text(*length))));
            }
            Operation::Rename { old, new } => {
                if let Some(moved) = there.remove(&old.to_string()) {
                    there.insert(new.to_string(), moved);
                }
            }
            Operation::Unlink(path) => drop(there.remove(&path.to_string())),
            _ => {}
        }
    }

    /// Whether that is what was found, and everybody may do everything with it.
    pub fn is(&self, found: &Found) -> bool {
        let paths = found.paths();
        let is_one = |(path, kind): &(String, FoundKind)| {
            let is_same = match (kind, self.0.get(path)) {
                (FoundKind::Directory, Some(None)) => true,
                (FoundKind::File(_), Some(Some(bytes))) => found.bytes(path) == Some(&bytes[..]),
                _ => false,
            };
            is_same && found.permissions(path) == Some(MODE)
        };
        paths.len() == self.0.len() && paths.iter().all(is_one)
    }
}
