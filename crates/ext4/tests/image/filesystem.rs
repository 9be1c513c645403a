//! A filesystem on an image in memory, as plain as it can be: blocks are verified whenever they are read and
//! sealed whenever they change, and there is no journal.

use std::cell::RefCell;
use std::ops::Range;

use weir_ext4::{
    Blocks, Checksums, Descriptor, Extent, ExtentTree, Inode, Kind, Layout, bitmap, group_flags, inode_flags,
};
use weir_ext4::{directory::Directory, directory::DirectoryFile, directory::DirectoryFormat};
use weir_format::{BLOCK_BYTES, FileType, FormatError, Target};
use zerocopy::IntoBytes;

use super::{Image, now};

pub struct Filesystem {
    pub image: RefCell<Image>,
    pub layout: Layout,
    checksums: Checksums,
}

const FULL: FormatError = FormatError::Full { what: "the filesystem" };

impl Filesystem {
    pub fn new(image: Image) -> Self {
        let superblock = image.superblock();
        let layout = Layout::new(&superblock).expect("a layout");
        Self { image: RefCell::new(image), layout, checksums: superblock.checksums() }
    }

    pub fn descriptor(&self, group: u32) -> Descriptor {
        let (block, range) = self.layout.descriptor_place(group).expect("a group");
        Descriptor::read(&self.image.borrow().block(block)[range], group, &self.layout).expect("a descriptor")
    }

    fn set_descriptor(&self, group: u32, mut descriptor: Descriptor) {
        let (block, range) = self.layout.descriptor_place(group).expect("a group");
        descriptor.write(&mut self.image.borrow_mut().block_mut(block)[range], group, &self.layout);
    }

    pub fn inode(&self, number: u32) -> Inode {
        let (group, index) = self.layout.inode_group(number).expect("an inode");
        let (block, range) = self.layout.inode_place(&self.descriptor(group), index);
        Inode::read(&self.image.borrow().block(block)[range], number, &self.checksums).expect("an inode")
    }

    pub fn set_inode(&self, number: u32, mut inode: Inode) {
        let (group, index) = self.layout.inode_group(number).expect("an inode");
        let (block, range) = self.layout.inode_place(&self.descriptor(group), index);
        inode.update_checksum(number, &self.checksums);
        self.image.borrow_mut().block_mut(block)[range].copy_from_slice(inode.as_bytes());
    }

    /// A new inode in the first group.
    pub fn create(&self, kind: FileType) -> u32 {
        let mut descriptor = self.descriptor(0);
        let mut image = self.image.borrow_mut();
        let bits = image.block_mut(descriptor.inode_bitmap());
        let index = bitmap::next_clear(bits, 0..self.layout.inodes_per_group()).expect("a free inode");
        bitmap::set(bits, index..index + 1);
        descriptor.seal_inode_bitmap(bits, &self.layout);
        descriptor.set_free_inodes(descriptor.free_inodes() - 1);
        let behind = self.layout.inodes_per_group() - index - 1;
        descriptor.set_unused_inodes(descriptor.unused_inodes().min(behind));
        if kind == FileType::Directory {
            descriptor.set_directories(descriptor.directories() + 1);
        }
        drop(image);
        self.set_descriptor(0, descriptor);
        let number = self.layout.inode_at(0, index);
        let mut inode = Inode::new(kind, 0o755);
        inode.set_flag(inode_flags::EXTENTS, true);
        inode.block_area = ExtentTree::<Self>::empty_root();
        inode.links = 1.into();
        self.set_inode(number, inode);
        number
    }

    /// Makes a directory and enters it into the root directory.
    pub fn make_directory(&self, name: &[u8]) -> u32 {
        let number = self.create(FileType::Directory);
        let file = OpenDirectory::new(self, number);
        now(file.directory().create(2, true)).expect("room");
        file.close(|inode| inode.links = 2.into());
        self.link(2, name, number, FileType::Directory);
        number
    }

    /// Enters a name into a directory.
    pub fn link(&self, directory: u32, name: &[u8], inode: u32, kind: FileType) {
        let file = OpenDirectory::new(self, directory);
        now(file.directory().insert(name, Target { inode, kind: Some(kind) })).expect("room");
        let subdirectory = u16::from(kind == FileType::Directory);
        file.close(|inode| inode.links = (inode.links.get() + subdirectory).into());
    }

    /// Brings the superblock's totals up to date, and returns the image.
    pub fn finish(self) -> Image {
        let descriptors: Vec<Descriptor> =
            (0..self.layout.groups()).map(|group| self.descriptor(group)).collect();
        let mut image = self.image.into_inner();
        let mut superblock = image.superblock();
        superblock.set_free_blocks(descriptors.iter().map(|group| u64::from(group.free_blocks())).sum());
        superblock.free_inodes = descriptors.iter().map(Descriptor::free_inodes).sum::<u32>().into();
        image.set_superblock(superblock);
        image
    }
}

