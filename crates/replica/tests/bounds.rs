//! How far the store may be behind (R8), and what it costs.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use weir_replica::{
    RemoteFlush, ReplicaOptions, Replication, ReplicationStatus, StoreFaults, Uploader, WantedState,
};
use weir_storage::{BLOCK_BYTES, Rejected, StorageError, StreamId, flush, submit_when_free};
use weir_volume::{Backlog, TapBounds, VolumeMutant};

use crate::world::{LATENCY, World, bounds, options, simulate};

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

/// The bound in bytes is met first, within a second of writes.
const BYTES_FIRST: TapBounds =
    TapBounds { bytes: 1 << 20, time: Duration::from_secs(3600), never_wait: false };
/// The bound in time is.
const TIME_FIRST: TapBounds = TapBounds { bytes: 1 << 24, time: Duration::from_secs(1), never_wait: false };

/// What was seen while the store was down.
#[derive(Debug)]
struct Seen {
    /// The largest lag.
    lag: Duration,
    /// Its bytes.
    bytes: u64,
    /// Writes of four blocks.
    writes: u64,
    /// What the status said when some of them were not in the store.
    last: ReplicationStatus,
}

/// Writes for 50 s of a minute while the store is down.
async fn write_while_down(world: &mut World, bounds: TapBounds) -> Seen {
    let never_wait = bounds.never_wait;
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
    let last = replication.status();
    assert!(last.behind || !never_wait, "{last:?}");
    let lag = watched.await.unwrap();
    world.handle.sleep(Duration::from_secs(60)).await;
    replication.stop();
    task.await.unwrap().unwrap();
    let (restored, content) = world.restore(WantedState::Newest).await.unwrap();
    assert_eq!(&content, world.content_at(restored.sequence));
    assert_eq!(restored.sequence, world.volume.position().placed);
    let status = replication.status();
    assert_eq!((status.lag, status.lag_bytes, status.behind), (Duration::ZERO, 0, false));
    Seen { lag, bytes: bytes.get(), writes: writes.get(), last }
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
        for bounds in [BYTES_FIRST, TIME_FIRST] {
            let seen = write_while_down(&mut world, bounds).await;
            // What a segment takes beyond a second's writes.
            assert!(seen.writes < 200, "{seen:?}");
            assert!(seen.bytes <= bounds.bytes, "{seen:?}");
            // The oldest chunk waits for as long as the store is down.
            assert!(seen.lag > Duration::from_secs(45), "{seen:?}");
        }
    });
}

/// R8, the negative control: a tap without one of the bounds is further behind.
#[test]
fn a_tap_for_which_no_writer_waits_is_noticed() {
    for (mutant, bounds) in
        [(VolumeMutant::TapUnbounded, BYTES_FIRST), (VolumeMutant::TapNeverOverdue, TIME_FIRST)]
    {
        simulate(2, async |handle| {
            let mut world = World::new(&handle, LATENCY).await;
            world.break_rule(mutant).await;
            let seen = write_while_down(&mut world, bounds).await;
            assert!(seen.writes > 200 && seen.bytes > 1 << 20, "{mutant:?}: {seen:?}");
        });
    }
}

#[test]
fn a_mount_that_never_waits_writes_on_and_catches_up_later() {
    simulate(3, async |handle| {
        let mut world = World::new(&handle, LATENCY).await;
        let bounds = TapBounds { never_wait: true, ..BYTES_FIRST };
        let seen = write_while_down(&mut world, bounds).await;
        assert!(seen.writes > 4_000, "{seen:?}");
        // All that was written is not in the store, from when that went down.
        let written = seen.writes * 4 * BLOCK_BYTES as u64;
        // A chunk counts for a block more.
        let headers = written / 4;
        let told = seen.last.lag_bytes;
        assert!((written - (1 << 20)..=written + headers + (1 << 20)).contains(&told), "{written}: {seen:?}");
        assert!(seen.last.lag > Duration::from_secs(49) && seen.last.overdue, "{seen:?}");
    });
}

/// What is given up takes no memory, and is counted.
#[test]
fn a_backlog_that_is_given_up_is_counted_and_not_held() {
    simulate(4, async |handle| {
        let mut world = World::new(&handle, StoreFaults::default()).await;
        let tap = world.volume.tap(TapBounds { never_wait: true, ..BYTES_FIRST });
        let mut most = 0;
        for i in 0..200 {
            world.write(i % 44, 4).await;
            world.flush().await;
            most = most.max(tap.backlog().bytes);
        }
        let Backlog { bytes, missing_bytes, has_gap, .. } = tap.backlog();
        let written = 200 * 4 * BLOCK_BYTES as u64;
        assert!(most <= BYTES_FIRST.bytes && most > BYTES_FIRST.bytes / 2, "{most} bytes");
        assert!(has_gap && bytes + missing_bytes >= written, "{bytes} and {missing_bytes} bytes");
    });
}

