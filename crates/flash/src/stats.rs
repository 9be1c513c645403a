//! What a device counted.

/// Counts since the device was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Commands answered.
    pub commands: u64,
    /// Blocks that the host wrote; zeros of logical pages that it discarded in part count.
    pub written_blocks: u64,
    /// Logical pages that took the place of an older version in the cache.
    pub coalesced_blocks: u64,
    /// Blocks that the host read.
    pub read_blocks: u64,
    /// Of these, blocks found in the cache.
    pub read_hits: u64,
    /// Flushes answered.
    pub flushes: u64,
    /// Barriers accepted, as flags or commands.
    pub barriers: u64,
    /// Pages programmed with the host's data.
    pub programmed_pages: u64,
    /// Pages read to complete logical pages of which the host wrote a part.
    pub completing_reads: u64,
    /// Summary pages programmed.
    pub summary_pages: u64,
    /// Logical pages that cleaning moved.
    pub moved_blocks: u64,
    /// Pages that cleaning programmed.
    pub moved_pages: u64,
    /// Erase blocks erased.
    pub erases: u64,
    /// Checkpoints begun.
    pub checkpoints: u64,
    /// Of these, increments: what changed in the map, not all of it.
    pub increments: u64,
    /// Pages of checkpoints programmed.
    pub checkpoint_pages: u64,
    /// Of these, pages of increments.
    pub increment_pages: u64,
    /// Pages of coalescing records programmed (order-preserving recovery).
    pub record_pages: u64,
    /// Pages programmed to name an erase block that no page names (order-preserving recovery).
    pub opening_pages: u64,
    /// Flushes that the firmware made by itself (order-preserving recovery).
    pub internal_flushes: u64,
    /// Of the pages with the host's data, those that were written back because the firmware flushed by itself: what was
    /// in them would have stayed in the cache, as no command asked for it and the cache was not full enough.
    pub internally_flushed_pages: u64,
}

impl Stats {
    /// What was counted since `before`.
    #[must_use]
    pub fn since(&self, before: &Stats) -> Stats {
        Stats {
            commands: self.commands - before.commands,
            written_blocks: self.written_blocks - before.written_blocks,
            coalesced_blocks: self.coalesced_blocks - before.coalesced_blocks,
            read_blocks: self.read_blocks - before.read_blocks,
            read_hits: self.read_hits - before.read_hits,
            flushes: self.flushes - before.flushes,
            barriers: self.barriers - before.barriers,
            programmed_pages: self.programmed_pages - before.programmed_pages,
            moved_blocks: self.moved_blocks - before.moved_blocks,
            moved_pages: self.moved_pages - before.moved_pages,
            erases: self.erases - before.erases,
            checkpoints: self.checkpoints - before.checkpoints,
            increments: self.increments - before.increments,
            checkpoint_pages: self.checkpoint_pages - before.checkpoint_pages,
            increment_pages: self.increment_pages - before.increment_pages,
            record_pages: self.record_pages - before.record_pages,
            opening_pages: self.opening_pages - before.opening_pages,
            completing_reads: self.completing_reads - before.completing_reads,
            summary_pages: self.summary_pages - before.summary_pages,
            internal_flushes: self.internal_flushes - before.internal_flushes,
            internally_flushed_pages: self.internally_flushed_pages - before.internally_flushed_pages,
        }
    }
}
