//! The judge: what the contract allows a power cut to leave (S2, S3, S4, S7), from the notes of a
//! [`Witness`](super::Witness), and whether an image is that.
//!
//! A change is *required* when a version of each of its units, its own or a later one, must be found:
//! because it is durable (S2), because something of a later epoch or request is found (S3), because a
//! write behind its pre-flush is found (S2), or because a part of it is found and it is atomic. An image
//! is legal when every unit holds a content that was written there, and no required change is missing.

use std::collections::BTreeMap;

use thiserror::Error;

use super::image::Image;
use super::witness::{Candidate, Deed, DeedId, Notes};
use crate::address::{BLOCK_BYTES, Lba};
use crate::capability::Ordering;

/// Why a change must be found in an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// It was flushed, or FUA completed (S2).
    Durable,
    /// Something behind its pre-flush is there (S2).
    Preflush,
    /// Something of a later epoch is there, or durable (S3).
    EarlierEpoch,
    /// A request received later is there, or durable (S3, prefix devices).
    EarlierRequest,
    /// Another part of it is there, and it is atomic (S3, S7).
    Atomic,
}

/// What an image, or the storage, does that the contract forbids.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Illegal {
    /// A content that was never written there (torn, misdirected or taken from elsewhere: S4, S6), or one that
    /// a durable version replaced so long ago that the notes do not know it any more (S2).
    #[error("{0} holds a content that was never written there, or that a durable version has replaced")]
    Foreign(Lba),
    /// Blocks that were never written have changed.
    #[error("a block that was never written has changed")]
    Untouched,
    /// A change is missing that must be there.
    #[error("command {command} is missing at {at}: {reason:?}")]
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

/// A deed, with the epochs that it may belong to.
struct Fact {
    deed: Deed,
    /// No epoch before this one is possible; counted in barriers.
    epoch_min: usize,
    /// No epoch after this one is possible.
    epoch_max: usize,
}

/// What the contract allows at one moment.
pub struct Expectation {
    ordering: Ordering,
    facts: BTreeMap<DeedId, Fact>,
    units: BTreeMap<u32, Vec<Candidate>>,
    initial: Image,
    out_of_turn: Option<Illegal>,
}

/// What an image shows before single units are judged.
#[derive(Default)]
struct Seen {
    epoch: usize,
    request: Option<DeedId>,
    /// Everything transferred by this look lies behind a pre-flush that is found.
    preflushed: u64,
    /// Atomic deeds of which a part is found.
    parts: Vec<DeedId>,
}

impl Expectation {
    pub(super) fn new(notes: &Notes) -> Expectation {
        let barriers: Vec<&Deed> = notes.deeds.values().filter(|deed| deed.flags.barrier).collect();
        let fact = |deed: &Deed| {
            let others = || barriers.iter().filter(|barrier| barrier.span.receipt != deed.span.receipt);
            let surely = others().filter(|barrier| !barrier.void && barrier.span.surely_before(&deed.span));
            let possibly = others().filter(|barrier| !deed.span.surely_before(&barrier.span));
            let epoch_min = if deed.void { 0 } else { surely.count() };
            Fact { deed: deed.clone(), epoch_min, epoch_max: possibly.count() }
        };
        Expectation {
            ordering: notes.ordering,
            facts: notes.deeds.iter().map(|(id, deed)| (*id, fact(deed))).collect(),
            units: notes.units.clone(),
            initial: notes.initial.clone(),
            out_of_turn: notes.out_of_turn,
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
            let matching: Vec<Option<DeedId>> = candidates
                .iter()
                .filter(|candidate| candidate.1 == hash)
                .map(|candidate| candidate.0)
                .collect();
            if matching.is_empty() {
                return Err(Illegal::Foreign(self.block_of(*number)));
            }
            found.push(matching);
        }
        let seen = self.seen(&found);
        let required: BTreeMap<DeedId, Reason> =
            self.facts.iter().filter_map(|(id, fact)| Some((*id, self.reason(*id, fact, &seen)?))).collect();
        self.units.iter().zip(&found).try_for_each(|((number, candidates), found)| {
            self.judge_unit(*number, candidates, found, &required)
        })
    }

    /// What the found contents prove. Equal contents prove only what the mildest of them does.
    fn seen(&self, found: &[Vec<Option<DeedId>>]) -> Seen {
        let mut seen = Seen::default();
        for matching in found {
            let facts = || matching.iter().map(|id| self.facts.get(id.as_ref()?));
            let epoch = facts().map(|fact| fact.map_or(0, |fact| fact.epoch_min)).min();
            seen.epoch = seen.epoch.max(epoch.unwrap_or(0));
            let mildest = facts()
                .zip(matching)
                .map(|(fact, id)| id.filter(|_| fact.is_some_and(|f| !f.deed.void)))
                .min();
            seen.request = seen.request.max(mildest.flatten());
            if let [Some(id)] = matching[..]
                && let Some(fact) = self.facts.get(&id).filter(|fact| !fact.deed.void)
            {
                if fact.deed.flags.preflush {
                    seen.preflushed = seen.preflushed.max(fact.deed.span.submitted);
                }
                if fact.deed.atomic {
                    seen.parts.push(id);
                }
            }
        }
        for (id, fact) in self.facts.iter().filter(|(_, fact)| fact.deed.durable) {
            seen.epoch = seen.epoch.max(fact.epoch_min);
            seen.request = seen.request.max(Some(*id));
        }
        seen.parts.sort_unstable();
        seen
    }

    fn reason(&self, id: DeedId, fact: &Fact, seen: &Seen) -> Option<Reason> {
        let Fact { deed, epoch_max, .. } = fact;
        let reasons = [
            (deed.durable, Reason::Durable),
            (deed.span.transferred <= seen.preflushed, Reason::Preflush),
            (self.ordering == Ordering::Barrier && *epoch_max < seen.epoch, Reason::EarlierEpoch),
            (self.ordering == Ordering::Prefix && Some(id) < seen.request, Reason::EarlierRequest),
            (seen.parts.binary_search(&id).is_ok(), Reason::Atomic),
        ];
        reasons.into_iter().find(|(holds, _)| *holds && !deed.void).map(|(_, reason)| reason)
    }

    /// One of the contents that the unit may hold must be no older than all that is required of it.
    fn judge_unit(
        &self,
        number: u32,
        candidates: &[Candidate],
        found: &[Option<DeedId>],
        required: &BTreeMap<DeedId, Reason>,
    ) -> Result<(), Illegal> {
        let replaces = |id: Option<DeedId>| {
            let span = id.and_then(|id| self.facts.get(&id)).map(|fact| fact.deed.span);
            let of_unit =
                candidates.iter().filter_map(|candidate| candidate.0).filter(|other| Some(*other) != id);
            of_unit.filter_map(|other| Some((other, required.get(&other)?))).find(|(other, _)| {
                let required = self.facts.get(other).map(|fact| fact.deed.span);
                required
                    .is_some_and(|required| span.is_none_or(|span| span.precedes(&required, self.ordering)))
            })
        };
        let mut missing = None;
        for id in found {
            let Some((deed, reason)) = replaces(*id) else { return Ok(()) };
            missing = Some((deed, *reason));
        }
        let Some((deed, reason)) = missing else { return Ok(()) };
        let command = self.facts.get(&deed).map_or(0, |fact| fact.deed.span.receipt.0);
        Err(Illegal::Missing { command, at: self.block_of(number), reason })
    }

    fn block_of(&self, number: u32) -> Lba {
        Lba(u64::from(number) * self.initial.unit_bytes() as u64 / BLOCK_BYTES as u64)
    }
}
