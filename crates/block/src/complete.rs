//! What becomes of commands once the device has answered, and of a stream once an order-preserving write of
//! it has failed (S5).

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use weir_runtime::Instant;
use weir_storage::{Completer, RequestId, Storage, StorageError, StreamId, Ticket};

use crate::epoch::Phase;
use crate::inflight::{Flight, Purpose};
use crate::mutants::BlockMutant;
use crate::queue::Stage;
use crate::scheduler::{FlushRequest, Refusals, Scheduler};

impl Refusals {
    /// Forgets refusals that are old enough to try again.
    pub(crate) fn expire(&mut self, now: Instant) {
        self.ordered = self.ordered.filter(|until| *until > now);
        self.others = self.others.filter(|until| *until > now);
    }

    /// The device refused something: a free slot is news from now on.
    pub(crate) fn listen(&mut self, device: &dyn Storage) {
        self.slot.get_or_insert_with(|| device.slots().listen());
    }

    /// Ready when a slot is free.
    pub(crate) fn poll_slot(&mut self, context: &mut Context<'_>) -> Poll<()> {
        match &mut self.slot {
            Some(slot) => Pin::new(slot).poll(context),
            None => Poll::Pending,
        }
    }

    /// A slot became free: try again at once.
    pub(crate) fn clear(&mut self) {
        *self = Refusals::default();
    }
}

impl Scheduler {
    /// Looks at the commands in flight and finishes those that the device has answered.
    pub(crate) fn retire(&mut self) {
        // Failed flushes first: a flush that completes at the same time does not cover what the failed one lost.
        self.poison(self.flights.failed_flush());
        // Then successes: what was transferred when another failed is not taken back (S5).
        let mut failed = Vec::new();
        while let Some((flight, result)) = self.flights.take_settled() {
            self.refusals.clear();
            match result {
                Ok(()) => self.settled(flight, result),
                Err(_) => failed.push((flight, result)),
            }
        }
        for (flight, result) in failed {
            self.settled(flight, result);
        }
    }

    /// A flush may have failed: the first failure stays.
    fn poison(&mut self, failure: Option<StorageError>) {
        if !self.options.rules.drops(BlockMutant::FlushLies) {
            self.poisoned = self.poisoned.or(failure);
        }
    }

    /// Forgets the oldest commands that no task waits for, and looks at all if that is not enough.
    pub(crate) fn free_slots(&mut self) {
        let recorder = self.recorder.as_deref();
        self.flights.drop_quiet(|tags| recorder.iter().for_each(|recorder| recorder.failed(tags)));
        if !self.has_slot() {
            self.retire();
        }
    }

    /// A command was answered.
    pub(crate) fn settled(&mut self, flight: Flight, mut result: Result<(), StorageError>) {
        let ordered = flight.ordered;
        self.poison(result.err().filter(|_| flight.flushes));
        if flight.fua && self.poisoned.is_some() {
            result = result.and(Err(StorageError::Poisoned));
        }
        if let Some(id) = ordered {
            let stream = self.streams.named(id);
            stream.in_flight = stream.in_flight.saturating_sub(1);
        }
        if result.is_err() {
            self.forget(&flight.tags);
        }
        match (flight.purpose, result) {
            (Purpose::Fua, Ok(())) => {
                let Flight { owners, ordered, .. } = flight;
                self.flushes
                    .push_back(FlushRequest { ordered, ..FlushRequest::new(Purpose::Answer, owners) });
            }
            (Purpose::Answer | Purpose::Fua, _) => self.answer(flight, result),
            (Purpose::Preflush(id), Ok(())) => self.ready(id),
            (Purpose::Preflush(id), Err(error)) => self.drop_request(id, error),
            (Purpose::Epoch(id), Ok(())) => {
                let stream = self.streams.named(id);
                stream.bare_barriers.drain(..).for_each(|owner| owner.finish(Ok(()), Ok(())));
                stream.open();
            }
            (Purpose::Epoch(id), Err(error)) => self.fail_stream(id, error),
        }
        if let (Some(id), Err(error)) = (ordered, result) {
            self.fail_stream(id, error);
        }
    }

