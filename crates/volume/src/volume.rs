//! The volume itself: opening one, and the [`Storage`] that it is.

use std::cell::RefCell;
use std::rc::Rc;
use std::slice;

use event_listener::Event;
use tracing::{info, warn};
use weir_runtime::{Handle, Instant, Task};
use weir_storage::{
    BLOCK_BYTES, Capabilities, Command, Discard, Extent, Lba, LogPhase, Marks, Ordering, Part, Recorder,
    Rejected, Rules, Storage, StorageError, Ticket, Write, flush, run_with_marks,
};

use crate::base_storage::BaseStorage;
use crate::branches::Branches;
use crate::checkpointer::Checkpointer;
use crate::claim::acquire;
use crate::cleaner::{Cleaner, VICTIMS};
use crate::common::Common;
use crate::discard::Discarder;
use crate::error::{Damage, SnapshotError, VolumeError};
use crate::flush::Flusher;
use crate::geometry::Geometry;
use crate::layout::{ENTRIES_PER_CHUNK, ENTRIES_PER_PAGE};
use crate::lease::{Keeper, Leased};
use crate::log::{Head, Log};
use crate::map::{COMMANDS_AT_ONCE, Map};
use crate::marks::MarkState;
use crate::mutants::VolumeMutant;
use crate::names::{Pairs, one_by_one};
use crate::options::{Completion, LossWindow, VolumeOptions};
use crate::read::Reader;
use crate::recovery::{Recovered, Search};
use crate::snapshot_table::Branch;
use crate::stats::{RecoveryReport, Stats};
use crate::tap::{LogTap, TapBounds};

/// Blocks that one discard may name at most: 1 GiB, so that the map's pages that it changes are in memory together.
const DISCARD_BLOCKS_MAX: u32 = 1 << 18;
/// Pages of the map that one command may change at most: those of a discard, whose extents may begin and end anywhere.
const COMMAND_PAGES_MAX: usize = DISCARD_BLOCKS_MAX as usize / ENTRIES_PER_PAGE + 2 * ENTRIES_PER_CHUNK;
/// Pages of the map in memory at most, where [`VolumeOptions::map_pages`] is less.
const MAP_PAGES_MIN: usize = COMMANDS_AT_ONCE * COMMAND_PAGES_MAX;
/// Commands in flight at most. A write whose ticket is transferred at submission is not one of them.
const QUEUE_DEPTH: u32 = 1024;

/// Bytes of memory that a segment takes: its state, and its places in sets.
const SEGMENT_COST: u64 = 64;
/// Bytes of map pages on their way to the disk at one time: 32 writes of 64 pages.
const CHECKPOINT_WRITES: u64 = 8 << 20;

/// How far the log of a volume has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    /// The generation: one more each time the volume is opened.
    pub generation: u64,
    /// The newest record.
    pub placed: u64,
    /// The newest record that is durable, with all before it.
    pub durable: u64,
    /// The newest record when the volume was opened: what its generations before have left.
    pub opened_at: u64,
}

/// What a volume has from its opener, and keeps when it is opened again.
#[derive(Default)]
pub(crate) struct Holding {
    /// V8: of a volume that has a claim.
    pub keeper: Option<Keeper>,
    /// A command that was refused may be taken now.
    pub slots: Rc<Event>,
}

/// An open volume. Dropping it stops its tasks and loses what is not durable, as a power cut would;
/// [`Volume::close`] keeps everything.
pub struct Volume {
    common: Rc<Common>,
    capabilities: Capabilities,
    log: Rc<Log>,
    flusher: Rc<Flusher>,
    checkpointer: Rc<Checkpointer>,
    discarder: Rc<Discarder>,
    branches: Rc<Branches>,
    base: Option<Rc<BaseStorage>>,
    reader: Rc<Reader>,
    /// V8: of a volume that has a claim. It outlives the other tasks, since the end of them is written under it.
    keeper: RefCell<Option<Keeper>>,
    tasks: RefCell<Vec<Task<()>>>,
}

