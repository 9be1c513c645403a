//! What a filesystem is on: a file or block device as it is, a volume on one, or an emulated device.

use std::cell::{Cell, RefCell};
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use futures_util::{FutureExt as _, select_biased};
use serde::{Deserialize, Serialize};
use tracing::Level;
use weir_ext4::{Mkfs, SUPERBLOCK_OFFSET, Superblock};
use weir_format::FormatError;
use weir_fs::{BarrierFs, MountOptions, copy_superblock};
use weir_lfs::{F2fs, F2fsOptions};
use weir_replica::{ReplicaStorage, Replication};
use weir_runtime::Handle;
use weir_stack::{Base, Disk, StackName, StackSpec};
use weir_storage::{
    DiskFacts, Extent, FileDisk, FileDiskOptions, Lba, Overlay, Readers, Rejected, Storage, StorageError,
    read,
};
use weir_vfs::FsError;
use weir_volume::{
    Branch, BranchKind, BranchStorage, Info, LossWindow, LossWindowSeen, RepairOptions, ResizableVolume,
    Volume, VolumeError, VolumeOptions,
};

use crate::branch_status::BranchStatus;
use crate::error::CliError;
use crate::log_line::LogLine;
use crate::occupant::content;
use crate::open::open_disk;
use crate::owner;
use crate::plain::counted;
use crate::replica_mount::ReplicaLine;
use crate::replication::{ReplicationLine, Shipping};
use crate::size::Size;

/// A disk has room for this many times the checkpoints of the volume on it, and more: a checkpoint takes eight bytes
/// for each block, and there are two.
const CHECKPOINT_SHARE: u64 = 128;

/// Blocks of memory besides, for what the volume may move when it is opened: 64 MiB.
const SLACK_BLOCKS: u64 = 1 << 14;

/// And for what a crash has left in the filesystem's journal: 320 MiB, a quarter more than the largest journal that mkfs makes by
/// itself.
const REPLAY_BLOCKS: u64 = 5 << 14;

/// The worst disk has this size at most: its bytes lie in memory.
const WORST_MAX: Size = Size(64 << 30);

/// How long a status waits for what the system says of a disk.
const FACTS_WITHIN: Duration = Duration::from_secs(1);

/// What a filesystem is on: a file or block device as it is, a volume on one, a disk in memory, a state of a replica, or a volume
/// on one of these.
pub(crate) struct Stack {
    below: weir_stack::Stack,
    shipped: RefCell<Option<Shipped>>,
    /// The state of a replica at its bottom, or under its volume, if there is one.
    replica: Option<ReplicaStorage>,
    /// Why its volume was not made larger when that was asked for last.
    growth_refused: RefCell<Option<String>>,
    /// A server has it, and closes it at its end.
    is_served: Cell<bool>,
}

/// What is there in addition while a volume is shipped to an object store.
struct Shipped {
    replication: Replication,
    url: String,
    /// The volume with flushes that wait for the store, if they do.
    storage: Option<Rc<dyn Storage>>,
}

/// What `name` describes, its disk in memory of this size, if one is given.
///
/// # Errors
/// [`CliError::Usage`] if it is too large, [`CliError::Stack`] if the name describes nothing.
pub(crate) fn describe(
    handle: &Handle,
    name: &StackName,
    size: Option<Size>,
    may_be_cut: bool,
) -> Result<StackSpec, CliError> {
    if matches!(name.base, Base::Worst(_)) && size.is_some_and(|size| size > WORST_MAX) {
        return Err(CliError::Usage("the worst disk is in memory: use a --size of 64G at most"));
    }
    // A run with a kernel in it cannot be replayed, so each draws its own.
    let seed = format!("worst {}", handle.entropy());
    Ok(name.describe(size.map(Size::blocks), &seed, may_be_cut)?)
}

/// What a file or block device without a volume is called.
const NO_BARRIERS: &str = "a disk without barriers";

/// What the kind of a storage means for barriers, as the end of a line.
pub(crate) fn effect(kind: &str) -> &'static str {
    if kind == NO_BARRIERS { ": each barrier waits and flushes; on a volume it would not" } else { "" }
}

