//! Reads through the doors: of a file on the host's filesystem, on a mount of BarrierFS, and of `weir disk`, one after the other,
//! in rounds.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};

use futures_util::future::try_join_all;
use rand::Rng as _;
use serde::Serialize;
use tempfile::TempDir;
use weir_fuse::DISK_NAME;
use weir_runtime::{Handle, Random};
use weir_storage::{BLOCK_BYTES, Extent, FileDisk, FileDiskOptions, Lba, read};

use crate::error::BenchError;
use crate::machine::{Load, Machine, Usage, drop_caches};
use crate::mounts::{Door, Served, make_volume};
use crate::plan::BenchOptions;
use crate::rounds::{Progress, Rounds};
use crate::scratch::ScratchDirectory;
use crate::statistics::Spread;
use crate::summary::{Setting, medians};
use crate::target::check_room;

/// Bytes that are read, and written, by one call where a file is read from one end to the other.
const PIECE: usize = 1 << 20;
/// The files, and the servers.
const SETUP_STEPS: u64 = 1;
/// Depths of the random reads.
const DEPTHS: [u32; 2] = [1, 32];

/// Sizes and rounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct DoorReadsPlan {
    /// Bytes of each file.
    pub file_bytes: u64,
    /// Random reads of 4 KiB in a turn.
    pub random_reads: u32,
    /// Rounds, in each of which every read has a turn at every door.
    pub rounds: u32,
}

impl DoorReadsPlan {
    /// Some five minutes.
    #[must_use]
    pub fn full() -> DoorReadsPlan {
        DoorReadsPlan { file_bytes: 1 << 30, random_reads: 50_000, rounds: 5 }
    }

    /// Under a minute.
    #[must_use]
    pub fn quick() -> DoorReadsPlan {
        DoorReadsPlan { file_bytes: 256 << 20, random_reads: 10_000, rounds: 1 }
    }

    /// To test the program.
    #[must_use]
    pub fn tiny() -> DoorReadsPlan {
        DoorReadsPlan { file_bytes: 8 << 20, random_reads: 200, rounds: 1 }
    }

    /// With the rounds that are wanted.
    #[must_use]
    pub fn with(self, options: &BenchOptions) -> DoorReadsPlan {
        DoorReadsPlan { rounds: options.rounds.unwrap_or(self.rounds), ..self }
    }

    /// Bytes of each of the two volumes: the file, as much again, and what a small filesystem needs.
    fn volume_bytes(&self) -> u64 {
        2 * self.file_bytes + (256 << 20)
    }
}

/// Where a file is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Place {
    Host,
    Mount,
    Disk,
}

impl Place {
    const ALL: [Place; 3] = [Place::Host, Place::Mount, Place::Disk];

    fn name(self) -> &'static str {
        match self {
            Place::Host => "host",
            Place::Mount => "mount",
            Place::Disk => "disk",
        }
    }

    fn door(self) -> Option<Door> {
        match self {
            Place::Host => None,
            Place::Mount => Some(Door::Filesystem { options: &[] }),
            Place::Disk => Some(Door::Disk),
        }
    }
}

/// How a file is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Way {
    /// From one end to the other, by way of the kernel's cache, which has none of it.
    SequentialCold,
    /// 4 KiB at random places past the kernel's cache, so many at a time.
    Random(u32),
}

impl Way {
    /// All that this user can do: the caches are the superuser's to drop.
    fn all() -> Vec<Way> {
        let cold = rustix::process::geteuid().is_root().then_some(Way::SequentialCold);
        cold.into_iter().chain(DEPTHS.map(Way::Random)).collect()
    }

    fn title(self) -> String {
        match self {
            Way::SequentialCold => "sequential, cold, MiB/s".to_owned(),
            Way::Random(depth) => format!("random, depth {depth}, reads/s"),
        }
    }

    /// The name of its ratio at a door, which scripts rely on.
    fn ratio(self, place: Place) -> Option<&'static str> {
        Some(match (place, self) {
            (Place::Host, _) => return None,
            (Place::Mount, Way::SequentialCold) => "mount_sequential_cold",
            (Place::Mount, Way::Random(1)) => "mount_random_depth_1",
            (Place::Mount, Way::Random(_)) => "mount_random_depth_32",
            (Place::Disk, Way::SequentialCold) => "disk_sequential_cold",
            (Place::Disk, Way::Random(1)) => "disk_random_depth_1",
            (Place::Disk, Way::Random(_)) => "disk_random_depth_32",
        })
    }
}

