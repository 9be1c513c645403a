//! The benchmark: all modes on one disk, in [`Rounds`].
//!
//! The rounds of B and P, whose ratio is the cost of order, are neighbours. What a turn wrote is read back, for Weir
//! after the volume was opened anew.

use std::time::Duration;

use weir_block::BlockOptions;
use weir_flash::Mechanism;
use weir_runtime::{Handle, Instant, Random, Runtime, Simulation};
use weir_stack::Stack;
use weir_volume::{Completion, VolumeOptions};

use crate::caller::{Caller, WeirCalls};
use crate::chooser::Distribution;
use crate::content::Pages;
use crate::emulated::Emulated;
use crate::error::BenchError;
use crate::host::HostCalls;
use crate::host_files::{HostFiles, HostRun};
use crate::ledger::{Coverage, Ledger};
use crate::machine::{Load, Machine, Usage};
use crate::measure::{Goal, Measured};
use crate::mode::{Mode, SEQUENTIAL_BLOCKS, SEQUENTIAL_DEPTH};
use crate::plan::{BenchOptions, Plan};
use crate::raw::RawRun;
use crate::report::Report;
use crate::rounds::{Progress, Rounds, SAMPLE_BLOCKS, Steps};
use crate::summary::Setting;
use crate::target::{BenchTarget, TargetBase};
use crate::turn::Turn;
use crate::volume_writer::VolumeWriter;
use crate::writes::{Span, Writes};

/// How often the steady volume's size is written before it is measured.
const AGEING_FACTOR: u64 = 2;

/// Steps before the first round: three targets to fill, one volume to age ...
const SETUP_STEPS: u64 = 4;

/// ... and the host's file to fill where there is one.
const SETUP_STEPS_HOST: u64 = 1;

/// Steps after the last round on an emulated device.
const MODEL_STEPS: u64 = 1;

/// Runs the benchmark of `plan`; `progress` is told at each step.
///
/// # Errors
/// [`BenchError`]; the scratch files are gone in any case, unless they are to be kept.
pub async fn bench(
    handle: &Handle,
    plan: Plan,
    options: &BenchOptions,
    progress: &mut dyn FnMut(Progress),
) -> Result<Report, BenchError> {
    let more = SETUP_STEPS + if options.device.is_none() { SETUP_STEPS_HOST } else { MODEL_STEPS };
    let modes = modes(options.device.as_ref());
    let mut rounds = Rounds::new(modes, Mode::title, plan.rounds, plan.quick, more, progress);
    let mut ground = BenchState::prepare(handle, plan, options, &mut rounds.steps).await?;
    let (mut turns, mut usage) = (Vec::new(), Usage::default());
    for due in &mut rounds {
        ground.turns_left = due.left;
        turns.push(ground.turn(due.way, due.coverage, &mut usage).await?);
    }
    let (plan, disk) = (ground.plan.clone(), ground.host.take().map(|host| host.place));
    // The model has devices of its own, as large.
    drop(ground);
    let device = options.device.as_ref().map(Emulated::report);
    let model = match device {
        Some(_) => {
            rounds.steps.begin("the model alone", "in virtual time");
            model(&plan, options, &turns)?
        }
        None => Vec::new(),
    };
    rounds.steps.end();
    let setting = Setting::new(plan, options.seed, Machine::seen(usage), disk);
    Ok(Report::new(setting, device, &turns, &model))
}

/// What the model of a device does by itself: the turns of one round again, with as many writes each, in virtual
/// time, where processor and timers cost nothing. Where a mode is slower in wall time, this machine held it up.
fn model(plan: &Plan, options: &BenchOptions, turns: &[Turn]) -> Result<Vec<Turn>, BenchError> {
    let runtime = Runtime::simulated(Simulation { seed: options.seed, ..Simulation::default() });
    let handle = runtime.handle();
    // Samples are enough: in wall time all was read back.
    let plan = Plan { quick: true, ..plan.clone() };
    let round = &turns[..turns.len() / plan.rounds.max(1) as usize];
    let work = async {
        let mut unwatched = |_| {};
        let mut ground =
            BenchState::prepare(&handle, plan, options, &mut Steps::new(0, &mut unwatched)).await?;
        let mut again = Vec::new();
        for turn in round {
            ground.writes = Some(turn.measured.writes);
            again.push(ground.turn(turn.mode, Coverage::Sample(SAMPLE_BLOCKS), &mut Usage::default()).await?);
        }
        Ok(again)
    };
    runtime.block_on(work)?
}

/// The modes that make sense: on an emulated device there is no filesystem of the host, and a real disk takes no
/// barriers.
fn modes(device: Option<&Emulated>) -> Vec<Mode> {
    let barriers = device.is_some_and(|device| device.profile.barrier.mechanism != Mechanism::None);
    let makes_sense = |mode: &Mode| match mode {
        Mode::Host(_) => device.is_none(),
        Mode::OwnBarrier => barriers,
        _ => true,
    };
    Mode::ALL.into_iter().filter(makes_sense).collect()
}

