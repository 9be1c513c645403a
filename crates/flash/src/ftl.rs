//! The translation layer: which page is programmed next, what the map holds when it is committed, and what may be
//! erased. The map itself is in `map`, cleaning in `clean`, starting again after a power cut in `recovery`.
//!
//! # The reclaim check
//!
//! An erase block is erased when all four hold: nothing in it is valid; everything in it is committed, or never
//! will be; recovery will not look at it, because the newest whole checkpoint covers all its pages; and recovery will
//! not go back to anything in it (order-preserving recovery, `unsettled`). What fails the third point waits for a
//! checkpoint, what fails the fourth for a flush. Everything that is erased passes [`Ftl::release`].

use std::collections::VecDeque;
use std::rc::Rc;

use crate::array::{Array, Program, Work};
use crate::cache::Taken;
use crate::checkpoint::Seal;
use crate::checkpointer::Checkpointer;
use crate::clean::Cleaning;
use crate::found_pages::Filled;
use crate::geometry::{EraseBlock, Geometry, Page, Slot};
use crate::map::Map;
use crate::mechanism::Sequencer;
use crate::medium::{Content, Medium, Payload, Spare, Tag};
use crate::mutants::{FlashMutant, FlashRules};
use crate::options::FlashOptions;
use crate::profile::{Allocation, GcPolicy, Mechanism, Profile};
use crate::record_buffer::RecordPage;
use crate::recovery_point::{Receipt, Wid};
use crate::stats::Stats;
use crate::stock::{Opening, Stock};
use crate::unsettled::Unsettled;

/// Free blocks of each die that only cleaning takes: one to move to, and one more, since each power cut may tear
/// a page of the first, and a victim's content would find no room any more.
pub(crate) const CLEANINGS_OWN: usize = 2;

/// `Free -> Open -> Full -> Garbage -> Free`; cleaning takes a full block over while it moves its content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BlockPhase {
    /// Erased.
    Free,
    /// Being filled.
    Open,
    /// Filled.
    Full,
    /// Being cleaned.
    Victim,
    /// Without valid content; waits for the reclaim check, or is being erased.
    Garbage,
}

/// What the firmware knows of an erase block.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BlockState {
    pub(crate) state: BlockPhase,
    /// Pages allocated since the last erase.
    pub(crate) next_page: u32,
    /// Slots that the map points to, whatever the number of blocks in each.
    pub(crate) valid: u32,
    /// Pages allocated that are not committed yet.
    pub(crate) uncommitted: u32,
    /// Slots that the map has left, and recovery may go back to.
    pub(crate) unsettled: u32,
    /// The sequence number of its last page.
    pub(crate) last_sequence: u64,
}

impl BlockState {
    pub(crate) const FREE: BlockState = BlockState {
        state: BlockPhase::Free,
        next_page: 0,
        valid: 0,
        uncommitted: 0,
        unsettled: 0,
        last_sequence: 0,
    };
}

/// What the firmware knows of a die.
#[derive(Debug)]
pub(crate) struct DieState {
    pub(crate) free: VecDeque<EraseBlock>,
    /// Where the host's data goes.
    pub(crate) open: Option<EraseBlock>,
    /// Where cleaning moves blocks to.
    pub(crate) open_moved: Option<EraseBlock>,
    pub(crate) cleaning: Option<Cleaning>,
    /// The free block that its newest page names; where it has programmed none since the start, the newest seal does.
    named: EraseBlock,
    /// It wants cleaning, and nothing would be gained: to be looked at again when something of it is superseded.
    pub(crate) starved: bool,
    /// It is in the list of dies that may take a page.
    listed: bool,
}

impl DieState {
    /// Without any erase blocks.
    fn new() -> DieState {
        DieState {
            free: VecDeque::new(),
            open: None,
            open_moved: None,
            cleaning: None,
            named: EraseBlock::NONE,
            starved: false,
            listed: false,
        }
    }
}

