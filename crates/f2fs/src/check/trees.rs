//! Each file from the root on: its nodes, its blocks, its names; and what no file leads to.
//!
//! A block is *claimed* by the file that it belongs to; a second claim is a finding. What is damaged is not looked into any further.

use std::collections::BTreeMap;

use weir_format::{BLOCK_BYTES, FileType, FormatError, Place, Structure};

use super::ImageReader;
use super::finding::{Findings, Problem};
use super::tables::Tables;
use crate::attribute::read_attributes;
use crate::bitmap::{get_low_bit, set_low_bit};
use crate::block::{BlockAddress, NodeId, SEGMENT_BLOCKS, SegmentNumber};
use crate::dentry::NameArea;
use crate::image::read_block;
use crate::inode::{Inode, inline_flags};
use crate::node::{ADDRESSES_PER_NODE, ATTRIBUTE_NODE_PLACE, NodeFooter, read_word};
use crate::path::{NodePath, pages_max};
use crate::segment_table::SegmentEntry;
use crate::summary::SummaryBlock;

/// Summaries in memory. Pages of one file lie in few segments.
const SUMMARIES_MAX: usize = 256;

/// What is known of an inode that some name or list leads to.
#[derive(Clone, Copy, Default)]
struct Known {
    /// Names that were found, "." and ".." included.
    names: u32,
    links: u32,
    /// It was looked into.
    visited: bool,
}

/// What was claimed by now.
struct Walk<'a, R> {
    image: &'a R,
    tables: &'a Tables,
    /// A bit for each block of the main area.
    claimed: Vec<u8>,
    /// Nodes that a file leads to, by their place in the list of nodes in use.
    reached: Vec<bool>,
    inodes: BTreeMap<NodeId, Known>,
    pending: Vec<NodeId>,
    /// Blocks that files have: those of data and nodes, and those without a place yet.
    blocks: u64,
    summaries: BTreeMap<SegmentNumber, Option<Box<SummaryBlock>>>,
}

/// Walks over all files. The tables agree with each other.
pub(super) async fn check<R: ImageReader>(
    image: &R,
    tables: &Tables,
    findings: &mut Findings,
) -> Result<(), R::Error> {
    let blocks = tables.segments.len() * SEGMENT_BLOCKS as usize;
    let mut walk = Walk {
        image,
        tables,
        claimed: vec![0; blocks.div_ceil(8)],
        reached: vec![false; tables.nodes.len()],
        inodes: BTreeMap::new(),
        pending: vec![NodeId::ROOT],
        blocks: 0,
        summaries: BTreeMap::new(),
    };
    walk.pending.extend(&tables.pack.orphans);
    while let Some(inode) = walk.pending.pop() {
        match walk.visit(inode, findings).await {
            Ok(()) => {}
            Err(Stop::Damage(error)) => findings.format(error),
            Err(Stop::Reader(error)) => return Err(error),
        }
    }
    walk.judge(findings);
    Ok(())
}

/// Why a file is not looked into any further.
enum Stop<E> {
    Damage(FormatError),
    Reader(E),
}

impl<E> From<FormatError> for Stop<E> {
    fn from(error: FormatError) -> Self {
        Stop::Damage(error)
    }
}

