//! BarrierFS: making, mounting, unmounting, statistics.

use std::ops::{Deref, Range};
use std::rc::Rc;
use std::time::Duration;

use futures_util::future::LocalBoxFuture;
use weir_cache::units::unit_bytes;
use weir_ext4::{Mkfs, ROOT_INODE};
use weir_format::FileTime;
use weir_journal::{CheckpointBy, Engine, HomeIntegrity, JournalStats, Waits};
use weir_runtime::Handle as Clock;
use weir_storage::{Recorder, Storage};
use weir_vfs::{
    AttributeCalls as _, Caller, Filesystem, FilesystemCalls, FsError, HOLD_BYTES, HandoverCalls,
    HandoverRefusal, HeldInode, InodeNumber, MountedCalls, NAME_BYTES_MAX, ReadOnlyReason, Statfs,
};

use crate::deletion::Orphaned;
use crate::memory::MemoryBound;
use crate::mounted::Mounted;
use crate::mutants::FsMutant;
use crate::options::{JournalMode, MountOptions};
use crate::space::DiscardStats;
use crate::sync::Answered;
use crate::{make, mount};

/// A mounted filesystem; clones share it. [`BarrierFs::unmount`] ends it for all of them.
///
/// The future of a call that changes something is to be driven to its end. One that is dropped while it waits for
/// its turn changes nothing; one that is dropped in the middle of a change makes the filesystem read-only
/// ([`ReadOnlyReason::Abandoned`]), since half of a change must not be committed.
#[derive(Clone)]
pub struct BarrierFs(pub(crate) Rc<Mounted>, pub(crate) Caller);

/// What was counted since the mount.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Statistics {
    /// The engine that commits; none where nothing can be changed.
    pub engine: Option<Engine>,
    /// What the journal holds of file data, and how it brings blocks home.
    pub mode: JournalMode,
    /// The same.
    pub checkpoint: CheckpointBy,
    /// With journal coalition: what keeps homes whole of which the log holds changes alone.
    pub coalition: Option<HomeIntegrity>,
    /// Synchronisation calls that were answered.
    pub answered: Answered,
    /// How long after a change a moment is taken at the latest, if they are.
    pub moments: Option<Duration>,
    /// With moments: how old the tree is that a crash would leave now.
    pub moment_age: Option<Duration>,
    /// Epochs that were ended, by a barrier write or a bare barrier.
    pub epochs: u64,
    /// What calls and the journal waited for.
    pub waits: Waits,
    /// What the journal did.
    pub journal: JournalStats,
    /// What was discarded.
    pub discards: DiscardStats,
    /// Pages of file data in memory.
    pub pages: usize,
    /// Of these, dirty.
    pub pages_dirty: usize,
    /// Bytes of a unit: an aligned write of no more is there as a whole after a crash or not at all, where its blocks are
    /// consecutive on the disk, and all of them or none were written before. A block where the storage does not keep
    /// requests whole.
    pub unit_bytes: u32,
    /// Units whose blocks could not be allocated together.
    pub split_units: u64,
    /// Blocks of zeros that were written since the tree of an extent found no block to divide it.
    pub zeroed_blocks: u64,
}

impl BarrierFs {
    /// Calls `observer` with a file and a range of its blocks whenever zeros are written there in place of dividing an
    /// extent, before they are. What a program writes to such a block next is an overwrite, though no program has
    /// written to it: a judge of what a power cut leaves has to know. `observer` must not call the filesystem. It
    /// takes the place of the one before it.
    pub fn observe_zeros(&self, observer: impl Fn(InodeNumber, Range<u32>) + 'static) {
        self.0.mapping.zeroed.observe(observer);
    }

    /// Makes a filesystem of `options.blocks` blocks on a storage, whatever is there. What was a superblock is
    /// cleared first, and the new one comes last, with a flush in between, so that a filesystem that was not
    /// finished is none.
    ///
    /// # Errors
    /// [`FsError::Format`] for options out of range, or a storage that is too small; what the storage answered.
    pub fn make<'a>(device: &'a dyn Storage, options: &'a Mkfs) -> LocalBoxFuture<'a, Result<(), FsError>> {
        Box::pin(async move { make::make(device, options).await })
    }