impl Volume {
    /// Opens the volume on `disk`: replays the log, takes a checkpoint, and begins a new log generation.
    ///
    /// # Errors
    /// [`VolumeError`], which names what is wrong with the disk or the volume on it.
    pub async fn open(
        handle: &Handle,
        disk: Rc<dyn Storage>,
        options: VolumeOptions,
    ) -> Result<Volume, VolumeError> {
        Volume::open_with(handle, disk, options, None).await
    }

    /// Opens a volume that was [made on a base](Self::create_on_base), which is read while the volume is open. It is up to the
    /// caller that this is the base that [the volume names](crate::Info::base), or a later state of it with nothing but what this
    /// volume has durable.
    ///
    /// # Errors
    /// As [`open`](Self::open); [`VolumeError::OtherBase`] if the volume has no base, or one of another size.
    pub async fn open_on_base(
        handle: &Handle,
        disk: Rc<dyn Storage>,
        base: Rc<dyn Storage>,
        options: VolumeOptions,
    ) -> Result<Volume, VolumeError> {
        Volume::open_with(handle, disk, options, Some(base)).await
    }

    async fn open_with(
        handle: &Handle,
        disk: Rc<dyn Storage>,
        options: VolumeOptions,
        base: Option<Rc<dyn Storage>>,
    ) -> Result<Volume, VolumeError> {
        let began = handle.now();
        let geometry = crate::check::read_superblock(&*disk).await?;
        require_base(&geometry, base.as_deref(), options.rules)?;
        geometry.fits_commands_of(&*disk)?;
        // V8: before anything is read that another owner may still change.
        let Some(lease) = acquire(handle, &disk, &geometry, &options).await? else {
            return Volume::open_owned(handle, (disk, base), options, Holding::default(), began).await;
        };
        let disk = Rc::new(Leased { below: disk, lease: Rc::clone(&lease) });
        let holding = Holding { keeper: Some(Keeper::new(handle, &lease)), ..Holding::default() };
        let opened = Volume::open_owned(handle, (disk, base), options, holding, began).await;
        if opened.is_err() {
            // The error that is returned says why.
            let _ = lease.release().await;
        }
        opened
    }

    /// Opens the volume on a disk that no other process writes to.
    pub(crate) async fn open_owned(
        handle: &Handle,
        (disk, base): (Rc<dyn Storage>, Option<Rc<dyn Storage>>),
        options: VolumeOptions,
        holding: Holding,
        began: Instant,
    ) -> Result<Volume, VolumeError> {
        // Before it had an owner, another one may have resized it.
        let geometry = crate::check::read_superblock(&*disk).await?;
        require_base(&geometry, base.as_deref(), options.rules)?;
        // V1, V3: after a mere restart the disk's cache may hold a checkpoint, and records, that a power cut
        // still takes back. Recovery overwrites what only the older checkpoint needs, so the newest has to be
        // durable first.
        if !options.rules.drops(VolumeMutant::RecoveryUnflushed) {
            flush(&*disk).await?;
        }
        let found =
            Recovered::recover(&*disk, &geometry, options.rules, options.map_pages, Search::Beginning)
                .await?;
        crate::check::settle_superblocks(&*disk, &geometry, options.rules).await?;
        let geometry = crate::check::prepare_marks(&*disk, geometry, &options).await?;
        let Recovered { records, bytes_read, .. } = found;
        let Holding { keeper, slots } = holding;
        let volume = Volume::start(handle, disk, (geometry, base), options, (found, slots));
        volume.keeper.replace(keeper);
        // V1: from this checkpoint on, what lies behind the cut is of a past generation. It also gives the log
        // its free-segment list.
        volume.checkpointer.take().await?;
        volume.run_tasks();
        run_with_marks(&volume, volume.load_branches()).await?;
        let Head { generation, .. } = volume.log.head();
        let report = RecoveryReport { records, bytes_read, generation, duration: handle.now().since(began) };
        volume.common.count(|stats| stats.recovery = report);
        volume.log_opening(&report);
        Ok(volume)
    }

