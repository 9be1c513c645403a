//! Mounting and unmounting: our images and those of mkfs.ext4, on every engine; what is refused, and why.

use std::rc::Rc;

use weir_format::{FileType, FormatError};
use weir_vfs::{FsError, NewNode, ReadOnlyReason};

use crate::support::{
    self, BLOCKS, content, disk, disk_for, flash, image_by_mke2fs, image_of_flash, judge, mount, new_image,
    plan, prefix_disk, read_file, simulated, store, verdict, write_file,
};
use weir_ext4::{Descriptor, Layout, Mkfs, ROOT_INODE, SUPERBLOCK_BYTES, SUPERBLOCK_OFFSET, Superblock};
use weir_fs::{BarrierFs, Conflicts, Engine, JournalMode, MountOptions};
use weir_storage::{AdversaryDisk, AdversaryOptions, Capabilities, Image, Lba, Storage};
use zerocopy::IntoBytes;

const ENGINES: [Engine; 5] = [
    Engine::Dual { conflicts: Conflicts::Copy },
    Engine::Dual { conflicts: Conflicts::List },
    Engine::Jbd2 { barrier: true },
    Engine::Jbd2 { barrier: false },
    Engine::Prefix,
];

fn with(engine: Engine, mode: JournalMode) -> MountOptions {
    MountOptions { engine: Some(engine), mode, ..MountOptions::default() }
}

fn read_only() -> MountOptions {
    MountOptions { read_only: true, ..MountOptions::default() }
}

/// Changes the superblock of an image, and seals it.
fn change_superblock(image: &mut Image, change: impl FnOnce(&mut Superblock)) {
    let mut block = image.read(Lba(0));
    let bytes = SUPERBLOCK_OFFSET..SUPERBLOCK_OFFSET + SUPERBLOCK_BYTES;
    let mut superblock = Superblock::read(&block[bytes.clone()]).expect("a superblock");
    change(&mut superblock);
    superblock.update_checksum();
    block[bytes].copy_from_slice(superblock.as_bytes());
    image.write(Lba(0), &block);
}

/// Makes directories with files in them, enough to allocate from several groups.
async fn populate(fs: &BarrierFs) {
    for directory in 0..20_u32 {
        let name = format!("directory {directory}");
        let new = NewNode::new(FileType::Directory, 0o755);
        let inode = fs.mkdir(ROOT_INODE, name.as_bytes(), &new).await.expect("made");
        for file in 0..20_u32 {
            let name = format!("file {file}");
            let new = NewNode::new(FileType::Regular, 0o600);
            let inode = fs.create(inode, name.as_bytes(), &new).await.expect("created");
            fs.write(inode, 0, &content(1000 * file as usize)).await.expect("written");
        }
    }
}

#[test]
fn what_was_written_is_there_after_unmount() {
    for engine in ENGINES {
        for mode in [JournalMode::Writeback, JournalMode::Ordered, JournalMode::Data] {
            let left = simulated(async |clock| {
                let disk = disk_for(&clock, &new_image(BLOCKS), engine);
                let fs = mount(&clock, &disk, with(engine, mode)).await.expect("mounted");
                assert_eq!(fs.statistics().engine, Some(engine));
                let inode = write_file(&fs, b"a", &content(100_000)).await;
                fs.fsync(inode).await.expect("durable");
                populate(&fs).await;
                assert_eq!(read_file(&fs, b"a").await, Ok(content(100_000)));
                fs.unmount().await.expect("unmounted");
                let fs = mount(&clock, &disk, with(engine, mode)).await.expect("mounted again");
                assert_eq!(read_file(&fs, b"a").await, Ok(content(100_000)));
                fs.unmount().await.expect("unmounted again");
                disk.image()
            });
            judge(&left);
        }
    }
}

#[test]
fn an_emulated_flash_device_carries_it() {
    let left = simulated(async |clock| {
        let device = flash(&clock, BLOCKS);
        BarrierFs::make(&*device, &plan(BLOCKS)).await.expect("made");
        let fs = mount(&clock, &device, MountOptions::default()).await.expect("mounted");
        assert_eq!(fs.statistics().engine, Some(ENGINES[0]), "barriers are used where they are");
        let inode = write_file(&fs, b"a", &content(1_000_000)).await;
        fs.fsync(inode).await.expect("durable");
        fs.unmount().await.expect("unmounted");
        image_of_flash(&device)
    });
    judge(&left);
}

