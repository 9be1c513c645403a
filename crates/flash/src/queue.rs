//! The command queue, and which command is serviced next (S1): head-of-queue commands first; simple ones in any
//! order, but none past an ordered one; an ordered one when all before it have been.

use std::collections::{BTreeSet, VecDeque};
use std::rc::Rc;

use weir_runtime::Random;
use weir_storage::{Completer, Extent, Tag};

use crate::logical_page::{Discarded, Update};
use crate::map::Pair;
use crate::medium::Payload;
use crate::probe::Subject;
use crate::profile::{ShareBy, SimpleService};

/// What a command asks for.
pub(crate) enum Kind {
    Write(HostWrite),
    /// The writes of a packed command, the next one last (F11).
    Packed(Vec<HostWrite>),
    Read(Extent),
    Barrier,
    Flush,
    Discard(Discarded),
    Share(Rc<[Pair]>, ShareBy),
}

/// A write, alone or in a packed command.
pub(crate) struct HostWrite {
    pub(crate) blocks: Blocks,
    pub(crate) barrier: bool,
    /// It is transferred when it is on flash: FUA, reliable (F12), or there is no cache.
    pub(crate) forced: bool,
    pub(crate) reliable: bool,
    pub(crate) tags: Vec<Tag>,
}

/// What a command of writes has still to do: the writes behind the one at hand, the next one last, and its answer.
pub(crate) struct InTurn {
    pub(crate) rest: Vec<HostWrite>,
    /// One of its writes waits until it is on flash.
    pub(crate) lingers: bool,
    /// All of them do.
    pub(crate) durable: bool,
    pub(crate) completer: Completer,
}

/// The blocks of a write.
pub(crate) enum Blocks {
    One(u32, Payload),
    Many(Vec<(u32, Payload)>),
    /// Where a logical page has several.
    Updates(Vec<Update>),
}

impl Blocks {
    pub(crate) fn len(&self) -> usize {
        match self {
            Blocks::One(..) => 1,
            Blocks::Many(blocks) => blocks.len(),
            Blocks::Updates(updates) => updates.iter().map(|update| update.blocks() as usize).sum(),
        }
    }

    /// Logical pages that they are in: the places in the cache that they need.
    pub(crate) fn places(&self) -> usize {
        if let Blocks::Updates(updates) = self { updates.len() } else { self.len() }
    }

    /// Whether they are in one of these logical pages.
    fn are_in(&self, pages: &BTreeSet<u32>) -> bool {
        match self {
            Blocks::One(block, _) => pages.contains(block),
            Blocks::Many(blocks) => blocks.iter().any(|(block, _)| pages.contains(block)),
            Blocks::Updates(updates) => updates.iter().any(|update| pages.contains(&update.lpn)),
        }
    }

    fn first(&self) -> Option<u64> {
        let block = match self {
            Blocks::One(block, _) => Some(*block),
            Blocks::Many(blocks) => blocks.first().map(|(block, _)| *block),
            Blocks::Updates(updates) => updates.first().map(|update| update.first_block),
        };
        block.map(u64::from)
    }
}

/// A command that was accepted.
pub(crate) struct Queued {
    pub(crate) kind: Kind,
    pub(crate) ordered: bool,
    pub(crate) completer: Completer,
}

impl Queued {
    /// What it writes, the first last.
    pub(crate) fn writes(&self) -> &[HostWrite] {
        match &self.kind {
            Kind::Write(write) => std::slice::from_ref(write),
            Kind::Packed(writes) => writes,
            _ => &[],
        }
    }

    /// Whether it ends an epoch.
    pub(crate) fn is_barrier(&self) -> bool {
        matches!(self.kind, Kind::Barrier) || self.writes().iter().any(|write| write.barrier)
    }

    /// The pairs of a share that goes through the map's log.
    pub(crate) fn logged_pairs(&self) -> Option<&[Pair]> {
        match &self.kind {
            Kind::Share(pairs, ShareBy::Log) => Some(pairs),
            _ => None,
        }
    }

