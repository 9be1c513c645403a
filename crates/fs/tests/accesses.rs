//! Times of access: `relatime` and `noatime`, their way to the disk, and that no call waits for them.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use std::time::Duration;

use weir_vfs::{AttributeChanges, NewNode};

use crate::support::{BLOCKS, disk, judge, mount, new_image, simulated, write_file};
use weir_ext4::ROOT_INODE;
use weir_fs::{AccessTimes, BarrierFs, MountOptions};

const DAY: Duration = Duration::from_secs(24 * 3600);

async fn accessed_at(fs: &BarrierFs, inode: u32) -> (i64, u32) {
    let found = fs.attributes(inode).await.unwrap().accessed;
    (found.seconds, found.nanoseconds)
}

#[test]
fn the_first_access_after_a_change_counts_and_one_a_day() {
    simulated(async |clock| {
        let disk = disk(&clock, &new_image(BLOCKS), true);
        let fs = mount(&clock, &disk, MountOptions::default()).await.unwrap();
        let file = write_file(&fs, b"file", b"content").await;
        let made = accessed_at(&fs, file).await;
        clock.sleep(Duration::from_secs(2)).await;
        assert!(fs.accessed(file).await.unwrap());
        let read = accessed_at(&fs, file).await;
        assert_eq!(read.0, made.0 + 2);
        clock.sleep(Duration::from_secs(2)).await;
        assert!(!fs.accessed(file).await.unwrap(), "nothing has changed since");
        fs.set_attributes(file, &AttributeChanges { uid: Some(5), ..Default::default() }).await.unwrap();
        clock.sleep(Duration::from_secs(2)).await;
        assert!(fs.accessed(file).await.unwrap(), "its inode has changed");
        clock.sleep(DAY).await;
        assert!(fs.accessed(file).await.unwrap(), "a day later");
        fs.unmount().await.unwrap();
    });
}

#[test]
fn a_mount_that_wants_none_gets_none() {
    simulated(async |clock| {
        let disk = disk(&clock, &new_image(BLOCKS), true);
        let never = MountOptions { access_times: AccessTimes::Never, ..MountOptions::default() };
        let fs = mount(&clock, &disk, never).await.unwrap();
        let file = write_file(&fs, b"file", b"content").await;
        let made = accessed_at(&fs, file).await;
        clock.sleep(DAY).await;
        assert!(!fs.accessed(file).await.unwrap());
        assert_eq!(accessed_at(&fs, file).await, made);
        fs.unmount().await.unwrap();
        let read_only = MountOptions { read_only: true, ..MountOptions::default() };
        let fs = mount(&clock, &disk, read_only).await.unwrap();
        assert!(!fs.accessed(file).await.unwrap(), "nothing is changed");
        assert_eq!(accessed_at(&fs, file).await, made);
    });
}

/// They are on the disk ten seconds later, and no call has waited for that, nor found a transaction to commit.
#[test]
fn they_reach_the_disk_without_anybody_waiting() {
    let left = simulated(async |clock| {
        let disk = disk(&clock, &new_image(BLOCKS), true);
        let fs = mount(&clock, &disk, MountOptions::default()).await.unwrap();
        let files = [write_file(&fs, b"a", b"content").await, write_file(&fs, b"b", b"content").await];
        fs.sync().await.unwrap();
        let before = fs.statistics().journal.commits;
        clock.sleep(Duration::from_secs(2)).await;
        for file in files {
            assert!(fs.accessed(file).await.unwrap());
            fs.fsync(file).await.unwrap();
        }
        assert_eq!(fs.statistics().journal.commits, before, "a read file has nothing to commit");
        let expected = accessed_at(&fs, files[0]).await;
        clock.sleep(Duration::from_secs(11)).await;
        assert_eq!(fs.statistics().journal.commits, before + 1, "all with one");
        drop(fs);
        let fs = mount(&clock, &disk, MountOptions::default()).await.unwrap();
        for file in files {
            assert_eq!(accessed_at(&fs, file).await, expected);
        }
        fs.unmount().await.unwrap();
        disk.image()
    });
    judge(&left);
}

/// Many more files are read than inodes are kept in memory; and some are deleted meanwhile.
#[test]
fn unmounting_and_little_memory_lose_none() {
    const FILES: u32 = 3000;
    let left = simulated(async |clock| {
        let disk = disk(&clock, &new_image(BLOCKS), true);
        let small = MountOptions { cache_inodes: 16, ..MountOptions::default() };
        let fs = mount(&clock, &disk, small).await.unwrap();
        let new = NewNode::new(weir_format::FileType::Regular, 0o644);
        let mut files = Vec::new();
        for nth in 0..FILES {
            files.push(fs.create(ROOT_INODE, nth.to_string().as_bytes(), &new).await.unwrap());
        }
        clock.sleep(Duration::from_secs(60)).await;
        for file in &files {
            assert!(fs.accessed(*file).await.unwrap());
        }
        let read = accessed_at(&fs, files[0]).await;
        for nth in 0..FILES / 2 {
            fs.unlink(ROOT_INODE, (2 * nth).to_string().as_bytes()).await.unwrap();
        }
        fs.unmount().await.unwrap();
        let fs = mount(&clock, &disk, small).await.unwrap();
        for nth in 0..FILES / 2 {
            let found = accessed_at(&fs, files[2 * nth as usize + 1]).await;
            assert!(found >= read && found.0 < read.0 + 60, "{nth}: {found:?}");
        }
        fs.unmount().await.unwrap();
        disk.image()
    });
    judge(&left);
}
