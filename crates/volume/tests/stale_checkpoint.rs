//! V1: the last write of a checkpoint is lost, and its slot holds an earlier checkpoint, which is whole. What was durable
//! behind it is not given up without a word.

use std::rc::Rc;

use weir_runtime::{Handle, Runtime, Simulation};
use weir_storage::{
    AdversaryDisk, AdversaryOptions, BLOCK_BYTES, Extent, Image, Lba, Part, Rules, Storage, flush, read,
    write,
};
use weir_volume::{
    Damage, Finding, Format, RepairOptions, Volume, VolumeError, VolumeMutant, VolumeOptions, check, repair,
};

const WRITTEN: u64 = 60;

fn disk(handle: &Handle, image: &Image) -> Rc<AdversaryDisk> {
    AdversaryDisk::from_image(handle, AdversaryOptions::default(), image)
}

async fn fill(volume: &Volume, version: u8) {
    for lba in 0..WRITTEN {
        write(volume, Part::bytes(Lba(lba), &[version; BLOCK_BYTES])).await.unwrap();
        flush(volume).await.unwrap();
    }
}

fn slot_number(image: &Image, slot: u64) -> u64 {
    let mut number = [0; 8];
    number.copy_from_slice(&image.read(Lba(slot))[16..24]);
    u64::from_le_bytes(number)
}

/// A volume whose newest checkpoint is lost: that of the second opening, or, `in_one_life`, one that was taken between.
/// Its log behind that holds version 2 of all blocks.
async fn lose_checkpoint(handle: &Handle, in_one_life: bool, rules: Rules<VolumeMutant>) -> Image {
    let options = AdversaryOptions { blocks: 2048, ..AdversaryOptions::default() };
    let disk = AdversaryDisk::new(handle, options);
    let storage = || Rc::clone(&disk) as Rc<dyn Storage>;
    let format = Format { segment_blocks: 16, logical_blocks: 0, overwrite: false, slots: 0 };
    Volume::create(handle, &*disk, format).await.unwrap();
    let options = VolumeOptions { rules, ..VolumeOptions::default() };
    let mut volume = Volume::open(handle, storage(), options.clone()).await.unwrap();
    fill(&volume, 1).await;
    let before = disk.image();
    if in_one_life {
        volume.checkpoint().await.unwrap();
    } else {
        drop(volume);
        volume = Volume::open(handle, storage(), options).await.unwrap();
    }
    fill(&volume, 2).await;
    drop(volume);
    let mut image = disk.image();
    let newest = if slot_number(&image, 2) > slot_number(&image, 3) { 2 } else { 3 };
    image.write(Lba(newest), &before.read(Lba(newest)));
    image
}

fn is_named<T>(outcome: Result<T, VolumeError>) -> bool {
    matches!(outcome, Err(VolumeError::Damaged { what: Damage::NewestCheckpoint, .. }))
}

/// What a block reads, by its first byte.
async fn version_of(volume: &Volume, lba: u64) -> u8 {
    read(volume, Extent::new(Lba(lba), 1)).await.unwrap()[0]
}

fn run<T>(seed: u64, work: impl AsyncFnOnce(Handle) -> T) -> T {
    let runtime = Runtime::simulated(Simulation { seed, ..Simulation::default() });
    let handle = runtime.handle();
    runtime.block_on(work(handle)).unwrap()
}

#[test]
fn v1_a_checkpoint_whose_write_was_lost_is_named() {
    run(1, async |handle| {
        let image = lose_checkpoint(&handle, false, Rules::all()).await;
        assert!(is_named(check(&*disk(&handle, &image)).await));
        assert!(is_named(repair(&handle, disk(&handle, &image), RepairOptions::default()).await));
        let opened = Volume::open(&handle, disk(&handle, &image), VolumeOptions::default()).await;
        assert!(is_named(opened.map(drop)));
        let repaired = disk(&handle, &image);
        let options = RepairOptions { to_prefix: true, ..RepairOptions::default() };
        let report = repair(&handle, Rc::clone(&repaired) as Rc<dyn Storage>, options).await.unwrap();
        assert!(
            matches!(report.findings[..], [Finding::Prefix { records, .. }] if records == WRITTEN),
            "{report:?}"
        );
        assert_eq!(report.lost, []);
        let again = repair(&handle, Rc::clone(&repaired) as Rc<dyn Storage>, RepairOptions::default()).await;
        assert_eq!(again.unwrap().findings, []);
        let volume = Volume::open(&handle, repaired, VolumeOptions::default()).await.unwrap();
        assert_eq!(version_of(&volume, 0).await, 1);
    });
}

/// The log leads from the checkpoint before to the end: a repair loses nothing.
#[test]
fn v1_a_lost_checkpoint_between_two_parts_of_one_log() {
    run(2, async |handle| {
        let image = lose_checkpoint(&handle, true, Rules::all()).await;
        assert!(is_named(check(&*disk(&handle, &image)).await));
        let repaired = disk(&handle, &image);
        let storage = || Rc::clone(&repaired) as Rc<dyn Storage>;
        let report = repair(&handle, storage(), RepairOptions::default()).await.unwrap();
        assert!(matches!(report.findings[..], [Finding::Checkpoint(_)]), "{report:?}");
        assert_eq!(report.lost, []);
        assert_eq!(repair(&handle, storage(), RepairOptions::default()).await.unwrap().findings, []);
        let volume = Volume::open(&handle, repaired, VolumeOptions::default()).await.unwrap();
        for lba in 0..WRITTEN {
            assert_eq!(version_of(&volume, lba).await, 2, "block {lba}");
        }
    });
}

#[test]
fn v1_a_stale_checkpoint_that_goes_unnoticed() {
    run(1, async |handle| {
        let rules = Rules::but(Some(VolumeMutant::StaleCheckpointUnnoticed));
        let image = lose_checkpoint(&handle, false, rules).await;
        let options = VolumeOptions { rules, ..VolumeOptions::default() };
        let volume = Volume::open(&handle, disk(&handle, &image), options).await.unwrap();
        assert_eq!(version_of(&volume, 0).await, 1, "what was durable is lost without a word");
        drop(volume);
        let options = RepairOptions { rules, ..RepairOptions::default() };
        let report = repair(&handle, disk(&handle, &image), options).await.unwrap();
        assert_eq!(report.findings_total, 0, "and a repair finds nothing");
    });
}
