//! The benchmark of mounts, in rounds as [`bench`](crate::bench()) has them: every mode has a turn in each, and every
//! second round goes backwards. Each turn on a mount has a volume and a filesystem made for it, behind a server of its
//! own. Afterwards all is unmounted and checked, and the content is read back.

use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use weir_runtime::{Handle, Random};
use weir_storage::{BLOCK_BYTES, FileDisk, FileDiskOptions, Storage};
use weir_volume::{Format, Volume};

use crate::bench::{Progress, SAMPLE_BLOCKS, Turn};
use crate::chooser::Distribution;
use crate::content::Pages;
use crate::error::BenchError;
use crate::filesystem::{Call, FsMode, FsPlan, FsWrite, JournalEngine, MountedFile, NAME, verify};
use crate::host_files::{HostFiles, HostRun};
use crate::ledger::{Coverage, Ledger};
use crate::machine::{Machine, Usage};
use crate::measure::{Goal, Measured, Meter};
use crate::mode::Mode;
use crate::mounts::calls::MountCalls;
use crate::mounts::kernel::KernelExt4;
use crate::mounts::report::{MountReport, MountTurn};
use crate::mounts::served::{Door, Served, ServedStatus};
use crate::plan::BenchOptions;
use crate::raw::RawRun;
use crate::scratch::{Scratch, ScratchDirectory};
use crate::target::{BenchTarget, check_room};
use crate::writes::{Span, Writes};

/// Steps before the first round: two files to fill.
const SETUP_STEPS: u64 = 2;

/// What is made before a turn, though the engine and the calls that make it do not matter.
const MAKER: FsMode = FsMode { engine: JournalEngine::Dual, write: FsWrite::Append, call: Call::Fsync };

/// Runs the benchmark of `plan`; `progress` is told at each step. `program` is this program, `weir`, by a path: it is
/// started for each server. Modes that need the superuser are left out for others.
///
/// # Errors
/// [`BenchError`]; servers, mounts and scratch files are gone in any case, unless files are to be kept.
pub async fn mounts(
    handle: &Handle,
    program: &Path,
    plan: FsPlan,
    options: &BenchOptions,
    progress: &mut dyn FnMut(Progress),
) -> Result<MountReport, BenchError> {
    let superuser = rustix::process::geteuid().is_root();
    let makes_sense = |mode: &Mode| superuser || *mode != Mode::Mount(MountCalls::KernelAppendFsync);
    let modes: Vec<Mode> = Mode::MOUNTS.into_iter().filter(makes_sense).collect();
    let total = SETUP_STEPS + u64::from(plan.rounds) * modes.len() as u64;
    let mut done = 0;
    let mut step = |stage: String, what: &str| {
        progress(Progress { done, total, stage, what: what.to_owned() });
        done += 1;
    };
    step("preparing".to_owned(), "filling the host's file and the volume's disk");
    let mut ground = BenchState::prepare(handle, program, plan, options).await?;
    let (mut turns, mut usage) = (Vec::new(), Usage::default());
    for round in 0..ground.plan.rounds {
        let mut order = modes.clone();
        if round % 2 == 1 {
            order.reverse();
        }
        let all = round + 1 == ground.plan.rounds && !ground.plan.quick;
        let coverage = if all { Coverage::All } else { Coverage::Sample(SAMPLE_BLOCKS) };
        for mode in order {
            step(format!("round {} of {}", round + 1, ground.plan.rounds), &mode.title());
            turns.push(ground.turn(mode, coverage, &mut usage).await?);
        }
    }
    step("done".to_owned(), "");
    Ok(MountReport::new(ground.plan, options.seed, ground.host.place, Machine::seen(usage), &turns))
}

/// Everything that the turns share.
struct BenchState {
    handle: Handle,
    program: PathBuf,
    plan: FsPlan,
    pages: Pages,
    random: Random,
    /// Runs so far; each turn is one, and each filling of a file.
    runs: u32,
    host: HostFiles,
    volume: Scratch,
}

/// What was measured through a server.
struct Through {
    measured: Measured,
    /// Calls that made something durable.
    flushes: u64,
    before: ServedStatus,
    after: ServedStatus,
}

impl BenchState {
    async fn prepare(
        handle: &Handle,
        program: &Path,
        plan: FsPlan,
        options: &BenchOptions,
    ) -> Result<BenchState, BenchError> {
        let mut place = ScratchDirectory::look(&options.directory)?;
        check_room(&place, plan.disk_bytes() + plan.span_bytes)?;
        let mut random = handle.random("bench");
        let pages = Pages::new(&mut random);
        let volume = Scratch::create(&place.directory, "volume", plan.volume_bytes, options.keep)?;
        let mut target = BenchTarget::on(handle, &volume)?;
        target.fill(handle, &pages).await?;
        place.direct_io = target.direct;
        let host = HostFiles::prepare(handle, place, options.keep, plan.span_bytes, &pages).await?;
        let (handle, program) = (handle.clone(), program.to_owned());
        Ok(BenchState { handle, program, plan, pages, random, runs: 1, host, volume })
    }

    async fn turn(
        &mut self,
        mode: Mode,
        coverage: Coverage,
        usage: &mut Usage,
    ) -> Result<MountTurn, BenchError> {
        match mode {
            Mode::Host(calls) => {
                let appends = calls.appends();
                let start =
                    self.writes(if appends { Distribution::Sequential } else { Distribution::Uniform });
                let run = HostRun { mode, calls, start, goal: self.goal(), coverage };
                let turn =
                    self.host.turn(run, &self.handle, &mut self.pages, &mut self.random, usage).await?;
                Ok(MountTurn { turn, requests_max: None })
            }
            Mode::Mount(MountCalls::KernelAppendFsync) => self.kernel(coverage).await,
            Mode::Mount(calls) => self.mounted(calls, coverage).await,
            _ => Err(BenchError::OtherBenchmark),
        }
    }

