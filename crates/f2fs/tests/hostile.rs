//! Bytes from an attacker who knows how to seal them: what is accepted leads nowhere outside the filesystem, and nothing
//! panics.

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;
use weir_f2fs::{
    BLOCK_BYTES, BlockAddress, CheckpointPack, FormatError, Layout, Log, Mkfs, NodeId, NodeTableBlock, Place,
    SEGMENT_BLOCKS, SUPERBLOCK_BYTES, SUPERBLOCK_OFFSET, SegmentNumber, SegmentTableBlock, SummaryBlock,
    Superblock, crc32,
};

use crate::checkpoint::seal;

const MAGIC: u32 = 0xF2F5_2010;
const BLOCKS: u64 = 100_000;

fn new_image(extra_attributes: bool) -> weir_f2fs::NewImage {
    let options = Mkfs { extra_attributes, zeroed: true, ..Mkfs::new(BLOCKS, [7; 16], 41, 1_700_000_000) };
    options.plan().expect("planned")
}

/// Some bytes at once, in places of `range`.
fn damage(bytes: &mut [u8], range: std::ops::Range<usize>, random: &mut Pcg64) {
    for _ in 0..random.random_range(1..5) {
        let at = random.random_range(range.clone());
        let end = (at + random.random_range(1..=8_usize)).min(range.end);
        match random.random_range(0..5) {
            0 => bytes[at..end].fill(0),
            1 => bytes[at..end].fill(0xFF),
            2 => bytes[at] = bytes[at].wrapping_add(1),
            3 => bytes[at] ^= 1 << random.random_range(0..8),
            _ => random.fill(&mut bytes[at..end]),
        }
    }
}

/// Everything that a layout says lies in an image of `blocks` blocks.
fn use_layout(layout: &Layout, blocks: u64) {
    let inside = |address: BlockAddress| {
        assert!(u64::from(address.0) < blocks, "block {address} of {blocks}");
        assert!(address.0 >= 512);
    };
    let outside = |address: Option<BlockAddress>| assert_eq!(address, None);
    (0..2).for_each(|pack| inside(BlockAddress(layout.pack_start(pack).0 + SEGMENT_BLOCKS - 1)));
    let last = SegmentNumber(layout.main_segments() - 1);
    inside(layout.block_of(last, 511).expect("a block"));
    inside(layout.summary_block(last).expect("a block"));
    let (table, _) = layout.segment_entry_of(last).expect("an entry");
    (0..2).for_each(|copy| inside(layout.segment_table_block(table, copy == 1).expect("a block")));
    let node = layout.nodes() - 1;
    let (table, _) = layout.node_entry_of(NodeId(node)).expect("an entry");
    (0..2).for_each(|copy| inside(layout.node_table_block(table, copy == 1).expect("a block")));
    for wild in [layout.main_segments(), u32::MAX / 2, u32::MAX] {
        outside(layout.block_of(SegmentNumber(wild), 0));
        outside(layout.summary_block(SegmentNumber(wild)));
        assert_eq!(layout.segment_entry_of(SegmentNumber(wild)), None);
    }
    assert_eq!(layout.node_entry_of(NodeId(u32::MAX)), None);
    outside(layout.node_table_block(u32::MAX, true));
    outside(layout.segment_table_block(u32::MAX, true));
    assert_eq!(layout.segment_of(BlockAddress::NEW), None);
    assert_eq!(layout.segment_of(BlockAddress::NULL), None);
}

fn superblock_block(extra_attributes: bool) -> [u8; BLOCK_BYTES] {
    let mut block = [0; BLOCK_BYTES];
    let mut superblock = *new_image(extra_attributes).superblock();
    superblock.write(&mut block);
    block
}

fn seal_superblock(block: &mut [u8; BLOCK_BYTES]) {
    let end = SUPERBLOCK_OFFSET + SUPERBLOCK_BYTES - 4;
    let sum = crc32(MAGIC, &block[SUPERBLOCK_OFFSET..end]);
    block[end..].copy_from_slice(&sum.to_le_bytes());
}

#[test]
fn a_damaged_superblock_is_found_by_its_checksum() {
    let sound = superblock_block(true);
    Superblock::read(&sound, 0).expect("sound");
    for at in SUPERBLOCK_OFFSET..BLOCK_BYTES {
        let mut block = sound;
        block[at] ^= 0x10;
        Superblock::read(&block, 0).expect_err("damaged");
    }
    for length in [0, 1, 1023, 1024, 1025, 4095] {
        Superblock::read(&sound[..length], 0).expect_err("truncated");
    }
}

#[test]
fn a_hostile_superblock_leads_nowhere() {
    let mut random = Pcg64::seed_from_u64(1);
    let mut accepted = 0;
    for round in 0..60_000 {
        let extra = round % 2 == 0;
        let mut block = superblock_block(extra);
        // Most damage goes to the sizes and places of areas.
        let end = if round % 3 == 0 { BLOCK_BYTES } else { SUPERBLOCK_OFFSET + 108 };
        damage(&mut block, SUPERBLOCK_OFFSET..end, &mut random);
        if extra {
            seal_superblock(&mut block);
        }
        let Ok(chosen) = Superblock::choose(&block, &[0; BLOCK_BYTES], BLOCKS) else { continue };
        if let Ok(layout) = Layout::new(&chosen.superblock) {
            use_layout(&layout, BLOCKS);
            accepted += 1;
        }
    }
    assert!(accepted > 1000, "the attack is not all noise: {accepted}");
}

