//! What the system area of the flash holds of the map. A *full* checkpoint is all of it at one moment, an *increment*
//! is what changed since the checkpoint before. Recovery starts from the newest whole full one with the whole
//! increments behind it, and reads the spare areas of the pages programmed since.
//!
//! Two places take full checkpoints in turn, so that one is whole at any time; each has room for increments behind it.
//! A checkpoint is committed when its last page is programmed.

use std::rc::Rc;

use crate::map::{Change, Logged, Map};
use crate::mechanism::Progress;
use crate::mutants::{FlashMutant, FlashRules};
use crate::recovery_point::{Coalescing, Wid};
use crate::stock::{Opening, Stock};

/// What every checkpoint says besides the map.
#[derive(Clone, Debug)]
pub(crate) struct Seal {
    /// Pages with this sequence number and later ones are looked at by recovery: some were not committed yet.
    pub(crate) scan_from: u64,
    /// Pages with this sequence number and later ones were not allocated yet.
    pub(crate) end: u64,
    /// The next version.
    pub(crate) next_version: u64,
    /// How far the barrier mechanism had come.
    pub(crate) progress: Progress,
    /// Order-preserving recovery: the first request that was not received yet.
    pub(crate) next_wid: Wid,
    /// Order-preserving recovery: the erase blocks. Nothing on a device that is never cut.
    pub(crate) stock: Rc<Stock>,
}

impl Seal {
    fn words(&self) -> impl Iterator<Item = u64> {
        let Seal { scan_from, end, next_version, progress, next_wid, ref stock } = *self;
        let counts = [scan_from, end, next_version, progress.committed, progress.next, next_wid];
        counts.into_iter().chain(stock.words())
    }
}

/// All of the map at one moment.
#[derive(Debug)]
pub(crate) struct Full {
    /// Full checkpoints are numbered from 0.
    pub(crate) number: u64,
    pub(crate) seal: Seal,
    /// Nothing on a device that is never cut.
    pub(crate) map: Option<Map>,
    /// What it takes.
    pub(crate) pages: u64,
}

impl Full {
    /// What an entry of the map is taken to cost on flash: its slot, 4 bytes. The map that is kept here holds versions
    /// too, which a firmware would find in the spare areas. Recovery needs those of blocks alone whose older versions
    /// were still on their way, and these find room beside the seal on all built-in profiles.
    const ENTRY_BYTES: u64 = 4;

    /// What it costs to say what a block reads by a share: the block, 4 bytes, and the version of the content, 5. A slot
    /// does not tell, as it may have been programmed again since.
    const SHARED_BYTES: u64 = 9;

    /// Pages that the map of so many blocks takes, of which `shared` read something by a share, with one for the seal and
    /// more if the stock has no room there.
    pub(crate) fn pages(blocks: u64, shared: u64, stock_bytes: u64, page_bytes: u64) -> u64 {
        let map_bytes = blocks * Full::ENTRY_BYTES + shared * Full::SHARED_BYTES;
        map_bytes.div_ceil(page_bytes) + stock_bytes / page_bytes + 1
    }
}

/// What changed in the map between two checkpoints, in order.
#[derive(Debug)]
pub(crate) struct Increment {
    pub(crate) seal: Seal,
    /// Nothing on a device that is never cut.
    pub(crate) changes: Vec<Logged>,
    /// All of its pages are programmed.
    whole: bool,
}

impl Increment {
    pub(crate) fn new(seal: Seal, changes: Vec<Logged>) -> Increment {
        Increment { seal, changes, whole: true }
    }

    /// Pages that so many entries take, with the stock and the seal.
    pub(crate) fn pages(entries: u64, stock_bytes: u64, page_bytes: u64) -> u64 {
        (entries * Change::ENTRY_BYTES + stock_bytes) / page_bytes + 1
    }
}

/// A checkpoint on its way to the flash.
pub(crate) enum Checkpoint {
    Full(Full),
    Increment(Increment),
}

impl Checkpoint {
    pub(crate) fn seal(&self) -> &Seal {
        match self {
            Checkpoint::Full(full) => &full.seal,
            Checkpoint::Increment(increment) => &increment.seal,
        }
    }
}

/// A full checkpoint, and the increments behind it.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub(crate) full: Rc<Full>,
    log: Vec<Rc<Increment>>,
}

