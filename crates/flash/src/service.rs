//! The host's side: the command queue, and the time that commands take at the controller and on the link.

use std::collections::VecDeque;
use std::rc::Rc;

use weir_storage::{BLOCK_BYTES, CommandKind, Extent};

use crate::cache::Cache;
use crate::probe::{Busy, Probe, Subject};
use crate::profile::{Barrier, Host, Mechanism, OrderedService, Profile, SimpleService};
use crate::queue::{Kind, Queue, Queued};
use crate::shares::Shares;

/// What the header of a packed command takes on the link: one block of 512 bytes (JESD84-B451, packed commands).
const PACKED_HEADER_BYTES: usize = 512;

/// Commands that wait for service, and those that are decoded and carried.
pub(crate) struct Service {
    host: Host,
    barrier: Barrier,
    /// What the controller copies into the cache, in bytes a second.
    copy_bytes_per_second: Option<u64>,
    probe: Option<Rc<dyn Probe>>,
    queue: Queue,
    /// Commands that are decoded and carried, in the order in which they will be done.
    in_service: VecDeque<(u64, Queued)>,
    controller_free: u64,
    link_free: u64,
    /// Commands accepted and not answered.
    in_flight: u32,
    /// The next command waits for room in the cache.
    stalled: bool,
    /// Commands with forced writes, discards and shares by a page that are serviced and not answered. An ordered command waits for them (S1), and
    /// so does a barrier: they are transferred, and belong to an epoch, when they are answered (S2).
    lingering: u32,
    /// The only one of them is ordered, a barrier, a share by a page, or an exclusive discard: everything waits for it.
    held: bool,
    /// A slot became free since the last look.
    freed: bool,
    /// No command is begun: the firmware flushes for a checkpoint.
    paused: bool,
    /// The next command waits for a share to be committed, or is one and waits for its blocks (F8).
    awaits_commit: bool,
}

impl Service {
    pub(crate) fn new(
        host: Host,
        profile: &Profile,
        queue: Queue,
        probe: Option<Rc<dyn Probe>>,
        now: u64,
    ) -> Service {
        Service {
            host,
            barrier: profile.barrier,
            copy_bytes_per_second: profile.cache.copy_bytes_per_second,
            probe,
            queue,
            in_service: VecDeque::new(),
            controller_free: now,
            link_free: now,
            in_flight: 0,
            stalled: false,
            lingering: 0,
            held: false,
            freed: false,
            paused: false,
            awaits_commit: false,
        }
    }

    pub(crate) fn is_full(&self) -> bool {
        self.in_flight >= self.host.queue_depth
    }

    /// Takes a command into the queue. The queue must not be full.
    pub(crate) fn accept(&mut self, command: Queued, head_of_queue: bool, now: u64) {
        self.in_flight += 1;
        self.report_depth(now);
        self.queue.push(command, head_of_queue);
    }

    /// A command is answered: its slot is free.
    pub(crate) fn answered(&mut self, now: u64) {
        self.in_flight -= 1;
        self.freed = true;
        self.report_depth(now);
    }

    fn report_depth(&self, now: u64) {
        if let Some(probe) = &self.probe {
            probe.queue_depth(now, self.in_flight);
        }
    }

    /// Whether a slot became free since the last call.
    pub(crate) fn take_freed(&mut self) -> bool {
        std::mem::take(&mut self.freed)
    }

    /// Begins no command any more, or does so again.
    pub(crate) fn pause(&mut self, paused: bool) {
        self.paused = paused;
    }

    /// Whether no command is being decoded or carried, and none holds the others back.
    pub(crate) fn is_quiet(&self) -> bool {
        self.in_service.is_empty() && !self.held
    }

    /// Whether the next command waits for room in the cache.
    pub(crate) fn is_stalled(&self) -> bool {
        self.stalled
    }

    /// Whether the next command waits until what is in the cache is committed (F8).
    pub(crate) fn awaits_commit(&self) -> bool {
        self.awaits_commit
    }

    /// What lingered is durable.
    pub(crate) fn lingered(&mut self) {
        self.lingering -= 1;
        self.held &= self.lingering > 0;
    }

    /// The controller has recovered by now.
    pub(crate) fn recovered(&mut self, now: u64) {
        self.controller_free = self.controller_free.max(now);
    }

    /// When the next command is done.
    pub(crate) fn next_done(&self) -> Option<u64> {
        self.in_service.front().map(|(done, _)| *done)
    }

    /// When the controller can take one of the commands that wait, unless it waits for something else itself: room
    /// in the cache, where it is free already.
    pub(crate) fn next_start(&self, now: u64) -> Option<u64> {
        let any = self.host.simple_service == SimpleService::Any;
        (any && !self.queue.is_empty() && self.controller_free > now).then_some(self.controller_free)
    }

