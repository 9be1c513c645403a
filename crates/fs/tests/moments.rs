//! Moments: a crash leaves the whole tree as it was at one moment, no longer ago than is promised (J11).

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use weir_ext4::ROOT_INODE;
use weir_format::{Cookie, FileType};
use weir_fs::{BarrierFs, FsMutant, MountOptions};
use weir_runtime::{Handle, Instant, Random};
use weir_storage::{AdversaryDisk, AdversaryOptions, Image, Rules};
use weir_vfs::{FsError, NewNode, RenameFlags};
use weir_volume::{Format, Volume, VolumeOptions};

use crate::support::{capabilities, plan, simulated_with};

/// Blocks of the filesystem, and of the disk below its volume.
const BLOCKS: u64 = 8_192;
const DISK_BLOCKS: u64 = 40_960;
const INTERVAL: Duration = Duration::from_millis(100);
/// How long taking a moment and making it durable may take beside.
const TRANSFER: Duration = Duration::from_millis(60);
const WORKERS: usize = 2;

/// What the files of a directory hold.
type Tree = BTreeMap<Vec<u8>, Vec<u8>>;

/// A state of a worker's directory: when the call began that made it, and when the next one ended.
struct State {
    tree: Tree,
    from: Instant,
    until: Cell<Option<Instant>>,
}

/// What a worker has done in its directory.
struct Worker {
    directory: u32,
    states: RefCell<Vec<State>>,
    /// When the newest durable call began that has returned.
    durable: Cell<Option<Instant>>,
}

fn disk_options() -> AdversaryOptions {
    let capabilities = capabilities(false);
    AdversaryOptions { blocks: DISK_BLOCKS, capabilities, latency_ns_max: 2_000_000, ..Default::default() }
}

async fn open_volume(clock: &Handle, disk: &Rc<AdversaryDisk>, marks: Option<u64>) -> Rc<Volume> {
    let options = VolumeOptions { marks, buffers: 2, ..VolumeOptions::default() };
    Rc::new(Volume::open(clock, Rc::<AdversaryDisk>::clone(disk), options).await.expect("opened"))
}

impl Worker {
    /// Notes that a call has ended that began at `from`.
    fn note(&self, clock: &Handle, from: Instant, tree: Tree) {
        let mut states = self.states.borrow_mut();
        if let Some(last) = states.last() {
            last.until.set(Some(clock.now()));
        }
        states.push(State { tree, from, until: Cell::new(None) });
    }

    /// Changes its directory at random, until the disk is gone.
    async fn change(self: Rc<Worker>, clock: Handle, fs: BarrierFs, mut random: Random) {
        let mut number = 0_u64;
        while self.change_once(&clock, &fs, &mut random, &mut number).await.is_ok() {
            if random.below(3) == 0 {
                clock.sleep(Duration::from_micros(random.below(9_000))).await;
            }
        }
    }

    async fn change_once(
        &self,
        clock: &Handle,
        fs: &BarrierFs,
        random: &mut Random,
        number: &mut u64,
    ) -> Result<(), FsError> {
        let mut tree = self.states.borrow().last().map(|state| state.tree.clone()).unwrap_or_default();
        let name = |random: &mut Random| vec![b'a' + random.below(6) as u8];
        let (name, other) = (name(random), name(random));
        let from = clock.now();
        let Some(content) = tree.get_mut(&name) else {
            fs.create(self.directory, &name, &NewNode::new(FileType::Regular, 0o644)).await?;
            tree.insert(name, Vec::new());
            self.note(clock, from, tree);
            return Ok(());
        };
        let inode = fs.lookup(self.directory, &name).await?;
        match random.below(12) {
            0..6 => {
                *number += 1;
                let at = if content.len() > 200_000 { 0 } else { random.below(content.len() as u64 + 1) };
                // A long write waits for writeback in its middle.
                let most = if random.below(6) == 0 { 120_000 } else { 3_000 };
                let bytes = number.to_le_bytes().repeat(random.below(most) as usize + 1);
                content.resize(content.len().max(at as usize + bytes.len()), 0);
                content[at as usize..at as usize + bytes.len()].copy_from_slice(&bytes);
                assert_eq!(fs.write(inode, at, &bytes).await?, bytes.len());
            }
            6 => {
                content.truncate(content.len() / 2);
                fs.truncate(inode, content.len() as u64).await?;
            }
            7 => {
                tree.remove(&name);
                fs.unlink(self.directory, &name).await?;
            }
            8..10 if name != other => {
                let moved = tree.remove(&name).unwrap_or_default();
                tree.insert(other.clone(), moved);
                let flags = RenameFlags { no_replace: false, exchange: false, whiteout: false };
                fs.rename((self.directory, &name), (self.directory, &other), flags).await?;
            }
            10 => {
                fs.fsync(inode).await?;
                self.durable.set(Some(from));
                return Ok(());
            }
            _ => return fs.fbarrier(inode).await,
        }
        self.note(clock, from, tree);
        Ok(())
    }
}

/// What a directory holds; nothing if it is not there.
async fn tree_of(fs: &BarrierFs, directory: u32) -> Option<Tree> {
    let mut tree = Tree::new();
    let entries = fs.read_directory(directory, Cookie::DOT_DOT).await.ok()?;
    for name in entries.into_iter().map(|entry| entry.name) {
        let inode = fs.lookup(directory, &name).await.expect("found");
        let size = fs.attributes(inode).await.expect("attributes").size as usize;
        let mut content = vec![0; size];
        let mut read = 0;
        while read < size {
            read += fs.read(inode, read as u64, &mut content[read..]).await.expect("read");
        }
        tree.insert(name, content);
    }
    Some(tree)
}

