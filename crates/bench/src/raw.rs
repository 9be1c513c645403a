//! Orderless writes straight to a storage at a given depth: the papers' P on the raw disk, and the filling
//! of scratch files.

use std::cell::RefCell;
use std::rc::Rc;

use futures_util::future::try_join_all;
use weir_runtime::{Buffer, Handle};
use weir_storage::{
    BLOCK_BYTES, Command, Data, Lba, Part, Rejected, Storage, Write, WriteFlags, flush, submit_when_free,
};

use crate::chooser::Distribution;
use crate::content::{Pages, Stamp};
use crate::ledger::Ledger;
use crate::measure::{Goal, Measured, Meter};
use crate::writes::{Span, Writes};

/// One run of orderless writes.
#[derive(Clone, Copy, Debug)]
pub struct RawRun {
    /// The run's number, from 1.
    pub run: u32,
    /// Where it writes.
    pub span: Span,
    /// In which order.
    pub distribution: Distribution,
    /// Writes in flight.
    pub depth: u32,
    /// When it ends.
    pub goal: Goal,
    /// Writes of each lane at most.
    pub lane_writes: u64,
    /// Whether each write is durable when it is done (FUA).
    pub durable: bool,
}

impl RawRun {
    /// Writes to `storage` until the goal is reached, then flushes once, all of it timed; and enters what was
    /// written into `ledger`.
    ///
    /// # Errors
    /// The first command that fails.
    pub async fn run(
        &self,
        handle: &Handle,
        storage: &dyn Storage,
        pages: &Pages,
        ledger: &mut Ledger,
    ) -> Result<Measured, Rejected> {
        let lanes = self.span.lanes(self.depth);
        let starts: Vec<Writes> = (0..lanes)
            .map(|lane| {
                Writes::new(self.run, self.span, self.distribution, lane, lanes, handle.random("lane"))
            })
            .collect();
        let buffers: Vec<Rc<Buffer>> =
            (0..lanes).map(|lane| Rc::new(self.buffer(storage, pages, lane))).collect();
        let meter = RefCell::new(Meter::start(handle));
        let lanes = starts.iter().zip(buffers).enumerate().map(|(lane, (writes, buffer))| {
            Lane {
                storage,
                pages,
                meter: &meter,
                goal: self.goal,
                writes_max: self.lane_writes,
                durable: self.durable,
                place: lane,
                buffer,
            }
            .run(writes.clone())
        });
        let written = try_join_all(lanes).await?;
        flush(storage).await?;
        let measured = meter.into_inner().stop();
        for (writes, count) in starts.into_iter().zip(written) {
            ledger.enter(writes, count);
        }
        Ok(measured)
    }

    /// A lane's buffer, its pages filled from places that follow each other in the pool.
    fn buffer(&self, storage: &dyn Storage, pages: &Pages, lane: u32) -> Buffer {
        let mut buffer = storage.allocate(self.span.unit_blocks as usize * BLOCK_BYTES);
        for (i, page) in buffer.chunks_exact_mut(BLOCK_BYTES).enumerate() {
            pages.fill(page, lane as usize + i);
        }
        buffer
    }
}

/// One write after the other, each waited for.
struct Lane<'a> {
    storage: &'a dyn Storage,
    pages: &'a Pages,
    meter: &'a RefCell<Meter>,
    goal: Goal,
    writes_max: u64,
    durable: bool,
    place: usize,
    buffer: Rc<Buffer>,
}

impl Lane<'_> {
    async fn run(mut self, mut writes: Writes) -> Result<u64, Rejected> {
        let mut began = self.meter.borrow().last();
        while u64::from(writes.written()) < self.writes_max && !self.meter.borrow().reached(&self.goal) {
            let stamp = writes.take();
            self.stamp(stamp);
            let data = Data::Shared { buffer: &self.buffer, offset: 0, bytes: self.buffer.len() };
            let parts = [Part { start: Lba(stamp.block), data }];
            let flags = WriteFlags { fua: self.durable, ..WriteFlags::default() };
            let write = Command::Write(Write { flags, ..Write::new(&parts) });
            let ticket = submit_when_free(self.storage, write).await?;
            ticket.transferred().await?;
            began = self.meter.borrow_mut().answered(began);
        }
        Ok(u64::from(writes.written()))
    }

    /// Stamps each page of the buffer. Its share with the storage ended with the write before.
    fn stamp(&mut self, stamp: Stamp) {
        if Rc::get_mut(&mut self.buffer).is_none() {
            let mut copy = self.storage.allocate(self.buffer.len());
            copy.copy_from_slice(&self.buffer);
            self.buffer = Rc::new(copy);
        }
        let Some(buffer) = Rc::get_mut(&mut self.buffer) else { return };
        for (i, page) in buffer.chunks_exact_mut(BLOCK_BYTES).enumerate() {
            let stamp = Stamp { block: stamp.block + i as u64, ..stamp };
            self.pages.stamp(page, self.place + i, stamp);
        }
    }
}

