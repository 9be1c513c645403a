//! Acceptance: a command enters the queue, and its data is the disk's own from then on (S6).

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::rc::Rc;

use weir_runtime::Instant;

use super::cache::{Cache, Entry};
use super::disk::device_error;
use super::faults::Occasion;
use super::image::{Unit, split};
use super::mutants::StorageMutant;
use super::queue::{Change, Completion, Flight, Source, Work};
use super::state::AdversaryState;
use crate::address::{BLOCK_BYTES, Extent, Lba};
use crate::capability::Discard;
use crate::command::{Command, CommandKind, Priority, SharePair, Write, WriteFlags};
use crate::error::{Rejected, StorageError};
use crate::ticket::Ticket;

impl AdversaryState {
    /// Takes a checked command into the queue; `ripe` says when it may be serviced.
    pub(super) fn accept(
        &mut self,
        command: &Command<'_>,
        ripe: impl FnOnce(&mut AdversaryState) -> Instant,
    ) -> Result<Ticket, Rejected> {
        if !self.powered {
            return Err(Rejected::Failed(StorageError::Gone));
        }
        if self.flights.len() >= self.capabilities.queue_depth as usize
            || self.faults.strikes(Occasion::Busy, &mut self.random)
        {
            return Err(Rejected::Busy);
        }
        let (kind, at) = (command.kind(), start_of(command));
        if matches!(kind, CommandKind::Write | CommandKind::Discard | CommandKind::Share)
            && !self.faults.may_write()
        {
            return Err(Rejected::Failed(device_error(kind, at, ErrorKind::ReadOnlyFilesystem)));
        }
        self.accepted += 1;
        let (ticket, completer) = Ticket::pending();
        let covers = self.cache.last_transferred();
        let work = self.work_of(command);
        let priority = self.priority_of(command);
        let ripe = ripe(self);
        self.flights.push(Flight {
            number: self.accepted,
            kind,
            at,
            ripe,
            priority,
            covers,
            completion: Rc::new(Completion::new(completer, work.changes())),
            work,
            begun: false,
        });
        Ok(ticket)
    }

    /// A bare barrier is as good as ordered where the device knows order, and simple elsewhere.
    fn priority_of(&self, command: &Command<'_>) -> Priority {
        match command {
            Command::Read { priority, .. } => *priority,
            Command::Write(write) => write.priority,
            Command::Packed(writes) if writes.iter().any(|write| write.priority == Priority::Ordered) => {
                Priority::Ordered
            }
            Command::Barrier { .. } if self.capabilities.ordered_service => Priority::Ordered,
            _ => Priority::Simple,
        }
    }

    fn work_of(&mut self, command: &Command<'_>) -> Work {
        let changes = match command {
            Command::Read { extent, .. } => return Work::Read(*extent),
            Command::Barrier { .. } => return Work::Barrier,
            Command::Flush => return Work::Flush,
            Command::Write(write) => self.changes_of(write),
            Command::Packed(writes) => writes.iter().flat_map(|write| self.changes_of(write)).collect(),
            Command::Discard(extents) => vec![self.discard_of(extents)],
            Command::Share(pairs) => {
                let atomic = !self.rules.drops(StorageMutant::ShareTorn);
                vec![plain(Source::Pairs(pairs.to_vec()), atomic)]
            }
        };
        let changes = if self.prefix() { self.receive(changes) } else { changes };
        Work::Change(changes)
    }

    /// S6: the data is copied here, and nothing that the caller does later can reach it.
    fn change_of(&mut self, write: &Write<'_>) -> Change {
        let medium = self.cache.medium();
        let unit_bytes = medium.unit_bytes();
        let mut units: Vec<(u32, Unit)> = Vec::new();
        for part in write.parts {
            let blocks = part.extent().iter().zip(part.data.bytes().chunks_exact(BLOCK_BYTES));
            units.extend(blocks.flat_map(|(lba, bytes)| medium.units_of(lba).zip(split(bytes, unit_bytes))));
        }
        if self.rules.drops(StorageMutant::PayloadLate) {
            // The caller uses its page anew, and what is in flight is read from it only now.
            for flight in &mut self.flights {
                let Work::Change(changes) = &mut flight.work else { continue };
                for change in changes {
                    let Source::Units(late) = &mut change.source else { continue };
                    late.iter_mut().zip(units.iter().cycle()).for_each(|(old, new)| old.1 = new.1.clone());
                }
            }
        }
        if self.faults.strikes(Occasion::Misdirect, &mut self.random) {
            self.misdirect(&mut units);
        }
        let small = write.blocks() <= u64::from(self.capabilities.atomic_blocks);
        let atomic = small && !self.rules.drops(StorageMutant::RequestTorn);
        let flags = write.flags;
        Change {
            source: Source::Units(units),
            flags,
            tags: write.tags.to_vec(),
            atomic,
            goes_on: false,
            key: None,
        }
    }

