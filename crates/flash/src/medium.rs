//! The *medium*: what is on the flash chips, and nothing else. It is all that is left after a power cut, and
//! all that the firmware's recovery may look at.
//!
//! Pages of an erase block are programmed in order, each once between two erases. Every page has a *spare
//! area*: which logical block and version each of its slots holds, the page's sequence number, and a tag that
//! says what the page belongs to. A page that was being programmed when the power went may be *torn*: neither
//! its data nor its spare area can be read.

use std::ops::Range;
use std::rc::Rc;

use weir_storage::BLOCK_BYTES;

use crate::backing::BackedBlock;
use crate::checkpoint::SystemArea;
use crate::geometry::{EraseBlock, Geometry, Page, Slot};
use crate::map::{Change, Pair};
use crate::recovery_point::Receipt;

/// The content of a slot.
#[derive(Clone, Debug)]
pub(crate) enum Payload {
    /// Not kept: the slot is known by its version alone.
    Version,
    /// One block.
    Bytes(Rc<[u8]>),
    /// One block, in a backing file.
    Filed(Rc<BackedBlock>),
    /// One block of which a power cut has garbled some sectors (F12).
    Garbled(Rc<Garbled>),
    /// The blocks of a logical page that has several; none where one reads as zeros.
    Page(Rc<[Option<Part>]>),
    /// No data but a record: these many logical pages from the slot's own are discarded.
    Discard(u32),
    /// No data but a record: all of these logical blocks read others now. One slot of one page holds it, so it is on
    /// flash as a whole or not at all.
    Share(Rc<[Pair]>),
}

impl Payload {
    /// Pairs in a record of a share at most.
    pub(crate) const SHARE_PAIRS_MAX: u64 = BLOCK_BYTES as u64 / Pair::BYTES;

    /// Whether it is no data but a record.
    pub(crate) fn is_record(&self) -> bool {
        matches!(self, Payload::Discard(_) | Payload::Share(_))
    }
}

/// A block of which the cells were being changed when the power went.
#[derive(Debug)]
pub(crate) struct Garbled {
    /// What was to be there.
    pub(crate) new: Payload,
    /// Says which sectors are garbage, and which garbage they are.
    pub(crate) seed: u64,
}

impl Garbled {
    /// Bytes of a sector.
    const SECTOR_BYTES: usize = 512;

    /// Puts garbage in place of some sectors of a block, one at least.
    pub(crate) fn garble(&self, block: &mut [u8]) {
        let sectors = block.chunks_exact_mut(Garbled::SECTOR_BYTES).enumerate();
        let lost = 1 + self.seed % 255;
        for (nth, sector) in sectors.filter(|(nth, _)| lost >> nth & 1 == 1) {
            let first = mix(self.seed, nth as u64);
            for (word, bytes) in (0..).zip(sector.chunks_exact_mut(8)) {
                bytes.copy_from_slice(&mix(first, word).to_le_bytes());
            }
        }
    }
}

/// A block of a logical page that has several.
#[derive(Clone, Debug)]
pub(crate) struct Part {
    pub(crate) version: u64,
    pub(crate) payload: Payload,
}

/// What one slot holds, with its spare area.
#[derive(Clone, Debug)]
pub(crate) struct Content {
    /// The logical page.
    pub(crate) lpn: u32,
    /// Counts the blocks that entered the cache: a later version supersedes an earlier one. That of a logical page of
    /// several blocks is its newest block's.
    pub(crate) version: u64,
    pub(crate) payload: Payload,
    /// The request that it came with, where the mechanism wants to know.
    pub(crate) receipt: Receipt,
}

/// What a page belongs to: the part of the spare area that the barrier mechanisms use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tag {
    /// Counts as soon as it is programmed.
    Plain,
    /// Its place in the one log (in-order recovery).
    Log(u64),
    /// Part of an atomic unit; the last page carries the commit mark, the number of pages.
    Transaction { id: u64, pages: Option<u32> },
    /// Counts as far as its requests are kept; each slot says which they are (order-preserving recovery).
    Request,
    /// Copies that cleaning made of blocks which were committed already.
    Moved,
    /// Without slots: repeats what the spare areas of its erase block say.
    Summary,
    /// Unreadable.
    Torn,
}

/// The spare area of a page, without that of its slots.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spare {
    /// Pages are numbered as they are allocated.
    pub(crate) sequence: u64,
    pub(crate) tag: Tag,
    /// Slots that hold something.
    pub(crate) used: u8,
    /// The free erase block that its die fills next (order-preserving recovery).
    pub(crate) next_block: EraseBlock,
}

impl Spare {
    /// Of a page that cannot be read.
    const TORN: Spare = Spare { sequence: u64::MAX, tag: Tag::Torn, used: 0, next_block: EraseBlock::NONE };

    pub(crate) fn is_torn(&self) -> bool {
        self.tag == Tag::Torn
    }
}

