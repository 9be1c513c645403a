//! What waits for the store once, as `fsync` of a file does: it is acknowledged when the store has everything before it (R12).

use std::rc::Rc;
use std::time::Duration;

use weir_replica::{
    ReplicaError, ReplicaMutant, ReplicaOptions, Replication, StoreFaults, Uploader, WantedState,
};
use weir_runtime::Task;
use weir_storage::Rules;
use weir_volume::TapBounds;

use crate::world::{LATENCY, World, options, simulate};

const PATIENCE: Duration = Duration::from_secs(30);

/// Ships the volume for writers that never wait.
async fn ship(world: &World, options: ReplicaOptions) -> (Replication, Task<Result<(), ReplicaError>>) {
    let bounds = TapBounds { bytes: 1 << 20, time: Duration::from_secs(1), never_wait: true };
    let store = Rc::new(world.store.clone());
    let opened = Uploader::open(&world.handle, Rc::clone(&world.volume), store, bounds, options).await;
    let uploader = opened.unwrap();
    (uploader.replication(), world.handle.spawn(uploader.run()))
}

#[test]
fn what_waits_for_the_store_is_acknowledged_when_it_is_there() {
    for mutant in [None, Some(ReplicaMutant::RemoteUnawaited)] {
        simulate(1, async |handle| {
            let mut world = World::new(&handle, LATENCY).await;
            let options = ReplicaOptions { rules: Rules::but(mutant), ..options() };
            let (replication, _task) = ship(&world, options).await;
            for lba in 0..5 {
                world.write(lba, 1).await;
                replication.ship_placed(&world.volume, PATIENCE).await.unwrap();
                let is_there = world.restore(WantedState::Newest).await.unwrap().1 == world.content;
                assert_eq!(is_there, mutant.is_none(), "{mutant:?}");
            }
        });
    }
}

/// It fails, and the volume and the uploader go on: when the store answers again, it has what was written meanwhile.
#[test]
fn what_waits_for_a_silent_store_fails_when_patience_is_over_and_may_succeed_later() {
    simulate(2, async |handle| {
        let mut world = World::new(&handle, LATENCY).await;
        let (replication, task) = ship(&world, options()).await;
        world.write(1, 4).await;
        replication.ship_placed(&world.volume, PATIENCE).await.unwrap();
        world.store.go_down(Duration::from_secs(600));
        // What is there needs no answer.
        replication.ship_placed(&world.volume, PATIENCE).await.unwrap();
        for most in [PATIENCE, Duration::from_secs(1)] {
            world.write(9, 1).await;
            let began = handle.now();
            let told = replication.ship_placed(&world.volume, PATIENCE).await.unwrap_err();
            let took = handle.now().since(began);
            assert!(
                told.contains("does not answer") && took <= most + Duration::from_secs(2),
                "{took:?}: {told}"
            );
        }
        assert!(!replication.status().stopped);
        handle.sleep(Duration::from_secs(700)).await;
        replication.ship_placed(&world.volume, PATIENCE).await.unwrap();
        assert_eq!(world.restore(WantedState::Newest).await.unwrap().1, world.content);
        // Once nothing more is shipped, nothing is acknowledged that is not there.
        world.store.fall_silent(true);
        world.write(10, 1).await;
        replication.give_up();
        assert!(task.await.unwrap().is_err());
        replication.ship_placed(&world.volume, PATIENCE).await.unwrap_err();
    });
}

/// A first upload may take longer than patience, as long as the store answers.
#[test]
fn what_waits_for_a_store_that_answers_waits_for_as_long_as_it_takes() {
    simulate(3, async |handle| {
        let slow = StoreFaults { delay_max: Duration::from_secs(20), ..LATENCY };
        let mut world = World::new(&handle, slow).await;
        world.play(60).await;
        let (replication, _task) = ship(&world, options()).await;
        let began = handle.now();
        replication.ship_placed(&world.volume, PATIENCE + Duration::from_secs(15)).await.unwrap();
        assert!(handle.now().since(began) > 2 * PATIENCE);
        assert_eq!(world.restore(WantedState::Newest).await.unwrap().1, world.content);
    });
}
