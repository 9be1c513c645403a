//! One run: rounds of updates, with the power cut at every event of each.

use std::cell::RefCell;
use std::rc::Rc;

use weir_format::FileType;
use weir_runtime::{Handle, Random, Runtime, Simulation};
use weir_storage::BLOCK_BYTES;
use weir_vfs::{Fallocate, Filesystem, FsError, InodeNumber, NewNode};

use super::history::{FILES, Files, Found, History, UNIT_BLOCKS, UNIT_FILE, UNITS, block_of, name_of};
use super::{UpdateCampaign, UpdateTotals, UpdatedFs};
use crate::campaign::{Run, runtime_of};
use crate::cuts::{CUTS_PER_EVENT, Cuts};
use crate::fs::ground::{Blocks, Ground, Left};

/// Rounds of a run.
const ROUNDS: u32 = 3;
/// Steps of a round.
const STEPS: u64 = 60;
/// Blocks of an atomic file at most.
const BLOCKS_MAX: u64 = 24;
/// States of a round that are judged, at most.
const STATES_MAX: u64 = 600;
/// Of this many states, one is unmounted and checked.
const CHECKED: u64 = 16;
/// Ordinary files at most.
const ORDINARY_MAX: u64 = 6;

/// One run.
pub(super) struct UpdateRun {
    handle: Handle,
    campaign: UpdateCampaign,
    filesystem: UpdatedFs,
    found: Rc<RefCell<Cuts<UpdateTotals>>>,
    history: Rc<RefCell<History>>,
}

impl UpdateRun {
    /// Plays the run of this seed.
    pub(super) fn play(campaign: &UpdateCampaign, image: &Blocks, seed: u64) -> Run<UpdateTotals> {
        let runtime = runtime_of(seed);
        let run = UpdateRun::new(&runtime.handle(), campaign);
        let ended = runtime.block_on(run.play_rounds(image));
        run.found.borrow_mut().end_run(ended, runtime.handle().trace_hash())
    }

    fn new(handle: &Handle, campaign: &UpdateCampaign) -> UpdateRun {
        let mut random = handle.random("options");
        UpdateRun {
            handle: handle.clone(),
            filesystem: campaign.filesystem.drawn(&mut random),
            campaign: campaign.clone(),
            found: Rc::new(RefCell::new(Cuts::new(handle.random("cut"), STATES_MAX, CUTS_PER_EVENT))),
            history: Rc::default(),
        }
    }

    async fn play_rounds(&self, image: &Blocks) -> Result<(), String> {
        let mut random = self.handle.random("ground");
        let traits = self.filesystem.disk_traits(&mut random);
        let ground = Ground::new(self.campaign.ground, &self.handle, &mut random, image, None, traits);
        let ground = ground.await.map_err(|error| error.to_string())?;
        self.prepare(&ground).await?;
        let play_round = async |ground: &Ground, round| {
            self.play_round(ground, round).await?;
            ground.rest();
            Ok(())
        };
        let recover = async |left: Left| {
            // What is left is on the medium: no later cut takes it back, that of a recovery neither.
            let content = find(&left, &self.history.borrow(), self.filesystem, 1, false)?;
            self.begin(content.files, content.units);
            Ground::from_left(&left, &self.handle, None).await.map_err(|error| error.to_string())
        };
        Cuts::play_rounds(&self.found, ROUNDS, ground, play_round, recover).await
    }

    /// What is there as a round begins is durable.
    fn begin(&self, files: Files, units: Vec<Option<u64>>) {
        let mut history = History::from_files(files);
        let units = units.into_iter().map(Option::unwrap_or_default);
        // Where units are not promised, they are not judged.
        history.set_units(units.chain(std::iter::repeat(0)).take(UNITS).collect());
        self.history.replace(history);
    }

    /// Makes the files, durably.
    async fn prepare(&self, ground: &Ground) -> Result<(), String> {
        let (fs, _) = self.filesystem.mount(&self.handle, ground).await?;
        let made = async {
            for file in 0..FILES {
                let inode = create(&fs, &name_of(file)).await?;
                if !fs.has_atomic_writes() {
                    fs.set_atomic(inode, true).await?;
                }
            }
            let units = create(&fs, UNIT_FILE).await?;
            let whole = Fallocate::Allocate { keep_size: false };
            fs.fallocate(units, whole, 0, (UNITS * UNIT_BLOCKS * BLOCK_BYTES) as u64).await?;
            fs.unmount().await
        };
        made.await.map_err(|error: FsError| format!("preparing: {error}"))?;
        self.begin(Files::default(), vec![Some(0); UNITS]);
        Ok(())
    }