impl<R: ImageReader> Walk<'_, R> {
    async fn read(&self, address: BlockAddress) -> Result<[u8; BLOCK_BYTES], Stop<R::Error>> {
        read_block(self.image, address).await.map_err(Stop::Reader)
    }

    /// A node of an inode, which is reached for the first time.
    async fn node(&mut self, node: NodeId, inode: NodeId) -> Result<[u8; BLOCK_BYTES], Stop<R::Error>> {
        let corrupt = |what| FormatError::corrupt(Structure::Node, Place::Inode(inode.0), what);
        let found = self.tables.nodes.binary_search_by_key(&node, |(node, _)| *node);
        let index = found.map_err(|_| corrupt("it leads to a node that is not in use"))?;
        if std::mem::replace(&mut self.reached[index], true) {
            return Err(corrupt("it leads to a node that a file has already").into());
        }
        let address = self.tables.nodes[index].1.address();
        let block = self.read(address).await?;
        NodeFooter::check(&block, node, inode, address)?;
        self.blocks += 1;
        Ok(block)
    }

    /// Looks into an inode once.
    async fn visit(&mut self, number: NodeId, findings: &mut Findings) -> Result<(), Stop<R::Error>> {
        if std::mem::replace(&mut self.inodes.entry(number).or_default().visited, true) {
            return Ok(());
        }
        let before = self.blocks;
        let block = self.node(number, number).await?;
        let address = self.tables.node(number).map_or(BlockAddress::NULL, |entry| entry.address());
        let inode = Inode::read(&block, number, address, self.tables.inode_seed)?;
        self.inodes.entry(number).or_default().links = inode.links.get();
        self.check_attributes(&inode).await?;
        let pages = self.claim_content(&inode, findings).await?;
        if inode.file_type() == Some(FileType::Directory) {
            self.read_names(&inode, &pages, findings).await?;
        }
        findings.count("its blocks", inode.blocks.get(), self.blocks - before, Place::Inode(number.0));
        Ok(())
    }

    async fn check_attributes(&mut self, inode: &Inode) -> Result<(), Stop<R::Error>> {
        let node = match inode.attribute_node.get() {
            0 => None,
            node => {
                let block = self.node(NodeId(node), inode.number()).await?;
                let is_placed =
                    NodeFooter::of_block(&block).is_some_and(|footer| footer.place() == ATTRIBUTE_NODE_PLACE);
                if !is_placed {
                    let place = Place::Node(node);
                    return Err(FormatError::corrupt(Structure::Node, place, "its place in its file").into());
                }
                Some(block)
            }
        };
        read_attributes(inode.number(), inode.attribute_area(), node.as_ref().map(|block| &block[..]))?;
        Ok(())
    }

    /// Claims all nodes and blocks of a file: its pages that have a place, of a directory.
    async fn claim_content(
        &mut self,
        inode: &Inode,
        findings: &mut Findings,
    ) -> Result<Vec<BlockAddress>, Stop<R::Error>> {
        let mut pages = Vec::new();
        // The first words of a device are its numbers.
        let kinds = [FileType::Regular, FileType::Directory, FileType::Symlink];
        let has_pages = inode.file_type().is_some_and(|kind| kinds.contains(&kind));
        if !has_pages || inode.has_inline(inline_flags::DATA | inline_flags::NAMES) {
            return Ok(pages);
        }
        let keeps = inode.file_type() == Some(FileType::Directory);
        let number = inode.number();
        let (extent, mut pages_in_extent) = (inode.extent(), 0);
        let count_in_extent = |first: u64, words: &[BlockAddress]| {
            (first..).zip(words).filter(|(page, address)| extent.has(*page, **address)).count() as u32
        };
        let words: Vec<_> = (0..inode.addresses()).map(|word| inode.address(word)).collect();
        pages_in_extent += count_in_extent(0, &words);
        let claimed = self.claim_words(number, number, &words, findings).await?;
        pages.extend(claimed.into_iter().filter(|_| keeps));
        // Nodes that lead to direct nodes, and those to come: at most one for each that is reached.
        let mut page = u64::from(inode.addresses());
        let mut held: Vec<(u32, NodeId, [u8; BLOCK_BYTES])> = Vec::new();
        while let Some(path) = NodePath::new(page, inode.addresses()) {
            let mut hole = None;
            for (depth, step) in path.steps().iter().enumerate() {
                if held.get(depth).is_some_and(|(place, ..)| *place == step.place) {
                    continue;
                }
                held.truncate(depth);
                let node = match held.last() {
                    None => inode.nodes.get(step.word as usize).map_or(0, |node| node.get()),
                    Some((.., block)) => read_word(block, step.word),
                };
                if node == 0 {
                    hole = Some(path.end_below(page, depth));
                    break;
                }
                let block = self.node(NodeId(node), number).await?;
                if NodeFooter::of_block(&block).is_none_or(|footer| footer.place() != step.place) {
                    let place = Place::Node(node);
                    return Err(FormatError::corrupt(Structure::Node, place, "its place in its file").into());
                }
                held.push((step.place, NodeId(node), block));
            }
            match (hole, held.last()) {
                (None, Some((_, node, direct))) => {
                    let words = (0..ADDRESSES_PER_NODE).map(|word| BlockAddress(read_word(direct, word)));
                    let words: Vec<_> = words.collect();
                    pages_in_extent += count_in_extent(page, &words);
                    let claimed = self.claim_words(number, *node, &words, findings).await?;
                    pages.extend(claimed.into_iter().filter(|_| keeps));
                    page += u64::from(ADDRESSES_PER_NODE);
                }
                (hole, _) => page = hole.unwrap_or(page + 1),
            }
        }
        if pages_in_extent != extent.pages {
            findings.push(Place::Inode(inode.number().0), Problem::Extent(extent));
        }
        debug_assert!(page >= pages_max(inode.addresses()), "the whole file was walked over");
        Ok(pages)
    }

    /// Claims the blocks that the words of a node lead to, and compares their summaries with that: those that have a place and were
    /// not claimed.
    async fn claim_words(
        &mut self,
        inode: NodeId,
        node: NodeId,
        words: &[BlockAddress],
        findings: &mut Findings,
    ) -> Result<Vec<BlockAddress>, Stop<R::Error>> {
        let mut claimed = Vec::new();
        for (word, address) in (0..).zip(words.iter().copied()) {
            if !self.claim(inode, address, findings) {
                continue;
            }
            claimed.push(address);
            let Some((segment, offset)) = self.tables.layout.segment_of(address) else { continue };
            if !self.summaries.contains_key(&segment) {
                if self.summaries.len() >= SUMMARIES_MAX {
                    self.summaries.clear();
                }
                let summary = self.tables.summary(self.image, segment, findings).await;
                self.summaries.insert(segment, summary.map_err(Stop::Reader)?);
            }
            let summary = self.summaries.get(&segment).and_then(|summary| summary.as_ref());
            let Some(owner) = summary.and_then(|summary| summary.entries.get(offset as usize)) else {
                continue;
            };
            if (owner.node.get(), owner.offset.get()) != (node.0, word) {
                let problem =
                    Problem::PageOwner { address, owner: NodeId(owner.node.get()), word: owner.offset.get() };
                findings.push(Place::Node(node.0), problem);
            }
        }
        Ok(claimed)
    }

    /// Claims a block of data: whether it has a place and was not claimed.
    fn claim(&mut self, inode: NodeId, address: BlockAddress, findings: &mut Findings) -> bool {
        if address == BlockAddress::NULL {
            return false;
        }
        self.blocks += 1;
        if address == BlockAddress::NEW {
            return false;
        }
        let mut note = |problem| {
            findings.push(Place::Inode(inode.0), problem);
            false
        };
        let Some((segment, offset)) = self.tables.layout.segment_of(address) else {
            return note(Problem::BlockOutside(address));
        };
        let bit = (segment.0 * SEGMENT_BLOCKS + offset) as usize;
        if get_low_bit(&self.claimed, bit) {
            return note(Problem::BlockTwice(address));
        }
        set_low_bit(&mut self.claimed, bit, true);
        let entry = self.tables.segments.get(segment.0 as usize);
        if !entry.is_some_and(|entry| entry.is_valid(offset)) {
            return note(Problem::BlockFree(address));
        }
        if entry.and_then(|entry| entry.log()).is_none_or(|log| log.is_node()) {
            return note(Problem::BlockOfNodes(address));
        }
        true
    }

    /// Reads the names of a directory, and notes what they stand for.
    async fn read_names(
        &mut self,
        directory: &Inode,
        pages: &[BlockAddress],
        findings: &mut Findings,
    ) -> Result<(), Stop<R::Error>> {
        let place = Place::Inode(directory.number().0);
        if directory.has_inline(inline_flags::NAMES) {
            let area = directory.inline_area();
            return self.note_names(NameArea::of_inline(area.len()), area, place, findings);
        }
        for address in pages {
            let names = self.read(*address).await?;
            self.note_names(NameArea::BLOCK, &names, place, findings)?;
        }
        Ok(())
    }

    fn note_names(
        &mut self,
        form: NameArea,
        area: &[u8],
        place: Place,
        findings: &mut Findings,
    ) -> Result<(), Stop<R::Error>> {
        for found in form.names(area, place) {
            let found = found?;
            if self.tables.node(found.inode).is_none_or(|entry| entry.inode.get() != found.inode.0) {
                findings.push(place, Problem::NameOfNothing(found.inode));
                continue;
            }
            self.inodes.entry(found.inode).or_default().names += 1;
            self.pending.push(found.inode);
        }
        Ok(())
    }

    /// Blocks of data in use that no file leads to. Blocks of nodes are in use by the node address table.
    fn find_lost_blocks(&self, findings: &mut Findings) {
        let of_data = |entry: &SegmentEntry| entry.log().is_some_and(|log| !log.is_node());
        let segments = (0..).zip(&self.tables.segments);
        for (number, entry) in segments.filter(|(_, entry)| entry.valid_blocks() > 0 && of_data(entry)) {
            let is_claimed = |offset| get_low_bit(&self.claimed, (number * SEGMENT_BLOCKS + offset) as usize);
            let mut lost =
                (0..SEGMENT_BLOCKS).filter(|offset| entry.is_valid(*offset) && !is_claimed(*offset));
            let first =
                lost.next().and_then(|offset| self.tables.layout.block_of(SegmentNumber(number), offset));
            if let Some(first) = first {
                let blocks = 1 + lost.count() as u32;
                findings.push(Place::Segment(number), Problem::BlocksOfNoFile { blocks, first });
            }
        }
    }

    /// Links against names, nodes and blocks in use against those that were reached, and the checkpoint's count of blocks.
    fn judge(&self, findings: &mut Findings) {
        for (inode, known) in &self.inodes {
            let counted = u64::from(known.names);
            // An inode that is damaged was noted already.
            if known.visited && (known.links > 0 || counted > 0) {
                findings.count("its links", known.links.into(), counted, Place::Inode(inode.0));
            }
        }
        let unreached = self.tables.nodes.iter().zip(&self.reached).filter(|(_, reached)| !**reached);
        for ((node, _), _) in unreached {
            findings.push(Place::Node(node.0), Problem::NodeOfNoFile);
        }
        // What is damaged has blocks that the walk did not come to.
        if findings.is_empty() {
            self.find_lost_blocks(findings);
        }
        let stored = self.tables.pack.header.valid_blocks.get();
        findings.count("valid blocks", stored, self.blocks, self.tables.place);
    }
}