/// What was found; serialised, it is the document that scripts read.
#[derive(Clone, Debug, Serialize)]
pub struct DoorReadsReport {
    /// What was run, and where.
    #[serde(flatten)]
    pub setting: Setting<DoorReadsPlan>,
    /// A door's rate over the host's: 1 where both are as fast, less where the door is slower. Medians of the rounds.
    pub ratios: BTreeMap<&'static str, f64>,
    /// The rates.
    pub rates: Vec<DoorRates>,
    /// Medians, smallest and largest of the ratios.
    pub spread: BTreeMap<&'static str, Spread>,
}

/// The rates of one way to read.
#[derive(Clone, Debug, Serialize)]
pub struct DoorRates {
    /// How it is read, and the unit.
    pub title: String,
    /// The rate at each door, by its name.
    pub rates: BTreeMap<&'static str, Spread>,
    /// The door's rate over the host's, by its name.
    pub ratios: BTreeMap<&'static str, Spread>,
}

/// The rate of a turn: MiB or reads a second.
type Turns = BTreeMap<(Way, Place), Vec<f64>>;

/// Runs the benchmark of `plan`; `progress` is told at each step. `program` is this program, `weir`, by a path. Reads with cold
/// caches are left out for others than the superuser.
///
/// # Errors
/// [`BenchError`]; the mounts and all files are gone in any case.
pub async fn door_reads(
    handle: &Handle,
    program: &Path,
    plan: DoorReadsPlan,
    options: &BenchOptions,
    progress: &mut dyn FnMut(Progress),
) -> Result<DoorReadsReport, BenchError> {
    let place = ScratchDirectory::look(&options.directory)?;
    check_room(&place, 2 * plan.volume_bytes() + plan.file_bytes)?;
    let ways: Vec<(Way, Place)> =
        Way::all().into_iter().flat_map(|way| Place::ALL.map(|place| (way, place))).collect();
    let title = |(way, place): (Way, Place)| format!("{}: {}", place.name(), way.title());
    let mut rounds = Rounds::new(ways, title, plan.rounds, true, SETUP_STEPS, progress);
    rounds.steps.prepare("the files");
    let ground = Ground::make(handle, program, plan, &place.directory).await?;
    let (mut turns, mut usage) = (Turns::new(), Usage::default());
    for due in rounds.by_ref() {
        let (way, place) = due.way;
        let load = Load::now(handle);
        let rate = ground.measure_turn(handle, way, place, due.round).await?;
        if place == Place::Host {
            usage.add(load.until_now(handle));
        }
        turns.entry((way, place)).or_default().push(rate);
    }
    rounds.steps.end();
    drop(ground);
    let setting = Setting::new(plan, options.seed, Machine::seen(usage), Some(place));
    Ok(DoorReadsReport::new(setting, &turns))
}

impl DoorReadsReport {
    fn new(setting: Setting<DoorReadsPlan>, turns: &Turns) -> DoorReadsReport {
        let of = |way, place| turns.get(&(way, place)).map_or(&[][..], Vec::as_slice);
        let ratio = |way, place| Spread::of_ratios(of(way, place), of(way, Place::Host));
        let doors = [Place::Mount, Place::Disk];
        let ways = Way::all();
        let named = |way: Way, place: Place| Some((way.ratio(place)?, ratio(way, place)?));
        let spread: BTreeMap<_, _> =
            ways.iter().flat_map(|&way| doors.into_iter().filter_map(move |door| named(way, door))).collect();
        let rates = ways.iter().map(|&way| DoorRates {
            title: way.title(),
            rates: Place::ALL
                .into_iter()
                .filter_map(|place| Some((place.name(), Spread::of(of(way, place).iter().copied())?)))
                .collect(),
            ratios: doors.into_iter().filter_map(|door| Some((door.name(), ratio(way, door)?))).collect(),
        });
        DoorReadsReport { setting, ratios: medians(&spread), rates: rates.collect(), spread }
    }
}

/// The three files. A door is open for a turn alone: a server that has just started has nothing of the file in its memory.
struct Ground {
    program: PathBuf,
    plan: DoorReadsPlan,
    directory: TempDir,
}

