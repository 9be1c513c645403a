//! One run: rounds of random operations, with the power cut at every event of each.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use futures_util::future::try_join_all;
use weir_ext4::{Mkfs, ROOT_INODE};
use weir_format::{FileType, FormatError, Structure};
use weir_fs::{BarrierFs, CheckpointBy, Checkpoints, Discards, Engine, MountOptions, Needs, OrderBy};
use weir_runtime::{Handle, Random};
use weir_storage::{AdversaryDisk, AdversaryOptions, BLOCK_BYTES, Discard, Recorder, Storage};
use weir_vfs::{FsError, NewNode};

use super::calls::Inodes;
use super::ground::{BLOCKS, DiskTraits, Fails, Ground, Left, bytes_of};
use super::history::{Guarantees, History};
use super::script::{Plan, Script};
use super::visible::Visible;
use super::{FsCampaign, FsTotals, outside};
use crate::bound::in_new_runtime;
use crate::campaign::{Failure, Run, runtime_of};
use crate::content::mix;
use crate::cuts::{CUTS_PER_EVENT, Cuts};
use crate::options::pick;

/// Rounds of a run.
const ROUNDS: u32 = 3;
/// Operations of a round at most.
const OPERATIONS_MAX: u64 = 120;
/// Operations before the first cut, in some rounds: the log goes round. As many are done at most until it is crowded.
const OPERATIONS_WARM: u64 = 600;
/// Blocks of the log that are in use when the filesystem checkpoints: half of the smallest journal.
const LOG_CROWDED: u32 = 512;

/// The same for a checkpoint in the foreground: three quarters.
const LOG_SHORT: u32 = 768;
/// States of a round that are judged, at most: what comes later in it is judged in other rounds.
const STATES_MAX: u64 = 600;

/// The directories of tasks, where there is more than one.
const PARTS: [&[u8]; 3] = [b"first", b"second", b"third"];

/// How long it takes at most until the filesystem knows that a flush has failed.
const TOLD_WITHIN: Duration = Duration::from_millis(10);

/// Of this many states, one is checked whole.
const STATES_PER_CHECK: u64 = 8;

/// One run.
pub(super) struct FsRun {
    handle: Handle,
    campaign: FsCampaign,
    images: Rc<Images>,
    options: MountOptions,
    /// Tasks of each round.
    tasks: usize,
    pages_max: u64,
    /// What fails in the first round.
    fails: Fails,
    found: Rc<RefCell<Cuts<FsTotals>>>,
    /// The operations of the current round.
    story: RefCell<Rc<RefCell<Vec<String>>>>,
}

impl FsRun {
    /// Plays the run of this seed.
    pub(super) fn play(campaign: &FsCampaign, images: &Rc<Images>, seed: u64) -> Run<FsTotals> {
        let runtime = runtime_of(seed);
        let run = FsRun::new(&runtime.handle(), campaign, images);
        let ended = runtime.block_on(run.play_rounds());
        let ended = run.found.borrow_mut().end_run(ended, runtime.handle().trace_hash());
        let failure = ended.failure.map(|failure| Failure { story: run.story.take().take(), ..failure });
        Run { failure, ..ended }
    }

