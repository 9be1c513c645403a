//! The state of the disk: its queue, its cache, its faults, and what a power cut would find.

use std::rc::Rc;

use weir_runtime::{Instant, Random};

use super::cache::{Cache, InFlight, Settled};
use super::crash::{Choice, CrashStates};
use super::faults::{FaultClock, Faults, Occasion};
use super::image::{Image, spliced};
use super::mutants::StorageMutant;
use super::queue::{Flight, Service, Source, serviceable};
use crate::capability::{Capabilities, Ordering};
use crate::command::Tag;
use crate::error::StorageError;
use crate::recorder::Recorder;
use crate::rules::Rules;

/// Everything that changes over the life of the disk.
pub(super) struct AdversaryState {
    pub(super) capabilities: Capabilities,
    pub(super) rules: Rules<StorageMutant>,
    pub(super) random: Random,
    pub(super) faults: FaultClock,
    pub(super) recorder: Option<Rc<Recorder>>,
    pub(super) cache: Cache,
    pub(super) flights: Vec<Flight>,
    /// Commands accepted so far.
    pub(super) accepted: u64,
    /// The last key given out.
    pub(super) last_key: u64,
    /// The epoch that writes are transferred into now.
    pub(super) epoch: u64,
    /// Chances in 64 that the disk writes something back after a command.
    pub(super) write_back_chances: u64,
    /// When the disk writes back by itself; only where tickets tell of it.
    pub(super) idle_until: Option<Instant>,
    pub(super) powered: bool,
}

impl AdversaryState {
    pub(super) fn new(
        medium: Image,
        capabilities: Capabilities,
        faults: Faults,
        mut random: Random,
        rules: Rules<StorageMutant>,
    ) -> AdversaryState {
        let write_back_chances = [0, 1, 8, 32][random.below(4) as usize];
        AdversaryState {
            capabilities,
            rules,
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
            powered: true,
        }
    }

    pub(super) fn set_recorder(&mut self, recorder: Rc<Recorder>) {
        self.recorder = Some(recorder);
    }

    pub(super) fn view(&self) -> Image {
        self.cache.view()
    }

    pub(super) fn prefix(&self) -> bool {
        self.capabilities.ordering == Ordering::Prefix
    }

    /// How long the next command takes.
    pub(super) fn latency_ns(&mut self, max: u64) -> u64 {
        let delayed = self.faults.strikes(Occasion::Delay, &mut self.random);
        let delay = if delayed { self.faults.delay_ns() } else { 0 };
        self.random.below(max.saturating_add(1)).saturating_add(delay)
    }

    /// The layer of the crash states that a transfer falls into now.
    pub(super) fn layer(&self) -> u64 {
        match self.capabilities.ordering {
            Ordering::Barrier if !self.rules.drops(StorageMutant::EpochsMixed) => self.epoch,
            _ => 0,
        }
    }

    /// The places of the commands that S1 and S2 allow to be serviced now.
    pub(super) fn serviceable(&self) -> Vec<usize> {
        let service = Service {
            ordered: self.capabilities.ordered_service && !self.rules.drops(StorageMutant::OrderedIgnored),
            ordered_flush: self.capabilities.ordered_flush,
            received_before: &|key| self.cache.transferred_before(key),
        };
        serviceable(&self.flights, &service)
    }

    /// These writes are durable.
    pub(super) fn settle(&self, settled: Vec<Settled>) {
        for Settled { tags, completion } in settled {
            self.record(Recorder::persisted, &tags);
            if let Some(completion) = completion {
                completion.part_durable();
            }
        }
    }

    /// These writes never will be.
    pub(super) fn give_up(&self, lost: Vec<Settled>, error: StorageError) {
        for Settled { tags, completion } in lost {
            self.record(Recorder::failed, &tags);
            if let Some(completion) = completion {
                completion.part_lost(error);
            }
        }
    }

    pub(super) fn record(&self, order: fn(&Recorder, &[Tag]), tags: &[Tag]) {
        if let Some(recorder) = self.recorder.as_ref().filter(|_| !tags.is_empty()) {
            order(recorder, tags);
        }
    }

    pub(super) fn cut_power(&mut self) {
        self.powered = false;
        for flight in &self.flights {
            flight.completion.completer.finish(Err(StorageError::Gone), Err(StorageError::Gone));
        }
        for completion in self.cache.abandon() {
            completion.part_lost(StorageError::Gone);
        }
    }

    /// The writes that the device may be transferring now: they may persist in part. On a prefix
    /// device they are in the cache already; a share takes effect at one moment.
    pub(super) fn in_flight(&self) -> Vec<InFlight<'_>> {
        if self.prefix() {
            return Vec::new();
        }
        let mut writes = Vec::new();
        for place in self.serviceable() {
            let flight = &self.flights[place];
            for change in flight.changes() {
                let held_back = change.flags.preflush && self.cache.pending_through(flight.covers);
                if held_back && !self.rules.drops(StorageMutant::PreflushSkipped) {
                    break;
                }
                if let Source::Units(units) = &change.source {
                    writes.push(InFlight { units, layer: self.layer(), atomic: change.atomic });
                }
                let fua = change.flags.fua && !self.rules.drops(StorageMutant::PackedTogether);
                if !change.goes_on && (change.flags.barrier || fua) {
                    break;
                }
            }
        }
        writes
    }

    pub(super) fn crash_states(&self) -> CrashStates {
        let mut layers = self.cache.layers(&self.in_flight(), self.capabilities.corrupts_when_cut);
        if self.rules.drops(StorageMutant::UnitTorn) {
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
