//! The legacy path, as jbd2 has it: one transaction at a time, transfer-and-flush between D, JD and JC. Without
//! barriers (EXT4-OD) it waits as much, and flushes nothing.

use weir_block::Class;

use crate::error::FsError;
use crate::journal::transaction::DataClass;
use crate::journal::{Composed, Journal};

impl Journal {
    pub(super) async fn commit_legacy(&self, barrier: bool) -> Result<(), FsError> {
        let Some(mut locked) = self.lock().await? else { return Ok(()) };
        let sequence = locked.sequence;
        let mut tickets = Vec::new();
        for data in &locked.data {
            tickets.append(&mut data.submit(DataClass::Orderless).await?);
        }
        self.disk.transferred(&tickets).await?;
        let Composed { log, commit_at, commit } = self.compose(&mut locked)?;
        let mut tickets = Vec::new();
        for run in log {
            self.disk.write(run.start, &run.blocks, Class::Orderless, Class::Orderless, &mut tickets).await?;
        }
        self.disk.transferred(&tickets).await?;
        self.set_flushing_to(sequence);
        self.disk.write_commit(commit_at, &commit, barrier).await?;
        self.state.borrow_mut().dispatched_to = sequence;
        self.dispatched.notify(usize::MAX);
        self.retire(locked, None);
        self.set_durable_to(sequence);
        Ok(())
    }
}
