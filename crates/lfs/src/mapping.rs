//! What pages of a file are mapped to: the way over nodes to the slot of a page, made where it is missing, and cut where a file is.

use std::ops::Range;
use std::rc::Rc;

use futures_util::future::LocalBoxFuture;
use weir_f2fs::{
    ADDRESSES_PER_NODE, BlockAddress, FormatError, NodeId, NodePath, Place, Step, Structure, inline_flags,
};
use weir_format::FileType;
use weir_vfs::FsError;

use crate::file::{File, Slot};
use crate::nodes::NodeBlock;
use crate::placement::Placement;

/// The five nodes of an inode: how many levels of indirect nodes are below each.
const ROOTS: [u32; 5] = [0, 0, 1, 1, 2];

impl Placement {
    /// The slot of a page, if all nodes on the way to it are there.
    ///
    /// # Errors
    /// [`FsError::Format`] for a damaged way; what reading fails by.
    pub(crate) async fn find_slot(&self, file: &File, page: u64) -> Result<Option<Slot>, FsError> {
        let path = path_of(file, page)?;
        let mut last: Option<Rc<NodeBlock>> = None;
        for step in path.steps() {
            let id = child_of(file, last.as_deref(), *step);
            if id == NodeId::NULL {
                return Ok(None);
            }
            last = Some(self.nodes.get(id, file.number, step.place).await?);
        }
        Ok(Some(Slot { node: last, word: path.word }))
    }

    /// The slot of a page; nodes on the way to it are made.
    ///
    /// # Errors
    /// As [`find_slot`](Self::find_slot), and [`FsError::NoSpace`].
    pub(crate) async fn make_slot(&self, file: &File, page: u64) -> Result<Slot, FsError> {
        let path = path_of(file, page)?;
        let mut last: Option<Rc<NodeBlock>> = None;
        for step in path.steps() {
            let id = child_of(file, last.as_deref(), *step);
            let node = match id {
                NodeId::NULL => self.make_node(file, last.as_ref(), *step).await?,
                id => self.nodes.get(id, file.number, step.place).await?,
            };
            last = Some(node);
        }
        Ok(Slot { node: last, word: path.word })
    }

    /// Makes the node that a step leads to.
    async fn make_node(
        &self,
        file: &File,
        parent: Option<&Rc<NodeBlock>>,
        step: Step,
    ) -> Result<Rc<NodeBlock>, FsError> {
        self.space.borrow_mut().promise(1)?;
        let node = match self.nodes.create(file.number, step.place).await {
            Ok(node) => node,
            Err(error) => {
                self.space.borrow_mut().give_back(BlockAddress::NEW);
                return Err(error);
            }
        };
        match parent {
            Some(parent) => self.nodes.set_word(parent, step.word, node.id.0),
            None => file.change(|inode| set_root(&mut inode.nodes, step.word, node.id)),
        }
        file.count_blocks(1);
        Ok(node)
    }

    /// The slot of a page that is to be written: a hole is promised a block.
    ///
    /// # Errors
    /// As [`make_slot`](Self::make_slot).
    pub(crate) async fn promise_page(&self, file: &File, page: u64) -> Result<Slot, FsError> {
        let slot = self.make_slot(file, page).await?;
        self.promise_slot(file, &slot)?;
        Ok(slot)
    }

    /// The same for a page whose slot is known; whether it was a hole.
    ///
    /// # Errors
    /// [`FsError::NoSpace`].
    pub(crate) fn promise_slot(&self, file: &File, slot: &Slot) -> Result<bool, FsError> {
        let is_hole = file.address(slot) == BlockAddress::NULL;
        if is_hole {
            self.space.borrow_mut().promise(1)?;
            self.set_address(file, slot, BlockAddress::NEW);
            file.count_blocks(1);
        }
        Ok(is_hole)
    }

    /// Makes a page a hole. Its cached page is gone already.
    pub(crate) fn free_page(&self, file: &File, slot: &Slot) {
        let address = file.address(slot);
        if address != BlockAddress::NULL {
            self.space.borrow_mut().give_back(address);
            self.set_address(file, slot, BlockAddress::NULL);
            file.count_blocks(-1);
        }
    }

