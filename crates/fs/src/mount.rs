//! Mounting and unmounting.
//!
//! A mount goes: the superblock and its features, or a copy of it where it is damaged; the journal, replayed if a crash left something in it; the
//! superblock says that the log is in use, durably, before anything is written to it; orphans. Nothing of this
//! loses anything if it crashes in between: then the next mount does it again.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use tracing::{info, warn};
use weir_block::{BlockLayer, BlockOptions, Dispatch};
use weir_ext4::{
    Feature, FormatError, Kind, Layout, Place, SUPERBLOCK_BYTES, SUPERBLOCK_COPIES, SUPERBLOCK_OFFSET,
    Structure, Superblock,
};
use weir_journal::{
    Buffers, Conflicts, Disk, Engine, FoundJournal, Journal, JournalOptions, JournalStats, Reuse, TxHandle,
};
use weir_runtime::{Buffer as Memory, Handle as Clock};
use weir_storage::{Recorder, Storage};
use zerocopy::IntoBytes;

use crate::access::Accesses;
use crate::cache::PageCache;
use crate::caller::Caller;
use crate::error::{FsError, ReadOnlyReason};
use crate::filesystem::{Filesystem, Mounted};
use crate::mutants::FsMutant;
use crate::names::Names;
use crate::nodes::Nodes;
use crate::operations::Operations;
use crate::options::MountOptions;
use crate::orphans::{Orphans, orphans_on_disk};
use crate::recovery::find_journal;
use crate::space::Space;
use crate::zeros::Zeroed;

/// Journaled blocks that [`Mounted::log_totals`] changes.
pub(crate) const TOTALS_CREDITS: u32 = 1;

impl Filesystem {
    /// Mounts the filesystem on `device`: one made by [`Filesystem::make`], or by `mkfs.ext4` with features of the
    /// subset (docs/format/fs.md). What a crash has left in the journal is recovered first.
    ///
    /// # Errors
    /// [`FsError::Format`] names the feature that is not supported, or what is damaged;
    /// [`FsError::NeedsRecovery`] for a read-only mount of what a crash has left; [`FsError::NoBarriers`] for an
    /// engine that the storage cannot carry.
    pub async fn mount(
        clock: &Clock,
        device: Rc<dyn Storage>,
        options: MountOptions,
    ) -> Result<Filesystem, FsError> {
        Filesystem::mount_recorded(clock, device, None, options).await
    }

    /// The same, where a recorder is told of every request: simulations check the orders with it.
    ///
    /// # Errors
    /// As [`Filesystem::mount`].
    pub async fn mount_recorded(
        clock: &Clock,
        device: Rc<dyn Storage>,
        recorder: Option<Rc<Recorder>>,
        options: MountOptions,
    ) -> Result<Filesystem, FsError> {
        let engine = options.engine.unwrap_or(match device.capabilities().barriers() {
            true => Engine::Dual { conflicts: Conflicts::default() },
            false => Engine::Jbd2 { barrier: true },
        });
        let dispatch = match engine {
            Engine::Dual { .. } => Dispatch::OrderPreserving,
            Engine::Jbd2 { .. } => Dispatch::Legacy,
        };
        let device_blocks = device.blocks();
        let disk = disk_on(clock, device, dispatch, recorder, options)?;
        let found = DiskContents::look(disk, device_blocks, &options).await?;
        let mounted = if options.read_only {
            found.mount_read_only(options).await?
        } else {
            found.mount_writable(options, engine).await?
        };
        let filesystem = Filesystem(mounted, Caller::SUPERUSER);
        filesystem.0.finish_orphans().await?;
        filesystem.0.tell_of_mounting(engine);
        Ok(filesystem)
    }

