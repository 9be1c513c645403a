//! Direct and indirect nodes, and nodes of attributes, in memory. Inodes are [files](crate::files).
//!
//! A node that was changed stays until it is written, and a written one until its write is [transferred](crate::under_way). Of the rest, what was used
//! longest ago goes first.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;

use weir_f2fs::{Block, BlockAddress, NodeEntry, NodeFooter, NodeId, SharedBlock, read_word, write_word};
use weir_format::{BLOCK_BYTES, FormatError, Place, Structure};
use weir_vfs::FsError;

use crate::node_table::NodeTable;

/// Nodes looked at to make room for one.
const LOOKS: usize = 8;

/// A node that is no inode.
pub(crate) struct NodeBlock {
    /// Its number.
    pub(crate) id: NodeId,
    /// The inode that it belongs to.
    pub(crate) inode: NodeId,
    /// Its place among the nodes of the inode.
    pub(crate) place: u32,
    /// What the node table says of it.
    pub(crate) entry: Cell<NodeEntry>,
    content: RefCell<SharedBlock>,
    dirty: Cell<bool>,
    used: Cell<bool>,
}

impl NodeBlock {
    /// Word `nth`: an address, or the number of a node.
    pub(crate) fn word(&self, nth: u32) -> u32 {
        read_word(&self.content.borrow()[..], nth)
    }

    /// The block as it is now; a later change leaves this one as it is.
    pub(crate) fn content(&self) -> SharedBlock {
        Rc::clone(&self.content.borrow())
    }
}

/// The nodes in memory.
pub(crate) struct Nodes {
    table: Rc<NodeTable>,
    known: RefCell<BTreeMap<NodeId, Rc<NodeBlock>>>,
    queue: RefCell<VecDeque<NodeId>>,
    /// Dirty nodes, by their inodes.
    dirty: RefCell<BTreeMap<NodeId, BTreeSet<NodeId>>>,
    dirty_count: Cell<u64>,
    most: usize,
}

impl Nodes {
    /// No nodes; `most` may stay beside those that have to.
    pub(crate) fn new(table: Rc<NodeTable>, most: usize) -> Nodes {
        let (known, queue, dirty) = (RefCell::default(), RefCell::default(), RefCell::default());
        Nodes { table, known, queue, dirty, dirty_count: Cell::new(0), most }
    }

    /// A node of an inode, at a place among the inode's nodes.
    ///
    /// # Errors
    /// [`FormatError::Corrupt`] for a node that is free, or another one; what reading fails by.
    pub(crate) async fn get(&self, id: NodeId, inode: NodeId, place: u32) -> Result<Rc<NodeBlock>, FsError> {
        let found = match self.find(id) {
            Some(node) => node,
            None => self.load(id, inode).await?,
        };
        match found.inode == inode && found.place == place {
            true => Ok(found),
            false => {
                let what = "a node that lies elsewhere, or in another file";
                Err(FormatError::corrupt(Structure::Node, Place::Inode(inode.0), what).into())
            }
        }
    }

