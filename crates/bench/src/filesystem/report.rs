//! What the benchmark of filesystems found.

use std::collections::BTreeMap;
use weir_fs::Engine;
use weir_vfs::{Promise, SyncCall};

use serde::{Serialize, Serializer};

use crate::filesystem::mode::FsWrite;
use crate::filesystem::plan::FsPlan;
use crate::host::HostCalls;
use crate::mode::Mode;
use crate::ratio::{About, Quantity, Ratio};
use crate::summary::{LossWindowReport, ModeReport, Setting, Summary, rate};
use crate::turn::Turn;

const FSYNC: Mode = Mode::barrier_fs(FsWrite::Append, SyncCall::Fsync);
const FDATASYNC: Mode = Mode::barrier_fs(FsWrite::Append, SyncCall::Fdatasync);
const FBARRIER: Mode = Mode::barrier_fs(FsWrite::Append, SyncCall::Fbarrier);
const FDATABARRIER: Mode = Mode::barrier_fs(FsWrite::Overwrite, SyncCall::Fdatabarrier);

/// Rates by the names that scripts rely on: calls a second, each after a write of 4 KiB; `fdatabarrier` after one
/// over what is there, the others after one that allocates.
pub const RATES: [(&str, Mode); 4] = [
    ("fsync_per_second", FSYNC),
    ("fdatasync_per_second", FDATASYNC),
    ("fbarrier_per_second", FBARRIER),
    ("fdatabarrier_per_second", FDATABARRIER),
];

/// All ratios of this benchmark, in the order in which they are told.
pub const FS_RATIOS: [Ratio; 10] = [
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
    Ratio {
        name: "fsync_coalition_vs_whole_blocks",
        title: "BarrierFS fsync: coalition / whole blocks",
        meaning: "append + fsync with a journal that logs changed bytes, over the same with one that logs whole blocks: nearly all of both is the disk's flush",
        about: About::ThisDisk,
        over: Mode::coalition(Engine::DUAL, SyncCall::Fsync),
        under: FSYNC,
        of: Quantity::Writes,
    },
    Ratio {
        name: "fbarrier_coalition_vs_whole_blocks",
        title: "BarrierFS fbarrier: coalition / whole blocks",
        meaning: "append + fbarrier with a journal that logs changed bytes, over the same with one that logs whole blocks",
        about: About::Weir,
        over: Mode::coalition(Engine::DUAL, SyncCall::Fbarrier),
        under: FBARRIER,
        of: Quantity::Writes,
    },
    Ratio {
        name: "f2fs_fsync_vs_barrierfs",
        title: "fsync: F2FS / BarrierFS",
        meaning: "append + fsync through F2FS, over the same through BarrierFS: both durable at once, one flush each",
        about: About::ThisDisk,
        over: Mode::f2fs(FsWrite::Append, SyncCall::Fsync),
        under: FSYNC,
        of: Quantity::Writes,
    },
    Ratio {
        name: "f2fs_fbarrier_vs_barrierfs",
        title: "fbarrier: F2FS / BarrierFS",
        meaning: "append + fbarrier through F2FS, which writes a node beside the data, over the same through BarrierFS, which writes a transaction",
        about: About::Weir,
        over: Mode::f2fs(FsWrite::Append, SyncCall::Fbarrier),
        under: FBARRIER,
        of: Quantity::Writes,
    },
    Ratio {
        name: "f2fs_update_vs_barrierfs",
        title: "updates: F2FS / BarrierFS",
        meaning: "overwrite as an update, which a crash leaves as a whole, + fsync: F2FS's atomic writes, which write data once, over an atomic file of BarrierFS, whose data goes through the journal",
        about: About::ThisDisk,
        over: Mode::f2fs(FsWrite::Update, SyncCall::Fsync),
        under: Mode::barrier_fs(FsWrite::Update, SyncCall::Fsync),
        of: Quantity::Writes,
    },
];

/// The result of the benchmark of filesystems, or of mounts; serialised, it is the document that scripts read.
#[derive(Clone, Debug, Serialize)]
pub struct FileReport {
    /// What was run, and where.
    #[serde(flatten)]
    pub setting: Setting<FsPlan>,
    /// The rates by name, in calls a second; of mounts none.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub rates: BTreeMap<&'static str, f64>,
    /// What was found.
    #[serde(flatten)]
    pub summary: Summary<FileModeReport>,
}

/// Writes a promise by its name.
fn serialize_promise<S: Serializer>(promise: &Option<Promise>, serializer: S) -> Result<S::Ok, S::Error> {
    promise.map(Promise::name).serialize(serializer)
}

/// The figures of one mode.
#[derive(Clone, Debug, Serialize)]
pub struct FileModeReport {
    /// What a call promises.
    #[serde(serialize_with = "serialize_promise")]
    pub promise: Option<Promise>,
    /// What servers tell; none in the benchmark of filesystems.
    #[serde(flatten)]
    pub server: Option<ServerReport>,
    /// The largest loss window seen in the mode's turns, where calls order only.
    pub loss_window: Option<LossWindowReport>,
    /// What every mode has. On a mount its processor time is that of the program that writes, without the server's.
    #[serde(flatten)]
    pub mode: ModeReport,
}

/// What servers tell in the turns of a mode.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct ServerReport {
    /// Requests of the kernel that the server was answering at one time, at most; none without a server. What need not
    /// wait for the disk is answered as it comes, so these are those that wait.
    pub requests_max: Option<u64>,
}

impl FileReport {
    /// Of these modes, with these rates and ratios.
    pub(crate) fn new(
        setting: Setting<FsPlan>,
        modes: &[Mode],
        rates: &[(&'static str, Mode)],
        ratios: &[Ratio],
        turns: &[Turn],
    ) -> FileReport {
        let rates = rates.iter().filter_map(|&(name, mode)| Some((name, rate(mode, turns)?.median)));
        let has_servers = modes.iter().any(|mode| matches!(mode, Mode::Mount(_)));
        let summary = Summary::new(modes, ratios, turns, |mode, turns| {
            let requests_max = turns.iter().filter_map(|turn| turn.requests_max).max();
            Some(FileModeReport {
                promise: mode.promise(),
                server: has_servers.then_some(ServerReport { requests_max }),
                loss_window: LossWindowReport::of_ordered(mode, turns),
                mode: ModeReport::new(mode, 0, turns)?,
            })
        });
        FileReport { setting, rates: rates.collect(), summary }
    }
}
