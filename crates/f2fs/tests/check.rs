//! The check of the areas: images by f2fs-tools and by us are clean, each kind of damage is found, and hostile images
//! neither panic nor lead outside.

use std::collections::BTreeMap;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;
use weir_f2fs::check::{ImageReader, Problem, Report, check};
use weir_f2fs::{
    BlockAddress, CheckpointPack, Extent, FormatError, Inode, Log, LogState, Mkfs, NodeId, NodeJournal,
    Place, SegmentJournal, SegmentJournalEntry, SegmentNumber, Structure, checkpoint_flags,
};

use crate::image::{Block, ImageFile, MEBIBYTE};
use crate::judge;

/// An image with some blocks changed.
pub struct Changed<'a> {
    pub image: &'a ImageFile,
    pub blocks: BTreeMap<u64, Block>,
    length: u64,
    /// Reading it fails.
    unreadable: Option<u64>,
}

impl<'a> Changed<'a> {
    pub fn new(image: &'a ImageFile) -> Self {
        Self { image, blocks: BTreeMap::new(), length: image.blocks(), unreadable: None }
    }

    pub fn block(&mut self, address: BlockAddress) -> &mut Block {
        let block = u64::from(address.0);
        self.blocks.entry(block).or_insert_with(|| self.image.read(block))
    }

    /// Changes the newer checkpoint pack.
    fn change_pack(&mut self, change: impl FnOnce(&mut CheckpointPack)) {
        let layout = self.image.layout();
        let (mut pack, index) =
            CheckpointPack::choose([self.image.pack(0), self.image.pack(1)]).expect("a pack");
        change(&mut pack);
        let blocks = pack.encode(&layout).expect("encoded");
        self.blocks.extend((u64::from(layout.pack_start(index).0)..).zip(blocks));
    }

    fn check(&self) -> Result<Report, FormatError> {
        match pin!(check(self)).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(report) => report,
            Poll::Pending => panic!("a file is always ready"),
        }
    }

    pub fn problems(&self) -> Vec<(Place, Problem)> {
        let report = self.check().expect("a report");
        report.findings.into_iter().map(|finding| (finding.place, finding.problem)).collect()
    }
}

impl ImageReader for Changed<'_> {
    type Error = FormatError;

    fn blocks(&self) -> u64 {
        self.length
    }

    async fn read(&self, block: u64, bytes: &mut [u8]) -> Result<(), FormatError> {
        for (block, bytes) in (block..).zip(bytes.chunks_exact_mut(4096)) {
            assert!(block < self.length, "block {block} is outside the image");
            if self.unreadable == Some(block) {
                return Err(FormatError::corrupt(Structure::Node, Place::Block(block), "unreadable"));
            }
            bytes
                .copy_from_slice(&self.blocks.get(&block).copied().unwrap_or_else(|| self.image.read(block)));
        }
        Ok(())
    }
}

fn new_image() -> ImageFile {
    let options = Mkfs { zeroed: true, ..Mkfs::new(64 * MEBIBYTE, [7; 16], 41, 1_700_000_000) };
    ImageFile::from_new(&options.plan().expect("planned"))
}

#[test]
fn sound_images_are_clean() {
    let report = Changed::new(&new_image()).check().expect("a report");
    let expected = Report { nodes: 1, inodes: 1, blocks: 2, ..Report::default() };
    assert_eq!(report, expected);
    for (size, options) in [(200, [].as_slice()), (1024, &["-O", "extra_attr,lost_found"])] {
        for fill in [false, true] {
            let Some(image) = ImageFile::from_mkfs(size * MEBIBYTE, options) else { return };
            if fill && image.fill().is_none() {
                return;
            }
            let report = Changed::new(&image).check().expect("a report");
            assert_eq!(report.findings, [], "{size} MiB, filled {fill}");
            assert_eq!(report.damaged_pack, None, "mkfs.f2fs leaves an older pack that is not whole");
            assert!(report.is_clean() && (report.inodes > 700) == fill);
        }
    }
}

