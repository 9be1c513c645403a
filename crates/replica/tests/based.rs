//! A volume that begins with the newest state of a replica and goes on shipping to it (R10, R11): what it reads, what the store
//! restores, and who is refused.

use std::rc::Rc;
use std::time::Duration;

use proptest::prelude::{ProptestConfig, any, proptest};
use weir_replica::{
    RemoteFlush, ReplicaBase, ReplicaError, ReplicaMutant, ReplicaOptions, ReplicaStorage, StoreFaults,
    Uploader, WantedState,
};
use weir_runtime::Handle;
use weir_storage::{
    AdversaryDisk, BLOCK_BYTES, Extent, Lba, Part, Rejected, Rules, Storage, StorageError, flush, read, write,
};
use weir_volume::{Format, Volume, VolumeOptions, inspect};

use crate::world::{World, bounds, content_of, disk_options, make_volume, options, page, simulate};

/// Each checkpoint is due at once, and little is kept.
fn collecting(mutant: Option<ReplicaMutant>) -> ReplicaOptions {
    let keep = Duration::from_secs(100);
    ReplicaOptions { checkpoint_bytes: 2_000, keep, rules: Rules::but(mutant), ..options() }
}

async fn open_base(world: &World, options: &ReplicaOptions) -> Result<ReplicaBase, ReplicaError> {
    ReplicaBase::open(&world.handle, Rc::new(world.store.clone()), options.clone()).await
}

/// Opens the volume on the disk of a world, and an uploader of it. Nothing of the store is kept in memory.
async fn open_volume(
    world: &mut World,
    base: ReplicaBase,
) -> Result<(Uploader, ReplicaStorage), ReplicaError> {
    let storage = base.storage(0);
    let (handle, disk) = (world.handle.clone(), Rc::<AdversaryDisk>::clone(&world.disk));
    let below = Rc::new(storage.clone());
    world.volume = Rc::new(Volume::open_on_base(&handle, disk, below, VolumeOptions::default()).await?);
    let newest = world.volume.position().placed;
    world.history.retain(|sequence, _| *sequence <= newest);
    world.content = world.content_at(newest).clone();
    let volume = Rc::clone(&world.volume);
    Ok((Uploader::open_on_base(&handle, volume, base, bounds()).await?, storage))
}

/// A new machine takes the replica over.
async fn take_over(
    world: &mut World,
    options: &ReplicaOptions,
) -> Result<(Uploader, ReplicaStorage), ReplicaError> {
    let base = open_base(world, options).await?;
    begin_volume(world, base).await
}

/// Takes a replica over that was opened, for a volume on a new disk.
async fn begin_volume(
    world: &mut World,
    mut base: ReplicaBase,
) -> Result<(Uploader, ReplicaStorage), ReplicaError> {
    let made_on = base.begin_volume().await?;
    world.disk = AdversaryDisk::new(&world.handle, disk_options());
    let format = Format { segment_blocks: 8, logical_blocks: 120, ..Format::default() };
    let identity = base.descriptor().volume;
    Volume::create_on_base(&world.handle, &*world.disk, format, identity, made_on).await?;
    open_volume(world, base).await
}

/// The volume is opened again with its replica.
async fn reopen(
    world: &mut World,
    options: &ReplicaOptions,
) -> Result<(Uploader, ReplicaStorage), ReplicaError> {
    let base = open_base(world, options).await?;
    base.require_base_of(&inspect(&*world.disk).await?).await?;
    open_volume(world, base).await
}

/// The power of the machine is cut.
fn crash(world: &mut World) {
    world.disk.cut_power();
    let left = world.disk.crash_states().sample(&mut world.random);
    world.disk = AdversaryDisk::from_image(&world.handle, disk_options(), &left);
}

