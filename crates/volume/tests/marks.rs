//! Volumes with marks: after a crash they hold what they held at a mark, and no other state (V13).

use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use futures_util::future::select;
use weir_runtime::{Handle, Random, Runtime, Simulation};
use weir_storage::{
    AdversaryDisk, AdversaryOptions, BLOCK_BYTES, Capabilities, Command, Discard, Extent, Lba, Marks, Part,
    Rejected, Rules, SharePair, Storage, Ticket, Write, flush, read,
};
use weir_volume::{
    BranchStorage, Format, NewSize, RepairOptions, ResizeError, Volume, VolumeMutant, VolumeOptions, check,
    repair, shrink,
};

const BLOCKS: u64 = 300;
/// Blocks that a user writes at most before it places a mark.
const ROOM: u64 = 12;

/// What each block holds: the number of a write; nothing for zeros.
type Content = BTreeMap<u64, u64>;

fn page(number: u64) -> Vec<u8> {
    number.to_le_bytes().repeat(BLOCK_BYTES / 8)
}

fn disk_options() -> AdversaryOptions {
    let capabilities = Capabilities { discard: Discard::ReadsZero, ..Capabilities::legacy(32, 64, 512) };
    AdversaryOptions { blocks: 560, capabilities, latency_ns_max: 20_000, ..AdversaryOptions::default() }
}

fn options(mutant: Option<VolumeMutant>) -> VolumeOptions {
    VolumeOptions {
        rules: Rules::but(mutant),
        checkpoint_segments: 6,
        marks: Some(ROOM * BLOCK_BYTES as u64),
        discard_below: true,
        ..VolumeOptions::default()
    }
}

async fn open(handle: &Handle, disk: &Rc<AdversaryDisk>, mutant: Option<VolumeMutant>) -> Rc<Volume> {
    Rc::new(Volume::open(handle, Rc::<AdversaryDisk>::clone(disk), options(mutant)).await.unwrap())
}

struct World {
    handle: Handle,
    disk: Rc<AdversaryDisk>,
    volume: Rc<Volume>,
    mutant: Option<VolumeMutant>,
    random: Random,
    content: Content,
    /// What the volume held at each mark, with the ticket of the mark; at the beginning, what it was opened with.
    marks: Vec<(Content, Option<Ticket>)>,
    writes: u64,
}

impl World {
    async fn new(handle: &Handle, mutant: Option<VolumeMutant>) -> World {
        let disk = AdversaryDisk::new(handle, disk_options());
        let format = Format { segment_blocks: 8, logical_blocks: BLOCKS, ..Format::default() };
        Volume::create(handle, &*disk, format).await.unwrap();
        let volume = open(handle, &disk, mutant).await;
        let random = handle.random("workload");
        let marks = vec![(Content::new(), None)];
        World {
            handle: handle.clone(),
            disk,
            volume,
            mutant,
            random,
            content: Content::new(),
            marks,
            writes: 0,
        }
    }

    fn of_volume(&self) -> &dyn Marks {
        self.volume.marks().unwrap()
    }

    /// Submits a command. Where the volume needs a mark before it takes one, the mark is placed.
    async fn submit(&mut self, command: Command<'_>) {
        loop {
            let (slot, wanted) = (self.volume.slots().listen(), self.of_volume().wanted().listen());
            match self.volume.submit(command) {
                Ok(_) => return,
                Err(Rejected::Busy) if self.of_volume().is_wanted() => self.mark(0).await,
                Err(Rejected::Busy) => drop(select(slot, wanted).await),
                Err(error) => panic!("{error}"),
            }
        }
    }

    async fn write(&mut self) {
        self.writes += 1;
        let (lba, blocks) = (self.random.below(BLOCKS - 4), self.random.below(4) + 1);
        let data = page(self.writes).repeat(blocks as usize);
        self.submit(Command::Write(Write::new(&[Part::bytes(Lba(lba), &data)]))).await;
        self.content.extend((lba..lba + blocks).map(|lba| (lba, self.writes)));
    }

    /// Writes a few blocks that bring the state to a moment, and places a mark.
    async fn mark(&mut self, blocks: u64) {
        self.of_volume().begin();
        for _ in 0..blocks {
            self.writes += 1;
            let (lba, data) = (self.random.below(BLOCKS), page(self.writes));
            let parts = [Part::bytes(Lba(lba), &data)];
            let command = Command::Write(Write::new(&parts));
            while self.volume.submit(command).is_err_and(|error| error == Rejected::Busy) {
                self.volume.slots().listen().await;
            }
            self.content.insert(lba, self.writes);
        }
        let ticket = loop {
            let slot = self.volume.slots().listen();
            match self.of_volume().place() {
                Err(Rejected::Busy) => slot.await,
                placed => break placed.unwrap(),
            }
        };
        self.marks.push((self.content.clone(), Some(ticket)));
    }