    /// Whether it writes or discards one of these blocks.
    pub(crate) fn changes(&self, blocks: &BTreeSet<u32>) -> bool {
        let covers = |extent: &Extent| {
            let first = extent.start.0 as u32;
            blocks.range(first..first.saturating_add(extent.blocks)).next().is_some()
        };
        match &self.kind {
            Kind::Discard(discarded) => discarded.whole.iter().any(covers),
            _ => self.writes().iter().any(|write| write.blocks.are_in(blocks)),
        }
    }

    /// Whether it waits for all that linger before it, and everything for it if it lingers itself (S1, S2, F8, F10).
    pub(crate) fn is_exclusive(&self) -> bool {
        let alone = match &self.kind {
            Kind::Share(_, by) => *by == ShareBy::Page,
            // Between its writes nothing else is transferred (F11).
            Kind::Packed(_) => self.lingers(),
            Kind::Discard(discarded) => discarded.exclusive,
            _ => false,
        };
        self.ordered || self.is_barrier() || alone
    }

    /// What it is about, but for the epoch, which the machine counts.
    pub(crate) fn subject(&self) -> Subject {
        let (block, blocks) = match &self.kind {
            Kind::Read(extent) => (Some(extent.start.0), extent.blocks),
            Kind::Discard(Discarded { first, blocks, .. }) => (Some(*first), *blocks),
            Kind::Share(pairs, _) => (pairs.first().map(|pair| u64::from(pair.to)), pairs.len() as u32),
            Kind::Barrier | Kind::Flush => (None, 0),
            Kind::Write(_) | Kind::Packed(_) => {
                let first = self.writes().last().and_then(|write| write.blocks.first());
                (first, self.blocks() as u32)
            }
        };
        Subject { block, blocks, epoch: None, barrier: self.is_barrier() }
    }

    /// Blocks that it writes.
    pub(crate) fn blocks(&self) -> usize {
        self.writes().iter().map(|write| write.blocks.len()).sum()
    }

    /// Whether it is answered only when it is committed to flash.
    pub(crate) fn lingers(&self) -> bool {
        matches!(self.kind, Kind::Discard(_) | Kind::Share(_, ShareBy::Page))
            || self.writes().iter().any(|write| write.forced)
    }

    /// Places in the cache that it needs, for each of its writes.
    pub(crate) fn places(&self) -> impl Iterator<Item = usize> + Clone {
        let of_writes = self.writes().iter().map(|write| write.blocks.places());
        let other = match &self.kind {
            Kind::Discard(discarded) => Some(discarded.places()),
            Kind::Share(..) => Some(1),
            _ => None,
        };
        of_writes.chain(other)
    }
}

/// Commands that wait for service.
pub(crate) struct Queue {
    waiting: VecDeque<Queued>,
    /// How many at the front are head-of-queue commands.
    urgent: usize,
    service: SimpleService,
    random: Random,
}

impl Queue {
    pub(crate) fn new(service: SimpleService, random: Random) -> Queue {
        Queue { waiting: VecDeque::new(), urgent: 0, service, random }
    }

    pub(crate) fn push(&mut self, command: Queued, head_of_queue: bool) {
        if head_of_queue {
            // Last in, first out, as SCSI has it.
            self.waiting.push_front(command);
            self.urgent += 1;
        } else {
            self.waiting.push_back(command);
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// The command to be serviced next, if there is one; asking again may name another.
    pub(crate) fn next(&mut self) -> Option<usize> {
        let first = self.waiting.front()?;
        if self.urgent > 0 || first.ordered || self.service == SimpleService::Fifo {
            return Some(0);
        }
        let simple = self.waiting.iter().take_while(|command| !command.ordered).count();
        Some(self.random.below(simple as u64) as usize)
    }

    pub(crate) fn get(&self, place: usize) -> Option<&Queued> {
        self.waiting.get(place)
    }

    pub(crate) fn take(&mut self, place: usize) -> Option<Queued> {
        self.urgent = self.urgent.saturating_sub(1);
        self.waiting.remove(place)
    }
}
