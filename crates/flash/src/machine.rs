//! The device as a state machine: commands come in, time goes on, answers go out. It knows no executor; the
//! [`FlashDevice`](crate::FlashDevice) drives it.
//!
//! # The way of a write
//!
//! It waits in the command queue until the controller decodes it and the cache has room; the link carries its
//! data; it enters the cache, gets its version and its epoch, and is answered. Decoding, carrying and writing
//! back overlap between commands. From the cache it goes to flash, in whole pages where possible, and leaves
//! the cache when it is committed there (see `mechanism`).

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::io;
use std::rc::Rc;

use weir_runtime::{Buffer, Random};
use weir_storage::{BLOCK_BYTES, CommandKind, Completer, Extent, Recorder, StorageError, Tag};

use crate::array::Work;
use crate::cache::{Cache, Incoming, Owner};
use crate::ftl::{Ftl, Outcome};
use crate::geometry::{Page, Slot};
use crate::medium::{Content, Medium, Payload};
use crate::mutants::{FlashMutant, FlashRules};
use crate::options::{FlashOptions, Keep};
use crate::probe::{Busy, Probe, Subject};
use crate::profile::{Host, Mechanism, OrderedService, Profile, SimpleService};
use crate::queue::{Blocks, Kind, Queue, Queued};
use crate::recovery::{Recovered, recover};
use crate::stats::Stats;

/// A write whose blocks are followed until they are committed.
struct Request {
    tags: Vec<Tag>,
    /// Blocks that are not committed yet.
    left: usize,
    /// A discard, answered when it is committed.
    answer: Option<Completer>,
}

/// Somebody waits until everything up to a version is committed: a flush, or a FUA write.
struct Waiter {
    target: u64,
    left: usize,
    fua: bool,
    /// Nothing is serviced before it is answered.
    held: bool,
    /// It had to wait for something.
    waited: bool,
    since: u64,
    completer: Completer,
}

/// A read that waits for dies.
struct Reading {
    pages_left: u32,
    extent: Extent,
    buffer: Buffer,
    completer: Completer,
}

/// Something that happens later.
enum Event {
    ReadCarried { buffer: Buffer, completer: Completer },
    Flushed { since: u64, completer: Completer },
    Persisted { completer: Completer, held: bool },
}

/// Later than everything that happens.
const NEVER: u64 = u64::MAX;

/// What follows a power cut.
enum Phase {
    /// The firmware reads what is on flash, until then.
    Scanning(u64),
    /// The firmware writes the checkpoint that ends recovery.
    Sealing,
    Serving,
}

pub(crate) struct Machine {
    host: Host,
    mechanism: Mechanism,
    penalty: f64,
    flush_ns: u64,
    flush_journal_ns: u64,
    destage_over: usize,
    keep: Keep,
    rules: FlashRules,
    recorder: Option<Rc<Recorder>>,
    probe: Option<Rc<dyn Probe>>,
    queue: Queue,
    cache: Cache,
    pub(crate) ftl: Ftl,
    phase: Phase,
    /// Commands that are decoded and carried, in the order in which they will be done.
    in_service: VecDeque<(u64, Queued)>,
    controller_free: u64,
    link_free: u64,
    flush_free: u64,
    events: BinaryHeap<Reverse<(u64, u64)>>,
    event_slots: VecDeque<Option<Event>>,
    first_event: u64,
    readings: Vec<Option<Reading>>,
    requests: Vec<Request>,
    unused_requests: Vec<u32>,
    waiters: Vec<Waiter>,
    /// Everything up to this version is to be written back at once.
    demand: u64,
    next_version: u64,
    epoch: u64,
    pub(crate) in_flight: u32,
    /// Time has come so far.
    seen: u64,
    /// The next command waits for room in the cache.
    stalled: bool,
    /// FUA writes and discards that are serviced and not answered. An ordered command waits for them (S1), and
    /// so does a barrier: they are transferred, and belong to an epoch, when they are answered (S2).
    lingering: u32,
    /// One of them is ordered or a barrier: everything waits for it.
    held: bool,
    /// A slot became free since the last look.
    pub(crate) freed: bool,
    outcome: Outcome,
    stats: Stats,
}

