//! Bytes from an attacker who knows how to seal them: what is accepted leads nowhere outside the filesystem, and
//! nothing panics. Extent trees have their own such test, and so have lists of orphans.

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;
use weir_ext4::orphan::OrphanWork;
use weir_ext4::{
    Descriptor, INODE_BYTES, Inode, Layout, Mkfs, ROOT_INODE, SUPERBLOCK_BYTES, Superblock, bitmap,
    check_extents,
};
use weir_format::{BLOCK_BYTES, FileTime, Stamp};
use zerocopy::{FromBytes, IntoBytes};

/// The structures of a new image of five groups.
struct Sound {
    superblock: Superblock,
    layout: Layout,
    descriptor: Descriptor,
    inode: Inode,
}

impl Sound {
    fn new() -> Self {
        let image = Mkfs::new(150_000, [1; 16], [2; 16], 1_700_000_000).plan().expect("planned");
        let (superblock, layout) = (*image.superblock(), *image.layout());
        let block = |number: u64| {
            let mut writes = image.writes();
            writes.find(|(block, _)| *block == number).expect("written").1
        };
        let (place, range) = layout.descriptor_place(0).expect("a group");
        let descriptor = Descriptor::read(&block(place)[range], 0, &layout).expect("sound");
        let (place, range) = layout.inode_place(&descriptor, ROOT_INODE - 1);
        let inode = Inode::read(&block(place)[range], ROOT_INODE, &layout.checksums()).expect("sound");
        Self { superblock, layout, descriptor, inode }
    }
}

/// Every value of every byte, or every eighth for long structures; then some bytes at once.
fn mutations(bytes: &[u8], random: &mut Pcg64) -> Vec<Vec<u8>> {
    let step = if bytes.len() > 256 { 8 } else { 1 };
    let mut all = Vec::new();
    for at in 0..bytes.len() {
        for value in (0..=255_u8).step_by(step).chain([1, 0xFF, bytes[at].wrapping_add(1)]) {
            let mut mutated = bytes.to_vec();
            mutated[at] = value;
            all.push(mutated);
        }
    }
    for _ in 0..20_000 {
        let mut mutated = bytes.to_vec();
        for _ in 0..random.random_range(2..8) {
            let (at, length) = (random.random_range(0..bytes.len()), random.random_range(1..=8));
            let end = (at + length).min(bytes.len());
            match random.random_range(0..4) {
                0 => mutated[at..end].fill(0),
                1 => mutated[at..end].fill(0xFF),
                _ => random.fill(&mut mutated[at..end]),
            }
        }
        all.push(mutated);
    }
    all
}

#[test]
fn superblocks() {
    let sound = Sound::new();
    let mut random = Pcg64::seed_from_u64(1);
    let (mut accepted, mut refused) = (0, 0);
    for bytes in mutations(sound.superblock.as_bytes(), &mut random) {
        let mut superblock = Superblock::read_from_bytes(&bytes).expect("1,024 bytes");
        superblock.update_checksum();
        let layout = Superblock::read(superblock.as_bytes()).and_then(|read| Layout::new(&read));
        match layout {
            Ok(layout) => {
                accepted += 1;
                visit(&layout, &superblock, &sound.descriptor, &mut random);
            }
            Err(_) => refused += 1,
        }
    }
    assert!(accepted > 5_000 && refused > 5_000, "{accepted} accepted, {refused} refused");
    for length in 0..SUPERBLOCK_BYTES {
        Superblock::read(&sound.superblock.as_bytes()[..length]).expect_err("too short");
    }
}

/// What a layout says lies in its filesystem.
fn visit(layout: &Layout, superblock: &Superblock, descriptor: &Descriptor, random: &mut Pcg64) {
    assert_eq!((layout.blocks(), layout.inodes()), (superblock.blocks(), superblock.inodes.get()));
    let last = layout.groups() - 1;
    for group in [0, last, random.random_range(0..layout.groups())] {
        assert!(layout.first_block(group) < layout.blocks());
        assert!((1..=layout.blocks_per_group()).contains(&layout.blocks_in(group)));
        assert!(layout.base_blocks(group) < layout.blocks_per_group());
        assert_eq!(layout.group_of(layout.first_block(group)), Some(group));
        let flexible = layout.flex_members(group);
        assert!(flexible.contains(&group) && flexible.end <= layout.groups());
        let (block, range) = layout.descriptor_place(group).expect("a group");
        assert!(block < layout.blocks() && range.end <= BLOCK_BYTES);
        let first = layout.inode_at(group, 0);
        assert_eq!(layout.inode_group(first), Ok((group, 0)));
        let mut bytes = [0; 64];
        { *descriptor }.write(&mut bytes, group, layout);
        if let Ok(descriptor) = Descriptor::read(&bytes, group, layout) {
            visit_group(layout, group, &descriptor);
        }
    }
    assert_eq!(layout.blocks_in(layout.groups()), 0);
    layout.descriptor_place(layout.groups()).expect_err("no such group");
    layout.inode_group(0).expect_err("no such inode");
    if let Some(beyond) = layout.inodes().checked_add(1) {
        layout.inode_group(beyond).expect_err("no such inode");
    }
}

