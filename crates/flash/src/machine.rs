//! The device as a state machine: commands come in, time goes on, answers go out. It knows no executor; the
//! [`FlashDevice`](crate::FlashDevice) drives it.
//!
//! # The way of a write
//!
//! It waits in the command queue until the controller decodes it and the cache has room; the link carries its
//! data; it enters the cache, gets its version and its epoch, and is answered. Decoding, carrying and writing
//! back overlap between commands. From the cache it goes to flash, in whole pages where possible, and leaves
//! the cache when it is committed there (see `mechanism`).
//!
//! # The way of a share
//!
//! By key `ftl.share_by` it goes through the map's log (see `shares`), or, by the word `page`, it is serviced exclusively. It waits until everything transferred before it is committed, as a flush does but without a
//! flush's own time; then its record enters the empty cache, is written at once, and is answered when it is committed.
//! Nothing else is serviced meanwhile. So the map has what its sources read, no version of a source or target is on its
//! way, and it lies between two epochs on every mechanism without a word about shares in any of them (S3, S7). This
//! costs a page for each share, and the time to empty the cache and to write that page, in which the queue stands still.

mod prefix;

use std::io;
use std::rc::Rc;

use weir_runtime::{Buffer, Random};
use weir_storage::{Completer, Extent, StorageError};

use crate::cache::{Cache, Incoming, Owner, Source};
use crate::events::{Event, Events};
use crate::ftl::{Ftl, Outcome};
use crate::geometry::Page;
use crate::logical_page::{Discarded, Update};
use crate::map::Pair;
use crate::medium::{Content, Medium, Payload};
use crate::mutants::{FlashMutant, FlashRules};
use crate::options::{FlashOptions, Keep};
use crate::power;
use crate::probe::{Busy, Probe, Subject};
use crate::profile::{Host, Mechanism, Profile, ShareBy, SimpleService};
use crate::queue::{Blocks, HostWrite, InTurn, Kind, Queue, Queued};
use crate::reads::{self, Reading, Reads};
use crate::recovery::{Recovered, recover};
use crate::recovery_reads::RecoveryReads;
use crate::requests::Requests;
use crate::service::Service;
use crate::shares::Shares;
use crate::stats::Stats;
use crate::waiters::{Wait, Waiter, Waiters};
use prefix::Prefix;

/// What follows a power cut.
enum Phase {
    /// The firmware reads what is on flash, until then.
    Scanning(u64),
    /// The firmware writes the checkpoint that ends recovery.
    Sealing,
    Serving,
}

