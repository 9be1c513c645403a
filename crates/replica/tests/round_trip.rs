//! What is shipped is restored: after each request, of each prefix of the store.

use std::time::Duration;

use proptest::prelude::{ProptestConfig, any, proptest};
use weir_replica::{ReplicaError, ReplicaOptions, SimulatedStore, StoreFaults, WantedState};

use crate::world::{World, key, options, restore, simulate};

/// Ships as it goes and in one step, and restores each state that there is.
async fn ship_and_restore(world: &mut World, options: ReplicaOptions) {
    let mut uploader = world.uploader(options.clone()).await.unwrap();
    let mut steps = Vec::new();
    for _ in 0..6 {
        world.play(25).await;
        uploader.ship_all().await.unwrap();
        steps.push(world.volume.position().durable);
    }
    let replica = world.replica(options).await.unwrap();
    let first = steps[0];
    let last = steps[steps.len() - 1];
    for sequence in first..=last {
        let (restored, content) =
            restore(&world.handle, &replica, WantedState::Sequence(sequence)).await.unwrap();
        assert_eq!(restored.sequence, sequence);
        assert_eq!(&content, world.content_at(sequence), "request {sequence}");
    }
    let (restored, content) = restore(&world.handle, &replica, WantedState::Newest).await.unwrap();
    assert_eq!((restored.sequence, &content), (last, &world.content));
    let report = replica.check().await.unwrap();
    assert_eq!((report.kept.map(|kept| kept.last.sequence), report.faults), (Some(last), Vec::new()));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn every_request_that_was_shipped_is_restored(seed in any::<u64>()) {
        simulate(seed, async |handle| {
            let mut world = World::new(&handle, StoreFaults::default()).await;
            let checkpoint_bytes = if seed % 2 == 0 { 3_000 } else { u64::MAX };
            let key = if seed % 3 == 0 { key("a") } else { None };
            ship_and_restore(&mut world, ReplicaOptions { checkpoint_bytes, key, ..options() }).await;
        });
    }

    /// Catch-ups while the volume goes on, from stores that were left behind.
    #[test]
    fn a_catch_up_is_one_state(seed in any::<u64>()) {
        simulate(seed, async |handle| {
            let faults = StoreFaults { delay_max: Duration::from_millis(3), ..StoreFaults::default() };
            let mut world = World::new(&handle, faults).await;
            let mut states = Vec::new();
            for _ in 0..5 {
                // The log of this time is not shipped.
                world.play(30).await;
                let mut uploader = world.uploader(options()).await.unwrap();
                let shipping = handle.spawn(async move { uploader.ship_all().await });
                world.play(12).await;
                shipping.await.unwrap().unwrap();
                let (restored, content) = world.restore(WantedState::Newest).await.unwrap();
                assert_eq!(&content, world.content_at(restored.sequence));
                states.push(restored.sequence);
            }
            for sequence in states {
                let (_, content) = world.restore(WantedState::Sequence(sequence)).await.unwrap();
                assert_eq!(&content, world.content_at(sequence));
            }
        });
    }

    /// The objects are taken in the order in which they were made: each prefix of the store is a state.
    #[test]
    fn each_prefix_of_the_store_restores_to_a_state(seed in any::<u64>()) {
        simulate(seed, async |handle| {
            let faults = StoreFaults { lost_answers: 8, lost_requests: 4, repeated: 8, ..StoreFaults::default() };
            let mut world = World::new(&handle, faults).await;
            let stores = std::rc::Rc::new(std::cell::RefCell::new(Vec::new()));
            let (observed, kept) = (world.store.clone(), stores.clone());
            world.store.observe(move || kept.borrow_mut().push(observed.objects()));
            let options = ReplicaOptions { checkpoint_bytes: 3_000, ..options() };
            world.play(40).await;
            let mut uploader = world.uploader(options.clone()).await.unwrap();
            for _ in 0..4 {
                world.play(20).await;
                uploader.ship_all().await.unwrap();
            }
            let mut newest = 0;
            for objects in stores.take() {
                world.store = SimulatedStore::from_objects(&handle, StoreFaults::default(), &objects);
                let (restored, content) = world.restore(WantedState::Newest).await.unwrap();
                assert!(restored.sequence >= newest);
                newest = restored.sequence;
                assert_eq!(&content, world.content_at(newest));
            }
            assert_eq!(newest, world.volume.position().durable);
        });
    }
}

