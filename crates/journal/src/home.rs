//! The way home of committed blocks: written a second time, or remapped to the log's copies.

use std::rc::Rc;

use weir_block::Class;
use weir_ext4::journal::Sequence;
use weir_storage::Ticket;

use crate::disk::{Disk, Run};
use crate::error::JournalError;
use crate::mutants::JournalMutant;
use crate::options::{CheckpointBy, JournalOptions};
use crate::transaction::LoggedBlock;
use crate::unwritten::Unwritten;

/// Blocks on their way home.
#[derive(Default)]
pub(crate) struct HomeWrites {
    /// Which, and by which transaction.
    blocks: Vec<(u64, Sequence)>,
    copies: Vec<Run>,
    /// The log's places, and the homes that are to read what is there.
    remaps: Vec<(u64, u64)>,
}

impl HomeWrites {
    /// The newest committed content of what is not home (J5 a), in the order of its blocks.
    pub(crate) fn of(unwritten: &Unwritten, options: &JournalOptions) -> HomeWrites {
        let mut writes = HomeWrites::default();
        unwritten.each(|home, sequence, block| {
            writes.blocks.push((home, sequence));
            if options.checkpoint == CheckpointBy::Remap && reads_as_home(block, options) {
                writes.remaps.push((block.at.place, home));
                return;
            }
            let uncommitted = options.rules.drops(JournalMutant::CheckpointsUncommitted);
            let content = if uncommitted { block.buffer.snapshot() } else { Rc::clone(&block.content) };
            Run::push(&mut writes.copies, home, content);
        });
        writes
    }

    /// The blocks, and by which transaction.
    pub(crate) fn blocks(&self) -> &[(u64, Sequence)] {
        &self.blocks
    }

    /// Submits them without order. Waits for queue space only.
    pub(crate) async fn submit(&self, disk: &Disk) -> Result<Vec<Ticket>, JournalError> {
        let mut tickets = Vec::new();
        for Run { start, blocks } in &self.copies {
            disk.write(*start, blocks, Class::Orderless, Class::Orderless, &mut tickets).await?;
        }
        disk.share(&self.remaps, &mut tickets).await?;
        Ok(tickets)
    }
}

/// Whether the log's copy of a block is what belongs home.
fn reads_as_home(block: &LoggedBlock, options: &JournalOptions) -> bool {
    !block.at.escaped || options.rules.drops(JournalMutant::RemapsEscaped)
}
