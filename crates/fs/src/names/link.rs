//! Links: more names for one inode, and symbolic ones, which hold a path.

use std::rc::Rc;

use weir_ext4::{Blocks, Kind, symlink};
use weir_format::{BLOCK_BYTES, FileType};
use weir_journal::TxHandle;
use weir_vfs::{Caller, FsError, Hold, InodeNumber, NewNode, check_ordinary_name};

use super::Namespace;
use super::blocks::add_block;
use crate::mapping::Tree;
use crate::{inodes::LINKS_MAX, inodes::Node, inodes::lock};

impl Namespace {
    /// Makes a symbolic link to `target`.
    pub(crate) async fn symlink(
        &self,
        caller: Caller,
        directory: InodeNumber,
        name: &[u8],
        target: &[u8],
        (uid, gid): (u32, u32),
    ) -> Result<Hold, FsError> {
        if target.is_empty() || target.len() > symlink::TARGET_MAX || target.contains(&0) {
            return Err(FsError::Invalid("the target of a symbolic link has 1 to 4,095 bytes, none zero"));
        }
        let new = NewNode { uid, gid, ..NewNode::new(FileType::Symlink, 0o777) };
        self.make_node(caller, directory, name, &new, target).await
    }

    /// Gives an inode another name, or one that was made without its first.
    pub(crate) async fn link(
        &self,
        caller: Caller,
        inode: InodeNumber,
        directory: InodeNumber,
        name: &[u8],
    ) -> Result<Hold, FsError> {
        check_ordinary_name(name)?;
        self.changes.changing_with_space(async || self.link_once(caller, inode, directory, name).await).await
    }

    /// Writes the target of a symbolic link into a block of its own.
    pub(super) async fn write_target(
        &self,
        handle: &TxHandle,
        node: &Rc<Node>,
        target: &[u8],
    ) -> Result<(), FsError> {
        let tree = Tree::changing(node, handle);
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
    ) -> Result<Hold, FsError> {
        self.changes.journal()?;
        let directory = self.directories.node(directory).await?;
        let node = self.nodes.get(inode).await?;
        if node.is_directory() {
            return Err(FsError::NotPermitted("a directory has one name only"));
        }
        let _locks = lock(&[&directory, &node]).await;
        if self.directories.find(&directory, name).await?.is_some() {
            return Err(FsError::Exists);
        }
        match node.links() {
            // One that is not in use is being deleted.
            0 if !node.takes_first_name.get() || !self.nodes.is_in_use(&node) => {
                return Err(FsError::NotFound);
            }
            LINKS_MAX.. => return Err(FsError::TooManyLinks),
            _ => {}
        }
        let handle = self.changes.start_for(caller, super::CREDITS).await?;
        if let Err(error) = self.directories.enter(&handle, &directory, name, &node).await {
            self.changes.all_or_abort(directory.log(&handle)).await?;
            return Err(error);
        }
        let first = node.links() == 0;
        node.set_links(node.links() + 1, self.timer.now());
        node.takes_first_name.set(false);
        self.changes
            .all_or_abort(async {
                if first {
                    self.orphans.remove(&handle, &node).await?;
                }
                node.log(&handle).await?;
                self.directories.changed(&handle, &directory).await
            })
            .await?;
        self.directories.remember(&directory, name, Some(self.directories.entry_of(&node)));
        Ok(self.deletion.hold(inode))
    }
}
