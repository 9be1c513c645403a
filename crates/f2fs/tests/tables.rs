//! Both tables and the summaries of images by f2fs-tools: they are read, and each agrees with the others.

use std::collections::BTreeMap;

use weir_f2fs::{
    BLOCK_BYTES, CheckpointPack, FormatError, Layout, NODE_ENTRIES_PER_BLOCK, NodeEntry, NodeId,
    NodeTableBlock, Place, SEGMENT_ENTRIES_PER_BLOCK, SegmentEntry, SegmentNumber, SegmentTableBlock,
    Structure, SummaryBlock, SummaryKind,
};
use zerocopy::IntoBytes;

use crate::image::{ImageFile, MEBIBYTE};

/// Where a node's footer has the number of the node and of its inode.
const FOOTER: usize = BLOCK_BYTES - 24;

/// The tables of an image with their journals.
pub struct Tables {
    pub layout: Layout,
    pub pack: CheckpointPack,
    pub nodes: BTreeMap<u32, NodeEntry>,
    pub segments: Vec<SegmentEntry>,
}

impl Tables {
    pub fn read(image: &ImageFile) -> Self {
        let (layout, pack) = (image.layout(), image.checkpoint());
        let (mut nodes, mut segments) = (BTreeMap::new(), Vec::new());
        for index in 0..layout.node_table_blocks() {
            let place = layout.node_table_block(index, pack.node_copies.is_second(index)).expect("a block");
            let bytes = image.read_at(place);
            let block = NodeTableBlock::read(&bytes, index, &layout).expect("a block of the node table");
            assert_eq!(block.as_bytes(), bytes);
            let first = index * NODE_ENTRIES_PER_BLOCK as u32;
            nodes.extend((first..).zip(block.entries).filter(|(_, entry)| entry.address().is_block()));
        }
        for entry in pack.node_journal(&layout).expect("a journal").entries() {
            nodes.insert(entry.node.get(), entry.entry);
        }
        nodes.retain(|node, entry| *node >= NodeId::ROOT.0 && entry.address().is_block());
        for index in 0..layout.segment_table_blocks() {
            let second = pack.segment_copies.is_second(index);
            let bytes = image.read_at(layout.segment_table_block(index, second).expect("a block"));
            let block =
                SegmentTableBlock::read(&bytes, index, &layout).expect("a block of the segment table");
            assert_eq!(block.as_bytes(), bytes);
            segments.extend(block.entries);
        }
        segments.truncate(layout.main_segments() as usize);
        for entry in pack.segment_journal(&layout).expect("a journal").entries() {
            segments[entry.segment.get() as usize] = entry.entry;
        }
        Self { layout, pack, nodes, segments }
    }

    /// The summary of a segment: of the checkpoint while it is open.
    fn summary(&self, image: &ImageFile, segment: SegmentNumber) -> Box<SummaryBlock> {
        for log in weir_f2fs::Log::ALL {
            if self.pack.header.log(log).expect("a log").segment == segment {
                let nodes = self.pack.node_summaries.as_ref().expect("an unmounted image");
                let summaries = if log.is_node() { nodes } else { &self.pack.data_summaries };
                return summaries[log as usize % 3].clone();
            }
        }
        let place = self.layout.summary_block(segment).expect("a summary");
        let bytes = image.read_at(place);
        let summary = SummaryBlock::read(&bytes, Place::Segment(segment.0)).expect("a summary");
        assert_eq!(summary.as_bytes(), bytes);
        summary
    }