    fn start(
        handle: &Handle,
        disk: Rc<dyn Storage>,
        (geometry, base): (Geometry, Option<Rc<dyn Storage>>),
        options: VolumeOptions,
        (found, slots): (Recovered, Rc<Event>),
    ) -> Volume {
        let segment_bytes = u64::from(geometry.segment_blocks) * BLOCK_BYTES as u64;
        let options = options.within_ranges(segment_bytes);
        let Recovered { mut blocks, checkpoint, log, next_sequence, .. } = found;
        blocks.segments.was_replayed(log);
        let kept = options.rules.drops(VolumeMutant::SameGeneration);
        let generation = checkpoint.generation + u64::from(!kept);
        let common = Rc::new(Common::new(handle, disk, geometry, options, next_sequence - 1, slots));
        let log = Log::new(Rc::clone(&common), blocks, (next_sequence, generation), checkpoint.number);
        let log = Rc::new(log);
        let flusher = Rc::new(Flusher::new(Rc::clone(&log)));
        let branches = Rc::new(Branches::new(&log, &flusher));
        let base = base.map(|storage| Rc::new(BaseStorage::new(&log, storage)));
        Volume {
            capabilities: capabilities(geometry.atomic_blocks(), geometry.shares),
            flusher,
            checkpointer: Rc::new(Checkpointer::new(Rc::clone(&log), checkpoint)),
            discarder: Rc::new(Discarder::new(&log)),
            reader: Rc::new(Reader::new(Rc::clone(&log), Rc::clone(&branches), base.clone())),
            branches,
            base,
            keeper: RefCell::default(),
            tasks: RefCell::new(Vec::new()),
            log,
            common,
        }
    }

    /// Reads the table of snapshots and clones, and ends what a crash has interrupted.
    async fn load_branches(&self) -> Result<(), VolumeError> {
        let Some(at) = self.common.geometry.table() else { return Ok(()) };
        let ticket = self.reader.submit(0, Extent::new(at, 1));
        ticket.transferred().await.map_err(|error| match error {
            StorageError::Damaged(_) => VolumeError::Damaged { what: Damage::SnapshotTable, at },
            error => error.into(),
        })?;
        let block = ticket.take_data().ok_or(StorageError::Gone)?;
        self.branches.load(&block).map_err(|what| VolumeError::Damaged { what, at })?;
        self.branches.end_interrupted().await.map_err(|error| match error {
            SnapshotError::Volume(error) => VolumeError::Disk(error),
            _ => VolumeError::Damaged { what: Damage::SnapshotTable, at },
        })
    }

    /// Snapshots and clones, in the order in which they were made.
    #[must_use]
    pub fn snapshots(&self) -> Vec<Branch> {
        self.branches.list()
    }

    /// Keeps what the volume holds now under a name (V10): all that was submitted before. It is durable when this returns, with
    /// all of that.
    ///
    /// # Errors
    /// [`SnapshotError`].
    pub async fn create_snapshot(&self, name: &str) -> Result<Branch, SnapshotError> {
        self.branches.create_snapshot(name).await
    }

    pub(crate) fn branches(&self) -> &Branches {
        &self.branches
    }

    /// Makes a clone of a snapshot, durably. It takes space as it is written.
    ///
    /// # Errors
    /// [`SnapshotError`].
    pub async fn create_clone(&self, snapshot: &str, name: &str) -> Result<Branch, SnapshotError> {
        self.branches.create_clone(snapshot, name).await
    }

    /// Deletes a snapshot or a clone, durably. A crash meanwhile leaves a deletion that the next opening ends.
    ///
    /// # Errors
    /// [`SnapshotError`]; a snapshot with a clone stays.
    pub async fn delete_snapshot(&self, name: &str) -> Result<(), SnapshotError> {
        self.branches.delete(name).await
    }

    /// Lets the volume read what a snapshot does, durably. What is newer is kept where a snapshot has it. Nothing else may use
    /// the volume meanwhile. A crash leaves a volume that the next opening rolls back to the end.
    ///
    /// # Errors
    /// [`SnapshotError`].
    pub async fn roll_back(&self, snapshot: &str) -> Result<(), SnapshotError> {
        self.branches.roll_back(snapshot).await
    }