impl Machine {
    /// The device on `medium`, switched on at time `now`: a used one recovers first.
    pub(crate) fn new(
        profile: &Profile,
        options: &FlashOptions,
        medium: Medium,
        fresh: bool,
        random: Random,
        now: u64,
    ) -> Machine {
        let rules = options.rules;
        let mechanism = profile.barrier.mechanism;
        let recovered = if fresh { Recovered::nothing(profile) } else { recover(&medium, profile, rules) };
        let capacity =
            (profile.cache.bytes / BLOCK_BYTES as u64).max(u64::from(profile.host.max_transfer_blocks));
        let mut cache = Cache::new(capacity as usize, mechanism, rules);
        for Content { lpn, version, payload } in recovered.dump {
            // What was written back after an older version, but committed before it, is newer on flash.
            let place = recovered.start.map.get(lpn as usize).copied().unwrap_or(Slot::NONE);
            if place != Slot::NONE && medium.version(place) >= version {
                continue;
            }
            cache.insert(Incoming { lpn, version, payload, epoch: 0, owner: None });
        }
        let ftl = Ftl::new(profile, options, medium, recovered.start);
        let unsealed = rules.drops(FlashMutant::RecoveryUnsealed);
        let phase = if fresh || unsealed { Phase::Serving } else { Phase::Scanning(now + recovered.time_ns) };
        Machine {
            host: profile.host,
            mechanism,
            penalty: profile.barrier.penalty,
            flush_ns: profile.flush.fixed_ns,
            flush_journal_ns: u64::from(profile.flush.journal_pages) * ftl.array.page_ns(),
            destage_over: (capacity as f64 * profile.cache.destage_share) as usize,
            keep: options.keep.clone(),
            rules,
            recorder: options.recorder.clone(),
            probe: options.probe.clone(),
            queue: Queue::new(profile.host.simple_service, random),
            cache,
            ftl,
            phase,
            in_service: VecDeque::new(),
            controller_free: now,
            link_free: now,
            flush_free: now,
            events: BinaryHeap::new(),
            event_slots: VecDeque::new(),
            first_event: 0,
            readings: Vec::new(),
            requests: Vec::new(),
            unused_requests: Vec::new(),
            waiters: Vec::new(),
            demand: 0,
            next_version: recovered.next_version,
            epoch: 0,
            in_flight: 0,
            seen: now,
            stalled: false,
            lingering: 0,
            held: false,
            freed: false,
            outcome: Outcome::default(),
            stats: Stats::default(),
        }
    }

    /// Fills the first `blocks` blocks with versions of their own, in no time.
    pub(crate) fn precondition(&mut self, blocks: u64) {
        let first = self.next_version;
        let filled = self.ftl.fill(blocks as u32, first);
        self.next_version += u64::from(filled);
    }

    /// What is kept of one block of data.
    pub(crate) fn payload(&self, bytes: &[u8]) -> io::Result<Payload> {
        Ok(match &self.keep {
            Keep::Bytes => Payload::Bytes(Rc::from(bytes)),
            Keep::File(backing) => Payload::Filed(backing.put(bytes)?),
            Keep::Versions => Payload::Version,
        })
    }

    pub(crate) fn follows_requests(&self) -> bool {
        self.recorder.is_some()
    }

    pub(crate) fn stats(&self) -> Stats {
        let Stats {
            programmed_pages, moved_blocks, moved_pages, erases, checkpoints, checkpoint_pages, ..
        } = self.ftl.stats;
        Stats {
            programmed_pages,
            moved_blocks,
            moved_pages,
            erases,
            checkpoints,
            checkpoint_pages,
            ..self.stats
        }
    }

    /// Whether recovery is over.
    pub(crate) fn is_serving(&self) -> bool {
        matches!(self.phase, Phase::Serving)
    }

    pub(crate) fn is_full(&self) -> bool {
        self.in_flight >= self.host.queue_depth
    }

    /// Takes a command into the queue. The queue must not be full.
    pub(crate) fn accept(&mut self, mut command: Queued, head_of_queue: bool, now: u64) {
        self.in_flight += 1;
        if let Some(probe) = &self.probe {
            probe.queue_depth(now, self.in_flight);
        }
        command.ordered &= !self.rules.drops(FlashMutant::PriorityIgnored);
        self.queue.push(command, head_of_queue);
        self.make_progress(now);
    }

