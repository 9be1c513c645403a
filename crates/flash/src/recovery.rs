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
use crate::geometry::{EraseBlock, Page};
use crate::map::Map;
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
    /// What was read for this.
    pub(crate) reads: RecoveryReads,
}

/// What recovery reads, in pages of flash.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecoveryReads {
    /// Of the newest full checkpoint.
    pub checkpoint_pages: u64,
    /// Of the increments behind it, and of coalescing records.
    pub log_pages: u64,
    /// To learn which erase blocks were programmed since: the first page of each, or summary pages.
    pub probed_pages: u64,
    /// Programmed since: their spare areas.
    pub scanned_pages: u64,
    /// The time, nanoseconds. All dies read at once.
    pub time_ns: u64,
}

impl RecoveryReads {
    /// All of them.
    #[must_use]
    pub fn pages(&self) -> u64 {
        self.checkpoint_pages + self.log_pages + self.probed_pages + self.scanned_pages
    }
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
    let newest = medium.system.newest();
    let number = newest.map_or(0, |place| place.full.number);
    let (mut map, seal) = loaded(newest, profile.logical_pages(), rules);
    let pages = pages_since(medium, seal.scan_from);
    let tags = pages.iter().map(|(_, spare)| spare.tag);
    let mechanism = profile.barrier.mechanism;
    let kept = Kept::from_tags(tags, seal.progress, mechanism, rules);
    let evidences = evidences(medium, &pages, seal.next_wid, rules);
    let point = evidences.recovery_point(seal.next_wid);
    let mut last_version = 0;
    for (page, spare) in pages.iter().filter(|(_, spare)| kept.keeps(spare.tag)) {
        last_version = replay(&mut map, medium, (*page, spare), point).max(last_version);
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
        reads: reads(profile, medium, &pages, rules),
    }
}

/// The pages of an erase block, as its summary page lists them, or one after the other where that cannot be read; what
/// their slots hold is looked up in either case.
fn listed(medium: &Medium, block: EraseBlock) -> Vec<(Page, Spare)> {
    let geometry = medium.geometry();
    let known = medium.block(block);
    let nth_summary = geometry.data_pages_per_block;
    if let Some(summary) = known.spare(nth_summary).filter(|summary| summary.tag == Tag::Summary) {
        let pages = known.summary().iter().copied().chain([(nth_summary, *summary)]);
        return pages.map(|(nth, spare)| (geometry.page(block, nth), spare)).collect();
    }
    let pages = (0..known.programmed()).filter_map(|nth| Some((nth, known.spare(nth)?)));
    pages.map(|(nth, spare)| (geometry.page(block, nth), *spare)).collect()
}

fn all_pages(medium: &Medium) -> impl Iterator<Item = (Page, Spare)> {
    let blocks = (0..medium.geometry().blocks()).map(EraseBlock);
    blocks.flat_map(move |block| listed(medium, block))
}

/// The readable pages with a sequence number from `from` on, in the order of these.
fn pages_since(medium: &Medium, from: u64) -> Vec<(Page, Spare)> {
    let readable = all_pages(medium).filter(|(_, spare)| spare.tag != Tag::Torn && spare.sequence >= from);
    let mut pages: Vec<(Page, Spare)> = readable.collect();
    pages.sort_unstable_by_key(|(_, spare)| spare.sequence);
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
fn replay(map: &mut Map, medium: &Medium, (page, spare): (Page, &Spare), point: Wid) -> u64 {
    let mut latest = 0;
    let mut left = Vec::new();
    let slots = (0..u32::from(spare.used)).map(|nth| medium.geometry().slot(page, nth));
    for slot in slots.filter(|slot| spare.tag != Tag::Request || medium.receipt(*slot).wid < point) {
        let change = medium.change(slot, spare.tag);
        latest = latest.max(change.version());
        if !map.forgets(&change) {
            map.apply(change, &mut left);
        }
    }
    latest
}

/// The map of the newest checkpoint, an increment or a full one, and what that says besides.
fn loaded(newest: Option<&Place>, blocks: u64, rules: FlashRules) -> (Map, Seal) {
    let nothing = Seal { scan_from: 0, end: 0, next_version: 1, progress: Progress::default(), next_wid: 1 };
    let Some(place) = newest else { return (Map::new(blocks, rules), nothing) };
    let mut map = place.full.map.as_ref().map_or_else(|| Map::new(blocks, rules), |map| map.under(rules));
    let mut left = Vec::new();
    let increments = place.increments(rules);
    for change in increments.iter().flat_map(|increment| &increment.changes) {
        map.apply(change.change(), &mut left);
    }
    (map, increments.last().map_or(place.full.seal, |last| last.seal))
}

/// Reads the newest checkpoint, with the log behind it, and what tells of the pages found, all dies at once.
fn reads(profile: &Profile, medium: &Medium, found: &[(Page, Spare)], rules: FlashRules) -> RecoveryReads {
    let geometry = medium.geometry();
    let page_bytes = geometry.page_bytes();
    let newest = medium.system.newest();
    let shared = newest.and_then(|place| place.full.map.as_ref()).map_or(0, Map::shared);
    let log = newest.map_or(&[][..], |place| place.increments(rules));
    let increments = log.iter().map(|increment| Increment::pages(increment.entries(), page_bytes));
    let checkpoint_pages = Full::pages(profile.logical_pages(), shared, page_bytes);
    let log_pages = increments.sum::<u64>() + medium.system.records().len() as u64;
    let (probed_pages, scanned_pages) = spare_reads(medium, found);
    let on_each_die = |pages: u64| pages.div_ceil(u64::from(geometry.dies));
    let reads =
        on_each_die(checkpoint_pages + log_pages) + on_each_die(probed_pages) + on_each_die(scanned_pages);
    let time_ns = reads * profile.nand.read_ns.iter().max().copied().unwrap_or(0);
    RecoveryReads { checkpoint_pages, log_pages, probed_pages, scanned_pages, time_ns }
}

/// Pages that are read to know which erase blocks to look at, and those read for the spare areas of the pages found.
/// Without summary pages: one of every erase block, and all that are found. With summary pages the seal and one summary
/// page after the other lead to the blocks written since (OPTR paper, section 3.3): of each its summary page, or all
/// pages where that is not there.
fn spare_reads(medium: &Medium, found: &[(Page, Spare)]) -> (u64, u64) {
    let geometry = medium.geometry();
    if geometry.data_pages_per_block == geometry.pages_per_block {
        return (u64::from(geometry.blocks()), found.len() as u64);
    }
    let blocks: BTreeSet<u32> = found.iter().map(|(page, _)| geometry.block_of(*page).0).collect();
    blocks.into_iter().fold((0, 0), |(summaries, scanned), block| {
        let block = medium.block(EraseBlock(block));
        let summary = block.spare(geometry.data_pages_per_block);
        if summary.is_some_and(|spare| spare.tag == Tag::Summary) {
            (summaries + 1, scanned)
        } else {
            (summaries, scanned + u64::from(block.programmed()))
        }
    })
}
