//! Snapshots and clones: what they read, whatever happens to the volume, and over power cuts (V10).

#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

use std::collections::BTreeMap;
use std::rc::Rc;

use weir_runtime::{Handle, Random, Runtime, Simulation};
use weir_storage::{
    AdversaryDisk, AdversaryOptions, BLOCK_BYTES, Capabilities, Command, Extent, Lba, Part, Rules, SharePair,
    Storage, flush, read, submit_when_free, write,
};
use weir_volume::{
    BranchKind, BranchStorage, Damage, Finding, Format, RepairOptions, SnapshotError, Volume, VolumeError,
    VolumeMutant, VolumeOptions, check, repair,
};

/// More than a page of the map.
const BLOCKS: u64 = 700;
/// The blocks that the test writes: around the end of the first page of the map.
pub(crate) const USED: std::ops::Range<u64> = 480..540;
const SLOTS: u32 = 4;
pub(crate) const FORMAT: Format =
    Format { logical_blocks: BLOCKS, segment_blocks: 8, overwrite: false, slots: SLOTS };

/// The stamps of the blocks of a branch; what is not there reads zeros.
pub(crate) type Content = BTreeMap<u64, u64>;

/// What the volume and its branches are to hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Model {
    volume: Content,
    branches: BTreeMap<String, (bool, Content)>,
}

pub(crate) fn page(stamp: u64) -> Vec<u8> {
    let mut block = vec![if stamp == 0 { 0 } else { (stamp * 7 + 1) as u8 }; BLOCK_BYTES];
    block[..8].copy_from_slice(&stamp.to_le_bytes());
    block
}

pub(crate) async fn open(
    handle: &Handle,
    disk: &Rc<AdversaryDisk>,
    mutant: Option<VolumeMutant>,
) -> Rc<Volume> {
    let options = VolumeOptions { rules: Rules::but(mutant), ..VolumeOptions::default() };
    Rc::new(Volume::open(handle, Rc::clone(disk) as Rc<dyn Storage>, options).await.unwrap())
}

pub(crate) fn disk_options() -> AdversaryOptions {
    let capabilities = Capabilities::legacy(32, 512, 512);
    AdversaryOptions { blocks: 4000, capabilities, ..AdversaryOptions::default() }
}

pub(crate) async fn content_of(storage: &dyn Storage) -> Content {
    let mut found = Content::new();
    for lba in USED {
        let block = read(storage, Extent::new(Lba(lba), 1)).await.unwrap();
        let stamp = u64::from_le_bytes(block[..8].try_into().unwrap());
        assert!(block[..] == page(stamp)[..], "block {lba} is torn");
        found.extend((stamp != 0).then_some((lba, stamp)));
    }
    found
}

async fn model_of(volume: &Rc<Volume>) -> Model {
    let mut branches = BTreeMap::new();
    for branch in volume.snapshots() {
        let storage = BranchStorage::open(Rc::clone(volume), &branch.name).unwrap();
        let content = content_of(&storage).await;
        branches.insert(branch.name, (branch.kind == BranchKind::Clone, content));
    }
    Model { volume: content_of(&**volume).await, branches }
}

/// A run: random commands to the volume and its branches, with power cuts between them and in the middle.
struct Run {
    handle: Handle,
    random: Random,
    disk: Rc<AdversaryDisk>,
    volume: Rc<Volume>,
    mutant: Option<VolumeMutant>,
    /// After each command since the last that is durable.
    states: Vec<Model>,
    next: u64,
    /// The snapshots of clones.
    parents: BTreeMap<String, String>,
}

impl Run {
    fn below(&mut self, most: u64) -> u64 {
        self.random.below(most)
    }

    fn model(&mut self) -> &mut Model {
        self.states.last_mut().unwrap()
    }

    fn name(&mut self, is_clone: Option<bool>) -> Option<String> {
        let fits = |(_, (found, _)): &(&String, &(bool, Content))| is_clone.is_none_or(|it| it == *found);
        let names: Vec<String> =
            self.states.last().unwrap().branches.iter().filter(fits).map(|(name, _)| name.clone()).collect();
        if names.is_empty() { None } else { Some(names[self.below(names.len() as u64) as usize].clone()) }
    }

