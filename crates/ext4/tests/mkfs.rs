//! New images, before e2fsck and dumpe2fs.

use weir_format::{BLOCK_BYTES, FormatError};

use crate::judge;
use std::collections::BTreeSet;
use std::fs::File;
use std::os::unix::fs::FileExt;

use crate::image::Scratch;
use weir_ext4::{
    Feature, INODE_BYTES, Inode, JOURNAL_INODE, Layout, Mkfs, NewImage, ROOT_INODE, SUPERBLOCK_OFFSET,
    Superblock,
};

pub(crate) fn options(blocks: u64) -> Mkfs {
    Mkfs::new(blocks, *b"sixteen bytes id", *b"another sixteen.", 1_700_000_000)
}

/// Writes an image to a sparse file. `None` where the host's filesystem has no such large files.
pub(crate) fn write(image: &NewImage, blocks: u64) -> Option<Scratch> {
    let scratch = Scratch::new("mkfs");
    let file = File::create(scratch.path()).expect("a scratch file");
    if file.set_len(blocks * BLOCK_BYTES as u64).is_err() {
        eprintln!("skipped: no files of {blocks} blocks here");
        return None;
    }
    let mut seen = BTreeSet::new();
    for (block, bytes) in image.writes() {
        assert!(seen.insert(block), "block {block} is written twice");
        file.write_all_at(&bytes, block * BLOCK_BYTES as u64).expect("room in the temporary directory");
    }
    assert_eq!(seen.first(), Some(&0), "the superblock");
    Some(scratch)
}

/// What e2fsck, which changes nothing, says of a clean image is nothing.
pub(crate) fn assert_clean(scratch: &Scratch) {
    let path = scratch.path().to_str().expect("a plain path");
    let Some(output) = judge::run("e2fsck", &["-fn", path], b"") else { return };
    let told = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "e2fsck: {told}{}", String::from_utf8_lossy(&output.stderr));
    for complaint in ["Fix?", "IGNORED", "ERROR", "WARNING"] {
        assert!(!told.contains(complaint), "e2fsck: {told}");
    }
}

fn check(options: &Mkfs) {
    let image = options.plan().unwrap_or_else(|error| panic!("{} blocks: {error}", options.blocks));
    if let Some(scratch) = write(&image, options.blocks) {
        assert_clean(&scratch);
    }
}

#[test]
fn images_of_many_sizes_are_clean() {
    let mib = |size: u64| size << 8;
    let gib = |size: u64| size << 18;
    let sizes = [
        mib(8),
        mib(8) + 1,
        mib(63) + 17,
        mib(128),
        mib(128) + 49,
        mib(128) + 2500,
        mib(511),
        mib(512),
        mib(2200) + 7,
        gib(2) + 60,
        gib(8),
        gib(40) + 12_345,
    ];
    for blocks in sizes {
        for zeroed in [false, true] {
            check(&Mkfs { zeroed, ..options(blocks) });
        }
    }
}

/// Without checksums no flag excuses a bitmap or a table that was not written, also where nothing reads as zeros.
#[test]
fn images_without_checksums_are_clean() {
    for blocks in [2048, 32_768, 32_768 + 2500, 140_000] {
        for zeroed in [false, true] {
            let plain = Mkfs { checksums: false, zeroed, ..options(blocks) };
            check(&plain);
            let image = plain.plan().expect("planned");
            assert!(!image.superblock().features().has(Feature::METADATA_CSUM));
            if zeroed {
                continue;
            }
            let written: BTreeSet<u64> = image.writes().map(|(block, _)| block).collect();
            let layout = image.layout();
            let tables = layout.groups() * (2 + layout.table_blocks());
            assert!(written.len() > tables as usize, "{blocks} blocks: {} are written", written.len());
        }
    }
}

#[test]
fn a_large_image_is_clean_and_written_quickly() {
    let blocks = 1 << 28;
    let large = Mkfs { zeroed: true, ..options(blocks) };
    let image = large.plan().expect("a terabyte");
    assert!(image.writes().count() < 30_000, "uninitialised groups are not written");
    check(&large);
}

/// From five extents on, the journal's tree has a leaf: 1 GiB, and the largest, of some 320 extents.
#[test]
fn a_large_journal_is_clean() {
    for (blocks, journal) in [(1 << 20, 1 << 18), (1 << 18, 1 << 17), (1 << 25, 10_240_000)] {
        check(&Mkfs { zeroed: true, journal_blocks: Some(journal), ..options(blocks) });
    }
}

