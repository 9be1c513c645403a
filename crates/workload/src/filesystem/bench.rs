//! The benchmark of filesystems, in rounds as [`bench`](crate::bench()) has them: every mode has a turn in each, and
//! every second round goes backwards. After each turn the filesystem is unmounted and checked, the volume is opened
//! and the filesystem mounted anew, and the content is read back.

use std::time::Duration;

use weir_runtime::{Handle, Random};
use weir_storage::BLOCK_BYTES;

use crate::bench::{Progress, SAMPLE_BLOCKS, Turn};
use crate::chooser::Distribution;
use crate::content::Pages;
use crate::error::BenchError;
use crate::filesystem::mode::{FsMode, FsWrite};
use crate::filesystem::mounted::{MountedFile, verify};
use crate::filesystem::plan::FsPlan;
use crate::filesystem::report::FsReport;
use crate::host_files::{HostFiles, HostRun};
use crate::ledger::{Coverage, Ledger};
use crate::machine::{Load, Machine, Usage};
use crate::measure::Goal;
use crate::mode::Mode;
use crate::plan::BenchOptions;
use crate::scratch::ScratchDirectory;
use crate::stack::Work;
use crate::target::{BenchTarget, TargetBase, check_room};
use crate::writes::{Span, Writes};

/// Steps before the first round: two files to fill.
const SETUP_STEPS: u64 = 1;

/// Runs the benchmark of `plan`; `progress` is told at each step.
///
/// # Errors
/// [`BenchError`]; the scratch files are gone in any case, unless they are to be kept.
pub async fn filesystems(
    handle: &Handle,
    plan: FsPlan,
    options: &BenchOptions,
    progress: &mut dyn FnMut(Progress),
) -> Result<FsReport, BenchError> {
    let total = SETUP_STEPS + u64::from(plan.rounds) * Mode::FILESYSTEMS.len() as u64;
    let mut done = 0;
    let mut step = |stage: String, what: &str| {
        progress(Progress { done, total, stage, what: what.to_owned() });
        done += 1;
    };
    step("preparing".to_owned(), "filling the files");
    let mut ground = BenchState::prepare(handle, plan, options).await?;
    let mut turns = Vec::new();
    let mut usage = Usage::default();
    for round in 0..ground.plan.rounds {
        let mut order = Mode::FILESYSTEMS;
        if round % 2 == 1 {
            order.reverse();
        }
        let last = round + 1 == ground.plan.rounds;
        let all = last && !ground.plan.quick;
        let coverage = if all { Coverage::All } else { Coverage::Sample(SAMPLE_BLOCKS) };
        for mode in order {
            step(format!("round {} of {}", round + 1, ground.plan.rounds), &mode.title());
            turns.push(ground.turn(mode, coverage, &mut usage).await?);
        }
    }
    step("done".to_owned(), "");
    Ok(FsReport::new(ground.plan, options.seed, ground.host.place, Machine::seen(usage), &turns))
}

/// Everything that the turns share.
struct BenchState {
    handle: Handle,
    plan: FsPlan,
    pages: Pages,
    random: Random,
    /// Runs so far; each turn is one, and the filling of a file.
    runs: u32,
    host: HostFiles,
    volume: BenchTarget,
}

impl BenchState {
    async fn prepare(
        handle: &Handle,
        plan: FsPlan,
        options: &BenchOptions,
    ) -> Result<BenchState, BenchError> {
        let mut place = ScratchDirectory::look(&options.directory)?;
        check_room(&place, plan.disk_bytes())?;
        let mut random = handle.random("bench");
        let pages = Pages::new(&mut random);
        let keep = options.keep;
        let base = TargetBase::Disk { place: place.clone(), keep };
        let mut volume = BenchTarget::create(handle, &base, "filesystem", plan.volume_bytes)?;
        volume.fill(handle, &pages).await?;
        place.direct_io = volume.direct;
        let host = HostFiles::prepare(handle, place, keep, plan.span_bytes, &pages).await?;
        Ok(BenchState { handle: handle.clone(), plan, pages, random, runs: 1, host, volume })
    }

    async fn turn(&mut self, mode: Mode, coverage: Coverage, usage: &mut Usage) -> Result<Turn, BenchError> {
        match mode {
            Mode::Host(calls) => {
                let distribution =
                    if calls.appends() { Distribution::Sequential } else { Distribution::Uniform };
                let start = self.writes(distribution);
                let run = HostRun { mode, calls, start, goal: self.goal(), coverage };
                self.host.turn(run, &self.handle, &mut self.pages, &mut self.random, usage).await
            }
            Mode::Filesystem(mode) => self.filesystem(mode, coverage, usage).await,
            _ => Err(BenchError::OtherBenchmark),
        }
    }

    async fn filesystem(
        &mut self,
        mode: FsMode,
        coverage: Coverage,
        usage: &mut Usage,
    ) -> Result<Turn, BenchError> {
        let mounted = MountedFile::make(&self.handle, self.volume.disk(), &self.plan, mode).await?;
        let mut ledger = Ledger::new(self.plan.span_blocks());
        let distribution = match mode.write {
            FsWrite::Append => Distribution::Sequential,
            FsWrite::Overwrite => {
                let fill = self.writes(Distribution::Sequential);
                mounted.fill(fill.clone(), self.plan.span_blocks(), &mut self.pages).await?;
                ledger.enter(fill, self.plan.span_blocks());
                Distribution::Uniform
            }
        };
        let (start, goal) = (self.writes(distribution), self.goal());
        let load = Load::now(&self.handle);
        let before = mounted.volume().stats();
        let measured = mounted.run(mode, &mut start.clone(), &mut self.pages, &goal).await?;
        let work = Work::between(&before, &mounted.volume().stats());
        usage.add(load.until_now(&self.handle));
        let loss_window = Some(mounted.volume().stats().loss_window);
        mounted.close().await?;
        ledger.enter(start, measured.writes);
        let content = (&ledger, &self.pages);
        let disk = self.volume.disk();
        let checked_blocks =
            verify(&self.handle, disk, &self.plan, content, coverage, &mut self.random).await?;
        let Work { disk_blocks, flushes, .. } = work;
        let bytes = measured.writes * BLOCK_BYTES as u64;
        let disk_bytes = Some(disk_blocks * BLOCK_BYTES as u64);
        let mode = Mode::Filesystem(mode);
        Ok(Turn { mode, measured, bytes, disk_bytes, flushes, loss_window, checked_blocks })
    }

    /// The writes of the next run, one page at a time over the file.
    fn writes(&mut self, distribution: Distribution) -> Writes {
        self.runs += 1;
        let span = Span::pages(self.plan.span_blocks());
        Writes::new(self.runs, span, distribution, 0, 1, self.handle.random("writes"))
    }

    fn goal(&self) -> Goal {
        let time = Duration::from_secs_f64(self.plan.turn_seconds);
        Goal { writes: 1, time, time_max: Duration::MAX }
    }
}
