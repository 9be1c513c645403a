//! The superblock, the checkpoint, and both tables in memory.

use std::collections::BTreeSet;

use weir_format::{FormatError, Place};

use super::ImageReader;
use super::finding::{Findings, Problem};
use crate::block::{BLOCK_BYTES, BlockAddress, NODE_ENTRIES_PER_BLOCK, NodeId, SegmentNumber};
use crate::chain::read_chain;
use crate::checkpoint::{CheckpointPack, checkpoint_flags};
use crate::image::{NewestCheckpoint, read_block, read_checkpoint, read_superblock};
use crate::layout::Layout;
use crate::log::Log;
use crate::node::NodeMark;
use crate::node_table::{NodeEntry, NodeTableBlock};
use crate::segment_table::{SegmentEntry, SegmentTableBlock};
use crate::summary::SummaryBlock;
use crate::superblock::{ChosenSuperblock, Superblock};

/// What is known of an image once its tables are read.
pub(super) struct Tables {
    pub layout: Layout,
    pub pack: CheckpointPack,
    /// Where the pack is.
    pub place: Place,
    /// The nodes in use, by their numbers; not those that stand for areas.
    pub nodes: Vec<(NodeId, NodeEntry)>,
    /// Of each segment of the main area.
    pub segments: Vec<SegmentEntry>,
    /// What checksums of inodes start from, if they have some.
    pub inode_seed: Option<u32>,
}

impl Tables {
    /// `None`: too damaged to go on.
    pub async fn read<R: ImageReader>(image: &R, findings: &mut Findings) -> Result<Option<Self>, R::Error> {
        let Some((superblock, layout)) = read_layout(image, findings).await? else { return Ok(None) };
        let inode_seed = superblock.inode_seed();
        let NewestCheckpoint { checkpoint: pack, pack: index, damaged_pack } =
            match read_checkpoint(image, &layout).await? {
                Ok(newest) => newest,
                Err(error) => return note(error, findings),
            };
        findings.damaged_pack = damaged_pack;
        let place = Place::Block(u64::from(layout.pack_start(index).0));
        if pack.header.has(checkpoint_flags::ERROR) {
            findings.push(place, Problem::ErrorsNoted);
        }
        let (nodes, segments) = (Vec::new(), Vec::new());
        let mut tables = Self { layout, pack, place, nodes, segments, inode_seed };
        let whole = tables.read_nodes(image, findings).await? & tables.read_segments(image, findings).await?;
        Ok(whole.then_some(tables))
    }

    async fn read_nodes<R: ImageReader>(
        &mut self,
        image: &R,
        findings: &mut Findings,
    ) -> Result<bool, R::Error> {
        let journal = self.pack.node_journal(&self.layout)?;
        let mut newer = journal.entries().to_vec();
        newer.sort_by_key(|entry| entry.node.get());
        let mut whole = true;
        for index in 0..self.layout.node_table_blocks() {
            let second = self.pack.node_copies.is_second(index);
            let Some(place) = self.layout.node_table_block(index, second) else { break };
            let bytes = read_block(image, place).await?;
            let first = index * NODE_ENTRIES_PER_BLOCK as u32;
            let in_block = |node: u32| (first..first + NODE_ENTRIES_PER_BLOCK as u32).contains(&node);
            let mut changes = newer.iter().filter(|entry| in_block(entry.node.get())).peekable();
            // Most of a large table was never used.
            if changes.peek().is_none() && *bytes == [0; BLOCK_BYTES] {
                continue;
            }
            let mut block = match NodeTableBlock::read(&bytes[..], index, &self.layout) {
                Ok(block) => block,
                Err(error) => {
                    findings.format(error);
                    whole = false;
                    continue;
                }
            };
            for change in changes {
                block.entries[(change.node.get() - first) as usize] = change.entry;
            }
            let used = |(node, entry): &(u32, NodeEntry)| {
                *node >= NodeId::ROOT.0 && entry.address() != BlockAddress::NULL
            };
            let nodes = (first..).zip(block.entries).filter(used);
            self.nodes.extend(nodes.map(|(node, entry)| (NodeId(node), entry)));
        }
        Ok(whole)
    }

