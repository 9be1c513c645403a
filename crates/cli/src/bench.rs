//! `weir bench`: measure, with a progress bar, and tell.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;
use weir_flash::Profile;
use weir_runtime::{Awake, Handle, Runtime, Wall};
use weir_workload::{
    BenchOptions, CleaningReport, Emulated, FsPlan, FsReport, MountReport, Plan, Progress, ReadsOptions,
    RecoveryTime, Report, SimulatedOptions, SqlitePlan, SqliteReport, simulate,
};

use crate::error::CliError;
use crate::size::Size;
use crate::table::{self, filesystems};
use crate::{in_wall_time, print, sqlite};

/// Arguments of `weir bench`.
#[derive(Debug, Args)]
pub(crate) struct BenchArguments {
    /// The directory whose disk is measured; its files have no name and vanish with the process
    #[arg(long, value_name = "PATH", default_value = ".")]
    on: PathBuf,
    /// One round over a smaller span, samples read back: cuts turns short to end in about half a minute
    #[arg(long)]
    quick: bool,
    /// Print one JSON document instead of tables
    #[arg(long)]
    json: bool,
    /// Rounds; every mode has its turn in each [default: 5, quick: 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: Option<u32>,
    /// Bytes that each mode writes over, such as 4G, 64M at least (with --fs and --mount: 16M) [default: 1G, quick: 128M, with --device: 64M, quick: 16M]
    #[arg(long, value_name = "SIZE")]
    size: Option<Size>,
    /// Seed of what is written where
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Leave the files behind, as weir-bench-*, and refuse to begin where such files are
    #[arg(long)]
    keep: bool,
    /// Count what cleaning costs at 50, 80 and 90 % utilisation instead; takes minutes, and has no quick form
    #[arg(long, conflicts_with_all = ["recovery", "quick"])]
    cleaning: bool,
    /// Time recovery after a span (1 GiB) written since the last checkpoint instead
    #[arg(long)]
    recovery: bool,
    /// Put BarrierFS beside the host's filesystem instead: what fsync, fdatasync, fbarrier and fdatabarrier cost
    #[arg(long, conflicts_with_all = ["cleaning", "recovery", "device"])]
    fs: bool,
    /// Put mounts beside the host's filesystem instead: BarrierFS through FUSE, and the kernel's ext4 on a volume
    #[arg(long, conflicts_with_all = ["cleaning", "recovery", "fs", "device"])]
    mount: bool,
    /// Measure SQLite instead: inserts on the host's filesystem, in memory, on a mount of Weir and in process; the
    /// mount takes what weir mount takes, and libweir_sqlite.so beside this program
    #[arg(long, conflicts_with_all = ["cleaning", "recovery", "device", "fs", "mount", "size"])]
    sqlite: bool,
    /// Keep the machine's idle processors from sleeping, for all that is measured: to be woken then costs less, which
    /// counts most on virtual machines. Takes the superuser
    #[arg(long, conflicts_with = "virtual_time")]
    awake: bool,
    /// Measure an emulated device instead, by name or by a profile that ends in .toml
    #[arg(long, value_name = "NAME|FILE", conflicts_with_all = ["cleaning", "recovery", "keep", "on"])]
    device: Option<String>,
    /// With --device: its bytes lie in files in this directory instead of in memory; they have no name and
    /// vanish with the process
    #[arg(long, value_name = "PATH", requires = "device", conflicts_with = "virtual_time")]
    backing: Option<PathBuf>,
    /// In virtual time: how fast the device is simulated, and what it did in its own time
    #[arg(long = "virtual", id = "virtual_time", requires = "device")]
    virtual_time: bool,
    /// With --virtual: how fast the device is read, and a volume and files on it; --size is what is read [default: 64M,
    /// quick: 16M]
    #[arg(long, requires = "virtual_time", conflicts_with_all = ["recorder", "barriers", "preconditioned"])]
    reads: bool,
    /// With --virtual: check the order of every write
    #[arg(long, requires = "virtual_time")]
    recorder: bool,
    /// With --virtual: each write is a barrier
    #[arg(long, requires = "virtual_time")]
    barriers: bool,
    /// With --virtual: the device was written from end to end before, and is written over all of it, so that it
    /// has to clean; with --quick it is shortened to 8 GiB, since half a million writes fill no larger one
    #[arg(long, requires = "virtual_time", conflicts_with = "size")]
    preconditioned: bool,
    /// The smallest sizes: shows that everything works, and no speed
    #[arg(long, hide = true, conflicts_with = "quick")]
    tiny: bool,
}

/// What a benchmark found.
#[derive(Serialize)]
#[serde(untagged)]
enum Found {
    Speed(Box<Report>),
    Filesystems(Box<FsReport>),
    Sqlite(Box<SqliteReport>),
    Mounts(Box<MountReport>),
    Cleaning(CleaningReport),
    Recovery(RecoveryTime),
}

