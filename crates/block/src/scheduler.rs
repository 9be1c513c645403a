//! The epoch scheduler: how requests are issued, enter the queue, are promoted, and fail. How they leave is
//! in `dispatch`, what becomes of them in `complete`. Nothing here waits.

use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Duration;

use event_listener::EventListener;
use weir_runtime::{Handle, Instant};
use weir_storage::{
    Command, Extent, Order, Ordering, Part, Priority, Recorder, Rejected, RequestId, Storage, StorageError,
    StreamId, Tag, Ticket, Write,
};

use crate::elevator::{Elevator, Entry};
use crate::epoch::{OrderingPolicy, Phase, Streams};
use crate::error::{BlockError, Refused};
use crate::inflight::{Flight, Flights, Owners, Purpose};
use crate::merge;
use crate::mutants::BlockMutant;
use crate::options::{BlockOptions, Dispatch};
use crate::queue::{Pending, Queue, Stage, Work, store};
use crate::request::{Class, Request};
use crate::staging::Staged;
use crate::stats::Stats;

/// A flush to be dispatched.
pub(crate) struct FlushRequest {
    pub(crate) purpose: Purpose,
    pub(crate) owners: Owners,
    /// The stream that fails with it.
    pub(crate) ordered: Option<StreamId>,
    /// Writes that it waits for (E9).
    pub(crate) behind: Vec<Ticket>,
}

impl FlushRequest {
    /// A flush that nothing holds back.
    pub(crate) fn new(purpose: Purpose, owners: Owners) -> FlushRequest {
        FlushRequest { purpose, owners, ordered: None, behind: Vec::new() }
    }

    /// Whether the writes that it waits for are transferred, or have failed.
    fn may_leave(&self) -> bool {
        self.behind.iter().all(|ticket| ticket.poll_transferred().is_some())
    }
}

/// When to try again after the device refused with slots free (E5); a completion or a free slot is sooner.
#[derive(Default)]
pub(crate) struct Refusals {
    pub(crate) ordered: Option<Instant>,
    pub(crate) others: Option<Instant>,
    /// Listens for a free slot from the refusal on: nothing comes between.
    pub(crate) slot: Option<EventListener>,
}

pub(crate) struct Scheduler {
    pub(crate) device: Rc<dyn Storage>,
    pub(crate) options: BlockOptions,
    pub(crate) recorder: Option<Rc<Recorder>>,
    pub(crate) ordering_policy: OrderingPolicy,
    pub(crate) streams: Streams,
    pub(crate) queue: Queue,
    pub(crate) elevator: Box<dyn Elevator>,
    pub(crate) flushes: VecDeque<FlushRequest>,
    pub(crate) flights: Flights,
    pub(crate) refusals: Refusals,
    /// Writes transferred whose owners wait for the second phase; the dispatcher takes them over.
    pub(crate) durables: Vec<(Ticket, Owners)>,
    /// Barriers accepted that the device services in their place.
    pub(crate) barriers: u64,
    /// A flush failed, and may have lost what it covered: nothing more is acknowledged as durable (S5).
    pub(crate) poisoned: Option<StorageError>,
    /// Places in the queue that were freed since the last look.
    pub(crate) freed: usize,
    pub(crate) stats: Stats,
    /// Number of the next request, where no recorder hands them out.
    next_request: u64,
}

impl Scheduler {
    pub(crate) fn new(
        device: Rc<dyn Storage>,
        options: BlockOptions,
        elevator: Box<dyn Elevator>,
        recorder: Option<Rc<Recorder>>,
    ) -> Result<Scheduler, BlockError> {
        let ordering_policy = ordering_policy(&*device, &options)?;
        if options.queue_requests == 0 {
            return Err(BlockError::NoRoom);
        }
        Ok(Scheduler {
            device,
            options,
            recorder,
            ordering_policy,
            streams: Streams::default(),
            queue: Queue::default(),
            elevator,
            flushes: VecDeque::new(),
            flights: Flights::default(),
            refusals: Refusals::default(),
            durables: Vec::new(),
            barriers: 0,
            poisoned: None,
            freed: 0,
            stats: Stats::default(),
            next_request: 0,
        })
    }

