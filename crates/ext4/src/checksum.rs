//! CRC-32C as ext4 uses it: without the final inversion, and started with a seed that names the
//! filesystem, so that a block of another one does not pass.
//!
//! Blocks that carry one checksum for all their bytes are sealed and verified here. Structures that share a
//! block (descriptors, inodes) seal themselves, and a bitmap's checksum is kept in its descriptor.

use std::ops::Range;

use crc_fast::{CrcAlgorithm, Digest};
use weir_format::{BLOCK_BYTES, FormatError, Place, Structure};

use crate::blocks::Kind;

/// The seed of a checksum that belongs to no filesystem: the superblock's own.
const NO_SEED: u32 = !0;
/// Where the superblock keeps its checksum, which covers what is before it.
const SUPERBLOCK_SUM: usize = 0x3FC;
/// Four bytes of a superblock that no program reads: the end of the path of the last mount, which ends with a zero byte
/// before, but for one of 60 bytes or more.
const SUM_KEEPER: usize = 0xC4;
/// The block of the primary superblock leaves this many bytes to boot loaders.
const BOOT_BYTES: usize = 1024;
/// The fake directory entry at the end of a directory block that holds its checksum.
const DIRECTORY_TAIL: [u8; 8] = [0, 0, 0, 0, 12, 0, 0, 0xDE];
/// The end of a block of the orphan file: [`ORPHAN_MAGIC`], and the checksum.
pub(crate) const ORPHAN_TAIL_BYTES: usize = 8;
pub(crate) const ORPHAN_MAGIC: u32 = 0x0B10_CA04;
/// Where the header of an attribute block keeps its checksum.
const ATTRIBUTES_SUM: usize = 16;

/// The CRC-32C of `parts` one after the other, from the register value `seed`, not inverted at the end.
pub(crate) fn crc32c(seed: u32, parts: &[&[u8]]) -> u32 {
    let mut digest = Digest::new_with_init_state(CrcAlgorithm::Crc32Iscsi, u64::from(seed));
    for part in parts {
        digest.update(part);
    }
    !(digest.finalize() as u32)
}

/// A checksum that tells two blocks apart that both hold a CRC-32C of themselves. [`crc32c`] cannot: continued over its own
/// value, a CRC comes to a number that does not depend on what was before. So all states of a block of an extent tree have one
/// CRC-32C, and so have all states of the superblock. A CRC with another polynomial tells them apart, and the two together
/// also tell blocks apart that end in either.
pub(crate) fn crc_of_sealed(seed: u32, parts: &[&[u8]]) -> u32 {
    let mut digest = Digest::new(CrcAlgorithm::Crc64Nvme);
    for part in parts {
        digest.update(part);
    }
    crc32c(seed, parts) ^ digest.finalize() as u32
}

/// How the structures of one filesystem are sealed: its seed, or not at all without `metadata_csum`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Checksums {
    seed: Option<u32>,
}

impl Checksums {
    /// A filesystem with `metadata_csum`, whose seed derives from its UUID.
    pub fn of_uuid(uuid: &[u8; 16]) -> Self {
        Self { seed: Some(crc32c(NO_SEED, &[uuid])) }
    }

    /// A filesystem with `metadata_csum_seed`, whose seed is stored so that the UUID may change.
    pub fn of_seed(seed: u32) -> Self {
        Self { seed: Some(seed) }
    }

    /// A filesystem without checksums: nothing is sealed, everything verifies.
    pub fn none() -> Self {
        Self { seed: None }
    }

    /// The seed, if there are checksums.
    pub fn seed(&self) -> Option<u32> {
        self.seed
    }

    /// The seed of all that belongs to one inode.
    pub fn inode_seed(&self, inode: u32, generation: u32) -> Option<u32> {
        self.seed.map(|seed| crc32c(seed, &[&inode.to_le_bytes(), &generation.to_le_bytes()]))
    }

    /// The checksum of a bitmap, of which `used` bytes stand for something; its descriptor keeps it.
    pub fn bitmap(&self, used: &[u8]) -> Option<u32> {
        self.seed.map(|seed| crc32c(seed, &[used]))
    }

    /// Stores the checksum of a block of 4,096 bytes in its place: the bytes that this may have changed.
    ///
    /// # Errors
    ///
    /// [`FormatError::Corrupt`] where the block has no valid place for it.
    pub fn update_checksum(
        &self,
        kind: Kind,
        block: u64,
        bytes: &mut [u8],
    ) -> Result<Range<usize>, FormatError> {
        let Some((at, sum)) = self.sum(kind, block, bytes)? else { return Ok(0..0) };
        if kind == Kind::Superblock {
            let start = at - SUPERBLOCK_SUM;
            keep_sum(&mut bytes[start..at + 4]);
            return Ok(start + SUM_KEEPER..start + SUM_KEEPER + 4);
        }
        bytes[at..at + 4].copy_from_slice(&sum.to_le_bytes());
        Ok(at..at + 4)
    }

