//! Cleaning (garbage collection): each die keeps a few free erase blocks by moving what is valid out of a full
//! one. A copy keeps its version, and counts as soon as it is programmed, since what it copies counted before.

use crate::ftl::{Ftl, State};
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
}

impl Ftl {
    /// Takes the next step of cleaning a die that has nothing else to do.
    pub(crate) fn clean(&mut self, die: u32, now: u64) {
        if !self.array.is_idle(die) {
            return;
        }
        if self.dies[die as usize].cleaning.is_none() {
            let promised = self.promised_pages;
            let spares = promised == 0 || self.room_pages() >= promised + self.geometry.pages_per_block;
            if self.dies[die as usize].free.len() >= self.gc_free_blocks || !spares {
                return;
            }
            let Some(victim) = self.victim(die).filter(|victim| self.fits(die, *victim)) else {
                let already = std::mem::replace(&mut self.dies[die as usize].starved, true);
                self.starved += u32::from(!already);
                return;
            };
            self.blocks[victim.0 as usize].state = State::Victim;
            self.dies[die as usize].cleaning = Some(Cleaning { victim, looked_at: 0 });
        }
        self.move_on(die, now);
    }

    /// The full block of a die that is best cleaned next; none if nothing would be gained.
    fn victim(&self, die: u32) -> Option<EraseBlock> {
        let slots = self.geometry.slots_per_block();
        let full = self.geometry.blocks_of(die).filter(|block| {
            let known = &self.blocks[block.0 as usize];
            let settled = known.unsettled == 0 || self.mutants.has(FlashMutant::CleansUnsettled);
            // Copies fill whole pages: a page must be gained, or cleaning would go round for ever.
            let gains = known.valid.div_ceil(self.geometry.slots_per_page) < self.geometry.pages_per_block;
            known.state == State::Full && settled && gains
        });
        let known = |block: &EraseBlock| &self.blocks[block.0 as usize];
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

    /// Whether what is valid in `victim` finds room in the blocks that the die has left.
    fn fits(&self, die: u32, victim: EraseBlock) -> bool {
        let (state, pages) = (&self.dies[die as usize], self.geometry.pages_per_block);
        let open = state.open_moved.map_or(0, |block| pages - self.blocks[block.0 as usize].next_page);
        let needed = self.blocks[victim.0 as usize].valid.div_ceil(self.geometry.slots_per_page);
        needed <= open + state.free.len() as u32 * pages
    }

    /// Moves the next page's worth of valid blocks; when there is none left, the victim is garbage.
    fn move_on(&mut self, die: u32, now: u64) {
        let (contents, reads) = self.gather(die);
        let Some(cleaning) = &self.dies[die as usize].cleaning else { return };
        let victim = cleaning.victim;
        if contents.is_empty() {
            self.dies[die as usize].cleaning = None;
            return self.release(victim, now);
        }
        if self.mutants.has(FlashMutant::ErasesTooEarly)
            && cleaning.looked_at == self.geometry.slots_per_block()
        {
            self.dies[die as usize].cleaning = None;
            self.release(victim, now);
        }
        self.stats.moved_blocks += contents.len() as u64;
        self.stats.moved_pages += 1;
        match self.take_page(die, true) {
            Some(page) => self.program(die, page, Tag::Moved, contents, reads, now),
            // Not reached while `fits` holds; the victim stays as it is.
            None => {
                self.dies[die as usize].cleaning = None;
                self.blocks[victim.0 as usize].state = State::Full;
            }
        }
    }

    /// Up to a page of valid blocks of the victim, and how many pages they are read from.
    fn gather(&mut self, die: u32) -> (Vec<Content>, u32) {
        let mut contents = self.contents();
        let mut reads = 0;
        let mut last_page = None;
        let geometry = self.geometry;
        let Some(cleaning) = &mut self.dies[die as usize].cleaning else { return (contents, 0) };
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
            let lpn = self.medium.block(cleaning.victim).lpn(geometry.place_of(slot).1);
            if self.map.get(lpn as usize) == Some(&slot) {
                contents.push(self.medium.content(slot));
                reads += u32::from(last_page != Some(page));
                last_page = Some(page);
            }
        }
        (contents, reads)
    }
}
