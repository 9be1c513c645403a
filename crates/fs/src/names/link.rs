//! Links: more names for one inode, and symbolic ones, which hold a path.

use std::rc::Rc;

use weir_ext4::{BLOCK_BYTES, Blocks, FileType, Kind, symlink};
use weir_journal::TxHandle;

use super::create::NewNode;
use super::directory::add_block;
use super::{LINKS_MAX, check_ordinary, lock};
use crate::caller::Caller;
use crate::error::FsError;
use crate::filesystem::{Filesystem, InodeNumber, Mounted};
use crate::node::Node;
use crate::tree::Tree;

impl Filesystem {
    /// Makes a symbolic link to `target`, 1 to 4,095 bytes.
    ///
    /// # Errors
    /// As [`create`](Self::create); [`FsError::Invalid`] for a target that cannot be.
    pub async fn symlink(
        &self,
        directory: InodeNumber,
        name: &[u8],
        target: &[u8],
        (uid, gid): (u32, u32),
    ) -> Result<InodeNumber, FsError> {
        if target.is_empty() || target.len() > symlink::TARGET_MAX || target.contains(&0) {
            return Err(FsError::Invalid("the target of a symbolic link has 1 to 4,095 bytes, none zero"));
        }
        let new = NewNode { uid, gid, ..NewNode::new(FileType::Symlink, 0o777) };
        self.make_node(directory, name, &new, target).await
    }

    /// The target of a symbolic link.
    ///
    /// # Errors
    /// [`FsError::Invalid`] for anything else, [`FsError::NotFound`], and what reading may fail by.
    pub async fn read_link(&self, inode: InodeNumber) -> Result<Vec<u8>, FsError> {
        let fs = &self.0;
        let node = fs.nodes.get(fs, inode).await?;
        if node.kind() != Some(FileType::Symlink) {
            return Err(FsError::Invalid("only a symbolic link has a target"));
        }
        let inode = *node.inode.borrow();
        if let Some(target) = symlink::short_target(&inode, node.number)? {
            return Ok(target);
        }
        let tree = Tree { fs, handle: None, node: &node };
        let place = tree.place(0).await?;
        tree.read(place, Kind::SymlinkTarget, |block| symlink::long_target(&inode, node.number, block)).await
    }

    /// Gives an inode another name, or one that was [made without](Self::create_unnamed) its first. Directories have
    /// only one.
    ///
    /// # Errors
    /// As [`create`](Self::create); [`FsError::NotPermitted`] for a directory, [`FsError::NotFound`] for an
    /// inode that has lost its names, [`FsError::TooManyLinks`] beyond 65,000.
    pub async fn link(&self, inode: InodeNumber, directory: InodeNumber, name: &[u8]) -> Result<(), FsError> {
        check_ordinary(name)?;
        let fs = &self.0;
        fs.changing(fs.with_space(async || fs.link_once(self.1, inode, directory, name).await)).await
    }
}

impl Mounted {
    /// Writes the target of a symbolic link into a block of its own.
    pub(super) async fn write_target(
        &self,
        handle: &TxHandle,
        node: &Rc<Node>,
        target: &[u8],
    ) -> Result<(), FsError> {
        let tree = Tree { fs: self, handle: Some(handle), node };
        let place = add_block(&tree, 0, Kind::SymlinkTarget, tree.goal()).await?;
        let mut block = [0; BLOCK_BYTES];
        symlink::set_long_target(&mut node.inode.borrow_mut(), &mut block, target)?;
        let change = |bytes: &mut [u8]| bytes.copy_from_slice(&block);
        tree.modify(place, Kind::SymlinkTarget, 0..BLOCK_BYTES, change).await
    }

    async fn link_once(
        &self,
        caller: Caller,
        inode: u32,
        directory: u32,
        name: &[u8],
    ) -> Result<(), FsError> {
        self.journal()?;
        let directory = self.directory_node(directory).await?;
        let node = self.nodes.get(self, inode).await?;
        if node.is_directory() {
            return Err(FsError::NotPermitted("a directory has one name only"));
        }
        let _locks = lock(&[&directory, &node]).await;
        if self.find(&directory, name).await?.is_some() {
            return Err(FsError::Exists);
        }
        match node.links() {
            // One that is released is being deleted.
            0 if !node.takes_first_name.get() || node.opens.get() == 0 => return Err(FsError::NotFound),
            LINKS_MAX.. => return Err(FsError::TooManyLinks),
            _ => {}
        }
        let handle = self.start(caller, super::CREDITS).await?;
        if let Err(error) = self.enter(&handle, &directory, name, &node).await {
            self.all_or_abort(directory.log(self, &handle)).await?;
            return Err(error);
        }
        let first = node.links() == 0;
        node.set_links(node.links() + 1, self.now());
        node.takes_first_name.set(false);
        self.all_or_abort(async {
            if first {
                self.remove_orphan(&handle, &node).await?;
            }
            node.log(self, &handle).await?;
            self.directory_changed(&handle, &directory).await
        })
        .await?;
        self.remember(&directory, name, Some(self.entry_of(&node)));
        Ok(())
    }
}
