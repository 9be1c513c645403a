//! `weir status`: what a mount or a server of a volume is doing.

use std::ffi::OsString;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use clap::Args;
use rustix::buffer::spare_capacity;
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use weir_fs::{Answered, BarrierFs, Engine};
use weir_fuse::control::STATUS_ATTRIBUTE;
use weir_fuse::{FileCounts, Load, Lost};
use weir_lfs::F2fs;
use weir_runtime::Handle;
use weir_storage::StorageError;
use weir_vfs::ReadOnlyReason;

use crate::error::CliError;
use crate::f2fs_status::F2fsStatus;
use crate::health::Health;
use crate::mountpoint::owner_if_other;
use crate::plain::counted;
use crate::replica_mount::ReplicaLine;
use crate::replication::ReplicationLine;
use crate::restarts::Restarts;
use crate::serve_status::{DURABLE_IN_STORE, ServedStatus, ask_server, socket_of};
use crate::size::Size;
use crate::stack::{self, Stack, StackStatus, VolumeStatus};
use crate::sync_promise::SyncPromise;
use crate::time_limit::run_within;
use crate::{Verdict, journal_mode, memory, print};

/// Bytes of a status at most.
const STATUS_MAX: usize = 1 << 16;

/// Seconds that a server may take to answer.
pub(crate) const ANSWERED_WITHIN: u32 = 10;

/// Bytes of a page of the kernel's cache.
const PAGE_BYTES: u32 = 4096;

/// The engine that flushes nothing.
const NO_BARRIERS: &str = Engine::Jbd2 { barrier: false }.name();

/// Arguments of `weir status`.
#[derive(Debug, Args)]
pub(crate) struct StatusArguments {
    /// The directory that a filesystem is mounted on, or anything in it; the socket of weir serve, with or without unix:; or
    /// its device
    #[arg(value_name = "DIRECTORY|unix:PATH|/dev/ublkbN")]
    mountpoint: PathBuf,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
    /// How long to wait for the server
    #[arg(long, value_name = "SECONDS", default_value_t = ANSWERED_WITHIN, value_parser = clap::value_parser!(u32).range(1..))]
    timeout: u32,
    /// Wait without a limit: the process that started this one sees to that
    #[arg(long, hide = true)]
    unlimited: bool,
}

/// Why a filesystem takes no changes that was mounted so.
pub(crate) const ASKED_READ_ONLY: ReadOnlyReason = ReadOnlyReason::Mounted;

/// Why one takes none whose disk below ran full.
pub(crate) const FULL_BELOW: ReadOnlyReason = ReadOnlyReason::Aborted(StorageError::NoSpace);

/// The status that a server reports of its mount.
#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct Status {
    /// The server's process.
    pub(crate) pid: u32,
    /// Its version; none of one that does not tell it.
    #[serde(default)]
    pub(crate) version: Option<String>,
    /// Memory that the server has now, all of it: its resident set.
    #[serde(default)]
    memory_bytes: u64,
    /// What that is at most; none on emulated devices, which are in memory themselves.
    #[serde(default)]
    memory_bound_bytes: Option<u64>,
    /// Memory that it returns to when the files are gone.
    #[serde(default)]
    memory_floor_bytes: Option<u64>,
    pub(crate) storage: StackStatus,
    /// Of a volume that is shipped to an object store.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) replication: Option<ReplicationLine>,
    /// Of a replica that is mounted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) replica: Option<ReplicaLine>,
    requests: RequestsStatus,
    /// Of a volume that `weir serve` serves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    served: Option<ServedStatus>,
    /// None for `weir disk`, whose filesystem is the kernel's.
    #[serde(flatten)]
    pub(crate) filesystem: Option<FilesystemStatus>,
    /// That of a mounted F2FS.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    f2fs: Option<F2fsStatus>,
}

/// Requests of the kernel that the server is answering, and its commands to the disk.
#[derive(Debug, Deserialize, Serialize)]
struct RequestsStatus {
    under_way: u64,
    under_way_max: u64,
    /// Commands in flight at the disk.
    disk_commands: u64,
    /// Processors are kept from sleeping while there are requests.
    #[serde(default)]
    awake: bool,
}