/// The storage under a filesystem, as a status tells it.
#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct StackStatus {
    pub(crate) kind: String,
    /// Who may read its file or device besides the owner: `group`, `others`.
    #[serde(default)]
    pub(crate) readable_by: Vec<String>,
    /// Why its volume acknowledges nothing more, if it does not.
    #[serde(default)]
    pub(crate) failed: Option<String>,
    /// Bytes that the filesystem below its file has free; none for a block device, and for what lies in memory.
    #[serde(default)]
    pub(crate) free_below: Option<u64>,
    /// The filesystem that its file is on, or its device, does not answer.
    #[serde(default)]
    pub(crate) below_is_silent: bool,
    /// If its file was cut since it was opened: the bytes that it had.
    #[serde(default)]
    pub(crate) cut_file_bytes: Option<u64>,
    /// Why its volume was not made larger when that was asked for last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) growth_refused: Option<String>,
    #[serde(flatten)]
    pub(crate) volume: Option<VolumeStatus>,
    /// Told at the top of the status.
    #[serde(skip)]
    pub(crate) replication: Option<ReplicationLine>,
    /// So is this.
    #[serde(skip)]
    pub(crate) replica: Option<ReplicaLine>,
}

impl StackStatus {
    /// The command that says what is damaged, of a volume or of a plain image.
    pub(crate) fn check_command(&self) -> &'static str {
        if self.volume.is_some() { "weir volume repair" } else { "weir fsck" }
    }
}

/// And of a volume.
#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct VolumeStatus {
    pub(crate) flushes: u64,
    pub(crate) user_blocks: u64,
    pub(crate) disk_blocks: u64,
    pub(crate) segments_free: u64,
    pub(crate) segments: u64,
    #[serde(default)]
    pub(crate) damage: DamageStatus,
    /// None with marks: what a crash takes back reaches to the newest mark, and `moment_age_ms` says how old that is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) loss_window: Option<LossWindowStatus>,
    #[serde(default)]
    pub(crate) recovery: RecoveryStatus,
    #[serde(default)]
    pub(crate) snapshots: Vec<BranchStatus>,
}

impl VolumeStatus {
    fn of(volume: &Volume) -> VolumeStatus {
        let stats = volume.stats();
        let loss_window = LossWindowStatus::of(stats.loss_window, volume.loss_window());
        VolumeStatus {
            flushes: stats.flushes,
            user_blocks: stats.user_blocks,
            disk_blocks: stats.disk_blocks(),
            segments_free: stats.free_segments as u64,
            segments: stats.segments as u64,
            damage: DamageStatus {
                damaged_reads: stats.damaged_reads,
                failed_reads: stats.failed_reads,
                first_block: stats.first_failed,
            },
            loss_window: volume.marks().is_none().then_some(loss_window),
            recovery: RecoveryStatus {
                bytes: stats.recovery.bytes_read,
                ms: stats.recovery.duration.as_secs_f64() * 1e3,
                target_bytes: volume.recovery_target_bytes(),
            },
            snapshots: BranchStatus::list_of(volume),
        }
    }
}

/// Reads of a volume that failed since it was opened.
#[derive(Debug, Default, Deserialize, Serialize)]
pub(crate) struct DamageStatus {
    /// Because what came back is not what was written.
    pub(crate) damaged_reads: u64,
    /// Because the disk below failed them.
    pub(crate) failed_reads: u64,
    /// The logical block of the first one.
    pub(crate) first_block: Option<u64>,
}

impl DamageStatus {
    /// For people; none if no read failed.
    pub(crate) fn line(&self) -> Option<String> {
        let DamageStatus { damaged_reads, failed_reads, first_block } = *self;
        let causes = [(damaged_reads, "of damaged blocks"), (failed_reads, "that the disk failed")];
        let causes: Vec<String> = causes
            .iter()
            .filter(|(count, _)| *count > 0)
            .map(|(count, cause)| format!("{} {cause}", counted(*count, "read", "reads")))
            .collect();
        let first =
            first_block.map_or_else(String::new, |block| format!(", the first one at logical block {block}"));
        (!causes.is_empty()).then(|| {
            let place = "the server's log (`--log`) has the first of them; that of a mount says which files";
            format!("{}{first}; {place}", causes.join(" and "))
        })
    }
}