pub(crate) struct Machine {
    service: Service,
    cache: Cache,
    pub(crate) ftl: Ftl,
    events: Events,
    requests: Requests,
    waiters: Waiters,
    reads: Reads,
    shares: Shares,
    /// Order-preserving recovery.
    prefix: Option<Prefix>,
    /// Key `host.packed_pages`, where what waits in the cache goes to one page if it fits, and a torn one keeps what is
    /// reliable.
    packed_pages: bool,
    phase: Phase,
    mechanism: Mechanism,
    cache_is_off: bool,
    pub(crate) share_by: ShareBy,
    tears_programs: bool,
    /// Writing back begins where more than this waits.
    destage_over: usize,
    keep: Keep,
    rules: FlashRules,
    probe: Option<Rc<dyn Probe>>,
    next_version: u64,
    epoch: u64,
    /// Time has come so far.
    seen: u64,
    outcome: Outcome,
    stats: Stats,
    pub(crate) recovery_reads: RecoveryReads,
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
        let recovered =
            if fresh { Recovered::nothing(profile, rules) } else { recover(&medium, profile, rules) };
        let capacity = profile.cache_places().max(profile.command_places());
        let slots = medium.geometry().slots_per_page as usize;
        let mut cache = Cache::new(capacity as usize, slots, (mechanism, profile.cache.replacement), rules);
        for Content { lpn, version, payload, receipt } in recovered.dump {
            // What was written back after an older version, but committed before it, is newer on flash.
            if recovered.start.map.version(lpn) >= version {
                continue;
            }
            let (written, missing) = (0, 0);
            cache.insert(Incoming {
                lpn,
                version,
                payload,
                epoch: 0,
                of: Source { receipt, ..Source::default() },
                written,
                missing,
            });
        }
        let ftl = Ftl::new(profile, options, medium, recovered.start);
        let unsealed = rules.drops(FlashMutant::RecoveryUnsealed);
        let phase =
            if fresh || unsealed { Phase::Serving } else { Phase::Scanning(now + recovered.reads.time_ns) };
        let ordered = mechanism == Mechanism::OrderPreservingRecovery;
        // Requests are numbered when they enter the cache: only in order of receipt that is their order. Discards that
        // wait for all before them would deadlock if others passed them.
        let fifo = ordered || profile.ftl.layout.logical_page_blocks > 1;
        let simple_service = if fifo { SimpleService::Fifo } else { profile.host.simple_service };
        let host = Host { simple_service, ..profile.host };
        let queue = Queue::new(simple_service, random);
        let protected = mechanism == Mechanism::PowerLossProtection;
        let prefix = ordered.then(|| Prefix::new(profile, (recovered.point, recovered.next_wid), rules));
        Machine {
            service: Service::new(host, profile, queue, options.probe.clone(), now),
            cache,
            events: Events::default(),
            requests: Requests::new(options.recorder.clone(), protected),
            waiters: Waiters::new(profile.flush, ftl.array.page_ns(), ordered, now),
            reads: Reads::default(),
            shares: Shares::new(rules),
            prefix,
            packed_pages: profile.host.packed_pages
                && mechanism == Mechanism::None
                && !ftl.allocates_statically(),
            ftl,
            phase,
            mechanism,
            tears_programs: profile.tears_programs(),
            cache_is_off: profile.cache.bytes == 0,
            share_by: profile.ftl.share_by,
            destage_over: (capacity as f64 * profile.cache.destage_share) as usize,
            keep: options.keep.clone(),
            rules,
            probe: options.probe.clone(),
            next_version: recovered.next_version,
            epoch: 0,
            seen: now,
            outcome: Outcome::default(),
            stats: Stats::default(),
            recovery_reads: recovered.reads,
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
        self.requests.are_recorded()
    }

    pub(crate) fn stats(&self) -> Stats {
        let ftl = &self.ftl.stats;
        Stats {
            programmed_pages: ftl.programmed_pages,
            moved_blocks: ftl.moved_blocks,
            moved_pages: ftl.moved_pages,
            erases: ftl.erases,
            checkpoints: ftl.checkpoints,
            increments: ftl.increments,
            checkpoint_pages: ftl.checkpoint_pages,
            increment_pages: ftl.increment_pages,
            record_pages: ftl.record_pages,
            opening_pages: ftl.opening_pages,
            completing_reads: ftl.completing_reads,
            summary_pages: ftl.summary_pages,
            ..self.stats
        }
    }

    /// Whether a write must be on flash before it is transferred, though it has no FUA: a reliable one (F12), and every
    /// one where the cache is off.
    pub(crate) fn forces(&self, reliable: bool) -> bool {
        self.cache_is_off || (reliable && !self.rules.drops(FlashMutant::ReliableCached))
    }

    /// Whether recovery is over.
    pub(crate) fn is_serving(&self) -> bool {
        matches!(self.phase, Phase::Serving)
    }

    pub(crate) fn is_full(&self) -> bool {
        self.service.is_full()
    }

    /// Whether a slot of the queue became free since the last call.
    pub(crate) fn take_freed(&mut self) -> bool {
        self.service.take_freed()
    }

    /// Takes a command into the queue. The queue must not be full.
    pub(crate) fn accept(&mut self, mut command: Queued, head_of_queue: bool, now: u64) {
        command.ordered &= !self.rules.drops(FlashMutant::PriorityIgnored);
        self.service.accept(command, head_of_queue, now);
        self.make_progress(now);
    }

    /// When something happens next.
    pub(crate) fn next_event(&self) -> Option<u64> {
        let controller = match self.phase {
            Phase::Scanning(until) => Some(until),
            Phase::Sealing => None,
            Phase::Serving => self.service.next_start(self.seen),
        };
        let prefix = self.prefix.as_ref().and_then(Prefix::next_event);
        let next = [self.ftl.array.next(), self.service.next_done(), self.events.next(), controller, prefix];
        next.into_iter().flatten().min()
    }

