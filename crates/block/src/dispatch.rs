//! How queued requests leave: the next command goes as soon as the last was accepted (E5), and the last
//! order-preserving one of a closed epoch goes as its barrier (E4).

use weir_runtime::Instant;
use weir_storage::{Command, Part, Priority, Rejected, RequestId, Rules, StorageError, Tag, Ticket, Write};

use crate::epoch::{OrderingPolicy, Phase, Streams};
use crate::inflight::{Flight, Flights, Owners, Purpose};
use crate::mutants::BlockMutant;
use crate::queue::{Pending, Queue, Stage, StoredPart, StoredWrite, Work};
use crate::scheduler::{FlushRequest, Refusals, Scheduler};
use crate::staging::Staged;

impl Scheduler {
    /// Moves everything on that can move now.
    pub(crate) fn pump(&mut self, now: Instant) {
        self.retire();
        self.refusals.expire(now);
        while self.admit_overdue(now)
            | self.advance_streams(now)
            | self.dispatch_flushes(now)
            | self.dispatch_requests(now)
        {}
        if self.waits() {
            self.flights.watch_all();
        }
    }

    /// Whether something waits for a slot, for a command in flight, or for time to pass.
    pub(crate) fn waits(&self) -> bool {
        !self.queue.is_empty()
            || !self.flushes.is_empty()
            || self.streams.iter().any(|stream| stream.phase != Phase::Open)
    }

    /// Whether the dispatcher has something new to wait for.
    pub(crate) fn has_news(&self) -> bool {
        self.waits() || self.flights.has_fresh() || !self.durables.is_empty()
    }

    /// The next moment at which a timer lets a request go on.
    pub(crate) fn next_deadline(&self, now: Instant) -> Option<Instant> {
        let overdue = self.streams.iter().filter_map(|stream| stream.staging.next_overdue(now));
        let deadlines = overdue.chain(self.refusals.ordered).chain(self.refusals.others);
        deadlines.filter(|deadline| *deadline > now).min()
    }

    /// Lets orderless requests into a closed queue once they have waited long enough (E3), unless they
    /// would pass an overlap that stays in the staging queue (S6).
    fn admit_overdue(&mut self, now: Instant) -> bool {
        let mut admitted = false;
        for index in 0..self.streams.count() {
            for id in self.streams.at(index).staging.overdue(now) {
                let blocked = self.queue.get(id).is_none_or(|request| self.queue.blocks(request));
                if !blocked && let Some(pending) = self.queue.remove(id) {
                    self.streams.at(index).staging.remove(id);
                    self.admit(pending, now);
                    admitted = true;
                }
            }
        }
        admitted
    }

    /// Takes every stream to its next phase, if it is due. See the head of `epoch`.
    fn advance_streams(&mut self, now: Instant) -> bool {
        let mut advanced = false;
        for index in 0..self.streams.count() {
            let policy = self.ordering_policy;
            let stream = self.streams.at(index);
            let settled = stream.in_flight == 0;
            advanced |= match (stream.phase, policy) {
                (Phase::Open, _) => self.admit_staged(index, now),
                (Phase::Closed, OrderingPolicy::Flush) if stream.queued == 0 => {
                    self.settle(index);
                    true
                }
                (Phase::Closed, OrderingPolicy::Transfer) if stream.queued == 0 && !settled => false,
                (Phase::Closed, _) if stream.queued == 0 => self.dispatch_bare_barrier(index, now),
                (Phase::Settling, OrderingPolicy::Flush) if settled => {
                    self.flush_epoch(index);
                    true
                }
                (Phase::Settling, _) if settled => {
                    stream.open();
                    true
                }
                _ => false,
            };
        }
        advanced
    }

