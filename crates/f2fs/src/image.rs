//! An image as its newest checkpoint has it, to be read. What `fsync` has written behind the checkpoint is not part of it.

use weir_format::{BLOCK_BYTES, FormatError, ImageReader, Place, Structure};

use crate::block::{BlockAddress, NodeId, SEGMENT_BLOCKS};
use crate::checkpoint::{CheckpointHeader, CheckpointPack};
use crate::inode::Inode;
use crate::layout::Layout;
use crate::node::NodeFooter;
use crate::node_table::{NodeEntry, NodeTableBlock};
use crate::reader::{FileReader, bytes_of_page};
use crate::summary::NodeJournal;
use crate::superblock::Superblock;

/// A block in memory.
pub type Block = Box<[u8; BLOCK_BYTES]>;

/// An image that is read.
pub struct Image<R> {
    reader: R,
    /// The superblock.
    pub superblock: Superblock,
    /// Where everything is.
    pub layout: Layout,
    /// The newest checkpoint.
    pub checkpoint: CheckpointPack,
    /// Which of the two packs it is.
    pub pack: usize,
    /// What is wrong with the other pack, if something is. It may be the newer one: a power cut while it was written leaves it so,
    /// and so does damage.
    pub damaged_pack: Option<FormatError>,
    /// Changes of the node table that it carries.
    journal: NodeJournal,
}

impl<R: ImageReader> Image<R> {
    /// Reads the superblock, from its second copy where the first is damaged, and the newer whole checkpoint.
    ///
    /// # Errors
    /// Those of [`Superblock::choose`] and [`CheckpointPack::choose`], and of the reader.
    pub async fn open(reader: R) -> Result<Self, R::Error> {
        let (superblock, _) = read_superblock(&reader).await??;
        let layout = Layout::new(&superblock)?;
        let packs = [read_pack(&reader, &layout, 0).await?, read_pack(&reader, &layout, 1).await?];
        let damaged_pack = find_damaged(&packs);
        let (checkpoint, pack) = CheckpointPack::choose(packs)?;
        let journal = checkpoint.node_journal(&layout)?;
        Ok(Self { reader, superblock, layout, checkpoint, pack, damaged_pack, journal })
    }

    /// A block of the image.
    ///
    /// # Errors
    /// Those of the reader.
    async fn block(&self, address: BlockAddress) -> Result<Block, R::Error> {
        Ok(Box::new(read_block(&self.reader, address).await?))
    }

    /// Where the table and its journal say that a node is.
    ///
    /// # Errors
    /// [`FormatError::Corrupt`] for a node that cannot be, or lies outside the main area.
    pub async fn node_entry(&self, node: NodeId) -> Result<NodeEntry, R::Error> {
        let journaled = self.journal.entries().iter().find(|change| change.node.get() == node.0);
        if let Some(change) = journaled {
            return Ok(change.entry);
        }
        let what = "a node that the table has no room for";
        let corrupt = || FormatError::corrupt(Structure::NodeAddressTable, Place::Node(node.0), what);
        let (index, at) = self.layout.node_entry_of(node).ok_or_else(corrupt)?;
        let second = self.checkpoint.node_copies.is_second(index);
        let place = self.layout.node_table_block(index, second).ok_or_else(corrupt)?;
        let table = NodeTableBlock::read(&self.block(place).await?[..], index, &self.layout)?;
        Ok(table.entries[at])
    }

    /// The block of a node that belongs to an inode, where its entry is known.
    async fn node_at(&self, entry: &NodeEntry, node: NodeId, inode: NodeId) -> Result<Block, R::Error> {
        let address = entry.address();
        if !address.is_block() || entry.inode.get() != inode.0 {
            let what = "a file leads to a node that is free, or another file's";
            return Err(FormatError::corrupt(Structure::Node, Place::Inode(inode.0), what).into());
        }
        let block = self.block(address).await?;
        NodeFooter::check(&block[..], node, inode, address)?;
        Ok(block)
    }