#[test]
fn sixteen_tebibytes_are_planned() {
    let image = Mkfs { zeroed: true, ..options(1 << 32) }.plan().expect("the largest");
    let superblock = image.superblock();
    assert_eq!((superblock.blocks(), image.layout().groups()), (1 << 32, 1 << 17));
    assert_eq!(Superblock::read(zerocopy::IntoBytes::as_bytes(superblock)), Ok(*superblock));
}

#[test]
fn options_are_honoured() {
    let all = Mkfs {
        label: "exactly 16 bytes".to_owned(),
        bytes_per_inode: Some(65_536),
        journal_blocks: Some(50_000),
        reserved_percent: 1,
        uid: 70_000,
        gid: 80_000,
        ..options(200_000)
    };
    let image = all.plan().expect("planned");
    let scratch = write(&image, all.blocks).expect("a small file");
    assert_clean(&scratch);
    let bytes = std::fs::read(scratch.path()).expect("the image");
    let superblock = Superblock::read(&bytes[SUPERBLOCK_OFFSET..]).expect("a superblock");
    assert_eq!(&superblock, image.superblock());
    assert_eq!(superblock.label, *b"exactly 16 bytes");
    assert_eq!(superblock.reserved_blocks(), 2000);
    assert_eq!(superblock.inodes.get(), 200_000 / 16 / 7 / 16 * 16 * 7 + 16 * 7);
    let layout = Layout::new(&superblock).expect("a layout");
    let inode = |number: u32| {
        let (group, index) = layout.inode_group(number).expect("an inode");
        let (block, range) = layout.descriptor_place(group).expect("a group");
        let at = block as usize * BLOCK_BYTES;
        let descriptor = weir_ext4::Descriptor::read(&bytes[at..][range], group, &layout).expect("sound");
        let (block, range) = layout.inode_place(&descriptor, index);
        assert_eq!(range.len(), INODE_BYTES);
        let bytes = &bytes[block as usize * BLOCK_BYTES..][range];
        Inode::read(bytes, number, &layout.checksums()).expect("sealed")
    };
    let root = inode(ROOT_INODE);
    assert_eq!((root.uid(), root.gid(), root.mode.get()), (70_000, 80_000, 0o40755));
    assert_eq!(inode(JOURNAL_INODE).size(), 50_000 * BLOCK_BYTES as u64);
    let path = scratch.path().to_str().expect("a plain path");
    if let Some(output) = judge::run("dumpe2fs", &[path], b"") {
        let told = String::from_utf8_lossy(&output.stdout);
        for line in ["exactly 16 bytes", "73697874-6565-6e20-6279-746573206964", "50000", "crc32c"] {
            assert!(told.contains(line), "dumpe2fs does not say {line}: {told}");
        }
    }
}

#[test]
fn what_cannot_be_made_is_refused() {
    let fine = options(20_000);
    fine.plan().expect("planned");
    let invalid = [
        options(2047),
        options((1 << 32) + 1),
        Mkfs { label: "more than 16 bytes".to_owned(), ..fine.clone() },
        Mkfs { reserved_percent: 51, ..fine.clone() },
        Mkfs { bytes_per_inode: Some(4095), ..fine.clone() },
        Mkfs { journal_blocks: Some(1023), ..fine.clone() },
        Mkfs { journal_blocks: Some(10_240_001), ..options(1 << 30) },
    ];
    for options in invalid {
        let error = options.plan().expect_err("out of range");
        assert!(matches!(error, FormatError::Invalid { .. }), "{error}");
    }
    Mkfs { journal_blocks: Some(10_000), ..fine.clone() }.plan().expect("half of it");
    for journal in [10_001, 20_000] {
        let large = Mkfs { journal_blocks: Some(journal), ..fine.clone() };
        let full = large.plan().expect_err("too large a journal");
        assert!(matches!(full, FormatError::Full { .. }), "{full}");
    }
}

/// The judge complains where there is reason to: each of these would be a bug of mkfs.
#[test]
fn a_damaged_image_is_not_clean() {
    let image = options(3000).plan().expect("planned");
    let damages: [(u64, usize); 3] = [(0, SUPERBLOCK_OFFSET + 0x70), (1, 0x0C), (2, 40)];
    for (block, at) in damages {
        let scratch = write(&image, 3000).expect("a small file");
        let file = File::options().read(true).write(true).open(scratch.path()).expect("the image");
        let place = block * BLOCK_BYTES as u64 + at as u64;
        let mut byte = [0];
        file.read_exact_at(&mut byte, place).expect("a byte");
        file.write_all_at(&[byte[0] ^ 0xFF], place).expect("damaged");
        let path = scratch.path().to_str().expect("a plain path");
        if let Some(output) = judge::run("e2fsck", &["-fn", path], b"") {
            assert!(!output.status.success(), "block {block}: {}", String::from_utf8_lossy(&output.stdout));
        }
    }
}