    /// A command to the volume or to a clone: what it makes of the content.
    async fn change(&mut self, storage: &dyn Storage, clone: Option<&str>) {
        let mut model = self.states.last().unwrap().clone();
        let content = match clone {
            Some(name) => &mut model.branches.get_mut(name).unwrap().1,
            None => &mut model.volume,
        };
        let first = USED.start + self.random.below(USED.end - USED.start - 4);
        match self.random.below(6) {
            0 => {
                let extents = [Extent::new(Lba(first), 1)];
                submit_when_free(storage, Command::Discard(&extents)).await.unwrap();
                content.remove(&first);
                // A clone reads what its snapshot has.
                let snapshot = clone.map(|name| model.branches[&self.parents[name]].1.clone());
                let below = snapshot.and_then(|snapshot| snapshot.get(&first).copied());
                let content = match clone {
                    Some(name) => &mut model.branches.get_mut(name).unwrap().1,
                    None => &mut model.volume,
                };
                content.extend(below.map(|stamp| (first, stamp)));
            }
            1 => {
                let to = USED.start + self.random.below(USED.end - USED.start - 4);
                if first.abs_diff(to) < 3 {
                    return;
                }
                let pairs = [SharePair { from: Extent::new(Lba(first), 3), to: Lba(to) }];
                submit_when_free(storage, Command::Share(&pairs)).await.unwrap();
                let read: Vec<_> = (first..first + 3).map(|lba| content.get(&lba).copied()).collect();
                for (lba, stamp) in (to..).zip(read) {
                    content.remove(&lba);
                    content.extend(stamp.map(|stamp| (lba, stamp)));
                }
            }
            _ => {
                let count = 1 + self.random.below(4);
                let stamps: Vec<u64> = (self.next..self.next + count).collect();
                self.next += count;
                let bytes: Vec<u8> = stamps.iter().flat_map(|stamp| page(*stamp)).collect();
                write(storage, Part::bytes(Lba(first), &bytes)).await.unwrap();
                content.extend((first..).zip(stamps));
            }
        }
        self.states.push(model);
    }

    /// All that was done is durable.
    fn settle(&mut self) {
        let last = self.states.len() - 1;
        self.states.drain(..last);
    }

    async fn manage(&mut self) {
        let name = format!("b{}", self.below(6));
        match self.below(8) {
            0..=2 => match self.volume.create_snapshot(&name).await {
                Ok(_) => {
                    let model = self.model();
                    let content = model.volume.clone();
                    model.branches.insert(name, (false, content));
                    self.settle();
                }
                Err(SnapshotError::Exists(_) | SnapshotError::NoneFree) => {}
                Err(error) => panic!("{error}"),
            },
            3 => {
                let Some(snapshot) = self.name(Some(false)) else { return };
                if self.volume.create_clone(&snapshot, &name).await.is_ok() {
                    let model = self.model();
                    let content = model.branches[&snapshot].1.clone();
                    model.branches.insert(name.clone(), (true, content));
                    self.parents.insert(name, snapshot);
                    self.settle();
                }
            }
            4..=5 => {
                let Some(name) = self.name(None) else { return };
                match self.volume.delete_snapshot(&name).await {
                    Ok(()) => {
                        self.model().branches.remove(&name);
                        self.settle();
                    }
                    Err(SnapshotError::HasClone(_)) => {}
                    Err(error) => panic!("{error}"),
                }
            }
            6 => {
                let Some(name) = self.name(Some(false)) else { return };
                self.volume.roll_back(&name).await.unwrap();
                let model = self.model();
                model.volume = model.branches[&name].1.clone();
                self.settle();
            }
            _ => {
                flush(&*self.volume).await.unwrap();
                self.settle();
            }
        }
    }

    /// Cuts the power, perhaps in the middle of an operation; what is found is one of the states since the last that is durable.
    async fn cut(&mut self) -> Result<(), String> {
        let interrupted = self.begin_operation().await;
        self.disk.cut_power();
        let mut random = self.handle.random(&format!("left {}", self.next));
        let left = self.disk.crash_states().sample(&mut random);
        self.disk = AdversaryDisk::from_image(&self.handle, disk_options(), &left);
        self.volume = open(&self.handle, &self.disk, self.mutant).await;
        let found = model_of(&self.volume).await;
        self.next += 1;
        if !self.states.contains(&found) && !interrupted.contains(&found) {
            let last = self.states.last();
            return Err(format!("no state that was: {found:?}\nlast {last:?}\nor {interrupted:?}"));
        }
        self.states = vec![found];
        Ok(())
    }

    /// Begins a deletion or a rollback, and leaves it after some time. Returns what the volume holds if it has happened.
    async fn begin_operation(&mut self) -> Vec<Model> {
        let Some(name) = self.name(Some(false)) else { return Vec::new() };
        let (volume, patience) = (Rc::clone(&self.volume), self.below(3000));
        let (deletes, of) = (self.below(2) == 0, name.clone());
        let task = self.handle.spawn(async move {
            let _ = if deletes { volume.delete_snapshot(&of).await } else { volume.roll_back(&of).await };
        });
        self.handle.sleep(std::time::Duration::from_micros(patience)).await;
        task.cancel();
        let begun = |model: &Model| {
            let mut model = model.clone();
            if deletes {
                model.branches.remove(&name);
            } else if let Some((_, content)) = model.branches.get(&name) {
                model.volume = content.clone();
            }
            model
        };
        self.states.iter().map(begun).collect()
    }

