//! One run: rounds of programs, with the power cut at events of each.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;

use futures_util::future::{Either, select, try_join, try_join_all};
use weir_format::FileType;
use weir_fs::{BarrierFs, Discards, MountOptions};
use weir_runtime::{Handle, Instant, Random};
use weir_stack::{DiskSpec, StackSpec, VolumeSpec};
use weir_storage::{AdversaryOptions, BLOCK_BYTES, Capabilities, Discard};
use weir_vfs::{FsError, InodeNumber, NewNode, ReadOnlyReason};
use weir_volume::{Format, VolumeOptions};

use super::history::History;
use super::program::{Program, Surroundings, read_tree};
use super::{MomentCampaign, MomentTotals, Promise};
use crate::bound::in_new_runtime;
use crate::campaign::{Failure, Run, runtime_of};
use crate::cuts::Cuts;
use crate::fs::ground::{BLOCKS, Blocks, Ground, Left, SEGMENT_BLOCKS, TRANSFER_BLOCKS};
use crate::fs::script::fill_up;
use crate::fs::visible::BALLAST;
use crate::options::{mount_options, pick};

/// Rounds of a run.
const ROUNDS: u32 = 3;
/// States of a round that are judged, at most.
const STATES_MAX: u64 = 600;
/// Programs, of which a run has some.
const PROGRAMS: [&[u8]; 3] = [b"first", b"second", b"third"];
/// How long a call may take, when the round is over.
const CALL_MAX: Duration = Duration::from_secs(60);
/// Of this many states, one is unmounted and checked.
const CHECKED: u64 = 32;
/// What takes room is written in pieces of so many bytes, at most.
const PIECE_BYTES: u64 = 1 << 16;
/// A moment waits for the disk so often at most, one command after another, until it is safe.
const COMMANDS_OF_MOMENT: u32 = 20;

/// How much room a run leaves.
#[derive(Clone, Copy, Eq, PartialEq)]
enum Room {
    Free,
    /// Little in the filesystem.
    FilesystemFull,
    /// Little in the filesystem, whose blocks are all written, so that the volume holds as much.
    VolumeFull,
}

/// What is mounted after a cut, and looked at.
#[derive(Clone, Copy)]
struct Subject {
    options: MountOptions,
    programs: usize,
    room: Room,
}

/// One run.
pub(super) struct MomentRun {
    handle: Handle,
    spec: StackSpec,
    subject: Subject,
    promise: Promise,
    found: Rc<RefCell<Cuts<MomentTotals>>>,
    /// The observer cuts the power without a draw.
    cuts_always: Rc<Cell<bool>>,
    /// What was done in the current round.
    story: Rc<RefCell<Vec<String>>>,
}

impl MomentRun {
    /// Plays the run of this seed.
    pub(super) fn play(campaign: &MomentCampaign, image: &Blocks, seed: u64) -> Run<MomentTotals> {
        let runtime = runtime_of(seed);
        let run = MomentRun::new(&runtime.handle(), campaign);
        let ended = runtime.block_on(run.play_rounds(image));
        let ended = run.found.borrow_mut().end_run(ended, runtime.handle().trace_hash());
        let failure = ended.failure.map(|failure| Failure { story: run.story.take(), ..failure });
        Run { failure, ..ended }
    }

    fn new(handle: &Handle, campaign: &MomentCampaign) -> MomentRun {
        let mut random = handle.random("options");
        let interval = Duration::from_millis(pick(&mut random, &[10, 30, 100]));
        let latency_ns_max = pick(&mut random, &[5_000, 50_000]);
        let transfer = COMMANDS_OF_MOMENT * Duration::from_nanos(latency_ns_max);
        let options = MountOptions {
            moments: campaign.moments.then_some(interval),
            cache_bytes: pick(&mut random, &[1 << 28, 0]),
            cache_metadata_blocks: pick(&mut random, &[1 << 14, 4]),
            cache_inodes: pick(&mut random, &[1 << 14, 1]),
            discard: pick(&mut random, &[Discards::Auto, Discards::On]),
            // A clock that seldom ticks: most overwrites change no inode, so that no transaction takes their data along.
            timer_hz: pick(&mut random, &[1, 250]),
            ..mount_options(campaign.options, &mut random)
        };
        let room = pick(&mut random, &[Room::Free, Room::FilesystemFull, Room::VolumeFull]);
        let found = Cuts::new(handle.random("cut"), STATES_MAX, 2 + random.below(3) as u32);
        MomentRun {
            handle: handle.clone(),
            spec: draw_spec(&mut random, campaign, latency_ns_max, room),
            subject: Subject { options, programs: 1 + random.below(PROGRAMS.len() as u64) as usize, room },
            promise: Promise { interval, transfer },
            found: Rc::new(RefCell::new(found)),
            cuts_always: Rc::default(),
            story: Rc::default(),
        }
    }