    /// Fills an open queue from the staging queue, in issue order, until a barrier closes it.
    fn admit_staged(&mut self, index: usize, now: Instant) -> bool {
        let mut admitted = false;
        while self.streams.at(index).phase == Phase::Open {
            let stream = self.streams.at(index);
            match stream.staging.pop() {
                None => break,
                Some(Staged::BareBarrier { owner, .. }) => {
                    stream.bare_barriers.push(owner);
                    stream.close(None);
                    self.freed += 1;
                }
                Some(Staged::Request { id, .. }) => {
                    if let Some(pending) = self.queue.remove(id) {
                        self.admit(pending, now);
                    }
                }
            }
            admitted = true;
        }
        admitted
    }

    /// The host keeps order: from here it waits for the epoch's transfer.
    fn settle(&mut self, index: usize) {
        self.streams.at(index).phase = Phase::Settling;
        self.stats.transfer_waits += 1;
    }

    /// The epoch is transferred; the flush makes it durable before the next one goes (E6).
    fn flush_epoch(&mut self, index: usize) {
        let stream = self.streams.at(index);
        if self.options.rules.drops(BlockMutant::FlushForgotten) {
            stream.bare_barriers.drain(..).for_each(|owner| owner.finish(Ok(()), Ok(())));
            stream.open();
            return;
        }
        stream.phase = Phase::Flushing;
        let purpose = Purpose::Epoch(stream.id);
        self.flushes.push_back(FlushRequest::new(purpose, Owners::new()));
    }

    /// A bare barrier with nothing order-preserving queued becomes the device's barrier command (E4).
    fn dispatch_bare_barrier(&mut self, index: usize, now: Instant) -> bool {
        if !self.has_slot() || self.refusals.ordered.is_some() {
            return false;
        }
        let id = self.streams.at(index).id;
        match self.device.submit(Command::Barrier { stream: id }) {
            Ok(ticket) => {
                self.stats.bare_barriers += 1;
                let mut flight = Flight::new(ticket, Purpose::Answer);
                flight.owners = std::mem::take(&mut self.streams.at(index).bare_barriers).into();
                flight.ordered = Some(id);
                self.track(flight);
                self.leave(index);
            }
            Err(Rejected::Busy) => self.refuse_ordered(now),
            Err(Rejected::Failed(error)) => self.fail_stream(id, error),
            Err(_) => self.fail_stream(id, StorageError::Aborted),
        }
        true
    }

    /// The epoch's last command was accepted.
    fn leave(&mut self, index: usize) {
        match self.ordering_policy {
            OrderingPolicy::Device => self.streams.at(index).open(),
            OrderingPolicy::Transfer | OrderingPolicy::Flush => self.settle(index),
        }
    }

    fn dispatch_flushes(&mut self, now: Instant) -> bool {
        let mut dispatched = false;
        while let Some(next) = self.next_flush()
            && self.has_slot()
            && self.refusals.others.is_none()
        {
            let answer = self.device.submit(Command::Flush);
            if answer.as_ref().err() == Some(&Rejected::Busy) {
                self.refuse_others(now);
                break;
            }
            let Some(FlushRequest { purpose, owners, ordered, .. }) = self.flushes.remove(next) else {
                break;
            };
            let ticket = answer.unwrap_or_else(failed_ticket);
            self.stats.flushes += 1;
            self.freed += 1;
            dispatched = true;
            let mut flight = Flight::new(ticket, purpose);
            flight.owners = owners;
            flight.ordered = ordered;
            flight.flushes = true;
            flight.fua = true;
            self.track(flight);
        }
        dispatched
    }

    fn dispatch_requests(&mut self, now: Instant) -> bool {
        let mut dispatched = false;
        while self.has_slot()
            && !self.queue.is_empty()
            && let Some(id) = self.pick(now)
        {
            dispatched = true;
            self.dispatch(id, now);
        }
        dispatched
    }

