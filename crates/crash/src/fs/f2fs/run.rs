//! One run: rounds of random operations, with the power cut at every event of each.

use std::cell::RefCell;
use std::rc::Rc;

use weir_f2fs::check::check;
use weir_fs::JournalMode;
use weir_lfs::{Cleaner, F2fs, F2fsOptions};
use weir_runtime::Handle;
use weir_storage::{BLOCK_BYTES, Recorder};
use weir_vfs::StorageImage;

use super::image::{Aged, BLOCKS};
use super::{F2fsCampaign, F2fsTotals, fsck};
use crate::bound::in_new_runtime;
use crate::campaign::{Failure, Run, runtime_of};
use crate::content::mix;
use crate::cuts::{CUTS_PER_EVENT, Cuts};
use crate::fs::ground::{DiskTraits, Ground, Left, bytes_of};
use crate::fs::history::{Guarantees, History, InPlace};
use crate::fs::script::{Plan, Script};
use crate::fs::visible::Visible;
use crate::options::{f2fs_options, pick};

/// Rounds of a run.
const ROUNDS: u32 = 3;
/// Operations of a round at most.
const OPERATIONS_MAX: u64 = 120;
/// Operations before the first cut, in some rounds.
const OPERATIONS_WARM: u64 = 300;
/// States of a round that are judged, at most: what comes later in it is judged in other rounds.
const STATES_MAX: u64 = 300;
/// Of this many states, one is checked whole.
const STATES_PER_CHECK: u64 = 2;

/// One run.
pub(super) struct F2fsRun {
    handle: Handle,
    campaign: F2fsCampaign,
    aged: Rc<Aged>,
    options: F2fsOptions,
    /// Pages of a file, and at which of them most writes begin: in some runs so far apart that they need other nodes.
    pages: (u64, u64),
    found: Rc<RefCell<Cuts<F2fsTotals>>>,
    /// The operations of the current round.
    story: RefCell<Rc<RefCell<Vec<String>>>>,
}

impl F2fsRun {
    /// Plays the run of this seed.
    pub(super) fn play(campaign: &F2fsCampaign, aged: &Rc<Aged>, seed: u64) -> Run<F2fsTotals> {
        let runtime = runtime_of(seed);
        let run = F2fsRun::new(&runtime.handle(), campaign, aged);
        let ended = runtime.block_on(run.play_rounds());
        let ended = run.found.borrow_mut().end_run(ended, runtime.handle().trace_hash());
        let failure = ended.failure.map(|failure| Failure { story: run.story.take().take(), ..failure });
        Run { failure, ..ended }
    }

    fn new(handle: &Handle, campaign: &F2fsCampaign, aged: &Rc<Aged>) -> F2fsRun {
        let mut random = handle.random("options");
        let options = f2fs_options(campaign.options, &mut random);
        let pages = pick(&mut random, &[(12, 1), (40, 1), (2_400, 200)]);
        let found = Cuts::new(handle.random("cut"), STATES_MAX, CUTS_PER_EVENT);
        let (handle, campaign, aged) = (handle.clone(), campaign.clone(), Rc::clone(aged));
        let (found, story) = (Rc::new(RefCell::new(found)), RefCell::default());
        F2fsRun { handle, campaign, aged, options, pages, found, story }
    }

