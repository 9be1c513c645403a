//! The command queue, and which command is serviced next (S1): head-of-queue commands first; simple ones in any
//! order, but none past an ordered one; an ordered one when all before it have been.

use std::collections::VecDeque;
use std::rc::Rc;

use weir_runtime::Random;
use weir_storage::{Completer, Extent, Tag};

use crate::logical_page::{Discarded, Update};
use crate::map::Pair;
use crate::medium::Payload;
use crate::probe::Subject;
use crate::profile::SimpleService;

/// What a command asks for.
pub(crate) enum Kind {
    Write { blocks: Blocks, barrier: bool, fua: bool, tags: Vec<Tag> },
    Read(Extent),
    Barrier,
    Flush,
    Discard(Discarded),
    Share(Rc<[Pair]>),
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
    /// Whether it ends an epoch.
    pub(crate) fn is_barrier(&self) -> bool {
        matches!(self.kind, Kind::Write { barrier: true, .. } | Kind::Barrier)
    }

    /// Whether it waits for all that linger before it, and everything for it if it lingers itself (S1, S2, F8, F10).
    pub(crate) fn is_exclusive(&self) -> bool {
        let alone = match &self.kind {
            Kind::Share(_) => true,
            Kind::Discard(discarded) => discarded.exclusive,
            _ => false,
        };
        self.ordered || self.is_barrier() || alone
    }

    /// What it is about, but for the epoch, which the machine counts.
    pub(crate) fn subject(&self) -> Subject {
        let (block, blocks) = match &self.kind {
            Kind::Write { blocks, .. } => (blocks.first(), blocks.len() as u32),
            Kind::Read(extent) => (Some(extent.start.0), extent.blocks),
            Kind::Discard(Discarded { first, blocks, .. }) => (Some(*first), *blocks),
            Kind::Share(pairs) => (pairs.first().map(|pair| u64::from(pair.to)), pairs.len() as u32),
            Kind::Barrier | Kind::Flush => (None, 0),
        };
        Subject { block, blocks, epoch: None, barrier: self.is_barrier() }
    }

    /// Whether it is answered only when it is committed to flash.
    pub(crate) fn lingers(&self) -> bool {
        matches!(self.kind, Kind::Write { fua: true, .. } | Kind::Discard(_) | Kind::Share(_))
    }

    /// Places in the cache that it needs.
    pub(crate) fn places(&self) -> usize {
        match &self.kind {
            Kind::Write { blocks, .. } => blocks.places(),
            Kind::Discard(discarded) => discarded.places(),
            Kind::Share(_) => 1,
            Kind::Read(_) | Kind::Barrier | Kind::Flush => 0,
        }
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
