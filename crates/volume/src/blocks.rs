//! *Blocks*: where each logical block is, which of them read the same, and how many live ones each segment holds. These
//! change together, when a block is written, shared, moved, discarded, replayed or loaded, and nowhere else.

use std::collections::{BTreeMap, BTreeSet};

use weir_storage::{Rules, Write};

use crate::error::Damage;
use crate::geometry::Geometry;
use crate::layout::ENTRIES_PER_CHUNK;
use crate::map::{Entry, Map};
use crate::map_page::{Stored, page_of};
use crate::mutants::VolumeMutant;
use crate::names::{Names, Pairs, SHARED};
use crate::segments::Segments;

/// Names beyond the first of a block take entries in headers when it is moved: so many may cost a block. A record does not
/// span two chunks, so a header may be left half empty.
const NAMES_PER_HEADER: u64 = ENTRIES_PER_CHUNK as u64 / 2;

/// The blocks of a volume.
pub(crate) struct Blocks {
    geometry: Geometry,
    pub map: Map,
    names: Names,
    /// While the map is loaded: checksums of the blocks whose names are listed.
    checksums: BTreeMap<u32, u32>,
    /// [`SHARED`], or 0 in a volume without shares: there the bit belongs to the address.
    shared: u32,
    rules: Rules<VolumeMutant>,
    pub segments: Segments,
}

impl Blocks {
    /// No block is anywhere. So many pages of the map are in memory at most.
    pub(crate) fn new(geometry: &Geometry, rules: Rules<VolumeMutant>, map_limit: usize) -> Blocks {
        let (map, segments) = (Map::new(geometry.map_pages, map_limit), Segments::new(geometry.segments));
        let shared = if geometry.shares { SHARED } else { 0 };
        let (names, checksums) = (Names::default(), BTreeMap::new());
        Blocks { geometry: *geometry, map, names, checksums, shared, rules, segments }
    }

    /// Where a logical block is.
    #[inline]
    pub(crate) fn entry(&self, lba: u32) -> Entry {
        self.without_flag(self.map.get(lba))
    }

    #[inline]
    fn without_flag(&self, entry: Entry) -> Entry {
        Entry { block: entry.block & !self.shared, ..entry }
    }

    #[inline]
    fn is_shared(&self, entry: Entry) -> bool {
        entry.block & self.shared != 0
    }

    /// All that are somewhere, in order.
    pub(crate) fn mapped(&self) -> impl Iterator<Item = (u32, Entry)> {
        let known = self.map.known_in(0, self.geometry.addressable_blocks());
        known.map(|(lba, entry)| (lba, self.without_flag(entry))).filter(|(_, entry)| entry.is_mapped())
    }

    /// What a target reads that shares a block. What a volume with a base does not hold by then reads zeros (V12).
    fn source(&self, lba: u32) -> Entry {
        let entry = self.entry(lba);
        if self.geometry.base.is_some() && !entry.is_known() { Entry::EMPTY } else { entry }
    }

    /// The record `sequence` says where a logical block is from now on.
    #[inline]
    pub(crate) fn set(&mut self, lba: u32, new: Entry, sequence: u64) {
        if let Some(segment) = self.geometry.segment_of(new.block) {
            self.segments.add_live(segment, 1);
        }
        let old = self.map.set(lba, new);
        self.leave(lba, old, sequence);
    }

    /// A logical block reads something else than this from now on. With its shared flag, a block is in no segment.
    #[inline]
    fn leave(&mut self, lba: u32, old: Entry, sequence: u64) {
        match self.geometry.segment_of(old.block) {
            Some(segment) => self.segments.drop_live(segment, sequence),
            None if old.is_mapped() => self.leave_shared(lba, old, sequence),
            None => {}
        }
    }

    /// A shared block is live until its last name is gone (V7).
    #[cold]
    fn leave_shared(&mut self, lba: u32, old: Entry, sequence: u64) {
        let Entry { block, .. } = self.without_flag(old);
        let was_last = self.names.remove(block, lba);
        if let Some(segment) = self.geometry.segment_of(block).filter(|_| was_last) {
            self.segments.drop_live(segment, sequence);
        }
    }

    /// The record `sequence` lets each target read what its source does. All sources are looked up before a target
    /// changes, and new names are listed before old ones are gone: a block may be both source and target.
    pub(crate) fn share(&mut self, pairs: &Pairs, sequence: u64) {
        let found: Vec<(u32, Entry)> = pairs.iter().map(|(to, from)| (*to, self.source(*from))).collect();
        for ((to, from), (_, entry)) in pairs.iter().zip(&found).filter(|(_, (_, entry))| entry.is_mapped()) {
            if !self.is_shared(self.map.get(*from)) {
                self.map.set(*from, Entry { block: entry.block | self.shared, ..*entry });
                self.names.add(entry.block, *from);
            }
            self.names.add(entry.block, *to);
        }
        for (to, entry) in found {
            let shared = if entry.is_mapped() { self.shared } else { 0 };
            let old = self.map.set(to, Entry { block: entry.block | shared, ..entry });
            if self.without_flag(old).block != entry.block {
                self.leave(to, old, sequence);
            }
        }
    }

    /// The record `sequence` discards the blocks from `first` to `end`, `end` not among them. One that is nowhere needs
    /// no dirty map page, unless there is a base.
    pub(crate) fn discard(&mut self, first: u64, end: u64, sequence: u64) {
        if self.geometry.base.is_some() && !self.rules.drops(VolumeMutant::DiscardUncoversBase) {
            (first..end).for_each(|lba| self.set(lba as u32, Entry::EMPTY, sequence));
            return;
        }
        let mut next = first;
        while let Some((lba, _)) = { self.map.known_in(next, end).next() } {
            self.set(lba, Entry::default(), sequence);
            next = u64::from(lba) + 1;
        }
    }

