//! Service: a command's effects reach the cache and the medium at a seeded moment, as S1 to S7 allow,
//! and no better.

use std::io::ErrorKind;
use std::rc::Rc;
use std::time::Duration;

use weir_runtime::{Buffer, Instant};

use super::cache::Entry;
use super::disk::device_error;
use super::faults::Occasion;
use super::image::{Unit, put_unit};
use super::mutants::StorageMutant;
use super::queue::{Change, Completion, Flight, Work};
use super::state::AdversaryState;
use crate::address::{BLOCK_BYTES, Extent};
use crate::capability::Ordering;
use crate::command::Priority;
use crate::error::StorageError;
use crate::recorder::Recorder;

/// Longest pause between two idle write-backs, in nanoseconds, beyond the latency of commands.
const IDLE_PAUSE_NS: u64 = 1_000;

/// Units or writes that one idle write-back makes durable at most.
const IDLE_BATCH: u64 = 32;

/// What a step of the engine did.
pub(super) enum Done {
    /// Serviced the command with this number.
    Serviced(u64),
    /// Made something durable.
    WroteBack,
    /// Nothing; there may be something to do at this instant.
    Nothing(Option<Instant>),
    /// The power is cut: nothing will ever happen.
    PoweredOff,
}

impl AdversaryState {
    /// Services one ripe command, picked by seed among those that S1 allows, or writes something back.
    pub(super) fn step(&mut self, now: Instant) -> Done {
        if !self.powered {
            return Done::PoweredOff;
        }
        if self.flights.is_empty() {
            return self.idle(now);
        }
        if self.random.below(64) < self.write_back_chances && !self.cache.is_clean() {
            let settled = self.cache.write_back(&mut self.random);
            if !settled.is_empty() {
                self.settle(settled);
                return Done::WroteBack;
            }
        }
        let ripe: Vec<usize> =
            self.serviceable().into_iter().filter(|&i| self.flights[i].ripe <= now).collect();
        if ripe.is_empty() {
            let later = self.flights.iter().map(|flight| flight.ripe).filter(|ripe| *ripe > now);
            return Done::Nothing(later.min());
        }
        // Nothing comes between the changes of a command, where nothing has to.
        let begun = ripe.iter().copied().find(|&i| self.flights[i].begun);
        let head = || ripe.iter().copied().find(|&i| self.flights[i].priority == Priority::HeadOfQueue);
        let place = begun.or_else(head);
        let place = place.unwrap_or_else(|| ripe[self.random.below(ripe.len() as u64) as usize]);
        let flight = self.flights.remove(place);
        let number = flight.number;
        if let Some(rest) = self.service(flight) {
            self.flights.insert(place, rest);
        }
        if self.faults.strikes(Occasion::FlipAtRest, &mut self.random) {
            self.flip_at_rest();
        }
        Done::Serviced(number)
    }

    /// No commands come. A disk with durable tickets makes its cache durable by itself; any
    /// other one leaves its cache as it is, which is the worst that it may do.
    fn idle(&mut self, now: Instant) -> Done {
        if !self.capabilities.durable_tickets || self.cache.is_clean() {
            self.idle_until = None;
            return Done::Nothing(None);
        }
        let pause = Duration::from_nanos(1 + self.random.below(IDLE_PAUSE_NS));
        let until = *self.idle_until.get_or_insert(now + pause);
        if now < until {
            return Done::Nothing(Some(until));
        }
        self.idle_until = None;
        for _ in 0..=self.random.below(IDLE_BATCH) {
            let settled = self.cache.write_back(&mut self.random);
            self.settle(settled);
        }
        Done::WroteBack
    }

    /// Services a command, or the next change of one that makes several: gives back what is left of it.
    fn service(&mut self, mut flight: Flight) -> Option<Flight> {
        let Flight { number, kind, at, covers, begun, .. } = flight;
        let completer = &flight.completion.completer;
        let failed = Err(device_error(kind, at, ErrorKind::Other));
        match flight.work {
            Work::Read(extent) => {
                if self.faults.strikes(Occasion::Read, &mut self.random) {
                    completer.transferred(failed);
                    return None;
                }
                completer.data(self.read(extent));
                completer.finish(Ok(()), Ok(()));
            }
            Work::Barrier => {
                self.close_epoch();
                completer.finish(Ok(()), Ok(()));
            }
            Work::Flush => {
                let covers = if self.capabilities.ordered_flush {
                    covers.max(self.cache.last_submitted_before(number))
                } else {
                    covers
                };
                if self.faults.strikes(Occasion::Flush, &mut self.random) {
                    let lost = self.cache.lose(covers, self.prefix(), &mut self.random);
                    self.give_up(lost, device_error(kind, at, ErrorKind::Other));
                    completer.transferred(failed);
                    return None;
                }
                if !self.rules.drops(StorageMutant::FlushLies) {
                    self.persist_through(covers);
                }
                completer.finish(Ok(()), Ok(()));
            }
            Work::Change(mut changes) => {
                if !begun && self.faults.strikes(Occasion::Write, &mut self.random) {
                    changes.into_iter().for_each(|change| self.fail_change(number, change));
                    completer.transferred(failed);
                    return None;
                }
                if !changes.is_empty() {
                    let change = changes.remove(0);
                    self.change(number, covers, change, &flight.completion);
                }
                if changes.is_empty() {
                    self.changed(&flight.completion);
                } else {
                    (flight.work, flight.begun) = (Work::Change(changes), true);
                    return Some(flight);
                }
            }
        }
        None
    }

