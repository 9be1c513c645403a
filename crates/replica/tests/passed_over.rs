//! Checkpoints that cannot be read: the log from an older one on takes their place where it is whole (R6).

use std::time::Duration;

use weir_replica::{ReplicaError, ReplicaMutant, ReplicaOptions, StoreFaults, WantedState};
use weir_runtime::Handle;
use weir_storage::Rules;

use crate::world::{World, content_of, options, restore, simulate};

/// A replica with three checkpoints, and a log behind the newest; the requests as of which they are.
async fn with_checkpoints(handle: &Handle, options: &ReplicaOptions) -> (World, Vec<u64>) {
    let mut world = World::new(handle, StoreFaults::default()).await;
    let mut uploader = world.uploader(options.clone()).await.unwrap();
    let mut checkpoints = Vec::new();
    for _ in 0..3 {
        for _ in 0..3 {
            world.play(8).await;
            uploader.ship_all().await.unwrap();
        }
        assert!(uploader.checkpoint().await.unwrap());
        checkpoints.push(world.volume.position().durable);
    }
    world.play(8).await;
    uploader.ship_all().await.unwrap();
    (world, checkpoints)
}

/// The keys of objects that begin so, in order.
fn keys(world: &World, prefix: &str) -> Vec<String> {
    world.store.objects().into_keys().filter(|key| key.starts_with(prefix)).collect()
}

fn of_checkpoint(sequence: u64) -> [String; 2] {
    [format!("checkpoint/{sequence:020}"), format!("map/{sequence:020}-")]
}

#[test]
fn the_log_takes_the_place_of_a_checkpoint_that_cannot_be_read() {
    simulate(1, async |handle| {
        let (world, checkpoints) = with_checkpoints(&handle, &options()).await;
        let before = world.store.objects();
        let newest = world.volume.position().durable;
        let earlier = checkpoints[2] - 1;
        for damaged in 1..=3 {
            // All that are newer are damaged already.
            let broken = of_checkpoint(checkpoints[3 - damaged]);
            let broken = before.keys().filter(|key| broken.iter().any(|of| key.starts_with(of)));
            for key in broken {
                for damage in [None, Some(&before[key][..before[key].len() / 2])] {
                    if damage.is_none() && key.starts_with("checkpoint/") {
                        // It looks as if it had not been made.
                        continue;
                    }
                    world.store.damage(key, damage);
                    for (wanted, sequence) in
                        [(WantedState::Newest, newest), (WantedState::Sequence(earlier), earlier)]
                    {
                        let replica = world.replica(options()).await.unwrap();
                        let (restored, content) = restore(&handle, &replica, wanted).await.unwrap();
                        assert_eq!((restored.sequence, &content), (sequence, world.content_at(sequence)));
                        let mounted = world.mounted(options(), wanted, 1 << 20).await.unwrap();
                        assert_eq!(content_of(&mounted).await, content);
                        assert_eq!(mounted.passed_over(), restored.passed_over);
                    }
                    let uploader = world.uploader(options()).await.unwrap();
                    let faults = uploader.passed_over();
                    assert_eq!((faults.len(), &faults[damaged - 1].key), (damaged, key));
                    let found = world.replica(options()).await.unwrap().check().await.unwrap();
                    assert!(found.faults.iter().any(|fault| fault.key == *key), "{key}: {found:?}");
                    assert_eq!(found.kept.map(|kept| kept.last.sequence), Some(newest));
                    let beyond = world.restore(WantedState::Sequence(newest + 1)).await;
                    assert!(matches!(beyond, Err(ReplicaError::OutOfRange { .. })), "{beyond:?}");
                    world.store.damage(key, Some(&before[key]));
                }
            }
            world.store.damage(&of_checkpoint(checkpoints[3 - damaged])[0], Some(b"WEIR-REP"));
        }
        // With all of them damaged the log is read from its first object on.
        let (restored, content) = world.restore(WantedState::Newest).await.unwrap();
        assert_eq!((restored.passed_over.len(), &content), (3, &world.content));
    });
}

