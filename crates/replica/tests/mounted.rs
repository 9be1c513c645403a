//! A state of a replica that is read block by block: it is what a restore would be, and what cannot be had is an error (R9).

use std::io::ErrorKind;
use std::rc::Rc;
use std::time::Duration;

use proptest::prelude::{ProptestConfig, any, proptest};
use weir_replica::{
    ReplicaError, ReplicaMutant, ReplicaOptions, ReplicaStorage, StoreFaults, Uploader, WantedState,
};
use weir_runtime::Handle;
use weir_storage::{
    AdversaryDisk, AdversaryOptions, BLOCK_BYTES, Command, CommandKind, Extent, Feature, Lba, Part, Rejected,
    Rules, Storage, StorageError, read, write,
};
use weir_volume::{Format, Volume, VolumeOptions};

use crate::world::{World, bounds, content_of, key, options, page, restore_disk, simulate};

/// More than any test has.
const MUCH: usize = 64 << 20;

/// Objects whose blocks can be read by ranges.
fn plain() -> ReplicaOptions {
    ReplicaOptions { compress: false, ..options() }
}

async fn one(storage: &dyn Storage, lba: u64) -> Result<Vec<u8>, Rejected> {
    read(storage, Extent::new(Lba(lba), 1)).await.map(|data| data.to_vec())
}

fn failed(cause: ErrorKind, at: u64) -> Result<Vec<u8>, Rejected> {
    let error = StorageError::Device { command: CommandKind::Read, at: Lba(at), cause };
    Err(Rejected::Failed(error))
}

/// Whether a mount of a state reads as a restore does, in every block, by reads of any length and order.
async fn is_as_restored(
    world: &mut World,
    mounted: ReplicaOptions,
    restored: ReplicaOptions,
    sequence: u64,
) -> bool {
    let wanted = WantedState::Sequence(sequence);
    let replica = world.replica(restored).await.unwrap();
    let (_, disk) = restore_disk(&world.handle, &replica, wanted).await.unwrap();
    let cache_bytes = [0, 100_000, MUCH][world.random.below(3) as usize];
    let storage = world.mounted(mounted, wanted, cache_bytes).await.unwrap();
    assert_eq!((storage.blocks(), storage.reads().sequence), (disk.blocks(), sequence));
    for _ in 0..40 {
        let start = world.random.below(storage.blocks());
        let blocks = world.random.below(12).min(storage.blocks() - start - 1) as u32 + 1;
        let found = read(&storage, Extent::new(Lba(start), blocks)).await.unwrap();
        let mut expected = Vec::new();
        for lba in start..start + u64::from(blocks) {
            expected.extend_from_slice(&one(&*disk, lba).await.unwrap());
        }
        if found[..] != expected[..] {
            return false;
        }
    }
    let mut next = Some(Lba(0));
    while let Some(lba) = next {
        let data = storage.next_data(lba);
        for hole in lba.0..data.map_or(storage.blocks(), |data| data.0) {
            assert!(
                one(&*disk, hole).await.unwrap().iter().all(|byte| *byte == 0),
                "block {hole} is no hole"
            );
        }
        next = data.map(|data| data.offset(1)).filter(|next| next.0 < storage.blocks());
    }
    assert!(storage.reads().cache_bytes <= cache_bytes as u64);
    true
}

