//! Calls side by side, and filesystems with little room: each call finds what it counts on, and a mount after a power cut succeeds.

use std::rc::Rc;
use std::time::Duration;

use futures_util::future::{Either, select};
use weir_f2fs::NodeId;
use weir_lfs::{Cleaner, F2fs, F2fsOptions};
use weir_runtime::Handle;
use weir_storage::{AdversaryDisk, AdversaryOptions, Fault, Faults, Storage};
use weir_vfs::{Fallocate, FsError, InodeNumber, SyncCall};

use crate::support::{
    BLOCKS, PAGE, content, judge_disk, mounted, mounted_on, options, page, play, regular, unmount_and_judge,
};

const ROOT: u32 = NodeId::ROOT.0;

/// What the next mount finds after a power cut.
async fn mount_after_power_cut(
    clock: &Handle,
    disk: &Rc<AdversaryDisk>,
    fs: F2fs,
) -> (Rc<AdversaryDisk>, F2fs) {
    let image = disk.crash_states().sample(&mut clock.random("states"));
    drop(fs);
    let disk = AdversaryDisk::from_image(clock, options(image.blocks(), true), &image);
    let fs = F2fs::mount(clock, Rc::clone(&disk) as Rc<dyn Storage>, F2fsOptions::default()).await;
    (disk, fs.expect("mounted"))
}

/// Fills a filesystem until so many blocks are left for users.
async fn fill(fs: &F2fs, name: &str, left: u64) -> InodeNumber {
    let file = fs.create(ROOT, name.as_bytes(), &regular()).await.unwrap();
    let mut offset = 0;
    loop {
        let room = fs.statfs().await.available_blocks.saturating_sub(left).min(256);
        if room == 0 {
            return file;
        }
        let bytes = vec![7; room as usize * PAGE];
        match fs.write(file, offset, &bytes).await {
            Ok(written) => offset += written as u64,
            Err(error) => assert_eq!(error, FsError::NoSpace),
        }
    }
}

/// What is synchronised takes the room of what was deleted since the checkpoint: roll-forward has to find room for both.
#[test]
fn a_full_filesystem_is_rolled_forward() {
    play(1, async |clock| {
        let (disk, fs) = mounted(&clock, BLOCKS, F2fsOptions::default()).await;
        let deleted = fs.create(ROOT, b"deleted", &regular()).await.unwrap();
        fs.write(deleted, 0, &vec![5; 1 << 20]).await.unwrap();
        fill(&fs, "full", 0).await;
        fs.sync().await.unwrap();
        fs.unlink(ROOT, b"deleted").await.unwrap();
        let new = fs.create(ROOT, b"new", &regular()).await.unwrap();
        fs.write(new, 0, &page(1, 1)).await.unwrap();
        fs.fsync(new).await.unwrap();
        let (disk, fs) = mount_after_power_cut(&clock, &disk, fs).await;
        assert_eq!(content(&fs, new).await.unwrap(), page(1, 1));
        fs.unmount().await.unwrap();
        drop(fs);
        judge_disk(disk as Rc<dyn Storage>).await;
    });
}

/// Each new file is synchronised by itself. The mount after a power cut writes all of their nodes again.
#[test]
fn many_small_files_on_a_nearly_full_filesystem_are_rolled_forward() {
    play(2, async |clock| {
        let (disk, fs) = mounted(&clock, BLOCKS, F2fsOptions::default()).await;
        fill(&fs, "full", 7_000).await;
        fs.sync().await.unwrap();
        let mut made = 0;
        for nth in 0..6_500 {
            let Ok(file) = fs.create(ROOT, format!("{nth}").as_bytes(), &regular()).await else { break };
            fs.fsync(file).await.unwrap();
            made += 1;
        }
        assert!(made > 5_000, "{made}");
        let (disk, fs) = mount_after_power_cut(&clock, &disk, fs).await;
        for nth in 0..made {
            fs.lookup(ROOT, format!("{nth}").as_bytes()).await.unwrap();
        }
        fs.unmount().await.unwrap();
        drop(fs);
        judge_disk(disk as Rc<dyn Storage>).await;
    });
}

