//! An image as its newest checkpoint has it, to be read: nodes, files, names, attributes. What `fsync` has written behind the
//! checkpoint is not part of it.

use weir_format::{
    Attributes, BLOCK_BYTES, Cookie, DirectoryEntry, FileType, FormatError, ImageReader, Place, Structure,
    Target,
};

use crate::address::{BlockAddress, NodeId, SEGMENT_BLOCKS};
use crate::attribute::read_attributes;
use crate::buckets;
use crate::checkpoint::{self, Checkpoint};
use crate::dentry::{Dentry, NameArea, slots_of};
use crate::features::Feature;
use crate::inode::{Inode, inline_flags};
use crate::layout::Layout;
use crate::name_hash::hash_name;
use crate::node::{NodeFooter, read_word};
use crate::node_table::{self, NodeEntry};
use crate::path::NodePath;
use crate::segment_table::{self, SegmentEntry};
use crate::superblock::Superblock;

/// A block in memory.
pub type Block = Box<[u8; BLOCK_BYTES]>;
/// The longest target of a symbolic link.
const TARGET_MAX: u64 = BLOCK_BYTES as u64 - 1;

/// An image that is read.
pub struct Image<'a, R> {
    reader: &'a R,
    /// The superblock.
    pub superblock: Superblock,
    /// Where everything is.
    pub layout: Layout,
    /// The newest checkpoint.
    pub checkpoint: Checkpoint,
    /// Which of the two packs it was read from.
    pub pack: u32,
}

impl<'a, R: ImageReader> Image<'a, R> {
    /// Reads the superblock, from its second copy where the first is damaged, and the newest checkpoint.
    ///
    /// # Errors
    /// Those of [`Superblock::read`] and [`Checkpoint::read`], and of the reader.
    pub async fn open(reader: &'a R) -> Result<Self, R::Error> {
        let superblock = read_superblock(reader).await?;
        if superblock.blocks.get() > reader.blocks() {
            let what = "the device is shorter than the filesystem";
            return Err(FormatError::corrupt(Structure::Superblock, Place::Block(0), what).into());
        }
        let layout = Layout::new(&superblock);
        let first = read_pack(reader, &layout, 0).await?;
        let second = read_pack(reader, &layout, 1).await?;
        let (pack, checkpoint) = checkpoint::newest(first, second)?;
        Ok(Self { reader, superblock, layout, checkpoint, pack })
    }

    /// A block of the image.
    ///
    /// # Errors
    /// Those of the reader.
    pub async fn block(&self, number: u32) -> Result<Block, R::Error> {
        read_block(self.reader, number.into()).await
    }

    /// Where the table and its journal say that a node is.
    ///
    /// # Errors
    /// [`FormatError::Corrupt`] for a node that cannot be, or lies outside the main area.
    pub async fn node_entry(&self, node: NodeId) -> Result<NodeEntry, R::Error> {
        let corrupt = |what| FormatError::corrupt(Structure::NodeAddressTable, Place::Inode(node.0), what);
        if !self.layout.has_node(node) {
            return Err(corrupt("a node that the table has no room for").into());
        }
        let journaled = self.checkpoint.journal_nodes.iter().find(|change| change.node() == node);
        let entry = match journaled {
            Some(change) => change.entry,
            None => {
                let (nth, at) = node_table::entry_place(node);
                let place = self.layout.node_table_block(nth, &self.checkpoint.node_versions);
                node_table::read_entry(&self.block(place).await?[..], at)
            }
        };
        entry.check(node, &self.layout)?;
        Ok(entry)
    }

    /// What the table and its journal say of a segment.
    ///
    /// # Errors
    /// [`FormatError::Corrupt`] for an entry that cannot be.
    pub async fn segment_entry(&self, segment: u32) -> Result<SegmentEntry, R::Error> {
        let journaled = self.checkpoint.journal_segments.iter().find(|change| change.segment() == segment);
        let entry = match journaled {
            Some(change) => change.entry,
            None => {
                let (nth, at) = segment_table::entry_place(segment);
                let place = self.layout.segment_table_block(nth, &self.checkpoint.segment_versions);
                segment_table::read_entry(&self.block(place).await?[..], at)
            }
        };
        entry.check(segment)?;
        Ok(entry)
    }

    /// The block of a node that belongs to an inode.
    ///
    /// # Errors
    /// [`FormatError::Corrupt`] for a node that is free, or another one than its footer says.
    pub async fn node(&self, node: NodeId, inode: NodeId) -> Result<Block, R::Error> {
        let entry = self.node_entry(node).await?;
        let address = entry.address();
        if !address.is_place() || entry.inode() != inode {
            let what = "a file leads to a node that is free, or another file's";
            return Err(FormatError::corrupt(Structure::Node, Place::Inode(inode.0), what).into());
        }
        let block = self.block(address.0).await?;
        NodeFooter::check(&block[..], node, inode, address)?;
        Ok(block)
    }

