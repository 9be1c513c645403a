//! A mounted filesystem: what every call starts from.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use weir_ext4::{FileTime, Layout, Superblock};
use weir_journal::{Buffers, Disk, Engine, Journal, JournalStats, Sequence, TxHandle, Waits};
use weir_runtime::Handle as Clock;

use crate::access::Accesses;
use crate::cache::PageCache;
use crate::caller::Caller;
use crate::error::{FsError, ReadOnlyReason};
use crate::mutants::FsMutant;
use crate::names::Names;
use crate::nodes::Nodes;
use crate::operations::Operations;
use crate::options::MountOptions;
use crate::orphans::Orphans;
use crate::space::{DiscardStats, Space};
use crate::zeros::Zeroed;

/// The number of an inode, from 1; the root directory is [`weir_ext4::ROOT_INODE`].
pub type InodeNumber = u32;

const NANOS_A_SECOND: u64 = 1_000_000_000;

/// A mounted filesystem; clones share it. [`Filesystem::unmount`] ends it for all of them.
///
/// The future of a call that changes something is to be driven to its end. One that is dropped while it waits for
/// its turn changes nothing; one that is dropped in the middle of a change makes the filesystem read-only
/// ([`ReadOnlyReason::Abandoned`]), since half of a change must not be committed.
#[derive(Clone)]
pub struct Filesystem(pub(crate) Rc<Mounted>, pub(crate) Caller);

/// What all parts of a mounted filesystem share.
pub(crate) struct Mounted {
    pub(crate) clock: Clock,
    pub(crate) options: MountOptions,
    pub(crate) disk: Rc<Disk>,
    pub(crate) buffers: Rc<Buffers>,
    pub(crate) layout: Layout,
    /// As it was read, with what has changed since. Its totals are set at `sync` and unmount only.
    pub(crate) superblock: RefCell<Superblock>,
    pub(crate) space: Rc<Space>,
    pub(crate) orphans: Orphans,
    pub(crate) nodes: Nodes,
    pub(crate) cache: Rc<PageCache>,
    pub(crate) names: Names,
    pub(crate) operations: Operations,
    pub(crate) accesses: Accesses,
    pub(crate) answered: Cell<Answered>,
    /// Journal mode data: the last transaction that marked written blocks as unwritten.
    pub(crate) unwritten_by: Cell<Option<Sequence>>,
    pub(crate) zeroed: Zeroed,
    /// The journal, or why there is none: then nothing can be changed.
    pub(crate) changes: Result<Rc<Journal>, ReadOnlyReason>,
}

/// Synchronisation calls on files that were answered without an error.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Answered {
    /// `fsync` and `fdatasync`.
    pub durable: u64,
    /// `fbarrier` and `fdatabarrier`, whatever it took to keep their promise.
    pub ordered: u64,
}

/// What was counted since the mount.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Statistics {
    /// The engine that commits; none where nothing can be changed.
    pub engine: Option<Engine>,
    /// Synchronisation calls that were answered.
    pub answered: Answered,
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
    /// Blocks of zeros that were written since the tree of an extent found no block to divide it.
    pub zeroed_blocks: u64,
}

/// Sizes of a filesystem, as `statfs` tells them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Statfs {
    /// Bytes in a block.
    pub block_bytes: u32,
    /// Blocks for files, those that are taken by the format itself left out.
    pub blocks: u64,
    /// Free blocks, with those that can be used only after the next commit.
    pub free_blocks: u64,
    /// Free blocks that a plain user may have: without those that are reserved for the superuser, and those that are
    /// kept for extent trees ([`MountOptions::tree_reserve_blocks`]), which nobody's data takes.
    pub available_blocks: u64,
    /// Inodes.
    pub inodes: u32,
    /// Free inodes.
    pub free_inodes: u32,
    /// Bytes in a name at most.
    pub name_bytes_max: u32,
}

impl Mounted {
    /// The journal, which every change needs.
    ///
    /// # Errors
    /// [`FsError::ReadOnly`] with the reason.
    pub(crate) fn journal(&self) -> Result<&Rc<Journal>, FsError> {
        let journal = self.changes.as_ref().map_err(|reason| FsError::ReadOnly(reason.clone()))?;
        match journal.aborted() {
            Some(reason) => Err(FsError::ReadOnly(reason.into())),
            None if journal.is_closing() => Err(FsError::ReadOnly(ReadOnlyReason::Unmounted)),
            None => Ok(journal),
        }
    }

    /// Opens a handle for what a caller does: it takes no more of the space than the caller may.
    pub(crate) async fn start(&self, caller: Caller, credits: u32) -> Result<TxHandle, FsError> {
        Ok(self.journal()?.start(credits).await?.of_caller(self.has_reserve(caller)))
    }

    /// What was discarded.
    pub(crate) fn discards(&self) -> DiscardStats {
        self.space.discard_stats()
    }

    /// The time that inodes are stamped with. It moves with the timer, not with the clock (J6), so two writes
    /// between two ticks change the inode once. The date is asked for each time: it may be stepped, and the machine
    /// may have slept.
    pub(crate) fn now(&self) -> FileTime {
        let tick = match self.options.rules.drops(FsMutant::StampsEveryWrite) {
            true => 1,
            false => NANOS_A_SECOND / u64::from(self.options.timer_hz.max(1)),
        };
        let now = self.clock.wall_clock_nanos() / tick * tick;
        FileTime {
            seconds: i64::try_from(now / NANOS_A_SECOND).unwrap_or(i64::MAX),
            nanoseconds: (now % NANOS_A_SECOND) as u32,
        }
    }
}

impl Drop for Mounted {
    /// Dropped without unmount, it is as after a crash, and the next mount recovers.
    fn drop(&mut self) {
        self.cache.abandon();
    }
}

impl Filesystem {
    /// The time with which a change is stamped now. It moves with the timer (J6).
    pub fn now(&self) -> FileTime {
        self.0.now()
    }

    /// What was counted since the mount.
    pub fn statistics(&self) -> Statistics {
        let journal = self.0.changes.as_ref().ok();
        Statistics {
            engine: journal.map(|journal| journal.engine()),
            answered: self.0.answered.get(),
            epochs: self.0.disk.epochs(),
            waits: self.0.disk.waits(),
            journal: journal.map(|journal| journal.stats()).unwrap_or_default(),
            discards: self.0.discards(),
            pages: self.0.cache.pages(),
            pages_dirty: self.0.cache.dirty(),
            zeroed_blocks: self.0.zeroed.blocks.get(),
        }
    }

    /// Why nothing can be changed, if that is so.
    pub fn read_only(&self) -> Option<ReadOnlyReason> {
        match self.0.journal().and_then(|_| self.0.operations.check()) {
            Err(FsError::ReadOnly(reason)) => Some(reason),
            _ => None,
        }
    }

    /// How large the filesystem is, and how much of it is free.
    pub async fn statfs(&self) -> Statfs {
        let mounted = &self.0;
        Statfs {
            block_bytes: weir_ext4::BLOCK_BYTES as u32,
            blocks: mounted.layout.blocks() - mounted.space.overhead_blocks(),
            free_blocks: mounted.space.free_blocks(),
            available_blocks: mounted.space.available_blocks(),
            inodes: mounted.layout.inodes(),
            free_inodes: mounted.space.free_inodes(),
            name_bytes_max: 255,
        }
    }
}