/// Whether there is a moment at which all directories held what they do, not older than is promised.
fn is_moment(workers: &[Rc<Worker>], found: &[Option<Tree>], cut: Instant) -> bool {
    let durable = workers.iter().filter_map(|worker| worker.durable.get()).max();
    let ends_in_time = |until: Instant| {
        cut.since(until) <= INTERVAL + TRANSFER && durable.is_none_or(|durable| until >= durable)
    };
    let states: Vec<Vec<(Instant, Instant)>> = workers
        .iter()
        .zip(found)
        .map(|(worker, tree)| {
            let states = worker.states.borrow();
            let matching = states.iter().filter(|state| Some(&state.tree) == tree.as_ref());
            matching.map(|state| (state.from, state.until.get().unwrap_or(cut))).collect()
        })
        .collect();
    states[0].iter().any(|(from, until)| {
        states[1].iter().any(|(other_from, other_until)| {
            let until = *until.min(other_until);
            *from.max(other_from) <= until && ends_in_time(until)
        })
    })
}

/// A volume with a new filesystem.
async fn new_volume(clock: &Handle, disk: &Rc<AdversaryDisk>, marks: Option<u64>) -> Rc<Volume> {
    let format = Format { segment_blocks: 32, logical_blocks: BLOCKS, ..Format::default() };
    Volume::create(clock, &**disk, format).await.expect("made");
    let volume = open_volume(clock, disk, None).await;
    BarrierFs::make(&*volume, &plan(BLOCKS)).await.expect("made");
    volume.close().await.expect("closed");
    drop(volume);
    open_volume(clock, disk, marks).await
}

/// Programs change two directories, and the power is cut: whether what is left is the tree as of a moment.
fn is_moment_left(seed: u64, moments: Option<Duration>, mutant: Option<FsMutant>) -> bool {
    simulated_with(seed, async |clock| {
        let mut random = clock.random("cut");
        let disk = AdversaryDisk::new(&clock, disk_options());
        let volume = new_volume(&clock, &disk, moments.map(|_| 16 << 20)).await;
        // A clock that seldom ticks: most overwrites change no inode, so that no transaction takes their data along.
        let rules = Rules::but(mutant);
        let options = MountOptions { moments, rules, timer_hz: 1, ..MountOptions::default() };
        let fs = BarrierFs::mount(&clock, volume.clone(), options).await.expect("mounted");
        let mut workers = Vec::new();
        for number in 0..WORKERS {
            let node = NewNode::new(FileType::Directory, 0o755);
            let directory = fs.mkdir(ROOT_INODE, &[b'0' + number as u8], &node).await.expect("made");
            let states = vec![State { tree: Tree::new(), from: clock.now(), until: Cell::new(None) }];
            let worker = Worker { directory, states: RefCell::new(states), durable: Cell::new(None) };
            workers.push(Rc::new(worker));
        }
        fs.sync().await.expect("durable");
        for (number, worker) in workers.iter().enumerate() {
            let random = clock.random(&format!("worker {number}"));
            drop(clock.spawn(Rc::clone(worker).change(clock.clone(), fs.clone(), random)));
        }
        clock.sleep(Duration::from_micros(50_000 + random.below(900_000))).await;
        if random.below(3) == 0 {
            // The cut falls into unmounting, or behind it.
            let fs = fs.clone();
            drop(clock.spawn(async move { drop(fs.unmount().await) }));
            clock.sleep(Duration::from_micros(random.below(60_000))).await;
        }
        let cut = clock.now();
        disk.cut_power();
        let left: Image = disk.crash_states().sample(&mut random);
        let found = find(&clock, &left, &workers).await;
        is_moment(&workers, &found, cut)
    })
}

/// What a crash has left in the directories.
async fn find(clock: &Handle, left: &Image, workers: &[Rc<Worker>]) -> Vec<Option<Tree>> {
    let disk = AdversaryDisk::from_image(clock, disk_options(), left);
    let volume = open_volume(clock, &disk, None).await;
    let fs = BarrierFs::mount(clock, volume, MountOptions::default()).await.expect("mounted");
    let mut found = Vec::new();
    for worker in workers {
        found.push(tree_of(&fs, worker.directory).await);
    }
    fs.unmount().await.expect("unmounted");
    found
}

#[test]
fn a_crash_leaves_the_tree_as_of_one_moment() {
    for seed in 0..150 {
        assert!(is_moment_left(seed, Some(INTERVAL), None), "seed {seed}");
    }
}

/// J11: what changes while a moment is taken, what is not committed, and what is not written, is seen by half.
#[test]
fn each_mutant_of_moments_is_found() {
    for mutant in [FsMutant::MomentUnheld, FsMutant::MomentUncommitted, FsMutant::MomentUnwritten] {
        let is_found = |seed| !is_moment_left(seed, Some(INTERVAL), Some(mutant));
        assert!((0..150).any(is_found), "{mutant:?}");
    }
}

/// Without moments files are as old as their own last call, or older: the control.
#[test]
fn without_moments_a_crash_leaves_no_moment() {
    assert!((0..20).any(|seed| !is_moment_left(seed, None, None)));
}

#[test]
fn moments_need_a_storage_with_marks() {
    let refused = simulated_with(0, async |clock| {
        let volume = new_volume(&clock, &AdversaryDisk::new(&clock, disk_options()), None).await;
        let options = MountOptions { moments: Some(INTERVAL), ..MountOptions::default() };
        BarrierFs::mount(&clock, volume, options).await.err()
    });
    assert_eq!(refused, Some(FsError::NoMarks));
}
