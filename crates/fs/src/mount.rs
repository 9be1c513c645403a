//! Mounting and unmounting.
//!
//! A mount goes: the superblock and its features, or a copy of it where it is damaged; the journal, replayed if a crash left something in it; the
//! superblock says that the log is in use, durably, before anything is written to it; orphans. Nothing of this
//! loses anything if it crashes in between: then the next mount does it again.

use std::rc::Rc;

use tracing::{info, warn};
use weir_block::{BlockLayer, BlockOptions, Dispatch};
use weir_cache::ReadFailures;
use weir_ext4::journal::LogFeatures;
use weir_ext4::{Feature, Layout, SUPERBLOCK_BYTES, Superblock};
use weir_format::{FormatError, Place, Structure};
use weir_journal::{
    Buffers, CheckpointBy, Conflicts, Disk, Engine, FoundJournal, Journal, JournalOptions, JournalStats,
    Needs, Reuse,
};
use weir_runtime::Handle as Clock;
use weir_storage::{Capabilities, Ordering, Recorder, Storage, run_with_marks};
use weir_vfs::{FsError, ReadOnlyReason};

use crate::deletion::Orphaned;
use crate::grow::write_copies;
use crate::inodes::Metadata;
use crate::moments::Moments;
use crate::mounted::Mounted;
use crate::mutants::FsMutant;
use crate::options::{JournalMode, MountOptions};
use crate::orphans::orphans_on_disk;
use crate::recovery::find_journal;
use crate::space::Space;
use crate::superblock::{
    allow_all_files, find_superblock, has_log_of_ours, read_superblock, seconds, set_needs_recovery,
    write_superblock,
};

/// Mounts the filesystem on `device`.
pub(crate) async fn mount(
    clock: &Clock,
    device: Rc<dyn Storage>,
    recorder: Option<Rc<Recorder>>,
    options: MountOptions,
) -> Result<Rc<Mounted>, FsError> {
    let engine = options.engine.unwrap_or(match device.capabilities().barriers() {
        true => Engine::Dual { conflicts: Conflicts::default() },
        false => Engine::Jbd2 { barrier: true },
    });
    let facts = engine.facts();
    let dispatch = if engine.uses_barriers() { Dispatch::OrderPreserving } else { Dispatch::Legacy };
    let Capabilities { ordering, packed, fua, .. } = *device.capabilities();
    match facts.needs {
        Needs::Prefix if ordering != Ordering::Prefix => return Err(FsError::NoPrefix),
        Needs::Packed if !(packed && fua) => return Err(FsError::NoPacked),
        Needs::Nothing | Needs::Prefix | Needs::Packed => {}
    }
    if facts.log.data_checksums && options.coalition {
        return Err(FsError::Invalid("the engine optfs logs whole blocks, so it has no journal coalition"));
    }
    let selective = facts.log.data_checksums && options.mode != JournalMode::Data;
    // What the journal does not hold of data it decides itself, by what a transaction has allocated.
    let mode = if selective { JournalMode::Data } else { options.mode };
    let options = MountOptions { mode, ..options };
    // Before anything is written: the journal asks only when the superblock says that it is in use.
    let remaps = options.checkpoint == CheckpointBy::Remap && !options.read_only;
    if remaps && !device.capabilities().share {
        return Err(FsError::NoShare);
    }
    let options = options.within_room(&*device)?;
    let disk = disk_on(clock, Rc::clone(&device), dispatch, recorder, options)?;
    let mounted = run_with_marks(&*device, async {
        let found = DiskContents::read_disk(disk, device.blocks(), &options).await?;
        let mounted = match options.read_only {
            true => found.mount_read_only(options).await?,
            false => found.mount_writable(options, engine, selective).await?,
        };
        if !options.keeps_orphans {
            mounted.deletion.finish_orphans(Orphaned::All).await?;
        }
        Ok::<Rc<Mounted>, FsError>(mounted)
    });
    let mounted = mounted.await?;
    tell_of_mounting(&mounted, engine);
    if let Some(interval) = options.moments.filter(|_| mounted.changes.mounted_with().is_ok()) {
        let moments = mounted.moments.get_or_init(|| Moments::new(clock, device, interval));
        let task = Rc::clone(moments).run(Rc::downgrade(&mounted));
        drop(clock.spawn_thread("moments", task));
    }
    Ok(mounted)
}

/// Brings home what a crash has left in the journal.
pub(crate) async fn recover(clock: &Clock, device: Rc<dyn Storage>) -> Result<(), FsError> {
    let device_blocks = device.blocks();
    let options = MountOptions::default();
    let disk = disk_on(clock, device, Dispatch::Legacy, None, options)?;
    DiskContents::read_disk(disk, device_blocks, &options).await.map(drop)
}

/// Ends a mount. Of inodes without names it deletes these.
pub(crate) async fn unmount(mounted: &Mounted, deleted: Orphaned) -> Result<(), FsError> {
    let journal = match mounted.changes.mounted_with() {
        Ok(_) => mounted.changes.journal()?,
        Err(_) => return Ok(()),
    };
    mounted.accesses.log().await?;
    mounted.changes.close().await?;
    let Some(moments) = mounted.moments.get() else { return end_mount(mounted, journal, deleted).await };
    moments.take_last(mounted).await?;
    run_with_marks(moments.device(), end_mount(mounted, journal, deleted)).await
}

