//! A page of the map: which blocks it has, its places on the disk, and its bytes there.

use weir_storage::{BLOCK_BYTES, Extent};
use zerocopy::{FromZeros, IntoBytes};

use crate::layout::{ENTRIES_PER_PAGE, MapEntry, MapPage, stamp_checksum};
use crate::map::Entry;

/// The page of a logical block.
pub(crate) fn page_of(lba: u32) -> u32 {
    lba / ENTRIES_PER_PAGE as u32
}

/// The pages that an extent is in, in order.
pub(crate) fn pages_of(extent: Extent) -> impl Iterator<Item = u32> {
    page_of(extent.start.0 as u32)..=page_of((extent.end().0 - 1) as u32)
}

/// Which of its two places on the disk holds a map page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum PageSlot {
    /// Never written: nothing in the page is mapped.
    #[default]
    Nowhere,
    First,
    Second,
}

impl PageSlot {
    pub(crate) fn other(self) -> PageSlot {
        match self {
            PageSlot::Nowhere | PageSlot::Second => PageSlot::First,
            PageSlot::First => PageSlot::Second,
        }
    }

    pub(crate) fn area(self) -> u8 {
        u8::from(self == PageSlot::Second)
    }
}

/// A page as it is on the disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Stored {
    pub slot: PageSlot,
    pub checksum: u32,
}

/// Writes a map page into `block` and returns its checksum.
pub(crate) fn encode_page(entries: &[Entry], volume: u64, page: u32, block: &mut [u8]) -> u32 {
    let mut on_disk = MapPage::new_zeroed();
    on_disk.volume = volume.into();
    on_disk.page = page.into();
    for (to, from) in on_disk.entries.iter_mut().zip(entries) {
        *to = MapEntry { block: from.block.into(), checksum: from.checksum.into() };
    }
    block[..BLOCK_BYTES].copy_from_slice(on_disk.as_bytes());
    let field = std::mem::offset_of!(MapPage, checksum);
    stamp_checksum(&mut block[..BLOCK_BYTES], field);
    u32::from_le_bytes([block[field], block[field + 1], block[field + 2], block[field + 3]])
}

/// One page's part of the checkpoint's map sum. Addition commutes, so the sum is kept up page by page.
pub(crate) fn page_sum(page: u32, checksum: u32) -> u64 {
    let mixed = (u64::from(page) << 32 | u64::from(checksum)).wrapping_add(0x9E37_79B9_7F4A_7C15);
    let mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed ^ (mixed >> 27)
}
