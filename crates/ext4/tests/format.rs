//! Images made by mkfs.ext4: every structure is decoded, and encoded again to the same bytes. And lists of
//! orphans, made here, before e2fsck.

use weir_format::{BLOCK_BYTES, FileType, FormatError};

use crate::image::filesystem::Filesystem;
use crate::image::{Image, now};
use crate::judge;
use weir_ext4::orphan::{self, OrphanChain, OrphanWork, orphans_in};
use weir_ext4::{
    BLOCK_AREA_BYTES, Descriptor, Extent, ExtentTree, Feature, INODE_BYTES, Inode, Kind, Layout,
    SUPERBLOCK_BYTES, SUPERBLOCK_OFFSET, Superblock, bitmap, group_flags, inode_flags,
};
use zerocopy::IntoBytes;

/// Feature sets of mkfs.ext4 within the subset.
const FEATURES: [&[&str]; 9] = [
    &[],
    &["-O", "orphan_file"],
    &["-O", "^metadata_csum"],
    &["-O", "^metadata_csum,^uninit_bg,^resize_inode,^flex_bg"],
    &["-O", "^64bit,^flex_bg"],
    &["-O", "metadata_csum_seed,^has_journal,^sparse_super,^resize_inode"],
    &["-O", "^dir_index,^ext_attr,^huge_file,^dir_nlink", "-g", "8192"],
    &["-O", "uninit_bg,metadata_csum", "-G", "2", "-N", "5000"],
    &["-O", "meta_bg,^resize_inode"],
];

#[test]
fn what_mkfs_writes_is_decoded_and_encoded_to_the_same_bytes() {
    for features in FEATURES {
        let Some(made) = Image::make(&[features, &["-E", "lazy_itable_init=0"]].concat(), "140M") else {
            return;
        };
        let mut again = made.clone();
        encode_again(&made, &mut again);
        let different = (0..made.blocks()).find(|block| made.block(*block) != again.block(*block));
        assert_eq!(different, None, "{features:?}");
    }
}

/// Decodes all structures of `made`, and encodes them to `again`.
fn encode_again(made: &Image, again: &mut Image) {
    let mut superblock = made.superblock();
    let layout = Layout::new(&superblock).expect("a layout");
    superblock.set_features(superblock.features());
    superblock.set_free_blocks(superblock.free_blocks());
    superblock.set_blocks(superblock.blocks(), superblock.reserved_blocks());
    again.set_superblock(superblock);
    let filesystem = Filesystem::new(made.clone());
    for group in 0..layout.groups() {
        let (block, range) = layout.descriptor_place(group).expect("a group");
        let mut descriptor =
            Descriptor::read(&made.block(block)[range.clone()], group, &layout).expect("sound");
        check_bitmaps(made, &layout, group, &descriptor);
        descriptor.set_free_blocks(descriptor.free_blocks());
        descriptor.set_free_inodes(descriptor.free_inodes());
        descriptor.set_directories(descriptor.directories());
        descriptor.set_unused_inodes(descriptor.unused_inodes());
        if !descriptor.has_flag(group_flags::BLOCKS_UNINITIALISED) {
            descriptor.seal_block_bitmap(made.block(descriptor.block_bitmap()), &layout);
        }
        if !descriptor.has_flag(group_flags::INODES_UNINITIALISED) {
            descriptor.seal_inode_bitmap(made.block(descriptor.inode_bitmap()), &layout);
        }
        descriptor.write(&mut again.block_mut(block)[range], group, &layout);
        for index in 0..layout.inodes_per_group() {
            let (block, range) = layout.inode_place(&descriptor, index);
            let number = layout.inode_at(group, index);
            let bytes = &made.block(block)[range.clone()];
            let mut inode =
                Inode::read(bytes, number, &layout.checksums()).unwrap_or_else(|error| panic!("{error}"));
            if bytes == [0; INODE_BYTES] {
                continue;
            }
            through_setters(&mut inode);
            if inode.has_flag(inode_flags::EXTENTS) {
                inode.block_area = built_again(&filesystem, number, &inode);
            }
            inode.update_checksum(number, &layout.checksums());
            again.block_mut(block)[range].copy_from_slice(inode.as_bytes());
        }
    }
}

