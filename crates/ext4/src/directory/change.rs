//! Changes of a directory: names come, go and change their meaning; leaves split; the index grows.

use weir_format::{BLOCK_BYTES, FormatError};

use super::entry::{Record, find_slot, pack};
use super::index::{Node, full, make_root};
use super::probe::{IndexStep, Path};
use super::{Directory, DirectoryFile, Target, check_ordinary, corrupt, corrupt_index};
use crate::blocks::Blocks;
use crate::dirhash::NameHasher;

/// An insertion makes a linear directory hashed, adds a level, splits an inner node and splits a leaf, each
/// at most once: then there is room for the longest name.
const ATTEMPTS: usize = 5;

impl<B: Blocks, F: DirectoryFile<Error = B::Error>> Directory<'_, B, F> {
    /// Adds a name, which the caller knows not to be there.
    ///
    /// # Errors
    ///
    /// [`FormatError::Invalid`] for a name that cannot be, or that is found on the way to its place;
    /// [`FormatError::Full`] when the index has no room left; [`FormatError::Corrupt`] for damage; and those
    /// from below. After an error the name is not there and the directory is whole.
    pub async fn insert(&self, name: &[u8], target: Target) -> Result<(), B::Error> {
        check_ordinary(name)?;
        for _ in 0..ATTEMPTS {
            let done = if self.file.is_indexed() {
                self.insert_indexed(name, target).await?
            } else {
                self.insert_linear(name, target).await?
            };
            if done {
                return Ok(());
            }
        }
        Err(corrupt_index(self.file.place(0).await?, "no room after a split").into())
    }

    /// Removes a name, and returns what it stood for.
    ///
    /// # Errors
    ///
    /// As [`lookup`](Self::lookup).
    pub async fn remove(&self, name: &[u8]) -> Result<Option<Target>, B::Error> {
        check_ordinary(name)?;
        let Some(found) = self.find(name).await? else { return Ok(None) };
        let leaf = self.format.leaf();
        match found.before {
            // The record before takes its bytes as room.
            Some((at, length)) => {
                let length = (length + found.length) as u16;
                let change = |bytes: &mut [u8]| bytes.copy_from_slice(&length.to_le_bytes());
                self.blocks.modify(found.place, leaf, at + 4..at + 6, change).await?;
            }
            None => self.blocks.modify(found.place, leaf, 0..4, |bytes| bytes.fill(0)).await?,
        }
        Ok(Some(found.target))
    }

    /// Lets a name that is there stand for something else, and returns what it stood for.
    ///
    /// # Errors
    ///
    /// As [`lookup`](Self::lookup).
    pub async fn replace(&self, name: &[u8], target: Target) -> Result<Option<Target>, B::Error> {
        check_ordinary(name)?;
        let Some(found) = self.find(name).await? else { return Ok(None) };
        let change = |bytes: &mut [u8]| {
            bytes[..4].copy_from_slice(&target.inode.to_le_bytes());
            bytes[7] = target.kind.map_or(0, |kind| kind.entry_code());
        };
        self.blocks.modify(found.place, self.format.leaf(), found.at..found.at + 8, change).await?;
        Ok(Some(found.target))
    }

    /// False: there was no room, and now there is a block more, or the directory is hashed.
    async fn insert_linear(&self, name: &[u8], target: Target) -> Result<bool, B::Error> {
        for block in 0..self.file.blocks() {
            let place = self.file.place(block).await?;
            if self.insert_in(place, block == 0, name, target).await? {
                return Ok(true);
            }
        }
        if self.format.may_index && self.file.blocks() == 1 {
            self.make_indexed().await?;
            return Ok(false);
        }
        let (_, place) = self.file.append(self.format.leaf()).await?;
        self.overwrite(place, self.format.leaf(), &pack(&[], self.format.sealed)).await?;
        Ok(false)
    }

    /// False: there was no room, and now there is more.
    async fn insert_indexed(&self, name: &[u8], target: Target) -> Result<bool, B::Error> {
        let hasher = self.hasher().await?;
        let path = self.probe(hasher.hash(name).major).await?;
        if self.insert_in(path.leaf, false, name, target).await? {
            return Ok(true);
        }
        let parent = path.last();
        if parent.node.count == parent.node.limit {
            self.grow_index(&path).await?;
        } else {
            self.split_leaf(&path, hasher).await?;
        }
        Ok(false)
    }

    /// Puts a name into a block if it has room.
    async fn insert_in(
        &self,
        place: u64,
        is_first: bool,
        name: &[u8],
        target: Target,
    ) -> Result<bool, B::Error> {
        let look = |records: &[Record<'_>]| {
            if records.iter().any(|record| record.is_live() && record.name == name) {
                return Err(FormatError::Invalid { what: "the name is there already" });
            }
            Ok(find_slot(records, name.len()))
        };
        let Some(slot) = self.records(place, is_first, look).await? else { return Ok(false) };
        let change = |bytes: &mut [u8]| slot.fill(bytes, target.inode, target.kind, name);
        self.blocks.modify(place, self.format.leaf(), slot.range(name.len()), change).await?;
        Ok(true)
    }

    /// Moves the names of the only block into a leaf, and makes the block the root of an index.
    async fn make_indexed(&self) -> Result<(), B::Error> {
        let [own, parent] = self.dots().await?;
        let (place, sealed) = (self.file.place(0).await?, self.format.sealed);
        let look = |records: &[Record<'_>]| {
            let names: Vec<_> = records.iter().skip(2).filter(|record| record.is_live()).copied().collect();
            Ok((pack(&names, sealed), records.iter().any(|record| record.kind.is_some())))
        };
        let (names, file_types) = self.records(place, true, look).await?;
        let (child, leaf) = self.file.append(self.format.leaf()).await?;
        self.overwrite(leaf, self.format.leaf(), &names).await?;
        let mut root = super::first_block(own, parent, file_types, sealed);
        make_root(&mut root[..], self.format.hasher.version.to_disk(), 0, child, sealed);
        self.file.set_indexed().await?;
        self.overwrite(place, self.format.node(), &root).await
    }

    /// Moves the upper half of a leaf's names, by hash, into a new leaf.
    async fn split_leaf(&self, path: &Path, hasher: NameHasher) -> Result<(), B::Error> {
        let sealed = self.format.sealed;
        let place = path.leaf;
        let look = |records: &[Record<'_>]| {
            let live = records.iter().filter(|record| record.is_live());
            let mut names: Vec<_> = live.map(|record| (hasher.hash(record.name).major, *record)).collect();
            names.sort_by_key(|&(hash, record)| (hash, record.at));
            let at = half(&names).ok_or_else(|| corrupt(place, "a full leaf without two names"))?;
            // The names of one hash may have to part: the lowest bit says so.
            let goes_on = u32::from(names[at - 1].0 == names[at].0);
            let records: Vec<Record<'_>> = names.iter().map(|&(_, record)| record).collect();
            Ok((pack(&records[..at], sealed), pack(&records[at..], sealed), names[at].0 | goes_on))
        };
        let (lower, upper, hash) = self.records(place, false, look).await?;
        let (child, leaf) = self.file.append(self.format.leaf()).await?;
        self.overwrite(leaf, self.format.leaf(), &upper).await?;
        self.insert_child(path.last(), hash, child).await?;
        self.overwrite(place, self.format.leaf(), &lower).await
    }

    /// Makes room in the index for one more leaf on `path`: a second level, or a second inner node.
    async fn grow_index(&self, path: &Path) -> Result<(), B::Error> {
        let kind = self.format.node();
        match path.steps.as_slice() {
            [root] => {
                let (node, _) = self.split_node(*root, 0).await?;
                let sealed = self.format.sealed;
                let version = self.hasher().await?.version.to_disk();
                let change = |bytes: &mut [u8]| make_root(bytes, version, 1, node, sealed);
                self.blocks.modify(root.place, kind, 0..BLOCK_BYTES, change).await
            }
            [root, inner] => {
                if root.node.count == root.node.limit {
                    return Err(full().into());
                }
                let kept = inner.node.count / 2;
                let (node, hash) = self.split_node(*inner, kept).await?;
                self.insert_child(*root, hash, node).await?;
                let count = (kept as u16).to_le_bytes();
                let change = |bytes: &mut [u8]| bytes.copy_from_slice(&count);
                self.blocks.modify(inner.place, kind, inner.node.count_range(), change).await
            }
            _ => Err(full().into()),
        }
    }

    /// Copies the entries of a node from `from` on into a new one. Returns its block and its lowest hash.
    async fn split_node(&self, step: IndexStep, from: usize) -> Result<(u32, u32), B::Error> {
        let (kind, sealed) = (self.format.node(), self.format.sealed);
        let look = |bytes: &[u8]| Ok((step.node.split_off(bytes, from, sealed), step.node.hash(bytes, from)));
        let (bytes, hash) = self.blocks.read(step.place, kind, look).await?;
        let (child, place) = self.file.append(kind).await?;
        self.overwrite(place, kind, &bytes).await?;
        Ok((child, hash))
    }

    async fn insert_child(&self, parent: IndexStep, hash: u32, child: u32) -> Result<(), B::Error> {
        let IndexStep { place, node, at } = parent;
        let change = |bytes: &mut [u8]| Node::insert(&node, bytes, at + 1, hash, child);
        self.blocks.modify(place, self.format.node(), node.insert_range(), change).await
    }
}

/// Where to part sorted names so that both halves have about as many bytes; both have at least one name.
fn half(names: &[(u32, Record<'_>)]) -> Option<usize> {
    let total: usize = names.iter().map(|(_, record)| record.used()).sum();
    let mut bytes = 0;
    let at = names.iter().position(|(_, record)| {
        bytes += record.used();
        bytes * 2 > total
    })?;
    (names.len() > 1).then(|| at.clamp(1, names.len() - 1))
}
