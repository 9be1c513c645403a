//! The cache of nodes. What is in use, open, dirty, or not committed stays; of the rest, what was used longest
//! ago goes first, and its pages with it.

#[cfg(test)]
mod tests;

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

use weir_ext4::{BLOCK_BYTES, FileType, FormatError, Inode, Kind, Place, Structure};
use weir_journal::Sequence;

use crate::cache::PageCache;
use crate::error::FsError;
use crate::filesystem::Mounted;
use crate::mutants::FsMutant;
use crate::node::Node;

/// Nodes looked at to make room for one, so that no call takes long.
const LOOKS: usize = 8;

struct Known {
    node: Rc<Node>,
    /// Somebody asked for it since it was queued.
    used: bool,
}

#[derive(Default)]
struct State {
    known: BTreeMap<u32, Known>,
    /// Numbers in the order in which they leave. Those that are gone are skipped.
    queue: VecDeque<u32>,
}

/// All nodes in memory.
pub(crate) struct Nodes {
    cache: Rc<PageCache>,
    /// How many may be kept beside those that have to be.
    most: usize,
    state: RefCell<State>,
}

impl Nodes {
    pub(crate) fn new(cache: &Rc<PageCache>, most: usize) -> Nodes {
        Nodes { cache: Rc::clone(cache), most, state: RefCell::default() }
    }

    /// The node of an inode that has a name, or is open.
    ///
    /// # Errors
    /// [`FsError::NotFound`] for one that is deleted; what reading it may fail by, and
    /// [`FsError::Format`] for numbers that are not those of files.
    pub(crate) async fn get(&self, fs: &Mounted, number: u32) -> Result<Rc<Node>, FsError> {
        if let Some(node) = self.find(number) {
            return Ok(node);
        }
        let (node, is_new) = self.load(fs, number).await?;
        // One that is here already, and has no name, is open.
        if is_new && node.inode.borrow().links.get() == 0 {
            self.forget(number);
            return Err(FsError::NotFound);
        }
        Ok(node)
    }

    /// The node of an inode that may be without a name: one on the list of orphans.
    ///
    /// # Errors
    /// As [`get`](Self::get), without `NotFound`.
    pub(crate) async fn get_orphan(&self, fs: &Mounted, number: u32) -> Result<Rc<Node>, FsError> {
        match self.find(number) {
            Some(node) => Ok(node),
            None => Ok(self.load(fs, number).await?.0),
        }
    }

    /// Reads an inode; whether its node was not there before.
    async fn load(&self, fs: &Mounted, number: u32) -> Result<(Rc<Node>, bool), FsError> {
        if !fs.is_file_number(number) {
            let place = Place::Inode(number);
            return Err(FormatError::corrupt(Structure::Inode, place, "a number that no file has").into());
        }
        let (block, bytes) = fs.space.inode_place(number)?;
        let table = fs.buffers.get(block, Kind::InodeTable).await?;
        let read = |table: &[u8]| Inode::read(&table[bytes.clone()], number, fs.buffers.checksums());
        let inode = table.look(read)?;
        if inode.links.get() > 0 {
            inode.check_supported(number)?;
        }
        // One with a block in many places would be read as often, for every name.
        let blocks_max = fs.layout.blocks();
        if inode.file_type() == Some(FileType::Directory) && inode.size() / BLOCK_BYTES as u64 > blocks_max {
            let place = Place::Inode(number);
            let what = "a directory larger than the filesystem";
            return Err(FormatError::corrupt(Structure::Inode, place, what).into());
        }
        // Somebody else may have been faster.
        if let Some(node) = self.find(number) {
            return Ok((node, false));
        }
        let node = self.insert(number, inode);
        // What changed it last is not known any more, but it was dispatched before the node was dropped.
        if let Ok(journal) = fs.journal()
            && !fs.options.rules.drops(FsMutant::ReloadForgetsTransaction)
        {
            let last = Some(Sequence(journal.running().0.wrapping_sub(1)));
            node.changed_in.set(last);
            node.data_changed_in.set(last);
        }
        Ok((node, true))
    }

    /// The node of an inode, if it is here.
    pub(crate) fn find(&self, number: u32) -> Option<Rc<Node>> {
        let mut state = self.state.borrow_mut();
        let known = state.known.get_mut(&number)?;
        known.used = true;
        Some(Rc::clone(&known.node))
    }

    /// All nodes in memory.
    pub(crate) fn all(&self) -> Vec<Rc<Node>> {
        self.state.borrow().known.values().map(|known| Rc::clone(&known.node)).collect()
    }

    /// The node of an inode that was just allocated: as it is logged first, all of it is new.
    pub(crate) fn insert(&self, number: u32, inode: Inode) -> Rc<Node> {
        let node = Node::new(number, inode, &self.cache);
        node.data_has_changed();
        let mut state = self.state.borrow_mut();
        let known = Known { node: Rc::clone(&node), used: false };
        // The one that had the number before was deleted, and its pages are forgotten.
        if state.known.insert(number, known).is_none() {
            state.queue.push_back(number);
        }
        node
    }

    /// Whether a node is still that of its inode: not after it was deleted.
    pub(crate) fn is_current(&self, node: &Rc<Node>) -> bool {
        self.find(node.number).is_some_and(|known| Rc::ptr_eq(&known, node))
    }

    /// Forgets the node of an inode that was deleted.
    pub(crate) fn forget(&self, number: u32) {
        self.state.borrow_mut().known.remove(&number);
    }

    /// Lets nodes go as far as there are too many. Called between operations.
    pub(crate) fn make_room(&self, fs: &Mounted) {
        let mut state = self.state.borrow_mut();
        let State { known, queue } = &mut *state;
        // Half as many again as may be kept. Those that are open stay; the others go once they are committed.
        let is_crowded = known.len() > self.most + self.most / 2;
        let mut waits_for_commit = false;
        let mut gone = Vec::new();
        for _ in 0..LOOKS {
            if known.len() <= self.most && queue.len() / 2 <= self.most {
                break;
            }
            let Some(number) = queue.pop_front() else { break };
            let Some(oldest) = known.get_mut(&number) else { continue };
            let is_used = std::mem::take(&mut oldest.used);
            let node = &known[&number].node;
            let may_leave = can_leave(fs, node);
            waits_for_commit |= is_crowded && !may_leave && node.opens.get() == 0;
            if is_used || known.len() <= self.most || !may_leave {
                queue.push_back(number);
            } else {
                gone.extend(known.remove(&number));
            }
        }
        drop(state);
        if let (true, Ok(journal)) = (waits_for_commit, fs.journal()) {
            journal.request_commit(journal.running());
        }
    }
}

/// Whether nothing is lost when a node is forgotten.
fn can_leave(fs: &Mounted, node: &Rc<Node>) -> bool {
    // What was committed last is dispatched, so that `load` finds it again as what came last (J3).
    let committed = |sequence| fs.journal().is_ok_and(|journal| journal.is_dispatched(sequence));
    Rc::strong_count(node) == 1
        && Rc::strong_count(&node.file) == 1
        && node.opens.get() == 0
        && !node.accessed.get()
        && node.changed_in.get().is_none_or(committed)
        && (node.file.is_on_disk() || fs.options.rules.drops(FsMutant::ForgetsDirtyNodes))
}