    /// Passes the device's answer on to the owners.
    fn answer(&mut self, flight: Flight, result: Result<(), StorageError>) {
        let Flight { ticket, owners, volatile, .. } = flight;
        if result.is_ok() && volatile && self.device.capabilities().durable_tickets {
            owners.iter().for_each(|owner| owner.transferred(Ok(())));
            if !owners.is_empty() {
                self.durables.push((ticket, owners));
            }
            return;
        }
        let durable = if volatile { Err(StorageError::DurabilityUnknown) } else { Ok(()) };
        for owner in owners {
            hand_over(&ticket, &owner);
            owner.finish(result, durable);
        }
    }

    /// The flush in place of a pre-flush is done.
    fn ready(&mut self, id: RequestId) {
        if let Some(pending) = self.queue.get_mut(id).filter(|pending| pending.stage == Stage::Flushing) {
            pending.stage = Stage::Ready;
        }
    }

    /// A queued request failed before the device accepted it.
    pub(crate) fn drop_request(&mut self, id: RequestId, error: StorageError) {
        let Some(pending) = self.queue.remove(id) else { return };
        self.elevator.remove(id);
        self.freed += 1;
        self.forget(&pending.tags);
        pending.owners.iter().for_each(|owner| owner.transferred(Err(error)));
        if pending.epoch.is_some() {
            let stream = self.streams.named(pending.stream);
            stream.queued = stream.queued.saturating_sub(1);
            self.fail_stream(pending.stream, error);
        }
    }

    /// Fails everything order-preserving of a stream that is not yet transferred, now and until `reset` (S5).
    pub(crate) fn fail_stream(&mut self, id: StreamId, error: StorageError) {
        if self.options.rules.drops(BlockMutant::FailureIgnored) {
            return;
        }
        self.abort_queued(id);
        self.abort_in_flight(id);
        let stream = self.streams.named(id);
        stream.failed.get_or_insert(error);
        stream.phase = Phase::Open;
        stream.leaving = stream.issuing;
        stream.queued = 0;
        stream.in_flight = 0;
        stream.refused = None;
        stream.closed_by = None;
        stream.bare_barriers.drain(..).for_each(|owner| owner.transferred(Err(StorageError::Aborted)));
        abort(&stream.staging.abort());
    }

    fn abort_queued(&mut self, id: StreamId) {
        let ours = self.queue.iter().filter(|request| request.stream == id && request.epoch.is_some());
        let ours: Vec<RequestId> = ours.map(|request| request.id).collect();
        for request in ours {
            self.elevator.remove(request);
            if let Some(pending) = self.queue.remove(request) {
                self.freed += 1;
                self.stats.aborted += 1;
                self.forget(&pending.tags);
                abort(&pending.owners);
            }
        }
    }

    fn abort_in_flight(&mut self, id: StreamId) {
        self.flushes.retain(|flush| flush.purpose != Purpose::Epoch(id));
        let recorder = self.recorder.clone();
        for flight in self.flights.iter_mut() {
            let ours = flight.ordered == Some(id);
            if ours {
                self.stats.aborted += 1;
                flight.ordered = None;
                abort(&flight.owners);
                flight.owners.clear();
                if let Some(recorder) = &recorder {
                    recorder.failed(&flight.tags);
                }
            }
            if ours || flight.purpose == Purpose::Epoch(id) {
                flight.purpose = Purpose::Answer;
            }
        }
    }
}

fn abort(owners: &[Completer]) {
    owners.iter().for_each(|owner| owner.transferred(Err(StorageError::Aborted)));
}

/// Hands a read's data over.
fn hand_over(ticket: &Ticket, owner: &Completer) {
    if let Some(data) = ticket.take_data() {
        owner.data(data);
    }
}
