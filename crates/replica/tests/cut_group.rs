//! A catch-up that is cut by a crash: the next one goes on with its group, where the volume has all that is in it (R3).

use std::rc::Rc;

use weir_replica::{ReplicaMutant, ReplicaOptions, SimulatedStore, StoreFaults, WantedState};
use weir_runtime::Handle;
use weir_storage::{
    AdversaryDisk, BLOCK_BYTES, Extent, Image, Lba, Part, Rules, Storage, flush, read, write,
};
use weir_volume::{Volume, VolumeOptions, content_checksum};

use crate::world::{World, disk_options, options, page, restore_disk, simulate};

/// Blocks of the volume that are written.
const WRITTEN: u32 = 100;

/// Two blocks with one content checksum.
fn twins() -> [Vec<u8>; 2] {
    let block = page(1);
    let flipped = |bits: &[usize]| {
        let mut other = block.clone();
        bits.iter().for_each(|bit| other[bit / 8] ^= 1 << (bit % 8));
        other
    };
    let sum = content_checksum(&block);
    // The checksum of a change is the sum of those of its bits, so of 33 bits some make no difference.
    let mut found: Vec<(u32, Vec<usize>)> = Vec::new();
    for bit in 0..=32 {
        let (mut change, mut bits) = (content_checksum(&flipped(&[bit])) ^ sum, vec![bit]);
        for (other, of) in &found {
            if change ^ other < change {
                change ^= other;
                bits.extend(of);
            }
        }
        if change == 0 {
            bits.sort_unstable();
            // What is there twice makes none.
            let bits: Vec<usize> =
                bits.chunk_by(|a, b| a == b).filter(|same| same.len() % 2 == 1).map(|same| same[0]).collect();
            let other = flipped(&bits);
            assert!(other != block && content_checksum(&other) == sum);
            return [block, other];
        }
        found.push((change, bits));
        found.sort_by_key(|(change, _)| std::cmp::Reverse(*change));
    }
    unreachable!("33 changes of 32 bits")
}

async fn put(volume: &Volume, lba: u32, data: &[u8]) {
    write(volume, Part::bytes(Lba(u64::from(lba)), data)).await.unwrap();
}

/// Opens what a disk holds, as a machine does after a crash.
async fn open(handle: &Handle, image: &Image) -> (Rc<AdversaryDisk>, Rc<Volume>) {
    let disk = AdversaryDisk::from_image(handle, disk_options(), image);
    let volume = Volume::open(handle, disk.clone(), VolumeOptions::default()).await.unwrap();
    (disk, Rc::new(volume))
}

fn log_objects(store: &SimulatedStore) -> usize {
    store.objects().keys().filter(|key| key.starts_with("log/")).count()
}

/// The bytes of a first upload; the world, whose upload was cut when half of its objects were there.
async fn cut_first_upload(handle: &Handle, options: &ReplicaOptions) -> (World, u64) {
    let mut world = World::new(
        handle,
        StoreFaults { delay_max: std::time::Duration::from_millis(2), ..StoreFaults::default() },
    )
    .await;
    for lba in 0..WRITTEN {
        put(&world.volume, lba, &page(u64::from(lba) + 1)).await;
    }
    world.flush().await;
    let store = world.store.clone();
    world.store = SimulatedStore::new(handle, StoreFaults::default());
    let mut uploader = world.uploader(options.clone()).await.unwrap();
    uploader.ship_all().await.unwrap();
    let whole = (log_objects(&world.store), uploader.replication().status().requests.bytes_created);
    drop(uploader);
    world.store = store;
    let mut uploader = world.uploader(options.clone()).await.unwrap();
    let shipping = handle.spawn(async move { uploader.ship_all().await });
    while log_objects(&world.store) < whole.0 / 2 {
        handle.sleep(std::time::Duration::from_micros(100)).await;
    }
    shipping.cancel();
    (world, whole.1)
}

/// Ships a volume, and compares each block. Returns the bytes that were sent.
async fn ship(handle: &Handle, world: &World, volume: &Rc<Volume>, options: &ReplicaOptions) -> (u64, bool) {
    let store = Rc::new(world.store.clone());
    let bounds = crate::world::bounds();
    let opened =
        weir_replica::Uploader::open(handle, Rc::clone(volume), store, bounds, options.clone()).await;
    let mut uploader = opened.unwrap();
    uploader.ship_all().await.unwrap();
    let sent = uploader.replication().status().requests.bytes_created;
    let replica = world.replica(options.clone()).await.unwrap();
    let (_, restored) = restore_disk(handle, &replica, WantedState::Newest).await.unwrap();
    assert_eq!(replica.check().await.unwrap().faults, []);
    (sent, content(&*restored).await == content(&**volume).await)
}

