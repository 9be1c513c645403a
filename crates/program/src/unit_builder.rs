//! *Unit builder*: takes calls apart into units, and finds what each of them needs, and what a synchronisation makes durable.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use weir_storage::Rules;
use weir_vfs::InodeNumber;

use crate::mutants::ProgramMutant;
use crate::operation::{Call, Place};
use crate::promises::Promises;
use crate::tree::BLOCK_BYTES;
use crate::unit::{Unit, UnitKind, UnitNumber};

const BLOCK: u64 = BLOCK_BYTES as u64;

/// The chains of units of which a later one needs the earlier one, and what is not durable yet.
#[derive(Default)]
pub(crate) struct UnitBuilder {
    promises: Promises,
    rules: Rules<ProgramMutant>,
    /// The units, in the order of the calls.
    pub(crate) all: Vec<Unit>,
    pending: BTreeSet<UnitNumber>,
    names: BTreeMap<Place, UnitNumber>,
    blocks: BTreeMap<(InodeNumber, u64), UnitNumber>,
    sizes: BTreeMap<InodeNumber, UnitNumber>,
    attributes: BTreeMap<InodeNumber, UnitNumber>,
    /// Ranges of blocks of a file that were cut off, or made a hole.
    removed: BTreeMap<InodeNumber, Vec<(Range<u64>, UnitNumber)>>,
    /// Of directories that move, the last one: so they form no circle.
    moved: Option<UnitNumber>,
    /// The last one of metadata.
    metadata: Option<UnitNumber>,
    /// Data that a failed synchronisation has lost for the disk.
    lost: BTreeSet<UnitNumber>,
    /// Of each unit, the one that it needs for the order of metadata alone.
    only_ordered_after: Vec<Option<UnitNumber>>,
    /// Data and sizes of a file that are pending, and names that stand for it, or are in it.
    of_inode: BTreeMap<InodeNumber, BTreeSet<UnitNumber>>,
    names_of: BTreeMap<InodeNumber, BTreeSet<UnitNumber>>,
}

impl UnitBuilder {
    /// One that has taken in nothing yet.
    pub(crate) fn new(promises: Promises, rules: Rules<ProgramMutant>) -> UnitBuilder {
        UnitBuilder { promises, rules, ..UnitBuilder::default() }
    }

    fn push(
        &mut self,
        operation: usize,
        kind: UnitKind,
        needs: impl IntoIterator<Item = UnitNumber>,
    ) -> UnitNumber {
        self.push_behind(operation, kind, needs, None)
    }

    /// Adds one that changes metadata.
    fn push_metadata(
        &mut self,
        operation: usize,
        kind: UnitKind,
        needs: impl IntoIterator<Item = UnitNumber>,
    ) -> UnitNumber {
        let is_ordered =
            self.promises.orders_metadata() && !self.rules.drops(ProgramMutant::MetadataOvertakes);
        let earlier = self.metadata.filter(|_| is_ordered);
        let number = self.push_behind(operation, kind, needs, earlier);
        self.metadata = Some(number);
        number
    }

    fn push_behind(
        &mut self,
        operation: usize,
        kind: UnitKind,
        needs: impl IntoIterator<Item = UnitNumber>,
        earlier: Option<UnitNumber>,
    ) -> UnitNumber {
        let number = self.all.len();
        let mut needs: BTreeSet<UnitNumber> = needs.into_iter().collect();
        self.only_ordered_after.push(earlier.filter(|earlier| needs.insert(*earlier)));
        let needs = needs.into_iter().filter(|need| self.pending.contains(need)).collect();
        self.all.push(Unit { operation, kind, needs });
        self.pending.insert(number);
        number
    }

    /// Notes that a unit is one of an inode's own: `fsync` of it makes it durable.
    fn own(&mut self, inode: InodeNumber, number: UnitNumber) {
        self.of_inode.entry(inode).or_default().insert(number);
    }

