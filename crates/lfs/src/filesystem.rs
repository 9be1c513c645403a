//! F2FS: making and mounting.

use std::ops::Deref;
use std::rc::Rc;

use weir_block::Waits;
use weir_f2fs::{FormatError, Mkfs, read_superblock};
use weir_runtime::Handle as Clock;
use weir_storage::{Recorder, Storage};
use weir_vfs::{Caller, Filesystem, FilesystemCalls, FsError, NewFilesystem, StorageImage, write_filesystem};

use crate::cleaner_kind::{Cleaner, CleanerCounts};
use crate::mount;
use crate::mounted::Mounted;
use crate::options::F2fsOptions;

/// A mounted filesystem; clones share it. [`F2fs::unmount`](weir_vfs::MountedCalls::unmount) ends it for all of them.
#[derive(Clone)]
pub struct F2fs(pub(crate) Rc<Mounted>, pub(crate) Caller);

/// What was counted since the mount.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Statistics {
    /// How the cleaner moves blocks.
    pub cleaner: Cleaner,
    /// What it has done.
    pub cleaned: CleanerCounts,
    /// Checkpoints that were written, that of the mount included.
    pub checkpoints: u64,
    /// Segments of the main area.
    pub segments: u32,
    /// Of these, free ones.
    pub segments_free: u32,
    /// Synchronisation calls that were answered: those that promise durability, and those that promise order.
    pub answered: (u64, u64),
    /// Epochs that were ended, by a barrier write or a bare barrier.
    pub epochs: u64,
    /// What calls and checkpoints waited for.
    pub waits: Waits,
    /// Pages of file data in memory.
    pub pages: usize,
    /// Of these, dirty.
    pub pages_dirty: usize,
}

impl F2fs {
    /// Makes a filesystem of `options.blocks` blocks on a storage, whatever is there. One that was not finished is none.
    ///
    /// # Errors
    /// [`FsError::Format`] for options out of range, or a storage that is too small; what the storage answered.
    pub async fn make(device: &dyn Storage, options: &Mkfs) -> Result<(), FsError> {
        let image = options.plan()?;
        let (blocks, writes) = (options.blocks, image.writes());
        write_filesystem(device, NewFilesystem { blocks, superblocks: 0..2, writes, discards: false }).await
    }

    /// Whether the first two blocks of a storage are those of F2FS, of any kind. Blocks that cannot be read are not known to be.
    pub async fn is_on(device: &Rc<dyn Storage>) -> bool {
        let read = read_superblock(&StorageImage(Rc::clone(device))).await;
        read.is_ok_and(|chosen| !matches!(chosen, Err(FormatError::Foreign { .. })))
    }

    /// Mounts the filesystem on a storage: one made by [`F2fs::make`], or by `mkfs.f2fs` with features of the subset
    /// (docs/format/f2fs.md). What `fsync` has written behind the newest checkpoint is rolled forward first.
    ///
    /// # Errors
    /// [`FsError::Format`] names what is not supported, or damaged; [`FsError::NotRolledForward`] for a read-only mount of what a
    /// power cut has left.
    pub async fn mount(
        clock: &Clock,
        device: Rc<dyn Storage>,
        options: F2fsOptions,
    ) -> Result<F2fs, FsError> {
        F2fs::mount_recorded(clock, device, None, options).await
    }

    /// The same, with a recorder that sees every request: simulations check the orders with it.
    ///
    /// # Errors
    /// As [`F2fs::mount`].
    pub async fn mount_recorded(
        clock: &Clock,
        device: Rc<dyn Storage>,
        recorder: Option<Rc<Recorder>>,
        options: F2fsOptions,
    ) -> Result<F2fs, FsError> {
        Ok(F2fs(mount::mount(clock, device, recorder, options).await?, Caller::SUPERUSER))
    }

    /// What was counted since the mount.
    pub fn statistics(&self) -> Statistics {
        let Mounted { placement, files, checkpoints, disk, options, layout, .. } = &*self.0;
        Statistics {
            cleaner: options.cleaner,
            cleaned: self.0.cleaned.get(),
            checkpoints: checkpoints.written(),
            segments: layout.main_segments(),
            segments_free: placement.space.borrow().free_segments(),
            answered: self.0.answered.get(),
            epochs: disk.epochs(),
            waits: disk.waits(),
            pages: files.cache.pages(),
            pages_dirty: files.cache.dirty(),
        }
    }
}

impl Deref for F2fs {
    type Target = dyn FilesystemCalls;

    fn deref(&self) -> &Self::Target {
        self
    }
}

impl From<F2fs> for Filesystem {
    fn from(mounted: F2fs) -> Filesystem {
        Filesystem::new(Rc::new(mounted))
    }
}
