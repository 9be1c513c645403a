//! Storage that fails, and calls that are dropped half-way: what was durable before stays so, and nothing else is called durable.

use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;

use futures_util::future::{Either, select};
use weir_f2fs::{Image, NodeId, checkpoint_flags};
use weir_lfs::{Cleaner, F2fs, F2fsOptions};
use weir_runtime::Handle;
use weir_storage::{AdversaryDisk, AdversaryOptions, Lba, Storage};
use weir_vfs::{FsError, InodeNumber, ReadOnlyReason, RenameFlags, StorageImage};

use crate::faulty::{Fails, Faulty, Kind};
use crate::histories::{History, judge_histories, version_page};
use crate::support::{directory, judge_disk, options, plan, play, regular};

const ROOT: u32 = NodeId::ROOT.0;
/// Blocks of the disk: 64 MiB.
const BLOCKS: u64 = 16_384;
/// Files of a run.
const FILES: usize = 4;

/// A filesystem with files that are durable, on a disk that is slow.
async fn filled(
    clock: &Handle,
    barriers: bool,
    mount: F2fsOptions,
) -> (Rc<Faulty>, F2fs, [InodeNumber; FILES], Vec<History>) {
    let disk = AdversaryOptions { latency_ns_max: 100_000, ..options(BLOCKS, barriers) };
    let disk = AdversaryDisk::new(clock, disk);
    F2fs::make(&*disk, &plan(BLOCKS)).await.expect("made");
    let faulty = Faulty::new(&disk, 0..0);
    let fs = F2fs::mount(clock, Rc::clone(&faulty) as Rc<dyn Storage>, mount).await.expect("mounted");
    let (mut inodes, mut histories) = ([0; FILES], vec![History::default(); FILES]);
    for (nth, history) in histories.iter_mut().enumerate() {
        inodes[nth] = fs.create(ROOT, format!("file-{nth}").as_bytes(), &regular()).await.unwrap();
        history.is_made = true;
        write_version(&fs, inodes[nth], history, 1).await;
    }
    fs.sync().await.unwrap();
    histories.iter_mut().for_each(History::make_durable);
    (faulty, fs, inodes, histories)
}

/// Writes a version of two pages of a file: one that the inode leads to, and one that a node leads to.
async fn write_version(fs: &F2fs, inode: InodeNumber, history: &mut History, version: u8) {
    for index in [0, 1_000] {
        if fs.write(inode, index as u64 * 4096, &version_page(version)).await.is_ok() {
            history.note_write(index, version);
        }
    }
}

/// Overwrites all files, synchronises some, and writes checkpoints; whether a call has failed.
async fn overwrite(fs: &F2fs, inodes: &[InodeNumber], histories: &mut [History]) -> bool {
    let mut failed = false;
    for version in 2..5 {
        for (nth, (inode, history)) in inodes.iter().zip(histories.iter_mut()).enumerate() {
            write_version(fs, *inode, history, version).await;
            if nth % 2 == 0 {
                match fs.fsync(*inode).await {
                    Ok(()) => history.make_durable(),
                    Err(_) => failed = true,
                }
            }
        }
        match fs.sync().await {
            Ok(()) => histories.iter_mut().for_each(History::make_durable),
            Err(_) => failed = true,
        }
    }
    failed
}

/// A command fails, whichever it is. What was durable before stays, though calls and checkpoints follow. (With barriers, what comes
/// behind a write may be there though the write has failed: S5.)
#[test]
fn nothing_durable_is_lost_by_a_command_that_fails() {
    for (barriers, kinds) in
        [(true, &[Kind::Flush, Kind::Read][..]), (false, &[Kind::Write, Kind::Flush, Kind::Read])]
    {
        for kind in kinds.iter().copied() {
            let mut failures = 0;
            for nth in 0.. {
                let (is_over, failed) = play(nth, async |clock| {
                    // No page stays in memory that is not dirty, and writeback is eager.
                    let mount = F2fsOptions {
                        cache_bytes: 0,
                        cache_inodes: 1,
                        dirty_background_bytes: 0,
                        in_place_pages: 0,
                        ..F2fsOptions::default()
                    };
                    let (faulty, fs, inodes, mut histories) = filled(&clock, barriers, mount).await;
                    faulty.fails.set(Fails::Nth(kind, nth));
                    let failed = overwrite(&fs, &inodes, &mut histories).await;
                    let is_over = matches!(faulty.fails.get(), Fails::Nth(..));
                    drop(fs);
                    let image = faulty.disk.image();
                    judge_histories(&clock, &image, &histories, F2fsOptions::default()).await;
                    (is_over, failed)
                });
                failures += u32::from(failed);
                if is_over {
                    break;
                }
            }
            assert!(failures > 0 || kind == Kind::Read, "{kind:?}");
        }
    }
}