    fn new(handle: &Handle, campaign: &FsCampaign, images: &Rc<Images>) -> FsRun {
        let mut random = handle.random("options");
        let mut discards = handle.random("discards");
        // Pages go to the disk by calls and commits only.
        let by_calls = random.below(2) == 0;
        let options = MountOptions {
            engine: Some(campaign.engine),
            mode: campaign.mode,
            // Writeback as soon as a few pages are dirty, or never.
            dirty_background_bytes: if by_calls { 1 << 40 } else { pick(&mut random, &[1, 4, 16]) << 12 },
            dirty_bytes: if by_calls { 1 << 41 } else { 1 << 18 },
            cache_bytes: if by_calls { 1 << 28 } else { pick(&mut random, &[1 << 28, 0]) },
            cache_metadata_blocks: pick(&mut random, &[1 << 14, 4]),
            cache_inodes: pick(&mut random, &[1 << 14, 1]),
            commit_interval: Duration::from_micros(pick(&mut random, &[300, 20_000, 5_000_000])),
            tree_reserve_blocks: pick(&mut handle.random("space"), &[0, 0, 4, 1 << 12]),
            // As the product does it, with its default and with its option.
            discard: match campaign.options.discard {
                Discards::Auto => pick(&mut discards, &[Discards::Auto, Discards::On]),
                given => given,
            },
            discard_delay: Duration::from_micros(pick(&mut discards, &[0, 300, 20_000])),
            checkpoints: match campaign.options.checkpoints {
                Checkpoints::Background => Checkpoints::Background,
                Checkpoints::Foreground { .. } => Checkpoints::Foreground {
                    flusher: Duration::from_micros(pick(
                        &mut handle.random("flusher"),
                        &[300, 20_000, 30_000_000],
                    )),
                },
            },
            // Changed bytes fill the log slowly.
            checkpoint_blocks: match campaign.options.coalition {
                true => pick(&mut handle.random("coalition"), &[40, 100, u32::MAX]),
                false => campaign.options.checkpoint_blocks,
            },
            durability_notice: Duration::from_micros(pick(
                &mut handle.random("notice"),
                &[1_000, 50_000, 30_000_000],
            )),
            ..campaign.options
        };
        let found = Cuts::new(handle.random("cut"), STATES_MAX, CUTS_PER_EVENT);
        let tasks = if random.below(2) == 0 { 1 } else { 2 + random.below(2) as usize };
        let pages_max = pick(&mut random, &[12, 12, 12, 40]);
        let fails = match random.below(8) {
            _ if !campaign.ground.can_fail() => Fails::Nothing,
            _ if campaign.flush_faults => Fails::Flush,
            0 => Fails::Write,
            _ => Fails::Nothing,
        };
        let (handle, campaign, images) = (handle.clone(), campaign.clone(), Rc::clone(images));
        FsRun {
            handle,
            campaign,
            images,
            options,
            tasks,
            pages_max,
            fails,
            found: Rc::new(RefCell::new(found)),
            story: RefCell::default(),
        }
    }

    fn is_dual(&self) -> bool {
        matches!(self.campaign.engine, Engine::Dual { .. })
    }

    /// Whether the log's tail moves by order alone (J5): a flush that fails may take with it what that protects.
    fn trusts_order(&self) -> bool {
        self.campaign.engine.facts().order != OrderBy::Flushes
    }

    async fn play_rounds(&self) -> Result<(), String> {
        let mut random = self.handle.random("ground");
        let ground = self.campaign.ground;
        let recorder = self.is_dual().then(|| ground.recorder());
        let image = &self.images.0[usize::from(self.tasks > 1)];
        let (fails, tear_bytes) = (self.fails, self.campaign.tear_bytes);
        let mut shares = self.handle.random("shares");
        let share_blocks =
            (self.options.checkpoint == CheckpointBy::Remap).then(|| pick(&mut shares, &[1, 4, 64]));
        let discards = self.options.discard != Discards::Off;
        let packs = self.campaign.engine.facts().needs == Needs::Packed;
        let traits = DiskTraits { blocks: BLOCKS, fails, tear_bytes, discards, share_blocks, packs };
        let ground = Ground::new(ground, &self.handle, &mut random, image, recorder.as_ref(), traits).await;
        let ground = ground.map_err(|error| error.to_string())?;
        let fs = mount(&self.handle, &ground, self.options, recorder.clone()).await?;
        let play_round = async |(ground, fs): &(Ground, BarrierFs), round| {
            let fails = if round == 0 { self.fails } else { Fails::Nothing };
            self.story.replace(Rc::default());
            self.play_round(ground, fs, fails).await?;
            // The order recorder sees the first round.
            if let Some(Err(violation)) = recorder.as_ref().map(|recorder| recorder.check()) {
                return Err(violation.to_string());
            }
            ground.rest();
            Ok(())
        };
        Cuts::play_rounds(&self.found, ROUNDS, (ground, fs), play_round, async |left| {
            self.recover(&left).await
        })
        .await
    }

