//! Files that programs have open.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use weir_vfs::InodeNumber;

use crate::control::SyncMode;

/// An open file.
pub(crate) struct OpenFile {
    pub(crate) inode: InodeNumber,
    /// What is written through it goes past the kernel's page cache.
    pub(crate) direct: bool,
    pub(crate) writable: bool,
    /// A program can map it for writing, which takes a file that is open for both reading and writing.
    pub(crate) mappable: bool,
    /// Reading it leaves no trace.
    pub(crate) quiet: bool,
    /// Each write is durable when its call returns (O_DSYNC, O_SYNC).
    pub(crate) is_synchronous: bool,
    /// Each write is ordered that does not make it longer.
    pub(crate) orders_writes: Cell<bool>,
    /// An update of the file was begun through it, and not ended.
    pub(crate) has_begun_update: Cell<bool>,
    /// What `fsync` promises, where it is a claim and says so.
    pub(crate) promise: Cell<Option<SyncMode>>,
}

impl OpenFile {
    pub(crate) fn new(inode: InodeNumber, direct: bool, writable: bool) -> OpenFile {
        OpenFile {
            inode,
            direct,
            writable,
            mappable: false,
            quiet: false,
            is_synchronous: false,
            orders_writes: Cell::new(false),
            has_begun_update: Cell::new(false),
            promise: Cell::new(None),
        }
    }

    /// What is written through it stays with the kernel, if that keeps a writeback cache.
    fn is_dirtying(&self) -> bool {
        // Direct writes do not, but a mapping of the same file does, and `fcntl` can end their being direct.
        self.writable
    }
}

/// All of them. The kernel bounds how many there are, as each is a file descriptor of some process. Without requests for opens, they are
/// [claims](crate::claims).
pub(crate) struct Files {
    /// The kernel sends a request for each open and close.
    pub(crate) are_told: bool,
    opened: Cell<u64>,
    open: RefCell<BTreeMap<u64, Rc<OpenFile>>>,
    /// What `fsync` of an open inode promises, where a program has said so of it by [`SET_SYNC`].
    ///
    /// [`SET_SYNC`]: crate::control::SET_SYNC
    promises: RefCell<BTreeMap<InodeNumber, SyncMode>>,
    /// How many have an inode open so that the kernel may have dirty pages of it.
    dirtying: Counts,
    /// How many have an inode open so that it may be mapped for writing.
    mapping: Counts,
    /// How many have an inode open for direct writes.
    direct: Counts,
    /// Of these inodes, those that the kernel has read into its cache since.
    cached: RefCell<BTreeSet<InodeNumber>>,
}

/// How many open files an inode has, where it has any.
#[derive(Default)]
struct Counts(RefCell<BTreeMap<InodeNumber, u32>>);

impl Counts {
    fn add(&self, inode: InodeNumber) {
        *self.0.borrow_mut().entry(inode).or_default() += 1;
    }

    fn subtract(&self, inode: InodeNumber) {
        let mut counts = self.0.borrow_mut();
        if let Some(count) = counts.get_mut(&inode) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&inode);
            }
        }
    }

    fn has(&self, inode: InodeNumber) -> bool {
        self.0.borrow().contains_key(&inode)
    }
}

impl Files {
    /// None yet. `are_told` says that the kernel sends a request for each open and close.
    pub(crate) fn new(are_told: bool) -> Files {
        Files {
            are_told,
            opened: Cell::default(),
            open: RefCell::default(),
            promises: RefCell::default(),
            dirtying: Counts::default(),
            mapping: Counts::default(),
            direct: Counts::default(),
            cached: RefCell::default(),
        }
    }

    /// Takes a file in; what the kernel calls it by.
    pub(crate) fn insert(&self, file: OpenFile) -> u64 {
        let handle = self.opened.get() + 1;
        self.opened.set(handle);
        self.insert_as(handle, file);
        handle
    }

    /// Takes in a file that the kernel calls by this handle already.
    pub(crate) fn insert_as(&self, handle: u64, file: OpenFile) {
        if file.is_dirtying() {
            self.dirtying.add(file.inode);
        }
        if file.mappable {
            self.mapping.add(file.inode);
        }
        if file.direct && file.writable {
            self.direct.add(file.inode);
        }
        self.open.borrow_mut().insert(handle, Rc::new(file));
    }

    /// The handle that was given out last.
    pub(crate) fn last_handle(&self) -> u64 {
        self.opened.get()
    }

    /// Gives out handles behind this one.
    pub(crate) fn begin_behind(&self, last: u64) {
        self.opened.set(last);
    }

    /// All open files, by handle.
    pub(crate) fn list_open(&self) -> Vec<(u64, Rc<OpenFile>)> {
        self.open.borrow().iter().map(|(handle, file)| (*handle, Rc::clone(file))).collect()
    }

    /// What programs have said of `fsync`, by inode.
    pub(crate) fn list_promises(&self) -> Vec<(InodeNumber, SyncMode)> {
        self.promises.borrow().iter().map(|(inode, mode)| (*inode, *mode)).collect()
    }

    /// Inodes that were written directly, where the kernel sends no requests for opens; otherwise the open files say which.
    pub(crate) fn list_direct(&self) -> Vec<InodeNumber> {
        let direct = self.direct.0.borrow();
        if self.are_told { Vec::new() } else { direct.keys().copied().collect() }
    }

    /// Inodes that [may be cached](Self::may_be_cached).
    pub(crate) fn list_cached(&self) -> Vec<InodeNumber> {
        self.cached.borrow().iter().copied().collect()
    }

