//! What a volume does while nothing goes wrong, and what it says when something does.

#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;

use futures_util::poll;
use weir_runtime::{Handle, Runtime, Simulation};
use weir_storage::{
    AdversaryDisk, AdversaryOptions, BLOCK_BYTES, Capabilities, Command, Extent, Lba, Part, Rules, Storage,
    Write, WriteFlags, flush, read, write,
};
use weir_volume::{Format, Volume, VolumeError, VolumeMutant, VolumeOptions, check, inspect};

const SMALL: Format = Format { logical_blocks: 0, segment_blocks: 8, overwrite: false, slots: 0 };

fn disk(handle: &Handle, blocks: u64) -> Rc<AdversaryDisk> {
    let capabilities = Capabilities::legacy(32, 64, 512);
    AdversaryDisk::new(handle, AdversaryOptions { blocks, capabilities, ..AdversaryOptions::default() })
}

fn content(lba: u64, version: u64) -> Vec<u8> {
    let mut block = vec![(lba * 31 + version * 7 + 1) as u8; BLOCK_BYTES];
    block[..8].copy_from_slice(&lba.to_le_bytes());
    block[8..16].copy_from_slice(&version.to_le_bytes());
    block
}

async fn put(storage: &dyn Storage, lba: u64, version: u64) {
    write(storage, Part::bytes(Lba(lba), &content(lba, version))).await.unwrap();
}

async fn get(storage: &dyn Storage, lba: u64) -> Vec<u8> {
    read(storage, Extent::new(Lba(lba), 1)).await.unwrap().to_vec()
}

#[test]
fn what_was_written_is_read_back_before_and_after_reopening() {
    let runtime = Runtime::simulated(Simulation { seed: 1, ..Simulation::default() });
    let handle = runtime.handle();
    runtime
        .block_on(async {
            let disk = disk(&handle, 512);
            Volume::create(&handle, &*disk, SMALL).await.unwrap();
            let volume = Volume::open(&handle, disk.clone(), VolumeOptions::default()).await.unwrap();
            for lba in 0..100 {
                put(&volume, lba, 1).await;
            }
            for lba in 0..100 {
                assert_eq!(get(&volume, lba).await, content(lba, 1));
            }
            assert_eq!(get(&volume, 101).await, vec![0; BLOCK_BYTES]);
            flush(&volume).await.unwrap();
            volume.close().await.unwrap();
            assert_eq!(inspect(&*disk).await.unwrap().next_sequence, 101);
            let volume = Volume::open(&handle, disk.clone(), VolumeOptions::default()).await.unwrap();
            for lba in 0..100 {
                assert_eq!(get(&volume, lba).await, content(lba, 1));
            }
            volume.close().await.unwrap();
            let report = check(&*disk).await.unwrap();
            assert_eq!((report.live_blocks, report.damaged_total), (100, 0));
            assert_eq!(report.superblock_copies, 2);
            write(&*disk, Part::bytes(Lba(1), &[0; BLOCK_BYTES])).await.unwrap();
            assert_eq!(check(&*disk).await.unwrap().superblock_copies, 1);
        })
        .unwrap();
}

/// In the larger volume, the cleaner's share of the free segments is more than a sixth of them.
#[test]
fn cleaning_keeps_up_when_the_volume_is_as_full_as_it_may_be() {
    for disk_blocks in [400, 6400] {
        let runtime = Runtime::simulated(Simulation { seed: 2, ..Simulation::default() });
        let handle = runtime.handle();
        runtime.block_on(fill_and_write_over(&handle, disk_blocks)).unwrap();
    }
}

