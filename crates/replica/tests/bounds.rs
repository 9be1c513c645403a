//! How far the store may be behind (R8), and what it costs.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use weir_replica::{RemoteFlush, ReplicaOptions, Replication, StoreFaults, Uploader, WantedState};
use weir_storage::{BLOCK_BYTES, Rejected, StorageError, StreamId, flush, submit_when_free};
use weir_volume::{TapBounds, VolumeMutant};

use crate::world::{World, bounds, options, simulate};

const LATENCY: StoreFaults = StoreFaults {
    delay_max: Duration::from_millis(40),
    lost_answers: 0,
    lost_requests: 0,
    repeated: 0,
    list_age: Duration::ZERO,
    ignores_condition: false,
};

#[test]
fn ten_ordered_writes_a_second_cost_two_requests_a_second_at_most_and_idle_none() {
    simulate(1, async |handle| {
        let mut world = World::new(&handle, LATENCY).await;
        let defaults = ReplicaOptions { patience: None, ..ReplicaOptions::default() };
        let uploader = world.uploader(defaults).await.unwrap();
        let replication = uploader.replication();
        let task = handle.spawn(uploader.run());
        handle.sleep(Duration::from_secs(10)).await;
        let before = sum(&replication.status().requests);
        for i in 0..36_000 {
            world.write(i % 48, 1).await;
            let barrier = weir_storage::Command::Barrier { stream: StreamId(0) };
            submit_when_free(&*world.volume, barrier).await.unwrap();
            handle.sleep(Duration::from_millis(100)).await;
            assert!(replication.status().lag <= Duration::from_secs(1));
        }
        let spent = sum(&replication.status().requests) - before;
        assert!((3600..=7200).contains(&spent), "{spent} requests an hour");
        handle.sleep(Duration::from_secs(10)).await;
        let before = sum(&replication.status().requests);
        handle.sleep(Duration::from_secs(3600)).await;
        assert_eq!(sum(&replication.status().requests), before, "idle");
        replication.stop();
        task.await.unwrap().unwrap();
        assert_eq!(world.restore(WantedState::Newest).await.unwrap().1, world.content);
    });
}

fn sum(requests: &weir_replica::Requests) -> u64 {
    requests.creations + requests.reads + requests.lists + requests.deletions
}

/// Writes for a minute while the store is down. Returns the largest lag, its bytes, and how many writes there were.
async fn write_while_down(world: &mut World, never_wait: bool) -> (Duration, u64, u64) {
    let bounds = TapBounds { bytes: 1 << 20, time: Duration::from_secs(1), never_wait };
    let store = Rc::new(world.store.clone());
    let opened = Uploader::open(&world.handle, Rc::clone(&world.volume), store, bounds, options()).await;
    let uploader = opened.unwrap();
    let replication = uploader.replication();
    let task = world.handle.spawn(uploader.run());
    world.play(20).await;
    world.handle.sleep(Duration::from_secs(3)).await;
    world.store.go_down(Duration::from_secs(60));
    let end = world.handle.now() + Duration::from_secs(50);
    let (writes, bytes) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(0)));
    let watched = {
        let (bytes, replication, handle) = (bytes.clone(), replication.clone(), world.handle.clone());
        world.handle.spawn(async move {
            let mut largest = Duration::ZERO;
            while handle.now() < end {
                let status = replication.status();
                bytes.set(bytes.get().max(status.lag_bytes));
                largest = largest.max(status.lag);
                handle.sleep(Duration::from_millis(10)).await;
            }
            largest
        })
    };
    while world.handle.now() < end {
        world.write(writes.get() as u32 % 44, 4).await;
        writes.set(writes.get() + 1);
        world.handle.sleep(Duration::from_millis(10)).await;
    }
    let status = replication.status();
    assert!(status.behind || !never_wait, "{status:?}");
    let largest = watched.await.unwrap();
    world.handle.sleep(Duration::from_secs(60)).await;
    replication.stop();
    task.await.unwrap().unwrap();
    let (restored, content) = world.restore(WantedState::Newest).await.unwrap();
    assert_eq!(&content, world.content_at(restored.sequence));
    assert_eq!(restored.sequence, world.volume.position().placed);
    (largest, bytes.get(), writes.get())
}

/// The first upload is behind from the beginning, and overdue once it takes longer than the lag.
#[test]
fn a_first_upload_is_overdue_when_the_lag_is_over_and_no_sooner() {
    simulate(3, async |handle| {
        let mut world = World::new(&handle, StoreFaults::default()).await;
        world.play(20).await;
        let uploader = world.uploader(options()).await.unwrap();
        let replication = uploader.replication();
        let told = || (replication.status().behind, replication.status().overdue);
        world.store.go_down(2 * bounds().time);
        let task = handle.spawn(uploader.run());
        handle.sleep(bounds().time / 2).await;
        assert_eq!(told(), (true, false));
        handle.sleep(bounds().time).await;
        assert_eq!(told(), (true, true));
        handle.sleep(bounds().time).await;
        assert_eq!(told(), (false, false));
        replication.stop();
        task.await.unwrap().unwrap();
    });
}

