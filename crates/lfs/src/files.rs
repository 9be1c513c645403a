//! The files in memory. One that is in use, dirty, or on its way to the disk stays; of the rest, what was used longest ago goes first,
//! and its pages with it.

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

use weir_cache::PageCache;
use weir_f2fs::{Inode, NodeEntry, NodeId};
use weir_vfs::{FsError, Holds};

use crate::file::File;
use crate::placement::Placement;

/// Files looked at to make room for one, so that no call takes long.
const LOOKS: usize = 8;

struct Known {
    file: Rc<File>,
    /// A call asked for it since it was queued.
    used: bool,
}

/// The files in memory.
pub(crate) struct Files {
    placement: Rc<Placement>,
    pub(crate) cache: Rc<PageCache>,
    /// What keeps inodes beside names and open files.
    pub(crate) holds: Holds,
    known: RefCell<BTreeMap<NodeId, Known>>,
    queue: RefCell<VecDeque<NodeId>>,
    most: usize,
}

impl Files {
    /// No files; `most` may stay beside those that have to.
    pub(crate) fn new(placement: Rc<Placement>, cache: Rc<PageCache>, most: usize) -> Files {
        let (known, queue, holds) = (RefCell::default(), RefCell::default(), Holds::default());
        Files { placement, cache, holds, known, queue, most }
    }

    /// A file that has a name, is open, or is held.
    ///
    /// # Errors
    /// [`FsError::NotFound`] for one that is not in use; [`FsError::Format`] for a damaged one; what reading fails by.
    pub(crate) async fn get(&self, number: NodeId) -> Result<Rc<File>, FsError> {
        self.make_room();
        let file = self.load(number).await?.ok_or(FsError::NotFound)?;
        match file.links() > 0 || self.is_in_use(&file) {
            true => Ok(file),
            // It is being deleted.
            false => Err(FsError::NotFound),
        }
    }

    /// A file that may be without a name. `None` if the number is free.
    ///
    /// # Errors
    /// As [`get`](Self::get), without `NotFound`.
    pub(crate) async fn load(&self, number: NodeId) -> Result<Option<Rc<File>>, FsError> {
        if let Some(file) = self.find(number) {
            return Ok(Some(file));
        }
        if number < NodeId::ROOT || self.placement.space.borrow().layout().node_entry_of(number).is_none() {
            return Ok(None);
        }
        let (entry, block) = self.placement.table.read_node(number).await?;
        let Some(bytes) = block.filter(|_| entry.inode.get() == number.0) else { return Ok(None) };
        // Another call may have been faster.
        if let Some(file) = self.find(number) {
            return Ok(Some(file));
        }
        let inode = Inode::read(&bytes[..], number, entry.address(), self.placement.inode_seed)?;
        Ok(Some(self.insert(number, inode, entry)))
    }

    /// A file, if it is in memory.
    pub(crate) fn find(&self, number: NodeId) -> Option<Rc<File>> {
        let mut known = self.known.borrow_mut();
        let found = known.get_mut(&number)?;
        found.used = true;
        Some(Rc::clone(&found.file))
    }

    /// Puts in a file with an inode that was read or made.
    pub(crate) fn insert(&self, number: NodeId, inode: Inode, entry: NodeEntry) -> Rc<File> {
        let file = File::new(number, inode, entry, &self.cache, &self.placement);
        let known = Known { file: Rc::clone(&file), used: false };
        if self.known.borrow_mut().insert(number, known).is_none() {
            self.queue.borrow_mut().push_back(number);
        }
        file
    }

    /// Forgets a file that was deleted.
    pub(crate) fn forget(&self, number: NodeId) {
        self.known.borrow_mut().remove(&number);
    }

    /// All files in memory.
    pub(crate) fn all(&self) -> Vec<Rc<File>> {
        self.known.borrow().values().map(|known| Rc::clone(&known.file)).collect()
    }

    /// Whether a file without a name is kept: it is open, or held.
    pub(crate) fn is_in_use(&self, file: &File) -> bool {
        file.opens.get() > 0 || self.holds.contains(file.number.0)
    }

    /// Lets files go as far as there are too many.
    fn make_room(&self) {
        self.placement.nodes.make_room();
        let (mut known, mut queue) = (self.known.borrow_mut(), self.queue.borrow_mut());
        let mut gone = Vec::new();
        for _ in 0..LOOKS {
            if known.len() <= self.most && queue.len() / 2 <= self.most {
                break;
            }
            let Some(number) = queue.pop_front() else { break };
            let Some(oldest) = known.get_mut(&number) else { continue };
            let is_used = std::mem::take(&mut oldest.used);
            if is_used || known.len() <= self.most || !can_leave(&known[&number].file) {
                queue.push_back(number);
            } else {
                gone.extend(known.remove(&number));
            }
        }
        drop((known, queue));
        // Their pages leave without the borrow.
        drop(gone);
    }
}

/// Whether nothing is lost when a file is forgotten.
fn can_leave(file: &Rc<File>) -> bool {
    Rc::strong_count(file) == 1
        && Rc::strong_count(&file.pages) == 1
        && file.opens.get() == 0
        && file.links() > 0
        && file.is_on_disk()
        // What synchronisation calls have to know is not on the disk.
        && !file.is_new.get()
        && !file.needs_checkpoint.get()
        && file.lost_names.borrow().is_empty()
}
