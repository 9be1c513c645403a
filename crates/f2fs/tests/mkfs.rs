//! New images: fsck.f2fs finds nothing, and mkfs.f2fs makes the same areas.

use std::collections::BTreeMap;

use weir_f2fs::{
    BlockAddress, CheckpointPack, FormatError, Layout, Log, Mkfs, NewImage, NodeId, NodeTableBlock,
    SegmentNumber, Superblock,
};
use zerocopy::FromZeros;

use crate::image::{ImageFile, MEBIBYTE};
use crate::judge;

/// The smallest image that our mkfs makes, in blocks.
const SMALLEST: u64 = 26 * 512;
/// Mebibytes, from small to 64 GiB, where rules of sizes change and between.
const SIZES: [u64; 14] = [52, 55, 64, 96, 129, 200, 511, 512, 513, 600, 1024, 4096, 20_480, 65_536];

/// Sizes with a payload in the checkpoint, and just without.
const LARGE: [u64; 4] = [2 << 20, 3_584_000, 4 << 20, 15 << 20];

fn options(blocks: u64, extra_attributes: bool) -> Mkfs {
    Mkfs { extra_attributes, zeroed: true, ..Mkfs::new(blocks, [7; 16], 0x1234_5678, 1_700_000_000) }
}

#[test]
fn fsck_finds_nothing_in_new_images() {
    let sizes = SIZES.map(|size| size * MEBIBYTE).into_iter().chain([SMALLEST, SMALLEST + 1, 30_000]);
    for blocks in sizes {
        for extra in [false, true] {
            let image = ImageFile::from_new(&options(blocks, extra).plan().expect("planned"));
            let Some(complaints) = judge::find_complaints(&image.path()) else { return };
            assert_eq!(complaints, Vec::<String>::new(), "{blocks} blocks, extra attributes {extra}");
        }
    }
}

#[test]
fn fsck_complains_about_damage() {
    let new = options(64 * MEBIBYTE, true).plan().expect("planned");
    let layout = new.layout();
    let node = layout.block_of(SegmentNumber(0), 0).expect("the root");
    for (address, byte) in [(node, 2000), (node, 368), (node, 12), (layout.pack_start(0), 152)] {
        let image = ImageFile::from_new(&new);
        let mut bytes = image.read_at(address);
        bytes[byte] ^= 0x11;
        image.write(u64::from(address.0), &bytes);
        if address != node {
            image.write(u64::from(address.0) + 512, &[0; 4096]);
        }
        let Some(complaints) = judge::find_complaints(&image.path()) else { return };
        assert_ne!(complaints, Vec::<String>::new(), "block {address}, byte {byte}");
    }
}

#[test]
fn the_areas_are_those_of_mkfs_f2fs() {
    for size in SIZES.into_iter().chain(LARGE) {
        let blocks = size * MEBIBYTE;
        for (extra, names) in [(false, [].as_slice()), (true, &["-O", EXTRA, "-l", "Würfel"])] {
            let Some(theirs) = ImageFile::from_mkfs(blocks, names) else { return };
            let mut plan = options(blocks, extra);
            plan.label = if extra { "Würfel".to_owned() } else { String::new() };
            let ours = plan.plan().expect("planned");
            let (mut left, mut right) = (*ours.superblock(), theirs.superblock());
            // What is meant to differ: who it is, by what it was made, and which names tell hot and cold files.
            for superblock in [&mut left, &mut right] {
                let blank = Superblock::new_zeroed();
                superblock.uuid = blank.uuid;
                (superblock.version, superblock.init_version) = (blank.version, blank.init_version);
                superblock.extensions = blank.extensions;
                superblock.cold_extensions = blank.cold_extensions;
                superblock.hot_extensions = blank.hot_extensions;
                superblock.checksum = blank.checksum;
            }
            assert_eq!(left, right, "{size} MiB");
            compare_checkpoints(&ours, &theirs, size);
        }
    }
}

const EXTRA: &str = "extra_attr,inode_checksum,inode_crtime,sb_checksum";

fn compare_checkpoints(ours: &NewImage, theirs: &ImageFile, size: u64) {
    let mut left = ours.checkpoint().clone();
    let right = theirs.checkpoint();
    left.header.version = right.header.version;
    // Ours lacks the bitmaps of the table, and does not discard.
    left.header.flags = (left.header.flags.get() | 0x180).into();
    // encode() sets these.
    left.header.pack_blocks = (6 + ours.layout().payload_blocks()).into();
    left.header.summary_start = (1 + ours.layout().payload_blocks()).into();
    left.header.segment_bitmap_bytes = right.header.segment_bitmap_bytes;
    left.header.node_bitmap_bytes = right.header.node_bitmap_bytes;
    left.header.checksum_offset = 4092.into();
    assert_eq!(left.header, right.header, "{size} MiB");
    // In which order segments are in the journal says nothing.
    let segments = |pack: &CheckpointPack| {
        let mut entries = pack.segment_journal(ours.layout()).expect("a journal").entries().to_vec();
        entries.sort_by_key(|entry| entry.segment.get());
        entries
    };
    assert_eq!(segments(&left), segments(&right), "{size} MiB");
    assert_eq!(left.node_journal(ours.layout()), right.node_journal(ours.layout()), "{size} MiB");
    for log in [Log::HotData, Log::WarmData, Log::ColdData] {
        let index = log as usize;
        assert_eq!(left.data_summaries[index].entries, right.data_summaries[index].entries, "{log:?}");
        let nodes = |pack: &CheckpointPack| pack.node_summaries.clone().expect("nodes");
        assert_eq!(nodes(&left)[index].entries, nodes(&right)[index].entries, "{log:?}");
    }
}

