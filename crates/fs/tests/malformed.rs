//! Damaged images with good checksums: every pair of bytes of the structures that a mount depends on is changed,
//! and sealed again so that the change is reached. Whatever comes of it is an error, a read-only mount, or a
//! filesystem that goes on; never a panic, and never without end.

mod support;

use support::{BLOCKS, content, disk, mount, new_image, simulated_with};
use weir_ext4::journal::JournalSuperblock;
use weir_ext4::{
    BLOCK_BYTES, Descriptor, FileType, INODE_BYTES, Inode, JOURNAL_INODE, Layout, ROOT_INODE,
    SUPERBLOCK_BYTES, SUPERBLOCK_OFFSET, Superblock,
};
use weir_fs::{FsError, MountOptions, NewNode};
use weir_storage::{Image, Lba};
use zerocopy::{FromBytes, IntoBytes};

/// What each pair of bytes is set to.
const VALUES: [u16; 4] = [0, 1, 0x7FFF, 0xFFFF];

/// Mounts an image, does a bit of everything, and unmounts; whether all went well.
fn live_with(image: &Image) -> Result<(), FsError> {
    simulated_with(0, async |clock| {
        let disk = disk(&clock, image, true);
        let fs = mount(&clock, &disk, MountOptions::default()).await?;
        let done = async {
            let new = NewNode::new(FileType::Directory, 0o755);
            let directory = fs.mkdir(ROOT_INODE, b"directory", &new).await?;
            let new = NewNode::new(FileType::Regular, 0o644);
            for name in [b"a", b"b"] {
                let inode = fs.create(directory, name, &new).await?;
                fs.write(inode, 0, &content(50_000)).await?;
                fs.fsync(inode).await?;
            }
            fs.unlink(directory, b"a").await?;
            fs.statfs().await;
            Ok(())
        };
        let done = done.await;
        let unmounted = fs.unmount().await;
        done.and(unmounted)
    })
}

/// Changes each pair of `bytes` bytes at `start` of a block in turn, seals, and lives with it. How many changes went
/// unnoticed.
fn change_each(block: u64, start: usize, bytes: usize, seal: impl Fn(&mut [u8])) -> usize {
    let good = new_image(BLOCKS);
    assert_eq!(live_with(&good), Ok(()));
    let mut sealed = good.read(Lba(block));
    seal(&mut sealed);
    assert_eq!(sealed, good.read(Lba(block)), "the seal is the right one");
    let mut unnoticed = 0;
    for at in (start..start + bytes).step_by(2) {
        for value in VALUES {
            let mut content = good.read(Lba(block));
            content[at..at + 2].copy_from_slice(&value.to_le_bytes());
            seal(&mut content);
            if content == good.read(Lba(block)) {
                continue;
            }
            let mut image = good.clone();
            image.write(Lba(block), &content);
            unnoticed += usize::from(live_with(&image).is_ok());
        }
    }
    unnoticed
}

fn superblock(image: &Image) -> Superblock {
    Superblock::read(&image.read(Lba(0))[SUPERBLOCK_OFFSET..]).expect("a superblock")
}

fn layout() -> Layout {
    Layout::new(&superblock(&new_image(BLOCKS))).expect("a layout")
}

fn descriptor() -> Descriptor {
    let (block, range) = layout().descriptor_place(0).expect("a group");
    Descriptor::read(&new_image(BLOCKS).read(Lba(block))[range], 0, &layout()).expect("a descriptor")
}

/// Where an inode of the first group is.
fn place(number: u32) -> (u64, usize) {
    let (block, range) = layout().inode_place(&descriptor(), number - 1);
    (block, range.start)
}

#[test]
fn a_changed_superblock() {
    // The part behind byte 0x280 means nothing.
    let unnoticed = change_each(0, SUPERBLOCK_OFFSET, 0x280, |block| {
        let bytes = &mut block[SUPERBLOCK_OFFSET..SUPERBLOCK_OFFSET + SUPERBLOCK_BYTES];
        let mut superblock = Superblock::read_from_bytes(bytes).expect("the right length");
        superblock.seal();
        bytes.copy_from_slice(superblock.as_bytes());
    });
    assert!((1..1000).contains(&unnoticed), "labels and times do not matter, and sizes do: {unnoticed}");
}

#[test]
fn a_changed_descriptor() {
    let layout = layout();
    let (block, range) = layout.descriptor_place(0).expect("a group");
    change_each(block, range.start, range.len(), |bytes| {
        let mut descriptor = Descriptor::read_from_bytes(&bytes[range.clone()]).expect("the right length");
        descriptor.write(&mut bytes[range.clone()], 0, &layout);
    });
}

#[test]
fn a_changed_inode() {
    let checksums = layout().checksums();
    for number in [ROOT_INODE, JOURNAL_INODE] {
        let (block, start) = place(number);
        change_each(block, start, INODE_BYTES, |bytes| {
            let bytes = &mut bytes[start..start + INODE_BYTES];
            let mut inode = Inode::read_from_bytes(bytes).expect("the right length");
            inode.seal(number, &checksums);
            bytes.copy_from_slice(inode.as_bytes());
        });
    }
}

#[test]
fn a_changed_bitmap() {
    let (layout, descriptor) = (layout(), descriptor());
    let (table, range) = layout.descriptor_place(0).expect("a group");
    for (bitmap, of_blocks) in [(descriptor.block_bitmap(), true), (descriptor.inode_bitmap(), false)] {
        for at in (0..512).step_by(16) {
            for value in VALUES {
                let mut image = new_image(BLOCKS);
                let mut bits = image.read(Lba(bitmap));
                bits[at..at + 2].copy_from_slice(&value.to_le_bytes());
                image.write(Lba(bitmap), &bits);
                let mut block = image.read(Lba(table));
                let mut sealed = descriptor;
                if of_blocks {
                    sealed.seal_block_bitmap(&bits, &layout);
                } else {
                    sealed.seal_inode_bitmap(&bits, &layout);
                }
                sealed.write(&mut block[range.clone()], 0, &layout);
                image.write(Lba(table), &block);
                let _ = live_with(&image);
            }
        }
    }
}

#[test]
fn a_changed_journal_superblock() {
    let good = new_image(BLOCKS);
    // The journal is one extent: its start is in the last words of the root's first entry.
    let (block, start) = place(JOURNAL_INODE);
    let table = good.read(Lba(block));
    let inode = Inode::read_from_bytes(&table[start..start + INODE_BYTES]).expect("the right length");
    let word = |at: usize| u16::from_le_bytes([inode.block_area[at], inode.block_area[at + 1]]);
    let journal = u64::from(word(20)) | u64::from(word(22)) << 16 | u64::from(word(18)) << 32;
    let blocks = (inode.size() / BLOCK_BYTES as u64) as u32;
    JournalSuperblock::decode(&good.read(Lba(journal)), blocks).expect("the journal's superblock");
    change_each(journal, 0, 256, |bytes| {
        let seed = bytes[..1024].to_vec();
        seal_journal(bytes, seed);
    });
}

/// The checksum of a journal superblock is at byte 252, over its 1,024 bytes with zeros there.
fn seal_journal(block: &mut [u8], mut content: Vec<u8>) {
    content[252..256].fill(0);
    let mut sum = !0_u32;
    for byte in content {
        sum ^= u32::from(byte);
        for _ in 0..8 {
            sum = if sum & 1 == 1 { sum >> 1 ^ 0x82F6_3B78 } else { sum >> 1 };
        }
    }
    block[252..256].copy_from_slice(&sum.to_be_bytes());
}
