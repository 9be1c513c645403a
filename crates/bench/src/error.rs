//! Why a benchmark ended without a result.

use std::path::PathBuf;

use thiserror::Error;
use weir_block::{BlockError, Refused};
use weir_runtime::Stalled;
use weir_storage::{FileDiskError, Rejected, StorageError, Violation};
use weir_vfs::FsError;
use weir_volume::VolumeError;

/// Why a benchmark ended without a result. Its files are gone in any case.
#[derive(Debug, Error)]
pub enum BenchError {
    /// The kernel refused something on a file.
    #[error("cannot {doing} in {}: {source}; choose another directory with --on, or with --backing for bench device", path.display())]
    File {
        /// What was tried.
        doing: &'static str,
        /// The directory, an absolute path.
        path: PathBuf,
        /// The kernel's answer.
        source: std::io::Error,
    },
    /// The scratch files of an earlier run were kept.
    #[error(
        "{} is there already, kept by an earlier run: delete the weir-bench-* files, or use another directory with --on",
        path.display()
    )]
    Kept {
        /// The first file that is in the way.
        path: PathBuf,
    },
    /// The filesystem is too full.
    #[error("{} has {free_mib} MiB free, and the benchmark needs {needed_mib} MiB: free some, or use another directory or a smaller --size", path.display())]
    NoRoom {
        /// The directory.
        path: PathBuf,
        /// MiB needed.
        needed_mib: u64,
        /// MiB free.
        free_mib: u64,
    },
    /// The size asked for makes no benchmark.
    #[error("a --size of {found_mib} MiB is out of range: use {min_mib} MiB to {max_mib} MiB")]
    Size {
        /// Asked for, in MiB.
        found_mib: u64,
        /// Smallest, in MiB.
        min_mib: u64,
        /// Largest, in MiB.
        max_mib: u64,
    },
    /// The emulated device is too small.
    #[error(
        "the device has {device_mib} MiB, and the benchmark needs {needed_mib} MiB: use a smaller --size"
    )]
    Capacity {
        /// What the profile says, in MiB.
        device_mib: u64,
        /// MiB needed.
        needed_mib: u64,
    },
    /// A mode of the host's filesystem where there is none.
    #[error("an emulated device has no filesystem of the host; leave the mode out")]
    NoFilesystem,
    /// Barrier writes were asked of a legacy device.
    #[error(
        "{device} keeps no barriers (its mechanism is none), so B is left out: choose XnF, X or P, or a device with a mechanism"
    )]
    NoBarriers {
        /// The device's profile.
        device: String,
    },
    /// A mode of the benchmark of filesystems in that of volumes, or the other way round.
    #[error("the mode belongs to another benchmark; leave it out")]
    OtherBenchmark,
    /// The file disk could not be opened.
    #[error(transparent)]
    Disk(#[from] FileDiskError),
    /// A command to a storage failed.
    #[error(transparent)]
    Storage(#[from] Rejected),
    /// The volume could not be made or opened.
    #[error(transparent)]
    Volume(#[from] VolumeError),
    /// The filesystem on the volume could not be made, mounted or used.
    #[error("BarrierFS: {0}")]
    Filesystem(#[from] FsError),
    /// The filesystem is damaged after it was unmounted: the figures are worthless.
    #[error("after it was unmounted, the filesystem has {total} errors; the first: {first}")]
    Damaged {
        /// The first finding.
        first: String,
        /// How many there are.
        total: u64,
    },
    /// A server of a mount did not do what it is for.
    #[error("cannot {doing}: {told}")]
    Server {
        /// What was tried.
        doing: &'static str,
        /// What it said, or the kernel.
        told: String,
    },
    /// A program of the system did not do what it is for.
    #[error(
        "{program} failed: {told}; the benchmark needs losetup, mount (package mount) and mkfs.ext4, e2fsck (e2fsprogs)"
    )]
    Program {
        /// Its name.
        program: &'static str,
        /// What it said, or the kernel.
        told: String,
    },
    /// A job of everyday work failed.
    #[error(
        "{program}: {told}; the benchmark needs tar, diff (package diffutils), find (findutils), grep, cp, rm and git"
    )]
    Job {
        /// The program that does it, or what it works on.
        program: &'static str,
        /// What it said, or the kernel.
        told: String,
    },
    /// A call on a mount failed.
    #[error("{mode}: {source}")]
    Mount {
        /// What was being done.
        mode: String,
        /// The kernel's answer.
        source: std::io::Error,
    },
    /// The block layer could not be made.
    #[error(transparent)]
    Block(#[from] BlockError),
    /// The block layer refused a request.
    #[error(transparent)]
    Refused(#[from] Refused),
    /// A block does not hold what was written last: the figures are worthless.
    #[error(
        "block {block} does not hold version {version} of run {run}, which was written last: the storage lost or mixed up data"
    )]
    Content {
        /// The block.
        block: u64,
        /// The run that wrote it; 0 for a block that must read zero.
        run: u32,
        /// The version of that run.
        version: u32,
    },
    /// Blocks were acknowledged that never went to the disk: the figures would compare unlike things.
    #[error(
        "{user_blocks} blocks were written, but only {data_blocks} went to the disk: overwritten blocks were dropped before"
    )]
    Dropped {
        /// Blocks that the workload wrote.
        user_blocks: u64,
        /// Data blocks that the volume wrote to the disk.
        data_blocks: u64,
    },
    /// SQLite failed.
    #[error("SQLite: {0}")]
    Sqlite(#[from] weir_sqlite_vfs::rusqlite::Error),
    /// A database does not hold what was inserted: the figures are worthless.
    #[error("the database has {found} rows of {inserts}, and its check says: {whole}")]
    Database {
        /// Rows that are there.
        found: u64,
        /// Rows that were inserted.
        inserts: u64,
        /// What `integrity_check` says.
        whole: String,
    },
    /// Nothing was left to wait for.
    #[error(transparent)]
    Stalled(#[from] Stalled),
    /// The order recorder saw writes persist in the wrong order.
    #[error("order was broken: {0}; this is a bug of Weir or of the device")]
    Order(#[from] Violation),
}

impl From<StorageError> for BenchError {
    fn from(error: StorageError) -> BenchError {
        BenchError::Storage(Rejected::Failed(error))
    }
}
