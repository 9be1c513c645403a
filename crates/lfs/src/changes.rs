//! What a call that changes something waits for before: that not too much is dirty, and that enough is free.

use weir_f2fs::SEGMENT_BLOCKS;
use weir_vfs::FsError;

use crate::checkpoint::{Durability, Purpose};
use crate::cleaner::Policy;
use crate::content::PAGES_AT_ONCE;
use crate::operations::ChangePermit;

/// Dirty nodes at which a checkpoint is written: 32 MiB of them.
const DIRTY_NODES_MAX: u64 = 1 << 13;
/// Blocks that a call may make dirty that changes names or attributes: inodes, a block of names, nodes.
pub(crate) const CALL_BLOCKS: u64 = 8;
/// Segments for what a call changes beyond what is counted.
const CALL_SEGMENTS: u64 = 2;
/// Segments that no call fills: each log opens one, and the cleaner moves a victim before it gains one.
const RESERVE: u64 = 8;
/// Segments that a round of cleaning gains, and that are free beyond the reserve when segments were made free: the next call that finds
/// few comes when they are filled.
const GAIN: u64 = 4;
/// Free segments that are enough: a call may fill some, what is dirty one, and the reserve is left.
const ENOUGH: u64 = CALL_SEGMENTS + 2 + RESERVE + GAIN;

/// Blocks that a call may make dirty where no more room can be made: the reserve has it, and cleaning goes on.
const BLOCKS_WITHOUT_ROOM: u64 = PAGES_AT_ONCE + CALL_BLOCKS;

/// Whether a call that waited finds room for what it changes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Room {
    Enough,
    /// No more can be made: the call finds out by itself what does not fit.
    NoMore,
}

impl Durability<'_> {
    /// Runs a call that makes at most so many blocks dirty, when there is room for them, and when it has its `turn`: the locks that it
    /// needs. Dropped before, it has changed nothing. The caller has no permit and no lock.
    ///
    /// # Errors
    /// [`FsError::ReadOnly`]; those of a checkpoint, of the turn, and of the call.
    pub(crate) async fn run_change<L, T>(
        &self,
        blocks: u64,
        turn: impl Future<Output = Result<L, FsError>>,
        change: impl AsyncFnOnce(L) -> Result<T, FsError>,
    ) -> Result<T, FsError> {
        let _permit = self.begin_change(blocks).await?;
        let locks = turn.await?;
        self.operations.check_writable()?;
        self.operations.complete(change(locks)).await
    }

    /// Waits until a call may change something. Calls that waited together look at the room one after the other.
    ///
    /// # Errors
    /// [`FsError::NoSpace`] for a call that changes much, where no room can be made for it.
    async fn begin_change(&self, blocks: u64) -> Result<ChangePermit<'_>, FsError> {
        loop {
            let room = self.ensure_room(blocks).await?;
            let permit = self.operations.begin_change(blocks).await;
            self.operations.check_writable()?;
            if !self.has_few_segments(0) {
                return Ok(permit);
            }
            if room == Room::NoMore {
                return if blocks > BLOCKS_WITHOUT_ROOM { Err(FsError::NoSpace) } else { Ok(permit) };
            }
        }
    }

    /// Waits until so many blocks may be made dirty.
    async fn ensure_room(&self, blocks: u64) -> Result<Room, FsError> {
        self.operations.check_writable()?;
        self.files.cache.throttle().await;
        if self.dirty_nodes() >= DIRTY_NODES_MAX {
            self.write_checkpoint(Purpose::Order).await?;
        }
        match self.has_few_segments(blocks) {
            true => self.make_segments_free(blocks).await,
            false => Ok(Room::Enough),
        }
    }

    /// Makes segments free, one call at a time: where what was freed since the last checkpoint is not enough, victims are cleaned, and a
    /// checkpoint makes both free. Each round gains something or is the last: cleaning never ends in a circle.
    async fn make_segments_free(&self, blocks: u64) -> Result<Room, FsError> {
        let _one = self.freeing.acquire(1).await;
        if !self.has_few_segments(blocks) {
            return Ok(Room::Enough);
        }
        let enough = ENOUGH.max(blocks.div_ceil(u64::from(SEGMENT_BLOCKS)) + CALL_SEGMENTS + RESERVE + GAIN);
        // Cleaning has the room that dirty data would take.
        if self.dirty_blocks() >= u64::from(SEGMENT_BLOCKS) {
            self.write_checkpoint(Purpose::Order).await?;
        }
        loop {
            let (before, released) = {
                let space = self.placement.space.borrow();
                (u64::from(space.free_segments()), space.released().len() as u64)
            };
            if before + released < enough {
                self.clean(Policy::Greedy, GAIN * u64::from(SEGMENT_BLOCKS)).await?;
            }
            self.write_checkpoint(Purpose::Order).await?;
            let free = u64::from(self.placement.space.borrow().free_segments());
            if free >= enough {
                return Ok(Room::Enough);
            }
            if free <= before {
                return Ok(Room::NoMore);
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

    /// Whether what is dirty, what calls may make so, and `blocks` more would take segments of the cleaner's reserve. What is written
    /// behind the newest checkpoint counts too: the mount after a power cut writes those nodes again.
    pub(crate) fn has_few_segments(&self, blocks: u64) -> bool {
        let space = self.placement.space.borrow();
        let (changing, chain) = (self.operations.changing_blocks(), self.placement.chain_nodes.get());
        let needed = self.dirty_blocks() + chain + changing + blocks;
        let needed = needed.div_ceil(u64::from(SEGMENT_BLOCKS)) + CALL_SEGMENTS;
        u64::from(space.free_segments()) < needed + RESERVE
    }

    /// Whether a checkpoint would be another one than the newest.
    pub(crate) fn has_changes(&self) -> bool {
        self.dirty_nodes() > 0 || self.files.cache.dirty() > 0
    }
}