    /// Brings home what a crash has left in the journal, durably, and does nothing else: files that were unlinked
    /// while they were open wait for the next mount.
    ///
    /// # Errors
    /// As [`Filesystem::mount`].
    pub async fn recover(clock: &Clock, device: Rc<dyn Storage>) -> Result<(), FsError> {
        let device_blocks = device.blocks();
        let options = MountOptions::default();
        let disk = disk_on(clock, device, Dispatch::Legacy, None, options)?;
        DiskContents::look(disk, device_blocks, &options).await.map(drop)
    }

    /// Waits until no call changes anything, deletes files that are open without a name, writes everything back,
    /// empties the journal, and marks the filesystem clean. All clones of it can only read from the beginning of
    /// that on, even if it fails.
    ///
    /// # Errors
    /// [`FsError::ReadOnly`] if the journal was aborted: then the next mount recovers; or if it is unmounted already.
    pub async fn unmount(self) -> Result<(), FsError> {
        let mounted = &self.0;
        let journal = match &mounted.changes {
            Ok(_) => mounted.journal()?,
            Err(_) => return Ok(()),
        };
        mounted.changing(mounted.log_accesses()).await?;
        mounted.operations.close().await?;
        // Nobody will come back to files that are open and have no name.
        mounted.finish_orphans().await?;
        mounted.write_back_everything().await?;
        journal.close().await?;
        mounted.space.discard_the_rest(&mounted.disk).await;
        let mut superblock = *mounted.superblock.borrow();
        mounted.total(&mut superblock);
        superblock.write_time = seconds(&mounted.clock).into();
        set_needs_recovery(&mut superblock, false);
        write_superblock(&mounted.disk, &mut superblock, &mounted.options).await?;
        *mounted.superblock.borrow_mut() = superblock;
        let JournalStats { commits, checkpoints, .. } = journal.stats();
        info!(commits, checkpoints, "unmounted");
        Ok(())
    }
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
    let layer_options = BlockOptions { dispatch, ..BlockOptions::default() };
    let layer =
        BlockLayer::recorded(clock, device, layer_options, recorder).map_err(|_| FsError::NoBarriers)?;
    Ok(Disk::new(clock, layer, capabilities, options.journal_rules()))
}

impl Mounted {
    /// Brings the superblock's totals up to date with the groups'. They are kept lazily, as ext4 does: nobody
    /// needs them after a crash. Costs [`TOTALS_CREDITS`].
    pub(crate) async fn log_totals(&self, handle: &TxHandle) -> Result<(), FsError> {
        let block = self.buffers.get(0, Kind::Superblock).await?;
        let mut superblock = *self.superblock.borrow();
        self.total(&mut superblock);
        if superblock != *self.superblock.borrow() {
            let range = SUPERBLOCK_OFFSET..SUPERBLOCK_OFFSET + superblock.as_bytes().len();
            handle.modify(&block, range, |bytes| bytes.copy_from_slice(superblock.as_bytes()));
            *self.superblock.borrow_mut() = superblock;
        }
        Ok(())
    }

    fn tell_of_mounting(&self, engine: Engine) {
        let (blocks, free) = (self.layout.blocks(), self.space.free_blocks());
        match &self.changes {
            Ok(journal) => {
                info!(blocks, free, journal_blocks = journal.log_blocks(), ?engine, "mounted");
            }
            Err(ReadOnlyReason::Mounted) => info!(blocks, free, "mounted read-only"),
            Err(reason) => warn!(blocks, free, "mounted without changes: {reason}"),
        }
    }

