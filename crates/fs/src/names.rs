//! Names: looking them up, and giving, taking and moving them.
//!
//! # Locks
//!
//! A caller that changes names holds the locks of the directories and of the inodes that they stand for, taken in the
//! order of inode numbers, so that no two tasks wait for each other. Which inode a name stands for is known only
//! once the directory was searched, so that comes first, and is repeated under the locks: what has changed in
//! between is looked up again. A rename between two directories holds `renaming` before all of them, so that
//! which directory is above which does not change while a caller asks.
//!
//! # Atomic groups
//!
//! Every operation is one handle, so it is in the log as a whole or not at all (J8). All that may lack space comes
//! first and undoes what it did; what fails by damage in the middle of a change aborts the journal, so that half
//! an operation is never committed.

mod blocks;
mod create;
mod directories;
mod link;
mod links;
mod remove;
mod rename;

use std::cell::Cell;
use std::rc::Rc;

use weir_format::{FormatError, Place, Structure};
use weir_runtime::{Handle as Clock, Semaphore};
use weir_storage::Rules;
use weir_vfs::{FsError, Hold, InodeNumber, Timer};

use crate::attributes::AttributeStore;
use crate::changes::Changes;
use crate::deletion::Deletion;
use crate::mutants::FsMutant;
use crate::orphans::Orphans;
use crate::{inodes::Node, inodes::Nodes};
pub(crate) use directories::Directories;

/// Looks at a name that others give and take meanwhile; far more than any race takes.
const LOOKS_MAX: u32 = 64;

/// Blocks that one change of names changes at most: two directories that each gain an index, a level of it and
/// a leaf, and split two nodes, the extent trees above them, four inodes, the orphan list, and bitmap and
/// descriptor of every block and inode that comes or goes.
const CREDITS: u32 = 64;

/// Gives, takes and moves names.
pub(crate) struct Namespace {
    changes: Rc<Changes>,
    nodes: Rc<Nodes>,
    orphans: Rc<Orphans>,
    attributes: Rc<AttributeStore>,
    deletion: Rc<Deletion>,
    directories: Rc<Directories>,
    timer: Timer,
    rules: Rules<FsMutant>,
    /// One rename between directories at a time.
    renaming: Semaphore,
    /// The generation of the next inode; the first is a random number.
    generation: Cell<u32>,
}

impl Namespace {
    pub(crate) fn new(
        (changes, orphans, attributes): (Rc<Changes>, Rc<Orphans>, Rc<AttributeStore>),
        (deletion, directories): (Rc<Deletion>, Rc<Directories>),
        (clock, timer): (&Clock, Timer),
        rules: Rules<FsMutant>,
    ) -> Namespace {
        let (renaming, generation) = (Semaphore::new(1), Cell::new(clock.entropy() as u32));
        let nodes = Rc::clone(directories.nodes());
        Namespace {
            changes,
            nodes,
            orphans,
            attributes,
            deletion,
            directories,
            timer,
            rules,
            renaming,
            generation,
        }
    }
}

impl Namespace {
    /// What a name in a directory stands for, held before the name may go.
    pub(crate) async fn lookup(&self, directory: InodeNumber, name: &[u8]) -> Result<Hold, FsError> {
        self.directories.lookup_with(directory, name, |inode| self.deletion.hold(inode)).await
    }
}

/// An entry whose inode was deleted, however often a caller looks.
fn dangling(directory: &Node) -> FsError {
    let place = Place::Inode(directory.number);
    FormatError::corrupt(Structure::Directory, place, "an entry of a deleted inode").into()
}
