//! Reads of what was written here and there: of many runs on the disk below, at one time.

#![allow(clippy::print_stdout, reason = "figures belong in the log of a test run")]
#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

use std::rc::Rc;
use std::time::Duration;

use crate::slow::Slow;
use weir_runtime::{Handle, Runtime, Simulation};
use weir_storage::{
    AdversaryDisk, AdversaryOptions, BLOCK_BYTES, Capabilities, Extent, Fault, Faults, Image, Lba, Part,
    Rejected, Rules, Storage, StorageError, read, write,
};
use weir_volume::{Format, Volume, VolumeMutant, VolumeOptions};

const BLOCKS: u64 = 48;
const FORMAT: Format = Format { logical_blocks: 512, segment_blocks: 64, overwrite: false, slots: 0 };

fn simulated<T>(script: impl AsyncFnOnce(Handle) -> T) -> T {
    let runtime = Runtime::simulated(Simulation { seed: 5, ..Simulation::default() });
    runtime.block_on(script(runtime.handle())).unwrap()
}

fn content(lba: u64) -> Vec<u8> {
    (0..BLOCK_BYTES as u64).map(|at| (at / 8 * 31 + lba * 7 + 1) as u8).collect()
}

/// Writes the first 48 blocks so that none of them lies beside the next one on the disk, and closes the volume.
async fn scatter(handle: &Handle, disk: Rc<dyn Storage>) {
    Volume::create(handle, &*disk, FORMAT).await.unwrap();
    let volume = Volume::open(handle, disk, VolumeOptions::default()).await.unwrap();
    for nth in 0..BLOCKS {
        let lba = nth * 29 % BLOCKS;
        write(&volume, Part::bytes(Lba(lba), &content(lba))).await.unwrap();
        write(&volume, Part::bytes(Lba(100 + nth), &content(100 + nth))).await.unwrap();
    }
    volume.close().await.unwrap();
}

fn adversary(handle: &Handle, image: Option<&Image>, depth: u32, faults: Faults) -> Rc<AdversaryDisk> {
    let capabilities = Capabilities::legacy(depth, 64, 4096);
    let options = AdversaryOptions { blocks: 2048, capabilities, faults, ..AdversaryOptions::default() };
    match image {
        Some(image) => AdversaryDisk::from_image(handle, options, image),
        None => AdversaryDisk::new(handle, options),
    }
}

/// Opens a volume again and reads the 48 blocks by one command.
async fn read_all(
    handle: &Handle,
    disk: Rc<dyn Storage>,
    options: VolumeOptions,
) -> Result<Vec<u8>, Rejected> {
    let volume = Volume::open(handle, disk, options).await.unwrap();
    Ok(read(&volume, Extent::new(Lba(0), BLOCKS as u32)).await?.to_vec())
}

fn whole() -> Vec<u8> {
    (0..BLOCKS).flat_map(content).collect()
}

#[test]
fn runs_are_read_side_by_side() {
    simulated(async |handle| {
        let disk = adversary(&handle, None, 32, Faults::default());
        let slow = Slow::new(&handle, disk, Duration::from_millis(1));
        scatter(&handle, slow.clone()).await;
        let volume = Volume::open(&handle, slow, VolumeOptions::default()).await.unwrap();
        let began = handle.now();
        let found = read(&volume, Extent::new(Lba(0), BLOCKS as u32)).await.unwrap();
        assert!(found[..] == whole()[..]);
        // Two rounds, since the queue takes 32 of the 48 runs.
        let took = handle.now().since(began);
        assert!(took < Duration::from_millis(4), "{took:?}");
    });
}

/// The disk below takes what its queue has room for, and the rest waits.
#[test]
fn a_short_queue_takes_all_runs_in_turn() {
    for depth in [1, 3] {
        simulated(async |handle| {
            let disk = adversary(&handle, None, depth, Faults::default());
            scatter(&handle, disk.clone()).await;
            assert!(read_all(&handle, disk, VolumeOptions::default()).await == Ok(whole()));
        });
    }
}

/// Damages one block among the 48, and reads them.
fn damaged(mutant: Option<VolumeMutant>) -> Result<Vec<u8>, Rejected> {
    simulated(async |handle| {
        let disk = adversary(&handle, None, 32, Faults::default());
        scatter(&handle, disk.clone()).await;
        let mut image = disk.image();
        let place = (0..image.blocks()).find(|block| image.read(Lba(*block)) == content(40)).unwrap();
        image.flip_bit(place * BLOCK_BYTES as u64 + 700, 3);
        let disk = adversary(&handle, Some(&image), 32, Faults::default());
        read_all(&handle, disk, VolumeOptions { rules: Rules::but(mutant), ..VolumeOptions::default() }).await
    })
}

#[test]
fn one_damaged_block_in_many_runs_is_named() {
    assert!(damaged(None) == Err(Rejected::Failed(StorageError::Damaged(Lba(40)))));
    let unchecked = damaged(Some(VolumeMutant::ReadUnchecked)).unwrap();
    assert!(unchecked != whole(), "content that was never written");
}

#[test]
fn one_run_that_cannot_be_read_fails_the_read_and_nothing_else() {
    simulated(async |handle| {
        let disk = adversary(&handle, None, 32, Faults::default());
        scatter(&handle, disk.clone()).await;
        let image = disk.image();
        let mut failed = 0;
        for nth in 1..160 {
            let faults = Faults { read_error: Fault::Nth(nth), ..Faults::default() };
            let disk = adversary(&handle, Some(&image), 32, faults);
            // Opening reads, too.
            let Ok(volume) = Volume::open(&handle, disk, VolumeOptions::default()).await else { continue };
            let extent = Extent::new(Lba(0), BLOCKS as u32);
            match read(&volume, extent).await {
                Ok(found) => {
                    assert!(found[..] == whole()[..]);
                    if failed > 0 {
                        // The read that fails would be one of those below.
                        break;
                    }
                }
                Err(_) => failed += 1,
            }
            assert!(read(&volume, extent).await.unwrap()[..] == whole()[..], "it failed once only");
        }
        assert!(failed > 30, "{failed}");
    });
}

/// Recovery of a log that was never checkpointed, on a disk whose reads take 10 ms each, at any number.
#[test]
fn recovery_reads_ahead() {
    const DELAY: Duration = Duration::from_millis(10);
    simulated(async |handle| {
        let disk = adversary(&handle, None, 32, Faults::default());
        let slow = Slow::new(&handle, disk, Duration::ZERO);
        Volume::create(&handle, &*slow, FORMAT).await.unwrap();
        let volume = Volume::open(&handle, slow.clone(), VolumeOptions::default()).await.unwrap();
        // Some 20 segments.
        for nth in 0..1200 {
            write(&volume, Part::bytes(Lba(nth % 500), &content(nth))).await.unwrap();
        }
        weir_storage::flush(&volume).await.unwrap();
        drop(volume);
        slow.delay.set(DELAY);
        slow.reads.set(0);
        let began = handle.now();
        let volume = Volume::open(&handle, slow.clone(), VolumeOptions::default()).await.unwrap();
        let (took, reads) = (handle.now().since(began), slow.reads.get());
        println!("{reads} reads in {took:?}");
        assert!(reads > 25 && took < DELAY * (reads as u32 / 3), "{reads} reads took {took:?}");
        for lba in 200..500 {
            let found = read(&volume, Extent::new(Lba(lba), 1)).await.unwrap();
            assert_eq!(found[..], content(500 + lba), "block {lba}");
        }
    });
}
