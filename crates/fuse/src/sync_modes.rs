//! *Sync modes*: what `fsync` of a file promises, as its owner has said for good by [`SYNC_ATTRIBUTE`].
//!
//! A sync mode lowers what others are promised who use the file, so it is for the owner and the superuser to set, goes with
//! a change of owner, and is not carried into copies: no list of attributes names it, so `cp`, `tar` and `rsync` do not
//! see it. In the filesystem it is the attribute [`MODE`] of the inode. [`HAS_MODES`] of the root says that there may be
//! files with one; without it nothing is looked for, so a filesystem without them pays nothing. With it, a task looks at every
//! inode in use after a mount, and counts.
//!
//! The first release kept them in the attribute [`SYNC_ATTRIBUTE`] itself, where anybody who might write the file could
//! set them and copies had them, too. Those are not heeded: `fsync` of such files promises what the mount says.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use rustix::io::Errno;
use tracing::warn;
use weir_runtime::Handle;
use weir_vfs::{Expect, Filesystem, FsError, InodeNumber};

use crate::control::{SYNC_ATTRIBUTE, SyncMode};
use crate::privileges::Caller;
use crate::remote_sync::RemoteSync;

/// The attribute that holds a sync mode, in the filesystem.
const MODE: &[u8] = b"trusted.weir.sync";
/// The attribute of the root that says that files may have one.
const HAS_MODES: &[u8] = b"trusted.weir.marked";
/// Inodes that are looked at before others have their turn.
const IN_A_ROW: u32 = 64;

/// The sync modes of a mounted filesystem; clones share them.
#[derive(Clone)]
pub(crate) struct SyncModes(Rc<SyncModesState>);

struct SyncModesState {
    filesystem: Filesystem,
    /// The object store that the volume below is shipped to.
    store: Option<RemoteSync>,
    /// There may be some.
    any: Cell<bool>,
    /// A program has set one since the mount.
    touched: Cell<bool>,
    /// All that were there when it was mounted are counted.
    complete: Cell<bool>,
    /// Files that have one. Some of them may be deleted meanwhile.
    found: RefCell<BTreeMap<InodeNumber, SyncMode>>,
}

impl SyncModes {
    /// Those of a filesystem that was just mounted; a task counts them, if there may be any.
    pub(crate) async fn of(handle: &Handle, filesystem: &Filesystem, store: Option<RemoteSync>) -> SyncModes {
        // Where the root cannot be read that is not known, and the task finds out.
        let none = matches!(
            filesystem.extended_attribute(filesystem.root(), HAS_MODES).await,
            Err(FsError::NoAttribute | FsError::Unsupported(_))
        );
        let modes = SyncModes(Rc::new(SyncModesState {
            filesystem: filesystem.clone(),
            store,
            any: Cell::new(!none),
            touched: Cell::new(false),
            complete: Cell::new(none),
            found: RefCell::default(),
        }));
        if !none {
            drop(handle.spawn(modes.clone().count_all(handle.clone())));
        }
        modes
    }

    /// Looks at every inode in use. Where no file has one any more, the root says so again.
    async fn count_all(self, handle: Handle) {
        let SyncModes(state) = &self;
        let mut last = 0;
        let mut looks = 0;
        loop {
            match state.filesystem.next_inode(last).await {
                Ok(Some(inode)) => last = inode,
                Ok(None) => break,
                // Unmounted, or damaged: then how many there are is not known.
                Err(_) => return,
            }
            if let Ok(Some(mode)) = self.get(last).await {
                state.found.borrow_mut().insert(last, mode);
            }
            looks += 1;
            if looks % IN_A_ROW == 0 {
                handle.yield_now().await;
            }
        }
        state.complete.set(true);
        let files = state.count(SyncMode::Remote);
        if files > 0 && state.store.is_none() && state.filesystem.read_only().is_none() {
            warn!(
                name: "remote_files_without_store",
                files, "fsync of files fails that are to be in an object store, by user.weir.sync: the volume is shipped to none"
            );
        }
        if state.found.borrow().is_empty() && !state.touched.get() && state.filesystem.read_only().is_none() {
            state.any.set(false);
            let _ = state.filesystem.remove_extended_attribute(state.filesystem.root(), HAS_MODES).await;
            // A caller that has set one meanwhile has found that the root says so, before it no longer did.
            if state.touched.get() {
                let _ = self.announce(&state.filesystem).await;
            }
        }
    }

