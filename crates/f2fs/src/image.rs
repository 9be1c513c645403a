//! An image as its newest checkpoint has it, to be read: nodes, files, names, attributes. What `fsync` has written behind the
//! checkpoint is not part of it.

use weir_format::{
    Attributes, BLOCK_BYTES, Cookie, DirectoryEntry, FileType, FormatError, ImageReader, Place, Structure,
    Target,
};

use crate::attribute::read_attributes;
use crate::block::{BlockAddress, NodeId, SEGMENT_BLOCKS};
use crate::buckets;
use crate::checkpoint::{CheckpointHeader, CheckpointPack};
use crate::dentry::{Dentry, NameArea, slots_of};
use crate::inode::{Inode, inline_flags};
use crate::layout::Layout;
use crate::name_hash::hash_name;
use crate::node::{ADDRESSES_PER_NODE, NodeFooter, read_word};
use crate::node_table::{NodeEntry, NodeTableBlock};
use crate::path::{NodePath, pages_max};
use crate::summary::NodeJournal;
use crate::superblock::Superblock;

/// A block in memory.
pub type Block = Box<[u8; BLOCK_BYTES]>;
/// The longest target of a symbolic link.
const TARGET_MAX: u64 = BLOCK_BYTES as u64 - 1;

/// An image that is read.
pub struct Image<R> {
    reader: R,
    /// The superblock.
    pub superblock: Superblock,
    /// Where everything is.
    pub layout: Layout,
    /// The newest checkpoint.
    pub checkpoint: CheckpointPack,
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
        let (checkpoint, _) = CheckpointPack::choose(packs)?;
        let journal = checkpoint.node_journal(&layout)?;
        Ok(Self { reader, superblock, layout, checkpoint, journal })
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

    /// The block of a node that belongs to an inode.
    ///
    /// # Errors
    /// [`FormatError::Corrupt`] for a node that is free, or another one than its footer says.
    pub async fn node(&self, node: NodeId, inode: NodeId) -> Result<Block, R::Error> {
        let entry = self.node_entry(node).await?;
        self.node_at(&entry, node, inode).await
    }

    /// The same, where its entry is known.
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

    /// Where a page of a file is: [`BlockAddress::NULL`] for a hole, [`BlockAddress::NEW`] for one that is allocated and was
    /// never written. Both read as zeros.
    ///
    /// # Errors
    /// [`FormatError::Corrupt`] for an address outside the main area, and those of [`node`](Self::node).
    pub async fn page_address(&self, inode: &Inode, page: u64) -> Result<BlockAddress, R::Error> {
        Ok(self.find_page(inode, page).await?.0)
    }

    /// The first page from `page` on that has a block, and its block; `None` if there is none before the end of the file. It takes no more
    /// steps than the file has nodes and blocks, whatever its size is.
    ///
    /// # Errors
    /// As [`page_address`](Self::page_address).
    pub async fn next_page(&self, inode: &Inode, page: u64) -> Result<Option<(u64, BlockAddress)>, R::Error> {
        let pages = inode.size.get().div_ceil(BLOCK_BYTES as u64).min(pages_max(inode.addresses()));
        let mut page = page;
        while page < pages {
            match self.find_page(inode, page).await? {
                (address, _) if address.is_block() => return Ok(Some((page, address))),
                (_, next) => page = next,
            }
        }
        Ok(None)
    }

    /// Where a page is, and the next page that can have a block.
    async fn find_page(&self, inode: &Inode, page: u64) -> Result<(BlockAddress, u64), R::Error> {
        let hole = |next| Ok((BlockAddress::NULL, next));
        let Some(path) = NodePath::new(page, inode.addresses()) else { return hole(u64::MAX) };
        let number = inode.number();
        let mut last: Option<Block> = None;
        for (depth, step) in path.steps().iter().enumerate() {
            let node = match &last {
                None => inode.nodes.get(step.word as usize).map_or(0, |node| node.get()),
                Some(block) => read_word(&block[..], step.word),
            };
            if node == 0 {
                return hole(path.end_below(page, depth));
            }
            let block = self.node(NodeId(node), number).await?;
            if NodeFooter::of_block(&block[..]).is_none_or(|footer| footer.place() != step.place) {
                let what = "a node that lies elsewhere in its file";
                return Err(FormatError::corrupt(Structure::Node, Place::Inode(number.0), what).into());
            }
            last = Some(block);
        }
        let word = |word| match &last {
            None => inode.address(word),
            Some(block) => BlockAddress(read_word(&block[..], word)),
        };
        let words = if path.steps().is_empty() { inode.addresses() } else { ADDRESSES_PER_NODE };
        let skipped = (path.word + 1..words).take_while(|nth| !word(*nth).is_block()).count() as u64;
        let address = word(path.word);
        match address.is_block() && self.layout.segment_of(address).is_none() {
            true => Err(FormatError::corrupt(
                Structure::Node,
                Place::Inode(number.0),
                "a page outside the main area",
            )
            .into()),
            false => Ok((address, page + 1 + skipped)),
        }
    }

    /// A page of a file, zeros where it has no block. What lies behind the end of the file is zeros.
    ///
    /// # Errors
    /// As [`page_address`](Self::page_address).
    pub async fn page(&self, inode: &Inode, page: u64) -> Result<Block, R::Error> {
        if inode.has_inline(inline_flags::DATA) {
            let mut content: Block = Box::new([0; BLOCK_BYTES]);
            let area = inode.inline_area();
            let bytes = if page == 0 { bytes_of_page(inode, 0).min(area.len()) } else { 0 };
            content[..bytes].copy_from_slice(&area[..bytes]);
            return Ok(content);
        }
        let address = self.page_address(inode, page).await?;
        self.page_at(inode, page, address).await
    }

    /// The same, where its place is known.
    async fn page_at(&self, inode: &Inode, page: u64, address: BlockAddress) -> Result<Block, R::Error> {
        let bytes = bytes_of_page(inode, page);
        if bytes == 0 || !address.is_block() {
            return Ok(Box::new([0; BLOCK_BYTES]));
        }
        let mut content = self.block(address).await?;
        content[bytes..].fill(0);
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
        let mut next = self.next_page(directory, first).await?;
        while let Some((block, address)) = next {
            let names = self.page_at(directory, block, address).await?;
            let mut enough = false;
            for found in NameArea::BLOCK.names(&names[..], from(block), place) {
                enough = take(block, found?);
            }
            if enough {
                break;
            }
            next = self.next_page(directory, block + 1).await?;
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

/// Bytes of a page that lie before the end of its file.
fn bytes_of_page(inode: &Inode, page: u64) -> usize {
    let start = page.saturating_mul(BLOCK_BYTES as u64);
    usize::try_from(inode.size.get().saturating_sub(start))
        .map_or(BLOCK_BYTES, |bytes| bytes.min(BLOCK_BYTES))
}

/// The cookie of a name: its block is the group, and the rest is the slot behind its own.
fn cookie_behind(block: u64, found: &Dentry<'_>) -> Cookie {
    Cookie(block << 32 | (found.slot + slots_of(found.name.len())) as u64)
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

/// Reads a block of an area, or of the main area: the superblock's check has them all on the device.
pub(crate) async fn read_block<R: ImageReader>(
    image: &R,
    address: BlockAddress,
) -> Result<[u8; BLOCK_BYTES], R::Error> {
    let mut bytes = [0; BLOCK_BYTES];
    image.read(u64::from(address.0), &mut bytes).await?;
    Ok(bytes)
}