    fn check(&self, image: &ImageFile) {
        let header = &self.pack.header;
        let valid: u32 = self.segments.iter().map(|entry| entry.valid_blocks()).sum();
        assert_eq!(u64::from(valid), header.valid_blocks.get(), "blocks in use");
        assert_eq!(self.nodes.len() as u32, header.valid_nodes.get(), "nodes");
        let open: Vec<_> = weir_f2fs::Log::ALL.map(|log| header.log(log).expect("a log").segment).into();
        let is_free = |(segment, entry): &(u32, &SegmentEntry)| {
            entry.valid_blocks() == 0 && !open.contains(&SegmentNumber(*segment))
        };
        let free = (0..).zip(&self.segments).filter(is_free).count();
        assert_eq!(free as u32, header.free_segments.get(), "free segments");
        let mut inodes = 0;
        for (node, entry) in &self.nodes {
            let (segment, offset) = self.layout.segment_of(entry.address()).expect("in the main area");
            let segment_entry = &self.segments[segment.0 as usize];
            assert!(segment_entry.is_valid(offset), "the block of node {node} is in use");
            assert!(segment_entry.log().expect("a log").is_node(), "the log of node {node}");
            let block = image.read_at(entry.address());
            let number = |at: usize| u32::from_le_bytes(*block[at..].first_chunk().expect("four bytes"));
            assert_eq!((number(FOOTER), number(FOOTER + 4)), (*node, entry.inode.get()));
            inodes += u32::from(*node == entry.inode.get());
            let summary = self.summary(image, segment);
            assert_eq!(summary.kind(), SummaryKind::Node);
            assert_eq!(summary.entries[offset as usize].node.get(), *node);
        }
        assert_eq!(inodes, header.valid_inodes.get(), "inodes");
        for (segment, entry) in (0..).zip(&self.segments).filter(|(_, entry)| entry.valid_blocks() > 0) {
            let summary = self.summary(image, SegmentNumber(segment));
            assert_eq!(summary.kind() == SummaryKind::Node, entry.log().expect("a log").is_node());
            for offset in (0..512).filter(|offset| entry.is_valid(*offset)) {
                let owner = summary.entries[offset as usize].node.get();
                assert!(self.nodes.contains_key(&owner), "segment {segment}: node {owner}");
            }
        }
    }
}

#[test]
fn the_tables_of_images_agree_with_each_other() {
    let extra = ["-O", "extra_attr,inode_checksum,inode_crtime,sb_checksum,lost_found"];
    for (size, options) in [(64, [].as_slice()), (200, &extra), (1024, &["-o", "7"]), (8192, &[])] {
        for fill in [false, true] {
            let Some(image) = ImageFile::from_mkfs(size * MEBIBYTE, options) else { return };
            // The tree needs more than 64 MiB.
            if fill && (size < 200 || image.fill().is_none()) {
                continue;
            }
            let tables = Tables::read(&image);
            assert_eq!(tables.nodes.len() > 700, fill);
            tables.check(&image);
        }
    }
}

#[test]
fn addresses_of_copies_are_where_the_format_has_them() {
    let Some(image) = ImageFile::from_mkfs(8192 * MEBIBYTE, &[]) else { return };
    let (layout, superblock) = (image.layout(), image.superblock());
    let nodes = superblock.node_table_start.get();
    let node = |index, second| layout.node_table_block(index, second).map(|address| address.0 - nodes);
    // Segment by segment, the copies take turns.
    let expected = [(0, 0), (1, 1), (511, 511), (512, 1024), (1025, 2049)];
    for (index, place) in expected {
        assert_eq!((node(index, false), node(index, true)), (Some(place), Some(place + 512)), "{index}");
    }
    assert_eq!(node(layout.node_table_blocks(), false), None);
    let segments = superblock.segment_table_start.get();
    let half = superblock.segment_table_segments.get() / 2 * 512;
    let segment = |second| layout.segment_table_block(3, second).map(|address| address.0 - segments);
    assert_eq!((segment(false), segment(true)), (Some(3), Some(half + 3)));
    assert_eq!(layout.segment_table_block(half, false), None);
    let main = layout.main_segments();
    for (segment, offset) in [(0, 0), (1, 511), (main - 1, 511)] {
        let address = layout.block_of(SegmentNumber(segment), offset).expect("inside");
        assert_eq!(layout.segment_of(address), Some((SegmentNumber(segment), offset)));
    }
    assert_eq!(layout.block_of(SegmentNumber(main), 0), None);
    assert_eq!(layout.block_of(SegmentNumber(0), 512), None);
    assert_eq!(layout.segment_of(weir_f2fs::BlockAddress(layout.main_start().0 - 1)), None);
    assert_eq!(layout.segment_of(weir_f2fs::BlockAddress(layout.main_start().0 + main * 512)), None);
    assert_eq!(layout.segment_entry_of(SegmentNumber(56)), Some((1, 1)));
    assert_eq!(layout.node_entry_of(NodeId(456)), Some((1, 1)));
    assert_eq!(layout.node_entry_of(NodeId(layout.nodes())), None);
    assert_eq!(SEGMENT_ENTRIES_PER_BLOCK, 55);
}