    async fn play(&mut self, steps: u64) {
        for _ in 0..steps {
            match self.random.below(40) {
                0..24 => self.write().await,
                24..26 => {
                    let most = if self.random.below(4) == 0 { 200 } else { 12 };
                    let (lba, blocks) = (self.random.below(BLOCKS - most), self.random.below(most) + 1);
                    let extent = [Extent::new(Lba(lba), blocks as u32)];
                    self.submit(Command::Discard(&extent)).await;
                    self.content.retain(|at, _| !(lba..lba + blocks).contains(at));
                }
                26..28 => {
                    let (to, from) = (self.random.below(BLOCKS), self.random.below(BLOCKS));
                    if to != from {
                        let pair = [SharePair { from: Extent::new(Lba(from), 1), to: Lba(to) }];
                        self.submit(Command::Share(&pair)).await;
                        let found = self.content.get(&from).copied();
                        self.content.remove(&to);
                        self.content.extend(found.map(|found| (to, found)));
                    }
                }
                28..31 => {
                    let blocks = self.random.below(ROOM / 2);
                    self.mark(blocks).await;
                }
                31..35 => flush(&*self.volume).await.unwrap(),
                35 => {
                    // It waits for a mark, which others place.
                    let volume = Rc::clone(&self.volume);
                    drop(self.handle.spawn(async move { drop(volume.checkpoint().await) }));
                }
                _ => self.handle.sleep(Duration::from_micros(self.random.below(40_000))).await,
            }
        }
    }

    /// What the volume holds; nothing if a block cannot be read.
    async fn held(&self) -> Option<Content> {
        content_of(&*self.volume).await
    }

    /// The power is cut, and the volume opened again. Whether it holds what it held at a mark that no later durable one
    /// follows.
    async fn crash(&mut self) -> bool {
        let is_durable = |ticket: &Option<Ticket>| {
            ticket.as_ref().is_none_or(|ticket| ticket.poll_transferred() == Some(Ok(())))
        };
        let newest = self.marks.iter().rposition(|(_, ticket)| is_durable(ticket)).unwrap();
        self.disk.cut_power();
        let left = self.disk.crash_states().sample(&mut self.random);
        self.disk = AdversaryDisk::from_image(&self.handle, disk_options(), &left);
        self.volume = open(&self.handle, &self.disk, self.mutant).await;
        let Some(found) = self.held().await else { return false };
        let is_at_mark = self.marks[newest..].iter().any(|(content, _)| *content == found);
        self.marks = vec![(found.clone(), None)];
        self.content = found;
        is_at_mark
    }
}

/// What a storage holds; nothing if a block cannot be read.
async fn content_of(storage: &dyn Storage) -> Option<Content> {
    let mut held = Content::new();
    for lba in 0..BLOCKS {
        let block = read(storage, Extent::new(Lba(lba), 1)).await.ok()?;
        let number = u64::from_le_bytes(block[..8].try_into().unwrap());
        assert!(block[..] == page(number), "torn");
        held.extend((number > 0).then_some((lba, number)));
    }
    Some(held)
}

/// A random life with crashes: blocks that were cleaned in it, or nothing if a state was not that of a mark.
fn live(seed: u64, mutant: Option<VolumeMutant>) -> Option<u64> {
    let runtime = Runtime::simulated(Simulation { seed, ..Simulation::default() });
    let handle = runtime.handle();
    let life = async {
        let mut world = World::new(&handle, mutant).await;
        let mut cleaned = 0;
        for _ in 0..5 {
            let steps = 100 + world.random.below(400);
            world.play(steps).await;
            assert_eq!(world.held().await.as_ref(), Some(&world.content));
            cleaned += world.volume.stats().cleaned_blocks;
            if !world.crash().await {
                return None;
            }
        }
        // What is closed is kept, with a mark behind it or without.
        world.play(50).await;
        world.volume.close().await.unwrap();
        assert_eq!(check(&*world.disk).await.unwrap().damaged_total, 0);
        world.volume = open(&handle, &world.disk, mutant).await;
        (world.held().await? == world.content).then_some(cleaned)
    };
    runtime.block_on(life).unwrap()
}

#[test]
fn a_crash_takes_a_volume_back_to_a_mark() {
    let lives = (0..60).map(|seed| live(seed, None).unwrap_or_else(|| panic!("seed {seed}")));
    assert!(lives.sum::<u64>() > 0, "nothing was cleaned");
}

/// V13: each mutant leaves a state that is no mark's.
#[test]
fn each_mutant_of_marks_is_found() {
    for mutant in
        [VolumeMutant::MarksIgnored, VolumeMutant::ReuseBeforeMark, VolumeMutant::CheckpointUnmarked]
    {
        assert!((0..60).any(|seed| live(seed, Some(mutant)).is_none()), "{mutant:?}");
    }
}

