//! Extents: which blocks of the disk hold which blocks of a file.
//!
//! An *extent* maps a run of blocks of a file to a run of blocks of the disk. It is *written*, or
//! *unwritten*: allocated, and reading as zeros. The extents of a file are the leaves of a tree whose root is
//! in the inode's block area; a root has room for four entries, a node of its own block for 340. An inner
//! entry names the first file block that is mapped below it.

mod change;
pub(crate) mod node;
mod tree;

pub use tree::ExtentTree;

use weir_format::{BLOCK_BYTES, FormatError, Place};

use crate::inode::BLOCK_AREA_BYTES;

/// Most blocks of a written extent: a larger number on the disk says unwritten.
const WRITTEN_MAX: u32 = 1 << 15;
/// Most blocks of an unwritten extent.
const UNWRITTEN_MAX: u32 = WRITTEN_MAX - 1;
/// Bytes of an entry.
const ENTRY_BYTES: usize = 12;
/// Bits of a block number on the disk.
const PHYSICAL_BITS: u32 = 48;

/// A run of blocks of a file, and the run of blocks of the disk that holds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// The first block of the file.
    pub logical: u32,
    /// Blocks: 1 to 32,768, and at most 32,767 if unwritten.
    pub length: u32,
    /// The first block of the disk.
    pub physical: u64,
    /// Whether the blocks hold data; else they read as zeros.
    pub written: bool,
}

impl Extent {
    /// The file block behind the last; at most 2^32 - 1 in a valid extent.
    pub fn end(&self) -> u32 {
        self.logical.saturating_add(self.length)
    }

    /// The part of the extent from file block `from` up to `to`, which must overlap it.
    fn part(&self, from: u32, to: u32) -> Self {
        let start = self.logical.max(from);
        let skipped = start - self.logical;
        let length = self.end().min(to) - start;
        Self { logical: start, length, physical: self.physical + u64::from(skipped), ..*self }
    }

    /// Most blocks that an extent in this state can have.
    fn length_max(&self) -> u32 {
        if self.written { WRITTEN_MAX } else { UNWRITTEN_MAX }
    }

    /// Whether `next` goes on where this one ends, in the file, on the disk, and in its state.
    fn continues(&self, next: &Self) -> bool {
        self.end() == next.logical
            && self.physical + u64::from(self.length) == next.physical
            && self.written == next.written
    }

    /// Whether it can be stored, in a filesystem of `limit` blocks.
    fn check(&self, limit: u64) -> Result<(), &'static str> {
        if self.length == 0 || self.length > self.length_max() {
            return Err("length of an extent");
        }
        if u64::from(self.logical) + u64::from(self.length) > u64::from(u32::MAX) {
            return Err("an extent beyond the largest file");
        }
        // Block 0 is the superblock's, so it is never a file's.
        let end = self.physical.checked_add(u64::from(self.length));
        if self.physical == 0 || end.is_none_or(|end| end > limit.min(1 << PHYSICAL_BITS)) {
            return Err("an extent beyond the filesystem");
        }
        Ok(())
    }

    fn decode(entry: &[u8; ENTRY_BYTES]) -> Self {
        let [a, b, c, d, l, m, h, i, w, x, y, z] = *entry;
        let stored = u32::from(u16::from_le_bytes([l, m]));
        let written = stored <= WRITTEN_MAX;
        Self {
            logical: u32::from_le_bytes([a, b, c, d]),
            length: if written { stored } else { stored - WRITTEN_MAX },
            physical: u64::from_le_bytes([w, x, y, z, h, i, 0, 0]),
            written,
        }
    }

    fn encode(&self) -> [u8; ENTRY_BYTES] {
        let stored = if self.written { self.length } else { self.length + WRITTEN_MAX };
        let mut entry = [0; ENTRY_BYTES];
        entry[..4].copy_from_slice(&self.logical.to_le_bytes());
        entry[4..6].copy_from_slice(&(stored as u16).to_le_bytes());
        entry[6..8].copy_from_slice(&((self.physical >> 32) as u16).to_le_bytes());
        entry[8..].copy_from_slice(&(self.physical as u32).to_le_bytes());
        entry
    }
}

/// Joins neighbours that continue each other, and cuts what is longer than an extent can be. The extents
/// are in order, and do not overlap.
fn join(extents: impl IntoIterator<Item = Extent>) -> Vec<Extent> {
    let mut joined: Vec<Extent> = Vec::new();
    for extent in extents {
        let mut rest = Some(extent);
        if let Some(last) = joined.last_mut().filter(|last| last.continues(&extent)) {
            let taken = extent.length.min(last.length_max() - last.length);
            // Filling up a full extent from the next one would only move blocks between the two.
            if taken == extent.length {
                last.length += taken;
                rest = None;
            }
        }
        while let Some(part) = rest {
            let cut = part.logical + part.length.min(part.length_max());
            joined.push(part.part(part.logical, cut));
            rest = (cut < part.end()).then(|| part.part(cut, part.end()));
        }
    }
    joined
}

