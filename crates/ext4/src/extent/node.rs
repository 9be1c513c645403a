//! One node of an extent tree, as bytes: a header of 12 bytes, and entries of 12 bytes in the order of their
//! file blocks. Leaves have extents, inner nodes have the numbers of nodes below.

use std::ops::Range;

use weir_format::{BLOCK_BYTES, FormatError, Place, Structure};

use super::{ENTRY_BYTES, Extent};
use crate::inode::BLOCK_AREA_BYTES;

/// Entries in a root.
pub(crate) const ROOT_ENTRIES: usize = (BLOCK_AREA_BYTES - HEADER_BYTES) / ENTRY_BYTES;
/// Entries in a node with a block of its own; its checksum follows them.
pub(crate) const BLOCK_ENTRIES: usize = (BLOCK_BYTES - HEADER_BYTES - 4) / ENTRY_BYTES;
/// Levels of inner nodes: no file needs more.
pub(crate) const DEPTH_MAX: u16 = 5;
/// Where the header keeps the number of entries.
pub(crate) const COUNT: Range<usize> = 2..4;
const HEADER_BYTES: usize = 12;
const MAGIC: u16 = 0xF30A;

/// The bytes of entry `at`.
pub(crate) fn entry(at: usize) -> Range<usize> {
    let start = HEADER_BYTES + at * ENTRY_BYTES;
    start..start + ENTRY_BYTES
}

/// The bytes of an entry that say its first file block.
pub(crate) fn key(at: usize) -> Range<usize> {
    let start = entry(at).start;
    start..start + 4
}

/// All bytes up to the end of `count` entries.
pub(crate) fn used(count: usize) -> Range<usize> {
    0..entry(count).start
}

/// A root without entries.
pub(crate) fn empty_root() -> [u8; BLOCK_AREA_BYTES] {
    let mut root = [0; BLOCK_AREA_BYTES];
    write_header(&mut root, 0, ROOT_ENTRIES, 0);
    root
}

/// Writes a header; its generation, which no program uses, is zero.
pub(crate) fn write_header(bytes: &mut [u8], count: usize, max: usize, depth: u16) {
    bytes[..HEADER_BYTES].fill(0);
    bytes[..2].copy_from_slice(&MAGIC.to_le_bytes());
    set_count(bytes, count);
    bytes[4..6].copy_from_slice(&(max as u16).to_le_bytes());
    bytes[6..8].copy_from_slice(&depth.to_le_bytes());
}

/// Writes the number of entries.
pub(crate) fn set_count(bytes: &mut [u8], count: usize) {
    bytes[COUNT].copy_from_slice(&(count as u16).to_le_bytes());
}

/// An inner entry: from file block `key` on, look in block `child`.
pub(crate) fn encode_index(key: u32, child: u64) -> [u8; ENTRY_BYTES] {
    let mut entry = [0; ENTRY_BYTES];
    entry[..4].copy_from_slice(&key.to_le_bytes());
    entry[4..8].copy_from_slice(&(child as u32).to_le_bytes());
    entry[8..10].copy_from_slice(&((child >> 32) as u16).to_le_bytes());
    entry
}

/// A node whose header is sound: no entry that it claims lies outside its bytes.
#[derive(Clone, Copy)]
pub(crate) struct Node<'a> {
    bytes: &'a [u8],
    place: Place,
    /// Levels below; 0 for a leaf.
    pub depth: u16,
    /// Entries in use.
    pub count: usize,
    /// Entries that have room.
    pub max: usize,
}

impl<'a> Node<'a> {
    /// The node in `bytes`: 60 of an inode, or a block.
    pub fn read(bytes: &'a [u8], place: Place) -> Result<Self, FormatError> {
        let corrupt = |what| FormatError::corrupt(Structure::ExtentNode, place, what);
        if bytes.len() < BLOCK_AREA_BYTES {
            return Err(corrupt("too short"));
        }
        let number = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
        let (count, max, depth) = (usize::from(number(2)), usize::from(number(4)), number(6));
        let room = if bytes.len() == BLOCK_AREA_BYTES { ROOT_ENTRIES } else { BLOCK_ENTRIES };
        if number(0) != MAGIC {
            return Err(corrupt("magic number"));
        }
        if max == 0 || max > room || count > max {
            return Err(corrupt("number of entries"));
        }
        if depth > DEPTH_MAX {
            return Err(corrupt("depth"));
        }
        // Only an empty file has an empty node: its root.
        if count == 0 && (depth > 0 || room == BLOCK_ENTRIES) {
            return Err(corrupt("no entries"));
        }
        Ok(Self { bytes, place, depth, count, max })
    }

    /// Checks that the entries are in order, do not overlap, and name blocks of a filesystem of `limit`
    /// blocks.
    pub fn check(&self, limit: u64) -> Result<(), FormatError> {
        let mut free_from = 0;
        for at in 0..self.count {
            if at > 0 && self.key(at) < free_from {
                return Err(self.corrupt("order of the entries"));
            }
            if self.depth == 0 {
                let extent = self.extent(at);
                extent.check(limit).map_err(|what| self.corrupt(what))?;
                free_from = extent.end();
            } else {
                if !(1..limit).contains(&self.child(at)) {
                    return Err(self.corrupt("a node beyond the filesystem"));
                }
                free_from = self.key(at).saturating_add(1);
            }
        }
        Ok(())
    }

    /// The first file block of entry `at`.
    pub fn key(&self, at: usize) -> u32 {
        let [a, b, c, d, ..] = self.entry(at);
        u32::from_le_bytes([a, b, c, d])
    }

    /// Extent `at` of a leaf.
    pub fn extent(&self, at: usize) -> Extent {
        Extent::decode(&self.entry(at))
    }

    /// The node below entry `at` of an inner node.
    pub fn child(&self, at: usize) -> u64 {
        let [_, _, _, _, a, b, c, d, e, f, ..] = self.entry(at);
        u64::from_le_bytes([a, b, c, d, e, f, 0, 0])
    }

    /// The last entry that starts at or before file block `logical`.
    pub fn find(&self, logical: u32) -> Option<usize> {
        let (mut low, mut high) = (0, self.count);
        while low < high {
            let middle = low.midpoint(high);
            if self.key(middle) <= logical { low = middle + 1 } else { high = middle }
        }
        low.checked_sub(1)
    }

    /// The bytes of entries `range`.
    pub fn entries(&self, range: Range<usize>) -> &'a [u8] {
        &self.bytes[entry(range.start).start..entry(range.end).start]
    }

    /// The error that says what is wrong here.
    pub fn corrupt(&self, what: &'static str) -> FormatError {
        FormatError::corrupt(Structure::ExtentNode, self.place, what)
    }

    fn entry(&self, at: usize) -> [u8; ENTRY_BYTES] {
        let mut bytes = [0; ENTRY_BYTES];
        bytes.copy_from_slice(&self.bytes[entry(at)]);
        bytes
    }
}