#[test]
fn without_barriers_the_legacy_path_is_taken() {
    simulated(async |clock| {
        let disk = disk(&clock, &new_image(BLOCKS), false);
        let dual = mount(&clock, &disk, with(ENGINES[0], JournalMode::Ordered)).await;
        assert_eq!(dual.err(), Some(FsError::NoBarriers));
        let fs = mount(&clock, &disk, MountOptions::default()).await.expect("mounted");
        assert_eq!(fs.statistics().engine, Some(Engine::Jbd2 { barrier: true }));
        fs.unmount().await.expect("unmounted");
    });
}

/// The engine for prefix devices says what to take instead.
#[test]
fn a_prefix_engine_is_refused_where_order_of_receipt_is_not_kept() {
    simulated(async |clock| {
        for barriers in [false, true] {
            let disk = disk(&clock, &new_image(BLOCKS), barriers);
            let refused = mount(&clock, &disk, with(Engine::Prefix, JournalMode::Ordered)).await;
            let refused = refused.err().expect("refused");
            assert_eq!(refused, FsError::NoPrefix);
            let told = refused.to_string();
            assert!(["engine prefix", "dual", "jbd2"].iter().all(|name| told.contains(name)), "{told}");
        }
        let disk = prefix_disk(&clock, &new_image(BLOCKS));
        let fs = mount(&clock, &disk, with(Engine::Prefix, JournalMode::Ordered)).await.expect("mounted");
        assert_eq!(fs.statistics().engine, Some(Engine::Prefix));
        fs.unmount().await.expect("unmounted");
    });
}

/// The engine flush-ahead says what it lacks, and what to take instead.
#[test]
fn flush_ahead_is_refused_where_packed_writes_or_fua_are_not() {
    simulated(async |clock| {
        let able = support::capabilities(true);
        for capabilities in [Capabilities { packed: false, ..able }, Capabilities { fua: false, ..able }] {
            let options = AdversaryOptions { capabilities, ..AdversaryOptions::default() };
            let disk = AdversaryDisk::from_image(&clock, options, &new_image(BLOCKS));
            let refused = mount(&clock, &disk, with(Engine::FlushAhead, JournalMode::Ordered)).await;
            let refused = refused.err().expect("refused");
            assert_eq!(refused, FsError::NoPacked);
            let told = refused.to_string();
            let words = ["engine flush-ahead", "packed", "FUA", "dual", "jbd2"];
            assert!(words.iter().all(|name| told.contains(name)), "{told}");
        }
        let disk = disk(&clock, &new_image(BLOCKS), false);
        let fs = mount(&clock, &disk, with(Engine::FlushAhead, JournalMode::Ordered)).await.expect("mounted");
        assert_eq!(fs.statistics().engine, Some(Engine::FlushAhead));
        fs.unmount().await.expect("unmounted");
    });
}

#[test]
fn the_judge_notices_a_wrong_bit() {
    let mut image = new_image(BLOCKS);
    assert_eq!(verdict(store(&image).path()), Ok(()));
    change_superblock(&mut image, |superblock| superblock.set_free_blocks(superblock.free_blocks() - 1));
    if support::run("e2fsck", &["-V"]).is_some() {
        verdict(store(&image).path()).expect_err("a wrong total");
    }
}

#[test]
fn images_of_mke2fs_are_mounted_and_stay_clean() {
    let features: [&[&str]; 8] = [
        &[],
        &["-O", "orphan_file,metadata_csum_seed"],
        &["-O", "^metadata_csum,^uninit_bg"],
        &["-O", "^64bit,^resize_inode"],
        &["-O", "^flex_bg,^dir_index,^dir_nlink"],
        &["-O", "^huge_file,^extra_isize,^sparse_super,^resize_inode"],
        &["-E", "lazy_itable_init=1,lazy_journal_init=1"],
        &["-G", "4", "-g", "4096", "-N", "4096", "-J", "size=8"],
    ];
    for options in features {
        let Some(image) = image_by_mke2fs(options, "200M") else { return };
        let left = simulated(async |clock| {
            let disk = disk(&clock, &image, true);
            let fs = mount(&clock, &disk, MountOptions::default()).await.unwrap_or_else(|error| {
                panic!("{options:?}: {error}");
            });
            populate(&fs).await;
            fs.unmount().await.expect("unmounted");
            disk.image()
        });
        if let Err(complaint) = verdict(store(&left).path()) {
            panic!("{options:?}: {complaint}");
        }
    }
}

