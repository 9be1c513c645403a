//! *Units*: aligned parts of a file that a crash leaves whole. A storage such as a volume keeps a request whole or loses
//! it. So a write of up to [`UNIT_BYTES`] that does not cross a multiple of that in the file is old or new after a crash,
//! never mixed, if nothing between parts it: databases whose pages are that large need no copies of them.
//!
//! What keeps it: pages of a unit change together in memory, without a wait in between; those that are dirty go in one
//! request, which is cut between units only; blocks are allocated so that runs end between units. What limits it: the
//! blocks that the write covers must be consecutive on the disk, and all of them written before or none. Space that was
//! allocated by `fallocate`, or by writes of whole units, is so, but where no free run is long enough: those are counted.

use weir_storage::{BLOCK_BYTES, Capabilities};

/// Blocks in a unit.
pub const UNIT_BLOCKS: u32 = 4;
/// Bytes in a unit.
pub const UNIT_BYTES: u64 = UNIT_BLOCKS as u64 * BLOCK_BYTES as u64;

/// Bytes of a unit on a storage: a block where that does not keep requests whole.
pub fn unit_bytes(capabilities: &Capabilities) -> u32 {
    let Capabilities { atomic_blocks, max_transfer_blocks, .. } = *capabilities;
    let is_whole = atomic_blocks >= max_transfer_blocks && max_transfer_blocks >= UNIT_BLOCKS;
    (if is_whole { UNIT_BLOCKS } else { 1 }) * BLOCK_BYTES as u32
}

/// Blocks from `index` to the end of its unit.
pub fn blocks_to_end(index: u32) -> u32 {
    UNIT_BLOCKS - index % UNIT_BLOCKS
}

/// How many of `most` bytes from `offset` on to take first, so that what is left begins with a unit. `all` of them if
/// they are no more.
pub fn cut(offset: u64, most: usize, all: usize) -> usize {
    if all <= most {
        return all;
    }
    let end = (offset + most as u64) / UNIT_BYTES * UNIT_BYTES;
    usize::try_from(end.saturating_sub(offset)).ok().filter(|taken| *taken > 0).unwrap_or(most)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_is_cut_between_units() {
        let unit = UNIT_BYTES as usize;
        assert_eq!(cut(0, 3 * unit + 5, 9 * unit), 3 * unit);
        assert_eq!(cut(4096, 2 * unit, 9 * unit), 2 * unit - 4096);
        assert_eq!(cut(7, 100, 90), 90);
        assert_eq!(cut(7, 100, 900), 100, "less than a unit");
    }
}