fn through_setters(inode: &mut Inode) {
    use weir_format::Stamp;
    for stamp in [Stamp::Accessed, Stamp::Changed, Stamp::Modified, Stamp::Created] {
        inode.set_time(stamp, inode.time(stamp));
    }
    inode.set_owner(inode.uid(), inode.gid());
    inode.set_size(inode.size());
    inode.set_sectors(inode.sectors());
    inode.set_attribute_block(inode.attribute_block());
    inode.set_version(inode.version());
}

/// The extent tree of an inode, made anew of its extents.
fn built_again(filesystem: &Filesystem, number: u32, inode: &Inode) -> [u8; BLOCK_AREA_BYTES] {
    let (mut old, mut new) = (inode.block_area, ExtentTree::<Filesystem>::empty_root());
    let limit = filesystem.layout.blocks();
    let old = ExtentTree::new(filesystem, &mut old, number, 0, limit);
    let mut tree = ExtentTree::new(filesystem, &mut new, number, 0, limit);
    let mut from = 0;
    while let Some(extent) = now(old.next(from)).expect("a sound tree") {
        now(tree.insert(extent)).expect("room in the root");
        from = extent.end();
    }
    new
}

/// The counts of a group are those of its bitmaps, and a bitmap that was never written is what we would make it.
fn check_bitmaps(made: &Image, layout: &Layout, group: u32, descriptor: &Descriptor) {
    let mut bits = [0; BLOCK_BYTES];
    if descriptor.has_flag(group_flags::BLOCKS_UNINITIALISED) {
        layout.fresh_block_bitmap(group, descriptor, &mut bits);
    } else {
        bits = *made.block(descriptor.block_bitmap());
        descriptor.verify_block_bitmap(&bits, group, layout).expect("its checksum");
    }
    let free = bitmap::count_clear(&bits, 0..layout.blocks_in(group));
    assert_eq!(free, descriptor.free_blocks(), "free blocks of group {group}");
    if descriptor.has_flag(group_flags::INODES_UNINITIALISED) {
        layout.fresh_inode_bitmap(&mut bits);
    } else {
        bits = *made.block(descriptor.inode_bitmap());
        descriptor.verify_inode_bitmap(&bits, group, layout).expect("its checksum");
    }
    let free = bitmap::count_clear(&bits, 0..layout.inodes_per_group());
    assert_eq!(free, descriptor.free_inodes(), "free inodes of group {group}");
}

#[test]
fn copies_of_the_superblock_are_where_they_belong() {
    for features in FEATURES {
        let Some(made) = Image::make(&[&["-g", "1024"], features].concat(), "70M") else { return };
        let layout = Layout::new(&made.superblock()).expect("a layout");
        for group in 1..layout.groups() {
            let bytes = &made.block(layout.first_block(group))[..SUPERBLOCK_BYTES];
            let copy = Superblock::read(bytes).is_ok_and(|copy| u32::from(copy.group.get()) == group);
            assert_eq!(copy, layout.has_superblock(group), "{features:?}, group {group}");
        }
    }
}

#[test]
fn features_outside_the_subset_are_refused_by_name() {
    let outside: [(&[&str], &str); 10] = [
        (&["-O", "bigalloc"], "bigalloc"),
        (&["-O", "inline_data"], "inline_data"),
        (&["-O", "encrypt"], "encrypt"),
        (&["-O", "casefold"], "casefold"),
        (&["-O", "verity"], "verity"),
        (&["-O", "quota"], "quota"),
        (&["-O", "project,quota"], "quota"),
        (&["-O", "ea_inode"], "ea_inode"),
        (&["-O", "large_dir"], "large_dir"),
        (&["-O", "mmp"], "mmp"),
    ];
    for (options, name) in outside {
        let Some(made) = Image::make(options, "64M") else { return };
        let refused = Superblock::read(&made.bytes[SUPERBLOCK_OFFSET..]);
        assert_eq!(refused, Err(FormatError::Feature { name }), "{options:?}");
    }
    for blocks in ["1024", "2048"] {
        let Some(made) = Image::make(&["-b", blocks], "64M") else { return };
        let refused = Superblock::read(&made.bytes[SUPERBLOCK_OFFSET..]).map(drop).unwrap_err().to_string();
        let wanted = format!("the filesystem has blocks of {blocks} bytes; only 4096 is supported");
        assert!(refused.starts_with(&wanted), "{refused}");
    }
    let Some(made) = Image::make(&["-I", "128"], "64M") else { return };
    let refused = Superblock::read(&made.bytes[SUPERBLOCK_OFFSET..]).map(drop).unwrap_err().to_string();
    assert!(refused.contains("inodes of another size than 256"), "{refused}");
}