    /// Issues a write: straight through if nothing is in its way, into the queue otherwise.
    #[inline]
    pub(crate) fn write(&mut self, request: &Request<'_>, clock: &Handle) -> Result<Ticket, Refused> {
        let stream = self.streams.named(request.stream);
        let mut order = Order::Orderless;
        if request.is_ordered() {
            if stream.failed.is_some() {
                return Err(StorageError::Aborted.into());
            }
            order = Order::Epoch(request.stream, stream.issuing);
        }
        if self.poisoned.is_some() && (request.fua || request.preflush) {
            return Err(StorageError::Poisoned.into());
        }
        let open = stream.phase == Phase::Open;
        if !self.has_slot() {
            self.free_slots();
        }
        let straight = open && self.queue.is_empty() && self.may_pass(request);
        if !straight && self.queue.writes() >= self.options.queue_requests {
            return Err(Refused::Full);
        }
        let tag = self.issue(order);
        let answer = if straight { self.pass(request, tag) } else { Err(Rejected::Busy) };
        let answer = match answer {
            Err(Rejected::Busy) => self.enqueue_write(request, tag, straight, clock.now()),
            answer => answer,
        };
        if answer.is_err() {
            self.forget(&[tag]);
        }
        Ok(answer?)
    }

    /// Whether nothing but the device itself can keep `request` from being dispatched now.
    #[inline]
    fn may_pass(&self, request: &Request<'_>) -> bool {
        let in_the_way = |part: &Part<'_>| self.flights.conflict(part.extent(), true, self.barriers);
        self.next_flush().is_none()
            && (self.ordering_policy == OrderingPolicy::Device || !request.is_ordered())
            && !(request.fua && self.lacks_fua())
            && !(request.preflush && self.lacks_preflush())
            && (self.flights.is_empty() || (self.has_slot() && !request.parts.iter().any(in_the_way)))
    }

    /// The hot path. A barrier that finds the queue empty enters, closes it, is the last to leave, hence the
    /// barrier, and opens the queue again (E4): the flag goes to the device as it came. No task, copy or
    /// allocation; and if the device has transferred the data on return, nothing to remember.
    #[inline]
    fn pass(&mut self, request: &Request<'_>, tag: Tag) -> Result<Ticket, Rejected> {
        let barrier = request.class == Class::Barrier;
        let tags = [tag];
        let write = Write {
            parts: request.parts,
            flags: request.flags(barrier),
            priority: self.priority(barrier),
            tags: if self.recorder.is_some() { &tags } else { &[] },
        };
        let ticket = match self.device.submit(Command::Write(write)) {
            Ok(ticket) => ticket,
            Err(rejected) => return Err(self.not_passed(request, rejected)),
        };
        if let Some(recorder) = &self.recorder {
            recorder.dispatched(&tags);
        }
        self.stats.direct += 1;
        let before = self.barriers;
        if barrier {
            self.streams.named(request.stream).pass_barrier();
            self.count_barrier();
        }
        if ticket.poll_transferred() == Some(Ok(())) {
            return Ok(ticket);
        }
        Ok(self.follow(request, tag, ticket, before))
    }

    #[cold]
    fn not_passed(&mut self, request: &Request<'_>, rejected: Rejected) -> Rejected {
        if let Rejected::Failed(error) = rejected
            && request.is_ordered()
        {
            self.fail_stream(request.stream, error);
        }
        rejected
    }

