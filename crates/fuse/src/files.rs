//! Files and directories that programs have open.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

use weir_fs::{DirectoryEntry, InodeNumber};

use crate::control::SyncMode;

/// An open file or directory.
pub(crate) struct OpenFile {
    pub(crate) inode: InodeNumber,
    /// The kernel keeps nothing of it in its page cache.
    pub(crate) direct: bool,
    pub(crate) writable: bool,
    /// Names that were read and did not fit into the answer, and the cookie of the last that did. Names with one
    /// hash have one cookie, so reading on from that would skip the others.
    left: RefCell<(u64, VecDeque<DirectoryEntry>)>,
}

impl OpenFile {
    pub(crate) fn new(inode: InodeNumber, direct: bool, writable: bool) -> OpenFile {
        OpenFile { inode, direct, writable, left: RefCell::default() }
    }

    /// Keeps names that come behind the cookie `last`.
    pub(crate) fn keep_left(&self, last: u64, names: VecDeque<DirectoryEntry>) {
        self.left.replace((last, names));
    }

    /// The names kept for who goes on behind `last`.
    pub(crate) fn take_left(&self, last: u64) -> Option<VecDeque<DirectoryEntry>> {
        let (behind, names) = self.left.take();
        (behind == last && !names.is_empty()).then_some(names)
    }
}

/// All of them. The kernel bounds how many there are, as each is a file descriptor of some process.
#[derive(Default)]
pub(crate) struct Files {
    opened: Cell<u64>,
    open: RefCell<BTreeMap<u64, Rc<OpenFile>>>,
    promises: RefCell<BTreeMap<InodeNumber, Promise>>,
}

/// What `fsync` of an open inode promises, if not the mount's default.
struct Promise {
    opens: u64,
    mode: Option<SyncMode>,
}

impl Files {
    /// Takes a file in; what the kernel calls it by. `mode` is that of the inode's attribute.
    pub(crate) fn insert(&self, file: OpenFile, mode: Option<SyncMode>) -> u64 {
        let handle = self.opened.get() + 1;
        self.opened.set(handle);
        let mut promises = self.promises.borrow_mut();
        promises.entry(file.inode).or_insert(Promise { opens: 0, mode }).opens += 1;
        self.open.borrow_mut().insert(handle, Rc::new(file));
        handle
    }

    pub(crate) fn get(&self, handle: u64) -> Option<Rc<OpenFile>> {
        self.open.borrow().get(&handle).cloned()
    }

    pub(crate) fn remove(&self, handle: u64) -> Option<Rc<OpenFile>> {
        let file = self.open.borrow_mut().remove(&handle)?;
        let mut promises = self.promises.borrow_mut();
        if let Some(promise) = promises.get_mut(&file.inode) {
            promise.opens -= 1;
            if promise.opens == 0 {
                promises.remove(&file.inode);
            }
        }
        Some(file)
    }

    /// What `fsync` of an inode promises, if that was said of it.
    pub(crate) fn promise(&self, inode: InodeNumber) -> Option<SyncMode> {
        self.promises.borrow().get(&inode).and_then(|promise| promise.mode)
    }

    /// Says what `fsync` of an inode promises; nobody asks while it is not open.
    pub(crate) fn set_promise(&self, inode: InodeNumber, mode: Option<SyncMode>) {
        if let Some(promise) = self.promises.borrow_mut().get_mut(&inode) {
            promise.mode = mode;
        }
    }
}
