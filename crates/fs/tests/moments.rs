//! Moments (J11): what takes one waits for no other caller longer than it must. That a crash leaves the whole tree as of one moment
//! is for the campaign on moments, in `weir-crash`.

use std::cell::Cell;
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;

use futures_util::future::{Either, join, join_all, select};
use weir_ext4::ROOT_INODE;
use weir_format::FileType;
use weir_fs::{BarrierFs, MountOptions};
use weir_runtime::Handle;
use weir_storage::{AdversaryDisk, AdversaryOptions, Command, Lba, Part, Storage as _, Write};
use weir_vfs::{Fallocate, FsError, NewNode, ReadOnlyReason};
use weir_volume::{Format, SnapshotError, Volume, VolumeOptions};

use crate::support::{capabilities, plan, simulated, write_file};

/// Blocks of the filesystem, and of the disk below its volume.
const BLOCKS: u64 = 8_192;
const DISK_BLOCKS: u64 = 40_960;
const ALL: Fallocate = Fallocate::Allocate { keep_size: false };

/// A new filesystem, on a volume with marks or without.
async fn new_volume(clock: &Handle, marks: Option<u64>) -> Rc<Volume> {
    let format = Format { segment_blocks: 32, logical_blocks: BLOCKS, slots: 2, ..Format::default() };
    make_volume(clock, DISK_BLOCKS, format, marks).await
}

async fn make_volume(clock: &Handle, disk_blocks: u64, format: Format, marks: Option<u64>) -> Rc<Volume> {
    let options = AdversaryOptions {
        blocks: disk_blocks,
        capabilities: capabilities(false),
        latency_ns_max: 2_000_000,
        ..Default::default()
    };
    let disk = AdversaryDisk::new(clock, options);
    Volume::create(clock, &*disk, format).await.expect("made");
    let volume = Volume::open(clock, disk.clone(), VolumeOptions::default()).await.expect("opened");
    BarrierFs::make(&volume, &plan(volume.blocks())).await.expect("made");
    volume.close().await.expect("closed");
    Rc::new(
        Volume::open(clock, disk, VolumeOptions { marks, ..VolumeOptions::default() }).await.expect("opened"),
    )
}

/// A mount that takes moments by itself once an hour.
async fn mount(clock: &Handle) -> (BarrierFs, Rc<Volume>) {
    let volume = new_volume(clock, Some(16 << 20)).await;
    (mount_volume(clock, &volume).await, volume)
}

async fn mount_volume(clock: &Handle, volume: &Rc<Volume>) -> BarrierFs {
    let moments = Some(Duration::from_secs(3600));
    let options = MountOptions { moments, cache_metadata_blocks: 1, ..MountOptions::default() };
    BarrierFs::mount(clock, Rc::<Volume>::clone(volume), options).await.expect("mounted")
}

#[test]
fn moments_need_a_storage_with_marks() {
    let refused = simulated(async |clock| {
        let volume = new_volume(&clock, None).await;
        let options = MountOptions { moments: Some(Duration::from_millis(100)), ..MountOptions::default() };
        BarrierFs::mount(&clock, volume, options).await.err()
    });
    assert_eq!(refused, Some(FsError::NoMarks));
}

/// Callers of `fsync` that come while a moment is taken share the next one.
#[test]
fn callers_of_fsync_share_a_moment() {
    simulated(async |clock| {
        let (fs, volume) = mount(&clock).await;
        let mut files = Vec::new();
        for number in 0..20_u8 {
            files.push(write_file(&fs, &[b'a' + number], &[number; 5000]).await);
        }
        let flushes = volume.stats().flushes;
        let synchronised = join_all(files.iter().map(|file| fs.fsync(*file))).await;
        assert!(synchronised.iter().all(Result::is_ok));
        let flushes = volume.stats().flushes - flushes;
        assert!((1..=3).contains(&flushes), "{flushes} flushes for 20 callers");
        fs.fdatabarrier(files[0]).await.expect("ordered");
        let answered = fs.statistics().answered;
        assert_eq!((answered.durable, answered.ordered), (20, 1));
    });
}

#[test]
fn the_age_of_the_tree_grows_until_a_moment_is_safe() {
    simulated(async |clock| {
        let (fs, _volume) = mount(&clock).await;
        let age = || fs.statistics().moment_age.expect("there are moments");
        fs.sync().await.expect("durable");
        clock.sleep(Duration::from_secs(5)).await;
        assert_eq!(age(), Duration::ZERO, "nothing was changed");
        write_file(&fs, b"a", &[1; 5000]).await;
        clock.sleep(Duration::from_secs(5)).await;
        let before = age();
        assert!((10..11).contains(&before.as_secs()), "{before:?} since the newest moment");
        let during = pin!(async {
            clock.sleep(Duration::from_micros(100)).await;
            age()
        });
        let (synced, during) = join(fs.sync(), during).await;
        synced.expect("durable");
        assert!(during >= before, "{during:?}: the moment that is under way is not safe");
        assert_eq!(age(), Duration::ZERO);
    });
}

