//! The cache of nodes. What is in use, open, without a name, dirty, or not committed stays; of the rest, what was used longest
//! ago goes first, and its pages with it.

#[cfg(test)]
mod tests;

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

use weir_cache::PageCache;
use weir_ext4::Inode;
use weir_journal::Sequence;
use weir_storage::Rules;
use weir_vfs::{FsError, Holds};

use super::metadata::Metadata;
use super::node::Node;
use crate::changes::Changes;
use crate::mutants::FsMutant;
use crate::options::MountOptions;

/// Nodes looked at to make room for one, so that no call takes long.
const LOOKS: usize = 8;

struct Known {
    node: Rc<Node>,
    /// A caller asked for it since it was queued.
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
    metadata: Rc<Metadata>,
    cache: Rc<PageCache>,
    changes: Rc<Changes>,
    rules: Rules<FsMutant>,
    /// How many may be kept beside those that have to be.
    most: usize,
    /// What keeps inodes beside names and open files.
    pub(crate) holds: Holds,
    state: RefCell<State>,
}

impl Nodes {
    /// No nodes.
    pub(crate) fn new(
        (metadata, cache, changes): (Rc<Metadata>, Rc<PageCache>, Rc<Changes>),
        MountOptions { rules, cache_inodes: most, .. }: MountOptions,
    ) -> Rc<Nodes> {
        let (holds, state) = (Holds::default(), RefCell::default());
        Rc::new(Nodes { metadata, cache, changes, rules, most, holds, state })
    }

    /// Where the inodes are.
    pub(crate) fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    /// The node of an inode that has a name, is open, or is held.
    ///
    /// # Errors
    /// [`FsError::NotFound`] for one that is deleted; what reading it may fail by, and
    /// [`FsError::Format`] for numbers that are not those of files.
    pub(crate) async fn get(&self, number: u32) -> Result<Rc<Node>, FsError> {
        if let Some(node) = self.find(number) {
            return Ok(node);
        }
        let (node, is_new) = self.load(number).await?;
        // One that is here already, and has no name, is open or held.
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
    pub(crate) async fn get_orphan(&self, number: u32) -> Result<Rc<Node>, FsError> {
        match self.find(number) {
            Some(node) => Ok(node),
            None => Ok(self.load(number).await?.0),
        }
    }

    /// Reads an inode; whether its node was not there before.
    async fn load(&self, number: u32) -> Result<(Rc<Node>, bool), FsError> {
        let inode = self.metadata.read_inode(number).await?;
        // Another call may have been faster.
        if let Some(node) = self.find(number) {
            return Ok((node, false));
        }
        let node = self.insert(number, inode);
        // What changed it last is not known any more, but it was dispatched before the node was dropped.
        if let Ok(journal) = self.changes.journal()
            && !self.rules.drops(FsMutant::ReloadForgetsTransaction)
        {
            node.last_changes.changed_until(Sequence(journal.running().0.wrapping_sub(1)));
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

    /// Whether a node without a name is kept: it is open, or held.
    pub(crate) fn is_in_use(&self, node: &Node) -> bool {
        let is_held = || self.holds.contains(node.number) && !self.rules.drops(FsMutant::FreedWhileHeld);
        node.opens.get() > 0 || is_held()
    }

    /// The node of an inode without a name, if it is in memory, which it is until it is deleted.
    pub(crate) fn find_nameless(&self, number: u32) -> Option<Rc<Node>> {
        let state = self.state.borrow();
        state.known.get(&number).map(|known| &known.node).filter(|node| node.links() == 0).cloned()
    }

    /// All nodes in memory.
    pub(crate) fn all(&self) -> Vec<Rc<Node>> {
        self.state.borrow().known.values().map(|known| Rc::clone(&known.node)).collect()
    }

    /// The node of an inode that was just allocated: as it is logged first, all of it is new.
    pub(crate) fn insert(&self, number: u32, inode: Inode) -> Rc<Node> {
        let node = Node::new(number, inode, &self.metadata, &self.cache);
        node.last_changes.note_data();
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
    pub(crate) fn make_room(&self) {
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
            let may_leave = self.can_leave(node);
            let is_pinned = node.opens.get() > 0 || node.links() == 0;
            waits_for_commit |= is_crowded && !may_leave && !is_pinned;
            if is_used || known.len() <= self.most || !may_leave {
                queue.push_back(number);
            } else {
                gone.extend(known.remove(&number));
            }
        }
        drop(state);
        if let (true, Ok(journal)) = (waits_for_commit, self.changes.journal()) {
            journal.request_commit(journal.running());
        }
    }

    /// Whether nothing is lost when a node is forgotten.
    fn can_leave(&self, node: &Rc<Node>) -> bool {
        // What was committed last is dispatched, so that `load` finds it again as what came last (J3).
        let committed =
            |sequence| self.changes.journal().is_ok_and(|journal| journal.is_dispatched(sequence));
        Rc::strong_count(node) == 1
            && Rc::strong_count(&node.file) == 1
            && node.opens.get() == 0
            // The list of orphans leads through it, and its inode on the disk is not to be read as one of a file.
            && node.links() > 0
            && !node.accessed.get()
            && node.update.borrow().is_none()
            && !node.update_begun.get()
            && node.last_changes.last(false).is_none_or(committed)
            && (node.file.is_on_disk() || self.rules.drops(FsMutant::ForgetsDirtyNodes))
    }
}
