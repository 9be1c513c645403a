//! How much log a recovery reads, on a volume that cleans all the time.

#![allow(clippy::print_stdout, reason = "figures belong in the log of a test run")]
#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

use std::rc::Rc;
use std::time::Duration;

use weir_runtime::{Runtime, Simulation};
use weir_storage::{AdversaryDisk, AdversaryOptions, Capabilities, Lba, Part, Storage, write};
use weir_volume::{Format, LossWindow, Volume, VolumeOptions};

const BLOCKS: u64 = 1 << 15;
const SEGMENT_BLOCKS: u32 = 16;
const SEGMENT_BYTES: u64 = 16 * 4096;

/// What cleaning writes makes the log longer as well: a round of it on a volume that is 80 % full writes many times what
/// lies between two checkpoints.
#[test]
fn a_volume_that_cleans_takes_the_checkpoints_that_bound_recovery() {
    let runtime = Runtime::simulated(Simulation { seed: 1, ..Simulation::default() });
    let handle = runtime.handle();
    let work = async {
        let capabilities = Capabilities::legacy(32, 512, 4096);
        let options = AdversaryOptions { blocks: BLOCKS, capabilities, ..AdversaryOptions::default() };
        let disk = AdversaryDisk::new(&handle, options);
        let format = Format { segment_blocks: SEGMENT_BLOCKS, ..Format::default() };
        Volume::create(&handle, &*disk, format).await.unwrap();
        let options = VolumeOptions {
            checkpoint_segments: 16,
            loss_window: LossWindow { time: Duration::from_millis(1), bytes: 4 * SEGMENT_BYTES },
            ..VolumeOptions::default()
        };
        let mut volume =
            Volume::open(&handle, Rc::clone(&disk) as Rc<dyn Storage>, options.clone()).await.unwrap();
        let live = BLOCKS / 10 * 8;
        let put = async |volume: &Volume, block: u64| {
            write(volume, Part::bytes(Lba(block), &[7; 4096])).await.unwrap();
        };
        for block in 0..live {
            put(&volume, block).await;
        }
        let mut random = handle.random("overwrites");
        let (mut most, mut cleaned) = (0, 0);
        for round in 0..200 {
            for _ in 0..200 + 20 * (round % 10) {
                put(&volume, random.below(live)).await;
            }
            cleaned += volume.stats().cleaned_blocks;
            let target = volume.recovery_target_bytes();
            // As by a power cut.
            drop(volume);
            volume =
                Volume::open(&handle, Rc::clone(&disk) as Rc<dyn Storage>, options.clone()).await.unwrap();
            let read = volume.stats().recovery.bytes_read;
            most = most.max(read);
            // Half as much again may be written during a checkpoint.
            assert!(read <= target * 3 / 2, "round {round}: {read} bytes, of {target} at most");
        }
        println!("{cleaned} blocks cleaned; at most {} segments were read", most / SEGMENT_BYTES);
        assert!(cleaned > 10_000, "{cleaned} blocks cleaned");
    };
    runtime.block_on(work).unwrap();
}