#[test]
fn f2fs_tools_fill_our_images() {
    for extra_attributes in [false, true] {
        let options = Mkfs::new(200 * MEBIBYTE, [7; 16], 41, 1_700_000_000);
        let options = Mkfs { zeroed: true, extra_attributes, ..options };
        let image = ImageFile::from_new(&options.plan().expect("planned"));
        if image.fill().is_none() {
            return;
        }
        let report = Changed::new(&image).check().expect("a report");
        assert_eq!(report.findings, []);
        assert!(report.inodes > 700);
        assert_eq!(judge::find_complaints(&image.path()).expect("installed"), Vec::<String>::new());
    }
}

#[test]
fn each_kind_of_damage_is_found() {
    let image = new_image();
    let (layout, root) = (image.layout(), Place::Node(3));
    let pack_place = Place::Block(u64::from(layout.pack_start(0).0));
    let main = |segment, offset| layout.block_of(SegmentNumber(segment), offset).expect("a block");
    let (node, data) = (main(0, 0), main(3, 0));
    let pack = |change: &dyn Fn(&mut CheckpointPack)| {
        let mut changed = Changed::new(&image);
        changed.change_pack(change);
        changed.problems()
    };
    let set_root = |address: BlockAddress, version: u8| {
        pack(&|pack| {
            let mut entry = pack.node_journal(&layout).expect("a journal").entries()[0];
            (entry.entry.address, entry.entry.version) = (address.0.into(), version);
            pack.set_node_journal(&NodeJournal::from_entries(&[entry]).expect("an entry"));
        })
    };
    let orphan_data = (Place::Segment(3), Problem::DataOwner { offset: 0, owner: NodeId(3) });
    let count = |what, stored, counted| Problem::Count { what, stored, counted };
    assert_eq!(set_root(node, 0), []);
    assert_eq!(set_root(node, 1), std::slice::from_ref(&orphan_data));
    assert!(set_root(BlockAddress::NEW, 0).contains(&(root, Problem::NodeWithoutPlace)));
    assert!(set_root(main(0, 1), 0).contains(&(root, Problem::NodeInFreeBlock(main(0, 1)))));
    assert!(set_root(data, 0).contains(&(root, Problem::NodeInDataSegment(data))));
    let gone = set_root(BlockAddress::NULL, 0);
    for problem in [(root, Problem::NoRoot), orphan_data, (pack_place, count("valid nodes", 1, 0))] {
        assert!(gone.contains(&problem), "{gone:?}");
    }
    assert!(gone.contains(&(Place::Segment(0), count("valid blocks", 1, 0))));

    assert_eq!(
        pack(&|pack| pack.header.free_segments = 17.into()),
        [(pack_place, count("free segments", 17, 18))]
    );
    assert_eq!(
        pack(&|pack| pack.header.valid_blocks = 1.into()),
        [(pack_place, count("valid blocks", 1, 2))]
    );
    assert_eq!(
        pack(&|pack| pack.header.valid_inodes = 0.into()),
        [(pack_place, count("valid inodes", 0, 1))]
    );
    assert_eq!(pack(&|pack| pack.orphans.push(NodeId(9))), [(Place::Node(9), Problem::Orphan)]);
    let error = checkpoint_flags::ERROR;
    let noted = pack(&|pack| pack.header.flags = (pack.header.flags.get() | error).into());
    assert_eq!(noted, [(pack_place, Problem::ErrorsNoted)]);
    let owner = pack(&|pack| {
        pack.node_summaries.as_mut().expect("summaries")[0].entries[0].node = 8.into();
    });
    assert_eq!(owner, [(root, Problem::NodeOwner { address: node, owner: NodeId(8) })]);
    let word = pack(&|pack| pack.data_summaries[Log::HotData as usize].entries[0].offset = 1.into());
    assert_eq!(word, [(root, Problem::PageOwner { address: data, owner: NodeId(3), word: 1 })]);
    // Without summaries of nodes there is nothing to compare.
    assert_eq!(pack(&|pack| pack.node_summaries = None), []);
    let used = pack(&|pack| {
        let mut entries = pack.segment_journal(&layout).expect("a journal").entries().to_vec();
        let warm =
            entries.iter_mut().find(|entry| entry.entry.log() == Some(Log::WarmData)).expect("a segment");
        assert!(warm.entry.set_valid(5, true));
        pack.set_segment_journal(&SegmentJournal::from_entries(&entries).expect("six"));
    });
    let unowned = Problem::DataOwner { offset: 5, owner: NodeId(0) };
    assert!(used.iter().any(|(_, problem)| *problem == unowned), "{used:?}");
    // The summary has the root as the owner, and the root leads elsewhere.
    let unled = pack(&|pack| {
        let mut entries = pack.segment_journal(&layout).expect("a journal").entries().to_vec();
        let warm =
            entries.iter_mut().find(|entry| entry.entry.log() == Some(Log::WarmData)).expect("a segment");
        assert!(warm.entry.set_valid(5, true) && warm.entry.set_valid(7, true));
        pack.set_segment_journal(&SegmentJournal::from_entries(&entries).expect("six"));
        // Compact summaries have those of blocks that the log has come to.
        let log = pack.header.log(Log::WarmData).expect("a log");
        pack.header.set_log(Log::WarmData, LogState { next: 8, ..log }).expect("a log");
        for offset in [5, 7] {
            pack.data_summaries[Log::WarmData as usize].entries[offset].node = 3.into();
        }
    });
    let warm = image.checkpoint().header.log(Log::WarmData).expect("a log").segment;
    let lost = Problem::BlocksOfNoFile { blocks: 2, first: main(warm.0, 5) };
    assert_eq!(unled, [(Place::Segment(warm.0), lost)]);

    let mut changed = Changed::new(&image);
    changed.block(node)[4072] = 9;
    let footer = Problem::Footer { address: node, node: NodeId(9), inode: NodeId(3) };
    assert_eq!(changed.problems(), [(root, footer)]);
    let mut changed = Changed::new(&image);
    let mut inode = Inode::read(changed.block(node), NodeId(3), node, None).expect("the root");
    for (address, is_sound) in [(data, true), (main(3, 1), false)] {
        let extent = Extent { page: 0, address, pages: 1 };
        inode.set_extent(extent);
        inode.write(changed.block(node), None);
        let expected = (Place::Inode(3), Problem::Extent(extent));
        assert_eq!(changed.problems(), if is_sound { vec![] } else { vec![expected] });
    }
    for copy in [0, 1] {
        let mut changed = Changed::new(&image);
        changed.block(BlockAddress(copy))[1024] = 0;
        assert_eq!(changed.problems(), [(Place::Block(copy.into()), Problem::SuperblockCopy)]);
    }
    let mut changed = Changed::new(&image);
    changed.block(layout.segment_table_block(0, false).expect("a block"))[20] = 1;
    assert!(matches!(
        changed.problems().as_slice(),
        [(
            Place::Segment(0),
            Problem::Format(FormatError::Corrupt { structure: Structure::SegmentTable, .. })
        )]
    ));
}