/// Writers that waited for the same checkpoint do not share the room that each of them was shown.
#[test]
fn parallel_writers_leave_the_cleaner_its_reserve() {
    for seed in 0..3 {
        play(seed, async |clock| {
            let slow = AdversaryOptions { latency_ns_max: 200_000, ..options(BLOCKS, true) };
            let (disk, fs) = mounted_on(&clock, slow, F2fsOptions::default()).await;
            fill(&fs, "full", 26 * 512).await;
            fs.sync().await.unwrap();
            let mut writers = Vec::new();
            for nth in 0..24_u64 {
                let file = fs.create(ROOT, format!("{nth}").as_bytes(), &regular()).await.unwrap();
                let (fs, clock) = (fs.clone(), clock.clone());
                writers.push(clock.clone().spawn_thread("writer", async move {
                    let mut written = 0;
                    for round in 0..6 {
                        let bytes: Vec<u8> = (0..512).flat_map(|at| page(at, nth + round)).collect();
                        match fs.write(file, 0, &bytes).await {
                            Ok(done) => written = done,
                            Err(error) => assert_eq!(error, FsError::NoSpace),
                        }
                        clock.sleep(Duration::from_micros(nth * 10)).await;
                    }
                    (file, written)
                }));
            }
            let mut files = Vec::new();
            for writer in writers {
                files.push(writer.await.expect("ended"));
            }
            fs.sync().await.unwrap();
            for (file, written) in files {
                assert!(content(&fs, file).await.unwrap().len() >= written);
            }
            unmount_and_judge(&disk, fs).await;
        });
    }
}

/// A writer that waits for a file's lock while the file is deleted finds it gone.
#[test]
fn a_write_to_a_file_that_is_deleted_meanwhile_changes_nothing() {
    for nth in 0..40 {
        play(nth, async |clock| {
            let slow = AdversaryOptions { latency_ns_max: 100_000, ..options(BLOCKS, true) };
            let small = F2fsOptions { cache_bytes: 0, cache_inodes: 1, ..F2fsOptions::default() };
            let (disk, fs) = mounted_on(&clock, slow, small).await;
            let file = fs.create(ROOT, b"file", &regular()).await.unwrap();
            for index in [0, 1_000, 3_000] {
                fs.write(file, index * PAGE as u64, &page(index, 1)).await.unwrap();
            }
            fs.sync().await.unwrap();
            fs.attributes(ROOT).await.unwrap();
            let writer = clock.spawn_thread("writer", {
                let (fs, clock) = (fs.clone(), clock.clone());
                async move {
                    clock.sleep(Duration::from_micros(nth * 5)).await;
                    fs.write(file, 2_500 * PAGE as u64, &page(7, 7)).await
                }
            });
            fs.unlink(ROOT, b"file").await.unwrap();
            let _ = writer.await.expect("ended");
            unmount_and_judge(&disk, fs).await;
        });
    }
}

/// Pages that were allocated before the space ended are none of the file's content.
#[test]
fn a_failed_allocation_makes_no_file_longer() {
    play(3, async |clock| {
        let (disk, fs) = mounted(&clock, BLOCKS, F2fsOptions::default()).await;
        let file = fs.create(ROOT, b"file", &regular()).await.unwrap();
        fs.write(file, 0, &page(0, 1)).await.unwrap();
        fill(&fs, "full", 40).await;
        fs.sync().await.unwrap();
        let allocate = Fallocate::Allocate { keep_size: false };
        let failed = fs.fallocate(file, allocate, PAGE as u64, 100 * PAGE as u64).await;
        assert_eq!(failed, Err(FsError::NoSpace));
        fs.write(file, 0, &page(0, 2)).await.unwrap();
        fs.fsync(file).await.unwrap();
        let (_, fs) = mount_after_power_cut(&clock, &disk, fs).await;
        assert_eq!(content(&fs, file).await.unwrap(), page(0, 2));
    });
}

/// The page in which a file ends is written to its end, and overwritten in place.
#[test]
fn a_file_that_ends_later_in_its_last_page_is_rolled_forward() {
    play(4, async |clock| {
        let (disk, fs) = mounted(&clock, BLOCKS, F2fsOptions::default()).await;
        let file = fs.create(ROOT, b"file", &regular()).await.unwrap();
        let bytes: Vec<u8> = (0..3).flat_map(|place| page(place, 1)).collect();
        fs.write(file, 0, &bytes[..2 * PAGE + 100]).await.unwrap();
        fs.sync().await.unwrap();
        fs.write(file, 2 * PAGE as u64, &bytes[2 * PAGE..]).await.unwrap();
        fs.fdatasync(file).await.unwrap();
        let (_, fs) = mount_after_power_cut(&clock, &disk, fs).await;
        assert_eq!(content(&fs, file).await.unwrap(), bytes);
    });
}