    /// Keeps track of a write that went straight through and is not transferred yet. An order-preserving
    /// one gets a ticket of the layer's, which fails if an earlier one of its stream does (S5).
    fn follow(&mut self, request: &Request<'_>, tag: Tag, ticket: Ticket, barriers: u64) -> Ticket {
        let mut flight = Flight::new(ticket.clone(), Purpose::Answer);
        flight.extents.extend(request.parts.iter().map(Part::extent));
        flight.writes = true;
        flight.fua = request.fua;
        flight.volatile = !request.fua;
        flight.flushes = request.preflush;
        flight.barriers = barriers;
        flight.tags.push(tag);
        let mut answer = ticket;
        if request.is_ordered() {
            let (own, owner) = Ticket::pending();
            flight.owners.push(owner);
            flight.ordered = Some(request.stream);
            self.streams.named(request.stream).in_flight += 1;
            answer = own;
        }
        self.flights.push(flight);
        answer
    }

    /// Queues a write that cannot go straight through, or that the device has just `refused`.
    #[cold]
    fn enqueue_write(
        &mut self,
        request: &Request<'_>,
        tag: Tag,
        refused: bool,
        now: Instant,
    ) -> Result<Ticket, Rejected> {
        let mut flags = request.flags(false);
        flags.fua &= !self.lacks_fua();
        flags.preflush &= !self.lacks_preflush();
        let write = Write { flags, ..Write::new(request.parts) };
        self.device.capabilities().check(&Command::Write(write), self.device.blocks())?;
        if refused && request.is_ordered() {
            self.refuse_ordered(now);
        } else if refused {
            self.refuse_others(now);
        }
        let parts = store(request.parts, &*self.device);
        let work = Work::Write { parts, flags: request.flags(false) };
        Ok(self.enqueue(request.stream, work, request.class, tag, now))
    }

    /// Issues a discard, a share or a packed write, of which the queue keeps what `keep` makes; it is orderless. It goes to
    /// the device without a tag, so no recorder could follow it.
    pub(crate) fn whole(
        &mut self,
        stream: StreamId,
        command: &Command<'_>,
        keep: impl FnOnce(&dyn Storage) -> Work,
        now: Instant,
    ) -> Result<Ticket, Refused> {
        if self.queue.writes() >= self.options.queue_requests {
            return Err(Refused::Full);
        }
        self.device.capabilities().check(command, self.device.blocks())?;
        let work = keep(&*self.device);
        if self.poisoned.is_some() && work.flags().fua {
            return Err(StorageError::Poisoned.into());
        }
        let tag = Tag { request: self.number(), order: Order::Orderless };
        Ok(self.enqueue(stream, work, Class::Orderless, tag, now))
    }

    /// Issues a read. No closed queue holds it back (E3), only an overlap with an earlier write does (S6).
    pub(crate) fn read(&mut self, extent: Extent, now: Instant) -> Result<Ticket, Refused> {
        if self.queue.reads() >= self.options.queue_requests {
            return Err(Refused::Full);
        }
        let command = Command::read(extent);
        self.device.capabilities().check(&command, self.device.blocks())?;
        let clear = self.queue.is_empty() && !self.flights.conflict(extent, false, self.barriers);
        if clear && self.has_slot() {
            match self.device.submit(command) {
                Ok(ticket) => {
                    if ticket.poll_transferred().is_none() {
                        let mut flight = Flight::new(ticket.clone(), Purpose::Answer);
                        flight.extents.push(extent);
                        flight.barriers = self.barriers;
                        self.flights.push(flight);
                    }
                    return Ok(ticket);
                }
                Err(Rejected::Busy) => self.refuse_others(now),
                Err(rejected) => return Err(rejected.into()),
            }
        }
        let tag = Tag { request: self.number(), order: Order::Orderless };
        Ok(self.enqueue(StreamId::default(), Work::Read(extent), Class::Orderless, tag, now))
    }

    /// Issues a flush; nothing holds it back.
    pub(crate) fn flush(&mut self) -> Result<Ticket, Refused> {
        self.issue_flush(Vec::new())
    }

    /// Issues a flush that leaves when every write issued before it, discards and shares among them, is transferred or has failed (E9).
    pub(crate) fn flush_behind_writes(&mut self) -> Result<Ticket, Refused> {
        let queued = self.queue.iter().filter(|request| !request.work.is_read());
        let queued = queued.flat_map(|request| request.tickets.iter().cloned());
        let behind = queued.chain(self.flights.writes().cloned()).collect();
        self.issue_flush(behind)
    }

