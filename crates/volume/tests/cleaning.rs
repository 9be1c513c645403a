//! Cleaning, and segments that it cannot read.

#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

use std::rc::Rc;
use std::time::Duration;

use crate::slow::Slow;
use rand::RngExt;
use weir_runtime::{Handle, Random, Runtime, Simulation};
use weir_storage::{
    AdversaryDisk, AdversaryOptions, BLOCK_BYTES, Capabilities, Extent, Lba, Part, Storage, read, write,
};
use weir_volume::{CleaningPolicy, Format, Volume, VolumeOptions};

const SMALL: Format = Format { logical_blocks: 0, segment_blocks: 8, overwrite: false, slots: 0 };

fn content(lba: u64, version: u64) -> Vec<u8> {
    let mut block = vec![(lba * 31 + version * 7 + 1) as u8; BLOCK_BYTES];
    block[..8].copy_from_slice(&lba.to_le_bytes());
    block[8..16].copy_from_slice(&version.to_le_bytes());
    block
}

/// A volume that is overwritten all the time, and the place on its disk that is looked at.
struct Stage {
    slow: Rc<Slow>,
    volume: Volume,
    random: Random,
    version: u64,
    place: Lba,
}

impl Stage {
    async fn new(handle: &Handle, cleaning: CleaningPolicy) -> Stage {
        let capabilities = Capabilities::legacy(32, 64, 512);
        let options = AdversaryOptions { blocks: 400, capabilities, ..AdversaryOptions::default() };
        let slow = Slow::new(handle, AdversaryDisk::new(handle, options), Duration::ZERO);
        Volume::create(handle, &*slow, SMALL).await.unwrap();
        let options = VolumeOptions { cleaning, ..VolumeOptions::default() };
        let volume = Volume::open(handle, Rc::<Slow>::clone(&slow), options).await.unwrap();
        let (random, version, place) = (handle.random("test"), 0, Lba(0));
        let mut stage = Stage { slow, volume, random, version, place };
        for lba in 0..stage.volume.blocks() {
            stage.put(lba).await;
        }
        stage
    }

    async fn put(&mut self, lba: u64) {
        self.version += 1;
        write(&self.volume, Part::bytes(Lba(lba), &content(lba, self.version))).await.unwrap();
    }

    /// Overwrites all blocks but the first: how often others came to the place meanwhile.
    async fn churn(&mut self) -> u32 {
        let (mut changes, mut before) = (0, self.at_place());
        for _ in 0..4000 {
            let lba = self.random.random_range(1..self.volume.blocks());
            self.put(lba).await;
            let now = self.at_place();
            changes += u32::from(now != before);
            before = now;
        }
        changes
    }

    fn at_place(&self) -> Vec<u8> {
        self.slow.disk.image().read(self.place).to_vec()
    }
}

/// A segment that cannot be read stays as it is, and others are cleaned. When its last live block is overwritten, it is
/// like any other: written, cleaned, and written again.
#[test]
fn a_segment_that_could_not_be_read_is_cleaned_again_when_all_of_it_was_overwritten() {
    for cleaning in [CleaningPolicy::Greedy, CleaningPolicy::CostBenefit] {
        let runtime = Runtime::simulated(Simulation { seed: 7, ..Simulation::default() });
        let handle = runtime.handle();
        let script = async {
            let mut stage = Stage::new(&handle, cleaning).await;
            stage.churn().await;
            stage.put(0).await;
            weir_storage::flush(&stage.volume).await.unwrap();
            let (image, newest) = (stage.slow.disk.image(), content(0, stage.version));
            stage.place = (0..image.blocks()).map(Lba).find(|block| image.read(*block) == newest).unwrap();
            stage.slow.fails.set(Some(stage.place.0));
            let cleaned = stage.volume.stats().segments_cleaned;
            assert_eq!(stage.churn().await, 0, "the only copy of a block is where it was");
            assert!(stage.volume.stats().segments_cleaned > cleaned + 100, "others are cleaned");
            assert!(read(&stage.volume, Extent::new(Lba(0), 1)).await.is_err());
            stage.slow.fails.set(None);
            stage.put(0).await;
            let changes = stage.churn().await;
            assert!(changes > 15, "{cleaning:?}: written {changes} times");
        };
        runtime.block_on(script).unwrap();
    }
}

/// A checkpoint writes all of the map that has changed. What cleaning has emptied can be written again after a flush, so where
/// little is free it must leave room for the record that says so, and writers must leave the cleaner what is its own.
#[test]
fn cleaning_of_a_nearly_full_volume_takes_few_checkpoints() {
    let runtime = Runtime::simulated(Simulation { seed: 7, ..Simulation::default() });
    let handle = runtime.handle();
    let script = async {
        let capabilities = Capabilities::legacy(32, 64, 512);
        let options = AdversaryOptions { blocks: 1 << 13, capabilities, ..AdversaryOptions::default() };
        let disk = AdversaryDisk::new(&handle, options);
        let format = Format { logical_blocks: 7000, segment_blocks: 32, overwrite: false, slots: 0 };
        Volume::create(&handle, &*disk, format).await.unwrap();
        let volume = Volume::open(&handle, disk, VolumeOptions::default()).await.unwrap();
        let mut random = handle.random("test");
        let filled = (0..7000).chain((0..20_000).map(|_| random.random_range(0..7000)));
        for (version, lba) in filled.enumerate() {
            write(&volume, Part::bytes(Lba(lba), &content(lba, version as u64))).await.unwrap();
        }
        let stats = volume.stats();
        assert!(stats.segments_cleaned > 500, "{stats:?}");
        assert!(stats.checkpoints * 20 < stats.segments_cleaned, "{stats:?}");
    };
    runtime.block_on(script).unwrap();
}

