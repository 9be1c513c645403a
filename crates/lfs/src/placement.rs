//! Where blocks go when they are written: data by the page cache, which asks for a place when a page is submitted, and nodes.

use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};

use weir_block::Class;
use weir_cache::{DirtyPage, PlacePages};
use weir_f2fs::{
    ATTRIBUTE_NODE_PLACE, BLOCK_BYTES, Block, BlockAddress, Extent, Log, NodeEntry, NodeFooter, NodeId,
    NodeMark, first_page,
};
use weir_storage::StorageError;
use weir_vfs::FsError;

use crate::blocks::BlockWrite;
use crate::file::{File, Slot};
use crate::mutants::{LfsMutant, LfsRules};
use crate::node_table::NodeTable;
use crate::nodes::{NodeBlock, Nodes};
use crate::space::{Space, summary_of_data, summary_of_node};

/// What a sync call marks on the nodes that it writes.
#[derive(Clone, Copy, Default)]
pub(crate) struct Marks {
    /// Roll-forward takes the node, and those of the same file before it.
    pub(crate) fsync: bool,
    /// Roll-forward gives the inode its name.
    pub(crate) name: bool,
}

/// Places of blocks.
pub(crate) struct Placement {
    pub(crate) space: RefCell<Space>,
    pub(crate) table: Rc<NodeTable>,
    pub(crate) nodes: Nodes,
    /// Inodes that were changed since they were written.
    pub(crate) dirty_files: Rc<Cell<u64>>,
    /// What nodes carry that are written behind the newest checkpoint.
    pub(crate) chain_version: Cell<u64>,
    /// How many of them there are.
    pub(crate) chain_nodes: Cell<u64>,
    /// What checksums of inodes start from, where they have some.
    pub(crate) inode_seed: Option<u32>,
    /// A sync call overwrites so many dirty pages of a file, or fewer, in place.
    pub(crate) in_place_pages: usize,
    pub(crate) rules: LfsRules,
}

impl Placement {
    /// Stores the address of a page. The inode notes no extent any more: Linux would look for the page where it was.
    pub(crate) fn set_address(&self, file: &File, slot: &Slot, address: BlockAddress) {
        if file.inode.borrow().extent() != Extent::default() {
            file.change(|inode| inode.set_extent(Extent::default()));
        }
        match &slot.node {
            Some(node) => self.nodes.set_word(node, slot.word, address.0),
            None => file.change(|inode| inode.set_address(slot.word, address)),
        }
    }

    /// Chooses a new place for the page of a slot, in a log. The page is where it was until the slot [leads there](Self::lead_to).
    ///
    /// # Errors
    /// As [`Space::append`].
    pub(crate) fn reserve_page(&self, file: &File, slot: &Slot, log: Log) -> Result<BlockAddress, FsError> {
        let (owner, entry) = match &slot.node {
            Some(node) => (node.id, node.entry.get()),
            None => (file.number, file.entry.get()),
        };
        // L8
        let word = slot.word + u32::from(self.rules.drops(LfsMutant::SummaryLies));
        self.space.borrow_mut().append(log, summary_of_data(owner, entry.version, word))
    }

    /// Stores a place that was reserved for the page of a slot; the old one has no block in use any more.
    pub(crate) fn lead_to(&self, file: &File, slot: &Slot, new: BlockAddress) {
        self.space.borrow_mut().invalidate(file.address(slot));
        self.set_address(file, slot, new);
    }

    /// Gives a node its next place, and makes its block ready to be written there.
    fn place_node(
        &self,
        (id, is_directory): (NodeId, bool),
        entry: &Cell<NodeEntry>,
        content: &mut Block,
        marks: Marks,
    ) -> Result<BlockAddress, FsError> {
        let mut footer = NodeFooter::of_block(&content[..]).unwrap_or_else(|| NodeFooter::new(id, id, 0));
        let place = footer.place();
        let is_direct = place == 0 || place == ATTRIBUTE_NODE_PLACE || first_page(place, 0).is_some();
        let log = match (is_direct, is_directory) {
            (false, _) => Log::ColdNode,
            (true, true) => Log::HotNode,
            (true, false) => Log::WarmNode,
        };
        let before = entry.get();
        let mut space = self.space.borrow_mut();
        let address = space.append(log, summary_of_node(id, before.version))?;
        footer.set(NodeMark::Cold, !is_directory);
        footer.set(NodeMark::Fsync, marks.fsync);
        footer.set(NodeMark::Dentry, marks.name);
        footer.set_written(self.chain_version.get(), space.next_of(log));
        footer.write(content);
        space.invalidate(before.address());
        let mut after = before;
        after.address = address.0.into();
        entry.set(after);
        self.table.set(id, after);
        Ok(address)
    }

