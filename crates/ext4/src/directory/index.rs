//! The index of a hashed directory: a tree of one or two levels in the directory's own blocks.
//!
//! Block 0 is the root: the records "." and "..", of which the second hides the rest from readers that know
//! no index; eight bytes on the tree; then index entries. An inner node is one free record that hides index
//! entries. The first index entry has no hash, which counts as zero; in its place are the limit and the
//! count of entries. A tail after the limit holds the checksum.
//!
//! An index entry is the lowest hash of its child and the child's block in the directory. If the lowest bit
//! of the hash is set, names with that hash begin in the leaf before.

use weir_format::{BLOCK_BYTES, FormatError};

const ENTRY: usize = 8;
const TAIL: usize = 8;
const ROOT_FIRST: usize = 32;
const NODE_FIRST: usize = 8;
const ROOT_VERSION: usize = 28;
const ROOT_INFO_LENGTH: usize = 29;
const ROOT_LEVELS: usize = 30;
const INFO_BYTES: u8 = 8;
/// The high bits of a child are reserved.
const CHILD_MASK: u32 = 0x0FFF_FFFF;

/// What the root says of the tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Root {
    /// The number of the hash function on the disk.
    pub version: u8,
    /// Levels of inner nodes below the root: 0 or 1.
    pub levels: u8,
    /// Its index entries.
    pub node: Node,
}

/// Where a node's index entries are, and how many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Node {
    first: usize,
    pub count: usize,
    pub limit: usize,
}

impl Root {
    pub(crate) fn read(bytes: &[u8], sealed: bool) -> Result<Self, &'static str> {
        if bytes[ROOT_INFO_LENGTH] != INFO_BYTES || bytes[24..28] != [0; 4] {
            return Err("the root's information");
        }
        if bytes[ROOT_LEVELS] > 1 {
            return Err("more than two levels, which needs the feature large_dir");
        }
        let node = Node::read(bytes, ROOT_FIRST, sealed)?;
        Ok(Self { version: bytes[ROOT_VERSION], levels: bytes[ROOT_LEVELS], node })
    }
}

impl Node {
    pub(crate) fn read_inner(bytes: &[u8], sealed: bool) -> Result<Self, &'static str> {
        Self::read(bytes, NODE_FIRST, sealed)
    }

    fn read(bytes: &[u8], first: usize, sealed: bool) -> Result<Self, &'static str> {
        let number = |at: usize| usize::from(u16::from_le_bytes([bytes[at], bytes[at + 1]]));
        let node = Self { first, limit: number(first), count: number(first + 2) };
        if node.limit != limit(first, sealed) {
            return Err("the limit of index entries");
        }
        if node.count == 0 || node.count > node.limit {
            return Err("the count of index entries");
        }
        Ok(node)
    }

    fn u32_at(bytes: &[u8], at: usize) -> u32 {
        u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
    }

    /// The lowest hash of child `index`, with the lowest bit as it is on the disk.
    pub(crate) fn hash(&self, bytes: &[u8], index: usize) -> u32 {
        if index == 0 { 0 } else { Self::u32_at(bytes, self.first + ENTRY * index) }
    }

    /// The block in the directory of child `index`.
    pub(crate) fn child(&self, bytes: &[u8], index: usize) -> u32 {
        Self::u32_at(bytes, self.first + ENTRY * index + 4) & CHILD_MASK
    }

    /// The child in which a search for `hash` goes on: the last one that does not begin beyond it.
    pub(crate) fn search(&self, bytes: &[u8], hash: u32) -> usize {
        let (mut low, mut high) = (1, self.count);
        while low < high {
            let middle = low.midpoint(high);
            if self.hash(bytes, middle) <= hash { low = middle + 1 } else { high = middle }
        }
        low - 1
    }

    /// The bytes that inserting an entry changes.
    pub(super) fn insert_range(&self) -> std::ops::Range<usize> {
        self.first..self.first + ENTRY * (self.count + 1)
    }

    /// Inserts an entry before entry `index` (at least 1); `bytes` are those of
    /// [`insert_range`](Self::insert_range).
    pub(super) fn insert(&self, bytes: &mut [u8], index: usize, hash: u32, child: u32) {
        let at = ENTRY * index;
        bytes.copy_within(at..ENTRY * self.count, at + ENTRY);
        bytes[at..at + 4].copy_from_slice(&hash.to_le_bytes());
        bytes[at + 4..at + 8].copy_from_slice(&child.to_le_bytes());
        bytes[2..4].copy_from_slice(&(self.count as u16 + 1).to_le_bytes());
    }

    /// The bytes that hold the count.
    pub(super) fn count_range(&self) -> std::ops::Range<usize> {
        self.first + 2..self.first + 4
    }

    /// An inner node with the entries from `from` on, not yet sealed with its checksum.
    pub(super) fn split_off(&self, bytes: &[u8], from: usize, sealed: bool) -> Box<[u8; BLOCK_BYTES]> {
        let mut block = Box::new([0; BLOCK_BYTES]);
        block[4..6].copy_from_slice(&(BLOCK_BYTES as u16).to_le_bytes());
        let moved = &bytes[self.first + ENTRY * from..self.first + ENTRY * self.count];
        block[NODE_FIRST..NODE_FIRST + moved.len()].copy_from_slice(moved);
        put_counts(&mut block[..], NODE_FIRST, self.count - from, sealed);
        block
    }
}

/// Turns the bytes of a first block with "." and ".." into a root with one child.
pub(super) fn make_root(block: &mut [u8], version: u8, levels: u8, child: u32, sealed: bool) {
    let hidden = (BLOCK_BYTES - super::entry::RECORD_MIN) as u16;
    block[16..18].copy_from_slice(&hidden.to_le_bytes());
    block[24..].fill(0);
    block[ROOT_VERSION] = version;
    block[ROOT_INFO_LENGTH] = INFO_BYTES;
    block[ROOT_LEVELS] = levels;
    block[ROOT_FIRST + 4..ROOT_FIRST + 8].copy_from_slice(&child.to_le_bytes());
    put_counts(block, ROOT_FIRST, 1, sealed);
}

fn put_counts(block: &mut [u8], first: usize, count: usize, sealed: bool) {
    block[first..first + 2].copy_from_slice(&(limit(first, sealed) as u16).to_le_bytes());
    block[first + 2..first + 4].copy_from_slice(&(count as u16).to_le_bytes());
}

fn limit(first: usize, sealed: bool) -> usize {
    (BLOCK_BYTES - first - if sealed { TAIL } else { 0 }) / ENTRY
}

/// The error of an index that can take no more names.
pub(super) fn full() -> FormatError {
    FormatError::Full { what: "the directory's index has all the leaves that two levels reach" }
}
