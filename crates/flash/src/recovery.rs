//! The firmware's own recovery, from what is on flash alone: the newest whole checkpoint with the whole increments
//! behind it, then the spare areas of all pages programmed since, in the order of their sequence numbers.
//!
//! Which pages are kept is the mechanism's to say ([`Kept`]). What their slots say of the [`Map`] is applied as it was
//! when they were committed, so that recovery has no rules of its own about versions.
//!
//! Recovery ends with a full checkpoint of what it found, and serves nothing before that is whole: what was
//! discarded now must not be taken for valid after the next power cut. A cut during recovery leaves the old
//! checkpoint and the same pages, so recovery begins anew and finds the same.

use std::collections::BTreeSet;

use crate::checkpoint::{Full, Increment, Place, Seal};
use crate::ftl::Start;
use crate::geometry::{EraseBlock, Geometry, Page, Slot};
use crate::map::{Change, Map};
use crate::mechanism::{Kept, Progress, Sequencer};
use crate::medium::{Content, Medium, Spare, Tag};
use crate::mutants::{FlashMutant, FlashRules};
use crate::profile::Profile;
use crate::recovery_point::{Evidences, Wid};

/// What recovery found.
pub(crate) struct Recovered {
    pub(crate) start: Start,
    pub(crate) next_version: u64,
    /// The first request that was not kept, and the first that was never received (order-preserving recovery).
    pub(crate) point: Wid,
    pub(crate) next_wid: Wid,
    /// What the capacitors saved of the cache.
    pub(crate) dump: Vec<Content>,
    /// Time to read all this.
    pub(crate) time_ns: u64,
}

impl Recovered {
    /// What there is on a device that was never written.
    pub(crate) fn nothing(profile: &Profile, rules: FlashRules) -> Recovered {
        let start = Start {
            map: Map::new(profile.logical_pages(), rules),
            sequencer: Sequencer::new(profile.barrier.mechanism, Progress::default()),
            next_sequence: 0,
            checkpoint: (0, 0),
        };
        Recovered { start, next_version: 1, point: 1, next_wid: 1, dump: Vec::new(), time_ns: 0 }
    }
}

/// Recovers `medium`.
pub(crate) fn recover(medium: &Medium, profile: &Profile, rules: FlashRules) -> Recovered {
    let newest = medium.system.newest();
    let number = newest.map_or(0, |place| place.full.number);
    let (mut map, seal) = loaded(medium, newest, profile.logical_pages(), rules);
    let pages = pages_since(medium, seal.scan_from, rules);
    let tags = pages.iter().map(|(_, spare)| spare.tag);
    let mechanism = profile.barrier.mechanism;
    let kept = Kept::of(tags, seal.progress, mechanism, rules);
    let evidences = evidences(medium, &pages, seal.next_wid, rules);
    let point = evidences.recovery_point(seal.next_wid);
    let mut last_version = 0;
    for (page, spare) in pages.iter().filter(|(_, spare)| kept.keeps(spare.tag)) {
        last_version = replay(&mut map, medium, (*page, spare), point, rules).max(last_version);
    }
    let all = all_pages(medium).filter(|(_, spare)| spare.tag != Tag::Torn);
    let next_sequence = all.map(|(_, spare)| spare.sequence + 1).max().unwrap_or(0).max(seal.end);
    let dump = medium.dump.as_ref().filter(|_| !rules.drops(FlashMutant::DumpForgotten));
    let dump: Vec<Content> = dump.map(|dump| dump.to_vec()).unwrap_or_default();
    let last_version = dump.iter().map(|content| content.version).max().unwrap_or(0).max(last_version);
    Recovered {
        start: Start {
            sequencer: Sequencer::new(mechanism, kept.progress()),
            map,
            next_sequence,
            checkpoint: (number, seal.scan_from),
        },
        next_version: seal.next_version.max(last_version + 1),
        point,
        next_wid: seal.next_wid.max(evidences.end()),
        dump,
        time_ns: reading_ns(profile, medium, &pages, rules),
    }
}

/// Whether recovery looks at the pages of a block at all. The mutant takes a summary page that is torn for one that names
/// none; rightly, the spare areas of the other pages are read then.
fn is_listed(medium: &Medium, page: Page, rules: FlashRules) -> bool {
    let Geometry { pages_per_block, data_pages_per_block, .. } = *medium.geometry();
    if data_pages_per_block == pages_per_block || !rules.drops(FlashMutant::TornSummaryTrusted) {
        return true;
    }
    let summary = medium.block(medium.geometry().block_of(page)).spare(data_pages_per_block);
    summary.is_none_or(|spare| spare.tag != Tag::Torn)
}

fn all_pages(medium: &Medium) -> impl Iterator<Item = (Page, Spare)> {
    let geometry = *medium.geometry();
    (0..geometry.blocks()).map(EraseBlock).flat_map(move |block| {
        let pages = 0..medium.block(block).programmed();
        pages.filter_map(move |nth| Some((geometry.page(block, nth), *medium.block(block).spare(nth)?)))
    })
}

/// The readable pages with a sequence number from `from` on, in the order of these.
fn pages_since(medium: &Medium, from: u64, rules: FlashRules) -> Vec<(Page, Spare)> {
    let readable = all_pages(medium).filter(|(_, spare)| spare.tag != Tag::Torn && spare.sequence >= from);
    let mut pages: Vec<(Page, Spare)> =
        readable.filter(|(page, _)| is_listed(medium, *page, rules)).collect();
    if !rules.drops(FlashMutant::VersionIgnored) {
        pages.sort_unstable_by_key(|(_, spare)| spare.sequence);
    }
    pages
}