/// Ships a random history in steps and in one step, and compares some of its states.
async fn compare(handle: &Handle, seed: u64, mutant: Option<ReplicaMutant>) -> bool {
    let faults = StoreFaults { lost_answers: 2, lost_requests: 2, ..StoreFaults::default() };
    let mut world = World::new(handle, faults).await;
    let checkpoint_bytes = if seed.is_multiple_of(2) { 3_000 } else { u64::MAX };
    let key = if seed.is_multiple_of(5) { key("a") } else { None };
    let options = ReplicaOptions { checkpoint_bytes, key, compress: seed.is_multiple_of(3), ..options() };
    let mut uploader = world.uploader(options.clone()).await.unwrap();
    let mut steps = Vec::new();
    for _ in 0..5 {
        world.play(25).await;
        uploader.ship_all().await.unwrap();
        steps.push(world.volume.position().durable);
    }
    let (first, last) = (steps[0], steps[steps.len() - 1]);
    for _ in 0..4 {
        steps.push(first + world.random.below(last - first + 1));
    }
    let rules = Rules::but(mutant);
    for sequence in steps {
        let mounted = ReplicaOptions { rules, ..options.clone() };
        if !is_as_restored(&mut world, mounted, options.clone(), sequence).await {
            return false;
        }
    }
    true
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn a_mounted_state_reads_as_a_restored_one(seed in any::<u64>()) {
        assert!(simulate(seed, async |handle| compare(&handle, seed, None).await));
    }
}

/// The negative control: a map that keeps what was discarded, or carries shares out in turn, is noticed.
#[test]
fn a_mount_that_reads_otherwise_than_a_restore_is_noticed() {
    for mutant in [ReplicaMutant::CheckpointKeepsDiscarded, ReplicaMutant::SharesInTurn] {
        let is_noticed =
            (0..20).any(|seed| !simulate(seed, async |handle| compare(&handle, seed, Some(mutant)).await));
        assert!(is_noticed, "{mutant:?}");
    }
}

/// Ships eight blocks, in one object, and mounts them.
async fn eight_blocks(handle: &Handle, options: &ReplicaOptions) -> (World, ReplicaStorage, String) {
    let mut world = World::new(handle, StoreFaults::default()).await;
    let mut uploader = world.uploader(options.clone()).await.unwrap();
    for lba in 0..8 {
        world.write(lba, 1).await;
    }
    uploader.ship_all().await.unwrap();
    let storage = world.mounted(options.clone(), WantedState::Newest, MUCH).await.unwrap();
    let objects = world.store.objects();
    let largest =
        objects.iter().filter(|(key, _)| key.starts_with("log/")).max_by_key(|(_, bytes)| bytes.len());
    let object = largest.unwrap().0.clone();
    (world, storage, object)
}

#[test]
fn nothing_can_be_written_and_what_is_outside_is_refused() {
    simulate(1, async |handle| {
        let (_, storage, _) = eight_blocks(&handle, &plain()).await;
        let refused = write(&storage, Part::bytes(Lba(1), &page(9))).await;
        assert_eq!(refused, Err(Rejected::Unsupported(Feature::Changes)));
        assert!(matches!(one(&storage, 120).await, Err(Rejected::Invalid(_))));
        assert_eq!(one(&storage, 119).await.unwrap(), page(0));
        assert_eq!(one(&storage, 7).await.unwrap(), page(8));
    });
}

#[test]
fn a_store_that_does_not_answer_is_asked_for_a_while_and_then_once() {
    simulate(2, async |handle| {
        let patience = Duration::from_secs(20);
        let (world, storage, _) =
            eight_blocks(&handle, &ReplicaOptions { patience: Some(patience), ..plain() }).await;
        world.store.go_down(Duration::from_secs(10));
        assert_eq!(one(&storage, 1).await.unwrap(), page(2), "a short silence is waited for");
        let (world, storage, _) =
            eight_blocks(&handle, &ReplicaOptions { patience: Some(patience), ..plain() }).await;
        world.store.go_down(Duration::from_secs(1000));
        let began = handle.now();
        let asked = handle.spawn({
            let storage = storage.clone();
            async move { one(&storage, 1).await }
        });
        handle.sleep(Duration::from_secs(5)).await;
        assert!(storage.reads().trouble.unwrap().contains("does not answer"));
        assert_eq!(asked.await.unwrap(), failed(ErrorKind::TimedOut, 1));
        let waited = handle.now().since(began);
        assert!(waited > patience / 2 && waited <= patience, "{waited:?}");
        let began = handle.now();
        for lba in 2..7 {
            assert_eq!(one(&storage, lba).await, failed(ErrorKind::TimedOut, lba));
        }
        assert!(handle.now().since(began) < Duration::from_secs(1), "asked once each");
        assert_eq!(storage.reads().failed_reads, 6);
        assert!(storage.reads().failure.unwrap().contains("does not answer"));
        handle.sleep(Duration::from_secs(1000)).await;
        assert_eq!(one(&storage, 1).await.unwrap(), page(2));
        assert_eq!(storage.reads().trouble, None);
        world.store.go_down(Duration::from_secs(10));
        assert_eq!(one(&storage, 0).await.unwrap(), page(1), "in memory");
    });
}

