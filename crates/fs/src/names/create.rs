//! Making inodes, each with its first name.

use std::rc::Rc;

use weir_ext4::{Blocks, ExtentTree, FileType, Inode, Kind, Stamp, inode_flags, symlink};
use weir_journal::TxHandle;

use super::check_ordinary;
use crate::caller::Caller;
use crate::error::FsError;
use crate::filesystem::{Filesystem, InodeNumber, Mounted};
use crate::mutants::FsMutant;
use crate::node::Node;
use crate::tree::Tree;

/// Bits of a mode by which directories hand down their group.
pub(crate) const SET_GROUP: u16 = 0o2000;

/// The numbers of a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Device {
    /// Which driver, up to 4,095.
    pub major: u32,
    /// Which of its devices, up to 1,048,575.
    pub minor: u32,
}

/// What a new inode is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewNode {
    /// Its type.
    pub kind: FileType,
    /// The twelve bits of its permissions.
    pub permissions: u16,
    /// Bits that are taken from the permissions, unless the directory has a default access control list, which is given
    /// to what is made in it.
    pub umask: u16,
    /// Its owner.
    pub uid: u32,
    /// Its group; a directory whose set-group-ID bit is set gives its own to what is made in it.
    pub gid: u32,
    /// For devices.
    pub device: Device,
}

impl NewNode {
    /// A file, directory, pipe or socket of user and group 0.
    pub fn new(kind: FileType, permissions: u16) -> NewNode {
        NewNode { kind, permissions, umask: 0, uid: 0, gid: 0, device: Device::default() }
    }
}

impl Filesystem {
    /// Makes a file, directory, device, pipe or socket.
    ///
    /// # Errors
    /// [`FsError::Exists`], [`FsError::NotFound`] for a directory that was removed, [`FsError::NotDirectory`],
    /// [`FsError::NameLength`], [`FsError::TooManyLinks`], [`FsError::NoSpace`], [`FsError::ReadOnly`],
    /// [`FsError::Invalid`] for names and numbers that cannot be, and what reading may fail by.
    pub async fn create(
        &self,
        directory: InodeNumber,
        name: &[u8],
        new: &NewNode,
    ) -> Result<InodeNumber, FsError> {
        if new.kind == FileType::Symlink {
            return Err(FsError::Invalid("a symbolic link has a target"));
        }
        self.make_node(directory, name, new, &[]).await
    }

    /// Makes a directory, whatever `kind` says.
    ///
    /// # Errors
    /// As [`create`](Self::create).
    pub async fn mkdir(
        &self,
        directory: InodeNumber,
        name: &[u8],
        new: &NewNode,
    ) -> Result<InodeNumber, FsError> {
        self.make_node(directory, name, &NewNode { kind: FileType::Directory, ..*new }, &[]).await
    }

    /// Makes a file without a name, and [opens](Self::open) it. It is deleted when it is released, and by the next mount
    /// after a crash, unless [`link`](Self::link) has given it a name by then. The directory says where on the disk it
    /// goes, and hands down its group.
    ///
    /// # Errors
    /// As [`create`](Self::create), but for those of names; [`FsError::Invalid`] for anything but a regular file.
    pub async fn create_unnamed(
        &self,
        directory: InodeNumber,
        new: &NewNode,
    ) -> Result<InodeNumber, FsError> {
        if new.kind != FileType::Regular {
            return Err(FsError::Invalid("only a regular file can be without a name from the start"));
        }
        let mut inode = self.0.inode_of(new)?;
        inode.links = 0.into();
        let content = Content { inode, umask: new.umask, target: None };
        let fs = &self.0;
        fs.changing(fs.with_space(async || fs.make_unnamed(self.1, directory, &content).await)).await
    }

    pub(super) async fn make_node(
        &self,
        directory: InodeNumber,
        name: &[u8],
        new: &NewNode,
        target: &[u8],
    ) -> Result<InodeNumber, FsError> {
        check_ordinary(name)?;
        let mut inode = self.0.inode_of(new)?;
        let short = new.kind != FileType::Symlink || symlink::set_short_target(&mut inode, target);
        let content = Content { inode, umask: new.umask, target: (!short).then_some(target) };
        let fs = &self.0;
        fs.changing(fs.with_space(async || fs.make_once(self.1, directory, name, &content).await)).await
    }
}

