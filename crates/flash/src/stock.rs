//! The *stock* of erase blocks at one moment: which are free, and where the others are being filled. With
//! order-preserving recovery the seal of each checkpoint has it, and recovery goes on from there. In the OPTR paper (section 3.3) the
//! seal has the next free pages, and summary pages lead to the next block. Weir adds a bit for each free block to the seal, and the next block
//! to each page.
//!
//! Whatever is programmed behind the checkpoint lies in the erase blocks that the stock says are being filled, in those
//! that it says are filled next, one of each die, and in those that pages found there name: each page names the free erase
//! block that its die fills next. Where a die had none at its last page, a page of the log names the one that it begins, on
//! the same die, so that it is there first ([`Opening`]).
//!
//! So a free erase block that nothing names is erased still. One that is not free may have been erased since: recovery
//! takes it for filled, nothing in it is valid, and cleaning erases it once more before it is filled again.

use crate::geometry::{EraseBlock, Geometry, Page};

/// An erase block that no page names.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Opening {
    pub(crate) block: EraseBlock,
    /// The sequence number of its first page.
    pub(crate) sequence: u64,
}

/// Where the erase blocks stand.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stock {
    /// The first page that is not committed of each erase block that is being filled, and the first of the free one that
    /// each die fills next.
    pub(crate) next: Vec<Page>,
    /// A bit for each erase block: it is free.
    free: Vec<u64>,
}

impl Stock {
    /// Pages that it names on each die: two erase blocks are being filled, and one is next.
    const NEXT_PAGES: u64 = 3;

    /// What a page takes.
    const PAGE_BYTES: u64 = 4;

    /// What a seal needs for it.
    pub(crate) fn bytes(geometry: &Geometry) -> u64 {
        let next = u64::from(geometry.dies) * Stock::NEXT_PAGES * Stock::PAGE_BYTES;
        u64::from(geometry.blocks()).div_ceil(8) + next
    }

    /// Of a device with so many erase blocks, none of them free.
    pub(crate) fn used(blocks: u32) -> Stock {
        Stock { next: Vec::new(), free: vec![0; blocks.div_ceil(u64::BITS) as usize] }
    }

    /// Of a device that was never written.
    pub(crate) fn erased(geometry: &Geometry) -> Stock {
        let mut stock = Stock::used(geometry.blocks());
        (0..geometry.blocks()).for_each(|block| stock.add_free(EraseBlock(block)));
        let first = (0..geometry.dies).filter_map(|die| geometry.blocks_of(die).next());
        stock.next = first.map(|block| geometry.page(block, 0)).collect();
        stock
    }

    pub(crate) fn add_free(&mut self, block: EraseBlock) {
        if let Some(bits) = self.free.get_mut((block.0 / u64::BITS) as usize) {
            *bits |= 1 << (block.0 % u64::BITS);
        }
    }

    pub(crate) fn is_free(&self, block: EraseBlock) -> bool {
        let bits = self.free.get((block.0 / u64::BITS) as usize);
        bits.is_some_and(|bits| bits >> (block.0 % u64::BITS) & 1 == 1)
    }

    /// Words that differ where it does.
    pub(crate) fn words(&self) -> impl Iterator<Item = u64> {
        self.next.iter().map(|page| u64::from(page.0)).chain(self.free.iter().copied())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::{Mechanism, Profile};

    #[test]
    fn it_finds_room_beside_the_seal_on_all_builtin_drives() {
        for name in Profile::NAMES {
            let profile = Profile::builtin(name).unwrap().with_mechanism(Mechanism::OrderPreservingRecovery);
            let geometry = Geometry::new(&profile);
            assert!(Stock::bytes(&geometry) + 64 <= geometry.page_bytes(), "{name}");
        }
    }
}