    /// The flush that may leave first, by its place in the list.
    pub(crate) fn next_flush(&self) -> Option<usize> {
        let overtakes = self.options.rules.drops(BlockMutant::FlushOvertakes);
        self.flushes.iter().position(|flush| overtakes || flush.may_leave())
    }

    fn issue_flush(&mut self, behind: Vec<Ticket>) -> Result<Ticket, Refused> {
        if self.poisoned.is_some() {
            return Err(StorageError::Poisoned.into());
        }
        if self.flushes.len() >= self.options.queue_requests {
            return Err(Refused::Full);
        }
        let (ticket, owner) = Ticket::pending();
        self.flushes.push_back(FlushRequest { behind, ..FlushRequest::new(Purpose::Answer, [owner].into()) });
        Ok(ticket)
    }

    /// Issues a bare barrier: the stream's epoch ends here.
    pub(crate) fn submit_barrier(&mut self, id: StreamId) -> Result<Ticket, Refused> {
        let limit = self.options.queue_requests;
        let stream = self.streams.named(id);
        if stream.failed.is_some() {
            return Err(StorageError::Aborted.into());
        }
        if stream.staging.bare_barriers() >= limit {
            return Err(Refused::Full);
        }
        let (ticket, owner) = Ticket::pending();
        stream.staging.push(Staged::BareBarrier { owner, issued_in: stream.issuing });
        stream.issuing.0 += 1;
        Ok(ticket)
    }

    /// A request of any kind enters the queue, or the staging queue while that is closed.
    fn enqueue(&mut self, id: StreamId, work: Work, class: Class, tag: Tag, now: Instant) -> Ticket {
        self.stats.queued += 1;
        let held_back = !work.is_read() || self.options.rules.drops(BlockMutant::ReadHeldBack);
        let forever = work.is_read() || self.options.rules.drops(BlockMutant::OrderlessStarved);
        let wait = if forever { Duration::MAX } else { self.options.closed_wait };
        let ordered = class != Class::Orderless;
        let stream = self.streams.named(id);
        let open = stream.phase == Phase::Open && stream.staging.is_empty();
        let issued_in = stream.issuing;
        let closes = class == Class::Barrier;
        stream.issuing.0 += u64::from(closes);
        let (ticket, owner) = Ticket::pending();
        let pending = Pending {
            id: tag.request,
            stream: id,
            work,
            epoch: ordered.then_some(issued_in),
            issued_in,
            closes,
            stage: Stage::Staged,
            tags: [tag].into(),
            owners: [owner].into(),
            tickets: vec![ticket.clone()],
        };
        if open || !held_back || self.options.rules.drops(BlockMutant::EpochsMixed) {
            self.admit(pending, now);
        } else {
            stream.staging.push(Staged::Request { id: tag.request, ordered, issued_in, until: now + wait });
            self.queue.insert(pending);
        }
        ticket
    }

    /// A request enters the queue. A barrier loses its flag, and closes the queue behind it (E4).
    pub(crate) fn admit(&mut self, mut pending: Pending, now: Instant) {
        let (stream, ordered, closes) = (pending.stream, pending.epoch.is_some(), pending.closes);
        pending.stage = Stage::Ready;
        if let Work::Write { flags, .. } = &pending.work
            && flags.preflush
            && self.lacks_preflush()
        {
            pending.stage = Stage::Flushing;
            let purpose = Purpose::Preflush(pending.id);
            self.flushes.push_back(FlushRequest::new(purpose, Owners::new()));
        }
        let most = u64::from(self.device.capabilities().max_transfer_blocks);
        let rules = self.options.rules;
        let target =
            if self.options.merge { merge::target(&self.queue, &pending, most, rules) } else { None };
        let (id, one_more) = match target.and_then(|id| self.queue.get_mut(id)) {
            Some(queued) => {
                self.stats.merged += 1;
                (queued.id, merge::absorb(queued, pending, rules))
            }
            None => {
                let id = pending.id;
                self.elevator.insert(entry(&pending, now));
                self.queue.insert(pending);
                (id, ordered)
            }
        };
        let stream = self.streams.named(stream);
        stream.queued += usize::from(one_more);
        if closes {
            stream.close(Some(id));
        }
    }