/// What a finished die brought.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    /// Pages of the host's data that are committed from now on, in order.
    pub(crate) committed: Vec<Page>,
    /// Reads that are done.
    pub(crate) reads: Vec<u32>,
    /// Pages of coalescing records that are programmed.
    pub(crate) records: Vec<u64>,
}

/// What a page is to be programmed with.
pub(crate) struct NewPage {
    pub(crate) tag: Tag,
    pub(crate) contents: Vec<Content>,
    /// Pages to be read first.
    pub(crate) reads: u32,
    /// Something in it is reliable (F12).
    pub(crate) reliable: bool,
}

/// The translation layer on its chips.
pub(crate) struct Ftl {
    pub(crate) geometry: Geometry,
    pub(crate) medium: Medium,
    pub(crate) array: Array,
    pub(crate) sequencer: Sequencer,
    pub(crate) map: Map,
    pub(crate) blocks: Vec<BlockState>,
    pub(crate) dies: Vec<DieState>,
    pub(crate) gc: GcPolicy,
    pub(crate) gc_free_blocks: usize,
    allocation: Allocation,
    pub(crate) rules: FlashRules,
    pub(crate) stats: Stats,
    /// Dies that may take a page, in the order in which they became idle. Looked at again when taken.
    ready: VecDeque<u32>,
    pub(crate) next_sequence: u64,
    /// Pages from `next_sequence` backwards: whether they are committed. The first is not.
    committed: VecDeque<bool>,
    /// Garbage that the newest whole checkpoint does not cover.
    waiting: Vec<EraseBlock>,
    checkpointer: Checkpointer,
    /// Pages that the unit being written back still needs, or all that waits in the cache (order-preserving recovery):
    /// cleaning leaves them, since what it frees may come back only when these are committed.
    pub(crate) promised_pages: u32,
    /// How many dies are starved.
    pub(crate) starved: u32,
    /// Dies that were starved until something of theirs was superseded.
    pub(crate) relieved: Vec<u32>,
    /// Slots that no block is in since the page at hand was committed.
    pub(crate) left: Vec<Slot>,
    /// The newest version that was committed.
    newest_version: u64,
    /// What order-preserving recovery holds back.
    pub(crate) unsettled: Option<Unsettled>,
    /// Emptied payloads, to be filled again.
    spare_contents: Vec<Vec<Content>>,
}

/// What recovery found, and what a fresh device begins with.
pub(crate) struct Start {
    pub(crate) map: Map,
    pub(crate) sequencer: Sequencer,
    pub(crate) next_sequence: u64,
    /// The newest whole full checkpoint's number, and where the scan begins.
    pub(crate) checkpoint: (u64, u64),
    /// How far each erase block is filled.
    pub(crate) filled: Vec<Filled>,
}

impl Ftl {
    /// The firmware on `medium`, with the map that `start` says. What is programmed is taken as filled.
    pub(crate) fn new(profile: &Profile, options: &FlashOptions, medium: Medium, start: Start) -> Ftl {
        let geometry = *medium.geometry();
        let array = Array::new(geometry, &profile.nand, options.probe.clone());
        let rules = options.rules;
        let keeps_map = !options.never_cut;
        let checkpointer = Checkpointer::new(profile, &geometry, start.checkpoint, keeps_map);
        let ordered = profile.barrier.mechanism == Mechanism::OrderPreservingRecovery;
        let mut ftl = Ftl {
            geometry,
            medium,
            array,
            sequencer: start.sequencer,
            map: start.map,
            blocks: vec![BlockState::FREE; geometry.blocks() as usize],
            dies: (0..geometry.dies).map(|_| DieState::new()).collect(),
            gc: profile.ftl.gc,
            gc_free_blocks: profile.ftl.gc_free_blocks as usize,
            allocation: profile.ftl.layout.allocation,
            rules,
            stats: Stats::default(),
            ready: VecDeque::new(),
            next_sequence: start.next_sequence,
            committed: VecDeque::new(),
            waiting: Vec::new(),
            checkpointer,
            promised_pages: 0,
            starved: 0,
            relieved: Vec::new(),
            left: Vec::new(),
            newest_version: 0,
            unsettled: ordered.then(Unsettled::default),
            spare_contents: Vec::new(),
        };
        ftl.take_stock(&start.filled);
        ftl
    }