#[test]
fn an_object_that_was_deleted_is_named_and_reads_no_zeros() {
    for (mutant, compress) in [(None, false), (None, true), (Some(ReplicaMutant::MissingReadsZeros), false)] {
        let options = ReplicaOptions { rules: Rules::but(mutant), compress, ..options() };
        simulate(3, async |handle| {
            let (world, storage, object) = eight_blocks(&handle, &options).await;
            world.store.damage(&object, None);
            let found = one(&storage, 3).await;
            if mutant.is_some() {
                assert_eq!(found.unwrap(), page(0), "the control");
                return;
            }
            assert_eq!(found, failed(ErrorKind::NotFound, 3));
            let failure = storage.reads().failure.unwrap();
            assert!(failure.contains(&object) && failure.contains("--keep"), "{failure}");
            assert_eq!(one(&storage, 100).await.unwrap(), page(0), "what has no blocks reads zeros");
        });
    }
}

/// Flips a bit of the block that holds the `number`th write.
fn change(bytes: &[u8], number: u64) -> Vec<u8> {
    let at = bytes.windows(64).position(|found| *found == page(number)[..64]).unwrap();
    let mut changed = bytes.to_vec();
    changed[at + 100] ^= 1;
    changed
}

#[test]
fn a_block_that_was_changed_is_an_error_and_the_others_are_read() {
    for mutant in [None, Some(ReplicaMutant::BlockUnproved)] {
        let options = ReplicaOptions { rules: Rules::but(mutant), ..plain() };
        simulate(4, async |handle| {
            let (world, storage, object) = eight_blocks(&handle, &options).await;
            let bytes = world.store.objects()[&object].clone();
            world.store.damage(&object, Some(&change(&bytes, 4)));
            let found = one(&storage, 3).await;
            if mutant.is_some() {
                assert_ne!(found.unwrap(), page(4), "the control");
                return;
            }
            assert_eq!(found, Err(Rejected::Failed(StorageError::Damaged(Lba(3)))));
            let failure = storage.reads().failure.unwrap();
            assert!(failure.contains(&object) && failure.contains("checksum"), "{failure}");
            assert_eq!(one(&storage, 2).await.unwrap(), page(3));
            // It was damaged on its way, not in the store.
            world.store.damage(&object, Some(&bytes));
            assert_eq!(one(&storage, 3).await.unwrap(), page(4));
        });
    }
}