    /// The write of a node that is no inode.
    ///
    /// # Errors
    /// As [`Space::append`].
    pub(crate) fn write_node(
        &self,
        node: &NodeBlock,
        is_directory: bool,
        marks: Marks,
    ) -> Result<BlockWrite, FsError> {
        let mut content: Block = Box::new(*node.content());
        let address = self.place_node((node.id, is_directory), &node.entry, &mut content, marks)?;
        self.nodes.mark_clean(node);
        Ok(BlockWrite::new(address, &content[..]))
    }

    /// The write of an inode.
    ///
    /// # Errors
    /// As [`Space::append`].
    pub(crate) fn write_inode(&self, file: &File, marks: Marks) -> Result<BlockWrite, FsError> {
        let mut content: Block = Box::new([0; BLOCK_BYTES]);
        let mut inode = *file.inode.borrow();
        inode.write(&mut content, None);
        let is_directory = file.is_directory();
        let address = self.place_node((file.number, is_directory), &file.entry, &mut content, marks)?;
        // The checksum covers the footer.
        if let Some(footer) = NodeFooter::of_block(&content[..]) {
            *inode.footer_mut() = footer;
        }
        inode.write(&mut content, self.inode_seed);
        *file.inode.borrow_mut() = inode;
        file.written_size.set(inode.size.get());
        file.set_dirty(false);
        file.changed_itself.set(false);
        Ok(BlockWrite::new(address, &content[..]))
    }
}

/// The places of one file's pages.
pub(crate) struct FilePlacement {
    file: Weak<File>,
    placement: Rc<Placement>,
}

impl FilePlacement {
    /// Those of this file.
    pub(crate) fn new(file: Weak<File>, placement: Rc<Placement>) -> FilePlacement {
        FilePlacement { file, placement }
    }

    /// Chooses a place for a dirty page. Nothing leads there yet.
    fn choose(&self, file: &File, page: &DirtyPage, in_place: bool) -> Result<Chosen, FsError> {
        let slot = file.slots.borrow().get(&page.index).cloned();
        let Some(slot) = slot else { return Err(StorageError::Aborted.into()) };
        let old = file.address(&slot);
        let is_moved = file.moved.borrow().contains(&page.index);
        let end = (u64::from(page.index) + 1) * BLOCK_BYTES as u64;
        if in_place && old.is_block() && !is_moved && end <= file.written_size.get() {
            return Ok(Chosen { slot, place: old, is_new: false });
        }
        let log = match (file.is_directory(), is_moved) {
            (_, true) => Log::ColdData,
            (true, false) => Log::HotData,
            (false, false) => Log::WarmData,
        };
        let place = self.placement.reserve_page(file, &slot, log)?;
        Ok(Chosen { slot, place, is_new: true })
    }

    /// Whether dirty pages of a file are such of an update, which roll-forward takes as a whole (L6).
    fn keeps_update(&self, file: &File) -> bool {
        file.holds_update.get() && !self.placement.rules.drops(LfsMutant::UpdateInPlace)
    }

    /// Chooses places for all of the pages, or for none.
    fn choose_all(&self, file: &File, pages: &[DirtyPage], in_place: bool) -> Result<Vec<Chosen>, FsError> {
        let mut chosen: Vec<Chosen> = Vec::with_capacity(pages.len());
        for page in pages {
            match self.choose(file, page, in_place) {
                Ok(place) => chosen.push(place),
                Err(error) => {
                    let mut space = self.placement.space.borrow_mut();
                    chosen.iter().filter(|page| page.is_new).for_each(|page| space.invalidate(page.place));
                    return Err(error);
                }
            }
        }
        Ok(chosen)
    }
}

/// The place that was chosen for a page.
struct Chosen {
    slot: Slot,
    place: BlockAddress,
    /// It is not where the page was.
    is_new: bool,
}

impl PlacePages for FilePlacement {
    fn place_pages(&self, _file: u32, pages: &[DirtyPage], _class: Class) -> Result<Vec<u64>, StorageError> {
        let Some(file) = self.file.upgrade() else { return Err(StorageError::Aborted) };
        let in_place = file.is_synchronised.get()
            && pages.len() <= self.placement.in_place_pages
            && !file.needs_checkpoint.get()
            && !self.keeps_update(&file)
            && !file.is_directory();
        let chosen = self.choose_all(&file, pages, in_place).map_err(|error| match error {
            FsError::Storage(error) => error,
            _ => StorageError::Aborted,
        })?;
        for (page, Chosen { slot, place, is_new }) in pages.iter().zip(&chosen) {
            file.slots.borrow_mut().remove(&page.index);
            file.moved.borrow_mut().remove(&page.index);
            if *is_new {
                self.placement.lead_to(&file, slot, *place);
            }
        }
        Ok(chosen.iter().map(|page| page.place.0.into()).collect())
    }
}
