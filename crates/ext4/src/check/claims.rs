//! Which blocks are used: one bit a block, for groups where any is used.

use crate::bitmap;
use crate::layout::Layout;

pub(super) struct Claims {
    layout: Layout,
    groups: Vec<Option<Box<[u8]>>>,
}

impl Claims {
    pub(super) fn new(layout: &Layout) -> Self {
        Self { layout: *layout, groups: vec![None; layout.groups() as usize] }
    }

    /// Claims `count` blocks from `first` on. Returns the first that was claimed before or does not exist;
    /// the others are claimed nevertheless.
    pub(super) fn claim(&mut self, first: u64, count: u64) -> Option<u64> {
        let mut taken = None;
        let mut at = first;
        let end = first.saturating_add(count);
        while at < end {
            let Some(group) = self.layout.group_of(at) else { return taken.or(Some(at)) };
            let start = self.layout.first_block(group);
            let length = self.layout.blocks_in(group);
            let bits = self.groups[group as usize]
                .get_or_insert_with(|| vec![0; self.layout.blocks_per_group() as usize / 8].into());
            let range = (at - start) as u32..(end - start).min(u64::from(length)) as u32;
            let before = bitmap::next_set(bits, range.clone()).map(|bit| start + u64::from(bit));
            taken = taken.or(before);
            at = start + u64::from(range.end);
            bitmap::set(bits, range);
        }
        taken
    }

    /// Writes the bitmap that a group should have.
    pub(super) fn bitmap(&self, group: u32, bits: &mut [u8]) {
        let total = bits.len() as u32 * 8;
        bits.fill(0);
        if let Some(claimed) = &self.groups[group as usize] {
            bits[..claimed.len()].copy_from_slice(claimed);
        }
        bitmap::set(bits, self.layout.blocks_in(group)..total);
    }

    /// How many blocks are claimed.
    pub(super) fn count(&self) -> u64 {
        let clear = |bits: &[u8]| u64::from(bitmap::count_clear(bits, 0..u32::MAX));
        self.groups.iter().flatten().map(|bits| bits.len() as u64 * 8 - clear(bits)).sum()
    }
}
