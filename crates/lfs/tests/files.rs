//! Content of files: in the inode, in pages, sparse and large, over mounts.

use std::rc::Rc;

use weir_f2fs::NodeId;
use weir_lfs::{F2fs, F2fsOptions};
use weir_storage::Storage;
use weir_vfs::Fallocate;

use crate::support::{BLOCKS, content, mounted, play, regular, unmount_and_judge};

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