/// The status of a filesystem.
#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct FilesystemStatus {
    /// What `fsync` promises: `durable`, `order` or `remote`.
    sync: String,
    /// With moments: how old the tree may be that a crash leaves, but for a transfer, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    moment_ms: Option<u64>,
    /// How old the tree is that a crash would leave now, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    moment_age_ms: Option<f64>,
    /// Whether the kernel keeps what programs write, and hands it over later.
    #[serde(default)]
    writeback_cache: bool,
    /// The journal's engine; none without a journal.
    engine: Option<String>,
    /// The journal's mode, as `weir mount --journal` has it; none without a journal.
    #[serde(default)]
    journal: Option<String>,
    /// With journal coalition: what keeps the homes of blocks whole.
    #[serde(default)]
    coalition: Option<String>,
    /// Why there are no changes, if there are none.
    pub(crate) read_only: Option<String>,
    /// There are none since the disk below was full.
    #[serde(default)]
    full_below: bool,
    commits: u64,
    checkpoints: u64,
    log_blocks_used: u64,
    waits_for_transfer: u64,
    /// Epochs that were ended.
    epochs: u64,
    /// Calls of `fsync` and its like that promise durability.
    calls_durable: u64,
    /// Calls that promise order.
    calls_ordered: u64,
    /// Since it was mounted; what mounting itself flushed is not among them.
    flushes: u64,
    /// Of all these calls, those that had no flush of their own.
    flushes_saved: u64,
    pages: u64,
    pages_dirty: u64,
    /// Files whose `fsync` orders only, as their attribute says; none as long as they are being counted.
    #[serde(default)]
    order_files: Option<u64>,
    /// The same of those whose `fsync` waits for the object store.
    #[serde(default)]
    remote_files: Option<u64>,
    #[serde(flatten)]
    pub(crate) lost: LostStatus,
    /// Restarts of the server; none of one that does not know them.
    #[serde(flatten)]
    restarts: Option<Restarts>,
    /// Discards that were sent, the blocks in them, and blocks that wait for theirs.
    #[serde(default)]
    discards: u64,
    #[serde(default)]
    blocks_discarded: u64,
    #[serde(default)]
    blocks_to_discard: u64,
    /// Bytes of an aligned write that a crash leaves whole, and how often the blocks of such a part of a file had to be
    /// allocated in two places, so that it does not.
    #[serde(default)]
    unit_bytes: u32,
    #[serde(default)]
    split_units: u64,
}

/// What was lost of writes that no program waits for.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize)]
pub(crate) struct LostStatus {
    /// Writes of pages of shared mappings, or of the writeback cache, that failed.
    #[serde(default)]
    pub(crate) mapped_writes_failed: u64,
    /// Files that lack what such a write had, and the inode of one of them.
    #[serde(default)]
    pub(crate) incomplete_files: u64,
    #[serde(default)]
    pub(crate) incomplete_inode: Option<u32>,
}

impl From<Lost> for LostStatus {
    fn from(lost: Lost) -> LostStatus {
        let Lost { failed, files, first } = lost;
        LostStatus { mapped_writes_failed: failed, incomplete_files: files, incomplete_inode: first }
    }
}

impl LostStatus {
    /// For people; none if nothing is lost.
    pub(crate) fn line(&self) -> Option<(&'static str, String)> {
        let files = self.incomplete_files;
        let told = || {
            let lack = counted(files, "file lacks", "files lack");
            format!("{lack} data of mappings or the writeback cache: there was no room, or the disk failed")
        };
        (files > 0).then(|| ("lost", told()))
    }
}

/// The space of a filesystem, as the kernel tells it.
pub(crate) struct Space {
    pub(crate) all: Size,
    pub(crate) free: Size,
    /// What users can write.
    pub(crate) available: Size,
}

/// The same, with what the kernel knows of the space.
#[derive(Debug, Serialize)]
struct Document<'a> {
    health: &'a Health,
    #[serde(flatten)]
    status: &'a Status,
    #[serde(flatten)]
    space: Option<SpaceBlocks>,
}

/// The space of a filesystem in blocks. A server of a volume knows of none.
#[derive(Debug, Serialize)]
struct SpaceBlocks {
    block_bytes: u64,
    blocks: u64,
    blocks_free: u64,
    /// Those that users can write.
    blocks_available: u64,
}

impl SpaceBlocks {
    fn of_mount(path: &Path) -> Result<SpaceBlocks, CliError> {
        let space = rustix::fs::statvfs(path).map_err(|error| unreadable(path)(error.into()))?;
        Ok(SpaceBlocks {
            block_bytes: space.f_frsize,
            blocks: space.f_blocks,
            blocks_free: space.f_bfree,
            blocks_available: space.f_bavail,
        })
    }