/// A call that looks for space waits for deletions. A moment that is to be taken waits for that call, and the deletions wait for
/// none.
#[test]
fn a_call_that_finds_no_space_waits_for_deletions_and_these_for_no_moment() {
    simulated(async |clock| {
        let (fs, _volume) = mount(&clock).await;
        let large = fs.create_held(ROOT_INODE, b"large", &file()).await.expect("made").keep();
        let next = fs.create(ROOT_INODE, b"next", &file()).await.expect("made");
        let available = fs.statfs().await.available_blocks;
        fs.fallocate(large, ALL, 0, (available - 200) * 4096).await.expect("room");
        fs.unlink(ROOT_INODE, b"large").await.expect("removed");
        let door = (clock.clone(), fs.clone(), Rc::new(Cell::new(true)));
        fs.on_reclaim(Box::new(move || {
            let (clock, fs, is_first) = door.clone();
            Box::pin(async move {
                if is_first.replace(false) {
                    // A moment is wanted before the door knows what its client has let go.
                    let moment = fs.clone();
                    drop(clock.spawn(async move { moment.sync().await }));
                    clock.sleep(Duration::from_millis(1)).await;
                    fs.let_go(large, 1);
                }
            })
        }));
        let began = clock.now();
        fs.fallocate(next, ALL, 0, (available - 500) * 4096).await.expect("room");
        let waited = clock.now().since(began);
        assert!(waited < Duration::from_millis(500), "{waited:?}");
    });
}

/// A mount with a file of many extents, which are not in memory.
async fn mount_with_long_file(clock: &Handle) -> (BarrierFs, Rc<Volume>) {
    let (fs, volume) = mount(clock).await;
    let long = fs.create(ROOT_INODE, b"long", &file()).await.expect("made");
    for block in 0..2_500 {
        fs.write(long, block * 8192, &[1; 4096]).await.expect("room");
    }
    fs.unmount().await.expect("unmounted");
    (mount_volume(clock, &volume).await, volume)
}

/// A deletion that takes many steps lets a moment through, and with it the calls that wait for that.
#[test]
fn a_long_deletion_lets_a_moment_through() {
    simulated(async |clock| {
        let (fs, _volume) = mount_with_long_file(&clock).await;
        let deletion = pin!(fs.unlink(ROOT_INODE, b"long"));
        let other = pin!(async {
            clock.sleep(Duration::from_micros(10)).await;
            let moment = fs.clone();
            drop(clock.spawn(async move { moment.sync().await }));
            clock.sleep(Duration::from_micros(10)).await;
            fs.create(ROOT_INODE, b"other", &file()).await
        });
        match select(other, deletion).await {
            Either::Left((other, deletion)) => {
                other.expect("made");
                deletion.await.expect("deleted");
            }
            Either::Right(_) => panic!("a call waits for all of the deletion"),
        }
        assert_eq!(fs.lookup(ROOT_INODE, b"long").await, Err(FsError::NotFound));
        fs.unmount().await.expect("unmounted");
    });
}

/// A filesystem that takes no more moments says so to a snapshot that waits for one.
#[test]
fn a_snapshot_fails_when_the_filesystem_has_stopped() {
    let outcome = simulated(async |clock| {
        let (fs, volume) = mount(&clock).await;
        // A change that is dropped in its middle stops the filesystem.
        let grown = fs.create(ROOT_INODE, b"grown", &file()).await.expect("made");
        for nth in 0..100 {
            let write = pin!(fs.write(grown, nth << 16, &[1; 1 << 16]));
            let middle = pin!(clock.sleep(Duration::from_micros(20 * nth)));
            let _either = select(write, middle).await;
            if fs.read_only().is_some() {
                break;
            }
        }
        assert_eq!(fs.read_only(), Some(ReadOnlyReason::Abandoned));
        let block = [Part::bytes(Lba(BLOCKS - 1), &[7; 4096])];
        volume.submit(Command::Write(Write::new(&block))).expect("room");
        volume.create_snapshot("one").await.map(drop)
    });
    assert_eq!(outcome, Err(SnapshotError::NoMark));
}

/// Writers fill a volume faster than it is cleaned: they get ENOSPC when the filesystem is full, each moment has room, and no
/// caller waits for another one without end.
fn fill(disk_blocks: u64, segment_blocks: u32, writers: u8) {
    simulated(async |clock| {
        let volume =
            make_volume(&clock, disk_blocks, Format { segment_blocks, ..Format::default() }, Some(64 << 20))
                .await;
        let options = MountOptions { moments: Some(Duration::from_millis(100)), ..MountOptions::default() };
        let fs = BarrierFs::mount(&clock, volume, options).await.expect("mounted");
        let piece = vec![0; 1 << 20];
        let fill_file = async |name: u8| {
            let file = fs.create(ROOT_INODE, &[b'a' + name], &file()).await?;
            let mut at = 0;
            loop {
                at += fs.write(file, at, &piece).await? as u64;
            }
        };
        let ended: Vec<Result<(), FsError>> = join_all((0..writers).map(fill_file)).await;
        assert!(ended.iter().all(|ended| *ended == Err(FsError::NoSpace)), "{ended:?}");
        fs.sync().await.expect("room for a moment");
        assert_eq!((fs.read_only(), fs.statfs().await.available_blocks), (None, 0));
        fs.unmount().await.expect("unmounted");
    });
}

#[test]
fn one_writer_fills_a_volume() {
    fill(131_072, 64, 1);
}

#[test]
fn many_writers_fill_a_volume() {
    fill(131_072, 64, 8);
}

#[test]
fn many_writers_fill_a_small_volume() {
    fill(65_536, 256, 8);
}

fn file() -> NewNode {
    NewNode::new(FileType::Regular, 0o644)
}