    async fn run_commands(&mut self, steps: u64) -> Result<(), String> {
        for _ in 0..steps {
            match self.below(10) {
                0..=5 => {
                    let volume = Rc::clone(&self.volume);
                    self.change(&*volume, None).await;
                }
                6..=7 => {
                    let Some(name) = self.name(Some(true)) else { continue };
                    let storage = BranchStorage::open(Rc::clone(&self.volume), &name).unwrap();
                    self.change(&storage, Some(&name)).await;
                }
                8 if self.below(4) == 0 => self.cut().await?,
                _ => self.manage().await,
            }
            if self.below(12) == 0 {
                let found = model_of(&self.volume).await;
                let expected = self.states.last().unwrap();
                if found != *expected {
                    return Err(format!("found {found:?}\nexpected {expected:?}"));
                }
            }
        }
        Ok(())
    }
}

fn run(seed: u64, mutant: Option<VolumeMutant>) -> Result<(), String> {
    let runtime = Runtime::simulated(Simulation { seed, ..Simulation::default() });
    let handle = runtime.handle();
    runtime
        .block_on(async {
            let disk = AdversaryDisk::new(&handle, disk_options());
            Volume::create(&handle, &*disk, FORMAT).await.unwrap();
            let volume = open(&handle, &disk, mutant).await;
            let (random, states) = (handle.random("commands"), vec![Model::default()]);
            let handle = handle.clone();
            let mut run =
                Run { handle, random, disk, volume, mutant, states, next: 1, parents: BTreeMap::new() };
            run.run_commands(250).await?;
            run.volume.close().await.unwrap();
            let report = check(&*run.disk).await.unwrap();
            if report.damaged.is_empty() { Ok(()) } else { Err(format!("{report:?}")) }
        })
        .unwrap()
}

#[test]
fn snapshots_and_clones_hold_what_they_are_to_hold_over_changes_and_power_cuts() {
    for seed in 0..60 {
        run(seed, None).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    }
}

#[test]
fn each_mutant_of_snapshots_is_found() {
    for mutant in [
        VolumeMutant::SnapshotUnpreserved,
        VolumeMutant::HolesUnpreserved,
        VolumeMutant::SnapshotNotInherited,
    ] {
        assert!((0..60).any(|seed| run(seed, Some(mutant)).is_err()), "{mutant:?}");
    }
}

/// More than the log has room for at once: what is refused as busy has to come further the next time.
#[test]
fn a_clone_and_a_volume_below_a_snapshot_discard_much() {
    let runtime = Runtime::simulated(Simulation { seed: 5, ..Simulation::default() });
    let handle = runtime.handle();
    let script = async {
        let disk = AdversaryDisk::new(&handle, AdversaryOptions { blocks: 20_000, ..disk_options() });
        let format = Format { logical_blocks: 12_000, segment_blocks: 8, slots: 2, ..Format::default() };
        Volume::create(&handle, &*disk, format).await.unwrap();
        let volume = open(&handle, &disk, None).await;
        for lba in 0..6000 {
            write(&*volume, Part::bytes(Lba(lba), &page(lba + 1))).await.unwrap();
        }
        volume.create_snapshot("snapshot").await.unwrap();
        volume.create_clone("snapshot", "clone").await.unwrap();
        let clone = BranchStorage::open(Rc::clone(&volume), "clone").unwrap();
        for lba in 0..6000 {
            write(&clone, Part::bytes(Lba(lba), &page(lba + 9000))).await.unwrap();
        }
        let before = volume.stats().live_blocks;
        let all = [Extent::new(Lba(0), 12_000)];
        submit_when_free(&clone, Command::Discard(&all)).await.unwrap();
        assert!(volume.stats().live_blocks + 5999 < before, "the blocks of the clone are free");
        submit_when_free(&*volume, Command::Discard(&all)).await.unwrap();
        let snapshot = BranchStorage::open(Rc::clone(&volume), "snapshot").unwrap();
        for lba in (0..6000).step_by(97) {
            let block = read(&snapshot, Extent::new(Lba(lba), 1)).await.unwrap();
            assert!(block[..] == page(lba + 1)[..], "block {lba}");
            let block = read(&*volume, Extent::new(Lba(lba), 1)).await.unwrap();
            assert!(block.iter().all(|byte| *byte == 0), "block {lba}");
        }
        let in_use = volume.delete_snapshot("clone").await;
        assert_eq!(in_use, Err(SnapshotError::InUse("clone".to_owned())));
        drop((clone, snapshot));
        volume.delete_snapshot("clone").await.unwrap();
        volume.delete_snapshot("snapshot").await.unwrap();
        assert!(volume.stats().live_blocks < 10, "all is free");
    };
    runtime.block_on(script).unwrap();
}