    /// When something happens next.
    pub(crate) fn next_event(&self) -> Option<u64> {
        let flash = self.ftl.array.next().unwrap_or(NEVER);
        let served = self.in_service.front().map_or(NEVER, |(done, _)| *done);
        let event = self.events.peek().map_or(NEVER, |Reverse((at, _))| *at);
        let controller = match (self.host.simple_service, &self.phase) {
            (_, Phase::Scanning(until)) => *until,
            // A controller that is free already waits for something else: room in the cache.
            (SimpleService::Any, Phase::Serving)
                if !self.queue.is_empty() && self.controller_free > self.seen =>
            {
                self.controller_free
            }
            _ => NEVER,
        };
        let next = flash.min(served).min(event).min(controller);
        (next != NEVER).then_some(next)
    }

    /// Lets one thing happen that is due by `now`; false if there is none.
    pub(crate) fn step(&mut self, now: u64) -> bool {
        let due = |at: Option<u64>| at.is_some_and(|at| at <= now);
        if due(self.in_service.front().map(|(done, _)| *done)) {
            if let Some((done, command)) = self.in_service.pop_front() {
                self.serve(command, done);
            }
        } else if due(self.ftl.array.next()) {
            self.advance_flash(now);
        } else if due(self.events.peek().map(|Reverse((at, _))| *at)) {
            self.happen();
        } else if !self.advance_recovery(now) && self.seen >= now {
            return false;
        }
        self.make_progress(now);
        true
    }

    /// Starts whatever can start.
    fn make_progress(&mut self, now: u64) {
        self.seen = now;
        self.start_commands(now);
        self.write_back(now);
        if self.is_serving() {
            self.ftl.checkpoint_if_due(self.next_version, now);
        }
        self.ftl.array.start_deferred(now);
    }
}

/// Recovery, in time.
impl Machine {
    fn advance_recovery(&mut self, now: u64) -> bool {
        match self.phase {
            Phase::Scanning(until) if until <= now => {
                self.ftl.checkpoint(self.next_version, now);
                self.phase = Phase::Sealing;
                true
            }
            Phase::Sealing if !self.ftl.is_checkpointing() => {
                self.phase = Phase::Serving;
                self.ftl.medium.dump = None;
                self.controller_free = self.controller_free.max(now);
                self.ftl.clean_idle(now);
                true
            }
            Phase::Scanning(_) | Phase::Sealing | Phase::Serving => false,
        }
    }

    /// What is on flash if the power goes at `now`, or later but before anything happens: in between, cells begin
    /// to change. Pages being programmed, and blocks being erased, are left as they were, torn, or done, by
    /// chance.
    pub(crate) fn cut(&self, now: u64, random: &mut Random) -> Medium {
        let mut medium = self.ftl.medium.clone();
        let left = self.next_event().map_or(0, |next| next.saturating_sub(now));
        let at = now + random.below(left.max(1));
        for doing in self.ftl.array.doing().filter(|doing| doing.cells_from < at) {
            match &doing.work {
                Work::Program(program) => match random.below(3) {
                    0 => {}
                    1 if self.rules.drops(FlashMutant::TornAccepted) => {
                        let garbled = program.contents.iter().cloned().map(garble).collect::<Vec<_>>();
                        medium.program(program.page, program.sequence, program.tag, &garbled);
                    }
                    1 => medium.tear(program.page),
                    _ => medium.program(program.page, program.sequence, program.tag, &program.contents),
                },
                Work::Erase(block) => match random.below(3) {
                    0 => {}
                    1 => medium.spoil(*block),
                    _ => medium.erase(*block),
                },
                Work::Read { .. } | Work::System => {}
            }
        }
        if self.mechanism == Mechanism::PowerLossProtection && self.is_serving() {
            medium.dump = Some(Rc::new(self.cache.all()));
        }
        medium
    }
}

