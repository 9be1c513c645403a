//! Why the program could not do what it was asked to: one line that names the cause and what to do.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use thiserror::Error;
use weir_bench::BenchError;
use weir_bucket::PlaceError;
use weir_crash::{ParseError, PlayError, SetupError};
use weir_figures::FigureError;
use weir_flash::ProfileError;
use weir_format::FormatError;
use weir_fuse::ServerError;
use weir_image::ImageError;
use weir_program::{CampaignError, DiskGroundError, DriveError, RoundsError, RunError, RunTraceError};
use weir_replica::{ReplicaError, StoreError};
use weir_runtime::{RuntimeError, Stalled};
use weir_stack::StackError;
use weir_storage::{FileDiskError, Rejected};
use weir_vfs::FsError;
use weir_volume::{SnapshotError, StreamError, VolumeError};
use weir_workload::TraceError;

use crate::handover::HandoverError;
use crate::occupant::{Content, Occupant};
use crate::size::Size;

/// Why a command failed.
#[derive(Debug, Error)]
pub(crate) enum CliError {
    /// The benchmark failed.
    #[error(transparent)]
    Bench(#[from] BenchError),
    /// A replica cannot be written or read.
    #[error(transparent)]
    Replica(#[from] ReplicaError),
    /// The store of a volume that is to be used with it does not answer.
    #[error("{0}; to begin without the store, and ship what it lacks when it answers: --never-wait")]
    StoreSilent(StoreError),
    /// The file of a mount of a replica does not go with it.
    #[error(
        "{}: {source}; without this file the mount begins with the newest state of the replica, and what only the file has is lost; or \
         mount the replica by --read-only",
        path.display()
    )]
    Cache { path: PathBuf, source: ReplicaError },
    /// What is mounted of a replica cannot be read.
    #[error("{}: {failure}", url.display())]
    ReplicaRead { url: PathBuf, failure: String },
    /// There is no place for a replica.
    #[error(transparent)]
    Place(#[from] PlaceError),
    /// A key is none.
    #[error("{0}: no key: write 64 hexadecimal digits, such as those of `openssl rand -hex 32`")]
    ReplicaKey(String),
    /// The device's profile is wrong.
    #[error(transparent)]
    Profile(#[from] ProfileError),
    /// A stack cannot be put together.
    #[error(transparent)]
    Stack(#[from] StackError),
    /// A figure gives no result.
    #[error(transparent)]
    Figure(#[from] FigureError),
    /// A crash test cannot be made.
    #[error(transparent)]
    Crash(#[from] SetupError),
    /// A workload cannot be read.
    #[error("{}: {source}", path.display())]
    Workload { path: PathBuf, source: ParseError },
    /// A block trace cannot be read.
    #[error("{}: {source}", path.display())]
    Trace { path: PathBuf, source: TraceError },
    /// A workload of nothing would be kept, whatever is wrong.
    #[error("{path}: it has no operation: write one a line, such as create /a, as docs/crash.md says", path = .0.display())]
    NoOperation(PathBuf),
    /// A workload cannot be played.
    #[error("{workload}: {source}")]
    Play {
        /// The file, or the name.
        workload: String,
        source: PlayError,
    },
    /// A program cannot be recorded.
    #[error(transparent)]
    Program(RunError),
    /// States of a program cannot be checked.
    #[error(transparent)]
    States(#[from] CampaignError),
    /// There is no such disk for a program.
    #[error(transparent)]
    DiskGround(#[from] DiskGroundError),
    /// There is no such drive below the disk.
    #[error(transparent)]
    Drive(#[from] DriveError),
    /// A program cannot be cut and started again.
    #[error(transparent)]
    Rounds(#[from] RoundsError),
    /// The file of a test of a program.
    #[error("{}: {source}: docs/crash-program.md has its keys", path.display())]
    ProgramFile {
        /// The file.
        path: PathBuf,
        source: toml::de::Error,
    },
    /// The record of a program.
    #[error("{}: {source}", path.display())]
    ProgramTrace {
        /// The file.
        path: PathBuf,
        source: RunTraceError,
    },
    /// The runtime could not start.
    #[error(transparent)]
    Runtime(#[from] RuntimeError),
    /// The arguments do not fit together.
    #[error("{0}")]
    Usage(&'static str),
    /// The server process has failed, and has written why to standard error.
    #[error("the server process failed; its message is above")]
    Silent,
    /// The filesystem could not be mounted.
    #[error(transparent)]
    Server(ServerError),
    /// What the server before has handed over cannot be used.
    #[error("cannot take a mount over: {0}")]
    Handover(HandoverError),
    /// Nothing orders all of what is there.
    #[error(
        "cannot order what is on {}: Operation not supported; name the directory that a filesystem of Weir is \
         mounted on: an overlay over it, weir disk, and servers from before this command do not take it",
        .0.display()
    )]
    NoBarrier(PathBuf),
    /// The server of a mount cannot be restarted.
    #[error("{}: its server cannot be restarted: only that of an ext4 filesystem can; unmount it, and mount it again", .0.display())]
    NoRestart(PathBuf),
    /// It was not.
    #[error("{}: the server was not restarted, and goes on: {why}", path.display())]
    RestartRefused { path: PathBuf, why: String },
    /// It had closed everything, and could not start the next one.
    #[error("{}: no program could take the server's place: {source}; everything is durable, mount it again", path.display())]
    NoSuccessor { path: PathBuf, source: std::io::Error },
    /// A server's socket has failed.
    #[error("{address}: clients cannot connect any more: {source}; run the command again")]
    ListenerFailed {
        /// Where it listened.
        address: String,
        source: std::io::Error,
    },
    /// There is no block device.
    #[error(transparent)]
    Ublk(#[from] weir_ublk::UblkError),
    /// Another server has the socket.
    #[error("{path}: a server listens there already: name another socket, or end that server", path = .0.display())]
    ServedThere(PathBuf),
    /// Something else than a socket is there.
    #[error("{path} exists, and is no socket: name another path, or remove it yourself", path = .0.display())]
    NoSocket(PathBuf),
    /// The name of the socket for the status would be too long.
    #[error(
        "{}: its path has {bytes} bytes, and {most} fit, since the socket for `weir status` beside it has `.status` more: use a \
         shorter one",
        path.display()
    )]
    SocketPath { path: PathBuf, bytes: usize, most: usize },
    /// The processors cannot be kept from sleeping.
    #[error(
        "cannot keep processors from sleeping by /dev/cpu_dma_latency: {0}: leave out --awake, or run it as root"
    )]
    Awake(#[source] std::io::Error),
    /// No way to the kernel.
    #[error("cannot open /dev/fuse: {source}; {}", hint_for_open_error(source))]
    NoFuse { source: std::io::Error },
    /// The kernel did not mount it.
    #[error("cannot mount on {}: {}{}", path.display(), source.to_string().trim_end(), hint_for_mount_error(source))]
    NoMount {
        path: PathBuf,
        /// What the kernel or `fusermount3` said.
        source: std::io::Error,
    },
    /// Without flushes, and on a storage that keeps no order by itself.
    #[error(
        "--engine jbd2-nobarrier needs a volume, or a drive that preserves order: on other storage a crash would damage \
         the filesystem: leave --engine out, or take --engine jbd2"
    )]
    NoOrder,
    /// There is no directory to mount on.
    #[error("cannot mount on {path}: No such file or directory: make the directory first: `mkdir -p {path}`", path = .0.display())]
    NoMountpoint(PathBuf),
    /// A file is where the directory to mount on should be.
    #[error("cannot mount on {path}: Not a directory: name the volume or image first, and behind it a directory", path = .0.display())]
    MountpointNoDirectory(PathBuf),
    /// Options of `mount` are not those of `weir mount`.
    #[error("-o is an option of `mount -t weir` and of fstab: in place of `-o {given}` {instead}")]
    MountOptions {
        /// What was given.
        given: String,
        /// What to do.
        instead: String,
    },
    /// Something of Weir is there.
    #[error("{path}: a filesystem of Weir is mounted there already: name another directory, or run `weir umount` on it first", path = .0.display())]
    MountedThere(PathBuf),
    /// No status.
    #[error("{path}: no filesystem of Weir is mounted there", path = .0.display())]
    NotMounted(PathBuf),
    /// No status, since it is an image.
    #[error("{path} is not on a mount of Weir: name the directory that it is mounted on; `weir volume info {path}` shows a volume \
         that is not mounted, and `weir fsck {path}` checks a filesystem", path = .0.display())]
    NotMountedFile(PathBuf),
    /// Another user's mount.
    #[error(
        "{}: user {owner} mounted it, and only that user may {doing}: `sudo -u {owner} weir {command} {}`",
        path.display(), path.display()
    )]
    OtherOwner {
        path: PathBuf,
        /// The user who mounted it.
        owner: String,
        /// What was to be done.
        doing: &'static str,
        /// The command that does it.
        command: &'static str,
    },
    /// The kernel has a mount, and no server answers for it.
    #[error("{path}: its server has ended without unmounting, and writes that were not durable may be lost: run `weir umount` on it, then mount it again", path = .0.display())]
    ServerEnded(PathBuf),
    /// Programs use the mount.
    #[error("{path}: programs have files open there, or work in it (`fuser -vm {path}` lists them; your own shell may be one): end them, then try again; everything written so far is durable", path = .0.display())]
    MountBusy(PathBuf),
    /// It lies on a mount.
    #[error("{}: not a mountpoint; it is on the mount {}", path.display(), mountpoint.display())]
    NotMountpoint {
        path: PathBuf,
        /// The mount's root.
        mountpoint: PathBuf,
    },
    /// A user who may not write cannot ask for durability in this way.
    #[error("{path}: you may not write there, so `weir umount` cannot make it durable for you: run it as a user who may write there, or run `fusermount3 -u`", path = .0.display())]
    MayNotSynchronise(PathBuf),
    /// The writes on a mount cannot be made durable, so it stays.
    #[error(
        "{}: cannot make it durable: {source}; it is still mounted, so copy what you need, then run umount",
        path.display()
    )]
    NotDurable { path: PathBuf, source: std::io::Error },
    /// The disk below ran full, and still is.
    #[error(
        "{}: the disk below ran full, and the newest writes could not be made durable; it has {free} free: free {needed} there, then run `weir umount` again. It is still mounted, so copy what you need; `umount` ends it without that",
        path.display()
    )]
    FullBelow {
        path: PathBuf,
        /// What is free there.
        free: Size,
        /// What has to be.
        needed: Size,
    },
    /// A server that does not answer.
    #[error(
        "{}: its server did not answer within {seconds} s: it may be stopped (`ps -C weir -o pid,stat,args` shows T then), or wait for a disk that does not answer",
        path.display()
    )]
    Unanswered { path: PathBuf, seconds: u32 },
    /// The file of what was mounted was cut meanwhile.
    #[error(
        "{}: it is unmounted, but its file was cut while it was mounted, and what was behind the cut is lost: run `truncate -s {bytes}` and `{check}` on the file",
        path.display()
    )]
    FileCut {
        path: PathBuf,
        /// Bytes that the file had.
        bytes: u64,
        /// The command that says what is lost.
        check: &'static str,
    },
    /// Files lack what was written through shared mappings.
    #[error(
        "{0}: {files} of its files lack data that a program wrote through a shared mapping or the writeback cache: {source}. It is still mounted. \
         `find {0} -xdev -inum {inode}` finds the first of them (0: there are too many to name). Make room; then write that part again, or delete the file. `umount` ends the mount and loses that part",
        path.display()
    )]
    LostPages {
        path: PathBuf,
        files: u64,
        /// The inode of one of them.
        inode: u32,
        /// Why writing failed.
        source: std::io::Error,
    },
    /// No engine has this name.
    #[error(transparent)]
    UnknownEngine(#[from] weir_fs::UnknownEngine),
    /// An engine cannot be mounted on a ground of a campaign.
    #[error("engine {engine} needs {needs}, which {ground} does not keep: {instead}, or another --ground")]
    EngineNeeds {
        engine: weir_fs::Engine,
        /// What it needs.
        needs: &'static str,
        ground: &'static str,
        /// How to have another engine.
        instead: &'static str,
    },
    /// Some of what was to be copied is damaged; each part was reported.
    #[error(
        "{failed} files or directories could not be read in whole, each named above; everything else was copied"
    )]
    Incomplete {
        /// How many entries.
        failed: u64,
    },
    /// The runtime has nothing left to wait for.
    #[error(transparent)]
    Stalled(#[from] Stalled),
    /// The path is no disk, or not a usable one.
    #[error(transparent)]
    Disk(FileDiskError),
    /// The host has no space for the new file.
    #[error(
        "no space for {}: it takes {needed}, and {free} are free there; free some, or use a smaller size or another disk",
        path.display()
    )]
    NoSpace { path: PathBuf, needed: Size, free: Size },
    /// The filesystem on the path cannot be checked.
    #[error("{}: {source}", path.display())]
    Fsck { path: PathBuf, source: FsckError },
    /// The volume on the path cannot be used.
    #[error("{}: {source}", path.display())]
    Volume { path: PathBuf, source: VolumeError },
    /// Nobody has the socket.
    #[error("{}: no `weir serve` listens there; name its socket as --nbd or --vhost-user has it, or the device of --ublk", .0.display())]
    NotServed(PathBuf),
    /// Something else has the socket, or what it says has another form.
    #[error("{}: what listens there is no `weir serve`, or one of another version", .0.display())]
    NotWeirServer(PathBuf),
    /// A server by TCP has no socket for its status.
    #[error(
        "{0}: a server by TCP has no socket for its status, so it cannot be asked: `ps -C weir -o pid,args` shows its process; one by \
         --nbd unix:PATH can be asked"
    )]
    NoStatusByPort(String),
    /// It is no mount.
    #[error("{} is served by `weir serve`, process {process}: `kill {process}` makes everything durable and ends it", path.display())]
    Served { path: PathBuf, process: u32 },
    /// The volume on the path cannot be grown or shrunk so.
    #[error("{}: {cause}", path.display())]
    Resize { path: PathBuf, cause: String },
    /// A filesystem would lose its end.
    #[error(
        "{}: the volume would have {capacity}, and the filesystem in it has {filesystem}: shrink the filesystem first",
        path.display()
    )]
    FilesystemTooLarge { path: PathBuf, filesystem: Size, capacity: Size },
    /// The snapshots of the volume on the path cannot be changed so.
    #[error("{}: {source}", path.display())]
    Snapshot { path: PathBuf, source: SnapshotError },
    /// A snapshot cannot be sent or received.
    #[error("{}: {source}", path.display())]
    Stream { path: PathBuf, source: StreamError },
    /// It holds nothing that Weir knows.
    #[error("{}: neither ext4, nor F2FS, nor a volume of Weir: {}", path.display(), what_is_there(path, *found))]
    Foreign {
        path: PathBuf,
        /// What it holds.
        found: Content,
    },
    /// A filesystem where a volume is wanted.
    #[error(
        "{0}: no volume of Weir; it holds an ext4 filesystem, and `weir ls {0}` and `weir fsck {0}` look at that",
        path.display()
    )]
    NoVolume { path: PathBuf },
    /// A volume is mounted that has none.
    #[error(
        "{}: it holds no ext4 filesystem: serve it by `weir serve` (a replica: restore it first), or make one by `weir mkfs --volume`",
        path.display()
    )]
    NoFilesystem { path: PathBuf },
    /// What is to be served is no volume.
    #[error(
        "{source}; `weir serve` takes a volume: make one by `weir volume create`, serve it, and copy an image into it by `qemu-img convert` \
         (docs/nbd.md)"
    )]
    NotServable { source: Box<CliError> },
    /// A report would go to a file that is something else.
    #[error("{path} exists, and is no report of this kind: name another file, or remove it yourself", path = .0.display())]
    NotOverwritten(PathBuf),
    /// A report or a log would go to what is no file of the user's own.
    #[error("{} is {what}; reports and logs are written only to regular files of your own: name another file", path.display())]
    NoReportFile {
        path: PathBuf,
        /// What it is.
        what: &'static str,
    },
    /// No mount fits the memory.
    #[error("--memory {asked} is too little: this mount takes {needed} at least")]
    MemoryLimitTooSmall {
        asked: Size,
        /// What it takes at least, in whole MiB.
        needed: Size,
    },
    /// There is data that only `--force` overwrites.
    #[error("{}: {source}; to destroy what is there, add --force", path.display())]
    Occupied { path: PathBuf, source: VolumeError },
    /// A file that is not there has no size.
    #[error("{path} does not exist yet, or is empty: give its size, as in --size 4G", path = .0.display())]
    NoSize(PathBuf),
    /// There is no directory to make a file in.
    #[error("{0}: there is no directory {1}: make it first: `mkdir -p {1}`", path.display(), directory.display())]
    NoDirectory {
        path: PathBuf,
        /// The directory.
        directory: PathBuf,
    },
    /// What is there has a size already.
    #[error(
        "{} has {found} ({} bytes), not the {asked} ({} bytes) of --size: leave out --size, or name another file",
        path.display(), found.0, asked.0
    )]
    OtherSize { path: PathBuf, found: Size, asked: Size },
    /// No volume or filesystem is as small.
    #[error("a --size of {asked} is too small: use {least} or more")]
    TooFewBytes {
        asked: Size,
        /// The least that does.
        least: Size,
    },
    /// No volume fits.
    #[error("{}: {found} is too small for a volume, which takes {needed} at least: use a larger --size, or another device", path.display())]
    TooSmall {
        path: PathBuf,
        /// Size that would do, in whole MiB.
        needed: Size,
        found: Size,
    },
    /// No filesystem fits into the volume.
    #[error(
        "{}: that leaves only {left} in the volume, and the filesystem takes {least} at least: use --size {least_of_volume} or more",
        path.display()
    )]
    NoRoomInVolume {
        path: PathBuf,
        left: Size,
        /// What the filesystem takes.
        least: Size,
        /// What a volume takes that it fits into.
        least_of_volume: Size,
    },
    /// No filesystem fits.
    #[error("{}: {found} is too small for the filesystem, which takes {least} at least", path.display())]
    NoRoomForFilesystem {
        path: PathBuf,
        found: Size,
        /// What it takes.
        least: Size,
    },
    /// The map of so many logical blocks leaves no room.
    #[error(
        "{}: a --logical size of {logical} takes {needed} on disk at least, and there is {found}: lower --logical, or use a larger --size",
        path.display()
    )]
    LogicalTooLarge {
        path: PathBuf,
        /// The capacity asked for.
        logical: Size,
        /// Size on disk that would do, in whole MiB.
        needed: Size,
        /// Size on disk.
        found: Size,
    },
    /// Not one block.
    #[error("a --logical size of {0} is less than one block of 4096 B: use a larger one")]
    LogicalTooSmall(Size),
    /// The disk lost its end.
    #[error(
        "{}: the volume was made with {needed} on disk, and only {found} are left: restore it from a copy, or if it is a file, run \
         `truncate -s {}` and `weir volume repair` on it, which says what is lost",
        path.display(), needed.0
    )]
    Truncated {
        path: PathBuf,
        /// Size that the volume was made with.
        needed: Size,
        /// Size that is there.
        found: Size,
    },
    /// A copy that was made while the volume was open.
    #[error(
        "{}: this is a copy of, or another path to, a volume that process {process} has open: unmount the volume, then copy it; to \
         mount the copy as a crash would have left it, add --after-crash",
        path.display()
    )]
    CopyOfOpen {
        path: PathBuf,
        /// The process that has the volume open.
        process: u32,
    },
    /// Another process has the volume or image open.
    #[error(
        "{} is in use{}: {}",
        path.display(),
        holder.as_ref().map(|holder| format!(" by {holder}")).unwrap_or_default(),
        what_frees(mountpoint.as_deref(), served.as_ref())
    )]
    Held {
        path: PathBuf,
        /// The process that has it, if the kernel names it.
        holder: Option<String>,
        /// Where it is mounted, if this process sees that.
        mountpoint: Option<PathBuf>,
        /// The process that serves it, and where, if it does.
        served: Option<(u32, String)>,
    },
    /// The file could not be made ready.
    #[error("cannot {doing} {}: {source}", path.display())]
    File {
        /// What was tried.
        doing: &'static str,
        path: PathBuf,
        source: std::io::Error,
    },
    /// There is data that only `--force` overwrites.
    #[error("{}: it is not empty: there is {found}; {}", path.display(), what_overwrites(*found))]
    InUse { path: PathBuf, found: Occupant },
    /// A volume is to be restored where something is.
    #[error("{}: it is not empty: there is {found}; name another file, or remove it yourself", path.display())]
    RestoredOver { path: PathBuf, found: Occupant },
    /// After a crash, the filesystem cannot be read without changing it.
    #[error(
        "{}: the journal has to be replayed first, and that is more than is kept in memory: run `weir mount` and `weir umount` on it once",
        path.display()
    )]
    NeedsRecovery { path: PathBuf },
    /// An option that F2FS does not have.
    #[error("{}: F2FS does not have the option {option}: leave it out", path.display())]
    OptionOfExt4 { path: PathBuf, option: &'static str },
    /// The filesystem in an image cannot be used.
    #[error("{}: {source}{}", path.display(), what_shows_damage(path, source))]
    Image { path: PathBuf, source: FsError },
    /// Something in an image could not be read or changed.
    #[error("{} in {}: {source}", inside, path.display())]
    InImage {
        path: PathBuf,
        /// The path in it.
        inside: String,
        source: FsError,
    },
    /// An image gives more than it can hold.
    #[error("{}: {source}; run `weir fsck` on it", path.display())]
    Overfull {
        path: PathBuf,
        /// Where that was noticed.
        source: ImageError,
    },
    /// A directory is copied only with what is in it.
    #[error("{path} is a directory: to copy it with everything in it, add --recursive", path = .0.display())]
    Directory(PathBuf),
    /// Standard output is gone.
    #[error("cannot write to standard output: {0}")]
    Output(#[from] std::io::Error),
    /// The result could not be written as JSON.
    #[error("cannot write the result as JSON: {0}")]
    Json(#[from] serde_json::Error),
}

/// Why an image cannot be checked.
#[derive(Debug, Error)]
pub(crate) enum FsckError {
    /// It is no filesystem that Weir reads.
    #[error(transparent)]
    Format(#[from] FormatError),
    /// The disk does not return its blocks.
    #[error("blocks {first} to {last} cannot be read: {source}")]
    Read {
        /// The first block of the command that failed.
        first: u64,
        /// The last.
        last: u64,
        /// What the disk said.
        source: Rejected,
    },
}

impl CliError {
    /// What is wrong with the volume on `path`, its sizes in units.
    pub(crate) fn of_volume(path: &Path, source: VolumeError) -> CliError {
        let path = path.to_owned();
        match source {
            VolumeError::Truncated { needed, found } => {
                CliError::Truncated { path, needed: Size::of_blocks(needed), found: Size::of_blocks(found) }
            }
            VolumeError::CopyOfOpen(opener) => CliError::CopyOfOpen { path, process: opener.process },
            source => CliError::Volume { path, source },
        }
    }

    /// What the program ends with.
    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            CliError::Unanswered { .. } => 3,
            _ => 2,
        }
    }

    /// Whether the kernel refused a call for want of permission.
    pub(crate) fn is_denied(&self) -> bool {
        matches!(self, CliError::File { source, .. } if source.kind() == ErrorKind::PermissionDenied)
    }
}

impl From<FileDiskError> for CliError {
    fn from(error: FileDiskError) -> CliError {
        match error {
            FileDiskError::NoSpace { path, needed_mib, free_mib } => {
                CliError::NoSpace { path, needed: Size(needed_mib << 20), free: Size(free_mib << 20) }
            }
            error => CliError::Disk(error),
        }
    }
}

impl From<RunError> for CliError {
    fn from(error: RunError) -> CliError {
        match error {
            RunError::Server(error) => error.into(),
            error => CliError::Program(error),
        }
    }
}

impl From<ServerError> for CliError {
    fn from(error: ServerError) -> CliError {
        match error {
            ServerError::Device(source) => CliError::NoFuse { source },
            ServerError::Mount { path, source } => CliError::NoMount { path, source },
            ServerError::Session(_) | ServerError::TakeOver { .. } | ServerError::Unmount { .. } => {
                CliError::Server(error)
            }
        }
    }
}

/// What to do about a `/dev/fuse` that cannot be opened.
fn hint_for_open_error(error: &std::io::Error) -> &'static str {
    match error.kind() {
        ErrorKind::PermissionDenied => {
            "run it as root; or let users open it: `chmod 666 /dev/fuse`, and install the package fuse3"
        }
        _ => {
            "load the kernel's module with `modprobe fuse`; a container has to be started with --device /dev/fuse"
        }
    }
}

