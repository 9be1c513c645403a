//! Reading the flash during recovery. [`PageReads`] is recovery's only way to the medium: it counts every page that is read
//! by its purpose and by die, and gives the slots of a page only where the page was read.

use crate::checkpoint::Place;
use crate::geometry::{Geometry, Page};
use crate::map::Change;
use crate::medium::{Content, Medium, Spare, Tag};
use crate::recovery_point::{Coalescing, Receipt};
use crate::stock::Opening;

/// What recovery reads, in pages of flash.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecoveryReads {
    /// Of the newest full checkpoint, and the seal of the one before.
    pub checkpoint_pages: u64,
    /// Of the log behind it, to its end: increments, coalescing records, names of erase blocks; and what the capacitors
    /// saved.
    pub log_pages: u64,
    /// The last page of an erase block, which is the summary page where there are any.
    pub probed_pages: u64,
    /// Other pages of erase blocks.
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

/// What a page is read for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReadFor {
    /// The map.
    Checkpoint,
    /// What came behind the map.
    Log,
    /// How far an erase block is filled: its last page.
    Probe,
    /// What was programmed.
    Scan,
}

/// A page that recovery has read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReadPage {
    page: Page,
    spare: Spare,
}

impl ReadPage {
    pub(crate) fn page(&self) -> Page {
        self.page
    }

    pub(crate) fn spare(&self) -> &Spare {
        &self.spare
    }
}

/// Reads a medium.
pub(crate) struct PageReads<'a> {
    medium: &'a Medium,
    /// By [`ReadFor`] and die.
    counts: [Vec<u64>; 4],
}

impl<'a> PageReads<'a> {
    pub(crate) fn new(medium: &'a Medium) -> PageReads<'a> {
        let counts = std::array::from_fn(|_| vec![0; medium.geometry().dies as usize]);
        PageReads { medium, counts }
    }

    pub(crate) fn geometry(&self) -> &'a Geometry {
        self.medium.geometry()
    }

    /// What was read, where a page takes so long.
    pub(crate) fn total(&self, read_ns: u64) -> RecoveryReads {
        let [checkpoint_pages, log_pages, probed_pages, scanned_pages] =
            self.counts.each_ref().map(|by_die| by_die.iter().sum());
        let [checkpoint, log, probed, scanned] = &self.counts;
        let most = |by_die: &[u64]| by_die.iter().max().copied().unwrap_or(0);
        // A die reads its erase blocks while the others read theirs.
        let blocks: Vec<u64> = probed.iter().zip(scanned).map(|(probed, scanned)| probed + scanned).collect();
        let time_ns = (most(checkpoint) + most(log) + most(&blocks)) * read_ns;
        RecoveryReads { checkpoint_pages, log_pages, probed_pages, scanned_pages, time_ns }
    }

    fn count(&mut self, what: ReadFor, die: u32) {
        self.counts[what as usize][die as usize] += 1;
    }

    /// Pages of the system area are spread over the dies.
    fn count_system(&mut self, what: ReadFor, pages: u64) {
        for nth in 0..pages {
            self.count(what, (nth % u64::from(self.geometry().dies)) as u32);
        }
    }

    /// The newest whole full checkpoint, and the log behind it.
    pub(crate) fn newest(&mut self) -> Option<&'a Place> {
        let newest = self.medium.system.newest();
        let full_pages = newest.map_or(1, |place| place.full.pages);
        // The other place has a seal, or none.
        self.count_system(ReadFor::Checkpoint, full_pages + 1);
        // Behind the last page of the log is one that is erased.
        self.count_system(ReadFor::Log, self.medium.system.log_pages() + 1);
        newest
    }

    /// What the log says besides, once it was read.
    pub(crate) fn openings(&self) -> &'a [Opening] {
        self.medium.system.openings()
    }

    /// Likewise.
    pub(crate) fn records(&self) -> impl Iterator<Item = &'a Coalescing> + use<'a> {
        self.medium.system.records().iter().flat_map(|page| page.iter())
    }

    /// What the capacitors saved.
    pub(crate) fn dump(&mut self) -> Vec<Content> {
        let Some(dump) = &self.medium.dump else { return Vec::new() };
        self.count_system(ReadFor::Log, (dump.len() as u64).div_ceil(self.geometry().slots_per_page.into()));
        dump.to_vec()
    }

    /// Reads a page; none if it is erased.
    pub(crate) fn read(&mut self, page: Page, what: ReadFor) -> Option<ReadPage> {
        self.count(what, self.geometry().die_of(self.geometry().block_of(page)));
        self.medium.spare(page).map(|spare| ReadPage { page, spare: *spare })
    }

    /// The pages that a summary page lists, with itself. What records say is in the pages only: these are read.
    pub(crate) fn summarised(&mut self, summary: ReadPage) -> Vec<ReadPage> {
        if summary.spare.tag != Tag::Summary {
            return vec![summary];
        }
        let geometry = self.geometry();
        let block = geometry.block_of(summary.page);
        let known = self.medium.block(block);
        let listed = known.summary().iter();
        let mut pages: Vec<ReadPage> =
            listed.map(|(nth, spare)| ReadPage { page: geometry.page(block, *nth), spare: *spare }).collect();
        for page in &pages {
            let (_, first) = geometry.place_of(geometry.slot(page.page, 0));
            if known.holds_record(first..first + usize::from(page.spare.used)) {
                self.count(ReadFor::Scan, geometry.die_of(block));
            }
        }
        pages.push(summary);
        pages
    }

    /// What the slots of a page say of the map, and the requests that they came with.
    pub(crate) fn slots(&self, read: ReadPage) -> impl Iterator<Item = (Receipt, Change<'a>)> + use<'a> {
        let (medium, ReadPage { page, spare }) = (self.medium, read);
        let slots = (0..u32::from(spare.used)).map(move |nth| medium.geometry().slot(page, nth));
        slots.map(move |slot| (medium.receipt(slot), medium.change(slot, spare.tag)))
    }
}
