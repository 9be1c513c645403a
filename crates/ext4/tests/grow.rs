//! Filesystems that grow, before e2fsck.

use std::fs::File;
use std::os::unix::fs::FileExt;

use weir_ext4::{
    Descriptor, Growth, Layout, Mkfs, SUPERBLOCK_OFFSET, Superblock, bitmap, descriptor_copies,
    superblock_copies,
};
use weir_format::{BLOCK_BYTES, FormatError};

use crate::image::Scratch;
use crate::mkfs::{assert_clean, options, write};

/// An image in a sparse file.
struct Image {
    scratch: Scratch,
    file: File,
}

impl Image {
    /// A new one; `None` where the host has no such large files.
    fn make(options: &Mkfs) -> Option<Image> {
        let scratch = write(&options.plan().expect("a plan"), options.blocks)?;
        let file = File::options().read(true).write(true).open(scratch.path()).expect("the file");
        Some(Image { scratch, file })
    }

    fn read(&self, block: u64) -> [u8; BLOCK_BYTES] {
        let mut bytes = [0; BLOCK_BYTES];
        self.file.read_exact_at(&mut bytes, block * BLOCK_BYTES as u64).expect("a block");
        bytes
    }

    fn write(&self, block: u64, bytes: &[u8]) {
        self.file.write_all_at(bytes, block * BLOCK_BYTES as u64).expect("room");
    }

    fn superblock(&self) -> Superblock {
        Superblock::read(&self.read(0)[SUPERBLOCK_OFFSET..]).expect("a superblock")
    }

    fn change_descriptor(&self, layout: &Layout, group: u32, change: impl FnOnce(&mut Descriptor)) {
        let (block, range) = layout.descriptor_place(group).expect("a group");
        let mut bytes = self.read(block);
        let mut descriptor = Descriptor::read(&bytes[range.clone()], group, layout).expect("a descriptor");
        change(&mut descriptor);
        descriptor.write(&mut bytes[range], group, layout);
        self.write(block, &bytes);
    }

    /// Does what a mounted filesystem does in a transaction and around it.
    fn grow(&self, blocks: u64) -> Result<bool, FormatError> {
        self.file.set_len(blocks * BLOCK_BYTES as u64).expect("a longer file");
        let before = self.superblock();
        let Some(growth) = Growth::plan(&before, blocks)? else { return Ok(false) };
        let layout = growth.layout;
        for (block, bytes) in growth.writes() {
            assert!(block >= before.blocks(), "block {block}");
            self.write(block, &bytes);
        }
        let (last, freed) = growth.freed();
        self.change_descriptor(&layout, last, |descriptor| {
            let mut bits = self.read(descriptor.block_bitmap());
            bitmap::clear(&mut bits, freed.clone());
            self.write(descriptor.block_bitmap(), &bits);
            descriptor.set_free_blocks(descriptor.free_blocks() + (freed.end - freed.start));
            descriptor.seal_block_bitmap(&bits, &layout);
        });
        for (group, mut descriptor) in growth.described_with_old() {
            let (block, range) = layout.descriptor_place(group)?;
            let mut bytes = self.read(block);
            descriptor.write(&mut bytes[range], group, &layout);
            self.write(block, &bytes);
        }
        let mut superblock = before;
        growth.update_superblock(&mut superblock);
        self.write(0, &superblock.to_block(0));
        for (block, bytes) in superblock_copies(&superblock, &layout) {
            self.write(block, &bytes);
        }
        for (block, copies) in descriptor_copies(&layout) {
            let bytes = self.read(block);
            copies.into_iter().for_each(|copy| self.write(copy, &bytes));
        }
        Ok(true)
    }
}

#[test]
fn filesystems_grow_by_less_than_a_group_by_some_and_beyond_their_descriptors() {
    let mib = |size: u64| size << 8;
    for checksums in [true, false] {
        for (first, sizes) in [
            (mib(8), [mib(9), mib(100), mib(128) + 700]),
            (mib(100), [mib(128), mib(129), mib(1000)]),
            (mib(256), [mib(300), mib(9000), mib(30_000)]),
            (mib(7000), [mib(8192), mib(8193 + 128), mib(8192 + 3 * 128)]),
        ] {
            let Some(image) = Image::make(&Mkfs { checksums, ..options(first) }) else { return };
            for size in sizes {
                let grown = image.grow(size).unwrap_or_else(|error| panic!("{first} to {size}: {error}"));
                assert!(grown || size - image.superblock().blocks() < mib(64), "{first} to {size}");
                assert_clean(&image.scratch);
            }
        }
    }
}

#[test]
fn a_filesystem_grows_to_a_large_size_and_not_beyond_its_inodes() {
    let Some(image) = Image::make(&options(1 << 16)) else { return };
    let superblock = image.superblock();
    let growth = Growth::plan(&superblock, 1 << 31).expect("8 TiB").expect("it grows");
    assert_eq!(growth.layout.blocks(), 1 << 31);
    // It has an inode for each block.
    let error = Growth::plan(&superblock, 1 << 32).expect_err("too many inodes");
    assert!(matches!(error, FormatError::Full { .. }), "{error}");
    assert!(Growth::plan(&superblock, superblock.blocks()).expect("no growth").is_none());
}