/// Machines that take over from each other, and crash, while what is not kept is collected. Whether the volume has always read what
/// it was asked for, and the store has restored it.
async fn live(handle: &Handle, mutant: Option<ReplicaMutant>) -> bool {
    let faults = StoreFaults {
        lost_answers: 3,
        lost_requests: 3,
        repeated: 3,
        delay_max: Duration::from_millis(3),
        ..StoreFaults::default()
    };
    let options = collecting(mutant);
    let mut world = World::new(handle, faults).await;
    let mut uploader = world.uploader(options.clone()).await.unwrap();
    world.play(60).await;
    uploader.ship_all().await.unwrap();
    for machine in 0..3 {
        // What was not shipped is lost with the disk.
        world.play(15).await;
        let mut storage;
        (uploader, storage) = take_over(&mut world, &options).await.unwrap();
        for _ in 0..4 {
            world.play(20).await;
            let content = content_of(&*world.volume).await;
            if content != world.content {
                return false;
            }
            if world.random.below(3) > 0 {
                uploader.ship_all().await.unwrap();
                let (restored, content) = world.restore(WantedState::Newest).await.unwrap();
                if &content != world.content_at(restored.sequence) {
                    return false;
                }
            }
            handle.sleep(Duration::from_secs(world.random.below(150))).await;
            if world.random.below(2) == 0 {
                crash(&mut world);
                (uploader, storage) = reopen(&mut world, &options).await.unwrap();
            }
        }
        assert_eq!(storage.reads().failed_reads, 0, "machine {machine}: {:?}", storage.reads().failure);
    }
    uploader.ship_all().await.unwrap();
    let report = world.replica(options).await.unwrap().check().await.unwrap();
    assert!(report.faults.is_empty(), "{:?}", report.faults);
    world.restore(WantedState::Newest).await.unwrap().1 == world.content
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn a_volume_on_a_replica_reads_what_it_was_asked_for_and_so_does_a_restore(seed in any::<u64>()) {
        assert!(simulate(seed, async |handle| live(&handle, None).await));
    }
}

/// R11: a catch-up that takes what a volume does not hold for discarded.
#[test]
fn a_catch_up_that_discards_the_base_is_noticed() {
    let mutant = Some(ReplicaMutant::CatchUpDiscardsBase);
    assert!((0..10).any(|seed| !simulate(seed, async |handle| live(&handle, mutant).await)));
}

/// R10: the volume before, open or opened again, is refused for good; in the generation of the replica it would go on over what the
/// new volume has shipped.
#[test]
fn the_volume_before_is_refused_also_when_it_is_opened_again() {
    for mutant in [None, Some(ReplicaMutant::GenerationKept)] {
        simulate(1, async |handle| {
            let options = ReplicaOptions { rules: Rules::but(mutant), ..options() };
            let mut world = World::new(&handle, StoreFaults::default()).await;
            let mut before = world.uploader(options.clone()).await.unwrap();
            world.play(30).await;
            before.ship_all().await.unwrap();
            let shipped = world.volume.position().durable;
            let (old_disk, old_volume) = (Rc::clone(&world.disk), Rc::clone(&world.volume));
            let (mut uploader, _) = take_over(&mut world, &options).await.unwrap();
            assert_eq!(world.volume.position().placed, shipped);
            world.write(3, 2).await;
            uploader.ship_all().await.unwrap();
            for lba in 0..20 {
                write(&*old_volume, Part::bytes(Lba(lba), &page(7777))).await.unwrap();
            }
            assert!(matches!(before.ship_all().await, Err(ReplicaError::TakenOver(2))));
            old_volume.close().await.unwrap();
            drop((before, old_volume));
            // Its machine begins anew, as often as it likes.
            let mut again = None;
            for _ in 0..10 {
                let volume =
                    Volume::open(&handle, Rc::clone(&old_disk) as Rc<dyn Storage>, Default::default()).await;
                let volume = Rc::new(volume.unwrap());
                let store = Rc::new(world.store.clone());
                again = Some(Uploader::open(&handle, volume, store, bounds(), options.clone()).await);
            }
            let again = again.unwrap();
            match mutant {
                None => assert!(matches!(again, Err(ReplicaError::Ahead { .. })), "{:?}", again.err()),
                Some(_) => {
                    again.unwrap().ship_all().await.unwrap();
                    assert_ne!(
                        world.restore(WantedState::Newest).await.unwrap().1,
                        world.content,
                        "the control"
                    );
                }
            }
        });
    }
}

/// R10: what the writer before ships until the fence is a part of the state.
#[test]
fn a_volume_begins_with_the_state_behind_its_fence() {
    for mutant in [None, Some(ReplicaMutant::StateBeforeFence)] {
        simulate(7, async |handle| {
            let options = ReplicaOptions { rules: Rules::but(mutant), ..options() };
            let mut world = World::new(&handle, StoreFaults::default()).await;
            let mut before = world.uploader(options.clone()).await.unwrap();
            world.play(30).await;
            before.ship_all().await.unwrap();
            let base = open_base(&world, &options).await.unwrap();
            world.write(3, 4).await;
            before.ship_all().await.unwrap();
            begin_volume(&mut world, base).await.unwrap();
            let is_right = content_of(&*world.volume).await == world.content;
            assert_eq!(is_right, mutant.is_none());
        });
    }
}

