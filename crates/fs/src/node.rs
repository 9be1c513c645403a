//! A *node*: an inode in memory, with its pages, and with what the journal has to know of it.

use std::cell::{Cell, OnceCell, RefCell};
use std::rc::Rc;

use weir_ext4::{Extent, INODE_BYTES, Inode, Kind};
use weir_journal::{BufferHead, Sequence, TxHandle};
use weir_runtime::{Acquire, Semaphore};
use zerocopy::IntoBytes;

use crate::cache::{CachedFile, PageCache};
use crate::error::FsError;
use crate::filesystem::Mounted;

/// Looks at one time at what a node maps; more of them wait.
const LOOKS_MAX: usize = 1 << 10;

/// An inode in memory.
pub(crate) struct Node {
    pub(crate) number: u32,
    pub(crate) inode: RefCell<Inode>,
    /// Every change of the inode, of what it maps, and of its directory blocks takes all permits, whoever only looks
    /// at what it maps takes one. Taken before a handle is opened, and in the order of numbers where several are
    /// needed.
    lock: Semaphore,
    /// The block of the inode table that it is in, and the byte where it starts.
    table: OnceCell<(Rc<BufferHead>, usize)>,
    /// The last transaction that changed anything of the inode.
    pub(crate) changed_in: Cell<Option<Sequence>>,
    /// The last transaction that changed its size, its allocation, or what is written of it (J3).
    pub(crate) data_changed_in: Cell<Option<Sequence>>,
    /// Something of that kind has changed since the inode was logged.
    data_changed: Cell<bool>,
    /// How often it is open.
    pub(crate) opens: Cell<u32>,
    /// Its time of access is newer than in the log.
    pub(crate) accessed: Cell<bool>,
    /// It was made without a name, and had none so far.
    pub(crate) takes_first_name: Cell<bool>,
    /// The extent found last: most lookups are near the one before.
    pub(crate) extent: Cell<Option<Extent>>,
    pub(crate) file: Rc<CachedFile>,
}

impl Node {
    pub(crate) fn new(number: u32, inode: Inode, cache: &Rc<PageCache>) -> Rc<Node> {
        Rc::new(Node {
            number,
            inode: RefCell::new(inode),
            lock: Semaphore::new(LOOKS_MAX),
            table: OnceCell::new(),
            changed_in: Cell::new(None),
            data_changed_in: Cell::new(None),
            data_changed: Cell::new(false),
            opens: Cell::new(0),
            accessed: Cell::new(false),
            takes_first_name: Cell::new(false),
            extent: Cell::new(None),
            file: CachedFile::new(number, cache),
        })
    }

    /// Locks the node, to change it.
    pub(crate) fn alone(&self) -> Acquire {
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

    /// The size, the allocation, or what is written has changed: the transaction that the inode is logged in
    /// has to be committed before `fdatasync` and `fdatabarrier` have done their work (J3).
    pub(crate) fn data_has_changed(&self) {
        self.data_changed.set(true);
    }

    pub(crate) fn has_changed_data(&self) -> bool {
        self.data_changed.get()
    }

    /// Puts the inode, as it is now, into the transaction.
    ///
    /// # Errors
    /// What reading its table's block may fail by; never again once it has been read.
    pub(crate) async fn log(&self, fs: &Mounted, handle: &TxHandle) -> Result<(), FsError> {
        let (table, start) = match self.table.get() {
            Some(known) => known,
            None => {
                let (block, bytes) = fs.space.inode_place(self.number)?;
                let table = fs.buffers.get(block, Kind::InodeTable).await?;
                self.table.get_or_init(|| (table, bytes.start))
            }
        };
        let mut inode = self.inode.borrow_mut();
        inode.update_checksum(self.number, fs.buffers.checksums());
        // J8: exactly its own bytes; others in the block are others'.
        handle.modify(table, *start..*start + INODE_BYTES, |bytes| bytes.copy_from_slice(inode.as_bytes()));
        self.accessed.set(false);
        let sequence = handle.sequence();
        self.changed_in.set(Some(sequence));
        if self.data_changed.take() {
            self.data_changed_in.set(Some(sequence));
        }
        Ok(())
    }
}