    /// Says in the root that files may have one.
    async fn announce(&self, filesystem: &Filesystem) -> Result<(), FsError> {
        filesystem.set_extended_attribute(filesystem.root(), HAS_MODES, b"1", Expect::Anything).await?;
        self.0.any.set(true);
        Ok(())
    }

    /// The sync mode of a file, if it has one.
    pub(crate) async fn get(&self, inode: InodeNumber) -> Result<Option<SyncMode>, FsError> {
        if !self.0.any.get() {
            return Ok(None);
        }
        match self.0.filesystem.extended_attribute(inode, MODE).await {
            Ok(value) => Ok(SyncMode::of_name(&value)),
            Err(FsError::NoAttribute) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Sets a file's sync mode, with space of the caller's. The root says so first: the two are committed in this order.
    pub(crate) async fn set(
        &self,
        inode: InodeNumber,
        mode: SyncMode,
        expect: Expect,
        caller: Caller,
    ) -> Result<(), FsError> {
        let SyncModes(state) = self;
        let filesystem = caller.view_of(&state.filesystem);
        state.touched.set(true);
        if !state.any.get() {
            self.announce(&filesystem).await?;
        }
        filesystem.set_extended_attribute(inode, MODE, mode.name(), expect).await?;
        state.found.borrow_mut().insert(inode, mode);
        self.forget_old(inode).await
    }

    /// Refuses a promise that cannot be kept here: that of a store where there is none.
    pub(crate) fn require_kept(&self, mode: SyncMode) -> Result<(), Errno> {
        match mode == SyncMode::Remote && self.0.store.is_none() {
            true => Err(Errno::OPNOTSUPP),
            false => Ok(()),
        }
    }

    /// Waits until the store has what was synchronised here. It is EIO if there is none, and not an error by which programs know that
    /// `fsync` means nothing for a file, as they ignore these.
    pub(crate) async fn wait_for_store(&self) -> Result<(), Errno> {
        match &self.0.store {
            Some(store) if store.wait().await => Ok(()),
            _ => Err(Errno::IO),
        }
    }

    /// Takes a file's sync mode away.
    pub(crate) async fn remove(&self, inode: InodeNumber) -> Result<(), FsError> {
        let SyncModes(state) = self;
        if !state.any.get() {
            return Err(FsError::NoAttribute);
        }
        state.filesystem.remove_extended_attribute(inode, MODE).await?;
        state.found.borrow_mut().remove(&inode);
        self.forget_old(inode).await
    }

    /// Takes away what the first release has left.
    async fn forget_old(&self, inode: InodeNumber) -> Result<(), FsError> {
        match self.0.filesystem.remove_extended_attribute(inode, SYNC_ATTRIBUTE).await {
            Err(FsError::NoAttribute) => Ok(()),
            done => done,
        }
    }

    /// Files whose sync mode is `order`, and `remote`; none as long as they are being counted. Each of them is looked at.
    pub(crate) async fn count(&self) -> [Option<u64>; 2] {
        let SyncModes(state) = self;
        let files: Vec<InodeNumber> = state.found.borrow().keys().copied().collect();
        for inode in files {
            match self.get(inode).await {
                Ok(Some(mode)) => drop(state.found.borrow_mut().insert(inode, mode)),
                // Deleted, or another file by now.
                Ok(None) | Err(FsError::NotFound) => drop(state.found.borrow_mut().remove(&inode)),
                Err(_) => {}
            }
        }
        [SyncMode::Order, SyncMode::Remote].map(|mode| state.complete.get().then(|| state.count(mode)))
    }
}

impl SyncModesState {
    fn count(&self, mode: SyncMode) -> u64 {
        self.found.borrow().values().filter(|found| **found == mode).count() as u64
    }
}