/// R4: where what the writer before has shipped since the replica was opened is collected, the next place is free again, and is none
/// of the log: the new writer begins with what is there.
#[test]
fn a_place_whose_object_is_collected_is_not_taken_over() {
    for mutant in [None, Some(ReplicaMutant::OutrunIgnored)] {
        simulate(8, async |handle| {
            let options = collecting(mutant);
            let mut world = World::new(&handle, StoreFaults::default()).await;
            let mut before = world.uploader(options.clone()).await.unwrap();
            world.write(0, 1).await;
            before.ship_all().await.unwrap();
            let base = open_base(&world, &options).await.unwrap();
            for _ in 0..20 {
                world.write(0, 1).await;
                before.ship_all().await.unwrap();
                handle.sleep(Duration::from_secs(60)).await;
            }
            begin_volume(&mut world, base).await.unwrap();
            match mutant {
                None => assert_eq!(content_of(&*world.volume).await, world.content),
                Some(_) => assert_eq!(world.volume.position().placed, 1, "the control"),
            }
        });
    }
}

/// Two machines that take over from each other: the file of the first is refused, whoever shipped what.
#[test]
fn a_volume_that_was_taken_over_is_refused() {
    simulate(2, async |handle| {
        let mut world = World::new(&handle, StoreFaults::default()).await;
        world.play(30).await;
        world.uploader(options()).await.unwrap().ship_all().await.unwrap();
        let (first, _) = take_over(&mut world, &options()).await.unwrap();
        world.volume.close().await.unwrap();
        drop(first);
        let disk = Rc::clone(&world.disk);
        // It has shipped nothing.
        let (second, _) = take_over(&mut world, &options()).await.unwrap();
        drop(second);
        let second_disk = std::mem::replace(&mut world.disk, disk);
        assert!(matches!(reopen(&mut world, &options()).await, Err(ReplicaError::Ahead { .. })));
        world.disk = second_disk;
        assert!(reopen(&mut world, &options()).await.is_ok());
    });
}

/// Two that take over at the same time: one of them is the writer, and the other one is told.
#[test]
fn of_two_that_take_over_at_one_time_one_goes_on() {
    for seed in 0..20 {
        simulate(seed, async |handle| {
            let faults = StoreFaults { delay_max: Duration::from_millis(5), ..StoreFaults::default() };
            let mut world = World::new(&handle, faults).await;
            world.play(30).await;
            world.uploader(options()).await.unwrap().ship_all().await.unwrap();
            let mut disks = Vec::new();
            let begin = async || {
                let mut base = open_base(&world, &options()).await.unwrap();
                base.begin_volume().await.map(|made_on| (base, made_on))
            };
            let begun: (Result<_, ReplicaError>, Result<_, ReplicaError>) =
                futures_util::future::join(begin(), begin()).await;
            for begun in [begun.0, begun.1] {
                let Ok((base, made_on)) = begun else { continue };
                world.disk = AdversaryDisk::new(&handle, disk_options());
                let format = Format { segment_blocks: 8, logical_blocks: 120, ..Format::default() };
                let identity = base.descriptor().volume;
                Volume::create_on_base(&handle, &*world.disk, format, identity, made_on).await.unwrap();
                disks.push(Rc::clone(&world.disk));
            }
            let mut opened = 0;
            for disk in disks {
                world.disk = disk;
                match reopen(&mut world, &options()).await {
                    Ok(_) => opened += 1,
                    Err(error) => assert!(matches!(error, ReplicaError::Ahead { .. }), "{error}"),
                }
            }
            assert!(opened <= 1, "{opened} writers");
        });
    }
}

/// R11: of a volume that is shipped to two stores, the state of one is not the base of a volume that was made on the other.
#[test]
fn a_volume_is_opened_only_with_the_replica_that_it_was_made_on() {
    for mutant in [None, Some(ReplicaMutant::BaseUnchecked)] {
        simulate(3, async |handle| {
            let options = ReplicaOptions { rules: Rules::but(mutant), ..options() };
            let mut world = World::new(&handle, StoreFaults::default()).await;
            world.play(30).await;
            world.uploader(options.clone()).await.unwrap().ship_all().await.unwrap();
            let other = weir_replica::SimulatedStore::from_objects(
                &handle,
                StoreFaults::default(),
                &world.store.objects(),
            );
            world.write(0, 4).await;
            world.uploader(options.clone()).await.unwrap().ship_all().await.unwrap();
            let (uploader, _) = take_over(&mut world, &options).await.unwrap();
            world.volume.close().await.unwrap();
            drop(uploader);
            let store = std::mem::replace(&mut world.store, other);
            match mutant {
                None => {
                    let refused = reopen(&mut world, &options).await;
                    assert!(matches!(refused, Err(ReplicaError::OtherBase)));
                    world.store = store;
                    reopen(&mut world, &options).await.unwrap();
                    assert_eq!(content_of(&*world.volume).await, world.content);
                }
                Some(_) => {
                    reopen(&mut world, &options).await.unwrap();
                    assert_ne!(content_of(&*world.volume).await, world.content, "the control");
                }
            }
            // That of another volume.
            let disk = AdversaryDisk::new(&handle, disk_options());
            drop(make_volume(&handle, &disk).await);
            world.disk = disk;
            assert!(matches!(reopen(&mut world, &options).await, Err(ReplicaError::OtherVolume { .. })));
        });
    }
}