    /// Compares the checksum of a block of 4,096 bytes with the stored one.
    ///
    /// # Errors
    ///
    /// [`FormatError::Checksum`] if they differ, [`FormatError::Corrupt`] where the block has no valid place
    /// for one.
    pub fn verify(&self, kind: Kind, block: u64, bytes: &[u8]) -> Result<(), FormatError> {
        match self.sum(kind, block, bytes)? {
            Some((at, sum)) if bytes[at..at + 4] != sum.to_le_bytes() => {
                Err(FormatError::Checksum { structure: structure_of(kind), place: Place::Block(block) })
            }
            _ => Ok(()),
        }
    }

    /// Where the checksum of a block is, and what it should be.
    fn sum(&self, kind: Kind, block: u64, bytes: &[u8]) -> Result<Option<(usize, u32)>, FormatError> {
        let corrupt = |what| FormatError::corrupt(structure_of(kind), Place::Block(block), what);
        if bytes.len() != BLOCK_BYTES {
            return Err(corrupt("not a block of 4,096 bytes"));
        }
        let Some(seed) = self.seed else { return Ok(None) };
        let of_inode =
            |inode: u32, generation: u32| crc32c(seed, &[&inode.to_le_bytes(), &generation.to_le_bytes()]);
        Ok(match kind {
            Kind::Superblock => {
                let start = if block == 0 { BOOT_BYTES } else { 0 };
                let end = start + SUPERBLOCK_SUM;
                Some((end, crc32c(NO_SEED, &[&bytes[start..end]])))
            }
            Kind::Extents { inode, generation } => {
                let at = extents_end(bytes).ok_or_else(|| corrupt("capacity"))?;
                Some((at, crc32c(of_inode(inode, generation), &[&bytes[..at]])))
            }
            Kind::Directory { inode, generation } => {
                let tail = BLOCK_BYTES - 12;
                if bytes[tail..BLOCK_BYTES - 4] != DIRECTORY_TAIL {
                    return Err(corrupt("no checksum entry at its end"));
                }
                Some((BLOCK_BYTES - 4, crc32c(of_inode(inode, generation), &[&bytes[..tail]])))
            }
            Kind::DirectoryIndex { inode, generation } => {
                let (used, tail) = index_ends(bytes).ok_or_else(|| corrupt("count or limit"))?;
                let parts: [&[u8]; 3] = [&bytes[..used], &bytes[tail..tail + 4], &[0; 4]];
                Some((tail + 4, crc32c(of_inode(inode, generation), &parts)))
            }
            Kind::Attributes => {
                let (head, rest) = (&bytes[..ATTRIBUTES_SUM], &bytes[ATTRIBUTES_SUM + 4..]);
                Some((ATTRIBUTES_SUM, crc32c(seed, &[&block.to_le_bytes(), head, &[0; 4], rest])))
            }
            Kind::OrphanFile { inode, generation } => {
                let tail = BLOCK_BYTES - ORPHAN_TAIL_BYTES;
                if bytes[tail..tail + 4] != ORPHAN_MAGIC.to_le_bytes() {
                    return Err(corrupt("magic number"));
                }
                let parts: [&[u8]; 2] = [&block.to_le_bytes(), &bytes[..tail]];
                Some((tail + 4, crc32c(of_inode(inode, generation), &parts)))
            }
            Kind::Descriptors
            | Kind::BlockBitmap { .. }
            | Kind::InodeBitmap { .. }
            | Kind::InodeTable
            | Kind::SymlinkTarget => None,
        })
    }
}

/// What errors call a block of `kind`.
pub(crate) fn structure_of(kind: Kind) -> Structure {
    match kind {
        Kind::Superblock => Structure::Superblock,
        Kind::Descriptors => Structure::Descriptor,
        Kind::BlockBitmap { .. } => Structure::BlockBitmap,
        Kind::InodeBitmap { .. } => Structure::InodeBitmap,
        Kind::InodeTable => Structure::Inode,
        Kind::Extents { .. } => Structure::ExtentNode,
        Kind::Directory { .. } => Structure::Directory,
        Kind::DirectoryIndex { .. } => Structure::DirectoryIndex,
        Kind::Attributes => Structure::Attributes,
        Kind::SymlinkTarget => Structure::SymlinkTarget,
        Kind::OrphanFile { .. } => Structure::OrphanFile,
    }
}

fn u16_at(bytes: &[u8], at: usize) -> usize {
    usize::from(u16::from_le_bytes([bytes[at], bytes[at + 1]]))
}

/// The checksum of an extent node follows as many entries as fit, whether used or not.
fn extents_end(bytes: &[u8]) -> Option<usize> {
    let end = 12 + 12 * u16_at(bytes, 4);
    (end + 4 <= BLOCK_BYTES).then_some(end)
}