    fn sizes(&self) -> Space {
        let size = |blocks: u64| Size(blocks * self.block_bytes);
        Space { all: size(self.blocks), free: size(self.blocks_free), available: size(self.blocks_available) }
    }
}

impl Status {
    /// Whether it takes no changes since the disk below was full.
    pub(crate) fn is_full_below(&self) -> bool {
        self.filesystem.as_ref().is_some_and(|files| files.full_below)
            || self.f2fs.as_ref().is_some_and(|found| found.full_below)
    }

    /// What was lost of writes that no program waits for.
    pub(crate) fn lost(&self) -> Option<LostStatus> {
        let of_f2fs = self.f2fs.as_ref().map(|found| found.lost);
        self.filesystem.as_ref().map(|found| found.lost).or(of_f2fs)
    }

    /// Files whose `fsync` waits for an object store.
    pub(crate) fn remote_files(&self) -> u64 {
        let of_f2fs = self.f2fs.as_ref().and_then(|found| found.remote_files);
        self.filesystem.as_ref().and_then(|found| found.remote_files).or(of_f2fs).unwrap_or(0)
    }

    /// With moments: how old the tree is that a crash would leave now, and how old it may be but for a transfer, in
    /// milliseconds.
    pub(crate) fn moment(&self) -> Option<(f64, u64)> {
        let found = self.filesystem.as_ref()?;
        Some((found.moment_age_ms?, found.moment_ms?))
    }

    /// Restarts of the server, if it can be restarted.
    pub(crate) fn restarts(&self) -> Option<&Restarts> {
        self.filesystem.as_ref().and_then(|found| found.restarts.as_ref())
    }

    /// Why it takes no changes, if it takes none.
    pub(crate) fn read_only(&self) -> Option<&String> {
        let of_f2fs = self.f2fs.as_ref().and_then(|found| found.read_only.as_ref());
        self.filesystem.as_ref().and_then(|found| found.read_only.as_ref()).or(of_f2fs)
    }
}

/// Flushes that a filesystem has asked the storage for.
pub(crate) fn flushes(filesystem: &BarrierFs) -> u64 {
    let waits = filesystem.statistics().waits;
    waits.flushes + waits.durable_commits
}

/// The status of a mounted filesystem, for its server to report. `by_mounting` are the flushes that no call asked for, as
/// they were part of mounting.
pub(crate) async fn of_filesystem(
    handle: &Handle,
    stack: &Stack,
    filesystem: &BarrierFs,
    (sync, writeback_cache): (SyncPromise, bool),
    (load, files): (Load, FileCounts),
    (by_mounting, restarts): (u64, Restarts),
) -> String {
    let found = filesystem.statistics();
    let flushes = flushes(filesystem) - by_mounting;
    let Answered { durable, ordered } = found.answered;
    let flushes_at_all = found.engine.is_none_or(|engine| engine.facts().flushes);
    status_document(
        handle,
        stack,
        load,
        memory::bounds(stack, Some(filesystem.memory_bound()), load.request_bytes_max),
        Some(FilesystemStatus {
            sync: if flushes_at_all { sync } else { SyncPromise::Order }.name().to_owned(),
            moment_ms: found.moments.map(|interval| interval.as_millis() as u64),
            moment_age_ms: found.moment_age.map(|age| age.as_secs_f64() * 1e3),
            writeback_cache,
            engine: found.engine.map(|engine| engine.name().to_owned()),
            journal: found.engine.map(|_| journal_mode::name(found.mode, found.checkpoint).to_owned()),
            coalition: found.coalition.map(|integrity| integrity.to_string()),
            read_only: filesystem.read_only().map(|reason| reason.to_string()),
            full_below: filesystem.read_only() == Some(FULL_BELOW),
            commits: found.journal.commits,
            checkpoints: found.journal.checkpoints,
            log_blocks_used: found.journal.log_blocks_used.into(),
            waits_for_transfer: found.waits.transfers,
            epochs: found.epochs,
            calls_durable: durable,
            calls_ordered: ordered,
            flushes,
            flushes_saved: (durable + ordered).saturating_sub(flushes),
            pages: found.pages as u64,
            pages_dirty: found.pages_dirty as u64,
            order_files: files.order_files,
            remote_files: files.remote_files,
            lost: files.lost.into(),
            restarts: Some(restarts),
            discards: found.discards.commands,
            blocks_discarded: found.discards.blocks,
            blocks_to_discard: found.discards.waiting,
            // Pages leave the kernel's writeback cache one by one.
            unit_bytes: if writeback_cache { PAGE_BYTES } else { found.unit_bytes },
            split_units: found.split_units,
        }),
        None,
    )
    .await
}