    /// Makes one change, and does what its flags say: those of packed writes apply in turn (S7).
    fn change(&mut self, number: u64, covers: u64, change: Change, completion: &Rc<Completion>) {
        let durable = self.capabilities.durable_tickets.then_some(completion);
        let flags = change.flags;
        if flags.preflush && !self.rules.drops(StorageMutant::PreflushSkipped) {
            self.persist_through(covers);
        }
        let key = self.transfer(number, change, durable);
        if flags.fua && !self.rules.drops(StorageMutant::FuaLies) {
            self.persist_fua(key);
        }
        if flags.barrier {
            self.close_epoch();
        }
        let settled = self.cache.make_room();
        self.settle(settled);
    }

    /// All changes of a command are made.
    fn changed(&self, completion: &Completion) {
        let completer = &completion.completer;
        match completion.all_fua {
            _ if self.capabilities.durable_tickets => completer.transferred(Ok(())),
            true => completer.finish(Ok(()), Ok(())),
            false => completer.finish(Ok(()), Err(StorageError::DurabilityUnknown)),
        }
    }

    /// The data of a change arrives in the cache, in the current epoch; gives back its key.
    fn transfer(&mut self, number: u64, change: Change, durable: Option<&Rc<Completion>>) -> u64 {
        let completion = durable.map(Rc::clone);
        self.record(Recorder::transferred, &change.tags);
        if let Some(key) = change.key {
            self.cache.transfer(key, change.tags, completion);
            return key;
        }
        let units = self.resolve(&change.source, |cache, number| cache.read(number).clone());
        let (layer, atomic, tags) = (self.layer(), change.atomic, change.tags);
        self.last_key += 1;
        self.cache.enter(
            self.last_key,
            Entry { number, units, layer, atomic, transferred: true, tags, completion },
        );
        self.last_key
    }

    /// A failed change leaves any mixture, and no caller learns of its durability.
    fn fail_change(&mut self, number: u64, change: Change) {
        self.record(Recorder::failed, &change.tags);
        let keep_whole = self.random.below(2) == 0;
        match change.key {
            Some(key) if keep_whole => self.cache.transfer(key, Vec::new(), None),
            Some(key) => drop(self.cache.withdraw(key)),
            None => {
                let mut units = self.resolve(&change.source, |cache, number| cache.read(number).clone());
                units.retain(|_| if change.atomic { keep_whole } else { self.random.below(2) == 0 });
                let layer = self.layer();
                self.last_key += 1;
                let (tags, completion) = (Vec::new(), None);
                let atomic = change.atomic;
                let entry = Entry { number, units, layer, atomic, transferred: true, tags, completion };
                self.cache.enter(self.last_key, entry);
            }
        }
    }

    fn close_epoch(&mut self) {
        self.epoch += 1;
    }

    /// S2: an FUA write is durable when it completes, on a barrier device after all earlier epochs,
    /// on a prefix device after everything received before it.
    fn persist_fua(&mut self, key: u64) {
        match self.capabilities.ordering {
            Ordering::Legacy => {}
            Ordering::Prefix => self.persist_through(key),
            Ordering::Barrier => self.persist_through(self.cache.last_before_layer(self.layer())),
        }
        let settled = self.cache.persist_write(key);
        self.settle(settled);
    }

    fn persist_through(&mut self, key: u64) {
        let settled = self.cache.persist_through(key);
        self.settle(settled);
    }

    /// The newest transferred content, or, where a write is in flight, either.
    fn read(&mut self, extent: Extent) -> Buffer {
        let medium = self.cache.medium();
        let unit_bytes = medium.unit_bytes();
        let mut buffer = Buffer::unfilled(extent.bytes());
        for (lba, bytes) in extent.iter().zip(buffer.chunks_exact_mut(BLOCK_BYTES)) {
            medium.read_into(lba, bytes);
        }
        let first = medium.units_of(extent.start).start;
        let units = first..first.saturating_add((extent.bytes() / unit_bytes) as u32);
        let mut put = |number: u32, unit: &Unit| {
            let from = (number - first) as usize * unit_bytes;
            put_unit(unit, &mut buffer[from..from + unit_bytes]);
        };
        self.cache.visit_transferred(units.clone(), &mut put);
        let mut random = self.random.clone();
        for (number, unit) in self.in_flight().into_iter().flat_map(|write| write.units) {
            if units.contains(number) && random.below(2) == 0 {
                put(*number, unit);
            }
        }
        self.random = random;
        if self.faults.strikes(Occasion::FlipOnRead, &mut self.random) {
            let bit = self.random.below(buffer.len() as u64 * 8);
            buffer[(bit / 8) as usize] ^= 1 << (bit % 8);
        }
        buffer
    }

    /// Inverts one bit of the medium, where something was written if a few tries find such a place.
    fn flip_at_rest(&mut self) {
        let units = self.cache.medium().blocks() * (BLOCK_BYTES / self.cache.medium().unit_bytes()) as u64;
        let draws: Vec<u64> = (0..16).map(|_| self.random.below(units)).collect();
        let written = draws.iter().find(|&&number| self.cache.medium().unit(number as u32).is_some());
        let unit_bytes = self.cache.medium().unit_bytes() as u64;
        let bit = self.random.below(unit_bytes * 8);
        let byte = written.or(draws.first()).map_or(0, |number| number * unit_bytes + bit / 8);
        self.cache.medium_mut().flip_bit(byte, (bit % 8) as u32);
    }
}
