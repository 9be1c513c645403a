//! *Logical pages* of several blocks: a command that writes a part of one replaces that part, and the rest stays what it
//! was. So a version of a logical page is a whole one, and cache, map, cleaning and recovery know nothing of parts: what
//! they keep whole and in order, they keep so for each block in it. What a part costs is the read of the rest before the
//! page is programmed.
//!
//! Where a logical page is one block, nothing of this is used.

use std::collections::BTreeMap;

use weir_storage::{Extent, Lba};

use crate::geometry::{BlockSet, Geometry};
use crate::medium::{Content, Part, Payload};

/// What a command changes of one logical page: by place in it. No payload means zeros.
#[derive(Debug)]
pub(crate) struct Update {
    pub(crate) lpn: u32,
    /// The first block that it changes.
    pub(crate) first_block: u32,
    blocks: BTreeMap<usize, Option<Payload>>,
}

impl Update {
    /// The updates of a write, one for each logical page.
    pub(crate) fn of_write(
        blocks: impl IntoIterator<Item = (u32, Payload)>,
        geometry: &Geometry,
    ) -> Vec<Update> {
        let blocks = blocks.into_iter().map(|(block, payload)| (block, Some(payload)));
        Update::of(blocks, geometry)
    }

    fn of(blocks: impl IntoIterator<Item = (u32, Option<Payload>)>, geometry: &Geometry) -> Vec<Update> {
        let mut updates: BTreeMap<u32, BTreeMap<usize, Option<Payload>>> = BTreeMap::new();
        for (block, payload) in blocks {
            let (lpn, nth) = geometry.logical_page_of(block);
            updates.entry(lpn).or_default().insert(nth, payload);
        }
        let update = |(lpn, blocks): (u32, BTreeMap<usize, _>)| {
            let first = blocks.keys().next().copied().unwrap_or(0);
            Update { lpn, first_block: lpn * geometry.blocks_per_slot + first as u32, blocks }
        };
        updates.into_iter().map(update).collect()
    }

    /// Which blocks it changes.
    pub(crate) fn written(&self) -> BlockSet {
        self.blocks.keys().fold(0, |written, nth| written | 1 << nth)
    }

    /// Whether it changes the whole logical page.
    pub(crate) fn is_whole(&self, geometry: &Geometry) -> bool {
        self.blocks.len() == geometry.blocks_per_slot as usize
    }

    /// Blocks that it changes.
    pub(crate) fn blocks(&self) -> u64 {
        self.blocks.len() as u64
    }

    /// The logical page as it is with this update, on top of what it was; the versions of the blocks end before
    /// `next_version`.
    pub(crate) fn apply_to(self, base: Option<&Content>, next_version: u64, geometry: &Geometry) -> Payload {
        let whole = self.is_whole(geometry);
        let plain = |payload: &Option<Payload>| matches!(payload, Some(Payload::Version));
        if whole && self.blocks.values().all(plain) {
            return Payload::Version;
        }
        let mut parts: Vec<Option<Part>> = (0..geometry.blocks_per_slot as usize)
            .map(|nth| base.and_then(|base| base.part(nth, geometry)))
            .collect();
        let versions = next_version - self.blocks()..next_version;
        for (version, (nth, payload)) in versions.zip(self.blocks) {
            parts[nth] = payload.map(|payload| Part { version, payload });
        }
        Payload::Page(parts.into())
    }
}

impl Content {
    /// A block of this logical page; none where it reads as zeros.
    pub(crate) fn part(&self, nth: usize, geometry: &Geometry) -> Option<Part> {
        match &self.payload {
            Payload::Page(parts) => parts.get(nth).cloned().flatten(),
            // Its blocks were written together, so their versions follow one another.
            Payload::Version => {
                let behind = geometry.blocks_per_slot as usize - 1 - nth;
                Some(Part { version: self.version.saturating_sub(behind as u64), payload: Payload::Version })
            }
            Payload::Discard(_) | Payload::Share(_) => None,
            payload => Some(Part { version: self.version, payload: payload.clone() }),
        }
    }
}

/// What a discard does: whole logical pages are discarded by records, of parts of others zeros are written.
#[derive(Debug)]
pub(crate) struct Discarded {
    /// The first block, and how many in all.
    pub(crate) first: u64,
    pub(crate) blocks: u32,
    /// Logical pages.
    pub(crate) whole: Vec<Extent>,
    pub(crate) zeroed: Vec<Update>,
    /// Nothing else may be serviced before it is committed: a later write of a part of a logical page must not take the
    /// rest from a version that the discard removes.
    pub(crate) exclusive: bool,
}

impl Discarded {
    pub(crate) fn new(extents: &[Extent], geometry: &Geometry) -> Discarded {
        let first = extents.first().map_or(0, |extent| extent.start.0);
        let blocks = extents.iter().fold(0_u32, |sum, extent| sum.saturating_add(extent.blocks));
        if geometry.blocks_per_slot == 1 {
            return Discarded {
                first,
                blocks,
                whole: extents.to_vec(),
                zeroed: Vec::new(),
                exclusive: false,
            };
        }
        let whole: Vec<Extent> = extents.iter().filter_map(|extent| whole_pages(*extent, geometry)).collect();
        let in_parts = extents.iter().flat_map(|extent| ends(*extent, geometry));
        let zeros = in_parts.map(|block| (block, None));
        let mut zeroed = Update::of(zeros, geometry);
        let in_whole = |lpn: u32| {
            let lpn = u64::from(lpn);
            whole.iter().any(|pages| (pages.start.0..pages.end().0).contains(&lpn))
        };
        zeroed.retain(|update| !in_whole(update.lpn));
        Discarded { first, blocks, whole, zeroed, exclusive: true }
    }

    /// Places in the cache that it needs.
    pub(crate) fn places(&self) -> usize {
        self.whole.len() + self.zeroed.len()
    }
}

/// The logical pages that lie in an extent.
fn whole_pages(extent: Extent, geometry: &Geometry) -> Option<Extent> {
    let blocks = u64::from(geometry.blocks_per_slot);
    let (first, end) = (extent.start.0.div_ceil(blocks), extent.end().0 / blocks);
    (first < end).then(|| Extent::new(Lba(first), (end - first) as u32))
}

/// The blocks of an extent in logical pages that it covers in part.
fn ends(extent: Extent, geometry: &Geometry) -> impl Iterator<Item = u32> {
    let blocks = u64::from(geometry.blocks_per_slot);
    let (start, end) = (extent.start.0, extent.end().0);
    let (head, tail) = (start.next_multiple_of(blocks).min(end), (end - end % blocks).max(start));
    (start..head).chain(tail..end).map(|block| block as u32)
}
