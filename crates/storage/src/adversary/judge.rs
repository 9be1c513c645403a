//! The judge: what the contract allows a power cut to leave (S2, S3, S4, S7), from the history of a
//! [`Witness`](super::Witness), and whether an image is that.
//!
//! A change is *required* when a version of each of its units, its own or a later one, must be found:
//! because it is durable (S2), because something of a later epoch or request is found (S3), because a
//! write behind its pre-flush is found (S2), because a part of it is found and it is atomic, or because it has
//! FUA and a write behind it in its packed command is found (S7). An image is legal when every unit holds a
//! content that was written there, and no required change is missing. Of a device that says so, a unit may hold
//! garbage where a write is not required that is neither atomic nor reliable (S4).

use std::collections::BTreeMap;

use thiserror::Error;

use super::image::Image;
use super::witness::{Candidate, History, OpId, OpRecord, Span};
use crate::address::{BLOCK_BYTES, Lba};
use crate::capability::Ordering;

/// Why a change must be found in an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Reason {
    /// It was flushed, or FUA completed (S2).
    #[error("it was durable")]
    Durable,
    /// Something behind its pre-flush is there (S2).
    #[error("something behind its pre-flush is there")]
    Preflush,
    /// Something of a later epoch is there, or durable (S3).
    #[error("something of a later epoch is there")]
    EarlierEpoch,
    /// A request received later is there, or durable (S3, prefix devices).
    #[error("a request received later is there")]
    EarlierRequest,
    /// Another part of it is there, and it is atomic (S3, S7).
    #[error("another part of it is there, and it is atomic")]
    Atomic,
    /// A write behind it in its packed command is there, and it has FUA (S7).
    #[error("a write behind it in its packed command is there, and it has FUA")]
    EarlierPart,
}

/// What an image, or the storage, does that the contract forbids.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Illegal {
    /// Content that was never written there (torn, misdirected or taken from elsewhere: S4, S6), or one that
    /// a durable version replaced so long ago that the history does not know it any more (S2).
    #[error("{0} holds data that was never written there, or that a durable version replaced")]
    Foreign(Lba),
    /// Blocks that were never written have changed.
    #[error("a block that was never written has changed")]
    Untouched,
    /// A change is missing that must be there.
    #[error("command {command} is missing at {at}: {reason}")]
    Missing {
        /// The command, counted from 1 in order of submission.
        command: u64,
        /// Where.
        at: Lba,
        /// Why it must be there.
        reason: Reason,
    },
    /// A command was serviced before one that ordered priority puts before it (S1).
    #[error("command {later} was serviced before command {earlier}, against ordered priority")]
    OutOfTurn {
        /// The command that should have been first.
        earlier: u64,
        /// The command that was.
        later: u64,
    },
}

/// An operation, with the epochs that it may belong to.
struct Fact {
    record: OpRecord,
    /// No epoch before this one is possible; counted in barriers.
    epoch_min: usize,
    /// No epoch after this one is possible.
    epoch_max: usize,
}

/// What the contract allows at one moment.
pub struct Expectation {
    ordering: Ordering,
    facts: BTreeMap<OpId, Fact>,
    units: BTreeMap<u32, Vec<Candidate>>,
    initial: Image,
    out_of_turn: Option<Illegal>,
}

/// What an image shows before single units are judged.
#[derive(Default)]
struct ImageEvidence {
    epoch: usize,
    request: Option<OpId>,
    /// Everything transferred by this look lies behind a pre-flush that is found.
    preflushed: u64,
    /// Atomic operations of which a part is found.
    parts: Vec<OpId>,
    /// By command, the last of its writes of which something is found.
    writes: BTreeMap<u64, usize>,
}

impl ImageEvidence {
    /// Whether something is found of a write that comes later in the same command.
    fn is_behind(&self, span: Span) -> bool {
        let (command, place) = span.receipt;
        self.writes.get(&command).is_some_and(|last| place < *last)
    }
}

impl Expectation {
    pub(super) fn new(history: &History) -> Expectation {
        let barriers: Vec<&OpRecord> =
            history.records.values().filter(|record| record.flags.barrier).collect();
        let fact = |record: &OpRecord| {
            let others = || barriers.iter().filter(|barrier| barrier.span.receipt != record.span.receipt);
            let surely = others().filter(|barrier| !barrier.void && barrier.span.surely_before(&record.span));
            let possibly = others().filter(|barrier| !record.span.surely_before(&barrier.span));
            let epoch_min = if record.void { 0 } else { surely.count() };
            Fact { record: record.clone(), epoch_min, epoch_max: possibly.count() }
        };
        Expectation {
            ordering: history.ordering,
            facts: history.records.iter().map(|(id, record)| (*id, fact(record))).collect(),
            units: history.units.clone(),
            initial: history.initial.clone(),
            out_of_turn: history.out_of_turn,
        }
    }

    /// Judges one image.
    ///
    /// # Errors
    /// The first thing in it that the contract forbids.
    pub fn judge(&self, image: &Image) -> Result<(), Illegal> {
        if let Some(illegal) = self.out_of_turn {
            return Err(illegal);
        }
        if image.hash_without(self.units.keys()) != self.initial.hash_without(self.units.keys()) {
            return Err(Illegal::Untouched);
        }
        let mut found = Vec::new();
        for (number, candidates) in &self.units {
            let hash = image.unit_hash(*number);
            let matching: Vec<Option<OpId>> = candidates
                .iter()
                .filter(|candidate| candidate.1 == hash)
                .map(|candidate| candidate.0)
                .collect();
            if matching.is_empty() && !candidates.iter().any(|candidate| self.garbles(candidate)) {
                return Err(Illegal::Foreign(self.block_of(*number)));
            }
            found.push(matching);
        }
        let seen = self.seen(&found);
        let required: BTreeMap<OpId, Reason> =
            self.facts.iter().filter_map(|(id, fact)| Some((*id, self.reason(*id, fact, &seen)?))).collect();
        self.units.iter().zip(&found).try_for_each(|((number, candidates), found)| {
            self.judge_unit(*number, candidates, found, &required)
        })
    }