/// The document has a row for each feature, with its set and what becomes of it.
#[test]
fn the_document_names_every_feature() {
    let document = include_str!("../../../docs/format/fs.md");
    let rows =
        |name: &str| document.lines().filter(|line| line.starts_with(&format!("| `{name}` |"))).count();
    for feature in Feature::SUPPORTED {
        assert_eq!(rows(feature.name()), 1, "{}", feature.name());
    }
    for feature in Feature::REFUSED {
        let name = feature.name();
        let row = document.lines().find(|line| line.starts_with(&format!("| `{name}` |")));
        assert!(row.is_some_and(|row| row.ends_with("| refused |")), "{name}");
    }
}

/// A file whose blocks are scattered over a whole image: its tree has inner nodes, and every block of it counts.
#[test]
fn a_fragmented_file_is_clean() {
    let Some(made) = Image::make(&["-m", "0"], "64M") else { return };
    for (step, holes) in [(2, true), (3, false)] {
        let filesystem = Filesystem::new(made.clone());
        let number = scattered_file(&filesystem, step, holes);
        let inode = filesystem.inode(number);
        assert_eq!(inode.block_area[6], 2, "levels of inner nodes");
        let image = filesystem.finish();
        assert_clean(&image, true);
        // The judge can complain: without its last entry, the file has too many blocks.
        let filesystem = Filesystem::new(image);
        let mut inode = filesystem.inode(number);
        inode.set_sectors(inode.sectors() - 8);
        filesystem.set_inode(number, inode);
        assert_clean(&filesystem.finish(), false);
    }
}

/// Makes a file of single blocks, `step` apart on the disk, in an order that is not that of the file.
fn scattered_file(filesystem: &Filesystem, step: usize, holes: bool) -> u32 {
    use weir_ext4::Blocks;
    let number = filesystem.create(FileType::Regular);
    filesystem.link(2, b"scattered", number, FileType::Regular);
    let mut inode = filesystem.inode(number);
    let generation = inode.generation.get();
    let data: Vec<u64> =
        (0..9000).map(|_| now(filesystem.allocate(Kind::SymlinkTarget, 0)).expect("room")).collect();
    // Every `step`th block is the file's; the rest is behind them, and unwritten.
    let (mine, rest): (Vec<_>, Vec<_>) = data.iter().enumerate().partition(|(at, _)| at % step == 0);
    let limit = filesystem.layout.blocks();
    let mut tree = ExtentTree::new(filesystem, &mut inode.block_area, number, generation, limit);
    let spread = if holes { 2 } else { 1 };
    let count = mine.len() as u32;
    for nth in 0..count {
        // 1009 is prime to the count, so every block has its turn.
        let logical = nth * 1009 % count;
        let physical = *mine[logical as usize].1;
        let extent = Extent { logical: logical * spread, length: 1, physical, written: nth % 7 > 0 };
        now(tree.insert(extent)).expect("room");
    }
    let end = count * spread;
    for (nth, (_, physical)) in rest.iter().enumerate() {
        let extent = Extent { logical: end + nth as u32, length: 1, physical: **physical, written: false };
        now(tree.insert(extent)).expect("room");
    }
    now(tree.mark(0..end / 3, true)).expect("room");
    let nodes = tree.nodes_gained().cast_unsigned();
    inode.set_sectors(8 * (data.len() as u64 + nodes));
    // Behind a file's end e2fsck accepts unwritten extents, but not inner nodes that reach there.
    inode.set_size((u64::from(end) + rest.len() as u64) * BLOCK_BYTES as u64);
    filesystem.set_inode(number, inode);
    number
}

fn assert_clean(image: &Image, clean: bool) {
    let scratch = image.store("judged");
    let path = scratch.path().to_str().expect("a plain path");
    let Some(output) = judge::run("e2fsck", &["-fn", path], b"") else { return };
    let told = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.success() && !told.contains("Fix?"), clean, "{told}");
}