    /// One round, from the mount on.
    async fn play_round(&self, ground: &Ground, round: u32) -> Result<(), String> {
        self.cut_at_every_event(ground);
        let (fs, _) = self.filesystem.mount(&self.handle, ground).await?;
        let mut script = Script {
            fs: fs.clone(),
            random: self.handle.random("script"),
            pending: self.history.borrow().newest(),
            touched: [false; FILES],
            begun: [false; FILES],
            ordinary: 0,
            writes: 1 + u64::from(round) * 1_000_000,
            history: Rc::clone(&self.history),
        };
        for _ in 0..STEPS {
            if self.found.borrow().is_over() {
                break;
            }
            let done = script.step().await;
            let counted = done.map_err(|error| format!("a step: {error}"))?;
            {
                let totals = &mut self.found.borrow_mut().totals;
                totals.updates += u64::from(counted.updates);
                totals.abandoned += u64::from(counted.abandoned);
            }
            ground.visit_now();
        }
        Ok(())
    }

    /// Cuts the power, on copies, at every event of the storage from now on, and when a step has ended.
    fn cut_at_every_event(&self, ground: &Ground) {
        let (found, history) = (Rc::clone(&self.found), Rc::clone(&self.history));
        let filesystem = self.filesystem;
        ground.observe(move |draw| {
            let found = &mut *found.borrow_mut();
            if !found.sees_event() {
                return;
            }
            let history = history.borrow();
            found.at_event(draw, history.hash(), |left, state, totals| {
                let checked = state.is_multiple_of(CHECKED);
                totals.states_checked += u64::from(checked);
                let content = find(left, &history, filesystem, state, checked)?;
                history.judge(&content)?;
                totals.states_units += u64::from(!content.units.is_empty());
                Ok(true)
            });
        });
    }
}

/// What a step did.
#[derive(Clone, Copy, Default)]
struct Step {
    updates: bool,
    abandoned: bool,
}

/// The random operations of a round.
struct Script {
    fs: Filesystem,
    random: Random,
    /// The atomic files as programs see them.
    pending: Files,
    touched: [bool; FILES],
    begun: [bool; FILES],
    ordinary: u64,
    writes: u64,
    history: Rc<RefCell<History>>,
}

impl Script {
    async fn step(&mut self) -> Result<Step, FsError> {
        let mut done = Step::default();
        match self.random.below(16) {
            0..=5 => self.write().await?,
            6..=8 => done.updates = self.commit().await?,
            9 => done.abandoned = self.abandon().await?,
            10 => self.begin().await?,
            11 | 12 => self.write_unit().await?,
            13 => self.make_ordinary().await?,
            14 => self.delete_ordinary().await?,
            _ => self.fs.sync().await?,
        }
        Ok(done)
    }

    fn next_write(&mut self) -> u64 {
        self.writes += 1;
        self.writes
    }

    fn pick_file(&mut self) -> usize {
        self.random.below(FILES as u64) as usize
    }

    async fn inode(&self, file: usize) -> Result<InodeNumber, FsError> {
        self.fs.lookup(self.fs.root(), &name_of(file)).await
    }

    /// Writes some blocks to an atomic file.
    async fn write(&mut self) -> Result<(), FsError> {
        let file = self.pick_file();
        let inode = self.inode(file).await?;
        if self.fs.has_atomic_writes() && !self.begun[file] {
            // Without that it would be an ordinary write.
            self.begin_update(file, inode).await?;
        }
        for _ in 0..1 + self.random.below(4) {
            let write = self.next_write();
            let first = self.random.below(BLOCKS_MAX);
            let blocks = 1 + self.random.below((BLOCKS_MAX - first).min(6));
            let bytes: Vec<u8> = (first..first + blocks).flat_map(|place| block_of(write, place)).collect();
            write_all(&self.fs, inode, first * BLOCK_BYTES as u64, &bytes).await?;
            let content = &mut self.pending[file];
            let end = (first + blocks) as usize;
            content.resize(content.len().max(end), 0);
            content[first as usize..end].fill(write);
            self.touched[file] = true;
        }
        Ok(())
    }

    /// Commits the updates of one file, or of several, durably or in order; whether there was one.
    async fn commit(&mut self) -> Result<bool, FsError> {
        let group: Vec<usize> = (0..FILES).filter(|_| self.random.below(2) == 0).collect();
        let (mut inodes, mut begun) = (Vec::new(), Vec::new());
        for file in group.iter().copied() {
            let inode = self.inode(file).await?;
            match self.begun[file] {
                true => begun.push(inode),
                false => inodes.push(inode),
            }
        }
        // Those that were begun are ended together, before the others are committed.
        let ended: Vec<usize> = group.iter().copied().filter(|file| self.begun[*file]).collect();
        if !ended.is_empty() {
            self.committing(&ended);
            self.fs.end_updates(&begun).await?;
            for file in &ended {
                self.begun[*file] = false;
            }
        }
        let others: Vec<usize> = group.iter().copied().filter(|file| !ended.contains(file)).collect();
        self.committing(&others);
        let all: Vec<InodeNumber> = begun.iter().chain(&inodes).copied().collect();
        if all.is_empty() {
            return Ok(false);
        }
        if self.random.below(2) == 0 {
            self.fs.order_group(&all).await?;
        } else {
            self.fs.sync_group(&all).await?;
            self.history.borrow_mut().durable(&group);
        }
        Ok(true)
    }