/// What was there before the mount is told as what it is at most, and for how long it has been missing at least; what is written
/// meanwhile is told, too, also when a part of it was sent, until a restore has all of it.
#[test]
fn a_catch_up_is_told_until_it_has_ended() {
    simulate(3, async |handle| {
        let mut world = World::new(&handle, LATENCY).await;
        for lba in 0..40 {
            world.write(lba, 1).await;
        }
        let (replication, _task) = ship(&world, options()).await;
        let told = || (replication.status().lag, replication.status().lag_bytes);
        assert_eq!(told(), (Duration::ZERO, 40 * BLOCK_BYTES as u64));
        let began = handle.now();
        let (mut looks, mut parts) = (0, 0);
        while replication.status().shipped == 0 {
            let (lag, bytes) = told();
            assert!(bytes >= 40 * BLOCK_BYTES as u64, "{bytes} bytes");
            assert_eq!(lag, handle.now().since(began));
            parts = world.store.objects().keys().filter(|key| key.starts_with("log/")).count();
            looks += 1;
            handle.sleep(Duration::from_millis(1)).await;
        }
        assert!(looks > 3 && parts > 2, "{looks} looks, {parts} parts");
        while replication.status().behind {
            handle.sleep(Duration::from_millis(10)).await;
        }
        assert_eq!(told(), (Duration::ZERO, 0));
        let (restored, content) = world.restore(WantedState::Newest).await.unwrap();
        assert_eq!((restored.sequence, content), (world.volume.position().placed, world.content));
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

/// Ten writes a second, for so many seconds. Returns the largest lag of that time.
async fn write_for(world: &mut World, replication: &Replication, seconds: u32) -> Duration {
    let mut largest = Duration::ZERO;
    for i in 0..10 * seconds {
        world.write(i % 48, 1).await;
        for _ in 0..10 {
            world.handle.sleep(Duration::from_millis(10)).await;
            largest = largest.max(replication.status().lag);
        }
    }
    largest
}

/// A checkpoint for each object, in 48 parts, with 200 of them kept: one more costs no more than the first one, and the store is no
/// further behind while they are written, and while they are collected. Both go on beside the shipping, at 20 ms a request.
#[test]
fn neither_checkpoints_nor_collection_hold_the_log_back() {
    simulate(9, async |handle| {
        let latency = StoreFaults { delay_max: Duration::from_millis(20), ..LATENCY };
        let mut world = World::new(&handle, latency).await;
        let keep = Duration::from_secs(3600);
        let options = ReplicaOptions { checkpoint_bytes: 1, part_entries: 1, keep, ..options() };
        let options = ReplicaOptions { object_bytes: 4 << 20, ..options };
        let bounds = TapBounds { bytes: 1 << 20, time: options.lag, never_wait: false };
        let store = Rc::new(world.store.clone());
        let opened = Uploader::open(&handle, Rc::clone(&world.volume), store, bounds, options.clone()).await;
        let uploader = opened.unwrap();
        let replication = uploader.replication();
        let task = handle.spawn(uploader.run());
        let store = world.store.clone();
        let count = |prefix: &str| store.objects().keys().filter(|key| key.starts_with(prefix)).count();
        let lag = write_for(&mut world, &replication, 150).await;
        assert!(
            count("checkpoint/") > 200 && lag <= options.lag,
            "{} checkpoints, {lag:?}",
            count("checkpoint/")
        );
        // One more second, with an object or two, and a checkpoint of each.
        let (before, made) = (replication.status().requests, count("checkpoint/"));
        let lag = write_for(&mut world, &replication, 1).await;
        let after = replication.status().requests;
        let made = (count("checkpoint/") - made) as u64;
        assert!(made > 0 && lag <= options.lag, "{made} checkpoints, {lag:?}");
        assert!(after.reads - before.reads <= made, "{before:?}, {after:?}");
        assert!(after.lists - before.lists <= 3 * made, "{before:?}, {after:?}");
        // What was kept is not any more: 200 checkpoints, 10,000 parts of maps, and what they alone need.
        handle.sleep(keep).await;
        let parts = count("map/");
        let lag = write_for(&mut world, &replication, 60).await;
        let status = replication.status();
        assert!(parts > 9_000 && lag <= options.lag && !status.overdue, "{parts} parts, {status:?}");
        assert!(
            count("map/") < 6_000 && status.requests.deletions > 9_000,
            "{} parts, {status:?}",
            count("map/")
        );
        replication.stop();
        task.await.unwrap().unwrap();
        assert_eq!(world.restore(WantedState::Newest).await.unwrap().1, world.content);
        let report = world.replica(options).await.unwrap().check().await.unwrap();
        assert!(report.faults.is_empty() && report.checkpoints > 50, "{report:?}");
    });
}
