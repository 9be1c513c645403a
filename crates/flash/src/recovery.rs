//! The firmware's own recovery, from what is on flash alone: the newest whole checkpoint, then the spare areas
//! of all pages programmed since, in the order of their sequence numbers.
//!
//! Which pages are kept is the mechanism's to say ([`Kept`]). What their slots say of the [`Map`] is applied as it was
//! when they were committed, so that recovery has no rules of its own about versions.
//!
//! Recovery ends with a checkpoint of what it found, and serves nothing before that is whole: what was
//! discarded now must not be taken for valid after the next power cut. A cut during recovery leaves the old
//! checkpoint and the same pages, so recovery begins anew and finds the same.

use crate::checkpoint::Checkpoint;
use crate::ftl::Start;
use crate::geometry::{EraseBlock, Geometry, Page, Slot};
use crate::map::{Change, Map};
use crate::mechanism::{Kept, Progress, Sequencer};
use crate::medium::{Content, Medium, Spare, Tag};
use crate::mutants::{FlashMutant, FlashRules};
use crate::profile::Profile;

/// What recovery found.
pub(crate) struct Recovered {
    pub(crate) start: Start,
    pub(crate) next_version: u64,
    /// What the capacitors saved of the cache.
    pub(crate) dump: Vec<Content>,
    /// Time to read all this.
    pub(crate) time_ns: u64,
}

impl Recovered {
    /// What there is on a device that was never written.
    pub(crate) fn nothing(profile: &Profile, rules: FlashRules) -> Recovered {
        let start = Start {
            map: Map::new(profile.blocks, rules),
            sequencer: Sequencer::new(profile.barrier.mechanism, Progress::default()),
            next_sequence: 0,
            checkpoint: (0, 0),
        };
        Recovered { start, next_version: 1, dump: Vec::new(), time_ns: 0 }
    }
}

/// Recovers `medium`.
pub(crate) fn recover(medium: &Medium, profile: &Profile, rules: FlashRules) -> Recovered {
    let empty = Checkpoint {
        number: 0,
        scan_from: 0,
        end: 0,
        next_version: 1,
        progress: Progress::default(),
        map: None,
    };
    let newest = medium.checkpoints.iter().flatten().max_by_key(|checkpoint| checkpoint.number);
    let checkpoint = newest.map_or(&empty, |checkpoint| checkpoint);
    let pages = pages_since(medium, checkpoint.scan_from, rules);
    let tags = pages.iter().map(|(_, spare)| spare.tag);
    let mechanism = profile.barrier.mechanism;
    let kept = Kept::of(tags, checkpoint.progress, mechanism, rules);
    let mut map = loaded(medium, checkpoint, profile.blocks, rules);
    let mut last_version = 0;
    for (page, spare) in pages.iter().filter(|(_, spare)| kept.keeps(spare.tag)) {
        last_version = replay(&mut map, medium, *page, spare, rules).max(last_version);
    }
    let all = all_pages(medium).filter(|(_, spare)| spare.tag != Tag::Torn);
    let next_sequence = all.map(|(_, spare)| spare.sequence + 1).max().unwrap_or(0).max(checkpoint.end);
    let dump = medium.dump.as_ref().filter(|_| !rules.drops(FlashMutant::DumpForgotten));
    let dump: Vec<Content> = dump.map(|dump| dump.to_vec()).unwrap_or_default();
    let last_version = dump.iter().map(|content| content.version).max().unwrap_or(0).max(last_version);
    Recovered {
        start: Start {
            sequencer: Sequencer::new(mechanism, kept.progress()),
            map,
            next_sequence,
            checkpoint: (checkpoint.number, checkpoint.scan_from),
        },
        next_version: checkpoint.next_version.max(last_version + 1),
        dump,
        time_ns: reading_ns(profile, medium.geometry(), pages.len() as u64),
    }
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
    let mut pages: Vec<(Page, Spare)> = readable.collect();
    if !rules.drops(FlashMutant::VersionIgnored) {
        pages.sort_unstable_by_key(|(_, spare)| spare.sequence);
    }
    pages
}

/// Applies what the slots of a page say of the map; the latest version among them.
fn replay(map: &mut Map, medium: &Medium, page: Page, spare: &Spare, rules: FlashRules) -> u64 {
    let mut latest = 0;
    let mut left = Vec::new();
    for nth in 0..u32::from(spare.used) {
        let change = medium.change(medium.geometry().slot(page, nth), spare.tag);
        latest = latest.max(change.version());
        let forgotten =
            matches!(change, Change::Discarded { .. }) && rules.drops(FlashMutant::DiscardForgotten);
        if !forgotten {
            map.apply(change, &mut left);
        }
    }
    latest
}

/// The map of a checkpoint.
fn loaded(medium: &Medium, checkpoint: &Checkpoint, blocks: u64, rules: FlashRules) -> Map {
    let mut map = checkpoint.map.clone().unwrap_or_else(|| Map::new(blocks, rules));
    if rules.drops(FlashMutant::StalePlaceTrusted) {
        let places: Vec<(u32, Slot)> = map.places().collect();
        for (lpn, slot) in places {
            let version = medium.content(slot).version;
            map.apply(Change::Written { lpn, version, slot }, &mut Vec::new());
        }
    }
    map
}

/// Reads the checkpoint, the first spare area of every erase block, and those of the pages found, all dies at
/// once.
fn reading_ns(profile: &Profile, geometry: &Geometry, pages_found: u64) -> u64 {
    let map_pages = (profile.blocks * Checkpoint::ENTRY_BYTES).div_ceil(geometry.page_bytes()) + 1;
    let dies = u64::from(geometry.dies);
    let reads = map_pages.div_ceil(dies) + u64::from(geometry.blocks_per_die) + pages_found.div_ceil(dies);
    reads * profile.nand.read_ns.iter().max().copied().unwrap_or(0)
}