    /// Plays, and perhaps unmounts.
    async fn play_round(&self, ground: &Ground, fs: &BarrierFs, fails: Fails) -> Result<(), String> {
        let faulty = fails != Fails::Nothing;
        let visible = Visible::read(fs).await.map_err(|error| format!("reading: {error}"))?;
        let names = if self.tasks > 1 { &PARTS[..self.tasks] } else { &[] };
        let promised = Guarantees::from_engine(self.campaign.engine, self.campaign.mode);
        let guarantees = Guarantees {
            mode: self.campaign.judged_as.unwrap_or(promised.mode),
            // Until the flush fails order is promised, and what it leaves then is judged on the legacy path only.
            faulty: faulty && !(fails == Fails::Flush && self.trusts_order()),
            tear_bytes: tear_bytes(&self.campaign, ground),
            corrupts: corrupts(ground),
            watch: ground.watch(),
            ..promised
        };
        let history = History::from_visible(guarantees, &visible, names);
        let history = Rc::new(RefCell::new(history.map_err(|error| error.to_string())?));
        let mut random = self.handle.random("life");
        let warm_up = WarmUp::draw(&mut random, &mut self.handle.random("crowded"), &self.options);
        let operations = 10 + random.below(OPERATIONS_MAX - 10);
        let last = Cell::new(None);
        let (begun, inodes) = (Cell::new(0), Rc::default());
        observe_zeros(fs, &history, &inodes);
        let trims = self.options.discard != Discards::Off
            && ground.storage().capabilities().discard != Discard::Unsupported;
        let flushes = self.campaign.engine.facts().flushes;
        let plan = Plan {
            pages_max: self.pages_max,
            stride: 1,
            faulty,
            trims,
            flushes,
            fills: true,
            syncs_directories: false,
        };
        let script = |part| {
            let (story, inodes) = (Rc::clone(&self.story.borrow()), Rc::clone(&inodes));
            Script::new(&self.handle, fs.clone().into(), Rc::clone(&history), part, plan, inodes, story)
        };
        let play = async |mut script: Script| {
            while last.get().is_none_or(|last| begun.get() < last) && self.found.borrow().failure.is_none() {
                if last.get().is_none() && warm_up.is_over(begun.get(), fs) {
                    last.set(Some(begun.get() + operations));
                    self.cut_at_every_event(ground, &history);
                }
                begun.set(begun.get() + 1);
                let more = script.step().await?;
                ground.visit_now();
                self.found.borrow_mut().totals.operations += 1;
                if !more {
                    break;
                }
            }
            Ok::<_, String>(script)
        };
        let mut scripts = try_join_all((0..self.tasks).map(|part| play(script(part)))).await?;
        if self.found.borrow().failure.is_some() {
            return Ok(());
        }
        if let Some(watch) = ground.watch() {
            // A caller that waits for that flush is told.
            self.handle.sleep(TOLD_WITHIN).await;
            if watch.has_failed() && fs.read_only().is_none() {
                return Err("a flush failed, and the filesystem still takes changes".to_owned());
            }
        }
        if let Some(lie) = history.borrow().lie() {
            return Err(lie.to_owned());
        }
        if !faulty {
            let now = Visible::read(fs).await.map_err(|error| format!("reading: {error}"))?;
            history.borrow_mut().judge_now(&now).map_err(|illegal| format!("before any cut: {illegal}"))?;
        }
        if random.below(3) == 0 && !faulty {
            for script in &mut scripts {
                script.release_all().await?;
            }
            scripts[0].unmount().await?;
        }
        let statistics = fs.statistics();
        let totals = &mut self.found.borrow_mut().totals;
        totals.commits += statistics.journal.commits;
        totals.checkpoints += statistics.journal.checkpoints;
        totals.operations_full += scripts.iter().map(|script| script.when_full).sum::<u64>();
        totals.blocks_zeroed += statistics.zeroed_blocks;
        Ok(())
    }

    /// Cuts the power, on copies, at every event of the storage from now on, and when a call has returned.
    fn cut_at_every_event(&self, ground: &Ground, history: &Rc<RefCell<History>>) {
        let (found, history) = (Rc::clone(&self.found), Rc::clone(history));
        let (campaign, options, refuses) = (self.campaign.clone(), self.options, self.is_dual());
        let ends = ground.watch().filter(|_| self.trusts_order());
        let tear_bytes = tear_bytes(&campaign, ground);
        ground.observe(move |draw| {
            let found = &mut *found.borrow_mut();
            let is_over = ends.as_ref().is_some_and(|watch| watch.has_failed());
            if !found.sees_event() || is_over {
                return;
            }
            let history = history.borrow();
            found.at_event(draw, history.promises(), |left, state, totals| {
                // By the state, not by chance: an observer changes nothing of what happens.
                let outside = campaign.outside > 0 && mix(state, 2).is_multiple_of(campaign.outside);
                let shown = match (outside, tear_bytes) {
                    (false, _) => Shown::Nothing,
                    (true, BLOCK_BYTES) => Shown::Everything,
                    // What a replay of ours leaves is not torn.
                    (true, _) if campaign.options.coalition => Shown::Everything,
                    (true, _) => Shown::Recovered,
                };
                match examine(left, &history, options, shown, state) {
                    // A commit block may be with the device when a write before it fails (S5). Such a log is
                    // refused, as the kernel refuses it, and no round begins with it.
                    Err(Unfit::Log(_)) if refuses && history.may_fail() => {
                        totals.states_refused += 1;
                        Ok(false)
                    }
                    Ok(kernel) => {
                        totals.states_outside += u64::from(outside);
                        totals.states_kernel += u64::from(kernel);
                        Ok(true)
                    }
                    Err(unfit) => Err(unfit.to_string()),
                }
            });
        });
    }

