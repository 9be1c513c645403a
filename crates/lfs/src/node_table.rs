//! The node address table: where nodes are, as the disk has it, and what has changed since.
//!
//! Entries that are newer than those on the disk stay in memory. A checkpoint puts them into its journal, or writes so many of the
//! table's blocks that what is left fits there.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;

use weir_cache::ReadFailures;
use weir_f2fs::{
    Block, BlockAddress, CheckpointPack, FormatError, Layout, NODE_ENTRIES_PER_BLOCK, NODE_JOURNAL_ENTRIES,
    NodeEntry, NodeId, NodeJournal, NodeJournalEntry, NodeTableBlock, Place, Structure, TableCopies,
    read_block,
};
use weir_vfs::{FsError, StorageImage};
use zerocopy::IntoBytes;

use crate::blocks::BlockWrite;
use crate::mutants::{LfsMutant, LfsRules};

/// Blocks of the table that stay in memory.
const CACHED_MAX: usize = 1 << 10;

/// The table.
pub(crate) struct NodeTable {
    image: Rc<StorageImage>,
    layout: Layout,
    copies: RefCell<TableCopies>,
    /// Entries that are newer than those in the blocks of the table.
    newer: RefCell<BTreeMap<NodeId, NodeEntry>>,
    cached: RefCell<BTreeMap<u32, Rc<NodeTableBlock>>>,
    /// Blocks that the last checkpoint has written: they stay in memory until the next, as they may be on their way.
    written: RefCell<BTreeSet<u32>>,
    /// Numbers that are free, to be taken next.
    free: RefCell<VecDeque<NodeId>>,
    /// Numbers that were freed since the last checkpoint: roll-forward may find nodes of them, so none is taken before the next.
    freed: RefCell<Vec<NodeId>>,
    /// The block of the table where the search for free numbers goes on, and how many were searched since one was found.
    search: Cell<u32>,
    nodes: Cell<u32>,
    inodes: Cell<u32>,
    failures: ReadFailures,
    rules: LfsRules,
}

impl NodeTable {
    /// The table as a checkpoint has it.
    pub(crate) fn from_checkpoint(
        image: Rc<StorageImage>,
        layout: &Layout,
        pack: &CheckpointPack,
        rules: LfsRules,
    ) -> Result<NodeTable, FsError> {
        let journal = pack.node_journal(layout)?;
        let newer =
            journal.entries().iter().map(|change| (NodeId(change.node.get()), change.entry)).collect();
        let start = pack.header.next_free_node.get() / NODE_ENTRIES_PER_BLOCK as u32;
        Ok(NodeTable {
            image,
            layout: layout.clone(),
            copies: RefCell::new(pack.node_copies.clone()),
            newer: RefCell::new(newer),
            cached: RefCell::default(),
            written: RefCell::default(),
            free: RefCell::default(),
            freed: RefCell::default(),
            search: Cell::new(start % layout.node_table_blocks().max(1)),
            nodes: Cell::new(pack.header.valid_nodes.get()),
            inodes: Cell::new(pack.header.valid_inodes.get()),
            failures: ReadFailures::default(),
            rules,
        })
    }

    /// The entry of a node.
    ///
    /// # Errors
    /// [`FormatError::Corrupt`] for a number that no node has, or a damaged table; what reading fails by.
    pub(crate) async fn entry(&self, node: NodeId) -> Result<NodeEntry, FsError> {
        if let Some(entry) = self.newer.borrow().get(&node) {
            return Ok(*entry);
        }
        let what = "a node that the table has no room for";
        let corrupt = || FormatError::corrupt(Structure::NodeAddressTable, Place::Node(node.0), what);
        let (index, at) = self.layout.node_entry_of(node).ok_or_else(corrupt)?;
        let block = self.block(index).await?;
        // It may have changed while the block was read.
        let newer = self.newer.borrow().get(&node).copied();
        Ok(newer.unwrap_or(block.entries[at]))
    }

    /// The entry of a node and its block, both as they are now: what is read while the node is written elsewhere, or freed, is read
    /// again. `None` for the block of a node that has no place. A caller that looks at memory next does so before any other task.
    ///
    /// # Errors
    /// As [`entry`](Self::entry), and what reading the block fails by.
    pub(crate) async fn read_node(&self, node: NodeId) -> Result<(NodeEntry, Option<Block>), FsError> {
        loop {
            let entry = self.entry(node).await?;
            if !entry.address().is_block() {
                return Ok((entry, None));
            }
            let read = read_block(&*self.image, entry.address()).await;
            let bytes = read.inspect_err(|error| {
                self.failures.log(entry.inode.get(), None, entry.address().0.into(), error);
            })?;
            if self.entry(node).await? == entry {
                return Ok((entry, Some(Box::new(bytes))));
            }
        }
    }

