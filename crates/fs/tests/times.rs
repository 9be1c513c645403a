//! The times of inodes follow the date of the machine, in either clock.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use weir_format::FileTime;
use weir_vfs::AttributeChanges;

use crate::support::{BLOCKS, disk, mount, new_image, simulated, write_file};
use weir_fs::{BarrierFs, MountOptions};
use weir_runtime::{Handle, Runtime, Wall};

const HOUR: i64 = 3600;
/// How long the machine may take between two looks at its clock here, in seconds.
const SLACK: i64 = 60;

async fn mounted(clock: &Handle) -> BarrierFs {
    mount(clock, &disk(clock, &new_image(BLOCKS), true), MountOptions::default()).await.unwrap()
}

/// When a file was modified and its inode changed, in seconds since 1970.
async fn times(fs: &BarrierFs, inode: u32) -> (i64, i64) {
    let found = fs.attributes(inode).await.unwrap();
    (found.modified.seconds, found.changed.seconds)
}

/// A caller that writes back a cache of its own says when that was written, and when the inode changed.
#[test]
fn what_is_written_back_has_the_times_that_are_said() {
    simulated(|clock| async move {
        let fs = mounted(&clock).await;
        let inode = write_file(&fs, b"a", b"dated").await;
        let at = |seconds| Some(FileTime { seconds, nanoseconds: 7 });
        let changes = AttributeChanges { modified: at(1000), changed: at(2000), ..Default::default() };
        fs.set_attributes(inode, &changes).await.unwrap();
        for (offset, bytes) in [(0, &[1; 2][..]), (3, &[2; 9000]), (1 << 20, &[3; 4096])] {
            assert_eq!(fs.write_back(inode, offset, bytes).await, Ok(bytes.len()));
            assert_eq!(times(&fs, inode).await, (1000, 2000));
        }
        let mut found = vec![0; 9003];
        assert_eq!(fs.read(inode, 0, &mut found).await, Ok(9003));
        assert_eq!((&found[..3], &found[3..]), (&[1, 1, b't'][..], &[2; 9000][..]));
        fs.write(inode, 0, b"now").await.unwrap();
        assert!(times(&fs, inode).await > (2000, 2000));
        fs.unmount().await.unwrap();
    });
}

/// What is stamped after the clock was set is dated as the clock then says, on and back.
async fn follows_steps(clock: Handle) {
    let fs = mounted(&clock).await;
    let start = (clock.wall_clock_millis() / 1000) as i64;
    let mut expected = start;
    for (name, step) in [(b"a", 0), (b"b", HOUR), (b"c", -3 * HOUR)] {
        clock.step_wall_clock(step * 1_000_000_000);
        expected += step;
        let inode = write_file(&fs, name, b"dated").await;
        let (modified, changed) = times(&fs, inode).await;
        assert!((expected - 1..expected + SLACK).contains(&modified), "{modified} is not {expected}");
        assert_eq!(changed, modified);
        assert!((modified - fs.now().seconds).abs() < SLACK, "UTIME_NOW is another time");
        let changes = AttributeChanges { permissions: Some(0o600), ..AttributeChanges::default() };
        fs.set_attributes(inode, &changes).await.unwrap();
        assert!((times(&fs, inode).await.1 - expected).abs() < SLACK);
    }
    fs.unmount().await.unwrap();
}

#[test]
fn times_follow_a_step_of_a_simulated_clock() {
    simulated(follows_steps);
}

#[test]
fn times_follow_a_step_of_the_machines_clock() {
    let runtime = Runtime::wall(Wall::default()).unwrap();
    runtime.block_on(follows_steps(runtime.handle())).unwrap();
}