/// A torn page that recovery takes for a good one.
fn garble(content: Content) -> Content {
    let payload = match content.payload {
        Payload::Bytes(bytes) => Payload::Bytes(bytes.iter().map(|byte| byte ^ 0x5a).collect()),
        payload => payload,
    };
    Content { payload, ..content }
}

/// Service.
impl Machine {
    /// Decodes commands, and lets the link carry their data, as far as the cache has room.
    fn start_commands(&mut self, now: u64) {
        while self.is_serving() && !self.held {
            if self.host.simple_service == SimpleService::Any && self.controller_free > now {
                return;
            }
            let Some(place) = self.queue.next() else { return };
            let Some(command) = self.queue.get(place) else { return };
            if (command.ordered || command.is_barrier()) && self.lingering > 0 {
                return;
            }
            let blocks = command.cache_blocks();
            self.stalled = blocks > 0 && !self.cache.has_room(blocks);
            if self.stalled {
                return;
            }
            let Some(command) = self.queue.take(place) else { return };
            self.cache.reserved += blocks;
            if command.lingers() {
                self.lingering += 1;
                self.held = command.ordered || command.is_barrier();
            }
            let done = self.schedule(&command, now);
            if matches!(command.kind, Kind::Flush) {
                self.serve(command, done);
            } else {
                self.in_service.push_back((done, command));
            }
        }
    }

    /// When a command will have been decoded, and its data carried.
    fn schedule(&mut self, command: &Queued, now: u64) -> u64 {
        // A flush does not wait for the way of the writes: all its time is in the profile's `flush`.
        if matches!(command.kind, Kind::Flush) {
            return now;
        }
        let (kind, bytes, barrier) = match &command.kind {
            Kind::Write { blocks, barrier, .. } => (CommandKind::Write, blocks.len() * BLOCK_BYTES, *barrier),
            Kind::Barrier => (CommandKind::Barrier, 0, true),
            Kind::Read(_) => (CommandKind::Read, 0, false),
            Kind::Flush => (CommandKind::Flush, 0, false),
            Kind::Discard(_) => (CommandKind::Discard, 0, false),
        };
        let carry = self.carry_ns(bytes);
        let serial = command.ordered && self.host.ordered_service == OrderedService::Serial;
        let mut from = now.max(self.controller_free);
        if serial {
            from = from.max(self.link_free);
        }
        let mut decoded = from + self.host.command_ns;
        if barrier {
            decoded += (self.penalty * self.host.command_ns.max(carry) as f64) as u64;
        }
        let carry_from = decoded.max(if bytes > 0 { self.link_free } else { 0 });
        let carried = carry_from + carry;
        self.controller_free = if serial { carried } else { decoded };
        if bytes > 0 {
            self.link_free = carried;
        }
        if let Some(probe) = &self.probe {
            let subject = Subject { epoch: Some(self.epoch_to_come()), ..command.subject() };
            probe.busy(Busy::Controller(kind), subject, from, decoded);
            if bytes > 0 {
                probe.busy(Busy::Link(kind), subject, carry_from, carried);
            }
        }
        // What enters the cache enters it in order.
        let last = self.in_service.back().map_or(0, |(done, _)| *done);
        (carried + self.host.latency_ns).max(last)
    }

    fn carry_ns(&self, bytes: usize) -> u64 {
        let rate = self.host.link_bytes_per_second.max(1);
        match (bytes as u64).checked_mul(1_000_000_000) {
            Some(scaled) => scaled / rate,
            None => (bytes as u128 * 1_000_000_000 / u128::from(rate)) as u64,
        }
    }

