//! Taking a checkpoint: the map pages that changed, and then the head in the older of the two slots.
//!
//! Order is everything here (V3): log and map pages are durable before the slot is written, the slot is
//! durable before any segment that it frees is written again.

use std::cell::RefCell;
use std::rc::Rc;

use tracing::debug;
use weir_runtime::Buffer;
use weir_storage::{BLOCK_BYTES, Rejected, StorageError, Ticket, flush};

use crate::blocks::Blocks;
use crate::checkpoint::{Checkpoint, PAGES_PER_WRITE, PageTable, filled};
use crate::common::Common;
use crate::geometry::CHECKPOINT_SLOTS;
use crate::log::Log;
use crate::map::COMMANDS_AT_ONCE;
use crate::mutants::VolumeMutant;
use crate::pager::WhenFull;
use crate::transfer::{all_transferred, write_buffer, write_part};

/// Map pages that closing writes to their other place at most.
const PAGES_DOUBLED: usize = 1 << 14;

/// What takes checkpoints of an open volume, one at a time.
pub(crate) struct Checkpointer {
    common: Rc<Common>,
    blocks: Rc<RefCell<Blocks>>,
    log: Rc<Log>,
    /// The newest durable checkpoint.
    newest: RefCell<Checkpoint>,
}

impl Checkpointer {
    pub(crate) fn new(log: Rc<Log>, newest: Checkpoint) -> Checkpointer {
        let (common, blocks) = (Rc::clone(&log.common), Rc::clone(&log.blocks));
        Checkpointer { common, blocks, log, newest: RefCell::new(newest) }
    }

    /// Bytes of memory that is kept of the map's pages on the disk.
    pub(crate) fn table_bytes(&self) -> usize {
        self.newest.borrow().pages.bytes()
    }

    /// Takes a checkpoint of everything appended so far. A failure poisons the volume.
    pub(crate) async fn take(&self) -> Result<(), Rejected> {
        let _exclusive = self.common.checkpointing.acquire(1).await;
        // The one before this may have failed, or been given up, while this one waited: what it had frozen is gone.
        self.common.require_no_failure()?;
        let mut unfinished = Unfinished { common: &self.common, finished: false };
        let outcome = self.take_exclusively().await;
        unfinished.finished = true;
        if let Err(error) = outcome {
            self.common.fail(error);
        }
        self.common.slots.notify(usize::MAX);
        outcome
    }

    /// Takes the checkpoint that a volume is closed with, and one more of the same moment (V9): the pages of the map that
    /// are in one place only go to their other place with it, 64 MiB of them at most, or an eighth of those that may be in
    /// memory. So at rest each checkpoint
    /// and each page of the map is there twice.
    pub(crate) async fn take_last(&self) -> Result<(), Rejected> {
        self.take().await?;
        if self.common.drops(VolumeMutant::ClosedOnce) {
            return Ok(());
        }
        let most = PAGES_DOUBLED.min(self.blocks.borrow().map.limit() / COMMANDS_AT_ONCE);
        let single = self.newest.borrow().pages.single(most);
        for page in single {
            // One that cannot be read stays in its one place.
            let _ = self.log.pager.load(WhenFull::Exceed, |_| vec![page]).await;
            self.blocks.borrow_mut().map.write_again(page);
        }
        self.take().await
    }

    /// Waits until no user has placed a record behind the newest mark (V13), and has users wait from then on. Without marks there
    /// is nothing to wait for.
    async fn reach_mark(&self) -> Result<(), Rejected> {
        let Some(marks) = &self.common.marks else { return Ok(()) };
        if self.common.drops(VolumeMutant::CheckpointUnmarked) {
            return Ok(());
        }
        marks.set_checkpoint_waits(marks.is_changed());
        self.common.wait_for_marks(marks, || marks.is_changed()).await
    }

    /// Waits until a mark covers a record (V13), and returns the mark's. Where users have placed nothing since the newest
    /// mark, the volume places it. Without marks it is the record itself.
    pub(crate) async fn cover_by_mark(&self, sequence: u64) -> Result<u64, Rejected> {
        let Some(marks) = &self.common.marks else { return Ok(sequence) };
        loop {
            self.common.wait_for_marks(marks, || marks.newest() < sequence && marks.is_changed()).await?;
            if marks.newest() >= sequence {
                return Ok(marks.newest());
            }
            self.common.require_no_failure()?;
            let slot = self.common.slots.listen();
            if matches!(self.log.append_mark(), Err(Rejected::Busy)) {
                // Until then a user may have placed a record, and has to place the mark.
                slot.await;
            }
        }
    }