#[test]
fn each_field_of_sizes_and_places_is_judged() {
    let sound = superblock_block(false);
    // But for versions (4 bytes) and the place of a checksum that there is not, every field has one value.
    let judged = (0..108).step_by(4).filter(|at| ![4, 32, 36].contains(at));
    for at in judged {
        for change in [1_u32, 2, 512, 1 << 16, u32::MAX - 1] {
            let mut block = sound;
            let place = SUPERBLOCK_OFFSET + at;
            let value = u32::from_le_bytes(*block[place..].first_chunk().expect("a field"));
            block[place..place + 4].copy_from_slice(&value.wrapping_add(change).to_le_bytes());
            // A part of the device may be left over, but not so that the segments reach beyond it.
            let read = Superblock::choose(&block, &block, BLOCKS);
            let may_grow = at == 48 && change <= 2;
            assert!(read.is_err() || may_grow, "byte {at} + {change}");
        }
    }
}

#[test]
fn the_copy_of_the_superblock_is_taken_where_it_must_be() {
    let sound = superblock_block(true);
    let mut damaged = sound;
    damaged[SUPERBLOCK_OFFSET + 300] ^= 1;
    let blank = [0; BLOCK_BYTES];
    let damaged_copy = |first: &[u8], second: &[u8]| {
        Superblock::choose(first, second, BLOCKS).map(|chosen| chosen.damaged_copy)
    };
    assert_eq!(damaged_copy(&sound, &sound), Ok(None));
    assert_eq!(damaged_copy(&damaged, &sound), Ok(Some(BlockAddress(0))));
    assert_eq!(damaged_copy(&blank, &sound), Ok(Some(BlockAddress(0))));
    let mut flipped = sound;
    flipped[SUPERBLOCK_OFFSET] ^= 1;
    assert_eq!(damaged_copy(&flipped, &sound), Ok(Some(BlockAddress(0))));
    // What is there instead, or nothing: the copy is left over.
    let mut wiped = sound;
    wiped[SUPERBLOCK_OFFSET..SUPERBLOCK_OFFSET + 4].fill(0);
    let mut swap = blank;
    swap[SUPERBLOCK_OFFSET] = 1;
    swap[BLOCK_BYTES - 10..].copy_from_slice(b"SWAPSPACE2");
    for foreign in [wiped, swap] {
        assert_eq!(damaged_copy(&foreign, &sound), Err(FormatError::Foreign { format: "F2FS" }));
    }
    assert_eq!(damaged_copy(&sound, &damaged), Ok(Some(BlockAddress(1))));
    assert_eq!(damaged_copy(&blank, &blank), Err(FormatError::Foreign { format: "F2FS" }));
    assert!(matches!(
        damaged_copy(&damaged, &blank),
        Err(FormatError::Checksum { place: Place::Block(0), .. })
    ));
    assert!(matches!(
        damaged_copy(&blank, &damaged),
        Err(FormatError::Checksum { place: Place::Block(1), .. })
    ));
    let short = Superblock::choose(&sound, &sound, BLOCKS - 1).expect_err("a truncated image");
    assert!(matches!(short, FormatError::Corrupt { .. }));
}

#[test]
fn a_hostile_pack_leads_nowhere() {
    let image = new_image(false);
    let layout = image.layout();
    let mut compact = image.checkpoint().clone();
    compact.orphans = (4..20).map(NodeId).collect();
    let mut whole = compact.clone();
    whole.header.flags = 0.into();
    let packs = [&compact, &whole].map(|pack| pack.encode(layout).expect("encoded").concat());
    let mut random = Pcg64::seed_from_u64(2);
    let mut accepted = 0;
    for round in 0..40_000 {
        let mut bytes = packs[round % 2].clone();
        let end = if round % 3 == 0 { bytes.len() - BLOCK_BYTES } else { 192 };
        damage(&mut bytes, 0..end, &mut random);
        seal(&mut bytes[..BLOCK_BYTES]);
        // The footer is where the damaged header says, and where it was.
        let header = bytes[..BLOCK_BYTES].to_vec();
        let claimed = u32::from_le_bytes(*bytes[136..].first_chunk().expect("a field")) as usize;
        for footer in [claimed * BLOCK_BYTES, bytes.len()] {
            if (BLOCK_BYTES..=bytes.len()).contains(&footer) {
                bytes[footer - BLOCK_BYTES..footer].copy_from_slice(&header);
            }
        }
        let Ok(pack) = CheckpointPack::read(&bytes, 512, layout) else { continue };
        accepted += 1;
        for log in Log::ALL {
            let state = pack.header.log(log).expect("a log");
            assert!(layout.block_of(state.segment, state.next).is_some());
        }
        for entry in pack.node_journal(layout).expect("a journal").entries() {
            assert!(layout.node_entry_of(NodeId(entry.node.get())).is_some());
        }
        for entry in pack.segment_journal(layout).expect("a journal").entries() {
            assert!(layout.segment_entry_of(SegmentNumber(entry.segment.get())).is_some());
        }
        assert!(pack.orphans.iter().all(|node| layout.node_entry_of(*node).is_some()));
        assert!(pack.header.valid_blocks <= pack.header.user_blocks);
        pack.encode(layout).expect("what was read can be written");
    }
    assert!(accepted > 1000, "the attack is not all noise: {accepted}");
}