#[test]
fn half_a_checkpoint_is_no_damage_and_two_halves_are() {
    let image = new_image();
    let layout = image.layout();
    let mut changed = Changed::new(&image);
    changed.block(layout.pack_start(0))[100] ^= 1;
    assert_eq!(changed.problems(), [], "the older pack is whole");
    let damage = changed.check().expect("a report").damaged_pack;
    assert!(matches!(damage, Some(FormatError::Checksum { .. })), "{damage:?}");
    changed.block(layout.pack_start(1))[100] ^= 1;
    let problems = changed.problems();
    assert!(
        matches!(problems.as_slice(), [(_, Problem::Format(FormatError::Checksum { .. }))]),
        "{problems:?}"
    );
}

/// Of what there is twice, one copy that cannot be read is as one that is damaged; and no block that is free spoils the report.
#[test]
fn an_unreadable_copy_is_passed_over() {
    let image = new_image();
    let layout = image.layout();
    let with =
        |unreadable: BlockAddress| Changed { unreadable: Some(unreadable.0.into()), ..Changed::new(&image) };
    for block in [BlockAddress(0), BlockAddress(1)] {
        with(block).check().expect("the other superblock");
    }
    for pack in 0..2 {
        let report = with(layout.pack_start(pack)).check().expect("the other pack");
        assert!(report.findings.is_empty() && report.damaged_pack.is_some(), "{report:?}");
    }
    let log = image.pack(0).expect("a pack").header.log(Log::WarmNode).expect("an open segment");
    let next = layout.block_of(log.segment, log.next).expect("a block");
    assert!(with(next).check().expect("a report").is_clean());
}