    /// An inode.
    ///
    /// # Errors
    /// [`FormatError::Corrupt`] and [`FormatError::Checksum`] for damage, and a number that no inode has.
    pub async fn inode(&self, number: NodeId) -> Result<Inode, R::Error> {
        let block = self.node(number, number).await?;
        let address = self.node_entry(number).await?.address();
        let has_sum = self.superblock.features().has(Feature::INODE_CHECKSUM);
        let seed = has_sum.then(|| self.superblock.inode_seed());
        Ok(Inode::read(&block[..], number, address, seed)?)
    }

    /// Where a page of a file is: [`BlockAddress::NULL`] for a hole, [`BlockAddress::NEW`] for one that is allocated and was
    /// never written. Both read as zeros.
    ///
    /// # Errors
    /// [`FormatError::Corrupt`] for an address outside the main area, and those of [`node`](Self::node).
    pub async fn page_address(&self, inode: &Inode, page: u64) -> Result<BlockAddress, R::Error> {
        let Some(path) = NodePath::new(page, inode.addresses()) else { return Ok(BlockAddress::NULL) };
        let number = inode.number();
        let mut last: Option<Block> = None;
        for step in path.steps() {
            let node = match &last {
                None => inode.nodes.get(step.word as usize).map_or(0, |node| node.get()),
                Some(block) => read_word(&block[..], step.word),
            };
            if node == 0 {
                return Ok(BlockAddress::NULL);
            }
            let block = self.node(NodeId(node), number).await?;
            if NodeFooter::of_block(&block[..]).is_none_or(|footer| footer.place() != step.place) {
                let what = "a node that lies elsewhere in its file";
                return Err(FormatError::corrupt(Structure::Node, Place::Inode(number.0), what).into());
            }
            last = Some(block);
        }
        let address = match last {
            None => inode.address(path.word),
            Some(block) => BlockAddress(read_word(&block[..], path.word)),
        };
        match address.is_place() && self.layout.segment_of(address).is_none() {
            true => Err(FormatError::corrupt(
                Structure::Node,
                Place::Inode(number.0),
                "a page outside the main area",
            )
            .into()),
            false => Ok(address),
        }
    }

    /// A page of a file, zeros where it has no block. What lies behind the end of the file is zeros.
    ///
    /// # Errors
    /// As [`page_address`](Self::page_address).
    pub async fn page(&self, inode: &Inode, page: u64) -> Result<Block, R::Error> {
        let mut content: Block = Box::new([0; BLOCK_BYTES]);
        let size = inode.size.get();
        let start = page.saturating_mul(BLOCK_BYTES as u64);
        let bytes = usize::try_from(size.saturating_sub(start)).unwrap_or(BLOCK_BYTES).min(BLOCK_BYTES);
        if inode.has_inline(inline_flags::DATA) {
            let area = inode.inline_area();
            let bytes = if page == 0 { bytes.min(area.len()) } else { 0 };
            content[..bytes].copy_from_slice(&area[..bytes]);
            return Ok(content);
        }
        let address = self.page_address(inode, page).await?;
        if bytes > 0 && address.is_place() {
            content = self.block(address.0).await?;
            content[bytes..].fill(0);
        }
        Ok(content)
    }

    /// What a name in a directory stands for.
    ///
    /// # Errors
    /// [`FormatError::Corrupt`] for damage.
    pub async fn find_name(&self, directory: &Inode, name: &[u8]) -> Result<Option<NodeId>, R::Error> {
        let place = Place::Inode(directory.number().0);
        if directory.has_inline(inline_flags::NAMES) {
            let area = directory.inline_area();
            return Ok(NameArea::of_inline(area.len()).find(area, name, place)?.map(|found| found.inode));
        }
        let (hash, end) = (hash_name(name), directory.size.get().div_ceil(BLOCK_BYTES as u64));
        for level in 0..directory.depth.get().min(buckets::LEVELS_MAX) {
            for block in
                buckets::blocks_of(level, directory.directory_level, hash).take_while(|block| *block < end)
            {
                let names = self.page(directory, block).await?;
                if let Some(found) = NameArea::BLOCK.find(&names[..], name, place)? {
                    return Ok(Some(found.inode));
                }
            }
        }
        Ok(None)
    }

