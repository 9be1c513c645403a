//! The firmware's own recovery, from what is on flash alone: the newest whole checkpoint, then the spare areas
//! of all pages programmed since, in the order of their sequence numbers.
//!
//! Which pages are kept is the mechanism's to say ([`Kept`]). A block's later version wins. A copy made by
//! cleaning says where a version has gone, and never brings a block back that is not there any more.
//!
//! Recovery ends with a checkpoint of what it found, and serves nothing before that is whole: what was
//! discarded now must not be taken for valid after the next power cut. A cut during recovery leaves the old
//! checkpoint and the same pages, so recovery begins anew and finds the same.

use crate::checkpoint::Checkpoint;
use crate::ftl::Start;
use crate::geometry::{EraseBlock, Geometry, Page, Slot};
use crate::mechanism::{Kept, Progress, Sequencer};
use crate::medium::{Content, Medium, Payload, Spare, Tag};
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
    pub(crate) fn nothing(profile: &Profile) -> Recovered {
        let start = Start {
            map: vec![Slot::NONE; profile.blocks as usize],
            sequencer: Sequencer::new(profile.barrier.mechanism, Progress::default()),
            next_sequence: 0,
            checkpoint: (0, 0),
        };
        Recovered { start, next_version: 1, dump: Vec::new(), time_ns: 0 }
    }
}

/// The version of a block whose place was erased since the checkpoint: something newer is found later.
const DANGLING: u64 = 0;

/// Recovers `medium`.
pub(crate) fn recover(medium: &Medium, profile: &Profile, rules: FlashRules) -> Recovered {
    let empty = Checkpoint {
        number: 0,
        scan_from: 0,
        end: 0,
        next_version: 1,
        progress: Progress::default(),
        map: Vec::new(),
    };
    let newest = medium.checkpoints.iter().flatten().max_by_key(|checkpoint| checkpoint.number);
    let checkpoint = newest.map_or(&empty, |checkpoint| checkpoint);
    let pages = pages_since(medium, checkpoint.scan_from, rules);
    let tags = pages.iter().map(|(_, spare)| spare.tag);
    let mechanism = profile.barrier.mechanism;
    let kept = Kept::of(tags, checkpoint.progress, mechanism, rules);
    let mut map = Rebuilt::new(medium, checkpoint, profile.blocks, rules);
    for (page, spare) in pages.iter().filter(|(_, spare)| kept.keeps(spare.tag)) {
        map.apply(medium, *page, spare);
    }
    let all = all_pages(medium).filter(|(_, spare)| spare.tag != Tag::Torn);
    let next_sequence = all.map(|(_, spare)| spare.sequence + 1).max().unwrap_or(0).max(checkpoint.end);
    let dump = medium.dump.as_ref().filter(|_| !rules.drops(FlashMutant::DumpForgotten));
    let dump: Vec<Content> = dump.map(|dump| dump.to_vec()).unwrap_or_default();
    let last_version = dump.iter().map(|content| content.version).max().unwrap_or(0).max(map.last_version);
    Recovered {
        start: Start {
            sequencer: Sequencer::new(mechanism, kept.progress()),
            map: map.map,
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

/// The map as it is rebuilt.
struct Rebuilt {
    map: Vec<Slot>,
    /// The version found for each logical block, or of its discard.
    versions: Vec<u64>,
    last_version: u64,
    rules: FlashRules,
}

impl Rebuilt {
    fn new(medium: &Medium, checkpoint: &Checkpoint, blocks: u64, rules: FlashRules) -> Rebuilt {
        let mut map = checkpoint.map.clone();
        map.resize(blocks as usize, Slot::NONE);
        let end = if rules.drops(FlashMutant::StalePlaceTrusted) { u64::MAX } else { checkpoint.end };
        let versions = map.iter().enumerate().map(|(lpn, slot)| {
            let intact = *slot != Slot::NONE && is_intact(medium, *slot, lpn as u32, end);
            if intact { medium.version(*slot) } else { DANGLING }
        });
        Rebuilt { versions: versions.collect(), map, last_version: 0, rules }
    }

    fn apply(&mut self, medium: &Medium, page: Page, spare: &Spare) {
        for nth in 0..u32::from(spare.used) {
            let slot = medium.geometry().slot(page, nth);
            let Content { lpn, version, payload } = medium.content(slot);
            self.last_version = self.last_version.max(version);
            match payload {
                Payload::Discard(_) if self.rules.drops(FlashMutant::DiscardForgotten) => {}
                Payload::Discard(blocks) => {
                    (lpn..lpn.saturating_add(blocks)).for_each(|lpn| self.set(lpn, version, Slot::NONE));
                }
                _ if spare.tag == Tag::Moved => {
                    self.moved(lpn, version, slot);
                }
                _ => self.set(lpn, version, slot),
            }
        }
    }

    fn set(&mut self, lpn: u32, version: u64, slot: Slot) {
        let Some(known) = self.versions.get_mut(lpn as usize) else { return };
        if version > *known || self.rules.drops(FlashMutant::VersionIgnored) {
            *known = version;
            self.map[lpn as usize] = slot;
        }
    }

    fn moved(&mut self, lpn: u32, version: u64, slot: Slot) {
        let resurrects = self.rules.drops(FlashMutant::CopyResurrected);
        let Some(&place) = self.map.get(lpn as usize) else { return };
        let goes = place != Slot::NONE && version >= self.versions[lpn as usize];
        if goes || resurrects {
            self.versions[lpn as usize] = version;
            self.map[lpn as usize] = slot;
        }
    }
}

/// Whether a place that a checkpoint points to still holds what it held then.
fn is_intact(medium: &Medium, slot: Slot, lpn: u32, end: u64) -> bool {
    let geometry = medium.geometry();
    let page = geometry.page_of(slot);
    let used = |spare: &Spare| slot.0 - geometry.slot(page, 0).0 < u32::from(spare.used);
    medium.spare(page).is_some_and(|spare| {
        spare.tag != Tag::Torn && spare.sequence < end && used(spare) && medium.content(slot).lpn == lpn
    })
}

/// Reads the checkpoint, the first spare area of every erase block, and those of the pages found, all dies at
/// once.
fn reading_ns(profile: &Profile, geometry: &Geometry, pages_found: u64) -> u64 {
    let map_pages = (profile.blocks * size_of::<Slot>() as u64).div_ceil(geometry.page_bytes()) + 1;
    let dies = u64::from(geometry.dies);
    let reads = map_pages.div_ceil(dies) + u64::from(geometry.blocks_per_die) + pages_found.div_ceil(dies);
    reads * profile.nand.read_ns.iter().max().copied().unwrap_or(0)
}
