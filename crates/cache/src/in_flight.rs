//! The writes of a file's pages that are on their way, and whether one has ever failed.

use std::collections::VecDeque;

use weir_storage::{Extent, StorageError, Ticket};

/// Writes that are remembered even if some behind the first are transferred already.
const REMEMBERED: usize = 256;

/// A write on its way.
pub(crate) struct Flight {
    pub(crate) extent: Extent,
    pub(crate) ticket: Ticket,
    pub(crate) orderless: bool,
}

/// The writes of a file's pages that are not known to be transferred.
#[derive(Default)]
pub(crate) struct InFlight {
    pub(crate) flights: VecDeque<Flight>,
    /// The first error of a write: from then on nothing of the file is called durable.
    pub(crate) failed: Option<StorageError>,
}

impl InFlight {
    /// Forgets what is transferred, but not that something failed.
    pub(crate) fn settle(&mut self) {
        let InFlight { flights, failed } = self;
        let mut is_over = |flight: &Flight| match flight.ticket.poll_transferred() {
            None => false,
            Some(result) => {
                *failed = failed.or(result.err());
                true
            }
        };
        if flights.len() > REMEMBERED {
            flights.retain(|flight| !is_over(flight));
        }
        while flights.front().is_some_and(&mut is_over) {
            flights.pop_front();
        }
    }
}
