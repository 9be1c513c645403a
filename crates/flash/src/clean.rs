//! Cleaning (garbage collection): each die keeps a few free erase blocks by moving what is valid out of full ones. A
//! copy keeps the block and the version that it was written for, whichever blocks read it now (F8), and is committed as
//! soon as it is programmed, since what it copies was committed before.
//!
//! Where one block leaves a page of copies half empty, the next is begun to fill it: so even one superseded slot
//! in a block is gained, and any device with spare slots beyond the firmware's reserve never gets stuck.

use crate::ftl::{BlockPhase, CLEANINGS_OWN, Ftl, NewPage};
use crate::geometry::{EraseBlock, Slot};
use crate::medium::{Content, Tag};
use crate::mutants::FlashMutant;
use crate::profile::GcPolicy;

/// How far the cleaning of a die has come.
#[derive(Debug)]
pub(crate) struct Cleaning {
    victim: EraseBlock,
    /// Slots of the victim looked at.
    looked_at: u32,
    /// Victims whose last copies share the page that is being programmed.
    drained: Vec<EraseBlock>,
}

impl Ftl {
    /// Takes the next step of cleaning a die that has nothing else to do.
    pub(crate) fn clean(&mut self, die: u32, now: u64) {
        if !self.array.is_idle(die) {
            return;
        }
        if self.dies[die as usize].cleaning.is_none() {
            if self.dies[die as usize].free.len() >= self.gc_free_blocks {
                return;
            }
            if !self.leaves_promised(die) || !self.may_begin() || self.needs_its_own(die) {
                return self.ask_for_more(die);
            }
            let Some(victim) = self.victim(die, self.room_moved(die)) else {
                let already = std::mem::replace(&mut self.dies[die as usize].starved, true);
                self.starved += u32::from(!already);
                return self.ask_for_more(die);
            };
            self.begun();
            self.blocks[victim.0 as usize].state = BlockPhase::Victim;
            self.dies[die as usize].cleaning = Some(Cleaning { victim, looked_at: 0, drained: Vec::new() });
        }
        self.move_on(die, now);
        // A victim without content may wait for a flush, and then nothing else wakes this die.
        let state = &self.dies[die as usize];
        if state.cleaning.is_none() && state.free.len() < self.gc_free_blocks && self.array.is_idle(die) {
            self.ask_for_more(die);
        }
    }

    /// Whether a die has no more free blocks than cleaning's own, and gets back some that wait for a flush. If the power
    /// went, these might hold something valid again, and need the others (order-preserving recovery).
    fn needs_its_own(&self, die: u32) -> bool {
        self.unsettled.is_some()
            && self.dies[die as usize].free.len() < CLEANINGS_OWN
            && self.waiting().iter().any(|block| self.geometry.die_of(*block) == die)
    }

    /// Whether cleaning one more block of a die leaves the pages that a unit was promised.
    pub(crate) fn leaves_promised(&self, die: u32) -> bool {
        let promised = self.promised_pages;
        promised == 0 || self.room_pages_on(die) >= promised + self.geometry.data_pages_per_block
    }

    /// The full block of a die that is best cleaned next, of those whose content takes at most `pages`; none if
    /// nothing would be gained.
    fn victim(&self, die: u32, pages: u32) -> Option<EraseBlock> {
        let slots = self.geometry.data_slots_per_block();
        let known = |block: &EraseBlock| &self.blocks[block.0 as usize];
        let full = self.geometry.blocks_of(die).filter(|block| {
            let known = known(block);
            let committed = known.uncommitted == 0 || self.rules.drops(FlashMutant::CleansUncommitted);
            let fits = known.valid.div_ceil(self.geometry.slots_per_page) <= pages;
            known.state == BlockPhase::Full
                && committed
                && known.valid < slots
                && fits
                && self.may_clean(*block)
        });
        match self.gc {
            GcPolicy::Greedy => full.min_by_key(|block| known(block).valid),
            GcPolicy::CostBenefit => full.max_by_key(|block| {
                // Space gained over the cost of reading and writing the rest, times age (Rosenblum and
                // Ousterhout's cost-benefit policy), in whole numbers.
                let valid = u128::from(known(block).valid);
                let age = u128::from(self.next_sequence - known(block).last_sequence);
                (u128::from(slots) - valid) * age * 1000 / (u128::from(slots) + valid)
            }),
        }
    }

