//! *State*: what a power cut has left, as what is missing of all that was done by then.

use std::fmt;
use std::io;
use std::str::FromStr;

use thiserror::Error;

use crate::mutants::ProgramMutant;
use crate::operation::Call;
use crate::record::Record;
use crate::tree::Tree;
use crate::unit::{UnitNumber, union_of_sectors};
use crate::units::Units;

/// A state, as a failure names it: the moment of the cut, the units that are missing, and the blocks that are torn, each by the
/// last unit that it has something of, with the bits of the sectors that are there of all missing units up to that one.
///
/// As text: the moment, a slash, and units or ranges of them between commas; `t` and bits in hexadecimal behind one that a
/// block is torn in. `12/3..5,9t0f` is the moment 12 without the units 3, 4, 5, and all but the sectors 0 to 3 of the block
/// that 9 writes to.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct StateName {
    /// The moment, among those of the units.
    pub moment: usize,
    /// What is missing, ascending.
    pub missing: Vec<UnitNumber>,
    /// Which blocks are there in part.
    pub torn: Vec<(UnitNumber, u8)>,
}

/// A text that names no state, or a state that cannot be.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum StateNameError {
    /// It is no name.
    #[error("{0:?} names no state: it is written as 12/3..5,9t0f, as a failure has it")]
    Text(String),
    /// The record and its promises have no such state.
    #[error("the run has no such state under these promises: take name, trace and --promises of one failure")]
    NotThere,
}

impl fmt::Display for StateName {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "{}/", self.moment)?;
        let mut comma = "";
        let mut left = &self.missing[..];
        while let Some(first) = left.first() {
            let run = left.iter().zip(*first..).take_while(|(unit, expected)| **unit == *expected).count();
            match run {
                1 => write!(to, "{comma}{first}")?,
                run => write!(to, "{comma}{first}..{}", first + run - 1)?,
            }
            (comma, left) = (",", &left[run..]);
        }
        for (unit, sectors) in &self.torn {
            write!(to, "{comma}{unit}t{sectors:02x}")?;
            comma = ",";
        }
        Ok(())
    }
}

impl FromStr for StateName {
    type Err = StateNameError;

    fn from_str(text: &str) -> Result<StateName, StateNameError> {
        /// Units that a name may have.
        const UNITS_MAX: usize = 1 << 26;
        let parse = || {
            let (moment, list) = text.split_once('/')?;
            let mut name = StateName { moment: moment.parse().ok()?, ..StateName::default() };
            for part in list.split(',').filter(|part| !part.is_empty()) {
                if let Some((unit, sectors)) = part.split_once('t') {
                    name.torn.push((unit.parse().ok()?, u8::from_str_radix(sectors, 16).ok()?));
                } else {
                    let (first, last) = part.split_once("..").unwrap_or((part, part));
                    let (first, last): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
                    if first > last
                        || last >= UNITS_MAX
                        || name.missing.last().is_some_and(|end| *end >= first)
                    {
                        return None;
                    }
                    name.missing.extend(first..=last);
                }
            }
            Some(name)
        };
        parse().ok_or_else(|| StateNameError::Text(text.to_owned()))
    }
}

/// A walk over the moments of a run: what is durable at each, and what is not.
pub struct Moments<'a> {
    record: &'a Record,
    units: &'a Units,
    /// The moment; none before the first.
    at: Option<usize>,
    operations: usize,
    known: UnitNumber,
    durable: Tree,
    pending: Vec<UnitNumber>,
}