    /// Goes on with what the server before has listed.
    pub(crate) fn restore_direct(&self, direct: &[InodeNumber], cached: &[InodeNumber]) {
        direct.iter().for_each(|inode| self.direct.add(*inode));
        self.cached.borrow_mut().extend(cached);
    }

    pub(crate) fn get(&self, handle: u64) -> Option<Rc<OpenFile>> {
        self.open.borrow().get(&handle).cloned()
    }

    pub(crate) fn remove(&self, handle: u64) -> Option<Rc<OpenFile>> {
        let mut open = self.open.borrow_mut();
        let file = open.remove(&handle)?;
        if file.is_dirtying() {
            self.dirtying.subtract(file.inode);
        }
        if file.mappable {
            self.mapping.subtract(file.inode);
        }
        if file.direct && file.writable {
            self.direct.subtract(file.inode);
            if !self.direct.has(file.inode) {
                self.cached.borrow_mut().remove(&file.inode);
            }
        }
        let mut promises = self.promises.borrow_mut();
        // Few files have one, so the others need no count of the programs that have them open.
        if promises.contains_key(&file.inode) && !open.values().any(|other| other.inode == file.inode) {
            promises.remove(&file.inode);
        }
        Some(file)
    }

    /// Whether a program has an inode open for writing: the kernel hands over what is dirty before it says that the last
    /// one has closed it.
    pub(crate) fn may_be_dirty(&self, inode: InodeNumber) -> bool {
        self.dirtying.has(inode)
    }

    /// Whether a program may have an inode mapped for writing: a mapping keeps its file open.
    pub(crate) fn may_be_mapped(&self, inode: InodeNumber) -> bool {
        !self.are_told || self.mapping.has(inode)
    }

    /// A direct write to an inode has come: whether it is the first one, where the kernel does not tell of the open.
    pub(crate) fn note_direct_write(&self, inode: InodeNumber) -> bool {
        let is_first = !self.are_told && !self.direct.has(inode);
        if is_first {
            self.direct.add(inode);
        }
        is_first
    }

    /// The kernel has forgotten an inode, and all that it had of it in its cache. Where it does not tell of a close, this is the
    /// last one.
    pub(crate) fn forget_direct_writes(&self, inode: InodeNumber) {
        if !self.are_told {
            self.direct.subtract(inode);
            self.cached.borrow_mut().remove(&inode);
        }
    }

    /// The kernel reads an inode into its cache.
    pub(crate) fn note_cached_read(&self, inode: InodeNumber) {
        if self.direct.has(inode) {
            self.cached.borrow_mut().insert(inode);
        }
    }

    /// Whether the kernel may have pages of an inode in its cache that it read while a direct write was under way.
    pub(crate) fn may_be_cached(&self, inode: InodeNumber) -> bool {
        self.cached.borrow().contains(&inode)
    }

    /// All inodes that a program has open for writing.
    pub(crate) fn that_may_be_dirty(&self) -> Vec<InodeNumber> {
        self.dirtying.0.borrow().keys().copied().collect()
    }

    /// What `fsync` of an inode promises, if a program has said so of it.
    pub(crate) fn promise(&self, inode: InodeNumber) -> Option<SyncMode> {
        self.promises.borrow().get(&inode).copied()
    }

    /// Says what `fsync` of an inode that is open promises, until it is closed everywhere.
    pub(crate) fn set_promise(&self, inode: InodeNumber, mode: SyncMode) {
        self.promises.borrow_mut().insert(inode, mode);
    }

    /// Takes that back.
    pub(crate) fn clear_promise(&self, inode: InodeNumber) {
        self.promises.borrow_mut().remove(&inode);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_may_be_dirty_until_the_last_who_writes_has_closed() {
        let files = Files::new(true);
        let open = |inode, direct, writable| files.insert(OpenFile::new(inode, direct, writable));
        open(12, false, false);
        assert!(!files.may_be_dirty(12));
        // A program that writes directly may map the file, too.
        let writers = [open(12, true, true), open(12, false, true)];
        for writer in writers {
            assert!(files.may_be_dirty(12) && !files.may_be_dirty(13));
            files.remove(writer).unwrap();
        }
        assert!(!files.may_be_dirty(12));
    }

    #[test]
    fn pages_may_be_cached_that_were_read_beside_direct_writes() {
        let files = Files::new(true);
        let open = |inode, direct| files.insert(OpenFile::new(inode, direct, true));
        files.note_cached_read(12);
        let writers = [open(12, true), open(12, true), open(13, true), open(14, false)];
        files.note_cached_read(14);
        assert_eq!(
            [12, 13, 14].map(|inode| files.may_be_cached(inode)),
            [false; 3],
            "read before, or not direct"
        );
        files.note_cached_read(12);
        files.remove(writers[0]).unwrap();
        assert_eq!([12, 13].map(|inode| files.may_be_cached(inode)), [true, false]);
        files.remove(writers[1]).unwrap();
        assert!(!files.may_be_cached(12));
    }

    #[test]
    fn what_is_said_of_a_file_holds_until_it_is_closed_everywhere() {
        let files = Files::new(true);
        let open = |inode| files.insert(OpenFile::new(inode, false, true));
        let [first, second, other] = [open(12), open(12), open(13)];
        files.set_promise(12, SyncMode::Order);
        assert_eq!((files.promise(12), files.promise(13)), (Some(SyncMode::Order), None));
        files.remove(first).unwrap();
        files.remove(other).unwrap();
        assert_eq!(files.promise(12), Some(SyncMode::Order));
        files.remove(second).unwrap();
        assert_eq!(files.promise(12), None);
        assert!(files.remove(second).is_none());
    }
}