/// What recovery did when the volume was opened, and what it does at most.
#[derive(Debug, Default, Deserialize, Serialize)]
pub(crate) struct RecoveryStatus {
    /// The log that it read.
    pub(crate) bytes: u64,
    /// From opening to the checkpoint that ended recovery, in milliseconds.
    pub(crate) ms: f64,
    /// The log that it reads at most if this server is killed: what is written during one checkpoint may come on top.
    pub(crate) target_bytes: u64,
}

/// What a crash could have taken although nothing had failed, and its bounds (V5).
#[derive(Debug, Default, Deserialize, Serialize)]
pub(crate) struct LossWindowStatus {
    /// The longest time that an acknowledged write was not durable, in milliseconds.
    pub(crate) ms: f64,
    /// The most bytes that were not.
    pub(crate) bytes: u64,
    /// The time is a target: a disk may take longer to flush. Writers wait then.
    pub(crate) bound_ms: f64,
    /// The bytes are a limit.
    pub(crate) bound_bytes: u64,
    /// The time went beyond its target.
    pub(crate) exceeded: bool,
}

impl LossWindowStatus {
    fn of(seen: LossWindowSeen, bound: LossWindow) -> LossWindowStatus {
        LossWindowStatus {
            ms: seen.time_max.as_secs_f64() * 1e3,
            bytes: seen.bytes_max,
            bound_ms: bound.time.as_secs_f64() * 1e3,
            bound_bytes: bound.bytes,
            exceeded: seen.time_max > bound.time,
        }
    }

    /// For people.
    pub(crate) fn line(&self) -> String {
        let kept = if self.exceeded { "EXCEEDED" } else { "kept" };
        let (bytes, most) = (Size(self.bytes), Size(self.bound_bytes));
        format!("{:.1} ms (target {:.0} ms: {kept}), {bytes} (limit {most})", self.ms, self.bound_ms)
    }
}

/// Who may read a file or device, as a status lists them.
fn readable_by(readers: Readers) -> Vec<String> {
    let known = [(readers.group, "group"), (readers.others, "others")];
    known.into_iter().filter(|(may, _)| *may).map(|(_, who)| who.to_owned()).collect()
}

/// The same for people; none where only the owner may.
pub(crate) fn named(readable_by: &[String]) -> Option<String> {
    let name = |who: &String| if who == "group" { "its group" } else { "everybody" };
    let names: Vec<&str> = readable_by.iter().map(name).collect();
    (!names.is_empty()).then(|| names.join(" and "))
}

/// Blocks in which filesystems, volumes and partition tables say what they are.
const LOOKED_AT: u32 = 16;

/// The first blocks of a disk, in which most formats say what they are.
pub(crate) async fn first_blocks(disk: &FileDisk) -> Result<Vec<u8>, Rejected> {
    let blocks = u32::try_from(disk.blocks()).unwrap_or(u32::MAX).min(LOOKED_AT);
    Ok(read(disk, Extent::new(Lba(0), blocks)).await?.to_vec())
}

/// Whether the first blocks of a disk hold an ext4 filesystem's superblock.
pub(crate) fn is_ext4(first: &[u8]) -> bool {
    first.get(SUPERBLOCK_OFFSET..).is_some_and(|bytes| Superblock::read(bytes).is_ok())
}

/// The error of a disk that holds neither a filesystem nor a volume.
pub(crate) fn foreign(path: &Path) -> CliError {
    match content(path) {
        Ok(found) => CliError::Foreign { path: path.to_owned(), found },
        Err(source) => CliError::File { doing: "look for data in", path: path.to_owned(), source },
    }
}