    /// A command has been decoded, and its data is here.
    fn serve(&mut self, command: Queued, now: u64) {
        let held = command.ordered || command.is_barrier();
        let Queued { kind, completer, .. } = command;
        match kind {
            Kind::Write { blocks, barrier, fua, tags } => {
                let owner = self.follow(tags, blocks.len(), None);
                self.cache.reserved -= blocks.len();
                match blocks {
                    Blocks::One(lpn, payload) => self.enter(lpn, payload, owner),
                    Blocks::Many(blocks) => {
                        blocks.into_iter().for_each(|(lpn, payload)| self.enter(lpn, payload, owner));
                    }
                }
                if barrier {
                    self.end_epoch();
                }
                self.transferred(owner);
                if fua {
                    self.wait(true, held, completer, now);
                } else {
                    self.answer(&completer, Ok(()), Err(StorageError::DurabilityUnknown), now);
                }
            }
            Kind::Barrier => {
                self.end_epoch();
                self.answer(&completer, Ok(()), Ok(()), now);
            }
            Kind::Flush => self.wait(false, false, completer, now),
            Kind::Discard(extents) => {
                self.cache.reserved -= extents.len();
                let owner = self.follow(Vec::new(), extents.len(), Some(completer));
                for extent in extents {
                    self.enter(extent.start.0 as u32, Payload::Discard(extent.blocks), owner);
                }
                self.demand = self.next_version - 1;
            }
            Kind::Read(extent) => self.read(extent, completer, now),
        }
        if let Some(probe) = &self.probe {
            probe.cached(now, self.cache.len() as u64);
        }
    }

    /// The epoch of a command that is serviced behind those in service.
    fn epoch_to_come(&self) -> u64 {
        self.epoch + self.in_service.iter().filter(|(_, command)| command.is_barrier()).count() as u64
    }

    fn end_epoch(&mut self) {
        self.stats.barriers += 1;
        self.epoch += u64::from(!self.rules.drops(FlashMutant::BarrierIgnored));
    }

    /// A block enters the cache.
    fn enter(&mut self, lpn: u32, payload: Payload, owner: Owner) {
        let version = self.next_version;
        self.next_version += 1;
        self.stats.written_blocks += 1;
        let coalesced = self.cache.insert(Incoming { lpn, version, payload, epoch: self.epoch, owner });
        self.stats.coalesced_blocks += u64::from(coalesced);
    }

    /// Remembers a request, where somebody wants to know what becomes of it.
    fn follow(&mut self, tags: Vec<Tag>, left: usize, answer: Option<Completer>) -> Owner {
        if tags.is_empty() && answer.is_none() {
            return None;
        }
        let request = Request { tags, left, answer };
        Some(match self.unused_requests.pop() {
            Some(id) => {
                self.requests[id as usize] = request;
                id
            }
            None => {
                self.requests.push(request);
                (self.requests.len() - 1) as u32
            }
        })
    }

    fn transferred(&self, owner: Owner) {
        let (Some(recorder), Some(owner)) = (&self.recorder, owner) else { return };
        let tags = &self.requests[owner as usize].tags;
        recorder.transferred(tags);
        if self.mechanism == Mechanism::PowerLossProtection {
            recorder.persisted(tags);
        }
    }

    fn answer(
        &mut self,
        completer: &Completer,
        result: Result<(), StorageError>,
        durable: Result<(), StorageError>,
        now: u64,
    ) {
        self.in_flight -= 1;
        self.freed = true;
        self.stats.commands += 1;
        if let Some(probe) = &self.probe {
            probe.queue_depth(now, self.in_flight);
        }
        completer.finish(result, durable);
    }

    fn schedule_event(&mut self, at: u64, what: Event) {
        let number = self.first_event + self.event_slots.len() as u64;
        self.event_slots.push_back(Some(what));
        self.events.push(Reverse((at, number)));
    }

    fn happen(&mut self) {
        let Some(Reverse((at, number))) = self.events.pop() else { return };
        let what = self.event_slots.get_mut((number - self.first_event) as usize).and_then(Option::take);
        while self.event_slots.front().is_some_and(Option::is_none) {
            self.event_slots.pop_front();
            self.first_event += 1;
        }
        match what {
            Some(Event::ReadCarried { buffer, completer }) => {
                completer.data(buffer);
                self.answer(&completer, Ok(()), Ok(()), at);
            }
            Some(Event::Flushed { since, completer }) => {
                self.stats.flushes += 1;
                if let Some(probe) = &self.probe {
                    probe.busy(Busy::Flush, Subject::default(), since, at);
                }
                self.answer(&completer, Ok(()), Ok(()), at);
            }
            Some(Event::Persisted { completer, held }) => {
                self.lingering -= 1;
                self.held &= !held;
                self.answer(&completer, Ok(()), Ok(()), at);
            }
            None => {}
        }
    }
}