/// Runs the benchmark asked for and prints what it found.
pub(crate) fn run(arguments: &BenchArguments) -> Result<(), CliError> {
    if let Some(device) = arguments.device.as_ref().filter(|_| arguments.virtual_time) {
        return if arguments.reads { read(device, arguments) } else { simulated(device, arguments) };
    }
    let awake = arguments.awake.then(Awake::new).transpose().map_err(CliError::Awake)?;
    let found = match arguments.sqlite {
        true => measure_sqlite(arguments)?,
        false => in_wall_time(arguments.seed, |handle| measure(handle, arguments))?,
    };
    drop(awake);
    if arguments.json {
        return print(&serde_json::to_string_pretty(&found)?);
    }
    print(&match &found {
        Found::Speed(report) => table::speed(report),
        Found::Filesystems(report) => filesystems(report),
        Found::Sqlite(report) => table::sqlite(report),
        Found::Mounts(report) => table::mounts(report),
        Found::Cleaning(report) => table::cleaning(report),
        Found::Recovery(report) => table::recovery(report),
    })
}

/// Writes that are simulated, and how many of them for a quick look.
const SIMULATED_WRITES: u64 = 8_000_000;
const SIMULATED_WRITES_QUICK: u64 = 500_000;

/// Blocks of a full device for a quick look: its spare places are used up early.
const FULL_BLOCKS_QUICK: u64 = 1 << 21;

/// Blocks that are read, and how many of them for a quick look.
const READ_BLOCKS: u64 = 1 << 14;
const READ_BLOCKS_QUICK: u64 = 1 << 12;

/// Reads an emulated device, and what may lie on it.
fn read(device: &str, arguments: &BenchArguments) -> Result<(), CliError> {
    let (profile, _) = Profile::load(device)?;
    let blocks = if arguments.quick { READ_BLOCKS_QUICK } else { READ_BLOCKS };
    let options = ReadsOptions {
        span_blocks: arguments.size.map_or(blocks, |size| size.0 / 4096),
        seed: arguments.seed,
        ..ReadsOptions::default()
    };
    let report = weir_workload::reads(&profile, &options)?;
    if arguments.json {
        return print(&serde_json::to_string_pretty(&report)?);
    }
    print(&table::reads(&report))
}

/// Simulates a device, timed by the wall.
fn simulated(device: &str, arguments: &BenchArguments) -> Result<(), CliError> {
    let (mut profile, _) = Profile::load(device)?;
    if arguments.quick && arguments.preconditioned {
        profile = profile.with_capacity(FULL_BLOCKS_QUICK);
    }
    let span_blocks = arguments.size.map_or(1 << 18, |size| (size.0 / 4096).max(64));
    let options = SimulatedOptions {
        writes: if arguments.quick { SIMULATED_WRITES_QUICK } else { SIMULATED_WRITES },
        seed: arguments.seed,
        recorder: arguments.recorder,
        barriers: arguments.barriers,
        preconditioned: arguments.preconditioned,
        span_blocks: if arguments.preconditioned { u64::MAX } else { span_blocks },
        ..SimulatedOptions::default()
    };
    // Where standard error is gone the simulation goes on: its result is what was asked for.
    let _ = writeln!(
        std::io::stderr(),
        "weir: simulating {} writes: seconds, or up to a minute on a device that has to clean",
        options.writes
    );
    let report =
        in_wall_time(arguments.seed, |clock| async move { Ok(simulate(&clock, &profile, &options)?) })?;
    if arguments.json {
        return print(&serde_json::to_string_pretty(&report)?);
    }
    print(&format!(
        "{}, {:.1} GiB{}: {} random writes of 4 KiB over {:.1} GiB, {} in flight\n\
         simulated     {:.2} s of the device's time, {:.0} writes a second\n\
         took          {:.2} s, {:.0} writes simulated a second\n\
         memory        {:.0} MiB at most\n\
         amplification {:.2}, {}\n\
         trace hash    {}",
        report.device,
        gib(report.device_blocks),
        if report.preconditioned { ", full" } else { "" },
        report.writes,
        gib(report.span_blocks),
        report.depth,
        report.simulated_seconds,
        report.simulated_iops,
        report.wall_seconds,
        report.simulated_per_second,
        report.peak_rss_bytes as f64 / 1_048_576.0,
        report.write_amplification,
        match report.erases {
            0 => "the device never had to clean".to_owned(),
            erases => format!("{erases} erase blocks erased"),
        },
        report.trace_hash,
    ))
}

/// Blocks in GiB.
fn gib(blocks: u64) -> f64 {
    blocks as f64 / f64::from(1 << 18)
}

