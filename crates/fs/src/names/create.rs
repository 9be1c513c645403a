//! Making inodes, each with its first name.

use std::rc::Rc;

use weir_ext4::{Blocks, ExtentTree, Inode, Kind, inode_flags, symlink};
use weir_format::{FileType, Stamp};
use weir_journal::TxHandle;
use weir_vfs::{Caller, FsError, Hold, Inherited, InodeNumber, NewNode, check_ordinary_name, inherit_group};

use super::Namespace;
use crate::device::put_device;
use crate::inodes::Node;
use crate::mapping::Tree;
use crate::mutants::FsMutant;

/// A new inode, and its target if that needs a block.
struct Content<'a> {
    inode: Inode,
    umask: u16,
    target: Option<&'a [u8]>,
}

/// The new inode with its mode.
fn mode_of(inherited: &Inherited, mut inode: Inode) -> Inode {
    inode.set_permissions(inherited.permissions_of(inode.permissions()));
    inode
}

impl Namespace {
    /// Makes a file, directory, device, pipe or socket.
    pub(crate) async fn create(
        &self,
        caller: Caller,
        directory: InodeNumber,
        name: &[u8],
        new: &NewNode,
    ) -> Result<Hold, FsError> {
        if new.kind == FileType::Symlink {
            return Err(FsError::Invalid("a symbolic link has a target"));
        }
        self.make_node(caller, directory, name, new, &[]).await
    }

    /// Makes a file without a name, and opens it.
    pub(crate) async fn create_unnamed(
        &self,
        caller: Caller,
        directory: InodeNumber,
        new: &NewNode,
    ) -> Result<Hold, FsError> {
        if new.kind != FileType::Regular {
            return Err(FsError::Invalid("only a regular file can be without a name from the start"));
        }
        let mut inode = self.inode_of(new)?;
        inode.links = 0.into();
        let content = Content { inode, umask: new.umask, target: None };
        self.changes.changing_with_space(async || self.make_unnamed(caller, directory, &content).await).await
    }

    /// Makes an inode with a name, and with a target if it is a symbolic link.
    pub(super) async fn make_node(
        &self,
        caller: Caller,
        directory: InodeNumber,
        name: &[u8],
        new: &NewNode,
        target: &[u8],
    ) -> Result<Hold, FsError> {
        check_ordinary_name(name)?;
        let mut inode = self.inode_of(new)?;
        let short = new.kind != FileType::Symlink || symlink::set_short_target(&mut inode, target);
        let content = Content { inode, umask: new.umask, target: (!short).then_some(target) };
        self.changes
            .changing_with_space(async || self.make_once(caller, directory, name, &content).await)
            .await
    }

    /// A new inode, without what its number decides.
    pub(super) fn inode_of(&self, new: &NewNode) -> Result<Inode, FsError> {
        let mut inode = Inode::new(new.kind, new.permissions);
        inode.set_owner(new.uid, new.gid);
        inode.links = if new.kind == FileType::Directory { 2 } else { 1 }.into();
        let now = self.timer.now();
        for stamp in [Stamp::Accessed, Stamp::Changed, Stamp::Modified, Stamp::Created] {
            inode.set_time(stamp, now);
        }
        match new.kind {
            FileType::Regular | FileType::Directory | FileType::Symlink => {
                inode.block_area = ExtentTree::<Tree<'_>>::empty_root();
                inode.set_flag(inode_flags::EXTENTS, true);
            }
            FileType::CharacterDevice | FileType::BlockDevice => put_device(&mut inode, new.device)?,
            FileType::Fifo | FileType::Socket => {}
        }
        Ok(inode)
    }

    async fn make_once(
        &self,
        caller: Caller,
        parent: u32,
        name: &[u8],
        content: &Content<'_>,
    ) -> Result<Hold, FsError> {
        self.changes.journal()?;
        let parent = self.directories.node(parent).await?;
        let _locked = parent.lock_exclusive().await;
        if self.directories.find(&parent, name).await?.is_some() {
            return Err(FsError::Exists);
        }
        let kind = content.inode.file_type().ok_or(FsError::Invalid("no such type"))?;
        let directory = kind == FileType::Directory;
        if directory && !parent.takes_subdirectory(self.directories.has_uncounted_links()) {
            return Err(FsError::TooManyLinks);
        }
        let mode = (kind, content.inode.permissions());
        let inherited = self.attributes.inherit(&parent, mode, content.umask).await?;
        let handle = self.changes.start_for(caller, super::CREDITS).await?;
        let node = self.allocate_node(&handle, &parent, mode_of(&inherited, content.inode)).await?;
        let filled = async {
            self.attributes.put_inherited(&handle, &node, &inherited).await?;
            self.fill_and_enter(&handle, &parent, name, &node, content.target).await
        };
        if let Err(error) = filled.await {
            self.unmake(&handle, &parent, &node).await?;
            return Err(error);
        }
        if directory {
            parent.add_subdirectory();
        }
        self.changes
            .all_or_abort(async {
                node.log(&handle).await?;
                self.directories.changed(&handle, &parent).await
            })
            .await?;
        self.directories.remember(&parent, name, Some(self.directories.entry_of(&node)));
        // Under the lock: from here on the name may go.
        Ok(self.deletion.hold(node.number))
    }