    /// A node of an inode, whatever its place is.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub(crate) async fn load(&self, id: NodeId, inode: NodeId) -> Result<Rc<NodeBlock>, FsError> {
        if let Some(node) = self.find(id) {
            return Ok(node);
        }
        let (entry, block) = self.table.read_node(id).await?;
        let Some(bytes) = block.filter(|_| entry.inode.get() == inode.0 && id != inode) else {
            let what = "a file leads to a node that is free, or another file's";
            return Err(FormatError::corrupt(Structure::Node, Place::Inode(inode.0), what).into());
        };
        // Another call may have been faster.
        if let Some(node) = self.find(id) {
            return Ok(node);
        }
        let footer = NodeFooter::check(&bytes[..], id, inode, entry.address())?;
        Ok(self.insert(id, inode, footer.place(), entry, bytes))
    }

    /// A node, if it is in memory.
    pub(crate) fn find(&self, id: NodeId) -> Option<Rc<NodeBlock>> {
        let known = self.known.borrow();
        let node = known.get(&id)?;
        node.used.set(true);
        Some(Rc::clone(node))
    }

    fn insert(
        &self,
        id: NodeId,
        inode: NodeId,
        place: u32,
        entry: NodeEntry,
        content: Block,
    ) -> Rc<NodeBlock> {
        let (dirty, used) = (Cell::new(false), Cell::new(true));
        let (entry, content) = (Cell::new(entry), RefCell::new(SharedBlock::from(content)));
        let node = Rc::new(NodeBlock { id, inode, place, entry, content, dirty, used });
        self.known.borrow_mut().insert(id, Rc::clone(&node));
        self.queue.borrow_mut().push_back(id);
        node
    }

    /// A new node of an inode, without words; the caller has its block promised.
    ///
    /// # Errors
    /// As [`NodeTable::take_number`].
    pub(crate) async fn create(&self, inode: NodeId, place: u32) -> Result<Rc<NodeBlock>, FsError> {
        let (id, entry) = self.table.take_number(Some(inode)).await?;
        let mut content: Block = Box::new([0; BLOCK_BYTES]);
        NodeFooter::new(id, inode, place).write(&mut content);
        let node = self.insert(id, inode, place, entry, content);
        self.mark_dirty(&node);
        Ok(node)
    }

    /// Changes word `nth` of a node.
    pub(crate) fn set_word(&self, node: &Rc<NodeBlock>, nth: u32, word: u32) {
        write_word(Rc::make_mut(&mut node.content.borrow_mut()), nth, word);
        self.mark_dirty(node);
    }

    /// Changes the bytes before the footer.
    pub(crate) fn set_bytes(&self, node: &Rc<NodeBlock>, bytes: &[u8]) {
        Rc::make_mut(&mut node.content.borrow_mut())[..bytes.len()].copy_from_slice(bytes);
        self.mark_dirty(node);
    }

    /// A node was changed, or is to be written to another place.
    pub(crate) fn mark_dirty(&self, node: &Rc<NodeBlock>) {
        if !node.dirty.replace(true) {
            self.dirty_count.set(self.dirty_count.get() + 1);
            self.dirty.borrow_mut().entry(node.inode).or_default().insert(node.id);
        }
    }

    /// A node is about to be written, as it is now.
    pub(crate) fn mark_clean(&self, node: &NodeBlock) {
        if node.dirty.replace(false) {
            self.dirty_count.set(self.dirty_count.get().saturating_sub(1));
        }
        let mut dirty = self.dirty.borrow_mut();
        if let Some(of_inode) = dirty.get_mut(&node.inode) {
            of_inode.remove(&node.id);
            if of_inode.is_empty() {
                dirty.remove(&node.inode);
            }
        }
    }

    /// Frees a node: its old place.
    pub(crate) fn remove(&self, node: &NodeBlock) -> BlockAddress {
        self.mark_clean(node);
        self.known.borrow_mut().remove(&node.id);
        let entry = node.entry.get();
        self.table.free_number(node.id, entry);
        entry.address()
    }

    /// The dirty nodes of an inode, in the order of their places.
    pub(crate) fn dirty_of(&self, inode: NodeId) -> Vec<Rc<NodeBlock>> {
        let dirty = self.dirty.borrow();
        let known = self.known.borrow();
        let ids = dirty.get(&inode).into_iter().flatten();
        let mut nodes: Vec<_> = ids.filter_map(|id| known.get(id).cloned()).collect();
        nodes.sort_by_key(|node| node.place);
        nodes
    }

    /// The inodes that have dirty nodes.
    pub(crate) fn dirty_inodes(&self) -> Vec<NodeId> {
        self.dirty.borrow().keys().copied().collect()
    }

    /// How many nodes are dirty.
    pub(crate) fn dirty_count(&self) -> u64 {
        self.dirty_count.get()
    }

    /// Lets nodes go as far as there are too many. Called between operations.
    pub(crate) fn make_room(&self) {
        let (mut known, mut queue) = (self.known.borrow_mut(), self.queue.borrow_mut());
        for _ in 0..LOOKS {
            if known.len() <= self.most && queue.len() / 2 <= self.most {
                return;
            }
            let Some(id) = queue.pop_front() else { return };
            let Some(node) = known.get(&id) else { continue };
            let is_used = node.used.replace(false) || Rc::strong_count(node) > 1;
            if is_used || known.len() <= self.most || node.dirty.get() {
                queue.push_back(id);
            } else {
                known.remove(&id);
            }
        }
    }
}
