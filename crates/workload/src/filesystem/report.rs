//! What the benchmark of filesystems found.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::bench::Turn;
use crate::filesystem::mode::{Call, FsWrite, Promise};
use crate::filesystem::plan::FsPlan;
use crate::host::HostCalls;
use crate::machine::Machine;
use crate::mode::Mode;
use crate::report::{About, LossWindowReport, ModeReport, Quantity, Ratio, SpreadReport};
use crate::scratch::ScratchDirectory;
use crate::statistics::Spread;

const FSYNC: Mode = Mode::barrier_fs(FsWrite::Append, Call::Fsync);
const FDATASYNC: Mode = Mode::barrier_fs(FsWrite::Append, Call::Fdatasync);
const FBARRIER: Mode = Mode::barrier_fs(FsWrite::Append, Call::Fbarrier);
const FDATABARRIER: Mode = Mode::barrier_fs(FsWrite::Overwrite, Call::Fdatabarrier);

/// Rates by the names that scripts rely on: calls a second, each after a write of 4 KiB; `fdatabarrier` after one
/// over what is there, the others after one that allocates.
pub const RATES: [(&str, Mode); 4] = [
    ("fsync_per_second", FSYNC),
    ("fdatasync_per_second", FDATASYNC),
    ("fbarrier_per_second", FBARRIER),
    ("fdatabarrier_per_second", FDATABARRIER),
];

/// All ratios of this benchmark, in the order in which they are told.
pub const FS_RATIOS: [Ratio; 5] = [
    Ratio {
        name: "fsync_vs_host",
        title: "fsync: BarrierFS / host",
        meaning: "append + fsync through BarrierFS, over the same on the host's filesystem: both durable at once",
        about: About::ThisDisk,
        over: FSYNC,
        under: Mode::Host(HostCalls::AppendFsync),
        of: Quantity::Writes,
    },
    Ratio {
        name: "fdatasync_vs_host",
        title: "fdatasync: BarrierFS / host",
        meaning: "append + fdatasync through BarrierFS, over the same on the host's filesystem: both durable at once",
        about: About::ThisDisk,
        over: FDATASYNC,
        under: Mode::Host(HostCalls::AppendFdatasync),
        of: Quantity::Writes,
    },
    Ratio {
        name: "fbarrier_vs_host_fsync",
        title: "BarrierFS fbarrier / host fsync",
        meaning: "append + fbarrier, over append + fsync on the host's filesystem, which is how programs get order today; fsync also gives durability, fbarrier does not: see the loss window",
        about: About::ThisDisk,
        over: FBARRIER,
        under: Mode::Host(HostCalls::AppendFsync),
        of: Quantity::Writes,
    },
    Ratio {
        name: "fdatabarrier_vs_host_fdatasync",
        title: "BarrierFS fdatabarrier / host fdatasync",
        meaning: "overwrite + fdatabarrier, over overwrite + fdatasync on the host's filesystem, each of a file that is there as a whole; fdatasync also gives durability, fdatabarrier does not: see the loss window",
        about: About::ThisDisk,
        over: FDATABARRIER,
        under: Mode::Host(HostCalls::Fdatasync),
        of: Quantity::Writes,
    },
    Ratio {
        name: "fbarrier_vs_fsync",
        title: "BarrierFS: fbarrier / fsync",
        meaning: "append + fbarrier over append + fsync, both through BarrierFS: what it saves not to wait",
        about: About::Weir,
        over: FBARRIER,
        under: FSYNC,
        of: Quantity::Writes,
    },
];

/// The result of the benchmark of filesystems; serialised, it is the document that scripts read.
///
/// Every figure is the median over rounds, and every ratio the median of the ratios of the rounds.
#[derive(Clone, Debug, Serialize)]
pub struct FsReport {
    /// Version of the program.
    pub version: &'static str,
    /// The seed of the workload.
    pub seed: u64,
    /// Sizes and times.
    pub plan: FsPlan,
    /// The machine, and whether it was busy.
    pub machine: Machine,
    /// Where the files were.
    pub disk: ScratchDirectory,
    /// The rates by name, in calls a second.
    pub rates: BTreeMap<&'static str, f64>,
    /// The ratios by name.
    pub ratios: BTreeMap<&'static str, f64>,
    /// The largest loss window seen in any turn through the volume.
    pub loss_window: LossWindowReport,
    /// The modes, in the order of a round.
    pub modes: Vec<FsModeReport>,
    /// Medians, smallest and largest values.
    pub spread: SpreadReport,
    /// Blocks read back and found right, over all modes; wrong ones end the benchmark.
    pub checked_blocks: u64,
}

/// The figures of one mode.
#[derive(Clone, Debug, Serialize)]
pub struct FsModeReport {
    /// What a call promises.
    pub promise: Option<Promise>,
    /// The largest loss window seen in the mode's turns, where calls order only.
    pub loss_window: Option<LossWindowReport>,
    /// What every mode has.
    #[serde(flatten)]
    pub mode: ModeReport,
}

impl FsReport {
    pub(crate) fn new(
        plan: FsPlan,
        seed: u64,
        disk: ScratchDirectory,
        machine: Machine,
        turns: &[Turn],
    ) -> FsReport {
        let of = |mode: Mode| turns.iter().filter(move |turn| turn.mode == mode);
        let modes = Mode::FILESYSTEMS.into_iter().filter_map(|mode| {
            let turns: Vec<&Turn> = of(mode).collect();
            let promise = mode.promise();
            let ordered = promise == Some(Promise::Ordered);
            Some(FsModeReport {
                promise,
                loss_window: ordered.then(|| LossWindowReport::largest(turns.iter().copied())),
                mode: ModeReport::new(mode, 0, &turns)?,
            })
        });
        let modes: Vec<FsModeReport> = modes.collect();
        let rate = |mode: Mode| Spread::of(of(mode).map(Turn::iops));
        let iops = Mode::FILESYSTEMS.into_iter().filter_map(|mode| Some((mode.name(), rate(mode)?)));
        let ratios: BTreeMap<&'static str, Spread> =
            FS_RATIOS.iter().filter_map(|ratio| Some((ratio.name, ratio.spread(turns)?))).collect();
        FsReport {
            version: env!("CARGO_PKG_VERSION"),
            seed,
            plan,
            machine,
            disk,
            rates: RATES.iter().filter_map(|&(name, mode)| Some((name, rate(mode)?.median))).collect(),
            ratios: ratios.iter().map(|(&name, spread)| (name, spread.median)).collect(),
            loss_window: LossWindowReport::largest(turns),
            modes,
            spread: SpreadReport { iops: iops.collect(), ratios },
            checked_blocks: turns.iter().map(|turn| turn.checked_blocks).sum(),
        }
    }
}
