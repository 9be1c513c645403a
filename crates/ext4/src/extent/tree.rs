//! The extent tree of one inode: finding what is mapped.
//!
//! Every operation starts at the root and goes down one path. Nothing is remembered in between, so an
//! operation that fails leaves a tree that is whole.

use std::ops::Range;

use weir_format::{FormatError, Place, Structure};

use super::Extent;
use super::node::{self, Node};
use crate::blocks::{Blocks, Kind};
use crate::inode::BLOCK_AREA_BYTES;

/// The extent tree of an inode whose block area the caller holds.
///
/// Of every node, the header is checked, that it is as deep as its parent says, and that it starts and ends
/// where its parent says. The order of entries within a node is [`check_extents`](crate::check_extents)'s
/// matter, once when a block is read; in a node out of order things are not found, and no more.
pub struct ExtentTree<'a, B> {
    pub(super) blocks: &'a B,
    pub(super) root: &'a mut [u8; BLOCK_AREA_BYTES],
    pub(super) inode: u32,
    pub(super) generation: u32,
    /// Blocks of the filesystem.
    pub(super) limit: u64,
    /// Nodes that got, less those that lost, a block of their own.
    pub(super) nodes_gained: i64,
}

/// One node on the way from the root to a leaf.
#[derive(Clone, Copy)]
pub(super) struct TreeStep {
    /// Its block; `None` for the root.
    pub block: Option<u64>,
    pub depth: u16,
    pub count: usize,
    pub max: usize,
    /// The entry that the way goes through: the last that starts at or before the wanted file block, or the
    /// first if there is none such.
    pub at: usize,
}

/// The way from the root to the leaf where a file block is mapped, if it is.
pub(super) struct Path {
    /// From the root to the leaf; never empty.
    pub steps: Vec<TreeStep>,
    /// The last extent of the leaf that starts at or before the wanted file block.
    pub found: Option<Extent>,
    /// The extent behind it in the leaf.
    pub next: Option<Extent>,
    /// Where the next leaf starts, if there is one.
    pub next_leaf: Option<u32>,
}

impl Path {
    pub fn leaf(&self) -> TreeStep {
        self.steps[self.steps.len() - 1]
    }
}

/// What a descent reads of one node.
struct NodeContent {
    step: TreeStep,
    first_key: Option<u32>,
    /// The file block behind the last entry that is certainly mapped in or below this node.
    end: u32,
    child: Option<(u64, u32)>,
    next_key: Option<u32>,
    found: Option<Extent>,
    next: Option<Extent>,
}

impl<'a, B: Blocks> ExtentTree<'a, B> {
    /// The tree of inode `inode`, in a filesystem of `limit` blocks. `root` is the inode's block area.
    pub fn new(
        blocks: &'a B,
        root: &'a mut [u8; BLOCK_AREA_BYTES],
        inode: u32,
        generation: u32,
        limit: u64,
    ) -> Self {
        Self { blocks, root, inode, generation, limit, nodes_gained: 0 }
    }

    /// The block area of an inode that maps nothing.
    pub fn empty_root() -> [u8; BLOCK_AREA_BYTES] {
        node::empty_root()
    }

    /// Nodes with a block of their own that the tree gained, or lost, since [`new`](Self::new): they count
    /// as space of the file.
    pub fn nodes_gained(&self) -> i64 {
        self.nodes_gained
    }

    /// The extent that maps file block `logical`.
    ///
    /// # Errors
    ///
    /// Those of the blocks below, and [`FormatError::Corrupt`] for a damaged tree; so for all operations.
    pub async fn lookup(&self, logical: u32) -> Result<Option<Extent>, B::Error> {
        let path = self.descend(logical).await?;
        Ok(path.found.filter(|extent| logical < extent.end()))
    }

    /// The first extent that maps `logical` or a file block behind it. A hole ends where it starts.
    pub async fn next(&self, logical: u32) -> Result<Option<Extent>, B::Error> {
        let path = self.descend(logical).await?;
        if let Some(extent) = path.found.filter(|extent| logical < extent.end()).or(path.next) {
            return Ok(Some(extent));
        }
        match path.next_leaf {
            Some(start) => {
                let found = self.descend(start).await?.found;
                if found.is_none_or(|extent| extent.logical != start) {
                    let place = Place::Inode(self.inode);
                    let what = "order of the entries";
                    return Err(FormatError::corrupt(Structure::ExtentNode, place, what).into());
                }
                Ok(found)
            }
            None => Ok(None),
        }
    }