    /// Powers up what is left, with the power cut again at every event while the filesystem recovers: it finds
    /// the same every time. (What the device or volume below does for itself is their campaigns' business.)
    async fn recover(&self, left: &Left) -> Result<(Ground, BarrierFs), String> {
        let options = self.options;
        let find = move |left: &Left, seed| Ok(find(left, options, seed)?);
        Cuts::recover(&self.found, &self.handle, left, find, async |ground| {
            let fs = mount(&self.handle, ground, options, None).await?;
            let visible = Visible::read(&fs).await.map_err(|error| format!("reading: {error}"))?;
            Ok((fs, visible))
        })
        .await
    }
}

/// What is done in a round before the first cut.
struct WarmUp {
    /// Operations at least; none if cuts come from the start.
    operations: Option<u64>,
    /// Blocks of the log that are in use by then.
    log_blocks: u32,
}

impl WarmUp {
    /// Some cuts come late, when the log has gone round, or begin when a checkpoint is about to come.
    fn draw(random: &mut Random, crowded: &mut Random, options: &MountOptions) -> WarmUp {
        let operations = pick(random, &[None, None, Some(0), Some(OPERATIONS_WARM)]);
        let log_blocks = match options.checkpoints {
            Checkpoints::Background => LOG_CROWDED.min(options.checkpoint_blocks),
            Checkpoints::Foreground { .. } => LOG_SHORT,
        };
        WarmUp { operations, log_blocks: log_blocks - pick(crowded, &[4, 24]) }
    }

    /// Whether cuts may begin after so many operations.
    fn is_over(&self, begun: u64, fs: &BarrierFs) -> bool {
        let is_crowded = || fs.statistics().journal.log_blocks_used >= self.log_blocks;
        self.operations
            .is_none_or(|least| begun >= least + OPERATIONS_WARM || (begun >= least && is_crowded()))
    }
}

/// Whether a power cut may leave garbage of what is being written.
pub(super) fn corrupts(ground: &Ground) -> bool {
    ground.storage().capabilities().corrupts_when_cut
}

/// The parts of a block that a power cut decides about one by one: sectors, where it may leave garbage.
fn tear_bytes(campaign: &FsCampaign, ground: &Ground) -> usize {
    if corrupts(ground) { 512 } else { campaign.tear_bytes as usize }
}

/// Tells the history of zeros that the filesystem writes by itself.
pub(super) fn observe_zeros(fs: &BarrierFs, history: &Rc<RefCell<History>>, inodes: &Rc<RefCell<Inodes>>) {
    let (history, inodes) = (Rc::clone(history), Rc::clone(inodes));
    fs.observe_zeros(move |inode, pages| {
        // A number of an inode is given again: the newest file has it.
        let inodes = inodes.borrow();
        if let Some((file, _)) = inodes.iter().rev().find(|(_, number)| **number == inode) {
            history.borrow_mut().zeros_written(*file, pages);
        }
    });
}

pub(super) async fn mount(
    handle: &Handle,
    ground: &Ground,
    options: MountOptions,
    recorder: Option<Rc<Recorder>>,
) -> Result<BarrierFs, Unfit> {
    let mounted = BarrierFs::mount_recorded(handle, ground.storage(), recorder, options).await;
    mounted.map_err(|error| match error {
        FsError::Format(FormatError::Checksum { structure: Structure::JournalBlock, .. }) => {
            Unfit::Log(format!("mounting: {error}"))
        }
        error => Unfit::Defect(format!("mounting: {error}")),
    })
}

/// Why nothing can be told of what was left.
#[derive(Debug, thiserror::Error)]
pub(super) enum Unfit {
    /// A block of the log is not what was written there.
    #[error("{0}")]
    Log(String),
    #[error("{0}")]
    Defect(String),
}

impl From<String> for Unfit {
    fn from(what: String) -> Unfit {
        Unfit::Defect(what)
    }
}

impl From<Unfit> for String {
    fn from(unfit: Unfit) -> String {
        unfit.to_string()
    }
}