    async fn block(&self, index: u32) -> Result<Rc<NodeTableBlock>, FsError> {
        if let Some(block) = self.cached.borrow().get(&index) {
            return Ok(Rc::clone(block));
        }
        let second = self.copies.borrow().is_second(index);
        let corrupt = || {
            let what = "a block that the table does not have";
            FormatError::corrupt(Structure::NodeAddressTable, Place::Block(index.into()), what)
        };
        let place = self.layout.node_table_block(index, second).ok_or_else(corrupt)?;
        let bytes = read_block(&*self.image, place).await?;
        let block = Rc::<NodeTableBlock>::from(NodeTableBlock::read(&bytes, index, &self.layout)?);
        let mut cached = self.cached.borrow_mut();
        if cached.len() >= CACHED_MAX {
            let written = self.written.borrow();
            cached.retain(|index, _| written.contains(index));
        }
        // A checkpoint that came meanwhile has put a newer one there.
        Ok(Rc::clone(cached.entry(index).or_insert(block)))
    }

    /// A number for a new node of an inode, or of a new inode if there is none; its entry has no place yet.
    ///
    /// # Errors
    /// [`FsError::NoSpace`] if all numbers are in use; what reading the table fails by.
    pub(crate) async fn take_number(&self, inode: Option<NodeId>) -> Result<(NodeId, NodeEntry), FsError> {
        let mut searched = 0;
        loop {
            let found = self.free.borrow_mut().pop_front();
            if let Some(node) = found {
                let mut entry = self.entry(node).await?;
                // A search that went on meanwhile has found it again, and another caller has it.
                if entry.address() != BlockAddress::NULL {
                    continue;
                }
                entry.inode = inode.unwrap_or(node).0.into();
                entry.address = BlockAddress::NEW.0.into();
                self.newer.borrow_mut().insert(node, entry);
                self.nodes.set(self.nodes.get() + 1);
                self.inodes.set(self.inodes.get() + u32::from(inode.is_none()));
                return Ok((node, entry));
            }
            if searched > self.layout.node_table_blocks() {
                return Err(FsError::NoSpace);
            }
            searched += 1;
            self.search_block().await?;
        }
    }

    /// Looks for free numbers in the next block of the table.
    async fn search_block(&self) -> Result<(), FsError> {
        let index = self.search.get();
        self.search.set((index + 1) % self.layout.node_table_blocks().max(1));
        let block = self.block(index).await?;
        let (newer, freed) = (self.newer.borrow(), self.freed.borrow());
        let mut free = self.free.borrow_mut();
        let first = index * NODE_ENTRIES_PER_BLOCK as u32;
        for (number, entry) in (first..self.layout.nodes()).zip(&block.entries) {
            let node = NodeId(number);
            let entry = newer.get(&node).unwrap_or(entry);
            let is_free = entry.address() == BlockAddress::NULL && !freed.contains(&node);
            if node > NodeId::ROOT && is_free && !free.contains(&node) {
                free.push_back(node);
            }
        }
        Ok(())
    }

    /// Changes the entry of a node.
    pub(crate) fn set(&self, node: NodeId, entry: NodeEntry) {
        self.newer.borrow_mut().insert(node, entry);
    }

    /// Frees the number of a node with this entry. Summaries that name it do not name the node that has the number next.
    pub(crate) fn free_number(&self, node: NodeId, entry: NodeEntry) {
        let is_inode = entry.inode.get() == node.0;
        let version = entry.version.wrapping_add(1);
        self.set(node, NodeEntry { version, inode: 0.into(), address: 0.into() });
        match self.rules.drops(LfsMutant::NumberReusedEarly) {
            true => self.free.borrow_mut().push_front(node),
            false => self.freed.borrow_mut().push(node),
        }
        self.nodes.set(self.nodes.get().saturating_sub(1));
        self.inodes.set(self.inodes.get().saturating_sub(u32::from(is_inode)));
    }

    /// Takes a number that roll-forward found in use, as [`take_number`](Self::take_number) does.
    ///
    /// # Errors
    /// As [`entry`](Self::entry).
    pub(crate) async fn recover_number(&self, node: NodeId, inode: NodeId) -> Result<NodeEntry, FsError> {
        let mut entry = self.entry(node).await?;
        entry.inode = inode.0.into();
        entry.address = BlockAddress::NEW.0.into();
        self.newer.borrow_mut().insert(node, entry);
        self.free.borrow_mut().retain(|free| *free != node);
        self.nodes.set(self.nodes.get() + 1);
        self.inodes.set(self.inodes.get() + u32::from(node == inode));
        Ok(entry)
    }

