//! *Tree*: files and directories in memory, as a mount serves them and as a power cut leaves them.
//!
//! A clone shares what both have, so that thousands of states of one program fit into memory.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use weir_crash::mix;
use weir_format::FileType;
use weir_vfs::InodeNumber;

/// Bytes in a block: what is written back, or lost, as one.
pub const BLOCK_BYTES: usize = 4096;
const BLOCK: u64 = BLOCK_BYTES as u64;
/// The largest size of a file, as of ext4's.
pub const FILE_BYTES_MAX: u64 = 16 << 40;
/// The root directory.
pub const ROOT: InodeNumber = 1;

/// A name in a directory.
pub type Name = Vec<u8>;

/// A block of a file; what it is hashed to is computed once.
#[derive(Debug)]
struct Block {
    bytes: Box<[u8; BLOCK_BYTES]>,
    hash: OnceLock<u64>,
}

impl Block {
    fn zeros() -> Block {
        Block { bytes: Box::new([0; BLOCK_BYTES]), hash: OnceLock::new() }
    }

    fn hash(&self) -> u64 {
        *self.hash.get_or_init(|| hash_bytes(&self.bytes[..]))
    }
}

impl Clone for Block {
    /// A clone is made to be changed.
    fn clone(&self) -> Block {
        Block { bytes: self.bytes.clone(), hash: OnceLock::new() }
    }
}

/// Whether all bytes are zeros, by the comparison of memory that is fast in any build.
pub(crate) fn is_zeros(bytes: &[u8]) -> bool {
    const ZEROS: [u8; BLOCK_BYTES] = [0; BLOCK_BYTES];
    bytes.chunks(BLOCK_BYTES).all(|chunk| chunk == &ZEROS[..chunk.len()])
}

/// 0 for zeros, so that a hole is equal to a block of zeros.
fn hash_bytes(bytes: &[u8]) -> u64 {
    match is_zeros(bytes) {
        true => 0,
        false => crc_fast::checksum(crc_fast::CrcAlgorithm::Crc64Nvme, bytes).max(1),
    }
}

/// What a regular file holds.
#[derive(Clone, Debug, Default)]
pub struct FileContent {
    size: u64,
    /// Others are holes. What is behind the size is there for a size that grows later, and is no part of the file now.
    blocks: BTreeMap<u64, Arc<Block>>,
}

impl FileContent {
    /// Its size in bytes.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Blocks that it takes.
    #[must_use]
    pub fn blocks(&self) -> u64 {
        self.blocks.len() as u64
    }

    /// Writes, and leaves the size.
    pub fn write(&mut self, offset: u64, bytes: &[u8]) {
        let (mut at, mut left) = (offset, bytes);
        while !left.is_empty() {
            let within = (at % BLOCK) as usize;
            let (now, later) = left.split_at(left.len().min(BLOCK_BYTES - within));
            let block = self.blocks.entry(at / BLOCK).or_insert_with(|| Arc::new(Block::zeros()));
            let block = Arc::make_mut(block);
            block.hash = OnceLock::new();
            block.bytes[within..within + now.len()].copy_from_slice(now);
            (at, left) = (at + now.len() as u64, later);
        }
    }

    /// Makes a range zeros.
    pub fn zero(&mut self, offset: u64, length: u64) {
        let end = offset.saturating_add(length);
        let (first, last) = (offset / BLOCK, end.div_ceil(BLOCK));
        let touched: Vec<u64> = self.blocks.range(first..last.max(first)).map(|(at, _)| *at).collect();
        for block in touched {
            let (from, to) = (offset.max(block * BLOCK), end.min((block + 1) * BLOCK));
            if to - from == BLOCK {
                self.blocks.remove(&block);
            } else {
                self.write(from, &vec![0; (to - from) as usize]);
            }
        }
    }

    /// Sets the size; what is behind it is gone.
    pub fn set_size(&mut self, size: u64) {
        self.zero(size, u64::MAX - size);
        self.size = size;
    }

    /// Sets the size, as a write that makes the file longer does: what was written behind the old size is there now.
    pub fn grow(&mut self, size: u64) {
        self.size = size;
    }

    /// Reads from `offset` on: how many bytes.
    pub fn read(&self, offset: u64, into: &mut [u8]) -> usize {
        let length = self.size.saturating_sub(offset).min(into.len() as u64) as usize;
        let (mut at, mut left) = (offset, &mut into[..length]);
        while !left.is_empty() {
            let within = (at % BLOCK) as usize;
            let count = left.len().min(BLOCK_BYTES - within);
            let (now, later) = left.split_at_mut(count);
            match self.blocks.get(&(at / BLOCK)) {
                Some(block) => now.copy_from_slice(&block.bytes[within..within + count]),
                None => now.fill(0),
            }
            (at, left) = (at + count as u64, later);
        }
        length
    }

