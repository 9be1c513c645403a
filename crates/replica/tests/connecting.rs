//! A volume that is used before its store has answered: what it lacks is known, and it is opened with every check when it answers.

use std::rc::Rc;
use std::time::Duration;

use weir_replica::{
    ReplicaError, ReplicaOptions, Replication, Shipper, SimulatedStore, StoreFaults, WantedState,
};
use weir_runtime::Task;
use weir_storage::AdversaryDisk;
use weir_volume::{TapBounds, Volume, VolumeOptions};

use crate::world::{World, disk_options, options, simulate};

const WITHIN: Duration = Duration::from_secs(10);
const PATIENCE: Duration = Duration::from_secs(60);

fn with_patience() -> ReplicaOptions {
    ReplicaOptions { patience: Some(PATIENCE), ..options() }
}

/// What came of the uploader.
type Ended = Task<Result<(), ReplicaError>>;

/// Begins while the store is down; writers never wait.
async fn begin(world: &World, options: ReplicaOptions) -> (Replication, Ended) {
    let bounds = TapBounds { bytes: 1 << 20, time: Duration::from_secs(1), never_wait: true };
    let (store, volume) = (Rc::new(world.store.clone()), Rc::clone(&world.volume));
    let began = world.handle.now();
    let opened = Shipper::open(&world.handle, volume, store, (bounds, WITHIN), options).await;
    let shipper = opened.unwrap();
    assert!(shipper.why_not_reached().is_some_and(|why| why.contains("does not answer")));
    assert!(world.handle.now().since(began) <= WITHIN);
    (shipper.replication(), world.handle.spawn(shipper.run()))
}

/// The volume, opened again from what its disk holds.
async fn reopen(world: &mut World, image: &weir_storage::Image) {
    world.disk = AdversaryDisk::from_image(&world.handle, disk_options(), image);
    let opened = Volume::open(&world.handle, world.disk.clone(), VolumeOptions::default()).await;
    world.volume = Rc::new(opened.unwrap());
}

#[test]
fn a_volume_is_used_before_its_store_answers_and_shipped_then() {
    for (seed, is_begun) in [(1, false), (2, true)] {
        simulate(seed, async |handle| {
            let mut world = World::new(&handle, StoreFaults::default()).await;
            world.play(20).await;
            if is_begun {
                world.uploader(options()).await.unwrap().ship_all().await.unwrap();
            }
            world.store.go_down(Duration::from_secs(7200));
            let (replication, task) = begin(&world, with_patience()).await;
            let began = handle.now();
            world.play(200).await;
            let told = replication.ship_placed(&world.volume, PATIENCE).await.unwrap_err();
            assert!(told.contains("does not answer"), "{told}");
            handle.sleep(Duration::from_secs(3600)).await;
            let status = replication.status();
            assert!(status.behind && status.overdue && !status.stopped, "{status:?}");
            assert_eq!((status.lag, status.shipped), (handle.now().since(began), 0));
            assert!(
                status.lag_bytes > 0 && status.trouble.is_some_and(|why| why.contains("does not answer"))
            );
            handle.sleep(Duration::from_secs(3700)).await;
            world.play(20).await;
            replication.ship_placed(&world.volume, PATIENCE).await.unwrap();
            let (restored, content) = world.restore(WantedState::Newest).await.unwrap();
            assert_eq!((restored.sequence, &content), (world.volume.position().placed, &world.content));
            let status = replication.status();
            assert!(!status.behind && status.lag_bytes == 0 && status.trouble.is_none(), "{status:?}");
            replication.stop();
            task.await.unwrap().unwrap();
        });
    }
}

/// With `--sync remote` it stops when patience is over, as in a later outage.
#[test]
fn it_waits_no_longer_than_patience_where_flushes_wait_for_the_store() {
    simulate(3, async |handle| {
        let mut world = World::new(&handle, StoreFaults::default()).await;
        world.store.fall_silent(true);
        let (replication, task) = begin(&world, ReplicaOptions { stops: true, ..with_patience() }).await;
        world.write(1, 1).await;
        let began = handle.now();
        replication.until_shipped(world.volume.position().placed).await.unwrap_err();
        assert!(handle.now().since(began) <= PATIENCE + Duration::from_secs(1));
        assert!(task.await.unwrap().is_err() && replication.status().stopped);
    });
}

