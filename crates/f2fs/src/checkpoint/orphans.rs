//! Orphan blocks: inodes that had no name and were open at the checkpoint, to be freed by the next mount.

use weir_format::FormatError;
use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::corrupt;
use crate::block::{BLOCK_BYTES, NodeId};
use crate::layout::Layout;

/// Orphans that a block holds.
pub const MAX_ORPHANS_PER_BLOCK: usize = 1020;

/// A block of orphans.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct OrphanBlock {
    inodes: [U32; MAX_ORPHANS_PER_BLOCK],
    reserved: U32,
    /// Which of the blocks this is, from 1 on.
    index: U16,
    /// How many blocks there are.
    blocks: U16,
    /// Orphans in this one.
    count: U32,
    /// Not used.
    checksum: U32,
}

const _: () = assert!(size_of::<OrphanBlock>() == BLOCK_BYTES);

/// The orphans in the blocks of a pack that starts at block `start`.
pub(super) fn read(bytes: &[u8], start: u32, layout: &Layout) -> Result<Vec<NodeId>, FormatError> {
    let blocks = bytes.len() / BLOCK_BYTES;
    let mut orphans = Vec::new();
    for (index, bytes) in (1..).zip(bytes.chunks_exact(BLOCK_BYTES)) {
        let block = OrphanBlock::ref_from_bytes(bytes).map_err(|_| corrupt(start, "an orphan block"))?;
        if usize::from(block.index.get()) != index || usize::from(block.blocks.get()) != blocks {
            return Err(corrupt(start, "the order of orphan blocks"));
        }
        let count = block.count.get() as usize;
        let inodes = block.inodes.get(..count).ok_or_else(|| corrupt(start, "the number of orphans"))?;
        for inode in inodes {
            let node = NodeId(inode.get());
            if node <= NodeId::ROOT || node.0 >= layout.nodes() {
                return Err(corrupt(start, "an orphan that cannot be"));
            }
            orphans.push(node);
        }
    }
    Ok(orphans)
}

/// The blocks for `orphans`, of which there are at most as many as 512 blocks hold.
pub(super) fn write(orphans: &[NodeId]) -> Vec<[u8; BLOCK_BYTES]> {
    let blocks = orphans.len().div_ceil(MAX_ORPHANS_PER_BLOCK);
    let chunks = orphans.chunks(MAX_ORPHANS_PER_BLOCK).zip(1_u16..);
    let block = |(part, index): (&[NodeId], u16)| {
        let mut block = OrphanBlock::new_zeroed();
        block.inodes.iter_mut().zip(part).for_each(|(slot, node)| *slot = node.0.into());
        block.index = index.into();
        block.blocks = (blocks as u16).into();
        block.count = (part.len() as u32).into();
        zerocopy::transmute!(block)
    };
    chunks.map(block).collect()
}