    async fn take_exclusively(&self) -> Result<(), Rejected> {
        self.reach_mark().await?;
        let frozen = self.freeze();
        if let Some(marks) = &self.common.marks {
            marks.set_checkpoint_waits(false);
            self.common.slots.notify(usize::MAX);
        }
        let log_end = frozen.next.next_sequence - 1;
        let mut next = frozen.next;
        let tickets = self.write_pages(&frozen.pages, &mut next.pages).await?;
        if !self.common.drops(VolumeMutant::CheckpointTooEarly) {
            all_transferred(tickets).await?;
            self.common.watermark.until_transferred(log_end).await?;
            flush(&*self.common.disk).await?;
            self.log.flushed(log_end);
        }
        self.common.require_no_failure()?;
        let mut buffer = Buffer::new(self.common.geometry.checkpoint_blocks as usize * BLOCK_BYTES);
        next.encode(&self.common.geometry, &mut buffer);
        let written = self.write_slot(&mut next, buffer).await?;
        flush(&*self.common.disk).await?;
        self.common.count(|stats| {
            stats.flushes += 1;
            stats.checkpoints += 1;
            stats.checkpoint_blocks += (written + frozen.pages.len()) as u64;
        });
        debug!(
            name: "volume_checkpoint",
            number = next.number,
            pages = frozen.pages.len(),
            blocks = written,
            last_record = log_end,
            free_list = next.free_list.len(),
            "checkpoint"
        );
        let joined = &next.free_list[next.free_list.len() - frozen.joined..];
        {
            let mut blocks = self.blocks.borrow_mut();
            blocks.segments.commit(joined, frozen.log_segments);
            blocks.map.settle(&frozen.pages);
            // What exceeds the limit can be evicted now.
            blocks.map.make_room(0, &[]);
        }
        self.log.set_checkpoint(next.number);
        self.newest.replace(next);
        // All segments that were emptied may be free now.
        if self.common.options.discard_below {
            self.common.discard_needed.notify(1);
        }
        Ok(())
    }

    /// Writes the blocks of the slot that hold something, now or before, and returns how many.
    async fn write_slot(&self, next: &mut Checkpoint, buffer: Buffer) -> Result<usize, Rejected> {
        let now = filled(&buffer);
        let before = std::mem::replace(&mut next.filled[next.slot as usize], now.clone());
        let whole = self.common.drops(VolumeMutant::CheckpointWhole);
        let changes = |i: usize| whole || now[i] || before[i];
        let start = self.common.geometry.checkpoint_slot(next.slot);
        let buffer = Rc::new(buffer);
        let (mut tickets, mut at, mut written) = (Vec::new(), 0, 0);
        while let Some(first) = (at..now.len()).find(|i| changes(*i)) {
            let end = (first..now.len()).find(|i| !changes(*i)).unwrap_or(now.len());
            let bytes = first * BLOCK_BYTES..end * BLOCK_BYTES;
            tickets.extend(write_part(&*self.common.disk, start.offset(first as u64), &buffer, bytes).await?);
            written += end - first;
            at = end;
        }
        all_transferred(tickets).await?;
        Ok(written)
    }

    /// The moment that the checkpoint stands for.
    fn freeze(&self) -> Frozen {
        self.log.seal();
        let head = self.log.head();
        let mut blocks = self.blocks.borrow_mut();
        let pages = blocks.map.freeze();
        let (free_list, joined) =
            blocks.segments.plan_free_list(head.segment, self.common.geometry.free_list_limit());
        let newest = &mut *self.newest.borrow_mut();
        let next = Checkpoint {
            number: newest.number + 1,
            slot: (newest.slot + 1) % CHECKPOINT_SLOTS,
            generation: head.generation,
            next_sequence: head.next_sequence,
            log_offset: head.offset,
            window_blocks: self.common.window_blocks(),
            free_list,
            // Only a checkpoint looks at them, and one is taken at a time.
            pages: std::mem::take(&mut newest.pages),
            filled: std::mem::take(&mut newest.filled),
            alone: false,
        };
        Frozen { next, pages, joined, log_segments: blocks.segments.log().len() }
    }

    /// Writes the frozen pages to the places that the last checkpoint does not use.
    async fn write_pages(&self, pages: &[u32], table: &mut PageTable) -> Result<Vec<Ticket>, Rejected> {
        let volume = self.common.geometry.volume;
        let mut tickets = Vec::new();
        let mut rest = pages;
        while let Some(first) = rest.first().copied() {
            let place = table.place(first).other();
            let follows = |(i, page): &(usize, &u32)| {
                **page == first + *i as u32 && table.place(**page).other() == place
            };
            let run = rest.iter().enumerate().take(PAGES_PER_WRITE).take_while(follows).count();
            let mut buffer = Buffer::new(run * BLOCK_BYTES);
            for (block, page) in buffer.chunks_exact_mut(BLOCK_BYTES).zip(rest) {
                let map = &mut self.blocks.borrow_mut().map;
                let checksum = map.frozen_page(*page, place, volume, block);
                if self.common.drops(VolumeMutant::PageEvictedEarly) {
                    map.settle(&[*page]);
                }
                table.moved(*page, place, checksum);
            }
            let start = self.common.geometry.map_page(place.area(), first);
            tickets.extend(write_buffer(&*self.common.disk, start, buffer, run * BLOCK_BYTES).await?);
            rest = &rest[run..];
        }
        Ok(tickets)
    }
}

/// A checkpoint being taken. If its future is dropped half way the volume stops: what was frozen is gone with it, and the
/// next checkpoint would lack that.
struct Unfinished<'a> {
    common: &'a Common,
    finished: bool,
}

impl Drop for Unfinished<'_> {
    fn drop(&mut self) {
        if !self.finished && !self.common.drops(VolumeMutant::CheckpointAbandoned) {
            self.common.fail(Rejected::Failed(StorageError::Gone));
        }
    }
}

/// A checkpoint at its beginning.
struct Frozen {
    next: Checkpoint,
    pages: Vec<u32>,
    /// How many of the free-segment list's last segments join with this checkpoint.
    joined: usize,
    log_segments: usize,
}