/// A rename fails half-way, by a read: the file has one name afterwards, not two.
#[test]
fn a_rename_that_fails_leaves_one_name() {
    for nth in 0.. {
        let is_over = play(nth, async |clock| {
            let (faulty, fs, ..) = filled(&clock, true, F2fsOptions::default()).await;
            let mut directories = [0; 2];
            for (directory_of, name) in directories.iter_mut().zip(["from", "to"]) {
                *directory_of = fs.mkdir(ROOT, name.as_bytes(), &directory()).await.unwrap();
                for nth in 0..100 {
                    let name = format!("{nth}-{}", "x".repeat(200));
                    fs.create(*directory_of, name.as_bytes(), &regular()).await.unwrap();
                }
            }
            fs.create(directories[0], b"moved", &regular()).await.unwrap();
            fs.unmount().await.unwrap();
            drop(fs);
            let small = F2fsOptions { cache_bytes: 0, ..F2fsOptions::default() };
            let fs = F2fs::mount(&clock, Rc::clone(&faulty) as Rc<dyn Storage>, small).await.unwrap();
            faulty.fails.set(Fails::Nth(Kind::Read, nth));
            let ends = ((directories[0], &b"moved"[..]), (directories[1], &b"here"[..]));
            let _ = fs.rename(ends.0, ends.1, RenameFlags::default()).await;
            let is_over = matches!(faulty.fails.replace(Fails::Nothing), Fails::Nth(..));
            let _ = fs.unmount().await;
            drop(fs);
            let fs = F2fs::mount(&clock, Rc::clone(&faulty) as Rc<dyn Storage>, small).await.unwrap();
            let found = [fs.lookup(ends.0.0, ends.0.1).await, fs.lookup(ends.1.0, ends.1.1).await];
            assert_eq!(found.iter().filter(|found| found.is_ok()).count(), 1, "{nth}: {found:?}");
            fs.unmount().await.unwrap();
            drop(fs);
            judge_disk(Rc::clone(&faulty.disk) as Rc<dyn Storage>).await;
            is_over
        });
        if is_over {
            return;
        }
    }
}

/// A call is dropped before its end. Nothing of it comes to the disk in part, and a mount after a power cut succeeds.
#[test]
fn a_call_that_is_dropped_changes_all_or_nothing() {
    for barriers in [true, false] {
        let mut abandoned = 0;
        for nth in 0..60 {
            abandoned += play(nth, async |clock| {
                let cleaning = F2fsOptions { cleaner: Cleaner::Copy, ..F2fsOptions::default() };
                let (faulty, fs, inodes, mut histories) = filled(&clock, barriers, cleaning).await;
                for (inode, history) in inodes.iter().zip(&mut histories) {
                    write_version(&fs, *inode, history, 2).await;
                }
                let half = Duration::from_micros(20 * (nth / 2));
                let call = async { if nth % 2 == 0 { fs.sync().await } else { fs.fsync(inodes[0]).await } };
                let is_done = match select(pin!(call), pin!(clock.sleep(half))).await {
                    Either::Left((done, _)) => done.is_ok(),
                    Either::Right(_) => false,
                };
                if is_done {
                    return 0;
                }
                let reason = fs.read_only();
                let is_abandoned = reason == Some(ReadOnlyReason::Abandoned);
                assert!(is_abandoned || reason.is_none(), "{reason:?}");
                let later = fs.sync().await;
                assert_eq!(later.is_err(), is_abandoned, "{later:?}");
                if later.is_ok() {
                    histories.iter_mut().for_each(History::make_durable);
                }
                drop(fs);
                let mut random = clock.random("states");
                for _ in 0..4 {
                    let image = faulty.disk.crash_states().sample(&mut random);
                    judge_histories(&clock, &image, &histories, F2fsOptions::default()).await;
                }
                u32::from(is_abandoned)
            });
        }
        assert!(abandoned > 5, "{abandoned}");
    }
}

/// A write fails that no caller waits for: each later call says so.
#[test]
fn a_failed_write_is_told_by_every_later_call() {
    for barriers in [true, false] {
        play(1, async |clock| {
            let eager = F2fsOptions { dirty_background_bytes: 0, ..F2fsOptions::default() };
            let (faulty, fs, inodes, _) = filled(&clock, barriers, eager).await;
            faulty.fails.set(Fails::Nth(Kind::Write, 0));
            fs.write(inodes[0], 0, &version_page(9)).await.unwrap();
            clock.sleep(Duration::from_millis(50)).await;
            assert!(faulty.failed.get().is_some(), "writeback has written");
            let calls =
                [fs.sync().await, fs.sync().await, fs.fsync(inodes[0]).await, fs.fdatasync(inodes[1]).await];
            assert!(calls.iter().all(Result::is_err), "{calls:?}");
            assert!(matches!(calls[1], Err(FsError::ReadOnly(_))), "{calls:?}");
        });
    }
}

