//! How fast crash states come: samples of a 512-block barrier disk with a full cache, and recoveries
//! that start a disk from each.

use weir_runtime::{Runtime, RuntimeError, Simulation, Wall};
use weir_storage::{AdversaryDisk, AdversaryOptions, BLOCK_BYTES, Capabilities, Lba, Ordering, Part, write};

const SAMPLES: u32 = 200_000;

#[allow(clippy::print_stdout, reason = "a benchmark is a program that prints")]
fn main() -> Result<(), RuntimeError> {
    let clock = Runtime::wall(Wall::default())?.handle();
    let runtime = Runtime::simulated(Simulation::default());
    let handle = runtime.handle();
    let capabilities = Capabilities { ordering: Ordering::Barrier, ..Capabilities::legacy(32, 64, 512) };
    let options = AdversaryOptions { blocks: 512, capabilities, ..AdversaryOptions::default() };
    let disk = AdversaryDisk::new(&handle, options.clone());
    let fill = async {
        for i in 0..32u64 {
            let _ = write(&*disk, Part::bytes(Lba(i * 13), &[i as u8 + 1; BLOCK_BYTES])).await;
        }
    };
    let _ = runtime.block_on(fill);
    let (states, mut random) = (disk.crash_states(), handle.random("samples"));
    let (start, mut sum) = (clock.cpu_time().user, 0u64);
    for _ in 0..SAMPLES {
        sum = sum.wrapping_add(states.sample(&mut random).hash());
    }
    let sampled = clock.cpu_time().user;
    for _ in 0..SAMPLES / 10 {
        let next = AdversaryDisk::from_image(&handle, options.clone(), &states.sample(&mut random));
        sum = sum.wrapping_add(next.image().hash());
    }
    let started = clock.cpu_time().user;
    println!(
        "sample: {:?}; sample and start a disk: {:?} (hash {sum:x})",
        (sampled - start) / SAMPLES,
        (started - sampled) / (SAMPLES / 10)
    );
    Ok(())
}
