//! How files, names and attributes are read, wherever nodes and pages come from: from an image, or from the memory of a mount
//! that has newer ones.

use weir_format::{
    Attributes, BLOCK_BYTES, Cookie, DirectoryEntry, FileType, FormatError, Place, Structure, Target,
};

use crate::attribute::read_attributes;
use crate::block::{BlockAddress, NodeId};
use crate::buckets;
use crate::dentry::{Dentry, NameArea, slots_of};
use crate::image::{Block, SharedBlock};
use crate::inode::{Inode, inline_flags};
use crate::layout::Layout;
use crate::name_hash::hash_name;
use crate::node::{ADDRESSES_PER_NODE, NodeFooter, read_word};
use crate::path::{NodePath, pages_max};

/// The longest target of a symbolic link.
const TARGET_MAX: u64 = BLOCK_BYTES as u64 - 1;

/// A name in a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FoundName {
    /// The page of the directory that has it; `None` for one that lies in the inode.
    pub page: Option<u64>,
    /// The first of its slots there.
    pub slot: usize,
    /// What it stands for.
    pub inode: NodeId,
    /// The type of that.
    pub kind: Option<FileType>,
}

impl FoundName {
    fn new(page: Option<u64>, found: &Dentry<'_>) -> Self {
        Self { page, slot: found.slot, inode: found.inode, kind: found.kind }
    }
}

/// Reads nodes and pages, and by them files.
#[allow(async_fn_in_trait, reason = "all of Weir runs on one thread")]
pub trait FileReader {
    /// What reading fails by.
    type Error: From<FormatError>;

    /// Where everything is.
    fn layout(&self) -> &Layout;

    /// Whether the page of a file that has this address may hold something. On an image, one that has no place yet is zeros.
    fn has_content(&self, _inode: &Inode, address: BlockAddress) -> bool {
        address.is_block()
    }

    /// The block of a node that belongs to an inode.
    ///
    /// # Errors
    /// [`FormatError::Corrupt`] for a node that is free, or another one than its footer says.
    async fn node(&self, node: NodeId, inode: NodeId) -> Result<SharedBlock, Self::Error>;

    /// A page of a file whose place is known; what lies behind the end of the file is zeros.
    ///
    /// # Errors
    /// Those of reading.
    async fn page_at(&self, inode: &Inode, page: u64, address: BlockAddress) -> Result<Block, Self::Error>;

    /// Where a page of a file is: [`BlockAddress::NULL`] for a hole, [`BlockAddress::NEW`] for one that is allocated and was
    /// never written. Both read as zeros.
    ///
    /// # Errors
    /// [`FormatError::Corrupt`] for an address outside the main area, and those of [`node`](Self::node).
    async fn page_address(&self, inode: &Inode, page: u64) -> Result<BlockAddress, Self::Error> {
        Ok(self.find_page(inode, page).await?.0)
    }

    /// The first page from `page` on that has a block, and its block; `None` if there is none before the end of the file. It takes no more
    /// steps than the file has nodes and blocks, whatever its size is.
    ///
    /// # Errors
    /// As [`page_address`](Self::page_address).
    async fn next_page(&self, inode: &Inode, page: u64) -> Result<Option<(u64, BlockAddress)>, Self::Error> {
        let pages = inode.size.get().div_ceil(BLOCK_BYTES as u64).min(pages_max(inode.addresses()));
        let mut page = page;
        while page < pages {
            match self.find_page(inode, page).await? {
                (address, _) if self.has_content(inode, address) => return Ok(Some((page, address))),
                (_, next) => page = next,
            }
        }
        Ok(None)
    }