/// Writes everything back, when no call changes anything any more, and marks the filesystem clean.
async fn end_mount(mounted: &Mounted, journal: &Rc<Journal>, deleted: Orphaned) -> Result<(), FsError> {
    mounted.atomic.commit_rest(&mounted.nodes.all()).await?;
    mounted.deletion.finish_orphans(deleted).await?;
    mounted.write_back_everything().await?;
    journal.close().await?;
    mounted.metadata.space.discard_the_rest(&mounted.disk).await;
    mounted.superblock.close(&mounted.disk, mounted.disk.handle(), &mounted.options).await?;
    let JournalStats { commits, checkpoints, .. } = journal.stats();
    info!(name: "filesystem_unmounted", commits, checkpoints, "unmounted");
    Ok(())
}

/// The block layer on `device`.
fn disk_on(
    clock: &Clock,
    device: Rc<dyn Storage>,
    dispatch: Dispatch,
    recorder: Option<Rc<Recorder>>,
    options: MountOptions,
) -> Result<Rc<Disk>, FsError> {
    let capabilities = *device.capabilities();
    let queue_requests = options.queue_requests(&*device);
    let layer_options = BlockOptions { dispatch, queue_requests, ..BlockOptions::default() };
    let layer =
        BlockLayer::recorded(clock, device, layer_options, recorder).map_err(|_| FsError::NoBarriers)?;
    Ok(Disk::new(clock, layer, capabilities, options.journal_rules()))
}

fn tell_of_mounting(mounted: &Mounted, engine: Engine) {
    let space = &mounted.metadata.space;
    let (blocks, free) = (space.layout().blocks(), space.free_blocks());
    match mounted.changes.mounted_with() {
        Ok(journal) => {
            info!(
                name: "filesystem_mounted",
                blocks, free, journal_blocks = journal.log_blocks(), ?engine, "mounted"
            );
        }
        Err(ReadOnlyReason::Mounted) => info!(
            name: "filesystem_mounted_read_only",
            blocks, free, "mounted read-only"
        ),
        Err(reason) => warn!(
            name: "filesystem_mounted_without_changes",
            blocks, free, "mounted without changes: {reason}"
        ),
    }
}

/// What is on a disk.
struct DiskContents {
    disk: Rc<Disk>,
    superblock: Superblock,
    layout: Layout,
    /// None only where nothing is going to be changed.
    journal: Option<FoundJournal>,
    /// The superblock is a copy's: the primary one is damaged.
    from_copy: bool,
}

impl DiskContents {
    /// Looks at the superblock and the journal, and recovers what is in the log.
    async fn read_disk(
        disk: Rc<Disk>,
        device_blocks: u64,
        options: &MountOptions,
    ) -> Result<DiskContents, FsError> {
        let (superblock, from_copy) = find_superblock(&disk, device_blocks, options).await?;
        let layout = Layout::new(&superblock)?;
        if superblock.blocks() > device_blocks {
            return Err(damaged("it says that it is larger than the storage").into());
        }
        if !superblock.features().has(Feature::HAS_JOURNAL) {
            return match options.read_only {
                true => Ok(DiskContents { disk, superblock, layout, journal: None, from_copy }),
                false => Err(FormatError::MissingFeature { name: Feature::HAS_JOURNAL.name() }.into()),
            };
        }
        let mut journal = find_journal(&disk, &layout, &superblock).await?;
        let is_empty = journal.superblock.start().is_none();
        let ours = has_log_of_ours(&superblock);
        if is_empty && (!ours || options.read_only) {
            return Ok(DiskContents { disk, superblock, layout, journal: Some(journal), from_copy });
        }
        if options.read_only {
            return Err(FsError::NeedsRecovery);
        }
        if !is_empty {
            // If it has grown, the log has blocks behind the end that the superblock says on the disk.
            let ends_early = options.rules.drops(FsMutant::ReplayEndsAtOldSize);
            let blocks = if ends_early { layout.blocks() } else { device_blocks };
            journal.replay(&disk, blocks, options.journal_rules()).await?;
        }
        // The log may have held the superblock.
        let (mut superblock, from_copy) = match read_superblock(&disk).await {
            Err(FsError::Format(_)) if from_copy => (superblock, true),
            read => (read?, false),
        };
        let (before, layout) = (layout, Layout::new(&superblock)?);
        let has_grown = layout.is_grown_from(&before) && superblock.blocks() <= device_blocks;
        if layout != before && !has_grown {
            return Err(damaged("the log holds one of another size").into());
        }
        if ours || has_log_of_ours(&superblock) {
            // Nothing is in the log any more that only we can replay.
            set_needs_recovery(&mut superblock, true, LogFeatures::default(), options);
            write_superblock(&disk, &mut superblock, options).await?;
        }
        Ok(DiskContents { disk, superblock, layout, journal: Some(journal), from_copy })
    }

