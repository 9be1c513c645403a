//! Discards that a record cannot hold.

use std::rc::Rc;

use weir_block::{BlockLayer, BlockOptions, Refused};
use weir_storage::{
    BLOCK_BYTES, Command, Extent, Faults, Invalid, Lba, Rejected, Storage, StreamId, flush, submit_when_free,
};
use weir_volume::VolumeOptions;

use crate::bench::{disk_with, get, made, open, put, simulate};

/// Discards blocks 0 to 4, in so many extents, between other requests. What is left after a flush and a power
/// cut of block 1, and of block 11, which was written afterwards.
fn discarded(extents: usize) -> (Result<(), Rejected>, [Option<u64>; 2]) {
    simulate(1, async |handle| {
        let disk = made(&handle).await;
        let volume = open(&handle, &disk, &VolumeOptions::default()).await.expect("the volume is whole");
        for block in 0..10 {
            put(&volume, block, 7 + block).await.expect("there is room");
        }
        flush(&volume).await.expect("nothing fails");
        let extents: Vec<Extent> = (0..extents).map(|i| Extent::new(Lba(i as u64 % 5), 1)).collect();
        let taken = submit_when_free(&volume, Command::Discard(&extents)).await.map(drop);
        put(&volume, 11, 99).await.expect("there is room");
        flush(&volume).await.expect("nothing fails");
        let image = disk.image();
        drop(volume);
        let disk = disk_with(&handle, &image, Faults::default());
        let volume = open(&handle, &disk, &VolumeOptions::default()).await.expect("the volume is whole");
        let left = [get(&volume, 1).await, get(&volume, 11).await];
        (taken, left.map(|found| found.expect("nothing fails")))
    })
}

fn too_many(extents: u64, limit: u32) -> Rejected {
    Rejected::Invalid(Invalid::TooManyExtents { extents, limit })
}

#[test]
fn a_discard_is_one_record_or_refused_and_harms_nobody() {
    let limit = simulate(1, async |handle| {
        let disk = made(&handle).await;
        let volume = open(&handle, &disk, &VolumeOptions::default()).await.expect("the volume is whole");
        volume.capabilities().max_discard_extents
    });
    let most = limit as usize;
    assert!(most * size_of::<[u32; 3]>() < BLOCK_BYTES, "its entries are in one header");
    for extents in [5, most] {
        assert_eq!(discarded(extents), (Ok(()), [Some(0), Some(99)]), "{extents} extents");
    }
    for extents in [0, most + 1, 3_000] {
        let refusal = too_many(extents as u64, limit);
        assert_eq!(discarded(extents), (Err(refusal), [Some(8), Some(99)]), "{extents} extents");
    }
}

#[test]
fn the_block_layer_refuses_to_discard_nothing_and_goes_on() {
    simulate(1, async |handle| {
        let disk = made(&handle).await;
        let volume = open(&handle, &disk, &VolumeOptions::default()).await.expect("the volume is whole");
        let limit = volume.capabilities().max_discard_extents;
        let layer = BlockLayer::new(&handle, Rc::new(volume), BlockOptions::default());
        let layer = layer.expect("the options are valid");
        let refused = layer.discard(StreamId(0), &[]).err();
        assert_eq!(refused, Some(Refused::Rejected(too_many(0, limit))));
        layer.flush().expect("there is room").transferred().await.expect("nothing fails");
    });
}