    /// Lets one thing happen that is due by `now`; false if there is none.
    pub(crate) fn step(&mut self, now: u64) -> bool {
        let due = |at: Option<u64>| at.is_some_and(|at| at <= now);
        if let Some((done, command)) = self.service.done(now) {
            self.serve(command, done);
        } else if due(self.ftl.array.next()) {
            self.advance_flash(now);
        } else if due(self.events.next()) {
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
        self.flush_internally(now);
        self.start_commands(now);
        self.write_back(now);
        if self.is_serving() && self.prefix.is_none() {
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
                self.checkpoint(now);
                self.phase = Phase::Sealing;
                true
            }
            Phase::Sealing if !self.ftl.is_checkpointing() => {
                self.phase = Phase::Serving;
                self.ftl.medium.dump = None;
                self.service.recovered(now);
                self.ftl.clean_idle(now);
                true
            }
            Phase::Scanning(_) | Phase::Sealing | Phase::Serving => false,
        }
    }

    /// What is on flash if the power goes at `now`, or later but before anything happens: in between, cells begin
    /// to change.
    pub(crate) fn cut(&self, now: u64, random: &mut Random) -> Medium {
        let left = self.next_event().map_or(0, |next| next.saturating_sub(now));
        let at = now + random.below(left.max(1));
        let mut medium = power::cut(&self.ftl, at, self.tears_programs, random);
        if self.mechanism == Mechanism::PowerLossProtection && self.is_serving() {
            medium.dump = Some(Rc::new(self.cache.all()));
        }
        medium
    }
}

/// Service.
impl Machine {
    /// Starts commands, as far as the cache has room.
    fn start_commands(&mut self, now: u64) {
        while self.is_serving() {
            self.limit_waiting();
            let Some(command) = self.service.next(&mut self.cache, &mut self.shares, now) else {
                if self.service.awaits_commit() {
                    self.demand_up_to(self.next_version - 1);
                }
                return;
            };
            // A flush does not wait for the way of the writes: all its time is in the profile's `flush`.
            if matches!(command.kind, Kind::Flush) {
                self.serve(command, now);
            } else {
                self.service.start(command, self.epoch, now);
            }
        }
    }

    /// A command has been decoded, and its data is here.
    fn serve(&mut self, command: Queued, now: u64) {
        let Queued { kind, completer, .. } = command;
        match kind {
            Kind::Write(write) => {
                let forced = write.forced;
                let turn = InTurn { rest: Vec::new(), lingers: forced, durable: forced, completer };
                self.write_in_turn(Some(write), turn, now);
            }
            Kind::Packed(mut rest) => {
                if self.packed_pages {
                    rest.iter_mut().for_each(|write| write.reliable |= write.forced);
                }
                let lingers = rest.iter().any(|write| write.forced);
                let durable = rest.iter().all(|write| write.forced);
                self.write_in_turn(None, InTurn { rest, lingers, durable, completer }, now);
            }
            Kind::Barrier => {
                self.end_epoch();
                self.answer(&completer, Ok(()), Ok(()), now);
            }
            Kind::Flush => self.wait(Wait::Flush(completer), now),
            Kind::Share(pairs, ShareBy::Page) => self.wait(Wait::Share(pairs, completer), now),
            Kind::Share(pairs, ShareBy::Log) => self.log_share(&pairs, &completer, now),
            Kind::Discard(discarded) => self.discard(discarded, completer, now),
            Kind::Read(extent) => self.read(extent, completer, now),
        }
        self.report_cached(now);
    }

    /// The writes of a command enter the cache one after the other, from `next` on; one that must be on flash holds up
    /// those behind it (F11). The command is answered with the last.
    fn write_in_turn(&mut self, next: Option<HostWrite>, mut turn: InTurn, now: u64) {
        let together = self.rules.drops(FlashMutant::PackedTogether);
        let mut next = next.or_else(|| turn.rest.pop());
        while let Some(write) = next {
            let forced = write.forced;
            self.write(write, now);
            let joins = turn.rest.last().is_some_and(|behind| together || self.joins(behind));
            if forced && !joins {
                return self.wait(Wait::Forced(turn), now);
            }
            next = turn.rest.pop();
        }
        if turn.lingers {
            self.service.lingered();
        }
        let durable = if turn.durable { Ok(()) } else { Err(StorageError::DurabilityUnknown) };
        self.answer(&turn.completer, Ok(()), durable, now);
    }