    /// Has synchronisation calls cover no more of the data of a file that was written so far.
    fn lose_data(&mut self, inode: InodeNumber) {
        let is_data = |unit: &UnitNumber| self.all[*unit].block().is_some();
        if let Some(own) = self.of_inode.get_mut(&inode) {
            let (lost, kept) = std::mem::take(own).into_iter().partition(is_data);
            *own = kept;
            self.lost.extend::<BTreeSet<UnitNumber>>(lost);
        }
    }

    /// Notes that blocks of a file were given up.
    fn remove_blocks(&mut self, inode: InodeNumber, blocks: Range<u64>, number: UnitNumber) {
        let removed = self.removed.entry(inode).or_default();
        removed.retain(|(_, unit)| self.pending.contains(unit));
        removed.push((blocks, number));
    }

    /// What gave up a block that is written now: a new one takes its place no earlier, where a journal keeps the order.
    fn removal_of(&self, inode: InodeNumber, block: u64) -> Option<UnitNumber> {
        let is_ordered =
            self.promises.orders_metadata() && !self.rules.drops(ProgramMutant::DataOvertakesRemoval);
        let removed = self.removed.get(&inode).filter(|_| is_ordered)?;
        removed.iter().rev().find(|(blocks, _)| blocks.contains(&block)).map(|(_, number)| *number)
    }

    /// Takes a call apart.
    pub(crate) fn add(&mut self, operation: usize, call: &Call) {
        match call {
            Call::Make { inode, at, .. } => {
                if let Some(at) = at {
                    let number = self.add_names(operation, vec![(at.clone(), Some(*inode))], []);
                    self.name(*inode, number);
                }
            }
            Call::Link { inode, at } => {
                let number = self.add_names(operation, vec![(at.clone(), Some(*inode))], []);
                self.name(*inode, number);
            }
            Call::Remove { inode, at } => {
                let number = self.add_names(operation, vec![(at.clone(), None)], []);
                self.name(*inode, number);
            }
            Call::Rename { inode, from, to, replaced, exchanged, is_directory } => {
                self.add_rename(operation, *inode, (from, to), *replaced, *exchanged, *is_directory);
            }
            Call::Write { inode, offset, data, grown } => {
                let mut needs = Vec::new();
                let mut at = *offset;
                while at < offset + (data.end - data.start) {
                    let end = (at / BLOCK * BLOCK + BLOCK).min(offset + (data.end - data.start));
                    let from = data.start + (at - offset);
                    let piece = UnitKind::Data { inode: *inode, offset: at, data: from..from + (end - at) };
                    let earlier = self.blocks.get(&(*inode, at / BLOCK)).copied();
                    let removal = self.removal_of(*inode, at / BLOCK);
                    let number = self.push(operation, piece, earlier.into_iter().chain(removal));
                    self.blocks.insert((*inode, at / BLOCK), number);
                    self.own(*inode, number);
                    needs.push(number);
                    at = end;
                }
                if let Some(size) = grown {
                    let is_ordered = self.promises.orders_size_after_data()
                        && !self.rules.drops(ProgramMutant::SizeBeforeData);
                    let needs = needs.into_iter().filter(|_| is_ordered);
                    let needs: Vec<UnitNumber> = needs.chain(self.sizes.get(inode).copied()).collect();
                    let number = self.push(operation, UnitKind::Grow { inode: *inode, size: *size }, needs);
                    self.sizes.insert(*inode, number);
                    self.own(*inode, number);
                }
            }
            Call::SetSize { inode, size, before } => {
                let earlier = self.sizes.get(inode).copied();
                let kind = UnitKind::SetSize { inode: *inode, size: *size };
                let number = self.push_metadata(operation, kind, earlier);
                self.sizes.insert(*inode, number);
                if size < before {
                    self.remove_blocks(*inode, size / BLOCK..u64::MAX, number);
                }
                self.own(*inode, number);
            }
            Call::Zero { inode, .. }
            | Call::SetAttributes { inode, .. }
            | Call::SetExtended { inode, .. } => {
                let earlier = self.attributes.get(inode).copied();
                let kind = match call {
                    Call::Zero { .. } => UnitKind::Zero(*inode),
                    _ => UnitKind::Attributes(*inode),
                };
                let number = self.push_metadata(operation, kind, earlier);
                if let Call::Zero { offset, length, .. } = call {
                    let end = offset.saturating_add(*length).div_ceil(BLOCK);
                    self.remove_blocks(*inode, offset / BLOCK..end, number);
                }
                self.attributes.insert(*inode, number);
                self.own(*inode, number);
            }
            Call::SyncFailed { inode } if !self.rules.drops(ProgramMutant::FailedSyncCovers) => {
                self.lose_data(*inode);
            }
            Call::SyncFailed { .. } => {}
            Call::Sync { .. } | Call::SyncAll | Call::Acknowledge(_) => {}
        }
    }