    /// The elevator's choice among the requests that may leave now.
    fn pick(&mut self, now: Instant) -> Option<RequestId> {
        let Scheduler {
            queue, streams, flights, refusals, options, ordering_policy, barriers, elevator, ..
        } = self;
        let rules = options.rules;
        let check = DispatchCheck {
            queue,
            streams,
            flights,
            refusals,
            ordering_policy: *ordering_policy,
            barriers: *barriers,
            rules,
        };
        if rules.drops(BlockMutant::ElevatorIgnored) {
            return check.queue.iter().map(|request| request.id).find(|id| check.may_leave(*id));
        }
        elevator.pick(now, &|id| check.may_leave(id))
    }

    /// Hands one request to the device. Whether the barrier is reassigned to it is decided here, and holds only if
    /// the device accepts: by the next attempt it may no longer be the last (E4).
    fn dispatch(&mut self, id: RequestId, now: Instant) {
        let Some(pending) = self.queue.get(id) else { return };
        let stream = self.streams.get(pending.stream);
        let mut barrier = pending.epoch.is_some()
            && self.ordering_policy != OrderingPolicy::Flush
            && stream.is_some_and(|stream| stream.last_is_leaving());
        if self.options.rules.drops(BlockMutant::FlagStays) {
            barrier = stream.is_some_and(|stream| stream.closed_by == Some(id));
        }
        match self.submit(pending, barrier) {
            Ok(ticket) => self.accepted(id, ticket, barrier),
            Err(Rejected::Busy) => self.refused(id, now),
            Err(Rejected::Failed(error)) => self.drop_request(id, error),
            Err(_) => self.drop_request(id, StorageError::Aborted),
        }
    }

    fn submit(&self, pending: &Pending, barrier: bool) -> Result<Ticket, Rejected> {
        match &pending.work {
            Work::Read(extent) => self.device.submit(Command::read(*extent)),
            Work::Discard(extents) => self.device.submit(Command::Discard(extents)),
            Work::Share(pairs) => self.device.submit(Command::Share(pairs)),
            Work::Packed(writes) => {
                let parts: Vec<Vec<Part<'_>>> =
                    writes.iter().map(|write| write.parts.iter().map(StoredPart::part).collect()).collect();
                let with_parts = parts.iter().zip(writes);
                let writes: Vec<Write<'_>> = with_parts
                    .map(|(parts, StoredWrite { flags, .. })| Write { flags: *flags, ..Write::new(parts) })
                    .collect();
                self.device.submit(Command::Packed(&writes))
            }
            Work::Write { parts, flags } => {
                let parts: Vec<Part<'_>> = parts.iter().map(StoredPart::part).collect();
                let mut flags = *flags;
                flags.barrier = barrier;
                flags.fua &= !self.lacks_fua();
                flags.preflush &= !self.lacks_preflush();
                let tags: &[Tag] = if self.recorder.is_some() { &pending.tags } else { &[] };
                let priority: Priority = self.priority(barrier);
                self.device.submit(Command::Write(Write { parts: &parts, flags, priority, tags }))
            }
        }
    }

    fn accepted(&mut self, id: RequestId, ticket: Ticket, barrier: bool) {
        let Some(pending) = self.queue.remove(id) else { return };
        self.elevator.remove(id);
        self.freed += 1;
        if let Some(recorder) = self.recorder.as_ref().filter(|_| matches!(pending.work, Work::Write { .. }))
        {
            recorder.dispatched(&pending.tags);
        }
        let flags = pending.work.flags();
        let emulated = flags.fua && self.lacks_fua();
        let purpose = if emulated { Purpose::Fua } else { Purpose::Answer };
        let mut flight = Flight::new(ticket, purpose);
        flight.fua = flags.fua;
        flight.volatile = pending.work.is_volatile();
        flight.flushes = flags.preflush && !self.lacks_preflush();
        flight.extents = pending.work.extents();
        flight.writes = !pending.work.is_read();
        flight.barriers = self.barriers;
        flight.tags = pending.tags;
        flight.owners = pending.owners;
        if barrier {
            self.count_barrier();
        }
        if pending.epoch.is_none() {
            return self.track(flight);
        }
        flight.ordered = Some(pending.stream);
        let index = self.streams.index(pending.stream);
        let stream = self.streams.at(index);
        stream.queued -= 1;
        stream.refused = stream.refused.filter(|refused| *refused != id);
        let last = stream.phase == Phase::Closed && stream.queued == 0;
        if barrier {
            flight.owners.extend(stream.bare_barriers.drain(..));
            self.stats.reassigned += u64::from(stream.closed_by != Some(id));
        }
        self.track(flight);
        if last {
            self.leave(index);
        }
    }