/// Damage of all kinds, in plain, compressed and encrypted objects: an error, or what was written; never anything else.
#[test]
fn an_object_that_is_cut_changed_or_another_one_is_an_error() {
    let kinds = [plain(), options(), ReplicaOptions { key: key("a"), ..plain() }];
    for (options, is_packed) in kinds.iter().zip([false, true, true]) {
        simulate(5, async |handle| {
            let (world, storage, object) = eight_blocks(&handle, options).await;
            drop(storage);
            let bytes = world.store.objects()[&object].clone();
            let other = world.store.objects().into_iter().find(|(key, _)| key.starts_with("epoch/"));
            let mut damaged: Vec<Vec<u8>> = vec![Vec::new(), b"WEIR-REP".to_vec(), other.unwrap().1.to_vec()];
            damaged.extend((0..bytes.len()).step_by(bytes.len() / 50 + 1).map(|at| bytes[..at].to_vec()));
            damaged.extend((0..bytes.len()).step_by(bytes.len() / 97 + 1).chain(0..144).map(|at| {
                let mut changed = bytes.to_vec();
                changed[at] ^= 0x10;
                changed
            }));
            let mut errors = 0;
            for damage in damaged {
                world.store.damage(&object, Some(&bytes));
                let storage = world.mounted(options.clone(), WantedState::Newest, MUCH).await.unwrap();
                world.store.damage(&object, Some(&damage));
                for lba in 0..8 {
                    match one(&storage, lba).await {
                        Ok(found) => assert_eq!(found, page(lba + 1)),
                        Err(error) => {
                            errors += 1;
                            assert_eq!(error, Rejected::Failed(StorageError::Damaged(Lba(lba))));
                            assert!(storage.reads().failure.unwrap().contains(&object));
                        }
                    }
                }
            }
            assert!(errors > 300, "{errors} errors");
            if is_packed {
                return;
            }
            // An object of another history, whole in itself, under the same key.
            let mut other = World::new(&handle, StoreFaults::default()).await;
            let mut uploader = other.uploader(options.clone()).await.unwrap();
            other.write(20, 2).await;
            for lba in 0..6 {
                other.write(lba, 1).await;
            }
            uploader.ship_all().await.unwrap();
            let foreign = other.store.objects()[&object].clone();
            world.store.damage(&object, Some(&bytes));
            let storage = world.mounted(options.clone(), WantedState::Newest, MUCH).await.unwrap();
            world.store.damage(&object, Some(&foreign));
            assert_eq!(one(&storage, 3).await.err(), Some(Rejected::Failed(StorageError::Damaged(Lba(3)))));
            let failure = storage.reads().failure.unwrap();
            assert!(failure.contains("another one"), "{failure}");
        });
    }
}

/// What the writer ships and collects while a state is mounted: the state stays, or a read fails; it never changes.
#[test]
fn a_mounted_state_stays_while_the_writer_goes_on_and_collects() {
    simulate(6, async |handle| {
        let mut world = World::new(&handle, StoreFaults::default()).await;
        let keep = Duration::from_secs(100);
        let options = ReplicaOptions { checkpoint_bytes: 1, keep, ..plain() };
        let mut uploader = world.uploader(options.clone()).await.unwrap();
        world.play(30).await;
        uploader.ship_all().await.unwrap();
        let before = world.content.clone();
        let storage = world.mounted(options.clone(), WantedState::Newest, 0).await.unwrap();
        let mut errors = 0;
        for round in 0..12 {
            world.play(20).await;
            uploader.ship_all().await.unwrap();
            handle.sleep(Duration::from_secs(20)).await;
            for lba in 0..48 {
                match one(&storage, lba).await {
                    Ok(found) => {
                        let expected = before.get(&(lba as u32)).copied().unwrap_or(0);
                        assert_eq!(found, page(expected), "block {lba} in round {round}");
                    }
                    Err(error) => {
                        assert!(round >= 4, "it is kept for {keep:?}");
                        assert_eq!(Err(error), failed(ErrorKind::NotFound, lba));
                        errors += 1;
                    }
                }
            }
        }
        assert!(errors > 0 && storage.reads().failure.unwrap().contains("not kept any more"));
        let now = world.mounted(options, WantedState::Newest, MUCH).await.unwrap();
        assert_eq!(content_of(&now).await, world.content);
    });
}

#[test]
fn states_that_are_not_there_are_refused() {
    simulate(7, async |handle| {
        let mut world = World::new(&handle, StoreFaults::default()).await;
        assert!(matches!(
            world.mounted(options(), WantedState::Newest, MUCH).await.err(),
            Some(ReplicaError::NoReplica)
        ));
        world.play(20).await;
        world.uploader(options()).await.unwrap().ship_all().await.unwrap();
        let last = world.volume.position().durable;
        let asked = async |wanted| world.mounted(options(), wanted, MUCH).await.err();
        assert!(matches!(
            asked(WantedState::Sequence(last + 1)).await,
            Some(ReplicaError::OutOfRange { .. })
        ));
        assert!(matches!(asked(WantedState::Sequence(last - 1)).await, Some(ReplicaError::InCatchUp { .. })));
    });
}

