//! One writer at a time: a second one takes over, and the first one stops.

use std::rc::Rc;
use std::time::Duration;

use weir_replica::{ReplicaError, ReplicaOptions, StoreFaults, WantedState};
use weir_storage::AdversaryDisk;

use crate::world::{World, disk_options, make_volume, options, simulate};

/// The same volume, open in two places, as if no claim kept them apart.
#[test]
fn a_writer_stops_when_another_one_has_taken_over() {
    simulate(1, async |handle| {
        let mut world = World::new(&handle, StoreFaults::default()).await;
        let mut first = world.uploader(options()).await.unwrap();
        world.play(20).await;
        first.ship_all().await.unwrap();
        let mut second = world.uploader(options()).await.unwrap();
        world.play(20).await;
        second.ship_all().await.unwrap();
        let objects = world.store.objects();
        // The first one's tap is closed by the second; it catches up, and so it meets the second one's object.
        let third = world.uploader(options()).await.unwrap();
        drop(third);
        world.play(3).await;
        let mut late = world.uploader(options()).await.unwrap();
        late.ship_all().await.unwrap();
        assert!(world.store.objects().len() > objects.len());
        world.play(20).await;
        world.flush().await;
        let error = second.ship_all().await;
        assert!(matches!(error, Ok(()) | Err(ReplicaError::TakenOver(3))), "{error:?}");
    });
}

#[test]
fn a_store_that_replaces_objects_is_refused_or_used_unfenced() {
    simulate(2, async |handle| {
        let faults = StoreFaults { ignores_condition: true, ..StoreFaults::default() };
        let mut world = World::new(&handle, faults).await;
        assert!(matches!(world.uploader(options()).await, Err(ReplicaError::NotFenced)));
        let unfenced = ReplicaOptions { unfenced: true, ..options() };
        let mut uploader = world.uploader(unfenced).await.unwrap();
        world.play(20).await;
        uploader.ship_all().await.unwrap();
        assert_eq!(world.restore(WantedState::Newest).await.unwrap().1, world.content);
    });
}

#[test]
fn another_volume_is_refused() {
    simulate(3, async |handle| {
        let mut world = World::new(&handle, StoreFaults::default()).await;
        world.write(1, 1).await;
        world.uploader(options()).await.unwrap().ship_all().await.unwrap();
        let disk = AdversaryDisk::new(&handle, disk_options());
        world.volume = make_volume(&handle, &disk).await;
        assert!(matches!(world.uploader(options()).await, Err(ReplicaError::OtherVolume { .. })));
    });
}

#[test]
fn a_volume_that_went_back_is_refused() {
    simulate(4, async |handle| {
        let mut world = World::new(&handle, StoreFaults::default()).await;
        world.write(1, 1).await;
        world.flush().await;
        let before = world.disk.image();
        world.write(1, 1).await;
        world.uploader(options()).await.unwrap().ship_all().await.unwrap();
        let disk = AdversaryDisk::from_image(&handle, disk_options(), &before);
        world.volume = Rc::new(weir_volume::Volume::open(&handle, disk, Default::default()).await.unwrap());
        assert!(matches!(
            world.uploader(options()).await,
            Err(ReplicaError::Ahead { remote: 2, local: 1, .. })
        ));
    });
}

/// What was there when the uploader died in the middle of a catch-up never counts, and the next one catches up.
#[test]
fn a_catch_up_that_was_given_up_begins_anew() {
    simulate(5, async |handle| {
        let mut world = World::new(&handle, StoreFaults::default()).await;
        world.play(60).await;
        world.uploader(options()).await.unwrap().ship_all().await.unwrap();
        let known = world.volume.position().durable;
        for round in 1..4 {
            world.play(60).await;
            let store = world.store.clone();
            let count = store.objects().len();
            let mut uploader = world.uploader(options()).await.unwrap();
            let task = handle.spawn(async move { uploader.ship_all().await });
            while store.objects().len() < count + 2 + round {
                handle.sleep(Duration::from_nanos(500)).await;
            }
            task.cancel();
            let (restored, content) = world.restore(WantedState::Newest).await.unwrap();
            assert_eq!(&content, world.content_at(restored.sequence));
            assert_eq!(restored.sequence, known, "round {round}");
        }
        world.uploader(options()).await.unwrap().ship_all().await.unwrap();
        assert_eq!(world.restore(WantedState::Newest).await.unwrap().1, world.content);
    });
}
