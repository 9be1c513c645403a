//! A group in memory: its descriptor, and which of its blocks can be allocated now.

use std::ops::Range;

use weir_ext4::{BLOCK_BYTES, Descriptor, bitmap};

/// Bits in a bitmap block.
const BITS: u32 = BLOCK_BYTES as u32 * 8;

/// One group.
pub(super) struct Group {
    pub(super) descriptor: Descriptor,
    /// Blocks in use, and those that were freed and cannot be reused yet (J7); none before somebody needs it.
    taken: Option<Box<[u8; BLOCK_BYTES]>>,
    /// Blocks that are not taken.
    available: u32,
    /// No run of blocks that are not taken is longer.
    longest: u32,
}

impl Group {
    /// A group of which nothing is known but its descriptor.
    pub(super) fn new(descriptor: Descriptor) -> Group {
        let free = descriptor.free_blocks();
        Group { descriptor, taken: None, available: free, longest: free }
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
        self.longest = self.available;
        self.taken = Some(taken);
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

    /// The first run of at least `wanted` free blocks from bit `from` on, then from the group's start; cut to
    /// `most`.
    pub(super) fn find(&mut self, from: u32, wanted: u32, most: u32) -> Option<Range<u32>> {
        if self.longest < wanted {
            return None;
        }
        let taken = self.taken.as_deref()?;
        let mut longest = 0;
        for mut range in [from..BITS, 0..BITS] {
            while let Some(run) = bitmap::next_run(taken, range.clone(), most) {
                if run.end - run.start >= wanted {
                    return Some(run);
                }
                longest = longest.max(run.end - run.start);
                range.start = run.end;
            }
        }
        self.longest = longest;
        None
    }

    /// The runs of blocks in `range` that can be allocated now.
    pub(super) fn runs(&self, mut range: Range<u32>) -> Vec<Range<u32>> {
        let Some(taken) = self.taken.as_deref() else { return Vec::new() };
        let mut runs = Vec::new();
        while let Some(run) = bitmap::next_run(taken, range.clone(), BITS) {
            range.start = run.end;
            runs.push(run);
        }
        runs
    }

    pub(super) fn take(&mut self, run: Range<u32>) {
        self.available = self.available.saturating_sub(run.end - run.start);
        self.longest = self.longest.min(self.available);
        if let Some(taken) = self.taken.as_deref_mut() {
            bitmap::set(taken, run);
        }
    }

    pub(super) fn release(&mut self, run: Range<u32>) {
        let Some(taken) = self.taken.as_deref_mut() else { return };
        let already = bitmap::count_clear(taken, run.clone());
        self.available += run.end - run.start - already;
        self.longest = self.available;
        bitmap::clear(taken, run);
    }
}
