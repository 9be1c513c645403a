//! Content of files: in the inode, in pages, sparse and large, over mounts.

use std::rc::Rc;

use weir_f2fs::{Extent, Image, NodeId};
use weir_lfs::{F2fs, F2fsOptions};
use weir_runtime::Handle;
use weir_storage::{AdversaryDisk, Lba, Storage};
use weir_vfs::{Fallocate, StorageImage};

use crate::support::{BLOCKS, content, judge_image, mounted, options, play, regular, unmount_and_judge};

const ROOT: u32 = NodeId::ROOT.0;

/// Content by which every place is told from the others.
fn pattern(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| (at / 4096 * 31 + at % 251) as u8).collect()
}

#[test]
fn files_of_all_sizes_are_there_after_a_mount() {
    play(1, async |clock| {
        let (disk, fs) = mounted(&clock, BLOCKS, F2fsOptions::default()).await;
        let sizes = [0, 1, 100, 3000, 3500, 4096, 5000, 40_000, 4 << 20, 12 << 20];
        for (nth, size) in sizes.into_iter().enumerate() {
            let file = fs.create(ROOT, format!("file-{nth}").as_bytes(), &regular()).await.unwrap();
            assert_eq!(fs.write(file, 0, &pattern(size)).await.unwrap(), size);
            assert_eq!(content(&fs, file).await.unwrap(), pattern(size), "{size}");
        }
        unmount_and_judge(&disk, fs).await;
        let fs =
            F2fs::mount(&clock, Rc::clone(&disk) as Rc<dyn Storage>, F2fsOptions::default()).await.unwrap();
        for (nth, size) in sizes.into_iter().enumerate() {
            let file = fs.lookup(ROOT, format!("file-{nth}").as_bytes()).await.unwrap();
            assert_eq!(content(&fs, file).await.unwrap(), pattern(size), "{size}");
        }
        unmount_and_judge(&disk, fs).await;
    });
}

#[test]
fn a_file_is_cut_and_grows_again_with_zeros() {
    play(2, async |clock| {
        let (disk, fs) = mounted(&clock, BLOCKS, F2fsOptions::default()).await;
        let file = fs.create(ROOT, b"file", &regular()).await.unwrap();
        fs.write(file, 0, &pattern(9 << 20)).await.unwrap();
        let free = fs.statfs().await.free_blocks;
        for size in [5 << 20, (4 << 20) + 77, 3000, 0] {
            fs.truncate(file, size).await.unwrap();
            fs.truncate(file, 10 << 20).await.unwrap();
            let read = content(&fs, file).await.unwrap();
            assert_eq!(read.len(), 10 << 20);
            assert_eq!(read[..size as usize], pattern(9 << 20)[..size as usize]);
            assert!(read[size as usize..].iter().all(|byte| *byte == 0), "{size}");
        }
        assert!(fs.statfs().await.free_blocks > free + 2200, "the blocks are free");
        unmount_and_judge(&disk, fs).await;
    });
}

#[test]
fn holes_stay_holes_and_are_found() {
    play(3, async |clock| {
        let (disk, fs) = mounted(&clock, BLOCKS, F2fsOptions::default()).await;
        let file = fs.create(ROOT, b"file", &regular()).await.unwrap();
        let far = 5 << 30;
        fs.write(file, far, b"far").await.unwrap();
        assert_eq!(fs.seek_data(file, 0).await.unwrap(), Some(far));
        assert_eq!(fs.seek_hole(file, 0).await.unwrap(), Some(0));
        assert_eq!(fs.mapped_blocks(file, 10).await.unwrap(), 1);
        fs.write(file, 0, &pattern(40_960)).await.unwrap();
        fs.fallocate(file, Fallocate::PunchHole, 5000, 20_000).await.unwrap();
        let mut bytes = vec![1; 40_960];
        fs.read(file, 0, &mut bytes).await.unwrap();
        let mut expected = pattern(40_960);
        expected[5000..25_000].fill(0);
        assert_eq!(bytes, expected);
        assert_eq!(fs.seek_hole(file, 0).await.unwrap(), Some(8192));
        assert_eq!(fs.seek_data(file, 8192).await.unwrap(), Some(24_576));
        fs.fallocate(file, Fallocate::Allocate { keep_size: false }, 6 << 30, 8192).await.unwrap();
        assert_eq!(fs.attributes(file).await.unwrap().size, (6 << 30) + 8192);
        unmount_and_judge(&disk, fs).await;
    });
}

/// A copy of a disk on which an inode notes, as Linux does, that its first pages lie in one extent.
async fn note_extent(clock: &Handle, disk: &Rc<AdversaryDisk>, file: u32) -> Rc<AdversaryDisk> {
    let image = Image::open(StorageImage(Rc::clone(disk) as Rc<dyn Storage>)).await.unwrap();
    let mut inode = image.inode(NodeId(file)).await.unwrap();
    let address = inode.address(0);
    let follows = |page: &u32| inode.address(*page).0 == address.0 + page;
    let pages = (0..inode.addresses()).take_while(follows).count() as u32;
    assert!(pages > 10, "{pages} pages follow each other");
    inode.set_extent(Extent { page: 0, address, pages });
    let mut block = [0; 4096];
    inode.write(&mut block, image.superblock.inode_seed());
    let mut changed = disk.image();
    changed.write(Lba(image.node_entry(NodeId(file)).await.unwrap().address().0.into()), &block);
    judge_image(&changed);
    AdversaryDisk::from_image(clock, options(BLOCKS, true), &changed)
}

/// Linux reads the pages of an extent where the inode says that it is, and does not look at their addresses.
#[test]
fn an_extent_that_linux_has_noted_is_gone_when_a_page_of_it_moves() {
    for change in 0..4 {
        play(4, async |clock| {
            let (disk, fs) = mounted(&clock, BLOCKS, F2fsOptions::default()).await;
            let file = fs.create(ROOT, b"file", &regular()).await.unwrap();
            fs.write(file, 0, &pattern(2 << 20)).await.unwrap();
            unmount_and_judge(&disk, fs).await;
            let disk = note_extent(&clock, &disk, file).await;
            let fs = F2fs::mount(&clock, Rc::clone(&disk) as Rc<dyn Storage>, F2fsOptions::default())
                .await
                .unwrap();
            match change {
                0 => assert_eq!(fs.write(file, 20_000, b"new").await.unwrap(), 3),
                1 => fs.truncate(file, 10_000).await.unwrap(),
                2 => fs.fallocate(file, Fallocate::PunchHole, 4096, 4096).await.unwrap(),
                _ => {}
            }
            unmount_and_judge(&disk, fs).await;
            let image = Image::open(StorageImage(disk as Rc<dyn Storage>)).await.unwrap();
            let extent = image.inode(NodeId(file)).await.unwrap().extent();
            assert_eq!(extent == Extent::default(), change < 3, "{change}: {extent:?}");
        });
    }
}