async fn fill_and_write_over(handle: &Handle, disk_blocks: u64) {
    let disk = disk(handle, disk_blocks);
    Volume::create(handle, &*disk, SMALL).await.unwrap();
    let volume = Volume::open(handle, disk.clone(), VolumeOptions::default()).await.unwrap();
    let blocks = volume.blocks();
    let mut random = handle.random("test");
    for lba in 0..blocks {
        put(&volume, lba, 0).await;
    }
    let mut versions = vec![0; blocks as usize];
    for version in 1..5000 {
        let lba = rand::RngExt::random_range(&mut random, 0..blocks);
        put(&volume, lba, version).await;
        versions[lba as usize] = version;
    }
    for lba in 0..blocks {
        assert_eq!(get(&volume, lba).await, content(lba, versions[lba as usize]));
    }
    let stats = volume.stats();
    assert_eq!(stats.live_blocks, blocks);
    assert!(stats.cleaned_blocks > 0);
}

/// Blocks that were never written, or discarded, are holes: in pages of the map in memory, and before and after a
/// reopening.
#[test]
fn holes_are_known() {
    let runtime = Runtime::simulated(Simulation { seed: 7, ..Simulation::default() });
    let handle = runtime.handle();
    let work = async {
        let disk = disk(&handle, 8192);
        let format = Format { segment_blocks: 64, ..SMALL };
        Volume::create(&handle, &*disk, format).await.unwrap();
        let volume = Volume::open(&handle, disk.clone(), VolumeOptions::default()).await.unwrap();
        assert_eq!(volume.next_data(Lba(0)), None);
        for lba in [3, 4, 1000, 2040] {
            put(&volume, lba, 1).await;
        }
        let data = |volume: &Volume| {
            let next = |from: u64| volume.next_data(Lba(from)).map(|lba| lba.0);
            std::iter::successors(next(0), |last| next(last + 1)).collect::<Vec<_>>()
        };
        assert_eq!(data(&volume), [3, 4, 1000, 2040]);
        volume.submit(Command::Discard(&[Extent::new(Lba(4), 1000)])).unwrap();
        assert_eq!(data(&volume), [3, 2040]);
        volume.close().await.unwrap();
        let volume = Volume::open(&handle, disk, VolumeOptions::default()).await.unwrap();
        assert_eq!(data(&volume), [3, 2040]);
        assert_eq!(volume.next_data(Lba(volume.blocks())), None);
    };
    runtime.block_on(work).unwrap();
}

#[test]
fn a_disk_that_takes_less_than_a_chunk_is_refused() {
    let runtime = Runtime::simulated(Simulation { seed: 3, ..Simulation::default() });
    let handle = runtime.handle();
    let outcome = runtime.block_on(async {
        let capabilities = Capabilities::legacy(32, 7, 512);
        let options = AdversaryOptions { blocks: 512, capabilities, ..AdversaryOptions::default() };
        let disk = AdversaryDisk::new(&handle, options);
        Volume::create(&handle, &*disk, SMALL).await
    });
    assert_eq!(outcome.unwrap(), Err(VolumeError::Transfer { needed: 8, found: 7 }));
}

#[test]
fn a_discard_is_one_record_or_refused() {
    let runtime = Runtime::simulated(Simulation { seed: 4, ..Simulation::default() });
    let handle = runtime.handle();
    let work = async {
        let disk = disk(&handle, 2048);
        let format = Format { segment_blocks: 64, ..SMALL };
        Volume::create(&handle, &*disk, format).await.unwrap();
        let volume = Volume::open(&handle, disk.clone(), VolumeOptions::default()).await.unwrap();
        put(&volume, 5, 1).await;
        let extents = vec![Extent::new(Lba(5), 1); 337];
        for (count, taken) in [(0, false), (337, false), (336, true)] {
            let outcome = volume.submit(Command::Discard(&extents[..count]));
            assert_eq!(outcome.is_ok(), taken, "{count} extents");
        }
        assert_eq!(get(&volume, 5).await, vec![0; BLOCK_BYTES]);
        put(&volume, 6, 2).await;
        flush(&volume).await.unwrap();
        drop(volume);
        let volume = Volume::open(&handle, disk, VolumeOptions::default()).await.unwrap();
        assert_eq!(get(&volume, 5).await, vec![0; BLOCK_BYTES]);
        assert_eq!(get(&volume, 6).await, content(6, 2));
    };
    runtime.block_on(work).unwrap();
}

