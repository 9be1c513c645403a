//! *Marks*: what `fsync` of a file promises, as its owner has said for good by [`SYNC_ATTRIBUTE`].
//!
//! A mark lowers what others are promised who use the file, so it is for the owner and the superuser to set, goes with
//! a change of owner, and is not carried into copies: no list of attributes names it, so `cp`, `tar` and `rsync` do not
//! see it. In the filesystem it is the attribute [`MARK`] of the inode. [`MARKED`] of the root says that there may be
//! marks; without it nothing is looked for, so a filesystem without marks pays nothing. With it, a task looks at every
//! inode in use after a mount, and counts.
//!
//! The first release kept marks in the attribute [`SYNC_ATTRIBUTE`] itself, where anybody who might write the file could
//! set them and copies had them, too. Those are not heeded: `fsync` of such files promises what the mount says.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::rc::Rc;

use weir_runtime::Handle;
use weir_vfs::{Expect, Filesystem, FsError, InodeNumber};

use crate::control::{SYNC_ATTRIBUTE, SyncMode};
use crate::privileges::Caller;

/// The attribute that a mark is, in the filesystem.
const MARK: &[u8] = b"trusted.weir.sync";
/// The attribute of the root that says that there may be marks.
const MARKED: &[u8] = b"trusted.weir.marked";
/// Inodes that are looked at before others have their turn.
const IN_A_ROW: u32 = 64;

/// The marks of a mounted filesystem; clones share them.
#[derive(Clone)]
pub(crate) struct Marks(Rc<MarksState>);

struct MarksState {
    filesystem: Filesystem,
    /// There may be some.
    any: Cell<bool>,
    /// A program has set one since the mount.
    touched: Cell<bool>,
    /// All that were there when it was mounted are counted.
    complete: Cell<bool>,
    /// Files whose mark says `order`. Some of them may be deleted meanwhile.
    order: RefCell<BTreeSet<InodeNumber>>,
}

impl Marks {
    /// Those of a filesystem that was just mounted; a task counts them, if there may be any.
    pub(crate) async fn of(handle: &Handle, filesystem: &Filesystem) -> Marks {
        // Where the root cannot be read that is not known, and the task finds out.
        let none = matches!(
            filesystem.extended_attribute(filesystem.root(), MARKED).await,
            Err(FsError::NoAttribute | FsError::Unsupported(_))
        );
        let marks = Marks(Rc::new(MarksState {
            filesystem: filesystem.clone(),
            any: Cell::new(!none),
            touched: Cell::new(false),
            complete: Cell::new(none),
            order: RefCell::default(),
        }));
        if !none {
            drop(handle.spawn(marks.clone().count_all(handle.clone())));
        }
        marks
    }

    /// Looks at every inode in use. Where there is no mark any more, the root says so again.
    async fn count_all(self, handle: Handle) {
        let Marks(state) = &self;
        let mut last = 0;
        let mut looks = 0;
        loop {
            match state.filesystem.next_inode(last).await {
                Ok(Some(inode)) => last = inode,
                Ok(None) => break,
                // Unmounted, or damaged: then how many there are is not known.
                Err(_) => return,
            }
            if let Ok(Some(SyncMode::Order)) = self.get(last).await {
                state.order.borrow_mut().insert(last);
            }
            looks += 1;
            if looks % IN_A_ROW == 0 {
                handle.yield_now().await;
            }
        }
        state.complete.set(true);
        if state.order.borrow().is_empty() && !state.touched.get() && state.filesystem.read_only().is_none() {
            state.any.set(false);
            let _ = state.filesystem.remove_extended_attribute(state.filesystem.root(), MARKED).await;
            // Who has set one meanwhile has found that the root says so, before it did not any more.
            if state.touched.get() {
                let _ = self.announce(&state.filesystem).await;
            }
        }
    }

    /// Says in the root that there may be marks.
    async fn announce(&self, filesystem: &Filesystem) -> Result<(), FsError> {
        filesystem.set_extended_attribute(filesystem.root(), MARKED, b"1", Expect::Anything).await?;
        self.0.any.set(true);
        Ok(())
    }

    /// What the mark of a file says, if it has one.
    pub(crate) async fn get(&self, inode: InodeNumber) -> Result<Option<SyncMode>, FsError> {
        if !self.0.any.get() {
            return Ok(None);
        }
        match self.0.filesystem.extended_attribute(inode, MARK).await {
            Ok(value) => Ok(SyncMode::of_name(&value)),
            Err(FsError::NoAttribute) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Marks a file, with space of the caller's. The root says so first: the two are committed in this order.
    pub(crate) async fn set(
        &self,
        inode: InodeNumber,
        mode: SyncMode,
        expect: Expect,
        caller: Caller,
    ) -> Result<(), FsError> {
        let Marks(state) = self;
        let filesystem = caller.view_of(&state.filesystem);
        state.touched.set(true);
        if !state.any.get() {
            self.announce(&filesystem).await?;
        }
        filesystem.set_extended_attribute(inode, MARK, mode.name(), expect).await?;
        match mode {
            SyncMode::Order => state.order.borrow_mut().insert(inode),
            SyncMode::Durable => state.order.borrow_mut().remove(&inode),
        };
        self.forget_old(inode).await
    }

    /// Takes a file's mark away.
    pub(crate) async fn remove(&self, inode: InodeNumber) -> Result<(), FsError> {
        let Marks(state) = self;
        if !state.any.get() {
            return Err(FsError::NoAttribute);
        }
        state.filesystem.remove_extended_attribute(inode, MARK).await?;
        state.order.borrow_mut().remove(&inode);
        self.forget_old(inode).await
    }

    /// Takes away what the first release has left.
    async fn forget_old(&self, inode: InodeNumber) -> Result<(), FsError> {
        match self.0.filesystem.remove_extended_attribute(inode, SYNC_ATTRIBUTE).await {
            Err(FsError::NoAttribute) => Ok(()),
            done => done,
        }
    }

    /// Files whose mark says `order`; none as long as they are being counted. Each of them is looked at.
    pub(crate) async fn count_order(&self) -> Option<u64> {
        let Marks(state) = self;
        let marked: Vec<InodeNumber> = state.order.borrow().iter().copied().collect();
        for inode in marked {
            // Deleted, or another file by now.
            if let Ok(None | Some(SyncMode::Durable)) | Err(FsError::NotFound) = self.get(inode).await {
                state.order.borrow_mut().remove(&inode);
            }
        }
        state.complete.get().then(|| state.order.borrow().len() as u64)
    }
}
