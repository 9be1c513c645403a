//! The extent tree of one inode: changing what is mapped.
//!
//! Every change replaces a few extents of one leaf by others (`splice`). If they do not fit, a node is split
//! (`make_room`) and the change starts again, so each step finds and leaves a tree that is whole: a full disk
//! or a failed read in between costs a node that is less full than it could be, and nothing else.

use std::ops::Range;

use weir_format::FormatError;

use super::node::{self, BLOCK_ENTRIES, DEPTH_MAX, ROOT_ENTRIES};
use super::tree::{ExtentTree, Path, TreeStep};
use super::{ENTRY_BYTES, Extent, join};
use crate::blocks::Blocks;

impl<B: Blocks> ExtentTree<'_, B> {
    /// Maps a run of file blocks that are not mapped. It becomes part of its neighbours where it continues
    /// them.
    ///
    /// # Errors
    ///
    /// [`FormatError::Invalid`] if one of the file blocks is mapped, or the extent cannot be stored; the
    /// caller's own where a node needs a block and there is none.
    pub async fn insert(&mut self, extent: Extent) -> Result<(), B::Error> {
        extent.check(self.limit).map_err(|what| FormatError::Invalid { what })?;
        loop {
            let path = self.descend(extent.logical).await?;
            let before = path.found.is_some_and(|found| found.end() > extent.logical);
            let next = path.next.map(|next| next.logical).or(path.next_leaf);
            if before || next.is_some_and(|next| next < extent.end()) {
                return Err(FormatError::Invalid { what: "an extent over mapped file blocks" }.into());
            }
            let at = if path.found.is_some() { path.leaf().at + 1 } else { 0 };
            if self.splice(&path, at..at, &[extent]).await? {
                return Ok(());
            }
            self.make_room(&path, extent.physical).await?;
        }
    }

    /// Unmaps the last part of `range` that one extent maps, and returns it: its blocks on the disk are free
    /// now. `None` once nothing is mapped there.
    ///
    /// Call it until then. From the end, and one extent a call, so that a truncation can be divided between
    /// transactions and is a shorter truncation after each.
    ///
    /// # Errors
    ///
    /// The caller's own where a cut in the middle of an extent needs a node and there is no space.
    pub async fn remove_last(&mut self, range: Range<u32>) -> Result<Option<Extent>, B::Error> {
        Self::check_range(&range)?;
        let Some(last) = range.end.checked_sub(1).filter(|last| *last >= range.start) else {
            return Ok(None);
        };
        loop {
            let path = self.descend(last).await?;
            let Some(extent) = path.found.filter(|extent| extent.end() > range.start) else {
                return Ok(None);
            };
            let removed = extent.part(range.start, range.end);
            let at = path.leaf().at;
            if self.splice(&path, at..at + 1, &around(&extent, &removed, None)).await? {
                return Ok(Some(removed));
            }
            self.make_room(&path, extent.physical).await?;
        }
    }

    /// Marks all that is mapped in `range` as written, or as unwritten.
    ///
    /// # Errors
    ///
    /// The caller's own where a division of an extent needs a node and there is no space; what comes before
    /// it in `range` is marked then.
    pub async fn mark(&mut self, range: Range<u32>, written: bool) -> Result<(), B::Error> {
        Self::check_range(&range)?;
        let mut from = range.start;
        while from < range.end {
            let Some(extent) = self.next(from).await?.filter(|extent| extent.logical < range.end) else {
                break;
            };
            let part = extent.part(from, range.end);
            if extent.written != written {
                self.mark_part(extent, Extent { written, ..part }).await?;
            }
            from = part.end();
        }
        Ok(())
    }

    /// The least range around `range` that [`mark`](Self::mark) can mark as written without a block for a new
    /// node, and without a block behind `end`: the part of its extent that `range` is, longer at one end or both.
    /// `None` if there is none, or if `range` is not in one unwritten extent.
    ///
    /// All of an extent takes no more entries than the extent itself, so only `end` can be in the way.
    ///
    /// # Errors
    ///
    /// Those of the blocks below.
    pub async fn markable(&self, range: Range<u32>, end: u32) -> Result<Option<Range<u32>>, B::Error> {
        Self::check_range(&range)?;
        let path = self.descend(range.start).await?;
        let whole =
            |extent: &Extent| !extent.written && range.end <= extent.end() && range.start < extent.end();
        let Some(extent) = path.found.filter(whole) else { return Ok(None) };
        let mut wider = [
            range.clone(),
            extent.logical..range.end,
            range.start..extent.end(),
            extent.logical..extent.end(),
        ];
        wider.sort_by_key(|range| range.end - range.start);
        for wider in wider.into_iter().filter(|wider| wider.end <= end.max(range.end)) {
            let marked = Extent { written: true, ..extent.part(wider.start, wider.end) };
            let at = path.leaf().at;
            if self.spliced(&path, at..at + 1, &around(&extent, &marked, Some(marked))).await?.fits(&path) {
                return Ok(Some(wider));
            }
        }
        Ok(None)
    }

    async fn mark_part(&mut self, extent: Extent, marked: Extent) -> Result<(), B::Error> {
        loop {
            let path = self.descend(extent.logical).await?;
            let at = path.leaf().at;
            if self.splice(&path, at..at + 1, &around(&extent, &marked, Some(marked))).await? {
                return Ok(());
            }
            self.make_room(&path, extent.physical).await?;
        }
    }

    /// What replacing the extents `old` of the leaf by `new` makes of them and their neighbours.
    async fn spliced(&self, path: &Path, old: Range<usize>, new: &[Extent]) -> Result<Spliced, B::Error> {
        let leaf = path.leaf();
        let wide = old.start.saturating_sub(1)..(old.end + 1).min(leaf.count);
        self.read_node(leaf.block, |node| {
            let before: Vec<Extent> = wide.clone().map(|at| node.extent(at)).collect();
            for extent in &before {
                extent.check(self.limit).map_err(|what| node.corrupt(what))?;
            }
            let left = before[..old.start - wide.start].iter();
            let right = before[old.end - wide.start..].iter();
            let list = join(left.chain(new).chain(right).copied());
            Ok(Spliced { wide, before, list })
        })
        .await
    }

    /// Replaces the extents `old` of the leaf by `new`, joined with their neighbours. `false`, and nothing
    /// has changed, if the leaf has no room.
    async fn splice(&mut self, path: &Path, old: Range<usize>, new: &[Extent]) -> Result<bool, B::Error> {
        let leaf = path.leaf();
        let spliced = self.spliced(path, old, new).await?;
        if !spliced.fits(path) {
            return Ok(false);
        }
        let count = spliced.count(path);
        let Spliced { wide, before, list } = spliced;
        if count == 0 {
            self.remove_leaf(path).await?;
            return Ok(true);
        }
        // Neighbours that were not joined need not be written.
        let same = before.iter().zip(&list).take_while(|(old, new)| old == new).count();
        let pairs = before[same..].iter().rev().zip(list[same..].iter().rev());
        let same_end = pairs.take_while(|(old, new)| old == new).count();
        let entries: Vec<u8> = list[same..list.len() - same_end].iter().flat_map(Extent::encode).collect();
        self.replace_entries(leaf, wide.start + same..wide.end - same_end, &entries).await?;
        let moved = |first: &&Extent| before.first().is_none_or(|old| old.logical != first.logical);
        if let Some(first) = list.first().filter(moved).filter(|_| wide.start == 0) {
            self.set_first_key(&path.steps[..path.steps.len() - 1], first.logical).await?;
        }
        if count < leaf.count {
            self.shorten().await?;
        }
        Ok(true)
    }

    /// Replaces entries `old` of a node by those in `new`, and moves what is behind them.
    async fn replace_entries(
        &mut self,
        step: TreeStep,
        old: Range<usize>,
        new: &[u8],
    ) -> Result<(), B::Error> {
        let count = step.count - old.len() + new.len() / ENTRY_BYTES;
        let start = node::entry(old.start).start;
        if count == step.count {
            return self
                .change(step.block, start..start + new.len(), |bytes| bytes.copy_from_slice(new))
                .await;
        }
        let (old_end, end) = (node::entry(old.end).start, node::used(step.count).end);
        self.change(step.block, node::used(count.max(step.count)), |bytes| {
            node::set_count(bytes, count);
            bytes.copy_within(old_end..end, start + new.len());
            bytes[start..start + new.len()].copy_from_slice(new);
            bytes[node::used(count).end..].fill(0);
        })
        .await
    }

    /// The leaf of `path` has nothing left: it goes, and so does what has nothing left above it.
    async fn remove_leaf(&mut self, path: &Path) -> Result<(), B::Error> {
        let mut level = path.steps.len() - 1;
        let mut freed = Vec::new();
        while level > 0 && path.steps[level].count == 1 {
            freed.extend(path.steps[level].block);
            level -= 1;
        }
        let step = path.steps[level];
        if step.count == 1 {
            *self.root = node::empty_root();
        } else {
            let keep = self.key_behind(step).await?;
            self.replace_entries(step, step.at..step.at + 1, &[]).await?;
            if let Some(key) = keep.filter(|_| step.at == 0) {
                self.set_first_key(&path.steps[..level], key).await?;
            }
        }
        for block in freed {
            self.blocks.free(block, self.kind()).await?;
            self.nodes_gained -= 1;
        }
        self.shorten().await
    }

    /// The first file block of the entry behind the one that the way goes through.
    async fn key_behind(&self, step: TreeStep) -> Result<Option<u32>, B::Error> {
        self.read_node(step.block, |node| Ok((step.at + 1 < node.count).then(|| node.key(step.at + 1)))).await
    }

    /// Notes in the nodes above that what is below starts with file block `key` now.
    async fn set_first_key(&mut self, above: &[TreeStep], key: u32) -> Result<(), B::Error> {
        for step in above.iter().rev() {
            let set = |bytes: &mut [u8]| bytes.copy_from_slice(&key.to_le_bytes());
            self.change(step.block, node::key(step.at), set).await?;
            if step.at > 0 {
                break;
            }
        }
        Ok(())
    }

    /// Makes the tree flatter while all of the node below the root fits in the root.
    async fn shorten(&mut self) -> Result<(), B::Error> {
        loop {
            let child = self.read_node(None, |root| {
                Ok((root.depth > 0 && root.count == 1).then(|| (root.child(0), root.depth - 1)))
            });
            let Some((child, depth)) = child.await? else { return Ok(()) };
            let copied = self
                .read_node(Some(child), |node| {
                    if node.depth != depth {
                        return Err(node.corrupt("depth"));
                    }
                    let fits = node.count <= ROOT_ENTRIES;
                    Ok(fits.then(|| (node.count, node.entries(0..node.count).to_vec())))
                })
                .await?;
            let Some((count, entries)) = copied else { return Ok(()) };
            *self.root = node::empty_root();
            node::write_header(self.root, count, ROOT_ENTRIES, depth);
            self.root[node::entry(0).start..node::used(count).end].copy_from_slice(&entries);
            self.blocks.free(child, self.kind()).await?;
            self.nodes_gained -= 1;
        }
    }

    /// Splits the highest full node on the way to a leaf that is full, or makes the tree deeper if the root
    /// is full too.
    async fn make_room(&mut self, path: &Path, goal: u64) -> Result<(), B::Error> {
        let inner = &path.steps[..path.steps.len() - 1];
        match inner.iter().rposition(|step| step.count < step.max) {
            Some(level) => self.split(&path.steps[..=level], path.steps[level + 1], goal).await,
            None => self.deepen(path.steps[0], goal).await,
        }
    }

    /// Moves the upper entries of `full` to a new node. When the change comes behind all of them, only the
    /// last entry moves: files that grow at their end leave full nodes.
    async fn split(&mut self, above: &[TreeStep], full: TreeStep, goal: u64) -> Result<(), B::Error> {
        let Some((parent, _)) = above.split_last() else { return Ok(()) };
        let kept = if full.at + 1 == full.count { full.count - 1 } else { full.count / 2 };
        if kept == 0 {
            return Err(FormatError::Full { what: "an extent node that holds a single entry" }.into());
        }
        let moved = full.count - kept;
        let (key, entries) = self
            .read_node(full.block, |node| Ok((node.key(kept), node.entries(kept..full.count).to_vec())))
            .await?;
        let new = self.new_node(moved, full.depth, &entries, goal).await?;
        let behind = parent.at + 1;
        self.replace_entries(*parent, behind..behind, &node::encode_index(key, new)).await?;
        self.replace_entries(full, kept..full.count, &[]).await
    }

    /// Moves all entries of the root to a new node below it.
    async fn deepen(&mut self, root: TreeStep, goal: u64) -> Result<(), B::Error> {
        if root.depth >= DEPTH_MAX {
            return Err(FormatError::Full { what: "an extent tree of the greatest depth" }.into());
        }
        let (key, entries) =
            self.read_node(None, |node| Ok((node.key(0), node.entries(0..node.count).to_vec()))).await?;
        let new = self.new_node(root.count, root.depth, &entries, goal).await?;
        *self.root = node::empty_root();
        node::write_header(self.root, 1, ROOT_ENTRIES, root.depth + 1);
        self.root[node::entry(0)].copy_from_slice(&node::encode_index(key, new));
        Ok(())
    }

    async fn new_node(
        &mut self,
        count: usize,
        depth: u16,
        entries: &[u8],
        goal: u64,
    ) -> Result<u64, B::Error> {
        let block = self.blocks.allocate(self.kind(), goal).await?;
        self.nodes_gained += 1;
        self.change(Some(block), node::used(count), |bytes| {
            node::write_header(bytes, count, BLOCK_ENTRIES, depth);
            bytes[node::entry(0).start..].copy_from_slice(entries);
        })
        .await?;
        Ok(block)
    }

    /// Changes bytes of the node in `block`, or of the root.
    async fn change(
        &mut self,
        block: Option<u64>,
        range: Range<usize>,
        change: impl FnOnce(&mut [u8]),
    ) -> Result<(), B::Error> {
        match block {
            None => {
                change(&mut self.root[range]);
                Ok(())
            }
            Some(block) => self.blocks.modify(block, self.kind(), range, change).await,
        }
    }
}

/// Extents of a leaf, with their neighbours, and what comes in their place.
struct Spliced {
    wide: Range<usize>,
    before: Vec<Extent>,
    list: Vec<Extent>,
}

impl Spliced {
    /// Entries of the leaf afterwards.
    fn count(&self, path: &Path) -> usize {
        path.leaf().count - self.wide.len() + self.list.len()
    }

    /// Whether the leaf has room for them.
    fn fits(&self, path: &Path) -> bool {
        self.count(path) <= path.leaf().max
    }
}

/// What takes the place of `extent` when its part `part` becomes `middle`.
fn around(extent: &Extent, part: &Extent, middle: Option<Extent>) -> Vec<Extent> {
    let head = (extent.logical < part.logical).then(|| extent.part(extent.logical, part.logical));
    let tail = (part.end() < extent.end()).then(|| extent.part(part.end(), extent.end()));
    head.into_iter().chain(middle).chain(tail).collect()
}
