//! The blocks of a new image, and the order in which they are written.

use weir_format::FormatError;
use zerocopy::{FromZeros, IntoBytes};

use super::{Mkfs, root, size};
use crate::block::{BLOCK_BYTES, BlockAddress, NodeId, SEGMENT_BLOCKS, SegmentNumber};
use crate::checkpoint::{Allocation, CheckpointHeader, CheckpointPack, LogState, checkpoint_flags};
use crate::layout::{Layout, TableCopies};
use crate::log::Log;
use crate::node_table::{NodeEntry, NodeTableBlock};
use crate::segment_table::SegmentEntry;
use crate::summary::{
    NodeJournal, NodeJournalEntry, SegmentJournal, SegmentJournalEntry, Summary, SummaryBlock, SummaryKind,
};
use crate::superblock::Superblock;

type Block = [u8; BLOCK_BYTES];

/// Segments of logs that no log uses: the format has room for eight of each kind.
const NO_SEGMENT: u32 = SegmentNumber::NULL.0;

/// A filesystem that is not written yet.
#[derive(Clone, Debug)]
pub struct NewImage {
    superblock: Superblock,
    layout: Layout,
    pack: CheckpointPack,
    /// All blocks but the cleared ones, in the order in which they are written.
    blocks: Vec<(u64, Block)>,
    zeroed: bool,
}

impl NewImage {
    pub(super) fn plan(options: &Mkfs) -> Result<Self, FormatError> {
        let mut superblock = size::plan_superblock(options)?;
        let mut superblock_block = [0; BLOCK_BYTES];
        superblock.write(&mut superblock_block);
        let layout = Layout::new(&superblock)?;
        let reserve = size::plan_reserve(layout.main_segments(), options.overprovision)?;
        let segments = log_segments(layout.main_segments());
        let invalid = FormatError::Invalid { what: "a size with too few segments for the logs" };
        let block_of = |log: Log| layout.block_of(segments[log as usize], 0).ok_or(invalid.clone());
        let (node, data) = (block_of(Log::HotNode)?, block_of(Log::HotData)?);
        let pack = plan_pack(options, &layout, reserve, &segments, node)?;

        let mut blocks = vec![
            (u64::from(data.0), *root::encode_root_names()?),
            (u64::from(node.0), *root::encode_root_inode(options, node, data, superblock.inode_seed())),
        ];
        if let Some(table) = layout.node_table_block(0, false) {
            blocks.push((u64::from(table.0), encode_node_table(node)));
        }
        // The second pack is whole, and older.
        let mut older = pack.clone();
        older.header.version = options.version.wrapping_sub(1).into();
        for (index, pack) in [(1, &older), (0, &pack)] {
            blocks.extend((u64::from(layout.pack_start(index).0)..).zip(pack.encode(&layout)?));
        }
        blocks.extend([(1, superblock_block), (0, superblock_block)]);
        Ok(Self { superblock, layout, pack, blocks, zeroed: options.zeroed })
    }

    /// The superblock.
    pub fn superblock(&self) -> &Superblock {
        &self.superblock
    }

    /// Where the areas are.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// The first checkpoint.
    pub fn checkpoint(&self) -> &CheckpointPack {
        &self.pack
    }

    /// The blocks to write, with their addresses: a block may come twice, and the last one counts. The superblocks come
    /// last.
    pub fn writes(&self) -> impl Iterator<Item = (u64, Block)> + '_ {
        let tables = self.layout.table_blocks();
        let cleared = if self.zeroed { 0..0 } else { tables };
        cleared.map(|block| (u64::from(block), [0; BLOCK_BYTES])).chain(self.blocks.iter().copied())
    }
}

/// The segment that each log opens first. Nodes and names are at the start, cold and warm data a quarter and half on.
fn log_segments(main: u32) -> [SegmentNumber; 6] {
    let cold = (main / 4).saturating_sub(1).max(4);
    let warm = (main / 2).saturating_sub(1).max(cold + 1);
    let mut segments = [SegmentNumber::NULL; 6];
    let order = [Log::HotNode, Log::WarmNode, Log::ColdNode, Log::HotData, Log::ColdData, Log::WarmData];
    for (log, segment) in order.into_iter().zip([0, 1, 2, 3, cold, warm]) {
        segments[log as usize] = SegmentNumber(segment);
    }
    segments
}

fn plan_pack(
    options: &Mkfs,
    layout: &Layout,
    reserve: size::Reserve,
    segments: &[SegmentNumber; 6],
    node: BlockAddress,
) -> Result<CheckpointPack, FormatError> {
    let mut header = CheckpointHeader::new_zeroed();
    let main = layout.main_segments();
    header.version = options.version.into();
    header.user_blocks = (u64::from(main - reserve.overprovision) * u64::from(SEGMENT_BLOCKS)).into();
    header.valid_blocks = 2.into();
    header.reserved_segments = reserve.reserved.into();
    header.overprovision_segments = reserve.overprovision.into();
    header.free_segments = (main - Log::ALL.len() as u32).into();
    header.node_segments = [NO_SEGMENT.into(); 8];
    header.data_segments = [NO_SEGMENT.into(); 8];
    header.flags = (checkpoint_flags::UMOUNT | checkpoint_flags::COMPACT).into();
    header.valid_nodes = 1.into();
    header.valid_inodes = 1.into();
    header.next_free_node = (NodeId::ROOT.0 + 1).into();
    let mut entries = Vec::new();
    for log in Log::ALL {
        let used = u32::from(matches!(log, Log::HotData | Log::HotNode));
        let segment = segments[log as usize];
        header.set_log(log, LogState { segment, next: used, allocation: Allocation::Append })?;
        let mut entry = SegmentEntry::new(log);
        (0..used).for_each(|offset| _ = entry.set_valid(offset, true));
        entries.push(SegmentJournalEntry { segment: segment.0.into(), entry });
    }
    let mut data_summaries = [0; 3].map(|_| SummaryBlock::new(SummaryKind::Data));
    let mut node_summaries = [0; 3].map(|_| SummaryBlock::new(SummaryKind::Node));
    let of_root = Summary { node: NodeId::ROOT.0.into(), ..Summary::default() };
    data_summaries[0].entries[0] = of_root;
    node_summaries[0].entries[0] = of_root;
    let mut pack = CheckpointPack {
        header,
        segment_copies: TableCopies(vec![0; layout.segment_bitmap_bytes() as usize]),
        node_copies: TableCopies(vec![0; layout.node_bitmap_bytes() as usize]),
        orphans: Vec::new(),
        data_summaries,
        node_summaries: Some(node_summaries),
        checksum: 0,
    };
    let root = NodeJournalEntry { node: NodeId::ROOT.0.into(), entry: root_entry(node) };
    pack.set_node_journal(&NodeJournal::from_entries(&[root])?);
    pack.set_segment_journal(&SegmentJournal::from_entries(&entries)?);
    Ok(pack)
}

fn root_entry(node: BlockAddress) -> NodeEntry {
    NodeEntry { version: 0, inode: NodeId::ROOT.0.into(), address: node.0.into() }
}

/// The first block of the node address table: the root, and the two inodes that stand for areas.
fn encode_node_table(node: BlockAddress) -> Block {
    let mut table = NodeTableBlock::new_zeroed();
    for area in [NodeId::NODE_INODE, NodeId::META_INODE] {
        table.entries[area.0 as usize] = NodeEntry { version: 0, inode: area.0.into(), address: 1.into() };
    }
    table.entries[NodeId::ROOT.0 as usize] = root_entry(node);
    let mut block = [0; BLOCK_BYTES];
    block.copy_from_slice(table.as_bytes());
    block
}