    /// Mounts the filesystem on `device`: one made by [`BarrierFs::make`], or by `mkfs.ext4` with features of the
    /// subset (docs/format/fs.md). What a crash has left in the journal is recovered first.
    ///
    /// # Errors
    /// [`FsError::Format`] names the feature that is not supported, or what is damaged;
    /// [`FsError::NeedsRecovery`] for a read-only mount of what a crash has left; [`FsError::NoPrefix`] and
    /// [`FsError::NoBarriers`] for an engine that the storage cannot carry; [`FsError::NoShare`] for checkpoints by remap.
    pub fn mount(
        clock: &Clock,
        device: Rc<dyn Storage>,
        options: MountOptions,
    ) -> LocalBoxFuture<'_, Result<BarrierFs, FsError>> {
        Box::pin(async move { BarrierFs::mount_recorded(clock, device, None, options).await })
    }

    /// The same, with a recorder that sees every request: simulations check the orders with it.
    ///
    /// # Errors
    /// As [`BarrierFs::mount`].
    pub fn mount_recorded(
        clock: &Clock,
        device: Rc<dyn Storage>,
        recorder: Option<Rc<Recorder>>,
        options: MountOptions,
    ) -> LocalBoxFuture<'_, Result<BarrierFs, FsError>> {
        Box::pin(async move {
            let mounted = mount::mount(clock, device, recorder, options).await?;
            Ok(BarrierFs(mounted, Caller::SUPERUSER))
        })
    }

    /// Brings home what a crash has left in the journal, durably, and does nothing else: files that were unlinked
    /// while they were open wait for the next mount.
    ///
    /// # Errors
    /// As [`BarrierFs::mount`].
    pub fn recover(clock: &Clock, device: Rc<dyn Storage>) -> LocalBoxFuture<'_, Result<(), FsError>> {
        Box::pin(async move { mount::recover(clock, device).await })
    }

    /// What was counted since the mount.
    pub fn statistics(&self) -> Statistics {
        let fs = &self.0;
        let journal = fs.changes.mounted_with().ok();
        Statistics {
            engine: journal.map(|journal| journal.engine()),
            mode: fs.options.mode,
            checkpoint: fs.options.checkpoint,
            coalition: journal.and_then(|journal| journal.coalition()),
            answered: fs.sync.answered(),
            moments: fs.options.moments,
            moment_age: fs.moments.get().map(|moments| moments.age(fs.changes.count())),
            epochs: fs.disk.epochs(),
            waits: fs.disk.waits(),
            journal: journal.map(|journal| journal.stats()).unwrap_or_default(),
            discards: fs.metadata.space.discard_stats(),
            unit_bytes: unit_bytes(fs.disk.capabilities()),
            split_units: fs.mapping.split_units.get(),
            pages: fs.cache.pages(),
            pages_dirty: fs.cache.dirty(),
            zeroed_blocks: fs.mapping.zeroed.blocks(),
        }
    }

    /// The blocks of the storage that the journal lies in, as ranges; none of a filesystem that was mounted without changes.
    pub fn journal_area(&self) -> Vec<Range<u64>> {
        let area = self.0.changes.mounted_with().map(|journal| journal.area()).unwrap_or_default();
        area.iter().map(|part| part.start..part.start + u64::from(part.blocks)).collect()
    }

    /// What it takes of memory at most, but for what calls that are under way hold themselves. With *block* for a block
    /// in memory, 4,416 bytes, it is the sum of
    ///
    /// - `files`: *block* for each 4,096 of [`cache_bytes`](crate::MountOptions::cache_bytes);
    /// - `changes`: *block* for each block of the journal, for what it has committed of blocks that have changed since, once
    ///   more for what was written to atomic files and is not synchronised, and 1 KiB for each of [`cache_inodes`](crate::MountOptions::cache_inodes);
    /// - `caches`: *block* for each of [`cache_metadata_blocks`](crate::MountOptions::cache_metadata_blocks), or of the
    ///   journal if it has more, as it may need all that it holds; 1 KiB for each of `cache_inodes`; 20 MiB for names;
    ///   20 KiB for each group of 32,768 blocks; and 21 bytes for each inode that is [held](weir_vfs::NameCalls::held_inodes) now.
    ///
    /// Of the journal, at most [`journal_blocks_max`](crate::MountOptions::journal_blocks_max) blocks count.
    ///
    /// More than that is taken by files that programs have open, and by inodes without a name that are held, beyond
    /// `cache_inodes`, 1 KiB each, and by names of which
    /// most are longer than 40 bytes.
    pub fn memory_bound(&self) -> MemoryBound {
        let fs = &self.0;
        let journal = fs.changes.mounted_with().map_or(0, |journal| journal.log_blocks());
        let held = self.held_inodes() * HOLD_BYTES;
        let bound =
            MemoryBound::from_options(&fs.options, &fs.metadata.space.layout(), fs.cache.most(), journal);
        MemoryBound { caches: bound.caches + held, ..bound }
    }
}

