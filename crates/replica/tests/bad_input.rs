//! Objects that are missing, cut or changed, and keys that are not the one: an error that names it.

use std::rc::Rc;

use weir_replica::{
    Defect, Fault, ReplicaError, ReplicaMutant, ReplicaOptions, SimulatedStore, StoreFaults, WantedState,
};
use weir_storage::{AdversaryDisk, Rules};
use weir_volume::{Volume, VolumeOptions};

use crate::world::{World, disk_options, key, options, restore, simulate};

#[test]
fn each_object_that_is_missing_cut_or_changed_is_named() {
    simulate(1, async |handle| {
        let mut world = World::new(&handle, StoreFaults::default()).await;
        let options = ReplicaOptions { checkpoint_bytes: 2_000, ..options() };
        let mut uploader = world.uploader(options.clone()).await.unwrap();
        for _ in 0..5 {
            world.play(10).await;
            uploader.ship_all().await.unwrap();
        }
        let objects = world.store.objects();
        assert!(objects.keys().any(|key| key.starts_with("map/")));
        let needed = objects.iter().filter(|(key, _)| !key.starts_with("epoch/"));
        for (key, bytes) in needed {
            let middle = bytes.len() / 2;
            let mut changed = bytes.to_vec();
            changed[middle] ^= 1;
            let cut = &bytes[..middle];
            let newer = [&bytes[..8], &[2], &bytes[9..]].concat();
            for (damaged, is_named) in [
                (None, true),
                (Some(&changed[..]), true),
                (Some(cut), true),
                (Some(&b"something else"[..]), true),
                (Some(&[][..]), true),
                (Some(&newer), true),
            ] {
                world.store.damage(key, damaged);
                let found = world.replica(options.clone()).await;
                let faults = match found {
                    Ok(replica) => replica.check().await.unwrap().faults,
                    Err(ReplicaError::NoReplica) => Vec::new(),
                    Err(error) => {
                        assert!(error.to_string().contains(key.as_str()), "{error}");
                        Vec::new()
                    }
                };
                if key != "volume" && !is_at_an_end(&objects, key, damaged) {
                    assert_eq!(is_named, faults.iter().any(|fault| fault.key == *key), "{key}: {faults:?}");
                }
                world.store.damage(key, Some(bytes));
            }
        }
    });
}

/// That the newest object or a checkpoint is missing looks as if it had not been made yet, and that the oldest is, as if it had
/// been collected.
fn is_at_an_end(objects: &weir_replica::Objects, key: &str, damaged: Option<&[u8]>) -> bool {
    let log = || objects.keys().filter(|key| key.starts_with("log/"));
    let is_end =
        log().next().is_some_and(|first| first == key) || log().next_back().is_some_and(|last| last == key);
    damaged.is_none() && (is_end || key.starts_with("checkpoint/"))
}

#[test]
fn an_encrypted_replica_needs_its_key() {
    simulate(2, async |handle| {
        let mut world = World::new(&handle, StoreFaults::default()).await;
        let encrypted = |digit| ReplicaOptions { key: key(digit), compress: false, ..options() };
        world.write(1, 4).await;
        world.uploader(encrypted("a")).await.unwrap().ship_all().await.unwrap();
        let page = crate::world::page(1);
        let shows = |bytes: &[u8]| bytes.windows(64).any(|window| *window == page[..64]);
        assert!(!world.store.objects().values().any(|bytes| shows(bytes)));
        assert!(matches!(world.replica(options()).await, Err(ReplicaError::KeyNeeded)));
        assert!(matches!(world.replica(encrypted("b")).await, Err(ReplicaError::Key(_))));
        assert!(matches!(world.uploader(encrypted("b")).await, Err(ReplicaError::Key(_))));
        assert!(world.replica(encrypted("a")).await.is_ok());
        let mut other = World::new(&handle, StoreFaults::default()).await;
        other.write(1, 4).await;
        let plain = ReplicaOptions { compress: false, ..options() };
        other.uploader(plain).await.unwrap().ship_all().await.unwrap();
        assert!(other.store.objects().values().any(|bytes| shows(bytes)), "the control");
        assert!(matches!(other.replica(encrypted("a")).await, Err(ReplicaError::NotEncrypted)));
    });
}

#[test]
fn a_key_is_64_hexadecimal_digits() {
    for wrong in
        ["", "0", &"0".repeat(63), &"0".repeat(65), &"g".repeat(64), &"\u{e9}".repeat(32), &"+1".repeat(32)]
    {
        assert!(weir_replica::EncryptionKey::from_hex(wrong).is_none(), "{wrong}");
    }
    let key = weir_replica::EncryptionKey::from_hex(&format!(" {}\n", "0a".repeat(32))).unwrap();
    assert!(!format!("{key:?}").contains('0'), "a key is not shown");
}