impl Place {
    /// The whole increments, in order: the first that is torn ends the log.
    pub(crate) fn increments(&self, rules: FlashRules) -> &[Rc<Increment>] {
        let trusted = rules.drops(FlashMutant::TornIncrementTrusted);
        let whole = self.log.iter().take_while(|increment| increment.whole || trusted);
        &self.log[..whole.count()]
    }
}

/// The system area.
#[derive(Clone, Debug, Default)]
pub(crate) struct SystemArea {
    /// None: erased, or not completely written.
    places: [Option<Place>; 2],
    /// Pages of coalescing records (order-preserving recovery), as far as no checkpoint covers their requests.
    records: Vec<Rc<Vec<Coalescing>>>,
    /// Erase blocks that were opened without a page that names them (order-preserving recovery), likewise.
    openings: Vec<Opening>,
    /// Pages programmed behind the newest full checkpoint: increments, records, openings.
    log_pages: u64,
}

impl SystemArea {
    /// The newest full checkpoint, and what is behind it.
    pub(crate) fn newest(&self) -> Option<&Place> {
        self.places.iter().flatten().max_by_key(|place| place.full.number)
    }

    fn newest_mut(&mut self) -> Option<&mut Place> {
        self.places.iter_mut().flatten().max_by_key(|place| place.full.number)
    }

    /// A page of coalescing records is programmed.
    pub(crate) fn record(&mut self, page: Rc<Vec<Coalescing>>) {
        self.records.push(page);
        self.log_pages += 1;
    }

    /// The page that names an erase block is programmed.
    pub(crate) fn open(&mut self, opening: Opening) {
        self.openings.push(opening);
        self.log_pages += 1;
    }

    /// Erase blocks that the log names.
    pub(crate) fn openings(&self) -> &[Opening] {
        &self.openings
    }

    /// Pages of the log behind the newest full checkpoint. A torn increment counts as if all of it were there.
    pub(crate) fn log_pages(&self) -> u64 {
        self.log_pages
    }

    /// Coalescing records that the newest checkpoint does not cover, page by page.
    pub(crate) fn records(&self) -> &[Rc<Vec<Coalescing>>] {
        &self.records
    }

    /// The first of so many pages of a checkpoint is about to be programmed: a full one takes the older place.
    pub(crate) fn begin(&mut self, checkpoint: &Checkpoint, pages: u64) {
        match checkpoint {
            Checkpoint::Full(full) => {
                self.places[(full.number % 2) as usize] = None;
            }
            Checkpoint::Increment(Increment { seal, .. }) => {
                let torn = Rc::new(Increment { seal: seal.clone(), changes: Vec::new(), whole: false });
                self.log_pages += pages;
                self.newest_mut().into_iter().for_each(|place| place.log.push(Rc::clone(&torn)));
            }
        }
    }

    /// The last page of the checkpoint that was begun is programmed.
    pub(crate) fn end(&mut self, checkpoint: Checkpoint) {
        let Seal { next_wid, end, .. } = *checkpoint.seal();
        self.records.retain(|page| page.iter().any(|record| record.later >= next_wid));
        self.openings.retain(|opening| opening.sequence >= end);
        match checkpoint {
            Checkpoint::Full(full) => {
                let place = (full.number % 2) as usize;
                self.places[place] = Some(Place { full: Rc::new(full), log: Vec::new() });
                self.log_pages = (self.records.len() + self.openings.len()) as u64;
            }
            Checkpoint::Increment(increment) => {
                if let Some(torn) = self.newest_mut().and_then(|place| place.log.last_mut()) {
                    *torn = Rc::new(increment);
                }
            }
        }
    }

    /// Words that differ where recovery would see something else.
    pub(crate) fn words(&self) -> impl Iterator<Item = u64> {
        let records = self.records.iter().flat_map(|page| page.iter());
        let records = records
            .flat_map(|Coalescing { earlier, later, blocks }| [earlier.wid, *later, u64::from(*blocks)]);
        let openings =
            self.openings.iter().flat_map(|opening| [u64::from(opening.block.0), opening.sequence]);
        let places = self.places.iter().flat_map(|place| {
            let full = place
                .iter()
                .flat_map(|place| [place.full.number + 1].into_iter().chain(place.full.seal.words()));
            let log = place.iter().flat_map(|place| &place.log).flat_map(|increment| {
                let sizes = [u64::from(increment.whole), increment.changes.len() as u64];
                sizes.into_iter().chain(increment.seal.words())
            });
            full.chain(log).chain([u64::MAX])
        });
        records.chain(openings).chain(places)
    }
}