    /// Takes in how far each erase block is filled: after a start nothing is on its way.
    fn take_stock(&mut self, filled: &[Filled]) {
        for slot in self.map.slots() {
            let (block, _) = self.geometry.place_of(slot);
            self.blocks[block.0 as usize].valid += 1;
        }
        for die in 0..self.geometry.dies {
            for block in self.geometry.blocks_of(die) {
                self.take_in(die, block, filled[block.0 as usize]);
            }
            self.name_next(die);
            self.refresh(die);
        }
    }

    fn take_in(&mut self, die: u32, block: EraseBlock, Filled { pages, last_sequence }: Filled) {
        let known = &mut self.blocks[block.0 as usize];
        (known.next_page, known.last_sequence) = (pages, last_sequence);
        let owner = &mut self.dies[die as usize];
        known.state = match pages {
            0 => {
                owner.free.push_back(block);
                BlockPhase::Free
            }
            // A block that was being filled is filled on, first by cleaning, which must never lack a place.
            pages if pages < self.geometry.data_pages_per_block && owner.open_moved.is_none() => {
                owner.open_moved = Some(block);
                BlockPhase::Open
            }
            pages if pages < self.geometry.data_pages_per_block && owner.open.is_none() => {
                owner.open = Some(block);
                BlockPhase::Open
            }
            _ => BlockPhase::Full,
        };
    }

    /// Whether a page of the host's data can be programmed now.
    pub(crate) fn has_room(&mut self) -> bool {
        while let Some(&die) = self.ready.front() {
            if self.may_take(die) {
                return true;
            }
            self.ready.pop_front();
            self.dies[die as usize].listed = false;
        }
        false
    }

    fn may_take(&self, die: u32) -> bool {
        let state = &self.dies[die as usize];
        let has_block = state.open.is_some() || state.free.len() > CLEANINGS_OWN;
        state.cleaning.is_none() && self.array.is_idle(die) && has_block
    }

    /// Pages of the host's data that can be programmed before anything more is cleaned, whichever logical pages they
    /// hold: with static allocation all may go to one die.
    pub(crate) fn room_pages(&self) -> u32 {
        let room = self.dies.iter().map(|die| self.room_of(die));
        match self.allocation {
            Allocation::Dynamic => room.sum(),
            Allocation::Static => room.min().unwrap_or(0),
        }
    }

    /// The same, of what may go to one die only.
    pub(crate) fn room_pages_on(&self, die: u32) -> u32 {
        match self.allocation {
            Allocation::Dynamic => self.room_pages(),
            Allocation::Static => self.room_of(&self.dies[die as usize]),
        }
    }

    /// Where cleaning is at work it may take one free block more than its own.
    fn room_of(&self, die: &DieState) -> u32 {
        let pages = self.geometry.data_pages_per_block;
        let open = die.open.map_or(0, |block| pages - self.blocks[block.0 as usize].next_page);
        let kept = CLEANINGS_OWN + usize::from(die.cleaning.is_some());
        open + (die.free.len().saturating_sub(kept)) as u32 * pages
    }

    /// Whether the die that a logical page must go to may take it now; any die may where that is for the firmware to
    /// choose.
    pub(crate) fn takes(&self, lpn: u32) -> bool {
        self.die_for(lpn).is_none_or(|die| self.may_take(die))
    }

    /// The die that a logical page must go to.
    fn die_for(&self, lpn: u32) -> Option<u32> {
        (self.allocation == Allocation::Static).then_some(lpn % self.geometry.dies)
    }

    /// Whether logical pages have dies of their own.
    pub(crate) fn allocates_statically(&self) -> bool {
        self.allocation == Allocation::Static
    }

