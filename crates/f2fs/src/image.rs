//! An image as its newest checkpoint has it, to be read. What `fsync` has written behind the checkpoint is not part of it.

use std::rc::Rc;

use weir_format::{BLOCK_BYTES, FormatError, ImageReader, Place, Structure};

use crate::block::{BlockAddress, NodeId, SEGMENT_BLOCKS};
use crate::checkpoint::{CheckpointHeader, CheckpointPack};
use crate::inode::Inode;
use crate::layout::Layout;
use crate::node::NodeFooter;
use crate::node_table::{NodeEntry, NodeTableBlock};
use crate::reader::{FileReader, bytes_of_page};
use crate::summary::NodeJournal;
use crate::superblock::{ChosenSuperblock, Superblock};

/// A block in memory.
pub type Block = Box<[u8; BLOCK_BYTES]>;
/// A block that stays in memory while others read it.
pub type SharedBlock = Rc<[u8; BLOCK_BYTES]>;

/// An image that is read.
pub struct Image<R> {
    reader: R,
    /// The superblock.
    pub superblock: Superblock,
    /// See [`ChosenSuperblock::damaged_copy`].
    pub damaged_copy: Option<BlockAddress>,
    /// Where everything is.
    pub layout: Layout,
    /// The newest checkpoint.
    pub checkpoint: CheckpointPack,
    /// Which of the two packs it is.
    pub pack: usize,
    /// What is wrong with the other pack, if that may be the newer one: a power cut while it was written leaves it so, and so does damage.
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
        let ChosenSuperblock { superblock, damaged_copy } = read_superblock(&reader).await??;
        let layout = Layout::new(&superblock)?;
        let NewestCheckpoint { checkpoint, pack, damaged_pack } = read_checkpoint(&reader, &layout).await??;
        let journal = checkpoint.node_journal(&layout)?;
        Ok(Self { reader, superblock, damaged_copy, layout, checkpoint, pack, damaged_pack, journal })
    }

    /// A block of the image.
    ///
    /// # Errors
    /// Those of the reader.
    async fn block(&self, address: BlockAddress) -> Result<Block, R::Error> {
        read_block(&self.reader, address).await
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

    async fn node(&self, node: NodeId, inode: NodeId) -> Result<SharedBlock, R::Error> {
        let entry = self.node_entry(node).await?;
        self.node_at(&entry, node, inode).await.map(Rc::from)
    }

    async fn page_at(&self, inode: &Inode, page: u64, address: BlockAddress) -> Result<Block, R::Error> {
        let bytes = bytes_of_page(inode, page);
        if bytes == 0 || !address.is_block() {
            return Ok(zeros());
        }
        let mut content = self.block(address).await?;
        content[bytes..].fill(0);
        Ok(content)
    }
}

/// Reads the superblock, from its second copy where the first is damaged. What is wrong with both is for the caller to judge.
///
/// # Errors
/// What the reader fails by.
pub async fn read_superblock<R: ImageReader>(
    reader: &R,
) -> Result<Result<ChosenSuperblock, FormatError>, R::Error> {
    if reader.blocks() < 2 {
        return Ok(Err(FormatError::Foreign { format: "F2FS" }));
    }
    // A copy that cannot be read is as good as one of zeros.
    let (first, second) =
        match (read_block(reader, BlockAddress(0)).await, read_block(reader, BlockAddress(1)).await) {
            (Err(error), Err(_)) => return Err(error),
            (first, second) => (first.unwrap_or_else(|_| zeros()), second.unwrap_or_else(|_| zeros())),
        };
    Ok(Superblock::choose(&first[..], &second[..], reader.blocks()))
}

/// The newest whole checkpoint.
pub(crate) struct NewestCheckpoint {
    pub checkpoint: CheckpointPack,
    /// Which of the two packs it is.
    pub pack: usize,
    /// See [`Image::damaged_pack`].
    pub damaged_pack: Option<FormatError>,
}

/// A checkpoint pack that is not whole.
struct DamagedPack {
    error: FormatError,
    /// Its header, if that is whole.
    header: Option<Box<CheckpointHeader>>,
}

/// Reads the newest whole checkpoint. What is wrong with both packs is for the caller to judge.
///
/// # Errors
/// What the reader fails by, if it can read neither pack.
pub(crate) async fn read_checkpoint<R: ImageReader>(
    image: &R,
    layout: &Layout,
) -> Result<Result<NewestCheckpoint, FormatError>, R::Error> {
    let packs = match (read_pack(image, layout, 0).await, read_pack(image, layout, 1).await) {
        (Err(error), Err(_)) => return Err(error),
        (first, second) => [first, second],
    };
    let mut damaged = None;
    let mut pack = 0;
    let packs = packs.map(|read| {
        let place = Place::Block(u64::from(layout.pack_start(pack).0));
        pack += 1;
        let unreadable = || FormatError::corrupt(Structure::Checkpoint, place, "it cannot be read");
        let read = read.unwrap_or_else(|_| Err(DamagedPack { error: unreadable(), header: None }));
        read.map_err(|found| {
            let error = found.error.clone();
            damaged.get_or_insert(found);
            error
        })
    });
    Ok(CheckpointPack::choose(packs).map(|(checkpoint, pack)| {
        // mkfs.f2fs writes little more than the header of the second pack; that is older than the first.
        let may_be_newer = |found: &DamagedPack| {
            found.header.as_ref().is_none_or(|header| header.is_newer_than(&checkpoint.header))
        };
        let damaged_pack = damaged.filter(may_be_newer).map(|found| found.error);
        NewestCheckpoint { checkpoint, pack, damaged_pack }
    }))
}

async fn read_pack<R: ImageReader>(
    image: &R,
    layout: &Layout,
    pack: usize,
) -> Result<Result<CheckpointPack, DamagedPack>, R::Error> {
    let start = layout.pack_start(pack);
    let block = read_block(image, start).await?;
    let header = match CheckpointHeader::read(&block[..], start.0, layout) {
        Ok(header) => header,
        Err(error) => return Ok(Err(DamagedPack { error, header: None })),
    };
    let mut bytes = vec![0; header.pack_blocks.get().min(SEGMENT_BLOCKS) as usize * BLOCK_BYTES];
    image.read(u64::from(start.0), &mut bytes).await?;
    Ok(CheckpointPack::read(&bytes, start.0, layout)
        .map_err(|error| DamagedPack { error, header: Some(Box::new(header)) }))
}

fn zeros() -> Block {
    Box::new([0; BLOCK_BYTES])
}

/// Reads a block of an area, or of the main area: the superblock's check has them all on the device.
///
/// # Errors
/// What the reader fails by.
pub async fn read_block<R: ImageReader>(image: &R, address: BlockAddress) -> Result<Block, R::Error> {
    let mut bytes = zeros();
    image.read(u64::from(address.0), &mut bytes[..]).await?;
    Ok(bytes)
}
