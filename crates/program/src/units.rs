//! *Units*: a record as what a power cut leaves or takes, piece by piece, and at which moments the power is cut.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::ops::Range;

use weir_vfs::InodeNumber;

use crate::operation::{Call, Place};
use crate::promises::Promises;
use crate::record::Record;
use crate::tree::{BLOCK_BYTES, Node, Tree};

const BLOCK: u64 = BLOCK_BYTES as u64;
/// A disk writes a sector whole, or not at all.
pub const SECTOR_BYTES: usize = 512;

/// A unit, by its place in the order of the calls.
pub type UnitNumber = usize;

/// What a unit is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UnitKind {
    /// Bytes within one block of a file.
    Data {
        /// The file.
        inode: InodeNumber,
        /// Where in the file.
        offset: u64,
        /// Where among the bytes of the record.
        data: Range<u64>,
    },
    /// A size that a write has made.
    Grow {
        /// The file.
        inode: InodeNumber,
        /// The size.
        size: u64,
    },
    /// A size that was set.
    SetSize {
        /// The file.
        inode: InodeNumber,
        /// The size.
        size: u64,
    },
    /// Names that change together.
    Names(Vec<(Place, Option<InodeNumber>)>),
    /// Zeros in the place of data.
    Zero(InodeNumber),
    /// Attributes, as the call has them.
    Attributes(InodeNumber),
}

impl UnitKind {
    /// The inode that it is a part of; none of names.
    #[must_use]
    pub fn inode(&self) -> Option<InodeNumber> {
        match self {
            UnitKind::Data { inode, .. }
            | UnitKind::Grow { inode, .. }
            | UnitKind::SetSize { inode, .. }
            | UnitKind::Zero(inode)
            | UnitKind::Attributes(inode) => Some(*inode),
            UnitKind::Names(_) => None,
        }
    }
}

/// A piece of a call.
#[derive(Clone, Debug)]
pub struct Unit {
    /// The call, by its place in the record.
    pub operation: usize,
    /// What it is.
    pub kind: UnitKind,
    /// Those that are there if this one is: all have lower numbers.
    pub needs: Vec<UnitNumber>,
}

impl Unit {
    /// The sectors that it writes to, as bits; none of what is no data.
    #[must_use]
    pub fn sectors(&self) -> u8 {
        match &self.kind {
            UnitKind::Data { offset, data, .. } => {
                let first = (offset % BLOCK) as usize / SECTOR_BYTES;
                let end =
                    ((offset % BLOCK) as usize + (data.end - data.start) as usize).div_ceil(SECTOR_BYTES);
                (first..end.min(8)).fold(0, |bits, sector| bits | 1 << sector)
            }
            _ => 0,
        }
    }
}

/// When the power is cut: before a synchronisation call returns, and at the end. What a cut leaves between two of these
/// moments, one at the later of them may leave, too, and more must be there then of what was acknowledged.
#[derive(Clone, Debug)]
pub struct Moment {
    /// Calls that were made by then.
    pub operations: usize,
    /// Lines that were acknowledged by then.
    pub acknowledged: usize,
    /// Units that have become durable since the moment before.
    pub durable: Vec<UnitNumber>,
    /// Units by then, durable or not.
    pub units: UnitNumber,
}

/// A record as units, under a set of promises.
#[derive(Debug)]
pub struct Units {
    /// All, in the order of the calls.
    pub all: Vec<Unit>,
    /// The moments, in order.
    pub moments: Vec<Moment>,
}

/// The chains of units of which a later one needs the earlier one, and what is not durable yet.
struct Builder {
    promises: Promises,
    all: Vec<Unit>,
    pending: BTreeSet<UnitNumber>,
    names: BTreeMap<Place, UnitNumber>,
    blocks: BTreeMap<(InodeNumber, u64), UnitNumber>,
    sizes: BTreeMap<InodeNumber, UnitNumber>,
    attributes: BTreeMap<InodeNumber, UnitNumber>,
    /// The last unit that cut a file.
    cuts: BTreeMap<InodeNumber, UnitNumber>,
    /// Of directories that move, the last one: so they form no circle.
    moved: Option<UnitNumber>,
    /// The last one of metadata.
    metadata: Option<UnitNumber>,
    /// Data and sizes of a file that are pending, and names that stand for it, or are in it.
    of_inode: BTreeMap<InodeNumber, BTreeSet<UnitNumber>>,
    names_of: BTreeMap<InodeNumber, BTreeSet<UnitNumber>>,
}

