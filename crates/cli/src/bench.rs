//! `weir bench`: measure, with a progress bar, and print the result.

mod device;

use std::path::{Path, PathBuf};
use std::rc::Rc;

use clap::{Args, Subcommand};
use serde::Serialize;
use weir_bench::{
    BenchOptions, DoorReadsPlan, EverydayPlan, EverydayReport, FsPlan, JobReport, Plan, Progress,
};
use weir_figures::{PlotBar, plot_bars};
use weir_runtime::{CpuLatencyGuard, Handle, Runtime, Wall};

use crate::error::CliError;
use crate::progress::ProgressReporter;
use crate::size::Size;
use crate::{in_wall_time, print, report_file, sqlite, table};

/// How a picture of everyday work begins.
const PICTURE: &str = "<!-- weir bench everyday -->";

/// Arguments of `weir bench`.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct BenchArguments {
    #[command(subcommand)]
    what: Option<What>,
    #[command(flatten)]
    disk: DiskArguments,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Writes with and without order: raw disk, the host's filesystem, a volume of Weir; this is the default
    Disk(DiskArguments),
    /// fsync, fdatasync, fbarrier and fdatabarrier: BarrierFS and F2FS in this process, beside the host's filesystem
    Fs(DiskArguments),
    /// The same calls through mounts: BarrierFS by FUSE, the kernel's ext4 on a volume, the host's filesystem
    Mount(DiskArguments),
    /// Inserts of SQLite: on the host's filesystem, in memory, on a mount of Weir, in process
    ///
    /// The mount needs what `weir mount` needs, and libweir_sqlite.so, installed or beside this program.
    Sqlite(RoundsArguments),
    /// What people do with a tree of files, on the host's filesystem and on a mount in turns: tar, cp, diff, find, grep, git, rm
    ///
    /// The superuser's run also has jobs that begin with cold caches, and counts the kernel's requests.
    Everyday(EverydayArguments),
    /// Reads of a large file on the host's filesystem, on a mount, and of `weir disk` in turns: in order, and at random places
    ///
    /// The superuser's run also reads in order what is in no cache.
    Reads(RoundsArguments),
    /// What cleaning costs on a volume that is 50, 80 and 90 % full, or in F2FS on a volume; takes minutes
    Cleaning(CleaningArguments),
    /// How long recovery takes after 1 GiB (or --size) was written since the last checkpoint
    Recovery(DiskArguments),
    /// An emulated device, by name or by a profile that ends in .toml; `weir devices` lists the names
    Device(device::DeviceArguments),
}

#[derive(Debug, Args)]
struct DiskArguments {
    #[command(flatten)]
    place: PlaceArguments,
    #[command(flatten)]
    pace: PaceArguments,
    #[command(flatten)]
    common: CommonArguments,
    /// Size of the file that each mode writes to, such as 4G: at least 64M [default: 1G, with --quick 128M]. For fs and
    /// mount at least 16M [default: 128M, with --quick 64M]
    #[arg(long, value_name = "SIZE")]
    size: Option<Size>,
}

#[derive(Debug, Args)]
struct RoundsArguments {
    #[command(flatten)]
    place: PlaceArguments,
    #[command(flatten)]
    pace: PaceArguments,
    #[command(flatten)]
    common: CommonArguments,
}

#[derive(Debug, Args)]
struct EverydayArguments {
    #[command(flatten)]
    rounds: RoundsArguments,
    /// Mount with --no-open-requests
    #[arg(long)]
    no_open_requests: bool,
    /// Write a picture of it, too, as SVG
    #[arg(long, value_name = "FILE")]
    picture: Option<PathBuf>,
}