    async fn play_rounds(&self, image: &Blocks) -> Result<(), String> {
        let ground = Ground::from_spec(self.spec.clone(), &self.handle, image).await;
        let ground = ground.map_err(|error| error.to_string())?;
        let fs = self.mount(&ground).await?;
        for name in &PROGRAMS[..self.subject.programs] {
            let new = NewNode::new(FileType::Directory, 0o755);
            fs.mkdir(fs.root(), name, &new).await.map_err(|error| format!("preparing: {error}"))?;
        }
        self.take_room(&fs).await.map_err(|error| format!("preparing: {error}"))?;
        fs.sync().await.map_err(|error| format!("preparing: {error}"))?;
        let play_round = async |(ground, fs): &(Ground, BarrierFs), _| {
            self.story.borrow_mut().clear();
            self.play_round(ground, fs).await?;
            ground.rest();
            Ok(())
        };
        let recover = async |left: Left| self.recover(&left).await;
        Cuts::play_rounds(&self.found, ROUNDS, (ground, fs), play_round, recover).await
    }

    /// Takes room away, as this run does.
    async fn take_room(&self, fs: &BarrierFs) -> Result<(), FsError> {
        if self.subject.room == Room::Free {
            return Ok(());
        }
        fill_up(&**fs).await?;
        if self.subject.room == Room::VolumeFull {
            let (ballast, size) = find_ballast(fs).await?;
            for at in (0..size).step_by(PIECE_BYTES as usize) {
                write_piece(fs, (ballast, 1), at, PIECE_BYTES.min(size - at)).await?;
            }
        }
        Ok(())
    }

    /// On a full volume, overwrites the ballast piece by piece, from its beginning to its end and again, until the round is over: segments
    /// come free and are used again between two moments (V13), and the cleaner runs. Each time through it is a *pass*.
    async fn overwrite_ballast(&self, fs: &BarrierFs, end: Instant) -> Result<(), String> {
        if self.subject.room != Room::VolumeFull {
            return Ok(());
        }
        let mut random = self.handle.random("ballast");
        let (ballast, size) =
            find_ballast(fs).await.map_err(|error| format!("finding the ballast: {error}"))?;
        let passes = read_passes(fs).await.map_err(|error| format!("reading the ballast: {error}"))?;
        let (mut at, mut pass) = (0, 1 + passes.first().copied().unwrap_or(0));
        while self.handle.now() < end && !self.found.borrow().is_over() {
            let bytes = PIECE_BYTES.min(size - at);
            match write_piece(fs, (ballast, pass), at, bytes).await {
                Ok(()) => {
                    at = (at + bytes) % size;
                    pass += u64::from(at == 0);
                }
                Err(FsError::NoSpace) => {}
                Err(_) if fs.read_only().is_some() => break,
                Err(error) => return Err(format!("overwriting the ballast: {error}")),
            }
            self.handle.sleep(Duration::from_micros(random.below(2_000))).await;
        }
        Ok(())
    }

    async fn mount(&self, ground: &Ground) -> Result<BarrierFs, String> {
        mount(&self.handle, ground, self.subject.options).await
    }

    /// One round, from the mounted filesystem on.
    async fn play_round(&self, ground: &Ground, fs: &BarrierFs) -> Result<(), String> {
        let mut random = self.handle.random("round");
        let failed = |error: FsError| format!("beginning a round: {error}");
        let (mut trees, mut programs) = (Vec::new(), Vec::new());
        for name in &PROGRAMS[..self.subject.programs] {
            let directory = fs.lookup(fs.root(), name).await.map_err(failed)?;
            let (shown, tree) = read_tree(&**fs, directory).await.map_err(failed)?;
            trees.push(tree);
            programs.push((directory, shown));
        }
        let now = self.handle.now();
        let history = Rc::new(RefCell::new(History::new(self.promise, &trees, now)));
        self.cut_at_events(ground, fs, &history, 16 << random.below(3));
        let around = Surroundings {
            clock: self.handle.clone(),
            fs: fs.clone(),
            history: Rc::clone(&history),
            found: Rc::clone(&self.found),
            story: Rc::clone(&self.story),
            end: now + Duration::from_millis(20 + random.below(400)),
        };
        let programs = programs.into_iter().enumerate();
        let programs: Vec<Program> = programs
            .map(|(number, (directory, shown))| Program::new(around.clone(), number, directory, shown))
            .collect();
        let limit = pin!(self.handle.sleep(around.end.since(now) + CALL_MAX));
        let programs = try_join_all(programs.into_iter().map(Program::run));
        let calls = try_join(programs, self.overwrite_ballast(fs, around.end));
        match select(pin!(calls), limit).await {
            Either::Left((ended, _)) => drop(ended?),
            Either::Right(_) => return Err(format!("a call has not returned for {CALL_MAX:?}")),
        }
        if random.below(3) == 0 && fs.read_only().is_none() && !self.found.borrow().is_over() {
            self.unmount(ground, fs, &history).await?;
        }
        let mut found = self.found.borrow_mut();
        found.totals.stops += u64::from(has_stopped(fs));
        let stats = ground.volume_stats();
        found.totals.checkpoints += stats.checkpoints;
        found.totals.cleaned += stats.cleaned_blocks;
        Ok(())
    }

