//! What a call that changes something waits for before: that not too much is dirty, and that enough is free.

use weir_f2fs::SEGMENT_BLOCKS;
use weir_vfs::FsError;

use crate::checkpoint::{Durability, Purpose};
use crate::cleaner::Policy;

/// Dirty nodes at which a checkpoint is written: 32 MiB of them.
const DIRTY_NODES_MAX: u64 = 1 << 13;
/// Segments that one call may fill, with what it changes of nodes.
const CALL_SEGMENTS: u64 = 3;
/// Segments that no call fills: each log opens one, and the cleaner moves a victim before it gains one.
const RESERVE: u64 = 8;
/// Segments that a round of cleaning gains, and that are free beyond the reserve when segments were made free: the next call that finds
/// few comes when they are filled.
const GAIN: u64 = 4;
/// Free segments that are enough: a call may fill some, what is dirty one, and the reserve is left.
const ENOUGH: u64 = CALL_SEGMENTS + 1 + RESERVE + GAIN;

impl Durability<'_> {
    /// Waits until a call may change something. It has no permit and no lock yet.
    ///
    /// # Errors
    /// [`FsError::ReadOnly`]; those of a checkpoint.
    pub(crate) async fn prepare_change(&self) -> Result<(), FsError> {
        self.operations.check_writable()?;
        self.files.cache.throttle().await;
        if self.dirty_nodes() >= DIRTY_NODES_MAX {
            self.write_checkpoint(Purpose::Order).await?;
        }
        if self.has_few_segments() {
            self.make_segments_free().await?;
        }
        Ok(())
    }

    /// Makes segments free, one call at a time: where what was freed since the last checkpoint is not enough, victims are cleaned, and a
    /// checkpoint makes both free. Each round gains something or is the last: cleaning never ends in a circle.
    async fn make_segments_free(&self) -> Result<(), FsError> {
        let _one = self.freeing.acquire(1).await;
        if !self.has_few_segments() {
            return Ok(());
        }
        // Cleaning has the room that dirty data would take.
        if self.dirty_blocks() >= u64::from(SEGMENT_BLOCKS) {
            self.write_checkpoint(Purpose::Order).await?;
        }
        loop {
            let (before, released) = {
                let space = self.placement.space.borrow();
                (u64::from(space.free_segments()), space.released().len() as u64)
            };
            if before + released < ENOUGH {
                self.clean(Policy::Greedy, GAIN * u64::from(SEGMENT_BLOCKS)).await?;
            }
            self.write_checkpoint(Purpose::Order).await?;
            let free = u64::from(self.placement.space.borrow().free_segments());
            if free >= ENOUGH || free <= before {
                return Ok(());
            }
        }
    }

    /// Whether the background cleans: a tenth of the main area is neither free nor in use.
    pub(crate) fn is_worth_cleaning(&self) -> bool {
        let space = self.placement.space.borrow();
        let all = u64::from(self.layout.main_segments()) * u64::from(SEGMENT_BLOCKS);
        let free = u64::from(space.free_segments()) * u64::from(SEGMENT_BLOCKS);
        all.saturating_sub(free + space.user_blocks().1) > all / 10
    }

    /// Inodes and other nodes that were changed since they were written.
    pub(crate) fn dirty_nodes(&self) -> u64 {
        self.placement.dirty_files.get() + self.placement.nodes.dirty_count()
    }

    /// Blocks that would be written if all of what is dirty were.
    fn dirty_blocks(&self) -> u64 {
        self.files.cache.dirty() as u64 + self.dirty_nodes()
    }

    /// Whether what is dirty, and one call more, would take segments of the cleaner's reserve.
    fn has_few_segments(&self) -> bool {
        let space = self.placement.space.borrow();
        let needed = self.dirty_blocks().div_ceil(u64::from(SEGMENT_BLOCKS)) + CALL_SEGMENTS;
        u64::from(space.free_segments()) < needed + RESERVE
    }

    /// Whether a checkpoint would be another one than the newest.
    pub(crate) fn has_changes(&self) -> bool {
        self.dirty_nodes() > 0 || self.files.cache.dirty() > 0
    }
}
