//! Deletion: an inode without a name goes when no program has it open and no door holds it. Until then a checkpoint lists it as an
//! orphan, and the mount after a power cut deletes it.

use std::rc::Rc;

use tracing::warn;
use weir_f2fs::NodeId;
use weir_vfs::{FsError, InodeNumber, LetGo};

use crate::file::File;
use crate::mounted::Mounted;

impl Mounted {
    /// Deletes a file that has no name, if it is not in use. The caller has a permit of the operations, and not the file's lock.
    ///
    /// # Errors
    /// Those of reading its nodes: then it stays an orphan.
    pub(crate) async fn delete_if_unused(&self, file: &Rc<File>) -> Result<(), FsError> {
        self.delete_if(file, |file| !self.files.is_in_use(file)).await
    }

    /// Deletes a file that has no name, in use or not: no call comes back to it. The caller has a permit of the operations.
    ///
    /// # Errors
    /// As [`delete_if_unused`](Self::delete_if_unused).
    pub(crate) async fn delete_unnamed(&self, file: &Rc<File>) -> Result<(), FsError> {
        self.delete_if(file, |_| true).await
    }

    async fn delete_if(&self, file: &Rc<File>, may_go: impl Fn(&File) -> bool) -> Result<(), FsError> {
        // Another call may have deleted it.
        let Ok(_locked) = file.lock_exclusive().await else { return Ok(()) };
        // Another call may have given it a name, or have opened it.
        if file.links() > 0 || !may_go(file) { Ok(()) } else { self.delete(file).await }
    }

    async fn delete(&self, file: &Rc<File>) -> Result<(), FsError> {
        self.forget_pages(file, 0..u32::MAX).await;
        self.placement.truncate_pages(file, 0).await?;
        self.free_attribute_node(file).await?;
        file.set_deleted();
        self.files.forget(file.number);
        self.kept_orphans.borrow_mut().remove(&file.number);
        let entry = file.entry.get();
        self.placement.table.free_number(file.number, entry);
        self.placement.space.borrow_mut().give_back(entry.address());
        Ok(())
    }

    /// Frees the node of a file's attributes, if there is one.
    ///
    /// # Errors
    /// Those of reading it.
    pub(crate) async fn free_attribute_node(&self, file: &Rc<File>) -> Result<(), FsError> {
        let node = NodeId(file.inode.borrow().attribute_node.get());
        if node != NodeId::NULL {
            let node = self.placement.nodes.load(node, file.number).await?;
            self.placement.space.borrow_mut().give_back(self.placement.nodes.remove(&node));
            file.change(|inode| inode.attribute_node = 0.into());
            file.count_blocks(-1);
        }
        Ok(())
    }

    /// Deletes an inode without a name that nothing has in use: one that a checkpoint lists as an orphan. Nothing if it is not
    /// there, or has a name.
    ///
    /// # Errors
    /// As [`delete_if_unused`](Self::delete_if_unused).
    pub(crate) async fn delete_orphan(&self, number: NodeId) -> Result<(), FsError> {
        let Some(file) = self.files.load(number).await? else { return Ok(()) };
        // A checkpoint that lists an inode may have it with the name that was its last.
        if file.links() > 1 {
            return Ok(());
        }
        file.change(|inode| inode.links = 0.into());
        self.delete_unnamed(&file).await
    }
}

/// Notes that a file without a name is still there: each checkpoint lists it, and each mount tries again.
pub(crate) fn warn_of_orphan(number: NodeId, error: &FsError) {
    warn!(name: "unnamed_inode_kept", inode = number.0, %error, "a file without a name cannot be deleted");
}

impl LetGo for Mounted {
    /// The last hold of an inode without a name deletes it, in a task of its own.
    fn let_go(self: Rc<Self>, inode: InodeNumber, count: u64) {
        if !self.files.holds.remove(inode, count) {
            return;
        }
        let is_unused = |file: &Rc<File>| file.links() == 0 && !self.files.is_in_use(file);
        let Some(file) = self.files.find(NodeId(inode)).filter(is_unused) else { return };
        let clock = self.disk.handle().clone();
        drop(clock.spawn_thread("deletion", async move {
            let _call = self.operations.begin().await;
            if self.operations.read_only().is_none() {
                // A failure leaves an orphan, which the next mount deletes.
                let _ = self.operations.complete(self.delete_if_unused(&file)).await;
            }
        }));
    }
}