    /// Unmounts, with the power cut meanwhile: what is mounted then is all that was done.
    async fn unmount(
        &self,
        ground: &Ground,
        fs: &BarrierFs,
        history: &Rc<RefCell<History>>,
    ) -> Result<(), String> {
        let began = self.handle.now();
        match fs.unmount().await {
            Ok(()) => history.borrow_mut().note_durable(began),
            Err(_) if has_stopped(fs) => return Ok(()),
            Err(error) => return Err(format!("unmounting: {error}")),
        }
        // Seldom is a volume unmounted, and what promises more then is seen by a cut before the next mount alone.
        self.cuts_always.set(true);
        ground.visit_now();
        self.cuts_always.set(false);
        ground.rest();
        let fs = self.mount(ground).await?;
        let (_, trees) = find_trees(&fs, self.subject.programs).await?;
        fs.unmount().await.map_err(|error| format!("unmounting again: {error}"))?;
        self.found.borrow_mut().totals.unmounts += 1;
        match trees == history.borrow().newest() {
            true => Ok(()),
            false => Err("what was unmounted is not what was done".to_owned()),
        }
    }

    /// Cuts the power, on copies, at one of so many events of the disk from now on.
    fn cut_at_events(&self, ground: &Ground, fs: &BarrierFs, history: &Rc<RefCell<History>>, of: u64) {
        let (found, history, clock) = (Rc::clone(&self.found), Rc::clone(history), self.handle.clone());
        let (subject, fs, cuts_always) = (self.subject, fs.clone(), Rc::clone(&self.cuts_always));
        let chance = RefCell::new(self.handle.random("events"));
        // What was found in each state of this round.
        let known = RefCell::new(BTreeMap::new());
        ground.observe(move |draw| {
            let (found, now) = (&mut *found.borrow_mut(), clock.now());
            if has_stopped(&fs) {
                history.borrow_mut().note_stop(now);
            }
            if !found.sees_event() || !cuts_always.get() && chance.borrow_mut().below(of) > 0 {
                return;
            }
            let history = &mut *history.borrow_mut();
            let mut again: Vec<Vec<u64>> = Vec::new();
            let mut draw_known = |random: &mut Random| {
                let left = draw(random);
                again.extend(known.borrow().get(&left.hash()).cloned());
                left
            };
            found.at_event(&mut draw_known, 0, |left, state, totals| {
                let checked = state.is_multiple_of(CHECKED);
                totals.states_checked += u64::from(checked);
                let trees = find(left, subject, state, checked)?;
                note_age(totals, history.judge(&trees, now)?, history.interval());
                known.borrow_mut().insert(left.hash(), trees);
                Ok(true)
            });
            for trees in again {
                found.totals.judged_again += 1;
                match history.judge(&trees, now) {
                    Ok(age) => note_age(&mut found.totals, age, history.interval()),
                    Err(what) => found.fail(what),
                }
            }
        });
    }

    /// Powers up what is left, with the power cut again at every event of the recovery: it finds the same every time.
    async fn recover(&self, left: &Left) -> Result<(Ground, BarrierFs), String> {
        let subject = self.subject;
        let find = move |left: &Left, seed| find(left, subject, seed, false);
        Cuts::recover(&self.found, &self.handle, left, find, async |ground| {
            let fs = self.mount(ground).await?;
            let (_, trees) = find_trees(&fs, subject.programs).await?;
            Ok((fs, trees))
        })
        .await
    }
}

/// What takes the room, and its size in bytes.
async fn find_ballast(fs: &BarrierFs) -> Result<(InodeNumber, u64), FsError> {
    let ballast = fs.lookup(fs.root(), BALLAST).await?;
    Ok((ballast, fs.attributes(ballast).await?.size))
}

/// Writes the number of the pass into a piece of the ballast.
async fn write_piece(
    fs: &BarrierFs,
    (ballast, pass): (InodeNumber, u64),
    at: u64,
    bytes: u64,
) -> Result<(), FsError> {
    fs.write(ballast, at, &pass.to_le_bytes().repeat(bytes as usize / 8)).await.map(drop)
}

