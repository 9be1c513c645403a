//! Taking names, and what becomes of inodes that have none left.

use std::rc::Rc;

use weir_ext4::directory::Cookie;
use weir_ext4::inode_flags;
use weir_journal::TxHandle;

use super::check_ordinary;
use crate::error::FsError;
use crate::filesystem::{Filesystem, InodeNumber, Mounted};
use crate::node::Node;

impl Filesystem {
    /// Takes a name of anything but a directory. An inode without names is deleted once nobody has it open.
    ///
    /// # Errors
    /// [`FsError::NotFound`], [`FsError::IsDirectory`], [`FsError::NotDirectory`], [`FsError::NameLength`],
    /// [`FsError::Invalid`], [`FsError::ReadOnly`], and what reading may fail by.
    pub async fn unlink(&self, directory: InodeNumber, name: &[u8]) -> Result<(), FsError> {
        check_ordinary(name)?;
        self.0.changing(self.unlink_checked(directory, name)).await
    }

    async fn unlink_checked(&self, directory: InodeNumber, name: &[u8]) -> Result<(), FsError> {
        let fs = &self.0;
        let directory = fs.directory_node(directory).await?;
        let (found, locks) = fs.find_locked(&directory, name).await?;
        let node = found.ok_or(FsError::NotFound)?;
        if node.is_directory() {
            return Err(FsError::IsDirectory);
        }
        fs.take_name(&directory, name, &node).await?;
        drop(locks);
        fs.delete_unused(&node).await
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// As [`unlink`](Self::unlink); [`FsError::NotEmpty`], and [`FsError::NotDirectory`] also for a file of
    /// that name.
    pub async fn rmdir(&self, directory: InodeNumber, name: &[u8]) -> Result<(), FsError> {
        check_ordinary(name)?;
        self.0.changing(self.rmdir_checked(directory, name)).await
    }

    async fn rmdir_checked(&self, directory: InodeNumber, name: &[u8]) -> Result<(), FsError> {
        let fs = &self.0;
        let directory = fs.directory_node(directory).await?;
        let (found, locks) = fs.find_locked(&directory, name).await?;
        let node = found.ok_or(FsError::NotFound)?;
        if !node.is_directory() {
            return Err(FsError::NotDirectory);
        }
        fs.check_empty(&node).await?;
        fs.take_name(&directory, name, &node).await?;
        drop(locks);
        fs.delete_unused(&node).await
    }

    /// Keeps an inode from being deleted until it is [released](Self::release), once for each call, also when
    /// its last name goes. What is left of it after a crash is deleted at the next mount.
    ///
    /// # Errors
    /// [`FsError::NotFound`], and what reading may fail by.
    pub async fn open(&self, inode: InodeNumber) -> Result<(), FsError> {
        let node = self.0.nodes.get(&self.0, inode).await?;
        if node.links() == 0 && node.opens.get() == 0 {
            // It is being deleted.
            return Err(FsError::NotFound);
        }
        node.opens.set(node.opens.get() + 1);
        Ok(())
    }

    /// Undoes one [`open`](Self::open); the last one deletes an inode that has no name any more.
    ///
    /// # Errors
    /// [`FsError::Invalid`] for an inode that is not open, and what changes may fail by.
    pub async fn release(&self, inode: InodeNumber) -> Result<(), FsError> {
        let node = self.0.nodes.get(&self.0, inode).await?;
        let left = node.opens.get().checked_sub(1).ok_or(FsError::Invalid("the inode is not open"))?;
        node.opens.set(left);
        if left > 0 || node.links() > 0 {
            // Nothing changes, so nothing has to be writable.
            return Ok(());
        }
        self.0.changing(self.0.delete_unused(&node)).await
    }
}

impl Mounted {
    pub(super) async fn check_empty(&self, directory: &Rc<Node>) -> Result<(), FsError> {
        let empty = async |entries: super::directory::Entries<'_>| {
            Ok(entries.read(Cookie::DOT_DOT, 1).await?.is_empty())
        };
        if self.in_directory(directory, None, empty).await? { Ok(()) } else { Err(FsError::NotEmpty) }
    }

    /// Takes the name of a node. The caller holds both locks and knows that the name stands for the node.
    async fn take_name(&self, directory: &Rc<Node>, name: &[u8], node: &Rc<Node>) -> Result<(), FsError> {
        let handle = self.journal()?.start(super::CREDITS).await?;
        self.all_or_abort(async {
            self.in_directory(directory, Some(&handle), async |entries| entries.remove(name).await).await?;
            if node.is_directory() {
                directory.remove_subdirectory();
            }
            self.directory_changed(&handle, directory).await?;
            self.lose_name(&handle, node).await
        })
        .await?;
        self.remember(directory, name, None);
        Ok(())
    }

    /// Counts a name less. An inode without names is an orphan: the next mount after a crash deletes it.
    pub(super) async fn lose_name(&self, handle: &TxHandle, node: &Rc<Node>) -> Result<(), FsError> {
        let left = if node.is_directory() { 0 } else { node.links().saturating_sub(1) };
        node.set_links(left, self.now());
        if left == 0 {
            self.add_orphan(handle, node).await?;
        }
        node.log(self, handle).await
    }

    /// Deletes an inode that has no name, if nobody has it open. The caller holds no lock.
    pub(super) async fn delete_unused(&self, node: &Rc<Node>) -> Result<(), FsError> {
        if node.links() > 0 || node.opens.get() > 0 {
            return Ok(());
        }
        self.names.cache.borrow_mut().forget(node.number);
        self.delete(node).await
    }

    /// Deletes an inode that is in the list of orphans: all that it owns, in as many transactions as that takes, and
    /// then itself.
    pub(crate) async fn delete(&self, node: &Rc<Node>) -> Result<(), FsError> {
        let _locked = node.alone().await;
        if !self.nodes.is_current(node) || node.links() > 0 {
            // Somebody else was faster, or has given it its first name.
            return Ok(());
        }
        let mapped = node.inode.borrow().has_flag(inode_flags::EXTENTS);
        if mapped {
            self.free_content(node).await?;
        }
        let handle = self.journal()?.start(super::CREDITS).await?;
        self.all_or_abort(async {
            self.drop_attribute_block(&handle, node).await?;
            self.remove_orphan(&handle, node).await?;
            {
                let mut inode = node.inode.borrow_mut();
                inode.set_attribute_block(0);
                inode.set_sectors(0);
                inode.deleted = u32::try_from(self.now().seconds).unwrap_or(u32::MAX).into();
            }
            node.log(self, &handle).await?;
            self.space.free_inode(&handle, node.number, node.is_directory()).await
        })
        .await?;
        self.nodes.forget(node.number);
        Ok(())
    }
}