/// What a descriptor says lies in the filesystem.
fn visit_group(layout: &Layout, group: u32, descriptor: &Descriptor) {
    for block in [descriptor.block_bitmap(), descriptor.inode_bitmap()] {
        assert!((1..layout.blocks()).contains(&block));
    }
    for index in [0, layout.inodes_per_group() - 1] {
        let (block, range) = layout.inode_place(descriptor, index);
        assert!((1..layout.blocks()).contains(&block) && range.end <= BLOCK_BYTES);
    }
    let mut bits = [0; BLOCK_BYTES];
    layout.fresh_block_bitmap(group, descriptor, &mut bits);
    assert_eq!(
        bitmap::next_clear(&bits, layout.blocks_in(group)..u32::MAX),
        None,
        "no block beyond the group"
    );
    let mut sealed = *descriptor;
    sealed.seal_block_bitmap(&bits, layout);
    sealed.verify_block_bitmap(&bits, group, layout).expect("sealed");
    layout.fresh_inode_bitmap(&mut bits);
    assert_eq!(bitmap::count_clear(&bits, 0..u32::MAX), layout.inodes_per_group());
}

#[test]
fn descriptors() {
    let sound = Sound::new();
    let mut random = Pcg64::seed_from_u64(2);
    let (mut accepted, mut refused) = (0, 0);
    for bytes in mutations(sound.descriptor.as_bytes(), &mut random) {
        let mut descriptor = Descriptor::read_from_bytes(&bytes).expect("64 bytes");
        let group = random.random_range(0..sound.layout.groups());
        let mut sealed = [0; 64];
        descriptor.write(&mut sealed, group, &sound.layout);
        match Descriptor::read(&sealed, group, &sound.layout) {
            Ok(descriptor) => {
                accepted += 1;
                visit_group(&sound.layout, group, &descriptor);
            }
            Err(_) => refused += 1,
        }
    }
    assert!(accepted > 5_000 && refused > 5_000, "{accepted} accepted, {refused} refused");
    for length in 0..64 {
        Descriptor::read(&sound.descriptor.as_bytes()[..length], 0, &sound.layout).expect_err("too short");
    }
}

#[test]
fn inodes() {
    let sound = Sound::new();
    let checksums = sound.layout.checksums();
    let mut random = Pcg64::seed_from_u64(3);
    let (mut accepted, mut refused) = (0, 0);
    for bytes in mutations(sound.inode.as_bytes(), &mut random) {
        let mut inode = Inode::read_from_bytes(&bytes).expect("256 bytes");
        inode.update_checksum(ROOT_INODE, &checksums);
        match Inode::read(inode.as_bytes(), ROOT_INODE, &checksums) {
            Ok(inode) => {
                accepted += 1;
                visit_inode(inode);
            }
            Err(_) => refused += 1,
        }
    }
    assert!(accepted > 50_000 && refused > 200, "{accepted} accepted, {refused} refused");
    for length in 0..INODE_BYTES {
        Inode::read(&sound.inode.as_bytes()[..length], ROOT_INODE, &checksums).expect_err("too short");
    }
}

/// What is set is found again, and areas stay inside.
fn visit_inode(mut inode: Inode) {
    if inode.check_supported(ROOT_INODE).is_ok() {
        assert!(inode.file_type().is_some() && inode.size() <= 1 << 44);
    }
    assert!(inode.attribute_area().len() <= 124);
    assert_eq!(inode.attribute_area().len(), inode.attribute_area_mut().len());
    let work = OrphanWork::of(&inode);
    assert_eq!(work == OrphanWork::Delete, inode.links.get() == 0);
    for stamp in [Stamp::Accessed, Stamp::Changed, Stamp::Modified, Stamp::Created] {
        let time: FileTime = inode.time(stamp);
        if time.nanoseconds < 1_000_000_000 {
            inode.set_time(stamp, time);
            assert_eq!(inode.time(stamp), time, "{stamp:?}");
        }
    }
    let sectors = inode.sectors();
    if sectors < 1 << 48 {
        inode.set_sectors(sectors);
        assert_eq!(inode.sectors(), sectors);
    }
}

#[test]
fn extent_nodes() {
    let mut random = Pcg64::seed_from_u64(4);
    let mut node = [0; BLOCK_BYTES];
    node[..8].copy_from_slice(&[0x0A, 0xF3, 3, 0, 0x54, 1, 0, 0]);
    for (at, start) in [(12, 0_u8), (24, 10), (36, 20)] {
        node[at] = start;
        node[at + 4] = 10;
        node[at + 8] = 100 + start;
    }
    check_extents(9, &node, 1000).expect("a sound leaf");
    let mut refused = 0;
    let bytes = mutations(&node[..48], &mut random);
    for mutated in &bytes {
        let mut node = node;
        node[..48].copy_from_slice(mutated);
        refused += u32::from(check_extents(9, &node, 1000).is_err());
    }
    assert!(refused > 10_000 && (refused as usize) < bytes.len(), "{refused} refused");
    for length in 0..48 {
        check_extents(9, &node[..length], 1000).expect_err("too short");
    }
}