    /// What the found contents prove. Equal contents prove only what the mildest of them does.
    fn seen(&self, found: &[Vec<Option<OpId>>]) -> ImageEvidence {
        let mut seen = ImageEvidence::default();
        for matching in found {
            let facts = || matching.iter().map(|id| self.facts.get(id.as_ref()?));
            let epoch = facts().map(|fact| fact.map_or(0, |fact| fact.epoch_min)).min();
            seen.epoch = seen.epoch.max(epoch.unwrap_or(0));
            let mildest = facts()
                .zip(matching)
                .map(|(fact, id)| id.filter(|_| fact.is_some_and(|f| !f.record.void)))
                .min();
            seen.request = seen.request.max(mildest.flatten());
            if let [Some(id)] = matching[..]
                && let Some(fact) = self.facts.get(&id).filter(|fact| !fact.record.void)
            {
                if fact.record.flags.preflush {
                    seen.preflushed = seen.preflushed.max(fact.record.span.submitted);
                }
                if fact.record.atomic {
                    seen.parts.push(id);
                }
                let (command, place) = fact.record.span.receipt;
                let last = seen.writes.entry(command).or_default();
                *last = place.max(*last);
            }
        }
        for (id, fact) in self.facts.iter().filter(|(_, fact)| fact.record.durable) {
            seen.epoch = seen.epoch.max(fact.epoch_min);
            seen.request = seen.request.max(Some(*id));
        }
        seen.parts.sort_unstable();
        seen
    }

    fn reason(&self, id: OpId, fact: &Fact, seen: &ImageEvidence) -> Option<Reason> {
        let Fact { record, epoch_max, .. } = fact;
        let reasons = [
            (record.durable, Reason::Durable),
            (record.span.transferred <= seen.preflushed, Reason::Preflush),
            (self.ordering == Ordering::Barrier && *epoch_max < seen.epoch, Reason::EarlierEpoch),
            (self.ordering == Ordering::Prefix && Some(id) < seen.request, Reason::EarlierRequest),
            (seen.parts.binary_search(&id).is_ok(), Reason::Atomic),
            (record.flags.fua && seen.is_behind(record.span), Reason::EarlierPart),
        ];
        reasons.into_iter().find(|(holds, _)| *holds && !record.void).map(|(_, reason)| reason)
    }

    /// One of the contents that the unit may hold must be no older than all that is required of it.
    fn judge_unit(
        &self,
        number: u32,
        candidates: &[Candidate],
        found: &[Option<OpId>],
        required: &BTreeMap<OpId, Reason>,
    ) -> Result<(), Illegal> {
        let replaces = |id: Option<OpId>| {
            let span = id.and_then(|id| self.facts.get(&id)).map(|fact| fact.record.span);
            let of_unit =
                candidates.iter().filter_map(|candidate| candidate.0).filter(|other| Some(*other) != id);
            of_unit.filter_map(|other| Some((other, required.get(&other)?))).find(|(other, _)| {
                let required = self.facts.get(other).map(|fact| fact.record.span);
                required
                    .is_some_and(|required| span.is_none_or(|span| span.precedes(&required, self.ordering)))
            })
        };
        if found.is_empty() {
            return self.judge_garbage(number, candidates, required);
        }
        let mut missing = None;
        for id in found {
            let Some((record, reason)) = replaces(*id) else { return Ok(()) };
            missing = Some((record, *reason));
        }
        let Some((record, reason)) = missing else { return Ok(()) };
        let command = self.facts.get(&record).map_or(0, |fact| fact.record.span.receipt.0);
        Err(Illegal::Missing { command, at: self.block_of(number), reason })
    }

    /// Whether a cut may leave garbage in place of this (S4), if nothing asks for it.
    fn garbles(&self, candidate: &Candidate) -> bool {
        candidate.0.and_then(|id| self.facts.get(&id)).is_some_and(|fact| fact.record.garbles)
    }

    /// Garbage may stand for a write that is not required, and not older than one that is.
    fn judge_garbage(
        &self,
        number: u32,
        candidates: &[Candidate],
        required: &BTreeMap<OpId, Reason>,
    ) -> Result<(), Illegal> {
        let ids = || candidates.iter().filter_map(|candidate| candidate.0);
        let span = |id: OpId| self.facts.get(&id).map(|fact| fact.record.span);
        let replaced = |id: OpId| {
            let later = ids().filter(|other| *other != id && required.contains_key(other)).filter_map(span);
            span(id).is_some_and(|old| later.clone().any(|new| old.precedes(&new, self.ordering)))
        };
        let writes = candidates.iter().filter(|candidate| self.garbles(candidate));
        let mut writes = writes.filter_map(|candidate| candidate.0);
        if writes.any(|id| !required.contains_key(&id) && !replaced(id)) {
            return Ok(());
        }
        let at = self.block_of(number);
        let needed = ids().find_map(|id| Some((self.facts.get(&id)?, *required.get(&id)?)));
        Err(needed.map_or(Illegal::Foreign(at), |(fact, reason)| Illegal::Missing {
            command: fact.record.span.receipt.0,
            at,
            reason,
        }))
    }

    fn block_of(&self, number: u32) -> Lba {
        Lba(u64::from(number) * self.initial.unit_bytes() as u64 / BLOCK_BYTES as u64)
    }
}