impl Ground {
    async fn make(
        handle: &Handle,
        program: &Path,
        plan: DoorReadsPlan,
        directory: &Path,
    ) -> Result<Ground, BenchError> {
        let made = tempfile::Builder::new().prefix("weir-bench-").tempdir_in(directory);
        let made = made.map_err(failed("make a directory", directory))?;
        let ground = Ground { program: program.to_owned(), plan, directory: made };
        for place in Place::ALL {
            if let Some(door) = place.door() {
                make_volume(program, door, plan.volume_bytes(), &ground.volume(place))?;
            }
            let mut random = handle.random(place.name());
            ground
                .use_file(handle, place, async |path| write_file(path, plan.file_bytes, &mut random))
                .await?;
        }
        Ok(ground)
    }

    fn volume(&self, place: Place) -> PathBuf {
        self.directory.path().join(place.name())
    }

    /// Does something with the path of a file, while its door is open.
    async fn use_file<T>(
        &self,
        handle: &Handle,
        place: Place,
        work: impl AsyncFnOnce(&Path) -> Result<T, BenchError>,
    ) -> Result<T, BenchError> {
        let Some(door) = place.door() else { return work(&self.directory.path().join("file")).await };
        let served = Served::start(&self.program, door, &self.volume(place))?;
        let name = if door == Door::Disk { DISK_NAME } else { "file" };
        let done = work(&served.path(name)).await?;
        served.end(handle).await?;
        Ok(done)
    }

    /// The rate of one turn.
    async fn measure_turn(
        &self,
        handle: &Handle,
        way: Way,
        place: Place,
        round: u32,
    ) -> Result<f64, BenchError> {
        let measure = async |path: &Path| match way {
            Way::SequentialCold => self.read_in_order(handle, path),
            Way::Random(depth) => self.read_at_random(handle, path, depth, round).await,
        };
        self.use_file(handle, place, measure).await
    }

    /// MiB a second.
    fn read_in_order(&self, handle: &Handle, path: &Path) -> Result<f64, BenchError> {
        drop_caches()?;
        let begun = handle.now();
        read_file(path, self.plan.file_bytes)?;
        let mib = self.plan.file_bytes as f64 / f64::from(1 << 20);
        Ok(mib / handle.now().since(begun).as_secs_f64())
    }

    /// Reads a second.
    async fn read_at_random(
        &self,
        handle: &Handle,
        path: &Path,
        depth: u32,
        round: u32,
    ) -> Result<f64, BenchError> {
        let disk = FileDisk::open(handle, path, FileDiskOptions::default())?;
        let blocks = self.plan.file_bytes / BLOCK_BYTES as u64;
        let each = self.plan.random_reads / depth;
        let begun = handle.now();
        try_join_all((0..depth).map(async |stream| {
            let mut random = handle.random(&format!("{round} {stream}"));
            for _ in 0..each {
                read(&*disk, Extent::new(Lba(random.below(blocks)), 1)).await?;
            }
            Ok::<_, BenchError>(())
        }))
        .await?;
        Ok(f64::from(each * depth) / handle.now().since(begun).as_secs_f64())
    }
}

fn failed(doing: &'static str, path: &Path) -> impl Fn(io::Error) -> BenchError {
    move |source| BenchError::File { doing, path: path.to_owned(), source }
}

/// Writes bytes that no disk can compress, and makes them durable.
fn write_file(path: &Path, bytes: u64, random: &mut Random) -> Result<(), BenchError> {
    let failed = failed("write a file", path);
    let mut file = File::options().write(true).create(true).truncate(false).open(path).map_err(&failed)?;
    in_pieces(bytes, |piece| {
        random.fill_bytes(piece);
        file.write_all(piece)
    })
    .and_then(|()| file.sync_all())
    .map_err(failed)
}

/// Reads the first `bytes` bytes of a file.
fn read_file(path: &Path, bytes: u64) -> Result<(), BenchError> {
    let failed = failed("read a file", path);
    let mut file = File::open(path).map_err(&failed)?;
    in_pieces(bytes, |piece| file.read_exact(piece)).map_err(failed)
}

/// Does something with memory for each piece of so many bytes.
fn in_pieces(bytes: u64, mut work: impl FnMut(&mut [u8]) -> io::Result<()>) -> io::Result<()> {
    let mut piece = vec![0; PIECE];
    let mut left = bytes;
    while left > 0 {
        let now = piece.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        work(&mut piece[..now])?;
        left -= now as u64;
    }
    Ok(())
}