/// The status of a storage that is mounted as one file.
pub(crate) async fn of_disk(handle: &Handle, stack: &Stack, load: Load) -> String {
    status_document(handle, stack, load, memory::bounds(stack, None, load.request_bytes_max), None, None)
        .await
}

/// The status of a volume that is served to clients, of which so many requests are under way, and were at most.
pub(crate) async fn of_served(
    handle: &Handle,
    stack: &Stack,
    (under_way, under_way_max): (u64, u64),
    served: ServedStatus,
) -> String {
    let load = Load { under_way, under_way_max, ..Load::default() };
    let status = status_of(handle, stack, load, None, (None, None)).await;
    // Numbers and texts always become JSON.
    serde_json::to_string(&Status { served: Some(served), ..status }).unwrap_or_default()
}

/// The status of a mounted F2FS, for its server to report.
pub(crate) async fn of_f2fs(
    handle: &Handle,
    stack: &Stack,
    filesystem: &F2fs,
    (sync, writeback_cache): (SyncPromise, bool),
    (load, files): (Load, FileCounts),
) -> String {
    let found = F2fsStatus::from_mounted(filesystem, (sync, writeback_cache), files);
    status_document(handle, stack, load, None, None, Some(found)).await
}

async fn status_document(
    handle: &Handle,
    stack: &Stack,
    load: Load,
    bounds: Option<memory::Bounds>,
    filesystem: Option<FilesystemStatus>,
    f2fs: Option<F2fsStatus>,
) -> String {
    let status = status_of(handle, stack, load, bounds, (filesystem, f2fs)).await;
    // Numbers and texts always become JSON.
    serde_json::to_string(&status).unwrap_or_default()
}

async fn status_of(
    handle: &Handle,
    stack: &Stack,
    load: Load,
    bounds: Option<memory::Bounds>,
    (filesystem, f2fs): (Option<FilesystemStatus>, Option<F2fsStatus>),
) -> Status {
    let Load { under_way, under_way_max, awake, .. } = load;
    let disk_commands = handle.ring().map_or(0, |ring| ring.in_flight() as u64);
    let requests = RequestsStatus { under_way, under_way_max, disk_commands, awake };
    let mut storage = stack.status(handle).await;
    Status {
        replication: storage.replication.take(),
        replica: storage.replica.take(),
        pid: std::process::id(),
        version: Some(env!("CARGO_PKG_VERSION").to_owned()),
        memory_bytes: memory::resident(),
        memory_bound_bytes: bounds.map(|bounds| bounds.bound),
        memory_floor_bytes: bounds.map(|bounds| bounds.floor),
        storage,
        requests,
        served: None,
        filesystem,
        f2fs,
    }
}

/// Asks the server of the mount that `path` is on, or that has the socket.
pub(crate) fn ask(path: &Path) -> Result<Status, CliError> {
    if let Some(socket) = socket_of(path)? {
        let told = ask_server(&socket, "", STATUS_MAX).map_err(|source| match source.kind() {
            ErrorKind::NotFound | ErrorKind::ConnectionRefused => CliError::NotServed(path.to_owned()),
            _ => unreadable(path)(source),
        })?;
        return serde_json::from_slice(&told).map_err(|_| CliError::NotWeirServer(path.to_owned()));
    }
    let mut value = Vec::with_capacity(STATUS_MAX);
    let asked = rustix::fs::getxattr(path, STATUS_ATTRIBUTE, spare_capacity(&mut value));
    asked.map_err(|errno| match errno {
        // Requests that were sent before the kernel noticed get the second.
        Errno::NOTCONN | Errno::CONNABORTED => CliError::ServerEnded(path.to_owned()),
        Errno::NOENT | Errno::ACCESS | Errno::IO => unreadable(path)(errno.into()),
        _ if path.metadata().is_ok_and(|found| !found.is_dir()) => CliError::NotMountedFile(path.to_owned()),
        _ => CliError::NotMounted(path.to_owned()),
    })?;
    serde_json::from_slice(&value).map_err(|error| unreadable(path)(error.into()))
}

fn unreadable(path: &Path) -> impl Fn(std::io::Error) -> CliError {
    |source| CliError::File { doing: "read the status of", path: path.to_owned(), source }
}