    fn log_opening(&self, recovery: &RecoveryReport) {
        let Geometry { logical_blocks, segments, segment_blocks, .. } = self.common.geometry;
        info!(
            name: "volume_opened",
            blocks = logical_blocks, segments, segment_blocks, generation = recovery.generation, "opened"
        );
        let (used, found) = (self.common.geometry.physical_blocks, self.common.disk.blocks());
        if used < found {
            warn!(
                name: "disk_larger_than_volume",
                used,
                found, "the disk has more blocks than the volume uses: `weir volume grow` takes them in"
            );
        }
        if recovery.records > 0 {
            let RecoveryReport { records, bytes_read, duration, .. } = *recovery;
            warn!(
                name: "volume_recovered",
                records, bytes_read, seconds = duration.as_secs_f64(),
                "the volume was not closed: its log was replayed"
            );
        }
    }

    fn run_tasks(&self) {
        let Common { handle, disk, options, .. } = &*self.common;
        let mut tasks = self.tasks.borrow_mut();
        tasks.push(handle.spawn(Rc::clone(&self.flusher).run_retirer()));
        tasks.push(handle.spawn(Rc::clone(&self.flusher).run_flusher()));
        let (checkpointer, discarder) = (Rc::clone(&self.checkpointer), Rc::clone(&self.discarder));
        let cleaner =
            Rc::new(Cleaner::new(Rc::clone(&self.log), Rc::clone(&self.flusher), checkpointer, discarder));
        tasks.push(handle.spawn(cleaner.run()));
        if let Some(Keeper { lease, .. }) = &*self.keeper.borrow() {
            let (lease, common) = (Rc::clone(lease), Rc::clone(&self.common));
            tasks.push(handle.spawn(async move { common.fail(lease.until_lost().await.into()) }));
        }
        if disk.capabilities().discard != Discard::Unsupported {
            tasks.push(handle.spawn(Rc::clone(&self.discarder).run()));
            if options.discard_below {
                self.log.blocks.borrow_mut().segments.collect_emptied();
            }
        }
    }

    /// Makes everything durable and the next opening quick: takes a checkpoint and stops.
    ///
    /// # Errors
    /// What the disk below answered; then what was not durable before is lost.
    pub async fn close(&self) -> Result<(), VolumeError> {
        self.close_log().await?;
        let keeper = self.keeper.take();
        if let Some(keeper) = keeper {
            keeper.lease.release().await?;
        }
        Ok(())
    }

    /// What [`close`](Self::close) does, but that the volume keeps its claim (V8).
    pub(crate) async fn close_log(&self) -> Result<(), VolumeError> {
        if let Some(error) = self.common.watermark.failure() {
            return Err(error.into());
        }
        // A later write is refused, not acknowledged and forgotten.
        self.common.begin_closing();
        // Upkeep may wait for it.
        self.place_last_mark().await?;
        // Upkeep between the two last checkpoints would make them of two moments.
        let _upkeep = self.common.end_upkeep().await;
        // A discard that is in flight may be carried out late: the next program that opens the disk may have written
        // there.
        let _none = self.discarder.on_the_way.acquire(1).await;
        let outcome = self.checkpointer.take_last().await;
        self.stop();
        info!(name: "volume_closed", ok = outcome.is_ok(), "closed");
        Ok(outcome?)
    }

    /// V13: what is closed is kept, with a mark behind it or without.
    async fn place_last_mark(&self) -> Result<(), Rejected> {
        if self.common.marks.is_none() {
            return Ok(());
        }
        self.common.until_accepted(async || self.log.append_mark()).await.map(drop)
    }

    fn stop(&self) {
        for task in self.tasks.borrow().iter() {
            task.cancel();
        }
        // No task will move the marks any more.
        self.common.watermark.fail(StorageError::Gone);
        self.discarder.stop();
        self.common.slots.notify(usize::MAX);
    }

    /// Takes a checkpoint now. Dropping the future half way stops the volume, as a failure of the disk would.
    ///
    /// # Errors
    /// What the disk below answered; the volume is poisoned then.
    pub async fn checkpoint(&self) -> Result<(), VolumeError> {
        Ok(self.checkpointer.take().await?)
    }