    /// Lets every idle die clean that wants to: what kept it from that may be over.
    pub(crate) fn clean_idle(&mut self, now: u64) {
        for die in 0..self.geometry.dies {
            self.clean(die, now);
            self.refresh(die);
        }
    }

    /// Lists a die that may take a page now.
    pub(crate) fn refresh(&mut self, die: u32) {
        if !self.dies[die as usize].listed && self.may_take(die) {
            self.dies[die as usize].listed = true;
            self.ready.push_back(die);
        }
    }

    /// An empty payload.
    pub(crate) fn contents(&mut self) -> Vec<Content> {
        self.spare_contents.pop().unwrap_or_default()
    }

    /// Programs a page of the host's data: on the die of its logical page, or on the one that has been idle longest.
    /// What was `taken` may close the unit of transactional writeback, and pages may be read first, to complete logical
    /// pages of which the cache has a part. None if there is no room.
    pub(crate) fn write_back(&mut self, contents: Vec<Content>, taken: &Taken, now: u64) -> Option<Page> {
        let Taken { ends_unit, reads, reliable, .. } = *taken;
        let die = match contents.first().and_then(|content| self.die_for(content.lpn)) {
            Some(die) => die,
            None => self.idle_longest()?,
        };
        let page = self.take_page(die, false)?;
        self.promised_pages = self.promised_pages.saturating_sub(1);
        let tag = self.sequencer.tag(ends_unit);
        self.stats.programmed_pages += 1;
        self.checkpointer.since += 1;
        self.stats.completing_reads += u64::from(reads);
        self.program(die, page, NewPage { tag, contents, reads, reliable }, now);
        Some(page)
    }

    fn idle_longest(&mut self) -> Option<u32> {
        if !self.has_room() {
            return None;
        }
        let die = self.ready.pop_front()?;
        self.dies[die as usize].listed = false;
        Some(die)
    }

    /// The next page of a die.
    pub(crate) fn take_page(&mut self, die: u32, moved: bool) -> Option<Page> {
        let state = &mut self.dies[die as usize];
        let open = if moved { &mut state.open_moved } else { &mut state.open };
        let block = match *open {
            Some(block) => block,
            None => {
                let block = state.free.pop_front()?;
                self.blocks[block.0 as usize].state = BlockPhase::Open;
                *open = Some(block);
                block
            }
        };
        let known = &mut self.blocks[block.0 as usize];
        let page = self.geometry.page(block, known.next_page);
        known.next_page += 1;
        known.uncommitted += 1;
        known.last_sequence = self.next_sequence;
        if known.next_page == self.geometry.data_pages_per_block {
            known.state = BlockPhase::Full;
            *open = None;
        }
        Some(page)
    }

    pub(crate) fn program(&mut self, die: u32, page: Page, new: NewPage, now: u64) {
        let sequence = self.take_sequence();
        let NewPage { tag, contents, reads, reliable } = new;
        if let Some(opening) = self.unnamed(die, page, sequence) {
            self.stats.opening_pages += 1;
            self.checkpointer.records_written();
            self.array.add(die, Work::Opening(opening), now);
        }
        let spare = self.spare_area(die, sequence, tag);
        self.array.add(die, Work::Program(Program { page, spare, contents, reads, reliable }), now);
        if let Some(summary) = self.summary_behind(page) {
            self.array.add(die, Work::Program(summary), now);
        }
    }

    /// The erase block of a page, if the page is its first and nothing on flash names it.
    fn unnamed(&self, die: u32, page: Page, sequence: u64) -> Option<Opening> {
        let block = self.geometry.block_of(page);
        let opens = self.unsettled.is_some() && self.geometry.nth_page(page) == 0;
        let named =
            self.dies[die as usize].named == block || self.rules.drops(FlashMutant::BlockOpenedUnnamed);
        (opens && !named).then_some(Opening { block, sequence })
    }

