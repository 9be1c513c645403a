//! What becomes of space that was freed, on a volume: it is discarded, whoever made the transaction durable, and what
//! is kept until then has a bound.

use std::rc::Rc;
use std::time::Duration;

use weir_format::FileType;
use weir_vfs::{FsError, NewNode};

use crate::support::{self, content, plan, read_file, simulated, write_file};
use weir_ext4::ROOT_INODE;
use weir_fs::{BarrierFs, Discards, FsMutant, JournalMutant, MountOptions};
use weir_runtime::Handle;
use weir_storage::{AdversaryDisk, AdversaryOptions, Capabilities, Rules};
use weir_volume::{Format, Volume, VolumeOptions};

/// Blocks of the filesystem: 96 MiB.
const BLOCKS: u64 = 24_576;
/// Bitmaps of blocks for a group: young, old, ready.
const BYTES_A_GROUP: u64 = 3 * 4096;

/// A volume on a plain disk.
async fn volume(clock: &Handle) -> Rc<Volume> {
    let capabilities = Capabilities::legacy(32, 256, 4096);
    let options = AdversaryOptions { blocks: 32_768, capabilities, ..AdversaryOptions::default() };
    let disk = AdversaryDisk::new(clock, options);
    let format = Format { logical_blocks: BLOCKS, overwrite: true, ..Format::default() };
    Volume::create(clock, &*disk, format).await.expect("a volume");
    let volume = Volume::open(clock, disk, VolumeOptions::default()).await;
    Rc::new(volume.expect("opened"))
}

async fn new_filesystem(clock: &Handle, volume: &Rc<Volume>, options: MountOptions) -> BarrierFs {
    BarrierFs::make(&**volume, &plan(BLOCKS)).await.expect("made");
    support::mount(clock, volume, options).await.expect("mounted")
}

/// Makes and deletes forty files of a block, in order, and nothing that is durable.
async fn come_and_go(fs: &BarrierFs) {
    let names: Vec<Vec<u8>> = (0..40).map(|nth| format!("file {nth}").into_bytes()).collect();
    for name in &names {
        let new = NewNode::new(FileType::Regular, 0o644);
        let inode = fs.create(ROOT_INODE, name, &new).await.expect("made");
        fs.write(inode, 0, &[1; 4096]).await.expect("room");
    }
    fs.fbarrier(ROOT_INODE).await.expect("ordered");
    for name in &names {
        fs.unlink(ROOT_INODE, name).await.expect("gone");
    }
    fs.fbarrier(ROOT_INODE).await.expect("ordered");
}

/// A volume makes durable what it holds, and no caller asks for it (V5). The journal takes that for durable, and keeps
/// no more than it must.
#[test]
fn j7_what_the_volume_makes_durable_by_itself_is_discarded() {
    let rule = |mutant: Option<FsMutant>, rounds| {
        simulated(async |clock| {
            let volume = volume(&clock).await;
            let fs = new_filesystem(
                &clock,
                &volume,
                MountOptions { rules: Rules::but(mutant), ..MountOptions::default() },
            )
            .await;
            let flushes = fs.statistics().waits.flushes;
            for _ in 0..rounds {
                come_and_go(&fs).await;
                clock.sleep(Duration::from_millis(4)).await;
                let waiting = fs.statistics().discards.waiting_bytes;
                assert!(waiting <= BYTES_A_GROUP, "{waiting} bytes are kept");
            }
            clock.sleep(Duration::from_secs(10)).await;
            assert_eq!(fs.statistics().waits.flushes, flushes, "no flush was asked for");
            fs.statistics().discards.waiting == 0
        })
    };
    assert!(rule(None, 5_000), "what waits is discarded in the end");
    assert!(
        !rule(Some(FsMutant::Journal(JournalMutant::DurabilityUnnoticed)), 100),
        "the mutant was not noticed"
    );
}

