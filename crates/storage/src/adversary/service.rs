//! What happens to a command: it is accepted into the queue, serviced at a seeded moment, and its
//! effects reach the cache and the medium as S1 to S7 allow, and no better.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::rc::Rc;

use weir_runtime::{Buffer, Instant, Random};

use super::cache::{Cache, Entry, InFlight, Settled};
use super::crash::{Choice, CrashStates};
use super::disk::device_error;
use super::faults::{FaultClock, Faults, Occasion};
use super::image::{Image, Unit, spliced, split};
use super::mutant::StorageMutant;
use super::queue::{Change, Completion, Flight, Service, Source, Work, serviceable};
use crate::address::{BLOCK_BYTES, Extent, Lba};
use crate::capability::{Capabilities, Discard, Ordering};
use crate::command::{Command, CommandKind, Priority, SharePair, Tag, Write, WriteFlags};
use crate::error::{Rejected, StorageError};
use crate::recorder::Recorder;
use crate::ticket::{Completer, Ticket};

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

/// Everything that changes over the life of the disk.
pub(super) struct State {
    capabilities: Capabilities,
    mutant: Option<StorageMutant>,
    random: Random,
    faults: FaultClock,
    recorder: Option<Rc<Recorder>>,
    cache: Cache,
    flights: Vec<Flight>,
    /// Commands accepted so far.
    accepted: u64,
    /// The last key given out.
    last_key: u64,
    /// The epoch that writes are transferred into now.
    epoch: u64,
    /// Chances in 64 that the disk writes something back after a command.
    write_back_chances: u64,
    /// When the disk writes back by itself; only where tickets tell of it.
    idle_until: Option<Instant>,
    /// The page that the caller used last, for the mutant that reads it late.
    last_page: Vec<Unit>,
    powered: bool,
}

impl State {
    pub(super) fn new(
        medium: Image,
        capabilities: Capabilities,
        faults: Faults,
        mut random: Random,
        mutant: Option<StorageMutant>,
    ) -> State {
        let write_back_chances = [0, 1, 8, 32][random.below(4) as usize];
        State {
            capabilities,
            mutant,
            random,
            faults: FaultClock::new(faults),
            recorder: None,
            cache: Cache::new(medium),
            flights: Vec::new(),
            accepted: 0,
            last_key: 0,
            epoch: 0,
            write_back_chances,
            idle_until: None,
            last_page: Vec::new(),
            powered: true,
        }
    }

    pub(super) fn set_recorder(&mut self, recorder: Rc<Recorder>) {
        self.recorder = Some(recorder);
    }

    pub(super) fn view(&self) -> Image {
        self.cache.view()
    }

    fn breaks(&self, rule: StorageMutant) -> bool {
        self.mutant == Some(rule)
    }

    fn prefix(&self) -> bool {
        self.capabilities.ordering == Ordering::Prefix
    }

    /// How long the next command takes.
    pub(super) fn latency_ns(&mut self, max: u64) -> u64 {
        let delayed = self.faults.strikes(Occasion::Delay, &mut self.random);
        let delay = if delayed { self.faults.delay_ns() } else { 0 };
        self.random.below(max.saturating_add(1)).saturating_add(delay)
    }

    // ---- acceptance ----

    /// Takes a checked command into the queue; `ripe` says when it may be serviced.
    pub(super) fn accept(
        &mut self,
        command: &Command<'_>,
        ripe: impl FnOnce(&mut State) -> Instant,
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
            work,
            completer,
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
            Command::Write(write) => vec![self.change_of(write)],
            Command::Packed(writes) => writes.iter().map(|write| self.change_of(write)).collect(),
            Command::Discard(extents) => vec![self.discard_of(extents)],
            Command::Share(pairs) => {
                let atomic = !self.breaks(StorageMutant::ShareTorn);
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
        if self.mutant.is_some() {
            self.last_page = units.iter().map(|(_, unit)| unit.clone()).collect();
        }
        if self.faults.strikes(Occasion::Misdirect, &mut self.random) {
            self.misdirect(&mut units);
        }
        let small = write.blocks() <= u64::from(self.capabilities.atomic_blocks);
        let atomic = (small || write.flags.reliable) && !self.breaks(StorageMutant::RequestTorn);
        let flags = write.flags;
        Change { source: Source::Units(units), flags, tags: write.tags.to_vec(), atomic, key: None }
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
            let layer = if self.breaks(StorageMutant::PrefixHoles) { 0 } else { self.last_key };
            let atomic = !self.breaks(StorageMutant::RequestTorn);
            let (tags, completion) = (Vec::new(), None);
            let entry =
                Entry { number: self.accepted, units, layer, atomic, transferred: false, tags, completion };
            self.cache.enter(self.last_key, entry);
        }
        changes
    }