/// What a write waits for (docs/bench.md, *Cleaning*): with greedy cleaning, so many blocks are moved at most while one write waits.
///
/// The bound in segments is `v / (1 - v) + L + 2`: of segments that are full to `v`, so many are moved to gain one, and the
/// cleaner may fill the `L` that are its own first.
#[test]
fn a_write_waits_for_a_bounded_number_of_moved_blocks() {
    for percent in [50, 80, 90] {
        let runtime = Runtime::simulated(Simulation { seed: 4, ..Simulation::default() });
        let handle = runtime.handle();
        let script = async {
            let capabilities = Capabilities::legacy(32, 64, 512);
            let options = AdversaryOptions { blocks: 1 << 14, capabilities, ..AdversaryOptions::default() };
            let disk = AdversaryDisk::new(&handle, options);
            Volume::create(&handle, &*disk, Format { segment_blocks: 64, ..SMALL }).await.unwrap();
            let volume = Volume::open(&handle, disk, VolumeOptions::default()).await.unwrap();
            let live = volume.stats().data_capacity_blocks * percent / 100;
            let mut random = handle.random("test");
            let (mut most, mut beside) = (0, 0);
            let written = (0..live).chain((0..60_000).map(|_| random.random_range(0..live)));
            for (version, lba) in written.enumerate() {
                let moved = volume.stats().cleaned_blocks;
                write(&volume, Part::bytes(Lba(lba), &content(lba, version as u64))).await.unwrap();
                let moved = volume.stats().cleaned_blocks - moved;
                beside += u32::from(moved > 0);
                most = most.max(moved);
            }
            let stats = volume.stats();
            let segments = f64::from(stats.segments);
            let in_segment = stats.data_capacity_blocks as f64 / segments;
            let live = stats.live_blocks as f64 / in_segment;
            let goal = ((segments - live) / 3.0).max(4.0);
            let full = live / (segments - goal - 1.0);
            let cleaners = (segments / 75.0).floor().max(2.0);
            let bound = (full / (1.0 - full) + cleaners + 2.0) * in_segment;
            assert!(beside > 20, "{percent} %: cleaning went on during {beside} writes");
            assert!((most as f64) <= bound, "{percent} %: {most} blocks moved, {bound}");
            // The control: the bound is not so far away that it would hold for anything.
            assert!((most as f64) * 4.0 > bound, "{percent} %: {most} blocks moved, {bound}");
        };
        runtime.block_on(script).unwrap();
    }
}

/// What a flush waits for (docs/bench.md, *Cleaning*): of cleaning, no more than the four segments that are read when it begins. On a
/// volume that is half full, writers do not wait for cleaning.
#[test]
fn a_flush_comes_before_further_reads_of_cleaning() {
    let runtime = Runtime::simulated(Simulation { seed: 4, ..Simulation::default() });
    let handle = runtime.handle();
    let script = async {
        let capabilities = Capabilities::legacy(32, 64, 512);
        let options = AdversaryOptions { blocks: 1 << 14, capabilities, ..AdversaryOptions::default() };
        let slow = Slow::new(&handle, AdversaryDisk::new(&handle, options), Duration::from_micros(50));
        Volume::create(&handle, &*slow, Format { segment_blocks: 64, ..SMALL }).await.unwrap();
        slow.flush_delay.set(Duration::from_millis(2));
        let below = Rc::<Slow>::clone(&slow);
        let volume = Volume::open(&handle, below, VolumeOptions::default()).await.unwrap();
        let live = volume.stats().data_capacity_blocks / 2;
        let mut random = handle.random("test");
        let (mut beside, mut most) = (0, 0);
        let written = (0..live).chain((0..60_000).map(|_| random.random_range(0..live)));
        for (version, lba) in written.enumerate() {
            write(&volume, Part::bytes(Lba(lba), &content(lba, version as u64))).await.unwrap();
            if version % 100 == 0 {
                let (cleaned, before) = (volume.stats().segments_cleaned, slow.ended.get());
                weir_storage::flush(&volume).await.unwrap();
                beside += u32::from(volume.stats().segments_cleaned > cleaned);
                most = most.max(slow.ended.get() - before);
            }
        }
        assert!(beside > 20, "cleaning went on during {beside} flushes");
        assert!(most <= 4, "{most} segments were read for cleaning while a caller waited for a flush");
    };
    runtime.block_on(script).unwrap();
}