    /// Some files are going to be committed as they are.
    fn committing(&mut self, group: &[usize]) {
        let mut files = self.history.borrow().newest();
        let mut changed = Vec::new();
        for file in group {
            if std::mem::take(&mut self.touched[*file]) {
                files[*file] = self.pending[*file].clone();
                changed.push(*file);
            }
        }
        if !changed.is_empty() {
            self.history.borrow_mut().commit(&changed, files);
        }
    }

    async fn begin(&mut self) -> Result<(), FsError> {
        let file = self.pick_file();
        if self.begun[file] {
            return Ok(());
        }
        let inode = self.inode(file).await?;
        self.begin_update(file, inode).await
    }

    async fn begin_update(&mut self, file: usize, inode: InodeNumber) -> Result<(), FsError> {
        self.committing(&[file]);
        self.fs.begin_update(inode).await?;
        self.begun[file] = true;
        Ok(())
    }

    async fn abandon(&mut self) -> Result<bool, FsError> {
        let file = self.pick_file();
        let inode = self.inode(file).await?;
        self.fs.abandon_update(inode).await?;
        self.begun[file] = false;
        self.pending[file] = self.history.borrow().newest()[file].clone();
        Ok(std::mem::take(&mut self.touched[file]))
    }

    /// Overwrites a unit, or several, and now and then makes them durable.
    async fn write_unit(&mut self) -> Result<(), FsError> {
        let unit = self.random.below(UNITS as u64) as usize;
        let most = if self.random.below(3) == 0 { UNITS - unit } else { 1 };
        let end = unit + 1 + self.random.below(most as u64) as usize;
        let write = self.next_write();
        let inode = self.fs.lookup(self.fs.root(), UNIT_FILE).await?;
        let places = unit * UNIT_BLOCKS..end * UNIT_BLOCKS;
        let bytes: Vec<u8> = places.clone().flat_map(|place| block_of(write, place as u64)).collect();
        self.history.borrow_mut().write_units(unit..end, write);
        write_all(&self.fs, inode, (places.start * BLOCK_BYTES) as u64, &bytes).await?;
        if self.random.below(3) == 0 {
            self.fs.fdatasync(inode).await?;
            self.history.borrow_mut().units_durable();
        }
        Ok(())
    }

    /// Makes an ordinary file, durably.
    async fn make_ordinary(&mut self) -> Result<(), FsError> {
        if self.history.borrow().settled().count() as u64 >= ORDINARY_MAX {
            return Ok(());
        }
        self.ordinary += 1;
        let write = self.next_write();
        let name = format!("ordinary-{write}").into_bytes();
        let blocks = 1 + self.random.below(12);
        let inode = create(&self.fs, &name).await?;
        let bytes: Vec<u8> = (0..blocks).flat_map(|place| block_of(write, place)).collect();
        write_all(&self.fs, inode, 0, &bytes).await?;
        // Some have been atomic: the journal holds their blocks when they are freed.
        if self.random.below(2) == 0 && !self.fs.has_atomic_writes() {
            self.fs.set_atomic(inode, true).await?;
            self.fs.write(inode, 0, &bytes).await?;
        }
        self.fs.fsync(inode).await?;
        self.history.borrow_mut().settle(name, write, blocks as usize);
        Ok(())
    }

    async fn delete_ordinary(&mut self) -> Result<(), FsError> {
        let names: Vec<Vec<u8>> = self.history.borrow().settled().cloned().collect();
        if names.is_empty() {
            return Ok(());
        }
        let name = &names[self.random.below(names.len() as u64) as usize];
        self.history.borrow_mut().unsettle(name);
        self.fs.unlink(self.fs.root(), name).await
    }
}

async fn create(fs: &Filesystem, name: &[u8]) -> Result<InodeNumber, FsError> {
    fs.create(fs.root(), name, &NewNode::new(FileType::Regular, 0o644)).await
}

async fn write_all(fs: &Filesystem, inode: InodeNumber, at: u64, bytes: &[u8]) -> Result<(), FsError> {
    let mut written = 0;
    while written < bytes.len() {
        written += fs.write(inode, at + written as u64, &bytes[written..]).await?;
    }
    Ok(())
}

/// What is found on what is left; `checked`: it is unmounted then, and the format is checked.
fn find(
    left: &Left,
    history: &History,
    filesystem: UpdatedFs,
    seed: u64,
    checked: bool,
) -> Result<Found, String> {
    let runtime = Runtime::simulated(Simulation { seed, ..Simulation::default() });
    let handle = runtime.handle();
    let found = runtime.block_on(async {
        let ground = Ground::from_left(left, &handle, None).await.map_err(|error| error.to_string())?;
        let (fs, unit_bytes) = filesystem.mount(&handle, &ground).await?;
        let with_units = unit_bytes == (UNIT_BLOCKS * BLOCK_BYTES) as u64;
        let found = Found::read(&fs, history, with_units).await?;
        if checked {
            fs.unmount().await.map_err(|error| format!("unmounting: {error}"))?;
            filesystem.check(&ground).await?;
        }
        Ok(found)
    });
    found.map_err(|error| error.to_string())?
}