#[test]
fn what_is_not_supported_is_named() {
    let refused: [(&[&str], &str); 8] = [
        (&["-O", "inline_data"], "inline_data"),
        (&["-O", "bigalloc"], "bigalloc"),
        (&["-O", "casefold"], "casefold"),
        (&["-O", "encrypt"], "encrypt"),
        (&["-O", "quota"], "quota"),
        (&["-O", "ea_inode"], "ea_inode"),
        (&["-O", "mmp"], "mmp"),
        (&["-O", "^has_journal"], "has_journal"),
    ];
    for (options, name) in refused {
        let Some(image) = image_by_mke2fs(options, "64M") else { return };
        let error = simulated(async |clock| {
            let disk = disk(&clock, &image, true);
            mount(&clock, &disk, MountOptions::default()).await.err().expect("refused")
        });
        assert!(error.to_string().contains(name), "{name}: {error}");
    }
}

#[test]
fn without_a_journal_everything_can_be_read() {
    let Some(image) = image_by_mke2fs(&["-O", "^has_journal"], "64M") else { return };
    simulated(async |clock| {
        let disk = disk(&clock, &image, true);
        let fs = mount(&clock, &disk, read_only()).await.expect("mounted");
        assert!(fs.lookup(ROOT_INODE, b"lost+found").await.is_ok());
        fs.unmount().await.expect("unmounted");
        assert_eq!(disk.image().hash(), image.hash());
    });
}

#[test]
fn a_read_only_mount_changes_nothing() {
    simulated(async |clock| {
        let image = new_image(BLOCKS);
        let disk = disk(&clock, &image, true);
        let fs = mount(&clock, &disk, read_only()).await.expect("mounted");
        assert_eq!(fs.read_only(), Some(ReadOnlyReason::Mounted));
        let new = NewNode::new(FileType::Regular, 0o644);
        let refused = fs.create(ROOT_INODE, b"a", &new).await;
        assert_eq!(refused, Err(FsError::ReadOnly(ReadOnlyReason::Mounted)));
        fs.unmount().await.expect("unmounted");
        assert_eq!(disk.image().hash(), image.hash());
    });
}

#[test]
fn nothing_is_changed_after_unmount() {
    simulated(async |clock| {
        let disk = disk(&clock, &new_image(BLOCKS), true);
        let fs = mount(&clock, &disk, MountOptions::default()).await.expect("mounted");
        fs.clone().unmount().await.expect("unmounted");
        let new = NewNode::new(FileType::Regular, 0o644);
        let refused = fs.create(ROOT_INODE, b"a", &new).await;
        assert_eq!(refused, Err(FsError::ReadOnly(ReadOnlyReason::Unmounted)));
        assert_eq!(fs.unmount().await, Err(FsError::ReadOnly(ReadOnlyReason::Unmounted)));
    });
}

#[test]
fn noted_errors_make_it_read_only() {
    let mut image = new_image(BLOCKS);
    change_superblock(&mut image, |superblock| superblock.set_state(true, true));
    simulated(async |clock| {
        let disk = disk(&clock, &image, true);
        let fs = mount(&clock, &disk, MountOptions::default()).await.expect("mounted");
        assert!(matches!(fs.read_only(), Some(ReadOnlyReason::Damaged(_))));
        fs.unmount().await.expect("unmounted");
        assert_eq!(disk.image().hash(), image.hash());
    });
}

#[test]
fn a_filesystem_larger_than_its_storage_is_refused() {
    let mut image = Image::zeroed(BLOCKS - 1, 4096);
    let whole = new_image(BLOCKS);
    for block in 0..BLOCKS - 1 {
        image.write(Lba(block), &whole.read(Lba(block)));
    }
    simulated(async |clock| {
        let disk = disk(&clock, &image, true);
        let error = mount(&clock, &disk, MountOptions::default()).await.err();
        assert!(matches!(error, Some(FsError::Format(FormatError::Corrupt { .. }))), "{error:?}");
        let made = BarrierFs::make(&*disk, &plan(BLOCKS)).await;
        assert!(matches!(made, Err(FsError::Format(FormatError::Invalid { .. }))), "{made:?}");
    });
}

#[test]
fn nothing_and_noise_are_refused() {
    simulated(async |clock| {
        let mut image = Image::zeroed(BLOCKS, 4096);
        for _ in 0..2 {
            let disk = disk(&clock, &image, true);
            assert!(mount(&clock, &disk, MountOptions::default()).await.is_err());
            image.write(Lba(0), &content(1 << 20));
        }
    });
}

