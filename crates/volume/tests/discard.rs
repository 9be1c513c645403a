//! Discards that a volume passes on to the disk below (V3).

#![allow(clippy::print_stdout, reason = "figures belong in the log of a test run")]
#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

use std::os::unix::fs::MetadataExt;
use std::rc::Rc;
use std::time::Duration;

use weir_runtime::{Handle, Runtime, Simulation, Wall};
use weir_storage::{
    AdversaryDisk, AdversaryOptions, BLOCK_BYTES, Capabilities, Command, Discard, Extent, Feature, FileDisk,
    FileDiskOptions, Lba, Part, Rejected, Rules, Storage, flush, read, write,
};
use weir_volume::{Format, LossWindow, Volume, VolumeError, VolumeMutant, VolumeOptions, check, inspect};

const SMALL: Format = Format { logical_blocks: 0, segment_blocks: 8, overwrite: false, slots: 0 };
const BLOCKS: u64 = 60;

fn adversary(discard: Discard) -> AdversaryOptions {
    let capabilities = Capabilities { discard, ..Capabilities::legacy(32, 64, 4096) };
    AdversaryOptions { blocks: 512, capabilities, latency_ns_max: 50_000, ..AdversaryOptions::default() }
}

async fn put(volume: &Volume, lba: u64, version: u8) {
    write(volume, Part::bytes(Lba(lba), &[version; BLOCK_BYTES])).await.unwrap();
}

async fn version(volume: &Volume, lba: u64) -> u8 {
    let found = read(volume, Extent::new(Lba(lba), 1)).await.unwrap();
    assert!(found.iter().all(|byte| *byte == found[0]), "block {lba} is one version");
    found[0]
}

/// Blocks that are flushed and then overwritten, without a flush; a trim; the power is cut. Whether all is left that
/// was flushed.
fn keeps_what_was_flushed(seed: u64) -> bool {
    let runtime = Runtime::simulated(Simulation { seed, ..Simulation::default() });
    let handle = runtime.handle();
    let work = async {
        let disk = AdversaryDisk::new(&handle, adversary(Discard::ReadsZero));
        Volume::create(&handle, &*disk, SMALL).await.unwrap();
        // Nothing is flushed but what the test flushes.
        let loss_window = LossWindow { time: Duration::from_secs(3600), bytes: 64 << 20 };
        let options = VolumeOptions { loss_window, buffers: 64, ..VolumeOptions::default() };
        let volume = Volume::open(&handle, disk.clone(), options).await.unwrap();
        for lba in 0..BLOCKS {
            put(&volume, lba, 1).await;
        }
        flush(&volume).await.unwrap();
        for lba in 0..BLOCKS {
            put(&volume, lba, 2).await;
        }
        volume.trim().await.unwrap();
        disk.cut_power();
        let left = disk.crash_states().sample(&mut handle.random("what is left"));
        let disk = AdversaryDisk::from_image(&handle, adversary(Discard::ReadsZero), &left);
        let Ok(volume) = Volume::open(&handle, disk, VolumeOptions::default()).await else { return false };
        for lba in 0..BLOCKS {
            if version(&volume, lba).await == 0 {
                return false;
            }
        }
        true
    };
    runtime.block_on(work).unwrap()
}

#[test]
fn v3_a_segment_discarded_before_it_is_free() {
    for seed in 0..40 {
        assert!(keeps_what_was_flushed(seed), "seed {seed}");
    }
}

/// Overwrites in a volume that passes discards on, while it cleans, and with trims beside it: nothing is lost.
#[test]
fn a_log_that_follows_its_own_discards_loses_nothing() {
    for (seed, discard) in [(1, Discard::ReadsZero), (2, Discard::Undefined)] {
        let runtime = Runtime::simulated(Simulation { seed, explore: true, ..Simulation::default() });
        let handle = runtime.handle();
        let work = async {
            let disk = AdversaryDisk::new(&handle, adversary(discard));
            Volume::create(&handle, &*disk, SMALL).await.unwrap();
            let options =
                VolumeOptions { discard_below: true, checkpoint_segments: 4, ..VolumeOptions::default() };
            let volume = Rc::new(Volume::open(&handle, disk.clone(), options).await.unwrap());
            let (beside, clock) = (Rc::clone(&volume), handle.clone());
            let trims = handle.spawn(async move {
                loop {
                    beside.trim().await.unwrap();
                    // One that finds nothing to discard takes no time.
                    clock.sleep(Duration::from_micros(10)).await;
                }
            });
            let blocks = volume.blocks() * 9 / 10;
            let mut random = handle.random("test");
            let mut versions = vec![0; blocks as usize];
            for turn in 0..6000_u32 {
                let lba = rand::RngExt::random_range(&mut random, 0..blocks);
                if turn % 7 == 0 {
                    let extent = Extent::new(Lba(lba), 12.min(blocks - lba) as u32);
                    let ticket = weir_storage::submit_when_free(&*volume, Command::Discard(&[extent])).await;
                    ticket.unwrap().transferred().await.unwrap();
                    extent.iter().for_each(|lba| versions[lba.0 as usize] = 0);
                } else {
                    versions[lba as usize] = (turn % 255) as u8 + 1;
                    put(&volume, lba, versions[lba as usize]).await;
                }
            }
            trims.cancel();
            for lba in 0..blocks {
                assert_eq!(version(&volume, lba).await, versions[lba as usize], "block {lba}");
            }
            assert!(volume.stats().discarded_blocks > 0);
            volume.close().await.unwrap();
            assert_eq!(check(&*disk).await.unwrap().damaged_total, 0);
        };
        runtime.block_on(work).unwrap();
    }
}