/// Where the log does not lead past the checkpoint, its own error is told, and the object is named. Otherwise an older state would be
/// taken for the newest.
#[test]
fn a_log_that_is_not_whole_takes_the_place_of_no_checkpoint() {
    for mutant in [None, Some(ReplicaMutant::CheckpointForgotten)] {
        simulate(2, async |handle| {
            let (world, checkpoints) = with_checkpoints(&handle, &options()).await;
            let [newest, _] = of_checkpoint(checkpoints[2]);
            world.store.damage(&newest, Some(b"WEIR-REP"));
            let log = keys(&world, "log/");
            let is_behind = |key: &&String| **key > format!("log/{:020}-99", checkpoints[1]);
            let behind: Vec<&String> = log.iter().filter(is_behind).collect();
            let before = world.store.objects();
            // A hole in the middle.
            world.store.damage(behind[1], None);
            let told = world.restore(WantedState::Newest).await.unwrap_err().to_string();
            assert!(told.contains(&newest), "{told}");
            let told = world.uploader(options()).await.err().map(|error| error.to_string());
            assert!(told.is_some_and(|told| told.contains(&newest)));
            world.store.damage(behind[1], Some(&before[behind[1]]));
            // The end of the log is gone.
            behind[1..].iter().for_each(|key| world.store.damage(key, None));
            let options = ReplicaOptions { rules: Rules::but(mutant), ..options() };
            let replica = world.replica(options).await.unwrap();
            match (mutant, restore(&handle, &replica, WantedState::Newest).await) {
                (None, Err(error)) => assert!(error.to_string().contains(&newest), "{error}"),
                (Some(_), Ok((restored, _))) => assert!(restored.sequence < checkpoints[2], "the control"),
                (_, outcome) => panic!("{mutant:?}: {outcome:?}"),
            }
        });
    }
}

/// Collection keeps the checkpoint that takes the place of the one that cannot be read, and the writer goes on.
#[test]
fn what_takes_the_place_of_a_checkpoint_is_not_collected() {
    for is_of_map in [false, true] {
        simulate(3, async |handle| {
            let options = ReplicaOptions { keep: Duration::from_secs(600), ..options() };
            let (mut world, checkpoints) = with_checkpoints(&handle, &options).await;
            let [manifest, map] = of_checkpoint(checkpoints[2]);
            let damaged = if is_of_map { keys(&world, &map).remove(0) } else { manifest };
            world.store.damage(&damaged, Some(b"WEIR-REP"));
            handle.sleep(Duration::from_secs(300)).await;
            let mut uploader = world.uploader(options.clone()).await.unwrap();
            world.play(10).await;
            uploader.ship_all().await.unwrap();
            let between = world.volume.position().durable;
            world.play(10).await;
            uploader.ship_all().await.unwrap();
            handle.sleep(Duration::from_secs(400)).await;
            // Now the damaged one is the newest that is older than what is kept.
            assert!(uploader.checkpoint().await.unwrap());
            let next = world.volume.position().durable;
            let (restored, content) = world.restore(WantedState::Sequence(between)).await.unwrap();
            assert_eq!((restored.passed_over.len(), &content), (1, world.content_at(between)));
            handle.sleep(Duration::from_secs(700)).await;
            world.play(10).await;
            uploader.ship_all().await.unwrap();
            assert!(uploader.checkpoint().await.unwrap());
            let (restored, content) = world.restore(WantedState::Sequence(next)).await.unwrap();
            assert_eq!((restored.passed_over.len(), &content), (0, world.content_at(next)));
            assert!(!keys(&world, "").contains(&damaged), "collected as any other");
            let found = world.replica(options).await.unwrap().check().await.unwrap();
            assert_eq!(found.faults, []);
        });
    }
}