/// A new inode, and its target if that needs a block.
struct Content<'a> {
    inode: Inode,
    umask: u16,
    target: Option<&'a [u8]>,
}

impl Mounted {
    /// A new inode, without what its number decides.
    pub(super) fn inode_of(&self, new: &NewNode) -> Result<Inode, FsError> {
        let mut inode = Inode::new(new.kind, new.permissions);
        inode.set_owner(new.uid, new.gid);
        inode.links = if new.kind == FileType::Directory { 2 } else { 1 }.into();
        let now = self.now();
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
    ) -> Result<u32, FsError> {
        self.journal()?;
        let parent = self.directory_node(parent).await?;
        let _locked = parent.alone().await;
        if self.find(&parent, name).await?.is_some() {
            return Err(FsError::Exists);
        }
        let kind = content.inode.file_type().ok_or(FsError::Invalid("no such type"))?;
        let directory = kind == FileType::Directory;
        if directory && !parent.takes_subdirectory(self.has_uncounted_links()) {
            return Err(FsError::TooManyLinks);
        }
        let mode = (kind, content.inode.permissions());
        let inherited = self.inherit(&parent, mode, content.umask).await?;
        let handle = self.start(caller, super::CREDITS).await?;
        let node = self.allocate_node(&handle, &parent, inherited.mode_of(content.inode)).await?;
        let filled = async {
            self.put_inherited(&handle, &node, &inherited).await?;
            self.fill_and_enter(&handle, &parent, name, &node, content.target).await
        };
        if let Err(error) = filled.await {
            self.unmake(&handle, &parent, &node).await?;
            return Err(error);
        }
        if directory {
            parent.add_subdirectory();
        }
        self.all_or_abort(async {
            node.log(self, &handle).await?;
            self.directory_changed(&handle, &parent).await
        })
        .await?;
        self.remember(&parent, name, Some(self.entry_of(&node)));
        Ok(node.number)
    }

    async fn make_unnamed(
        &self,
        caller: Caller,
        directory: u32,
        content: &Content<'_>,
    ) -> Result<u32, FsError> {
        self.journal()?;
        let directory = self.directory_node(directory).await?;
        let _locked = directory.alone().await;
        if directory.links() == 0 {
            return Err(FsError::NotFound);
        }
        let mode = (FileType::Regular, content.inode.permissions());
        let inherited = self.inherit(&directory, mode, content.umask).await?;
        let handle = self.start(caller, super::CREDITS).await?;
        let node = self.allocate_node(&handle, &directory, inherited.mode_of(content.inode)).await?;
        if let Err(error) = self.put_inherited(&handle, &node, &inherited).await {
            self.unmake(&handle, &directory, &node).await?;
            return Err(error);
        }
        node.opens.set(1);
        node.takes_first_name.set(true);
        self.all_or_abort(async {
            if !self.options.rules.drops(FsMutant::UnnamedIsNoOrphan) {
                self.add_orphan(&handle, &node).await?;
            }
            node.log(self, &handle).await
        })
        .await?;
        Ok(node.number)
    }

    /// Gives a new inode its number, near that of the directory where it is made. The caller logs the node.
    pub(super) async fn allocate_node(
        &self,
        handle: &TxHandle,
        parent: &Node,
        inode: Inode,
    ) -> Result<Rc<Node>, FsError> {
        let kind = inode.file_type().ok_or(FsError::Invalid("no such type"))?;
        let near = self.layout.inode_group(parent.number)?.0;
        let number = self.space.allocate_inode(handle, near, kind).await?;
        Ok(self.nodes.insert(number, self.numbered(inode, parent)))
    }