/// Blocks in one write of a filling: 256 KiB.
const FILL_BLOCKS: u32 = 64;

/// Writes of a filling in flight.
const FILL_DEPTH: u32 = 8;

/// A storage that is a whole number of this many blocks is filled at full speed.
pub const FILL_ALIGNMENT_BLOCKS: u64 = FILL_BLOCKS as u64 * FILL_DEPTH as u64;

/// Writes all of `storage` once, in order, as run `run`, and flushes.
///
/// # Errors
/// The first command that fails.
pub async fn fill(
    handle: &Handle,
    storage: &dyn Storage,
    pages: &Pages,
    run: u32,
    ledger: &mut Ledger,
) -> Result<Measured, Rejected> {
    let blocks = storage.blocks();
    let aligned = blocks.is_multiple_of(FILL_ALIGNMENT_BLOCKS);
    let (unit_blocks, depth) = if aligned { (FILL_BLOCKS, FILL_DEPTH) } else { (1, 1) };
    let span = Span { blocks, unit_blocks };
    let lane_writes = blocks / u64::from(unit_blocks) / u64::from(depth);
    let goal = Goal::writes(u64::MAX);
    let distribution = Distribution::Sequential;
    let run = RawRun { run, span, distribution, depth, goal, lane_writes, durable: false };
    run.run(handle, storage, pages, ledger).await
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use weir_runtime::{Runtime, Simulation};
    use weir_storage::{AdversaryDisk, AdversaryOptions};

    use super::*;
    use crate::error::BenchError;
    use crate::ledger::Coverage;

    fn on_disk<T>(blocks: u64, test: impl AsyncFnOnce(Handle, Rc<AdversaryDisk>, Pages) -> T) -> T {
        let runtime = Runtime::simulated(Simulation::default());
        let handle = runtime.handle();
        let options = AdversaryOptions { blocks, latency_ns_max: 1000, ..AdversaryOptions::default() };
        let disk = AdversaryDisk::new(&handle, options);
        let pages = Pages::new(&mut handle.random("pages"));
        runtime.block_on(test(handle, disk, pages)).unwrap()
    }

    fn random_run(depth: u32) -> RawRun {
        let goal = Goal { writes: 500, time: Duration::ZERO, time_max: Duration::MAX };
        let (span, distribution) = (Span::pages(512), Distribution::Uniform);
        RawRun { run: 2, span, distribution, depth, goal, lane_writes: u64::MAX, durable: false }
    }

    #[test]
    fn what_was_written_is_read_back() {
        on_disk(512, async |handle, disk, pages| {
            let mut ledger = Ledger::new(512);
            let filled = fill(&handle, &*disk, &pages, 1, &mut ledger).await.unwrap();
            assert_eq!((filled.writes, ledger.written()), (8, 512));
            let measured = random_run(16).run(&handle, &*disk, &pages, &mut ledger).await.unwrap();
            assert!((500..516).contains(&measured.writes));
            assert!(measured.calls_depth > 8.0, "{}", measured.calls_depth);
            let mut random = handle.random("verify");
            let all = ledger.verify(&*disk, &pages, Coverage::All, &mut random).await.unwrap();
            assert_eq!(all, 512);
            let sample = ledger.verify(&*disk, &pages, Coverage::Sample(50), &mut random).await.unwrap();
            assert_eq!(sample, 50);
        });
    }

    #[test]
    fn a_lost_write_is_found() {
        on_disk(512, async |handle, disk, pages| {
            let mut ledger = Ledger::new(512);
            random_run(4).run(&handle, &*disk, &pages, &mut ledger).await.unwrap();
            // One write more in the books than on the disk.
            let writes = Writes::new(3, Span::pages(512), Distribution::Uniform, 0, 1, handle.random("lost"));
            ledger.enter(writes, 1);
            let found = ledger.verify(&*disk, &pages, Coverage::All, &mut handle.random("verify")).await;
            assert!(matches!(found, Err(BenchError::Content { run: 3, version: 1, .. })), "{found:?}");
        });
    }

    #[test]
    fn a_block_that_nobody_wrote_must_be_zero() {
        on_disk(512, async |handle, disk, pages| {
            random_run(4).run(&handle, &*disk, &pages, &mut Ledger::new(512)).await.unwrap();
            let empty = Ledger::new(512);
            let found = empty.verify(&*disk, &pages, Coverage::All, &mut handle.random("verify")).await;
            assert!(matches!(found, Err(BenchError::Content { run: 0, .. })), "{found:?}");
        });
    }
}