#[derive(Debug, Args)]
struct CleaningArguments {
    #[command(flatten)]
    place: PlaceArguments,
    #[command(flatten)]
    common: CommonArguments,
    /// Four times the size of the volume, such as 4G; the volume has 160M at least [default: 1G]
    #[arg(long, value_name = "SIZE")]
    size: Option<Size>,
    /// F2FS's cleaners in place of the volume's: by copies, and by the share command, three rounds
    #[arg(long, conflicts_with = "size")]
    f2fs: bool,
    /// The smallest sizes: to test the program; its figures say nothing
    #[arg(long, hide = true, requires = "f2fs")]
    tiny: bool,
}

/// Where the files are.
#[derive(Debug, Args)]
struct PlaceArguments {
    /// The directory whose disk is measured. The files in it have no name, and are gone when the program ends
    #[arg(long, value_name = "DIRECTORY", default_value = ".")]
    on: PathBuf,
    /// Keep the files, as weir-bench-*. There must be none of these names before
    #[arg(long)]
    keep: bool,
}

/// How long it takes.
#[derive(Debug, Args)]
struct PaceArguments {
    /// One round over a smaller file, of which samples are read back; it ends in about half a minute
    #[arg(long)]
    quick: bool,
    /// Number of rounds, in each of which every mode is measured once [default: 5, with --quick 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: Option<u32>,
    /// The smallest sizes: to test the program; its figures say nothing
    #[arg(long, hide = true, conflicts_with = "quick")]
    tiny: bool,
}

/// What all benchmarks take.
#[derive(Debug, Args)]
struct CommonArguments {
    /// Print one JSON document instead of tables
    #[arg(long)]
    json: bool,
    /// Seed of the addresses that are written
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Keep idle processors from sleeping while everything is measured. Superuser only
    #[arg(long)]
    awake: bool,
}

/// One of the sizes of a plan.
#[derive(Clone, Copy)]
enum Pace {
    Tiny,
    Quick,
    Full,
}

impl PaceArguments {
    fn pace(&self) -> Pace {
        match (self.tiny, self.quick) {
            (true, _) => Pace::Tiny,
            (false, true) => Pace::Quick,
            (false, false) => Pace::Full,
        }
    }
}

impl CommonArguments {
    /// Keeps processors awake, if that is wanted, until what is returned is dropped.
    fn awake(&self) -> Result<Option<CpuLatencyGuard>, CliError> {
        self.awake.then(CpuLatencyGuard::new).transpose().map_err(CliError::Awake)
    }

    /// Measures in wall time, and prints the result: as a document, or for people in the words of `told`.
    fn measure<R: Serialize>(
        &self,
        work: impl AsyncFnOnce(Handle, &mut dyn FnMut(Progress)) -> Result<R, CliError>,
        told: fn(&R) -> String,
    ) -> Result<(), CliError> {
        self.print(&self.measure_quietly(work)?, told)
    }

    /// Measures in wall time, and prints nothing but progress.
    fn measure_quietly<R>(
        &self,
        work: impl AsyncFnOnce(Handle, &mut dyn FnMut(Progress)) -> Result<R, CliError>,
    ) -> Result<R, CliError> {
        let awake = self.awake()?;
        let found = in_wall_time(self.seed, async |handle: Handle| {
            let mut reporter = ProgressReporter::new()?;
            let clock = handle.clone();
            let mut progress = |progress: Progress| report_progress(&mut reporter, &clock, progress);
            let found = work(handle, &mut progress).await?;
            reporter.end();
            Ok(found)
        })?;
        drop(awake);
        Ok(found)
    }

    fn print<R: Serialize>(&self, found: &R, told: fn(&R) -> String) -> Result<(), CliError> {
        if self.json { print(&serde_json::to_string_pretty(found)?) } else { print(&told(found)) }
    }
}