    /// The spare area of a page of a die, without how many slots are used.
    fn spare_area(&mut self, die: u32, sequence: u64, tag: Tag) -> Spare {
        Spare { sequence, tag, used: 0, next_block: self.name_next(die) }
    }

    /// The free erase block that a die fills next, where recovery goes from one to the next.
    fn name_next(&mut self, die: u32) -> EraseBlock {
        let die = &mut self.dies[die as usize];
        if self.unsettled.is_some() {
            die.named = die.free.front().copied().unwrap_or(EraseBlock::NONE);
        }
        die.named
    }

    fn take_sequence(&mut self) -> u64 {
        self.next_sequence += 1;
        self.committed.push_back(false);
        self.next_sequence - 1
    }

    /// The summary page of an erase block whose last page of data this is.
    fn summary_behind(&mut self, page: Page) -> Option<Program> {
        if !self.geometry.precedes_summary(page) {
            return None;
        }
        let block = self.geometry.block_of(page);
        let sequence = self.take_sequence();
        let known = &mut self.blocks[block.0 as usize];
        let page = self.geometry.page(block, known.next_page);
        known.next_page += 1;
        known.uncommitted += 1;
        known.last_sequence = sequence;
        self.stats.summary_pages += 1;
        let spare = self.spare_area(self.geometry.die_of(block), sequence, Tag::Summary);
        let contents = self.contents();
        Some(Program { page, spare, contents, reads: 0, reliable: false })
    }

    /// Takes in what one die has done by `now`; false if none has done anything.
    pub(crate) fn advance(&mut self, now: u64, outcome: &mut Outcome) -> bool {
        let Some((die, work)) = self.array.finished(now) else { return false };
        match work {
            Work::Program(program) => self.programmed(program, outcome),
            Work::Read { read, .. } => outcome.reads.push(read),
            Work::Erase(block) => self.erased(die, block),
            Work::System => self.checkpointed(now),
            Work::Records(number, records) => {
                self.medium.system.record(records);
                outcome.records.push(number);
            }
            Work::Opening(opening) => self.medium.system.open(opening),
        }
        self.clean(die, now);
        self.array.start(die, now);
        self.refresh(die);
        while let Some(die) = self.relieved.pop() {
            self.clean(die, now);
            self.refresh(die);
        }
        true
    }

    /// Programs the logical pages of the first `blocks` blocks in order, in no time; how many found room.
    pub(crate) fn fill(&mut self, blocks: u32, first_version: u64) -> u32 {
        let Geometry { blocks_per_slot, slots_per_page: slots, .. } = self.geometry;
        let blocks = blocks / blocks_per_slot;
        let mut filled = 0;
        let mut outcome = Outcome::default();
        while filled < blocks {
            let die = (filled / slots) % self.geometry.dies;
            let has_free = self.dies[die as usize].free.len() > self.gc_free_blocks;
            if !has_free && self.dies[die as usize].open.is_none() {
                break;
            }
            let Some(page) = self.take_page(die, false) else { break };
            let end = (filled + slots).min(blocks);
            let mut contents = self.contents();
            contents.extend((filled..end).map(|lpn| {
                let version = first_version + u64::from((lpn + 1) * blocks_per_slot) - 1;
                Content { lpn, version, payload: Payload::Version, receipt: Receipt::default() }
            }));
            let tag = self.sequencer.tag(end == blocks);
            let sequence = self.take_sequence();
            if let Some(opening) = self.unnamed(die, page, sequence) {
                self.medium.system.open(opening);
            }
            let spare = self.spare_area(die, sequence, tag);
            self.programmed(Program { page, spare, contents, reads: 0, reliable: false }, &mut outcome);
            if let Some(summary) = self.summary_behind(page) {
                self.programmed(summary, &mut outcome);
            }
            outcome.committed.clear();
            filled = end;
        }
        filled * blocks_per_slot
    }