    async fn play_rounds(&self) -> Result<(), String> {
        let mut random = self.handle.random("ground");
        let ground = self.campaign.ground;
        let recorder = ground.keeps_barriers().then(|| ground.recorder());
        let share_blocks = (self.options.cleaner == Cleaner::Share)
            .then(|| pick(&mut self.handle.random("shares"), &[1, 4, 64]));
        let traits = DiskTraits { blocks: BLOCKS, share_blocks, ..DiskTraits::PLAIN };
        let image = &self.aged.blocks;
        let ground = Ground::new(ground, &self.handle, &mut random, image, recorder.as_ref(), traits).await;
        let ground = ground.map_err(|error| error.to_string())?;
        let fs = mount(&self.handle, &ground, self.options, recorder.clone()).await?;
        let play_round = async |(ground, fs): &(Ground, F2fs), _| {
            self.story.replace(Rc::default());
            self.play_round(ground, fs).await?;
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
    async fn play_round(&self, ground: &Ground, fs: &F2fs) -> Result<(), String> {
        let visible = Visible::read(fs).await.map_err(|error| format!("reading: {error}"))?;
        let history =
            History::from_visible(self.guarantees(), &visible, &[]).map_err(|error| error.to_string())?;
        let history = Rc::new(RefCell::new(history));
        let mut random = self.handle.random("life");
        let warm_up = pick(&mut random, &[0, 0, OPERATIONS_WARM]);
        let operations = warm_up + 10 + random.below(OPERATIONS_MAX - 10);
        let (pages_max, stride) = self.pages;
        let plan = Plan {
            pages_max,
            stride,
            faulty: false,
            trims: false,
            flushes: true,
            fills: false,
            syncs_directories: true,
        };
        let story = Rc::clone(&self.story.borrow());
        let mut script =
            Script::new(&self.handle, fs.clone().into(), Rc::clone(&history), 0, plan, Rc::default(), story);
        for nth in 0..operations {
            if self.found.borrow().failure.is_some() {
                return Ok(());
            }
            if nth == warm_up {
                self.cut_at_every_event(ground, &history);
            }
            script.step().await?;
            ground.visit_now();
            self.found.borrow_mut().totals.operations += 1;
        }
        let now = Visible::read(fs).await.map_err(|error| format!("reading: {error}"))?;
        history.borrow_mut().judge_now(&now).map_err(|illegal| format!("before any cut: {illegal}"))?;
        if random.below(3) == 0 {
            script.release_all().await?;
            script.unmount().await?;
        }
        let statistics = fs.statistics();
        let cleaned = statistics.cleaned;
        let totals = &mut self.found.borrow_mut().totals;
        totals.checkpoints += statistics.checkpoints;
        totals.segments_cleaned += cleaned.segments;
        totals.pages_moved += cleaned.pages;
        totals.nodes_moved += cleaned.nodes;
        Ok(())
    }

    fn guarantees(&self) -> Guarantees {
        let in_place = if self.options.in_place_pages == 0 { InPlace::Never } else { InPlace::FewPages };
        Guarantees {
            mode: JournalMode::Data,
            uncovers: false,
            faulty: false,
            tear_bytes: BLOCK_BYTES,
            corrupts: false,
            watch: None,
            rolls_forward: Some(in_place),
        }
    }

    /// Cuts the power, on copies, at every event of the storage from now on, and when a call has returned.
    fn cut_at_every_event(&self, ground: &Ground, history: &Rc<RefCell<History>>) {
        let (found, history, aged) = (Rc::clone(&self.found), Rc::clone(history), Rc::clone(&self.aged));
        let (outside, options) = (self.campaign.outside, self.options);
        ground.observe(move |draw| {
            let found = &mut *found.borrow_mut();
            if !found.sees_event() {
                return;
            }
            let history = history.borrow();
            found.at_event(draw, history.promises(), |left, state, totals| {
                let visible = find(left, &aged, options, state)?;
                history.judge(&visible).map_err(|illegal| illegal.to_string())?;
                // By the state, not by chance: an observer changes nothing of what happens.
                if outside > 0 && mix(state, 2).is_multiple_of(outside) {
                    totals.states_outside += 1;
                    fsck::judge(&recovered_image(left, options, state)?)?;
                }
                Ok(true)
            });
        });
    }

    /// Powers up what is left, with the power cut again at every event while the filesystem recovers: it finds the same every
    /// time.
    async fn recover(&self, left: &Left) -> Result<(Ground, F2fs), String> {
        let (options, aged) = (self.options, Rc::clone(&self.aged));
        let find = move |left: &Left, seed| find(left, &aged, options, seed);
        Cuts::recover(&self.found, &self.handle, left, find, async |ground| {
            let fs = mount(&self.handle, ground, options, None).await?;
            let visible = Visible::read(&fs).await.map_err(|error| format!("reading: {error}"))?;
            Ok((fs, visible))
        })
        .await
    }
}

async fn mount(
    handle: &Handle,
    ground: &Ground,
    options: F2fsOptions,
    recorder: Option<Rc<Recorder>>,
) -> Result<F2fs, String> {
    let mounted = F2fs::mount_recorded(handle, ground.storage(), recorder, options).await;
    mounted.map_err(|error| format!("mounting: {error}"))
}

/// What is found on what is left.
fn find(left: &Left, aged: &Aged, options: F2fsOptions, seed: u64) -> Result<Visible, String> {
    in_new_runtime(seed, async |handle| {
        let ground = Ground::from_left(left, handle, None).await.map_err(|error| error.to_string())?;
        let fs = mount(handle, &ground, options, None).await?;
        let visible = Visible::read(&fs).await.map_err(|error| format!("reading: {error}"))?;
        aged.look(&fs, &mut handle.random("ballast")).await?;
        if seed.is_multiple_of(STATES_PER_CHECK) {
            let report =
                check(&StorageImage(ground.storage())).await.map_err(|error| format!("checking: {error}"))?;
            if let Some(finding) = report.findings.first() {
                return Err(format!("{} findings, the first: {finding}", report.total));
            }
        }
        Ok(visible)
    })
}

/// What is left when it is recovered and unmounted.
fn recovered_image(left: &Left, options: F2fsOptions, seed: u64) -> Result<Vec<u8>, String> {
    in_new_runtime(seed, async |handle| {
        let ground = Ground::from_left(left, handle, None).await.map_err(|error| error.to_string())?;
        let fs = mount(handle, &ground, options, None).await?;
        fs.unmount().await.map_err(|error| format!("unmounting: {error}"))?;
        bytes_of(&*ground.storage()).await.map_err(|error| error.to_string())
    })
}