    /// Makes holes of all pages in a range; nodes stay.
    ///
    /// # Errors
    /// As [`find_slot`](Self::find_slot).
    pub(crate) async fn free_pages(&self, file: &File, pages: Range<u64>) -> Result<(), FsError> {
        let mut page = pages.start;
        while page < pages.end {
            match self.find_slot(file, page).await? {
                Some(slot) => {
                    self.free_page(file, &slot);
                    page += 1;
                }
                None => page = self.next_way(file, page),
            }
        }
        Ok(())
    }

    /// The next page that can have a node, where the way to `page` has none.
    fn next_way(&self, file: &File, page: u64) -> u64 {
        let (node, base) = (u64::from(ADDRESSES_PER_NODE), u64::from(file.inode.borrow().addresses()));
        base + (page.saturating_sub(base) / node + 1) * node
    }

    /// Frees all pages from `from` on, and the nodes that lead to none any more.
    ///
    /// # Errors
    /// As [`find_slot`](Self::find_slot). What is freed by then stays so.
    pub(crate) async fn truncate_pages(&self, file: &Rc<File>, from: u64) -> Result<(), FsError> {
        // The first words of a device are its numbers, and what lies in the inode has no pages.
        let kinds = [FileType::Regular, FileType::Directory, FileType::Symlink];
        let has_pages = file.kind().is_some_and(|kind| kinds.contains(&kind));
        if !has_pages || file.has_inline(inline_flags::DATA | inline_flags::NAMES) {
            return Ok(());
        }
        let in_inode = file.inode.borrow().addresses();
        for word in u32::try_from(from).unwrap_or(u32::MAX)..in_inode {
            self.free_page(file, &Slot { node: None, word });
        }
        let node = u64::from(ADDRESSES_PER_NODE);
        let mut first = u64::from(in_inode);
        for (nth, levels) in ROOTS.into_iter().enumerate() {
            let pages = node.pow(levels + 1);
            let id = NodeId(file.inode.borrow().nodes[nth].get());
            if id != NodeId::NULL && first + pages > from {
                let is_empty = self.truncate_below(file, id, (levels, first), from).await?;
                if is_empty {
                    file.change(|inode| set_root(&mut inode.nodes, nth as u32, NodeId::NULL));
                }
            }
            first += pages;
        }
        Ok(())
    }

    /// Frees the pages from `from` on below a node with `levels` of indirect nodes, whose first page is `first`. Whether the node is
    /// freed too.
    fn truncate_below<'a>(
        &'a self,
        file: &'a Rc<File>,
        id: NodeId,
        (levels, first): (u32, u64),
        from: u64,
    ) -> LocalBoxFuture<'a, Result<bool, FsError>> {
        Box::pin(async move {
            let node = self.nodes.load(id, file.number).await?;
            let pages = u64::from(ADDRESSES_PER_NODE).pow(levels);
            let start = from.saturating_sub(first) / pages;
            for word in start as u32..ADDRESSES_PER_NODE {
                if levels == 0 {
                    self.free_page(file, &Slot { node: Some(Rc::clone(&node)), word });
                    continue;
                }
                let child = NodeId(node.word(word));
                let below = (levels - 1, first + u64::from(word) * pages);
                if child != NodeId::NULL && self.truncate_below(file, child, below, from).await? {
                    self.nodes.set_word(&node, word, NodeId::NULL.0);
                }
            }
            if from > first {
                return Ok(false);
            }
            self.space.borrow_mut().give_back(self.nodes.remove(&node));
            file.count_blocks(-1);
            Ok(true)
        })
    }
}

fn path_of(file: &File, page: u64) -> Result<NodePath, FsError> {
    NodePath::new(page, file.inode.borrow().addresses()).ok_or(FsError::TooLarge)
}

/// The node that a step leads to, from the inode or from the last node.
fn child_of(file: &File, last: Option<&NodeBlock>, step: Step) -> NodeId {
    match last {
        Some(node) => NodeId(node.word(step.word)),
        None => NodeId(file.inode.borrow().nodes.get(step.word as usize).map_or(0, |node| node.get())),
    }
}

fn set_root(nodes: &mut [zerocopy::little_endian::U32; 5], nth: u32, node: NodeId) {
    if let Some(word) = nodes.get_mut(nth as usize) {
        *word = node.0.into();
    }
}

/// What says that a file has a page where none can be.
pub(crate) fn page_outside(file: &File) -> FormatError {
    FormatError::corrupt(Structure::Node, Place::Inode(file.number.0), "a page outside the main area")
}