    /// An inode.
    ///
    /// # Errors
    /// [`FormatError::Corrupt`] and [`FormatError::Checksum`] for damage, and a number that no inode has.
    pub async fn inode(&self, number: NodeId) -> Result<Inode, R::Error> {
        let entry = self.node_entry(number).await?;
        self.inode_at(&entry, number).await
    }

    /// The inode of a number that may be anything; `None` if it is not in use.
    ///
    /// # Errors
    /// As [`inode`](Self::inode).
    pub async fn find_inode(&self, number: NodeId) -> Result<Option<Inode>, R::Error> {
        if number < NodeId::ROOT || self.layout.node_entry_of(number).is_none() {
            return Ok(None);
        }
        let entry = self.node_entry(number).await?;
        match entry.address().is_block() {
            true => self.inode_at(&entry, number).await.map(Some),
            false => Ok(None),
        }
    }

    async fn inode_at(&self, entry: &NodeEntry, number: NodeId) -> Result<Inode, R::Error> {
        let block = self.node_at(entry, number, number).await?;
        let seed = self.superblock.inode_seed();
        Ok(Inode::read(&block[..], number, entry.address(), seed)?)
    }
}

impl<R: ImageReader> FileReader for Image<R> {
    type Error = R::Error;

    fn layout(&self) -> &Layout {
        &self.layout
    }

    async fn node(&self, node: NodeId, inode: NodeId) -> Result<Block, R::Error> {
        let entry = self.node_entry(node).await?;
        self.node_at(&entry, node, inode).await
    }

    async fn page_at(&self, inode: &Inode, page: u64, address: BlockAddress) -> Result<Block, R::Error> {
        let bytes = bytes_of_page(inode, page);
        if bytes == 0 || !address.is_block() {
            return Ok(Box::new([0; BLOCK_BYTES]));
        }
        let mut content = self.block(address).await?;
        content[bytes..].fill(0);
        Ok(content)
    }
}
/// Reads the superblock, from its second copy where the first is damaged, and says which copy it is. What is wrong with both is for
/// the caller to judge.
///
/// # Errors
/// What the reader fails by.
pub async fn read_superblock<R: ImageReader>(
    reader: &R,
) -> Result<Result<(Superblock, u64), FormatError>, R::Error> {
    if reader.blocks() < 2 {
        return Ok(Err(FormatError::Foreign { format: "F2FS" }));
    }
    let first = read_block(reader, BlockAddress(0)).await?;
    let second = read_block(reader, BlockAddress(1)).await?;
    Ok(Superblock::choose(&first, &second, reader.blocks()))
}

/// Reads a checkpoint pack. What is wrong with it is for the caller to judge, but not what the reader fails by.
pub(crate) async fn read_pack<R: ImageReader>(
    image: &R,
    layout: &Layout,
    pack: usize,
) -> Result<Result<CheckpointPack, FormatError>, R::Error> {
    let start = layout.pack_start(pack);
    let header = read_block(image, start).await?;
    let blocks = match CheckpointHeader::read(&header, start.0, layout) {
        Ok(header) => header.pack_blocks.get().min(SEGMENT_BLOCKS),
        Err(error) => return Ok(Err(error)),
    };
    let mut bytes = vec![0; blocks as usize * BLOCK_BYTES];
    image.read(u64::from(start.0), &mut bytes).await?;
    Ok(CheckpointPack::read(&bytes, start.0, layout))
}

/// What is wrong with one of two packs, if something is.
pub(crate) fn find_damaged(packs: &[Result<CheckpointPack, FormatError>; 2]) -> Option<FormatError> {
    packs.iter().find_map(|pack| pack.as_ref().err().cloned())
}

/// Reads a block of an area, or of the main area: the superblock's check has them all on the device.
///
/// # Errors
/// What the reader fails by.
pub async fn read_block<R: ImageReader>(
    image: &R,
    address: BlockAddress,
) -> Result<[u8; BLOCK_BYTES], R::Error> {
    let mut bytes = [0; BLOCK_BYTES];
    image.read(u64::from(address.0), &mut bytes).await?;
    Ok(bytes)
}