    /// The blocks that are no holes, up to the size: the offset and the bytes of each.
    pub fn data(&self) -> impl Iterator<Item = (u64, &[u8])> {
        self.blocks.range(..self.size.div_ceil(BLOCK)).map(|(at, block)| {
            let offset = at * BLOCK;
            (offset, &block.bytes[..(self.size - offset).min(BLOCK) as usize])
        })
    }

    /// The first byte at or behind `offset` that is in a block (`in_hole` false) or in none (`in_hole` true).
    #[must_use]
    pub fn seek(&self, offset: u64, in_hole: bool) -> Option<u64> {
        if offset >= self.size {
            return None;
        }
        let end = self.size.div_ceil(BLOCK);
        let mut blocks = offset / BLOCK..end;
        let found = match in_hole {
            true => blocks.find(|block| !self.blocks.contains_key(block)),
            // A hole may be large: it is not walked through.
            false => self.blocks.range(blocks).next().map(|(block, _)| *block),
        };
        let found = found.map(|block| (block * BLOCK).max(offset));
        found.or(in_hole.then_some(self.size))
    }

    fn hash(&self) -> u64 {
        let mut hash = mix(1, self.size);
        for (at, block) in self.blocks.range(..self.size.div_ceil(BLOCK)) {
            let inside = (self.size - at * BLOCK).min(BLOCK) as usize;
            let of_block =
                if inside < BLOCK_BYTES { hash_bytes(&block.bytes[..inside]) } else { block.hash() };
            if of_block != 0 {
                hash = mix(mix(hash, *at), of_block);
            }
        }
        hash
    }
}

/// What an inode holds.
#[derive(Clone, Debug)]
pub enum Content {
    /// A regular file.
    File(FileContent),
    /// A directory.
    Directory(BTreeMap<Name, InodeNumber>),
    /// A symbolic link to a path.
    Symlink(Vec<u8>),
    /// A device, a pipe or a socket, with the numbers of a device.
    Special(FileType, (u32, u32)),
}

/// An inode.
#[derive(Clone, Debug)]
pub struct Node {
    /// What it holds.
    pub content: Content,
    /// The twelve bits of its permissions.
    pub permissions: u16,
    /// Its owner.
    pub uid: u32,
    /// Its group.
    pub gid: u32,
    /// Its extended attributes.
    pub extended: BTreeMap<Name, Vec<u8>>,
}

impl Node {
    /// An inode without extended attributes.
    #[must_use]
    pub fn new(content: Content, permissions: u16, (uid, gid): (u32, u32)) -> Node {
        Node { content, permissions, uid, gid, extended: BTreeMap::new() }
    }

    /// Its type.
    #[must_use]
    pub fn kind(&self) -> FileType {
        match &self.content {
            Content::File(_) => FileType::Regular,
            Content::Directory(_) => FileType::Directory,
            Content::Symlink(_) => FileType::Symlink,
            Content::Special(kind, _) => *kind,
        }
    }

    /// Its size in bytes, as `stat` tells it.
    #[must_use]
    pub fn size(&self) -> u64 {
        match &self.content {
            Content::File(file) => file.size(),
            Content::Symlink(target) => target.len() as u64,
            Content::Directory(_) | Content::Special(..) => 0,
        }
    }

    /// Its file, if it is one.
    pub fn file_mut(&mut self) -> Option<&mut FileContent> {
        match &mut self.content {
            Content::File(file) => Some(file),
            _ => None,
        }
    }

    /// Stands for its attributes and its content; of a directory, for its names, and not for what is behind them.
    fn hash(&self) -> u64 {
        let mut hash = mix(mix(u64::from(self.permissions), self.uid.into()), self.gid.into());
        for (name, value) in &self.extended {
            hash = mix(mix(hash, hash_bytes(name)), hash_bytes(value));
        }
        match &self.content {
            Content::File(file) => mix(hash, file.hash()),
            Content::Symlink(target) => mix(mix(hash, 3), hash_bytes(target)),
            Content::Special(kind, (major, minor)) => {
                mix(mix(hash, u64::from(kind.entry_code())), u64::from(*major) << 32 | u64::from(*minor))
            }
            Content::Directory(names) => {
                let hash = mix(mix(hash, 4), names.len() as u64);
                names.keys().fold(hash, |hash, name| mix(hash, hash_bytes(name)))
            }
        }
    }

    /// Its names, if it is a directory.
    #[must_use]
    pub fn names(&self) -> Option<&BTreeMap<Name, InodeNumber>> {
        match &self.content {
            Content::Directory(names) => Some(names),
            _ => None,
        }
    }
}

/// Files and directories. An inode may have no name.
#[derive(Clone, Debug)]
pub struct Tree {
    nodes: BTreeMap<InodeNumber, Arc<Node>>,
}

impl Tree {
    /// An empty directory of this owner and group.
    #[must_use]
    pub fn new(owner: (u32, u32)) -> Tree {
        let root = Node::new(Content::Directory(BTreeMap::new()), 0o755, owner);
        Tree { nodes: BTreeMap::from([(ROOT, Arc::new(root))]) }
    }