/// Pages are allocated behind the end, one of them is zeroed in part, and then a whole page is written there.
#[test]
fn a_file_that_grows_over_an_allocated_page_is_rolled_forward() {
    for has_written_back in [false, true] {
        play(4, async |clock| {
            let (disk, fs) = mounted(&clock, BLOCKS, F2fsOptions::default()).await;
            let file = fs.create(ROOT, b"file", &regular()).await.unwrap();
            fs.write(file, 0, &page(0, 1)).await.unwrap();
            let at = |page: u64| page * PAGE as u64;
            fs.fallocate(file, Fallocate::Allocate { keep_size: true }, 0, at(4)).await.unwrap();
            fs.fallocate(file, Fallocate::PunchHole, at(2) + 100, 200).await.unwrap();
            fs.sync().await.unwrap();
            fs.write(file, at(2), &page(2, 1)).await.unwrap();
            if has_written_back {
                fs.mapped_blocks(file, 100).await.unwrap();
            }
            fs.fdatasync(file).await.unwrap();
            let (_, fs) = mount_after_power_cut(&clock, &disk, fs).await;
            let found = content(&fs, file).await.unwrap();
            assert_eq!((found.len(), &found[2 * PAGE..]), (3 * PAGE, &page(2, 1)[..]));
        });
    }
}

/// An append inside the last page is cut. What it wrote does not show when the file grows.
#[test]
fn bytes_behind_the_end_are_zeros_after_a_power_cut() {
    play(4, async |clock| {
        let slow = AdversaryOptions { latency_ns_max: 100_000, ..options(BLOCKS, true) };
        let (disk, fs) = mounted_on(&clock, slow, F2fsOptions::default()).await;
        let file = fs.create(ROOT, b"file", &regular()).await.unwrap();
        fs.write(file, 0, &vec![1; 2 * PAGE + 100]).await.unwrap();
        fs.sync().await.unwrap();
        fs.write(file, 2 * PAGE as u64 + 100, &[2; 100]).await.unwrap();
        fs.synchronise(file, SyncCall::Fdatabarrier).await.unwrap();
        let mut random = clock.random("cuts");
        for _ in 0..40 {
            let image = disk.crash_states().sample(&mut random);
            let left = AdversaryDisk::from_image(&clock, options(BLOCKS, true), &image);
            let fs = F2fs::mount(&clock, left as Rc<dyn Storage>, F2fsOptions::default()).await.unwrap();
            if fs.attributes(file).await.unwrap().size == 2 * PAGE as u64 + 100 {
                fs.truncate(file, 3 * PAGE as u64).await.unwrap();
                let found = content(&fs, file).await.unwrap();
                assert!(found[2 * PAGE + 100..].iter().all(|byte| *byte == 0));
            }
        }
    });
}

/// A small file outgrows its inode while a call that synchronises it waits for another.
#[test]
fn content_that_moves_out_beside_a_synchronisation_call_is_not_lost() {
    for nth in 0..60 {
        play(nth, async |clock| {
            let slow = AdversaryOptions { latency_ns_max: 300_000, ..options(BLOCKS, false) };
            let (disk, fs) = mounted_on(&clock, slow, F2fsOptions::default()).await;
            let other = fs.create(ROOT, b"other", &regular()).await.unwrap();
            let file = fs.create(ROOT, b"file", &regular()).await.unwrap();
            fs.write(file, 0, &[1; 100]).await.unwrap();
            fs.sync().await.unwrap();
            fs.write(other, 0, &page(0, 1)).await.unwrap();
            fs.write(file, 0, &[2; 100]).await.unwrap();
            let first = clock.spawn_thread("first", {
                let fs = fs.clone();
                async move { fs.fdatasync(other).await }
            });
            let writer = clock.spawn_thread("writer", {
                let (fs, clock) = (fs.clone(), clock.clone());
                async move {
                    clock.sleep(Duration::from_micros(nth * 10)).await;
                    fs.write(file, 100, &[3; 8_000]).await
                }
            });
            fs.fsync(file).await.unwrap();
            let (_, after) = mount_after_power_cut(&clock, &disk, fs.clone()).await;
            assert_eq!(&content(&after, file).await.unwrap()[..100], &[2; 100]);
            first.await.expect("ended").unwrap();
            writer.await.expect("ended").unwrap();
        });
    }
}

