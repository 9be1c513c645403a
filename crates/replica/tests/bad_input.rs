//! Objects that are missing, cut or changed, and keys that are not the one: an error that names it.

use weir_replica::{Defect, Moment, ReplicaError, ReplicaOptions, StoreError, StoreFaults};

use crate::world::{World, key, options, simulate};

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
            world.restore(Moment::Sequence(last + 1)).await,
            Err(ReplicaError::OutOfRange { .. })
        ));
        assert!(matches!(
            world.restore(Moment::Sequence(last - 1)).await,
            Err(ReplicaError::InCatchUp { .. })
        ));
        let log = world.store.objects().into_keys().find(|key| key.ends_with("-00000001")).unwrap();
        world.store.damage(&log, None);
        let error = world.restore(Moment::Newest).await.unwrap_err();
        assert!(matches!(&error, ReplicaError::Store(StoreError::Missing(key)) if *key == log), "{error}");
        world.store.damage(&log, Some(b"WEIR-REP but short"));
        let error = world.restore(Moment::Newest).await.unwrap_err();
        assert!(matches!(error, ReplicaError::Damaged { defect: Defect::Checksum, .. }), "{error}");
    });
}
