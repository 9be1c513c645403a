//! Roll-forward: what `fsync` has written behind the newest checkpoint.
//!
//! 1. The chain: nodes of the log of warm nodes, from where the checkpoint left it. Each names the place of the next. It ends at the first
//!    block that does not carry the checkpoint's version (L4), or lies where the checkpoint has a block in use.
//! 2. Of each inode, the nodes up to the last one with the mark of `fsync` are taken: a synchronisation call is there as a whole
//!    or not at all. An inode that the checkpoint does not have is made, if it has the mark by which it gets its name.
//! 3. Their pages become those of the file, where they lie. All of it is in memory; the checkpoint of the mount makes it durable. Until
//!    then nothing is written to the segments that the chain and its pages lie in.
//!
//! So a call is there with all that it has written, and a new file with its name (L6).
//!
//! A page that lies in a block that is in use already is damage: the mount fails, and changes nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use weir_f2fs::{
    ADDRESSES_PER_NODE, ATTRIBUTE_NODE_PLACE, BLOCK_BYTES, BlockAddress, ChainNode, Extent, Inode, Log,
    NODE_BYTES, NodeId, NodeMark, SEGMENT_BLOCKS, SummaryBlock, SummaryKind, first_page, inline_flags,
    read_block, read_chain, read_word,
};
use weir_format::{FileType, FormatError, Place, Stamp, Structure};
use weir_vfs::FsError;

use crate::checkpoint::Durability;
use crate::deletion::warn_of_orphan;
use crate::directory::NameTarget;
use crate::file::File;
use crate::mutants::LfsMutant;
use crate::namespace::lose_subdirectory;
use crate::space::summary_of_data;
use crate::summaries::read_summary;

/// Of an inode, the last nodes of the chain with marks.
#[derive(Default)]
struct LastMarks {
    fsync: Option<usize>,
    name: Option<usize>,
}