    /// Discards on the disk below all that is free, once, whatever [`VolumeOptions::discard_below`] says, and returns
    /// how many blocks that were. What a crash may still need (V3) is not free: a [`Volume::checkpoint`] before frees
    /// more. The log waits only where it comes to segments that are just being discarded.
    ///
    /// A disk that had all its space reserved for the volume loses that: should it be full later, writes fail.
    ///
    /// # Errors
    /// [`Rejected::Unsupported`] if the disk has no discard; what it answered otherwise. The volume goes on either way.
    pub async fn trim(&self) -> Result<u64, VolumeError> {
        Ok(self.discarder.trim().await?)
    }

    /// Has sealed chunks copied from here on, within bounds. Only one tap is open at a time: a new one takes the place of the
    /// one before.
    #[must_use]
    pub fn tap(&self, bounds: TapBounds) -> LogTap {
        LogTap::new(&self.common, bounds)
    }

    /// The volume's identity.
    #[must_use]
    pub fn identity(&self) -> u64 {
        self.common.geometry.volume
    }

    /// The generation of the log, and the sequence numbers of the newest record, of the newest durable one, and of the newest one when
    /// the volume was opened.
    #[must_use]
    pub fn position(&self) -> Position {
        let Head { generation, .. } = self.log.head();
        let durable = self.common.watermark.durable_to();
        Position { generation, placed: self.log.placed_to(), durable, opened_at: self.log.opened_at() }
    }

    pub(crate) fn common(&self) -> &Rc<Common> {
        &self.common
    }

    pub(crate) fn log(&self) -> &Rc<Log> {
        &self.log
    }

    /// Hands the transfers and persists of tagged writes to an order recorder.
    pub fn set_recorder(&self, recorder: Rc<Recorder>) {
        self.log.set_recorder(recorder);
    }

    /// The bounds of the loss window (V5): the bytes are a limit, the time is a target.
    #[must_use]
    pub fn loss_window(&self) -> LossWindow {
        self.common.options.loss_window
    }

    /// Bytes of log that a recovery of the volume as it is open now is to read at most:
    /// [`checkpoint_segments`](VolumeOptions::checkpoint_segments), and behind them as far as the loss window may
    /// reach. What is written during one checkpoint may come on top.
    #[must_use]
    pub fn recovery_target_bytes(&self) -> u64 {
        let log = self.common.options.checkpoint_segments as u64 * self.common.segment_bytes();
        log + u64::from(self.common.window_blocks()) * BLOCK_BYTES as u64
    }

    /// Bytes of memory that the volume takes at most, but for what reads that are under way hold themselves: its segment
    /// buffers, 4 segments that are being cleaned, 4,124 bytes for each page of the map (510 blocks) that may be in memory
    /// ([`map_pages`](VolumeOptions::map_pages)) and 24 bytes for each page of all, 4 MiB of pages that change during a
    /// checkpoint, 64 bytes for each segment, and what a checkpoint writes, which takes 8 MiB at one time.
    /// A recovery holds what the log has changed, which is more if the volume was open with a higher limit before.
    /// Each logical block that reads a shared block takes 32 bytes more ([`Stats::shared_names`]): those that do now are in
    /// it.
    #[must_use]
    pub fn memory_bound(&self) -> u64 {
        self.memory_bound_of(&self.common.geometry)
    }

    /// The same with another layout.
    pub(crate) fn memory_bound_of(&self, geometry: &Geometry) -> u64 {
        let segments = (self.common.options.buffers + VICTIMS) as u64 * self.common.segment_bytes();
        let of_segments = u64::from(geometry.segments) * SEGMENT_COST;
        let checkpoint = u64::from(geometry.checkpoint_blocks) * BLOCK_BYTES as u64 + CHECKPOINT_WRITES;
        let names = self.log.blocks.borrow().names().bytes() as u64;
        // The cleaner exceeds the limit by what it moves at one time.
        let limit =
            self.common.options.map_pages.max(MAP_PAGES_MIN) + VICTIMS * geometry.segment_blocks as usize;
        segments + Map::bytes_max(geometry.map_pages, limit) + names + of_segments + checkpoint
    }

