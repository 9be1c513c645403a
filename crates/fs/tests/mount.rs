//! Mounting, unmounting, and what is left when nobody unmounts.

mod support;

use std::rc::Rc;

use support::{BLOCKS, disk, flash, image_by_mke2fs, image_of_flash, judge, mount, new_image, plan, simulated};
use weir_ext4::{FileType, FormatError, ROOT_INODE};
use weir_fs::{Conflicts, Engine, Filesystem, FsError, JournalMode, MountOptions, NewNode, ReadOnlyReason};
use weir_storage::{AdversaryDisk, Lba};

const ENGINES: [Engine; 4] = [
    Engine::Dual { conflicts: Conflicts::Copy },
    Engine::Dual { conflicts: Conflicts::List },
    Engine::Jbd2 { barrier: true },
    Engine::Jbd2 { barrier: false },
];

fn with(engine: Engine, mode: JournalMode) -> MountOptions {
    MountOptions { engine: Some(engine), mode, ..MountOptions::default() }
}

fn regular() -> NewNode {
    NewNode::new(FileType::Regular, 0o644)
}

/// Writes a file of `bytes` bytes under the root.
async fn write_file(fs: &Filesystem, name: &[u8], content: &[u8]) -> u32 {
    let inode = fs.create(ROOT_INODE, name, &regular()).await.expect("created");
    let mut written = 0;
    while written < content.len() {
        written += fs.write(inode, written as u64, &content[written..]).await.expect("written");
    }
    inode
}

async fn read_file(fs: &Filesystem, name: &[u8]) -> Vec<u8> {
    let inode = fs.lookup(ROOT_INODE, name).await.expect("found");
    let mut content = vec![0; fs.attributes(inode).await.expect("attributes").size as usize];
    let mut read = 0;
    while read < content.len() {
        let now = fs.read(inode, read as u64, &mut content[read..]).await.expect("read");
        assert!(now > 0, "the file ends early");
        read += now;
    }
    content
}

fn content(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| (at / 7 % 251) as u8).collect()
}

/// Creates, writes, syncs, reads, unmounts, mounts again and reads.
#[test]
fn what_was_written_is_there_after_unmount() {
    for engine in ENGINES {
        for mode in [JournalMode::Writeback, JournalMode::Ordered, JournalMode::Data] {
            let left = simulated(async |clock| {
                let disk = disk(&clock, &new_image(BLOCKS), true);
                let fs = mount(&clock, &disk, with(engine, mode)).await.expect("mounted");
                let inode = write_file(&fs, b"a", &content(100_000)).await;
                fs.fsync(inode).await.expect("durable");
                assert_eq!(read_file(&fs, b"a").await, content(100_000));
                fs.unmount().await.expect("unmounted");
                let fs = mount(&clock, &disk, with(engine, mode)).await.expect("mounted again");
                assert_eq!(read_file(&fs, b"a").await, content(100_000));
                fs.unmount().await.expect("unmounted again");
                disk.image()
            });
            judge(&left);
        }
    }
}