/// What pages and coalescing records say of the requests from `first` on (order-preserving recovery, phase 3).
fn evidences(medium: &Medium, pages: &[(Page, Spare)], first: Wid, rules: FlashRules) -> Evidences {
    let mut evidences = Evidences::new(rules);
    for (page, spare) in pages.iter().filter(|(_, spare)| spare.tag == Tag::Request) {
        let slots = (0..u32::from(spare.used)).map(|nth| medium.geometry().slot(*page, nth));
        let receipts = slots.map(|slot| medium.receipt(slot));
        receipts.filter(|receipt| receipt.wid >= first).for_each(|receipt| evidences.programmed(receipt));
    }
    let records = medium.system.records().iter().flat_map(|page| page.iter());
    records.filter(|record| record.earlier.wid >= first).for_each(|record| evidences.recorded(*record));
    evidences
}

/// Applies what the slots of a page say of the map; the latest version among them. Of requests those before `point`
/// are kept (order-preserving recovery, phase 5).
fn replay(
    map: &mut Map,
    medium: &Medium,
    (page, spare): (Page, &Spare),
    point: Wid,
    rules: FlashRules,
) -> u64 {
    let mut latest = 0;
    let mut left = Vec::new();
    let slots = (0..u32::from(spare.used)).map(|nth| medium.geometry().slot(page, nth));
    for slot in slots.filter(|slot| spare.tag != Tag::Request || medium.receipt(*slot).wid < point) {
        let change = medium.change(slot, spare.tag);
        latest = latest.max(change.version());
        let forgotten = match change {
            Change::Discarded { .. } => rules.drops(FlashMutant::DiscardForgotten),
            Change::Shared { .. } => rules.drops(FlashMutant::ShareForgotten),
            Change::Written { .. } | Change::Moved { .. } => false,
        };
        if !forgotten {
            map.apply(change, &mut left);
        }
    }
    latest
}

/// The map of the newest checkpoint, an increment or a full one, and what that says besides.
fn loaded(medium: &Medium, newest: Option<&Place>, blocks: u64, rules: FlashRules) -> (Map, Seal) {
    let nothing = Seal { scan_from: 0, end: 0, next_version: 1, progress: Progress::default(), next_wid: 1 };
    let Some(place) = newest else { return (Map::new(blocks, rules), nothing) };
    let mut map = place.full.map.as_ref().map_or_else(|| Map::new(blocks, rules), |map| map.under(rules));
    let mut left = Vec::new();
    let increments = place.increments(rules);
    let mut in_order: Vec<&Increment> = increments.iter().map(|increment| &**increment).collect();
    if rules.drops(FlashMutant::IncrementsOutOfOrder) {
        in_order.reverse();
    }
    for change in in_order.into_iter().flat_map(|increment| &increment.changes) {
        map.apply(change.change(), &mut left);
    }
    if rules.drops(FlashMutant::StalePlaceTrusted) {
        let places: Vec<(u32, Slot)> = map.places().collect();
        for (lpn, slot) in places {
            let version = medium.content(slot).version;
            map.apply(Change::Written { lpn, version, slot }, &mut left);
        }
    }
    let newest = increments.last().filter(|_| !rules.drops(FlashMutant::OldSealTrusted));
    (map, newest.map_or(place.full.seal, |last| last.seal))
}

/// Reads the newest checkpoint and what tells of the pages found, all dies at once.
fn reading_ns(profile: &Profile, medium: &Medium, pages: &[(Page, Spare)], rules: FlashRules) -> u64 {
    let page_bytes = medium.geometry().page_bytes();
    let newest = medium.system.newest();
    let shared = newest.and_then(|place| place.full.map.as_ref()).map_or(0, Map::shared);
    let log = newest.map_or(&[][..], |place| place.increments(rules));
    let log_pages = log.iter().map(|increment| Increment::pages(increment.entries(), page_bytes));
    let record_pages = medium.system.records().len() as u64;
    let system_pages =
        Full::pages(profile.logical_pages(), shared, page_bytes) + log_pages.sum::<u64>() + record_pages;
    let dies = u64::from(medium.geometry().dies);
    let reads = system_pages.div_ceil(dies) + spare_reads(medium, pages);
    reads * profile.nand.read_ns.iter().max().copied().unwrap_or(0)
}

/// Pages that each die reads for the spare areas of the pages found. Without summary pages: one of every erase block, to
/// know which to look at, and those found. With summary pages the seal and one summary page after the other lead to the
/// blocks written since (OPTR paper, section 3.3): of each its summary page, or all pages where that is not there.
fn spare_reads(medium: &Medium, pages: &[(Page, Spare)]) -> u64 {
    let geometry = medium.geometry();
    let dies = u64::from(geometry.dies);
    if geometry.data_pages_per_block == geometry.pages_per_block {
        return u64::from(geometry.blocks_per_die) + (pages.len() as u64).div_ceil(dies);
    }
    let blocks: BTreeSet<u32> = pages.iter().map(|(page, _)| geometry.block_of(*page).0).collect();
    let reads = blocks.into_iter().map(|block| {
        let block = medium.block(EraseBlock(block));
        let summary = block.spare(geometry.data_pages_per_block);
        let whole = summary.is_some_and(|spare| spare.tag == Tag::Summary);
        if whole { 1 } else { u64::from(block.programmed()) }
    });
    reads.sum::<u64>().div_ceil(dies)
}
