//! Checkpoint packs: those of f2fs-tools are read and written again, ours hold everything that a pack may hold, and half a
//! pack is refused.

use weir_f2fs::{
    Allocation, BLOCK_BYTES, CheckpointPack, FormatError, Layout, Log, LogState, MAX_ORPHANS_PER_BLOCK, Mkfs,
    NewImage, NodeEntry, NodeId, NodeJournal, NodeJournalEntry, SegmentEntry, SegmentJournal,
    SegmentJournalEntry, SegmentNumber, Summary, checkpoint_flags, crc32,
};

use crate::image::{ImageFile, MEBIBYTE};

const MAGIC: u32 = 0xF2F5_2010;

fn new_image() -> NewImage {
    let options = Mkfs { zeroed: true, ..Mkfs::new(200 * MEBIBYTE, [7; 16], 41, 1_700_000_000) };
    options.plan().expect("planned")
}

fn read(blocks: &[[u8; BLOCK_BYTES]], layout: &Layout) -> Result<CheckpointPack, FormatError> {
    CheckpointPack::read(&blocks.concat(), 512, layout)
}

/// Makes the checksum of a header's block right.
pub fn seal(block: &mut [u8]) {
    let sum = crc32(MAGIC, &block[..BLOCK_BYTES - 4]);
    block[BLOCK_BYTES - 4..BLOCK_BYTES].copy_from_slice(&sum.to_le_bytes());
}

#[test]
fn packs_of_f2fs_tools_are_written_as_they_were() {
    for size in [64, 200, 1024, 20_480] {
        for fill in [false, true] {
            let Some(image) = ImageFile::from_mkfs(size * MEBIBYTE, &[]) else { return };
            if fill && (size < 200 || image.fill().is_none()) {
                continue;
            }
            for pack in [0, 1] {
                let Ok(read) = image.pack(pack) else {
                    assert!(
                        pack == 1 && !fill,
                        "mkfs.f2fs writes header and footer alone of the second pack"
                    );
                    continue;
                };
                let encoded = read.encode(&image.layout()).expect("encoded").concat();
                let mut bytes = image.pack_bytes(pack)[..encoded.len()].to_vec();
                // The bitmaps behind the pack are not ours to keep.
                for header in [0, bytes.len() - BLOCK_BYTES] {
                    bytes[header + 132] &= !(checkpoint_flags::NAT_BITS as u8);
                    seal(&mut bytes[header..header + BLOCK_BYTES]);
                }
                let differs = (0..bytes.len()).find(|index| bytes[*index] != encoded[*index]);
                assert_eq!(differs, None, "{size} MiB, pack {pack}, filled {fill}");
            }
            image.checkpoint();
        }
    }
}

/// A pack with something in everything.
fn full_pack(layout: &Layout, mut pack: CheckpointPack) -> CheckpointPack {
    for (log, next) in Log::ALL.into_iter().zip([511, 300, 211, 1, 2, 511]) {
        let state = LogState { segment: SegmentNumber(log as u32 * 3), next, allocation: Allocation::Append };
        pack.header.set_log(log, state).expect("in the segment");
        assert_eq!(pack.header.log(log), Some(state));
    }
    for (log, summary) in
        [Log::HotData, Log::WarmData, Log::ColdData].into_iter().zip(&mut pack.data_summaries)
    {
        let used = pack.header.log(log).expect("a log").next as usize;
        for (index, entry) in (0_u16..).zip(&mut summary.entries[..used]) {
            *entry =
                Summary { node: (u32::from(index) + 4).into(), version: log as u8, offset: index.into() };
        }
    }
    pack.segment_copies.switch(3);
    pack.node_copies.switch(7);
    pack.orphans = (0..MAX_ORPHANS_PER_BLOCK as u32 + 3).map(|index| NodeId(index + 4)).collect();
    let address = layout.block_of(SegmentNumber(9), 8).expect("a block").0;
    let entry = |node: u32| NodeJournalEntry {
        node: node.into(),
        entry: NodeEntry { version: 3, inode: 5.into(), address: address.into() },
    };
    let nodes: Vec<_> = (10..48).map(entry).collect();
    pack.set_node_journal(&NodeJournal::from_entries(&nodes).expect("38 entries"));
    let entry = |segment: u32| SegmentJournalEntry {
        segment: segment.into(),
        entry: SegmentEntry::new(Log::WarmData),
    };
    let segments: Vec<_> = (10..16).map(entry).collect();
    pack.set_segment_journal(&SegmentJournal::from_entries(&segments).expect("six entries"));
    NodeJournal::from_entries(&[nodes.as_slice(), &nodes[..1]].concat()).expect_err("full");
    SegmentJournal::from_entries(&[segments.as_slice(), &segments[..1]].concat()).expect_err("full");
    pack
}

#[test]
fn a_pack_holds_what_was_put_into_it() {
    let image = new_image();
    let layout = image.layout();
    for (compact, nodes, orphans) in
        [(false, true, true), (false, false, true), (true, true, true), (true, false, false)]
    {
        let mut pack = full_pack(layout, image.checkpoint().clone());
        if compact {
            let state = pack.header.log(Log::HotData).expect("a log");
            // 1,023 entries fit into two blocks: 439 and 584.
            let state = LogState { next: 511, ..state };
            pack.header.set_log(Log::HotData, state).expect("in the segment");
        } else {
            pack.header.flags = 0.into();
        }
        if !nodes {
            pack.node_summaries = None;
        }
        if !orphans {
            pack.orphans.clear();
        }
        let blocks = pack.encode(layout).expect("encoded");
        let orphan_blocks = if orphans { 2 } else { 0 };
        let expected = 2 + orphan_blocks + if compact { 2 } else { 3 } + if nodes { 3 } else { 0 };
        assert_eq!(blocks.len(), expected);
        let read = read(&blocks, layout).expect("whole");
        assert_eq!(read.header.has(checkpoint_flags::ORPHANS), orphans);
        assert_eq!(read.header.has(checkpoint_flags::UMOUNT), nodes);
        assert_eq!(read.encode(layout).expect("encoded"), blocks);
        pack.header = read.header;
        assert_eq!(read.segment_journal(layout), pack.segment_journal(layout));
        assert_eq!(read.node_journal(layout).expect("a journal").entries().len(), 38);
        assert_eq!((&read.orphans, &read.segment_copies), (&pack.orphans, &pack.segment_copies));
        assert_eq!((&read.node_copies, &read.node_summaries), (&pack.node_copies, &pack.node_summaries));
        for (left, right) in read.data_summaries.iter().zip(&pack.data_summaries) {
            assert_eq!(left.entries, right.entries);
        }
    }
}