    /// Takes in what a map page on the disk says of a block. What names the same block reads the same.
    pub(crate) fn load(&mut self, lba: u64, entry: Entry) -> Result<(), Damage> {
        let Entry { block, checksum } = self.without_flag(entry);
        if entry == Entry::EMPTY && self.geometry.base.is_some() && lba < self.geometry.addressable_blocks() {
            self.map.load(lba as u32, entry);
            return Ok(());
        }
        let segment = self.geometry.segment_of(block).ok_or(Damage::MapEntry)?;
        let other = if self.is_shared(entry) { self.names.first(block) } else { None };
        let is_full =
            other.is_none() && u32::from(self.segments.live(segment)) >= self.geometry.segment_blocks;
        if lba >= self.geometry.addressable_blocks()
            || is_full
            || other.is_some() && self.checksums.get(&block) != Some(&checksum)
        {
            return Err(Damage::MapEntry);
        }
        if self.is_shared(entry) {
            self.names.add(block, lba as u32);
            self.checksums.insert(block, checksum);
        }
        if other.is_none() {
            self.segments.add_live(segment, 1);
        }
        let loses_flag = self.rules.drops(VolumeMutant::SharedFlagsForgotten);
        self.map.load(lba as u32, if loses_flag { Entry { block, checksum } } else { entry });
        Ok(())
    }

    /// A page of the map was taken in whole, from its place on the disk.
    pub(crate) fn loaded(&mut self, page: u32, stored: Stored) {
        self.map.loaded(page, stored);
        self.map.make_room(0, &[]);
    }

    /// All pages of the map were taken in.
    pub(crate) fn end_loading(&mut self) {
        self.checksums.clear();
    }

    /// Loads the entry of a record. Records hold no shared flags: the entry gets one if a map page names the same block.
    pub(crate) fn load_recorded(&mut self, lba: u64, entry: Entry) -> Result<(), Damage> {
        let shared = if self.names.first(entry.block).is_some() { self.shared } else { 0 };
        self.load(lba, Entry { block: entry.block | shared, ..entry })
    }

    /// What is live at a block that was written as `written_as`: content that a logical block reads.
    pub(crate) fn live_at(&self, block: u32, written_as: u32) -> Option<Entry> {
        let entry = self.entry(written_as);
        if entry.block == block {
            return Some(entry);
        }
        self.names.first(block).map(|name| self.entry(name))
    }

    /// A logical block that reads this, which was written as `written_as`: the first of its names.
    pub(crate) fn first_name(&self, entry: Entry, written_as: u32) -> Option<u32> {
        let name = self.names.first(entry.block).unwrap_or(written_as);
        (self.entry(name) == entry).then_some(name)
    }

    /// The other names of a block, which move with the first.
    pub(crate) fn other_names(&self, block: u32) -> Vec<u32> {
        self.names.of(block).skip(1).collect()
    }

    /// Whether a logical block is the first name of what it reads: each physical block has one such.
    pub(crate) fn is_first_name(&self, lba: u32, entry: Entry) -> bool {
        !self.is_shared(self.map.get(lba)) || self.names.first(entry.block) == Some(lba)
    }

    /// The names of blocks that were shared.
    pub(crate) fn names(&self) -> &Names {
        &self.names
    }

    /// Live blocks, and the headers that moving their names may take.
    #[inline]
    fn taken(&self) -> u64 {
        self.segments.live_total() + self.names.surplus() / NAMES_PER_HEADER
    }

    /// Blocks that would be live if nothing were shared.
    fn unshared(&self) -> u64 {
        self.segments.live_total() + self.names.surplus()
    }

    /// Thin provisioning: a block that was never written takes space that may not be there, and so does one whose
    /// content another name keeps.
    pub(crate) fn have_space_for(&self, writes: &[Write<'_>], blocks: u64) -> bool {
        let usable = self.geometry.usable_blocks();
        if self.taken() + blocks <= usable {
            return true;
        }
        let parts = writes.iter().flat_map(|write| write.parts);
        // Writes of a packed command may overlap.
        let written: BTreeSet<u32> =
            parts.flat_map(|part| part.extent().iter()).map(|lba| lba.0 as u32).collect();
        let (mut unmapped, mut kept) = (0, 0);
        for lba in written {
            let entry = self.map.get(lba);
            unmapped += u64::from(!entry.is_mapped());
            let shared =
                self.is_shared(entry) && self.names.of(self.without_flag(entry).block).nth(1).is_some();
            kept += u64::from(shared);
        }
        unmapped + kept == 0
            || self.unshared() + unmapped <= usable
            || self.taken() + unmapped + kept <= usable
    }

    /// The same for a share, which takes no block, but entries when its blocks are moved.
    pub(crate) fn have_space_to_share(&self, pairs: &Pairs) -> bool {
        let usable = self.geometry.usable_blocks();
        let mapped = |lba: &u32| self.map.get(*lba).is_mapped();
        let gained = pairs.iter().filter(|(to, from)| !mapped(to) && mapped(from)).count() as u64;
        let lost = pairs.iter().filter(|(to, from)| mapped(to) && !mapped(from)).count() as u64;
        let names = self.names.surplus() + pairs.len() as u64;
        self.segments.live_total() + names / NAMES_PER_HEADER <= usable
            || self.unshared() + gained <= usable + lost
    }

    /// The pages of the map that are looked at to find what is [live at](Blocks::live_at) a block.
    pub(crate) fn pages_of_live(&self, block: u32, written_as: u32) -> impl Iterator<Item = u32> {
        [written_as].into_iter().chain(self.names.first(block)).map(page_of)
    }
}