/// Flushes, and writing back.
impl Machine {
    /// A flush, or a FUA write: waits until everything transferred so far is committed.
    fn wait(&mut self, fua: bool, held: bool, completer: Completer, now: u64) {
        let protected = self.mechanism == Mechanism::PowerLossProtection;
        let lies = self.rules.drops(if fua { FlashMutant::FuaLies } else { FlashMutant::FlushLies });
        let left = if protected || lies { 0 } else { self.cache.len() };
        let target = self.next_version - 1;
        let waiter = Waiter { target, left, fua, held, waited: left > 0, since: now, completer };
        if left == 0 {
            return self.waited(waiter, now);
        }
        self.demand = target;
        self.waiters.push(waiter);
    }

    fn waited(&mut self, waiter: Waiter, now: u64) {
        let Waiter { fua, held, waited, since, completer, .. } = waiter;
        if fua {
            return self.schedule_event(now, Event::Persisted { completer, held });
        }
        let journal = if waited { self.flush_journal_ns } else { 0 };
        self.flush_free = self.flush_free.max(now) + self.flush_ns + journal;
        self.schedule_event(self.flush_free, Event::Flushed { since, completer });
    }

    /// Issues pages from the cache, as long as dies and the mechanism allow.
    fn write_back(&mut self, now: u64) {
        let slots = self.ftl.geometry.slots_per_page as usize;
        while self.is_serving() && self.cache.waiting() > 0 && self.ftl.has_room() {
            let demanded = self.cache.oldest_waiting().is_some_and(|version| version <= self.demand);
            // Commands that wait for room in a cache of which nothing is on its way are a demand too.
            let stuck = self.stalled && self.cache.waiting() == self.cache.len();
            let over = self.cache.waiting() >= (self.destage_over + 1).max(slots);
            if !(demanded || stuck || over || self.cache.unit_left() > 0) {
                return;
            }
            if self.cache.unit_left() == 0 {
                self.cache.begin_unit(self.ftl.room_pages() as usize * slots);
                self.ftl.promised_pages = self.cache.unit_left().div_ceil(slots) as u32;
            }
            let (count, no_more) = self.cache.eligible(slots);
            if count == 0 || !(count == slots || no_more || demanded || stuck) {
                return;
            }
            let mut contents = self.ftl.contents();
            let (ids, last) = self.cache.take(count, &mut contents);
            match self.ftl.write_back(contents, last, now) {
                Some(page) => self.cache.issued(page, ids),
                None => return,
            }
            if last {
                self.ftl.clean_idle(now);
            }
        }
    }

    fn advance_flash(&mut self, now: u64) {
        let mut outcome = std::mem::take(&mut self.outcome);
        self.ftl.advance(now, &mut outcome);
        if !outcome.committed.is_empty() {
            self.pages_committed(&outcome.committed, now);
        }
        for read in outcome.reads.drain(..) {
            self.page_read(read, now);
        }
        outcome.committed.clear();
        self.outcome = outcome;
    }

    /// Pages are committed from now on.
    fn pages_committed(&mut self, pages: &[Page], now: u64) {
        let mut persisted = Vec::new();
        let mut answers = Vec::new();
        let Machine { cache, requests, unused_requests, waiters, .. } = self;
        for page in pages {
            cache.committed(*page, |entry| {
                for waiter in waiters.iter_mut().filter(|waiter| entry.first_version <= waiter.target) {
                    waiter.left -= 1;
                }
                for owner in entry.owner.iter().chain(&entry.heirs) {
                    let request = &mut requests[*owner as usize];
                    request.left -= 1;
                    if request.left == 0 {
                        persisted.append(&mut request.tags);
                        answers.extend(request.answer.take());
                        unused_requests.push(*owner);
                    }
                }
            });
        }
        if let Some(recorder) = self.recorder.as_ref().filter(|_| !persisted.is_empty()) {
            recorder.persisted(&persisted);
        }
        for completer in answers {
            self.lingering -= 1;
            self.answer(&completer, Ok(()), Ok(()), now);
        }
        let mut place = 0;
        while place < self.waiters.len() {
            if self.waiters[place].left == 0 {
                let waiter = self.waiters.remove(place);
                self.waited(waiter, now);
            } else {
                place += 1;
            }
        }
        if let Some(probe) = &self.probe {
            probe.cached(now, self.cache.len() as u64);
        }
    }
}