/// A long log that overwrites a few blocks; one more checkpoint, by a recovery or without; a trim; perhaps one more
/// write. Then the newest checkpoint is damaged. Whether that is noticed, or nothing is missing.
fn a_lost_checkpoint_is_noticed(reopen: bool, more: bool, mutant: Option<VolumeMutant>) -> bool {
    let runtime = Runtime::simulated(Simulation { seed: 3, ..Simulation::default() });
    let handle = runtime.handle();
    let work = async {
        let options = AdversaryOptions { blocks: 4096, ..adversary(Discard::ReadsZero) };
        let disk = AdversaryDisk::new(&handle, options);
        Volume::create(&handle, &*disk, SMALL).await.unwrap();
        // The smallest window: a cut is not looked behind farther than that.
        let loss_window = LossWindow { bytes: 1, ..LossWindow::default() };
        let options = VolumeOptions { loss_window, rules: Rules::but(mutant), ..VolumeOptions::default() };
        let mut volume = Volume::open(&handle, disk.clone(), options.clone()).await.unwrap();
        for turn in 0..400 {
            put(&volume, turn % 10, (turn / 10) as u8 + 1).await;
        }
        flush(&volume).await.unwrap();
        if reopen {
            drop(volume);
            volume = Volume::open(&handle, disk.clone(), options.clone()).await.unwrap();
        } else {
            volume.checkpoint().await.unwrap();
        }
        volume.trim().await.unwrap();
        if more {
            put(&volume, 0, 100).await;
            flush(&volume).await.unwrap();
        }
        drop(volume);
        let mut image = disk.image();
        // Number 1 is in the first slot, block 2, and so on, one by the other.
        let newest = 3 - inspect(&*disk).await.unwrap().checkpoint % 2;
        image.flip_bit(newest * BLOCK_BYTES as u64 + 100, 1);
        let disk = AdversaryDisk::from_image(&handle, adversary(Discard::ReadsZero), &image);
        let Ok(volume) = Volume::open(&handle, disk, options).await else { return true };
        let first = if more { 100 } else { 40 };
        version(&volume, 0).await == first && version(&volume, 9).await == 40
    };
    runtime.block_on(work).unwrap()
}

#[test]
fn v1_a_discarded_log_of_the_checkpoint_before() {
    for (reopen, more) in [(false, false), (false, true), (true, false), (true, true)] {
        assert!(a_lost_checkpoint_is_noticed(reopen, more, None), "reopened {reopen}, written to {more}");
    }
    for (reopen, more) in [(false, false), (false, true), (true, false)] {
        let mutant = Some(VolumeMutant::DiscardsUnheld);
        assert!(!a_lost_checkpoint_is_noticed(reopen, more, mutant), "reopened {reopen}, written to {more}");
    }
}

#[test]
fn a_disk_without_discard_is_not_trimmed() {
    let runtime = Runtime::simulated(Simulation::default());
    let handle = runtime.handle();
    let outcome = runtime.block_on(async {
        let disk = AdversaryDisk::new(&handle, adversary(Discard::Unsupported));
        Volume::create(&handle, &*disk, SMALL).await.unwrap();
        let options = VolumeOptions { discard_below: true, ..VolumeOptions::default() };
        Volume::open(&handle, disk, options).await.unwrap().trim().await
    });
    assert_eq!(outcome.unwrap(), Err(VolumeError::Disk(Rejected::Unsupported(Feature::Discard))));
}

/// Fills a sparse file's volume, discards most of it, and returns what the file takes before and after.
async fn shrunk(handle: &Handle, path: &std::path::Path, discard_below: bool, trim: bool) -> (u64, u64) {
    let allocated = || std::fs::metadata(path).unwrap().blocks() * 512;
    let disk = FileDisk::open(handle, path, FileDiskOptions::default()).unwrap();
    Volume::create(handle, &*disk, Format::default()).await.unwrap();
    let options = VolumeOptions { discard_below, ..VolumeOptions::default() };
    let volume = Volume::open(handle, disk.clone(), options).await.unwrap();
    let data = vec![7; 64 * BLOCK_BYTES];
    for first in (0..8192).step_by(64) {
        write(&volume, Part::bytes(Lba(first), &data)).await.unwrap();
    }
    volume.checkpoint().await.unwrap();
    let before = allocated();
    let all_but_some = Extent::new(Lba(64), 8128);
    volume.submit(Command::Discard(&[all_but_some])).unwrap().transferred().await.unwrap();
    flush(&volume).await.unwrap();
    volume.checkpoint().await.unwrap();
    if trim {
        volume.trim().await.unwrap();
    }
    handle.sleep(Duration::from_millis(200)).await;
    assert_eq!(read(&volume, Extent::new(Lba(0), 64)).await.unwrap()[..], data[..]);
    volume.close().await.unwrap();
    assert_eq!(check(&*disk).await.unwrap().live_blocks, 64);
    (before, allocated())
}

#[test]
fn a_sparse_file_gets_its_space_back() {
    for (discard_below, trim) in [(false, false), (true, false), (false, true)] {
        let runtime = Runtime::wall(Wall::default()).unwrap();
        let handle = runtime.handle();
        let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let path = directory.path().join("disk");
        std::fs::File::create(&path).unwrap().set_len(256 << 20).unwrap();
        let (before, after) = runtime.block_on(shrunk(&handle, &path, discard_below, trim)).unwrap();
        println!("discard_below {discard_below}, trim {trim}: {before} bytes, then {after}");
        assert!(before > 32 << 20);
        assert_eq!(after < 4 << 20, discard_below || trim, "{after} bytes are left");
    }
}
