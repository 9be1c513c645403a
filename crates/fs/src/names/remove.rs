//! Taking names, and what becomes of inodes that have none left.

use std::rc::Rc;

use weir_format::Cookie;
use weir_journal::TxHandle;
use weir_vfs::{FsError, InodeNumber, check_ordinary_name};

use super::Namespace;
use crate::inodes::Node;
use crate::mutants::FsMutant;

impl Namespace {
    /// Takes a name of anything but a directory. An inode without names is deleted once no caller has it open
    /// or holds it.
    pub(crate) async fn unlink(&self, directory: InodeNumber, name: &[u8]) -> Result<(), FsError> {
        check_ordinary_name(name)?;
        let done = self.changes.changing(self.unlink_checked(directory, name)).await;
        self.deletion.keep_up().await;
        done
    }

    async fn unlink_checked(&self, directory: InodeNumber, name: &[u8]) -> Result<(), FsError> {
        let directory = self.directories.node(directory).await?;
        let (found, locks) = self.directories.find_locked(&directory, name).await?;
        let node = found.ok_or(FsError::NotFound)?;
        if node.is_directory() {
            return Err(FsError::IsDirectory);
        }
        self.take_name(&directory, name, &node).await?;
        drop(locks);
        self.deletion.delete_unused(&node).await
    }

    /// Removes an empty directory.
    pub(crate) async fn rmdir(&self, directory: InodeNumber, name: &[u8]) -> Result<(), FsError> {
        check_ordinary_name(name)?;
        let done = self.changes.changing(self.rmdir_checked(directory, name)).await;
        self.deletion.keep_up().await;
        done
    }

    async fn rmdir_checked(&self, directory: InodeNumber, name: &[u8]) -> Result<(), FsError> {
        let directory = self.directories.node(directory).await?;
        let (found, locks) = self.directories.find_locked(&directory, name).await?;
        let node = found.ok_or(FsError::NotFound)?;
        if !node.is_directory() {
            return Err(FsError::NotDirectory);
        }
        self.check_empty(&node).await?;
        self.take_name(&directory, name, &node).await?;
        drop(locks);
        self.deletion.delete_unused(&node).await
    }

    /// Keeps an inode from being deleted until it is released, once for each call, also when
    /// its last name goes. What is left of it after a crash is deleted at the next mount.
    pub(crate) async fn open(&self, inode: InodeNumber) -> Result<(), FsError> {
        let node = self.nodes.get(inode).await?;
        if node.links() == 0 && !self.nodes.is_in_use(&node) {
            // It is being deleted.
            return Err(FsError::NotFound);
        }
        node.opens.set(node.opens.get() + 1);
        Ok(())
    }

    /// Undoes one [`open`](Self::open); the last one deletes an inode that has no name any more and is not
    /// held.
    pub(crate) async fn release(&self, inode: InodeNumber) -> Result<(), FsError> {
        let node = self.nodes.get(inode).await?;
        let left = node.opens.get().checked_sub(1).ok_or(FsError::Invalid("the inode is not open"))?;
        node.opens.set(left);
        if left > 0 || node.links() > 0 {
            // Nothing changes, so nothing has to be writable.
            return Ok(());
        }
        self.changes.changing(self.deletion.delete_unused(&node)).await
    }

    pub(super) async fn check_empty(&self, directory: &Rc<Node>) -> Result<(), FsError> {
        let empty = async |entries: super::blocks::Entries<'_>| {
            Ok(entries.read(Cookie::DOT_DOT, 1).await?.is_empty())
        };
        if self.directories.within(directory, None, empty).await? { Ok(()) } else { Err(FsError::NotEmpty) }
    }

    /// Takes the name of a node. The caller holds both locks and knows that the name stands for the node.
    async fn take_name(&self, directory: &Rc<Node>, name: &[u8], node: &Rc<Node>) -> Result<(), FsError> {
        let handle = self.changes.start(super::CREDITS).await?;
        self.changes
            .all_or_abort(async {
                self.directories
                    .within(directory, Some(&handle), async |entries| entries.remove(name).await)
                    .await?;
                if node.is_directory() {
                    directory.remove_subdirectory();
                }
                self.directories.changed(&handle, directory).await?;
                self.lose_name(&handle, node).await
            })
            .await?;
        self.directories.remember(directory, name, None);
        Ok(())
    }

    /// Counts a name less. An inode without names is an orphan: the next mount after a crash deletes it.
    pub(super) async fn lose_name(&self, handle: &TxHandle, node: &Rc<Node>) -> Result<(), FsError> {
        let left = if node.is_directory() { 0 } else { node.links().saturating_sub(1) };
        node.set_links(left, self.timer.now());
        if left == 0 {
            self.directories.forget(node);
            let is_left_out = self.nodes.is_in_use(node) && self.rules.drops(FsMutant::HeldIsNoOrphan);
            if !is_left_out {
                self.orphans.add(handle, node).await?;
            }
        }
        node.log(handle).await
    }
}
