//! The benchmark of SQLite, in rounds as the others have them: every way has a turn in each, and every second round
//! goes backwards.

use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use weir_fs::{BarrierFs, MountOptions};
use weir_runtime::{Handle, Runtime};
use weir_sqlite_vfs::{Mode, Vfs};
use weir_stack::Stack;
use weir_volume::LossWindowSeen;

use crate::content::Pages;
use crate::error::BenchError;
use crate::filesystem::{self, FsKind, FsPlan};
use crate::machine::{Load, Machine, Usage};
use crate::plan::BenchOptions;
use crate::rounds::{Progress, Rounds};
use crate::scratch::ScratchDirectory;
use crate::sqlite::report::SqliteReport;
use crate::sqlite::turn::{SqliteTurn, check, insert, open};
use crate::sqlite::way::{SqlitePlace, SqliteWay};
use crate::summary::Setting;
use crate::target::{BenchTarget, TargetBase, check_room};

/// Steps before the first round: a disk to fill.
const SETUP_STEPS: u64 = 1;

/// The database.
const PATH: &str = "bench.db";

/// Where databases can be beside BarrierFS in process.
#[derive(Clone, Debug, Default)]
pub struct SqliteGrounds {
    /// A directory in memory; none if there is none.
    pub tmpfs: Option<PathBuf>,
    /// A directory on a mount of Weir, with the extension loaded; none if there is none.
    pub mount: Option<PathBuf>,
    /// Asks the mount for the largest loss window so far.
    pub mount_window: Option<fn(&Path) -> Option<LossWindowSeen>>,
}

/// Runs the benchmark of `plan`, outside of any task of `runtime`; `progress` is told at each step.
///
/// # Errors
/// [`BenchError`]; the scratch files are gone in any case, unless they are to be kept.
pub fn sqlite(
    runtime: &Rc<Runtime>,
    plan: FsPlan,
    options: &BenchOptions,
    grounds: &SqliteGrounds,
    progress: &mut dyn FnMut(Progress),
) -> Result<SqliteReport, BenchError> {
    let mut ways = SqliteWay::all();
    ways.retain(|way| match way.place {
        SqlitePlace::Tmpfs => grounds.tmpfs.is_some(),
        SqlitePlace::Mount => grounds.mount.is_some(),
        SqlitePlace::Host | SqlitePlace::InProcess => true,
    });
    let mut rounds = Rounds::new(ways, SqliteWay::name, plan.rounds, plan.quick, SETUP_STEPS, progress);
    rounds.steps.prepare("filling the volume's disk");
    let ground = BenchState::prepare(runtime, plan, options, grounds)?;
    let (mut turns, mut usage) = (Vec::new(), Usage::default());
    for due in &mut rounds {
        turns.push(ground.turn(due.way, &mut usage)?);
    }
    rounds.steps.end();
    let setting = Setting::new(ground.plan, options.seed, Machine::seen(usage), Some(ground.place));
    Ok(SqliteReport::new(setting, &turns))
}

/// Everything that the turns share.
struct BenchState {
    runtime: Rc<Runtime>,
    clock: Handle,
    plan: FsPlan,
    place: ScratchDirectory,
    /// A directory on the host's filesystem, which vanishes.
    host: tempfile::TempDir,
    grounds: SqliteGrounds,
    volume: BenchTarget,
}

impl BenchState {
    fn prepare(
        runtime: &Rc<Runtime>,
        plan: FsPlan,
        options: &BenchOptions,
        grounds: &SqliteGrounds,
    ) -> Result<BenchState, BenchError> {
        let clock = runtime.handle();
        let mut place = ScratchDirectory::look(&options.directory)?;
        check_room(&place, plan.volume_bytes)?;
        let pages = Pages::new(&mut clock.random("bench"));
        let base = TargetBase::Disk { place: place.clone(), keep: options.keep };
        let mut volume = BenchTarget::create(&clock, &base, "sqlite", plan.volume_bytes)?;
        runtime.block_on(volume.fill(&clock, &pages))??;
        place.direct_io = volume.direct;
        let host = tempfile::Builder::new().prefix("weir-bench-").tempdir_in(&place.directory);
        let failed =
            |source| BenchError::File { doing: "make a directory", path: place.directory.clone(), source };
        let (host, grounds) = (host.map_err(failed)?, grounds.clone());
        Ok(BenchState { runtime: Rc::clone(runtime), clock, plan, place, host, grounds, volume })
    }

