//! Weir's own stack on a disk, and a block layer on it.

use std::rc::Rc;

use weir_block::BlockOptions;
use weir_runtime::Handle;
use weir_stack::Stack;
use weir_storage::Storage;
use weir_volume::Stats;

use crate::caller::{Caller, WeirCalls};
use crate::content::Pages;
use crate::error::BenchError;
use crate::measure::{Goal, Measured, Meter};
use crate::writes::Writes;

/// What writes to a volume on a disk, by a block layer.
pub struct VolumeWriter {
    handle: Handle,
    caller: Caller,
    stack: Stack,
}

impl VolumeWriter {
    /// Puts a block layer on `stack`.
    ///
    /// # Errors
    /// If the block layer cannot be made.
    pub fn new(handle: &Handle, stack: Stack) -> Result<VolumeWriter, BenchError> {
        let options = BlockOptions { queue_requests: 1, ..BlockOptions::default() };
        let caller = Caller::new(handle, stack.storage(), options)?;
        Ok(VolumeWriter { handle: handle.clone(), caller, stack })
    }

    /// What the volume has counted.
    #[must_use]
    pub fn volume_stats(&self) -> Stats {
        self.stack.volume_stats()
    }

    /// The volume, for a reader beside the writer.
    pub(crate) fn storage(&self) -> Rc<dyn Storage> {
        self.stack.storage()
    }

    /// Closes the volume.
    ///
    /// # Errors
    /// What the volume answers: then its last state is that of the last flush.
    pub async fn close(self) -> Result<(), BenchError> {
        Ok(self.take_apart().await.close().await?)
    }

    /// Leaves the volume as it is, as a crash of the program would.
    pub async fn abandon(self) {
        drop(self.take_apart().await);
    }

    /// The stack alone. The block layer's task drops the volume at its next turn.
    async fn take_apart(self) -> Stack {
        let VolumeWriter { handle, caller, stack } = self;
        drop(caller);
        while stack.resizable_volume().is_some_and(|volume| Rc::strong_count(volume) > 1) {
            handle.yield_now().await;
        }
        stack
    }

    /// Writes until `goal` is reached, then flushes once, all of it timed. Returns what the volume did
    /// meanwhile, too.
    ///
    /// # Errors
    /// The first request that fails; [`BenchError::Dropped`] if a block did not reach the disk.
    pub async fn run(
        &self,
        calls: WeirCalls,
        writes: &mut Writes,
        pages: &mut Pages,
        goal: &Goal,
    ) -> Result<(Measured, Work), BenchError> {
        let before = self.volume_stats();
        let mut meter = Meter::start(&self.handle);
        self.caller.write(calls, writes, pages, goal, &mut meter).await?;
        let cleaned_blocks = self.volume_stats().cleaned_blocks - before.cleaned_blocks;
        self.caller.flush().await?;
        let measured = meter.stop();
        let work = Work::between(&before, &self.volume_stats());
        work.reached_the_disk(measured.writes, cleaned_blocks)?;
        Ok((measured, work))
    }
}

/// What a volume did between two moments, in blocks and flushes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Work {
    /// Blocks that users wrote.
    pub user_blocks: u64,
    /// Data blocks that went to the disk, of users and moved ones.
    pub data_blocks: u64,
    /// Live blocks that cleaning moved.
    pub cleaned_blocks: u64,
    /// Blocks that went to the disk in all.
    pub disk_blocks: u64,
    /// Flushes of the disk.
    pub flushes: u64,
}

impl Work {
    /// The difference of two readings.
    #[must_use]
    pub fn between(before: &Stats, after: &Stats) -> Work {
        Work {
            user_blocks: after.user_blocks.saturating_sub(before.user_blocks),
            data_blocks: after.data_blocks.saturating_sub(before.data_blocks),
            cleaned_blocks: after.cleaned_blocks.saturating_sub(before.cleaned_blocks),
            disk_blocks: after.disk_blocks().saturating_sub(before.disk_blocks()),
            flushes: after.flushes.saturating_sub(before.flushes),
        }
    }