impl Units {
    /// Those of a record.
    #[must_use]
    pub fn from_record(record: &Record, promises: Promises) -> Units {
        let mut builder = Builder {
            promises,
            all: Vec::new(),
            pending: BTreeSet::new(),
            names: BTreeMap::new(),
            blocks: BTreeMap::new(),
            sizes: BTreeMap::new(),
            attributes: BTreeMap::new(),
            cuts: BTreeMap::new(),
            moved: None,
            metadata: None,
            of_inode: BTreeMap::new(),
            names_of: BTreeMap::new(),
        };
        let (mut moments, mut durable, mut acknowledged) = (Vec::new(), Vec::new(), 0);
        for (nth, operation) in record.operations.iter().enumerate().skip(record.setup) {
            if operation.call.is_sync() {
                // A cut before one call is not told from one before the call that comes at once behind it.
                let new = builder.sync(&operation.call);
                if !new.is_empty() {
                    let units = builder.all.len();
                    let before = std::mem::replace(&mut durable, new);
                    moments.push(Moment { operations: nth, acknowledged, durable: before, units });
                }
                continue;
            }
            match operation.call {
                Call::Acknowledge(_) => acknowledged += 1,
                ref call => builder.add(nth, call),
            }
        }
        let (operations, units) = (record.operations.len(), builder.all.len());
        moments.push(Moment { operations, acknowledged, durable, units });
        Units { all: builder.all, moments }
    }

    /// Does a unit to a tree. Of one that is torn, `sectors` has the bits of those that are there.
    ///
    /// # Errors
    /// What reading the record's bytes fails by.
    pub fn apply(&self, number: UnitNumber, sectors: u8, record: &Record, tree: &mut Tree) -> io::Result<()> {
        let unit = &self.all[number];
        match &unit.kind {
            UnitKind::Data { inode, offset, data } => {
                let bytes = record.data.read(data)?;
                let Some(file) = tree.node_mut(*inode).and_then(Node::file_mut) else { return Ok(()) };
                if sectors == unit.sectors() {
                    file.write(*offset, &bytes);
                    return Ok(());
                }
                let (start, end) = (offset % BLOCK, offset % BLOCK + bytes.len() as u64);
                for sector in (0..8_u64).filter(|sector| sectors & 1 << sector != 0) {
                    let from = (sector * SECTOR_BYTES as u64).max(start);
                    let to = ((sector + 1) * SECTOR_BYTES as u64).min(end);
                    file.write(offset - start + from, &bytes[(from - start) as usize..(to - start) as usize]);
                }
            }
            UnitKind::Grow { inode, size } => {
                if let Some(file) = tree.node_mut(*inode).and_then(Node::file_mut) {
                    file.grow(*size);
                }
            }
            UnitKind::Names(names) => {
                for (place, inode) in names {
                    tree.set_name(place.directory, &place.name, *inode);
                }
            }
            UnitKind::SetSize { .. } | UnitKind::Zero(_) | UnitKind::Attributes(_) => {
                record.operations[unit.operation].call.apply(tree, &[]);
            }
        }
        Ok(())
    }
}

impl Builder {
    fn push(
        &mut self,
        operation: usize,
        kind: UnitKind,
        needs: impl IntoIterator<Item = UnitNumber>,
    ) -> UnitNumber {
        let number = self.all.len();
        let needs: BTreeSet<UnitNumber> = needs.into_iter().collect();
        let needs = needs.into_iter().filter(|need| self.pending.contains(need)).collect();
        self.all.push(Unit { operation, kind, needs });
        self.pending.insert(number);
        number
    }

    /// Notes that a unit is one of an inode's own: `fsync` of it makes it durable.
    fn own(&mut self, inode: InodeNumber, number: UnitNumber) {
        self.of_inode.entry(inode).or_default().insert(number);
    }

    /// What metadata needs besides, where it becomes durable in order.
    fn before_metadata(&self) -> Option<UnitNumber> {
        self.metadata.filter(|_| self.promises.orders_metadata())
    }