#[test]
fn foreign_and_truncated_images_are_refused() {
    let blank = ImageFile::new(100);
    assert_eq!(Changed::new(&blank).check(), Err(FormatError::Foreign { format: "F2FS" }));
    let image = new_image();
    for length in [0, 1] {
        let short = Changed { length, ..Changed::new(&image) };
        assert_eq!(short.check(), Err(FormatError::Foreign { format: "F2FS" }));
    }
    for length in [2, 513, image.blocks() - 1] {
        let short = Changed { length, ..Changed::new(&image) };
        assert!(!short.check().expect("a report").is_clean(), "{length} blocks");
    }
    let Some(image) = ImageFile::from_mkfs(64 * MEBIBYTE, &["-O", "encrypt"]) else { return };
    assert_eq!(Changed::new(&image).check(), Err(FormatError::Feature { name: "encrypt" }));
}

/// Blocks of the areas that a filled image uses, with the nodes.
fn used_blocks(image: &ImageFile) -> Vec<BlockAddress> {
    let tables = crate::tables::Tables::read(image);
    let layout = &tables.layout;
    let mut blocks = vec![BlockAddress(0), BlockAddress(1)];
    for pack in [0, 1] {
        blocks.extend((0..8).map(|offset| BlockAddress(layout.pack_start(pack).0 + offset)));
    }
    for index in 0..4 {
        blocks.extend(layout.node_table_block(index, tables.pack.node_copies.is_second(index)));
        blocks.extend(layout.segment_table_block(index, tables.pack.segment_copies.is_second(index)));
    }
    let used = (0..).zip(&tables.segments).filter(|(_, entry)| entry.valid_blocks() > 0);
    blocks.extend(used.filter_map(|(segment, _)| layout.summary_block(SegmentNumber(segment))));
    blocks.extend(tables.nodes.values().take(20).map(|entry| entry.address()));
    blocks
}

#[test]
fn damage_anywhere_neither_panics_nor_leads_outside() {
    let Some(image) = ImageFile::from_mkfs(200 * MEBIBYTE, &[]) else { return };
    if image.fill().is_none() {
        return;
    }
    let blocks = used_blocks(&image);
    let mut random = Pcg64::seed_from_u64(5);
    let mut found = 0;
    for _ in 0..400 {
        let mut changed = Changed::new(&image);
        for _ in 0..random.random_range(1..4) {
            let block = changed.block(blocks[random.random_range(0..blocks.len())]);
            let at = random.random_range(0..4090_usize);
            match random.random_range(0..4) {
                0 => block[at..at + 4].fill(0xFF),
                1 => block[at..].fill(0),
                2 => block[at] ^= 1 << random.random_range(0..8),
                _ => random.fill(&mut block[at..at + 6]),
            }
        }
        found += u32::from(changed.check().is_ok_and(|report| !report.is_clean()));
    }
    assert!(found > 100, "much of it is damage: {found}");
}