/// The error of a disk that holds no volume, though one is wanted.
pub(crate) async fn no_volume(disk: &FileDisk, path: &Path) -> CliError {
    match first_blocks(disk).await {
        Ok(first) if is_ext4(&first) => CliError::NoVolume { path: path.to_owned() },
        _ => foreign(path),
    }
}

/// What the volume on a disk says of itself.
///
/// # Errors
/// That it is none, or what is wrong with it.
pub(crate) async fn find_volume(disk: &FileDisk, path: &Path) -> Result<Info, CliError> {
    match weir_volume::inspect(disk).await {
        Err(VolumeError::Foreign) => Err(no_volume(disk, path).await),
        found => found.map_err(|source| CliError::of_volume(path, source)),
    }
}

/// In front of a disk that is only read, for what opening it would write.
pub(crate) fn overlay(handle: &Handle, disk: &Rc<FileDisk>) -> Overlay {
    let memory = disk.blocks() / CHECKPOINT_SHARE + SLACK_BLOCKS + REPLAY_BLOCKS;
    Overlay::new(handle, Rc::<FileDisk>::clone(disk), memory)
}

/// A filesystem with nothing special about it, and a name of its own.
pub(crate) fn plain(handle: &Handle, blocks: u64) -> Mkfs {
    Mkfs::new(blocks, random_uuid(handle), random_bytes(handle), seconds_now(handle))
}

fn random_bytes(handle: &Handle) -> [u8; 16] {
    (u128::from(handle.entropy()) << 64 | u128::from(handle.entropy())).to_be_bytes()
}

/// The name of a new filesystem: version 4 of RFC 9562, random.
pub(crate) fn random_uuid(handle: &Handle) -> [u8; 16] {
    let mut uuid = random_bytes(handle);
    uuid[6] = uuid[6] & 0x0F | 0x40;
    uuid[8] = uuid[8] & 0x3F | 0x80;
    uuid
}

/// Seconds since 1970, when a filesystem is made.
pub(crate) fn seconds_now(handle: &Handle) -> u32 {
    u32::try_from(handle.wall_clock_millis() / 1000).unwrap_or(u32::MAX)
}

impl Stack {
    fn on(below: weir_stack::Stack) -> Stack {
        Stack {
            below,
            shipped: RefCell::default(),
            replica: None,
            growth_refused: RefCell::default(),
            is_served: Cell::new(false),
        }
    }

    /// A state of a replica in an object store, which is only read.
    pub(crate) fn on_replica(replica: ReplicaStorage) -> Stack {
        let below = Disk::Remote(Rc::new(replica.clone())).into();
        Stack { replica: Some(replica), ..Stack::on(below) }
    }

    /// The volume in a file at `path`, which was made on a state of a replica.
    pub(crate) async fn open_on_replica(
        handle: &Handle,
        (path, disk): (&Path, Rc<FileDisk>),
        replica: ReplicaStorage,
        options: VolumeOptions,
    ) -> Result<Stack, CliError> {
        let base = Rc::new(replica.clone());
        let opened = weir_stack::Stack::open_on_base(handle, Disk::File(disk), base, options).await;
        let below = opened.map_err(|source| CliError::of_volume(path, source))?;
        Ok(Stack { replica: Some(replica), ..Stack::on(below) })
    }

    /// Opens what is at `path`, whichever it is. A volume replays its log and takes a checkpoint when it is opened; if
    /// it is only read, both stay in memory, and nothing on the disk changes.
    pub(crate) async fn open(handle: &Handle, path: &Path, read_only: bool) -> Result<Stack, CliError> {
        Stack::open_with(handle, path, read_only, VolumeOptions::default()).await
    }