    /// Whether a write of a packed command is programmed with those before it: all that waits in the cache is one page then,
    /// which is reliable, so that none of it is on flash before the rest (F11).
    fn joins(&self, behind: &HostWrite) -> bool {
        let page = self.ftl.geometry.slots_per_page as usize;
        self.packed_pages && behind.forced && self.cache.waiting() + behind.blocks.places() <= page
    }

    /// A write enters the cache.
    fn write(&mut self, write: HostWrite, now: u64) {
        let HostWrite { blocks, barrier, reliable, tags, .. } = write;
        let places = blocks.places();
        let owner = self.requests.follow(tags, places, None);
        self.cache.redeem(places);
        let of = Source { owner, receipt: self.receive(places, now), reliable };
        match blocks {
            Blocks::One(lpn, payload) => self.enter(lpn, payload, of),
            Blocks::Many(blocks) => {
                blocks.into_iter().for_each(|(lpn, payload)| self.enter(lpn, payload, of));
            }
            Blocks::Updates(updates) => {
                updates.into_iter().for_each(|update| self.update(update, of));
            }
        }
        if barrier {
            self.end_epoch();
        }
        self.requests.transferred(owner);
    }

    fn report_cached(&self, now: u64) {
        if let Some(probe) = &self.probe {
            probe.cached(now, self.cache.len() as u64);
        }
    }

    fn end_epoch(&mut self) {
        self.stats.barriers += 1;
        self.epoch += u64::from(!self.rules.drops(FlashMutant::BarrierIgnored));
    }

    /// A block that is a logical page, or a record, enters the cache.
    fn enter(&mut self, lpn: u32, payload: Payload, of: Source) {
        let version = self.next_version;
        self.next_version += 1;
        self.stats.written_blocks += 1;
        let (written, missing, epoch) = (0, 0, self.epoch);
        self.insert(Incoming { lpn, version, payload, epoch, of, written, missing });
    }

    /// A change of a logical page of several blocks enters the cache, as a whole page.
    fn update(&mut self, update: Update, of: Source) {
        let geometry = self.ftl.geometry;
        let (lpn, written) = (update.lpn, update.written());
        let others = geometry.whole_page() & !written;
        let base = if others == 0 { None } else { self.newest(lpn) };
        let on_flash = base.as_ref().is_some_and(|(_, page)| page.is_some());
        self.next_version += update.blocks();
        self.stats.written_blocks += update.blocks();
        let payload =
            update.apply_to(base.as_ref().map(|(content, _)| content), self.next_version, &geometry);
        let missing = if on_flash && !self.cache.has_clean(lpn) { others } else { 0 };
        let (version, epoch) = (self.next_version - 1, self.epoch);
        self.insert(Incoming { lpn, version, payload, epoch, of, written, missing });
    }

    fn newest(&self, lpn: u32) -> Option<(Content, Option<Page>)> {
        let in_cache =
            reads::cached(&self.cache, lpn).filter(|_| !self.rules.drops(FlashMutant::RestFromFlash));
        in_cache.or_else(|| reads::stored(&self.ftl, lpn))
    }

    fn insert(&mut self, incoming: Incoming) {
        let receipt = incoming.of.receipt;
        if let Some(earlier) = self.cache.insert(incoming) {
            self.stats.coalesced_blocks += 1;
            self.coalesced(earlier, receipt);
        }
    }

    fn answer(
        &mut self,
        completer: &Completer,
        result: Result<(), StorageError>,
        durable: Result<(), StorageError>,
        now: u64,
    ) {
        self.service.answered(now);
        self.stats.commands += 1;
        completer.finish(result, durable);
    }

