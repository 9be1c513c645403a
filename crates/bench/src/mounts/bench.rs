//! The benchmark of mounts, in [`Rounds`]. Each turn on a mount has a volume and a filesystem made for it, behind a
//! server of its own. Afterwards all is unmounted and checked, and the content is read back.

use std::path::{Path, PathBuf};

use weir_runtime::Handle;
use weir_stack::Disk;
use weir_storage::{FileDisk, FileDiskOptions};
use weir_vfs::SyncCall;

use crate::chooser::Distribution;
use crate::error::BenchError;
use crate::filesystem::{FileGround, FileReport, FsKind, FsMode, FsPlan, FsWrite, MountedFile, NAME, verify};
use crate::ledger::{Coverage, Ledger};
use crate::machine::{Machine, Usage};
use crate::measure::{Measured, Meter};
use crate::mode::Mode;
use crate::mounts::calls::MountCalls;
use crate::mounts::kernel::KernelExt4;
use crate::mounts::ratios::MOUNT_RATIOS;
use crate::mounts::served::{Door, Served, ServedStatus};
use crate::plan::BenchOptions;
use crate::raw::RawRun;
use crate::rounds::{Progress, Rounds};
use crate::scratch::Scratch;
use crate::summary::Setting;
use crate::turn::Turn;
use crate::writes::Span;

/// Steps before the first round: two files to fill.
const SETUP_STEPS: u64 = 2;

/// What is made before a turn, though the engine and the calls that make it do not matter.
const MAKER: FsMode = FsMode { kind: FsKind::BARRIER_FS, write: FsWrite::Append, call: SyncCall::Fsync };

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
) -> Result<FileReport, BenchError> {
    let superuser = rustix::process::geteuid().is_root();
    let makes_sense = |mode: &Mode| superuser || *mode != Mode::Mount(MountCalls::KernelAppendFsync);
    let modes: Vec<Mode> = Mode::MOUNTS.into_iter().filter(makes_sense).collect();
    let mut rounds = Rounds::new(modes, Mode::title, plan.rounds, plan.quick, SETUP_STEPS, progress);
    rounds.steps.prepare("filling the host's file and the volume's disk");
    let room = plan.disk_bytes() + plan.span_bytes;
    let (files, volume, _) = FileGround::prepare(handle, plan, options, "volume", room).await?;
    let mut ground = BenchState { program: program.to_owned(), files, volume };
    let (mut turns, mut usage) = (Vec::new(), Usage::default());
    for due in &mut rounds {
        turns.push(ground.turn(due.way, due.coverage, &mut usage).await?);
    }
    rounds.steps.end();
    let FileGround { plan, host, .. } = ground.files;
    let setting = Setting::new(plan, options.seed, Machine::seen(usage), Some(host.place));
    Ok(FileReport::new(setting, &Mode::MOUNTS, &[], &MOUNT_RATIOS, &turns))
}

/// Everything that the turns share.
struct BenchState {
    program: PathBuf,
    files: FileGround,
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
    async fn turn(&mut self, mode: Mode, coverage: Coverage, usage: &mut Usage) -> Result<Turn, BenchError> {
        match mode {
            Mode::Host(calls) => self.files.host(calls, coverage, usage).await,
            Mode::Mount(MountCalls::KernelAppendFsync) => self.kernel(coverage).await,
            Mode::Mount(calls) => self.mounted(calls, coverage).await,
            _ => Err(BenchError::OtherBenchmark),
        }
    }

    /// The volume's file, which one process at a time has open.
    fn disk(&self) -> Result<Disk, BenchError> {
        Ok(Disk::File(self.volume.disk(&self.files.handle)?))
    }

    /// By a path that another process can open.
    fn volume_path(&self) -> PathBuf {
        self.volume.path_for_others()
    }

    async fn mounted(&mut self, calls: MountCalls, coverage: Coverage) -> Result<Turn, BenchError> {
        let mut ledger = Ledger::new(self.files.plan.span_blocks());
        let made = MountedFile::make(&self.files.handle, self.disk()?, &self.files.plan, MAKER).await?;
        if calls.overwrites() {
            let fill = self.files.writes(Distribution::Sequential);
            made.fill(fill.clone(), self.files.plan.span_blocks(), &mut self.files.pages).await?;
            ledger.enter(fill, self.files.plan.span_blocks());
        }
        made.close().await?;
        let served = Served::start(
            &self.program,
            Door::Filesystem { options: calls.mount_options() },
            &self.volume_path(),
        )?;
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
        served.end(&self.files.handle).await?;
        let (disk, content) = (self.disk()?, (&ledger, &self.files.pages));
        let plan = (&self.files.plan, MAKER.kind);
        let checked =
            verify(&self.files.handle, disk, plan, content, coverage, &mut self.files.random).await?;
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
        self.files.runs += 1;
        let disk = FileDisk::open(&self.files.handle, path, FileDiskOptions::default())?;
        let span = Span::pages(self.files.plan.span_blocks());
        let (run, distribution, goal) = (self.files.runs, Distribution::Uniform, self.files.goal());
        let run = RawRun { run, span, distribution, depth, goal, lane_writes: u64::MAX, durable };
        Ok(run.run(&self.files.handle, &*disk, &self.files.pages, ledger).await?)
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
        let start = self.files.writes(match calls.overwrites() {
            true => Distribution::Uniform,
            false => Distribution::Sequential,
        });
        let goal = self.files.goal();
        let mut meter = Meter::start(&self.files.handle);
        let flushes =
            calls.run(&file, &mut start.clone(), &mut self.files.pages, &goal, &mut meter).map_err(failed)?;
        let measured = meter.stop();
        ledger.enter(start, measured.writes);
        Ok((measured, flushes))
    }

    async fn kernel(&mut self, coverage: Coverage) -> Result<Turn, BenchError> {
        let calls = MountCalls::KernelAppendFsync;
        self.disk()?.create_volume(&self.files.handle, &self.files.plan.volume()).await?;
        let ext4 = KernelExt4::make(&self.program, &self.volume_path())?;
        let path = ext4.path(&String::from_utf8_lossy(NAME));
        let before = ext4.status()?;
        let mut ledger = Ledger::new(self.files.plan.span_blocks());
        let (measured, flushes) = self.shallow(calls, &path, &mut ledger)?;
        let through = Through { measured, flushes, before, after: ext4.status()? };
        let checked = {
            let options = FileDiskOptions { read_only: true, ..FileDiskOptions::default() };
            let file = FileDisk::open(&self.files.handle, &path, options)?;
            ledger.verify(&*file, &self.files.pages, coverage, &mut self.files.random).await?
        };
        ext4.end(&self.files.handle).await?;
        Ok(through.turn(calls, checked))
    }
}

impl Through {
    fn turn(self, calls: MountCalls, checked_blocks: u64) -> Turn {
        let Through { measured, flushes, before, after } = self;
        let blocks = after.storage.disk_blocks.saturating_sub(before.storage.disk_blocks);
        let (mode, work) = (Mode::Mount(calls), (blocks, flushes));
        let turn = Turn::on_volume(mode, measured, work, after.loss_window(), checked_blocks);
        Turn { requests_max: Some(after.requests.under_way_max), ..turn }
    }
}