    /// Opens what is at `path`; a volume with these options.
    pub(crate) async fn open_with(
        handle: &Handle,
        path: &Path,
        read_only: bool,
        volume: VolumeOptions,
    ) -> Result<Stack, CliError> {
        let options = FileDiskOptions { read_only, ..FileDiskOptions::default() };
        let disk = open_disk(handle, path, options).await?;
        let failed = |source| CliError::of_volume(path, source);
        let info = match weir_volume::inspect(&*disk).await {
            Err(VolumeError::Foreign) => return Ok(Stack::on(Disk::File(disk).into())),
            found => found.map_err(failed)?,
        };
        if read_only {
            owner::admit_reader(&disk, &info, volume.after_crash)?;
            let overlay = Rc::new(overlay(handle, &disk));
            return Stack::volume_on(handle, path, overlay, disk, volume).await;
        }
        // Its lock, as a reader, goes with it.
        drop(disk);
        let disk = open_disk(handle, path, FileDiskOptions::default()).await?;
        Stack::volume_on(handle, path, Rc::<FileDisk>::clone(&disk), disk, volume).await
    }

    /// Opens a snapshot or a clone of the volume at `path`, and says whether it is only read, as a snapshot always is.
    pub(crate) async fn open_branch(
        handle: &Handle,
        path: &Path,
        name: &str,
        read_only: bool,
        options: VolumeOptions,
    ) -> Result<(Stack, bool), CliError> {
        let failed = |source| CliError::Snapshot { path: path.to_owned(), source };
        let stack = Stack::open_with(handle, path, true, options.clone()).await?;
        let volume = stack.require_volume(path)?;
        let is_clone = |branch: &Branch| branch.name == name && branch.kind == BranchKind::Clone;
        if read_only || !volume.snapshots().iter().any(is_clone) {
            // What a crash has left in its journal is replayed in memory.
            let branch = BranchStorage::open_scratch(volume, name).map_err(failed)?;
            return Ok((stack.with_branch(branch), true));
        }
        drop((volume, stack));
        let stack = Stack::open_with(handle, path, false, options).await?;
        let branch = BranchStorage::open(stack.require_volume(path)?, name).map_err(failed)?;
        Ok((stack.with_branch(branch), false))
    }

    /// Opens the volume at `path`.
    pub(crate) async fn open_volume(
        handle: &Handle,
        path: &Path,
        options: VolumeOptions,
    ) -> Result<Stack, CliError> {
        let disk = open_disk(handle, path, FileDiskOptions::default()).await?;
        Stack::volume_on(handle, path, Rc::<FileDisk>::clone(&disk), disk, options).await
    }

    /// Opens the volume at `path` to read it only: what opening it changes stays in memory.
    pub(crate) async fn open_volume_to_read(
        handle: &Handle,
        path: &Path,
        options: VolumeOptions,
    ) -> Result<Stack, CliError> {
        let stack = Stack::open_with(handle, path, true, options).await?;
        match (stack.below.volume(), stack.file()) {
            (None, Some(disk)) => Err(no_volume(disk, path).await),
            _ => Ok(stack),
        }
    }

    /// Says on standard error if a file or device is larger than the volume on it.
    pub(crate) async fn tell_of_unused(&self) {
        if let (Some(_), Some(disk)) = (self.below.volume(), self.file())
            && let Ok(info) = weir_volume::inspect(&**disk).await
        {
            owner::tell_of_unused(disk, &info);
        }
    }

    /// Opens what is left of a damaged volume, and changes nothing on the disk: it is repaired in memory, and goes back to
    /// the newest prefix where a record is missing. What is damaged goes to standard error.
    pub(crate) async fn salvage(handle: &Handle, path: &Path) -> Result<Stack, CliError> {
        let options = FileDiskOptions { read_only: true, ..FileDiskOptions::default() };
        let disk = open_disk(handle, path, options).await?;
        let in_memory = Rc::new(overlay(handle, &disk));
        let options = RepairOptions { to_prefix: true, drop_snapshots: true, ..RepairOptions::default() };
        match weir_volume::repair(handle, Rc::<Overlay>::clone(&in_memory), options).await {
            Err(VolumeError::Foreign) => return Ok(Stack::on(Disk::File(disk).into())),
            Err(source) => return Err(CliError::of_volume(path, source)),
            Ok(report) => report.findings.iter().for_each(|finding| eprintln!("weir: {finding}")),
        }
        Stack::volume_on(handle, path, in_memory, disk, VolumeOptions::default()).await
    }