async fn create(handle: &Handle) -> (Rc<AdversaryDisk>, Rc<Volume>) {
    let disk = AdversaryDisk::new(handle, disk_options());
    Volume::create(handle, &*disk, FORMAT).await.unwrap();
    let volume = open(handle, &disk, None).await;
    (disk, volume)
}

/// Without its table nothing says what is in the slots: the volume does not open, and a repair gives the snapshots up and keeps all
/// that the volume itself has (V9).
#[test]
fn v9_without_the_table_of_snapshots_a_repair_keeps_the_volume_itself() {
    let runtime = Runtime::simulated(Simulation { seed: 5, ..Simulation::default() });
    let handle = runtime.handle();
    let script = async {
        let (disk, volume) = create(&handle).await;
        let write_all = async |stamp: u64, step: usize| {
            for lba in USED.step_by(step) {
                write(&*volume, Part::bytes(Lba(lba), &page(stamp + lba))).await.unwrap();
            }
        };
        write_all(1000, 1).await;
        volume.create_snapshot("snapshot").await.unwrap();
        volume.create_clone("snapshot", "clone").await.unwrap();
        write_all(2000, 3).await;
        let content = content_of(&*volume).await;
        volume.close().await.unwrap();
        let mut image = disk.image();
        let tables: Vec<u64> =
            (0..image.blocks()).filter(|at| image.read(Lba(*at)).starts_with(b"WEIR-SNP")).collect();
        assert!(!tables.is_empty());
        tables.iter().for_each(|at| image.flip_bit(at * BLOCK_BYTES as u64 + 100, 3));
        let disk = AdversaryDisk::from_image(&handle, disk_options(), &image);
        let storage = || Rc::clone(&disk) as Rc<dyn Storage>;

        let refused = Volume::open(&handle, storage(), VolumeOptions::default()).await.err();
        let is_table = |error: &Option<VolumeError>| {
            matches!(error, Some(VolumeError::Damaged { what: Damage::SnapshotTable, .. }))
        };
        assert!(is_table(&refused), "{refused:?}");
        let refused = repair(&handle, storage(), RepairOptions::default()).await.err();
        assert!(is_table(&refused), "{refused:?}");
        let options = RepairOptions { drop_snapshots: true, ..RepairOptions::default() };
        let report = repair(&handle, storage(), options).await.unwrap();
        assert_eq!((report.findings, report.lost), (vec![Finding::Snapshots], vec![]));

        let volume = open(&handle, &disk, None).await;
        assert_eq!((content_of(&*volume).await, volume.snapshots()), (content, vec![]));
        assert_eq!(volume.stats().live_blocks, USED.count() as u64, "what only snapshots had is free");
        volume.create_snapshot("new").await.unwrap();
        volume.close().await.unwrap();
        assert!(check(&*disk).await.unwrap().damaged.is_empty());
    };
    runtime.block_on(script).unwrap();
}

/// What the block of zeros holds is known: a repair writes it anew, and nothing is lost (V9).
#[test]
fn v9_a_repair_writes_the_block_of_zeros_anew() {
    let runtime = Runtime::simulated(Simulation { seed: 5, ..Simulation::default() });
    let handle = runtime.handle();
    let script = async {
        let (disk, volume) = create(&handle).await;
        volume.create_snapshot("snapshot").await.unwrap();
        for lba in USED {
            write(&*volume, Part::bytes(Lba(lba), &page(1000 + lba))).await.unwrap();
        }
        volume.close().await.unwrap();
        let image = disk.image();
        let is_zeros = |at: u64| image.read(Lba(at)).iter().all(|byte| *byte == 0);
        let mut mended = 0;
        // A block of the log that is all zeros has something before it.
        for at in (1..image.blocks()).filter(|at| is_zeros(*at) && !is_zeros(at - 1)) {
            let mut damaged = image.clone();
            damaged.flip_bit(at * BLOCK_BYTES as u64 + 100, 3);
            let disk = AdversaryDisk::from_image(&handle, disk_options(), &damaged);
            if check(&*disk).await.unwrap().damaged.is_empty() {
                continue;
            }
            let storage = Rc::clone(&disk) as Rc<dyn Storage>;
            let report = repair(&handle, storage, RepairOptions::default()).await.unwrap();
            assert_eq!((report.findings, report.lost), (vec![Finding::Zeros], vec![]));
            let volume = open(&handle, &disk, None).await;
            let snapshot = BranchStorage::open(Rc::clone(&volume), "snapshot").unwrap();
            assert!(content_of(&snapshot).await.is_empty());
            mended += 1;
        }
        assert_eq!(mended, 1);
    };
    runtime.block_on(script).unwrap();
}
