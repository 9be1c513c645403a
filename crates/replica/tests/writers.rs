//! One writer at a time: a second one takes over, and the first one stops.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use weir_replica::{
    ReplicaError, ReplicaMutant, ReplicaOptions, SimulatedStore, StoreFaults, Uploader, WantedState,
};
use weir_storage::{AdversaryDisk, Lba, Part, Rules, write};
use weir_volume::{TapBounds, Volume};

use crate::world::{World, disk_options, make_volume, options, page, simulate};

/// The same volume is opened by another machine, on a copy of the disk. Returns what the first machine has.
async fn open_elsewhere(world: &mut World) -> Rc<Volume> {
    world.flush().await;
    world.disk = AdversaryDisk::from_image(&world.handle, disk_options(), &world.disk.image());
    let volume = Volume::open(&world.handle, world.disk.clone(), Default::default()).await.unwrap();
    std::mem::replace(&mut world.volume, Rc::new(volume))
}

/// A machine that another one has replaced writes on.
async fn write_more(volume: &Volume) {
    for lba in 0..20 {
        write(volume, Part::bytes(Lba(lba), &page(7777))).await.unwrap();
    }
}

/// Requires that a writer was stopped by the one with this epoch, and that a restore has nothing of what it wrote then. One that drops
/// the rule goes on: the control.
async fn require_stopped<T: std::fmt::Debug>(
    world: &World,
    outcome: Result<T, ReplicaError>,
    mutant: Option<ReplicaMutant>,
    by: u64,
) {
    match (mutant, outcome) {
        (None, Err(ReplicaError::TakenOver(epoch))) => {
            assert_eq!(epoch, by);
            assert_eq!(world.restore(WantedState::Newest).await.unwrap().1, world.content);
        }
        (Some(_), Ok(_)) => {}
        (mutant, outcome) => panic!("{mutant:?}: {outcome:?}"),
    }
}

/// R4: a writer stops, and nothing of what it writes then is in a restore. One that ignores the fence goes on.
#[test]
fn a_writer_stops_when_another_one_has_taken_over() {
    for mutant in [None, Some(ReplicaMutant::FenceIgnored)] {
        simulate(1, async |handle| {
            let options = ReplicaOptions { rules: Rules::but(mutant), ..options() };
            let mut world = World::new(&handle, StoreFaults::default()).await;
            let mut first = world.uploader(options.clone()).await.unwrap();
            world.play(20).await;
            first.ship_all().await.unwrap();
            let volume = open_elsewhere(&mut world).await;
            let mut second = world.uploader(options).await.unwrap();
            world.play(20).await;
            second.ship_all().await.unwrap();
            write_more(&volume).await;
            let outcome = first.ship_all().await;
            require_stopped(&world, outcome, mutant, 2).await;
        });
    }
}

/// R4: of two machines the one that was opened later wins, also where the other one begins to write after it.
#[test]
fn a_machine_that_was_opened_before_does_not_go_on_behind_a_later_one() {
    for mutant in [None, Some(ReplicaMutant::GenerationIgnored)] {
        simulate(6, async |handle| {
            let options = ReplicaOptions { rules: Rules::but(mutant), ..options() };
            let mut world = World::new(&handle, StoreFaults::default()).await;
            world.play(20).await;
            let mut first = world.uploader(options.clone()).await.unwrap();
            let volume = open_elsewhere(&mut world).await;
            let mut second = world.uploader(options).await.unwrap();
            world.write(3, 1).await;
            second.ship_all().await.unwrap();
            write_more(&volume).await;
            let outcome = first.ship_all().await;
            require_stopped(&world, outcome, mutant, 1).await;
        });
    }
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
        world.volume = Rc::new(Volume::open(&handle, disk, Default::default()).await.unwrap());
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

/// R3: where the backlog is given up during a catch-up, that begins anew; it would lack what was written meanwhile.
#[test]
fn a_catch_up_whose_backlog_is_given_up_begins_anew() {
    for mutant in [None, Some(ReplicaMutant::CatchUpGapIgnored)] {
        simulate(7, async |handle| {
            let options = ReplicaOptions { rules: Rules::but(mutant), ..options() };
            let mut world = World::new(&handle, StoreFaults::default()).await;
            for lba in 0..40 {
                world.write(lba, 1).await;
            }
            let (store, states) = (world.store.clone(), Rc::new(RefCell::new(Vec::new())));
            let noted = Rc::clone(&states);
            store.clone().observe(move || noted.borrow_mut().push(store.objects()));
            let bounds = TapBounds { bytes: 1, time: Duration::from_secs(1), never_wait: true };
            let uploader = Uploader::open(
                &handle,
                Rc::clone(&world.volume),
                Rc::new(world.store.clone()),
                bounds,
                options.clone(),
            );
            let uploader = uploader.await.unwrap();
            let replication = uploader.replication();
            let task = handle.spawn(uploader.run());
            while states.borrow().len() < 5 {
                handle.sleep(Duration::from_micros(100)).await;
            }
            world.store.go_down(Duration::from_secs(60));
            for i in 0..200 {
                world.write(i % 44, 4).await;
            }
            handle.sleep(Duration::from_secs(120)).await;
            replication.stop();
            task.await.unwrap().unwrap();
            let mut is_right = true;
            for objects in states.take() {
                world.store = SimulatedStore::from_objects(&handle, StoreFaults::default(), &objects);
                let Ok((restored, content)) = world.restore(WantedState::Newest).await else { continue };
                is_right &= content == *world.content_at(restored.sequence);
            }
            assert_eq!(is_right, mutant.is_none());
        });
    }
}

/// What was discarded while nothing was shipped has no data, and fills objects all the same: one that grew without end could not be
/// read again.
#[test]
fn a_catch_up_that_only_discards_is_cut_into_objects() {
    simulate(8, async |handle| {
        let mut world = World::new(&handle, StoreFaults::default()).await;
        for lba in 0..48 {
            world.write(lba, 1).await;
        }
        let options = ReplicaOptions { object_bytes: 60, compress: false, ..options() };
        world.uploader(options.clone()).await.unwrap().ship_all().await.unwrap();
        let before = world.store.objects();
        for lba in 0..24 {
            world.discard(2 * lba, 1).await;
        }
        world.uploader(options).await.unwrap().ship_all().await.unwrap();
        let made = world.store.objects();
        let log = made.iter().filter(|(key, _)| key.starts_with("log/") && !before.contains_key(*key));
        let sizes: Vec<usize> = log.map(|(_, bytes)| bytes.len()).collect();
        // Of an object with five entries, of 12 bytes each: an envelope of 96, and a head of 80.
        assert!(sizes.len() > 5 && sizes.iter().all(|size| *size <= 96 + 80 + 60), "{sizes:?}");
        assert_eq!(world.restore(WantedState::Newest).await.unwrap().1, world.content);
    });
}