/// A call that is answered beside an unmount is in the last checkpoint.
#[test]
fn an_unmount_loses_no_write_that_was_answered() {
    for nth in 0..20 {
        play(nth, async |clock| {
            let slow = AdversaryOptions { latency_ns_max: 100_000, ..options(BLOCKS, nth % 2 == 0) };
            let (disk, fs) = mounted_on(&clock, slow, F2fsOptions::default()).await;
            let file = fs.create(ROOT, b"file", &regular()).await.unwrap();
            fs.write(file, 0, &page(0, 0)).await.unwrap();
            let writer = clock.spawn_thread("writer", {
                let (fs, clock) = (fs.clone(), clock.clone());
                async move {
                    let mut answered = 0;
                    for version in 1.. {
                        match fs.write(file, 0, &page(0, version)).await {
                            Ok(_) => answered = version,
                            Err(_) => break,
                        }
                        clock.sleep(Duration::from_micros(7)).await;
                    }
                    answered
                }
            });
            clock.sleep(Duration::from_micros(20 * nth)).await;
            fs.unmount().await.unwrap();
            let answered = writer.await.expect("ended");
            drop(fs);
            let fs = F2fs::mount(&clock, Rc::clone(&disk) as Rc<dyn Storage>, F2fsOptions::default())
                .await
                .unwrap();
            assert_eq!(content(&fs, file).await.unwrap(), page(0, answered));
            fs.unmount().await.unwrap();
        });
    }
}

/// Names come and go in a directory whose blocks do not stay in memory, while other calls look names up.
#[test]
fn no_name_is_lost_from_a_directory_that_leaves_memory() {
    for seed in 0..4 {
        play(seed, async |clock| {
            let slow = AdversaryOptions { latency_ns_max: 300_000, ..options(BLOCKS, true) };
            let small = F2fsOptions { cache_bytes: 0, dirty_background_bytes: 0, ..F2fsOptions::default() };
            let (disk, fs) = mounted_on(&clock, slow, small).await;
            let name = |nth: u64| format!("{nth}-{}", "x".repeat(200)).into_bytes();
            let mut readers = Vec::new();
            for _ in 0..4 {
                let (fs, clock) = (fs.clone(), clock.clone());
                readers.push(clock.clone().spawn_thread("reader", async move {
                    let mut random = clock.random("names");
                    for _ in 0..400 {
                        let _ = fs.lookup(ROOT, &name(random.below(200))).await;
                    }
                }));
            }
            for nth in 0..200 {
                fs.create(ROOT, &name(nth), &regular()).await.unwrap();
                if nth % 3 == 2 {
                    fs.unlink(ROOT, &name(nth - 1)).await.unwrap();
                }
                if nth % 50 == 0 {
                    fs.sync().await.unwrap();
                }
            }
            for reader in readers {
                reader.await.expect("ended");
            }
            for nth in 0..200 {
                let is_there = fs.lookup(ROOT, &name(nth)).await.is_ok();
                assert_eq!(is_there, nth % 3 != 1 || nth == 199, "{nth}");
            }
            unmount_and_judge(&disk, fs).await;
        });
    }
}