#[test]
fn the_size_of_a_filesystem_is_told() {
    simulated(async |clock| {
        let disk = disk(&clock, &new_image(BLOCKS), true);
        let fs = mount(&clock, &disk, MountOptions::default()).await.expect("mounted");
        let before = fs.statfs().await;
        assert_eq!((before.block_bytes, before.name_bytes_max), (4096, 255));
        assert!(before.blocks < BLOCKS && before.free_blocks < before.blocks);
        // The reserve for the superuser, and that for extent trees.
        assert_eq!(before.free_blocks - before.available_blocks, BLOCKS / 20 + BLOCKS / 50);
        write_file(&fs, b"a", &content(40_960)).await;
        let after = fs.statfs().await;
        assert_eq!(before.free_blocks - after.free_blocks, 10);
        assert_eq!(before.free_inodes - after.free_inodes, 1);
        fs.unlink(ROOT_INODE, b"a").await.expect("unlinked");
        assert_eq!(fs.statfs().await, before);
        fs.unmount().await.expect("unmounted");
    });
}

#[test]
fn a_mount_is_noted_in_the_superblock() {
    simulated(async |clock| {
        let device = disk(&clock, &new_image(BLOCKS), true);
        let superblock = || {
            let block = device.image().read(Lba(0));
            Superblock::read(&block[SUPERBLOCK_OFFSET..]).expect("a superblock")
        };
        let needs = |superblock: &Superblock| superblock.features().has(weir_ext4::Feature::NEEDS_RECOVERY);
        let fs = mount(&clock, &device, MountOptions::default()).await.expect("mounted");
        assert!(needs(&superblock()));
        write_file(&fs, b"a", &content(10)).await;
        fs.unmount().await.expect("unmounted");
        let left = superblock();
        assert!(!needs(&left));
        assert_eq!(left.mounts.get(), 1);
        assert_eq!(left.free_inodes.get(), left.inodes.get() - 12);
    });
}

#[test]
fn any_storage_can_be_made_a_filesystem() {
    simulated(async |clock| {
        let mut image = Image::zeroed(BLOCKS, 4096);
        image.write(Lba(0), &content(1 << 24));
        let disk = disk(&clock, &image, false);
        let noisy = Mkfs { zeroed: false, ..plan(BLOCKS) };
        BarrierFs::make(&*disk, &noisy).await.expect("made");
        judge(&disk.image());
        let storage: Rc<dyn Storage> = Rc::clone(&disk) as Rc<dyn Storage>;
        let fs = BarrierFs::mount(&clock, storage, MountOptions::default()).await.expect("mounted");
        populate(&fs).await;
        fs.unmount().await.expect("unmounted");
        judge(&disk.image());
    });
}

/// What a disk held before is in an inode table until its blocks are first used, and in no block that is.
#[test]
fn inode_tables_are_cleared_block_by_block_as_they_are_used() {
    let (left, last) = simulated(async |clock| {
        let mut image = Image::zeroed(BLOCKS, 4096);
        for block in 0..BLOCKS {
            image.write(Lba(block), &[0x5A; 4096]);
        }
        for (block, bytes) in (Mkfs { zeroed: false, ..plan(BLOCKS) }).plan().expect("in range").writes() {
            image.write(Lba(block), &bytes);
        }
        let disk = disk(&clock, &image, true);
        // Hardly anything stays in memory that was not changed.
        let options = MountOptions { cache_metadata_blocks: 1, ..MountOptions::default() };
        let fs = mount(&clock, &disk, options).await.expect("mounted");
        let mut last = 0;
        for nth in 0..40_u32 {
            last = write_file(&fs, &format!("file {nth}").into_bytes(), b"x").await;
            fs.sync().await.expect("durable");
        }
        fs.unmount().await.expect("unmounted");
        (disk.image(), last)
    });
    judge(&left);
    let layout =
        Layout::new(&Superblock::read(&left.read(Lba(0))[SUPERBLOCK_OFFSET..]).expect("a superblock"));
    let layout = layout.expect("in the subset");
    let (group, index) = layout.inode_group(last).expect("an inode");
    let (block, range) = layout.descriptor_place(group).expect("a group");
    let descriptor = Descriptor::read(&left.read(Lba(block))[range], group, &layout).expect("a descriptor");
    let (table, used) = layout.inode_place(&descriptor, index);
    let behind = &left.read(Lba(table))[used.end..];
    assert!(!behind.is_empty() && behind.iter().all(|byte| *byte == 0), "it looks like inodes");
    assert_eq!(left.read(Lba(table + 1)), [0x5A; 4096], "not used yet");
}