    fn happen(&mut self) {
        let Some((at, what)) = self.events.pop() else { return };
        match what {
            Event::ReadCarried { buffer, completer } => {
                completer.data(buffer);
                self.answer(&completer, Ok(()), Ok(()), at);
            }
            Event::Flushed { since, completer } => {
                self.stats.flushes += 1;
                if let Some(probe) = &self.probe {
                    probe.busy(Busy::Flush, Subject::default(), since, at);
                }
                self.answer(&completer, Ok(()), Ok(()), at);
            }
            Event::Persisted(turn) => self.write_in_turn(None, turn, at),
            Event::Settled { pairs, completer } => self.record_share(&pairs, completer, at),
        }
    }

    /// A share's record enters the cache, where nothing else is: one entry, so that all of its pairs are committed or
    /// none (F8).
    fn record_share(&mut self, pairs: &Rc<[Pair]>, completer: Completer, now: u64) {
        self.cache.redeem(1);
        let receipt = self.receive(1, now);
        let target = pairs.first().map_or(0, |pair| pair.to);
        self.enter_answered_late(1, completer, now, |machine, owner| {
            let of = Source { owner, receipt, reliable: false };
            machine.enter(target, Payload::Share(Rc::clone(pairs)), of);
        });
    }

    /// A share's record enters the cache as a write does, and is answered: a flush makes it durable (F8).
    fn log_share(&mut self, pairs: &Rc<[Pair]>, completer: &Completer, now: u64) {
        self.cache.redeem(1);
        let target = pairs.first().map_or(0, |pair| pair.to);
        self.enter(target, Payload::Share(Rc::clone(pairs)), Source::default());
        self.shares.enter(pairs);
        self.answer(completer, Ok(()), Err(StorageError::DurabilityUnknown), now);
    }

    /// The records of a discard, and zeros for logical pages that it covers in part.
    fn discard(&mut self, discarded: Discarded, completer: Completer, now: u64) {
        let places = discarded.places();
        self.cache.redeem(places);
        let receipt = self.receive(places, now);
        let Discarded { whole, zeroed, .. } = discarded;
        self.enter_answered_late(places, completer, now, |machine, owner| {
            let of = Source { owner, receipt, reliable: false };
            for Extent { start, blocks } in whole {
                machine.enter(start.0 as u32, Payload::Discard(blocks), of);
            }
            zeroed.into_iter().for_each(|update| machine.update(update, of));
        });
    }

    /// Lets `enter` bring so many versions into the cache. They are written at once, and answered when no power cut takes
    /// them back.
    fn enter_answered_late(
        &mut self,
        places: usize,
        completer: Completer,
        now: u64,
        enter: impl FnOnce(&mut Machine, Owner),
    ) {
        if self.prefix.is_some() {
            enter(self, None);
            let turn = InTurn { rest: Vec::new(), lingers: true, durable: true, completer };
            return self.wait(Wait::Forced(turn), now);
        }
        let owner = self.requests.follow(Vec::new(), places, Some(completer));
        enter(self, owner);
        self.demand_up_to(self.next_version - 1);
    }

    /// Everything up to a version is to be written back at once.
    fn demand_up_to(&mut self, version: u64) {
        self.cache.flush_to(version);
        self.waiters.demand_up_to(version);
    }
}

/// Flushes, and writing back.
impl Machine {
    /// Lets a command, or the firmware itself, wait until everything transferred so far is committed.
    fn wait(&mut self, what: Wait, now: u64) {
        let protected = self.mechanism == Mechanism::PowerLossProtection;
        let waits = match what {
            Wait::Flush(_) => !protected && !self.rules.drops(FlashMutant::FlushLies),
            Wait::Forced(_) => !protected && !self.rules.drops(FlashMutant::FuaLies),
            // Also where the cache is as good as committed: the record says what the map has.
            Wait::Share(..) => !self.rules.drops(FlashMutant::ShareAhead),
            Wait::Internal => true,
        };
        let left = if waits { self.cache.len() } else { 0 };
        let records = self.close_requests(now);
        let target = self.next_version - 1;
        self.cache.flush_to(target);
        let waiter = Waiter { target, left, records, what, since: now };
        self.waiters.add(waiter, now, &mut self.events);
        self.settle(now);
    }

