//! Waiting for the store: of a volume whose flushes all do, so that what it calls durable survives the loss of the disk, or once.

use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;

use futures_util::future::{Either, select};

use weir_runtime::{Event, Handle};
use weir_storage::{Capabilities, Command, Lba, Rejected, Storage, StorageError, Ticket, flush};
use weir_volume::Volume;

use crate::uploader::Replication;

/// An open volume that is shipped to a store.
pub struct RemoteFlush {
    handle: Handle,
    volume: Rc<Volume>,
    replication: Replication,
    capabilities: Capabilities,
}

impl RemoteFlush {
    /// In front of a volume that an uploader ships. A flush is the only command that promises durability.
    #[must_use]
    pub fn new(handle: &Handle, volume: Rc<Volume>, replication: Replication) -> RemoteFlush {
        let capabilities =
            Capabilities { fua: false, preflush: false, durable_tickets: false, ..*volume.capabilities() };
        RemoteFlush { handle: handle.clone(), volume, replication, capabilities }
    }
}

impl Replication {
    /// Makes everything durable here and in the store that was placed in the volume before (R12).
    ///
    /// # Errors
    /// Why nothing more is shipped; or that a request to the store has no answer, or is refused, for as long as `patience`.
    pub async fn ship_placed(&self, volume: &Volume, patience: Duration) -> Result<(), String> {
        let position = volume.position();
        if position.durable < position.placed {
            flush(volume).await.map_err(|error| error.to_string())?;
        }
        let mut shipped = pin!(self.until_shipped(position.placed));
        loop {
            let left = patience.saturating_sub(self.longest_wait());
            // What is shipped already is, whatever the store says now.
            match select(shipped.as_mut(), pin!(self.handle().sleep(left))).await {
                Either::Left((outcome, _)) => return outcome,
                Either::Right(_) if self.longest_wait() >= patience => {
                    return Err(self.status().trouble.unwrap_or_default());
                }
                Either::Right(_) => {}
            }
        }
    }
}

impl Storage for RemoteFlush {
    fn blocks(&self) -> u64 {
        self.volume.blocks()
    }

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn submit(&self, command: Command<'_>) -> Result<Ticket, Rejected> {
        self.capabilities.check(&command, self.blocks())?;
        let local = self.volume.submit(command)?;
        if !matches!(command, Command::Flush) {
            return Ok(local);
        }
        let sequence = self.volume.position().placed;
        let (ticket, completer) = Ticket::pending();
        let replication = self.replication.clone();
        drop(self.handle.spawn(async move {
            let mut outcome = local.transferred().await;
            if outcome.is_ok() {
                // The status says why.
                outcome = replication.until_shipped(sequence).await.map_err(|_| StorageError::NotShipped);
            }
            completer.finish(outcome, outcome);
        }));
        Ok(ticket)
    }

    fn slots(&self) -> &Event {
        self.volume.slots()
    }

    fn next_data(&self, from: Lba) -> Option<Lba> {
        self.volume.next_data(from)
    }
}