    /// A volume on `storage`, which is `disk` or in front of it.
    pub(crate) async fn volume_on(
        handle: &Handle,
        path: &Path,
        storage: Rc<dyn Storage>,
        disk: Rc<FileDisk>,
        options: VolumeOptions,
    ) -> Result<Stack, CliError> {
        let opened =
            weir_stack::Stack::open_through(handle, Disk::File(Rc::clone(&disk)), storage, options).await;
        match opened {
            Ok(opened) => Ok(Stack::on(opened)),
            Err(VolumeError::Foreign) => Err(no_volume(&disk, path).await),
            Err(source) => Err(CliError::of_volume(path, source)),
        }
    }

    /// What the system says of its file or device; of what lies in memory, nothing. None if the filesystem below does not answer
    /// in time.
    async fn facts(&self, handle: &Handle) -> Option<DiskFacts> {
        let Some(disk) = self.file() else { return Some(DiskFacts::default()) };
        select_biased! {
            facts = disk.facts().fuse() => facts,
            () = handle.sleep(FACTS_WITHIN).fuse() => None,
        }
    }

    /// Says on standard error if others may read what is on `path` without asking its server.
    pub(crate) async fn warn_of_readers(&self, handle: &Handle, path: &Path) {
        let facts = self.facts(handle).await.unwrap_or_default();
        if let Some(readers) = named(&readable_by(facts.readers)) {
            let message = format!(
                "{0} can be read by {readers}, and so can every file in it, whatever its permissions: run \
                 `chmod go-r {0}`",
                path.display()
            );
            LogLine::new(Level::WARN, "readable_by_others", message).with_path(path).print();
        }
    }

    /// A new one.
    pub(crate) async fn make(handle: &Handle, spec: &StackSpec) -> Result<Stack, CliError> {
        Ok(Stack::on(weir_stack::Stack::make(handle, spec).await?))
    }

    /// The disk at its bottom.
    pub(crate) fn disk(&self) -> &Disk {
        self.below.disk()
    }

    /// Its file or block device, if it is on one.
    pub(crate) fn file(&self) -> Option<&Rc<FileDisk>> {
        match self.below.disk() {
            Disk::File(disk) => Some(disk),
            Disk::Emulated(_) | Disk::Adversary(_) | Disk::Remote(_) => None,
        }
    }

    /// Whether it is a file or block device as it is.
    pub(crate) fn is_plain_file(&self) -> bool {
        self.below.volume().is_none() && self.file().is_some()
    }

    /// Makes an empty filesystem.
    pub(crate) async fn make_filesystem(&self, handle: &Handle, path: &Path) -> Result<(), CliError> {
        let storage = self.storage();
        let made = BarrierFs::make(&*storage, &plain(handle, storage.blocks())).await;
        made.map_err(|source| CliError::Image { path: path.to_owned(), source })
    }

    pub(crate) fn storage(&self) -> Rc<dyn Storage> {
        let shipped = self.shipped.borrow();
        let remote = shipped.as_ref().and_then(|shipped| shipped.storage.clone());
        remote.unwrap_or_else(|| self.below.storage())
    }

    /// Its volume, if it has one.
    pub(crate) fn volume(&self) -> Option<Rc<Volume>> {
        self.below.volume()
    }

    /// Its volume, to make it larger.
    pub(crate) fn resizable_volume(&self) -> Option<&Rc<ResizableVolume>> {
        self.below.resizable_volume()
    }

    /// The volume is shipped from here on; with `waits`, flushes wait for the store.
    pub(crate) fn set_shipping(&self, handle: &Handle, shipping: &Shipping, waits: bool) {
        let volume = self.volume().filter(|_| waits);
        let storage = volume.map(|volume| shipping.remote_flush(handle, volume));
        let (replication, url) = (shipping.replication.clone(), shipping.url.clone());
        self.shipped.replace(Some(Shipped { replication, url, storage }));
    }