    /// The blocks of the disk that hold nodes of the tree, from the root downwards.
    pub async fn node_blocks(&self) -> Result<Vec<u64>, B::Error> {
        let mut found = Vec::new();
        let mut before: Vec<Option<u64>> = Vec::new();
        let mut from = Some(0);
        while let Some(logical) = from {
            let path = self.descend(logical).await?;
            let way: Vec<Option<u64>> = path.steps.iter().map(|step| step.block).collect();
            // Two ways that part never meet again, so what is new is what differs from the last one.
            let known = way.iter().zip(&before).take_while(|(new, old)| new == old).count();
            found.extend(way[known..].iter().flatten());
            before = way;
            from = path.next_leaf;
        }
        Ok(found)
    }

    pub(super) fn kind(&self) -> Kind {
        Kind::Extents { inode: self.inode, generation: self.generation }
    }

    /// Looks at the node in `block`, or at the root.
    pub(super) async fn read_node<T>(
        &self,
        block: Option<u64>,
        look: impl FnOnce(Node<'_>) -> Result<T, FormatError>,
    ) -> Result<T, B::Error> {
        match block {
            None => {
                let root = Node::read(self.root, Place::Inode(self.inode))?;
                root.check(self.limit)?;
                Ok(look(root)?)
            }
            Some(block) => {
                let place = Place::Block(block);
                self.blocks.read(block, self.kind(), |bytes| look(Node::read(bytes, place)?)).await
            }
        }
    }

    /// The way to the leaf that maps `logical`, or would.
    pub(super) async fn descend(&self, logical: u32) -> Result<Path, B::Error> {
        let mut steps: Vec<TreeStep> = Vec::new();
        let mut below: Option<(u64, u32)> = None;
        let mut bound: Option<u32> = None;
        loop {
            let above = steps.last().copied();
            let seen = self
                .read_node(below.map(|(block, _)| block), |node| {
                    let seen = see(node, below.map(|(block, _)| block), logical);
                    let corrupt = |what| Err(node.corrupt(what));
                    if above.is_some_and(|above| above.depth != node.depth + 1) {
                        return corrupt("depth");
                    }
                    if below.is_some_and(|(_, key)| seen.first_key != Some(key)) {
                        return corrupt("first file block");
                    }
                    if bound.is_some_and(|bound| seen.end > bound) {
                        return corrupt("entries beyond its part of the file");
                    }
                    if seen.child.is_some_and(|(child, _)| !(1..self.limit).contains(&child)) {
                        return corrupt("a node beyond the filesystem");
                    }
                    let apart = |found: Extent| seen.next.is_none_or(|next| found.end() <= next.logical);
                    let ordered = |key: u32| seen.next_key.is_none_or(|next| key < next);
                    if !seen.found.is_none_or(apart) || !seen.child.is_none_or(|(_, key)| ordered(key)) {
                        return corrupt("order of the entries");
                    }
                    for extent in seen.found.iter().chain(&seen.next) {
                        extent.check(self.limit).map_err(|what| node.corrupt(what))?;
                    }
                    Ok(seen)
                })
                .await?;
            steps.push(seen.step);
            bound = seen.next_key.or(bound);
            below = seen.child;
            if below.is_none() {
                return Ok(Path { steps, found: seen.found, next: seen.next, next_leaf: bound });
            }
        }
    }

    /// Checks that `range` is one of file blocks.
    pub(super) fn check_range(range: &Range<u32>) -> Result<(), FormatError> {
        if range.start > range.end {
            return Err(FormatError::Invalid { what: "a range of file blocks that ends before it starts" });
        }
        Ok(())
    }
}

fn see(node: Node<'_>, block: Option<u64>, logical: u32) -> NodeContent {
    let found = node.find(logical);
    let at = found.unwrap_or(0);
    let leaf = node.depth == 0;
    let last = node.count.checked_sub(1);
    let behind = found.map_or(0, |at| at + 1);
    NodeContent {
        step: TreeStep { block, depth: node.depth, count: node.count, max: node.max, at },
        first_key: last.map(|_| node.key(0)),
        end: last.map_or(
            0,
            |last| {
                if leaf { node.extent(last).end() } else { node.key(last).saturating_add(1) }
            },
        ),
        child: (!leaf).then(|| (node.child(at), node.key(at))),
        next_key: (!leaf && at + 1 < node.count).then(|| node.key(at + 1)),
        found: found.filter(|_| leaf).map(|at| node.extent(at)),
        next: (leaf && behind < node.count).then(|| node.extent(behind)),
    }
}
