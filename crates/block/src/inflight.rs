//! Commands in flight: accepted by the device and not yet transferred. A command that was transferred on
//! return from `submit` is never entered here.
//!
//! A command is *quiet* if its end matters to nothing in the layer but to those that want its slot or what it
//! touches: its owner holds the device's own ticket. As long as nothing is queued, the end of a quiet command
//! wakes no task here, and it is forgotten when its slot is wanted.

use std::collections::VecDeque;
use std::task::Waker;

use smallvec::SmallVec;
use weir_storage::{Completer, Extent, RequestId, StorageError, StreamId, Tag, Ticket};

/// The tasks that wait for a request. Here and below there is almost always one, which needs no allocation.
pub(crate) type Owners = SmallVec<[Completer; 1]>;

/// The requests that a command carries.
pub(crate) type Tags = SmallVec<[Tag; 1]>;

/// What a command touches.
pub(crate) type Extents = SmallVec<[Extent; 1]>;

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
    pub(crate) extents: Extents,
    /// It changes what it touches.
    pub(crate) writes: bool,
    /// Its answer says that something is durable: an FUA write, a flush.
    pub(crate) fua: bool,
    /// Something that it writes may be volatile when it is answered.
    pub(crate) volatile: bool,
    /// It flushes what was transferred before it; if it fails, some of that may be lost.
    pub(crate) flushes: bool,
    /// Barriers that the device services in their place, accepted before this command.
    pub(crate) barriers: u64,
    /// The stream whose epoch it belongs to.
    pub(crate) ordered: Option<StreamId>,
    pub(crate) tags: Tags,
    pub(crate) owners: Owners,
    pub(crate) purpose: Purpose,
    /// Its end wakes the dispatcher.
    watched: bool,
}

impl Flight {
    /// A command that only the layer itself waits for, or whose owner holds the device's own ticket.
    pub(crate) fn new(ticket: Ticket, purpose: Purpose) -> Flight {
        Flight {
            ticket,
            extents: Extents::new(),
            writes: false,
            fua: false,
            volatile: false,
            flushes: false,
            barriers: 0,
            ordered: None,
            tags: Tags::new(),
            owners: Owners::new(),
            purpose,
            watched: false,
        }
    }

    fn is_quiet(&self) -> bool {
        self.owners.is_empty()
            && self.purpose == Purpose::Answer
            && self.ordered.is_none()
            && !self.fua
            && !self.flushes
    }

    fn settled(&self) -> Option<Result<(), StorageError>> {
        self.ticket.poll_transferred()
    }
}

/// The blocks from `start` to before `end`.
#[derive(Clone, Copy)]
struct Span {
    start: u64,
    end: u64,
}

impl Span {
    fn around(extents: &[Extent]) -> Span {
        let start = extents.iter().map(|extent| extent.start.0).min().unwrap_or(u64::MAX);
        let end = extents.iter().map(|extent| extent.end().0).max().unwrap_or(0);
        Span { start, end }
    }
}

/// All commands in flight, in dispatch order; never more than the device's queue depth.
#[derive(Default)]
pub(crate) struct Flights {
    flights: VecDeque<Flight>,
    /// From where to where each of them touches blocks: small, since every write is compared with all of them.
    spans: VecDeque<Span>,
    /// Wakes the dispatcher, once there is one.
    waker: Option<Waker>,
    /// Commands whose end wakes no task.
    unwatched: usize,
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
        let quiet = flight.is_quiet();
        self.spans.push_back(Span::around(&flight.extents));
        self.flights.push_back(flight);
        self.unwatched += 1;
        if !quiet {
            self.watch(self.flights.len() - 1);
        }
    }

    fn watch(&mut self, index: usize) {
        let Some(flight) = self.flights.get_mut(index).filter(|flight| !flight.watched) else { return };
        flight.watched = true;
        self.unwatched -= 1;
        if !self.waker.as_ref().is_some_and(|waker| flight.ticket.watch(waker)) {
            self.fresh.push(flight.ticket.clone());
        }
    }

    /// A task waits for a slot, or for the blocks of a command: the end of any of them wakes the dispatcher.
    pub(crate) fn watch_all(&mut self) {
        if self.unwatched > 0 {
            (0..self.flights.len()).for_each(|index| self.watch(index));
        }
    }

    /// Tickets wake the dispatcher by `waker` from now on.
    pub(crate) fn wake_by(&mut self, waker: Waker) {
        self.waker = Some(waker);
    }

    /// Whether the device has answered a command since the last look.
    pub(crate) fn any_settled(&self) -> bool {
        self.flights.iter().any(|flight| flight.settled().is_some())
    }

    /// Why a flush has failed since the last look, if one has.
    pub(crate) fn failed_flush(&self) -> Option<StorageError> {
        self.flights.iter().filter(|flight| flight.flushes).find_map(|flight| flight.settled()?.err())
    }

    pub(crate) fn has_fresh(&self) -> bool {
        !self.fresh.is_empty()
    }

    pub(crate) fn take_fresh(&mut self) -> Vec<Ticket> {
        std::mem::take(&mut self.fresh)
    }

    /// The writes among them.
    pub(crate) fn writes(&self) -> impl Iterator<Item = &Ticket> {
        self.flights.iter().filter(|flight| flight.writes).map(|flight| &flight.ticket)
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Flight> {
        self.flights.iter_mut()
    }

    /// The oldest command that is transferred, or failed, since the last look.
    pub(crate) fn take_settled(&mut self) -> Option<(Flight, Result<(), StorageError>)> {
        let over = |flight: &Flight| flight.settled();
        let (index, result) =
            self.flights.iter().enumerate().find_map(|(index, flight)| Some((index, over(flight)?)))?;
        let flight = self.flights.remove(index)?;
        self.spans.remove(index);
        self.unwatched -= usize::from(!flight.watched);
        Some((flight, result))
    }

    /// Forgets the oldest commands as long as they are quiet and over; `failed` gets the tags of those that
    /// failed.
    pub(crate) fn drop_quiet(&mut self, failed: impl Fn(&[Tag])) {
        while let Some(oldest) = self.flights.front().filter(|flight| flight.is_quiet())
            && let Some(result) = oldest.settled()
        {
            if result.is_err() {
                failed(&oldest.tags);
            }
            self.unwatched -= usize::from(!oldest.watched);
            self.flights.pop_front();
            self.spans.pop_front();
        }
    }

    /// Whether a command that touches `extent`, and `writes` it or not, would have no order with one in
    /// flight (S6). A barrier that the device services in its place separates them: `barriers` were accepted.
    pub(crate) fn conflict(&self, extent: Extent, writes: bool, barriers: u64) -> bool {
        let (start, end) = (extent.start.0, extent.end().0);
        // Where a random write lies is no branch predictor's business: no early end.
        let near = |span: &Span| (span.start < end) & (start < span.end);
        self.spans.iter().fold(false, |any, span| any | near(span))
            && self.flights.iter().any(|flight| {
                (writes || flight.writes)
                    && flight.barriers == barriers
                    && flight.extents.iter().any(|theirs| theirs.overlaps(extent))
                    && flight.settled().is_none()
            })
    }
}