    fn programmed(&mut self, program: Program, outcome: &mut Outcome) {
        let Program { page, spare, mut contents, .. } = program;
        let tag = spare.tag;
        self.medium.program(page, spare, &contents);
        contents.clear();
        self.spare_contents.push(contents);
        let first = outcome.committed.len();
        self.sequencer.programmed(page, tag, &mut outcome.committed);
        for at in first..outcome.committed.len() {
            self.commit(outcome.committed[at]);
        }
        if matches!(tag, Tag::Moved | Tag::Summary) {
            outcome.committed.truncate(first);
        }
    }

    /// A page is committed from now on: the map points to it.
    fn commit(&mut self, page: Page) {
        let block = self.geometry.block_of(page);
        let Some(&spare) = self.medium.spare(page) else { return };
        self.blocks[block.0 as usize].uncommitted -= 1;
        let first = self.uncommitted_from();
        if let Some(committed) = self.committed.get_mut((spare.sequence - first) as usize) {
            *committed = true;
        }
        while self.committed.front() == Some(&true) {
            self.committed.pop_front();
        }
        for nth in 0..u32::from(spare.used) {
            let change = self.medium.change(self.geometry.slot(page, nth), spare.tag);
            let names = self.map.has_names();
            if !self.map.apply(change, &mut self.left) {
                continue;
            }
            self.blocks[block.0 as usize].valid += u32::from(change.fills_slot());
            let version = change.version();
            self.newest_version = self.newest_version.max(version);
            if spare.tag != Tag::Moved || !self.rules.drops(FlashMutant::MoveUnlogged) {
                self.checkpointer.changed(change);
            }
            // What a copy leaves behind is never gone back to: only blocks that are settled are moved.
            if self.unsettled.is_some() && spare.tag != Tag::Moved {
                // The last of several names to go need not be the newest change that took one.
                self.hold_back(if names { self.newest_version } else { version });
            }
        }
        while let Some(slot) = self.left.pop() {
            self.invalidate(slot);
        }
    }

    /// No block is in this slot any more. A mutant that erases too early leaves its erase block without a count.
    pub(crate) fn invalidate(&mut self, slot: Slot) {
        let (block, _) = self.geometry.place_of(slot);
        let known = &mut self.blocks[block.0 as usize];
        known.valid = known.valid.saturating_sub(1);
        if self.starved > 0 {
            let die = self.geometry.die_of(block);
            if std::mem::take(&mut self.dies[die as usize].starved) {
                self.starved -= 1;
                self.relieved.push(die);
            }
        }
    }

    /// The reclaim check: erases a block without valid content as soon as recovery will not look at it.
    pub(crate) fn release(&mut self, block: EraseBlock, now: u64) {
        self.blocks[block.0 as usize].state = BlockPhase::Garbage;
        let covered = self.is_covered(block) || self.rules.drops(FlashMutant::ErasesBeforeCheckpoint);
        let unsettled = self.blocks[block.0 as usize].unsettled > 0;
        let settled = !unsettled || self.rules.drops(FlashMutant::ErasesUnsettled);
        if covered && settled {
            let die = self.geometry.die_of(block);
            self.array.add(die, Work::Erase(block), now);
        } else {
            self.waiting.push(block);
        }
    }

    /// Whether the newest whole checkpoint covers all pages of a block.
    pub(crate) fn is_covered(&self, block: EraseBlock) -> bool {
        self.blocks[block.0 as usize].last_sequence < self.checkpointer.scan_from()
    }

    fn erased(&mut self, die: u32, block: EraseBlock) {
        self.medium.erase(block);
        self.stats.erases += 1;
        self.blocks[block.0 as usize] = BlockState::FREE;
        self.dies[die as usize].free.push_back(block);
    }

    /// Pages with this sequence number and later ones are not all committed.
    fn uncommitted_from(&self) -> u64 {
        self.next_sequence - self.committed.len() as u64
    }

