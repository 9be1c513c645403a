//! A *node*: an inode in memory, with its cached file, and with what the journal has to know of it.

use std::cell::{Cell, OnceCell, RefCell};
use std::rc::Rc;

use weir_cache::{CachedFile, PageCache};
use weir_ext4::{Extent, INODE_BYTES, Inode, inode_flags};
use weir_format::{FileTime, FileType, Stamp};
use weir_journal::{BufferHead, Sequence, SyncedInode, TxHandle};
use weir_runtime::{Acquire, Permit, Semaphore};
use weir_vfs::FsError;
use zerocopy::IntoBytes;

use super::metadata::Metadata;
use super::update::Update;
use crate::options::JournalMode;
use crate::sync::LastChanges;

/// Links that an inode can have, as ext4 counts them.
pub(crate) const LINKS_MAX: u16 = 65_000;
/// Looks at one time at what a node maps; more of them wait.
const LOOKS_MAX: usize = 1 << 10;

/// An inode in memory.
pub(crate) struct Node {
    pub(crate) number: u32,
    pub(crate) inode: RefCell<Inode>,
    /// Every change of the inode, of what it maps, and of its directory blocks takes all permits, a caller that only looks
    /// at what it maps takes one. Taken before a handle is opened, and in the order of numbers where several are
    /// needed.
    lock: Semaphore,
    /// The block of the inode table that it is in, and the byte where it starts.
    table: OnceCell<(Rc<BufferHead>, usize)>,
    pub(crate) last_changes: LastChanges,
    /// How often it is open.
    pub(crate) opens: Cell<u32>,
    /// Its time of access is newer than in the log.
    pub(crate) accessed: Cell<bool>,
    /// It was made without a name, and had none so far.
    pub(crate) takes_first_name: Cell<bool>,
    /// What was written to an atomic file and is not in the journal.
    pub(crate) update: RefCell<Option<Update>>,
    /// A caller has begun its update, and ends it: no synchronisation call does.
    pub(crate) update_begun: Cell<bool>,
    /// The extent found last: most lookups are near the one before.
    pub(crate) extent: Cell<Option<Extent>>,
    pub(crate) file: Rc<CachedFile>,
    metadata: Rc<Metadata>,
}

impl Node {
    pub(super) fn new(number: u32, inode: Inode, metadata: &Rc<Metadata>, cache: &Rc<PageCache>) -> Rc<Node> {
        Rc::new(Node {
            number,
            inode: RefCell::new(inode),
            lock: Semaphore::new(LOOKS_MAX),
            table: OnceCell::new(),
            last_changes: LastChanges::default(),
            opens: Cell::new(0),
            accessed: Cell::new(false),
            takes_first_name: Cell::new(false),
            update: RefCell::default(),
            update_begun: Cell::new(false),
            extent: Cell::new(None),
            file: CachedFile::new(number, cache, None),
            metadata: Rc::clone(metadata),
        })
    }

    /// Locks the node, to change it.
    pub(crate) fn lock_exclusive(&self) -> Acquire {
        self.lock.acquire(LOOKS_MAX)
    }

    /// Locks the node, shared with others that read what it maps.
    pub(crate) fn beside_others(&self) -> Acquire {
        self.lock.acquire(1)
    }

    /// The size in bytes.
    pub(crate) fn size(&self) -> u64 {
        self.inode.borrow().size()
    }

    /// The size that programs see: with what the update of an atomic file adds.
    pub(crate) fn size_with_update(&self) -> u64 {
        let update = self.update.borrow();
        update.as_ref().map_or_else(|| self.size(), |update| update.staged.size())
    }

    /// The last transaction that changed anything of it.
    pub(crate) fn last_change(&self) -> Option<Sequence> {
        self.last_changes.last(false)
    }

    /// Whether it is an atomic file. On the disk that is ext4's flag for files whose data goes through the journal.
    pub(crate) fn is_atomic(&self) -> bool {
        let inode = self.inode.borrow();
        inode.has_flag(inode_flags::JOURNAL_DATA) && inode.file_type() == Some(FileType::Regular)
    }