impl<'a> Moments<'a> {
    /// Before the first moment.
    ///
    /// # Errors
    /// What reading the record's bytes fails by.
    pub fn new(record: &'a Record, units: &'a Units) -> io::Result<Moments<'a>> {
        let durable = record.tree_after(record.setup)?;
        let (operations, pending) = (record.setup, Vec::new());
        Ok(Moments { record, units, at: None, operations, known: 0, durable, pending })
    }

    /// Goes to the next moment; its number, if there is one.
    ///
    /// # Errors
    /// What reading the record's bytes fails by.
    pub fn advance(&mut self) -> io::Result<Option<usize>> {
        let next = self.at.map_or(0, |at| at + 1);
        let Some(moment) = self.units.moments.get(next) else { return Ok(None) };
        for operation in &self.record.operations[self.operations..moment.operations] {
            // An inode is there as soon as a name for it is.
            if let Call::Make { inode, new, .. } = &operation.call
                && let Some(node) = new.to_node()
            {
                self.durable.insert(*inode, node);
            }
        }
        for unit in &moment.durable {
            self.units.apply(*unit, self.units.all[*unit].sectors(), self.record, &mut self.durable)?;
        }
        self.pending.extend(self.known..moment.units);
        if !moment.durable.is_empty() {
            self.pending.retain(|unit| moment.durable.binary_search(unit).is_err());
        }
        (self.at, self.operations, self.known) = (Some(next), moment.operations, moment.units);
        Ok(Some(next))
    }

    /// The units that may be missing now.
    #[must_use]
    pub fn pending(&self) -> &[UnitNumber] {
        &self.pending
    }

    /// The tree of a state at this moment.
    ///
    /// # Errors
    /// What reading the record's bytes fails by.
    pub fn tree(&self, name: &StateName) -> io::Result<Tree> {
        let mut tree = self.durable.clone();
        for unit in &self.pending {
            let is_missing = name.missing.binary_search(unit).is_ok();
            let sectors = match is_missing {
                true => self.units.torn_sectors(*unit, name),
                false => self.units.all[*unit].sectors(),
            };
            if !is_missing || sectors != 0 {
                self.units.apply(*unit, sectors, self.record, &mut tree)?;
            }
        }
        Ok(tree)
    }

    /// Whether a state can be: what is missing is pending, nothing is there that needs it, and a block that is torn has nothing
    /// of a unit that needs something else that is missing.
    #[must_use]
    pub fn allows(&self, name: &StateName) -> bool {
        let is_missing = |unit: &UnitNumber| name.missing.binary_search(unit).is_ok();
        let needs_missing = |unit: &UnitNumber| self.units.all[*unit].needs.iter().any(is_missing);
        self.at == Some(name.moment)
            && (name.torn.is_empty() || self.units.has_tears)
            && name.missing.iter().all(|unit| self.pending.binary_search(unit).is_ok())
            && self.pending.iter().all(|unit| is_missing(unit) || !needs_missing(unit))
            && name
                .torn
                .iter()
                .all(|(last, sectors)| is_missing(last) && self.allows_tear(name, *last, *sectors))
    }

    fn allows_tear(&self, name: &StateName, last: UnitNumber, sectors: u8) -> bool {
        let block = self.units.all[last].block();
        let parts = self.units.parts_of_tear(&name.missing, last);
        let is_part = |unit: &UnitNumber| *unit <= last && self.units.all[*unit].block() == block;
        let is_lost = |unit: &UnitNumber| name.missing.binary_search(unit).is_ok() && !is_part(unit);
        block.is_some()
            && (sectors & !union_of_sectors(parts.clone()) == 0
                || self.units.rules.drops(ProgramMutant::TearsAtWill))
            && !parts.flat_map(|part| &part.needs).any(is_lost)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_read_as_it_is_written() {
        for text in ["0/", "12/3..5,9,9t0f", "1/0..1", "7/4t80"] {
            assert_eq!(text.parse::<StateName>().unwrap().to_string(), text);
        }
        for text in ["", "1", "a/1", "1/2..1", "1/3,2", "1/1t100", "1/0..99999999999", "1/-1", "1/1..2t0f"] {
            assert_eq!(text.parse::<StateName>(), Err(StateNameError::Text(text.to_owned())), "{text}");
        }
    }
}
