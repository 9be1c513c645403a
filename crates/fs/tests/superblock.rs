//! Superblocks that are torn or damaged: a write changes one sector of 512 bytes, and a copy makes up for the rest.

use weir_format::FormatError;
use weir_vfs::FsError;

use crate::support::{
    content, disk, image_by_mke2fs, judge, mount, new_image, read_file, simulated, superblock, write_file,
};
use weir_ext4::{ROOT_INODE, SUPERBLOCK_BYTES, SUPERBLOCK_COPIES, SUPERBLOCK_OFFSET, Superblock};
use weir_fs::{Engine, FsMutant, MountOptions};
use weir_storage::{BLOCK_BYTES, Image, Lba, Rules};

/// Two groups: the second has a copy.
const BLOCKS: u64 = 40_000;
/// The sector of the checksum, in block 0.
const SECOND: std::ops::Range<usize> = SUPERBLOCK_OFFSET + 512..SUPERBLOCK_OFFSET + SUPERBLOCK_BYTES;

fn by(mutant: Option<FsMutant>) -> MountOptions {
    MountOptions { rules: Rules::but(mutant), ..MountOptions::default() }
}

/// The image with these bytes of block 0 changed.
fn damaged(image: &Image, at: usize, value: &[u8]) -> Image {
    let mut bytes = image.read(Lba(0));
    bytes[at..at + value.len()].copy_from_slice(value);
    let mut image = image.clone();
    image.write(Lba(0), &bytes);
    image
}

/// Two files, one of them open without a name, after a crash with much in the log.
fn crashed(blocks: u64) -> Image {
    simulated(async |clock| {
        let disk = disk(&clock, &new_image(blocks), true);
        let fs = mount(&clock, &disk, MountOptions::default()).await.expect("mounted");
        write_file(&fs, b"kept", &content(30_000)).await;
        let gone = write_file(&fs, b"gone", &content(50_000)).await;
        fs.open(gone).await.expect("open");
        fs.unlink(ROOT_INODE, b"gone").await.expect("unlinked");
        fs.sync().await.expect("durable");
        disk.image()
    })
}

/// Mounts an image, looks for the file, writes another one, and unmounts: the image, or why not.
fn use_it(image: &Image, options: MountOptions) -> Result<Image, FsError> {
    simulated(async |clock| {
        let disk = disk(&clock, image, true);
        let fs = mount(&clock, &disk, options).await?;
        assert!(read_file(&fs, b"kept").await? == content(30_000), "the file is whole");
        if !options.read_only {
            write_file(&fs, b"new", &content(5000)).await;
        }
        fs.unmount().await?;
        Ok(disk.image())
    })
}

#[test]
fn a_superblock_changes_in_one_sector() {
    let sectors_of = |mutant| {
        simulated(async |clock| {
            let mut images = vec![new_image(2048)];
            let storage = disk(&clock, &images[0], true);
            let fs = mount(&clock, &storage, by(mutant)).await.expect("mounted");
            images.push(storage.image());
            write_file(&fs, b"file", &content(10_000)).await;
            fs.sync().await.expect("durable");
            images.push(storage.image());
            fs.unmount().await.expect("unmounted");
            images.push(storage.image());
            images
        })
    };
    let images = sectors_of(None);
    for pair in images.windows(2) {
        let [one, other] = [0, 1].map(|nth| pair[nth].read(Lba(0)));
        assert!(one[SECOND] == other[SECOND], "the second sector is as it was");
    }
    assert!(images[0].read(Lba(0)) != images[1].read(Lba(0)), "a mount is noted");
    judge(&images[3]);
    // Any mixture of the sectors of two of them is a superblock.
    for (one, other) in images.iter().zip(&images[1..]) {
        let torn = damaged(one, SECOND.start, &other.read(Lba(0))[SECOND]);
        Superblock::read(&torn.read(Lba(0))[SUPERBLOCK_OFFSET..]).expect("a superblock");
    }
    let images = sectors_of(Some(FsMutant::TearsSuperblock));
    let torn = damaged(&images[0], SECOND.start, &images[1].read(Lba(0))[SECOND]);
    Superblock::read(&torn.read(Lba(0))[SUPERBLOCK_OFFSET..]).expect_err("a torn superblock");
}