    /// Why nothing more is acknowledged, if the disk below has failed.
    #[must_use]
    pub fn failure(&self) -> Option<StorageError> {
        self.common.watermark.failure()
    }

    /// What the volume has done and seen so far.
    #[must_use]
    pub fn stats(&self) -> Stats {
        let blocks = self.log.blocks.borrow();
        let geometry = &self.common.geometry;
        Stats {
            segments: geometry.segments,
            free_segments: geometry.segments - blocks.segments.with_live(),
            live_blocks: blocks.segments.live_total(),
            shared_blocks: blocks.names().blocks(),
            shared_names: blocks.names().count(),
            usable_blocks: geometry.usable_blocks(),
            data_capacity_blocks: u64::from(geometry.segments)
                * u64::from(geometry.data_blocks_per_segment()),
            map_bytes: blocks.map.bytes() as u64,
            map_pages_evicted: blocks.map.pages_evicted() as u64,
            names_bytes: blocks.names().bytes() as u64,
            segments_bytes: (blocks.segments.bytes() + self.checkpointer.table_bytes()) as u64,
            buffer_bytes: self.common.options.buffers as u64 * self.common.segment_bytes(),
            loss_window: self.log.loss_window_seen(),
            ..self.common.stats()
        }
    }

    /// Waits until all that was submitted is transferred and durable. Nothing may be submitted meanwhile.
    ///
    /// # Errors
    /// What the disk below answered.
    pub(crate) async fn end_commands(&self) -> Result<(), Rejected> {
        flush(self).await?;
        loop {
            let ended = self.common.slots.listen();
            if self.commands_in_flight() == 0 {
                return Ok(());
            }
            ended.await;
        }
    }

    /// Opens a volume again that has its log closed, with its claim, if it has one. It has no base.
    pub(crate) async fn open_again(&self) -> Result<Volume, VolumeError> {
        let Common { handle, disk, options, slots, .. } = &*self.common;
        let holding = Holding { keeper: self.keeper.take(), slots: Rc::clone(slots) };
        let on = (Rc::clone(disk), None);
        let volume = Volume::open_owned(handle, on, options.clone(), holding, handle.now()).await?;
        if let Some(recorder) = self.log.recorder() {
            volume.set_recorder(recorder);
        }
        Ok(volume)
    }

    /// Reads, and writes whose tickets wait for the disk below. Placed writes wait for nothing.
    fn commands_in_flight(&self) -> u64 {
        let writes = match self.common.options.completion {
            Completion::Placed => 0,
            Completion::Disk => self.log.placed_to().saturating_sub(self.common.watermark.transferred_to()),
        };
        writes + self.reader.under_way()
    }

    /// Takes a write, or the writes of a packed command, which are one record: what their flags ask for in turn, it does at
    /// once for all of them.
    fn write(&self, writes: &[Write<'_>]) -> Result<Ticket, Rejected> {
        let sequence = self.log.append(writes)?;
        if writes.iter().any(|write| write.flags.fua || write.flags.preflush) {
            // In a log, what was written before is durable no later than what comes after it.
            self.flusher.want_durable(sequence);
            return Ok(self.ticket(sequence, LogPhase::Durable));
        }
        Ok(self.placed(sequence))
    }

    /// The ticket of a write.
    fn placed(&self, sequence: u64) -> Ticket {
        self.ticket(
            sequence,
            match self.common.options.completion {
                Completion::Placed => LogPhase::Placed,
                Completion::Disk if self.common.drops(VolumeMutant::AnswersFromMemory) => LogPhase::Placed,
                Completion::Disk => LogPhase::OnDisk,
            },
        )
    }

    fn ticket(&self, sequence: u64, transferred: LogPhase) -> Ticket {
        Ticket::logged(&self.common.watermark, sequence, transferred)
    }
}

impl Drop for Volume {
    fn drop(&mut self) {
        self.stop();
    }
}

/// The parts of a write, so many blocks further on.
fn parts_moved_by<'a>(blocks: u64, write: &Write<'a>) -> Vec<Part<'a>> {
    write.parts.iter().map(|part| Part { start: part.start.offset(blocks), ..*part }).collect()
}