    /// Whether it is an atomic file, or a directory that makes files atomic which are made in it.
    pub(crate) fn hands_down_atomicity(&self) -> bool {
        self.inode.borrow().has_flag(inode_flags::JOURNAL_DATA)
    }

    /// Whether its data goes through the journal.
    pub(crate) fn is_journaled(&self, mode: JournalMode) -> bool {
        mode == JournalMode::Data || self.is_atomic()
    }

    /// The inode for a call that synchronises it, with the directory in which it has got a name since.
    pub(crate) fn synced_inode(&self) -> Result<SyncedInode, FsError> {
        let table = |number| Ok::<_, FsError>(self.metadata.space.inode_place(number)?.0);
        let named_in = match self.last_changes.take_name() {
            Some(directory) => Some((directory, table(directory)?)),
            None => None,
        };
        Ok(SyncedInode { number: self.number, table: table(self.number)?, named_in })
    }

    /// Puts the inode, as it is now, into the transaction.
    ///
    /// # Errors
    /// What reading its table's block may fail by; never again once it has been read.
    pub(crate) async fn log(&self, handle: &TxHandle) -> Result<(), FsError> {
        let (table, start) = match self.table.get() {
            Some(known) => known,
            None => {
                let table = self.metadata.table(self.number).await?;
                self.table.get_or_init(|| table)
            }
        };
        let mut inode = self.inode.borrow_mut();
        inode.update_checksum(self.number, self.metadata.buffers.checksums());
        // J8: exactly its own bytes; others in the block are others'.
        handle.modify(table, *start..*start + INODE_BYTES, |bytes| bytes.copy_from_slice(inode.as_bytes()));
        self.accessed.set(false);
        self.last_changes.logged_in(handle.sequence());
        Ok(())
    }

    /// The content has changed.
    pub(crate) fn stamp(&self, now: FileTime) {
        let mut inode = self.inode.borrow_mut();
        inode.set_time(Stamp::Modified, now);
        inode.set_time(Stamp::Changed, now);
    }

    /// Journaled blocks, and the space for more of them.
    pub(crate) fn metadata(&self) -> &Rc<Metadata> {
        &self.metadata
    }

    pub(crate) fn links(&self) -> u16 {
        self.inode.borrow().links.get()
    }

    pub(crate) fn kind(&self) -> Option<FileType> {
        self.inode.borrow().file_type()
    }

    pub(crate) fn is_directory(&self) -> bool {
        self.kind() == Some(FileType::Directory)
    }

    /// Gives the inode a time of change and another number of links.
    pub(crate) fn set_links(&self, links: u16, now: FileTime) {
        let mut inode = self.inode.borrow_mut();
        inode.links = links.into();
        inode.set_time(Stamp::Changed, now);
    }

    /// Whether a subdirectory more can be counted: hashed directories of more than 65,000 links count as having
    /// one (`dir_nlink`).
    pub(crate) fn takes_subdirectory(&self, uncounted: bool) -> bool {
        let indexed = self.inode.borrow().has_flag(inode_flags::INDEXED);
        self.links() < LINKS_MAX || (uncounted && indexed)
    }

    /// Counts the ".." of a subdirectory more.
    pub(crate) fn add_subdirectory(&self) {
        let mut inode = self.inode.borrow_mut();
        let links = inode.links.get();
        inode.links = if links == 1 || links >= LINKS_MAX { 1 } else { links + 1 }.into();
    }

    /// Takes the ".." of a subdirectory from the count of links. A directory whose count has overflowed keeps 1.
    pub(crate) fn remove_subdirectory(&self) {
        let mut inode = self.inode.borrow_mut();
        let links = inode.links.get();
        inode.links = if links > 2 { links - 1 } else { links }.into();
    }
}

/// Locks nodes in the order of their numbers, each once.
pub(crate) async fn lock(nodes: &[&Rc<Node>]) -> Vec<Permit> {
    let mut sorted = nodes.to_vec();
    sorted.sort_by_key(|node| node.number);
    sorted.dedup_by_key(|node| node.number);
    let mut permits = Vec::with_capacity(sorted.len());
    for node in sorted {
        permits.push(node.lock_exclusive().await);
    }
    permits
}
