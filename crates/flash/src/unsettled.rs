//! What order-preserving recovery adds to the translation layer (OPTR paper, section 3.4). A page is in the map as soon
//! as it is programmed, but recovery may drop its request and go back to the version before. So what a request has
//! superseded is *unsettled* until a flush covers the request, and cleaning keeps two rules:
//!
//! - it takes no erase block that was programmed after the newest checkpoint, since recovery counts there what is on flash
//!   of each request;
//! - it begins a batch of erase blocks after an internal flush only, and erases none that holds something unsettled. One
//!   that it begins only to fill a page of copies does not count.
//!
//! An internal flush needs room for all that waits in the cache. So the cache takes no more than there is room for, and
//! cleaning does not use that room ([`Ftl::promised_pages`]).

use crate::ftl::{BlockPhase, Ftl};
use crate::geometry::{EraseBlock, Slot};

/// What is held back.
#[derive(Debug, Default)]
pub(crate) struct Unsettled {
    /// Slots that the map has left, with the version that superseded each.
    slots: Vec<(u64, Slot)>,
    /// Erase blocks that cleaning may still begin before the next internal flush.
    batch_left: u32,
    /// Cleaning waits for an internal flush.
    flush_wanted: bool,
    /// Cleaning waits for a checkpoint that covers more blocks.
    checkpoint_wanted: bool,
}

impl Ftl {
    /// What the change at hand has superseded may be gone back to.
    pub(crate) fn hold_back(&mut self, version: u64) {
        while let Some(slot) = self.left.pop() {
            self.invalidate(slot);
            let (block, _) = self.geometry.place_of(slot);
            self.blocks[block.0 as usize].unsettled += 1;
            if let Some(unsettled) = &mut self.unsettled {
                unsettled.slots.push((version, slot));
            }
        }
    }

    /// Recovery keeps everything up to this version from now on.
    pub(crate) fn settle(&mut self, version: u64, now: u64) {
        let Some(Unsettled { slots, .. }) = &mut self.unsettled else { return };
        let (blocks, geometry) = (&mut self.blocks, &self.geometry);
        slots.retain(|(superseded_by, slot)| {
            let settled = *superseded_by <= version;
            let known = &mut blocks[geometry.place_of(*slot).0.0 as usize];
            // None is counted in a block that was erased too early.
            known.unsettled = known.unsettled.saturating_sub(u32::from(settled));
            !settled
        });
        self.release_waiting(now);
    }

    /// Whether cleaning waits for a flush.
    pub(crate) fn wants_flush(&self) -> bool {
        self.unsettled.as_ref().is_some_and(|unsettled| unsettled.flush_wanted)
    }

    /// Whether the firmware should flush for a checkpoint.
    pub(crate) fn wants_checkpoint(&self) -> bool {
        let wanted = self.unsettled.as_ref().is_some_and(|unsettled| unsettled.checkpoint_wanted);
        (wanted && !self.is_checkpointing()) || self.is_checkpoint_due()
    }

    /// An internal flush is over: everything received before it is settled. Cleaning may begin so many erase blocks.
    pub(crate) fn begin_batch(&mut self, blocks: u32, now: u64) {
        if let Some(unsettled) = &mut self.unsettled {
            (unsettled.batch_left, unsettled.flush_wanted) = (blocks, false);
        }
        self.look_again();
        self.clean_idle(now);
    }

    /// A checkpoint is whole: dies that still lack something to clean ask again.
    pub(crate) fn cover(&mut self) {
        if let Some(unsettled) = &mut self.unsettled {
            unsettled.checkpoint_wanted = false;
        }
    }

    /// Lets dies without anything to clean look again: more is covered, or settled.
    pub(crate) fn look_again(&mut self) {
        if self.unsettled.is_none() {
            return;
        }
        for die in 0..self.geometry.dies {
            if std::mem::take(&mut self.dies[die as usize].starved) {
                self.starved -= 1;
                self.relieved.push(die);
            }
        }
    }

    /// Whether cleaning may begin one more block.
    pub(crate) fn may_begin(&self) -> bool {
        self.unsettled.as_ref().is_none_or(|unsettled| unsettled.batch_left > 0)
    }

    /// Cleaning begins a block.
    pub(crate) fn begun(&mut self) {
        if let Some(unsettled) = &mut self.unsettled {
            unsettled.batch_left = unsettled.batch_left.saturating_sub(1);
        }
    }

    /// Whether cleaning may take a block at all.
    pub(crate) fn may_clean(&self, block: EraseBlock) -> bool {
        self.unsettled.is_none() || self.is_covered(block)
    }

    /// Full erase blocks that cleaning may not take until the next checkpoint.
    pub(crate) fn held_back(&self) -> u32 {
        let all = (0..self.geometry.blocks()).map(EraseBlock);
        let full = all.filter(|block| self.blocks[block.0 as usize].state == BlockPhase::Full);
        full.filter(|block| !self.may_clean(*block)).count() as u32
    }

    /// A die wants cleaning, and nothing can be cleaned: says what would help.
    pub(crate) fn ask_for_more(&mut self, die: u32) {
        if self.unsettled.is_none() {
            return;
        }
        let slots = self.geometry.data_slots_per_block();
        let uncovered = self.geometry.blocks_of(die).any(|block| {
            let known = &self.blocks[block.0 as usize];
            known.state == BlockPhase::Full && known.valid < slots && !self.is_covered(block)
        });
        let held_back = self.waiting().iter().any(|block| self.blocks[block.0 as usize].unsettled > 0);
        let exhausted = !self.may_begin() || !self.leaves_promised(die);
        if let Some(unsettled) = &mut self.unsettled {
            let flush_helps = held_back || exhausted;
            unsettled.flush_wanted |= flush_helps;
            unsettled.checkpoint_wanted |= uncovered && !flush_helps;
        }
    }
}
