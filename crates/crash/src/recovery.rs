//! What a machine finds after a power cut: the image, opened as a volume in a runtime of its own, and read.

use weir_runtime::{Runtime, Simulation};
use weir_storage::{AdversaryDisk, Image};
use weir_volume::Volume;

use crate::bound::Bound;
use crate::content::{Stamp, mix};
use crate::model::Verdict;
use crate::options::RunOptions;
use crate::player::{Span, failed};

/// What recovery left, and the hash of how it went.
pub(crate) struct Recovered {
    pub stamps: Result<Vec<Stamp>, Verdict>,
    pub trace_hash: u64,
}

/// The runtime for what follows from `image`.
pub(crate) fn runtime_for(options: &RunOptions, image: &Image) -> Runtime {
    let seed = mix(options.seed, image.hash());
    Runtime::simulated(Simulation { seed, explore: options.explore, cores: None })
}

/// Recovers from `image` and reads `range`.
pub(crate) fn recover(options: &RunOptions, image: &Image, range: Span) -> Recovered {
    let runtime = runtime_for(options, image);
    let handle = runtime.handle();
    let disk = AdversaryDisk::from_image(&handle, options.adversary(), image);
    let bound = Bound::new();
    let disk = bound.around(disk);
    let outcome = runtime.block_on(bound.within(&handle, async {
        let volume = Volume::open(&handle, disk, options.volume.clone()).await;
        let volume = volume.map_err(|error| failed("recovery", &error))?;
        range.read_and_count(&volume, || volume.stats().live_blocks).await
    }));
    let stamps = outcome.unwrap_or_else(|stalled| Err(failed("waiting for recovery", &stalled)));
    Recovered { stamps, trace_hash: handle.trace_hash() }
}