    async fn make_unnamed(
        &self,
        caller: Caller,
        directory: u32,
        content: &Content<'_>,
    ) -> Result<Hold, FsError> {
        self.changes.journal()?;
        let directory = self.directories.node(directory).await?;
        let _locked = directory.lock_exclusive().await;
        if directory.links() == 0 {
            return Err(FsError::NotFound);
        }
        let mode = (FileType::Regular, content.inode.permissions());
        let inherited = self.attributes.inherit(&directory, mode, content.umask).await?;
        let handle = self.changes.start_for(caller, super::CREDITS).await?;
        let node = self.allocate_node(&handle, &directory, mode_of(&inherited, content.inode)).await?;
        // At once, as nothing else keeps it.
        node.opens.set(1);
        node.takes_first_name.set(true);
        if let Err(error) = self.attributes.put_inherited(&handle, &node, &inherited).await {
            self.unmake(&handle, &directory, &node).await?;
            return Err(error);
        }
        self.changes
            .all_or_abort(async {
                if !self.rules.drops(FsMutant::UnnamedIsNoOrphan) {
                    self.orphans.add(&handle, &node).await?;
                }
                node.log(&handle).await
            })
            .await?;
        Ok(self.deletion.hold(node.number))
    }

    /// Gives a new inode its number, near that of the directory where it is made. The caller logs the node.
    pub(super) async fn allocate_node(
        &self,
        handle: &TxHandle,
        parent: &Node,
        inode: Inode,
    ) -> Result<Rc<Node>, FsError> {
        let kind = inode.file_type().ok_or(FsError::Invalid("no such type"))?;
        let space = &parent.metadata().space;
        let near = space.layout().inode_group(parent.number)?.0;
        let number = space.allocate_inode(handle, near, kind).await?;
        Ok(self.nodes.insert(number, self.numbered(inode, parent)))
    }

    /// What the number and the parent decide of an inode.
    fn numbered(&self, mut inode: Inode, parent: &Node) -> Inode {
        inode.generation = self.generation.replace(self.generation.get().wrapping_add(1)).into();
        let above = parent.inode.borrow();
        let (gid, bits) = inherit_group((above.mode.get(), above.gid()), inode.file_type(), inode.gid());
        inode.set_owner(inode.uid(), gid);
        inode.mode = (inode.mode.get() | bits).into();
        if parent.hands_down_atomicity()
            && matches!(inode.file_type(), Some(FileType::Regular | FileType::Directory))
        {
            inode.set_flag(inode_flags::JOURNAL_DATA, true);
        }
        inode
    }

    /// All that needs space: the blocks of the new inode, and the place for its name.
    async fn fill_and_enter(
        &self,
        handle: &TxHandle,
        parent: &Rc<Node>,
        name: &[u8],
        node: &Rc<Node>,
        target: Option<&[u8]>,
    ) -> Result<(), FsError> {
        if node.is_directory() {
            self.directories
                .within(node, Some(handle), async |entries| {
                    entries.create(parent.number, self.directories.entry_of(node).kind.is_some()).await
                })
                .await?;
        }
        if let Some(target) = target {
            self.write_target(handle, node, target).await?;
        }
        self.directories.enter(handle, parent, name, node).await
    }

    /// Takes back what was done for a new inode before there was no space for its name.
    pub(super) async fn unmake(
        &self,
        handle: &TxHandle,
        parent: &Rc<Node>,
        node: &Rc<Node>,
    ) -> Result<(), FsError> {
        self.changes
            .all_or_abort(async {
                // The parent may have grown before the space ran out.
                parent.log(handle).await?;
                self.attributes.take(handle, node).await?;
                self.free_first_block(handle, node).await?;
                self.nodes.forget(node.number);
                node.metadata().space.free_inode(handle, node.number, node.is_directory()).await
            })
            .await
    }

    /// Frees the block of a new directory or symbolic link, if it has got it.
    async fn free_first_block(&self, handle: &TxHandle, node: &Rc<Node>) -> Result<(), FsError> {
        if node.inode.borrow().sectors() == 0 {
            return Ok(());
        }
        let tree = Tree::changing(node, handle);
        let place = tree.place(0).await?;
        let generation = node.inode.borrow().generation.get();
        tree.free(place, Kind::Directory { inode: node.number, generation }).await
    }
}
