//! What the benchmark of mounts found.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::bench::Turn;
use crate::filesystem::{FsPlan, Promise};
use crate::host::HostCalls;
use crate::machine::Machine;
use crate::mode::Mode;
use crate::mounts::calls::MountCalls;
use crate::report::{About, LossWindowReport, ModeReport, Quantity, Ratio, SpreadReport};
use crate::scratch::ScratchDirectory;
use crate::statistics::Spread;

const ORDERED: Mode = Mode::Mount(MountCalls::OverwriteBarrier);
const HOST_OVERWRITE: Mode = Mode::Host(HostCalls::Fdatasync);
const HOST_APPEND: Mode = Mode::Host(HostCalls::AppendFsync);

/// All ratios of this benchmark, in the order in which they are told.
pub const MOUNT_RATIOS: [Ratio; 6] = [
    Ratio {
        name: "ordered_vs_host_fdatasync",
        title: "mount fdatabarrier / host fdatasync",
        meaning: "direct overwrite + fdatabarrier on the mount, over pwrite + fdatasync on the host's filesystem, which is how programs get order today; fdatasync also gives durability, fdatabarrier does not: see the loss window",
        about: About::ThisDisk,
        over: ORDERED,
        under: HOST_OVERWRITE,
        of: Quantity::Writes,
    },
    Ratio {
        name: "ordered_writes_vs_host_fdatasync",
        title: "mount, ordered writes / host fdatasync",
        meaning: "direct overwrite on the mount, by a program that has said once that its writes in place are to be ordered, over pwrite + fdatasync on the host's filesystem",
        about: About::ThisDisk,
        over: Mode::Mount(MountCalls::OverwriteOrdered),
        under: HOST_OVERWRITE,
        of: Quantity::Writes,
    },
    Ratio {
        name: "durable_vs_host_fdatasync",
        title: "fdatasync: mount / host",
        meaning: "direct overwrite + fdatasync on the mount, over pwrite + fdatasync on the host's filesystem: both durable at once",
        about: About::ThisDisk,
        over: Mode::Mount(MountCalls::OverwriteFdatasync),
        under: HOST_OVERWRITE,
        of: Quantity::Writes,
    },
    Ratio {
        name: "append_durable_vs_host_fsync",
        title: "append + fsync: mount / host",
        meaning: "append + fsync on the mount, over the same on the host's filesystem: both durable at once",
        about: About::ThisDisk,
        over: Mode::Mount(MountCalls::AppendFsync),
        under: HOST_APPEND,
        of: Quantity::Writes,
    },
    Ratio {
        name: "append_ordered_vs_host_fsync",
        title: "append: mount fbarrier / host fsync",
        meaning: "append + fbarrier on the mount, over append + fsync on the host's filesystem; fsync also gives durability, fbarrier does not: see the loss window",
        about: About::ThisDisk,
        over: Mode::Mount(MountCalls::AppendFbarrier),
        under: HOST_APPEND,
        of: Quantity::Writes,
    },
    Ratio {
        name: "kernel_ext4_vs_host_fsync",
        title: "append + fsync: nobarrier ext4 / host",
        meaning: "append + fsync on the kernel's ext4, without barriers on weir disk over a volume, over the same on the host's filesystem; the former only orders, in the volume's loss window",
        about: About::ThisDisk,
        over: Mode::Mount(MountCalls::KernelAppendFsync),
        under: HOST_APPEND,
        of: Quantity::Writes,
    },
];

/// A turn, and what its server told.
pub(super) struct MountTurn {
    pub(super) turn: Turn,
    /// Requests of the kernel that the server had at one time, at most.
    pub(super) requests_max: Option<u64>,
}

/// The result of the benchmark of mounts; serialised, it is the document that scripts read.
///
/// Every figure is the median over rounds, and every ratio the median of the ratios of the rounds.
#[derive(Clone, Debug, Serialize)]
pub struct MountReport {
    /// Version of the program.
    pub version: &'static str,
    /// The seed of the workload.
    pub seed: u64,
    /// Sizes and times.
    pub plan: FsPlan,
    /// The machine, and whether it was busy while the host's modes had their turns: the servers are others, too.
    pub machine: Machine,
    /// Where the files were.
    pub disk: ScratchDirectory,
    /// The ratios by name.
    pub ratios: BTreeMap<&'static str, f64>,
    /// The largest loss window seen in any turn on a volume.
    pub loss_window: LossWindowReport,
    /// The modes, in the order of a round.
    pub modes: Vec<MountModeReport>,
    /// Medians, smallest and largest values.
    pub spread: SpreadReport,
    /// Blocks read back and found right, over all modes; wrong ones end the benchmark.
    pub checked_blocks: u64,
}

/// The figures of one mode. Its processor time is that of the program that writes, without the server's.
#[derive(Clone, Debug, Serialize)]
pub struct MountModeReport {
    /// What a call promises.
    pub promise: Option<Promise>,
    /// Requests of the kernel that the server was answering at one time, at most; none without a server. What need not
    /// wait for the disk is answered as it comes, so these are those that wait.
    pub requests_max: Option<u64>,
    /// The largest loss window seen in the mode's turns, where calls order only.
    pub loss_window: Option<LossWindowReport>,
    /// What every mode has.
    #[serde(flatten)]
    pub mode: ModeReport,
}

impl MountReport {
    pub(super) fn new(
        plan: FsPlan,
        seed: u64,
        disk: ScratchDirectory,
        machine: Machine,
        found: &[MountTurn],
    ) -> MountReport {
        let turns: Vec<Turn> = found.iter().map(|found| found.turn.clone()).collect();
        let of = |mode: Mode| turns.iter().filter(move |turn| turn.mode == mode);
        let requests_max = |mode: Mode| {
            let found = found.iter().filter(|found| found.turn.mode == mode);
            found.filter_map(|found| found.requests_max).max()
        };
        let modes = Mode::MOUNTS.into_iter().filter_map(|mode| {
            let turns: Vec<&Turn> = of(mode).collect();
            let promise = mode.promise();
            let ordered = promise == Some(Promise::Ordered);
            Some(MountModeReport {
                promise,
                requests_max: requests_max(mode),
                loss_window: ordered.then(|| LossWindowReport::largest(turns.iter().copied())),
                mode: ModeReport::new(mode, 0, &turns)?,
            })
        });
        let modes: Vec<MountModeReport> = modes.collect();
        let iops = Mode::MOUNTS
            .into_iter()
            .filter_map(|mode| Some((mode.name(), Spread::of(of(mode).map(Turn::iops))?)));
        let ratios: BTreeMap<&'static str, Spread> =
            MOUNT_RATIOS.iter().filter_map(|ratio| Some((ratio.name, ratio.spread(&turns)?))).collect();
        MountReport {
            version: env!("CARGO_PKG_VERSION"),
            seed,
            plan,
            machine,
            disk,
            ratios: ratios.iter().map(|(&name, spread)| (name, spread.median)).collect(),
            loss_window: LossWindowReport::largest(&turns),
            modes,
            spread: SpreadReport { iops: iops.collect(), ratios },
            checked_blocks: turns.iter().map(|turn| turn.checked_blocks).sum(),
        }
    }
}
