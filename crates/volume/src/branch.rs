//! A snapshot or a clone as a storage.

use std::rc::Rc;

use event_listener::Event;
use weir_storage::{Capabilities, Command, Discard, Feature, Rejected, Storage, Ticket};

use crate::error::SnapshotError;
use crate::snapshot_table::{Branch, BranchKind};
use crate::volume::Volume;

/// A snapshot or a clone of an open volume. Its capabilities are the volume's, but for discards: what a clone discards reads what its
/// snapshot has. Its writes are in the same log: a crash leaves a prefix of all writes together.
pub struct BranchStorage {
    volume: Rc<Volume>,
    capabilities: Capabilities,
    slot: u32,
    is_writable: bool,
}

impl BranchStorage {
    /// Opens a snapshot, for reading, or a clone.
    ///
    /// # Errors
    /// [`SnapshotError::Unknown`].
    pub fn open(volume: Rc<Volume>, name: &str) -> Result<BranchStorage, SnapshotError> {
        let Branch { slot, kind, .. } = volume.branches().find_branch(name)?;
        Ok(BranchStorage::new(volume, slot, kind == BranchKind::Clone))
    }

    /// Opens a snapshot or a clone of a volume whose writes are thrown away, as those on an
    /// [`Overlay`](weir_storage::Overlay). What is written into a snapshot changes it, and those before it.
    ///
    /// # Errors
    /// [`SnapshotError::Unknown`].
    pub fn open_scratch(volume: Rc<Volume>, name: &str) -> Result<BranchStorage, SnapshotError> {
        let slot = volume.branches().find_branch(name)?.slot;
        Ok(BranchStorage::new(volume, slot, true))
    }

    fn new(volume: Rc<Volume>, slot: u32, is_writable: bool) -> BranchStorage {
        let capabilities = Capabilities { discard: Discard::Undefined, ..*volume.capabilities() };
        volume.branches().begin_use(slot);
        BranchStorage { volume, capabilities, slot, is_writable }
    }
}

impl Drop for BranchStorage {
    fn drop(&mut self) {
        self.volume.branches().end_use(self.slot);
    }
}

impl Storage for BranchStorage {
    fn blocks(&self) -> u64 {
        self.volume.blocks()
    }

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn submit(&self, command: Command<'_>) -> Result<Ticket, Rejected> {
        let changes = !matches!(command, Command::Read { .. } | Command::Barrier { .. } | Command::Flush);
        if changes && !self.is_writable {
            return Err(Rejected::Unsupported(Feature::Changes));
        }
        self.volume.submit_to(self.slot, command)
    }

    fn slots(&self) -> &Event {
        self.volume.slots()
    }
}
