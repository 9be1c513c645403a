//! The benchmark of filesystems, in [`Rounds`]. After each turn the filesystem is unmounted and checked, the volume is
//! opened and the filesystem mounted anew, and the content is read back.

use weir_runtime::Handle;

use crate::chooser::Distribution;
use crate::error::BenchError;
use crate::filesystem::ground::FileGround;
use crate::filesystem::mode::{FsMode, FsWrite};
use crate::filesystem::mounted::{MountedFile, verify};
use crate::filesystem::plan::FsPlan;
use crate::filesystem::report::{FS_RATIOS, FileReport, RATES};
use crate::ledger::{Coverage, Ledger};
use crate::machine::{Load, Machine, Usage};
use crate::mode::Mode;
use crate::plan::BenchOptions;
use crate::rounds::{Progress, Rounds};
use crate::summary::Setting;
use crate::target::BenchTarget;
use crate::turn::Turn;
use crate::volume_writer::Work;

/// Steps before the first round: files to fill.
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
) -> Result<FileReport, BenchError> {
    let modes = Mode::FILESYSTEMS.to_vec();
    let mut rounds = Rounds::new(modes, Mode::title, plan.rounds, plan.quick, SETUP_STEPS, progress);
    rounds.steps.prepare("filling the files");
    let room = plan.disk_bytes();
    let (files, _, volume) = FileGround::prepare(handle, plan, options, "filesystem", room).await?;
    let mut ground = BenchState { files, volume };
    let (mut turns, mut usage) = (Vec::new(), Usage::default());
    for due in &mut rounds {
        turns.push(ground.turn(due.way, due.coverage, &mut usage).await?);
    }
    rounds.steps.end();
    let FileGround { plan, host, .. } = ground.files;
    let setting = Setting::new(plan, options.seed, Machine::seen(usage), Some(host.place));
    Ok(FileReport::new(setting, &Mode::FILESYSTEMS, &RATES, &FS_RATIOS, &turns))
}

/// Everything that the turns share.
struct BenchState {
    files: FileGround,
    volume: BenchTarget,
}

impl BenchState {
    async fn turn(&mut self, mode: Mode, coverage: Coverage, usage: &mut Usage) -> Result<Turn, BenchError> {
        match mode {
            Mode::Host(calls) => self.files.host(calls, coverage, usage).await,
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
        let BenchState { files, volume } = self;
        let mounted = MountedFile::make(&files.handle, volume.disk(), &files.plan, mode).await?;
        let span_blocks = files.plan.span_blocks();
        let mut ledger = Ledger::new(span_blocks);
        let distribution = match mode.write {
            FsWrite::Append => Distribution::Sequential,
            FsWrite::Overwrite | FsWrite::Update => {
                let fill = files.writes(Distribution::Sequential);
                mounted.fill(fill.clone(), span_blocks, &mut files.pages).await?;
                ledger.enter(fill, span_blocks);
                Distribution::Uniform
            }
        };
        let (start, goal) = (files.writes(distribution), files.goal());
        let load = Load::now(&files.handle);
        let before = mounted.volume_stats();
        let measured = mounted.run((mode, 1), &mut start.clone(), &mut files.pages, &goal).await?;
        let work = Work::between(&before, &mounted.volume_stats());
        usage.add(load.until_now(&files.handle));
        let loss_window = mounted.volume_stats().loss_window;
        mounted.close().await?;
        ledger.enter(start, measured.writes);
        let content = (&ledger, &files.pages);
        let (disk, plan) = (volume.disk(), (&files.plan, mode.kind));
        let checked_blocks = verify(&files.handle, disk, plan, content, coverage, &mut files.random).await?;
        let work = (work.disk_blocks, work.flushes);
        Ok(Turn::on_volume(Mode::Filesystem(mode), measured, work, loss_window, checked_blocks))
    }
}