/// Runs the command, in a process of its own that has a time limit.
pub(crate) fn run(arguments: &StatusArguments) -> Result<Verdict, CliError> {
    if arguments.unlimited {
        return show(arguments);
    }
    let (path, seconds) = (arguments.mountpoint.clone(), arguments.timeout);
    match run_within(seconds, &limitless_arguments(&path, arguments.json)).map_err(unreadable(&path))? {
        None => Err(CliError::Unanswered { path, seconds }),
        Some(ended) => match ended.pass_on()?.code() {
            Some(0) => Ok(Verdict::Good),
            Some(1) => Ok(Verdict::Damaged),
            _ => Err(CliError::Silent),
        },
    }
}

/// The arguments of this command without a time limit.
fn limitless_arguments(path: &Path, json: bool) -> Vec<OsString> {
    let mut arguments: Vec<OsString> = vec!["status".into(), "--unlimited".into()];
    arguments.extend(json.then(|| "--json".into()));
    arguments.extend(["--".into(), path.into()]);
    arguments
}

/// Fails if the server of a mount does not answer in time: everything else that is asked of it would wait as long.
pub(crate) fn require_answer(path: &Path, seconds: u32) -> Result<(), CliError> {
    match run_within(seconds, &limitless_arguments(path, true)).map_err(unreadable(path))? {
        None => Err(CliError::Unanswered { path: path.to_owned(), seconds }),
        Some(_) => Ok(()),
    }
}

fn show(arguments: &StatusArguments) -> Result<Verdict, CliError> {
    let path = &arguments.mountpoint;
    let status = ask(path).map_err(|error| match owner_if_other(path) {
        Some(owner) if error.is_denied() => {
            let path = path.to_owned();
            CliError::OtherOwner {
                path,
                owner,
                doing: "look in, as it is without --allow-other",
                command: "status",
            }
        }
        _ => error,
    })?;
    let space = status.served.is_none().then(|| SpaceBlocks::of_mount(path)).transpose()?;
    let health = Health::from_status(&status);
    let verdict = if health.healthy { Verdict::Good } else { Verdict::Damaged };
    if arguments.json {
        let document = Document { health: &health, status: &status, space };
        return print(&serde_json::to_string(&document)?).map(|()| verdict);
    }
    let sizes = space.map(|space| space.sizes());
    print(&lines(&status, &health, sizes.as_ref())).map(|()| verdict)
}

/// For people: one line a value, in words and units.
fn lines(status: &Status, health: &Health, space: Option<&Space>) -> String {
    let mut lines = vec![("health", health.line())];
    lines.push(("storage", status.storage.kind.clone() + stack::effect(&status.storage.kind)));
    let readers = stack::named(&status.storage.readable_by);
    lines.extend(readers.map(|readers| {
        (
            "warning",
            format!("{readers} can read its file or device, and so every file in it: run `chmod go-r` on it"),
        )
    }));
    lines.extend(status.served.iter().flat_map(ServedStatus::lines));
    if let Some(space) = space {
        lines.extend(status.filesystem.iter().flat_map(|found| of_files(found, space)));
        lines.extend(status.f2fs.iter().flat_map(|found| found.lines(space)));
    }
    lines.extend(status.storage.volume.iter().flat_map(of_volume));
    lines.extend(status.replica.iter().map(|line| ("replica", line.text())));
    lines.extend(status.replication.iter().flat_map(ReplicationLine::lines));
    let RequestsStatus { under_way, under_way_max, disk_commands, awake } = status.requests;
    let processors = if awake { "; processors are kept awake" } else { "" };
    lines
        .push(("requests under way", format!("{under_way} now, {under_way_max} at the highest{processors}")));
    lines.push(("commands at the disk", disk_commands.to_string()));
    let bound =
        status.memory_bound_bytes.map_or_else(String::new, |bound| format!(", at most {}", Size(bound)));
    lines.push(("server", format!("process {}, {} of memory{bound}", status.pid, Size(status.memory_bytes))));
    let lines: Vec<String> = lines.into_iter().map(|(label, value)| format!("{label:<24}{value}")).collect();
    lines.join("\n")
}

/// What `fsync` promises by a promise's name that is not only to order, but for files with an attribute: to order only, and to wait
/// for the store.
pub(crate) fn durable_but_for(sync: &str, order_files: Option<u64>, remote_files: Option<u64>) -> String {
    let durability =
        if sync == SyncPromise::Remote.name() { DURABLE_IN_STORE } else { "durability" }.to_owned();
    let (Some(order), Some(remote)) = (order_files, remote_files) else {
        return durability + "; files with user.weir.sync are being counted";
    };
    let but_for = [("order only", order), ("also in the store", remote)];
    let but_for = but_for.into_iter().filter(|(_, files)| *files > 0);
    let but_for = but_for.map(|(what, files)| {
        let files = counted(files, "file", "files");
        format!("; {what} for {files} (user.weir.sync)")
    });
    durability + &but_for.collect::<String>()
}

