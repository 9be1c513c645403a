//! The *ledger* of a file or volume: which write each block must hold. It is filled by repeating a round's
//! writes after the round, and proves the content by reading it back.

use std::collections::VecDeque;

use weir_runtime::Random;
use weir_storage::{
    BLOCK_BYTES, Command, Extent, Lba, Rejected, Storage, StorageError, Ticket, submit_when_free,
};

use crate::content::{Pages, Stamp};
use crate::error::BenchError;
use crate::writes::Writes;

/// How much is read back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Coverage {
    /// This many blocks, chosen at random.
    Sample(u64),
    /// Every block.
    All,
}

/// Blocks in one read when all are read back.
const READ_BLOCKS: u32 = 32;

/// Reads in flight.
const READS: usize = 16;

/// Which write each block must hold; a block that was never written reads zeroes.
#[derive(Clone, Debug)]
pub struct Ledger {
    /// Run and version of the last write; run 0 stands for none.
    last: Vec<(u32, u32)>,
}

impl Ledger {
    /// The ledger of `blocks` unwritten blocks.
    #[must_use]
    pub fn new(blocks: u64) -> Ledger {
        Ledger { last: vec![(0, 0); usize::try_from(blocks).unwrap_or(usize::MAX)] }
    }

    /// Enters the next `count` writes of `writes`.
    pub fn enter(&mut self, mut writes: Writes, count: u64) {
        for _ in 0..count {
            let stamp = writes.take();
            let start = stamp.block as usize;
            let end = (start + writes.unit_blocks() as usize).min(self.last.len());
            self.last[start.min(end)..end].fill((stamp.run, stamp.version));
        }
    }

    /// Blocks that were written.
    #[must_use]
    pub fn written(&self) -> u64 {
        self.last.iter().filter(|last| last.0 != 0).count() as u64
    }

    /// Reads back and compares. Returns how many blocks were read.
    ///
    /// # Errors
    /// [`BenchError::Content`] names the first block that is not the last one written there.
    pub async fn verify(
        &self,
        storage: &dyn Storage,
        pages: &Pages,
        coverage: Coverage,
        random: &mut Random,
    ) -> Result<u64, BenchError> {
        let blocks = storage.blocks().min(self.last.len() as u64);
        let mut reads = VecDeque::new();
        let mut total = 0;
        let extents: Box<dyn Iterator<Item = Extent>> = match coverage {
            Coverage::Sample(count) if blocks > 0 => {
                Box::new((0..count.min(blocks)).map(|_| Extent::new(Lba(random.below(blocks)), 1)))
            }
            Coverage::Sample(_) => Box::new(std::iter::empty()),
            Coverage::All => Box::new(whole(blocks, storage.capabilities().max_transfer_blocks)),
        };
        for extent in extents {
            total += u64::from(extent.blocks);
            reads.push_back((extent, submit_when_free(storage, Command::read(extent)).await?));
            if reads.len() == READS
                && let Some((extent, ticket)) = reads.pop_front()
            {
                self.compare(extent, &ticket, pages).await?;
            }
        }
        for (extent, ticket) in reads {
            self.compare(extent, &ticket, pages).await?;
        }
        Ok(total)
    }

    async fn compare(&self, extent: Extent, ticket: &Ticket, pages: &Pages) -> Result<(), BenchError> {
        ticket.transferred().await.map_err(Rejected::Failed)?;
        let data = ticket.take_data().ok_or(Rejected::Failed(StorageError::Gone))?;
        let found = extent.iter().zip(data.chunks_exact(BLOCK_BYTES));
        found.into_iter().try_for_each(|(lba, page)| self.holds(lba.0, page, pages))
    }

    /// Compares what was read of one block.
    ///
    /// # Errors
    /// [`BenchError::Content`] if it is not what was written last.
    pub(crate) fn holds(&self, block: u64, page: &[u8], pages: &Pages) -> Result<(), BenchError> {
        let (run, version) = self.last[block as usize];
        let holds = match run {
            0 => page.iter().all(|&byte| byte == 0),
            _ => pages.is(page, Stamp { block, run, version }),
        };
        if holds { Ok(()) } else { Err(BenchError::Content { block, run, version }) }
    }

    /// How many blocks are in it.
    pub(crate) fn blocks(&self) -> u64 {
        self.last.len() as u64
    }
}

/// All `blocks` blocks in reads of a comfortable size.
fn whole(blocks: u64, max_transfer_blocks: u32) -> impl Iterator<Item = Extent> {
    let step = u64::from(READ_BLOCKS.min(max_transfer_blocks).max(1));
    (0..blocks.div_ceil(step)).map(move |i| {
        let start = i * step;
        Extent::new(Lba(start), step.min(blocks - start) as u32)
    })
}