/// What to do about a volume that another process has open.
fn what_frees(mountpoint: Option<&Path>, served: Option<&(u32, String)>) -> String {
    match (mountpoint.map(Path::display), served) {
        (None, Some((process, address))) => format!(
            "it is served on {address}: `kill {process}` makes everything durable and ends it"
        ),
        (Some(mountpoint), _) => format!(
            "it is mounted at {mountpoint}: name that directory where the command takes one, or run `weir umount {mountpoint}` first"
        ),
        (None, None) => "if it is mounted, run `weir umount` on the mountpoint; otherwise end the process that has it open".to_owned(),
    }
}

/// What to do about a filesystem that is damaged.
fn what_shows_damage(path: &Path, error: &FsError) -> String {
    match error {
        FsError::Format(FormatError::Checksum { .. } | FormatError::Corrupt { .. }) => {
            format!(
                "; `weir fsck {}` lists all damage: restore it from a copy, or run e2fsck (ext4) or fsck.f2fs",
                path.display()
            )
        }
        _ => String::new(),
    }
}

/// What is where no filesystem is. Only for what is empty a command is proposed that writes to it.
fn what_is_there(path: &Path, found: Content) -> String {
    match found {
        Content::Empty => {
            format!("it is empty; `weir mkfs --volume {}` makes a filesystem in it", path.display())
        }
        Content::NoneInSamples => {
            "no data was found at its ends and in samples between them; the rest was not read: is it the right device?"
                .to_owned()
        }
        Content::Data(found) => format!("there is {found}: is it the right file?"),
    }
}

/// How an occupant may be overwritten: what is not understood may be more than its user knows.
fn what_overwrites(found: Occupant) -> &'static str {
    match found.format {
        Some(_) => "to destroy what is there, add --force",
        None => "find out what it is first, or name another file or device; only --force overwrites it",
    }
}

/// What to do if `fusermount3` is not there for a user, or mounting is forbidden.
fn hint_for_mount_error(error: &std::io::Error) -> &'static str {
    let by_helper = error.to_string().contains("fusermount");
    match error.kind() {
        _ if error.to_string().contains("Operation not permitted") => {
            ": mounting needs the capability SYS_ADMIN: start a container with --cap-add SYS_ADMIN; elsewhere install the package \
             fuse3, whose fusermount3 has it, or run by `unshare -Urm`"
        }
        ErrorKind::NotFound | ErrorKind::PermissionDenied if !by_helper => {
            ": users other than root, and containers without --cap-add SYS_ADMIN, mount by fusermount3, which cannot be run: \
             install the package fuse3"
        }
        _ => "",
    }
}