/// Ships many blocks, and mounts them with a cache of so many bytes.
async fn many_blocks(handle: &Handle, compress: bool, cache_bytes: usize) -> (World, ReplicaStorage, u64) {
    const BLOCKS: u64 = 6000;
    let mut world = World::new(handle, StoreFaults::default()).await;
    world.disk =
        AdversaryDisk::new(handle, AdversaryOptions { blocks: 16_000, ..crate::world::disk_options() });
    let format = Format { segment_blocks: 256, logical_blocks: 8000, ..Format::default() };
    Volume::create(handle, &*world.disk, format).await.unwrap();
    let volume = Volume::open(handle, world.disk.clone(), VolumeOptions::default()).await.unwrap();
    world.volume = Rc::new(volume);
    for lba in 0..BLOCKS {
        write(&*world.volume, Part::bytes(Lba(lba), &page(lba + 1))).await.unwrap();
    }
    let options = ReplicaOptions { compress, ..ReplicaOptions::default() };
    let store = Rc::new(world.store.clone());
    let opened = Uploader::open(handle, Rc::clone(&world.volume), store, bounds(), options.clone()).await;
    opened.unwrap().ship_all().await.unwrap();
    let storage = world.mounted(options, WantedState::Newest, cache_bytes).await.unwrap();
    (world, storage, BLOCKS)
}

#[test]
fn a_reader_in_sequence_asks_for_what_lies_together_at_once() {
    for compress in [false, true] {
        simulate(8, async |handle| {
            let (world, storage, blocks) = many_blocks(&handle, compress, MUCH).await;
            let before = storage.reads().requests;
            for start in (0..blocks).step_by(32) {
                let count = (blocks - start).min(32);
                let found = read(&storage, Extent::new(Lba(start), count as u32)).await.unwrap();
                for (lba, block) in (start..).zip(found.chunks_exact(BLOCK_BYTES)) {
                    assert!(block == page(lba + 1), "block {lba}");
                }
            }
            let (after, objects) = (storage.reads().requests, world.store.objects());
            let objects = objects.keys().filter(|key| key.starts_with("log/")).count() as u64;
            let reads = after.reads - before.reads;
            // A head for each plain object, and the windows.
            assert!(reads <= 6 * objects + 8, "{reads} requests for {objects} objects");
            let bytes = after.bytes_read - before.bytes_read;
            assert!(bytes <= blocks * BLOCK_BYTES as u64 * 5 / 4, "{bytes} bytes");
        });
    }
}

#[test]
fn a_read_at_random_of_a_plain_object_takes_a_piece_and_memory_stays_within_its_bound() {
    simulate(9, async |handle| {
        let cache = 1 << 20;
        let (mut world, storage, blocks) = many_blocks(&handle, false, cache).await;
        let before = storage.reads().requests;
        for _ in 0..500 {
            let lba = world.random.below(blocks);
            assert_eq!(one(&storage, lba).await.unwrap(), page(lba + 1));
            assert!(storage.reads().cache_bytes <= cache as u64);
        }
        let bytes = storage.reads().requests.bytes_read - before.bytes_read;
        assert!(bytes <= 500 * (64 << 10) + 100 * 144, "{bytes} bytes");
    });
}

/// Many reads of one object that comes whole ask for it once, and no more are taken than the queue has.
#[test]
fn reads_at_one_time_ask_for_an_object_once() {
    simulate(10, async |handle| {
        let (world, storage, _) = many_blocks(&handle, true, MUCH).await;
        drop(world);
        let before = storage.reads().requests.reads;
        let submit = |lba| storage.submit(Command::read(Extent::new(Lba(lba), 1)));
        let tickets: Vec<_> = (0..64).map(|i| submit(i * 7).unwrap()).collect();
        assert!(matches!(submit(1), Err(Rejected::Busy)));
        for ticket in tickets {
            ticket.transferred().await.unwrap();
        }
        assert_eq!(storage.reads().requests.reads - before, 2, "its head, and all of it");
        assert!(submit(1).is_ok());
    });
}