    /// Pages that copies can be programmed to in the blocks that the die has left.
    fn room_moved(&self, die: u32) -> u32 {
        let (state, pages) = (&self.dies[die as usize], self.geometry.data_pages_per_block);
        let open = state.open_moved.map_or(0, |block| pages - self.blocks[block.0 as usize].next_page);
        open + state.free.len() as u32 * pages
    }

    /// Moves the next page's worth of valid blocks; when there is none left, the victim is garbage.
    fn move_on(&mut self, die: u32, now: u64) {
        let Some(cleaning) = &mut self.dies[die as usize].cleaning else { return };
        let victim = cleaning.victim;
        for drained in std::mem::take(&mut cleaning.drained) {
            self.release(drained, now);
        }
        if !self.array.is_idle(die) {
            return;
        }
        if self.room_moved(die) == 0 && self.blocks[victim.0 as usize].valid > 0 {
            // Begun to fill a page, and waits as it is for the others' blocks to be erased.
            self.dies[die as usize].cleaning = None;
            self.blocks[victim.0 as usize].state = BlockPhase::Full;
            return;
        }
        let (contents, reads) = self.gather(die);
        if contents.is_empty() {
            self.dies[die as usize].cleaning = None;
            return self.release(victim, now);
        }
        self.stats.moved_blocks += contents.len() as u64;
        self.stats.moved_pages += 1;
        if let Some(page) = self.take_page(die, true) {
            let copies = NewPage { tag: Tag::Moved, contents, reads, reliable: false };
            self.program(die, page, copies, now);
        }
    }

    /// Up to a page of valid blocks of the victim, and of the next while it does not fill the page; and how many
    /// pages they are read from.
    fn gather(&mut self, die: u32) -> (Vec<Content>, u32) {
        let mut contents = self.contents();
        let mut reads = self.gather_from_victim(die, &mut contents);
        while !contents.is_empty()
            && contents.len() < self.geometry.slots_per_page as usize
            && self.begin_next_victim(die)
        {
            reads += self.gather_from_victim(die, &mut contents);
        }
        (contents, reads)
    }

    /// Begins the next victim, if the die still lacks free blocks once the drained ones are erased.
    fn begin_next_victim(&mut self, die: u32) -> bool {
        let state = &self.dies[die as usize];
        let Some(cleaning) = &state.cleaning else { return false };
        // The page may need a free block to begin.
        let taken = usize::from(state.open_moved.is_none());
        let free = (state.free.len() + cleaning.drained.len() + 1).saturating_sub(taken);
        if free >= self.gc_free_blocks || !self.leaves_promised(die) {
            return false;
        }
        let Some(next) = self.victim(die, u32::MAX) else { return false };
        self.blocks[next.0 as usize].state = BlockPhase::Victim;
        if let Some(cleaning) = &mut self.dies[die as usize].cleaning {
            cleaning.drained.push(std::mem::replace(&mut cleaning.victim, next));
            cleaning.looked_at = 0;
        }
        true
    }

    /// Adds what is valid in the victim, up to a page; how many pages it is read from.
    fn gather_from_victim(&mut self, die: u32, contents: &mut Vec<Content>) -> u32 {
        let mut reads = 0;
        let mut last_page = None;
        let geometry = self.geometry;
        let Some(cleaning) = &mut self.dies[die as usize].cleaning else { return 0 };
        let first = geometry.slot(geometry.page(cleaning.victim, 0), 0);
        while contents.len() < geometry.slots_per_page as usize
            && cleaning.looked_at < geometry.slots_per_block()
        {
            let slot = Slot(first.0 + cleaning.looked_at);
            cleaning.looked_at += 1;
            let page = geometry.page_of(slot);
            let used = self.medium.spare(page).map_or(0, |spare| u32::from(spare.used));
            if slot.0 - geometry.slot(page, 0).0 >= used {
                continue;
            }
            let (lpn, version) = self.medium.block(cleaning.victim).origin(geometry.place_of(slot).1);
            if self.map.reads(slot, lpn, version) {
                contents.push(self.medium.content(slot));
                reads += u32::from(last_page != Some(page));
                last_page = Some(page);
            }
        }
        reads
    }
}