/// Everything that the turns share.
struct BenchState {
    handle: Handle,
    plan: Plan,
    pages: Pages,
    random: Random,
    /// When the benchmark began.
    began: Instant,
    /// Turns still to come, the running one included.
    turns_left: u64,
    /// Runs so far; each turn is one.
    runs: u32,
    /// How many writes a turn makes; None for the plan's quota and time.
    writes: Option<u64>,
    raw: BenchTarget,
    /// None where the device is emulated.
    host: Option<HostFiles>,
    fresh: BenchTarget,
    steady: BenchTarget,
}

impl BenchState {
    async fn prepare(
        handle: &Handle,
        plan: Plan,
        options: &BenchOptions,
        steps: &mut Steps<'_>,
    ) -> Result<BenchState, BenchError> {
        let began = handle.now();
        let base = TargetBase::look(&plan, options)?;
        let mut random = handle.random("bench");
        let pages = Pages::new(&mut random);
        let target = |name, bytes| BenchTarget::create(handle, &base, name, bytes);
        let mut raw = target("raw", plan.span_bytes)?;
        let (mut fresh, mut steady) =
            (target("fresh", plan.fresh_bytes)?, target("steady", plan.steady_bytes)?);
        let targets = [&mut raw, &mut fresh, &mut steady];
        for (target, name) in
            targets.into_iter().zip(["raw disk", "fresh volume's disk", "steady volume's disk"])
        {
            steps.prepare(format!("filling the {name}"));
            target.fill(handle, &pages).await?;
        }
        let host = match base {
            TargetBase::Device(_) => None,
            TargetBase::Disk { mut place, keep } => {
                steps.prepare("filling the host's file");
                place.direct_io = raw.direct;
                Some(HostFiles::prepare(handle, place, keep, plan.span_bytes, &pages).await?)
            }
        };
        let mut ground = BenchState {
            handle: handle.clone(),
            plan,
            pages,
            random,
            began,
            turns_left: 0,
            runs: 1,
            writes: None,
            raw,
            host,
            fresh,
            steady,
        };
        steps.prepare("ageing the steady volume");
        ground.age().await?;
        Ok(ground)
    }

    /// Fills the steady volume, then writes its file's size twice over at random.
    async fn age(&mut self) -> Result<(), BenchError> {
        let blocks = self.plan.span_blocks();
        let stack = Stack::make_volume(&self.handle, self.steady.disk(), &self.plan.volume()).await?;
        let writer = VolumeWriter::new(&self.handle, stack)?;
        let ageing = AGEING_FACTOR * self.steady.storage().blocks();
        for (distribution, count) in [(Distribution::Sequential, blocks), (Distribution::Uniform, ageing)] {
            let writes = self.writes(distribution);
            writer.run(WeirCalls::P, &mut writes.clone(), &mut self.pages, &Goal::writes(count)).await?;
            self.steady.ledger.enter(writes, count);
        }
        writer.close().await
    }

    async fn turn(&mut self, mode: Mode, coverage: Coverage, usage: &mut Usage) -> Result<Turn, BenchError> {
        match mode {
            Mode::RawRandom(depth) => {
                self.raw(mode, depth, Span::pages(self.plan.span_blocks()), coverage, usage).await
            }
            Mode::RawSequential => {
                let span = Span { blocks: self.plan.span_blocks(), unit_blocks: SEQUENTIAL_BLOCKS };
                self.raw(mode, SEQUENTIAL_DEPTH, span, coverage, usage).await
            }
            Mode::OwnBarrier => self.own_barrier(mode, coverage, usage).await,
            Mode::Host(calls) => self.host(mode, calls, coverage, usage).await,
            Mode::Fresh(calls) => self.weir(mode, calls, coverage, usage).await,
            Mode::Steady => self.weir(mode, WeirCalls::B, coverage, usage).await,
            Mode::Filesystem(_) | Mode::Mount(_) => Err(BenchError::OtherBenchmark),
        }
    }

    async fn raw(
        &mut self,
        mode: Mode,
        depth: u32,
        span: Span,
        coverage: Coverage,
        usage: &mut Usage,
    ) -> Result<Turn, BenchError> {
        let distribution =
            if mode == Mode::RawSequential { Distribution::Sequential } else { Distribution::Uniform };
        let goal = self.goal(span.unit_blocks);
        let run = RawRun {
            run: self.next_run(),
            span,
            distribution,
            depth,
            goal,
            lane_writes: u64::MAX,
            durable: false,
        };
        let load = Load::now(&self.handle);
        let measured = run.run(&self.handle, &*self.raw.storage(), &self.pages, &mut self.raw.ledger).await?;
        usage.add(load.until_now(&self.handle));
        self.raw_turn(mode, measured, span.unit_bytes(), coverage).await
    }