/// The used bytes of an index node, and where its tail (four reserved bytes and the checksum) is. The tail
/// follows as many entries as fit.
fn index_ends(bytes: &[u8]) -> Option<(usize, usize)> {
    // A fake directory entry hides an inner node whole; the root starts with "." and "..".
    let first = if u16_at(bytes, 4) == BLOCK_BYTES { 8 } else { 32 };
    let (limit, count) = (u16_at(bytes, first), u16_at(bytes, first + 2));
    let (used, tail) = (first + 8 * count, first + 8 * limit);
    (count <= limit && tail + 8 <= BLOCK_BYTES).then_some((used, tail))
}

/// Gives a superblock, of 1,024 bytes, content that the checksum in it fits, instead of a checksum that fits the
/// content. The checksum is in the second sector of 512 bytes, and what changes is in the first, so a write that is
/// torn between the two leaves a whole superblock, old or new.
///
/// CRC-32C is linear: each bit of four bytes changes the sum by a pattern of its own, whatever else is there, and the
/// 32 patterns can be added up to any sum.
pub(crate) fn keep_sum(superblock: &mut [u8]) {
    let (bytes, stored) = superblock.split_at_mut(SUPERBLOCK_SUM);
    let stored = u32::from_le_bytes([stored[0], stored[1], stored[2], stored[3]]);
    let mut sum_with = |word: u32| {
        bytes[SUM_KEEPER..SUM_KEEPER + 4].copy_from_slice(&word.to_le_bytes());
        crc32c(NO_SEED, &[&*bytes])
    };
    let plain = sum_with(0);
    // By their highest bit: a difference of sums, and the word that makes it.
    let mut patterns = [(0_u32, 0_u32); 32];
    let reduce = |patterns: &[(u32, u32); 32], mut of: (u32, u32)| {
        while of.0 != 0 {
            let (sum, word) = patterns[of.0.ilog2() as usize];
            if sum == 0 {
                break;
            }
            of = (of.0 ^ sum, of.1 ^ word);
        }
        of
    };
    for bit in 0..32 {
        let word = 1 << bit;
        let pattern = reduce(&patterns, (sum_with(word) ^ plain, word));
        patterns[pattern.0.ilog2() as usize] = pattern;
    }
    let (_, word) = reduce(&patterns, (plain ^ stored, 0));
    sum_with(word);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_register_is_not_inverted() {
        // The check value of CRC-32C over "123456789" is 0xE3069283, inverted at its end.
        assert_eq!(!crc32c(NO_SEED, &[b"12345", b"6789"]), 0xE306_9283);
    }

    #[test]
    fn every_bit_of_a_sealed_block_counts() {
        let sums = Checksums::of_uuid(&[7; 16]);
        let kind = Kind::Directory { inode: 12, generation: 3 };
        let mut bytes = vec![0; BLOCK_BYTES];
        bytes[BLOCK_BYTES - 12..BLOCK_BYTES - 4].copy_from_slice(&DIRECTORY_TAIL);
        sums.update_checksum(kind, 9, &mut bytes).expect("sealed");
        sums.verify(kind, 9, &bytes).expect("verified");
        for at in [0, 5, 2000, BLOCK_BYTES - 12, BLOCK_BYTES - 1] {
            bytes[at] ^= 4;
            sums.verify(kind, 9, &bytes).expect_err("a flipped bit");
            bytes[at] ^= 4;
        }
        let other = Kind::Directory { inode: 13, generation: 3 };
        sums.verify(other, 9, &bytes).expect_err("another directory's block");
        Checksums::none().verify(kind, 9, &[0; BLOCK_BYTES]).expect("no checksums, no complaint");
    }

    #[test]
    fn a_superblock_keeps_its_checksum() {
        let mut bytes: Vec<u8> =
            (0..1024_u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        for at in [0, 44, 96, 511] {
            let second = bytes[512..].to_vec();
            bytes[at] ^= 0x5A;
            keep_sum(&mut bytes);
            assert_eq!(bytes[512..], second, "the second sector is as it was");
            assert_eq!(crc32c(NO_SEED, &[&bytes[..SUPERBLOCK_SUM]]).to_le_bytes(), bytes[SUPERBLOCK_SUM..]);
        }
    }

    #[test]
    fn hostile_lengths_are_refused() {
        let sums = Checksums::of_seed(1);
        let kinds = [
            Kind::Extents { inode: 1, generation: 0 },
            Kind::Directory { inode: 1, generation: 0 },
            Kind::DirectoryIndex { inode: 1, generation: 0 },
            Kind::OrphanFile { inode: 1, generation: 0 },
        ];
        for kind in kinds {
            sums.update_checksum(kind, 1, &mut [0xFF; BLOCK_BYTES]).expect_err("no place for a checksum");
            sums.verify(kind, 1, &[]).expect_err("no block");
        }
    }
}