/// A time in whole seconds, if it is that.
fn time_text(ms: u64) -> String {
    if ms > 0 && ms.is_multiple_of(1000) { format!("{} s", ms / 1000) } else { format!("{ms} ms") }
}

fn of_files(found: &FilesystemStatus, Space { all, free, .. }: &Space) -> Vec<(&'static str, String)> {
    let read_only = found.read_only.as_ref().map_or_else(|| "no".to_owned(), |why| format!("yes: {why}"));
    let (commits, checkpoints, log) =
        (found.commits, found.checkpoints, Size::of_blocks(found.log_blocks_used));
    let promise = match (found.sync == "order", found.order_files) {
        (true, _) if found.engine.as_deref() == Some(NO_BARRIERS) => {
            format!("order only (--engine {NO_BARRIERS}); durable later")
        }
        (true, _) => "order only (--sync order)".to_owned(),
        (false, order_files) => durable_but_for(&found.sync, order_files, found.remote_files),
    };
    let mut lines = vec![
        ("fsync promises", promise),
        (
            "kernel's cache",
            if found.writeback_cache { "keeps writes for a while" } else { "sends each write at once" }
                .to_owned(),
        ),
        ("engine", found.engine.clone().unwrap_or_else(|| "none".to_owned())),
        ("journal mode", found.journal.clone().unwrap_or_else(|| "none".to_owned())),
        (
            "journal coalition",
            found.coalition.as_ref().map_or_else(|| "off".to_owned(), |integrity| format!("on; {integrity}")),
        ),
        ("read only", read_only),
        ("space", format!("{all}, {free} of it free")),
        (
            "file data in memory",
            format!("{}, {} of it dirty", Size::of_blocks(found.pages), Size::of_blocks(found.pages_dirty)),
        ),
        ("journal", format!("commits: {commits}, checkpoints: {checkpoints}, {log} of the log in use")),
        (
            "discarded",
            format!(
                "{}, {} waiting",
                Size::of_blocks(found.blocks_discarded),
                Size::of_blocks(found.blocks_to_discard)
            ),
        ),
        (
            "written whole",
            format!(
                "aligned, up to {}; not contiguous: {}",
                Size(found.unit_bytes.into()),
                found.split_units
            ),
        ),
        ("epochs", found.epochs.to_string()),
        (
            "synchronisation calls",
            format!("{} for durability, {} for order", found.calls_durable, found.calls_ordered),
        ),
        ("flushes asked for", format!("{}, {} saved", found.flushes, found.flushes_saved)),
        ("waits for a transfer", found.waits_for_transfer.to_string()),
    ];
    lines.extend(found.moment_ms.map(|ms| {
        let now = found.moment_age_ms.map_or_else(String::new, |age| format!("{age:.1} ms ago; "));
        let most = time_text(ms);
        ("a crash leaves", format!("the tree of {now}at most {most} and a transfer"))
    }));
    lines.extend(found.lost.line());
    let restarts = found.restarts.as_ref().and_then(Restarts::line);
    lines.extend(restarts.map(|line| ("restarts of the server", line)));
    lines
}

fn of_volume(volume: &VolumeStatus) -> Vec<(&'static str, String)> {
    let (by_users, by_volume) = (Size::of_blocks(volume.user_blocks), Size::of_blocks(volume.disk_blocks));
    let recovery = &volume.recovery;
    let recovery = format!(
        "{} of log in {:.1} ms; after a crash, up to {}",
        Size(recovery.bytes),
        recovery.ms,
        Size(recovery.target_bytes)
    );
    let mut lines = vec![
        ("flushes of the disk", volume.flushes.to_string()),
        ("written", format!("{by_users} to the volume, {by_volume} by it to the disk")),
        (
            "segments of the volume",
            format!(
                "{}, {} free ({} %), more when needed",
                volume.segments,
                volume.segments_free,
                volume.segments_free * 100 / volume.segments.max(1)
            ),
        ),
    ];
    lines.extend(volume.loss_window.as_ref().map(|window| ("loss window so far", window.line())));
    lines.push(("opening", recovery));
    lines
}
