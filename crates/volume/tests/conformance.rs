//! A volume is a storage like any other: the conformance suite passes on it, over the adversary in virtual
//! time and over a real file, however its tickets complete.

#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use weir_runtime::{Handle, Runtime, Simulation, Wall};
use weir_storage::{
    AdversaryDisk, AdversaryOptions, Capabilities, Expectations, FileDisk, FileDiskOptions, Storage,
    conformance,
};
use weir_volume::{Completion, Format, Volume, VolumeOptions};

const BLOCKS: u64 = 4096;
const FORMAT: Format = Format { logical_blocks: 512, segment_blocks: 128, overwrite: false, slots: 0 };

async fn volume(handle: &Handle, disk: Rc<dyn Storage>, completion: Completion) -> Rc<dyn Storage> {
    Volume::create(handle, &*disk, FORMAT).await.unwrap();
    let options = VolumeOptions { completion, ..VolumeOptions::default() };
    Rc::new(Volume::open(handle, disk, options).await.unwrap())
}

#[test]
fn a_volume_over_the_adversary_conforms() {
    for completion in [Completion::Placed, Completion::Disk] {
        for (seed, tear_unit) in [(1, 512), (2, 4096)] {
            let runtime = Runtime::simulated(Simulation { seed, explore: true, ..Simulation::default() });
            let handle = runtime.handle();
            let make = async || {
                let capabilities = Capabilities { fua: seed == 1, ..Capabilities::legacy(8, 256, tear_unit) };
                let options =
                    AdversaryOptions { blocks: BLOCKS, capabilities, ..AdversaryOptions::default() };
                volume(&handle, AdversaryDisk::new(&handle, options), completion).await
            };
            let report = runtime.block_on(conformance(&handle, Expectations::default(), make)).unwrap();
            report.unwrap_or_else(|failure| panic!("{completion:?}, seed {seed}: {failure}"));
        }
    }
}

#[test]
fn a_volume_over_a_file_conforms() {
    let runtime = Runtime::wall(Wall::default()).unwrap();
    let handle = runtime.handle();
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let made = Cell::new(0);
    let make = async || {
        made.set(made.get() + 1);
        let path = directory.path().join(format!("disk-{}", made.get()));
        let disk = FileDisk::create(&handle, &path, BLOCKS * 4096, FileDiskOptions::default()).unwrap();
        volume(&handle, disk, Completion::Placed).await
    };
    let expectations = Expectations { patience: Duration::from_secs(10), ..Expectations::default() };
    let report = runtime.block_on(conformance(&handle, expectations, make)).unwrap();
    report.unwrap_or_else(|failure| panic!("{failure}"));
}