impl Blocks for Filesystem {
    type Error = FormatError;

    async fn read<T>(
        &self,
        block: u64,
        kind: Kind,
        look: impl FnOnce(&[u8]) -> Result<T, FormatError>,
    ) -> Result<T, FormatError> {
        let image = self.image.borrow();
        self.checksums.verify(kind, block, image.block(block))?;
        look(image.block(block))
    }

    async fn modify(
        &self,
        block: u64,
        kind: Kind,
        range: Range<usize>,
        change: impl FnOnce(&mut [u8]),
    ) -> Result<(), FormatError> {
        let mut image = self.image.borrow_mut();
        let bytes = image.block_mut(block);
        change(&mut bytes[range]);
        self.checksums.update_checksum(kind, block, bytes).map(drop)
    }

    async fn allocate(&self, _: Kind, _: u64) -> Result<u64, FormatError> {
        for group in 0..self.layout.groups() {
            let mut descriptor = self.descriptor(group);
            if descriptor.has_flag(group_flags::BLOCKS_UNINITIALISED) {
                continue;
            }
            let mut image = self.image.borrow_mut();
            let bits = image.block_mut(descriptor.block_bitmap());
            let Some(bit) = bitmap::next_clear(bits, 0..self.layout.blocks_in(group)) else { continue };
            bitmap::set(bits, bit..bit + 1);
            descriptor.seal_block_bitmap(bits, &self.layout);
            descriptor.set_free_blocks(descriptor.free_blocks() - 1);
            let block = self.layout.first_block(group) + u64::from(bit);
            image.block_mut(block).fill(0);
            drop(image);
            self.set_descriptor(group, descriptor);
            return Ok(block);
        }
        Err(FULL)
    }

    async fn free(&self, _: u64, _: Kind) -> Result<(), FormatError> {
        panic!("nothing here gives a block back")
    }
}

/// A directory with its inode in memory until it is closed.
pub struct OpenDirectory<'a> {
    filesystem: &'a Filesystem,
    number: u32,
    inode: RefCell<Inode>,
}

impl<'a> OpenDirectory<'a> {
    pub fn new(filesystem: &'a Filesystem, number: u32) -> Self {
        Self { filesystem, number, inode: RefCell::new(filesystem.inode(number)) }
    }

    pub fn directory(&self) -> Directory<'_, Filesystem, Self> {
        let superblock = self.filesystem.image.borrow().superblock();
        let generation = self.inode.borrow().generation.get();
        let format = DirectoryFormat::new(&superblock, self.number, generation).expect("a format");
        Directory::new(self.filesystem, self, format)
    }

    pub fn close(self, change: impl FnOnce(&mut Inode)) {
        let mut inode = self.inode.into_inner();
        change(&mut inode);
        self.filesystem.set_inode(self.number, inode);
    }
}

impl DirectoryFile for OpenDirectory<'_> {
    type Error = FormatError;

    fn blocks(&self) -> u32 {
        (self.inode.borrow().size() / BLOCK_BYTES as u64) as u32
    }

    fn is_indexed(&self) -> bool {
        self.inode.borrow().has_flag(inode_flags::INDEXED)
    }

    async fn set_indexed(&self) -> Result<(), FormatError> {
        self.inode.borrow_mut().set_flag(inode_flags::INDEXED, true);
        Ok(())
    }

    async fn place(&self, block: u32) -> Result<u64, FormatError> {
        let mut root = self.inode.borrow().block_area;
        let generation = self.inode.borrow().generation.get();
        let limit = self.filesystem.layout.blocks();
        let tree = ExtentTree::new(self.filesystem, &mut root, self.number, generation, limit);
        let extent = tree.lookup(block).await?.expect("a directory has no holes");
        Ok(extent.physical + u64::from(block - extent.logical))
    }

    async fn append(&self, kind: Kind) -> Result<(u32, u64), FormatError> {
        let physical = self.filesystem.allocate(kind, 0).await?;
        let logical = self.blocks();
        let mut inode = *self.inode.borrow();
        let generation = inode.generation.get();
        let limit = self.filesystem.layout.blocks();
        let mut tree =
            ExtentTree::new(self.filesystem, &mut inode.block_area, self.number, generation, limit);
        tree.insert(Extent { logical, length: 1, physical, written: true }).await?;
        let nodes = tree.nodes_gained().cast_unsigned();
        inode.set_size(inode.size() + BLOCK_BYTES as u64);
        inode.set_sectors(inode.sectors() + 8 * (1 + nodes));
        *self.inode.borrow_mut() = inode;
        Ok((logical, physical))
    }
}