    /// What the number and the parent decide of an inode.
    fn numbered(&self, mut inode: Inode, parent: &Node) -> Inode {
        inode.generation = self.names.next_generation().into();
        let above = parent.inode.borrow();
        if above.mode.get() & SET_GROUP != 0 {
            let uid = inode.uid();
            inode.set_owner(uid, above.gid());
            if inode.file_type() == Some(FileType::Directory) {
                inode.mode = (inode.mode.get() | SET_GROUP).into();
            }
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
            self.in_directory(node, Some(handle), async |entries| {
                entries.create(parent.number, self.entry_of(node).kind.is_some()).await
            })
            .await?;
        }
        if let Some(target) = target {
            self.write_target(handle, node, target).await?;
        }
        self.enter(handle, parent, name, node).await
    }

    /// Puts a name for a node into a directory, whose inode changes in memory only.
    pub(super) async fn enter(
        &self,
        handle: &TxHandle,
        directory: &Rc<Node>,
        name: &[u8],
        node: &Node,
    ) -> Result<(), FsError> {
        let target = self.entry_of(node);
        self.in_directory(directory, Some(handle), async |entries| entries.insert(name, target).await)
            .await
            .map_err(FsError::full_is_no_space)
    }

    /// Takes back what was done for a new inode before there was no space for its name.
    pub(super) async fn unmake(
        &self,
        handle: &TxHandle,
        parent: &Rc<Node>,
        node: &Rc<Node>,
    ) -> Result<(), FsError> {
        self.all_or_abort(async {
            // The parent may have grown before the space ran out.
            parent.log(self, handle).await?;
            self.take_attributes(handle, node).await?;
            self.free_first_block(handle, node).await?;
            self.nodes.forget(node.number);
            self.space.free_inode(handle, node.number, node.is_directory()).await
        })
        .await
    }

    /// Frees the block of a new directory or symbolic link, if it has got it.
    async fn free_first_block(&self, handle: &TxHandle, node: &Rc<Node>) -> Result<(), FsError> {
        if node.inode.borrow().sectors() == 0 {
            return Ok(());
        }
        let tree = Tree { fs: self, handle: Some(handle), node };
        let place = tree.place(0).await?;
        let generation = node.inode.borrow().generation.get();
        tree.free(place, Kind::Directory { inode: node.number, generation }).await
    }
}

/// Device numbers in a block area: in the first word if both fit in a byte, else in the second, spread.
fn put_device(inode: &mut Inode, Device { major, minor }: Device) -> Result<(), FsError> {
    if major >= 1 << 12 || minor >= 1 << 20 {
        return Err(FsError::Invalid("a device has numbers of 12 and 20 bits"));
    }
    let (at, word) = match (major, minor) {
        (0..256, 0..256) => (0, major << 8 | minor),
        _ => (4, minor & 0xFF | major << 8 | (minor & !0xFF) << 12),
    };
    inode.block_area[at..at + 4].copy_from_slice(&word.to_le_bytes());
    Ok(())
}

/// The device numbers of an inode.
pub(crate) fn device_of(inode: &Inode) -> Device {
    let word = |at| {
        let area = &inode.block_area;
        u32::from_le_bytes([area[at], area[at + 1], area[at + 2], area[at + 3]])
    };
    match (word(0), word(4)) {
        (0, spread) => Device { major: spread >> 8 & 0xFFF, minor: spread & 0xFF | spread >> 12 & 0xF_FF00 },
        (small, _) => Device { major: small >> 8 & 0xFF, minor: small & 0xFF },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_keep_their_numbers() {
        for (major, minor) in [(0, 0), (8, 1), (255, 255), (256, 0), (0, 256), (4095, (1 << 20) - 1)] {
            let mut inode = Inode::new(FileType::BlockDevice, 0o600);
            put_device(&mut inode, Device { major, minor }).expect("fits");
            assert_eq!(device_of(&inode), Device { major, minor });
        }
        let mut inode = Inode::new(FileType::BlockDevice, 0o600);
        put_device(&mut inode, Device { major: 4096, minor: 0 }).expect_err("too large");
        put_device(&mut inode, Device { major: 0, minor: 1 << 20 }).expect_err("too large");
    }
}