    /// Checks that no superseded block was dropped on the way. What was cleaned before the last flush is on
    /// the disk by then, so the rest of the data is the user's.
    fn reached_the_disk(&self, written_blocks: u64, cleaned_blocks: u64) -> Result<(), BenchError> {
        let data_blocks = self.data_blocks.saturating_sub(cleaned_blocks);
        if data_blocks < written_blocks {
            return Err(BenchError::Dropped { user_blocks: written_blocks, data_blocks });
        }
        Ok(())
    }

    /// Blocks to the disk per block of the user.
    #[must_use]
    pub fn write_amplification(&self) -> f64 {
        self.disk_blocks as f64 / self.user_blocks.max(1) as f64
    }
}

#[cfg(test)]
mod tests {
    use weir_runtime::{Runtime, Simulation};
    use weir_stack::{Disk, VolumeSpec};
    use weir_storage::{AdversaryDisk, AdversaryOptions};
    use weir_volume::Format;

    use super::*;
    use crate::chooser::Distribution;
    use crate::ledger::{Coverage, Ledger};
    use crate::writes::Span;

    const SPAN_BLOCKS: u64 = 256;
    const WRITES: u64 = 3000;

    /// Writes through all of it in virtual time, leaves it, opens it anew and reads back. Returns the trace.
    fn round(calls: WeirCalls, seed: u64) -> u64 {
        let runtime = Runtime::simulated(Simulation { seed, ..Simulation::default() });
        let handle = runtime.handle();
        let options =
            AdversaryOptions { blocks: 1024, latency_ns_max: 50_000, ..AdversaryOptions::default() };
        let disk = Disk::Adversary(AdversaryDisk::new(&handle, options));
        let mut pages = Pages::new(&mut handle.random("pages"));
        let work = async {
            let format =
                Format { logical_blocks: SPAN_BLOCKS, segment_blocks: 16, overwrite: false, slots: 0 };
            let volume = VolumeSpec { format, ..VolumeSpec::default() };
            let stack = Stack::make_volume(&handle, disk.clone(), &volume).await.unwrap();
            let writer = VolumeWriter::new(&handle, stack).unwrap();
            let span = Span::pages(SPAN_BLOCKS);
            let start = Writes::new(1, span, Distribution::Zipf, 0, 1, handle.random("writes"));
            let goal = Goal::writes(WRITES);
            let (measured, work) = writer.run(calls, &mut start.clone(), &mut pages, &goal).await.unwrap();
            assert_eq!((measured.writes, work.user_blocks), (WRITES, WRITES));
            writer.abandon().await;
            let mut ledger = Ledger::new(SPAN_BLOCKS);
            ledger.enter(start, WRITES);
            let stack = Stack::open(&handle, disk, volume.options).await.unwrap();
            let mut random = handle.random("verify");
            assert_eq!(
                ledger.verify(&*stack.storage(), &pages, Coverage::All, &mut random).await.unwrap(),
                SPAN_BLOCKS
            );
        };
        runtime.block_on(work).unwrap();
        handle.trace_hash()
    }

    #[test]
    fn every_call_keeps_the_last_version_of_every_block() {
        for calls in [WeirCalls::Xnf, WeirCalls::X, WeirCalls::B, WeirCalls::P] {
            round(calls, 1);
        }
    }

    #[test]
    fn a_run_is_a_function_of_its_seed() {
        assert_eq!(round(WeirCalls::B, 7), round(WeirCalls::B, 7));
        assert_ne!(round(WeirCalls::B, 7), round(WeirCalls::B, 8));
    }

    #[test]
    fn a_dropped_block_is_noticed() {
        let work = Work { user_blocks: 10, data_blocks: 12, cleaned_blocks: 3, ..Work::default() };
        assert!(work.reached_the_disk(10, 2).is_ok());
        let dropped = work.reached_the_disk(10, 3);
        assert!(matches!(dropped, Err(BenchError::Dropped { user_blocks: 10, data_blocks: 9 })));
    }
}