    /// The volume's file, which one process at a time has open.
    fn disk(&self) -> Result<Rc<FileDisk>, BenchError> {
        Ok(FileDisk::open(&self.handle, self.volume.path(), FileDiskOptions::default())?)
    }

    /// By a path that another process can open.
    fn volume_path(&self) -> PathBuf {
        self.volume.path_for_others()
    }

    async fn mounted(&mut self, calls: MountCalls, coverage: Coverage) -> Result<MountTurn, BenchError> {
        let mut ledger = Ledger::new(self.plan.span_blocks());
        let made = MountedFile::make(&self.handle, self.disk()?, &self.plan, MAKER).await?;
        if calls.overwrites() {
            let fill = self.writes(Distribution::Sequential);
            made.fill(fill.clone(), self.plan.span_blocks(), &mut self.pages).await?;
            ledger.enter(fill, self.plan.span_blocks());
        }
        made.close().await?;
        let served = Served::start(&self.program, Door::Filesystem, &self.volume_path())?;
        let path = served.path(&String::from_utf8_lossy(NAME));
        let before = served.status()?;
        let (measured, flushes) = match calls {
            MountCalls::Deep(depth) => (self.deep(&path, depth, false, &mut ledger).await?, 1),
            MountCalls::DeepDurable(depth) => {
                let measured = self.deep(&path, depth, true, &mut ledger).await?;
                let durable = measured.writes;
                (measured, durable)
            }
            calls => self.shallow(calls, &path, &mut ledger)?,
        };
        let through = Through { measured, flushes, before, after: served.status()? };
        served.end()?;
        let (disk, content) = (self.disk()?, (&ledger, &self.pages));
        let checked = verify(&self.handle, disk, &self.plan, content, coverage, &mut self.random).await?;
        Ok(through.turn(calls, checked))
    }

    /// Many direct writes at a time, each of them durable or none.
    async fn deep(
        &mut self,
        path: &Path,
        depth: u32,
        durable: bool,
        ledger: &mut Ledger,
    ) -> Result<Measured, BenchError> {
        self.runs += 1;
        let disk = FileDisk::open(&self.handle, path, FileDiskOptions::default())?;
        let span = Span::pages(self.plan.span_blocks());
        let (run, distribution, goal) = (self.runs, Distribution::Uniform, self.goal());
        let run = RawRun { run, span, distribution, depth, goal, lane_writes: u64::MAX, durable };
        Ok(run.run(&self.handle, &*disk, &self.pages, ledger).await?)
    }

    /// One write at a time, each with its call; how many calls made something durable.
    fn shallow(
        &mut self,
        calls: MountCalls,
        path: &Path,
        ledger: &mut Ledger,
    ) -> Result<(Measured, u64), BenchError> {
        let failed = |source| BenchError::Mount { mode: calls.title(), source };
        let file = calls.open(path).map_err(failed)?;
        let start = self.writes(match calls.overwrites() {
            true => Distribution::Uniform,
            false => Distribution::Sequential,
        });
        let goal = self.goal();
        let mut meter = Meter::start(&self.handle);
        let flushes =
            calls.run(&file, &mut start.clone(), &mut self.pages, &goal, &mut meter).map_err(failed)?;
        let measured = meter.stop();
        ledger.enter(start, measured.writes);
        Ok((measured, flushes))
    }

    async fn kernel(&mut self, coverage: Coverage) -> Result<MountTurn, BenchError> {
        let calls = MountCalls::KernelAppendFsync;
        let blocks = self.plan.filesystem_bytes / BLOCK_BYTES as u64;
        let segment_blocks = self.plan.segment_blocks;
        let format = Format { logical_blocks: blocks, segment_blocks, overwrite: true };
        Volume::create(&self.handle, &*self.disk()?, format).await?;
        let ext4 = KernelExt4::make(&self.program, &self.volume_path())?;
        let path = ext4.path(&String::from_utf8_lossy(NAME));
        let before = ext4.status()?;
        let mut ledger = Ledger::new(self.plan.span_blocks());
        let (measured, flushes) = self.shallow(calls, &path, &mut ledger)?;
        let through = Through { measured, flushes, before, after: ext4.status()? };
        let checked = {
            let options = FileDiskOptions { read_only: true, ..FileDiskOptions::default() };
            let file = FileDisk::open(&self.handle, &path, options)?;
            let storage: &dyn Storage = &*file;
            ledger.verify(storage, &self.pages, coverage, &mut self.random).await?
        };
        ext4.end()?;
        Ok(through.turn(calls, checked))
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

impl Through {
    fn turn(self, calls: MountCalls, checked_blocks: u64) -> MountTurn {
        let Through { measured, flushes, before, after } = self;
        let blocks = after.storage.disk_blocks.saturating_sub(before.storage.disk_blocks);
        let turn = Turn {
            mode: Mode::Mount(calls),
            bytes: measured.writes * BLOCK_BYTES as u64,
            measured,
            disk_bytes: Some(blocks * BLOCK_BYTES as u64),
            flushes,
            loss_window: Some(after.loss_window()),
            checked_blocks,
        };
        MountTurn { turn, requests_max: Some(after.requests.under_way_max) }
    }
}