/// A list is stale in the middle, too: a directory that is read, or a page that is asked for, while an object is made.
#[test]
fn a_list_that_lacks_objects_anywhere_is_followed_to_the_end_of_the_log() {
    simulate(4, async |handle| {
        let mut world = World::new(&handle, StoreFaults::default()).await;
        let mut uploader = world.uploader(options()).await.unwrap();
        for _ in 0..12 {
            world.write(3, 2).await;
            uploader.ship_all().await.unwrap();
        }
        let log: Vec<String> =
            world.store.objects().into_keys().filter(|key| key.starts_with("log/")).collect();
        assert!(log.len() > 10, "{log:?}");
        for first in 0..log.len() {
            for (lacking, every) in [(1, 1), (3, 1), (3, 2), (6, 2), (log.len(), 1)] {
                let lacks = log.iter().skip(first).step_by(every).take(lacking).cloned();
                world.store.leave_out(lacks);
                let (restored, content) = world.restore(WantedState::Newest).await.unwrap();
                assert_eq!((restored.is_newest, &content), (true, &world.content));
                let checked = world.replica(options()).await.unwrap().check().await.unwrap();
                assert!(checked.faults.is_empty(), "{checked:?}");
            }
        }
    });
}

#[test]
fn a_time_restores_what_was_in_the_store_then() {
    simulate(1, async |handle| {
        let mut world = World::new(&handle, StoreFaults::default()).await;
        let mut uploader = world.uploader(options()).await.unwrap();
        let mut moments = Vec::new();
        for _ in 0..5 {
            world.write(3, 2).await;
            uploader.ship_all().await.unwrap();
            handle.sleep(Duration::from_millis(10)).await;
            moments.push((handle.wall_clock_millis(), world.content.clone()));
            handle.sleep(Duration::from_secs(60)).await;
        }
        for (time, content) in &moments {
            assert_eq!(world.restore(WantedState::Time(*time)).await.unwrap().1, *content);
        }
        // Behind the newest object, it is the newest state.
        let later = moments[4].0 + 3_600_000;
        let (restored, content) = world.restore(WantedState::Time(later)).await.unwrap();
        assert_eq!((restored.is_newest, &content), (true, &world.content));
        assert!(restored.created_ms <= moments[4].0);
        let (restored, _) = world.restore(WantedState::Time(moments[3].0)).await.unwrap();
        assert!(!restored.is_newest && restored.created_ms <= moments[3].0);
    });
}

/// What is outside of the kept states is refused, and the answer says what is kept.
#[test]
fn a_moment_outside_of_what_is_kept_is_refused_and_the_answer_says_what_is() {
    simulate(3, async |handle| {
        let mut world = World::new(&handle, StoreFaults::default()).await;
        let first_ms = handle.wall_clock_millis();
        let mut uploader = world.uploader(options()).await.unwrap();
        let nothing = world.restore(WantedState::Time(first_ms)).await;
        assert!(matches!(nothing, Err(ReplicaError::NoState)), "{nothing:?}");
        world.write(3, 2).await;
        world.write(4, 2).await;
        uploader.ship_all().await.unwrap();
        let oldest = world.volume.position().durable;
        handle.sleep(Duration::from_secs(60)).await;
        for _ in 0..2 {
            world.write(5, 1).await;
            uploader.ship_all().await.unwrap();
            handle.sleep(Duration::from_secs(1)).await;
        }
        let newest = world.volume.position().durable;
        for with_checkpoint in [false, true] {
            if with_checkpoint {
                uploader.checkpoint().await.unwrap();
            }
            let asked = [
                WantedState::Sequence(0),
                WantedState::Sequence(newest + 1),
                WantedState::Time(first_ms - 1),
            ];
            for wanted in asked {
                match world.restore(wanted).await {
                    Err(ReplicaError::OutOfRange { asked, kept }) => {
                        assert_eq!((asked, kept.last.sequence), (wanted, newest));
                        assert_eq!(kept.first.sequence, oldest);
                        assert!(kept.first.created_ms < kept.last.created_ms, "{kept:?}");
                    }
                    other => panic!("{wanted:?}: {other:?}"),
                }
            }
            let kept = world.replica(options()).await.unwrap().kept_range().await.unwrap().unwrap();
            let checked = world.replica(options()).await.unwrap().check().await.unwrap().kept.unwrap();
            assert_eq!((checked.first, checked.last.sequence), (kept.first, kept.last.sequence));
            for state in [kept.first, kept.last] {
                let (restored, _) = world.restore(WantedState::Time(state.created_ms)).await.unwrap();
                assert_eq!(restored.sequence, state.sequence);
            }
        }
    });
}

