//! A group in memory: its descriptor, and which of its blocks can be allocated now.
//!
//! Which these are is what its bitmap says, less the blocks that are *held*: free on the disk, and taken here until a commit (J7)
//! or a discard is over. While a group has none of them, its bitmap can be read again, and so it can be *evicted*.

use std::ops::Range;

use weir_cache::units::UNIT_BLOCKS;
use weir_ext4::{Descriptor, bitmap};
use weir_format::BLOCK_BYTES;
use weir_storage::Rules;

use crate::mutants::FsMutant;

/// Bits in a bitmap block.
const BITS: u32 = BLOCK_BYTES as u32 * 8;

/// Which run of free blocks to look for in a group.
#[derive(Clone, Copy)]
pub(super) struct Wanted {
    /// The bit from which on, and then from the group's start.
    pub(super) from: u32,
    /// Blocks that it has at least.
    pub(super) least: u32,
    /// Blocks that it is cut to.
    pub(super) most: u32,
    /// It starts at a multiple of `least`.
    pub(super) aligned: bool,
    /// Blocks behind which a unit of the file ends; one that is shorter than wanted ends there, or units behind it.
    pub(super) unit_end: u32,
}

impl Wanted {
    /// The same in the group of the goal, or in another, from its start on.
    pub(super) fn in_group(self, of_goal: bool) -> Wanted {
        Wanted { from: if of_goal { self.from } else { 0 }, ..self }
    }

    /// A run cut so that it ends where it should.
    pub(super) fn cut(&self, run: Range<u32>) -> Range<u32> {
        let length = run.end - run.start;
        if length >= self.most || length < self.unit_end {
            return run;
        }
        run.start..run.start + self.unit_end + (length - self.unit_end) / UNIT_BLOCKS * UNIT_BLOCKS
    }
}

/// The runs of clear bits in `range`.
pub(super) fn clear_runs(bits: &[u8; BLOCK_BYTES], mut range: Range<u32>) -> Vec<Range<u32>> {
    let mut runs = Vec::new();
    while let Some(run) = bitmap::next_run(bits, range.clone(), BITS) {
        range.start = run.end;
        runs.push(run);
    }
    runs
}

/// One group.
pub(super) struct Group {
    pub(super) descriptor: Descriptor,
    /// Blocks in use, and those that are held; none before a call needs it, and once it was evicted.
    taken: Option<Box<[u8; BLOCK_BYTES]>>,
    /// Blocks that are not taken.
    available: u32,
    /// No run of blocks that are not taken is longer.
    longest: u32,
    /// Blocks that are held.
    held: u32,
}

impl Group {
    /// A group of which nothing is known but its descriptor.
    pub(super) fn new(descriptor: Descriptor) -> Group {
        let free = descriptor.free_blocks();
        Group { descriptor, taken: None, available: free, longest: free, held: 0 }
    }

    pub(super) fn is_loaded(&self) -> bool {
        self.taken.is_some()
    }

    /// Takes over the bitmap as it is on disk.
    pub(super) fn load(&mut self, bits: &[u8]) {
        let mut taken = Box::new([0xFF; BLOCK_BYTES]);
        let length = bits.len().min(BLOCK_BYTES);
        taken[..length].copy_from_slice(&bits[..length]);
        self.available = bitmap::count_clear(&taken[..], 0..BITS);
        // What was found of it before it was evicted still holds.
        self.longest = self.longest.min(self.available);
        self.taken = Some(taken);
    }

    /// Forgets the bitmap, if it can be read again: whether it did.
    pub(super) fn evict(&mut self, rules: Rules<FsMutant>) -> bool {
        let is_needed = self.held > 0 && !rules.drops(FsMutant::EvictsHeld);
        if !is_needed {
            self.taken = None;
        }
        !is_needed
    }

    /// Blocks that are taken are free on the disk from now on.
    pub(super) fn hold_freed(&mut self, run: &Range<u32>) {
        self.held += run.end - run.start;
    }

    /// Takes blocks that are free on the disk, and stay so.
    pub(super) fn hold_free(&mut self, run: Range<u32>) {
        self.held += run.end - run.start;
        self.take_run(run);
    }

    /// Has more blocks, which are free.
    pub(super) fn grow(&mut self, run: Range<u32>) {
        self.available += run.end - run.start;
        self.longest = self.available;
        if let Some(taken) = self.taken.as_deref_mut() {
            bitmap::clear(taken, run);
        }
    }

    /// No run of free blocks here is longer than this.
    pub(super) fn longest(&self) -> u32 {
        self.longest
    }

    /// The run of free blocks that starts at bit `at`, of `most` at most; empty if that one is taken.
    pub(super) fn run_at(&self, at: u32, most: u32) -> Range<u32> {
        let Some(taken) = self.taken.as_deref() else { return at..at };
        let end = at.saturating_add(most).min(BITS);
        at..bitmap::next_set(taken, at..end).unwrap_or(end).max(at)
    }

    /// The first run that is as wanted.
    pub(super) fn find(&mut self, wanted: Wanted) -> Option<Range<u32>> {
        if self.longest < wanted.least {
            return None;
        }
        if wanted.aligned {
            return self.find_aligned(wanted);
        }
        let taken = self.taken.as_deref()?;
        let mut longest = 0;
        for mut range in [wanted.from..BITS, 0..BITS] {
            while let Some(run) = bitmap::next_run(taken, range.clone(), wanted.most) {
                if run.end - run.start >= wanted.least {
                    return Some(run);
                }
                longest = longest.max(run.end - run.start);
                range.start = run.end;
            }
        }
        self.longest = longest;
        None
    }

    fn find_aligned(&self, wanted: Wanted) -> Option<Range<u32>> {
        let taken = self.taken.as_deref()?;
        let chunks = BITS / wanted.least;
        let first = wanted.from.div_ceil(wanted.least);
        let start = (first..chunks).chain(0..first.min(chunks)).map(|chunk| chunk * wanted.least);
        let is_free = |start: &u32| bitmap::next_set(taken, *start..*start + wanted.least).is_none();
        let start = { start }.find(is_free)?;
        Some(self.run_at(start, wanted.most))
    }

    /// The runs of blocks in `range` that can be allocated now.
    pub(super) fn runs(&self, range: Range<u32>) -> Vec<Range<u32>> {
        self.taken.as_deref().map_or_else(Vec::new, |taken| clear_runs(taken, range))
    }

    pub(super) fn take_run(&mut self, run: Range<u32>) {
        self.available = self.available.saturating_sub(run.end - run.start);
        self.longest = self.longest.min(self.available);
        if let Some(taken) = self.taken.as_deref_mut() {
            bitmap::set(taken, run);
        }
    }

    pub(super) fn release(&mut self, run: Range<u32>) {
        let Some(taken) = self.taken.as_deref_mut() else { return };
        let already = bitmap::count_clear(taken, run.clone());
        let released = run.end - run.start - already;
        self.available += released;
        self.held = self.held.saturating_sub(released);
        self.longest = self.available;
        bitmap::clear(taken, run);
    }
}
