//! *Blocks*: where each logical block is, and how many live ones each segment holds. The two change together, when a
//! block is written, moved, discarded, replayed or loaded, and nowhere else.

use weir_storage::{Rules, Write};

use crate::error::Damage;
use crate::geometry::Geometry;
use crate::map::{Entry, Map};
use crate::mutants::VolumeMutant;
use crate::segments::Segments;

/// The blocks of a volume.
pub(crate) struct Blocks {
    geometry: Geometry,
    map: Map,
    pub segments: Segments,
}

impl Blocks {
    /// No block is anywhere.
    pub(crate) fn new(geometry: &Geometry) -> Blocks {
        let (map, segments) = (Map::new(geometry.map_pages), Segments::new(geometry.segments));
        Blocks { geometry: *geometry, map, segments }
    }

    /// Where a logical block is.
    pub(crate) fn entry(&self, lba: u32) -> Entry {
        self.map.get(lba)
    }

    /// All that are somewhere, in order.
    pub(crate) fn mapped(&self) -> impl Iterator<Item = (u32, Entry)> {
        self.map.mapped_from(0)
    }

    /// The record `sequence` says where a logical block is from now on.
    #[inline]
    pub(crate) fn set(&mut self, lba: u32, new: Entry, sequence: u64) {
        if let Some(segment) = self.geometry.segment_of(new.block) {
            self.segments.add_live(segment, 1);
        }
        let old = self.map.set(lba, new);
        if let Some(segment) = self.geometry.segment_of(old.block) {
            self.segments.drop_live(segment, sequence);
        }
    }

    /// The record `sequence` discards the blocks from `first` to `end`, `end` not among them. One that is nowhere needs
    /// no dirty map page.
    pub(crate) fn discard(&mut self, first: u64, end: u64, sequence: u64) {
        let mut next = first;
        while let Some(lba) = self.map.next_mapped(next, end) {
            self.set(lba, Entry::default(), sequence);
            next = u64::from(lba) + 1;
        }
    }

    /// Takes in what a map page on the disk says of a block.
    pub(crate) fn load(&mut self, lba: u64, entry: Entry) -> Result<(), Damage> {
        let segment = self.geometry.segment_of(entry.block).ok_or(Damage::MapEntry)?;
        let is_full = u32::from(self.segments.live(segment)) >= self.geometry.segment_blocks;
        if lba >= self.geometry.logical_blocks || is_full {
            return Err(Damage::MapEntry);
        }
        self.segments.add_live(segment, 1);
        self.map.load(lba as u32, entry);
        Ok(())
    }

    /// Thin provisioning: a block that was never written takes space that may not be there.
    pub(crate) fn have_space_for(&self, write: &Write<'_>, blocks: u64) -> bool {
        let usable = self.geometry.usable_blocks();
        if self.segments.live_total() + blocks <= usable {
            return true;
        }
        let lbas = write.parts.iter().flat_map(|part| part.extent().iter());
        let fresh = lbas.filter(|lba| !self.map.get(lba.0 as u32).is_mapped()).count() as u64;
        fresh == 0 || self.segments.live_total() + fresh <= usable
    }

    /// Map pages copied aside for the checkpoint that is being taken.
    pub(crate) fn pages_copied(&self) -> usize {
        self.map.copies()
    }

    /// Begins a checkpoint: the map pages that it has to write, in order.
    pub(crate) fn freeze(&mut self) -> Vec<u32> {
        self.map.freeze()
    }

    /// One map page as it was when the checkpoint began, ready to be written, with its checksum.
    pub(crate) fn frozen_page(&mut self, page: u32, block: &mut [u8], rules: Rules<VolumeMutant>) -> u32 {
        self.map.frozen_page(page, self.geometry.volume, block, rules)
    }

    /// Bytes of memory that the map takes.
    pub(crate) fn map_bytes(&self) -> usize {
        self.map.bytes()
    }
}