/// Checks a node of its own block, apart from its checksum: that its entries are in order, do not overlap,
/// and name blocks of a filesystem of `limit` blocks. Implementors of [`Blocks`](crate::Blocks) call it once,
/// when they read the block.
///
/// # Errors
///
/// [`FormatError::Corrupt`], with what is wrong.
pub fn check_extents(block: u64, bytes: &[u8], limit: u64) -> Result<(), FormatError> {
    node::Node::read(bytes, Place::Block(block))?.check(limit)
}

/// Number of leaves of a new tree with so many extents, without its root.
///
/// # Errors
///
/// [`FormatError::Full`] for more than 1,360 extents, which four leaves hold.
pub(crate) fn leaves_of(extents: usize) -> Result<usize, FormatError> {
    let leaves = if extents <= node::ROOT_ENTRIES { 0 } else { extents.div_ceil(node::BLOCK_ENTRIES) };
    match leaves <= node::ROOT_ENTRIES {
        true => Ok(leaves),
        false => Err(FormatError::Full { what: "more extents than a new file has room for" }),
    }
}

/// The block area of a new inode with these extents, and the leaves below it, which lie in `blocks`: as many as
/// [`leaves_of`] says. Their checksums are not stored.
pub(crate) fn new_tree(
    extents: &[Extent],
    blocks: &[u64],
) -> ([u8; BLOCK_AREA_BYTES], Vec<(u64, [u8; BLOCK_BYTES])>) {
    let mut root = node::empty_root();
    if blocks.is_empty() {
        node::set_count(&mut root, extents.len());
        for (at, extent) in extents.iter().enumerate() {
            root[node::entry(at)].copy_from_slice(&extent.encode());
        }
        return (root, Vec::new());
    }
    let mut leaves = Vec::new();
    for (extents, block) in extents.chunks(node::BLOCK_ENTRIES).zip(blocks) {
        let mut leaf = [0; BLOCK_BYTES];
        node::write_header(&mut leaf, extents.len(), node::BLOCK_ENTRIES, 0);
        for (at, extent) in extents.iter().enumerate() {
            leaf[node::entry(at)].copy_from_slice(&extent.encode());
        }
        let key = extents.first().map_or(0, |extent| extent.logical);
        root[node::entry(leaves.len())].copy_from_slice(&node::encode_index(key, *block));
        leaves.push((*block, leaf));
    }
    node::write_header(&mut root, leaves.len(), node::ROOT_ENTRIES, 1);
    (root, leaves)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extents_are_stored_and_found_again() {
        for (length, written) in [(1, true), (WRITTEN_MAX, true), (1, false), (UNWRITTEN_MAX, false)] {
            let extent = Extent { logical: 0x1234_5678, length, physical: 0xABCD_1234_5678, written };
            assert_eq!(Extent::decode(&extent.encode()), extent);
            extent.check(u64::MAX).expect("valid");
        }
    }

    #[test]
    fn what_cannot_be_stored_is_refused() {
        let fine = Extent { logical: 0, length: 8, physical: 100, written: true };
        fine.check(108).expect("valid");
        let wrong = [
            Extent { length: 0, ..fine },
            Extent { length: WRITTEN_MAX + 1, ..fine },
            Extent { length: WRITTEN_MAX, written: false, physical: 1, ..fine },
            Extent { logical: u32::MAX - 7, ..fine },
            Extent { physical: 0, ..fine },
            Extent { physical: 101, ..fine },
            Extent { physical: u64::MAX, ..fine },
        ];
        for extent in wrong {
            extent.check(108).expect_err("invalid");
        }
    }

    #[test]
    fn neighbours_are_joined_up_to_the_longest() {
        let run = |logical, length, physical, written| Extent { logical, length, physical, written };
        let joined =
            join([run(0, 2, 10, true), run(2, 3, 12, true), run(5, 1, 99, true), run(6, 1, 100, false)]);
        assert_eq!(joined, [run(0, 5, 10, true), run(5, 1, 99, true), run(6, 1, 100, false)]);
        let long = join([run(0, WRITTEN_MAX, 10, false)]);
        assert_eq!(
            long,
            [run(0, UNWRITTEN_MAX, 10, false), run(UNWRITTEN_MAX, 1, 10 + u64::from(UNWRITTEN_MAX), false)]
        );
        let full = [run(0, WRITTEN_MAX, 10, true), run(WRITTEN_MAX, 1, 10 + u64::from(WRITTEN_MAX), true)];
        assert_eq!(join(full), full);
    }
}
