//! A store that refuses for a while, or contradicts itself, is waited for like one that does not answer.

use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use weir_replica::{
    Creation, ObjectStore, RemoteFlush, ReplicaError, ReplicaOptions, Replication, Reply, SimulatedStore,
    StoreError, StoreFaults, Uploader, WantedState,
};
use weir_runtime::Task;
use weir_storage::{Rejected, StorageError, flush};
use weir_volume::TapBounds;

use crate::world::{World, options, simulate};

/// A simulated store that refuses.
struct RefusingStore {
    store: SimulatedStore,
    /// What creations are answered.
    creations: RefCell<Option<StoreError>>,
    /// What deletions are answered.
    deletions: RefCell<Option<StoreError>>,
    /// So many creations are said to be of objects that are there.
    conflicts: Cell<u32>,
}

impl ObjectStore for RefusingStore {
    fn create(&self, key: &str, bytes: Bytes) -> Reply<Creation> {
        if let Some(error) = self.creations.borrow().clone() {
            return Box::pin(async { Err(error) });
        }
        let conflicts = self.conflicts.get();
        if conflicts > 0 {
            self.conflicts.set(conflicts - 1);
            return Box::pin(async { Ok(Creation::Exists) });
        }
        self.store.create(key, bytes)
    }

    fn get(&self, key: &str) -> Reply<Bytes> {
        self.store.get(key)
    }

    fn get_range(&self, key: &str, range: Range<u64>) -> Reply<Bytes> {
        self.store.get_range(key, range)
    }

    fn list(&self, prefix: &str, after: &str) -> Reply<Vec<String>> {
        self.store.list(prefix, after)
    }

    fn delete(&self, key: &str) -> Reply<()> {
        match self.deletions.borrow().clone() {
            Some(error) => Box::pin(async { Err(error) }),
            None => self.store.delete(key),
        }
    }
}

type Running = Task<Result<(), ReplicaError>>;

/// A volume that is shipped to such a store, which has what was written so far.
async fn ship(world: &mut World, options: ReplicaOptions) -> (Rc<RefusingStore>, Replication, Running) {
    let bounds = TapBounds { bytes: 1 << 18, time: Duration::from_secs(1), never_wait: false };
    let store = Rc::new(RefusingStore {
        store: world.store.clone(),
        creations: RefCell::default(),
        deletions: RefCell::default(),
        conflicts: Cell::default(),
    });
    let asked = Rc::<RefusingStore>::clone(&store);
    let opened = Uploader::open(&world.handle, Rc::clone(&world.volume), asked, bounds, options).await;
    let uploader = opened.unwrap();
    let replication = uploader.replication();
    let task = world.handle.spawn(uploader.run());
    world.write(1, 4).await;
    world.flush().await;
    replication.until_shipped(world.volume.position().placed).await.unwrap();
    (store, replication, task)
}

/// All that was written is in the store, which writers waited for.
async fn end(world: &World, replication: &Replication, task: Running) {
    world.flush().await;
    replication.stop();
    task.await.unwrap().unwrap();
    assert_eq!(world.restore(WantedState::Newest).await.unwrap().1, world.content);
}

#[test]
fn writers_wait_for_a_store_that_refuses_and_the_status_says_why() {
    let text = || "of this test".to_owned();
    for error in [
        StoreError::Denied(text()),
        StoreError::Full(text()),
        StoreError::NoPlace(text()),
        StoreError::Refused(text()),
    ] {
        simulate(1, async |handle| {
            let mut world = World::new(&handle, StoreFaults::default()).await;
            let (store, replication, task) = ship(&mut world, options()).await;
            let refused_for = Duration::from_secs(600);
            store.creations.replace(Some(error.clone()));
            let began = handle.now();
            let allowed = {
                let (store, replication, handle) = (Rc::clone(&store), replication.clone(), handle.clone());
                world.handle.spawn(async move {
                    handle.sleep(refused_for).await;
                    let status = replication.status();
                    assert!(status.overdue && !status.stopped && status.requests.repeated > 30, "{status:?}");
                    assert_eq!(status.trouble, Some(error.to_string()));
                    store.creations.replace(None);
                })
            };
            for i in 0..100 {
                world.write(i % 44, 4).await;
            }
            assert!(handle.now().since(began) >= refused_for, "1,600 KiB with a bound of 256");
            allowed.await.unwrap();
            assert_eq!(replication.status().trouble, None);
            end(&world, &replication, task).await;
        });
    }
}

#[test]
fn a_flush_to_a_store_that_refuses_fails_when_patience_is_over() {
    simulate(2, async |handle| {
        let mut world = World::new(&handle, StoreFaults::default()).await;
        let patience = Duration::from_secs(30);
        let options = ReplicaOptions { patience: Some(patience), stops: true, ..options() };
        let (store, replication, task) = ship(&mut world, options).await;
        let remote = RemoteFlush::new(&handle, Rc::clone(&world.volume), replication);
        store.creations.replace(Some(StoreError::Full(String::new())));
        let began = handle.now();
        world.write(1, 1).await;
        assert_eq!(flush(&remote).await, Err(Rejected::Failed(StorageError::NotShipped)));
        assert!(handle.now().since(began) > patience / 2);
        assert!(matches!(task.await.unwrap(), Err(ReplicaError::Store(StoreError::Full(_)))));
    });
}

/// S3 answers 409 to one of two requests for the same object, and may have created none.
#[test]
fn a_creation_of_an_object_that_is_there_and_is_not_is_repeated() {
    simulate(3, async |handle| {
        let mut world = World::new(&handle, StoreFaults::default()).await;
        let (store, replication, task) = ship(&mut world, options()).await;
        store.conflicts.set(3);
        world.play(60).await;
        end(&world, &replication, task).await;
        assert_eq!((store.conflicts.get(), replication.status().requests.repeated), (0, 3));
    });
}

/// A bucket that is written by those who may not delete.
#[test]
fn a_store_that_refuses_deletions_alone_is_shipped_to() {
    simulate(4, async |handle| {
        let mut world = World::new(&handle, StoreFaults::default()).await;
        let keep = Duration::from_secs(60);
        let options = ReplicaOptions { checkpoint_bytes: 2_000, keep, ..options() };
        let (store, replication, task) = ship(&mut world, options.clone()).await;
        store.deletions.replace(Some(StoreError::Denied(String::new())));
        for lba in 0..40 {
            world.write(lba, 1).await;
            handle.sleep(Duration::from_secs(20)).await;
        }
        assert!(replication.status().requests.deletions > 1);
        end(&world, &replication, task).await;
        // A caller that asks for the collection gets the error.
        let volume = Rc::clone(&world.volume);
        let bounds = TapBounds { bytes: 1 << 18, time: Duration::from_secs(1), never_wait: false };
        let mut uploader = Uploader::open(&handle, volume, store, bounds, options).await.unwrap();
        let refused = uploader.checkpoint().await;
        assert!(matches!(refused, Err(ReplicaError::Store(StoreError::Denied(_)))), "{refused:?}");
    });
}
