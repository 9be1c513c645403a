//! `weir bench device`: an emulated device, in wall time or in virtual time.

use std::io::Write as _;
use std::path::PathBuf;

use clap::Args;
use weir_bench::{BenchOptions, Emulated, Plan, Progress, ReadsOptions, SimulatedOptions, simulate};
use weir_flash::Profile;
use weir_runtime::Handle;

use super::{CommonArguments, Pace, PaceArguments};
use crate::error::CliError;
use crate::size::Size;
use crate::{in_wall_time, table};

/// Arguments of `weir bench device`.
#[derive(Debug, Args)]
pub(super) struct DeviceArguments {
    /// The device
    #[arg(value_name = "NAME|FILE")]
    device: String,
    #[command(flatten)]
    pace: PaceArguments,
    #[command(flatten)]
    common: CommonArguments,
    /// Bytes that each mode writes to [default: 64M, with --quick 16M; with --virtual 1G], or that are read with
    /// --reads [default: 64M, with --quick 16M]
    #[arg(long, value_name = "SIZE")]
    size: Option<Size>,
    /// Keep the device's bytes in files in this directory instead of in memory. They have no name, and are gone when
    /// the program ends
    #[arg(long, value_name = "DIRECTORY", conflicts_with = "virtual_time")]
    backing: Option<PathBuf>,
    /// Simulate the device in virtual time, and show how fast that was and what the device did in its own time
    #[arg(long = "virtual", id = "virtual_time", conflicts_with_all = ["awake", "rounds", "tiny"])]
    virtual_time: bool,
    /// With --virtual: how fast blocks are read from the device, from a volume on it, and from files
    #[arg(long, requires = "virtual_time", conflicts_with_all = ["recorder", "barriers", "preconditioned"])]
    reads: bool,
    /// With --virtual: check the order of every write
    #[arg(long, requires = "virtual_time")]
    recorder: bool,
    /// With --virtual: make each write a barrier
    #[arg(long, requires = "virtual_time")]
    barriers: bool,
    /// With --virtual: write to all of a device that was written from end to end before, so that it has to clean; with
    /// --quick the device has 8 GiB, since half a million writes fill no larger one
    #[arg(long, requires = "virtual_time", conflicts_with = "size")]
    preconditioned: bool,
}

/// Writes that are simulated, and how many of them for a quick look.
const SIMULATED_WRITES: u64 = 8_000_000;
const SIMULATED_WRITES_QUICK: u64 = 500_000;

/// Blocks of a full device for a quick look: its spare places are used up early.
const FULL_BLOCKS_QUICK: u64 = 1 << 21;

/// Blocks that are read, and how many of them for a quick look.
const READ_BLOCKS: u64 = 1 << 14;
const READ_BLOCKS_QUICK: u64 = 1 << 12;

/// Runs the benchmark of an emulated device.
pub(super) fn run(arguments: &DeviceArguments) -> Result<(), CliError> {
    match (arguments.virtual_time, arguments.reads) {
        (false, _) => emulated(arguments),
        (true, false) => simulated(arguments),
        (true, true) => read(arguments),
    }
}

/// The device in wall time, with a volume on it, as a disk is measured.
fn emulated(arguments: &DeviceArguments) -> Result<(), CliError> {
    let (profile, _) = Profile::load(&arguments.device)?;
    let options = BenchOptions {
        directory: PathBuf::from("."),
        device: Some(Emulated { profile, backing: arguments.backing.clone() }),
        span_bytes: arguments.size.map(|size| size.0),
        rounds: arguments.pace.rounds,
        seed: arguments.common.seed,
        keep: false,
    };
    let plan = match arguments.pace.pace() {
        Pace::Tiny => Plan::tiny(),
        Pace::Quick => Plan::device_quick(),
        Pace::Full => Plan::device(),
    };
    let plan = plan.with(&options)?;
    let work = async |handle: Handle, progress: &mut dyn FnMut(Progress)| {
        Ok(weir_bench::bench(&handle, plan, &options, progress).await?)
    };
    arguments.common.measure(work, table::speed)
}

/// Reads the device, and what may lie on it.
fn read(arguments: &DeviceArguments) -> Result<(), CliError> {
    let (profile, _) = Profile::load(&arguments.device)?;
    let blocks = if arguments.pace.quick { READ_BLOCKS_QUICK } else { READ_BLOCKS };
    let options = ReadsOptions {
        span_blocks: arguments.size.map_or(blocks, |size| size.0 / 4096),
        seed: arguments.common.seed,
        ..ReadsOptions::default()
    };
    arguments.common.print(&weir_bench::reads(&profile, &options)?, table::reads)
}

/// Simulates the device, timed by the wall.
fn simulated(arguments: &DeviceArguments) -> Result<(), CliError> {
    let (mut profile, _) = Profile::load(&arguments.device)?;
    let quick = arguments.pace.quick;
    if quick && arguments.preconditioned {
        profile = profile.with_capacity(FULL_BLOCKS_QUICK);
    }
    let span_blocks = arguments.size.map_or(1 << 18, |size| (size.0 / 4096).max(64));
    let options = SimulatedOptions {
        writes: if quick { SIMULATED_WRITES_QUICK } else { SIMULATED_WRITES },
        seed: arguments.common.seed,
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
    let work = async |clock: Handle| Ok(simulate(&clock, &profile, &options)?);
    let report = in_wall_time(arguments.common.seed, work)?;
    arguments.common.print(&report, table::simulated)
}
