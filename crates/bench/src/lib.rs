//! The benchmarks of Weir: ordered writes, and their measurement.
//!
//! The benchmark puts ways of writing side by side on one disk: straight to the disk, through the host's
//! filesystem, and through Weir with and without order. All write incompressible pages that say which write
//! they come from, all make the same kind of choices, all are timed by the same clock read, and all are read
//! back afterwards.
//!
//! | noun | what it is |
//! |---|---|
//! | [`Chooser`], [`Writes`] | which block is written next; a clone repeats the choices |
//! | [`Pages`], [`Stamp`] | what is written, and the proof of which write it was |
//! | [`Ledger`] | what each block must hold, checked by reading back |
//! | [`Meter`], [`Measured`] | one clock read a write: latency, depth, processor time |
//! | [`Mode`], [`Turn`] | a way of writing, and one round of it |
//! | [`Plan`] | sizes, rounds, quota |
//! | `Rounds` | whose turn it is, and how far the benchmark is |
//! | [`Setting`], [`Summary`] | what every report has: medians, spreads, ratios |
//! | [`Report`] | that of a disk |
//! | [`simulate`] | how fast an emulated device is simulated |
//! | [`everyday`] | what people do with a tree of files, on the host's filesystem and on a mount |
//! | [`door_reads`] | reads through a mount and `weir disk`, beside the host's filesystem |
//! | [`reads`] | reads of an emulated device, and of a volume and files on it |
//! | [`Emulated`] | an emulated device in place of a disk, in wall time |
//! | [`trace`] | a run on an emulated device, told to a probe |
//!
//! [`bench`] runs the whole of it; [`filesystems`] puts BarrierFS and F2FS beside the host's filesystem, [`mounts`] the mounts,
//! and [`sqlite`] SQLite; [`cleaning`] counts what cleaning costs, [`cleaners`] times F2FS's, and [`recovery`] times recovery.
//! [`RawRun`] works on any [`Storage`](weir_storage::Storage), [`VolumeWriter`] on a volume, both in virtual time too.

mod bench;
mod caller;
mod chooser;
mod cleaners;
mod cleaning;
mod content;
mod door_reads;
mod emulated;
mod error;
mod everyday;
mod filesystem;
mod host;
mod host_files;
mod ledger;
mod machine;
mod measure;
mod mode;
mod mounts;
mod plan;
mod ratio;
mod raw;
mod reads;
mod recovery;
mod report;
mod rounds;
mod scratch;
mod simulated;
mod sqlite;
mod statistics;
mod summary;
mod target;
mod turn;
mod volume_writer;
mod writes;

pub use bench::bench;
pub use caller::WeirCalls;
pub use chooser::{Chooser, Distribution, ZIPF_EXPONENT};
pub use cleaners::{CleanerReport, CleanersCase, CleanersReport, cleaners};
pub use cleaning::{CleaningCase, CleaningReport, cleaning};
pub use content::{Pages, Stamp};
pub use door_reads::{DoorRates, DoorReadsPlan, DoorReadsReport, door_reads};
pub use emulated::{DeviceReport, Emulated};
pub use error::BenchError;
pub use everyday::{EverydayPlan, EverydayReport, Job, JobReport, everyday};
pub use filesystem::{
    FS_RATIOS, FileCall, FileModeReport, FileReport, FsKind, FsMode, FsPlan, FsWrite, JournalProbe,
    JournalWrite, Promise, RATES, ServerReport, filesystems, trace_files,
};
pub use host::HostCalls;
pub use ledger::{Coverage, Ledger};
pub use machine::{Load, Machine, Usage};
pub use measure::{Goal, Measured, Meter};
pub use mode::Mode;
pub use mounts::{MOUNT_RATIOS, MountCalls, mounts};
pub use plan::{BenchOptions, Plan};
pub use ratio::{About, Ratio};
pub use raw::{RawRun, fill};
pub use reads::{ReadGround, ReadRates, ReadsOptions, ReadsReport, reads};
pub use recovery::{RecoveryTime, recovery};
pub use report::{RATIOS, Report};
pub use rounds::Progress;
pub use scratch::{Scratch, ScratchDirectory};
pub use simulated::{SimulatedOptions, SimulatedReport, simulate, trace};
pub use sqlite::{
    SQLITE_RATIOS, SqliteGrounds, SqliteJournal, SqlitePlace, SqliteRatio, SqliteReport, SqliteWay,
    SqliteWayReport, Synchronous, sqlite,
};
pub use statistics::Spread;
pub use summary::{DiskBytes, LatencyReport, LossWindowReport, ModeReport, Setting, SpreadReport, Summary};
pub use turn::Turn;
pub use volume_writer::{VolumeWriter, Work};
pub use writes::{Span, Writes};