/// Reads. What a read finds is decided when it is serviced; dies and link then take their time.
impl Machine {
    fn read(&mut self, extent: Extent, completer: Completer, now: u64) {
        let mut buffer = Buffer::new(extent.bytes());
        let mut pages: Vec<Page> = Vec::new();
        let mut shown = Ok(());
        for (lba, bytes) in extent.iter().zip(buffer.chunks_exact_mut(BLOCK_BYTES)) {
            self.stats.read_blocks += 1;
            let lpn = lba.0 as u32;
            if let Some(content) = self.cache.find(lpn) {
                self.stats.read_hits += 1;
                shown = shown.and(show(&content, bytes).map_err(|cause| (lba, cause)));
                continue;
            }
            let slot = self.ftl.map[lpn as usize];
            if slot != Slot::NONE {
                let content = self.ftl.medium.content(slot);
                shown = shown.and(show(&content, bytes).map_err(|cause| (lba, cause)));
                let page = self.ftl.geometry.page_of(slot);
                if pages.last() != Some(&page) {
                    pages.push(page);
                }
            }
        }
        if let Err((at, cause)) = shown {
            let failed = StorageError::Device { command: CommandKind::Read, at, cause: cause.kind() };
            return self.answer(&completer, Err(failed), Err(failed), now);
        }
        let reading = Reading { pages_left: pages.len() as u32, extent, buffer, completer };
        if pages.is_empty() {
            return self.carry_read(reading, now);
        }
        let place = self.readings.iter().position(Option::is_none).unwrap_or(self.readings.len());
        if place == self.readings.len() {
            self.readings.push(None);
        }
        self.readings[place] = Some(reading);
        for page in pages {
            let die = self.ftl.geometry.die_of(self.ftl.geometry.block_of(page));
            self.ftl.array.add(die, Work::Read { page, read: place as u32 }, now);
        }
    }

    /// What a read would find.
    pub(crate) fn peek(&self, lpn: u32, bytes: &mut [u8]) -> io::Result<()> {
        let slot = self.ftl.map[lpn as usize];
        if let Some(content) = self.cache.find(lpn) {
            show(&content, bytes)
        } else if slot != Slot::NONE {
            show(&self.ftl.medium.content(slot), bytes)
        } else {
            bytes.fill(0);
            Ok(())
        }
    }

    fn page_read(&mut self, read: u32, now: u64) {
        let Some(place) = self.readings.get_mut(read as usize) else { return };
        let Some(reading) = place else { return };
        reading.pages_left -= 1;
        if reading.pages_left == 0
            && let Some(reading) = place.take()
        {
            self.carry_read(reading, now);
        }
    }

    fn carry_read(&mut self, reading: Reading, now: u64) {
        let Reading { extent, buffer, completer, .. } = reading;
        let carry = self.carry_ns(extent.bytes());
        let from = if self.host.full_duplex { now } else { now.max(self.link_free) };
        if !self.host.full_duplex {
            self.link_free = from + carry;
        }
        if let Some(probe) = &self.probe {
            let (block, blocks) = (Some(extent.start.0), extent.blocks);
            let subject = Subject { block, blocks, ..Subject::default() };
            probe.busy(Busy::Link(CommandKind::Read), subject, from, from + carry);
        }
        self.schedule_event(from + carry, Event::ReadCarried { buffer, completer });
    }
}

/// Puts the content of a slot into a block of memory.
fn show(content: &Content, bytes: &mut [u8]) -> io::Result<()> {
    match &content.payload {
        Payload::Bytes(kept) => bytes.copy_from_slice(kept),
        Payload::Filed(place) => return place.read(bytes),
        Payload::Version => {
            bytes[..8].copy_from_slice(&u64::from(content.lpn).to_le_bytes());
            bytes[8..16].copy_from_slice(&content.version.to_le_bytes());
            bytes[16..].fill(0);
        }
        Payload::Discard(_) => bytes.fill(0),
    }
    Ok(())
}