#[test]
fn compact_summaries_take_two_blocks_at_most() {
    let image = new_image();
    let mut pack = full_pack(image.layout(), image.checkpoint().clone());
    assert!(pack.fits_compact());
    let cold = pack.header.log(Log::ColdData).expect("a log");
    // 511 and 300 and 212: as many as fit.
    pack.header.set_log(Log::ColdData, LogState { next: 212, ..cold }).expect("in the segment");
    assert!(pack.fits_compact());
    pack.header.set_log(Log::ColdData, LogState { next: 213, ..cold }).expect("in the segment");
    assert!(!pack.fits_compact());
    let full = FormatError::Full { what: "compact summaries take two blocks at most" };
    assert_eq!(pack.encode(image.layout()), Err(full));
    // A segment that is filled where it has holes is stored whole.
    pack.header.set_log(Log::ColdData, LogState { next: 0, ..cold }).expect("in the segment");
    assert!(pack.fits_compact());
    let reuse = LogState { next: 0, allocation: Allocation::Reuse, ..cold };
    pack.header.set_log(Log::ColdData, reuse).expect("in the segment");
    assert!(!pack.fits_compact());
    pack.header.set_log(Log::ColdData, LogState { next: 512, ..cold }).expect_err("beyond the segment");
    pack.orphans = vec![NodeId(4); 510 * MAX_ORPHANS_PER_BLOCK];
    pack.header.flags = 0.into();
    assert!(matches!(pack.encode(image.layout()), Err(FormatError::Full { .. })));
}

#[test]
fn half_a_pack_is_not_trusted() {
    let image = new_image();
    let layout = image.layout();
    let old = image.checkpoint().clone();
    let mut new = full_pack(layout, old.clone());
    new.header.version = 42.into();
    let (old_blocks, new_blocks) = (old.encode(layout).expect("old"), new.encode(layout).expect("new"));
    let whole = || read(&old_blocks, layout);
    for written in 0..new_blocks.len() {
        // The blocks of an older pack are where the new one is not written.
        let mut blocks = new_blocks[..written].to_vec();
        blocks.extend(old_blocks.get(written..).unwrap_or_default());
        blocks.resize(512, [0; BLOCK_BYTES]);
        let half = read(&blocks, layout);
        if written > 0 {
            half.as_ref().expect_err("half a pack");
        }
        let (chosen, _) = CheckpointPack::choose([half, whole()]).expect("the whole one");
        assert_eq!(chosen.header.version.get(), 41, "{written} blocks written");
    }
    let chosen = CheckpointPack::choose([whole(), read(&new_blocks, layout)]).expect("both whole");
    assert_eq!((chosen.0.header.version.get(), chosen.1), (42, 1));
    let chosen = CheckpointPack::choose([read(&new_blocks, layout), whole()]).expect("both whole");
    assert_eq!((chosen.0.header.version.get(), chosen.1), (42, 0));
    // The same version, and yet not the same header: a checkpoint that was cut, and one after it.
    let mut again = new.clone();
    again.header.elapsed = 9.into();
    let mut mixed = again.encode(layout).expect("encoded");
    let last = mixed.len() - 1;
    mixed[last] = new_blocks[last];
    read(&mixed, layout).expect_err("the footer of another checkpoint");
}

#[test]
fn versions_are_compared_as_distances() {
    let header = new_image().checkpoint().header;
    for (older, newer) in [(1, 2), (u64::MAX, 0), (0, i64::MAX as u64), (u64::MAX - 1, 5)] {
        let of = |version: u64| {
            let mut header = header;
            header.version = version.into();
            header
        };
        assert!(of(newer).is_newer_than(&of(older)) && !of(older).is_newer_than(&of(newer)));
    }
    assert!(!header.is_newer_than(&header));
}

#[test]
fn what_is_not_understood_is_not_passed_over() {
    let image = new_image();
    let layout = image.layout();
    let blocks = image.checkpoint().encode(layout).expect("encoded");
    for (bit, name) in [(10, "large_nat_bitmap (mkfs.f2fs -i)"), (12, "checkpoint=disable"), (11, "quota")] {
        let mut other = blocks.clone();
        let last = other.len() - 1;
        for block in [0, last] {
            other[block][132 + bit / 8] |= 1 << (bit % 8);
            seal(&mut other[block]);
        }
        for packs in
            [[read(&other, layout), read(&blocks, layout)], [read(&blocks, layout), read(&other, layout)]]
        {
            assert_eq!(CheckpointPack::choose(packs), Err(FormatError::Feature { name }));
        }
    }
    let mut other = blocks.clone();
    other[0][132 + 3] = 0x80;
    seal(&mut other[0]);
    let unknown = FormatError::UnknownFeatures { set: "checkpoint", bits: 1 << 31 };
    assert_eq!(read(&other, layout), Err(unknown));
}