    async fn read_segments<R: ImageReader>(
        &mut self,
        image: &R,
        findings: &mut Findings,
    ) -> Result<bool, R::Error> {
        let mut whole = true;
        for index in 0..self.layout.segment_table_blocks() {
            let second = self.pack.segment_copies.is_second(index);
            let Some(place) = self.layout.segment_table_block(index, second) else { break };
            let bytes = read_block(image, place).await?;
            match SegmentTableBlock::read(&bytes[..], index, &self.layout) {
                Ok(block) => self.segments.extend(block.entries),
                Err(error) => {
                    findings.format(error);
                    whole = false;
                }
            }
        }
        if whole {
            self.segments.truncate(self.layout.main_segments() as usize);
            for change in self.pack.segment_journal(&self.layout)?.entries() {
                self.segments[change.segment.get() as usize] = change.entry;
            }
        }
        Ok(whole)
    }

    /// Files that a mount rolls forward: those of which the chain behind the checkpoint has a node with the mark of `fsync`.
    pub async fn count_to_roll_forward<R: ImageReader>(&self, image: &R) -> Result<u32, R::Error> {
        let log = self.pack.header.log(Log::WarmNode);
        let first = log.and_then(|log| self.layout.block_of(log.segment, log.next));
        let is_free = |address| {
            let place = self.layout.segment_of(address);
            let entry =
                place.and_then(|(segment, offset)| Some((self.segments.get(segment.0 as usize)?, offset)));
            entry.is_some_and(|(entry, offset)| !entry.is_valid(offset))
        };
        let is_behind = |version| self.pack.is_followed_by(version);
        let chain = read_chain(image, first.unwrap_or(BlockAddress::NULL), is_free, is_behind).await?;
        let marked = chain.iter().filter(|node| node.footer.has(NodeMark::Fsync));
        Ok(marked.map(|node| node.footer.inode()).collect::<BTreeSet<_>>().len() as u32)
    }

    /// The entry of a node in use.
    pub fn node(&self, node: NodeId) -> Option<&NodeEntry> {
        let index = self.nodes.binary_search_by_key(&node, |(node, _)| *node).ok()?;
        self.nodes.get(index).map(|(_, entry)| entry)
    }

    /// The log that has `segment` open, and where it goes on.
    pub fn open_log(&self, segment: SegmentNumber) -> Option<Log> {
        let is_open = |log: &Log| self.pack.header.log(*log).is_some_and(|state| state.segment == segment);
        Log::ALL.into_iter().find(is_open)
    }

    /// The summary of a segment: in the checkpoint while it is open. `None` where the checkpoint leaves it to be made from
    /// the nodes themselves, or where it is damaged, which is noted.
    pub async fn summary<R: ImageReader>(
        &self,
        image: &R,
        segment: SegmentNumber,
        findings: &mut Findings,
    ) -> Result<Option<Box<SummaryBlock>>, R::Error> {
        if let Some(log) = self.open_log(segment) {
            let summaries = if log.is_node() {
                self.pack.node_summaries.as_ref()
            } else {
                Some(&self.pack.data_summaries)
            };
            return Ok(summaries.and_then(|summaries| summaries.get(log as usize % 3)).cloned());
        }
        let Some(place) = self.layout.summary_block(segment) else { return Ok(None) };
        let bytes = read_block(image, place).await?;
        let summary = SummaryBlock::read(&bytes[..], Place::Segment(segment.0));
        Ok(summary.map_err(|error| findings.format(error)).ok())
    }
}

async fn read_layout<R: ImageReader>(
    image: &R,
    findings: &mut Findings,
) -> Result<Option<(Superblock, Layout)>, R::Error> {
    let ChosenSuperblock { superblock, damaged_copy } = match read_superblock(image).await? {
        Ok(chosen) => chosen,
        Err(error) => return note(error, findings),
    };
    if let Some(block) = damaged_copy {
        findings.push(Place::Block(block.0.into()), Problem::SuperblockCopy);
    }
    match Layout::new(&superblock) {
        Ok(layout) => Ok(Some((superblock, layout))),
        Err(error) => note(error, findings),
    }
}

/// Damage is a finding, after which there is nothing to go on with; all else is an error.
fn note<T, E: From<FormatError>>(error: FormatError, findings: &mut Findings) -> Result<Option<T>, E> {
    if matches!(error, FormatError::Corrupt { .. } | FormatError::Checksum { .. }) {
        findings.format(error);
        return Ok(None);
    }
    Err(error.into())
}