#[test]
fn a_truncated_or_damaged_pack_is_refused() {
    let image = new_image(false);
    let layout = image.layout();
    let sound = image.checkpoint().encode(layout).expect("encoded").concat();
    CheckpointPack::read(&sound, 512, layout).expect("sound");
    for length in (0..sound.len()).step_by(509) {
        CheckpointPack::read(&sound[..length], 512, layout).expect_err("truncated");
    }
    for at in (0..BLOCK_BYTES).chain(sound.len() - BLOCK_BYTES..sound.len()) {
        let mut damaged = sound.clone();
        damaged[at] ^= 4;
        CheckpointPack::read(&damaged, 512, layout).expect_err("damaged header or footer");
    }
}

#[test]
fn hostile_tables_lead_nowhere() {
    let image = new_image(false);
    let layout = image.layout();
    let mut random = Pcg64::seed_from_u64(3);
    let root = layout.node_table_block(0, false).expect("a block");
    let sound = image.writes().find(|(block, _)| *block == u64::from(root.0)).expect("written").1;
    for _ in 0..20_000 {
        let mut bytes = sound;
        damage(&mut bytes, 0..45, &mut random);
        if let Ok(block) = NodeTableBlock::read(&bytes, 0, layout) {
            let nodes = block.entries.iter().skip(NodeId::ROOT.0 as usize);
            for entry in nodes.filter(|entry| entry.address().is_block()) {
                assert!(layout.segment_of(entry.address()).is_some());
                assert!(entry.inode.get() >= 3 && layout.node_entry_of(NodeId(entry.inode.get())).is_some());
            }
        }
        let mut bytes = [0; BLOCK_BYTES];
        damage(&mut bytes, 0..BLOCK_BYTES, &mut random);
        for index in [0, 1, u32::MAX] {
            _ = NodeTableBlock::read(&bytes, index, layout);
            if let Ok(block) = SegmentTableBlock::read(&bytes, index, layout) {
                let first = u64::from(index) * 55;
                let inside = (first..u64::from(layout.main_segments())).zip(&block.entries);
                for (_, entry) in inside {
                    assert!(entry.valid_blocks() <= SEGMENT_BLOCKS && entry.log().is_some());
                }
            }
        }
        _ = SummaryBlock::read(&bytes, Place::Segment(0)).map(|block| block.kind());
    }
}

#[test]
fn each_field_of_a_header_is_judged() {
    let image = new_image(false);
    let layout = image.layout();
    let sound = image.checkpoint().encode(layout).expect("encoded").concat();
    let (main, nodes) = (layout.main_segments(), layout.nodes());
    // Byte, bytes of the field, a value that it cannot have.
    let cases = [
        (8, 8, 0),
        (8, 8, main * 512),
        (16, 8, main * 512),
        (16, 8, 0),
        (24, 4, 0),
        (24, 4, main + 1),
        (28, 4, 1),
        (28, 4, main + 1),
        (32, 4, main + 1),
        (36, 4, main),
        (36, 4, 1),
        (40, 4, u32::MAX),
        (68, 2, 512),
        (84, 4, main),
        (88, 4, 0),
        (116, 2, 512),
        (132, 4, 1 << 14),
        (132, 4, 1 << 20),
        (136, 4, 0),
        (136, 4, 5),
        (136, 4, 7),
        (136, 4, 513),
        (136, 4, u32::MAX),
        (140, 4, 0),
        (140, 4, 2),
        (140, 4, u32::MAX),
        (144, 4, 0),
        (144, 4, nodes + 1),
        (148, 4, 2),
        (152, 4, nodes + 1),
        (156, 4, 0),
        (160, 4, layout.node_bitmap_bytes() + 64),
        (164, 4, 4088),
        (164, 4, u32::MAX),
        (176, 1, 2),
        (181, 1, 255),
    ];
    for (at, length, value) in cases {
        let mut bytes = sound.clone();
        let last = bytes.len() - BLOCK_BYTES;
        let value_bytes = u64::from(value).to_le_bytes();
        bytes[at..at + length].copy_from_slice(&value_bytes[..length]);
        seal(&mut bytes[..BLOCK_BYTES]);
        let header = bytes[..BLOCK_BYTES].to_vec();
        bytes[last..].copy_from_slice(&header);
        let read = CheckpointPack::read(&bytes, 512, layout);
        assert!(read.is_err(), "byte {at}: {value}");
    }
}