/// A file's node cannot be read. The file is deleted by its name, and everything else goes on, in this mount and in the next.
#[test]
fn an_unreadable_node_hinders_no_unmount_and_no_mount() {
    play(2, async |clock| {
        let small = F2fsOptions { cache_bytes: 0, cache_inodes: 1, ..F2fsOptions::default() };
        let (faulty, fs, inodes, mut histories) = filled(&clock, true, small).await;
        fs.unmount().await.unwrap();
        drop(fs);
        let image = Image::open(StorageImage(Rc::clone(&faulty) as Rc<dyn Storage>)).await.unwrap();
        let inode = image.inode(NodeId(inodes[0])).await.unwrap();
        let node = image.node_entry(NodeId(inode.nodes[0].get())).await.unwrap();
        faulty.fails.set(Fails::ReadsOf(node.address().0.into()));
        let mount = || F2fs::mount(&clock, Rc::clone(&faulty) as Rc<dyn Storage>, small);
        let fs = mount().await.unwrap();
        assert!(fs.unlink(ROOT, b"file-0").await.is_err());
        write_version(&fs, inodes[1], &mut histories[1], 2).await;
        fs.unmount().await.unwrap();
        histories.iter_mut().for_each(History::make_durable);
        histories[0] = History::default();
        drop(fs);
        let fs = mount().await.unwrap();
        assert_eq!(fs.lookup(ROOT, b"file-0").await, Err(FsError::NotFound));
        write_version(&fs, inodes[2], &mut histories[2], 2).await;
        fs.unmount().await.unwrap();
        histories.iter_mut().skip(1).for_each(History::make_durable);
        judge_histories(&clock, &faulty.disk.image(), &histories, small).await;
    });
}

/// A block of a segment that is half empty cannot be read, or belongs to nothing: others are cleaned.
#[test]
fn a_segment_that_is_damaged_is_left_out() {
    for is_unreadable in [true, false] {
        play(3, async |clock| {
            let mount = F2fsOptions { in_place_pages: 0, cache_bytes: 1 << 20, ..F2fsOptions::default() };
            let (faulty, fs, ..) = filled(&clock, true, mount).await;
            let file = fs.create(ROOT, b"file", &regular()).await.unwrap();
            let pages = fs.statfs().await.available_blocks * 9 / 10;
            for index in 0..pages {
                fs.write(file, index * 4096, &version_page(1)).await.unwrap();
            }
            fs.unmount().await.unwrap();
            drop(fs);
            let image = Image::open(StorageImage(Rc::clone(&faulty) as Rc<dyn Storage>)).await.unwrap();
            let address = image.inode(NodeId(file)).await.unwrap().address(700);
            let (segment, _) = image.layout.segment_of(address).unwrap();
            let mut blocks = faulty.disk.image();
            if !is_unreadable {
                let summary = image.layout.summary_block(segment).unwrap();
                blocks.write(Lba(summary.0.into()), &[0; 4096]);
            }
            let disk = AdversaryDisk::from_image(&clock, options(BLOCKS, true), &blocks);
            let faulty = Faulty::new(&disk, 0..0);
            if is_unreadable {
                faulty.fails.set(Fails::ReadsOf(address.0.into()));
            }
            let fs = F2fs::mount(&clock, Rc::clone(&faulty) as Rc<dyn Storage>, mount).await.unwrap();
            let mut random = clock.random("pages");
            for _ in 0..pages / 2 {
                let index = random.below(pages);
                if index != 700 {
                    fs.write(file, index * 4096, &version_page(2)).await.unwrap();
                }
            }
            assert!(fs.statistics().cleaned.pages > 0);
            fs.unlink(ROOT, b"file-0").await.unwrap();
            fs.unmount().await.unwrap();
        });
    }
}

/// Linux has noted that it could not go on: nothing is written there.
#[test]
fn a_filesystem_that_linux_marked_as_failed_is_only_read() {
    play(4, async |clock| {
        let (faulty, fs, ..) = filled(&clock, true, F2fsOptions::default()).await;
        fs.unmount().await.unwrap();
        drop(fs);
        let image = Image::open(StorageImage(Rc::clone(&faulty) as Rc<dyn Storage>)).await.unwrap();
        let mut pack = image.checkpoint.clone();
        pack.header.flags = (pack.header.flags.get() | checkpoint_flags::ERROR).into();
        let mut blocks = faulty.disk.image();
        let start = u64::from(image.layout.pack_start(image.pack).0);
        for (block, bytes) in (start..).zip(pack.encode(&image.layout).unwrap()) {
            blocks.write(Lba(block), &bytes);
        }
        let disk = AdversaryDisk::from_image(&clock, options(BLOCKS, true), &blocks);
        let mount = |read_only| {
            let options = F2fsOptions { read_only, ..F2fsOptions::default() };
            F2fs::mount(&clock, Rc::clone(&disk) as Rc<dyn Storage>, options)
        };
        let refused = mount(false).await.err().unwrap().to_string();
        assert!(refused.contains("marked the filesystem as failed"), "{refused}");
        mount(true).await.unwrap();
    });
}