    fn turn(&self, way: SqliteWay, usage: &mut Usage) -> Result<SqliteTurn, BenchError> {
        match (way.place, &self.grounds) {
            (SqlitePlace::Host, _) => self.in_directory(way, self.host.path(), usage),
            (SqlitePlace::Tmpfs, SqliteGrounds { tmpfs: Some(directory), .. })
            | (SqlitePlace::Mount, SqliteGrounds { mount: Some(directory), .. }) => {
                self.in_directory(way, directory, usage)
            }
            (SqlitePlace::InProcess, _) => self.in_process(way, usage),
            _ => Err(BenchError::OtherBenchmark),
        }
    }

    fn time(&self) -> Duration {
        Duration::from_secs_f64(self.plan.turn_seconds)
    }

    /// A turn on a filesystem of the kernel.
    fn in_directory(
        &self,
        way: SqliteWay,
        directory: &Path,
        usage: &mut Usage,
    ) -> Result<SqliteTurn, BenchError> {
        let path = directory.join(PATH);
        for end in ["", "-journal", "-wal", "-shm"] {
            let file = directory.join(format!("{PATH}{end}"));
            match std::fs::remove_file(&file) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    return Err(BenchError::File { doing: "delete a file", path: file, source: error });
                }
                _ => {}
            }
        }
        let connection = open(&path, way)?;
        if way.mode != Mode::Off {
            let mode = way.mode.name().to_string_lossy();
            connection.query_row(&format!("PRAGMA weir = '{mode}'"), [], |_| Ok(()))?;
        }
        let load = Load::now(&self.clock);
        let (inserts, elapsed) = insert(&connection, way, &self.clock, self.time())?;
        usage.add(load.until_now(&self.clock));
        let seen =
            self.grounds.mount_window.filter(|_| way.mode == Mode::Order).and_then(|ask| ask(directory));
        drop(connection);
        check(&open(&path, way)?, inserts)?;
        Ok(SqliteTurn { way, inserts, elapsed, loss_window: seen })
    }

    /// A turn on a new filesystem, on a new volume.
    fn in_process(&self, way: SqliteWay, usage: &mut Usage) -> Result<SqliteTurn, BenchError> {
        self.runtime.block_on(async {
            let made =
                filesystem::make(&self.clock, self.volume.disk(), &self.plan, FsKind::BARRIER_FS).await?;
            Ok::<_, BenchError>(made.close().await?)
        })??;
        let (stack, vfs, filesystem) = self.start()?;
        let connection = vfs.open(PATH, way.mode)?;
        let load = Load::now(&self.clock);
        let (inserts, elapsed) = insert(&connection, way, &self.clock, self.time())?;
        usage.add(load.until_now(&self.clock));
        let seen: LossWindowSeen = stack.volume_stats().loss_window;
        drop((connection, vfs));
        self.end(&stack, filesystem)?;
        drop(stack);
        let (stack, vfs, filesystem) = self.start()?;
        let connection = vfs.open(PATH, Mode::Order)?;
        check(&connection, inserts)?;
        drop((connection, vfs));
        self.end(&stack, filesystem)?;
        Ok(SqliteTurn { way, inserts, elapsed, loss_window: (way.mode == Mode::Order).then_some(seen) })
    }

    fn start(&self) -> Result<(Stack, Vfs, BarrierFs), BenchError> {
        let mounted = self.runtime.block_on(async {
            let stack = Stack::open(&self.clock, self.volume.disk(), self.plan.volume_options()).await?;
            let filesystem = BarrierFs::mount(&self.clock, stack.storage(), MountOptions::default()).await?;
            Ok::<_, BenchError>((stack, filesystem))
        });
        let (stack, filesystem) = mounted??;
        let vfs = Vfs::new(Rc::clone(&self.runtime), filesystem.clone().into())?;
        Ok((stack, vfs, filesystem))
    }

    fn end(&self, stack: &Stack, filesystem: BarrierFs) -> Result<(), BenchError> {
        self.runtime.block_on(async {
            filesystem.unmount().await?;
            Ok(stack.close().await?)
        })?
    }
}