#[test]
fn our_own_codecs_read_a_new_image() {
    let new = Mkfs { overprovision: Some(500), label: "weir".into(), ..options(100_000, true) };
    let new = new.plan().expect("planned");
    let image = ImageFile::from_new(&new);
    assert_eq!((image.superblock(), image.superblock().label()), (*new.superblock(), "weir".to_owned()));
    assert_eq!(image.layout(), *new.layout());
    let encoded = new.checkpoint().encode(new.layout()).expect("encoded").concat();
    assert_eq!(image.pack_bytes(0)[..encoded.len()], encoded);
    let (chosen, pack) = CheckpointPack::choose([image.pack(0), image.pack(1)]).expect("whole");
    assert_eq!((pack, chosen.header.version.get()), (0, 0x1234_5678));
    let table = new.layout().node_table_block(0, false).expect("a table");
    let table = NodeTableBlock::read(&image.read_at(table), 0, new.layout()).expect("whole");
    let root = table.entries[NodeId::ROOT.0 as usize];
    assert_eq!(root.address(), BlockAddress(new.layout().main_start().0));
    assert_eq!(judge::find_complaints(&image.path()).unwrap_or_default(), Vec::<String>::new());
}

#[test]
fn an_old_device_is_cleared() {
    let zeroed = options(64 * MEBIBYTE, false);
    let dirty = Mkfs { zeroed: false, ..zeroed.clone() };
    let (zeroed, dirty) = (zeroed.plan().expect("planned"), dirty.plan().expect("planned"));
    let last = |image: &NewImage| image.writes().collect::<BTreeMap<_, _>>();
    let (zeroed, mut dirty) = (last(&zeroed), last(&dirty));
    assert!(zeroed.iter().all(|(block, bytes)| dirty.remove(block) == Some(*bytes)));
    let layout: &Layout =
        &ImageFile::from_new(&options(64 * MEBIBYTE, false).plan().expect("planned")).layout();
    assert!(dirty.values().all(|bytes| *bytes == [0; 4096]));
    let tables = 2 * (layout.segment_bitmap_bytes() + layout.node_bitmap_bytes()) * 8;
    assert_eq!(dirty.len() as u32, tables - 1, "all of both tables but the block that has entries");
}

#[test]
fn options_out_of_range_are_refused() {
    let good = options(SMALLEST, false);
    good.plan().expect("the smallest image");
    let bad = [
        Mkfs { blocks: SMALLEST - 1, ..good.clone() },
        Mkfs { blocks: 0, ..good.clone() },
        Mkfs { blocks: 512, ..good.clone() },
        Mkfs { blocks: u64::MAX, ..good.clone() },
        Mkfs { blocks: 1 << 32, ..good.clone() },
        Mkfs { label: "x".repeat(513), ..good.clone() },
        Mkfs { label: "a\0b".into(), ..good.clone() },
        Mkfs { version: 0, ..good.clone() },
        Mkfs { permissions: 0o10_000, ..good.clone() },
        Mkfs { overprovision: Some(0), ..good.clone() },
        Mkfs { overprovision: Some(9501), ..good.clone() },
    ];
    for options in bad {
        assert!(matches!(options.plan(), Err(FormatError::Invalid { .. })), "{options:?}");
    }
    for blocks in 0..SMALLEST * 2 {
        let planned = Mkfs { blocks, ..good.clone() }.plan();
        assert_eq!(planned.is_ok(), blocks >= SMALLEST, "{blocks} blocks");
    }
}

#[test]
fn the_largest_images_have_a_payload() {
    for (blocks, payload) in [(1_u64 << 29, 0), (1 << 30, 2), (u64::from(u32::MAX) - 1, 5)] {
        let new = options(blocks, false).plan().expect("planned");
        assert_eq!(new.layout().payload_blocks(), payload, "{blocks} blocks");
        let image = new.checkpoint().encode(new.layout()).expect("encoded").concat();
        let read = CheckpointPack::read(&image, 512, new.layout()).expect("whole");
        assert_eq!(read.segment_copies, new.checkpoint().segment_copies);
    }
}
