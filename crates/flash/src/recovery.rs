//! The firmware's own recovery, from what is on flash alone: the newest whole checkpoint with the whole increments
//! behind it, then the spare areas of the pages programmed since ([`FoundPages`]), in the order of their sequence numbers.
//! [`PageReads`] counts what is read.
//!
//! Which pages are kept is the mechanism's to say ([`Kept`]). What their slots say of the [`Map`] is applied as it was
//! when they were committed, so that recovery has no rules of its own about versions.
//!
//! Recovery ends with a full checkpoint of what it found, and serves nothing before that is whole: what was
//! discarded now must not be taken for valid after the next power cut. A cut during recovery leaves the old
//! checkpoint and the same pages, so recovery begins anew and finds the same.

use std::rc::Rc;

use crate::checkpoint::{Place, Seal};
use crate::found_pages::{Filled, FoundPages};
use crate::ftl::Start;
use crate::geometry::Geometry;
use crate::map::Map;
use crate::mechanism::{Kept, Progress, Sequencer};
use crate::medium::{Content, Medium, Tag};
use crate::mutants::{FlashMutant, FlashRules};
use crate::profile::{Mechanism, Profile};
use crate::recovery_point::{Evidences, Wid};
use crate::recovery_reads::{PageReads, ReadPage, RecoveryReads};
use crate::stock::Stock;

/// What recovery found.
pub(crate) struct Recovered {
    pub(crate) start: Start,
    pub(crate) next_version: u64,
    /// The first request that was not kept, and the first that was never received (order-preserving recovery).
    pub(crate) point: Wid,
    pub(crate) next_wid: Wid,
    /// What the capacitors saved of the cache.
    pub(crate) dump: Vec<Content>,
    /// What was read for this.
    pub(crate) reads: RecoveryReads,
}

impl Recovered {
    /// What there is on a device that was never written.
    pub(crate) fn nothing(profile: &Profile, rules: FlashRules) -> Recovered {
        let start = Start {
            map: Map::new(profile.logical_pages(), rules),
            sequencer: Sequencer::new(profile.barrier.mechanism, Progress::default()),
            next_sequence: 0,
            checkpoint: (0, 0),
            filled: vec![Filled::default(); Geometry::new(profile).blocks() as usize],
        };
        Recovered {
            start,
            next_version: 1,
            point: 1,
            next_wid: 1,
            dump: Vec::new(),
            reads: RecoveryReads::default(),
        }
    }
}

/// Recovers `medium`.
pub(crate) fn recover(medium: &Medium, profile: &Profile, rules: FlashRules) -> Recovered {
    let mut reads = PageReads::new(medium);
    let newest = reads.newest();
    let number = newest.map_or(0, |place| place.full.number);
    let (mut map, seal) = loaded(newest, profile, reads.geometry(), rules);
    let mechanism = profile.barrier.mechanism;
    let found = match mechanism {
        Mechanism::OrderPreservingRecovery => {
            let stale = newest.filter(|_| rules.drops(FlashMutant::StockStale));
            let free = stale.map_or(&seal.stock, |place| &place.full.seal.stock);
            FoundPages::along(&mut reads, &seal, free, rules)
        }
        _ => FoundPages::in_all_blocks(&mut reads, seal.scan_from),
    };
    let tags = found.pages.iter().map(|page| page.spare().tag);
    let kept = Kept::from_tags(tags, seal.progress, mechanism, rules);
    let evidences = evidences(&reads, &found.pages, seal.next_wid, rules);
    let point = evidences.recovery_point(seal.next_wid);
    let mut last_version = 0;
    for page in found.pages.iter().filter(|page| kept.keeps(page.spare().tag)) {
        last_version = replay(&mut map, &reads, *page, point).max(last_version);
    }
    let dump = if rules.drops(FlashMutant::DumpForgotten) { Vec::new() } else { reads.dump() };
    let last_version = dump.iter().map(|content| content.version).max().unwrap_or(0).max(last_version);
    Recovered {
        start: Start {
            sequencer: Sequencer::new(mechanism, kept.progress()),
            map,
            next_sequence: found.next_sequence().max(seal.end),
            checkpoint: (number, seal.scan_from),
            filled: found.filled,
        },
        next_version: seal.next_version.max(last_version + 1),
        point,
        next_wid: seal.next_wid.max(evidences.end()),
        dump,
        reads: reads.total(profile.nand.read_ns.iter().max().copied().unwrap_or(0)),
    }
}

/// What pages and coalescing records say of the requests from `first` on (order-preserving recovery, phase 3).
fn evidences(reads: &PageReads<'_>, pages: &[ReadPage], first: Wid, rules: FlashRules) -> Evidences {
    let mut evidences = Evidences::new(rules);
    for page in pages.iter().filter(|page| page.spare().tag == Tag::Request) {
        let receipts = reads.slots(*page).map(|(receipt, _)| receipt);
        receipts.filter(|receipt| receipt.wid >= first).for_each(|receipt| evidences.programmed(receipt));
    }
    let records = reads.records().filter(|record| record.earlier.wid >= first);
    records.for_each(|record| evidences.recorded(*record));
    evidences
}

/// Applies what the slots of a page say of the map; the latest version among them. Of requests those before `point`
/// are kept (order-preserving recovery, phase 5).
fn replay(map: &mut Map, reads: &PageReads<'_>, page: ReadPage, point: Wid) -> u64 {
    let mut latest = 0;
    let mut left = Vec::new();
    let kept = |wid: Wid| page.spare().tag != Tag::Request || wid < point;
    for (_, change) in reads.slots(page).filter(|(receipt, _)| kept(receipt.wid)) {
        latest = latest.max(change.version());
        if !map.forgets(&change) {
            map.apply(change, &mut left);
        }
    }
    latest
}

/// The map of the newest checkpoint, an increment or a full one, and what that says besides.
fn loaded(newest: Option<&Place>, profile: &Profile, geometry: &Geometry, rules: FlashRules) -> (Map, Seal) {
    let nothing = || Seal {
        scan_from: 0,
        end: 0,
        next_version: 1,
        progress: Progress::default(),
        next_wid: 1,
        stock: Rc::new(Stock::erased(geometry)),
    };
    let empty = || Map::new(profile.logical_pages(), rules);
    let Some(place) = newest else { return (empty(), nothing()) };
    let mut map = place.full.map.as_ref().map_or_else(empty, |map| map.under(rules));
    let mut left = Vec::new();
    let increments = place.increments(rules);
    for change in increments.iter().flat_map(|increment| &increment.changes) {
        map.apply(change.change(), &mut left);
    }
    (map, increments.last().map_or(&place.full.seal, |last| &last.seal).clone())
}

#[cfg(test)]
mod tests;
