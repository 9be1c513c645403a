//! A *file*: an inode of any kind in memory, with its cached pages, and with what a synchronisation call has to know of it.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::{Rc, Weak};

use weir_cache::{CachedFile, PageCache};
use weir_f2fs::{BLOCK_BYTES, BlockAddress, Inode, NodeEntry, NodeId, pages_max};
use weir_format::{FileTime, FileType, Stamp};
use weir_runtime::{Acquire, Permit, Semaphore};
use weir_vfs::FsError;

use crate::nodes::NodeBlock;
use crate::placement::{FilePlacement, Placement};
use crate::update::Update;

/// Calls that read what a file maps at one time; more of them wait.
const READERS_MAX: usize = 1 << 10;

/// Where the address of a page is stored: a word of the inode, or of another node.
#[derive(Clone)]
pub(crate) struct Slot {
    /// The node; `None` for the inode.
    pub(crate) node: Option<Rc<NodeBlock>>,
    /// Which of its words.
    pub(crate) word: u32,
}

/// An inode in memory.
pub(crate) struct File {
    pub(crate) number: NodeId,
    pub(crate) inode: RefCell<Inode>,
    /// What the node table says of it.
    pub(crate) entry: Cell<NodeEntry>,
    /// Its inode was changed since it was written.
    dirty: Cell<bool>,
    /// How many files are dirty.
    dirty_files: Rc<Cell<u64>>,
    /// The size in the inode that was written last: a page behind it is not overwritten in place, as roll-forward finds the end of a file by
    /// the new places of its pages.
    pub(crate) written_size: Cell<u64>,
    /// It was changed in something that roll-forward does not know by the other nodes.
    pub(crate) changed_itself: Cell<bool>,
    /// A call that changes the file takes all permits, one that reads what it maps takes one. Files are locked in the order of their
    /// numbers.
    lock: Semaphore,
    /// Its number is free.
    deleted: Cell<bool>,
    pub(crate) pages: Rc<CachedFile>,
    /// Where the addresses of dirty pages are stored.
    pub(crate) slots: RefCell<BTreeMap<u32, Slot>>,
    /// What is written to it since a caller began an update.
    pub(crate) update: RefCell<Option<Update>>,
    /// An update has ended since its nodes were written: its dirty pages go to new places, as roll-forward takes all of them or none.
    pub(crate) holds_update: Cell<bool>,
    /// A synchronisation call submits its pages: few of them are overwritten in place.
    pub(crate) is_synchronised: Cell<bool>,
    /// Pages that the cleaner moves: they go to the log of cold data.
    pub(crate) moved: RefCell<BTreeSet<u32>>,
    /// How often it is open.
    pub(crate) opens: Cell<u32>,
    /// It was made without a name, and had none so far.
    pub(crate) takes_first_name: Cell<bool>,
    /// The newest checkpoint does not have it: roll-forward gives it its name.
    pub(crate) is_new: Cell<bool>,
    /// Something of it has changed since the newest checkpoint that roll-forward does not bring back.
    pub(crate) needs_checkpoint: Cell<bool>,
    /// Of a directory: names that the newest checkpoint has, and that stand for nothing or another file now.
    pub(crate) lost_names: RefCell<BTreeSet<Vec<u8>>>,
}

impl File {
    /// A file with this inode.
    pub(crate) fn new(
        number: NodeId,
        inode: Inode,
        entry: NodeEntry,
        cache: &Rc<PageCache>,
        placement: &Rc<Placement>,
    ) -> Rc<File> {
        Rc::new_cyclic(|file: &Weak<File>| {
            let dirty_files = Rc::clone(&placement.dirty_files);
            let placement = FilePlacement::new(Weak::clone(file), Rc::clone(placement));
            File {
                number,
                written_size: Cell::new(inode.size.get()),
                inode: RefCell::new(inode),
                entry: Cell::new(entry),
                dirty: Cell::new(false),
                dirty_files,
                changed_itself: Cell::new(false),
                lock: Semaphore::new(READERS_MAX),
                deleted: Cell::new(false),
                pages: CachedFile::new(number.0, cache, Some(Rc::new(placement))),
                slots: RefCell::default(),
                update: RefCell::default(),
                holds_update: Cell::new(false),
                is_synchronised: Cell::new(false),
                moved: RefCell::default(),
                opens: Cell::new(0),
                takes_first_name: Cell::new(false),
                is_new: Cell::new(false),
                needs_checkpoint: Cell::new(false),
                lost_names: RefCell::default(),
            }
        })
    }

    /// Locks it, to change it.
    ///
    /// # Errors
    /// [`FsError::NotFound`] if it was deleted meanwhile.
    pub(crate) async fn lock_exclusive(&self) -> Result<Permit, FsError> {
        let permit = self.lock.acquire(READERS_MAX).await;
        if self.deleted.get() { Err(FsError::NotFound) } else { Ok(permit) }
    }