/// Whether a command changes what `extent` reads.
fn changes(command: &Command<'_>, extent: Extent) -> bool {
    let writes = |write: &Write<'_>| write.parts.iter().any(|part| part.extent().overlaps(extent));
    match command {
        Command::Write(write) => writes(write),
        Command::Packed(packed) => packed.iter().any(writes),
        Command::Discard(extents) => extents.iter().any(|discarded| discarded.overlaps(extent)),
        Command::Share(pairs) => {
            pairs.iter().any(|pair| Extent::new(pair.to, pair.from.blocks).overlaps(extent))
        }
        Command::Read { .. } | Command::Barrier { .. } | Command::Flush => false,
    }
}

fn capabilities(atomic_blocks: u32, share: bool) -> Capabilities {
    Capabilities {
        atomic_blocks,
        ordering: Ordering::Prefix,
        ordered_service: true,
        ordered_flush: true,
        fua: true,
        preflush: true,
        reliable: true,
        durable_tickets: true,
        discard: Discard::ReadsZero,
        max_discard_extents: ENTRIES_PER_CHUNK as u32,
        max_discard_blocks: DISCARD_BLOCKS_MAX,
        share,
        // One record, and so one header.
        max_share_blocks: ENTRIES_PER_CHUNK as u32,
        // They are one record, too.
        packed: true,
        ..Capabilities::legacy(QUEUE_DEPTH, atomic_blocks, BLOCK_BYTES as u32)
    }
}

/// V12: that a volume is opened with its base, or has none.
fn require_base(
    geometry: &Geometry,
    base: Option<&dyn Storage>,
    rules: Rules<VolumeMutant>,
) -> Result<(), VolumeError> {
    match (geometry.base, base) {
        (Some(missing), None) if !rules.drops(VolumeMutant::BaseLeftOut) => {
            Err(VolumeError::BaseNeeded(missing.sequence))
        }
        (None, Some(_)) => Err(VolumeError::OtherBase),
        (_, Some(base)) if base.blocks() != geometry.logical_blocks => Err(VolumeError::OtherBase),
        _ => Ok(()),
    }
}

/// Writes what a repair has found: a checkpoint, and one more as closing does.
pub(crate) async fn write_repaired(
    handle: &Handle,
    disk: Rc<dyn Storage>,
    geometry: Geometry,
    found: Recovered,
    rules: Rules<VolumeMutant>,
) -> Result<(), VolumeError> {
    let options = VolumeOptions { rules, ..VolumeOptions::default() };
    let volume = Volume::start(handle, disk, (geometry, None), options, (found, Rc::default()));
    volume.common.begin_closing();
    let _upkeep = volume.common.end_upkeep().await;
    Ok(volume.checkpointer.take_last().await?)
}

impl Storage for Volume {
    fn blocks(&self) -> u64 {
        self.common.geometry.logical_blocks
    }

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn submit(&self, command: Command<'_>) -> Result<Ticket, Rejected> {
        self.submit_to(0, command)
    }

    fn slots(&self) -> &Event {
        &self.common.slots
    }

    fn marks(&self) -> Option<&dyn Marks> {
        self.common.marks.as_ref().map(|_| self as &dyn Marks)
    }

    fn next_data(&self, from: Lba) -> Option<Lba> {
        let known = self.log.blocks.borrow().map.next_known(from.0).map(Lba);
        let of_base = self.base.as_ref().and_then(|base| base.next_data(from));
        known.into_iter().chain(of_base).min().filter(|next| next.0 < self.blocks())
    }
}

impl Marks for Volume {
    fn begin(&self) {
        if let Some(marks) = &self.common.marks {
            marks.begin();
            self.common.slots.notify(usize::MAX);
        }
    }

    fn place(&self) -> Result<Ticket, Rejected> {
        let sequence = self.log.append_mark()?;
        if let Some(marks) = &self.common.marks {
            marks.end();
        }
        self.flusher.want_durable(sequence);
        Ok(self.ticket(sequence, LogPhase::Durable))
    }

    fn room(&self) -> u64 {
        self.common.marks.as_ref().map_or(0, MarkState::room_bytes)
    }