#[test]
fn superblocks_of_other_programs_stay_whole() {
    for options in [&[][..], &["-O", "^metadata_csum"]] {
        let Some(image) = image_by_mke2fs(options, "64M") else { return };
        let images = simulated(async |clock| {
            let disk = disk(&clock, &image, true);
            let fs = mount(&clock, &disk, MountOptions::default()).await.expect("mounted");
            write_file(&fs, b"file", &content(10_000)).await;
            fs.unmount().await.expect("unmounted");
            disk.image()
        });
        assert!(images.read(Lba(0))[SECOND] == image.read(Lba(0))[SECOND]);
        judge(&images);
    }
}

#[test]
fn a_copy_makes_up_for_a_damaged_superblock() {
    let whole = crashed(BLOCKS);
    // A bit of the checksum, a size that cannot be, and everything behind the identity.
    for (at, value) in
        [(SECOND.end - 1, &[0x5A][..]), (SUPERBLOCK_OFFSET + 0x28, &[1]), (SECOND.start, &[0xFF; 512])]
    {
        let image = damaged(&whole, at, value);
        assert!(Superblock::read(&image.read(Lba(0))[SUPERBLOCK_OFFSET..]).is_err());
        let without = use_it(&image, by(Some(FsMutant::TrustsNoCopy)));
        assert!(matches!(without, Err(FsError::Format(_))), "{:?}", without.err());
        let reading = MountOptions { read_only: true, ..MountOptions::default() };
        assert_eq!(use_it(&image, reading).err(), Some(FsError::NeedsRecovery));
        let left = use_it(&image, MountOptions::default()).expect("a copy makes up for it");
        assert_eq!(superblock(&left).group.get(), 0);
        judge(&left);
        use_it(&left, reading).expect("read again");
    }
    // A log that does not hold the superblock: then the head of the chain of orphans is what is left of it.
    let quiet = simulated(async |clock| {
        let disk = disk(&clock, &new_image(BLOCKS), true);
        let options =
            MountOptions { engine: Some(Engine::Jbd2 { barrier: true }), ..MountOptions::default() };
        let fs = mount(&clock, &disk, options).await.expect("mounted");
        write_file(&fs, b"kept", &content(30_000)).await;
        fs.unmount().await.expect("unmounted");
        disk.image()
    });
    // A head that leads nowhere is passed by.
    for head in [0_u32, 9999] {
        let image = damaged(&quiet, SUPERBLOCK_OFFSET + 0xE8, &head.to_le_bytes());
        let image = damaged(&image, SECOND.end - 1, &[0x5A]);
        judge(&use_it(&image, MountOptions::default()).expect("a copy makes up for it"));
    }
}

#[test]
fn nothing_is_written_over_another_filesystem() {
    let whole = use_it(&crashed(BLOCKS), MountOptions::default()).expect("recovered");
    // Another one is there now, or the identity is another's: the copies are of one that was.
    for (at, value) in [(SUPERBLOCK_OFFSET + 0x38, &[0, 0][..]), (SUPERBLOCK_OFFSET + 0x68, &[9; 16])] {
        let image = damaged(&whole, at, value);
        let refused = use_it(&image, MountOptions::default());
        assert!(matches!(refused, Err(FsError::Format(_))), "{:?}", refused.err());
        // It may be looked at if nothing is left that says which filesystem it was.
        let reading = MountOptions { read_only: true, ..MountOptions::default() };
        assert_eq!(use_it(&image, reading).is_ok(), at == SUPERBLOCK_OFFSET + 0x38);
    }
    // One group has no copy.
    let small = damaged(&crashed(2048), SECOND.end - 1, &[0x5A]);
    let refused = use_it(&small, MountOptions::default());
    assert!(matches!(refused, Err(FsError::Format(FormatError::Checksum { .. }))), "{:?}", refused.err());
    // A copy in the wrong place is none.
    let mut moved = damaged(&whole, SECOND.end - 1, &[0x5A]);
    let mut copy = moved.read(Lba(SUPERBLOCK_COPIES[0]));
    let mut of_other = Superblock::read(&copy[..SUPERBLOCK_BYTES]).expect("a copy");
    of_other.group = 3.into();
    of_other.update_checksum();
    copy[..SUPERBLOCK_BYTES].copy_from_slice(zerocopy::IntoBytes::as_bytes(&of_other));
    assert_eq!(copy.len(), BLOCK_BYTES);
    moved.write(Lba(SUPERBLOCK_COPIES[0]), &copy);
    assert!(use_it(&moved, MountOptions::default()).is_err());
}