impl Durability<'_> {
    /// Rolls forward, in memory: how many nodes were taken.
    ///
    /// # Errors
    /// [`FsError::Format`] for what cannot be true; what reading fails by.
    pub(crate) async fn roll_forward(&self) -> Result<usize, FsError> {
        let chain = self.read_chain().await?;
        if chain.is_empty() {
            return Ok(0);
        }
        let mut marks: BTreeMap<NodeId, LastMarks> = BTreeMap::new();
        for (nth, node) in chain.iter().enumerate().filter(|(_, node)| node.footer.has(NodeMark::Fsync)) {
            let last = marks.entry(node.footer.inode()).or_default();
            last.fsync = Some(nth);
            if node.is_inode() && node.footer.has(NodeMark::Dentry) {
                last.name = Some(nth);
            }
        }
        let is_taken = |(nth, node): &(usize, &ChainNode)| {
            marks.get(&node.footer.inode()).is_some_and(|last| last.fsync >= Some(*nth))
        };
        let taken: Vec<_> = chain.iter().enumerate().filter(is_taken).collect();
        self.withhold_segments(&chain, &taken).await?;
        // An inode that the checkpoint does not have comes first: its other nodes may stand before it.
        for node in marks.values().filter_map(|last| chain.get(last.name?)) {
            if self.files.load(node.footer.inode()).await?.is_none() {
                self.make_recovered_inode(node).await?;
            }
        }
        for (nth, node) in &taken {
            let Some(last) = marks.get(&node.footer.inode()) else { continue };
            let block = self.read_node(node.address).await?;
            self.take_node(node, &block, last.name == Some(*nth)).await?;
        }
        Ok(taken.len())
    }

    /// Whether nothing was written behind the checkpoint that roll-forward would find.
    pub(crate) async fn has_no_chain(&self) -> Result<bool, FsError> {
        Ok(self.read_chain().await?.is_empty())
    }

    async fn read_node(&self, address: BlockAddress) -> Result<[u8; BLOCK_BYTES], FsError> {
        read_block(&*self.image, address).await
    }

    /// Reads the chain: its nodes' places and footers.
    async fn read_chain(&self) -> Result<Vec<ChainNode>, FsError> {
        let first = self.placement.space.borrow().next_of(Log::WarmNode);
        let is_behind = |version| self.checkpoints.is_followed_by(version);
        read_chain(&*self.image, first, |address| self.is_free_block(address), is_behind).await
    }

    /// Whether an address is that of a block of the main area that is not in use.
    fn is_free_block(&self, address: BlockAddress) -> bool {
        let Some((segment, offset)) = self.layout.segment_of(address) else { return false };
        self.placement.space.borrow().entry(segment).is_some_and(|entry| !entry.is_valid(offset))
    }

    /// Lets the logs go on in other segments than those of the chain and of its pages. A log whose segment has none of them stays: few
    /// segments may be free.
    async fn withhold_segments(
        &self,
        chain: &[ChainNode],
        taken: &[(usize, &ChainNode)],
    ) -> Result<(), FsError> {
        let mut segments = BTreeSet::new();
        let mut add =
            |address| segments.extend(self.layout.segment_of(address).map(|(segment, _)| segment.0));
        chain.iter().for_each(|node| add(node.address));
        for (_, node) in taken {
            let block = self.read_node(node.address).await?;
            addresses_in(node, &block).into_iter().for_each(|(_, address)| add(address));
        }
        let mut space = self.placement.space.borrow_mut();
        space.withhold(&segments);
        for log in Log::ALL {
            let open = self.layout.segment_of(space.next_of(log));
            if open.is_some_and(|(segment, _)| segments.contains(&segment.0)) {
                space.start_segment(log)?;
            }
        }
        Ok(())
    }

    /// Takes one node of the chain.
    async fn take_node(&self, node: &ChainNode, block: &[u8], gets_name: bool) -> Result<(), FsError> {
        let number = node.footer.inode();
        // One that was made behind the checkpoint, and has nothing in the chain that gives it its name, is left out.
        let Some(file) = self.files.load(number).await? else { return Ok(()) };
        if file.kind() != Some(FileType::Regular) {
            return Err(damaged(&file, "roll-forward finds nodes of a file that is none").into());
        }
        if node.is_inode() {
            let inode = Inode::read(&block[..BLOCK_BYTES], number, node.address, self.placement.inode_seed)?;
            self.take_inode(&file, &inode).await?;
        }
        if node.footer.place() == ATTRIBUTE_NODE_PLACE {
            return self.take_attributes(&file, block).await;
        }
        // Pages of a direct node are counted from the end of those in the inode.
        let first = if node.is_inode() { 0 } else { u64::from(file.inode.borrow().addresses()) };
        let size = file.size();
        for (page, address) in addresses_in(node, block) {
            let page = first + page;
            self.take_page(&file, page, address).await?;
        }
        if node.is_inode() {
            file.change(|inode| inode.size = size.into());
        }
        if gets_name && !self.options.rules.drops(LfsMutant::InodeWithoutName) {
            self.give_recovered_name(&file).await?;
        }
        Ok(())
    }

    /// Makes an inode that the checkpoint does not have, without pages.
    async fn make_recovered_inode(&self, node: &ChainNode) -> Result<Rc<File>, FsError> {
        let number = node.footer.inode();
        let block = self.read_node(node.address).await?;
        let mut inode = Inode::read(&block[..BLOCK_BYTES], number, node.address, self.placement.inode_seed)?;
        if !inode.has_inline(inline_flags::DATA) {
            (0..inode.addresses()).for_each(|word| inode.set_address(word, BlockAddress::NULL));
        }
        inode.nodes = [0.into(); 5];
        inode.set_extent(Extent::default());
        (inode.attribute_node, inode.blocks, inode.links) = (0.into(), 1.into(), 1.into());
        self.placement.space.borrow_mut().promise(1)?;
        let entry = self.placement.table.recover_number(number, number).await?;
        let file = self.files.insert(number, inode, entry);
        file.change(|_| ());
        Ok(file)
    }

    /// Takes what an inode says of its file, but for where its pages are.
    async fn take_inode(&self, file: &Rc<File>, found: &Inode) -> Result<(), FsError> {
        if found.has_inline(inline_flags::DATA) && !file.has_inline(inline_flags::DATA) {
            self.placement.truncate_pages(file, 0).await?;
        }
        let had_inline = file.has_inline(inline_flags::DATA);
        file.change(|inode| {
            (inode.mode, inode.uid, inode.gid) = (found.mode, found.uid, found.gid);
            (inode.size, inode.flags, inode.advice) = (found.size, found.flags, found.advice);
            for flag in [inline_flags::DATA, inline_flags::DATA_EXISTS] {
                inode.set_inline(flag, found.has_inline(flag));
            }
            for stamp in [Stamp::Accessed, Stamp::Changed, Stamp::Modified] {
                inode.set_time(stamp, found.time(stamp));
            }
            let area = inode.attribute_area_mut();
            if area.len() == found.attribute_area().len() {
                area.copy_from_slice(found.attribute_area());
            }
            let area = inode.inline_area_mut();
            if found.has_inline(inline_flags::DATA) && area.len() == found.inline_area().len() {
                area.copy_from_slice(found.inline_area());
            } else if had_inline {
                area.fill(0);
            }
        });
        Ok(())
    }

    /// Takes the node of a file's attributes.
    async fn take_attributes(&self, file: &Rc<File>, block: &[u8]) -> Result<(), FsError> {
        self.free_attribute_node(file).await?;
        let node = self.make_attribute_node(file).await?;
        self.placement.nodes.set_bytes(&node, &block[..NODE_BYTES]);
        Ok(())
    }

    /// Takes a page of a file, where it lies.
    async fn take_page(&self, file: &Rc<File>, page: u64, address: BlockAddress) -> Result<(), FsError> {
        let placement = &self.placement;
        if address == BlockAddress::NULL {
            if let Some(slot) = placement.find_slot(file, page).await? {
                placement.free_page(file, &slot);
            }
            return Ok(());
        }
        let slot = placement.make_slot(file, page).await?;
        let before = file.address(&slot);
        if before == address {
            return Ok(());
        }
        if address.is_block() && !self.is_free_block(address) {
            return Err(damaged(file, "roll-forward finds a page in a block that is in use").into());
        }
        placement.free_page(file, &slot);
        placement.space.borrow_mut().promise(1)?;
        file.count_blocks(1);
        if !self.options.rules.drops(LfsMutant::AddressNotRolledForward) {
            placement.set_address(file, &slot, address);
        }
        if let Some((segment, offset)) = self.layout.segment_of(address) {
            let (owner, entry) = match &slot.node {
                Some(node) => (node.id, node.entry.get()),
                None => (file.number, file.entry.get()),
            };
            let known = {
                let space = placement.space.borrow();
                let is_empty = space.entry(segment).is_some_and(|entry| entry.valid_blocks() == 0);
                let in_memory = space.summary_in_memory(segment).map(|summary| Box::new(*summary));
                in_memory.or_else(|| is_empty.then(|| SummaryBlock::new(SummaryKind::Data)))
            };
            let mut summary = match known {
                Some(summary) => summary,
                None => read_summary(&self.image, &self.layout, segment).await?,
            };
            summary.entries[offset as usize % SEGMENT_BLOCKS as usize] =
                summary_of_data(owner, entry.version, slot.word);
            let mut space = placement.space.borrow_mut();
            space.mark_recovered(segment, offset, Log::WarmData);
            space.set_summary(segment, summary);
        }
        // A file ends behind its last page that was written, unless its inode says otherwise.
        let end = (page + 1).saturating_mul(BLOCK_BYTES as u64);
        if address.is_block() && file.size() <= page.saturating_mul(BLOCK_BYTES as u64) {
            file.change(|inode| inode.size = end.into());
        }
        Ok(())
    }

    /// Gives a file the name that its inode has, in the directory that it was made in.
    async fn give_recovered_name(&self, file: &Rc<File>) -> Result<(), FsError> {
        let (parent, name) = {
            let inode = file.inode.borrow();
            (NodeId(inode.parent.get()), inode.name().to_vec())
        };
        weir_vfs::check_ordinary_name(&name)?;
        let directory = self.directory(parent.0).await?;
        match self.find(&directory, &name).await? {
            Some(found) if found.inode == file.number => return Ok(()),
            Some(found) => {
                // Linux's F2FS calls no checkpoint for such a name.
                self.remove_name(&directory, &name, &found).await?;
                if let Some(old) = self.files.load(found.inode).await? {
                    let left = if old.is_directory() { 0 } else { old.links().saturating_sub(1) };
                    old.change(|inode| inode.links = left.into());
                    if old.is_directory() {
                        lose_subdirectory(&directory);
                    }
                    if let Err(error) = self.delete_if_unused(&old).await {
                        warn_of_orphan(old.number, &error);
                    }
                }
            }
            None => {}
        }
        let target = NameTarget { inode: file.number, kind: FileType::Regular };
        self.insert_name(&directory, &name, target).await
    }
}

/// The pages that a node leads to, with their addresses; holes too. Those of a direct node are counted from the end of the pages in the
/// inode.
fn addresses_in(node: &ChainNode, block: &[u8]) -> Vec<(u64, BlockAddress)> {
    if node.is_inode() {
        let Ok(inode) = Inode::read(&block[..BLOCK_BYTES], node.footer.node(), node.address, None) else {
            return Vec::new();
        };
        let words = if inode.has_inline(inline_flags::DATA) { 0 } else { inode.addresses() };
        return (0..words).map(|word| (word.into(), inode.address(word))).collect();
    }
    let words = (0..ADDRESSES_PER_NODE).map(|word| BlockAddress(read_word(block, word)));
    match first_page(node.footer.place(), 0) {
        Some(first) => (first..).zip(words).collect(),
        None => Vec::new(),
    }
}

fn damaged(file: &File, what: &'static str) -> FormatError {
    FormatError::corrupt(Structure::Inode, Place::Inode(file.number.0), what)
}