    /// What a write changes: of a reliable one each block for itself, which is whole (S4). The last block ends the
    /// epoch, and stands for the write in the records of order.
    fn changes_of(&mut self, write: &Write<'_>) -> Vec<Change> {
        let mut change = self.change_of(write);
        let reliable = write.flags.reliable && !self.rules.drops(StorageMutant::ReliableIgnored);
        if !reliable || self.prefix() || write.blocks() <= u64::from(self.capabilities.atomic_blocks) {
            return vec![change];
        }
        let Source::Units(units) = &change.source else { return vec![change] };
        let atomic = !self.rules.drops(StorageMutant::RequestTorn);
        let flags = WriteFlags { barrier: false, ..write.flags };
        let per_block = BLOCK_BYTES / self.cache.medium().unit_bytes();
        let of_block = |block: &[(u32, Unit)]| {
            let source = Source::Units(block.to_vec());
            Change { source, flags, tags: Vec::new(), atomic, goes_on: true, key: None }
        };
        let mut changes: Vec<Change> = units.chunks(per_block).map(of_block).collect();
        if let Some(last) = changes.last_mut() {
            (last.flags, last.goes_on, last.tags) = (change.flags, false, std::mem::take(&mut change.tags));
        }
        changes
    }

    /// The first block of the write goes to another block, one that the write does not touch.
    fn misdirect(&mut self, units: &mut [(u32, Unit)]) {
        let medium = self.cache.medium();
        let per_block = BLOCK_BYTES / medium.unit_bytes();
        let target = medium.units_of(Lba(self.random.below(medium.blocks())));
        if units.iter().all(|(number, _)| !target.contains(number)) {
            for ((number, _), wrong) in units.iter_mut().take(per_block).zip(target) {
                *number = wrong;
            }
        }
    }

    fn discard_of(&self, extents: &[Extent]) -> Change {
        let medium = self.cache.medium();
        let blocks = extents.iter().flat_map(|extent| extent.iter());
        let mut numbers: Vec<u32> = blocks.flat_map(|lba| medium.units_of(lba)).collect();
        numbers.sort_unstable();
        numbers.dedup();
        let source = match self.capabilities.discard {
            Discard::Undefined => Source::Anything(numbers),
            _ => Source::Units(numbers.into_iter().map(|number| (number, None)).collect()),
        };
        plain(source, false)
    }

    /// A prefix device orders by receipt, so a request enters the cache now, whole, and its transfer
    /// only makes it readable.
    fn receive(&mut self, mut changes: Vec<Change>) -> Vec<Change> {
        for change in &mut changes {
            let units = self.resolve(&change.source, |cache, number| cache.last_received(number).clone());
            self.last_key += 1;
            change.key = Some(self.last_key);
            let layer = if self.rules.drops(StorageMutant::PrefixHoles) { 0 } else { self.last_key };
            let atomic = !self.rules.drops(StorageMutant::RequestTorn);
            let (tags, completion) = (Vec::new(), None);
            let entry =
                Entry { number: self.accepted, units, layer, atomic, transferred: false, tags, completion };
            self.cache.enter(self.last_key, entry);
        }
        changes
    }

    /// The content that a change brings, each unit once.
    pub(super) fn resolve(
        &mut self,
        source: &Source,
        read: impl Fn(&Cache, u32) -> Unit,
    ) -> Vec<(u32, Unit)> {
        match source {
            Source::Units(units) => units.clone(),
            Source::Anything(numbers) => {
                let old = |number: u32, keep: bool| if keep { read(&self.cache, number) } else { None };
                numbers.iter().map(|&number| (number, old(number, self.random.below(2) == 0))).collect()
            }
            Source::Pairs(pairs) => {
                let medium = self.cache.medium();
                let units_of = |start: Lba, blocks: u32| {
                    Extent::new(start, blocks)
                        .iter()
                        .flat_map(|lba| medium.units_of(lba))
                        .collect::<Vec<u32>>()
                };
                let pair_units = |pair: &SharePair| {
                    let (from, to) =
                        (units_of(pair.from.start, pair.from.blocks), units_of(pair.to, pair.from.blocks));
                    to.into_iter().zip(from)
                };
                let contents =
                    pairs.iter().flat_map(pair_units).map(|(to, from)| (to, read(&self.cache, from)));
                contents.collect::<BTreeMap<u32, Unit>>().into_iter().collect()
            }
        }
    }
}

/// A change without flags and tags: a discard or a share.
fn plain(source: Source, atomic: bool) -> Change {
    Change { source, flags: WriteFlags::default(), tags: Vec::new(), atomic, goes_on: false, key: None }
}

/// Where a command starts, for its errors.
fn start_of(command: &Command<'_>) -> Lba {
    let first = match command {
        Command::Read { extent, .. } => Some(extent.start),
        Command::Write(write) => write.parts.first().map(|part| part.start),
        Command::Packed(writes) => {
            writes.first().and_then(|write| write.parts.first()).map(|part| part.start)
        }
        Command::Discard(extents) => extents.first().map(|extent| extent.start),
        Command::Share(pairs) => pairs.first().map(|pair| pair.to),
        Command::Barrier { .. } | Command::Flush => None,
    };
    first.unwrap_or_default()
}