/// Pauses between requests become long, and the last of them is not: patience is what was said.
#[test]
fn a_store_that_comes_back_before_patience_is_over_is_seen() {
    simulate(5, async |handle| {
        let mut world = World::new(&handle, StoreFaults::default()).await;
        world.store.go_down(Duration::from_secs(3600));
        let (replication, task) = begin(&world, ReplicaOptions { stops: true, ..with_patience() }).await;
        world.store.go_down(PATIENCE - Duration::from_secs(2));
        world.write(1, 1).await;
        replication.until_shipped(world.volume.position().placed).await.unwrap();
        replication.stop();
        task.await.unwrap().unwrap();
    });
}

/// An end that does not wait.
#[test]
fn it_ends_when_it_is_given_up() {
    simulate(4, async |handle| {
        let world = World::new(&handle, StoreFaults::default()).await;
        world.store.fall_silent(true);
        let (replication, task) = begin(&world, options()).await;
        replication.stop();
        handle.sleep(PATIENCE).await;
        assert!(!task.is_finished());
        replication.give_up();
        assert!(task.await.unwrap().is_err());
    });
}

/// What is refused at the beginning is refused when the store answers, also if the volume has as many requests as the store by then.
#[test]
fn what_is_wrong_is_refused_when_the_store_answers() {
    let refused = async |world: &mut World| {
        world.store.go_down(Duration::from_secs(60));
        let (replication, task) = begin(world, with_patience()).await;
        let objects = world.store.objects();
        world.play(300).await;
        let ended = task.await.unwrap().unwrap_err();
        assert!(replication.status().stopped);
        assert!(replication.ship_placed(&world.volume, PATIENCE).await.is_err());
        let log =
            |objects: &weir_replica::Objects| objects.keys().filter(|key| key.starts_with("log/")).count();
        assert_eq!(log(&objects), log(&world.store.objects()), "nothing is shipped");
        ended
    };
    simulate(5, async |handle| {
        // Another volume's.
        let mut other = World::new(&handle, StoreFaults::default()).await;
        other.play(20).await;
        other.uploader(options()).await.unwrap().ship_all().await.unwrap();
        let mut world = World::new(&handle, StoreFaults::default()).await;
        world.store = other.store.clone();
        assert!(matches!(refused(&mut world).await, ReplicaError::OtherVolume { .. }));
    });
    simulate(6, async |handle| {
        // An older copy, which writes on.
        let mut world = World::new(&handle, StoreFaults::default()).await;
        world.play(20).await;
        world.flush().await;
        let older = world.disk.image();
        world.play(20).await;
        world.uploader(options()).await.unwrap().ship_all().await.unwrap();
        reopen(&mut world, &older).await;
        let error = refused(&mut world).await;
        assert!(
            matches!(error, ReplicaError::Ahead { remote, .. } if remote < world.volume.position().placed),
            "{error}"
        );
    });
    simulate(7, async |handle| {
        // A store that keeps no condition.
        let mut world = World::new(&handle, StoreFaults::default()).await;
        let faults = StoreFaults { ignores_condition: true, ..StoreFaults::default() };
        world.store = SimulatedStore::new(&handle, faults);
        assert!(matches!(refused(&mut world).await, ReplicaError::NotFenced));
    });
}

/// A store that answers is opened at once, and what it refuses is told at once.
#[test]
fn a_store_that_answers_is_opened_at_once() {
    simulate(8, async |handle| {
        let mut world = World::new(&handle, StoreFaults::default()).await;
        world.play(20).await;
        let bounds = (crate::world::bounds(), WITHIN);
        let open = async |store: SimulatedStore| {
            Shipper::open(&handle, Rc::clone(&world.volume), Rc::new(store), bounds, with_patience()).await
        };
        let shipper = open(world.store.clone()).await.unwrap();
        assert!(matches!(shipper, Shipper::Open(_)));
        drop(shipper);
        let faults = StoreFaults { ignores_condition: true, ..StoreFaults::default() };
        let wrong = open(SimulatedStore::new(&handle, faults)).await;
        assert!(matches!(wrong, Err(ReplicaError::NotFenced)));
    });
}