    /// Notes that a unit gives a name to an inode, or takes one.
    fn name(&mut self, inode: InodeNumber, number: UnitNumber) {
        self.names_of.entry(inode).or_default().insert(number);
    }

    fn add_names(
        &mut self,
        operation: usize,
        names: Vec<(Place, Option<InodeNumber>)>,
        more: impl IntoIterator<Item = UnitNumber>,
    ) -> UnitNumber {
        let overtakes = self.rules.drops(ProgramMutant::NamesOvertake);
        let of_place = |(place, _): &(Place, _)| self.names.get(place).copied().filter(|_| !overtakes);
        let earlier = names.iter().filter_map(of_place);
        let needs: Vec<UnitNumber> = earlier.chain(more).collect();
        let places: Vec<Place> = names.iter().map(|(place, _)| place.clone()).collect();
        let number = self.push_metadata(operation, UnitKind::Names(names), needs);
        for place in places {
            self.own(place.directory, number);
            self.names.insert(place, number);
        }
        number
    }

    fn add_rename(
        &mut self,
        operation: usize,
        inode: InodeNumber,
        (from, to): (&Place, &Place),
        replaced: Option<InodeNumber>,
        exchanged: bool,
        is_directory: bool,
    ) {
        let moved = self.moved.filter(|_| is_directory);
        let replaces = replaced.is_some()
            && !exchanged
            && self.promises.orders_replacement_after_data()
            && !self.rules.drops(ProgramMutant::ReplacesEarly);
        let of_data =
            |unit: &UnitNumber| matches!(self.all[*unit].kind, UnitKind::Data { .. } | UnitKind::Grow { .. });
        let data = self.of_inode.get(&inode).into_iter().flatten().copied().filter(of_data);
        let needs: Vec<UnitNumber> = data.filter(|_| replaces).chain(moved).collect();
        let old = (from.clone(), replaced.filter(|_| exchanged));
        let new = (to.clone(), Some(inode));
        let is_one =
            from.directory == to.directory || is_directory || exchanged || self.promises.orders_metadata();
        let number = if is_one {
            self.add_names(operation, vec![old, new], needs)
        } else {
            let there = self.add_names(operation, vec![new], needs);
            self.name(inode, there);
            self.add_names(operation, vec![old], [there])
        };
        self.name(inode, number);
        replaced.iter().for_each(|replaced| self.name(*replaced, number));
        if is_directory {
            self.moved = Some(number);
        }
    }