/// The spare area of a slot: its logical block, 32 bits, and its version, 40 bits. Nine bytes side by side, since
/// there is one for every slot of the device, and looking one up should miss the processor's caches once.
#[derive(Clone, Copy, Debug)]
struct Label([u8; 9]);

impl Label {
    /// Of a slot that holds nothing.
    const EMPTY: Label = Label([0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0, 0]);

    fn new(lpn: u32, version: u64) -> Label {
        let mut bytes = [0; 9];
        bytes[..4].copy_from_slice(&lpn.to_le_bytes());
        bytes[4..].copy_from_slice(&version.to_le_bytes()[..5]);
        Label(bytes)
    }

    fn lpn(self) -> u32 {
        let [a, b, c, d, ..] = self.0;
        u32::from_le_bytes([a, b, c, d])
    }

    fn version(self) -> u64 {
        let [.., a, b, c, d, e] = self.0;
        u64::from_le_bytes([a, b, c, d, e, 0, 0, 0])
    }
}

/// An erase block.
#[derive(Clone, Debug, Default)]
pub(crate) struct Block {
    /// Times erased.
    pub(crate) wear: u32,
    pages: Vec<Spare>,
    labels: Vec<Label>,
    /// By place in the block; only slots that hold bytes or records are listed where versions are enough.
    payloads: Vec<Payload>,
    /// By place in the block, where pages are tagged [`Tag::Request`].
    receipts: Vec<Receipt>,
    /// What its summary page says: pages, by place in the block, with their spare areas.
    summary: Vec<(u32, Spare)>,
    /// Of everything programmed here since the last erase.
    hash: u64,
}

impl Block {
    /// Pages programmed since the last erase, torn ones included.
    pub(crate) fn programmed(&self) -> u32 {
        self.pages.len() as u32
    }

    pub(crate) fn spare(&self, nth_page: u32) -> Option<&Spare> {
        self.pages.get(nth_page as usize)
    }

    /// What its summary page says; nothing while there is none that can be read.
    pub(crate) fn summary(&self) -> &[(u32, Spare)] {
        &self.summary
    }

    /// Whether one of these slots holds a record.
    pub(crate) fn holds_record(&self, mut nth_slots: Range<usize>) -> bool {
        nth_slots.any(|nth| self.payloads.get(nth).is_some_and(Payload::is_record))
    }

    fn label(&self, nth_slot: usize) -> Label {
        self.labels.get(nth_slot).copied().unwrap_or(Label::EMPTY)
    }

    /// The logical block that the content of a slot was written for, and its version. None that exist where nothing is
    /// programmed.
    pub(crate) fn origin(&self, nth_slot: usize) -> (u32, u64) {
        let label = self.label(nth_slot);
        (label.lpn(), label.version())
    }

    /// What a programmed slot says of the map.
    fn change(&self, nth_slot: usize, slot: Slot, tag: Tag) -> Change<'_> {
        let label = self.label(nth_slot);
        let (lpn, version) = (label.lpn(), label.version());
        match self.payloads.get(nth_slot) {
            Some(Payload::Discard(blocks)) => Change::Discarded { lpn, blocks: *blocks, version },
            Some(Payload::Share(pairs)) => Change::Shared { version, pairs },
            _ if tag == Tag::Moved => Change::Moved { lpn, version, slot },
            _ => Change::Written { lpn, version, slot },
        }
    }

    /// The request that a slot came with.
    fn receipt(&self, nth_slot: usize) -> Receipt {
        self.receipts.get(nth_slot).copied().unwrap_or_default()
    }

    /// What a slot holds.
    pub(crate) fn content(&self, nth_slot: usize) -> Content {
        let payload = self.payloads.get(nth_slot).cloned().unwrap_or(Payload::Version);
        let label = self.label(nth_slot);
        Content { lpn: label.lpn(), version: label.version(), payload, receipt: self.receipt(nth_slot) }
    }
}

const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;

fn mix(hash: u64, word: u64) -> u64 {
    (hash.rotate_left(23) ^ word).wrapping_mul(SPREAD)
}

/// Everything that is on flash. Clones share what neither has changed since.
#[derive(Clone, Debug)]
pub struct Medium {
    geometry: Geometry,
    blocks: Vec<Rc<Block>>,
    /// The map's checkpoints.
    pub(crate) system: SystemArea,
    /// What the capacitors saved of the cache.
    pub(crate) dump: Option<Rc<Vec<Content>>>,
    /// Pages that the power cut garbled which left this.
    pub(crate) garbled_pages: u32,
}

impl Medium {
    /// Erased chips.
    pub(crate) fn new(geometry: Geometry) -> Medium {
        let block: Rc<Block> = Rc::default();
        let blocks = vec![block; geometry.blocks() as usize];
        Medium { geometry, blocks, system: SystemArea::default(), dump: None, garbled_pages: 0 }
    }

    pub(crate) fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    pub(crate) fn block(&self, block: EraseBlock) -> &Block {
        &self.blocks[block.0 as usize]
    }