/// Runs the benchmark asked for and prints what it found.
pub(crate) fn run(arguments: &BenchArguments) -> Result<(), CliError> {
    match &arguments.what {
        None => disk(&arguments.disk),
        Some(What::Disk(arguments)) => disk(arguments),
        Some(What::Fs(arguments)) => filesystems(arguments),
        Some(What::Mount(arguments)) => mounts(arguments),
        Some(What::Sqlite(arguments)) => databases(arguments),
        Some(What::Everyday(arguments)) => everyday(arguments),
        Some(What::Reads(arguments)) => reads(arguments),
        Some(What::Cleaning(arguments)) => cleaning(arguments),
        Some(What::Recovery(arguments)) => recovery(arguments),
        Some(What::Device(arguments)) => device::run(arguments),
    }
}

impl DiskArguments {
    fn options(&self) -> BenchOptions {
        BenchOptions {
            span_bytes: self.size.map(|size| size.0),
            ..options(&self.place, self.pace.rounds, self.common.seed)
        }
    }

    fn plan(&self) -> Plan {
        match self.pace.pace() {
            Pace::Tiny => Plan::tiny(),
            Pace::Quick => Plan::quick(),
            Pace::Full => Plan::full(),
        }
    }

    fn filesystem_plan(&self) -> FsPlan {
        match self.pace.pace() {
            Pace::Tiny => FsPlan::tiny(),
            Pace::Quick => FsPlan::quick(),
            Pace::Full => FsPlan::full(),
        }
    }
}

fn options(place: &PlaceArguments, rounds: Option<u32>, seed: u64) -> BenchOptions {
    BenchOptions {
        directory: place.on.clone(),
        device: None,
        span_bytes: None,
        rounds,
        seed,
        keep: place.keep,
    }
}

fn report_progress(reporter: &mut ProgressReporter, clock: &Handle, progress: Progress) {
    let seconds = clock.now().as_nanos() / 1_000_000_000;
    reporter.report((progress.done, progress.total), Some(seconds), progress.stage, &progress.what);
}

fn disk(arguments: &DiskArguments) -> Result<(), CliError> {
    let options = arguments.options();
    let plan = arguments.plan().with(&options)?;
    let work = async |handle: Handle, progress: &mut dyn FnMut(Progress)| {
        Ok(weir_bench::bench(&handle, plan, &options, progress).await?)
    };
    arguments.common.measure(work, table::speed)
}

fn filesystems(arguments: &DiskArguments) -> Result<(), CliError> {
    let options = arguments.options();
    let plan = arguments.filesystem_plan().with(&options)?;
    let work = async |handle: Handle, progress: &mut dyn FnMut(Progress)| {
        Ok(weir_bench::filesystems(&handle, plan, &options, progress).await?)
    };
    arguments.common.measure(work, table::filesystems)
}

fn mounts(arguments: &DiskArguments) -> Result<(), CliError> {
    let options = arguments.options();
    let plan = arguments.filesystem_plan().with(&options)?;
    let program = Path::new("/proc/self/exe");
    let work = async |handle: Handle, progress: &mut dyn FnMut(Progress)| {
        Ok(weir_bench::mounts(&handle, program, plan, &options, progress).await?)
    };
    arguments.common.measure(work, table::mounts)
}

fn everyday(arguments: &EverydayArguments) -> Result<(), CliError> {
    let EverydayArguments { rounds: arguments, no_open_requests, picture } = arguments;
    // A path that cannot be written is to be known before the wait.
    picture.as_ref().map(|path| report_file::check(path, PICTURE)).transpose()?;
    let options = options(&arguments.place, arguments.pace.rounds, arguments.common.seed);
    let plan = match arguments.pace.pace() {
        Pace::Tiny => EverydayPlan::tiny(),
        Pace::Quick => EverydayPlan::quick(),
        Pace::Full => EverydayPlan::full(),
    };
    let plan = EverydayPlan { open_requests: !no_open_requests, ..plan.with(&options) };
    let program = Path::new("/proc/self/exe");
    let work = async |handle: Handle, progress: &mut dyn FnMut(Progress)| {
        Ok(weir_bench::everyday(&handle, program, plan, &options, progress).await?)
    };
    let report = arguments.common.measure_quietly(work)?;
    if let Some(path) = picture {
        report_file::write(path, PICTURE, &everyday_picture(&report)?)?;
    }
    arguments.common.print(&report, table::everyday)
}

