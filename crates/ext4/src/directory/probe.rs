//! Ways through a directory: to the leaf of a hash, and from leaf to leaf.

use super::entry::Record;
use super::index::{Node, Root};
use super::{Directory, DirectoryFile, Target, corrupt_index};
use crate::blocks::Blocks;
use crate::dirhash::{HashVersion, NameHasher};

/// A node on the way to a leaf.
#[derive(Clone, Copy, Debug)]
pub(super) struct IndexStep {
    /// Where the node is in the filesystem.
    pub place: u64,
    /// Its index entries.
    pub node: Node,
    /// The one that the way takes.
    pub at: usize,
}

/// A way from the root to a leaf.
#[derive(Clone, Debug)]
pub(super) struct Path {
    /// The root, and the inner node if there is one.
    pub steps: Vec<IndexStep>,
    /// The leaf's place in the filesystem.
    pub leaf: u64,
    levels: u8,
}

impl Path {
    /// The node that points to the leaf.
    pub(super) fn last(&self) -> IndexStep {
        self.steps[self.steps.len() - 1]
    }
}

/// A record that was found.
#[derive(Clone, Copy, Debug)]
pub(super) struct FoundRecord {
    pub place: u64,
    /// The record's offset in its block, and its length.
    pub at: usize,
    pub length: usize,
    /// The offset and the length of the record before it in the block.
    pub before: Option<(usize, usize)>,
    pub target: Target,
}

impl<B: Blocks, F: DirectoryFile<Error = B::Error>> Directory<'_, B, F> {
    /// The hash function of an existing index.
    pub(super) async fn hasher(&self) -> Result<NameHasher, B::Error> {
        if !self.file.is_indexed() {
            return Ok(self.format.hasher);
        }
        let (_, root) = self.root().await?;
        let version = HashVersion::from_disk(root.version, self.format.hasher.version.is_unsigned())?;
        Ok(NameHasher { version, ..self.format.hasher })
    }

    async fn root(&self) -> Result<(u64, Root), B::Error> {
        let place = self.file.place(0).await?;
        let sealed = self.format.sealed;
        let look = |bytes: &[u8]| Root::read(bytes, sealed).map_err(|what| corrupt_index(place, what));
        Ok((place, self.blocks.read(place, self.format.node(), look).await?))
    }

    /// The way to the leaf where names of hash `hash` begin.
    pub(super) async fn probe(&self, hash: u32) -> Result<Path, B::Error> {
        let (place, root) = self.root().await?;
        let at = self.read_node(place, move |bytes| root.node.search(bytes, hash)).await?;
        let mut path = Path {
            steps: vec![IndexStep { place, node: root.node, at }],
            leaf: self.child(place, root.node, at).await?,
            levels: root.levels,
        };
        if root.levels > 0 {
            self.descend(&mut path, |node, bytes| node.search(bytes, hash)).await?;
        }
        Ok(path)
    }

    /// Goes from the inner node that `path` has for its leaf to the leaf below, by the entry that `choose`
    /// names.
    async fn descend(
        &self,
        path: &mut Path,
        choose: impl FnOnce(Node, &[u8]) -> usize,
    ) -> Result<(), B::Error> {
        let (place, sealed) = (path.leaf, self.format.sealed);
        let look = |bytes: &[u8]| {
            let node = Node::read_inner(bytes, sealed).map_err(|what| corrupt_index(place, what))?;
            Ok((node, choose(node, bytes)))
        };
        let (node, at) = self.blocks.read(place, self.format.node(), look).await?;
        path.steps.push(IndexStep { place, node, at });
        path.leaf = self.child(place, node, at).await?;
        Ok(())
    }

    /// Goes on to the next leaf and returns its lowest hash as the index has it; `None` at the end.
    pub(super) async fn advance(&self, path: &mut Path) -> Result<Option<u32>, B::Error> {
        while let Some(step) = path.steps.last_mut() {
            step.at += 1;
            let IndexStep { place, node, at } = *step;
            if at == node.count {
                path.steps.pop();
                continue;
            }
            let hash = self.read_node(place, move |bytes| node.hash(bytes, at)).await?;
            path.leaf = self.child(place, node, at).await?;
            if path.levels > 0 && path.steps.len() == 1 {
                self.descend(path, |_, _| 0).await?;
            }
            return Ok(Some(hash));
        }
        Ok(None)
    }

    async fn read_node<T>(&self, place: u64, look: impl FnOnce(&[u8]) -> T) -> Result<T, B::Error> {
        self.blocks.read(place, self.format.node(), |bytes| Ok(look(bytes))).await
    }

    /// Where child `at` of a node is in the filesystem.
    async fn child(&self, place: u64, node: Node, at: usize) -> Result<u64, B::Error> {
        let child = self.read_node(place, move |bytes| node.child(bytes, at)).await?;
        if child == 0 || child >= self.file.blocks() {
            return Err(corrupt_index(place, "an index entry beyond the directory").into());
        }
        self.file.place(child).await
    }

    /// Finds the record of `name`, which is not "." or "..".
    pub(super) async fn find(&self, name: &[u8]) -> Result<Option<FoundRecord>, B::Error> {
        if !self.file.is_indexed() {
            for block in 0..self.file.blocks() {
                let place = self.file.place(block).await?;
                if let Some(found) = self.find_in(place, block == 0, name).await? {
                    return Ok(Some(found));
                }
            }
            return Ok(None);
        }
        let hash = self.hasher().await?.hash(name).major;
        let mut path = self.probe(hash).await?;
        loop {
            if let Some(found) = self.find_in(path.leaf, false, name).await? {
                return Ok(Some(found));
            }
            // A hash that goes on in the next leaf has its lowest bit set there.
            if self.advance(&mut path).await? != Some(hash | 1) {
                return Ok(None);
            }
        }
    }

    async fn find_in(
        &self,
        place: u64,
        is_first: bool,
        name: &[u8],
    ) -> Result<Option<FoundRecord>, B::Error> {
        let look = |records: &[Record<'_>]| {
            let Some(index) = records.iter().position(|record| record.is_live() && record.name == name)
            else {
                return Ok(None);
            };
            let record = records[index];
            let before = index.checked_sub(1).map(|before| (records[before].at, records[before].length));
            let target = Target { inode: record.inode, kind: record.kind };
            Ok(Some(FoundRecord { place, at: record.at, length: record.length, before, target }))
        };
        self.records(place, is_first, look).await
    }
}