async fn measure(handle: Handle, arguments: &BenchArguments) -> Result<Found, CliError> {
    let profile = arguments.device.as_deref().map(Profile::load).transpose()?;
    let device = profile.map(|(profile, _)| Emulated { profile, backing: arguments.backing.clone() });
    let emulated = device.is_some();
    let options = BenchOptions { device, ..options(arguments) };
    if arguments.fs || arguments.mount {
        return measure_filesystems(&handle, arguments, &options).await;
    }
    let plan = match (arguments.tiny, arguments.quick, emulated) {
        (true, _, _) => Plan::tiny(),
        (false, true, false) => Plan::quick(),
        (false, true, true) => Plan::device_quick(),
        (false, false, false) => Plan::full(),
        (false, false, true) => Plan::device(),
    };
    let plan = plan.with(&options)?;
    let mut teller = Teller::new(&handle)?;
    let mut progress = |progress: Progress| teller.tell(progress);
    let found = if arguments.cleaning {
        Found::Cleaning(weir_workload::cleaning(&handle, &plan, &options, &mut progress).await?)
    } else if arguments.recovery {
        Found::Recovery(weir_workload::recovery(&handle, &plan, &options, &mut progress).await?)
    } else {
        Found::Speed(Box::new(weir_workload::bench(&handle, plan, &options, &mut progress).await?))
    };
    teller.bar.finish_and_clear();
    Ok(found)
}

/// What the user asked for, of a disk.
fn options(arguments: &BenchArguments) -> BenchOptions {
    BenchOptions {
        directory: arguments.on.clone(),
        device: None,
        span_bytes: arguments.size.map(|size| size.0),
        rounds: arguments.rounds,
        seed: arguments.seed,
        keep: arguments.keep,
    }
}

/// SQLite drives the runtime: it runs in no task.
fn measure_sqlite(arguments: &BenchArguments) -> Result<Found, CliError> {
    let options = options(arguments);
    let plan = match (arguments.tiny, arguments.quick) {
        (true, _) => SqlitePlan::tiny(),
        (false, true) => SqlitePlan::quick(),
        (false, false) => SqlitePlan::full(),
    };
    let runtime = Rc::new(Runtime::wall(Wall { seed: arguments.seed, ..Wall::default() })?);
    let mut teller = Teller::new(&runtime.handle())?;
    let mut progress = |progress: Progress| teller.tell(progress);
    let report = sqlite::measure(&runtime, plan.with(&options), &options, &mut progress)?;
    teller.bar.finish_and_clear();
    Ok(Found::Sqlite(Box::new(report)))
}

async fn measure_filesystems(
    handle: &Handle,
    arguments: &BenchArguments,
    options: &BenchOptions,
) -> Result<Found, CliError> {
    let plan = match (arguments.tiny, arguments.quick) {
        (true, _) => FsPlan::tiny(),
        (false, true) => FsPlan::quick(),
        (false, false) => FsPlan::full(),
    };
    let mut teller = Teller::new(handle)?;
    let mut progress = |progress: Progress| teller.tell(progress);
    let plan = plan.with(options)?;
    let found = if arguments.mount {
        let program = Path::new("/proc/self/exe");
        Found::Mounts(Box::new(weir_workload::mounts(handle, program, plan, options, &mut progress).await?))
    } else {
        let report = weir_workload::filesystems(handle, plan, options, &mut progress).await?;
        Found::Filesystems(Box::new(report))
    };
    teller.bar.finish_and_clear();
    Ok(found)
}

/// Tells on standard error how far the benchmark is: with a bar on a terminal, elsewhere with a line for each
/// round or case.
struct Teller {
    bar: ProgressBar,
    handle: Handle,
    stage: String,
}

impl Teller {
    fn new(handle: &Handle) -> Result<Teller, CliError> {
        let style = ProgressStyle::with_template("{bar:30} {pos}/{len} {elapsed} {wide_msg}");
        let bar = ProgressBar::no_length().with_style(style.map_err(std::io::Error::other)?);
        Ok(Teller { bar, handle: handle.clone(), stage: String::new() })
    }

    fn tell(&mut self, progress: Progress) {
        if self.bar.is_hidden() {
            return self.line(progress.stage);
        }
        let Progress { done, total, stage, what } = progress;
        self.bar.set_length(total);
        self.bar.set_position(done);
        self.bar.set_message(if what.is_empty() { stage } else { format!("{stage}: {what}") });
        self.bar.tick();
    }

    fn line(&mut self, stage: String) {
        if stage != self.stage {
            let seconds = self.handle.now().as_nanos() / 1_000_000_000;
            // Where standard error is gone the benchmark goes on: its result is what was asked for.
            let _ = writeln!(std::io::stderr(), "weir: {seconds} s: {stage}");
            self.stage = stage;
        }
    }
}