/// Space that files have left is the volume's again: at once, by default; and when a caller asks.
#[test]
fn what_is_freed_returns_to_the_volume() {
    for (discard, at_once) in [(Discards::Auto, true), (Discards::Off, false)] {
        simulated(async |clock| {
            let volume = volume(&clock).await;
            let fs =
                new_filesystem(&clock, &volume, MountOptions { discard, ..MountOptions::default() }).await;
            fs.sync().await.expect("durable");
            let before = volume.stats().live_blocks;
            let kept = content(1 << 20);
            write_file(&fs, b"kept", &kept).await;
            write_file(&fs, b"large", &content(40 << 20)).await;
            fs.sync().await.expect("durable");
            assert!(volume.stats().live_blocks > before + 10_000);
            fs.unlink(ROOT_INODE, b"large").await.expect("gone");
            fs.sync().await.expect("durable");
            clock.sleep(Duration::from_secs(1)).await;
            let returned = |live| live < before + 512;
            assert_eq!(returned(volume.stats().live_blocks), at_once, "{discard:?}");
            let free = fs.statfs().await.free_blocks;
            let trimmed = fs.trim(0..u64::MAX, 0).await.expect("trimmed");
            assert!(trimmed <= free * 4096 && trimmed > (free - 512) * 4096, "{trimmed} of {free} blocks");
            assert!(returned(volume.stats().live_blocks), "{discard:?}");
            assert_eq!(read_file(&fs, b"kept").await, Ok(kept));
            fs.unmount().await.expect("unmounted");
        });
    }
}

/// What waits for its discard when the filesystem is unmounted is not forgotten.
#[test]
fn unmounting_discards_what_waits() {
    simulated(async |clock| {
        let volume = volume(&clock).await;
        let fs = new_filesystem(&clock, &volume, MountOptions::default()).await;
        fs.sync().await.expect("durable");
        let before = volume.stats().live_blocks;
        write_file(&fs, b"large", &content(40 << 20)).await;
        fs.sync().await.expect("durable");
        fs.unlink(ROOT_INODE, b"large").await.expect("gone");
        fs.unmount().await.expect("unmounted");
        assert!(volume.stats().live_blocks < before + 512);
    });
}

/// A filesystem is made on a volume that held another: what that one held is given back.
#[test]
fn making_a_filesystem_discards_what_was_there() {
    simulated(async |clock| {
        let volume = volume(&clock).await;
        let fs = new_filesystem(&clock, &volume, MountOptions::default()).await;
        let fresh = volume.stats().live_blocks;
        write_file(&fs, b"large", &content(40 << 20)).await;
        fs.unmount().await.expect("unmounted");
        let fs = new_filesystem(&clock, &volume, MountOptions::default()).await;
        assert!(volume.stats().live_blocks <= fresh + 16);
        fs.unmount().await.expect("unmounted");
    });
}

#[test]
fn a_trim_takes_a_range_and_runs_that_are_long_enough() {
    simulated(async |clock| {
        let volume = volume(&clock).await;
        let fs = new_filesystem(&clock, &volume, MountOptions::default()).await;
        let whole = fs.trim(0..u64::MAX, 0).await.expect("trimmed");
        let half = fs.trim(0..BLOCKS / 2 * 4096, 0).await.expect("trimmed");
        assert!(half > 0 && half < whole, "{half} of {whole}");
        assert_eq!(fs.trim(BLOCKS / 2 * 4096..BLOCKS * 4096, 0).await, Ok(whole - half));
        for nth in 0..100 {
            write_file(&fs, format!("{nth}").as_bytes(), &[1; 4096]).await;
        }
        fs.sync().await.expect("durable");
        for nth in (0..100).step_by(2) {
            fs.unlink(ROOT_INODE, format!("{nth}").as_bytes()).await.expect("gone");
        }
        let all = fs.trim(0..u64::MAX, 0).await.expect("trimmed");
        let long = fs.trim(0..u64::MAX, 1 << 20).await.expect("trimmed");
        assert!(long < all, "{long} of {all}");
        for (range, minimum) in
            [(0..0, 0), (0..4095, 0), (BLOCKS * 4096..u64::MAX, 0), (0..u64::MAX, 1 << 40)]
        {
            let refused = fs.trim(range.clone(), minimum).await;
            assert!(matches!(refused, Err(FsError::Invalid(_))), "{range:?}, {minimum}");
        }
        fs.clone().unmount().await.expect("unmounted");
        assert!(matches!(fs.trim(0..u64::MAX, 0).await, Err(FsError::ReadOnly(_))));
    });
}