    /// B on the disk itself, without the volume.
    async fn own_barrier(
        &mut self,
        mode: Mode,
        coverage: Coverage,
        usage: &mut Usage,
    ) -> Result<Turn, BenchError> {
        let start = self.writes(Distribution::Uniform);
        let goal = self.goal(1);
        let caller = Caller::new(&self.handle, self.raw.storage(), BlockOptions::default())?;
        let load = Load::now(&self.handle);
        let watch = self.raw.watch(&self.handle);
        let mut measured = caller.run(WeirCalls::B, &mut start.clone(), &mut self.pages, &goal).await?;
        measured.disk_depth = watch.map(|watch| watch.mean()).or(measured.disk_depth);
        usage.add(load.until_now(&self.handle));
        self.raw.ledger.enter(start, measured.writes);
        self.raw_turn(mode, measured, Span::pages(1).unit_bytes(), coverage).await
    }

    /// Reads back after a turn on the disk itself, which wrote what the user wrote and flushed once.
    async fn raw_turn(
        &mut self,
        mode: Mode,
        measured: Measured,
        unit_bytes: u64,
        coverage: Coverage,
    ) -> Result<Turn, BenchError> {
        let (disk, raw) = (self.raw.storage(), &self.raw);
        let checked_blocks = raw.ledger.verify(&*disk, &self.pages, coverage, &mut self.random).await?;
        let turn = Turn::new(mode, measured, unit_bytes, checked_blocks);
        Ok(Turn { disk_bytes: Some(turn.bytes), flushes: 1, ..turn })
    }

    async fn host(
        &mut self,
        mode: Mode,
        calls: HostCalls,
        coverage: Coverage,
        usage: &mut Usage,
    ) -> Result<Turn, BenchError> {
        let distribution = if calls.appends() { Distribution::Sequential } else { Distribution::Uniform };
        let start = self.writes(distribution);
        let run = HostRun { mode, calls, start, goal: self.goal(1), coverage };
        let Some(files) = &mut self.host else { return Err(BenchError::NoFilesystem) };
        files.turn(run, &self.handle, &mut self.pages, &mut self.random, usage).await
    }

    async fn weir(
        &mut self,
        mode: Mode,
        calls: WeirCalls,
        coverage: Coverage,
        usage: &mut Usage,
    ) -> Result<Turn, BenchError> {
        let completion = if calls == WeirCalls::X { Completion::Disk } else { Completion::Placed };
        let mut volume = self.plan.volume();
        volume.options = VolumeOptions { completion, ..volume.options };
        let disk = self.target(mode).disk();
        let stack = if mode == Mode::Steady {
            Stack::open(&self.handle, disk, volume.options).await?
        } else {
            self.fresh.ledger = Ledger::new(self.plan.span_blocks());
            Stack::make_volume(&self.handle, disk, &volume).await?
        };
        let writer = VolumeWriter::new(&self.handle, stack)?;
        let start = self.writes(Distribution::Uniform);
        let goal = self.goal(1);
        let load = Load::now(&self.handle);
        let handle = self.handle.clone();
        let watch = self.target(mode).watch(&handle);
        let (mut measured, work) = writer.run(calls, &mut start.clone(), &mut self.pages, &goal).await?;
        measured.disk_depth = watch.map(|watch| watch.mean()).or(measured.disk_depth);
        usage.add(load.until_now(&self.handle));
        let loss_window = writer.volume_stats().loss_window;
        writer.close().await?;
        self.target(mode).ledger.enter(start, measured.writes);
        let checked_blocks = self.reopen_and_verify(mode, coverage).await?;
        Ok(Turn::on_volume(mode, measured, (work.disk_blocks, work.flushes), loss_window, checked_blocks))
    }

    /// Opens the volume anew, which recovers it, and reads back.
    async fn reopen_and_verify(&mut self, mode: Mode, coverage: Coverage) -> Result<u64, BenchError> {
        let target = if mode == Mode::Steady { &self.steady } else { &self.fresh };
        let stack = Stack::open(&self.handle, target.disk(), self.plan.volume_options()).await?;
        let storage = stack.storage();
        let checked = target.ledger.verify(&*storage, &self.pages, coverage, &mut self.random).await?;
        stack.close().await?;
        Ok(checked)
    }

    fn target(&mut self, mode: Mode) -> &mut BenchTarget {
        if mode == Mode::Steady { &mut self.steady } else { &mut self.fresh }
    }

    /// The writes of the next run, one page at a time over the span.
    fn writes(&mut self, distribution: Distribution) -> Writes {
        let span = Span::pages(self.plan.span_blocks());
        Writes::new(self.next_run(), span, distribution, 0, 1, self.handle.random("writes"))
    }

    fn next_run(&mut self) -> u32 {
        self.runs += 1;
        self.runs
    }

    /// A turn's share of the quota, and its time.
    fn goal(&self, unit_blocks: u32) -> Goal {
        if let Some(writes) = self.writes {
            return Goal::writes(writes);
        }
        let share = self.plan.quota_bytes.div_ceil(u64::from(self.plan.rounds));
        let unit_bytes = Span { blocks: 0, unit_blocks }.unit_bytes();
        let elapsed = self.handle.now().since(self.began);
        let left = self.plan.seconds_max.map(|all| Duration::from_secs_f64(all).saturating_sub(elapsed));
        let time_max = self.plan.turn_max(left, self.turns_left);
        let time = Duration::from_secs_f64(self.plan.turn_seconds_min);
        Goal { writes: share.div_ceil(unit_bytes), time, time_max }
    }
}