/// Old checkpoints and objects that no kept state needs are deleted, and all kept states are restored.
#[test]
fn what_is_kept_is_restored_and_the_rest_is_collected() {
    simulate(2, async |handle| {
        let mut world = World::new(&handle, StoreFaults::default()).await;
        let keep = Duration::from_secs(100);
        let options = ReplicaOptions { checkpoint_bytes: 1, keep, ..options() };
        let mut uploader = world.uploader(options.clone()).await.unwrap();
        let mut states = Vec::new();
        let mut objects = Vec::new();
        for _ in 0..40 {
            world.play(10).await;
            uploader.ship_all().await.unwrap();
            states.push((handle.now(), world.volume.position().durable));
            objects.push(world.store.objects().len());
            handle.sleep(Duration::from_secs(10)).await;
        }
        let now = handle.now();
        for (time, sequence) in &states {
            match world.restore(WantedState::Sequence(*sequence)).await {
                Ok((_, content)) => assert_eq!(&content, world.content_at(*sequence)),
                Err(ReplicaError::OutOfRange { .. }) => assert!(now.since(*time) > keep),
                Err(error) => panic!("{error}"),
            }
        }
        assert!(world.restore(WantedState::Sequence(states[0].1)).await.is_err());
        assert!(objects[39] < 2 * objects[19], "{objects:?}");
        let report = world.replica(options).await.unwrap().check().await.unwrap();
        assert!(report.faults.is_empty() && report.kept.unwrap().first.sequence > 0, "{report:?}");
    });
}

/// No object of a checkpoint grows with the volume, and a replica with more objects than one part lists is restored, continued,
/// collected and checked. What lists all of them in one object is at some size none that can be read.
#[test]
fn a_checkpoint_of_many_objects_and_blocks_is_in_parts() {
    simulate(5, async |handle| {
        let mut world = World::new(&handle, StoreFaults::default()).await;
        let keep = Duration::from_secs(100);
        let options = ReplicaOptions { part_entries: 4, compress: false, keep, ..options() };
        for round in 0..3 {
            let mut uploader = world.uploader(options.clone()).await.unwrap();
            for lba in 0..44 {
                world.write(lba, 1 + lba % 2).await;
                uploader.ship_all().await.unwrap();
            }
            assert!(uploader.checkpoint().await.unwrap());
            let objects = world.store.objects();
            let sizes = |prefix: &str| -> Vec<usize> {
                objects
                    .iter()
                    .filter(|(key, _)| key.starts_with(prefix))
                    .map(|(_, bytes)| bytes.len())
                    .collect()
            };
            // The envelope has 96 bytes, and a run with its checksum 20. Of some 40 objects ten parts list all but four; the map
            // has some 12 parts, and the manifest has the hash of each part.
            assert!(sizes("map/").into_iter().all(|size| size <= 96 + 4 + 4 * 20), "{:?}", sizes("map/"));
            let largest = sizes("checkpoint/").into_iter().max().unwrap();
            assert!(sizes("map/").len() > 20 && largest <= 96 + 72 + 4 * 12 + 24 * 32, "{largest} bytes");
            let (restored, content) = world.restore(WantedState::Newest).await.unwrap();
            assert_eq!((restored.sequence, &content), (world.volume.position().placed, &world.content));
            let report = world.replica(options.clone()).await.unwrap().check().await.unwrap();
            assert!(report.faults.is_empty(), "round {round}: {report:?}");
            handle.sleep(2 * keep).await;
        }
    });
}

/// A clock that is set ahead makes no state of the time that ran too old to be kept, unless it stays there for that time.
#[test]
fn a_clock_that_is_set_ahead_takes_no_state_away() {
    simulate(6, async |handle| {
        let mut world = World::new(&handle, StoreFaults::default()).await;
        let keep = Duration::from_secs(100);
        let options = ReplicaOptions { checkpoint_bytes: 1, keep, ..options() };
        let mut uploader = world.uploader(options).await.unwrap();
        let mut states = Vec::new();
        let ahead = 2 * 24 * 60 * 60 * 1_000_000_000;
        let steps = [(8, 0), (2, ahead), (2, -ahead), (2, ahead), (12, 0), (2, -ahead), (16, 0)];
        for (rounds, step) in steps {
            handle.step_wall_clock(step);
            for _ in 0..rounds {
                world.write(3, 2).await;
                uploader.ship_all().await.unwrap();
                states.push((handle.now(), world.volume.position().durable));
                for (time, sequence) in &states {
                    let restored = world.restore(WantedState::Sequence(*sequence)).await;
                    let is_kept = handle.now().since(*time) <= keep;
                    assert!(restored.is_ok() || !is_kept, "{sequence} of {time:?}: {restored:?}");
                    // What stays ahead is the date, and what is dated later than that keeps nothing.
                    let is_over = handle.now().since(*time) > 3 * keep;
                    assert!(restored.is_err() || !is_over, "{sequence} of {time:?} is there");
                }
                handle.sleep(Duration::from_secs(20)).await;
            }
        }
    });
}