async fn content(storage: &dyn Storage) -> Vec<Vec<u8>> {
    let mut blocks = Vec::new();
    for lba in 0..u64::from(WRITTEN) {
        blocks.push(read(storage, Extent::new(Lba(lba), 1)).await.unwrap()[..BLOCK_BYTES].to_vec());
    }
    blocks
}

/// Raw data, so that bytes are blocks.
fn raw() -> ReplicaOptions {
    ReplicaOptions { compress: false, ..options() }
}

#[test]
fn a_first_upload_that_was_cut_is_continued() {
    simulate(1, async |handle| {
        let (world, whole) = cut_first_upload(&handle, &raw()).await;
        let (_, volume) = open(&handle, &world.disk.image()).await;
        // Of what the store has one block was written again, and one discarded.
        put(&volume, 3, &page(1000)).await;
        let discarded = [Extent::new(Lba(4), 1)];
        weir_storage::submit_when_free(&*volume, weir_storage::Command::Discard(&discarded)).await.unwrap();
        let (sent, is_same) = ship(&handle, &world, &volume, &raw()).await;
        assert!(is_same);
        assert!(sent > whole / 3 && sent < whole * 2 / 3, "{sent} bytes of {whole} were sent again");
    });
}

/// It may be cut again, and again: nothing is sent twice but what is written meanwhile.
#[test]
fn a_first_upload_is_continued_as_often_as_it_is_cut() {
    simulate(2, async |handle| {
        let (mut world, whole) = cut_first_upload(&handle, &raw()).await;
        let mut sent = 0;
        for round in 0..4_u64 {
            let image = world.disk.crash_states().sample(&mut world.random);
            (world.disk, world.volume) = open(&handle, &image).await;
            put(&world.volume, 7, &page(2000 + round)).await;
            let before = log_objects(&world.store);
            let mut uploader = world.uploader(raw()).await.unwrap();
            let replication = uploader.replication();
            let shipping = handle.spawn(async move { uploader.ship_all().await });
            while log_objects(&world.store) < before + 3 && !shipping.is_finished() {
                handle.sleep(std::time::Duration::from_micros(100)).await;
            }
            sent += replication.status().requests.bytes_created;
            shipping.cancel();
        }
        let (_, volume) = open(&handle, &world.disk.image()).await;
        let (last, is_same) = ship(&handle, &world, &volume, &raw()).await;
        assert!(is_same);
        assert!(sent + last < whole, "{sent} and {last} bytes of {whole}");
    });
}

/// What was written since the group began is sent again, also where its checksum is that of what was there.
#[test]
fn what_was_written_since_is_sent_again() {
    for mutant in [None, Some(ReplicaMutant::CutGroupUnchanged)] {
        simulate(3, async |handle| {
            let options = ReplicaOptions { rules: Rules::but(mutant), ..raw() };
            let (world, _) = cut_first_upload(&handle, &options).await;
            let (_, volume) = open(&handle, &world.disk.image()).await;
            put(&volume, 0, &twins()[1]).await;
            let (_, is_same) = ship(&handle, &world, &volume, &options).await;
            assert_eq!(is_same, mutant.is_none(), "{mutant:?}");
        });
    }
}

/// A machine that goes on from an older copy of the disk does not go on with what the one before has sent of newer blocks.
#[test]
fn a_group_with_what_the_volume_has_lost_is_not_continued() {
    for mutant in [None, Some(ReplicaMutant::CutGroupTrusted)] {
        simulate(4, async |handle| {
            let options = ReplicaOptions { rules: Rules::but(mutant), ..raw() };
            let mut world = World::new(
                &handle,
                StoreFaults { delay_max: std::time::Duration::from_millis(2), ..StoreFaults::default() },
            )
            .await;
            for lba in 0..WRITTEN {
                put(&world.volume, lba, &page(u64::from(lba) + 1)).await;
            }
            world.flush().await;
            let older = world.disk.image();
            put(&world.volume, 0, &twins()[1]).await;
            flush(&*world.volume).await.unwrap();
            let mut uploader = world.uploader(options.clone()).await.unwrap();
            let shipping = handle.spawn(async move { uploader.ship_all().await });
            while log_objects(&world.store) < 8 {
                handle.sleep(std::time::Duration::from_micros(100)).await;
            }
            shipping.cancel();
            let (_, volume) = open(&handle, &older).await;
            let (sent, is_same) = ship(&handle, &world, &volume, &options).await;
            assert_eq!(is_same, mutant.is_none(), "{mutant:?}");
            assert_eq!(sent > u64::from(WRITTEN) * BLOCK_BYTES as u64, mutant.is_none());
            world.play(1).await;
        });
    }
}