    /// The file that is looked for, locked to be changed.
    ///
    /// # Errors
    /// Those of looking for it, and of [`lock_exclusive`](Self::lock_exclusive).
    pub(crate) async fn lock_found(
        found: impl Future<Output = Result<Rc<File>, FsError>>,
    ) -> Result<(Rc<File>, Permit), FsError> {
        let file = found.await?;
        let locked = file.lock_exclusive().await?;
        Ok((file, locked))
    }

    /// It was deleted: its number is free, and what waits for its lock finds it gone.
    pub(crate) fn set_deleted(&self) {
        self.set_dirty(false);
        self.deleted.set(true);
    }

    /// Locks it, shared with other calls that read what it maps.
    pub(crate) fn lock_shared(&self) -> Acquire {
        self.lock.acquire(1)
    }

    /// The size in bytes.
    pub(crate) fn size(&self) -> u64 {
        self.inode.borrow().size.get()
    }

    /// The size with what an update adds, in bytes.
    pub(crate) fn size_with_update(&self) -> u64 {
        self.update.borrow().as_ref().map_or_else(|| self.size(), |update| update.staged.size())
    }

    /// The largest size of a file: the page cache counts pages in 32 bits, and nodes lead to no more.
    pub(crate) fn size_max(&self) -> u64 {
        let pages = pages_max(self.inode.borrow().addresses()).min(u64::from(u32::MAX));
        pages * BLOCK_BYTES as u64
    }

    /// What it is.
    pub(crate) fn kind(&self) -> Option<FileType> {
        self.inode.borrow().file_type()
    }

    /// Whether it is a directory.
    pub(crate) fn is_directory(&self) -> bool {
        self.kind() == Some(FileType::Directory)
    }

    /// How many names it has.
    pub(crate) fn links(&self) -> u32 {
        self.inode.borrow().links.get()
    }

    /// Whether flags say that its content or its names are in the inode.
    pub(crate) fn has_inline(&self, flag: u8) -> bool {
        self.inode.borrow().has_inline(flag)
    }

    /// Changes the inode, which is to be written.
    pub(crate) fn change<T>(&self, change: impl FnOnce(&mut Inode) -> T) -> T {
        self.changed_itself.set(true);
        self.change_derived(change)
    }

    /// The same, where roll-forward finds by the other nodes what has changed, or nothing is promised of it.
    fn change_derived<T>(&self, change: impl FnOnce(&mut Inode) -> T) -> T {
        self.set_dirty(true);
        change(&mut self.inode.borrow_mut())
    }

    /// Whether its inode was changed since it was written.
    pub(crate) fn is_dirty(&self) -> bool {
        self.dirty.get()
    }

    /// Its inode is to be written, or is about to be.
    pub(crate) fn set_dirty(&self, dirty: bool) {
        match (self.dirty.replace(dirty), dirty) {
            (false, true) => self.dirty_files.set(self.dirty_files.get() + 1),
            (true, false) => self.dirty_files.set(self.dirty_files.get().saturating_sub(1)),
            _ => {}
        }
    }

    /// The file ends there now, behind a page that was written. Roll-forward finds the end of a file by a page that lies wholly behind the
    /// end before. Of the page in which the file ended it finds the place, and not that it is longer.
    pub(crate) fn grow(&self, size: u64) {
        let page = BLOCK_BYTES as u64;
        match size.is_multiple_of(page) && size - page >= self.size() {
            true => self.change_derived(|inode| inode.size = size.into()),
            false => self.change(|inode| inode.size = size.into()),
        }
    }

    /// The content has changed.
    pub(crate) fn stamp(&self, now: FileTime) {
        self.change_derived(|inode| {
            inode.set_time(Stamp::Modified, now);
            inode.set_time(Stamp::Changed, now);
        });
    }

    /// The address of the page whose slot this is.
    pub(crate) fn address(&self, slot: &Slot) -> BlockAddress {
        match &slot.node {
            Some(node) => BlockAddress(node.word(slot.word)),
            None => self.inode.borrow().address(slot.word),
        }
    }

    /// Counts blocks of data and nodes: `change` more, or fewer.
    pub(crate) fn count_blocks(&self, change: i64) {
        self.change_derived(|inode| inode.blocks = inode.blocks.get().saturating_add_signed(change).into());
    }

    /// Whether the disk has all of it, and none of its writes failed. While its inode is on its way, something refers to the file.
    pub(crate) fn is_on_disk(&self) -> bool {
        !self.is_dirty()
            && self.slots.borrow().is_empty()
            && self.pages.is_on_disk()
            && self.update.borrow().is_none()
    }
}
