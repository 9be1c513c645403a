//! Commands in flight: accepted by the device and not yet transferred. A command that was transferred on
//! return from `submit` is never entered here.

use std::task::Waker;

use weir_storage::{Completer, Extent, RequestId, StorageError, StreamId, Tag, Ticket};

/// What a command in flight is there for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// What its owners asked for.
    Answer,
    /// A write whose FUA flag a flush has to stand in for.
    Fua,
    /// The flush in place of this request's pre-flush.
    Preflush(RequestId),
    /// The flush that ends an epoch where the host keeps order (E6).
    Epoch(StreamId),
}

/// A command in flight.
pub(crate) struct Flight {
    pub(crate) ticket: Ticket,
    pub(crate) extents: Vec<Extent>,
    /// It changes what it touches.
    pub(crate) writes: bool,
    /// Its answer says that something is durable: an FUA write, a flush.
    pub(crate) fua: bool,
    /// It flushes what was transferred before it; if it fails, some of that may be lost.
    pub(crate) flushes: bool,
    /// Barriers that the device services in their place, accepted before this command.
    pub(crate) barriers: u64,
    /// The stream whose epoch it belongs to.
    pub(crate) ordered: Option<StreamId>,
    pub(crate) tags: Vec<Tag>,
    pub(crate) owners: Vec<Completer>,
    pub(crate) purpose: Purpose,
}

impl Flight {
    /// A command that nobody but the layer itself waits for, or whose owner holds the device's own ticket.
    pub(crate) fn new(ticket: Ticket, purpose: Purpose) -> Flight {
        Flight {
            ticket,
            extents: Vec::new(),
            writes: false,
            fua: false,
            flushes: false,
            barriers: 0,
            ordered: None,
            tags: Vec::new(),
            owners: Vec::new(),
            purpose,
        }
    }
}

/// All commands in flight, in dispatch order; never more than the device's queue depth.
#[derive(Default)]
pub(crate) struct Flights {
    flights: Vec<Flight>,
    /// Wakes the dispatcher, once there is one.
    waker: Option<Waker>,
    /// Tickets that cannot wake the dispatcher by themselves, and that it does not wait for yet.
    fresh: Vec<Ticket>,
}

impl Flights {
    pub(crate) fn len(&self) -> usize {
        self.flights.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.flights.is_empty()
    }

    pub(crate) fn push(&mut self, flight: Flight) {
        let watched = self.waker.as_ref().is_some_and(|waker| flight.ticket.watch(waker));
        if !watched {
            self.fresh.push(flight.ticket.clone());
        }
        self.flights.push(flight);
    }

    /// Tickets wake the dispatcher by `waker` from now on.
    pub(crate) fn wake_by(&mut self, waker: Waker) {
        self.waker = Some(waker);
    }

    /// Whether the device has answered a command since the last look.
    pub(crate) fn any_settled(&self) -> bool {
        self.flights.iter().any(|flight| flight.ticket.poll_transferred().is_some())
    }

    pub(crate) fn has_fresh(&self) -> bool {
        !self.fresh.is_empty()
    }

    pub(crate) fn take_fresh(&mut self) -> Vec<Ticket> {
        std::mem::take(&mut self.fresh)
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Flight> {
        self.flights.iter_mut()
    }

    /// The commands that are transferred, or failed, since the last look.
    pub(crate) fn take_settled(&mut self) -> Vec<(Flight, Result<(), StorageError>)> {
        let mut settled = Vec::new();
        let mut index = 0;
        while index < self.flights.len() {
            match self.flights[index].ticket.poll_transferred() {
                Some(result) => settled.push((self.flights.remove(index), result)),
                None => index += 1,
            }
        }
        settled
    }

    /// Whether a command that touches `extent`, and `writes` it or not, would have no order with one in
    /// flight (S6). A barrier that the device services in its place separates them: `barriers` were accepted.
    pub(crate) fn conflict(&self, extent: Extent, writes: bool, barriers: u64) -> bool {
        self.flights.iter().any(|flight| {
            (writes || flight.writes)
                && flight.barriers == barriers
                && flight.extents.iter().any(|theirs| theirs.overlaps(extent))
        })
    }
}
