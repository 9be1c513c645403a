//! Block addresses. A *block* is [`BLOCK_BYTES`] bytes, the unit of every address in Weir;
//! erase blocks and flash pages are the device's own business.

use std::fmt;

/// Bytes in a block: 4 KiB, the page size of the caches above and the mapping unit of flash below.
pub const BLOCK_BYTES: usize = 4096;

/// A logical block address: the number of a 4 KiB block on a [`Storage`](crate::Storage).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lba(pub u64);

impl Lba {
    /// The address `blocks` further on; saturates, so that a range check sees the overflow.
    #[must_use]
    pub fn offset(self, blocks: u64) -> Lba {
        Lba(self.0.saturating_add(blocks))
    }
}

impl fmt::Display for Lba {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "block {}", self.0)
    }
}

/// A run of consecutive blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Extent {
    /// The first block.
    pub start: Lba,
    /// How many blocks; zero is refused by every storage.
    pub blocks: u32,
}

impl Extent {
    /// The extent of `blocks` blocks from `start`.
    #[must_use]
    pub fn new(start: Lba, blocks: u32) -> Extent {
        Extent { start, blocks }
    }

    /// The first address behind the extent.
    #[must_use]
    pub fn end(self) -> Lba {
        self.start.offset(u64::from(self.blocks))
    }

    /// Bytes in the extent.
    #[must_use]
    pub fn bytes(self) -> usize {
        self.blocks as usize * BLOCK_BYTES
    }

    /// Whether the two extents share a block.
    #[must_use]
    pub fn overlaps(self, other: Extent) -> bool {
        self.start < other.end() && other.start < self.end()
    }

    /// The addresses in the extent, in order.
    pub fn iter(self) -> impl Iterator<Item = Lba> {
        (0..u64::from(self.blocks)).map(move |i| self.start.offset(i))
    }
}

impl fmt::Display for Extent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "blocks {}..{}", self.start.0, self.end().0)
    }
}