    /// What came of a request to make the volume larger, for the status.
    pub(crate) fn note_growth(&self, refused: Option<String>) {
        self.growth_refused.replace(refused);
    }

    /// A server has it from here on, and closes it at its end.
    pub(crate) fn begin_serving(&self) {
        self.is_served.set(true);
    }

    /// Whether a server has it.
    pub(crate) fn is_served(&self) -> bool {
        self.is_served.get()
    }

    /// Whether a snapshot or clone is at the top.
    pub(crate) fn is_branch(&self) -> bool {
        self.below.is_branch()
    }

    /// The same with a snapshot or clone of its volume at the top.
    pub(crate) fn with_branch(self, branch: BranchStorage) -> Stack {
        Stack { below: self.below.with_branch(branch), ..self }
    }

    /// The volume of what was opened at `path`.
    pub(crate) fn require_volume(&self, path: &Path) -> Result<Rc<Volume>, CliError> {
        self.volume().ok_or_else(|| CliError::NoVolume { path: path.to_owned() })
    }

    /// What it is, for people.
    pub(crate) fn kind(&self) -> &'static str {
        match (self.below.volume(), self.below.disk()) {
            (Some(_), _) if self.replica.is_some() => "a volume on a replica in an object store",
            (Some(_), _) => "a volume",
            (None, Disk::File(_)) => NO_BARRIERS,
            (None, Disk::Emulated(_)) => "an emulated device",
            (None, Disk::Adversary(_)) => "the worst disk there may be",
            (None, Disk::Remote(_)) => "a replica in an object store",
        }
    }

    /// Bytes of memory that it takes at most, but for what requests that are under way hold themselves; none where its
    /// content lies in memory.
    pub(crate) fn memory_bound(&self) -> Option<u64> {
        let of_volume = self.below.volume().map_or(0, |volume| volume.memory_bound());
        if let Some(replica) = &self.replica {
            return Some(replica.memory_bound() + of_volume);
        }
        self.file()?;
        Some(of_volume)
    }

    /// What a status says of it.
    pub(crate) async fn status(&self, handle: &Handle) -> StackStatus {
        let volume = self.below.volume().map(|volume| VolumeStatus::of(&volume));
        let failed =
            self.below.volume().and_then(|volume| volume.failure()).map(|failure| failure.to_string());
        let facts = self.facts(handle).await;
        let DiskFacts { readers, free_below, file_bytes } = facts.unwrap_or_default();
        let disk_bytes = self.file().map_or(0, |disk| disk.bytes());
        let shipped = self.shipped.borrow();
        let replication =
            |shipped: &Shipped| ReplicationLine::new(&shipped.url, shipped.replication.status());
        StackStatus {
            kind: self.kind().to_owned(),
            readable_by: readable_by(readers),
            failed,
            free_below,
            below_is_silent: facts.is_none(),
            cut_file_bytes: file_bytes.filter(|bytes| *bytes < disk_bytes).map(|_| disk_bytes),
            growth_refused: self.growth_refused.borrow().clone(),
            volume,
            replica: self.replica.as_ref().map(|replica| ReplicaLine::new(&replica.reads(), handle)),
            replication: shipped.as_ref().map(replication),
        }
    }

    /// Mounts the filesystem. A read-only one whose journal a crash has left full is replayed in memory, and one whose
    /// superblock cannot be read is mounted by a copy of it.
    pub(crate) async fn filesystem(
        &self,
        handle: &Handle,
        path: &Path,
        options: MountOptions,
    ) -> Result<BarrierFs, CliError> {
        let mounted = match BarrierFs::mount(handle, self.storage(), options).await {
            Err(FsError::NeedsRecovery) => {
                mount_replayed(handle, self.storage_in_memory(handle), options).await
            }
            Err(error @ FsError::Storage(_)) if options.read_only => {
                let storage = self.storage_in_memory(handle);
                match copy_superblock(&*storage).await {
                    true => mount_replayed(handle, storage, options).await,
                    false => Err(error),
                }
            }
            mounted => mounted,
        };
        let source = match mounted {
            Ok(mounted) => return Ok(mounted),
            Err(source) => source,
        };
        if let Some(failure) = self.replica.as_ref().and_then(|replica| replica.reads().failure) {
            return Err(CliError::ReplicaRead { url: path.to_owned(), failure });
        }
        Err(match (self.is_plain_file(), source) {
            (true, FsError::Format(FormatError::Foreign { .. })) => foreign(path),
            (false, FsError::Format(FormatError::Foreign { .. })) => {
                CliError::NoFilesystem { path: path.to_owned() }
            }
            (_, FsError::NeedsRecovery) => CliError::NeedsRecovery { path: path.to_owned() },
            (_, source) => CliError::Image { path: path.to_owned(), source },
        })
    }

    /// Mounts F2FS. A read-only one that was not unmounted is rolled forward in memory.
    pub(crate) async fn f2fs(
        &self,
        handle: &Handle,
        path: &Path,
        options: F2fsOptions,
    ) -> Result<F2fs, CliError> {
        let mounted = match F2fs::mount(handle, self.storage(), options).await {
            Err(FsError::NotRolledForward) => {
                mount_rolled_forward(handle, self.storage_in_memory(handle), options).await
            }
            mounted => mounted,
        };
        mounted.map_err(|source| CliError::Image { path: path.to_owned(), source })
    }

    /// A storage with the same content, whose changes are kept in memory. A volume that is only read lies on an overlay
    /// already.
    fn storage_in_memory(&self, handle: &Handle) -> Rc<dyn Storage> {
        match self.file() {
            Some(disk) if self.is_plain_file() => Rc::new(overlay(handle, disk)),
            None if self.replica.is_some() => Rc::new(Overlay::new(handle, self.storage(), REPLAY_BLOCKS)),
            _ => self.storage(),
        }
    }

    /// Gives back what is free in a volume to the disk below, if that takes it. What a crash might still need is made
    /// free first, by a checkpoint; and what only that checkpoint's loss would need, by another one (V1).
    pub(crate) async fn trim_below(&self) -> Result<(), FsError> {
        let Some(volume) = self.resizable_volume() else { return Ok(()) };
        let trimmed = volume.with_current(async |volume| {
            volume.checkpoint().await?;
            volume.checkpoint().await?;
            volume.trim().await
        });
        match trimmed.await.map(drop) {
            Ok(()) | Err(VolumeError::Disk(Rejected::Unsupported(_))) => Ok(()),
            Err(VolumeError::Disk(failed)) => Err(failed.into()),
            // The others tell why a volume cannot be opened or made.
            Err(_) => Err(FsError::Storage(StorageError::Gone)),
        }
    }

    /// Ends it, once the filesystem is unmounted.
    pub(crate) async fn close(&self, path: &Path) -> Result<(), CliError> {
        self.below.close().await.map_err(|source| CliError::Volume { path: path.to_owned(), source })
    }
}

/// Rolls forward what a power cut has left of F2FS, on a storage whose changes are kept in memory, and mounts it.
async fn mount_rolled_forward(
    handle: &Handle,
    storage: Rc<dyn Storage>,
    options: F2fsOptions,
) -> Result<F2fs, FsError> {
    let writable = F2fsOptions { read_only: false, ..options };
    F2fs::mount(handle, Rc::clone(&storage), writable).await?.unmount().await?;
    F2fs::mount(handle, storage, options).await
}

/// Mounts what a crash has left, as its journal says, on a storage whose changes are kept in memory.
async fn mount_replayed(
    handle: &Handle,
    storage: Rc<dyn Storage>,
    options: MountOptions,
) -> Result<BarrierFs, FsError> {
    match BarrierFs::recover(handle, Rc::clone(&storage)).await {
        // More than an overlay takes.
        Err(FsError::Storage(StorageError::NoSpace)) => return Err(FsError::NeedsRecovery),
        recovered => recovered?,
    }
    let message = "what the journal has is replayed in memory; nothing is written";
    LogLine::new(Level::INFO, "replayed_in_memory", message).print();
    BarrierFs::mount(handle, storage, options).await
}
