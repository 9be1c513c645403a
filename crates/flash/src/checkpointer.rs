//! Writing checkpoints: when one is due, whether the log of changes will do or all of the map is written, and that
//! log. What they look like on flash is in `checkpoint`.
//!
//! The increments behind a full checkpoint take a share of its own pages at most, which the profile says; then, and after a
//! start, a full one is written. So the log is bounded, on flash and in memory, and so is what recovery reads.

use crate::checkpoint::{Checkpoint, Full, Increment, Seal, SystemArea};
use crate::geometry::Geometry;
use crate::map::{Change, Logged, Map};
use crate::profile::{Mechanism, Profile};
use crate::stock::Stock;

/// A checkpoint that is being written.
struct Writing {
    checkpoint: Checkpoint,
    pages_left: u64,
}

/// Decides about checkpoints, and follows the one that is being written.
pub(crate) struct Checkpointer {
    page_bytes: u64,
    /// Logical pages.
    logical_pages: u64,
    /// What the stock takes in a seal.
    stock_bytes: u64,
    /// What increments behind a full one may take.
    log_pages: u64,
    interval_pages: u64,
    /// Bytes of changes that wait in memory before the next one is begun.
    buffer_bytes: u64,
    /// Pages of the host's data programmed since the last one was begun.
    pub(crate) since: u64,
    /// The number of the next full one.
    next_number: u64,
    /// Pages with this sequence number and later ones are what recovery looks at, from the newest whole one on.
    scan_from: u64,
    /// Pages that increments behind the newest full one may still take.
    log_pages_left: u64,
    /// Coalescing records took the last of them.
    log_full: bool,
    /// Entries that the changes take since the last one was begun.
    changed: u64,
    /// The same, unless they are too many for an increment.
    changes: Vec<Logged>,
    keeps_map: bool,
    writing: Option<Writing>,
}

impl Checkpointer {
    /// For a device whose newest checkpoint, if any, has this number, and lets recovery look at pages from
    /// `scan_from` on.
    pub(crate) fn new(
        profile: &Profile,
        geometry: &Geometry,
        (number, scan_from): (u64, u64),
        keeps_map: bool,
    ) -> Checkpointer {
        let page_bytes = geometry.page_bytes();
        let logical_pages = profile.logical_pages();
        // Order-preserving recovery has its coalescing records in the log, and needs room for them.
        let ordered = profile.barrier.mechanism == Mechanism::OrderPreservingRecovery;
        let stock_bytes = if ordered { Stock::bytes(geometry) } else { 0 };
        let full_pages = Full::pages(logical_pages, 0, stock_bytes, page_bytes);
        let log_share = if ordered { profile.ftl.log_share.max(1.0) } else { profile.ftl.log_share };
        let buffer_bytes = profile.ftl.layout.log_buffer_bytes;
        Checkpointer {
            page_bytes,
            logical_pages,
            stock_bytes,
            log_pages: (full_pages as f64 * log_share) as u64,
            interval_pages: (f64::from(geometry.pages()) * profile.ftl.checkpoint_share).max(1.0) as u64,
            buffer_bytes: if buffer_bytes == 0 { u64::MAX } else { buffer_bytes },
            since: 0,
            next_number: number + 1,
            scan_from,
            log_pages_left: 0,
            log_full: false,
            changed: 0,
            changes: Vec::new(),
            keeps_map,
            writing: None,
        }
    }

    /// Pages with this sequence number and later ones are what recovery looks at.
    pub(crate) fn scan_from(&self) -> u64 {
        self.scan_from
    }

    /// So much was programmed or changed since the last one that the next should be begun, or coalescing records have
    /// filled the log.
    pub(crate) fn is_due(&self) -> bool {
        let buffered = self.changed * Change::ENTRY_BYTES;
        self.since >= self.interval_pages || buffered >= self.buffer_bytes || self.log_full
    }

    /// A page of the log is taken by coalescing records, or by the name of an erase block.
    pub(crate) fn records_written(&mut self) {
        self.log_pages_left = self.log_pages_left.saturating_sub(1);
        self.log_full = self.log_pages_left == 0;
    }

    pub(crate) fn is_writing(&self) -> bool {
        self.writing.is_some()
    }

    /// The map has changed.
    pub(crate) fn changed(&mut self, change: Change<'_>) {
        self.changed += change.entries();
        if self.keeps_map && self.fits() {
            self.changes.push(change.into());
        }
    }

    /// Whether checkpoints are kept for a power cut.
    pub(crate) fn keeps_map(&self) -> bool {
        self.keeps_map
    }

    fn increment_pages(&self) -> u64 {
        Increment::pages(self.changed, self.stock_bytes, self.page_bytes)
    }

    fn fits(&self) -> bool {
        self.increment_pages() <= self.log_pages_left
    }