    fn total(&self, superblock: &mut Superblock) {
        superblock.set_free_blocks(self.space.free_blocks());
        superblock.free_inodes = self.space.free_inodes().into();
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
    async fn look(
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
        if journal.superblock.start().is_none() {
            return Ok(DiskContents { disk, superblock, layout, journal: Some(journal), from_copy });
        }
        if options.read_only {
            return Err(FsError::NeedsRecovery);
        }
        journal.replay(&disk, layout.blocks(), options.journal_rules()).await?;
        // The log may have held the superblock.
        let (superblock, from_copy) = match read_superblock(&disk).await {
            Err(FsError::Format(_)) if from_copy => (superblock, true),
            read => (read?, false),
        };
        if Layout::new(&superblock)? != layout {
            return Err(damaged("the log holds one of another size").into());
        }
        Ok(DiskContents { disk, superblock, layout, journal: Some(journal), from_copy })
    }

    async fn mount_read_only(self, options: MountOptions) -> Result<Rc<Mounted>, FsError> {
        let (buffers, space) = self.load(options).await?;
        Ok(self.mounted(options, buffers, space, Vec::new(), Err(ReadOnlyReason::Mounted)))
    }

    async fn mount_writable(mut self, options: MountOptions, engine: Engine) -> Result<Rc<Mounted>, FsError> {
        let noted = self.journal.as_ref().is_some_and(|journal| journal.superblock.error() != 0);
        if noted || self.superblock.has_errors() {
            let (buffers, space) = self.load(options).await?;
            let reason = damaged(
                "the superblock says that errors occurred, and it was not checked since: run e2fsck on it",
            );
            let changes = Err(ReadOnlyReason::Damaged(reason));
            return Ok(self.mounted(options, buffers, space, Vec::new(), changes));
        }
        let Some(FoundJournal { superblock: mut log, area }) = self.journal.take() else {
            return Err(FormatError::MissingFeature { name: Feature::HAS_JOURNAL.name() }.into());
        };
        let journal_blocks = log.blocks();
        log.upgrade(self.superblock.features().has(Feature::METADATA_CSUM))?;
        let now = seconds(self.disk.handle());
        self.superblock.mount_time = now.into();
        self.superblock.write_time = now.into();
        self.superblock.mounts = self.superblock.mounts.get().saturating_add(1).into();
        set_needs_recovery(&mut self.superblock, true);
        // Durable before the log is used: without it nobody would look at the log.
        write_superblock(&self.disk, &mut self.superblock, &options).await?;
        let (buffers, space) = self.load_with(options, journal_blocks).await?;
        let orphans = match orphans_on_disk(&buffers, &space, &self.superblock).await {
            // What is left of a damaged superblock leads to no chain: a check finds the orphans, which take space.
            Err(FsError::Format(_)) if self.from_copy => {
                self.superblock.last_orphan = 0.into();
                write_superblock(&self.disk, &mut self.superblock, &options).await?;
                Vec::new()
            }
            found => found?,
        };
        if !orphans.is_empty() {
            info!(orphans = orphans.len(), "files were open without a name, or being cut short");
        }
        let reuse: Rc<dyn Reuse> = Rc::<Space>::clone(&space);
        let (disk, cache) = (Rc::clone(&self.disk), Rc::clone(&buffers));
        let journal_options = JournalOptions {
            engine,
            commit_interval: options.commit_interval,
            rules: options.journal_rules(),
        };
        let journal = Journal::new(disk, cache, reuse, journal_options, log, area);
        journal.open().await?;
        Ok(self.mounted(options, buffers, space, orphans, Ok(journal)))
    }

    async fn load(&self, options: MountOptions) -> Result<(Rc<Buffers>, Rc<Space>), FsError> {
        let journal_blocks = self.journal.as_ref().map_or(0, |journal| journal.superblock.blocks());
        self.load_with(options, journal_blocks).await
    }

    async fn load_with(
        &self,
        options: MountOptions,
        journal_blocks: u32,
    ) -> Result<(Rc<Buffers>, Rc<Space>), FsError> {
        let checksums = self.layout.checksums();
        let buffers = Buffers::new(Rc::clone(&self.disk), checksums, options.cache_metadata_blocks);
        let space =
            Space::load(&self.disk, &buffers, self.layout, options, journal_blocks, &self.superblock).await?;
        Ok((buffers, space))
    }

    fn mounted(
        self,
        options: MountOptions,
        buffers: Rc<Buffers>,
        space: Rc<Space>,
        orphans: Vec<u32>,
        changes: Result<Rc<Journal>, ReadOnlyReason>,
    ) -> Rc<Mounted> {
        let clock = self.disk.handle().clone();
        let cache = PageCache::new(Rc::clone(&self.disk), &options);
        Rc::new(Mounted {
            options,
            disk: self.disk,
            buffers,
            layout: self.layout,
            superblock: RefCell::new(self.superblock),
            space,
            orphans: Orphans::new(orphans),
            nodes: Nodes::new(&cache, options.cache_inodes),
            cache,
            names: Names::new(clock.entropy() as u32),
            operations: Operations::default(),
            accesses: Accesses::default(),
            answered: Cell::default(),
            unwritten_by: Cell::new(None),
            zeroed: Zeroed::default(),
            changes,
            clock,
        })
    }
}

async fn read_superblock(disk: &Disk) -> Result<Superblock, FsError> {
    let bytes = disk.read(0, 1).await?;
    Ok(Superblock::read(&bytes[SUPERBLOCK_OFFSET..])?)
}

/// The superblock, or what a copy of it makes up for; whether it is a copy's. Who changes nothing may look at any
/// filesystem that was there. A writer has to know that it is still there, and nothing else in its place: the
/// damaged superblock names it.
async fn find_superblock(
    disk: &Disk,
    device_blocks: u64,
    options: &MountOptions,
) -> Result<(Superblock, bool), FsError> {
    let block = disk.read(0, 1).await?;
    let primary = &block[SUPERBLOCK_OFFSET..];
    let error = match Superblock::read(primary) {
        Ok(superblock) => return Ok((superblock, false)),
        Err(error) => error,
    };
    // Nothing is left that says which filesystem it was.
    let is_foreign = matches!(error, FormatError::Foreign);
    let is_damage = match error {
        FormatError::Checksum { .. } | FormatError::Corrupt { .. } => true,
        FormatError::Foreign => options.read_only,
        _ => false,
    };
    if !is_damage || options.rules.drops(FsMutant::TrustsNoCopy) {
        return Err(error.into());
    }
    for place in SUPERBLOCK_COPIES.into_iter().filter(|place| *place < device_blocks) {
        let bytes = disk.read(place, 1).await?;
        let Ok(copy) = Superblock::read(&bytes[..SUPERBLOCK_BYTES]) else { continue };
        let is_there = copy.same_filesystem(primary).is_some() || options.read_only && is_foreign;
        if let Some(superblock) = copy.instead_of(primary, place).filter(|_| is_there) {
            warn!(block = place, "the superblock is damaged: a copy takes its place");
            return Ok((superblock, true));
        }
    }
    Err(error.into())
}

/// Writes the superblock past the journal, into what block 0 holds besides, and makes it durable. Only the sector of
/// its first 512 bytes changes, so that a torn write leaves the old one or the new one.
async fn write_superblock(
    disk: &Disk,
    superblock: &mut Superblock,
    options: &MountOptions,
) -> Result<(), FsError> {
    match options.rules.drops(FsMutant::TearsSuperblock) {
        true => superblock.update_checksum(),
        false => superblock.update_checksum_in_place(),
    }
    let mut block: Memory = disk.read(0, 1).await?;
    let bytes = superblock.as_bytes();
    block[SUPERBLOCK_OFFSET..SUPERBLOCK_OFFSET + bytes.len()].copy_from_slice(bytes);
    disk.write_commit(0, &Rc::new(block), false).await?;
    Ok(disk.flush().await?)
}

fn set_needs_recovery(superblock: &mut Superblock, needed: bool) {
    superblock.set_features(superblock.features().with(Feature::NEEDS_RECOVERY, needed));
}

fn damaged(what: &'static str) -> FormatError {
    FormatError::corrupt(Structure::Superblock, Place::Block(0), what)
}

/// Seconds since 1970, as a superblock keeps them.
fn seconds(clock: &Clock) -> u32 {
    u32::try_from(clock.wall_clock_millis() / 1000).unwrap_or(u32::MAX)
}
