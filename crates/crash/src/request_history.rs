//! The requests of a run: the model of what was requested, and which requests were acknowledged as durable.

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use weir_storage::{StorageError, Ticket};

use crate::content::mix;
use crate::model::{Model, Verdict};

/// Which phase of a ticket makes a promise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// FUA writes and flushes: transferred means durable (S2).
    Transferred,
    /// Any write on a volume: its second phase.
    Durable,
}

/// A promise that may still be made.
struct Pending {
    /// Requests that it covers.
    through: u64,
    ticket: Ticket,
    phase: Phase,
}

/// The history of a volume from one power-up to the next power cut.
pub(crate) struct RequestHistory {
    pub model: Model,
    /// Requests that the volume has taken; the one after them may still be waiting for room.
    accepted: u64,
    /// Requests acknowledged as durable.
    promised: u64,
    pending: Vec<Pending>,
    /// Stands for what recoveries have left before: other pasts lead to the same images.
    past: u64,
}

impl RequestHistory {
    pub(crate) fn new(model: Model) -> RequestHistory {
        RequestHistory { model, accepted: 0, promised: 0, pending: Vec::new(), past: 0 }
    }

    /// A copy for a round that begins with a state of this one: promises made so far hold there.
    pub(crate) fn fork(&self) -> RequestHistory {
        RequestHistory { model: self.model.clone(), pending: Vec::new(), ..*self }
    }

    /// The volume has taken every request that the model was told of.
    pub(crate) fn accept(&mut self) {
        self.accepted = self.model.requests();
    }

    pub(crate) fn accepted(&self) -> u64 {
        self.accepted
    }

    /// `ticket` will promise that the first `through` requests are durable.
    pub(crate) fn expect(&mut self, through: u64, ticket: Ticket, phase: Phase) {
        self.pending.push(Pending { through, ticket, phase });
    }

    /// Requests that are promised at this moment. Asks the tickets themselves: a promise counts from the
    /// moment at which a caller could see it.
    pub(crate) fn promised(&mut self) -> u64 {
        let mut promised = self.promised;
        self.pending.retain(|pending| match pending.poll() {
            None => true,
            Some(outcome) => {
                if outcome.is_ok() {
                    promised = promised.max(pending.through);
                }
                false
            }
        });
        self.promised = promised;
        promised
    }

    /// Recovery is over and left the first `left` requests: all else is forgotten. `salt` distinguishes equal pasts.
    pub(crate) fn forget_lost(&mut self, left: u64, salt: u64) {
        let past = mix(mix(self.past, left), salt);
        *self = RequestHistory { past, ..RequestHistory::new(self.model.from_prefix(left)) };
    }

    pub(crate) fn past(&self) -> u64 {
        self.past
    }

    pub(crate) fn judge(&self, found: &[u64]) -> Result<u64, Verdict> {
        self.model.judge(found, self.promised)
    }
}

impl Pending {
    fn poll(&self) -> Option<Result<(), StorageError>> {
        if self.phase == Phase::Transferred {
            return self.ticket.poll_transferred();
        }
        match pin!(self.ticket.durable()).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(outcome) => Some(outcome),
            Poll::Pending => None,
        }
    }
}