    /// Why nothing order-preserving of a stream goes on, or nothing becomes durable, if something has failed (S5).
    pub(crate) fn failure(&mut self, id: StreamId) -> Option<StorageError> {
        self.streams.named(id).failed.or(self.poisoned)
    }

    /// Forgets the failure of a stream: its next request begins a new epoch.
    pub(crate) fn reset(&mut self, id: StreamId) {
        self.streams.named(id).failed = None;
    }

    /// Whether something was left for the dispatcher, or for tasks that wait for space.
    #[inline]
    pub(crate) fn has_work(&self) -> bool {
        self.freed > 0 || self.flights.has_fresh() || !self.queue.is_empty()
    }

    fn issue(&mut self, order: Order) -> Tag {
        let tag = Tag { request: self.number(), order };
        if let Some(recorder) = &self.recorder {
            recorder.issued(tag);
        }
        tag
    }

    fn number(&mut self) -> RequestId {
        if let Some(recorder) = &self.recorder {
            return recorder.next_request();
        }
        self.next_request += 1;
        RequestId(self.next_request)
    }

    /// Tells the recorder that no task waits for these requests any more.
    pub(crate) fn forget(&self, tags: &[Tag]) {
        if let Some(recorder) = &self.recorder {
            recorder.failed(tags);
        }
    }

    /// The host counts the device's slots (E5).
    pub(crate) fn has_slot(&self) -> bool {
        self.flights.len() < self.device.capabilities().queue_depth as usize
    }

    pub(crate) fn lacks_fua(&self) -> bool {
        !self.device.capabilities().fua
    }

    pub(crate) fn lacks_preflush(&self) -> bool {
        !self.device.capabilities().preflush
    }

    /// The priority of a write; a barrier is ordered where the device honours that (E5). A prefix device
    /// orders by receipt.
    pub(crate) fn priority(&self, barrier: bool) -> Priority {
        if barrier && self.orders_service() { Priority::Ordered } else { Priority::Simple }
    }

    fn orders_service(&self) -> bool {
        self.device.capabilities().ordered_service && !self.options.rules.drops(BlockMutant::SimplePriority)
    }

    /// A barrier write was accepted.
    pub(crate) fn count_barrier(&mut self) {
        self.stats.barrier_writes += 1;
        self.barriers += u64::from(self.orders_service());
    }
}

/// Who puts epochs in order on this device, with these options.
fn ordering_policy(device: &dyn Storage, options: &BlockOptions) -> Result<OrderingPolicy, BlockError> {
    let capabilities = device.capabilities();
    match (options.dispatch, capabilities.ordering) {
        (Dispatch::Legacy, _) => Ok(OrderingPolicy::Flush),
        (Dispatch::OrderPreserving, Ordering::Legacy) => Err(BlockError::NoBarriers),
        _ if options.rules.drops(BlockMutant::WaitsForTransfer) => Ok(OrderingPolicy::Transfer),
        (Dispatch::OrderPreserving, Ordering::Prefix) => Ok(OrderingPolicy::Device),
        (Dispatch::OrderPreserving, Ordering::Barrier) if capabilities.ordered_service => {
            Ok(OrderingPolicy::Device)
        }
        (Dispatch::OrderPreserving, Ordering::Barrier) => Ok(OrderingPolicy::Transfer),
    }
}

fn entry(pending: &Pending, now: Instant) -> Entry {
    Entry {
        request: pending.id,
        stream: pending.stream,
        start: pending.work.start(),
        blocks: pending.work.blocks(),
        read: pending.work.is_read(),
        since: now,
    }
}