    /// Takes the next command, if it can be serviced now.
    pub(crate) fn next(&mut self, cache: &mut Cache, shares: &mut Shares, now: u64) -> Option<Queued> {
        self.awaits_commit = false;
        if self.held
            || self.paused
            || (self.host.simple_service == SimpleService::Any && self.controller_free > now)
        {
            return None;
        }
        let place = self.queue.next()?;
        let command = self.queue.get(place)?;
        let exclusive = command.is_exclusive();
        let names_blocks = command.logged_pairs().is_some();
        if (exclusive || names_blocks) && self.lingering > 0 {
            return None;
        }
        // What is being carried enters the cache first.
        if names_blocks && !self.in_service.is_empty() {
            return None;
        }
        self.awaits_commit = shares.holds_back(command, cache);
        if self.awaits_commit {
            return None;
        }
        self.stalled = command.places().any(|places| places > 0) && !cache.has_room(command.places());
        if self.stalled {
            return None;
        }
        let command = self.queue.take(place)?;
        command.places().for_each(|places| cache.reserve(places));
        command.logged_pairs().into_iter().for_each(|pairs| shares.begin(pairs));
        if command.lingers() {
            self.lingering += 1;
            self.held = exclusive;
        }
        Some(command)
    }

    /// Decodes a command, and lets the link carry its data. `epoch` is the one that commands enter the cache in now.
    pub(crate) fn start(&mut self, command: Queued, epoch: u64, now: u64) {
        let (kind, header_bytes, header_ns) = match &command.kind {
            Kind::Write(_) => (CommandKind::Write, 0, 0),
            Kind::Packed(_) => {
                (CommandKind::Write, PACKED_HEADER_BYTES, self.host.packed_header_ns.unwrap_or(0))
            }
            Kind::Barrier => (CommandKind::Barrier, 0, 0),
            Kind::Read(_) => (CommandKind::Read, 0, 0),
            Kind::Flush => (CommandKind::Flush, 0, 0),
            Kind::Discard(_) => (CommandKind::Discard, 0, 0),
            Kind::Share(..) => (CommandKind::Share, 0, 0),
        };
        let bytes = header_bytes + command.blocks() * BLOCK_BYTES;
        let reliable = command.writes().iter().filter(|write| write.reliable).count() as u64;
        let copy_ns = self.copy_bytes_per_second.map_or(0, |rate| time_ns(bytes, rate));
        let command_ns = self.host.command_ns
            + header_ns
            + reliable * self.host.reliable_extra_ns.unwrap_or(0)
            + copy_ns
            + self.tag_ns(&command);
        let carry = self.carry_ns(bytes);
        let serial = command.ordered && self.host.ordered_service == OrderedService::Serial;
        let mut from = now.max(self.controller_free);
        if serial {
            from = from.max(self.link_free);
        }
        let mut decoded = from + command_ns;
        if command.is_barrier() {
            decoded += (self.barrier.penalty * self.host.command_ns.max(carry) as f64) as u64;
        }
        let carry_from = decoded.max(if bytes > 0 { self.link_free } else { 0 });
        let carried = carry_from + carry;
        self.controller_free = if serial { carried } else { decoded };
        if bytes > 0 {
            self.link_free = carried;
        }
        if let Some(probe) = &self.probe {
            let subject = Subject { epoch: Some(epoch + self.barriers_in_service()), ..command.subject() };
            probe.busy(Busy::Controller(kind), subject, from, decoded);
            if bytes > 0 {
                probe.busy(Busy::Link(kind), subject, carry_from, carried);
            }
        }
        // What enters the cache enters it in order.
        let last = self.in_service.back().map_or(0, |(done, _)| *done);
        self.in_service.push_back(((carried + self.host.latency_ns).max(last), command));
    }

    fn barriers_in_service(&self) -> u64 {
        self.in_service.iter().filter(|(_, command)| command.is_barrier()).count() as u64
    }

    /// Takes a command that is decoded and carried by `now`, and when it was.
    pub(crate) fn done(&mut self, now: u64) -> Option<(u64, Queued)> {
        self.next_done().filter(|done| *done <= now)?;
        self.in_service.pop_front()
    }

    /// Lets the link carry what a read found; returns when it has.
    pub(crate) fn carry_read(&mut self, extent: Extent, now: u64) -> u64 {
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
        from + carry
    }

    fn carry_ns(&self, bytes: usize) -> u64 {
        time_ns(bytes, self.host.link_bytes_per_second)
    }

    /// What it takes to note which request the logical pages are of that the command brings.
    fn tag_ns(&self, command: &Queued) -> u64 {
        match self.barrier.mechanism {
            Mechanism::OrderPreservingRecovery => {
                command.places().sum::<usize>() as u64 * self.barrier.tag_ns
            }
            _ => 0,
        }
    }
}

/// How long so many bytes take, at a rate in bytes a second.
fn time_ns(bytes: usize, rate: u64) -> u64 {
    let rate = rate.max(1);
    match (bytes as u64).checked_mul(1_000_000_000) {
        Some(scaled) => scaled / rate,
        None => (bytes as u128 * 1_000_000_000 / u128::from(rate)) as u64,
    }
}