#[test]
fn a_replica_without_a_state_is_not_taken_over() {
    simulate(4, async |handle| {
        let mut world = World::new(&handle, StoreFaults::default()).await;
        assert!(matches!(take_over(&mut world, &options()).await, Err(ReplicaError::NoReplica)));
        let uploader = world.uploader(options()).await.unwrap();
        let objects = world.store.objects().len();
        assert!(matches!(take_over(&mut world, &options()).await, Err(ReplicaError::NoState)));
        assert_eq!(world.store.objects().len(), objects, "nothing was written");
        drop(uploader);
    });
}

/// A store that does not answer is waited for without end, if that is asked for; what is damaged is an error.
#[test]
fn a_read_of_the_base_waits_for_the_store_and_damage_is_an_error() {
    simulate(5, async |handle| {
        let mut world = World::new(&handle, StoreFaults::default()).await;
        for lba in 0..8 {
            world.write(lba, 1).await;
        }
        let options =
            ReplicaOptions { patience: Some(Duration::from_secs(20)), compress: false, ..options() };
        world.uploader(options.clone()).await.unwrap().ship_all().await.unwrap();
        let (_uploader, storage) = take_over(&mut world, &options).await.unwrap();
        let one = async |volume: Rc<Volume>, lba| read(&*volume, Extent::new(Lba(lba), 1)).await;
        world.store.go_down(Duration::from_secs(60));
        let failed = one(Rc::clone(&world.volume), 1).await;
        assert!(matches!(failed, Err(Rejected::Failed(StorageError::Device { .. }))), "{failed:?}");
        storage.set_patience(None);
        world.store.go_down(Duration::from_secs(3600));
        let waiting = handle.spawn(one(Rc::clone(&world.volume), 1));
        handle.sleep(Duration::from_secs(60)).await;
        assert!(storage.reads().trouble.unwrap().contains("does not answer"));
        // What the volume holds is served.
        world.write(3, 1).await;
        assert_eq!(one(Rc::clone(&world.volume), 3).await.unwrap()[..], page(9)[..]);
        assert_eq!(waiting.await.unwrap().unwrap()[..], page(2)[..]);
        // At the end nothing is waited for without end.
        world.store.go_down(Duration::from_secs(3600));
        let waiting = handle.spawn(one(Rc::clone(&world.volume), 4));
        handle.sleep(Duration::from_secs(60)).await;
        storage.set_patience(Some(Duration::from_secs(20)));
        assert!(waiting.await.unwrap().is_err());
        handle.sleep(Duration::from_secs(3600)).await;
        // Nor is a store that neither answers nor fails; until then the status says for how long it has not.
        storage.set_patience(None);
        assert_eq!(one(Rc::clone(&world.volume), 4).await.unwrap()[..], page(5)[..]);
        world.store.fall_silent(true);
        let waiting = handle.spawn(one(Rc::clone(&world.volume), 6));
        handle.sleep(Duration::from_secs(90)).await;
        let reads = storage.reads();
        assert_eq!(reads.longest_wait.as_secs(), 90);
        assert!(reads.trouble.unwrap().contains("no answer for 90 s"));
        storage.set_patience(Some(Duration::from_secs(100)));
        assert!(waiting.await.unwrap().is_err());
        assert_eq!(storage.reads().longest_wait, Duration::ZERO);
        world.store.fall_silent(false);
        let object =
            world.store.objects().into_iter().find(|(_, bytes)| bytes.len() > 6 * BLOCK_BYTES).unwrap().0;
        world.store.damage(&object, None);
        assert!(one(Rc::clone(&world.volume), 5).await.is_err());
        assert!(storage.reads().failure.unwrap().contains(&object));
        // None of this is damage of the volume.
        let stats = world.volume.stats();
        assert_eq!((stats.damaged_reads, stats.failed_reads, stats.first_failed), (0, 0, None));
        assert_eq!(stats.failed_base_reads, storage.reads().failed_reads);
    });
}