#[test]
fn writers_wait_for_a_store_that_is_down_and_only_so_long_what_they_wrote_is_behind() {
    simulate(2, async |handle| {
        let mut world = World::new(&handle, LATENCY).await;
        let (_, bytes, writes) = write_while_down(&mut world, false).await;
        // What a segment takes beyond a second's writes.
        assert!(writes < 200, "{writes} writes");
        assert!(bytes <= 1 << 20, "{bytes} bytes");
    });
}

/// The negative control: a tap without a bound is further behind.
#[test]
fn a_tap_for_which_no_writer_waits_is_noticed() {
    simulate(2, async |handle| {
        let mut world = World::new(&handle, LATENCY).await;
        world.break_rule(VolumeMutant::TapUnbounded).await;
        let (_, bytes, writes) = write_while_down(&mut world, false).await;
        assert!(writes > 200 && bytes > 1 << 20, "{writes} writes, {bytes} bytes");
    });
}

#[test]
fn who_never_waits_writes_on_and_catches_up_later() {
    simulate(3, async |handle| {
        let mut world = World::new(&handle, LATENCY).await;
        let (_, bytes, writes) = write_while_down(&mut world, true).await;
        assert!(writes > 4_000, "{writes} writes");
        assert!(writes * 4 * BLOCK_BYTES as u64 > 4 << 20 && bytes <= 1 << 20, "{bytes} bytes");
    });
}

/// What became of an uploader.
type Ended = weir_runtime::Task<Result<(), weir_replica::ReplicaError>>;

/// A small backlog, shipped by an uploader that runs.
async fn ship(world: &World, options: ReplicaOptions) -> (Replication, Ended) {
    let bounds = TapBounds { bytes: 1 << 20, time: Duration::from_secs(1), never_wait: false };
    let store = Rc::new(world.store.clone());
    let opened = Uploader::open(&world.handle, Rc::clone(&world.volume), store, bounds, options).await;
    let uploader = opened.unwrap();
    (uploader.replication(), world.handle.spawn(uploader.run()))
}

/// More than a segment, so that some of it waits for the store if writers do.
async fn write_segments(world: &mut World) {
    for i in 0..40 {
        world.write(i % 44, 4).await;
        world.handle.sleep(Duration::from_millis(100)).await;
    }
}

#[test]
fn a_flush_that_waits_for_a_silent_store_fails_when_patience_is_over_and_so_does_each_later_one() {
    simulate(4, async |handle| {
        let mut world = World::new(&handle, LATENCY).await;
        let patience = Duration::from_secs(30);
        let options = ReplicaOptions { patience: Some(patience), stops: true, ..options() };
        let (replication, task) = ship(&world, options).await;
        let remote = RemoteFlush::new(&handle, Rc::clone(&world.volume), replication.clone());
        world.write(1, 4).await;
        flush(&remote).await.unwrap();
        assert_eq!(world.restore(WantedState::Newest).await.unwrap().1, world.content);
        world.store.fall_silent(true);
        let began = handle.now();
        write_segments(&mut world).await;
        let failed = Err(Rejected::Failed(StorageError::NotShipped));
        assert_eq!(flush(&remote).await, failed);
        let took = handle.now().since(began);
        assert!(took >= patience / 2 && took <= patience + Duration::from_secs(5), "{took:?}");
        assert!(replication.status().stopped && task.await.unwrap().is_err());
        // Nothing more is acknowledged, whatever the store does.
        world.store.fall_silent(false);
        world.write(9, 1).await;
        assert_eq!(flush(&remote).await, failed);
    });
}

#[test]
fn writers_that_are_released_wait_for_no_store_and_an_uploader_that_is_given_up_ends() {
    simulate(5, async |handle| {
        let mut world = World::new(&handle, LATENCY).await;
        let (replication, task) = ship(&world, options()).await;
        world.write(1, 4).await;
        replication.until_shipped(world.volume.position().placed).await.unwrap();
        world.store.fall_silent(true);
        let began = handle.now();
        let released = replication.release_writers();
        write_segments(&mut world).await;
        world.flush().await;
        assert!(handle.now().since(began) < Duration::from_secs(5), "{:?}", handle.now().since(began));
        drop(released);
        assert!(!task.is_finished(), "it waits for the store without end");
        replication.give_up();
        assert!(task.await.unwrap().is_err());
        assert!(replication.status().stopped);
    });
}