    /// Issues pages from the cache, as long as dies and the mechanism allow.
    fn write_back(&mut self, now: u64) {
        let slots = self.ftl.geometry.slots_per_page as usize;
        while self.is_serving() && self.cache.waiting() > 0 && self.ftl.has_room() {
            // What a flush waits for comes first.
            let mut demanded = self.cache.waits_since(0, self.waiters.demand());
            // Commands that wait for room in a cache of which nothing is on its way are a demand too.
            let stuck = self.service.is_stalled() && self.cache.waiting() == self.cache.len();
            let over = self.cache.waiting() >= (self.destage_over + 1).max(slots);
            if !(demanded || stuck || over || self.cache.unit_left() > 0) {
                return;
            }
            if self.cache.begin_unit(self.ftl.room_pages() as usize * slots) {
                self.ftl.promised_pages = self.cache.unit_left().div_ceil(slots) as u32;
            }
            let mut place = 0;
            if self.ftl.allocates_statically() {
                let Some(first) = self.cache.first_that(|lpn| self.ftl.takes(lpn)) else { return };
                place = first;
                demanded = self.cache.waits_since(place, self.waiters.demand());
                if !(demanded || stuck || over || self.cache.unit_left() > 0) {
                    return;
                }
            }
            let (count, no_more) = self.cache.eligible(slots);
            if count == 0 || !(count == slots || no_more || demanded || stuck) {
                return;
            }
            let internally = self.prefix.is_some()
                && demanded
                && !(stuck || over || self.cache.waits_since(place, self.waiters.host_demand()));
            let mut contents = self.ftl.contents();
            let taken = self.cache.take(place, count, &mut contents);
            let ends_unit = taken.ends_unit;
            match self.ftl.write_back(contents, &taken, now) {
                Some(page) => self.cache.issued(page, taken.ids),
                None => return,
            }
            self.stats.internally_flushed_pages += u64::from(internally);
            self.limit_waiting();
            if ends_unit {
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
        if !outcome.records.is_empty() {
            self.records_written(&mut outcome.records, now);
        }
        for read in outcome.reads.drain(..) {
            if let Some(reading) = self.reads.page_read(read) {
                self.carry_read(reading, now);
            }
        }
        outcome.committed.clear();
        self.outcome = outcome;
    }

    /// Pages are committed from now on.
    fn pages_committed(&mut self, pages: &[Page], now: u64) {
        let Machine { cache, requests, waiters, prefix, shares, .. } = self;
        for page in pages {
            cache.committed(*page, |entry| {
                waiters.entry_committed(entry.first_version);
                entry.shared_pairs().into_iter().for_each(|pairs| shares.commit(pairs));
                let owners = entry.owner.iter().chain(&entry.heirs).copied();
                match prefix {
                    Some(prefix) => prefix.hold_back(entry.version, owners),
                    None => owners.for_each(|owner| requests.block_committed(owner)),
                }
            });
        }
        self.answer_committed(now);
        self.waiters.release(now, &mut self.events);
        self.settle(now);
        self.report_cached(now);
    }

    /// Answers the discards that no power cut takes back any more.
    fn answer_committed(&mut self, now: u64) {
        for completer in self.requests.committed() {
            self.service.lingered();
            self.answer(&completer, Ok(()), Ok(()), now);
        }
    }
}

/// Reads.
impl Machine {
    fn read(&mut self, extent: Extent, completer: Completer, now: u64) {
        let mut buffer = Buffer::new(extent.bytes());
        match reads::fill(extent, &mut buffer, (&mut self.cache, &self.shares), &self.ftl, &mut self.stats) {
            Err(failed) => self.answer(&completer, Err(failed), Err(failed), now),
            Ok(pages) => {
                let reading = Reading { extent, buffer, completer };
                if let Some(reading) = self.reads.start(reading, &pages, &mut self.ftl, now) {
                    self.carry_read(reading, now);
                }
            }
        }
    }

    fn carry_read(&mut self, reading: Reading, now: u64) {
        let Reading { extent, buffer, completer } = reading;
        let carried = self.service.carry_read(extent, now);
        self.events.schedule(carried, Event::ReadCarried { buffer, completer });
    }

    /// What a read would find.
    pub(crate) fn peek(&self, block: u32, bytes: &mut [u8]) -> io::Result<()> {
        reads::peek(block, bytes, (&self.cache, &self.shares), &self.ftl)
    }
}
