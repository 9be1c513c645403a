//! The way home of committed blocks: they are written a second time.

use std::rc::Rc;

use weir_block::Class;
use weir_ext4::journal::Sequence;
use weir_storage::Ticket;

use crate::disk::{Disk, Run};
use crate::error::JournalError;
use crate::mutants::{JournalMutant, JournalRules};
use crate::unwritten::Unwritten;

/// Blocks on their way home.
#[derive(Default)]
pub(crate) struct HomeWrites {
    /// Which, and by which transaction.
    blocks: Vec<(u64, Sequence)>,
    copies: Vec<Run>,
}

impl HomeWrites {
    /// The newest committed content of what is not home (J5 a), in the order of its blocks.
    pub(crate) fn of(unwritten: &Unwritten, rules: JournalRules) -> HomeWrites {
        let mut writes = HomeWrites::default();
        unwritten.each(|home, sequence, block| {
            writes.blocks.push((home, sequence));
            let uncommitted = rules.drops(JournalMutant::CheckpointsUncommitted);
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
        Ok(tickets)
    }
}