    /// Begins one of the map as it is now. How many pages it takes, and whether it is a full one.
    pub(crate) fn begin(&mut self, seal: Seal, map: &Map, system: &mut SystemArea) -> (u64, bool) {
        let full = !self.fits();
        let changes = std::mem::take(&mut self.changes);
        let (checkpoint, pages) = if full {
            let pages = Full::pages(self.logical_pages, map.shared(), self.stock_bytes, self.page_bytes);
            let (number, map) = (self.next_number, self.keeps_map.then(|| map.clone()));
            self.next_number += 1;
            self.log_pages_left = self.log_pages;
            (Checkpoint::Full(Full { number, seal, map, pages }), pages)
        } else {
            let pages = self.increment_pages();
            self.log_pages_left -= pages;
            (Checkpoint::Increment(Increment::new(seal, changes)), pages)
        };
        (self.changed, self.since, self.log_full) = (0, 0, false);
        system.begin(&checkpoint, pages);
        self.writing = Some(Writing { checkpoint, pages_left: pages });
        (pages, full)
    }

    /// A page of it is programmed; true if it is whole now.
    pub(crate) fn page_programmed(&mut self, system: &mut SystemArea) -> bool {
        let last = |writing: &mut Writing| {
            writing.pages_left -= 1;
            writing.pages_left == 0
        };
        let Some(Writing { checkpoint, .. }) = self.writing.take_if(last) else { return false };
        self.scan_from = checkpoint.seal().scan_from;
        system.end(checkpoint);
        true
    }
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use super::*;
    use crate::geometry::Slot;
    use crate::map::Pair;
    use crate::mechanism::Progress;
    use crate::mutants::FlashRules;

    const BLOCKS: u64 = 4096;

    fn checkpointer() -> Checkpointer {
        Checkpointer {
            page_bytes: 4096,
            logical_pages: BLOCKS,
            stock_bytes: 0,
            log_pages: Full::pages(BLOCKS, 0, 0, 4096),
            interval_pages: 1,
            buffer_bytes: u64::MAX,
            since: 0,
            next_number: 1,
            scan_from: 0,
            log_pages_left: 0,
            log_full: false,
            changed: 0,
            changes: Vec::new(),
            keeps_map: true,
            writing: None,
        }
    }

    /// The map as recovery reads it, and how many increments that takes.
    fn read_back(system: &SystemArea) -> (Map, usize) {
        let Some(place) = system.newest() else { return (Map::new(BLOCKS, FlashRules::all()), 0) };
        let mut map = place.full.map.clone().unwrap_or_else(|| Map::new(0, FlashRules::all()));
        let increments = place.increments(FlashRules::all());
        for change in increments.iter().flat_map(|increment| &increment.changes) {
            map.apply(change.change(), &mut Vec::new());
        }
        (map, increments.len())
    }

    /// Whatever changes, and however much of it between two checkpoints, the newest whole one is the map as it was
    /// when that one was begun, and the log takes no more than it may.
    #[test]
    fn full_checkpoints_and_increments_are_the_map() {
        let (mut checkpointer, mut system) = (checkpointer(), SystemArea::default());
        let mut map = Map::new(BLOCKS, FlashRules::all());
        let mut random = 1_u64;
        let mut draw = |below: u64| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (random >> 33) % below
        };
        let (mut version, mut fulls, mut log_pages, mut most) = (0, 0, 0, 0);
        for round in 0..400_u64 {
            for _ in 0..draw(if round % 7 == 0 { 3000 } else { 300 }) {
                version += 1;
                let (lpn, slot) = (draw(BLOCKS) as u32, Slot(version as u32));
                let (from, next) = (draw(BLOCKS) as u32, (lpn + 1) % BLOCKS as u32);
                let pairs: Rc<[Pair]> = Rc::new([Pair { from, to: lpn }, Pair { from: lpn, to: next }]);
                let change = match draw(5) {
                    0 => Change::Discarded { lpn, blocks: draw(9) as u32, version },
                    1 => Change::Moved { lpn, version: map.content(lpn), slot },
                    2 => Change::Shared { version, pairs: &pairs },
                    _ => Change::Written { lpn, version, slot },
                };
                if map.apply(change, &mut Vec::new()) {
                    checkpointer.changed(change);
                }
            }
            let seal = Seal {
                scan_from: round,
                end: round,
                next_version: version,
                progress: Progress::default(),
                next_wid: 1,
                stock: Rc::default(),
            };
            let before = read_back(&system).0;
            let (pages, full) = checkpointer.begin(seal, &map, &mut system);
            (fulls, log_pages) = if full { (fulls + 1, 0) } else { (fulls, log_pages + pages) };
            for _ in 1..pages {
                assert!(!checkpointer.page_programmed(&mut system));
            }
            assert!(read_back(&system).0 == before, "a torn checkpoint counts");
            assert!(checkpointer.page_programmed(&mut system) && checkpointer.scan_from() == round);
            let (found, increments) = read_back(&system);
            assert!(found == map, "round {round}");
            most = most.max(increments);
            assert!(log_pages <= Full::pages(BLOCKS, 0, 0, 4096));
        }
        assert!((20..300).contains(&fulls) && most >= 3, "{fulls} full ones, {most} increments behind one");
    }
}