    fn add(&mut self, operation: usize, call: &Call) {
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
                    let cut = self.cuts.get(inode).copied().filter(|_| self.promises.orders_metadata());
                    let number = self.push(operation, piece, earlier.into_iter().chain(cut));
                    self.blocks.insert((*inode, at / BLOCK), number);
                    self.own(*inode, number);
                    needs.push(number);
                    at = end;
                }
                if let Some(size) = grown {
                    let needs = needs.into_iter().filter(|_| self.promises.orders_size_after_data());
                    let needs: Vec<UnitNumber> = needs.chain(self.sizes.get(inode).copied()).collect();
                    let number = self.push(operation, UnitKind::Grow { inode: *inode, size: *size }, needs);
                    self.sizes.insert(*inode, number);
                    self.own(*inode, number);
                }
            }
            Call::SetSize { inode, size, before } => {
                let needs = self.sizes.get(inode).copied().into_iter().chain(self.before_metadata());
                let needs: Vec<UnitNumber> = needs.collect();
                let number = self.push(operation, UnitKind::SetSize { inode: *inode, size: *size }, needs);
                self.sizes.insert(*inode, number);
                if size < before {
                    self.cuts.insert(*inode, number);
                }
                self.own(*inode, number);
                self.metadata = Some(number);
            }
            Call::Zero { inode, .. }
            | Call::SetAttributes { inode, .. }
            | Call::SetExtended { inode, .. } => {
                let earlier = self.attributes.get(inode).copied();
                let needs: Vec<UnitNumber> = earlier.into_iter().chain(self.before_metadata()).collect();
                let kind = match call {
                    Call::Zero { .. } => UnitKind::Zero(*inode),
                    _ => UnitKind::Attributes(*inode),
                };
                let number = self.push(operation, kind, needs);
                self.attributes.insert(*inode, number);
                self.own(*inode, number);
                self.metadata = Some(number);
            }
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
        let earlier = names.iter().filter_map(|(place, _)| self.names.get(place).copied());
        let needs: Vec<UnitNumber> = earlier.chain(self.before_metadata()).chain(more).collect();
        let places: Vec<Place> = names.iter().map(|(place, _)| place.clone()).collect();
        let number = self.push(operation, UnitKind::Names(names), needs);
        for place in places {
            self.own(place.directory, number);
            self.names.insert(place, number);
        }
        self.metadata = Some(number);
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
        let replaces = replaced.is_some() && !exchanged && self.promises.orders_replacement_after_data();
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
    fn sync(&mut self, call: &Call) -> Vec<UnitNumber> {
        let mut durable: BTreeSet<UnitNumber> = BTreeSet::new();
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
                if is_dirty && self.promises.sync_covers_metadata() {
                    let is_metadata = |unit: &UnitNumber| {
                        !matches!(self.all[*unit].kind, UnitKind::Data { .. } | UnitKind::Grow { .. })
                    };
                    durable.extend(self.pending.iter().copied().filter(is_metadata));
                }
                if self.promises.sync_covers_names() {
                    durable.extend(names);
                }
            }
            _ => durable.clone_from(&self.pending),
        }
        self.close(&mut durable);
        for number in &durable {
            self.pending.remove(number);
            self.forget(*number);
        }
        durable.into_iter().collect()
    }

    /// Adds what these need of their own chains. The order of metadata is left out: Btrfs makes a file durable before
    /// what was done earlier.
    fn close(&self, durable: &mut BTreeSet<UnitNumber>) {
        let mut left: Vec<UnitNumber> = durable.iter().copied().collect();
        while let Some(number) = left.pop() {
            for need in self.chain_of(number) {
                if self.pending.contains(&need) && durable.insert(need) {
                    left.push(need);
                }
            }
        }
    }

    /// What a unit needs, but for the order of metadata where a synchronisation does not keep it.
    fn chain_of(&self, number: UnitNumber) -> impl Iterator<Item = UnitNumber> + '_ {
        let unit = &self.all[number];
        let keeps_order = !self.promises.sync_covers_names();
        let shares_chain = move |other: &UnitNumber| match (&unit.kind, &self.all[*other].kind) {
            (UnitKind::Names(names), UnitKind::Names(others)) => {
                names.iter().any(|(place, _)| others.iter().any(|(other, _)| other == place))
            }
            (kind, other) => kind.inode().is_some() && kind.inode() == other.inode(),
        };
        unit.needs.iter().copied().filter(move |need| keeps_order || shares_chain(need))
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