/// Shares have no order. None of them reaches its place before the checkpoint that has freed it.
#[test]
fn shares_are_behind_the_checkpoint_that_frees_their_places() {
    play(9, async |clock| {
        let mount = F2fsOptions { cleaner: Cleaner::Share, in_place_pages: 0, ..F2fsOptions::default() };
        let faults = Faults { delay: Fault::PerMillion(2_000), delay_ns: 20_000_000, ..Faults::default() };
        let mut slow = AdversaryOptions { faults, ..options(16_384, true) };
        (slow.capabilities.max_share_blocks, slow.capabilities.ordered_service) = (256, false);
        let (disk, fs) = mounted_on(&clock, slow, mount).await;
        let kept = fs.create(ROOT, b"kept", &regular()).await.unwrap();
        let file = fs.create(ROOT, b"file", &regular()).await.unwrap();
        let pages = fs.statfs().await.available_blocks * 45 / 100;
        for place in 0..pages {
            fs.write(kept, place * PAGE as u64, &page(place, 9)).await.unwrap();
            fs.write(file, place * PAGE as u64, &page(place, 1)).await.unwrap();
        }
        fs.sync().await.unwrap();
        let mut random = clock.random("pages");
        let (mut moved, mut judged) = (0, 0);
        while judged < 40 {
            let place = random.below(pages);
            fs.write(file, place * PAGE as u64, &page(place, 2)).await.unwrap();
            if fs.statistics().cleaned.pages == moved {
                continue;
            }
            (moved, judged) = (fs.statistics().cleaned.pages, judged + 1);
            let image = disk.crash_states().sample(&mut random);
            let left = AdversaryDisk::from_image(&clock, options(image.blocks(), true), &image);
            let after = F2fs::mount(&clock, Rc::clone(&left) as Rc<dyn Storage>, mount).await.unwrap();
            let mut bytes = vec![0; PAGE];
            for place in 0..pages {
                after.read(kept, place * PAGE as u64, &mut bytes).await.unwrap();
                assert!(bytes == page(place, 9), "page {place} of a file that is not written");
            }
            after.unmount().await.unwrap();
        }
    });
}

/// A file is cut while a call that synchronises it waits. After a power cut nothing of what was cut comes back.
#[test]
fn what_is_cut_beside_a_synchronisation_call_stays_cut() {
    for nth in 0..60 {
        play(nth, async |clock| {
            let slow = AdversaryOptions { latency_ns_max: 300_000, ..options(BLOCKS, true) };
            let (disk, fs) = mounted_on(&clock, slow, F2fsOptions::default()).await;
            let file = fs.create(ROOT, b"file", &regular()).await.unwrap();
            for place in 0..2_000 {
                fs.write(file, place * PAGE as u64, &page(place, 1)).await.unwrap();
            }
            fs.sync().await.unwrap();
            for place in 0..600 {
                fs.write(file, place * PAGE as u64, &page(place, 2)).await.unwrap();
            }
            let tasks = [0, 1].map(|which| {
                let (fs, clock) = (fs.clone(), clock.clone());
                clock.clone().spawn_thread("task", async move {
                    clock.sleep(Duration::from_micros(nth * 3)).await;
                    match which {
                        0 => fs.truncate(file, 0).await,
                        _ => fs.synchronise(file, SyncCall::Fsync).await,
                    }
                })
            });
            fs.synchronise(file, SyncCall::Fdatabarrier).await.unwrap();
            for task in tasks {
                task.await.expect("ended").unwrap();
            }
            let (_, fs) = mount_after_power_cut(&clock, &disk, fs).await;
            let left = fs.attributes(file).await.unwrap().size;
            if left > 0 {
                return;
            }
            fs.truncate(file, 2_000 * PAGE as u64).await.unwrap();
            assert!(content(&fs, file).await.unwrap().iter().all(|byte| *byte == 0), "what was cut is back");
        });
    }
}

/// A directory is full and in its inode. A name takes the place of another, which roll-forward finds there still.
#[test]
fn names_of_a_full_filesystem_are_rolled_forward() {
    play(5, async |clock| {
        let (disk, fs) = mounted(&clock, BLOCKS, F2fsOptions::default()).await;
        let name = |nth: u32| format!("{nth:0200}").into_bytes();
        let parent = fs.mkdir(ROOT, b"parent", &crate::support::directory()).await.unwrap();
        let mut names = 0;
        while fs.attributes(parent).await.unwrap().size < PAGE as u64 {
            fs.create(parent, &name(names), &regular()).await.unwrap();
            names += 1;
        }
        // The last one has moved the names out: one inode less, in a directory of the same form.
        let parent = fs.mkdir(ROOT, b"second", &crate::support::directory()).await.unwrap();
        for nth in 0..names - 1 {
            fs.create(parent, &name(nth), &regular()).await.unwrap();
        }
        fill(&fs, "full", 1).await;
        fs.sync().await.unwrap();
        fs.unlink(parent, &name(0)).await.unwrap();
        let new = fs.create(parent, &name(1_000), &regular()).await.unwrap();
        fs.fsync(new).await.unwrap();
        let (disk, fs) = mount_after_power_cut(&clock, &disk, fs).await;
        fs.lookup(parent, &name(1_000)).await.unwrap();
        fs.unmount().await.unwrap();
        drop(fs);
        judge_disk(disk as Rc<dyn Storage>).await;
    });
}

