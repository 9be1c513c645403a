//! The way home of committed blocks: written a second time, or remapped to the log's copies.

use std::rc::Rc;

use weir_block::Run;
use weir_ext4::journal::Sequence;
use weir_runtime::Buffer as Memory;
use weir_storage::Ticket;

use crate::disk::Disk;
use crate::error::JournalError;
use crate::mutants::JournalMutant;
use crate::options::{CheckpointBy, JournalOptions};
use crate::transaction::{LoggedAt, LoggedBlock};
use crate::unwritten::{NotHome, Unwritten};

/// How a block goes home.
pub(crate) enum WayHome {
    /// This is written there.
    Copy(Rc<Memory>),
    /// It is made to read this place of the log, so its content is not kept in memory for it.
    Remap(u64),
}

impl WayHome {
    /// The way of a block that is in the log: by remap, if that is wanted, and the log's copy is what belongs home.
    pub(crate) fn of(block: &LoggedBlock, options: &JournalOptions) -> WayHome {
        let reads_as_home = |at: &LoggedAt| !at.escaped || options.rules.drops(JournalMutant::RemapsEscaped);
        match block.at.filter(reads_as_home).filter(|_| options.checkpoint == CheckpointBy::Remap) {
            Some(at) => WayHome::Remap(at.place),
            None => WayHome::Copy(Rc::clone(&block.content)),
        }
    }
}

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
        HomeWrites::of_those(unwritten, options, |_| true)
    }

    /// The same of the blocks that no transaction behind `transferred` has changed.
    pub(crate) fn of_unchanged(
        unwritten: &Unwritten,
        options: &JournalOptions,
        transferred: Sequence,
    ) -> HomeWrites {
        HomeWrites::of_those(unwritten, options, |block| block.buffer.holder_behind(transferred).is_none())
    }

    fn of_those(
        unwritten: &Unwritten,
        options: &JournalOptions,
        is_wanted: impl Fn(&NotHome) -> bool,
    ) -> HomeWrites {
        let mut writes = HomeWrites::default();
        unwritten.each(|home, block| {
            if is_wanted(block) {
                writes.add(home, block, options);
            }
        });
        writes
    }

    /// The same of some blocks.
    pub(crate) fn of_blocks(unwritten: &Unwritten, options: &JournalOptions, homes: &[u64]) -> HomeWrites {
        let mut writes = HomeWrites::default();
        unwritten.each_of(homes, |home, block| writes.add(home, block, options));
        writes
    }

    fn add(&mut self, home: u64, block: &NotHome, options: &JournalOptions) {
        self.blocks.push((home, block.sequence));
        match &block.way {
            WayHome::Remap(place) => self.remaps.push((*place, home)),
            WayHome::Copy(content) => {
                let uncommitted = options.rules.drops(JournalMutant::CheckpointsUncommitted);
                let content = if uncommitted { block.buffer.snapshot() } else { Rc::clone(content) };
                Run::push(&mut self.copies, home, content);
            }
        }
    }

    /// The blocks, and by which transaction.
    pub(crate) fn blocks(&self) -> &[(u64, Sequence)] {
        &self.blocks
    }

    /// Submits them without order, and copies by reliable writes where `reliable`. Waits for queue space only.
    pub(crate) async fn submit(&self, disk: &Disk, reliable: bool) -> Result<Vec<Ticket>, JournalError> {
        let mut tickets = Vec::new();
        for Run { start, blocks } in &self.copies {
            disk.write_home(*start, blocks, reliable, &mut tickets).await?;
        }
        disk.share(&self.remaps, &mut tickets).await?;
        Ok(tickets)
    }
}