#[test]
fn what_is_not_there_is_an_error_that_says_so() {
    simulate(3, async |handle| {
        let mut world = World::new(&handle, StoreFaults::default()).await;
        assert!(matches!(world.replica(options()).await, Err(ReplicaError::NoReplica)));
        world.play(20).await;
        let mut uploader = world.uploader(options()).await.unwrap();
        uploader.ship_all().await.unwrap();
        let last = world.volume.position().durable;
        assert!(matches!(
            world.restore(WantedState::Sequence(last + 1)).await,
            Err(ReplicaError::OutOfRange { .. })
        ));
        assert!(matches!(
            world.restore(WantedState::Sequence(last - 1)).await,
            Err(ReplicaError::InCatchUp { .. })
        ));
        let log = world.store.objects().into_keys().find(|key| key.ends_with("-00000001")).unwrap();
        world.store.damage(&log, None);
        let error = world.restore(WantedState::Newest).await.unwrap_err();
        let ReplicaError::Hole { key, last } = &error else { panic!("{error}") };
        assert_eq!((key, *last), (&log, 0), "{error}");
        world.store.damage(&log, Some(b"WEIR-REP but short"));
        let error = world.restore(WantedState::Newest).await.unwrap_err();
        assert!(matches!(error, ReplicaError::Damaged { defect: Defect::Checksum, .. }), "{error}");
    });
}

#[test]
fn a_hole_in_the_log_says_which_states_can_be_had() {
    simulate(8, async |handle| {
        let mut world = World::new(&handle, StoreFaults::default()).await;
        let keys = ship_three(&mut world, &options()).await;
        world.store.damage(&keys[keys.len() - 2], None);
        let error = world.restore(WantedState::Newest).await.unwrap_err();
        let ReplicaError::Hole { last, .. } = error else { panic!("{error}") };
        assert!(last > 0 && error.to_string().contains(&format!("`--at {last}`")), "{error}");
        let restored = world.restore(WantedState::Sequence(last)).await.unwrap();
        assert_eq!(restored.0.sequence, last);
        // A writer refuses it with the same words.
        let again = world.uploader(options()).await.err().map(|error| error.to_string());
        assert_eq!(again, Some(error.to_string()));
    });
}

/// Ships three writes as an object each, and returns the keys of the objects.
async fn ship_three(world: &mut World, options: &ReplicaOptions) -> Vec<String> {
    let mut uploader = world.uploader(options.clone()).await.unwrap();
    for lba in 0..3 {
        world.write(lba, 1).await;
        uploader.ship_all().await.unwrap();
    }
    world.store.objects().into_keys().filter(|key| key.starts_with("log/")).collect()
}

/// An object of another history of the same volume, whole in itself.
#[test]
fn an_object_that_does_not_follow_is_noticed() {
    for mutant in [None, Some(ReplicaMutant::ChainUnchecked)] {
        let options = ReplicaOptions { rules: Rules::but(mutant), ..options() };
        simulate(4, async |handle| {
            let mut world = World::new(&handle, StoreFaults::default()).await;
            let logs = ship_three(&mut world, &options).await;
            let first = world.store.objects();
            world.store = SimulatedStore::new(&handle, StoreFaults::default());
            handle.sleep(std::time::Duration::from_secs(1)).await;
            let disk = AdversaryDisk::from_image(&handle, disk_options(), &world.disk.image());
            world.volume = Rc::new(Volume::open(&handle, disk, VolumeOptions::default()).await.unwrap());
            world.uploader(options.clone()).await.unwrap().ship_all().await.unwrap();
            let other = world.store.objects();
            let taken =
                logs.iter().find(|key| other.contains_key(*key) && other[*key] != first[*key]).unwrap();
            world.store = SimulatedStore::from_objects(&handle, StoreFaults::default(), &first);
            world.store.damage(taken, Some(&other[taken]));
            let found = world.replica(options.clone()).await.unwrap().check().await.unwrap();
            let is_noticed = found.faults.iter().any(|fault| fault.what.contains("does not follow"));
            assert_eq!(is_noticed, mutant.is_none(), "{mutant:?}: {found:?}");
        });
    }
}