/// A file without a name is given one while it is closed for the last time.
#[test]
fn a_file_that_is_deleted_meanwhile_gets_no_name() {
    for nth in 0..20 {
        play(nth, async |clock| {
            let slow = AdversaryOptions { latency_ns_max: 100_000, ..options(BLOCKS, true) };
            let small = F2fsOptions { cache_bytes: 0, ..F2fsOptions::default() };
            let (disk, fs) = mounted_on(&clock, slow, small).await;
            for nth in 0..200 {
                let name = format!("{nth:0200}");
                fs.create(ROOT, name.as_bytes(), &regular()).await.unwrap();
            }
            fs.sync().await.unwrap();
            let file = fs.create_unnamed(ROOT, &regular()).await.unwrap();
            let link = clock.spawn_thread("link", {
                let fs = fs.clone();
                async move { fs.link(file, ROOT, b"name").await }
            });
            clock.sleep(Duration::from_micros(nth * 20)).await;
            fs.release(file).await.unwrap();
            let linked = link.await.expect("ended").is_ok();
            assert_eq!(fs.lookup(ROOT, b"name").await.is_ok(), linked);
            unmount_and_judge(&disk, fs).await;
        });
    }
}

/// A large file is deleted while the filesystem is unmounted.
#[test]
fn an_unmount_beside_a_deletion_succeeds() {
    for nth in 0..30 {
        play(nth, async |clock| {
            let slow = AdversaryOptions { latency_ns_max: 100_000, ..options(BLOCKS, true) };
            let small = F2fsOptions { cache_bytes: 0, cache_inodes: 1, ..F2fsOptions::default() };
            let (disk, fs) = mounted_on(&clock, slow, small).await;
            let file = fs.create(ROOT, b"file", &regular()).await.unwrap();
            for index in 0..20 {
                fs.write(file, index * 1_000 * PAGE as u64, &page(index, 1)).await.unwrap();
            }
            fs.sync().await.unwrap();
            let kept = fs.create(ROOT, b"kept", &regular()).await.unwrap();
            fs.write(kept, 0, &page(0, 1)).await.unwrap();
            let deletion = clock.spawn_thread("deletion", {
                let fs = fs.clone();
                async move { fs.unlink(ROOT, b"file").await }
            });
            clock.sleep(Duration::from_micros(nth * 15)).await;
            fs.unmount().await.unwrap();
            let _ = deletion.await.expect("ended");
            drop(fs);
            judge_disk(Rc::clone(&disk) as Rc<dyn Storage>).await;
        });
    }
}

/// A call that waits for another one is dropped: it has changed nothing.
#[test]
fn a_call_that_is_dropped_before_its_turn_stops_nothing() {
    play(6, async |clock| {
        let slow = AdversaryOptions { latency_ns_max: 10_000_000, ..options(BLOCKS, true) };
        let small = F2fsOptions { cache_bytes: 0, ..F2fsOptions::default() };
        let (disk, fs) = mounted_on(&clock, slow, small).await;
        for nth in 0..200 {
            fs.create(ROOT, format!("{nth:0200}").as_bytes(), &regular()).await.unwrap();
        }
        fs.unmount().await.unwrap();
        drop(fs);
        // Nothing is in memory.
        let fs = F2fs::mount(&clock, Rc::clone(&disk) as Rc<dyn Storage>, small).await.unwrap();
        let first = clock.spawn_thread("first", {
            let fs = fs.clone();
            async move { fs.create(ROOT, b"first", &regular()).await }
        });
        clock.sleep(Duration::from_micros(10)).await;
        let new = regular();
        match select(fs.create(ROOT, b"second", &new), Box::pin(clock.sleep(Duration::from_micros(1)))).await
        {
            Either::Left(_) => panic!("the second call did not wait"),
            Either::Right((_, second)) => drop(second),
        }
        first.await.expect("ended").unwrap();
        assert_eq!(fs.read_only(), None);
        unmount_and_judge(&disk, fs).await;
    });
}