    /// Whether a checkpoint should be begun: after so many pages, or because something waits for the reclaim check.
    pub(crate) fn is_checkpoint_due(&self) -> bool {
        let from = self.uncommitted_from();
        let covers = |block: &EraseBlock| {
            !self.is_covered(*block) && self.blocks[block.0 as usize].last_sequence < from
        };
        let due = self.checkpointer.is_due() || self.waiting.iter().any(covers);
        due && !self.checkpointer.is_writing()
    }

    /// Begins a checkpoint if one is due.
    pub(crate) fn checkpoint_if_due(&mut self, next_version: u64, now: u64) {
        if self.is_checkpoint_due() {
            self.checkpoint(next_version, 0, now);
        }
    }

    /// Begins a checkpoint of the map as it is now. `next_wid` is the first request that was not received yet.
    pub(crate) fn checkpoint(&mut self, next_version: u64, next_wid: Wid, now: u64) {
        let seal = Seal {
            scan_from: self.uncommitted_from(),
            end: self.next_sequence,
            next_version,
            progress: self.sequencer.progress(),
            next_wid,
            stock: Rc::new(self.stock()),
        };
        let (pages, full) = self.checkpointer.begin(seal, &self.map, &mut self.medium.system);
        self.stats.checkpoints += 1;
        self.stats.increments += u64::from(!full);
        self.stats.checkpoint_pages += pages;
        self.stats.increment_pages += if full { 0 } else { pages };
        let dies = u64::from(self.geometry.dies);
        // Increments are often of one page: each begins on the next die.
        let first = if full { 0 } else { self.stats.increments % dies };
        for nth in 0..dies {
            let share = (pages + dies - 1 - nth) / dies;
            if share > 0 {
                self.array.add_system(((first + nth) % dies) as u32, share as u32, now);
            }
        }
    }

    /// The erase blocks, where recovery begins from them.
    fn stock(&self) -> Stock {
        if self.unsettled.is_none() || !self.checkpointer.keeps_map() {
            return Stock::default();
        }
        let mut stock = Stock::used(self.geometry.blocks());
        for (block, known) in (0..).map(EraseBlock).zip(&self.blocks) {
            if known.state == BlockPhase::Free {
                stock.add_free(block);
            } else if known.state == BlockPhase::Open || known.uncommitted > 0 {
                // A die commits its pages in the order in which it takes them.
                stock.next.push(self.geometry.page(block, known.next_page - known.uncommitted));
            }
        }
        let free = self.dies.iter().filter_map(|die| die.free.front());
        stock.next.extend(free.map(|block| self.geometry.page(*block, 0)));
        stock
    }

    /// A page of a checkpoint is programmed; the last one commits it.
    fn checkpointed(&mut self, now: u64) {
        if !self.checkpointer.page_programmed(&mut self.medium.system) {
            return;
        }
        self.cover();
        self.release_waiting(now);
        self.look_again();
    }

    /// Passes what failed the reclaim check through it again.
    pub(crate) fn release_waiting(&mut self, now: u64) {
        for block in std::mem::take(&mut self.waiting) {
            self.release(block, now);
            self.refresh(self.geometry.die_of(block));
        }
    }

    /// Pages of coalescing records go to flash, each on the next die.
    pub(crate) fn write_records(&mut self, (number, records): RecordPage, now: u64) {
        self.stats.record_pages += 1;
        self.checkpointer.records_written();
        let die = (number % u64::from(self.geometry.dies)) as u32;
        self.array.add(die, Work::Records(number, records), now);
    }

    /// Erase blocks that wait for the reclaim check.
    pub(crate) fn waiting(&self) -> &[EraseBlock] {
        &self.waiting
    }

    /// Whether a die is cleaning, or a cleaned block waits to be erased.
    pub(crate) fn is_cleaning(&self) -> bool {
        !self.waiting.is_empty() || self.dies.iter().any(|die| die.cleaning.is_some())
    }

    /// Whether a checkpoint is being written.
    pub(crate) fn is_checkpointing(&self) -> bool {
        self.checkpointer.is_writing()
    }
}

#[cfg(test)]
mod tests;