    async fn mount_read_only(self, options: MountOptions) -> Result<Rc<Mounted>, FsError> {
        let metadata = self.load(options).await?;
        let changes = Err(ReadOnlyReason::Mounted);
        Ok(Mounted::new(options, self.disk, metadata, self.superblock, Vec::new(), changes))
    }

    async fn mount_writable(
        mut self,
        options: MountOptions,
        engine: Engine,
        selective: bool,
    ) -> Result<Rc<Mounted>, FsError> {
        let noted = self.journal.as_ref().is_some_and(|journal| journal.superblock.error() != 0);
        if noted || self.superblock.has_errors() {
            let metadata = self.load(options).await?;
            let reason = damaged(
                "the superblock says that errors occurred, and it was not checked since: run e2fsck on it",
            );
            let changes = Err(ReadOnlyReason::Damaged(reason));
            return Ok(Mounted::new(options, self.disk, metadata, self.superblock, Vec::new(), changes));
        }
        self.mend_copies().await?;
        let Some(FoundJournal { superblock: mut log, area }) = self.journal.take() else {
            return Err(FormatError::MissingFeature { name: Feature::HAS_JOURNAL.name() }.into());
        };
        let journal_blocks = log.blocks();
        log.upgrade(self.superblock.features().has(Feature::METADATA_CSUM))?;
        let now = seconds(self.disk.handle());
        self.superblock.mount_time = now.into();
        self.superblock.write_time = now.into();
        self.superblock.mounts = self.superblock.mounts.get().saturating_add(1).into();
        let features = LogFeatures { coalition: options.coalition, ..engine.facts().log };
        log.set_features(features)?;
        set_needs_recovery(&mut self.superblock, true, features, &options);
        allow_all_files(&mut self.superblock);
        // Durable before the log is used: without it recovery would not look at the log.
        write_superblock(&self.disk, &mut self.superblock, &options).await?;
        let metadata = self.load_with(options, journal_blocks).await?;
        let orphans = match orphans_on_disk(&metadata, &self.superblock).await {
            // What is left of a damaged superblock leads to no chain: a check finds the orphans, which take space.
            Err(FsError::Format(_)) if self.from_copy => {
                self.superblock.last_orphan = 0.into();
                write_superblock(&self.disk, &mut self.superblock, &options).await?;
                Vec::new()
            }
            found => found?,
        };
        if !orphans.is_empty() {
            info!(
                name: "orphans_found",
                orphans = orphans.len(), "files were open without a name, or being cut short"
            );
        }
        let reuse: Rc<dyn Reuse> = Rc::<Space>::clone(&metadata.space);
        let (disk, cache) = (Rc::clone(&self.disk), Rc::clone(&metadata.buffers));
        let journal_options = JournalOptions {
            engine,
            commit_interval: options.commit_interval,
            checkpoint: options.checkpoint,
            checkpoints: options.checkpoints,
            commits_running: options.commits_running,
            checkpoint_blocks: options.checkpoint_blocks,
            log_blocks_max: options.journal_blocks_max,
            selective,
            notice: options.durability_notice,
            rules: options.journal_rules(),
        };
        let journal = Journal::new(disk, cache, reuse, journal_options, log, area);
        journal.open().await?;
        Ok(Mounted::new(options, self.disk, metadata, self.superblock, orphans, Ok(journal)))
    }

    /// Writes the copies of superblock and descriptors, if they are those of a smaller filesystem: a crash came before that.
    async fn mend_copies(&self) -> Result<(), FsError> {
        if self.layout.groups() < 2 {
            return Ok(());
        }
        let bytes = self.disk.read(self.layout.first_block(1), 1).await?;
        let is_smaller = Superblock::read(&bytes[..SUPERBLOCK_BYTES])
            .is_ok_and(|copy| copy.uuid == self.superblock.uuid && copy.blocks() < self.superblock.blocks());
        let is_unwritten = bytes.iter().all(|byte| *byte == 0);
        if is_smaller || is_unwritten {
            let descriptors = async |block| Ok(Rc::new(self.disk.read(block, 1).await?));
            write_copies(&self.disk, &self.superblock, &self.layout, descriptors).await?;
        }
        Ok(())
    }

    async fn load(&self, options: MountOptions) -> Result<Metadata, FsError> {
        let journal_blocks = self.journal.as_ref().map_or(0, |journal| journal.superblock.blocks());
        self.load_with(options, journal_blocks).await
    }

    async fn load_with(&self, options: MountOptions, journal_blocks: u32) -> Result<Metadata, FsError> {
        let checksums = self.layout.checksums();
        let buffers = Buffers::new(Rc::clone(&self.disk), checksums, options.cache_metadata_blocks);
        let space =
            Space::load(&self.disk, &buffers, self.layout, options, journal_blocks, &self.superblock).await?;
        Ok(Metadata { buffers, space, failures: ReadFailures::default() })
    }
}

fn damaged(what: &'static str) -> FormatError {
    FormatError::corrupt(Structure::Superblock, Place::Block(0), what)
}
