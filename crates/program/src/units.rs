//! *Units*: a record as what a power cut leaves or takes, piece by piece, and at which moments the power is cut.

use std::io;

use weir_storage::Rules;

use crate::mutants::ProgramMutant;
use crate::operation::Call;
use crate::promises::Promises;
use crate::record::Record;
use crate::state::StateName;
use crate::tree::{BLOCK_BYTES, Node, Tree};
use crate::unit::{SECTOR_BYTES, Unit, UnitKind, UnitNumber};
use crate::unit_builder::UnitBuilder;

const BLOCK: u64 = BLOCK_BYTES as u64;

/// What a moment is looked at for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MomentKind {
    /// Before a synchronisation call returns, or at the end. What a cut leaves between two of these moments, one at the later of
    /// them may leave, too, and more must be there then of what was acknowledged.
    Durability,
    /// Before a line is acknowledged, where something was done since the line before: all of that may be there, and the line is
    /// not yet known to anybody. Only the state that lacks nothing is looked at.
    Acknowledgement,
}

/// When the power is cut.
#[derive(Clone, Debug)]
pub struct Moment {
    /// What it is looked at for.
    pub kind: MomentKind,
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
    pub(crate) rules: Rules<ProgramMutant>,
    /// A block may be there in part.
    pub(crate) has_tears: bool,
}

impl Units {
    /// Those of a record.
    #[must_use]
    pub fn from_record(record: &Record, promises: Promises, rules: Rules<ProgramMutant>) -> Units {
        let mut builder = UnitBuilder::new(promises, rules);
        let (mut moments, mut durable, mut acknowledged) = (Vec::new(), Vec::new(), 0);
        let mut announced = 0;
        for (nth, operation) in record.operations.iter().enumerate().skip(record.setup) {
            if operation.call.is_sync() {
                // A cut before one call is not told from one before the call that comes at once behind it.
                let new = builder.sync(&operation.call);
                if !new.is_empty() {
                    let before = std::mem::replace(&mut durable, new);
                    let (kind, units) = (MomentKind::Durability, builder.all.len());
                    moments.push(Moment { kind, operations: nth, acknowledged, durable: before, units });
                }
                continue;
            }
            match operation.call {
                Call::Acknowledge(_) => {
                    let units = builder.all.len();
                    if units > announced && !rules.drops(ProgramMutant::SkipsAnnouncements) {
                        let before = std::mem::take(&mut durable);
                        let kind = MomentKind::Acknowledgement;
                        moments.push(Moment { kind, operations: nth, acknowledged, durable: before, units });
                    }
                    (announced, acknowledged) = (units, acknowledged + 1);
                }
                ref call => builder.add(nth, call),
            }
        }
        let (operations, units) = (record.operations.len(), builder.all.len());
        moments.push(Moment { kind: MomentKind::Durability, operations, acknowledged, durable, units });
        if rules.drops(ProgramMutant::AcknowledgesEarly) {
            moments.iter_mut().for_each(|moment| moment.acknowledged = acknowledged);
        }
        let has_tears =
            record.disk.as_ref().is_none_or(|disk| disk.ground.sector_bytes == SECTOR_BYTES as u64);
        Units { all: builder.all, moments, rules, has_tears }
    }

    /// The sectors that are there of a unit that is missing in a state: none, unless it is a part of a block that is torn.
    #[must_use]
    pub fn torn_sectors(&self, unit: UnitNumber, name: &StateName) -> u8 {
        let own = &self.all[unit];
        let of_block = |last: UnitNumber| last >= unit && self.all[last].block() == own.block();
        let torn = name.torn.iter().filter(|(last, _)| of_block(*last));
        torn.fold(0, |bits, (_, sectors)| bits | sectors) & own.sectors()
    }

    /// The units of what is missing that a block which is torn in `last` may have something of.
    pub(crate) fn parts_of_tear(
        &self,
        missing: &[UnitNumber],
        last: UnitNumber,
    ) -> impl Iterator<Item = &Unit> + Clone {
        let block = self.all[last].block();
        let until = missing.partition_point(|unit| *unit <= last);
        missing[..until].iter().map(|unit| &self.all[*unit]).filter(move |unit| unit.block() == block)
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