impl MountedCalls for BarrierFs {
    fn root(&self) -> InodeNumber {
        ROOT_INODE
    }

    fn unmount(&self) -> LocalBoxFuture<'_, Result<(), FsError>> {
        Box::pin(async move { mount::unmount(&self.0, Orphaned::All).await })
    }

    fn for_caller(&self, caller: Caller) -> Filesystem {
        BarrierFs(self.0.clone(), caller).into()
    }

    fn now(&self) -> FileTime {
        self.0.timer.now()
    }

    fn read_only(&self) -> Option<ReadOnlyReason> {
        self.0.changes.read_only()
    }

    fn statfs(&self) -> LocalBoxFuture<'_, Statfs> {
        Box::pin(async move {
            self.0.deletion.reclaim().await;
            let space = &self.0.metadata.space;
            let layout = space.layout();
            Statfs {
                block_bytes: weir_format::BLOCK_BYTES as u32,
                blocks: layout.blocks() - space.overhead_blocks(),
                free_blocks: space.free_blocks(),
                available_blocks: space.available_blocks(),
                inodes: layout.inodes(),
                free_inodes: space.free_inodes(),
                name_bytes_max: NAME_BYTES_MAX as u32,
            }
        })
    }

    fn grow(&self, blocks: u64) -> LocalBoxFuture<'_, Result<u64, FsError>> {
        Box::pin(async move { self.0.grow(blocks).await })
    }

    fn trim(&self, range: Range<u64>, minimum: u64) -> LocalBoxFuture<'_, Result<u64, FsError>> {
        Box::pin(async move { self.0.changes.trim(&self.0.disk, range, minimum).await })
    }
}

impl HandoverCalls for BarrierFs {
    fn check_handover(&self) -> Result<(), HandoverRefusal> {
        match self.0.changes.read_only() {
            None | Some(ReadOnlyReason::Mounted) => {}
            Some(reason) => return Err(HandoverRefusal::Stopped(reason)),
        }
        let nodes = self.0.nodes.all();
        let updated = nodes.iter().find(|node| node.update.borrow().is_some() || node.update_begun.get());
        updated.map_or(Ok(()), |node| Err(HandoverRefusal::UpdateOpen(node.number)))
    }

    fn list_holds(&self) -> Vec<HeldInode> {
        let nodes = &self.0.nodes;
        let takes_first_name =
            |inode| nodes.find_nameless(inode).is_some_and(|node| node.takes_first_name.get());
        let counts = nodes.holds.counts().into_iter();
        counts
            .map(|(inode, holds)| HeldInode { inode, holds, takes_first_name: takes_first_name(inode) })
            .collect()
    }

    fn unmount_for_handover(&self) -> LocalBoxFuture<'_, Result<(), FsError>> {
        let deleted = match self.0.options.rules.drops(FsMutant::HandoverDeletesHeld) {
            true => Orphaned::All,
            false => Orphaned::Unused,
        };
        Box::pin(async move { mount::unmount(&self.0, deleted).await })
    }

    fn restore_holds<'a>(&'a self, held: &'a [HeldInode]) -> LocalBoxFuture<'a, Result<(), FsError>> {
        Box::pin(async move {
            let nodes = &self.0.nodes;
            for HeldInode { inode, holds, .. } in held {
                if !self.is_file_number(*inode) {
                    return Err(FsError::Invalid("an inode that cannot be held"));
                }
                nodes.holds.add_many(*inode, *holds);
            }
            for first in held.iter().filter(|held| held.takes_first_name) {
                let node = nodes.get_orphan(first.inode).await?;
                if node.links() > 0 {
                    return Err(FsError::Invalid("a file that has a name is to get its first"));
                }
                node.takes_first_name.set(true);
            }
            self.0.deletion.finish_orphans(Orphaned::Unused).await
        })
    }
}

impl Deref for BarrierFs {
    type Target = dyn FilesystemCalls;

    fn deref(&self) -> &Self::Target {
        self
    }
}

impl From<BarrierFs> for Filesystem {
    fn from(mounted: BarrierFs) -> Filesystem {
        Filesystem::new(Rc::new(mounted))
    }
}