    /// The names of a directory behind a cookie, at least `limit` if there are so many; none at the end. A name's cookie is
    /// that of its place, which it keeps.
    ///
    /// # Errors
    /// [`FormatError::Corrupt`] for damage.
    pub async fn read_names(
        &self,
        directory: &Inode,
        after: Cookie,
        limit: usize,
    ) -> Result<Vec<DirectoryEntry>, R::Error> {
        let place = Place::Inode(directory.number().0);
        let mut entries = Vec::new();
        let mut take = |block: u64, found: Dentry<'_>| {
            let target = Target { inode: found.inode.0, kind: found.kind };
            entries.push(DirectoryEntry {
                cookie: cookie_behind(block, &found),
                name: found.name.to_vec(),
                target,
            });
            entries.len() >= limit
        };
        let first = u64::from(after.group());
        let from = |block: u64| if block == first { (after.0 & u64::from(u32::MAX)) as usize } else { 0 };
        if directory.has_inline(inline_flags::NAMES) {
            let area = directory.inline_area();
            for found in NameArea::of_inline(area.len()).names(area, from(0), place) {
                take(0, found?);
            }
            return Ok(entries);
        }
        for block in first..directory.size.get().div_ceil(BLOCK_BYTES as u64) {
            if !self.page_address(directory, block).await?.is_place() {
                continue;
            }
            let names = self.page(directory, block).await?;
            let mut enough = false;
            for found in NameArea::BLOCK.names(&names[..], from(block), place) {
                enough = take(block, found?);
            }
            if enough {
                break;
            }
        }
        Ok(entries)
    }

    /// The attributes of an inode.
    ///
    /// # Errors
    /// [`FormatError::Corrupt`] for damage.
    pub async fn attributes(&self, inode: &Inode) -> Result<Attributes, R::Error> {
        let node = match inode.attribute_node.get() {
            0 => None,
            node => Some(self.node(NodeId(node), inode.number()).await?),
        };
        let bytes = node.as_ref().map(|node| &node[..]);
        Ok(read_attributes(inode.number(), inode.attribute_area(), bytes)?)
    }

    /// The target of a symbolic link.
    ///
    /// # Errors
    /// [`FormatError::Corrupt`] for a target that is empty, too long, or has a zero byte.
    pub async fn link_target(&self, inode: &Inode) -> Result<Vec<u8>, R::Error> {
        let size = inode.size.get();
        let corrupt =
            || FormatError::corrupt(Structure::SymlinkTarget, Place::Inode(inode.number().0), "its target");
        if inode.file_type() != Some(FileType::Symlink) || !(1..=TARGET_MAX).contains(&size) {
            return Err(corrupt().into());
        }
        let target = self.page(inode, 0).await?[..size as usize].to_vec();
        if target.contains(&0) { Err(corrupt().into()) } else { Ok(target) }
    }
}

/// The cookie of a name: its block is the group, and the rest is the slot behind its own.
fn cookie_behind(block: u64, found: &Dentry<'_>) -> Cookie {
    Cookie(block << 32 | (found.slot + slots_of(found.name.len())) as u64)
}

async fn read_block<R: ImageReader>(reader: &R, number: u64) -> Result<Block, R::Error> {
    let mut block: Block = Box::new([0; BLOCK_BYTES]);
    if number < reader.blocks() {
        reader.read(number, &mut block[..]).await?;
    }
    Ok(block)
}

/// The first copy of the superblock, or the second.
async fn read_superblock<R: ImageReader>(reader: &R) -> Result<Superblock, R::Error> {
    let first = Superblock::read(&read_block(reader, 0).await?[..], 0);
    let second = Superblock::read(&read_block(reader, 1).await?[..], 1);
    match (first, second) {
        (Ok(superblock), _) | (Err(_), Ok(superblock)) => Ok(superblock),
        (Err(FormatError::Foreign { .. }), Err(error)) | (Err(error), _) => Err(error.into()),
    }
}

/// One of the packs: of what is wrong with it the caller decides, but not of what the reader fails by.
async fn read_pack<R: ImageReader>(
    reader: &R,
    layout: &Layout,
    pack: u32,
) -> Result<Result<Checkpoint, FormatError>, R::Error> {
    let start = layout.pack_start(pack);
    let blocks = match checkpoint::pack_blocks(&read_block(reader, start.into()).await?[..], start) {
        Ok(blocks) => blocks.min(SEGMENT_BLOCKS),
        Err(error) => return Ok(Err(error)),
    };
    let mut bytes = vec![0; blocks as usize * BLOCK_BYTES];
    reader.read(start.into(), &mut bytes).await?;
    Ok(Checkpoint::read(&bytes, start, layout))
}