#[test]
fn fsck_agrees_about_tables_and_summaries() {
    let mut agreed = 0;
    let mut random = Pcg64::seed_from_u64(6);
    let Some(image) = ImageFile::from_mkfs(200 * MEBIBYTE, &[]) else { return };
    if image.fill().is_none() {
        return;
    }
    let tables = crate::tables::Tables::read(&image);
    let layout = &tables.layout;
    for round in 0..30 {
        let mut changed = Changed::new(&image);
        let node = tables.nodes.values().nth(random.random_range(0..tables.nodes.len())).expect("a node");
        let (segment, _) = layout.segment_of(node.address()).expect("inside");
        match round % 6 {
            // The footer's number of the node, or of the inode.
            0 => changed.block(node.address())[4072 + 4 * (round / 6 % 2)] ^= 0x40,
            // An entry of the segment table: a bit and the count with it.
            1 => {
                let (index, entry) = layout.segment_entry_of(segment).expect("an entry");
                let second = tables.pack.segment_copies.is_second(index);
                let mut table = tables.segments[segment.0 as usize];
                let first = (0..512).find(|offset| table.is_valid(*offset)).expect("a block in use");
                table.set_valid(first, false);
                let block = changed.block(layout.segment_table_block(index, second).expect("a block"));
                block[entry * 74..][..74].copy_from_slice(zerocopy::IntoBytes::as_bytes(&table));
            }
            2 => changed.change_pack(|pack| pack.header.valid_inodes = 5.into()),
            // The word that leads to a page, in a summary.
            3 => changed.change_pack(|pack| {
                let log = pack.header.log(Log::WarmData).expect("a log");
                let entry = &tables.segments[log.segment.0 as usize];
                let used = (0..512).find(|offset| entry.is_valid(*offset)).expect("a block in use");
                let owner = &mut pack.data_summaries[Log::WarmData as usize].entries[used as usize];
                owner.offset = (owner.offset.get() + 1).into();
            }),
            // A block of the first data log in use that no file leads to, with an owner that is there.
            4 => changed.change_pack(|pack| {
                let log = pack.header.log(Log::HotData).expect("a log");
                let mut entry = tables.segments[log.segment.0 as usize];
                let used = (0..512).find(|offset| entry.is_valid(*offset)).expect("a block in use");
                let free = (0..512).find(|offset| !entry.is_valid(*offset)).expect("a free block");
                entry.set_valid(free, true);
                let next = log.next.max(free + 1);
                pack.header.set_log(Log::HotData, LogState { next, ..log }).expect("a log");
                let mut journal = pack.segment_journal(layout).expect("a journal").entries().to_vec();
                journal.retain(|change| change.segment.get() != log.segment.0);
                journal.push(SegmentJournalEntry { segment: log.segment.0.into(), entry });
                pack.set_segment_journal(&SegmentJournal::from_entries(&journal).expect("few"));
                let owners = &mut pack.data_summaries[Log::HotData as usize].entries;
                owners[free as usize] = owners[used as usize];
            }),
            _ => changed.change_pack(|pack| {
                pack.header.free_segments = (pack.header.free_segments.get() - 1).into();
            }),
        }
        let ours = changed.check().is_ok_and(|report| !report.is_clean());
        let damaged = ImageFile::from_copy(&image);
        changed.blocks.iter().for_each(|(block, bytes)| damaged.write(*block, bytes));
        let theirs = judge::find_complaints(&damaged.path()).expect("installed");
        // A journal may hide what the table says: then neither sees it.
        assert_eq!(ours, !theirs.is_empty(), "round {round}: {theirs:?}");
        agreed += u32::from(ours);
    }
    assert!(agreed >= 22, "{agreed}");
}