#[test]
fn a_preflush_write_is_transferred_when_what_was_before_it_is_durable() {
    let runtime = Runtime::simulated(Simulation { seed: 5, ..Simulation::default() });
    let handle = runtime.handle();
    let work = async {
        let disk = disk(&handle, 512);
        Volume::create(&handle, &*disk, SMALL).await.unwrap();
        let volume = Volume::open(&handle, disk.clone(), VolumeOptions::default()).await.unwrap();
        put(&volume, 1, 1).await;
        let page = content(2, 2);
        let parts = [Part::bytes(Lba(2), &page)];
        let flags = WriteFlags { preflush: true, ..WriteFlags::default() };
        let ticket = volume.submit(Command::Write(Write { flags, ..Write::new(&parts) })).unwrap();
        assert_eq!(ticket.poll_transferred(), None);
        ticket.transferred().await.unwrap();
        let image = disk.crash_states().all().next().unwrap();
        drop(volume);
        let left = AdversaryDisk::from_image(&handle, AdversaryOptions::default(), &image);
        let volume = Volume::open(&handle, left, VolumeOptions::default()).await.unwrap();
        assert_eq!(get(&volume, 1).await, content(1, 1));
    };
    runtime.block_on(work).unwrap();
}

/// A checkpoint whose caller gives it up half way, then a second one, then a reopening: whether all that was written is
/// there, or nothing was acknowledged any more.
fn keeps_what_an_abandoned_checkpoint_had(polls: u32, waits: bool, mutant: Option<VolumeMutant>) -> bool {
    let runtime = Runtime::simulated(Simulation { seed: 6, ..Simulation::default() });
    let handle = runtime.handle();
    let work = async {
        let disk = disk(&handle, 4096);
        Volume::create(&handle, &*disk, SMALL).await.unwrap();
        let options = VolumeOptions { rules: Rules::but(mutant), ..VolumeOptions::default() };
        let volume = Volume::open(&handle, disk.clone(), options).await.unwrap();
        for lba in 0..100 {
            put(&volume, lba, 1).await;
        }
        flush(&volume).await.unwrap();
        let mut close = pin!(volume.close());
        {
            let mut checkpoint = pin!(volume.checkpoint());
            for _ in 0..polls {
                if poll!(&mut checkpoint).is_ready() {
                    break;
                }
                // It has looked for a failure before there was one, and waits for the checkpoint.
                if waits {
                    assert!(poll!(&mut close).is_pending());
                }
                handle.sleep(Duration::from_micros(10)).await;
            }
        }
        let closed = close.await.is_ok();
        let Ok(volume) = Volume::open(&handle, disk, VolumeOptions::default()).await else { return false };
        for lba in 0..100 {
            if get(&volume, lba).await != content(lba, 1) {
                return false;
            }
        }
        // Those that end before they are given up are no evidence.
        closed || polls < 100
    };
    runtime.block_on(work).unwrap()
}

#[test]
fn v4_a_checkpoint_given_up_half_way() {
    let polls = [1, 2, 4, 8, 16, 32, 64, 1000];
    for (polls, waits) in polls.into_iter().flat_map(|polls| [(polls, false), (polls, true)]) {
        assert!(keeps_what_an_abandoned_checkpoint_had(polls, waits, None), "{polls} polls, {waits}");
    }
    let mutant = Some(VolumeMutant::CheckpointAbandoned);
    let lost = |polls| !keeps_what_an_abandoned_checkpoint_had(polls, false, mutant);
    assert!(polls.into_iter().any(lost), "the mutant loses what the checkpoint had frozen");
}