/// R7: what a volume reads of its base is kept, however old it is; the rest of that time is collected.
#[test]
fn what_is_read_of_the_base_is_not_collected() {
    for mutant in [None, Some(ReplicaMutant::NamedCollected)] {
        simulate(6, async |handle| {
            let mut world = World::new(&handle, StoreFaults::default()).await;
            let options = collecting(mutant);
            let mut uploader = world.uploader(options.clone()).await.unwrap();
            for lba in 0..40 {
                world.write(lba, 1).await;
                uploader.ship_all().await.unwrap();
            }
            let storage;
            (uploader, storage) = take_over(&mut world, &options).await.unwrap();
            let before = world.store.objects();
            for lba in 1..30 {
                world.write(lba, 1).await;
                uploader.ship_all().await.unwrap();
                handle.sleep(Duration::from_secs(20)).await;
            }
            let gone = before.keys().filter(|key| !world.store.objects().contains_key(*key)).count();
            assert!(gone > 15, "{gone} of {} objects", before.len());
            let found = read(&*world.volume, Extent::new(Lba(0), 1)).await;
            match mutant {
                None => assert_eq!(content_of(&*world.volume).await, world.content),
                Some(_) => assert!(found.is_err() && storage.reads().failed_reads == 1, "the control"),
            }
        });
    }
}

/// How the time passes in which a writer is away.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Absence {
    /// The machine runs, and nothing is written.
    Idle,
    /// The machine is suspended: one of its clocks stands still.
    Suspended,
}

/// A machine is away for longer than what is kept, and another one takes over. What the first one's flush to the store says
/// after that, and whether the store restores what the second one has.
async fn come_back(
    handle: &Handle,
    absence: Absence,
    mutant: Option<ReplicaMutant>,
) -> (Result<(), Rejected>, bool) {
    let mut world = World::new(handle, StoreFaults::default()).await;
    world.play(30).await;
    let before = world.uploader(collecting(mutant)).await.unwrap();
    let (volume, replication) = (Rc::clone(&world.volume), before.replication());
    let running = handle.spawn(before.run());
    let remote = RemoteFlush::new(handle, Rc::clone(&volume), replication.clone());
    flush(&remote).await.unwrap();
    let newest = world.store.objects().into_keys().rfind(|key| key.starts_with("log/")).unwrap();
    let (mut uploader, mut _storage) = take_over(&mut world, &collecting(None)).await.unwrap();
    let fence =
        world.store.objects().into_keys().find(|key| key.starts_with("log/") && *key > newest).unwrap();
    for _ in 0..20 {
        world.write(3, 4).await;
        uploader.ship_all().await.unwrap();
        match absence {
            Absence::Idle => handle.sleep(Duration::from_secs(20)).await,
            Absence::Suspended => handle.step_wall_clock(20_000_000_000),
        }
    }
    if absence == Absence::Suspended {
        // The running time stood still for the other machine, too, and it believes its clock only from a start on.
        (uploader, _storage) = reopen(&mut world, &collecting(None)).await.unwrap();
        uploader.checkpoint().await.unwrap();
    }
    assert!(!world.store.objects().contains_key(&fence), "what the first one would meet is collected");
    write(&*volume, Part::bytes(Lba(3), &page(7777))).await.unwrap();
    let flushed = flush(&remote).await;
    for lba in (0..40).take_while(|_| !replication.status().stopped) {
        write(&*volume, Part::bytes(Lba(lba), &page(7777))).await.unwrap();
        handle.sleep(Duration::from_secs(2)).await;
    }
    let stopped = running.await.unwrap();
    assert!(matches!(stopped, Err(ReplicaError::TakenOver(2 | 3))), "{stopped:?}");
    world.write(5, 1).await;
    let shipped = uploader.ship_all().await.is_ok();
    (flushed, shipped && world.restore(WantedState::Newest).await.unwrap().1 == world.content)
}

/// R4: its next place in the log is free again, since what was there is collected.
#[test]
fn a_writer_that_was_away_for_longer_than_what_is_kept_stops_and_acknowledges_nothing() {
    for absence in [Absence::Idle, Absence::Suspended] {
        let refused = Err(Rejected::Failed(StorageError::NotShipped));
        let found = simulate(8, async |handle| come_back(&handle, absence, None).await);
        assert_eq!(found, (refused, true));
        // The control acknowledges what no restore has. Its next checkpoint is not written, and stops it.
        let mutant = Some(ReplicaMutant::AbsenceUnchecked);
        let found = simulate(8, async |handle| come_back(&handle, absence, mutant).await);
        assert_eq!(found, (Ok(()), true));
    }
}