/// A volume that was open with marks is opened without: what the newest mark covers counts, and from then on each record.
#[test]
fn a_volume_goes_on_without_marks() {
    let runtime = Runtime::simulated(Simulation::default());
    let handle = runtime.handle();
    let test = async {
        let mut world = World::new(&handle, None).await;
        world.play(60).await;
        world.mark(1).await;
        let marked = world.content.clone();
        for expected in [marked.get(&5).copied(), Some(999_999)] {
            weir_storage::write(&*world.volume, Part::bytes(Lba(5), &page(999_999))).await.unwrap();
            flush(&*world.volume).await.unwrap();
            world.disk.cut_power();
            let left = world.disk.crash_states().sample(&mut world.random);
            world.disk = AdversaryDisk::from_image(&handle, disk_options(), &left);
            let without = VolumeOptions { marks: None, ..options(None) };
            let disk = Rc::<AdversaryDisk>::clone(&world.disk);
            world.volume = Rc::new(Volume::open(&handle, disk, without).await.unwrap());
            assert!(world.volume.marks().is_none());
            assert_eq!(world.held().await.unwrap().get(&5).copied(), expected);
        }
    };
    runtime.block_on(test).unwrap();
}

/// Whether each snapshot of a life is of a mark.
fn snapshots_are_of_marks(seed: u64, mutant: Option<VolumeMutant>) -> bool {
    let runtime = Runtime::simulated(Simulation { seed, ..Simulation::default() });
    let handle = runtime.handle();
    let life = async {
        let disk = AdversaryDisk::new(&handle, AdversaryOptions { blocks: 1_200, ..disk_options() });
        let format = Format { segment_blocks: 8, logical_blocks: BLOCKS, slots: 8, ..Format::default() };
        Volume::create(&handle, &*disk, format).await.unwrap();
        let mut world = World { disk: Rc::clone(&disk), ..World::new(&handle, mutant).await };
        world.volume = open(&handle, &disk, mutant).await;
        let mut are_of_marks = true;
        for round in 0..6 {
            world.play(60).await;
            let (volume, name) = (Rc::clone(&world.volume), format!("s{round}"));
            let made = handle.spawn(async move { volume.create_snapshot(&name).await.map(drop) });
            // Users go on meanwhile, and place marks now and then.
            world.play(60).await;
            world.mark(2).await;
            made.await.unwrap().unwrap();
            let snapshot = BranchStorage::open(Rc::clone(&world.volume), &format!("s{round}")).unwrap();
            let found = content_of(&snapshot).await.unwrap();
            are_of_marks &= world.marks.iter().any(|(content, _)| *content == found);
        }
        are_of_marks
    };
    runtime.block_on(life).unwrap()
}

/// V13: a snapshot waits for the next mark, and has users wait until it is made.
#[test]
fn a_snapshot_is_of_a_mark() {
    assert!((0..10).all(|seed| snapshots_are_of_marks(seed, None)));
    let mutant = Some(VolumeMutant::SnapshotUnmarked);
    assert!((0..10).any(|seed| !snapshots_are_of_marks(seed, mutant)), "SnapshotUnmarked");
}

/// What recovery takes back, repair and a change of size take back as well.
#[test]
fn repair_and_a_change_of_size_keep_what_a_mark_covers() {
    for seed in 0..20 {
        let runtime = Runtime::simulated(Simulation { seed, ..Simulation::default() });
        let handle = runtime.handle();
        let test = async {
            let mut world = World::new(&handle, None).await;
            world.play(200).await;
            world.mark(1).await;
            let marked = world.content.clone();
            // Durable, and behind the mark.
            for _ in 0..3 {
                world.write().await;
                flush(&*world.volume).await.unwrap();
            }
            let is_marked = world.marks.last().is_some_and(|(content, _)| *content == marked);
            world.disk.cut_power();
            let left = world.disk.crash_states().sample(&mut world.random);
            let disk = || AdversaryDisk::from_image(&handle, disk_options(), &left);
            let repaired = disk();
            let report = repair(&handle, repaired.clone(), RepairOptions::default()).await.unwrap();
            assert!(report.findings.is_empty(), "seed {seed}: {:?}", report.findings);
            let resized = disk();
            let size = NewSize { logical_blocks: None, physical_blocks: 520 };
            let size = shrink(&handle, resized.clone(), size, options(None)).await;
            assert!(size.is_ok() || matches!(size, Err(ResizeError::InUse { .. })), "seed {seed}: {size:?}");
            for disk in [repaired, resized, disk()] {
                world.volume = open(&handle, &disk, None).await;
                let held = world.held().await.unwrap();
                assert!(!is_marked || held == marked, "seed {seed}");
            }
        };
        runtime.block_on(test).unwrap();
    }
}