    fn is_wanted(&self) -> bool {
        self.common.marks.as_ref().is_some_and(MarkState::is_wanted)
    }

    fn give_up(&self) {
        if let Some(marks) = &self.common.marks {
            marks.give_up();
            self.common.slots.notify(usize::MAX);
        }
    }

    fn wanted(&self) -> &Event {
        self.common.marks.as_ref().map_or(&self.common.slots, |marks| &marks.wanted)
    }
}

impl Volume {
    /// Takes a command of the volume, slot 0, or of a snapshot or clone.
    pub(crate) fn submit_to(&self, slot: u32, command: Command<'_>) -> Result<Ticket, Rejected> {
        self.capabilities.check(&command, self.common.geometry.logical_blocks)?;
        if self.common.closing.get() {
            return Err(Rejected::Failed(StorageError::Gone));
        }
        if self.commands_in_flight() >= u64::from(QUEUE_DEPTH) {
            return Err(Rejected::Busy);
        }
        let overtakes = self.reader.is_waiting_for(slot, |read| changes(&command, read));
        if overtakes && !self.common.drops(VolumeMutant::WriteOvertakesRead) {
            return Err(Rejected::Busy);
        }
        if slot == 0 {
            self.branches.preserve(&command)?;
        }
        match command {
            Command::Read { extent, .. } => Ok(self.reader.submit(slot, extent)),
            // The log is the order: a barrier has nothing to add, but that nothing is ordered any more after a failure.
            Command::Barrier { .. } => match self.common.watermark.failure() {
                Some(error) => Err(Rejected::Failed(error)),
                None => Ok(Ticket::done()),
            },
            Command::Flush => self.flush(),
            Command::Write(write) => self.write_to(slot, slice::from_ref(&write)),
            Command::Packed(writes) => self.write_to(slot, writes),
            Command::Discard(extents) => self.discard_in(slot, extents),
            Command::Share(pairs) if slot == 0 => self.share(&one_by_one(pairs)),
            Command::Share(pairs) => self.share(&self.branches.pairs_of_clone(slot, &one_by_one(pairs))?),
        }
    }

    fn flush(&self) -> Result<Ticket, Rejected> {
        if let Some(error) = self.common.watermark.failure() {
            return Err(Rejected::Failed(error));
        }
        let placed = self.log.placed_to();
        self.flusher.want_durable(placed);
        Ok(self.ticket(placed, LogPhase::Durable))
    }

    fn share(&self, pairs: &Pairs) -> Result<Ticket, Rejected> {
        if let Some(base) = &self.base {
            base.prepare_share(pairs)?;
        }
        let sequence = self.log.append_share(pairs)?;
        self.common.count(|stats| stats.shared_by_users += pairs.len() as u64);
        Ok(self.placed(sequence))
    }

    /// Discards blocks of a slot. A clone then reads what its snapshot has.
    fn discard_in(&self, slot: u32, extents: &[Extent]) -> Result<Ticket, Rejected> {
        if slot == 0 {
            let part = self.base.as_ref().map(|base| base.part_to_discard(extents)).transpose()?;
            return Ok(self.placed(self.log.append_discard(part.as_deref().unwrap_or(extents))?));
        }
        let base = u64::from(self.branches.base(slot));
        let moved = |extent: &Extent| Extent::new(extent.start.offset(base), extent.blocks);
        let extents: Vec<Extent> = extents.iter().map(moved).collect();
        Ok(self.placed(self.log.append_discard(&extents)?))
    }

    /// Writes into a slot: that of the volume, or of a clone.
    #[inline]
    fn write_to(&self, slot: u32, writes: &[Write<'_>]) -> Result<Ticket, Rejected> {
        if slot == 0 {
            return self.write(writes);
        }
        let base = u64::from(self.branches.base(slot));
        let parts: Vec<_> = writes.iter().map(|write| parts_moved_by(base, write)).collect();
        let writes: Vec<Write<'_>> =
            writes.iter().zip(&parts).map(|(write, parts)| Write { parts, ..*write }).collect();
        self.write(&writes)
    }
}