    /// The device is busy. Order-preserving requests wait behind the refused one (E5), whose flag is not
    /// lost: it is decided anew.
    fn refused(&mut self, id: RequestId, now: Instant) {
        let Some(pending) = self.queue.get(id) else { return };
        if pending.epoch.is_none() {
            return self.refuse_others(now);
        }
        self.streams.named(pending.stream).refused = Some(id);
        self.refuse_ordered(now);
    }

    pub(crate) fn refuse_ordered(&mut self, now: Instant) {
        self.stats.busy += 1;
        self.refusals.ordered = Some(now + self.options.busy_retry);
        self.refusals.listen(&*self.device);
    }

    pub(crate) fn refuse_others(&mut self, now: Instant) {
        self.stats.busy += 1;
        self.refusals.others = Some(now + self.options.busy_retry);
        self.refusals.listen(&*self.device);
    }

    /// Keeps track of an accepted command, or answers at once if it is transferred already.
    fn track(&mut self, flight: Flight) {
        if let Some(id) = flight.ordered {
            self.streams.named(id).in_flight += 1;
        }
        match flight.ticket.poll_transferred() {
            Some(result) => self.settled(flight, result),
            None => self.flights.push(flight),
        }
    }
}

/// A ticket for a command that the device refused for good.
fn failed_ticket(rejected: Rejected) -> Ticket {
    Ticket::failed(match rejected {
        Rejected::Failed(error) => error,
        Rejected::Busy | Rejected::Unsupported(_) | Rejected::Invalid(_) => StorageError::Aborted,
    })
}

/// What decides whether a queued request may leave now.
struct DispatchCheck<'a> {
    queue: &'a Queue,
    streams: &'a Streams,
    flights: &'a Flights,
    refusals: &'a Refusals,
    ordering_policy: OrderingPolicy,
    barriers: u64,
    rules: Rules<BlockMutant>,
}

impl DispatchCheck<'_> {
    fn may_leave(&self, id: RequestId) -> bool {
        let Some(pending) = self.queue.get(id) else { return false };
        let in_turn = if pending.epoch.is_some() {
            self.ordered_may_leave(pending)
        } else {
            self.refusals.others.is_none()
        };
        in_turn && pending.stage == Stage::Ready && !self.overlaps(pending)
    }

    fn ordered_may_leave(&self, pending: &Pending) -> bool {
        let Some(stream) = self.streams.get(pending.stream) else { return false };
        let behind_refused = stream.refused.is_some_and(|refused| refused != pending.id);
        let waits = self.ordering_policy == OrderingPolicy::Transfer
            && stream.last_is_leaving()
            && stream.in_flight > 0;
        let overtakes = self.rules.drops(BlockMutant::RefusedOvertaken) && stream.refused != Some(pending.id);
        (self.refusals.ordered.is_none() && !behind_refused || overtakes)
            && (!waits || self.rules.drops(BlockMutant::BarrierRunsAhead))
    }

    /// Whether it would pass, or meet in flight, a request that it overlaps (S6).
    fn overlaps(&self, pending: &Pending) -> bool {
        let writes = !pending.work.is_read();
        !self.rules.drops(BlockMutant::OverlapsReordered)
            && (self.queue.blocks(pending)
                || pending.work.any(|extent| self.flights.conflict(extent, writes, self.barriers)))
    }
}