#[test]
fn images_outside_the_subset_are_refused_by_name() {
    let cases: [(&[&str], &str); 9] = [
        (&["-O", "encrypt"], "encrypt"),
        (&["-O", "extra_attr,project_quota"], "project_quota"),
        (&["-O", "extra_attr,flexible_inline_xattr"], "flexible_inline_xattr"),
        (&["-O", "quota"], "quota"),
        (&["-O", "verity"], "verity"),
        (&["-O", "casefold", "-C", "utf8"], "casefold"),
        (&["-O", "extra_attr,compression"], "compression"),
        (&["-s", "2"], "sections of several segments (mkfs.f2fs -s)"),
        (&["-z", "2"], "zones of several sections (mkfs.f2fs -z)"),
    ];
    for (options, name) in cases {
        let Some(image) = ImageFile::from_mkfs(512 * MEBIBYTE, options) else { return };
        let (first, second) = (image.read(0), image.read(1));
        let refused = weir_f2fs::Superblock::choose(&first, &second, image.blocks());
        let refused = refused.expect_err("refused");
        assert_eq!(refused, FormatError::Feature { name }, "{options:?}");
        assert!(refused.is_unsupported());
    }
    let Some(image) = ImageFile::from_mkfs(512 * MEBIBYTE, &["-i"]) else { return };
    let name = "large_nat_bitmap (mkfs.f2fs -i)";
    let refused = match Layout::new(&image.superblock()) {
        Ok(_) => CheckpointPack::choose([image.pack(0), image.pack(1)]).expect_err("refused"),
        Err(error) => error,
    };
    assert_eq!(refused, FormatError::Feature { name });
}

#[test]
fn entries_that_cannot_be_are_found() {
    let Some(image) = ImageFile::from_mkfs(64 * MEBIBYTE, &[]) else { return };
    let layout = image.layout();
    let table = image.read_at(layout.node_table_block(0, false).expect("a block"));
    let read = |change: &dyn Fn(&mut [u8; BLOCK_BYTES])| {
        let mut bytes = table;
        change(&mut bytes);
        NodeTableBlock::read(&bytes, 0, &layout)
    };
    read(&|_| ()).expect("whole");
    let address = |value: u32| {
        move |bytes: &mut [u8; BLOCK_BYTES]| {
            bytes[3 * 9 + 5..][..4].copy_from_slice(&value.to_le_bytes());
        }
    };
    for fine in [0, u32::MAX, layout.main_start().0] {
        read(&address(fine)).expect("an address");
    }
    for wrong in [1, layout.main_start().0 - 1, image.blocks() as u32, u32::MAX - 1] {
        read(&address(wrong)).expect_err("outside the main area");
    }
    read(&|bytes| bytes[3 * 9 + 1] = 0).expect_err("no inode");
    read(&|bytes| bytes[3 * 9 + 4] = 0xFF).expect_err("an inode beyond the table");
    let short = NodeTableBlock::read(&table[1..], 0, &layout).expect_err("short");
    assert!(matches!(short, FormatError::Corrupt { structure: Structure::NodeAddressTable, .. }));
    SegmentTableBlock::read(&table[1..], 0, &layout).expect_err("short");
    SummaryBlock::read(&table[1..], Place::Segment(0)).expect_err("short");
    let mut summary = [0; BLOCK_BYTES];
    summary[BLOCK_BYTES - 5] = 2;
    SummaryBlock::read(&summary, Place::Segment(0)).expect_err("a kind that is none");
}
