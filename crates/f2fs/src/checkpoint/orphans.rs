//! The orphan blocks of a pack: inodes without a name.

use weir_format::BLOCK_BYTES;
use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::Block;
use crate::address::NodeId;
use crate::crc::{MAGIC, crc32};
use crate::layout::Layout;

/// Inodes in a block.
const INODES: usize = 1020;

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct OrphanBlock {
    inodes: [U32; INODES],
    reserved: U32,
    /// Which block it is, from 1, and of how many.
    nth: U16,
    blocks: U16,
    count: U32,
    checksum: U32,
}

const _: () = assert!(size_of::<OrphanBlock>() == BLOCK_BYTES);

/// The inodes in all blocks. Their checksums are not looked at: other programs do not keep them.
pub(super) fn read(blocks: &[&[u8]], layout: &Layout) -> Result<Vec<NodeId>, &'static str> {
    let mut orphans = Vec::new();
    for block in blocks {
        let block = OrphanBlock::read_from_bytes(block).map_err(|_| "an orphan block that is cut off")?;
        let inodes = block.inodes.get(..block.count.get() as usize).ok_or("number of orphans in a block")?;
        orphans.extend(inodes.iter().map(|inode| NodeId(inode.get())));
    }
    match orphans.iter().all(|inode| layout.has_node(*inode)) {
        true => Ok(orphans),
        false => Err("an orphan that no inode can be"),
    }
}

/// As many blocks as these inodes need.
pub(super) fn write(orphans: &[NodeId]) -> Vec<Block> {
    let count = orphans.len().div_ceil(INODES);
    let blocks = orphans.chunks(INODES).enumerate();
    blocks.map(|(nth, inodes)| write_block(inodes, nth + 1, count)).collect()
}

fn write_block(inodes: &[NodeId], nth: usize, blocks: usize) -> Block {
    let mut orphans = OrphanBlock::new_zeroed();
    for (place, inode) in orphans.inodes.iter_mut().zip(inodes) {
        *place = inode.0.into();
    }
    (orphans.nth, orphans.blocks) = ((nth as u16).into(), (blocks as u16).into());
    orphans.count = (inodes.len() as u32).into();
    orphans.checksum = crc32(MAGIC, &[&orphans.as_bytes()[..BLOCK_BYTES - 4]]).into();
    let mut block: Block = Box::new([0; BLOCK_BYTES]);
    block.copy_from_slice(orphans.as_bytes());
    block
}
