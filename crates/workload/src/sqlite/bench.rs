//! The benchmark of SQLite, in rounds as the others have them: every way has a turn in each, and every second round
//! goes backwards.

use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use serde::Serialize;
use weir_ext4::Mkfs;
use weir_fs::{Filesystem, MountOptions};
use weir_runtime::{Handle, Runtime};
use weir_sqlite_vfs::{Mode, Vfs};
use weir_storage::{BLOCK_BYTES, Storage};
use weir_volume::{Format, LossWindow, LossWindowSeen, Volume, VolumeOptions};

use crate::bench::Progress;
use crate::content::Pages;
use crate::error::BenchError;
use crate::machine::{Load, Machine, Usage};
use crate::plan::BenchOptions;
use crate::scratch::ScratchDirectory;
use crate::sqlite::report::SqliteReport;
use crate::sqlite::turn::{SqliteTurn, check, insert, open};
use crate::sqlite::way::{SqlitePlace, SqliteWay};
use crate::target::{BenchTarget, TargetBase, check_room};

const MIB: u64 = 1 << 20;
const BLOCK: u64 = BLOCK_BYTES as u64;

/// Blocks in a segment of the volume.
const SEGMENT_BLOCKS: u32 = 256;

/// The database.
const PATH: &str = "bench.db";

/// The sizes and times of the benchmark of SQLite.
#[derive(Clone, Debug, Serialize)]
pub struct SqlitePlan {
    /// Whether this is the short benchmark.
    pub quick: bool,
    /// Rounds; every way has its turn in each.
    pub rounds: u32,
    /// A turn takes this long, in seconds.
    pub turn_seconds: f64,
    /// Bytes of the filesystem in process.
    pub filesystem_bytes: u64,
    /// Bytes of its volume: with room, so that a turn measures no cleaning.
    pub volume_bytes: u64,
    /// The volume's bound on what a crash may cost, in bytes and milliseconds.
    pub loss_window_bytes: u64,
    /// See above.
    pub loss_window_ms: u64,
}

impl SqlitePlan {
    /// The benchmark proper: five rounds of half a second a way.
    #[must_use]
    pub fn full() -> SqlitePlan {
        SqlitePlan::new(false, 5, 0.5, 256 * MIB, 2560 * MIB)
    }

    /// The short one: one round.
    #[must_use]
    pub fn quick() -> SqlitePlan {
        SqlitePlan::new(true, 1, 0.5, 256 * MIB, 2560 * MIB)
    }

    /// The smallest, for tests: it shows that everything works, and no speed.
    #[must_use]
    pub fn tiny() -> SqlitePlan {
        SqlitePlan::new(true, 2, 0.01, 32 * MIB, 128 * MIB)
    }

    fn new(
        quick: bool,
        rounds: u32,
        turn_seconds: f64,
        filesystem_bytes: u64,
        volume_bytes: u64,
    ) -> SqlitePlan {
        let window = LossWindow::default();
        SqlitePlan {
            quick,
            rounds,
            turn_seconds,
            filesystem_bytes,
            volume_bytes,
            loss_window_bytes: window.bytes,
            loss_window_ms: window.time.as_millis() as u64,
        }
    }

    /// The plan as the user's options change it.
    #[must_use]
    pub fn with(mut self, options: &BenchOptions) -> SqlitePlan {
        if let Some(rounds) = options.rounds {
            self.rounds = rounds.max(1);
        }
        self
    }

    fn volume_options(&self) -> VolumeOptions {
        let time = Duration::from_millis(self.loss_window_ms);
        let loss_window = LossWindow { time, bytes: self.loss_window_bytes };
        VolumeOptions { loss_window, ..VolumeOptions::default() }
    }
}

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
    plan: SqlitePlan,
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
    let total = 1 + u64::from(plan.rounds) * ways.len() as u64;
    let mut done = 0;
    let mut step = |stage: String, what: &str| {
        progress(Progress { done, total, stage, what: what.to_owned() });
        done += 1;
    };
    step("preparing".to_owned(), "filling the volume's disk");
    let ground = BenchState::prepare(runtime, plan, options, grounds)?;
    let mut turns = Vec::new();
    let mut usage = Usage::default();
    for round in 0..ground.plan.rounds {
        for way in &ways {
            step(format!("round {} of {}", round + 1, ground.plan.rounds), &way.name());
            turns.push(ground.turn(*way, &mut usage)?);
        }
        ways.reverse();
    }
    step("done".to_owned(), "");
    Ok(SqliteReport::new(ground.plan, options.seed, ground.place, Machine::seen(usage), &turns))
}

/// Everything that the turns share.
struct BenchState {
    runtime: Rc<Runtime>,
    clock: Handle,
    plan: SqlitePlan,
    place: ScratchDirectory,
    /// A directory on the host's filesystem, which vanishes.
    host: tempfile::TempDir,
    grounds: SqliteGrounds,
    volume: BenchTarget,
}

impl BenchState {
    fn prepare(
        runtime: &Rc<Runtime>,
        plan: SqlitePlan,
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
        self.runtime.block_on(self.make())??;
        let (volume, vfs, filesystem) = self.start()?;
        let connection = vfs.open(PATH, way.mode)?;
        let load = Load::now(&self.clock);
        let (inserts, elapsed) = insert(&connection, way, &self.clock, self.time())?;
        usage.add(load.until_now(&self.clock));
        let seen: LossWindowSeen = volume.stats().loss_window;
        drop((connection, vfs));
        self.end(&volume, filesystem)?;
        drop(volume);
        let (volume, vfs, filesystem) = self.start()?;
        let connection = vfs.open(PATH, Mode::Order)?;
        check(&connection, inserts)?;
        drop((connection, vfs));
        self.end(&volume, filesystem)?;
        Ok(SqliteTurn { way, inserts, elapsed, loss_window: (way.mode == Mode::Order).then_some(seen) })
    }

    async fn make(&self) -> Result<(), BenchError> {
        let disk = self.volume.disk();
        let blocks = self.plan.filesystem_bytes / BLOCK;
        let format = Format { logical_blocks: blocks, segment_blocks: SEGMENT_BLOCKS, overwrite: true };
        Volume::create(&self.clock, &*disk, format).await?;
        let volume = Volume::open(&self.clock, disk, self.plan.volume_options()).await?;
        let created = u32::try_from(self.clock.wall_clock_millis() / 1000).unwrap_or(u32::MAX);
        // A new volume reads as zeros.
        let mkfs = Mkfs { zeroed: true, ..Mkfs::new(blocks, [7; 16], [8; 16], created) };
        Filesystem::make(&volume, &mkfs).await?;
        Ok(volume.close().await?)
    }

    fn start(&self) -> Result<(Rc<Volume>, Vfs, Filesystem), BenchError> {
        let mounted = self.runtime.block_on(async {
            let volume = Volume::open(&self.clock, self.volume.disk(), self.plan.volume_options()).await?;
            let volume = Rc::new(volume);
            let device: Rc<dyn Storage> = Rc::<Volume>::clone(&volume);
            let filesystem = Filesystem::mount(&self.clock, device, MountOptions::default()).await?;
            Ok::<_, BenchError>((volume, filesystem))
        });
        let (volume, filesystem) = mounted??;
        let vfs = Vfs::new(Rc::clone(&self.runtime), filesystem.clone())?;
        Ok((volume, vfs, filesystem))
    }

    fn end(&self, volume: &Volume, filesystem: Filesystem) -> Result<(), BenchError> {
        self.runtime.block_on(async {
            filesystem.unmount().await?;
            Ok(volume.close().await?)
        })?
    }
}
