//! Where the blocks of files are: found, given and taken.

mod map;
mod tree;
mod zeros;

use std::cell::Cell;
use std::ops::Range;
use std::rc::Rc;

use weir_journal::{Disk, TxHandle};
use weir_storage::Rules;
use weir_vfs::FsError;

use crate::changes::Changes;
use crate::inodes::{Metadata, Node};
use crate::mutants::FsMutant;
use crate::options::{JournalMode, MountOptions};
pub(crate) use map::{MAP_CREDITS, Wanted};
pub(crate) use tree::{Tree, covers, place};
use zeros::Zeroed;

/// Finds, gives and takes the blocks of files.
pub(crate) struct Mapping {
    disk: Rc<Disk>,
    metadata: Rc<Metadata>,
    changes: Rc<Changes>,
    mode: JournalMode,
    rules: Rules<FsMutant>,
    /// What was written in place of dividing an extent.
    pub(crate) zeroed: Zeroed,
    /// Units whose blocks had to be allocated in two places.
    pub(crate) split_units: Cell<u64>,
}

impl Mapping {
    pub(crate) fn new(
        (disk, metadata, changes): (Rc<Disk>, Rc<Metadata>, Rc<Changes>),
        MountOptions { mode, rules, .. }: MountOptions,
    ) -> Rc<Mapping> {
        Rc::new(Mapping {
            disk,
            metadata,
            changes,
            mode,
            rules,
            zeroed: Zeroed::default(),
            split_units: Cell::new(0),
        })
    }

    /// The largest size of a file, in bytes.
    pub(crate) fn file_bytes_max(&self) -> u64 {
        self.metadata.space.layout().file_bytes_max()
    }

    /// Where a block of a file is on disk, if it is mapped and written.
    pub(crate) async fn home(&self, node: &Node, index: u32) -> Result<Option<u64>, FsError> {
        if let Some(home) = node.file.place(index) {
            return Ok(Some(home));
        }
        let found = Tree::from_node(node).find(index).await?;
        Ok(found.filter(|extent| extent.written).map(|extent| place(&extent, index)))
    }

    /// Whether all of a range is mapped and written.
    pub(crate) async fn is_written(&self, node: &Node, range: Range<u32>) -> Result<bool, FsError> {
        let mut at = range.start;
        while at < range.end {
            if node.file.contains(at) {
                at += 1;
                continue;
            }
            match Tree::from_node(node).find(at).await? {
                Some(extent) if extent.written => at = extent.end(),
                _ => return Ok(false),
            }
        }
        Ok(true)
    }

    /// Logs the inode, and attaches the dirty pages if the transaction refers to them (J2).
    pub(crate) async fn log_data(&self, node: &Node, handle: &TxHandle) -> Result<(), FsError> {
        if node.last_changes.has_data() && self.mode == JournalMode::Ordered && !node.is_atomic() {
            node.file.attach(handle);
        }
        node.log(handle).await
    }
}