    /// The spare area of a page; none while it is erased.
    pub(crate) fn spare(&self, page: Page) -> Option<&Spare> {
        self.block(self.geometry.block_of(page)).spare(self.geometry.nth_page(page))
    }

    /// What a slot holds.
    pub(crate) fn content(&self, slot: Slot) -> Content {
        let (block, nth) = self.geometry.place_of(slot);
        self.block(block).content(nth)
    }

    /// What a slot of a page with this tag says of the map.
    pub(crate) fn change(&self, slot: Slot, tag: Tag) -> Change<'_> {
        let (block, nth) = self.geometry.place_of(slot);
        self.block(block).change(nth, slot, tag)
    }

    /// The request that a slot came with.
    pub(crate) fn receipt(&self, slot: Slot) -> Receipt {
        let (block, nth) = self.geometry.place_of(slot);
        self.block(block).receipt(nth)
    }

    /// Programs the next page of its erase block, with the spare area but for how many slots are used.
    pub(crate) fn program(&mut self, page: Page, spare: Spare, contents: &[Content]) {
        let Spare { sequence, tag, next_block, .. } = spare;
        let geometry = self.geometry;
        let block = Rc::make_mut(&mut self.blocks[geometry.block_of(page).0 as usize]);
        assert_eq!(block.programmed(), geometry.nth_page(page), "pages are programmed in order");
        if block.pages.capacity() == 0 {
            block.pages.reserve_exact(geometry.pages_per_block as usize);
            block.labels.reserve_exact(geometry.slots_per_block() as usize);
        }
        if tag == Tag::Summary {
            let readable = (0..).zip(&block.pages).filter(|(_, spare)| spare.tag != Tag::Torn);
            block.summary = readable.map(|(nth, spare)| (nth, *spare)).collect();
        }
        block.pages.push(Spare { used: contents.len() as u8, ..spare });
        block.hash = mix(mix(block.hash, sequence), u64::from(tag == Tag::Torn));
        if next_block != EraseBlock::NONE {
            block.hash = mix(block.hash, u64::from(next_block.0));
        }
        for content in contents {
            let Content { lpn, version, payload, receipt } = content;
            block.hash = mix(mix(block.hash, u64::from(*lpn)), *version);
            if let Payload::Garbled(garbled) = payload {
                block.hash = mix(block.hash, garbled.seed);
            }
            if !matches!(payload, Payload::Version) {
                block.payloads.resize(block.labels.len(), Payload::Version);
                block.payloads.push(payload.clone());
            }
            if tag == Tag::Request {
                block.receipts.resize(block.labels.len(), Receipt::default());
                block.receipts.push(*receipt);
            }
            block.labels.push(Label::new(*lpn, *version));
        }
        let end = block.pages.len() * geometry.slots_per_page as usize;
        block.labels.resize(end, Label::EMPTY);
    }

    /// A page whose programming the power cut interrupted.
    pub(crate) fn tear(&mut self, page: Page) {
        self.program(page, Spare::TORN, &[]);
    }

    /// Makes every page of an erase block unreadable: its erasing was interrupted.
    pub(crate) fn spoil(&mut self, block: EraseBlock) {
        let spoilt = Rc::make_mut(&mut self.blocks[block.0 as usize]);
        for page in &mut spoilt.pages {
            *page = Spare::TORN;
        }
        spoilt.labels.fill(Label::EMPTY);
        spoilt.payloads.clear();
        spoilt.receipts.clear();
        spoilt.summary.clear();
        spoilt.hash = mix(spoilt.hash, u64::MAX);
    }

    /// Empties an erase block.
    pub(crate) fn erase(&mut self, block: EraseBlock) {
        let erased = Rc::make_mut(&mut self.blocks[block.0 as usize]);
        erased.wear += 1;
        erased.pages.clear();
        erased.labels.clear();
        erased.payloads.clear();
        erased.receipts.clear();
        erased.summary.clear();
        erased.hash = 0;
    }

    /// A hash of everything on flash: media that differ in what recovery can see differ in it.
    #[must_use]
    pub fn hash(&self) -> u64 {
        let blocks = self.blocks.iter().fold(0, |hash, block| mix(hash, block.hash));
        let hash = self.system.words().fold(blocks, mix);
        let dump = self.dump.iter().flat_map(|dump| dump.iter());
        let hash = dump.fold(hash, |hash, content| mix(mix(hash, u64::from(content.lpn)), content.version));
        mix(hash, 1)
    }

    /// Pages that read as good, and whose blocks the power cut garbled which left this (`nand.torn_program`).
    #[must_use]
    pub fn garbled_pages(&self) -> u32 {
        self.garbled_pages
    }

    /// How often erase blocks were erased: least, on average, most.
    #[must_use]
    pub fn wear(&self) -> (u32, f64, u32) {
        let wear = || self.blocks.iter().map(|block| block.wear);
        let sum: u64 = wear().map(u64::from).sum();
        let average = sum as f64 / self.blocks.len().max(1) as f64;
        (wear().min().unwrap_or(0), average, wear().max().unwrap_or(0))
    }
}