#[test]
fn a_block_that_has_changed_is_noticed() {
    for mutant in [None, Some(ReplicaMutant::ObjectUnchecked)] {
        let options = ReplicaOptions { rules: Rules::but(mutant), compress: false, ..options() };
        simulate(5, async |handle| {
            let mut world = World::new(&handle, StoreFaults::default()).await;
            let logs = ship_three(&mut world, &options).await;
            let newest = logs.last().unwrap();
            let mut bytes = world.store.objects()[newest].to_vec();
            let middle = bytes.len() / 2;
            bytes[middle] ^= 1;
            world.store.damage(newest, Some(&bytes));
            let replica = world.replica(options.clone()).await.unwrap();
            let target = AdversaryDisk::new(&handle, disk_options());
            let restored = replica.restore(WantedState::Newest, &*target).await;
            assert_eq!(restored.is_err(), mutant.is_none(), "{mutant:?}");
        });
    }
}

/// R6: a checkpoint names its map by its hash: that of another history, whole and under the same key, is not taken for it. Otherwise a
/// restore would succeed, and have what was never there.
#[test]
fn the_map_of_another_history_is_not_that_of_a_checkpoint() {
    for mutant in [None, Some(ReplicaMutant::MapPartUnchecked)] {
        simulate(9, async |handle| {
            let mut world = World::new(&handle, StoreFaults::default()).await;
            for lba in 0..5 {
                world.write(lba, 1).await;
            }
            world.uploader(options()).await.unwrap().ship_all().await.unwrap();
            let (disk, before) = (world.disk.image(), world.store.objects());
            let mut stores = Vec::new();
            for is_discarded in [false, true] {
                world.store = SimulatedStore::from_objects(&handle, StoreFaults::default(), &before);
                world.disk = AdversaryDisk::from_image(&handle, disk_options(), &disk);
                let opened = Volume::open(&handle, world.disk.clone(), VolumeOptions::default()).await;
                world.volume = Rc::new(opened.unwrap());
                if is_discarded {
                    world.discard(2, 3).await
                } else {
                    world.write(20, 1).await
                }
                let mut uploader = world.uploader(options()).await.unwrap();
                uploader.ship_all().await.unwrap();
                assert!(uploader.checkpoint().await.unwrap());
                stores.push(world.store.clone());
            }
            let is_map = |(key, _): &(String, _)| key.starts_with("map/");
            let (key, map) = stores[1].objects().into_iter().find(is_map).unwrap();
            assert!(stores[0].objects().contains_key(&key));
            world.store = stores[0].clone();
            world.store.damage(&key, Some(&map));
            let options = ReplicaOptions { rules: Rules::but(mutant), ..options() };
            let restored =
                restore(&handle, &world.replica(options).await.unwrap(), WantedState::Newest).await;
            match mutant {
                None => {
                    let (restored, content) = restored.unwrap();
                    let named = |fault: &Fault| fault.key == key && fault.what.contains("it names");
                    assert!(restored.passed_over.iter().any(named), "{restored:?}");
                    assert_eq!(content.into_keys().collect::<Vec<u32>>(), [0, 1, 2, 3, 4, 20]);
                }
                Some(_) => {
                    let found: Vec<u32> = restored.unwrap().1.into_keys().collect();
                    assert_eq!(found, [0, 1], "the control");
                }
            }
        });
    }
}

/// A checkpoint of another history is whole in itself, and the log has no place that it is of.
#[test]
fn a_checkpoint_that_the_log_does_not_meet_is_named() {
    simulate(10, async |handle| {
        let mut world = World::new(&handle, StoreFaults::default()).await;
        ship_three(&mut world, &options()).await;
        let (disk, before) = (world.disk.image(), world.store.objects());
        let mut stores = Vec::new();
        for lba in [20, 30] {
            world.store = SimulatedStore::from_objects(&handle, StoreFaults::default(), &before);
            world.disk = AdversaryDisk::from_image(&handle, disk_options(), &disk);
            let opened = Volume::open(&handle, world.disk.clone(), VolumeOptions::default()).await;
            world.volume = Rc::new(opened.unwrap());
            world.write(lba, 1).await;
            let mut uploader = world.uploader(options()).await.unwrap();
            uploader.ship_all().await.unwrap();
            assert!(uploader.checkpoint().await.unwrap());
            assert!(world.replica(options()).await.unwrap().check().await.unwrap().faults.is_empty());
            stores.push(world.store.objects());
        }
        world.store = SimulatedStore::from_objects(&handle, StoreFaults::default(), &stores[0]);
        let of_checkpoint = |key: &&String| key.starts_with("map/") || key.starts_with("checkpoint/");
        for key in stores[1].keys().filter(of_checkpoint) {
            world.store.damage(key, Some(&stores[1][key]));
        }
        let faults = world.replica(options()).await.unwrap().check().await.unwrap().faults;
        let [fault] = &faults[..] else { panic!("{faults:?}") };
        assert!(fault.key.starts_with("checkpoint/") && fault.what.contains("does not have"), "{fault:?}");
    });
}