/// What is found on what is left.
fn find(left: &Left, options: MountOptions, seed: u64) -> Result<Visible, Unfit> {
    in_new_runtime(seed, async |handle| {
        let ground = Ground::from_left(left, handle, None).await.map_err(|error| error.to_string())?;
        let fs = mount(handle, &ground, options, None).await?;
        let visible = Visible::read(&fs).await.map_err(|error| format!("reading: {error}"))?;
        if !seed.is_multiple_of(STATES_PER_CHECK) {
            return Ok(visible);
        }
        // What recovery has begun with files without a name is in the log then, and the check looks behind that.
        fs.sync().await.map_err(|error| format!("syncing: {error}"))?;
        let report = ground.check().await.map_err(|error| format!("checking: {error}"))?;
        match report.findings.first() {
            Some(finding) => Err(format!("{} findings, the first: {finding}", report.total).into()),
            None => Ok(visible),
        }
    })
}

/// What outside judges see of a state.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Shown {
    Nothing,
    /// What we recovered.
    Recovered,
    /// That, and what the power cut left.
    Everything,
}

/// Judges what is left; whether the kernel did, too.
fn examine(
    left: &Left,
    history: &History,
    options: MountOptions,
    shown: Shown,
    seed: u64,
) -> Result<bool, Unfit> {
    let visible = find(left, options, seed)?;
    history.judge(&visible).map_err(|illegal| illegal.to_string())?;
    if shown == Shown::Nothing {
        return Ok(false);
    }
    let [crashed, replayed, recovered] = images_of(left, options, seed)?;
    if shown == Shown::Recovered {
        return outside::judge_recovered(&recovered).map(|()| false).map_err(|what| what.to_string().into());
    }
    outside::judge(&crashed, &recovered, &replayed, &visible).map_err(|what| what.to_string().into())
}

/// The filesystem as it is when the power is back, when our replay is done, and when we have mounted and unmounted it.
pub(super) fn images_of(left: &Left, options: MountOptions, seed: u64) -> Result<[Vec<u8>; 3], Unfit> {
    in_new_runtime(seed, async |handle| {
        let ground = Ground::from_left(left, handle, None).await.map_err(|error| error.to_string())?;
        let bytes = async || bytes_of(&*ground.storage()).await.map_err(|error| error.to_string());
        let crashed = bytes().await?;
        let replay = BarrierFs::recover(handle, ground.storage()).await;
        replay.map_err(|error| format!("replaying: {error}"))?;
        let replayed = bytes().await?;
        let fs = mount(handle, &ground, options, None).await?;
        fs.unmount().await.map_err(|error| format!("unmounting: {error}"))?;
        Ok([crashed, replayed, bytes().await?])
    })
}

/// The filesystems that runs begin with: for one task, and for several.
pub struct Images([Image; 2]);

/// The blocks of a filesystem, those of zeros left out.
type Image = Vec<(u64, Vec<u8>)>;

impl Images {
    pub(super) fn new() -> Result<Rc<Images>, String> {
        Ok(Rc::new(Images([nearly_full(&[])?, nearly_full(&PARTS)?])))
    }
}

/// A new filesystem with little room, and directories of these names.
fn nearly_full(directories: &[&[u8]]) -> Result<Image, String> {
    let bytes = in_new_runtime(0, async |handle| {
        let disk =
            AdversaryDisk::new(handle, AdversaryOptions { blocks: BLOCKS, ..AdversaryOptions::default() });
        let mkfs = Mkfs { reserved_percent: 0, ..Mkfs::new(BLOCKS, [7; 16], [8; 16], 1_700_000_000) };
        BarrierFs::make(&*disk, &mkfs).await.map_err(|error| format!("mkfs: {error}"))?;
        // Where a run keeps something for trees, there is as much less room.
        let options = MountOptions { tree_reserve_blocks: 0, ..MountOptions::default() };
        let mounted = BarrierFs::mount(handle, Rc::clone(&disk) as Rc<dyn Storage>, options);
        let fs = mounted.await.map_err(|error| format!("mounting: {error}"))?;
        for name in directories {
            let made = fs.create(ROOT_INODE, name, &NewNode::new(FileType::Directory, 0o755)).await;
            made.map_err(|error| format!("making a directory: {error}"))?;
        }
        super::script::fill_up(&fs).await.map_err(|error| format!("filling: {error}"))?;
        fs.unmount().await.map_err(|error| format!("unmounting: {error}"))?;
        bytes_of(&*disk).await.map_err(|error| error.to_string())
    })?;
    let blocks = (0..).zip(bytes.chunks(BLOCK_BYTES));
    let written = blocks.filter(|(_, block)| block.iter().any(|byte| *byte != 0));
    Ok(written.map(|(block, bytes)| (block, bytes.to_vec())).collect())
}