    /// An inode.
    #[must_use]
    pub fn node(&self, inode: InodeNumber) -> Option<&Node> {
        self.nodes.get(&inode).map(|node| &**node)
    }

    /// An inode, to be changed.
    pub fn node_mut(&mut self, inode: InodeNumber) -> Option<&mut Node> {
        self.nodes.get_mut(&inode).map(Arc::make_mut)
    }

    /// Its inodes.
    pub fn inodes(&self) -> impl Iterator<Item = InodeNumber> {
        self.nodes.keys().copied()
    }

    /// Puts an inode in, without a name.
    pub fn insert(&mut self, inode: InodeNumber, node: Node) {
        self.nodes.insert(inode, Arc::new(node));
    }

    /// Takes an inode out.
    pub fn remove(&mut self, inode: InodeNumber) {
        self.nodes.remove(&inode);
    }

    /// What a name in a directory stands for.
    #[must_use]
    pub fn lookup(&self, directory: InodeNumber, name: &[u8]) -> Option<InodeNumber> {
        self.node(directory)?.names()?.get(name).copied()
    }

    /// Has a name in a directory stand for an inode, or for nothing.
    pub fn set_name(&mut self, directory: InodeNumber, name: &[u8], inode: Option<InodeNumber>) {
        let Some(Content::Directory(names)) = self.node_mut(directory).map(|node| &mut node.content) else {
            return;
        };
        match inode {
            Some(inode) => drop(names.insert(name.to_vec(), inode)),
            None => drop(names.remove(name)),
        }
    }

    /// The same tree with every file empty.
    #[must_use]
    pub fn with_empty_files(&self) -> Tree {
        let mut tree = self.clone();
        for inode in self.inodes() {
            if let Some(file) = tree.node_mut(inode).and_then(Node::file_mut) {
                file.set_size(0);
            }
        }
        tree
    }

    /// Stands for all that can be reached from the root: names, contents and attributes. Which names share a file counts, too.
    #[must_use]
    pub fn hash(&self) -> u64 {
        // No recursion: directories may be within each other without a limit.
        let (mut seen, mut left, mut hash) = (BTreeMap::new(), vec![ROOT], 0);
        while let Some(inode) = left.pop() {
            let nth = seen.len() as u64;
            let of_node = match (self.node(inode), seen.get(&inode)) {
                (None, _) => 0,
                (_, Some(first)) => mix(2, *first),
                (Some(node), None) => {
                    seen.insert(inode, nth);
                    left.extend(node.names().into_iter().flat_map(BTreeMap::values).rev());
                    node.hash()
                }
            };
            hash = mix(hash, of_node);
        }
        hash
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_reads_as_it_was_written_and_cut() {
        let mut file = FileContent::default();
        file.write(4090, b"0123456789");
        assert_eq!(file.read(0, &mut [0; 9]), 0, "the size is what counts");
        file.grow(4100);
        let mut read = [7; 12];
        assert_eq!((file.read(4088, &mut read), &read), (12, b"\0\x000123456789"));
        assert_eq!((file.seek(0, false), file.seek(0, true)), (Some(0), Some(4100)));
        file.set_size(4092);
        file.grow(4100);
        assert_eq!((file.read(4090, &mut read[..10]), &read[..10]), (10, &b"01\0\0\0\0\0\0\0\0"[..]));
    }

    #[test]
    fn equal_trees_have_equal_hashes_whatever_their_inodes_and_holes_are() {
        let tree = |inode: InodeNumber, byte: u8, zeros: &[u8]| {
            let mut tree = Tree::new((0, 0));
            let mut file = FileContent::default();
            file.write(0, zeros);
            file.write(8192, &[byte; 100]);
            file.grow(8292);
            tree.insert(inode, Node::new(Content::File(file), 0o644, (0, 0)));
            tree.set_name(ROOT, b"a", Some(inode));
            tree
        };
        assert_eq!(tree(7, 1, b"").hash(), tree(9, 1, &[0; 5000]).hash());
        assert_ne!(tree(7, 1, b"").hash(), tree(7, 2, b"").hash());
        let mut linked = tree(7, 1, b"");
        linked.set_name(ROOT, b"b", Some(7));
        assert_ne!(linked.hash(), tree(7, 1, b"").hash());
    }

    #[test]
    fn a_tree_of_any_depth_has_a_hash() {
        let deep = |depth: InodeNumber| {
            let mut tree = Tree::new((0, 0));
            for inode in ROOT..ROOT + depth {
                tree.insert(inode + 1, Node::new(Content::Directory(BTreeMap::new()), 0o755, (0, 0)));
                tree.set_name(inode, b"d", Some(inode + 1));
            }
            tree.hash()
        };
        assert_ne!(deep(60_000), deep(59_999));
    }
}
