//! What is behind the end of a file in its last block: nothing, on the disk too, and no call ever reads it.

use weir_vfs::{Fallocate, FsError, InodeNumber};

use crate::support::{
    BLOCKS, collect_crash_states, disk, judge, mount, new_image, read_file, simulated, write_file,
};
use weir_ext4::ROOT_INODE;
use weir_fs::{BarrierFs, FsMutant, MountOptions};
use weir_storage::{BLOCK_BYTES, Image, Lba, Rules};

/// Where the file ends.
const END: usize = 100;

/// An image with a file of a block of ones that was truncated to 100 bytes.
fn truncated(mutant: Option<FsMutant>) -> Image {
    simulated(async |clock| {
        let disk = disk(&clock, &new_image(BLOCKS), true);
        let fs = mount(&clock, &disk, MountOptions { rules: Rules::but(mutant), ..Default::default() })
            .await
            .expect("mounted");
        let file = write_file(&fs, b"file", &[1; BLOCK_BYTES]).await;
        fs.fsync(file).await.expect("durable");
        fs.truncate(file, END as u64).await.expect("truncated");
        fs.unmount().await.expect("unmounted");
        disk.image()
    })
}

/// The block that begins with 100 ones.
fn last_block(image: &Image) -> (Lba, Vec<u8>) {
    let mut blocks = (0..image.blocks()).rev().map(|block| (Lba(block), image.read(Lba(block))));
    blocks.find(|(_, bytes)| bytes[..END] == [1; END]).expect("the file's block")
}

#[test]
fn a_truncation_leaves_nothing_behind_the_end_on_the_disk() {
    let left = |mutant| last_block(&truncated(mutant)).1[END..].iter().any(|byte| *byte != 0);
    assert!(!left(None));
    assert!(left(Some(FsMutant::TailStays)));
}

/// Lets the file grow though something is behind its end on the disk, as a crash during an append leaves it: what is
/// read between its old end and what was written.
fn grown(
    mutant: Option<FsMutant>,
    grow: impl AsyncFnOnce(&BarrierFs, InodeNumber) -> Result<(), FsError>,
) -> Vec<u8> {
    let mut image = truncated(None);
    let (place, mut bytes) = last_block(&image);
    bytes[END..].fill(9);
    image.write(place, &bytes);
    let (found, image) = simulated(async |clock| {
        let disk = disk(&clock, &image, true);
        let fs = mount(&clock, &disk, MountOptions { rules: Rules::but(mutant), ..Default::default() })
            .await
            .expect("mounted");
        let file = fs.lookup(ROOT_INODE, b"file").await.expect("there");
        grow(&fs, file).await.expect("there is room");
        // From the disk, not from memory.
        fs.unmount().await.expect("unmounted");
        let fs = mount(&clock, &disk, MountOptions::default()).await.expect("mounted again");
        let found = read_file(&fs, b"file").await.expect("read");
        fs.unmount().await.expect("unmounted again");
        (found, disk.image())
    });
    judge(&image);
    assert!(found.len() > BLOCK_BYTES && found[..END] == [1; END]);
    found[END..BLOCK_BYTES].to_vec()
}

#[test]
fn what_is_behind_the_end_does_not_show_when_a_file_grows() {
    let zeros = vec![0; BLOCK_BYTES - END];
    for mutant in [None, Some(FsMutant::BehindEndTrusted)] {
        let shown = [
            grown(mutant, async |fs, file| fs.truncate(file, 5000).await),
            grown(mutant, async |fs, file| fs.write(file, 5000, b"behind a hole").await.map(drop)),
            grown(mutant, async |fs, file| {
                fs.fallocate(file, Fallocate::Allocate { keep_size: false }, 5000, 10).await
            }),
        ];
        for found in shown {
            assert_eq!(found == zeros, mutant.is_none(), "{mutant:?}");
        }
    }
}

/// Files of three pages that are cut, and at once written across their new ends, where a writer waits for writeback
/// after each page: in how many of the states that power cuts leave a page holds a part of such a write.
fn pages_in_part(mutant: Option<FsMutant>) -> usize {
    const FILES: u8 = 8;
    let cut = 2 * BLOCK_BYTES + 2935;
    let images = simulated(async |clock| {
        let disk = disk(&clock, &new_image(BLOCKS), true);
        let options = MountOptions {
            dirty_background_bytes: 0,
            dirty_bytes: 1,
            rules: Rules::but(mutant),
            ..Default::default()
        };
        let fs = mount(&clock, &disk, options).await.expect("mounted");
        let mut files = Vec::new();
        for nth in 0..FILES {
            files.push(write_file(&fs, &[b'a' + nth], &[1; 3 * BLOCK_BYTES]).await);
        }
        fs.sync().await.expect("durable");
        let images = collect_crash_states(&clock, &disk, 1);
        for file in files {
            fs.truncate(file, cut as u64).await.expect("cut");
            fs.write(file, BLOCK_BYTES as u64, &[2; 2 * BLOCK_BYTES]).await.expect("there is room");
        }
        fs.sync().await.expect("durable");
        images.take()
    });
    let in_part = |image: &Image| {
        simulated(async |clock| {
            let disk = disk(&clock, image, true);
            let fs = mount(&clock, &disk, MountOptions::default()).await.expect("recovered");
            let mut in_part = 0;
            for nth in 0..FILES {
                let bytes = read_file(&fs, &[b'a' + nth]).await.expect("readable");
                let behind = bytes.get(cut).copied();
                in_part += usize::from(bytes[2 * BLOCK_BYTES] == 2 && behind.is_some_and(|byte| byte != 2));
            }
            in_part
        })
    };
    images.iter().map(in_part).sum()
}

#[test]
fn the_page_with_the_end_is_changed_once() {
    assert_eq!(pages_in_part(None), 0);
    assert!(pages_in_part(Some(FsMutant::EndInTwoSteps)) > 0, "the dropped rule is not noticed");
}