    /// The content that a change brings, each unit once.
    fn resolve(&mut self, source: &Source, read: impl Fn(&Cache, u32) -> Unit) -> Vec<(u32, Unit)> {
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

    // ---- service ----

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
        let head = ripe.iter().copied().find(|&i| self.flights[i].priority == Priority::HeadOfQueue);
        let place = head.unwrap_or_else(|| ripe[self.random.below(ripe.len() as u64) as usize]);
        let flight = self.flights.remove(place);
        let number = flight.number;
        self.service(flight);
        if self.faults.strikes(Occasion::FlipAtRest, &mut self.random) {
            self.flip_at_rest();
        }
        Done::Serviced(number)
    }

    /// Nobody asks for anything. A disk whose tickets tell of durability gets there by itself; any
    /// other one leaves its cache as it is, which is the worst that it may do.
    fn idle(&mut self, now: Instant) -> Done {
        if !self.capabilities.durable_tickets || self.cache.is_clean() {
            self.idle_until = None;
            return Done::Nothing(None);
        }
        let pause = std::time::Duration::from_nanos(1 + self.random.below(IDLE_PAUSE_NS));
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

    fn serviceable(&self) -> Vec<usize> {
        let service = Service {
            ordered: self.capabilities.ordered_service && !self.breaks(StorageMutant::OrderedIgnored),
            ordered_flush: self.capabilities.ordered_flush,
            received_before: &|key| self.cache.transferred_before(key),
        };
        serviceable(&self.flights, &service)
    }

    fn service(&mut self, flight: Flight) {
        let Flight { number, kind, at, covers, work, completer, .. } = flight;
        let failed = Err(device_error(kind, at, ErrorKind::Other));
        match work {
            Work::Read(extent) => {
                if self.faults.strikes(Occasion::Read, &mut self.random) {
                    return completer.transferred(failed);
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
                    return completer.transferred(failed);
                }
                if !self.breaks(StorageMutant::FlushLies) {
                    self.persist_through(covers);
                }
                completer.finish(Ok(()), Ok(()));
            }
            Work::Change(changes) => {
                if self.faults.strikes(Occasion::Write, &mut self.random) {
                    changes.into_iter().for_each(|change| self.fail_change(number, change));
                    return completer.transferred(failed);
                }
                self.change(number, kind, covers, changes, completer);
            }
        }
    }

    /// The flags of packed writes apply in turn.
    fn change(
        &mut self,
        number: u64,
        kind: CommandKind,
        covers: u64,
        changes: Vec<Change>,
        completer: Completer,
    ) {
        let all_fua = !changes.is_empty() && changes.iter().all(|change| change.flags.fua);
        let completion = Rc::new(Completion::new(completer, changes.len()));
        let durable = self.capabilities.durable_tickets.then_some(&completion);
        for change in changes {
            let flags = change.flags;
            if flags.preflush && !self.breaks(StorageMutant::PreflushSkipped) {
                self.persist_through(covers);
            }
            let key = self.transfer(number, change, durable);
            if flags.fua && !self.breaks(StorageMutant::FuaLies) {
                self.persist_fua(key);
            }
            let at_once = match kind {
                CommandKind::Discard => self.breaks(StorageMutant::DiscardAtOnce),
                CommandKind::Share => self.breaks(StorageMutant::ShareAtOnce),
                _ => false,
            };
            if at_once {
                let settled = self.cache.persist_write(key);
                self.settle(settled);
            }
            if flags.barrier {
                self.close_epoch();
            }
        }
        match durable {
            Some(_) => completion.completer.transferred(Ok(())),
            None if all_fua => completion.completer.finish(Ok(()), Ok(())),
            None => completion.completer.finish(Ok(()), Err(StorageError::DurabilityUnknown)),
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
        let mut units = self.resolve(&change.source, |cache, number| cache.read(number).clone());
        if self.breaks(StorageMutant::PayloadLate) && number < self.accepted && !self.last_page.is_empty() {
            for (i, (_, unit)) in units.iter_mut().enumerate() {
                *unit = self.last_page[i % self.last_page.len()].clone();
            }
        }
        let (layer, atomic, tags) = (self.layer(), change.atomic, change.tags);
        self.last_key += 1;
        self.cache.enter(
            self.last_key,
            Entry { number, units, layer, atomic, transferred: true, tags, completion },
        );
        self.last_key
    }

    /// A failed change leaves any mixture, and nobody learns of its durability.
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

    /// The layer of the crash states that a transfer falls into now.
    fn layer(&self) -> u64 {
        match self.capabilities.ordering {
            Ordering::Barrier if !self.breaks(StorageMutant::EpochsMixed) => self.epoch,
            _ => 0,
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
            Ordering::Barrier => {
                if !self.breaks(StorageMutant::FuaForgetsEpochs) {
                    self.persist_through(self.cache.last_before_layer(self.layer()));
                }
            }
        }
        let settled = self.cache.persist_write(key);
        self.settle(settled);
    }

    fn persist_through(&mut self, key: u64) {
        let settled = self.cache.persist_through(key);
        self.settle(settled);
    }

    fn settle(&self, settled: Vec<Settled>) {
        for Settled { tags, completion } in settled {
            self.record(Recorder::persisted, &tags);
            if let Some(completion) = completion {
                completion.part_durable();
            }
        }
    }

    fn give_up(&self, lost: Vec<Settled>, error: StorageError) {
        for Settled { tags, completion } in lost {
            self.record(Recorder::failed, &tags);
            if let Some(completion) = completion {
                completion.part_lost(error);
            }
        }
    }

    fn record(&self, order: fn(&Recorder, &[Tag]), tags: &[Tag]) {
        if let Some(recorder) = self.recorder.as_ref().filter(|_| !tags.is_empty()) {
            order(recorder, tags);
        }
    }

    /// The newest transferred content, or, where a write is in flight, either.
    fn read(&mut self, extent: Extent) -> Buffer {
        let mut buffer = Buffer::new(extent.bytes());
        let medium = self.cache.medium();
        let unit_bytes = medium.unit_bytes();
        let mut found: BTreeMap<u32, Unit> = extent
            .iter()
            .flat_map(|lba| medium.units_of(lba))
            .map(|number| (number, self.cache.read(number).clone()))
            .collect();
        let mut random = self.random.clone();
        for (number, unit) in self.in_flight().into_iter().flat_map(|write| write.units) {
            if let Some(seen) = found.get_mut(number)
                && random.below(2) == 0
            {
                *seen = unit.clone();
            }
        }
        self.random = random;
        for (unit, bytes) in found.values().zip(buffer.chunks_exact_mut(unit_bytes)) {
            if let Some(content) = unit {
                bytes.copy_from_slice(content.bytes(unit_bytes));
            }
        }
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

    // ---- power ----

    pub(super) fn cut_power(&mut self) {
        self.powered = false;
        for flight in &self.flights {
            flight.completer.finish(Err(StorageError::Gone), Err(StorageError::Gone));
        }
        for completion in self.cache.abandon() {
            completion.part_lost(StorageError::Gone);
        }
    }

    /// The writes that the device may be transferring now: they may persist in part. On a prefix
    /// device they are in the cache already; a share takes effect at one moment.
    fn in_flight(&self) -> Vec<InFlight<'_>> {
        if self.prefix() {
            return Vec::new();
        }
        let mut writes = Vec::new();
        for place in self.serviceable() {
            let flight = &self.flights[place];
            for change in flight.changes() {
                let held_back = change.flags.preflush && self.cache.pending_through(flight.covers);
                if held_back && !self.breaks(StorageMutant::PreflushSkipped) {
                    break;
                }
                if let Source::Units(units) = &change.source {
                    writes.push(InFlight { units, layer: self.layer(), atomic: change.atomic });
                }
                if change.flags.barrier || change.flags.fua {
                    break;
                }
            }
        }
        writes
    }

    pub(super) fn crash_states(&self) -> CrashStates {
        let mut layers = self.cache.layers(&self.in_flight());
        if self.breaks(StorageMutant::UnitTorn) {
            let unit_bytes = self.cache.medium().unit_bytes();
            for choice in layers.iter_mut().flatten() {
                if let Choice::Unit { number, versions } = choice {
                    let newest = versions.last().cloned().flatten();
                    versions.push(spliced(&newest, self.cache.medium().unit(*number), unit_bytes));
                }
            }
        }
        CrashStates::new(self.cache.medium().clone(), layers)
    }
}

/// A change without flags and tags: a discard or a share.
fn plain(source: Source, atomic: bool) -> Change {
    Change { source, flags: WriteFlags::default(), tags: Vec::new(), atomic, key: None }
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