    /// What a synchronisation call makes durable, in order.
    pub(crate) fn sync(&mut self, call: &Call) -> Vec<UnitNumber> {
        let mut durable: BTreeSet<UnitNumber> = BTreeSet::new();
        if self.rules.drops(ProgramMutant::SyncIgnored) {
            return Vec::new();
        }
        match call {
            Call::Sync { inode, data_only } => {
                let own = self.of_inode.get(inode).into_iter().flatten().copied();
                let own: Vec<UnitNumber> = own.filter(|unit| self.pending.contains(unit)).collect();
                let names = self.names_of.get(inode).into_iter().flatten().copied();
                let names: Vec<UnitNumber> = names.filter(|unit| self.pending.contains(unit)).collect();
                let is_data = |unit: &UnitNumber| !matches!(self.all[*unit].kind, UnitKind::Attributes(_));
                durable.extend(own.iter().copied().filter(|unit| !data_only || is_data(unit)));
                // Of overwritten data alone, `fdatasync` needs no metadata, and `fsync` has the time of change.
                let has_size = own.iter().any(|unit| {
                    matches!(
                        self.all[*unit].kind,
                        UnitKind::Grow { .. } | UnitKind::SetSize { .. } | UnitKind::Names(_)
                    )
                });
                let is_dirty = !names.is_empty() || has_size || !data_only && !own.is_empty();
                let covers_all =
                    self.promises.sync_covers_metadata() && !self.rules.drops(ProgramMutant::CoversOneFile);
                if is_dirty && covers_all {
                    let is_metadata = |unit: &UnitNumber| {
                        !matches!(self.all[*unit].kind, UnitKind::Data { .. } | UnitKind::Grow { .. })
                    };
                    durable.extend(self.pending.iter().copied().filter(is_metadata));
                }
                if self.promises.sync_covers_names() {
                    durable.extend(names);
                }
            }
            _ => durable.extend(self.pending.difference(&self.lost)),
        }
        self.close(&mut durable);
        if self.promises.sync_covers_names() && !self.rules.drops(ProgramMutant::ForgetsAncestors) {
            self.cover_new_ancestors(&mut durable);
        }
        for number in &durable {
            self.pending.remove(number);
            self.forget(*number);
        }
        durable.into_iter().collect()
    }

    /// Adds what these need, but for the order of metadata where a synchronisation does not keep it: Btrfs makes a file durable
    /// before what was done earlier.
    fn close(&self, durable: &mut BTreeSet<UnitNumber>) {
        let mut left: Vec<UnitNumber> = durable.iter().copied().collect();
        while let Some(number) = left.pop() {
            let order = self.only_ordered_after[number].filter(|_| self.promises.sync_covers_names());
            let unit = &self.all[number];
            // A block that is written again has what was lost of it.
            let is_lost =
                |need: &UnitNumber| self.lost.contains(need) && self.all[*need].block() != unit.block();
            for need in unit.needs.iter().copied().filter(|need| Some(*need) != order && !is_lost(need)) {
                if self.pending.contains(&need) && durable.insert(need) {
                    left.push(need);
                }
            }
        }
    }

    /// Adds the names of the directories that durable names are in, and of those that these are in.
    fn cover_new_ancestors(&self, durable: &mut BTreeSet<UnitNumber>) {
        let mut left: Vec<UnitNumber> = durable.iter().copied().collect();
        while let Some(number) = left.pop() {
            let UnitKind::Names(names) = &self.all[number].kind else { continue };
            let of_directory = |(place, _): &(Place, _)| self.names_of.get(&place.directory);
            let above = names.iter().filter_map(of_directory).flatten().copied();
            let mut found: BTreeSet<UnitNumber> = above.filter(|above| !durable.contains(above)).collect();
            self.close(&mut found);
            left.extend(found.iter().copied().filter(|found| durable.insert(*found)));
        }
    }

    /// Forgets what is known of a unit that is durable.
    fn forget(&mut self, number: UnitNumber) {
        let inodes: Vec<InodeNumber> = match &self.all[number].kind {
            UnitKind::Names(names) => {
                let directories = names.iter().map(|(place, _)| place.directory);
                directories.chain(names.iter().filter_map(|(_, inode)| *inode)).collect()
            }
            kind => kind.inode().into_iter().collect(),
        };
        for inode in inodes {
            for known in [&mut self.of_inode, &mut self.names_of] {
                if let Some(units) = known.get_mut(&inode) {
                    units.remove(&number);
                }
            }
        }
    }
}