/// A bar for the mount's seconds of each job, and a line for the host's.
fn everyday_picture(report: &EverydayReport) -> Result<String, CliError> {
    let bar = |job: &JobReport| PlotBar {
        label: job.title.to_owned(),
        length: job.mount_seconds.median,
        mark: Some(job.host_seconds.median),
    };
    let bars: Vec<PlotBar> = report.jobs.iter().map(bar).collect();
    let (picture, _) = plot_bars("everyday", Some("seconds; bar: mount, line: host"), &bars)?;
    Ok(format!("{PICTURE}\n{picture}"))
}

fn reads(arguments: &RoundsArguments) -> Result<(), CliError> {
    let options = options(&arguments.place, arguments.pace.rounds, arguments.common.seed);
    let plan = match arguments.pace.pace() {
        Pace::Tiny => DoorReadsPlan::tiny(),
        Pace::Quick => DoorReadsPlan::quick(),
        Pace::Full => DoorReadsPlan::full(),
    };
    let plan = plan.with(&options);
    let program = Path::new("/proc/self/exe");
    let work = async |handle: Handle, progress: &mut dyn FnMut(Progress)| {
        Ok(weir_bench::door_reads(&handle, program, plan, &options, progress).await?)
    };
    arguments.common.measure(work, table::door_reads)
}

fn cleaning(arguments: &CleaningArguments) -> Result<(), CliError> {
    if arguments.f2fs {
        return cleaners(arguments);
    }
    let options = BenchOptions {
        span_bytes: arguments.size.map(|size| size.0),
        ..options(&arguments.place, None, arguments.common.seed)
    };
    let plan = Plan::full().with(&options)?;
    let work = async |handle: Handle, progress: &mut dyn FnMut(Progress)| {
        Ok(weir_bench::cleaning(&handle, &plan, &options, progress).await?)
    };
    arguments.common.measure(work, table::cleaning)
}

fn cleaners(arguments: &CleaningArguments) -> Result<(), CliError> {
    let options = options(&arguments.place, None, arguments.common.seed);
    let plan = if arguments.tiny { FsPlan::cleaners_tiny() } else { FsPlan::cleaners() };
    let work = async |handle: Handle, progress: &mut dyn FnMut(Progress)| {
        Ok(weir_bench::cleaners(&handle, plan, &options, progress).await?)
    };
    arguments.common.measure(work, table::cleaners)
}

fn recovery(arguments: &DiskArguments) -> Result<(), CliError> {
    let options = arguments.options();
    let plan = arguments.plan().with(&options)?;
    let work = async |handle: Handle, progress: &mut dyn FnMut(Progress)| {
        Ok(weir_bench::recovery(&handle, &plan, &options, progress).await?)
    };
    arguments.common.measure(work, table::recovery)
}

/// SQLite drives the runtime: it runs in no task.
fn databases(arguments: &RoundsArguments) -> Result<(), CliError> {
    let options = options(&arguments.place, arguments.pace.rounds, arguments.common.seed);
    let plan = match arguments.pace.pace() {
        Pace::Tiny => FsPlan::sqlite_tiny(),
        Pace::Quick => FsPlan::sqlite_quick(),
        Pace::Full => FsPlan::sqlite(),
    };
    let awake = arguments.common.awake()?;
    let runtime = Rc::new(Runtime::wall(Wall { seed: arguments.common.seed, ..Wall::default() })?);
    let (mut reporter, clock) = (ProgressReporter::new()?, runtime.handle());
    let mut progress = |progress: Progress| report_progress(&mut reporter, &clock, progress);
    let report = sqlite::measure(&runtime, plan.with(&options)?, &options, &mut progress)?;
    reporter.end();
    drop(awake);
    arguments.common.print(&report, table::sqlite)
}