    /// Brings all blocks of the table to memory that a checkpoint with changes of these nodes may write.
    ///
    /// # Errors
    /// What reading the table fails by.
    pub(crate) async fn load_blocks(
        &self,
        nodes: impl Iterator<Item = NodeId>,
    ) -> Result<BTreeMap<u32, Rc<NodeTableBlock>>, FsError> {
        let newer: Vec<_> = self.newer.borrow().keys().copied().collect();
        let blocks: BTreeSet<u32> =
            newer.into_iter().chain(nodes).map(|node| node.0 / NODE_ENTRIES_PER_BLOCK as u32).collect();
        let mut loaded = BTreeMap::new();
        for index in blocks {
            loaded.insert(index, self.block(index).await?);
        }
        Ok(loaded)
    }

    /// Puts the counts, the newest entries and the choice of copies into the pack of a checkpoint; the blocks of the table that are
    /// to be written before it, made of `loaded` ones. Nothing waits here.
    ///
    /// # Errors
    /// [`FormatError::Full`] where a block is not among the loaded ones.
    pub(crate) fn fill_pack(
        &self,
        pack: &mut CheckpointPack,
        loaded: &BTreeMap<u32, Rc<NodeTableBlock>>,
    ) -> Result<Vec<BlockWrite>, FsError> {
        let mut writes = Vec::new();
        let chosen = self.blocks_to_write();
        *self.written.borrow_mut() = chosen.iter().copied().collect();
        for index in chosen {
            let known = self.cached.borrow().get(&index).cloned().or_else(|| loaded.get(&index).cloned());
            let Some(mut block) = known.map(|block| *block) else { continue };
            let first = index * NODE_ENTRIES_PER_BLOCK as u32;
            let range = NodeId(first)..NodeId(first + NODE_ENTRIES_PER_BLOCK as u32);
            for (node, entry) in self.newer.borrow().range(range.clone()) {
                block.entries[(node.0 - first) as usize] = *entry;
            }
            self.newer.borrow_mut().retain(|node, _| !range.contains(node));
            self.copies.borrow_mut().switch(index);
            let second = self.copies.borrow().is_second(index);
            if let Some(place) = self.layout.node_table_block(index, second) {
                writes.push(BlockWrite::new(place, block.as_bytes()));
            }
            self.cached.borrow_mut().insert(index, Rc::new(block));
        }
        let journal: Vec<_> = self.newer.borrow().iter().map(journal_entry).collect();
        pack.set_node_journal(&NodeJournal::from_entries(&journal)?);
        pack.node_copies = self.copies.borrow().clone();
        pack.header.valid_nodes = self.nodes.get().into();
        pack.header.valid_inodes = self.inodes.get().into();
        pack.header.next_free_node = (self.search.get() * NODE_ENTRIES_PER_BLOCK as u32).into();
        Ok(writes)
    }

    /// The blocks of the table to write: those with the most newer entries, until the rest fits into the journal.
    fn blocks_to_write(&self) -> Vec<u32> {
        let newer = self.newer.borrow();
        let mut blocks: BTreeMap<u32, usize> = BTreeMap::new();
        for node in newer.keys() {
            *blocks.entry(node.0 / NODE_ENTRIES_PER_BLOCK as u32).or_default() += 1;
        }
        let mut blocks: Vec<_> = blocks.into_iter().collect();
        blocks.sort_by_key(|(index, entries)| (std::cmp::Reverse(*entries), *index));
        let mut left = newer.len();
        let mut chosen = Vec::new();
        for (index, entries) in blocks {
            if left <= NODE_JOURNAL_ENTRIES {
                break;
            }
            left -= entries;
            chosen.push(index);
        }
        chosen
    }

    /// How many numbers were freed since the last checkpoint.
    pub(crate) fn freed(&self) -> usize {
        self.freed.borrow().len()
    }

    /// A checkpoint comes before what is written next: the first `freed` numbers, which were freed before it was laid out, may be taken (L2).
    pub(crate) fn take_over_freed(&self, freed: usize) {
        let mut waiting = self.freed.borrow_mut();
        let freed = freed.min(waiting.len());
        self.free.borrow_mut().extend(waiting.drain(..freed));
    }

    /// Nodes in use, and inodes among them.
    pub(crate) fn counts(&self) -> (u32, u32) {
        (self.nodes.get(), self.inodes.get())
    }
}

fn journal_entry((node, entry): (&NodeId, &NodeEntry)) -> NodeJournalEntry {
    NodeJournalEntry { node: node.0.into(), entry: *entry }
}
