//! What an open volume has done and seen.

use std::time::Duration;

use weir_storage::BLOCK_BYTES;

/// Counts since the volume was opened; blocks are 4 KiB.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Blocks that users wrote.
    pub user_blocks: u64,
    /// Blocks that users shared with another, without writing them.
    pub shared_by_users: u64,
    /// Blocks that were shared with the newest snapshot, before a command changed them.
    pub preserved_blocks: u64,
    /// Data blocks sealed into chunks: user blocks and moved ones.
    pub data_blocks: u64,
    /// Chunk headers written.
    pub header_blocks: u64,
    /// Live blocks moved by cleaning.
    pub cleaned_blocks: u64,
    /// Blocks written for checkpoints, map pages included.
    pub checkpoint_blocks: u64,
    /// Pages of the map that were read again after they had been evicted.
    pub map_pages_loaded: u64,
    /// Flushes of the disk below, FUA writes included.
    pub flushes: u64,
    /// Checkpoints taken, the one that ends recovery included.
    pub checkpoints: u64,
    /// Segments cleaned.
    pub segments_cleaned: u64,
    /// Blocks discarded on the disk below.
    pub discarded_blocks: u64,
    /// Reads that failed because a block is not what was written.
    pub damaged_reads: u64,
    /// Reads that the disk below failed.
    pub failed_reads: u64,
    /// Reads that the base failed: it is no part of the volume, and neither of the two before counts them.
    pub failed_base_reads: u64,
    /// The logical block of the first read that failed, but for those.
    pub first_failed: Option<u64>,
    /// Segments in all.
    pub segments: u32,
    /// Segments that hold no live block.
    pub free_segments: u32,
    /// Live data blocks, each counted once however many logical blocks read it.
    pub live_blocks: u64,
    /// Of these, blocks whose names are listed: that were shared, and not moved since with one name left.
    pub shared_blocks: u64,
    /// Logical blocks that read them.
    pub shared_names: u64,
    /// Data blocks that may be live at most.
    pub usable_blocks: u64,
    /// Data blocks that the segments hold when written in whole chunks.
    pub data_capacity_blocks: u64,
    /// Bytes of memory that the map takes.
    pub map_bytes: u64,
    /// Pages of the map that something is mapped in and that are not in memory.
    pub map_pages_evicted: u64,
    /// Bytes of memory that the names of shared blocks take at most.
    pub names_bytes: u64,
    /// Bytes of memory that is kept of segments and of the map's pages on the disk.
    pub segments_bytes: u64,
    /// Bytes of memory in segment buffers.
    pub buffer_bytes: u64,
    /// The largest loss window seen.
    pub loss_window: LossWindowSeen,
    /// What recovery did when the volume was opened.
    pub recovery: RecoveryReport,
}

impl Stats {
    /// Blocks written to the disk below, of every kind.
    #[must_use]
    pub fn disk_blocks(&self) -> u64 {
        self.data_blocks + self.header_blocks + self.checkpoint_blocks
    }

    /// Bytes written to the disk below per byte that users wrote.
    #[must_use]
    pub fn write_amplification(&self) -> f64 {
        self.disk_blocks() as f64 / self.user_blocks.max(1) as f64
    }

    /// Live share of the data blocks that the segments hold, 0 to 1.
    #[must_use]
    pub fn utilisation(&self) -> f64 {
        self.live_blocks as f64 / self.data_capacity_blocks.max(1) as f64
    }
}

/// The largest amount that a crash could have cost at any moment (V5).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LossWindowSeen {
    /// From the opening of a chunk until it was durable, at most.
    pub time_max: Duration,
    /// Bytes sealed and not yet durable, at most.
    pub bytes_max: u64,
}

/// What recovery found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecoveryReport {
    /// Records replayed behind the checkpoint.
    pub records: u64,
    /// Bytes of log read.
    pub bytes_read: u64,
    /// The log generation that began.
    pub generation: u64,
    /// Time from opening to the checkpoint that ends recovery, in the runtime's time.
    pub duration: Duration,
}

impl RecoveryReport {
    /// The log read, in blocks.
    #[must_use]
    pub fn blocks_read(&self) -> u64 {
        self.bytes_read / BLOCK_BYTES as u64
    }
}
