//! Replay: what a crash left in the log goes home. Nothing of it depends on what is in memory, and the log stays as
//! it is until everything is home and durable, so a replay that crashes is done again.

use std::rc::Rc;

use tracing::{info, warn};
use weir_block::Durable;
#[cfg(feature = "mutants")]
use weir_ext4::journal::ReplayMutant;
use weir_ext4::journal::{JournalSuperblock, LogReader, replay};
use weir_format::{BLOCK_BYTES, FormatError};
use weir_runtime::Buffer as Memory;

use crate::disk::Disk;
use crate::error::JournalError;
use crate::integrity::HomeIntegrity;
use crate::log::{JournalExtent, set_tail};
use crate::mutants::{JournalMutant, JournalRules};

/// Home writes submitted before their transfer is waited for.
const WRITES_AT_ONCE: usize = 256;

/// The journal as it lies on disk.
pub struct FoundJournal {
    /// Its superblock.
    pub superblock: JournalSuperblock,
    /// Where its blocks are.
    pub area: Vec<JournalExtent>,
}

impl FoundJournal {
    /// Where a block of the journal is.
    fn home(&self, block: u32) -> Result<u64, FormatError> {
        JournalExtent::find(&self.area, block)
            .ok_or(FormatError::Invalid { what: "a block beyond the journal" })
    }

    /// Brings home what is committed in the log, makes that durable, and calls the log empty after that.
    pub async fn replay(
        &mut self,
        disk: &Disk,
        filesystem_blocks: u64,
        rules: JournalRules,
    ) -> Result<(), JournalError> {
        let log = OnDiskLog { disk, journal: self, rules };
        let found = replay(&self.superblock, filesystem_blocks, &log).await?;
        let (transactions, blocks) = (found.transactions, found.writes.len());
        if transactions > 0 {
            warn!(
                name: "journal_replayed",
                transactions, blocks, "the filesystem was not unmounted: its journal is replayed"
            );
        } else {
            info!(name: "journal_empty", "the filesystem was not unmounted, and its journal is empty");
        }
        let reliable = HomeIntegrity::from_capabilities(disk.capabilities()) == HomeIntegrity::ReliableWrites
            && !rules.drops(JournalMutant::HomesUnreliable);
        let most = if rules.drops(JournalMutant::ReplaysInPart) { 1 } else { usize::MAX };
        for writes in found.writes.chunks(WRITES_AT_ONCE).take(most) {
            let mut tickets = Vec::new();
            for write in writes {
                let mut block = [0; BLOCK_BYTES];
                let damaged = write.needs_home() && rules.drops(JournalMutant::HomeNotRead);
                if write.needs_home() && !damaged {
                    block.copy_from_slice(&disk.read(write.home, 1).await?);
                }
                write.restore(&log, &mut block).await?;
                // The log makes up for damage of what it holds all of.
                let reliable = reliable && write.needs_home();
                disk.write_home(write.home, &[memory(&block)], reliable, &mut tickets).await?;
            }
            disk.wait_transferred(&tickets).await?;
        }
        // J5 (e): the log may be called empty only when all that was in it is durable at home.
        if !rules.drops(JournalMutant::EmptyWithoutFlush) {
            disk.flush().await?;
        }
        set_tail(&mut self.superblock, None, found.next, rules)?;
        let mut block = [0; BLOCK_BYTES];
        self.superblock.encode(&mut block);
        disk.write_in_place(self.home(0)?, &memory(&block), Durable::Nothing).await?;
        disk.flush().await
    }
}

struct OnDiskLog<'a> {
    disk: &'a Disk,
    journal: &'a FoundJournal,
    #[cfg_attr(not(feature = "mutants"), expect(dead_code, reason = "no rule is dropped"))]
    rules: JournalRules,
}

impl LogReader for OnDiskLog<'_> {
    type Error = JournalError;

    async fn read(&self, block: u32, bytes: &mut [u8; BLOCK_BYTES]) -> Result<(), JournalError> {
        bytes.copy_from_slice(&self.disk.read(self.journal.home(block)?, 1).await?);
        Ok(())
    }

    async fn read_home(&self, home: u64, bytes: &mut [u8; BLOCK_BYTES]) -> Result<(), JournalError> {
        bytes.copy_from_slice(&self.disk.read(home, 1).await?);
        Ok(())
    }

    #[cfg(feature = "mutants")]
    fn drops(&self, mutant: ReplayMutant) -> bool {
        self.rules.drops(JournalMutant::Replay(mutant))
    }
}

fn memory(bytes: &[u8]) -> Rc<Memory> {
    Rc::new(Memory::copy_of(bytes))
}
