//! Where things are on the flash chips. A *slot* is the place of one *logical page*, the unit of the map: a block of
//! 4 KiB, or several ([`Layout`](crate::Layout)). A *page* is what one program operation writes, one or more slots; an
//! *erase block* is what one erase empties. Its last page may be a *summary page*: it has no slots, but repeats what
//! the spare areas of the others say.
//!
//! Where a die programs all its planes together, such a multi-plane page counts as one page here, and the erase
//! blocks of the planes as one.

use weir_storage::BLOCK_BYTES;

use crate::profile::Profile;

/// The place of a logical page on flash.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Slot(pub(crate) u32);

impl Slot {
    /// Nowhere: a logical page that is not mapped.
    pub(crate) const NONE: Slot = Slot(u32::MAX);
}

/// Blocks of a logical page: a bit for each.
pub(crate) type BlockSet = u16;

/// A page of all pages of the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Page(pub(crate) u32);

/// An erase block of all erase blocks of the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct EraseBlock(pub(crate) u32);

impl EraseBlock {
    /// None.
    pub(crate) const NONE: EraseBlock = EraseBlock(u32::MAX);
}

/// The sizes that turn one into the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Geometry {
    pub(crate) channels: u32,
    pub(crate) dies: u32,
    pub(crate) blocks_per_die: u32,
    pub(crate) pages_per_block: u32,
    /// Of these, pages with slots: all but the summary page.
    pub(crate) data_pages_per_block: u32,
    pub(crate) slots_per_page: u32,
    /// Blocks of 4 KiB in a logical page.
    pub(crate) blocks_per_slot: u32,
}

impl Geometry {
    /// The geometry of the chips that a checked profile describes.
    pub(crate) fn new(profile: &Profile) -> Geometry {
        let Profile { nand, ftl, .. } = profile;
        let together = nand.planes_together();
        let blocks_per_slot = ftl.layout.logical_page_blocks;
        Geometry {
            channels: nand.channels,
            dies: nand.channels * nand.ways,
            blocks_per_die: nand.blocks_per_plane * nand.planes / together,
            pages_per_block: nand.pages_per_block,
            data_pages_per_block: nand.pages_per_block - u32::from(ftl.layout.summary_pages),
            slots_per_page: nand.page_bytes * together / BLOCK_BYTES as u32 / blocks_per_slot,
            blocks_per_slot,
        }
    }

    /// The logical page of a block, and the block's place in it.
    pub(crate) fn logical_page_of(&self, block: u32) -> (u32, usize) {
        (block / self.blocks_per_slot, (block % self.blocks_per_slot) as usize)
    }

    /// All blocks of a logical page.
    pub(crate) fn whole_page(&self) -> BlockSet {
        BlockSet::MAX >> (BlockSet::BITS - self.blocks_per_slot)
    }

    pub(crate) fn blocks(&self) -> u32 {
        self.dies * self.blocks_per_die
    }

    pub(crate) fn pages(&self) -> u32 {
        self.blocks() * self.pages_per_block
    }

    /// Slot numbers of an erase block, those of a summary page included.
    pub(crate) fn slots_per_block(&self) -> u32 {
        self.pages_per_block * self.slots_per_page
    }

    /// What an erase block holds.
    pub(crate) fn data_slots_per_block(&self) -> u32 {
        self.data_pages_per_block * self.slots_per_page
    }

    /// Whether a summary page comes behind this page.
    pub(crate) fn precedes_summary(&self, page: Page) -> bool {
        self.nth_page(page) + 1 == self.data_pages_per_block
            && self.data_pages_per_block < self.pages_per_block
    }

    /// The erase blocks of a die.
    pub(crate) fn blocks_of(&self, die: u32) -> impl Iterator<Item = EraseBlock> + use<> {
        let first = die * self.blocks_per_die;
        (first..first + self.blocks_per_die).map(EraseBlock)
    }

    pub(crate) fn die_of(&self, block: EraseBlock) -> u32 {
        block.0 / self.blocks_per_die
    }

    /// Dies take turns over the channels, so that neighbours do not share one.
    pub(crate) fn channel_of(&self, die: u32) -> u32 {
        die % self.channels
    }

    pub(crate) fn page(&self, block: EraseBlock, nth: u32) -> Page {
        Page(block.0 * self.pages_per_block + nth)
    }

    pub(crate) fn block_of(&self, page: Page) -> EraseBlock {
        EraseBlock(page.0 / self.pages_per_block)
    }

    /// The place of a page in its erase block.
    pub(crate) fn nth_page(&self, page: Page) -> u32 {
        page.0 % self.pages_per_block
    }

    pub(crate) fn slot(&self, page: Page, nth: u32) -> Slot {
        Slot(page.0 * self.slots_per_page + nth)
    }

    pub(crate) fn page_of(&self, slot: Slot) -> Page {
        Page(slot.0 / self.slots_per_page)
    }

    /// The erase block of a slot, and the slot's place in it.
    pub(crate) fn place_of(&self, slot: Slot) -> (EraseBlock, usize) {
        let slots = self.slots_per_block();
        (EraseBlock(slot.0 / slots), (slot.0 % slots) as usize)
    }

    pub(crate) fn page_bytes(&self) -> u64 {
        u64::from(self.slots_per_page * self.blocks_per_slot) * BLOCK_BYTES as u64
    }
}