/// The passes of which the ballast is, one after the other.
async fn read_passes(fs: &BarrierFs) -> Result<Vec<u64>, FsError> {
    let (ballast, size) = find_ballast(fs).await?;
    let mut found = Vec::new();
    for at in (0..size).step_by(PIECE_BYTES as usize) {
        let mut bytes = vec![0; PIECE_BYTES.min(size - at) as usize];
        fs.read(ballast, at, &mut bytes).await?;
        found.extend(bytes.as_chunks().0.iter().map(|pass| u64::from_le_bytes(*pass)));
        found.dedup();
    }
    Ok(found)
}

/// Each moment has the newer pass of the ballast in front.
async fn judge_ballast(fs: &BarrierFs) -> Result<(), String> {
    let passes = read_passes(fs).await.map_err(|error| format!("reading the ballast: {error}"))?;
    match passes.is_sorted_by(|one, next| one > next) && !passes.contains(&0) {
        true => Ok(()),
        false => Err(format!("no moment had this ballast, with parts of the passes {passes:?}")),
    }
}

fn note_age(totals: &mut MomentTotals, age: Option<Duration>, interval: Duration) {
    let beside = age.unwrap_or_default().saturating_sub(interval).as_micros() as u64;
    totals.transfer_us_max = totals.transfer_us_max.max(beside);
}

/// Whether the mount takes no changes any more, as a moment failed.
fn has_stopped(fs: &BarrierFs) -> bool {
    matches!(fs.read_only(), Some(ReadOnlyReason::Aborted(_)))
}

/// A volume with marks on the worst disk: how large, how full and how it is opened is drawn.
fn draw_spec(random: &mut Random, campaign: &MomentCampaign, latency_ns_max: u64, room: Room) -> StackSpec {
    let tear = pick(random, &[512, BLOCK_BYTES as u32, BLOCK_BYTES as u32, BLOCK_BYTES as u32]);
    let capabilities = Capabilities {
        discard: Discard::Undefined,
        ..Capabilities::legacy(pick(random, &[4, 32]), TRANSFER_BLOCKS, tear)
    };
    // With little room for a moment, the volume wants one before the interval is over.
    let quarters =
        if room == Room::VolumeFull { pick(random, &[5, 6]) } else { pick(random, &[5, 6, 16, 80]) };
    let (logical_blocks, blocks) = (BLOCKS, BLOCKS * quarters / 4);
    let disk = AdversaryOptions { blocks, capabilities, latency_ns_max, ..AdversaryOptions::default() };
    let options = VolumeOptions {
        buffers: pick(random, &[2, 4]),
        checkpoint_segments: pick(random, &[3, 6, 12]),
        map_pages: pick(random, &[1 << 16, 3]),
        discard_below: random.below(2) == 0,
        marks: campaign.moments.then(|| pick(random, &[16 << 20, 64 << 10])),
        rules: campaign.rules,
        ..VolumeOptions::default()
    };
    let format = Format { segment_blocks: SEGMENT_BLOCKS, logical_blocks, ..Format::default() };
    StackSpec::with_volume(DiskSpec::Adversary(disk), VolumeSpec { format, options })
}

async fn mount(handle: &Handle, ground: &Ground, options: MountOptions) -> Result<BarrierFs, String> {
    let mounted = BarrierFs::mount(handle, ground.storage(), options).await;
    mounted.map_err(|error| format!("mounting: {error}"))
}

/// The directories of programs, and a hash of what each holds.
async fn find_trees(fs: &BarrierFs, programs: usize) -> Result<(Vec<InodeNumber>, Vec<u64>), String> {
    let (mut directories, mut trees) = (Vec::new(), Vec::new());
    for name in &PROGRAMS[..programs] {
        let failed = |error| format!("reading {}: {error}", name.escape_ascii());
        let directory = fs.lookup(fs.root(), name).await.map_err(failed)?;
        directories.push(directory);
        trees.push(read_tree(&**fs, directory).await.map_err(failed)?.1);
    }
    Ok((directories, trees))
}

/// What is found on what is left; `checked`: it is unmounted then, and the format is checked.
fn find(left: &Left, subject: Subject, seed: u64, checked: bool) -> Result<Vec<u64>, String> {
    in_new_runtime(seed, async |handle| {
        let ground = Ground::from_left(left, handle, None).await.map_err(|error| error.to_string())?;
        let fs = mount(handle, &ground, subject.options).await?;
        let (_, trees) = find_trees(&fs, subject.programs).await?;
        if subject.room == Room::VolumeFull {
            judge_ballast(&fs).await?;
        }
        if checked {
            fs.unmount().await.map_err(|error| format!("unmounting: {error}"))?;
            let report = ground.check().await.map_err(|error| format!("checking: {error}"))?;
            if let Some(finding) = report.findings.first() {
                return Err(format!("{} findings, the first: {finding}", report.total));
            }
        }
        Ok(trees)
    })
}