/// Makes files without a name, and one that is to be truncated.
fn orphans(filesystem: &Filesystem) -> Vec<u32> {
    let mut numbers: Vec<u32> = (0..4).map(|_| filesystem.create(FileType::Regular)).collect();
    for (nth, number) in numbers.iter().enumerate() {
        let mut inode = filesystem.inode(*number);
        inode.links = u16::from(nth == 2).into();
        filesystem.set_inode(*number, inode);
    }
    filesystem.link(2, b"truncated", numbers[2], FileType::Regular);
    numbers.reverse();
    numbers
}

/// e2fsck does with the orphans what recovery would, in this order, and finds nothing else.
fn assert_orphans(image: &Image, numbers: &[u32]) {
    let scratch = image.store("orphans");
    let path = scratch.path().to_str().expect("a plain path");
    let Some(output) = judge::run("e2fsck", &["-fp", path], b"") else { return };
    let told = String::from_utf8_lossy(&output.stdout);
    let found: Vec<&str> =
        told.lines().filter_map(|line| line.split("ing orphaned inode ").nth(1)?.split(' ').next()).collect();
    let expected: Vec<String> = numbers.iter().map(u32::to_string).collect();
    assert_eq!(found, expected, "{told}");
    assert_clean(&Image::load(scratch.path()), true);
}

#[test]
fn a_chain_of_orphans_is_what_e2fsck_takes_it_for() {
    let Some(made) = Image::make(&[], "64M") else { return };
    let filesystem = Filesystem::new(made);
    let numbers = orphans(&filesystem);
    let mut superblock = filesystem.image.borrow().superblock();
    for number in numbers.iter().rev() {
        let mut inode = filesystem.inode(*number);
        orphan::enter(&mut superblock, *number, &mut inode);
        filesystem.set_inode(*number, inode);
    }
    filesystem.image.borrow_mut().set_superblock(superblock);
    let mut chain = OrphanChain::new(&superblock);
    let mut found = Vec::new();
    while let Some(number) = chain.number().expect("a sound chain") {
        let inode = filesystem.inode(number);
        let truncated = number == numbers[1];
        let work = if truncated { OrphanWork::Truncate } else { OrphanWork::Delete };
        assert_eq!(OrphanWork::of(&inode), work);
        chain.follow(&inode);
        found.push(number);
    }
    assert_eq!(found, numbers);
    assert_orphans(&filesystem.finish(), &numbers);
}

#[test]
fn an_orphan_file_is_read_as_e2fsck_reads_it() {
    let Some(made) = Image::make(&["-O", "orphan_file"], "64M") else { return };
    let filesystem = Filesystem::new(made);
    let mut superblock = filesystem.image.borrow().superblock();
    let number = superblock.orphan_file_inode.get();
    let mut inode = filesystem.inode(number);
    assert!(inode.has_flag(inode_flags::EXTENTS));
    let kind = Kind::OrphanFile { inode: number, generation: inode.generation.get() };
    let blocks = (inode.size() / BLOCK_BYTES as u64) as u32;
    let limit = filesystem.layout.blocks();
    let tree = ExtentTree::new(&filesystem, &mut inode.block_area, number, 0, limit);
    let places: Vec<u64> = (0..blocks)
        .map(|at| {
            let extent = now(tree.lookup(at)).expect("a sound tree").expect("no holes");
            extent.physical + u64::from(at - extent.logical)
        })
        .collect();
    let checksums = superblock.checksums();
    for place in &places {
        let image = filesystem.image.borrow();
        checksums.verify(kind, *place, image.block(*place)).expect("sealed by mkfs.ext4");
        assert_eq!(orphans_in(*place, image.block(*place), &superblock), Ok(vec![]));
    }
    let numbers = orphans(&filesystem);
    {
        let mut image = filesystem.image.borrow_mut();
        let bytes = image.block_mut(places[1]);
        for (at, number) in numbers.iter().enumerate() {
            bytes[at * 40..at * 40 + 4].copy_from_slice(&number.to_le_bytes());
        }
        checksums.update_checksum(kind, places[1], bytes).expect("a block of the orphan file");
        assert_eq!(orphans_in(places[1], image.block(places[1]), &superblock), Ok(numbers.clone()));
        superblock.set_features(superblock.features().with(Feature::ORPHAN_PRESENT, true));
        image.set_superblock(superblock);
    }
    assert_orphans(&filesystem.finish(), &numbers);
}