    /// Where a page is, and, for one without content, the next page that can have some.
    async fn find_page(&self, inode: &Inode, page: u64) -> Result<(BlockAddress, u64), Self::Error> {
        let hole = |next| Ok((BlockAddress::NULL, next));
        let Some(path) = NodePath::new(page, inode.addresses()) else { return hole(u64::MAX) };
        let number = inode.number();
        let mut last: Option<SharedBlock> = None;
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
        let address = word(path.word);
        // Only behind a page without a block does anybody look for the next one.
        let words = match self.has_content(inode, address) {
            true => 0,
            false if path.steps().is_empty() => inode.addresses(),
            false => ADDRESSES_PER_NODE,
        };
        let skipped =
            (path.word + 1..words).take_while(|nth| !self.has_content(inode, word(*nth))).count() as u64;
        match address.is_block() && self.layout().segment_of(address).is_none() {
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
    async fn page(&self, inode: &Inode, page: u64) -> Result<Block, Self::Error> {
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

    /// A name in a directory: where it is, and what it stands for.
    ///
    /// # Errors
    /// [`FormatError::Corrupt`] for damage.
    async fn find_name(&self, directory: &Inode, name: &[u8]) -> Result<Option<FoundName>, Self::Error> {
        let place = Place::Inode(directory.number().0);
        if directory.has_inline(inline_flags::NAMES) {
            let area = directory.inline_area();
            let found = NameArea::of_inline(area.len()).find(area, name, place)?;
            return Ok(found.map(|found| FoundName::new(None, &found)));
        }
        let (hash, end) = (hash_name(name), directory.size.get().div_ceil(BLOCK_BYTES as u64));
        for level in 0..directory.depth.get().min(buckets::LEVELS_MAX) {
            for block in
                buckets::blocks_of(level, directory.directory_level, hash).take_while(|block| *block < end)
            {
                let names = self.page(directory, block).await?;
                if let Some(found) = NameArea::BLOCK.find(&names[..], name, place)? {
                    return Ok(Some(FoundName::new(Some(block), &found)));
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
    async fn read_names(
        &self,
        directory: &Inode,
        after: Cookie,
        limit: usize,
    ) -> Result<Vec<DirectoryEntry>, Self::Error> {
        let place = Place::Inode(directory.number().0);
        let mut entries = Vec::new();
        let mut take = |block: u64, found: Dentry<'_>| {
            let what = "one of the first two names of a directory, where it cannot be";
            let cookie = cookie_behind(block, &found)
                .ok_or_else(|| FormatError::corrupt(Structure::Directory, place, what))?;
            let target = Target { inode: found.inode.0, kind: found.kind };
            entries.push(DirectoryEntry { cookie, name: found.name.to_vec(), target });
            Ok::<_, FormatError>(entries.len() >= limit)
        };
        let (first, slot) = place_behind(after);
        // A name that came meanwhile may lie over the slot: names are read from the start of their block.
        let is_behind = |block: u64, found: &Result<Dentry<'_>, FormatError>| {
            block > first || found.as_ref().map_or(true, |found| found.slot >= slot)
        };
        if directory.has_inline(inline_flags::NAMES) {
            let area = directory.inline_area();
            let form = NameArea::of_inline(area.len());
            for found in form.names(area, place).filter(|found| is_behind(0, found)) {
                take(0, found?)?;
            }
            return Ok(entries);
        }
        let mut next = self.next_page(directory, first).await?;
        while let Some((block, address)) = next {
            let names = self.page_at(directory, block, address).await?;
            let mut enough = false;
            let names = NameArea::BLOCK.names(&names[..], place);
            for found in names.filter(|found| is_behind(block, found)) {
                enough = take(block, found?)?;
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
    async fn attributes(&self, inode: &Inode) -> Result<Attributes, Self::Error> {
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
    async fn link_target(&self, inode: &Inode) -> Result<Vec<u8>, Self::Error> {
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
pub fn bytes_of_page(inode: &Inode, page: u64) -> usize {
    let start = page.saturating_mul(BLOCK_BYTES as u64);
    usize::try_from(inode.size.get().saturating_sub(start))
        .map_or(BLOCK_BYTES, |bytes| bytes.min(BLOCK_BYTES))
}

/// The cookie of a name: the group is its block, counted from 1, and the rest is the slot behind its own; "." and ".." have those that they
/// have in every directory. `None` where one of these two lies elsewhere: its cookie would lead back.
fn cookie_behind(block: u64, found: &Dentry<'_>) -> Option<Cookie> {
    match (found.name, block, found.slot) {
        (b".", 0, 0) => Some(Cookie::DOT),
        (b"..", 0, 1) => Some(Cookie::DOT_DOT),
        (b"." | b"..", ..) => None,
        (name, ..) => Some(Cookie((block + 1) << 32 | (found.slot + slots_of(name.len())) as u64)),
    }
}

/// The block that has the name behind a cookie, and the slot from which on to look for it: the two first names are in slots 0 and 1.
fn place_behind(cookie: Cookie) -> (u64, usize) {
    (u64::from(cookie.group().saturating_sub(1)), (cookie.0 & u64::from(u32::MAX)) as usize)
}
